"""Requests as clients send them: what they mean, and what is refused. Facts about Codex are measured."""

import json
from typing import Any

import pytest

from dragoman._json import Raw
from dragoman.dialects.responses import decode_request
from dragoman.errors import RequestRefused
from dragoman.model.parts import (
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
    Namespace,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    ToolRef,
    Turn,
)
from responses_help import Json


def decode(**fields: Any) -> Request:
    return decode_request(json.dumps({"model": "m", "input": [], **fields}).encode())


def turn_of(item: Any) -> Turn:
    (turn,) = decode(input=[item]).turns
    return turn


def part_of(item: Any) -> Any:
    (part,) = turn_of(item).parts
    return part


# --- the conversation ------------------------------------------------------------------------------------------------


def test_string_input_is_one_user_turn() -> None:
    assert decode(input="hi").turns == (Turn(role="user", parts=(Text(text="hi"),)),)


def test_instructions_are_a_turn_outside_the_conversation() -> None:
    turns = decode(instructions="be", input="hi").turns
    assert turns[0] == Turn(role="system", parts=(Text(text="be"),), head=True)


@pytest.mark.parametrize(
    "known",
    [
        {"input": []},
        {"input": None, "previous_response_id": "resp_1"},
        {"input": None, "conversation": "conv_1"},
        {"input": None, "prompt": {"id": "pmpt_1"}},
    ],
)
def test_request_without_input_has_no_turns(known: Json) -> None:
    assert decode(**known).turns == ()


def test_stored_prompt_may_name_the_model() -> None:
    assert decode(model=None, prompt={"id": "pmpt_1"}).model == ""


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_messages_need_no_type(role: str) -> None:
    turn = turn_of({"role": role, "content": "x"})
    assert (turn.role, turn.parts) == (role, (Text(text="x"),))


def test_message_keeps_id_status_and_phase() -> None:
    turn = turn_of(
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                {"type": "refusal", "refusal": "b"},
            ],
        }
    )
    assert turn == Turn(
        role="assistant",
        parts=(Text(text="a"), Refusal(text="b")),
        item_id="msg_1",
        status="completed",
        extra=Extra("responses", {"phase": Raw(b'"commentary"')}),
    )


@pytest.mark.parametrize("content", [None, []])
def test_message_may_be_empty(content: Any) -> None:
    assert turn_of({"role": "user", "content": content}).parts == ()


def test_media_are_read() -> None:
    turn = turn_of(
        {
            "role": "user",
            "content": [
                {
                    "type": "input_image",
                    "image_url": "data:image/png;base64,AAAA",
                    "detail": "high",
                },
                {"type": "input_image", "image_url": "https://example.com/a.png"},
                {"type": "input_image", "image_url": {"url": "https://example.com/b.png"}},
                {"type": "input_image", "image_url": "data:image/png;charset=x;base64,AAAA"},
                {"type": "input_image", "file_id": "file_1"},
                {
                    "type": "input_file",
                    "file_data": "data:application/pdf;base64,AAAA",
                    "filename": "a.pdf",
                },
                {"type": "input_file", "file_data": "AAAA"},
                {"type": "input_file", "file_url": "https://example.com/a.pdf"},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "flac"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA"}},
                {"type": "input_video", "x": 1},
            ],
        }
    )
    assert turn.parts[:11] == (
        Media(kind="image", media_type="image/png", data="AAAA", detail="high"),
        Media(kind="image", url="https://example.com/a.png"),
        Media(kind="image", url="https://example.com/b.png"),
        Media(kind="image", url="data:image/png;charset=x;base64,AAAA"),
        Media(kind="image", file_id="file_1"),
        Media(kind="file", media_type="application/pdf", data="AAAA", filename="a.pdf"),
        Media(kind="file", data="AAAA"),
        Media(kind="file", url="https://example.com/a.pdf"),
        Media(kind="audio", media_type="audio/mpeg", data="AAAA"),
        Media(kind="audio", media_type="audio/flac", data="AAAA"),
        Media(kind="audio", data="AAAA"),
    )
    assert isinstance(turn.parts[11], Opaque)


def test_m032_call_and_output_pair_by_call_id() -> None:
    call = part_of(
        {"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": "f", "arguments": "{}"}
    )
    assert call == Call(call_id="call_a", name="f", input="{}", item_id="fc_1")
    turn = turn_of(
        {"type": "function_call_output", "id": "fco_1", "call_id": "call_a", "output": "ok"}
    )
    assert turn == Turn(
        role="tool", parts=(Result(call_id="call_a", content=(Text(text="ok"),), item_id="fco_1"),)
    )


