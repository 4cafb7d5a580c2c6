"""Requests of this dialect, read."""

import json
from typing import Any

import pytest

from dragoman._json import Raw
from dragoman.core.aliases import IdLimits, alias_id
from dragoman.dialects.messages import check_request, decode_request
from dragoman.errors import RequestRefused
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
from dragoman.model.request import (
    CacheSettings,
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


def decode(**fields: Any) -> Request:
    base: Json = {"model": "m", "max_tokens": 10, "messages": []}
    return decode_request(json.dumps({**base, **fields}).encode())


def content(role: str, *blocks: object) -> tuple[Part, ...]:
    turns = decode(messages=[{"role": role, "content": blocks}]).turns
    return tuple(part for turn in turns for part in turn.parts)


def refused(**fields: Any) -> tuple[str | None, str]:
    with pytest.raises(RequestRefused) as caught:
        decode(**fields)
    return caught.value.param, caught.value.message


# --- the conversation --------------------------------------------------------------------------------


def test_system_text_stands_at_the_head() -> None:
    assert decode(system="Be brief.").turns == (
        Turn(role="system", parts=(Text(text="Be brief."),), head=True),
    )
    cache = {"type": "ephemeral"}
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": cache}]
    assert decode(system=blocks).turns[0].parts == (
        Text(text="a"),
        Text(text="b", cache=Breakpoint(alone=True)),
    )
    assert decode(system=None).turns == ()


def test_messages_are_turns() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    assert decode(messages=messages).turns == (
        Turn(role="user", parts=(Text(text="hi"),)),
        Turn(role="assistant", parts=(Text(text="yes"),)),
    )


def test_system_message_in_the_conversation_is_marked() -> None:
    messages = [{"role": "system", "content": "now", "clear_at": "never"}]
    assert decode(messages=messages).turns == (
        Turn(
            role="developer",
            parts=(Text(text="now"),),
            extra=Extra("messages", {"clear_at": Raw(b'"never"')}),
        ),
    )


def test_unknown_fields_of_a_message_are_kept() -> None:
    messages: list[Json] = [
        {"role": "user", "content": None, "x": 1},
        {"role": "assistant", "content": [], "x": 1},
    ]
    extra = Extra("messages", {"x": Raw(b"1")})
    assert decode(messages=messages).turns == (
        Turn(role="user", extra=extra),
        Turn(role="assistant", extra=extra),
    )


def test_user_message_splits_into_results_and_the_rest() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "ok"}
    text = {"type": "text", "text": "and"}
    messages = [{"role": "user", "content": [result, {**result, "tool_use_id": "b"}, text, result]}]
    turns = decode(messages=messages).turns
    assert [(turn.role, len(turn.parts)) for turn in turns] == [
        ("tool", 2),
        ("user", 1),
        ("tool", 1),
    ]
    assert turns[0].parts[0] == Result(call_id="a", content=(Text(text="ok"),))


def test_calls_keep_the_bytes_of_their_input() -> None:
    body = (
        b'{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f",'
        b'"input":{"n": 1.0},"caller":{"type":"direct"}},{"type":"tool_use","id":"b","name":"f",'
        b'"input":{},"caller":{"type":"code_execution_20250825","tool_id":"c"}}]}]}'
    )
    (turn,) = decode_request(body).turns
    program = Raw(b'{"type":"code_execution_20250825","tool_id":"c"}')
    assert turn.parts == (
        Call(call_id="a", name="f", input='{"n": 1.0}'),
        Call(call_id="b", name="f", input="{}", extra=Extra("messages", {"caller": program})),
    )


def test_missing_input_is_an_empty_object() -> None:
    for block in ({}, {"input": None}, {"input": ""}, {"input": " "}):
        use = {"type": "tool_use", "id": "a", "name": "f", **block}
        assert content("assistant", use) == (Call(call_id="a", name="f", input="{}"),)


def test_aliased_ids_are_undone() -> None:
    # M019
    alias = alias_id("functions.f:0", IdLimits())
    use: Json = {"type": "tool_use", "id": alias, "name": "f", "input": {}}
    assert content("assistant", use) == (Call(call_id="functions.f:0", name="f", input="{}"),)
    result = {"type": "tool_result", "tool_use_id": alias}
    assert content("user", result) == (Result(call_id="functions.f:0"),)


