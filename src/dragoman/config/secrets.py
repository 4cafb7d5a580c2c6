"""Masks settings for display: replaces every value that may be secret by `***`, depending on the key that holds it.

Names do not show what is secret: `env = {FOO = "…"}` may hold a password just as `API_KEY` does. So all values of
headers, queries and variables are masked, and all arguments of commands. In an address, the user, the password, the
values of the query and all parts of the path except a few known words are masked. Paths hold keys too: hosted MCP
servers commonly have addresses such as `https://host/s/KEY/mcp`.

Names of headers, variables and query fields are shown, and programs without their arguments.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote, urlsplit

from msgspec import structs

from dragoman.config.environment import origin_of, proxy_variable
from dragoman.config.settings import (
    ANTHROPIC_HOST,
    OPENAI_HOST,
    PASS_ON,
    McpServerSettings,
    Settings,
    UpstreamSettings,
    peers_of,
)
from dragoman.core.secrets import Secrets, header_credentials, url_credentials, url_others

MASK = "***"
# Everything before the last `@`: a password may hold any character, and error messages also show invalid addresses.
_USER = re.compile(r"^([^/?#]*//)?.*@", re.DOTALL)
# Common parts of API paths. An operator who forgot the `/v1` must be able to see that it is missing.
_PATH_WORDS = frozenset(
    (
        *("", "v1", "v1beta", "v2", "v3", "v4", "api", "openai", "anthropic", "azure", "llm", "inference"),
        *("mcp", "sse", "chat", "completions", "responses", "messages", "models", "deployments", "engines"),
        *("backend-api", "codex", "compatible-mode", "paas", "proxy", "gateway", "serverless", "openapi"),
    )
)  # fmt: skip
# The default command of Codex.
_USUAL_COMMAND = UpstreamSettings(kind="codex").command
# The vendors' public addresses: their error messages link to pages there.
_PUBLIC = frozenset((OPENAI_HOST, ANTHROPIC_HOST, "chatgpt.com"))
# Lists of `name=value`, percent-encoded.
_OTEL_HEADERS = (
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
)
# The subcommand of Codex, not an argument that an operator chose.
_APP_SERVER = "app-server"


def masked(settings: Settings) -> Settings:
    """The settings with their secrets masked, for logs and screens. A server cannot use them."""
    server = structs.replace(
        settings.server, api_keys=tuple(MASK for _ in settings.server.api_keys)
    )
    inspect = structs.replace(
        settings.inspect, api_keys=tuple(MASK for _ in settings.inspect.api_keys)
    )
    upstreams = {name: _masked_upstream(each) for name, each in settings.upstreams.items()}
    store = settings.store
    if store is not None:
        # The path is a database or a file.
        store = structs.replace(store, url=mask_url(store.url, has_path=True))
    mcp = tuple(_masked_mcp(each) for each in settings.mcp)
    otel = settings.otel
    if otel.endpoint is not None:
        otel = structs.replace(otel, endpoint=mask_url(otel.endpoint))
    return structs.replace(
        settings,
        server=server,
        inspect=inspect,
        otel=otel,
        upstreams=upstreams,
        store=store,
        mcp=mcp,
    )


def mask_url(url: str, *, has_path: bool = False) -> str:
    """Mask the user, the password, the query values and the unknown parts of the path of an address.

    The address may be invalid. `has_path`: the whole path is shown.
    """
    bare = _USER.sub(rf"\1{MASK}@", url)
    bare, hash_sign, fragment = bare.partition("#")
    address, sign, query = bare.partition("?")
    fields = (field.partition("=") for field in query.split("&"))
    # A field without `=` is treated as a value.
    masked = [
        f"{name}={MASK if value else ''}" if equals else MASK for name, equals, value in fields
    ]
    return (
        _masked_address(address, has_path=has_path)
        + (sign + "&".join(masked) if query else sign)
        + (hash_sign + MASK if fragment else hash_sign)
    )


def address_of(url: str) -> str:
    """A valid address as a client may see it: without user, password, query and fragment, and with a masked path."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    # An `@` in the path is no sign of a user before it.
    path = parts.path.replace("@", "%40")
    return mask_url(f"{parts.scheme}://{place}{path}") if place else ""


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> Secrets:
    """All masked values of the settings: none of them may appear in a log line, whatever its source."""
    store = "" if settings.store is None else settings.store.url
    found = Secrets(
        (*settings.server.api_keys, *url_credentials(store)), url_others(store, has_path=True)
    )
    for name, upstream in settings.upstreams.items():
        for own in peers_of(name, upstream).values():
            key = environ.get(own.api_key_env) if own.api_key_env is not None else None
            found |= upstream_secrets(own, key)
    for server in settings.mcp:
        found |= mcp_secrets(server, environ)
    if settings.otel.endpoint is not None:
        found |= _otel_secrets(settings.otel.endpoint, environ)
    for scheme in ("http", "https"):
        variable = proxy_variable(scheme, environ)
        found |= Secrets(url_credentials(environ[variable]) if variable is not None else ())
    return found


