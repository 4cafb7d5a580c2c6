"""Compaction at the Messages door: `compaction` and `context_management` over upstreams of every dialect."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from doors import payloads
from dragoman.core.summaries import TAG
from dragoman.engine.compaction import INSTRUCTION, PREFACE
from dragoman.testing import ReceivedRequest, json_reply
from plain_http import fetch
from stage import Stage, running_stage
from vendor_wire import Answer, Said

Json = dict[str, Any]

SUMMARY = "The user builds a boat. The hull is done; the mast remains."
WISH: Json = {"type": "summarize", "instructions": "Mention the hull."}
HISTORY: list[Json] = [
    {"role": "user", "content": "Build a boat."},
    {"role": "assistant", "content": [{"type": "text", "text": "Hull done."}]},
    {"role": "user", "content": "Go."},
]
EDITS: list[Json] = [
    {"type": "clear_thinking_20251015", "keep": "all"},
    {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 30000}},
    {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 150000}},
]
others = pytest.mark.parametrize("dialect", ["chat", "responses"])
streamed = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    lacking = {"kind": "messages", "compaction": "gateway"}
    with running_stage(upstreams={"lacking": lacking}) as running:
        yield running


def said(*texts: str) -> Answer:
    return Answer((Said(texts),))


def post(stage: Stage, **body: object) -> Any:
    content = json.dumps({"max_tokens": 500, "messages": HISTORY, **body}).encode()
    return fetch("POST", f"{stage.url}/v1/messages", {"content-type": "application/json"}, content)


def conversation_of(body: Json) -> list[tuple[str, str]]:
    """Role and text of each message of a Chat or Responses request."""
    found: list[tuple[str, str]] = []
    for message in body.get("messages") or body["input"]:
        content = message["content"]
        if not isinstance(content, str):
            content = "".join(part["text"] for part in content)
        found.append((message["role"], content))
    return found


def summarised(stage: Stage, dialect: str, *, stream: bool) -> Json:
    """The block of an answer to a request for a summary."""
    scene = stage.scene(dialect, said("The user ", SUMMARY.removeprefix("The user ")))
    tools = [{"name": "saw", "input_schema": {"type": "object"}}]
    reply = post(stage, model=scene.model, compaction=WISH, tools=tools, stream=stream)
    assert reply.status_code == 200, reply.text
    assert conversation_of(scene.heard)[-1] == ("user", f"{INSTRUCTION}\n\nMention the hull.")
    assert "tools" not in scene.heard
    block: Json
    if not stream:
        body: Json = json.loads(reply.content)
        assert (body["stop_reason"], body["usage"]["output_tokens"]) == ("compaction", 7)
        (block,) = body["content"]
        return block
    events = [event for _, event in payloads(reply.content)]
    (start,) = [event for event in events if event["type"] == "content_block_start"]
    block = start["content_block"]
    for event in events:
        if event["type"] == "content_block_delta":
            assert event["delta"]["type"] == "compaction_delta"
            block = {**block, **event["delta"], "type": "compaction"}
    (delta,) = [event for event in events if event["type"] == "message_delta"]
    assert delta["delta"]["stop_reason"] == "compaction"
    return block


@streamed
@others
def test_a_summary_is_one_compaction_block(stage: Stage, dialect: str, stream: bool) -> None:
    block = summarised(stage, dialect, stream=stream)
    assert (block["type"], block["content"]) == ("compaction", SUMMARY)
    assert block["encrypted_content"].startswith(TAG)


@streamed
@others
@pytest.mark.parametrize(
    "answer",
    [Answer(()), Answer((Said(("The user",)),), finish="length")],
    ids=["empty", "cut"],
)
def test_an_answer_that_is_no_summary_is_an_error(
    stage: Stage, dialect: str, stream: bool, answer: Answer
) -> None:
    scene = stage.scene(dialect, answer)
    reply = post(stage, model=scene.model, compaction=WISH, stream=stream)
    if stream:
        last = payloads(reply.content)[-1][1]
        assert not any("content_block" in event["type"] for _, event in payloads(reply.content))
    else:
        assert reply.status_code == 502
        last = json.loads(reply.content)
    assert last["type"] == "error"
    assert "was not compacted" in last["error"]["message"]


@others
def test_a_block_comes_back_in_place_of_what_it_summarises(stage: Stage, dialect: str) -> None:
    block = summarised(stage, dialect, stream=False)
    foreign = {"type": "compaction", "content": SUMMARY, "encrypted_content": "of-anthropic"}
    for each in (block, foreign):
        scene = stage.scene(dialect, said("Mast done."))
        replayed = [
            *HISTORY[:2],
            {"role": "user", "content": "old"},
            {"role": "assistant", "content": [each, {"type": "text", "text": "Ready."}]},
            {"role": "user", "content": "Go."},
        ]
        assert post(stage, model=scene.model, messages=replayed, system="S").status_code == 200
        assert conversation_of(scene.heard)[-3:] == [
            ("user", PREFACE + SUMMARY),
            ("assistant", "Ready."),
            ("user", "Go."),
        ]
        assert "Hull done." not in json.dumps(scene.heard)


def test_a_messages_upstream_gets_its_own_blocks_and_fields(stage: Stage) -> None:
    block: Json = {"type": "compaction", "content": SUMMARY, "encrypted_content": "of-anthropic"}
    messages = [{"role": "assistant", "content": [block]}, {"role": "user", "content": "Go."}]
    management = {"edits": EDITS}
    scene = stage.scene("messages", said("Mast done."))
    reply = post(stage, model=scene.model, messages=messages, context_management=management)
    assert reply.status_code == 200
    assert scene.heard["messages"] == messages
    assert scene.heard["context_management"] == management


def test_a_messages_upstream_makes_the_summary_itself(stage: Stage) -> None:
    block: Json = {"type": "compaction", "content": SUMMARY, "encrypted_content": "of-anthropic"}

    def native(request: ReceivedRequest) -> Any:
        assert json.loads(request.body)["compaction"] == WISH
        return json_reply(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [block],
                "stop_reason": "compaction",
                "stop_sequence": None,
                "usage": {"input_tokens": 9, "output_tokens": 2},
            }
        )

    scene = stage.scene("messages", native)
    body = json.loads(post(stage, model=scene.model, compaction=WISH).content)
    assert (body["content"], body["stop_reason"]) == ([block], "compaction")


@streamed
def test_a_messages_upstream_that_makes_no_summaries_is_asked_for_a_text(
    stage: Stage, stream: bool
) -> None:
    """A server that only resembles Anthropic's would ignore the field, and answer with an ordinary message."""
    scene = stage.scene("messages", said(SUMMARY), said("Mast done."), route="lacking")
    reply = post(stage, model=scene.model, compaction=WISH, stream=stream)
    assert reply.status_code == 200, reply.text
    assert INSTRUCTION in json.dumps(scene.heard)
    assert "compaction" not in scene.heard
    assert SUMMARY in reply.text
    assert b'"stop_reason":"compaction"' in reply.content
    block = {"type": "compaction", "content": SUMMARY, "signature": "of-anthropic"}
    replayed = [{"role": "assistant", "content": [block]}, {"role": "user", "content": "Go."}]
    assert post(stage, model=scene.model, messages=replayed).status_code == 200
    assert scene.heard["messages"][0]["content"][0]["text"] == PREFACE + SUMMARY


def test_a_messages_upstream_gets_our_own_block_as_a_message(stage: Stage) -> None:
    block = summarised(stage, "chat", stream=False)
    scene = stage.scene("messages", said("Mast done."))
    messages = [{"role": "assistant", "content": [block]}, {"role": "user", "content": "Go."}]
    assert post(stage, model=scene.model, messages=messages).status_code == 200
    assert PREFACE + SUMMARY in json.dumps(scene.heard, ensure_ascii=False).replace("\\n", "\n")
    assert "compaction" not in json.dumps(scene.heard)


@streamed
@others
def test_context_management_is_declared_as_lost(stage: Stage, dialect: str, stream: bool) -> None:
    scene = stage.scene(dialect, said("Hi."))
    reply = post(stage, model=scene.model, context_management={"edits": EDITS}, stream=stream)
    assert reply.status_code == 200
    assert "context_management" not in scene.heard
    assert reply.headers["x-dragoman-loss"]
