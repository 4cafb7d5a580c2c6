"""One running `codex app-server`: its handshake, requests in both directions, and the turn of each message.

A child serves many threads at once over one pipe. It lives from `start` until it ends by itself or by `close`; open
requests and turns then fail. `upstream.ChildSupervisor` decides when to start another child.

A thread is started without Codex's own tools and without access to this machine (`thread_params`). The operator's MCP servers
in Codex would offer their tools to the model and run them here, so each is switched off by name. Codex's own retries are
switched off where that is allowed: Codex repeats an answer after parts of it were sent, and the gateway has its own
policy. Then the app-server should send no requests but calls of the client's tools. Any other request is declined:
never granted, and never left open, because the turn would wait for ever (`decline`).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import cast

from msgspec import Struct

from dragoman._json import Raw, as_object, loads
from dragoman.dialects.codex import SWITCHED_OFF
from dragoman.errors import FrameTooLarge, MalformedJson, UpstreamError
from dragoman.upstream.codex import jsonrpc
from dragoman.upstream.codex.jsonrpc import (
    MAX_LINE_BYTES,
    LineSplitter,
    Message,
    answer,
    object_of,
    read_message,
    refusal,
    text_of,
)
from dragoman.upstream.codex.process import GRACE_SECONDS, Process, StderrLog, spawn
from dragoman.upstream.codex.turn import TOOL_CALL, CodexTurn
from dragoman.upstream.rate_limits import LARGEST

logger = logging.getLogger(__name__)

# The child answers its own methods within milliseconds; a child that does not answer at all is ended.
RPC_SECONDS = 30.0
LIMITS_UPDATED = "account/rateLimits/updated"
_CLIENT_INFO = {"name": "dragoman", "title": "Dragoman", "version": "1"}
_CAPABILITIES = {"experimentalApi": True, "requestAttestation": False}
_NO_THREAD = -32602
METHOD_NOT_FOUND = -32601
# Kind and status by the code of a refusal.
_REFUSALS: Mapping[int, tuple[str, int]] = {
    -32001: ("overloaded", 503),
    -32600: ("invalid_request", 400),
    METHOD_NOT_FOUND: ("invalid_request", 400),
}
# A program that does not speak the protocol may print a lot.
_GARBAGE_SHOWN = 5
_EXCERPT = 200

_Result = dict[str, Raw]


class Launch(Struct, frozen=True, kw_only=True):
    """How a child is started. `folder`: returns an empty folder, so that Codex has nothing to read or change.

    limits_interval: seconds between two reads of the account's limits. on_limits: called with each report of them, as headers.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Callable[[], str]
    patience: float
    limits_interval: float = 60.0
    on_limits: Callable[[Mapping[str, str]], None] | None = None


