"""Writes to standard output and standard error: completely, safe for a terminal, in colour on a terminal. And exit codes."""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

from dragoman.inspection.layout import Line, plain
from dragoman.inspection.terminal_text import painted, shows_colours, visible_line

CLEAN, PROBLEMS, CANNOT_WORK = 0, 1, 2
INTERRUPTED = 130  # the code by which shells report a process ended by SIGINT
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


def complain(lines: Iterable[str], source: str | None = None) -> None:
    """Write lines to standard error, each with the name of its source."""
    about = "" if source is None else f"{visible_line(source)}: "
    for line in lines:
        print(f"dragoman: {about}{visible_line(line)}", file=sys.stderr)


def discard_output() -> None:
    """Discard standard output, which Python flushes once more on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
