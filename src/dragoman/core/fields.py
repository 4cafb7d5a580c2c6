"""Reading the fields of a JSON object whose values were left raw: leniently, and only what is asked for.

null is absent, and for the functions `read_…` a value of another type than the one asked for is absent too: a stream is not
given up for a field that somebody spelled oddly. Where what is lost may be a piece of a call, or of a text that holds one,
that will not do: the functions `expect_…` raise.
"""

from collections.abc import Collection, Mapping
from typing import cast

from dragoman._json import FAST_FAILURES, Raw, as_object, decode_untyped, loads, raw, typed_decoder
from dragoman.core.surrogates import replace_lone
from dragoman.errors import MalformedJson

__all__ = (
    "Fields",
    "Shallow",
    "expect_list",
    "expect_object",
    "expect_text",
    "is_present",
    "read_bool",
    "read_float",
    "read_int",
    "read_items",
    "read_json",
    "read_list",
    "read_object",
    "read_shallow",
    "read_text",
    "read_texts",
    "read_uncut",
    "without",
)

Fields = Mapping[str, Raw]

# Each with null, which is common, because failing is slow.
_decode_text = typed_decoder(cast("type[str | None]", str | None))
_decode_int = typed_decoder(cast("type[int | None]", int | None))
_decode_object = typed_decoder(cast("type[dict[str, Raw] | None]", dict[str, Raw] | None))
_decode_list = typed_decoder(cast("type[list[Raw] | None]", list[Raw] | None))
# One try tells what a value is: a failed one costs ten times as much as one that succeeds.
Shallow = dict[str, Raw] | list[Raw] | str | int | float | bool | None
_decode_shallow = typed_decoder(cast("type[Shallow]", Shallow))
_NULL = Raw(b"null")


def read_shallow(value: Raw | bytes) -> Shallow:
    """Any value, objects and arrays one level deep: cheap whatever it is, and however large.

    Raises:
        MalformedJson: it is no JSON, which no part of a document that has been parsed is.
    """
    try:
        return _decode_shallow(value)
    except (
        FAST_FAILURES
    ):  # half a character, or a number beyond a double, which only the slower reader takes
        data = bytes(value)
    if data.startswith(b"{"):
        return as_object(data)
    found: str | int | float | list[object] = loads(data)
    return [raw(item) for item in found] if isinstance(found, list) else found


def is_present(value: Raw | None) -> bool:
    return value is not None and value != _NULL


def expect_text(value: Raw | None, what: str) -> str | None:
    """A string as it came, lone surrogates and all; None if it is absent. `what`: the field, for the message.

    Raises:
        MalformedJson: it is anything else.
    """
    found = None if value is None else read_shallow(value)
    if found is None or isinstance(found, str):
        return found
    raise _unexpected(what, "a string", found)


def expect_object(value: Raw | None, what: str) -> dict[str, Raw]:
    """The fields of an object, none if it is absent. Raises as `expect_text`."""
    found = None if value is None else read_shallow(value)
    if found is None or isinstance(found, dict):
        return found or {}
    raise _unexpected(what, "an object", found)


def expect_list(value: Raw | None, what: str) -> list[Raw]:
    """The entries of an array, none if it is absent. Raises as `expect_text`."""
    found = None if value is None else read_shallow(value)
    if found is None or isinstance(found, list):
        return found or []
    raise _unexpected(what, "an array", found)


def _unexpected(what: str, wanted: str, found: Shallow) -> MalformedJson:
    match found:
        case dict():
            came = "an object"
        case list():
            came = "an array"
        case str():
            came = "a string"
        case bool():
            came = "a boolean"
        case _:
            came = "a number"
    return MalformedJson(f"expected {what} as {wanted}, got {came}")


def _view(value: Raw) -> bytes:
    """The bytes of a value without a copy: it may be a whole file inside a call."""
    return cast("bytes", memoryview(value))


def read_json(value: Raw | None) -> object:
    """The plain value; None if it is absent or cannot be read."""
    if value is None:
        return None
    try:
        return cast("object", loads(_view(value)))
    except MalformedJson:
        return None


def read_object(value: Raw | None) -> dict[str, Raw]:
    """The fields of an object; none if it is anything else."""
    if value is None:
        return {}
    try:
        return _decode_object(value) or {}
    except FAST_FAILURES:
        pass
    try:
        return as_object(bytes(value)) if _view(value)[:1] == b"{" else {}
    except MalformedJson:
        return {}


def read_list(value: Raw | None) -> list[Raw] | None:
    """The entries of an array as they came; None if it is anything else."""
    if value is None:
        return None
    try:
        return _decode_list(value)
    except FAST_FAILURES:
        if _view(value)[:1] != b"[":
            return None
        found = read_json(value)
        return [raw(entry) for entry in cast("list[object]", found)] if found else None


def read_items(value: Raw | None) -> list[dict[str, Raw]]:
    """The objects of an array, each by its fields; entries that are no objects are left out."""
    return [fields for entry in read_list(value) or () if (fields := read_object(entry))]


def read_uncut(fields: Fields, key: str) -> str | None:
    """A string as it came, lone surrogates and all: half of a character may end a delta."""
    value = read_json(fields.get(key))
    return value if isinstance(value, str) else None


def read_text(fields: Fields, key: str) -> str | None:
    value = fields.get(key)
    if value is None:
        return None
    try:
        return _decode_text(value)
    except FAST_FAILURES:
        found = read_uncut(fields, key)
        return None if found is None else replace_lone(found)


def _plain(fields: Fields, key: str) -> object:
    """`read_json`, fast: numbers and booleans have no strings that need the second try."""
    value = fields.get(key)
    if value is None:
        return None
    try:
        return decode_untyped(value)
    except FAST_FAILURES:
        return read_json(value)


def read_int(fields: Fields, key: str) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    try:
        return _decode_int(value)
    except FAST_FAILURES:
        found = read_json(value)
        return found if isinstance(found, int) and not isinstance(found, bool) else None


def read_float(fields: Fields, key: str) -> float | None:
    value = _plain(fields, key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_bool(fields: Fields, key: str) -> bool | None:
    value = _plain(fields, key)
    return value if isinstance(value, bool) else None


def read_texts(value: Raw | None) -> tuple[str, ...]:
    """The strings of an array."""
    found = read_json(value)
    if not isinstance(found, list):
        return ()
    entries = cast("list[object]", found)
    return tuple(replace_lone(entry) for entry in entries if isinstance(entry, str))


def without(fields: Fields, keys: Collection[str]) -> dict[str, Raw]:
    """The fields that are not among `keys`."""
    return {key: value for key, value in fields.items() if key not in keys}
