"""Adds a section to the text of a TOML file, or removes one, and leaves every other byte as it is. Pure.

Each result is parsed and compared with what was meant, so a file whose section is written in another way (dotted keys, an inline
table) is refused, never damaged.
"""

from typing import cast

from dragoman.config.lines import places_of
from dragoman.config.values import key_path, read_toml
from dragoman.errors import ConfigError


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
    while last < len(lines) and last > first + 1 and _is_comment(lines[last - 1]):
        last -= 1
    if first > 0 and not lines[first - 1].strip() and last == len(lines):
        first -= 1
    made = b"".join([*lines[:first], *lines[last:]])
    after = _parsed(made)
    left = {key: value for key, value in known.items() if key != name}
    if _table(after, table) != left or _without(after, table) != _without(before, table):
        raise _by_hand(path)
    return made


def _is_comment(line: bytes) -> bool:
    return line.lstrip().startswith(b"#")


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
