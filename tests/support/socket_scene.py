"""Conversations over a scripted upstream that is asked over WebSockets, and what came of them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from dragoman.config.settings import UpstreamSettings
from dragoman.errors import UpstreamError
from dragoman.testing import (
    WEBSOCKET,
    Handshake,
    ReceivedRequest,
    Script,
    ScriptedReply,
    ScriptedUpstream,
    sse,
)
from dragoman.upstream.base import UpstreamReply, UpstreamRequest
from dragoman.upstream.http.upstream import HttpUpstream
from loops import play
from vendor_wire import Answer, Said, stream

Json = dict[str, Any]
Scene = Callable[[ScriptedUpstream, HttpUpstream], Awaitable[None]]

SOCKET = UpstreamSettings(kind="responses", websocket=True)
USER: Json = {"role": "user", "content": "Hi"}
MORE: Json = {"role": "user", "content": "And?"}
HELLO = Answer((Said(("Hel", "lo.")),))


def answer_stream(answer: Answer, response_id: str) -> bytes:
    """An answer as a Responses server streams it."""
    return stream("responses", answer).replace(b"resp_vendor1", response_id.encode())


AGAIN = answer_stream(HELLO, "resp_again")
FIRST = AGAIN[: AGAIN.index(b"\n\n") + 2]
REST = AGAIN[len(FIRST) :]


def numbered(*answers: Answer) -> Callable[[ReceivedRequest], ScriptedReply]:
    """A script that answers the first request with the first of these and the id `resp_1`, and so on; the last again and again."""
    count = 0

    def reply(_: ReceivedRequest) -> ScriptedReply:
        nonlocal count
        count += 1
        answer = answers[min(count, len(answers)) - 1]
        return sse(answer_stream(answer, f"resp_{count}"))

    return reply


def outputs(data: bytes) -> list[Json]:
    """The items of a stream, as they came by `output_item.done`."""
    lines = [line[6:] for line in data.decode().splitlines() if line.startswith("data: {")]
    events: list[Json] = [json.loads(line) for line in lines]
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def error_frame(status: int, code: str, **more: object) -> ScriptedReply:
    """An answer that is one frame of type `error`."""
    error = {"type": "invalid_request_error", "code": code, "message": f"it says {code}"}
    frame = {"type": "error", "status": status, "error": error, **more}
    return ScriptedReply(body=json.dumps(frame).encode())


def run_scene(
    loop: str,
    script: Script,
    scene: Scene,
    settings: UpstreamSettings = SOCKET,
    websocket: bool | Handshake = True,
) -> ScriptedUpstream:
    """Play a scene with a server and an upstream that points to it. Nothing may be left when it ends."""

    async def main() -> ScriptedUpstream:
        async with ScriptedUpstream(script, websocket=websocket) as server:
            pointed = structs.replace(settings, base_url=f"{server.url}/v1")
            upstream = HttpUpstream("local", pointed, key="sk-secret")
            try:
                async with asyncio.timeout(60):
                    await scene(server, upstream)
            finally:
                await upstream.close()
            await server.until(lambda: server.open_connections == 0)
            await server.until(lambda: len(asyncio.all_tasks()) == 1)
        assert not server.failures
        return server

    return play(loop, main())


def asking(items: object, key: str | None = None, **fields: object) -> UpstreamRequest:
    body = {"model": "m", "input": items, "stream": True, "store": False, **fields}
    data = json.dumps(body).encode()
    return UpstreamRequest(
        dialect="responses", body=data, stream=True, model="m", client_key=key, request_id="req_1"
    )


async def whole(reply: UpstreamReply) -> bytes:
    pieces: list[bytes] = []
    try:
        while data := await reply.read():
            pieces.append(data)
    finally:
        reply.close()
    return b"".join(pieces)


class Talk:
    """A client that sends its whole conversation each time."""

    def __init__(self, upstream: HttpUpstream, *items: Json, key: str | None = None) -> None:
        self._upstream = upstream
        self.items = list(items or (USER,))
        self._key = key

    async def turn(self, **fields: object) -> UpstreamReply:
        """The answer, which is complete; the next turn goes on with it."""
        reply = await self._upstream.send(asking(self.items, self._key, **fields))
        assert reply.status == 200
        data = await whole(reply)
        assert b"response.completed" in data
        assert data == data.replace(b"event: \n", b"")
        self.items += [*outputs(data), MORE]
        return reply


def sent(server: ScriptedUpstream) -> list[tuple[int, Any, int]]:
    """Of each message: its connection, the response that it continues, and how many items it has."""
    return [
        (request.connection, request.json().get("previous_response_id"), len(input_of(request)))
        for request in server.requests
        if request.method == WEBSOCKET
    ]


def input_of(request: ReceivedRequest) -> list[Json]:
    items: list[Json] = json.loads(request.body)["input"]
    return items


async def failure_of(awaited: Awaitable[object]) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await awaited
    assert "sk-secret" not in caught.value.message
    return caught.value


async def turns(upstream: HttpUpstream, count: int) -> None:
    talk = Talk(upstream)
    for _ in range(count):
        await talk.turn()
