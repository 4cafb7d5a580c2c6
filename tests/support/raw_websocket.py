"""A WebSocket client that writes its frames itself: for frames that no library would send, or that it would answer by itself."""

import json
import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
MASK = b"\x01\x02\x03\x04"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
PATIENCE = 30.0


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, reserved: int = 0, masked: bool = True
) -> bytes:
    """A frame of a client. `reserved`: the three reserved bits, as a number."""
    first = (0x80 if fin else 0) | reserved << 4 | opcode
    size = len(payload)
    bit = 0x80 if masked else 0
    if size < 126:
        head = struct.pack("!BB", first, bit | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, bit | 127, size)
    if not masked:
        return head + payload
    whole = int.from_bytes(payload, "big") ^ int.from_bytes((MASK * (size // 4 + 1))[:size], "big")
    return head + MASK + whole.to_bytes(size, "big")


def create(model: str, **fields: object) -> bytes:
    """The payload of a `response.create`."""
    request = {"type": "response.create", "model": model, "store": False, **fields}
    return json.dumps(request).encode()


class RawSocket:
    """The client's end of a connection."""

    def __init__(self, url: str, receive_buffer: int | None = None) -> None:
        host, port = url.removeprefix("http://").split(":")
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect((host, int(port)))
        self._kept = bytearray()

    def shake(self, *fields: str, more: bytes = b"") -> bytes:
        """Ask for a WebSocket. Returns the head of the answer. `more`: bytes that follow the request at once."""
        self.socket.sendall(handshake(*fields) + more)
        while b"\r\n\r\n" not in self._kept:
            self._more()
        return self._take(self._kept.index(b"\r\n\r\n") + 4)

    def send(self, opcode: int, payload: bytes = b"", **options: Any) -> None:
        self.socket.sendall(frame(opcode, payload, **options))

    def ask(self, model: str, **fields: object) -> None:
        self.send(TEXT, create(model, **fields))

    def receive(self) -> tuple[int, bytes]:
        """The opcode and the payload of the next frame."""
        first, size = struct.unpack("!BB", self._take(2))
        assert first & 0xF0 == 0x80, "expected a whole frame without reserved bits"
        assert size < 0x80, "expected a frame that is not masked"
        if size == 126:
            (size,) = struct.unpack("!H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._take(8))
        return first & 0x0F, self._take(size)

    def event(self) -> dict[str, Any]:
        """The next text frame; pings between are answered."""
        while True:
            opcode, payload = self.receive()
            if opcode == TEXT:
                read: dict[str, Any] = json.loads(payload)
                return read
            assert opcode == PING, (opcode, payload)
            self.send(PONG, payload)

    def last(self) -> dict[str, Any]:
        """The frame with which the next answer ends."""
        while (event := self.event())["type"] not in (
            "response.completed",
            "response.failed",
            "error",
        ):
            pass
        return event

    def close_code(self) -> int | None:
        """The code with which the other side closes; None: the connection ends without a close frame. Other frames are read."""
        try:
            while True:
                opcode, payload = self.receive()
                if opcode == CLOSE:
                    return int.from_bytes(payload[:2], "big")
        except (OSError, EOFError):
            return None

    def ends(self) -> bool:
        """Read until the connection has ended."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def _take(self, size: int) -> bytes:
        while len(self._kept) < size:
            self._more()
        taken = bytes(self._kept[:size])
        del self._kept[:size]
        return taken

    def _more(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError(f"the connection ended after {self._kept[:100]!r}")
        self._kept += data


def handshake(*fields: str) -> bytes:
    """The request of a handshake. `fields`: other headers."""
    lines = (
        "GET /v1/responses HTTP/1.1",
        "host: localhost",
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        f"sec-websocket-key: {KEY}",
        *fields,
    )
    return "\r\n".join((*lines, "", "")).encode()


@contextmanager
def raw_socket(url: str, receive_buffer: int | None = None) -> Generator[RawSocket]:
    """A connection that is open."""
    client = RawSocket(url, receive_buffer)
    try:
        head = client.shake()
        assert b" 101 " in head, head
        yield client
    finally:
        client.close()
