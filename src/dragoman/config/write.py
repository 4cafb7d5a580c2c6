"""Settings as the TOML that would give them, for people to read. Mask them first (`secrets.masked`)."""

from collections.abc import Iterator, Mapping
from typing import cast

from msgspec import Struct, structs

from dragoman._json import dumps
from dragoman.config.settings import Settings
from dragoman.config.values import key_path

__all__ = ("to_toml",)


def to_toml(settings: Settings) -> str:
    """Every value that counts, defaults too; what is empty or not set is left out."""
    return "\n".join(_struct(settings, "")).lstrip("\n") + "\n"


def _struct(value: Struct, path: str) -> Iterator[str]:
    return _table({name: getattr(value, name) for name in value.__struct_fields__}, path)


def _table(fields: Mapping[str, object], path: str) -> Iterator[str]:
    """Plain values first: in TOML they belong to the table whose head came last."""
    lines = list(_lines(fields))
    if lines and path:
        yield f"\n[{path}]"
    yield from lines
    yield from _below(fields, path)


def _lines(fields: Mapping[str, object], unsaid: frozenset[str] = frozenset()) -> Iterator[str]:
    """`unsaid`: those that mean something else where they are left out, also when they are empty."""
    for name, each in fields.items():
        is_empty = each in ((), {}, "") and name not in unsaid
        if not _holds_structs(each) and each is not None and not is_empty:
            yield f"{key_path('', name)} = {_value(each)}"


def _below(fields: Mapping[str, object], path: str) -> Iterator[str]:
    """What has heads of its own."""
    for name, each in fields.items():
        below = key_path(path, name)
        if isinstance(each, Struct):
            yield from _struct(each, below)
        elif _holds_structs(each) and isinstance(each, dict):
            yield from _table(cast("dict[str, object]", each), below)
        elif _holds_structs(each) and isinstance(each, tuple):
            for item in cast("tuple[Struct, ...]", each):
                yield f"\n[[{below}]]"
                members = structs.asdict(item)
                yield from _lines(members, _nullable(item))
                yield from _below(members, below)


def _nullable(value: Struct) -> frozenset[str]:
    return frozenset(info.name for info in structs.fields(value) if info.default is None)


def _holds_structs(value: object) -> bool:
    """Whether it needs heads of its own: a struct, a list of them or a table of them."""
    match value:
        case Struct():
            return True
        case tuple():
            return any(isinstance(each, Struct) for each in cast("tuple[object, ...]", value))
        case dict():
            items = cast("dict[str, object]", value).values()
            return any(isinstance(each, Struct) for each in items)
        case _:
            return False


def _value(value: object) -> str:
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return (
            "{ " + ", ".join(f"{key_path('', key)} = {_value(each)}" for key, each in pairs) + " }"
        )
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(each) for each in cast("tuple[object, ...]", value)) + "]"
    # JSON's strings, numbers and booleans are TOML's.
    return dumps(value).decode()
