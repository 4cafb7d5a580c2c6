"""Tools, the choice among them, thinking, formats and the rest of a request's settings."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.dialects.messages import DEFAULT_TARGET, decode_request, encode_request
from dragoman.errors import RequestRefused
from dragoman.model.outcome import LossAction
from dragoman.model.parts import Breakpoint, Call, Extra, Reasoning, Result, Seal, Text
from dragoman.model.request import (
    Grammar,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    ToolRef,
    Turn,
)

OWN = Extra("messages", {})
Json = dict[str, Any]
FOREIGN = Extra("chat", {"foo": Raw(b"2")})
HI = Turn(role="user", parts=(Text(text="hi"),))
OBJECT = Raw(b'{"type":"object","properties":{"x":{"type":"string"}}}')
F = Tool(name="f", schema=OBJECT)
G = Tool(name="g", schema=OBJECT)
CALLED = (
    HI,
    Turn(role="assistant", parts=(Call(call_id="a", name="f", input="{}"),)),
    Turn(role="tool", parts=(Result(call_id="a", content=(Text(text="ok"),)),)),
)
THOUGHT = Reasoning(summary=("hm",), seals=(Seal("signature", "s"),))


def encode(
    policy: dict[str, LossAction] | None = None, **fields: Any
) -> tuple[Any, dict[str, str], list[str]]:
    given: Json = {"model": "m", "turns": (HI,), **fields}
    request = Request(**given)
    encoded = encode_request(request, policy=policy)
    return (
        json.loads(encoded.body),
        {loss.code: loss.action for loss in encoded.losses},
        [repair.rule for repair in encoded.repairs],
    )


def native(**fields: Any) -> Any:
    """A request of this dialect, read and written again."""
    base = {"model": "m", "max_tokens": 4000, "messages": [{"role": "user", "content": "hi"}]}
    return json.loads(encode_request(decode_request(json.dumps({**base, **fields}).encode())).body)


# --- tools -------------------------------------------------------------------------------------------


def test_functions_are_tools() -> None:
    body, losses, _ = encode(tools=(replace(F, description="d", cache=Breakpoint(alone=True)),))
    assert body["tools"] == [
        {
            "name": "f",
            "description": "d",
            "input_schema": json.loads(bytes(OBJECT)),
            "cache_control": {"type": "ephemeral"},
        }
    ]
    assert losses == {}


def test_missing_schema_is_an_empty_one() -> None:
    assert encode(tools=(Tool(name="f"),))[0]["tools"][0]["input_schema"] == {
        "type": "object",
        "properties": {},
    }
    assert native(tools=[{"name": "f"}])["tools"][0]["input_schema"]["type"] == "object"


def test_strict_is_kept_only_for_closed_schemas() -> None:
    # M118
    closed = Raw(b'{"type":"object","properties":{},"additionalProperties":false}')
    body, losses, _ = encode(tools=(Tool(name="f", schema=closed, strict=True),))
    assert (body["tools"][0]["strict"], losses) == (True, {})
    body, losses, _ = encode(tools=(replace(F, strict=True),))
    assert "strict" not in body["tools"][0]
    assert losses == {"schema": "drop", "strict": "drop"}
    assert "strict" not in encode(tools=(replace(F, strict=False),))[0]["tools"][0]


def test_upstream_without_strict_gets_none() -> None:
    closed = Raw(b'{"type":"object","properties":{},"additionalProperties":false}')
    request = Request(turns=(HI,), tools=(Tool(name="f", schema=closed, strict=True),))
    encoded = encode_request(request, replace(DEFAULT_TARGET, strict=False))
    assert b"strict" not in encoded.body
    assert [loss.code for loss in encoded.losses] == ["strict"]


def test_types_in_capitals_are_rewritten() -> None:
    # M120
    schema = Raw(b'{"type":"OBJECT","properties":{"x":{"type":"STRING"}}}')
    body, losses, _ = encode(tools=(Tool(name="f", schema=schema),))
    assert body["tools"][0]["input_schema"] == json.loads(bytes(OBJECT))
    assert losses == {"schema": "drop"}


def test_alternatives_at_the_top_are_merged() -> None:
    schema: Json = {
        "type": "object",
        "properties": {"a": {}},
        "required": ["a"],
        "anyOf": [
            {"properties": {"b": {"type": "string"}, "c": {}}, "required": ["b", "c"]},
            {"properties": {"b": {"type": "null"}}, "required": ["b"]},
            5,
        ],
        "oneOf": [{"required": ["d"]}],
        "allOf": [{"required": ["e"]}, {"required": ["g"]}],
    }
    merged = {**schema, "anyOf": schema["anyOf"][:2]}
    body, losses, _ = encode(
        tools=(Tool(name="f", schema=Raw(json.dumps(merged).encode()), strict=True),)
    )
    assert body["tools"][0]["input_schema"] == {
        "type": "object",
        "properties": {"a": {}, "b": {"type": "string"}, "c": {}},
        "required": ["a", "b", "d", "e", "g"],
    }
    assert losses == {"schema": "drop", "strict": "drop"}
    body, _, _ = encode(tools=(Tool(name="f", schema=Raw(json.dumps(schema).encode())),))
    assert body["tools"][0]["input_schema"]["required"] == ["a", "d", "e", "g"]
    odd = Raw(b'{"anyOf":5}')
    assert encode(tools=(Tool(name="f", schema=odd),))[0]["tools"][0]["input_schema"] == {
        "type": "object",
        "properties": {},
    }


def test_own_tools_keep_their_words() -> None:
    tools: list[Json] = [
        {
            "name": "f",
            "description": "d",
            "input_schema": {"type": "object", "$schema": "x", "anyOf": []},
            "strict": False,
            "cache_control": {"type": "ephemeral"},
            "defer_loading": True,
            "input_examples": [{"x": 1}],
            "allowed_callers": ["direct"],
        },
        {"type": "bash_20250124", "name": "bash"},
        {"type": "web_search_20260209", "name": "web_search", "max_uses": 3},
        {"type": "mcp_toolset", "mcp_server_name": "db"},
        {"type": "mcp_toolset", "mcp_server_name": "mail"},
        {"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}}},
    ]
    assert native(tools=tools)["tools"] == tools


def test_builtin_tools_of_others_have_peers_or_are_lost() -> None:
    # M126
    tools = (
        Tool(name="", kind="web_search", variant="web_search", cache=Breakpoint(alone=True)),
        Tool(name="", kind="code_interpreter", variant="code_interpreter", extra=FOREIGN),
        Tool(name="", kind="image_generation", variant="image_generation"),
        F,
    )
    body, losses, _ = encode(tools=tools)
    assert body["tools"][:2] == [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "cache_control": {"type": "ephemeral"},
        },
        {"type": "code_execution_20250825", "name": "code_execution"},
    ]
    assert len(body["tools"]) == 3
    assert losses == {"builtin_tool": "drop", "unknown_field": "drop"}
    bare = encode_request(
        Request(turns=(HI,), tools=tools), replace(DEFAULT_TARGET, builtin=frozenset())
    )
    assert [tool["name"] for tool in json.loads(bare.body)["tools"]] == ["f"]


def test_kinds_with_a_schema_are_functions() -> None:
    body, _, _ = encode(tools=(Tool(name="tool_search", kind="tool_search", schema=OBJECT),))
    assert body["tools"][0]["name"] == "tool_search"


def test_custom_tools_say_their_grammar() -> None:
    tool = Tool(name="patch", kind="custom", description="d", grammar=Grammar("lark", "start: x"))
    body, losses, _ = encode(tools=(tool,))
    assert "start: x" in body["tools"][0]["description"]
    assert losses == {"custom_tool": "carry"}


def test_namespaces_are_flattened() -> None:
    body, losses, _ = encode(
        tools=(replace(F, namespace="db"),),
        turns=(
            HI,
            Turn(
                role="assistant", parts=(Call(call_id="a", name="f", namespace="db", input="{}"),)
            ),
        ),
        tool_choice=ToolChoice(mode="tool", tool=ToolRef("f", namespace="db")),
    )
    assert body["tools"][0]["name"] == "db__f"
    assert body["messages"][1]["content"][0]["name"] == "db__f"
    assert body["tool_choice"] == {"type": "tool", "name": "db__f"}
    assert losses == {"namespace": "carry"}


def test_tool_that_comes_twice_is_sent_once() -> None:
    body, _, repairs = encode(tools=(F, F))
    assert len(body["tools"]) == 1
    assert repairs == ["duplicate_tool"]


# --- tool_choice -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "parallel", "written"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice(mode="auto"), None, {"type": "auto"}),
        (ToolChoice(mode="none"), None, {"type": "none"}),
        (ToolChoice(mode="none"), False, {"type": "none"}),
        (ToolChoice(mode="required"), None, {"type": "any"}),
        (
            ToolChoice(mode="required"),
            False,
            {"type": "any", "disable_parallel_tool_use": True},
        ),
        (ToolChoice(mode="tool", tool=ToolRef("f")), None, {"type": "tool", "name": "f"}),
        (ToolChoice(mode="tool"), None, {"type": "auto"}),
        (
            ToolChoice(mode="auto", extra=Extra("messages", {"x": Raw(b"1")})),
            None,
            {"type": "auto", "x": 1},
        ),
    ],
)
def test_choices(choice: ToolChoice | None, parallel: bool | None, written: object) -> None:
    # M110, M112, M113
    body, losses, _ = encode(tools=(F, G), tool_choice=choice, parallel_calls=parallel)
    assert body.get("tool_choice") == written
    assert len(body["tools"]) == 2
    assert losses == {}


def test_choice_without_tools_is_left_out() -> None:
    body, _, _ = encode(tool_choice=ToolChoice(mode="required"), parallel_calls=False)
    assert "tool_choice" not in body
    assert "tools" not in body


def test_choice_of_a_builtin_tool_is_by_its_name_here() -> None:
    choice = ToolChoice(mode="tool", tool=ToolRef("", kind="web_search"))
    body, _, _ = encode(tools=(Tool(name="", kind="web_search"),), tool_choice=choice)
    assert body["tool_choice"] == {"type": "tool", "name": "web_search"}


def test_choice_of_a_tool_that_is_not_offered_is_a_loss() -> None:
    choice = ToolChoice(mode="tool", tool=ToolRef("x"), extra=FOREIGN)
    body, losses, _ = encode(tools=(F,), tool_choice=choice)
    assert body["tool_choice"] == {"type": "auto"}
    assert losses == {"tool_choice": "drop", "unknown_field": "drop"}


def test_allowed_subset_is_what_is_sent() -> None:
    # M116
    search = Tool(name="", kind="web_search")
    allowed = (ToolRef("f"), ToolRef("", kind="web_search"))
    for required, kind in ((False, "auto"), (True, "any")):
        choice = ToolChoice(mode="allowed", allowed=allowed, required=required)
        body, _, _ = encode(tools=(F, G, search), tool_choice=choice)
        assert [tool["name"] for tool in body["tools"]] == ["f", "web_search"]
        assert body["tool_choice"] == {"type": kind}


# --- thinking ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "thinking",
    [
        {"type": "enabled", "budget_tokens": 1024},
        {"type": "enabled", "budget_tokens": 9000, "display": "omitted"},
        {"type": "disabled"},
        {"type": "adaptive", "display": "summarized"},
        {"type": "between_tools"},
        {"type": "of_tomorrow", "depth": 3},
    ],
)
def test_own_thinking_comes_back_as_it_was(thinking: object) -> None:
    assert native(thinking=thinking)["thinking"] == thinking


def test_own_effort_comes_back_without_thinking() -> None:
    body = native(output_config={"effort": "high"})
    assert body["output_config"] == {"effort": "high"}
    assert "thinking" not in body


@pytest.mark.parametrize(
    ("settings", "max_tokens", "thinking", "limit"),
    [
        (ReasoningSettings(effort="low"), None, {"type": "enabled", "budget_tokens": 2048}, 10240),
        (
            ReasoningSettings(effort="high"),
            30000,
            {"type": "enabled", "budget_tokens": 24576},
            30000,
        ),
        (ReasoningSettings(effort="high"), 8000, {"type": "enabled", "budget_tokens": 4000}, 8000),
        (ReasoningSettings(effort="high"), 1500, {"type": "enabled", "budget_tokens": 1024}, 1500),
        (ReasoningSettings(effort="none"), None, {"type": "disabled"}, 8192),
        (ReasoningSettings(enabled=False, effort="high"), None, {"type": "disabled"}, 8192),
        (ReasoningSettings(enabled=True), None, {"type": "enabled", "budget_tokens": 8192}, 16384),
        (ReasoningSettings(budget=500), None, {"type": "enabled", "budget_tokens": 1024}, 9216),
        (ReasoningSettings(enabled=True, adaptive=True), None, {"type": "adaptive"}, 8192),
        (ReasoningSettings(summary="auto"), None, None, 8192),
    ],
)
def test_effort_becomes_a_budget(
    settings: ReasoningSettings, max_tokens: int | None, thinking: object, limit: int
) -> None:
    body, losses, _ = encode(reasoning=settings, max_tokens=max_tokens)
    assert body.get("thinking") == thinking
    assert body["max_tokens"] == limit
    assert losses == {}


def test_no_room_for_thinking_switches_it_off() -> None:
    body, losses, _ = encode(reasoning=ReasoningSettings(effort="high"), max_tokens=1000)
    assert body["thinking"] == {"type": "disabled"}
    assert losses == {"thinking_off": "drop"}


def test_details_of_summaries_are_losses() -> None:
    settings = ReasoningSettings(effort="low", summary="detailed", extra=FOREIGN)
    assert encode(reasoning=settings)[1] == {"reasoning_summary": "drop", "unknown_field": "drop"}


def test_thinking_lost_by_the_client_is_switched_off() -> None:
    # M090
    for settings in (
        ReasoningSettings(enabled=True, budget=1024, extra=OWN),
        ReasoningSettings(effort="low"),
    ):
        body, losses, _ = encode(turns=CALLED, reasoning=settings)
        assert body["thinking"] == {"type": "disabled"}
        assert losses == {"thinking_off": "drop"}


def test_thinking_stays_on_where_a_signed_block_precedes_the_calls() -> None:
    # M090
    said = Turn(role="assistant", parts=(THOUGHT, *CALLED[1].parts))
    again = (
        Turn(role="assistant", parts=(Call(call_id="b", name="f", input="{}"),)),
        Turn(role="tool", parts=(Result(call_id="b", content=(Text(text="ok"),)),)),
    )
    settings = ReasoningSettings(effort="low")
    for turns in ((HI, said, CALLED[2]), (HI, said, CALLED[2], *again)):
        assert encode(turns=turns, reasoning=settings)[0]["thinking"]["type"] == "enabled"


def test_thinking_stays_on_after_a_new_word_of_the_user() -> None:
    turns = (*CALLED, Turn(role="assistant", parts=(Text(text="done"),)), HI)
    body, _, _ = encode(turns=turns, reasoning=ReasoningSettings(effort="low"))
    assert body["thinking"]["type"] == "enabled"


def test_adaptive_thinking_needs_no_block() -> None:
    settings = ReasoningSettings(enabled=True, adaptive=True, extra=OWN)
    assert encode(turns=CALLED, reasoning=settings)[0]["thinking"] == {"type": "adaptive"}


def test_forced_choice_gives_way_to_thinking() -> None:
    # M115
    fields: dict[str, Any] = {
        "tools": (F,),
        "tool_choice": ToolChoice(mode="tool", tool=ToolRef("f")),
        "parallel_calls": False,
        "reasoning": ReasoningSettings(effort="low"),
    }
    body, losses, _ = encode(**fields)
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert losses == {"forced_choice_with_thinking": "drop"}
    body, _, _ = encode({"forced_choice_with_thinking": "carry"}, **fields)
    assert body["tool_choice"]["type"] == "tool"
    assert body["thinking"] == {"type": "disabled"}


def test_no_choice_is_invented_beside_thinking() -> None:
    # M115
    body, _, _ = encode(tools=(F,), reasoning=ReasoningSettings(effort="low"))
    assert "tool_choice" not in body


def test_sampling_gives_way_to_thinking() -> None:
    fields: dict[str, Any] = {"temperature": 0.5, "top_p": 0.5, "top_k": 5}
    body, losses, _ = encode(reasoning=ReasoningSettings(effort="low"), **fields)
    assert not {"temperature", "top_p", "top_k"} & body.keys()
    assert losses == {"sampling_with_thinking": "drop"}
    body, losses, _ = encode(reasoning=ReasoningSettings(effort="low"), temperature=1, top_p=0.99)
    assert (body["temperature"], body["top_p"], losses) == (1, 0.99, {})


# --- formats -----------------------------------------------------------------------------------------


def test_own_formats_come_back_to_their_place() -> None:
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    config = {"effort": "low", "format": schema, "task_budget": {"total": 1}}
    assert native(output_config=config)["output_config"] == config
    assert native(output_format=schema)["output_format"] == schema
    assert "output_config" not in native(output_format=schema)


def test_schema_of_others_is_closed() -> None:
    wanted = ResponseFormat(
        kind="json_schema", name="n", description="d", schema=OBJECT, strict=False
    )
    body, losses, _ = encode(response_format=wanted)
    found = body["output_config"]["format"]
    assert found["type"] == "json_schema"
    assert found["schema"]["additionalProperties"] is False
    assert losses == {"format_details": "drop"}
    assert encode(response_format=ResponseFormat(kind="json_schema", schema=OBJECT))[1] == {}


def test_other_formats_are_losses() -> None:
    assert encode(response_format=ResponseFormat(kind="text"))[1] == {}
    wanted = ResponseFormat(kind="json_object", extra=FOREIGN)
    body, losses, _ = encode(response_format=wanted)
    assert "output_config" not in body
    assert losses == {"response_format": "drop", "unknown_field": "drop"}


# --- the rest ----------------------------------------------------------------------------------------


def test_max_tokens_is_the_clients_or_the_targets() -> None:
    assert encode()[0]["max_tokens"] == 8192
    assert encode(max_tokens=5)[0]["max_tokens"] == 5


def test_temperature_above_one_is_one() -> None:
    body, losses, _ = encode(temperature=1.7)
    assert body["temperature"] == 1
    assert losses == {"temperature_range": "carry"}
    assert encode(temperature=0.3)[0]["temperature"] == 0.3


def test_stop_sequences_of_white_space_are_losses() -> None:
    body, losses, _ = encode(stop=("#", "\n"))
    assert body["stop_sequences"] == ["#"]
    assert losses == {"stop_sequence": "drop"}


def test_user_ids_and_tiers() -> None:
    body, losses, _ = encode(user="u", service_tier="default", stream=True)
    assert body["metadata"] == {"user_id": "u"}
    assert (body["service_tier"], body["stream"], losses) == ("standard_only", True, {})
    body, losses, _ = encode(
        user="u", safety_id="s", service_tier="flex", metadata=Raw(b'{"a":"b"}')
    )
    assert body["metadata"] == {"user_id": "s"}
    assert losses == {"user_id": "drop", "metadata": "drop", "service_tier": "drop"}


def test_what_cannot_be_asked_is_declared() -> None:
    _, losses, _ = encode(
        presence_penalty=1.0,
        frequency_penalty=1.0,
        seed=0,
        logprobs=True,
        logit_bias=Raw(b"{}"),
        verbosity="low",
        cache_key="k",
        store=True,
        include=("reasoning.encrypted_content", "file_search_call.results"),
    )
    assert set(losses) == {
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "logprobs",
        "logit_bias",
        "verbosity",
        "cache_key",
        "store",
        "include",
    }
    quiet = encode(choices=1, logprobs=False, store=False, include=("reasoning.encrypted_content",))
    assert quiet[1] == {}


def test_several_choices_are_refused() -> None:
    with pytest.raises(RequestRefused) as caught:
        encode(choices=2)
    assert (caught.value.code, caught.value.param) == ("choices", "n")


def test_conversation_stored_elsewhere_is_refused() -> None:
    with pytest.raises(RequestRefused) as caught:
        encode(previous_id="resp_1")
    assert caught.value.code == "previous_id"


def test_own_request_comes_back_as_it_was() -> None:
    fields: Json = {
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": [1, 2.5]}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "is_error": True,
                        "content": [
                            {"type": "text", "text": "no"},
                            {"type": "tool_reference", "tool_name": "f"},
                        ],
                    },
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "hi"},
                        "title": "T",
                        "citations": {"enabled": True},
                    },
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object", "$schema": "x"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "metadata": {"user_id": "u", "team": "t"},
        "service_tier": "auto",
        "stop_sequences": ["#"],
        "stream": True,
        "temperature": 1.0,
        "context_management": {"edits": []},
        "mcp_servers": [{"type": "url", "url": "https://e.org", "name": "db"}],
        "betas": ["x"],
        "cache_control": {"type": "ephemeral"},
        "container": "c",
        "speed": "fast",
        "thread": {"type": "create"},
    }
    assert native(**fields) == {"model": "m", "max_tokens": 4000, **fields}


def test_aliases_of_long_names_are_distinguished() -> None:
    # M040
    names = [
        f"mcp_atlassian-rovo-mcp-server-cloud_{verb}ConfluencePageWithAttachmentsAndPermissions"
        for verb in ("create", "delete")
    ]
    body, _, _ = encode(tools=tuple(replace(F, name=name) for name in names))
    first, second = (tool["name"] for tool in body["tools"])
    assert first != second
    assert max(len(first), len(second)) <= 64
