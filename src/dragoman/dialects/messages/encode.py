"""Events to a Messages stream.

    message_start, (content_block_start, content_block_delta*, content_block_stop)*, message_delta, message_stop

Blocks are numbered densely from 0 in the order they are opened and never overlap; a Serializer in front sees to the
latter. Some things wait:

- message_start for the first usage report, which most often comes with it;
- a text or thinking block for its first text, so that there are no empty blocks, and thinking that says nothing can
  still become redacted_thinking when its seal is known;
- message_delta for Completed, because usage may follow the finish;
- everything after a call that ended incomplete. If the answer ends by a limit, the cut block is stopped, as the vendor
  does it. If it ends in any other way, or the cut call would look whole among others, the stream fails instead and the
  cut call is never stopped: clients run what is.
"""

import re
from collections.abc import Sequence
from typing import assert_never

from dragoman._json import dumps
from dragoman.core.fold import merge_usage
from dragoman.core.ids import Minter
from dragoman.core.losses import answer_book
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.messages.ending import Content, note_refusal, settle_reason, stop_fields
from dragoman.dialects.messages.errors import encode_error
from dragoman.dialects.messages.fields import object_of
from dragoman.dialects.messages.losses import LOSSES, note_foreign, note_usage
from dragoman.dialects.messages.render import Block, own_extra
from dragoman.dialects.messages.usage import usage_in_full, usage_to_wire
from dragoman.dialects.messages.wire import CUT_REASONS
from dragoman.dialects.messages.writing import BlockWriter, write_event
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
from dragoman.model.outcome import ErrorInfo, Loss, Usage

__all__ = ("MessagesEncoder", "message_fields")

_NO_CONTEXT = EncodeContext()
_EVENT_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def message_fields(started: Started, context: EncodeContext) -> Block:
    """What a message says of itself before its content."""
    return {
        "id": context.response_id or started.response_id or Minter(context.seed)("msg_"),
        "type": "message",
        "role": "assistant",
        "model": context.model or started.model,
    }


