"""Reads plain values from TOML or JSON into the settings structs, checks their ranges, and writes settings as TOML.

The annotations of the structs drive all three, so a new field needs no code here. All problems are collected, each with
its path, so that an operator corrects a file in one go. A problem never quotes a value, which could be a secret, except a
number, and a word where only certain words are allowed. `check.py` checks how the values fit together.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Literal, TypeVar, Union, cast, get_args, get_origin

from msgspec import Struct, structs

from dragoman._json import dumps
from dragoman.config.settings import KindHints, Range
from dragoman.errors import ConfigError

_S = TypeVar("_S", bound=Struct)

# Below this ratio, difflib's nearest match is a coincidence (`host` for `cost` is one letter; `model` for `mode` too).
_LIKENESS = 0.6
# Names that a person reads in one message.
_MOST_NAMED = 20
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class _Bad:
    """Marks a value whose problem was reported."""


BAD = _Bad()

Problems = list[str]
_Reader = Callable[[object, object, str, Problems], object]


def read_toml(data: bytes, name: str) -> dict[str, object]:
    """The table in a TOML file; `name` is the name of the file in messages.

    Raises:
        ConfigError: the data is not TOML, or not UTF-8.
    """
    try:
        return tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}: expected UTF-8, got other bytes in line {line}") from error
    except (ValueError, RecursionError) as error:  # also a number of more digits than Python reads
        raise ConfigError(f"{name}: expected TOML: {error}") from error


def read_struct(kind: type[_S], value: object, path: str, problems: Problems) -> _S | None:
    """Read a table into a struct; None if that is impossible, with the reasons in `problems`."""
    before = len(problems)
    read = read_usable(kind, value, path, problems)
    return read if len(problems) == before else None


def read_usable(kind: type[_S], value: object, path: str, problems: Problems) -> _S | None:
    """As `read_struct`, but without the values that have a problem, if the others make a struct: to look for more problems."""
    read = _read(kind, value, path, problems)
    return read if isinstance(read, kind) else None


def key_path(path: str, key: str) -> str:
    """The path of a key as TOML writes it: `upstreams.local`, or `models."gpt-*"`."""
    name = key if key and set(key) <= _BARE else _quoted(key)
    return f"{path}.{name}" if path else name


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, or None. `baseUrl` and `base-url` mean `base_url`."""
    flat = {_flat(each): each for each in known}
    found = get_close_matches(_flat(name), flat, n=1, cutoff=_LIKENESS)
    return flat[found[0]] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or an empty string."""
    meant = nearest(name, known)
    return f"; did you mean `{meant}`?" if meant else ""


def words(known: Iterable[object]) -> str:
    return ", ".join(f'"{each}"' for each in known)


def _flat(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _read(kind: object, value: object, path: str, problems: Problems) -> object:
    """The value read as the annotation `kind`; BAD after a problem."""
    origin = cast("object", get_origin(kind))
    if origin is Annotated:
        inner, note = get_args(kind)[:2]
        if isinstance(note, KindHints) and isinstance(value, str) and value.lower() in note.words:
            meant, hint = note.words[value.lower()]
            problems.append(f'{path}: expected {_meaning(inner)}, got "{value}"; {hint}')
            return meant
        return _read(inner, value, path, problems)
    if origin is UnionType or origin is Union:
        # The settings' only unions are with None, and TOML has no null: a file omits the key instead.
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
    usable = {key: each for key, each in read.items() if each is not BAD}
    is_whole = all(name in usable for name, info in fields.items() if info.required)
    return kind(**usable) if is_whole else BAD


def _unknown_key(kind: type[Struct], key: str, path: str) -> str:
    known = {info.name: info.type for info in structs.fields(kind)}
    inner = [
        name
        for name, each in known.items()
        if (struct := _as_struct(each)) is not None and key in struct.__struct_fields__
    ]
    meant = f"; did you mean `{inner[0]}.{key}`?" if inner else suggestion(key, known)
    hint = meant or (f"; known here: {', '.join(known)}" if len(known) <= _MOST_NAMED else "")
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
    given = cast("object", type(value))  # the exact type: Python's booleans are integers too
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
    read = tuple(
        _read(item, each, f"{path}[{index}]", problems) for index, each in enumerate(items)
    )
    # Behind an item that is left out, the numbers of the others would be wrong.
    return read[: read.index(BAD)] if BAD in read else read


def _read_table(kind: object, value: object, path: str, problems: Problems) -> object:
    table = _as_table(value, path, problems)
    if table is None:
        return BAD
    item = get_args(kind)[1]
    read = {key: _read(item, each, key_path(path, key), problems) for key, each in table.items()}
    return {key: each for key, each in read.items() if each is not BAD}


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
    if origin is Annotated:
        return _meaning(get_args(kind)[0])
    if origin is Literal:
        return f"one of {words(get_args(kind))}"
    if origin is tuple:
        item = get_args(kind)[0]
        return f"a list, each entry {_meaning(item)}"
    return _MEANINGS.get(origin or kind, "a table")


def described(value: object) -> str:
    """The type of a value for messages, without the value, which may be secret."""
    return _MEANINGS.get(type(value), "a date or time")


# --- ranges -----------------------------------------------------------------------------------------------------------


def range_problems(settings: Struct, path: str = "") -> Iterator[str]:
    """A problem for each number outside the range in its field's annotation, in these settings and nested ones."""
    for info in structs.fields(settings):
        where = key_path(path, info.name)
        value: object = getattr(settings, info.name)
        if isinstance(value, (int, float)):
            limits = _range_of(info.type)
            if limits is not None and not _is_within(limits, value):
                yield f"{where}: expected {_range_words(limits, value)}, got {value}"
        elif isinstance(value, Struct):
            yield from range_problems(value, where)
        elif isinstance(value, tuple):
            for index, item in enumerate(cast("tuple[object, ...]", value)):
                if isinstance(item, Struct):
                    yield from range_problems(item, f"{where}[{index}]")
        elif isinstance(value, dict):
            for key, item in cast("dict[str, object]", value).items():
                if isinstance(item, Struct):
                    yield from range_problems(item, key_path(where, key))