class Child:
    """Made by `Child.start`. `ended` is set when the child is gone; `turns`: the running and waiting turns, by thread."""

    def __init__(self, launch: Launch, process: Process) -> None:
        self.turns: dict[str, CodexTurn] = {}
        self.ended = asyncio.Event()
        self.limits: bytes | None = None
        self.agent = ""
        self.overrides: dict[str, object] = {}
        self._name = launch.name
        self._limits_interval = launch.limits_interval
        self._notify_limits = launch.on_limits
        self._used = asyncio.Event()  # set by each request, cleared when the limits are read
        self._polling: asyncio.Task[None] | None = None
        self._process = process
        self._numbers = 0
        self._asked: dict[bytes, asyncio.Future[Message]] = {}  # by the id of the request
        self._late: dict[bytes, Callable[[Message], None]] = {}
        self._stderr = StderrLog()
        self._garbage = 0
        self._tasks = [
            asyncio.create_task(self._read_output()),
            asyncio.create_task(self._log_stderr()),
            asyncio.create_task(self._watch_process()),
        ]

    @classmethod
    async def start(cls, launch: Launch) -> "Child":
        """Start a child and complete the handshake.

        Raises:
            UpstreamError: the child cannot be started, or does not speak the protocol in time.
        """
        process = await spawn(launch.name, launch.command, launch.environment, launch.folder())
        child = cls(launch, process)
        is_ready = False
        try:
            async with asyncio.timeout(launch.patience):
                await child._handshake()
            child._polling = asyncio.create_task(child._poll_limits())
            is_ready = True
        except TimeoutError as error:
            raise child._fault(
                f"did not answer the handshake within {launch.patience:g} s", "timeout"
            ) from error
        finally:
            if not is_ready:
                await child.close(0.0)
        return child

    @property
    def end(self) -> UpstreamError:
        """The error that says how the child ended; its detail has the last lines of its standard error."""
        return self._fault(self._process.how_it_ended, "upstream")

    async def request(
        self, method: str, params: object, on_late: Callable[[Message], None] | None = None
    ) -> _Result:
        """Send a request to the child; return the result.

        on_late: called with an answer that comes after the caller stopped waiting.

        Raises:
            UpstreamError: the child refuses, has ended, or does not answer.
        """
        self._used.set()
        return await self._ask(method, params, on_late)

    async def _ask(
        self,
        method: str,
        params: object,
        on_late: Callable[[Message], None] | None = None,
        *,
        is_vital: bool = True,
    ) -> _Result:
        """`is_vital`: a child that does not answer this is ended."""
        if self.ended.is_set():
            raise self._lost()
        self._numbers += 1
        number = b"%d" % self._numbers
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._process.write(jsonrpc.request(self._numbers, method, params))
        is_taken = False
        try:
            async with asyncio.timeout(RPC_SECONDS):
                await self._process.drain()
                message = await future
            is_taken = True
        except TimeoutError as error:
            if is_vital:
                self._process.kill()
            raise self._fault(
                f"did not answer {method} within {RPC_SECONDS:g} s", "timeout"
            ) from error
        finally:
            del self._asked[number]
            if on_late is not None and not is_taken:
                self._expect_late(number, future, on_late)
        if message.is_error:
            raise self._refused(method, *message.error())
        return message.result()

    def _expect_late(
        self, number: bytes, future: "asyncio.Future[Message]", on_late: Callable[[Message], None]
    ) -> None:
        """Pass on the answer to a request whose caller has stopped waiting: when it comes, or now if it came in that moment."""
        # Cancelling a task that waits for a future cancels the future too.
        if not future.done() or future.cancelled():
            self._late[number] = on_late
        elif future.exception() is None:
            with suppress(MalformedJson):
                on_late(future.result())

    def write(self, line: bytes) -> None:
        self._process.write(line)

    def interrupt(self, thread_id: str, turn_id: str) -> None:
        """Stop a turn; the answer of the child is ignored."""
        self._notify("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})

    def release(self, thread_id: str) -> None:
        """Forget a thread; without a subscriber the child forgets it too."""
        self.turns.pop(thread_id, None)
        self._notify("thread/unsubscribe", {"threadId": thread_id})

    async def close(self, grace: float | None = None) -> None:
        """End the child, and wait until it has ended."""
        self._stop_polling()
        await self._process.end(GRACE_SECONDS if grace is None else grace)
        done, _ = await asyncio.wait(self._tasks)
        for error in filter(None, (task.exception() for task in done)):
            # A bug here. Raised, it would end the supervising task, and every later request would wait for ever.
            logger.error("%s: its output cannot be handled", self._command_words(), exc_info=error)

    # --- what it says ------------------------------------------------------------------------------------------------

    async def _read_output(self) -> None:
        splitter = LineSplitter(MAX_LINE_BYTES)
        try:
            while data := await self._process.read():
                for line in splitter.feed(data):
                    try:
                        self._on_line(line)
                    except MalformedJson:  # deep inside, where only the turn decodes it
                        self._on_damaged(line)
        except FrameTooLarge as error:
            logger.error("%s: %s", self._command_words(), error.message)  # noqa: TRY400 - the message says all
            self._process.kill()
            while await self._process.read():
                pass  # a pipe that is not read to its end blocks a dying process
        finally:
            await self._process.end(GRACE_SECONDS)
            self._end()

    def _on_line(self, line: bytes) -> None:
        message = read_message(line)
        if message is None and _is_damaged(line):
            self._on_damaged(line)
        elif message is None:
            self._on_garbage(line)
        elif not message.method:
            self._on_answer(message)
        elif message.id:
            self._on_request(message)
        elif message.thread:
            turn = self.turns.get(message.thread)
            if turn is not None:
                turn.deliver(message)
        elif message.method == LIMITS_UPDATED:
            self._on_limits(message)

    def _on_damaged(self, line: bytes) -> None:
        """Fail the turn of an unreadable message, or all turns: the message may have been a call or a piece of an answer."""
        self._on_garbage(line)
        message = read_message(line)
        turns = [*self.turns.values()]
        if message is not None:
            turns = [turn for turn in turns if turn.thread_id == message.thread]
        for turn in turns:
            turn.fail(self._fault("sent a message that cannot be read", "protocol"))

    def _on_garbage(self, line: bytes) -> None:
        self._garbage += 1
        if self._garbage <= _GARBAGE_SHOWN:
            shown = line[:_EXCERPT].decode("utf-8", "replace")
            logger.warning("%s: expected JSON-RPC, got %r", self._command_words(), shown)

    def _on_answer(self, message: Message) -> None:
        future = self._asked.get(message.id)
        late = self._late.pop(message.id, None)
        if future is not None and not future.done():
            future.set_result(message)
        elif late is not None:
            late(message)

    def _on_request(self, message: Message) -> None:
        turn = self.turns.get(message.thread)
        if message.method == TOOL_CALL and turn is not None and not turn.is_released:
            turn.deliver(message)
        elif message.method == TOOL_CALL:
            self.write(jsonrpc.refusal(message.id, _NO_THREAD, "no request waits for this call"))
        else:
            logger.info("%s asked for %s; declined", self._command_words(), message.method[:100])
            self.write(decline(message.method, message.id))

    def _on_limits(self, message: Message) -> None:
        """Keep the account's latest limits, and pass them to all turns."""
        if has_limits(message.line):
            self.limits = message.line
            if self._notify_limits is not None:
                self._notify_limits(limit_headers(message.line))
            for turn in tuple(self.turns.values()):
                turn.deliver(message)

    async def _poll_limits(self) -> None:
        """Read the account's limits now, and again while the child is in use: an answer has them only after it was paid for."""
        while True:
            self._used.clear()
            try:
                result = await self._ask("account/rateLimits/read", None, is_vital=False)
            except UpstreamError as error:
                logger.debug("%s: no rate limits: %s", self._command_words(), error.message)
                if error.kind == "invalid_request":
                    return  # the login has no limits (a key of the API), or this Codex does not know the method
            else:
                params = {"rateLimits": result.get("rateLimits", Raw(b"null"))}
                line = jsonrpc.notification(LIMITS_UPDATED, params)
                message = read_message(line)
                if message is not None:
                    self._on_limits(message)
            await self._used.wait()
            await asyncio.sleep(self._limits_interval)

    def _stop_polling(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    async def _log_stderr(self) -> None:
        while data := await self._process.read_errors():
            for line in self._stderr.feed(data, time.monotonic()):
                logger.info("%s: %s", self._command_words(), line)

    async def _watch_process(self) -> None:
        """Wait for the process to end. A launcher may leave its program behind, with its input closed; then kill the rest."""
        await self._process.wait()
        self._process.close_input()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await self.ended.wait()
        except TimeoutError:
            self._process.kill()

    def _end(self) -> None:
        self._stop_polling()
        self.ended.set()
        error = self._lost()
        for future in self._asked.values():
            with suppress(asyncio.InvalidStateError):  # answered in the last moment
                future.set_exception(error)
        for turn in tuple(self.turns.values()):
            turn.fail(self._lost())
        self.turns.clear()

    # --- what we say -------------------------------------------------------------------------------------------------

    async def _handshake(self) -> None:
        params = {"clientInfo": _CLIENT_INFO, "capabilities": _CAPABILITIES}
        greeting = await self.request("initialize", params)
        self.agent = text_of(greeting, "userAgent")
        self.write(jsonrpc.notification("initialized"))
        # Without the configuration the operator's MCP servers could not be switched off, so the start fails.
        config = await self.request("config/read", {"includeLayers": False})
        self.overrides = overrides_of(as_object(bytes(config.get("config", b"{}"))))

    def _notify(self, method: str, params: object) -> None:
        """Send a request without waiting for its answer."""
        if not self.ended.is_set():
            self._numbers += 1
            self._process.write(jsonrpc.request(self._numbers, method, params))

    def _command_words(self) -> str:
        return f"upstream {self._name!r}: app-server {self._process.pid}"

    def _lost(self) -> UpstreamError:
        return self._fault(self._process.how_it_ended, "truncated")

    def _fault(self, what: str, kind: str) -> UpstreamError:
        return UpstreamError(
            f"{self._command_words()} {what}",
            kind=kind,
            status=504 if kind == "timeout" else 502,
            detail=self._last_said(),
        )

    def _last_said(self) -> str:
        """The last lines of standard error, for the log only: they may contain anything, even environment variables."""
        said = " | ".join(self._stderr.last)
        return f"its last output: {said}" if said else ""

    def _refused(self, method: str, code: int, message: str) -> UpstreamError:
        kind, status = _REFUSALS.get(code, (None, None))
        return UpstreamError(
            f"upstream {self._name!r} refused {method}: {message}", kind=kind, status=status
        )


def _is_damaged(line: bytes) -> bool:
    """Whether a line looks like a damaged message. Other lines that are not messages were printed by a program."""
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        as_object(line)
    except MalformedJson:
        return True
    return False


_ANSWERS: Mapping[str, object] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}, "scope": "turn"},
    "mcpServer/elicitation/request": {"action": "decline", "content": None, "_meta": None},
    # Methods of the protocol's first version.
    "applyPatchApproval": {"decision": "denied"},
    "execCommandApproval": {"decision": "denied"},
}


