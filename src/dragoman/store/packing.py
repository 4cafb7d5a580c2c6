"""Values as the bytes an engine keeps, and back: compact JSON, compressed where that helps.

The first byte says how the rest is to be read, so that another way can be added beside these. Zstandard, which comes with
the server's dependencies, takes 30 µs for the 136 KB of a streamed answer with six hundred deltas, whose frames all look
alike, and leaves 4 KB of them; zlib, where it is not installed, 172 µs. Where it is known how they were made, their texts
are 23 KB with all other frames: 9 µs, and 1.7 KB. Writing more to a database costs more. At Zstandard's level 1 a tenth
less is left, in half as much time again.

A lone surrogate has no UTF-8 and no place in a database: it becomes U+FFFD, as in requests that are read. Opaque JSON
keeps its bytes, but for that.
"""

import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import Struct, msgpack

from dragoman._json import FAST_FAILURES, Raw, decode_untyped, dumps_document, loads
from dragoman.core.journal import Deltas, Piece, join_pieces
from dragoman.core.surrogates import replace_lone
from dragoman.errors import StoreDamaged
from dragoman.model.parts import Call, Media, Part, Reasoning, Refusal, Result, Text
from dragoman.model.request import Request, Tool
from dragoman.store.reading import reader
from dragoman.store.records import Answer, Ending, Escrowed

__all__ = (
    "pack_both",
    "pack_bytes",
    "pack_ending",
    "pack_escrowed",
    "pack_names",
    "pack_pieces",
    "pack_request",
    "pack_several",
    "unpack_answer",
    "unpack_bytes",
    "unpack_escrowed",
    "unpack_names",
    "unpack_request",
    "unpack_stream",
    "weigh_ending",
    "weigh_request",
)

T = TypeVar("T")

if TYPE_CHECKING:
    from zstandard import ZstdCompressor

_PLAIN, _ZLIB, _ZSTD, _SEVERAL, _PIECES = b"\x00", b"\x01", b"\x02", b"\x03", b"\x04"
_BOTH = b"\x05"
_ZLIB_LEVEL = 1
_ZSTD_LEVEL = -1
# Before each of several: how long it is.
_LENGTH = 4
# Where a body is looked for: it ends so many bytes before its stream does, or sooner, and this much of it is enough to look
# for. The search is short, where comparing all of it would be long.
_BEHIND = 256
_BEGINNING = 64
# What is read back is held whole; a header that promises more is broken, or somebody's joke.
_MAX_SIZE = 1024 * 1024 * 1024
# A page of a database has 4 KiB: a few hundred bytes less of it cost more time than they save.
_WORTH_COMPRESSING = 1024

# Every request of a conversation brings the same tools.
_read_request = reader(Request, remembers=tuple[Tool, ...])
_read_answer = reader(Answer)
_read_escrowed = reader(Escrowed)
_read_names = reader(tuple[str, ...])


class _Both(Struct, frozen=True, array_like=True):
    """A stream, and where the body stands in its last piece."""

    start: int
    end: int
    pieces: list[Piece]

    @property
    def body(self) -> bytes:
        last = self.pieces[-1] if self.pieces else b""
        return last[self.start : self.end] if type(last) is bytes else b""


_write_pieces = msgpack.Encoder().encode
_read_pieces = msgpack.Decoder(list[Piece]).decode
_read_both = msgpack.Decoder(_Both).decode


def pack_request(request: Request) -> bytes:
    return _pack(request)


def pack_ending(ending: Ending) -> tuple[bytes, bytes, bytes | None]:
    """Its answer (empty: as its body tells), its body and its stream (None also if it is one value with the body)."""
    stream, body = ending.stream, ending.body
    answer = b"" if ending.answer is None else _pack(ending.answer)
    if stream is None or isinstance(stream, bytes):
        return answer, pack_bytes(body), None if stream is None else pack_bytes(stream)
    both = stream.packed_with(body)
    return (answer, pack_bytes(body), stream.packed()) if both is None else (answer, both, None)


def pack_escrowed(escrowed: Escrowed) -> bytes:
    return _pack(escrowed)


def pack_names(names: tuple[str, ...]) -> str:
    """A few ids as one column of text."""
    return _json_of(names).decode("utf-8") if names else ""


def unpack_names(text: str) -> tuple[str, ...]:
    """Raises StoreDamaged."""
    return _read_names(text.encode("utf-8")) if text else ()


def unpack_request(data: bytes) -> Request:
    """Raises StoreDamaged."""
    return _read_request(unpack_bytes(data))


def unpack_answer(data: bytes) -> Answer:
    """Raises StoreDamaged."""
    return _read_answer(unpack_bytes(data))


def unpack_escrowed(data: bytes) -> Escrowed:
    """Raises StoreDamaged."""
    return _read_escrowed(unpack_bytes(data))


def unpack_bytes(data: bytes) -> bytes:
    """Raises StoreDamaged."""
    way, rest = data[:1], data[1:]
    if way == _PLAIN:
        return rest
    if way == _ZSTD:
        return _unpack_zstd(rest)
    if way == _SEVERAL:
        return b"".join(map(unpack_bytes, _each_of(rest)))
    if way == _PIECES:
        return _joined(_read_packed(rest, _read_pieces))
    if way == _BOTH:
        return _read_packed(rest, _read_both).body
    if way != _ZLIB:
        raise StoreDamaged(f"expected a stored value to begin with 00 to 05, got {way.hex()!r}")
    try:
        return zlib.decompress(rest)
    except zlib.error as error:
        raise StoreDamaged(
            f"expected compressed bytes in the store, got others: {error}"
        ) from error


