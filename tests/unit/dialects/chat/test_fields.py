"""Lenient reading of JSON values."""

import pytest

from dragoman._json import Raw
from dragoman.dialects.chat.fields import (
    extra_of,
    fields_of,
    first_text,
    flag_of,
    float_of,
    int_of,
    is_object,
    items_of,
    join_object,
    kind_of,
    own_fields,
    text_of,
)
from dragoman.model.parts import Extra


def raw(text: str) -> Raw:
    return Raw(text.encode())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{}", "object"),
        ("[]", "array"),
        ('""', "string"),
        ("true", "boolean"),
        ("false", "boolean"),
        ("null", "null"),
        ("-1", "number"),
    ],
)
def test_kind_names_the_json_type(text: str, kind: str) -> None:
    assert kind_of(raw(text)) == kind


def test_fields_leave_nulls_out_and_other_values_have_none() -> None:
    assert fields_of(raw('{"a":1,"b":null}')) == {"a": Raw(b"1")}
    assert fields_of(raw("[]")) == fields_of(None) == {}


def test_items_leave_nulls_out_and_one_object_stands_for_itself() -> None:
    assert items_of(raw("[1,null,2]")) == [Raw(b"1"), Raw(b"2")]
    assert items_of(raw('{"a":1}')) == [Raw(b'{"a":1}')]
    assert items_of(raw('"x"')) == items_of(None) == []
    assert items_of(raw('["\\ud83d"]')) == [Raw(b'"\\ud83d"')]


def test_values_of_another_type_are_absent() -> None:
    assert text_of(raw("1")) is None
    assert text_of(None) is None
    assert text_of(raw('"a"')) == "a"
    assert flag_of(raw('"true"')) is None
    assert flag_of(raw("true")) is True
    assert float_of(raw("true")) is None
    assert float_of(raw("1")) == 1
    assert float_of(None) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3),
        ("3.0", 3),
        ("3.5", None),
        ('"3"', 3),
        ('"x"', None),
        ('"99999999999999999999"', None),
        ("true", None),
        ("null", None),
        ("1e999", None),
    ],
)
def test_integers_are_understood_in_their_disguises(text: str, number: int | None) -> None:
    assert int_of(raw(text)) == number


def test_first_text_skips_what_is_empty() -> None:
    fields = {"a": Raw(b'""'), "b": Raw(b"1"), "c": Raw(b'"x"')}
    assert first_text(fields, ("a", "b", "c")) == "x"
    assert first_text(fields, ("a", "b")) == ""


def test_extra_is_tagged_and_only_our_own_is_opened() -> None:
    extra = extra_of({"a": Raw(b"1"), "b": Raw(b"2")}, ("a",))
    assert extra == Extra("chat", {"b": Raw(b"2")})
    assert extra_of({"a": Raw(b"1")}, ("a",)) is None
    assert own_fields(extra) == {"b": Raw(b"2")}
    assert own_fields(Extra("messages", {"b": Raw(b"2")})) == own_fields(None) == {}


def test_objects_are_joined_from_values_as_they_came() -> None:
    assert join_object({"a": Raw(b"1.0"), "b\n": Raw(b"[ ]")}) == Raw(b'{"a":1.0,"b\\n":[ ]}')
    assert is_object(join_object({}))
    assert not is_object(None)
