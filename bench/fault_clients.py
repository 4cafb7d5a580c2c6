"""The clients of `make faults` and `make soak`: each sends one request and reads its answer, or leaves, or reads slowly.

HTTP is read by httptools, frames of a WebSocket by the package `websockets`; what the bytes mean is decided in `fault_readers`.
"""

import asyncio
import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import httptools
from fault_oracle import Received
from fault_plan import NAMES, Exchange
from fault_readers import StreamReader, read_body, read_error
from load_requests import DOORS
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, WebSocketException

Json = dict[str, Any]

BOUND = 60.0
"""Seconds in which every client must get an end: the gateways wait for an upstream twice, or twelve seconds for PostgreSQL."""

PATIENCE = 60.0
KEY = "sk-client-3f9c1b7d5e2a4860"
"""The key of the clients. No log may contain it."""

_SLOW_READ = 16 * 1024
_SLOW_PAUSE = 0.005
_SLOW_BUFFER = 4096
_SCHEMA: Json = {"type": "object", "properties": {}, "additionalProperties": True}
_FINAL = ("completed", "failed", "incomplete", "cancelled")
_POLL = 0.05


def exchange_body(exchange: Exchange, **more: object) -> Json:
    """The request of an exchange: every tool is offered."""
    body: Json = {"model": exchange.model}
    hello = [{"role": "user", "content": "Please look."}]
    match exchange.door:
        case "chat":
            tools = [
                {"type": "function", "function": {**each, "parameters": _SCHEMA}}
                for each in _tools()
            ]
            body |= {"messages": hello, "tools": tools, "stream": exchange.is_stream}
        case "messages":
            tools = [{**each, "input_schema": _SCHEMA} for each in _tools()]
            body |= {"messages": hello, "tools": tools, "stream": exchange.is_stream}
            body["max_tokens"] = 4096
        case _:
            tools = [{"type": "function", **each, "parameters": _SCHEMA} for each in _tools()]
            body |= {"input": hello, "tools": tools, "store": True}
            if exchange.door == "websocket":
                body["type"] = "response.create"
            elif exchange.is_background:
                body["background"] = True
            else:
                body["stream"] = exchange.is_stream
    return {**body, **more}


def _tools() -> list[Json]:
    return [{"name": name, "description": f"{name} of the workspace"} for name in NAMES]


async def perform(exchange: Exchange, ports: Sequence[int], body: Json) -> Received:
    """Send the request to the first of these ports and read the answer, within the bound.

    ports: of the client's gateway, through its injector, and then of all that a background response is read from.
    """
    try:
        async with asyncio.timeout(BOUND):
            if exchange.door == "websocket":
                return await _over_websocket(exchange, ports[0], body)
            return await _over_http(exchange, ports, body)
    except TimeoutError:
        return Received(end="silence", detail=f"no end after {BOUND:.0f} s")


class _Answer:
    """What httptools reports of one answer."""

    def __init__(self, door: str) -> None:
        self.door = door
        self.status = 0
        self.is_whole = False
        self.reader: StreamReader | None = None
        self.pieces: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._is_stream = False

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type" and value.startswith(b"text/event-stream"):
            self._is_stream = True

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self._is_stream:
            self.reader = StreamReader(self.door)

    def on_body(self, data: bytes) -> None:
        if self.reader is None:
            self.pieces.append(data)
        else:
            self.reader.feed(data)

    def on_message_complete(self) -> None:
        self.is_whole = self.status != 100

    def received(self, end: str) -> Received:
        """`end`: how the connection ended; empty if the answer is whole."""
        if end and not self.status:
            return Received(end="refused", detail=end)
        if self.reader is not None:
            return self.reader.cut("closed", end or "the answer ended without an end of its stream")
        if end:
            return Received(end="closed", detail=end)
        if self.status != 200:
            return read_error(self.door, self.status, self.body)
        return read_body(self.door, self.body)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


