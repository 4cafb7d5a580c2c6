"""Requests as an app-server gets them: threads, tools, conversations, names, and what is lost."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.losses import REQUEST_LOSSES
from dragoman.dialects.codex import DEFAULT_TARGET, LOSSES, encode_request
from dragoman.dialects.codex.losses import BUILTIN_NAMES
from dragoman.errors import RequestRefused
from dragoman.model.outcome import Loss, LossAction
from dragoman.model.parts import (
    Breakpoint,
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import (
    CacheSettings,
    Grammar,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Role,
    Tool,
    ToolChoice,
    ToolRef,
    Turn,
)

Json = dict[str, Any]

SCHEMA = Raw(b'{"type":"object","properties":{"x":{"type":"string"}}}')
GET = Tool(name="get", schema=SCHEMA, description="gets")
CACHE = Breakpoint(alone=True)
PNG = Media(kind="image", media_type="image/png", data="AA==")


def encoded(request: Request, policy: dict[str, LossAction] | None = None) -> Json:
    body: Json = json.loads(encode_request(request, DEFAULT_TARGET, policy).body)
    return body


def losses(request: Request, policy: dict[str, LossAction] | None = None) -> list[str]:
    found: tuple[Loss, ...] = encode_request(request, DEFAULT_TARGET, policy).losses
    return [loss.code for loss in found]


def turn(role: Role, *parts: Part, **more: Any) -> Turn:
    return Turn(role=role, parts=parts, **more)


def said(*turns: Turn, **more: Any) -> Request:
    return Request(model="m", turns=turns, **more)


def items(*turns: Turn, policy: dict[str, LossAction] | None = None) -> list[Json]:
    found: list[Json] = encoded(said(*turns), policy)["items"]
    return found


USER = turn("user", Text(text="hi"))


def test_whole_request() -> None:
    request = said(
        turn("system", Text(text="Be brief."), head=True),
        turn("developer", Text(text="And kind.")),
        USER,
        tools=(GET,),
        verbosity="low",
        service_tier="priority",
        reasoning=ReasoningSettings(effort="high", summary="auto"),
        response_format=ResponseFormat(kind="json_schema", schema=SCHEMA),
    )
    assert encoded(request) == {
        "thread": {
            "baseInstructions": "Be brief.\n\nAnd kind.",
            "dynamicTools": [
                {
                    "type": "function",
                    "name": "get",
                    "description": "gets",
                    "inputSchema": json.loads(bytes(SCHEMA)),
                }
            ],
            "model": "m",
            "config": {"model_verbosity": "low"},
        },
        "turn": {
            "serviceTier": "priority",
            "effort": "high",
            "summary": "auto",
            "outputSchema": json.loads(bytes(SCHEMA)),
        },
        "items": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
        ],
    }
    assert losses(request) == []


@pytest.mark.parametrize("model", ["", "codex", "default"])
def test_names_of_no_model_leave_it_to_codex(model: str) -> None:
    assert "model" not in encoded(replace(said(USER), model=model))["thread"]


def test_calls_and_results_are_items_without_ids() -> None:
    call = Call(call_id="c", name="get", input='{"x":  1.0}', item_id="fc_1")
    result = Result(call_id="c", content=(Text(text="one"),), item_id="fco_1")
    spoken = turn("assistant", Text(text="Ah."), call, item_id="msg_1")
    assert items(USER, spoken, turn("tool", result))[1:] == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Ah."}],
        },
        {"type": "function_call", "name": "get", "arguments": '{"x":  1.0}', "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "one"},
    ]


def test_custom_calls_are_wrapped_and_unwrapped_by_the_same_name() -> None:
    tool = Tool(name="patch", kind="custom", grammar=Grammar("lark", "start: x"))
    call = Call(call_id="c", name="patch", input="a\nb", kind="custom")
    request = said(USER, turn("assistant", call), tools=(tool,))
    made = encode_request(request)
    body = json.loads(made.body)
    assert "custom_tool" in [loss.code for loss in made.losses]
    (offered,) = body["thread"]["dynamicTools"]
    assert "start: x" in offered["description"]
    assert json.loads(body["items"][1]["arguments"]) == {"input": "a\nb"}
    assert made.names.origins[None, "patch"].kind == "custom"
    assert body["items"][2]["output"].startswith("[tool error] ")  # its result is missing


@pytest.mark.parametrize(
    ("content", "is_error", "output"),
    [
        ((), False, ""),
        ((Text(text="a"),), True, "[tool error] a"),
        ((Text(text="a"), Text(text="b")), False, ["a", "b"]),
        ((PNG,), False, ["image"]),
        ((PNG,), True, ["[tool error] ", "image"]),
        ((), True, "[tool error] "),
        ((Opaque(dialect="responses", type="x", raw=Raw(b"{}")),), False, ""),
    ],
)
def test_results(
    content: tuple[Text | Media | Opaque, ...], is_error: bool, output: object
) -> None:
    call = Call(call_id="c", name="get", input="")
    result = Result(call_id="c", content=content, is_error=is_error)
    spoken, answered = items(USER, turn("assistant", call), turn("tool", result))[1:]
    assert spoken["arguments"] == "{}"
    found: Any = answered["output"]
    if not isinstance(found, str):
        found = [part.get("text", "image") for part in found]
    assert found == output


def test_media_that_results_cannot_have_are_refused_or_named() -> None:
    call = Call(call_id="c", name="get", input="{}")
    sound = Media(kind="file", data="AA==")
    result = Result(call_id="c", content=(sound,))
    turns = (USER, turn("assistant", call), turn("tool", result))
    with pytest.raises(RequestRefused, match="no media but images"):
        items(*turns)
    assert items(*turns, policy={"media_input": "carry"})[-1]["output"] == "[file]"


def test_images_of_users_keep_their_detail() -> None:
    web = Media(kind="image", url="https://example.org/a.png", detail="high")
    (message,) = items(turn("user", PNG, web, Text(text="look")))
    assert message["content"] == [
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "high"},
        {"type": "input_text", "text": "look"},
    ]


@pytest.mark.parametrize(
    ("media", "code"),
    [
        (Media(kind="audio", data="AA=="), "audio_input"),
        (Media(kind="file", data="AA=="), "media_input"),
        (Media(kind="image", file_id="f"), "media_input"),
    ],
)
def test_other_media_are_refused_carried_or_dropped(media: Media, code: str) -> None:
    with pytest.raises(RequestRefused):
        items(turn("user", media))
    (message,) = items(turn("user", media), policy={code: "carry"})
    assert message["content"] == [{"type": "input_text", "text": f"[{media.kind}]"}]
    assert items(turn("user", media), policy={code: "drop"}) == []


def test_reasoning_goes_back_to_its_own_family_only() -> None:
    own = Reasoning(summary=("Hm.",), seals=(Seal("encrypted", "AA==", "rs_1"),))
    unbound = Reasoning(seals=(Seal("encrypted", "BB=="),), item_id="other")
    foreign = Reasoning(summary=("x",), seals=(Seal("signature", "s"),))
    bare = Reasoning(summary=("y",))
    request = said(USER, turn("assistant", own, unbound, foreign, bare))
    assert encoded(request)["items"][1:] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "content": None,
            "encrypted_content": "AA==",
        },
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "BB=="},
    ]
    assert sorted(losses(request)) == ["foreign_seal", "reasoning_text"]


def test_what_others_ran_cannot_be_replayed() -> None:
    call = Call(call_id="p", name="web_search", kind="web_search", executor="provider")
    result = Result(call_id="p", kind="web_search", executor="provider")
    opaque = Opaque(dialect="messages", type="x", raw=Raw(b"{}"))
    request = said(USER, turn("assistant", call, result, opaque, Refusal(text="No.")))
    assert encoded(request)["items"][1]["content"] == [{"type": "output_text", "text": "No."}]
    assert sorted(losses(request)) == ["opaque_part", "provider_call", "provider_result"]


def test_block_that_has_a_text_is_sent_as_its_text() -> None:
    block = Opaque(dialect="messages", type="search_result", raw=Raw(b"{}"), text="A hull floats.")
    call = Call(call_id="c", name="get", input="{}")
    result = Result(call_id="c", content=(block, Text(text="And sinks.")))
    request = said(turn("user", block), turn("assistant", call), turn("tool", result))
    items = encoded(request)["items"]
    assert items[0]["content"] == [{"type": "input_text", "text": "A hull floats."}]
    assert [entry["text"] for entry in items[2]["output"]] == ["A hull floats.", "And sinks."]
    assert losses(request) == ["opaque_text", "opaque_text"]


def test_marks_without_a_place_are_noted() -> None:
    extra = Extra("messages", {"odd": Raw(b"1")})
    sealed = Call(call_id="c", name="get", input="{}", seals=(Seal("thought", "x"),))
    request = said(
        turn("system", Text(text="x", cache=CACHE), head=True),
        turn("user", Text(text="hi", cache=CACHE, extra=extra), name="ann", cache=CACHE),
        turn("assistant", sealed),
        turn("tool", Result(call_id="c")),
        tools=(replace(GET, cache=CACHE, extra=extra),),
        extra=extra,
    )
    found = losses(request)
    assert {"message_name", "unknown_field", "call_seal"} == set(found)


def test_instructions_that_are_no_text_are_refused_or_left_out() -> None:
    request = said(turn("system", Text(text="x"), PNG, head=True), USER)
    with pytest.raises(RequestRefused):
        encode_request(request)
    body = encoded(request, {"media_input": "drop"})
    assert body["thread"]["baseInstructions"] == "x"


def test_instructions_later_on_stay_where_they_are() -> None:
    later = items(USER, turn("system", Text(text="Now in French.")))
    assert later[1]["role"] == "developer"
    with_image = said(turn("developer", PNG), USER)
    assert encoded(with_image)["items"][0]["role"] == "developer"


def test_everything_that_cannot_be_said_is_noted() -> None:
    request = said(
        USER,
        temperature=0.1,
        top_p=0.5,
        top_k=3,
        max_tokens=5,
        seed=1,
        stop=("x",),
        logprobs=True,
        logit_bias=Raw(b"{}"),
        presence_penalty=0.1,
        frequency_penalty=0.1,
        user="u",
        metadata=Raw(b"{}"),
        cache_key="k",
        include=("reasoning.encrypted_content", "file_search_call.results"),
        response_format=ResponseFormat(kind="json_object"),
        reasoning=ReasoningSettings(budget=9000),
        service_tier="scale",
        store=True,
        verbosity="shouting",
        tool_choice=ToolChoice(mode="required"),
    )
    assert sorted(losses(request)) == [
        "cache_key",
        "frequency_penalty",
        "include",
        "logit_bias",
        "logprobs",
        "max_tokens",
        "metadata",
        "presence_penalty",
        "reasoning_settings",
        "response_format",
        "seed",
        "service_tier",
        "store",
        "temperature",
        "tool_choice",
        "top_k",
        "top_p",
        "user",
        "verbosity",
    ]
    assert encoded(request)["turn"] == {"effort": "medium"}
    assert losses(said(USER, service_tier="auto", store=False, verbosity="low")) == []


@pytest.mark.parametrize("more", [{"choices": 2}, {"previous_id": "resp_1"}])
def test_what_would_be_another_answer_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(RequestRefused):
        encode_request(said(USER, **more))


def test_thinking_that_is_switched_off_is_no_effort() -> None:
    request = said(USER, reasoning=ReasoningSettings(enabled=False))
    assert encoded(request)["turn"] == {"effort": "none"}
    plain = said(USER, reasoning=ReasoningSettings(), response_format=ResponseFormat())
    assert encoded(plain)["turn"] == {}


# --- tools and their names ---------------------------------------------------------------------------------------------


def offered(request: Request) -> list[str]:
    return [tool["name"] for tool in encoded(request)["thread"]["dynamicTools"]]


def test_names_that_codex_keeps_are_changed_and_come_back() -> None:
    names = [*sorted(BUILTIN_NAMES), "mcp__a__b", "mcp__", "naïve", "x" * 100, "fine"]
    tools = tuple(Tool(name=name, schema=SCHEMA) for name in names)
    made = encode_request(said(USER, tools=tools))
    sent = [tool["name"] for tool in json.loads(made.body)["thread"]["dynamicTools"]]
    assert len(set(sent)) == len(names)
    assert not set(sent) & BUILTIN_NAMES
    assert not any(name.startswith("mcp__") or len(name) > 64 for name in sent)
    assert [found.name for name in sent if (found := made.names.find(name))] == names
    assert sent[-1] == "fine"


def test_changed_names_do_not_collide() -> None:
    tools = (
        Tool(name="mcp__a", schema=SCHEMA),
        Tool(name="mcp_a", schema=SCHEMA),
        Tool(name="mcp___a", kind="custom"),
        Tool(name="search", namespace="mcp__x", schema=SCHEMA),
    )
    made = encode_request(said(USER, tools=tools))
    assert offered(said(USER, tools=tools)) == ["mcp_a_2", "mcp_a", "mcp_a_3", "mcp_x__search"]
    assert made.names.origins[None, "mcp_a_3"].kind == "custom"
    found = made.names.find("mcp_x__search")
    assert found == ToolRef("search", "function", "mcp__x")


def test_tools_of_the_history_keep_their_names_when_they_are_gone() -> None:
    call = Call(call_id="c", name="exec_command", input="{}")
    (_, spoken, _) = items(USER, turn("assistant", call), turn("tool", Result(call_id="c")))
    assert spoken["name"].startswith("exec_command_")


def test_each_tool_is_offered_once_and_only_if_it_can_be() -> None:
    bash = Tool(name="bash", kind="bash", schema=SCHEMA)
    search = Tool(name="web_search", kind="web_search", variant="web_search_preview")
    space = Tool(name="get", namespace="n")
    made = encode_request(said(USER, tools=(GET, GET, bash, search, space)))
    sent = json.loads(made.body)["thread"]["dynamicTools"]
    assert [tool["name"] for tool in sent] == ["get", "bash", "n__get"]
    assert sent[2] == {
        "type": "function",
        "name": "n__get",
        "description": "",
        "inputSchema": {"type": "object", "properties": {}},
    }
    assert [repair.rule for repair in made.repairs] == ["duplicate_tool"]
    assert [loss.code for loss in made.losses] == ["call_kind", "builtin_tool", "namespace"]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (ToolChoice(mode="none"), []),
        (ToolChoice(mode="auto"), ["get", "put"]),
        (ToolChoice(mode="tool", tool=ToolRef("put")), ["put"]),
        (ToolChoice(mode="allowed", allowed=(ToolRef("get"),)), ["get"]),
        (ToolChoice(mode="tool"), ["get", "put"]),
    ],
)
def test_choice_is_what_is_offered(choice: ToolChoice, names: list[str]) -> None:
    request = said(USER, tools=(GET, replace(GET, name="put")), tool_choice=choice)
    assert offered(request) == names
    assert ("tool_choice" in losses(request)) == (choice.mode == "tool")


def test_keywords_that_codex_would_drop_are_named() -> None:
    schema = Raw(
        b'{"type":"object","properties":{"x":{"type":"string","pattern":"a","title":"X"}}}'
    )
    request = said(USER, tools=(Tool(name="get", schema=schema, strict=True),))
    (tool,) = encoded(request)["thread"]["dynamicTools"]
    assert tool["inputSchema"]["properties"]["x"] == {"type": "string", "title": "X"}
    (loss,) = encode_request(request).losses
    assert loss.code == "schema"
    assert "pattern" in loss.detail
    assert "not strict" in loss.detail


def test_table_is_sorted_and_says_what_happens() -> None:
    own = [code for code in LOSSES if code not in REQUEST_LOSSES]
    assert own == sorted(own)
    assert all(rule.meaning for rule in LOSSES.values())


def test_settings_of_the_cache_are_noted() -> None:
    stated = CacheSettings(mode="explicit", retention="24h")
    assert losses(said(USER, cache=stated)) == ["cache_settings", "cache_settings"]
    last = CacheSettings(last=Breakpoint(alone=True))
    assert losses(said(USER, cache=last)) == []  # Codex caches by itself
