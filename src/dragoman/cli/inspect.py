"""`dragoman inspect`: the contents of a recorded answer, as `dragoman.inspection` finds them."""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, get_args

from msgspec import Struct, structs

from dragoman.cli.options import Options
from dragoman.cli.screen import CANNOT_WORK, CLEAN, PROBLEMS, ProgressLine, complain, show, write
from dragoman.dialects.shapes import DialectName
from dragoman.errors import GatewayError, RequestRefused
from dragoman.inspection.exchange import RecordedExchange
from dragoman.inspection.exchange_form import ExchangeReport
from dragoman.inspection.layout import (
    Line,
    lay_out,
    loss_lines,
    problem_lines,
    to_json,
    to_json_answers,
)
from dragoman.inspection.recorded_answer import exchange_of, report_recorded
from dragoman.inspection.recording import Recognised, Recording, recognise, rewrite
from dragoman.inspection.report import (
    Dumped,
    Report,
    examine,
    examine_dumped,
    measure,
    open_dump,
)
from dragoman.recordings import read_recordings
from dragoman.server.inspector_page import export_page, without_contents

SUMMARY = "show the tool calls of a recorded answer, how they arrived, and what is wrong with them"

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
        help="a recorded SSE stream, JSON lines, JSON body, a dump of the gateway, or a folder of serve --record; - or nothing: standard input",
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
        help="write the answer in this dialect, and the problems to standard error; with --html: the client's dialect",
    )
    output.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    parser.add_argument(
        "--html",
        metavar="OUT",
        help="write the inspector's page for it, as one file without secrets",
    )
    parser.add_argument(
        "--no-contents",
        action="store_true",
        help="with --html: leave out texts, arguments and headers",
    )
    parser.set_defaults(run=_inspect)


class _Answer(Struct, frozen=True):
    """One recorded answer. times: of each frame, in seconds since 1970; empty if not recorded.

    exchange: what it was recorded with, if that is known.
    """

    source: str
    id: str
    upstream: str
    recognised: Recognised
    report: Report
    times: tuple[float, ...] = ()
    exchange: RecordedExchange | None = None


def _inspect(options: Options) -> int:
    source = "standard input" if options.file in (None, "-") else str(options.file)
    try:
        if options.html is not None and options.json:
            raise RequestRefused("expected --html or --json, got both")
        if options.file is not None and Path(options.file).is_dir():
            return _write_out(list(_open_folder(Path(options.file))), options)
        data = _read(options.file)
        dumped = open_dump(data)
        if dumped is not None:
            return _inspect_dump(dumped, options, source)
        recognised = recognise(data, _chosen(options.dialect))
        with ProgressLine("decoding", len(data)) as progress:
            report = examine(recognised, progress.advance)
        if options.html is None and options.target is not None:
            rewritten = rewrite(recognised, options.target)
            write(rewritten.data)
            complain(problem_lines(report.problems), source)
            complain(loss_lines(rewritten.losses), source)
        elif options.json:
            write(to_json(report))
        else:
            answer = _Answer(source, Path(source).name, "recorded", recognised, report)
            return _write_out([answer], options)
    except GatewayError as error:
        # A message about a folder names the recording in it.
        complain([error.message], None if error.message.startswith(source) else source)
        return CANNOT_WORK
    return PROBLEMS if report.problems else CLEAN


def _inspect_dump(dumped: tuple[Dumped, ...], options: Options, source: str) -> int:
    """Inspect every answer of a dump."""
    answers = [
        _Answer(
            f"{source}, {each.request_id} from {each.upstream}",
            each.request_id,
            each.upstream,
            each.recognised,
            examine_dumped(each),
            each.times,
        )
        for each in dumped
    ]
    return _write_out(answers, options)


def _open_folder(folder: Path) -> Iterator[_Answer]:
    """The answers of the upstreams in a folder of recorded exchanges: of each exchange the last one, which it was answered from."""
    for name, exchange in read_recordings(folder):
        answered = [each for each in exchange.attempts if each.answer is not None]
        attempt = answered[-1] if answered else None
        dialect = _chosen(attempt.dialect) if attempt is not None else None
        if attempt is None or attempt.answer is None or dialect is None:
            raise RequestRefused(f"{name}: expected the answer of an upstream over HTTP, got none")
        answer = attempt.answer
        recording = Recording(answer.data, "sse" if answer.is_stream else "body", answer.status)
        recognised = Recognised(dialect, "stream" if answer.is_stream else "body", recording)
        timing = measure([piece.at - attempt.at for piece in answer.pieces])
        report = structs.replace(examine(recognised), timing=timing)
        # The folder may be the recording itself.
        place = folder if folder.name == name else folder / name
        yield _Answer(
            f"{place}", exchange.id, attempt.upstream, recognised, report, exchange=exchange
        )


def _write_out(answers: Sequence[_Answer], options: Options) -> int:
    """Write what was found in several answers."""
    if options.html is not None:
        return _write_page(answers, options)
    if options.target is not None:
        raise RequestRefused(f"expected one answer to rewrite, got {len(answers)}")
    if options.json:
        write(to_json_answers([(each.id, each.upstream, each.report) for each in answers]))
    else:
        for number, answer in enumerate(answers):
            apart: tuple[Line, ...] = ((),) if number else ()
            show((*apart, *lay_out(answer.report, answer.source, _width())))
    return PROBLEMS if any(answer.report.problems for answer in answers) else CLEAN


def _write_page(answers: Sequence[_Answer], options: Options) -> int:
    """Write the inspector's page with these answers into a file.

    Raises:
        RequestRefused: it cannot be written.
    """
    reports: list[ExchangeReport] = []
    with ProgressLine("describing", len(answers), "answers") as progress:
        for answer in answers:
            exchange = answer.exchange or exchange_of(
                answer.recognised,
                answer.report,
                answer.id,
                answer.upstream,
                target=options.target,
                times=answer.times,
            )
            described = report_recorded(exchange)
            reports.append(without_contents(described) if options.no_contents else described)
            progress.advance(1)
    title = answers[0].source if len(answers) == 1 else f"{len(answers)} answers"
    page = export_page(Path(title).name, reports)
    try:
        Path(str(options.html)).write_bytes(page)
    except OSError as error:
        raise RequestRefused(
            f"expected a file to write, {options.html}: {error.strerror or error}"
        ) from error
    return PROBLEMS if any(answer.report.problems for answer in answers) else CLEAN


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
            return _read_all(sys.stdin.buffer, 0)
        with Path(file).open("rb") as stream:
            return _read_all(stream, os.fstat(stream.fileno()).st_size)
    except OSError as error:
        raise RequestRefused(f"expected a readable file: {error.strerror or error}") from error


def _read_all(stream: BinaryIO, expected: int) -> bytes:
    """All bytes. `expected`: how many there are, 0 if that is not known."""
    pieces: list[bytes] = []
    size = 0
    with ProgressLine("reading", expected) as progress:
        while piece := stream.read(_READ_SIZE):
            pieces.append(piece)
            size += len(piece)
            progress.advance(len(piece))
            if size > _MAX_INPUT:
                raise RequestRefused(
                    f"expected a recording of at most {_MAX_INPUT:,} bytes, got more"
                )
    if not pieces:
        raise RequestRefused("expected a recorded answer, got an empty file")
    return b"".join(pieces)