def decline(method: str, number: bytes) -> bytes:
    """The line that declines a request."""
    known = _ANSWERS.get(method)
    if known is not None:
        return answer(number, known)
    return refusal(number, METHOD_NOT_FOUND, f"{method[:100]}: not served by this gateway")


_Json = dict[str, object]

_NAMES = {
    "usedPercent": "used-percent",
    "windowDurationMins": "window-minutes",
    "resetsAt": "reset-at",
}


def has_limits(line: bytes) -> bool:
    """Whether a report has limits: Codex sends one of nulls if its provider has none."""
    return any(_headers(line))


def limit_headers(line: bytes | None) -> dict[str, str]:
    """Headers for the child's last report, if there was one."""
    return {} if line is None else dict(_headers(line))


def _headers(line: bytes) -> Iterator[tuple[str, str]]:
    limits = _table(_table(_read(line).get("params")).get("rateLimits"))
    for window in ("primary", "secondary"):
        for key, value in _table(limits.get(window)).items():
            if key in _NAMES and isinstance(value, (int, float)) and abs(value) <= LARGEST:
                yield (
                    f"x-codex-{window}-{_NAMES[key]}",
                    f"{value:g}" if key == "usedPercent" else str(value),
                )
    credits_ = _table(limits.get("credits"))
    for key, name in (("hasCredits", "has-credits"), ("unlimited", "unlimited")):
        if isinstance(credits_.get(key), bool):
            yield f"x-codex-credits-{name}", str(credits_[key])
    if isinstance(credits_.get("balance"), str):
        yield "x-codex-credits-balance", str(credits_["balance"])


