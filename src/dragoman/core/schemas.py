"""Changes tool schemas so that a target accepts them, and finds the tool of a call without a name.

`fix_schema` changes only what a target refuses: a missing type or `properties` at the top, Google's upper-case types,
keywords that the target does not know, keywords that are null and, if its rules require it, local `$ref`s. It walks
schemas, not JSON: the values of `enum`, `const`, `default` and `examples` and the names of properties never change. A
schema that needs no change keeps its exact bytes.

Targets answer 400 to a strict tool whose schema is not closed at every level, so either the schema is closed
(`close_strict`) or the strict flag is set to false; the notes report both. This module does not know which target has
which rules.

`resolve_name` finds the name of a call whose name never came, among the offered tools. If one tool was offered, it is that
tool; if several, the only tool whose schema the finished arguments satisfy. An operator may choose the positional rule
instead: the n-th call is the n-th tool. Otherwise the result is None, and the caller reports that. `satisfies` is a small
check, not a validator: it knows the keywords that distinguish tools and ignores the others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, cast, get_args
from urllib.parse import unquote

from msgspec import Struct

from dragoman._json import Raw, is_same_value, loads, raw
from dragoman.errors import MalformedJson
from dragoman.model.parts import CLIENT_KINDS, CallKind
from dragoman.model.request import Tool

EMPTY_SCHEMA = Raw(b'{"type":"object","properties":{}}')
"""The schema of a tool without arguments, and of a tool whose schema is unusable."""

# Deeper sub-schemas stay unchanged. Real schemas end at ten or so; this keeps recursion far from Python's limit.
MAX_DEPTH = 64
# JSON nested deeper than this is not a real schema, and encoding it could exceed Python's recursion limit.
MAX_NESTING = 200
# References may double a schema at every level. No target accepts a schema of this many characters, and no real one becomes
# so many times as long (beside a short one's first few thousand); further references stay.
MAX_INLINED = 262_144
MAX_GROWTH = 16
_SHORT = 4096
# Characters of a path in a note. Names may be as long as a request, and each sub-schema has a path: without a limit, half a
# megabyte of schema makes gigabytes of paths.
MAX_PATH = 300
# Notes about one schema. Further changes are only counted: every one of them may be a note of `MAX_PATH` characters.
MAX_NOTES = 100

_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})

# Keywords that hold sub-schemas: as the value itself, in a list, or under names that are not keywords.
_ONE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_MANY = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
# Keywords for which `true` and `false` are common; elsewhere some validators fail on boolean schemas.
_BOOLEAN = frozenset(
    {"additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"}
)
# Keywords for which null is a value.
_NULLABLE = frozenset({"const", "default", "example"})
# A schema with none of these keywords does not restrict its value; strict targets refuse such a schema.
_SHAPES = frozenset({"$ref", "allOf", "anyOf", "const", "enum", "oneOf", "type"})

_Schema = dict[str, object]


class SchemaRules(Struct, frozen=True, cache_hash=True):
    """The rules of one target for schemas.

    drop: keywords that it refuses. require_object: the top must be an object with properties. close_strict: close a
    strict schema, if possible, instead of setting the strict flag to false. inline_refs: the target does not know `$ref`.
    not_strict: keywords that it refuses in strict schemas only; each of them sets the flag to false.
    """

    drop: frozenset[str] = frozenset({"$schema", "$id", "$comment", "ref"})
    require_object: bool = True
    close_strict: bool = False
    inline_refs: bool = False
    not_strict: frozenset[str] = frozenset()


DEFAULT_RULES = SchemaRules()


def fix_schema(
    schema: Raw | None, rules: SchemaRules = DEFAULT_RULES, *, strict: bool | None = None
) -> tuple[Raw, bool | None, tuple[str, ...]]:
    """The schema to send, the strict flag to send with it, and notes about the changes.

    The flag stays unchanged, or becomes False if it was true and the schema cannot be strict. (Some targets treat a
    missing flag as true.)
    """
    notes: list[str] = []
    fixed = _read(schema, notes)
    if rules.inline_refs:
        fixed = _Inliner(fixed, notes).run()
    fixed = _fix(fixed, rules, notes)
    if rules.require_object:
        fixed = _as_object(fixed, notes)
    if strict and rules.close_strict:
        fixed = _close(fixed, notes)
    out = schema if schema is not None and not notes else raw(fixed)
    if schema is None:
        notes.clear()  # an empty schema for a tool without one is not a change to report
    if len(notes) > MAX_NOTES:
        notes[MAX_NOTES:] = [f"and {len(notes) - MAX_NOTES} more changes"]
    if strict:
        reason = _why_not_strict(fixed, rules)
        if reason:
            notes.append(f"strict removed: {reason}")
            strict = False
    return out, strict, tuple(notes)


def _read(schema: Raw | None, notes: list[str]) -> _Schema:
    try:
        value: object = None if schema is None else loads(bytes(schema))
    except MalformedJson:
        notes.append("replaced a schema that is not JSON")
        return {}
    if _measure(value)[1] > MAX_NESTING:
        notes.append("replaced a schema that is nested too deeply")
        return {}
    if isinstance(value, dict):
        return cast("_Schema", value)
    if value is False:
        notes.append("wrote the schema false as an object without properties")
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if value is None or value is True:
        notes.append("added the schema of an object")
    else:
        notes.append(f"replaced a schema that is a JSON {type(value).__name__}")
    return {}


def _fix(
    schema: _Schema, rules: SchemaRules, notes: list[str], where: str = "", depth: int = 0
) -> _Schema:
    """Drop and rewrite keywords in this schema and in every sub-schema."""
    out: _Schema = {}
    for key, value in schema.items():
        if key in rules.drop:
            notes.append(f"dropped {key} at {where or '/'}")
        elif value is None and key not in _NULLABLE:
            notes.append(f"dropped a null {key} at {where or '/'}")
        elif key == "type" and (spelled := _spell_type(value)) != value:
            notes.append(f"wrote type {value} as {spelled} at {where or '/'}")
            out[key] = spelled
        else:
            out[key] = value

    def visit(value: object, keyword: str, place: str) -> object:
        if isinstance(value, dict):
            below = cast("_Schema", value)
            return _fix(below, rules, notes, _under(where, place), depth + 1)
        if isinstance(value, bool) and keyword not in _BOOLEAN:
            notes.append(
                f"wrote the schema {str(value).lower()} as an object at {_under(where, place)}"
            )
            return {} if value else {"not": {}}
        return value

    return out if depth >= MAX_DEPTH else _map(out, visit)


def _under(where: str, step: str) -> str:
    """The path of a sub-schema."""
    if len(where) > MAX_PATH:
        return where
    path = f"{where}/{step}"
    return path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}…"


def _spell_type(value: object) -> object:
    """Google's spelling of a type (`OBJECT`) as JSON Schema's; any other value unchanged."""
    if isinstance(value, str):
        return value.lower() if value.lower() in _TYPES else value
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [_spell_type(item) for item in items]
    return value


def _as_object(schema: _Schema, notes: list[str]) -> _Schema:
    kind = schema.get("type")
    if kind is None:
        notes.append("added type object")
    elif kind != "object":
        notes.append(f"wrote type {kind} as object")
    out: _Schema = {"type": "object", **schema} if kind is None else {**schema, "type": "object"}
    if not isinstance(out.get("properties"), dict):
        notes.append("added properties")
        out["properties"] = {}
    return out


def _close(schema: _Schema, notes: list[str], where: str = "", depth: int = 0) -> _Schema:
    """Close every object that is not explicitly open: no other properties, and all properties required.

    An optional property becomes nullable, so that a model can still omit its value.
    """
    out = dict(schema)
    properties = out.get("properties")
    if _is_object(out) and out.get("additionalProperties", False) is False:
        named = cast("_Schema", properties) if isinstance(properties, dict) else {}
        required = required_names(out)
        optional = named.keys() - required
        if optional or "additionalProperties" not in out:
            notes.append(f"closed the object at {where or '/'}")
            out["additionalProperties"] = False
            out["properties"] = {
                name: _nullable(value) if name in optional else value
                for name, value in named.items()
            }
            out["required"] = list(named)

    def visit(value: object, _: str, place: str) -> object:
        if not isinstance(value, dict):
            return value
        return _close(cast("_Schema", value), notes, _under(where, place), depth + 1)

    return out if depth >= MAX_DEPTH else _map(out, visit)


def _nullable(value: object) -> object:
    if not isinstance(value, dict):
        return value
    schema = cast("_Schema", value)
    if not schema:
        return schema
    kind = schema.get("type")
    if isinstance(kind, (str, list)) and "const" not in schema:
        kinds = [kind] if isinstance(kind, str) else cast("list[object]", kind)
        out = {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}
        choices = schema.get("enum")
        if isinstance(choices, list) and None not in choices:
            out["enum"] = [*cast("list[object]", choices), None]
        return out
    return {"anyOf": [schema, {"type": "null"}]}


def _why_not_strict(schema: _Schema, rules: SchemaRules) -> str:
    """The reason why a target would refuse the schema as strict; empty if it would accept it."""
    waiting: list[tuple[str, _Schema]] = [("", schema)]
    while waiting:
        where, here = waiting.pop()
        place = where or "/"
        refused = sorted(rules.not_strict & here.keys())
        if refused:
            return f"{refused[0]} at {place}"
        if _is_object(here):
            if here.get("additionalProperties") is not False:
                return f"the object at {place} allows other properties"
            properties = here.get("properties")
            named = cast("_Schema", properties) if isinstance(properties, dict) else {}
            optional = sorted(named.keys() - required_names(here))
            if optional:
                return f"{optional[0]} is not required at {place}"
        elif not _SHAPES & here.keys():
            return f"no type at {place}"
        for _, step, below in _below(here):
            if isinstance(below, dict):
                waiting.append((_under(where, step), cast("_Schema", below)))
    return ""


def _is_object(schema: _Schema) -> bool:
    kind = schema.get("type")
    return (
        kind == "object" or "properties" in schema or (isinstance(kind, list) and "object" in kind)
    )


def required_names(schema: dict[str, object]) -> set[str]:
    """The names of the members that a schema requires."""
    names = schema.get("required")
    return {str(name) for name in cast("list[object]", names)} if isinstance(names, list) else set()


def _below(schema: _Schema) -> Iterator[tuple[str, str, object]]:
    """The sub-schemas of one schema: (keyword, path from this schema, sub-schema)."""
    for key, value in schema.items():
        if key in _MANY and isinstance(value, list):
            for index, item in enumerate(cast("list[object]", value)):
                yield key, f"{key}/{index}", item
        elif key in _NAMED and isinstance(value, dict):
            for name, item in cast("_Schema", value).items():
                yield key, f"{key}/{name}", item
        elif key in _ONE:
            yield key, key, value


def _map(schema: _Schema, visit: Callable[[object, str, str], object]) -> _Schema:
    """The schema with each sub-schema replaced by `visit(sub-schema, keyword, path from this schema)`."""
    new = {step: visit(value, key, step) for key, step, value in _below(schema)}
    out: _Schema = {}
    for key, value in schema.items():
        if key in _MANY and isinstance(value, list):
            out[key] = [new[f"{key}/{index}"] for index in range(len(cast("list[object]", value)))]
        elif key in _NAMED and isinstance(value, dict):
            out[key] = {name: new[f"{key}/{name}"] for name in cast("_Schema", value)}
        else:
            out[key] = new[key] if key in _ONE else value
    return out


def _measure(value: object) -> tuple[int, int]:
    """The approximate number of characters of a value's JSON, and how deeply the value is nested."""
    size = deepest = 0
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        here, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(here, dict):
            members = cast("_Schema", here)
            size += sum(map(len, members))
            waiting.extend((item, depth + 1) for item in members.values())
        elif isinstance(here, list):
            waiting.extend((item, depth + 1) for item in cast("list[object]", here))
        size += len(here) if isinstance(here, str) else 4
    return size, deepest


