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
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from dragoman.cli.check import configure as configure_check
from dragoman.cli.connect import configure as configure_connect
from dragoman.cli.inspect import configure as configure_inspect
from dragoman.cli.options import Options
from dragoman.cli.run import configure as configure_run
from dragoman.cli.run import run_agent
from dragoman.cli.screen import BROKEN_PIPE, CANNOT_WORK, INTERRUPTED, complain, discard_output
from dragoman.cli.serve import configure as configure_serve
from dragoman.cli.trust import configure as configure_trust
from dragoman.errors import ConfigError

__all__ = ("main",)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _make_parser().parse_args(argv, Options())
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
        complain([_missing(error.name, options)])
        return CANNOT_WORK
    except OSError as error:
        discard_output()
        complain([f"the output cannot be written: {error.strerror or error}"])
        return CANNOT_WORK
    return code


def _missing(module: str, options: Options) -> str:
    name = module.partition(".")[0]
    if options.run is run_agent:
        return f"dragoman run needs {name}: pip install 'dragoman[cli]'"
    extra = "engine" if name in ("jsonschema", "mcp") else "server"
    return f"the gateway needs {name}: pip install 'dragoman[{extra}]'"


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dragoman", description="Interprets LLM tool calls between wire dialects."
    )
    parser.add_argument("--version", action="version", version=f"dragoman {version('dragoman')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
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
    "run": (
        "run an agent in this terminal: any model, with tools for files, commands and MCP servers",
        configure_run,
    ),
    "check": (
        "validate the configuration, show it without its secrets, and try each upstream",
        configure_check,
    ),
    "trust": (
        "say once that the dragoman.toml of a folder may start programs and send keys",
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
}
"""Each command by its name: its summary, and the function that adds its options and its `run`."""
