"""Packs the bytes that an engine stores, compressed where that helps, and unpacks them.

The first byte names the format of the rest, so that another format can be added. Zstandard, which comes with the
server's dependencies, compresses the 136 KB of a streamed answer with six hundred similar deltas to 4 KB in 30 µs; zlib,
the fallback, takes 172 µs. Zstandard's level 1 yields a tenth less, in half as much time again.

    00 plain    01 zlib    02 Zstandard    03 several of these, joined when they are read

Earlier versions also wrote 04 and 05 (`_OldDeltas`); they are still read, and no longer written.
"""

import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, msgpack

from dragoman._json import FAST_FAILURES
from dragoman.errors import StoreDamaged

T = TypeVar("T")

if TYPE_CHECKING:
    from zstandard import ZstdCompressor

_PLAIN, _ZLIB, _ZSTD, _SEVERAL = b"\x00", b"\x01", b"\x02", b"\x03"
_OLD_PIECES, _OLD_BOTH = b"\x04", b"\x05"
_ZLIB_LEVEL = 1
_ZSTD_LEVEL = -1
# Bytes of the length that stands before each piece of `_SEVERAL`.
_LENGTH = 4
PACK_BYTES = 32 * 1024
"""Bytes that are packed at once. Smaller pieces compress worse: each starts with an empty dictionary."""

# Values are unpacked in memory, whole; a header that announces more than this is damaged or hostile.
_MAX_SIZE = 1024 * 1024 * 1024
# A database page has 4 KiB: saving a few hundred bytes of a page is not worth the time.
_WORTH_COMPRESSING = 1024


def pack_bytes(data: bytes) -> bytes:
    """Pack bytes, compressed where that helps."""
    if len(data) >= _WORTH_COMPRESSING:
        compressor = _compressor()
        if compressor is not None:
            packed = _ZSTD + compressor.compress(data)
        else:
            packed = _ZLIB + zlib.compress(data, _ZLIB_LEVEL)
        if len(packed) <= len(data):
            return packed
    return _PLAIN + data


_local = threading.local()


def _compressor() -> "ZstdCompressor | None":
    """One for each thread: a compressor is not safe for several threads. None: Zstandard is not installed."""
    if not hasattr(_local, "compressor"):
        _local.compressor = None
        with suppress(ImportError):
            import zstandard  # noqa: PLC0415 - of the extra `server`

            _local.compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
    found: ZstdCompressor | None = _local.compressor
    return found


def unpack_bytes(data: bytes) -> bytes:
    """Raises StoreDamaged."""
    form, rest = data[:1], data[1:]
    if form == _PLAIN:
        return rest
    if form == _ZSTD:
        return _unpack_zstd(rest)
    if form == _SEVERAL:
        return b"".join(map(unpack_bytes, _each_of(rest)))
    if form == _OLD_PIECES:
        return _join_old(_read_old(rest, _read_old_pieces))
    if form == _OLD_BOTH:
        return _read_old(rest, _read_old_both).body
    if form != _ZLIB:
        raise StoreDamaged(f"expected a stored value to begin with 00 to 05, got {form.hex()!r}")
    try:
        return zlib.decompress(rest)
    except zlib.error as error:
        raise StoreDamaged(
            f"expected compressed bytes in the store, got others: {error}"
        ) from error


def unpack_stream(body: bytes, stream: bytes | None) -> bytes | None:
    """Return the stream of a response from its stored body and stream; None if it has none. Raises StoreDamaged."""
    if stream is not None:
        return unpack_bytes(stream)
    return _join_old(_read_old(body[1:], _read_old_both).pieces) if body[:1] == _OLD_BOTH else None


def _each_of(data: bytes) -> Iterator[bytes]:
    """Raises StoreDamaged."""
    place = 0
    while place < len(data):
        start = place + _LENGTH
        end = start + int.from_bytes(data[place:start])
        # A piece must not itself consist of pieces.
        if not start < end <= len(data) or data[start : start + 1] in (_SEVERAL, _OLD_BOTH):
            raise StoreDamaged("expected pieces of a stored value, their lengths do not fit")
        yield data[start:end]
        place = end


def _unpack_zstd(data: bytes) -> bytes:
    try:
        import zstandard  # noqa: PLC0415 - of the extra `server`
    except ImportError as error:
        message = "expected Zstandard for a stored value, it is not installed: dragoman[server]"
        raise StoreDamaged(message) from error
    try:
        if zstandard.frame_content_size(data) > _MAX_SIZE:
            raise StoreDamaged(f"expected a stored value of at most {_MAX_SIZE:,} bytes, got more")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise StoreDamaged(
            f"expected compressed bytes in the store, got others: {error}"
        ) from error


