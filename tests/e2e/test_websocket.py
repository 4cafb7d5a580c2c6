"""The Responses door over a WebSocket, on loopback, over upstreams of every dialect."""

import json
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from doors import payloads
from dragoman.config.settings import ServerSettings, StoreSettings
from dragoman.server.app import create_app
from dragoman.testing import (
    Chunk,
    ReceivedRequest,
    ScriptedReply,
    ScriptedUpstream,
    Wait,
    json_reply,
)
from gateway_harness import DIALECTS, one_upstream, running_gateway, wait_until
from gateway_harness import connection as plain_connection
from sdk_clients import openai_client
from stage import Stage, deliver, running_stage
from vendor_wire import Answer, Said, Thought, Tool, stream
from websocket_client import SocketClient, socket_client, socket_url

Json = dict[str, Any]

CALL = Tool("call_1", "get_weather", ('{"city":', ' "Paris"}'))
CALLS = Answer((Said(("Let me ", "look.")), CALL))
HELLO = Answer((Said(("Hel", "lo.")),))
TOOL: Json = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
LEAVING = 0.1  # seconds in which the upstream must be let go
ATTEMPTS = 20  # of which one must be in time: a busy machine takes the processor away now and then
COUNTED = "dragoman_requests_total{"
STORES = {"stored": StoreSettings(url="memory:"), "off": StoreSettings(policy="off")}


@pytest.fixture(scope="module", params=STORES)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with running_stage(store=STORES[request.param]) as running:
        yield running


def texts(heard: Any) -> str:
    """The texts of a request of any dialect, in their order."""
    return json.dumps(heard.get("input") or heard.get("messages"))


# --- turns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_tool_call_and_its_output_in_four_turns(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, CALLS, HELLO, HELLO, HELLO)
    with socket_client(stage.url, scene.model) as client:
        events = client.ask(input="Weather?", tools=[TOOL], stream=True)
        assert events[0]["type"] == "response.created"
        numbers = [event["sequence_number"] for event in events]
        assert numbers == sorted(set(numbers))
        assert not any("stream_id" in event for event in events)
        response = events[-1]["response"]
        sent = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert response["output"] == sent
        assert sent[-1]["arguments"] == '{"city": "Paris"}'
        assert sent[-1]["call_id"] == "call_1"
        for text in ("", "And then?", "And after that?"):
            new = [OUTPUT] if not text else [{"role": "user", "content": text}]
            previous = response["id"]
            response = client.answer(input=new, tools=[TOOL], previous_response_id=previous)
            assert response["previous_response_id"] == previous
            assert response["store"] is False
    heard = texts(scene.heard)
    wanted = ("Weather?", "Let me look.", "call_1", "sunny", "And then?", "And after that?")
    places = [heard.index(each) for each in wanted]
    assert places == sorted(places)
    assert heard.count("Hello.") == 2
    assert "previous_response_id" not in scene.heard


NAMES = ("id", "item_id", "created_at", "completed_at")  # new in each response
SETTINGS: Json = {
    "tools": [TOOL, {"type": "custom", "name": "patch"}],
    "tool_choice": {"type": "function", "name": "get_weather"},
    "parallel_tool_calls": False,
    "reasoning": {"effort": "low"},
    "text": {"verbosity": "low"},
    "include": ["reasoning.encrypted_content"],
    "instructions": "Be brief.",
    "metadata": {"a": "b"},
    "max_output_tokens": 100,
    "temperature": 0.5,
    "prompt_cache_key": "thread-1",
    "service_tier": "default",
}


