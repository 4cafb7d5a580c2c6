"""A report as one screen: lines of styled spans, wrapped and aligned for a width. No colours, no terminal.

Long values are cut, and a line says so; the JSON output has them whole. The problems and the verdict come last: that
is where the eye is when the command has ended.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Literal, NamedTuple

from dragoman.inspection.explain import EFFECTS, REASONS
from dragoman.inspection.recognise import DIALECTS, Form
from dragoman.inspection.report import CallReport, ChoiceReport, ProblemReport, Report
from dragoman.inspection.visible import cells, excerpt, pad, visible_line
from dragoman.model.outcome import Usage

__all__ = ("MIN_WIDTH", "Line", "Span", "Style", "lay_out")

Style = Literal["plain", "title", "faint", "good", "bad", "strong"]

MIN_WIDTH = 40
"""Below this nothing can be aligned; a narrower terminal wraps by itself."""
_MAX_ID = 40  # the vendors' have up to 30 characters; columns must survive a hostile one
_MAX_FACT = 80  # OpenAI's response ids have 53 characters
_MIN_ID = 12  # prefix and enough of the rest to tell ids apart
_MAX_CALLS = 30
_MAX_ARGUMENT_LINES = 6
_MAX_TEXT_LINES = 10
_MAX_PER_KIND = 3  # a fault of every frame is one fault: its first cases show it
_MAX_MESSAGE_LINES = 4
_INDENT = "   "


class Span(NamedTuple):
    text: str
    style: Style = "plain"


Line = tuple[Span, ...]


def lay_out(report: Report, source: str, width: int) -> Iterator[Line]:
    """The screen. `source` is what the user calls the recording."""
    width = max(width, MIN_WIDTH)
    yield from _head(report, source)
    yield from _calls(report, width)
    several = len(report.choices) > 1
    for choice in report.choices:
        yield from _choice(choice, width, several=several)
    yield from _closing(report)
    yield from _problems(report, width)
    yield ()
    yield _verdict(report)


def _head(report: Report, source: str) -> Iterator[Line]:
    size = "body" if report.form == "body" else f"stream of {_count(report.frames, 'frame')}"
    yield (
        Span(visible_line(source), "strong"),
        Span(f": {DIALECTS[report.dialect]}, {size}"),
    )
    facts = (
        ("model", report.model),
        ("id", report.response_id),
        ("HTTP", str(report.status or "")),
    )
    known = [f"{name} {visible_line(_shorten(value, _MAX_FACT))}" for name, value in facts if value]
    if known:
        yield (Span(", ".join(known), "faint"),)


def _calls(report: Report, width: int) -> Iterator[Line]:
    yield ()
    calls = report.calls
    if not calls:
        yield (Span("CALLS", "title"), Span("  none"))
        return
    yield (Span("CALLS", "title"),)
    shown = calls[:_MAX_CALLS]
    names = [_full_name(call) for call in shown]
    verdicts = [_executable(call) for call in shown]
    name_width = max(map(cells, (*names, "name")))
    verdict_width = max(cells(text) for text in (*(span.text for span in verdicts), "executable"))
    room = width - len(_INDENT) - name_width - len("  deltas  ") - verdict_width - 2
    ids = [_show_id(call, max(room, _MIN_ID)) for call in shown]
    id_width = max(map(cells, (*ids, "id")))
    head = f"{_INDENT}{pad('id', id_width)}  {pad('name', name_width)}  deltas  executable"
    yield (Span(head, "faint"),)
    for number, (call, id_, name, verdict) in enumerate(
        zip(shown, ids, names, verdicts, strict=True), 1
    ):
        yield (
            Span(pad(str(number), len(_INDENT)), "faint"),
            Span(pad(id_, id_width), "bad" if call.minted else "plain"),
            Span(f"  {pad(name, name_width)}", "strong"),
            Span(f"  {call.deltas:>6}  "),
            verdict,
        )
        yield from _block(call.arguments, width, _MAX_ARGUMENT_LINES)
    if len(calls) > len(shown):
        left = _count(len(calls) - len(shown), "more call")
        yield (Span(f"{_INDENT}… {left} (see --json)", "faint"),)


def _show_id(call: CallReport, room: int) -> str:
    """An id that does not fit keeps both ends: ids that begin alike differ at the end."""
    if call.minted:
        return "none sent"
    id_ = visible_line(call.id)
    room = min(room, _MAX_ID)
    return id_ if cells(id_) <= room else f"{id_[: room - 5]}…{id_[-4:]}"


def _full_name(call: CallReport) -> str:
    """The name with all that a client needs to tell which tool it is: namespace, kind, choice."""
    marks = [
        f"in {visible_line(_shorten(call.namespace))}" if call.namespace else "",
        call.kind if call.kind not in ("function", call.name) else "",
        f"choice {call.choice}" if call.choice else "",
    ]
    told = ", ".join(filter(None, marks))
    name = visible_line(_shorten(call.name))
    return f"{name} ({told})" if told else name


def _executable(call: CallReport) -> Span:
    words = REASONS.get(call.reason, f"NO: {call.reason}")
    if call.executable:
        return Span(words, "good")
    return Span(words, "faint" if call.reason == "not_client" else "bad")


def _choice(choice: ChoiceReport, width: int, *, several: bool) -> Iterator[Line]:
    which = f" of choice {choice.index}" if several else ""
    sealed = f" ({_count(choice.sealed, 'seal')})" if choice.sealed else ""
    for title, text in (
        (f"TEXT{which}", choice.text),
        (f"REFUSAL{which}", choice.refusal),
        (f"REASONING{which}{sealed}", choice.reasoning or ("sealed" if choice.sealed else "")),
        (f"OTHER PARTS{which}", ", ".join(choice.others)),
    ):
        if text:
            yield ()
            yield (Span(title, "title"),)
            yield from _block(text, width, _MAX_TEXT_LINES)


def _block(text: str, width: int, max_lines: int) -> Iterator[Line]:
    """Indented text, cut when it is long."""
    shown = excerpt(text.rstrip(), width - len(_INDENT), max_lines)
    for line in shown.lines:
        yield (Span(f"{_INDENT}{line}".rstrip()),)
    if shown.is_cut:
        yield (Span(f"{_INDENT}… ({len(text):,} characters in all, see --json)", "faint"),)


def _closing(report: Report) -> Iterator[Line]:
    yield ()
    usage = _say_usage(report.usage) if report.usage is not None else "not reported"
    yield (Span("USAGE", "title"), Span(f"   {usage}"))
    several = len(report.choices) > 1
    for choice in report.choices:
        which = f"choice {choice.index}: " if several else ""
        yield (Span("FINISH", "title"), Span(f"  {which}"), *_say_finish(choice))
    if not report.choices:
        yield (Span("FINISH", "title"), Span("  none", "bad"))


def _say_finish(choice: ChoiceReport) -> Iterator[Span]:
    if choice.finish is None:
        yield Span("none", "bad")
        return
    yield Span(choice.finish)
    if choice.native_finish is not None and choice.native_finish != choice.finish:
        yield Span(f" (as sent: {visible_line(_shorten(choice.native_finish))})", "faint")


def _say_usage(usage: Usage) -> str:
    groups = (
        ("input", usage.input, (("cached", usage.cached), ("cache write", usage.cache_write))),
        ("output", usage.output, (("reasoning", usage.reasoning),)),
        ("total", usage.total, ()),
    )
    said: list[str] = []
    for name, amount, details in groups:
        if amount is None:
            continue
        within = ", ".join(f"{part} {count:,}" for part, count in details if count)
        said.append(f"{name} {amount:,}" + (f" ({within})" if within else ""))
    return ", ".join(said) or "not reported"


def _problems(report: Report, width: int) -> Iterator[Line]:
    if not report.problems:
        return
    yield ()
    yield (Span("PROBLEMS", "title"),)
    first: dict[str, int] = {}
    for position, problem in enumerate(report.problems):
        first.setdefault(problem.kind, position)
    by_kind = sorted(report.problems, key=lambda problem: first[problem.kind])
    for _, group in groupby(by_kind, key=lambda problem: problem.kind):
        yield from _problems_of_kind(list(group), report.form, width)


def _problems_of_kind(problems: list[ProblemReport], form: Form, width: int) -> Iterator[Line]:
    kind = problems[0].kind
    times = f" ({len(problems)} times)" if len(problems) > 1 else ""
    yield (Span(f"{_INDENT}{visible_line(kind)}", "bad"), Span(times))
    for problem in problems[:_MAX_PER_KIND]:
        place = "" if form == "body" else f"{_say_place(problem)}: "
        text = place + visible_line(problem.message)
        for line in excerpt(text, width - 2 * len(_INDENT), _MAX_MESSAGE_LINES).lines:
            yield (Span(f"{_INDENT * 2}{line}".rstrip()),)
    left = problems[_MAX_PER_KIND:]
    if left:
        more = f"… {len(left):,} more (see --json); the last: {_say_place(left[-1])}"
        yield (Span(f"{_INDENT * 2}{more}", "faint"),)
    if kind in EFFECTS:
        effect = excerpt(f"→ {EFFECTS[kind]}", width - 2 * len(_INDENT), _MAX_MESSAGE_LINES)
        for line in effect.lines:
            yield (Span(f"{_INDENT * 2}{line}".rstrip(), "faint"),)


def _say_place(problem: ProblemReport) -> str:
    line = f", line {problem.line}" if problem.line is not None else ""
    return f"frame {problem.frame}{line}"


def _verdict(report: Report) -> Line:
    found = len(report.problems)
    calls = [call for call in report.calls if call.reason != "not_client"]
    runnable = sum(call.executable for call in calls)
    if not calls:
        about = "no calls to run"
    elif runnable == len(calls):
        about = f"{_count(runnable, 'call')} may be run"
    elif not runnable:
        about = f"{_count(len(calls), 'call')}, NONE may be run"
    else:
        about = f"only {runnable} of {len(calls)} calls may be run"
    if found:
        return Span(f"{_count(found, 'problem')} found", "bad"), Span(f"; {about}.")
    return Span("Clean", "good"), Span(f"; {about}.")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _shorten(text: str, limit: int = _MAX_ID) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
