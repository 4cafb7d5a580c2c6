"""Compaction at the Responses door: a trigger, or `/responses/compact`, over upstreams of every dialect and the rehearsal."""

import json
from collections.abc import Iterator
from typing import Any, cast

import openai
import pytest

from doors import check_responses, payloads
from dragoman._json import Raw
from dragoman.config.settings import RetrySettings, Route, ServerSettings, StoreSettings
from dragoman.core.summaries import TAG, Packed, pack_summary, unpack_summary
from dragoman.engine.compaction import INSTRUCTION, PREFACE
from dragoman.testing import Pause, ReceivedRequest, ScriptedReply, json_reply
from gateway_harness import DIALECTS
from plain_http import fetch
from sdk_clients import openai_client
from stage import NO_RETRY, Stage, deliver, running_stage
from vendor_wire import Answer, Said, Tool, stream
from websocket_client import socket_client

Json = dict[str, Any]

# The key is that of `openai_client`.
HEADERS = {"content-type": "application/json", "authorization": "Bearer key-of-the-client"}
SUMMARY = "The user builds a boat. The hull is done; the mast remains."
TRIGGER: Json = {"type": "compaction_trigger"}
TOOL: Json = {
    "type": "function",
    "name": "saw",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
HISTORY: list[Json] = [
    {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Be brief."}],
    },
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Build a boat."}],
    },
    {"type": "function_call", "call_id": "call_1", "name": "saw", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sawn"},
]
dialects = pytest.mark.parametrize("dialect", DIALECTS)
streamed = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    upstreams: dict[str, Json] = {kind: {"kind": kind} for kind in DIALECTS}
    upstreams["native"] = {"kind": "responses", "compaction": "native"}
    upstreams["native-messages"] = {"kind": "messages", "compaction": "native"}
    upstreams["keeping"] = {**upstreams["native"], "keeps_responses": True}
    upstreams["rehearsal"] = {"kind": "rehearsal", "base_url": "", "api_key": None}
    with running_stage(
        upstreams=upstreams, retry=NO_RETRY, store=StoreSettings(url="memory:")
    ) as running:
        yield running


def said(text: str, finish: Any = "stop") -> Answer:
    return Answer((Said((text[:5], text[5:])),), finish=finish)


def post(stage: Stage, **body: object) -> Any:
    return fetch("POST", f"{stage.url}/v1/responses", HEADERS, json.dumps(body).encode())


def compact(stage: Stage, model: str, *, stream: bool, **more: object) -> Json:
    """The response to a conversation that ends with a trigger, streamed or not; its stream is checked."""
    body: Json = {
        "model": model,
        "input": [*HISTORY, TRIGGER],
        "tools": [TOOL],
        "tool_choice": "auto",
    }
    reply = post(stage, **{**body, **more}, stream=stream)
    assert reply.status_code == 200, reply.text
    if not stream:
        whole: Json = json.loads(reply.content)
        return whole
    check_responses(reply.content)
    events = [event for _, event in payloads(reply.content)]
    beside = {"response.in_progress", "keepalive"}  # Anthropic's pings become the latter
    kinds = [event["type"] for event in events if event["type"] not in beside]
    assert kinds == [
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    response: Json = events[-1]["response"]
    assert [event["item"] for event in events if event["type"].endswith("item.done")] == response[
        "output"
    ]
    return response


def only_item(response: Json) -> Json:
    item: Json
    (item,) = response["output"]
    assert item["type"] == "compaction"
    assert item["id"].startswith("cmp_")
    return item


def texts_of(body: Json) -> list[str]:
    """Every text of a request's conversation, in order, whatever its dialect."""
    found: list[str] = []

    def walk(value: Any) -> None:
        entries = cast("list[Json]", value) if isinstance(value, list) else []
        for entry in entries:
            content: Any = entry.get("content")
            if isinstance(content, str):
                found.append(content)
            else:
                walk(content)
            if isinstance(entry.get("text"), str):
                found.append(entry["text"])

    walk(body.get("system"))
    walk(body.get("messages") or body.get("input"))
    return found


@streamed
@dialects
def test_a_trigger_is_answered_with_one_compaction(
    stage: Stage, dialect: str, stream: bool
) -> None:
    scene = stage.scene(dialect, said(SUMMARY))
    response = compact(stage, scene.model, stream=stream)
    item = only_item(response)
    assert unpack_summary(item["encrypted_content"]) == Packed(summary=SUMMARY)
    assert response["status"] == "completed"
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (11, 7)
    assert response["tools"][0]["name"] == "saw"  # what the client asked for is repeated
    heard = scene.heard
    assert heard.get("tools") != []
    assert TRIGGER["type"] not in json.dumps(heard)
    assert texts_of(heard)[-1] == INSTRUCTION
    assert "Build a boat." in texts_of(heard)
    if dialect == "messages":  # which refuses calls of undeclared tools
        assert heard["tool_choice"] == {"type": "none"}
    else:
        assert heard.keys().isdisjoint({"tools", "tool_choice", "parallel_tool_calls"})


@dialects
def test_a_conversation_without_calls_is_summarised_without_tools(
    stage: Stage, dialect: str
) -> None:
    scene = stage.scene(dialect, said(SUMMARY))
    only_item(compact(stage, scene.model, stream=False, input=[*HISTORY[:2], TRIGGER]))
    assert scene.heard.keys().isdisjoint({"tools", "tool_choice"})


@streamed
@dialects
def test_the_summary_comes_back_as_a_message_in_its_place(
    stage: Stage, dialect: str, stream: bool
) -> None:
    made = stage.scene("chat", said(SUMMARY))
    item = only_item(compact(stage, made.model, stream=True, store=False))
    answer = Answer((Said(("Now", " the mast.")),), usage={"input": 123, "output": 4, "cached": 0})
    scene = stage.scene(dialect, answer)
    new = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}
    reply = post(
        stage, model=scene.model, input=[*HISTORY[:2], item, new], stream=stream, store=False
    )
    assert reply.status_code == 200, reply.text
    texts = texts_of(scene.heard)
    assert texts[-3:] == ["Build a boat.", PREFACE + SUMMARY, "Go."]
    body = payloads(reply.content)[-1][1]["response"] if stream else json.loads(reply.content)
    # Codex compacts again until the usage falls: it is that of the shortened prompt, as the upstream counted it.
    assert (body["usage"]["input_tokens"], body["usage"]["total_tokens"]) == (123, 127)
    assert body["output"][0]["content"][0]["text"] == "Now the mast."


@dialects
def test_a_compaction_in_the_middle_of_a_turn_is_the_last_item(stage: Stage, dialect: str) -> None:
    made = stage.scene("chat", said(SUMMARY))
    item = only_item(compact(stage, made.model, stream=True))
    scene = stage.scene(dialect, said("The mast."))
    reply = post(stage, model=scene.model, input=[*HISTORY[:2], item], tools=[TOOL], stream=True)
    assert reply.status_code == 200
    assert texts_of(scene.heard)[-1] == PREFACE + SUMMARY


@streamed
@dialects
@pytest.mark.parametrize(
    "answer",
    [
        Answer(()),
        Answer((Said((" ", "\n")),)),
        said("The user builds", finish="length"),
        Answer((Said(("Let me look.",)), Tool("call_2", "saw", ("{}",)))),
    ],
    ids=["empty", "blank", "cut", "call"],
)
def test_an_answer_that_is_no_summary_is_a_failure(
    stage: Stage, dialect: str, stream: bool, answer: Answer
) -> None:
    scene = stage.scene(dialect, answer)
    reply = post(stage, model=scene.model, input=[*HISTORY, TRIGGER], stream=stream)
    if not stream:
        assert reply.status_code == 502
        error = json.loads(reply.content)["error"]
        assert error["code"] == "compaction_failed"
    else:
        check_responses(reply.content)
        last = payloads(reply.content)[-1][1]
        assert last["type"] == "response.failed"
        assert last["response"]["output"] == []
        error = last["response"]["error"]
    assert "was not compacted" in error["message"]


@dialects
def test_an_error_of_the_upstream_is_the_error_of_the_compaction(
    stage: Stage, dialect: str
) -> None:
    scene = stage.scene(dialect, json_reply({"error": {"message": "slow down"}}, 429))
    reply = post(stage, model=scene.model, input=[*HISTORY, TRIGGER], stream=True)
    assert reply.status_code == 429


@dialects
def test_a_stored_compaction_is_continued_by_its_id(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, said("Hull done."), said(SUMMARY), said("Mast done."))
    first = json.loads(post(stage, model=scene.model, input=HISTORY).content)
    second = compact(
        stage, scene.model, stream=True, input=[TRIGGER], previous_response_id=first["id"]
    )
    only_item(second)
    assert second["previous_response_id"] == first["id"]
    assert {"Build a boat.", "Hull done."} <= set(texts_of(scene.heard))
    third = post(stage, model=scene.model, input="Go.", previous_response_id=second["id"])
    assert third.status_code == 200
    assert texts_of(scene.heard)[-3:] == ["Build a boat.", PREFACE + SUMMARY, "Go."]
    assert "Hull done." not in texts_of(scene.heard)
    stored = json.loads(fetch("GET", f"{stage.url}/v1/responses/{second['id']}", HEADERS).content)
    assert stored["output"] == second["output"]


@dialects
def test_a_websocket_compacts_and_goes_on(stage: Stage, dialect: str) -> None:
    """As Codex does: the trigger follows the last response by its id, and what comes next begins anew."""
    busy = json_reply({"error": {"message": "busy"}}, 500)
    answers = said("Hull done."), said(SUMMARY), said("Mast done."), said("cut", "length"), busy
    scene = stage.scene(dialect, *answers, said("Sails done."))
    with socket_client(stage.url, scene.model) as socket:
        first = socket.answer(input=HISTORY, tools=[TOOL])
        second = socket.answer(input=[TRIGGER], previous_response_id=first["id"], tools=[TOOL])
        item = only_item(second)
        assert texts_of(scene.heard)[-2:] == ["Hull done.", INSTRUCTION]
        go = {"role": "user", "content": "Go."}
        third = socket.answer(input=[HISTORY[1], item, go], tools=[TOOL])
        assert texts_of(scene.heard) == ["Build a boat.", PREFACE + SUMMARY, "Go."]
        failed = socket.ask(input=[TRIGGER], previous_response_id=third["id"])[-1]
        assert (failed["type"], failed["response"]["output"]) == ("response.failed", [])
        assert "was not compacted" in failed["response"]["error"]["message"]
        assert socket.error(input=[go, TRIGGER])["status"] == 500
        socket.answer(input=[go])


def test_a_websocket_continues_a_compaction_by_its_id(stage: Stage) -> None:
    scene = stage.scene("chat", said("Hull done."), said(SUMMARY), said("Mast done."), said("."))
    with socket_client(stage.url, scene.model) as socket:
        first = socket.answer(input="Build a boat.")
        second = socket.answer(input=[TRIGGER], previous_response_id=first["id"])
        third = socket.answer(input="Go.", previous_response_id=second["id"])
        socket.answer(input="And?", previous_response_id=third["id"])
    short = ["Build a boat.", PREFACE + SUMMARY, "Go."]
    assert texts_of(scene.heard) == [*short, "Mast done.", "And?"]


@dialects
def test_a_client_hears_that_its_summary_is_being_written(dialect: str) -> None:
    """The upstream sends text all the time, and the client gets none of it: Codex gives up after five silent minutes."""
    answer = Answer((Said(("word ",) * 40),))
    frames = [frame + b"\n\n" for frame in stream(dialect, answer).split(b"\n\n") if frame]
    chunks = [chunk for frame in frames for chunk in (frame, Pause(0.02))]
    with running_stage(server=ServerSettings(keep_alive_interval=0.1)) as stage:
        reply = ScriptedReply(content_type="text/event-stream", chunks=chunks)
        scene = stage.scene(dialect, reply)
        sent = post(stage, model=scene.model, input=[HISTORY[1], TRIGGER], stream=True).content
    types = [event["type"] for _, event in payloads(sent)]
    assert "keepalive" in types[: types.index("response.output_item.added")]
    assert types[-1] == "response.completed"


@pytest.mark.parametrize("store", [True, False])
@streamed
@dialects
def test_a_trigger_compacts_a_conversation(
    stage: Stage, dialect: str, stream: bool, store: bool
) -> None:
    answers = said("Hull done."), said(SUMMARY), said("Mast done."), said("Sails done.")
    scene = stage.scene(dialect, *answers)
    client = openai_client(stage.url)
    name = client.conversations.create().id
    client.responses.create(model=scene.model, input="Build a boat.", conversation=name)
    given: Json = {"conversation": name, "store": store}
    only_item(compact(stage, scene.model, stream=stream, input=[TRIGGER], **given))
    assert texts_of(scene.heard) == ["Build a boat.", "Hull done.", INSTRUCTION]
    items = list(client.conversations.items.list(name, order="asc"))
    assert [item.type for item in items] == ["message", "message", "compaction"]
    client.responses.create(model=scene.model, input="Go.", conversation=name)
    assert texts_of(scene.heard) == ["Build a boat.", PREFACE + SUMMARY, "Go."]
    # Without its summary, the conversation is what it was.
    client.conversations.items.delete(items[-1].id, conversation_id=name)
    client.responses.create(model=scene.model, input="And?", conversation=name)
    whole = ["Build a boat.", "Hull done.", "Go.", "Mast done.", "And?"]
    assert texts_of(scene.heard) == whole


def test_a_branch_from_a_compacted_conversation_has_its_summary(stage: Stage) -> None:
    answers = said("Hull done."), said(SUMMARY), said("Mast done."), said("1."), said("2.")
    scene = stage.scene("chat", *answers)
    client = openai_client(stage.url)
    name = client.conversations.create().id
    given: Json = {"model": scene.model, "conversation": name}
    client.responses.create(input="Build a boat.", **given)
    second = client.responses.create(input=[TRIGGER], **given)
    third = client.responses.create(input="Go.", **given)
    client.responses.create(model=scene.model, input="A", previous_response_id=second.id)
    assert texts_of(scene.heard) == ["Build a boat.", PREFACE + SUMMARY, "A"]
    client.responses.create(model=scene.model, input="B", previous_response_id=third.id)
    assert texts_of(scene.heard) == ["Build a boat.", PREFACE + SUMMARY, "Go.", "Mast done.", "B"]


def test_a_trigger_is_no_item_of_a_conversation(stage: Stage) -> None:
    client = openai_client(stage.url)
    name = client.conversations.create().id
    with pytest.raises(openai.BadRequestError, match="not an item of a conversation"):
        client.conversations.items.create(name, items=[TRIGGER])
    with pytest.raises(openai.BadRequestError, match="as the last item"):
        client.responses.create(model="chat/x", input=[TRIGGER, HISTORY[1]], conversation=name)


# --- /responses/compact --------------------------------------------------------------------------------------------------


@dialects
def test_the_sdk_compacts_a_conversation(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, said(SUMMARY), said("Mast done."))
    client = openai_client(stage.url)
    done = client.responses.compact(
        model=scene.model, input=HISTORY, instructions="You build boats."
    )
    assert done.object == "response.compaction"
    assert [item.type for item in done.output] == ["message", "message", "compaction"]
    assert [item.role for item in done.output[:2]] == ["developer", "user"]
    assert unpack_summary(done.output[-1].encrypted_content) == Packed(summary=SUMMARY)
    assert (done.usage.input_tokens, done.usage.output_tokens) == (11, 7)
    assert "You build boats." in json.dumps(scene.heard)
    window = [item.to_dict(warnings=False) for item in done.output]
    client.responses.create(model=scene.model, input=[*window, {"role": "user", "content": "Go."}])
    assert texts_of(scene.heard)[-3:] == ["Build a boat.", PREFACE + SUMMARY, "Go."]


def test_a_second_compaction_contains_the_first(stage: Stage) -> None:
    scene = stage.scene("chat", said(SUMMARY), said("All is done."))
    client = openai_client(stage.url)
    first = client.responses.compact(model=scene.model, input=HISTORY)
    window = [item.to_dict(warnings=False) for item in first.output]
    new = {"role": "user", "content": "Go."}
    second = client.responses.compact(model=scene.model, input=[*window, new])
    assert texts_of(scene.heard)[:4] == ["Be brief.", "Build a boat.", PREFACE + SUMMARY, "Go."]
    retained = [item.content[0].text for item in second.output[:-1]]
    assert retained == ["Be brief.", "Build a boat.", "Go."]
    assert unpack_summary(second.output[-1].encrypted_content) == Packed(summary="All is done.")


def test_a_stored_response_is_compacted_by_its_id(stage: Stage) -> None:
    scene = stage.scene("chat", said("Hull done."), said(SUMMARY))
    client = openai_client(stage.url)
    first = client.responses.create(model=scene.model, input="Build a boat.")
    done = client.responses.compact(model=scene.model, previous_response_id=first.id)
    assert [item.type for item in done.output] == ["message", "compaction"]
    assert texts_of(scene.heard)[:2] == ["Build a boat.", "Hull done."]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "hi"}, "model"),
        ({"model": "chat/x"}, "input"),
        ({"model": "chat/x", "input": []}, "input"),
    ],
)
def test_a_compaction_of_nothing_is_refused(stage: Stage, body: Json, param: str) -> None:
    address = f"{stage.url}/v1/responses/compact"
    reply = fetch("POST", address, HEADERS, json.dumps(body).encode())
    assert reply.status_code == 400
    assert json.loads(reply.content)["error"]["param"] == param


