"""The text of a TOML file: finds the lines that the problems of its settings are about, and adds or removes a section. Pure.

`tomllib` reports no positions, so this scans the file: headers of tables, and keys at the beginning of a line. The values are
skipped, not read: only where they end matters. A key inside a value of several lines, or one that is missing, has no line of
its own; its problem is near the line of what encloses it.

A section is added or removed with every other byte left as it is. The result is parsed and compared with what was meant, so a
file whose section is written in another way (dotted keys, an inline table) is refused, never damaged.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

from dragoman._json import loads
from dragoman.config.values import key_path, read_toml
from dragoman.errors import ConfigError, MalformedJson

Path = tuple[str | int, ...]

_BASIC = r'"(?:[^"\\\n]|\\.)*"'
_KEY = re.compile(rf"\s*({_BASIC}|'[^'\n]*'|[A-Za-z0-9_-]+)\s*")
_STEP = re.compile(rf"\.?({_BASIC}|[A-Za-z0-9_-]+)|\[(\d+)\]")
# What ends or begins something in a value: strings first, so that brackets and `#` inside of them are passed over.
_TOKEN = re.compile(
    rf'"""(?:[^\\]|\\.)*?"{{3,5}}|\'\'\'.*?\'{{3,5}}|{_BASIC}|\'[^\'\n]*\'|#[^\n]*|[\[\]{{}}\n]',
    re.DOTALL,
)


class Place(NamedTuple):
    """A line, counted from 1. `is_whole`: the key and all of its value are in this line."""

    line: int
    is_whole: bool


def located(problem: str, file: str, places: Mapping[Path, Place]) -> str:
    """The problem with the file and the line in front; only with the file if nothing of its path is in the file."""
    place = _place_of(problem, places)
    if place is None:
        return f"{file}: {problem}"
    where = f"{file}:{place.line}" if place.is_whole else f"{file}: near line {place.line}"
    return f"{where}: {problem}"


def line_of(problem: str, places: Mapping[Path, Place]) -> int:
    """The line of a problem; 0 if it has none."""
    place = _place_of(problem, places)
    return 0 if place is None else place.line


def _place_of(problem: str, places: Mapping[Path, Place]) -> Place | None:
    """Where a problem is. `is_whole`: exactly there, and not somewhere below."""
    path = _path_of(problem)
    for length in range(len(path), 0, -1):
        place = places.get(path[:length])
        if place is not None:
            return Place(place.line, length == len(path) or place.is_whole)
    return None


