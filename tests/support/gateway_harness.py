"""A gateway on loopback, in a thread of its own, as uvicorn serves it; and waiting that is bounded."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from msgspec import Struct, structs

from dragoman.config.settings import ServerSettings, Settings, UpstreamSettings
from dragoman.server.app import App, create_app
from dragoman.server.run import Server, make_server

DIALECTS = ("chat", "responses", "messages")
WAYS = ("direct", "asgi")
PATIENCE = 60.0


class RunningGateway(Struct, frozen=True):
    """`url` has no path."""

    url: str
    app: App
    server: Server
    thread: threading.Thread

    def stop(self) -> None:
        """Ask it to stop, as a signal would, and wait until it has."""
        self.server.should_exit = True
        self.thread.join(self.app.gateway.settings.server.shutdown_grace + 3 * PATIENCE)
        assert not self.thread.is_alive()


@contextmanager
def running_gateway(settings: Settings, way: str = "direct") -> Generator[RunningGateway]:
    """`way`: how a request reaches the gateway, one of `WAYS`; the second is that of every other ASGI server."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listener.setblocking(False)
    app = create_app(settings)
    if way == "asgi":
        app.directly.clear()
    server = make_server(app, settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    gateway = RunningGateway(f"http://127.0.0.1:{listener.getsockname()[1]}", app, server, thread)
    try:
        wait_until(lambda: server.started)
        yield gateway
    finally:
        gateway.stop()
        listener.close()


@contextmanager
def connection(gateway: RunningGateway) -> Generator[http.client.HTTPConnection]:
    """A plain HTTP client that hides nothing: bytes can be read as they come."""
    client = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=30)
    try:
        yield client
    finally:
        client.close()


def one_upstream(url: str, kind: str, **more: object) -> Settings:
    """Settings with one upstream of this kind at `url` (no path), and short times."""
    base = url if kind == "messages" else f"{url}/v1"
    upstream = structs.replace(
        UpstreamSettings(kind="chat", base_url=base, api_key="upstream-key"), kind=kind
    )
    server = ServerSettings(shutdown_grace=0.3)
    settings = Settings(server=server, upstreams={"scripted": upstream})
    return structs.replace(settings, **more)


def wait_until(is_true: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Fails if it takes too long. It looks less and less often: what it asks for may cost a request."""
    until = time.monotonic() + patience
    pause = 0.001
    while not is_true():
        assert time.monotonic() < until, "waited too long"
        time.sleep(pause)
        pause = min(1.2 * pause, 0.03)
