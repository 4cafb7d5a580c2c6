"""The SDK's session as we use it: which protocol is spoken, what is forgiven, and results that want an answer first.

There are two protocols. Up to 2025-11-25 a session begins with the handshake `initialize`; from 2026-07-28 on there is none,
each request says everything, and `server/discover` tells what a server can do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from mcp import ClientSession, MCPError, types
from mcp.client import ClientRequestContext
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from dragoman.engine.mcp.progress import Progress

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, WriteStream
    from mcp.client.session import ElicitationFnT, LoggingFnT, MessageHandlerFnT
    from mcp.shared.dispatcher import CallOptions
    from mcp.shared.message import SessionMessage

__all__ = ("Session", "call_tool", "introduce", "is_lost")

MAX_ROUNDS = 10
"""Questions that a server may answer a call with, one after the other: as many as the other SDKs allow."""
FIRST_PAUSE = 0.05
MAX_PAUSE = 1.0
"""Seconds before a call is sent again that a server answered with nothing but a state."""

# What 2026-07-28 demands of results, and what it means if it is missing. Its text says so of `resultType`; lists that may be
# kept for no time, by nobody else, are as good as lists of which that is not said.
_MISSING: Mapping[str, Mapping[str, object]] = {
    "tools/list": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"},
}
_LOST = ("Connection closed", "SSE stream ")
_MISSING_ELSEWHERE: Mapping[str, object] = {"resultType": "complete"}


class _Dispatcher(JSONRPCDispatcher[TransportContext]):
    """Supplies what a result of the new protocol lacks; at the old one the SDK takes no notice of it."""

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
        return {**_MISSING.get(method, _MISSING_ELSEWHERE), **result}


class Session(ClientSession):
    """Made of the two streams of a transport."""

    def __init__(
        self,
        read: "ReadStream[SessionMessage | Exception]",
        write: "WriteStream[SessionMessage]",
        *,
        client_info: types.Implementation,
        elicitation_callback: "ElicitationFnT",
        logging_callback: "LoggingFnT",
        message_handler: "MessageHandlerFnT",
    ) -> None:
        # Sampling and roots are not offered: the SDK refuses requests for them.
        super().__init__(
            dispatcher=_Dispatcher(read, write),
            client_info=client_info,
            elicitation_callback=elicitation_callback,
            logging_callback=logging_callback,
            message_handler=message_handler,
        )

    async def validate_tool_result(self, name: str, result: types.CallToolResult) -> None:
        """Not here: a pattern of a server's schema may take for ever. `results` checks it, within bounds."""

    @property
    def is_modern(self) -> bool:
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS


async def introduce(session: Session, *, is_http: bool) -> None:
    """Find the protocol that the server speaks.

    Over HTTP `server/discover` comes first, as the specification says: each request stands alone, and a server that does not
    know it says so. A program that is spoken to by its pipes is greeted by the handshake first: many end, or wait without a
    word, when anything else comes before it.

    Raises:
        MCPError: the server refused both. ValueError, RuntimeError: it answered neither as the protocol says.
    """
    steps: list[Callable[[], Awaitable[object]]] = [session.initialize, session.discover]
    first, second = reversed(steps) if is_http else steps
    refusal: Exception
    try:
        await first()
    except (MCPError, ValueError, RuntimeError) as error:
        # refused; or answered with no result of that request, or with a version that is not one of this protocol
        if isinstance(error, MCPError) and is_lost(error):
            raise
        refusal = error
    else:
        return
    try:
        await second()
    except (MCPError, ValueError, RuntimeError) as error:
        # the handshake is what an old server fails at, and a new one refuses with the versions it has
        raise error if is_http and not _names_versions(refusal) else refusal from None


def is_lost(error: MCPError) -> bool:
    """Whether it is the SDK's word for an answer that cannot come any more: servers use its number for what they like."""
    return error.code == types.CONNECTION_CLOSED and str(error).startswith(_LOST)


def _names_versions(error: Exception) -> bool:
    return isinstance(error, MCPError) and error.code == types.UNSUPPORTED_PROTOCOL_VERSION


async def call_tool(
    session: Session, name: str, arguments: dict[str, object], progress: Progress
) -> types.CallToolResult:
    """Run a tool. A server of the new protocol may answer with questions, and is asked again with the answers.

    Raises:
        MCPError: it refused, or asked for what we do not offer. ValueError: its answer is none.
        RuntimeError: it asks again and again.
    """
    responses: types.InputResponses | None = None
    state: str | None = None
    pause = FIRST_PAUSE
    for _ in range(MAX_ROUNDS):
        result = await session.call_tool(
            name,
            arguments,
            progress_callback=progress.tell,
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
    session: Session, requests: Mapping[str, types.InputRequest]
) -> types.InputResponses:
    """One after the other: there is one person to be asked."""
    answers: types.InputResponses = {}
    for key, request in requests.items():
        context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(context, request)
        if isinstance(answer, types.ErrorData):
            raise MCPError.from_error_data(answer)
        answers[key] = answer
    return answers
