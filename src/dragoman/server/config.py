"""Settings from a TOML file, the environment and flags: later ones win, in this order.

    load_settings        all of it; a function of its arguments but for the file it reads
    check_surroundings   whether the keys and files that settings name are there; asked before serving

The shape of the file is the shape of `server.settings.Settings`; every key, variable and flag is described in
`docs/configuration.md`.

    upstreams come from        and requests go
    --upstream kind=URL        all to it; the file's upstreams and routes are set aside
    the file                   by its routes; without routes all to its only upstream
    OPENAI_API_KEY, …          `claude-*` to `anthropic`, the rest to `openai`; or all to the one there is
    nowhere                    to the rehearsal

The environment's upstreams exist beside the file's, unless it names its own alike: its routes may use them.
"""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from msgspec import Struct, structs

from dragoman.errors import ConfigError
from dragoman.server.config_checks import check_surroundings, complete, config_error
from dragoman.server.config_proxy import PROXY_VARIABLES
from dragoman.server.config_trust import FoundFile, claims_of, refuse_untrusted
from dragoman.server.config_values import read_struct, suggestion, words
from dragoman.server.masking import PASS_ON, mask_url, masked
from dragoman.server.settings import Settings
from dragoman.server.targets import OPENAI_HOST
from dragoman.store.settings import StoreSettings
from dragoman.upstream.settings import Route, UpstreamSettings

__all__ = (
    "CONFIG_FILE",
    "CONFIG_VARIABLE",
    "Flags",
    "check_surroundings",
    "complete",
    "find_file",
    "load_settings",
    "masked",
)

CONFIG_FILE = "dragoman.toml"
CONFIG_VARIABLE = "DRAGOMAN_CONFIG"
UPSTREAM_KEY_VARIABLE = "DRAGOMAN_UPSTREAM_KEY"
DUMP_VARIABLE = "CODEX_DUMP_SSE"
DUMP_FILE = "dump_sse.jsonl"
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")

_S = TypeVar("_S", bound=Struct)

_ANTHROPIC_HOST = "api.anthropic.com"
# Kinds that have an address of their own, or none, and no key of the operator's.
_AT_HOME = ("rehearsal", "codex", "chatgpt-codex")
# A configuration has kilobytes; a recording given by mistake has not.
_MAX_FILE = 4 * 1024 * 1024


class Flags(Struct, frozen=True, kw_only=True):
    """What the command line said; None where it said nothing. `upstream` is `kind=URL`."""

    host: str | None = None
    port: int | None = None
    workers: int | None = None
    upstream: str | None = None
    log_format: str | None = None
    log_level: str | None = None


NO_FLAGS = Flags()

OnFound = Callable[[FoundFile, Mapping[str, str]], None]


def load_settings(
    path: Path | str | None,
    environ: Mapping[str, str],
    flags: Flags = NO_FLAGS,
    on_found: OnFound = refuse_untrusted,
    *,
    is_named: bool | None = None,
) -> Settings:
    """The settings to serve with, complete and checked.

    path: the file to read; None: the one DRAGOMAN_CONFIG names, else ./dragoman.toml if there is one.
    on_found: asked about a file that nobody named and that does what needs trust; it raises if that is not given.
    is_named: whether somebody named the file, where that is not the same as giving its path.

    Raises:
        ConfigError: they cannot work, every reason is a line of the message; or they are not trusted.
    """
    file = find_file(path, environ)
    data = b"" if file is None else _read_file(file)
    said = Settings() if file is None else _read_settings(file, data)
    settings = _combined(said, environ, flags)
    if is_named is None:
        is_named = path is not None or bool(environ.get(CONFIG_VARIABLE))
    if file is not None and not is_named:
        if flags.upstream is not None:
            said = structs.replace(said, upstreams={})
        claims = claims_of(said, settings, environ)
        if claims:
            on_found(FoundFile(file, data, claims), environ)
    return settings


def _combined(settings: Settings, environ: Mapping[str, str], flags: Flags) -> Settings:
    complaints: list[str] = []
    settings = _overridden(settings, _said_by_environment(environ), complaints)
    settings = _overridden(settings, _said_by_flags(flags), complaints)
    settings = _with_dump(settings, environ, complaints)
    if flags.upstream is not None:
        settings = _with_short_form(settings, flags.upstream, environ, complaints)
    else:
        settings = _with_environment_upstreams(settings, environ)
    if complaints:
        raise config_error(complaints)
    return complete(settings)


