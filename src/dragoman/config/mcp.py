"""The settings of MCP servers: read from a table, a command line or an `mcpServers` file, and checked.

Nothing is started here. Commands, environment variables and headers may hold secrets, so no message shows them.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import cast
from urllib.parse import urlsplit

from dragoman._json import loads
from dragoman.config.environment import origin_of
from dragoman.config.settings import McpServerSettings, OAuthSettings
from dragoman.config.values import described, range_problems, read_struct
from dragoman.errors import ConfigError, MalformedJson

__all__ = (
    "check_names",
    "check_settings",
    "settings_from_file_text",
    "settings_from_short_form",
    "settings_from_values",
)

MAX_NAME = 64
"""OpenAI accepts function names of 64 characters; the name of a server is the prefix of its tools' names."""

# In dialects without namespaces, two underscores separate the names of server and tool: a server name that contains them,
# or ends in an underscore, could be confused with another server's name.
_NAME = re.compile(r"(?!.*__)[A-Za-z0-9_-]*[A-Za-z0-9-]")
_PREFIX = "mcp"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# RFC 6749: scope tokens, separated by single spaces.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
_SHORT_FORM = '"name=command arguments" or "name=http://host/path"'


def check_settings(settings: McpServerSettings, where: str = "mcp") -> McpServerSettings:
    """Return the settings if they can work.

    Raises:
        ConfigError: they cannot work; the message begins with `where`.
    """
    for problem in (*range_problems(settings, where), *server_problems(settings, where)):
        raise ConfigError(problem)
    return settings


def check_names(servers: Iterable[McpServerSettings], where: str = "mcp") -> None:
    """Check that all names differ.

    Raises:
        ConfigError: two servers have the same name.
    """
    for problem in name_problems(servers, where):
        raise ConfigError(problem)


def name_problems(servers: Iterable[McpServerSettings], where: str = "mcp") -> Iterator[str]:
    names = Counter(server.name for server in servers)
    for name, count in names.items():
        if count > 1:
            yield f"{where}: expected names that differ, got {name!r} twice"


def server_problems(settings: McpServerSettings, where: str) -> Iterator[str]:
    """The reasons why a server cannot work, except numbers out of range."""
    if len(settings.name) > MAX_NAME or not _NAME.fullmatch(settings.name):
        yield f"{where}.name: expected at most {MAX_NAME} letters, digits, `-` and single `_`, got {settings.name!r}"
    elif settings.name == _PREFIX:
        yield f"{where}.name: expected another than {_PREFIX!r}, which models write before the name of any server"
    if bool(settings.command) == bool(settings.url):
        came = "both" if settings.url else "neither"
        yield f"{where}: expected `command` or `url` for the server {settings.name!r}, got {came}"
    elif settings.command:
        for key in ("headers", "headers_from", "oauth"):
            if getattr(settings, key):
                yield f"{where}.{key}: has no meaning beside `command`"
        yield from _child_problems(settings, where)
    else:
        for key in ("env", "env_from", "cwd"):
            if getattr(settings, key):
                yield f"{where}.{key}: has no meaning beside `url`"
        yield from _url_problems(settings, where)


def settings_from_values(values: Mapping[str, object], where: str = "mcp") -> McpServerSettings:
    """Settings from plain values, as a configuration file or a JSON object holds them.

    Raises:
        ConfigError: a key is unknown, a value has the wrong type, or the settings cannot work.
    """
    problems: list[str] = []
    settings = read_struct(McpServerSettings, values, where, problems)
    if settings is None:
        raise ConfigError("\n".join(problems))
    return check_settings(settings, where)


def settings_from_short_form(text: str) -> McpServerSettings:
    """Settings from the argument of `--mcp`: `name=command arguments…`, or `name=http://…`.

    Raises:
        ConfigError: the text has another form.
    """
    name, equals, rest = text.partition("=")
    rest = rest.strip()
    if not equals or not rest:
        raise ConfigError(
            f"--mcp: expected {_SHORT_FORM}, got {'no address' if equals else 'no name'}"
        )
    if rest.startswith(("http://", "https://")):
        return check_settings(McpServerSettings(name=name.strip(), url=rest), "--mcp")
    try:
        command = tuple(shlex.split(rest))
    except ValueError as error:
        raise ConfigError(
            f"--mcp: the command of {name.strip()!r} cannot be read: {error}"
        ) from error
    return check_settings(McpServerSettings(name=name.strip(), command=command), "--mcp")


