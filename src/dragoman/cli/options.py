"""The options of all commands, the options for serving, and the settings that result from them."""

import argparse
import os
from collections.abc import Callable, Sequence

from dragoman.config.read import Flags, OnFound, load_checked_settings
from dragoman.config.settings import Settings
from dragoman.dialects.shapes import DialectName


class Options(argparse.Namespace):
    """One namespace for all commands; each reads the options that it declared. `run` returns the exit code."""

    command: str
    run: "Callable[[Options], int]"

    # inspect
    file: str | None
    dialect: str
    target: DialectName | None
    json: bool
    html: str | None
    no_contents: bool

    # serve, check, connect
    config: str | None
    host: str | None
    port: int | None
    workers: int | None
    upstream: str | None
    key_env: str | None
    log_format: str | None
    log_level: str | None
    inspect: bool
    record: str | None

    # check
    offline: bool
    no_ask: bool
    all: bool

    # certify
    place: str
    kind: str
    name: str | None
    section_file: str | None
    quick: bool
    patience: float

    # reload
    restart: bool

    # keys
    action: str
    key_name: str | None
    allow: list[str] | None
    limit: list[str] | None

    # trust
    folder: str
    forget: bool

    # connect, launch
    client: str
    url: str | None
    model: str | None
    write: bool

    # launch
    arguments: Sequence[str]
    context_window: int | None
    share_home: bool

    # init
    force: bool
    stdout: bool

    # verify, replay
    receipt: str
    recording: str
    bytes: bool

    # completion
    shell: str | None
    models: bool

    # run
    prompt: str | None
    max_turns: int | None
    max_tokens: int | None
    max_seconds: float | None
    instructions: str | None
    root: str | None
    mcp: list[str] | None
    yes: bool
    policy: str | None
    no_sandbox: bool
    network: bool
    resume: str | None
    sessions: bool
    quiet: bool


def add_config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the configuration (default: DRAGOMAN_CONFIG, else ./dragoman.toml if it is there and trusted)",
    )


def add_serving_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that override the file and the environment."""
    add_config_option(parser)
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="the port to listen on (default: 8787)")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="the number of processes that serve (default: 1)"
    )
    add_upstream_options(parser.add_argument)
    parser.add_argument(
        "--log-format",
        choices=("auto", "console", "json"),
        help="lines for a person or for a program (default: auto, which means console at a terminal and json elsewhere)",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="the lowest level that is logged (default: info)",
    )
    parser.add_argument(
        "--inspect",
        action="store_true",
        help="capture requests and answers from the start, for the inspector (default: when it is switched on there)",
    )
    parser.add_argument(
        "--record",
        metavar="DIR",
        help="write both sides of every exchange into a folder of its own in DIR, without secrets",
    )


def add_upstream_options(add_argument: Callable[..., argparse.Action]) -> None:
    """Add the options that replace the upstreams of the file and the environment. `add_argument`: of a parser, or a group."""
    add_argument(
        "--upstream",
        metavar="KIND=URL",
        help="the only upstream, such as chat=http://127.0.0.1:8000/v1; KIND is chat, responses or messages; codex, "
        "chatgpt-codex and rehearsal have no URL (default: the configuration, else OPENAI_API_KEY and ANTHROPIC_API_KEY, "
        "else the rehearsal)",
    )
    add_argument(
        "--key-env",
        metavar="VARIABLE",
        help="the environment variable that holds the key of --upstream (default: DRAGOMAN_UPSTREAM_KEY; "
        "OPENAI_API_KEY or ANTHROPIC_API_KEY for the vendor itself)",
    )


def flags_of(options: Options) -> Flags:
    """The options that override the file and the environment."""
    return Flags(
        host=options.host,
        port=options.port,
        workers=options.workers,
        upstream=options.upstream,
        key_env=options.key_env,
        log_format=options.log_format,
        log_level=options.log_level,
        inspect=options.inspect,
        record=options.record,
    )


def settings_of(options: Options, on_found: OnFound) -> Settings:
    """The settings from the file, the environment and the options. `on_found`: see `config.read.load_settings`.

    Raises:
        ConfigError: the settings cannot work, something that they name is missing here, or the file is not trusted.
    """
    return load_checked_settings(options.config, os.environ, flags_of(options), on_found)
