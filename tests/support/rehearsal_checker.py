"""A small JSON Schema validator for the tests, written from the specification and not from the code it checks."""

import math
import re
from decimal import Decimal
from typing import cast

Json = dict[str, object]


def is_valid(schema: object, value: object, root: object = None) -> bool:
    """Whether a value satisfies a schema; formats are checked by their usual patterns."""
    root = schema if root is None else root
    if schema is True or schema == {}:
        return True
    if schema is False:
        return False
    known = cast("Json", schema)
    return (
        _types(known, value)
        and _choices(known, value)
        and _combined(known, value, root)
        and _number(known, value)
        and _string(known, value)
        and _array(known, value, root)
        and _object(known, value, root)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _types(schema: Json, value: object) -> bool:
    if "type" not in schema:
        return True
    kind = schema["type"]
    kinds = cast("list[str]", kind if isinstance(kind, list) else [kind])
    tests = {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "string": isinstance(value, str),
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
        "number": _is_number(value),
        "integer": _is_number(value) and float(cast("float", value)).is_integer(),
    }
    return any(tests[name] for name in kinds)


def _same(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _choices(schema: Json, value: object) -> bool:
    if "const" in schema and not _same(schema["const"], value):
        return False
    listed = cast("list[object]", schema.get("enum", [value]))
    return any(_same(each, value) for each in listed)


def _combined(schema: Json, value: object, root: object) -> bool:
    def count(keyword: str) -> int:
        return sum(is_valid(each, value, root) for each in cast("list[object]", schema[keyword]))

    if "$ref" in schema:
        target = root
        for step in cast("str", schema["$ref"]).split("/")[1:]:
            target = cast("Json", target)[step]
        if not is_valid(target, value, root):
            return False
    if "allOf" in schema and count("allOf") < len(cast("list[object]", schema["allOf"])):
        return False
    if "anyOf" in schema and not count("anyOf"):
        return False
    return "oneOf" not in schema or count("oneOf") == 1


def _number(schema: Json, value: object) -> bool:
    if not _is_number(value):
        return True
    number = Decimal(str(value))

    def bound(keyword: str, default: float) -> Decimal:
        return Decimal(str(schema.get(keyword, default)))

    if not bound("minimum", -math.inf) <= number <= bound("maximum", math.inf):
        return False
    if not bound("exclusiveMinimum", -math.inf) < number < bound("exclusiveMaximum", math.inf):
        return False
    return "multipleOf" not in schema or number % bound("multipleOf", 1) == 0


FORMATS = {
    "date": r"\d{4}-\d{2}-\d{2}",
    "date-time": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z",
    "email": r"[^@\s]+@[^@\s]+\.[a-z]+",
    "uri": r"https?://\S+",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
}


def _string(schema: Json, value: object) -> bool:
    if not isinstance(value, str):
        return True
    least, most = cast("int", schema.get("minLength", 0)), schema.get("maxLength", len(value))
    if not least <= len(value) <= cast("int", most):
        return False
    if "pattern" in schema and not re.search(cast("str", schema["pattern"]), value):
        return False
    form = FORMATS.get(cast("str", schema.get("format", "")), ".*")
    return re.fullmatch(form, value, re.DOTALL) is not None


def _array(schema: Json, value: object, root: object) -> bool:
    if not isinstance(value, list):
        return True
    items = cast("list[object]", value)
    most = cast("int", schema.get("maxItems", len(items)))
    if not cast("int", schema.get("minItems", 0)) <= len(items) <= most:
        return False
    if schema.get("uniqueItems") and any(item in items[:at] for at, item in enumerate(items)):
        return False
    heads = cast("list[object]", schema.get("prefixItems", []))
    rest = schema.get("items", True)
    if "contains" in schema and not any(is_valid(schema["contains"], i, root) for i in items):
        return False
    return all(
        is_valid(heads[at] if at < len(heads) else rest, item, root)
        for at, item in enumerate(items)
    )


def _object(schema: Json, value: object, root: object) -> bool:
    if not isinstance(value, dict):
        return True
    members = cast("Json", value)
    known = cast("Json", schema.get("properties", {}))
    needed = set(cast("list[str]", schema.get("required", [])))
    for name, others in cast("Json", schema.get("dependentRequired", {})).items():
        needed |= set(cast("list[str]", others)) if name in members else set()
    if not needed <= members.keys() or len(members) < cast("int", schema.get("minProperties", 0)):
        return False
    rest = schema.get("additionalProperties", True)
    return all(is_valid(known.get(name, rest), item, root) for name, item in members.items())
