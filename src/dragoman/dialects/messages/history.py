"""A request's conversation, read: `system` and `messages` to turns.

A user message becomes a tool turn for each run of results in it and a user turn for the rest. A `system` message inside
the conversation is marked with an `extra` of this dialect (`is_native_system`), so that it is written back in its place.
"""

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.aliases import original_id
from dragoman.dialects.messages.blocks import part_from_block, type_of
from dragoman.dialects.messages.checks import ask_array, ask_string, refuse
from dragoman.dialects.messages.fields import (
    Fields,
    extra_of,
    is_null,
    object_of,
    own_fields,
    raws_of,
    string_of,
)
from dragoman.dialects.messages.plain import read_content
from dragoman.dialects.messages.wire import MAPPED_FIELDS
from dragoman.errors import RequestRefused
from dragoman.model.parts import Call, Extra, Part, Result, Text
from dragoman.model.request import Role, Turn

__all__ = ("is_native_system", "read_turns", "settled", "split_user")

_KNOWN = MAPPED_FIELDS["request.message"]


def read_turns(request: Fields) -> tuple[Turn, ...]:
    """The conversation of a request, the system text first."""
    turns: list[Turn] = []
    system = _content(request.get("system"), "system")
    if system:
        turns.append(Turn(role="system", parts=system, head=True))
    messages = ask_array(request, "messages")
    if messages is None:
        refuse("messages", "an array", request.get("messages"))
    for index, message in enumerate(messages):
        turns.extend(_message(message, f"messages.{index}"))
    return tuple(turns)


def is_native_system(turn: Turn) -> bool:
    """Whether a system turn stood among the messages of this dialect."""
    return not turn.head and turn.extra is not None and turn.extra.dialect == "messages"


def _message(value: Raw, path: str) -> list[Turn]:
    message = object_of(value)
    if message is None:
        refuse(path, "an object", value)
    role = ask_string(message, "role", f"{path}.")
    parts = _content(message.get("content"), f"{path}.content")
    match role:
        case "assistant":
            return [Turn(role="assistant", parts=parts, extra=extra_of(message, _KNOWN))]
        case "user":
            return split_user(parts, extra_of(message, _KNOWN))
        case "system":
            return [
                Turn(
                    role="system", parts=parts, extra=Extra("messages", own_fields(message, _KNOWN))
                )
            ]
        case _:
            raise RequestRefused(
                f"{path}.role: expected user, assistant or system, got {role or 'nothing'}",
                param=f"{path}.role",
            )


def split_user(parts: tuple[Part, ...], extra: Extra | None = None) -> list[Turn]:
    """The turns of a user's message."""
    turns: list[Turn] = []
    run: list[Part] = []
    role: Role = "user"
    for part in parts:
        wanted: Role = "tool" if isinstance(part, Result) else "user"
        if run and wanted != role:
            turns.append(Turn(role=role, parts=tuple(run)))
            run = []
        role = wanted
        run.append(part)
    turns.append(Turn(role=role, parts=tuple(run)))
    if extra is not None:
        turns[0] = replace(turns[0], extra=extra)
    return turns


def _content(value: Raw | None, path: str) -> tuple[Part, ...]:
    if value is None or is_null(value):
        return ()
    plain = read_content(value)
    if plain is not None and all(map(_is_named, plain)):
        return tuple(map(settled, plain))
    text = string_of(value)
    if text is not None:  # with half a character in it
        return (Text(text=text),)
    blocks = raws_of(value)
    if blocks is None:
        refuse(path, "a string or an array of blocks", value)
    return tuple(_block(block, f"{path}.{index}") for index, block in enumerate(blocks))


def _block(value: Raw, path: str) -> Part:
    block = object_of(value)
    if block is None:
        refuse(path, "an object", value)
    if not type_of(block):
        refuse(f"{path}.type", "a string", block.get("type"))
    if type_of(block) == "tool_result":
        _check_result(block, f"{path}.content")
    part = part_from_block(block, value)
    if not _is_named(part):
        refuse(f"{path}.name", "the name of a tool", block.get("name"))
    return settled(part)


def _is_named(part: Part) -> bool:
    return not isinstance(part, Call) or bool(part.name)


def settled(part: Part) -> Part:
    """The part with the ids that its client was told by others, and with input if it is a call."""
    match part:
        case Call():
            source = part.input if part.input.strip() else "{}"
            if part.executor != "client":
                return replace(part, input=source)
            return replace(part, input=source, call_id=original_id(part.call_id))
        case Result() if part.executor == "client":
            return replace(part, call_id=original_id(part.call_id))
        case _:
            return part


def _check_result(block: Fields, path: str) -> None:
    """The content of a result is a string or blocks."""
    content = block.get("content")
    if is_null(content) or string_of(content) is not None:
        return
    entries = raws_of(content)
    if entries is None:
        refuse(path, "a string or an array of blocks", content)
    for index, entry in enumerate(entries):
        inner = object_of(entry)
        if inner is None:
            refuse(f"{path}.{index}", "an object", entry)
        if not type_of(inner):
            refuse(f"{path}.{index}.type", "a string", inner.get("type"))
