"""What is said of an MCP server: how it is reached, what it may do, how long it may take.

Values, and the functions that read them: from plain values (a table of a configuration file), from the short form of a
command line, from the `mcpServers` file that other programs share. Nothing is started here. Commands, environment
variables and headers may hold secrets: no message and no `repr` here shows them.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Literal, cast, get_args
from urllib.parse import urlsplit

from msgspec import Struct, field, structs

from dragoman._json import loads
from dragoman.core.secrets import Secrets, header_credentials, url_credentials, url_others
from dragoman.errors import ConfigError, MalformedJson

__all__ = (
    "McpServerSettings",
    "OAuthSettings",
    "RestartSettings",
    "check_names",
    "check_settings",
    "mcp_secrets",
    "settings_from_file_text",
    "settings_from_short_form",
    "settings_from_values",
)

MAX_NAME = 64
"""OpenAI takes function names of 64 characters; a server's name is the beginning of its tools' names."""

# The two underscores stand between a server's name and a tool's where a dialect knows no namespaces: a name that holds
# them, or ends in one, could not be told from another server's.
_NAME = re.compile(r"(?!.*__)[A-Za-z0-9_-]*[A-Za-z0-9-]")
_PREFIX = "mcp"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Of a scope, by RFC 6749, less the spaces between several of them.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
_SHORT_FORM = '"name=command arguments" or "name=http://host/path"'


class RestartSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a server that ended is started again.

    first_delay, max_delay: seconds before the first new start; doubled after each that fails, up to the second.
    attempts: starts in a row that may fail before the server counts as down and its tools are withdrawn.
    stable_after: a server that lived this long is started again as if it had never failed.
    again_after: seconds between the starts of one that is down. A call of its tools does not wait for that.
    """

    first_delay: float = 0.2
    max_delay: float = 10.0
    attempts: int = 5
    stable_after: float = 30.0
    again_after: float = 60.0


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
    redirect_port: int = 0


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
    start_timeout: float = 30.0
    call_timeout: float = 300.0
    restart: RestartSettings = field(default_factory=RestartSettings)

    def __repr__(self) -> str:
        return f"McpServerSettings(name={self.name!r}, {self.address})"

    @property
    def address(self) -> str:
        """Where it is, in a few words and without secrets: arguments, queries and user names may be some."""
        if self.command:
            return f"command {self.command[0]!r}"
        parts = urlsplit(self.url)
        return f"url '{parts.scheme}://{parts.hostname}{'' if _port(self.url) is None else f':{_port(self.url)}'}'"


def mcp_secrets(settings: McpServerSettings, environ: Mapping[str, str]) -> Secrets:
    """What a server is given, by values: none of it is quoted in a message or a log line."""
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


def check_settings(settings: McpServerSettings, where: str = "mcp") -> McpServerSettings:
    """The same settings, if they can work.

    Raises:
        ConfigError: they cannot; it begins with `where`.
    """
    if len(settings.name) > MAX_NAME or not _NAME.fullmatch(settings.name):
        raise ConfigError(
            f"{where}.name: expected at most {MAX_NAME} letters, digits, `-` and single `_`, got {settings.name!r}"
        )
    if settings.name == _PREFIX:
        raise ConfigError(
            f"{where}.name: expected another than {_PREFIX!r}, which models write before the name of any server"
        )
    if bool(settings.command) == bool(settings.url):
        came = "both" if settings.url else "neither"
        raise ConfigError(
            f"{where}: expected `command` or `url` for the server {settings.name!r}, got {came}"
        )
    foreign = _foreign_fields(settings)
    if foreign:
        raise ConfigError(f"{where}.{foreign[0]}: has no meaning beside `{_way(settings)}`")
    if settings.command:
        _check_child(settings, where)
    else:
        _check_url(settings, where)
    _check_times(settings, where)
    return settings


def check_names(servers: Iterable[McpServerSettings], where: str = "mcp") -> None:
    """Raises:
    ConfigError: two servers have one name.
    """
    seen: set[str] = set()
    for server in servers:
        if server.name in seen:
            raise ConfigError(f"{where}: expected names that differ, got {server.name!r} twice")
        seen.add(server.name)


