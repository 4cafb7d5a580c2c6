"""Events to a Responses stream, in OpenAI's own sequence.

    response.created, response.in_progress,
    per item: output_item.added, (content_part.added,) deltas, .done, (content_part.done,) output_item.done
    response.completed | response.incomplete | response.failed

`sequence_number` rises by one with every event, `output_index` with every item; an id stays what it was first. Codex runs a
call at its `output_item.done`, whatever comes after, so a call that is not complete never gets one. A text that ended
incomplete is closed only when the answer goes on to its end; before a failure nothing more is said of it.

    NEW --Started--> OPEN --Finished--> ENDING --Completed--> OVER
     '----------------'----------------'--------Failed-----> OVER
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import ClassVar

from dragoman._json import FAST_FAILURES, Raw, dumps
from dragoman.core.fields import read_object, without
from dragoman.core.ids import Minter
from dragoman.core.losses import answer_book
from dragoman.core.store_notes import AnswerEnd
from dragoman.core.usage import merge_usage
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses.encode_items import ItemStream, NumberedEventWriter, StreamState
from dragoman.dialects.responses.envelope import Envelope, TerminalEvent, ending_of, required_action
from dragoman.dialects.responses.errors import failed_fields
from dragoman.dialects.responses.item_writer import ItemWriter, JsonObject
from dragoman.dialects.responses.losses import LOSSES, note_foreign
from dragoman.dialects.responses.terminal import (
    encode_failed,
    item_ids,
    status_of,
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
_ABOUT_PARTS: frozenset[type[Event]] = frozenset(
    {
        PartStarted,
        PartEnded,
        TextDelta,
        ReasoningDelta,
        InputDelta,
        OutputDelta,
        MediaDelta,
        AnnotationAdded,
        Progress,
    }
)
_OURS = frozenset({"response.required_action"})  # written by the profile that has it, or not at all


class _State(Enum):
    NEW = auto()
    OPEN = auto()
    ENDING = auto()
    OVER = auto()


class ResponsesEncoder:
    """Writes one answer."""

    def __init__(self, context: EncodeContext = _NO_CONTEXT) -> None:
        self._context = context
        self._state = _State.NEW
        self._book = answer_book(LOSSES, context.losses)
        self._notes = context.notes
        self._events = NumberedEventWriter()
        self._mint = Minter(context.seed)
        self._stream = StreamState(self._events, ItemWriter(self._mint, self._book), self._book)
        self._items = ItemStream(self._stream)
        self._envelope: Envelope | None = None
        self._usage: Usage | None = None
        self._finished: Finished | None = None
        self._late: list[Event] = []

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What could not be said, so far."""
        return self._book.losses

    def encode(self, event: Event) -> bytes:
        """The bytes of one event.

        Raises:
            LocalProtocolError: the event may not stand here, or parts overlap.
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
                f"{kind.__name__} may not stand where the answer is {self._state.name}"
            )
        if self._items.has_cut_call and self._is_late(event):
            # After a call that was cut nothing is certain: said if the answer ends, not if it fails.
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
        return self._state is _State.OPEN and type(event) in _ABOUT_PARTS and not is_aside

    def resume(self, seen: Sequence[Event], last: bytes, choices: int) -> None:  # noqa: ARG002 -- there is but one
        """See `codec.StreamEncoder`. A message whose texts have ended has ended on the wire."""
        for event in seen:
            self.encode(event)
        if self._state is _State.OPEN and not self._items.has_open_part:
            self._items.flush()
        try:
            number = decode_numbered_event(parse_lines(last).data or b"").sequence_number
        except FAST_FAILURES:
            return  # nobody needs the numbers; where the upstream has none, ours count our own events
        self._events.sequence = number + 1

    def close(self) -> bytes:
        """Guarantee a terminal: an answer that was not brought to its end has failed."""
        if self._state is _State.OVER:
            return b""
        message = "the answer ended before it was complete"
        return self._fail(Failed(ErrorInfo(kind="truncated", message=message)))

    # --- the beginning -----------------------------------------------------------------------------------------------

    def _start(self, event: Started) -> bytes:
        if self._state is not _State.NEW:
            raise LocalProtocolError("expected one Started, got another")
        self._state = _State.OPEN
        if not self._context.seed:
            self._mint.seed(event.response_id)
        note_foreign(self._book, event.extra, "response")
        self._envelope = envelope = Envelope(event, self._context, self._mint)
        response = envelope.fields("in_progress")
        if self._notes is not None:
            self._notes.begin(envelope.id, partial(dumps, response))
        return b"".join(
            [
                self._events.event("response.created", {"response": response}),
                self._events.event("response.in_progress", {"response": response}),
            ]
        )

    # --- in between --------------------------------------------------------------------------------------------------

    def _nothing(self, _event: SealAdded) -> bytes:
        return b""

    def _progress(self, event: Progress) -> bytes:
        if event.part is not None:
            return self._items.progress(event)
        # `in_progress` was said at the beginning.
        if event.stage != "queued":
            return b""
        return self._events.event("response.queued", {"response": self._opened().fields("queued")})

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
        # A type that is no token cannot stand on an event line.
        if not event.name.isascii() or not event.name.isprintable() or not fields:
            return b""
        return self._events.event(event.name, dict(fields))

    def _keep_alive(self) -> bytes:
        if self._state is _State.NEW:
            # Nothing may come before `response.created` but what is no event.
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
        ending = ending_of(self._finished, self._book)
        self._state = _State.OVER
        if ending.event == "response.failed":
            info = ErrorInfo(kind="upstream", message="the upstream ended the answer with an error")
            return self._failure(info)
        action = self._required_action()
        if action is not None:
            return self._pause(envelope, action)
        return self._terminal(ending, envelope)

    def _opened(self) -> Envelope:
        if self._envelope is None:
            raise AssertionError("nothing ends before it has started")
        return self._envelope

    def _terminal(self, ending: TerminalEvent, envelope: Envelope) -> bytes:
        response = envelope.fields(
            ending.status, self._stream.output, self._usage, incomplete_details=ending.details
        )
        return self._end(ending.event, response)

    def _required_action(self) -> JsonObject | None:
        waits = self._finished is not None and self._finished.reason == "tool_calls"
        if self._context.profile != "required_action" or not waits:
            return None
        return required_action(tuple(self._items.waiting.values()))

    def _pause(self, envelope: Envelope, action: JsonObject) -> bytes:
        """The end of the `required_action` profile: the calls once more, and an answer that waits for their results."""
        waiting = envelope.fields("incomplete", self._stream.output, self._usage)
        event: JsonObject = {"response": waiting, "required_action": action}
        first = self._events.event("response.required_action", event)
        return self._end("response.completed", {**waiting, "required_action": action}, first)

    def _fail(self, event: Failed) -> bytes:
        begin = self._start(Started()) if self._state is _State.NEW else b""
        closing = self._items.abandon()
        self._state = _State.OVER
        return begin + closing + self._failure(event.error)

    def _failure(self, info: ErrorInfo) -> bytes:
        response = self._opened().fields(
            "failed", self._stream.output, self._usage, error=failed_fields(info)
        )
        return self._end("response.failed", response)

    def _end(self, name: str, response: JsonObject, first: bytes = b"") -> bytes:
        """The terminal event. `first`: another that ends the stream together with it."""
        notes = self._notes
        if notes is None:
            return first + self._events.event(name, {"response": response})
        number = self._events.sequence - bool(first)
        body = dumps(response)
        frames = first + self._events.event(name, {"response": Raw(body)})
        notes.end = AnswerEnd(
            id=self._opened().id,
            status=status_of(response["status"], terminal_status(name)),
            body=body,
            open_calls=tuple(self._items.waiting),
            items=item_ids(self._stream.output),
            frames=frames,
            fail=partial(encode_failed, response, number),
        )
        return frames

    handlers: ClassVar[Mapping[type[Event], Callable[..., bytes]]] = {
        Started: _start,
        SealAdded: _nothing,  # seals ride in the finished item
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
