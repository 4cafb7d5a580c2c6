"""`dragoman connect`: prints the configuration to paste into a client, or writes it.

It is for the gateway that runs, at the configured address or recorded by `dragoman serve`; if none runs, for the configured one.
"""

import argparse
import os

from msgspec import Struct

from dragoman.cli.client_files import WRITERS, write_client
from dragoman.cli.gateways import access_to, check_url, key_for, models_at
from dragoman.cli.options import Options, add_config_option
from dragoman.cli.screen import CLEAN, complain, own_command, write
from dragoman.cli.trust import ask_for_trust_in_server
from dragoman.config.read import load_settings
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError
from dragoman.gateway.route import default_models
from dragoman.inspection.terminal_text import visible
from dragoman.server.connect import (
    CLIENTS,
    KEY_VARIABLE,
    UNKNOWN_MODEL,
    GatewayAccess,
    access_of,
    fitting_model,
    gateway_url,
    snippet,
)
from dragoman.server.running import RunningGateway, find_gateway, recorded_urls


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "It asks the running gateway for its models; standard error says what is missing. "
        "Exit code: 0 printed or written, 2 the configuration cannot work."
    )
    parser.add_argument(
        "client",
        metavar="CLIENT",
        # `dragoman launch` starts the program `claude`.
        type=lambda name: "claude-code" if name == "claude" else name,
        choices=tuple(CLIENTS),
        help=", ".join(CLIENTS),
    )
    add_config_option(parser)
    parser.add_argument(
        "--url",
        help="the address of the gateway (default: that of the running one, else that of the configuration)",
    )
    parser.add_argument(
        "--model", help="the model to ask for (default: the one that fits the client)"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"write it into the client's own settings, and keep a copy of what was there ({', '.join(WRITERS)})",
    )
    parser.set_defaults(run=_connect)


def _connect(options: Options) -> int:
    if options.write and options.client not in WRITERS:
        raise ConfigError(
            f"--write: expected one of {', '.join(WRITERS)}, which have a file for it; got {options.client}"
        )
    settings = load_settings(options.config, os.environ, on_found=ask_for_trust_in_server)
    found = _find(options, settings)
    access = found.access
    if access.model == UNKNOWN_MODEL:
        complain([f"no model is known: put its name in place of {UNKNOWN_MODEL}, or use --model"])
    if found.note:
        complain([found.note])
    if not options.write:
        write(visible(snippet(options.client, access)).encode())
        return CLEAN
    write(visible(write_client(options.client, access, os.environ)).encode())
    return CLEAN


class _Found(Struct, frozen=True):
    access: GatewayAccess
    note: str = ""


def _find(options: Options, settings: Settings) -> _Found:
    given = None if options.url is None else check_url(options.url)
    if given is not None and options.model is not None:
        return _Found(access_of(settings, given, options.model))
    configured = gateway_url(settings.server)
    running = _running(given, configured, settings, is_named=options.config is not None)
    if running is None:
        url = given or configured
        note = f"no gateway answers at {url}; start one: {own_command()} serve"
        model = options.model or fitting_model(options.client, default_models(settings))
        return _Found(access_of(settings, url, model), note)
    models, is_same = models_at(running, key_for(settings), settings)
    known = settings if is_same else Settings()
    names = [each.name for each in models]
    access = access_to(running, known, options.model or fitting_model(options.client, names))
    if running.models is not None:
        return _Found(access)
    return _Found(
        access, f"the gateway at {running.url} wants a key; {KEY_VARIABLE} has none of its keys"
    )


def _running(
    given: str | None, configured: str, settings: Settings, *, is_named: bool
) -> RunningGateway | None:
    """The gateway that answers: at the given address, else at the configured one, else at one that was recorded.

    is_named: `--config` names the configuration, so a recorded gateway with other settings is not the one that is meant.
    """
    key = key_for(settings)
    if given is not None:
        # A key of the configuration is not for an address that the command line names.
        return find_gateway(given, os.environ.get(KEY_VARIABLE))
    running = find_gateway(configured, key)
    if running is not None:
        return running
    for url in recorded_urls(os.environ):
        running = find_gateway(url, key)
        if running is not None and (not is_named or models_at(running, key, settings)[1]):
            return running
    return None