def settings_from_values(values: Mapping[str, object], where: str = "mcp") -> McpServerSettings:
    """Settings from plain values, as a configuration file or a JSON object holds them.

    Raises:
        ConfigError: a key is unknown, a value of another type than expected, or the whole cannot work.
    """
    known = {info.name: info for info in structs.fields(McpServerSettings)}
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}.{key}: unknown key; known here: {', '.join(known)}")
    if "name" not in values:
        raise ConfigError(f"{where}.name: expected a string, it is missing")
    read = {key: _read(key, value, f"{where}.{key}") for key, value in values.items()}
    # each value was read as the type its field has
    return check_settings(McpServerSettings(**read), where)  # type: ignore[arg-type]


def settings_from_short_form(text: str, where: str = "--mcp") -> McpServerSettings:
    """Settings from one word of a command line: `name=command arguments…`, or `name=http://…`.

    Raises:
        ConfigError: the text has another form.
    """
    name, equals, rest = text.partition("=")
    rest = rest.strip()
    if not equals or not rest:
        raise ConfigError(
            f"{where}: expected {_SHORT_FORM}, got {'no address' if equals else 'no name'}"
        )
    if rest.startswith(("http://", "https://")):
        return check_settings(McpServerSettings(name=name.strip(), url=rest), where)
    try:
        command = tuple(shlex.split(rest))
    except ValueError as error:
        raise ConfigError(
            f"{where}: the command of {name.strip()!r} cannot be read: {error}"
        ) from error
    return check_settings(McpServerSettings(name=name.strip(), command=command), where)


def settings_from_file_text(
    text: bytes | str, environ: Mapping[str, str], where: str = "mcpServers"
) -> tuple[McpServerSettings, ...]:
    """Settings from the JSON that other programs keep: `{"mcpServers": {"name": {"command": …}}}`.

    `${NAME}` and `${NAME:-otherwise}` in its strings stand for variables of `environ`. Servers marked as disabled are
    left out, and so are keys of other programs: the file is theirs too.

    Raises:
        ConfigError: it is not that, or names a variable that is not set.
    """
    try:
        document: object = loads(text)
    except MalformedJson as error:
        raise ConfigError(f"{where}: {error.message}") from error
    servers = _table(_table(document, where).get("mcpServers"), f"{where}.mcpServers")
    read = tuple(
        _from_entry(name, _table(entry, f"{where}.{name}"), environ, f"{where}.{name}")
        for name, entry in servers.items()
        if not _is_disabled(entry)
    )
    check_names(read, where)
    return read


def _from_entry(
    name: str, entry: Mapping[str, object], environ: Mapping[str, str], where: str
) -> McpServerSettings:
    kind = entry.get("type", entry.get("transport"))
    if kind == "sse":
        raise ConfigError(
            f"{where}.type: the transport 'sse' is not supported; most such servers answer on streamable HTTP too"
        )
    values: dict[str, object] = {"name": name}
    for key in ("env", "cwd", "url", "headers"):
        if key in entry:
            values[key] = _expand(entry[key], environ, f"{where}.{key}")
    if "command" in entry:
        arguments = entry.get("args", [])
        whole: list[object] = [entry["command"]]
        whole += cast("list[object]", arguments) if isinstance(arguments, list) else [arguments]
        values["command"] = _expand(whole, environ, f"{where}.command")
    return settings_from_values(values, where)