def places_of(data: bytes) -> dict[Path, Place]:
    """The places of all keys and tables of a file that is TOML."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    found: dict[Path, Place] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    at, line = 0, 1
    while at < len(text):
        end = _end_of_statement(text, at)
        statement = text[at:end]
        begins = statement.lstrip(" \t")
        if begins.startswith("["):
            is_array = begins.startswith("[[")
            keys, _ = _keys(begins, 2 if is_array else 1)
            table = _resolved(keys, counts, is_array=is_array)
            found.setdefault(table, Place(line, is_whole=False))
        elif begins.strip() and not begins.startswith("#"):
            keys, _ = _keys(begins, 0)
            is_whole = "\n" not in statement.rstrip("\n")
            for length in range(1, len(keys) + 1):
                path = (*table, *keys[:length])
                found.setdefault(path, Place(line, is_whole and length == len(keys)))
        line += statement.count("\n")
        at = end
    return found


def _end_of_statement(text: str, at: int) -> int:
    """The end of the line at which all brackets and strings that began since `at` are closed."""
    depth = 0
    while True:
        token = _TOKEN.search(text, at)
        if token is None:
            return len(text)
        at = token.end()
        match token.group():
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case "\n" if depth <= 0:
                return at
            case _:
                pass


def _keys(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """The keys of `a."b".c`, and where they end."""
    keys: list[str] = []
    while key := _KEY.match(text, at):
        keys.append(_unquoted(key[1]))
        at = key.end()
        if not text.startswith(".", at):
            break
        at += 1
    return tuple(keys), at


def _resolved(keys: tuple[str, ...], counts: dict[Path, int], *, is_array: bool) -> Path:
    """The path of a header: a table of an array has its number in it."""
    path: Path = ()
    for key in keys[:-1]:
        path = (*path, key)
        if path in counts:
            path = (*path, counts[path])
    path = (*path, *keys[-1:])
    if is_array:
        counts[path] = counts.get(path, -1) + 1
        path = (*path, counts[path])
    return path


def _path_of(problem: str) -> Path:
    """The path at the beginning of a problem, such as `routes[0].model` or `upstreams.a.models."gpt-*"`."""
    path: list[str | int] = []
    at = 0
    while step := _STEP.match(problem, at):
        path.append(int(step[2]) if step[2] else _unquoted(step[1]))
        at = step.end()
    return tuple(path) if problem.startswith(":", at) else ()


def _unquoted(key: str) -> str:
    if key.startswith("'"):
        return key[1:-1]
    if not key.startswith('"'):
        return key
    try:
        read = loads(key)
    except MalformedJson:  # an escape that only TOML has
        return key[1:-1]
    return read if isinstance(read, str) else key


def with_section(data: bytes, table: str, name: str, text: str) -> bytes:
    """The file with the section `[table.name]` at its end. `text`: the section, with its header and perhaps sections below it.

    Raises:
        ConfigError: there is such a section, or it cannot be added to this file.
    """
    path = key_path(table, name)
    before = read_toml(data, "the file")
    known = _table(before, table)
    if name in known:
        raise ConfigError(f"{path} is there already; choose another name, or remove it first")
    end = b"\r\n" if b"\r\n" in data else b"\n"
    own = text.encode().replace(b"\n", end)
    gap = b"" if not data else end if data.endswith(b"\n") else end + end
    made = data + gap + own
    after = _parsed(made)
    if {**known, name: _table(_table(after, table), name)} != _table(after, table) or (
        _without(after, table) != _without(before, table)
    ):
        raise _by_hand(path)
    return made


def without_section(data: bytes, table: str, name: str) -> bytes:
    """The file without the section `[table.name]`, and without the empty line before it if none would separate anything.

    Raises:
        ConfigError: there is no such section, or it is written in another way.
    """
    path = key_path(table, name)
    before = read_toml(data, "the file")
    known = _table(before, table)
    if name not in known:
        names = ", ".join(known) or "none"
        raise ConfigError(f"there is no {path}; there are: {names}")
    places = places_of(data)
    if (table, name) not in places:
        raise _by_hand(path)
    lines = data.splitlines(keepends=True)
    first = places[table, name].line - 1
    others = [place.line - 1 for found, place in places.items() if found[:2] != (table, name)]
    last = min([line for line in others if line > first], default=len(lines))
    # Comments directly before the next section belong to that one.
    while last < len(lines) and last > first + 1 and lines[last - 1].lstrip().startswith(b"#"):
        last -= 1
    if first > 0 and not lines[first - 1].strip() and last == len(lines):
        first -= 1
    made = b"".join([*lines[:first], *lines[last:]])
    after = _parsed(made)
    left = {key: value for key, value in known.items() if key != name}
    if _table(after, table) != left or _without(after, table) != _without(before, table):
        raise _by_hand(path)
    return made


def _parsed(data: bytes) -> dict[str, object]:
    try:
        return read_toml(data, "the file")
    except ConfigError:
        return {}


def _table(values: dict[str, object], name: str) -> dict[str, object]:
    found = values.get(name)
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def _without(values: dict[str, object], table: str) -> dict[str, object]:
    return {key: value for key, value in values.items() if key != table}


def _by_hand(path: str) -> ConfigError:
    return ConfigError(
        f"{path}: expected a section of its own, [{path}], that can be added or removed; edit the file by hand"
    )
