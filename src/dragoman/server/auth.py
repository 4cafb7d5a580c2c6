"""Who is calling: a key in `Authorization: Bearer`, `x-api-key` or `api-key`, against the operator's keys.

Pure. Keys are compared as SHA-256 digests, every one of them, in constant time: neither the length of a key nor how
much of it was right can be told from the time an answer takes. A key that was accepted is found in a dictionary the next
time. That tells nothing either: Python hashes what came with a secret of the process, and looks at the bytes only where
all of the hash is that of the key. Whether an address may be listened on without keys is decided where the gateway is
configured.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest

from msgspec import Struct

from dragoman.server.refusals import Unauthorized
from dragoman.store.base import owner_of

__all__ = ("Caller", "KeyRing")

_CACHED_GUESTS = 256  # callers of a gateway without keys, at a time
_LONGEST_CACHED = 512
_ID_LENGTH = (
    8  # hex digits: enough to tell callers apart in a debug log, far too few to find a key by
)


class Caller(Struct, frozen=True, gc=False):
    """One who may be served.

    key: what an upstream gets that passes the caller's key on. None: the caller gave none but a key of this gateway.
    id: tells callers apart where a log needs to; a key cannot be found from it.
    owner: whose state it finds in a store: everyone with the same key has the same.
    """

    key: str | None = None
    id: str = ""
    owner: str = ""


_ANYONE = Caller()


class KeyRing:
    """The operator's keys. Without any, everyone is served, and a key that is given is kept for the upstream."""

    __slots__ = ("_accepted", "_digests", "_guest")

    def __init__(self, api_keys: Iterable[str] = ()) -> None:
        keys = [key.encode("utf-8") for key in api_keys]
        self._digests = [(sha256(key).digest(), _caller(key)) for key in keys]
        self._accepted: dict[bytes, Caller] = {}  # the operator's keys that came alone
        self._guest = lru_cache(_CACHED_GUESTS)(_caller)

    @property
    def is_open(self) -> bool:
        """Whether no key is asked for."""
        return not self._digests

    def identify(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller | None:
        """The caller, or None if it may not be served; `refusal` says why. `headers` are ASGI's: lower-case names.

        A client may give one of the operator's keys in one header and its own provider key in another: then the second
        is what goes to an upstream that passes the caller's key on.
        """
        given = _given(headers)
        if not self._digests:
            if not given:
                return _ANYONE
            return (self._guest if len(given[0]) <= _LONGEST_CACHED else _caller)(given[0])
        if len(given) == 1 and (caller := self._accepted.get(given[0])) is not None:
            return caller
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
        # A key of this gateway is no upstream's business.
        caller = Caller(None if other is None else _text(other), known.id, known.owner)
        if len(given) == 1:
            self._accepted[given[0]] = caller
        return caller

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> Unauthorized:
        """What to tell a caller that `identify` does not know."""
        came = "the key that came is not one of them" if _given(headers) else "none came"
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
        return found


def _given(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """The keys that came, the bearer token first: with two, it is the more deliberate one."""
    given: list[bytes] = []
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer" and (token := token.strip()):
                given.insert(0, token)
        elif name in (b"x-api-key", b"api-key") and (token := value.strip()):
            given.append(token)
    return given


def _caller(key: bytes) -> Caller:
    text = _text(key)
    tag = sha256(b"dragoman caller\0" + key).hexdigest()[:_ID_LENGTH]
    return Caller(text, tag, owner_of(text))


def _text(key: bytes) -> str:
    # Header values are bytes; latin-1 is what the way to the upstream turns them back with.
    return key.decode("latin-1")
