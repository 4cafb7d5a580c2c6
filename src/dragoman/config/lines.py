"""Finds the lines of a TOML file that the problems of its settings are about.

`tomllib` reports no positions, so this scans the file: headers of tables, and keys at the beginning of a line. The values are
skipped, not read: only where they end matters. A key inside a value of several lines, or one that is missing, has no line of
its own; its problem is near the line of what encloses it.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from dragoman._json import loads
from dragoman.errors import MalformedJson

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
