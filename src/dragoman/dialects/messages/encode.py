"""Encodes events as a Messages stream.

    message_start, (content_block_start, content_block_delta*, content_block_stop)*, message_delta, message_stop

Blocks are numbered densely from 0 in the order in which they open. They never overlap: a Serializer before this encoder
orders the parts. Some events wait:

- message_start waits for the first usage report, which most often comes with it;
- a text or thinking block waits for its first text, so that there are no empty blocks, and thinking without text can
  still become redacted_thinking when its seal is known;
- message_delta waits for Completed, because usage may follow the finish;
- everything after a call that ended incomplete waits for the end of the answer. If a limit ends the answer, the cut block
  is stopped, as the vendor does. If the answer ends in any other way, or the cut call would look whole among others, the
  stream fails instead and the cut call is never stopped: clients run every call whose block was stopped.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw, dumps, dumps_text, dumps_texts, is_strict
from dragoman.core.fields import own_fields, read_object
from dragoman.core.fold import settle_finish
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook, answer_book
from dragoman.core.seals import seal_to_signature
from dragoman.core.store_notes import AnswerEnd, TerminalStatus
from dragoman.core.usage import merge_usage
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.messages.errors import encode_error
from dragoman.dialects.messages.losses import LOSSES, note_foreign, note_usage
from dragoman.dialects.messages.render import (
    REASONING_JOIN,
    Block,
    block_from_part,
    call_header,
    citation_from_annotation,
    is_object_text,
    note_status,
    reasoning_block,
    wrapper_key,
)
from dragoman.dialects.messages.usage import usage_at_end, usage_in_full
from dragoman.dialects.messages.wire import CUT_REASONS, STOP_REASONS
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    MediaDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason, Loss, Usage
from dragoman.model.parts import Call, Extra, Media, Opaque, Part, Reasoning, Refusal, Result, Text

_SUFFIX = b"}}\n\n"
_BLOCK_START = (
    b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":'
)
_BLOCK_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_TEXT: Block = {"type": "text", "text": "", "citations": []}
_TEXT_JSON = dumps(_TEXT)
_THINKING: Block = {"type": "thinking", "thinking": "", "signature": ""}
_THINKING_JSON = dumps(_THINKING)
_NO_PART = -1
_NO_THOUGHT = (_NO_PART, "", 0)
# Deltas that may be written with empty content, to carry other fields; and the field of their content.
_EMPTY = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
_WRAPPER_CLOSING = '"}'
# Calls whose first characters of input decide how it is written, see `wrapper_key`.
_WRAPPED_KINDS = frozenset({"custom", "code_interpreter"})


def write_event(name: str, fields: Block) -> bytes:
    """Write one frame. Clients need the event's name twice."""
    data = dumps({"type": name, **fields})
    return b"event: " + name.encode("ascii") + b"\ndata: " + data + b"\n\n"


