"""The operator's settings: the gateway, its upstreams and routes, the store and MCP servers. Values only.

`read.py` fills them from a file, the environment and flags; `check.py` adds defaults and reports what cannot work. The
annotation of a field states its type, its words and its range; checks across fields are in `check.py`. Every limit has
its reason here; `docs/configuration.md` describes the same keys for operators.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Struct, field, structs

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
    "DIRECT",
    "KIND_HINTS",
    "MODEL_PLACE",
    "OPENAI_HOST",
    "PASS_ON",
    "DumpSettings",
    "HostedSettings",
    "InspectSettings",
    "KeySettings",
    "LogSettings",
    "McpServerSettings",
    "ModelLimits",
    "OAuthSettings",
    "OtelSettings",
    "PeerSettings",
    "PriceSettings",
    "RestartSettings",
    "RetrySettings",
    "Route",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "Synchronous",
    "UpstreamKind",
    "UpstreamSettings",
    "peers_of",
    "split_fallback",
)

OPENAI_HOST = "api.openai.com"
"""The host of OpenAI's own API, which gets `OPENAI_API_KEY`."""
ANTHROPIC_HOST = "api.anthropic.com"
"""The host of Anthropic's own API, which gets `ANTHROPIC_API_KEY`."""
CHATGPT_CODEX_URL = "https://chatgpt.com/backend-api/codex"
"""The address of an upstream of the kind `chatgpt-codex`, if the settings name no other."""
CODEX_INSTALL_HINT = "install it with `npm install -g @openai/codex`, or set its path in `command`"
"""What messages say if there is no program `codex`."""

PASS_ON = "client"  # noqa: S105 - not a key
"""The value of `api_key` that passes the caller's key on."""
MODEL_PLACE = "{model}"
"""Stands for the model in `path` and `stream_path`."""
DIRECT = "none"
"""The value of `proxy` that connects directly, whatever the environment says."""

CONNECTION_HEADERS = frozenset(
    ("host", "connection", "content-length", "transfer-encoding", "content-encoding", "keep-alive", "te", "upgrade")
)  # fmt: skip
"""Headers that belong to one connection or describe the body; a configured value would break the request."""


class Range(Struct, frozen=True, kw_only=True):
    """The numbers that a key accepts: above 0, or from 0 if `may_be_zero`, up to `most`. `what`: their name in messages."""

    may_be_zero: bool = False
    most: float | None = None
    what: str = ""


Count = Annotated[int, Range()]
Seconds = Annotated[float, Range()]
Delay = Annotated[float, Range(may_be_zero=True)]
Amount = Annotated[float, Range()]
Price = Annotated[float, Range(may_be_zero=True)]
Port = Annotated[int, Range(may_be_zero=True, most=65535, what="a port")]
Share = Annotated[float, Range(may_be_zero=True, most=1, what="a share")]

LONGEST_WAIT = 3600.0
"""Seconds: an hour. A longer wait is probably a mistake of unit."""

Synchronous = Literal["full", "normal"]
"""When SQLite waits for the disk: at every commit, or only at checkpoints of its journal."""


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`format`: `auto` is readable lines on a terminal and JSON elsewhere."""

    format: Literal["auto", "console", "json"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class DumpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dump of what upstreams send, for debugging. Nothing is written unless `path` is set.

    max_bytes: the size of one file; files: how many files are kept, including the current one.
    """

    path: str | None = None
    max_bytes: Count = 16 * 1024 * 1024
    files: Count = 3


class InspectSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the inspector may see; see `docs/inspector.md`.

    capture: `on`: from the start; `ask`: when somebody who may inspect switches it on; `off`: never.
    max_bytes: of all captured exchanges in memory, per worker. max_exchange_bytes: of one; an agent's turn has a megabyte or two.
    api_keys: those of `server.api_keys` that may inspect the requests of everyone; a named key has `inspect = true`.
    receipts: make a receipt for every request, not only for those that ask for one.
    record: the folder in which every exchange is recorded. record_max_bytes: of all recordings; then recording stops.
    """

    capture: Literal["on", "ask", "off"] = "ask"
    max_bytes: Count = 64 * 1024 * 1024
    max_exchange_bytes: Count = 16 * 1024 * 1024
    api_keys: tuple[str, ...] = ()
    receipts: bool = False
    record: str | None = None
    record_max_bytes: Count = 1024 * 1024 * 1024

    def __repr__(self) -> str:
        """Without the keys: tracebacks show this text."""
        return f"InspectSettings(capture={self.capture!r}, …)"


class OtelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traces and metrics for an OpenTelemetry collector; see `docs/opentelemetry.md`. Nothing is sent unless `endpoint` is set.

    endpoint: the collector's address for OTLP over HTTP, to which `/v1/traces` and `/v1/metrics` are added. Its headers, which may
        be secret, its certificates and its timeouts are in the variables of the OpenTelemetry SDK.
    service_name: None: `OTEL_SERVICE_NAME`, else `dragoman`.
    sample_ratio: the share of traces that are recorded, of those that begin here; a caller's own decision is kept.
        None: what `OTEL_TRACES_SAMPLER` says, else all.
    forward: upstreams get the header `traceparent`, and so can add their spans to the trace.
    """

    endpoint: str | None = None
    service_name: str | None = None
    traces: bool = True
    metrics: bool = True
    sample_ratio: Share | None = None
    forward: bool = False

    def __repr__(self) -> str:
        """Without the address, whose path may hold a key: tracebacks show this text."""
        return f"OtelSettings(traces={self.traces}, metrics={self.metrics}, …)"


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server: its address, its callers and its limits.

    api_keys: without keys the server may listen on loopback only. cors_origins: `*` or origins; empty: no CORS headers.
    allowed_hosts: names in `Host` that are served without keys, besides those of this machine: see `server.access.check_source`.
    max_body_bytes: after decompression; a conversation of a million tokens with images stays below.
    max_tools, max_depth: far above any real client (Claude Code has 24 tools, Codex some 20 plus MCP).
    max_values: JSON values of a request, whatever their size: they are parsed in one call, which blocks all other requests.
    max_streams: open exchanges per worker; one more gets a 429 with Retry-After.
    max_background: background responses that run at the same time, per worker, each of which is one of `max_streams` too. Their
        clients hold no connection, so one client could otherwise take all places at once.
    background_max_seconds: of one background response; nobody waits for it, so nobody would end it. Deep research takes half an hour.
    head_timeout, body_timeout: seconds for the head of a request, and without progress in its body; clients on this machine
        or behind a proxy need milliseconds, those on a bad connection a few seconds.
    idle_timeout: above the minute after which load balancers drop idle connections: they should be the ones to close.
    send_timeout: seconds in which a client must read some of its answer, like nginx's.
    keep_alive_interval: seconds of silence before a keep-alive; proxies cut at 30 to 60.
    shutdown_grace: seconds that open streams may continue after a shutdown was requested.
    websocket: whether the Responses door also speaks WebSocket. websocket_max_age: seconds after which a connection takes no
        further request, like OpenAI's. websocket_memory: bytes of conversations that the connections of a worker remember
        together: a thousand long sessions of Codex. A client whose conversation is forgotten sends it whole.
    limits_without_store: what happens to requests of a key with limits while the store, which has the counts, does not answer.
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
    max_background: Count = 256
    background_max_seconds: Seconds = 3600.0
    head_timeout: Seconds = 30.0
    body_timeout: Seconds = 30.0
    idle_timeout: Seconds = 75.0
    send_timeout: Seconds = 60.0
    keep_alive_interval: Seconds = 15.0
    shutdown_grace: Annotated[float, Range(may_be_zero=True, most=LONGEST_WAIT, what="seconds")] = (
        10.0
    )
    metrics: bool = True
    websocket: bool = True
    websocket_max_age: Seconds = 3600.0
    websocket_memory: Count = 1024 * 1024 * 1024
    responses_profile: Literal["default", "required_action"] = "default"
    limits_without_store: Literal["refuse", "serve"] = "refuse"

    def __repr__(self) -> str:
        """Without the keys: tracebacks show this text."""
        return f"ServerSettings(host={self.host!r}, port={self.port}, …)"


KeyStreams = Annotated[int, Range(most=1000, what="streams")]
"""Each stream that runs is an entry in the stored state of its key, which every request of the key reads and writes."""


class KeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named key; see `docs/operations.md`. `dragoman keys add` writes it.

    digest: `sha256:` and the SHA-256 of the key in hex. The key itself is random and is stored nowhere.
    models: globs over the names that clients ask for; the key may use only these.
    inspect: the key may inspect the requests of everyone, and read the usage of all keys.
    max_streams: requests that run at the same time. The other limits are per minute, day or month of UTC; tokens are those of
        input and output together, and costs are in the currency of `[prices]`. None: no limit.
    """

    digest: str
    models: tuple[str, ...] = ("*",)
    inspect: bool = False
    max_streams: KeyStreams | None = None
    requests_per_minute: Count | None = None
    requests_per_day: Count | None = None
    tokens_per_minute: Count | None = None
    tokens_per_day: Count | None = None
    tokens_per_month: Count | None = None
    cost_per_day: Amount | None = None
    cost_per_month: Amount | None = None


class PriceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of a million tokens of a model. cached, cache_write: of input that was read from a cache, or written; None: as `input`."""

    input: Price
    output: Price
    cached: Price | None = None
    cache_write: Price | None = None


class HostedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools of MCP servers that the gateway runs itself; see `docs/hosted-tools.md`.

    servers: the MCP servers of routes that do not set `mcp`.
    calls: how clients of the Chat and Messages doors see a call that the gateway ran.
    max_turns: answers of the model in one answer to the client; an agent that looks things up needs a few, an agent in a
        loop would never stop.
    max_seconds: for one answer; clients wait for ten minutes, and proxies seldom longer.
    max_parallel: calls of one answer that run at once, of tools that only read.
    """

    servers: tuple[str, ...] = ()
    calls: Literal["hidden", "note"] = "hidden"
    max_turns: Count = 20
    max_seconds: Seconds = 600.0
    max_parallel: Count = 8


class KindHints(Struct, frozen=True):
    """Words that people write in place of those that a key accepts: for each, the accepted word and a hint."""

    words: dict[str, tuple[str, str]]


_CHAT_HINT = 'servers that imitate OpenAI are `kind = "chat"`; their base_url mostly ends with /v1'
_MESSAGES_HINT = 'Anthropic is `kind = "messages"`'
KIND_HINTS = KindHints(
    {
        "openai": (
            "chat",
            'OpenAI itself is `kind = "responses"`, a server that imitates it is `kind = "chat"`',
        ),
        **dict.fromkeys(("anthropic", "claude"), ("messages", _MESSAGES_HINT)),
        **dict.fromkeys(
            (
                *("chat-completions", "chat_completions", "completions", "openai-chat", "openai-compatible"),
                *("ollama", "vllm", "llama.cpp", "llamacpp", "llama-cpp", "llama-server", "lmstudio", "lm-studio"),
                *("sglang", "tgi", "localai", "litellm", "openrouter", "groq", "mistral", "deepseek", "together"),
                *("fireworks", "xai", "grok", "gemini", "google", "azure", "perplexity", "cerebras", "qwen"),
            ),
            ("chat", _CHAT_HINT),
        ),
        "openai-responses": ("responses", 'it is `kind = "responses"`'),
        "anthropic-messages": ("messages", _MESSAGES_HINT),
        "chatgpt": ("chatgpt-codex", 'a ChatGPT login is `kind = "chatgpt-codex"`'),
    }
)  # fmt: skip
"""Vendors and programs, for a kind that is none."""

UpstreamKind = Literal[
    "chat", "responses", "messages", "codex", "chatgpt-codex", "rehearsal", "replay"
]
"""The kinds of upstreams: a dialect, or a backend with rules of its own."""


class ModelLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of an upstream, or of one of its models, that differ from the dialect's defaults. None: the default."""

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
    system_messages: bool | None = None
    max_tools: Count | None = None
    deferred_tools: bool | None = None


class RetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retries and fallbacks happen only before the first byte of an answer was forwarded. See `docs/upstreams.md`.

    max_wait: seconds; if Retry-After is longer, the gateway does not wait and the client gets the error.
    failures: in a row, before an upstream or a peer cools down. Less than three would punish a single lost connection.
    cooldown: seconds of the first cooldown; doubled after each failed probe, up to `max_cooldown`, which also bounds a Retry-After.
        A server that restarts needs some ten seconds. 0: there are no cooldowns.
    """

    enabled: bool = True
    attempts: Count = 3
    base_delay: Delay = 0.2
    max_delay: Delay = 5.0
    max_wait: Delay = 10.0
    failures: Count = 3
    cooldown: Delay = 10.0
    max_cooldown: Annotated[float, Range(most=LONGEST_WAIT)] = 300.0


class PeerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several servers that answer as one upstream; see `UpstreamSettings.peers`.

    name: for logs and pages. weight: its share of the conversations; 0: it is asked only if no other peer can be.
    api_key, api_key_env, token_command: its credential; without one of them it has that of the upstream.
    """

    name: str
    base_url: str
    weight: Annotated[float, Range(may_be_zero=True)] = 1.0
    api_key: str | None = None
    api_key_env: str | None = None
    token_command: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the address and the key, which may be secret."""
        return f"PeerSettings(name={self.name!r}, …)"


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream.

    also: dialects that it accepts besides `kind`; requests in one of these are forwarded without translation.
    peers: several servers that answer as this upstream, in place of `base_url`; conversations are divided among them.
    api_key: a key, or `client` to pass the caller's key on; api_key_env: the environment variable that holds the key.
    token_command: a program whose output is the key, for keys that expire; see `upstream.http.token_command`.
    api_key_header: the header that holds the key, without `Bearer`, such as Azure's `api-key`; None: that of the dialect.
    auth_file: Codex's `auth.json`, for the kind `chatgpt-codex`; None: Codex's default place.
    command, env, codex_home, children: for the kind `codex`: the program to start, variables to add to its environment,
        the folder of its configuration and login (None: Codex's default place), and the number of processes.
    held_ttl, held_max: for the kind `codex`: seconds that a turn waits for results, and how many turns may wait. A desktop
        client asks a person before it runs a tool, which takes minutes; a waiting turn costs some kilobytes.
    limits_interval: for the kind `codex`: seconds between two reads of the account's rate limits while it is in use.
    always_stream: request a stream even if the client wants a body, for servers whose bodies are poor.
    never_stream: request a body even if the client wants a stream, for servers whose streams lose or spoil calls.
    passthrough: `exact` forwards answers of the same dialect without checks.
    text_calls: the text formats of calls to look for, by name, or `auto`; empty: text is never read as calls.
    path, stream_path: where answers and streams are asked for, behind `base_url`, if not at the dialect's own path; `{model}` is the
        model, which the body then does not name. stream_path: None: as `path`.
    add_fields: members, with texts as values, that every request gets, such as the version that some hosts want in the body.
    proxy: None: as the environment says; `none`: no proxy.
    drop_fields: members of a request, at its top level and by the upstream's names, that are left out because the upstream refuses them.
    prompted_tools: the format in which tools are put into the prompt, for models without native tools.
    output_mode: how calls reach Chat clients: also as `<use_tool>` text, or only as calls; None: decided by the kind.
    max_connections: None: as many as there are requests, which `server.max_streams` bounds.
    websocket: ask a server that speaks Responses over WebSockets, which are kept for the next turns of a conversation.
    compaction: who summarises a conversation when a client asks for it: `native`, the upstream by itself, or `gateway`,
        by an ordinary request to the upstream. None: `native` for OpenAI's own hosts, and for Messages clients of a Messages upstream.
    count_tokens: who counts the tokens of a request that is not answered: `native`, the upstream, or `estimate`, the gateway, about.
        None: `native` for Messages upstreams and for OpenAI's own Responses.
    cache: whether requests of other dialects help the upstream to cache prompts: `auto`: for a Messages upstream they get cache
        breakpoints, for Chat and Responses upstreams a cache key from the client's session; `always`: Messages clients that set
        no breakpoint get them too. None: `auto`, except for Chat upstreams other than OpenAI, some of which refuse a key.
    cache_ttl: how long the breakpoints last; `1h` costs twice the price of the tokens instead of a quarter more.
    recordings, match, speed, ignore: for the kind `replay`: the folder of the recordings, whether a request is answered by the
        recording of the same request or by the next one, how fast, and members of requests that may differ.
    keeps_responses: the upstream stores responses under its own ids; requests that refer to such an id go back to it.
    models: limits by model glob (the upstream's model name); the first match applies.
    """

    kind: Annotated[UpstreamKind, KIND_HINTS]
    also: tuple[Dialect, ...] = ()
    base_url: str = ""
    peers: tuple[PeerSettings, ...] = ()
    api_key: str | None = None
    api_key_env: str | None = None
    token_command: tuple[str, ...] = ()
    api_key_header: str | None = None
    auth_file: str | None = None
    command: tuple[str, ...] = ("codex", "app-server")
    env: dict[str, str] = field(default_factory=dict[str, str])
    codex_home: str | None = None
    children: Count = 1
    held_ttl: Seconds = 900.0
    held_max: Count = 256
    limits_interval: Seconds = 60.0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    query: dict[str, str] = field(default_factory=dict[str, str])
    ca_file: str | None = None
    proxy: str | None = None
    connect_timeout: Seconds = 10.0
    first_byte_timeout: Seconds = 300.0
    idle_timeout: Seconds = 300.0
    max_connections: Count | None = None
    always_stream: bool = False
    never_stream: bool = False
    websocket: bool = False
    passthrough: Literal["repair", "exact"] = "repair"
    name_fallback: Literal["schema", "positional"] = "schema"
    anthropic_version: str = "2023-06-01"
    path: str | None = None
    stream_path: str | None = None
    add_fields: dict[str, str] = field(default_factory=dict[str, str])
    drop_fields: tuple[str, ...] = ()
    text_calls: tuple[str, ...] = ("auto",)
    prompted_tools: str | None = None
    output_mode: OutputModeWord | None = None
    compaction: Literal["native", "gateway"] | None = None
    count_tokens: Literal["native", "estimate"] | None = None
    cache: Literal["auto", "always", "off"] | None = None
    cache_ttl: Literal["5m", "1h"] = "5m"
    recordings: str | None = None
    match: Literal["request", "order"] = "request"
    speed: Literal["full", "recorded"] = "full"
    ignore: tuple[str, ...] = ()
    keeps_responses: bool = False
    limits: ModelLimits = field(default_factory=ModelLimits)
    models: dict[str, ModelLimits] = field(default_factory=dict[str, ModelLimits])
    losses: dict[str, LossAction] = field(default_factory=dict[str, LossAction])

    def __repr__(self) -> str:
        """Only the kind: addresses, headers, queries, variables and arguments may be secret, and tracebacks show this text."""
        return f"UpstreamSettings(kind={self.kind!r}, …)"


