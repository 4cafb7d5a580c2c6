"""What an operator says of the gateway. Values only, complete and checked by `config.py`.

Every limit is here with its reason; `docs/configuration.md` lists the same keys for readers.
"""

from typing import Literal

from msgspec import Struct, field

from dragoman.upstream.settings import RetrySettings, Route, UpstreamSettings

__all__ = ("LogSettings", "ServerSettings", "Settings")


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`format`: `auto` is readable lines on a terminal and JSON elsewhere."""

    format: Literal["auto", "console", "json"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to listen, whom to serve and how much.

    api_keys: without any only loopback is served. cors_origins: `*` or origins; empty: no CORS headers.
    max_body_bytes: after decompression; a conversation of a million tokens with images stays below.
    max_tools, max_depth: far above any real client (Claude Code has 24 tools, Codex some 20 plus MCP).
    max_streams: open exchanges per worker; one more is a 429 with Retry-After.
    keep_alive_interval: seconds of silence before a keep-alive; proxies cut at 30 to 60.
    shutdown_grace: how long open streams may go on after a stop was asked for.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    workers: int = 1
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 64 * 1024 * 1024
    max_header_bytes: int = 64 * 1024
    max_tools: int = 2048
    max_depth: int = 256
    max_streams: int = 4096
    keep_alive_interval: float = 15.0
    shutdown_grace: float = 10.0
    metrics: bool = True
    responses_profile: Literal["default", "required_action"] = "default"


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration. Without upstreams there is one: the rehearsal."""

    server: ServerSettings = field(default_factory=ServerSettings)
    log: LogSettings = field(default_factory=LogSettings)
    retry: RetrySettings = field(default_factory=RetrySettings)
    upstreams: dict[str, UpstreamSettings] = field(default_factory=dict[str, UpstreamSettings])
    routes: tuple[Route, ...] = ()