def _range_of(kind: object) -> Range | None:
    """The range in an annotation, or in a member of its union."""
    if get_origin(kind) is Annotated:
        return next(each for each in get_args(kind) if isinstance(each, Range))
    return next(filter(None, map(_range_of, get_args(kind))), None)


def _is_within(limits: Range, value: float) -> bool:
    is_enough = value >= 0 if limits.may_be_zero else value > 0
    return isfinite(value) and is_enough and (limits.most is None or value <= limits.most)


def _range_words(limits: Range, value: float) -> str:
    if limits.what:
        if limits.may_be_zero:
            return f"{limits.what} from 0 to {limits.most:.0f}"
        return f"more than 0 and at most {limits.most:.0f} {limits.what}"
    if limits.most is not None and value > limits.most:
        return f"at most {limits.most}"
    return "0 or more" if limits.may_be_zero else "more than 0"


# --- writing ----------------------------------------------------------------------------------------------------------


def to_toml(settings: Struct, *, is_all: bool = True) -> str:
    """Write settings as TOML. Mask the secrets first.

    is_all: with the defaults, but without empty and unset keys; otherwise only what differs from the defaults.
    """
    return "\n".join(_struct_lines(settings, "", is_all=is_all)).lstrip("\n") + "\n"


def _struct_lines(value: Struct, path: str, *, is_all: bool) -> Iterator[str]:
    if is_all:
        return _table_lines(_members(value), path, is_all=True)
    changed = _changed(value)
    return _table_lines(changed, path, frozenset(changed), is_all=False)


def _table_lines(
    fields: Mapping[str, object],
    path: str,
    even_if_empty: frozenset[str] = frozenset(),
    *,
    is_all: bool,
) -> Iterator[str]:
    """Plain values come first: in TOML they belong to the last table header before them."""
    lines = list(_plain_lines(fields, even_if_empty))
    if lines and path:
        yield f"\n[{path}]"
    yield from lines
    yield from _below(fields, path, is_all=is_all)


def _plain_lines(fields: Mapping[str, object], even_if_empty: frozenset[str]) -> Iterator[str]:
    """`even_if_empty`: keys to write even if empty, because omitting them means something else."""
    for name, each in fields.items():
        is_empty = each in ((), {}, "") and name not in even_if_empty
        if not _holds_structs(each) and each is not None and not is_empty:
            yield f"{key_path('', name)} = {toml_value(each)}"


def _below(fields: Mapping[str, object], path: str, *, is_all: bool) -> Iterator[str]:
    """The lines of the nested tables, which have their own headers."""
    for name, each in fields.items():
        below = key_path(path, name)
        if isinstance(each, Struct):
            yield from _struct_lines(each, below, is_all=is_all)
        elif _holds_structs(each) and isinstance(each, dict):
            yield from _table_lines(cast("dict[str, object]", each), below, is_all=is_all)
        elif _holds_structs(each) and isinstance(each, tuple):
            for item in cast("tuple[Struct, ...]", each):
                yield f"\n[[{below}]]"
                members = _members(item) if is_all else _changed(item)
                yield from _plain_lines(members, _nullable(item) if is_all else frozenset(members))
                yield from _below(members, below, is_all=is_all)


def _members(value: Struct) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _changed(value: Struct) -> dict[str, object]:
    """The members that differ from their defaults, and those without a default."""
    members = _members(value)
    return {
        info.name: members[info.name]
        for info in structs.fields(value)
        if info.required or members[info.name] != _default(info)
    }


def _default(info: structs.FieldInfo) -> object:
    factory: object = info.default_factory
    if callable(factory):
        return factory()
    return cast("object", info.default)


def _nullable(value: Struct) -> frozenset[str]:
    return frozenset(info.name for info in structs.fields(value) if info.default is None)


def _holds_structs(value: object) -> bool:
    """Whether a value needs its own table headers: a struct, a list of structs or a table of structs."""
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


def toml_value(value: object) -> str:
    """A value as it is written after the `=`."""
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return (
            "{ "
            + ", ".join(f"{key_path('', key)} = {toml_value(each)}" for key, each in pairs)
            + " }"
        )
    if isinstance(value, tuple):
        return "[" + ", ".join(toml_value(each) for each in cast("tuple[object, ...]", value)) + "]"
    return _quoted(value)


def _quoted(value: object) -> str:
    """A string, a number or a boolean in TOML: as in JSON, but that TOML allows no DEL in a string."""
    return dumps(value).decode().replace("\x7f", "\\u007f")
