"""`dragoman certify`: sends an upstream the requests of real clients, and writes the configuration that corrects for what it gets wrong."""

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import structs

from dragoman.cli.connect import choose_model
from dragoman.cli.init import LOCAL_SERVERS
from dragoman.cli.options import Options, add_config_option
from dragoman.cli.screen import CANNOT_WORK, CLEAN, PROBLEMS, complain, show, write
from dragoman.cli.trust import ask_for_trust
from dragoman.config.check import check_surroundings, complete
from dragoman.config.environment import http_address, with_key, write_private
from dragoman.config.read import Flags, load_checked_settings, load_settings, read_config_file
from dragoman.config.secrets import mask_url, upstream_secrets
from dragoman.config.settings import (
    ANTHROPIC_HOST,
    OPENAI_HOST,
    ServerSettings,
    Settings,
    UpstreamSettings,
    peers_of,
)
from dragoman.config.toml_text import with_section
from dragoman.config.trust import change_file, only_changer, plain_http
from dragoman.config.values import read_toml, toml_value
from dragoman.core.secrets import Secrets
from dragoman.errors import ConfigError
from dragoman.inspection.layout import Line, Span
from dragoman.inspection.terminal_text import Style, pad, visible_line, wrapped
from dragoman.upstream.http.model_list import OfferedModel

if TYPE_CHECKING:
    from dragoman.certify.report import CertifyReport, ProbeFinding

SUMMARY = "send an upstream the requests of real clients, and write the settings that correct what it gets wrong"

# Seconds for one answer: `certify.asker.PATIENCE`, which is imported only when the command runs.
_PATIENCE = 120.0
_LEAST_PATIENCE, _MOST_PATIENCE = 1.0, 3600.0
_KINDS = ("auto", "chat", "responses", "messages")
_NARROWEST = 60
_WORDS: dict[str, tuple[str, Style]] = {
    "ok": ("ok", "good"),
    "repaired": ("repaired", "good"),
    "setting": ("setting", "warning"),
    "lacks": ("lacks it", "faint"),
    "unhelped": ("CANNOT HELP", "bad"),
    "not_shown": ("not shown", "faint"),
    "not_tried": ("not tried", "faint"),
}
_TITLE_WIDTH = 52


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = """\
It sends about forty small requests, and two as large as the first ones of Codex and Claude Code, as the gateway would send them.
It has tried every setting that it writes. The key is never shown or written.

  ok           it works                           lacks it     it does not work, but the usual clients do not need it
  repaired     the gateway repairs it by itself   CANNOT HELP  it does not work, and no setting helps
  setting      it works with a setting            not shown    the model did not do it, so the result is unknown

exit codes: 0 it works as it is, 1 it needs settings or has a fault that no setting corrects, 2 it could not be asked"""
    parser.add_argument(
        "place",
        metavar="URL",
        help="the address of an upstream, such as http://127.0.0.1:11434/v1, or the name of one in the configuration, "
        "whose settings then apply",
    )
    parser.add_argument(
        "--kind",
        choices=_KINDS,
        default="auto",
        help="the dialect that it speaks (default: auto, which finds out)",
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="the model to ask (default: the only one that it lists)"
    )
    parser.add_argument(
        "--key-env",
        metavar="VARIABLE",
        help="the environment variable that holds its key (default: DRAGOMAN_UPSTREAM_KEY; OPENAI_API_KEY or ANTHROPIC_API_KEY "
        "for the vendor itself)",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="the name of the section (default: made from the address)"
    )
    parser.add_argument(
        "--write",
        dest="section_file",
        metavar="FILE",
        help="add the section to this file, or create the file; an existing section is never changed",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON, and nothing else"
    )
    parser.add_argument("--quick", action="store_true", help="leave out the two large requests")
    parser.add_argument(
        "--patience",
        type=float,
        default=_PATIENCE,
        metavar="SECONDS",
        help=f"how long to wait for one answer (default: {_PATIENCE:g})",
    )
    add_config_option(parser)
    parser.set_defaults(run=_certify)  # fmt: skip


