"""Bounded load on a gateway, and what the gateway spent on it: CPU per event and per request, memory, latency.

    python bench/load.py --port 8787 --dialect chat --model mock -c 16 -n 200 --pid 1234

A client of its own on raw asyncio protocols, because it must cost less than what it measures. It counts events instead of
reading them; `verify` reads one whole stream. Prints one JSON line.
"""

import argparse
import asyncio
import re
import statistics
import struct
import time
from collections.abc import Awaitable, Sequence
from typing import cast

import gateway_processes as processes
import msgspec
import uvloop
from load_requests import DOORS, SOCKET, content_fault, request_bytes

_STAMP = re.compile(rb"@(\d{9,20}) ")
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"0\r\n\r\n"
_HANDSHAKE = (
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)
_TEXT, _PING, _PONG = 0x81, 0x89, 0x8A  # the first bytes of whole frames
_STAMPS_OF_DELTAS = 16
"""A read with more stamps holds a closing event, which repeats those of the whole text."""

_OPENING_AT_ONCE = 64
"""Connections that are being opened at a time: a thousand at once would measure the listen queue."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests, how many and how many at a time.

    hold: seconds that all streams stay open; CPU, events, latency and memory are those of this time alone.
    probes: small requests after that, one after another while the streams run; the times to a first byte are theirs.
    """

    port: int
    dialect: str = "chat"
    model: str = "mock"
    is_stream: bool = True
    connections: int = 16
    requests: int = 100
    headers: tuple[str, ...] = ()
    path: str | None = None
    hold: float = 0.0
    probes: int = 0
    timeout: float = 120.0


class Figures(msgspec.Struct, kw_only=True):
    """The result of a load. Microseconds of CPU of the target; milliseconds and microseconds as named."""

    done: int = 0
    failed: int = 0
    events: int = 0
    seconds: float = 0.0
    cpu_per_event: float = 0.0
    cpu_per_request: float = 0.0
    pss_before_mib: float = 0.0
    pss_held_mib: float = 0.0
    open_held: int = 0
    kib_per_stream: float = 0.0
    first_byte_ms: float = 0.0
    first_byte_p99_ms: float = 0.0
    total_ms: float = 0.0
    latency_us: float = 0.0
    latency_p99_us: float = 0.0
    first_fault: str = ""


class _Client(asyncio.Protocol):
    """One keep-alive connection that sends its requests one after another."""

    def __init__(self, run: "_Run") -> None:
        self._run = run
        self._head = self._tail = self._edge = b""
        self._left = -1
        self._start = self._first = 0.0
        self._is_active = self._in_body = self._is_chunked = False
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._run.transports.append(self._transport)
        self._next()

    def _next(self) -> None:
        run = self._run
        if run.todo <= 0:
            self._transport.close()
            return
        run.todo -= 1
        run.open += 1
        self._head = self._tail = self._edge = b""
        self._first = 0.0
        self._in_body = False
        self._is_active = True
        self._body.clear()
        self._start = time.perf_counter()
        self._transport.write(run.request)

    def data_received(self, data: bytes) -> None:
        if not self._is_active:
            return
        if not self._in_body:
            data = self._read_head(data)
        if data and self._in_body:
            self._read_body(data)

    def _read_head(self, data: bytes) -> bytes:
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end:
            return b""
        if not head.startswith(b"HTTP/1.1 200"):
            self._fail(self._head[:600].decode("utf-8", "replace"))
            self._transport.close()
            return b""
        self._in_body = True
        head += b"\r\n"
        length = _LENGTH.search(head)
        self._left = int(length[1]) if length else -1
        self._is_chunked = b"chunked" in head.lower()
        return rest

    def _read_body(self, data: bytes) -> None:
        run = self._run
        if not self._first:
            self._begin()
        if run.is_kept:
            self._body.append(data)
        if run.is_stream:
            # The word may be cut between two reads.
            run.events += (self._edge + data).count(b"data:")
            self._edge = data[-4:]
            if run.is_stamped:
                run.note_stamps(_STAMP.findall(data))
        if self._left >= 0:
            self._left -= len(data)
            if self._left <= 0:
                self._finish()
        elif self._is_chunked:
            self._tail = (self._tail + data[-7:])[-7:]
            if self._tail.endswith(_LAST_CHUNK):
                self._finish()

    def _begin(self) -> None:
        self._first = time.perf_counter()
        self._run.answer_began()

    def _finish(self) -> None:
        run = self._run
        run.first_byte.append(self._first - self._start)
        run.total.append(time.perf_counter() - self._start)
        run.open -= 1
        self._is_active = False
        if run.is_kept:
            run.kept = b"".join(self._body)
        self._next()

    def _fail(self, fault: str) -> None:
        run = self._run
        run.open -= 1
        run.failed += 1
        run.first_fault = run.first_fault or fault
        self._is_active = False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_active and self._in_body and self._left < 0 and not self._is_chunked:
            self._finish()
        elif self._is_active:
            self._fail(f"connection lost: {exc!r}")
        self._run.connection_ended()


