"""`dragoman connect`: prints the configuration to paste into a client, or writes it.

It is for the gateway that runs, at the configured address or recorded by `dragoman serve`; if none runs, for the configured one.
What `--write` writes, without a key; a file that was there is kept beside the new one:

    codex         `dragoman.config.toml` in Codex's folder, a profile: `codex -p dragoman`
    claude-code   `env` in `settings.json` in Claude Code's folder; everything else in it stays as it is
"""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from dragoman._json import dumps_document, loads
from dragoman.cli.gateways import access_to, check_url, key_for, models_at
from dragoman.cli.options import Options, add_config_option
from dragoman.cli.screen import CLEAN, complain, own_command, write
from dragoman.cli.trust import ask_for_trust_in_server
from dragoman.config.environment import write_private
from dragoman.config.read import load_settings
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError, MalformedJson
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

PROFILE = "dragoman"
# A settings file has kilobytes.
_MAX_BYTES = 4 * 1024 * 1024


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
    access, note = _find(options, settings)
    if access.model == UNKNOWN_MODEL:
        complain([f"no model is known: put its name in place of {UNKNOWN_MODEL}, or use --model"])
    if note:
        complain([note])
    client = options.client
    made = write_client(client, access, os.environ) if options.write else snippet(client, access)
    write(visible(made).encode())
    return CLEAN


def _find(options: Options, settings: Settings) -> tuple[GatewayAccess, str]:
    """How to reach the gateway, and a note on what is missing."""
    given = None if options.url is None else check_url(options.url)
    if given is not None and options.model is not None:
        return access_of(settings, given, options.model), ""
    configured = gateway_url(settings.server)
    running = _running(given, configured, settings, is_named=options.config is not None)
    if running is None:
        url = given or configured
        note = f"no gateway answers at {url}; start one: {own_command()} serve"
        model = options.model or fitting_model(options.client, default_models(settings))
        return access_of(settings, url, model), note
    models, is_same = models_at(running, key_for(settings), settings)
    known = settings if is_same else Settings()
    names = [each.name for each in models]
    access = access_to(running, known, options.model or fitting_model(options.client, names))
    refusal = f"the gateway at {running.url} wants a key; {KEY_VARIABLE} has none of its keys"
    return access, refusal if running.models is None else ""


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


# --- the files of clients ----------------------------------------------------------------------------------------------


def _write_codex(access: GatewayAccess, environ: Mapping[str, str]) -> str:
    lines = snippet("codex", access).splitlines(keepends=True)
    text = "".join(lines[1:])  # the first says where to paste it
    path = _folder(environ, "CODEX_HOME", "~/.codex") / f"{PROFILE}.config.toml"
    return _write(path, text.encode(), text, f"start Codex with it: codex -p {PROFILE}")


def _write_claude_code(access: GatewayAccess, environ: Mapping[str, str]) -> str:
    path = _folder(environ, "CLAUDE_CONFIG_DIR", "~/.claude") / "settings.json"
    settings = _read_object(path)
    env = settings.get("env", {})
    if not isinstance(env, dict):
        raise ConfigError(f"{path}: expected an object in `env`, got something else")
    added = {
        "ANTHROPIC_BASE_URL": access.url,
        "ANTHROPIC_MODEL": access.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": access.model,
        "ENABLE_TOOL_SEARCH": "true",
    }
    hint = "start Claude Code: claude; without ANTHROPIC_API_KEY in its environment"
    if access.key == "none":
        added["ANTHROPIC_AUTH_TOKEN"] = access.placeholder
    else:
        hint += ", and with ANTHROPIC_AUTH_TOKEN, the key"
    written = settings | {"env": cast("dict[str, object]", env) | added}
    return _write(path, dumps_document(written), dumps_document({"env": added}).decode(), hint)


WRITERS: Mapping[str, Callable[[GatewayAccess, Mapping[str, str]], str]] = {
    "codex": _write_codex,
    "claude-code": _write_claude_code,
}
"""The clients of `server.connect.CLIENTS` that have a file for it, and the function that writes it and says what was written."""


def write_client(client: str, access: GatewayAccess, environ: Mapping[str, str]) -> str:
    """Write the settings of a client of `WRITERS`. Returns what was written, and how to use it, for a person.

    Raises:
        ConfigError: no model is known, or a file cannot be read or written.
    """
    if access.model == UNKNOWN_MODEL:
        raise ConfigError("--write: expected --model as well, no model is known")
    return WRITERS[client](access, environ)


def _folder(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    try:
        return Path(environ.get(variable) or usual).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"expected a home directory, or {variable}: {error}") from error


def _read_object(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        document: object = loads(data)
    except FileNotFoundError:
        return {}
    except (OSError, MalformedJson) as error:
        raise ConfigError(f"{path}: expected a readable JSON file: {error}") from error
    if not isinstance(document, dict) or len(data) > _MAX_BYTES:
        raise ConfigError(f"{path}: expected a JSON object of at most {_MAX_BYTES:,} bytes")
    return cast("dict[str, object]", document)


def _write(path: Path, data: bytes, shown: str, hint: str) -> str:
    """Write a file, through a link to the file that it names, and keep a copy of what was there. Returns what was done."""
    kept = ""
    try:
        target = Path(os.path.realpath(path))
        if target.exists():
            backup = _free_name(target)
            write_private(backup, target.read_bytes())
            kept = f" (what was there: {backup})"
        write_private(target, data)
    except OSError as error:
        raise ConfigError(f"{path}: expected to write it: {error.strerror or error}") from error
    lines = "".join(f"  {line}\n" for line in shown.splitlines())
    return f"wrote {path}{kept}\n{lines}{hint}\n"


def _free_name(path: Path) -> Path:
    number = 1
    while (name := path.with_name(f"{path.name}.backup-{number}")).exists():
        number += 1
    return name
