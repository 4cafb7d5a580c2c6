"""A request with tools becomes one without: what the prompt says, what is left, what is noted."""

import json

import pytest

from dragoman._json import Raw
from dragoman.errors import ConfigError, RequestRefused
from dragoman.model.outcome import Loss
from dragoman.model.parts import Breakpoint, Call, Extra, Media, Text
from dragoman.model.request import (
    ChoiceMode,
    Grammar,
    Namespace,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    ToolRef,
    Turn,
)
from dragoman.textcalls.prompting import (
    PROMPT_FORMATS,
    PromptedRequest,
    needs_prompting,
    prompt_tools,
)

SCHEMA = Raw(
    b'{"type": "object",\n "properties": {"city": {"type": "string"}}, "required": ["city"]}'
)
WEATHER = Tool(name="get_weather", description="The weather in a city.", schema=SCHEMA)
CLOCK = Tool(name="get_time", description="The time.", schema=SCHEMA)
HELLO = Turn(role="user", parts=(Text(text="Hello"),))


def asked(*tools: Tool, turns: tuple[Turn, ...] = (HELLO,)) -> Request:
    return Request(model="m", turns=turns, tools=tools or (WEATHER,))


def choosing(mode: ChoiceMode, *allowed: str, tool: str = "", required: bool = False) -> ToolChoice:
    return ToolChoice(
        mode=mode,
        tool=ToolRef(tool) if tool else None,
        allowed=tuple(ToolRef(name) for name in allowed),
        required=required,
    )


def head_of(prompted: PromptedRequest) -> str:
    """The system text."""
    turn = prompted.request.turns[0]
    assert turn.role in ("system", "developer")
    assert len(turn.parts) == 1
    part = turn.parts[0]
    assert isinstance(part, Text)
    return part.text


def codes(prompted: PromptedRequest) -> list[str]:
    return [loss.code for loss in prompted.losses]


@pytest.mark.parametrize("name", PROMPT_FORMATS)
def test_every_format_describes_all_tools_and_leaves_none_in_the_request(name: str) -> None:
    prompted = prompt_tools(asked(WEATHER, CLOCK), name)
    text = head_of(prompted)
    for tool in (WEATHER, CLOCK):
        assert tool.name in text
        assert str(tool.description) in text
    assert (
        '{"type": "object",  "properties": {"city": {"type": "string"}}, "required": ["city"]}'
        in text
    )
    assert prompted.request.tools == ()
    assert [tool.name for tool in prompted.tools] == ["get_weather", "get_time"]
    assert prompted.losses == ()
    assert prompted.request.turns[1:] == (HELLO,)


def test_signatures_are_lines_of_json() -> None:
    lines = head_of(prompt_tools(asked(), "hermes")).splitlines()
    shown = json.loads(lines[lines.index("<tools>") + 1])
    assert shown == {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": json.loads(bytes(SCHEMA)),
        },
    }


def test_a_format_without_a_wording_of_its_own_shows_an_example_in_its_own_markup() -> None:
    text = head_of(prompt_tools(asked(), "minimax_m2"))
    assert '<minimax:tool_call>\n<invoke name="example_function">' in text
    assert '<parameter name="another_parameter">2</parameter>' in text


def test_an_unknown_format_is_a_configuration_error_that_names_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"expected prompted_tools to be one of .*hermes.*, got 'telepathy'"
    ):
        prompt_tools(asked(), "telepathy")


# --- the system text --------------------------------------------------------------------------------------------------


def test_the_instruction_goes_to_the_end_of_the_system_text_there_is() -> None:
    system = Turn(role="system", parts=(Text(text="Be brief."),), head=True)
    prompted = prompt_tools(asked(turns=(system, HELLO)), "hermes")
    assert head_of(prompted).startswith("Be brief.\n\n# Tools\n\n")
    assert prompted.request.turns[0].head
    assert len(prompted.request.turns) == 2


def test_a_developer_message_takes_the_instruction() -> None:
    developer = Turn(role="developer", parts=(Text(text="Be brief."),))
    prompted = prompt_tools(asked(turns=(developer, HELLO)), "hermes")
    assert prompted.request.turns[0].role == "developer"
    assert head_of(prompted).startswith("Be brief.\n\n# Tools")


def test_without_a_system_text_one_is_made_at_the_head() -> None:
    prompted = prompt_tools(asked(), "hermes")
    assert prompted.request.turns[0].head
    assert prompted.request.turns[0].role == "system"


def test_a_system_message_in_the_middle_is_not_taken_for_the_head() -> None:
    late = Turn(role="system", parts=(Text(text="Be brief."),))
    prompted = prompt_tools(asked(turns=(HELLO, late)), "hermes")
    assert prompted.request.turns[1:] == (HELLO, late)