def find_file(path: Path | str | None, environ: Mapping[str, str]) -> Path | None:
    """The file that `load_settings` reads with these arguments, None if it reads none."""
    named = path if path is not None else environ.get(CONFIG_VARIABLE) or None
    if named is not None:
        return Path(named)
    default = Path(CONFIG_FILE)
    return default if default.exists() else None


def _read_file(file: Path) -> bytes:
    """Once: what is trusted and what is used are the same bytes."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_FILE + 1)
    except OSError as error:
        raise ConfigError(f"{file}: expected a readable file: {error.strerror or error}") from error
    if len(data) > _MAX_FILE:
        raise ConfigError(f"{file}: expected at most {_MAX_FILE:,} bytes, got more")
    return data


def _read_settings(file: Path, data: bytes) -> Settings:
    try:
        table = tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}: expected UTF-8, got other bytes in line {line}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: expected TOML: {error}") from error
    complaints: list[str] = []
    settings = read_struct(Settings, table, "", complaints)
    if settings is None:
        raise config_error([f"{file}: {complaint}" for complaint in complaints])
    return settings


class _Said(Struct, frozen=True):
    """A value for one key, and who gave it, for complaints."""

    source: str
    section: str
    key: str
    value: object


def _number(text: str) -> object:
    return int(text) if text.strip().isdecimal() else text


def _items(text: str) -> object:
    return [item.strip() for item in text.split(",") if item.strip()]


def _text(text: str) -> object:
    return text


_VARIABLES: Mapping[str, tuple[str, str, Callable[[str], object]]] = {
    "DRAGOMAN_HOST": ("server", "host", _text),
    "DRAGOMAN_PORT": ("server", "port", _number),
    "DRAGOMAN_WORKERS": ("server", "workers", _number),
    "DRAGOMAN_API_KEYS": ("server", "api_keys", _items),
    "DRAGOMAN_CORS_ORIGINS": ("server", "cors_origins", _items),
    "DRAGOMAN_ALLOWED_HOSTS": ("server", "allowed_hosts", _items),
    "DRAGOMAN_LOG_FORMAT": ("log", "format", _text),
    "DRAGOMAN_LOG_LEVEL": ("log", "level", _text),
    "DRAGOMAN_STORE_URL": ("store", "url", _text),
    "DRAGOMAN_STORE_POLICY": ("store", "policy", _text),
    "DRAGOMAN_STORE_TTL": ("store", "ttl", _number),
}
"""Environment variables for single keys; an empty one counts as unset, as compose files and shells leave them."""


def _said_by_environment(environ: Mapping[str, str]) -> list[_Said]:
    return [
        *(
            _Said(variable, section, key, read(environ[variable]))
            for variable, (section, key, read) in _VARIABLES.items()
            if environ.get(variable)
        ),
        *(
            _Said(variable, "chat", key, read(environ[variable]))
            for variable, (key, read) in PROXY_VARIABLES.items()
            if environ.get(variable)
        ),
    ]


def _said_by_flags(flags: Flags) -> list[_Said]:
    said = [
        _Said("--host", "server", "host", flags.host),
        _Said("--port", "server", "port", flags.port),
        _Said("--workers", "server", "workers", flags.workers),
        _Said("--log-format", "log", "format", flags.log_format),
        _Said("--log-level", "log", "level", flags.log_level),
    ]
    return [each for each in said if each.value is not None]


def _overridden(settings: Settings, said: list[_Said], complaints: list[str]) -> Settings:
    server, log, chat = settings.server, settings.log, settings.chat
    store = settings.store or StoreSettings()
    for each in said:
        if each.section == "server":
            server = _changed(server, each, complaints)
        elif each.section == "chat":
            chat = _changed(chat, each, complaints)
        elif each.section == "store":
            store = _changed(store, each, complaints)
        else:
            log = _changed(log, each, complaints)
    return structs.replace(settings, server=server, log=log, chat=chat, store=store)


def _changed(section: _S, said: _Said, complaints: list[str]) -> _S:
    found: list[str] = []
    read = read_struct(type(section), {said.key: said.value}, "", found)
    complaints += [said.source + line.removeprefix(said.key) for line in found]
    return (
        section if read is None else structs.replace(section, **{said.key: getattr(read, said.key)})
    )


def _with_dump(settings: Settings, environ: Mapping[str, str], complaints: list[str]) -> Settings:
    """`CODEX_DUMP_SSE` turns the dump on, into a file of its own name unless one is configured, or off."""
    said = environ.get(DUMP_VARIABLE, "").strip().lower()
    if not said:
        return settings
    if said not in (*_YES, *_NO):
        complaints.append(f"{DUMP_VARIABLE}: expected 1 or true, 0 or false; got {said!r}")
        return settings
    path = (settings.dump.path or DUMP_FILE) if said in _YES else None
    return structs.replace(settings, dump=structs.replace(settings.dump, path=path))


def _with_short_form(
    settings: Settings, text: str, environ: Mapping[str, str], complaints: list[str]
) -> Settings:
    """`--upstream kind=URL`: the only upstream, named for its kind; some kinds, such as `rehearsal`, need no address."""
    kind, _, url = text.partition("=")
    found: list[str] = []
    upstream = read_struct(UpstreamSettings, {"kind": kind, "base_url": url}, "", found)
    if upstream is None or (kind not in _AT_HOME and not url):
        kinds = ("chat", "responses", "messages")
        hint = suggestion(kind, (*kinds, *_AT_HOME)) if found else ""
        complaints.append(
            f"--upstream: expected kind=URL with a kind of {words(kinds)}, such as "
            f"chat=http://127.0.0.1:8000/v1, or one of {words(_AT_HOME)} alone; got {mask_url(text)!r}{hint}"
        )
        return settings
    if kind not in _AT_HOME:
        upstream = _with_key(upstream, environ)
    return structs.replace(settings, upstreams={kind: upstream}, routes=())


def _with_key(upstream: UpstreamSettings, environ: Mapping[str, str]) -> UpstreamSettings:
    """A vendor's key goes to that vendor's host only; every other place gets what was meant for it."""
    if environ.get(UPSTREAM_KEY_VARIABLE) == PASS_ON:
        return structs.replace(upstream, api_key=PASS_ON)
    if environ.get(UPSTREAM_KEY_VARIABLE):
        return structs.replace(upstream, api_key_env=UPSTREAM_KEY_VARIABLE)
    try:
        host = urlsplit(upstream.base_url).hostname
    except ValueError:  # complained about by `complete`
        return upstream
    variable = {OPENAI_HOST: "OPENAI_API_KEY", _ANTHROPIC_HOST: "ANTHROPIC_API_KEY"}.get(host or "")
    if variable and environ.get(variable):
        return structs.replace(upstream, api_key_env=variable)
    return upstream


def _with_environment_upstreams(settings: Settings, environ: Mapping[str, str]) -> Settings:
    from_environment = _environment_upstreams(environ)
    upstreams = {**from_environment, **settings.upstreams}
    routes = settings.routes
    if not routes:
        if settings.upstreams:
            # Only the file's count: with one of them everything goes there, with several `complete` asks for routes.
            upstreams = settings.upstreams
        elif len(upstreams) > 1:
            routes = (
                Route(model="claude-*", upstream="anthropic"),
                Route(model="*", upstream="openai"),
            )
    return structs.replace(settings, upstreams=upstreams, routes=routes)


def _environment_upstreams(environ: Mapping[str, str]) -> dict[str, UpstreamSettings]:
    upstreams: dict[str, UpstreamSettings] = {}
    if environ.get("OPENAI_API_KEY"):
        upstreams["openai"] = UpstreamSettings(
            kind="responses",
            also=("chat",),
            base_url=environ.get("OPENAI_BASE_URL") or f"https://{OPENAI_HOST}/v1",
            api_key_env="OPENAI_API_KEY",
            keeps_responses=True,
        )
    if environ.get("ANTHROPIC_API_KEY"):
        upstreams["anthropic"] = UpstreamSettings(
            kind="messages",
            base_url=environ.get("ANTHROPIC_BASE_URL") or f"https://{_ANTHROPIC_HOST}/v1",
            api_key_env="ANTHROPIC_API_KEY",
        )
    return upstreams
