"""What a recorded answer holds: its calls, texts, usage and finish, and everything that is wrong with it.

The dialect's own decoder reads it; its problems are taken over as they are. Added here is only what a decoder has no
reason to call irregular but a person looking for a fault must see: the provider's error, calls that may not be run,
and payloads after the end. One cause is one problem.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import assert_never

from dragoman.core.calls import judge
from dragoman.core.fold import fold
from dragoman.dialects.base import DecodeContext, Step
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import make_decoder
from dragoman.inspection.recognise import Recognised
from dragoman.inspection.report import CallReport, ChoiceReport, ProblemReport, Report
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
)
from dragoman.model.outcome import Choice, ErrorInfo, Outcome, Problem
from dragoman.model.parts import Call, Media, Opaque, Reasoning, Refusal, Result, Text
from dragoman.sse import parse_lines

__all__ = ("examine", "examine_steps")

_OWN_FAILURES = frozenset(("truncated", "protocol"))
"""Failures that a decoder concludes by itself and reports as a problem; any other kind is the provider's word."""

_NO_BLANK_LINES = (
    "expected a blank line after each event, got events on consecutive lines; "
    "each data line was read as one event"
)
_MINTED = re.compile(rb"[a-z]+_[0-9a-f]{24}")  # the shape of `core.ids.Minter`


def examine(recognised: Recognised) -> Report:
    """Read the whole recording and say what is in it."""
    return examine_steps(recognised, _decode(recognised))


