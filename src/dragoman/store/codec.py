"""Values as the bytes an engine keeps, and back: compact JSON, compressed where that helps.

The first byte says how the rest is to be read, so that another form can be added. Zstandard, which comes with
the server's dependencies, takes 30 µs for the 136 KB of a streamed answer with six hundred deltas, whose frames all look
alike, and leaves 4 KB of them; zlib, where it is not installed, 172 µs. Where it is known how they were made, their texts
are 23 KB with all other frames: 9 µs, and 1.7 KB. Writing more to a database costs more. At Zstandard's level 1 a tenth
less is left, in half as much time again.

A lone surrogate has no UTF-8 and no place in a database: it becomes U+FFFD, as in requests that are read. Opaque JSON
keeps its bytes, but for that.

A body says all that its answer says: a store that keeps the body does not write the answer a second time. `read_answer`
reads it from the body when a conversation goes on.
"""

import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import NoneType, UnionType
from typing import TYPE_CHECKING, TypeVar, Union, cast, get_args, get_origin

from msgspec import Struct, msgpack, structs

from dragoman._json import (
    FAST_FAILURES,
    Raw,
    as_object,
    decode_untyped,
    dumps_document,
    loads,
    typed_decoder,
)
from dragoman.core.fold import fold
from dragoman.core.journal import Deltas, Piece, join_pieces, weigh
from dragoman.core.memo import remembered
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import CODECS
from dragoman.errors import MalformedJson, StoreDamaged
from dragoman.model.outcome import Outcome
from dragoman.model.parts import (
    Dialect,
    Part,
    Result,
    Text,
    part_size,
)
from dragoman.model.request import Request, Tool
from dragoman.store.records import Answer, Ending, Escrowed

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
PACK_BYTES = 32 * 1024
"""Packed at once. Less is compressed worse: each packing begins without knowing what stood before."""

# What is read back is held whole; a header that promises more is broken, or somebody's joke.
_MAX_SIZE = 1024 * 1024 * 1024
# A page of a database has 4 KiB: a few hundred bytes less of it cost more time than they save.
_WORTH_COMPRESSING = 1024

Reader = Callable[[Raw], T]

_split_array = typed_decoder(list[Raw])
_NULL = b"null"


def reader(kind: type[T], *, remembers: object = None) -> Callable[[bytes], T]:
    """A function that reads JSON into a value of `kind`, a Struct, or a tuple or union of them.

    msgspec does nearly all of it, but it cannot read a field that holds opaque JSON or nothing (`Raw | None`) other than
    as nothing. So msgspec tries each value first, being the quicker by far; where it fails, the value is split one level
    and its members are read in the same way.

    `remembers`: the type of values inside that are often the same, and long.

    The function raises:
        StoreDamaged: the JSON is none of `kind`.
    """
    known: dict[object, Reader[object]] = {}
    if remembers is not None:
        known[remembers] = remembered(_made(remembers, known))
    read = cast("Reader[T]", _reader(kind, known))

    def read_or_complain(data: bytes) -> T:
        try:
            return read(Raw(data))
        except (*FAST_FAILURES, MalformedJson, TypeError, KeyError) as error:
            raise StoreDamaged(
                f"expected a stored {getattr(kind, '__name__', kind)} of this version, got another: {error}"
            ) from error

    return read_or_complain


def _reader(kind: object, known: "dict[object, Reader[object]]") -> "Reader[object]":
    if kind is Raw:
        return _as_it_is
    if kind not in known:
        known[kind] = _made(kind, known)
    return known[kind]


def _made(kind: object, known: "dict[object, Reader[object]]") -> "Reader[object]":
    origin, arguments = get_origin(kind), get_args(kind)
    quick = cast("Reader[object]", typed_decoder(cast("type[object]", kind)))
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return _quick_or(quick, _read_array(_reader(arguments[0], known)))
    if origin in (Union, UnionType):
        members = [member for member in arguments if member is not NoneType]
        if len(members) == 1:
            return _read_optional(_reader(members[0], known))
        if all(isinstance(member, type) and issubclass(member, Struct) for member in members):
            tagged = {_tag(member): _reader(member, known) for member in members}
            return _quick_or(quick, _read_tagged(_tag_field(members[0]), tagged))
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _quick_or(quick, _read_struct(kind, known))
    return quick


def _quick_or(quick: "Reader[object]", slow: "Reader[object]") -> "Reader[object]":
    def read(data: Raw) -> object:
        try:
            return quick(data)
        except FAST_FAILURES:
            return slow(data)

    return read


def _as_it_is(data: Raw) -> object:
    return data


def _read_optional(read_value: "Reader[object]") -> "Reader[object]":
    def read(data: Raw) -> object:
        return None if bytes(data) == _NULL else read_value(data)

    return read


def _read_array(read_entry: "Reader[object]") -> "Reader[object]":
    def read(data: Raw) -> object:
        return tuple([read_entry(entry) for entry in _split_array(bytes(data))])

    return read


