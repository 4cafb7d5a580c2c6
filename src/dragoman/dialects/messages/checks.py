"""Fields of a request: of the right type, absent (null is absent), or refused with their path.

Requests come from clients and are refused where they make no sense; answers come from upstreams and are survived
(`fields`).
"""

from typing import Never

from dragoman._json import Raw
from dragoman.dialects.messages.fields import (
    MAX_NUMBER,
    Fields,
    is_null,
    object_of,
    raws_of,
    string_of,
    value_of,
)
from dragoman.errors import RequestRefused

__all__ = (
    "ask_array",
    "ask_flag",
    "ask_integer",
    "ask_number",
    "ask_object",
    "ask_string",
    "refuse",
)

_KINDS: dict[type[object], str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    dict: "an object",
    list: "an array",
}


def refuse(path: str, expected: str, value: Raw | None) -> Never:
    """Say what was expected where, and what came."""
    found = value_of(value)
    came = "nothing" if found is None else _KINDS[type(found)]
    raise RequestRefused(f"{path}: expected {expected}, got {came}", param=path)


def ask_string(fields: Fields, key: str, path: str = "") -> str | None:
    value = fields.get(key)
    if is_null(value):
        return None
    text = string_of(value)
    return refuse(path + key, "a string", value) if text is None else text


def ask_integer(fields: Fields, key: str, path: str = "") -> int | None:
    number = ask_number(fields, key, path)
    if number is None:
        return None
    if number != number // 1:
        refuse(path + key, "an integer", fields.get(key))
    return int(number)


def ask_number(fields: Fields, key: str, path: str = "") -> float | None:
    value = fields.get(key)
    if is_null(value):
        return None
    found = value_of(value)
    if isinstance(found, bool) or not isinstance(found, int | float):
        refuse(path + key, "a number", value)
    if abs(found) > MAX_NUMBER:
        raise RequestRefused(f"{path}{key}: expected a number of at most 2^53", param=path + key)
    return found


def ask_flag(fields: Fields, key: str, path: str = "") -> bool | None:
    value = fields.get(key)
    if is_null(value):
        return None
    found = value_of(value)
    return found if isinstance(found, bool) else refuse(path + key, "a boolean", value)


def ask_object(fields: Fields, key: str, path: str = "") -> Fields | None:
    value = fields.get(key)
    if is_null(value):
        return None
    found = object_of(value)
    return refuse(path + key, "an object", value) if found is None else found


def ask_array(fields: Fields, key: str, path: str = "") -> list[Raw] | None:
    value = fields.get(key)
    if is_null(value):
        return None
    found = raws_of(value)
    return refuse(path + key, "an array", value) if found is None else found
