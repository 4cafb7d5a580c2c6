"""Fields are read leniently: null and values of another type are absent, and nothing raises."""

import pytest

from dragoman._json import Raw, as_object
from dragoman.core.fields import (
    is_present,
    read_bool,
    read_float,
    read_int,
    read_items,
    read_json,
    read_list,
    read_object,
    read_shallow,
    read_text,
    read_texts,
    read_uncut,
    without,
)
from dragoman.errors import MalformedJson

FIELDS = as_object(
    b'{"text":"a\\u00e9","half":"x\\ud83d","null":null,"int":7,"huge":1e999,"float":1.5,"true":true,'
    b'"list":["a",1,{"k":"v"},"\\ud83d"],"object":{"k":"v"}}'
)
BROKEN = Raw(b'{"cut')


def test_text_is_read_and_everything_else_is_absent() -> None:
    assert read_text(FIELDS, "text") == "aé"
    assert [read_text(FIELDS, key) for key in ("null", "int", "list", "none")] == [None] * 4


def test_half_a_character_is_replaced_unless_it_is_asked_for() -> None:
    assert read_text(FIELDS, "half") == "x\ufffd"
    assert read_uncut(FIELDS, "half") == "x\ud83d"
    assert read_uncut(FIELDS, "int") is None
    assert read_text({"broken": BROKEN}, "broken") is None


def test_numbers_are_read_and_booleans_are_no_numbers() -> None:
    assert (read_int(FIELDS, "int"), read_float(FIELDS, "float")) == (7, 1.5)
    assert (read_int(FIELDS, "true"), read_float(FIELDS, "true")) == (None, None)
    assert read_int(FIELDS, "none") is None
    assert read_float(FIELDS, "huge") == float("inf")
    assert read_int({"broken": BROKEN}, "broken") is None
    assert (read_bool(FIELDS, "true"), read_bool(FIELDS, "int")) == (True, None)


def test_lists_and_objects_keep_their_values_raw() -> None:
    assert read_object(FIELDS["object"])["k"] == Raw(b'"v"')
    assert [bytes(entry) for entry in read_list(FIELDS["list"]) or ()][:2] == [b'"a"', b"1"]
    assert [list(entry) for entry in read_items(FIELDS["list"])] == [["k"]]
    assert read_texts(FIELDS["list"]) == ("a", "\ufffd")


@pytest.mark.parametrize("value", [None, BROKEN, FIELDS["int"]])
def test_what_is_no_list_and_no_object_is_absent(value: Raw | None) -> None:
    assert read_object(value) == {}
    assert read_list(value) is None
    assert read_texts(value) == ()


def test_plain_values_are_read_or_absent() -> None:
    assert read_json(FIELDS["object"]) == {"k": "v"}
    assert read_json(None) is None
    assert read_json(BROKEN) is None
    assert [is_present(FIELDS.get(key)) for key in ("int", "null", "none")] == [True, False, False]


def test_fields_are_left_out_by_name() -> None:
    assert set(without(FIELDS, {"text", "half"})) == set(FIELDS) - {"text", "half"}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (b"null", None),
        (b"true", True),
        (b"12", 12),
        (b"1.5", 1.5),
        (b'"a"', "a"),
        (b'"\\ud83d"', "\ud83d"),
        (b"1e999", float("inf")),
        (b'{"a":[1]}', {"a": Raw(b"[1]")}),
        (b'{"a":"\\ud83d"}', {"a": Raw(b'"\\ud83d"')}),
        (b'[{"a":1},2]', [Raw(b'{"a":1}'), Raw(b"2")]),
    ],
)
def test_any_value_is_read_one_level_deep(source: bytes, value: object) -> None:
    assert read_shallow(Raw(source)) == value
    assert read_shallow(source) == value


def test_half_a_character_in_a_list_does_not_hide_it() -> None:
    assert read_shallow(Raw(b'["\\ud83d", 1]')) == [Raw(b'"\\ud83d"'), Raw(b"1")]


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(MalformedJson):
        read_shallow(BROKEN)
