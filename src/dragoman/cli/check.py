"""`dragoman check`: validates the configuration, shows its effective settings, and checks that the upstreams answer."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dragoman.cli.options import Options, add_serving_options, settings_of
from dragoman.cli.screen import CLEAN, PROBLEMS, show
from dragoman.cli.trust import ask_for_trust
from dragoman.config.check import warnings_of
from dragoman.config.read import OnFound, find_file
from dragoman.config.secrets import masked, secrets_of
from dragoman.config.settings import Settings
from dragoman.config.trust import FoundFile, Trusted, plain_http
from dragoman.config.values import to_toml
from dragoman.core.secrets import Secrets
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.terminal_text import Style, visible_line
from dragoman.server.observe.console import console_line
from dragoman.server.observe.logs import LineHandler

if TYPE_CHECKING:
    from dragoman.server.reachability import CheckFinding

SUMMARY = "validate the configuration, show it without its secrets, and try each upstream"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit code: 0 everything is in order, 1 an upstream, the store or an MCP server does not answer, or a key or a model is refused, "
        "2 the configuration cannot work."
    )
    add_serving_options(parser)
    parser.add_argument(
        "--offline",
        action="store_true",
        help="look at the configuration only; try neither upstreams nor the store nor MCP servers",
    )
    parser.add_argument(
        "--no-ask",
        action="store_true",
        help="do not ask the upstreams a question; without this, each model that a route names is asked for a few tokens",
    )
    parser.add_argument(
        "--all", action="store_true", help="show every setting, including those with default values"
    )
    parser.set_defaults(run=_check)


def _check(options: Options) -> int:
    untrusted: list[FoundFile] = []
    # With `--offline` the file starts nothing and sends nothing, so showing it needs no trust.
    on_found = _noted(untrusted) if options.offline else ask_for_trust
    settings = settings_of(options, on_found)
    file = find_file(options.config, os.environ)
    source = "no file" if file is None else str(file)
    show(tuple(_configuration(settings, source, is_all=options.all)))
    if untrusted:
        show(tuple(_untrusted(untrusted[0])))
    if warnings := plain_http(settings):
        show(((), *((Span("warning ", "bad"), Span(visible_line(each))) for each in warnings)))
    if options.offline:
        return CLEAN
    from dragoman.server.question import can_be_asked  # noqa: PLC0415 - needs the gateway's dependencies
    from dragoman.server.reachability import check_mcp, check_store, check_upstreams  # noqa: PLC0415 - as above

    secrets = secrets_of(settings, os.environ)
    # Log records are shown too, and they contain output of programs.
    log = LineHandler(sys.stderr, console_line, secrets)
    log.setLevel(logging.WARNING)
    # What an attempt came to is in the findings.
    log.addFilter(lambda record: record.name != "dragoman.gateway.attempt")
    logging.getLogger().addHandler(log)
    ask = not options.no_ask
    if ask and any(map(can_be_asked, settings.upstreams.values())):
        show(((), (Span("asking each upstream for a few tokens (--no-ask skips this)", "faint"),)))
    try:
        findings = asyncio.run(check_upstreams(settings, os.environ, ask=ask))
        store = asyncio.run(check_store(settings.store, os.environ))
        if store is not None:
            findings.append(store)
        findings += asyncio.run(check_mcp(settings.mcp))
    finally:
        logging.getLogger().removeHandler(log)
    show(tuple(_findings(findings, secrets)))
    return CLEAN if all(finding.is_ok for finding in findings) else PROBLEMS


def _noted(untrusted: list[FoundFile]) -> OnFound:
    def note(file: FoundFile, environ: Mapping[str, str]) -> None:
        if not Trusted(environ).has(file):
            untrusted.append(file)

    return note


def _untrusted(file: FoundFile) -> Iterator[Line]:
    yield ()
    yield (Span("before you trust it (dragoman trust) it is not used, because it would", "bad"),)
    for claim in file.claims:
        yield (Span(f"  {visible_line(claim.line)}"),)


def _configuration(settings: Settings, source: str, *, is_all: bool) -> Iterator[Line]:
    what = "all settings" if is_all else "what differs from the defaults (--all: everything)"
    yield (Span(f"# {visible_line(source)}, environment and flags: {what}", "faint"),)
    for line in to_toml(masked(settings), is_all=is_all).splitlines():
        style: Style = "title" if line.startswith("[") else "plain"
        yield (Span(visible_line(line), style),)
    for warning in warnings_of(settings):
        yield (Span("# warning: ", "bad"), Span(visible_line(warning)))


def _findings(findings: "Sequence[CheckFinding]", secrets: Secrets) -> Iterator[Line]:
    width = max(len(finding.upstream) for finding in findings)
    yield ()
    for finding in findings:
        verdict = Span("ok    ", "good") if finding.is_ok else Span("FAILED", "bad")
        name = f"{finding.upstream:<{width}}  "
        yield (
            Span(name, "strong"),
            verdict,
            Span(f"  {visible_line(secrets.hide(finding.detail))}"),
        )
