"""The turns that wait for a client's results, and whether a request continues one of them. Pure.

A turn is found by the ids of its calls. A request continues the turn if it repeats the items of the previous request
exactly, followed by the assistant's answer, then a result for every waiting call, and perhaps further user
input. Any other request is a separate conversation.

Turns are kept for a limited time and up to a limited number. Dropping one costs nothing: the request it waited for
is replayed on a new thread. The caller reads the clock and releases turns.
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
    """The results by call id, in the form of answers to `item/tool/call`; and the input for `turn/steer`, sent first."""

    results: dict[str, _Json]
    steer: list[_Json]


def settings_digest(asked: CodexRequest) -> bytes:
    """A digest of the settings that cannot change during a turn."""
    return _digest(bytes(asked.thread) + b"\0" + bytes(asked.turn))


def digests(items: Sequence[Raw]) -> tuple[bytes, ...]:
    """The digests of items, which are much smaller than the items."""
    return tuple(_digest(bytes(item)) for item in items)


def continuation(tail: Sequence[Raw], waiting: Collection[str]) -> TurnContinuation | None:
    """The continuation in `tail`, the items after those of the earlier request; None if a turn cannot take them."""
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
            return None  # the assistant continued, or another role wrote
    return TurnContinuation(results, steer) if len(results) == len(waiting) else None


def _result(output: object) -> _Json | None:
    content: list[_Json] = []
    for entry in _entries(output):
        if entry.get("type") == "input_text":
            content.append({"type": "inputText", "text": entry.get("text")})
            continue
        url = entry.get("image_url")
        # Codex accepts no other images in results, and no `detail`.
        if not isinstance(url, str) or not url.startswith("data:") or "detail" in entry:
            return None
        content.append({"type": "inputImage", "imageUrl": url})
    # The model does not see `success`, and errors are marked in the text.
    return {"contentItems": content, "success": True}


def _entries(output: object) -> list[_Json]:
    if isinstance(output, list):
        return cast("list[_Json]", output)
    return [{"type": "input_text", "text": output}]


def _user_input(content: object) -> list[_Json] | None:
    """The user's text; None with images, because Codex would add its own text around them."""
    said: list[_Json] = []
    for entry in cast("list[_Json]", content):
        if entry.get("type") != "input_text":
            return None
        said.append({"type": "text", "text": entry.get("text"), "text_elements": []})
    return said


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


class PausedTurn(Struct, Generic[T], frozen=True):
    """A paused turn: the calls it waits for, and the digests of its request. `since`: a time of the caller's clock."""

    turn: T
    calls: frozenset[str]
    settings: bytes
    said: tuple[bytes, ...]
    since: float


class PausedTurns(Generic[T]):
    """The paused turns, in the order in which they began to wait."""

    def __init__(self, ttl: float, most: int) -> None:
        self._ttl = ttl
        self._most = most
        self._held: dict[int, PausedTurn[T]] = {}
        self._by_call: dict[str, list[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, waiting: PausedTurn[T]) -> list[T]:
        """Hold a turn. Returns the turns that are dropped to make room."""
        self._count += 1
        self._held[self._count] = waiting
        for call_id in waiting.calls:
            # The model chooses call ids and may repeat them: the digests of the items show which turn is meant.
            self._by_call.setdefault(call_id, []).append(self._count)
        gone: list[T] = []
        while len(self._held) > self._most:
            gone.append(self._remove(next(iter(self._held))).turn)
        return gone

    def take(self, asked: CodexRequest) -> tuple[T, TurnContinuation] | None:
        """Stop holding the turn that a request continues; return it with its continuation."""
        candidates = self._candidates(asked)
        if not candidates:
            return None
        settings, said = settings_digest(asked), digests(asked.items)
        for number in candidates:
            waiting = self._held[number]
            size = len(waiting.said)
            if waiting.settings != settings or said[:size] != waiting.said:
                continue
            more = continuation(asked.items[size:], waiting.calls)
            if more is not None:
                return self._remove(number).turn, more
        return None

    def expired(self, now: float) -> list[T]:
        """Stop holding the turns that have waited too long; return them."""
        old = [number for number, held in self._held.items() if held.since + self._ttl <= now]
        return [self._remove(number).turn for number in old]

    def drop(self, turn: T) -> None:
        """Forget a turn, if it is paused."""
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