def examine_steps(recognised: Recognised, steps: Iterable[Step]) -> Report:
    """The same of a recording that is being decoded, or has been."""
    watch = _Watch()
    if recognised.recording.framing == "unspaced":
        watch.problems.append(Problem(1, "missing_blank_lines", _NO_BLANK_LINES))
    outcome = fold(watch.events(steps))
    calls = watch.calls(recognised.recording.body)
    watch.conclude(calls, outcome)
    problems = sorted(watch.problems, key=lambda found: found.frame)
    lines = recognised.recording.locate({problem.frame for problem in problems})
    return Report(
        dialect=recognised.dialect,
        form=recognised.form,
        frames=watch.frame,
        status=recognised.recording.status,
        response_id=outcome.response_id,
        model=outcome.model,
        calls=calls,
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


def _decode(recognised: Recognised) -> Iterator[Step]:
    recording = recognised.recording
    if recognised.form == "body":
        yield codec(recognised.dialect).read_body(recording.body, DecodeContext())
        return
    decoder = make_decoder(recognised.dialect)
    for piece in recording.stream():
        yield from decoder.feed(piece)
    yield from decoder.close()


class _Seen:
    """A step and what is looked up in it, each at most once: one step may hold thousands of calls."""

    def __init__(self, step: Step, frame: int, *, had_empty_object: bool) -> None:
        self.step = step
        self.frame = frame
        self._had_empty_object = had_empty_object

    @cached_property
    def has_invalid_arguments(self) -> bool:
        return any(problem.kind == "invalid_arguments" for problem in self.step.problems)

    @cached_property
    def has_empty_object(self) -> bool:
        return b'"{}"' in self.step.raw

    @cached_property
    def _started(self) -> frozenset[int]:
        return frozenset(event.part for event in self.step.events if isinstance(event, PartStarted))

    def has_on_wire(self, delta: InputDelta) -> bool:
        """Whether the wire had this piece. An input that the protocol closed empty is told as `{}` all the same.

        The first piece of a call may have come in an earlier frame than the one that let the call start.
        """
        if delta.text != "{}" or self.has_empty_object:
            return True
        return self._had_empty_object and delta.part in self._started


class _Ended:
    """A call that has ended, and where."""

    def __init__(self, call: Call, seen: _Seen) -> None:
        verdict = judge(call)
        self.call = call
        self.frame = seen.frame
        self.executable = verdict.executable
        self.reason = verdict.reason


class _Watch:
    """Sees every step on its way to the fold, and keeps what the fold forgets: frames, counts, problems."""

    def __init__(self) -> None:
        self.frame = 0
        self.natives: dict[int, str | None] = {}
        self.problems: list[Problem] = []
        self._ended: dict[int, _Ended] = {}
        self._choices: dict[int, int] = {}
        self._deltas: Counter[int] = Counter()
        self._last = b""
        self._late: list[int] = []
        self._is_over = False
        self._is_unread = (
            False  # it is over because a frame cannot be read: what follows is no surprise
        )
        self._had_empty_object = False

    def events(self, steps: Iterable[Step]) -> Iterator[Event]:
        for step in steps:
            if step.raw:
                self.frame += 1
                self._last = step.raw
            if step.problems:
                self.problems.extend(step.problems)
            if self._is_over and not self._is_unread and _has_payload(step.raw):
                self._late.append(self.frame)
            seen = _Seen(step, max(self.frame, 1), had_empty_object=self._had_empty_object)
            self._had_empty_object = self._had_empty_object or seen.has_empty_object
            for event in step.events:
                self._see(event, seen)
                yield event

    def calls(self, data: bytes) -> tuple[CallReport, ...]:
        """The calls in the order they appeared. `data` tells which of their ids were on the wire."""
        minted = _find_minted((ended.call.call_id for ended in self._ended.values()), data)
        return tuple(
            CallReport(
                id=ended.call.call_id,
                name=ended.call.name,
                namespace=ended.call.namespace,
                kind=ended.call.kind,
                arguments=ended.call.input,
                deltas=self._deltas[part],
                executable=ended.executable,
                reason=ended.reason,
                choice=self._choices[part],
                minted=ended.call.call_id in minted,
            )
            for part, ended in sorted(self._ended.items())
        )

    def conclude(self, calls: tuple[CallReport, ...], outcome: Outcome) -> None:
        """Add the problems that only the whole answer shows, and take out those that it explains."""
        if self._late:
            self._report(self._late[0], "after_end", _say_late(len(self._late)))
        finishes = {choice.index: choice.finish for choice in outcome.choices}
        if outcome.error is None:
            for call, ended in zip(calls, map(self._ended.get, sorted(self._ended)), strict=True):
                if call.reason == "not_closed" and ended is not None:
                    message = _say_unfinished(call, finishes.get(call.choice))
                    self._report(ended.frame, "unfinished_call", message)
        elif outcome.error.kind == "truncated" and not self._last.endswith((b"\n", b"\r")):
            # The cut went through the last frame: that it cannot be read is the same fault.
            torn = ("malformed_frame", self.frame)
            self.problems = [found for found in self.problems if (found.kind, found.frame) != torn]

    def _see(self, event: Event, seen: _Seen) -> None:
        match event:
            case InputDelta():
                self._deltas[event.part] += seen.has_on_wire(event)
            case PartStarted(header=Call()):
                self._choices[event.part] = event.choice
            case PartEnded(value=Call() as call):
                self._end_call(event.part, call, seen)
            case Finished():
                self.natives[event.choice] = event.native
            case Failed():
                self._is_over = True
                kinds = {problem.kind for problem in seen.step.problems}
                self._is_unread = not kinds.isdisjoint(("malformed_frame", "invalid_utf8"))
                if event.error.kind not in _OWN_FAILURES or not seen.step.problems:
                    kind = "cut_stream" if event.error.kind == "truncated" else "provider_error"
                    self._report(seen.frame, kind, _say_error(event.error))
            case Completed():
                self._is_over = True
            case _:
                pass

    def _end_call(self, part: int, call: Call, seen: _Seen) -> None:
        self._ended[part] = ended = _Ended(call, seen)
        if ended.reason == "invalid_json" and not seen.has_invalid_arguments:
            self._report(seen.frame, "invalid_arguments", _say_invalid(call))

    def _report(self, frame: int, kind: str, message: str) -> None:
        self.problems.append(Problem(frame, kind, message))


def _find_minted(ids: Iterable[str], data: bytes) -> frozenset[str]:
    """The ids that a decoder made because the recording has none."""
    candidates = {id_ for id_ in ids if _MINTED.fullmatch(id_.encode("utf-8", "replace"))}
    if not candidates:
        return frozenset()
    return frozenset(candidates.difference(found.decode() for found in _MINTED.findall(data)))


def _has_payload(raw: bytes) -> bool:
    frame = parse_lines(raw)
    return frame.data is not None and not frame.is_done


def _say_late(count: int) -> str:
    what = "1 more frame" if count == 1 else f"{count:,} more frames"
    return (
        f"expected nothing after the end of the answer, got {what}, left unread"
        " (are there two recordings in one file?)"
    )


def _say_unfinished(call: CallReport, finish: str | None) -> str:
    advice = ": raise the token limit" if finish == "length" else ""
    return f"expected the end of call {call.id} ({call.name}), got the finish {finish or 'none'}{advice}"


def _say_error(error: ErrorInfo) -> str:
    status = f", status {error.status}" if error.status is not None else ""
    return f"expected an answer, got an error ({error.kind}{status}): {error.message}"


def _say_invalid(call: Call) -> str:
    head = call.input[:60] + ("…" if len(call.input) > 60 else "")
    return f"expected JSON as the input of call {call.call_id} ({call.name}), got {head!r}"


def _report_choice(choice: Choice, natives: Mapping[int, str | None]) -> ChoiceReport:
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
    if isinstance(part, Result):
        return f"result of {part.name or part.kind} ({part.call_id})"
    return part.kind if isinstance(part, Media) else part.type
