"""Background responses: the exchange of a POST goes on without its client.

    POST ──► Exchange ──► BackgroundConnection ──► Exchange, in a task of the gateway ──► upstream
                │                  │                             │
                │◄── queued, or refused                          ▼
                └──► stream: followed                   keeper ──► store

The exchange that has the client reads the request, and has a second exchange serve it over a `BackgroundConnection`. What
the second one writes goes only to its keeper. A client that wants it reads the store, or follows the keeper.
"""

import asyncio
from collections.abc import Callable

from msgspec import Struct, structs

from dragoman.dialects.responses.request import without_background
from dragoman.gateway.answer import Pending, settle
from dragoman.model.outcome import ErrorInfo
from dragoman.model.request import Request
from dragoman.server.client import Client
from dragoman.server.http.connection import Headers, WholeRequest
from dragoman.state.endpoints import follow
from dragoman.state.managed_store import ManagedStore
from dragoman.store.contract import Key


class Queued(Struct, frozen=True):
    """A response that is stored and runs. `body`: its response object."""

    key: Key
    body: bytes


class RefusedBackground(Struct, frozen=True):
    """A request that was refused before its response was stored: the answer for the client."""

    status: int
    headers: Headers
    body: bytes


class BackgroundConnection(WholeRequest):
    """The `ClientConnection` of an exchange without a client.

    outcome: done when the response is stored, or the request refused.
    """

    __slots__ = ("outcome",)

    def __init__(self, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__(headers, body)
        self.outcome: asyncio.Future[Queued | RefusedBackground] = (
            asyncio.get_running_loop().create_future()
        )

    def acknowledge(self, queued: Queued) -> None:
        """Report that the response is stored."""
        if not self.outcome.done():  # cancelled, if the client has left
            self.outcome.set_result(queued)

    def on_leave(self, call: Callable[[], None] | None) -> None:
        """Nobody leaves."""

    def respond(self, status: int, headers: Headers, body: bytes) -> Pending:
        if not self.outcome.done():
            self.outcome.set_result(RefusedBackground(status, headers, body))
        return None

    def begin(self, headers: Headers, data: bytes) -> Pending:  # noqa: ARG002 - the keeper has it
        return None

    def write(self, data: bytes) -> Pending:  # noqa: ARG002 - the keeper has it
        return None

    def finish(self, data: bytes) -> Pending:  # noqa: ARG002 - the keeper has it
        return None


async def answer_queued(
    client: Client, store: ManagedStore, background: BackgroundConnection, *, is_stream: bool
) -> None:
    """Answer the client as soon as the response is stored: with the response object, or with its stream."""
    outcome = await background.outcome
    if isinstance(outcome, RefusedBackground):
        ours = {b"content-type", *(name for name, _ in client.headers)}
        headers = [pair for pair in outcome.headers if pair[0] not in ours]
        await settle(client.respond(outcome.status, outcome.body, headers))
    elif not is_stream:
        await settle(client.respond(200, outcome.body))
    else:
        async for data in follow(store, outcome.key, None):
            await settle(client.write(data))
        await settle(client.finish())


def overtime_error(limit: float) -> ErrorInfo:
    """The error of a background response that took too long."""
    message = f"the response took longer than {limit:g} seconds (server.background_max_seconds)"
    return ErrorInfo(kind="timeout", message=message)


def awaited(request: Request) -> Request:
    """The request for the upstream of a background response: the gateway waits for the answer, and follows its stream."""
    return structs.replace(without_background(request), stream=True)
