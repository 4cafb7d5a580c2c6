"""The items of one Codex turn, told as parts: messages and reasoning.

Knows how an item grows and ends; knows nothing of threads, turns or calls (`decode`, `calls`).

After a broken connection Codex starts the same item again and its text starts over. What was told cannot be
withdrawn, so the first attempt ends as an incomplete part and the second is a part of its own. Ids are the upstream's
and may come again later in the turn for another item.
"""

from typing import Literal

from dragoman.core.surrogates import join_halves, replace_lone
from dragoman.dialects.codex.wire import Fields, entries_of, extra_of, objects_of, text_of
from dragoman.model.events import (
    Event,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import Extra, Opaque, Part, PartStatus, Reasoning, Result, Seal, Text

__all__ = ("Channel", "Items", "Teller")

Channel = Literal["text", "summary", "content"]
_Entry = tuple[Channel, int]

_TEXT: _Entry = ("text", 0)
_KNOWN = frozenset(
    {"type", "id", "text", "summary", "content", "startedAtMs", "completedAtMs"},
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

    def whole(self, value: Opaque | Result) -> None:
        """A part that does not stream."""
        self._events.append(PartEnded(self.open(value), value))

    def take(self) -> tuple[Event, ...]:
        events = tuple(self._events)
        self._events.clear()
        return events


class _Item:
    """An open item: a message has one entry, reasoning has any number in two channels."""

    __slots__ = ("entries", "extra", "held", "is_message", "item_id", "part", "seals")

    def __init__(self, item_id: str, extra: Extra | None, *, is_message: bool) -> None:
        self.part = 0
        self.item_id = item_id or None
        self.extra = extra
        self.is_message = is_message
        self.entries: dict[_Entry, list[str]] = {}
        self.held: dict[_Entry, str] = {}  # half a surrogate pair, waiting for the other
        self.seals: tuple[Seal, ...] = ()

    def joined(self, entry: _Entry) -> str:
        return "".join(self.entries.get(entry, ()))

    def value(self, status: PartStatus) -> Text | Reasoning:
        if self.is_message:
            return Text(
                text=self.joined(_TEXT), status=status, item_id=self.item_id, extra=self.extra
            )
        return Reasoning(
            summary=self._channel("summary"),
            content=self._channel("content"),
            seals=self.seals,
            status=status,
            item_id=self.item_id,
            extra=self.extra,
        )

    def _channel(self, channel: Channel) -> tuple[str, ...]:
        return tuple(self.joined(entry) for entry in sorted(self.entries) if entry[0] == channel)


class Items:
    """The open items of a turn by their id, and the ids that have been told."""

    def __init__(self, teller: Teller, found: list[tuple[str, str]]) -> None:
        self._teller = teller
        self._found = found
        self._open: dict[str, _Item] = {}
        self._told: set[str] = set()

    def start(self, fields: Fields, *, is_message: bool) -> None:
        item_id = text_of(fields, "id")
        item = self._begin(item_id, extra_of(fields, _KNOWN), is_message=is_message)
        if is_message:
            self._grow(item, _TEXT, text_of(fields, "text"))

    def delta(self, item_id: str, text: str, channel: Channel, index: int = 0) -> None:
        is_message = channel == "text"
        item = self._open.get(item_id)
        if item is None or item.is_message != is_message:
            self._found.append(
                ("missing_start", f"expected item/started of {item_id!r} before its text")
            )
            item = self._begin(item_id, None, is_message=is_message)
        self._grow(item, (channel, index), text)

    def append(self, item_id: str, text: str) -> TextDelta | None:
        """The common case of `delta`, for text without halves of characters; None if this is not it."""
        item = self._open.get(item_id)
        if item is None or not item.is_message or item.held:
            return None
        item.entries.setdefault(_TEXT, []).append(text)
        return TextDelta(item.part, text)

    def complete(self, fields: Fields, *, is_message: bool) -> None:
        """The item as a whole. Where it says more than the deltas did, the rest is told; where it differs, it wins."""
        item_id = text_of(fields, "id")
        item = self._open.get(item_id)
        if item is None and item_id in self._told:
            return
        extra = extra_of(fields, _KNOWN)
        if item is None or item.is_message != is_message:
            item = self._begin(item_id, extra, is_message=is_message)
        item.extra = extra or item.extra
        wholes: dict[_Entry, str] = {_TEXT: replace_lone(text_of(fields, "text"))}
        if not is_message:
            # Codex streams raw reasoning and then leaves it out here: an empty list takes nothing back.
            wholes = {
                (channel, index): entry
                for channel in ("summary", "content")
                for index, entry in enumerate(entries_of(fields, channel))
            }
        amended = [entry for entry, whole in wholes.items() if not self._settle(item, entry, whole)]
        if amended:
            self._found.append(
                ("text_disagrees", f"item/completed of {item_id!r} changed text already told")
            )
        self._end(item_id, "completed", amended=bool(amended))

    def raw_message(self, fields: Fields) -> None:
        """The model's own message. Its text has come as an item before, unless those were not asked for."""
        item_id = text_of(fields, "id")
        is_known = item_id in self._told or item_id in self._open
        if text_of(fields, "role") == "assistant" and not is_known:
            texts = [text_of(content, "text") for content in objects_of(fields, "content")]
            item = self._begin(item_id, None, is_message=True)
            self._grow(item, _TEXT, "".join(texts))
            self._end(item_id, "completed")

    def raw_reasoning(self, fields: Fields) -> None:
        """The model's own reasoning: only its seal is news, and only here. Late, it makes a part of its own."""
        data = text_of(fields, "encrypted_content")
        if not data:
            return
        item_id = text_of(fields, "id")
        seal = Seal("encrypted", replace_lone(data))
        item = self._open.get(item_id)
        is_open = item is not None and not item.is_message
        if item is None or not is_open:
            item = self._begin(item_id, None, is_message=False)
        item.seals = (*item.seals, seal)
        self._teller.tell(SealAdded(item.part, seal))
        if not is_open:
            self._end(item_id, "completed")

    def abandon(self) -> None:
        """End every open item as incomplete."""
        for item_id in tuple(self._open):
            self._end(item_id, "incomplete")

    @property
    def is_idle(self) -> bool:
        return not self._open

    def _begin(self, item_id: str, extra: Extra | None, *, is_message: bool) -> _Item:
        if item_id in self._open:
            self._found.append(
                ("restarted_item", f"item {item_id!r} was started again before it was completed")
            )
            self._end(item_id, "incomplete")
        item = _Item(item_id, extra, is_message=is_message)
        item.part = self._teller.open(item.value("in_progress"))
        self._open[item_id] = item
        return item

    def _grow(self, item: _Item, entry: _Entry, text: str) -> None:
        told, half = join_halves(item.held.pop(entry, ""), text)
        if half:
            item.held[entry] = half
        self._tell(item, entry, told)

    def _tell(self, item: _Item, entry: _Entry, text: str) -> None:
        if not text:
            return
        item.entries.setdefault(entry, []).append(text)
        channel, index = entry
        if channel == "text":
            self._teller.tell(TextDelta(item.part, text))
        else:
            self._teller.tell(ReasoningDelta(item.part, text, channel, index))

    def _settle(self, item: _Item, entry: _Entry, whole: str) -> bool:
        """Take the whole text of an entry; False if it contradicts what was told."""
        if not whole:
            return True
        item.held.pop(entry, None)
        told = item.joined(entry)
        if whole.startswith(told):
            self._tell(item, entry, whole[len(told) :])
            return True
        item.entries[entry] = [whole]
        return False

    def _end(self, item_id: str, status: PartStatus, *, amended: bool = False) -> None:
        item = self._open.pop(item_id)
        for entry, half in item.held.items():
            self._tell(item, entry, replace_lone(half))
        self._teller.tell(PartEnded(item.part, item.value(status), amended))
        if status == "completed":
            self._told.add(item_id)
