"""Background responses: queued, polled, followed, cancelled; over every upstream, with the vendor's own SDK."""

import gzip
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from background_runs import (
    DONE,
    TEXT,
    ended,
    events_of,
    gated,
    queued,
    started,
    status_of,
)
from doors import check_responses
from dragoman.config.settings import (
    RetrySettings,
    Route,
    ServerSettings,
    StoreSettings,
)
from dragoman.testing import Chunk, ScriptedReply, Wait, json_reply
from gateway_harness import DIALECTS, wait_until
from plain_http import ask, fetch, following, plain_body, streaming
from sdk_clients import CLIENT_KEY, openai_client
from stage import Stage, deliver, running_stage
from vendor_wire import Answer, Said, Tool
from vendor_wire import stream as vendor_stream

Json = dict[str, Any]
CALLING = Answer((Tool("call_1", "get_weather", ('{"city":', '"Paris"}')),))
TOOLS = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]
PROFILE = {"x-dragoman-profile": "required-action"}
dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")


@pytest.fixture(scope="module", params=["direct", "asgi"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    upstreams = {"keeping": {"kind": "responses", "keeps_responses": True}}
    with running_stage(way=str(request.param), upstreams=upstreams) as running:
        yield running


def client_of(stage: Stage) -> Any:
    return openai_client(stage.url).responses


@dialects
def test_the_sdk_creates_polls_and_continues(stage: Stage, dialect: str) -> None:
    gate = threading.Event()
    scene = stage.scene(dialect, gated(dialect, gate), DONE)
    responses = client_of(stage)
    first = responses.create(model=scene.model, input="hi", background=True, instructions="Short.")
    assert (first.status, first.output, first.background) == ("queued", [], True)
    assert (first.store, first.instructions, first.model) == (True, "Short.", scene.model)
    wait_until(lambda: responses.retrieve(first.id).status == "in_progress")
    with pytest.raises(openai.ConflictError):
        responses.create(model=scene.model, input="more", previous_response_id=first.id)
    gate.set()
    wait_until(lambda: responses.retrieve(first.id).status == "completed")
    last = responses.retrieve(first.id)
    assert (last.output_text, last.background, last.created_at) == (TEXT, True, first.created_at)
    assert (last.usage.input_tokens, last.usage.output_tokens) == (11, 7)
    assert "background" not in scene.heard
    second = responses.create(
        model=scene.model, input="more", previous_response_id=first.id, background=True
    )
    assert second.previous_response_id == first.id
    wait_until(lambda: responses.retrieve(second.id).status == "completed")
    assert TEXT in json.dumps(scene.heard)
    assert [item.type for item in responses.input_items.list(second.id)] == ["message"] * 3


@dialects
def test_a_stream_begins_with_created_queued_and_in_progress(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, DONE)
    events = list(
        client_of(stage).create(model=scene.model, input="hi", background=True, stream=True)
    )
    kinds = [event.type for event in events]
    assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert [event.response.status for event in events[:3]] == ["queued", "queued", "in_progress"]
    assert kinds[-1] == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert len({event.response.id for event in (*events[:3], events[-1])}) == 1
    assert len({event.response.created_at for event in (*events[:3], events[-1])}) == 1
    final = events[-1].response
    assert client_of(stage).retrieve(final.id) == final
    key = {"authorization": f"Bearer {CLIENT_KEY}"}
    check_responses(fetch("GET", f"{stage.url}/v1/responses/{final.id}?stream=true", key).content)
    assert list(client_of(stage).retrieve(final.id, stream=True, starting_after=2)) == events[3:]


@dialects
def test_a_client_that_leaves_comes_back_where_it_was(stage: Stage, dialect: str) -> None:
    gate = threading.Event()
    scene = stage.scene(dialect, gated(dialect, gate))
    stream = client_of(stage).create(model=scene.model, input="hi", background=True, stream=True)
    seen = [next(stream) for _ in range(5)]
    stream.close()
    response_id = seen[0].response.id
    later = client_of(stage).retrieve(response_id, stream=True, starting_after=4)
    events = iter(later)
    seen.append(next(events))
    gate.set()
    seen += list(events)
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert seen[-1].response.output_text == TEXT
    assert scene.requests[0].closed_at is None or gate.is_set()


def test_the_stream_helper_of_the_sdk_goes_on_from_any_event(stage: Stage) -> None:
    scene = stage.scene("chat", DONE)
    responses = client_of(stage)
    with responses.stream(model=scene.model, input="hi", background=True) as stream:
        first = [next(stream) for _ in range(3)]
    with responses.stream(response_id=first[0].response.id, starting_after=2) as again:
        numbers = [event.sequence_number for event in again]
        assert numbers[0] == 3
        assert again.get_final_response().output_text == TEXT


def test_a_compressed_request_is_served_like_any_other(stage: Stage) -> None:
    scene = stage.scene("chat", DONE)
    body = json.dumps(plain_body("responses", scene.model, background=True)).encode()
    answer = ask(stage.url, "responses", gzip.compress(body), {"content-encoding": "gzip"})
    assert answer.status_code == 200, answer.text
    assert ended(f"{stage.url}/v1/responses/{answer.json()['id']}")["status"] == "completed"


def test_a_response_that_was_not_asked_for_as_a_stream_is_followed_live(stage: Stage) -> None:
    with started(stage) as run, following(f"{run.path}?stream=true") as response:
        lines = response.iter_lines()
        seen: list[str] = []
        while "response.output_text.delta" not in "".join(seen):
            seen.append(next(lines))
        run.gate.set()
        seen += list(lines)
    events = events_of("\n".join(seen))
    assert events[-1]["response"]["status"] == "completed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_it_is_queued_until_an_upstream_answers(stage: Stage) -> None:
    gate = threading.Event()
    chunks: list[Chunk] = [Wait(gate), vendor_stream("chat", DONE)]
    held = ScriptedReply(content_type="text/event-stream", chunks=chunks)
    scene = stage.scene("chat", held)
    path = queued(stage, scene)
    wait_until(lambda: len(scene.requests) == 1)
    assert status_of(path) == "queued"
    gate.set()
    assert ended(path)["status"] == "completed"


def test_a_cancelled_response_ends_its_upstream_and_its_followers(stage: Stage) -> None:
    with started(stage) as run, following(f"{run.path}?stream=true") as response:
        cancelled = fetch("POST", f"{run.path}/cancel").json()
        assert (cancelled["status"], cancelled["background"]) == ("cancelled", True)
        wait_until(lambda: run.scene.requests[0].closed_at is not None)
        events = events_of("\n".join(response.iter_lines()))
        assert events[-1]["type"] == "response.failed"
        run.gate.set()
        # Cancelling twice changes nothing, and nothing that comes later does.
        assert fetch("POST", f"{run.path}/cancel").json()["status"] == "cancelled"
        again = events_of(fetch("GET", f"{run.path}?stream=true").text)
        assert again[-1]["type"] == "response.failed"
        assert again[-1]["response"]["status"] == "cancelled"
        numbers = [event["sequence_number"] for event in again]
        assert numbers == list(range(len(numbers)))


def test_the_sdk_cancels(stage: Stage) -> None:
    gate = threading.Event()
    scene = stage.scene("chat", gated("chat", gate))
    responses = client_of(stage)
    made = responses.create(model=scene.model, input="hi", background=True)
    wait_until(lambda: len(scene.requests) == 1)
    assert responses.cancel(made.id).status == "cancelled"
    wait_until(lambda: scene.requests[0].closed_at is not None)
    gate.set()
    assert responses.retrieve(made.id).status == "cancelled"


def test_a_queued_response_can_be_cancelled(stage: Stage) -> None:
    gate = threading.Event()
    scene = stage.scene("chat", ScriptedReply(chunks=[Wait(gate)], framing="raw"))
    path = queued(stage, scene)
    wait_until(lambda: len(scene.requests) == 1)
    assert fetch("POST", f"{path}/cancel").json()["status"] == "cancelled"
    wait_until(lambda: scene.requests[0].closed_at is not None)
    gate.set()
    assert ended(path)["status"] == "cancelled"


def test_a_deleted_response_ends_its_upstream_and_is_gone(stage: Stage) -> None:
    with started(stage) as run:
        assert fetch("DELETE", run.path).json()["deleted"] is True
        wait_until(lambda: run.scene.requests[0].closed_at is not None)
        run.gate.set()
        assert fetch("GET", run.path).status_code == 404
    wait_until(lambda: not stage.gateway.app.gateway.exchanges)
    assert fetch("GET", run.path).status_code == 404


def test_an_upstream_that_refuses_makes_the_response_fail(stage: Stage) -> None:
    scene = stage.scene("chat", json_reply({"error": {"message": "no such thing"}}, 400))
    path = queued(stage, scene)
    response = ended(path)
    assert response["status"] == "failed"
    assert "no such thing" in response["error"]["message"]
    events = events_of(fetch("GET", f"{path}?stream=true").text)
    kinds = [event["type"] for event in events]
    assert kinds == ["response.created", "response.queued", "response.failed"]
    assert [event["sequence_number"] for event in events] == [0, 1, 2]


def test_an_upstream_that_breaks_off_makes_the_response_fail(stage: Stage) -> None:
    sent = vendor_stream("chat", DONE)
    cut = ScriptedReply(content_type="text/event-stream", chunks=[sent[:-200]], cut=True)
    path = queued(stage, stage.scene("chat", cut))
    response = ended(path)
    assert response["status"] == "failed"
    events = events_of(fetch("GET", f"{path}?stream=true").text)
    assert events[-1]["type"] == "response.failed"
    assert events[2]["type"] == "response.in_progress"


def test_an_answer_that_comes_whole_is_stored_like_any_other(stage: Stage) -> None:
    scene = stage.scene("chat", lambda _: deliver("chat", DONE, is_stream=False))
    path = queued(stage, scene)
    assert ended(path)["output"][0]["content"][0]["text"] == TEXT
    events = events_of(fetch("GET", f"{path}?stream=true").text)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_an_upstream_that_keeps_responses_does_not_hear_of_it(stage: Stage) -> None:
    scene = stage.scene("responses", DONE, DONE, DONE, route="keeping")
    first = ask(stage.url, "responses", plain_body("responses", scene.model)).json()
    path = queued(stage, scene, previous_response_id=first["id"])
    response = ended(path)
    assert response["id"].startswith("resp_dgm")
    assert response["previous_response_id"] == first["id"]
    assert scene.heard["previous_response_id"] == first["id"]
    assert "background" not in scene.heard
    again = queued(stage, scene, previous_response_id=response["id"])
    assert ended(again)["status"] == "completed"
    assert "previous_response_id" not in scene.heard
    assert TEXT in json.dumps(scene.heard)


def test_tool_calls_are_answered_in_another_request(stage: Stage) -> None:
    scene = stage.scene("chat", CALLING, DONE)
    path = queued(stage, scene, tools=TOOLS)
    (call,) = ended(path)["output"]
    assert (call["type"], call["arguments"]) == ("function_call", '{"city":"Paris"}')
    results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "21"}]
    previous = path.rpartition("/")[2]
    again = queued(stage, scene, input=results, previous_response_id=previous, tools=TOOLS)
    assert ended(again)["output"][0]["content"][0]["text"] == TEXT


