"""A client that writes its bytes itself: for bytes that no HTTP library would send, or that it would hide from the test."""

import json
import select
import socket
from collections.abc import Generator
from contextlib import contextmanager

from gateway_harness import RunningGateway

PATH = "/v1/chat/completions"
MODEL = "rehearsal"


def request(
    *fields: str,
    path: str = PATH,
    version: str = "1.1",
    is_stream: bool = False,
    content: str = "hi",
) -> bytes:
    body = json.dumps(
        {"model": MODEL, "stream": is_stream, "messages": [{"role": "user", "content": content}]}
    ).encode()
    lines = [
        f"POST {path} HTTP/{version}",
        "host: localhost",
        f"content-length: {len(body)}",
        *fields,
    ]
    return "\r\n".join((*lines, "", "")).encode() + body


class Wire:
    """A client's end of a connection: bytes out, whole answers in."""

    def __init__(self, gateway: RunningGateway, receive_buffer: int | None = None) -> None:
        host, port = gateway.url.removeprefix("http://").split(":")
        self._socket = socket.socket()
        self._socket.settimeout(30)
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.connect((host, int(port)))
        self._kept = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def end(self) -> None:
        """Half-close: nothing more comes from here, but answers are still read."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def is_readable(self, patience: float) -> bool:
        """Whether something comes, or the end, within so many seconds."""
        return bool(self._kept or select.select([self._socket], [], [], patience)[0])

    def take(self, size: int) -> None:
        """Read at most so much."""
        self._kept += self._socket.recv(size)

    def head(self) -> bytes:
        """The next head, in lower case."""
        while b"\r\n\r\n" not in self._kept:
            self._more()
        head, _, self._kept = self._kept.partition(b"\r\n\r\n")
        return head.lower()

    def answer(self) -> tuple[bytes, bytes]:
        """The next head, and the body that belongs to it."""
        head = self.head()
        if b"transfer-encoding: chunked" in head:
            return head, self.chunks()
        (length,) = (
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.startswith(b"content-length")
        )
        while len(self._kept) < length:
            self._more()
        body, self._kept = self._kept[:length], self._kept[length:]
        return head, body

    def rest(self) -> bytes:
        """All that comes before the other side closes."""
        while data := self._socket.recv(65536):
            self._kept += data
        return self._kept

    def until(self, mark: bytes) -> bool:
        """Read, and keep what comes, until the mark is there."""
        while mark not in self._kept:
            self._more()
        return True

    def chunks(self) -> bytes:
        """The chunked body that follows a head."""
        found: list[bytes] = []
        while True:
            while b"\r\n" not in self._kept:
                self._more()
            size, _, self._kept = self._kept.partition(b"\r\n")
            length = int(size, 16)
            while len(self._kept) < length + 2:
                self._more()
            assert self._kept[length : length + 2] == b"\r\n"
            found.append(self._kept[:length])
            self._kept = self._kept[length + 2 :]
            if not length:
                return b"".join(found)

    def _more(self) -> None:
        data = self._socket.recv(65536)
        assert data, f"the connection was closed after {self._kept!r}"
        self._kept += data


@contextmanager
def wire(gateway: RunningGateway, receive_buffer: int | None = None) -> Generator[Wire]:
    opened = Wire(gateway, receive_buffer)
    try:
        yield opened
    finally:
        opened.close()


def text_of(body: bytes) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])