def test_call_keeps_its_namespace_and_status() -> None:
    turn = turn_of(
        {
            "type": "function_call",
            "call_id": "c",
            "name": "echo",
            "namespace": "mcp__probe",
            "arguments": '{"cmd": "echo"}',
            "status": "completed",
        }
    )
    assert turn.role == "assistant"
    assert turn.status == "completed"
    assert turn.parts == (
        Call(call_id="c", name="echo", input='{"cmd": "echo"}', namespace="mcp__probe"),
    )


def test_m035_empty_ids_are_kept_for_pairing_to_repair() -> None:
    assert (
        part_of({"type": "function_call", "call_id": "", "name": "f", "arguments": "{}"}).call_id
        == ""
    )


def test_output_may_be_a_list_of_parts() -> None:
    result = part_of(
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                {"type": "refusal", "refusal": "b"},
                {"type": "other"},
            ],
        }
    )
    assert result.content[:3] == (
        Text(text="a"),
        Media(kind="image", media_type="image/png", data="AAAA"),
        Text(text="b"),
    )
    assert isinstance(result.content[3], Opaque)


MARK = {"mode": "explicit"}


@pytest.mark.parametrize(
    ("output", "content", "is_error"),
    [
        ("[tool error] no", (Text(text="no"),), True),
        ([{"type": "input_text", "text": "[tool error] no"}], (Text(text="no"),), True),
        (
            [{"type": "input_text", "text": "[tool error] no", "prompt_cache_breakpoint": MARK}],
            (Text(text="no", cache=Breakpoint()),),
            True,
        ),
        ("", (Text(text=""),), False),
        ([], (), False),
        (None, (), False),
        ({"a": 1}, (Text(text='{"a": 1}'),), False),
    ],
)
def test_m100_error_mark_is_read_back(output: Any, content: Any, is_error: bool) -> None:
    result = part_of({"type": "function_call_output", "call_id": "c", "output": output})
    assert (result.content, result.is_error) == (content, is_error)


def test_output_without_call_id_names_its_tool() -> None:
    """Codex sends these for outputs a user provides."""
    result = part_of(
        {"type": "function_call_output", "id": "fco_1", "name": "get_weather", "output": "Sunny"}
    )
    assert (result.call_id, result.name) == ("", "get_weather")


@pytest.mark.parametrize(
    ("item", "kind", "call_id", "content"),
    [
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "x"}, "custom", "c", "x"),
        (
            {"type": "local_shell_call_output", "id": "call_1", "output": "x"},
            "local_shell",
            "call_1",
            "x",
        ),
        (
            {"type": "local_shell_call_output", "call_id": "c", "output": "x"},
            "local_shell",
            "c",
            "x",
        ),
        (
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": ""}]},
            "shell",
            "c",
            '[{"stdout": ""}]',
        ),
        (
            {"type": "apply_patch_call_output", "call_id": "c", "output": "x"},
            "apply_patch",
            "c",
            "x",
        ),
        (
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
            "mcp_approval",
            "mcpr_1",
            "true",
        ),
    ],
)
def test_results_of_every_kind_pair_with_their_call(
    item: Json, kind: str, call_id: str, content: str
) -> None:
    result = part_of(item)
    assert (result.kind, result.call_id, result.content) == (kind, call_id, (Text(text=content),))


def test_failed_patch_is_an_error() -> None:
    result = part_of({"type": "apply_patch_call_output", "call_id": "c", "status": "failed"})
    assert result.is_error
    assert result.content == ()


def test_screenshot_is_an_image() -> None:
    item: Json = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"},
        "acknowledged_safety_checks": [],
    }
    result = part_of(item)
    (image,) = result.content
    assert (image.kind, image.data) == ("image", "AAAA")
    assert result.extra is not None
    remote = part_of(
        {**item, "output": {"type": "computer_screenshot", "image_url": "https://e.com/a"}}
    )
    assert remote.content[0].url == "https://e.com/a"
    assert part_of({**item, "output": {"file_id": "f"}}).content[0].file_id == "f"


def test_reasoning_comes_back_with_its_seal() -> None:
    reasoning = part_of(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "a"}],
            "content": None,
            "encrypted_content": "gAAA",
        }
    )
    assert reasoning == Reasoning(
        summary=("a",), seals=(Seal("encrypted", "gAAA"),), item_id="rs_1"
    )


