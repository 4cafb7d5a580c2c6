"""Requests of other dialects, written for a Chat server: what they become and what is lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from openai.types.chat import ChatCompletionToolUnionParam
from pydantic import TypeAdapter

from chat_requests import (
    CACHE,
    OPENAI,
    SCHEMA,
    codes,
    decode,
    encode,
    foreign,
    messages,
    turn,
)
from dragoman._json import Raw
from dragoman.core.aliases import IdLimits
from dragoman.core.pairing import ERROR_MARK
from dragoman.dialects.chat import (
    DEFAULT_TARGET,
    LOSSES,
    encode_request,
)
from dragoman.errors import RequestRefused
from dragoman.model.parts import (
    Annotation,
    Breakpoint,
    Call,
    Extra,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import (
    Grammar,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    ToolRef,
)

# --- requests of other dialects ---------------------------------------------------------------------------------------

CALL = Call(call_id="a", name="f", input='{"x":1}')
RESULT = Result(call_id="a", content=(Text(text="ok"),))


def test_head_comes_first_and_developers_become_system() -> None:
    request = foreign(
        turn("user", Text(text="hi")),
        turn("developer", Text(text="more")),
        turn("system", Text(text="a"), Text(text="b"), head=True),
    )
    assert messages(request) == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "more"},
    ]


def test_assistant_turns_become_one_message_with_its_results_after_it() -> None:  # M165
    request = foreign(
        turn("user", Text(text="hi")),
        turn("assistant", Text(text="a")),
        turn("assistant", Text(text="b")),
        turn("assistant", CALL),
        turn("tool", RESULT),
    )
    assert messages(request)[1:] == [
        {
            "role": "assistant",
            "content": "a\n\nb",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]


def test_assistant_with_calls_only_has_null_content() -> None:
    written = messages(foreign(turn("assistant", CALL), turn("tool", RESULT)))
    assert written[0]["content"] is None


def test_assistant_turn_of_which_nothing_is_left_is_left_out() -> None:
    search = Call(call_id="ws", name="web_search", kind="web_search", executor="provider")
    found = Result(call_id="ws", executor="provider")
    encoded = encode_request(
        foreign(
            turn("user", Text(text="hi")), turn("assistant", search, found), turn("tool", found)
        )
    )
    assert len(json.loads(encoded.body)["messages"]) == 1
    assert codes(encoded) == ["provider_call", "provider_result", "provider_result"]


def test_image_in_a_result_follows_in_a_user_message() -> None:  # M099
    image = Media(kind="image", media_type="image/png", data="QQ==")
    request = foreign(
        turn("assistant", CALL, Call(call_id="b", name="g", input="{}")),
        turn("tool", Result(call_id="a", content=(Text(text="see"), image))),
        turn("tool", Result(call_id="b", content=(image, Media(kind="image", file_id="f")))),
        turn("user", Text(text="next")),
    )
    with pytest.raises(RequestRefused) as refused:
        encode_request(request)
    assert refused.value.code == "media"
    encoded = encode_request(request, policy={"media": "drop"})
    written = json.loads(encoded.body)["messages"]
    assert [each["role"] for each in written] == ["assistant", "tool", "tool", "user", "user"]
    assert written[1]["content"] == "see\n\n[image 1 of the next message]"
    assert written[2]["content"] == "[image 2 of the next message]"
    assert [part["type"] for part in written[3]["content"]] == ["text", "image_url", "image_url"]
    assert codes(encoded) == ["result_media", "result_media", "media"]


def test_error_result_is_marked_in_its_text() -> None:  # M100
    failed = Result(call_id="a", content=(Text(text="42"),), is_error=True)
    encoded = encode_request(foreign(turn("assistant", CALL), turn("tool", failed)))
    assert json.loads(encoded.body)["messages"][1]["content"] == ERROR_MARK + "42"
    assert codes(encoded) == ["error_flag"]


def test_ids_are_made_to_fit_on_both_sides() -> None:  # M021, M024
    target = replace(DEFAULT_TARGET, ids=IdLimits("[a-zA-Z0-9]", 9, 9))
    call = Call(call_id="toolu_01VpEm654HvfMoRcrE3Hgdc6", name="f", input="{}")
    result = Result(call_id=call.call_id)
    written = messages(foreign(turn("assistant", call), turn("tool", result)), target=target)
    call_id = written[0]["tool_calls"][0]["id"]
    assert len(call_id) == 9
    assert written[1]["tool_call_id"] == call_id


def test_conversation_opens_with_a_user_where_the_target_wants_it() -> None:  # M107
    target = replace(DEFAULT_TARGET, user_first=True)
    encoded = encode_request(
        foreign(turn("system", Text(text="s"), head=True), turn("assistant", Text(text="a"))),
        target,
    )
    written = json.loads(encoded.body)["messages"]
    assert [each["role"] for each in written] == ["system", "user", "assistant"]
    assert [repair.rule for repair in encoded.repairs] == ["user_first"]
    only = encode_request(foreign(turn("system", Text(text="s"), head=True)), target)
    assert [each["role"] for each in json.loads(only.body)["messages"]] == ["system", "user"]
    fine = encode_request(foreign(turn("user", Text(text="a"))), target)
    assert fine.repairs == ()


def test_earlier_reasoning_is_carried_or_dropped() -> None:
    thought = Reasoning(summary=("a", ""), content=("b",), seals=(Seal("signature", "s"),))
    request = foreign(turn("assistant", thought, Text(text="x")))
    encoded = encode_request(request)
    assert json.loads(encoded.body)["messages"][0]["reasoning_content"] == "a\n\nb"
    assert codes(encoded) == ["seal", "reasoning_history"]
    assert "reasoning_content" not in messages(request, policy={"reasoning_history": "drop"})[0]


def test_sealed_reasoning_without_text_has_no_field() -> None:
    encoded = encode_request(
        foreign(
            turn("assistant", Reasoning(seals=(Seal("redacted", "s"),)), CALL), turn("tool", RESULT)
        )
    )
    assert codes(encoded) == ["seal"]


def test_seals_of_a_call_go_where_they_came_from() -> None:
    call = Call(
        call_id="a",
        name="f",
        input="{}",
        seals=(Seal("thought", '{"g":1}'), Seal("encrypted", "x")),
    )
    encoded = encode_request(foreign(turn("assistant", call), turn("tool", RESULT)))
    assert json.loads(encoded.body)["messages"][0]["tool_calls"][0]["extra_content"] == {"g": 1}
    assert codes(encoded) == ["seal"]


def test_cache_breakpoints_are_dropped_or_carried() -> None:
    cache = Breakpoint(alone=True)
    request = foreign(
        turn("system", Text(text="a", cache=cache), Text(text="b"), head=True),
        turn("user", Text(text="hi"), cache=cache),
        turn("assistant", CALL),
        turn("tool", Result(call_id="a", content=(Text(text="ok"),), cache=cache)),
        tools=(Tool(name="f", schema=SCHEMA, cache=cache),),
    )
    dropped = encode_request(request)
    assert b"cache_control" not in dropped.body
    assert codes(dropped) == []  # no client misses them
    named = encode_request(request, policy={"cache_control": "drop"})
    assert codes(named) == ["cache_control"] * 4
    carried = encode(request, policy={"cache_control": "carry"})
    assert json.dumps(carried).count("cache_control") == 4
    assert carried["messages"][0]["content"] == [
        {"type": "text", "text": "a", "cache_control": CACHE},
        {"type": "text", "text": "b"},
    ]


def test_what_has_no_form_is_declared() -> None:
    raw = Raw(b"{}")
    extra = Extra("messages", {"x": raw})
    request = foreign(
        turn(
            "user",
            Text(text="a", extra=extra, annotations=(Annotation("messages", raw),)),
            Media(kind="file", url="u"),
            Media(kind="audio", url="u"),
            Media(kind="video", data="QQ=="),
            Opaque(dialect="messages", type="y", raw=raw),
            Refusal(text="n"),
            extra=extra,
        ),
        extra=extra,
        include=("a",),
        top_k=3,
        metadata=raw,
        store=True,
        response_format=ResponseFormat(kind="other", extra=extra),
    )
    encoded = encode_request(request, policy={"media": "drop"})
    assert set(codes(encoded)) == {
        "unknown_field",
        "annotation",
        "media",
        "opaque_part",
        "top_k",
        "metadata",
        "store",
        "response_format",
        "include",
    }
    body = json.loads(encoded.body)
    assert not {"top_k", "metadata", "store", "response_format"} & set(body)
    carried = encode(
        request, policy={"top_k": "carry", "metadata": "carry", "store": "carry", "media": "drop"}
    )
    assert (carried["top_k"], carried["metadata"], carried["store"]) == (3, {}, True)


def test_reference_to_an_earlier_response_is_refused() -> None:
    with pytest.raises(RequestRefused) as refused:
        encode_request(foreign(previous_id="resp_1"))
    assert refused.value.code == "previous_response"
    assert "messages" in encode(foreign(previous_id="resp_1"), policy={"previous_response": "drop"})


def test_other_dialects_ask_for_usage_in_streams() -> None:
    assert encode(foreign(stream=True))["stream_options"] == {"include_usage": True}
    assert "stream_options" not in encode(foreign(stream=False))
    assert "stream_options" not in encode(decode(stream=True))
    assert encode(foreign(stream=True, include_usage=False))["stream_options"] == {
        "include_usage": False
    }


def test_limit_of_another_dialect_has_the_name_every_server_reads() -> None:
    assert encode(foreign(max_tokens=9))["max_tokens"] == 9


@pytest.mark.parametrize(
    ("settings", "fields", "losses"),
    [
        (ReasoningSettings(effort="high"), {"reasoning_effort": "high"}, []),
        (
            ReasoningSettings(enabled=True, budget=31999),
            {"reasoning_effort": "high"},
            ["reasoning_settings"],
        ),
        (ReasoningSettings(enabled=False), {}, ["reasoning_off"]),
        (ReasoningSettings(adaptive=True), {}, []),
        (ReasoningSettings(summary="auto"), {}, ["reasoning_settings"]),
    ],
)
def test_reasoning_settings_become_an_effort(
    settings: ReasoningSettings, fields: dict[str, object], losses: list[str]
) -> None:
    encoded = encode_request(foreign(reasoning=settings))
    body = json.loads(encoded.body)
    assert {name: body[name] for name in body if name.startswith("reasoning")} == fields
    assert codes(encoded) == losses


def test_budget_is_dropped_by_policy() -> None:
    request = foreign(reasoning=ReasoningSettings(budget=100))
    assert "reasoning_effort" not in encode(request, policy={"reasoning_settings": "drop"})


def test_schema_of_a_format_gets_the_name_it_needs() -> None:
    form = ResponseFormat(kind="json_schema", schema=SCHEMA)
    written = encode(foreign(response_format=form))["response_format"]
    assert written == {
        "type": "json_schema",
        "json_schema": {"name": "response", "schema": json.loads(bytes(SCHEMA))},
    }


# --- tools of other dialects ------------------------------------------------------------------------------------------


TOOLS = TypeAdapter(list[ChatCompletionToolUnionParam])


def tools_of(request: Request, **options: Any) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = encode(request, **options)["tools"]
    TOOLS.validate_python(written)
    return written


def test_namespace_is_one_function_per_member() -> None:  # M043
    tools = (
        Tool(name="search", namespace="mcp__docs__", schema=SCHEMA),
        Tool(name="wait", namespace="clock", schema=SCHEMA, place="input"),
    )
    encoded = encode_request(foreign(tools=tools))
    names = [each["function"]["name"] for each in json.loads(encoded.body)["tools"]]
    assert names == ["mcp__docs__search", "clock__wait"]
    assert codes(encoded) == ["namespace", "namespace"]
    ref = encoded.names.origin("mcp__docs__search")
    assert ref is not None
    assert (ref.namespace, ref.name) == ("mcp__docs__", "search")


def test_history_uses_the_names_of_the_tools() -> None:  # M041
    long = "x" * 80
    tools = (Tool(name=long, schema=SCHEMA), Tool(name=long + "y", schema=SCHEMA))
    call = Call(call_id="a", name=long + "y", input="{}")
    request = foreign(
        turn("assistant", call),
        turn("tool", RESULT),
        tools=tools,
        tool_choice=ToolChoice(mode="tool", tool=ToolRef(long + "y")),
    )
    body = encode(request)
    first, second = (each["function"]["name"] for each in body["tools"])
    assert first != second
    assert len(second) <= 64
    assert body["messages"][0]["tool_calls"][0]["function"]["name"] == second
    assert body["tool_choice"] == {"type": "function", "function": {"name": second}}


def test_namespaced_history_is_flattened() -> None:
    call = Call(call_id="a", name="js", namespace="repl", input="{}")
    encoded = encode_request(foreign(turn("assistant", call), turn("tool", RESULT)))
    function = json.loads(encoded.body)["messages"][0]["tool_calls"][0]["function"]
    assert function["name"] == "repl__js"
    assert codes(encoded) == ["namespace"]


def test_custom_tool_is_native_only_where_the_target_has_them() -> None:  # M124
    tool = Tool(
        name="apply_patch", kind="custom", description="d", grammar=Grammar("lark", "start: x")
    )
    call = Call(call_id="a", name="apply_patch", kind="custom", input="*** ")
    request = foreign(
        turn("assistant", call),
        turn("tool", RESULT),
        tools=(tool,),
        tool_choice=ToolChoice(mode="tool", tool=ToolRef("apply_patch", "custom")),
    )
    native = encode(request, target=OPENAI)
    assert native["tools"] == [
        {
            "type": "custom",
            "custom": {
                "name": "apply_patch",
                "description": "d",
                "format": {
                    "type": "grammar",
                    "grammar": {"syntax": "lark", "definition": "start: x"},
                },
            },
        }
    ]
    assert native["tool_choice"] == {"type": "custom", "custom": {"name": "apply_patch"}}
    assert native["messages"][0]["tool_calls"][0]["custom"]["input"] == "*** "
    encoded = encode_request(request)
    body = json.loads(encoded.body)
    (function,) = (each["function"] for each in body["tools"])
    assert list(function["parameters"]["properties"]) == ["input"]
    assert "start: x" in function["description"]
    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == '{"input":"*** "}'
    assert body["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}
    assert encoded.names.origins[None, "apply_patch"].kind == "custom"
    assert set(codes(encoded)) == {"custom_tool"}


def test_builtin_tools_without_a_peer_are_dropped_or_refused() -> None:
    tools = (
        Tool(name="web_search", kind="web_search", variant="web_search"),
        Tool(name="f", schema=SCHEMA),
    )
    request = foreign(
        tools=tools, tool_choice=ToolChoice(mode="tool", tool=ToolRef("web_search", "web_search"))
    )
    encoded = encode_request(request)
    body = json.loads(encoded.body)
    assert [each["function"]["name"] for each in body["tools"]] == ["f"]
    assert body["tool_choice"] == "auto"
    assert codes(encoded) == ["builtin_tool", "tool_choice"]
    with pytest.raises(RequestRefused):
        encode_request(request, policy={"builtin_tool": "refuse"})


def test_web_search_has_a_peer_where_the_target_says_so() -> None:
    tools = (Tool(name="web_search", kind="web_search", variant="web_search"),)
    body = encode(foreign(tools=tools), target=OPENAI)
    assert body["web_search_options"] == {}
    assert "tools" not in body


def test_client_run_builtin_with_a_schema_becomes_a_function() -> None:
    tools = (
        Tool(name="tool_search", kind="tool_search", schema=SCHEMA),
        Tool(name="shell", kind="local_shell"),
    )
    choice = ToolChoice(mode="tool", tool=ToolRef("tool_search", "tool_search"))
    call = Call(call_id="a", name="tool_search", kind="tool_search", input="{}")
    encoded = encode_request(
        foreign(turn("assistant", call), turn("tool", RESULT), tools=tools, tool_choice=choice)
    )
    body = json.loads(encoded.body)
    assert [each["function"]["name"] for each in body["tools"]] == ["tool_search"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "tool_search"}}
    assert codes(encoded) == ["call_kind", "call_kind", "builtin_tool"]


def test_call_without_a_name_of_its_own_is_named_for_its_kind() -> None:
    call = Call(call_id="a", name="", kind="local_shell", input="{}")
    written = messages(foreign(turn("assistant", call), turn("tool", RESULT)))
    assert written[0]["tool_calls"][0]["function"]["name"] == "local_shell"


def test_allowed_subset_is_all_that_is_sent() -> None:
    tools = (Tool(name="f", schema=SCHEMA), Tool(name="g", schema=SCHEMA))
    for required, word in ((True, "required"), (False, "auto")):
        choice = ToolChoice(mode="allowed", allowed=(ToolRef("g"),), required=required)
        body = encode(foreign(tools=tools, tool_choice=choice))
        assert [each["function"]["name"] for each in body["tools"]] == ["g"]
        assert body["tool_choice"] == word


def test_choice_none_keeps_the_tools() -> None:  # M110
    body = encode(
        foreign(tools=(Tool(name="f", schema=SCHEMA),), tool_choice=ToolChoice(mode="none"))
    )
    assert body["tool_choice"] == "none"
    assert len(body["tools"]) == 1


def test_choice_without_its_tool_is_free() -> None:
    request = foreign(tools=(Tool(name="f", schema=SCHEMA),), tool_choice=ToolChoice(mode="tool"))
    assert encode(request)["tool_choice"] == "auto"


def test_schema_is_fixed_and_the_change_declared() -> None:  # M121
    schema = Raw(b'{"$schema":"x","type":"object","properties":{"ref":{"type":"string"}}}')
    encoded = encode_request(foreign(tools=(Tool(name="f", schema=schema), Tool(name="g"))))
    first, second = (each["function"]["parameters"] for each in json.loads(encoded.body)["tools"])
    assert first == {"type": "object", "properties": {"ref": {"type": "string"}}}
    assert second == {"type": "object", "properties": {}}
    assert codes(encoded) == ["schema"]


def test_strict_is_said_only_where_it_is_known() -> None:  # M118
    closed = Raw(b'{"type":"object","properties":{},"additionalProperties":false}')
    request = foreign(
        tools=(
            Tool(name="f", schema=closed, strict=True),
            Tool(name="g", schema=SCHEMA, strict=True),
        )
    )
    first, second = (each["function"] for each in tools_of(request))
    assert (first["strict"], second["strict"]) == (True, False)
    deaf = encode_request(request, replace(DEFAULT_TARGET, strict=False))
    assert b"strict" not in deaf.body
    assert codes(deaf) == ["schema", "schema"]


def test_tool_offered_twice_is_sent_once() -> None:
    tools = (Tool(name="f", schema=SCHEMA), Tool(name="f", schema=SCHEMA, place="input"))
    encoded = encode_request(foreign(tools=tools))
    assert len(json.loads(encoded.body)["tools"]) == 1
    assert [repair.rule for repair in encoded.repairs] == ["duplicate_tool"]


def test_every_code_that_is_used_is_in_the_table() -> None:
    assert all(
        rule.meaning and rule.action in ("refuse", "carry", "drop") for rule in LOSSES.values()
    )


def test_page_of_this_dialect_lists_every_loss() -> None:
    page = Path(__file__).parents[4] / "docs" / "dialects" / "chat.md"
    text = page.read_text(encoding="utf-8")
    for code, rule in LOSSES.items():
        assert f"| `{code}` | {rule.meaning} | {rule.action} |" in text


def test_several_refusals_of_an_assistant_are_one() -> None:
    body = encode(foreign(turn("assistant", Refusal(text="No."), Refusal(text="Never."))))
    assert body["messages"] == [{"role": "assistant", "content": None, "refusal": "No.\n\nNever."}]


def test_second_sound_of_an_assistant_is_declared() -> None:
    sounds = [Media(kind="audio", item_id=each) for each in ("a", "b")]
    encoded = encode_request(foreign(turn("assistant", *sounds)))
    [message] = json.loads(encoded.body)["messages"]
    assert message["audio"] == {"id": "a"}
    assert codes(encoded) == ["assistant_media"]
