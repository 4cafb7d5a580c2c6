"""Values against JSON schemas by `jsonschema`, within bounds, and what is wrong with them in words.

Draft 2020-12 unless `$schema` names another. Nothing is ever fetched: a `$ref` to another document is not followed. A
pattern that Python cannot read, or that could take long, is not checked. A schema that is broken, refers elsewhere or takes
too long is told by None; the caller then checks what it can by itself.

This is the only importer of `jsonschema`, which is part of the extra `engine`: without it this module cannot be imported.
"""

from collections.abc import Callable, Iterator, Mapping
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

from dragoman._json import dumps_canonical, loads
from dragoman.engine.excerpts import cut, shown
from dragoman.engine.patterns import cost_of_pattern

__all__ = ("problems_with",)

# The longest property name that is matched against patterns; `validation` refuses longer ones.
MAX_NAME = 512
# Compiled schemas that are kept: the tools of a dozen MCP servers.
MAX_KEPT = 512
# Keywords applied in one check, about half a second. References may double the work at every level.
MAX_STEPS = 50_000
# Characters of error messages that count as one more step: each repeats the value it is about.
MESSAGE_STEP = 500
# Steps of a regular expression on one value, about a tenth of a second.
MAX_MATCHING = 1_000_000
# The first errors suffice to act on.
MAX_ERRORS = 8
MAX_ALTERNATIVES = 4

_Schema = dict[str, object]
_Json = Mapping[str, int]  # the library's stubs want some JSON type by name
_Keyword = Callable[[Validator, object, object, _Schema], Iterator[ValidationError] | None]

# The values of these are data, whatever they look like.
_DATA = frozenset({"const", "default", "enum", "examples"})

_steps: ContextVar[list[int]] = ContextVar("steps of the check under way")


class _TooMuchWork(Exception):
    """The check took more steps than it may."""


class _Extend(Protocol):
    def __call__(
        self, kind: type[Validator], *, validators: dict[str, _Keyword]
    ) -> type[Validator]: ...


def problems_with(source: bytes, value: object) -> list[str] | None:
    """What is wrong with a value, the first few; nothing if it satisfies the schema; None if that cannot be told."""
    validator = _compiled(source)
    if validator is None:
        return None
    token = _steps.set([MAX_STEPS])
    try:
        errors = validator.iter_errors(cast("_Json", value))
        found = [_told_of(error) for error in islice(errors, MAX_ERRORS)]
        if len(found) == MAX_ERRORS and next(errors, None) is not None:
            found.append("… and more; correct these first")
    except Exception:  # whatever a stranger's schema does to the library
        return None
    finally:
        _steps.reset(token)
    return list(dict.fromkeys(found))


@lru_cache(MAX_KEPT)
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
    except Exception:  # a schema that cannot even be looked at
        return None
    finally:
        _steps.reset(token)


def _kind_of(schema: Mapping[str, object]) -> type[Validator]:
    """The draft that the schema names, where it is one of those there are."""
    named = schema.get("$schema")
    if isinstance(named, str):
        for kind in (
            validators.Draft202012Validator,
            validators.Draft201909Validator,
            validators.Draft7Validator,
            validators.Draft6Validator,
            validators.Draft4Validator,
            validators.Draft3Validator,
        ):
            if named.rstrip("#") == str(kind.META_SCHEMA.get("$schema")).rstrip("#"):
                return kind
    return validators.Draft202012Validator


@lru_cache(16)
def _bounded(kind: type[Validator]) -> type[Validator]:
    """The same draft, each keyword counted, and the two that can take long done otherwise."""
    keywords = cast("dict[str, _Keyword]", dict(kind.VALIDATORS))
    keywords |= {"pattern": _pattern, "uniqueItems": _unique}
    counted = {name: _counted(keyword) for name, keyword in keywords.items()}
    extend = cast("_Extend", validators.extend)  # pyright: ignore[reportUnknownMemberType]  # it is not annotated
    return extend(kind, validators=counted)


def _counted(keyword: _Keyword) -> _Keyword:
    def apply(
        validator: Validator, value: object, instance: object, schema: _Schema
    ) -> Iterator[ValidationError]:
        _spend(1)
        for error in keyword(validator, value, instance, schema) or ():
            _spend(len(error.message) // MESSAGE_STEP)
            yield error

    return apply


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
    if not cost.compiled.search(instance):
        yield ValidationError(f"{shown(instance)} does not match {shown(pattern)}")


def _unique(
    _: Validator, wanted: object, instance: object, __: _Schema
) -> Iterator[ValidationError]:
    """The library compares each item with each other one where they cannot be sorted."""
    if wanted is not True or not isinstance(instance, list):
        return
    seen: set[bytes] = set()
    for item in cast("list[object]", instance):
        written = dumps_canonical(item)
        if written in seen:
            yield ValidationError(f"the item {shown(item)} stands there twice")
            return
        seen.add(written)


def _without_costly_patterns(schema: _Schema) -> _Schema:
    """The schema less the names by pattern that could take long; what they might allow is then allowed."""
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


def _told_of(error: ValidationError) -> str:
    where = _path(error)
    return f"{where}: {_said(error)}" if where else _said(error)


def _path(error: ValidationError) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path]
    return cut("".join(steps).removeprefix("."))


def _said(error: ValidationError) -> str:
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
    """The first error of each alternative, deep ones not followed: a tree of them helps nobody."""
    first: dict[object, str] = {}
    for inner in error.context or ():
        which = inner.schema_path[0] if inner.schema_path else None
        if which not in first and len(first) < MAX_ALTERNATIVES:
            place = "".join(f".{step}" for step in inner.path).removeprefix(".")
            said = (
                cut(inner.message) if inner.validator in ("anyOf", "oneOf") else cut(_said(inner))
            )
            first[which] = f"{cut(place)}: {said}" if place else said
    return "; or ".join(dict.fromkeys(first.values()))
