"""`dragoman run`: an agent in the terminal, on any upstream. Here are its options.

start.py         makes a conversation from the options
conversation.py  questions, `/` commands, answers, interruptions, exit codes
sessions.py      conversations as files
signals.py       Ctrl-C
person.py        the person's questions, approvals and answers
keyboard.py      what is typed; editor.py: the line editor
display.py       shows a run to a person or a program, on live_screen.py
tools.py         the tools of the agent

The other modules need the gateway's dependencies, so they are imported when the command runs.
"""

import argparse

from dragoman.cli.options import Options, add_config_option, add_upstream_options

SUMMARY = "run an agent in this terminal: any model, with tools for files, commands and MCP servers"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = """\
Without an upstream it answers from the rehearsal, which needs no key. Ctrl-C interrupts, twice quits.

exit codes:
  0    answered
  1    the model or its upstream failed
  2    it cannot be started: options, configuration, a conversation that cannot be read
  3    a limit was reached: turns, tokens, time, or the same call again and again
  4    answered, but an MCP server failed; standard error says which, and why
  130  interrupted"""
    parser.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        help="what to do; - or a pipe: read it from standard input; without it, at a terminal: ask for one question after another",
    )
    _add_model_options(parser)
    _add_tool_options(parser)
    _add_session_options(parser)
    parser.set_defaults(run=run_agent)


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser)
    group = parser.add_argument_group("the model")
    add_upstream_options(group.add_argument)
    group.add_argument(
        "--model", help="the model to ask (default: DRAGOMAN_MODEL, else by the upstream)"
    )
    group.add_argument(
        "--max-turns",
        type=int,
        metavar="N",
        help="the largest number of the model's answers (default: 100)",
    )
    group.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="the largest number of tokens, input and output, of all answers together",
    )
    group.add_argument("--max-seconds", type=float, metavar="N", help="seconds for the whole run")
    group.add_argument(
        "--instructions",
        metavar="FILE",
        help="a file with instructions for the agent, in place of the default ones",
    )


def _add_tool_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what it may do")
    group.add_argument(
        "--root", metavar="DIR", help="the folder it works in and cannot leave (default: this one)"
    )
    group.add_argument(
        "--mcp",
        metavar="NAME=COMMAND",
        action="append",
        help="an MCP server: its command, or its http:// address; or a .json file with mcpServers; repeatable",
    )
    group.add_argument(
        "--yes", action="store_true", help="approve everything that the policy does not deny"
    )
    group.add_argument(
        "--policy",
        metavar="FILE",
        help="a TOML file with lists of what is allowed, asked for and denied, such as "
        """allow = ["shell: git status*", "write: src/**"]; keys: default, allow, ask, deny""",
    )
    group.add_argument(
        "--no-sandbox",
        action="store_true",
        help="run commands without a sandbox, even if one is available",
    )
    group.add_argument(
        "--network", action="store_true", help="let commands in the sandbox use the network"
    )


def _add_session_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the conversation")
    group.add_argument(
        "--resume",
        metavar="ID",
        nargs="?",
        const="",
        help="continue a saved conversation (default: the last one in this folder)",
    )
    group.add_argument(
        "--sessions",
        action="store_true",
        help="list the saved conversations of this folder, and do nothing else",
    )
    group.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per line for everything that happens",
    )
    group.add_argument("--quiet", action="store_true", help="print only the text of the model")


def run_agent(options: Options) -> int:
    from dragoman.cli.run.start import start  # noqa: PLC0415 - needs the gateway's dependencies

    return start(options)
