"""Whole answers of the client's own dialect: as they came, or put right."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.core.aliases import NameMap
from dragoman.core.usage import Tally
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.relay import relay_body
from dragoman.dialects.translate import TranslatedBody
from dragoman.model.request import Tool

CHAT: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1757000000,
    "model": "gpt-x",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a": 1.0}'},
                    }
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    "x_unknown": 1,
}
RESPONSES: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1757000000,
    "status": "completed",
    "model": "gpt-x",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hm.", "annotations": []}],
        },
        {
            "id": "fc_1",
            "type": "function_call",
            "status": "completed",
            "call_id": "call_1",
            "name": "f",
            "arguments": '{"a": 1.0}',
        },
    ],
    "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    "x_unknown": 1,
}
MESSAGES: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1.0}}],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 2},
    "x_unknown": 1,
}
BODIES = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
Change = Callable[[dict[str, Any]], object]


def relayed(dialect: str, data: bytes, **more: Any) -> tuple[TranslatedBody, Tally]:
    settings: dict[str, Any] = {"decode": DecodeContext(), "encode": EncodeContext(), **more}
    return relay_body(data, dialect, **settings)


def spoilt(dialect: str, change: Change) -> bytes:
    body: dict[str, Any] = json.loads(json.dumps(BODIES[dialect]))
    change(body)
    return json.dumps(body).encode()


def chat_call(body: dict[str, Any]) -> dict[str, Any]:
    call: dict[str, Any] = body["choices"][0]["message"]["tool_calls"][0]
    return call


IRREGULAR: dict[tuple[str, str], tuple[Change, Change]] = {
    # what is wrong, and what of the answer shows that it was put right
    ("chat", "no type"): (
        lambda body: chat_call(body).pop("type"),
        lambda body: chat_call(body)["type"] == "function",
    ),
    ("chat", "no id"): (
        lambda body: chat_call(body).pop("id"),
        lambda body: chat_call(body)["id"].startswith("call_"),
    ),
    ("chat", "empty arguments"): (
        lambda body: chat_call(body)["function"].update(arguments=""),
        lambda body: chat_call(body)["function"]["arguments"] == "{}",
    ),
    ("chat", "object arguments"): (
        lambda body: chat_call(body)["function"].update(arguments={"a": 1}),
        lambda body: json.loads(chat_call(body)["function"]["arguments"]) == {"a": 1},
    ),
    ("chat", "no created"): (
        lambda body: body.pop("created"),
        lambda body: isinstance(body["created"], int),
    ),
    ("chat", "unknown finish"): (
        lambda body: body["choices"][0].update(finish_reason="weird"),
        lambda body: body["choices"][0]["finish_reason"] == "tool_calls",
    ),
    ("chat", "stop beside calls"): (
        lambda body: body["choices"][0].update(finish_reason="stop"),
        lambda body: body["choices"][0]["finish_reason"] == "tool_calls",
    ),
    ("responses", "no annotations"): (
        lambda body: body["output"][0]["content"][0].pop("annotations"),
        lambda body: body["output"][0]["content"][0]["annotations"] == [],
    ),
    ("responses", "call id as id"): (
        lambda body: body["output"][1].update(id="call_1"),
        lambda body: body["output"][1]["id"].startswith("fc_"),
    ),
    ("responses", "no status"): (
        lambda body: body["output"][1].pop("status"),
        lambda body: body["output"][1]["status"] == "completed",
    ),
    ("responses", "empty arguments"): (
        lambda body: body["output"][1].update(arguments=""),
        lambda body: body["output"][1]["arguments"] == "{}",
    ),
    ("messages", "end_turn beside a call"): (
        lambda body: body.update(stop_reason="end_turn"),
        lambda body: body["stop_reason"] == "tool_use",
    ),
    ("messages", "a foreign id"): (
        lambda body: body["content"][0].update(id="functions.f:0"),
        lambda body: body["content"][0]["id"].startswith("dgm_"),
    ),
    ("messages", "input as text"): (
        lambda body: body["content"][0].update(input='{"a": 1}'),
        lambda body: body["content"][0]["input"] == {"a": 1},
    ),
    ("messages", "no usage"): (
        lambda body: body.pop("usage"),
        lambda body: "output_tokens" in body["usage"],
    ),
}


@pytest.mark.parametrize("dialect", BODIES)
def test_regular_body_is_the_same_bytes(dialect: str) -> None:
    data = json.dumps(BODIES[dialect], indent=3).encode()
    found, tally = relayed(dialect, data)
    assert found.body is data
    assert tally.names == ["f"]
    assert tally.finish == "tool_calls"


@pytest.mark.parametrize("dialect", BODIES)
def test_model_is_renamed_in_place(dialect: str) -> None:
    data = json.dumps(BODIES[dialect], indent=3).encode()
    sent, tally = relayed(dialect, data, encode=EncodeContext(model="ours"))
    renamed = data.replace(b'"gpt-x"', b'"ours"').replace(b'"claude-x"', b'"ours"')
    assert sent.body == renamed
    assert tally.model in ("gpt-x", "claude-x")


@pytest.mark.parametrize("key", IRREGULAR, ids=" ".join)
def test_irregular_body_is_put_right(key: tuple[str, str]) -> None:
    dialect, _ = key
    wrong, is_right = IRREGULAR[key]
    data = spoilt(dialect, wrong)
    found, tally = relayed(dialect, data)
    assert found.error is None
    assert is_right(json.loads(found.body)), found.body
    assert tally.names == ["f"]
    assert relayed(dialect, found.body)[0].body is found.body
    assert relayed(dialect, data, exact=True)[0].body is data


@pytest.mark.parametrize("dialect", BODIES)
def test_error_body_is_an_error_in_the_dialects_own_form(dialect: str) -> None:
    data = b'{"error": {"message": "it broke", "type": "server_error"}}'
    found, tally = relayed(dialect, data)
    assert found.error is not None
    assert found.error.message == "it broke"
    assert tally.error is found.error
    assert b"it broke" in found.body


def test_body_that_is_no_answer_is_an_error() -> None:
    found, _ = relayed("chat", b"<html>oops</html>")
    assert found.error is not None
    assert found.problems


def test_name_that_must_be_restored_is() -> None:
    names = NameMap.build([Tool(name="f", namespace="n")])
    data = spoilt("chat", lambda body: chat_call(body)["function"].update(name="n__f"))
    found, tally = relayed("chat", data, names=names)
    assert tally.names == ["f"]
    assert found.body != data


def test_legacy_client_gets_a_legacy_call() -> None:
    sent, _ = relayed(
        "chat", json.dumps(CHAT).encode(), encode=EncodeContext(legacy_functions=True)
    )
    message = json.loads(sent.body)["choices"][0]["message"]
    assert message["function_call"]["name"] == "f"
    again, _ = relayed("chat", sent.body, encode=EncodeContext(legacy_functions=True))
    assert again.body is sent.body
