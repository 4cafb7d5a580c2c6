"""`context_management` and compactions that cross dialects: what the gateway clears, asks for, packs and unpacks."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from doors import check_own_messages, check_responses, payloads
from dragoman.engine.compaction import PREFACE
from dragoman.gateway.context_edits import CLEARED
from dragoman.testing import ReceivedRequest, ScriptedReply, json_reply, sse
from gateway_harness import DIALECTS
from heard import without_breakpoints
from plain_http import ask
from stage import Scene, Stage, running_stage
from vendor_wire import Answer, Said

Json = dict[str, Any]

SUMMARY = "The user builds a boat. The hull is done; the mast remains."
BLOCK: Json = {"type": "compaction", "content": SUMMARY, "encrypted_content": "of-anthropic"}
ITEM: Json = {"type": "compaction", "id": "cmp_vendor", "encrypted_content": "of-openai"}
TOOL = {"name": "saw", "input_schema": {"type": "object"}}
others = pytest.mark.parametrize("dialect", ["chat", "responses"])
streamed = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    native: dict[str, dict[str, object]] = {
        f"native-{kind}": {"kind": kind, "compaction": "native"}
        for kind in ("messages", "responses")
    }
    with running_stage(upstreams=native) as running:
        yield running


def said(*texts: str) -> Answer:
    return Answer((Said(texts),))


def post(stage: Stage, door: str, **body: object) -> Any:
    if door == "messages":
        body = {"max_tokens": 500, **body}
    reply = ask(stage.url, door, body)
    assert reply.status_code == 200, reply.text
    return reply


def message_of(content: bytes, *, stream: bool) -> Json:
    """The fields of an answer of Messages that its end has, and its blocks."""
    if not stream:
        body: Json = json.loads(content)
        return body
    events = [event for _, event in payloads(content)]
    (delta,) = [event for event in events if event["type"] == "message_delta"]
    blocks: list[Json] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"])
        elif event["type"] == "content_block_delta":
            kind = event["delta"].pop("type")
            if kind == "compaction_delta":
                blocks[-1] |= event["delta"]
    return {**delta, **delta["delta"], "content": blocks}


def response_of(content: bytes, *, stream: bool) -> Json:
    if not stream:
        body: Json = json.loads(content)
        return body
    check_responses(content)
    last: Json = payloads(content)[-1][1]["response"]
    return last


def native_messages(*blocks: Json, stop: str = "end_turn") -> Callable[[ReceivedRequest], Any]:
    """An answer of Anthropic with these blocks, as a stream or a body."""

    def reply(request: ReceivedRequest) -> ScriptedReply:
        message: Json = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 9, "output_tokens": 2},
        }
        if not json.loads(request.body).get("stream"):
            return json_reply({**message, "content": list(blocks), "stop_reason": stop})
        events: list[Json] = [{"type": "message_start", "message": message}]
        for index, block in enumerate(blocks):
            if block["type"] == "compaction":
                start: Json = {"type": "compaction", "content": None}
                delta = {**block, "type": "compaction_delta"}
            else:
                start, delta = {**block, "text": ""}, {**block, "type": "text_delta"}
            events += [
                {"type": "content_block_start", "index": index, "content_block": start},
                {"type": "content_block_delta", "index": index, "delta": delta},
                {"type": "content_block_stop", "index": index},
            ]
        end = {"stop_reason": stop, "stop_sequence": None}
        events += [
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ]
        frames = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]
        return sse(b"".join(frames), cut_into="frames")

    return reply


def native_responses(request: ReceivedRequest) -> ScriptedReply:
    """An answer of OpenAI that begins with a compaction."""
    text: Json = {"type": "output_text", "text": "Mast done.", "annotations": []}
    message: Json = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    output: list[Json] = [ITEM, {**message, "content": [text]}]
    usage = {
        "input_tokens": 9,
        "output_tokens": 2,
        "total_tokens": 11,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    response: Json = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
    done = {**response, "status": "completed", "output": output, "usage": usage}
    if not json.loads(request.body).get("stream"):
        return json_reply(done)
    place: Json = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
    events: list[Json] = [
        {"type": "response.created", "response": {**response, "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": ITEM},
        {"type": "response.compaction.compacting", "output_index": 0, "item_id": "cmp_vendor"},
        {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {**message, "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**text, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": "Mast done."},
        {"type": "response.output_text.done", **place, "text": "Mast done."},
        {"type": "response.content_part.done", **place, "part": text},
        {"type": "response.output_item.done", "output_index": 1, "item": output[1]},
        {"type": "response.completed", "response": done},
    ]
    frames = [
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
        for number, event in enumerate(events)
    ]
    return sse("".join(frames).encode(), cut_into="frames")


def headers_of(scene: Scene) -> dict[str, str]:
    return {name.lower(): value for name, value in scene.requests[-1].headers.items()}


# --- clearing ----------------------------------------------------------------------------------------------------------


def rounds(count: int, names: tuple[str, ...] = ("saw",)) -> list[Json]:
    """A conversation with so many calls, each with a long result."""
    messages: list[Json] = [{"role": "user", "content": "Build a boat."}]
    for number in range(count):
        name = names[number % len(names)]
        use = {"type": "tool_use", "id": f"c{number}", "name": name, "input": {"n": number}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"{number}:" * 99}
        messages.append({"role": "assistant", "content": [use]})
        messages.append({"role": "user", "content": [result]})
    return messages


def results_of(scene: Scene, number: int = -1) -> list[str]:
    body = json.loads(scene.requests[number].body)
    if "messages" in body:
        return [each["content"] for each in body["messages"] if each["role"] == "tool"]
    return [each["output"] for each in body["input"] if each["type"] == "function_call_output"]


def clearing(**more: object) -> Json:
    return {"edits": [{"type": "clear_tool_uses_20250919", **more}]}


USES = {"trigger": {"type": "tool_uses", "value": 3}, "keep": {"type": "tool_uses", "value": 2}}


@streamed
@others
def test_the_edit_of_claude_code_loses_nothing(stage: Stage, dialect: str, stream: bool) -> None:
    scene = stage.scene(dialect, said("Hi."))
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    messages = [{"role": "user", "content": "Hi."}]
    reply = post(
        stage,
        "messages",
        model=scene.model,
        messages=messages,
        context_management=edits,
        stream=stream,
    )
    if stream:
        check_own_messages(reply.content)
    got = message_of(reply.content, stream=stream)
    assert got["context_management"] == {"applied_edits": []}
    assert "context_management" not in scene.heard
    assert "context_management" not in reply.headers.get("x-dragoman-loss", "")


@streamed
@others
def test_old_results_are_cleared_and_reported(stage: Stage, dialect: str, stream: bool) -> None:
    scene = stage.scene(dialect, said("Hi."))
    reply = post(
        stage,
        "messages",
        model=scene.model,
        messages=rounds(5),
        tools=[TOOL],
        context_management=clearing(**USES),
        stream=stream,
    )
    cleared = [text == CLEARED for text in results_of(scene)]
    assert cleared == [True, True, False, False, False]
    (applied,) = message_of(reply.content, stream=stream)["context_management"]["applied_edits"]
    assert applied["type"] == "clear_tool_uses_20250919"
    assert applied["cleared_tool_uses"] == 2
    assert 60 < applied["cleared_input_tokens"] < 150


def test_most_requests_share_what_was_cleared(stage: Stage) -> None:
    """Law 13: a result that is cleared changes the beginning of the conversation, so several are cleared at once."""
    scene = stage.scene("chat", *[said("Hi.")] * 7)
    for count in range(3, 10):
        post(
            stage,
            "messages",
            model=scene.model,
            messages=rounds(count),
            tools=[TOOL],
            context_management=clearing(**USES),
        )
    cleared = [results_of(scene, number).count(CLEARED) for number in range(7)]
    assert cleared == [0, 2, 2, 4, 4, 6, 6]


def test_what_is_cleared_is_what_the_client_says(stage: Stage) -> None:
    scene = stage.scene("chat", *[said("Hi.")] * 4)
    wishes: list[Json] = [
        {"trigger": {"type": "input_tokens", "value": 99_999}},
        {**USES, "clear_at_least": {"type": "input_tokens", "value": 99_999}},
        {**USES, "exclude_tools": ["saw"]},
        {**USES, "keep": {"type": "tool_uses", "value": 1}, "clear_tool_inputs": ["drill"]},
    ]
    for wish in wishes:
        post(
            stage,
            "messages",
            model=scene.model,
            messages=rounds(6, ("saw", "drill")),
            tools=[TOOL, {**TOOL, "name": "drill"}],
            context_management=clearing(**wish),
        )
    assert CLEARED not in results_of(scene, 0)
    assert CLEARED not in results_of(scene, 1)
    assert results_of(scene, 2).count(CLEARED) == 0  # one of three would be left over for the step
    assert results_of(scene, 3).count(CLEARED) == 5
    inputs = [
        call["function"]["arguments"]
        for message in scene.heard["messages"]
        for call in message.get("tool_calls", ())
    ]
    assert inputs == ['{"n": 0}', "{}", '{"n": 2}', "{}", '{"n": 4}', '{"n": 5}']


def test_old_thinking_is_cleared(stage: Stage) -> None:
    scene = stage.scene("responses", said("Hi."))
    thinking = {"type": "thinking", "thinking": "Wood or steel?", "signature": "sealed"}
    messages: list[Json] = []
    for number in range(3):
        text = {"type": "text", "text": f"Answer {number}."}
        messages += [
            {"role": "user", "content": f"Question {number}."},
            {"role": "assistant", "content": [thinking, text]},
        ]
    messages.append({"role": "user", "content": "Go."})
    keep = {"type": "thinking_turns", "value": 1}
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": keep}]}
    reply = post(stage, "messages", model=scene.model, messages=messages, context_management=edits)
    (applied,) = json.loads(reply.content)["context_management"]["applied_edits"]
    assert (applied["type"], applied["cleared_thinking_turns"]) == ("clear_thinking_20251015", 2)


UNREADABLE: Json = {"trigger": 7, "keep": "x", "exclude_tools": 1, "clear_tool_inputs": {}}


@pytest.mark.parametrize(
    ("value", "is_lost"),
    [
        ({"edits": [{"type": "later_20300101", "x": 1}]}, True),
        ({"edits": "none"}, True),
        ({"edits": [7, None]}, True),
        ("all", True),
        (clearing(**UNREADABLE), False),  # the vendor's defaults apply
        ({"edits": []}, False),
    ],
)
@others
def test_no_edit_is_refused(stage: Stage, dialect: str, value: object, is_lost: bool) -> None:
    """A refusal would end the turn of Claude Code."""
    scene = stage.scene(dialect, said("Hi."))
    reply = post(
        stage,
        "messages",
        model=scene.model,
        messages=rounds(5),
        tools=[TOOL],
        context_management=value,
    )
    assert "context_management" not in scene.heard
    assert ("context_management" in reply.headers.get("x-dragoman-loss", "")) is is_lost
    assert json.loads(reply.content)["context_management"] == {"applied_edits": []}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_that_a_later_claude_code_may_send_ends_its_turn(
    stage: Stage, dialect: str
) -> None:
    body: Json = {
        "model": "",
        "max_tokens": 4000,
        "system": [{"type": "text", "text": "Be brief.", "later": 1}],
        "messages": [
            {"role": "user", "content": "Build a boat."},
            {"role": "system", "content": "Today it rains."},
        ],
        "thinking": {"type": "later", "depth": 3},
        "output_config": {"effort": "later", "more": {}},
        "context_management": {"edits": [{"type": "later_20300101"}]},
        "diagnostics": {"previous_message_id": None},
        "later": {"x": [1]},
    }
    headers = {"anthropic-beta": "claude-code-20250219,later-2030-01-01,effort-2025-11-24"}
    for stream in (False, True):
        scene = stage.scene(dialect, said("Hi."))
        asked = {**body, "model": scene.model, "stream": stream}
        reply = ask(stage.url, "messages", asked, headers)
        assert reply.status_code == 200, reply.content
        assert "Today it rains." in json.dumps(scene.heard)
        if dialect == "messages":
            kept = ("thinking", "output_config", "context_management", "later")
            assert {name: scene.heard[name] for name in kept} == {name: body[name] for name in kept}
            assert "later-2030-01-01" in scene.requests[-1].headers["anthropic-beta"]
        else:
            assert "later" in reply.headers["x-dragoman-loss"]


# --- a Responses client over Anthropic ---------------------------------------------------------------------------------

HISTORY: list[Json] = [
    {"type": "message", "role": "developer", "content": "Be brief."},
    {"type": "message", "role": "user", "content": "Build a boat."},
    {"type": "message", "role": "assistant", "content": "Hull done."},
    {"type": "message", "role": "user", "content": "Go."},
]
GO_ON = {"type": "message", "role": "user", "content": "Go on."}
CONTEXT = [{"type": "compaction", "compact_threshold": 60_000}]


@streamed
def test_a_compaction_in_an_answer_of_anthropic_is_an_item(stage: Stage, stream: bool) -> None:
    text = {"type": "text", "text": "Mast done."}
    scene = stage.scene("messages", native_messages(BLOCK, text), route="native-messages")
    reply = post(
        stage,
        "responses",
        model=scene.model,
        input=HISTORY,
        context_management=CONTEXT,
        stream=stream,
    )
    (edit,) = scene.heard["context_management"]["edits"]
    assert edit == {
        "type": "compact_20260112",
        "trigger": {"type": "input_tokens", "value": 60_000},
    }
    assert headers_of(scene)["anthropic-beta"] == "compact-2026-01-12"
    got = response_of(reply.content, stream=stream)
    assert [item["type"] for item in got["output"]] == ["compaction", "message"]
    assert got["usage"]["input_tokens"] == 9

    # Codex sends it back at its place, with everything before it.
    items = [*HISTORY, *got["output"], GO_ON]
    again = stage.scene("messages", said("Done."), route="native-messages")
    post(stage, "responses", model=again.model, input=items)
    heard = without_breakpoints(again.heard)
    assert heard["system"] == [{"type": "text", "text": "Be brief."}]
    assert heard["messages"] == [
        {"role": "assistant", "content": [BLOCK, {"type": "text", "text": "Mast done."}]},
        {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
    ]
    for dialect in ("chat", "messages"):
        other = stage.scene(dialect, said("Done."))
        post(stage, "responses", model=other.model, input=items)
        sent = json.dumps(other.heard)
        assert json.dumps(PREFACE + SUMMARY)[1:-1] in sent
        assert "Hull done." not in sent
        assert "Be brief." in sent
        assert "of-anthropic" not in sent


@streamed
def test_anthropic_makes_the_compaction_that_codex_triggers(stage: Stage, stream: bool) -> None:
    scene = stage.scene(
        "messages", native_messages(BLOCK, stop="compaction"), route="native-messages"
    )
    trigger = {"type": "compaction_trigger"}
    tool = {"type": "function", "name": "saw", "parameters": {"type": "object"}}
    reply = post(
        stage,
        "responses",
        model=scene.model,
        input=[*HISTORY, trigger],
        tools=[tool],
        stream=stream,
    )
    assert scene.heard["compaction"] == {"type": "summarize"}
    assert [each["name"] for each in scene.heard["tools"]] == ["saw"]
    assert headers_of(scene)["anthropic-beta"] == "compact-2026-09-04"
    got = response_of(reply.content, stream=stream)
    (item,) = got["output"]
    assert (item["type"], got["status"]) == ("compaction", "completed")

    # Codex keeps the instructions and the user's messages before it.
    items = [HISTORY[0], HISTORY[1], HISTORY[3], item, GO_ON]
    again = stage.scene("messages", said("Done."), route="native-messages")
    post(stage, "responses", model=again.model, input=items)
    first, second = again.heard["messages"]
    assert first == {"role": "assistant", "content": [BLOCK]}
    texts = [part["text"] for part in second["content"]]
    assert texts == ["Build a boat.", "Go.", "Go on."]
    other = stage.scene("chat", said("Done."))
    post(stage, "responses", model=other.model, input=items)
    said_before = [message["content"] for message in other.heard["messages"]]
    assert said_before == ["Be brief.", "Build a boat.", "Go.", PREFACE + SUMMARY, "Go on."]


def test_an_answer_without_a_block_is_no_compaction(stage: Stage) -> None:
    text = {"type": "text", "text": "I will not."}
    scene = stage.scene("messages", native_messages(text), route="native-messages")
    body = {"model": scene.model, "input": [*HISTORY, {"type": "compaction_trigger"}]}
    reply = ask(stage.url, "responses", body)
    assert reply.status_code == 502
    assert json.loads(reply.content)["error"]["code"] == "compaction_failed"


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_compacting_by_itself_is_declared_as_lost_elsewhere(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, said("Hi."))
    reply = post(stage, "responses", model=scene.model, input=HISTORY, context_management=CONTEXT)
    assert "context_management" not in scene.heard
    assert "context_management" in reply.headers["x-dragoman-loss"]


# --- a Messages client over OpenAI --------------------------------------------------------------------------------------


@streamed
def test_a_compaction_in_an_answer_of_openai_is_a_block(stage: Stage, stream: bool) -> None:
    scene = stage.scene("responses", native_responses, route="native-responses")
    trigger = {"type": "input_tokens", "value": 60_000}
    edits = {"edits": [{"type": "compact_20260112", "trigger": trigger}]}
    messages: list[Json] = [{"role": "user", "content": "Build a boat."}]
    reply = post(
        stage,
        "messages",
        model=scene.model,
        messages=messages,
        context_management=edits,
        stream=stream,
    )
    assert scene.heard["context_management"] == CONTEXT
    got = message_of(reply.content, stream=stream)
    block = got["content"][0]
    assert (block["type"], block["content"]) == ("compaction", None)
    assert [each["type"] for each in got["content"]] == ["compaction", "text"]

    text = {"type": "text", "text": "Mast done."}
    messages += [
        {"role": "assistant", "content": [block, text]},
        {"role": "user", "content": "Go on."},
    ]
    again = stage.scene("responses", said("Done."), route="native-responses")
    post(stage, "messages", model=again.model, messages=messages)
    assert again.heard["input"][0] == ITEM
    assert "Build a boat." not in json.dumps(again.heard)


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_block_that_only_openai_reads_is_declared_as_lost(stage: Stage, dialect: str) -> None:
    scene = stage.scene("responses", native_responses, route="native-responses")
    edits = {"edits": [{"type": "compact_20260112"}]}
    messages: list[Json] = [{"role": "user", "content": "Build a boat."}]
    reply = post(stage, "messages", model=scene.model, messages=messages, context_management=edits)
    messages.append({"role": "assistant", "content": json.loads(reply.content)["content"]})
    messages.append({"role": "user", "content": "Go on."})
    other = stage.scene(dialect, said("Done."))
    reply = post(stage, "messages", model=other.model, messages=messages)
    assert "compaction" not in json.dumps(other.heard)
    assert "Build a boat." in json.dumps(other.heard)
    assert reply.headers["x-dragoman-loss"]