def test_outputs_are_submitted_to_a_background_response_in_the_foreground(stage: Stage) -> None:
    scene = stage.scene("chat", CALLING, DONE)
    body = plain_body("responses", scene.model, tools=TOOLS, background=True)
    made = ask(stage.url, "responses", body, PROFILE).json()
    path = f"{stage.url}/v1/responses/{made['id']}"
    waiting = ended(path)
    assert (waiting["status"], waiting["background"]) == ("incomplete", True)
    outputs = [{"tool_call_id": "call_1", "output": "21"}]
    refused = fetch(
        "POST",
        f"{path}/submit_tool_outputs",
        content=json.dumps({"tool_outputs": outputs, "background": True}).encode(),
    )
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "background"
    content = json.dumps({"tool_outputs": outputs}).encode()
    answer = fetch("POST", f"{path}/submit_tool_outputs", content=content).json()
    assert (answer["status"], answer["background"]) == ("completed", False)
    assert status_of(path) == "completed"


def test_the_events_of_the_profile_are_those_of_any_stream(stage: Stage) -> None:
    scene = stage.scene("chat", CALLING)
    body = plain_body("responses", scene.model, tools=TOOLS, background=True, stream=True)
    events = events_of(ask(stage.url, "responses", body, PROFILE).text)
    kinds = [event["type"] for event in events]
    assert kinds[1] == "response.queued"
    assert kinds[-2:] == ["response.required_action", "response.completed"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_compaction_can_be_made_in_the_background(stage: Stage) -> None:
    scene = stage.scene("chat", Answer((Said(("A summary.",)),)))
    trigger: list[Json] = [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}]
    response = ended(queued(stage, scene, input=trigger))
    assert [item["type"] for item in response["output"]] == ["compaction"]


