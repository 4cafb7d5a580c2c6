"""The tools that a client offers, as a scanner needs them: their names, and the types of their parameters.

Accepts tools in any dialect's shape: the model's `Tool`, Chat's `{"type": "function", "function": {…}}`, Responses' flat
function, Anthropic's `input_schema`, MCP's `inputSchema`, or only a name. Skips values that are not tools.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, cast

from msgspec import Struct

from dragoman._json import loads
from dragoman.core.schemas import resolve, satisfies
from dragoman.core.tool_cache import made_of
from dragoman.errors import MalformedJson
from dragoman.model.request import Tool

Fields = Mapping[str, object]
JsonType = Literal["string", "integer", "number", "boolean", "object", "array", "null"]

# Spellings seen in real schemas (Python's type names, Google's capitals) beside JSON Schema's own.
_SPELLINGS: Mapping[str, JsonType] = {
    "string": "string", "str": "string", "text": "string", "varchar": "string", "char": "string", "enum": "string",
    "integer": "integer", "int": "integer", "long": "integer",
    "number": "number", "float": "number", "double": "number",
    "boolean": "boolean", "bool": "boolean",
    "object": "object", "dict": "object", "map": "object",
    "array": "array", "list": "array", "tuple": "array",
    "null": "null", "none": "null",
}  # fmt: skip
_COMBINERS = ("anyOf", "oneOf", "allOf")
_MAX_REFERENCES = 16  # a chain of references in one place; more is a loop
_MAX_SCHEMAS = 200  # schemas that one parameter combines


class Types(Struct, frozen=True):
    """The JSON types that a value may have. `names` is empty if the schema names no type."""

    names: frozenset[JsonType] = frozenset()
    schema: Fields | None = None

    @property
    def is_text(self) -> bool:
        """Whether the value can only be a string."""
        return len(self.names) == 1 and "string" in self.names


UNTYPED = Types()
STRING = Types(frozenset({"string"}))
ANY_TYPE = Types(frozenset({"null", "number", "boolean", "object", "array", "string"}))


class _Offer(Struct, frozen=True):
    name: str
    namespace: str | None
    is_custom: bool
    schema: Fields
    properties: Fields


_UNKNOWN = _Offer(name="", namespace=None, is_custom=False, schema={}, properties={})


class Offers:
    """The tools of one request. any_name: every name is accepted, because the tools are unknown (None)."""

    def __init__(self, tools: Iterable[object] | None) -> None:
        self.any_name = tools is None
        self._offers = _by_name([offer for tool in tools or () if (offer := _read(tool))])
        self._types: dict[tuple[str, str], Types] = {}

    def __bool__(self) -> bool:
        return self.any_name or bool(self._offers)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._offers)

    def resolve(self, name: str) -> str | None:
        """Return the offered name that the model meant, or None. Models add prefixes: `functions.f`, `f.f`."""
        if name in self._offers:
            return name
        tail = name.rpartition(".")[2]
        if tail in self._offers:
            return tail
        return name if self.any_name else None

    def origin(self, name: str) -> tuple[str, str | None, bool]:
        """Return the tool's own name, its namespace, and whether its input is free text."""
        offer = self._offers.get(name)
        if offer is None:
            return name, None, False
        return offer.name, offer.namespace, offer.is_custom

    def _find(self, name: str) -> _Offer:
        return self._offers.get(self.resolve(name) or "", _UNKNOWN)

    def parameters(self, name: str) -> tuple[str, ...]:
        """Return the declared parameters of a tool, in order."""
        return tuple(self._find(name).properties)

    def declares(self, name: str, key: str) -> bool:
        """Return whether a tool declares a parameter."""
        return key in self._find(name).properties

    def required(self, name: str) -> tuple[str, ...]:
        names = self._find(name).schema.get("required")
        return tuple(map(str, cast("list[object]", names))) if isinstance(names, list) else ()

    def takes_nothing(self, name: str) -> bool:
        """Return whether the tool is offered and declares no parameters."""
        offer = self._find(name)
        return offer is not _UNKNOWN and not offer.properties

    def types(self, name: str, key: str) -> Types:
        """Return the types of a parameter; `UNTYPED` if the schema names none."""
        known = self._types.get((name, key))
        if known is None:
            offer = self._find(name)
            known = self._types[name, key] = types_of(offer.properties.get(key), offer.schema)
        return known

    def fitting(self, arguments: str) -> str | None:
        """Return the only tool that accepts these arguments, for a call without a name; None if not exactly one does."""
        # Each tool under its last name: the first one may be that of a tool in another namespace too.
        offers = {id(offer): (name, offer) for name, offer in self._offers.items()}
        value = cast("object", loads(arguments))
        if not isinstance(value, dict):
            return None
        members = cast("dict[str, object]", value)
        found = [
            name
            for name, offer in offers.values()
            if members.keys() <= offer.properties.keys() and satisfies(dict(offer.schema), members)
        ]
        return found[0] if len(found) == 1 else None

    def schema(self, name: str) -> Fields:
        """Return the schema of a tool's input."""
        return self._find(name).schema


