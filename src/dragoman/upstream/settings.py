"""What an operator says of one upstream and of the way to it. Values only; `server.config` reads them from a file."""

from typing import Literal

from msgspec import Struct, field

from dragoman.model.outcome import LossAction
from dragoman.model.parts import Dialect
from dragoman.textcalls.contract.policy import OutputModeWord

__all__ = ("ModelLimits", "RetrySettings", "Route", "UpstreamKind", "UpstreamSettings")

UpstreamKind = Literal["chat", "responses", "messages", "codex", "chatgpt-codex", "rehearsal"]


class ModelLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an upstream, or one model of it, accepts where that differs from its dialect's default. None: the default."""

    max_name_length: int | None = None
    name_pattern: str | None = None
    max_id_length: int | None = None
    id_pattern: str | None = None
    drop_schema_keywords: tuple[str, ...] | None = None
    inline_schema_refs: bool | None = None
    strict_tools: bool | None = None
    default_max_tokens: int | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    builtin_tools: tuple[str, ...] | None = None
    user_first: bool | None = None


class RetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retries and fallbacks happen only before the first byte of an answer was forwarded.

    max_wait: a longer Retry-After is not waited for; the client is told instead.
    """

    enabled: bool = True
    attempts: int = 3
    base_delay: float = 0.2
    max_delay: float = 5.0
    max_wait: float = 10.0


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream.

    also: dialects it takes besides `kind`; a door of one of these is forwarded without translation.
    api_key: a key, or `client` to pass the caller's on; api_key_env: the environment variable that holds one.
    auth_file: Codex's `auth.json`, for the kind `chatgpt-codex`; None: where Codex keeps it.
    command, env, codex_home, children: of the kind `codex`: the program that is started, what is added to its environment,
        where its configuration and login are (None: where Codex keeps them), and how many of it run.
    held_ttl, held_max: of the kind `codex`: how long a turn waits for results, and how many may. A desktop client asks a
        person before it runs a tool, which takes minutes; a turn that waits costs some kilobytes.
    always_stream: ask for a stream even when the client wants a body, for servers whose bodies are poor.
    passthrough: `exact` forwards answers of the same dialect unwatched.
    text_calls: the formats of calls written as text to look for, by name, or `auto`; empty: text is text.
    prompted_tools: the format in which tools are put into the prompt, for models without tools of their own.
    output_mode: how calls reach Chat clients, as `<use_tool>` text too or as calls alone; None: by the kind.
    max_connections: None: as many as there are requests, which `server.max_streams` bounds.
    keeps_responses: it keeps responses of its own and knows them by the ids it gave: those are sent back to it.
    models: limits by model glob (the upstream's model name), the first that matches.
    """

    kind: UpstreamKind
    also: tuple[Dialect, ...] = ()
    base_url: str = ""
    api_key: str | None = None
    api_key_env: str | None = None
    auth_file: str | None = None
    command: tuple[str, ...] = ("codex", "app-server")
    env: dict[str, str] = field(default_factory=dict[str, str])
    codex_home: str | None = None
    children: int = 1
    held_ttl: float = 900.0
    held_max: int = 256
    headers: dict[str, str] = field(default_factory=dict[str, str])
    query: dict[str, str] = field(default_factory=dict[str, str])
    ca_file: str | None = None
    proxy: str | None = None
    connect_timeout: float = 10.0
    first_byte_timeout: float = 300.0
    idle_timeout: float = 300.0
    max_connections: int | None = None
    always_stream: bool = False
    passthrough: Literal["repair", "exact"] = "repair"
    name_fallback: Literal["schema", "positional"] = "schema"
    anthropic_version: str = "2023-06-01"
    text_calls: tuple[str, ...] = ("auto",)
    prompted_tools: str | None = None
    output_mode: OutputModeWord | None = None
    keeps_responses: bool = False
    limits: ModelLimits = field(default_factory=ModelLimits)
    models: dict[str, ModelLimits] = field(default_factory=dict[str, ModelLimits])
    losses: dict[str, LossAction] = field(default_factory=dict[str, LossAction])

    def __repr__(self) -> str:
        """Its kind alone: addresses, headers, queries, variables and arguments may hold secrets, and traces show this."""
        return f"UpstreamSettings(kind={self.kind!r}, …)"


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where requests for a model go. `model` is a glob over the name the client asks for.

    mcp: names of the MCP servers whose tools are offered, and run by the gateway; None: those of `[hosted]`.
    """

    model: str
    upstream: str
    upstream_model: str | None = None
    fallback: tuple[str, ...] = ()
    mcp: tuple[str, ...] | None = None
