"""Checks values against JSON schemas with `jsonschema`, with limits on the work, and describes the problems in words.

Draft 2020-12 unless `$schema` names another. Nothing is fetched: a `$ref` to another document is not followed. A pattern that
Python cannot compile, or that could take long, is not checked: Python's regular expressions backtrack and cannot be stopped.
The cost of a pattern is estimated from its repetitions, not from its meaning, so the estimate errs towards too much: a
repetition inside a repetition may take a time that doubles with every character, and each repetition beside another one
multiplies the time by the length of the text.

For a schema that is broken, refers elsewhere or takes too long, `problems_with` returns None, and the caller checks what it
can by itself. This is the only importer of `jsonschema`, which is part of the extra `engine`: without that extra this module
cannot be imported.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import Protocol, cast

from jsonschema import validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema_specifications import (  # type: ignore[import-untyped]  # it has no stubs
    REGISTRY,  # pyright: ignore[reportMissingTypeStubs]
)
from msgspec import Struct

from dragoman._json import dumps_canonical, loads
from dragoman.engine.results import cut, shown
from dragoman.engine.validation import MAX_ERRORS, MAX_NAME, MAX_SCHEMA, longest_name, nested

# Longer patterns are generated, and compiling them takes time too.
MAX_PATTERN = 1_000
MAX_PATTERNS_KEPT = 256
# Up to this many repetitions of an item count as the item itself: `[0-9]{4}`, `(ab?){2}`.
MAX_SMALL = 4

_TOKEN = re.compile(
    r"""
      (?P<escape>\\.)
    | (?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])
    | (?P<open>\((?:\?(?:P?<[A-Za-z_]\w*>|[:=!>]|<[=!]|[aiLmsux-]+:?|P=\w+|\#[^)]*))?)
    | (?P<close>\))
    | (?P<repeat>(?:[*+]|\{\d*,?\d*\}|\?)[?+]?)
    | (?P<bar>\|)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")


class PatternCost(Struct, frozen=True):
    """`degree`: the time to search a text of n characters is at most about n to this power."""

    compiled: re.Pattern[str]
    degree: int


class _Group(Struct):
    """One level of parentheses: the repetitions in it, at any depth, and whether it has alternatives."""

    repeats: int = 0
    has_choice: bool = False


@lru_cache(MAX_PATTERNS_KEPT)
def cost_of_pattern(pattern: str) -> PatternCost | None:
    """The cost of a search with this pattern; None if it does not compile, or its time may double per character."""
    if len(pattern) > MAX_PATTERN:
        return None
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    repeats = _repeats(pattern)
    # An unanchored search starts again at every character.
    return None if repeats is None else PatternCost(compiled, repeats + 1)


def _repeats(pattern: str) -> int | None:
    """How many repetitions there are beside one another; None if one is inside another."""
    levels = [_Group()]
    last = _Group()  # the item that a repetition at this point would repeat
    for token in _TOKEN.finditer(pattern):
        match token.lastgroup:
            case "open":
                levels.append(_Group())
                continue
            case "close" if len(levels) > 1:
                last = levels.pop()
                levels[-1].repeats += last.repeats
                levels[-1].has_choice |= last.has_choice
                continue
            case "bar":
                levels[-1].has_choice = True
            case "repeat":
                size = _largest(token.group())
                if size > MAX_SMALL:
                    if last.repeats or last.has_choice:
                        return None
                    levels[-1].repeats += 1
                elif size > 1:
                    levels[-1].repeats += last.repeats * (size - 1)
            case "escape" if token.group()[1].isdecimal():
                return None  # a back-reference: its cost depends on the match
            case _:
                pass
        last = _Group()
    return levels[0].repeats


def _largest(repeat: str) -> int:
    """The largest count; counts beyond `MAX_SMALL` are not distinguished."""
    if repeat[0] == "?":
        return 1
    count = _COUNT.match(repeat)
    if count is None:
        return MAX_SMALL + 1
    low, comma, high = count.groups()
    if not low and not high:  # literal braces
        return 1
    if comma and not high:
        return MAX_SMALL + 1
    return min(int((high or low)[:9]), MAX_SMALL + 1)


# Compiled schemas in the cache: the tools of a dozen MCP servers.
MAX_SCHEMAS_KEPT = 512
# Keywords applied in one check, about half a second. References may double the work at every level.
MAX_STEPS = 50_000
# Characters of error messages that count as one more step: each message repeats the value.
MESSAGE_STEP = 500
# Comparisons of one keyword that count as one more step: the library compares a value with every member of an `enum`.
COMPARED_STEP = 16
# Steps of a regular expression on one value, and how many of them count as one more step.
MAX_MATCHING = 1_000_000
MATCHING_STEP = 10_000
MAX_ALTERNATIVES = 4

_Schema = dict[str, object]
_Json = Mapping[str, int]  # the library's stubs want some JSON type by name
_Keyword = Callable[[Validator, object, object, _Schema], Iterator[ValidationError] | None]

# The values of these keywords are data, even if they look like schemas.
_DATA = frozenset({"const", "default", "enum", "examples"})

_steps: ContextVar[list[int]] = ContextVar("steps of the check under way")


class _TooMuchWork(Exception):
    """The check took more steps than it may."""


class _Extend(Protocol):
    def __call__(
        self, kind: type[Validator], *, validators: dict[str, _Keyword]
    ) -> type[Validator]: ...


def problems_with(source: bytes, value: object) -> list[str] | None:
    """The first few problems of a value; an empty list if it satisfies the schema; None if that cannot be decided."""
    if len(source) > MAX_SCHEMA or longest_name(value) > MAX_NAME:
        return None
    validator = _compiled(source)
    if validator is None:
        return None
    token = _steps.set([MAX_STEPS])
    try:
        errors = validator.iter_errors(cast("_Json", value))
        found = [_describe(error) for error in islice(errors, MAX_ERRORS)]
        if len(found) == MAX_ERRORS and next(errors, None) is not None:
            found.append("… and more; correct these first")
    except Exception:  # a foreign schema may make the library raise anything
        return None
    finally:
        _steps.reset(token)
    return list(dict.fromkeys(found))


@lru_cache(MAX_SCHEMAS_KEPT)
def _compiled(source: bytes) -> Validator | None:
    token = _steps.set([MAX_STEPS])
    try:
        schema = loads(source)
        if not isinstance(schema, dict):
            return None
        cheap = _without_costly_patterns(cast("_Schema", schema))
        kind = _kind_of(cheap)
        bounded = _bounded(kind)
        meta = bounded(cast("_Json", kind.META_SCHEMA), registry=REGISTRY)
        return bounded(cheap, registry=REGISTRY) if meta.is_valid(cast("_Json", cheap)) else None
    except Exception:  # a schema that cannot be compiled
        return None
    finally:
        _steps.reset(token)


def _kind_of(schema: Mapping[str, object]) -> type[Validator]:
    """The draft that the schema names, if it is known; else 2020-12."""
    latest = validators.Draft202012Validator
    if isinstance(schema.get("$schema"), str):
        with suppress(ValueError):  # it is no address
            return validators.validator_for(schema, latest)
    return latest


@lru_cache(16)
def _bounded(kind: type[Validator]) -> type[Validator]:
    """The same draft with a count of keywords, and our own versions of the two that can take long."""
    keywords = cast("dict[str, _Keyword]", dict(kind.VALIDATORS))
    keywords |= {"pattern": _pattern, "uniqueItems": _unique}
    counted = {name: _counted(name, keyword) for name, keyword in keywords.items()}
    extend = cast("_Extend", validators.extend)  # pyright: ignore[reportUnknownMemberType]  # it is not annotated
    return extend(kind, validators=counted)


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    def apply(
        validator: Validator, value: object, instance: object, schema: _Schema
    ) -> Iterator[ValidationError]:
        _spend(1 + _comparisons(name, value, instance, schema) // COMPARED_STEP)
        for error in keyword(validator, value, instance, schema) or ():
            _spend(len(error.message) // MESSAGE_STEP)
            yield error

    return apply


def _comparisons(name: str, value: object, instance: object, schema: _Schema) -> int:
    """How many comparisons a keyword takes: with the members of its value, and of some keywords with those of the instance too."""
    if name in ("const", "enum") and isinstance(instance, (list, dict)):
        return sum(1 for _ in nested(value))
    members = len(cast("list[object]", value)) if isinstance(value, (list, dict)) else 0
    if not isinstance(instance, (str, list, dict)):
        return members
    size = len(cast("str", instance))
    if name == "enum":
        return members * (1 + size // 256)
    if name in ("unevaluatedProperties", "unevaluatedItems"):
        return size * size  # the library looks for each member in a list
    if name in ("patternProperties", "additionalProperties") and isinstance(instance, dict):
        patterns = schema.get("patternProperties")
        count = len(cast("_Schema", patterns)) if isinstance(patterns, dict) else 0
        # Patterns whose time may grow by more than the square were removed.
        matching = sum(len(each) ** 2 for each in cast("_Schema", instance)) if count else 0
        return count * (size + matching * COMPARED_STEP // MATCHING_STEP)
    return members


def _spend(steps: int) -> None:
    left = _steps.get()
    left[0] -= steps
    if left[0] < 0:
        raise _TooMuchWork


def _pattern(
    _: Validator, pattern: object, instance: object, __: _Schema
) -> Iterator[ValidationError]:
    if not isinstance(instance, str) or not isinstance(pattern, str):
        return
    cost = cost_of_pattern(pattern)
    if cost is None or len(instance) ** cost.degree > MAX_MATCHING:
        return
    _spend(len(instance) ** cost.degree // MATCHING_STEP)
    if not cost.compiled.search(instance):
        yield ValidationError(f"{shown(instance)} does not match {shown(pattern)}")


def _unique(
    _: Validator, wanted: object, instance: object, __: _Schema
) -> Iterator[ValidationError]:
    """`uniqueItems` by hash: the library compares all pairs of items if they cannot be sorted."""
    if wanted is not True or not isinstance(instance, list):
        return
    seen: set[bytes] = set()
    for item in cast("list[object]", instance):
        written = dumps_canonical(item)
        if written in seen:
            yield ValidationError(f"the item {shown(item)} occurs twice")
            return
        seen.add(written)


def _without_costly_patterns(schema: _Schema) -> _Schema:
    """The schema without property patterns that could take long; everything that they might allow is then allowed."""
    out: _Schema = {}
    for key, value in schema.items():
        out[key] = value if key in _DATA else _below(value)
    named = out.get("patternProperties")
    if isinstance(named, dict):
        patterns = cast("_Schema", named)
        kept = {name: patterns[name] for name in patterns if _is_cheap(name)}
        if len(kept) < len(patterns):
            out["patternProperties"] = kept
            out.pop("additionalProperties", None)
            out.pop("unevaluatedProperties", None)
    return out


def _below(value: object) -> object:
    if isinstance(value, dict):
        return _without_costly_patterns(cast("_Schema", value))
    if isinstance(value, list):
        return [_below(item) for item in cast("list[object]", value)]
    return value


def _is_cheap(pattern: str) -> bool:
    cost = cost_of_pattern(pattern)
    return cost is not None and MAX_NAME**cost.degree <= MAX_MATCHING


def _describe(error: ValidationError) -> str:
    where = _path(error)
    return f"{where}: {_message(error)}" if where else _message(error)


def _path(error: ValidationError) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path]
    return cut("".join(steps).removeprefix("."))


def _message(error: ValidationError) -> str:
    expected = cast("object", error.validator_value)
    instance = cast("object", error.instance)
    match error.validator:
        case "type":
            kinds = cast("list[object]", expected) if isinstance(expected, list) else [expected]
            return f"expected {' or '.join(map(str, kinds))}, got {shown(instance)}"
        case "enum":
            listed = cast("list[object]", expected)
            return f"expected one of {shown(listed)}, got {shown(instance)}"
        case "const":
            return f"expected {shown(expected)}, got {shown(instance)}"
        case "required":
            return f"{cut(error.message)}; it is missing"
        case "additionalProperties" | "unevaluatedProperties":
            known = cast("_Schema", error.schema).get("properties")
            names = sorted(cast("_Schema", known)) if isinstance(known, dict) else []
            return f"{cut(error.message)}; known are {shown(names)}"
        case "anyOf" | "oneOf" if error.context:
            return f"{shown(instance)} fits none of the alternatives: {_alternatives(error)}"
        case _:
            return cut(error.message)


def _alternatives(error: ValidationError) -> str:
    """The first error of each alternative, without nested errors: a tree of errors is too long to read."""
    first: dict[object, str] = {}
    for inner in error.context or ():
        which = inner.schema_path[0] if inner.schema_path else None
        if which not in first and len(first) < MAX_ALTERNATIVES:
            place = "".join(f".{step}" for step in inner.path).removeprefix(".")
            message = (
                cut(inner.message)
                if inner.validator in ("anyOf", "oneOf")
                else cut(_message(inner))
            )
            first[which] = f"{cut(place)}: {message}" if place else message
    return "; or ".join(dict.fromkeys(first.values()))
