"""What the gateway knows of an upstream: it takes a request body of a dialect and replies with bytes of the same.

Nothing here knows HTTP, a dialect's fields or a client. `http.py` speaks to servers, `rehearsal/` answers by itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct, field

from dragoman.core.secrets import Secrets
from dragoman.model.parts import Dialect


class UpstreamRequest(Struct, frozen=True, kw_only=True):
    """One attempt. `body` is in `dialect`, ready to be sent; `model` is the name the upstream knows.

    headers: the client's, lower-case, all of them; an upstream passes on only what its dialect's servers understand.
    client_key: what the caller authenticated with, for upstreams that pass it on.
    operation: `generate`, or `count_tokens` (Messages only).
    """

    dialect: Dialect
    body: bytes
    stream: bool
    model: str
    operation: str = "generate"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    client_key: str | None = None
    request_id: str = ""


class CheckResult(Struct, frozen=True):
    """What a look at an upstream found. `status` is None when nothing answered."""

    ok: bool
    status: int | None
    detail: str


Take = Callable[[list[bytes]], bool]
"""Takes one read of an answer, in the pieces it came in. False: it wants no more for now. It may not raise."""


class Reply(ABC):
    """An upstream's answer while it arrives. Whoever got it closes it, however the exchange ends.

    Header names are in lower case.
    """

    __slots__ = ()

    status: int
    headers: Mapping[str, str]

    @property
    def is_over(self) -> bool:
        """Whether it is known that the answer was read to its end."""
        return False

    def take_pieces(self) -> list[bytes]:
        """The whole answer in the pieces it came in, if all of it has arrived; otherwise nothing."""
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
        """Give the connection back if the answer was read whole, else cut it, at once. May be called twice."""


class Upstream(Protocol):
    """A place requests are sent to. Lives as long as the gateway."""

    @property
    def name(self) -> str: ...

    @property
    def secrets(self) -> Secrets:
        """What it is sent to be let in, and where it is: clients do not read of either in its errors."""
        ...

    def dialect_for(self, door: Dialect) -> Dialect:
        """The dialect to speak with it when the client speaks `door`."""
        ...

    def send(self, request: UpstreamRequest) -> Coroutine[object, object, Reply]:
        """The reply, as soon as its status and headers are known, whatever the status.

        Raises:
            UpstreamError: there is none: kind `upstream` (cannot connect), `timeout` (connect, first byte).
        """
        ...

    async def check(self) -> CheckResult:
        """Whether it can be reached and takes its key, found out by the cheapest request there is."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Supervised(Protocol):
    """An upstream that is kept running here, and may be down."""

    @property
    def problem(self) -> str | None:
        """Why it cannot answer now; None if it can, or has not been tried."""
        ...

    def start(self) -> None:
        """Get it running before somebody asks. Needs the running loop."""
        ...
