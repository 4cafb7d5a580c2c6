"""Requests to an upstream of the client's own dialect: as they came, or why not."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.core.aliases import IdLimits, NameLimits
from dragoman.core.schemas import SchemaRules
from dragoman.dialects.codec import EncodedRequest, Target
from dragoman.dialects.registry import codec
from dragoman.dialects.relay_request import relay_request

DIALECTS = ("chat", "responses", "messages")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "$comment": "kept"}

CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "hi", "x_mood": "good"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "x_unknown": {"number": 1},
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "input": [
        {"role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
    ],
    "tools": [
        {"type": "function", "name": "f", "parameters": SCHEMA},
        {"type": "namespace", "name": "n", "description": "", "tools": []},
        {"type": "web_search"},
    ],
    "stream": True,
    "x_unknown": {"number": 1},
}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sealed"},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}],
        },
    ],
    "tools": [
        {"name": "f", "input_schema": SCHEMA},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "stream": True,
    "x_unknown": {"number": 1},
}
REQUESTS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}

each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def body_of(dialect: str, **changes: Any) -> bytes:
    whole = {**REQUESTS[dialect], **changes}
    data = json.dumps({key: value for key, value in whole.items() if value is not ...}, indent=1)
    return data.replace('"number": 1', '"number": 1.0e0').encode()


def relayed(
    dialect: str,
    body: bytes,
    target: Target | None = None,
    model: str = "m",
    stream: bool | None = None,
) -> EncodedRequest:
    own = codec(dialect)
    return relay_request(
        body,
        own.decode_request(body),
        dialect=dialect,
        target=target or own.target,
        model=model,
        stream=stream,
    )


@each_dialect
def test_request_goes_as_it_came(dialect: str) -> None:
    body = body_of(dialect)
    sent = relayed(dialect, body, stream=True)
    assert sent.body is body
    assert not sent.repairs
    assert not sent.losses
    assert sent.names.find("f") is not None


def test_pictures_go_as_they_came() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    body = body_of("chat", messages=[{"role": "user", "content": [picture]}])
    assert relayed("chat", body).body is body


@each_dialect
def test_model_is_renamed_in_place(dialect: str) -> None:
    body = body_of(dialect)
    sent = relayed(dialect, body, model="other")
    assert sent.body == body.replace(b'"model": "m"', b'"model": "other"')


@each_dialect
def test_stream_is_switched_in_place(dialect: str) -> None:
    sent = relayed(dialect, body_of(dialect), stream=False)
    whole = json.loads(sent.body)
    assert whole["stream"] is False
    assert "stream_options" not in whole
    assert b"1.0e0" in sent.body
    asked = relayed(dialect, body_of(dialect, stream=..., stream_options=...), stream=True)
    whole = json.loads(asked.body)
    assert whole["stream"] is True
    assert whole.get("stream_options") == ({"include_usage": True} if dialect == "chat" else None)


@each_dialect
def test_call_without_a_result_is_given_one(dialect: str) -> None:
    key = "input" if dialect == "responses" else "messages"
    body = body_of(dialect, **{key: REQUESTS[dialect][key][:-1]})
    sent = relayed(dialect, body, model="other", stream=False)
    assert [repair.rule for repair in sent.repairs] == ["missing_result"]
    whole = json.loads(sent.body)
    assert whole["model"] == "other"
    assert whole["stream"] is False
    assert codec(dialect).pair_turns(codec(dialect).decode_request(sent.body))[1] == ()


def test_results_of_calls_that_the_vendor_holds_go_as_they_came() -> None:
    body = body_of("responses", input=RESPONSES["input"][2:], previous_response_id="resp_1")
    assert relayed("responses", body).body is body
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    body = body_of("messages", messages=MESSAGES["messages"][2:], thread=thread)
    assert relayed("messages", body).body is body


@each_dialect
def test_names_and_ids_beyond_the_limits_are_mapped(dialect: str) -> None:
    own = codec(dialect)
    names = relayed(
        dialect, body_of(dialect), replace(own.target, names=NameLimits(pattern="[a-e]"))
    )
    assert names.names.wire("f") != "f"
    ids = relayed(dialect, body_of(dialect), replace(own.target, ids=IdLimits(max_length=4)))
    assert b"call_1" not in ids.body
    assert b"toolu_1" not in ids.body


@pytest.mark.parametrize("dialect", ["chat"])
def test_schema_is_fixed_only_where_the_operator_says_so(dialect: str) -> None:
    own = codec(dialect)
    strict = replace(
        own.target, schemas=SchemaRules(drop=frozenset({"$comment"}), inline_refs=True)
    )
    assert b"$comment" not in relayed(dialect, body_of(dialect), strict).body
    lenient = replace(own.target, schemas=SchemaRules(drop=frozenset({"$other"})))
    body = body_of(dialect)
    assert relayed(dialect, body, lenient).body is body


def test_strict_tools_are_taken_back_where_the_upstream_knows_none() -> None:
    function = {"name": "f", "parameters": SCHEMA, "strict": True}
    body = body_of("chat", tools=[{"type": "function", "function": function}])
    target = replace(codec("chat").target, strict=False)
    assert "strict" not in json.loads(relayed("chat", body, target).body)["tools"][0]["function"]


def test_custom_tool_becomes_a_function_where_the_upstream_has_none() -> None:
    body = body_of(
        "chat",
        tools=[{"type": "custom", "custom": {"name": "patch"}}],
        messages=CHAT["messages"][:1],
    )
    sent = relayed("chat", body)
    assert json.loads(sent.body)["tools"][0]["type"] == "function"
    known = replace(codec("chat").target, builtin=frozenset({"custom"}))
    assert relayed("chat", body, known).body is body


def test_built_in_tool_that_the_operator_rules_out_is_dropped() -> None:
    target = replace(codec("responses").target, builtin=frozenset())
    sent = relayed("responses", body_of("responses"), target)
    assert b"web_search" not in sent.body
    assert [loss.code for loss in sent.losses] == ["builtin_tool"]


def test_limit_gets_the_name_that_the_upstream_reads() -> None:
    target = replace(codec("chat").target, max_tokens_field="max_completion_tokens")
    sent = relayed("chat", body_of("chat", max_tokens=7), target)
    assert json.loads(sent.body)["max_completion_tokens"] == 7
    body = body_of("chat", max_completion_tokens=7)
    assert relayed("chat", body, target).body is body
    assert relayed("chat", body).body is body


def test_conversation_that_must_begin_with_the_user_does() -> None:
    target = replace(codec("chat").target, user_first=True)
    body = body_of("chat")
    assert relayed("chat", body, target).body is body
    late = body_of("chat", messages=[{"role": "system", "content": "s"}, *CHAT["messages"][1:]])
    assert [repair.rule for repair in relayed("chat", late, target).repairs] == ["user_first"]


def test_seals_of_another_provider_never_reach_the_upstream() -> None:
    thinking = {
        "type": "thinking",
        "thinking": "hm",
        "signature": "dgm1.W1siZW5jcnlwdGVkIiwiYWJjIl1d",
    }
    message = {"role": "assistant", "content": [thinking, {"type": "text", "text": "hello"}]}
    body = body_of("messages", messages=[MESSAGES["messages"][0], message])
    sent = relayed("messages", body)
    assert b"dgm1." not in sent.body
    assert b"hello" in sent.body


def test_thinking_that_nobody_signed_never_reaches_the_upstream() -> None:
    thinking = {"type": "thinking", "thinking": "unsigned thoughts", "signature": ""}
    message = {"role": "assistant", "content": [thinking, {"type": "text", "text": "hello"}]}
    body = body_of("messages", messages=[MESSAGES["messages"][0], message])
    assert b"unsigned thoughts" not in relayed("messages", body).body


def test_key_that_stands_twice_is_sent_once_where_it_is_changed() -> None:
    body = b'{"model":"x","model":"m","messages":[{"role":"user","content":"hi"}]}'
    assert relayed("chat", body).body is body
    assert relayed("chat", body, model="other").body == (
        b'{"messages":[{"role":"user","content":"hi"}],"model":"other"}'
    )
