"""The turns that wait for a client to come back with results. Pure: the caller reads the clock and lets go of turns.

A turn is found by the ids of its calls, and goes to the request that continues it (`continuation`). It is kept for a
time and among so many; a turn that is let go costs nothing, because the request it waited for is replayed on a fresh
thread.
"""

from typing import Generic, TypeVar

from msgspec import Struct

from dragoman._json import as_object, loads
from dragoman.upstream.codex.continuation import Asked, Continuation, continuation, digests

__all__ = ("HeldTurns", "Waiting")

T = TypeVar("T")


class Waiting(Struct, Generic[T], frozen=True):
    """A held turn: what it waits for, and what was said before. `since` is the caller's clock."""

    turn: T
    calls: frozenset[str]
    settings: bytes
    said: tuple[bytes, ...]
    since: float


class HeldTurns(Generic[T]):
    """In the order in which they began to wait."""

    def __init__(self, ttl: float, most: int) -> None:
        self._ttl = ttl
        self._most = most
        self._held: dict[int, Waiting[T]] = {}
        self._by_call: dict[str, list[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, waiting: Waiting[T]) -> list[T]:
        """Keep a turn. Those that must go for it come back."""
        self._count += 1
        self._held[self._count] = waiting
        for call_id in waiting.calls:
            # Ids are the model's and may repeat: what was said before tells which turn is meant.
            self._by_call.setdefault(call_id, []).append(self._count)
        gone: list[T] = []
        while len(self._held) > self._most:
            gone.append(self._remove(next(iter(self._held))).turn)
        return gone

    def take(self, asked: Asked) -> tuple[T, Continuation] | None:
        """The turn that a request continues, which is held no longer, and what it is told."""
        for number in self._candidates(asked):
            waiting = self._held[number]
            size = len(waiting.said)
            if waiting.settings != asked.settings or digests(asked.items[:size]) != waiting.said:
                continue
            told = continuation(asked.items[size:], waiting.calls)
            if told is not None:
                return self._remove(number).turn, told
        return None

    def expired(self, now: float) -> list[T]:
        """Those that have waited too long; they are held no longer."""
        old = [number for number, held in self._held.items() if held.since + self._ttl <= now]
        return [self._remove(number).turn for number in old]

    def drop(self, turn: T) -> None:
        """Forget a turn, if it is held."""
        for number, held in tuple(self._held.items()):
            if held.turn is turn:
                self._remove(number)

    def clear(self) -> list[T]:
        return [self._remove(number).turn for number in tuple(self._held)]

    def _candidates(self, asked: Asked) -> list[int]:
        """The turns that wait for the last result of a request, the latest first."""
        for raw in reversed(asked.items):
            item = as_object(bytes(raw))
            if bytes(item.get("type", b"")) == b'"function_call_output"':
                call_id = str(loads(bytes(item.get("call_id", b'""'))))
                return self._by_call.get(call_id, [])[::-1]
        return []

    def _remove(self, number: int) -> Waiting[T]:
        waiting = self._held.pop(number)
        for call_id in waiting.calls:
            numbers = self._by_call[call_id]
            numbers.remove(number)
            if not numbers:
                del self._by_call[call_id]
        return waiting
