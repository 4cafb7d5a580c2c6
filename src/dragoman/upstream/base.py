"""The interface of an upstream: it takes a request body in a dialect and replies with bytes in the same dialect.

Nothing here knows HTTP, a dialect's fields or a client. `http/` talks to servers, `rehearsal/` answers by itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dragoman.core.secrets import Secrets
from dragoman.model.parts import Dialect


class UpstreamRequest(Struct, frozen=True, kw_only=True):
    """One attempt. `body` is in `dialect`, ready to be sent; `model` is the upstream's name for the model.

    headers: all headers of the client, in lower case; an upstream passes on only those that servers of its dialect understand.
    client_key: the caller's key, for upstreams that pass it on.
    operation: `generate`, `count_tokens` (Messages and Responses), or `models`, which has no body.
    betas: Messages only: betas of the vendor that the request needs, besides those in the client's headers.
    trace: the headers with which the upstream continues the trace of the request; None: it learns nothing of the trace.
    """

    dialect: Dialect
    body: bytes
    stream: bool
    model: str
    operation: str = "generate"
    headers: Mapping[str, str] = {}
    client_key: str | None = None
    request_id: str = ""
    betas: tuple[str, ...] = ()
    trace: Mapping[str, str] | None = None


MODELS = "models"


def models_request(dialect: Dialect, client_key: str | None = None) -> UpstreamRequest:
    """The request for the names of an upstream's models."""
    return UpstreamRequest(
        dialect=dialect, body=b"", stream=False, model="", operation=MODELS, client_key=client_key
    )


class CheckResult(Struct, frozen=True):
    """The result of checking an upstream. `status` is None when nothing answered."""

    ok: bool
    status: int | None
    detail: str


Take = Callable[[list[bytes]], bool]
"""Takes the pieces of one read of an answer, not the list. False: it wants no more for now. It must not raise."""


class UpstreamReply(ABC):
    """An upstream's answer while it arrives. The receiver closes it, however the exchange ends.

    Header names are in lower case.
    """

    __slots__ = ()

    status: int
    headers: Mapping[str, str]

    @property
    def is_over(self) -> bool:
        """Whether the answer is known to be read to its end."""
        return False

    def take_pieces(self) -> list[bytes]:
        """The pieces of the whole answer, if all of it has arrived; otherwise an empty list."""
        return []

    @abstractmethod
    async def read(self) -> bytes:
        """The next bytes, as many as have arrived; empty at the end.

        Raises:
            UpstreamError: kind `timeout` (nothing came for the idle time) or `truncated` (the connection was cut).
        """

    async def forward(self, take: Take) -> bool:
        """Pass each read to `take` when it comes, until `take` returns False. True: the answer has ended.

        Raises:
            UpstreamError: as `read`.
        """
        while data := await self.read():
            if not take([data]):
                return False
        return True

    @abstractmethod
    def close(self) -> None:
        """Reuse the connection if the answer was read whole, else cut it at once. May be called twice."""


class Upstream(Protocol):
    """A server or program that answers requests. Lives as long as the gateway."""

    @property
    def name(self) -> str: ...

    @property
    def secrets(self) -> Secrets:
        """Its credentials and its address, which clients must not see in its errors."""
        ...

    def dialect_for(self, door: Dialect) -> Dialect:
        """The dialect to speak with it when the client speaks `door`."""
        ...

    def url_of(self, dialect: Dialect, operation: str) -> str:
        """The address that such a request is sent to, for the operator's log; empty if there is none."""
        ...

    def send(self, request: UpstreamRequest) -> Coroutine[object, object, UpstreamReply]:
        """Send a request; return the reply, whatever its status, as soon as status and headers are known.

        Raises:
            UpstreamError: there is no reply: kind `upstream` (cannot connect), `timeout` (connect, first byte).
        """
        ...

    async def check(self) -> CheckResult:
        """Whether the upstream can be reached and accepts its key, by the cheapest request there is."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Supervised(Protocol):
    """An upstream that runs as a child process, and may be down.

    on_limits: called with the upstream's name and its rate limits, as headers, when it reports them outside an answer.
    """

    on_limits: Callable[[str, Mapping[str, str]], None] | None

    @property
    def problem(self) -> str | None:
        """Why the upstream cannot answer now; None if it can, or has not been tried."""
        ...

    def start(self) -> None:
        """Start the upstream before the first request. Requires a running event loop."""
        ...
