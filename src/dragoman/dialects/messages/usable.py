"""Decides which events every client can use unchanged.

A usable stream names every event twice, has `usage` in message_start and message_delta, opens blocks one after the other
with dense indices, opens a call with an empty input and sends the input as deltas, and stops every block and the message.
All clients accept pings, comments and unknown fields; clients that asked for blocks of an unknown type accept those too.
"""

import re
from collections.abc import Sequence

from dragoman._json import FAST_FAILURES
from dragoman.dialects.codec import EncodeContext, FrameVerdict
from dragoman.dialects.messages.wire import (
    DELTA_FIELDS,
    STOP_REASONS,
    UsableBlock,
    UsableEvent,
    decode_usable_body,
    decode_usable_event,
)
from dragoman.model.events import Completed, Event, PartEnded, PartStarted
from dragoman.model.parts import Result
from dragoman.sse import Frame

_CALL_BLOCKS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_CONTENTS = frozenset({"text", "partial_json", "thinking"})  # SDKs append them without a look
_ID = re.compile("[a-zA-Z0-9_-]+")  # ids that the vendor accepts in a later request


class MessagesCheck:
    """A `codec.FrameCheck` for Messages."""

    harmless: frozenset[str] = frozenset({"unknown_block"})
    ending = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    model_path: tuple[str, ...] = ("message", "model")
    has_default_input = True
    choices = 1

    def __init__(self, _context: EncodeContext) -> None:
        self._count = 0  # how many blocks were opened
        self._is_open = False  # whether the last block is open
        self._is_client_call = False
        # Starts, stops and finishes that were received and whose events were not emitted yet.
        self._ahead = 0
        self._awaits_end = False  # the encoder writes a piece of the open block only at its end

    @property
    def is_ahead(self) -> bool:
        return self._ahead > 0 or self._awaits_end

    def look(self, frame: Frame, data: bytes, events: Sequence[Event]) -> FrameVerdict:
        try:
            event = decode_usable_event(data)
        except FAST_FAILURES as error:
            return FrameVerdict(problem=str(error))
        if frame.name != event.type.encode("utf-8", "replace"):
            return FrameVerdict(
                problem=f"expected the event name {event.type}, got {frame.name[:40]!r}"
            )
        look = self._look(event)
        self.take(events)
        return look

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, (PartStarted, PartEnded, Completed)):
                self._ahead -= 1
            if isinstance(event, PartEnded):
                self._awaits_end = False
            elif isinstance(event, PartStarted) and isinstance(event.header, Result):
                self._awaits_end = True

    def plain(self, raw: bytes, count: int) -> bytes | None:  # noqa: ARG002 -- others need it
        return raw

    def keep_alive(self) -> bytes:
        return b'event: ping\ndata: {"type":"ping"}\n\n'

    def _look(self, event: UsableEvent) -> FrameVerdict:
        match event.type:
            case "message_start":
                return _look_at_start(event)
            case "content_block_start":
                return FrameVerdict(problem=self._look_at_block(event))
            case "content_block_delta":
                return self._look_at_delta(event)
            case "content_block_stop":
                is_open = self._is_open and event.index == self._count - 1
                self._is_open = False
                self._ahead += 1
                return FrameVerdict(
                    problem="" if is_open else "expected the stop of the open block"
                )
            case "message_delta":
                return FrameVerdict(problem=self._look_at_end(event))
            case "error":
                problem = "" if event.error is not None else "expected an error with a message"
                return FrameVerdict(problem, is_error=not problem)
            case "ping" | "message_stop":
                return FrameVerdict()
            case _:
                return FrameVerdict(is_stray=True)

    def _look_at_block(self, event: UsableEvent) -> str:
        block = event.content_block
        if block is None or event.index != self._count or self._is_open:
            return f"expected the start of block {self._count} after the stop of the block before"
        if block.text or block.thinking:
            # Clients take its content only from its deltas.
            return "expected a block to begin empty"
        if block.type in _CALL_BLOCKS and (not _is_usable_call(block) or block.input != {}):
            return "expected a call to begin with its id, its name and an empty input"
        self._count += 1
        self._is_open = True
        self._is_client_call = block.type == "tool_use"
        self._awaits_end = block.type == "redacted_thinking"
        self._ahead += 1
        return ""

    def _look_at_delta(self, event: UsableEvent) -> FrameVerdict:
        delta = event.delta
        if delta is None or event.index != self._count - 1 or not self._is_open:
            return FrameVerdict(problem="expected a delta of the open block")
        content = DELTA_FIELDS.get(delta.type or "", "")
        if content in _CONTENTS and getattr(delta, content) is None:
            return FrameVerdict(problem=f"expected {content} in a {delta.type}, got none")
        if delta.type == "signature_delta" and delta.signature:
            self._awaits_end = True
        return FrameVerdict(input_size=len(delta.partial_json or "") if self._is_client_call else 0)

    def _look_at_end(self, event: UsableEvent) -> str:
        reason = None if event.delta is None else event.delta.stop_reason
        if reason not in STOP_REASONS or event.usage is None:
            return "expected a known stop_reason and usage at the end"
        self._ahead += 1
        return ""


def is_usable_body(data: bytes, _context: EncodeContext, _is_typed: bool) -> bool:  # noqa: FBT001 -- see `Codec`
    """Whether every client can use a whole body unchanged, provided that its reader reported no problem."""
    try:
        body = decode_usable_body(data)
    except FAST_FAILURES:
        return False
    return (
        bool(body.id)
        and body.stop_reason in STOP_REASONS
        and all(
            _is_usable_call(block) and block.input is not None
            for block in body.content
            if block.type in _CALL_BLOCKS
        )
    )


def _is_usable_call(block: UsableBlock) -> bool:
    return _ID.fullmatch(block.id) is not None and bool(block.name)


def _look_at_start(event: UsableEvent) -> FrameVerdict:
    message = event.message
    if message is None or not message.id or message.content:
        return FrameVerdict(problem="expected a message with an id and no content yet")
    return FrameVerdict(model=message.model)
