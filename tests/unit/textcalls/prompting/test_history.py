"""Calls and results of the conversation become text, in order, with nothing lost in silence."""

import pytest

from dragoman._json import Raw
from dragoman.model.outcome import Loss
from dragoman.model.parts import (
    Breakpoint,
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import Request, Tool, Turn
from dragoman.textcalls.prompting import PROMPT_FORMATS, PromptedRequest, prompt_tools

SCHEMA = Raw(b'{"type":"object","properties":{"city":{"type":"string"}}}')
HELLO = Turn(role="user", parts=(Text(text="Hello"),))
IMAGE = Media(kind="image", media_type="image/png", data="aGk=")
CACHE = Breakpoint(alone=True)


def assistant(*parts: Part) -> Turn:
    return Turn(role="assistant", parts=parts)


def weather(call_id: str = "call_1", text: str = '{"city": "Paris"}') -> Call:
    return Call(call_id=call_id, name="get_weather", input=text)


def gave(call_id: str = "call_1", *texts: str) -> Turn:
    content = tuple(Text(text=text) for text in texts or ("sunny",))
    return Turn(role="tool", parts=(Result(call_id=call_id, content=content),))


def prompt(*turns: Turn, name: str = "hermes", **more: object) -> PromptedRequest:
    tools = (Tool(name="get_weather", schema=SCHEMA),)
    request = Request(model="m", turns=(HELLO, *turns), tools=tools, **more)  # type: ignore[arg-type]
    return prompt_tools(request, name)


def turns_of(prompted: PromptedRequest) -> tuple[Turn, ...]:
    """Those after the system text and the greeting."""
    return prompted.request.turns[2:]


def text_of(turn: Turn) -> str:
    assert len(turn.parts) == 1, turn.parts
    part = turn.parts[0]
    assert isinstance(part, Text)
    return part.text


def codes(prompted: PromptedRequest) -> list[str]:
    return [loss.code for loss in prompted.losses]


# --- calls ------------------------------------------------------------------------------------------------------------


def test_a_call_follows_the_words_of_its_turn_with_the_very_bytes_of_its_arguments() -> None:
    arguments = '{"city":  "Par\\u0069s", "n": 1.50, "n": 1e2}'
    said, _ = turns_of(prompt(assistant(Text(text="Let me look."), weather(text=arguments))))
    assert said.role == "assistant"
    assert text_of(said) == (
        f'Let me look.\n<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'
    )


def test_a_line_break_that_is_there_is_not_doubled() -> None:
    said, _ = turns_of(prompt(assistant(Text(text="Let me look.\n"), weather())))
    assert text_of(said).startswith("Let me look.\n<tool_call>")


def test_words_after_a_call_stand_before_it_and_that_is_reported() -> None:
    prompted = prompt(assistant(weather(), Text(text="There.")), gave())
    assert text_of(turns_of(prompted)[0]).startswith("There.\n<tool_call>")
    assert [repair.rule for repair in prompted.repairs] == ["text_before_calls"]


def test_items_of_one_answer_become_one_turn() -> None:
    turns = turns_of(
        prompt(
            assistant(Text(text="Two:")),
            assistant(weather("a")),
            assistant(weather("b")),
            gave("a"),
            gave("b"),
        )
    )
    assert [turn.role for turn in turns] == ["assistant", "user"]
    assert text_of(turns[0]).count("<tool_call>") == 2
    assert text_of(turns[1]).count("<tool_response>") == 2


def test_reasoning_stays_beside_the_text() -> None:
    thought = Reasoning(summary=("hm",))
    said, _ = turns_of(prompt(assistant(thought, weather())))
    assert said.parts[0] == thought
    assert isinstance(said.parts[1], Text)


def test_calls_that_a_provider_ran_are_not_touched() -> None:
    call = Call(call_id="s", name="web_search", kind="web_search", executor="provider", input="{}")
    result = Result(call_id="s", executor="provider", kind="web_search")
    turn = assistant(call, result, Text(text="Found."))
    assert turns_of(prompt(turn)) == (turn,)
    (said, _) = turns_of(prompt(assistant(call, result, weather())))
    assert said.parts[:2] == (call, result)


def test_a_call_of_a_custom_tool_is_wrapped() -> None:
    tool = Tool(name="write", kind="custom")
    call = Call(call_id="c", name="write", kind="custom", input='say "hi"')
    request = Request(model="m", turns=(HELLO, assistant(call)), tools=(tool,))
    prompted = prompt_tools(request, "hermes")
    assert '"arguments": {"input":"say \\"hi\\""}' in text_of(turns_of(prompted)[0])


def test_a_call_in_a_namespace_has_the_name_the_prompt_offers() -> None:
    tool = Tool(name="read", namespace="files", schema=SCHEMA)
    call = Call(call_id="c", name="read", namespace="files", input="{}")
    request = Request(model="m", turns=(HELLO, assistant(call)), tools=(tool,))
    assert '"name": "files__read"' in text_of(turns_of(prompt_tools(request, "hermes"))[0])


def test_a_kind_without_a_name_is_named_for_itself() -> None:
    call = Call(call_id="c", name="", kind="local_shell", input='{"command": ["ls"]}')
    assert '{"name": "local_shell", "arguments": {"command": ["ls"]}}' in text_of(
        turns_of(prompt(assistant(call)))[0]
    )


def test_a_call_without_input_has_no_arguments() -> None:
    assert '"arguments": {}}' in text_of(turns_of(prompt(assistant(weather(text=" "))))[0])


@pytest.mark.parametrize("name", PROMPT_FORMATS)
@pytest.mark.parametrize("arguments", ['{"city": "Par', '["Paris"]', "Paris", "5"])
def test_input_that_is_no_object_is_written_as_a_text_and_noted(name: str, arguments: str) -> None:
    prompted = prompt(assistant(weather(text=arguments)), name=name)
    assert "call_input" in codes(prompted)
    assert "input" in text_of(turns_of(prompted)[0])


def test_a_value_that_the_format_cannot_say_is_noted_with_the_reason() -> None:
    prompted = prompt(assistant(weather(text='{"city": "a</parameter>b"}')), name="qwen3_coder")
    assert (
        Loss(
            "call_form", "turns[1]", "carry", "get_weather.city: a value that contains </parameter>"
        )
        in prompted.losses
    )


@pytest.mark.parametrize(
    ("name", "arguments", "doubt"),
    [
        ("qwen3_coder", '{"a>b": "x"}', "a key that is not a word"),
        ("qwen3_coder", '{"city": "x\\r"}', "half a line break"),
        ("anthropic", '{"city": 5}', "integer where the schema says string"),
        ("anthropic", '{"more": 5}', "integer where the schema says nothing"),
        ("deepseek_v32", '{"input": "{}"}', "looks like a wrapper"),
        ("use_tool", '{"more": "<b>bold</b>"}', "depends on its context"),
        ("use_tool", '{"city": " x "}', "depends on its context"),
        ("tool_tags", '{"more": "x"}', "does not declare"),
        ("minicpm", "{}", "a required parameter is missing"),
        ("pythonic", '{"a-b": 1}', "a parameter that is not a Python name"),
        ("gemma4", '{"city": "<|\\"|>"}', "a text that contains"),
    ],
)
def test_each_way_to_be_ambiguous_has_its_words(name: str, arguments: str, doubt: str) -> None:
    schema = Raw(b'{"properties":{"city":{"type":"string"}},"required":["city"]}')
    request = Request(
        model="m",
        turns=(assistant(weather(text=arguments)),),
        tools=(Tool(name="get_weather", schema=schema),),
    )
    (loss,) = (loss for loss in prompt_tools(request, name).losses if loss.code == "call_form")
    assert doubt in loss.detail


def test_seals_and_unknown_fields_of_a_call_are_noted() -> None:
    call = Call(
        call_id="c",
        name="get_weather",
        input="{}",
        seals=(Seal("thought", "xyz"),),
        extra=Extra("messages", {"caller": Raw(b"{}")}),
    )
    assert codes(prompt(assistant(call), gave("c"))) == ["seal", "call_fields"]


def test_the_mark_of_an_older_form_is_no_loss() -> None:
    call = Call(
        call_id="c", name="f", input="{}", extra=Extra("chat", {"function_call": Raw(b"1")})
    )
    assert codes(prompt(assistant(call), gave("c"))) == []


def test_a_cache_breakpoint_of_a_call_moves_to_its_text() -> None:
    call = Call(call_id="c", name="get_weather", input="{}", cache=CACHE)
    part = turns_of(prompt(assistant(call), gave("c")))[0].parts[0]
    assert isinstance(part, Text)
    assert part.cache == CACHE


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_are_one_user_turn_in_the_order_of_their_calls() -> None:
    turns = turns_of(
        prompt(assistant(weather("a"), weather("b")), gave("b", "rain"), gave("a", "sun"))
    )
    assert turns[1].role == "user"
    assert text_of(turns[1]) == (
        "<tool_response>\nsun\n</tool_response>\n<tool_response>\nrain\n</tool_response>"
    )


def test_what_the_user_says_after_results_joins_their_turn() -> None:
    turns = turns_of(
        prompt(assistant(weather()), gave(), Turn(role="user", parts=(Text(text="And?"),)))
    )
    assert [turn.role for turn in turns] == ["assistant", "user"]
    assert text_of(turns[1]).endswith("</tool_response>\n\nAnd?")


def test_an_image_of_the_user_after_results_stays_a_part() -> None:
    turns = turns_of(prompt(assistant(weather()), gave(), Turn(role="user", parts=(IMAGE,))))
    assert turns[1].parts[1] == IMAGE


def test_a_user_with_a_name_keeps_a_turn_of_their_own() -> None:
    alice = Turn(role="user", parts=(Text(text="And?"),), name="alice")
    assert turns_of(prompt(assistant(weather()), gave(), alice))[2] == alice


def test_an_error_is_marked() -> None:
    result = Result(call_id="call_1", content=(Text(text="no such city"),), is_error=True)
    turn = Turn(role="tool", parts=(result,))
    assert "[tool error] no such city" in text_of(turns_of(prompt(assistant(weather()), turn))[1])
    found = text_of(turns_of(prompt(assistant(weather()), turn, name="anthropic"))[1])
    assert "<stderr>\nno such city\n</stderr>" in found
    found = text_of(turns_of(prompt(assistant(weather()), turn, name="command"))[1])
    assert '"is_error": true' in found


def test_media_of_a_result_follow_its_text_in_the_same_turn() -> None:
    opaque = Opaque(dialect="messages", type="search_result", raw=Raw(b"{}"))
    content = (Text(text="See:"), IMAGE, Text(text="and"), opaque)
    turn = Turn(role="tool", parts=(Result(call_id="call_1", content=content),))
    prompted = prompt(assistant(weather()), turn)
    given = turns_of(prompted)[1]
    assert given.parts[1:] == (IMAGE, opaque)
    assert given.parts[0] == Text(
        text="<tool_response>\nSee:\n\n[image 1 below]\n\nand\n\n[attachment 2 below]\n</tool_response>"
    )
    assert codes(prompted) == ["result_media"]


def test_a_result_that_contains_the_end_of_a_result_is_noted_and_kept_whole() -> None:
    prompted = prompt(assistant(weather()), gave("call_1", "a</tool_response>b"))
    assert "a</tool_response>b" in text_of(turns_of(prompted)[1])
    assert codes(prompted) == ["result_form"]


def test_a_result_inside_json_cannot_end_it() -> None:
    prompted = prompt(assistant(weather()), gave("call_1", 'x"}[/TOOL_RESULTS]'), name="mistral")
    assert '"content": "x\\"}[/TOOL_RESULTS]"' in text_of(turns_of(prompted)[1])
    assert codes(prompted) == []


def test_a_cache_breakpoint_of_a_result_moves_to_its_text() -> None:
    result = Result(call_id="call_1", content=(Text(text="sunny"),), cache=CACHE)
    turn = Turn(role="tool", parts=(result,))
    part = turns_of(prompt(assistant(weather()), turn))[1].parts[0]
    assert isinstance(part, Text)
    assert part.cache == CACHE


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    prompted = prompt(assistant(weather()), Turn(role="user", parts=(Text(text="Stop."),)))
    assert "was interrupted" in text_of(turns_of(prompted)[1])
    assert [repair.rule for repair in prompted.repairs] == ["missing_result"]


def test_a_result_without_a_call_becomes_words() -> None:
    prompted = prompt(gave("stray"))
    (turn,) = turns_of(prompted)
    assert turn.role == "user"
    assert turn.parts[-1] == Text(text="sunny")
    assert [repair.rule for repair in prompted.repairs] == ["orphan_result"]


def test_a_result_of_a_call_that_the_upstream_holds_is_a_result() -> None:
    prompted = prompt(gave("stray"), previous_id="resp_1")
    assert text_of(turns_of(prompted)[0]) == "<tool_response>\nsunny\n</tool_response>"


def test_results_of_providers_keep_their_turn() -> None:
    result = Result(call_id="s", executor="provider", kind="web_search")
    turn = Turn(role="tool", parts=(result,))
    turns = turns_of(prompt(assistant(weather()), gave(), assistant(Text(text="ok")), turn))
    assert turns[-1] == turn


# --- ids where a format has them --------------------------------------------------------------------------------------


def test_kimi_counts_the_calls_of_the_whole_conversation() -> None:
    turns = turns_of(
        prompt(
            assistant(weather("a")), gave("a"), assistant(weather("b")), gave("b"), name="kimi_k2"
        )
    )
    assert "functions.get_weather:0<|tool_call_argument_begin|>" in text_of(turns[0])
    assert text_of(turns[1]) == "## Return of functions.get_weather:0\nsunny"
    assert "functions.get_weather:1<|tool_call_argument_begin|>" in text_of(turns[2])
    assert text_of(turns[3]) == "## Return of functions.get_weather:1\nsunny"


def test_mistral_ids_have_nine_characters_and_pair_calls_with_results() -> None:
    turns = turns_of(
        prompt(
            assistant(weather("call_with_a_long_id")), gave("call_with_a_long_id"), name="mistral"
        )
    )
    wanted = text_of(turns[0]).partition('"id": "')[2][:10]
    assert wanted.endswith('"')
    assert wanted[:9].isalnum()
    assert f'"call_id": "{wanted}' in text_of(turns[1])


def test_command_numbers_its_calls() -> None:
    turns = turns_of(
        prompt(assistant(weather("a"), weather("b")), gave("a"), gave("b"), name="command")
    )
    assert '"tool_call_id": "1", "tool_name": "get_weather"' in text_of(turns[0])
    assert '"tool_call_id": "1", "results": {"0": "sunny"}, "is_error": null' in text_of(turns[1])


def test_react_gives_observations() -> None:
    assert (
        text_of(turns_of(prompt(assistant(weather()), gave(), name="react"))[1])
        == "Observation: sunny"
    )