def peers_of(name: str, upstream: UpstreamSettings) -> dict[str, UpstreamSettings]:
    """The servers of an upstream, each as an upstream of its own: `name/peer`, or the upstream itself if it has no peers."""
    if not upstream.peers:
        return {name: upstream}
    alone = structs.replace(upstream, peers=())
    found: dict[str, UpstreamSettings] = {}
    for peer in upstream.peers:
        own = structs.replace(alone, base_url=peer.base_url)
        if peer.api_key is not None or peer.api_key_env is not None or peer.token_command:
            own = structs.replace(
                own,
                api_key=peer.api_key,
                api_key_env=peer.api_key_env,
                token_command=peer.token_command,
            )
        found[f"{name}/{peer.name}"] = own
    return found


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where requests for a model go. `model` is a glob over the name the client asks for.

    mcp: names of the MCP servers whose tools the gateway offers and runs; None: the servers of `[hosted]`.
    """

    model: str
    upstream: str
    upstream_model: str | None = None
    fallback: tuple[str, ...] = ()
    mcp: tuple[str, ...] | None = None


def split_fallback(entry: str) -> tuple[str, str | None]:
    """Split `name` or `name=model` into the upstream and its model; None if the route's model applies."""
    name, sign, model = entry.partition("=")
    return name, model if sign else None


DEFAULT_TTL = 30 * 24 * 3600.0
"""Seconds. OpenAI keeps responses equally long."""


class StoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The store: its place, what it keeps, for how long, and how much.

    url: `sqlite:` (a file in the user's state directory), `sqlite:///path`, `postgresql://…` or `memory:`.
    policy: `default` stores every response unless its request has `store: false`, like OpenAI; `asked` stores only
        responses with `store: true`; `off` stores nothing at all, neither threads nor reasoning.
    ttl: seconds that a response is kept after it, or a response that continues it, was stored.
    max_bytes: of everything stored; beyond it, the records that expire first are deleted first.
    max_record_bytes: of one stored request or answer, compressed. A request may have 64 MiB.
    pool_size: connections to PostgreSQL per worker process. Servers allow a hundred in all by default.
    lease: seconds after which a running response counts as failed if its gateway has died. Renewed every third of a lease,
        it survives two failed renewals.
    """

    url: str = "sqlite:"
    policy: Literal["default", "asked", "off"] = "default"
    ttl: Seconds = DEFAULT_TTL
    max_bytes: Count = 4 * 1024 * 1024 * 1024
    max_record_bytes: Count = 128 * 1024 * 1024
    pool_size: Count = 8
    lease: Seconds = 60.0

    def __repr__(self) -> str:
        """Without the address, which may hold a password: tracebacks show this text."""
        return f"StoreSettings({self.url.partition(':')[0]}, …)"


class RestartSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an MCP server that ended is started again.

    first_delay, max_delay: seconds before the first restart; doubled after each failed restart, up to `max_delay`.
    attempts: starts in a row that may fail before the server counts as down and its tools are withdrawn.
    stable_after: seconds; after a server ran this long, its earlier failures are forgotten.
    again_after: seconds between the starts of a server that is down. A call of its tools does not wait for a start.
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
    """How the gateway obtains an access token for a server. Secrets are given by the variables that hold them.

    grant: `authorization_code`: a person logs in with a browser; `client_credentials`: this program has credentials.
    client_id: the id of a client that was registered beforehand; without it the gateway registers itself.
    client_secret_from: the variable that holds the client's secret; token_endpoint_auth_method: how the secret is sent.
    private_key_from, signing_algorithm: the variable that holds a private key (PEM), which signs in place of a secret.
    client_metadata_url: the URL of the gateway's client metadata document, used as client id if the server accepts one.
    issuer: the only authorization server to which the credentials are sent.
    scope: the scopes to request, separated by spaces, if the server does not name any.
    redirect_port: the port of 127.0.0.1 to which the browser is redirected; 0: any.
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

    name: the prefix of its tools' names.
    command: the program and its arguments; env: variables to add to the few that it inherits from the gateway;
        env_from: names of further variables that it inherits; cwd: the folder in which it is started.
    url: the server's URL; headers: sent with every request; headers_from: headers by the variable that holds the value.
    oauth: how to obtain an access token if the server asks for one; None: a person logs in, if one is present.
    allow, deny: globs over its tools' names; `deny` wins.
    start_timeout: seconds from the start until the server has listed its tools: a launcher may download the server first.
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
        """Only the program or the host: arguments, queries and user names may be secret."""
        if self.command:
            return f"McpServerSettings(name={self.name!r}, command {self.command[0]!r})"
        try:
            parts = urlsplit(self.url)
            port = "" if parts.port is None else f":{parts.port}"
            place = f"url '{parts.scheme}://{parts.hostname}{port}'"
        except ValueError:
            place = "a url that cannot be read"
        return f"McpServerSettings(name={self.name!r}, {place})"


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration. Without upstreams the rehearsal is the only one.

    store: None: `dragoman serve` keeps state in a file, a gateway inside another program keeps it in memory.
    mcp: servers whose tools the gateway runs, on the routes that name them.
    keys: named keys, each with its rights and limits, besides `server.api_keys`, which have no limits.
    prices: by a glob over the model names that clients ask for; the first match applies.
    """

    server: ServerSettings = field(default_factory=ServerSettings)
    log: LogSettings = field(default_factory=LogSettings)
    chat: ChatSettings = field(default_factory=ChatSettings)
    dump: DumpSettings = field(default_factory=DumpSettings)
    inspect: InspectSettings = field(default_factory=InspectSettings)
    otel: OtelSettings = field(default_factory=OtelSettings)
    retry: RetrySettings = field(default_factory=RetrySettings)
    store: StoreSettings | None = None
    upstreams: dict[str, UpstreamSettings] = field(default_factory=dict[str, UpstreamSettings])
    routes: tuple[Route, ...] = ()
    mcp: tuple[McpServerSettings, ...] = ()
    hosted: HostedSettings = field(default_factory=HostedSettings)
    keys: dict[str, KeySettings] = field(default_factory=dict[str, KeySettings])
    prices: dict[str, PriceSettings] = field(default_factory=dict[str, PriceSettings])