@streamed
def test_the_rehearsal_compacts(stage: Stage, stream: bool) -> None:
    response = compact(stage, "rehearsal/any", stream=stream)
    item = only_item(response)
    assert unpack_summary(item["encrypted_content"])
    again = post(stage, model="rehearsal/any", input=[*HISTORY[:2], item])
    assert again.status_code == 200


# --- compactions that are not ours ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["chat", "messages", "rehearsal"])
def test_the_compaction_of_another_provider_is_refused(stage: Stage, route: str) -> None:
    foreign = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAA-of-openai"}
    reply = post(stage, model=f"{route}/none", input=[HISTORY[1], foreign])
    assert reply.status_code == 400
    assert json.loads(reply.content)["error"]["code"] == "invalid_encrypted_content"


@pytest.mark.parametrize("route", [*DIALECTS, "native", "rehearsal"])
@pytest.mark.parametrize("content", [f"{TAG}x", f"{TAG}0123456789abcdef.e30=", f"{TAG}ä.ö"])
def test_a_damaged_compaction_is_refused(stage: Stage, route: str, content: str) -> None:
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": content}
    reply = post(stage, model=f"{route}/none", input=[HISTORY[1], item], stream=True)
    assert reply.status_code == 400
    assert json.loads(reply.content)["error"]["code"] == "invalid_encrypted_content"


