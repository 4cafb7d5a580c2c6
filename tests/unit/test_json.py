"""JSON: what is read although it is odd, what is refused, and what is safe to write into an SSE data line."""

import json
from contextlib import suppress
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Struct, UnsetType

from dragoman._json import (
    FAST_FAILURES,
    MAX_VALUES,
    Raw,
    as_object,
    dumps,
    dumps_canonical,
    dumps_document,
    dumps_each,
    dumps_text,
    dumps_texts,
    escape_separators,
    has_too_many_values,
    is_prefix,
    is_same_value,
    is_strict,
    loads,
    raw,
    shape_of,
    typed_decoder,
)
from dragoman.errors import MalformedJson
from strategies import json_texts, json_values, texts

HIGH = "\ud83d"
SEPARATORS = "\u2028\u2029\u0085"
DEEP = "[" * 100_000


# --- reading ---------------------------------------------------------------------------------------------------------


@given(json_texts())
def test_what_is_read_is_what_the_standard_library_reads(text: str) -> None:
    assert loads(text) == json.loads(text)
    assert loads(text.encode()) == json.loads(text)
    assert is_strict(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'"\\ud83d"', HIGH),
        ('"' + HIGH + '"', HIGH),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b"1e999", float("inf")),
        (b"1" * 5000, float("inf")),
        (b" [1 , 2]\r\n", [1, 2]),
        (b'{"a":1,"a":2}', {"a": 2}),
    ],
)
def test_odd_json_is_read(text: bytes | str, value: object) -> None:
    assert loads(text) == value
    assert is_strict(text)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" ", b"{", b"[1,]", b"{'a':1}", b"NaN", b"[Infinity]", b"-Infinity", b"01", b"1.", b"+1"),
        *(b'"\xff"', b"\xff", b"\xef\xbb\xbf{}", b'"a\nb"', b'"\\x"', b"{}{}", b"tru", DEEP.encode()),
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused_with_our_own_error(text: bytes) -> None:
    with pytest.raises(MalformedJson, match="expected JSON"):
        loads(text)
    with pytest.raises(MalformedJson):
        as_object(text)
    assert not is_strict(text)


@given(st.binary(max_size=40) | st.text(st.characters(), max_size=20))
def test_no_input_raises_anything_else(data: bytes | str) -> None:
    with suppress(MalformedJson):
        loads(data)
    with suppress(MalformedJson):
        as_object(data)


def test_the_message_shows_the_beginning_of_what_came() -> None:
    with pytest.raises(MalformedJson, match=r"got '<html>': "):
        loads("<html>")
    with pytest.raises(MalformedJson, match=r"got '\?{60}…': "):
        loads(b"?" * 61)


def spaced_object(fields: dict[str, str], space: str) -> bytes:
    """The object with these JSON texts as values, and white space wherever it may stand."""
    pairs = (f"{json.dumps(key)}{space}:{space}{text}" for key, text in fields.items())
    inside = f"{space},{space}".join(pairs)
    return f"{space}{{{space}{inside}{space}}}{space}".encode()


SPACES = st.sampled_from(("", " ", "\n\t", "\r\n"))
VALUES = json_texts().map(str.strip)


@given(st.dictionaries(texts(), VALUES, max_size=4), SPACES)
def test_the_fields_of_an_object_keep_their_bytes(fields: dict[str, str], space: str) -> None:
    found = as_object(spaced_object(fields, space))
    assert {key: bytes(value).decode() for key, value in found.items()} == fields


@given(st.dictionaries(texts(), VALUES, max_size=3), SPACES)
def test_the_fields_keep_their_bytes_when_msgspec_refuses_the_object(
    fields: dict[str, str], space: str
) -> None:
    fields = {HIGH: '{"x":1.0,"x":1e999}', **fields, "last": "1" * 5000}
    found = as_object(spaced_object(fields, space))
    assert {key: bytes(value).decode() for key, value in found.items()} == fields


