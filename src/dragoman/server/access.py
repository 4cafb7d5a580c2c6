"""Identifies the caller: compares the key in `Authorization: Bearer`, `x-api-key` or `api-key` with the operator's keys.

Pure. Of named keys only the digests are known. Keys are compared as SHA-256 digests, with every operator key, in constant time:
response times reveal neither the length of a key nor how much of it was right. A key that was accepted is looked up in a dictionary the next time. The lookup
reveals nothing either: Python hashes the received key with a secret of the process, and compares bytes only if the whole
hash matches. The configuration decides whether the gateway may listen on an address without keys.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from itertools import compress
from operator import itemgetter
from types import MappingProxyType

from msgspec import Struct, structs
from starlette.types import Send

from dragoman.config.settings import KeySettings
from dragoman.server.limits import Forbidden, Unauthorized
from dragoman.store.contract import owner_of

_CACHED_GUESTS = 256  # cached callers of a gateway without keys
_CACHED_CALLERS = 1024  # cached headers with a key; one key may come in several spellings
_LONGEST_CACHED = 512
# Hex digits: enough to distinguish callers in a debug log, far too few to find a key by.
_ID_LENGTH = 8


class Caller(Struct, frozen=True, gc=False):
    """A caller that may be served.

    key: for upstreams that pass the caller's key on. None: the caller sent only a key of this gateway.
    id: distinguishes callers in the log; the key cannot be derived from it.
    owner: the owner of the caller's stored responses; the same for all callers with the same key.
    named: the name of the caller's key, if it is a named one. may_inspect: the requests of everyone.
    """

    key: str | None = None
    id: str = ""
    owner: str = ""
    named: str = ""
    may_inspect: bool = False

    @property
    def is_operator(self) -> bool:
        """Whether the caller may read the usage of all keys: it has none, one without a name, or one that may inspect."""
        return not self.named or self.may_inspect


HeaderPairs = tuple[tuple[bytes, bytes], ...]

_ANYONE = Caller()
_NONE: Mapping[str, KeySettings] = MappingProxyType({})


class KeyRing:
    """The operator's keys. Without any, every caller is served, and a key that a caller sends is kept for the upstream."""

    __slots__ = ("_accepted", "_digests", "_guest")

    def __init__(
        self,
        api_keys: Iterable[str] = (),
        named: Mapping[str, KeySettings] = _NONE,
        inspecting: Collection[str] = (),
    ) -> None:
        """`named`: keys of which only the digests are known. `inspecting`: those of `api_keys` that may inspect."""
        self._digests = [
            (sha256(key.encode("utf-8")).digest(), Caller(may_inspect=key in inspecting))
            for key in api_keys
        ]
        for name, key in named.items():
            digest = bytes.fromhex(key.digest.removeprefix("sha256:"))
            self._digests.append((digest, Caller(named=name, may_inspect=key.inspect)))
        self._accepted: dict[HeaderPairs, Caller] = {}  # by the header, for requests with one key
        self._guest = lru_cache(_CACHED_GUESTS)(_caller)

    @property
    def is_open(self) -> bool:
        """Whether callers need no key."""
        return not self._digests

    def identify(self, headers: Sequence[tuple[bytes, bytes]]) -> Caller | None:
        """The caller, or None if it may not be served; `refusal` returns the error. `headers` have lower-case names (ASGI).

        A client may send one of the operator's keys in one header and its own provider key in another; the provider key then
        goes to an upstream that passes the caller's key on.
        """
        names = map(itemgetter(0), headers)
        sent = tuple(compress(headers, map(_KEY_HEADERS.__contains__, names)))
        accepted = self._accepted.get(sent)
        if accepted is not None:
            return accepted
        given = _given(sent)
        if not self._digests:
            if not given:
                return _ANYONE
            return (self._guest if len(given[0]) <= _LONGEST_CACHED else _caller)(given[0])
        known: Caller | None = None
        other: bytes | None = None
        for key in given:
            found = self._find(key)
            if found is not None:
                known = known or found
            else:
                other = other or key
        if known is None:
            return None
        # A key of this gateway must not reach an upstream.
        caller = structs.replace(known, key=None if other is None else _text(other))
        if len(sent) == 1 and len(sent[0][1]) <= _LONGEST_CACHED:
            if len(self._accepted) >= _CACHED_CALLERS:
                self._accepted.clear()
            self._accepted[sent] = caller
        return caller

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> Unauthorized:
        """The error for a caller that `identify` does not accept."""
        came = "the key in the request is not one of them" if _given(headers) else "none came"
        return Unauthorized(
            "expected one of this gateway's API keys, as `Authorization: Bearer <key>` or as `x-api-key: <key>`; "
            + came,
            code="invalid_api_key",
        )

    def _find(self, key: bytes) -> Caller | None:
        digest = sha256(key).digest()
        found: Caller | None = None
        for known, caller in self._digests:
            if compare_digest(known, digest):
                found = caller
        if found is None:
            return None
        own = _caller(key)
        return structs.replace(found, key=own.key, id=own.id, owner=own.owner)


