"""Reads and writes content parts, annotations and sealed reasoning of messages and answers."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from msgspec import Struct

from dragoman._json import Raw, dumps, is_strict, raw
from dragoman.core import aliases
from dragoman.core.fields import (
    extra_of,
    join_object,
    own_fields,
    read_fragment,
    read_int,
    read_items,
    read_present,
)
from dragoman.core.losses import LossBook
from dragoman.core.media import (
    audio_format,
    audio_type,
    data_url,
    file_data,
    image_url,
    split_data_url,
)
from dragoman.dialects.chat.losses import note_extra, note_foreign
from dragoman.dialects.chat.wire import (
    CACHE_BREAKPOINT,
    CACHE_CONTROL,
    FINISH_OF_REASON,
    REASONING_FIELDS,
    SEALED_FIELDS,
)
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import (
    Annotation,
    Breakpoint,
    Call,
    Extra,
    Media,
    MediaKind,
    Opaque,
    Reasoning,
    Refusal,
    Seal,
    Text,
)

ContentPart = Text | Refusal | Media | Opaque

_BREAKPOINT = "prompt_cache_breakpoint"
_MEDIA: dict[str, MediaKind] = {
    "image_url": "image",
    "video_url": "video",
    "input_audio": "audio",
    "file": "file",
}
_PART_FIELDS = frozenset({"type", "text", "refusal", "cache_control", *_MEDIA})
_OWN_PART_FIELDS = _PART_FIELDS | {_BREAKPOINT}
_MEDIA_FIELDS = frozenset({"url", "detail", "data", "format", "file_id", "file_data", "filename"})


def read_part(value: Raw) -> ContentPart:
    """Read one entry of a content list."""
    fields = read_present(value)
    kind = read_fragment(fields.get("type")) or ""
    text = read_fragment(fields.get("text"))
    cache = CACHE_CONTROL.read(fields.get("cache_control"))
    known = _PART_FIELDS
    if cache is None and _BREAKPOINT in fields:
        cache, known = CACHE_BREAKPOINT.read(fields[_BREAKPOINT]), _OWN_PART_FIELDS
    extra = extra_of("chat", fields, known)
    if text is not None and kind in ("text", "input_text", "output_text"):
        return Text(text=text, cache=cache, extra=extra)
    refusal = read_fragment(fields.get("refusal"))
    if kind == "refusal" and refusal is not None:
        return Refusal(text=refusal, extra=extra)
    media = _read_media(kind, fields.get(kind), cache, extra)
    return media or Opaque(dialect="chat", type=kind, raw=value)


def _read_media(
    kind: str, inner: Raw | None, cache: Breakpoint | None, extra: Extra | None
) -> Media | None:
    media = _MEDIA.get(kind)
    if media is None:
        return None
    # `image_url` may be the URL itself.
    url = read_fragment(inner)
    fields = {"url": raw(url)} if url is not None else read_present(inner)
    rest = extra_of("chat", fields, _MEDIA_FIELDS)
    if rest is not None:
        extra = Extra("chat", {**own_fields("chat", extra), kind: join_object(rest.fields)})
    media_type: str | None = None
    data = read_fragment(fields.get("data" if media == "audio" else "file_data"))
    url = read_fragment(fields.get("url"))
    if media == "audio":
        form = read_fragment(fields.get("format")) or "wav"
        media_type = audio_type(form)
    elif data is not None and data.startswith(("http://", "https://")):
        data, url = None, data
    split = split_data_url(data or url)
    if split is not None:
        url = None
        media_type, data = split
    file_id = read_fragment(fields.get("file_id"))
    if data is None and url is None and file_id is None:
        return None
    return Media(
        kind=media,
        media_type=media_type,
        data=data,
        url=url,
        file_id=file_id,
        filename=read_fragment(fields.get("filename")),
        detail=read_fragment(fields.get("detail")),
        cache=cache,
        extra=extra,
    )


def put_breakpoint(fields: dict[str, object], point: Breakpoint | None) -> None:
    """Add a breakpoint to a content part, a message, a call or a tool."""
    if point is not None:
        if point.alone:
            fields["cache_control"] = CACHE_CONTROL.write(point)
        else:
            fields[_BREAKPOINT] = CACHE_BREAKPOINT.write(point)


def write_text(text: Text, cache: Breakpoint | None) -> dict[str, object]:
    out: dict[str, object] = {"type": "text", "text": text.text}
    if cache is not None:
        put_breakpoint(out, cache)
    return {**out, **own_fields("chat", text.extra)}


def write_media(media: Media, cache: Breakpoint | None) -> dict[str, object] | None:
    """Write a media part; None where Chat has no form for it: a file by URL, a picture or a sound by id."""
    inner, kind = _write_inner(media)
    if inner is None:
        return None
    rest = dict(own_fields("chat", media.extra))
    inner.update(read_present(rest.pop(kind, None)))
    out: dict[str, object] = {"type": kind, kind: inner}
    put_breakpoint(out, cache)
    return {**out, **rest}


def _write_inner(media: Media) -> tuple[dict[str, object] | None, str]:
    data = media.data
    match media.kind:
        case "audio":
            if data is None:
                return None, ""
            return {"data": data, "format": audio_format(media.media_type)}, "input_audio"
        case "file":
            return _write_file(media), "file"
        case "image" | "video":
            kind = f"{media.kind}_url"
            url = image_url(media)
            if media.kind == "video" and data is not None:
                url = data_url(media.media_type or "video/mp4", data)
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
        out["file_data"] = file_data(media)
    else:
        return None
    if media.filename is not None:
        out["filename"] = media.filename
    return out


def read_annotation(value: Raw) -> Annotation:
    citation = read_present(read_present(value).get("url_citation"))
    return Annotation(
        dialect="chat",
        raw=value,
        url=read_fragment(citation.get("url")),
        title=read_fragment(citation.get("title")),
        start=read_int(citation.get("start_index")),
        end=read_int(citation.get("end_index")),
    )


def write_annotation(annotation: Annotation) -> Raw | None:
    """Write a citation; None if it has no URL, which Chat requires."""
    if annotation.dialect == "chat":
        return annotation.raw
    if annotation.url is None:
        return None
    # The SDK's type requires all four fields. A citation without a range gets the beginning of the text.
    citation = {
        "end_index": annotation.end or 0,
        "start_index": annotation.start or 0,
        "title": annotation.title or annotation.url,
        "url": annotation.url,
    }
    return raw({"type": "url_citation", "url_citation": citation})


_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary", "thinking": "thinking"}


class SealedEntry(Struct, frozen=True):
    text: str
    seal: Seal | None


def read_sealed(raw: Raw) -> SealedEntry:
    """Read the text and the seal of an entry of `SEALED_FIELDS`; an entry of an unknown type has neither."""
    fields = read_present(raw)
    kind = read_fragment(fields.get("type")) or ""
    text = read_fragment(fields.get(_TEXTS.get(kind, ""))) or ""
    signature = read_fragment(fields.get("signature"))
    if signature and kind in _TEXTS:
        return SealedEntry(text, Seal("signature", signature))
    data = read_fragment(fields.get("data"))
    if not data:
        return SealedEntry(text, None)
    if kind == "redacted_thinking":
        return SealedEntry(text, Seal("redacted", data))
    if kind == "reasoning.encrypted":
        return SealedEntry(text, _encrypted(data, read_fragment(fields.get("format")) or ""))
    return SealedEntry(text, None)


def _encrypted(data: str, origin: str) -> Seal:
    """Return the seal of an encrypted entry. `origin` is its `format`: `anthropic-claude-v1`, `google-gemini-v1`, …"""
    if origin.startswith("anthropic"):
        return Seal("redacted", data)
    if origin.startswith("google"):
        return Seal("thought", dumps({"google": {"thought_signature": data}}).decode("utf-8"))
    return Seal("encrypted", data)


FAILING_REASONS: frozenset[FinishReason] = frozenset({"error", "cancelled"})
"""Finish reasons that are written as an error: Chat has no word for an answer that did not end."""

_DETAILED: frozenset[FinishReason] = frozenset({"context_window", "refusal", "pause"})


def flat_name(call: Call, book: LossBook, where: str) -> str:
    """Return the name of a call without namespaces. A call without a name gets the name of its kind."""
    if call.namespace is not None:
        book.note("namespace", where, call.namespace)
    return aliases.flat_name(call.name or call.kind, call.namespace)


def is_expressible(call: Call, book: LossBook, where: str) -> bool:
    """Whether a call may be written as a client's call."""
    if call.executor != "client":
        book.note("provider_call", where, call.name)
        return False
    if call.kind not in ("function", "custom"):
        book.note("call_kind", where, call.kind)
    return True