class _Inliner:
    """Replaces local references by their targets. Recursive references, and those beyond the size limit, stay."""

    def __init__(self, root: _Schema, notes: list[str]) -> None:
        self._root = root
        self._notes = notes
        self._budget = min(MAX_INLINED, _SHORT + MAX_GROWTH * _measure(root)[0])
        self._sizes: dict[str, int] = {}
        self._is_partial = False

    def run(self) -> _Schema:
        body = {key: self._root[key] for key in self._root if key not in {"$defs", "definitions"}}
        out = self._visit(body, frozenset(), 0)
        if self._is_partial:
            return {**out, **{key: self._root[key] for key in self._root if key not in body}}
        if body.keys() != self._root.keys():
            self._notes.append("inlined definitions")
        return out

    def _visit(self, schema: _Schema, active: frozenset[str], depth: int) -> _Schema:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = self._target(reference, active, depth)
            if target is None:
                self._is_partial = True
            else:
                self._notes.append(f"inlined {reference}")
                siblings = {key: schema[key] for key in schema if key != "$ref"}
                return self._visit({**target, **siblings}, active | {reference}, depth + 1)

        def visit(value: object, *_: str) -> object:
            if not isinstance(value, dict):
                return value
            return self._visit(cast("_Schema", value), active, depth + 1)

        if depth >= MAX_DEPTH:
            self._is_partial = True
            return schema
        return _map(schema, visit)

    def _target(self, reference: str, active: frozenset[str], depth: int) -> _Schema | None:
        if reference in active or depth >= MAX_DEPTH:
            return None
        target = resolve(self._root, reference)
        if not isinstance(target, dict):
            return None
        if reference not in self._sizes:
            self._sizes[reference] = _measure(cast("object", target))[0]
        self._budget -= self._sizes[reference]
        return cast("_Schema", target) if self._budget >= 0 else None


