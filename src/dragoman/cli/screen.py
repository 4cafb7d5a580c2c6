"""Standard output and standard error: whole, safe for a terminal, in colours where there is one. And exit codes."""

import os
import sys
from collections.abc import Iterable, Sequence
from io import StringIO

from dragoman.inspection.layout import Line, Style
from dragoman.inspection.present import plain
from dragoman.inspection.visible import visible_line

__all__ = (
    "BROKEN_PIPE",
    "CANNOT_WORK",
    "CLEAN",
    "INTERRUPTED",
    "PROBLEMS",
    "complain",
    "discard_output",
    "is_attended",
    "show",
    "write",
)

CLEAN, PROBLEMS, CANNOT_WORK = 0, 1, 2
INTERRUPTED = 130  # as a shell reports a process ended by SIGINT,
BROKEN_PIPE = 141  # and by SIGPIPE

_COLOURS: dict[Style, str] = {
    "plain": "",
    "title": "bold cyan",
    "faint": "dim",
    "good": "bold green",
    "bad": "bold red",
    "strong": "bold",
}


def write(data: bytes) -> None:
    """Bytes to standard output, all of them."""
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        # With PYTHONUNBUFFERED the file below is raw: one write to a pipe may take only what the pipe holds.
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def show(lines: Sequence[Line]) -> None:
    """Styled lines to standard output."""
    text = (_paint(lines) if _wants_colours() else None) or plain(lines)
    write(text.encode(sys.stdout.encoding, "backslashreplace"))


def is_attended() -> bool:
    """Whether somebody is there to type: standard input is a terminal, and so is a place to ask."""
    try:
        return sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())
    except (AttributeError, ValueError):  # closed before we were started
        return False


def complain(lines: Iterable[str], source: str | None = None) -> None:
    """One line each to standard error, with the name of what they are about."""
    about = "" if source is None else f"{visible_line(source)}: "
    for line in lines:
        print(f"dragoman: {about}{visible_line(line)}", file=sys.stderr)


def discard_output() -> None:
    """Python flushes standard output once more on exit: let it go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wants_colours() -> bool:
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def _paint(lines: Iterable[Line]) -> str | None:
    """The screen in colours; None if rich is not installed."""
    try:
        from rich.console import Console  # noqa: PLC0415 - optional, and slow to import
        from rich.text import Text  # noqa: PLC0415 - the same
    except ImportError:
        return None
    text = Text("\n", end="").join(
        Text.assemble(*((span.text, _COLOURS[span.style]) for span in line)) for line in lines
    )
    painted = StringIO()
    Console(file=painted, force_terminal=True, highlight=False).print(text, soft_wrap=True)
    return painted.getvalue()
