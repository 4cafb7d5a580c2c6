"""What an operator may say: of the gateway, its upstreams and routes, the store and MCP servers. Values only.

`read.py` fills them from a file, the environment and flags; `check.py` completes them and says what cannot work. A field's
annotation says all that is checked of it alone: its type, its words, its range. Every limit has its reason here;
`docs/configuration.md` lists the same keys for readers.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from dragoman._json import MAX_VALUES
from dragoman.model.outcome import LossAction
from dragoman.model.parts import Dialect
from dragoman.obsidian.settings import ChatSettings, OutputModeWord

__all__ = (
    "ANTHROPIC_HOST",
    "CHATGPT_CODEX_URL",
    "CODEX_INSTALL_HINT",
    "CONNECTION_HEADERS",
    "DEFAULT_TTL",
    "OPENAI_HOST",
    "PASS_ON",
    "DumpSettings",
    "HostedSettings",
    "LogSettings",
    "McpServerSettings",
    "ModelLimits",
    "OAuthSettings",
    "RestartSettings",
    "RetrySettings",
    "Route",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "Synchronous",
    "UpstreamKind",
    "UpstreamSettings",
    "port_of",
    "split_fallback",
)

OPENAI_HOST = "api.openai.com"
ANTHROPIC_HOST = "api.anthropic.com"
CHATGPT_CODEX_URL = "https://chatgpt.com/backend-api/codex"
CODEX_INSTALL_HINT = (
    "install it with `npm install -g @openai/codex`, or say in `command` where it is"
)

PASS_ON = "client"  # noqa: S105 - the word for having none
"""The `api_key` that is none: the caller's is passed on."""

CONNECTION_HEADERS = frozenset(
    ("host", "connection", "content-length", "transfer-encoding", "content-encoding", "keep-alive", "te", "upgrade")
)  # fmt: skip
"""Headers that belong to one connection, or that the sender of a body makes; a configured one would break it."""


class Range(Struct, frozen=True, kw_only=True):
    """Which numbers a key takes: more than 0, unless 0 is allowed, and at most `most`. `what`: the word for them in messages."""

    may_be_zero: bool = False
    most: float | None = None
    what: str = ""


Count = Annotated[int, Range()]
Seconds = Annotated[float, Range()]
Delay = Annotated[float, Range(may_be_zero=True)]
Port = Annotated[int, Range(may_be_zero=True, most=65535, what="a port")]

LONGEST_WAIT = 3600.0
"""An hour: longer waits are mistakes of unit."""

Synchronous = Literal["full", "normal"]
"""When SQLite waits for the disk: at every commit, or when it writes its journal back."""


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`format`: `auto` is readable lines on a terminal and JSON elsewhere."""

    format: Literal["auto", "console", "json"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class DumpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What upstreams sent, for people who look for a fault. None of it is kept unless there is a `path`.

    max_bytes: of one file; files: how many are kept, the one being written among them.
    """

    path: str | None = None
    max_bytes: Count = 16 * 1024 * 1024
    files: Count = 3


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
    port: Port = 8787
    workers: Count = 1
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: Count = 64 * 1024 * 1024
    max_header_bytes: Count = 64 * 1024
    max_tools: Count = 2048
    max_depth: Count = 256
    max_values: Annotated[int, Range(most=MAX_VALUES)] = MAX_VALUES
    max_streams: Count = 4096
    head_timeout: Seconds = 30.0
    body_timeout: Seconds = 30.0
    idle_timeout: Seconds = 75.0
    send_timeout: Seconds = 60.0
    keep_alive_interval: Seconds = 15.0
    shutdown_grace: Annotated[float, Range(may_be_zero=True, most=LONGEST_WAIT, what="seconds")] = (
        10.0
    )
    metrics: bool = True
    responses_profile: Literal["default", "required_action"] = "default"

    def __repr__(self) -> str:
        """Without the keys: traces show this."""
        return f"ServerSettings(host={self.host!r}, port={self.port}, …)"


class HostedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools of MCP servers that the gateway runs itself; `docs/hosted-tools.md` says what that means.

    servers: those of routes that say nothing of `mcp` themselves.
    calls: how clients of the Chat and Messages doors see a call that was run here.
    max_turns: answers of the model in one answer to the client; an agent that looks things up needs a few, one that goes
        round in circles would take all there are.
    max_seconds: of one answer; clients wait for ten minutes, and proxies seldom longer.
    max_parallel: calls of one answer that run at once, of tools that only read.
    """

    servers: tuple[str, ...] = ()
    calls: Literal["hidden", "note"] = "hidden"
    max_turns: Count = 20
    max_seconds: Seconds = 600.0
    max_parallel: Count = 8


UpstreamKind = Literal["chat", "responses", "messages", "codex", "chatgpt-codex", "rehearsal"]


class ModelLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an upstream, or one model of it, accepts where that differs from its dialect's default. None: the default."""

    max_name_length: Count | None = None
    name_pattern: str | None = None
    max_id_length: Count | None = None
    id_pattern: str | None = None
    drop_schema_keywords: tuple[str, ...] | None = None
    inline_schema_refs: bool | None = None
    strict_tools: bool | None = None
    default_max_tokens: Count | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    builtin_tools: tuple[str, ...] | None = None
    user_first: bool | None = None


class RetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retries and fallbacks happen only before the first byte of an answer was forwarded.

    max_wait: a longer Retry-After is not waited for; the client gets the error instead.
    """

    enabled: bool = True
    attempts: Count = 3
    base_delay: Delay = 0.2
    max_delay: Delay = 5.0
    max_wait: Delay = 10.0


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
    children: Count = 1
    held_ttl: Seconds = 900.0
    held_max: Count = 256
    headers: dict[str, str] = field(default_factory=dict[str, str])
    query: dict[str, str] = field(default_factory=dict[str, str])
    ca_file: str | None = None
    proxy: str | None = None
    connect_timeout: Seconds = 10.0
    first_byte_timeout: Seconds = 300.0
    idle_timeout: Seconds = 300.0
    max_connections: Count | None = None
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


def split_fallback(entry: str) -> tuple[str, str | None]:
    """`name` or `name=model`: the upstream, and the model it is asked for if that differs from the route's."""
    name, sign, model = entry.partition("=")
    return name, model if sign else None


DEFAULT_TTL = 30 * 24 * 3600.0
"""Seconds. As long as OpenAI keeps responses."""


class StoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where state is kept, what of it, for how long, and how much.

    url: `sqlite:` (a file in the user's state directory), `sqlite:///path`, `postgresql://…` or `memory:`.
    policy: `default` keeps every response that its client does not refuse to have kept (`store: false`), as OpenAI does;
        `asked` only those with `store: true`; `off` keeps nothing at all, neither threads nor reasoning.
    ttl: seconds that a response is kept after it, or one that continues it, was stored.
    max_bytes: of all that is stored; what would expire first goes first.
    max_record_bytes: of one request, or of one answer, as it is stored, compressed. A request may come with 64 MiB.
    pool_size: connections to PostgreSQL per worker process. Servers allow a hundred in all by default.
    """

    url: str = "sqlite:"
    policy: Literal["default", "asked", "off"] = "default"
    ttl: Seconds = DEFAULT_TTL
    max_bytes: Count = 4 * 1024 * 1024 * 1024
    max_record_bytes: Count = 128 * 1024 * 1024
    pool_size: Count = 8

    def __repr__(self) -> str:
        """Without the address, which may hold a password: traces show this."""
        return f"StoreSettings({self.url.partition(':')[0]}, …)"


class RestartSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a server that ended is started again.

    first_delay, max_delay: seconds before the first new start; doubled after each that fails, up to the second.
    attempts: starts in a row that may fail before the server counts as down and its tools are withdrawn.
    stable_after: a server that lived this long is started again as if it had never failed.
    again_after: seconds between the starts of one that is down. A call of its tools does not wait for that.
    """

    first_delay: Delay = 0.2
    max_delay: Delay = 10.0
    attempts: Count = 5
    stable_after: Delay = 30.0
    again_after: Seconds = 60.0


Grant = Literal["authorization_code", "client_credentials"]
ClientAuthentication = Literal["client_secret_basic", "client_secret_post"]
SigningAlgorithm = Literal[
    "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA"
]


class OAuthSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an access token for a server is obtained. Secrets are named by the variable that holds them.

    grant: `authorization_code`: a person logs in with a browser; `client_credentials`: this program has credentials.
    client_id: of a client that was registered beforehand; without it we register ourselves.
    client_secret_from: the variable that holds its secret; token_endpoint_auth_method: how the secret is sent.
    private_key_from, signing_algorithm: the variable that holds a private key (PEM), which signs in place of a secret.
    client_metadata_url: of our client metadata document, which is the client id where the server takes one.
    issuer: the authorization server that the credentials are for; they are sent to no other.
    scope: the scopes to ask for, with spaces between them, where the server does not name any.
    redirect_port: the port of 127.0.0.1 that the browser is sent back to; 0: any.
    """

    grant: Grant = "authorization_code"
    client_id: str = ""
    client_secret_from: str = ""
    token_endpoint_auth_method: ClientAuthentication = "client_secret_basic"  # noqa: S105 - a word of RFC 7591
    private_key_from: str = ""
    signing_algorithm: SigningAlgorithm = "ES256"
    client_metadata_url: str = ""
    issuer: str = ""
    scope: str = ""
    redirect_port: Port = 0


class McpServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One MCP server, reached by its pipes (`command`) or by streamable HTTP (`url`).

    name: what its tools' names begin with.
    command: the program and its arguments; env: what is added to the little that it inherits of our environment;
        env_from: names of variables that it inherits too; cwd: the folder it is started in.
    url: of the server; headers: sent with every request; headers_from: headers by the variable that holds the value.
    oauth: how an access token is obtained when the server asks for one; None: a person logs in, where there is one.
    allow, deny: globs over its tools' names; denied is denied.
    start_timeout: seconds from the start until it has listed its tools: a launcher may download the server first.
    call_timeout: seconds that a call may take.
    """

    name: str
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    env_from: tuple[str, ...] = ()
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    headers_from: dict[str, str] = field(default_factory=dict[str, str])
    oauth: OAuthSettings | None = None
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    start_timeout: Seconds = 30.0
    call_timeout: Seconds = 300.0
    restart: RestartSettings = field(default_factory=RestartSettings)

    def __repr__(self) -> str:
        return f"McpServerSettings(name={self.name!r}, {self.address})"

    @property
    def address(self) -> str:
        """Where it is, in a few words and without secrets: arguments, queries and user names may be some."""
        if self.command:
            return f"command {self.command[0]!r}"
        parts = urlsplit(self.url)
        return f"url '{parts.scheme}://{parts.hostname}{'' if port_of(self.url) is None else f':{port_of(self.url)}'}'"


def port_of(url: str) -> int | None:
    """The port; None: not said; -1: no number."""
    try:
        return urlsplit(url).port
    except ValueError:
        return -1


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
