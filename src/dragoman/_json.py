"""JSON, in one place: the only module that imports a JSON library.

Reading is msgspec's, with one retry by the standard library for what msgspec refuses although it is JSON: a lone
surrogate escape (`"\\ud83d"` whose other half arrives in the next delta), numbers beyond a double, integers of any
length. Writing is compact UTF-8 that is safe inside a server-sent event: U+0085, U+2028 and U+2029 are always
escaped, because clients built on line iterators split there, line ends between the tokens of a `Raw` become spaces,
and lone surrogates are written as escapes. `dumps_document` is for bodies, where a `Raw` keeps its every byte.

Opaque sub-documents are `Raw`: the bytes as they came.
"""

import json as _stdlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Never, TypeVar, cast

import msgspec

from dragoman.errors import MalformedJson

__all__ = (
    "FAST_FAILURES",
    "REQUIRED",
    "Raw",
    "as_object",
    "decode_untyped",
    "dumps",
    "dumps_canonical",
    "dumps_document",
    "dumps_each",
    "dumps_text",
    "dumps_texts",
    "escape_separators",
    "is_prefix",
    "is_strict",
    "loads",
    "loads_texts",
    "raw",
    "record_type",
    "schema_of",
    "typed_decoder",
)

Raw = msgspec.Raw
REQUIRED: object = msgspec.NODEFAULT
"""The default of a member that has none, for `record_type`."""
T = TypeVar("T")

_decode: Callable[[bytes | str], Any] = msgspec.json.Decoder().decode
decode_untyped: Callable[[Raw], object] = _decode
"""`loads` for the hot path: bare, without the retry, raising `FAST_FAILURES`."""
_encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_texts = msgspec.json.Decoder(str).decode_lines

_SPACE = " \t\n\r"
_CUT_VALUES = frozenset(("t", "tr", "tru", "f", "fa", "fal", "fals", "n", "nu", "nul", "-"))
_CUT_NUMBER = re.compile(r"[0-9](?:\.|[eE][+-]?)")
_CUT_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,4}")  # the parser wants to see beyond the fourth

# Asking for a byte by its number costs an eighth of asking for a bytes object of length one.
_LF, _CR = b"\n\r"
_LEAD_OF_2028, _LEAD_OF_0085 = b"\xe2\xc2"

FAST_FAILURES = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What a fast decoder raises. A caller catches these and reads the same bytes again with `loads` or `as_object`."""


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _loads_slowly(data: bytes | str) -> object:
    text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    # Integers above 4300 digits make int() raise; as a float they merely lose precision nobody can use.
    return _stdlib.loads(text, parse_constant=_refuse_constant, parse_int=_parse_int)


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= 4000 else float(digits)


_find_value = _stdlib.JSONDecoder(parse_int=_parse_int).raw_decode


def loads(data: bytes | str) -> Any:  # noqa: ANN401 -- JSON has no static type; callers narrow
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


def as_object(data: bytes | str, *, is_utf8: bool = False) -> dict[str, Raw]:
    """Parse one JSON object, its values left as the bytes they came in. `is_utf8`: that has been seen to.

    Raises:
        MalformedJson: not JSON, not UTF-8, or JSON of another type.
    """
    try:
        fields = _decode_object(data)
        # msgspec does not look into the strings of a value it leaves raw
        if not is_utf8 and isinstance(data, bytes) and not data.isascii():
            data.decode("utf-8")
    except FAST_FAILURES:
        if not isinstance(loads(data), dict):
            raise MalformedJson(f"expected a JSON object, got {_excerpt(data)}") from None
        return _split_object(data if isinstance(data, str) else data.decode("utf-8"))
    return fields


def _split_object(text: str) -> dict[str, Raw]:
    """The fields of a text that `loads` has found to be an object: nothing here can fail any more."""
    fields: dict[str, Raw] = {}
    position = text.index("{") + 1
    while (quote := text.find('"', position)) >= 0:
        key, start = _find_value(text, quote)
        while text[start] in _SPACE + ":":
            start += 1
        _, position = _find_value(text, start)
        # A surrogate can only stand inside a string, where its escape means the same.
        fields[key] = Raw(text[start:position].encode("utf-8", "backslashreplace"))
    return fields


def typed_decoder(kind: type[T]) -> Callable[[bytes], T]:
    """A decoder of `kind` for the hot path: bare, so it costs no wrapper, and raises `FAST_FAILURES`."""
    return msgspec.json.Decoder(kind).decode


def record_type(name: str, fields: Sequence[tuple[str, object, object]]) -> type[msgspec.Struct]:
    """A type for objects with exactly these members: (name, type, its default or `REQUIRED`).

    Raises:
        TypeError: a type cannot be read from JSON.
    """
    members = [
        (member, kind)
        if default is REQUIRED
        else (member, kind, msgspec.field(default_factory=partial(_same, default)))
        for member, kind, default in fields
    ]
    return msgspec.defstruct(name, cast("Any", members), forbid_unknown_fields=True, kw_only=True)


def _same(value: T) -> T:
    return value


def schema_of(kind: object) -> dict[str, Any]:
    """The JSON schema of a type, its definitions under `$defs`.

    Raises:
        TypeError: the type has none.
    """
    (top,), definitions = msgspec.json.schema_components(
        [kind], schema_hook=_schema_of_anything, ref_template="#/$defs/{name}"
    )
    name = top.get("$ref", "").removeprefix("#/$defs/")
    if list(top) == ["$ref"] and not any(
        f'"#/$defs/{name}"'.encode() in _encode(one) for one in definitions.values()
    ):
        top = definitions.pop(name)
    return {**top, "$defs": definitions} if definitions else top


def _schema_of_anything(kind: object) -> dict[str, Any]:
    if kind is object:  # to a reader `Any`, without the loss of checks that comes with it
        return {"type": ["object", "array", "string", "number", "boolean", "null"]}
    raise NotImplementedError


def loads_texts(spelled: list[bytes]) -> list[str]:
    """Many texts, of which each is given as JSON spells it, without its quotation marks. For the hot path.

    Raises:
        FAST_FAILURES: one of them is no text.
    """
    # A string has no bare line end in it, so each line has at least one: as many as lines means one in each.
    texts = _decode_texts(b'"' + b'"\n"'.join(spelled) + b'"')
    if len(texts) != len(spelled):
        raise msgspec.DecodeError("expected one text for each")
    return texts


def is_strict(text: str | bytes) -> bool:
    """Whether the text is one strict JSON value (RFC 8259), however large its numbers."""
    try:
        loads(text)
    except MalformedJson:
        return False
    return True


def repeats_names(text: str) -> bool:
    """Whether an object in this JSON has a name twice: readers differ in which of the values counts.

    Raises:
        MalformedJson: it is no JSON.
    """
    found = False

    def note(pairs: list[tuple[str, object]]) -> None:
        nonlocal found
        found = found or len({name for name, _ in pairs}) < len(pairs)

    try:
        _stdlib.loads(text, object_pairs_hook=note)
    except (ValueError, RecursionError) as error:
        raise MalformedJson(f"expected JSON, got {_excerpt(text)}: {error}") from error
    return found


def is_prefix(text: str) -> bool:
    """Whether more text could make this strict JSON. Says yes where it cannot tell: nested too deep, or `1.5.`"""
    try:
        _stdlib.loads(text, parse_constant=_refuse_constant, parse_int=_parse_int)
    except _stdlib.JSONDecodeError as error:
        return _is_cut(text, error)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _is_cut(text: str, error: _stdlib.JSONDecodeError) -> bool:
    """Whether the parser stumbled at the end of the text, or over a token that the end cuts short."""
    tail = text[max(0, error.pos - 1) :]
    if error.msg.startswith("Invalid"):  # inside a string: an escape, or a control character
        return _CUT_ESCAPE.fullmatch(tail) is not None
    if error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip(_SPACE)):
        return True
    return _CUT_NUMBER.fullmatch(tail) is not None or text[error.pos :] in _CUT_VALUES


def dumps(value: object) -> bytes:
    """Compact JSON for one SSE data line. Line ends between the tokens of a `Raw` become spaces."""
    try:
        out = _encode(value)
    except UnicodeEncodeError:
        out = dumps_document(value)
    if _LF in out or _CR in out:
        # strict JSON has no bare line end inside a string, so these are only white space
        out = out.replace(b"\n", b" ").replace(b"\r", b" ")
    return out if out.isascii() else escape_separators(out)


def dumps_document(value: object) -> bytes:
    """Compact JSON for a body. `Raw` values are written byte for byte."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _write(msgspec.to_builtins(value, builtin_types=(Raw,), str_keys=True))


