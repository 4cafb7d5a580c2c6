"""What a run is told, by its stream, its tools and its owner, in the order it happens. One task takes.

Reads of the answer are bounded: whoever brings one waits while too many stand here, so a paused observer stops the
reading. What tools and owners say is bounded by the number of calls, and reports are dropped while many wait.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from dragoman.engine.actions import Settled, Stopped
from dragoman.model.events import Event
from dragoman.model.outcome import ErrorInfo

__all__ = ("Broke", "Inbox", "Message", "Read", "Reported", "StreamEnded")

MAX_WAITING_READS = 8
"""Enough that a stream and a run which are both quick need not wait for each other at every read."""

MAX_WAITING_REPORTS = 64
"""Words on progress are for a screen; a tool that floods has most of them dropped."""


class Read(Struct, frozen=True):
    events: Sequence[Event]


class Broke(Struct, frozen=True):
    """There is no more of the answer, and it is not whole."""

    error: ErrorInfo


class StreamEnded(Struct, frozen=True):
    """Whatever the reader had to say has been said."""


class Reported(Struct, frozen=True):
    number: int
    text: str


Message = Read | Broke | StreamEnded | Reported | Settled | Stopped


class Inbox:
    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._reads = 0
        self._reports = 0
        self._arrived: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._messages

    def tell(self, message: Message) -> None:
        """Never waits."""
        if isinstance(message, Reported):
            if self._reports >= MAX_WAITING_REPORTS:
                return
            self._reports += 1
        self._add(message)

    def offer(self, events: Sequence[Event]) -> bool:
        """Bring a read; whether it was the last that there is room for."""
        self._reads += 1
        self._add(Read(events))
        return self._reads >= MAX_WAITING_READS

    async def wait_for_room(self) -> None:
        while self._reads >= MAX_WAITING_READS:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def take(self) -> Message:
        while not self._messages:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return self.take_now()

    def take_now(self) -> Message:
        """The next message, of which there must be one."""
        message = self._messages.popleft()
        if isinstance(message, Read):
            self._reads -= 1
            if self._room is not None:
                _wake(self._room)
                self._room = None
        elif isinstance(message, Reported):
            self._reports -= 1
        return message

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        if self._arrived is not None:
            _wake(self._arrived)
            self._arrived = None


def _wake(waiting: asyncio.Future[None]) -> None:
    # It may have been cancelled meanwhile.
    if not waiting.done():
        waiting.set_result(None)