class BlockWriter:
    """Writes the parts of one answer as blocks.

    `is_cut`: a call for the client ended incomplete. `complete_calls` and `has_refusal` decide the stop reason.
    `is_misleading`: another block follows a cut call that looks whole, so no stop reason could show that it was cut.
    """

    def __init__(self, book: LossBook) -> None:
        self.complete_calls = 0
        self.has_refusal = False
        self.is_cut = False
        self.is_misleading = False
        self._last_cut: Call | None = None
        self._book = book
        self._index = 0
        self._part = _NO_PART
        self._header: Part = Text()
        self._is_open = False  # content_block_start has been written for the part
        self._has_input = False  # some input of the call has been written
        self._dropped: set[int] = set()
        self._text = _NO_PART
        self._input = _NO_PART
        self._thought: tuple[int, str, int] = _NO_THOUGHT
        self._prefix = b""
        self._key: str | None = None  # the key for input that is no JSON, see `wrapper_key`

    def start(self, event: PartStarted) -> bytes:
        if self._part != _NO_PART:
            raise LocalProtocolError(
                f"expected the end of part {self._part} before part {event.part} starts"
            )
        self._part = event.part
        self._header = header = event.header
        self._is_open = self._has_input = False
        match header:
            case Call():
                block = call_header(header, self._book, self._where)
                return self._drop() if block is None else self._open_call(block, header)
            case Opaque():
                block = block_from_part(header, self._book, self._where)
                return self._drop() if block is None else self._open(dumps(block))
            case Media():
                self._book.note("media_output", self._where, header.kind)
                return self._drop()
            case Text() | Refusal() | Reasoning() | Result():
                return b""
            case _:
                assert_never(header)

    def open(self) -> bytes:
        """Write the start of the open part's block, if it waits for its first text."""
        is_waiting = self._part != _NO_PART and not self._is_open
        return self._opened() if is_waiting else b""

    def drop(self, part: int) -> None:
        """Ignore all events of a part that is not written."""
        self._dropped.add(part)

    def is_dropped(self, part: int) -> bool:
        return part in self._dropped

    def text(self, event: TextDelta) -> bytes:
        if event.part == self._text and event.logprobs is None:
            return self._prefix + dumps_text(event.text) + _SUFFIX
        if not self._is_mine(event.part):
            return b""
        if event.logprobs is not None:
            self._book.note("logprobs", self._where)
        if not event.text:
            return b""
        return self._opened() + self._prefix + dumps_text(event.text) + _SUFFIX

    def thought(self, event: ReasoningDelta) -> bytes:
        key = (event.part, event.channel, event.index)
        if key == self._thought:
            return self._prefix + dumps_text(event.text) + _SUFFIX
        if not self._is_mine(event.part):
            return b""
        text = event.text
        if not text:
            return b""  # the beginning of an entry: its first text follows the separator
        if self._thought != _NO_THOUGHT:
            self._book.note("reasoning_entries", self._where)
            text = REASONING_JOIN + text
        self._thought = key
        return self._opened() + self._prefix + dumps_text(text) + _SUFFIX

    def input(self, event: InputDelta) -> bytes:
        if event.part == self._input:
            self._has_input = True
            return self._prefix + dumps_text(event.text) + _SUFFIX
        if not self._is_mine(event.part):
            return b""
        if not self._has_input and isinstance(self._header, Call):
            self._key = wrapper_key(self._header, event.text)
        if self._key is None:
            self._input = self._part
            return self.input(event)
        return self._wrapped(_escape(event.text))

    def write_many(
        self, kind: type[TextDelta | InputDelta], part: int, texts: Sequence[str]
    ) -> bytes | None:
        """Write several deltas of the open block at once; None if they must be written one by one."""
        if part != (self._input if kind is InputDelta else self._text):
            return None
        prefix = self._prefix
        return prefix + dumps_texts(texts, _SUFFIX + prefix) + _SUFFIX

    def output(self, event: OutputDelta) -> bytes:
        """Note output inside a provider's call as a loss. Output inside a result is written at the end of the result."""
        if self._is_mine(event.part) and isinstance(self._header, Call):
            self._book.note("provider_output", self._where)
        return b""

    def skip(self, _event: MediaDelta | SealAdded) -> bytes:
        """Write nothing: media was noted as a loss with its part, and seals are written at the end of the part."""
        return b""

    def annotate(self, event: AnnotationAdded) -> bytes:
        if not self._is_mine(event.part):
            return b""
        citation = citation_from_annotation(event.annotation, self._book, self._where)
        if citation is None:
            return b""
        return self._opened() + self._delta({"type": "citations_delta", "citation": citation})

    def notice(self, event: Noticed) -> bytes:
        """Write unknown fields of a delta, or a delta of an unknown type, of the open part."""
        if event.part != self._part or event.raw is None:
            return b""
        if event.kind == "unknown":
            return self._opened() + self._delta(event.raw)
        field = _EMPTY.get(event.name)
        if field is None:
            return b""
        fields = read_object(event.raw)
        return self._opened() + self._delta({"type": event.name, field: "", **fields})

    def end(self, event: PartEnded) -> bytes:
        if not self._is_mine(event.part):
            self._dropped.discard(event.part)
            return b""
        try:
            return self._end(event.value)
        finally:
            self._part = self._text = self._input = _NO_PART
            self._thought = _NO_THOUGHT

    def interrupt(self) -> bytes:
        """Stop the open block because the answer fails. A call is not stopped: it must not look complete."""
        is_call = isinstance(self._header, Call)
        out = self._stop() if self._part != _NO_PART and self._is_open and not is_call else b""
        self._part = _NO_PART
        return out

    @property
    def _where(self) -> str:
        return f"parts.{self._part}"

    def _is_mine(self, part: int) -> bool:
        """Whether the events of a part are written."""
        if part == self._part:
            return True
        if part in self._dropped:
            return False
        raise LocalProtocolError(f"expected an event of part {self._part}, got one of part {part}")

    def _drop(self) -> bytes:
        self._dropped.add(self._part)
        self._part = _NO_PART
        return b""

    def _end(self, value: Part) -> bytes:
        match value:
            case Text() | Refusal():
                if isinstance(value, Refusal):
                    self.has_refusal = True
                else:
                    note_foreign(self._book, value.item_extra, self._where)
                note_foreign(self._book, value.extra, self._where)
                return self._stop() if self._is_open else b""
            case Reasoning():
                return self._end_reasoning(value)
            case Call():
                return self._end_call(value)
            case Opaque():
                return self._stop()
            case Result() | Media():
                block = block_from_part(value, self._book, self._where)
                return b"" if block is None else self._open(dumps(block)) + self._stop()
            case _:
                assert_never(value)

    def _end_reasoning(self, value: Reasoning) -> bytes:
        note_foreign(self._book, value.extra, self._where)
        if not self._is_open:
            block = reasoning_block(value, self._book, self._where)
            if block is None:
                return b""
            if block["type"] == "redacted_thinking":
                return self._open(dumps(block)) + self._stop()
        signature = seal_to_signature(value.seals, value.item_id)
        opened = self._opened()
        if signature is not None:
            opened += self._delta({"type": "signature_delta", "signature": signature})
        return opened + self._stop()

    def _end_call(self, value: Call) -> bytes:
        if value.seals:
            self._book.note("call_seal", self._where)
        is_client = value.executor == "client"
        if is_client and self._is_cut_short(value):
            self.is_cut = True
            self._last_cut = value
            return self._stop()
        if value.status == "incomplete":
            return self._stop()
        note_status(value, self._book, self._where)
        self.complete_calls += is_client
        if not self._has_input:
            self._key = wrapper_key(value, value.input)
        if self._key is not None:
            rest = "" if self._has_input else _escape(value.input)
            return self._wrapped(rest) + self._input_delta(_WRAPPER_CLOSING) + self._stop()
        if not self._has_input:
            return self._input_delta(value.input.strip() or "{}") + self._stop()
        if not is_object_text(value.input):
            self._book.note("invalid_input", self._where, f"call {value.call_id}")
        return self._stop()

    def _is_cut_short(self, value: Call) -> bool:
        """Whether the call must not be run. SDKs parse incomplete JSON leniently, and would run half a call."""
        if value.status != "completed":
            return True
        if value.kind == "custom" or not value.input.strip() or is_strict(value.input):
            return False
        self._book.note("invalid_input", self._where, f"call {value.call_id}")
        return True

    def _open(self, block: bytes) -> bytes:
        """Write the start of a block, which is given as JSON."""
        self._is_open = True
        cut, self._last_cut = self._last_cut, None
        if cut is not None and _looks_whole(cut):
            self.is_misleading = True
        index = self._index
        self._index += 1
        return _BLOCK_START % index + block + b"}\n\n"

    def _open_call(self, block: Block, call: Call) -> bytes:
        out = self._open(dumps(block))
        self._prefix = self._head("input_json_delta", "partial_json")
        self._key = None
        if call.kind not in _WRAPPED_KINDS:
            self._input = self._part
        return out

    def _opened(self) -> bytes:
        """Write the start of a text or thinking block, if it was not written."""
        if self._is_open:
            return b""
        if isinstance(self._header, Reasoning):
            own = own_fields("messages", self._header.extra)
            out = self._open(dumps({**_THINKING, **own}) if own else _THINKING_JSON)
            self._prefix = self._head("thinking_delta", "thinking")
            return out
        own = own_fields(
            "messages", self._header.extra if isinstance(self._header, (Text, Refusal)) else None
        )
        out = self._open(dumps({**_TEXT, **own}) if own else _TEXT_JSON)
        self._prefix = self._head("text_delta", "text")
        self._text = self._part
        return out

    def _head(self, delta: str, field: str) -> bytes:
        return (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":"%s","%s":' % (self._index - 1, delta.encode(), field.encode())
        )

    def _wrapped(self, escaped: str) -> bytes:
        """Write a piece of input that is no JSON, as the inside of a JSON string."""
        opening = "" if self._has_input else f'{{"{self._key}":"'
        self._has_input = True
        return self._input_delta(opening + escaped)

    def _input_delta(self, text: str) -> bytes:
        return self._prefix + dumps_text(text) + _SUFFIX if text else b""

    def _delta(self, delta: Block | Raw) -> bytes:
        return write_event("content_block_delta", {"index": self._index - 1, "delta": delta})

    def _stop(self) -> bytes:
        return _BLOCK_STOP % (self._index - 1)


