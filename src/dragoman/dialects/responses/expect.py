"""Reading a request strictly: what cannot be used is refused, with the path of the field and what was expected.

Null is absence everywhere. Unknown fields are nobody's fault and are not looked at here.
"""

from math import isfinite
from typing import NoReturn, TypeVar

from dragoman._json import Raw
from dragoman.dialects.responses.fields import (
    Fields,
    read_json,
    read_shallow,
    source_text,
)
from dragoman.errors import RequestRefused

__all__ = (
    "expect_bool",
    "expect_int",
    "expect_list",
    "expect_number",
    "expect_object",
    "expect_text",
    "need_text",
    "refuse",
)

_NAMES: dict[type[object], str] = {
    bool: "a boolean",
    dict: "an object",
    float: "a number",
    int: "a number",
    list: "an array",
    str: "a string",
}
_EXCERPT = 40

T = TypeVar("T")


def refuse(where: str, expected: str, value: Raw | None) -> NoReturn:
    came = "nothing"
    if value is not None:
        text = source_text(value)
        shown = text if len(text) <= _EXCERPT else text[:_EXCERPT] + "…"
        came = f"{_NAMES.get(type(read_json(value)), 'null')}: {shown}"
    raise RequestRefused(f"{where}: expected {expected}, got {came}", param=where)


def expect_text(fields: Fields, key: str, where: str = "") -> str | None:
    return _typed(fields, key, where, str, "a string")


def need_text(fields: Fields, key: str, where: str) -> str:
    value = expect_text(fields, key, where)
    return value or refuse(_path(where, key), "a string that is not empty", fields.get(key))


def expect_bool(fields: Fields, key: str, where: str = "") -> bool | None:
    return _typed(fields, key, where, bool, "a boolean")


def expect_int(fields: Fields, key: str, where: str = "") -> int | None:
    number = expect_number(fields, key, where)
    if number is None:
        return None
    if number != int(number):
        refuse(_path(where, key), "a whole number", fields[key])
    return int(number)


def expect_number(fields: Fields, key: str, where: str = "") -> float | None:
    raw = fields.get(key)
    value = None if raw is None else read_shallow(raw)
    if value is None:
        return None
    # JSON has no infinity, but its numbers may be larger than any we can hold.
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        refuse(_path(where, key), "a number", fields[key])
    return value


def expect_list(value: Raw | None, where: str) -> list[Raw]:
    """The entries; none if the field is absent."""
    found = None if value is None else read_shallow(value)
    if found is None:
        return []
    return found if isinstance(found, list) else refuse(where, "an array", value)


def expect_object(value: Raw | None, where: str) -> dict[str, Raw]:
    """The fields; none if the object is absent."""
    found = None if value is None else read_shallow(value)
    if found is None:
        return {}
    return found if isinstance(found, dict) else refuse(where, "an object", value)


def _typed(fields: Fields, key: str, where: str, kind: type[T], expected: str) -> T | None:
    raw = fields.get(key)
    value = None if raw is None else read_shallow(raw)
    if value is None:
        return None
    return value if isinstance(value, kind) else refuse(_path(where, key), expected, fields[key])


def _path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