@pytest.mark.parametrize("door", ["responses", "messages"])
@pytest.mark.parametrize("route", [*DIALECTS, "native", "native-messages"])
@pytest.mark.parametrize("summary", [None, "short"])
@pytest.mark.parametrize(
    "native",
    [b"5", b"[]", b"null", b"{}", b'{"type":"item_reference","id":"msg_1"}'],
    ids=["number", "list", "null", "object", "reference"],
)
def test_nothing_but_a_compaction_is_packed_into_one(
    stage: Stage, door: str, route: str, summary: str | None, native: bytes
) -> None:
    """A client can compute the digest of any content: that must not let other items and blocks pass."""
    for dialect in ("responses", "messages"):
        packed = pack_summary(Packed(summary=summary, native=Raw(native), dialect=dialect))
        compaction = {"type": "compaction", "encrypted_content": packed}
        if door == "responses":
            reply = post(stage, model=f"{route}/none", input=[HISTORY[1], compaction])
        else:
            turns = [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": [compaction]},
            ]
            body = {"model": f"{route}/none", "max_tokens": 9, "messages": turns}
            reply = fetch("POST", f"{stage.url}/v1/messages", HEADERS, json.dumps(body).encode())
        assert reply.status_code == 400, reply.text
        assert "damaged" in json.loads(reply.content)["error"]["message"]