class _SocketClient(_Client):
    """One WebSocket that sends its requests one after another. It counts frames."""

    def __init__(self, run: "_Run") -> None:
        super().__init__(run)
        self._is_open = False
        self._kept = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._run.transports.append(self._transport)
        self._transport.write(self._run.handshake)

    def data_received(self, data: bytes) -> None:
        self._kept += data
        if not self._is_open:
            head, end, rest = self._kept.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 101"):
                self._run.open += 1
                self._fail(head[:600].decode("utf-8", "replace"))
                self._transport.close()
                return
            self._is_open = True
            self._kept = rest
            self._next()
        self._read_frames()

    def _read_frames(self) -> None:
        kept, at = self._kept, 0
        while len(kept) - at >= 2:
            first, size = kept[at], kept[at + 1]
            start = at + (2 if size < 126 else 4 if size == 126 else 10)
            if len(kept) < start:
                break
            if size == 126:
                (size,) = struct.unpack_from("!H", kept, at + 2)
            elif size == 127:
                (size,) = struct.unpack_from("!Q", kept, at + 2)
            if len(kept) < start + size:
                break
            at = start + size
            if first == _TEXT and self._is_active:
                self._read_event(kept[start:at])
            elif (
                first == _PING
            ):  # always of less than 126 bytes; one that goes unanswered ends the connection
                self._transport.write(struct.pack("!BB4x", _PONG, 0x80 | size) + kept[start:at])
        self._kept = kept[at:]

    def _read_event(self, data: bytes) -> None:
        run = self._run
        run.events += 1
        if not self._first:
            self._begin()
        if run.is_kept:
            self._body.append(b"data: %b\n\n" % data)
        if run.is_stamped:
            run.note_stamps(_STAMP.findall(data))
        beginning = data[:64]
        if b'"response.completed"' in beginning:
            self._finish()
        elif b'"error"' in beginning or b'"response.failed"' in beginning:
            self._fail(data[:600].decode("utf-8", "replace"))
            self._transport.close()


