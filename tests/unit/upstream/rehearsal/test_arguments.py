"""Arguments satisfy the schema they were made for, use the user's words, and do no harm."""

import json
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman._json import Raw, dumps
from dragoman.model.request import Tool
from dragoman.upstream.rehearsal.arguments import MAX_ITEMS, arguments_for, value_for
from dragoman.upstream.rehearsal.words import read_words
from rehearsal_checker import FORMATS, Json, is_valid

NOTHING_SAID = read_words("")


def tool(name: str, schema: object) -> Tool:
    return Tool(name=name, schema=Raw(json.dumps(schema).encode()))


def made(schema: object, said: str = "", name: str = "lookup", variant: int = 0) -> Json:
    return arguments_for(tool(name, schema), read_words(said), variant)


def member(
    schema: object, said: str = "", name: str = "thing", tool_name: str = "lookup"
) -> object:
    """What a tool's one required parameter gets."""
    whole = {"type": "object", "properties": {name: schema}, "required": [name]}
    return made(whole, said, tool_name)[name]


def strings(*names: str) -> Json:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
    }


# --- the user's words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "city"),
    [
        ("Weather in Paris?", "Paris"),
        ("What's the weather like in New York today?", "New York"),
        ("weather in paris", "paris"),
        ('How warm is "São Paulo, Brazil"?', "São Paulo, Brazil"),
        ("Is Paris nice?", "Paris"),
        ("", "rehearsal"),
    ],
)
def test_string_is_the_name_the_user_gave(said: str, city: str) -> None:
    assert made(strings("city"), said) == {"city": city}


def test_strings_take_the_names_in_order() -> None:
    said = "Book a flight from Paris to Tokyo"
    assert made(strings("origin", "target"), said) == {"origin": "Paris", "target": "Tokyo"}


def test_another_variant_begins_with_another_name() -> None:
    said = "Weather in Paris and Tokyo?"
    assert [made(strings("city"), said, variant=n)["city"] for n in range(3)] == [
        "Paris",
        "Tokyo",
        "Paris",
    ]


def test_question_is_given_whole_to_a_parameter_that_takes_one() -> None:
    assert made(strings("query"), "why is the sky blue") == {"query": "why is the sky blue"}


def test_choice_that_is_mentioned_is_taken() -> None:
    schema = {"enum": ["celsius", "fahrenheit"]}
    assert member(schema, "in Fahrenheit please") == "fahrenheit"
    assert member(schema, "how warm") == "celsius"


def test_number_that_was_said_is_taken_if_it_fits() -> None:
    schema = {"type": "integer", "minimum": 2, "maximum": 10}
    assert member(schema, "book 4 seats") == 4
    assert member(schema, "book 40 seats") == 2


def test_dates_and_addresses_that_were_said_are_taken() -> None:
    said = "from 2026-03-04 at https://example.org/x."
    assert member({"type": "string", "format": "date"}, said) == "2026-03-04"
    assert member({"type": "string"}, said, name="url") == "https://example.org/x"


def test_optional_parameters_are_left_out() -> None:
    schema = strings("city")
    cast("Json", schema["properties"])["sandbox"] = {"enum": ["escalated"]}
    assert made(schema, "Weather in Paris?") == {"city": "Paris"}


def test_tool_that_requires_nothing_gets_its_first_parameter() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "unit": {}}}
    assert made(schema, "Weather in Paris?") == {"city": "Paris"}


# --- no harm ----------------------------------------------------------------------------------------------------------

DANGER = "delete `rm -rf /` and drop 'users' in /etc/passwd on https://evil.example/x"


@pytest.mark.parametrize("name", ["cmd", "command", "shell_command", "commandLine", "script"])
def test_command_is_an_echo(name: str) -> None:
    assert member({"type": "string"}, DANGER, name=name) == "echo rehearsal"


