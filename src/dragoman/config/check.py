"""Checks whether settings can work: adds defaults and refuses contradictions.

`complete` is for settings from a file or from a program. `check_surroundings` checks the environment variables, programs
and files that the settings name; a server calls it before it starts.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from ipaddress import ip_address
from shutil import which
from typing import get_args

from msgspec import structs

from dragoman.config.environment import (
    DEFAULT_PORTS,
    certificate_problems,
    http_address,
    origin_of,
    proxy_from,
    sqlite_place,
    store_engine,
)
from dragoman.config.mcp import name_problems, server_problems
from dragoman.config.secrets import mask_url
from dragoman.config.settings import (
    CHATGPT_CODEX_URL,
    CODEX_INSTALL_HINT,
    CONNECTION_HEADERS,
    DIRECT,
    LONGEST_WAIT,
    MODEL_PLACE,
    PASS_ON,
    DumpSettings,
    InspectSettings,
    ModelLimits,
    OtelSettings,
    Route,
    ServerSettings,
    Settings,
    StoreSettings,
    UpstreamSettings,
    peers_of,
    split_fallback,
)
from dragoman.config.values import key_path, range_problems, suggestion
from dragoman.dialects.registry import UPSTREAM_CODECS
from dragoman.dialects.responses.losses import CHATGPT_CODEX_LOSSES
from dragoman.errors import ConfigError
from dragoman.model.parts import CallKind
from dragoman.obsidian.answer import LOSSES as OBSIDIAN_LOSSES
from dragoman.obsidian.settings import ChatSettings
from dragoman.textcalls.prompting import PROMPT_FORMATS
from dragoman.textcalls.prompting.prompt import LOSSES as PROMPT_LOSSES
from dragoman.textcalls.registry import choose_patterns

__all__ = (
    "MAX_KEY_NAME",
    "OTEL_MISSING",
    "REHEARSAL",
    "check_surroundings",
    "complete",
    "config_error",
    "is_loopback",
    "warnings_of",
)

REHEARSAL = "rehearsal"
"""The name of the upstream that is used if none is configured."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ORIGIN = re.compile(r"\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#]+")
# Origins that match any site: a sandboxed frame of any page has the origin `null`.
_ANY_ORIGIN = re.compile(r"\*|null|https?://\*(?::(?:\*|\d+))?")
_ALLOWED_HOST = re.compile(r"\*|(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f:.]+\]")
# RFC 9110: a field name is a token; a value has visible characters, spaces and tabs. Servers differ about non-ASCII.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_KEY = re.compile(r"[\x21-\x7e]+")
_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@%/-]|\{model\})*")
# What a shell would replace: `$OPENAI_API_KEY`, `${OPENAI_API_KEY}`. Keys of vendors do not begin with `$`.
_VARIABLE = re.compile(r"\$\{?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\}?")
# 16 random letters are some 90 bits. Shorter keys are often words, which an attacker tries first.
_SHORTEST_KEY = 16
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
OTEL_MISSING = "expected the OpenTelemetry SDK and its OTLP exporter: install dragoman[otel]"
"""What messages say if the extra `otel` is not installed."""
_OTEL_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
MAX_KEY_NAME = 64
"""Letters of a key's name: it is a label in metrics and a word in log lines."""


def complete(settings: Settings) -> Settings:
    """The settings with an upstream, routes and a store added where they are missing, and checked.

    Raises:
        ConfigError: the settings cannot work; the message has one line per reason.
    """
    upstreams = settings.upstreams or {REHEARSAL: UpstreamSettings(kind="rehearsal")}
    upstreams = {name: _filled_in(upstream) for name, upstream in upstreams.items()}
    routes = settings.routes
    if not routes and len(upstreams) == 1:
        routes = (Route(model="*", upstream=next(iter(upstreams))),)
    store = settings.store or StoreSettings(url="memory:")
    completed = structs.replace(settings, upstreams=upstreams, routes=routes, store=store)
    problems = [
        *range_problems(completed),
        *_server(completed),
        *_keys(completed),
        *_dump(completed.dump),
        *_inspect(completed.inspect, completed.server),
        *_otel(completed.otel),
        *_chat(completed.chat),
        *_store(store),
        *_upstreams(completed),
        *_routes(completed),
        *_mcp(completed),
    ]
    if problems:
        raise config_error(problems)
    return completed


