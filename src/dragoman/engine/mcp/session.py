"""The SDK's session as Dragoman uses it: the choice of the protocol, the deviations that are accepted, the list of tools, and
calls whose result asks for input first.

There are two protocols. Up to 2025-11-25 a session begins with the handshake `initialize`. From 2026-07-28 on there is no
handshake: each request carries everything, and `server/discover` returns the capabilities of a server.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from mcp import ClientSession, MCPError, types
from mcp.client import ClientRequestContext
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from dragoman.config.settings import McpServerSettings

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions

MAX_REPORTS = 1000
"""Reports of progress that are passed on for one call: more than a person reads."""
MAX_CHARS = 200


class ProgressReporter:
    """Passes on a server's reports of progress until the call is over."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._left = MAX_REPORTS

    def close(self) -> None:
        self._left = 0

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        if self._left:
            self._left -= 1
            self._report(progress_text(progress, total, message))


def progress_text(progress: float, total: float | None, message: str | None) -> str:
    count = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
    if not message:
        return count
    line = " ".join(message.split())[:MAX_CHARS]
    return f"{line} ({count})"


logger = logging.getLogger(__name__)

MAX_TOOLS = 1000
"""Tools of one server. No model chooses well among a hundred; a server with more than this never ends its list."""
MAX_PAGES = 100


def is_wanted(settings: McpServerSettings, name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in settings.allow) and not any(
        fnmatchcase(name, glob) for glob in settings.deny
    )


async def list_tools(session: ClientSession, settings: McpServerSettings) -> tuple[types.Tool, ...]:
    """Raises:
    MCPError: the server refused, or the connection is lost.
    ValueError: the protocol does not allow the server's list.
    """
    capabilities = session.server_capabilities
    if capabilities is None or capabilities.tools is None:
        return ()
    found: dict[str, types.Tool] = {}
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        for tool in page.tools:
            if tool.name and is_wanted(settings, tool.name):
                found.setdefault(tool.name, tool)
        cursor = page.next_cursor
        if cursor is None and len(found) <= MAX_TOOLS:
            return tuple(found.values())
        if cursor is None or cursor in cursors or len(found) >= MAX_TOOLS:
            break
        cursors.add(cursor)
    logger.warning(
        "MCP server %s: its list of tools does not end, or has more than %d; it is cut",
        settings.name,
        MAX_TOOLS,
    )
    return tuple(found.values())[:MAX_TOOLS]


MAX_ROUNDS = 10
"""How often a server may answer a call with questions: as often as the other SDKs allow."""
FIRST_PAUSE = 0.05
MAX_PAUSE = 1.0
"""Seconds before a call is sent again if the server answered with a state and no question."""

# Fields that 2026-07-28 requires in results, and their values if they are missing. The specification defines that for
# `resultType`. A list that may not be cached is the safe reading of a list without these fields.
_MISSING: Mapping[str, object] = {"resultType": "complete"}
_MISSING_IN_LISTS: Mapping[str, object] = {**_MISSING, "ttlMs": 0, "cacheScope": "private"}
_LOST = ("Connection closed", "SSE stream ")


class Dispatcher(JSONRPCDispatcher[TransportContext]):
    """Adds missing required fields to results of the new protocol; for the old protocol the SDK ignores these fields."""

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, object] | None,
        opts: "CallOptions | None" = None,
        *,
        _related_request_id: types.RequestId | None = None,
    ) -> dict[str, object]:
        result: dict[str, object] = await super().send_raw_request(
            method, params, opts, _related_request_id=_related_request_id
        )
        return {**(_MISSING_IN_LISTS if method == "tools/list" else _MISSING), **result}


class McpSession(ClientSession):
    """The SDK's session with two differences: results are not validated here, and `is_modern`."""

    async def validate_tool_result(self, name: str, result: types.CallToolResult) -> None:
        """Do nothing: a pattern of a server's schema may take forever to match. `tools` checks results with limits."""

    @property
    def is_modern(self) -> bool:
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS


async def negotiate(session: McpSession, *, is_http: bool) -> None:
    """Find the protocol that the server speaks.

    Over HTTP `server/discover` comes first, as the specification says: each request is independent, and a server that does not
    know it refuses it. A child process gets the handshake first: many servers exit, or do not answer, if another message comes
    before the handshake.

    Raises:
        MCPError: the server refused both. ValueError, RuntimeError: no answer was valid.
    """
    steps: list[Callable[[], Awaitable[object]]] = [session.initialize, session.discover]
    first, second = reversed(steps) if is_http else steps
    refusal: Exception
    try:
        await first()
    except (MCPError, ValueError, RuntimeError) as error:
        # refused, or answered with an invalid result or an unknown version
        if isinstance(error, MCPError) and is_lost(error):
            raise
        refusal = error
    else:
        return
    try:
        await second()
    except (MCPError, ValueError, RuntimeError) as error:
        # report the error of the handshake, unless a new server named the versions that it supports
        raise error if is_http and not _names_versions(refusal) else refusal from None


def is_lost(error: MCPError) -> bool:
    """Whether the SDK reports a lost connection. Servers use the same code for other errors, so the text decides."""
    return error.code == types.CONNECTION_CLOSED and str(error).startswith(_LOST)


def _names_versions(error: Exception) -> bool:
    return isinstance(error, MCPError) and error.code == types.UNSUPPORTED_PROTOCOL_VERSION


async def call_tool(
    session: McpSession, name: str, arguments: dict[str, object], progress: ProgressReporter
) -> types.CallToolResult:
    """Run a tool. A server of the new protocol may answer with questions; then the call is sent again with the answers.

    Raises:
        MCPError: the server refused, or asked for input that Dragoman does not offer. ValueError: its answer is invalid.
        RuntimeError: the server asked too many times.
    """
    responses: types.InputResponses | None = None
    state: str | None = None
    pause = FIRST_PAUSE
    for _ in range(MAX_ROUNDS):
        result = await session.call_tool(
            name,
            arguments,
            progress_callback=progress.report,
            input_responses=responses,
            request_state=state,
            allow_input_required=True,
        )
        if isinstance(result, types.CallToolResult):
            return result
        state, responses = result.request_state, None
        if result.input_requests:
            responses = await _answers(session, result.input_requests)
        else:
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)
    raise RuntimeError(f"it asked for more input {MAX_ROUNDS} times")


async def _answers(
    session: McpSession, requests: Mapping[str, types.InputRequest]
) -> types.InputResponses:
    """The answers to a server's questions. They are asked one after the other, because there is one person."""
    answers: types.InputResponses = {}
    for key, request in requests.items():
        context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(context, request)
        if isinstance(answer, types.ErrorData):
            raise MCPError.from_error_data(answer)
        answers[key] = answer
    return answers
