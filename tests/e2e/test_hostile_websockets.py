"""WebSocket clients that send nonsense, flood, stall, do not read or leave: the server lives on, others are served, nothing
is left behind."""

import gc
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from dragoman.config.settings import ServerSettings
from dragoman.server.http.websocket import WebSocketProtocol
from dragoman.testing import Chunk, ScriptedReply, Wait
from gateway_harness import DIALECTS, wait_until
from raw_websocket import (
    BINARY,
    CLOSE,
    CONTINUED,
    PING,
    PONG,
    TEXT,
    RawSocket,
    create,
    frame,
    handshake,
    raw_socket,
)
from served import Served, serving
from stage import Scene, Stage, running_stage
from vendor_wire import Answer, Said, Tool, stream
from websocket_client import socket_client
from wire_client import wire

HELLO = Answer((Said(("Hel", "lo.")),))
CALLS = Answer(
    (Said(("Let me ", "look.")), Tool("call_1", "get_weather", ('{"city":', ' "Paris"}')))
)
LEAVING = 0.1  # seconds in which the upstream must be let go
ATTEMPTS = 20  # of which one must be in time: a busy machine takes the processor away now and then
BURST = 100_000
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    server = ServerSettings(shutdown_grace=0.3, max_body_bytes=100_000)
    with running_stage(server=server) as running:
        yield running


