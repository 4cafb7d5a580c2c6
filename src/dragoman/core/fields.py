"""Readers for the fields of a JSON object whose values were left raw. Knows no dialect.

Three families differ in how they treat a value of the wrong type. All of them treat null as absent.

- `read_…` treats the value as absent: an answer does not fail because an upstream writes a field in an odd way.
- `expect_…` raises MalformedJson: for fields of an answer that may be a piece of a call, or of a text that holds a call.
- `ask_…` and `need_…` raise RequestRefused: for requests; the message has the path, what was expected and what came.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import isfinite
from sys import float_info
from types import GenericAlias
from typing import Never, TypeVar, cast

from msgspec import Struct

from dragoman._json import (
    FAST_FAILURES,
    MAX_INT64,
    MIN_INT64,
    Raw,
    as_object,
    dumps_document,
    dumps_text,
    loads,
    split_array,
    typed_decoder,
)
from dragoman.core.surrogates import replace_lone
from dragoman.errors import ConfigError, MalformedJson, RequestRefused
from dragoman.model.parts import Dialect, Extra

Fields = Mapping[str, Raw]
T = TypeVar("T")
W = TypeVar("W")

NULL = Raw(b"null")
# Above it, one double stands for several integers.
_MAX_EXACT = 2**53
# Characters of a value that an error message shows.
_MAX_SHOWN = 60

# One decoder for all types: a decoder that fails costs ten times as much as one that succeeds.
Shallow = dict[str, Raw] | list[Raw] | str | int | float | bool | None
_decode_shallow = typed_decoder(cast("type[Shallow]", Shallow))
_KINDS = {
    "{": "an object",
    "[": "an array",
    '"': "a string",
    "t": "a boolean",
    "f": "a boolean",
    "n": "null",
}


def read_shallow(value: Raw | bytes) -> Shallow:
    """Decode any value, objects and arrays one level deep, so that large values are cheap too.

    Raises:
        MalformedJson: the value is not JSON; impossible for a part of a parsed document.
    """
    try:
        return _decode_shallow(value)
    except FAST_FAILURES:
        # Half a character, or a number beyond a double: only the slower reader accepts them.
        data = bytes(value)
    if data.startswith(b"{"):
        return as_object(data)
    found: str | int | float | list[object] = loads(data)
    return split_array(data) if isinstance(found, list) else found


def is_present(value: Raw | None) -> bool:
    return value is not None and value != NULL


def is_object(value: Raw | None) -> bool:
    return value is not None and first_byte(value) == b"{"


def first_byte(value: Raw) -> bytes:
    """The first byte, which shows the type of a value without decoding it: it may be a whole file inside a call."""
    return bytes(memoryview(value)[:1])


def kind_of(value: Raw) -> str:
    """The JSON type with its article, for messages."""
    return _KINDS.get(first_byte(value).decode("latin-1"), "a number")


def quoted(text: str) -> str:
    """Text in quotation marks on one line, for messages. Control characters are escapes; backslashes stay as they were sent.

    JSON has backslashes of its own. Doubled, as `repr` has them, they would show an input that nobody sent.
    """
    return repr(text).replace(r"\\", "\\")


# --- lenient ---------------------------------------------------------------------------------------------------------


def _read(value: Raw | bytes | None) -> Shallow:
    if value is None:
        return None
    try:
        return _decode_shallow(value)
    except FAST_FAILURES:
        pass
    try:
        return read_shallow(value)
    except MalformedJson:
        return None


def read_json(value: Raw | None) -> object:
    """The plain value, however deep."""
    if value is None:
        return None
    try:
        return cast("object", loads(cast("bytes", memoryview(value))))
    except MalformedJson:
        return None


def read_text(value: Raw | None) -> str | None:
    """A string. Halves of characters become U+FFFD, because UTF-8 cannot encode them."""
    found = _read(value)
    if not isinstance(found, str):
        return None
    return found if found.isascii() else replace_lone(found)


def read_fragment(value: Raw | None) -> str | None:
    """A string as received, including halves of characters: the next delta may complete them."""
    found = _read(value)
    return found if isinstance(found, str) else None


def read_texts(value: Raw | None) -> tuple[str, ...]:
    """The strings of an array."""
    texts = (read_text(entry) for entry in read_list(value) or ())
    return tuple(text for text in texts if text is not None)


def first_text(fields: Fields, names: Iterable[str]) -> str:
    """The first of these fields that is a non-empty string."""
    return next((text for name in names if (text := read_fragment(fields.get(name)))), "")


def read_int(value: Raw | None) -> int | None:
    """An integer, also if it is written as a string or with a fraction of zero."""
    return as_int(_read(value))


def as_int(value: object) -> int | None:
    """`read_int` for a decoded value."""
    match value:
        case bool():
            return None
        case int(number):
            return number
        case float(number) if number.is_integer() and abs(number) <= _MAX_EXACT:
            return int(number)
        case str(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16:
            return int(digits)
        case _:
            return None


def read_float(value: Raw | None) -> float | None:
    """A number. One beyond a double is read as infinity, which JSON does not have, and counts as absent."""
    found = _read(value)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return found if abs(found) <= float_info.max else None


def read_bool(value: Raw | None) -> bool | None:
    found = _read(value)
    return found if isinstance(found, bool) else None


def read_object(value: Raw | bytes | None) -> dict[str, Raw]:
    """The fields of an object; none if the value is anything else."""
    found = _read(value)
    return found if isinstance(found, dict) else {}


def read_present(value: Raw | bytes | None) -> dict[str, Raw]:
    """The fields of an object that are not null; none if the value is anything else."""
    return present(read_object(value))


def read_list(value: Raw | None) -> list[Raw] | None:
    """The entries of an array, raw."""
    found = _read(value)
    return found if isinstance(found, list) else None


def read_objects(value: Raw | None) -> list[dict[str, Raw]]:
    """The objects of an array, each by its fields; other entries are left out."""
    found = (_read(entry) for entry in read_list(value) or ())
    return [entry for entry in found if isinstance(entry, dict)]


def read_items(value: Raw | None) -> list[Raw]:
    """The entries of an array that are not null. A single object is read as an array of one."""
    if is_object(value):
        return [cast("Raw", value)]
    return [item for item in read_list(value) or () if item != NULL]


# --- strict, for answers ---------------------------------------------------------------------------------------------


def is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """`isinstance` from which a type checker concludes nothing: for arguments that callers without one may get wrong."""
    return isinstance(value, kinds)


def expect_instance(value: object, kind: type) -> None:
    """Check the type of an argument of a public function, for callers that no type checker reads.

    Raises:
        ConfigError: it is of another type.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ConfigError(f"expected {article} {kind.__name__}, got {type(value).__name__}")


