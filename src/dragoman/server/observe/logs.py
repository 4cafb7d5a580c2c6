"""The log: one line per request, as JSON or for a person (`console`), and the same two formats for what libraries log.

A request's line is made from its record, which has no content. It is written directly to the handler that
`configure_logging` installed; in a program that embeds the gateway with its own logging, it goes to the logger
`dragoman.requests`. At debug level, the logger `dragoman.calls` gets one line per tool call, without its input. Values that a
client sent are truncated, and escaped so that they stay on one line.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TextIO

from msgspec import Struct

from dragoman._json import dumps
from dragoman.config.settings import LogSettings
from dragoman.core.secrets import NO_SECRETS, Secrets, clean, redact
from dragoman.core.usage import Tally
from dragoman.inspection.receipt import receipt_words
from dragoman.inspection.terminal_text import shows_colours
from dragoman.obsidian.answer import ObsidianReport
from dragoman.server.observe.console import (
    MAX_LISTED,
    MAX_MESSAGE,
    MAX_NAME,
    coloured_line,
    console_line,
    log_line,
    word,
)
from dragoman.server.observe.record import RequestRecord

REQUESTS = "dragoman.requests"
CALLS = "dragoman.calls"

MAX_LINE = 4000
# The attempts of one request follow one another faster; what happens again later is shown again.
_REPEATED_SECONDS = 5.0


class RequestLog:
    """Writes the lines of requests. `settings.format` applies if our handler is not installed."""

    __slots__ = ("_logger", "_render", "_root")

    def __init__(self, settings: LogSettings) -> None:
        self._logger = logging.getLogger(REQUESTS)
        self._root = logging.getLogger()
        self._render = json_line if settings.format == "json" else console_line

    def write(self, records: Sequence[RequestRecord]) -> None:
        """Write the lines of finished requests in one write."""
        is_enabled = self._logger.isEnabledFor
        shown = records
        if not is_enabled(logging.INFO):  # the lowest level of a record
            shown = [record for record in records if is_enabled(level_of(record))]
        if not is_enabled(logging.DEBUG):
            for record in shown:
                record.caller = ""  # callers are logged only at debug level
        now = time.time()
        for handler in self._root.handlers:
            if type(handler) is LineHandler:
                handler.write_lines([handler.render(record, now) for record in shown])
                return
        for record in shown:
            self._logger.log(level_of(record), "%s", self._render(record, now))


_calls = logging.getLogger(CALLS)


def log_calls(record: RequestRecord, tally: Tally) -> None:
    """Log one line for each call of an answer, at debug level. An input may hold secrets: only its size is logged."""
    if not _calls.isEnabledFor(logging.DEBUG):
        return
    for name, call_id, size in tally.calls:
        _calls.debug(
            "tool call %s, id %s, %d characters of input, %s to %s, request %s",
            word(name),
            word(call_id),
            size,
            record.upstream_dialect,
            record.door,
            word(record.request_id),
        )
    if tally.call_count > len(tally.calls):
        _calls.debug("and %d more tool calls", tally.call_count - len(tally.calls))


_LEVEL_NAMES = {logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}


def level_of(record: RequestRecord) -> int:
    """Server errors are errors, refused requests and clients that left are warnings, and the rest is information."""
    if record.client_gone:
        return logging.WARNING
    if record.status >= 500 or (record.error_kind is not None and record.status < 400):
        return logging.ERROR
    return logging.WARNING if record.status >= 400 else logging.INFO


class _RequestLine(Struct, omit_defaults=True):
    """The members of a line, in their order. The first nineteen are always there, and the others if they have a value."""

    time: str
    level: str
    event: str
    request_id: str
    door: str
    upstream: str
    model: str
    upstream_model: str
    status: int
    stream: bool
    tool_calls: int
    finish: str | None
    input_tokens: int | None
    output_tokens: int | None
    first_byte_ms: float | None
    duration_ms: float
    bytes_in: int
    bytes_out: int
    attempts: int
    peer: str = ""
    failed_attempts: Sequence[str] = ()
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    tool_names: Sequence[str] = ()
    error_kind: str | None = None
    error: str | None = None
    client_gone: bool = False
    caller: str = ""
    key: str = ""
    losses: Sequence[str] = ()
    repairs: Sequence[str] = ()
    problems: Sequence[str] = ()
    trace_id: str = ""
    hosted_calls: int | None = None
    hosted_names: Sequence[str] = ()
    receipt: Sequence[str] | None = None
    chat_contract: dict[str, object] | None = None


def json_line(record: RequestRecord, now: float) -> str:
    """The line of a request as one JSON object, without further members that have no value."""
    model = clean(record.model, MAX_NAME)
    is_renamed = record.upstream_model != record.model
    line = _RequestLine(  # by position, which takes half the time of a dictionary; keywords take longer than that
        _utc(now),
        _LEVEL_NAMES[level_of(record)],
        "request",
        clean(record.request_id, MAX_NAME),
        record.door,
        record.upstream,
        model,
        clean(record.upstream_model, MAX_NAME) if is_renamed else model,
        record.status,
        record.stream,
        record.call_count,
        record.finish,
        record.input_tokens,
        record.output_tokens,
        None if record.first_byte_s is None else _ms(record.first_byte_s),
        _ms(record.duration_s),
        record.bytes_in,
        record.bytes_out,
        record.attempts,
        record.peer,
        [f"{upstream} {kind}" for upstream, kind in record.failed] if record.failed else (),
        record.cached_tokens,
        record.cache_write_tokens,
        [clean(name, MAX_NAME) for name in record.call_names] if record.call_names else (),
    )
    if record.error_kind is not None:
        line.error_kind = record.error_kind
        line.error = clean(redact(record.error[: MAX_MESSAGE * 2]), MAX_MESSAGE)
    if record.client_gone:
        line.client_gone = True
    if record.caller or record.key:
        line.caller, line.key = record.caller, record.key
    if record.losses or record.repairs or record.problems:
        line.losses = _listed([f"{each.code} {each.action} {each.where}" for each in record.losses])
        line.repairs = _listed([f"{each.rule} {each.where}" for each in record.repairs])
        line.problems = _listed([problem.kind for problem in record.problems])
    if record.hosted or record.receipt or record.obsidian or record.trace_id:
        _add_special(line, record)
    return dumps(line).decode("utf-8")


def _add_special(line: _RequestLine, record: RequestRecord) -> None:
    """What only some answers have: a trace, calls that the gateway ran, a receipt, the Obsidian policy."""
    line.trace_id = record.trace_id
    if record.hosted:
        line.hosted_calls = len(record.hosted)
        line.hosted_names = [clean(call.name, MAX_NAME) for call in record.hosted[:MAX_LISTED]]
    if record.receipt is not None:
        words = receipt_words(record.receipt)[:MAX_LISTED]
        line.receipt = [clean(call, MAX_MESSAGE) for call in words]
    if record.obsidian is not None:
        line.chat_contract = _obsidian(record.obsidian)


def _listed(entries: list[str]) -> Sequence[str]:
    """The first entries, and how many more there are."""
    if not entries:
        return ()
    more = [f"and {len(entries) - MAX_LISTED} more"] if len(entries) > MAX_LISTED else []
    return [*(clean(entry.rstrip(), MAX_NAME) for entry in entries[:MAX_LISTED]), *more]


def _obsidian(report: ObsidianReport) -> dict[str, object]:
    """The facts of the stream's last comment, and the names and ids of the calls."""
    return {
        **report.log_fields,
        "tool_call_names": [clean(name, MAX_NAME) for name in report.tool_call_names],
        "tool_call_ids": [clean(call_id, MAX_NAME) for call_id in report.tool_call_ids],
    }