def test_a_bare_surrogate_in_a_field_becomes_its_escape() -> None:
    assert bytes(as_object('{"a":["' + HIGH + '"]}')["a"]) == b'["\\ud83d"]'
    assert as_object('{"\\ud83d":{}}') == {HIGH: Raw(b"{}")}
    assert as_object(' {"' + HIGH + '" : 1} ') == {HIGH: Raw(b"1")}


@pytest.mark.parametrize("data", [b"[1]", b"null", b'"a"', b"1e999"])
def test_json_of_another_type_is_no_object(data: bytes) -> None:
    with pytest.raises(MalformedJson, match="expected a JSON object"):
        as_object(data)


def test_invalid_utf_8_inside_a_field_is_refused() -> None:
    with pytest.raises(MalformedJson, match="utf-8"):
        as_object(b'{"a":{"b":"\xff"}}')
    assert as_object('{"a":"é"}'.encode()) == {"a": Raw('"é"'.encode())}


def test_a_typed_decoder_fails_only_in_the_ways_it_says() -> None:
    class Wire(Struct):
        text: str

    decode = typed_decoder(Wire)
    assert decode(b'{"text":"a","other":1}') == Wire("a")
    for data in (
        b"",
        b"[]",
        b'{"text":1}',
        b'{"text":"\\ud83d"}',
        b'{"text":"\xff"}',
        DEEP.encode(),
    ):
        with pytest.raises(FAST_FAILURES):
            decode(data)


# --- beginnings ------------------------------------------------------------------------------------------------------


@given(json_texts())
@example('{"a":[true,false,null,-1.5e+10,-0,"\\u00e9\\\\\\"",{}],"b":1E-7}')
@example(' [ "x" , 1 ] ')
def test_every_beginning_of_json_is_a_prefix(text: str) -> None:
    for end in range(len(text) + 1):
        assert is_prefix(text[:end]), text[:end]


@pytest.mark.parametrize(
    "text",
    [
        *("{{", "{,", "[1 2", "nulx", "[t,", "[--", "{}{", "{}x", "[01", "N", "NaN", "[-I", "]", "1.x", "x", "xt"),
        *('["\\x', '["\\u12g', '["\\u12"', '["a\n', '{"a" 1', '{"a":1}.', '{"a":1}e', "[tr ", "\x0b", "[1\xa0"),
        *('"\\u12g\\u1', '"\x01\\u1', "[1,]", '{"a":1,}', "{1", "[.", "[e", '"a"e', "[1.e"),
    ],
)  # fmt: skip
def test_what_no_text_can_make_json_is_no_prefix(text: str) -> None:
    assert not is_prefix(text)


def test_a_text_nested_too_deep_may_be_a_prefix() -> None:
    assert is_prefix(DEEP)


# --- writing ---------------------------------------------------------------------------------------------------------


@given(json_values())
def test_what_is_written_reads_back(value: object) -> None:
    assert json.loads(dumps(value)) == value
    assert json.loads(dumps_document(value)) == value


@given(texts() | st.text(st.characters(), max_size=8))
def test_a_string_reads_back_and_never_splits_a_line(text: str) -> None:
    for written in (dumps_text(text), dumps(text)):
        assert json.loads(written) == text
        assert len(f"a{written.decode()}b".splitlines()) == 1


def test_line_separators_are_escaped_wherever_they_stand() -> None:
    expected = b'"\\u2028\\u2029\\u0085"'
    assert dumps_text(SEPARATORS) == expected
    assert dumps({"a": Raw(f'"{SEPARATORS}"'.encode())}) == b'{"a":' + expected + b"}"
    assert escape_separators(SEPARATORS.encode()) == expected[1:-1]
    assert escape_separators("é漢â€".encode()) == "é漢â€".encode()


