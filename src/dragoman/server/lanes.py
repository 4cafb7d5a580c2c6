"""The lanes of one WebSocket connection: which request runs when, and which responses are remembered. Pure.

A lane (`stream_id`, or none) is an ordered queue: its requests run one after the other, those of different lanes at the same
time, at most `MAX_RUNNING` of them; the others wait in the order in which they came.

    add(create) ──► waiting ──► running ──► end(create, …)
                       └── both return the requests to start now

Of each lane the last response that is not stored is remembered, with the whole conversation before it. A request may
continue the response of any lane. If the request fails, the response that it continued is forgotten, unless it is
another lane's: OpenAI's rule, by which a client learns that it must send the whole conversation again.
"""

from dragoman.dialects.responses import Create
from dragoman.errors import RequestRefused
from dragoman.server.limits import GatewayRefusal
from dragoman.store.records import Link

MAX_RUNNING = 16
"""Responses that run at a time on one connection, as published by OpenAI."""

MAX_LANES = 32
"""Named lanes of one connection, as published by OpenAI."""

MAX_WAITING = 64
"""Requests that wait on one connection: four for each that may run. A client that waits for its answers has none."""


class LaneBusy(GatewayRefusal):
    """Too many requests wait on the connection."""

    kind = "rate_limit"
    status = 429
    headers = ((b"retry-after", b"1"),)


class Lanes:
    """`max_bytes`: of the requests that wait together, and of one remembered conversation."""

    __slots__ = ("_max_bytes", "_names", "_remembered", "_running", "_waiting")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._names: set[str] = set()
        self._running: set[str | None] = set()
        self._waiting: list[Create] = []
        self._remembered: dict[str | None, tuple[Link, int]] = {}

    @property
    def is_idle(self) -> bool:
        return not (self._running or self._waiting)

    def add(self, create: Create) -> list[Create]:
        """Add a request. Returns the requests to start now.

        Raises:
            RequestRefused: there are too many lanes. LaneBusy: too many requests wait.
        """
        name = create.lane
        if name is not None and name not in self._names and len(self._names) >= MAX_LANES:
            raise RequestRefused(
                f"expected at most {MAX_LANES} different values of stream_id on one connection",
                param="stream_id",
                code="websocket_stream_limit_reached",
            )
        waiting = sum([each.size for each in self._waiting])
        if self._waiting and (
            len(self._waiting) >= MAX_WAITING or waiting + create.size > self._max_bytes
        ):
            raise LaneBusy(
                f"expected at most {MAX_WAITING} requests, of {self._max_bytes} bytes together, to wait on one connection",
                code="websocket_queue_full",
            )
        if name is not None:
            self._names.add(name)
        self._waiting.append(create)
        return self._start()

    def end(self, create: Create, *, has_failed: bool) -> list[Create]:
        """Note that a request has been answered. Returns the requests to start now."""
        lane = create.lane
        self._running.discard(lane)
        remembered = self._remembered.get(lane)
        if has_failed and remembered is not None and remembered[0].head.id == create.previous:
            del self._remembered[lane]
        return self._start()

    def drop_waiting(self) -> list[Create]:
        """Remove the requests that wait, and return them."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def recall(self, response_id: str) -> Link | None:
        """The remembered response with this id, whichever lane it belongs to."""
        return next(
            (link for link, _ in self._remembered.values() if link.head.id == response_id), None
        )

    def remember(self, create: Create, link: Link) -> None:
        """Remember the response to a request in place of the lane's last one, if the conversation is not too large."""
        sizes = {each.head.id: size for each, size in self._remembered.values()}
        size = sizes.get(create.previous or "", 0) + create.size + link.head.size
        self._remembered.pop(create.lane, None)
        if size <= self._max_bytes:
            self._remembered[create.lane] = (link, size)

    def _start(self) -> list[Create]:
        starting: list[Create] = []
        kept: list[Create] = []
        for create in self._waiting:
            if len(self._running) < MAX_RUNNING and create.lane not in self._running:
                self._running.add(create.lane)
                starting.append(create)
            else:
                kept.append(create)
        self._waiting = kept
        return starting