def _looks_whole(cut: Call) -> bool:
    """Whether a client would take a cut call for a complete one: clients read an empty input as `{}`."""
    if not cut.input:
        return True
    # The object around a custom tool's text stays open until the text is complete.
    return cut.kind != "custom" and (not cut.input.strip() or is_strict(cut.input))


def _escape(text: str) -> str:
    return dumps_text(text)[1:-1].decode("utf-8")


# `pause` has two words; a pause that is a compaction has its own in the `extra` of its Finished.
_STOP_REASONS: Mapping[FinishReason, str] = {
    **{reason: word for word, reason in STOP_REASONS.items() if word != "compaction"},
    "content_filter": "refusal",
    "cancelled": "end_turn",
    "error": "end_turn",
}
_NEAREST: frozenset[FinishReason] = frozenset({"content_filter", "cancelled", "error"})


class StopReasonInputs(Struct, frozen=True):
    """The facts about an answer that decide its stop reason."""

    has_complete_calls: bool
    has_refusal: bool


def settle_reason(reason: FinishReason, content: StopReasonInputs) -> FinishReason:
    """Return `tool_calls` exactly if there are complete calls for the client, `refusal` if the text is a refusal."""
    settled = settle_finish(reason, has_complete_client_calls=content.has_complete_calls)
    return "refusal" if settled == "stop" and content.has_refusal else settled


