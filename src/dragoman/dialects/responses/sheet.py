"""What the writers of one stream share: the count of events, the output so far, and what is held back."""

from dragoman.core.losses import LossBook
from dragoman.dialects.responses.frames import EventWriter
from dragoman.dialects.responses.writing import ItemWriter, JsonObject

__all__ = ("Sheet",)


class Sheet:
    """`output` has a place for every item from its first event on, so indices are dense and equal the final order.

    `held` are events that close something incomplete: written when the answer goes on, never before a failure.
    """

    def __init__(self, events: EventWriter, items: ItemWriter, book: LossBook) -> None:
        self.events = events
        self.items = items
        self.book = book
        self.output: list[object] = []
        self.held: list[tuple[str, JsonObject]] = []

    def add_item(self, item: object) -> tuple[int, bytes]:
        """Announce an item: its index, and the event."""
        index = len(self.output)
        self.output.append(item)
        return index, self.events.event(
            "response.output_item.added", {"item": item, "output_index": index}
        )

    def end_item(self, index: int, item: object, *, is_held: bool = False) -> bytes:
        """Finish an item. Held back: its end is written by `release`, or never."""
        self.output[index] = item
        fields: JsonObject = {"item": item, "output_index": index}
        if is_held:
            self.held.append(("response.output_item.done", fields))
            return b""
        return self.events.event("response.output_item.done", fields)

    def release(self) -> bytes:
        """Write what was held back."""
        held, self.held = self.held, []
        return b"".join([self.events.event(name, fields) for name, fields in held])
