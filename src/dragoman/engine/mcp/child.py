"""A server that is started here and spoken to by its pipes: one JSON message a line, both ways.

The SDK has such a transport too. This one bounds the length of a line, takes no offence at lines that are no messages,
reads what the server says on its standard error, and leaves nothing behind: a server and all that it has started are one
process group, which is ended whole even if the server itself went quietly.
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError, jsonrpc_message_adapter

from dragoman._json import as_object, dumps_document, loads
from dragoman.engine.mcp.ending import MAX_MESSAGE_BYTES, Ending
from dragoman.engine.mcp.settings import McpServerSettings
from dragoman.errors import ConfigError, MalformedJson

__all__ = ("child_environment", "open_child")

logger = logging.getLogger(__name__)

# A server of the SDK ends some 100 ms after its input does; one in Java or behind a launcher takes longer.
END_SECONDS = 1.0
TERMINATE_SECONDS = 0.5
KILL_SECONDS = 2.0
POLL_SECONDS = 0.01
# A server that is gone while something it has started holds its pipes is noticed by this.
WATCH_SECONDS = 0.5
# Between the end of its output and that of the process: for the exit status in the message.
STATUS_SECONDS = 0.5

# What a server says beside its protocol is for the log: lines of a life, and the length of one.
MAX_LOGGED_LINES = 1000
MAX_LOGGED_CHARS = 500
_READ_BYTES = 64 * 1024

_Incoming = SessionMessage | Exception
_Streams = tuple[MemoryObjectReceiveStream[_Incoming], MemoryObjectSendStream[SessionMessage]]


def child_environment(settings: McpServerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """What a server inherits: the little that every program needs, and what its settings name.

    Raises:
        ConfigError: a variable it is to inherit is not set.
    """
    inherited = get_default_environment()
    for name in settings.env_from:
        if name not in environ:
            raise ConfigError(f"the environment variable {name} is not set")
        inherited[name] = environ[name]
    return inherited | settings.env


@asynccontextmanager
async def open_child(settings: McpServerSettings, ending: Ending) -> AsyncGenerator[_Streams, None]:
    """Start it; leaving the context ends it, and waits until nothing of it is left.

    Raises:
        ConfigError: it cannot be started.
    """
    transport, protocol = await _spawn(settings)
    # no await until the group is entered: a cancellation here would leave the process behind
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
            yield incoming, outgoing
        finally:
            # nobody reads any more: the reader drains, so that a server that writes can come to its end
            incoming.close()
            outgoing.close()
            try:
                with anyio.CancelScope(shield=True):
                    await child.end()
            except BaseException:
                child.signal(signal.SIGKILL)
                raise
            finally:
                # what has left the group may hold the pipes: they are not waited for
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
    """The process and its pipes. Each of its tasks ends when the process does."""

    def __init__(self, process: Process, name: str, ending: Ending) -> None:
        assert process.stdin is not None  # noqa: S101 - asked for
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
                pass  # the session is gone, and only draining remains
            except ValueError:
                mebibytes = MAX_MESSAGE_BYTES // 2**20
                self._ending.tell(f"sent a message of more than {mebibytes} MiB")
            except OSError as error:
                self._ending.tell(f"cannot be heard any more: {error}")
            else:
                await self._exited(STATUS_SECONDS)
                self._ending.tell(self._how_it_ended(), self._last_words)
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
        await anyio.sleep(STATUS_SECONDS)  # what it has said is still being read
        self._ending.tell(self._how_it_ended(), self._last_words)
        messages.close()

    def _log(self, where: str, line: bytes) -> None:
        # Hidden before it is cut: half of a secret would not be found.
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
        """To all of its group; False if none of it is left. The leader's id is the group's: it has its own session."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    async def end(self) -> None:
        """Close its input, which is how the protocol ends a server; then ask; then kill. Never longer than the sum."""
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
        # `Process.wait` waits for the ends of its pipes too, and those may be held by what it has started
        with anyio.move_on_after(seconds):
            await _until(lambda: self._process.returncode is not None, POLL_SECONDS)
        return self._process.returncode is not None

    async def _gone(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await _until(lambda: not self.signal(0), POLL_SECONDS)


def _refusal(line: bytes) -> JSONRPCError | None:
    """For an answer that is none: an error in its place, so that whoever waits for it does not wait in vain."""
    try:
        fields = as_object(line)
        number: object = loads(bytes(fields["id"]))
    except (MalformedJson, KeyError):
        return None
    if "method" in fields or not isinstance(number, int | str):
        return None
    error = ErrorData(code=INVALID_REQUEST, message="an answer that the protocol does not allow")
    return JSONRPCError(jsonrpc="2.0", id=number, error=error)


async def _until(is_so: Callable[[], bool], pause: float) -> None:
    # neither the end of a process nor that of a group is told in a way that works everywhere
    while not is_so():  # noqa: ASYNC110
        await anyio.sleep(pause)
