"""JSON, in one place: the only module that imports a JSON library.

msgspec reads; the standard library reads again what msgspec refuses although it is JSON: a lone surrogate escape
(`"\\ud83d"` whose other half arrives in the next delta), numbers beyond a double, integers of any length. `dumps`
writes compact UTF-8 that is safe inside a server-sent event: it escapes U+0085, U+2028 and U+2029, because clients
built on line iterators split there, turns line ends between the tokens of a `Raw` into spaces, and writes lone
surrogates as escapes. `dumps_document` is for bodies: it writes a `Raw` byte for byte.

Opaque sub-documents are `Raw`: the bytes as received.

A parser keeps the interpreter's lock until it returns, so parsing a huge document in a thread still blocks the event
loop. `shape_of` therefore counts the values of a large document, in slices, before it is parsed.
"""

import json as _stdlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Never, TypeVar, cast

import msgspec

from dragoman.errors import MalformedJson

Raw = msgspec.Raw
REQUIRED: object = msgspec.NODEFAULT
"""Marks a member without a default, for `record_type`."""
T = TypeVar("T")

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
"""The integers that a request may have: servers take 64 bits, for a seed for example."""

_decode: Callable[[bytes | str], Any] = msgspec.json.Decoder().decode
decode_untyped: Callable[[Raw], object] = _decode
"""`loads` without the retry, for code that runs per frame. Raises `FAST_FAILURES`."""
_encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
_encode_ordered: Callable[[object], bytes] = msgspec.json.Encoder(order="deterministic").encode
# msgspec needs up to 7 µs for a number that has no exact double, Python's own reader a seventh of that.
_decode_large: Callable[[bytes | str], Any] = msgspec.json.Decoder(float_hook=float).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_look_over = msgspec.json.Decoder(Raw).decode

MAX_VALUES = 500_000
"""Values that one document may have, unless a caller sets another limit. A parser creates all of them in one call, which
takes up to a quarter of a second. A session of a million tokens has some 80,000 values, two thousand tools have 200,000."""
# Bytes. A smaller document has too few values to be worth counting.
_LARGE = 256 * 1024
# Bytes scanned in one step when values are counted: a fifth of a millisecond.
_SLICE = 64 * 1024
# Square brackets become braces, so that one pattern finds the innermost pairs.
_ONE_PAIR = bytes.maketrans(b"[]", b"{}")
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'[]{},"')
_STEP = {ord("{"): 1, ord("}"): -1}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_SPACE = " \t\n\r"
_CUT_VALUES = frozenset(("t", "tr", "tru", "f", "fa", "fal", "fals", "n", "nu", "nul", "-"))
_CUT_NUMBER = re.compile(r"[0-9](?:\.|[eE][+-]?)")
# Up to four digits: the parser also fails at a fourth digit that nothing follows.
_CUT_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,4}")

# Integers: `number in data` costs an eighth of `one_byte_object in data`.
_LF, _CR = b"\n\r"
_LEAD_OF_2028, _LEAD_OF_0085 = b"\xe2\xc2"

FAST_FAILURES = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""The exceptions of a fast decoder. A caller catches them and reads the same bytes again with `loads` or `as_object`."""


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _loads_slowly(data: bytes | str) -> object:
    text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    # int() raises above 4300 digits; a float only loses precision that no caller can use.
    return _stdlib.loads(text, parse_constant=_refuse_constant, parse_int=_parse_int)


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= 4000 else float(digits)


_find_value = _stdlib.JSONDecoder(parse_int=_parse_int).raw_decode


def loads(data: bytes | str) -> Any:  # noqa: ANN401 -- JSON has no static type; callers narrow
    """Parse JSON into plain Python values.

    Raises:
        MalformedJson: the text is not JSON or not UTF-8, nests too deep, or has more than `MAX_VALUES` values.
    """
    decode = _decode
    if len(data) > _LARGE:
        _check_values(data)
        decode = _decode_large
    try:
        return decode(data)
    except FAST_FAILURES:
        try:
            return _loads_slowly(data)
        except (ValueError, RecursionError) as error:
            raise MalformedJson(f"expected JSON, got {_excerpt(data)}: {error}") from error


def as_object(data: bytes | str, *, is_utf8: bool = False) -> dict[str, Raw]:
    """Parse one JSON object and leave its values raw. `is_utf8`: the caller has checked that the bytes are UTF-8.

    Raises:
        MalformedJson: not JSON, not UTF-8, JSON of another type, or more than `MAX_VALUES` values.
    """
    if len(data) > _LARGE:
        _check_values(data)
    try:
        fields = _decode_object(data)
        # msgspec does not validate the strings of a value that it leaves raw
        if not is_utf8 and isinstance(data, bytes) and not data.isascii():
            data.decode("utf-8")
    except FAST_FAILURES:
        if not isinstance(loads(data), dict):
            raise MalformedJson(f"expected a JSON object, got {_excerpt(data)}") from None
        return _split_object(data if isinstance(data, str) else data.decode("utf-8"))
    return fields


def _split_object(text: str) -> dict[str, Raw]:
    """The fields of a text that `loads` has already parsed as an object, so nothing here can fail."""
    fields: dict[str, Raw] = {}
    position = text.index("{") + 1
    while (quote := text.find('"', position)) >= 0:
        key, start = _find_value(text, quote)
        while text[start] in _SPACE + ":":
            start += 1
        _, position = _find_value(text, start)
        fields[key] = _raw_of(text[start:position])
    return fields


def split_array(data: bytes) -> list[Raw]:
    """The items of an array that `loads` has already parsed, as they are written."""
    text = data.decode("utf-8")
    items: list[Raw] = []
    position = text.index("[") + 1
    while True:
        while text[position] in _SPACE + ",":
            position += 1
        if text[position] == "]":
            return items
        start = position
        _, position = _find_value(text, start)
        items.append(_raw_of(text[start:position]))


def _raw_of(source: str) -> Raw:
    # A surrogate occurs only inside a string, where its escape means the same.
    return Raw(source.encode("utf-8", "backslashreplace"))


def typed_decoder(kind: type[T]) -> Callable[[bytes], T]:
    """A decoder of `kind` for code that runs per frame: msgspec's own method, without a wrapper. It raises `FAST_FAILURES`."""
    return msgspec.json.Decoder(kind).decode


