"""Reads the settings from a TOML file, the environment and flags; flags override the environment, which overrides the file.

The file has the shape of `settings.Settings`; `docs/configuration.md` describes every key, variable and flag.

    upstreams come from        and requests go
    --upstream kind=URL        all to this upstream; the file's upstreams and routes are ignored
    the file                   by its routes; without routes all to its only upstream
    OPENAI_API_KEY, …          `claude-*` to `anthropic`, the rest to `openai`; with one key, all to that vendor
    nowhere                    to the rehearsal

Upstreams of the environment are added to those of the file, unless the file uses the same name; its routes may use them.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, structs

from dragoman.config.check import check_surroundings, complete, config_error
from dragoman.config.environment import Override, overrides_from, upstreams_from, with_key
from dragoman.config.secrets import mask_url
from dragoman.config.settings import (
    KIND_HINTS,
    LogSettings,
    ModelLimits,
    RetrySettings,
    Route,
    ServerSettings,
    Settings,
    StoreSettings,
    UpstreamSettings,
)
from dragoman.config.toml_text import line_of, located, places_of
from dragoman.config.trust import FoundFile, claims_of, refuse_untrusted
from dragoman.config.values import read_struct, read_toml, read_usable, suggestion, words
from dragoman.errors import ConfigError

__all__ = (
    "CONFIG_FILE",
    "CONFIG_VARIABLE",
    "Flags",
    "find_file",
    "load_checked_settings",
    "load_settings",
)

CONFIG_FILE = "dragoman.toml"
"""The file that is read if no other is named, in the folder where the command is started."""
CONFIG_VARIABLE = "DRAGOMAN_CONFIG"
"""The environment variable that names the file to read."""
DUMP_VARIABLE = "CODEX_DUMP_SSE"
DUMP_FILE = "dump_sse.jsonl"
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")

_S = TypeVar("_S", bound=Struct)

# Kinds that need neither a base_url nor a key from the operator.
_AT_HOME = ("rehearsal", "codex", "chatgpt-codex")
_UNKNOWN_KEY = ": unknown key"
_KEYS_SHOWN = "remove it; `dragoman check --all` shows every key"
_SECTIONS: Mapping[str, type[Struct]] = {
    "[server]": ServerSettings,
    "[[routes]]": Route,
    "[retry]": RetrySettings,
    "[log]": LogSettings,
    "[upstreams.NAME.limits]": ModelLimits,
}
# Sections that name upstreams and MCP servers.
_CROSS_REFERENCES = ("routes", "mcp", "hosted")
# Bytes. A configuration has kilobytes; a larger file was named by mistake.
_MAX_FILE = 4 * 1024 * 1024


class Flags(Struct, frozen=True, kw_only=True):
    """The flags of the command line; None if a flag was not given.

    upstream: `kind=URL`. key_env: the variable that holds the key of this upstream.
    inspect: capture exchanges from the start. record: the folder to record them in.
    """

    host: str | None = None
    port: int | None = None
    workers: int | None = None
    upstream: str | None = None
    key_env: str | None = None
    log_format: str | None = None
    log_level: str | None = None
    inspect: bool = False
    record: str | None = None


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
    """Load the settings, complete and checked.

    path: the file to read; None: the file that DRAGOMAN_CONFIG names, else ./dragoman.toml if it exists.
    on_found: called with a file that was found, not named, and that needs trust; raises if the user does not trust it.
    is_named: whether the user named the file; None: true if `path` or DRAGOMAN_CONFIG is given.

    Raises:
        ConfigError: the settings cannot work (one line of the message per reason), or they are not trusted.
    """
    file = find_file(path, environ)
    data = b"" if file is None else read_config_file(file)
    found: list[str] = []
    from_file = Settings() if file is None else _read_settings(file, data, found)
    try:
        settings = _combined(from_file, environ, flags)
    except ConfigError as error:
        more = [line for line in error.message.split("\n") if not _follows(line, found)]
        raise _located([*found, *more], file, data, environ, flags) from None
    if found:
        raise _located(found, file, data, environ, flags)
    if is_named is None:
        is_named = path is not None or bool(environ.get(CONFIG_VARIABLE))
    if file is not None and not is_named:
        if flags.upstream is not None:
            from_file = structs.replace(from_file, upstreams={})
        claims = claims_of(from_file, settings, environ)
        if claims:
            on_found(FoundFile(file, data, claims), environ)
    return settings


def load_checked_settings(
    path: Path | str | None, environ: Mapping[str, str], flags: Flags, on_found: OnFound
) -> Settings:
    """`load_settings` for a server that starts here: the programs, files and variables that the settings name must exist.

    Raises:
        ConfigError: as `load_settings`, or something that the settings name is missing.
    """
    settings = load_settings(path, environ, flags, on_found)
    try:
        check_surroundings(settings, environ)
    except ConfigError as error:
        file = find_file(path, environ)
        data = b"" if file is None else read_config_file(file)
        problems = error.message.split("\n")
        raise _located(problems, file, data, environ, flags) from None
    return settings


def _located(
    problems: list[str], file: Path | None, data: bytes, environ: Mapping[str, str], flags: Flags
) -> ConfigError:
    """The error for these problems, with file and line for those of the file."""
    if file is None:
        return config_error(problems)
    overrides = [*overrides_from(environ), *_overrides_of(flags)]
    elsewhere = tuple(f"{each.section}.{each.key}" for each in overrides)
    if flags.upstream is not None:
        elsewhere = (*elsewhere, "upstreams", "routes")
    places = places_of(data)
    top = {path[0] for path in places}

    def is_of_file(problem: str) -> bool:
        return _top_key(problem) in top and not any(_is_at(problem, key) for key in elsewhere)

    of_file = sorted(filter(is_of_file, problems), key=lambda each: line_of(each, places))
    rest = [each for each in problems if not is_of_file(each)]
    return config_error([*(located(each, str(file), places) for each in of_file), *rest])


def _top_key(problem: str) -> str:
    return re.split(r"[.:\[]", problem, maxsplit=1)[0]


def _entry(problem: str) -> str | None:
    """The entry of a list that a problem is about: `routes[0]`; None if it is about no single one."""
    found = re.match(r"\w+\[\d+\]", problem)
    return found[0] if found else None


def _is_at(problem: str, path: str) -> bool:
    """Whether a problem is one of this key, or of something in it."""
    return problem.startswith((f"{path}:", f"{path}.", f"{path}["))


def _follows(problem: str, found: list[str]) -> bool:
    """Whether a problem may only be the consequence of those that were found before, in the file.

    A key that is missing may be the one that is misspelt; a route may name the upstream that could not be read.
    """
    if not found:
        return False
    if _top_key(problem) in _CROSS_REFERENCES:
        others = [each for each in found if _top_key(each) in _CROSS_REFERENCES]
        if any(_top_key(each) != _top_key(problem) for each in others):
            return True
        if others and (_entry(problem) is None or _entry(problem) in map(_entry, others)):
            return True
        paths = [each.partition(": ")[0].split(".") for each in found]
        unread = [path[1] if len(path) > 1 else "" for path in paths if path[0] == "upstreams"]
        return any(not name or f'no upstream "{name}"' in problem for name in unread)
    for each in found:
        path = each.partition(": ")[0]
        table = path.rpartition(".")[0]
        # A key that has a value is not the one that is misspelt.
        is_key_unclear = (
            _UNKNOWN_KEY in each or each.endswith("it is missing")
        ) and ", got " not in problem
        if _is_at(problem, path) or (is_key_unclear and table and _is_at(problem, table)):
            return True
    return False


def _combined(settings: Settings, environ: Mapping[str, str], flags: Flags) -> Settings:
    problems: list[str] = []
    settings = _overridden(settings, overrides_from(environ), problems)
    settings = _overridden(settings, _overrides_of(flags), problems)
    settings = _with_dump(settings, environ, problems)
    if flags.upstream is not None:
        settings = _with_short_form(settings, flags, environ, problems)
    elif flags.key_env is not None:
        problems.append(
            "--key-env: expected --upstream beside it, the upstream that the key is for"
        )
    else:
        settings = _with_environment_upstreams(settings, environ)
    if problems:
        raise config_error(problems)
    return complete(settings)


def find_file(path: Path | str | None, environ: Mapping[str, str]) -> Path | None:
    """The file that `load_settings` reads with these arguments; None if it reads none."""
    named = path if path is not None else environ.get(CONFIG_VARIABLE) or None
    if named is not None:
        return Path(named)
    default = Path(CONFIG_FILE)
    return default if default.exists() else None


def read_config_file(file: Path) -> bytes:
    """Read a configuration file once, so that the trusted bytes and the used bytes are the same.

    Raises:
        ConfigError: it cannot be read, or is too large.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_FILE + 1)
    except OSError as error:
        raise ConfigError(f"{file}: expected a readable file: {error.strerror or error}") from error
    if len(data) > _MAX_FILE:
        raise ConfigError(f"{file}: expected at most {_MAX_FILE:,} bytes, got more")
    return data