@pytest.fixture(autouse=True)
def is_unharmed(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test on the stage others are served, and nothing is left: no session, exchange, slot, connection or task."""
    yield
    if "stage" in request.fixturenames:
        check_unharmed(request.getfixturevalue("stage"))


def check_unharmed(stage: Stage) -> None:
    scene = stage.scene("chat", HELLO)
    with socket_client(stage.url, scene.model) as client:
        assert client.answer(input="Hi.")["status"] == "completed"
    gateway = stage.gateway.app.gateway
    wait_until(lambda: not gateway.sessions)
    wait_until(lambda: not gateway.exchanges)
    assert gateway.slots.open == 0
    wait_until(lambda: not stage.gateway.server.server_state.connections)
    wait_until(lambda: not stage.gateway.server.server_state.tasks)


def error_of(client: RawSocket) -> tuple[int, str]:
    event = client.event()
    assert event["type"] == "error"
    return event["status"], event["error"]["code"]


# --- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 7])
def test_message_in_many_fragments_with_pings_between_is_read(stage: Stage, size: int) -> None:
    scene = stage.scene("chat", HELLO)
    message = create(scene.model, input="Hi. „ü“ 😀")
    pieces = [message[at : at + size] for at in range(0, len(message), size)] if size else [message]
    with raw_socket(stage.url) as client:
        client.send(TEXT, b"", fin=False)
        for number, piece in enumerate(pieces):
            client.send(CONTINUED, piece, fin=False)
            client.send(CONTINUED, b"", fin=False)
            if number % 50 == 0:
                client.send(PING, b"between")
                assert client.receive() == (PONG, b"between")
        client.send(CONTINUED, b"")
        assert client.last()["type"] == "response.completed"
    assert scene.heard["messages"][0]["content"] == "Hi. „ü“ 😀"


WRONG: dict[str, tuple[bytes, int]] = {
    "invalid UTF-8": (frame(TEXT, b'{"type":"\xff"}'), 1007),
    "half a character": (frame(TEXT, b'{"type":"\xc3'), 1007),
    "invalid UTF-8 in fragments": (
        frame(TEXT, b"\xe2\x82", fin=False) + frame(CONTINUED, b"\x28"),
        1007,
    ),
    "a first reserved bit, as of a compressed frame": (frame(TEXT, b"\xaa\x56", reserved=4), 1002),
    "a second reserved bit": (frame(TEXT, b"{}", reserved=2), 1002),
    "a third reserved bit": (frame(PING, b"", reserved=1), 1002),
    "a reserved opcode": (frame(0x3, b"{}"), 1002),
    "a reserved control opcode": (frame(0xB, b""), 1002),
    "a frame that is not masked": (frame(TEXT, b"{}", masked=False), 1002),
    "a continuation of nothing": (frame(CONTINUED, b"{}"), 1002),
    "a message within a message": (frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), 1002),
    "a ping in fragments": (frame(PING, b"", fin=False), 1002),
    "a large ping": (frame(PING, b"x" * 126), 1002),
    "a close with half a code": (frame(CLOSE, b"\x03"), 1002),
    "a close with a code that nobody may send": (frame(CLOSE, (1005).to_bytes(2, "big")), 1002),
    "a length beyond every limit": (b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff" + b"\0" * 4, 1009),
    "fragments beyond the limit": (
        frame(TEXT, b"x" * 99_999, fin=False) + frame(CONTINUED, b"x" * 199_999, fin=False),
        1009,
    ),
}


@pytest.mark.parametrize("when", ["idle", "in a response"])
@pytest.mark.parametrize("name", WRONG)
def test_broken_frame_ends_its_connection_with_the_right_code_and_no_other(
    stage: Stage, name: str, when: str
) -> None:
    data, code = WRONG[name]
    never = threading.Event()
    scene = stage.scene("chat", beginning("chat", 2, never), HELLO)
    with raw_socket(stage.url) as client, socket_client(stage.url, scene.model) as other:
        if when != "idle":
            client.ask(scene.model, input="Hi.")
            assert client.event()["type"] == "response.created"
        client.socket.sendall(data)
        assert client.close_code() == code
        assert client.ends()
        if when == "idle":
            scene.parts[0] = HELLO
        else:
            wait_until(lambda: scene.requests[0].closed_at is not None)
        assert other.answer(input="Hi.")["status"] == "completed"
    never.set()


def test_broken_frames_right_behind_the_handshake_are_answered_like_later_ones(
    stage: Stage,
) -> None:
    for data, code in WRONG.values():
        client = RawSocket(stage.url)
        assert b" 101 " in client.shake(more=data)
        assert client.close_code() == code
        client.close()
    client = RawSocket(stage.url)
    assert b" 101 " in client.shake(more=frame(PING, b"early"))
    assert client.receive() == (PONG, b"early")
    client.close()


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (b"x" * 99_999, (400, "invalid_request_error")),
        (b"x" * 100_001, (413, "message_too_large")),
        ("é".encode() * 50_001, (413, "message_too_large")),
        (b"x" * 200_000, (413, "message_too_large")),
    ],
)
def test_message_at_the_limit_is_refused_and_the_connection_lives_on(
    stage: Stage, payload: bytes, error: tuple[int, str]
) -> None:
    scene = stage.scene("chat", HELLO)
    with raw_socket(stage.url) as client:
        client.send(TEXT, payload)
        assert error_of(client) == error
        client.send(BINARY, payload)
        assert error_of(client)[0] == 400
        client.ask(scene.model, input="Hi.")
        assert client.last()["type"] == "response.completed"


def test_response_of_another_connection_is_unknown(stage: Stage) -> None:
    scene = stage.scene("chat", HELLO)
    with raw_socket(stage.url) as one, raw_socket(stage.url) as other:
        one.ask(scene.model, input="Hi.")
        first = one.last()["response"]["id"]
        other.ask(scene.model, input="And?", previous_response_id=first)
        assert error_of(other) == (400, "previous_response_not_found")
    assert len(scene.requests) == 1


@pytest.mark.parametrize("lane", ["", "a b", "x" * 257, 7, None])
def test_lane_without_a_valid_name_is_an_error_on_no_lane(stage: Stage, lane: object) -> None:
    scene = stage.scene("chat", HELLO)
    with raw_socket(stage.url) as client:
        client.ask(scene.model, input="Hi.", stream_id=lane)
        last = client.last()
        assert "stream_id" not in last
        if lane is not None:
            assert (last["status"], last["error"]["code"]) == (400, "invalid_stream_id")


# --- floods -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A process of its own, whose memory is its own. It sends no pings: the tests may take longer than two intervals."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "dragoman.toml").write_text(
        "[server]\nmax_body_bytes = 1000000\nsend_timeout = 5\nkeep_alive_interval = 600\n",
        encoding="utf-8",
    )
    with serving(folder, {"DRAGOMAN_LOG_FORMAT": "json"}) as running:
        yield running


def memory_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def handles_of(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def ask_others(served: Served, is_over: Callable[[], bool]) -> None:
    """Another client gets its answers until something is over; how long the loop is held: `test_loop_is_not_held`."""
    while not is_over():
        assert served.ask("/healthz")[0] == 200


def sender(client: RawSocket, data: bytes) -> threading.Thread:
    def send() -> None:
        with suppress(OSError):  # cut off
            client.socket.sendall(data)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


FLOODS = {
    "messages": (frame(TEXT, b"{"), TEXT),
    "pings": (frame(PING, b""), PONG),
    "empty fragments": (frame(CONTINUED, b"", fin=False), None),
    "pongs": (frame(PONG, b""), None),
}


@pytest.mark.parametrize("name", FLOODS)
def test_burst_of_small_frames_is_answered_while_others_are_served(
    served: Served, name: str
) -> None:
    small, answer = FLOODS[name]
    before = memory_of(served.pid)
    with raw_socket(served.url) as client:
        if name == "empty fragments":
            client.send(TEXT, b"", fin=False)
        thread = sender(client, small * BURST)
        done = threading.Event()

        def read() -> None:
            for _ in range(BURST if answer is not None else 0):
                assert client.receive()[0] == answer
            thread.join()
            done.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        ask_others(served, done.is_set)
        if name == "empty fragments":
            client.send(CONTINUED, b"{")
            assert client.event()["status"] == 400
        client.send(PING, b"still there")
        assert client.receive() == (PONG, b"still there")
    assert memory_of(served.pid) - before < 24 * MIB


@pytest.mark.parametrize("name", FLOODS)
def test_flood_of_a_client_that_does_not_read_is_bounded_and_cut_off(
    served: Served, name: str
) -> None:
    small, answer = FLOODS[name]
    # What is answered must fill the buffers of both sides; of the rest, all is read.
    count = BURST * (5 if answer is None else 20)
    before = memory_of(served.pid)
    with raw_socket(served.url, receive_buffer=4096) as client:
        if name == "empty fragments":
            client.send(TEXT, b"", fin=False)
        thread = sender(client, small * count)
        ask_others(served, lambda: not thread.is_alive())
        assert memory_of(served.pid) - before < 24 * MIB
        if name == "messages":
            assert client.ends()


def test_thousand_idle_connections_cost_little_and_leave_nothing(served: Served) -> None:
    with raw_socket(served.url) as client:
        client.ask("rehearsal", input="Hi.")
        client.last()
    count = 1000
    handles, before = handles_of(served.pid), memory_of(served.pid)
    with ExitStack() as opened:
        clients = [opened.enter_context(raw_socket(served.url)) for _ in range(count)]
        each = (memory_of(served.pid) - before) / count
        assert each < 24 * 1024, each
        clients[-1].ask("rehearsal", input="Hi.")
        assert clients[-1].last()["type"] == "response.completed"
        clients[0].send(PING, b"1")
        assert clients[0].receive() == (PONG, b"1")
    wait_until(lambda: handles_of(served.pid) <= handles)


# --- leaving ----------------------------------------------------------------------------------------------------------


def beginning(dialect: str, count: int, go: threading.Event) -> ScriptedReply:
    """So many frames of an answer; the rest when the event is set."""
    frames = [each + b"\n\n" for each in stream(dialect, CALLS).split(b"\n\n") if each]
    chunks: list[Chunk] = [*frames[:count], Wait(go), *frames[count:]]
    return ScriptedReply(content_type="text/event-stream", chunks=chunks)


def frames_of(dialect: str) -> int:
    return stream(dialect, CALLS).count(b"\n\n")


def leave(client: RawSocket, how: str) -> None:
    if how == "close frame":
        client.send(CLOSE, (1000).to_bytes(2, "big"))
    elif how == "half-close":
        client.socket.shutdown(socket.SHUT_WR)
    elif how == "reset":
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
    else:
        client.close()


@pytest.mark.parametrize("how", ["close frame", "half-close", "reset", "drop"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_client_that_leaves_at_any_moment_ends_the_upstreams_work(
    stage: Stage, dialect: str, how: str
) -> None:
    """Before the upstream's first byte, and after each frame of its answer."""
    slow = [
        count
        for count in range(frames_of(dialect))
        if not any(let_go(stage, dialect, count, how) < LEAVING for _ in range(ATTEMPTS))
    ]
    assert slow == []


def let_go(stage: Stage, dialect: str, count: int, how: str) -> float:
    """Seconds until the upstream is let go by a client that leaves after so many frames."""
    go = threading.Event()
    scene = stage.scene(dialect, beginning(dialect, count, go))
    client = RawSocket(stage.url)
    client.shake()
    client.ask(scene.model, input="Weather?")
    wait_until(partial(has_sent, scene, count))
    left = time.monotonic()
    leave(client, how)
    wait_until(partial(is_closed, scene))
    client.close()
    go.set()
    return (scene.requests[0].closed_at or 0.0) - left


def has_sent(scene: Scene, count: int) -> bool:
    return bool(scene.requests) and (scene.requests[0].sent > 0 or not count)


def is_closed(scene: Scene) -> bool:
    return scene.requests[0].closed_at is not None


def test_close_frame_in_a_response_is_answered_before_the_connection_ends(stage: Stage) -> None:
    never = threading.Event()
    scene = stage.scene("chat", beginning("chat", 2, never))
    with raw_socket(stage.url) as client:
        client.ask(scene.model, input="Hi.")
        assert client.event()["type"] == "response.created"
        client.send(CLOSE, (1000).to_bytes(2, "big") + b"bye")
        assert client.close_code() == 1000
        assert client.ends()
    never.set()


FLOOD_CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"x" * 16_000)


