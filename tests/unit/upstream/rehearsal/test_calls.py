"""The input of each kind of call."""

import json

import pytest

from dragoman._json import Raw
from dragoman.model.parts import Call, CallKind, Dialect
from dragoman.model.request import Grammar, Tool
from dragoman.upstream.rehearsal.calls import LARGE, call_input, call_kind, call_text, grow
from dragoman.upstream.rehearsal.words import read_words

SAID = read_words("Weather in Paris?")
CITY = Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}')


def test_function_gets_compact_json() -> None:
    assert call_input(Tool(name="w", schema=CITY), SAID, "chat") == '{"city":"Paris"}'


def test_custom_tool_gets_the_users_words() -> None:
    assert call_input(Tool(name="note", kind="custom"), SAID, "chat") == "Weather in Paris?"
    assert call_input(Tool(name="note", kind="custom"), read_words(""), "chat") == "rehearsal"


def test_custom_tool_that_runs_things_gets_a_string() -> None:
    assert call_input(Tool(name="exec", kind="custom"), SAID, "responses") == '"rehearsal"'


def test_patch_is_one_that_cannot_be_applied() -> None:
    patch = call_input(Tool(name="apply_patch", kind="custom"), SAID, "responses")
    assert patch.startswith("*** Begin Patch\n*** Update File: /dev/null/rehearsal\n")
    assert patch.endswith("*** End Patch")


@pytest.mark.parametrize(("definition", "text"), [("^[0-9]{3}$", "000"), ("(?=x)", "rehearsal")])
def test_regular_grammar_is_followed_where_it_is_understood(definition: str, text: str) -> None:
    tool = Tool(name="dial", kind="custom", grammar=Grammar("regex", definition))
    assert call_input(tool, SAID, "chat") == text


@pytest.mark.parametrize(
    ("dialect", "kind", "value"),
    [
        ("messages", "bash", {"command": "echo rehearsal"}),
        ("messages", "text_editor", {"command": "view", "path": "README.md"}),
        ("messages", "computer", {"action": "screenshot"}),
        ("responses", "computer", {"type": "screenshot"}),
        ("responses", "shell", {"commands": ["echo rehearsal"], "timeout_ms": None, "max_output_length": None}),
    ],
)  # fmt: skip
def test_vendors_own_tools_only_look(dialect: Dialect, kind: CallKind, value: object) -> None:
    tool = Tool(name=kind, kind=kind)
    assert json.loads(call_input(tool, SAID, dialect)) == value
    assert call_kind(tool, dialect) == ("function" if dialect == "messages" else kind)


def test_call_as_text() -> None:
    call = Call(call_id="c", name="f", namespace="mcp__a", input='{"x":1}')
    assert (
        call_text(call) == '<tool_call>\n{"name": "mcp__a__f", "arguments": {"x":1}}\n</tool_call>'
    )
    assert '"arguments": {}}' in call_text(Call(call_id="c", name="f"))
    custom = Call(call_id="c", name="f", kind="custom", input='a "b"')
    assert '"arguments": {"input":"a \\"b\\""}}' in call_text(custom)


@pytest.mark.parametrize(
    "schema",
    [
        b'{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string","maxLength":3}}}',
        b'{"type":"object","properties":{"path":{"type":"string"},"cmd":{"type":"string"}}}',
        b'{"properties":[]}',
        b"{",
        b"3",
    ],
)
def test_where_no_string_may_be_long_white_space_is(schema: bytes) -> None:
    large = grow(Tool(name="look", schema=Raw(schema)), '{"n":1}')
    assert len(large) > LARGE
    assert json.loads(large) == {"n": 1}


def test_large_arguments_of_a_careful_tool_are_white_space() -> None:
    assert json.loads(grow(Tool(name="delete", schema=CITY), '{"city":"x"}')) == {"city": "x"}
    assert grow(Tool(name="exec", kind="custom"), '"x"').strip() == '"x"'
    assert len(grow(Tool(name="note", kind="custom"), "x").strip()) > LARGE
