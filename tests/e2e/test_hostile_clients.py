"""Clients that flood, stall, trickle or do not read: what they cost, and that others are served meanwhile."""

import itertools
import re
import resource
import select
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dragoman.config.settings import ServerSettings, Settings
from dragoman.testing import ScriptedReply, ScriptedUpstream, json_reply
from gateway_harness import WAYS, RunningGateway, one_upstream, running_gateway, wait_until
from served import Served, serving
from vendor_wire import Answer, Said, stream
from wire_client import PATH, Wire, request, text_of, wire

KEY = "a-key-of-some-length"
FLOOD = 60_000_000  # bytes; more than sockets hold, far more than anybody may send
MOST_MEMORY = 24_000_000  # of the gateway for a flood: two reads and their copies are one


# --- floods -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """A process of its own, whose memory is its own; with a key that no flood has."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "dragoman.toml").write_text("[server]\nmax_body_bytes = 1000000\n", encoding="utf-8")
    own = {"DRAGOMAN_LOG_FORMAT": "json", "DRAGOMAN_API_KEYS": KEY}
    with serving(folder, own) as served:
        yield served


def memory_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def head(path: str = PATH, *fields: str, key: str = "") -> bytes:
    own = (f"authorization: Bearer {key}",) if key else ()
    lines = (f"POST {path} HTTP/1.1", "host: localhost", *own, *fields, "", "")
    return "\r\n".join(lines).encode()


CHUNKED = "transfer-encoding: chunked"
BLOCK = b"x" * 60_000
FLOODS: dict[str, tuple[bytes, bytes]] = {
    "many trailers": (head(PATH, CHUNKED) + b"0\r\n", b"x-trailer: some text\r\n" * 3000),
    "one trailer": (head(PATH, CHUNKED) + b"0\r\nx-trailer: ", BLOCK),
    "trailers with a key": (head(PATH, CHUNKED, key=KEY) + b"0\r\nx: ", BLOCK),
    "trailers of a page": (
        head("/healthz", CHUNKED) + b"0\r\n",
        b"x-trailer: some text\r\n" * 3000,
    ),
    "chunk extension": (head(PATH, CHUNKED, key=KEY) + b"5;", BLOCK),
    "chunk size": (head(PATH, CHUNKED, key=KEY), b"0" * 60_000),
    "tiny chunks": (head(PATH, CHUNKED, key=KEY), b"1;extension=of-some-length\r\nx\r\n" * 2000),
    "empty lines": (b"", b"\r\n" * 30_000),
    "empty lines between requests": (b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", b"\r\n" * 30_000),
    "url": (b"GET /", BLOCK),
    "header name": (b"GET / HTTP/1.1\r\n", BLOCK),
    "header value": (b"GET / HTTP/1.1\r\nx: ", BLOCK),
    "spaces before a value": (b"GET / HTTP/1.1\r\nx:", b" " * 60_000),
    "many headers": (b"GET / HTTP/1.1\r\n", b"x-header: some text\r\n" * 3000),
    "body without a key": (head(PATH, "content-length: 9999999999"), BLOCK),
    "chunked body without a key": (head(PATH, CHUNKED), b"ea60\r\n" + BLOCK + b"\r\n"),
    "body for nothing": (head("/nowhere", "content-length: 9999999999"), BLOCK),
    "body for a page": (head("/v1/models", CHUNKED), b"ea60\r\n" + BLOCK + b"\r\n"),
    "body that is too large": (head(PATH, "content-length: 9999999999", key=KEY), BLOCK),
    "chunked body that is too large": (head(PATH, CHUNKED, key=KEY), b"ea60\r\n" + BLOCK + b"\r\n"),
    "garbage": (b"", b"this is not HTTP\x00" * 3000),
    "garbage behind an upgrade": (
        head(PATH, "upgrade: h2c", "connection: upgrade", CHUNKED),
        b"0" * 60_000,
    ),
}


def flood(port: int, opening: bytes, block: bytes) -> int:
    """How much was sent before the other side had enough."""
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        try:
            client.sendall(opening)
            while sent < FLOOD:
                client.sendall(block)
                sent += len(block)
        except OSError:
            pass
    return sent


@pytest.mark.parametrize("name", FLOODS)
def test_flood_is_cut_off_and_costs_no_memory(guarded: Served, name: str) -> None:
    before = memory_of(guarded.pid)
    sent = flood(guarded.port, *FLOODS[name])
    assert sent < FLOOD
    assert memory_of(guarded.pid) - before < MOST_MEMORY
    assert guarded.ask("/healthz")[0] == 200


def test_floods_at_once_cost_no_memory_and_others_are_served(guarded: Served) -> None:
    before = memory_of(guarded.pid)
    threads = [
        threading.Thread(target=flood, args=(guarded.port, *each))
        for each in itertools.islice(itertools.cycle(FLOODS.values()), 40)
    ]
    for thread in threads:
        thread.start()
    assert guarded.ask("/healthz")[0] == 200
    for thread in threads:
        thread.join(60)
    assert memory_of(guarded.pid) - before < 3 * MOST_MEMORY


@pytest.mark.parametrize("status", [401, 404, 413])
def test_client_that_writes_all_before_it_reads_sees_why_it_was_refused(
    guarded: Served, status: int
) -> None:
    size = 1_500_000 if status == 413 else 900_000
    path = "/nowhere" if status == 404 else PATH
    opening = head(path, f"content-length: {size}", key=KEY if status == 413 else "")
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=30) as client:
        client.sendall(opening + b"x" * size + b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        received = b""
        while b"HTTP/1.1 200 OK" not in received:
            more = client.recv(65_536)
            assert more, received
            received += more
        assert received.startswith(b"HTTP/1.1 %d " % status)


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=WAYS)
def impatient(request: pytest.FixtureRequest) -> Iterator[RunningGateway]:
    """Short times, and one place."""
    server = ServerSettings(
        shutdown_grace=0.3, head_timeout=2.0, body_timeout=2.0, idle_timeout=2.0, max_streams=1
    )
    with running_gateway(Settings(server=server), request.param) as running:
        yield running


