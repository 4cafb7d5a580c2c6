"""The name of a call whose name never came, concluded from what was offered.

One tool was offered: that one. Several: the only one whose schema the finished arguments satisfy. An operator may
choose the positional rule instead: the n-th call is the n-th tool. Otherwise there is no answer; the caller says so.

`satisfies` is a small check, not a validator: it knows the keywords that tell tools apart and ignores the others.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, cast

from dragoman._json import loads
from dragoman.core.pointers import resolve
from dragoman.errors import MalformedJson
from dragoman.model.request import Tool

__all__ = ("resolve_name", "satisfies", "without_nulls")

# A schema may refer to itself, and alternatives multiply: past these limits nothing is satisfied.
MAX_DEPTH = 64
MAX_STEPS = 10_000

# Tools that providers run are never called by name through a client's call.
_PROVIDER_KINDS = frozenset(
    {
        "web_search",
        "web_fetch",
        "file_search",
        "code_interpreter",
        "image_generation",
        "mcp",
        "mcp_approval",
        "mcp_list_tools",
    }
)

_Schema = dict[str, object]


def resolve_name(
    arguments: str,
    tools: Sequence[Tool],
    position: int,
    rule: Literal["schema", "positional"] = "schema",
) -> str | None:
    """The name of the tool that a nameless call means. `position` counts the calls of the answer before it."""
    callable_tools = [tool for tool in tools if tool.kind not in _PROVIDER_KINDS and tool.name]
    if len(callable_tools) == 1:
        return callable_tools[0].name
    if rule == "positional":
        is_there = 0 <= position < len(tools) and tools[position] in callable_tools
        return tools[position].name if is_there else None
    fitting = {tool.name for tool in callable_tools if _fits(tool, arguments)}
    return fitting.pop() if len(fitting) == 1 else None


def satisfies(schema: object, value: object) -> bool:
    """Whether a plain JSON value satisfies a plain JSON schema, as far as the known keywords go."""
    return _Check(schema).satisfies(schema, value, 0)


def without_nulls(schema: object, value: object) -> object:
    """The value less every null of an optional member that may not be null. Models write one for what they do not give:
    strict modes have them name all members.
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
    """One check: what references refer to, and how many steps it may still take."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._steps = MAX_STEPS

    def satisfies(self, schema: object, value: object, depth: int) -> bool:
        self._steps -= 1
        if depth > MAX_DEPTH or self._steps < 0:
            return False
        if not isinstance(schema, dict):
            return schema is not False
        known = cast("_Schema", schema)
        if value is None and known.get("nullable") is True:
            return True
        return (
            _has_type(known.get("type"), value)
            and _is_listed(known, value)
            and self._combines(known, value, depth)
            and self._has_members(known, value, depth)
            and self._has_items(known, value, depth)
        )

    def without_nulls(self, schema: object, value: object, depth: int) -> object:
        if depth > MAX_DEPTH or not isinstance(schema, dict):
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
        needed = cast("list[object]", required) if isinstance(required, list) else []
        return {
            name: self.without_nulls(named.get(name), member, depth + 1)
            for name, member in members.items()
            if member is not None
            or name in needed
            or name not in named
            or self.satisfies(named[name], None, depth + 1)
            or self._steps < 0  # it could not be told
        }

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
    if isinstance(wanted, list):
        return any(_has_type(one, value) for one in cast("list[object]", wanted))
    match wanted:
        case str():
            return _is_of_type(wanted.lower(), value)
        case _:
            return True


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
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            is_whole = isinstance(value, float) and value.is_integer()
            return is_whole or (isinstance(value, int) and not isinstance(value, bool))
        case _:
            return True


def _is_listed(schema: _Schema, value: object) -> bool:
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(
        _is_same(choice, value) for choice in cast("list[object]", choices)
    ):
        return False
    return "const" not in schema or _is_same(schema["const"], value)


def _is_same(one: object, other: object) -> bool:
    # Python takes True for 1; JSON does not.
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _is_one(answers: Iterable[bool]) -> bool:
    return sum(answers) == 1
