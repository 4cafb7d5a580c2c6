"""Values of the vocabulary read from JSON, by their types.

msgspec reads them by itself but for one thing: a field that holds opaque JSON or nothing (`Raw | None`) is one it can
only read as nothing. So each value is given to msgspec first, which mostly succeeds, being the quicker by far; where
it does not, the value is taken apart one level and its members are read in the same way.
"""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import TypeVar, Union, cast, get_args, get_origin

from msgspec import Struct, structs

from dragoman._json import FAST_FAILURES, Raw, as_object, typed_decoder
from dragoman.core.memo import remembered
from dragoman.errors import MalformedJson, StoreDamaged

__all__ = ("Reader", "reader")

T = TypeVar("T")
Reader = Callable[[Raw], T]

_split_array = typed_decoder(list[Raw])
_NULL = b"null"


def reader(kind: type[T], *, remembers: object = None) -> Callable[[bytes], T]:
    """A function that reads JSON into a value of `kind`, a Struct, or a tuple or union of them.

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