def dumps_canonical(value: object) -> bytes:
    """Compact JSON that is the same for equal values: whatever the order of members, and for 1 and 1.0."""
    return dumps_document(_canonical(value))


def _canonical(value: object) -> object:
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: _canonical(members[name]) for name in sorted(members)}
    if isinstance(value, list):
        return [_canonical(item) for item in cast("list[object]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def dumps_text(text: str) -> bytes:
    """One JSON string, for a caller that splices it into a data line it has built."""
    try:
        out = _encode(text)
    except UnicodeEncodeError:
        return _write(text)
    return out if out.isascii() else escape_separators(out)


def dumps_texts(texts: Iterable[str], between: bytes) -> bytes:
    """The same for many, joined by what stands between them, which has no line separator."""
    try:
        out = between.join(map(_encode, texts))
    except UnicodeEncodeError:
        return between.join(map(dumps_text, texts))
    return out if out.isascii() else escape_separators(out)


def dumps_each(texts: Sequence[str]) -> tuple[list[bytes], bytes]:
    """The same for many, each by itself, and each on a line of its own."""
    try:
        out = list(map(_encode, texts))
    except UnicodeEncodeError:
        out = list(map(dumps_text, texts))
    lines = b"\n".join(out)
    if not lines.isascii():
        escaped = escape_separators(lines)
        if escaped is not lines:
            return escaped.split(b"\n"), escaped
    return out, lines


def raw(value: object) -> Raw:
    """A value as opaque JSON."""
    return Raw(dumps(value))


def escape_separators(data: bytes) -> bytes:
    """Escape the three line separators that JSON allows bare in strings and line iterators split at."""
    if _LEAD_OF_2028 in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    if _LEAD_OF_0085 in data:
        data = data.replace(b"\xc2\x85", b"\\u0085")
    return data


def _write(value: object) -> bytes:
    """For strings with lone surrogates, which have no UTF-8: everything non-ASCII as escapes."""
    if isinstance(value, str):
        return _stdlib.dumps(value).encode("ascii")
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return b"{" + b",".join(_write(key) + b":" + _write(item) for key, item in pairs) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(_write(item) for item in cast("Iterable[object]", value)) + b"]"
    return _encode(value)


def _excerpt(data: bytes | str) -> str:
    head = data[:60]
    shown = head if isinstance(head, str) else bytes(head).decode("utf-8", "replace")
    return repr(shown + ("…" if len(data) > len(head) else ""))
