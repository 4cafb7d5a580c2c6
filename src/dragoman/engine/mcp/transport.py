"""Connections to a server: a child process that is started here and uses its pipes, or streamable HTTP.

A child exchanges one JSON message per line. The SDK has such a transport too; this one limits the length of a line, skips lines
that are not messages, reads the server's standard error, and leaves no process behind: a server and everything that it started
are one process group, which is ended as a whole even if the server itself ended without an error.

HTTP uses the SDK's transport, with size and time limits that are set here. Both record in `ConnectionEnd` why the connection
ended.
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError, jsonrpc_message_adapter

from dragoman._json import as_object, dumps_document, loads
from dragoman.config.mcp import check_header_value
from dragoman.config.settings import McpServerSettings
from dragoman.core.secrets import NO_SECRETS, Secrets
from dragoman.errors import ConfigError, MalformedJson

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""One message of a server: the largest images that providers accept have some 7 MB as base64."""


class ConnectionEnd:
    """Why a connection ended. Only the first reason is kept: later ones are its consequences.

    `reason` continues a sentence after the server's name: `ended with exit status 1`. `detail` is for the operator only: the
    last output of a server may contain text that no model should read. Hide `secrets` in foreign text before setting it.

    The SDK does not report two facts about HTTP: `status` of the last refused request, and `is_forgotten`: the server does not
    know our session any more.
    """

    def __init__(self, secrets: Secrets = NO_SECRETS) -> None:
        self.secrets = secrets
        self.reason = ""
        self.detail = ""
        self.status: int | None = None
        self.is_forgotten = False
        self._is_set = asyncio.Event()

    @property
    def is_known(self) -> bool:
        return self._is_set.is_set()

    def set(self, reason: str, detail: str = "") -> None:
        """Record why the connection ended, unless a reason is already recorded."""
        if not self.is_known:
            self.reason = reason
            self.detail = detail
            self._is_set.set()

    async def wait(self) -> None:
        await self._is_set.wait()


logger = logging.getLogger(__name__)

# A server built with the SDK ends some 100 ms after its input closes; a server in Java or behind a launcher takes longer.
END_SECONDS = 1.0
TERMINATE_SECONDS = 0.5
KILL_SECONDS = 2.0
POLL_SECONDS = 0.01
# How often we check whether a server has ended: a child of it may hold its pipes open.
WATCH_SECONDS = 0.5
# Time between the end of its output and the end of the process, to have the exit status for the message.
STATUS_SECONDS = 0.5

# Output of a server outside the protocol is logged: lines of one connection, and characters of a line.
MAX_LOGGED_LINES = 1000
MAX_LOGGED_CHARS = 500
_READ_BYTES = 64 * 1024

_Incoming = SessionMessage | Exception
_Streams = tuple[MemoryObjectReceiveStream[_Incoming], MemoryObjectSendStream[SessionMessage]]