def unpack_stream(body: bytes, stream: bytes | None) -> bytes | None:
    """The stream of a response that is kept as these two; None if it has none. Raises StoreDamaged."""
    if stream is not None:
        return unpack_bytes(stream)
    return _joined(_read_packed(body[1:], _read_both).pieces) if body[:1] == _BOTH else None


def pack_pieces(pieces: Sequence[Piece]) -> bytes:
    """What was told piece by piece; read back, it is joined, and deltas that were made alike are made again."""
    if Deltas not in map(type, pieces):
        return pack_bytes(b"".join(cast("Sequence[bytes]", pieces)))
    return _PIECES + pack_bytes(_write_pieces(pieces))


def pack_both(pieces: list[Piece], body: bytes) -> bytes | None:
    """The same for a stream and the body that its last piece tells, as one value; None if it does not tell it."""
    last = pieces[-1] if pieces else b""
    if type(last) is not bytes or not body:
        return None
    start = last.find(body[:_BEGINNING], max(len(last) - len(body) - _BEHIND, 0))
    if start < 0 or not last.startswith(body, start):
        return None
    return _BOTH + pack_bytes(_write_pieces(_Both(start, start + len(body), pieces)))


def _read_packed(data: bytes, read: Callable[[bytes], T]) -> T:
    # What is made of pieces is packed as one.
    if data[:1] in (_SEVERAL, _PIECES, _BOTH):
        raise StoreDamaged("expected pieces of a stored value, they are packed otherwise")
    try:
        return read(unpack_bytes(data))
    except FAST_FAILURES as error:
        raise StoreDamaged(f"expected pieces of a stored value: {error}") from error


def _joined(pieces: Sequence[Piece]) -> bytes:
    """Raises StoreDamaged."""
    if sum(piece.most if type(piece) is Deltas else len(piece) for piece in pieces) > _MAX_SIZE:
        raise StoreDamaged(f"expected a stored value of at most {_MAX_SIZE:,} bytes, got more")
    return join_pieces(pieces)


def pack_several(packed: Sequence[bytes]) -> bytes:
    """What was packed in pieces as one value; read back, they are joined."""
    pieces = [piece for each in packed for piece in (len(each).to_bytes(_LENGTH), each)]
    return b"".join([_SEVERAL, *pieces])


def _each_of(data: bytes) -> Iterator[bytes]:
    """Raises StoreDamaged."""
    place = 0
    while place < len(data):
        start = place + _LENGTH
        end = start + int.from_bytes(data[place:start])
        # One of several is no several.
        if not start < end <= len(data) or data[start : start + 1] in (_SEVERAL, _BOTH):
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


# Bytes of JSON that a turn or a part takes beside its text: many short ones are much to write, too.
_AROUND = 32


def weigh_request(request: Request) -> int:
    """About how many bytes it is, without writing it: whether that is better done elsewhere."""
    weight = _AROUND * len(request.turns)
    for turn in request.turns:
        for part in turn.parts:
            weight += _AROUND + (len(part.text) if type(part) is Text else _weight(part))
    for tool in request.tools:
        if tool.schema is not None:
            weight += len(bytes(tool.schema))
    return weight


def weigh_ending(ending: Ending) -> int:
    """The same for the end of a response."""
    weight = len(ending.body)
    if ending.answer is not None:
        parts = ending.answer.parts
        weight += _AROUND * len(parts) + sum(map(_weight, parts))
    stream = ending.stream
    if stream is not None:
        weight += len(stream) if isinstance(stream, bytes) else stream.loose
    return weight


def _weight(part: Part) -> int:
    match part:
        case Text() | Refusal():
            return len(part.text)
        case Reasoning():
            return sum(map(len, (*part.summary, *part.content))) + sum(
                len(seal.data) for seal in part.seals
            )
        case Call():
            return len(part.input)
        case Media():
            return len(part.data or "")
        case Result():
            return sum(_AROUND + _weight(piece) for piece in part.content)
        case _:
            return len(bytes(part.raw))


def _pack(value: object) -> bytes:
    return pack_bytes(_json_of(value))


def pack_bytes(data: bytes) -> bytes:
    """Compressed where that helps."""
    if len(data) >= _WORTH_COMPRESSING:
        compressor = _local.compressor()
        if compressor is not None:
            packed = _ZSTD + compressor.compress(data)
        else:
            packed = _ZLIB + zlib.compress(data, _ZLIB_LEVEL)
        if len(packed) <= len(data):
            return packed
    return _PLAIN + data


class _Local(threading.local):
    """A compressor of each thread's own: they are not safe for several."""

    def __init__(self) -> None:
        self._is_known = False
        self._compressor: ZstdCompressor | None = None

    def compressor(self) -> "ZstdCompressor | None":
        if not self._is_known:
            self._is_known = True
            with suppress(ImportError):
                from zstandard import ZstdCompressor  # noqa: PLC0415 - of the extra `server`

                self._compressor = ZstdCompressor(level=_ZSTD_LEVEL)
        return self._compressor


_local = _Local()


def _json_of(value: object) -> bytes:
    """JSON that every reader takes. A lone surrogate is written as an escape, which most would not."""
    data = dumps_document(value)
    if b"\\ud" in data:
        try:
            decode_untyped(Raw(data))
        except FAST_FAILURES:
            return dumps_document(_mended(loads(data)))
    return data


def _mended(value: object) -> object:
    if isinstance(value, str):
        return replace_lone(value)
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return {replace_lone(key): _mended(item) for key, item in pairs}
    if isinstance(value, list):
        return [_mended(item) for item in cast("list[object]", value)]
    return value
