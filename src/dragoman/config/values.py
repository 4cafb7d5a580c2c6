"""Reads plain values, as TOML and JSON give them, into the settings structs, and reports what does not fit by its path.

The structs' own annotations drive it: a field that is added there is read here. All problems are collected, so that an
operator corrects a file in one go. A problem never quotes a value, which could be a secret, except a word that should be
one of a few. `check.py` judges what the values mean together.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Literal, TypeVar, Union, cast, get_args, get_origin

from msgspec import Struct, structs

from dragoman.errors import ConfigError

_S = TypeVar("_S", bound=Struct)

# Below this, difflib's nearest is a coincidence (`host` for `cost` is one letter; `model` for `mode` too).
_LIKENESS = 0.6
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class _Bad:
    """Stands for a value that was reported."""


BAD = _Bad()

Problems = list[str]
_Reader = Callable[[object, object, str, Problems], object]


def read_toml(data: bytes, name: str) -> dict[str, object]:
    """The table in a TOML file; `name` is how messages call it.

    Raises:
        ConfigError: it is not TOML, or not UTF-8.
    """
    try:
        return tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}: expected UTF-8, got other bytes in line {line}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{name}: expected TOML: {error}") from error


def read_struct(kind: type[_S], value: object, path: str, problems: Problems) -> _S | None:
    """A struct from a table; None if that is impossible, and then `problems` says why."""
    read = _read(kind, value, path, problems)
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


def _read(kind: object, value: object, path: str, problems: Problems) -> object:
    """The value as `kind`, an annotation; BAD after a problem."""
    origin = cast("object", get_origin(kind))
    if origin is UnionType or origin is Union:
        # TOML has no null: the settings' only unions are with None, and that is said by leaving the key out.
        kind = next(each for each in get_args(kind) if each is not NoneType)
        return _read(kind, value, path, problems)
    struct = _as_struct(kind)
    if struct is not None:
        return _read_struct(struct, value, path, problems)
    return _READERS[origin or kind](kind, value, path, problems)


def _as_struct(kind: object) -> type[Struct] | None:
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


def _read_struct(kind: type[Struct], value: object, path: str, problems: Problems) -> Struct | _Bad:
    table = _as_table(value, path, problems)
    if table is None:
        return BAD
    fields = {info.name: info for info in structs.fields(kind)}
    before = len(problems)
    for key in table:
        if key not in fields:
            problems.append(_unknown_key(kind, key, path))
    for name, info in fields.items():
        if info.required and name not in table:
            problems.append(
                f"{key_path(path, name)}: expected {_meaning(info.type)}, it is missing"
            )
    read = {
        key: _read(fields[key].type, each, key_path(path, key), problems)
        for key, each in table.items()
        if key in fields
    }
    return BAD if len(problems) > before else kind(**read)


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


def _read_literal(kind: object, value: object, path: str, problems: Problems) -> object:
    allowed = get_args(kind)
    if isinstance(value, str) and value in allowed:
        return value
    hint = suggestion(value, allowed) if isinstance(value, str) else ""
    got = f'"{value}"' if isinstance(value, str) else described(value)
    problems.append(f"{path}: expected one of {words(allowed)}, got {got}{hint}")
    return BAD


def _read_scalar(kind: object, value: object, path: str, problems: Problems) -> object:
    given = cast("object", type(value))  # exactly: Python's booleans are integers too
    if given is kind:
        return value
    if kind is float and isinstance(value, int) and given is int:
        return float(value)
    problems.append(f"{path}: expected {_meaning(kind)}, got {described(value)}")
    return BAD


def _read_list(kind: object, value: object, path: str, problems: Problems) -> object:
    if not isinstance(value, list):
        problems.append(f"{path}: expected {_meaning(kind)}, got {described(value)}")
        return BAD
    item = get_args(kind)[0]
    items = cast("list[object]", value)
    return tuple(
        _read(item, each, f"{path}[{index}]", problems) for index, each in enumerate(items)
    )


def _read_table(kind: object, value: object, path: str, problems: Problems) -> object:
    table = _as_table(value, path, problems)
    if table is None:
        return BAD
    item = get_args(kind)[1]
    return {key: _read(item, each, key_path(path, key), problems) for key, each in table.items()}


def _as_table(value: object, path: str, problems: Problems) -> dict[str, object] | None:
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    problems.append(f"{path}: expected a table, got {described(value)}")
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
    NoneType: "nothing",
}


def _meaning(kind: object) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return f"one of {words(get_args(kind))}"
    if origin is tuple:
        item = get_args(kind)[0]
        return f"a list, each {_meaning(item)}"
    return _MEANINGS.get(origin or kind, "a table")


def described(value: object) -> str:
    """What came, without repeating what may be secret."""
    return _MEANINGS.get(type(value), "a date or time")
