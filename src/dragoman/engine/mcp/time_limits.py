"""Time limits of one server that stand still while a person is asked: a login or a form may take minutes."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

__all__ = ("TimeLimits",)


class TimeLimits:
    """`async with limits.within(10):` raises `TimeoutError` after ten seconds, not counting those of `paused()`."""

    def __init__(self) -> None:
        # The seconds that are left of each limit, while they stand still.
        self._left: dict[asyncio.Timeout, float] = {}
        self._pauses = 0

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncGenerator[None]:
        """Raises:
        TimeoutError: the time is over.
        """
        async with asyncio.timeout(None if self._pauses else seconds) as limit:
            self._left[limit] = seconds
            try:
                yield
            finally:
                del self._left[limit]

    @contextmanager
    def paused(self) -> Generator[None]:
        now = asyncio.get_running_loop().time
        self._pauses += 1
        if self._pauses == 1:
            for limit, end in [(each, each.when()) for each in self._left]:
                if end is not None and not limit.expired():
                    self._left[limit] = end - now()
                    limit.reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                for limit, seconds in self._left.items():
                    if not limit.expired():
                        limit.reschedule(now() + seconds)
