"""An exchange that is over is forgotten at once: nothing of the gateway's own waits for the garbage collector."""

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec import structs

from dragoman._json import dumps, loads
from dragoman.config.settings import StoreSettings
from dragoman.testing import ReceivedRequest, ScriptedReply, Wait, json_reply, sse
from garbage import kept_by, left_by
from gateway_harness import DIALECTS, connection, wait_until
from plain_http import plain_body
from stage import PATHS, Part, Stage, running_stage
from vendor_wire import Answer, Said, Tool, body_bytes
from vendor_wire import stream as wire_stream
from websocket_client import socket_client

CALLING = Answer((Said(("Let me ", "look.")), Tool("call_1", "get_weather", ('{"city":', '"A"}'))))
SPEAKING = Answer((Said(("It is ", "sunny.")),))
CALLERS = itertools.count(1)
# Of this test's own side.
OURS = ("dragoman.testing",)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage(store=StoreSettings(url="memory:")) as running:
        yield running


# Bounded on purpose: the inspector's list of the last requests, and what is known of the models that were asked for last.
BOUNDED = (
    "dragoman.server.observe.record.RequestRecord",
    "dragoman.gateway.targets.AttemptTarget",
)


def exchange(stage: Stage, dialect: str, door: str, *, stream: bool) -> None:
    """One request of a new caller, whole, and the end of its connection."""
    answer = ask(stage, dialect, door, CALLING, stream=stream)
    assert b"get_weather" in answer


def ask(stage: Stage, dialect: str, door: str, part: Part, *, stream: bool) -> bytes:
    """What the gateway answers a new caller when the upstream answers so."""
    scene = stage.scene(dialect, part)
    body = dumps(plain_body(door, scene.model, stream=stream))
    # The ids of a Responses upstream pass, and this one repeats its own: each is stored for somebody else.
    headers = {"content-type": "application/json", "authorization": f"Bearer {next(CALLERS)}"}
    with connection(stage.gateway) as client:
        client.request("POST", PATHS[door], body, headers)
        answer = client.getresponse().read()
    settle(stage)
    return answer


def settle(stage: Stage) -> None:
    """Wait until the gateway has nothing more to do for a connection that was closed."""
    state = stage.gateway.server.server_state
    loop = stage.gateway.server.servers[0].get_loop()
    wait_until(lambda: not state.connections and not state.tasks)
    # Of what happens at the end of a connection, this comes last.
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), loop).result()


def ours(kinds: Counter[str]) -> list[str]:
    names = [kind for kind in kinds if kind.startswith(("dragoman.", "uvloop.", "uvicorn."))]
    return [kind for kind in names if not kind.startswith(OURS)]


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("door", DIALECTS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
def test_an_exchange_and_its_connection_leave_no_cycles(
    stage: Stage, dialect: str, door: str, stream: bool
) -> None:
    assert ours(left_by(lambda: exchange(stage, dialect, door, stream=stream))) == []


@pytest.mark.parametrize("door", DIALECTS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
def test_a_stream_that_ends_with_text_leaves_no_cycles(
    stage: Stage, dialect: str, door: str
) -> None:
    def work() -> None:
        assert b"sunny" in ask(stage, dialect, door, SPEAKING, stream=True)

    assert ours(left_by(work)) == []


@pytest.mark.parametrize("door", DIALECTS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
def test_a_client_that_leaves_leaves_no_cycles(stage: Stage, dialect: str, door: str) -> None:
    def work() -> None:
        whole = wire_stream(dialect, CALLING)
        middle = whole.index(b"look.")
        has_left = threading.Event()
        chunks = [whole[:middle], Wait(has_left), whole[middle:]]
        scene = stage.scene(dialect, structs.replace(sse(b""), chunks=chunks))
        body = dumps(plain_body(door, scene.model, stream=True))
        with connection(stage.gateway) as client:
            client.request("POST", PATHS[door], body, {"content-type": "application/json"})
            answer = client.getresponse()
            received = b""
            while b"Let me" not in received:
                received += answer.read1()
        wait_until(lambda: not stage.gateway.server.server_state.connections)
        has_left.set()
        settle(stage)
        wait_until(lambda: scene.requests[0].closed_at is not None)

    assert ours(left_by(work)) == []


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("door", DIALECTS)
@pytest.mark.parametrize("how", ["refused", "cut", "garbage"])
def test_an_exchange_that_fails_leaves_no_cycles(
    stage: Stage, how: str, door: str, stream: bool
) -> None:
    def refuse(_: ReceivedRequest) -> ScriptedReply:
        return json_reply({"error": {"message": "no", "type": "server_error"}}, 500)

    def cut(request: ReceivedRequest) -> ScriptedReply:
        is_stream = loads(request.body)["stream"] is True
        whole = (wire_stream if is_stream else body_bytes)("chat", CALLING)
        kind = "text/event-stream" if is_stream else "application/json"
        return ScriptedReply(content_type=kind, chunks=[whole[: len(whole) // 2]], cut=True)

    def garbage(request: ReceivedRequest) -> ScriptedReply:
        return structs.replace(cut(request), chunks=[b"data: {\n\n"], cut=False)

    part = {"refused": refuse, "cut": cut, "garbage": garbage}[how]

    def work() -> None:
        assert b"error" in ask(stage, "chat", door, part, stream=stream)

    assert ours(left_by(work)) == []


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
def test_a_websocket_leaves_no_cycles(stage: Stage, dialect: str) -> None:
    def work() -> None:
        scene = stage.scene(dialect, CALLING)
        with socket_client(stage.url, scene.model) as client:
            assert client.answer(input="What is the weather?")["output"]
        settle(stage)

    assert ours(left_by(work)) == []


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("door", DIALECTS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
def test_an_exchange_leaves_nothing_alive(
    stage: Stage, dialect: str, door: str, stream: bool
) -> None:
    kept = kept_by(lambda: exchange(stage, dialect, door, stream=stream))
    assert [kind for kind in ours(kept) if kind not in BOUNDED] == []