def record_type(name: str, fields: Sequence[tuple[str, object, object]]) -> type[msgspec.Struct]:
    """A type for objects with exactly these members: (name, type, default or `REQUIRED`).

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
    if kind is object:  # msgspec reads it like `Any`, but type checkers still check it
        return {"type": ["object", "array", "string", "number", "boolean", "null"]}
    raise NotImplementedError


def is_strict(text: str | bytes) -> bool:
    """Whether the text is one strict JSON value (RFC 8259), however large its numbers. Creates no values."""
    try:
        _look_over(text)
    except RecursionError:
        return False
    except FAST_FAILURES:
        return _is_strict_but_for_surrogates(text)
    return isinstance(text, str) or text.isascii() or _is_utf8(text)


def _is_strict_but_for_surrogates(text: str | bytes) -> bool:
    """`is_strict` after replacing each surrogate escape: JSON allows a lone one, msgspec refuses it."""
    try:
        known = text if isinstance(text, str) else text.decode("utf-8")
        # Remove escaped backslashes first: a `u` after one begins no escape.
        known = _SURROGATE.sub(r"\\u00", known.replace("\\\\", "__"))
        _look_over(known.encode("utf-8", "replace"))
    except FAST_FAILURES:
        return False
    return True


def repeats_names(text: str) -> bool:
    """Whether an object in this JSON has a name twice: readers differ in which of the values they take.

    Raises:
        MalformedJson: the text is not JSON.
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


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class StructureCount(msgspec.Struct, frozen=True, gc=False):
    """How much structure a document has, approximately: empty lists and objects are counted twice.

    depth: how deep the document nests; exact above `max_depth` of `shape_of`, below it perhaps too large.
    """

    values: int
    depth: int


