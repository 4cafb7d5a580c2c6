"""Settings of a request for a Responses upstream, and requests of this dialect that go out as they came."""

import json
from time import process_time
from typing import Any

import pytest

from dragoman._json import Raw, raw
from dragoman.dialects.responses import LOSSES, decode_request, encode_request
from dragoman.errors import RequestRefused
from dragoman.model.parts import Extra, Reasoning, Seal, Text
from dragoman.model.request import (
    ReasoningSettings,
    Request,
    ResponseFormat,
    Role,
    Turn,
)
from responses_help import Json, body_of

CACHE = raw({"type": "ephemeral"})


def encode(*turns: Turn, model: str = "m", **fields: Any) -> Json:
    return body_of(encode_request(Request(model=model, turns=turns, **fields)))


def losses_of(*turns: Turn, **fields: Any) -> list[str]:
    return [loss.code for loss in encode_request(Request(turns=turns, **fields)).losses]


def turn(role: Role, *parts: Any, **fields: Any) -> Turn:
    return Turn(role=role, parts=parts, **fields)


def again(**fields: Any) -> Json:
    """A request of this dialect, read and written."""
    fields = {"model": "m", "input": [], **fields}
    return body_of(encode_request(decode_request(json.dumps(fields).encode())))


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"seed": 1}, "seed"),
        ({"top_k": 4}, "top_k"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"logit_bias": raw({})}, "logit_bias"),
        ({"extra": Extra("chat", {"a": Raw(b"1")})}, "unknown_field"),
        ({"service_tier": "weird"}, "unknown_field"),
        ({"response_format": ResponseFormat(kind="other")}, "response_format"),
        ({"max_tokens": 1}, "min_tokens"),
    ],
)
def test_m162_settings_without_a_word_here_are_noted(fields: Json, code: str) -> None:
    assert losses_of(**fields) == [code]


def test_losses_name_the_fields() -> None:
    extra = Extra("chat", {"b": Raw(b"1"), "a": Raw(b"1")})
    losses = encode_request(Request(extra=extra)).losses
    assert [(loss.code, loss.where) for loss in losses] == [
        ("unknown_field", "b"),
        ("unknown_field", "a"),
    ]


def test_several_choices_are_refused_by_default() -> None:
    with pytest.raises(RequestRefused):
        encode(choices=2)
    assert losses_of(choices=1) == []


def test_policy_may_refuse_what_is_dropped_by_default() -> None:
    with pytest.raises(RequestRefused) as caught:
        encode_request(Request(top_k=4), policy={"top_k": "refuse"})
    assert caught.value.param == "top_k"


def test_stop_sequences_are_left_to_the_caller() -> None:
    encoded = encode_request(Request(stop=("#", "END")))
    assert encoded.stop == ("#", "END")
    assert not encoded.losses
    assert b"END" not in encoded.body


def test_least_number_of_tokens_is_sent() -> None:
    assert encode(max_tokens=1)["max_output_tokens"] == 16
    assert encode(max_tokens=100)["max_output_tokens"] == 100
    assert again(input=[], max_output_tokens=1)["max_output_tokens"] == 1


@pytest.mark.parametrize(
    ("settings", "written", "is_sealed"),
    [
        (ReasoningSettings(enabled=True, budget=31_999), {"effort": "high"}, True),
        (ReasoningSettings(enabled=True, budget=1024), {"effort": "low"}, True),
        (ReasoningSettings(effort="xhigh"), {"effort": "xhigh"}, True),
        (ReasoningSettings(enabled=False, budget=1024), None, False),
        (ReasoningSettings(enabled=True, adaptive=True), None, True),
        (
            ReasoningSettings(enabled=True, effort="low", summary="auto"),
            {"effort": "low", "summary": "auto"},
            True,
        ),
    ],
)
def test_budgets_become_efforts(
    settings: ReasoningSettings, written: Json | None, is_sealed: bool
) -> None:
    body = encode(reasoning=settings)
    assert body.get("reasoning") == written
    assert body.get("include", []) == (["reasoning.encrypted_content"] if is_sealed else [])


