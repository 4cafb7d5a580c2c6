"""Encodes events as a Responses stream, in OpenAI's order.

    response.created, (response.queued,) response.in_progress,
    per item: output_item.added, (content_part.added,) deltas, .done, (content_part.done,) output_item.done
    response.completed | response.incomplete | response.failed

`sequence_number` rises by one with every event, `output_index` with every item; an id never changes. Codex runs a call
at its `output_item.done`, whatever follows, so an incomplete call never gets that event. An incomplete text is closed only
if the answer continues to its end; before a failure its end is not written.

    NEW --Started--> OPEN --Finished--> ENDING --Completed--> OVER
     '----------------'----------------'--------Failed-----> OVER
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import ClassVar

from dragoman._json import FAST_FAILURES, Raw
from dragoman.core.fields import read_object, without
from dragoman.core.ids import Minter
from dragoman.core.losses import answer_book
from dragoman.core.store_notes import AnswerEnd
from dragoman.core.usage import merge_usage
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses.encode_items import ItemStream, NumberedEventWriter, StreamState
from dragoman.dialects.responses.envelope import (
    Envelope,
    bare_response,
    ending_of,
    required_action,
)
from dragoman.dialects.responses.errors import failed_fields
from dragoman.dialects.responses.item_writer import ItemWriter, JsonObject
from dragoman.dialects.responses.losses import LOSSES, note_foreign
from dragoman.dialects.responses.terminal import (
    item_ids,
    status_of,
    terminal_event,
    terminal_status,
)
from dragoman.dialects.responses.wire import decode_numbered_event
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
from dragoman.sse import encode_comment, parse_lines

_NO_CONTEXT = EncodeContext()
_BEFORE: frozenset[type[Event]] = frozenset({Started, Failed, Noticed})
_OURS = frozenset({"response.required_action"})  # only the `required_action` profile writes it


_QUEUED = ("response.created", "response.queued")  # the events of an answer that is queued


class _State(Enum):
    NEW = auto()
    OPEN = auto()
    ENDING = auto()
    OVER = auto()


def queue_response(context: EncodeContext) -> tuple[bytes, bytes]:
    """Return the response object of an answer that is queued, and the events that begin its stream.

    The encoder of the answer goes on from there (`EncodeContext.is_queued`).
    """
    response = bare_response("queued", context)
    events = NumberedEventWriter()
    return response, b"".join([events.snapshot(name, response) for name in _QUEUED])


class ResponsesEncoder:
    """Writes one answer."""

    def __init__(self, context: EncodeContext = _NO_CONTEXT) -> None:
        self._context = context
        self._state = _State.NEW
        self._book = answer_book(LOSSES, context.losses)
        self._notes = context.notes
        self._events = NumberedEventWriter()
        if context.is_queued:
            self._events.sequence = len(_QUEUED)
        self._mint = Minter(context.seed)
        self._stream = StreamState(self._events, ItemWriter(self._mint, self._book), self._book)
        self._items = ItemStream(self._stream)
        self._envelope: Envelope | None = None
        self._usage: Usage | None = None
        self._finished: Finished | None = None
        self._late: list[Event] = []

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses so far."""
        return self._book.losses

    def encode(self, event: Event) -> bytes:
        """Return the bytes of one event.

        Raises:
            LocalProtocolError: the event is not allowed in this state, or parts overlap.
        """
        template = self._items.template
        if type(event) is InputDelta:
            if template.kind is InputDelta and template.part == event.part:
                return self._events.delta(template, event.text)
        elif (
            type(event) is TextDelta
            and template.kind is TextDelta
            and template.part == event.part
            and event.logprobs is None
        ):
            return self._events.delta(template, event.text)
        kind = type(event)
        if self._state is _State.OVER or (self._state is _State.NEW and kind not in _BEFORE):
            raise LocalProtocolError(
                f"{kind.__name__} is not allowed while the answer is {self._state.name}"
            )
        if self._items.has_cut_call and self._is_late(event):
            # After a cut call the answer may still fail: these events are written only if it ends.
            self._late.append(event)
            return b""
        return self._handle(event)

    def deltas(
        self, kind: type[TextDelta | InputDelta], part: int, texts: Sequence[str]
    ) -> bytes | None:
        """See `codec.StreamEncoder`."""
        template = self._items.template
        is_same = template.kind is kind and template.part == part
        return self._events.deltas(template, texts) if is_same else None

    def _handle(self, event: Event) -> bytes:
        handle = _ITEM_HANDLERS.get(type(event))
        return _HANDLERS[type(event)](self, event) if handle is None else handle(self._items, event)

    def _is_late(self, event: Event) -> bool:
        is_aside = isinstance(event, PartStarted) and event.choice != 0
        is_about_part = type(event) in _ITEM_HANDLERS or isinstance(event, Progress)
        return self._state is _State.OPEN and is_about_part and not is_aside

    def resume(self, seen: Sequence[Event], last: bytes, choices: int) -> None:  # noqa: ARG002 -- a response has one choice
        """See `codec.StreamEncoder`. Closes a message whose texts have ended, as the upstream has done."""
        for event in seen:
            self.encode(event)
        if self._state is _State.OPEN and not self._items.has_open_part:
            self._items.flush()
        try:
            number = decode_numbered_event(parse_lines(last).data or b"").sequence_number
        except FAST_FAILURES:
            return  # no client needs the numbers: without the upstream's, they count this encoder's events
        self._events.sequence = number + 1

    def close(self) -> bytes:
        """End the answer: fail if it has no terminal event yet."""
        if self._state is _State.OVER:
            return b""
        message = "the answer ended before it was complete"
        return self._fail(Failed(ErrorInfo(kind="truncated", message=message)))

    # --- the beginning -----------------------------------------------------------------------------------------------

    def _start(self, event: Started) -> bytes:
        if self._state is not _State.NEW:
            raise LocalProtocolError("expected one Started, got another")
        response = self._open(event)
        created = (
            b"" if self._context.is_queued else self._events.snapshot("response.created", response)
        )
        return created + self._events.snapshot("response.in_progress", response)

    def _open(self, event: Started) -> bytes:
        """Begin the answer. Returns the response object."""
        self._state = _State.OPEN
        if not self._context.seed:
            self._mint.seed(event.response_id)
        note_foreign(self._book, event.extra, "response")
        self._envelope = envelope = Envelope(event, self._context, self._mint, self._book)
        response = envelope.write("in_progress")
        if self._notes is not None:
            self._notes.begin(envelope.id, lambda: response)
        return response

    # --- in between --------------------------------------------------------------------------------------------------

    def _nothing(self, _event: SealAdded) -> bytes:
        return b""

    def _progress(self, event: Progress) -> bytes:
        if event.part is not None:
            return self._items.progress(event)
        # `response.in_progress` was written at the start.
        if event.stage != "queued":
            return b""
        return self._events.snapshot("response.queued", self._opened().write("queued"))

    def _report_usage(self, event: UsageReported) -> bytes:
        note_foreign(self._book, event.usage.extra, "usage")
        self._usage = merge_usage(self._usage, event.usage)
        return b""

    def _report_limits(self, _event: LimitsReported) -> bytes:
        self._book.note("rate_limits", "limits")
        return b""

    def _notice(self, event: Noticed) -> bytes:
        if event.kind in ("ping", "comment"):
            return self._keep_alive()
        is_own = event.kind == "unknown" and event.dialect == "responses"
        if not is_own or self._state is _State.NEW or event.name in _OURS:
            return b""
        fields = without(read_object(event.raw), ("type", "sequence_number"))
        # A type that is not printable ASCII cannot be written on an event line.
        if not event.name.isascii() or not event.name.isprintable() or not fields:
            return b""
        return self._events.event(event.name, dict(fields))

    def _keep_alive(self) -> bytes:
        if self._state is _State.NEW:
            # Before `response.created` only a comment may be sent.
            return encode_comment("keep-alive")
        is_ping = self._context.profile == "required_action"
        return self._events.event("ping" if is_ping else "keepalive", {})

    # --- the end -----------------------------------------------------------------------------------------------------

    def _finish(self, event: Finished) -> bytes:
        if event.choice != 0:
            self._book.note("extra_choices", f"choice {event.choice}")
            return b""
        if self._finished is not None:
            raise LocalProtocolError("expected one Finished, got another")
        self._finished = event
        self._state = _State.ENDING
        late, self._late = self._late, []
        written = [self._handle(each) for each in late]
        return b"".join(written) + self._items.flush()

    def _complete(self, event: Completed) -> bytes:
        if self._finished is None:
            raise LocalProtocolError("expected Finished before Completed")
        envelope = self._opened()
        note_foreign(self._book, event.extra, "response")
        envelope.add(event.extra)
        ending = ending_of(self._finished, self._book, has_refusal=self._items.has_refusal)
        self._state = _State.OVER
        if ending.event == "response.failed":
            info = ErrorInfo(kind="upstream", message="the upstream ended the answer with an error")
            return self._failure(info)
        action = self._required_action()
        if action is not None:
            return self._pause(envelope, action)
        response = envelope.write(
            ending.status, self._stream.output, self._usage, incomplete_details=ending.details
        )
        return self._end(ending.event, ending.status, response)

    def _opened(self) -> Envelope:
        if self._envelope is None:
            raise AssertionError("expected Started before the end")
        return self._envelope

    def _required_action(self) -> JsonObject | None:
        waits = self._finished is not None and self._finished.reason == "tool_calls"
        if self._context.profile != "required_action" or not waits:
            return None
        return required_action(tuple(self._items.waiting.values()))

    def _pause(self, envelope: Envelope, action: JsonObject) -> bytes:
        """End the answer in the `required_action` profile: repeat the calls, and wait for their results."""
        waiting = partial(envelope.write, "incomplete", self._stream.output, self._usage)
        event: JsonObject = {"response": Raw(waiting()), "required_action": action}
        first = self._events.event("response.required_action", event)
        response = waiting(required_action=action)
        return self._end("response.completed", "incomplete", response, first)

    def _fail(self, event: Failed) -> bytes:
        begin = b""
        if self._state is _State.NEW and self._context.is_queued:
            self._open(Started())  # an answer that fails in the queue was never in progress
        elif self._state is _State.NEW:
            begin = self._start(Started())
        closing = self._items.abandon()
        self._state = _State.OVER
        return begin + closing + self._failure(event.error)

    def _failure(self, info: ErrorInfo) -> bytes:
        return self._end("response.failed", "failed", self._failed(info))

    def _failed(self, info: ErrorInfo) -> bytes:
        return self._opened().write(
            "failed", self._stream.output, self._usage, error=failed_fields(info)
        )

    def _fail_instead(self, number: int, info: ErrorInfo) -> bytes:
        """Return the failure that replaces the terminal event, which has this number."""
        return terminal_event(self._failed(info), number)

    def _end(self, name: str, status: str, response: bytes, first: bytes = b"") -> bytes:
        """Return the terminal event. `first`: an event written just before it."""
        notes = self._notes
        if notes is None:
            return first + self._events.snapshot(name, response)
        number = self._events.sequence - bool(first)
        frames = first + self._events.snapshot(name, response)
        notes.end = AnswerEnd(
            id=self._opened().id,
            status=status_of(status, terminal_status(name)),
            body=response,
            open_calls=tuple(self._items.waiting),
            items=item_ids(self._stream.output),
            frames=frames,
            fail=partial(self._fail_instead, number),
        )
        return frames

    handlers: ClassVar[Mapping[type[Event], Callable[..., bytes]]] = {
        Started: _start,
        SealAdded: _nothing,  # the finished item carries the seals
        Progress: _progress,
        UsageReported: _report_usage,
        LimitsReported: _report_limits,
        Finished: _finish,
        Failed: _fail,
        Completed: _complete,
        Noticed: _notice,
    }


_HANDLERS = ResponsesEncoder.handlers
_ITEM_HANDLERS: Mapping[type[Event], Callable[..., bytes]] = {
    PartStarted: ItemStream.start,
    PartEnded: ItemStream.end,
    TextDelta: ItemStream.text,
    ReasoningDelta: ItemStream.reasoning,
    InputDelta: ItemStream.input,
    OutputDelta: ItemStream.output,
    MediaDelta: ItemStream.media,
    AnnotationAdded: ItemStream.annotation,
}