class StreamBuffer:
    """A stream that is being sent, packed as it comes, at little cost for each token.

    Bytes that were just written are still in the processor's cache when they are compressed, and a thousand open streams
    take kilobytes each instead of everything they sent.
    """

    __slots__ = ("_loose", "_packed", "_sizes", "loose", "size")

    def __init__(self, data: bytes = b"") -> None:
        self._packed: list[bytes] = []
        self._sizes: list[int] = []
        self._loose: list[bytes] = []
        self.loose = 0
        """Bytes that are not packed yet."""
        self.size = 0
        """Unpacked size of everything that was added."""
        if data:
            self.add_last(data)

    def add(self, data: bytes) -> bool:
        """Add bytes, and pack once there are `PACK_BYTES`. Returns whether it packed."""
        self.add_last(data)
        if self.loose < PACK_BYTES:
            return False
        self._packed.append(pack_bytes(b"".join(self._loose)))
        self._sizes.append(self.loose)
        self._loose = []
        self.loose = 0
        return True

    def add_last(self, data: bytes) -> None:
        """Add bytes without packing; `packed` packs them."""
        self._loose.append(data)
        self.loose += len(data)
        self.size += len(data)

    def read(self, start: int = 0) -> bytes:
        """Return everything that was added, from the byte at `start` on."""
        found: list[bytes] = []
        place = skipped = 0
        for data, size in zip(self._packed, self._sizes, strict=True):
            place += size
            if place > start:
                found.append(unpack_bytes(data))
            else:
                skipped = place
        return b"".join([*found, *self._loose])[start - skipped :]

    def packed(self) -> bytes:
        """Return the packed stream for the store. Changes nothing, so another thread may call it."""
        packed = self._packed
        if self._loose:
            packed = [*packed, pack_bytes(b"".join(self._loose))]
        if len(packed) == 1:
            return packed[0]
        pieces = [piece for each in packed for piece in (len(each).to_bytes(_LENGTH), each)]
        return b"".join([_SEVERAL, *pieces])


class _OldDeltas(Struct, frozen=True, gc=False, array_like=True):
    """Frames in the format of earlier versions: `around` stands before, between and after a text and a number that rises by one.

    `texts`: JSON strings, one on a line.
    """

    around: tuple[bytes, bytes, bytes]
    number: int
    texts: bytes

    @property
    def most(self) -> int:
        """An upper bound of the size of the frames."""
        count = self.texts.count(b"\n") + 1
        return len(self.texts) + count * (sum(map(len, self.around)) + 20)

    def frames(self) -> bytes:
        head, middle, tail = self.around
        texts = enumerate(self.texts.split(b"\n"), self.number)
        return b"".join([b"%b%b%b%d%b" % (head, text, middle, at, tail) for at, text in texts])


_OldPiece = bytes | _OldDeltas


class _OldBoth(Struct, frozen=True, array_like=True):
    """A stream, and the position of the body in its last piece."""

    start: int
    end: int
    pieces: list[_OldPiece]

    @property
    def body(self) -> bytes:
        last = self.pieces[-1] if self.pieces else b""
        return last[self.start : self.end] if isinstance(last, bytes) else b""


_read_old_pieces = msgpack.Decoder(list[_OldPiece]).decode
_read_old_both = msgpack.Decoder(_OldBoth).decode


def _read_old(data: bytes, read: Callable[[bytes], T]) -> T:
    # A value made of pieces is itself packed in one piece.
    if data[:1] in (_SEVERAL, _OLD_PIECES, _OLD_BOTH):
        raise StoreDamaged("expected pieces of a stored value, they are packed in another way")
    try:
        return read(unpack_bytes(data))
    except FAST_FAILURES as error:
        raise StoreDamaged(f"expected pieces of a stored value: {error}") from error


def _join_old(pieces: Sequence[_OldPiece]) -> bytes:
    """Raises StoreDamaged."""
    sizes = [piece.most if isinstance(piece, _OldDeltas) else len(piece) for piece in pieces]
    if sum(sizes) > _MAX_SIZE:
        raise StoreDamaged(f"expected a stored value of at most {_MAX_SIZE:,} bytes, got more")
    return b"".join(
        [piece.frames() if isinstance(piece, _OldDeltas) else piece for piece in pieces]
    )
