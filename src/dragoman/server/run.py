"""`dragoman serve`: the gateway in uvicorn, in one process or several."""

import asyncio
import ctypes
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Protocol, TextIO

import uvicorn

from dragoman.config.check import warnings_of
from dragoman.config.secrets import secrets_of
from dragoman.config.settings import ServerSettings, Settings
from dragoman.config.trust import plain_http
from dragoman.errors import ConfigError
from dragoman.server.app import App, create_app
from dragoman.server.connect import gateway_url
from dragoman.server.http.protocol import GatewayProtocol
from dragoman.server.http.websocket import WEBSOCKET_ROOM, WebSocketProtocol
from dragoman.server.observe.logs import configure_logging
from dragoman.server.observe.metrics import shared_metrics
from dragoman.server.reload import OnReload, ReloadSignals, SignalledChanges, Source
from dragoman.server.running import find_gateway
from dragoman.server.workers import Supervisor, WorkerChanges

logger = logging.getLogger(__name__)

# After the grace period the gateway ends open requests itself; this many seconds later uvicorn cancels the rest.
_LAST_RESORT = 5
_BACKLOG = 2048
_SLICES = 10  # ticks in which all connections are checked once
# Seconds that a thread may compute while the event loop is ready to run. The loop becomes ready several times for each
# small request, so Python's default of 5 ms would make such a request take three times as long.
_SWITCH_INTERVAL = 0.001
# mallopt(3), by the numbers of malloc.h: M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD. The last two are glibc's own
# defaults; an explicit value does not change later.
_MALLOC_OPTIONS = {-8: 1, -3: 128 * 1024, -1: 128 * 1024}
_START_POLL = 0.01  # seconds between two looks whether the server has started


# The first descriptor that a service manager passes, and the variables that describe them: sd_listen_fds(3).
_FIRST_PASSED = 3
_PASSED_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class ServerChanges(Protocol):
    """Who asks a server to change while it runs. The server asks for work ten times a second, one piece at a time."""

    def take(self, server: "Server") -> Coroutine[object, object, None] | None: ...


