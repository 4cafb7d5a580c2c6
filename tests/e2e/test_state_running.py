"""Responses while they run, and without a working store: seen, cancelled, abandoned; never completed without being stored."""

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dragoman.config.settings import ServerSettings, StoreSettings
from dragoman.testing import ScriptedReply, Wait
from gateway_harness import wait_until
from plain_http import ask, fetch, plain_body, streaming
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Tool, stream
from websocket_client import socket_client

CALLING = Answer((Tool("call_1", "get_weather", ('{"city":', '"Paris"}')),))
DONE = Answer((Said(("It is ", "sunny.")),))
TOOLS = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]
# Nobody listens on port 1: it refuses at once.
NOWHERE = StoreSettings(url="postgresql://nobody@127.0.0.1:1/nothing")
Json = dict[str, Any]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    server = ServerSettings(shutdown_grace=0.3, keep_alive_interval=0.1)
    with running_stage(server=server) as running:
        yield running


@pytest.fixture(scope="module")
def bereft() -> Iterator[Stage]:
    """A gateway whose database is not there."""
    with running_stage(store=NOWHERE) as running:
        yield running


def held(dialect: str, answer: Answer, event: threading.Event) -> ScriptedReply:
    """An answer whose end waits for the event."""
    sent = stream(dialect, answer)
    cut = sent.index(b"\n\n", len(sent) // 2) + 2
    return ScriptedReply(
        content_type="text/event-stream", chunks=[sent[:cut], Wait(event), sent[cut:]]
    )


class Running:
    """A stream that has begun. `events` grows as it is read."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.events: list[Json] = []

    def next(self) -> Json:
        for line in self._lines:
            if line.startswith("data: "):
                self.events.append(json.loads(line.removeprefix("data: ")))
                return self.events[-1]
        raise AssertionError("the stream has ended")

    def rest(self) -> list[Json]:
        while self.events[-1]["type"] not in ("response.completed", "response.failed"):
            self.next()
        return self.events


@contextmanager
def running(stage: Stage, body: Json) -> Generator[tuple[Running, str]]:
    with streaming(stage.url, "responses", {**body, "stream": True}) as response:
        found = Running(response.iter_lines())
        yield found, f"{stage.url}/v1/responses/{found.next()['response']['id']}"


def test_a_response_that_runs_is_seen_and_not_continued(stage: Stage) -> None:
    event = threading.Event()
    scene = stage.scene("chat", held("chat", CALLING, event))
    with running(stage, plain_body("responses", scene.model, tools=TOOLS)) as (found, path):
        assert fetch("GET", path).json()["status"] == "in_progress"
        outputs = b'{"tool_outputs":[{"call_id":"call_1","output":"x"}]}'
        refused = fetch("POST", f"{path}/submit_tool_outputs", content=outputs)
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "response_in_progress"
        previous = {"previous_response_id": path.rpartition("/")[2]}
        again = ask(stage.url, "responses", plain_body("responses", scene.model, **previous))
        assert again.status_code == 409
        event.set()
        assert found.rest()[-1]["type"] == "response.completed"
    assert fetch("GET", path).json()["status"] == "completed"


def test_a_cancelled_response_ends_and_its_client_gets_the_failure(stage: Stage) -> None:
    event = threading.Event()
    scene = stage.scene("chat", held("chat", DONE, event))
    with running(stage, plain_body("responses", scene.model)) as (found, path):
        cancelled = fetch("POST", f"{path}/cancel")
        assert cancelled.status_code == 200
        assert cancelled.json()["status"] == "cancelled"
        last = found.rest()[-1]
        assert last["type"] == "response.failed"
        assert "cancelled" in last["response"]["error"]["message"]
    wait_until(lambda: scene.requests[0].closed_at is not None)
    event.set()
    assert fetch("GET", path).json()["status"] == "cancelled"
    # Cancelling what is over changes nothing.
    assert fetch("POST", f"{path}/cancel").json()["status"] == "cancelled"
    lines = fetch("GET", f"{path}?stream=true").text.split("\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    kinds = [(event["type"], event["sequence_number"]) for event in events]
    assert kinds == [("response.created", 0), ("response.failed", 1)]
    assert events[-1]["response"]["status"] == "cancelled"


def test_a_response_that_is_over_cannot_be_cancelled(stage: Stage) -> None:
    scene = stage.scene("chat", DONE)
    document = ask(stage.url, "responses", plain_body("responses", scene.model)).json()
    path = f"{stage.url}/responses/{document['id']}"
    assert fetch("POST", f"{path}/cancel").json() == document


def test_a_response_that_is_deleted_while_it_runs_ends_too(stage: Stage) -> None:
    event = threading.Event()
    scene = stage.scene("messages", held("messages", DONE, event))
    with running(stage, plain_body("responses", scene.model)) as (found, path):
        assert fetch("DELETE", path).json()["deleted"] is True
        assert found.rest()[-1]["type"] == "response.failed"
    event.set()
    assert fetch("GET", path).status_code == 404


def test_a_response_whose_client_leaves_is_cancelled(stage: Stage) -> None:
    event = threading.Event()
    scene = stage.scene("chat", held("chat", DONE, event))
    with running(stage, plain_body("responses", scene.model)) as (_, path):
        assert fetch("GET", path).json()["status"] == "in_progress"
    wait_until(lambda: fetch("GET", path).json()["status"] == "cancelled")
    event.set()


def test_pings_of_the_required_action_profile_are_counted(stage: Stage) -> None:
    event = threading.Event()
    scene = stage.scene("chat", held("chat", CALLING, event))
    body = plain_body("responses", scene.model, tools=TOOLS, stream=True)
    headers = {"x-dragoman-profile": "required-action"}
    received = b""
    with streaming(stage.url, "responses", body, headers) as response:
        for piece in response.iter_bytes():
            received += piece
            if b'"ping"' in received:
                event.set()
    events = [
        json.loads(line.removeprefix(b"data: "))
        for line in received.splitlines()
        if line.startswith(b"data: ")
    ]
    assert "ping" in [each["type"] for each in events]
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    # The replayed stream is without keep-alives: they kept the first connection open.
    path = f"{stage.url}/v1/responses/{events[0]['response']['id']}?stream=true"
    again = fetch("GET", path).content
    assert b"ping" not in again
    assert [line for line in received.splitlines() if b"ping" not in line and line] == [
        line for line in again.splitlines() if line
    ]


@pytest.mark.parametrize("profile", ["default", "required-action"])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_stream_that_cannot_be_stored_has_failed(
    bereft: Stage, dialect: str, profile: str
) -> None:
    scene = bereft.scene(dialect, CALLING)
    body = plain_body("responses", scene.model, tools=TOOLS, stream=True)
    headers = {"x-dragoman-profile": profile}
    answer = ask(bereft.url, "responses", body, headers)
    events = [
        json.loads(line.removeprefix(b"data: "))
        for line in answer.content.splitlines()
        if line.startswith(b"data: ")
    ]
    assert events[-1]["type"] == "response.failed"
    assert "could not be stored" in events[-1]["response"]["error"]["message"]
    assert events[-1]["response"]["status"] == "failed"
    assert "required_action" not in json.dumps(events[-1])
    assert "response.required_action" not in [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize("profile", ["default", "required-action"])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_over_a_websocket_the_connection_goes_on_without_the_store(
    bereft: Stage, dialect: str, profile: str
) -> None:
    scene = bereft.scene(dialect, DONE, CALLING, DONE, CALLING)
    headers = {"x-dragoman-profile": profile}
    with socket_client(bereft.url, scene.model, additional_headers=headers) as client:
        first = client.answer(input="Hi.")["id"]
        events = client.ask(input="And?", store=True, tools=TOOLS, previous_response_id=first)
        assert events[-1]["type"] == "response.failed"
        assert "could not be stored" in events[-1]["response"]["error"]["message"]
        assert "response.required_action" not in [event["type"] for event in events]
        frame = client.error(input="And?", previous_response_id=first)  # evicted
        assert (frame["status"], frame["error"]["code"]) == (503, "server_is_overloaded")
        again = client.answer(input="Hi.")["id"]
        last = client.ask(input="And?", tools=TOOLS, previous_response_id=again)[-1]
        # Who is asked for outputs may submit them over HTTP, so they cannot be asked for if nothing can be stored.
        is_failed = profile == "required-action"
        assert last["type"] == ("response.failed" if is_failed else "response.completed")


def test_what_needs_the_store_fails_clearly_without_it(bereft: Stage) -> None:
    scene = bereft.scene("chat", DONE, DONE, DONE)
    body = plain_body("responses", scene.model)
    refused = ask(bereft.url, "responses", body)
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "server_is_overloaded"
    previous = {**body, "previous_response_id": "resp_1", "store": False}
    assert ask(bereft.url, "responses", previous).status_code == 503
    assert fetch("GET", f"{bereft.url}/v1/responses/resp_1").status_code == 503
    thread = plain_body("messages", scene.model, thread={"type": "create"}, stream=True)
    found = ask(bereft.url, "messages", thread)
    assert b"event: error" in found.content
    assert b"message_stop" not in found.content


def test_what_does_not_need_the_store_goes_on_without_it(bereft: Stage) -> None:
    scene = bereft.scene("messages", DONE, DONE, DONE)
    assert ask(
        bereft.url, "responses", plain_body("responses", scene.model, store=False)
    ).is_success
    assert ask(bereft.url, "chat", plain_body("chat", scene.model)).is_success
    assert ask(bereft.url, "messages", plain_body("messages", scene.model)).is_success
    ready = fetch("GET", f"{bereft.url}/readyz")
    assert ready.status_code == 200
    assert "store" in ready.json()
    metrics = fetch("GET", f"{bereft.url}/metrics").text
    assert 'outcome="error"' in metrics


def test_response_too_large_for_the_store_is_not_reported_as_stored() -> None:
    with running_stage(store=StoreSettings(url="memory:", max_record_bytes=100)) as stage:
        scene = stage.scene("chat", DONE, DONE)
        body = plain_body("responses", scene.model)
        refused = ask(stage.url, "responses", body)
        assert refused.status_code == 413
        assert "100 bytes" in refused.json()["error"]["message"]
        texts = ask(stage.url, "responses", {**body, "stream": True})
        assert b"response.failed" in texts.content
        assert b"response.completed" not in texts.content


def test_what_has_expired_is_gone() -> None:
    with running_stage(store=StoreSettings(url="memory:", ttl=0.5)) as stage:
        scene = stage.scene("chat", DONE, DONE)
        document = ask(stage.url, "responses", plain_body("responses", scene.model)).json()
        path = f"{stage.url}/v1/responses/{document['id']}"
        wait_until(lambda: fetch("GET", path).status_code == 404)
        previous = plain_body("responses", scene.model, previous_response_id=document["id"])
        assert ask(stage.url, "responses", previous).status_code == 400


@pytest.mark.parametrize("upstream", ["chat", "messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_credentials_of_tools_are_not_repeated_in_an_answer(
    stage: Stage, upstream: str, stream: bool
) -> None:
    scene = stage.scene(upstream, DONE)
    tool = {
        "type": "mcp",
        "server_label": "calendar",
        "server_url": "https://x",
        "headers": {"Authorization": "s3cret"},
    }
    body = plain_body("responses", scene.model, tools=[tool], stream=stream)
    answer = ask(stage.url, "responses", body)
    assert answer.is_success
    assert "calendar" in answer.text
    assert "s3cret" not in answer.text


def test_credentials_of_tools_are_not_stored(stage: Stage) -> None:
    scene = stage.scene("responses", DONE)
    tool = {
        "type": "mcp",
        "server_label": "x",
        "server_url": "https://x",
        "authorization": "s3cret",
    }
    body = plain_body("responses", scene.model, tools=[tool])
    document = ask(stage.url, "responses", body).json()
    assert b"s3cret" in scene.requests[0].body
    path = f"{stage.url}/v1/responses/{document['id']}"
    assert b"s3cret" not in fetch("GET", f"{path}/input_items").content
    later = stage.scene("responses", DONE)
    again = plain_body("responses", later.model, previous_response_id=document["id"])
    assert ask(stage.url, "responses", again).is_success
    assert b"s3cret" not in later.requests[0].body
