"""The lanes of one WebSocket connection: which request runs when, and which responses are remembered. Pure.

A lane (`stream_id`, or none) is an ordered queue: its requests run one after the other, those of different lanes at the same
time, at most `MAX_RUNNING` of them; the others wait in the order in which they came.

    add(create) ──► waiting ──► running ──► end(create, …)
                       └── both return the requests to start now

Of each lane the last response that is not stored is remembered, with the whole conversation before it, in a cache that all
connections share: an idle connection costs a client nothing, so each could have its own share of the memory forever. A request
may continue the response of any lane. If the request fails, the response that it continued is forgotten, unless it is
another lane's: OpenAI's rule, by which a client learns that it must send the whole conversation again.
"""

from msgspec import structs

from dragoman.dialects.responses.websocket import Create
from dragoman.errors import RequestRefused
from dragoman.server.limits import GatewayRefusal
from dragoman.store.records import Link

MAX_RUNNING = 16
"""Responses that run at a time on one connection, as published by OpenAI."""

MAX_LANES = 32
"""Named lanes of one connection, as published by OpenAI."""

MAX_WAITING = 64
"""Requests that wait on one connection: four for each that may run. A client that waits for its answers has none."""


PART_BYTES = 256
"""What a part of a conversation takes in memory besides its text, measured with 120,000 messages of one letter."""


class LaneBusy(GatewayRefusal):
    """Too many requests wait on the connection."""

    kind = "rate_limit"
    status = 429
    headers = ((b"retry-after", b"1"),)


class ConversationCache:
    """The conversations that the connections of one worker remember, of `max_bytes` together.

    Beyond that, the one that was used longest ago is forgotten. Its client is answered `previous_response_not_found`, and
    sends the whole conversation.
    """

    __slots__ = ("_entries", "_max_bytes", "_size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        # By connection and lane, the one that was used longest ago first.
        self._entries: dict[tuple[Lanes, str | None], tuple[Link, int]] = {}

    def resize(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._make_room()

    def put(self, lanes: "Lanes", lane: str | None, link: Link) -> None:
        self.remove(lanes, lane)
        parts = sum([len(turn.parts) for turn in link.request.turns])
        size = link.head.size + PART_BYTES * parts
        self._entries[lanes, lane] = (link, size)
        self._size += size
        self._make_room()

    def _make_room(self) -> None:
        while self._size > self._max_bytes:
            self.remove(*next(iter(self._entries)))

    def get(self, lanes: "Lanes", lane: str | None) -> Link | None:
        entry = self._entries.pop((lanes, lane), None)
        if entry is None:
            return None
        self._entries[lanes, lane] = entry
        return entry[0]

    def remove(self, lanes: "Lanes", lane: str | None) -> None:
        entry = self._entries.pop((lanes, lane), None)
        if entry is not None:
            self._size -= entry[1]


class Lanes:
    """`max_bytes`: of the requests that wait together, and of one remembered conversation."""

    __slots__ = ("_cache", "_ids", "_names", "_running", "_waiting", "max_bytes")

    def __init__(self, max_bytes: int, cache: ConversationCache) -> None:
        self.max_bytes = max_bytes
        self._cache = cache
        self._names: set[str] = set()
        self._running: set[str | None] = set()
        self._waiting: list[Create] = []
        self._ids: dict[str | None, str] = {}  # of the response that each lane remembers

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
            len(self._waiting) >= MAX_WAITING or waiting + create.size > self.max_bytes
        ):
            raise LaneBusy(
                f"expected at most {MAX_WAITING} requests, of {self.max_bytes} bytes together, to wait on one connection",
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
        if has_failed:
            self.note_failure(lane, create.previous)
        return self._start()

    def note_failure(self, lane: str | None, previous: str | None) -> None:
        """Forget the response that a failed request continued, unless it is another lane's."""
        if previous is not None and self._ids.get(lane) == previous:
            self._forget(lane)

    def drop_waiting(self) -> list[Create]:
        """Remove the requests that wait, and return them."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def recall(self, response_id: str) -> Link | None:
        """The remembered response with this id, whichever lane it belongs to."""
        lanes = [lane for lane, known in self._ids.items() if known == response_id]
        found = (self._cache.get(self, lane) for lane in lanes)
        return next((link for link in found if link is not None), None)

    def remember(self, create: Create, link: Link) -> None:
        """Remember the response to a request in place of the lane's last one, if the conversation is not too large.

        The size in the link's head is that of the conversation without the input of the request.
        """
        lane = create.lane
        self._forget(lane)
        size = link.head.size + create.input_size
        if size <= self.max_bytes:
            head = structs.replace(link.head, size=size)
            self._ids[lane] = head.id
            self._cache.put(self, lane, structs.replace(link, head=head))

    def forget_all(self) -> None:
        """Forget the responses of all lanes: the connection has ended."""
        for lane in tuple(self._ids):
            self._forget(lane)

    def _forget(self, lane: str | None) -> None:
        if self._ids.pop(lane, None) is not None:
            self._cache.remove(self, lane)

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
