"""The fault injector: a proxy on one link (client to gateway, gateway to upstream, gateway to PostgreSQL) that breaks it.

A request names its exchange somewhere in its bytes (`MARK`), in a header or in its body. From there on the connection belongs to that
exchange, and its fault, if it is on this link, is applied to the request or to the answer. Connections without a mark (those to
the database) are broken all together, by `strike`.
"""

import asyncio
import re
import socket
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fault_plan import AT_END, Fault, Link

MARK = re.compile(rb"s\d+n\d+\b")
Address = tuple[str, int] | Path
"""Of a server: host and port, or the file of a Unix socket."""

_READ = 64 * 1024
_TRICKLED = 400
"""Bytes that are sent one by one; the rest passes whole, so that a trickle ends."""

_LONGEST_SILENCE = 60.0
"""Longer than every time limit that the gateways of a campaign have."""

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of zero seconds: closing sends RST, not FIN


class Injector:
    """`find`: the fault of an exchange by its name, or None."""

    def __init__(
        self, link: Link | None, target: Address, find: Callable[[str], Fault | None]
    ) -> None:
        self._link = link
        self._target = target
        self._find = find
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._met: Counter[str] = Counter()
        self.struck: set[str] = set()
        """The names of the exchanges whose fault has happened."""
        self.port = 0

    async def start(self, path: Path | None = None) -> None:
        """Listen on a free port, or on a Unix socket."""
        if path is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            self._server = await asyncio.start_unix_server(self._accept, str(path))

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def aim(self, target: Address) -> None:
        """Connect the connections to come to another server."""
        self._target = target

    def strike(self, fault: Fault) -> None:
        """Apply a fault to every connection that is open: to what its server sends next."""
        for connection in tuple(self._connections):
            connection.meet(fault, "")

    def cut(self) -> None:
        """End every connection that is open."""
        for connection in tuple(self._connections):
            connection.abort()

    def forget(self, name: str) -> None:
        """An exchange is over."""
        self.struck.discard(name)
        del self._met[name]

    def fault_for(self, name: str) -> Fault | None:
        """The fault that this attempt of an exchange meets on this link."""
        fault = self._find(name)
        if fault is None or fault.link != self._link:
            return None
        self._met[name] += 1
        return None if fault.is_once and self._met[name] > 1 else fault

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection: _Connection | None = None
        try:
            if isinstance(self._target, Path):
                opened = await asyncio.open_unix_connection(str(self._target))
            else:
                opened = await asyncio.open_connection(*self._target)
            connection = _Connection(self, (reader, writer), opened)
            self._connections.add(connection)
            await connection.run()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            if connection is not None:
                self._connections.discard(connection)
                connection.abort()
            writer.transport.abort()
            self._tasks.discard(task)


_Side = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Broken(Exception):
    """The fault has ended the connection."""


class _Connection:
    """One connection through the proxy: two directions, and the fault of the exchange that it serves now."""

    def __init__(self, injector: Injector, client: _Side, server: _Side) -> None:
        self._injector = injector
        self._client = client
        self._server = server
        self._fault: Fault | None = None
        self._name = ""
        self._passed = 0  # bytes of the request or of the answer, whichever the fault is in
        self._frames = 0
        self._edge = b""  # the end of the request so far: a mark may be cut

    def meet(self, fault: Fault | None, name: str) -> None:
        """From here on, this connection has this fault."""
        self._fault, self._name = fault, name
        self._passed = self._frames = 0

    async def run(self) -> None:
        """Until both directions have ended, or the fault has broken them."""
        pumps = [
            asyncio.ensure_future(self._pump(self._client[0], self._server[1], is_request=True)),
            asyncio.ensure_future(self._pump(self._server[0], self._client[1], is_request=False)),
        ]
        try:
            await asyncio.gather(*pumps)
        except (_Broken, OSError):
            pass
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def abort(self) -> None:
        for _, writer in (self._client, self._server):
            writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        while data := await reader.read(_READ):
            if is_request:
                self._look_for_mark(data)
            fault = self._fault
            if fault is None or fault.in_request != is_request:
                writer.write(data)
                await writer.drain()
                continue
            at = self._reach(fault, data)
            if at is None:
                writer.write(data)
                await writer.drain()
                continue
            self._fault = None
            self._injector.struck.add(self._name)
            await self._apply(fault, data, at, writer)
        with suppress(OSError):
            if writer.can_write_eof():
                writer.write_eof()

    def _look_for_mark(self, data: bytes) -> None:
        seen = self._edge + data
        self._edge = seen[-40:]
        found = MARK.search(seen)
        if found is None or (name := found[0].decode()) == self._name:
            return
        self.meet(self._injector.fault_for(name), name)

    def _reach(self, fault: Fault, data: bytes) -> int | None:
        """Where in these bytes the fault happens; None: later."""
        if fault.at == AT_END:
            return len(data)
        if fault.frames is None:
            at = fault.at - self._passed
            self._passed += len(data)
            return at if at < len(data) else None
        start = data.find(b"\r\n\r\n") + 4 if data.startswith(b"HTTP/") else 0
        while self._frames < fault.frames:
            end = data.find(b"\n\n", start)
            if end < 0:
                return None
            start = end + 2
            self._frames += 1
        return min(start + fault.at, len(data))

    async def _apply(
        self, fault: Fault, data: bytes, at: int, writer: asyncio.StreamWriter
    ) -> None:
        before, after = data[:at], data[at:]
        if fault.kind in ("reset", "close", "half-close", "silence"):
            writer.write(before)
            with suppress(OSError):
                await writer.drain()
            await self._end(fault, writer)
        elif fault.kind == "trickle":
            writer.write(before)
            for place in range(min(len(after), _TRICKLED)):
                writer.write(after[place : place + 1])
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(after[_TRICKLED:])
        else:
            if fault.kind == "delay":
                await asyncio.sleep(fault.seconds)
            size = len(fault.data) % 37 + 1
            inserted = {"garbage": fault.data, "duplicate": after[:size]}.get(fault.kind, b"")
            dropped = size if fault.kind == "drop" else 0
            writer.write(before + inserted + after[dropped:])
        await writer.drain()

    async def _end(self, fault: Fault, writer: asyncio.StreamWriter) -> None:
        if fault.kind == "half-close":
            # One direction ends; whoever reads it decides about the other one.
            if writer.can_write_eof():
                writer.write_eof()
            await asyncio.sleep(_LONGEST_SILENCE)
        elif fault.kind == "silence":
            await asyncio.sleep(_LONGEST_SILENCE)
        elif fault.kind == "close":
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        else:
            for _, each in (self._client, self._server):
                _reset(each)
        raise _Broken


def _reset(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket = writer.get_extra_info("socket")
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