class _Run:
    """What the connections of one load share."""

    def __init__(self, load: Load, *, is_kept: bool) -> None:
        self._load = load
        self._loop = asyncio.get_running_loop()
        self._done = self._loop.create_future()
        self._all_began = self._loop.create_future()
        self._begun = 0
        self._connections = self._wanted = min(load.connections, load.requests)
        self._tasks: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(_OPENING_AT_ONCE)
        is_socket = load.dialect == SOCKET
        self._client = _SocketClient if is_socket else _Client
        self.handshake = _handshake(load) if is_socket else b""
        self.request = _socket_request(load) if is_socket else _http_request(load)
        self.is_stream = load.is_stream
        self.is_stamped = "-p" in load.model
        self.is_kept = is_kept
        self.kept = b""
        self.todo = load.requests
        self.transports: list[asyncio.Transport] = []
        self.open = self.events = self.failed = 0
        self.first_byte: list[float] = []
        self.total: list[float] = []
        self.latency: list[int] = []
        self.first_fault = ""

    def start(self) -> None:
        for _ in range(self._connections):
            self._connect()

    async def wait(self, seconds: float) -> None:
        await self._wait_for(self._done, seconds)

    async def wait_until_all_run(self, seconds: float) -> None:
        """Waits for the first byte of as many answers as there are connections, or for the end of the load."""
        both = asyncio.wait((self._all_began, self._done), return_when=asyncio.FIRST_COMPLETED)
        await self._wait_for(both, seconds)

    async def _wait_for(self, waited: Awaitable[object], seconds: float) -> None:
        try:
            await asyncio.wait_for(waited, seconds)
        except TimeoutError:
            self.failed += self.open
            self.first_fault = self.first_fault or f"not done after {seconds:.0f} s"

    def answer_began(self) -> None:
        self._begun += 1
        if self._begun == self._wanted and not self._all_began.done():
            self._all_began.set_result(None)

    async def abort(self) -> None:
        """Close what is open: the loop cannot be closed while streams run."""
        self.todo = 0
        for transport in self.transports:
            transport.abort()
        await self.wait(self._load.timeout)

    def forget(self) -> None:
        """What was counted so far belongs to the opening of the streams."""
        self.events = 0
        self.latency.clear()

    def note_stamps(self, stamps: list[bytes]) -> None:
        now = time.monotonic_ns()
        if len(stamps) <= _STAMPS_OF_DELTAS:
            self.latency.extend(now - int(stamp) for stamp in stamps)

    def connection_ended(self) -> None:
        if self.todo > 0 and not self.first_fault:
            self._connect()
            return
        self._connections -= 1
        if self._connections <= 0 and not self._done.done():
            self._done.set_result(None)

    def _connect(self) -> None:
        task = self._loop.create_task(self._open())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self) -> None:
        async with self._gate:
            try:
                await self._loop.create_connection(
                    lambda: self._client(self), "127.0.0.1", self._load.port
                )
            except OSError as error:
                self.failed += 1
                self.first_fault = self.first_fault or f"cannot connect: {error}"
                self.connection_ended()


def _http_request(load: Load) -> bytes:
    body = request_bytes(load.dialect, load.model, is_stream=load.is_stream)
    heads = [
        f"POST {load.path or DOORS[load.dialect]} HTTP/1.1",
        f"host: 127.0.0.1:{load.port}",
        "content-type: application/json",
        "accept: */*",
        "user-agent: OpenAI/Python 1.99.0",
        f"content-length: {len(body)}",
        *load.headers,
    ]
    if load.dialect == "messages":
        heads.append("anthropic-version: 2023-06-01")
    return "\r\n".join(heads).encode() + b"\r\n\r\n" + body


def _handshake(load: Load) -> bytes:
    heads = [f"GET {DOORS[load.dialect]} HTTP/1.1", f"host: 127.0.0.1:{load.port}", *_HANDSHAKE]
    return "\r\n".join([*heads, *load.headers, "", ""]).encode()


def _socket_request(load: Load) -> bytes:
    """A text frame whose mask changes nothing."""
    body = request_bytes(load.dialect, load.model, is_stream=True)
    return struct.pack("!BBH4x", _TEXT, 0x80 | 126, len(body)) + body


