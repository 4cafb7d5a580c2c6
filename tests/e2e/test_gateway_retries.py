"""Retries and fallbacks: only what has not begun is tried again, and only what may succeed."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from dragoman.config.settings import RetrySettings, Route
from dragoman.testing import ReceivedRequest, ScriptedReply, Wait, json_reply, sse
from gateway_harness import wait_until
from heard import Spoken, hear
from plain_http import ask, plain_body
from sdk_clients import DOORS, Unfinished, conversation
from stage import PATHS, Stage, deliver, running_stage
from vendor_errors import error_body, failure_frame
from vendor_wire import Answer, Said, Tool, body_bytes, stream

# The upstreams are shared by all tests, many of which let them fail: without a cooldown, each is asked nevertheless.
QUICK = RetrySettings(attempts=3, base_delay=0.005, max_delay=0.01, max_wait=2.0, cooldown=0.0)
ANSWER = Answer((Said(("Here ", "I am.")), Tool("call_1", "get_weather", ('{"city":', '"x"}'))))
ERRORS = (openai.APIError, anthropic.APIError)

doors = pytest.mark.parametrize("door", DOORS)
dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")
modes = pytest.mark.parametrize("mode", ["create", "stream"])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    routes = [
        Route(model=f"{first}-then-{second}/*", upstream=first, fallback=(f"spare-{second}",))
        for first in DOORS
        for second in DOORS
    ]
    routes.append(
        Route(
            model="renamed/*",
            upstream="chat",
            upstream_model="renamed-at-first",
            fallback=("messages=renamed-at-second",),
        )
    )
    spare: dict[str, dict[str, object]] = {f"spare-{kind}": {"kind": kind} for kind in DOORS}
    spare |= {
        f"narrow-{kind}": {"kind": kind, "max_connections": 1, "connect_timeout": 0.2}
        for kind in DOORS
    }
    routes += [
        Route(model=f"either-{kind}/*", upstream=f"narrow-{kind}", fallback=(f"spare-{kind}",))
        for kind in DOORS
    ]
    with running_stage(retry=QUICK, routes=routes, upstreams=spare) as running:
        yield running


def failing(dialect: str, status: int, **headers: str) -> ScriptedReply:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return json_reply(error_body(dialect, status, "not now"), status, headers=sent)


def speaking(request: ReceivedRequest) -> ScriptedReply:
    """The answer in the dialect of the path that was asked."""
    dialect = next(name for name, path in PATHS.items() if path == request.path)
    is_stream = json.loads(request.body).get("stream") is True
    return deliver(dialect, ANSWER, is_stream=is_stream)


@pytest.mark.parametrize("status", [429, 503])
@modes
@dialects
@doors
def test_an_error_that_may_pass_is_tried_again(
    stage: Stage, door: str, dialect: str, mode: str, status: int
) -> None:
    scene = stage.scene(dialect, failing(dialect, status), failing(dialect, status), ANSWER)
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    got = asking.ask(mode)
    assert (got.text, [call.name for call in got.calls]) == ("Here I am.", ["get_weather"])
    assert len(scene.requests) == 3
    assert len({request.body for request in scene.requests}) == 1


@modes
@dialects
@doors
def test_an_answer_that_failed_before_its_first_byte_is_tried_again(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    body = body_bytes(dialect, ANSWER)
    early = {
        "create": ScriptedReply(content_type="application/json", chunks=[body[:20]], cut=True),
        "stream": sse(failure_frame(dialect, "not now")),
    }[mode]
    scene = stage.scene(dialect, early, ANSWER)
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    assert asking.ask(mode).text == "Here I am."
    assert len(scene.requests) == 2


@dialects
@doors
def test_nothing_is_tried_again_after_the_first_byte(stage: Stage, door: str, dialect: str) -> None:
    whole = stream(dialect, ANSWER)
    begun = whole[: whole.index(b"\n\n", whole.index(b"I am.")) + 2]
    scene = stage.scene(dialect, sse(begun, cut=True), ANSWER, route=f"{dialect}-then-chat")
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises((*ERRORS, Unfinished)):
        asking.ask("stream")
    assert len(scene.requests) == 1


@pytest.mark.parametrize("status", [400, 413])
@dialects
@doors
def test_a_request_at_fault_is_not_tried_again_nor_elsewhere(
    stage: Stage, door: str, dialect: str, status: int
) -> None:
    scene = stage.scene(dialect, failing(dialect, status), ANSWER, route=f"{dialect}-then-chat")
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises(ERRORS):
        asking.ask("create")
    assert len(scene.requests) == 1


@doors
def test_attempts_come_to_an_end(stage: Stage, door: str) -> None:
    scene = stage.scene("chat", *[failing("chat", 503)] * 9)
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises(ERRORS):
        asking.ask("stream")
    assert len(scene.requests) == 3


@doors
def test_retry_after_is_waited_for(stage: Stage, door: str) -> None:
    scene = stage.scene("messages", failing("messages", 429, retry_after_ms="300"), ANSWER)
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    assert asking.ask("create").text == "Here I am."
    first, second = scene.requests
    # Loops count in milliseconds and may wake a little early.
    assert second.received_at - first.received_at >= 0.3 - 0.002


@doors
def test_a_long_retry_after_is_reported_and_not_waited_for(stage: Stage, door: str) -> None:
    scene = stage.scene("chat", failing("chat", 429, retry_after="60"), ANSWER)
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)) as caught:
        asking.ask("create")
    error: Any = caught.value
    assert error.response.headers["retry-after"] == "60"
    assert len(scene.requests) == 1


@modes
@pytest.mark.parametrize("second", DOORS)
@pytest.mark.parametrize("first", DOORS)
@doors
def test_a_fallback_answers_in_place_of_what_is_down(
    stage: Stage, door: str, first: str, second: str, mode: str
) -> None:
    down = [failing(first, 503)] * 3
    scene = stage.scene(first, *down, speaking, route=f"{first}-then-{second}")
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    got = asking.ask(mode)
    assert got.text == "Here I am."
    assert [request.path for request in scene.requests] == [*[PATHS[first]] * 3, PATHS[second]]
    assert hear(second, scene.requests[-1].body).turns == [Spoken("user", "hi")]


@pytest.mark.parametrize("status", [401, 403, 404])
@doors
def test_an_upstream_that_will_not_serve_is_left_at_once(
    stage: Stage, door: str, status: int
) -> None:
    scene = stage.scene("chat", failing("chat", status), speaking, route="chat-then-messages")
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    assert asking.ask("create").text == "Here I am."
    assert [request.path for request in scene.requests] == [PATHS["chat"], PATHS["messages"]]


@doors
def test_each_upstream_is_asked_for_its_own_model_and_the_client_sees_its_own(
    stage: Stage, door: str
) -> None:
    refusing = stage.scene("chat", failing("chat", 401), upstream_model="renamed-at-first")
    answering = stage.scene(
        "messages", speaking, route="renamed", upstream_model="renamed-at-second"
    )
    asking = conversation(door, stage.url, answering.model)
    asking.say("hi")
    got = asking.ask("stream")
    assert (got.text, got.model) == ("Here I am.", answering.model)
    assert refusing.heard["model"] == "renamed-at-first"
    assert answering.heard["model"] == "renamed-at-second"


@doors
def test_the_client_gets_the_last_upstreams_error(stage: Stage, door: str) -> None:
    scene = stage.scene(
        "chat", failing("chat", 401), failing("messages", 404), route="chat-then-messages"
    )
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises((openai.NotFoundError, anthropic.NotFoundError)):
        asking.ask("create")


@doors
def test_the_record_has_the_last_attempts_error(stage: Stage, door: str) -> None:
    early = sse(failure_frame("chat", "the first"))
    late = json_reply(error_body("messages", 404, "the second"), 404)
    scene = stage.scene("chat", *[early] * 3, late, route="chat-then-messages")
    asking = conversation(door, stage.url, scene.model)
    asking.say("hi")
    with pytest.raises((openai.NotFoundError, anthropic.NotFoundError)):
        asking.ask("stream")
    inspector = stage.gateway.app.gateway.inspector
    wait_until(lambda: inspector.summaries(1, None)[0][0].model == scene.model)
    [row] = inspector.summaries(1, None)[0]
    assert row.upstream == "spare-messages"
    assert row.error is not None
    assert "the second" in row.error.message
    assert row.finish is None


@pytest.fixture
def taken(stage: Stage, dialect: str) -> Iterator[None]:
    """The only connection to the narrow upstream of the dialect is in use."""
    gate = threading.Event()
    scene = stage.scene(
        dialect, ScriptedReply(hold=Wait(gate), body=b"{}"), route=f"narrow-{dialect}"
    )
    holding = threading.Thread(
        target=ask, args=(stage.url, dialect, plain_body(dialect, scene.model))
    )
    holding.start()
    stage.upstream.wait_until(lambda: scene.requests)
    yield
    gate.set()
    holding.join()


@pytest.mark.usefixtures("taken")
@dialects
@doors
def test_waiting_for_a_free_connection_ends_with_a_503_that_says_when_to_return(
    stage: Stage, door: str, dialect: str
) -> None:
    scene = stage.scene(dialect, ANSWER, route=f"narrow-{dialect}")
    response = ask(stage.url, door, plain_body(door, scene.model, stream=True))
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert "max_connections" in response.text
    assert scene.requests == []


@pytest.mark.usefixtures("taken")
@dialects
def test_an_upstream_without_a_free_connection_is_passed_over_for_the_next(
    stage: Stage, dialect: str
) -> None:
    scene = stage.scene(dialect, ANSWER, route=f"either-{dialect}")
    response = ask(stage.url, dialect, plain_body(dialect, scene.model))
    assert response.status_code == 200
    assert len(scene.requests) == 1
