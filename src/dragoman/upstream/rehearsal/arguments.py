"""Makes arguments that satisfy a tool's JSON schema, from the user's words. Pure and deterministic.

Supported: types (one or several), properties, required, dependentRequired, additionalProperties, enum, const, default,
examples, items, prefixItems, contains, uniqueItems, every bound, multipleOf, pattern and format as far as
`strings` supports them, allOf, anyOf, oneOf, `$ref` within the schema. Ignored: `not`, `if`, `patternProperties` and
references to other documents.

Only required parameters get a value, because the optional parameters of real agents ask for more rights, other folders or
longer waits. A tool that requires nothing gets its first parameter, so that the call has an argument.

A schema comes from a client: it may refer to itself, and alternatives multiply. Depth, steps, items and lengths are
bounded; beyond a bound the simplest value is used, even if it does not satisfy the schema.
"""

from collections.abc import Iterator
from itertools import chain
from typing import cast

from msgspec import Struct, structs

from dragoman._json import Raw
from dragoman.core.schemas import resolve, satisfies
from dragoman.model.request import Tool
from dragoman.upstream.rehearsal.schema import (
    Schema,
    choose_number,
    list_in,
    merge,
    number_in,
    read_schema,
    schema_in,
    types_of,
)
from dragoman.upstream.rehearsal.strings import StringMaker, is_harmless_word, needs_care, safe_argv
from dragoman.upstream.rehearsal.words import UserWords, split_name

# Real schemas are three or four deep. Below the first bound null and the empty list are preferred; below the second
# no further values are made.
CALM_DEPTH = 6
MAX_DEPTH = 24
# Values made for one call; the largest real tools have some fifty parameters.
MAX_STEPS = 2000
# Items of one list, and the number of schemas considered in one `anyOf`, `oneOf` or `allOf`.
MAX_ITEMS = 200
MAX_BRANCHES = 16
# How often an alternative is checked against its `oneOf`; one check may itself take ten thousand steps.
MAX_CHECKS = 16