def test_the_instruction_follows_media_of_a_system_message_as_a_text_of_its_own() -> None:
    image = Media(kind="image", url="https://example.org/a.png")
    system = Turn(role="system", parts=(Text(text="Look."), image))
    turn = prompt_tools(asked(turns=(system, HELLO)), "hermes").request.turns[0]
    assert turn.parts[:2] == system.parts
    assert isinstance(turn.parts[2], Text)


def test_a_cache_breakpoint_of_the_system_text_covers_the_instruction() -> None:
    cache = Breakpoint(alone=True)
    system = Turn(role="system", parts=(Text(text="Be brief.", cache=cache),), head=True)
    part = prompt_tools(asked(turns=(system, HELLO)), "hermes").request.turns[0].parts[0]
    assert isinstance(part, Text)
    assert part.cache == cache
    assert "get_weather" in part.text


# --- the choice -------------------------------------------------------------------------------------------------------


def with_choice(choice: ToolChoice | None, *, parallel: bool | None = None) -> PromptedRequest:
    request = Request(
        model="m",
        turns=(HELLO,),
        tools=(WEATHER, CLOCK),
        tool_choice=choice,
        parallel_calls=parallel,
    )
    return prompt_tools(request, "hermes")


def test_with_no_tool_to_be_called_nothing_is_offered() -> None:
    prompted = with_choice(choosing("none"))
    assert prompted.request.turns == (HELLO,)
    assert prompted.request.tools == ()
    assert prompted.request.tool_choice is None
    assert prompted.tools == ()
    assert prompted.losses == ()


def test_a_free_choice_says_nothing() -> None:
    assert head_of(with_choice(choosing("auto"), parallel=True)) == head_of(with_choice(None))


def test_a_demanded_call_is_asked_for() -> None:
    prompted = with_choice(choosing("required"))
    assert "you must call at least one function" in head_of(prompted)
    assert codes(prompted) == ["tool_choice"]
    assert prompted.request.tool_choice is None


def test_a_demanded_tool_is_named_and_the_others_are_still_explained() -> None:
    text = head_of(with_choice(choosing("tool", tool="get_time")))
    assert "you must call the function `get_time`" in text
    assert "The weather in a city." in text


def test_a_demanded_tool_that_nobody_offers_is_not_asked_for() -> None:
    assert "must call" not in head_of(with_choice(choosing("tool", tool="get_money")))


def test_only_allowed_tools_are_offered() -> None:
    prompted = with_choice(choosing("allowed", "get_time"))
    assert "get_weather" not in head_of(prompted)
    assert [tool.name for tool in prompted.tools] == ["get_time"]
    assert "must call" not in head_of(prompted)


def test_of_the_allowed_tools_one_may_be_demanded() -> None:
    prompted = with_choice(choosing("allowed", "get_time", required=True))
    assert "you must call at least one function" in head_of(prompted)


def test_calls_one_at_a_time_are_asked_for() -> None:
    prompted = with_choice(None, parallel=False)
    assert "at most one function call" in head_of(prompted)
    assert codes(prompted) == ["parallel_calls"]
    assert prompted.request.parallel_calls is None


# --- tools that are more than a function ------------------------------------------------------------------------------


def test_a_custom_tool_is_a_function_with_one_text_and_its_grammar_is_described() -> None:
    grammar = Grammar("lark", 'start: "x"+')
    tool = Tool(name="write", kind="custom", description="Writes.", grammar=grammar)
    prompted = prompt_tools(asked(tool), "hermes")
    text = head_of(prompted)
    assert 'must match this lark grammar:\\nstart: \\"x\\"+' in text
    assert '"input"' in text
    assert codes(prompted) == ["custom_tool", "grammar"]
    assert prompted.names.origins[None, "write"].kind == "custom"


def test_a_member_of_a_namespace_gets_a_flat_name_and_its_group_is_described() -> None:
    tool = Tool(name="read", namespace="files", schema=SCHEMA)
    request = Request(
        model="m",
        turns=(HELLO,),
        tools=(tool,),
        namespaces=(Namespace("files", "All about files."), Namespace("empty", "Nothing.")),
    )
    prompted = prompt_tools(request, "hermes")
    assert '"files__read"' in head_of(prompted)
    assert "names begin with `files__`: All about files." in head_of(prompted)
    assert "Nothing." not in head_of(prompted)
    assert prompted.names.find("files__read") == ToolRef("read", "function", "files")
    assert prompted.request.namespaces == ()
    assert codes(prompted) == ["namespace"]


def test_a_name_that_is_no_word_gets_an_alias_where_names_stand_bare() -> None:
    tool = Tool(name="get-weather", schema=SCHEMA)
    prompted = prompt_tools(asked(tool), "pythonic")
    (offered,) = prompted.tools
    assert offered.name.isidentifier()
    assert prompted.names.find(offered.name) == ToolRef("get-weather")
    assert prompt_tools(asked(tool), "hermes").tools[0].name == "get-weather"