def _filled_in(upstream: UpstreamSettings) -> UpstreamSettings:
    """The upstream with the values that its kind prescribes."""
    if upstream.websocket:
        upstream = structs.replace(upstream, always_stream=True)
    if upstream.kind != "chatgpt-codex":
        return upstream
    base_url = upstream.base_url or CHATGPT_CODEX_URL
    return structs.replace(upstream, base_url=base_url, always_stream=True)


def check_surroundings(settings: Settings, environ: Mapping[str, str]) -> None:
    """Check that the environment variables, programs and files that the settings name exist.

    Raises:
        ConfigError: one is missing.
    """
    problems: list[str] = []
    for path, upstream in servers_of(settings):
        variable = upstream.api_key_env
        if variable is not None and not environ.get(variable):
            problems.append(
                f"{path}.api_key_env: expected a key in the environment variable {variable}, it is not set"
            )
        elif variable is not None and (held := _VARIABLE.fullmatch(environ[variable])):
            problems.append(
                f"{path}.api_key_env: expected a key in the environment variable {variable}, "
                f"it holds the name of the variable {held[1]}, which is not replaced"
            )
        program = upstream.command[0] if upstream.command else ""
        if upstream.kind == "codex" and which(program, path=environ.get("PATH")) is None:
            problems.append(
                f"{path}.command: expected the program {program!r}, found none on the PATH; {CODEX_INSTALL_HINT}"
            )
        token_program = upstream.token_command[0] if upstream.token_command else ""
        if token_program and which(token_program, path=environ.get("PATH")) is None:
            problems.append(
                f"{path}.token_command: expected the program {token_program!r}, found none on the PATH"
            )
        if upstream.ca_file is not None and not os.access(upstream.ca_file, os.R_OK):
            problems.append(f"{path}.ca_file: expected a readable file, got {upstream.ca_file!r}")
    problems += _proxy_and_certificates(settings, environ)
    problems += _mcp_surroundings(settings, environ)
    problems += _otel_surroundings(settings.otel)
    problems += _store_surroundings(settings.store, environ)
    if problems:
        raise config_error(problems)