def test_the_compact_endpoint_has_no_background(stage: Stage) -> None:
    scene = stage.scene("chat", DONE)
    content = json.dumps(plain_body("responses", scene.model, background=True)).encode()
    refused = fetch("POST", f"{stage.url}/v1/responses/compact", content=content)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "background"
    assert scene.requests == []


@pytest.mark.parametrize("stream", [True, False])
def test_what_can_be_refused_at_once_is_refused(stage: Stage, stream: bool) -> None:
    scene = stage.scene("chat", DONE)
    for more, status, code in (
        ({"store": False}, 400, "background_requires_store"),
        ({"previous_response_id": "resp_none"}, 400, "previous_response_not_found"),
        ({"model": "nobody-has-this"}, 404, "model_not_found"),
        ({"background": "yes"}, 400, "invalid_type"),
    ):
        body = plain_body("responses", scene.model, background=True, stream=stream)
        refused = ask(stage.url, "responses", {**body, **more})
        assert refused.status_code == status, refused.text
        assert refused.json()["error"]["code"] == code
        assert refused.headers["content-type"] == "application/json"
        assert len(refused.headers.get_list("x-request-id")) == 1
    assert scene.requests == []


@pytest.mark.parametrize(
    ("policy", "store", "status"),
    [("off", True, 400), ("asked", None, 400), ("asked", True, 200), ("default", None, 200)],
)
def test_what_is_not_stored_cannot_be_in_the_background(
    policy: Any, store: bool | None, status: int
) -> None:
    with running_stage(store=StoreSettings(url="memory:", policy=policy)) as stage:
        scene = stage.scene("responses", DONE)
        body = plain_body("responses", scene.model, background=True, store=store)
        answer = ask(stage.url, "responses", body)
        assert answer.status_code == status, answer.text
        if status == 400:
            assert "stored" in answer.json()["error"]["message"]
        else:
            ended(f"{stage.url}/v1/responses/{answer.json()['id']}")