def expect_text(value: Raw | None, what: str) -> str | None:
    """A string as received, including lone surrogates; None if absent. `what`: the field, for the message.

    Raises:
        MalformedJson: the value is anything else.
    """
    found = None if value is None else read_shallow(value)
    return found if found is None or isinstance(found, str) else _break(what, "a string", value)


def expect_object(value: Raw | None, what: str) -> dict[str, Raw]:
    """The fields of an object, none if absent. Raises like `expect_text`."""
    found = None if value is None else read_shallow(value)
    if found is None:
        return {}
    return found if isinstance(found, dict) else _break(what, "an object", value)


def expect_present(value: Raw | None, what: str) -> dict[str, Raw]:
    """The fields of an object that are not null, none if absent. Raises like `expect_text`."""
    return present(expect_object(value, what))


def expect_list(value: Raw | None, what: str) -> list[Raw]:
    """The entries of an array, none if absent. Raises like `expect_text`."""
    found = None if value is None else read_shallow(value)
    if found is None:
        return []
    return found if isinstance(found, list) else _break(what, "an array", value)


def expect_items(value: Raw | None, what: str) -> list[Raw]:
    """Like `read_items`. Raises like `expect_text`."""
    if is_object(value):
        return [cast("Raw", value)]
    return [item for item in expect_list(value, what) if item != NULL]


def expect_int(value: Raw | None, what: str) -> int | None:
    """Like `read_int`. Raises like `expect_text`."""
    number = read_int(value)
    if number is None and is_present(value):
        _break(what, "an integer", value)
    return number


def _break(what: str, wanted: str, value: Raw | None) -> Never:
    came = "nothing" if value is None else kind_of(value)
    raise MalformedJson(f"expected {what} as {wanted}, got {came}")


