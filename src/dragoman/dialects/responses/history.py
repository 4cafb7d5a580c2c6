"""A conversation's items read into turns: one turn for each item, never merged.

Messages become turns with their content. Calls and reasoning are turns of the assistant, results are `tool` turns. Tools
that are declared inside the conversation are gathered beside it, and stay where they stand.
"""

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.responses.content import read_content
from dragoman.dialects.responses.expect import expect_object, expect_text, refuse
from dragoman.dialects.responses.fields import (
    Fields,
    extra_of,
    is_present,
    own_fields,
    read_items,
    read_shallow,
    read_text,
    read_uncut,
)
from dragoman.dialects.responses.items import read_item
from dragoman.dialects.responses.plain_item import read_plain
from dragoman.dialects.responses.tools import read_tools
from dragoman.dialects.responses.wire import CALL_ITEMS, MESSAGE_FIELDS
from dragoman.model.parts import Call, Extra, Opaque, Part, Reasoning, Result, Text
from dragoman.model.request import Namespace, Role, Tool, Turn

__all__ = ("History", "read_history")

_ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "developer",
    "system": "system",
    "user": "user",
}
_OPAQUE_ROLES: dict[str, Role] = {
    "additional_tools": "developer",
    "compaction_trigger": "developer",
    "configuration_update": "developer",
}
_DECLARING = frozenset({"additional_tools", "tool_search_output"})


class History(Struct, frozen=True):
    turns: tuple[Turn, ...] = ()
    tools: tuple[Tool, ...] = ()
    namespaces: tuple[Namespace, ...] = ()


def read_history(value: Raw | None) -> History:
    """`input`: a string, or a list of items.

    Raises:
        RequestRefused: an item cannot be used.
    """
    found = None if value is None else read_shallow(value)
    if found is None:
        return History()
    if isinstance(found, str):
        return History((Turn(role="user", parts=(Text(text=replace_lone(found)),)),))
    if not isinstance(found, list):
        refuse("input", "a string or an array", value)
    turns: list[Turn] = []
    tools: list[Tool] = []
    namespaces: list[Namespace] = []
    for number, entry in enumerate(found):
        plain = read_plain(entry)
        if plain is not None:
            turns.append(plain)
            continue
        where = f"input[{number}]"
        fields = expect_object(entry, where)
        kind = expect_text(fields, "type", where)
        turns.append(_turn(kind, entry, fields, where))
        if kind in _DECLARING:
            declared = read_tools(fields.get("tools"), f"{where}.tools", in_input=True)
            tools.extend(declared.tools)
            namespaces.extend(declared.namespaces)
    return History(tuple(turns), tuple(tools), tuple(namespaces))


def _turn(kind: str | None, entry: Raw, fields: Fields, where: str) -> Turn:
    if kind == "message" or (kind is None and "role" in fields):
        return _message(fields, where)
    if kind is None:
        if read_text(fields, "id") is None:
            refuse(f"{where}.type", "the type of an item", fields.get("type"))
        return Turn(role="assistant", parts=(_reference(entry, fields),))
    part = read_item(entry, fields)
    if isinstance(part, Call):
        _check_call(part, kind, fields, where)
    if isinstance(part, Reasoning):
        part = _with_sections(part, fields)
    role = _role(part)
    return Turn(role=role, parts=(part,), status=read_text(fields, "status"))


def _reference(entry: Raw, fields: Fields) -> Opaque:
    return Opaque(
        dialect="responses", type="item_reference", raw=entry, item_id=read_text(fields, "id")
    )


def _with_sections(part: Reasoning, fields: Fields) -> Reasoning:
    """Thoughts whose sections are more than texts keep them as they came."""
    kept = {
        name: fields[name]
        for name in ("summary", "content")
        if any(entry.keys() - {"type", "text"} for entry in read_items(fields.get(name)))
    }
    return (
        replace(part, extra=Extra("responses", {**own_fields(part.extra), **kept}))
        if kept
        else part
    )


def _role(part: Part) -> Role:
    match part:
        case Result():
            return "tool"
        case Opaque():
            return _OPAQUE_ROLES.get(part.type, "assistant")
        case _:
            return "assistant"


def _check_call(call: Call, kind: str, fields: Fields, where: str) -> None:
    if not call.name:
        refuse(f"{where}.name", "the name of the tool", fields.get("name"))
    spec = CALL_ITEMS[kind]
    value = fields.get(spec.field)
    if spec.kind == "custom" and is_present(value) and read_uncut(fields, spec.field) is None:
        refuse(f"{where}.{spec.field}", "a string", value)


def _message(fields: Fields, where: str) -> Turn:
    said = expect_text(fields, "role", where)
    role = _ROLES.get(said or "")
    if role is None:
        refuse(f"{where}.role", "user, assistant, system or developer", fields.get("role"))
    return Turn(
        role=role,
        parts=_content(fields.get("content"), f"{where}.content"),
        item_id=read_text(fields, "id") or None,
        status=read_text(fields, "status"),
        extra=extra_of(fields, MESSAGE_FIELDS),
    )


def _content(value: Raw | None, where: str) -> tuple[Part, ...]:
    found = None if value is None else read_shallow(value)
    if found is None:
        return ()
    if isinstance(found, str):
        return (Text(text=replace_lone(found)),)
    if not isinstance(found, list):
        refuse(where, "a string or an array", value)
    parts: list[Part] = []
    for number, entry in enumerate(found):
        path = f"{where}[{number}]"
        fields = expect_object(entry, path)
        if expect_text(fields, "type", path) is None:
            refuse(f"{path}.type", "the type of a content part", fields.get("type"))
        parts.append(read_content(entry, fields))
    return tuple(parts)
