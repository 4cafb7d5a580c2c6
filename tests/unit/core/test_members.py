"""Members of a JSON object changed in place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.members import replace_member, set_members
from dragoman.errors import MalformedJson

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
