"""Reports the contents of a recorded answer and its problems: calls, texts, usage, finish, problems.

The dialect's own decoder reads the answer, and the report contains its problems unchanged. This module adds problems that a
decoder does not report but a person looking for an error must see: the provider's error, calls that may not be run, and
payloads after the end. One cause is one problem.

The gateway's dump has answers of several requests in one file, which are separated here. A line is `{"request_id": …,
"answer": n, "dialect": …, "frame": n, "event": {…}, …}`. Lines of answers that came at the same time are mixed, one
request may have several answers (it was tried again), and an answer may lack its beginning, which was in an older file.
The dump leaves out some events, such as most text deltas. Problems that only result from this are not reported.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import assert_never

from msgspec import Struct, structs

from dragoman._json import as_object
from dragoman.core.call_input import Verdict, judge
from dragoman.core.fields import (
    Fields,
    is_present,
    quoted,
    read_float,
    read_int,
    read_object,
    read_text,
)
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.shapes import DIALECTS, DialectName, Form
from dragoman.dialects.stream_decoder import Step
from dragoman.dialects.translate import make_decoder
from dragoman.errors import MalformedJson
from dragoman.inspection.recording import Recognised, Recording
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
)
from dragoman.model.outcome import Choice, ErrorInfo, FinishReason, Outcome, Problem, Usage
from dragoman.model.parts import Call, CallKind, Media, Opaque, Reasoning, Refusal, Result, Text
from dragoman.sse import parse_lines


class CallReport(Struct, frozen=True, kw_only=True):
    """One call. `deltas`: the number of pieces of its arguments. `reason` is the verdict of `core.call_input.judge`.

    `minted`: the recording has no id for the call; `id` is the id that a translation would assign.
    """

    id: str
    name: str
    namespace: str | None
    kind: CallKind
    arguments: str
    deltas: int
    executable: bool
    reason: str
    choice: int
    minted: bool = False


class ChoiceReport(Struct, frozen=True, kw_only=True):
    """One choice. `native_finish`: the provider's own word. `others`: names of parts that no other field covers."""

    index: int
    text: str = ""
    refusal: str = ""
    reasoning: str = ""
    sealed: int = 0
    finish: FinishReason | None = None
    native_finish: str | None = None
    others: tuple[str, ...] = ()


class ProblemReport(Struct, frozen=True, kw_only=True):
    """One problem. `line`: where the frame begins in the file; None for a body."""

    frame: int
    line: int | None
    kind: str
    message: str


class Timing(Struct, frozen=True, kw_only=True):
    """When the frames of an answer came. first_ms: since the request, 0 if only the answer's own times are known.

    median_gap_ms, longest_gap_ms: between one frame and the next. longest_gap_frame: the frame that came after the longest.
    """

    first_ms: float
    total_ms: float
    median_gap_ms: float
    longest_gap_ms: float
    longest_gap_frame: int


def measure(times: Sequence[float]) -> Timing | None:
    """The timing of frames that came at these milliseconds; None if no time is known."""
    if not any(times):
        return None
    gaps = [after - before for before, after in pairwise(times)] or [0.0]
    longest = max(range(len(gaps)), key=gaps.__getitem__)
    return Timing(
        first_ms=round(times[0], 3),
        total_ms=round(times[-1], 3),
        median_gap_ms=round(median(gaps), 3),
        longest_gap_ms=round(gaps[longest], 3),
        longest_gap_frame=min(longest + 2, len(times)),
    )


class Report(Struct, frozen=True, kw_only=True):
    """What a recording contains. `timing`: None if it has no times."""

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
    timing: Timing | None = None


_OWN_FAILURES = frozenset(("truncated", "protocol"))
"""Failures that a decoder detects itself and reports as a problem; the provider reports every other kind."""

_NO_BLANK_LINES = (
    "expected a blank line after each event, got events on consecutive lines; "
    "each data line was read as one event"
)
_MINTED = re.compile(rb"(?<![a-z])[a-z]+_[0-9a-f]{24}")  # the shape of `core.ids.Minter`


def examine(recognised: Recognised, watch: Callable[[int], None] | None = None) -> Report:
    """Read the whole recording and report its contents. `watch` is called with the number of bytes that were read."""
    return examine_steps(recognised, _decode(recognised, watch))