def _read(line: bytes) -> _Json:
    try:
        return _table(loads(line))
    except MalformedJson:
        return {}


def _table(value: object) -> _Json:
    return cast("_Json", value) if isinstance(value, dict) else {}


def overrides_of(config: Mapping[str, Raw]) -> _Json:
    """The settings of every thread of a child, by dotted name. `config`: the answer to `config/read`."""
    overrides: _Json = dict(SWITCHED_OFF)
    # As tables, which are merged with the operator's, because a name may contain dots.
    overrides["mcp_servers"] = {
        name: {"enabled": False} for name in object_of(config, "mcp_servers")
    }
    provider = text_of(config, "model_provider")
    # Only providers that the operator has described may be changed; the built-in one for OpenAI may not.
    if provider in object_of(config, "model_providers"):
        off = {"request_max_retries": 0, "stream_max_retries": 0}
        overrides["model_providers"] = {provider: off}
    return overrides


def thread_params(thread: Raw, overrides: Mapping[str, object], folder: str) -> _Json:
    """The parameters of `thread/start`. `thread`: what the request asks for; `folder`: an empty folder."""
    asked = as_object(bytes(thread))
    own = object_of(asked, "config")
    return {
        **asked,
        "cwd": folder,
        "ephemeral": True,
        "approvalPolicy": "never",
        "sandbox": "read-only",
        # Without an environment nothing can run, not even a remaining tool of Codex's.
        "environments": [],
        "experimentalRawEvents": True,
        "config": {**overrides, **own},
    }


def tool_names(thread: Raw) -> list[str]:
    """The names of the tools that a request offers."""
    tools = as_object(bytes(thread)).get("dynamicTools")
    entries = cast("list[_Json]", loads(bytes(tools)) if tools is not None else [])
    return [str(entry["name"]) for entry in entries]