_KEY_HEADERS = frozenset({b"authorization", b"x-api-key", b"api-key"})


def _given(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """The keys in the headers, the bearer token first: of two keys, it is the more deliberate one."""
    given: list[bytes] = []
    for name, value in headers:
        if name not in _KEY_HEADERS:
            continue
        if name != b"authorization":
            if token := value.strip():
                given.append(token)
            continue
        scheme, _, token = value.partition(b" ")
        if scheme.lower() == b"bearer" and (token := token.strip()):
            given.insert(0, token)
    return given


def _caller(key: bytes) -> Caller:
    text = _text(key)
    tag = sha256(b"dragoman caller\0" + key).hexdigest()[:_ID_LENGTH]
    return Caller(text, tag, owner_of(text))


def _text(key: bytes) -> str:
    # Header values are bytes; the upstream's headers are encoded as latin-1 again.
    return key.decode("latin-1")


HeaderList = list[tuple[bytes, bytes]]

# The headers that a page may read besides the body. CORS has no wildcard for prefixes, so the usual rate limits are listed.
EXPOSED = (
    *("x-request-id", "request-id", "x-dragoman-loss", "x-dragoman-estimate", "retry-after", "retry-after-ms"),
    *("x-dragoman-receipt", "x-should-retry", "openai-processing-ms", "x-proxy-output-mode"),
    *("x-codex-stop-after-tools-mode", "x-codex-tool-call-count", "x-codex-tool-call-truncated"),
    *(
        f"x-codex-{window}-{word}"
        for window in ("primary", "secondary")
        for word in ("used-percent", "window-minutes", "reset-at")
    ),
    *(f"x-ratelimit-{word}-{kind}" for word in ("limit", "remaining", "reset") for kind in ("requests", "tokens")),
    *(
        f"anthropic-ratelimit-{kind}-{word}"
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
        for word in ("limit", "remaining", "reset")
    ),
)  # fmt: skip
_EXPOSE = (b"access-control-expose-headers", ", ".join(EXPOSED).encode("ascii"))
_METHODS = (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS")
# Chrome caches a preflight's answer for at most two hours; a changed setting should take effect sooner.
_MAX_AGE = (b"access-control-max-age", b"600")
_USUAL_HEADERS = b"authorization, content-type, x-api-key, anthropic-version, anthropic-beta"

# Clients choose the origins: long ones are not cached.
_LONGEST_REMEMBERED = 256

_HEADER_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
_LOOPBACK = re.compile(rb"https?://(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?")
# Containers use the last two names for their host machine. Nobody can register a name in .localhost or .internal.
_OWN_HOST = re.compile(
    r"(?:[a-z0-9-]+\.)*localhost|127(?:\.\d{1,3}){3}|\[::1\]|host\.(?:docker|containers)\.internal"
)
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+?)\.?(?::\d{1,5})?")


class Cors:
    """The allowed origins of one configuration."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        patterns = tuple(origins)
        self.is_on = bool(patterns)
        self._is_any = "*" in patterns
        self._patterns = [_compile(pattern) for pattern in patterns]
        self._known = lru_cache(maxsize=256)(self._answer)

    def allows(self, origin: bytes) -> bool:
        """Whether pages of this origin may read answers."""
        return self._is_any or any(pattern.fullmatch(origin) for pattern in self._patterns)

    def headers(self, request_headers: Iterable[tuple[bytes, bytes]]) -> HeaderList:
        """The CORS headers of every answer, errors included: without them a page cannot read why a request failed."""
        if not self.is_on:
            return []
        origin = _value(request_headers, b"origin")
        is_short = origin is None or len(origin) <= _LONGEST_REMEMBERED
        return list(self._known(origin) if is_short else self._answer(origin))

    async def preflight(self, request_headers: HeaderList, send: Send) -> None:
        """Answer an OPTIONS request. A preflight carries no key, so none is required."""
        headers = self.preflight_headers(request_headers)
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def preflight_headers(self, request_headers: HeaderList) -> HeaderList:
        """The headers of the answer to a preflight. Without the allowing ones the browser sends no request."""
        headers = self.headers(request_headers)
        headers.append((b"vary", b"access-control-request-headers"))
        if not any(name == b"access-control-allow-origin" for name, _ in headers):
            return headers
        asked = _value(request_headers, b"access-control-request-headers")
        names = asked if asked and _HEADER_NAMES.fullmatch(asked) else _USUAL_HEADERS
        headers += [_METHODS, (b"access-control-allow-headers", names), _MAX_AGE]
        if _value(request_headers, b"access-control-request-private-network") == b"true":
            # A page of the public web asks for an address in the user's own network, such as our loopback address.
            headers.append((b"access-control-allow-private-network", b"true"))
        return headers

    def _answer(self, origin: bytes | None) -> tuple[tuple[bytes, bytes], ...]:
        if self._is_any:
            return ((b"access-control-allow-origin", b"*"), _EXPOSE)
        vary = (b"vary", b"origin")
        if origin is None or not self.allows(origin):
            return (vary,)
        return ((b"access-control-allow-origin", origin), _EXPOSE, vary)


class Hosts:
    """The host names that a gateway without keys accepts: those of this machine, and `server.allowed_hosts`."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        names = [name.lower() for name in allowed]
        self._is_any = "*" in names
        self._names = frozenset(names)
        self._endings = tuple(name[1:] for name in names if name.startswith("*."))
        self._known = lru_cache(maxsize=256)(self._is_allowed)

    def allows(self, host: bytes) -> bool:
        """Whether the gateway accepts this value of the Host header."""
        known = self._known if len(host) <= _LONGEST_REMEMBERED else self._is_allowed
        return self._is_any or known(host)

    def _is_allowed(self, host: bytes) -> bool:
        if not host:
            return True  # no browser sends such a value
        found = _HOST.fullmatch(host.decode("latin-1").lower())
        if found is None:
            return False
        name: str = found[1]
        return (
            _OWN_HOST.fullmatch(name) is not None
            or name in self._names
            or name.endswith(self._endings)
        )


def check_source(cors: Cors, hosts: Hosts, request_headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse requests from pages of other sites to a gateway that requires no key.

    A browser sends simple requests without a preflight, and only hides the answer from the page: any site could make
    the user's gateway spend the operator's keys. Pages of this machine and applications (`app://…`) are served. A site whose
    name resolves to 127.0.0.1 (DNS rebinding) could even read the answers, but its requests carry its own name as Host.

    Raises:
        Forbidden: the request comes from a web page whose origin is not configured, or is for another host.
    """
    host = origin = None
    for name, value in request_headers:
        if name == b"host":
            host = value
        elif name == b"origin":
            origin = value
    if host is not None and not hosts.allows(host):
        raise Forbidden(
            f"expected a request for localhost, 127.0.0.1 or a name in server.allowed_hosts; "
            f"got one for {host[:100].decode('ascii', 'replace')}",
            code="foreign_host",
        )
    if origin is None or cors.allows(origin) or _LOOPBACK.fullmatch(origin):
        return
    if origin == b"null" or origin.startswith((b"http://", b"https://")):
        raise Forbidden(
            f"expected a request of a program, or of a page whose origin is in server.cors_origins; "
            f"got one from {origin[:100].decode('ascii', 'replace')}",
            code="foreign_origin",
        )


def _value(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes | None:
    for name, value in headers:
        if name == wanted:
            return value
    return None


def _compile(pattern: str) -> re.Pattern[bytes]:
    pieces = pattern.rstrip("/").encode("utf-8").split(b"*")
    return re.compile(rb"[A-Za-z0-9.-]*".join(map(re.escape, pieces)))