def test_what_a_prompt_cannot_say_of_a_tool_is_noted() -> None:
    tool = Tool(
        name="f",
        schema=SCHEMA,
        strict=True,
        cache=Breakpoint(alone=True),
        extra=Extra("messages", {"input_examples": Raw(b"[]")}),
    )
    assert prompt_tools(asked(tool), "hermes").losses == (
        Loss("strict", "tools[0]", "drop", "f"),
        Loss("cache_control", "tools[0]", "drop"),
        Loss("tool_fields", "tools[0]", "drop", "input_examples"),
    )


def test_the_mark_of_an_older_form_is_no_loss() -> None:
    tool = Tool(name="f", schema=SCHEMA, extra=Extra("chat", {"functions": Raw(b"true")}))
    assert prompt_tools(asked(tool), "hermes").losses == ()


def test_a_policy_may_refuse_what_is_lost() -> None:
    tool = Tool(name="f", schema=SCHEMA, strict=True)
    with pytest.raises(RequestRefused, match="makes a model that writes its calls as text"):
        prompt_tools(asked(tool), "hermes", {"strict": "refuse"})


def test_tools_that_providers_run_stay_in_the_request() -> None:
    search = Tool(name="web_search", kind="web_search", variant="web_search_20250305")
    request = Request(
        model="m",
        turns=(HELLO,),
        tools=(WEATHER, search),
        tool_choice=ToolChoice(mode="tool", tool=ToolRef("web_search", "web_search")),
    )
    prompted = prompt_tools(request, "hermes")
    assert prompted.request.tools == (search,)
    assert prompted.request.tool_choice == request.tool_choice
    assert "web_search" not in head_of(prompted)


def test_a_kind_that_clients_run_is_a_function_if_it_has_a_schema() -> None:
    shell = Tool(name="shell", kind="shell", schema=SCHEMA)
    bare = Tool(name="computer", kind="computer")
    prompted = prompt_tools(asked(shell, bare), "hermes")
    assert [tool.name for tool in prompted.tools] == ["shell"]
    assert prompted.request.tools == (bare,)
    assert codes(prompted) == ["call_kind"]


def test_a_tool_without_a_schema_takes_no_arguments() -> None:
    text = head_of(prompt_tools(asked(Tool(name="f")), "hermes"))
    assert '"parameters":{"type":"object","properties":{}}' in text


def test_a_tool_that_is_offered_twice_is_described_once() -> None:
    assert len(prompt_tools(asked(WEATHER, WEATHER), "hermes").tools) == 1


# --- the rest of the request ------------------------------------------------------------------------------------------


def test_a_request_without_tools_and_calls_is_not_changed() -> None:
    request = Request(model="m", turns=(HELLO,), temperature=0.5, stop=("END",))
    prompted = prompt_tools(request, "react")
    assert prompted.request == request
    assert prompted.losses == ()
    assert not needs_prompting(request)


def test_a_fixed_form_of_the_answer_is_noted() -> None:
    form = ResponseFormat(kind="json_object")
    request = Request(model="m", turns=(HELLO,), tools=(WEATHER,), response_format=form)
    prompted = prompt_tools(request, "hermes")
    assert codes(prompted) == ["response_format"]
    assert prompted.request.response_format == form
    plain = Request(
        model="m", turns=(HELLO,), tools=(WEATHER,), response_format=ResponseFormat(kind="text")
    )
    assert codes(prompt_tools(plain, "hermes")) == []


def test_react_stops_before_the_model_writes_the_result_itself() -> None:
    request = Request(model="m", turns=(HELLO,), tools=(WEATHER,), stop=("END",))
    assert prompt_tools(request, "react").request.stop == ("END", "Observation:")
    assert prompt_tools(request, "hermes").request.stop == ("END",)


def test_a_stop_sequence_that_has_no_room_is_noted() -> None:
    request = Request(model="m", turns=(HELLO,), tools=(WEATHER,), stop=("a", "b", "c", "d"))
    prompted = prompt_tools(request, "react")
    assert prompted.request.stop == ("a", "b", "c", "d")
    assert codes(prompted) == ["stop"]


def test_calls_of_the_history_are_text_also_where_no_tool_is_offered_any_more() -> None:
    call = Call(call_id="c1", name="get_weather", input='{"city": "Paris"}')
    request = Request(model="m", turns=(HELLO, Turn(role="assistant", parts=(call,))))
    assert needs_prompting(request)
    prompted = prompt_tools(request, "hermes")
    assert not any(isinstance(part, Call) for turn in prompted.request.turns for part in turn.parts)
    assert prompted.request.turns[0] == HELLO
