"""What a recorded answer holds: its calls, texts, usage and finish, and everything that is wrong with it.

The dialect's own decoder reads it; its problems are taken over as they are. Added here is only what a decoder has no
reason to call irregular but a person looking for a fault must see: the provider's error, calls that may not be run,
and payloads after the end. One cause is one problem.
"""

from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct

from dragoman._json import loads
from dragoman.core.calls import judge
from dragoman.core.fold import fold
from dragoman.dialects.base import DecodeContext, Step
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import make_decoder
from dragoman.errors import MalformedJson
from dragoman.inspection.recognise import DialectName, Form, Recognised
from dragoman.model.events import Completed, Event, Failed, Finished, InputDelta, PartEnded, PartStarted
from dragoman.model.outcome import Choice, ErrorInfo, FinishReason, Outcome, Problem, Usage
from dragoman.model.parts import Call, CallKind, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.sse import parse_lines

__all__ = ("CallReport", "ChoiceReport", "ProblemReport", "Report", "examine")

_OWN_FAILURES = frozenset(("truncated", "protocol", "too_large"))
"""Failures that a decoder concludes by itself and reports as a problem; any other kind is the provider's word."""


class CallReport(Struct, frozen=True, kw_only=True):
    """One call. `deltas`: in how many pieces its arguments came. `reason` is the verdict of `core.calls.judge`."""

    id: str
    name: str
    namespace: str | None
    kind: CallKind
    arguments: str
    deltas: int
    executable: bool
    reason: str
    choice: int


class ChoiceReport(Struct, frozen=True, kw_only=True):
    """One answer. `native_finish` is the provider's own word; `others` names parts that are none of the rest."""

    index: int
    text: str = ""
    refusal: str = ""
    reasoning: str = ""
    sealed: int = 0
    finish: FinishReason | None = None
    native_finish: str | None = None
    others: tuple[str, ...] = ()


class ProblemReport(Struct, frozen=True, kw_only=True):
    """`line` is where the frame begins in the file, where frames have lines."""

    frame: int
    line: int | None
    kind: str
    message: str


class Report(Struct, frozen=True, kw_only=True):
    dialect: DialectName
    form: Form
    frames: int
    status: int | None
    response_id: str
    model: str
    calls: tuple[CallReport, ...]
    choices: tuple[ChoiceReport, ...]
    usage: Usage | None
    error: ErrorInfo | None
    problems: tuple[ProblemReport, ...]


def examine(recognised: Recognised) -> Report:
    """Read the whole recording and say what is in it."""
    watch = _Watch()
    outcome = fold(watch.events(_steps(recognised)))
    problems = sorted((*watch.problems, *watch.conclude(outcome)), key=lambda found: found.frame)
    lines = recognised.recording.locate({problem.frame for problem in problems})
    return Report(
        dialect=recognised.dialect,
        form=recognised.form,
        frames=watch.frame,
        status=recognised.recording.status,
        response_id=outcome.response_id,
        model=outcome.model,
        calls=tuple(watch.calls),
        choices=tuple(_report_choice(choice, watch.natives) for choice in outcome.choices),
        usage=outcome.usage,
        error=outcome.error,
        problems=tuple(
            ProblemReport(
                frame=found.frame,
                line=lines.get(found.frame),
                kind=found.kind,
                message=found.message,
            )
            for found in problems
        ),
    )


def _steps(recognised: Recognised) -> Iterator[Step]:
    recording = recognised.recording
    if recognised.form == "body":
        yield codec(recognised.dialect).read_body(recording.body, DecodeContext())
        return
    decoder = make_decoder(recognised.dialect)
    for piece in recording.stream():
        yield from decoder.feed(piece)
    yield from decoder.close()


