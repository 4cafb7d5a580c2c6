"""Reading JSON of unknown shape: a field is what it should be, or it is absent. Null is absent everywhere.

Values stay `Raw` until somebody needs them. Nothing here knows the vendor's names.
"""

from collections.abc import Collection, Mapping

from dragoman._json import Raw, loads
from dragoman.core.fields import Shallow, read_shallow
from dragoman.core.surrogates import replace_lone
from dragoman.errors import MalformedJson
from dragoman.model.parts import Extra

__all__ = (
    "MAX_NUMBER",
    "Fields",
    "extra_of",
    "fragment_of",
    "is_null",
    "number_of",
    "object_of",
    "objects_of",
    "own_fields",
    "raws_of",
    "source_of",
    "string_of",
    "truth_of",
    "value_of",
)

Fields = dict[str, Raw]
MAX_NUMBER = 2**53
"""The largest integer that every JSON reader takes for the same; no count of tokens or blocks comes near it."""

_NULL = Raw(b"null")


def is_null(value: Raw | None) -> bool:
    return value is None or value == _NULL


def value_of(value: Raw | None) -> object:
    """Any JSON value as plain Python; None for null, nothing, and what cannot be read."""
    if value is None:
        return None
    try:
        found: object = loads(bytes(value))
    except MalformedJson:
        return None
    return found


def string_of(value: Raw | None) -> str | None:
    """The text of a JSON string. Halves of characters become U+FFFD: they could not be written again."""
    found = _look(value)
    return replace_lone(found) if isinstance(found, str) else None


def fragment_of(value: Raw | None) -> str | None:
    """A piece of a longer text: as `string_of`, but halves of characters stay, the next piece may complete them."""
    found = _look(value)
    return found if isinstance(found, str) else None


def number_of(value: Raw | None) -> int | None:
    """A JSON integer, also one written as a float (`3.0`); none that JSON writers could not agree on."""
    found = _look(value)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool) or abs(found) > MAX_NUMBER:
        return None
    return found


def truth_of(value: Raw | None) -> bool | None:
    found = _look(value)
    return found if isinstance(found, bool) else None


def object_of(value: Raw | None) -> Fields | None:
    """The fields of a JSON object."""
    found = _look(value)
    return found if isinstance(found, dict) else None


def raws_of(value: Raw | None) -> list[Raw] | None:
    """The entries of a JSON array, each as it came."""
    found = _look(value)
    return found if isinstance(found, list) else None


def _look(value: Raw | None) -> Shallow:
    if value is None:
        return None
    try:
        return read_shallow(value)
    except MalformedJson:
        return None


def objects_of(value: Raw | None) -> list[tuple[Fields, Raw]] | None:
    """The entries of a JSON array that are objects, with their bytes; other entries are left out."""
    raws = raws_of(value)
    if raws is None:
        return None
    pairs = ((object_of(entry), entry) for entry in raws)
    return [(fields, entry) for fields, entry in pairs if fields is not None]


def source_of(value: Raw) -> str:
    """A JSON value as the text it was written in."""
    return bytes(value).strip().decode("utf-8", "replace")


def own_fields(fields: Mapping[str, Raw], known: Collection[str]) -> Fields:
    """The fields that are not known and not null."""
    return {key: value for key, value in fields.items() if key not in known and not is_null(value)}


def extra_of(fields: Mapping[str, Raw], known: Collection[str]) -> Extra | None:
    """The rest of an object, to be written back by this dialect only."""
    rest = own_fields(fields, known)
    return Extra("messages", rest) if rest else None
