"""Two schemas as one."""

import pytest

from dragoman.upstream.rehearsal.merging import (
    Schema,
    list_in,
    merge,
    number_in,
    schema_in,
    types_of,
)


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
