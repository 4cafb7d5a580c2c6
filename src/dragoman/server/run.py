"""`dragoman serve`: the gateway in uvicorn, in one process or several."""

import asyncio
import functools
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn

from dragoman.errors import ConfigError
from dragoman.server.app import App, create_app
from dragoman.server.config_trust import plain_http
from dragoman.server.logs import configure_logging
from dragoman.server.masking import secrets_of
from dragoman.server.protocol import GatewayProtocol
from dragoman.server.settings import Settings
from dragoman.server.shared_metrics import shared_metrics
from dragoman.server.workers import supervise

__all__ = ("Server", "make_server", "serve")

logger = logging.getLogger(__name__)

# After the grace the gateway ends what is open itself; this much later uvicorn cancels what is left.
_LAST_RESORT = 5
# Above the minute after which load balancers drop idle connections: they, not we, should be the ones to close.
_IDLE_SECONDS = 75
_BACKLOG = 2048


class Server(uvicorn.Server):
    """uvicorn's server; its shutdown gives the gateway its grace before connections are cut."""

    def __init__(self, config: uvicorn.Config, app: App) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """As uvicorn does, but a signal that has ended the server is done with: the process exits with 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        stopping = asyncio.create_task(self._app.gateway.stop())
        await super().shutdown(sockets)
        await stopping


def make_server(app: App, settings: Settings) -> Server:
    """A server for an application, not yet started."""
    server = settings.server
    config = uvicorn.Config(
        app,
        host=server.host,
        port=server.port,
        http=GatewayProtocol,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=int(server.shutdown_grace) + _LAST_RESORT,
        backlog=_BACKLOG,
    )
    return Server(config, app)


def serve(settings: Settings, announce: Callable[[str], None] | None = None) -> int:
    """Serve until a signal ends it. The exit code.

    announce: told the address once it is listened on.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    listener = _listen(settings.server.host, settings.server.port)
    with listener:
        if announce is not None:
            announce(_address(settings.server.host, listener.getsockname()[1]))
        workers = settings.server.workers
        if workers > 1:
            with shared_metrics():
                return supervise(functools.partial(_work, settings), listener, workers)
        _work(settings, listener)
    return 0


def _work(settings: Settings, listener: socket.socket) -> None:
    """One process's share: all of it, or that of a worker."""
    configure_logging(settings.log, secrets=secrets_of(settings, os.environ))
    for sentence in plain_http(settings):
        logger.warning("%s", sentence)
    app = create_app(settings)
    # What was made until now lives for ever: collections need not look at it. The small objects of streams die by
    # themselves; the default of 700 new ones would start a collection several times per request.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    make_server(app, settings).run(sockets=[listener])


def _address(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"expected to listen on {host}:{port}; {error.strerror or error} (server.host, server.port)"
        ) from error
    listener.listen(_BACKLOG)
    listener.setblocking(False)  # noqa: FBT003 - the only way to call it
    return listener
