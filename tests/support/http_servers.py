"""Small HTTP servers in a thread, for tests whose upstream needs no script."""

from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that logs nothing; `respond` serves GET and POST."""

    def respond(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def answer(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def running_server(handler: type[QuietHandler]) -> Generator[str]:
    """A server on a free port of this machine; yields its address, `127.0.0.1:port`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