# --- strict, for requests --------------------------------------------------------------------------------------------


def refuse(where: str, expected: str, value: Raw | None) -> Never:
    """Refuse a request for the value at this path."""
    code = "invalid_type"
    if value is None or value == NULL:
        came, code = "nothing" if value is None else "null", "missing_field"
    else:
        text = source_text(value)
        shown = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
        came = f"{kind_of(value)}: {shown}"
    raise RequestRefused(f"{where}: expected {expected}, got {came}", param=where, code=code)


def ask_text(fields: Fields, key: str, where: str = "") -> str | None:
    """The string `key` of an object at the path `where`; None if absent. The other `ask_…` functions work alike."""
    value = fields.get(key)
    found = None if value is None else read_shallow(value)
    if found is None or isinstance(found, str):
        return found
    refuse(_path(where, key), "a string", value)


def ask_raw_object(fields: Fields, key: str, where: str = "") -> Raw | None:
    """An object, raw."""
    value = fields.get(key)
    if not is_present(value):
        return None
    return value if is_object(value) else refuse(_path(where, key), "an object", value)


def need_text(
    fields: Fields, key: str, where: str, expected: str = "a string that is not empty"
) -> str:
    """Like `ask_text`, but also refuses absence and the empty string."""
    return ask_text(fields, key, where) or refuse(_path(where, key), expected, fields.get(key))


def ask_bool(fields: Fields, key: str, where: str = "") -> bool | None:
    value = fields.get(key)
    found = None if value is None else read_shallow(value)
    if found is None or isinstance(found, bool):
        return found
    refuse(_path(where, key), "a boolean", value)


def ask_number(fields: Fields, key: str, where: str = "") -> float | None:
    value = fields.get(key)
    found = None if value is None else read_shallow(value)
    # JSON has no infinity, but a number beyond a double is read as one.
    if found is None or type(found) is int or (isinstance(found, float) and isfinite(found)):
        return found
    refuse(_path(where, key), "a number", value)


def ask_int(fields: Fields, key: str, where: str = "") -> int | None:
    number = ask_number(fields, key, where)
    if number is None:
        return None
    whole = int(number)
    if whole != number or not MIN_INT64 <= whole <= MAX_INT64:
        refuse(_path(where, key), "an integer", fields[key])
    return whole


def ask_object(fields: Fields, key: str, where: str = "") -> dict[str, Raw] | None:
    found = _read(fields.get(key))
    if found is None or isinstance(found, dict):
        return found
    refuse(_path(where, key), "an object", fields.get(key))


def ask_present(fields: Fields, key: str, where: str = "") -> dict[str, Raw] | None:
    """The fields of an object that are not null."""
    found = ask_object(fields, key, where)
    return None if found is None else present(found)


def need_object(value: Raw | None, where: str) -> dict[str, Raw]:
    """The object at the path `where`: an entry of an array, which cannot be absent."""
    found = None if value is None else read_shallow(value)
    return found if isinstance(found, dict) else refuse(where, "an object", value)


def ask_list(fields: Fields, key: str, where: str = "") -> list[Raw] | None:
    """The entries of an array, including null entries: a caller that needs objects refuses them."""
    found = _read(fields.get(key))
    if found is None or isinstance(found, list):
        return found
    refuse(_path(where, key), "an array", fields.get(key))


def _path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


# --- by type ---------------------------------------------------------------------------------------------------------


def typed_readers(
    kind: type[W], read: Callable[[W], T | None]
) -> tuple[Callable[[Raw], T | None], Callable[[Raw], tuple[T, ...] | None]]:
    """Return a reader of one regular value, and one of a list of them, which decodes them at once at half the cost.

    Both return None if a value must be read field by field: it does not fit `kind`, or `read` returns None.
    """
    decode = typed_decoder(kind)
    decode_all = typed_decoder(cast("type[list[W]]", GenericAlias(list, (kind,))))

    def read_one(value: Raw) -> T | None:
        try:
            return read(decode(value))
        except FAST_FAILURES:
            return None

    def read_all(values: Raw) -> tuple[T, ...] | None:
        out: list[T] = []
        try:
            for each in decode_all(values):
                made = read(each)
                if made is None:
                    return None
                out.append(made)
        except FAST_FAILURES:
            return None
        return tuple(out)

    return read_one, read_all


