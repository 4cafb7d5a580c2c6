"""JSON schemas: merges two that must both hold into one, and chooses a number that a schema allows. Pure.

Merging covers what generated schemas express with `allOf`, with `$ref` beside other keywords, and with alternatives
beside shared keywords. An unknown keyword is kept from whichever schema has it. The number is one
that the user mentioned if it fits, else the simplest.
"""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from math import ceil, floor
from typing import cast

from msgspec import Struct

from dragoman._json import Raw, loads
from dragoman.errors import MalformedJson

Schema = dict[str, object]

# Beyond this a double cannot represent the difference.
MAX_NUMBER = 1e300

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


def schema_in(value: object) -> Schema:
    """A schema, or any JSON object; empty for everything else."""
    return cast("Schema", value) if isinstance(value, dict) else {}


def read_schema(source: Raw | None) -> Schema:
    """The schema of a tool; empty if it has none, or one that cannot be read."""
    try:
        return schema_in(loads(bytes(source or b"{}")))
    except MalformedJson:
        return {}


def list_in(value: object) -> list[object]:
    """A list; empty for everything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def types_of(schema: Schema) -> list[str]:
    """The types that a schema allows, in JSON Schema's spelling; empty if it states none. Google writes `STRING`."""
    kind = schema.get("type")
    return [name.lower() for name in list_in(kind) or [kind] if isinstance(name, str)]


def number_in(schema: Schema, keyword: str) -> float | None:
    """The number of a keyword, if it is a usable number. JSON's `true` is not."""
    value = schema.get(keyword)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
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
    """A schema for values that satisfy both; `true` allows everything, and `false` nothing."""
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


# The default for a number parameter.
PLAIN = 1
# JSON encoders refuse integers beyond 64 bits; a whole double is an integer too.
MAX_INTEGER = 2**63


class _Range(Struct, frozen=True):
    """The bounds of a number: inclusive and exclusive minimum and maximum, and the step."""

    low: Fraction | None
    high: Fraction | None
    above: Fraction | None
    below: Fraction | None
    step: Fraction | None

    def holds(self, value: Fraction) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and (self.step is None or (value / self.step).denominator == 1)
        )


def choose_number(
    schema: Schema, said: Iterable[float] = (), *, integer: bool, nudge: int = 0
) -> int | float:
    """A number for this schema. `nudge` selects the next one, for lists whose items must differ."""
    allowed = _range(schema, integer=integer)
    examples = (number_in({"n": each}, "n") for each in list_in(schema.get("examples")))
    stated = (number_in(schema, "default"), *said, *examples)
    wanted = [_exact(value) for value in stated if value is not None]
    found = next(filter(allowed.holds, wanted), None) if not nudge else None
    if found is None:
        found = _plainest(allowed) + nudge * (allowed.step or 1)
    is_integer = found.denominator == 1 and abs(found) < MAX_INTEGER
    return found.numerator if is_integer else float(found)


def _range(schema: Schema, *, integer: bool) -> _Range:
    def bound(keyword: str) -> Fraction | None:
        value = number_in(schema, keyword)
        return None if value is None else _exact(value)

    low, high, step = bound("minimum"), bound("maximum"), bound("multipleOf")
    # In draft 4 of JSON Schema these two are flags that make the bound beside them exclusive.
    above = low if schema.get("exclusiveMinimum") is True else bound("exclusiveMinimum")
    below = high if schema.get("exclusiveMaximum") is True else bound("exclusiveMaximum")
    if step is not None and step <= 0:
        step = None
    if integer:
        # An integer that is a multiple of p/q (in lowest terms) is a multiple of p.
        step = Fraction(1 if step is None else step.numerator)
    return _Range(low, high, above, below, step)


def _plainest(allowed: _Range) -> Fraction:
    """The simplest number in the range: 1 if allowed, else one next to a bound."""
    lower = [bound for bound in (allowed.low, allowed.above) if bound is not None]
    upper = [bound for bound in (allowed.high, allowed.below) if bound is not None]
    step = allowed.step
    if step is not None:
        lower = [step * ceil(bound / step) for bound in lower]
        upper = [step * min(floor(bound / step), 1) for bound in upper]
    middle = [(low + high) / 2 for low in lower for high in upper]
    beside = [bound + more for bound in lower for more in (0, step or 1)]
    beside += [bound - less for bound in upper for less in (0, step or 1)]
    near = [Fraction(PLAIN), *middle, *beside, step or Fraction(PLAIN)]
    return next(filter(allowed.holds, near), near[-1])


def _exact(value: float) -> Fraction:
    # Converted through its decimal text: 0.1 means a tenth, not the nearest double.
    return Fraction(str(value))
