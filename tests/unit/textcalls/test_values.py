"""Text as JSON by its declared type, and Python's literals as JSON."""

import pytest

from dragoman._json import raw
from dragoman.model.request import Tool
from dragoman.textcalls.offers import UNTYPED, Offers, Types, types_of
from dragoman.textcalls.values import coerce, literal_as_json


def typed(*names: str) -> Types:
    return types_of({"type": list(names)}, {})


@pytest.mark.parametrize(
    ("text", "types", "source"),
    [
        ("5", ("string",), '"5"'),
        ('{"a":1}', ("string",), '"{\\"a\\":1}"'),
        ("null", ("string",), '"null"'),
        ("null", ("string", "null"), "null"),
        ("none", ("string", "null"), '"none"'),
        (" 5 ", ("integer",), "5"),
        ("5.0", ("integer",), "5"),
        ("+5", ("integer",), "5"),
        ("007", ("integer",), "7"),
        ("5.5", ("integer",), '"5.5"'),
        ("abc", ("integer",), '"abc"'),
        ("5.50", ("number",), "5.50"),
        (".5", ("number",), "0.5"),
        ("1e3", ("number",), "1e3"),
        ("nan", ("number",), '"nan"'),
        ("inf", ("number",), '"inf"'),
        ("9" * 500, ("number",), f'"{"9" * 500}"'),
        ("+1e999", ("number",), '"+1e999"'),
        (".5e999", ("number",), '".5e999"'),
        ("True", ("boolean",), "true"),
        ("FALSE", ("boolean",), "false"),
        ("1", ("boolean",), '"1"'),
        ('{"a": 1.0}', ("object",), '{"a": 1.0}'),
        ("{'a': None}", ("object",), '{"a":null}'),
        ("{1, 2}", ("object",), '"{1, 2}"'),
        ("[1,2]", ("object",), '"[1,2]"'),
        ('[{\\"id\\": 1}]', ("array",), '[{"id": 1}]'),
        ("[oops", ("array",), '"[oops"'),
        ("", ("array",), '""'),
        ("x", ("integer", "string"), '"x"'),
    ],
)
def test_text_becomes_what_its_type_says(text: str, types: tuple[str, ...], source: str) -> None:
    assert coerce(text, typed(*types)) == source


def test_text_without_a_type_is_text_or_json_as_the_format_says() -> None:
    assert coerce("5", UNTYPED) == '"5"'
    assert coerce(" 5 ", UNTYPED, "json") == "5"
    assert coerce("five", UNTYPED, "json") == '"five"'


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({"type": "STRING"}, ("string",)),
        ({"type": "float"}, ("number",)),
        ({"type": "weird"}, ()),
        (
            {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            (
                "integer",
                "null",
            ),
        ),
        ({"$ref": "#/$defs/x"}, ("object",)),
        ({"$ref": "#/$defs/loop"}, ()),
        ({"enum": ["a", "b"]}, ("string",)),
        ({"enum": [1, "b"]}, ()),
        ({"const": "x"}, ("string",)),
        ({"properties": {}}, ("object",)),
        ({"items": {}}, ("array",)),
        (True, ()),
    ],
)
def test_types_are_read_through_references_and_combinations(
    schema: object, names: tuple[str, ...]
) -> None:
    root = {"$defs": {"x": {"type": "object"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert types_of(schema, root).names == set(names)


def test_schemas_that_lead_back_to_each_other_have_the_types_of_all() -> None:
    several: list[object] = [{"$ref": f"#/$defs/{n % 90}"} for n in range(3)]
    defs: dict[str, object] = {
        str(n): {"type": "string", "anyOf": [*several, {"$ref": f"#/$defs/{n + 1}"}]}
        for n in range(90)
    }
    defs["90"] = {"oneOf": [{"$ref": "#/$defs/0"}, {"type": "integer"}]}
    assert types_of({"$ref": "#/$defs/0"}, {"$defs": defs}).names == {"string", "integer"}


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("'it\\'s'", '"it\'s"'),
        ('"""a\nb"""', '"a\\nb"'),
        ("r'\\d'", '"\\\\d"'),
        ("'\\d\\x41\\u00e9\\q'", '"\\\\dAé\\\\q"'),
        ("'\\x4'", '"\\\\x4"'),
        ("[1, 2.50, -3, 1_000, 07]", "[1,2.5,-3,1000,7]"),
        ("(1,)", "[1]"),
        ("{}", "{}"),
        ("{'a': {'b': [True, False, None]}, 2: 'x'}", '{"a":{"b":[true,false,null]},"2":"x"}'),
        ("{'a', 'b'}", None),
        ("{'a': 1, 'b'}", None),
        ("[1 2]", None),
        ("open('x')", None),
        ("nan", None),
        ("1e999", None),
        ("1_", None),
        ("1__0", None),
        ("1_.5", None),
        ("1_0.2_5e1", "102.5"),
        ("'unclosed", None),
        ("[" * 200 + "]" * 200, None),
        ("1 rest", None),
        ("", None),
    ],
)
def test_python_literals_become_json(text: str, source: str | None) -> None:
    assert literal_as_json(text) == source


def test_offers_know_names_prefixes_and_namespaces() -> None:
    offers = Offers(
        [
            Tool(name="f", namespace="mcp"),
            {"name": ""},
            "rubbish",
            {"type": "custom", "custom": {"name": "g"}},
        ]
    )
    assert offers.resolve("functions.f") == "f"
    assert offers.resolve("mcp__f") == "mcp__f"
    assert offers.origin("mcp__f") == ("f", "mcp", False)
    assert offers.origin("g") == ("g", None, True)
    assert offers.resolve("h") is None
    assert offers.parameters("h") == ()
    assert Offers(None).resolve("anything") == "anything"
    assert Offers([{"name": "x", "parameters": '{"properties": {"a": {}}}'}]).parameters("x") == (
        "a",
    )
    assert Offers([{"name": "x", "parameters": "not json"}]).parameters("x") == ()


def test_name_without_its_namespace_means_one_tool_or_none() -> None:
    members = (Tool(name="f", namespace="a"), Tool(name="f", namespace="b"))
    assert Offers(members).resolve("f") is None
    assert Offers(members[:1]).origin("f") == ("f", "a", False)
    offers = Offers((*members, Tool(name="f")))
    assert offers.origin("f") == ("f", None, False)
    assert offers.origin("b.f") == ("f", "b", False)


def test_call_without_a_name_fits_tools_of_the_same_name_in_their_namespaces() -> None:
    def tool(namespace: str, key: str) -> Tool:
        schema = raw({"type": "object", "properties": {key: {}}, "required": [key]})
        return Tool(name="f", namespace=namespace, schema=schema)

    offers = Offers((tool("a", "x"), tool("b", "y")))
    name = offers.fitting('{"y": 1}')
    assert name is not None
    assert offers.origin(name) == ("f", "b", False)
    assert Offers((tool("a", "x"), tool("b", "x"))).fitting('{"x": 1}') is None