def flood() -> ScriptedReply:
    """64 MB: more than the buffers of both systems hold together."""
    first = stream("chat", HELLO).partition(b"\n\n")[0] + b"\n\n"
    return ScriptedReply(content_type="text/event-stream", chunks=[first, *[FLOOD_CHUNK] * 4_000])


def is_held_up(stage: Stage) -> bool:
    """Whether a WebSocket client does not read what is written."""
    connections = tuple(stage.gateway.server.server_state.connections)
    return any(
        isinstance(each, WebSocketProtocol) and not each.writable.is_set() for each in connections
    )


@pytest.mark.parametrize("how", ["nothing", "close frame", "half-close"])
def test_client_that_stops_reading_holds_up_the_upstream_until_it_is_cut_off(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it has said that it leaves: then it is not waited for until it has read everything."""
    server = ServerSettings(shutdown_grace=0.3, send_timeout=1.0 if how == "nothing" else 5.0)
    with running_stage(server=server) as stage, caplog.at_level(logging.WARNING):
        scene = stage.scene("chat", flood())
        with raw_socket(stage.url, receive_buffer=4096) as client:
            client.ask(scene.model, input="Hi.")
            wait_until(lambda: is_held_up(stage))
            if how != "nothing":
                leave(client, how)
            wait_until(partial(is_closed, scene))
            is_cut_off = any(text.startswith("cut off") for text in caplog.messages)
            assert is_cut_off is (how == "nothing")
            assert scene.requests[0].sent < 20_000_000
            check_unharmed(stage)


def test_client_that_reads_none_of_its_lanes_holds_up_all_of_them() -> None:
    server = ServerSettings(shutdown_grace=0.3, send_timeout=1.0)
    with running_stage(server=server) as stage:
        scene = stage.scene("chat", *[flood()] * 16)
        with raw_socket(stage.url, receive_buffer=4096) as client:
            for number in range(17):
                client.ask(scene.model, input="Hi.", stream_id=f"lane-{number}")
            wait_until(lambda: len(scene.requests) == 16)
            wait_until(lambda: all(each.closed_at is not None for each in scene.requests))
        assert all(each.sent < 20_000_000 for each in scene.requests)
        check_unharmed(stage)
        assert len(scene.requests) == 16  # the one that waited was never asked


def test_client_that_does_not_read_has_as_long_as_over_http(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A ping waits behind what the client has not read, so that it says nothing about the client."""
    server = ServerSettings(shutdown_grace=0.3, send_timeout=2.0, keep_alive_interval=0.2)
    with running_stage(server=server) as stage, caplog.at_level(logging.WARNING):
        scene = stage.scene("chat", flood())
        with raw_socket(stage.url, receive_buffer=4096) as client:
            client.ask(scene.model, input="Hi.")
            wait_until(lambda: bool(scene.requests))
            wait_until(partial(is_closed, scene))
        [line] = [text for text in caplog.messages if text.startswith("cut off")]
        assert "read nothing" in line
        check_unharmed(stage)


# --- silence ----------------------------------------------------------------------------------------------------------


def test_client_that_answers_no_ping_is_dropped_and_one_that_does_is_not() -> None:
    """As if its machine were gone: the system still takes bytes for it, or they are lost."""
    never = threading.Event()
    server = ServerSettings(shutdown_grace=0.3, keep_alive_interval=0.7)
    with running_stage(server=server) as stage:
        scene = stage.scene("chat", beginning("chat", 2, never))
        with raw_socket(stage.url) as silent, raw_socket(stage.url) as alive:
            silent.ask(scene.model, input="Hi.")
            wait_until(lambda: bool(scene.requests))
            pings = 0
            while scene.requests[0].closed_at is None:
                opcode, payload = alive.receive()
                assert opcode == PING
                alive.send(PONG, payload)
                pings += 1
            assert pings >= 2
            assert silent.ends()
            alive.send(PING, b"1")
            while (heard := alive.receive()) != (PONG, b"1"):
                assert heard[0] == PING
        check_unharmed(stage)
    never.set()


def test_message_that_does_not_go_on_ends_its_connection() -> None:
    server = ServerSettings(shutdown_grace=0.3, body_timeout=0.5)
    with running_stage(server=server) as stage:
        for begun in (frame(TEXT, b"{" * 500)[:100], frame(TEXT, b"{", fin=False), b"\x81"):
            with raw_socket(stage.url) as client:
                client.socket.sendall(begun)
                assert client.close_code() == 1008
        check_unharmed(stage)


# --- the handshake ----------------------------------------------------------------------------------------------------


def test_slow_handshake_is_refused() -> None:
    server = ServerSettings(shutdown_grace=0.3, head_timeout=0.5)
    with running_stage(server=server) as stage:
        client = RawSocket(stage.url)
        client.socket.sendall(handshake()[:60])
        answer = client.socket.recv(65536)
        assert b" 408 " in answer.partition(b"\r\n")[0]
        client.close()
        check_unharmed(stage)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"sec-websocket-key", b"x-websocket-key"),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"short"),
        (b"version: 13", b"version: 12"),
        (b"upgrade: websocket", b"upgrade: h2c"),
        (b"connection: Upgrade", b"connection: close"),
        (b"host: localhost", b"x-host: localhost"),
        (b"host: localhost", b"host: localhost\r\nhost: localhost"),
        (b"host: localhost", b"host: localhost\r\nx: a\x01b"),
        (b"upgrade: websocket", b"upgrade: websocket\r\nx y: z"),
        (b"content-length: 0", b"content-length: none"),
        (b"GET", b"POST"),
        (b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_handshake_with_a_mistake_is_answered_by_http(stage: Stage, old: bytes, new: bytes) -> None:
    client = RawSocket(stage.url)
    client.socket.sendall(handshake("content-length: 0").replace(old, new))
    head = client.socket.recv(65536).partition(b"\r\n\r\n")[0].lower()
    client.close()
    status = int(head.split(b" ")[1])
    assert status == (400 if new == b"POST" else 426)
    assert (b"\r\nupgrade: websocket" in head) is (status == 426)


def test_malformed_handshake_that_comes_in_pieces_is_answered_426(stage: Stage) -> None:
    """Also where the mistake is in another read than the header that asks for the WebSocket."""
    whole = handshake("x y: z")
    with wire(stage.gateway) as client:
        for at in range(len(whole)):
            client.send(whole[at : at + 1])
        head, _ = client.answer()
        assert head.startswith(b"http/1.1 426 ")


def test_compression_that_is_offered_is_not_accepted(stage: Stage) -> None:
    client = RawSocket(stage.url)
    head = client.shake("sec-websocket-extensions: permessage-deflate; client_max_window_bits")
    assert b" 101 " in head
    assert b"extensions" not in head.lower()
    client.close()


def test_connection_whose_times_cannot_be_checked_does_not_end_the_server(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: WebSocketProtocol, now: float) -> None:
        raise RuntimeError("broken")

    with raw_socket(stage.url) as client:
        monkeypatch.setattr(WebSocketProtocol, "check_times", broken)
        assert client.ends()
        monkeypatch.undo()


def test_connection_leaves_no_cycles(stage: Stage) -> None:
    scene = stage.scene("chat", *[HELLO] * 5)
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            with socket_client(stage.url, scene.model) as client:
                client.answer(input="Hi.")
        wait_until(lambda: not stage.gateway.server.server_state.connections)
        wait_until(lambda: not _left(WebSocketProtocol))
    finally:
        gc.enable()


def _left(kind: type[object]) -> list[object]:
    return [each for each in gc.get_objects() if type(each) is kind]
