"""The items of one Codex turn, told as parts: messages, reasoning, and whatever Codex did by itself.

Knows how an item grows and ends; knows nothing of threads, turns or calls (`decode`, `calls`).

After a broken connection Codex starts the same item again and its text starts over. What was told cannot be
withdrawn, so the first attempt ends as an incomplete part and the second is a part of its own.
"""

from collections.abc import Iterable

from dragoman._json import Raw
from dragoman.core.surrogates import join_halves, replace_lone
from dragoman.dialects.codex.wire import Fields, entries_of, extra_of, objects_of, text_of
from dragoman.model.events import (
    Event,
    PartEnded,
    PartStarted,
    ReasoningChannel,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import Extra, Opaque, Part, PartStatus, Reasoning, Seal, Text

__all__ = ("Items", "Teller")

_CHANNELS: tuple[ReasoningChannel, ...] = ("summary", "content")
_KNOWN_TEXT = frozenset({"type", "id", "text", "startedAtMs", "completedAtMs"})
_KNOWN_REASONING = frozenset(
    {"type", "id", "summary", "content", "startedAtMs", "completedAtMs", "encrypted_content"}
)


class Teller:
    """Numbers the parts of an answer and collects the events of one message."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._count = 0

    def tell(self, event: Event) -> None:
        self._events.append(event)

    def open(self, header: Part) -> int:
        part = self._count
        self._count += 1
        self._events.append(PartStarted(part, header))
        return part

    def whole(self, value: Opaque) -> None:
        """A part that does not stream."""
        self._events.append(PartEnded(self.open(value), value))

    def take(self) -> tuple[Event, ...]:
        events = tuple(self._events)
        self._events.clear()
        return events


class _Message:
    __slots__ = ("extra", "held", "item_id", "part", "pieces")

    def __init__(self, part: int, item_id: str, extra: Extra | None) -> None:
        self.part = part
        self.item_id = item_id
        self.extra = extra
        self.pieces: list[str] = []
        self.held = ""  # half a surrogate pair, waiting for the other


class _Thinking:
    __slots__ = ("entries", "extra", "held", "item_id", "part", "seals")

    def __init__(self, part: int, item_id: str, extra: Extra | None) -> None:
        self.part = part
        self.item_id = item_id
        self.extra = extra
        self.entries: dict[tuple[ReasoningChannel, int], list[str]] = {}
        self.held: dict[tuple[ReasoningChannel, int], str] = {}
        self.seals: list[Seal] = []


class Items:
    """The open items of a turn by their id, and which messages have been told."""

    def __init__(self, teller: Teller, found: list[tuple[str, str]]) -> None:
        self._teller = teller
        self._found = found
        self._open: dict[str, _Message | _Thinking] = {}
        self._told: set[str] = set()

    def start_message(self, item: Fields) -> None:
        item_id = text_of(item, "id")
        self._restart(item_id)
        message = self._open_message(item_id, extra_of(item, _KNOWN_TEXT))
        self._grow(message, text_of(item, "text"))

    def message_delta(self, item_id: str, text: str) -> None:
        message = self._open.get(item_id)
        if not isinstance(message, _Message):
            self._find("missing_start", f"expected item/started before the text of {item_id!r}")
            self._restart(item_id)
            message = self._open_message(item_id, None)
        self._grow(message, text)

    def end_message(self, item: Fields) -> None:
        item_id = text_of(item, "id")
        message = self._open.pop(item_id, None)
        if not isinstance(message, _Message):
            if message is None and item_id in self._told:
                return
            message = self._open_message(item_id, extra_of(item, _KNOWN_TEXT))
            del self._open[item_id]
        message.extra = extra_of(item, _KNOWN_TEXT) or message.extra
        whole = replace_lone(text_of(item, "text"))
        told = "".join(message.pieces)
        amended = bool(whole) and not whole.startswith(told)
        if amended:
            self._find("text_disagrees", f"item/completed of {item_id!r} changed its text")
            message.pieces, message.held = [whole], ""
        elif whole:
            message.held = ""
            self._grow(message, whole[len(told) :])
        self._end(message, "completed", amended=amended)

    def raw_message(self, item: Fields) -> None:
        """The model's own item. Its text has come as an agent message, unless that was not asked for."""
        item_id = text_of(item, "id")
        if text_of(item, "role") != "assistant" or item_id in self._told or item_id in self._open:
            return
        texts = [text_of(content, "text") for content in objects_of(item, "content")]
        message = self._open_message(item_id, None)
        del self._open[item_id]
        self._grow(message, "".join(texts))
        self._end(message, "completed")

    def start_reasoning(self, item: Fields) -> None:
        item_id = text_of(item, "id")
        self._restart(item_id)
        self._open_thinking(item_id, extra_of(item, _KNOWN_REASONING))

    def reasoning_delta(
        self, item_id: str, text: str, channel: ReasoningChannel, index: int
    ) -> None:
        thinking = self._open.get(item_id)
        if not isinstance(thinking, _Thinking):
            self._find("missing_start", f"expected item/started before reasoning of {item_id!r}")
            self._restart(item_id)
            thinking = self._open_thinking(item_id, None)
        self._think(thinking, text, channel, index)

    def end_reasoning(self, item: Fields) -> None:
        item_id = text_of(item, "id")
        thinking = self._open.pop(item_id, None)
        if not isinstance(thinking, _Thinking):
            if message_is_told := message_told(thinking, item_id, self._told):
                return
            thinking = self._open_thinking(item_id, extra_of(item, _KNOWN_REASONING))
            del self._open[item_id]
