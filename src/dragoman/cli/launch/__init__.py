"""`dragoman launch`: starts a client that uses the gateway, and a gateway if none runs. Here are its options.

start.py      finds or starts the gateway, chooses the model, runs the client in the foreground
clients.py    what each client is given: arguments, environment and files

The other modules need the gateway's dependencies, so they are imported when the command runs.
"""

import argparse

from dragoman.cli.options import Options, add_config_option, add_upstream_options

SUMMARY = "start Codex or Claude Code on any model, with a gateway of its own if none runs"

CLIENTS = ("codex", "claude")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "dragoman launch [options] CLIENT [-- ARGUMENT ...]"
    parser.epilog = """\
examples:
  dragoman launch claude
  dragoman launch --upstream chat=http://127.0.0.1:11434/v1 --model qwen3-coder claude
  dragoman launch codex -- exec "fix the test that fails"

It uses the gateway that runs at the configured address. If there is none, or with --upstream, it starts one on a free port of
this machine that only this client can use, and ends it with the client. The client keeps what it stores in a folder of its
own; your settings, your login and your history of the client are neither read nor changed, unless you ask for it
(--share-home, --write).

exit codes: those of the client; 2 if it cannot be started"""
    parser.add_argument("client", metavar="CLIENT", choices=CLIENTS, help=" or ".join(CLIENTS))
    parser.add_argument(
        "arguments",
        metavar="ARGUMENT",
        nargs="*",
        default=(),
        help="arguments for the client, after --",
    )
    add_config_option(parser)
    add_upstream_options(parser.add_argument)
    parser.add_argument(
        "--url", help="the gateway to use (default: the one at the configured address)"
    )
    parser.add_argument(
        "--model",
        help="the model to ask for (default: the route that fits, else the upstream's only model)",
    )
    parser.add_argument(
        "--context-window",
        type=int,
        metavar="N",
        help="tokens that the model can take (default: what the upstream says)",
    )
    parser.add_argument(
        "--share-home",
        action="store_true",
        help="let the client use your own settings, login and history instead of a separate folder",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="first write your own settings of the client, as `dragoman connect --write` does",
    )
    parser.set_defaults(run=_launch)


def _launch(options: Options) -> int:
    from dragoman.cli.launch.start import start  # noqa: PLC0415 - needs the gateway's dependencies

    return start(options)
