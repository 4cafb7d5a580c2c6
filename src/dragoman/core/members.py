"""Members of a JSON object changed in place: every other byte stays as it came.

Number spellings, white space, key order and unknown members survive, because nothing but the value at hand is written
anew. An object that has a key twice is not edited in place: which of the two a reader takes is its own affair.

Knows no dialect, and parses only as far as it must: `_json.as_object` finds the members, their bytes are then found
again in order.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from dragoman._json import Raw, as_object, dumps_document, dumps_text, loads
from dragoman.errors import MalformedJson

__all__ = ("replace_member", "set_members")

_OPEN = re.compile(rb"[ \t\r\n]*\{")
_KEY = re.compile(rb'[ \t\r\n,]*"((?:[^"\\]|\\.)*)"[ \t\r\n]*:[ \t\r\n]*')
_COMMA = re.compile(rb"[ \t\r\n]*,")
_CLOSE = re.compile(rb"[ \t\r\n]*\}[ \t\r\n]*")


class _Span(Struct, frozen=True, gc=False):
    """A member: from the end of the one before it to the end of its value, which begins at `value`."""

    start: int
    value: int
    end: int


def replace_member(data: bytes, path: Sequence[str], value: bytes) -> bytes | None:
    """The object with the value at `path` replaced; None if it has none there, or a key twice on the way."""
    start, end = 0, len(data)
    for key in path:
        try:
            spans = _spans(data[start:end])
        except MalformedJson:
            return None
        span = None if spans is None else spans.get(key)
        if span is None:
            return None
        start, end = start + span.value, start + span.end
    return data[:start] + value + data[end:]


def set_members(data: bytes, values: Mapping[str, bytes | None]) -> bytes:
    """The object with these members replaced, or added at its end; those that are None are taken out.

    Where a key stands twice the object is written anew with the last of each, as every reader here takes it.

    Raises:
        MalformedJson: it is no JSON object.
    """
    spans = _spans(data)
    if spans is None:
        fields: dict[str, object] = {**as_object(data)}
        for key, value in values.items():
            fields.pop(key, None)
            if value is not None:
                fields[key] = Raw(value)
        return dumps_document(fields)
    for number, (key, span) in reversed([*enumerate(spans.items())]):
        if key in values:
            value = values[key]
            if value is not None:
                data = data[: span.value] + value + data[span.end :]
            else:
                data = _without(data, span, is_first=number == 0)
    added = [
        dumps_text(key) + b":" + value
        for key, value in values.items()
        if key not in spans and value is not None
    ]
    return _with(data, added) if added else data


def _without(data: bytes, span: _Span, *, is_first: bool) -> bytes:
    comma = _COMMA.match(data, span.end) if is_first else None
    return data[: span.start] + data[span.end if comma is None else comma.end() :]


def _with(data: bytes, members: Sequence[bytes]) -> bytes:
    end = data.rindex(b"}")
    before = data[:end].rstrip()
    comma = b"" if before.endswith(b"{") else b","
    return before + comma + b",".join(members) + data[end:]


def _spans(data: bytes) -> dict[str, _Span] | None:
    """Where each member stands; None if a key stands twice."""
    fields = as_object(data)
    opening = _OPEN.match(data)
    position = 0 if opening is None else opening.end()
    spans: dict[str, _Span] = {}
    for key, raw in fields.items():
        name = _KEY.match(data, position)
        value = bytes(raw)
        if name is None or not data.startswith(value, name.end()) or not _is_key(name[1], key):
            return None
        spans[key] = _Span(position, name.end(), name.end() + len(value))
        position = name.end() + len(value)
    return spans if _CLOSE.fullmatch(data, position) else None


def _is_key(spelled: bytes, key: str) -> bool:
    if b"\\" in spelled:
        return bool(loads(b'"' + spelled + b'"') == key)
    return spelled == key.encode("utf-8", "replace")
