"""Media inside a request or an answer: data URLs, and the names of audio formats."""

from dragoman.model.parts import Media

_AUDIO_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


def split_data_url(url: str | None) -> tuple[str, str] | None:
    """Media type and base64 data of a data URL; None for any other URL, and for data URLs with parameters."""
    if url is None or not url.startswith("data:"):
        return None
    head, comma, data = url.partition(",")
    media_type, _, encoding = head.removeprefix("data:").partition(";")
    return (media_type, data) if comma and media_type and encoding == "base64" else None


def data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def image_url(media: Media) -> str | None:
    """The URL of an image; a data URL if the image has data."""
    if media.data is None:
        return media.url
    return data_url(media.media_type or "image/png", media.data)


def file_data(media: Media) -> str | None:
    """The data of a file, as a data URL if its type is known."""
    if media.data is None or media.media_type is None:
        return media.data
    return data_url(media.media_type, media.data)


def audio_type(form: str) -> str:
    """The media type of an audio format's name."""
    return _AUDIO_TYPES.get(form, f"audio/{form}")


def audio_format(media_type: str | None) -> str:
    """OpenAI's name of the audio format with this media type."""
    kind = media_type or "audio/wav"
    return _AUDIO_FORMATS.get(kind, kind.rpartition("/")[2])
