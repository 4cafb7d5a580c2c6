"""Two schemas as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.upstream.rehearsal.schema import (
    Schema,
    choose_number,
    list_in,
    merge,
    number_in,
    schema_in,
    types_of,
)
from rehearsal_checker import is_valid


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"type": "string"}, {"minLength": 3}, {"type": "string", "minLength": 3}),
        ({"type": ["string", "null"]}, {"type": "string"}, {"type": ["string"]}),
        ({"type": "number"}, {"type": "integer"}, {"type": ["integer"]}),
        ({"type": "string"}, {"type": "integer"}, {"type": ["string"]}),
        ({"minimum": 1, "maximum": 9}, {"minimum": 3, "maximum": 5}, {"minimum": 3, "maximum": 5}),
        ({"minimum": "x"}, {"minimum": 3}, {"minimum": 3}),
        ({"minimum": 3}, {"minimum": None}, {"minimum": 3}),
        ({"required": ["a"]}, {"required": ["b", "a", 3]}, {"required": ["a", "b"]}),
        ({"enum": [1, 2]}, {"enum": [2, 3]}, {"enum": [2]}),
        ({"enum": [1]}, {"enum": [3]}, {"enum": [1]}),
        ({"title": "mine"}, {"title": "yours"}, {"title": "mine"}),
        ({"items": {"type": "string"}}, {"items": {"minLength": 1}}, {"items": {"type": "string", "minLength": 1}}),
        ({"additionalProperties": False}, {"additionalProperties": {"type": "null"}}, {"additionalProperties": False}),
        ({"additionalProperties": True}, {"additionalProperties": {"type": "null"}}, {"additionalProperties": {"type": "null"}}),
        ({"allOf": [{"title": "a"}]}, {"allOf": [{"title": "b"}]}, {"allOf": [{"title": "a"}, {"title": "b"}]}),
        (
            {"properties": {"a": {"type": "string"}, "b": {"title": "b"}}},
            {"properties": {"a": {"minLength": 2}, "c": {"title": "c"}}},
            {"properties": {"a": {"type": "string", "minLength": 2}, "b": {"title": "b"}, "c": {"title": "c"}}},
        ),
    ],
)  # fmt: skip
def test_both_hold(one: Schema, other: Schema, both: Schema) -> None:
    assert merge(one, other) == both


def test_values_of_the_wrong_type_are_nothing() -> None:
    assert schema_in([]) == {}
    assert list_in({}) == []
    assert types_of({"type": 3}) == []
    assert types_of({"type": ["STRING", 3]}) == ["string"]
    assert number_in({"n": True}, "n") is None
    assert number_in({"n": float("inf")}, "n") is None
    assert number_in({"n": 2.5}, "n") == 2.5


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
