"""Conversations while a response runs, fails or is left; over a WebSocket, with hosted tools and submitted outputs; hostile requests."""

import json
import threading
from base64 import b64encode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import openai
import pytest

from background_runs import DONE as BACKGROUND_DONE
from background_runs import ended, gated, queued
from dragoman.config.settings import ServerSettings, StoreSettings
from dragoman.testing import ScriptedReply, Wait, json_reply
from gateway_harness import DIALECTS, wait_until
from heard import HeardResult, Spoken, hear
from hosted_stage import answers, echo, hosting_stage, last_heard, said
from plain_http import ask, fetch, plain_body, streaming
from sdk_clients import openai_client
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Tool, stream
from websocket_client import socket_client

DONE = Answer((Said(("It is ", "sunny.")),))
CALLING = Answer((Tool("call_1", "get_weather", ('{"city":', '"Paris"}')),))
TOOLS: list[Any] = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]
KEY = "key-of-the-client"
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
HELLO: Any = {"role": "user", "content": "hello"}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage(store=StoreSettings(url="memory:")) as running:
        yield running


@pytest.fixture
def client(stage: Stage) -> Any:
    return openai_client(stage.url)


def held(dialect: str, answer: Answer, event: threading.Event) -> ScriptedReply:
    """An answer whose end waits for the event."""
    sent = stream(dialect, answer)
    cut = sent.index(b"\n\n", len(sent) // 2) + 2
    return ScriptedReply(
        content_type="text/event-stream", chunks=[sent[:cut], Wait(event), sent[cut:]]
    )


def types(client: Any, name: str) -> list[str]:
    return [item.type for item in client.conversations.items.list(name, order="asc")]


@contextmanager
def running(stage: Stage, model: str, name: str, **more: Any) -> Generator[Iterator[str]]:
    """A streamed response in a conversation, of which something was sent."""
    body = plain_body("responses", model, conversation=name, stream=True, **more)
    with streaming(stage.url, "responses", body, HEADERS) as response:
        lines = response.iter_lines()
        assert "created" in next(lines)
        yield lines


@pytest.mark.parametrize("store", [True, False])
def test_a_second_response_at_the_same_time_is_refused(
    stage: Stage, client: Any, store: bool
) -> None:
    event = threading.Event()
    scene = stage.scene("chat", held("chat", DONE, event), DONE)
    name = client.conversations.create().id
    with running(stage, scene.model, name, store=store) as lines:
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(model=scene.model, conversation=name, input="me too")
        assert (refused.value.code, refused.value.param) == ("conversation_locked", "conversation")
        with pytest.raises(openai.BadRequestError) as adding:
            client.conversations.items.create(name, items=[HELLO])
        assert adding.value.code == "conversation_locked"
        # What changes no items goes on.
        assert client.conversations.update(name, metadata={"a": "b"}).metadata == {"a": "b"}
        assert types(client, name) == []
        count = client.responses.input_tokens.count(model=scene.model, conversation=name, input="x")
        assert count.input_tokens > 0
        event.set()
        assert "response.completed" in list(lines)[-3] + "".join(list(lines))
    assert len(scene.requests) == 1
    client.responses.create(model=scene.model, conversation=name, input="and now?")
    assert types(client, name) == ["message"] * 4


def test_of_many_at_once_exactly_one_is_answered_and_nothing_is_lost(
    stage: Stage, client: Any
) -> None:
    event = threading.Event()
    scene = stage.scene("chat", *[held("chat", DONE, event)] * 12)
    name = client.conversations.create().id
    statuses: list[int] = []

    def one() -> None:
        body = plain_body("responses", scene.model, conversation=name, stream=True)
        statuses.append(ask(stage.url, "responses", body, HEADERS).status_code)

    threads = [threading.Thread(target=one) for _ in range(12)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(statuses) == 11)
    event.set()
    for thread in threads:
        thread.join(60)
    assert sorted(statuses) == [200] + [400] * 11
    assert len(scene.requests) == 1
    assert types(client, name) == ["message"] * 2


def test_a_conversation_is_deleted_while_a_response_runs(stage: Stage, client: Any) -> None:
    event = threading.Event()
    scene = stage.scene("messages", held("messages", DONE, event))
    name = client.conversations.create(items=[HELLO]).id
    with running(stage, scene.model, name) as lines:
        assert client.conversations.delete(name).deleted
        event.set()
        rest = list(lines)
    last = json.loads([line for line in rest if line.startswith("data: ")][-1][6:])
    assert last["type"] == "response.completed"
    assert client.responses.retrieve(last["response"]["id"]).output_text == "It is sunny."
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(name)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_failed_response_adds_nothing_and_can_be_tried_again(
    stage: Stage, client: Any, is_stream: bool
) -> None:
    broken = json_reply({"error": {"message": "no"}}, 500)
    cut = stream("chat", DONE)
    torn = ScriptedReply(content_type="text/event-stream", chunks=[cut[: len(cut) // 2]])
    scene = stage.scene("chat", broken, torn if is_stream else broken, DONE)
    name = client.conversations.create(items=[HELLO]).id
    body = plain_body("responses", scene.model, conversation=name, stream=is_stream)
    assert ask(stage.url, "responses", body, HEADERS).status_code >= 500
    again = ask(stage.url, "responses", body, HEADERS)
    assert again.status_code >= 500 or b"response.failed" in again.content
    assert types(client, name) == ["message"]
    assert ask(stage.url, "responses", body, HEADERS).is_success
    assert types(client, name) == ["message"] * 3


def test_a_response_whose_client_leaves_adds_nothing_and_lets_go(stage: Stage, client: Any) -> None:
    event = threading.Event()
    scene = stage.scene("chat", held("chat", DONE, event), DONE)
    name = client.conversations.create().id
    with running(stage, scene.model, name):
        pass
    wait_until(lambda: scene.requests[0].closed_at is not None)
    event.set()
    body = plain_body("responses", scene.model, conversation=name)
    wait_until(lambda: ask(stage.url, "responses", body, HEADERS).status_code == 200)
    assert types(client, name) == ["message"] * 2


def test_a_cancelled_response_adds_nothing(stage: Stage, client: Any) -> None:
    event = threading.Event()
    scene = stage.scene("chat", held("chat", DONE, event), DONE)
    name = client.conversations.create().id
    with running(stage, scene.model, name) as lines:
        created = json.loads(next(lines)[6:])
        assert client.responses.cancel(created["response"]["id"]).status == "cancelled"
        assert "response.failed" in "".join(lines)
    event.set()
    body = plain_body("responses", scene.model, conversation=name)
    wait_until(lambda: ask(stage.url, "responses", body, HEADERS).status_code == 200)
    assert types(client, name) == ["message"] * 2


@pytest.mark.parametrize("store", [True, False])
def test_a_conversation_goes_on_over_a_websocket(stage: Stage, client: Any, store: bool) -> None:
    scene = stage.scene("chat", CALLING, DONE)
    name = client.conversations.create().id
    headers = {"authorization": f"Bearer {KEY}"}
    with socket_client(stage.url, scene.model, additional_headers=headers) as socket:
        given: dict[str, Any] = {"conversation": name, "store": store, "tools": TOOLS}
        first = socket.answer(input="weather?", **given)
        assert first["conversation"] == {"id": name}
        outputs = [{"type": "function_call_output", "call_id": "call_1", "output": "sun"}]
        socket.answer(input=outputs, **given)
        socket.answer(input="only this", generate=False, **given)
        unknown = socket.error(input="x", conversation="conv_dgm0")
        assert unknown["status"] == 404
    assert types(client, name) == [
        *("message", "function_call", "function_call_output", "message", "message")
    ]
    turns = hear("chat", scene.requests[1].body).turns
    assert turns[0] == Spoken("user", "weather?")
    assert turns[-1] == HeardResult("call_1", "sun")


def test_outputs_that_are_submitted_belong_to_the_conversation(stage: Stage, client: Any) -> None:
    profile = {**HEADERS, "x-dragoman-profile": "required-action"}
    for store in (True, False):
        scene = stage.scene("messages", CALLING, DONE, DONE)
        name = client.conversations.create(items=[HELLO]).id
        body = plain_body("responses", scene.model, conversation=name, tools=TOOLS, store=store)
        first = ask(stage.url, "responses", body, profile).json()
        assert first["status"] == "incomplete"
        outputs = b'{"tool_outputs":[{"call_id":"call_1","output":"sun"}]}'
        path = f"{stage.url}/v1/responses/{first['id']}/submit_tool_outputs"
        second = fetch("POST", path, profile, outputs)
        assert second.is_success, second.content
        assert second.json()["conversation"] == {"id": name}
        assert types(client, name) == [
            *("message", "message", "function_call", "function_call_output", "message")
        ]
        turns = hear("messages", scene.requests[1].body).turns
        assert turns[0] == Spoken("user", "hello")
        assert turns[-1] == HeardResult("call_1", "sun")
        client.responses.create(model=scene.model, conversation=name, input="more", tools=TOOLS)
        assert fetch("POST", path, profile, outputs).status_code == 409


def test_hosted_calls_stay_in_the_conversation() -> None:
    with hosting_stage(store=StoreSettings(url="memory:")) as stage:
        client = openai_client(stage.url)
        scene = stage.scene(
            "chat",
            answers(said("Look."), echo("a saw")),
            answers(said("A saw.")),
            answers(said("Done.")),
        )
        name = client.conversations.create().id
        given: Any = {"model": scene.model, "conversation": name}
        client.responses.create(input="What is there?", **given)
        client.responses.create(input="And more?", stream=False, **given)
        spoken = [turn.text for turn in last_heard(scene).turns if isinstance(turn, Spoken)]
        assert spoken == ["What is there?", "Look.", "A saw.", "And more?"]
        results = [turn.text for turn in last_heard(scene).turns if isinstance(turn, HeardResult)]
        assert results == ["a saw"]
        assert "mcp_call" in types(client, name)


def test_a_broken_store_is_reported_and_nothing_is_half(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    event = threading.Event()
    with running_stage(store=StoreSettings(url=f"sqlite://{path}")) as stage:
        client = openai_client(stage.url)
        scene = stage.scene("chat", held("chat", DONE, event), DONE)
        name = client.conversations.create(items=[HELLO]).id
        with running(stage, scene.model, name) as lines:
            aside = tmp_path / "aside"
            aside.mkdir()
            for each in tmp_path.glob("store.db*"):
                each.rename(aside / each.name)
            event.set()
            sent = "".join(lines)
        assert "response.failed" in sent
        assert "response.completed" not in sent
        assert fetch("GET", f"{stage.url}/v1/conversations/{name}", HEADERS).status_code == 503
        assert fetch("POST", f"{stage.url}/v1/conversations", HEADERS, b"{}").status_code == 503
        body = plain_body("responses", scene.model, conversation=name)
        assert ask(stage.url, "responses", body, HEADERS).status_code == 503
        for each in aside.iterdir():
            each.rename(tmp_path / each.name)
        wait_until(lambda: fetch("GET", f"{stage.url}/v1/conversations/{name}", HEADERS).is_success)
        # A write that failed may have happened in the files that were moved: whole, or not at all.
        assert types(client, name) in (["message"], ["message"] * 3)


HOSTILE: list[tuple[object, str, str]] = [
    (
        {"metadata": {f"k{number}": "v" for number in range(17)}},
        "object_above_max_properties",
        "metadata",
    ),
    ({"metadata": {"k" * 65: "v"}}, "string_above_max_length", "metadata." + "k" * 64),
    ({"metadata": {"k": "v" * 513}}, "string_above_max_length", "metadata.k"),
    ({"metadata": {"k": 1}}, "invalid_type", "metadata.k"),
    ({"metadata": []}, "invalid_type", "metadata"),
    ({"items": [HELLO] * 21}, "array_above_max_length", "items"),
    ({"items": {}}, "invalid_type", "items"),
    ({"items": [7]}, "invalid_type", "items[0]"),
    ({"items": [{"role": "robot", "content": "x"}]}, "invalid_type", "items[0].role"),
    (
        {"items": [HELLO, {"type": "message", "role": "user", "content": 7}]},
        "invalid_type",
        "items[1].content",
    ),
    ({"items": [{**HELLO, "id": "msg_" + "x" * 600}]}, "string_above_max_length", "items[0].id"),
]


@pytest.mark.parametrize(("body", "code", "param"), HOSTILE)
def test_what_a_conversation_cannot_hold_is_refused(
    stage: Stage, body: object, code: str, param: str
) -> None:
    data = json.dumps(body).encode()
    refused = fetch("POST", f"{stage.url}/v1/conversations", HEADERS, data)
    assert refused.status_code == 400, refused.content
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == (code, param)
    assert error["message"]


def test_bodies_that_are_no_requests_are_refused(stage: Stage, client: Any) -> None:
    name = client.conversations.create().id
    path = f"{stage.url}/v1/conversations/{name}"
    for content in (b"{", b"[]", b"7", b"\xff", b"[" * 2000):
        assert fetch("POST", path, HEADERS, content).status_code == 400
        assert fetch("POST", f"{path}/items", HEADERS, content).status_code == 400
        assert fetch("POST", f"{stage.url}/conversations", HEADERS, content).status_code == 400
    missing = fetch("POST", path, HEADERS, b"{}").json()["error"]
    assert (missing["code"], missing["param"]) == ("missing_required_parameter", "metadata")
    assert fetch("POST", f"{path}/items", HEADERS, b"{}").json()["error"]["param"] == "items"
    for hostile in ("conv_'; DROP TABLE x", "%00", "%ff", "..%2f..", "x" * 3000, "conv_\u00e9"):
        for method in ("GET", "DELETE"):
            assert fetch(method, f"{stage.url}/v1/conversations/{hostile}").status_code == 404
            assert fetch(method, f"{path}/items/{hostile}", HEADERS).status_code == 404
    strange = b'{"metadata": {"\\u0000\\ud800": "\\u2028 \\ud800"}}'
    assert fetch("POST", path, HEADERS, strange).is_success
    assert fetch("GET", path, HEADERS).is_success


def test_limits_of_size_hold_for_conversations_too() -> None:
    server = ServerSettings(shutdown_grace=0.3, max_body_bytes=20_000)
    store = StoreSettings(url="memory:", max_record_bytes=2_000)
    with running_stage(server=server, store=store) as stage:
        path = f"{stage.url}/v1/conversations"
        large = json.dumps({"items": [{"role": "user", "content": "x" * 30_000}]}).encode()
        assert fetch("POST", path, HEADERS, large).status_code == 413
        noise = b64encode(Random(1).randbytes(6_000)).decode()
        medium = json.dumps({"items": [{"role": "user", "content": noise}]}).encode()
        refused = fetch("POST", path, HEADERS, medium)
        assert refused.status_code == 413
        assert "max_record_bytes" in refused.json()["error"]["message"]
        client = openai_client(stage.url)
        name = client.conversations.create().id
        assert types(client, name) == []


def background_items(stage: Stage, name: str) -> list[str]:
    page = fetch("GET", f"{stage.url}/v1/conversations/{name}/items?order=asc").json()
    return [item["type"] for item in page["data"]]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_background_response_holds_its_conversation_and_adds_to_it(dialect: str) -> None:
    with running_stage() as stage:
        name = fetch("POST", f"{stage.url}/v1/conversations", content=b"{}").json()["id"]
        gate = threading.Event()
        scene = stage.scene(dialect, gated(dialect, gate), BACKGROUND_DONE)
        path = queued(stage, scene, conversation=name)
        assert fetch("GET", path).json()["conversation"] == {"id": name}
        body = plain_body("responses", scene.model, conversation=name)
        locked = ask(stage.url, "responses", body)
        assert locked.json()["error"]["code"] == "conversation_locked"
        gate.set()
        assert ended(path)["status"] == "completed"
        assert background_items(stage, name) == ["message", "message"]
        again = queued(stage, scene, conversation=name)
        assert ended(again)["status"] == "completed"
        assert background_items(stage, name) == ["message"] * 4


@pytest.mark.parametrize("how", ["cancel", "delete"])
def test_a_background_response_that_is_ended_gives_its_conversation_back(how: str) -> None:
    with running_stage() as stage:
        name = fetch("POST", f"{stage.url}/v1/conversations", content=b"{}").json()["id"]
        gate = threading.Event()
        scene = stage.scene("chat", gated("chat", gate), BACKGROUND_DONE)
        path = queued(stage, scene, conversation=name)
        method, place = ("POST", f"{path}/cancel") if how == "cancel" else ("DELETE", path)
        assert fetch(method, place).status_code == 200
        gate.set()
        body = plain_body("responses", scene.model, conversation=name)
        wait_until(lambda: ask(stage.url, "responses", body).status_code == 200)
        assert background_items(stage, name) == ["message", "message"]
