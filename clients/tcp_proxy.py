"""A proxy that counts WebSockets, and can cut its connections or send them to another server."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

__all__ = ("TcpProxy", "tcp_proxy")


class TcpProxy:
    """`websockets`: how many of the connections asked for a WebSocket."""

    def __init__(self, url: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.websockets = 0
        self._port = _port_of(url)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, url: str) -> None:
        """Send new connections to another server."""
        self._port = _port_of(url)

    def cut(self) -> None:
        """Cut all connections in the middle of what they do."""
        with self._lock:
            cut, self._open = self._open, set()
        for each in cut:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            first = client.recv(65536)
            if b"upgrade: websocket" in first.lower():
                self.websockets += 1
            with socket.create_connection(("127.0.0.1", self._port)) as server:
                with self._lock:
                    self._open |= {client, server}
                server.sendall(first)
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()
                with self._lock:
                    self._open -= {client, server}


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@contextmanager
def tcp_proxy(url: str) -> Generator[TcpProxy]:
    """A proxy for the server at this address."""
    proxy = TcpProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
