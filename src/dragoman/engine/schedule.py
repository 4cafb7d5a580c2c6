"""Which calls may run now: tools that allow it share, every other runs alone, and nobody overtakes.

A read-write lock that is decided and not waited for. Calls stand in one queue in the order they were complete. The first
starts

- if it is parallel: when nothing exclusive runs and fewer than `max_parallel` do;
- if it is exclusive: when nothing runs.

One that cannot start yet keeps all behind it waiting, so an exclusive call is never starved by parallel ones.
"""

from collections import deque

__all__ = ("Schedule",)


class Schedule:
    """Calls by number. Every method that may let calls go returns those that start now, in order."""

    __slots__ = ("_is_exclusive", "_max_parallel", "_running", "_waiting")

    def __init__(self, max_parallel: int) -> None:
        self._max_parallel = max_parallel
        self._waiting: deque[tuple[int, bool]] = deque()
        self._running: set[int] = set()
        self._is_exclusive = False

    def submit(self, call: int, *, is_parallel: bool) -> list[int]:
        self._waiting.append((call, is_parallel))
        return self._advance()

    def release(self, call: int) -> list[int]:
        """A running call has ended."""
        self._running.remove(call)
        self._is_exclusive = self._is_exclusive and bool(self._running)
        return self._advance()

    def clear(self) -> list[int]:
        """Nothing more is to start. Returns the calls that were waiting."""
        waiting = [call for call, _ in self._waiting]
        self._waiting.clear()
        return waiting

    def _advance(self) -> list[int]:
        started: list[int] = []
        while self._waiting and self._has_room(is_parallel=self._waiting[0][1]):
            call, is_parallel = self._waiting.popleft()
            self._running.add(call)
            self._is_exclusive = not is_parallel
            started.append(call)
        return started

    def _has_room(self, *, is_parallel: bool) -> bool:
        if not is_parallel:
            return not self._running
        return not self._is_exclusive and len(self._running) < self._max_parallel