def _certify(options: Options) -> int:
    if not _LEAST_PATIENCE <= options.patience <= _MOST_PATIENCE:
        raise ConfigError(
            f"--patience: expected {_LEAST_PATIENCE:g} to {_MOST_PATIENCE:g} seconds, got {options.patience:g}"
        )
    is_new = "://" in options.place
    if not is_new and options.section_file is not None:
        raise ConfigError(
            "--write: expected a URL beside it: a section that is there is not changed"
        )
    name, settings, known = _of_url(options) if is_new else _of_configuration(options)
    secrets = upstream_secrets(settings, os.environ.get(settings.api_key_env or ""))
    target = None if options.section_file is None else Path(options.section_file)
    if target is not None:
        _check_target(target, name)
    if warnings := plain_http(Settings(upstreams={name: settings})):
        complain(warnings)
    # The findings report the result of each request.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        report, text = asyncio.run(_ask(options, name, settings, known, secrets, is_new=is_new))
    except ConfigError as error:
        raise ConfigError(secrets.hide(error.message)) from error
    if target is not None and not _is_empty(report):
        _add_section(target, name, text)
        if not options.json:
            show(((), (Span(f"wrote {visible_line(str(target))}", "strong"),)))
    if _is_empty(report):
        return CANNOT_WORK
    return CLEAN if report.is_clean else PROBLEMS


def _is_empty(report: "CertifyReport") -> bool:
    """Whether the run ended before it found anything for a section."""
    return report.stopped is not None and len(report.findings) <= 2


# --- which upstream ---------------------------------------------------------------------------------------------------


def _of_url(options: Options) -> tuple[str, UpstreamSettings, str | None]:
    url = options.place
    host = _check_address(url)
    name = options.name or _name_for(url)
    kind = {OPENAI_HOST: "responses", ANTHROPIC_HOST: "messages"}.get(host, "chat")
    kind = kind if options.kind == "auto" else options.kind
    settings = UpstreamSettings(kind="chat", base_url=url)
    settings = structs.replace(settings, kind=kind)
    if options.key_env is not None:
        settings = structs.replace(settings, api_key_env=options.key_env)
    else:
        settings = with_key(settings, os.environ)
    if settings.api_key is not None:
        raise ConfigError(
            "DRAGOMAN_UPSTREAM_KEY: expected a key, there is no client whose key could be passed on"
        )
    alone = complete(Settings(server=ServerSettings(port=0), upstreams={name: settings}))
    check_surroundings(alone, os.environ)
    return name, settings, options.model


def _check_address(url: str) -> str:
    """The host of an address that may be written into a file.

    Raises:
        ConfigError: it is not an HTTP address, or contains something that may be a secret.
    """
    parts = http_address(url)
    if parts is None or "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"expected an address such as http://127.0.0.1:11434/v1, without user, query and fragment; got {mask_url(url)!r}"
        )
    return parts.hostname or ""


def _name_for(url: str) -> str:
    parts = urlsplit(url)
    ports = {port: name for name, (_, port) in LOCAL_SERVERS.items()}
    host = parts.hostname or ""
    if host in ("127.0.0.1", "::1", "localhost"):
        return ports.get(parts.port or 0, "local")
    labels = [label for label in host.split(".") if label.isalnum() and not label.isdigit()]
    usual = ("api", "www", "com", "org", "net", "ai", "io", "dev", "cloud")
    return next((label for label in labels if label not in usual), "upstream")


def _of_configuration(options: Options) -> tuple[str, UpstreamSettings, str | None]:
    from dragoman.server.question import can_be_asked, models_to_ask  # noqa: PLC0415 - needs the gateway's dependencies

    for flag, value in (("--key-env", options.key_env), ("--name", options.name)):
        if value is not None:
            raise ConfigError(f"{flag}: expected a URL beside it, got the name of an upstream")
    whole = load_checked_settings(options.config, os.environ, Flags(), ask_for_trust)
    settings = whole.upstreams.get(options.place)
    if settings is None:
        names = ", ".join(whole.upstreams)
        raise ConfigError(
            f"expected a URL, or an upstream of the configuration ({names}); got {options.place!r}"
        )
    if not can_be_asked(settings):
        raise ConfigError(
            f"upstreams.{options.place}: only upstreams over HTTP with a key of their own can be asked"
        )
    named = models_to_ask(whole, options.place)
    # All peers give the same answer, so the first one is asked.
    settings = next(iter(peers_of(options.place, settings).values()))
    return options.place, settings, options.model or next(iter(named), None)


# --- asking -----------------------------------------------------------------------------------------------------------


async def _ask(
    options: Options,
    name: str,
    settings: UpstreamSettings,
    model: str | None,
    secrets: Secrets,
    *,
    is_new: bool,
) -> "tuple[CertifyReport, str]":
    from dragoman.certify.report import section, to_json  # noqa: PLC0415 - needs the gateway's dependencies
    from dragoman.certify.run import certify, cost_in_words  # noqa: PLC0415 - as above

    settings, model = await _locate(options, name, settings, model, is_new=is_new)
    if not options.json:
        where = f"{mask_url(settings.base_url)}: {settings.kind}, model {model}"
        cost = cost_in_words(settings, is_quick=options.quick)
        show(((Span(visible_line(where), "strong"),), (Span(cost, "faint"),), ()))
    report = await certify(
        name,
        settings,
        model,
        os.environ,
        patience=options.patience,
        is_quick=options.quick,
        on_finding=(lambda _: None) if options.json else _shown(secrets),
    )
    text = section(name, report, is_new=is_new, hide=secrets.hide)
    if options.json:
        write(secrets.hide_bytes(to_json(name, report, text)) + b"\n")
    else:
        show(tuple(_summary(report, text, secrets)))
    return report, text