def test_results_have_text_images_errors_and_breakpoints() -> None:
    # M099, M100, M164
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iV"}}
    reference = {"type": "tool_reference", "tool_name": "f"}
    strange = {"type": "tool_use", "id": "x", "name": "y"}
    result = {
        "type": "tool_result",
        "tool_use_id": "a",
        "is_error": True,
        "cache_control": {"type": "ephemeral"},
        "toolset_name": "computer",
        "content": [{"type": "text", "text": "no"}, image, reference, strange],
    }
    (part,) = content("user", result)
    assert isinstance(part, Result)
    assert part.is_error
    assert part.cache == Breakpoint(alone=True)
    assert part.extra == Extra("messages", {"toolset_name": Raw(b'"computer"')})
    text, media, opaque, other = part.content
    assert text == Text(text="no")
    assert media == Media(kind="image", media_type="image/png", data="iV")
    assert isinstance(opaque, Opaque)
    assert isinstance(other, Opaque)
    assert (opaque.type, other.type) == ("tool_reference", "tool_use")


def test_thinking_comes_back_with_its_seals() -> None:
    parts = content(
        "assistant",
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "redacted_thinking", "data": "d"},
    )
    assert parts == (
        Reasoning(summary=("hm",), seals=(Seal("signature", "s"),)),
        Reasoning(),
        Reasoning(seals=(Seal("redacted", "d"),)),
    )


def test_server_tools_stay_in_their_turn() -> None:
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": 1}}
    result: Json = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    broken = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "web_search_tool_result_error"},
    }
    parts = content("assistant", call, result, broken)
    assert parts[0] == Call(
        call_id="srvtoolu_1",
        name="web_search",
        kind="web_search",
        input='{"q": 1}',
        executor="provider",
        extra=OWN,
    )
    assert [part.is_error for part in parts[1:] if isinstance(part, Result)] == [False, True]


def test_media_have_three_sources() -> None:
    image, document = {"type": "image"}, {"type": "document"}
    assert content("user", {**image, "source": {"type": "url", "url": "https://e.org"}}) == (
        Media(kind="image", url="https://e.org"),
    )
    assert content("user", {**image, "source": {"type": "file", "file_id": "file_1"}}) == (
        Media(kind="image", file_id="file_1"),
    )
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JV"}
    (media,) = content("user", {**document, "source": pdf, "title": "T", "context": "c"})
    assert media == Media(
        kind="file",
        media_type="application/pdf",
        data="JV",
        filename="T",
        extra=Extra("messages", {"context": Raw(b'"c"')}),
    )


def test_plain_text_document_is_a_file_elsewhere() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "hi"}
    (media,) = content("user", {"type": "document", "source": source})
    assert isinstance(media, Media)
    assert (media.data, media.media_type) == ("aGk=", "text/plain")
    (broken,) = content("user", {"type": "document", "source": {"type": "text", "data": 5}})
    assert isinstance(broken, Opaque)


def test_blocks_without_a_meaning_are_kept_whole() -> None:
    block: Json = {"type": "search_result", "source": "s", "title": "t", "content": []}
    assert content("user", block) == (
        Opaque(dialect="messages", type="search_result", raw=Raw(json.dumps(block).encode())),
    )


def test_result_content_of_a_strange_shape_is_kept_whole_in_answers() -> None:
    result = {"type": "mcp_tool_result", "tool_use_id": "a", "content": ["x"]}
    (part,) = content("assistant", result)
    assert isinstance(part, Result)
    assert part.content == (Opaque(dialect="messages", type="", raw=Raw(b'["x"]')),)


# --- tools -------------------------------------------------------------------------------------------


def test_functions_keep_their_schema_and_flags() -> None:
    tool: Json = {
        "name": "f",
        "type": "custom",
        "description": "d",
        "input_schema": {"type": "object"},
        "strict": True,
        "cache_control": {"type": "ephemeral"},
        "defer_loading": True,
        "input_examples": [{}],
    }
    assert decode(tools=[tool]).tools == (
        Tool(
            name="f",
            description="d",
            schema=Raw(b'{"type": "object"}'),
            strict=True,
            cache=Breakpoint(alone=True),
            deferred=True,
            extra=Extra("messages", {"input_examples": Raw(b"[{}]")}),
        ),
    )
    assert decode(tools=[{"name": "f", "input_schema": None}]).tools == (Tool(name="f", extra=OWN),)


