"""Plain values, as TOML gives them, into the settings structs; what does not fit is said with its path.

Driven by the structs' own annotations: a field added there is read here. All complaints are gathered, so that a file
is corrected in one go. No value is repeated in a complaint, it could be a secret; but for words that should be one of
a few. What the values mean together is `config_checks`' to judge.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Literal, TypeVar, Union, cast, get_args, get_origin

from msgspec import Struct, structs

__all__ = ("BAD", "key_path", "nearest", "read_struct", "suggestion", "words")

_S = TypeVar("_S", bound=Struct)

# Below this, difflib's nearest is a coincidence (`host` for `cost` is one letter; `model` for `mode` too).
_LIKENESS = 0.6
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class _Bad:
    """Stands for a value that was complained about."""


BAD = _Bad()

Complaints = list[str]
_Reader = Callable[[object, object, str, Complaints], object]


def read_struct(kind: type[_S], value: object, path: str, complaints: Complaints) -> _S | None:
    """A struct from a table; None if that is impossible, and then `complaints` says why."""
    read = _read(kind, value, path, complaints)
    return read if isinstance(read, kind) else None


def key_path(path: str, key: str) -> str:
    """`upstreams.local`, or `models."gpt-*"` as TOML would spell it."""
    name = key if key and set(key) <= _BARE else '"' + key.replace('"', '\\"') + '"'
    return f"{path}.{name}" if path else name


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant. `baseUrl` and `base-url` are `base_url`."""
    flat = {_flat(each): each for each in known}
    found = get_close_matches(_flat(name), flat, n=1, cutoff=_LIKENESS)
    return flat[found[0]] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing."""
    meant = nearest(name, known)
    return f"; did you mean `{meant}`?" if meant else ""


def words(known: Iterable[object]) -> str:
    return ", ".join(f'"{each}"' for each in known)


def _flat(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _read(kind: object, value: object, path: str, complaints: Complaints) -> object:
    """The value as `kind`, an annotation; BAD after a complaint."""
    origin = cast("object", get_origin(kind))
    if origin is UnionType or origin is Union:
        # TOML has no null: the settings' only unions are with None, and that is said by leaving the key out.
        kind = next(each for each in get_args(kind) if each is not NoneType)
        return _read(kind, value, path, complaints)
    struct = _as_struct(kind)
    if struct is not None:
        return _read_struct(struct, value, path, complaints)
    return _READERS[origin or kind](kind, value, path, complaints)


def _as_struct(kind: object) -> type[Struct] | None:
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


def _read_struct(
    kind: type[Struct], value: object, path: str, complaints: Complaints
) -> Struct | _Bad:
    table = _as_table(value, path, complaints)
    if table is None:
        return BAD
    fields = {info.name: info for info in structs.fields(kind)}
    before = len(complaints)
    for key in table:
        if key not in fields:
            complaints.append(_unknown_key(kind, key, path))
    for name, info in fields.items():
        if info.required and name not in table:
            complaints.append(
                f"{key_path(path, name)}: expected {_meaning(info.type)}, it is missing"
            )
    read = {
        key: _read(fields[key].type, each, key_path(path, key), complaints)
        for key, each in table.items()
        if key in fields
    }
    return BAD if len(complaints) > before else kind(**read)


def _unknown_key(kind: type[Struct], key: str, path: str) -> str:
    known = {info.name: info.type for info in structs.fields(kind)}
    inner = [
        name
        for name, each in known.items()
        if (struct := _as_struct(each)) is not None and key in struct.__struct_fields__
    ]
    meant = f"; did you mean `{inner[0]}.{key}`?" if inner else suggestion(key, known)
    hint = meant or f"; known here: {', '.join(known)}"
    return f"{key_path(path, key)}: unknown key{hint}"


def _read_literal(kind: object, value: object, path: str, complaints: Complaints) -> object:
    allowed = get_args(kind)
    if isinstance(value, str) and value in allowed:
        return value
    hint = suggestion(value, allowed) if isinstance(value, str) else ""
    got = f'"{value}"' if isinstance(value, str) else _described(value)
    complaints.append(f"{path}: expected one of {words(allowed)}, got {got}{hint}")
    return BAD


def _read_scalar(kind: object, value: object, path: str, complaints: Complaints) -> object:
    given = cast("object", type(value))  # exactly: Python's booleans are integers too
    if given is kind:
        return value
    if kind is float and isinstance(value, int) and given is int:
        return float(value)
    complaints.append(f"{path}: expected {_meaning(kind)}, got {_described(value)}")
    return BAD


def _read_list(kind: object, value: object, path: str, complaints: Complaints) -> object:
    if not isinstance(value, list):
        complaints.append(f"{path}: expected {_meaning(kind)}, got {_described(value)}")
        return BAD
    item = get_args(kind)[0]
    items = cast("list[object]", value)
    return tuple(
        _read(item, each, f"{path}[{index}]", complaints) for index, each in enumerate(items)
    )


def _read_table(kind: object, value: object, path: str, complaints: Complaints) -> object:
    table = _as_table(value, path, complaints)
    if table is None:
        return BAD
    item = get_args(kind)[1]
    return {key: _read(item, each, key_path(path, key), complaints) for key, each in table.items()}


def _as_table(value: object, path: str, complaints: Complaints) -> dict[str, object] | None:
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    complaints.append(f"{path}: expected a table, got {_described(value)}")
    return None


_READERS: Mapping[object, _Reader] = {
    Literal: _read_literal,
    str: _read_scalar,
    int: _read_scalar,
    float: _read_scalar,
    bool: _read_scalar,
    tuple: _read_list,
    dict: _read_table,
}

_MEANINGS: Mapping[object, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    tuple: "a list",
    list: "a list",
    dict: "a table",
}


def _meaning(kind: object) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return f"one of {words(get_args(kind))}"
    if origin is tuple:
        item = get_args(kind)[0]
        return f"a list, each {_meaning(item)}"
    return _MEANINGS.get(origin or kind, "a table")


def _described(value: object) -> str:
    """What came, without repeating what may be secret."""
    return _MEANINGS.get(type(value), "a date or time")
