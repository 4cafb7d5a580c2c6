"""The name that never came: concluded from the schemas, or not at all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import Raw
from dragoman.core.names import resolve_name, satisfies
from dragoman.model.parts import CallKind
from dragoman.model.request import Tool


def tool(name: str, schema: object = None, kind: CallKind = "function") -> Tool:
    raw = None if schema is None else Raw(json.dumps(schema).encode())
    return Tool(name=name, schema=raw, kind=kind)


WEATHER = tool("weather", {"type": "object", "required": ["city"]})
SEARCH = tool("search", {"type": "object", "required": ["query"]})
WEB = tool("web_search", kind="web_search")


def test_one_tool_is_the_answer_whatever_the_arguments() -> None:
    assert resolve_name("{broken", [WEB, WEATHER], 5, "schema") == "weather"
    assert resolve_name("", [WEATHER], 5, "positional") == "weather"


def test_the_only_tool_whose_schema_is_satisfied() -> None:
    tools = [WEATHER, SEARCH, WEB]
    assert resolve_name('{"query":"x"}', tools, 0, "schema") == "search"
    assert resolve_name('{"city":"x"}', tools, 1, "schema") == "weather"


@pytest.mark.parametrize("arguments", ["{}", "", "{broken", "[]", '{"city":1,"query":2}'])
def test_no_tool_or_several_give_no_name(arguments: str) -> None:
    assert resolve_name(arguments, [WEATHER, SEARCH], 0, "schema") is None


def test_without_tools_there_is_no_name() -> None:
    assert resolve_name("{}", [], 0, "schema") is None
    assert resolve_name("{}", [WEB, tool("")], 0, "positional") is None


def test_empty_arguments_are_an_empty_object() -> None:
    assert resolve_name(" ", [WEATHER, tool("now", {"type": "object"})], 0, "schema") == "now"


def test_a_tool_without_a_usable_schema_takes_any_object() -> None:
    broken = Tool(name="broken", schema=Raw(b"{"))
    assert resolve_name('{"x":1}', [WEATHER, broken], 0, "schema") == "broken"
    assert resolve_name('{"x":1}', [WEATHER, tool("bare")], 0, "schema") == "bare"


def test_text_that_is_no_json_is_meant_for_the_custom_tool() -> None:
    tools = [WEATHER, tool("apply_patch", kind="custom"), SEARCH]
    assert resolve_name("*** Begin Patch", tools, 0, "schema") == "apply_patch"
    assert resolve_name('{"city":"x"}', tools, 0, "schema") == "weather"


def test_the_positional_rule_takes_the_nth_tool() -> None:
    tools = [WEATHER, WEB, SEARCH]
    names = [resolve_name("{}", tools, position, "positional") for position in range(-1, 4)]
    assert names == [None, "weather", None, "search", None]


KEYWORDS: list[tuple[object, list[object], list[object]]] = [
    ({"type": "string"}, ["x", ""], [1, None, [], {}]),
    ({"type": "STRING"}, ["x"], [1]),
    ({"type": "integer"}, [1, 2.0, -3], [1.5, True, "1"]),
    ({"type": "number"}, [1, 1.5], [True, "1", None]),
    ({"type": "boolean"}, [True], [1, 0, None]),
    ({"type": "null"}, [None], [0, ""]),
    ({"type": "array"}, [[]], [{}]),
    ({"type": ["string", "null"]}, ["x", None], [1]),
    ({"type": "string", "nullable": True}, ["x", None], [1]),
    ({"type": "unheard-of"}, [1, None], []),
    ({"enum": ["a", 1]}, ["a", 1], ["b", True]),
    ({"const": False}, [False], [0, None]),
    ({"const": None}, [None], [0]),
    ({"required": ["a"]}, [{"a": None}, "no object"], [{}]),
    (
        {"properties": {"a": {"type": "string"}}},
        [{}, {"a": "x"}, {"b": 1}],
        [{"a": 1}],
    ),
    (
        {"properties": {"a": {}}, "additionalProperties": False},
        [{"a": 1}, {}],
        [{"b": 1}],
    ),
    ({"additionalProperties": {"type": "string"}}, [{"a": "x"}], [{"a": 1}]),
    ({"items": {"type": "string"}}, [[], ["x"], "x"], [[1]]),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["x", None], [1]),
    ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, [1.5], [1, "x"]),
    ({"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": 1, "b": 2}], [{"a": 1}]),
    (
        {"$ref": "#/$defs/d", "$defs": {"d": {"type": "string"}}},
        ["x"],
        [1],
    ),
    ({"$ref": "https://elsewhere"}, [1], []),
    ({"properties": {"a": False}}, [{}], [{"a": 1}]),
    (True, [1], []),
    (False, [], [1]),
    ({"minimum": 5, "pattern": "x", "unknown": {"type": "null"}}, [1, "y"], []),
]


@pytest.mark.parametrize(("schema", "good", "bad"), KEYWORDS)
def test_the_known_keywords(schema: object, good: list[object], bad: list[object]) -> None:
    assert [satisfies(schema, value) for value in good] == [True] * len(good)
    assert [satisfies(schema, value) for value in bad] == [False] * len(bad)


def test_a_schema_that_refers_to_itself_is_walked_with_the_value() -> None:
    tree = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "required": ["name"],
                "properties": {"children": {"items": {"$ref": "#/$defs/node"}}},
            }
        },
    }
    assert satisfies(tree, {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}]})
    assert not satisfies(tree, {"name": "a", "children": [{"name": "b", "children": [{"x": 1}]}]})


def test_endless_references_and_alternatives_are_not_satisfied() -> None:
    assert not satisfies({"$ref": "#"}, 1)
    twice = {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert not satisfies(twice, 1)
    doubling = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert not satisfies(doubling, 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "required", "properties", "items", "anyOf", "$ref", "enum", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(JSON, JSON)
def test_any_schema_gives_an_answer(schema: object, value: object) -> None:
    assert satisfies(schema, value) in {True, False}
