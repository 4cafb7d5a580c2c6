"""Undoing gzip, deflate, br and zstd, block by block, never beyond a ceiling.

The input is whole in memory; the output is given out in blocks, and the block that passes the ceiling is an error
instead. Work is linear in what goes in and comes out: the decompressors copy the input they have not used at every
call, so they are fed small slices. brotli and zstandard are imported when the first body needs them.
"""

import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from importlib import import_module
from typing import Protocol, cast

from dragoman.server.refusals import BodyTooLarge, CorruptBody

__all__ = ("ENCODINGS", "inflate", "too_large")

# One step of inflating. zlib keeps to it exactly; brotli and zstd may exceed it, by a megabyte or two at most.
BLOCK = 256 * 1024

SLICE = 16 * 1024

# What one call of zstd gives out is bounded by its input only, and 4 bytes may say "128 KiB of the same byte".
ZSTD_SLICE = 64

# RFC 9659: no window above 8 MiB in a content-coding, so that a frame of ten bytes cannot claim 128 MiB.
ZSTD_WINDOW = 8 * 1024 * 1024

# gzip members and zstd frames may follow one another, and some writers flush by starting a new one. An empty one has
# ten to twenty bytes, so without a bound a body could ask for millions of decompressors.
MAX_MEMBERS = 256


class _Damaged(Exception):
    """The data is not what it should be. The decompressors' own exceptions are told in the same way."""


class _BrotliDecompressor(Protocol):
    def process(self, data: bytes, *, output_buffer_limit: int) -> bytes: ...
    def can_accept_more_data(self) -> bool: ...
    def is_finished(self) -> bool: ...


class _Brotli(Protocol):
    """The module `brotli`, which has no types of its own."""

    error: type[Exception]

    def Decompressor(self) -> _BrotliDecompressor: ...  # noqa: N802 -- its spelling


class _ZstdObject(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes) -> bytes: ...


class _ZstdDecompressor(Protocol):
    def decompressobj(self) -> _ZstdObject: ...


class _Zstd(Protocol):
    ZstdError: type[Exception]

    def ZstdDecompressor(self, *, max_window_size: int) -> _ZstdDecompressor: ...  # noqa: N802


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
    """The refusal of a body above the ceiling."""
    return BodyTooLarge(
        f"expected a request body of at most {limit} bytes (server.max_body_bytes); {came}",
        code="request_too_large",
    )


def _zlib_stream(data: bytes, start: int, wbits: int) -> Generator[bytes, None, int]:
    """One zlib stream; returns where it ends."""
    inflater = zlib.decompressobj(wbits)
    while not inflater.eof:
        piece = data[start : start + SLICE]
        if not piece:
            raise _Damaged("it ends too early")
        start += len(piece)
        while piece and not inflater.eof:
            yield inflater.decompress(piece, BLOCK)
            piece = inflater.unconsumed_tail
        # The last output of a slice may still wait inside although its input is used up.
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
    """RFC 9110 says zlib's form; some clients send the bare stream. The two-byte head tells which it is."""
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
    zstd = cast("_Zstd", import_module("zstandard"))
    decompressor = zstd.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    start = 0
    try:
        for _ in range(MAX_MEMBERS):
            start = yield from _zstd_frame(decompressor.decompressobj(), data, start)
            if start == len(data):
                return
    except zstd.ZstdError as error:
        raise _Damaged(str(error)) from error
    raise _Damaged(f"it has more than {MAX_MEMBERS} frames")


def _zstd_frame(inflater: _ZstdObject, data: bytes, start: int) -> Generator[bytes, None, int]:
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
"""What is read here, by the name in `content-encoding`."""