def test_seals_of_other_providers_are_opened() -> None:
    envelope = "dgm1." + "W1sic2lnbmF0dXJlIiwic2lnIl1d"
    reasoning = part_of(
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": envelope}
    )
    assert reasoning.seals == (Seal("signature", "sig"),)


@pytest.mark.parametrize(
    ("item", "role"),
    [
        ({"type": "item_reference", "id": "msg_1"}, "assistant"),
        ({"id": "msg_1"}, "assistant"),
        ({"type": "compaction", "encrypted_content": "x"}, "assistant"),
        ({"type": "compaction_trigger"}, "developer"),
        ({"type": "additional_tools", "role": "developer", "tools": []}, "developer"),
        ({"type": "from_tomorrow", "x": 1}, "assistant"),
    ],
)
def test_items_without_a_word_of_ours_are_carried_whole(item: Json, role: str) -> None:
    turn = turn_of(item)
    (part,) = turn.parts
    assert turn.role == role
    assert isinstance(part, Opaque)
    assert json.loads(bytes(part.raw)) == item


# --- tools -----------------------------------------------------------------------------------------------------------


def test_function_tool_keeps_its_schema_bytes() -> None:
    body = b'{"model":"m","input":[],"tools":[{"type":"function","name":"f","description":"d","strict":false,"parameters":{ "a" : 1.0 },"defer_loading":true}]}'
    (tool,) = decode_request(body).tools
    assert tool == Tool(
        name="f",
        description="d",
        schema=Raw(b'{ "a" : 1.0 }'),
        strict=False,
        deferred=True,
    )


def test_function_may_stand_inside_as_in_chat() -> None:
    (tool,) = decode(tools=[{"type": "function", "function": {"name": "f", "strict": True}}]).tools
    assert (tool.name, tool.strict, tool.schema) == ("f", True, None)


def test_custom_tool_keeps_its_grammar() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    nested = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
    plain = {"type": "text"}
    tools = decode(
        tools=[
            {"type": "custom", "name": "p", "format": form}
            for form in (grammar, nested, plain, None)
        ]
    ).tools
    assert [tool.grammar for tool in tools] == [
        Grammar("lark", "start: x"),
        Grammar("lark", "start: x"),
        None,
        None,
    ]


def test_m043_m124_namespace_members_carry_its_name_and_keep_their_kind() -> None:
    request = decode(
        tools=[
            {
                "type": "namespace",
                "name": "editor",
                "description": "d",
                "tools": [
                    {"type": "function", "name": "search", "parameters": {}},
                    {
                        "type": "custom",
                        "name": "apply_patch",
                        "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
                    },
                    {"name": "untyped"},
                ],
            },
            {"type": "namespace", "name": "empty", "tools": []},
        ]
    )
    assert [(tool.namespace, tool.name, tool.kind) for tool in request.tools] == [
        ("editor", "search", "function"),
        ("editor", "apply_patch", "custom"),
        ("editor", "untyped", "function"),
    ]
    assert request.tools[1].grammar == Grammar("lark", "x")
    assert request.namespaces == (Namespace("editor", "d"), Namespace("empty"))


def test_tools_are_gathered_from_the_conversation_too() -> None:
    """Codex declares tools in `additional_tools` and finds others by `tool_search`; neither moves into `tools`."""
    function = {"type": "function", "name": "echo"}
    request = decode(
        tools=[{"type": "function", "name": "exec"}],
        input=[
            {"type": "additional_tools", "role": "developer", "tools": [function]},
            {
                "type": "tool_search_output",
                "call_id": "c",
                "execution": "client",
                "tools": [
                    {"type": "namespace", "name": "mcp__x", "description": "", "tools": [function]}
                ],
            },
        ],
    )
    assert [(tool.namespace, tool.name, tool.place) for tool in request.tools] == [
        (None, "exec", "request"),
        (None, "echo", "input"),
        ("mcp__x", "echo", "input"),
    ]
    assert request.namespaces == (Namespace("mcp__x", "", None, "input"),)


