"""Fields of a request, asked for by type. A field of another type is the client's mistake, and said to be."""

from collections.abc import Mapping
from typing import Never

from dragoman._json import Raw
from dragoman.dialects.chat.fields import (
    fields_of,
    flag_of,
    float_of,
    int_of,
    is_object,
    items_of,
    kind_of,
    text_of,
)
from dragoman.errors import RequestRefused

__all__ = (
    "Fields",
    "ask_array",
    "ask_flag",
    "ask_integer",
    "ask_number",
    "ask_object",
    "ask_string",
    "refuse",
)

Fields = Mapping[str, Raw]
"""The fields of an object that are not null."""

_MAX_SHOWN = 60


def refuse(path: str, expected: str, value: Raw | None) -> Never:
    if value is None:
        came = "nothing"
    else:
        shown = bytes(value)[:_MAX_SHOWN].decode("utf-8", "replace")
        came = f"{'an' if kind_of(value)[0] in 'ao' else 'a'} {kind_of(value)}: {shown}"
    message = f"{path}: expected {expected}, got {came}"
    raise RequestRefused(message, param=path, code="invalid_type" if value else "missing_field")


def ask_string(fields: Fields, name: str, path: str = "") -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    text = text_of(value)
    return refuse(path + name, "a string", value) if text is None else text


def ask_integer(fields: Fields, name: str, path: str = "") -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    number = None if text_of(value) is not None else int_of(value)
    return refuse(path + name, "an integer", value) if number is None else number


def ask_number(fields: Fields, name: str, path: str = "") -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    number = float_of(value)
    return refuse(path + name, "a number", value) if number is None else number


def ask_flag(fields: Fields, name: str, path: str = "") -> bool | None:
    value = fields.get(name)
    if value is None:
        return None
    flag = flag_of(value)
    return refuse(path + name, "true or false", value) if flag is None else flag


def ask_object(fields: Fields, name: str, path: str = "") -> dict[str, Raw] | None:
    value = fields.get(name)
    if value is None:
        return None
    return fields_of(value) if is_object(value) else refuse(path + name, "an object", value)


def ask_array(fields: Fields, name: str, path: str = "") -> list[Raw] | None:
    value = fields.get(name)
    if value is None:
        return None
    return items_of(value) if kind_of(value) == "array" else refuse(path + name, "an array", value)