def nameless(value: Any) -> Any:
    """An event without what is new in each response."""
    if isinstance(value, dict):
        return {
            name: nameless(each) for name, each in cast("Json", value).items() if name not in NAMES
        }
    if isinstance(value, list):
        return [nameless(each) for each in value]  # pyright: ignore[reportUnknownVariableType] -- any JSON
    return value


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_events_and_what_the_upstream_gets_are_those_of_a_post(dialect: str, store: str) -> None:
    """On a gateway of its own: an upstream that repeats its ids, as a scripted one does, is relayed differently later."""
    answer = Answer((Thought("Hm.", "seal"), Said(("Let me ", "look.")), CALL))
    with running_stage(store=STORES[store]) as stage:
        scene = stage.scene(dialect, answer, answer)
        body = {"model": scene.model, "store": False, "input": "Weather?", **SETTINGS}
        with plain_connection(stage.gateway) as client:
            headers = {"content-type": "application/json"}
            client.request("POST", "/v1/responses", json.dumps({**body, "stream": True}), headers)
            events = [event for _, event in payloads(client.getresponse().read())]
        with socket_client(stage.url, scene.model) as connected:
            sent = connected.ask(**body)
    # A ping of the upstream is a keep-alive; `sent` is without it.
    posted = [event for event in events if event["type"] != "keepalive"]
    assert nameless(sent) == nameless(posted)
    one, other = [json.loads(request.body) for request in scene.requests]
    assert one == other


@pytest.mark.parametrize("dialect", DIALECTS)
def test_warm_up_asks_no_upstream_and_can_be_continued(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, HELLO)
    with socket_client(stage.url, scene.model) as client:
        first = [{"type": "message", "role": "developer", "content": "Be brief."}]
        events = client.ask(input=first, generate=False, tools=[TOOL])
        kinds = [event["type"] for event in events]
        assert kinds == ["response.created", "response.in_progress", "response.completed"]
        response = events[-1]["response"]
        assert (response["output"], response["status"]) == ([], "completed")
        assert scene.requests == []
        second = client.answer(input="Hi.", previous_response_id=response["id"])
        assert second["output"][0]["content"][0]["text"] == "Hello."
    heard = json.dumps(scene.heard)
    assert heard.index("Be brief.")
    assert "Hi." in heard
    assert "generate" not in scene.heard


@pytest.mark.parametrize("dialect", ["responses", "messages"])
def test_sealed_reasoning_goes_back_with_the_continuation(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, Answer((Thought("Hm.", "seal-of-the-model"), CALL)), HELLO)
    with socket_client(stage.url, scene.model) as client:
        include = ["reasoning.encrypted_content"]
        first = client.answer(input="Weather?", tools=[TOOL], include=include)
        client.answer(input=[OUTPUT], tools=[TOOL], previous_response_id=first["id"])
    assert "seal-of-the-model" in texts(scene.heard)


def test_warm_up_without_input_can_be_continued(stage: Stage) -> None:
    scene = stage.scene("chat", HELLO)
    with socket_client(stage.url, scene.model) as client:
        warm = client.answer(input=[], generate=False)
        client.answer(input="Hi.", previous_response_id=warm["id"])
    assert [turn["content"] for turn in scene.heard["messages"]] == ["Hi."]


@pytest.mark.parametrize("delivery", ["frames", "bytes", "crlf", "cr"])
def test_relayed_stream_has_one_json_object_per_frame(stage: Stage, delivery: Any) -> None:
    scene = stage.scene("responses", CALLS, HELLO, delivery=delivery)
    with socket_client(stage.url, scene.model) as client:
        events = client.ask(input="Weather?")
        assert events[-1]["type"] == "response.completed"
        deltas = [event["delta"] for event in events if event["type"].endswith("text.delta")]
        assert "".join(deltas) == "Let me look."
        client.answer(input=[OUTPUT], previous_response_id=events[-1]["response"]["id"])
    assert "Let me look." in texts(scene.heard)


def test_stored_response_can_be_continued_on_another_connection() -> None:
    with running_stage(store=StoreSettings(url="memory:")) as stage:
        scene = stage.scene("chat", CALLS, HELLO, HELLO)
        with socket_client(stage.url, scene.model) as client:
            first = client.answer(input="Weather?", store=True)
        with socket_client(stage.url, scene.model) as client:
            second = client.answer(input=[OUTPUT], previous_response_id=first["id"])
            third = client.answer(input="And?", previous_response_id=second["id"], store=True)
        assert texts(scene.heard).index("Weather?") < texts(scene.heard).index("sunny")
        assert third["previous_response_id"] == second["id"]


WAITING = {"x-dragoman-profile": "required-action"}


