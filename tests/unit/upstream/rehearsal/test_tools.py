"""Which tool is called."""

import json

import pytest

from dragoman._json import Raw
from dragoman.errors import RequestRefused
from dragoman.model.parts import Call, CallKind, Dialect
from dragoman.model.request import Grammar, Request, Tool, ToolChoice, ToolRef
from dragoman.upstream.rehearsal.tools import (
    LARGE,
    call_input,
    call_kind,
    call_text,
    callable_tools,
    grow,
    is_forced,
    rank,
)
from dragoman.upstream.rehearsal.words import read_words

WEATHER = Tool(name="get_weather", description="The weather in a city.")
TIME = Tool(name="get_time", description="What the clock says.")
MAIL = Tool(name="send_mail", description="Sends the weather report to everybody.")
TOOLS = (MAIL, TIME, WEATHER)


def first(tools: tuple[Tool, ...], said: str) -> str:
    return rank(tools, read_words(said))[0][0].name


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("What's the weather?", "get_weather"),
        ("what time is it", "get_time"),
        ("What does the clock say?", "get_time"),
        ("please call get_weather for the time", "get_weather"),
        ("send a mail about the weather", "send_mail"),
        ("send the weather", "get_weather"),
        ("hello", "get_time"),
        ("", "get_time"),
    ],
)
def test_mentioned_tool_is_the_first_and_a_harmless_one_otherwise(said: str, name: str) -> None:
    assert first(TOOLS, said) == name


def test_without_another_a_tool_that_changes_things_is_the_first() -> None:
    assert first((MAIL, Tool(name="delete_mail")), "hello") == "send_mail"


def test_namespace_is_part_of_what_is_matched() -> None:
    tools = (Tool(name="a"), Tool(name="b", namespace="mcp__calendar"))
    assert first(tools, "look in my calendar") == "b"


def test_end_of_a_long_description_does_not_count() -> None:
    chatty = Tool(name="chatty", description="x " * 200 + "weather")
    assert rank((chatty,), read_words("weather"))[0][1] == 0


# The names of the tools of two real agents, as they are offered: an unmentioned tool must be harmless.
CLAUDE_CODE = (
    "Agent", "AskUserQuestion", "Bash", "CronCreate", "CronDelete", "Edit", "EnterPlanMode", "EnterWorktree",
    "ExitPlanMode", "Glob", "Grep", "NotebookEdit", "Read", "Skill", "TaskCreate", "TodoWrite", "WebFetch", "Write",
)  # fmt: skip
CODEX = ("exec_command", "write_stdin", "request_user_input", "view_image", "apply_patch")


@pytest.mark.parametrize("said", ["hello", "fix the bug please", "create a plan"])
def test_real_agents_are_asked_for_something_harmless(said: str) -> None:
    for names, wanted in ((CLAUDE_CODE, "Bash"), (CODEX, "exec_command")):
        assert first(tuple(Tool(name=name) for name in names), said) == wanted


# --- the tool choice --------------------------------------------------------------------------------------------------


def allowed(choice: ToolChoice | None, tools: tuple[Tool, ...] = TOOLS) -> list[str]:
    return [tool.name for tool in callable_tools(Request(tools=tools, tool_choice=choice), "chat")]


def test_every_choice_is_honoured() -> None:
    everything = [tool.name for tool in TOOLS]
    assert allowed(None) == everything
    assert allowed(ToolChoice(mode="auto")) == everything
    assert allowed(ToolChoice(mode="required")) == everything
    assert allowed(ToolChoice(mode="none")) == []
    assert allowed(ToolChoice(mode="tool", tool=ToolRef("get_time"))) == ["get_time"]
    subset = (ToolRef("get_time"), ToolRef("send_mail"))
    assert allowed(ToolChoice(mode="allowed", allowed=subset)) == ["send_mail", "get_time"]


def test_call_is_demanded_by_some_choices() -> None:
    demanding = [
        ToolChoice(mode="required"),
        ToolChoice(mode="tool", tool=ToolRef("get_time")),
        ToolChoice(mode="allowed", allowed=(ToolRef("get_time"),), required=True),
    ]
    assert all(is_forced(Request(tool_choice=choice)) for choice in demanding)
    for mode in ("auto", "none", "allowed"):
        assert not is_forced(Request(tool_choice=ToolChoice(mode=mode)))
    assert not is_forced(Request())


def test_tools_of_one_name_are_distinguished_by_their_namespace() -> None:
    tools = (Tool(name="f", namespace="a"), Tool(name="f", namespace="b"))
    choice = ToolChoice(mode="tool", tool=ToolRef("f", namespace="b"))
    [found] = callable_tools(Request(tools=tools, tool_choice=choice), "responses")
    assert found.namespace == "b"


def test_built_in_tool_may_be_chosen_by_its_kind() -> None:
    tools = (Tool(name="shell", kind="local_shell"),)
    choice = ToolChoice(mode="tool", tool=ToolRef("", kind="local_shell"))
    assert callable_tools(Request(tools=tools, tool_choice=choice), "responses") == tools


def test_choice_of_what_is_not_there_says_what_is() -> None:
    with pytest.raises(RequestRefused, match=r"expected .*get_time.*got 'nope'") as caught:
        allowed(ToolChoice(mode="tool", tool=ToolRef("nope")))
    assert caught.value.param == "tool_choice"
    with pytest.raises(RequestRefused, match="none"):
        allowed(ToolChoice(mode="tool", tool=ToolRef("nope")), ())
    with pytest.raises(RequestRefused, match="got none"):
        allowed(ToolChoice(mode="required"), ())


def test_kinds_that_a_dialect_has_no_call_for_are_left_out() -> None:
    tools = (Tool(name="web_search", kind="web_search"), Tool(name="p", kind="apply_patch"), TIME)
    for dialect in ("chat", "responses", "messages"):
        assert callable_tools(Request(tools=tools), dialect) == (TIME,)
    assert callable_tools(Request(tools=tools), "codex") == ()


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