def test_command_in_pieces_is_an_echo() -> None:
    schema = {"type": "array", "items": {"type": "string"}}
    assert member(schema, DANGER, name="command") == ["echo", "rehearsal"]
    assert member({**schema, "minItems": 3}, DANGER, name="command") == ["echo rehearsal"] * 3
    assert member({**schema, "maxItems": 1}, DANGER, name="command") == ["echo rehearsal"]
    short = {"type": "array", "items": {"type": "string", "maxLength": 4}}
    assert member(short, DANGER, name="command") == ["echo"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("code", '"rehearsal"'), ("sql", "SELECT 1"), ("expression", "1 + 1")],
)
def test_what_is_carried_out_does_nothing(name: str, wanted: str) -> None:
    assert member({"type": "string"}, DANGER, name=name) == wanted


def test_query_of_a_database_is_harmless_and_any_other_is_what_was_asked() -> None:
    assert member({"type": "string"}, DANGER, name="query", tool_name="sql_query") == "SELECT 1"
    assert member({"type": "string"}, "cats", name="query", tool_name="search") == "cats"


@pytest.mark.parametrize("tool_name", ["delete_file", "Write", "run_in_terminal", "sendMail"])
def test_tool_that_changes_or_runs_things_gets_none_of_the_users_words(tool_name: str) -> None:
    schema = strings("path", "content", "url", "email")
    assert made(schema, DANGER, tool_name) == {
        "path": "/dev/null/rehearsal",
        "content": "rehearsal",
        "url": "https://example.com/",
        "email": "rehearsal@example.com",
    }
    number = member({"type": "integer"}, "kill 4242", tool_name="kill_process")
    assert number == 1


def test_tool_that_reads_gets_the_path_that_was_said() -> None:
    assert member({"type": "string"}, "read src/main.py", name="file_path") == "src/main.py"
    assert member({"type": "string"}, "read it", name="file_path") == "README.md"


def test_choice_that_changes_something_is_avoided_even_if_mentioned() -> None:
    assert member({"enum": ["delete", "read", "write"]}, "delete it") == "read"
    assert member({"enum": ["POST", "GET"]}, "post it") == "GET"
    assert member({"enum": ["delete"]}) == "delete"


# --- single keywords --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"const": 7}, 7),
        ({"type": "boolean"}, False),
        ({"type": "boolean", "default": True}, True),
        ({"type": "null"}, None),
        ({"type": "string", "default": "metric"}, "metric"),
        ({"type": "string", "default": "", "examples": [3, "", "Oslo"]}, "Oslo"),
        ({"type": "string", "maxLength": 3, "examples": ["Oslo"]}, "reh"),
        ({"type": "integer", "examples": ["x", 1.5, 12]}, 12),
        ({"enum": ["a", "b"], "default": "b"}, "b"),
        ({"type": "integer", "enum": ["x", 3]}, 3),
        ({"type": ["null", "integer"]}, 1),
        ({"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 5}]}, 5),
        ({"type": "STRING"}, "rehearsal"),
        ({"minimum": 3}, 3),
        ({"minItems": 2, "items": {"type": "integer"}}, [1, 1]),
        ({"type": "array", "items": {"type": "integer"}, "default": [4]}, [4]),
        ({"type": "array", "items": False}, []),
        ({"type": "array", "maxItems": 0}, []),
        ({"pattern": "^[A-Z]{3}-\\d{2}$"}, "AAA-11"),
        ({"type": "string", "pattern": "(?=x)x"}, "rehearsal"),
        ({"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}}, {"a": 1}),
        ({"type": "object", "minProperties": 1, "properties": {"a": {"type": "integer"}}}, {"a": 1}),
        ({"type": "array", "contains": {"const": "x"}}, ["x"]),
        (True, "rehearsal"),
        ({}, "rehearsal"),
        (False, None),
        (3, None),
    ],
)  # fmt: skip
def test_value_for_a_keyword(schema: object, wanted: object) -> None:
    assert member(schema) == wanted


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b"3", b"null"])
def test_schema_that_is_none_gives_no_arguments(broken: bytes) -> None:
    assert arguments_for(Tool(name="f", schema=Raw(broken)), NOTHING_SAID) == {}
    assert arguments_for(Tool(name="f"), NOTHING_SAID) == {}


