"""Content parts of messages and of tool outputs, both ways: text, refusals, images, files, audio, annotations."""

from collections.abc import Collection, Mapping, Sequence

from dragoman._json import Raw, raw
from dragoman.core.fields import (
    Fields,
    extra_of,
    own_fields,
    read_int,
    read_list,
    read_object,
    read_text,
)
from dragoman.core.media import audio_format, audio_type, file_data, image_url, split_data_url
from dragoman.dialects.responses.wire import CACHE_BREAKPOINT, OPAQUE_PART
from dragoman.model.parts import Annotation, Breakpoint, Extra, Media, Opaque, Refusal, Text

Content = Text | Refusal | Media | Opaque

BREAKPOINT = "prompt_cache_breakpoint"
_TEXT_FIELDS = frozenset({"type", "text", "annotations", "logprobs", BREAKPOINT})
_TEXT_TYPES = frozenset({"output_text", "input_text", "text"})
_IMAGE_FIELDS = frozenset({"type", "image_url", "file_id", "detail", BREAKPOINT})
_FILE_FIELDS = frozenset(
    {"type", "file_data", "file_url", "file_id", "filename", "detail", BREAKPOINT}
)
_SOUND_FIELDS = frozenset({"type", "input_audio", BREAKPOINT})


def read_content(
    part: Raw, fields: Fields, *, item_id: str | None = None, item_extra: Extra | None = None
) -> Content:
    """Read one content part. An unknown part becomes an Opaque."""
    kind = read_text(fields.get("type")) or ""
    if kind in _TEXT_TYPES:
        return Text(
            text=read_text(fields.get("text")) or "",
            annotations=read_annotations(fields.get("annotations")),
            logprobs=read_logprobs(fields.get("logprobs")),
            item_id=item_id,
            item_extra=item_extra,
            cache=CACHE_BREAKPOINT.read(fields.get(BREAKPOINT)),
            extra=extra_of("responses", fields, _TEXT_FIELDS),
        )
    if kind == "refusal":
        return Refusal(
            text=read_text(fields.get("refusal")) or "",
            item_id=item_id,
            item_extra=item_extra,
            extra=extra_of("responses", fields, ("type", "refusal")),
        )
    if kind == "input_image":
        return read_image(fields)
    if kind == "input_file":
        return _file(fields)
    if kind == "input_audio":
        return _sound(fields)
    return Opaque(dialect="responses", type=OPAQUE_PART + kind, raw=part, item_id=item_id)


def read_annotations(value: Raw | None) -> tuple[Annotation, ...]:
    entries = read_list(value)
    return tuple(map(read_annotation, entries)) if entries else ()


def read_logprobs(value: Raw | None) -> Raw | None:
    """Return the logprobs; None for an empty list, which every text has."""
    return value if value is not None and read_list(value) else None


def read_annotation(entry: Raw) -> Annotation:
    fields = read_object(entry)
    index = read_int(fields.get("index"))
    start = read_int(fields.get("start_index"))
    return Annotation(
        dialect="responses",
        raw=entry,
        url=read_text(fields.get("url")),
        title=read_text(fields.get("title")) or read_text(fields.get("filename")),
        start=index if start is None else start,
        end=read_int(fields.get("end_index")),
    )


def annotation_fields(annotation: Annotation) -> Raw | None:
    """Return an annotation for this dialect; None if this dialect cannot express it."""
    if annotation.dialect == "responses":
        return annotation.raw
    if annotation.url is None:
        return None
    start = annotation.start or 0
    return raw(
        {
            "type": "url_citation",
            "start_index": start,
            "end_index": start if annotation.end is None else annotation.end,
            "title": annotation.title or "",
            "url": annotation.url,
        }
    )


def output_text_fields(
    text: str, annotations: Sequence[Raw] = (), logprobs: Raw | None = None
) -> dict[str, object]:
    return {
        "type": "output_text",
        "annotations": list(annotations),
        "logprobs": Raw(b"[]") if logprobs is None else logprobs,
        "text": text,
    }


def read_image(fields: Fields, known: Collection[str] = _IMAGE_FIELDS) -> Media:
    """Read an image of a message, or a screenshot."""
    value = fields.get("image_url")
    # A string in this dialect, but some clients send Chat's object.
    url = read_text(value) or read_text(read_object(value).get("url"))
    inline = split_data_url(url)
    return Media(
        kind="image",
        media_type=inline[0] if inline else None,
        data=inline[1] if inline else None,
        url=None if inline else url,
        file_id=read_text(fields.get("file_id")),
        detail=read_text(fields.get("detail")),
        cache=CACHE_BREAKPOINT.read(fields.get(BREAKPOINT)) if BREAKPOINT in known else None,
        extra=extra_of("responses", fields, known),
    )


def _file(fields: Fields) -> Media:
    data = read_text(fields.get("file_data"))
    inline = split_data_url(data)
    return Media(
        kind="file",
        media_type=inline[0] if inline else None,
        data=inline[1] if inline else data,
        url=read_text(fields.get("file_url")),
        file_id=read_text(fields.get("file_id")),
        filename=read_text(fields.get("filename")),
        detail=read_text(fields.get("detail")),
        cache=CACHE_BREAKPOINT.read(fields.get(BREAKPOINT)),
        extra=extra_of("responses", fields, _FILE_FIELDS),
    )


def _sound(fields: Fields) -> Media:
    sound = read_object(fields.get("input_audio"))
    form = read_text(sound.get("format"))
    return Media(
        kind="audio",
        media_type=audio_type(form) if form else None,
        data=read_text(sound.get("data")),
        cache=CACHE_BREAKPOINT.read(fields.get(BREAKPOINT)),
        extra=extra_of("responses", fields, _SOUND_FIELDS),
    )


def breakpoint_fields(point: Breakpoint | None) -> dict[str, object]:
    """The field of a breakpoint; none for one of Anthropic's, which place all breakpoints: OpenAI caches by itself."""
    return {} if point is None or point.alone else {BREAKPOINT: CACHE_BREAKPOINT.write(point)}


def media_fields(media: Media) -> dict[str, object] | None:
    """Return an image, a file or audio as an input part; None if this dialect has no part for it."""
    if media.kind == "image":
        out = _image_fields(media)
    elif media.kind == "file":
        out = _file_fields(media)
    elif media.kind == "audio" and media.data is not None:
        sound = {"data": media.data, "format": audio_format(media.media_type)}
        out = {"type": "input_audio", "input_audio": sound}
    else:
        return None
    return {**out, **breakpoint_fields(media.cache), **own_fields("responses", media.extra)}


def _image_fields(media: Media) -> dict[str, object]:
    values = {"image_url": image_url(media), "file_id": media.file_id}
    return {"type": "input_image", **_given(values), "detail": media.detail or "auto"}


def _file_fields(media: Media) -> dict[str, object]:
    values = {
        "filename": media.filename,
        "file_data": file_data(media),
        "file_url": media.url,
        "file_id": media.file_id,
        "detail": media.detail,
    }
    out: dict[str, object] = {"type": "input_file", **_given(values)}
    if "file_data" in out and "filename" not in out:
        # OpenAI refuses inline data without a name.
        out["filename"] = "file"
    return out


def _given(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}
