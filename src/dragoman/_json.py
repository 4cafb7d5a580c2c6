"""JSON, in one place: the only module that imports a JSON library.

Reading is msgspec's, with one retry by the standard library for what msgspec refuses although it is JSON: a lone
surrogate escape (`"\\ud83d"` whose other half arrives in the next delta), numbers beyond a double, integers of any
length. Writing is compact UTF-8 that is safe inside a server-sent event: U+0085, U+2028 and U+2029 are always
escaped, because clients built on line iterators split there, and lone surrogates are written as escapes.

Opaque sub-documents are `Raw`: the bytes as they came.
"""

import json as _stdlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from dragoman.errors import MalformedJson

__all__ = (
    "FAST_FAILURES",
    "Raw",
    "as_object",
    "dumps",
    "dumps_text",
    "escape_separators",
    "is_prefix",
    "is_strict",
    "loads",
    "raw",
    "typed_decoder",
)

Raw = msgspec.Raw
T = TypeVar("T")

_decode: Callable[[bytes | str], Any] = msgspec.json.Decoder().decode
_encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode

FAST_FAILURES = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What a fast decoder raises. A caller catches these and reads the same bytes again with `loads` or `as_object`."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _loads_slowly(data: bytes | str) -> Any:
    text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    # Integers above 4300 digits make int() raise; as a float they merely lose precision nobody can use.
    return _stdlib.loads(text, parse_constant=_refuse_constant, parse_int=_parse_int)


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= 4000 else float(digits)


def loads(data: bytes | str) -> Any:
    """Parse JSON into plain Python values.

    Raises:
        MalformedJson: the text is not JSON, not UTF-8, or nested deeper than we read.
    """
    try:
        return _decode(data)
    except FAST_FAILURES:
        try:
            return _loads_slowly(data)
        except (ValueError, RecursionError) as error:
            raise MalformedJson(f"expected JSON, got {_excerpt(data)}: {error}") from error


def as_object(data: bytes | str) -> dict[str, Raw]:
    """Parse one JSON object, its values left as the bytes they came in.

    Raises:
        MalformedJson: not JSON, or JSON of another type.
    """
    try:
        return _decode_object(data)
    except FAST_FAILURES:
        value = loads(data)
        if not isinstance(value, dict):
            raise MalformedJson(f"expected a JSON object, got {_excerpt(data)}") from None
        return {str(key): Raw(dumps(item)) for key, item in value.items()}


def typed_decoder(kind: type[T]) -> Callable[[bytes], T]:
    """A decoder of `kind` for the hot path: bare, so it costs no wrapper, and raises `FAST_FAILURES`."""
    return msgspec.json.Decoder(kind).decode


def is_strict(text: str | bytes) -> bool:
    """Whether the text is one strict JSON value (RFC 8259), however large its numbers."""
    try:
        loads(text)
    except MalformedJson:
        return False
    return True


def is_prefix(text: str) -> bool:
    """Whether more text could make this strict JSON. May say no to a text cut inside a literal or an escape."""
    try:
        _stdlib.loads(text, parse_constant=_refuse_constant, parse_int=_parse_int)
    except _stdlib.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())
    except (ValueError, RecursionError):
        return False
    return True


def dumps(value: Any) -> bytes:
    """Compact JSON, safe inside an SSE data line. `Raw` values are written as they are."""
    try:
        out = _encode(value)
    except UnicodeEncodeError:
        out = _dumps_slowly(value)
    return out if out.isascii() else escape_separators(out)


dumps_text: Callable[[str], bytes] = dumps
"""One JSON string. (The same function; the name says what the caller splices.)"""


def raw(value: Any) -> Raw:
    """A value as opaque JSON."""
    return Raw(dumps(value))


def escape_separators(data: bytes) -> bytes:
    """Escape the three line separators that JSON allows bare in strings and line iterators split at."""
    if b"\xe2\x80\xa8" in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028")
    if b"\xe2\x80\xa9" in data:
        data = data.replace(b"\xe2\x80\xa9", b"\\u2029")
    if b"\xc2\x85" in data:
        data = data.replace(b"\xc2\x85", b"\\u0085")
    return data


def _dumps_slowly(value: Any) -> bytes:
    """For strings with lone surrogates, which have no UTF-8: everything non-ASCII as escapes."""
    return _stdlib.dumps(
        _plain(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False
    ).encode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, Raw):
        return loads(bytes(value))
    if isinstance(value, msgspec.Struct):
        return {
            name: _plain(getattr(value, attribute))
            for name, attribute in zip(
                value.__struct_encode_fields__, value.__struct_fields__, strict=True
            )
            if getattr(value, attribute) is not msgspec.UNSET
        }
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _excerpt(data: bytes | str) -> str:
    head = data[:60]
    shown = head if isinstance(head, str) else bytes(head).decode("utf-8", "replace")
    return repr(shown + ("…" if len(data) > len(head) else ""))
