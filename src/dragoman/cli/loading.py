"""The options that say how to serve, and the settings they lead to."""

import argparse
import os

from dragoman.cli.options import Options
from dragoman.cli.trust import ask_for_trust
from dragoman.config.read import Flags, OnFound, load_settings
from dragoman.config.settings import Settings


def add_config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the configuration (default: DRAGOMAN_CONFIG, else ./dragoman.toml if it is there and trusted)",
    )


def add_serving_options(parser: argparse.ArgumentParser) -> None:
    """Everything that overrides the file and the environment."""
    add_config_option(parser)
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="the port to listen on (default: 8787)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: 1)")
    parser.add_argument(
        "--upstream",
        metavar="KIND=URL",
        help="the only upstream, such as chat=http://127.0.0.1:8000/v1; "
        "KIND is chat, responses or messages; codex, chatgpt-codex and rehearsal have no URL",
    )
    parser.add_argument("--log-format", choices=("auto", "console", "json"))
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"))


def settings_of(options: Options, on_found: OnFound = ask_for_trust) -> Settings:
    """What the file, the environment and the options say together. `on_found`: see `config.read.load_settings`.

    Raises:
        ConfigError: it cannot work, or the file is not trusted.
    """
    flags = Flags(
        host=options.host,
        port=options.port,
        workers=options.workers,
        upstream=options.upstream,
        log_format=options.log_format,
        log_level=options.log_level,
    )
    return load_settings(options.config, os.environ, flags, on_found)
