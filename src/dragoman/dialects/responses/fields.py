"""Reading JSON objects field by field (`core.fields`), and what only this dialect looks for in them.

The names and ids of calls are looked for under all the spellings that backends use.
"""

from collections.abc import Collection, Mapping

from dragoman._json import Raw
from dragoman.core.fields import (
    Fields,
    is_present,
    read_bool,
    read_float,
    read_int,
    read_items,
    read_json,
    read_list,
    read_object,
    read_shallow,
    read_text,
    read_texts,
    read_uncut,
    without,
)
from dragoman.dialects.responses.wire import PART_STATUS
from dragoman.model.parts import Extra, PartStatus

__all__ = (
    "Fields",
    "extra_of",
    "find_call_id",
    "find_input",
    "find_name",
    "first_byte",
    "is_present",
    "own_fields",
    "read_bool",
    "read_float",
    "read_int",
    "read_items",
    "read_json",
    "read_list",
    "read_object",
    "read_shallow",
    "read_status",
    "read_text",
    "read_texts",
    "read_uncut",
    "source_text",
    "text_source",
    "without",
)

_NAMES = ("name", "function_name", "tool_name", "call_name")
_IDS = ("call_id", "tool_call_id", "tool_use_id")
_INPUTS = ("arguments", "input", "parameters")


def first_byte(value: Raw) -> bytes:
    """What kind of JSON a value is, without reading it."""
    return bytes(memoryview(value)[:1])


def read_status(fields: Fields) -> PartStatus:
    """An item's status; a word that only shows progress (`searching`) is no status of a finished item."""
    return PART_STATUS.get(read_text(fields, "status") or "", "completed")


def source_text(value: Raw) -> str:
    """JSON as text, byte for byte. Bytes that are no UTF-8 were read past, and are shown as U+FFFD."""
    return str(memoryview(value), "utf-8", "replace")


def text_source(text: str) -> Raw:
    """Text that is JSON, as JSON."""
    return Raw(text.encode("utf-8", "replace"))


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


def extra_of(fields: Fields, known: Collection[str]) -> Extra | None:
    """What has no home, to be written back by this dialect only."""
    rest = without(fields, known)
    return Extra("responses", rest) if rest else None


def own_fields(extra: Extra | None) -> Mapping[str, Raw]:
    """The fields that this dialect may write back; another dialect's are none of our business."""
    return extra.fields if extra is not None and extra.dialect == "responses" else {}
