"""Reading values of unknown shape."""

import pytest

from dragoman._json import Raw
from dragoman.dialects.messages.fields import (
    extra_of,
    fragment_of,
    is_null,
    number_of,
    object_of,
    objects_of,
    own_fields,
    raws_of,
    source_of,
    string_of,
    truth_of,
    value_of,
)
from dragoman.model.parts import Extra


def test_null_and_nothing_are_absent() -> None:
    # M080
    assert is_null(None)
    assert is_null(Raw(b"null"))
    assert not is_null(Raw(b"0"))


def test_values_of_another_type_are_absent() -> None:
    number, text = Raw(b"5"), Raw(b'"a"')
    assert string_of(number) is None
    assert fragment_of(number) is None
    assert number_of(text) is None
    assert truth_of(number) is None
    assert object_of(number) is None
    assert raws_of(number) is None
    assert objects_of(number) is None
    for read in (string_of, fragment_of, number_of, truth_of, object_of, raws_of, value_of):
        assert read(None) is None


def test_values_are_read() -> None:
    assert string_of(Raw(b'"a"')) == "a"
    assert truth_of(Raw(b"true")) is True
    assert object_of(Raw(b'{"a": 1}')) == {"a": Raw(b"1")}
    assert raws_of(Raw(b'[1, "b"]')) == [Raw(b"1"), Raw(b'"b"')]
    assert objects_of(Raw(b'[1, {"a":2}]')) == [({"a": Raw(b"2")}, Raw(b'{"a":2}'))]
    assert value_of(Raw(b"[")) is None


@pytest.mark.parametrize(
    ("data", "number"),
    [(b"3", 3), (b"3.0", 3), (b"3.5", None), (b"true", None), (b"1e300", None), (b"1e999", None)],
)
def test_numbers_are_integers_that_can_be_written_again(data: bytes, number: int | None) -> None:
    assert number_of(Raw(data)) == number
    assert number_of(Raw(str(10**30).encode())) is None


def test_half_a_character_is_replaced_in_a_text_and_kept_in_a_piece_of_one() -> None:
    half = Raw(b'"a\\ud83d"')
    assert string_of(half) == "a\ufffd"
    assert fragment_of(half) == "a\ud83d"
    assert raws_of(Raw(b'["\\ud83d", 1]')) == [Raw(b'"\\ud83d"'), Raw(b"1")]


def test_source_is_the_text_as_it_was_written() -> None:
    assert source_of(Raw(b' {"n": 1.0} ')) == '{"n": 1.0}'


def test_rest_of_an_object_leaves_out_nulls() -> None:
    fields = {"a": Raw(b"1"), "b": Raw(b"null"), "c": Raw(b"2")}
    assert own_fields(fields, {"a"}) == {"c": Raw(b"2")}
    assert extra_of(fields, {"a"}) == Extra("messages", {"c": Raw(b"2")})
    assert extra_of(fields, {"a", "c"}) is None