def examine_steps(recognised: Recognised, steps: Iterable[Step]) -> Report:
    """The report of a recording from its decoded steps."""
    builder = _ReportBuilder()
    if recognised.recording.framing == "unspaced":
        builder.problems.append(Problem(1, "missing_blank_lines", _NO_BLANK_LINES))
    outcome = fold(builder.events(steps))
    calls = builder.calls(recognised.recording.body)
    builder.conclude(calls, outcome)
    problems = sorted(builder.problems, key=lambda found: found.frame)
    lines = recognised.recording.locate({problem.frame for problem in problems})
    return Report(
        dialect=recognised.dialect,
        form=recognised.form,
        frames=builder.frame,
        status=recognised.recording.status,
        response_id=outcome.response_id,
        model=outcome.model,
        calls=calls,
        choices=tuple(_report_choice(choice, builder.natives) for choice in outcome.choices),
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


def _decode(recognised: Recognised, watch: Callable[[int], None] | None = None) -> Iterator[Step]:
    recording = recognised.recording
    if recognised.form == "body":
        yield codec(recognised.dialect).read_body(recording.body, DecodeContext())
        return
    decoder = make_decoder(recognised.dialect)
    for piece in recording.stream():
        yield from decoder.feed(piece)
        if watch is not None:
            watch(len(piece))
    yield from decoder.close()


class _ReportBuilder:
    """Reads every step before the fold does, and keeps what the fold drops: frames, counts, problems."""

    def __init__(self) -> None:
        self.frame = 0
        self.natives: dict[int, str | None] = {}
        self.problems: list[Problem] = []
        self._ended: dict[int, tuple[Call, Verdict, int]] = {}  # with the frame that ended each
        self._choices: dict[int, int] = {}
        self._deltas: Counter[int] = Counter()
        self._last = b""
        self._late: list[int] = []
        self._is_over = False
        self._is_unread = False  # the answer ended at an unreadable frame, so frames after it are no further problem
        # Of the step that is read: the kinds of its problems; whether the wire has an empty input; the parts that began in it, if
        # an earlier frame had one.
        self._kinds: set[str] = set()
        self._has_empty = False
        self._begun: set[int] = set()

    def events(self, steps: Iterable[Step]) -> Iterator[Event]:
        had_empty = False
        for step in steps:
            if step.raw:
                self.frame += 1
                self._last = step.raw
            self.problems.extend(step.problems)
            self._kinds = {problem.kind for problem in step.problems}
            if self._is_over and not self._is_unread and _has_payload(step.raw):
                self._late.append(self.frame)
            self._has_empty = b'"{}"' in step.raw
            if had_empty:
                begun = (event for event in step.events if isinstance(event, PartStarted))
                self._begun = {event.part for event in begun}
            had_empty = had_empty or self._has_empty
            for event in step.events:
                self._see(event)
                yield event

    def calls(self, data: bytes) -> tuple[CallReport, ...]:
        """The calls in order of appearance. data: the recording, to find out which of their ids were on the wire."""
        minted = _find_minted((call.call_id for call, _, _ in self._ended.values()), data)
        return tuple(
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
                minted=call.call_id in minted,
            )
            for part, (call, verdict, _) in sorted(self._ended.items())
        )

    def conclude(self, calls: tuple[CallReport, ...], outcome: Outcome) -> None:
        """Add the problems that only the whole answer shows, and remove the problems that have the same cause."""
        if self._late:
            self._report(self._late[0], "after_end", _describe_late(len(self._late)))
        finishes = {choice.index: choice.finish for choice in outcome.choices}
        if outcome.error is None:
            for call, (_, (_, _, frame)) in zip(calls, sorted(self._ended.items()), strict=True):
                if call.reason == "not_closed":
                    message = _describe_unfinished(call, finishes.get(call.choice))
                    self._report(frame, "unfinished_call", message)
        elif outcome.error.kind == "truncated" and not self._last.endswith((b"\n", b"\r")):
            # The recording was cut in the last frame, so the unreadable frame is the same problem.
            torn = ("malformed_frame", self.frame)
            self.problems = [found for found in self.problems if (found.kind, found.frame) != torn]

    def _see(self, event: Event) -> None:
        match event:
            case InputDelta():
                self._deltas[event.part] += self._is_on_wire(event)
            case PartStarted(header=Call()):
                self._choices[event.part] = event.choice
            case PartEnded(value=Call() as call):
                self._end_call(event.part, call)
            case Finished():
                self.natives[event.choice] = event.native
            case Failed():
                self._is_over = True
                self._is_unread = not self._kinds.isdisjoint(("malformed_frame", "invalid_utf8"))
                if event.error.kind not in _OWN_FAILURES or not self._kinds:
                    kind = "cut_stream" if event.error.kind == "truncated" else "provider_error"
                    self._report(self._place, kind, _describe_error(event.error))
            case Completed():
                self._is_over = True
            case _:
                pass

    @property
    def _place(self) -> int:
        """The frame of the step that is read."""
        return max(self.frame, 1)

    def _is_on_wire(self, delta: InputDelta) -> bool:
        """Whether the wire had this piece: decoders also emit `{}` for an input that the protocol closed empty.

        The first piece of a call may have come in an earlier frame than the frame that started the call.
        """
        return delta.text != "{}" or self._has_empty or delta.part in self._begun

    def _end_call(self, part: int, call: Call) -> None:
        verdict = judge(call)
        self._ended[part] = (call, verdict, self._place)
        if verdict.reason == "invalid_json" and "invalid_arguments" not in self._kinds:
            self._report(self._place, "invalid_arguments", _describe_invalid(call))

    def _report(self, frame: int, kind: str, message: str) -> None:
        self.problems.append(Problem(frame, kind, message))