def submit(stage: Stage, response_id: str) -> tuple[int, Json]:
    with plain_connection(stage.gateway) as client:
        body = json.dumps({"tool_outputs": [{"call_id": "call_1", "output": "sunny"}]})
        path = f"/v1/responses/{response_id}/submit_tool_outputs"
        client.request("POST", path, body, {"content-type": "application/json"})
        answer = client.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_client_that_was_asked_for_outputs_submits_them_or_goes_on(dialect: str) -> None:
    """In the `required_action` profile, with nothing stored: over HTTP, and over the same connection, in any order."""
    with running_stage(store=StoreSettings(url="memory:")) as stage:
        scene = stage.scene(dialect, HELLO, CALLS, HELLO, HELLO, CALLS, HELLO)
        with socket_client(stage.url, scene.model, additional_headers=WAITING) as client:
            before = client.answer(input="Hi.")["id"]
            events = client.ask(input="Weather?", tools=[TOOL], previous_response_id=before)
            assert [event["type"] for event in events[-2:]] == [
                "response.required_action",
                "response.completed",
            ]
            waiting = events[-1]["response"]
            assert (waiting["status"], waiting["store"]) == ("incomplete", False)
            assert waiting["previous_response_id"] == before

            status, answer = submit(stage, waiting["id"])
            assert (status, answer["status"]) == (200, "completed")
            assert texts(scene.heard).index("Hello.") < texts(scene.heard).index("sunny")
            assert submit(stage, waiting["id"])[0] == 409

            previous = waiting["id"]
            last = client.answer(input=[OUTPUT], tools=[TOOL], previous_response_id=previous)
            assert last["previous_response_id"] == previous
            assert texts(scene.heard).index("Hello.") < texts(scene.heard).index("sunny")
            later = client.ask(input="And?", tools=[TOOL], previous_response_id=last["id"])[-1]
        assert submit(stage, later["response"]["id"])[0] == 200  # the connection has ended
        assert submit(stage, last["id"])[0] == 404  # it waits for nothing
        assert len(scene.requests) == 6


def test_without_a_store_nobody_is_asked_for_outputs(stage: Stage) -> None:
    scene = stage.scene("chat", CALLS, HELLO)
    with socket_client(stage.url, scene.model, additional_headers=WAITING) as client:
        events = client.ask(input="Weather?", tools=[TOOL])
        asks = "response.required_action" in [event["type"] for event in events]
        assert asks is stage.gateway.app.gateway.is_storing
        previous = events[-1]["response"]["id"]
        assert client.answer(input=[OUTPUT], tools=[TOOL], previous_response_id=previous)["output"]


# The SDK has not yet followed `websockets`.
@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_openai_python_connects(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, CALLS, HELLO)
    with openai_client(stage.url) as client, client.responses.connect() as connection:
        connection.response.create(model=scene.model, input="Weather?", store=False)
        first = None
        for event in connection:
            if event.type == "response.completed":
                first = event.response
                break
        assert first is not None
        assert first.output[-1].type == "function_call"
        output: Any = [OUTPUT]
        connection.response.create(
            model=scene.model, input=output, previous_response_id=first.id, store=False
        )
        for event in connection:
            if event.type == "response.completed":
                assert event.response.output_text == "Hello."
                break


# --- errors -------------------------------------------------------------------------------------------------------


