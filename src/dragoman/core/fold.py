"""From events to a whole answer, and back: the one place where streamed and whole answers meet.

`fold` takes any grammatical sequence, or the beginning of one. `PartEnded` is authoritative; a part that never ended is
put together from its deltas and is incomplete. `unfold` is the canonical sequence of an answer: a body is read into an
`Outcome` and unfolded, so that everything after the decoders sees events only. `fold(unfold(outcome)) == outcome`.

Work is linear: deltas are collected and joined once.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

from msgspec.structs import replace

from dragoman.core.call_input import judge
from dragoman.core.drafts import Delta, join_part
from dragoman.core.finish import settle_finish
from dragoman.core.usage import merge_usage
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
    ReasoningChannel,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import Choice, ErrorInfo, Limits, Outcome, Usage
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text


class _Draft:
    """One part while its events come."""

    __slots__ = ("choice", "deltas", "header", "value")

    def __init__(self, start: PartStarted) -> None:
        self.choice = start.choice
        self.header = start.header
        self.deltas: list[Delta] = []
        self.value: Part | None = None

    def part(self) -> Part:
        """What the deltas say of a part that has not ended."""
        part = join_part(self.header, self.deltas)
        return part if isinstance(part, Opaque) else replace(part, status="incomplete")


class _Folding:
    def __init__(self) -> None:
        self._started = Started()
        self._drafts: dict[int, _Draft] = {}
        self._finished: dict[int, Finished] = {}
        self._usage: Usage | None = None
        self._limits: Limits | None = None
        self._error: ErrorInfo | None = None
        self._completed: Completed | None = None

    def take(self, events: Iterable[Event]) -> None:
        drafts = self._drafts
        for event in events:
            # In this order because a whole answer has few events of any but the first ones.
            match event:
                case PartStarted():
                    drafts[event.part] = _Draft(event)
                case TextDelta() | InputDelta():
                    self._draft(event.part).deltas.append(event)
                case PartEnded():
                    self._draft(event.part).value = event.value
                case Started():
                    self._started = event
                case Finished():
                    self._finished[event.choice] = event
                case UsageReported():
                    self._usage = merge_usage(self._usage, event.usage)
                case Completed():
                    self._completed = event
                case _:
                    self._take_other(event)

    def _take_other(
        self,
        event: ReasoningDelta
        | OutputDelta
        | MediaDelta
        | AnnotationAdded
        | SealAdded
        | LimitsReported
        | Failed
        | Progress
        | Noticed,
    ) -> None:
        match event:
            case ReasoningDelta() | OutputDelta() | MediaDelta() | AnnotationAdded() | SealAdded():
                self._draft(event.part).deltas.append(event)
            case LimitsReported():
                self._limits = event.limits
            case Failed():
                self._error = event.error
            case Progress() | Noticed():
                pass
            case _:
                assert_never(event)

    def outcome(self) -> Outcome:
        started, completed = self._started, self._completed
        return Outcome(
            response_id=started.response_id,
            model=started.model,
            created=started.created,
            choices=self._choices(),
            usage=self._usage,
            limits=self._limits,
            error=self._error,
            completed=completed is not None,
            started_extra=started.extra,
            completed_extra=completed.extra if completed is not None else None,
        )

    def _draft(self, part: int) -> _Draft:
        draft = self._drafts.get(part)
        if draft is None:
            raise LocalProtocolError(f"expected a part that has started, got part {part}")
        return draft

    def _choices(self) -> tuple[Choice, ...]:
        parts: dict[int, list[Part]] = {choice: [] for choice in self._finished}
        for draft in self._drafts.values():
            value = draft.value
            parts.setdefault(draft.choice, []).append(draft.part() if value is None else value)
        return tuple(
            _choice(index, tuple(parts[index]), self._finished.get(index))
            for index in sorted(parts)
        )


def fold(events: Iterable[Event]) -> Outcome:
    """What the events amount to.

    Raises:
        LocalProtocolError: an event speaks of a part that never started.
    """
    folding = _Folding()
    folding.take(events)
    return folding.outcome()


def _choice(index: int, parts: tuple[Part, ...], finished: Finished | None) -> Choice:
    if finished is None:
        return Choice(index=index, parts=parts)
    return Choice(
        index=index,
        parts=parts,
        finish=finished.reason,
        stop_sequence=finished.stop_sequence,
        finish_extra=finished.extra,
    )


def unfold(outcome: Outcome) -> tuple[Event, ...]:
    """The canonical events of an answer.

    Grammatical for every outcome: where a completed one lacks a finish (or choice 0) it is inferred from the content.
    An outcome that is neither completed nor failed gives the beginning of a sequence.
    """
    return tuple(_events(outcome))


def _events(outcome: Outcome) -> Iterator[Event]:
    started = Started(outcome.response_id, outcome.model, outcome.created, outcome.started_extra)
    # A refusal before the answer began is Failed alone: an encoder must not open an answer for it.
    is_bare = outcome.error is not None and outcome == Outcome(error=outcome.error)
    if not is_bare:
        yield started
    number = 0
    for choice in outcome.choices:
        for part in choice.parts:
            yield from _tell(number, part, choice.index)
            number += 1
    yield from _endings(outcome)
    if outcome.usage is not None:
        yield UsageReported(outcome.usage)
    if outcome.limits is not None:
        yield LimitsReported(outcome.limits)
    if outcome.error is not None:
        yield Failed(outcome.error)
    elif outcome.completed:
        yield Completed(outcome.completed_extra)


def _endings(outcome: Outcome) -> Iterator[Finished]:
    must_finish = outcome.completed and outcome.error is None
    if must_finish and all(choice.index != 0 for choice in outcome.choices):
        yield Finished("stop", inferred=True)
    for choice in outcome.choices:
        if choice.finish is not None:
            yield Finished(
                choice.finish,
                choice.index,
                choice.stop_sequence,
                extra=choice.finish_extra,
            )
        elif must_finish:
            has_calls = any(
                isinstance(part, Call) and judge(part).executable for part in choice.parts
            )
            reason = settle_finish(None, has_complete_client_calls=has_calls)
            yield Finished(reason, choice.index, inferred=True)


def _tell(number: int, part: Part, choice: int) -> Iterator[Event]:
    yield PartStarted(number, _header(part), choice)
    match part:
        case Text() | Refusal():
            if part.text or part.logprobs is not None:
                yield TextDelta(number, part.text, part.logprobs)
            if isinstance(part, Text):
                yield from (AnnotationAdded(number, each) for each in part.annotations)
        case Reasoning():
            yield from _entry_deltas(number, part.summary, "summary")
            yield from _entry_deltas(number, part.content, "content")
            yield from (SealAdded(number, seal) for seal in part.seals)
        case Call():
            if part.input:
                yield InputDelta(number, part.input)
            yield from (SealAdded(number, seal) for seal in part.seals)
        case Result() | Media() | Opaque():
            pass  # whole in their header
        case _:
            assert_never(part)
    yield PartEnded(number, part)


def _entry_deltas(
    number: int, entries: tuple[str, ...], channel: ReasoningChannel
) -> Iterator[Event]:
    for index, entry in enumerate(entries):
        if entry:
            yield ReasoningDelta(number, entry, channel, index)


def _header(part: Part) -> Part:
    match part:
        case Text():
            return replace(part, text="", annotations=(), logprobs=None, status="in_progress")
        case Refusal():
            return replace(part, text="", logprobs=None, status="in_progress")
        case Reasoning():
            return replace(part, summary=(), content=(), seals=(), status="in_progress")
        case Call():
            return replace(part, input="", seals=(), status="in_progress")
        case Result() | Media() | Opaque():
            return part
        case _:
            assert_never(part)