def _otel_secrets(endpoint: str, environ: Mapping[str, str]) -> Secrets:
    """The values of the headers that the OpenTelemetry SDK sends, and what may be secret in the collector's address."""
    values: set[str] = set()
    for variable in _OTEL_HEADERS:
        for pair in environ.get(variable, "").split(","):
            value = pair.partition("=")[2].strip()
            values |= {value, unquote(value)}
    credentials = {part for value in values for part in header_credentials(value)}
    return Secrets(credentials | values, url_others(endpoint))


def upstream_secrets(settings: UpstreamSettings, key: str | None = None) -> Secrets:
    """The secrets of an upstream, which not even the operator's log may show. `key`: the value of `api_key_env`."""
    own = None if settings.api_key == PASS_ON else settings.api_key
    credentials = {each for each in (key, own) if each}
    for value in settings.headers.values():
        credentials.update(header_credentials(value))
    for url in (settings.base_url, settings.proxy or ""):
        credentials.update(url_credentials(url))
    others = {
        *url_others(settings.base_url),
        *url_others(settings.proxy or ""),
        *settings.headers.values(),
        *settings.query.values(),
        *settings.env.values(),
        *(word for word in settings.command[1:] if word != _APP_SERVER),
        *settings.token_command[1:],
    }
    return Secrets(credentials, others)


def hidden_from_clients(settings: UpstreamSettings, key: str | None = None) -> Secrets:
    """The secrets of an upstream, and the addresses of the upstream and of its proxy."""
    return upstream_secrets(settings, key) | Secrets(
        place for url in (settings.base_url, settings.proxy or "") for place in _places(url)
    )


def _places(url: str) -> Iterator[str]:
    _, host, port = origin_of(url)
    if not host or host in _PUBLIC:
        return
    yield url
    if port is not None:
        yield f"{host}:{port}"
        yield f"[{host}]:{port}"
    if "." in host or ":" in host:  # a word such as `localhost` is not secret
        yield host


def mcp_secrets(settings: McpServerSettings, environ: Mapping[str, str]) -> Secrets:
    """The values that an MCP server is given: no message and no log line may quote them."""
    headers = {**settings.headers}
    headers |= {name: environ.get(source, "") for name, source in settings.headers_from.items()}
    held = {*settings.env_from}
    if settings.oauth is not None:
        held |= {settings.oauth.client_secret_from, settings.oauth.private_key_from}
    credentials = {environ.get(name, "") for name in held if name}
    credentials.update(url_credentials(settings.url))
    credentials.update(part for value in headers.values() for part in header_credentials(value))
    others = {*settings.command[1:], *settings.env.values(), *headers.values()}
    others.update(url_others(settings.url))
    return Secrets(credentials, others)


def _masked_address(address: str, *, has_path: bool) -> str:
    """Mask an address without user and query: its path, and a port that is not a number."""
    if "//" not in address and has_path:
        return address  # `sqlite:file`
    start = address.find("//") + 2 if "//" in address else 0
    host, slash, path = address[start:].partition("/")
    name, colon, port = host.rpartition(":")
    if colon and not port.isdecimal() and "[" not in host:
        host = f"{name}:{MASK}"  # not a port: it is a password if the `@` was forgotten
    if not has_path:
        known = [part if unquote(part).lower() in _PATH_WORDS else MASK for part in path.split("/")]
        path = "/".join(known)
    return address[:start] + host + slash + path


def _masked_upstream(settings: UpstreamSettings) -> UpstreamSettings:
    key = settings.api_key
    return structs.replace(
        settings,
        api_key=key if key in (None, PASS_ON) else MASK,
        base_url=mask_url(settings.base_url),
        proxy=None if settings.proxy is None else mask_url(settings.proxy),
        headers=_masked_values(settings.headers),
        query=_masked_values(settings.query),
        command=mask_command(settings.command),
        token_command=mask_command(settings.token_command),
        env=_masked_values(settings.env),
        peers=tuple(
            structs.replace(
                peer,
                base_url=mask_url(peer.base_url),
                api_key=peer.api_key if peer.api_key in (None, PASS_ON) else MASK,
                token_command=mask_command(peer.token_command),
            )
            for peer in settings.peers
        ),
    )


def _masked_mcp(settings: McpServerSettings) -> McpServerSettings:
    oauth = settings.oauth
    if oauth is not None:
        oauth = structs.replace(
            oauth,
            issuer=mask_url(oauth.issuer),
            client_metadata_url=mask_url(oauth.client_metadata_url),
        )
    return structs.replace(
        settings,
        oauth=oauth,
        command=mask_command(settings.command),
        env=_masked_values(settings.env),
        url=mask_url(settings.url),
        headers=_masked_values(settings.headers),
    )


def mask_command(command: Sequence[str]) -> tuple[str, ...]:
    """The program, and `***` for each argument; Codex's default command unchanged."""
    if tuple(command) == _USUAL_COMMAND:
        return _USUAL_COMMAND
    return (*command[:1], *(MASK for _ in command[1:]))


def _masked_values(values: Mapping[str, str]) -> dict[str, str]:
    return {name: MASK if value else "" for name, value in values.items()}
