"""`dragoman trust`, and the question whether to trust a configuration that was found in the folder and named by no option.

`serve`, `check`, `run`, `launch` and `connect` ask this question here. `config.trust` decides what needs trust, and remembers it.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dragoman.cli.options import Options
from dragoman.cli.screen import CLEAN, discard_typed, is_attended, show
from dragoman.config.read import CONFIG_FILE, load_settings
from dragoman.config.trust import FoundFile, Trusted, refusal
from dragoman.errors import ConfigError
from dragoman.inspection.layout import Span
from dragoman.inspection.terminal_text import visible_line

SUMMARY = "allow the dragoman.toml of a folder to start programs and send keys"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Shows what the file would start, send and write, and remembers your trust until the file changes. "
        "Exit code: 0 remembered, 2 there is no such file, or it cannot be read."
    )
    parser.add_argument(
        "folder", nargs="?", default=".", metavar="FOLDER", help="where the file is (default: here)"
    )
    parser.add_argument(
        "--forget", action="store_true", help="stop trusting the file in this folder"
    )
    parser.set_defaults(run=_trust)


def ask_for_trust(file: FoundFile, environ: Mapping[str, str]) -> None:
    """Ask the person at the terminal, once for each content of the file; refuse the file if there is no person.

    Raises:
        ConfigError: the file is not trusted.
    """
    trusted = Trusted(environ)
    if trusted.has(file):
        return
    has_changed = trusted.has_changed(file)
    if not is_attended() or not _is_granted(file, has_changed=has_changed):
        raise refusal(file, has_changed=has_changed)
    trusted.add(file)


def ask_for_trust_in_server(file: FoundFile, environ: Mapping[str, str]) -> None:
    """Ask only if the file sets the gateway's address: for a command that only prints that address.

    Raises:
        ConfigError: the file is not trusted.
    """
    if any(claim.where.startswith("server.") for claim in file.claims):
        ask_for_trust(file, environ)


def _is_granted(file: FoundFile, *, has_changed: bool) -> bool:
    since = "has changed since you trusted it" if has_changed else "was found in this folder"
    screen = sys.stderr if sys.stderr.isatty() else sys.stdout
    print(f"{visible_line(str(file.path))} {since}. It would:", file=screen)
    for claim in file.claims:
        print(f"  {visible_line(claim.full_line)}", file=screen)
    with suppress(OSError):
        discard_typed(sys.stdin.fileno())
    print("Trust it, as it is now? [y/N] ", end="", file=screen, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _trust(options: Options) -> int:
    trusted = Trusted(os.environ)
    if options.forget:  # also if the file has changed or no longer exists
        forgotten = FoundFile(Path(options.folder) / CONFIG_FILE, b"")
        trusted.remove(forgotten)
        show(((Span(f"{visible_line(forgotten.place)} is not trusted"),),))
        return CLEAN
    found = found_in(Path(options.folder))
    if not found.claims:
        show(((Span(f"{visible_line(found.place)} needs no trust"),),))
        return CLEAN
    trusted.add(found)
    claims = (f"  {visible_line(claim.full_line)}" for claim in found.claims)
    last = f"{visible_line(found.place)} is trusted until it changes"
    show([(Span(line),) for line in (*claims, last)])
    return CLEAN


def found_in(folder: Path) -> FoundFile:
    """The file in a folder, with claims for what it would do; without claims if it needs no trust.

    Raises:
        ConfigError: there is no such file, or it cannot work.
    """
    file = folder / CONFIG_FILE
    if not file.exists():
        raise ConfigError(f"expected a {CONFIG_FILE} in {folder}, found none")
    seen: list[FoundFile] = []
    load_settings(file, os.environ, on_found=lambda each, _: seen.append(each), is_named=False)
    return seen[0] if seen else FoundFile(file, b"")
