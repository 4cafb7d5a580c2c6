"""Request bodies: read from ASGI messages and inflated, never beyond a ceiling.

Knows nothing of JSON or dialects. The ceiling holds for what comes over the wire and, separately, for what it inflates
to (`inflating`), so that a bomb costs no more memory than an honest body of the largest size. While a large body is
inflated the event loop gets its turn between blocks.
"""

from asyncio import sleep
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache

from dragoman.errors import GatewayError
from dragoman.server.inflating import ENCODINGS, inflate, too_large
from dragoman.server.refusals import UnknownEncoding

__all__ = ("ClientGone", "Receive", "read_body")

Receive = Callable[[], Awaitable[MutableMapping[str, object]]]

# Inflating runs at some 300 MB/s: a pause per megabyte lets other streams have the loop every 3 ms.
PAUSE_EVERY = 1024 * 1024

# Nobody needs more than two; each one more multiplies what a bomb of a few bytes costs.
MAX_ENCODINGS = 4


class ClientGone(GatewayError):
    """The client closed the connection before its request was complete. Nobody is left to be answered."""

    kind = "cancelled"
    status = 499


async def read_body(
    receive: Receive,
    headers: Iterable[tuple[bytes, bytes]],
    limit: int,
    *,
    whole: bytes | None = None,
) -> bytes:
    """The whole body, inflated. `headers` are ASGI's: lower-case names. `whole`: it was received already.

    Raises:
        BodyTooLarge: it exceeds `limit` bytes, as announced, as sent or as inflated.
        UnknownEncoding: a content-encoding that is not read here.
        CorruptBody: the bytes are not what the content-encoding says.
        ClientGone: the client left in the middle of it.
    """
    encoding = b""
    for name, value in headers:
        if name == b"content-length":
            _check_length(value, limit)
        elif name == b"content-encoding":
            encoding = encoding + b"," + value if encoding else value
    steps = _steps(encoding) if encoding else ()
    body = whole
    if body is None:
        message = await receive()
        body = _piece(message)
        if message.get("more_body"):
            body = await _read_rest(receive, body, limit)
    if len(body) > limit:
        raise too_large(limit, f"{len(body)} bytes came")
    for step in steps:
        if body:
            body = await _inflate(step, body, limit)
    return body


def _check_length(value: bytes, limit: int) -> None:
    # The server refuses what is no number; longer than 19 digits is too large whatever they are.
    if value.isdigit() and (len(value) > 19 or int(value) > limit):
        announced = value[:20].decode("ascii")
        raise too_large(limit, f"content-length announces {announced}")


def _piece(message: Mapping[str, object]) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGone("the client closed the connection before its request was complete")
    body = message.get("body", b"")
    return body if isinstance(body, bytes) else b""


async def _read_rest(receive: Receive, first: bytes, limit: int) -> bytes:
    pieces = [first]
    size = len(first)
    is_more = True
    while is_more:
        message = await receive()
        piece = _piece(message)
        size += len(piece)
        is_more = bool(message.get("more_body"))
        if size > limit:
            raise too_large(limit, f"{'at least ' if is_more else ''}{size} bytes came")
        pieces.append(piece)
    return b"".join(pieces)


@lru_cache(maxsize=64)
def _steps(header: bytes) -> tuple[str, ...]:
    """The encodings of a body, in the order they must be undone."""
    names = [name.strip().lower() for name in header.decode("latin-1").split(",")]
    applied = [name for name in names if name not in ("", "identity")]
    for name in applied:
        if name not in ENCODINGS:
            raise _unknown(
                f"expected a content-encoding among {', '.join(ENCODINGS)}; got {name[:40]!r}"
            )
    if len(applied) > MAX_ENCODINGS:
        raise _unknown(f"expected at most {MAX_ENCODINGS} content-encodings; got {len(applied)}")
    return tuple(reversed(applied))


def _unknown(message: str) -> UnknownEncoding:
    return UnknownEncoding(message, param="content-encoding", code="unknown_encoding")


async def _inflate(encoding: str, data: bytes, limit: int) -> bytes:
    blocks: list[bytes] = []
    since_pause = 0
    for block in inflate(encoding, data, limit):
        blocks.append(block)
        since_pause += len(block)
        if since_pause >= PAUSE_EVERY:
            since_pause = 0
            await sleep(0)
    return b"".join(blocks)
