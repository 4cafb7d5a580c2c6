"""One life of a server: from its start until it ends.

`live` belongs to one task: all that the SDK opens is entered and left in it. Calls are tasks of the same owner, so that
whoever waits for one may leave at once while the server is still being told of it.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from typing import cast

from httpx2 import ConnectError, ConnectTimeout
from mcp import MCPError, types
from mcp.client import ClientRequestContext, IncomingMessage, Transport
from mcp.client.subscriptions import SubscriptionLost, listen

from dragoman.engine.mcp.child import open_child
from dragoman.engine.mcp.ending import Ending
from dragoman.engine.mcp.host import Answer, Host, Link, form_from_schema
from dragoman.engine.mcp.http import http_client, open_http
from dragoman.engine.mcp.listing import list_tools
from dragoman.engine.mcp.oauth import Authorization
from dragoman.engine.mcp.progress import Progress
from dragoman.engine.mcp.session import Session, call_tool, introduce, is_lost
from dragoman.engine.mcp.settings import McpServerSettings, mcp_secrets
from dragoman.engine.mcp.time_limits import TimeLimits
from dragoman.errors import GatewayError, ToolError

__all__ = ("Life", "SessionForgotten", "is_cancelled")

logger = logging.getLogger(__name__)

# The engine's limit on a call is the same and a little sooner: it is the one that tells.
CALL_GRACE = 1.0
# A call that lost its server waits this long for the news of why.
REASON_SECONDS = 1.0
# Between two listings: a server may announce changes as fast as it likes.
LISTING_PAUSE = 0.1
# Words of a server in our messages and our log: what matters stands at the beginning.
MAX_WORDS = 1000

_CLIENT = types.Implementation(name="dragoman", version=version("dragoman"))
# How the SDKs number the refusal of a session that they do not know: nothing was run.
_UNKNOWN_SESSION = frozenset((types.INVALID_REQUEST, -32001))


def is_cancelled() -> bool:
    """Whether somebody cancelled the task that asks.

    A cancellation that comes while a group of tasks of the SDK is being left for an error is not raised: the error is.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class SessionForgotten(ToolError):
    """The server had no such session any more: the call was not run, and may be sent again."""