def _proxy_and_certificates(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Problems with the variables that all upstreams share, each once."""
    found: dict[str, None] = {}
    for _, upstream in servers_of(settings):
        try:
            if upstream.proxy is None and upstream.base_url:
                proxy_from(upstream.base_url, environ)
        except ConfigError as error:
            found[error.message] = None
        if upstream.base_url.startswith("https:") and upstream.ca_file is None:
            found |= dict.fromkeys(certificate_problems(environ))
    return list(found)


def config_error(problems: list[str]) -> ConfigError:
    """One error for all problems of a configuration, a line for each."""
    return ConfigError("\n".join(problems))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def warnings_of(settings: Settings) -> list[str]:
    """Warnings about settings that work but are unsafe."""
    server = settings.server
    short = [
        f"server.api_keys[{index}]: expected at least {_SHORTEST_KEY} characters, got {len(key)}; "
        "a key of this length can be guessed"
        for index, key in enumerate(server.api_keys)
        if len(key) < _SHORTEST_KEY
    ]
    is_alone = settings.store is None or store_engine(settings.store.url) == "memory"
    if settings.keys and is_alone and server.workers > 1:
        short.append(
            f"store.url: the limits of keys are counted in memory, by each of {server.workers} workers for itself; "
            "they hold for all together with SQLite or PostgreSQL"
        )
    return short


def _server(settings: Settings) -> Iterator[str]:
    server = settings.server
    has_keys = bool(server.api_keys or settings.keys)
    if not server.host.strip():
        yield "server.host: expected an address to listen on, got an empty string"
    elif not is_loopback(server.host) and not has_keys:
        yield (
            f"server.host: {server.host} can be reached from other machines, and anyone there could use your keys: "
            "make a key with `dragoman keys add`, set api_keys in [server] (or DRAGOMAN_API_KEYS), or listen on 127.0.0.1"
        )
    yield from _callers(server, has_keys=has_keys)


def _keys(settings: Settings) -> Iterator[str]:
    """Problems with named keys and prices."""
    names: dict[str, str] = {}
    for name, key in settings.keys.items():
        path = key_path("keys", name)
        if not _NAME.fullmatch(name) or len(name) > MAX_KEY_NAME:
            yield f"{path}: expected a name of at most {MAX_KEY_NAME} letters, digits, `_`, `.` and `-`"
        if not _DIGEST.fullmatch(key.digest):
            yield f"{path}.digest: expected `sha256:` and 64 hex digits; `dragoman keys add NAME` writes it"
        elif key.digest in names:
            yield f"{path}.digest: expected a key of its own, it is that of {names[key.digest]}"
        names.setdefault(key.digest, path)
        if not key.models or not all(glob.strip() for glob in key.models):
            yield f'{path}.models: expected names or globs such as "gpt-*", got an empty one or none'
        if not settings.prices and (key.cost_per_day is not None or key.cost_per_month is not None):
            yield f'{path}: expected prices for a limit of cost, such as [prices."gpt-*"]; there are none'
    for glob in settings.prices:
        if not glob.strip():
            yield f"{key_path('prices', glob)}: expected a model's name or a glob, got an empty string"


def _callers(server: ServerSettings, *, has_keys: bool) -> Iterator[str]:
    """Problems with keys, origins and host names."""
    for index, key in enumerate(server.api_keys):
        if not _KEY.fullmatch(key):
            yield f"server.api_keys[{index}]: expected visible ASCII characters without spaces, got others or none"
        elif len(key) < _SHORTEST_KEY and not is_loopback(server.host):
            yield (
                f"server.api_keys[{index}]: expected at least {_SHORTEST_KEY} characters, got {len(key)}: "
                f"{server.host} can be reached from other machines, and anyone there could guess it"
            )
    for index, origin in enumerate(server.cors_origins):
        if not _ORIGIN.fullmatch(origin):
            yield (
                f'server.cors_origins[{index}]: expected "*" or an origin such as "https://example.org" '
                f"(no path, no slash at the end), got {origin!r}"
            )
        elif _ANY_ORIGIN.fullmatch(origin) and not has_keys:
            yield (
                f'server.cors_origins[{index}]: "{origin}" without api_keys would let any web page use your upstreams: '
                "name the origins that you use, or set api_keys in [server] (or DRAGOMAN_API_KEYS)"
            )
    for index, host in enumerate(server.allowed_hosts):
        if not _ALLOWED_HOST.fullmatch(host):
            yield (
                f'server.allowed_hosts[{index}]: expected a host\'s name such as "gateway.lan" or "*.example.org" '
                f'(no scheme, no port), or "*"; got {host!r}'
            )


def _dump(dump: DumpSettings) -> Iterator[str]:
    if dump.path is not None and not dump.path.strip():
        yield "dump.path: expected the name of a file, got an empty string"


def _inspect(inspect: InspectSettings, server: ServerSettings) -> Iterator[str]:
    for index, key in enumerate(inspect.api_keys):
        if key not in server.api_keys:
            yield f"inspect.api_keys[{index}]: expected one of server.api_keys, got another key"
    if inspect.record is not None and not inspect.record.strip():
        yield "inspect.record: expected the name of a folder, got an empty string"


def _otel(otel: OtelSettings) -> Iterator[str]:
    if otel.endpoint is not None:
        yield from _address(
            otel.endpoint,
            "otel.endpoint",
            example="http://127.0.0.1:4318",
            elsewhere="put credentials into OTEL_EXPORTER_OTLP_HEADERS",
        )
        if not (otel.traces or otel.metrics):
            yield "otel: expected traces or metrics to be sent, both are off; leave the endpoint out"
    if otel.service_name is not None and not otel.service_name.strip():
        yield "otel.service_name: expected a name, got an empty string"
    if otel.forward and not otel.traces:
        yield "otel.forward: expected `traces = true` beside it: without traces there is nothing to forward"


def _store(store: StoreSettings) -> Iterator[str]:
    try:
        store_engine(store.url)
    except ConfigError as error:
        yield f"store.url: {error.message}"


def _chat(chat: ChatSettings) -> Iterator[str]:
    if chat.tool_block_max < 0:
        yield f"chat.tool_block_max: expected 0 or more, got {chat.tool_block_max}"
    grace, longest = chat.stop_after_tools_grace_ms, LONGEST_WAIT * 1000
    if not 0 <= grace <= longest:
        yield f"chat.stop_after_tools_grace_ms: expected milliseconds from 0 to {longest:.0f}, got {grace}"


def _upstreams(settings: Settings) -> Iterator[str]:
    if len(settings.upstreams) > 1 and not settings.routes:
        names = list(settings.upstreams)
        yield (
            f"routes: expected at least one, there are {len(names)} upstreams ({', '.join(names)}); "
            f'add for example [[routes]] model = "*" upstream = "{names[0]}"'
        )
    for name, upstream in settings.upstreams.items():
        path = key_path("upstreams", name)
        if not _NAME.fullmatch(name):
            yield f"{path}: expected a name of letters, digits, `_`, `.` and `-`"
        yield from _upstream(upstream, path)
        yield from _peers(upstream, path)
    for path, upstream in servers_of(settings):
        if _is_own_address(settings.server, upstream.base_url):
            yield f"{path}.base_url: {mask_url(upstream.base_url)} is this gateway's own address"


def servers_of(settings: Settings) -> Iterator[tuple[str, UpstreamSettings]]:
    """Each upstream, or each of its peers as one, with its place in the settings."""
    for name, upstream in settings.upstreams.items():
        path = key_path("upstreams", name)
        for index, own in enumerate(peers_of(name, upstream).values()):
            yield f"{path}.peers[{index}]" if upstream.peers else path, own


def _peers(upstream: UpstreamSettings, path: str) -> Iterator[str]:
    if not upstream.peers:
        return
    if upstream.kind not in ("chat", "responses", "messages"):
        yield f'{path}.peers: expected the kind "chat", "responses" or "messages", this is "{upstream.kind}"'
    if upstream.base_url:
        yield f"{path}: expected base_url or peers, got both"
    if upstream.keeps_responses:
        yield f"{path}.keeps_responses: only one server knows the id of a response; leave it out beside peers"
    if not any(peer.weight for peer in upstream.peers):
        yield f"{path}.peers: expected a weight above 0 for at least one of them"
    names = [peer.name for peer in upstream.peers]
    for index, peer in enumerate(upstream.peers):
        where = f"{path}.peers[{index}]"
        if not _NAME.fullmatch(peer.name):
            yield f"{where}.name: expected letters, digits, `_`, `.` and `-`"
        elif names.index(peer.name) != index:
            yield f"{where}.name: expected a name of its own, {peer.name!r} is there already"
        yield from _address(peer.base_url, f"{where}.base_url")
        keys = {key: getattr(peer, key) for key in ("api_key", "api_key_env", "token_command")}
        yield from _keys_of(structs.replace(upstream, **keys), where)


def _upstream(upstream: UpstreamSettings, path: str) -> Iterator[str]:
    yield from _base_url(upstream, path)
    yield from _credentials(upstream, path)
    if upstream.never_stream and upstream.always_stream:
        yield f"{path}.never_stream: contradicts always_stream, which `websocket` and a ChatGPT login imply"
    if "codex" in upstream.also:
        yield f'{path}.also: expected any of "chat", "responses", "messages"; got "codex"'
    yield from _paths(upstream, path)
    if upstream.proxy is not None and upstream.proxy != DIRECT:
        yield from _address(upstream.proxy, f"{path}.proxy", may_have_user=True)
    for name, value in upstream.headers.items():
        yield from _header(name, value, key_path(f"{path}.headers", name))
    yield from _codex(upstream, path)
    if upstream.kind == "replay" and not (upstream.recordings or "").strip():
        yield f"{path}.recordings: expected a folder of recordings, it is missing"
    elif upstream.kind != "replay" and upstream.recordings is not None:
        yield f'{path}.recordings: expected `kind = "replay"` beside it'
    yield from _formats(upstream, path)
    known = sorted(
        {
            *PROMPT_LOSSES,
            *OBSIDIAN_LOSSES,
            *CHATGPT_CODEX_LOSSES,
            *(kind for codec in UPSTREAM_CODECS.values() for kind in codec.losses),
        }
    )
    for name in upstream.losses:
        if name not in known:
            yield f"{key_path(f'{path}.losses', name)}: unknown kind of loss{_hint(name, known)}"
    yield from _limits(upstream.limits, f"{path}.limits")
    for glob, limits in upstream.models.items():
        yield from _limits(limits, key_path(f"{path}.models", glob))


def _codex(upstream: UpstreamSettings, path: str) -> Iterator[str]:
    """Problems with the keys of the kind `codex`."""
    if upstream.kind == "codex":
        if not upstream.command or not upstream.command[0].strip():
            yield f'{path}.command: expected a program and its arguments, such as ["codex", "app-server"]'
        if upstream.api_key is not None or upstream.api_key_env is not None:
            yield f"{path}: a codex upstream uses Codex's login; leave api_key and api_key_env out"
        if upstream.also:
            yield f"{path}.also: codex app-server speaks its own protocol only; leave it out"


def _formats(upstream: UpstreamSettings, path: str) -> Iterator[str]:
    """Problems with the names of text formats for calls."""
    try:
        if upstream.text_calls and upstream.text_calls != ("auto",):
            choose_patterns(upstream.text_calls, "", None)
    except ConfigError as error:
        yield f"{path}.text_calls: {error.message}"
    prompted = upstream.prompted_tools
    if prompted is not None and prompted not in PROMPT_FORMATS:
        hint = _hint(prompted, PROMPT_FORMATS)
        yield f"{path}.prompted_tools: no format is called {prompted!r}{hint}"


def _paths(upstream: UpstreamSettings, path: str) -> Iterator[str]:
    if upstream.stream_path is not None and upstream.path is None:
        yield f"{path}.stream_path: expected `path` beside it, for answers that are not streamed"
    if upstream.path is not None and upstream.websocket:
        yield f"{path}.path: expected no `websocket` beside it"
    for name in ("path", "stream_path"):
        value: str | None = getattr(upstream, name)
        if value is None:
            continue
        if upstream.kind not in ("chat", "responses", "messages") or upstream.also:
            yield f"{path}.{name}: expected an upstream with one dialect, without `also`"
        if not _PATH.fullmatch(value):
            yield f'{path}.{name}: expected a path such as "/{{model}}:rawPredict", got {value!r}'
        elif upstream.path is not None and (MODEL_PLACE in value) != (MODEL_PLACE in upstream.path):
            yield f"{path}.{name}: expected {{model}} in both paths, or in neither"
    for name in upstream.add_fields:
        if name in ("model", "stream"):
            yield f"{key_path(f'{path}.add_fields', name)}: expected another member; the gateway sets this one"


def _header(name: str, value: str, path: str) -> Iterator[str]:
    if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        yield f"{path}: expected a header's name and value, in ASCII and without line breaks"
    elif name.lower() in CONNECTION_HEADERS:
        yield f"{path}: expected another header; the gateway sets this one for each connection"


def _base_url(upstream: UpstreamSettings, path: str) -> Iterator[str]:
    if upstream.kind in ("rehearsal", "codex"):
        if upstream.base_url:
            what = (
                "a rehearsal answers by itself"
                if upstream.kind == "rehearsal"
                else "codex runs here"
            )
            yield f"{path}.base_url: {what} and has no address; leave it out"
    elif not upstream.base_url:
        if upstream.kind == "replay" or upstream.peers:
            return
        yield f"{path}.base_url: expected an http:// or https:// address, it is missing"
    else:
        yield from _address(upstream.base_url, f"{path}.base_url")


def _address(
    url: str,
    path: str,
    *,
    may_have_user: bool = False,
    example: str = "http://127.0.0.1:8000/v1",
    elsewhere: str = "use api_key, api_key_env or headers",
) -> Iterator[str]:
    parts = http_address(url)
    if parts is None or url != url.strip():
        yield f"{path}: expected an address such as {example}, got {mask_url(url)!r}"
    elif parts.query or parts.fragment:
        hint = "; a query goes into `query`" if path.startswith("upstreams") else ""
        yield f"{path}: expected an address without `?` and `#`, got {mask_url(url)!r}{hint}"
    elif "@" in parts.netloc and not may_have_user:
        yield (
            f"{path}: expected an address without user and password, got {mask_url(url)!r}; {elsewhere}"
        )


def _credentials(upstream: UpstreamSettings, path: str) -> Iterator[str]:
    is_chatgpt = upstream.kind == "chatgpt-codex"
    if is_chatgpt and (upstream.api_key is not None or upstream.api_key_env is not None):
        yield f"{path}: a chatgpt-codex upstream uses Codex's login; leave api_key and api_key_env out"
    if is_chatgpt and upstream.also:
        yield f"{path}.also: the ChatGPT Codex backend speaks Responses only; leave it out"
    if not is_chatgpt and upstream.auth_file is not None:
        yield f'{path}.auth_file: only the kind "chatgpt-codex" reads it; leave it out'
    if upstream.websocket and upstream.kind not in ("responses", "chatgpt-codex"):
        yield f'{path}.websocket: only the kinds "responses" and "chatgpt-codex" speak it, this is "{upstream.kind}"'
    if upstream.api_key_header is not None:
        yield from _header(upstream.api_key_header, "", f"{path}.api_key_header")
    yield from _keys_of(upstream, path)


def _keys_of(upstream: UpstreamSettings, path: str) -> Iterator[str]:
    """Problems with the key of an upstream or of a peer."""
    given = {
        "api_key": upstream.api_key is not None,
        "api_key_env": upstream.api_key_env is not None,
        "token_command": bool(upstream.token_command),
    }
    if sum(given.values()) > 1:
        names = " and ".join(name for name, is_given in given.items() if is_given)
        yield f"{path}: expected one of api_key, api_key_env and token_command, got {names}"
    if upstream.token_command and upstream.kind not in ("chat", "responses", "messages"):
        yield f'{path}.token_command: expected the kind "chat", "responses" or "messages", this is "{upstream.kind}"'
    if upstream.token_command and not upstream.token_command[0].strip():
        yield f"{path}.token_command: expected a program and its arguments"
    if upstream.api_key is not None and not _KEY.fullmatch(upstream.api_key):
        yield (
            f'{path}.api_key: expected a key (visible ASCII characters without spaces) or "{PASS_ON}", '
            "got other characters or none"
        )
    variable = _VARIABLE.fullmatch(upstream.api_key or "")
    if variable is not None:
        yield (
            f"{path}.api_key: expected a key, got the name of a variable, which is not replaced here; "
            f'write api_key_env = "{variable[1]}"'
        )
    named = _VARIABLE.fullmatch(upstream.api_key_env or "")
    if named is not None:
        yield (
            f"{path}.api_key_env: expected the name of a variable without `$`; "
            f'write api_key_env = "{named[1]}"'
        )
    if upstream.api_key_env is not None and not upstream.api_key_env.strip():
        yield f"{path}.api_key_env: expected the name of an environment variable, got an empty string"


def _limits(limits: ModelLimits, path: str) -> Iterator[str]:
    for name, pattern in (("name_pattern", limits.name_pattern), ("id_pattern", limits.id_pattern)):
        if pattern is None:
            continue
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"{path}.{name}: expected a regular expression for one character, got {pattern!r}: {error}"
    kinds = get_args(CallKind)
    for index, kind in enumerate(limits.builtin_tools or ()):
        if kind not in kinds:
            yield f'{path}.builtin_tools[{index}]: unknown kind of tool "{kind}"{_hint(kind, kinds)}'


def _is_own_address(server: ServerSettings, base_url: str) -> bool:
    """Whether requests to this address would come back to the gateway: clients use the same variables to find the gateway."""
    scheme, host, port = origin_of(base_url)
    return (port or DEFAULT_PORTS.get(scheme, 0)) == server.port and (
        host == server.host.lower() or (is_loopback(host) and _listens_on_loopback(server.host))
    )


def _listens_on_loopback(host: str) -> bool:
    return is_loopback(host) or host in ("0.0.0.0", "::", "[::]")  # noqa: S104 - compared, not bound


def _routes(settings: Settings) -> Iterator[str]:
    names = list(settings.upstreams)
    seen: dict[str, int] = {}
    for index, route in enumerate(settings.routes):
        path = f"routes[{index}]"
        if not route.model.strip():
            yield f'{path}.model: expected a model\'s name or a glob such as "gpt-*", got an empty string'
        earlier = seen.get("*", seen.get(route.model))
        if earlier is not None:
            yield f"{path}.model: never reached, routes[{earlier}] takes `{route.model}` first"
        seen.setdefault(route.model, index)
        if route.upstream_model is not None and not route.upstream_model.strip():
            yield f"{path}.upstream_model: expected a model's name, got an empty string"
        yield from _upstream_named(route.upstream, names, f"{path}.upstream")
        tried = [route.upstream]
        for place, entry in enumerate(route.fallback):
            where = f"{path}.fallback[{place}]"
            name, model = split_fallback(entry)
            yield from _upstream_named(name, names, where)
            if model == "":
                yield f"{where}: expected `name` or `name=model`, got {entry!r}"
            if entry in tried:
                yield f"{where}: {entry!r} is in this route already; name each upstream once"
            tried.append(entry)


def _mcp(settings: Settings) -> Iterator[str]:
    for index, server in enumerate(settings.mcp):
        yield from server_problems(server, f"mcp[{index}]")
    yield from name_problems(settings.mcp)
    names = [server.name for server in settings.mcp]
    asked = [
        *(
            (name, f"routes[{index}].mcp[{place}]")
            for index, route in enumerate(settings.routes)
            for place, name in enumerate(route.mcp or ())
        ),
        *((name, f"hosted.servers[{place}]") for place, name in enumerate(settings.hosted.servers)),
    ]
    for name, path in asked:
        if name not in names:
            hint = _hint(name, names, "there are") if names else "; there is no [[mcp]]"
            yield f'{path}: there is no MCP server "{name}"{hint}'


def _otel_surroundings(otel: OtelSettings) -> Iterator[str]:
    if otel.endpoint is None:
        return
    try:
        is_installed = all(find_spec(package) is not None for package in _OTEL_PACKAGES)
    except ModuleNotFoundError:  # a package above one of them is missing
        is_installed = False
    if not is_installed:
        yield f"otel.endpoint: {OTEL_MISSING}"


def _store_surroundings(store: StoreSettings | None, environ: Mapping[str, str]) -> Iterator[str]:
    try:
        if store is not None and store.policy != "off" and store_engine(store.url) == "sqlite":
            sqlite_place(store.url, environ)
    except ConfigError as error:
        yield f"store.url: {error.message}"


def _mcp_surroundings(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    for index, server in enumerate(settings.mcp):
        path = f"mcp[{index}]"
        program = server.command[0] if server.command else ""
        folder = server.cwd if os.sep in program else None
        found = os.path.join(folder, program) if folder else program  # noqa: PTH118 - as the system would join them
        if program and which(found, path=environ.get("PATH")) is None:
            yield f"{path}.command: expected the program {program!r}, found none on the PATH"
        for variable in server.env_from:
            if variable not in environ:
                yield f"{path}.env_from: expected the environment variable {variable}, it is not set"
        for header, variable in server.headers_from.items():
            if not environ.get(variable):
                yield (
                    f"{path}.headers_from.{header}: expected a value in the environment variable {variable}, "
                    "it is not set"
                )
        for key in ("client_secret_from", "private_key_from"):
            variable = getattr(server.oauth, key, "")
            if variable and not environ.get(variable):
                yield f"{path}.oauth.{key}: expected a value in the environment variable {variable}, it is not set"


def _upstream_named(name: str, known: list[str], path: str) -> Iterator[str]:
    if name not in known:
        yield f'{path}: there is no upstream "{name}"{_hint(name, known, "there are")}'


def _hint(name: str, known: Collection[str], words: str = "known") -> str:
    """A hint with the name that was probably meant, or with all known names."""
    return suggestion(name, known) or f"; {words}: {', '.join(known)}"