def note_refusal(reason: FinishReason, content: StopReasonInputs, book: LossBook) -> None:
    """Note as a loss a refusal that the stop reason does not show."""
    if content.has_refusal and _STOP_REASONS[reason] != "refusal":
        book.note("refusal", "stop_reason", reason)


def stop_fields(
    reason: FinishReason, stop_sequence: str | None, extra: Extra | None, book: LossBook
) -> Block:
    """Return the fields that say how a message ended, for a settled reason."""
    if reason in _NEAREST:
        book.note("finish_reason", "stop_reason", reason)
    note_foreign(book, extra, "stop_reason")
    # Where `FinishReason` has no value for the vendor's stop reason, `extra` has it and overrides.
    return {
        "stop_reason": _STOP_REASONS[reason],
        "stop_sequence": stop_sequence if reason == "stop_sequence" else None,
        "stop_details": None,
        "container": None,
        **own_fields("messages", extra),
    }


_NO_CONTEXT = EncodeContext()
_EVENT_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def message_fields(started: Started, context: EncodeContext) -> Block:
    """Return the fields of a message that stand before its content."""
    return {
        "id": context.response_id or started.response_id or Minter(context.seed)("msg_"),
        "type": "message",
        "role": "assistant",
        "model": context.model or started.model or context.asked_model,
    }


