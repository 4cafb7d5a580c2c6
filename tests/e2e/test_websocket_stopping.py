"""A gateway that is stopped at any moment of a WebSocket: every request that came gets an end before the connection is closed."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from starlette.types import Message, Scope
from websockets.exceptions import ConnectionClosed

from dragoman.config.settings import ServerSettings, Settings, UpstreamSettings
from dragoman.server.app import create_app
from dragoman.testing import Chunk, ScriptedReply, Wait
from gateway_harness import wait_until
from stage import Scene, Stage, running_stage
from vendor_wire import Answer, Said, stream
from websocket_client import LAST, SocketClient, socket_client

Json = dict[str, Any]
RESTARTING = 1012
ANSWER = Answer((Said(("One. ", "Two. ", "Three. ", "Four.")),))


def frames_of(dialect: str) -> list[bytes]:
    return [frame + b"\n\n" for frame in stream(dialect, ANSWER).split(b"\n\n") if frame]


def paused(dialect: str, after: int, go: threading.Event) -> ScriptedReply:
    """An answer that pauses after so many of its frames until the event is set."""
    frames = frames_of(dialect)
    chunks: list[Chunk] = [*frames[:after], Wait(go), *frames[after:]]
    return ScriptedReply(content_type="text/event-stream", chunks=chunks)


def read_to_the_close(client: SocketClient) -> tuple[list[Json], int | None]:
    """All frames that are left, and the code with which the gateway closed the connection."""
    frames: list[Json] = []
    try:
        while True:
            frames.append(client.receive())
    except ConnectionClosed as closed:
        return frames, None if closed.rcvd is None else closed.rcvd.code


def ends(frames: list[Json]) -> list[str]:
    return [frame["type"] for frame in frames if frame["type"] in LAST]


def stopping(stage: Stage) -> threading.Thread:
    thread = threading.Thread(target=stage.gateway.stop)
    thread.start()
    return thread


@pytest.mark.parametrize("finishes", [False, True], ids=["cut", "finishes"])
@pytest.mark.parametrize("after", range(len(frames_of("chat"))))
def test_response_that_runs_has_its_end_before_the_close(
    after: int,
    finishes: bool,
) -> None:
    go = threading.Event()
    grace = 30.0 if finishes else 0.1
    with running_stage(server=ServerSettings(shutdown_grace=grace)) as stage:
        scene = stage.scene("chat", paused("chat", after, go))
        with socket_client(stage.url, scene.model) as client:
            client.send(input="Hi.")
            wait_until(lambda: len(scene.requests) == 1 and _has_sent(scene, after))
            stop = stopping(stage)
            wait_until(lambda: stage.gateway.app.gateway.is_stopping)
            if finishes:
                go.set()
            frames, code = read_to_the_close(client)
            # A failure before the first event is an error, as the status of a POST is.
            wanted = ("response.completed",) if finishes else ("error", "response.failed")
            assert len(ends(frames)) == 1
            assert ends(frames)[0] in wanted
            assert frames[-1]["type"] in wanted
            assert code == RESTARTING
            stop.join()
        go.set()


def _has_sent(scene: Scene, frames: int) -> bool:
    return scene.requests[0].sent >= sum(map(len, frames_of("chat")[:frames]))


def test_connection_between_two_responses_is_closed_and_loses_neither() -> None:
    with running_stage() as stage:
        scene = stage.scene("chat", ANSWER)
        with socket_client(stage.url, scene.model) as client:
            assert client.answer(input="Hi.")["status"] == "completed"
            stop = stopping(stage)
            assert read_to_the_close(client) == ([], RESTARTING)
            stop.join()


def test_first_request_of_a_client_that_has_just_connected_is_served() -> None:
    with running_stage(server=ServerSettings(shutdown_grace=5.0)) as stage:
        scene = stage.scene("chat", ANSWER)
        with socket_client(stage.url, scene.model) as client:
            stop = stopping(stage)
            wait_until(lambda: stage.gateway.app.gateway.is_stopping)
            client.send(input="Hi.")
            frames, code = read_to_the_close(client)
            assert ends(frames) == ["response.completed"]
            assert code == RESTARTING
            stop.join()


def test_request_whose_bytes_are_still_coming_gets_an_error() -> None:
    with running_stage(server=ServerSettings(shutdown_grace=5.0)) as stage:
        scene = stage.scene("chat", ANSWER)
        with socket_client(stage.url, scene.model) as client:
            client.answer(input="Hi.")
            request = {"type": "response.create", "model": scene.model, "input": "Hi." * 100}
            whole = json.dumps(request).encode()
            # A masked text frame with the mask 0, and half of its bytes.
            head = b"\x81\xfe" + len(whole).to_bytes(2, "big") + bytes(4)
            plain: socket.socket = client.connection.socket
            plain.sendall(head + whole[:200])
            _wait_for_read(stage)
            stop = stopping(stage)
            wait_until(lambda: stage.gateway.app.gateway.is_stopping)
            plain.sendall(whole[200:])
            frames, code = read_to_the_close(client)
            assert ends(frames) == ["error"]
            assert frames[-1]["status"] == 503
            assert code == RESTARTING
            stop.join()


def _wait_for_read(stage: Stage) -> None:
    connections = cast("set[Any]", stage.gateway.server.server_state.connections)
    wait_until(
        lambda: any(
            len(each.conn.reader.buffer) >= 200 for each in connections if hasattr(each, "conn")
        )
    )


# --- a moment that only a scripted server can choose ----------------------------------------------------------------------


def test_request_that_is_being_read_in_the_moment_of_the_stop_gets_an_error_first() -> None:
    # A message of this size is read in a thread; the gateway stops meanwhile.
    request = {"type": "response.create", "model": "m", "input": "x" * 4_000_000}
    sent = asyncio.run(_serve_and_stop(json.dumps(request)))
    assert [message["type"] for message in sent] == [
        "websocket.accept",
        "websocket.send",
        "websocket.close",
    ]
    error: Json = json.loads(sent[1]["text"])
    assert (error["type"], error["status"]) == ("error", 503)
    assert sent[2]["code"] == RESTARTING


async def _serve_and_stop(text: str) -> list[Message]:
    """Have a gateway serve a WebSocket whose second message comes in the moment of the stop."""
    settings = Settings(upstreams={"u": UpstreamSettings(kind="rehearsal")})
    app = create_app(settings)
    sent: list[Message] = []
    is_closed = asyncio.Event()
    steps: list[Callable[[], Message]] = [
        lambda: {"type": "websocket.connect"},
        lambda: {"type": "websocket.receive", "text": "{}"},  # no longer a new connection
        lambda: {"type": "websocket.receive", "text": text},
    ]
    stops: list[asyncio.Task[None]] = []

    async def receive() -> Message:
        if steps:
            if len(steps) == 1:
                stops.append(asyncio.create_task(app.stop()))
            return steps.pop(0)()
        await is_closed.wait()
        return {"type": "websocket.disconnect", "code": RESTARTING}

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "websocket.close":
            is_closed.set()

    scope: Scope = {
        "type": "websocket",
        "path": "/v1/responses",
        "headers": [(b"host", b"127.0.0.1")],
        "extensions": {},
    }
    async with asyncio.timeout(30.0):
        await app(scope, receive, send)
        await asyncio.gather(*stops)
    first, second, *rest = sent
    assert json.loads(second["text"])["type"] == "error"  # for the second message
    return [first, *rest]