def seal_content(seal: Seal) -> Raw | None:
    """Return a seal as a call's `extra_content`; None if it did not come from there."""
    if seal.kind != "thought" or not is_strict(seal.data):
        return None
    return Raw(seal.data.encode("utf-8"))


def finish_word(reason: FinishReason, calls: int, *, has_cut_call: bool, legacy: bool) -> str:
    """Return the `finish_reason` of a choice that has this many calls.

    A choice with a call that was cut never ends as if its calls could be run.
    """
    word = FINISH_OF_REASON[reason]
    if word in ("stop", "tool_calls"):
        if has_cut_call:
            return "length"
        if not calls:
            return "stop"
    return "function_call" if word == "tool_calls" and legacy else word


def note_finish(reason: FinishReason, book: LossBook, where: str) -> None:
    if reason in _DETAILED:
        book.note("finish_detail", where, reason)


def cite(annotation: Annotation, book: LossBook, where: str) -> Raw | None:
    """Write a citation, and note as a loss what Chat cannot express."""
    written = write_annotation(annotation)
    if written is None:
        book.note("annotation", where)
    elif annotation.quote is not None and annotation.dialect != "chat":
        book.note("annotation", where, "its quotation")
    return written


def sealed_fields(reasoning: Reasoning, book: LossBook, where: str) -> dict[str, Raw]:
    """Return the lists of sealed reasoning that came in this dialect; note other seals and fields as losses."""
    own = own_fields("chat", reasoning.extra)
    sealed = {name: own[name] for name in SEALED_FIELDS if name in own}
    if own.keys() - {*SEALED_FIELDS, *REASONING_FIELDS}:
        note_extra(book, reasoning.extra, where)
    note_foreign(book, reasoning.extra, where)
    if reasoning.seals and not sealed:
        book.note("seal", where)
    return sealed


def join_sealed(fields: Sequence[Mapping[str, Raw]]) -> dict[str, Raw]:
    """Return the lists of sealed reasoning of one message, which may have several reasonings with such fields."""
    joined: dict[str, Raw] = {}
    for name in SEALED_FIELDS:
        lists = [own[name] for own in fields if name in own]
        if len(lists) == 1:
            joined[name] = lists[0]
        elif lists:
            entries = [bytes(entry) for each in lists for entry in read_items(each)]
            joined[name] = Raw(b"[" + b",".join(entries) + b"]")
    return joined


def write_audio(media: Media, item_id: str) -> dict[str, object]:
    return {
        "id": item_id,
        **({"data": media.data} if media.data else {}),
        **({"transcript": media.transcript} if media.transcript else {}),
        **own_fields("chat", media.extra),
    }


def write_image(media: Media) -> dict[str, object] | None:
    """Write an entry of `images`; None if the media is not an image or has no data or URL."""
    url = image_url(media) if media.kind == "image" else None
    return None if url is None else {"type": "image_url", "image_url": {"url": url}}
