"""A number that a schema allows: one the user said if it fits, else the plainest. Pure."""

from collections.abc import Iterable
from fractions import Fraction
from math import ceil, floor

from msgspec import Struct

from dragoman.upstream.rehearsal.merging import Schema, list_in, number_in

__all__ = ("choose_number",)

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
