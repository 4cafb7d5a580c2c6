"""A report as one screen of styled lines, as JSON and as plain text, with a sentence for each kind of problem.

The screen is wrapped and aligned for a width; its styles are names, which `cli.screen` shows as colours. Long values are cut, with a
note; the JSON has the whole values. The problems and the verdict come last, because the user looks there when the command
has ended.

The effects are those seen in real clients (the OpenAI and Anthropic SDKs, LangChain, pydantic-ai, litellm, the AI SDK,
Codex, Claude Code) or reported against them. A kind that is not listed is shown without a sentence.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from dragoman._json import dumps
from dragoman.dialects.shapes import DIALECTS, Form
from dragoman.inspection.report import (
    CallReport,
    ChoiceReport,
    ProblemReport,
    Report,
    Timing,
)
from dragoman.inspection.terminal_text import Style, cells, excerpt, pad, visible_line
from dragoman.model.outcome import ErrorInfo, Loss, Usage

REASONS: Mapping[str, str] = {
    "complete": "yes",
    "not_closed": "NO: cut off",
    "no_name": "NO: no name",
    "invalid_json": "NO: not JSON",
    "not_client": "provider runs it",
}
"""Whether the call may be run. `complete` is the only yes; `not_client` is not a problem."""

EFFECTS: Mapping[str, str] = {
    "after_block_stop": "Clients have closed the block by then and throw, or lose what comes late.",
    "after_done": "Clients have closed the item by then and lose what comes late.",
    "after_end": "Clients stop reading at the end; what follows it is lost.",
    "after_finish": "Some clients have closed the answer by then and lose what comes late.",
    "changed_name": "Clients keep the first name, the last, or both joined together.",
    "content_in_start": "Most clients take content from deltas only and lose this.",
    "cumulative_input": "Clients that append each piece get the arguments several times over.",
    "cut_stream": "Many clients do not notice, and run calls they received only half of.",
    "delta_mismatch": "Some clients throw at a delta that does not fit its block.",
    "duplicate_id": "Two calls share one id; their results cannot be distinguished.",
    "early_input": "Clients that add the deltas to it get the arguments twice.",
    "empty_id": "Clients that take every id they see lose the real one.",
    "empty_name": "Clients that take every name they see lose the real one.",
    "empty_output": "Clients that read only the last event see an answer without calls.",
    "foreign_body": "The server answered in another format than the one it was asked for.",
    "foreign_item_id": "Clients send item ids back, and OpenAI rejects one with another prefix.",
    "frame_too_large": "Clients with a smaller limit give up much earlier.",
    "id_mismatch": "Clients that collect by id lose a part of the call.",
    "index_gap": "Clients that use the index as a position throw, or mix up blocks.",
    "index_reused": "Clients that collect by index join the calls together.",
    "inferred_end": "The server never said that the call is complete; strict clients wait or fail.",
    "input_after_end": "Clients have closed the call by then and run it without this.",
    "input_disagrees": "Clients run the streamed or the final arguments; they are not the same.",
    "input_in_start": "Claude Code and litellm take input from deltas only, and run the tool with {}.",
    "interleaved_blocks": "Several clients mix up blocks that overlap; one must end before the next starts.",
    "interleaved_calls": "Several clients mix up calls whose deltas alternate; one must end before the next starts.",
    "invalid_arguments": "The tool cannot be called with this. Most clients throw; some run it with {}.",
    "invalid_utf8": "A proxy cut a character in two, or the text is not UTF-8.",
    "late_id": "Some clients throw when the first piece of a call has no id.",
    "late_input": "Clients that take arguments from deltas only run the tool with nothing.",
    "late_name": "Some clients throw when the first piece of a call has no name.",
    "malformed_body": "No client can read this answer. Was the recording cut?",
    "malformed_call": "Clients throw at such an entry, or run the other calls without it.",
    "malformed_frame": "Most clients throw at such a frame and lose the rest of the answer.",
    "malformed_item": "Clients throw at an item they cannot read.",
    "misplaced_input": "Clients look inside `function` and find no arguments.",
    "missing_added": "Clients throw at events of an item they do not know.",
    "missing_annotations": "pydantic-ai and the AI SDK throw without it.",
    "missing_blank_lines": "Either the recording dropped them, or no conforming client can read this stream.",
    "missing_block_start": "Clients throw at content of a block they do not know.",
    "missing_block_stop": "Clients that run a call when its block stops never run it.",
    "missing_done": "Codex and the AI SDK take calls from it only, and never run this one.",
    "missing_end": "Strict clients report that the stream was cut.",
    "missing_event_name": "The Anthropic SDKs skip events without a name: they see an empty stream.",
    "missing_finish": "Some clients throw; others stop without running the calls.",
    "missing_id": "The result cannot be paired with the call; some clients throw.",
    "missing_index": "Clients take a missing index for 0 and merge parallel calls, or drop the call.",
    "missing_input": "It must not be run: its arguments never came.",
    "missing_name": "It is unknown which tool is meant.",
    "missing_output": "The OpenAI SDK for Node throws without it.",
    "missing_start": "Clients throw when the first event is another.",
    "missing_status": "The AI SDK throws without it.",
    "missing_type": "Clients that read the payload do not know what it is.",
    "missing_usage": "The Anthropic SDKs, pydantic-ai, litellm and the AI SDK throw without it.",
    "nameless_call": "It is unknown which tool is meant.",
    "null_call": "Clients that read every entry throw at it.",
    "object_input": "Most clients expect a string there and throw.",
    "partial_usage": "Strict clients throw without these counts.",
    "provider_error": "The provider says so itself; the recording is not at fault.",
    "quoted_input": "Tools that expect an object fail.",
    "repeated_finish": "Clients keep the first or the last finish; they are not the same.",
    "repeated_id": "Clients that open a call at every id open too many, or pair results wrongly.",
    "repeated_item": "Clients may run the same call twice.",
    "repeated_name": "Clients that append names get the name several times over, and find no such tool.",
    "repeated_signature": "Only one signature can be sent back.",
    "repeated_start": "Clients begin the answer again and lose what came before.",
    "split_choices": "Clients that read one choice see only a part of the answer.",
    "split_name": "Clients that do not append names know only a part of it, and find no such tool.",
    "string_input": "The AI SDK throws at it.",
    "text_disagrees": "Clients show the streamed or the final text; they are not the same.",
    "unfinished_call": "It must not be run: its arguments lack their end.",
    "unknown_block": "Strict clients throw at a block they do not know.",
    "unknown_delta": "Strict clients throw at a delta they do not know.",
    "unknown_event": "Strict clients throw at an event they do not know.",
    "unknown_finish": "Some clients stop the loop at a finish they do not know.",
    "unplaced_event": "Clients throw at events of an item they do not know.",
    "unquoted_input": "Tools that expect an object fail.",
    "unstreamed_item": "Clients that read the stream never see this item.",
    "wrong_event_name": "Clients that go by the event's name and those that go by its type disagree.",
    "wrong_finish": "Some clients end the turn without running the calls.",
}
"""The effect of each kind of problem on clients."""


MIN_WIDTH = 40
"""Columns cannot be aligned in a smaller width; a narrower terminal wraps the lines itself."""
_MAX_ID = 40  # ids of vendors have up to 30 characters; a hostile id must not break the columns
_MAX_FACT = 80  # OpenAI's response ids have 53 characters
_MIN_ID = 12  # prefix and enough of the rest to distinguish ids
_MAX_CALLS = 30
_MAX_ARGUMENT_LINES = 6
_MAX_TEXT_LINES = 10
_MAX_PER_KIND = 3  # if every frame has the same problem, the first ones show it
_MAX_MESSAGE_LINES = 4
_INDENT = "   "


class Span(NamedTuple):
    text: str
    style: Style = "plain"


Line = tuple[Span, ...]


def lay_out(report: Report, source: str, width: int) -> Iterator[Line]:
    """The screen. `source`: the user's name for the recording."""
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
    """The name with what identifies the tool: namespace, kind, choice."""
    marks = [
        f"in {visible_line(_shorten(call.namespace))}" if call.namespace else "",
        call.kind if call.kind not in ("function", call.name) else "",
        f"choice {call.choice}" if call.choice else "",
    ]
    notes = ", ".join(filter(None, marks))
    name = visible_line(_shorten(call.name))
    return f"{name} ({notes})" if notes else name


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
    usage = _describe_usage(report.usage) if report.usage is not None else "not reported"
    yield (Span("USAGE", "title"), Span(f"   {usage}"))
    if report.timing is not None:
        yield (Span("TIME", "title"), Span(f"    {_describe_timing(report.timing)}"))
    several = len(report.choices) > 1
    for choice in report.choices:
        which = f"choice {choice.index}: " if several else ""
        yield (Span("FINISH", "title"), Span(f"  {which}"), *_describe_finish(choice))
    if not report.choices:
        yield (Span("FINISH", "title"), Span("  none", "bad"))