@pytest.mark.parametrize("route", DIALECTS)
def test_an_item_without_a_summary_is_refused(stage: Stage, route: str) -> None:
    item = Raw(b'{"type":"compaction","encrypted_content":"gAAAAA"}')
    content = pack_summary(Packed(native=item, dialect="responses"))
    packed = {"type": "compaction", "encrypted_content": content}
    reply = post(stage, model=f"{route}/none", input=[HISTORY[1], packed])
    assert reply.status_code == 400
    assert json.loads(reply.content)["error"]["code"] == "invalid_encrypted_content"


@pytest.mark.parametrize("route", ["responses", "native"])
def test_the_compaction_of_a_responses_upstream_goes_back_unchanged(
    stage: Stage, route: str
) -> None:
    foreign = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAA-of-openai"}
    scene = stage.scene("responses", said("Hi."), route=route)
    assert post(stage, model=scene.model, input=[HISTORY[1], foreign]).status_code == 200
    assert scene.heard["input"][1] == foreign


def test_a_trigger_before_other_items_is_refused(stage: Stage) -> None:
    reply = post(stage, model="chat/none", input=[TRIGGER, HISTORY[1]])
    assert reply.status_code == 400
    assert "compaction_trigger as the last item" in json.loads(reply.content)["error"]["message"]