def _is_disabled(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    fields = cast("dict[str, object]", entry)
    return fields.get("disabled") is True or fields.get("enabled") is False


def _expand(value: object, environ: Mapping[str, str], where: str) -> object:
    if isinstance(value, list):
        return [_expand(each, environ, where) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return {key: _expand(each, environ, f"{where}.{key}") for key, each in pairs}
    if not isinstance(value, str):
        return value

    def found(match: re.Match[str]) -> str:
        otherwise: str | None = match.group(2)
        held = environ.get(match[1], otherwise)
        if held is None:
            raise ConfigError(f"{where}: the environment variable {match[1]} is not set")
        return held

    return _VARIABLE.sub(found, value)


_CHILD_FIELDS = ("env", "env_from", "cwd")
_HTTP_FIELDS = ("headers", "headers_from", "oauth")
_TEXTS = ("name", "cwd", "url")
_LISTS = ("command", "env_from", "allow", "deny")
_TABLES = ("env", "headers", "headers_from")


def _read(key: str, value: object, where: str) -> object:
    if key in _TEXTS:
        return _text(value, where)
    if key in _LISTS:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where}: expected a list of strings, got {_kind(value)}")
        items = cast("Iterable[object]", value)
        return tuple(_text(each, f"{where}[{index}]") for index, each in enumerate(items))
    if key in _TABLES:
        return {name: _text(each, f"{where}.{name}") for name, each in _table(value, where).items()}
    if key == "restart":
        return _restart(value, where)
    if key == "oauth":
        return _oauth(value, where)
    return _number(value, where)


def _known_table(value: object, known: tuple[str, ...], where: str) -> dict[str, object]:
    """A table that has none but these keys."""
    table = _table(value, where)
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}.{key}: unknown key; known here: {', '.join(known)}")
    return table


def _restart(value: object, where: str) -> RestartSettings:
    if isinstance(value, RestartSettings):
        return value
    table = _known_table(value, RestartSettings.__struct_fields__, where)
    read = {key: _number(each, f"{where}.{key}") for key, each in table.items()}
    usual = RestartSettings()
    return RestartSettings(
        first_delay=read.get("first_delay", usual.first_delay),
        max_delay=read.get("max_delay", usual.max_delay),
        attempts=_whole(read.get("attempts", usual.attempts), f"{where}.attempts"),
        stable_after=read.get("stable_after", usual.stable_after),
        again_after=read.get("again_after", usual.again_after),
    )


def _oauth(value: object, where: str) -> OAuthSettings:
    if isinstance(value, OAuthSettings):
        return value
    table = _known_table(value, OAuthSettings.__struct_fields__, where)
    read: dict[str, object] = {
        key: _whole(_number(each, f"{where}.{key}"), f"{where}.{key}")
        if key == "redirect_port"
        else _text(each, f"{where}.{key}")
        for key, each in table.items()
    }
    # each value was read as the type its field has, but for the words, which `check_settings` looks at
    return OAuthSettings(**read)  # type: ignore[arg-type]


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: expected a string, got {_kind(value)}")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where}: expected a number, got {_kind(value)}")
    return float(value)


def _whole(value: float, where: str) -> int:
    if value != int(value):
        raise ConfigError(f"{where}: expected an integer, got {value}")
    return int(value)