@pytest.mark.parametrize(
    ("model", "is_asked"),
    [
        ("gpt-5.5", True),
        ("gpt-5-mini", True),
        ("o3", True),
        ("openai/gpt-oss-120b", True),
        ("codex-mini-latest", True),
        ("gpt-4.1", False),
        ("gpt-4o", False),
        ("gpt-5-chat-latest", False),
        ("chatgpt-4o-latest", False),
        ("of-our-own", False),
    ],
)
def test_encrypted_reasoning_is_asked_of_models_that_reason_unasked(
    model: str, is_asked: bool
) -> None:
    """The others refuse it. Nothing is asked where the provider stores the reasoning, or the client wants none."""
    assert encode(model=model).get("include") == (
        ["reasoning.encrypted_content"] if is_asked else None
    )
    assert "include" not in encode(model=model, store=True)
    assert "include" not in encode(model=model, reasoning=ReasoningSettings(enabled=False))
    assert "include" not in again(input=[], model=model, store=False)


def test_a_model_whose_name_is_as_long_as_a_request_costs_little() -> None:
    start = process_time()
    assert "include" not in encode(model="/o1" * 200_000 + "chat")
    assert process_time() - start < 5


def test_encrypted_reasoning_is_asked_of_an_upstream_that_gave_some() -> None:
    sealed = Reasoning(item_id="rs_1", seals=(Seal("encrypted", "gAAA"),))
    asked = Turn(role="user", parts=(Text(text="hi"),))
    body = encode(asked, Turn(role="assistant", parts=(sealed,)))
    assert body["include"] == ["reasoning.encrypted_content"]
    foreign = Reasoning(item_id="rs_1", summary=("Hm.",), seals=(Seal("signature", "EqQB"),))
    assert "include" not in encode(asked, Turn(role="assistant", parts=(foreign,)))


def test_reasoning_extras_of_other_dialects_are_noted() -> None:
    extra = Extra("messages", {"display": Raw(b'"x"')})
    assert losses_of(reasoning=ReasoningSettings(enabled=True, budget=1, extra=extra)) == [
        "unknown_field"
    ]


def test_nothing_is_kept_for_dialects_that_keep_nothing() -> None:
    assert encode()["store"] is False
    assert encode(store=True)["store"] is True
    assert "store" not in again(input=[])


def test_own_state_is_sent_as_it_came() -> None:
    body = again(input=[], store=False, reasoning={"effort": "low"}, include=[])
    assert body["include"] == ["reasoning.encrypted_content"]
    asked = again(input=[], store=False, reasoning={}, include=["reasoning.encrypted_content"])
    assert asked["include"] == ["reasoning.encrypted_content"]
    assert asked["reasoning"] == {}


def test_logprobs_are_asked_for_by_include() -> None:
    body = encode(logprobs=True, top_logprobs=2)
    assert (body["include"], body["top_logprobs"]) == (["message.output_text.logprobs"], 2)
    asked = again(input=[], include=["message.output_text.logprobs"])
    assert asked["include"] == ["message.output_text.logprobs"]


@pytest.mark.parametrize(
    ("form", "written"),
    [
        (ResponseFormat(kind="text"), {"type": "text"}),
        (ResponseFormat(kind="json_object"), {"type": "json_object"}),
        (
            ResponseFormat(kind="json_schema", schema=raw({"a": 1}), strict=True, description="d"),
            {
                "type": "json_schema",
                "name": "response",
                "schema": {"a": 1},
                "description": "d",
                "strict": True,
            },
        ),
        (
            ResponseFormat(kind="json_schema", name="n"),
            {"type": "json_schema", "name": "n", "schema": {}},
        ),
    ],
)
def test_formats_are_written_flat(form: ResponseFormat, written: Json) -> None:
    assert encode(response_format=form)["text"] == {"format": written}


def test_own_unknown_format_is_written_back() -> None:
    text: Json = {"format": {"type": "grammar", "x": 1}, "verbosity": "low", "y": 2}
    encoded = encode_request(
        decode_request(json.dumps({"model": "m", "input": [], "text": text}).encode())
    )
    assert json.loads(encoded.body)["text"] == text


def test_plain_settings_are_written() -> None:
    body = encode(
        parallel_calls=False,
        stream=True,
        temperature=0.5,
        top_p=0.9,
        user="u",
        safety_id="s",
        cache_key="k",
        metadata=raw({"a": "b"}),
        service_tier="standard_only",
        verbosity="low",
    )
    assert body["parallel_tool_calls"] is False
    assert body["service_tier"] == "default"
    assert body["metadata"] == {"a": "b"}
    assert body["text"] == {"verbosity": "low"}
    assert (body["user"], body["safety_identifier"], body["prompt_cache_key"]) == ("u", "s", "k")


