"""Requests to an upstream of the client's own dialect: as they came, or why not."""

import json
import tracemalloc
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
    assert codec(dialect).find_repairs(codec(dialect).decode_request(sent.body)) == ()


# --- what Anthropic refuses in a request of its own dialect ---

TEXT = {"type": "text", "text": "Let me look."}
EMPTY = {"type": "text", "text": ""}
BLANK = {"type": "text", "text": " \n"}
USE: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sealed"}
HI = {"role": "user", "content": "hi"}
MANUAL = {"type": "enabled", "budget_tokens": 1024}


def said(*blocks: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": [*blocks]}


RESULTS = said(RESULT, role="user")

REPAIRED: dict[str, tuple[list[Any], list[str], list[Any]]] = {
    "empty text before a call": (
        [HI, said(EMPTY, USE), RESULTS],
        ["empty_text"],
        [HI, said(USE), RESULTS],
    ),
    "blank text of a user": (
        [said(TEXT, BLANK, role="user")],
        ["empty_text"],
        [{"role": "user", "content": TEXT["text"]}],
    ),
    "empty text after results": (
        [HI, said(USE), said(RESULT, EMPTY, role="user")],
        ["empty_text"],
        [HI, said(USE), RESULTS],
    ),
    "empty text in a result": (
        [HI, said(USE), said({**RESULT, "content": [EMPTY]}, role="user")],
        ["empty_text"],
        [HI, said(USE), said({"type": "tool_result", "tool_use_id": "toolu_1"}, role="user")],
    ),
    "a user message without content": (
        [said(role="user")],
        ["empty_turn"],
        [{"role": "user", "content": "."}],
    ),
    "an empty message of a user": (
        [{"role": "user", "content": ""}],
        ["empty_text", "empty_turn"],
        [{"role": "user", "content": "."}],
    ),
    "an empty message of the assistant": (
        [HI, said(EMPTY), HI],
        ["empty_text", "empty_turn"],
        [{"role": "user", "content": [{"type": "text", "text": "hi"}] * 2}],
    ),
    "text after a call": (
        [HI, said(USE, TEXT), RESULTS],
        ["text_before_calls"],
        [HI, said(TEXT, USE), RESULTS],
    ),
    "text after a call in a message of its own": (
        [HI, said(USE), said(TEXT), RESULTS],
        ["text_before_calls"],
        [HI, said(TEXT, USE), RESULTS],
    ),
}


@pytest.mark.parametrize("case", REPAIRED)
def test_what_anthropic_refuses_in_texts_is_repaired(case: str) -> None:
    messages, rules, repaired = REPAIRED[case]
    sent = relayed("messages", body_of("messages", messages=messages))
    assert [repair.rule for repair in sent.repairs] == rules
    assert json.loads(sent.body)["messages"] == repaired
    own = codec("messages")
    assert own.find_repairs(own.decode_request(sent.body)) == ()
    # A later request of the conversation is repaired in the same way: its beginning stays the same.
    later = [*messages, said(TEXT), HI]
    start = json.dumps(repaired[:-1])[1:-1].encode()
    assert (
        start
        in json.dumps(
            json.loads(relayed("messages", body_of("messages", messages=later)).body)["messages"]
        ).encode()
    )


UNSIGNED: dict[str, list[Any]] = {
    "a call": [HI, said(USE), RESULTS],
    "text and a call": [HI, said(TEXT, USE), RESULTS],
    "results with text": [HI, said(USE), said(RESULT, TEXT, role="user")],
    "a call after an earlier turn that thought": [HI, said(THOUGHT, TEXT), HI, said(USE), RESULTS],
}


@pytest.mark.parametrize("case", UNSIGNED)
def test_thinking_is_switched_off_where_the_last_calls_lack_it(case: str) -> None:
    """Anthropic: expected `thinking` or `redacted_thinking`, but found `tool_use`."""
    body = body_of("messages", messages=UNSIGNED[case], thinking=MANUAL)
    sent = relayed("messages", body)
    assert [repair.rule for repair in sent.repairs] == ["thinking_off"]
    assert [loss.code for loss in sent.losses] == ["thinking_off"]
    whole = json.loads(sent.body)
    assert whole["thinking"] == {"type": "disabled"}
    assert whole["messages"] == UNSIGNED[case]


ACCEPTED: dict[str, tuple[list[Any], Any]] = {
    "thinking before the call": ([HI, said(THOUGHT, USE), RESULTS], MANUAL),
    "thinking in the first step only": (
        [
            HI,
            said(THOUGHT, USE),
            RESULTS,
            said({**USE, "id": "toolu_2"}),
            said({**RESULT, "tool_use_id": "toolu_2"}, role="user"),
        ],
        MANUAL,
    ),
    "calls of an earlier turn": ([HI, said(USE), RESULTS, said(TEXT), HI], MANUAL),
    "adaptive thinking": ([HI, said(USE), RESULTS], {"type": "adaptive"}),
    "no thinking": ([HI, said(USE), RESULTS], {"type": "disabled"}),
    "an empty result": ([HI, said(USE), said({**RESULT, "content": ""}, role="user")], ...),
    "a result without content": (
        [HI, said(USE), said({"type": "tool_result", "tool_use_id": "toolu_1"}, role="user")],
        ...,
    ),
    "an empty last message of the assistant": ([HI, {"role": "assistant", "content": ""}], ...),
    "text before the call": ([HI, said(TEXT, USE), RESULTS], ...),
    "text after the results": ([HI, said(USE), said(RESULT, TEXT, role="user")], ...),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_anthropic_accepts_goes_as_it_came(case: str) -> None:
    messages, thinking = ACCEPTED[case]
    body = body_of("messages", messages=messages, thinking=thinking, system="")
    sent = relayed("messages", body)
    assert sent.body is body
    assert (sent.repairs, sent.losses) == ((), ())


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


def test_schemas_that_are_as_long_as_a_request_are_not_remembered() -> None:
    target = replace(codec("chat").target, schemas=SchemaRules(drop=frozenset({"$other"})))
    tracemalloc.start()
    try:
        for number in range(20):
            schema = {**SCHEMA, "description": str(number) * 400_000}
            function = {"name": "f", "parameters": schema}
            body = body_of("chat", tools=[{"type": "function", "function": function}])
            assert relayed("chat", body, target).body is body
            del schema, function, body
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert left < 2_000_000


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
