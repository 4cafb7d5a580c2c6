"""Checks the arguments of a call against the tool's JSON schema before the tool runs, and describes the problems to the model.

A schema may come from any MCP server and arguments from any model, and neither may block the engine: sizes and work have
limits. `json_schema` does the checking. If `jsonschema` is not installed, or cannot work with a schema, a small check of the
outermost members replaces it: required and unexpected members, their types and listed values.

The tool itself still decides what it accepts. This module knows no tool and runs none.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import cast

from dragoman._json import loads
from dragoman.core.schemas import satisfies, without_nulls
from dragoman.engine.results import shown
from dragoman.engine.tools import Declaration
from dragoman.errors import MalformedJson

# A whole file may be an argument, but no model writes this much in one answer.
MAX_ARGUMENTS = 8_388_608
# Property names are matched against patterns of the schema, so their length is bounded.
MAX_NAME = 512
# Schemas of real tools have up to a few tens of kilobytes; a longer one gets the small check.
MAX_SCHEMA = 262_144
# The first errors are enough to act on.
MAX_ERRORS = 8

_Schema = dict[str, object]
# The keywords of a member's schema that the small check uses.
_PLAIN = frozenset({"type", "enum", "const", "nullable"})


def check_arguments(declaration: Declaration, text: str) -> str | None:
    """The problem with the arguments, for the model to read; None if they fit the tool's schema.

    Only the arguments of functions can be checked; other kinds of input are checked by their tools. No text at all is an
    empty object. A null for a member that is optional and may not be null counts as left out.
    """
    if declaration.kind != "function":
        return None
    name = declaration.name
    if len(text) > MAX_ARGUMENTS:
        return (
            f"The arguments of {name} have {len(text):,} characters; expected at most "
            f"{MAX_ARGUMENTS:,}. Split the work into several calls."
        )
    try:
        value: object = loads(text) if text.strip() else {}
    except MalformedJson as error:
        return f"The arguments of {name} are not valid JSON: {error.message}. Send one JSON object."
    if not isinstance(value, dict):
        return f"The arguments of {name} must be one JSON object, got {shown(value)}."
    longest = longest_name(cast("object", value))
    if longest > MAX_NAME:
        return f"The arguments of {name} have a property name of {longest:,} characters; expected at most {MAX_NAME}."
    if declaration.schema is None:
        return None
    given = given_arguments(declaration, text, cast("_Schema", value))
    problems = _problems(bytes(declaration.schema), given)
    if not problems:
        return None
    lines = "\n".join(f"- {problem}" for problem in problems)
    return f"The arguments do not fit the schema of {name}:\n{lines}"


def given_arguments(declaration: Declaration, text: str, value: _Schema) -> _Schema:
    """The arguments without nulls that mean a missing value: see `without_nulls`. `text`: the arguments as they came."""
    if "null" not in text or declaration.schema is None:
        return value
    try:
        return cast("_Schema", without_nulls(loads(bytes(declaration.schema)), value))
    except MalformedJson:
        return value


def _problems(source: bytes, value: _Schema) -> list[str]:
    check = _library()
    found = None if check is None else check(source, value)
    return _small_check(source, value) if found is None else found


@lru_cache(1)
def _library() -> Callable[[bytes, object], list[str] | None] | None:
    """The check by `jsonschema`, if it is installed. It is imported at the first use."""
    try:
        from dragoman.engine.json_schema import problems_with  # noqa: PLC0415 -- an extra, and slow to import
    except ImportError:
        return None
    return problems_with


def _small_check(source: bytes, value: _Schema) -> list[str]:
    """The problems of the outermost members, as far as they are certain."""
    try:
        known = _members(loads(source))
    except MalformedJson:
        return []
    required = known.get("required")
    wanted = cast("list[object]", required) if isinstance(required, list) else []
    problems = [
        f"{shown(name)} is a required property; it is missing"
        for name in wanted
        if isinstance(name, str) and name not in value
    ]
    named = _members(known.get("properties"))
    is_closed = known.get("additionalProperties") is False and "patternProperties" not in known
    for name, member in value.items():
        plain = {key: item for key, item in _members(named.get(name)).items() if key in _PLAIN}
        if not satisfies(plain, member):
            problems.append(f"{name}: expected {shown(plain)}, got {shown(member)}")
        elif is_closed and name not in named:
            problems.append(f"{shown(name)} was unexpected; known are {shown(sorted(named))}")
    return problems[:MAX_ERRORS]


def _members(value: object) -> _Schema:
    return cast("_Schema", value) if isinstance(value, dict) else {}


def longest_name(value: object) -> int:
    """The length of the longest property name in a JSON value; 0 without any."""
    tables = (cast("_Schema", each) for each in nested(value) if isinstance(each, dict))
    return max((len(name) for table in tables for name in table), default=0)


def nested(value: object) -> Iterator[object]:
    """A JSON value and every value in it."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        yield here
        if isinstance(here, dict):
            waiting.extend(cast("_Schema", here).values())
        elif isinstance(here, list):
            waiting.extend(cast("list[object]", here))
