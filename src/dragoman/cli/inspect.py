"""`dragoman inspect`: the contents of a recorded answer, as `dragoman.inspection` finds them."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import BinaryIO, get_args

from dragoman.cli.options import Options
from dragoman.cli.screen import CANNOT_WORK, CLEAN, PROBLEMS, complain, show, write
from dragoman.dialects.shapes import DialectName
from dragoman.errors import GatewayError, RequestRefused
from dragoman.inspection.layout import (
    Line,
    lay_out,
    loss_lines,
    problem_lines,
    to_json,
    to_json_dump,
)
from dragoman.inspection.recording import recognise, rewrite
from dragoman.inspection.report import Dumped, examine, examine_dumped, open_dump

_MAX_INPUT = 1024 * 1024 * 1024  # the input is held in memory; recorded answers have megabytes
_READ_SIZE = 1024 * 1024
_PIPED_WIDTH = 100
_MAX_WIDTH = 120  # longer lines are hard to read on any terminal


def configure(parser: argparse.ArgumentParser) -> None:
    dialects = get_args(DialectName)
    parser.epilog = "Exit code: 0 clean, 1 problems found, 2 nothing to read."
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a recorded SSE stream, JSON lines, JSON body or a dump of the gateway; - or nothing: standard input",
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


def _inspect(options: Options) -> int:
    source = "standard input" if options.file in (None, "-") else str(options.file)
    try:
        data = _read(options.file)
        dumped = open_dump(data)
        if dumped is not None:
            return _inspect_dump(dumped, options, source)
        recognised = recognise(data, _chosen(options.dialect))
        report = examine(recognised)
        if options.target is not None:
            rewritten = rewrite(recognised, options.target)
            write(rewritten.data)
            complain(problem_lines(report.problems), source)
            complain(loss_lines(rewritten.losses), source)
        elif options.json:
            write(to_json(report))
        else:
            show(tuple(lay_out(report, source, _width())))
    except GatewayError as error:
        complain([error.message], source)
        return CANNOT_WORK
    return PROBLEMS if report.problems else CLEAN


def _inspect_dump(dumped: tuple[Dumped, ...], options: Options, source: str) -> int:
    """Inspect every answer of a dump."""
    if options.target is not None:
        raise RequestRefused(f"expected one answer to rewrite, got a dump of {len(dumped)}")
    reports = [(answer, examine_dumped(answer)) for answer in dumped]
    if options.json:
        write(to_json_dump(reports))
    else:
        for number, (answer, report) in enumerate(reports):
            whose = f"{source}, {answer.request_id} from {answer.upstream}"
            apart: tuple[Line, ...] = ((),) if number else ()
            show((*apart, *lay_out(report, whose, _width())))
    return PROBLEMS if any(report.problems for _, report in reports) else CLEAN


def _width() -> int:
    return min(shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns, _MAX_WIDTH)


def _chosen(name: str) -> DialectName | None:
    return next((dialect for dialect in get_args(DialectName) if dialect == name), None)


def _read(file: str | None) -> bytes:
    """The whole input.

    Raises:
        RequestRefused: there is no input, or it cannot be read.
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