def test_value_for_an_answer_may_be_of_any_type() -> None:
    assert value_for(Raw(b'{"type":"integer"}'), NOTHING_SAID) == 1
    assert value_for(None, NOTHING_SAID) == {}


def test_references_and_recursion_end() -> None:
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "required": ["tree"],
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value", "children", "next"],
                "additionalProperties": False,
            }
        },
    }
    value = made(schema)
    assert is_valid(schema, value)
    assert len(json.dumps(value)) < 2000


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$ref": "#/nowhere"},
        {"$ref": "https://elsewhere.example/schema"},
    ],
)
def test_schema_that_never_ends_is_given_up(schema: Json) -> None:
    assert len(dumps(value_for(Raw(json.dumps(schema).encode()), NOTHING_SAID))) < 1000


def test_alternatives_that_multiply_take_bounded_time() -> None:
    """Eight alternatives, thirty deep: written out they would be 8 to the 30th."""
    definitions: Json = {f"d{n}": {"oneOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 8} for n in range(30)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, "d30": {"type": "string"}}}
    assert value_for(Raw(json.dumps(schema).encode()), NOTHING_SAID) == "rehearsal"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 10**12, "items": {"type": "integer"}},
        {"type": "object", "minProperties": 10**12},
        {"type": "string", "minLength": 10**12},
        {"type": "array", "uniqueItems": True, "minItems": 5, "items": {"const": 1}},
        {"type": "number", "minimum": 10**400},
    ],
)
def test_bounds_that_nobody_can_keep_are_not_kept(schema: Json) -> None:
    assert len(dumps(value_for(Raw(json.dumps(schema).encode()), NOTHING_SAID))) < 1_000_000


def test_items_that_must_differ_do() -> None:
    for items in (
        {"type": "string"},
        {"type": "integer"},
        {"enum": ["a", "b", "c"]},
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    ):
        schema = {"type": "array", "uniqueItems": True, "minItems": 3, "items": items}
        value = cast("list[object]", member(schema))
        assert is_valid(schema, value), value
    flags = {"type": "array", "uniqueItems": True, "minItems": 2, "items": {"type": "boolean"}}
    assert member(flags) == [False, True]


def test_items_are_bounded() -> None:
    schema = {"type": "array", "minItems": MAX_ITEMS + 10, "items": {"type": "integer"}}
    assert len(cast("list[object]", member(schema))) == MAX_ITEMS


def test_alternative_that_is_not_the_only_one_is_passed_over() -> None:
    schema = {"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}
    assert member(schema) == "rehearsal"
    # there is none: any is as good
    assert member({"oneOf": [{"type": "integer"}, {"type": "number"}]}) == 1


def test_references_that_must_hold_together_do() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "$defs": {
            "a": {"$ref": "#/$defs/c"},
            "b": {"allOf": [{"type": "object", "required": ["y"]}]},
            "c": {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}},
        },
    }
    assert made(schema) == {"x": 1, "y": "rehearsal"}


def test_alternatives_are_checked_a_bounded_number_of_times() -> None:
    option = {"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}
    names = [f"p{n:02}" for n in range(10)]
    value = made({"properties": dict.fromkeys(names, option), "required": names})
    assert set(map(type, value.values())) == {str, int}


def test_language_and_time_zone_are_plain() -> None:
    assert made(strings("language", "timezone")) == {"language": "en", "timezone": "UTC"}


def test_dependent_parameters_come_along() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a"],
        "dependentRequired": {"a": ["b"]},
    }
    assert made(schema) == {"a": 1, "b": 1}


# --- any schema at all ------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["city", "count", "path", "query", "command", "email", "when", "é"])