def _read_settings(file: Path, data: bytes, problems: list[str]) -> Settings:
    """The settings of a file; without those that have a problem, so that the others can be checked too."""
    settings = read_usable(Settings, read_toml(data, str(file)), "", problems)
    problems[:] = [
        each + _home_of(each) if each.endswith(_UNKNOWN_KEY) else each for each in problems
    ]
    return Settings() if settings is None else settings


def _home_of(problem: str) -> str:
    """The sections in which an unknown key would be known; else how to see the known ones."""
    key = problem.removesuffix(_UNKNOWN_KEY).rpartition(".")[2]
    homes = [name for name, kind in _SECTIONS.items() if key in kind.__struct_fields__]
    return f"; it belongs in {' or '.join(homes)}" if homes else f"; {_KEYS_SHOWN}"


def _overrides_of(flags: Flags) -> list[Override]:
    given = [
        Override("--host", "server", "host", flags.host),
        Override("--port", "server", "port", flags.port),
        Override("--workers", "server", "workers", flags.workers),
        Override("--log-format", "log", "format", flags.log_format),
        Override("--log-level", "log", "level", flags.log_level),
        Override("--inspect", "inspect", "capture", "on" if flags.inspect else None),
        Override("--record", "inspect", "record", flags.record),
    ]
    return [each for each in given if each.value is not None]