def _table(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a table, got {_kind(value)}")
    return cast("dict[str, object]", value)


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def _way(settings: McpServerSettings) -> str:
    return "command" if settings.command else "url"


def _foreign_fields(settings: McpServerSettings) -> list[str]:
    held = {
        "env": settings.env,
        "env_from": settings.env_from,
        "cwd": settings.cwd,
        "headers": settings.headers,
        "headers_from": settings.headers_from,
        "oauth": settings.oauth,
    }
    return [key for key in (_HTTP_FIELDS if settings.command else _CHILD_FIELDS) if held[key]]


def _check_child(settings: McpServerSettings, where: str) -> None:
    if not settings.command[0].strip():
        raise ConfigError(f"{where}.command: expected a program, got an empty string")
    texts = (*settings.command, *settings.env, *settings.env.values(), settings.cwd or "")
    if any("\0" in text for text in texts):
        raise ConfigError(f"{where}: a command or its environment holds a NUL character")
    if any("=" in name or not name for name in (*settings.env, *settings.env_from)):
        raise ConfigError(f"{where}.env: expected names of environment variables")


def _check_url(settings: McpServerSettings, where: str) -> None:
    parts = urlsplit(settings.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or _port(settings.url) == -1:
        raise ConfigError(f"{where}.url: expected an address that begins with http:// or https://")
    for name in (*settings.headers, *settings.headers_from):
        if not _HEADER.fullmatch(name):
            raise ConfigError(f"{where}.headers: expected the name of a header, got {name!r}")
    for name, value in settings.headers.items():
        check_header_value(name, value, where)
    if settings.oauth is not None:
        if any(
            name.lower() == "authorization" for name in (*settings.headers, *settings.headers_from)
        ):
            raise ConfigError(
                f"{where}.oauth: has no meaning beside a header `authorization`, which holds a token already"
            )
        _check_oauth(settings.oauth, f"{where}.oauth")


def _check_oauth(oauth: OAuthSettings, where: str) -> None:
    for key, kind in (
        ("grant", Grant),
        ("token_endpoint_auth_method", ClientAuthentication),
        ("signing_algorithm", SigningAlgorithm),
    ):
        value: str = getattr(oauth, key)
        if value not in get_args(kind):
            raise ConfigError(
                f"{where}.{key}: expected one of {', '.join(get_args(kind))}, got {value!r}"
            )
    if not 0 <= oauth.redirect_port < 65536:
        raise ConfigError(
            f"{where}.redirect_port: expected a port, or 0 for any, got {oauth.redirect_port}"
        )
    if oauth.scope and not _SCOPE.fullmatch(oauth.scope):
        raise ConfigError(f"{where}.scope: expected scopes with one space between them")
    if oauth.issuer and not _is_url(oauth.issuer, "http", "https"):
        raise ConfigError(f"{where}.issuer: expected an address that begins with https://")
    if oauth.client_metadata_url and not (
        _is_url(oauth.client_metadata_url, "https")
        and urlsplit(oauth.client_metadata_url).path.strip("/")
    ):
        raise ConfigError(f"{where}.client_metadata_url: expected an https:// address with a path")
    if oauth.grant == "client_credentials":
        _check_credentials(oauth, where)
    elif oauth.private_key_from:
        raise ConfigError(
            f'{where}.private_key_from: has no meaning without grant = "client_credentials"'
        )
    elif oauth.client_secret_from and not oauth.client_id:
        raise ConfigError(
            f"{where}.client_id: expected the client that the secret belongs to, it is missing"
        )


def _check_credentials(oauth: OAuthSettings, where: str) -> None:
    if not oauth.client_id:
        raise ConfigError(
            f"{where}.client_id: expected a string for client_credentials, it is missing"
        )
    if bool(oauth.client_secret_from) == bool(oauth.private_key_from):
        came = "both" if oauth.client_secret_from else "neither"
        raise ConfigError(
            f"{where}: expected `client_secret_from` or `private_key_from` for client_credentials, got {came}"
        )
    if not oauth.issuer:
        # else the MCP server would say who is sent the credentials
        raise ConfigError(
            f"{where}.issuer: expected the address of the authorization server, the only one that is sent the"
            " credentials; it is missing"
        )
    for key in ("client_metadata_url", "redirect_port"):
        if getattr(oauth, key):
            raise ConfigError(
                f"{where}.{key}: has no meaning with client_credentials: nobody is sent to a browser"
            )


def _is_url(text: str, *schemes: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in schemes and bool(parts.hostname) and _port(text) != -1


def check_header_value(name: str, value: str, where: str) -> None:
    """Raises:
    ConfigError: a header cannot have this value, which is not shown.
    """
    if not value.isascii() or any(character in value for character in "\r\n\0"):
        raise ConfigError(f"{where}: the value of the header {name!r} is not one line of ASCII")


def _check_times(settings: McpServerSettings, where: str) -> None:
    restart = settings.restart
    positive = {
        "start_timeout": settings.start_timeout,
        "call_timeout": settings.call_timeout,
        "restart.attempts": restart.attempts,
        "restart.again_after": restart.again_after,
    }
    others = {
        "restart.first_delay": restart.first_delay,
        "restart.max_delay": restart.max_delay,
        "restart.stable_after": restart.stable_after,
    }
    for name, value in positive.items():
        if not 0 < value < float("inf"):
            raise ConfigError(f"{where}.{name}: expected a number above 0, got {value}")
    for name, value in others.items():
        if not 0 <= value < float("inf"):
            raise ConfigError(f"{where}.{name}: expected a number from 0 on, got {value}")


def _port(url: str) -> int | None:
    """The port; None: not said; -1: no number."""
    try:
        return urlsplit(url).port
    except ValueError:
        return -1
