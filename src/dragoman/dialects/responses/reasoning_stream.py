"""A reasoning item, streamed: entries of its summary and of its content, one after the other.

An entry is opened by its first delta and closed when another begins. A delta for an entry that was closed is written
under its index without opening it again; the finished item has the whole text in any case.
"""

from typing import final

from dragoman.dialects.responses.frames import Stencil
from dragoman.dialects.responses.sheet import Sheet
from dragoman.dialects.responses.writing import JsonObject
from dragoman.model.events import ReasoningChannel, ReasoningDelta
from dragoman.model.parts import Reasoning

__all__ = ("ReasoningStream",)

_Key = tuple[ReasoningChannel, int]
_Told = tuple[str, JsonObject]

_NAMES = {
    # channel: its index field, and the names of its events
    "summary": (
        "summary_index",
        "response.reasoning_summary_part",
        "response.reasoning_summary_text",
    ),
    "content": ("content_index", "response.content_part", "response.reasoning_text"),
}
_TYPES = {"summary": "summary_text", "content": "reasoning_text"}


@final
class ReasoningStream:
    def __init__(self, part: int, header: Reasoning, sheet: Sheet) -> None:
        self.part = part
        self._sheet = sheet
        self._id = sheet.items.item_id("reasoning", header.item_id)
        self._index, self.opening = sheet.add_item(sheet.items.reasoning(header, self._id))
        self._stencils: dict[_Key, Stencil] = {}
        self._pieces: dict[_Key, list[str]] = {}
        self._open: _Key | None = None

    def delta(self, event: ReasoningDelta) -> bytes:
        key = (event.channel, event.index)
        stencil = self._stencils.get(key)
        out = b""
        if stencil is None:
            out = self._write(self._close_entry()) + self._write([self._open_entry(key)])
            stencil = self._stencils[key]
        self._pieces[key].append(event.text)
        return out + self._sheet.events.delta(stencil, event.text)

    def end(self, value: Reasoning) -> bytes:
        told = self._close_entry()
        told += self._open_empty("summary", len(value.summary))
        told += self._open_empty("content", len(value.content))
        item = self._sheet.items.reasoning(value, self._id)
        is_held = value.status != "completed"
        if is_held:
            self._sheet.held += told
            return self._sheet.end_item(self._index, item, is_held=True)
        return self._write(told) + self._sheet.end_item(self._index, item)

    def _open_empty(self, channel: ReasoningChannel, count: int) -> list[_Told]:
        """Entries without text have no deltas, but they exist."""
        known = [index for name, index in self._stencils if name == channel]
        first = max(known, default=-1) + 1
        told: list[_Told] = []
        for index in range(first, first + count - len(known)):
            told += [self._open_entry((channel, index)), *self._close_entry()]
        return told

    def _open_entry(self, key: _Key) -> _Told:
        channel, index = key
        index_name, part_name, text_name = _NAMES[channel]
        place = self._place(index_name, index)
        self._stencils[key] = Stencil(self.part, ReasoningDelta, f"{text_name}.delta", place)
        self._pieces[key] = []
        self._open = key
        return f"{part_name}.added", {**place, "part": {"type": _TYPES[channel], "text": ""}}

    def _close_entry(self) -> list[_Told]:
        if self._open is None:
            return []
        channel, index = key = self._open
        self._open = None
        index_name, part_name, text_name = _NAMES[channel]
        place = self._place(index_name, index)
        text = "".join(self._pieces[key])
        return [
            (f"{text_name}.done", {**place, "text": text}),
            (f"{part_name}.done", {**place, "part": {"type": _TYPES[channel], "text": text}}),
        ]

    def _place(self, index_name: str, index: int) -> JsonObject:
        return {"item_id": self._id, "output_index": self._index, index_name: index}

    def _write(self, told: list[_Told]) -> bytes:
        return b"".join([self._sheet.events.event(name, fields) for name, fields in told])
