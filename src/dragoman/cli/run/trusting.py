"""The configuration of a run, and how far a file is trusted that merely lies in the folder.

A gateway is started where its operator keeps its file. An agent is run in any folder, also in one that somebody else
wrote, or that an agent has written to before. So a `dragoman.toml` that is found there may say which upstream is asked,
but unless it is named (`--config`, `DRAGOMAN_CONFIG`) it starts no program and sends nothing to a place it has chosen.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from msgspec import structs

from dragoman.cli.options import Options
from dragoman.errors import ConfigError
from dragoman.server.config import (
    CONFIG_VARIABLE,
    Flags,
    check_surroundings,
    find_file,
    load_settings,
)
from dragoman.server.config_checks import is_loopback
from dragoman.server.settings import HostedSettings, Settings
from dragoman.upstream.settings import UpstreamSettings

__all__ = ("load_trusted",)

_VENDORS = frozenset(("api.openai.com", "api.anthropic.com", "chatgpt.com"))
_USUAL = UpstreamSettings(kind="codex")


def load_trusted(options: Options, environ: Mapping[str, str]) -> Settings:
    """The settings of a run.

    Raises:
        ConfigError: they cannot work, or are not to be trusted unseen.
    """
    settings = load_settings(options.config, environ, Flags(upstream=options.upstream))
    is_named = options.config is not None or bool(environ.get(CONFIG_VARIABLE))
    if not is_named:
        file = find_file(None, environ)
        if file is not None and options.upstream is None:
            _check(settings, environ, str(file))
        routes = tuple(structs.replace(route, mcp=None) for route in settings.routes)
        settings = structs.replace(settings, mcp=(), routes=routes, hosted=HostedSettings())
    check_surroundings(settings, environ)
    return settings


def _check(settings: Settings, environ: Mapping[str, str], file: str) -> None:
    known = {*_VENDORS, *_hosts_of(environ)}
    for name, upstream in settings.upstreams.items():
        key = _untrusted(upstream, known)
        if key is not None:
            raise ConfigError(
                f"upstreams.{name}.{key}: {file} merely lies in this folder; if you trust it, name it: --config {file}"
            )


def _untrusted(upstream: UpstreamSettings, known: set[str]) -> str | None:
    """The key that makes an upstream one to be asked about."""
    host = urlsplit(upstream.base_url).hostname or ""
    if host and host not in known and not is_loopback(host):
        return "base_url"
    if upstream.proxy is not None:
        return "proxy"
    if upstream.ca_file is not None:
        return "ca_file"
    if upstream.kind == "codex":
        changed = (key for key in ("command", "env", "codex_home") if _differs(upstream, key))
        return next(changed, None)
    return None


def _differs(upstream: UpstreamSettings, key: str) -> bool:
    return bool(getattr(upstream, key) != getattr(_USUAL, key))


def _hosts_of(environ: Mapping[str, str]) -> Iterator[str]:
    """Where the person's own environment sends requests."""
    for variable in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        try:
            host = urlsplit(environ.get(variable, "")).hostname
        except ValueError:  # complained about by whoever uses it
            continue
        if host:
            yield host