class MessagesEncoder:
    """Writes one stream. See `base.StreamEncoder`."""

    def __init__(self, context: EncodeContext = _NO_CONTEXT) -> None:
        self._context = context
        self._book = answer_book(LOSSES, context.losses)
        self._blocks = BlockWriter(self._book)
        self._is_hot = False  # message_start is out, nothing is held, nothing has ended
        self._is_over = False
        self._is_mute = (
            False  # failed on our own account: what the upstream still says is not written
        )
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
        """The bytes of one event.

        Raises:
            LocalProtocolError: the event may not stand here, or parts overlap.
        """
        if self._is_hot:
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
        out = self._encode(event)
        if self._held is None or _is_keepalive(event):
            return out
        self._held.append(out)
        return b""

    def deltas(
        self, kind: type[TextDelta | InputDelta], part: int, texts: Sequence[str]
    ) -> bytes | None:
        """See `base.StreamEncoder`."""
        return self._blocks.write_many(kind, part, texts) if self._is_hot else None

    def open_block(self) -> bytes:
        """The start of the open text or thinking block, if that still waits for its first words."""
        return self._begun() + self._blocks.open() if self._is_hot else b""

    def close(self) -> bytes:
        """Fail the stream if nothing has ended it."""
        if self._is_over:
            return b""
        message = "the upstream ended before its answer did"
        return self._fail(ErrorInfo(kind="truncated", message=message))

    def _encode(self, event: Event) -> bytes:
        match event:
            case Started():
                return self._on_started(event)
            case UsageReported():
                return self._on_usage(event.usage)
            case Noticed():
                return self._on_noticed(event)
            case Finished():
                return self._on_finished(event)
            case Failed():
                return self._fail(event.error)
            case Completed():
                return self._on_completed(event)
            case LimitsReported():
                self._book.note("limits")
                return b""
            case Progress():
                # That the answer as a whole is on its way is no news to anybody.
                if event.part is not None:
                    self._book.note("progress", f"parts.{event.part}", event.stage)
                return b""
            case _:
                return self._begun() + self._on_part(event)

    def _on_part(
        self,
        event: PartStarted
        | TextDelta
        | ReasoningDelta
        | InputDelta
        | OutputDelta
        | MediaDelta
        | AnnotationAdded
        | SealAdded
        | PartEnded,
    ) -> bytes:
        match event:
            case PartStarted():
                return self._on_part_started(event)
            case PartEnded():
                return self._on_part_ended(event)
            case TextDelta():
                return self._blocks.text(event)
            case ReasoningDelta():
                return self._blocks.thought(event)
            case InputDelta():
                return self._blocks.input(event)
            case AnnotationAdded():
                return self._blocks.annotate(event)
            case OutputDelta():
                self._blocks.output(event)
                return b""
            case MediaDelta() | SealAdded():
                # Media has been declared lost with its part; seals are written when the part is whole.
                return b""
            case _:
                assert_never(event)

    def _on_started(self, event: Started) -> bytes:
        if self._started is not None:
            raise LocalProtocolError("expected Started once")
        note_foreign(self._book, event.extra, "message")
        self._started = event
        return b""

    def _on_usage(self, usage: Usage) -> bytes:
        note_usage(usage, self._book)
        if not self._is_begun:
            self._first_usage = usage
            return self._begun()
        self._usage = usage if self._usage is None else merge_usage(self._usage, usage)
        return b""

    def _on_part_started(self, event: PartStarted) -> bytes:
        if event.choice != 0:
            self._book.note("choices")
            self._blocks.drop(event.part)
            return b""
        return self._blocks.start(event)

    def _on_part_ended(self, event: PartEnded) -> bytes:
        if event.amended and not self._blocks.is_dropped(event.part):
            message = f"the upstream changed part {event.part} after it had been streamed"
            out = self._fail(ErrorInfo(kind="protocol", message=message))
            self._is_mute = True
            return out
        out = self._blocks.end(event)
        if self._blocks.is_cut and self._held is None:
            self._held = []
            self._is_hot = False
        return out

    def _on_noticed(self, event: Noticed) -> bytes:
        if _is_keepalive(event):
            fields = (
                object_of(event.raw)
                if event.dialect == "messages" and event.kind == "ping"
                else None
            )
            return self._begun(is_needed=False) + write_event("ping", {**(fields or {})})
        if event.dialect != "messages" or event.raw is None:
            return b""
        if event.part is not None:
            return self._begun() + self._blocks.notice(event)
        if event.kind == "unknown" and _EVENT_NAME.fullmatch(event.name):
            frame = b"event: " + event.name.encode() + b"\ndata: " + dumps(event.raw) + b"\n\n"
            return self._begun(is_needed=False) + frame
        if event.kind == "fields" and event.name == "message_stop":
            self._stop_extra.update(object_of(event.raw) or {})
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
        content = Content(blocks.complete_calls > 0, blocks.has_refusal)
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
        usage = usage_to_wire(self._usage or Usage(), self._first_usage)
        out = [
            self._begun(),
            *(self._held or ()),
            write_event(
                "message_delta", {"delta": delta, "usage": usage, **own_extra(event.extra)}
            ),
            write_event("message_stop", self._stop_extra),
        ]
        self._end()
        return b"".join(out)

    def _fail(self, error: ErrorInfo) -> bytes:
        out = [self._begun(is_needed=False)]
        if self._held is None:
            out.append(self._blocks.interrupt())
        out.append(b"event: error\ndata: " + encode_error(error) + b"\n\n")
        self._end()
        return b"".join(out)

    def _end(self) -> None:
        self._is_over = True
        self._is_hot = False
        self._held = None

    def _begun(self, *, is_needed: bool = True) -> bytes:
        """message_start, if it has not been written."""
        if self._is_begun:
            return b""
        if self._started is None:
            if is_needed:
                raise LocalProtocolError("expected Started first")
            return b""
        self._is_begun = self._is_hot = True
        message: Block = {
            **message_fields(self._started, self._context),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_in_full(self._first_usage),
            **own_extra(self._started.extra),
        }
        return write_event("message_start", {"message": message})


def _is_keepalive(event: Event) -> bool:
    return isinstance(event, Noticed) and event.kind in ("ping", "comment")
