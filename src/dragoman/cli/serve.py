"""`dragoman serve`: the gateway, until a signal ends it."""

import argparse
import os

from dragoman.cli.loading import add_serving_options, settings_of
from dragoman.cli.options import Options
from dragoman.cli.screen import show
from dragoman.config.check import check_surroundings
from dragoman.server.start_message import start_message


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without any configuration it listens on 127.0.0.1:8787 and answers from the rehearsal, "
        "which needs no key. Exit code: 0 stopped, 2 it cannot be started."
    )
    add_serving_options(parser)
    parser.set_defaults(run=_serve)


def _serve(options: Options) -> int:
    settings = settings_of(options)
    check_surroundings(settings, os.environ)
    from dragoman.server.run import serve  # noqa: PLC0415 - needs the gateway's dependencies

    def announce(url: str) -> None:
        if settings.log.format != "json":  # then every line is read by a machine
            show(start_message(settings, url))

    return serve(settings, announce)