def trickle(client: Wire, data: bytes, pause: float = 0.05) -> bytes:
    """Send a byte, wait a moment for an answer, and so on. What came, if anything did."""
    for byte in data:
        if client.is_readable(pause):
            break
        client.send(bytes((byte,)))
    return client.rest()


@pytest.mark.parametrize(
    "before", [b"", b"\r\n\r\n", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"]
)
def test_head_that_trickles_is_given_up(impatient: RunningGateway, before: bytes) -> None:
    with wire(impatient) as client:
        client.send(before)
        if before.startswith(b"GET"):
            assert client.answer()[0].startswith(b"http/1.1 200 ")
        result = trickle(client, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 400)
        assert result.startswith(b"HTTP/1.1 408 ")
        assert b"server.head_timeout" in result


def test_connection_without_a_request_is_let_go(impatient: RunningGateway) -> None:
    with wire(impatient) as silent, wire(impatient) as idle, wire(impatient) as empty:
        idle.send(request())
        assert text_of(idle.answer()[1])
        assert trickle(empty, b"\r\n" * 200) == b""
        assert silent.rest() == b""
        assert idle.rest() == b""


@pytest.mark.parametrize("kind", ["stalls", "trickles", "trickles in chunks"])
def test_body_that_stalls_takes_no_place_and_is_given_up(
    impatient: RunningGateway, kind: str
) -> None:
    body = request().partition(b"\r\n\r\n")[2]
    with ExitStack() as opened:
        clients = [opened.enter_context(wire(impatient)) for _ in range(3)]
        for client in clients:
            if kind == "trickles in chunks":
                client.send(head(PATH, CHUNKED))
            else:
                client.send(head(PATH, f"content-length: {len(body)}") + body[:5])
        wait_until(lambda: len(impatient.app.gateway.exchanges) == 3)
        with wire(impatient) as other:  # the only place is free
            other.send(request())
            assert text_of(other.answer()[1])
        pieces = b"1\r\n \r\n" * 100 if kind == "trickles in chunks" else body[5:]
        for client in clients:
            received = client.rest() if kind == "stalls" else trickle(client, pieces)
            assert received.startswith(b"HTTP/1.1 408 ")
            assert b"server.body_timeout" in received
        wait_until(lambda: not impatient.app.gateway.exchanges)


def test_body_that_is_slow_but_comes_is_read(impatient: RunningGateway) -> None:
    whole = request(content="x" * 15_000)
    with wire(impatient) as client:
        for start in range(0, len(whole), 500):
            client.send(whole[start : start + 500])
            assert start + 500 >= len(whole) or not client.is_readable(0.1)
        assert text_of(client.answer()[1])


def test_refused_request_whose_body_does_not_end_is_let_go(impatient: RunningGateway) -> None:
    with wire(impatient) as client:
        client.send(head("/nowhere", "content-length: 1000"))
        assert client.answer()[0].startswith(b"http/1.1 404 ")
        assert trickle(client, b"x" * 400) == b""


def test_body_that_was_to_be_asked_for_and_was_not_wanted_is_not_waited_for(
    guarded: Served,
) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=30) as client:
        client.sendall(head(PATH, "expect: 100-continue", "content-length: 10"))
        received = b""
        while data := client.recv(65_536):
            received += data
        assert received.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("way", WAYS)
def test_client_that_does_not_read_loses_its_place(way: str) -> None:
    chunk = (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
    ) % (b"x" * 16_000)
    endless = ScriptedReply(content_type="text/event-stream", chunks=[chunk] * 4_000)
    answer = stream("chat", Answer((Said(("Here ", "I am.")),)))
    short = ScriptedReply(content_type="text/event-stream", chunks=[answer])
    with ScriptedUpstream.in_thread([endless, short]) as upstream:
        server = ServerSettings(shutdown_grace=0.3, send_timeout=1.0, max_streams=1)
        settings = one_upstream(upstream.url, "chat", server=server)
        with running_gateway(settings, way) as running, wire(running) as stalled:
            stalled.send(request(is_stream=True))
            assert stalled.head().startswith(b"http/1.1 200 ")
            wait_until(lambda: upstream.requests[0].closed_at is not None)
            wait_until(lambda: running.app.gateway.slots.open == 0)
            with wire(running) as other:
                other.send(request(is_stream=True))
                assert b"I am." in other.answer()[1]