def _describe_finish(choice: ChoiceReport) -> Iterator[Span]:
    if choice.finish is None:
        yield Span("none", "bad")
        return
    yield Span(choice.finish)
    if choice.native_finish is not None and choice.native_finish != choice.finish:
        yield Span(f" (as sent: {visible_line(_shorten(choice.native_finish))})", "faint")


def _describe_timing(timing: Timing) -> str:
    first = f"first frame after {_milliseconds(timing.first_ms)}, " if timing.first_ms else ""
    gap = (
        f"longest {_milliseconds(timing.longest_gap_ms)}, before frame {timing.longest_gap_frame:,}"
    )
    between = f"between frames {_milliseconds(timing.median_gap_ms)} (median)"
    return f"{first}last after {_milliseconds(timing.total_ms)}; {between}, {gap}"


def _milliseconds(value: float) -> str:
    return f"{value:.3g} ms" if value < 1000 else f"{value / 1000:.2f} s"


def _describe_usage(usage: Usage) -> str:
    groups = (
        ("input", usage.input, (("cached", usage.cached), ("cache write", usage.cache_write))),
        ("output", usage.output, (("reasoning", usage.reasoning),)),
        ("total", usage.total, ()),
    )
    amounts: list[str] = []
    for name, amount, details in groups:
        if amount is None:
            continue
        within = ", ".join(f"{part} {count:,}" for part, count in details if count)
        amounts.append(f"{name} {amount:,}" + (f" ({within})" if within else ""))
    return ", ".join(amounts) or "not reported"


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
        place = "" if form == "body" else f"{_describe_place(problem)}: "
        text = place + visible_line(problem.message)
        yield from _indented(text, width)
    left = problems[_MAX_PER_KIND:]
    if left:
        more = f"… {len(left):,} more (see --json); the last: {_describe_place(left[-1])}"
        yield (Span(f"{_INDENT * 2}{more}", "faint"),)
    if kind in EFFECTS:
        yield from _indented(f"→ {EFFECTS[kind]}", width, "faint")


