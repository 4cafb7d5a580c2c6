"""Reads the environment: single keys, upstreams of the vendors, proxies, the folder of the user's files. Also reads store URLs.

A store is named by its URL:

    memory:                                nothing survives the process
    sqlite:                                a file in the user's state directory
    sqlite:///var/lib/dragoman/store.db    this file; a path directly after `sqlite:`, without slashes, is relative
    sqlite:…?synchronous=normal            faster where fsync is slow; a power failure may lose acknowledged writes
    postgresql://user@host/database        any URL that libpq accepts; `postgres://` means the same
"""

import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import NamedTuple, get_args
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct, structs

from dragoman.config.settings import (
    ANTHROPIC_HOST,
    OPENAI_HOST,
    PASS_ON,
    Synchronous,
    UpstreamSettings,
)
from dragoman.errors import ConfigError
from dragoman.obsidian.settings import PROXY_VARIABLES

UPSTREAM_KEY_VARIABLE = "DRAGOMAN_UPSTREAM_KEY"
DEFAULT_PORTS = {"http": 80, "https": 443}
_STORES = "expected memory:, sqlite:, sqlite:///path or postgresql://… as the store's url"


class Override(Struct, frozen=True):
    """A value for one key, and the variable or flag that sets it (`source`, for messages)."""

    source: str
    section: str
    key: str
    value: object


def _number(text: str) -> object:
    try:
        return int(text) if text.strip().isdecimal() else text
    except ValueError:  # Python refuses to read more than 4,300 digits
        return text


def _items(text: str) -> object:
    return [item.strip() for item in text.split(",") if item.strip()]


_VARIABLES: Mapping[str, tuple[str, str, Callable[[str], object]]] = {
    "DRAGOMAN_HOST": ("server", "host", str),
    "DRAGOMAN_PORT": ("server", "port", _number),
    "DRAGOMAN_WORKERS": ("server", "workers", _number),
    "DRAGOMAN_API_KEYS": ("server", "api_keys", _items),
    "DRAGOMAN_CORS_ORIGINS": ("server", "cors_origins", _items),
    "DRAGOMAN_ALLOWED_HOSTS": ("server", "allowed_hosts", _items),
    "DRAGOMAN_LOG_FORMAT": ("log", "format", str),
    "DRAGOMAN_LOG_LEVEL": ("log", "level", str),
    "DRAGOMAN_OTEL_ENDPOINT": ("otel", "endpoint", str),
    "DRAGOMAN_STORE_URL": ("store", "url", str),
    "DRAGOMAN_STORE_POLICY": ("store", "policy", str),
    "DRAGOMAN_STORE_TTL": ("store", "ttl", _number),
    "DRAGOMAN_STORE_LEASE": ("store", "lease", _number),
    **{name: ("chat", key, read) for name, (key, read) in PROXY_VARIABLES.items()},
}


def overrides_from(environ: Mapping[str, str]) -> list[Override]:
    """The keys that variables set. An empty variable counts as unset: compose files and shells leave empty ones."""
    return [
        Override(variable, section, key, read(environ[variable]))
        for variable, (section, key, read) in _VARIABLES.items()
        if environ.get(variable)
    ]


def upstreams_from(environ: Mapping[str, str]) -> dict[str, UpstreamSettings]:
    """An upstream for each vendor whose key is in the environment."""
    upstreams: dict[str, UpstreamSettings] = {}
    if environ.get("OPENAI_API_KEY"):
        upstreams["openai"] = UpstreamSettings(
            kind="responses",
            also=("chat",),
            base_url=environ.get("OPENAI_BASE_URL") or f"https://{OPENAI_HOST}/v1",
            api_key_env="OPENAI_API_KEY",
            keeps_responses=True,
        )
    if environ.get("ANTHROPIC_API_KEY"):
        upstreams["anthropic"] = UpstreamSettings(
            kind="messages",
            base_url=environ.get("ANTHROPIC_BASE_URL") or f"https://{ANTHROPIC_HOST}/v1",
            api_key_env="ANTHROPIC_API_KEY",
        )
    return upstreams


def with_key(upstream: UpstreamSettings, environ: Mapping[str, str]) -> UpstreamSettings:
    """The upstream with a key from the environment. A vendor's key goes to that vendor's host only."""
    if environ.get(UPSTREAM_KEY_VARIABLE) == PASS_ON:
        return structs.replace(upstream, api_key=PASS_ON)
    if environ.get(UPSTREAM_KEY_VARIABLE):
        return structs.replace(upstream, api_key_env=UPSTREAM_KEY_VARIABLE)
    host = origin_of(upstream.base_url).host
    variable = {OPENAI_HOST: "OPENAI_API_KEY", ANTHROPIC_HOST: "ANTHROPIC_API_KEY"}.get(host)
    if variable and environ.get(variable):
        return structs.replace(upstream, api_key_env=variable)
    return upstream


def proxy_variable(scheme: str, environ: Mapping[str, str]) -> str | None:
    """The variable that names the proxy for addresses of a scheme; None if none is set. Lower case wins, as in curl."""
    names = ("https_proxy", "HTTPS_PROXY") if scheme == "https" else ("http_proxy", "HTTP_PROXY")
    return next((name for name in names if environ.get(name, "").strip()), None)


class Origin(NamedTuple):
    """The server of an address. `port`: None if the address has none."""

    scheme: str
    host: str
    port: int | None


def origin_of(url: str) -> Origin:
    """The server of an address; without a scheme and a host if it cannot be read, which `check.complete` reports."""
    try:
        parts = urlsplit(url)
        return Origin(parts.scheme, parts.hostname or "", parts.port)
    except ValueError:
        return Origin("", "", None)