def test_upstreams_are_tried_in_turn() -> None:
    routes = (Route(model="two/*", upstream="messages", fallback=("chat",)),)
    retry = RetrySettings(base_delay=0.001, attempts=2)
    with running_stage(routes=routes, retry=retry) as stage:
        busy = json_reply({"error": {"message": "busy"}}, 503)
        whole = deliver("chat", DONE, is_stream=True)
        scene = stage.scene("messages", busy, busy, whole, route="two")
        assert ended(queued(stage, scene))["status"] == "completed"
        assert len(scene.requests) == 3


def test_there_is_a_limit_for_all_and_one_for_each() -> None:
    server = ServerSettings(shutdown_grace=0.3, max_background=2, max_streams=3)
    with running_stage(server=server) as stage:
        with started(stage) as one, started(stage):
            scene = stage.scene("chat", DONE, DONE, DONE)
            body = plain_body("responses", scene.model, background=True)
            refused = ask(stage.url, "responses", body)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            assert "max_background" in refused.json()["error"]["message"]
            # Others are served meanwhile: a background response takes one place, and its follower none.
            with following(f"{one.path}?stream=true"):
                assert ask(stage.url, "chat", plain_body("chat", scene.model)).is_success
        wait_until(lambda: not stage.gateway.app.gateway.exchanges)
        assert ended(queued(stage, scene))["status"] == "completed"


