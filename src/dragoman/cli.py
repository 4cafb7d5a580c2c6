"""The `dragoman` command: options, files, exit codes. What is computed lives below; here it is read and written.

A command is an entry of `_COMMANDS`: it adds its options to its parser and sets `run`, from options to an exit code.

    0    clean
    1    problems were found
    2    nothing to read: bad options, a file that cannot be read, bytes that are no recorded answer;
         or nowhere to write
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import BinaryIO, get_args

from dragoman.errors import GatewayError, RequestRefused
from dragoman.inspection.examine import examine
from dragoman.inspection.layout import Line, Style, lay_out
from dragoman.inspection.present import loss_lines, plain, problem_lines, to_json
from dragoman.inspection.recognise import DialectName, recognise
from dragoman.inspection.rewrite import rewrite
from dragoman.inspection.visible import visible_line

__all__ = ("main",)

CLEAN, PROBLEMS, CANNOT_WORK = 0, 1, 2
INTERRUPTED = 130  # as a shell reports a process ended by SIGINT,
BROKEN_PIPE = 141  # and by SIGPIPE

_MAX_INPUT = 1024 * 1024 * 1024  # it is held in memory; recorded answers have megabytes
_READ_SIZE = 1024 * 1024
_PIPED_WIDTH = 100
_MAX_WIDTH = 120  # longer lines are hard to read on any terminal
_COLOURS: dict[Style, str] = {
    "plain": "",
    "title": "bold cyan",
    "faint": "dim",
    "good": "bold green",
    "bad": "bold red",
    "strong": "bold",
}


class _Options(argparse.Namespace):
    run: "Callable[[_Options], int]"
    file: str | None
    dialect: str
    target: DialectName | None
    json: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    options = _make_parser().parse_args(argv, _Options())
    try:
        code = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has left: as for any command in a pipe, that is no fault.
        _discard_output()
        return BROKEN_PIPE
    except OSError as error:
        _discard_output()
        print(f"dragoman: expected to write the output: {error.strerror or error}", file=sys.stderr)
        return CANNOT_WORK
    return code


def _discard_output() -> None:
    """Python flushes standard output once more on exit: let it go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dragoman", description="Interprets LLM tool calls between wire dialects."
    )
    parser.add_argument("--version", action="version", version=f"dragoman {version('dragoman')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (summary, configure) in _COMMANDS.items():
        configure(commands.add_parser(name, help=summary, description=f"{summary.capitalize()}."))
    return parser


def _configure_inspect(parser: argparse.ArgumentParser) -> None:
    dialects = get_args(DialectName)
    parser.epilog = "Exit code: 0 clean, 1 problems found, 2 nothing to read."
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a recorded SSE stream, JSON lines or JSON body; - or nothing: standard input",
    )
    parser.add_argument(
        "--from",
        dest="dialect",
        choices=("auto", *dialects),
        default="auto",
        help="the dialect of the recording (default: auto, by its own shape)",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--to",
        dest="target",
        choices=dialects,
        help="write the answer in this dialect, and the problems to standard error",
    )
    output.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    parser.set_defaults(run=_inspect)


def _inspect(options: _Options) -> int:
    source = "standard input" if options.file in (None, "-") else str(options.file)
    try:
        recognised = recognise(_read(options.file), _chosen(options.dialect))
        report = examine(recognised)
        if options.target is not None:
            rewritten = rewrite(recognised, options.target)
            _write(rewritten.data)
            _complain(problem_lines(report.problems), source)
            _complain(loss_lines(rewritten.losses), source)
        elif options.json:
            _write(to_json(report))
        else:
            width = min(shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns, _MAX_WIDTH)
            _show(tuple(lay_out(report, source, width)))
    except GatewayError as error:
        _complain([error.message], source)
        return CANNOT_WORK
    return PROBLEMS if report.problems else CLEAN


def _chosen(name: str) -> DialectName | None:
    return next((dialect for dialect in get_args(DialectName) if dialect == name), None)


def _read(file: str | None) -> bytes:
    """The whole input.

    Raises:
        RequestRefused: there is none, or it cannot be read.
    """
    if file is None and sys.stdin.isatty():
        raise RequestRefused("expected a FILE, or a recording piped in; got neither")
    try:
        if file is None or file == "-":
            return _read_all(sys.stdin.buffer)
        with Path(file).open("rb") as stream:
            return _read_all(stream)
    except OSError as error:
        raise RequestRefused(f"expected a readable file: {error.strerror or error}") from error


def _read_all(stream: BinaryIO) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := stream.read(_READ_SIZE):
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_INPUT:
            raise RequestRefused(f"expected a recording of at most {_MAX_INPUT:,} bytes, got more")
    if not pieces:
        raise RequestRefused("expected a recorded answer, got an empty file")
    return b"".join(pieces)


def _write(data: bytes) -> None:
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        # With PYTHONUNBUFFERED the file below is raw: one write to a pipe may take only what the pipe holds.
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def _complain(lines: Iterable[str], source: str) -> None:
    for line in lines:
        print(f"dragoman: {visible_line(source)}: {visible_line(line)}", file=sys.stderr)


def _show(lines: Sequence[Line]) -> None:
    text = (_paint(lines) if _wants_colours() else None) or plain(lines)
    _write(text.encode(sys.stdout.encoding, "backslashreplace"))


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


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "inspect": (
        "show the tool calls of a recorded answer, how they arrived, and what is wrong with them",
        _configure_inspect,
    ),
}
"""Each command by its name: what it does, and what adds its options and its `run`."""
