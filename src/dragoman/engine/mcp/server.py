"""One MCP server, kept alive: started, and started again when it ends.

starting ─► ready ─► ended ─┬─► starting, after a delay that grows
    └───── failed ──────────┘   down: after several failures in a row; tried again now and then, or when it is called

`McpConnection` is one connection to the server, from start to end. One task runs `McpConnection.run`: every context of the SDK
is entered and left in that task. Each call is a task of the connection, so a cancelled caller returns at once, while the
server is still being notified.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from pathlib import Path
from typing import cast

from httpx2 import ConnectError, ConnectTimeout
from mcp import MCPError, types
from mcp.client import ClientRequestContext, IncomingMessage, Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, listen

from dragoman.config.secrets import mcp_secrets
from dragoman.config.settings import McpServerSettings
from dragoman.engine.mcp.host import (
    ElicitationLink,
    Host,
    TimeLimits,
    form_from_schema,
    link_to,
)
from dragoman.engine.mcp.oauth import Authorization, needs_authorization
from dragoman.engine.mcp.session import (
    Dispatcher,
    McpSession,
    ProgressReporter,
    call_tool,
    is_lost,
    list_tools,
    negotiate,
)
from dragoman.engine.mcp.transport import MAX_MESSAGE_BYTES, ConnectionEnd, http_client, open_child
from dragoman.errors import GatewayError, ToolError

logger = logging.getLogger(__name__)

# Added to the limit on a call, so that the engine's limit, which is otherwise equal, ends first and the engine reports it.
CALL_GRACE = 1.0
# A call that lost its server waits this long for the reason.
REASON_SECONDS = 1.0
# Seconds between two listings: a server may announce changes at any rate.
LISTING_PAUSE = 0.1
# Characters of a server's text in our messages and our log: the beginning matters most.
MAX_WORDS = 1000

_CLIENT = types.Implementation(name="dragoman", version=version("dragoman"))
# The codes by which SDKs refuse an unknown session: nothing was run.
_UNKNOWN_SESSION = frozenset((types.INVALID_REQUEST, -32001))


def is_cancelled() -> bool:
    """Whether the current task was cancelled.

    If a cancellation arrives while the SDK leaves a task group because of an error, the error is raised instead of it.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class SessionForgotten(ToolError):
    """The server does not know the session any more: the call was not run, and may be sent again."""


