"""The vendors' own JSON schemas (those that llm-comply bundles), and what a payload violates in them.

A violation is one line that names the nearest object with a type, the field and the rule, whatever event the object came
in: `function_call: lacks status`, `response.temperature: null`. A union is narrowed by the `type` of the object first,
so that the violation names a field and not a union of thirty types.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, cast

from jsonschema import Draft202012Validator, ValidationError, validators
from referencing import Registry
from referencing.jsonschema import DRAFT202012

Schema = dict[str, Any]

SPECS = {
    "Open Responses": "openresponses.json",
    "OpenAI": "openai_chat.json",
    "Anthropic": "anthropic.json",
}
_ROOT = "urn:"
_SCHEMAS = "#/components/schemas/"


@cache
def _spec(vendor: str) -> Schema:
    text = (files("llm_comply") / "specs" / SPECS[vendor]).read_text(encoding="utf-8")
    spec = cast("Schema", json.loads(text))
    _allow_nullable(spec)
    return spec


def _allow_nullable(node: object) -> None:
    """Write OpenAPI 3.0's `nullable` as JSON Schema has it."""
    if isinstance(node, list):
        for each in cast("list[object]", node):
            _allow_nullable(each)
    elif isinstance(node, dict):
        schema = cast("Schema", node)
        for each in schema.values():
            _allow_nullable(each)
        if schema.pop("nullable", None) is True and isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "null"]
            if "enum" in schema:
                schema["enum"] = [*schema["enum"], None]


@cache
def _registry() -> Any:
    resources = [(_ROOT + name, DRAFT202012.create_resource(_spec(name))) for name in SPECS]
    return cast("Any", Registry)().with_resources(resources)


@cache
def _validator(vendor: str, name: str) -> Any:
    reference = {"$ref": f"{_ROOT}{vendor}{_SCHEMAS}{name}"}
    return _Narrowing(reference, registry=_registry())


@cache
def event_schemas(vendor: str) -> Mapping[str, str]:
    """The schemas of the events of a stream, by their `type`."""
    schemas = cast("Mapping[str, Schema]", _spec(vendor)["components"]["schemas"])
    found: dict[str, str] = {}
    for name, schema in schemas.items():
        kind = schema.get("properties", {}).get("type", {})
        words = kind.get("enum", [kind["const"]] if "const" in kind else [])
        if name.endswith("Event") and not name.startswith("Beta") and len(words) == 1:
            found[words[0]] = name
    return found


def violations(vendor: str, name: str, payload: Any) -> set[str]:
    """What a payload violates in the schema of this name."""
    errors = cast("Iterator[ValidationError]", _validator(vendor, name).iter_errors(payload))
    return {_line(error, payload) for error in errors}


# --- unions ----------------------------------------------------------------------------------------------------------


def _one_of(
    validator: Any, branches: list[Schema], instance: Any, schema: Schema
) -> Iterator[ValidationError]:
    """Validate against the branches that have the `type` of the instance; against any if there are several of them."""
    del schema
    kind = cast("Schema", instance).get("type") if isinstance(instance, dict) else None
    if isinstance(kind, str):
        named = [branch for branch in branches if kind in _types(validator, branch)]
        branches = named or [branch for branch in branches if _is_any_object(validator, branch)]
        if not branches:
            yield ValidationError("unknown type", validator="type")
            return
    if len(branches) == 1:
        yield from validator.descend(instance, branches[0])
        return
    tried = [list(validator.descend(instance, branch)) for branch in branches]
    if all(tried):
        yield from min(tried, key=_distance)


def _distance(errors: list[ValidationError]) -> tuple[int, int]:
    """How far a branch is from fitting: one that fails only deep inside fits better than one of another type."""
    is_other = any(not error.path and error.validator == "type" for error in errors)
    return is_other, len(errors)


def _is_any_object(validator: Any, branch: Schema) -> bool:
    found = _resolved(validator, branch)
    return not _types(validator, branch) and found.get("type", "object") == "object"


def _types(validator: Any, branch: Schema) -> frozenset[str]:
    """The values that the branch allows for `type`; empty if it does not say."""
    found = _resolved(validator, branch)
    for each in found.get("allOf", ()):
        inner = _types(validator, each)
        if inner:
            return inner
    for key in ("oneOf", "anyOf"):
        if key in found:
            return frozenset[str]().union(*(_types(validator, each) for each in found[key]))
    kind = found.get("properties", {}).get("type", {})
    kind = _resolved(validator, kind)
    words = kind.get("enum", [kind["const"]] if "const" in kind else [])
    return frozenset(word for word in words if isinstance(word, str))


def _resolved(validator: Any, schema: Schema) -> Schema:
    while "$ref" in schema:
        schema = cast("Schema", validator._resolver.lookup(schema["$ref"]).contents)
    return schema


# The stubs have no types for this function.
_Narrowing: Any = cast("Any", validators).extend(
    Draft202012Validator, {"oneOf": _one_of, "anyOf": _one_of}
)

# --- lines -----------------------------------------------------------------------------------------------------------


def _line(error: ValidationError, payload: Any) -> str:
    name, path = _place(payload, list(error.absolute_path))
    where = ".".join([name, *path] if name else path).replace(".[]", "[]")
    match error.validator:
        case "required":
            wanted = cast("list[str]", error.validator_value)
            absent = [field for field in wanted if field not in cast("Schema", error.instance)]
            # jsonschema reports each absent field by itself
            lacking = next(field for field in absent if f"'{field}'" in error.message)
            return f"{where}: lacks {lacking}"
        case "type" if error.instance is None:
            return f"{where}: null"
        case "type" if error.message == "unknown type":
            return f"{_kind(error.instance)}: unknown type"
        case "enum" | "const":
            return f"{where}: {json.dumps(error.instance)[:40]}"
        case rule:
            return f"{where}: {rule}"


def _place(payload: Any, path: list[str | int]) -> tuple[str, list[str]]:
    """The name of the nearest object that has one, and the path from it; indices are `[]`."""
    node, name, rest = payload, _kind(payload), list[str]()
    for step in path:
        node = node[step]
        rest.append("[]" if isinstance(step, int) else step)
        found = _kind(node)
        if found:
            name, rest = found, []
    return name, rest


def _kind(node: Any) -> str:
    if not isinstance(node, dict):
        return ""
    fields = cast("Mapping[str, Any]", node)
    named = fields.get("type", fields.get("object"))
    return named if isinstance(named, str) else ""