def _find_minted(ids: Iterable[str], data: bytes) -> frozenset[str]:
    """The ids that a decoder minted because the recording has none."""
    candidates = {id_ for id_ in ids if _MINTED.fullmatch(id_.encode("utf-8", "replace"))}
    if not candidates:
        return frozenset()
    return frozenset(candidates.difference(found.decode() for found in _MINTED.findall(data)))


def _has_payload(raw: bytes) -> bool:
    frame = parse_lines(raw)
    return frame.data is not None and not frame.is_done


def _describe_late(count: int) -> str:
    what = "1 more frame" if count == 1 else f"{count:,} more frames"
    return (
        f"expected nothing after the end of the answer, got {what}, left unread"
        " (are there two recordings in one file?)"
    )


def _describe_unfinished(call: CallReport, finish: str | None) -> str:
    advice = ": raise the token limit" if finish == "length" else ""
    return f"expected the end of call {call.id} ({call.name}), got the finish {finish or 'none'}{advice}"


def _describe_error(error: ErrorInfo) -> str:
    status = f", status {error.status}" if error.status is not None else ""
    return f"expected an answer, got an error ({error.kind}{status}): {error.message}"


def _describe_invalid(call: Call) -> str:
    head = call.input[:60] + ("…" if len(call.input) > 60 else "")
    return f"expected JSON as the input of call {call.call_id} ({call.name}), got {quoted(head)}"


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


_LINE = re.compile(rb"[^\r\n]+")
_DIALECTS: dict[str, DialectName] = {name: name for name in DIALECTS}

# Problems that every dump has: it lacks the bodies of responses and the deltas, and has the arguments of Chat's calls last.
_OF_THE_DUMP: Mapping[DialectName, frozenset[str]] = {
    "responses": frozenset(("missing_output", "missing_start", "late_input", "empty_output")),
    "chat": frozenset(("missing_start", "interleaved_calls")),
    "messages": frozenset(("missing_start",)),
}


class Dumped(Struct, frozen=True):
    """One answer in a dump. lines: the lines of the file with its events, in order. times: of each, in seconds since 1970."""

    request_id: str
    upstream: str
    recognised: Recognised
    lines: tuple[int, ...]
    times: tuple[float, ...] = ()


def open_dump(data: bytes) -> tuple[Dumped, ...] | None:
    """The answers in a dump, in the order in which they began. None if the data is not a dump."""
    if not _begins_as_dump(data):
        return None
    # By request and number: upstream, dialect, and the line, the event and the time of each entry.
    answers: dict[
        tuple[str, int | None], tuple[str, DialectName, list[tuple[int, bytes, float | None]]]
    ] = {}
    for line, fields in _entries(data):
        dialect = _DIALECTS.get(read_text(fields.get("dialect")) or "")
        if dialect is None or not _is_entry(fields):
            continue
        key = (read_text(fields.get("request_id")) or "", read_int(fields.get("answer")))
        if key not in answers:
            answers[key] = (read_text(fields.get("upstream")) or "", dialect, [])
        answers[key][2].append((line, bytes(fields["event"]), read_float(fields.get("at"))))
    found: list[Dumped] = []
    for (request_id, _), (upstream, dialect, entries) in answers.items():
        recording = Recording(b"\n".join([event for _, event, _ in entries]), "lines")
        times = tuple([at for _, _, at in entries if at is not None])
        found.append(
            Dumped(
                request_id,
                upstream,
                Recognised(dialect, "stream", recording),
                tuple([line for line, _, _ in entries]),
                times if len(times) == len(entries) else (),
            )
        )
    return tuple(found)


def examine_dumped(dumped: Dumped) -> Report:
    """The report of one answer of a dump. Lines are those of the dump."""
    report = examine(dumped.recognised)
    problems = tuple(
        structs.replace(problem, line=_line(dumped, problem))
        for problem in report.problems
        if problem.kind not in _OF_THE_DUMP[report.dialect]
    )
    times = [(at - dumped.times[0]) * 1000 for at in dumped.times]
    return structs.replace(report, problems=problems, timing=measure(times))


def _entries(data: bytes) -> Iterator[tuple[int, Fields]]:
    """The objects in the file, each with its line; a line that was cut is skipped."""
    for line, text in Recording(data, "lines").numbered_lines():
        try:
            yield line, as_object(text)
        except MalformedJson:
            continue


def _begins_as_dump(data: bytes) -> bool:
    """Whether the first line is a dump's. Only that line is read: most recordings are not dumps, and may be large."""
    first = _LINE.search(data)
    if first is None or not first[0].startswith(b"{"):
        return False
    try:
        return _is_entry(as_object(first[0]))
    except MalformedJson:
        return False


def _is_entry(fields: Fields) -> bool:
    return is_present(fields.get("dialect")) and bool(read_object(fields.get("event")))


def _line(dumped: Dumped, problem: ProblemReport) -> int | None:
    """The line of the problem's event; the last line for a problem that is found at the end."""
    number = min(problem.frame, len(dumped.lines))
    return dumped.lines[number - 1] if number else None
