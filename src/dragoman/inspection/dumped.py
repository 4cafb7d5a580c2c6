"""The gateway's dump: answers of several requests in one file, told apart again. Pure.

A line is `{"request_id": …, "answer": n, "dialect": …, "frame": n, "event": {…}, …}`. Lines of answers that came at the
same time are mixed, one request may have several answers (it was tried again), and an answer may lack its beginning, which
was in an older file. What the dump leaves out, such as text as it trickles, is not a fault of
the answer: problems that only mean this are not told.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct, structs

from dragoman._json import as_object
from dragoman.core.fields import Fields, is_present, read_int, read_object, read_text
from dragoman.errors import MalformedJson
from dragoman.inspection.envelope import Recording
from dragoman.inspection.examine import examine
from dragoman.inspection.recognise import DIALECTS, DialectName, Recognised
from dragoman.inspection.report import ProblemReport, Report

__all__ = ("Dumped", "examine_dumped", "open_dump")

_LINE = re.compile(rb"[^\r\n]+")
_DIALECTS: dict[str, DialectName] = {name: name for name in DIALECTS}

# What a dump looks like without the bodies of responses, the deltas, and with the arguments of Chat's calls at the end.
_OF_THE_DUMP: Mapping[DialectName, frozenset[str]] = {
    "responses": frozenset(("missing_output", "missing_start", "late_input", "empty_output")),
    "chat": frozenset(("missing_start", "interleaved_calls")),
    "messages": frozenset(("missing_start",)),
}


class Dumped(Struct, frozen=True):
    """One answer in a dump. `lines` are those of the file on which its events stand, in order."""

    request_id: str
    upstream: str
    recognised: Recognised
    lines: tuple[int, ...]


def open_dump(data: bytes) -> tuple[Dumped, ...] | None:
    """The answers in a dump, in the order in which they began. None if this is no dump."""
    if not _begins_as_dump(data):
        return None
    answers: dict[tuple[str, int | None], _Answer] = {}
    for line, fields in _entries(data):
        dialect = _DIALECTS.get(read_text(fields, "dialect") or "")
        if dialect is None or not _is_entry(fields):
            continue
        request_id = read_text(fields, "request_id") or ""
        key = (request_id, read_int(fields, "answer"))
        if key not in answers:
            answers[key] = _Answer(request_id, read_text(fields, "upstream") or "", dialect)
        answers[key].add(line, bytes(fields["event"]))
    return tuple(answer.dumped() for answer in answers.values())


def examine_dumped(dumped: Dumped) -> Report:
    """What one answer of a dump holds. Lines are those of the dump."""
    report = examine(dumped.recognised)
    problems = tuple(
        structs.replace(problem, line=_line(dumped, problem))
        for problem in report.problems
        if problem.kind not in _OF_THE_DUMP[report.dialect]
    )
    return structs.replace(report, problems=problems)


class _Answer:
    """An answer whose lines are being gathered."""

    def __init__(self, request_id: str, upstream: str, dialect: DialectName) -> None:
        self._names = (request_id, upstream)
        self._dialect: DialectName = dialect
        self._events: list[bytes] = []
        self._lines: list[int] = []

    def add(self, line: int, event: bytes) -> None:
        self._events.append(event)
        self._lines.append(line)

    def dumped(self) -> Dumped:
        recording = Recording(b"\n".join(self._events), "lines")
        recognised = Recognised(self._dialect, "stream", recording)
        return Dumped(*self._names, recognised, tuple(self._lines))


def _entries(data: bytes) -> Iterator[tuple[int, Fields]]:
    """The objects in the file, each with its line; a line that was cut is passed over."""
    line, seen = 1, 0
    for match in _LINE.finditer(data):
        line += data.count(b"\n", seen, match.start())
        seen = match.start()
        try:
            yield line, as_object(match[0])
        except MalformedJson:
            continue


def _begins_as_dump(data: bytes) -> bool:
    """By the first line alone: most recordings are none, and may be large."""
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
    """The line of the event; of the last one for what is found at the end."""
    number = min(problem.frame, len(dumped.lines))
    return dumped.lines[number - 1] if number else None