def _read_tagged(field: str, tagged: "dict[str, Reader[object]]") -> "Reader[object]":
    read_tag = typed_decoder(str)

    def read(data: Raw) -> object:
        return tagged[read_tag(bytes(as_object(bytes(data))[field]))](data)

    return read


def _read_struct(kind: type[Struct], known: "dict[object, Reader[object]]") -> "Reader[object]":
    readers = {field.name: _reader(field.type, known) for field in structs.fields(kind)}

    def read(data: Raw) -> object:
        fields = as_object(bytes(data))
        return kind(
            **{name: readers[name](value) for name, value in fields.items() if name in readers}
        )

    return read


def _tag_field(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag_field)


def _tag(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag)


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
    """Its answer (empty: to be read from the body), its body and its stream (None also if it is one value with the body)."""
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
    form, rest = data[:1], data[1:]
    if form == _PLAIN:
        return rest
    if form == _ZSTD:
        return _unpack_zstd(rest)
    if form == _SEVERAL:
        return b"".join(map(unpack_bytes, _each_of(rest)))
    if form == _PIECES:
        return _joined(_read_packed(rest, _read_pieces))
    if form == _BOTH:
        return _read_packed(rest, _read_both).body
    if form != _ZLIB:
        raise StoreDamaged(f"expected a stored value to begin with 00 to 05, got {form.hex()!r}")
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
    """What was sent piece by piece; read back, it is joined, and deltas that were made alike are made again."""
    if Deltas not in map(type, pieces):
        return pack_bytes(b"".join(cast("Sequence[bytes]", pieces)))
    return _PIECES + pack_bytes(_write_pieces(pieces))


def pack_both(pieces: list[Piece], body: bytes) -> bytes | None:
    """The same for a stream and the body that stands in its last piece, as one value; None if it does not stand there."""
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
    """A result may have many short pieces."""
    pieces = len(part.content) if isinstance(part, Result) else 0
    return part_size(part) + _AROUND * pieces


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


_NO_DECODE = DecodeContext()


def read_answer(door: Dialect, body: bytes) -> Answer:
    """The answer in a body of this dialect."""
    return answer_of(read_outcome(door, body))


def read_outcome(door: Dialect, body: bytes) -> Outcome:
    """The same with all that is not kept of it."""
    codec = CODECS[door]
    plain = codec.read_typed(body)
    return fold(codec.read_body(body, _NO_DECODE).events) if plain is None else plain


def answer_of(outcome: Outcome) -> Answer:
    """What is kept of an outcome."""
    choice = next((choice for choice in outcome.choices if choice.index == 0), None)
    return Answer(
        parts=() if choice is None else choice.parts,
        finish=None if choice is None else choice.finish,
        usage=outcome.usage,
        error=outcome.error,
    )


class StreamBuffer:
    """A stream that is being sent, packed as it comes. For each token little is done but adding to it.

    What was just written is still in the processor's cache when it is compressed, and a thousand open streams hold
    kilobytes each instead of all that was sent. Of deltas that were made alike only the texts are kept, which are not
    compressed before there are many.
    """

    __slots__ = ("_loose", "_packed", "_size", "_sizes", "_unpacked", "loose")

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._sizes: list[int] = []
        self._size = 0
        self._loose: list[Piece] = []
        self._unpacked = 0  # by what is not packed yet
        self.loose = 0
        """Bytes that are still to be packed."""

    @property
    def size(self) -> int:
        """Of all that was added, unpacked."""
        return self._size + self._unpacked

    def add(self, data: bytes, pieces: Sequence[Piece] | None = None) -> bool:
        """Whether enough has come together to be packed, and was. `pieces`: what the data is made of, if that is known."""
        self.add_last(data, pieces)
        if self.loose < PACK_BYTES:
            return False
        self._packed.append(pack_pieces(self._loose))
        self._sizes.append(self._unpacked)
        self._size += self._unpacked
        self._loose = []
        self._unpacked = self.loose = 0
        return True

    def add_last(self, data: bytes, pieces: Sequence[Piece] | None = None) -> None:
        """The last of it is packed with what was not, when it is asked for."""
        size = len(data)
        self._unpacked += size
        if pieces is None:
            self._loose.append(data)
            self.loose += size
        else:
            self._loose += pieces
            self.loose += weigh(pieces)

    def read(self, start: int = 0) -> bytes:
        """All that was added, from the byte at `start` on."""
        found: list[bytes] = []
        place = skipped = 0
        for data, size in zip(self._packed, self._sizes, strict=True):
            place += size
            if place > start:
                found.append(unpack_bytes(data))
            else:
                skipped = place
        return b"".join([*found, join_pieces(self._loose)])[start - skipped :]

    def packed(self) -> bytes:
        """All of it as a store keeps it. Changes nothing, as the next: they may be asked in another thread."""
        packed = [*self._packed, pack_pieces(self._loose)] if self._loose else self._packed
        return packed[0] if len(packed) == 1 else pack_several(packed)

    def packed_with(self, body: bytes) -> bytes | None:
        """The same together with a body that stands in its end; None if they are to be kept apart."""
        return None if self._packed else pack_both(self._loose, body)