class McpConnection:
    """One connection to a server. `on_listing` gets its tools when the server is ready, and again when they change.

    host: asks the person the server's questions; None: questions are declined.
    authorize: returns the authorization of HTTP requests, or None if the headers are enough.
    """

    def __init__(
        self,
        settings: McpServerSettings,
        on_listing: Callable[[tuple[types.Tool, ...]], None],
        *,
        host: Host | None,
        authorize: Callable[[], Authorization | None],
    ) -> None:
        self.ending = ConnectionEnd(mcp_secrets(settings, os.environ))
        self._settings = settings
        self._on_listing = on_listing
        self._host = host
        self._authorize = authorize
        self._authorization: Authorization | None = None
        self._limits = TimeLimits()
        self._open: tuple[McpSession, asyncio.TaskGroup] | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._stale = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        return self._open is not None and not self.ending.is_known

    async def run(self) -> None:
        """Start the server and wait for its end. Cancelling this task ends the server; `ending` says why it ended."""
        async with asyncio.TaskGroup() as group:
            try:
                async with AsyncExitStack() as stack:
                    session, listing = await self._start(stack)
                    self._open = (session, group)
                    self._hold(group.create_task(self._keep_listing(session)))
                    if _announces_changes(session):
                        self._hold(group.create_task(self._subscribe(session)))
                    self._on_listing(listing)
                    try:
                        if not is_cancelled():
                            await self.ending.wait()
                    finally:
                        self._open = None
            except Exception as error:
                # the outermost edge of a server: any exception ends the connection
                self.ending.set(*self._why(error))
            finally:
                self.ending.set("was stopped")
                for task in self._tasks:
                    task.cancel()

    async def call(
        self, name: str, arguments: Mapping[str, object], report: Callable[[str], None]
    ) -> types.CallToolResult:
        """Run a tool. If the caller is cancelled, the server is notified, and the caller does not wait for the server.

        Raises:
            ToolError: the call was refused, the server is gone, or its answer is invalid.
        """
        if self._open is None or self.ending.is_known:
            raise self._gone(name)
        session, group = self._open
        progress = ProgressReporter(report)
        task = group.create_task(self._perform(session, name, dict(arguments), progress))
        self._hold(task)
        seconds = self._settings.call_timeout
        try:
            async with self._limits.within(seconds + CALL_GRACE):
                await asyncio.wait({task})
        except TimeoutError:
            raise ToolError(
                f"the tool {name!r} of the MCP server {self._name!r} did not answer within {seconds:g} s"
            ) from None
        finally:
            progress.close()
            task.cancel()
        outcome = self._gone(name) if task.cancelled() else task.result()
        if isinstance(outcome, ToolError):
            raise outcome
        return outcome

    @property
    def _name(self) -> str:
        return self._settings.name

    def _hold(self, task: asyncio.Task[object]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, stack: AsyncExitStack) -> tuple[McpSession, tuple[types.Tool, ...]]:
        session = await self._connect(stack)
        try:
            async with self._limits.within(self._settings.start_timeout):
                await negotiate(session, is_http=not self._settings.command)
                self.ending.status = None  # left over from the protocol that was tried first
                return session, await list_tools(session, self._settings)
        except Exception as error:
            # set the reason before the child is ended because of this error: its end would be recorded as the reason
            self.ending.set(*self._why(error))
            raise

    async def _connect(self, stack: AsyncExitStack) -> McpSession:
        if self._settings.command:
            transport: Transport = open_child(self._settings, self.ending)
        else:
            self._authorization = self._authorize()
            if self._authorization is not None:
                self._authorization.limits = self._limits
            client = http_client(self._settings, self.ending, self._authorization)
            await stack.enter_async_context(client)
            transport = streamable_http_client(
                self._settings.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
            )
        read, write = await stack.enter_async_context(transport)
        # Sampling and roots are not offered, so the SDK refuses requests for them.
        session = McpSession(
            dispatcher=Dispatcher(read, write),
            client_info=_CLIENT,
            elicitation_callback=self._elicit,
            logging_callback=self._log,
            message_handler=self._notice,
        )
        return await stack.enter_async_context(session)

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """The person's answer to the server. Without a person, the question is declined."""
        del context
        if self._host is None:
            logger.info("MCP server %s asked for input; no person can be asked", self._name)
            return types.ElicitResult(action="decline")
        try:
            question = (
                form_from_schema(params.message, params.requested_schema)
                if isinstance(params, types.ElicitRequestFormParams)
                else link_to(params.url, params.message[:MAX_WORDS])
            )
        except ValueError as error:
            return types.ErrorData(code=types.INVALID_PARAMS, message=str(error))
        with self._limits.paused():
            answer = await self._host.elicit(self._name, question)
        result: dict[str, object] = {"action": answer.action}
        if answer.action == "accept" and not isinstance(question, ElicitationLink):
            result["content"] = {
                key: each for key, each in answer.values.items() if each is not None
            }
        return types.ElicitResult.model_validate(result)

    async def _notice(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._stale.set()

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            words = str(params.data)[:MAX_WORDS]
            logger.debug("MCP server %s, %s: %s", self._name, params.level, words)

    async def _subscribe(self, session: McpSession) -> None:
        """Subscribe to changes of the tools, as the protocol of 2026 requires."""
        with suppress(MCPError, SubscriptionLost, TimeoutError):
            async with listen(session, tools_list_changed=True) as changes:
                async for _ in changes:
                    self._stale.set()

    async def _keep_listing(self, session: McpSession) -> None:
        while not self.ending.is_known:
            await self._stale.wait()
            self._stale.clear()
            try:
                async with self._limits.within(self._settings.start_timeout):
                    listing = await list_tools(session, self._settings)
            except Exception as error:  # a task's outermost edge, and a foreign list
                if isinstance(error, MCPError) and (is_lost(error) or self.ending.is_forgotten):
                    await self._wait_for_reason()
                    self.ending.set(f"does not answer any more: {self._words(error)}")
                else:
                    logger.warning(
                        "MCP server %s: its tools cannot be listed again: %s",
                        self._name,
                        self._words(error),
                    )
            else:
                self._on_listing(listing)
            await asyncio.sleep(LISTING_PAUSE)

    async def _perform(
        self,
        session: McpSession,
        name: str,
        arguments: dict[str, object],
        progress: ProgressReporter,
    ) -> types.CallToolResult | ToolError:
        """The result of a call. Errors are values, because an exception would end the group, and the server with it."""
        try:
            return await call_tool(session, name, arguments, progress)
        except MCPError as error:
            return await self._refusal(name, error)
        except Exception as error:  # a task's outermost edge, and a foreign answer
            return ToolError(
                f"the MCP server {self._name!r} answered the call of {name!r} with a result that the protocol"
                f" does not allow: {self._words(error)}"
            )

    async def _refusal(self, name: str, error: MCPError) -> ToolError:
        if self.ending.is_forgotten and error.code in _UNKNOWN_SESSION:
            self.ending.set("has forgotten the session")
            return SessionForgotten(self._gone(name).message)
        if not is_lost(error):
            return ToolError(
                f"the MCP server {self._name!r} refused the call of {name!r}: "
                f"{self._words(error)}{self._about_login()}"
            )
        self._stale.set()  # the next listing shows whether only this answer was lost, or the server
        await self._wait_for_reason()
        return self._gone(name)

    async def _wait_for_reason(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REASON_SECONDS):
                await self.ending.wait()

    def _gone(self, name: str) -> ToolError:
        reason = self.ending.reason or "broke off the answer"
        return ToolError(
            f"the MCP server {self._name!r} {reason}; its tool {name!r} gave no result"
        )

    def _about_login(self) -> str:
        problem = "" if self._authorization is None else self._authorization.problem
        return f"; it {problem}" if problem else ""

    def _why(self, error: BaseException) -> tuple[str, str]:
        """Why the connection ended, as words after the server's name, and a detail that only the operator should read."""
        error = _innermost(error)
        if isinstance(error, TimeoutError):
            return f"did not start within {self._settings.start_timeout:g} s", ""
        if isinstance(error, GatewayError):
            return error.message, error.detail
        if isinstance(error, MCPError):
            status = f" (HTTP status {self.ending.status})" if self.ending.status else ""
            return f"refused: {self._words(error)}{status}{self._about_login()}", ""
        if isinstance(error, (OSError, ConnectError, ConnectTimeout)):
            return "cannot be reached", self._words(error)  # the error names addresses
        return f"failed: {type(error).__name__}: {self._words(error)}", ""

    def _words(self, error: BaseException) -> str:
        text = self.ending.secrets.hide(str(error) or type(error).__name__)
        return text if len(text) <= MAX_WORDS else f"{text[:MAX_WORDS]}…"


def _announces_changes(session: McpSession) -> bool:
    capabilities = session.server_capabilities
    tools = None if capabilities is None else capabilities.tools
    return session.is_modern and tools is not None and tools.list_changed is True


def _innermost(error: BaseException) -> BaseException:
    """The first exception of a task group, at any depth."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    return _innermost(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])


class McpServer:
    """A server that is started again when it ends. `run` needs a task of its own; the rest works from any task of the loop.

    listing: its tools; a server that is being restarted keeps them, a server that is down has none.
    problem: why the server is not available, as words after its name; None if it is available.
    host: asks the person the server's questions; None: questions are declined.
    tokens: the folder of access tokens; None: in memory.
    """

    def __init__(
        self,
        settings: McpServerSettings,
        *,
        host: Host | None = None,
        tokens: Path | None = None,
    ) -> None:
        self.settings = settings
        self.host = host
        self._tokens = tokens
        self._authorization: Authorization | None = None
        self.listing: tuple[types.Tool, ...] = ()
        self.problem: str | None = "is being started"
        # the problem in words for a model, without the last output of the server
        self._reason = self.problem
        self._logged: str | None = None
        self._connection: McpConnection | None = None
        self._failures = 0
        self._is_over = False
        self._tried = asyncio.Event()
        self._turned = asyncio.Event()
        self._wanted = asyncio.Event()

    @property
    def name(self) -> str:
        return self.settings.name

    async def tried(self) -> None:
        """Wait until the server is ready for the first time, or its first start has failed."""
        await self._tried.wait()

    async def run(self) -> None:
        """Keep the server alive until this task is cancelled."""
        try:
            await self._keep_alive()
        finally:
            self._is_over = True
            self._settle("was stopped", "")

    async def _keep_alive(self) -> None:
        restart = self.settings.restart
        clock = asyncio.get_running_loop().time
        while True:
            self._wanted.clear()
            began = clock()
            connection = McpConnection(
                self.settings, self._list, host=self.host, authorize=self._authorize
            )
            self._connection = connection
            await connection.run()
            if is_cancelled():
                raise asyncio.CancelledError
            self._failures = 1 if clock() - began >= restart.stable_after else self._failures + 1
            self._settle(connection.ending.reason, connection.ending.detail)
            # A failing restart repeats the same problem: warn once, until it was ready again.
            level = logging.DEBUG if self.problem == self._logged else logging.WARNING
            self._logged = self.problem
            logger.log(level, "MCP server %s %s", self.name, self.problem)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._delay()):
                    await self._wanted.wait()

    def _authorize(self) -> Authorization | None:
        """The authorization for all connections: tokens outlast a connection.

        Raises:
            ConfigError: a variable that the settings name is not set.
        """
        if self._authorization is None and needs_authorization(self.settings):
            self._authorization = Authorization(self.settings, self._tokens, self.host, os.environ)
        return self._authorization

    async def call(
        self, name: str, arguments: Mapping[str, object], report: Callable[[str], None]
    ) -> types.CallToolResult:
        """Run one of the server's tools. If the server is being started, wait for it, within the limit of a start.

        Raises:
            ToolError: the server is not available, ended, refused, or gave an invalid answer.
        """
        connection = await self._ready(name)
        try:
            return await connection.call(name, arguments, report)
        except SessionForgotten:
            connection = await self._ready(name)
            return await connection.call(name, arguments, report)

    async def _ready(self, name: str) -> McpConnection:
        seconds = self.settings.start_timeout
        failures = self._failures
        try:
            async with asyncio.timeout(seconds):
                while self._connection is None or not self._connection.is_ready:
                    if self._is_over or (self._is_down and self._failures > failures):
                        break  # the server was started once more for this call, and failed
                    if self._is_down:
                        self._wanted.set()
                    await self._turned.wait()
                else:
                    return self._connection
        except TimeoutError:
            pass
        raise ToolError(
            f"the MCP server {self.name!r} is not available: it {self._reason}; its tool {name!r} was not run"
        )

    @property
    def _is_down(self) -> bool:
        return self._failures >= self.settings.restart.attempts

    def _delay(self) -> float:
        restart = self.settings.restart
        if self._is_down:
            return restart.again_after
        return min(restart.first_delay * 2.0 ** (self._failures - 1), restart.max_delay)

    def _list(self, listing: tuple[types.Tool, ...]) -> None:
        self.listing = listing
        self.problem = self._logged = None
        self._turn()

    def _settle(self, reason: str, detail: str) -> None:
        self._reason = reason
        self.problem = f"{reason} ({detail})" if detail else reason
        if self._is_down or self._is_over:
            self.listing = ()
        self._turn()

    def _turn(self) -> None:
        """Wake the tasks that wait for a change."""
        self._tried.set()
        self._turned.set()
        self._turned = asyncio.Event()
