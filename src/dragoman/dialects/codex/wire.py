"""Types and field readers for the messages of Codex app-server.

Messages are read leniently, field by field (`core.fields`): the protocol has no version number, only releases, and its
optional fields come and go.
"""

from msgspec import Struct

from dragoman._json import Raw, dumps, is_strict, typed_decoder
from dragoman.core.fields import Fields, is_present, read_text, source_text
from dragoman.model.parts import Extra

TEXT_DELTA = b'{"method":"item/agentMessage/delta",'
"""The beginning of nearly all messages of a long answer. Only these are read by a typed decoder."""


class _TextDeltaParams(Struct, frozen=True, gc=False, rename="camel"):
    item_id: str
    delta: str
    thread_id: str | None = None
    turn_id: str | None = None


class TextDeltaMessage(Struct, frozen=True, gc=False):
    params: _TextDeltaParams


decode_text_delta = typed_decoder(TextDeltaMessage)

_NOTHING = Raw(b"")


class _ThreadParams(Struct, frozen=True, gc=False, rename="camel"):
    thread_id: str | None = None


class MessageEnvelope(Struct, frozen=True, gc=False):
    """The JSON-RPC fields of a message, and its thread. Three times as fast as reading field by field."""

    method: str | None = None
    id: Raw = _NOTHING
    params: _ThreadParams | None = None
    result: Raw = _NOTHING
    error: Raw = _NOTHING


decode_envelope = typed_decoder(MessageEnvelope)


class CodexRequest(Struct, frozen=True):
    """A request, as `request.encode_request` writes it. `serial`: the client wants one call in an answer."""

    thread: Raw
    turn: Raw
    items: list[Raw]
    serial: bool = False


decode_codex_request = typed_decoder(CodexRequest)


def raw_of(fields: Fields, key: str) -> Raw | None:
    """Return a field's bytes as a copy, which does not keep the whole message alive; None for null."""
    raw = fields.get(key)
    return Raw(bytes(raw)) if raw is not None and is_present(raw) else None


def input_of(fields: Fields, key: str) -> str:
    """Return a tool's arguments as source text: the JSON itself, or the JSON inside a string.

    The app-server sends the parsed value, raw items the model's own string. An absent value is the empty object, because
    a model that calls a tool without arguments means that.
    """
    raw = fields.get(key)
    if raw is None or not is_present(raw):
        return "{}"
    source = source_text(raw)
    if not source.startswith('"'):
        return source
    text = read_text(raw) or ""
    # Only an object is unwrapped: a string that is itself the argument must keep its quotes.
    return text if text.lstrip().startswith("{") and is_strict(text) else source


def extra_of(fields: Fields, known: frozenset[str]) -> Extra | None:
    """Return the fields of an item that are neither known nor null."""
    rest = {
        key: raw for key in fields if key not in known and (raw := raw_of(fields, key)) is not None
    }
    return Extra("codex", rest) if rest else None


def is_phantom(output: object) -> bool:
    """Return whether a tool's output is start-up noise: Codex probes MCP servers that a client named and it does not have.

    `resources/list failed: unknown MCP server 'obsidian'` comes as the output of a call that the model did not make; a
    client would take it for a tool that has run.
    """
    text = output if isinstance(output, str) else dumps(output).decode()
    text = text.lower()
    return "resources/list" in text and "unknown mcp server" in text
