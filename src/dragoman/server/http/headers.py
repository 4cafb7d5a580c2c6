"""A client's headers as text for upstreams. Each is decoded only when it is read; most never are."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from dragoman.model.outcome import ErrorInfo, Loss
from dragoman.server.http.connection import Headers


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
        return iter(
            b"\n".join(self._raw).decode("latin-1").split("\n")
        )  # no header name has a line end

    def __len__(self) -> int:
        return len(self._raw)


LOSS_HEADER = b"x-dragoman-loss"

# Servers refuse header lines beyond 8 KB; the log has all losses.
MAX_LOSS_HEADER = 1024


def error_headers(error: ErrorInfo, present: Headers = ()) -> Headers:
    """A `retry-after` header, if the error has a delay and no such header is present: whole seconds, rounded up."""
    if error.retry_after is None or any(name == b"retry-after" for name, _ in present):
        return ()
    return ((b"retry-after", b"%d" % max(0, ceil(error.retry_after))),)


def loss_header(losses: Sequence[Loss]) -> tuple[bytes, bytes]:
    """The header that lists the losses as `code;at=where;action, …`, printable and of bounded length."""
    text = ", ".join([f"{loss.code};at={loss.where or '-'};{loss.action}" for loss in losses])
    if not (text.isascii() and text.isprintable()):
        text = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return LOSS_HEADER, text[:MAX_LOSS_HEADER].encode("ascii")