def test_client_that_reads_slowly_keeps_its_place() -> None:
    chunk = (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
    ) % (b"x" * 16_000)
    opening = stream("chat", Answer((Said(("Here ",)),))).partition(b"\n\n")[0] + b"\n\n"
    end = b"data: [DONE]\n\n"
    reply = ScriptedReply(content_type="text/event-stream", chunks=[opening, *[chunk] * 700, end])
    with ScriptedUpstream.in_thread([reply]) as upstream:
        server = ServerSettings(shutdown_grace=0.3, send_timeout=2.5)
        with (
            running_gateway(one_upstream(upstream.url, "chat", server=server)) as running,
            wire(running, receive_buffer=100_000) as slow,
        ):
            pacing = threading.Event()
            slow.send(request(is_stream=True))
            for _ in range(40):  # four seconds
                pacing.wait(0.1)
                slow.take(20_000)
            assert len(running.app.gateway.exchanges) == 1
            assert slow.until(b"data: [DONE]")


def test_client_that_does_not_read_its_last_answer_is_let_go() -> None:
    """A connection that is closed while much of an answer waits for the client stays open for that."""
    message = {"role": "assistant", "content": "x" * 20_000_000}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    large = json_reply({"id": "c", "object": "chat.completion", "created": 1, "choices": [choice]})
    with ScriptedUpstream.in_thread([large, large]) as upstream:
        server = ServerSettings(shutdown_grace=0.3, send_timeout=1.0, idle_timeout=1.0)
        with running_gateway(one_upstream(upstream.url, "chat", server=server)) as running:
            for fields in (("connection: close",), ()):
                with wire(running, receive_buffer=65_536) as stalled:
                    stalled.send(request(*fields))
                    assert stalled.head().startswith(b"http/1.1 200 ")
                    wait_until(lambda: not running.server.server_state.connections, 60.0)


def test_requests_that_are_not_answered_yet_are_few(guarded: Served) -> None:
    """What is asked for at once is parsed at once, before anyone could refuse it."""
    before = memory_of(guarded.pid)
    many = head(PATH, "content-length: 0") * 4000
    with ExitStack() as opened:
        for _ in range(20):
            client = socket.create_connection(("127.0.0.1", guarded.port), timeout=30)
            opened.enter_context(client)
            client.sendall(many)
            received = b""
            while data := client.recv(65_536):
                received += data
            assert 1 <= received.count(b"HTTP/1.1 401 ") <= 100
    assert memory_of(guarded.pid) - before < MOST_MEMORY


# --- many connections -------------------------------------------------------------------------------------------------


def handles_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_idle_connections_of_a_burst_are_let_go(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(
        "[server]\nidle_timeout = 2.0\nhead_timeout = 2.0\n", encoding="utf-8"
    )
    count = min(1500, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    with serving(tmp_path, {"DRAGOMAN_LOG_FORMAT": "json"}) as served, ExitStack() as opened:
        before, memory = handles_of(served.pid), memory_of(served.pid)
        for number in range(count):
            client = socket.create_connection(("127.0.0.1", served.port), timeout=30)
            opened.enter_context(client)
            if number % 2:
                client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: handles_of(served.pid) <= before + 2)
        assert memory_of(served.pid) - memory < 60_000_000
        assert served.ask("/healthz")[0] == 200


def test_running_out_of_file_handles_is_logged_and_survived(tmp_path: Path) -> None:
    with serving(tmp_path, {"DRAGOMAN_LOG_FORMAT": "json"}) as served, ExitStack() as opened:
        waiting = http_stream(served.port)
        opened.callback(waiting.close)
        limit = handles_of(served.pid) + 10
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (limit, limit))
        clients = [
            opened.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=30))
            for _ in range(40)
        ]
        wait_until(lambda: "no file handles left" in served.log.read_text(encoding="utf-8"))
        closed, _, _ = select.select(clients, [], [], 0)
        assert closed  # those that there was no handle for
        for client in clients:
            client.close()
        wait_until(
            lambda: "file handles are available again" in served.log.read_text(encoding="utf-8")
        )
        assert served.ask("/healthz")[0] == 200
        body = {"model": "rehearsal", "messages": [{"role": "user", "content": "hi"}]}
        assert served.ask("/v1/chat/completions", body)[0] == 200
        assert served.log.read_text(encoding="utf-8").count("no file handles left") == 1


def http_stream(port: int) -> socket.socket:
    """A connection that has been answered and is kept."""
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.sendall(request())
    assert client.recv(100).startswith(b"HTTP/1.1 200 ")
    return client


def test_limit_of_open_files_is_raised_as_far_as_allowed(tmp_path: Path) -> None:
    with serving(tmp_path, {"DRAGOMAN_LOG_FORMAT": "json"}) as served:
        least, most = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        assert least == most