def resolve(document: object, reference: str) -> object:
    """The target of a local `$ref` (`#`, `#/$defs/Name`); None if it is outside the document or does not exist."""
    if not reference.startswith("#"):
        return None
    path = reference[1:]
    if path and not path.startswith("/"):
        return None
    here = document
    for step in path.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = cast("dict[str, object]", here).get(name)
        elif isinstance(here, list) and name.isdecimal() and len(name) < 10:
            items = cast("list[object]", here)
            here = items[int(name)] if int(name) < len(items) else None
        else:
            return None
    return here


# A schema may refer to itself, and alternatives multiply: a check that exceeds this or MAX_DEPTH fails.
MAX_STEPS = 10_000
# Values of one JSON document from which nulls are removed, and that are compared with a list of choices. References may lead to
# the same value again at every level, and every value may have the same long list.
MAX_VALUES = 500_000

# Providers run these tools: a client's call never names them.
_PROVIDER_KINDS = frozenset(get_args(CallKind)) - CLIENT_KINDS - {"function", "custom", "other"}


def resolve_name(
    arguments: str,
    tools: Sequence[Tool],
    position: int,
    rule: Literal["schema", "positional"] = "schema",
) -> str | None:
    """The name of the tool that a nameless call means, or None. `position`: the number of earlier calls in the answer."""
    callable_tools = [tool for tool in tools if tool.kind not in _PROVIDER_KINDS and tool.name]
    if len(callable_tools) == 1:
        return callable_tools[0].name
    if rule == "positional":
        is_there = 0 <= position < len(tools) and tools[position] in callable_tools
        return tools[position].name if is_there else None
    fitting = {tool.name for tool in callable_tools if _fits(tool, arguments)}
    return fitting.pop() if len(fitting) == 1 else None