async def _locate(
    options: Options,
    name: str,
    settings: UpstreamSettings,
    model: str | None,
    *,
    is_new: bool,
) -> tuple[UpstreamSettings, str]:
    """The settings with which the upstream answers a tiny question, and the model."""
    from dragoman.server.question import ANY_MODEL, listed_models, locate  # noqa: PLC0415 - needs the gateway's dependencies

    try:
        async with asyncio.timeout(options.patience):
            if model is None:
                listed = await listed_models(name, settings, os.environ)
                offered = tuple(map(OfferedModel, listed))
                model = (
                    choose_model("codex", (), offered, how="--model MODEL") if listed else ANY_MODEL
                )
            if not is_new:
                return settings, model
            found = await locate(name, settings, model, os.environ)
    except TimeoutError:
        raise ConfigError(
            f"{mask_url(settings.base_url)} gave no answer to a short question within {options.patience:g} s (--patience)"
        ) from None
    if options.kind not in ("auto", found.kind):
        raise ConfigError(f"it answers as --kind {found.kind}, not as {options.kind}")
    return found, model


def _check_target(path: Path, name: str) -> None:
    """Check before the run that the section can be added to the file afterwards."""
    if not path.exists():
        return
    upstreams = read_toml(read_config_file(path), str(path)).get("upstreams")
    if isinstance(upstreams, dict) and name in upstreams:
        raise ConfigError(
            f"{path}: upstreams.{name} is there already; choose another --name, or no --write"
        )


def _add_section(path: Path, name: str, text: str) -> None:
    """Add a section to a file, or create the file, if the result is a valid configuration."""
    try:
        old = path.read_bytes() if path.exists() else None
        new = with_section(old or b"", "upstreams", name, text)
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / path.name
            draft.write_bytes(new)
            load_settings(draft, {})
        if old is None:
            write_private(path, new)
    except ConfigError as error:
        lines = "\n".join(line.rpartition(f"{path.name}:")[2] for line in error.message.split("\n"))
        raise ConfigError(
            f"{path} is unchanged, the section does not fit into it: {lines}"
        ) from error
    except OSError as error:
        raise ConfigError(f"{path}: expected to write it: {error.strerror or error}") from error
    if old is not None:
        with only_changer(path):
            change_file(path, old, new, os.environ)


# --- the screen -------------------------------------------------------------------------------------------------------


def _shown(secrets: Secrets) -> "Callable[[ProbeFinding], None]":
    width = max(_NARROWEST, get_terminal_size((120, 24)).columns) if sys.stdout.isatty() else 0

    def on_finding(finding: "ProbeFinding") -> None:
        show(tuple(_lines(finding, secrets, width)))

    return on_finding


def _lines(finding: "ProbeFinding", secrets: Secrets, width: int) -> Iterator[Line]:
    """A line for a finding, and its details below."""
    word, style = _WORDS[finding.status]
    yield (Span(pad(word, 13), style), Span(finding.title))
    settings = "; ".join(f"{key} = {toml_value(value)}" for key, value in finding.settings.items())
    detail = secrets.hide("; ".join(filter(None, (settings, finding.detail))))
    if not detail:
        return
    line = visible_line(detail)
    for part in wrapped(line, width - 15) if width else [line]:
        yield (Span(f"{'':13}  {part}", "faint"),)


def _summary(report: "CertifyReport", text: str, secrets: Secrets) -> Iterator[Line]:
    yield ()
    if report.stopped is not None:
        yield (Span("ended early: ", "bad"), Span(visible_line(secrets.hide(report.stopped))))
    counts: dict[str, int] = {}
    for finding in report.findings:
        counts[finding.status] = counts.get(finding.status, 0) + 1
    said = ", ".join(
        f"{counts[status]} {word}" for status, (word, _) in _WORDS.items() if status in counts
    )
    tokens = f"{report.input_tokens:,} tokens of input, {report.output_tokens:,} of output"
    yield (Span(f"{said}; {report.asked} requests, {tokens}", "faint"),)
    yield ()
    if not text:
        yield (Span("its section needs no change"),)
    for line in text.splitlines():
        style: Style = (
            "faint" if line.startswith("#") else "title" if line.startswith("[") else "plain"
        )
        yield (Span(visible_line(secrets.hide(line)), style),)
