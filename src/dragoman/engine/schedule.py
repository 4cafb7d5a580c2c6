"""Decides which calls may run now: parallel tools run beside one another, every other tool runs alone, all in queue order.

This is a read-write lock that decides instead of waiting. Calls are in one queue, in the order in which they became complete.
The first call starts

- if it is parallel: when nothing exclusive runs and fewer than `max_parallel` do;
- if it is exclusive: when nothing runs.

A call that cannot start yet holds up all calls behind it, so parallel calls never starve an exclusive one.
"""

from collections import deque


class Schedule:
    """The queue of calls, by number. Every method that may start calls returns the calls that start now, in order."""

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
        """Remove a running call that has ended."""
        self._running.remove(call)
        self._is_exclusive = self._is_exclusive and bool(self._running)
        return self._advance()

    def clear(self) -> list[int]:
        """Start nothing more. Returns the calls that were waiting."""
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