def wants_object(tool: Tool) -> bool:
    """Whether a tool's schema says that its input is an object, and no text."""
    if tool.schema is None:
        return False
    schema = _read(tool.schema, [])
    kind = schema.get("type")
    return _is_object(schema) and not (isinstance(kind, list) and "string" in kind)


def satisfies(schema: object, value: object) -> bool:
    """Whether a plain JSON value satisfies the known keywords of a plain JSON schema."""
    return _Check(schema).satisfies(schema, value, 0)


def without_nulls(schema: object, value: object) -> object:
    """The value without the nulls of optional members that may not be null.

    Models write null for members that they want to omit: strict modes make them name all members.
    """
    return _Check(schema).without_nulls(schema, value, 0)


def _fits(tool: Tool, arguments: str) -> bool:
    try:
        value: object = loads(arguments) if arguments.strip() else {}
    except MalformedJson:
        return tool.kind == "custom"
    if tool.kind == "custom":
        return False
    try:
        schema: object = {} if tool.schema is None else loads(bytes(tool.schema))
    except MalformedJson:
        schema = {}
    return isinstance(value, dict) and satisfies(schema, cast("_Schema", value))


class _Check:
    """One check: the document for references, and the numbers of steps and values left."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._steps = MAX_STEPS
        self._left = MAX_VALUES

    def satisfies(self, schema: object, value: object, depth: int) -> bool:
        self._steps -= 1
        if depth > MAX_DEPTH or self._is_exhausted:
            return False
        if not isinstance(schema, dict):
            return schema is not False
        known = cast("_Schema", schema)
        if value is None and known.get("nullable") is True:
            return True
        return (
            _has_type(known.get("type"), value)
            and self._is_listed(known, value)
            and self._combines(known, value, depth)
            and self._has_members(known, value, depth)
            and self._has_items(known, value, depth)
        )

    def without_nulls(self, schema: object, value: object, depth: int) -> object:
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0 or not isinstance(schema, dict):
            return value
        known = cast("_Schema", schema)
        reference = known.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            value = self.without_nulls(resolve(self._root, reference), value, depth + 1)
        if isinstance(value, list):
            items = known.get("items")
            listed = cast("list[object]", value)
            return [self.without_nulls(items, each, depth + 1) for each in listed]
        properties = known.get("properties")
        if not isinstance(value, dict):
            return value
        members = cast("_Schema", value)
        if not isinstance(properties, dict):
            return members
        named = cast("_Schema", properties)
        required = known.get("required")
        listed = cast("list[object]", required) if isinstance(required, list) else []
        needed = {name for name in listed if isinstance(name, str)}
        return {
            name: self.without_nulls(named.get(name), member, depth + 1)
            for name, member in members.items()
            if member is not None
            or name in needed
            or name not in named
            or self.satisfies(named[name], None, depth + 1)
            or self._is_exhausted  # undecided
        }

    @property
    def _is_exhausted(self) -> bool:
        return self._steps < 0 or self._left < 0

    def _is_listed(self, schema: _Schema, value: object) -> bool:
        choices = schema.get("enum")
        if isinstance(choices, list):
            listed = cast("list[object]", choices)
            self._left -= len(listed)
            if not any(_is_equal(choice, value) for choice in listed):
                return False
        return "const" not in schema or _is_equal(schema["const"], value)

    def _combines(self, schema: _Schema, value: object, depth: int) -> bool:
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            target = resolve(self._root, reference)
            if not self.satisfies(target, value, depth + 1):
                return False
        for keyword, count in (("allOf", all), ("anyOf", any), ("oneOf", _is_one)):
            choices = schema.get(keyword)
            if isinstance(choices, list):
                answers = (
                    self.satisfies(choice, value, depth + 1)
                    for choice in cast("list[object]", choices)
                )
                if not count(answers):
                    return False
        return True

    def _has_members(self, schema: _Schema, value: object, depth: int) -> bool:
        if not isinstance(value, dict):
            return True
        members = cast("_Schema", value)
        required = schema.get("required")
        if isinstance(required, list) and any(
            isinstance(name, str) and name not in members for name in cast("list[object]", required)
        ):
            return False
        properties = schema.get("properties")
        named = cast("_Schema", properties) if isinstance(properties, dict) else {}
        others = schema.get("additionalProperties")
        return all(
            self.satisfies(named.get(name, others), member, depth + 1)
            for name, member in members.items()
        )

    def _has_items(self, schema: _Schema, value: object, depth: int) -> bool:
        items = schema.get("items")
        if not isinstance(value, list) or items is None:
            return True
        return all(self.satisfies(items, item, depth + 1) for item in cast("list[object]", value))


def _has_type(wanted: object, value: object) -> bool:
    kinds = cast("list[object]", wanted) if isinstance(wanted, list) else [wanted]
    return any(not isinstance(kind, str) or _is_of_type(kind.lower(), value) for kind in kinds)


def _is_of_type(wanted: str, value: object) -> bool:
    match wanted:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "integer":
            is_whole = isinstance(value, float) and value.is_integer()
            return is_whole or (isinstance(value, int) and not isinstance(value, bool))
        case _:
            return True


def _is_equal(one: object, other: object) -> bool:
    # A text is often long, and compared with many others.
    is_text = isinstance(one, str) or isinstance(other, str)
    return one == other if is_text else is_same_value(one, other)


def _is_one(answers: Iterable[bool]) -> bool:
    return sum(answers) == 1