def native_reply(request: ReceivedRequest) -> Any:
    assert json.loads(request.body)["input"][-1] == TRIGGER
    item = {"type": "compaction", "id": "cmp_9", "encrypted_content": "gAAAAA-native"}
    body = {
        "id": "resp_9",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [item],
        "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
    }
    return json_reply(body)


def test_an_upstream_that_compacts_by_itself_gets_the_trigger(stage: Stage) -> None:
    scene = stage.scene("responses", native_reply, route="native")
    response = compact(stage, scene.model, stream=False)
    assert only_item(response)["encrypted_content"] == "gAAAAA-native"
    assert scene.heard["tools"][0]["name"] == "saw"


def test_an_upstream_that_compacts_by_itself_serves_the_endpoint_too(stage: Stage) -> None:
    scene = stage.scene("responses", native_reply, route="native")
    done = openai_client(stage.url).responses.compact(model=scene.model, input=HISTORY[:2])
    assert [item.type for item in done.output] == ["message", "message", "compaction"]
    assert done.output[-1].encrypted_content == "gAAAAA-native"
    assert done.usage.total_tokens == 11


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_context_management_is_declared_as_lost(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, said("Hi."))
    management = [{"type": "compaction", "compact_threshold": 1000}]
    reply = post(stage, model=scene.model, input="hi", context_management=management)
    assert reply.status_code == 200
    assert "context_management" not in scene.heard
    assert "unknown_field" in reply.headers["x-dragoman-loss"]


