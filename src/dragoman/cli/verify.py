"""`dragoman verify`: compares a receipt with a recording of the same exchange."""

import argparse
import sys
from pathlib import Path

from dragoman._json import dumps
from dragoman.cli.options import Options
from dragoman.cli.screen import CLEAN, PROBLEMS, counted, show, write
from dragoman.errors import RequestRefused
from dragoman.inspection.layout import Span
from dragoman.inspection.receipt import Discrepancy, read_receipt, verify
from dragoman.inspection.terminal_text import visible_line
from dragoman.recordings import read_recording

SUMMARY = "check the receipt of a request against a recording of it"

UNCHECKED = 3
_MAX_RECEIPT = 64 * 1024 * 1024  # bytes: a conversation of ten thousand calls has a few megabytes
_COMMENT = b": x-dragoman-receipt "


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit code: 0 everything in the receipt is true, 1 something is not, 2 one of the two cannot be read, "
        "3 nothing is wrong, but something could not be checked."
    )
    parser.add_argument(
        "receipt", metavar="RECEIPT", help="a file with the receipt; -: standard input"
    )
    parser.add_argument(
        "recording", metavar="RECORDING", help="the folder of the recorded exchange"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    parser.set_defaults(run=_verify)


def _verify(options: Options) -> int:
    receipt = read_receipt(_read(options.receipt))
    findings = verify(receipt, read_recording(Path(options.recording)))
    if options.json:
        write(dumps({"calls": len(receipt.calls), "findings": findings}) + b"\n")
    else:
        _show(findings, len(receipt.calls))
    if any(finding.is_checked for finding in findings):
        return PROBLEMS
    return UNCHECKED if findings else CLEAN


def _show(findings: list[Discrepancy], calls: int) -> None:
    is_wrong, is_unknown = Span("differs  ", "bad"), Span("unknown  ", "warning")
    lines = [
        (is_wrong if finding.is_checked else is_unknown, Span(visible_line(finding.what)))
        for finding in findings
    ]
    wrong = sum(finding.is_checked for finding in findings)
    unknown = len(findings) - wrong
    said = counted(calls, "call")
    if wrong:
        verdict = Span(f"{said}: {wrong} of the receipt's statements not true", "bad")
    elif unknown:
        verdict = Span(f"{said}: nothing wrong; {unknown} not checked", "warning")
    else:
        verdict = Span(f"{said}: everything in the receipt is true", "good")
    show((*lines, (verdict,)))


def _read(file: str) -> bytes:
    """The receipt: JSON, or the line of a stream in which it came."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(_MAX_RECEIPT + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(_MAX_RECEIPT + 1)
    except OSError as error:
        raise RequestRefused(f"{file}: expected a receipt: {error.strerror or error}") from error
    if len(data) > _MAX_RECEIPT:
        raise RequestRefused(f"{file}: expected at most {_MAX_RECEIPT:,} bytes")
    return data.strip().removeprefix(_COMMENT)
