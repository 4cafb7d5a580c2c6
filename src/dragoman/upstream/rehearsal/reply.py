"""A reply whose bytes are made here instead of arriving: the only module of the rehearsal that waits."""

import asyncio
from collections import deque
from collections.abc import Mapping

from dragoman.errors import UpstreamError
from dragoman.upstream.rehearsal.delivery import Delivery

__all__ = ("RehearsalReply",)


class RehearsalReply:
    """A Delivery as a `base.Reply`: each read gives the next piece, after its delay."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._pieces = deque(delivery.pieces)
        self._closed = asyncio.Event()

    @property
    def status(self) -> int:
        return self._delivery.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._delivery.headers

    async def read(self) -> bytes:
        """The next piece; empty at the end.

        Raises:
            UpstreamError: kind `truncated`: the scenario cuts the connection, or the reply was closed.
        """
        ending = self._delivery.ending
        if self._pieces:
            # Others get their turn between two pieces, as they would if these came from a socket.
            await self._wait(self._delivery.delay)
        elif ending == "stall":
            await self._closed.wait()
        if self._closed.is_set():
            raise _truncated("the reply was closed before it was read to its end")
        if self._pieces:
            return self._pieces.popleft()
        if ending == "cut":
            raise _truncated("the rehearsal cut the connection, as it was asked to")
        return b""

    def close(self) -> None:
        """Wakes whoever is reading, at once. May be called twice."""
        self._closed.set()

    async def _wait(self, delay: float) -> None:
        if not delay:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(delay):
                await self._closed.wait()
        except TimeoutError:
            pass


def _truncated(message: str) -> UpstreamError:
    error = UpstreamError(message)
    error.kind = "truncated"
    return error
