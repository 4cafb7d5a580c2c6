"""Trust in a configuration file that was found in the current folder and that the user did not name.

A folder may come from anybody: cloned, unpacked, or written to by an agent. So a `dragoman.toml` that is only found there
may do none of the following until the user has trusted it once, and again after each change of the file:

    start a program                              [[mcp]] command, the kind `codex`, token_command
    send requests to an address of its choice    base_url, peers, proxy, ca_file, the url of an MCP server or of the store
    send an environment variable anywhere        api_key_env, env_from, headers_from, [mcp.oauth]
    let others in                                server.host, cors_origins, allowed_hosts and api_keys, [keys]
    write a file of its choice                   dump.path, the url of the store

Everything else (limits, routes, upstreams on this machine) needs no trust. A vendor's key may go to that vendor's own
address, and to the address that the user's environment names (`OPENAI_BASE_URL`). To name a file, by `--config`, by
`DRAGOMAN_CONFIG` or in a program, is to trust it.

The user's state directory records trust by the path and a digest of the file's bytes, the same bytes that the settings
are read from: `STATE/dragoman/trusted.json`.
"""

import os
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import cast

from msgspec import Struct

from dragoman._json import dumps_document, loads
from dragoman.config.check import is_loopback, servers_of
from dragoman.config.environment import Origin, origin_of, replace_file, state_folder, write_private
from dragoman.config.secrets import mask_command, mask_url
from dragoman.config.settings import (
    ANTHROPIC_HOST,
    CHATGPT_CODEX_URL,
    DIRECT,
    OPENAI_HOST,
    McpServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman.errors import ConfigError, MalformedJson

if sys.platform != "win32":
    import fcntl

# The vendors' own addresses, and the variable that holds a key for each.
_VENDORS = {
    OPENAI_HOST: "OPENAI_API_KEY",
    ANTHROPIC_HOST: "ANTHROPIC_API_KEY",
    "chatgpt.com": None,
}
# Variables of the user's environment that name an address for one of these keys.
_OWN_PLACES = {"OPENAI_BASE_URL": "OPENAI_API_KEY", "ANTHROPIC_BASE_URL": "ANTHROPIC_API_KEY"}
_OWN_STORES = ("", "memory:", "sqlite:")
_OTHERS_MAY_WRITE = 0o022
# Bytes. The record has one entry for each file that the user ever trusted.
_MAX_RECORD = 4 * 1024 * 1024


class Claim(Struct, frozen=True):
    """One thing that a file would do. `what` holds no secrets; `words` is the full text, for the user who has to decide."""

    where: str
    what: str
    words: str = ""

    @property
    def line(self) -> str:
        return f"{self.where}: {self.what}"

    @property
    def full_line(self) -> str:
        return f"{self.where}: {self.words or self.what}"


class FoundFile(Struct, frozen=True):
    """A configuration file that the user did not name, and what it would do. `data`: its bytes, read once."""

    path: Path
    data: bytes
    claims: tuple[Claim, ...] = ()

    @property
    def place(self) -> str:
        """The path, with links resolved in its folder but not in its name: a linked file acts in the folder of the link."""
        return str(self.path.parent.resolve() / self.path.name)

    @property
    def digest(self) -> str:
        return sha256(self.data).hexdigest()


class Trusted:
    """The files that this user trusts."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def has(self, file: FoundFile) -> bool:
        return self._read().get(file.place) == file.digest

    def has_changed(self, file: FoundFile) -> bool:
        """Whether the user trusted an earlier version of the file."""
        return self._read().get(file.place, file.digest) != file.digest

    def add(self, file: FoundFile) -> None:
        """Trust a file.

        Raises:
            ConfigError: the record cannot be written.
        """
        self._change(file.place, file.digest)

    def remove(self, file: FoundFile) -> None:
        """Withdraw trust from a file. Raises like `add`."""
        if file.place in self._read():
            self._change(file.place, None)

    def _path(self) -> Path:
        return state_folder(self._environ) / "trusted.json"

    def _read(self) -> dict[str, str]:
        """The recorded digests by path; none if the record is missing, not the user's, or writable by others."""
        try:
            descriptor = os.open(self._path(), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except (OSError, RuntimeError):  # RuntimeError: no home directory
            return {}
        with os.fdopen(descriptor, "rb") as stream:
            found = os.fstat(stream.fileno())
            if found.st_mode & _OTHERS_MAY_WRITE or found.st_uid != os.geteuid():
                return {}
            data = stream.read(_MAX_RECORD)
        try:
            files = cast("object", loads(data))
        except MalformedJson:
            return {}
        if not isinstance(files, dict):
            return {}
        pairs = cast("dict[object, object]", files).items()
        return {str(place): str(digest) for place, digest in pairs}

    def _change(self, place: str, digest: str | None) -> None:
        """Record the digest of a file, or remove it, while no other command changes the record."""
        try:
            path = self._path()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(path.with_name("trusted.lock"), os.O_RDWR | os.O_CREAT):
                files = {name: each for name, each in self._read().items() if name != place}
                if digest is not None:
                    files[place] = digest
                write_private(path, dumps_document(files))
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"expected to write the record of trusted files: {error}") from error


def refuse_untrusted(file: FoundFile, environ: Mapping[str, str]) -> None:
    """Refuse a file that is not trusted, for programs that cannot ask the user.

    Raises:
        ConfigError: the file is not trusted. The message says what the file would do, and how to trust it.
    """
    trusted = Trusted(environ)
    if file.claims and not trusted.has(file):
        raise refusal(file, has_changed=trusted.has_changed(file))


def refusal(file: FoundFile, *, has_changed: bool = False) -> ConfigError:
    since = "has changed since you trusted it" if has_changed else "was found in this folder"
    return ConfigError(
        "\n".join(
            (
                f"{file.path} {since}; it is not used before you trust it, because it would:",
                *(f"  {claim.line}" for claim in file.claims),
                f"read it, then say so once: dragoman trust; or name it: --config {file.path}",
            )
        )
    )


def claims_of(file: Settings, used: Settings, environ: Mapping[str, str]) -> tuple[Claim, ...]:
    """The claims of a file that need trust. `used`: the resulting settings; values that were overridden need no trust."""
    own = dict(_own_places(environ))
    return (
        *_server_claims(file, used),
        *(claim for path, each in servers_of(file) for claim in _upstream_claims(each, path, own)),
        *(
            claim
            for index, server in enumerate(file.mcp)
            for claim in _mcp_claims(server, f"mcp[{index}]")
        ),
    )


@contextmanager
def only_changer(path: Path) -> Generator[None]:
    """Wait until no other command changes a configuration in this file's folder, and let none begin before the end.

    The lock is on the folder, because changing a file puts another one in its place. Windows has no such lock.

    Raises:
        ConfigError: the folder cannot be read.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(_locked(path.resolve(strict=True).parent, os.O_RDONLY))
        except OSError as error:
            raise ConfigError(
                f"{path}: expected to change it: {error.strerror or error}"
            ) from error
        yield


@contextmanager
def _locked(path: Path, flags: int) -> Generator[None]:
    """Open a file or a folder and hold its lock, which one process has at a time. Raises OSError."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def change_file(path: Path, before: bytes, changed: bytes, environ: Mapping[str, str]) -> None:
    """Write a configuration that the user has asked to change. A file that was trusted stays trusted. See `only_changer`.

    Raises:
        ConfigError: somebody else has changed it meanwhile, or it cannot be written.
    """
    try:
        if path.read_bytes() != before:
            raise ConfigError(f"{path} has changed meanwhile; nothing was written, try again")
        trusted = Trusted(environ)
        was_trusted = trusted.has(FoundFile(path, before))
        replace_file(path, changed)
    except OSError as error:
        raise ConfigError(f"{path}: expected to write it: {error.strerror or error}") from error
    if was_trusted:
        trusted.add(FoundFile(path, changed))


def plain_http(settings: Settings) -> list[str]:
    """The places where a key leaves this machine unencrypted, each as a sentence."""
    found: list[str] = []
    for path, own in servers_of(settings):
        has_key = own.api_key or own.api_key_env or own.token_command or own.headers
        if has_key and _is_plain(own.base_url):
            found.append(f"{path}: its key goes over plain http to {origin_of(own.base_url).host}")
    for index, server in enumerate(settings.mcp):
        if (server.headers or server.headers_from) and _is_plain(server.url):
            found.append(
                f"mcp[{index}]: its headers go over plain http to {origin_of(server.url).host}"
            )
    return found


def _server_claims(file: Settings, used: Settings) -> Iterator[Claim]:
    host = file.server.host
    if not is_loopback(host) and used.server.host == host:
        yield Claim("server.host", f"listen on {host}, where other machines can reach it")
    origins = file.server.cors_origins
    if origins and used.server.cors_origins == origins:
        yield Claim("server.cors_origins", f"let web pages of {', '.join(origins)} use the gateway")
    names = file.server.allowed_hosts
    if names and used.server.allowed_hosts == names:
        yield Claim("server.allowed_hosts", f"accept requests for the hosts {', '.join(names)}")
    # With keys the gateway checks neither host nor origin of a request, because a web page has no key. The author of the file has.
    keys = file.server.api_keys
    if keys and used.server.api_keys == keys:
        yield Claim("server.api_keys", "let in everyone who knows the keys in this file")
    if file.keys:
        yield Claim("keys", f"let in everyone who has the keys {', '.join(file.keys)}")
    dump = file.dump.path
    if dump is not None and used.dump.path == dump:
        yield Claim("dump.path", f"write what upstreams send into {dump}")
    record = file.inspect.record
    if record is not None and used.inspect.record == record:
        yield Claim("inspect.record", f"write all requests and answers into {record}")
    collector = file.otel.endpoint
    if (
        collector is not None
        and used.otel.endpoint == collector
        and not is_loopback(origin_of(collector).host)
    ):
        what = f"send traces of all requests, without their contents, to {mask_url(collector)}"
        yield Claim("otel.endpoint", what)
    store = "" if file.store is None else file.store.url
    if store not in _OWN_STORES and used.store is not None and used.store.url == store:
        yield Claim("store.url", f"keep conversations in {mask_url(store, has_path=True)}")


def _upstream_claims(
    upstream: UpstreamSettings, path: str, own: Mapping[Origin, str]
) -> Iterator[Claim]:
    if upstream.kind == "rehearsal":
        return
    if upstream.recordings is not None:
        yield Claim(f"{path}.recordings", f"answer from the files in {upstream.recordings}")
    if upstream.kind == "codex":
        yield _start(f"{path}.command", upstream.command)
        if upstream.env:
            yield _with_variables(f"{path}.env", upstream.env)
        if upstream.codex_home is not None:
            yield Claim(f"{path}.codex_home", f"with the configuration in {upstream.codex_home}")
        return
    url = upstream.base_url or (CHATGPT_CODEX_URL if upstream.kind == "chatgpt-codex" else "")
    place = mask_url(url)
    yield from _address_claims(upstream, path, url, own)
    variable = upstream.api_key_env
    if variable is not None and _key_of(url, own) != variable:
        yield Claim(f"{path}.api_key_env", f"send the environment variable {variable} to {place}")
    if upstream.token_command:
        yield _start(f"{path}.token_command", upstream.token_command)
    if upstream.proxy is not None and upstream.proxy != DIRECT:
        yield Claim(f"{path}.proxy", f"send everything through {mask_url(upstream.proxy)}")
    if upstream.ca_file is not None:
        yield Claim(f"{path}.ca_file", f"trust servers that {upstream.ca_file} vouches for")
    if upstream.auth_file is not None:
        yield Claim(f"{path}.auth_file", f"send the login in {upstream.auth_file} to {place}")


def _address_claims(
    upstream: UpstreamSettings, path: str, url: str, own: Mapping[Origin, str]
) -> Iterator[Claim]:
    what = "requests and a key" if upstream.api_key or upstream.headers else "requests"
    is_known = not url or _is_known(url, own)
    if upstream.kind == "chatgpt-codex":
        # Requests may go to any server on this machine, but this login is meant for one server only.
        what = "requests and the ChatGPT login"
        is_known = origin_of(url) == origin_of(CHATGPT_CODEX_URL)
    if not is_known:
        how = "over plain http " if _is_plain(url) else ""
        place = mask_url(url)
        yield Claim(
            f"{path}.base_url", f"send {what} {how}to {place}", f"send {what} {how}to {url}"
        )


def _mcp_claims(server: McpServerSettings, path: str) -> Iterator[Claim]:
    if server.command:
        yield _start(f"{path}.command", server.command)
        if server.env:
            yield _with_variables(f"{path}.env", server.env)
        if server.cwd is not None:
            yield Claim(f"{path}.cwd", f"in the folder {server.cwd}")
    else:
        what = f"offer the tools of {mask_url(server.url)}, and send calls there"
        yield Claim(f"{path}.url", what, f"offer the tools of {server.url}, and send calls there")
    login = server.oauth
    secrets = () if login is None else (login.client_secret_from, login.private_key_from)
    for variable in (*server.env_from, *server.headers_from.values(), *filter(None, secrets)):
        yield Claim(path, f"give it the environment variable {variable}")


def _start(where: str, command: tuple[str, ...]) -> Claim:
    return Claim(where, f"start {' '.join(mask_command(command))}", f"start {list(command)}")


def _with_variables(where: str, variables: Mapping[str, str]) -> Claim:
    pairs = " ".join(f"{name}={value}" for name, value in variables.items())
    return Claim(where, f"with the variables {', '.join(variables)}", f"with {pairs}")


def _is_plain(url: str) -> bool:
    scheme, host, _ = origin_of(url)
    return scheme == "http" and not is_loopback(host)


def _is_known(url: str, own: Mapping[Origin, str]) -> bool:
    """Whether the address is on this machine, a vendor's, or one that the user's environment names."""
    origin = origin_of(url)
    scheme, host, _ = origin
    return is_loopback(host) or (scheme == "https" and host in _VENDORS) or origin in own


def _key_of(url: str, own: Mapping[Origin, str]) -> str | None:
    """The variable whose key is meant for this address."""
    origin = origin_of(url)
    scheme, host, _ = origin
    return own.get(origin) or (_VENDORS.get(host) if scheme == "https" else None)


def _own_places(environ: Mapping[str, str]) -> Iterator[tuple[Origin, str]]:
    for variable, key in _OWN_PLACES.items():
        origin = origin_of(environ.get(variable, ""))
        if origin.host:
            yield origin, key