def _indented(text: str, width: int, style: Style = "plain") -> Iterator[Line]:
    for line in excerpt(text, width - 2 * len(_INDENT), _MAX_MESSAGE_LINES).lines:
        yield (Span(f"{_INDENT * 2}{line}".rstrip(), style),)


def _describe_place(problem: ProblemReport) -> str:
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


_C1 = re.compile(rb"\xc2([\x80-\x9f])")


def plain(lines: Iterable[Line]) -> str:
    """The screen without styles."""
    return "".join("".join(span.text for span in line).rstrip() + "\n" for line in lines)


def to_json(report: Report) -> bytes:
    """The report as one JSON object on one line, safe to print on a terminal."""
    return _safe(_fields(report))


def to_json_answers(answers: Iterable[tuple[str, str, Report]]) -> bytes:
    """The reports of several answers as one JSON object, each with the id of its request and its upstream."""
    return _safe(
        {
            "answers": [
                {"request_id": request_id, "upstream": upstream, **_fields(report)}
                for request_id, upstream, report in answers
            ]
        }
    )


def _safe(fields: dict[str, object]) -> bytes:
    # JSON escapes the C0 controls; a terminal may act on the C1 controls too.
    return _C1.sub(lambda match: b"\\u00%02x" % match[1][0], dumps(fields)) + b"\n"


def _fields(report: Report) -> dict[str, object]:
    first = report.choices[0] if report.choices else ChoiceReport(index=0)
    fields: dict[str, object] = {
        "dialect": report.dialect,
        "form": report.form,
        "frames": report.frames,
        "id": report.response_id or None,
        "model": report.model or None,
        "calls": report.calls,
        "text": first.text,
        "reasoning": first.reasoning,
        "refusal": first.refusal or None,
        "usage": _usage(report.usage),
        "finish": first.finish,
        "error": _error(report.error),
        "problems": report.problems,
    }
    if report.timing is not None:
        fields["timing"] = report.timing
    if len(report.choices) > 1:
        fields["choices"] = report.choices
    return fields


def problem_lines(problems: Iterable[ProblemReport]) -> Iterator[str]:
    """One line per problem, for a log."""
    for problem in problems:
        yield f"{_describe_place(problem)}: {problem.kind}: {visible_line(problem.message)}"


def loss_lines(losses: Iterable[Loss]) -> Iterator[str]:
    """One line per loss: something that the target dialect cannot express."""
    for loss in losses:
        where = f" at {visible_line(loss.where)}" if loss.where else ""
        detail = f" ({visible_line(loss.detail)})" if loss.detail else ""
        yield f"loss: {loss.code}{where}{detail}: {loss.action}"


def _usage(usage: Usage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    names = ("input", "cached", "cache_write", "output", "reasoning", "total")
    return {name: count for name in names if (count := getattr(usage, name)) is not None}


def _error(error: ErrorInfo | None) -> dict[str, object] | None:
    if error is None:
        return None
    return {name: getattr(error, name) for name in ("kind", "message", "status", "code", "param")}
