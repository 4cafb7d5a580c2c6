"""What the command line said. One namespace for all commands; each reads the options that it declared."""

import argparse
from collections.abc import Callable

from dragoman.inspection.recording import DialectName


class Options(argparse.Namespace):
    """`run` is the command, from options to an exit code."""

    run: "Callable[[Options], int]"

    # inspect
    file: str | None
    dialect: str
    target: DialectName | None
    json: bool

    # serve, check, connect
    config: str | None
    host: str | None
    port: int | None
    workers: int | None
    upstream: str | None
    log_format: str | None
    log_level: str | None

    # check
    offline: bool

    # trust
    folder: str
    forget: bool

    # connect
    client: str
    url: str | None
    model: str | None

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