# --- round trips -----------------------------------------------------------------------------------------------------

CODEX: Json = {
    "model": "gpt-5.5",
    "stream": True,
    "input": [
        {"type": "message", "id": "msg_1", "role": "developer", "content": "base"},
        {"type": "message", "id": "msg_2", "role": "user", "content": "hi"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "ENC",
        },
        {
            "type": "function_call",
            "status": "completed",
            "id": "fc_1",
            "name": "exec_command",
            "arguments": '{"cmd": "echo hi"}',
            "call_id": "call_1",
        },
        {
            "type": "custom_tool_call",
            "id": "ctc_1",
            "status": "completed",
            "call_id": "call_c1",
            "name": "apply_patch",
            "input": "*** Begin Patch\n",
        },
        {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": "hi\n"},
        {
            "type": "custom_tool_call_output",
            "id": "ctco_1",
            "call_id": "call_c1",
            "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        },
        {
            "type": "tool_search_call",
            "id": "tsc_1",
            "call_id": "call_ts",
            "status": "completed",
            "execution": "client",
            "arguments": {"query": "echo tool", "limit": 3},
        },
        {
            "type": "tool_search_output",
            "id": "tso_1",
            "call_id": "call_ts",
            "status": "completed",
            "execution": "client",
            "tools": [],
        },
        {
            "type": "message",
            "status": "completed",
            "id": "msg_3",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "done", "annotations": []}],
            "phase": "commentary",
        },
    ],
    "tools": [
        {
            "type": "function",
            "name": "exec_command",
            "description": "d",
            "strict": False,
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "d",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
        },
        {
            "type": "namespace",
            "name": "mcp__probe",
            "description": "d",
            "tools": [{"type": "function", "name": "echo", "strict": False, "parameters": {}}],
        },
        {"type": "tool_search", "execution": "client", "description": "d", "parameters": {}},
        {"type": "web_search", "external_web_access": True},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "context": "all_turns"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "text": {"verbosity": "low"},
    "client_metadata": {"session_id": "s"},
}


def test_request_of_codex_goes_out_as_it_came() -> None:
    encoded = encode_request(decode_request(json.dumps(CODEX).encode()))
    assert json.loads(encoded.body) == CODEX
    assert encoded.losses == ()
    assert encoded.repairs == ()


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"input": "hi"}, {"input": [{"type": "message", "role": "user", "content": "hi"}]}),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
            {"input": [{"type": "message", "role": "user", "content": "hi"}]},
        ),
        (
            {"input": [{"role": "assistant", "content": "hi", "id": "x"}]},
            {"input": [{"type": "message", "role": "assistant", "content": "hi"}]},
        ),
        (
            {
                "input": [],
                "tools": [{"type": "function", "name": "f", "description": None}],
                "store": None,
            },
            {"input": [], "tools": [{"type": "function", "name": "f", "parameters": None}]},
        ),
        ({"input": [], "tools": []}, {"input": []}),
    ],
)
def test_what_is_written_otherwise_is_listed(given: Json, written: Json) -> None:
    body = json.loads(
        encode_request(
            decode_request(json.dumps({"model": "m", "input": [], **given}).encode())
        ).body
    )
    assert body == {"model": "m", **written}


def test_own_sound_is_sent_as_it_came() -> None:
    part: Json = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    item: Json = {"type": "message", "role": "user", "content": [part]}
    encoded = encode_request(decode_request(json.dumps({"model": "m", "input": [item]}).encode()))
    assert json.loads(encoded.body)["input"] == [item]


def test_own_opaque_content_is_sent_as_it_came() -> None:
    item: Json = {"type": "message", "role": "user", "content": [{"type": "input_video", "x": 1}]}
    encoded = encode_request(decode_request(json.dumps({"model": "m", "input": [item]}).encode()))
    assert json.loads(encoded.body)["input"] == [item]


def test_every_loss_code_says_what_it_means() -> None:
    assert all(rule.meaning for rule in LOSSES.values())
