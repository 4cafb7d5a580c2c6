"""A stand-in for every provider at once, for benchmarks: speaks the three dialects and is never the bottleneck.

    python bench/mock_upstream.py --port 9100

Takes `POST …/chat/completions`, `…/responses` and `…/messages`; any other path gets a small JSON. The model's name says
how to answer, so a gateway under test needs no special header: `mock` gives the whole stream at once, `mock-p10` one
event every 10 ms with the time it was sent, `mock-p1000-x60` stops after about 60 deltas, `mock-d50` waits 50 ms. Without
`"stream": true` the answer is a JSON body of about 1 KB. Loopback only: it reads just as much HTTP as it must.
"""

import argparse
import asyncio
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import cast

import mock_answers
import uvloop
from mock_answers import Behaviour, Frame

_MODEL = re.compile(rb'"model"\s*:\s*"([^"]+)"')
_STREAM = re.compile(rb'"stream"\s*:\s*true')
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)
_OTHER = mock_answers.json_answer(b'{"object":"list","data":[{"id":"mock","object":"model"}]}')
_DIALECTS = {b"/chat/completions": "chat", b"/responses": "responses", b"/messages": "messages"}

flood_answer = cache(mock_answers.flood_answer)
body_answer = cache(mock_answers.body_answer)
behaviour_of = cache(mock_answers.behaviour_of)


@cache
def paced_frames(dialect: str, deltas: int) -> list[Frame]:
    return mock_answers.frames(dialect, deltas, is_stamped=True)


class Connection(asyncio.Protocol):
    """One client connection: requests one after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None
        self._write: Callable[[bytes], None] = _drop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.Transport", transport).write

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._timer is not None:
            self._timer.cancel()
        self._write = _drop

    def data_received(self, data: bytes) -> None:
        self._buffer = buffer = self._buffer + data
        head_end = buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = buffer[: head_end + 2]
        start = head_end + 4
        length = _LENGTH.search(head)
        if length:
            stop = start + int(length[1])
        elif _CHUNKED.search(head):
            last = buffer.find(mock_answers.STREAM_END, start)
            stop = last + len(mock_answers.STREAM_END) if last >= 0 else len(buffer) + 1
        else:
            stop = start
        if len(buffer) >= stop:
            self._buffer = buffer[stop:]
            self._answer(head, buffer[start:stop])

    def _answer(self, head: bytes, body: bytes) -> None:
        path = head.split(b" ", 2)[1].split(b"?")[0]
        dialect = next((name for end, name in _DIALECTS.items() if path.endswith(end)), None)
        if dialect is None:
            self._write(_OTHER)
            return
        if not _STREAM.search(body):
            self._write(body_answer(dialect))
            return
        found = _MODEL.search(body)
        behaviour = behaviour_of(found[1].decode() if found else "")
        if behaviour.gap:
            self._pace(dialect, behaviour)
        elif behaviour.delay:
            answer = flood_answer(dialect)
            self._timer = self._loop.call_later(behaviour.delay, lambda: self._write(answer))
        else:
            self._write(flood_answer(dialect))

    def _pace(self, dialect: str, behaviour: Behaviour) -> None:
        self._write(mock_answers.STREAM_HEAD)
        events = iter(paced_frames(dialect, behaviour.deltas))
        sent: list[bytes] = []
        gap = behaviour.gap
        # Streams that began together must not tick together: their events would share wake-ups.
        when = self._loop.time() + random.random() * gap
        self._timer = self._loop.call_at(when, self._tick, events, sent, gap, when)

    def _tick(self, events: Iterator[Frame], sent: list[bytes], gap: float, when: float) -> None:
        frame = next(events, None)
        if frame is None:
            self._timer = None
            self._write(mock_answers.STREAM_END)
            return
        data = mock_answers.stamped(frame, sent, time.monotonic_ns())
        self._write(mock_answers.chunk(data))
        when += gap
        self._timer = self._loop.call_at(when, self._tick, events, sent, gap, when)


def _drop(_data: bytes, /) -> None:
    """Stands for a write where there is no connection."""


async def serve(host: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(loop), host, port, backlog=4096)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="A mock of every provider, for benchmarks.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9100)
    parser.add_argument("--dump", choices=tuple(_DIALECTS.values()), help="print one stream, exit")
    arguments = parser.parse_args()
    if arguments.dump:
        print(b"".join(frame[0] for frame in mock_answers.frames(arguments.dump)).decode(), end="")
        return
    uvloop.run(serve(arguments.host, arguments.port))


if __name__ == "__main__":
    main()
