"""The turns that wait for a client to come back with results, and whether a request continues one of them. Pure.

A turn is found by the ids of its calls. A request continues it if it says what the request before it said, word for
word, then whatever the assistant answered, then a result for every call that waits, and at the end perhaps something more
of the user's. Anything else is a conversation of its own.

A turn is kept for a limited time, and only so many are kept. One that is dropped costs nothing: the request it waited for
is replayed on a fresh thread. The caller reads the clock and releases turns.
"""

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Generic, TypeVar, cast

from msgspec import Struct

from dragoman._json import Raw, as_object, loads
from dragoman.dialects.codex import CodexRequest

T = TypeVar("T")

_Json = dict[str, object]

_DIGEST_BYTES = 16


class TurnContinuation(Struct, frozen=True):
    """Results by the ids of their calls, as `item/tool/call` is answered; and what `turn/steer` gets first."""

    results: dict[str, _Json]
    steer: list[_Json]


def settings_digest(asked: CodexRequest) -> bytes:
    """Distinguishes what cannot change while a turn goes on."""
    return _digest(bytes(asked.thread) + b"\0" + bytes(asked.turn))


def digests(items: Sequence[Raw]) -> tuple[bytes, ...]:
    """What distinguishes items, at a small part of their size."""
    return tuple(_digest(bytes(item)) for item in items)


def continuation(tail: Sequence[Raw], waiting: Collection[str]) -> TurnContinuation | None:
    """What `tail`, the items after those of the earlier request, brings; None if a turn cannot be given that."""
    results: dict[str, _Json] = {}
    steer: list[_Json] = []
    for raw in tail:
        item = cast("_Json", loads(bytes(raw)))
        kind, role = item.get("type"), item.get("role")
        if kind == "function_call_output":
            call_id = str(item.get("call_id"))
            result = _result(item.get("output"))
            if call_id not in waiting or call_id in results or result is None or steer:
                return None
            results[call_id] = result
        elif kind == "message" and role == "user":
            said = _user_input(item.get("content"))
            if said is None or len(results) < len(waiting):
                return None
            steer += said
        elif results or (kind == "message" and role != "assistant"):
            return None  # the assistant had gone on, or somebody else has spoken
    return TurnContinuation(results, steer) if len(results) == len(waiting) else None


def _result(output: object) -> _Json | None:
    content: list[_Json] = []
    for entry in _entries(output):
        if entry.get("type") == "input_text":
            content.append({"type": "inputText", "text": entry.get("text")})
            continue
        url = entry.get("image_url")
        # Codex takes no other images in results, nor a word on how closely to look.
        if not isinstance(url, str) or not url.startswith("data:") or "detail" in entry:
            return None
        content.append({"type": "inputImage", "imageUrl": url})
    # Whether it succeeded is not said to the model, and errors are marked in the text.
    return {"contentItems": content, "success": True}


def _entries(output: object) -> list[_Json]:
    if isinstance(output, list):
        return cast("list[_Json]", output)
    return [{"type": "input_text", "text": output}]


def _user_input(content: object) -> list[_Json] | None:
    """Text only: what Codex puts around images would be words that the client has not said."""
    said: list[_Json] = []
    for entry in cast("list[_Json]", content):
        if entry.get("type") != "input_text":
            return None
        said.append({"type": "text", "text": entry.get("text"), "text_elements": []})
    return said


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


class PausedTurn(Struct, Generic[T], frozen=True):
    """A held turn: what it waits for, and what was said before. `since` is the caller's clock."""

    turn: T
    calls: frozenset[str]
    settings: bytes
    said: tuple[bytes, ...]
    since: float


class PausedTurns(Generic[T]):
    """In the order in which they began to wait."""

    def __init__(self, ttl: float, most: int) -> None:
        self._ttl = ttl
        self._most = most
        self._held: dict[int, PausedTurn[T]] = {}
        self._by_call: dict[str, list[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, waiting: PausedTurn[T]) -> list[T]:
        """Keep a turn. Those that must go for it come back."""
        self._count += 1
        self._held[self._count] = waiting
        for call_id in waiting.calls:
            # Ids are the model's and may repeat: what was said before shows which turn is meant.
            self._by_call.setdefault(call_id, []).append(self._count)
        gone: list[T] = []
        while len(self._held) > self._most:
            gone.append(self._remove(next(iter(self._held))).turn)
        return gone

    def take(self, asked: CodexRequest) -> tuple[T, TurnContinuation] | None:
        """The turn that a request continues, which is held no longer, and what it gets."""
        for number in self._candidates(asked):
            waiting = self._held[number]
            size = len(waiting.said)
            if (
                waiting.settings != settings_digest(asked)
                or digests(asked.items[:size]) != waiting.said
            ):
                continue
            more = continuation(asked.items[size:], waiting.calls)
            if more is not None:
                return self._remove(number).turn, more
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

    def _candidates(self, asked: CodexRequest) -> list[int]:
        """The turns that wait for the last result of a request, the latest first."""
        for raw in reversed(asked.items):
            item = as_object(bytes(raw))
            if bytes(item.get("type", b"")) == b'"function_call_output"':
                call_id = str(loads(bytes(item.get("call_id", b'""'))))
                return self._by_call.get(call_id, [])[::-1]
        return []

    def _remove(self, number: int) -> PausedTurn[T]:
        waiting = self._held.pop(number)
        for call_id in waiting.calls:
            numbers = self._by_call[call_id]
            numbers.remove(number)
            if not numbers:
                del self._by_call[call_id]
        return waiting