def test_line_ends_inside_a_raw_value_become_spaces_in_a_data_line() -> None:
    pretty = Raw(b'{\n  "a": 1,\r\n  "b": "\\n"\r}')
    assert dumps({"x": pretty}) == b'{"x":{   "a": 1,    "b": "\\n" }}'


def test_a_raw_value_keeps_every_byte_in_a_document() -> None:
    pretty = f'{{\n "a": 1.0, "a": "{SEPARATORS}" }}'.encode()
    assert dumps_document({"x": Raw(pretty)}) == b'{"x":' + pretty + b"}"


def test_a_lone_surrogate_is_written_as_its_escape() -> None:
    assert dumps_text(HIGH + "é") == b'"\\ud83d\\u00e9"'
    assert dumps(HIGH) == b'"\\ud83d"'


def test_beside_a_lone_surrogate_everything_is_written_as_usual() -> None:
    class Tagged(Struct, tag="kind", omit_defaults=True, rename="camel"):
        long_name: str
        other: int = 1
        absent: int | UnsetType = UNSET

    odd = Raw(b'{"x":1.0,"x":\n2}')
    value = {
        "text": HIGH,
        "raw": odd,
        "list": [1, 1.5, None, True, float("inf"), ("a", "é")],
        "struct": Tagged(HIGH),
        5: "five",
    }
    expected = (
        b'{"text":"\\ud83d","raw":{"x":1.0,"x":%b2},"list":[1,1.5,null,true,null,["a","\\u00e9"]],'
        b'"struct":{"type":"kind","longName":"\\ud83d"},"5":"five"}'
    )
    assert dumps(value) == expected % b" "
    assert dumps_document(value) == expected % b"\n"


def test_raw_makes_a_value_opaque() -> None:
    assert raw({"a": 1}) == Raw(b'{"a":1}')


def test_the_pieces_of_a_pair_are_not_a_pair() -> None:
    """Each half alone is written as an escape, so that a reader joins them when they meet in one string."""
    halves = [dumps_text(half)[1:-1] for half in (HIGH, "\ude00")]
    for first, second in pairwise(halves):
        assert json.loads(b'"' + first + second + b'"') == "\U0001f600"


@given(st.lists(texts() | st.sampled_from([HIGH, SEPARATORS, "\u2029a", "é"])))
def test_texts_written_together_are_those_written_alone(many: list[str]) -> None:
    alone = [dumps_text(text) for text in many]
    assert dumps_each(many) == alone
    assert dumps_texts(many, b" , ") == b" , ".join(alone)


def test_canonical_json_is_the_same_for_the_same_value() -> None:
    result = b'{"a":[{"x":1,"y":2}],"b":"\xc3\xa9"}'
    assert dumps_canonical({"b": "é", "a": [{"y": 2, "x": 1}]}) == result
    assert dumps_canonical({"a": [{"x": 1, "y": 2}], "b": "é"}) == result
    assert dumps_canonical({"b": 1, "a": "\ud800"}) == b'{"a":"\\ud800","b":1}'
    assert dumps_canonical([1.0, 1e20, 1.5, True]) == dumps_canonical([1, 10**20, 1.5, True])


def nested(value: object) -> object:
    """So deep that a function that calls itself for every level fails, but the parser does not."""
    for _ in range(700):
        value = [value]
    return value


def test_canonical_json_of_a_value_that_is_nested_deeply() -> None:
    one = nested({"a": 1, "b": [1.0, "c"], "é": {}})
    assert dumps_canonical(one) == dumps_canonical(nested({"é": {}, "b": [1, "c"], "a": 1.0}))
    others: list[object] = [{"a": 1, "b": ["c", 1], "é": {}}, {"a": 1, "b": [1, "c"], "é": []}, "a"]
    for other in others:
        assert dumps_canonical(one) != dumps_canonical(nested(other))
    assert is_same_value(one, one)
    assert not is_same_value(one, 1)


# --- how much there is to read ---------------------------------------------------------------------------------------

