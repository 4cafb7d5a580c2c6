"""Writes to standard output and standard error: completely, safe for a terminal, in colour on a terminal. And exit codes."""

import os
import shlex
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import which
from time import monotonic
from typing import Self

from dragoman.inspection.layout import Line, plain
from dragoman.inspection.terminal_text import painted, shows_colours, visible_line

CLEAN, PROBLEMS, CANNOT_WORK = 0, 1, 2
INTERRUPTED = 130  # the code by which shells report a process ended by SIGINT
# Work that is shorter needs no progress; a line that changes more often cannot be read.
_UNNOTICED_SECONDS = 0.5
_REDRAWN_SECONDS = 0.1
BROKEN_PIPE = 141  # the code for SIGPIPE


def write(data: bytes) -> None:
    """Write all bytes to standard output."""
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        # With PYTHONUNBUFFERED the file is raw, and one write to a pipe may write only a part.
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def show(lines: Sequence[Line]) -> None:
    """Write styled lines to standard output."""
    if sys.stdout.isatty() and shows_colours(os.environ):
        painted_lines = ("".join(painted(*span) for span in line) + "\n" for line in lines)
        text = "".join(painted_lines)
    else:
        text = plain(lines)
    write(text.encode(sys.stdout.encoding, "backslashreplace"))


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def is_attended() -> bool:
    """Whether a person can be asked: standard input is a terminal, and so is standard output or standard error."""
    try:
        return sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())
    except (AttributeError, ValueError):  # closed before the program started
        return False


def discard_typed(descriptor: int) -> None:
    """Discard input that was typed on a terminal before a question: it is not an answer to this question."""
    with suppress(ImportError, OSError):
        import termios  # noqa: PLC0415 - not on every system

        termios.tcflush(descriptor, termios.TCIFLUSH)


def own_command() -> str:
    """This command as a person can type it here: `dragoman`, or where its script is if that is not on the PATH (a checkout)."""
    if which("dragoman") is not None:
        return "dragoman"
    script = Path(sysconfig.get_path("scripts")) / "dragoman"
    with suppress(OSError, ValueError):  # ValueError: it is in another folder
        script = script.relative_to(Path.cwd())
    return shlex.join([str(script)] if script.exists() else [sys.executable, "-m", "dragoman"])


def complain(lines: Iterable[str], source: str | None = None) -> None:
    """Write lines to standard error, each with the name of its source."""
    about = "" if source is None else f"{visible_line(source)}: "
    for line in lines:
        print(f"dragoman: {about}{visible_line(line)}", file=sys.stderr)


class ProgressLine:
    """How far long work is, on one line of standard error: only on a terminal, and only once it has taken a while.

    `total` is in bytes unless `unit` says otherwise; 0 if it is not known.
    """

    def __init__(self, verb: str, total: int, unit: str = "MB") -> None:
        self._verb, self._total, self._unit = verb, total, unit
        self._done = 0
        self._is_shown = False
        self._next = monotonic() + _UNNOTICED_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def advance(self, amount: int) -> None:
        self._done += amount
        now = monotonic()
        if now >= self._next and sys.stderr.isatty():
            self._next = now + _REDRAWN_SECONDS
            self._is_shown = True
            print(f"\r\x1b[Kdragoman: {self._text()}", end="", file=sys.stderr, flush=True)

    def _text(self) -> str:
        scale = 1_000_000 if self._unit == "MB" else 1
        done = f"{self._done / scale:,.0f}"
        of = f" of {self._total / scale:,.0f}" if self._total else ""
        return f"{self._verb}: {done}{of} {self._unit}"


def discard_output() -> None:
    """Discard standard output, which Python flushes once more on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