def _ms(seconds: float) -> float:
    return int(seconds * 10_000 + 0.5) / 10  # `round` takes five times as long


@lru_cache(maxsize=1)  # many lines are written at a time
def _utc(now: float) -> str:
    whole = int(now)
    return f"{_utc_second(whole)}.{int((now - whole) * 1000):03d}Z"


# Consecutive lines have the same second, and formatting a second costs more than the rest of the time stamp.
@lru_cache(maxsize=4)
def _utc_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


class _Formatter(logging.Formatter):
    """Hides secrets: first known values (`secrets`), then anything that looks like a credential."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def shown(self, text: str) -> str:
        return redact(self._secrets.hide(text))

    def message(self, record: logging.LogRecord) -> str:
        return clean(self.shown(record.getMessage()), MAX_LINE)


class JsonFormatter(_Formatter):
    """Formats other log records as JSON: time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "event": "log",
            "logger": record.name,
            "message": self.message(record),
        }
        if record.exc_info:
            line["traceback"] = self.shown(self.formatException(record.exc_info))
        return dumps(line).decode("utf-8")


class ConsoleFormatter(_Formatter):
    """Formats other log records for a person; a traceback follows on its own lines, indented. Only libraries' loggers are named."""

    def format(self, record: logging.LogRecord) -> str:
        is_own = record.name.startswith("dragoman.") and record.levelno > logging.DEBUG
        text = self.message(record) if is_own else f"{record.name}: {self.message(record)}"
        line = log_line(record.created, record.levelname.lower(), text)
        if not record.exc_info:
            return line
        trace = self.shown(self.formatException(record.exc_info)).splitlines()
        return "\n".join([line, *(f"    {clean(each, MAX_LINE)}" for each in trace)])


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes to a stream, one line at a time, in one of the two formats."""

    def __init__(
        self,
        stream: TextIO,
        render: Callable[[RequestRecord, float], str],
        secrets: Secrets = NO_SECRETS,
    ) -> None:
        super().__init__(stream)
        self.render = render
        self._last = ("", 0.0)  # the message of the last record, and its time
        self.setFormatter((JsonFormatter if render is json_line else ConsoleFormatter)(secrets))

    def emit(self, record: logging.LogRecord) -> None:
        if self.render is json_line or not self._is_repeated(record):
            self.write_lines([self.format(record)])

    def _is_repeated(self, record: logging.LogRecord) -> bool:
        """Whether a record says what the one before it said. A person need not read of each attempt of a request."""
        message, before = record.getMessage(), self._last
        self._last = (message, record.created)
        return message == before[0] and record.created - before[1] < _REPEATED_SECONDS

    def write_lines(self, lines: Sequence[str]) -> None:
        """Write whole lines. A closed log stream must not stop the gateway."""
        try:
            self.stream.write("".join([line + "\n" for line in lines]))
            self.stream.flush()
        except (OSError, ValueError):
            pass


def configure_logging(
    settings: LogSettings, stream: TextIO | None = None, secrets: Secrets = NO_SECRETS
) -> None:
    """Log everything in this process to one stream, standard error by default.

    secrets: hidden in every line. For a process of our own; a program that embeds the gateway configures logging itself.
    """
    target = stream or sys.stderr
    is_terminal = target.isatty()
    render = coloured_line if is_terminal and shows_colours(os.environ) else console_line
    if settings.format == "json" or (settings.format == "auto" and not is_terminal):
        render = json_line
    root = logging.getLogger()
    root.handlers[:] = [LineHandler(target, render, secrets)]
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    # Below a warning, libraries log little that helps an operator, except while debugging.
    root.setLevel(level if level == logging.DEBUG else max(level, logging.WARNING))
    logging.getLogger("dragoman").setLevel(level)