class MessagesEncoder:
    """Writes one stream. See `codec.StreamEncoder`."""

    def __init__(self, context: EncodeContext = _NO_CONTEXT) -> None:
        self._context = context
        self._book = answer_book(LOSSES, context.losses)
        self._blocks = BlockWriter(self._book)
        # `message_start` was written, no bytes are held, the stream is not over.
        self._is_writing = False
        self._is_over = False
        self._is_mute = False  # the encoder failed the stream itself: later events are not written
        self._started: Started | None = None
        self._is_begun = False
        self._held: list[bytes] | None = None
        self._finished: Finished | None = None
        self._first_usage: Usage | None = None
        self._usage: Usage | None = None
        self._stop_extra: Block = {}

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self._book.losses

    def encode(self, event: Event) -> bytes:
        """Encode one event.

        Raises:
            LocalProtocolError: the event is not allowed at this point, or parts overlap.
        """
        if self._is_writing:
            match event:
                case TextDelta():
                    return self._blocks.text(event)
                case InputDelta():
                    return self._blocks.input(event)
                case ReasoningDelta():
                    return self._blocks.thought(event)
                case _:
                    pass
        if self._is_mute:
            return b""
        if self._is_over:
            raise LocalProtocolError(f"expected nothing after the end, got {type(event).__name__}")
        if self._context.notes is not None:
            self._context.notes.take((event,))
        write = _PART_WRITERS.get(type(event))
        if write is None:
            out = _WRITERS[type(event)](self, event)
        else:
            out = self._begun() + write(self._blocks, event)
        if self._held is None or _is_keepalive(event):
            return out
        self._held.append(out)
        return b""

    def deltas(
        self, kind: type[TextDelta | InputDelta], part: int, texts: Sequence[str]
    ) -> bytes | None:
        """See `codec.StreamEncoder`."""
        return self._blocks.write_many(kind, part, texts) if self._is_writing else None

    def resume(self, seen: Sequence[Event], last: bytes, choices: int) -> None:  # noqa: ARG002 -- neither is needed here
        """See `codec.StreamEncoder`. The client has seen blocks open that the encoder would open with their first text."""
        for event in seen:
            self.encode(event)
            if isinstance(event, PartStarted) and isinstance(event.header, (Text, Reasoning)):
                self._blocks.open()
        self._begun(is_needed=False)

    def close(self) -> bytes:
        """Fail a stream that has not ended; return nothing for a stream that has."""
        if self._is_over:
            return b""
        message = "the upstream ended before its answer did"
        return self._fail(ErrorInfo(kind="truncated", message=message))

    def _on_progress(self, event: Progress) -> bytes:
        # Progress of the whole answer is not a loss: clients do not need it.
        if event.part is not None:
            self._book.note("progress", f"parts.{event.part}", event.stage)
        return b""

    def _on_limits(self, _event: LimitsReported) -> bytes:
        self._book.note("limits")
        return b""

    def _on_failed(self, event: Failed) -> bytes:
        return self._fail(event.error)

    def _on_started(self, event: Started) -> bytes:
        if self._started is not None:
            raise LocalProtocolError("expected Started once")
        note_foreign(self._book, event.extra, "message")
        self._started = event
        return b""

    def _on_usage(self, event: UsageReported) -> bytes:
        usage = event.usage
        note_usage(usage, self._book)
        if not self._is_begun:
            self._first_usage = usage
            return self._begun()
        self._usage = usage if self._usage is None else merge_usage(self._usage, usage)
        return b""

    def _on_part_started(self, event: PartStarted) -> bytes:
        begun = self._begun()
        if event.choice != 0:
            self._book.note("choices")
            self._blocks.drop(event.part)
            return begun
        return begun + self._blocks.start(event)

    def _on_part_ended(self, event: PartEnded) -> bytes:
        if event.amended and not self._blocks.is_dropped(event.part):
            message = f"the upstream changed part {event.part} after it had been streamed"
            out = self._fail(ErrorInfo(kind="protocol", message=message))
            self._is_mute = True
            return out
        out = self._blocks.end(event)
        if self._blocks.is_cut and self._held is None:
            self._held = []
            self._is_writing = False
        return out

    def _on_noticed(self, event: Noticed) -> bytes:
        if _is_keepalive(event):
            is_own = event.dialect == "messages" and event.kind == "ping"
            fields: Block = {**read_object(event.raw)} if is_own else {}
            return self._begun(is_needed=False) + write_event("ping", fields)
        if event.dialect != "messages" or event.raw is None:
            return b""
        if event.part is not None:
            return self._begun() + self._blocks.notice(event)
        if event.kind == "unknown" and _EVENT_NAME.fullmatch(event.name):
            frame = b"event: " + event.name.encode() + b"\ndata: " + dumps(event.raw) + b"\n\n"
            return self._begun(is_needed=False) + frame
        if event.kind == "fields" and event.name == "message_stop":
            self._stop_extra.update(read_object(event.raw))
        return b""

    def _on_finished(self, event: Finished) -> bytes:
        if event.choice == 0:
            self._finished = event
        else:
            self._book.note("choices")
        return b""

    def _on_completed(self, event: Completed) -> bytes:
        finished = self._finished
        if finished is None:
            raise LocalProtocolError("expected Finished before Completed")
        blocks = self._blocks
        content = StopReasonInputs(blocks.complete_calls > 0, blocks.has_refusal)
        reason = settle_reason(finished.reason, content)
        if reason == "error":
            return self._fail(
                ErrorInfo(kind="upstream", message="the upstream ended with an error")
            )
        if blocks.is_cut and (blocks.is_misleading or reason not in CUT_REASONS):
            message = "the upstream ended its answer with a tool call that is not complete"
            return self._fail(ErrorInfo(kind="protocol", message=message))
        note_foreign(self._book, event.extra, "message")
        note_refusal(reason, content, self._book)
        delta = stop_fields(reason, finished.stop_sequence, finished.extra, self._book)
        usage = usage_at_end(self._usage, self._first_usage)
        before = [self._begun(), *(self._held or ())]
        edits = {} if self._context.edits is None else {"context_management": self._context.edits}
        ending = write_event(
            "message_delta",
            {"delta": delta, "usage": usage, **own_fields("messages", event.extra), **edits},
        ) + write_event("message_stop", self._stop_extra)
        self._end("completed", ending, partial(_error_event, self._context.request_id))
        return b"".join([*before, ending])

    def _fail(self, error: ErrorInfo) -> bytes:
        out = [self._begun(is_needed=False)]
        if self._held is None:
            out.append(self._blocks.interrupt())
        failure = _error_event(self._context.request_id, error)
        out.append(failure)
        self._end("failed", failure)
        return b"".join(out)

    def _end(
        self,
        status: TerminalStatus,
        frames: bytes,
        fail: Callable[[ErrorInfo], bytes] | None = None,
    ) -> None:
        context = self._context
        if context.notes is not None and self._is_begun:
            context.notes.end = AnswerEnd(
                id=context.response_id, status=status, frames=frames, fail=fail
            )
        self._is_over = True
        self._is_writing = False
        self._held = None

    def _begun(self, *, is_needed: bool = True) -> bytes:
        """Write message_start, if it was not written."""
        if self._is_begun:
            return b""
        if self._started is None:
            if is_needed:
                raise LocalProtocolError("expected Started first")
            return b""
        self._is_begun = self._is_writing = True
        message: Block = {
            **message_fields(self._started, self._context),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "container": None,
            "usage": usage_in_full(self._first_usage),
            **own_fields("messages", self._started.extra),
        }
        return write_event("message_start", {"message": message})

    writers: ClassVar[Mapping[type[Event], Callable[..., bytes]]] = {
        Started: _on_started,
        PartStarted: _on_part_started,
        PartEnded: _on_part_ended,
        UsageReported: _on_usage,
        LimitsReported: _on_limits,
        Progress: _on_progress,
        Noticed: _on_noticed,
        Finished: _on_finished,
        Failed: _on_failed,
        Completed: _on_completed,
    }


_WRITERS = MessagesEncoder.writers
_PART_WRITERS: Mapping[type[Event], Callable[..., bytes]] = {
    TextDelta: BlockWriter.text,
    ReasoningDelta: BlockWriter.thought,
    InputDelta: BlockWriter.input,
    OutputDelta: BlockWriter.output,
    MediaDelta: BlockWriter.skip,
    SealAdded: BlockWriter.skip,
    AnnotationAdded: BlockWriter.annotate,
}


def _is_keepalive(event: Event) -> bool:
    return isinstance(event, Noticed) and event.kind in ("ping", "comment")


def _error_event(request_id: str | None, error: ErrorInfo) -> bytes:
    data = encode_error(replace(error, request_id=request_id))
    return b"event: error\ndata: " + data + b"\n\n"