@pytest.mark.parametrize(
    ("tool", "name", "kind"),
    [
        ({"type": "bash_20250124", "name": "bash"}, "bash", "bash"),
        (
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            "str_replace_based_edit_tool",
            "text_editor",
        ),
        ({"type": "computer_20251124", "name": "computer"}, "computer", "computer"),
        ({"type": "memory_20250818", "name": "memory"}, "memory", "memory"),
        ({"type": "web_search_20250305", "name": "web_search"}, "web_search", "web_search"),
        ({"type": "web_fetch_20250910", "name": "web_fetch"}, "web_fetch", "web_fetch"),
        (
            {"type": "code_execution_20250825", "name": "code_execution"},
            "code_execution",
            "code_interpreter",
        ),
        (
            {"type": "tool_search_tool_bm25", "name": "tool_search_tool_bm25"},
            "tool_search_tool_bm25",
            "tool_search",
        ),
        ({"type": "mcp_toolset", "mcp_server_name": "db"}, "db", "mcp"),
        ({"type": "computer_toolset_20260801"}, "computer", "computer"),
        ({"type": "browser_toolset_20260801"}, "browser_toolset", "other"),
        ({"type": "advisor_20260301", "name": "advisor"}, "advisor", "other"),
        ({"type": "hologram_2099"}, "hologram_2099", "other"),
    ],
)
def test_builtin_tools_keep_their_whole_object(tool: dict[str, str], name: str, kind: str) -> None:
    (found,) = decode(tools=[tool]).tools
    assert (found.name, found.kind, found.variant) == (name, kind, tool["type"])
    assert found.extra is not None
    assert (
        json.loads(json.dumps({k: json.loads(bytes(v)) for k, v in found.extra.fields.items()}))
        == tool
    )


def test_tool_choices() -> None:
    def choice(**fields: object) -> tuple[ToolChoice | None, bool | None]:
        request = decode(tool_choice=fields or None)
        return request.tool_choice, request.parallel_calls

    assert choice() == (None, None)
    assert choice(type="auto") == (ToolChoice(mode="auto"), None)
    assert choice(type="any", disable_parallel_tool_use=True) == (
        ToolChoice(mode="required"),
        False,
    )
    assert choice(type="none") == (ToolChoice(mode="none"), None)
    assert choice(type="tool", name="f", disable_parallel_tool_use=False, x=1) == (
        ToolChoice(mode="tool", tool=ToolRef("f"), extra=Extra("messages", {"x": Raw(b"1")})),
        True,
    )


# --- settings ----------------------------------------------------------------------------------------


def test_sampling_and_the_like() -> None:
    request = decode(
        stream=True,
        temperature=0.5,
        top_p=1,
        top_k=5,
        stop_sequences=["#"],
        metadata={"user_id": "u"},
        service_tier="standard_only",
    )
    assert (request.model, request.max_tokens, request.stream) == ("m", 10, True)
    assert (request.temperature, request.top_p, request.top_k) == (0.5, 1, 5)
    assert (request.stop, request.user, request.service_tier) == (("#",), "u", "default")
    assert request.extra is None
    assert decode(service_tier="auto").service_tier == "auto"


def test_nulls_are_absent() -> None:
    # M080
    keys = (
        "stream",
        "temperature",
        "top_k",
        "stop_sequences",
        "metadata",
        "tools",
        "thinking",
        "output_config",
    )
    assert decode(**dict.fromkeys(keys)) == decode()


@pytest.mark.parametrize(
    ("thinking", "settings"),
    [
        (
            {"type": "enabled", "budget_tokens": 1024},
            ReasoningSettings(enabled=True, budget=1024, summary="auto", extra=OWN),
        ),
        ({"type": "disabled"}, ReasoningSettings(enabled=False, extra=OWN)),
        (
            {"type": "adaptive", "display": "omitted"},
            ReasoningSettings(
                enabled=True,
                adaptive=True,
                extra=Extra("messages", {"display": Raw(b'"omitted"')}),
            ),
        ),
        (
            {"type": "between_tools"},
            ReasoningSettings(
                enabled=True,
                summary="auto",
                extra=Extra("messages", {"type": Raw(b'"between_tools"')}),
            ),
        ),
    ],
)
def test_thinking(thinking: object, settings: ReasoningSettings) -> None:
    assert decode(thinking=thinking).reasoning == settings


def test_effort_and_format_stand_in_output_config() -> None:
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    request = decode(
        output_config={"effort": "high", "format": schema, "task_budget": {"total": 1}}
    )
    assert request.reasoning == ReasoningSettings(effort="high", extra=OWN)
    assert request.response_format == ResponseFormat(
        kind="json_schema",
        schema=Raw(b'{"type": "object"}'),
        extra=Extra("messages", {"format": Raw(json.dumps(schema).encode())}),
    )
    assert request.extra == Extra(
        "messages", {"output_config": Raw(b'{"task_budget":{"total": 1}}')}
    )


def test_older_place_of_the_format_is_remembered() -> None:
    schema: Json = {"type": "json_schema", "schema": {}}
    found = decode(output_format=schema).response_format
    assert found is not None
    assert found.extra == Extra("messages", {"output_format": Raw(json.dumps(schema).encode())})
    other = decode(output_format={"type": "later"}).response_format
    assert other is not None
    assert other.kind == "other"