class _Watch:
    """Sees every step on its way to the fold, and keeps what the fold forgets: frames, counts, problems."""

    def __init__(self) -> None:
        self.frame = 0
        self.calls: list[CallReport] = []
        self.natives: dict[int, str | None] = {}
        self.problems: list[Problem] = []
        self._choices: dict[int, int] = {}
        self._deltas: Counter[int] = Counter()
        self._over = False
        self._late: list[int] = []

    def events(self, steps: Iterator[Step]) -> Iterator[Event]:
        for step in steps:
            if step.raw:
                self.frame += 1
            self.problems.extend(step.problems)
            if self._over and _has_payload(step.raw):
                self._late.append(self.frame)
            for event in step.events:
                self._see(event, step)
                yield event

    def conclude(self, outcome: Outcome) -> Iterator[Problem]:
        """The problems that only the whole answer shows."""
        if self._late:
            yield Problem(self._late[0], "after_end", _say_late(len(self._late)))
        if outcome.error is None:
            for call in self.calls:
                if call.reason == "not_closed":
                    yield Problem(self.frame, "unfinished_call", _say_unfinished(call, outcome))

    def _see(self, event: Event, step: Step) -> None:
        match event:
            case InputDelta():
                # A decoder tells an input that the protocol closed empty as "{}"; no such piece was on the wire.
                if event.text != "{}" or b'"{}"' in step.raw:
                    self._deltas[event.part] += 1
            case PartStarted(header=Call()):
                self._choices[event.part] = event.choice
            case PartEnded(value=Call() as call):
                self._add_call(event.part, call, step)
            case Finished():
                self.natives[event.choice] = event.native
            case Failed():
                self._over = True
                if event.error.kind not in _OWN_FAILURES or not step.problems:
                    self._report("provider_error", _say_error(event.error))
            case Completed():
                self._over = True
            case _:
                pass

    def _add_call(self, part: int, call: Call, step: Step) -> None:
        verdict = judge(call)
        self.calls.append(
            CallReport(
                id=call.call_id,
                name=call.name,
                namespace=call.namespace,
                kind=call.kind,
                arguments=call.input,
                deltas=self._deltas[part],
                executable=verdict.executable,
                reason=verdict.reason,
                choice=self._choices[part],
            )
        )
        is_told = any(problem.kind == "invalid_arguments" for problem in step.problems)
        if verdict.reason == "invalid_json" and not is_told:
            self._report("invalid_arguments", _say_invalid(call))

    def _report(self, kind: str, message: str) -> None:
        self.problems.append(Problem(max(self.frame, 1), kind, message))


def _has_payload(raw: bytes) -> bool:
    frame = parse_lines(raw)
    return frame.data is not None and not frame.is_done


def _say_late(count: int) -> str:
    what = "1 frame follows" if count == 1 else f"{count} frames follow"
    return (
        f"expected nothing after the end of the answer, but {what} it and was not read"
        " (are there two recordings in one file?)"
    )


def _say_unfinished(call: CallReport, outcome: Outcome) -> str:
    finish = next((choice.finish for choice in outcome.choices if choice.index == call.choice), None)
    return f"call {call.id} ({call.name}) was never closed: the answer ended with {finish or 'no finish'}"


def _say_error(error: ErrorInfo) -> str:
    status = f" {error.status}" if error.status is not None else ""
    return f"the answer is an error ({error.kind}{status}): {error.message}"


def _say_invalid(call: Call) -> str:
    try:
        loads(call.input)
    except MalformedJson as error:
        detail = error.message
    else:
        detail = "not strict JSON"
    return f"call {call.call_id} ({call.name}): {detail}"


def _report_choice(choice: Choice, natives: dict[int, str | None]) -> ChoiceReport:
    texts: list[str] = []
    refusals: list[str] = []
    thoughts: list[str] = []
    others: list[str] = []
    sealed = 0
    for part in choice.parts:
        match part:
            case Text():
                texts.append(part.text)
            case Refusal():
                refusals.append(part.text)
            case Reasoning():
                thoughts.extend((*part.summary, *part.content))
                sealed += len(part.seals)
            case Call():
                pass
            case Result() | Media() | Opaque():
                others.append(_name(part))
            case _:
                assert_never(part)
    return ChoiceReport(
        index=choice.index,
        text="".join(texts),
        refusal="".join(refusals),
        reasoning="\n\n".join(thoughts),
        sealed=sealed,
        finish=choice.finish,
        native_finish=natives.get(choice.index),
        others=tuple(others),
    )


def _name(part: Result | Media | Opaque) -> str:
    match part:
        case Result():
            return f"result of {part.name or part.kind} ({part.call_id})"
        case Media():
            return part.kind
        case Opaque():
            return part.type
