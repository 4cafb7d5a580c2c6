"""`dragoman connect`: prints the configuration to paste into a client."""

import argparse
import os
from urllib.parse import urlsplit

from dragoman.cli.options import Options, add_config_option
from dragoman.cli.screen import CLEAN, write
from dragoman.cli.trust import ask_for_trust_in_server
from dragoman.config.read import load_settings
from dragoman.errors import ConfigError
from dragoman.inspection.terminal_text import visible
from dragoman.server.connect import CLIENTS, access_of, snippet


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit code: 0 printed, 2 the configuration cannot work."
    parser.add_argument("client", metavar="CLIENT", choices=tuple(CLIENTS), help=", ".join(CLIENTS))
    add_config_option(parser)
    parser.add_argument(
        "--url", help="where the gateway is (default: where the configuration says)"
    )
    parser.add_argument("--model", help="the model to ask for")
    parser.set_defaults(run=_connect)


def _connect(options: Options) -> int:
    settings = load_settings(options.config, os.environ, on_found=ask_for_trust_in_server)
    if options.url is not None:
        _check_url(options.url)
    access = access_of(settings, options.url, options.model)
    write(visible(snippet(options.client, access)).encode())
    return CLEAN


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"--url: expected an address such as http://127.0.0.1:8787, got {url!r}")
