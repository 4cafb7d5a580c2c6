"""Schemas are changed where a target would refuse them, and nowhere else."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import Raw
from dragoman.core.schemas import (
    EMPTY_SCHEMA,
    MAX_INLINED,
    SchemaRules,
    fix_schema,
    resolve,
    resolve_name,
    satisfies,
    without_nulls,
)
from dragoman.model.parts import CallKind
from dragoman.model.request import Tool

STRICT_CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def fix(
    schema: object, rules: SchemaRules | None = None, *, strict: bool | None = None
) -> tuple[Any, bool | None, tuple[str, ...]]:
    fixed, flag, notes = fix_schema(
        Raw(json.dumps(schema).encode()), rules or SchemaRules(), strict=strict
    )
    return json.loads(bytes(fixed)), flag, notes


def test_a_schema_that_needs_no_change_keeps_its_bytes() -> None:
    schema = Raw(b'{ "type":"object",\n "properties" : {"x":{"type":"number","minimum":1.50}} }')
    assert fix_schema(schema) == (schema, None, ())


@pytest.mark.parametrize(
    "schema", [None, b"null", b"{}", b"true", b"[1]", b'"object"', b"{not json", b"\xff", b"5"]
)
def test_a_missing_or_useless_schema_becomes_the_empty_object(schema: bytes | None) -> None:
    fixed, flag, notes = fix_schema(None if schema is None else Raw(schema))
    assert bytes(fixed) == bytes(EMPTY_SCHEMA)
    assert flag is None
    assert bool(notes) is (schema is not None)


def test_the_schema_false_allows_no_arguments() -> None:
    fixed, _, notes = fix(False)
    assert fixed == {"type": "object", "properties": {}, "additionalProperties": False}
    assert notes


@pytest.mark.parametrize(
    ("schema", "fixed"),
    [
        ({"type": "object"}, {"type": "object", "properties": {}}),
        (
            {"properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
        (
            {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {
                "type": "object",
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
                "properties": {},
            },
        ),
        ({"type": ["object", "null"]}, {"type": "object", "properties": {}}),
        ({"type": "string"}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": []}, {"type": "object", "properties": {}}),
    ],
)
def test_the_top_becomes_an_object_with_properties(schema: object, fixed: object) -> None:
    assert fix(schema)[0] == fixed
    assert fix(schema)[2]
    assert fix(schema, SchemaRules(require_object=False))[0] == schema


def test_upper_case_types_become_lower_case() -> None:
    """M120"""
    schema = {
        "type": "OBJECT",
        "properties": {
            "x": {"type": "STRING"},
            "y": {"type": ["INTEGER", "null"]},
            "z": {"type": "Custom"},
            "w": {"type": 5},
        },
    }
    assert fix(schema)[0] == {
        "type": "object",
        "properties": {
            "x": {"type": "string"},
            "y": {"type": ["integer", "null"]},
            "z": {"type": "Custom"},
            "w": {"type": 5},
        },
    }


def test_refused_keywords_are_dropped_but_not_properties_that_are_called_so() -> None:
    """M121"""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "ref": "Q",
        "type": "object",
        "properties": {
            "multiple": {"type": "boolean", "ref": "R"},
            "ref": {"type": "string"},
            "$schema": {"type": "string"},
            "type": {"type": "STRING"},
        },
        "additionalProperties": False,
    }
    fixed, _, notes = fix(schema)
    assert fixed == {
        "type": "object",
        "properties": {
            "multiple": {"type": "boolean"},
            "ref": {"type": "string"},
            "$schema": {"type": "string"},
            "type": {"type": "string"},
        },
        "additionalProperties": False,
    }
    assert "dropped $schema at /" in notes
    assert "dropped ref at /properties/multiple" in notes


def test_values_that_look_like_schemas_are_left_alone() -> None:
    value = {"type": "OBJECT", "ref": 1, "x": None}
    schema = {
        "type": "object",
        "properties": {
            "a": {"const": value, "default": None, "enum": [value], "examples": [value]}
        },
    }
    assert fix(schema) == (schema, None, ())


def test_every_place_of_a_schema_is_reached() -> None:
    bad, good = {"type": "STRING", "ref": 1}, {"type": "string"}
    places: dict[str, Any] = {
        "items": bad,
        "prefixItems": [bad],
        "anyOf": [bad, bad],
        "oneOf": [bad],
        "allOf": [bad],
        "not": bad,
        "if": bad,
        "then": bad,
        "else": bad,
        "contains": bad,
        "propertyNames": bad,
        "additionalProperties": bad,
        "unevaluatedItems": bad,
        "patternProperties": {"^x": bad},
        "dependentSchemas": {"y": bad},
        "dependencies": {"y": bad, "z": ["a"]},
        "$defs": {"d": bad},
        "definitions": {"d": bad},
        "properties": {"a/b": bad},
        "properties/a/b": "an unknown keyword",
    }
    fixed, _, _ = fix({"type": "object", **places})
    expected = json.loads(json.dumps(places).replace(json.dumps(bad), json.dumps(good)))
    assert fixed == {"type": "object", **expected}


def test_a_list_of_items_is_a_list_of_schemas() -> None:
    assert fix({"type": "object", "properties": {"a": {"items": [{"type": "STRING"}]}}})[0] == {
        "type": "object",
        "properties": {"a": {"items": [{"type": "string"}]}},
    }


def test_null_keywords_are_absent() -> None:
    fixed, _, notes = fix({"type": "object", "properties": {}, "required": None, "title": None})
    assert fixed == {"type": "object", "properties": {}}
    assert "dropped a null required at /" in notes


def test_boolean_schemas_become_objects_where_validators_stumble_over_them() -> None:
    schema = {
        "type": "object",
        "properties": {"any": True, "none": False},
        "additionalProperties": True,
    }
    assert fix(schema)[0] == {
        "type": "object",
        "properties": {"any": {}, "none": {"not": {}}},
        "additionalProperties": True,
    }


def test_a_schema_nested_deeper_than_any_real_one_is_kept_and_not_walked_to_the_end() -> None:
    schema: dict[str, Any] = {"type": "STRING"}
    for _ in range(90):
        schema = {"items": schema}
    top = {"type": "object", "properties": {"a": schema}}
    assert fix(top, SchemaRules(inline_refs=True)) == (top, None, ())
    fixed, flag, _ = fix(top, SchemaRules(close_strict=True), strict=True)
    assert fixed["properties"]["a"]["anyOf"][0] == schema
    assert flag is False


def test_nesting_without_end_is_replaced() -> None:
    deep = Raw(b'{"default":' + b"[" * 300 + b"]" * 300 + b"}")
    assert bytes(fix_schema(deep)[0]) == bytes(EMPTY_SCHEMA)
    deeper = Raw(b"[" * 100_000)
    assert bytes(fix_schema(deeper)[0]) == bytes(EMPTY_SCHEMA)


@pytest.mark.parametrize("strict", [True, None])
def test_notes_and_paths_stay_small_however_long_the_names(strict: bool | None) -> None:
    inner = {f"b{number}": {"type": None} for number in range(2_000)}
    below = {"type": "object", "properties": inner, "additionalProperties": False}
    schema = {"type": "object", "properties": {"a" * 200_000: below}}
    tracemalloc.start()
    try:
        _, flag, notes = fix(schema, SchemaRules(close_strict=True), strict=strict)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(map(len, notes)) < 100_000
    assert notes[100].endswith("more changes")
    assert len(notes) == (102 if strict else 101)
    assert peak < 20_000_000
    assert not flag


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"additionalProperties": True}, "allows other properties"),
        ({"required": []}, "a is not required"),
        ({"required": "a"}, "a is not required"),
        ({"properties": {"a": {}}}, "no type at /properties/a"),
        ({"properties": {"a": {"type": "object", "properties": {}}}}, "at /properties/a allows"),
        ({"properties": {"a": {"type": ["object", "null"]}}}, "at /properties/a allows"),
        ({"properties": {"a": {"type": "array", "items": True}}}, "no type"),
        ({"properties": {"a": {"type": "array", "maxItems": 3}}}, "maxItems at /properties/a"),
        ({"properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"type": "null"}}}, ""),
    ],
)
def test_strict_is_kept_only_for_a_schema_closed_at_every_level(
    change: dict[str, Any], reason: str
) -> None:
    """M118"""
    rules = SchemaRules(not_strict=frozenset({"maxItems"}))
    fixed, flag, notes = fix({**STRICT_CLOSED, **change}, rules, strict=True)
    assert flag is (not reason)
    if reason:
        assert notes[-1].startswith("strict removed: ")
        assert reason in notes[-1]
    else:
        assert notes == ()
    assert fixed["type"] == "object"


@pytest.mark.parametrize("flag", [None, False])
def test_a_flag_that_is_not_set_is_passed_on(flag: bool | None) -> None:
    assert fix({"type": "object", "properties": {}}, strict=flag)[1] is flag


def test_taking_strict_back_does_not_touch_the_schema() -> None:
    schema = Raw(b'{"type": "object", "properties": {}}')
    fixed, flag, notes = fix_schema(schema, strict=True)
    assert (fixed, flag, len(notes)) == (schema, False, 1)


def test_a_strict_schema_is_closed_where_the_rules_ask_for_it() -> None:
    """M118"""
    schema = {
        "type": "object",
        "properties": {
            "o": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            "kind": {"type": "string", "enum": ["x"]},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "maybe": {"type": ["string", "null"], "enum": ["x", None]},
            "fixed": {"type": "string", "const": "c"},
        },
        "required": ["o"],
    }
    fixed, flag, _ = fix(schema, SchemaRules(close_strict=True), strict=True)
    assert flag is True
    assert fixed == {
        "type": "object",
        "properties": {
            "o": {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
                "additionalProperties": False,
            },
            "kind": {"type": ["string", "null"], "enum": ["x", None]},
            "either": {
                "anyOf": [
                    {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                    {"type": "null"},
                ]
            },
            "maybe": {"type": ["string", "null"], "enum": ["x", None]},
            "fixed": {"anyOf": [{"type": "string", "const": "c"}, {"type": "null"}]},
        },
        "required": ["o", "kind", "either", "maybe", "fixed"],
        "additionalProperties": False,
    }


def test_closing_leaves_open_objects_open_and_takes_the_flag_back() -> None:
    schema = {
        "type": "object",
        "properties": {"map": {"type": "object", "additionalProperties": {"type": "string"}}},
    }
    fixed, flag, notes = fix(schema, SchemaRules(close_strict=True), strict=True)
    assert flag is False
    assert fixed["properties"]["map"]["additionalProperties"] == {"type": "string"}
    assert "allows other properties" in notes[-1]


def test_closing_survives_properties_that_are_no_schemas() -> None:
    properties: dict[str, Any] = {"a": 5, "b": {}}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    fixed, flag, _ = fix(schema, SchemaRules(close_strict=True), strict=True)
    assert fixed["properties"] == {"a": 5, "b": {}}
    assert fixed["required"] == ["a", "b"]
    assert flag is False


def test_closing_an_object_without_properties() -> None:
    schema = {"type": "object", "properties": {"o": {"type": "object"}}, "required": ["o"]}
    fixed, flag, _ = fix(schema, SchemaRules(close_strict=True), strict=True)
    assert flag is True
    assert fixed["properties"]["o"] == {
        "type": "object",
        "additionalProperties": False,
        "properties": {},
        "required": [],
    }


def test_a_closed_schema_is_not_closed_again() -> None:
    fixed, flag, notes = fix(STRICT_CLOSED, SchemaRules(close_strict=True), strict=True)
    assert (fixed, flag, notes) == (STRICT_CLOSED, True, ())


INLINE = SchemaRules(inline_refs=True)


def test_references_stay_unless_the_rules_ask() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/d"}},
        "$defs": {"d": {"type": "string"}},
    }
    assert fix(schema) == (schema, None, ())


def test_local_references_are_inlined_with_their_siblings() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/d", "description": "mine"},
            "b": {"type": "array", "items": {"$ref": "#/definitions/e"}},
            "$ref": {"type": "string"},
        },
        "$defs": {"d": {"type": "object", "properties": {"x": {"$ref": "#/definitions/e"}}}},
        "definitions": {"e": {"type": "integer"}},
    }
    fixed, _, notes = fix(schema, INLINE)
    assert fixed == {
        "type": "object",
        "properties": {
            "a": {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "description": "mine",
            },
            "b": {"type": "array", "items": {"type": "integer"}},
            "$ref": {"type": "string"},
        },
    }
    assert "inlined #/$defs/d" in notes


def test_definitions_nobody_uses_go_and_a_schema_without_any_is_untouched() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    assert fix(schema, INLINE) == (schema, None, ())
    assert fix({**schema, "$defs": {"d": True}}, INLINE)[0] == schema


def test_a_recursive_reference_is_inlined_once_and_keeps_its_definition() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    schema = {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/node"}},
        "$defs": {"node": node},
    }
    fixed, _, _ = fix(schema, INLINE)
    assert fixed == {"type": "object", "properties": {"n": node}, "$defs": {"node": node}}


@pytest.mark.parametrize("reference", ["other.json", "#/$defs/none", "#/$defs/list"])
def test_a_reference_that_leads_nowhere_stays(reference: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": reference}}, "$defs": {"list": [1]}}
    assert fix(schema, INLINE)[0] == schema


def test_a_keyword_that_should_be_a_schema_and_is_none_stays() -> None:
    schema = {"type": "object", "properties": {"a": {"items": "x", "not": [1]}}}
    assert fix(schema, INLINE) == (schema, None, ())


def test_references_that_multiply_stop_at_the_limit() -> None:
    defs: dict[str, Any] = {"d0": {"description": "x" * 1000}}
    for level in range(1, 30):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        defs[f"d{level}"] = {"properties": {"l": below, "r": below}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d29"}}, "$defs": defs}
    fixed, _, _ = fix(schema, INLINE)
    assert len(json.dumps(fixed)) < 3 * MAX_INLINED
    assert fixed["$defs"] == defs
    few = {name: defs[name] for name in list(defs)[:12]}
    short = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d11"}}, "$defs": few}
    fixed, _, _ = fix(short, INLINE)
    assert len(json.dumps(fixed)) < 40 * len(json.dumps(short))
    assert fixed["$defs"] == few


def test_references_nested_deeper_than_we_walk_stay() -> None:
    defs = {f"d{n}": {"items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(60)}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs}
    fixed, _, _ = fix(schema, INLINE)
    assert fixed["$defs"] == defs


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("type", "properties", "items", "anyOf", "$ref", "$defs", "required", "enum"),
                    *("additionalProperties", "not", "ref", "a", "const", "allOf", "dependencies"),
                ]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.booleans(), st.booleans(), st.sampled_from([None, False, True]))
def test_any_json_becomes_an_object_schema_and_then_stays(
    schema: object, close: bool, inline: bool, strict: bool | None
) -> None:
    rules = SchemaRules(close_strict=close, inline_refs=inline)
    fixed, flag, notes = fix_schema(Raw(json.dumps(schema).encode()), rules, strict=strict)
    value = json.loads(bytes(fixed))
    assert value["type"] == "object"
    assert isinstance(value["properties"], dict)
    assert flag is strict or (strict and flag is False and notes)
    if not inline:
        again, second, _ = fix_schema(fixed, rules, strict=flag)
        assert bytes(again) == bytes(fixed)
        assert second is flag


DOCUMENT = {"$defs": {"a/b": {"x": 1}, "~": 2, "list": [10, {"y": 3}]}, "": 4}


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("#", DOCUMENT),
        ("#/$defs/a~1b/x", 1),
        ("#/%24defs/~0", 2),
        ("#/$defs/list/0", 10),
        ("#/$defs/list/1/y", 3),
        ("#/", 4),
    ],
)
def test_a_local_reference_is_followed(reference: str, value: object) -> None:
    assert resolve(DOCUMENT, reference) == value


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "other.json#/x",
        "#anchor",
        "#/nothing",
        "#/$defs/list/2",
        "#/$defs/list/-1",
        "#/$defs/list/99999999999999999999",
        "#/$defs/list/x",
        "#/$defs/~0/deeper",
    ],
)
def test_a_reference_to_nothing_here_gives_none(reference: str) -> None:
    assert resolve(DOCUMENT, reference) is None


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


def test_a_value_and_a_schema_that_are_nested_deeply_give_an_answer() -> None:
    deep: list[object] = []
    for _ in range(700):
        deep = [deep]
    assert not satisfies({"enum": [1]}, deep)
    assert not satisfies({"enum": [deep]}, 1)
    assert satisfies({"type": deep}, 1)
    tools = [tool(name, {"properties": {"a": {"enum": [1]}}}) for name in ("one", "other")]
    assert resolve_name(json.dumps({"a": deep}), tools, 0, "schema") is None


def test_comparisons_with_long_lists_of_choices_are_counted() -> None:
    """A hundred million comparisons would take minutes."""
    schema = {"items": {"enum": [*range(100_000)]}}
    assert satisfies(schema, [99_999] * 4)
    assert not satisfies(schema, [99_999] * 1000)
    members = {str(number): {"enum": [*range(100_000)]} for number in range(1000)}
    nulls = dict.fromkeys(members)
    left = without_nulls({"properties": members}, nulls)
    assert left == dict.fromkeys([*members][4:])


def test_endless_references_and_alternatives_are_not_satisfied() -> None:
    assert not satisfies({"$ref": "#"}, 1)
    twice = {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert not satisfies(twice, 1)
    doubling = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert not satisfies(doubling, 1)


ANY_JSON = st.recursive(
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


@given(ANY_JSON, ANY_JSON)
def test_any_schema_gives_an_answer(schema: object, value: object) -> None:
    assert satisfies(schema, value) in {True, False}