@pytest.mark.parametrize(
    ("tool", "name", "kind"),
    [
        ({"type": "web_search", "external_web_access": True}, "web_search", "web_search"),
        ({"type": "web_search_preview"}, "web_search_preview", "web_search"),
        ({"type": "mcp", "server_label": "docs"}, "docs", "mcp"),
        (
            {"type": "tool_search", "description": "d", "parameters": {"a": 1}},
            "tool_search",
            "tool_search",
        ),
        ({"type": "from_tomorrow", "name": "x"}, "x", "other"),
    ],
)
def test_builtin_tools_keep_their_whole_object(tool: Json, name: str, kind: str) -> None:
    (found,) = decode(tools=[tool]).tools
    assert (found.name, found.kind, found.variant) == (name, kind, tool["type"])
    assert found.extra is not None
    assert {key: json.loads(bytes(value)) for key, value in found.extra.fields.items()} == tool


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, None),
        ("auto", ToolChoice(mode="auto")),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        ({"type": "function", "name": "f"}, ToolChoice(mode="tool", tool=ToolRef("f"))),
        (
            {"type": "function", "name": "f", "namespace": "n"},
            ToolChoice(mode="tool", tool=ToolRef("f", "function", "n")),
        ),
        (
            {"type": "function", "function": {"name": "f"}},
            ToolChoice(mode="tool", tool=ToolRef("f")),
        ),
        ({"type": "custom", "name": "p"}, ToolChoice(mode="tool", tool=ToolRef("p", "custom"))),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "f"}],
            },
            ToolChoice(mode="allowed", allowed=(ToolRef("f"),), required=True),
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "custom", "name": "p"}]},
            },
            ToolChoice(mode="allowed", allowed=(ToolRef("p", "custom"),)),
        ),
    ],
)
def test_m112_m116_tool_choice_in_every_form(choice: Any, expected: ToolChoice | None) -> None:
    assert decode(tool_choice=choice).tool_choice == expected


def test_choice_of_a_hosted_tool_keeps_its_object() -> None:
    choice = decode(tool_choice={"type": "mcp", "server_label": "docs"}).tool_choice
    assert choice is not None
    assert choice.tool == ToolRef("docs", "mcp")
    assert choice.extra is not None


# --- settings --------------------------------------------------------------------------------------------------------


def test_settings_have_their_homes() -> None:
    request = decode(
        stream=True,
        parallel_tool_calls=False,
        max_output_tokens=100,
        temperature=0.5,
        top_p=1,
        top_logprobs=3,
        text={"verbosity": "low", "format": {"type": "json_object"}, "x": 1},
        reasoning={"effort": "high", "summary": "auto", "context": "all_turns"},
        user="u",
        safety_identifier="s",
        prompt_cache_key="k",
        metadata={"a": "b"},
        service_tier="priority",
        store=False,
        previous_response_id="resp_0",
        include=["reasoning.encrypted_content", "message.output_text.logprobs"],
        truncation="auto",
        client_metadata={"session_id": "x"},
    )
    assert request.stream is True
    assert request.parallel_calls is False
    assert (request.max_tokens, request.temperature, request.top_p) == (100, 0.5, 1)
    assert (request.logprobs, request.top_logprobs) == (True, 3)
    assert request.verbosity == "low"
    assert request.response_format == ResponseFormat(kind="json_object")
    assert request.reasoning == ReasoningSettings(
        enabled=True,
        effort="high",
        summary="auto",
        extra=Extra("responses", {"context": Raw(b'"all_turns"')}),
    )
    assert (request.user, request.safety_id, request.cache_key) == ("u", "s", "k")
    assert request.metadata is not None
    assert (request.service_tier, request.store, request.previous_id) == (
        "priority",
        False,
        "resp_0",
    )
    assert len(request.include) == 2
    assert request.extra is not None
    assert set(request.extra.fields) == {"truncation", "client_metadata", "text"}


def test_json_schema_format_is_flat() -> None:
    form = {
        "type": "json_schema",
        "name": "n",
        "description": "d",
        "schema": {"a": 1},
        "strict": True,
        "x": 1,
    }
    assert decode(text={"format": form}).response_format == ResponseFormat(
        kind="json_schema",
        name="n",
        description="d",
        schema=Raw(b'{"a": 1}'),
        strict=True,
        extra=Extra("responses", {"x": Raw(b"1")}),
    )


def test_unknown_format_is_kept() -> None:
    form = decode(text={"format": {"type": "grammar"}}).response_format
    assert form is not None
    assert form.kind == "other"


def test_no_reasoning_is_said_by_effort() -> None:
    assert decode(reasoning={"effort": "none"}).reasoning == ReasoningSettings(
        enabled=False, effort="none"
    )
    assert decode(reasoning={"summary": "auto"}).reasoning == ReasoningSettings(summary="auto")
    assert decode(reasoning=None).reasoning is None