class Life:
    """`on_listing` is told which tools there are: once when the server is ready, and again when they have changed.

    host: who answers what the server asks of a person; None: questions are declined.
    authorize: gives what authorizes requests by HTTP; None: nothing but the headers.
    """

    def __init__(
        self,
        settings: McpServerSettings,
        on_listing: Callable[[tuple[types.Tool, ...]], None],
        *,
        host: Host | None = None,
        authorize: Callable[[], Authorization | None] = lambda: None,
    ) -> None:
        self.ending = Ending(mcp_secrets(settings, os.environ))
        self._settings = settings
        self._on_listing = on_listing
        self._host = host
        self._authorize = authorize
        self._authorization: Authorization | None = None
        self._limits = TimeLimits()
        self._open: tuple[Session, asyncio.TaskGroup] | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._stale = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        return self._open is not None and not self.ending.has_come

    async def live(self) -> None:
        """All of it. Cancelling this ends the server; what the end was is in `ending`."""
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
                # the outermost edge of a server: whatever it was, it has ended it
                self.ending.tell(*self._why(error))
            finally:
                self.ending.tell("was stopped")
                for task in self._tasks:
                    task.cancel()

    async def call(
        self, name: str, arguments: Mapping[str, object], report: Callable[[str], None]
    ) -> types.CallToolResult:
        """Run a tool. When this is cancelled the server is told, and not waited for.

        Raises:
            ToolError: it was refused, or the server is gone, or what it says is not what the protocol allows.
        """
        if self._open is None or self.ending.has_come:
            raise self._gone(name)
        session, group = self._open
        progress = Progress(report)
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

    async def _start(self, stack: AsyncExitStack) -> tuple[Session, tuple[types.Tool, ...]]:
        session = await self._connect(stack)
        try:
            async with self._limits.within(self._settings.start_timeout):
                await introduce(session, is_http=not self._settings.command)
                self.ending.status = None  # of the request that was not the right one
                return session, await list_tools(session, self._settings)
        except Exception as error:
            # before a child is ended for it, which would be a reason too
            self.ending.tell(*self._why(error))
            raise

    async def _connect(self, stack: AsyncExitStack) -> Session:
        if self._settings.command:
            transport: Transport = open_child(self._settings, self.ending)
        else:
            self._authorization = self._authorize()
            if self._authorization is not None:
                self._authorization.limits = self._limits
            client = http_client(self._settings, self.ending, self._authorization)
            await stack.enter_async_context(client)
            transport = open_http(self._settings, client)
        read, write = await stack.enter_async_context(transport)
        session = Session(
            read,
            write,
            client_info=_CLIENT,
            elicitation_callback=self._elicit,
            logging_callback=self._log,
            message_handler=self._notice,
        )
        return await stack.enter_async_context(session)

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """What a person answers to the server. Where there is none, the answer is no."""
        del context
        if self._host is None:
            logger.info("MCP server %s asked for input; there is nobody to ask", self._name)
            return types.ElicitResult(action="decline")
        try:
            question = (
                form_from_schema(params.message, params.requested_schema)
                if isinstance(params, types.ElicitRequestFormParams)
                else Link(message=params.message[:MAX_WORDS], url=params.url)
            )
        except ValueError as error:
            return types.ErrorData(code=types.INVALID_PARAMS, message=str(error))
        with self._limits.paused():
            answer = await self._host.elicit(self._name, question)
        return _elicit_result(answer, has_values=not isinstance(question, Link))

    async def _notice(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._stale.set()

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            words = str(params.data)[:MAX_WORDS]
            logger.debug("MCP server %s, %s: %s", self._name, params.level, words)

    async def _subscribe(self, session: Session) -> None:
        """From the protocol of 2026 on, changes are told only to those who asked."""
        with suppress(MCPError, SubscriptionLost, TimeoutError):
            async with listen(session, tools_list_changed=True) as changes:
                async for _ in changes:
                    self._stale.set()

    async def _keep_listing(self, session: Session) -> None:
        while not self.ending.has_come:
            await self._stale.wait()
            self._stale.clear()
            try:
                async with self._limits.within(self._settings.start_timeout):
                    listing = await list_tools(session, self._settings)
            except Exception as error:  # a task's outermost edge, and a stranger's list
                if isinstance(error, MCPError) and self._is_lost(error):
                    await self._hear_why()
                    self.ending.tell(f"does not answer any more: {self._words(error)}")
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
        self, session: Session, name: str, arguments: dict[str, object], progress: Progress
    ) -> types.CallToolResult | ToolError:
        """What came of a call; errors as values, since an exception would end the group and the server with it."""
        try:
            return await call_tool(session, name, arguments, progress)
        except MCPError as error:
            return await self._refusal(name, error)
        except Exception as error:  # a task's outermost edge, and a stranger's answer
            return ToolError(
                f"the MCP server {self._name!r} answered the call of {name!r} with what the protocol"
                f" does not allow: {self._words(error)}"
            )

    async def _refusal(self, name: str, error: MCPError) -> ToolError:
        if self.ending.is_forgotten and error.code in _UNKNOWN_SESSION:
            self.ending.tell("has forgotten the session")
            return SessionForgotten(self._gone(name).message)
        if not is_lost(error):
            return ToolError(
                f"the MCP server {self._name!r} refused the call of {name!r}: "
                f"{self._words(error)}{self._about_login()}"
            )
        self._stale.set()  # whether only this answer was lost, or the server, the next listing shows
        await self._hear_why()
        return self._gone(name)

    async def _hear_why(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REASON_SECONDS):
                await self.ending.wait()

    def _is_lost(self, error: MCPError) -> bool:
        return is_lost(error) or self.ending.is_forgotten

    def _gone(self, name: str) -> ToolError:
        reason = self.ending.reason or "broke off the answer"
        return ToolError(
            f"the MCP server {self._name!r} {reason}; its tool {name!r} gave no result"
        )

    def _about_login(self) -> str:
        problem = "" if self._authorization is None else self._authorization.problem
        return f"; it {problem}" if problem else ""

    def _why(self, error: BaseException) -> tuple[str, str]:
        """What ended a life, as words that go on after the server's name; and what only the operator should read of it."""
        error = _innermost(error)
        if isinstance(error, TimeoutError):
            return f"did not start within {self._settings.start_timeout:g} s", ""
        if isinstance(error, GatewayError):
            return error.message, error.detail
        if isinstance(error, MCPError):
            status = f" (HTTP status {self.ending.status})" if self.ending.status else ""
            return f"refused: {self._words(error)}{status}{self._about_login()}", ""
        if isinstance(error, OSError | ConnectError | ConnectTimeout):
            return "cannot be reached", self._words(error)  # which name addresses
        return f"failed: {type(error).__name__}: {self._words(error)}", ""

    def _words(self, error: BaseException) -> str:
        text = self.ending.secrets.hide(str(error) or type(error).__name__)
        return text if len(text) <= MAX_WORDS else f"{text[:MAX_WORDS]}…"


def _announces_changes(session: Session) -> bool:
    capabilities = session.server_capabilities
    tools = None if capabilities is None else capabilities.tools
    return session.is_modern and tools is not None and tools.list_changed is True


def _elicit_result(answer: Answer, *, has_values: bool) -> types.ElicitResult:
    values = {key: value for key, value in answer.values.items() if value is not None}
    is_given = has_values and answer.action == "accept"
    return types.ElicitResult.model_validate(
        {"action": answer.action, **({"content": values} if is_given else {})}
    )


def _innermost(error: BaseException) -> BaseException:
    """The first of what a group of tasks failed with."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    return _innermost(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
