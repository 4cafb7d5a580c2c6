"""Which dialect a recording speaks, by the shape of its own payloads.

File names, URLs and content types lie or are missing; a payload's own `object`, `type`, `choices` or `output` does not.
The first payload that only one dialect writes decides. Pings and errors, which several dialects write alike, decide
only if nothing better comes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from msgspec import Struct

from dragoman._json import Raw, as_object, is_strict, loads
from dragoman.errors import MalformedJson, RemoteProtocolError
from dragoman.inspection.envelope import Recording, open_recording
from dragoman.inspection.visible import visible_line
from dragoman.sse import Frame, parse_lines

__all__ = ("DIALECTS", "DialectName", "Form", "Recognised", "recognise")

DialectName = Literal["chat", "responses", "messages"]
Form = Literal["stream", "body"]

DIALECTS: Mapping[DialectName, str] = {
    "chat": "OpenAI Chat Completions",
    "responses": "OpenAI Responses",
    "messages": "Anthropic Messages",
}

_MESSAGES_EVENTS = frozenset(
    (
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    )
)
_REQUEST_FIELDS = ("messages", "input", "prompt")
_NAMED_FIELDS = 6  # enough of an unknown object's fields to see what it is, on one line
# What a body cut in the middle still says of itself.
_CUT_SIGNS: tuple[tuple[re.Pattern[bytes], DialectName], ...] = (
    (re.compile(rb'"object"\s*:\s*"chat\.completion'), "chat"),
    (re.compile(rb'"object"\s*:\s*"response"'), "responses"),
    (re.compile(rb'"type"\s*:\s*"message"'), "messages"),
    (re.compile(rb'"choices"\s*:'), "chat"),
    (re.compile(rb'"output"\s*:'), "responses"),
)
_CUT_HEAD = (
    64 * 1024
)  # the fields that tell come early; `usage` and `choices` after a very long text may not


class Recognised(Struct, frozen=True):
    """A recording whose dialect and form are known."""

    dialect: DialectName
    form: Form
    recording: Recording


class _Sign(NamedTuple):
    dialect: DialectName
    form: Form
    is_sure: bool = True


def recognise(data: bytes, dialect: DialectName | None = None) -> Recognised:
    """Open a recording and find out its dialect, unless the caller says which it is.

    Raises:
        RemoteProtocolError: these bytes are no recorded answer. The message says what was expected and what came.
    """
    recording = open_recording(data)
    sign = _find_sign(recording)
    found = dialect or (sign.dialect if sign is not None else None)
    if found is None:
        *names, last = DIALECTS.values()
        raise RemoteProtocolError(
            f"expected an answer of {', '.join(names)} or {last}; got {_describe(recording)}"
        )
    is_body = recording.framing == "body" and (sign is None or sign.form == "body")
    return Recognised(found, "body" if is_body else "stream", recording)


def _find_sign(recording: Recording) -> _Sign | None:
    likely: _Sign | None = None
    for frame in _frames(recording):
        sign = _read_sign(frame)
        if sign is not None and sign.is_sure:
            return sign
        likely = likely or sign
    if likely is None and recording.framing == "body" and not is_strict(recording.body):
        return _read_cut_sign(recording.body[:_CUT_HEAD])
    return likely


def _frames(recording: Recording) -> Iterator[Frame]:
    return (parse_lines(raw) for _, raw in recording.frames())


def _read_sign(frame: Frame) -> _Sign | None:
    fields = _fields(frame)
    sign = _read_shape(fields) if fields is not None else None
    if sign is not None and sign.is_sure:
        return sign
    # A frame whose payload is damaged may still have its event name.
    return _read_type(frame.name.decode("utf-8", "replace")) or sign


def _fields(frame: Frame) -> dict[str, Raw] | None:
    if frame.data is None or frame.is_done:
        return None
    try:
        return as_object(frame.data)
    except MalformedJson:
        return None


def _read_shape(fields: Mapping[str, Raw]) -> _Sign | None:
    kind, family = _string(fields, "type"), _string(fields, "object")
    sign = _read_type(kind) or _read_family(family)
    if (
        sign is not None or family == "text_completion"
    ):  # the old completions have `choices` too, and no calls
        return sign
    if "stop_reason" in fields and (kind == "message" or "content" in fields):
        return _Sign("messages", "body")
    if "choices" in fields:
        return _Sign("chat", "body" if b'"message"' in bytes(fields["choices"]) else "stream")
    if bytes(fields.get("output", b"")).startswith(b"["):
        return _Sign("responses", "body")
    return _read_vague_shape(kind, fields)


def _read_type(kind: str) -> _Sign | None:
    if kind.startswith("response."):
        return _Sign("responses", "stream")
    return _Sign("messages", "stream") if kind in _MESSAGES_EVENTS else None


def _read_family(family: str) -> _Sign | None:
    if family.startswith("chat.completion"):
        return _Sign("chat", "stream" if family.endswith(".chunk") else "body")
    return _Sign("responses", "body") if family == "response" else None


def _read_vague_shape(kind: str, fields: Mapping[str, Raw]) -> _Sign | None:
    """Errors and pings. OpenAI's two dialects share one error body; it is called Chat Completions' here."""
    match kind:
        case "ping":
            return _Sign("messages", "stream", is_sure=False)
        case "keepalive":
            return _Sign("responses", "stream", is_sure=False)
        case "error" if "sequence_number" in fields or "error" not in fields:
            return _Sign("responses", "stream", is_sure=False)
        case "error":
            return _Sign("messages", "body", is_sure=False)
        case _:
            return _Sign("chat", "body", is_sure=False) if "error" in fields else None


def _read_cut_sign(head: bytes) -> _Sign | None:
    for pattern, dialect in _CUT_SIGNS:
        if pattern.search(head) is not None:
            return _Sign(dialect, "body", is_sure=False)
    return None


def _string(fields: Mapping[str, Raw], name: str) -> str:
    value = loads(bytes(fields[name])) if name in fields else None
    return value if isinstance(value, str) else ""


def _describe(recording: Recording) -> str:
    """What the payloads look like that no dialect writes."""
    has_payloads = False
    for frame in _frames(recording):
        fields = _fields(frame)
        if fields:
            return _describe_fields(fields)
        has_payloads = has_payloads or (frame.data is not None and not frame.is_done)
    if recording.framing != "body":
        return (
            "a stream whose payloads are no JSON objects"
            if has_payloads
            else "a stream without payloads"
        )
    if is_strict(recording.body):
        return "an empty JSON object"
    return "JSON that is cut or damaged, with no sign of a dialect in it"


def _describe_fields(fields: Mapping[str, Raw]) -> str:
    for name in _REQUEST_FIELDS:
        if name in fields and "model" in fields:
            return f"what looks like a request (it has `{name}`): record the answer to it"
    names = ", ".join(visible_line(name) for name in list(fields)[:_NAMED_FIELDS])
    return f"JSON with the fields {names}" + (", …" if len(fields) > _NAMED_FIELDS else "")