def shape_of(data: bytes, *, max_values: int, max_depth: int) -> StructureCount:
    """Count the values and the depth of JSON, in linear time and in short steps. Stops when a limit is exceeded.

    Also counts text that is not JSON: its brackets and commas outside of strings.
    """
    values, depth, deepest = 1, 0, 0
    is_inside = False
    at = 0
    while at < len(data) and values <= max_values and deepest <= max_depth:
        piece = data[at : at + _SLICE]
        # Do not cut an escape in two.
        if piece.endswith(b"\\") and (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = data[at : at + _SLICE + 1]
        at += len(piece)
        quoted = _structure(piece).split(b'"')
        found = b"".join(quoted[is_inside::2])
        is_inside ^= len(quoted) % 2 == 0
        brackets = found.replace(b",", b"")
        opened = brackets.count(b"{")
        values += opened + len(found) - len(brackets)
        highest = depth + _height(brackets)
        if highest > max_depth:
            highest = depth + max(accumulate(map(_STEP.__getitem__, brackets)))
        deepest = max(deepest, highest)
        depth += 2 * opened - len(brackets)
    return StructureCount(values, deepest)


def _height(brackets: bytes) -> int:
    """An upper bound of the depth that these brackets reach above the depth where they begin.

    Removes the innermost pairs again and again: documents are broad, so each level costs one fast replacement. The
    brackets that remain nest no deeper than the number of opening ones.
    """
    levels = 0
    while brackets:
        left = brackets.replace(b"{}", b"")
        if len(left) * 4 > len(brackets) * 3:
            break
        brackets = left
        levels += 1
    return levels + brackets.count(b"{")


def _structure(data: bytes) -> bytes:
    """The brackets, commas and quotes of the data. Removes adjoining pairs of quotes, which change nothing around them."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return data.translate(_ONE_PAIR, _NOT_STRUCTURE).replace(b'""', b"")


def has_too_many_values(data: bytes) -> bool:
    """Whether a document has more than `MAX_VALUES` values, approximately. Returns at once if the document is too short."""
    # A value takes at least two bytes: itself and the separator from the next value.
    if len(data) < 2 * MAX_VALUES:
        return False
    if data.count(b",") + data.count(b"[") + data.count(b"{") < MAX_VALUES:
        return False  # this count includes characters inside strings, so the true one is not larger
    return shape_of(data, max_values=MAX_VALUES, max_depth=sys.maxsize).values > MAX_VALUES


def _check_values(data: bytes | str) -> None:
    if len(data) >= 2 * MAX_VALUES:
        known = data.encode("utf-8", "replace") if isinstance(data, str) else bytes(data)
        if has_too_many_values(known):
            raise MalformedJson(
                f"expected JSON of at most {MAX_VALUES:,} values, got more: {_excerpt(data)}"
            )


def is_prefix(text: str) -> bool:
    """Whether more text could make this strict JSON. Returns True where it cannot decide: nested too deep, or `1.5.`"""
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
    """Whether the parser failed at the end of the text, or at a token that the end cuts short."""
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
    """Compact JSON that is identical for equal values: the order of members does not matter, and 1 equals 1.0.

    A value that is nested too deeply for that, some 500 levels, gives bytes that are as identical, but not JSON.
    """
    try:
        return dumps_document(_canonical(value))
    except RecursionError:
        return _flat(value)


def dumps_ordered(value: object) -> bytes:
    """JSON for a digest: equal values, whatever the order of their members, give equal bytes. 1 differs from 1.0.

    A tenth of the time of `dumps_canonical`.
    """
    try:
        return _encode_ordered(value)
    except (UnicodeEncodeError, OverflowError):  # half a character, an integer of over 64 bits
        return _stdlib.dumps(value, sort_keys=True).encode("ascii")


def canonical_text(text: str) -> bytes:
    """JSON text in canonical form, any other text unchanged: call inputs with the same meaning give the same bytes."""
    try:
        return dumps_canonical(loads(text))
    except MalformedJson:
        return text.encode("utf-8", "surrogatepass")


def is_same_json(one: str, other: str) -> bool:
    """Whether two texts are the same JSON value, which may be written differently."""
    try:
        return is_same_value(loads(one), loads(other))
    except MalformedJson:
        return False


def is_same_value(one: object, other: object) -> bool:
    """Whether two plain values are the same in JSON. In JSON, unlike Python, true is not 1."""
    return dumps_canonical(one) == dumps_canonical(other)


def _canonical(value: object) -> object:
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: _canonical(members[name]) for name in sorted(members)}
    if isinstance(value, list):
        return [_canonical(item) for item in cast("list[object]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _flat(value: object) -> bytes:
    """The tokens of a value in canonical order, found without recursion."""
    out: list[bytes] = []
    waiting = [value]  # the last comes first; a `Raw` is a token
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            out.append(b"{")
            waiting.append(Raw(b"}"))
            members = cast("dict[str, object]", here)
            for name in sorted(members, reverse=True):
                waiting += (members[name], name)
        elif isinstance(here, list):
            out.append(b"[")
            waiting.append(Raw(b"]"))
            waiting += reversed(cast("list[object]", here))
        else:
            out.append(dumps_document(_canonical(here)))
    return b",".join(out)


def dumps_text(text: str) -> bytes:
    """One JSON string, for a caller that inserts it into a data line."""
    try:
        out = _encode(text)
    except UnicodeEncodeError:
        return _write(text)
    return out if out.isascii() else escape_separators(out)


def dumps_texts(texts: Iterable[str], between: bytes) -> bytes:
    """`dumps_text` of many texts, joined by `between`, which must have no line separator."""
    try:
        out = between.join(map(_encode, texts))
    except UnicodeEncodeError:
        return between.join(map(dumps_text, texts))
    return out if out.isascii() else escape_separators(out)


def dumps_each(texts: Sequence[str]) -> list[bytes]:
    """`dumps_text` of each text."""
    try:
        out = list(map(_encode, texts))
    except UnicodeEncodeError:
        out = list(map(dumps_text, texts))
    lines = b"\n".join(out)
    escaped = lines if lines.isascii() else escape_separators(lines)
    return out if escaped is lines else escaped.split(b"\n")


def raw(value: object) -> Raw:
    """A value as opaque JSON."""
    return Raw(dumps(value))


def escape_separators(data: bytes) -> bytes:
    """Escape the three line separators that JSON allows unescaped in strings but at which line iterators split."""
    if _LEAD_OF_2028 in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    if _LEAD_OF_0085 in data:
        data = data.replace(b"\xc2\x85", b"\\u0085")
    return data


def _write(value: object) -> bytes:
    """Write values with lone surrogates, which UTF-8 cannot encode: escapes every non-ASCII character."""
    if isinstance(value, str):
        return _stdlib.dumps(value).encode("ascii")
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return b"{" + b",".join(_write(key) + b":" + _write(item) for key, item in pairs) + b"}"
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(_write(item) for item in cast("Iterable[object]", value)) + b"]"
    return _encode(value)


def _excerpt(data: bytes | str) -> str:
    head = data[:60]
    shown = head if isinstance(head, str) else bytes(head).decode("utf-8", "replace")
    return repr(shown + ("…" if len(data) > len(head) else ""))