def _overridden(settings: Settings, overrides: list[Override], problems: list[str]) -> Settings:
    settings = structs.replace(settings, store=settings.store or StoreSettings())
    for each in overrides:
        section: Struct = getattr(settings, each.section)
        changed = {each.section: _changed(section, each, problems)}
        settings = structs.replace(settings, **changed)
    return settings


def _changed(section: _S, override: Override, problems: list[str]) -> _S:
    key = override.key
    found: list[str] = []
    read = read_struct(type(section), {key: override.value}, "", found)
    problems += [override.source + line.removeprefix(key) for line in found]
    return section if read is None else structs.replace(section, **{key: getattr(read, key)})


def _with_dump(settings: Settings, environ: Mapping[str, str], problems: list[str]) -> Settings:
    """Apply `CODEX_DUMP_SSE`, which turns the dump on (into `DUMP_FILE` unless a path is configured) or off."""
    value = environ.get(DUMP_VARIABLE, "").strip().lower()
    if not value:
        return settings
    if value not in (*_YES, *_NO):
        problems.append(f"{DUMP_VARIABLE}: expected 1 or true, 0 or false; got {value!r}")
        return settings
    path = (settings.dump.path or DUMP_FILE) if value in _YES else None
    return structs.replace(settings, dump=structs.replace(settings.dump, path=path))


def _with_short_form(
    settings: Settings, flags: Flags, environ: Mapping[str, str], problems: list[str]
) -> Settings:
    """Apply `--upstream kind=URL`: the only upstream, named after its kind. Kinds such as `rehearsal` need no address."""
    text = flags.upstream or ""
    kind, _, url = text.partition("=")
    found: list[str] = []
    upstream = read_struct(UpstreamSettings, {"kind": kind, "base_url": url}, "", found)
    if upstream is None or (kind not in _AT_HOME and not url):
        kinds = ("chat", "responses", "messages")
        hint = suggestion(kind, (*kinds, *_AT_HOME)) if found else ""
        if kind.lower() in KIND_HINTS.words:
            hint = f"; {KIND_HINTS.words[kind.lower()][1]}"
        problems.append(
            f"--upstream: expected kind=URL with a kind of {words(kinds)}, such as "
            f"chat=http://127.0.0.1:8000/v1, or one of {words(_AT_HOME)} alone; got {mask_url(text)!r}{hint}"
        )
        return settings
    if flags.key_env is not None:
        upstream = structs.replace(upstream, api_key_env=flags.key_env)
    elif kind not in _AT_HOME:
        upstream = with_key(upstream, environ)
    return structs.replace(settings, upstreams={kind: upstream}, routes=())


def _with_environment_upstreams(settings: Settings, environ: Mapping[str, str]) -> Settings:
    from_environment = upstreams_from(environ)
    upstreams = {**from_environment, **settings.upstreams}
    routes = settings.routes
    if not routes:
        if settings.upstreams:
            # Use only the file's upstreams: a single one gets every request, for several `complete` demands routes.
            upstreams = settings.upstreams
        elif len(upstreams) > 1:
            routes = (
                Route(model="claude-*", upstream="anthropic"),
                Route(model="*", upstream="openai"),
            )
    return structs.replace(settings, upstreams=upstreams, routes=routes)
