"""The `dragoman` command: its parser, its commands and the handling of its errors.

A command is a module of this package: it has a `SUMMARY`, and `configure` adds its options to its parser and sets `run`, which
takes options and returns an exit code.
Commands read input and write output; other packages compute. Commands that need the gateway import it when they run, so that
the others work without its dependencies.

    0    clean
    1    problems were found
    2    the command cannot work: bad options, a configuration or a file that cannot be used, or no output
"""

import argparse
import re
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Protocol

from dragoman.cli import (
    certify,
    check,
    completion,
    connect,
    init,
    inspect,
    keys,
    launch,
    reload,
    replay,
    run,
    serve,
    trust,
    verify,
)
from dragoman.cli.options import Options
from dragoman.cli.screen import BROKEN_PIPE, CANNOT_WORK, INTERRUPTED, complain, discard_output
from dragoman.errors import ConfigError, GatewayError

__all__ = ("main",)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = make_parser()
    options = parser.parse_args(argv, Options())
    if not options.command:
        parser.print_help(sys.stderr)
        return CANNOT_WORK
    try:
        code = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has ended, which is no error.
        discard_output()
        return BROKEN_PIPE
    except GatewayError as error:
        # Only a configuration has several problems, in lines.
        is_list = isinstance(error, ConfigError)
        complain(error.message.split("\n") if is_list else [error.message])
        return CANNOT_WORK
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "dragoman":
            raise
        complain([_missing(options.command, error.name.partition(".")[0])])
        return CANNOT_WORK
    except OSError as error:
        discard_output()
        complain([f"the output cannot be written: {error.strerror or error}"])
        return CANNOT_WORK
    return code


def _missing(command: str, module: str) -> str:
    """What to install for a command that needs a module which is not there."""
    extra = "engine" if module in ("jsonschema", "mcp") else "cli" if command == "run" else "server"
    names = [module]
    for requirement in requires("dragoman") or ():
        name, _, condition = requirement.partition(";")
        name = re.split(r"[<>=!~\[ ]", name, maxsplit=1)[0]
        if f"'{extra}'" in condition.replace('"', "'") and name.replace("-", "_") != module:
            try:
                version(name)
            except PackageNotFoundError:
                names.append(name)
    return f"dragoman {command} needs {', '.join(names)}: pip install 'dragoman[{extra}]'"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dragoman",
        description="Interprets LLM tool calls between wire dialects.",
        epilog="`dragoman COMMAND --help` describes a command. To begin with: dragoman launch claude, or dragoman serve.",
    )
    parser.add_argument("--version", action="version", version=f"dragoman {version('dragoman')}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=False, dest="command"
    )
    for command in _COMMANDS:
        summary = command.SUMMARY
        name = command.__name__.rpartition(".")[2]
        about = f"{summary[:1].upper()}{summary[1:]}."
        command.configure(commands.add_parser(name, help=summary, description=about))
    return parser


class _Command(Protocol):
    """A module of this package, called like its command."""

    __name__: str

    @property
    def SUMMARY(self) -> str: ...  # noqa: N802 -- a constant of the module

    def configure(self, parser: argparse.ArgumentParser) -> None: ...


_COMMANDS: tuple[_Command, ...] = (
    *(serve, reload, launch, run, init, check, certify, keys, trust, connect),
    *(inspect, replay, verify, completion),
)