def http_address(url: str) -> SplitResult | None:
    """The parts of the address of an HTTP server; None if it is none."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_usable else None


def proxy_from(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for an address: `HTTPS_PROXY`, `HTTP_PROXY`, except those in `NO_PROXY`.

    Addresses of this machine are never reached through a proxy, as in Go.

    Raises:
        ConfigError: the variable holds no address of an HTTP proxy. The message does not quote it: it may hold a password.
    """
    scheme, host, port = origin_of(url)
    variable = proxy_variable(scheme, environ)
    port = port or DEFAULT_PORTS.get(scheme)
    if variable is None or not host or _is_here(host):
        return None
    exceptions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if any(_is_excepted(host, port, each) for each in exceptions.replace(",", " ").split()):
        return None
    value = environ[variable].strip()
    proxy = value if "://" in value else f"http://{value}"
    found = http_address(proxy)
    if found is None or found.scheme != "http":
        raise ConfigError(
            f"{variable}: expected an HTTP proxy such as http://host:3128, got another scheme or no address; "
            'an upstream with `proxy = "none"` does not use it'
        )
    return f"http://{found.netloc}"


def certificate_problems(environ: Mapping[str, str]) -> list[str]:
    """Problems with `SSL_CERT_FILE` and `SSL_CERT_DIR`: OpenSSL ignores what it cannot read, and then trusts no server."""
    problems: list[str] = []
    file, folder = environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR")
    if file and not os.access(file, os.R_OK):
        problems.append(f"SSL_CERT_FILE: expected a readable file, got {file!r}")
    missing = [
        each for each in (folder or "").split(os.pathsep) if each and not Path(each).is_dir()
    ]
    return [*problems, *(f"SSL_CERT_DIR: expected a folder, got {each!r}" for each in missing)]


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_excepted(host: str, port: int | None, entry: str) -> bool:
    """Whether an entry of NO_PROXY means this host: `*`, a domain with all below it, an address, a network; perhaps with a port."""
    if entry == "*":
        return True
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal() and (":" not in name or name.endswith("]")):
        if int(number) != port:
            return False
        entry = name
    entry = entry.removeprefix("[").removesuffix("]").lower()
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        pass  # a name, here or there
    domain = entry.removeprefix("*").removeprefix(".").rstrip(".")
    host = host.rstrip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def store_engine(url: str) -> str:
    """The engine of a store URL. Messages quote only the scheme: the rest may hold a password.

    Raises:
        ConfigError: the URL names no engine, or has options that the engine does not know.
    """
    scheme, colon, rest = url.partition(":")
    match scheme.lower():
        case "memory" if colon and not rest:
            return "memory"
        case "sqlite" if colon:
            _sqlite_parts(url)
            return "sqlite"
        case "postgresql" | "postgres" if rest.startswith("//"):
            return "postgresql"
        case _:
            shown = scheme + ":…" if colon and scheme.isalnum() else "something else"
            raise ConfigError(f"{_STORES}, got {shown}")


def sqlite_place(url: str, environ: Mapping[str, str]) -> tuple[Path, Synchronous]:
    """The file of a `sqlite:` URL, and when SQLite waits for the disk.

    Raises:
        ConfigError: the URL has a host, a fragment or an unknown option, or the file is below a home folder and there is none.
    """
    path, synchronous = _sqlite_parts(url)
    try:
        return Path(path).expanduser() if path else default_store_path(environ), synchronous
    except RuntimeError as error:
        raise ConfigError(
            "expected a home folder for the store's file, there is none: set HOME or XDG_STATE_HOME, or name a file, "
            "such as sqlite:///var/lib/dragoman/store.db"
        ) from error


def _sqlite_parts(url: str) -> tuple[str, Synchronous]:
    """The path in a `sqlite:` URL, or an empty string, and when SQLite waits for the disk. Raises ConfigError."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{_STORES}, got sqlite:…") from error
    if parts.netloc or parts.fragment:
        raise ConfigError(
            "expected sqlite:///path (three slashes) as the store's url, got a host or a fragment"
        )
    synchronous: Synchronous = "full"
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name != "synchronous" or value not in get_args(Synchronous):
            raise ConfigError(
                f"expected synchronous=full or synchronous=normal after the ? of the store's url, got {name}=…"
            )
        synchronous = "normal" if value == "normal" else "full"
    return unquote(parts.path), synchronous


def default_store_path(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / "store.db"


def state_folder(environ: Mapping[str, str]) -> Path:
    """The folder for the user's state between two runs, by the XDG base directory specification."""
    # "If $XDG_STATE_HOME is either not set or empty" or relative, the default applies.
    home = Path(environ.get("XDG_STATE_HOME", ""))
    base = home if home.is_absolute() else Path("~/.local/state").expanduser()
    return base / "dragoman"


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read. It is replaced atomically: readers see the old or the new file, also after
    a power failure.

    Raises:
        OSError: no space, or no permission.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(path, data, lambda _fresh: None)


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of a file atomically, as `write_private` does; its mode, its owner and a link to it stay.

    Raises:
        OSError: no space, or no permission.
    """
    path = path.resolve(strict=True)
    found = path.stat()

    def like_before(fresh: str) -> None:
        if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
            # Before the mode, so that nobody else reads it.
            os.chown(fresh, found.st_uid, found.st_gid)
        os.chmod(fresh, stat.S_IMODE(found.st_mode))  # noqa: PTH101 - beside `chown`

    _write(path, data, like_before)


def _write(path: Path, data: bytes, prepare: Callable[[str], None]) -> None:
    # `mkstemp` follows no links and creates files with mode 0600.
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        prepare(fresh)
        Path(fresh).replace(path)
    finally:
        Path(fresh).unlink(missing_ok=True)
