"""A limit on silence that costs nothing while there is none.

`asyncio.timeout` put off with every read would make and cancel a timer each time; one timer that looks, when it goes off,
how long ago the last read was, is made once per limit.
"""

import asyncio
from types import TracebackType
from typing import Self

__all__ = ("Silence",)


class Silence:
    """An async context: `TimeoutError` comes out of it, and `is_broken` is true, when no `heard` came for so long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._since: float | None = self._clock()
        self._timeout = asyncio.timeout(None)
        self._timer = self._loop.call_later(seconds, self._look)

    @property
    def is_broken(self) -> bool:
        return self._timeout.expired()

    def heard(self) -> None:
        """Something came: count from now."""
        self._since = self._clock()

    def pause(self) -> None:
        """It is not the other side that is waited for: do not count until `heard`."""
        self._since = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _look(self) -> None:
        now = self._clock()
        due = (now if self._since is None else self._since) + self._seconds
        if due <= now:
            self._timeout.reschedule(now)
        else:
            self._timer = self._loop.call_at(due, self._look)