_KEYWORD_TYPES = (
    ("object", ("properties", "required", "additionalProperties", "minProperties")),
    ("array", ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains")),
    ("string", ("pattern", "format", "minLength", "maxLength")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)

_PLAIN = frozenset({"type", "description", "title"})


def arguments_for(tool: Tool, words: UserWords, variant: int = 0) -> dict[str, object]:
    """Arguments for a call of a function. Another `variant` starts with another of the user's names."""
    strings = StringMaker(words, tool.name, needs_care(tool), variant)
    return schema_in(_Maker(read_schema(tool.schema), strings).make_root())


def value_for(schema: Raw | None, words: UserWords) -> object:
    """A value for the schema of an answer (`response_format`)."""
    return _Maker(read_schema(schema) or {"type": "object"}, StringMaker(words)).make_root()


class _Place(Struct, frozen=True):
    """The current position in the value: the parameter's name, the depth, and the references on the way."""

    name: str = ""
    depth: int = 0
    refs: frozenset[str] = frozenset()

    def below(self, name: str, refs: frozenset[str]) -> "_Place":
        return _Place(name, self.depth + 1, refs)


class _Branch(Struct, frozen=True):
    """A schema without references and alternatives: one way to satisfy the original schema."""

    schema: Schema
    refs: frozenset[str]
    is_recursive: bool = False
    is_exclusive: bool = False  # no other alternative may hold as well


class _Maker:
    """Makes one value. `_nudge` selects a different value, for lists whose items must differ."""

    def __init__(self, root: Schema, strings: StringMaker) -> None:
        self._root = root
        self._strings = strings
        self._steps = MAX_STEPS
        self._checks = MAX_CHECKS
        self._nudge = 0

    def make_root(self) -> object:
        return self._make(self._root, _Place())

    def _make(self, schema: object, place: _Place) -> object:
        self._steps -= 1
        if not isinstance(schema, dict) or self._steps < 0 or place.depth > MAX_DEPTH:
            return self._strings.make({}, place.name) if schema is True else None
        known = schema_in(cast("object", schema))
        branches = list(self._branches(known, place.refs, 0))[:MAX_BRANCHES]
        # Recursive branches come last, and so does null, unless the value is already deep.
        branches.sort(key=lambda branch: (branch.is_recursive, self._is_null(branch, place)))
        if len(branches) > 1:
            for branch in (each for each in branches if each.is_exclusive):
                value = self._build(branch, place)
                if self._is_satisfied(known, value):
                    return value
        return self._build(branches[0], place)

    def _is_null(self, branch: _Branch, place: _Place) -> bool:
        schema = branch.schema
        is_null = types_of(schema) == ["null"] or list_in(schema.get("enum")) == [None]
        return (is_null or schema.get("const", 0) is None) is (place.depth < CALM_DEPTH)

    def _is_satisfied(self, schema: Schema, value: object) -> bool:
        self._checks -= 1
        if self._checks < 0:
            return True
        shared: Schema = {
            name: self._root[name] for name in ("$defs", "definitions") if name in self._root
        }
        return satisfies({**shared, **schema}, value)

    # --- references and alternatives ----------------------------------------------------------------------------------

    def _branches(self, schema: Schema, refs: frozenset[str], depth: int) -> Iterator[_Branch]:
        """Every way to satisfy a schema, with alternatives in their order."""
        self._steps -= 1
        if self._steps < 0 or depth > MAX_DEPTH:
            yield _Branch({}, refs, is_recursive=True)
            return
        base = self._inlined(schema, refs)
        own = _without(base.schema, "allOf")
        for member in _schemas(base.schema.get("allOf"))[:MAX_BRANCHES]:
            part = self._inlined(member, base.refs)
            is_recursive = base.is_recursive or part.is_recursive
            base = _Branch(own, base.refs | part.refs, is_recursive)
            own = merge(own, part.schema)
        if "allOf" in own:  # the `allOf` of a member
            yield from _marked(self._branches(own, base.refs, depth + 1), base)
            return
        for keyword in ("anyOf", "oneOf"):
            options = _schemas(own.get(keyword))[:MAX_BRANCHES]
            mark = structs.replace(base, is_exclusive=keyword == "oneOf")
            for option in options:
                merged = merge(_without(own, keyword), option)
                yield from _marked(self._branches(merged, base.refs, depth + 1), mark)
            if options:
                return
        yield structs.replace(base, schema=own)

    def _inlined(self, schema: Schema, refs: frozenset[str]) -> _Branch:
        """A schema with its reference replaced by the referenced schema."""
        is_recursive = False
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return _Branch(schema, refs, is_recursive)
            is_recursive = is_recursive or reference in refs
            refs |= {reference}
            schema = merge(_without(schema, "$ref"), schema_in(resolve(self._root, reference)))
        return _Branch({}, refs, is_recursive=True)

    # --- values -------------------------------------------------------------------------------------------------------

    def _build(self, branch: _Branch, place: _Place) -> object:
        schema = branch.schema
        if "const" in schema:
            return schema["const"]
        choices = list_in(schema.get("enum"))
        if choices:
            return self._choose(choices, schema)
        match _type(schema, place, is_recursive=branch.is_recursive):
            case "object":
                return self._object(branch, place)
            case "array":
                return self._array(branch, place)
            case "integer":
                return self._number(schema, integer=True)
            case "number":
                return self._number(schema, integer=False)
            case "boolean":
                return (schema.get("default") is True) is not bool(self._nudge)
            case "null":
                return None
            case _:
                return self._strings.make(schema, place.name, self._nudge)

    def _choose(self, choices: list[object], schema: Schema) -> object:
        """One of a list: the value that the user mentions, else the default, else the first; harmless where possible."""
        kinds = types_of(schema)
        fitting = [each for each in choices if satisfies({"type": kinds}, each)] if kinds else []
        fitting = fitting or choices
        harmless = [choice for choice in fitting if is_harmless_word(choice)] or fitting
        if self._nudge:
            return choices[self._nudge % len(choices)]
        for choice in harmless:
            words = set(split_name(choice)) if isinstance(choice, str) else set[str]()
            if words and words <= self._strings.words.mentioned:
                return choice
        default = schema.get("default")
        return default if default in harmless else harmless[0]

    def _number(self, schema: Schema, *, integer: bool) -> int | float:
        strings = self._strings
        said = () if strings.careful else strings.words.numbers
        return choose_number(schema, said, integer=integer, nudge=self._nudge)

    def _object(self, branch: _Branch, place: _Place) -> dict[str, object]:
        schema = branch.schema
        known = schema_in(schema.get("properties"))
        others = schema_in(schema.get("additionalProperties"))
        return {
            name: self._make(known.get(name, others), place.below(name, branch.refs))
            for name in self._members(schema, known, place)
        }

    def _members(self, schema: Schema, known: Schema, place: _Place) -> list[str]:
        """The members that an object gets, in the schema's order."""
        needed = dict.fromkeys(_names(schema.get("required")))
        if not needed and not place.depth:
            needed = dict.fromkeys(list(known)[:1])
        also = schema_in(schema.get("dependentRequired"))
        for name in list(needed):
            needed.update(dict.fromkeys(_names(also.get(name))))
        least = min(int(number_in(schema, "minProperties") or 0), MAX_ITEMS)
        spare = (name for name in chain(known, _inventions()) if name not in needed)
        while len(needed) < least:
            needed[next(spare)] = None
        return [*(name for name in known if name in needed), *(n for n in needed if n not in known)]

    def _array(self, branch: _Branch, place: _Place) -> list[object]:
        schema = branch.schema
        is_plain = schema_in(schema.get("items")).keys() <= _PLAIN
        argv = safe_argv(place.name) if is_plain else []
        for stated in (argv, list_in(schema.get("default"))):
            if stated and _holds(schema, len(stated)) and satisfies(schema, stated):
                return stated
        inner = place.below(place.name, branch.refs)
        made: list[object] = []
        outer_nudge, self._nudge = self._nudge, 0
        for item in self._items(schema, place, is_recursive=branch.is_recursive):
            value = self._make(item, inner)
            if schema.get("uniqueItems") is True:
                value = self._differing(value, made, item, inner)
            made.append(value)
        self._nudge = outer_nudge
        return made

    def _items(self, schema: Schema, place: _Place, *, is_recursive: bool) -> Iterator[object]:
        """The schemas of a list's items, in order."""
        first = list_in(schema.get("prefixItems"))
        rest = schema.get("items", schema.get("contains", {}))
        least = int(number_in(schema, "minItems") or 0)
        has_room = place.depth < CALM_DEPTH and not is_recursive and rest is not False
        most = number_in(schema, "maxItems")
        count = max(least, len(first), 1 if has_room or "contains" in schema else 0)
        count = count if most is None or most < 0 else min(count, int(most))
        for index in range(min(count, MAX_ITEMS)):
            yield first[index] if index < len(first) else schema_in(rest)

    def _differing(
        self, value: object, made: list[object], schema: object, place: _Place
    ) -> object:
        for nudge in range(1, MAX_ITEMS):
            if value not in made:
                break
            self._nudge = nudge
            value = self._make(schema, place)
        self._nudge = 0
        return value


def _marked(branches: Iterator[_Branch], by: _Branch) -> Iterator[_Branch]:
    """The branches of an alternative that is itself recursive or exclusive, marked accordingly."""
    for branch in branches:
        yield structs.replace(
            branch,
            is_recursive=branch.is_recursive or by.is_recursive,
            is_exclusive=branch.is_exclusive or by.is_exclusive,
        )


def _without(schema: Schema, keyword: str) -> Schema:
    return {key: value for key, value in schema.items() if key != keyword}


def _holds(schema: Schema, count: int) -> bool:
    """Whether a list may have this many items."""
    most = number_in(schema, "maxItems")
    return count >= (number_in(schema, "minItems") or 0) and (most is None or count <= most)


def _type(schema: Schema, place: _Place, *, is_recursive: bool) -> str:
    """The type to make: the first listed, null last; but null first where the value is deep."""
    types = types_of(schema)
    if not types:
        hints = (kind for kind, keys in _KEYWORD_TYPES if any(key in schema for key in keys))
        return next(hints, "string")
    if "null" in types and (is_recursive or place.depth >= CALM_DEPTH):
        return "null"
    return next((kind for kind in types if kind != "null"), "null")


def _schemas(value: object) -> list[Schema]:
    """The schemas of a list. `true` is the empty schema; nothing satisfies `false`, so it is left out."""
    return [schema_in(each) for each in list_in(value) if each is not False]


def _names(value: object) -> list[str]:
    return [name for name in list_in(value) if isinstance(name, str)]


def _inventions() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"rehearsal_{number}"
