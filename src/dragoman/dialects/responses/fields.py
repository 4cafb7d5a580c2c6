"""Reading JSON objects field by field, without trusting them.

A field of the wrong type is read as if it were absent, and null is absence everywhere. Values that are not asked for
stay the bytes they came in. The names and ids of calls are looked for under all the spellings that backends use.
"""

from collections.abc import Collection, Mapping
from typing import cast

from dragoman._json import FAST_FAILURES, Raw, as_object, loads, raw, typed_decoder
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.responses.wire import PART_STATUS
from dragoman.errors import MalformedJson
from dragoman.model.parts import Extra, PartStatus

__all__ = (
    "Fields",
    "extra_of",
    "find_call_id",
    "find_input",
    "find_name",
    "is_present",
    "own_fields",
    "read_bool",
    "read_float",
    "read_int",
    "read_items",
    "read_json",
    "read_list",
    "read_object",
    "read_status",
    "read_text",
    "read_texts",
    "read_uncut",
    "source_text",
    "text_source",
    "without",
)

Fields = Mapping[str, Raw]

_decode_list = typed_decoder(list[Raw])

_NAMES = ("name", "function_name", "tool_name", "call_name")
_IDS = ("call_id", "tool_call_id", "tool_use_id")
_INPUTS = ("arguments", "input", "parameters")


def is_present(value: Raw | None) -> bool:
    return value is not None and bytes(value) != b"null"


def read_json(value: Raw | None) -> object:
    """The plain value, None if it is absent or cannot be read."""
    if value is None:
        return None
    try:
        return cast("object", loads(bytes(value)))
    except MalformedJson:
        return None


def read_object(value: Raw | None) -> dict[str, Raw]:
    """The fields of an object; none if it is anything else."""
    if value is None:
        return {}
    try:
        return as_object(bytes(value))
    except MalformedJson:
        return {}


def read_list(value: Raw | None) -> list[Raw] | None:
    """The entries of an array as they came; None if it is anything else."""
    if value is None:
        return None
    try:
        return _decode_list(bytes(value))
    except FAST_FAILURES:
        found = read_json(value)
        return (
            [raw(entry) for entry in cast("list[object]", found)]
            if isinstance(found, list)
            else None
        )


def read_items(value: Raw | None) -> list[dict[str, Raw]]:
    """The objects of an array, each by its fields; entries that are no objects are left out."""
    return [fields for entry in read_list(value) or () if (fields := read_object(entry))]


def read_uncut(fields: Fields, key: str) -> str | None:
    """A string as it came, lone surrogates and all: half of a character may end a delta."""
    value = read_json(fields.get(key))
    return value if isinstance(value, str) else None


def read_text(fields: Fields, key: str) -> str | None:
    value = read_uncut(fields, key)
    return None if value is None else replace_lone(value)


def read_status(fields: Fields) -> PartStatus:
    """An item's status; a word that only shows progress (`searching`) is no status of a finished item."""
    return PART_STATUS.get(read_text(fields, "status") or "", "completed")


def source_text(value: Raw) -> str:
    """JSON as text, byte for byte. Bytes that are no UTF-8 were read past, and are shown as U+FFFD."""
    return bytes(value).decode("utf-8", "replace")


def text_source(text: str) -> Raw:
    """Text that is JSON, as JSON."""
    return Raw(text.encode("utf-8", "replace"))


def read_int(fields: Fields, key: str) -> int | None:
    value = read_json(fields.get(key))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_float(fields: Fields, key: str) -> float | None:
    value = read_json(fields.get(key))
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_bool(fields: Fields, key: str) -> bool | None:
    value = read_json(fields.get(key))
    return value if isinstance(value, bool) else None


def read_texts(value: Raw | None) -> tuple[str, ...]:
    """The strings of an array."""
    found = read_json(value)
    if not isinstance(found, list):
        return ()
    return tuple(
        replace_lone(entry) for entry in cast("list[object]", found) if isinstance(entry, str)
    )


def find_name(fields: Fields) -> str:
    """A call's name, "" if there is none under any of its spellings."""
    for key in _NAMES:
        name = read_text(fields, key)
        if name:
            return name
    return (
        read_text(read_object(fields.get("function")), "name") if "function" in fields else ""
    ) or ""


def find_call_id(fields: Fields) -> str:
    """The id that pairs a call with its result, "" if there is none. An item's own `id` is not looked at."""
    for key in _IDS:
        call_id = read_text(fields, key)
        if call_id:
            return call_id
    if "function" not in fields:
        return ""
    function = read_object(fields.get("function"))
    return read_text(function, "call_id") or read_text(function, "id") or ""


def find_input(fields: Fields) -> tuple[str | None, bool]:
    """A function-like part's input as source text (None if absent), and whether it came as an object."""
    for source in (fields, read_object(fields.get("function"))):
        for key in _INPUTS:
            value = source.get(key)
            if value is None or not is_present(value):
                continue
            text = read_text(source, key)
            return (source_text(value), True) if text is None else (text, False)
    return None, False


def without(fields: Fields, keys: Collection[str]) -> dict[str, Raw]:
    return {key: value for key, value in fields.items() if key not in keys}


def extra_of(fields: Fields, known: Collection[str]) -> Extra | None:
    """What has no home, to be written back by this dialect only."""
    rest = without(fields, known)
    return Extra("responses", rest) if rest else None


def own_fields(extra: Extra | None) -> Mapping[str, Raw]:
    """The fields that this dialect may write back; another dialect's are none of our business."""
    return extra.fields if extra is not None and extra.dialect == "responses" else {}
