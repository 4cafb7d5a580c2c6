"""A report as text and as JSON: what the command prints. Writes nothing itself."""

import re
from collections.abc import Iterable, Iterator

from dragoman._json import dumps
from dragoman.inspection.dumped import Dumped
from dragoman.inspection.layout import Line
from dragoman.inspection.report import ChoiceReport, ProblemReport, Report
from dragoman.inspection.visible import visible_line
from dragoman.model.outcome import ErrorInfo, Loss, Usage

__all__ = ("loss_lines", "plain", "problem_lines", "to_json", "to_json_dump")

_C1 = re.compile(rb"\xc2([\x80-\x9f])")


def plain(lines: Iterable[Line]) -> str:
    """The screen without styles."""
    return "".join("".join(span.text for span in line).rstrip() + "\n" for line in lines)


def to_json(report: Report) -> bytes:
    """The report as one JSON object on one line, safe to print on a terminal."""
    return _safe(_fields(report))


def to_json_dump(reports: Iterable[tuple[Dumped, Report]]) -> bytes:
    """The same of every answer in a dump, with whose it is."""
    answers = [
        {"request_id": dumped.request_id, "upstream": dumped.upstream, **_fields(report)}
        for dumped, report in reports
    ]
    return _safe({"answers": answers})


def _safe(fields: dict[str, object]) -> bytes:
    # JSON escapes the C0 controls; a terminal may obey the C1 ones too.
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
    if len(report.choices) > 1:
        fields["choices"] = report.choices
    return fields


def problem_lines(problems: Iterable[ProblemReport]) -> Iterator[str]:
    """One line per problem, for a log."""
    for problem in problems:
        line = f", line {problem.line}" if problem.line is not None else ""
        yield f"frame {problem.frame}{line}: {problem.kind}: {visible_line(problem.message)}"


def loss_lines(losses: Iterable[Loss]) -> Iterator[str]:
    """One line per thing the target dialect could not say."""
    for loss in losses:
        where = f" at {visible_line(loss.where)}" if loss.where else ""
        detail = f" ({visible_line(loss.detail)})" if loss.detail else ""
        yield f"loss: {loss.code}{where}{detail}: {loss.action}"


def _usage(usage: Usage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    counts = {
        "input": usage.input,
        "cached": usage.cached,
        "cache_write": usage.cache_write,
        "output": usage.output,
        "reasoning": usage.reasoning,
        "total": usage.total,
    }
    return {name: count for name, count in counts.items() if count is not None}


def _error(error: ErrorInfo | None) -> dict[str, object] | None:
    if error is None:
        return None
    return {
        "kind": error.kind,
        "message": error.message,
        "status": error.status,
        "code": error.code,
        "param": error.param,
    }