def test_another_upstream_is_asked_if_the_first_gives_no_summary() -> None:
    routes = [Route(model="pair", upstream="chat", fallback=("messages",))]
    with running_stage(retry=RetrySettings(base_delay=0.01), routes=routes) as stage:
        empty, body = Answer(()), {"model": "pair", "input": [*HISTORY[:2], TRIGGER]}
        # Both upstreams are asked for the same model.
        scene = stage.scene("chat", empty, by_messages, upstream_model="pair")
        item = only_item(json.loads(post(stage, **body).content))
        assert unpack_summary(item["encrypted_content"]) == Packed(summary=SUMMARY)
        assert len(scene.requests) == 2


def by_messages(request: ReceivedRequest) -> Any:
    assert request.path == "/v1/messages"
    return deliver("messages", said(SUMMARY), is_stream=False)


def test_the_endpoint_retains_the_messages_of_a_response_that_the_upstream_knows(
    stage: Stage,
) -> None:
    scene = stage.scene("responses", said("Hull done."), native_reply, route="keeping")
    client = openai_client(stage.url)
    first = client.responses.create(model=scene.model, input="Build a boat.")
    done = client.responses.compact(model=scene.model, previous_response_id=first.id)
    assert [item.type for item in done.output] == ["message", "compaction"]
    assert "previous_response_id" not in scene.heard
