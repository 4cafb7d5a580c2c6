"""Reading JSON values leniently: null is absent, and a value of another type than asked for is absent too.

Values are `Raw`, parts of a document that has been parsed as a whole, so only the functions `expect_…` raise: they read what
may hold a piece of a call. They know nothing of the dialect.
"""

from collections.abc import Iterable, Mapping

from dragoman._json import Raw, dumps_text
from dragoman.core.fields import expect_list, expect_object, read_shallow
from dragoman.errors import MalformedJson
from dragoman.model.parts import Extra

__all__ = (
    "NULL",
    "as_int",
    "expect_fields",
    "expect_index",
    "expect_items",
    "extra_of",
    "fields_of",
    "first_text",
    "flag_of",
    "float_of",
    "int_of",
    "is_object",
    "items_of",
    "join_object",
    "kind_of",
    "own_fields",
    "present",
    "text_of",
)

NULL = Raw(b"null")
_KINDS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}


def kind_of(value: Raw) -> str:
    """The JSON type, for messages."""
    return _KINDS.get(chr(bytes(value)[0]), "number")


def is_object(value: Raw | None) -> bool:
    return value is not None and bytes(value).startswith(b"{")


def fields_of(value: Raw | bytes | None) -> dict[str, Raw]:
    """The fields of an object that are not null; none for any other value."""
    if value is None:
        return {}
    found = read_shallow(value)
    return present(found) if isinstance(found, dict) else {}


def present(fields: Mapping[str, Raw]) -> dict[str, Raw]:
    """The fields that are not null."""
    return {name: value for name, value in fields.items() if value != NULL}


def expect_fields(value: Raw | None, what: str) -> dict[str, Raw]:
    """As `fields_of`. Raises MalformedJson for any other value."""
    return present(expect_object(value, what))


def expect_items(value: Raw | None, what: str) -> list[Raw]:
    """As `items_of`. Raises MalformedJson for any other value."""
    if value is not None and not is_object(value):
        return [item for item in expect_list(value, what) if item != NULL]
    return [] if value is None else [value]


def expect_index(value: Raw | None, what: str) -> int | None:
    """As `int_of`. Raises MalformedJson for any other value."""
    number = int_of(value)
    if number is None and value is not None:
        raise MalformedJson(f"expected {what} as an integer, got {kind_of(value)}")
    return number


def items_of(value: Raw | None) -> list[Raw]:
    """The items of an array that are not null. One object stands for an array of it."""
    if value is None:
        return []
    found = read_shallow(value)
    if isinstance(found, dict):
        return [value]
    items = found if isinstance(found, list) else []
    return [item for item in items if item != NULL]


def text_of(value: Raw | None) -> str | None:
    if value is None:
        return None
    found = read_shallow(value)
    return found if isinstance(found, str) else None


def first_text(fields: Mapping[str, Raw], names: Iterable[str]) -> str:
    """The first of these fields that is a non-empty string."""
    for name in names:
        text = text_of(fields.get(name))
        if text:
            return text
    return ""


def int_of(value: Raw | None) -> int | None:
    """An integer, also where it is written as a string or with a fraction of zero."""
    return None if value is None else as_int(read_shallow(value))


def as_int(value: object) -> int | None:
    """The same for a value that has been read."""
    match value:
        case bool():
            return None
        case int(number):
            return number
        case float(number) if number.is_integer():
            return int(number)
        case str(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16:
            return int(digits)
        case _:
            return None


def float_of(value: Raw | None) -> float | None:
    number = None if value is None else read_shallow(value)
    return number if isinstance(number, int | float) and not isinstance(number, bool) else None


def flag_of(value: Raw | None) -> bool | None:
    found = None if value is None else read_shallow(value)
    return found if isinstance(found, bool) else None


def extra_of(fields: Mapping[str, Raw], known: Iterable[str]) -> Extra | None:
    """The fields that have no home, tagged as this dialect's; None if there are none."""
    rest = {name: field for name, field in fields.items() if name not in known}
    return Extra("chat", rest) if rest else None


def own_fields(extra: Extra | None) -> dict[str, Raw]:
    """The fields of this dialect in an extra; other dialects' are none of our business."""
    return extra.fields if extra is not None and extra.dialect == "chat" else {}


def join_object(fields: Mapping[str, Raw]) -> Raw:
    """Fields as one object, their values as they came."""
    entries = (dumps_text(name) + b":" + bytes(value) for name, value in fields.items())
    return Raw(b"{" + b",".join(entries) + b"}")
