"""Encodes records as the bytes that an engine stores, and decodes them: compact JSON, packed (`packing`).

A lone surrogate has no UTF-8 encoding and cannot be stored: it becomes U+FFFD, as in incoming requests. Opaque JSON
otherwise keeps its bytes.

The body contains all of the model's parts, so they are not stored a second time: `read_parts` decodes them from the body
when a conversation is continued.
"""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import TypeVar, Union, cast, get_args, get_origin

from msgspec import Struct, structs

from dragoman._json import (
    FAST_FAILURES,
    Raw,
    decode_untyped,
    dumps_document,
    loads,
    typed_decoder,
)
from dragoman.core.aliases import with_original_id
from dragoman.core.fold import fold
from dragoman.core.surrogates import replace_lone
from dragoman.core.tool_cache import remembered
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import CODECS
from dragoman.errors import StoreDamaged
from dragoman.model.parts import (
    Dialect,
    Part,
    Result,
    Text,
    part_size,
)
from dragoman.model.request import Request, Tool
from dragoman.store.packing import pack_bytes, unpack_bytes
from dragoman.store.records import Escrowed

T = TypeVar("T")

Reader = Callable[[Raw], T]

# Without the limit of `as_object`: what was stored may have more values than the request that it was made of.
_split_object = typed_decoder(dict[str, Raw])
_split_array = typed_decoder(list[Raw])
_NULL = b"null"


def reader(kind: type[T], *, remembers: object = None) -> Callable[[bytes], T]:
    """Return a function that decodes JSON into a value of `kind`, a Struct, or a tuple or union of them.

    msgspec decodes nearly everything, but reads a field of type `Raw | None` only if it is null. So msgspec tries each
    value first, being much faster; where it fails, the value is split one level and its members are read in the same way.

    `remembers`: a type inside `kind` whose values are long and often repeat; they are cached.

    The function raises:
        StoreDamaged: the JSON is not a value of `kind`.
    """
    known: dict[object, Reader[object]] = {}
    if remembers is not None:
        known[remembers] = remembered(_made(remembers, known))
    read = cast("Reader[T]", _reader(kind, known))

    def read_or_complain(data: bytes) -> T:
        try:
            return read(Raw(data))
        except (*FAST_FAILURES, TypeError, KeyError) as error:
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
            tagged = {
                str(member.__struct_config__.tag): _reader(member, known) for member in members
            }
            field = str(members[0].__struct_config__.tag_field)
            return _quick_or(quick, _read_tagged(field, tagged))
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
        return tagged[read_tag(bytes(_split_object(bytes(data))[field]))](data)

    return read


def _read_struct(kind: type[Struct], known: "dict[object, Reader[object]]") -> "Reader[object]":
    readers = {field.name: _reader(field.type, known) for field in structs.fields(kind)}

    def read(data: Raw) -> object:
        fields = _split_object(bytes(data))
        return kind(
            **{name: readers[name](value) for name, value in fields.items() if name in readers}
        )

    return read


class _OldAnswer(Struct, frozen=True):
    """The model's parts, as earlier versions stored them beside the body of a message."""

    parts: tuple[Part, ...] = ()


# Every request of a conversation brings the same tools.
_read_request = reader(Request, remembers=tuple[Tool, ...])
_read_old_answer = reader(_OldAnswer)
_read_escrowed = reader(Escrowed)
_read_names = reader(tuple[str, ...])


def pack(value: Request | Escrowed) -> bytes:
    return pack_bytes(json_of(value))


def pack_names(names: tuple[str, ...]) -> str:
    """Encode a few ids as one column of text."""
    return json_of(names).decode("utf-8") if names else ""


def unpack_names(text: str) -> tuple[str, ...]:
    """Raises StoreDamaged."""
    return _read_names(text.encode("utf-8")) if text else ()


def unpack_request(data: bytes) -> Request:
    """Raises StoreDamaged."""
    return _read_request(unpack_bytes(data))


def unpack_escrowed(data: bytes) -> Escrowed:
    """Raises StoreDamaged."""
    return _read_escrowed(unpack_bytes(data))


# Bytes of JSON that a turn or a part takes besides its text: many short parts also take long to encode.
_AROUND = 32


def weigh_request(request: Request) -> int:
    """Estimate the encoded size without encoding, to decide whether another thread should encode it."""
    weight = _AROUND * len(request.turns)
    for turn in request.turns:
        for part in turn.parts:
            weight += _AROUND + (len(part.text) if type(part) is Text else _weight(part))
    for tool in request.tools:
        if tool.schema is not None:
            weight += len(bytes(tool.schema))
    return weight


def _weight(part: Part) -> int:
    """Estimate the size of a part; a result may have many short pieces."""
    pieces = len(part.content) if isinstance(part, Result) else 0
    return part_size(part) + _AROUND * pieces


def json_of(value: object) -> bytes:
    """Encode as JSON that every reader accepts: the escape of a lone surrogate, which most refuse, is replaced."""
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


def read_parts(door: Dialect, body: bytes, *, has_failed: bool) -> tuple[Part, ...]:
    """Decode the model's parts from a body of this dialect, with the call ids that a request of the client has after decoding.

    Raises:
        StoreDamaged: the body is no answer, and the response has not failed.
    """
    codec = CODECS[door]
    outcome = codec.read_typed(body) or fold(codec.read_body(body, _NO_DECODE).events)
    if outcome.error is not None and not has_failed:
        raise StoreDamaged(f"expected the body of an answer in the store: {outcome.error.message}")
    choice = next((choice for choice in outcome.choices if choice.index == 0), None)
    if choice is None:
        return ()
    return tuple(map(with_original_id, choice.parts)) if codec.aliases_ids else choice.parts


def unpack_old_answer(data: bytes) -> tuple[Part, ...]:
    """Decode the model's parts as an earlier version stored them, beside the body. Raises StoreDamaged."""
    return _read_old_answer(unpack_bytes(data)).parts