class Server(uvicorn.Server):
    """uvicorn's server; its shutdown waits for the gateway's grace period before connections are cut."""

    def __init__(
        self, config: uvicorn.Config, app: App, changes: ServerChanges | None = None
    ) -> None:
        super().__init__(config)
        self._app = app
        self._changes = changes
        self._changing: asyncio.Task[None] | None = None
        self._to_check: list[object] = []
        self._slice = 0
        self._is_out_of_handles = False

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """As in uvicorn, but the signal that ended the server is not raised again: the process exits with 0."""
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

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: check the times of a tenth of the connections, so that no check blocks the loop for long."""
        if not self._to_check:
            self._to_check = list(self.server_state.connections)
            self._slice = len(self._to_check) // _SLICES + 1
        now = asyncio.get_running_loop().time()
        due, self._to_check = self._to_check[: self._slice], self._to_check[self._slice :]
        for connection in due:
            if isinstance(connection, (GatewayProtocol, WebSocketProtocol)):
                self._check_times(connection, now)
        if counter % _SLICES == 0:
            self._check_handles()
        if self._changes is not None and (self._changing is None or self._changing.done()):
            work = self._changes.take(self)
            self._changing = None if work is None else asyncio.create_task(work)
        return await super().on_tick(counter)

    @property
    def settings(self) -> Settings:
        """The settings by which new requests are served."""
        return self._app.gateway.settings

    async def change(self, settings: Settings) -> None:
        """Serve new requests by other settings, with the same address and number of workers.

        Raises:
            ConfigError: the settings are invalid; nothing has changed.
        """
        await self._app.reload(settings)
        self.config.ws_max_size = WEBSOCKET_ROOM * settings.server.max_body_bytes
        self.config.timeout_graceful_shutdown = int(settings.server.shutdown_grace) + _LAST_RESORT
        configure_logging(settings.log, None, self._app.gateway.inspector.secrets)
        _warn(settings)
        logger.info(
            "the configuration was read again; %d running requests keep the earlier settings",
            self._app.open_streams,
        )

    def _check_times(self, connection: GatewayProtocol | WebSocketProtocol, now: float) -> None:
        """Check the times of one connection. An exception would end the main loop, and with it the server."""
        try:
            connection.check_times(now)
        except Exception:
            logger.exception("the times of a connection could not be checked; it is closed")
            connection.transport.abort()

    def _check_handles(self) -> None:
        """Log when the process has run out of file handles, and when handles are available again.

        uvloop silently closes connections for which it has no handle.
        """
        was_out, self._is_out_of_handles = self._is_out_of_handles, not _has_handle()
        if self._is_out_of_handles and not was_out:
            logger.error(
                "no file handles left with %d client connections open: new connections are closed at once, and "
                "upstreams cannot be reached; raise the limit of open files (ulimit -n)",
                len(self.server_state.connections),
            )
        elif was_out and not self._is_out_of_handles:
            logger.warning("file handles are available again")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info(
            "stopping; %d streams are open and have %g seconds",
            self._app.open_streams,
            self.settings.server.shutdown_grace,
        )
        stopping = asyncio.create_task(self._app.stop())
        await super().shutdown(sockets)
        await stopping

    async def _wait_tasks_to_complete(self) -> None:
        # Connections that were accepted in the moment in which the server stopped to accept have not been asked to end.
        for connection in list(self.server_state.connections):
            if isinstance(connection, GatewayProtocol):
                connection.shutdown()
        await super()._wait_tasks_to_complete()


def make_server(app: App, settings: Settings, changes: ServerChanges | None = None) -> Server:
    """A server for an application, not yet started."""
    server = settings.server
    config = uvicorn.Config(
        app,
        host=server.host,
        port=server.port,
        http=GatewayProtocol,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        ws="none",  # `GatewayProtocol` chooses the protocol of a WebSocket
        ws_max_size=WEBSOCKET_ROOM * server.max_body_bytes,
        ws_per_message_deflate=False,
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(server.shutdown_grace) + _LAST_RESORT,
        backlog=_BACKLOG,
    )
    return Server(config, app, changes)


def serve(
    settings: Settings, source: Source, announce: Callable[[str], None], report: OnReload
) -> int:
    """Serve until a signal ends the server. Returns the exit code.

    source: where the settings come from, to read them again. announce: called with the address once the server listens.
    report: called with what came of each reload and restart.

    Raises:
        ConfigError: the server cannot listen on the address.
    """
    listener = passed_listener() or _listen(settings.server)
    with listener:
        for name in _PASSED_VARIABLES:
            os.environ.pop(name, None)  # they are not for the programs that are started here
        signals = ReloadSignals()
        signals.listen()
        announce(_address(settings.server.host, listener.getsockname()[1]))
        if settings.server.workers > 1:
            with shared_metrics():
                return Supervisor(_serve_socket, listener, source, report).run(settings, signals)
        _serve_socket(settings, listener, SignalledChanges(signals, source, report))
    return 0


@contextmanager
def serving(settings: Settings, log: TextIO) -> Generator[str]:
    """Serve in a thread of this process while the context lasts, with its log in a stream. Yields the address.

    Raises:
        ConfigError: the server cannot listen on the address, or cannot start; the log says why.
    """
    with _listen(settings.server) as listener:
        server = _prepare(settings, log)
        # A thread of the gateway must not keep a process alive whose main thread has ended.
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="gateway", daemon=True
        )
        thread.start()
        try:
            while not server.started:
                thread.join(_START_POLL)
                if not thread.is_alive():
                    raise ConfigError(
                        f"expected the gateway to start, it did not; its log says why: {log.name}"
                    )
            yield _address(settings.server.host, listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(settings.server.shutdown_grace + 2 * _LAST_RESORT)


def _serve_socket(
    settings: Settings, listener: socket.socket, changes: SignalledChanges | WorkerChanges
) -> None:
    """Serve in this process: the only one, or a worker."""
    _prepare(settings, changes=changes).run(sockets=[listener])


def _warn(settings: Settings) -> None:
    for warning in (*warnings_of(settings), *plain_http(settings)):
        logger.warning("%s", warning)


def _prepare(
    settings: Settings, log: TextIO | None = None, changes: ServerChanges | None = None
) -> Server:
    """A server, and a process that is ready for it. `log`: standard error by default."""
    configure_logging(settings.log, log, secrets_of(settings, os.environ))
    _raise_handles()
    _return_memory()
    _warn(settings)
    app = create_app(settings)
    # Objects made until now live forever, so collections need not visit them. Reference counts free the small objects of
    # streams; the default of 700 new objects would start a collection several times per request.
    gc.collect()
    gc.freeze()
    # Cycles that survive the first collections wait for a full one: with these numbers there are at most two million objects.
    gc.set_threshold(10_000, 20, 10)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    return make_server(app, settings, changes)


def _has_handle() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def _raise_handles() -> None:
    """Raise the limit of open files as far as allowed: the usual 1,024 are below `max_streams`, and a stream needs two."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - not available on Windows

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS allows fewer than it reports
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _return_memory() -> None:
    """Have glibc's malloc give the memory of large values back to the system when they are freed.

    By default each thread allocates from an arena of its own, and glibc raises the size from which a value gets pages of its own
    with every such value that is freed. So large bodies soon lie between small values, and what they leave behind fits few others:
    under the load of `make soak` a gateway took 100 MiB after 9,000 exchanges and 20 more every hour, with these settings 74.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl has none, and needs none
        for option, value in _MALLOC_OPTIONS.items():
            mallopt(option, value)


def _address(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def passed_listener() -> socket.socket | None:
    """The listening socket that a service manager passed to this process; None if there is none.

    Raises:
        ConfigError: it passed something else than one listening TCP socket.
    """
    count = os.environ.get("LISTEN_FDS", "")
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or not count.isdecimal() or count == "0":
        return None
    with suppress(OSError):
        # A duplicate: this function may be called again.
        listener = socket.socket(fileno=os.dup(_FIRST_PASSED))
        if (
            count == "1"
            and listener.family in (socket.AF_INET, socket.AF_INET6)
            and listener.type == socket.SOCK_STREAM
            and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        ):
            listener.setblocking(False)  # noqa: FBT003 - the only way to call it
            return listener
        listener.close()
    raise ConfigError(
        f"expected one listening TCP socket of the service manager; LISTEN_FDS says {count} (ListenStream= of the socket unit)"
    )


def _why_not(error: OSError, url: str) -> str:
    """Why a port cannot be listened on, and what to do. `url`: where a gateway that has the port answers."""
    if error.errno != errno.EADDRINUSE:
        return f"which is not possible: {error.strerror or error} (server.host, server.port)"
    other = "choose another port: --port, server.port"
    if find_gateway(url) is None:
        return f"but another program does; stop it, or {other}"
    return f"but a gateway already runs there; use it (dragoman connect), stop it, or {other}"


def _listen(server: ServerSettings) -> socket.socket:
    host, port = server.host, server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"expected to listen on {host}:{port}, {_why_not(error, gateway_url(server))}"
        ) from error
    listener.listen(_BACKLOG)
    listener.setblocking(False)  # noqa: FBT003 - the only way to call it
    return listener
