"""Law 15: no input within the limits holds the event loop longer than a stated time.

The gateway runs in a process of its own, with a heartbeat in its loop (`watched_gateway`). What is measured is the CPU time
that passes between two beats, of whatever thread: a busy machine does not count.
"""

import gzip
import http.client
import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast, overload

import pytest

from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from heavy_inputs import ANSWERS, MESSAGES, STREAMS, request_of
from raw_websocket import PING, TEXT, frame, raw_socket
from stage import PATHS

HELD = 0.25
"""Seconds: the stated time, see docs/gateway-performance.md. It was measured, on a machine that may be faster than others."""
MARGIN = 3.0
PATIENCE = 240.0
MIB = 1024 * 1024
HELLO = b'{"role":"user","content":"hi"}'
DOORS = ("chat", "responses", "messages")
PROGRAM = Path(__file__).parents[1] / "support" / "watched_gateway.py"

_END = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


class Watched:
    """A gateway whose loop is watched."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._port = int(self._line())
        self.url = f"http://127.0.0.1:{self._port}"

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert ready, "the gateway's loop does not go on"
        return self._process.stdout.readline()

    def figures(self) -> dict[str, float]:
        """Since they were asked for last: seconds that the loop was held at most, and the most bytes ever."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return cast("dict[str, float]", json.loads(self._line()))

    @contextmanager
    def asking(self, path: str, body: bytes, **headers: str) -> Generator[http.client.HTTPResponse]:
        client = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            client.request("POST", path, body, {"content-type": "application/json", **headers})
            with client.getresponse() as response:
                yield response
        finally:
            client.close()

    def ask(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        """The status, and how the answer begins. All of it is read."""
        with self.asking(path, body, **headers) as response:
            beginning = response.read(4096)
            while response.read(MIB):
                pass
            return response.status, beginning


class Upstream:
    """What the next requests are answered with."""

    def __init__(self) -> None:
        self.reply = json_reply({})

    def __call__(self, _request: ReceivedRequest) -> ScriptedReply:
        return self.reply


UPSTREAM = Upstream()


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with ScriptedUpstream.in_thread(UPSTREAM) as server:
        yield server.url


@contextmanager
def watched(folder: Path, upstream: str) -> Generator[Watched]:
    config = folder / "dragoman.toml"
    config.write_text(
        f'[upstreams.up]\nkind = "chat"\nbase_url = "{upstream}/v1"\napi_key = "k"\n'
        '[retry]\nenabled = false\n[store]\nurl = "memory:"\n[server]\nkeep_alive_interval = 10.0\n',
        encoding="utf-8",
    )
    command = [sys.executable, str(PROGRAM), str(config)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
    ) as process:
        try:
            yield Watched(process)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, upstream: str) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("watched"), upstream) as running:
        yield running


@pytest.fixture(autouse=True)
def is_not_held(gateway: Watched) -> Iterator[None]:
    """Whatever a test does, the loop is not held by it."""
    UPSTREAM.reply = json_reply(_whole(b"hi"))
    gateway.figures()
    yield
    figures = gateway.figures()
    assert figures["process"] < HELD * MARGIN, figures


def _whole(text: bytes) -> bytes:
    return (
        b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
        b'"finish_reason":"stop","message":{"role":"assistant","content":"%b"}}]}' % text
    )


# The bytes are the same for every door, so most are sent to one; what is made of many small things differs.
EVERYWHERE = ("many messages", "many parts", "many members", "a long session", "a text of quotes")
REQUESTS = [
    (name, door)
    for number, name in enumerate(MESSAGES)
    for door in (DOORS if name in EVERYWHERE else (DOORS[number % len(DOORS)],))
]


@pytest.mark.parametrize(("name", "door"), REQUESTS)
def test_no_request_holds_the_loop(gateway: Watched, name: str, door: str) -> None:
    status, beginning = gateway.ask(PATHS[door], request_of(door, MESSAGES[name]()))
    assert status in (200, 400, 413), beginning
    if name in ("many messages", "many parts", "a text", "a long session"):
        assert status == 200, beginning
    if name in ("too many messages", "too many parts", "numbers"):
        assert (status, b"500000 JSON values" in beginning) == (413, True)


# A message is read as a body is: what differs is how its frame is put together, and how an error in it is answered.
SENT_AS_FRAMES = (
    "too many messages", "many messages", "many parts", "open brackets", "a text",
    "a text of quotes", "a text of halves of characters", "many members", "a long session",
)  # fmt: skip


@pytest.mark.parametrize("name", SENT_AS_FRAMES)
def test_no_message_over_a_websocket_holds_the_loop(gateway: Watched, name: str) -> None:
    body = request_of("responses", MESSAGES[name]())
    message = frame(TEXT, b'{"type":"response.create",' + body[1:])
    wrong = frame(TEXT, b'{"type":%b}' % body)  # a member that should be short
    with raw_socket(gateway.url) as client:
        client.socket.sendall(message)
        last = client.last()
        if name in ("many messages", "many parts", "a text", "a long session"):
            assert last["type"] == "response.completed", last
        if name in ("many messages", "a text of quotes", "many members"):
            client.socket.sendall(wrong)
            assert client.last()["type"] == "error"