UNENDING = 10**12
STRUCTURED = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}"\\a,: ') | st.booleans(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='[]{}"\\k,'), inner),
)
FILLERS = st.sampled_from(["x", ",", "[", '"', "\\", "é"])


def depth_of(value: object) -> int:
    if isinstance(value, list):
        return 1 + max(map(depth_of, cast("list[object]", value)), default=0)
    if isinstance(value, dict):
        return 1 + max(map(depth_of, cast("dict[str, object]", value).values()), default=0)
    return 0


def count_as_told(value: object) -> int:
    """All of them, and once more those that are empty."""
    inner: list[object] = []
    if isinstance(value, list):
        inner = cast("list[object]", value)
    elif isinstance(value, dict):
        inner = [*cast("dict[str, object]", value).values()]
    else:
        return 1
    return 1 + sum(map(count_as_told, inner)) + (not inner)


@given(STRUCTURED, FILLERS, st.integers(65_500, 65_560))
def test_shape_is_that_of_the_value_wherever_it_is_cut_and_whatever_its_strings_hold(
    value: object, filler: str, size: int
) -> None:
    """The text before the value moves it over the border between two slices."""
    data = json.dumps([filler * (size // len(json.dumps(filler)[1:-1])), value]).encode()
    depth = 1 + depth_of(value)
    shape = shape_of(data, max_values=UNENDING, max_depth=UNENDING)
    assert shape.values == 2 + count_as_told(value)
    for limit in range(depth + 2):
        found = shape_of(data, max_values=UNENDING, max_depth=limit).depth
        assert (found > limit) == (depth > limit)


@pytest.mark.parametrize(("body", "depth"), [(b"", 0), (b"[[[", 3), (b"]]]", 0), (b'{"a', 1)])
def test_what_is_no_json_has_some_shape(body: bytes, depth: int) -> None:
    assert shape_of(body, max_values=10, max_depth=10).depth == depth


def test_a_document_with_too_many_values_is_not_read_further_than_to_the_limit() -> None:
    shape = shape_of(b"[" * 10_000_000, max_values=1000, max_depth=UNENDING)
    assert 1000 < shape.values < 100_000


def test_as_many_values_as_are_read_can_be_read_and_twice_as_many_cannot() -> None:
    enough = b"[" + b"0," * (MAX_VALUES - 10) + b"0]"
    more = b"[" + b"0," * MAX_VALUES * 2 + b"0]"
    assert len(loads(enough)) == MAX_VALUES - 9
    assert (has_too_many_values(enough), has_too_many_values(more)) == (False, True)
    with pytest.raises(MalformedJson, match=r"at most 500,000 values"):
        loads(more)
    with pytest.raises(MalformedJson, match=r"at most 500,000 values"):
        as_object(b'{"a":%b}' % more)


def test_a_long_text_is_one_value_whatever_it_says() -> None:
    assert not has_too_many_values(json.dumps("[1,2]," * 1_000_000).encode())


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        '"\\ud83d\\u0041"',
        '["\\\\ud800"]',
        '"\\udc00\\\\"',
        '"\ud800"',
        '"\\uDFFF"',
    ],
)
def test_halves_of_characters_are_strict(text: str) -> None:
    assert is_strict(text)


@pytest.mark.parametrize("text", ['"\\ud8"', '"\\ud8zz"', '["\\ud800"', '"\\\\\\"', '"\\ud800" x'])
def test_what_is_no_json_is_not_strict_with_halves_of_characters_either(text: str) -> None:
    assert not is_strict(text)


@given(st.text(alphabet='[]{},:"\\019eE+-. \n\t\x01trufalsn/ubd\ud800é', max_size=14))
def test_strict_is_what_the_standard_library_reads(text: str) -> None:
    try:
        json.loads(text, parse_constant=int)
    except ValueError:
        assert not is_strict(text)
    else:
        assert is_strict(text)
