"""JSON schemas: two that must both hold, merged into one; and a number that a schema allows. Pure.

Merging is enough for what generated schemas say with `allOf`, with `$ref` beside other keywords, and with an alternative
beside what all alternatives share. A keyword that is not known is kept from whichever schema has it. The number is one
that the user mentioned if it fits, else the simplest.
"""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from math import ceil, floor
from typing import cast

from msgspec import Struct

Schema = dict[str, object]

# Beyond this a double cannot represent the difference.
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


# What a parameter that is a number gets when nothing speaks for another.
PLAIN = 1
# JSON writers give up on integers beyond 64 bits; a double that is whole is an integer too.
MAX_INTEGER = 2**63


class _Range(Struct, frozen=True):
    """The least and the greatest allowed, whether they are themselves, and what a value must be a multiple of."""

    low: Fraction | None
    high: Fraction | None
    is_open_below: bool
    is_open_above: bool
    step: Fraction | None

    def holds(self, value: Fraction) -> bool:
        if self.low is not None and (value <= self.low if self.is_open_below else value < self.low):
            return False
        if self.high is not None and (
            value >= self.high if self.is_open_above else value > self.high
        ):
            return False
        return self.step is None or (value / self.step).denominator == 1


def choose_number(
    schema: Schema, said: Iterable[float] = (), *, integer: bool, nudge: int = 0
) -> int | float:
    """A number for this schema. `nudge` asks for the next one, for lists whose items must differ."""
    allowed = _range(schema, integer=integer)
    examples = (number_in({"n": each}, "n") for each in list_in(schema.get("examples")))
    stated = (number_in(schema, "default"), *said, *examples)
    wanted = [value for value in stated if value is not None]
    if not nudge:
        for value in wanted:
            fraction = _exact(value)
            if (not integer or fraction.denominator == 1) and allowed.holds(fraction):
                return _plain(fraction)
    return _plain(_lowest(allowed) + nudge * (allowed.step or 1))


def _range(schema: Schema, *, integer: bool) -> _Range:
    low, high = number_in(schema, "minimum"), number_in(schema, "maximum")
    above, below = number_in(schema, "exclusiveMinimum"), number_in(schema, "exclusiveMaximum")
    # In JSON Schema's fourth draft these two are flags that sharpen the bound beside them.
    is_open_below = schema.get("exclusiveMinimum") is True
    is_open_above = schema.get("exclusiveMaximum") is True
    if above is not None and (low is None or above >= low):
        low, is_open_below = above, True
    if below is not None and (high is None or below <= high):
        high, is_open_above = below, True
    step = number_in(schema, "multipleOf")
    exact = _exact(step) if step is not None and step > 0 else None
    if integer:
        # An integer that is a multiple of p/q (in lowest terms) is a multiple of p.
        exact = Fraction(1) if exact is None else Fraction(exact.numerator)
    return _Range(
        None if low is None else _exact(low),
        None if high is None else _exact(high),
        is_open_below,
        is_open_above,
        exact,
    )


def _lowest(allowed: _Range) -> Fraction:
    """The plainest number in the range: 1 if it is there, else the one nearest a bound."""
    plain = Fraction(PLAIN)
    if allowed.holds(plain):
        return plain
    low, high, step = allowed.low, allowed.high, allowed.step
    if step is not None:
        if low is not None:
            count = ceil(low / step)
            return step * (count + (allowed.is_open_below and step * count == low))
        if high is not None:
            count = min(floor(high / step), 1)
            return step * (count - (allowed.is_open_above and step * count == high))
        return step
    if low is not None and high is not None:
        return (low + high) / 2
    if low is not None:
        return low + 1 if allowed.is_open_below else low
    bound = plain if high is None else high
    return bound - 1 if allowed.is_open_above else bound


def _exact(value: float) -> Fraction:
    # Through its spelling: 0.1 means a tenth, not the double nearest to it.
    return Fraction(str(value))


def _plain(value: Fraction) -> int | float:
    is_integer = value.denominator == 1 and abs(value) < MAX_INTEGER
    return value.numerator if is_integer else float(value)
