"""What an operator says of the gateway. Values only, complete and checked by `config.py`.

Every limit is here with its reason; `docs/configuration.md` lists the same keys for readers.
"""

from typing import Literal

from msgspec import Struct, field

from dragoman._json import MAX_VALUES
from dragoman.engine.mcp.settings import McpServerSettings
from dragoman.store.settings import StoreSettings
from dragoman.textcalls.contract.policy import OutputModeWord, StopMode, XmlEscape
from dragoman.upstream.settings import RetrySettings, Route, UpstreamSettings

__all__ = (
    "ChatSettings",
    "DumpSettings",
    "HostedSettings",
    "LogSettings",
    "ServerSettings",
    "Settings",
)


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`format`: `auto` is readable lines on a terminal and JSON elsewhere."""

    format: Literal["auto", "console", "json"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class DumpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What upstreams sent, for people who look for a fault. None of it is kept unless there is a `path`.

    max_bytes: of one file; files: how many are kept, the one being written among them.
    """

    path: str | None = None
    max_bytes: int = 16 * 1024 * 1024
    files: int = 3


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to listen, whom to serve and how much.

    api_keys: without any only loopback is served. cors_origins: `*` or origins; empty: no CORS headers.
    allowed_hosts: names in `Host` that are served without keys, besides those of this machine: see `cors.check_source`.
    max_body_bytes: after decompression; a conversation of a million tokens with images stays below.
    max_tools, max_depth: far above any real client (Claude Code has 24 tools, Codex some 20 plus MCP).
    max_values: JSON values of a request, whatever their size: they are read in one step, which holds up everybody.
    max_streams: open exchanges per worker; one more is a 429 with Retry-After.
    head_timeout, body_timeout: seconds for the head of a request, and without progress in its body; clients on this machine
        or behind a proxy need milliseconds, those on a bad line a few seconds.
    idle_timeout: above the minute after which load balancers drop idle connections: they should be the ones to close.
    send_timeout: seconds in which a client must take something of its answer, as nginx's.
    keep_alive_interval: seconds of silence before a keep-alive; proxies cut at 30 to 60.
    shutdown_grace: how long open streams may go on after a stop was asked for.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    workers: int = 1
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 64 * 1024 * 1024
    max_header_bytes: int = 64 * 1024
    max_tools: int = 2048
    max_depth: int = 256
    max_values: int = MAX_VALUES
    max_streams: int = 4096
    head_timeout: float = 30.0
    body_timeout: float = 30.0
    idle_timeout: float = 75.0
    send_timeout: float = 60.0
    keep_alive_interval: float = 15.0
    shutdown_grace: float = 10.0
    metrics: bool = True
    responses_profile: Literal["default", "required_action"] = "default"

    def __repr__(self) -> str:
        """Without the keys: traces show this."""
        return f"ServerSettings(host={self.host!r}, port={self.port}, …)"


class ChatSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contract of the Chat door with clients such as Obsidian Copilot; `docs/obsidian.md` says what each means.

    None: as the upstream and the answer have it. A gateway where all of this is as here has no contract but for upstreams
    and requests that ask for one. Every key but the last three has a `PROXY_…` variable.
    """

    output_mode: OutputModeWord | None = None
    stop_after_tools: bool | None = None
    stop_after_tools_mode: StopMode = "burst"
    stop_after_tools_grace_ms: int = 300
    suppress_tail_after_tools: bool | None = None
    tool_block_max: int = 0
    tool_block_delimiter: str = ""
    tool_block_dedup: bool = False
    enable_parallel_tool_calls: bool | None = None
    xml_escape: XmlEscape = "none"
    error_after_calls: Literal["fail", "finish"] | None = None
    written_results: Literal["auto", "on", "off"] = "auto"


class HostedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools of MCP servers that the gateway runs itself; `docs/hosted-tools.md` says what that means.

    servers: those of routes that say nothing of `mcp` themselves.
    calls: how clients of the Chat and Messages doors are told of a call that was run here.
    max_turns: answers of the model in one answer to the client; an agent that looks things up needs a few, one that goes
        round in circles would take all there are.
    max_seconds: of one answer; clients wait for ten minutes, and proxies seldom longer.
    max_parallel: calls of one answer that run at once, of tools that only read.
    """

    servers: tuple[str, ...] = ()
    calls: Literal["hidden", "note"] = "hidden"
    max_turns: int = 20
    max_seconds: float = 600.0
    max_parallel: int = 8


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration. Without upstreams there is one: the rehearsal.

    store: None: `dragoman serve` keeps state in a file, a gateway inside another program keeps it in memory.
    mcp: servers whose tools are run here, on the routes that name them.
    """

    server: ServerSettings = field(default_factory=ServerSettings)
    log: LogSettings = field(default_factory=LogSettings)
    chat: ChatSettings = field(default_factory=ChatSettings)
    dump: DumpSettings = field(default_factory=DumpSettings)
    retry: RetrySettings = field(default_factory=RetrySettings)
    store: StoreSettings | None = None
    upstreams: dict[str, UpstreamSettings] = field(default_factory=dict[str, UpstreamSettings])
    routes: tuple[Route, ...] = ()
    mcp: tuple[McpServerSettings, ...] = ()
    hosted: HostedSettings = field(default_factory=HostedSettings)
