"""The `dragoman` command: its parser, its commands and the handling of its errors.

A command is a module of this package: it adds its options to its parser and sets `run`, which takes options and returns an
exit code.
Commands read input and write output; other packages compute. Commands that need the gateway import it when they run, so that
the others work without its dependencies.

    0    clean
    1    problems were found
    2    the command cannot work: bad options, a configuration or a file that cannot be used, or no output
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, requires, version

from dragoman.cli.certify import configure as configure_certify
from dragoman.cli.check import configure as configure_check
from dragoman.cli.completion import configure as configure_completion
from dragoman.cli.connect import configure as configure_connect
from dragoman.cli.init import configure as configure_init
from dragoman.cli.inspect import configure as configure_inspect
from dragoman.cli.keys import configure as configure_keys
from dragoman.cli.launch import configure as configure_launch
from dragoman.cli.options import Options
from dragoman.cli.reload import configure as configure_reload
from dragoman.cli.replay import configure as configure_replay
from dragoman.cli.run import configure as configure_run
from dragoman.cli.screen import BROKEN_PIPE, CANNOT_WORK, INTERRUPTED, complain, discard_output
from dragoman.cli.serve import configure as configure_serve
from dragoman.cli.trust import configure as configure_trust
from dragoman.cli.verify import configure as configure_verify
from dragoman.errors import ConfigError

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
    except ConfigError as error:
        complain(error.message.split("\n"))
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
    for name, (summary, configure) in _COMMANDS.items():
        configure(commands.add_parser(name, help=summary, description=f"{_capital(summary)}."))
    return parser


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "serve": (
        "start the gateway: any client dialect in front of any upstream",
        configure_serve,
    ),
    "reload": (
        "make a running gateway read its configuration again, without stopping it",
        configure_reload,
    ),
    "launch": (
        "start Codex or Claude Code on any model, with a gateway of its own if none runs",
        configure_launch,
    ),
    "run": (
        "run an agent in this terminal: any model, with tools for files, commands and MCP servers",
        configure_run,
    ),
    "init": (
        "write a dragoman.toml for the keys, local servers and programs that it finds",
        configure_init,
    ),
    "check": (
        "validate the configuration, show it without its secrets, and try each upstream",
        configure_check,
    ),
    "certify": (
        "send an upstream the requests of real clients, and write the settings that correct what it gets wrong",
        configure_certify,
    ),
    "keys": (
        "make, list and revoke named keys of the gateway, each with its models and limits",
        configure_keys,
    ),
    "trust": (
        "allow the dragoman.toml of a folder to start programs and send keys",
        configure_trust,
    ),
    "connect": (
        "print what to paste into a client that should use the gateway",
        configure_connect,
    ),
    "inspect": (
        "show the tool calls of a recorded answer, how they arrived, and what is wrong with them",
        configure_inspect,
    ),
    "replay": (
        "send recorded requests again, and show what differs in the calls",
        configure_replay,
    ),
    "verify": (
        "check the receipt of a request against a recording of it",
        configure_verify,
    ),
    "completion": (
        "print a script that completes this command in bash, zsh or fish",
        lambda parser: configure_completion(parser, make_parser),
    ),
}
"""Each command by its name: its summary, and the function that adds its options and its `run`."""