def _by_name(offers: Iterable[_Offer]) -> dict[str, _Offer]:
    """Return the tools by the names that mean them. A name without its namespace counts if it means only one tool."""
    named: dict[str, _Offer] = {}
    members: dict[str, dict[str, _Offer]] = {}  # by name and namespace
    for offer in offers:
        if offer.namespace:
            members.setdefault(offer.name, {}).setdefault(offer.namespace, offer)
        else:
            named.setdefault(offer.name, offer)
    for name, spaces in members.items():
        for space, offer in spaces.items():
            if len(spaces) == 1:
                named.setdefault(name, offer)
            for joint in ("__", ".", "/", ":"):
                named.setdefault(f"{space}{joint}{name}", offer)
    return named


def types_of(schema: object, root: Fields) -> Types:
    """Return the types that a sub-schema allows, through references and combinations."""
    fields = _follow(schema, root)
    return UNTYPED if fields is None else Types(frozenset(_names_of(fields, root, {})), fields)


def _names_of(fields: Fields, root: Fields, known: dict[int, set[JsonType]]) -> set[JsonType]:
    """Return the types of a schema. known: those of the schemas that were read before, by `id`: branches may lead back."""
    found = known.get(id(fields))
    if found is not None:
        return found
    names = _named(fields)
    if len(known) >= _MAX_SCHEMAS:
        return names
    known[id(fields)] = names
    for combiner in _COMBINERS:
        branches = fields.get(combiner)
        for branch in cast("list[object]", branches) if isinstance(branches, list) else ():
            branch_fields = _follow(branch, root)
            if branch_fields is not None:
                names |= _names_of(branch_fields, root, known)
    if not names:
        names |= _implied(fields)
    return names


def _named(fields: Fields) -> set[JsonType]:
    kind = fields.get("type")
    kinds = cast("list[object]", kind) if isinstance(kind, list) else [kind]
    found: set[JsonType] = set()
    for name in kinds:
        spelled = _SPELLINGS.get(name.lower()) if isinstance(name, str) else None
        if spelled is not None:
            found.add(spelled)
    return found


def _implied(fields: Fields) -> set[JsonType]:
    """Return the types that a schema without `type` implies."""
    choices = fields.get("enum", [fields["const"]] if "const" in fields else None)
    if isinstance(choices, list) and choices:
        if all(isinstance(choice, str) for choice in cast("list[object]", choices)):
            return {"string"}
        return set()
    if "properties" in fields:
        return {"object"}
    return {"array"} if "items" in fields else set()


def _follow(schema: object, root: Fields) -> Fields | None:
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, dict):
            return None
        fields = cast("dict[str, object]", schema)
        reference = fields.get("$ref")
        if not isinstance(reference, str):
            return fields
        schema = resolve(root, reference)
    return None


def as_tool_schema(schema: object) -> dict[str, object]:
    """Return a schema as plain values: parsed from JSON text or bytes, or unchanged."""
    if isinstance(schema, Mapping):
        fields = cast("Mapping[str, object]", schema)
        return fields if isinstance(fields, dict) else dict(fields)
    if schema is None or isinstance(schema, (bool, int, float, list)):
        return {}
    try:
        value = cast(
            "object", loads(schema if isinstance(schema, str) else bytes(cast("bytes", schema)))
        )
    except (MalformedJson, TypeError, ValueError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _read(tool: object) -> _Offer | None:
    if isinstance(tool, Tool):
        schema = as_tool_schema(tool.schema)
        return _offer(tool.name, schema, tool.namespace, is_custom=tool.kind == "custom")
    if isinstance(tool, str):
        return _offer(tool, {}, None, is_custom=False) if tool else None
    if not isinstance(tool, Mapping):
        return None
    fields = cast("Fields", tool)
    kind = fields.get("type")
    for nested in ("function", "custom"):
        inner = fields.get(nested)
        if isinstance(inner, Mapping):
            fields = cast("Fields", inner)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        return None
    schemas = (fields.get(key) for key in ("parameters", "input_schema", "inputSchema", "schema"))
    schema = as_tool_schema(next((one for one in schemas if one is not None), None))
    # `custom` means free text in Chat and Responses, and an ordinary tool in Messages.
    is_custom = kind == "custom" and "input_schema" not in fields
    return _offer(name, schema, None, is_custom=is_custom)


def _offer(name: str, schema: Fields, namespace: str | None, *, is_custom: bool) -> _Offer:
    properties = schema.get("properties")
    named: Fields = cast("Fields", properties) if isinstance(properties, Mapping) else {}
    return _Offer(name, namespace, is_custom, schema, named)


def types_within(types: Types, key: str, root: object) -> Types:
    """Return the types of a member of an object, or of an item of an array."""
    if types.schema is None or not isinstance(root, Mapping):
        return UNTYPED
    fields = types.schema
    properties = fields.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return types_of(cast("Fields", properties)[key], cast("Fields", root))
    return types_of(fields.get("items"), cast("Fields", root))


def offers_of(tools: tuple[Tool, ...]) -> Offers:
    """Return the tools that a model can call in its text."""
    return made_of(tools, "textcalls", _offers, tools)


def _offers(tools: tuple[Tool, ...]) -> Offers:
    return Offers(tool for tool in tools if tool.kind in ("function", "custom"))
