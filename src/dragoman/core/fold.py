"""From events to a whole answer, and back.

`fold` takes any grammatical sequence, or the beginning of one. `PartEnded` is authoritative; a part that never ended is
joined from its deltas and is incomplete. `unfold` returns the canonical events of an answer: a body is decoded into an
`Outcome` and unfolded, so that all code after the decoders sees events only. `fold(unfold(outcome)) == outcome`.

Work is linear: deltas are collected and joined once.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.call_input import judge
from dragoman.core.fields import is_a
from dragoman.core.usage import merge_usage
from dragoman.errors import ConfigError, LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Delta,
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
from dragoman.model.outcome import Choice, ErrorInfo, FinishReason, Limits, Outcome, Usage
from dragoman.model.parts import (
    Call,
    Dialect,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)


class _Draft(Struct, eq=False):
    """One part while its events arrive."""

    header: Part
    choice: int
    value: Part | None = None
    deltas: list[Delta] = []

    def part(self) -> Part:
        """The part joined from its deltas, incomplete; for a part that has not ended."""
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
            # Ordered by frequency: the first cases are the most frequent events.
            match event:
                case PartStarted():
                    drafts[event.part] = _Draft(event.header, event.choice)
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
                case LimitsReported():
                    self._limits = event.limits
                case Failed():
                    self._error = event.error
                case Progress() | Noticed():
                    pass
                case _:
                    self._draft(event.part).deltas.append(event)

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
    """Fold events into an answer.

    Examples:
        >>> from dragoman.model.events import PartEnded, PartStarted, TextDelta
        >>> outcome = fold([PartStarted(0, Text()), TextDelta(0, "Hi"), PartEnded(0, Text(text="Hi"))])
        >>> [part.text for part in outcome.choices[0].parts]
        ['Hi']

    Raises:
        LocalProtocolError: an event names a part that never started.
        ConfigError: the argument is not a sequence of events.
    """
    if not is_a(events, Iterable):
        raise ConfigError(f"expected a sequence of events, got {type(events).__name__}")
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

    Grammatical for every outcome: if a completed outcome lacks a finish (or choice 0), the content determines it.
    An outcome that is neither completed nor failed gives the beginning of a sequence.
    """
    return tuple(_events(outcome))


def _events(outcome: Outcome) -> Iterator[Event]:
    started = Started(outcome.response_id, outcome.model, outcome.created, outcome.started_extra)
    # An error before the answer began is Failed alone: an encoder must not open an answer for it.
    is_bare = outcome.error is not None and outcome == Outcome(error=outcome.error)
    if not is_bare:
        yield started
    number = 0
    for choice in outcome.choices:
        for part in choice.parts:
            yield from _events_of(number, part, choice.index)
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
                choice.finish, choice.index, choice.stop_sequence, extra=choice.finish_extra
            )
        elif must_finish:
            has_calls = any(
                isinstance(part, Call) and judge(part).executable for part in choice.parts
            )
            reason = settle_finish(None, has_complete_client_calls=has_calls)
            yield Finished(reason, choice.index, inferred=True)


def _events_of(number: int, part: Part, choice: int) -> Iterator[Event]:
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


# --- parts that have not ended -----------------------------------------------------------------------------------------


def join_part(header: Part, deltas: Sequence[Delta]) -> Part:
    """The part so far. Omits a tool's output and image previews inside a call: `Call` has no field for them."""
    match header:
        case Text():
            return _join_text(header, deltas)
        case Refusal():
            texts = [delta for delta in deltas if isinstance(delta, TextDelta)]
            return replace(
                header,
                text="".join([header.text, *(delta.text for delta in texts)]),
                logprobs=join_logprobs([header.logprobs, *(delta.logprobs for delta in texts)]),
            )
        case Reasoning():
            return replace(
                header,
                summary=header.summary + _entries(deltas, "summary"),
                content=header.content + _entries(deltas, "content"),
                seals=header.seals + _seals(deltas),
            )
        case Call():
            inputs = [delta.text for delta in deltas if isinstance(delta, InputDelta)]
            return replace(
                header, input="".join([header.input, *inputs]), seals=header.seals + _seals(deltas)
            )
        case Result():
            output = "".join(delta.text for delta in deltas if isinstance(delta, OutputDelta))
            content = (*header.content, Text(text=output)) if output else header.content
            return replace(header, content=content)
        case Media():
            return _join_media(header, deltas)
        case Opaque():
            return header
        case _:
            assert_never(header)


def join_logprobs(pieces: Iterable[Raw | None]) -> Raw | None:
    """The logprobs of all deltas as one JSON array. A piece that is not an array counts as one entry."""
    entries: list[bytes] = []
    found = False
    for piece in pieces:
        if piece is None:
            continue
        found = True
        entry = bytes(piece).strip()
        if entry.startswith(b"["):
            entry = entry[1:-1].strip()
        if entry:
            entries.append(entry)
    return Raw(b"[" + b",".join(entries) + b"]") if found else None


