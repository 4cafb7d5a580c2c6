"""Reading Codex app-server's JSON without trusting it.

A field that is absent, null or of another type than expected reads as the empty value of its type: the protocol is
versioned by release, not by number, and its optional fields come and go. Objects are read one level at a time, their
fields left as the bytes they came in, so that a tool's arguments are never re-serialised here; those bytes are parts
of a document that has been checked as a whole, so reading them does not fail.
"""

from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from dragoman._json import Raw, as_object, dumps, is_strict, loads, typed_decoder
from dragoman.core.surrogates import replace_lone
from dragoman.model.parts import Extra

__all__ = (
    "TEXT_DELTA",
    "Fields",
    "TextDeltaMessage",
    "decode_text_delta",
    "entries_of",
    "extra_of",
    "input_of",
    "integer_of",
    "is_phantom",
    "number_of",
    "object_of",
    "objects_of",
    "raw_of",
    "text_of",
    "value_of",
)

Fields = Mapping[str, Raw]

_decode_array = typed_decoder(list[Raw])

TEXT_DELTA = b'{"method":"item/agentMessage/delta",'
"""How nearly all messages of a long answer begin: the only ones read by a typed decoder."""


class _TextDeltaParams(Struct, frozen=True, gc=False, rename="camel"):
    item_id: str
    delta: str
    thread_id: str | None = None
    turn_id: str | None = None


class TextDeltaMessage(Struct, frozen=True, gc=False):
    params: _TextDeltaParams


decode_text_delta = typed_decoder(TextDeltaMessage)


def value_of(fields: Fields, key: str) -> object:
    """A field as a plain value; None if it is absent."""
    raw = fields.get(key)
    return cast("object", loads(bytes(raw))) if raw is not None else None


def raw_of(fields: Fields, key: str) -> Raw | None:
    """A field's own bytes (a copy: it must not keep the whole message alive); None for null."""
    raw = fields.get(key)
    if raw is None or bytes(raw) == b"null":
        return None
    return Raw(bytes(raw))


def text_of(fields: Fields, key: str) -> str:
    """May end in half a surrogate pair, as any delta may."""
    value = value_of(fields, key)
    return value if isinstance(value, str) else ""


def integer_of(fields: Fields, key: str) -> int | None:
    value = value_of(fields, key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number_of(fields: Fields, key: str) -> float | None:
    value = value_of(fields, key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def object_of(fields: Fields, key: str) -> Fields:
    data = bytes(fields.get(key, b""))
    return as_object(data) if data.startswith(b"{") else {}


def objects_of(fields: Fields, key: str) -> list[Fields]:
    """The objects of an array; whatever else it holds is left out."""
    data = bytes(fields.get(key, b""))
    entries = _decode_array(data) if data.startswith(b"[") else []
    return [as_object(bytes(entry)) for entry in entries if bytes(entry).startswith(b"{")]


def entries_of(fields: Fields, key: str) -> list[str]:
    """The strings of an array."""
    value = value_of(fields, key)
    if not isinstance(value, list):
        return []
    entries = cast("list[object]", value)
    return [replace_lone(entry) for entry in entries if isinstance(entry, str)]


def input_of(fields: Fields, key: str) -> str:
    """A tool's arguments as source text: the JSON as it stands, or the JSON that a string holds.

    The app-server sends the parsed value, raw items the model's own string. Nothing at all is the empty object, which
    is what a model means that calls a tool without arguments.
    """
    raw = raw_of(fields, key)
    if raw is None:
        return "{}"
    source = bytes(raw).decode("utf-8", "replace")
    if not source.startswith('"'):
        return source
    text = replace_lone(text_of(fields, key))
    # An object, because a string that is an argument in its own right must keep its quotes.
    return text if text.lstrip().startswith("{") and is_strict(text) else source


def extra_of(fields: Fields, known: frozenset[str]) -> Extra | None:
    """What else an item says: its fields that are neither known nor null."""
    rest = {
        key: raw for key in fields if key not in known and (raw := raw_of(fields, key)) is not None
    }
    return Extra("codex", rest) if rest else None


def is_phantom(output: object) -> bool:
    """Whether a tool's output is start-up noise: Codex probes MCP servers that a client named and it does not have.

    `resources/list failed: unknown MCP server 'obsidian'` comes as the output of a call nobody made; shown to a
    client, it looks like a tool that has run.
    """
    text = output if isinstance(output, str) else dumps(output).decode()
    text = text.lower()
    return "resources/list" in text and "unknown mcp server" in text