def test_everything_else_rides_along() -> None:
    request = decode(
        thread={"type": "create"},
        betas=["b"],
        container=None,
        metadata={"user_id": None, "team": "t"},
    )
    assert request.user is None
    assert request.extra == Extra(
        "messages",
        {
            "thread": Raw(b'{"type": "create"}'),
            "betas": Raw(b'["b"]'),
            "metadata": Raw(b'{"team":"t"}'),
        },
    )


# --- what cannot be understood -------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b'{"messages":["\xff"]}'])
def test_bodies_that_are_no_json_object_are_refused(body: bytes) -> None:
    with pytest.raises(RequestRefused) as caught:
        decode_request(body)
    assert caught.value.code == "invalid_json"


REFUSED: list[tuple[Json, str]] = [
    ({"messages": None}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": [5]}, "messages.0"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": [5]}]}, "messages.0.content.0"),
    ({"messages": [{"role": "user", "content": [{}]}]}, "messages.0.content.0.type"),
    (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]},
        "messages.0.content.0.name",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": 5}]}]},
        "messages.0.content.0.content",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [5]}]}]},
        "messages.0.content.0.content.0",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{}]}]}]},
        "messages.0.content.0.content.0.type",
    ),
    ({"system": 5}, "system"),
    ({"model": 5}, "model"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"temperature": True}, "temperature"),
    ({"stream": "yes"}, "stream"),
    ({"stop_sequences": "x"}, "stop_sequences"),
    ({"stop_sequences": [5]}, "stop_sequences.0"),
    ({"tools": {}}, "tools"),
    ({"tools": [5]}, "tools.0"),
    ({"tools": [{"name": ""}]}, "tools.0.name"),
    ({"tools": [{"name": "f", "input_schema": 5}]}, "tools.0.input_schema"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
    ({"tool_choice": {}}, "tool_choice.type"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"thinking": {"type": 5}}, "thinking.type"),
    ({"thinking": {}}, "thinking.type"),
    ({"output_config": {"effort": 5}}, "output_config.effort"),
    ({"output_config": {"format": 5}}, "output_config.format"),
    ({"output_format": 5}, "output_format"),
    ({"metadata": {"user_id": 5}}, "metadata.user_id"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
        "messages.0.content.0.source",
    ),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_makes_no_sense_is_refused_with_its_place(fields: Json, param: str) -> None:
    found, message = refused(**fields)
    assert found == param
    assert param in message
    assert "expected" in message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [{"role": "user", "content": "a"}], "max_tokens": None}, "max_tokens"),
        ({"messages": [], "max_tokens": 5}, "messages"),
        ({"messages": [], "max_tokens": 5, "system": "s"}, "messages"),
    ],
)
def test_a_request_without_a_limit_or_a_message_can_be_counted_and_not_answered(
    fields: Json, param: str
) -> None:
    request = decode(**fields)
    with pytest.raises(RequestRefused, match=f"^{param}: expected") as caught:
        check_request(request)
    assert (caught.value.param, caught.value.code) == (param, "missing_field")


def test_a_limit_of_zero_fills_the_cache_and_is_no_missing_limit() -> None:
    check_request(decode(messages=[{"role": "user", "content": "a"}], max_tokens=0))


# --- the cache ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "session"),
    [
        ('{"device_id":"d","account_uuid":"","session_id":"36b0-8826"}', "36b0-8826"),
        ("user_0a1b_account__session_36b0-8826", "36b0-8826"),
        ("user_0a1b_account_9c_session_36b0-8826", "36b0-8826"),
        ('{"session_id":""}', None),
        ('{"session_id":7}', None),
        ('{"device_id":"d"}', None),
        ('{"session_id":"' + "x" * 65 + '"}', None),
        ("{broken", None),
        ("ann", None),
        ("user_0a1b_account__session_", None),
        ("user_x_session_a b", None),
    ],
)
def test_a_session_is_read_from_the_user_ids_of_claude_code(user: str, session: str | None) -> None:
    request = decode(metadata={"user_id": user})
    assert (request.user, request.session) == (user, session)


def test_a_breakpoint_of_the_whole_request_is_a_setting() -> None:
    request = decode(cache_control={"type": "ephemeral", "ttl": "1h"})
    assert request.cache == CacheSettings(last=Breakpoint(ttl="1h", alone=True))
    assert request.extra is None
    assert decode(cache_control=None).cache is None
    assert refused(cache_control="yes") == (
        "cache_control",
        'cache_control: expected an object, got a string: "yes"',
    )
