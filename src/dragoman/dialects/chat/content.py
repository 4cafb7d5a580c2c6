"""Content parts of messages, both ways: text, images, sound, files.

A part of a type that has no meaning here is Opaque and goes back whole. Fields that have no home ride in the part's
`extra`; those inside the nested object (`image_url`, `file`, …) under the name of that object.
"""

from typing import assert_never

from dragoman._json import Raw, raw
from dragoman.dialects.chat.fields import (
    extra_of,
    fields_of,
    join_object,
    own_fields,
    text_of,
)
from dragoman.model.parts import Extra, Media, MediaKind, Opaque, Refusal, Text

__all__ = ("ContentPart", "data_url", "read_part", "split_data_url", "write_media", "write_text")

ContentPart = Text | Refusal | Media | Opaque

_MEDIA: dict[str, MediaKind] = {
    "image_url": "image",
    "video_url": "video",
    "input_audio": "audio",
    "file": "file",
}
_PART_FIELDS = frozenset({"type", "text", "refusal", "cache_control", *_MEDIA})
_MEDIA_FIELDS = frozenset({"url", "detail", "data", "format", "file_id", "file_data", "filename"})
_AUDIO_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


def split_data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 data of a data URL; None for any other, and for data URLs of other forms."""
    if not url.startswith("data:"):
        return None
    head, comma, data = url.partition(",")
    media_type, _, encoding = head[5:].partition(";")
    return (media_type, data) if comma and media_type and encoding == "base64" else None


def data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def read_part(value: Raw) -> ContentPart:
    """One entry of a content list."""
    fields = fields_of(value)
    kind = text_of(fields.get("type")) or ""
    text = text_of(fields.get("text"))
    cache, extra = fields.get("cache_control"), extra_of(fields, _PART_FIELDS)
    if text is not None and kind in ("text", "input_text", "output_text"):
        return Text(text=text, cache=cache, extra=extra)
    refusal = text_of(fields.get("refusal"))
    if kind == "refusal" and refusal is not None:
        return Refusal(text=refusal, extra=extra)
    media = _read_media(kind, fields.get(kind), cache, extra)
    return media or Opaque(dialect="chat", type=kind, raw=value)


def _read_media(
    kind: str, inner: Raw | None, cache: Raw | None, extra: Extra | None
) -> Media | None:
    media = _MEDIA.get(kind)
    if media is None:
        return None
    # `image_url` may be the URL itself.
    url = text_of(inner)
    fields = {"url": raw(url)} if url is not None else fields_of(inner)
    rest = extra_of(fields, _MEDIA_FIELDS)
    if rest is not None:
        extra = Extra("chat", {**own_fields(extra), kind: join_object(rest.fields)})
    media_type: str | None = None
    data = text_of(fields.get("data" if media == "audio" else "file_data"))
    url = text_of(fields.get("url"))
    if media == "audio":
        form = text_of(fields.get("format")) or "wav"
        media_type = _AUDIO_TYPES.get(form, f"audio/{form}")
    elif data is not None and data.startswith(("http://", "https://")):
        data, url = None, data
    split = split_data_url(data or url or "")
    if split is not None:
        url = None
        media_type, data = split
    file_id = text_of(fields.get("file_id"))
    if data is None and url is None and file_id is None:
        return None
    return Media(
        kind=media,
        media_type=media_type,
        data=data,
        url=url,
        file_id=file_id,
        filename=text_of(fields.get("filename")),
        detail=text_of(fields.get("detail")),
        cache=cache,
        extra=extra,
    )


def write_text(text: Text, cache: Raw | None) -> dict[str, object]:
    out: dict[str, object] = {"type": "text", "text": text.text}
    if cache is not None:
        out["cache_control"] = cache
    return {**out, **own_fields(text.extra)}


def write_media(media: Media, cache: Raw | None) -> dict[str, object] | None:
    """The part, or None where Chat has no form for it: a file by URL, a picture or a sound by id."""
    inner, kind = _write_inner(media)
    if inner is None:
        return None
    rest = dict(own_fields(media.extra))
    inner.update(fields_of(rest.pop(kind, None)))
    out: dict[str, object] = {"type": kind, kind: inner}
    if cache is not None:
        out["cache_control"] = cache
    return {**out, **rest}


def _write_inner(media: Media) -> tuple[dict[str, object] | None, str]:
    data = media.data
    match media.kind:
        case "audio":
            if data is None:
                return None, ""
            media_type = media.media_type or "audio/wav"
            form = _AUDIO_FORMATS.get(media_type, media_type.rpartition("/")[2])
            return {"data": data, "format": form}, "input_audio"
        case "file":
            return _write_file(media), "file"
        case "image" | "video":
            kind = "image_url" if media.kind == "image" else "video_url"
            default = "image/png" if media.kind == "image" else "video/mp4"
            url = media.url if data is None else data_url(media.media_type or default, data)
            if url is None:
                return None, ""
            return {"url": url, **({"detail": media.detail} if media.detail else {})}, kind
        case _:
            assert_never(media.kind)


def _write_file(media: Media) -> dict[str, object] | None:
    out: dict[str, object] = {}
    if media.file_id is not None:
        out["file_id"] = media.file_id
    elif media.data is not None:
        typed = media.media_type is not None
        out["file_data"] = data_url(media.media_type or "", media.data) if typed else media.data
    else:
        return None
    if media.filename is not None:
        out["filename"] = media.filename
    return out