def settings_from_file_text(
    text: bytes | str, environ: Mapping[str, str], where: str = "mcpServers"
) -> tuple[McpServerSettings, ...]:
    """Settings from the JSON file format of other programs: `{"mcpServers": {"name": {"command": …}}}`.

    `${NAME}` and `${NAME:-default}` in its strings are replaced by variables of `environ`. Disabled servers are left
    out, and unknown keys are ignored: other programs use the file too.

    Raises:
        ConfigError: the text has another form, or names a variable that is not set.
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

    def variable(match: re.Match[str]) -> str:
        default: str | None = match.group(2)
        text = environ.get(match[1], default)
        if text is None:
            raise ConfigError(f"{where}: the environment variable {match[1]} is not set")
        return text

    return _VARIABLE.sub(variable, value)


def _table(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a table, got {described(value)}")
    return cast("dict[str, object]", value)


def _child_problems(settings: McpServerSettings, where: str) -> Iterator[str]:
    if not settings.command[0].strip():
        yield f"{where}.command: expected a program, got an empty string"
    texts = (*settings.command, *settings.env, *settings.env.values(), settings.cwd or "")
    if any("\0" in text for text in texts):
        yield f"{where}: a command or its environment holds a NUL character"
    if any("=" in name or not name for name in (*settings.env, *settings.env_from)):
        yield f"{where}.env: expected names of environment variables"


def _url_problems(settings: McpServerSettings, where: str) -> Iterator[str]:
    if not _is_url(settings.url, "http", "https"):
        yield f"{where}.url: expected an address that begins with http:// or https://"
    names = (*settings.headers, *settings.headers_from)
    for name in names:
        if not _HEADER.fullmatch(name):
            yield f"{where}.headers: expected the name of a header, got {name!r}"
    for name, value in settings.headers.items():
        try:
            check_header_value(name, value, where)
        except ConfigError as error:
            yield error.message
    if settings.oauth is not None:
        if any(name.lower() == "authorization" for name in names):
            yield f"{where}.oauth: has no meaning beside a header `authorization`, which holds a token already"
        yield from _oauth_problems(settings.oauth, f"{where}.oauth")


def _oauth_problems(oauth: OAuthSettings, where: str) -> Iterator[str]:
    if oauth.scope and not _SCOPE.fullmatch(oauth.scope):
        yield f"{where}.scope: expected scopes with one space between them"
    if oauth.issuer and not _is_url(oauth.issuer, "http", "https"):
        yield f"{where}.issuer: expected an address that begins with https://"
    url = oauth.client_metadata_url
    if url and not (_is_url(url, "https") and urlsplit(url).path.strip("/")):
        yield f"{where}.client_metadata_url: expected an https:// address with a path"
    if oauth.grant == "client_credentials":
        yield from _credential_problems(oauth, where)
    elif oauth.private_key_from:
        yield f'{where}.private_key_from: has no meaning without grant = "client_credentials"'
    elif oauth.client_secret_from and not oauth.client_id:
        yield f"{where}.client_id: expected the client that the secret belongs to, it is missing"


def _credential_problems(oauth: OAuthSettings, where: str) -> Iterator[str]:
    if not oauth.client_id:
        yield f"{where}.client_id: expected a string for client_credentials, it is missing"
    if bool(oauth.client_secret_from) == bool(oauth.private_key_from):
        came = "both" if oauth.client_secret_from else "neither"
        yield f"{where}: expected `client_secret_from` or `private_key_from` for client_credentials, got {came}"
    if not oauth.issuer:  # without it the MCP server would decide where the credentials are sent
        yield (
            f"{where}.issuer: expected the address of the authorization server, the only one that may receive"
            " the credentials; it is missing"
        )
    for key in ("client_metadata_url", "redirect_port"):
        if getattr(oauth, key):
            yield f"{where}.{key}: has no meaning with client_credentials, which uses no browser"


def _is_url(text: str, *schemes: str) -> bool:
    scheme, host, _ = origin_of(text)
    return scheme in schemes and bool(host)


def check_header_value(name: str, value: str, where: str) -> None:
    """Check the value of a header. The message does not show the value.

    Raises:
        ConfigError: the value is not one line of ASCII.
    """
    if not value.isascii() or any(character in value for character in "\r\n\0"):
        raise ConfigError(f"{where}: the value of the header {name!r} is not one line of ASCII")