# --- objects with raw values -----------------------------------------------------------------------------------------


def present(fields: Fields) -> dict[str, Raw]:
    """The fields that are not null."""
    return {name: value for name, value in fields.items() if value != NULL}


def without(fields: Fields, keys: Collection[str]) -> dict[str, Raw]:
    """The fields that are not among `keys`."""
    rest = {**fields}
    for key in fields.keys() & keys:  # few, while a response has some thirty fields
        del rest[key]
    return rest


def extra_of(dialect: Dialect, fields: Fields, known: Collection[str]) -> Extra | None:
    """The fields that are not `known`, which only this dialect writes back; None if there are none."""
    rest = without(fields, known)
    return Extra(dialect, rest) if rest else None


def own_fields(dialect: Dialect, extra: Extra | None) -> dict[str, Raw]:
    """The fields of `extra` if they belong to this dialect, else none."""
    return extra.fields if extra is not None and extra.dialect == dialect else {}


def join_object(fields: Fields) -> Raw:
    """Join fields to one object; the raw values stay unchanged."""
    entries = (dumps_text(name) + b":" + bytes(value) for name, value in fields.items())
    return Raw(b"{" + b",".join(entries) + b"}")


def source_text(value: Raw) -> str:
    """JSON as text, unchanged. Bytes that are not UTF-8 (the decoder does not check raw values) become U+FFFD."""
    return str(memoryview(value), "utf-8", "replace")


def source_raw(text: str) -> Raw:
    """JSON text as a raw value."""
    return Raw(text.encode("utf-8", "replace"))


# --- members changed in place ----------------------------------------------------------------------------------------
#
# Every other byte stays unchanged: number spellings, white space, key order and unknown members. An object that has a
# key twice is not edited in place, because readers differ in which of the two values they take.

_OPEN = re.compile(rb"[ \t\r\n]*\{")
_KEY = re.compile(rb'[ \t\r\n,]*"((?:[^"\\]|\\.)*)"[ \t\r\n]*:[ \t\r\n]*')
_COMMA = re.compile(rb"[ \t\r\n]*,")
_CLOSE = re.compile(rb"[ \t\r\n]*\}[ \t\r\n]*")


class _Span(Struct, frozen=True, gc=False):
    """A member of an object: from the end of the previous member to the end of its value, which begins at `value`."""

    start: int
    value: int
    end: int


def replace_member(data: bytes, path: Sequence[str], value: bytes) -> bytes | None:
    """The object with the value at `path` replaced; None if `path` does not exist or an object on it has a key twice."""
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
    """The object with these members replaced, or added at its end; members whose new value is None are removed.

    An object that has a key twice is rewritten with the last value of each key, as all readers of this package do.

    Raises:
        MalformedJson: the data is not a JSON object.
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


def has_members_once(data: bytes) -> bool:
    """Whether the object has no key twice: readers differ in which of the values they take.

    Raises:
        MalformedJson: the data is not a JSON object.
    """
    return _spans(data) is not None


def _without(data: bytes, span: _Span, *, is_first: bool) -> bytes:
    comma = _COMMA.match(data, span.end) if is_first else None
    return data[: span.start] + data[span.end if comma is None else comma.end() :]


def _with(data: bytes, members: Sequence[bytes]) -> bytes:
    end = data.rindex(b"}")
    before = data[:end].rstrip()
    comma = b"" if before.endswith(b"{") else b","
    return before + comma + b",".join(members) + data[end:]


def _spans(data: bytes) -> dict[str, _Span] | None:
    """The position of each member; None if a key occurs twice."""
    fields = as_object(data)
    opening = _OPEN.match(data)
    position = 0 if opening is None else opening.end()
    spans: dict[str, _Span] = {}
    for key, content in fields.items():
        name = _KEY.match(data, position)
        value = bytes(content)
        if name is None or not data.startswith(value, name.end()) or not _is_key(name[1], key):
            return None
        spans[key] = _Span(position, name.end(), name.end() + len(value))
        position = name.end() + len(value)
    return spans if _CLOSE.fullmatch(data, position) else None


def _is_key(spelled: bytes, key: str) -> bool:
    if b"\\" in spelled:
        return bool(loads(b'"' + spelled + b'"') == key)
    return spelled == key.encode("utf-8", "replace")
