"""Bytes that are a picture, told by how they begin; and as a part of a message."""

from base64 import b64encode

from dragoman.model.parts import Media

__all__ = ("image_part", "image_type")

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type(data: bytes) -> str | None:
    """The media type of a picture that models take; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES if data.startswith(start)), None)


def image_part(data: bytes) -> Media | None:
    """A picture as a model is shown it; None if the bytes are none."""
    kind = image_type(data)
    if kind is None:
        return None
    return Media(kind="image", media_type=kind, data=b64encode(data).decode("ascii"))