async def _over_http(exchange: Exchange, ports: Sequence[int], body: Json) -> Received:
    try:
        reader, writer = await _connected(ports[0], is_slow=exchange.behaviour == "slow")
    except OSError as error:
        return Received(end="refused", detail=repr(error))
    answer = _Answer(exchange.door)
    end = "the connection was closed"
    try:
        writer.write(_request("POST", DOORS[exchange.door], exchange.name, body))
        await writer.drain()
        read = 0
        while not answer.is_whole:
            if exchange.behaviour == "leave" and read >= exchange.leaves_after:
                return Received(end="left")
            if exchange.behaviour == "slow":
                await asyncio.sleep(_SLOW_PAUSE)
            data = await reader.read(_SLOW_READ)
            if not data:
                break
            read += len(data)
            answer.feed(data)
    except OSError as error:
        end = repr(error)
    except httptools.HttpParserError as error:
        return Received(end="malformed", detail=f"not HTTP: {error!r}")
    finally:
        writer.transport.abort()
    if exchange.is_background and answer.is_whole and answer.status == 200:
        return await _background_end(json.loads(answer.body)["id"], ports)
    return answer.received("" if answer.is_whole else end)


async def _background_end(response_id: str, ports: Sequence[int]) -> Received:
    """Poll a background response that was acknowledged, at every gateway in turn, until it has ended."""
    number = 0
    while True:
        number += 1
        await asyncio.sleep(_POLL)
        with suppress(OSError):
            port = ports[number % len(ports)]
            status, found = await fetch(port, f"/v1/responses/{response_id}")
            if status == 200 and json.loads(found)["status"] in _FINAL:
                return read_body("responses", found)
            if status not in (200, 503):
                detail = f"{response_id} was acknowledged as queued and is lost: {status} {found[:200]!r}"
                return Received(end="malformed", detail=detail)


async def _connected(
    port: int, *, is_slow: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.socket()
    sock.settimeout(0)
    if is_slow:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SLOW_BUFFER)
    try:
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    except BaseException:
        sock.close()
        raise
    return await asyncio.open_connection(sock=sock, limit=_SLOW_READ)


def _request(method: str, path: str, name: str, body: Json | None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1",
        "host: 127.0.0.1",
        f"authorization: Bearer {KEY}",
        f"x-exchange: {name}",
        "anthropic-version: 2023-06-01",
        "content-type: application/json",
        f"content-length: {len(data)}",
        "connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + data


async def _over_websocket(exchange: Exchange, port: int, body: Json) -> Received:
    reading = StreamReader("websocket")
    headers = {"authorization": f"Bearer {KEY}", "x-exchange": exchange.name}
    read = 0
    try:
        # Nothing of its own may end the connection: neither pings nor a wait for the handshake.
        async with connect(
            f"ws://127.0.0.1:{port}{DOORS['websocket']}",
            additional_headers=headers,
            max_size=None,
            open_timeout=None,
            ping_interval=None,
            close_timeout=0.1,
            proxy=None,
        ) as connection:
            await connection.send(json.dumps(body))
            while reading.received is None:
                if exchange.behaviour == "leave" and read >= exchange.leaves_after:
                    connection.transport.abort()
                    return Received(end="left")
                if exchange.behaviour == "slow":
                    await asyncio.sleep(_SLOW_PAUSE / 10)
                data = await connection.recv(decode=False)
                read += len(data)
                reading.take(data)
    except ConnectionClosed as error:
        return reading.cut("closed" if read else "refused", repr(error))
    except (WebSocketException, OSError, EOFError, ValueError) as error:
        return reading.cut("refused", repr(error))
    return reading.received


async def fetch(port: int, path: str, *, patience: float = PATIENCE) -> tuple[int, bytes]:
    """GET: the status and the body.

    Raises:
        OSError: nobody answered, or the answer was cut.
    """
    answer = _Answer("responses")
    async with asyncio.timeout(patience):
        reader, writer = await _connected(port, is_slow=False)
        try:
            writer.write(_request("GET", path, "", None))
            while not answer.is_whole:
                data = await reader.read(_SLOW_READ)
                if not data:
                    raise ConnectionError("the answer was cut")
                answer.feed(data)
        finally:
            writer.transport.abort()
    return answer.status, answer.body
