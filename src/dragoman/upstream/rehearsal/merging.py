"""Two JSON schemas that must both hold, as one. Pure.

Enough for what generated schemas say with `allOf`, with `$ref` beside other keywords, and with an alternative beside
what all alternatives share. A keyword that is not known is kept from whichever schema has it.
"""

from collections.abc import Callable, Mapping
from typing import cast

__all__ = ("Schema", "list_in", "merge", "number_in", "schema_in", "types_of")

Schema = dict[str, object]

# Beyond this a bound says nothing that a double could tell.
MAX_NUMBER = 1e300

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


def schema_in(value: object) -> Schema:
    """A schema, or any JSON object; empty for everything else."""
    return cast("Schema", value) if isinstance(value, dict) else {}


def list_in(value: object) -> list[object]:
    """A list; empty for everything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def types_of(schema: Schema) -> list[str]:
    """The types a schema allows, as JSON Schema spells them; empty if it does not say. Google writes `STRING`."""
    kind = schema.get("type")
    return [name.lower() for name in list_in(kind) or [kind] if isinstance(name, str)]


def number_in(schema: Schema, keyword: str) -> float | None:
    """The number that a keyword says, if it says one that is of use. JSON's `true` is none."""
    value = schema.get(keyword)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < MAX_NUMBER else None


def merge(one: Schema, other: Schema) -> Schema:
    """A schema for values that satisfy both."""
    merged = {**other, **one}
    for keyword in one.keys() & other.keys():
        join = _JOINS.get(keyword)
        if join is not None:
            merged[keyword] = join(one[keyword], other[keyword])
    return merged


def _join_types(one: object, other: object) -> object:
    first, second = types_of({"type": one}), types_of({"type": other})
    both = [name for name in first if name in second]
    if not both and {"integer", "number"} <= {*first, *second}:
        both = ["integer"]
    return both or first


def _join_members(one: object, other: object) -> object:
    first, second = schema_in(one), schema_in(other)
    joined = {**first, **second}
    for name in first.keys() & second.keys():
        joined[name] = _join_schemas(first[name], second[name])
    return joined


def _join_schemas(one: object, other: object) -> object:
    """Both hold; `true` says nothing, and of `false` there is nothing."""
    if one is False or other is False:
        return False
    return merge(schema_in(one), schema_in(other))


def _join_names(one: object, other: object) -> object:
    return [
        *dict.fromkeys(name for name in (*list_in(one), *list_in(other)) if isinstance(name, str))
    ]


def _join_choices(one: object, other: object) -> object:
    first, second = list_in(one), list_in(other)
    return [choice for choice in first if choice in second] or first


def _join_all(one: object, other: object) -> object:
    return [*list_in(one), *list_in(other)]


def _bound(choose: Callable[[float, float], float]) -> Callable[[object, object], object]:
    def join(one: object, other: object) -> object:
        first, second = number_in({"n": one}, "n"), number_in({"n": other}, "n")
        if first is None or second is None:
            return one if second is None else other
        return choose(first, second)

    return join


_JOINS: Mapping[str, Callable[[object, object], object]] = {
    "type": _join_types,
    "properties": _join_members,
    "$defs": _join_members,
    "required": _join_names,
    "enum": _join_choices,
    "items": _join_schemas,
    "additionalProperties": _join_schemas,
    "allOf": _join_all,
    **dict.fromkeys(_LOWER, _bound(max)),
    **dict.fromkeys(_UPPER, _bound(min)),
}
