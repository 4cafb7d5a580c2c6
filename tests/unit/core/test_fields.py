"""Fields are read leniently in answers, strictly where they may be a piece of a call, and strictly in requests."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import Raw, as_object
from dragoman.core.fields import (
    Fields,
    ask_bool,
    ask_int,
    ask_list,
    ask_number,
    ask_object,
    ask_present,
    ask_text,
    expect_int,
    expect_items,
    expect_list,
    expect_object,
    expect_present,
    expect_text,
    extra_of,
    first_text,
    is_object,
    is_present,
    join_object,
    kind_of,
    need_object,
    need_text,
    own_fields,
    present,
    quoted,
    read_bool,
    read_float,
    read_fragment,
    read_int,
    read_items,
    read_json,
    read_list,
    read_object,
    read_objects,
    read_present,
    read_shallow,
    read_text,
    read_texts,
    refuse,
    replace_member,
    set_members,
    source_raw,
    source_text,
    without,
)
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.parts import Extra

FIELDS = as_object(
    b'{"text":"a\\u00e9","half":"x\\ud83d","null":null,"int":7,"huge":1e999,"float":1.5,"true":true,'
    b'"list":["a",1,{"k":"v"},"\\ud83d"],"object":{"k":"v"}}'
)
BROKEN = Raw(b'{"cut')


def test_text_is_read_and_everything_else_is_absent() -> None:
    assert read_text(FIELDS.get("text")) == "aé"
    assert [read_text(FIELDS.get(key)) for key in ("null", "int", "list", "none")] == [None] * 4


def test_half_a_character_is_replaced_unless_it_is_asked_for() -> None:
    assert read_text(FIELDS.get("half")) == "x\ufffd"
    assert read_fragment(FIELDS.get("half")) == "x\ud83d"
    assert read_fragment(FIELDS.get("int")) is None
    assert read_text(BROKEN) is None


def test_numbers_are_read_and_booleans_are_no_numbers() -> None:
    assert (read_int(FIELDS.get("int")), read_float(FIELDS.get("float"))) == (7, 1.5)
    assert (read_int(FIELDS.get("true")), read_float(FIELDS.get("true"))) == (None, None)
    assert read_int(FIELDS.get("none")) is None
    assert read_float(FIELDS.get("huge")) is None
    assert read_float(Raw(b"1" + b"0" * 400)) is None
    assert read_int(BROKEN) is None
    assert (read_bool(FIELDS.get("true")), read_bool(FIELDS.get("int"))) == (True, None)


def test_lists_and_objects_keep_their_values_raw() -> None:
    assert read_object(FIELDS["object"])["k"] == Raw(b'"v"')
    assert [bytes(entry) for entry in read_list(FIELDS["list"]) or ()][:2] == [b'"a"', b"1"]
    assert [list(entry) for entry in read_objects(FIELDS["list"])] == [["k"]]
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


def test_the_items_of_an_array_keep_their_source_also_beside_half_a_character() -> None:
    sources = [b'"\\ud83d"', b"1.50", b'{"a": 1, "a":2.0}', b"[1 ,2]", b"1e999", b'"\\u00e9"']
    assert read_shallow(Raw(b" [ " + b" ,\n".join(sources) + b"\t]")) == list(map(Raw, sources))
    assert read_shallow(Raw(b'[[],["\\ud83d"]]')) == [Raw(b"[]"), Raw(b'["\\ud83d"]')]
    deep = b"[" * 700 + b'"\\ud83d"' + b"]" * 700
    assert read_shallow(Raw(b"[" + deep + b",1]")) == [Raw(deep), Raw(b"1")]


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(MalformedJson):
        read_shallow(BROKEN)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (b"{}", "an object"),
        (b"[]", "an array"),
        (b'""', "a string"),
        (b"true", "a boolean"),
        (b"false", "a boolean"),
        (b"null", "null"),
        (b"-1", "a number"),
    ],
)
def test_the_kind_of_a_value_is_its_json_type(source: bytes, kind: str) -> None:
    assert kind_of(Raw(source)) == kind


def test_null_and_nothing_are_absent() -> None:
    # M080
    assert not is_present(None)
    assert not is_present(Raw(b"null"))
    assert is_present(Raw(b"0"))
    assert present({"a": Raw(b"1"), "b": Raw(b"null")}) == {"a": Raw(b"1")}


def test_present_fields_leave_nulls_out_and_other_values_have_none() -> None:
    assert read_present(Raw(b'{"a":1,"b":null}')) == {"a": Raw(b"1")}
    assert read_present(Raw(b"[]")) == read_present(None) == {}


def test_items_leave_nulls_out_and_one_object_stands_for_itself() -> None:
    assert read_items(Raw(b"[1,null,2]")) == [Raw(b"1"), Raw(b"2")]
    assert read_items(Raw(b'{"a":1}')) == [Raw(b'{"a":1}')]
    assert read_items(Raw(b'"x"')) == read_items(None) == []
    assert read_items(Raw(b'["\\ud83d"]')) == [Raw(b'"\\ud83d"')]


@pytest.mark.parametrize(
    ("source", "number"),
    [
        (b"3", 3),
        (b"3.0", 3),
        (b"3.5", None),
        (b'"3"', 3),
        (b'"x"', None),
        (b'"99999999999999999999"', None),
        (b"true", None),
        (b"null", None),
        (b"1e300", None),
        (b"1e999", None),
        (str(10**30).encode(), 10**30),
    ],
)
def test_integers_are_read_however_they_are_written(source: bytes, number: int | None) -> None:
    assert read_int(Raw(source)) == number


def test_first_text_skips_what_is_empty() -> None:
    fields = {"a": Raw(b'""'), "b": Raw(b"1"), "c": Raw(b'"x"')}
    assert first_text(fields, ("a", "b", "c")) == "x"
    assert first_text(fields, ("a", "b")) == ""


def test_extra_is_tagged_and_only_the_own_dialect_opens_it() -> None:
    extra = extra_of("chat", {"a": Raw(b"1"), "b": Raw(b"2")}, ("a",))
    assert extra == Extra("chat", {"b": Raw(b"2")})
    assert extra_of("chat", {"a": Raw(b"1")}, ("a",)) is None
    assert own_fields("chat", extra) == {"b": Raw(b"2")}
    assert own_fields("messages", extra) == own_fields("chat", None) == {}


def test_objects_are_joined_from_values_as_they_came() -> None:
    assert join_object({"a": Raw(b"1.0"), "b\n": Raw(b"[ ]")}) == Raw(b'{"a":1.0,"b\\n":[ ]}')
    assert is_object(join_object({}))
    assert not is_object(None)


def test_source_is_the_text_as_it_was_written() -> None:
    assert source_text(Raw(b'{"n": 1.0}')) == '{"n": 1.0}'
    assert source_raw('{"n": 1.0}') == Raw(b'{"n": 1.0}')


def test_pieces_of_a_call_are_expected_or_absent() -> None:
    assert expect_text(FIELDS["half"], "a name") == "x\ud83d"
    assert expect_text(FIELDS["null"], "a name") is None
    assert expect_object(FIELDS["object"], "a call") == {"k": Raw(b'"v"')}
    assert expect_object(None, "a call") == expect_present(FIELDS["null"], "a call") == {}
    assert expect_list(None, "calls") == expect_items(FIELDS["null"], "calls") == []
    assert expect_list(Raw(b"[1]"), "calls") == [Raw(b"1")]
    assert expect_items(Raw(b"[null,1]"), "calls") == [Raw(b"1")]
    assert expect_items(FIELDS["object"], "calls") == [FIELDS["object"]]
    assert (expect_int(Raw(b'"2"'), "an index"), expect_int(FIELDS["null"], "an index")) == (
        2,
        None,
    )


@pytest.mark.parametrize(
    ("expect", "source", "message"),
    [
        (expect_text, b"{}", "expected it as a string, got an object"),
        (expect_object, b"[]", "expected it as an object, got an array"),
        (expect_list, b'""', "expected it as an array, got a string"),
        (expect_items, b"true", "expected it as an array, got a boolean"),
        (expect_int, b"1.5", "expected it as an integer, got a number"),
    ],
)
def test_a_piece_of_a_call_of_another_type_raises(
    expect: Callable[[Raw, str], object], source: bytes, message: str
) -> None:
    with pytest.raises(MalformedJson) as caught:
        expect(Raw(source), "it")
    assert caught.value.message == message


def test_fields_of_a_request_are_of_their_type_or_absent() -> None:
    assert ask_text(FIELDS, "text") == "aé"
    assert (ask_bool(FIELDS, "true"), ask_int(FIELDS, "int")) == (True, 7)
    assert ask_number(FIELDS, "float") == 1.5
    assert ask_object(FIELDS, "object") == need_object(FIELDS["object"], "") == {"k": Raw(b'"v"')}
    assert ask_list({"list": Raw(b"[1,null]")}, "list") == [Raw(b"1"), Raw(b"null")]
    assert ask_present({"a": Raw(b'{"b":null}')}, "a") == {}
    assert need_text(FIELDS, "text", "") == "aé"
    for ask in (ask_text, ask_bool, ask_int, ask_number, ask_object, ask_present, ask_list):
        assert ask(FIELDS, "null") is None
        assert ask(FIELDS, "none") is None


@pytest.mark.parametrize(
    ("ask", "source", "message"),
    [
        (ask_text, b"1", "a.b: expected a string, got a number: 1"),
        (ask_bool, b"1", "a.b: expected a boolean, got a number: 1"),
        (ask_int, b"1.5", "a.b: expected an integer, got a number: 1.5"),
        (ask_int, b"1e30", "a.b: expected an integer, got a number: 1e30"),
        (ask_int, b'"1"', 'a.b: expected a number, got a string: "1"'),
        (ask_number, b"true", "a.b: expected a number, got a boolean: true"),
        (ask_number, b"1e999", "a.b: expected a number, got a number: 1e999"),
        (ask_object, b"[]", "a.b: expected an object, got an array: []"),
        (ask_list, b"{}", "a.b: expected an array, got an object: {}"),
        (ask_list, b'"%s"' % (b"x" * 80), f'a.b: expected an array, got a string: "{"x" * 59}…'),
    ],
)
def test_a_field_of_a_request_of_another_type_is_refused(
    ask: Callable[[Fields, str, str], object], source: bytes, message: str
) -> None:
    with pytest.raises(RequestRefused) as caught:
        ask({"b": Raw(source)}, "b", "a")
    assert (caught.value.message, caught.value.param) == (message, "a.b")
    assert caught.value.code == "invalid_type"


def test_what_a_request_needs_is_refused_where_it_is_missing() -> None:
    for value, came in ((None, "nothing"), (Raw(b"null"), "null")):
        with pytest.raises(RequestRefused) as caught:
            refuse("a", "an object", value)
        assert caught.value.message == f"a: expected an object, got {came}"
        assert caught.value.code == "missing_field"
    with pytest.raises(RequestRefused):
        need_object(None, "a")
    with pytest.raises(RequestRefused):
        need_text({"b": Raw(b'""')}, "b", "a")


ODD = b' { "a" : 1.0e+05 ,\n\t"model":"x", "b":{"model" : "y", "n":0.10}, "\\u0063":[1, 2 ] } \n'


def test_only_the_value_is_replaced() -> None:
    assert replace_member(ODD, ("model",), b'"z"') == ODD.replace(b'"x"', b'"z"')
    assert replace_member(ODD, ("b", "model"), b'"z"') == ODD.replace(b'"y"', b'"z"')
    assert replace_member(ODD, ("c",), b"null") == ODD.replace(b"[1, 2 ]", b"null")


@pytest.mark.parametrize("path", [("nothing",), ("b", "nothing"), ("a", "model"), ("c", "0")])
def test_what_is_not_there_is_not_replaced(path: tuple[str, ...]) -> None:
    assert replace_member(ODD, path, b"1") is None


@pytest.mark.parametrize("data", [b"", b"[]", b'{"model"', b'{"model":1,"model":2}'])
def test_what_is_no_plain_object_is_not_edited(data: bytes) -> None:
    assert replace_member(data, ("model",), b"1") is None


def test_members_are_replaced_added_and_taken_out() -> None:
    out = set_members(ODD, {"model": b'"z"', "a": None, "stream": b"true", "absent": None})
    assert out == (
        b' {\n\t"model":"z", "b":{"model" : "y", "n":0.10}, "\\u0063":[1, 2 ],"stream":true} \n'
    )


@pytest.mark.parametrize(
    ("data", "values", "out"),
    [
        (b"{}", {"a": b"1"}, b'{"a":1}'),
        (b'{"a":1}', {"a": None}, b"{}"),
        (b'{"a":1}', {"a": None, "b": b"2"}, b'{"b":2}'),
        (b'{"a":1,"b":2}', {"a": None, "b": None}, b"{}"),
        (b'{"a":1,"b":2,"c":3}', {"b": None}, b'{"a":1,"c":3}'),
        (b'{"a":1,"b":2,"c":3}', {"c": None}, b'{"a":1,"b":2}'),
    ],
)
def test_commas_stay_right(data: bytes, values: dict[str, bytes | None], out: bytes) -> None:
    assert set_members(data, values) == out


def test_object_with_a_key_twice_is_written_anew_with_the_last() -> None:
    data = b'{"model":"a", "n": 1.50, "model":"b", "gone":1}'
    out = set_members(data, {"stream": b"true", "gone": None})
    assert out == b'{"model":"b","n":1.50,"stream":true}'
    assert set_members(data, {"model": b'"c"', "gone": None}) == b'{"n":1.50,"model":"c"}'


def test_lone_surrogates_do_not_stop_an_edit() -> None:
    out = set_members(b'{"t": "\\ud83d", "model": "a"}', {"model": b'"b"'})
    assert json.loads(out) == {"t": "\ud83d", "model": "b"}


def test_what_is_no_object_is_said_to_be() -> None:
    with pytest.raises(MalformedJson, match="expected"):
        set_members(b"[1]", {"a": b"1"})


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(
    fields=st.dictionaries(st.text(max_size=4), _VALUES, max_size=6),
    changes=st.dictionaries(st.text(max_size=4), st.none() | st.integers(), max_size=4),
    indent=st.sampled_from([None, 0, 2]),
)
def test_edit_means_what_it_says(
    fields: dict[str, object], changes: dict[str, int | None], indent: int | None
) -> None:
    data = json.dumps(fields, indent=indent, ensure_ascii=bool(indent)).encode()
    values = {key: None if value is None else b"%d" % value for key, value in changes.items()}
    wanted = {**fields, **changes}
    assert json.loads(set_members(data, values)) == {
        key: value for key, value in wanted.items() if key not in changes or value is not None
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r'{"path": "C:\\new\n"}', r"""'{"path": "C:\\new\n"}'"""),
        ("a\nb\x1b[1m", r"'a\nb\x1b[1m'"),
        ("\u202e\ud83d", r"'\u202e\ud83d'"),
        ("it's", '"it\'s"'),
    ],
)
def test_quoted_text_escapes_controls_and_keeps_backslashes(text: str, shown: str) -> None:
    assert quoted(text) == shown
