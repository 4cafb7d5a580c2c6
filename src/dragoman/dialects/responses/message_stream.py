"""A message, streamed: one text after another, open until something else begins."""

from typing import assert_never, final

from dragoman._json import Raw
from dragoman.dialects.responses.frames import Stencil
from dragoman.dialects.responses.sheet import Sheet
from dragoman.dialects.responses.writing import JsonObject, MessagePart
from dragoman.model.events import AnnotationAdded, TextDelta
from dragoman.model.parts import Extra, Opaque, PartStatus, Refusal, Text

__all__ = ("MessageStream",)


@final
class MessageStream:
    """`source` is the native item the message stands for; None if each text is a message of its own."""

    def __init__(self, header: MessagePart, sheet: Sheet) -> None:
        self.source = header.item_id
        self.part = -1
        self.stencil = Stencil(-1, None)
        self._sheet = sheet
        self._extra = _item_extra(header)
        self._id = sheet.items.item_id("message", header.item_id)
        item = sheet.items.message(self._id, "in_progress", (), self._extra)
        self._index, self._opening = sheet.add_item(item)
        self._contents: list[object] = []
        self._annotations = 0
        self._is_refusal = False
        self._status: PartStatus = "completed"
        self._held: list[tuple[str, JsonObject]] = []

    def start(self, part: int, header: MessagePart) -> bytes:
        """Another content part of this message."""
        self.part = part
        self._annotations = 0
        self._is_refusal = isinstance(header, Refusal)
        opening, self._opening = self._opening, b""
        late, self._held = self._held, []
        events = self._sheet.events
        out = [opening, *(events.event(name, fields) for name, fields in late)]
        place = self._place()
        empty = self._sheet.items.empty_content(header)
        out.append(events.event("response.content_part.added", {**place, "part": empty}))
        match header:
            case Text():
                name = "response.output_text.delta"
                self.stencil = Stencil(part, TextDelta, name, {**place, "logprobs": []})
            case Refusal():
                self.stencil = Stencil(part, TextDelta, "response.refusal.delta", place)
            case Opaque():
                self.stencil = Stencil(part, None)
            case _:
                assert_never(header)
        return b"".join(out)

    def delta(self, event: TextDelta) -> bytes:
        if event.logprobs is None or self._is_refusal:
            return self._sheet.events.delta(self.stencil, event.text)
        fields: JsonObject = {**self._place(), "delta": event.text, "logprobs": event.logprobs}
        return self._sheet.events.event("response.output_text.delta", fields)

    def annotate(self, event: AnnotationAdded) -> bytes:
        told = self._sheet.items.annotation(event.annotation)
        if told is None:
            return b""
        index = self._annotations
        self._annotations += 1
        fields: JsonObject = {**self._place(), "annotation": told, "annotation_index": index}
        return self._sheet.events.event("response.output_text.annotation.added", fields)

    def end(self, value: MessagePart) -> bytes:
        """The content part is over; the message may go on."""
        place = self._place()
        content = self._sheet.items.content(value)
        told: list[tuple[str, JsonObject]] = []
        match value:
            case Text():
                logprobs = Raw(b"[]") if value.logprobs is None else value.logprobs
                fields: JsonObject = {**place, "logprobs": logprobs, "text": value.text}
                told.append(("response.output_text.done", fields))
            case Refusal():
                told.append(("response.refusal.done", {**place, "refusal": value.text}))
            case Opaque():
                pass
            case _:
                assert_never(value)
        told.append(("response.content_part.done", {**place, "part": content}))
        self._contents.append(content)
        self._extra = _item_extra(value) or self._extra
        self.part = -1
        self._status = "completed" if isinstance(value, Opaque) else value.status
        if self._status != "completed":
            self._held += told
            return b""
        return b"".join([self._sheet.events.event(name, fields) for name, fields in told])

    def close(self) -> bytes:
        """The message is over. If its last text is incomplete, its end is held back."""
        item = self._sheet.items.message(self._id, self._status, self._contents, self._extra)
        is_held = self._status != "completed"
        self._sheet.held += self._held
        return self._sheet.end_item(self._index, item, is_held=is_held)

    def _place(self) -> JsonObject:
        return {
            "content_index": len(self._contents),
            "item_id": self._id,
            "output_index": self._index,
        }


def _item_extra(part: MessagePart) -> Extra | None:
    return None if isinstance(part, Opaque) else part.item_extra