def test_reconnect_forgets_what_was_not_stored(stage: Stage) -> None:
    scene = stage.scene("chat", HELLO, HELLO)
    with socket_client(stage.url, scene.model) as client:
        first = client.answer(input="Hi.")
    with socket_client(stage.url, scene.model) as client:
        frame = client.error(input="And?", previous_response_id=first["id"])
        assert frame["status"] == 400
        assert frame["error"]["code"] == "previous_response_not_found"
        assert frame["error"]["param"] == "previous_response_id"
        assert client.answer(input="Hi. And?")["output"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_unknown_response_is_not_passed_to_an_upstream(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect)
    with socket_client(stage.url, scene.model) as client:
        frame = client.error(input="And?", previous_response_id="resp_of_somebody")
    assert frame["error"]["code"] == "previous_response_not_found"
    assert scene.requests == []


@pytest.mark.parametrize("store", [True, False])
def test_response_of_another_caller_is_unknown(store: bool) -> None:
    server = ServerSettings(shutdown_grace=0.3, api_keys=("sk-one", "sk-two"))
    with running_stage(server=server, store=StoreSettings(url="memory:")) as stage:
        scene = stage.scene("chat", HELLO, HELLO)
        one, two = ({"authorization": f"Bearer sk-{name}"} for name in ("one", "two"))
        with (
            socket_client(stage.url, scene.model, additional_headers=one) as owner,
            socket_client(stage.url, scene.model, additional_headers=two) as other,
        ):
            first = owner.answer(input="Hi.", store=store)["id"]
            frame = other.error(input="And?", previous_response_id=first)
            assert frame["error"]["code"] == "previous_response_not_found"
            assert len(scene.requests) == 1
            owner.answer(input="And?", previous_response_id=first)
            assert other.answer(input=[], generate=False)["status"] == "completed"


def test_output_of_an_unknown_call_is_refused_and_evicts(stage: Stage) -> None:
    scene = stage.scene("chat", CALLS)
    with socket_client(stage.url, scene.model) as client:
        first = client.answer(input="Weather?")["id"]
        wrong = {**OUTPUT, "call_id": "call_unknown"}
        frame = client.error(input=[wrong], previous_response_id=first)
        assert frame["status"] == 400
        frame = client.error(input=[OUTPUT], previous_response_id=first)
        assert frame["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("wrong", [{"background": True}, {"generate": "no"}, {"input": 7}])
def test_continuation_with_a_mistake_evicts_in_its_own_lane_only(stage: Stage, wrong: Json) -> None:
    scene = stage.scene("chat", HELLO, HELLO)
    with socket_client(stage.url, scene.model) as client:
        first = client.answer(input="Hi.")["id"]
        asked = {"input": "And?", "previous_response_id": first}
        client.error(**{**asked, **wrong}, stream_id="fork")
        client.error(**{**asked, **wrong}, stream_id="a b")
        client.answer(**asked, stream_id="fork")
        assert client.error(**{**asked, **wrong})["status"] == 400
        assert client.error(**asked)["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_error_of_the_upstream_has_its_status_and_evicts(stage: Stage, dialect: str) -> None:
    fault = json_reply({"error": {"type": "x", "message": "no"}}, 429, headers={"retry-after": "7"})
    scene = stage.scene(dialect, HELLO, fault)
    with socket_client(stage.url, scene.model) as client:
        first = client.answer(input="Hi.")["id"]
        frame = client.error(input="And?", previous_response_id=first)
        assert frame["status"] == 429
        assert frame["headers"]["retry-after"] == "7"
        frame = client.error(input="And?", previous_response_id=first)
        assert frame["error"]["code"] == "previous_response_not_found"


def test_failure_mid_stream_is_a_failed_response_and_evicts(stage: Stage) -> None:
    frames = [frame + b"\n\n" for frame in stream("chat", HELLO).split(b"\n\n")[:2]]
    cut = ScriptedReply(content_type="text/event-stream", chunks=frames, cut=True)
    scene = stage.scene("chat", HELLO, cut)
    with socket_client(stage.url, scene.model) as client:
        first = client.answer(input="Hi.")["id"]
        assert client.ask(input="And?", previous_response_id=first)[-1]["type"] == "response.failed"
        frame = client.error(input="And?", previous_response_id=first)
        assert frame["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ("", None),
        ("{", None),
        ("[]", None),
        ("7", None),
        (b"{}", None),
        ("{}", "type"),
        ('{"type":"response.cancel"}', "type"),
        ('{"type":7}', "type"),
        ('{"type":"response.create","stream_id":""}', "stream_id"),
        ('{"type":"response.create","stream_id":"a b"}', "stream_id"),
        ('{"type":"response.create","model":"m","input":"x","background":true}', "background"),
        ('{"type":"response.create","model":"m","input":"x","generate":"no"}', "generate"),
        ('{"type":"response.create","model":"m","input":7}', "input"),
        ('{"type":"response.create","input":"x"}', "model"),
    ],
)
def test_bad_message_is_answered_and_the_connection_lives_on(
    stage: Stage, sent: str | bytes, param: str | None
) -> None:
    scene = stage.scene("chat", HELLO)
    with socket_client(stage.url, scene.model) as client:
        client.connection.send(sent)
        frame = client.receive()
        assert (frame["type"], frame["status"], frame["error"]["param"]) == ("error", 400, param)
        assert isinstance(frame["error"]["code"], str)
        assert frame["error"]["message"]
        assert client.answer(input="Hi.")["output"]


def test_unknown_model_is_an_error_with_status(stage: Stage) -> None:
    with socket_client(stage.url, "nobody/knows-it") as client:
        assert client.error(input="Hi.")["status"] == 404
        assert client.error(input="Hi.", generate=False)["status"] == 404


def test_too_large_message_is_an_error_and_a_far_too_large_one_ends_the_connection() -> None:
    server = ServerSettings(shutdown_grace=0.3, max_body_bytes=1000)
    with running_stage(server=server) as stage:
        scene = stage.scene("chat", HELLO)
        with socket_client(stage.url, scene.model) as client:
            frame = client.error(input="x" * 1000)
            assert (frame["status"], frame["error"]["code"]) == (413, "message_too_large")
            assert client.answer(input="Hi.")["output"]
            client.send(input="x" * 3000)
            with pytest.raises(ConnectionClosed) as closed:
                client.receive()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009


def test_connections_together_remember_only_so_much() -> None:
    """An idle connection costs a client nothing, and neither does a warm-up."""
    server = ServerSettings(shutdown_grace=0.3, max_body_bytes=100_000, websocket_memory=225_000)
    with (
        running_stage(server=server) as stage,
        socket_client(stage.url, "chat/m") as one,
        socket_client(stage.url, "chat/m") as other,
    ):
        scene = stage.scene("chat", HELLO, HELLO)
        first = one.answer(input="x" * 90_000, generate=False, stream_id="first")["id"]
        ids = [
            client.answer(input="x" * 70_000, generate=False, stream_id="a")["id"]
            for client in (one, other)
        ]
        frame = one.error(input="Hi.", previous_response_id=first)
        assert (frame["status"], frame["error"]["code"]) == (400, "previous_response_not_found")
        for client, known in zip((one, other), ids, strict=True):
            client.answer(model=scene.model, input="Hi.", previous_response_id=known)


def test_what_is_not_the_conversation_does_not_count_as_remembered() -> None:
    """Codex sends its tools with every request."""
    server = ServerSettings(shutdown_grace=0.3, max_body_bytes=50_000)
    described = {**TOOL, "description": "x" * 20_000}
    with running_stage(server=server) as stage:
        scene = stage.scene("chat", *[HELLO] * 6)
        with socket_client(stage.url, scene.model) as client:
            previous = None
            for _ in range(6):
                response = client.answer(
                    input="And?", tools=[described], previous_response_id=previous
                )
                previous = response["id"]
    assert len(scene.heard["messages"]) == 11


def test_steering_is_refused(stage: Stage) -> None:
    with socket_client(stage.url, "chat/m") as client:
        steer = {"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop."}
        client.connection.send(json.dumps(steer))
        frame = client.receive()
        assert frame["type"] == "response.steer.failed"
        assert frame["error"]["code"] == "steering_not_supported"
        assert frame["steer"] == {"previous_response_id": "resp_1", "input": "Stop."}


# --- lanes --------------------------------------------------------------------------------------------------------


def held(event: threading.Event, answer: Answer = HELLO) -> ScriptedReply:
    """An answer over Chat that begins when the event is set."""
    chunks: list[Chunk] = [Wait(event), stream("chat", answer)]
    return ScriptedReply(content_type="text/event-stream", chunks=chunks)


def ended(client: SocketClient) -> Json:
    """The last frame of the next answer that ends."""
    while (frame := client.receive())["type"] not in ("response.completed", "error"):
        pass
    return frame


def test_lanes_run_at_the_same_time_and_are_named(stage: Stage) -> None:
    go = threading.Event()
    slow, fast = stage.scene("chat", held(go), HELLO), stage.scene("chat", HELLO)
    with socket_client(stage.url, fast.model) as client:
        client.send(input="Slow.", model=slow.model, stream_id="slow")
        client.send(input="Next.", model=slow.model, stream_id="slow")
        events = client.ask(input="Fast.", stream_id="fast")
        assert {event["stream_id"] for event in events} == {"fast"}
        assert len(slow.requests) == 1
        go.set()
        first, second = ended(client), ended(client)
        assert first["stream_id"] == second["stream_id"] == "slow"
        assert "Next." in texts(slow.heard)
        fork = {"input": "And?", "stream_id": "slow", "previous_response_id": "resp_no"}
        assert client.error(**fork)["stream_id"] == "slow"


def test_fork_that_fails_keeps_what_it_forked_from(stage: Stage) -> None:
    scene = stage.scene("chat", HELLO, HELLO, HELLO)
    with socket_client(stage.url, scene.model) as client:
        first = client.answer(input="Hi.")["id"]
        client.error(input=[OUTPUT], previous_response_id=first, stream_id="fork")
        client.answer(input="Fork.", previous_response_id=first, stream_id="fork")
        client.answer(input="Main.", previous_response_id=first)
    assert "Fork." not in texts(scene.heard)


def test_named_lanes_are_limited(stage: Stage) -> None:
    with socket_client(stage.url, "chat/m") as client:
        for number in range(32):
            client.answer(input=[], generate=False, stream_id=f"lane-{number}")
        frame = client.error(input=[], generate=False, stream_id="one-more")
        assert (frame["status"], frame["error"]["param"]) == (400, "stream_id")
        assert frame["error"]["code"] == "websocket_stream_limit_reached"
        client.answer(input=[], generate=False, stream_id="lane-7")


def test_seventeenth_response_waits_for_a_place(stage: Stage) -> None:
    go = threading.Event()
    scene = stage.scene("chat", *[held(go)] * 16, HELLO)
    with socket_client(stage.url, scene.model) as client:
        for number in range(17):
            client.send(input="Hi.", stream_id=f"lane-{number}")
        wait_until(lambda: len(scene.requests) == 16)
        go.set()
        assert {ended(client)["stream_id"] for _ in range(17)} == {f"lane-{n}" for n in range(17)}
    assert len(scene.requests) == 17


# --- the connection -----------------------------------------------------------------------------------------------


def all_closed(requests: list[ReceivedRequest]) -> bool:
    return all(each.closed_at is not None for each in requests)


@pytest.mark.parametrize("how", ["close", "drop"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_client_that_leaves_cancels_all_its_upstream_work(dialect: str, how: str) -> None:
    never = threading.Event()
    frames = [frame + b"\n\n" for frame in stream(dialect, HELLO).split(b"\n\n")[:3]]
    reply = ScriptedReply(content_type="text/event-stream", chunks=[*frames, Wait(never)])
    with (
        ScriptedUpstream.in_thread([reply] * ATTEMPTS * 2) as upstream,
        running_gateway(one_upstream(upstream.url, dialect)) as gateway,
    ):
        taken: list[float] = []
        while not taken or (taken[-1] >= LEAVING and len(taken) < ATTEMPTS):
            seen = len(upstream.requests)
            with socket_client(gateway.url, "m") as client:
                client.send(input="Hi.", stream_id="one")
                client.send(input="Hi.", stream_id="two")
                client.send(input="Never asked.", stream_id="two")
                lanes = {client.receive()["stream_id"]}
                while len(lanes) < 2:
                    lanes.add(client.receive()["stream_id"])
                left = time.monotonic()
                if how == "drop":
                    client.connection.socket.shutdown(socket.SHUT_RDWR)
            asked = upstream.requests[seen:]
            wait_until(partial(all_closed, asked))
            taken.append(max([each.closed_at or 0.0 for each in asked]) - left)
            assert len(asked) == 2
        assert taken[-1] < LEAVING, taken
        wait_until(lambda: not gateway.app.gateway.exchanges)
        wait_until(lambda: not gateway.app.gateway.sessions)
        never.set()


def test_old_connection_answers_the_next_create_with_an_error_and_closes() -> None:
    server = ServerSettings(shutdown_grace=0.3, websocket_max_age=0.000001)
    with running_stage(server=server) as stage, socket_client(stage.url, "chat/m") as client:
        frame = client.error(input="Hi.")
        assert (frame["status"], frame["error"]["code"]) == (
            400,
            "websocket_connection_limit_reached",
        )
        with pytest.raises(ConnectionClosed) as closed:
            client.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


def test_silent_upstream_gets_keep_alive_frames() -> None:
    go = threading.Event()
    server = ServerSettings(shutdown_grace=0.3, keep_alive_interval=0.05)
    with running_stage(server=server) as stage:
        scene = stage.scene("chat", held(go))
        with socket_client(stage.url, scene.model) as client:
            client.send(input="Hi.", stream_id="a")
            assert client.receive() == {"type": "keepalive", "stream_id": "a"}
            go.set()
            assert client.events()[-1]["type"] == "response.completed"


def test_gateway_that_stops_closes_idle_connections_and_ends_running_responses() -> None:
    never = threading.Event()
    with running_stage() as stage:
        scene = stage.scene("chat", held(never))
        with (
            socket_client(stage.url, scene.model) as idle,
            socket_client(stage.url, scene.model) as busy,
        ):
            busy.send(input="Hi.")
            busy.send(input="Waits.")
            wait_until(lambda: len(scene.requests) == 1)
            stopping = threading.Thread(target=stage.gateway.stop)
            stopping.start()
            with pytest.raises(ConnectionClosed):
                idle.receive()
            frames = [busy.events()[-1], busy.events()[-1]]
            assert {frame["type"] for frame in frames} <= {"error", "response.failed"}
            with pytest.raises(ConnectionClosed):
                busy.receive()
            stopping.join()
        never.set()


def flood() -> ScriptedReply:
    """64 MB: more than the buffers of both systems hold together."""
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"x" * 16_000)
    first = stream("chat", HELLO).partition(b"\n\n")[0] + b"\n\n"
    return ScriptedReply(content_type="text/event-stream", chunks=[first, *[chunk] * 4_000])


def test_client_that_does_not_read_holds_up_the_upstream_and_is_cut_off() -> None:
    server = ServerSettings(shutdown_grace=0.3, send_timeout=1.0, keep_alive_interval=0.5)
    with running_stage(server=server) as stage:
        scene = stage.scene("chat", flood())
        with socket_client(stage.url, scene.model, max_queue=1) as client:
            client.send(input="Hi.")
            wait_until(lambda: len(scene.requests) == 1 and all_closed(scene.requests))
            assert scene.requests[0].sent < 20_000_000
            wait_until(lambda: not stage.gateway.app.gateway.sessions)


def test_large_answer_is_complete(stage: Stage) -> None:
    text = ("x" * 5_000,) * 400
    scene = stage.scene("chat", Answer((Said(text),)))
    with socket_client(stage.url, scene.model) as client:
        response = client.answer(input="Hi.")
        assert response["output"][0]["content"][0]["text"] == "".join(text)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_any_asgi_server_can_serve_it(dialect: str) -> None:
    with ScriptedUpstream.in_thread(
        lambda request: deliver(dialect, HELLO, is_stream=True)
    ) as upstream:
        app = create_app(one_upstream(upstream.url, dialect))
        config = uvicorn.Config(app, ws="websockets-sansio", http="h11", log_config=None)
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            with socket_client(url, "m") as client:
                first = client.answer(input="Hi.", stream_id="a")["id"]
                client.answer(input="And?", previous_response_id=first, stream_id="a")
                assert client.error(input=7)["status"] == 400
            path = socket_url(url).replace("responses", "messages")
            with pytest.raises(InvalidStatus) as error, connect(path):
                pass
            assert error.value.response.status_code == 426
        finally:
            server.should_exit = True
            thread.join()
            listener.close()


def test_headers_of_codex_in_the_message_reach_the_upstream(stage: Stage) -> None:
    scene = stage.scene("responses", HELLO)
    headers = {"originator": "codex_exec", "x-codex-turn-metadata": "prewarm"}
    metadata = {"x-codex-turn-metadata": "turn"}
    with socket_client(stage.url, scene.model, additional_headers=headers) as client:
        client.answer(input="Hi.", client_metadata=metadata)
    heard = scene.requests[0]
    assert heard.headers["x-codex-turn-metadata"] == "turn"
    assert scene.heard["client_metadata"] == metadata
    assert "upgrade" not in heard.headers
    assert not [name for name in heard.headers if name.startswith("sec-websocket-")]


def test_headers_in_a_message_count_as_those_of_a_request(stage: Stage) -> None:
    scene = stage.scene("responses", HELLO)
    metadata = {f"x-codex-{number}": "x" * 30_000 for number in range(3)}
    with socket_client(stage.url, scene.model) as client:
        refused = client.error(input="Hi.", client_metadata=metadata)
        assert (refused["status"], refused["error"]["code"]) == (431, "headers_too_large")
        assert client.answer(input="Hi.")["status"] == "completed"
    assert len(scene.requests) == 1


# --- the handshake ------------------------------------------------------------------------------------------------


def refused(url: str, **options: Any) -> InvalidStatus:
    with pytest.raises(InvalidStatus) as error, connect(socket_url(url), **options):
        pass
    return error.value


def test_key_is_checked_before_the_handshake(caplog: pytest.LogCaptureFixture) -> None:
    server = ServerSettings(shutdown_grace=0.3, api_keys=("sk-right",))
    with running_stage(server=server) as stage, caplog.at_level(logging.WARNING):
        for headers in ({}, {"authorization": "Bearer sk-wrong"}):
            error = refused(stage.url, additional_headers=headers)
            assert error.response.status_code == 401
            assert b"error" in error.response.body
        right = {"authorization": "Bearer sk-right"}
        with socket_client(stage.url, "chat/m", additional_headers=right) as client:
            client.answer(input=[], generate=False)
        assert caplog.messages == []  # a refusal is no fault of the gateway


def test_page_of_another_site_is_refused_without_keys(stage: Stage) -> None:
    error = refused(stage.url, origin="https://example.com")
    assert error.response.status_code == 403


def test_large_head_is_refused(stage: Stage) -> None:
    large = {"x-large": "x" * 30_000, "x-larger": "x" * 30_000}
    with socket_client(stage.url, "chat/m", additional_headers=large) as client:
        client.answer(input=[], generate=False)
    error = refused(stage.url, additional_headers={**large, "x-too": "x" * 10_000})
    assert error.response.status_code == 431


def test_switched_off_it_is_answered_426() -> None:
    server = ServerSettings(shutdown_grace=0.3, websocket=False)
    with running_stage(server=server) as stage:
        assert refused(stage.url).response.status_code == 426


def test_full_gateway_refuses_with_429() -> None:
    go = threading.Event()
    settings = ServerSettings(shutdown_grace=0.3, max_streams=1)
    with running_stage(server=settings) as stage:
        scene = stage.scene("chat", held(go))
        with socket_client(stage.url, scene.model) as client:
            client.send(input="Hi.")
            wait_until(lambda: len(scene.requests) == 1)
            assert refused(stage.url).response.status_code == 429
            frame = client.error(input="Hi.", stream_id="second")
            assert (frame["status"], frame["headers"]["retry-after"]) == (429, "1")
            go.set()
            assert client.events()[-1]["type"] == "response.completed"


def test_each_response_is_counted_like_a_post(stage: Stage) -> None:
    def counted() -> Counter[str]:
        with plain_connection(stage.gateway) as client:
            client.request("GET", "/metrics")
            lines = client.getresponse().read().decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if line.startswith(COUNTED)]
        return Counter({name: int(float(count)) for name, count in pairs})

    scene = stage.scene("chat", CALLS)
    before = counted()
    with socket_client(stage.url, scene.model) as client:
        client.answer(input="Hi.")
        client.error(input="Hi.", previous_response_id="resp_no")
    new = counted() - before
    assert sorted(new.values()) == [1, 1]
    assert {status for line in new for status in ("200", "400") if status in line} == {"200", "400"}
    assert all('"responses"' in line for line in new)