def test_nulls_are_absent_everywhere() -> None:
    """M080, for requests."""
    nulls: Json = dict.fromkeys(
        [
            "instructions",
            "tools",
            "tool_choice",
            "text",
            "reasoning",
            "metadata",
            "include",
            "stream",
            "temperature",
            "max_output_tokens",
            "store",
        ]
    )
    assert decode(**nulls) == Request(model="m", extra=Extra("responses", {}))


def test_request_shows_which_dialect_it_came_in() -> None:
    assert decode().extra == Extra("responses", {})


# --- what is refused -------------------------------------------------------------------------------------------------


REFUSED: list[tuple[Json, str]] = [
    ({"model": 1}, "model"),
    ({"input": "x"}, "model"),
    ({"input": "x", "model": None}, "model"),
    ({"input": "x", "model": ""}, "model"),
    ({"model": "m"}, "input"),
    ({"model": "m", "input": None}, "input"),
    ({"model": "m", "input": None, "previous_response_id": None}, "input"),
    ({"input": 1}, "input"),
    ({"input": {"role": "user"}}, "input"),
    ({"input": ["x"]}, "input[0]"),
    ({"input": [{}]}, "input[0].type"),
    ({"input": [{"type": 1}]}, "input[0].type"),
    ({"input": [{"type": "message", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": 1}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [1]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{}]}]}, "input[0].content[0].type"),
    ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name"),
    ({"input": [{"type": "custom_tool_call", "name": "x", "input": {}}]}, "input[0].input"),
    ({"input": [{"type": "additional_tools", "tools": [{}]}]}, "input[0].tools[0].type"),
    ({"tools": {}}, "tools"),
    ({"tools": [1]}, "tools[0]"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "f", "strict": "yes"}]}, "tools[0].strict"),
    ({"tools": [{"type": "function", "name": "f", "parameters": "{}"}]}, "tools[0].parameters"),
    ({"tools": [{"type": "function", "function": 1}]}, "tools[0].function"),
    ({"tools": [{"type": "namespace", "tools": []}]}, "tools[0].name"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [1]}]}, "tools[0].tools[0]"),
    ({"tools": [{"type": "custom", "name": "p", "format": 1}]}, "tools[0].format"),
    (
        {
            "tools": [
                {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark"}}
            ]
        },
        "tools[0].format.definition",
    ),
    ({"tool_choice": "maybe"}, "tool_choice"),
    ({"tool_choice": 1}, "tool_choice"),
    ({"tool_choice": {}}, "tool_choice.type"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
    ({"tool_choice": {"type": "allowed_tools", "tools": [{}]}}, "tool_choice.tools[0].type"),
    ({"stream": "yes"}, "stream"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"max_output_tokens": 1.5}, "max_output_tokens"),
    ({"metadata": []}, "metadata"),
    ({"include": "x"}, "include"),
    ({"text": "x"}, "text"),
    ({"text": {"verbosity": 1}}, "text.verbosity"),
    ({"text": {"format": {"type": 1}}}, "text.format.type"),
    ({"reasoning": "high"}, "reasoning"),
    ({"reasoning": {"effort": 1}}, "reasoning.effort"),
    ({"instructions": ["be"]}, "instructions"),
    ({"background": "no"}, "background"),
    ({"max_tool_calls": "2"}, "max_tool_calls"),
    ({"presence_penalty": "0"}, "presence_penalty"),
    ({"frequency_penalty": []}, "frequency_penalty"),
    ({"prompt": "x"}, "prompt"),
    ({"prompt_cache_options": 1}, "prompt_cache_options"),
    ({"prompt_cache_retention": 1}, "prompt_cache_retention"),
    ({"truncation": True}, "truncation"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_cannot_be_used_is_refused_with_its_path(fields: Json, param: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        decode_request(json.dumps(fields).encode())
    assert caught.value.param == param
    assert "expected" in caught.value.message
    assert "got" in caught.value.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestRefused):
        decode_request(body)


def test_number_beyond_all_bounds_is_refused() -> None:
    with pytest.raises(RequestRefused):
        decode_request(b'{"temperature": 1e999}')


def test_long_values_are_shown_in_part() -> None:
    with pytest.raises(RequestRefused) as caught:
        decode(temperature="x" * 1000)
    assert len(caught.value.message) < 200


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert decode(max_output_tokens=100.0).max_tokens == 100
