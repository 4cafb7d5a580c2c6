"""Arguments are checked against schemas that may be anything, in bounded time and in words a model can act on."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman._json import Raw, dumps_document, raw
from dragoman.engine import validation
from dragoman.engine.json_schema import cost_of_pattern, problems_with
from dragoman.engine.validation import MAX_ARGUMENTS, check_arguments
from dragoman.model.request import Tool

SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "mode": {"enum": ["fast", "slow"]},
        "one": {"const": 1},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "inner": {"type": "object", "properties": {"list": {"items": {"type": "string"}}}},
    },
    "required": ["count"],
    "additionalProperties": False,
}
# Nothing here may take more CPU time; the machine may be busy.
SECONDS = 5.0


def check(schema: object, text: str) -> str | None:
    return check_arguments(Tool(name="probe", schema=raw(schema)), text)


def complaint(schema: object, text: str) -> str:
    found = check(schema, text)
    assert found is not None
    return found


def test_arguments_that_fit_are_let_through() -> None:
    assert check(SCHEMA, '{"count": 3, "mode": "fast", "note": null}') is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "'count' is a required property; it is missing"),
        ("", "'count' is a required property; it is missing"),
        ('{"count": "3"}', 'count: expected integer, got "3"'),
        ('{"count": 1, "mode": "odd"}', 'mode: expected one of ["fast","slow"], got "odd"'),
        ('{"count": 1, "extra": 2}', 'known are ["count","inner","mode","note","one"]'),
        ('{"count": 1, "note": 2}', "expected string, got 2; or expected null, got 2"),
        ('{"count": 1, "one": 2}', "one: expected 1, got 2"),
        ('{"count": 1, "inner": {"list": ["a", 2]}}', "inner.list[1]: expected string, got 2"),
    ],
)
def test_a_complaint_says_where_what_was_expected_and_what_came(text: str, said: str) -> None:
    assert said in complaint(SCHEMA, text)


def test_several_errors_are_reported_at_once() -> None:
    found = complaint(SCHEMA, '{"mode": 1, "note": 2, "more": 3}')
    assert len(found.splitlines()) == 5
    assert "probe" in found.splitlines()[0]


def test_only_the_first_errors_are_listed() -> None:
    schema = {"properties": {"list": {"items": {"type": "integer"}}}}
    found = complaint(schema, '{"list": [' + ",".join(['"x"'] * 1000) + "]}")
    assert found.endswith("… and more; correct these first")
    assert len(found) < 1000


@pytest.mark.parametrize("text", ['{"count": 1', "nonsense", '{"count": NaN}', "[" * 100_000])
def test_text_that_is_not_json_is_reported_as_such(text: str) -> None:
    assert "not valid JSON" in complaint(SCHEMA, text)


@pytest.mark.parametrize("text", ["[]", '"count"', "3", "null"])
def test_arguments_are_one_object(text: str) -> None:
    assert "must be one JSON object" in complaint(SCHEMA, text)


def test_enormous_arguments_are_refused_unread() -> None:
    assert "at most" in complaint(SCHEMA, " " * (MAX_ARGUMENTS + 1))


def test_an_enormous_value_is_not_repeated_in_the_complaint() -> None:
    found = complaint(SCHEMA, '{"count": "' + "a" * 1_000_000 + '"}')
    assert "a string of 1,000,000 characters" in found
    assert len(found) < 1000


def test_an_enormous_property_name_is_refused() -> None:
    assert "property name of 5,000" in complaint(SCHEMA, '{"' + "n" * 5000 + '": 1}')


def test_freeform_input_is_not_checked() -> None:
    assert check_arguments(Tool(name="patch", kind="custom"), "*** Begin Patch") is None


def test_a_tool_without_schema_takes_any_object() -> None:
    assert check_arguments(Tool(name="free"), '{"a": 1}') is None


def test_the_draft_that_the_schema_names_is_used() -> None:
    # A list of `items` is a tuple in draft 7 and no schema in 2020-12.
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"pair": {"items": [{"type": "integer"}]}},
    }
    assert "pair[0]" in complaint(schema, '{"pair": ["x"]}')


@pytest.mark.parametrize("uri", ["urn:none", "https://example.com/none", "", 7])
def test_an_unknown_draft_is_taken_for_the_newest(uri: object) -> None:
    found = check({"$schema": uri, "type": "object", "required": ["a"]}, "{}")
    assert found is not None
    assert "missing" in found


def test_a_draft_whose_name_is_no_address_is_taken_for_the_newest() -> None:
    schema = {"$schema": "http://[", "properties": {"b": {"required": ["a"]}}}
    assert "b: 'a' is a required property" in complaint(schema, '{"b": {}}')


@pytest.mark.parametrize(
    "schema",
    [
        b"{",
        b"[]",
        b"3",
        b'{"type":"strin"}',
        b'{"type":"object","required":"abc"}',
        b'{"properties":[]}',
        b'{"$ref":"#/$defs/none"}',
        b'{"$ref":"http://127.0.0.1:9/remote.json"}',
        b'{"$ref":"#"}',
        b'{"pattern":"("}',
        b'{"properties":{"a":{"pattern":"\\\\p{L}+"}}}',
        b'{"allOf":[{"$ref":"#"},{"$ref":"#"}]}',
    ],
)
def test_a_broken_schema_refuses_nothing_and_fetches_nothing(schema: bytes) -> None:
    assert check_arguments(Tool(name="odd", schema=Raw(schema)), '{"a": "b"}') is None


def test_a_broken_schema_still_asks_for_its_required_members() -> None:
    google = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]}
    assert '"a" is a required property' in complaint(google, "{}")
    assert "expected" in complaint(google, '{"a": 1}')
    assert check(google, '{"a": "x"}') is None


def test_without_the_library_the_small_check_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_library", lambda: None)
    assert check(SCHEMA, '{"count": 1, "note": 3}') is None  # alternatives are beyond it
    assert '"count" is a required property' in complaint(SCHEMA, "{}")
    assert '"extra" was unexpected' in complaint(SCHEMA, '{"count": 1, "extra": 1}')
    assert 'got "x"' in complaint(SCHEMA, '{"count": "x"}')


def doubling() -> object:
    steps: dict[str, object] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)
    }
    return {"$defs": {**steps, "d40": {"type": "object"}}, "$ref": "#/$defs/d0"}


TAKES_LONG: list[tuple[object, str]] = [
    (doubling(), "{}"),
    ({"properties": {"p": {"pattern": "^(a+)+$"}}}, '{"p":"' + "a" * 50 + '!"}'),
    ({"properties": {"p": {"pattern": "a*a*a*a*b"}}}, '{"p":"' + "a" * 5000 + '"}'),
    ({"patternProperties": {"^(a|a)+$": {}}}, '{"' + "a" * 50 + '!":1}'),
    (
        {"properties": {"l": {"uniqueItems": True}}},
        '{"l":[' + ",".join(f'{{"a":{i}}}' for i in range(50_000)) + "]}",
    ),
    (
        {"properties": {"l": {"items": {"type": "integer"}}}},
        '{"l":[' + "1," * 450_000 + "1]}",
    ),
    (
        {"properties": {"l": {"anyOf": [{"type": "integer"}] * 500}}},
        '{"l":"' + "a" * 5_000_000 + '"}',
    ),
    ({"properties": {"n": {"multipleOf": 0.1}}}, '{"n":1' + "0" * 4000 + "}"),
    (
        {"properties": {"l": {"items": {"enum": list(range(20_000))}}}},
        '{"l":[' + "19999," * 40_000 + "1]}",
    ),
    (
        {"properties": {"l": {"items": {"enum": [[0.5] * 500 + [i] for i in range(1, 101)]}}}},
        '{"l":[' + ",".join(["[" + "0.5," * 500 + "100]"] * 900) + "]}",
    ),
    (
        {"properties": {"l": {"items": {"properties": {f"p{i}": {} for i in range(2_500)}}}}},
        '{"l":[' + "{}," * 150_000 + "{}]}",
    ),
    (
        {"properties": {"l": {"items": {"pattern": "a*b|^a"}}}},
        '{"l":[' + f'"{"a" * 900}",' * 8_000 + '"a"]}',
    ),
    (
        {"patternProperties": {f"x{i}": {} for i in range(5_000)}},
        "{" + ",".join(f'"y{i}":1' for i in range(20_000)) + "}",
    ),
    (
        {"patternProperties": {"a*b": {}}, "additionalProperties": {}},
        "{" + ",".join(f'"{"a" * 500}{i}":1' for i in range(15_000)) + "}",
    ),
    (
        {"properties": {f"p{i}": {} for i in range(2_500)}, "unevaluatedProperties": False},
        "{" + ",".join(f'"p{i % 2500}_{i}":1' for i in range(15_000)) + "}",
    ),
]


def test_nulls_under_references_that_lead_to_each_other_are_removed_in_time() -> None:
    again = {"$ref": "#"}
    below = {"$ref": "#", "properties": {"a": again}}
    schema = {"$ref": "#/$defs/n", "$defs": {"n": below}, "properties": {"a": again, "b": {}}}
    began = time.process_time()
    check(schema, '{"a":' * 20 + '{"b":null}' + "}" * 20)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize(("schema", "text"), TAKES_LONG)
def test_no_schema_and_no_value_takes_long(schema: object, text: str) -> None:
    began = time.process_time()
    assert check(schema, text) is None
    assert time.process_time() - began < SECONDS


def test_output_with_an_enormous_property_name_is_not_checked() -> None:
    began = time.process_time()
    source = b'{"patternProperties":{"a*b":{"type":"string"}}}'
    assert problems_with(source, {"a" * 1_000_000: 1}) is None
    assert problems_with(source, {"ab": 1})
    assert time.process_time() - began < SECONDS


def test_items_that_stand_twice_are_found() -> None:
    schema = {"properties": {"l": {"uniqueItems": True}}}
    assert "occurs twice" in complaint(schema, '{"l":[{"a":1,"b":2},{"b":2.0,"a":1}]}')
    assert "occurs twice" in complaint(schema, '{"l":[[1, {"a": 2}], [1.0, {"a": 2}]]}')
    assert check(schema, '{"l":[1, true, "1"]}') is None
    assert check(schema, '{"l":"none"}') is None


def test_a_pattern_is_checked() -> None:
    schema = {"properties": {"p": {"pattern": "^[a-z]+$"}}}
    assert "does not match" in complaint(schema, '{"p":"A"}')
    assert check(schema, '{"p":"a"}') is None
    assert check(schema, '{"p":1}') is None


@pytest.mark.parametrize(
    "pattern", ["(a+)+", "(a|b)*", r"(\w+\s?)*", r"(a)\1+", "(", "a" * 2000, "((a{2,})b)+"]
)
def test_patterns_that_may_take_long_have_no_cost(pattern: str) -> None:
    assert cost_of_pattern(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "degree"),
    [
        ("abc", 1),
        ("a+", 2),
        ("[+*]+x*", 3),
        (r"\+(ab){3}", 1),
        ("(?:ab)+", 2),
        ("a{,}", 1),
        ("(a?b+){2}", 3),
        ("a|b", 1),
    ],
)
def test_each_repetition_raises_the_cost(pattern: str, degree: int) -> None:
    cost = cost_of_pattern(pattern)
    assert cost is not None
    assert cost.degree == degree


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
keywords = st.sampled_from(
    ["type", "properties", "required", "items", "anyOf", "enum", "$ref", "pattern", "allOf", "not", "if", "$schema",
     "patternProperties", "minimum", "unevaluatedProperties", "$defs", "$id", "$anchor", "$dynamicRef"]
)  # fmt: skip
schemas = st.recursive(
    json_values, lambda inner: st.dictionaries(keywords, inner, max_size=4), max_leaves=12
)


@settings(max_examples=200, deadline=None)
@given(schemas, st.dictionaries(st.text(max_size=5), json_values, max_size=3))
def test_any_schema_and_any_arguments_give_an_answer(
    schema: object, value: dict[str, object]
) -> None:
    found = check_arguments(
        Tool(name="any", schema=raw(schema)), dumps_document(value).decode("utf-8")
    )
    assert found is None or len(found) < 10_000


@pytest.mark.parametrize("text", ['{"count":1,"mode":null}', '{"count":1,"one":null,"note":null}'])
def test_null_for_what_may_be_left_out_is_no_error(text: str) -> None:
    assert check(SCHEMA, text) is None


def test_null_for_what_is_required_is_an_error() -> None:
    assert "count: expected integer" in complaint(SCHEMA, '{"count":null}')