def test_a_background_response_needs_one_place_only() -> None:
    server = ServerSettings(shutdown_grace=0.3, max_streams=1)
    with running_stage(server=server) as stage, started(stage):
        scene = stage.scene("chat", DONE)
        for more in ({}, {"background": True}):
            refused = ask(stage.url, "responses", plain_body("responses", scene.model, **more))
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"


def test_a_response_that_takes_too_long_fails() -> None:
    server = ServerSettings(shutdown_grace=0.3, background_max_seconds=2.0)
    with running_stage(server=server) as stage:
        gate = threading.Event()
        scene = stage.scene("chat", gated("chat", gate))
        path = queued(stage, scene)
        response = ended(path)
        assert response["status"] == "failed"
        assert "background_max_seconds" in response["error"]["message"]
        wait_until(lambda: scene.requests[0].closed_at is not None)
        gate.set()
        assert status_of(path) == "failed"


def test_it_is_counted_and_logged_once_when_it_ends(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.requests")
    gateway = stage.gateway.app.gateway
    wait_until(lambda: not gateway.exchanges)
    before = fetch("GET", f"{stage.url}/v1/usage").json()["total"]
    with started(stage) as run:
        run.gate.set()
        ended(run.path)
    wait_until(lambda: not gateway.exchanges)
    after = fetch("GET", f"{stage.url}/v1/usage").json()["total"]
    counted = {name: after[name] - before[name] for name in ("requests", "input_tokens")}
    assert counted == {"requests": 1, "input_tokens": 11}
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if run.scene.model in line]) == 1


def test_another_key_finds_nothing() -> None:
    keys = ("k" * 16, "j" * 16)
    with running_stage(server=ServerSettings(shutdown_grace=0.3, api_keys=keys)) as stage:
        scene = stage.scene("chat", DONE)
        mine, other = ({"authorization": f"Bearer {key}"} for key in keys)
        body = plain_body("responses", scene.model, background=True)
        made = ask(stage.url, "responses", body, mine).json()
        path = f"{stage.url}/v1/responses/{made['id']}"
        assert fetch("GET", path, other).status_code == 404
        assert fetch("POST", f"{path}/cancel", other).status_code == 404
        wait_until(lambda: fetch("GET", path, mine).json()["status"] == "completed")


def test_stopping_lets_it_finish_and_then_says_that_it_failed(tmp_path: Any) -> None:
    store = StoreSettings(url=f"sqlite://{tmp_path / 'store.db'}")
    with running_stage(store=store, server=ServerSettings(shutdown_grace=60.0)) as stage:
        with started(stage) as run:
            stage.gateway.server.should_exit = True
            wait_until(lambda: stage.gateway.app.gateway.is_stopping)
            run.gate.set()
            stage.gateway.stop()
        finished = run.id
    with running_stage(store=store, server=ServerSettings(shutdown_grace=0.2)) as stage:
        assert status_of(f"{stage.url}/v1/responses/{finished}") == "completed"
        with started(stage) as run:
            silent = stage.scene("chat", ScriptedReply(chunks=[Wait(run.gate)], framing="raw"))
            still_queued = queued(stage, silent).rpartition("/")[2]
            wait_until(lambda: len(silent.requests) == 1)
            stage.gateway.stop()
            cut = run.id
    with running_stage(store=store) as stage:
        for name in (cut, still_queued):
            response = fetch("GET", f"{stage.url}/v1/responses/{name}").json()
            assert response["status"] == "failed"
            assert "shutting down" in response["error"]["message"]


def test_a_client_that_streams_gets_the_failure_of_a_stop() -> None:
    with running_stage(server=ServerSettings(shutdown_grace=0.3)) as stage:
        gate = threading.Event()
        scene = stage.scene("chat", gated("chat", gate))
        body = plain_body("responses", scene.model, background=True, stream=True)
        with streaming(stage.url, "responses", body) as response:
            lines = response.iter_lines()
            seen = [next(lines) for _ in range(12)]
            stage.gateway.server.should_exit = True
            seen += list(lines)
        gate.set()
        last = events_of("\n".join(seen))[-1]
        assert last["type"] == "response.failed"
        assert "shutting down" in last["response"]["error"]["message"]
