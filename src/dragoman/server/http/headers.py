"""A client's headers as text for upstreams. Each is decoded only when it is read; most never are."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from msgspec import structs

from dragoman.core.failures import status_of
from dragoman.model.outcome import ErrorInfo, Loss
from dragoman.server.http.connection import Headers
from dragoman.upstream.errors import NOT_FOLLOWED


class ClientHeaders(Mapping[str, str]):
    """Names in lower case. Of repeated headers the last wins."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        return self._raw[name.encode("latin-1")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        if not self._raw:
            return iter(())
        # No header name has a line end.
        return iter(b"\n".join(self._raw).decode("latin-1").split("\n"))

    def __len__(self) -> int:
        return len(self._raw)


LOSS_HEADER = b"x-dragoman-loss"

# Servers refuse header lines beyond 8 KB; the log has all losses.
MAX_LOSS_HEADER = 1024

# A key that is missing, wrong or not allowed. Claude Code asks seven times in half a minute unless it is asked not to.
_FINAL = (401, 403)


# Codex silently waits as long as `Retry-After` says, even an hour; a longer wait than this should be an error.
_LONGEST_CODEX_WAIT = 60


def error_headers(error: ErrorInfo, present: Headers = ()) -> Headers:
    """Headers that say when to ask again, or not to; those that are present already are left out.

    `retry-after`: the error's delay in whole seconds, rounded up. `x-should-retry: false`: the same request will fail again.
    """
    found: dict[bytes, bytes] = {}
    if error.retry_after is not None:
        found[b"retry-after"] = b"%d" % max(0, ceil(error.retry_after))
    if status_of(error) in _FINAL or error.code == NOT_FOLLOWED:
        found[b"x-should-retry"] = b"false"
    for name, _ in present:
        found.pop(name, None)
    return tuple(found.items())


def loss_header(losses: Sequence[Loss]) -> tuple[bytes, bytes]:
    """The header that lists the losses as `code;at=where;action, …`, printable and of bounded length."""
    text = ", ".join([f"{loss.code};at={loss.where or '-'};{loss.action}" for loss in losses])
    if not (text.isascii() and text.isprintable()):
        text = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return LOSS_HEADER, text[:MAX_LOSS_HEADER].encode("ascii")


def without_long_wait(error: ErrorInfo, limits: Headers) -> tuple[ErrorInfo, Headers]:
    """The error and its headers without a delay that is too long for Codex."""
    if error.retry_after is None or error.retry_after <= _LONGEST_CODEX_WAIT:
        return error, limits
    kept = tuple(pair for pair in limits if not pair[0].startswith(b"retry-after"))
    # Codex would read a delay from the words "try again in".
    message = f"{error.message} (to be tried again in {error.retry_after:.0f} s)"
    return structs.replace(error, message=message, retry_after=None, raw=None), kept