def child_environment(settings: McpServerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server: the few variables that every program needs, and those that its settings name.

    Raises:
        ConfigError: a variable that the settings name is not set.
    """
    inherited = get_default_environment()
    for name in settings.env_from:
        if name not in environ:
            raise ConfigError(f"the environment variable {name} is not set")
        inherited[name] = environ[name]
    return inherited | settings.env


@asynccontextmanager
async def open_child(
    settings: McpServerSettings, ending: ConnectionEnd
) -> AsyncGenerator[_Streams, None]:
    """Start a server. Leaving the context ends the server, and waits until none of its processes is left.

    Raises:
        ConfigError: the server cannot be started.
    """
    starting = asyncio.ensure_future(_spawn(settings))
    cancellation: asyncio.CancelledError | None = None
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError as error:
        # asyncio would leave behind its own task that connects the pipes: let it end, then end the process
        cancellation = error
    transport, protocol = await starting
    # no await before the group is entered: a cancellation would leave the process behind
    incoming_end, incoming = anyio.create_memory_object_stream[_Incoming](0)
    outgoing, outgoing_end = anyio.create_memory_object_stream[SessionMessage](0)
    process = Process(transport, protocol, asyncio.get_running_loop())
    child = _Child(process, settings.name, ending)
    async with anyio.create_task_group() as group:
        group.start_soon(child.read, incoming_end)
        group.start_soon(child.write, outgoing_end)
        group.start_soon(child.read_errors)
        group.start_soon(child.watch, incoming_end)
        try:
            if cancellation is not None:
                child.signal(signal.SIGKILL)
                raise cancellation
            yield incoming, outgoing
        finally:
            # the session no longer reads messages; the reader drains the output, so that a server that is writing can end
            incoming.close()
            outgoing.close()
            try:
                with anyio.CancelScope(shield=True):
                    await child.end()
            except BaseException:
                child.signal(signal.SIGKILL)
                raise
            finally:
                # do not wait for processes that left the group, which may hold the pipes open
                transport.close()
                group.cancel_scope.cancel()
                for stream in (incoming_end, outgoing_end):
                    stream.close()


async def _spawn(
    settings: McpServerSettings,
) -> tuple[asyncio.SubprocessTransport, SubprocessStreamProtocol]:
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(limit=MAX_MESSAGE_BYTES, loop=loop),
            *settings.command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=child_environment(settings, os.environ),
            cwd=settings.cwd,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        missing = settings.command[0]
        if settings.cwd is not None and str(error.filename) == settings.cwd:
            missing = settings.cwd
        raise ConfigError(f"cannot be started: there is no {missing!r}") from error
    except OSError as error:
        raise ConfigError(f"cannot be started: {error.strerror or error}") from error
    return transport, protocol


class _Child:
    """The process and its pipes. Each of its tasks ends with the process."""

    def __init__(self, process: Process, name: str, ending: ConnectionEnd) -> None:
        assert process.stdin is not None  # noqa: S101 - `_spawn` requests all three pipes
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._process = process
        self._name = name
        self._ending = ending
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr
        self._logged = 0
        self._last_words = ""

    async def read(self, messages: MemoryObjectSendStream[_Incoming]) -> None:
        with messages:
            try:
                await self._read_lines(messages)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the session has ended; only drain the output
            except ValueError:
                mebibytes = MAX_MESSAGE_BYTES // 2**20
                self._ending.set(f"sent a message of more than {mebibytes} MiB")
            except OSError as error:
                self._ending.set(f"cannot be read any more: {error}")
            else:
                await self._exited(STATUS_SECONDS)
                self._ending.set(self._how_it_ended(), self._last_words)
        with suppress(OSError):
            while await self._stdout.read(_READ_BYTES):
                pass

    async def _read_lines(self, messages: MemoryObjectSendStream[_Incoming]) -> None:
        while line := await self._stdout.readline():
            if not line.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                self._log("standard output", line)
                refusal = _refusal(line)
                if refusal is None:
                    continue
                message = refusal
            await messages.send(SessionMessage(message))

    async def write(self, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
        with messages, suppress(OSError):
            async for each in messages:
                document = each.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
                self._stdin.write(dumps_document(document) + b"\n")
                await self._stdin.drain()

    async def read_errors(self) -> None:
        rest = b""
        with suppress(OSError):
            while data := await self._stderr.read(_READ_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[: 2 * MAX_LOGGED_CHARS]
                for line in lines:
                    self._log("standard error", line)
        self._log("standard error", rest)

    async def watch(self, messages: MemoryObjectSendStream[_Incoming]) -> None:
        await _until(lambda: self._process.returncode is not None, WATCH_SECONDS)
        await anyio.sleep(STATUS_SECONDS)  # its output is still being read
        self._ending.set(self._how_it_ended(), self._last_words)
        messages.close()

    def _log(self, where: str, line: bytes) -> None:
        # Hide secrets before cutting: half of a secret would not be found.
        text = line[: 2 * MAX_LOGGED_CHARS].decode("utf-8", "replace").strip()
        text = self._ending.secrets.hide(text)[:MAX_LOGGED_CHARS]
        if not text:
            return
        if where == "standard error":
            self._last_words = text
        self._logged += 1
        if self._logged <= MAX_LOGGED_LINES:
            logger.debug("MCP server %s, %s: %s", self._name, where, text)

    def _how_it_ended(self) -> str:
        code = self._process.returncode
        if code is None:
            return "closed its output"
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"

    def signal(self, number: int) -> bool:
        """Signal the whole group, whose id is that of its leader. Returns False if no process of it is left."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    async def end(self) -> None:
        """End the server: close its input, as the protocol says; then SIGTERM; then SIGKILL. Each step has a time limit."""
        self._stdin.close()
        await self._exited(END_SECONDS)
        if self.signal(signal.SIGTERM):
            await self._gone(TERMINATE_SECONDS)
        self.signal(signal.SIGKILL)
        if not await self._exited(KILL_SECONDS):
            logger.warning(
                "MCP server %s: process %d cannot be ended", self._name, self._process.pid
            )

    async def _exited(self, seconds: float) -> bool:
        # `Process.wait` also waits for the pipes to close, and children of the server may hold them open
        with anyio.move_on_after(seconds):
            await _until(lambda: self._process.returncode is not None, POLL_SECONDS)
        return self._process.returncode is not None

    async def _gone(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await _until(lambda: not self.signal(0), POLL_SECONDS)


def _refusal(line: bytes) -> JSONRPCError | None:
    """An error in place of an invalid answer, so that the waiting caller gets an answer."""
    try:
        fields = as_object(line)
        number: object = loads(bytes(fields["id"]))
    except (MalformedJson, KeyError):
        return None
    if "method" in fields or not isinstance(number, (int, str)) or isinstance(number, bool):
        return None
    error = ErrorData(code=INVALID_REQUEST, message="an answer that the protocol does not allow")
    return JSONRPCError(jsonrpc="2.0", id=number, error=error)


async def _until(is_so: Callable[[], bool], pause: float) -> None:
    # no notification of the end of a process or a group works on all systems
    while not is_so():  # noqa: ASYNC110
        await anyio.sleep(pause)


CONNECT_SECONDS = 10.0
# For the request that ends a session. After this time the connection is closed even if the server has not answered.
GOODBYE_SECONDS = 2.0
# The SDK sends nothing else until the server has acknowledged a notification, which takes a server almost no time.
NOTICE_SECONDS = 10.0
_NOTICE = b'{"jsonrpc":"2.0","method":"notifications/'
# Added to the limit of a call, so that the call's own limit ends first and is reported.
CALL_GRACE = 30.0


def http_headers(settings: McpServerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The headers of every request to the server.

    Raises:
        ConfigError: a variable for a header is not set, or its value is not a valid header.
    """
    headers = dict(settings.headers)
    for header, name in settings.headers_from.items():
        if name not in environ:
            raise ConfigError(f"the environment variable {name} is not set")
        check_header_value(header, environ[name], "headers_from")
        headers[header] = environ[name]
    return headers


def http_client(
    settings: McpServerSettings, ending: ConnectionEnd, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    """An HTTP client for one server; the caller enters and leaves it. The client records refusals in `ending`."""
    address = httpx2.URL(settings.url)
    headers = http_headers(settings, os.environ)
    # a compressed body could have any size when it is decompressed
    headers["accept-encoding"] = "identity"

    async def note_refusal(response: httpx2.Response) -> None:
        # the SDK does not report the status; a server without notifications may refuse a GET
        request = response.request
        is_login = request.url.host != address.host or request.url.path != address.path
        if not response.is_error or request.method != "POST" or is_login:
            return
        ending.status = response.status_code
        # the protocol defines this status as an unknown session, whatever the body says
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            ending.is_forgotten = True

    return httpx2.AsyncClient(
        headers=headers,
        auth=auth,
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=settings.call_timeout + CALL_GRACE),
        event_hooks={"request": [_set_times], "response": [note_refusal, _bound]},
    )


async def _set_times(request: httpx2.Request) -> None:
    times = dict(request.extensions.get("timeout") or {})
    if request.method == "GET":  # the stream of notifications, which may be silent for days
        times["read"] = None
    elif request.method == "POST" and request.content.startswith(_NOTICE):
        times["read"] = NOTICE_SECONDS
    elif request.method == "DELETE":
        times = dict.fromkeys(("connect", "read", "write", "pool"), GOODBYE_SECONDS)
    request.extensions = {**request.extensions, "timeout": times}


async def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise httpx2.RemoteProtocolError(
            "expected a body that is not compressed", request=response.request
        )
    # the SDK bounds events itself
    if not response.headers.get("content-type", "").startswith("text/event-stream") and isinstance(
        response.stream, httpx2.AsyncByteStream
    ):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    """A body that is limited to the length of a message."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for data in self._stream:
            count += len(data)
            if count > MAX_MESSAGE_BYTES:
                # the SDK passes this kind of error to the waiting call
                raise httpx2.StreamError(f"a message of more than {MAX_MESSAGE_BYTES // 2**20} MiB")
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()