async def _run(load: Load, pid: int | None) -> Figures:
    run = _Run(load, is_kept=False)
    figures = Figures()
    if pid and load.hold:
        figures.pss_before_mib = processes.pss_kib(pid) / 1024
    cpu = processes.cpu_ns(pid) if pid else 0
    start = time.perf_counter()
    run.start()
    if load.hold:
        await run.wait_until_all_run(load.timeout)
        run.forget()
        cpu = processes.cpu_ns(pid) if pid else 0
        start = time.perf_counter()
        await asyncio.sleep(load.hold)
    else:
        await run.wait(load.timeout)
    spent = (processes.cpu_ns(pid) - cpu) / 1000 if pid else 0.0
    figures.seconds = time.perf_counter() - start
    figures.done = len(run.total)
    figures.failed = run.failed
    figures.events = run.events
    figures.cpu_per_event = spent / max(run.events, 1)
    figures.cpu_per_request = spent / max(figures.done, 1)
    figures.latency_us = _median(run.latency) / 1e3
    figures.latency_p99_us = _p99(run.latency) / 1e3
    figures.first_fault = run.first_fault
    if load.hold:
        figures.open_held = run.open
        figures.pss_held_mib = processes.pss_kib(pid) / 1024 if pid else 0.0
        grown = figures.pss_held_mib - figures.pss_before_mib
        figures.kib_per_stream = grown * 1024 / max(run.open, 1)
    asked = await _probe(load) if load.probes else run
    figures.failed += asked.failed if load.probes else 0
    figures.first_fault = figures.first_fault or asked.first_fault
    figures.first_byte_ms = _median(asked.first_byte) * 1e3
    figures.first_byte_p99_ms = _p99(asked.first_byte) * 1e3
    figures.total_ms = _median(asked.total) * 1e3
    if load.hold:
        await run.abort()
    return figures


async def _probe(load: Load) -> _Run:
    """Small requests to the same server, which are not streamed: how long a new request waits."""
    small = msgspec.structs.replace(
        load,
        dialect="responses" if load.dialect == SOCKET else load.dialect,
        is_stream=False,
        connections=1,
        requests=load.probes,
    )
    run = _Run(small, is_kept=False)
    run.start()
    await run.wait(load.timeout)
    return run


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


def run_load(load: Load, pid: int | None = None) -> Figures:
    """Runs the load; `pid` is the process whose cost (with its children) is wanted."""
    return uvloop.run(_run(load, pid))


def verify(load: Load) -> str | None:
    """Asks for one whole stream and reads it; what is wrong with it, or None."""

    async def ask() -> _Run:
        run = _Run(msgspec.structs.replace(load, connections=1, requests=1), is_kept=True)
        run.start()
        await run.wait(load.timeout)
        return run

    run = uvloop.run(ask())
    if run.first_fault or not run.kept:
        return run.first_fault or "no answer"
    stream = run.kept if load.dialect == SOCKET else b"".join(_chunks(run.kept))
    try:
        return content_fault(load.dialect, stream)
    except (KeyError, IndexError, ValueError) as error:
        return f"cannot be read: {error!r} in {stream[:200]!r}"


def _chunks(raw: bytes) -> list[bytes]:
    """The chunks of a chunked body."""
    found: list[bytes] = []
    at = 0
    while (end := raw.find(b"\r\n", at)) >= 0:
        size = int(raw[at:end].split(b";")[0], 16)
        if not size:
            break
        found.append(raw[end + 2 : end + 2 + size])
        at = end + 4 + size
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Bounded load on a gateway.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dialect", choices=tuple(DOORS), default="chat")
    parser.add_argument("--model", default="mock")
    parser.add_argument("-c", type=int, default=16, help="connections")
    parser.add_argument("-n", type=int, default=100, help="requests in all")
    parser.add_argument("--no-stream", action="store_true")
    parser.add_argument("--header", action="append", default=[], help="'name: value'")
    parser.add_argument("--pid", type=int, help="measure this process and its children")
    parser.add_argument("--hold", type=float, default=0.0, help="read memory after so long")
    parser.add_argument("--verify", action="store_true", help="read one stream whole, first")
    given = parser.parse_args()
    load = Load(
        port=given.port,
        dialect=given.dialect,
        model=given.model,
        is_stream=not given.no_stream,
        connections=given.c,
        requests=given.n,
        headers=tuple(given.header),
        hold=given.hold,
    )
    processes.raise_file_limit()
    if given.verify:
        print(f"content: {verify(load) or 'ok'}")
    print(msgspec.json.encode(run_load(load, given.pid)).decode())


if __name__ == "__main__":
    main()
