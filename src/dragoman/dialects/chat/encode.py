"""Events to Chat Completions, as a stream.

The role comes first, id, type and name of a call once and in its first delta, increments after that, `finish_reason`
(null inside) on every chunk, one finish per choice, the usage chunk if asked for, `[DONE]`. A failure is an error chunk
and no `[DONE]`. Several clients merge calls whose deltas alternate, so parts must not overlap within a choice; a
`core.serial.Serializer` in front sees to that. How parts are written is `encode_parts`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from dragoman._json import dumps
from dragoman.core.fold import merge_usage
from dragoman.core.ids import Minter
from dragoman.core.losses import answer_book
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.chat.chunks import Envelope
from dragoman.dialects.chat.encode_parts import ChoiceState, PartWriter, refuse
from dragoman.dialects.chat.errors import encode_error
from dragoman.dialects.chat.fields import fields_of, own_fields, text_of
from dragoman.dialects.chat.losses import LOSSES, note_extra, note_foreign
from dragoman.dialects.chat.usage import write_usage
from dragoman.dialects.chat.writing import FAILING_REASONS, finish_word, note_finish
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
from dragoman.model.parts import Call
from dragoman.sse import encode_comment

__all__ = ("ChatEncoder",)

_NO_CONTEXT = EncodeContext()
_STARTED = Started()
_DONE = b"data: [DONE]\n\n"


class ChatEncoder:
    """A `base.StreamEncoder` for Chat Completions."""

    def __init__(self, context: EncodeContext = _NO_CONTEXT) -> None:
        self._context = context
        self._book = answer_book(LOSSES, context.losses)
        self._mint = Minter(context.seed)
        self._parts = PartWriter(self._book, self._mint, legacy=context.legacy_functions)
        self._choices: dict[int, ChoiceState] = {}
        self._usage: Usage | None = None
        self._has_started = False
        self._is_over = False
        self._is_mute = (
            False  # failed on our own account: what the upstream still says is not written
        )

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self._book.losses

    def encode(self, event: Event) -> bytes:
        """The bytes of one event; none where Chat says nothing about it.

        Raises:
            LocalProtocolError: the event may not stand here.
        """
        if self._is_over:
            if self._is_mute:
                return b""
            refuse(event, "the stream is over")
        kind = type(event)
        write = _PART_WRITERS.get(kind)
        return _WRITERS[kind](self, event) if write is None else write(self._parts, event)

    def deltas(
        self, kind: type[TextDelta | InputDelta], part: int, texts: Sequence[str]
    ) -> bytes | None:
        """See `base.StreamEncoder`."""
        return None if self._is_over else self._parts.write_many(kind, part, texts)

    def close(self) -> bytes:
        """The failure of a stream that was left without its end; nothing after one that ended."""
        if self._is_over:
            return b""
        message = "the answer ended before it was complete"
        return self._fail(Failed(ErrorInfo(kind="truncated", message=message)))

    def _start(self, event: Started) -> bytes:
        if self._has_started:
            refuse(event, "the answer has started before")
        self._has_started = True
        note_foreign(self._book, event.extra, "answer")
        extra = own_fields(event.extra)
        # What a vendor says on every chunk is said on every chunk; lists and objects once, before the first choice,
        # as Azure does it.
        small = {name: raw for name, raw in extra.items() if bytes(raw)[:1] not in (b"{", b"[")}
        large = {name: raw for name, raw in extra.items() if name not in small}
        self._parts.envelope = Envelope(
            {
                "id": event.response_id or self._mint("chatcmpl-"),
                "object": "chat.completion.chunk",
                "created": self._context.created if event.created is None else event.created,
                "model": self._context.model or event.model,
                **small,
            }
        )
        role, _ = self._choice(0, event)
        return (self._parts.envelope.bare(large) if large else b"") + role

    def _choice(self, index: int, event: Event) -> tuple[bytes, ChoiceState]:
        """A choice, and the chunk with the role that comes before everything else of it."""
        choice = self._choices.get(index)
        if choice is not None:
            return b"", choice
        if not self._has_started:
            refuse(event, "the answer has not started")
        choice = self._choices[index] = ChoiceState()
        return self._parts.envelope.chunk(index, {"role": "assistant", "content": ""}), choice

    def open_choice(self, index: int) -> bytes:
        """The role of a choice, if it has not been told, before the choice says anything."""
        return self._choice(index, _STARTED)[0]

    def _start_part(self, event: PartStarted) -> bytes:
        role, choice = self._choice(event.choice, event)
        return role + self._parts.start(event, choice)

    def _end_part(self, event: PartEnded) -> bytes:
        value = event.value
        if event.amended and isinstance(value, Call) and self._parts.shows_call(event.part):
            message = f"the upstream changed the arguments of {value.name} after streaming them"
            return self._give_up(ErrorInfo(kind="protocol", message=message))
        return self._parts.end(event, self._choices)

    def _finish(self, event: Finished) -> bytes:
        role, choice = self._choice(event.choice, event)
        if choice.is_finished or choice.open_part is not None:
            refuse(event, f"choice {event.choice} has finished before, or has an open part")
        choice.is_finished = True
        if event.reason in FAILING_REASONS:
            message = f"the answer ended with {event.native or event.reason}"
            return role + self._give_up(ErrorInfo(kind="upstream", message=message))
        where = f"choice {event.choice}"
        word = finish_word(
            event.reason,
            choice.calls,
            has_cut_call=choice.has_cut_call,
            legacy=self._context.legacy_functions,
        )
        note_finish(event.reason, self._book, where)
        note_foreign(self._book, event.extra, where)
        fields: dict[str, object] = {"finish_reason": word}
        if event.stop_sequence is not None:
            action = self._book.note("stop_sequence", where, event.stop_sequence)
            if action == "carry":
                fields["stop_reason"] = event.stop_sequence
        own = {name: raw for name, raw in own_fields(event.extra).items() if name != "message"}
        return role + self._parts.envelope.chunk(event.choice, {}, {**fields, **own})

    def _complete(self, event: Completed) -> bytes:
        if not self._choices or not all(choice.is_finished for choice in self._choices.values()):
            refuse(event, "a choice has not finished")
        note_extra(self._book, event.extra, "answer")
        self._is_over = True
        last = self._context.last_comment
        end = _DONE if last is None else encode_comment(last()) + _DONE
        if self._usage is None or not self._context.include_usage:
            return end
        return self._parts.envelope.bare({"usage": write_usage(self._usage)}) + end

    def _give_up(self, error: ErrorInfo) -> bytes:
        self._is_mute = True
        return self._fail(Failed(error))

    def _fail(self, event: Failed) -> bytes:
        self._is_over = True
        return b"data: " + encode_error(event.error) + b"\n\n"

    def _keep_usage(self, event: UsageReported) -> bytes:
        note_foreign(self._book, event.usage.extra, "usage")
        self._usage = merge_usage(self._usage, event.usage)
        return b""

    def _note_limits(self, event: LimitsReported) -> bytes:
        self._book.note("rate_limits", "", ", ".join(each.name for each in event.limits.windows))
        return b""

    def _pass_over(self, _: Progress) -> bytes:
        return b""

    def _write_notice(self, event: Noticed) -> bytes:
        raw = event.raw
        if event.kind in ("ping", "comment"):
            return encode_comment(text_of(raw) or "ping")
        if event.dialect != "chat" or raw is None:
            return b""
        if event.kind == "unknown":
            return b"data: " + dumps(raw) + b"\n\n"
        if event.kind != "fields" or not self._has_started:
            return b""
        fields = fields_of(raw)
        if event.name == "chunk":
            return self._parts.envelope.bare(fields)
        role, choice = self._choice(event.choice, event)
        if choice.is_finished:
            return b""  # clients take nothing of a choice after its finish
        delta, beside = (fields, None) if event.name == "delta" else ({}, fields)
        return role + self._parts.envelope.chunk(event.choice, delta, beside)

    writers: ClassVar[Mapping[type[Event], Callable[..., bytes]]] = {
        PartStarted: _start_part,
        PartEnded: _end_part,
        Started: _start,
        Progress: _pass_over,
        UsageReported: _keep_usage,
        LimitsReported: _note_limits,
        Finished: _finish,
        Failed: _fail,
        Completed: _complete,
        Noticed: _write_notice,
    }


_WRITERS = ChatEncoder.writers
_PART_WRITERS: Mapping[type[Event], Callable[..., bytes]] = {
    TextDelta: PartWriter.write_text,
    InputDelta: PartWriter.write_input,
    ReasoningDelta: PartWriter.write_reasoning,
    OutputDelta: PartWriter.skip_output,
    MediaDelta: PartWriter.write_media,
    AnnotationAdded: PartWriter.write_annotation,
    SealAdded: PartWriter.write_seal,
}