@pytest.mark.parametrize("small", [frame(TEXT, b"{"), frame(TEXT, b'{"type":0}'), frame(PING, b"")])
def test_no_burst_of_frames_holds_the_loop(gateway: Watched, small: bytes) -> None:
    count = 20_000
    with raw_socket(gateway.url) as client:
        sending = threading.Thread(target=client.socket.sendall, args=(small * count,), daemon=True)
        sending.start()
        for _ in range(count):
            client.receive()
        sending.join()


@pytest.mark.parametrize("name", ["many messages", "numbers"])
def test_no_request_holds_the_loop_while_its_tokens_are_counted(
    gateway: Watched, name: str
) -> None:
    body = request_of("messages", MESSAGES[name]())
    status, _ = gateway.ask("/v1/messages/count_tokens", body)
    assert status in (200, 413)


@pytest.mark.parametrize("name", ["too many messages", "open brackets"])
def test_no_compressed_request_holds_the_loop(gateway: Watched, name: str) -> None:
    body = gzip.compress(request_of("chat", MESSAGES[name]()), 1)
    status, _ = gateway.ask(PATHS["chat"], body, **{"content-encoding": "gzip"})
    assert status in (200, 400, 413)


@pytest.mark.parametrize(
    ("name", "door"), [(name, DOORS[number % 3]) for number, name in enumerate(ANSWERS)]
)
def test_no_answer_holds_the_loop(gateway: Watched, name: str, door: str) -> None:
    UPSTREAM.reply = json_reply(ANSWERS[name]())
    status, beginning = gateway.ask(PATHS[door], request_of(door, HELLO))
    assert status in (200, 502), beginning
    if name in ("a text", "many calls", "openers of calls"):
        assert status == 200, beginning
    if name in ("too many calls", "deep", "no JSON"):
        assert status == 502, beginning


@pytest.mark.parametrize(
    ("name", "door"), [(name, DOORS[number % 3]) for number, name in enumerate(STREAMS)]
)
def test_no_stream_holds_the_loop(gateway: Watched, name: str, door: str) -> None:
    data = STREAMS[name]() + _END
    chunks = [data[start : start + MIB // 4] for start in range(0, len(data), MIB // 4)]
    UPSTREAM.reply = ScriptedReply(content_type="text/event-stream", chunks=chunks)
    gateway.ask(PATHS[door], request_of(door, HELLO, stream=True))


@pytest.mark.parametrize("name", ["comments", "small deltas", "a delta"])
def test_no_stream_that_is_gathered_for_a_body_holds_the_loop(gateway: Watched, name: str) -> None:
    data = STREAMS[name]() + _END
    UPSTREAM.reply = ScriptedReply(content_type="text/event-stream", chunks=[data])
    status, beginning = gateway.ask(PATHS["messages"], request_of("messages", HELLO))
    assert status == 200, beginning


class Endless(Sequence[bytes]):
    """The same chunk, for ever; `sent` counts."""

    def __init__(self, chunk: bytes) -> None:
        self._chunk = chunk
        self.sent = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.sent += 1
            yield self._chunk

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        raise NotImplementedError

    def __len__(self) -> int:
        return sys.maxsize


@pytest.mark.parametrize("frame", [b":\n\n", b"\n", b"event: ping\ndata: {}\n\n"])
def test_others_are_answered_while_an_upstream_says_nothing_without_end(
    gateway: Watched, frame: bytes
) -> None:
    flood = Endless(frame * 4096)
    before = gateway.figures()["peak"]
    with_end = json_reply(_whole(b"hi"))
    UPSTREAM.reply = ScriptedReply(content_type="text/event-stream", chunks=flood)
    with gateway.asking(PATHS["chat"], request_of("chat", HELLO, stream=True)) as response:
        reader = threading.Thread(target=_read_all, args=(response,), daemon=True)
        reader.start()
        _wait_until(gateway, lambda: flood.sent >= 20)
        UPSTREAM.reply = with_end
        seen = flood.sent
        for _ in range(3):
            status, _ = gateway.ask(PATHS["chat"], request_of("chat", HELLO))
            assert status == 200
        _wait_until(gateway, lambda: flood.sent >= seen + 20)  # it has gone on, and is still read
    assert gateway.figures()["peak"] - before < 32 * MIB


def _wait_until(gateway: Watched, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "the flood is not read"
        gateway.figures()


def _read_all(response: http.client.HTTPResponse) -> None:
    try:
        while response.read1(65536):
            pass
    except (OSError, ValueError, http.client.HTTPException, AttributeError):
        return  # it was closed meanwhile


def test_a_request_takes_a_few_times_its_bytes_and_so_much_per_value(
    tmp_path: Path, upstream: str
) -> None:
    with watched(tmp_path, upstream) as fresh:
        fresh.ask(PATHS["chat"], request_of("chat", HELLO))
        before = fresh.figures()["peak"]
        fresh.ask(PATHS["messages"], request_of("messages", MESSAGES["many messages"]()))
        small = fresh.figures()["peak"] - before
        assert small < 5 * 4 * MIB + 500_000 * 512
        fresh.ask(PATHS["messages"], request_of("messages", MESSAGES["a text in other scripts"]()))
        assert fresh.figures()["peak"] - before < 6 * 64 * MIB
