"""Numbers within their bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.upstream.rehearsal.merging import Schema
from dragoman.upstream.rehearsal.numbers import choose_number

from .checker import is_valid


@pytest.mark.parametrize(
    ("schema", "number"),
    [
        ({}, 1),
        ({"minimum": 5}, 5),
        ({"maximum": 0}, 0),
        ({"maximum": -3}, -3),
        ({"exclusiveMinimum": 1}, 2),
        ({"exclusiveMaximum": 1}, 0),
        ({"minimum": 1, "exclusiveMinimum": True}, 2),
        ({"maximum": 1, "exclusiveMaximum": True}, 0),
        ({"minimum": 2, "maximum": 3, "multipleOf": 2}, 2),
        ({"multipleOf": 7}, 7),
        ({"multipleOf": 7, "maximum": -1}, -7),
        ({"multipleOf": 5, "exclusiveMinimum": 5}, 10),
        ({"multipleOf": 5, "exclusiveMaximum": 5}, 0),
        ({"multipleOf": 0}, 1),
        ({"multipleOf": 2.5, "minimum": 3}, 5),
        ({"default": 4}, 4),
        ({"default": 4, "maximum": 3}, 1),
        ({"minimum": 2**70}, float(2**70)),
    ],
)
def test_integer(schema: Schema, number: float) -> None:
    chosen = choose_number(schema, integer=True)
    assert chosen == number
    assert is_valid({"type": "integer"}, chosen)


@pytest.mark.parametrize(
    ("schema", "number"),
    [
        ({"minimum": 0.2, "maximum": 0.8}, 0.5),
        ({"exclusiveMinimum": 1.5}, 2.5),
        ({"minimum": 1.5}, 1.5),
        ({"maximum": 0.5}, 0.5),
        ({"exclusiveMaximum": 0.5}, -0.5),
        ({"multipleOf": 0.1, "minimum": 0.25, "maximum": 0.35}, 0.3),
    ],
)
def test_number(schema: Schema, number: float) -> None:
    assert choose_number(schema, integer=False) == number


def test_number_that_was_said_is_taken_if_it_fits() -> None:
    assert choose_number({"minimum": 2}, (1.0, 2.5, 3.0), integer=True) == 3
    assert choose_number({"minimum": 2}, (1.0, 2.5, 3.0), integer=False) == 2.5


def test_nudge_gives_the_next_one() -> None:
    assert [choose_number({"multipleOf": 3}, integer=True, nudge=n) for n in range(3)] == [3, 6, 9]


@given(st.integers(-1000, 1000), st.integers(0, 1000), st.integers(1, 50), st.booleans())
def test_number_is_within_bounds_that_can_be_kept(
    low: int, room: int, step: int, is_integer: bool
) -> None:
    kind = "integer" if is_integer else "number"
    schema: Schema = {
        "type": kind,
        "minimum": low,
        "maximum": low + room + step,
        "multipleOf": step,
    }
    assert is_valid(schema, choose_number(schema, (3.0,), integer=is_integer))