def _join_text(header: Text, deltas: Sequence[Delta]) -> Text:
    texts = [header.text]
    logprobs = [header.logprobs]
    annotations = list(header.annotations)
    for delta in deltas:
        match delta:
            case TextDelta():
                texts.append(delta.text)
                logprobs.append(delta.logprobs)
            case AnnotationAdded():
                annotations.append(delta.annotation)
            case _:
                pass
    return replace(
        header,
        text="".join(texts),
        logprobs=join_logprobs(logprobs),
        annotations=tuple(annotations),
    )


def _entries(deltas: Sequence[Delta], channel: ReasoningChannel) -> tuple[str, ...]:
    """The entries in order of their indexes. Gaps are closed, not filled: the wire may use any number as index."""
    pieces: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, ReasoningDelta) and delta.channel == channel:
            pieces.setdefault(delta.index, []).append(delta.text)
    return tuple("".join(pieces[index]) for index in sorted(pieces))


def _seals(deltas: Sequence[Delta]) -> tuple[Seal, ...]:
    return tuple(delta.seal for delta in deltas if isinstance(delta, SealAdded))


def _join_media(header: Media, deltas: Sequence[Delta]) -> Media:
    media = [delta for delta in deltas if isinstance(delta, MediaDelta)]
    pieces = [delta.data for delta in media if delta.data]
    transcript = "".join(delta.transcript for delta in media)
    if header.kind == "image":
        # Each delta is a whole preview that replaces the one before it.
        data = pieces[-1] if pieces else header.data
    else:
        data = "".join([header.data or "", *pieces]) or header.data
    return replace(
        header,
        data=data,
        transcript=(header.transcript or "") + transcript if transcript else header.transcript,
    )


# --- answers with nothing to settle ------------------------------------------------------------------------------------

SettledPart = Reasoning | Text | Call
_ENDINGS: frozenset[FinishReason | None] = frozenset({"stop", "tool_calls", "length"})


def settled_parts(outcome: Outcome, dialect: Dialect) -> list[SettledPart] | None:
    """The parts of an answer for the fast writers: one choice of complete reasonings, texts and client function calls.

    None for any other answer, and for one with fields of `dialect`, the dialect to write.
    """
    for extra in (outcome.started_extra, outcome.completed_extra):
        if extra is not None and extra.dialect == dialect:
            return None
    if not outcome.completed or outcome.error is not None or outcome.limits is not None:
        return None
    if len(outcome.choices) != 1:
        return None
    choice = outcome.choices[0]
    if choice.index or choice.stop_sequence is not None or choice.finish_extra is not None:
        return None
    parts: list[SettledPart] = []
    has_calls = False
    for part in choice.parts:
        if type(part) is Text and part.text and is_settled_text(part):
            parts.append(part)
        elif type(part) is Call and _is_settled_call(part):
            parts.append(part)
            has_calls = True
        elif type(part) is Reasoning and _is_settled_thought(part):
            parts.append(part)
        else:
            return None
    # An answer with calls must end with `tool_calls`.
    is_settled = has_calls is (choice.finish == "tool_calls") and choice.finish in _ENDINGS
    return parts if is_settled else None


# In one comparison, because every answer and every turn of a request is looked at.
_STATE_OF_TEXT = attrgetter("annotations", "logprobs", "extra", "item_extra", "status")
_SETTLED_TEXT = ((), None, None, None, "completed")


def is_settled_text(text: Text) -> bool:
    """Whether a text is complete and has no other content than its characters."""
    return _STATE_OF_TEXT(text) == _SETTLED_TEXT


def _is_settled_thought(thought: Reasoning) -> bool:
    return (
        len(thought.summary) + len(thought.content) <= 1
        and thought.extra is None
        and thought.status == "completed"
    )


_STATE_OF_CALL = attrgetter("kind", "executor", "status", "namespace", "extra", "seals")
_SETTLED_CALL = ("function", "client", "completed", None, None, ())


def _is_settled_call(call: Call) -> bool:
    return _STATE_OF_CALL(call) == _SETTLED_CALL and call.call_id != "" and call.name != ""


def settle_finish(native: FinishReason | None, *, has_complete_client_calls: bool) -> FinishReason:
    """The finish reason to report. `native` is the reason on the wire, None if there was none.

    Some servers send `stop` after streaming calls, and `tool_calls` after streaming none; clients act on the reason and
    lose the calls, or wait for results that cannot come. So the content decides between these two. A reason that says the
    answer is not whole (a limit, a filter, a refusal, a pause) always stays.
    """
    match native:
        case None | "stop" | "tool_calls":
            return "tool_calls" if has_complete_client_calls else "stop"
        case "stop_sequence" if has_complete_client_calls:
            # A call that closed before the sequence matched is still to be run, and clients run calls only with `tool_calls`.
            return "tool_calls"
        case _:
            return native
