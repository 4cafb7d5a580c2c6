"""The line of a request for a person at a terminal, and the details below it if something went wrong.

    time      endpoint→upstream     model                       finish          first  total    tokens  calls
    23:41:07  messages→local        claude-x→qwen3-coder        tool_calls      0.10s  0.50s    120→30  get_weather
              losses    schema carry ×27, stop drop
              request   req_4f1c

Every line has at most `WIDTH` columns, so that the terminal does not wrap it. Names are cut to their columns; the JSON lines (`logs`) have
them in full. What else is logged has the same columns: time, level, message.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from dragoman.core.secrets import clean, redact
from dragoman.inspection.terminal_text import Style, cut_to, pad, painted, wrapped
from dragoman.server.observe.record import RequestRecord

WIDTH = 120
# A model name or a tool name has some tens of characters, a request id up to 128.
MAX_NAME = 128
MAX_MESSAGE = 500
# If a request has a hundred losses, the first few show the cause; the metrics count all.
MAX_LISTED = 8

_WAY, _MODEL, _FINISH, _FIRST, _TOTAL, _TOKENS = 21, 27, 14, 6, 6, 10
_LABEL = 9
_MOST_TOKENS = 10**11  # an upstream may report any number; the line has no room for a larger one
_INDENT = " " * 10
DETAIL_WIDTH = WIDTH - len(_INDENT) - _LABEL - 1
"""The columns for the text of a detail, or of another log line; more of it follows on the next line."""


class _Cell(NamedTuple):
    text: str
    style: Style = "plain"


def console_line(record: RequestRecord, now: float) -> str:
    """The line of a request without colours, and its details below it."""
    return "\n".join("".join(cell.text for cell in line).rstrip() for line in _lines(record, now))


def coloured_line(record: RequestRecord, now: float) -> str:
    """`console_line` in colours."""
    return "\n".join("".join(painted(*cell) for cell in line) for line in _lines(record, now))


def word(text: str) -> str:
    """A name as one word: spaces in it could look like a column separator."""
    shown = clean(text, MAX_NAME) or "-"
    return f'"{shown}"' if " " in shown else shown


# Consecutive lines have the same second, and formatting a second costs more than the rest of the time stamp.
@lru_cache(maxsize=4)
def local_second(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))


def log_line(now: float, level: str, text: str) -> str:
    """A line that is not about a request."""
    first, *more = wrapped(text, DETAIL_WIDTH)
    indent = " " * (len(_INDENT) + _LABEL + 1)
    rows = [f"{local_second(int(now))}  {level:<{_LABEL}} {first}", *(indent + row for row in more)]
    return "\n".join(row.rstrip() for row in rows)


def _lines(record: RequestRecord, now: float) -> Iterator[tuple[_Cell, ...]]:
    columns = (
        _Cell(f"{local_second(int(now))}  ", "faint"),
        _Cell(f"{_column(f'{record.door}→{word(record.peer or record.upstream)}', _WAY)} "),
        _Cell(f"{_column(_model(record), _MODEL)} ", "strong"),
        _Cell(f"{_column(_outcome(record), _FINISH)} ", _style(record)),
        _Cell(
            f"{_seconds(record.first_byte_s):>{_FIRST}} {_seconds(record.duration_s):>{_TOTAL}} "
        ),
        _Cell(
            f"{_count(record.input_tokens)}→{_count(record.output_tokens)}".rjust(_TOKENS), "faint"
        ),
    )
    room = WIDTH - sum(len(cell.text) for cell in columns) - 2
    cached = f"{_count(record.cached_tokens)} cached" if record.cached_tokens else ""
    calls = _calls(record, room - len(cached) - 2 * bool(cached))
    tail = [_Cell(f"  {calls}", "title")] if calls else []
    if cached and len(calls) + 2 * bool(calls) + len(cached) <= room:
        tail.append(_Cell(f"  {cached}", "faint"))
    yield (*columns, *tail)
    for label, text, style in _details(record):
        for number, row in enumerate(wrapped(text, DETAIL_WIDTH)):
            head = label if number == 0 else ""
            yield _Cell(f"{_INDENT}{head:<{_LABEL}} ", "faint"), _Cell(row.rstrip(), style)


def _column(text: str, width: int) -> str:
    return pad(cut_to(text, width), width)


def _model(record: RequestRecord) -> str:
    model = word(record.model)
    if record.upstream_model and record.upstream_model != record.model:
        return f"{model}→{word(record.upstream_model)}"
    return model


def _outcome(record: RequestRecord) -> str:
    if record.client_gone:
        return "client left"
    if record.status >= 400 or (record.error_kind is not None and record.finish is None):
        return f"{record.status or ''} {record.error_kind or ''}".strip()
    return record.finish or "-"


def _style(record: RequestRecord) -> Style:
    if record.error_kind is not None or record.status >= 400 or record.finish == "error":
        return "bad"
    is_odd = record.client_gone or record.finish not in ("stop", "stop_sequence", "tool_calls")
    return "warning" if is_odd else "good"


def _calls(record: RequestRecord, room: int) -> str:
    """The tools that the client or the gateway runs; only the number of calls if the names do not fit."""
    names = [word(name) for name in record.call_names]
    hosted = [f"{word(call.name)} (here)" for call in record.hosted]
    shown = _folded([*names, *hosted])
    if len(names) == record.call_count and len(shown) <= room:
        return shown
    counts = (
        (record.call_count, "call" if record.call_count == 1 else "calls"),
        (len(hosted), "here"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def _folded(entries: Iterable[str]) -> str:
    """Each entry once, in the order of first appearance, with its count."""
    counts = Counter(entries)
    shown = [entry if count == 1 else f"{entry} ×{count}" for entry, count in counts.items()]
    more = len(shown) - MAX_LISTED
    return ", ".join(shown if more <= 0 else [*shown[:MAX_LISTED], f"and {more} more"])


def _details(record: RequestRecord) -> Iterator[tuple[str, str, Style]]:
    """The details of what went wrong: a label, what to show, and its style."""
    details: list[tuple[str, str, Style]] = []
    if record.error_kind is not None:
        message = clean(redact(record.error[: MAX_MESSAGE * 2]), MAX_MESSAGE)
        details.append(("error", f"{record.error_kind}: {message}".rstrip(": "), "bad"))
    if record.failed:
        tried = _folded(f"{word(upstream)} ({kind})" for upstream, kind in record.failed)
        last = (
            ""
            if record.error_kind is not None
            else f", then {word(record.peer or record.upstream)} answered"
        )
        details.append(("failed", f"{tried}{last}", "warning"))
    if record.losses:
        shown = _folded(
            _named([(f"{each.code} {each.action}", each.where) for each in record.losses])
        )
        details.append(("losses", shown, "plain"))
    if record.repairs:
        shown = _folded(_named([(each.rule, each.where) for each in record.repairs]))
        details.append(("repairs", shown, "plain"))
    if record.problems:
        details.append(("problems", _folded(each.kind for each in record.problems), "warning"))
    if details:
        yield from details
        yield "request", word(record.request_id), "faint"
        if record.trace_id:
            yield "trace", record.trace_id, "faint"


def _named(found: list[tuple[str, str]]) -> Iterator[str]:
    """Each entry with its place if it is the only one of its kind."""
    counts = Counter(kind for kind, _ in found)
    for kind, where in found:
        place = clean(where, MAX_NAME)
        yield f"{kind} {place}".rstrip() if counts[kind] == 1 else clean(kind, MAX_NAME)


def _seconds(elapsed: float | None) -> str:
    if elapsed is None:
        return "-"
    return f"{elapsed:.2f}s" if elapsed < 100 else f"{elapsed:.0f}s"


def _count(number: int | None) -> str:
    if number is None:
        return "-"
    if number < 10_000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1000:.0f}k"
    return f"{min(number, _MOST_TOKENS) / 1_000_000:.1f}M"
