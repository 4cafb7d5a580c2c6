"""Which events every client can use as they came.

A regular stream names every event twice, has `usage` in both places, opens blocks one after the other with dense
indices, opens a call with an empty input and sends that as deltas, and stops every block and the message. Pings,
comments and fields nobody knows harm nobody; nor do blocks of a type nobody knows, to the clients that asked for them.
"""

import re
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import FAST_FAILURES, Raw, typed_decoder
from dragoman.dialects.base import EncodeContext, Look, Mark
from dragoman.dialects.messages.encode import MessagesEncoder
from dragoman.dialects.messages.render import own_extra
from dragoman.dialects.messages.wire import (
    STOP_REASONS,
    InputFragment,
    decode_block_delta,
)
from dragoman.model.events import Finished
from dragoman.model.parts import Extra
from dragoman.sse import Frame

__all__ = ("MessagesWatch", "is_regular_body")

_CALL_BLOCKS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_ID = re.compile("[a-zA-Z0-9_-]+")  # what the vendor takes back
_LAZY_BLOCKS = frozenset({"text", "thinking"})  # our encoder opens them with their first words


class _Usage(Struct, gc=False):
    output_tokens: int | None


class _StartUsage(Struct, gc=False):
    input_tokens: int | None
    output_tokens: int | None = None


class _Message(Struct):
    id: str
    role: str
    model: str
    content: list[Raw]
    usage: _StartUsage


class _Block(Struct):
    type: str
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    input: dict[str, Raw] | None = None


class _Delta(Struct):
    type: str | None = None
    partial_json: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _Error(Struct, gc=False):
    type: str
    message: str


class _Event(Struct):
    """Any event; which of these it needs depends on its type."""

    type: str
    index: int = -1
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: _Error | None = None


class _WholeBlock(Struct):
    type: str
    id: str = ""
    name: str = ""
    text: str = ""
    input: dict[str, Raw] | None = None


class _WholeUsage(Struct, gc=False):
    input_tokens: int
    output_tokens: int


class _Body(Struct):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[_WholeBlock]
    stop_reason: str
    usage: _WholeUsage


_decode_body = typed_decoder(_Body)
_decode_event = typed_decoder(_Event)


class MessagesWatch:
    """A `watching.Watch` for Messages."""

    harmless: frozenset[str] = frozenset({"unknown_block"})
    ending = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    model_path: tuple[str, ...] = ("message", "model")
    is_repetition = False
    has_default_input = True
    head = b""  # every plain delta passes as it came

    def __init__(self, context: EncodeContext) -> None:
        self.encoder = MessagesEncoder(context)
        self._index = -1  # of the block that was opened last
        self._is_client_call = False

    def look(self, frame: Frame, data: bytes) -> Look | None:
        try:
            event = _decode_event(data)
        except FAST_FAILURES:
            return None
        if frame.name != event.type.encode("utf-8", "replace"):
            return None
        match event.type:
            case "message_start":
                return _look_at_start(event)
            case "content_block_start":
                return self._look_at_block(event)
            case "content_block_delta":
                return self._look_at_delta(event)
            case "content_block_stop":
                return Look(((0, "stop", event.index),))
            case "message_delta":
                return _look_at_end(event)
            case "message_stop":
                return Look(((0, "end"),))
            case "ping":
                return Look()
            case "error":
                return Look(is_error=True) if event.error is not None else None
            case _:
                return Look(is_stray=True)

    def plain(self, data: bytes) -> bytes | None:
        return data

    def input_size(self, data: bytes) -> int:
        delta = decode_block_delta(data).delta
        return len(delta.partial_json) if isinstance(delta, InputFragment) else 0

    def outline(self, stream: bytes) -> list[Mark]:
        marks: list[Mark] = []
        for piece in stream.split(b"\n\n"):
            name, _, rest = piece.partition(b"\ndata: ")
            if rest and not name.endswith((b"ping", b"error")):
                marks += _outline(_decode_event(rest))
        return marks

    def catch_up(self) -> bytes:
        return self.encoder.open_block()

    def follow(self, data: bytes) -> None:
        """Messages counts blocks only, and the encoder has seen them all."""

    def mend(self, event: Finished) -> Finished:
        own = own_extra(event.extra)
        if "stop_reason" not in own or event.native in STOP_REASONS:
            return event
        rest = {key: value for key, value in own.items() if key != "stop_reason"}
        return replace(event, extra=Extra("messages", rest) if rest else None)

    def keep_alive(self) -> bytes:
        return b'event: ping\ndata: {"type":"ping"}\n\n'

    def _look_at_block(self, event: _Event) -> Look | None:
        block = event.content_block
        if block is None or block.text or block.thinking:
            return None  # clients take the beginning of a block from its deltas
        if block.type in _CALL_BLOCKS and (not block.id or not block.name or block.input):
            return None
        self._index = event.index
        self._is_client_call = block.type == "tool_use"
        return Look((_opened(event.index, block),), is_settled=block.type in _LAZY_BLOCKS)

    def _look_at_delta(self, event: _Event) -> Look | None:
        delta = event.delta
        if delta is None or event.index != self._index:
            return None
        marks: tuple[Mark, ...] = ()
        if delta.type == "signature_delta" and delta.signature:
            marks = ((0, "signature", event.index),)
        return Look(marks, len(delta.partial_json) if self._is_client_call else 0)


def is_regular_body(data: bytes, _context: EncodeContext) -> bool:
    """Whether every client can use a whole answer as it came, as far as its reader has no objection."""
    try:
        body = _decode_body(data)
    except FAST_FAILURES:
        return False
    return (
        bool(body.id)
        and body.stop_reason in STOP_REASONS
        and all(
            _ID.fullmatch(block.id) is not None and bool(block.name) and block.input is not None
            for block in body.content
            if block.type in _CALL_BLOCKS
        )
    )


def _opened(index: int, block: _Block) -> Mark:
    return (0, "start", index, block.type, block.id, block.name)


def _look_at_start(event: _Event) -> Look | None:
    message = event.message
    if message is None or not message.id or message.role != "assistant" or message.content:
        return None
    return Look(((0, "message", message.id),), model=message.model)


def _look_at_end(event: _Event) -> Look | None:
    reason = None if event.delta is None else event.delta.stop_reason
    if reason not in STOP_REASONS or event.usage is None:
        return None
    return Look(((0, "reason", reason),))


def _outline(event: _Event) -> list[Mark]:
    """The marks of an event of our own."""
    match event:
        case _Event(type="message_start", message=_Message(id=message_id)):
            return [(0, "message", message_id)]
        case _Event(type="content_block_start", index=index, content_block=_Block() as block):
            return [_opened(index, block)]
        case _Event(type="content_block_delta", index=index, delta=_Delta(type="signature_delta")):
            return [(0, "signature", index)]
        case _Event(type="content_block_stop", index=index):
            return [(0, "stop", index)]
        case _Event(type="message_delta", delta=_Delta(stop_reason=reason)):
            return [(0, "reason", reason)]
        case _Event(type="message_stop"):
            return [(0, "end")]
        case _:
            return []