@st.composite
def scalars(draw: st.DrawFn) -> Json:
    low, more, step = draw(st.integers(-50, 50)), draw(st.integers(0, 50)), draw(st.integers(1, 9))
    short = draw(st.integers(0, 12))
    anything = st.one_of(st.text(max_size=5), st.integers(-50, 50), st.none())
    options: list[Json] = [
        {"type": "string", "minLength": short, "maxLength": short + more},
        {"type": "string", "format": draw(st.sampled_from(sorted(FORMATS)))},
        {
            "type": "string",
            "pattern": draw(st.sampled_from(["^a+$", "^[A-Z]{2}\\d+$", "^(x|y)-\\w*$"])),
        },
        {"type": "integer", "minimum": low, "maximum": low + more},
        {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + more + 1},
        {"type": "integer", "minimum": low, "multipleOf": step},
        {
            "type": "number",
            "maximum": low,
            "multipleOf": draw(st.sampled_from([0.1, 0.25, 3, 2.5])),
        },
        {"enum": draw(st.lists(anything, min_size=1, max_size=4))},
        {"const": draw(st.one_of(anything, st.booleans()))},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["string", "null"]},
        {},
    ]
    return draw(st.sampled_from(options))


def objects(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    @st.composite
    def build(draw: st.DrawFn) -> Json:
        properties = draw(st.dictionaries(NAMES, inner, max_size=4))
        required = (
            draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
        )
        schema: Json = {"type": "object", "properties": properties, "required": required}
        if draw(st.booleans()):
            schema["additionalProperties"] = False
        return schema

    return build()


def arrays(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    def build(items: Json, least: int, more: int) -> Json:
        return {"type": "array", "items": items, "minItems": least, "maxItems": least + more}

    return st.builds(build, inner, st.integers(0, 3), st.integers(0, 3))


NEVER: Json = {"type": "object", "required": ["never"], "properties": {"never": {"const": 0}}}


def combinations(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    @st.composite
    def build(draw: st.DrawFn) -> Json:
        schema = draw(inner)
        options: list[Json] = [
            {"anyOf": [schema, *draw(st.lists(inner, max_size=2))]},
            {"allOf": [schema]},
            {"oneOf": [schema, NEVER]},
            {"$ref": "#/$defs/shared", "$defs": {"shared": schema}},
        ]
        return draw(st.sampled_from(options))

    return build()


SCHEMAS = st.recursive(
    scalars(),
    lambda inner: st.one_of(objects(inner), arrays(inner), combinations(inner)),
    max_leaves=8,
)


def lifted(schema: Json) -> Json:
    """The same with every definition at the root, where references look for it."""
    found: Json = {}

    def walk(value: object) -> object:
        if isinstance(value, list):
            return [walk(each) for each in cast("list[object]", value)]
        if not isinstance(value, dict):
            return value
        known = cast("Json", value)
        if "$defs" in known:
            target = walk(cast("Json", known["$defs"])["shared"])
            name = f"d{len(found)}"
            found[name] = target
            return {"$ref": f"#/$defs/{name}"}
        return {key: walk(item) for key, item in known.items()}

    return {**cast("Json", walk(schema)), "$defs": found}


@settings(max_examples=150, deadline=None)
@given(SCHEMAS, st.sampled_from(["", "Weather in Paris?", DANGER, "from 3 to 7 at 2.5"]))
def test_value_satisfies_its_schema(schema: Json, said: str) -> None:
    whole = lifted({"type": "object", "properties": {"thing": schema}, "required": ["thing"]})
    value = made(whole, said)
    assert is_valid(whole, value), value


@settings(max_examples=60, deadline=None)
@given(SCHEMAS, st.text(max_size=60))
def test_the_same_schema_and_words_give_the_same_value(schema: Json, said: str) -> None:
    whole = lifted(schema)
    data = Raw(json.dumps(whole).encode())
    assert dumps(value_for(data, read_words(said))) == dumps(value_for(data, read_words(said)))


KEYWORDS = (
    "type properties required items enum const anyOf oneOf allOf $ref minimum maximum multipleOf minLength maxLength "
    "pattern format minItems uniqueItems default"
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.sampled_from(KEYWORDS.split()),
                st.text(max_size=3),
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(JSON, st.text(max_size=40))
def test_no_schema_breaks_it(schema: object, said: str) -> None:
    data = Raw(dumps(schema))
    dumps(value_for(data, read_words(said)))
    assert isinstance(arguments_for(Tool(name="f", schema=data), read_words(said)), dict)
