"""`dragoman connect`: prints the configuration to paste into a client, or writes it.

It is for the gateway that runs, at the configured address or recorded by `dragoman serve`; if none runs, for the configured one.
What `--write` writes, without a key; a file that was there is kept beside the new one:

    codex         `dragoman.config.toml` in Codex's folder, a profile: `codex -p dragoman`
    claude-code   `env` in `settings.json` in Claude Code's folder; everything else in it stays as it is
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from msgspec import structs

from dragoman._json import dumps_document, loads
from dragoman.cli.options import Options, add_config_option
from dragoman.cli.screen import CLEAN, complain, own_command, write
from dragoman.cli.trust import ask_for_trust_in_server
from dragoman.config.environment import http_address, write_private
from dragoman.config.read import load_settings
from dragoman.config.secrets import mask_url
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError, MalformedJson
from dragoman.gateway.route import Router, default_models
from dragoman.inspection.terminal_text import visible, visible_line
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
from dragoman.server.running import RunningGateway, find_gateway, find_owners, recorded_urls
from dragoman.upstream.http.model_list import OfferedModel

SUMMARY = "print what to paste into a client that should use the gateway"

PROFILE = "dragoman"
# A settings file has kilobytes.
_MAX_BYTES = 4 * 1024 * 1024
# A name that is in no list: the gateway then says which upstream gets unknown names.
_ANY_NAME = "any-other-model"
_MOST_SHOWN = 20


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


# --- the gateway and the model, for `launch` too ------------------------------------------------------------------------


def check_url(url: str) -> str:
    """The address of a gateway, without `/v1` and without a slash at the end.

    Raises:
        ConfigError: it is no address, or has a user and a password.
    """
    parts = http_address(url)
    if parts is None or parts.query or parts.fragment:
        raise ConfigError(
            f"--url: expected an address such as http://127.0.0.1:8787, got {mask_url(url)!r}"
        )
    if "@" in parts.netloc:
        raise ConfigError(
            f"--url: expected an address without user and password, got {mask_url(url)!r}; "
            f"a key goes into {KEY_VARIABLE}"
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def key_for(settings: Settings) -> str | None:
    """The key for a gateway with these settings; None if it needs none."""
    return os.environ.get(KEY_VARIABLE) or next(iter(settings.server.api_keys), None)


def access_to(running: RunningGateway, settings: Settings, model: str | None) -> GatewayAccess:
    """How to reach a gateway that runs. `settings`: its own, or the defaults if they are not known."""
    access = access_of(settings, running.url, model)
    return structs.replace(access, key="gateway") if running.needs_key else access


def models_at(
    running: RunningGateway, key: str | None, settings: Settings | None
) -> tuple[tuple[OfferedModel, ...], bool]:
    """The models of a gateway that runs, and whether it has these settings.

    It may have been started with others (`dragoman serve --upstream …`), so it is asked where it sends each model.
    """
    listed = running.models or ()
    if settings is None:
        return listed, False
    names = default_models(settings)
    router = Router(settings)
    owners = find_owners(running.url, key, (*names, _ANY_NAME))
    for name, owner in owners.items():
        candidate = router.first(name)
        if owner != (None if candidate is None else candidate.upstream):
            return listed, False
    known = {name: OfferedModel(name) for name in names} | {each.name: each for each in listed}
    return tuple(known.values()), True


def choose_model(
    client: str,
    known: Sequence[OfferedModel],
    offered: Sequence[OfferedModel],
    *,
    problems: Sequence[str] = (),
    how: str,
) -> str:
    """The model for a client of `server.connect.CLIENTS`: the one with a known name that fits, otherwise the only one that the
    upstreams offer.

    Raises:
        ConfigError: there is none, or the choice is the user's. how: the option that names a model.
    """
    found = fitting_model(client, [each.name for each in known])
    if found is not None:
        return found
    if len(offered) == 1:
        return offered[0].name
    if offered:
        names = ", ".join(visible_line(each.name) for each in offered[:_MOST_SHOWN])
        more = f" and {len(offered) - _MOST_SHOWN} more" if len(offered) > _MOST_SHOWN else ""
        raise ConfigError(f"expected {how}: the upstream has several models: {names}{more}")
    reasons = "\n".join(problems)
    raise ConfigError(
        "\n".join(filter(None, (reasons, f"expected {how}: no model of the upstream is known")))
    )


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
