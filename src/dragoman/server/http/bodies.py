"""Request bodies: read from ASGI messages and inflated, never beyond a ceiling.

Knows nothing of JSON or dialects. The ceiling applies to the received bytes and, separately, to the inflated bytes
(`inflate`), so that a decompression bomb costs no more memory than a valid body of the largest size. While a large body
is inflated, other tasks run between blocks.
"""

import zlib
from asyncio import sleep
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from dragoman.errors import GatewayError
from dragoman.server.limits import BodyTooLarge, CorruptBody, UnknownEncoding

if TYPE_CHECKING:
    from zstandard import ZstdDecompressionObj

Receive = Callable[[], Awaitable[MutableMapping[str, object]]]

# Inflating runs at some 300 MB/s: with a pause per megabyte other streams get the event loop every 3 ms.
PAUSE_EVERY = 1024 * 1024

# Real clients use at most two; each further encoding multiplies the cost of a small decompression bomb.
MAX_ENCODINGS = 4


class ClientGone(GatewayError):
    """The client closed the connection before its request was complete, so there is no client to answer."""

    kind = "cancelled"
    status = 499


async def read_body(
    receive: Receive,
    headers: Iterable[tuple[bytes, bytes]],
    limit: int,
    *,
    whole: bytes | None = None,
) -> bytes:
    """The whole body, inflated. `headers` have lower-case names (ASGI). `whole`: the body, if it was received already.

    Raises:
        BodyTooLarge: the body exceeds `limit` bytes, as announced, as sent or as inflated.
        UnknownEncoding: a content-encoding that the gateway cannot decode.
        CorruptBody: the bytes do not match the content-encoding.
        ClientGone: the client left before the body was complete.
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
    # The HTTP server refuses a value that is no number; more than 19 digits are too large in any case.
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
    """The encodings of a body, in the order in which they must be undone."""
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


# The output of one step. zlib keeps to it exactly; brotli and zstd may exceed it, by a megabyte or two at most.
BLOCK = 256 * 1024

SLICE = 16 * 1024

# Only its input limits what one call of zstd returns, and 4 bytes may mean "128 KiB of the same byte".
ZSTD_SLICE = 64

# RFC 9659: no window above 8 MiB in a content-coding, so that a frame of ten bytes cannot claim 128 MiB.
ZSTD_WINDOW = 8 * 1024 * 1024

# gzip members and zstd frames may follow one another, and some writers flush by starting a new one. An empty one has
# ten to twenty bytes, so without a bound a body could ask for millions of decompressors.
MAX_MEMBERS = 256


class _Damaged(Exception):
    """The data is damaged. The decompressors' own exceptions are reported in the same way."""


class _BrotliDecompressor(Protocol):
    def process(self, data: bytes, *, output_buffer_limit: int) -> bytes: ...
    def can_accept_more_data(self) -> bool: ...
    def is_finished(self) -> bool: ...


class _Brotli(Protocol):
    """The module `brotli`, which has no type annotations."""

    error: type[Exception]

    def Decompressor(self) -> _BrotliDecompressor: ...  # noqa: N802 -- its spelling


def inflate(encoding: str, data: bytes, limit: int) -> Iterator[bytes]:
    """Undo one of `ENCODINGS`, block by block. `data` is not empty.

    Raises:
        BodyTooLarge: the next block would pass `limit`.
        CorruptBody: the data is cut or damaged, or something follows its end.
    """
    size = 0
    try:
        for block in ENCODINGS[encoding](data):
            size += len(block)
            if size > limit:
                raise too_large(limit, f"{len(data)} bytes of {encoding} inflate to more")
            yield block
    except (_Damaged, zlib.error) as error:
        raise CorruptBody(
            f"expected a body of content-encoding {encoding}; it cannot be read: {error}",
            param="content-encoding",
            code="corrupt_body",
        ) from error


def too_large(limit: int, came: str) -> BodyTooLarge:
    """The error for a body above the ceiling."""
    return BodyTooLarge(
        f"expected a request body of at most {limit} bytes (server.max_body_bytes); {came}",
        code="request_too_large",
    )


def _zlib_stream(data: bytes, start: int, wbits: int) -> Generator[bytes, None, int]:
    """Inflate one zlib stream; returns where it ends."""
    inflater = zlib.decompressobj(wbits)
    while not inflater.eof:
        piece = data[start : start + SLICE]
        if not piece:
            raise _Damaged("it ends too early")
        start += len(piece)
        while piece and not inflater.eof:
            yield inflater.decompress(piece, BLOCK)
            piece = inflater.unconsumed_tail
        # The last output may still be inside the decompressor although its input is used up.
        while not inflater.eof and (block := inflater.decompress(b"", BLOCK)):
            yield block
    return start - len(inflater.unused_data)


def _gunzip(data: bytes) -> Iterator[bytes]:
    """Members follow one another (RFC 1952 §2.2); zeros may pad the last, as `gzip` itself allows."""
    end = len(data.rstrip(b"\0"))
    start = members = 0
    while start < end or not members:
        members += 1
        if members > MAX_MEMBERS:
            raise _Damaged(f"it has more than {MAX_MEMBERS} members")
        start = yield from _zlib_stream(data, start, 16 + zlib.MAX_WBITS)


def _undeflate(data: bytes) -> Iterator[bytes]:
    """Inflate zlib's format, which RFC 9110 demands, or some clients' raw stream. The two-byte header shows which it is."""
    is_zlib = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
    end = yield from _zlib_stream(data, 0, zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
    _expect_end(data, end)


def _unbrotli(data: bytes) -> Iterator[bytes]:
    brotli = cast("_Brotli", import_module("brotli"))
    inflater = brotli.Decompressor()
    try:
        for start in range(0, len(data), SLICE):
            yield inflater.process(data[start : start + SLICE], output_buffer_limit=BLOCK)
            while not inflater.can_accept_more_data():
                yield inflater.process(b"", output_buffer_limit=BLOCK)
    except brotli.error as error:
        raise _Damaged(str(error)) from error
    if not inflater.is_finished():
        raise _Damaged("it ends too early")


def _unzstd(data: bytes) -> Iterator[bytes]:
    import zstandard  # noqa: PLC0415 - few clients compress

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    start = 0
    try:
        for _ in range(MAX_MEMBERS):
            start = yield from _zstd_frame(decompressor.decompressobj(), data, start)
            if start == len(data):
                return
    except zstandard.ZstdError as error:
        raise _Damaged(str(error)) from error
    raise _Damaged(f"it has more than {MAX_MEMBERS} frames")


def _zstd_frame(
    inflater: "ZstdDecompressionObj", data: bytes, start: int
) -> Generator[bytes, None, int]:
    while not inflater.eof:
        piece = data[start : start + ZSTD_SLICE]
        if not piece:
            raise _Damaged("it ends too early")
        start += len(piece)
        yield inflater.decompress(piece)
    return start - len(inflater.unused_data)


def _expect_end(data: bytes, end: int) -> None:
    if end < len(data):
        raise _Damaged(f"{len(data) - end} bytes follow its end")


ENCODINGS: Mapping[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gunzip,
    "deflate": _undeflate,
    "br": _unbrotli,
    "zstd": _unzstd,
    "x-gzip": _gunzip,  # RFC 9110 §8.4.1.3: the same as gzip
}
"""The supported encodings, by their name in `content-encoding`."""
