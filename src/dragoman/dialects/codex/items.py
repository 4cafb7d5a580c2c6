"""The messages and the reasoning of one Codex turn, as parts.

This module handles the growth and the end of items; `decode` and `calls` handle threads, turns and calls.

After a broken connection Codex starts the same item again from the beginning of its text. Emitted text cannot be
withdrawn, so the first attempt ends as an incomplete part and the second is a new part. Ids are the upstream's, and a
later item of the turn may have the same id.
"""

from msgspec.structs import replace

from dragoman.core.fields import Fields, read_fragment, read_objects, read_text, read_texts
from dragoman.core.open_parts import OpenReasoning, OpenText, Parts
from dragoman.core.surrogates import replace_lone
from dragoman.dialects.codex.wire import extra_of
from dragoman.model.events import ReasoningChannel
from dragoman.model.parts import Extra, PartStatus, Reasoning, Seal, Text

_KNOWN = frozenset(
    {"type", "id", "text", "summary", "content", "startedAtMs", "completedAtMs"},
)


class Items:
    """The open items of a turn by id, and the ids of the ended items."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._open: dict[str, OpenText | OpenReasoning] = {}
        self._ended: set[str] = set()

    def start(self, fields: Fields, *, is_message: bool) -> None:
        item_id = read_fragment(fields.get("id")) or ""
        extra = extra_of(fields, _KNOWN)
        if is_message:
            self._begin_message(item_id, extra).add(read_fragment(fields.get("text")) or "")
        else:
            self._begin_reasoning(item_id, extra)

    def add_text(self, item_id: str, text: str) -> None:
        message = self._open.get(item_id)
        if not isinstance(message, OpenText):
            self._report_missing_start(item_id)
            message = self._begin_message(item_id, None)
        message.add(text)

    def add_thought(self, item_id: str, text: str, channel: ReasoningChannel, index: int) -> None:
        reasoning = self._open.get(item_id)
        if not isinstance(reasoning, OpenReasoning):
            self._report_missing_start(item_id)
            reasoning = self._begin_reasoning(item_id, None)
        reasoning.add(text, channel, index)

    def append(self, item_id: str, text: str) -> bool:
        """Add text to a started message, the common case of `add_text`; False if no such message is open."""
        message = self._open.get(item_id)
        if not isinstance(message, OpenText):
            return False
        message.add(text)
        return True

    def complete(self, fields: Fields, *, is_message: bool) -> None:
        """Read the finished item. Text that the deltas lacked is emitted; where item and deltas differ, the item wins."""
        item_id = read_fragment(fields.get("id")) or ""
        item = self._open.get(item_id)
        if item is None and item_id in self._ended:
            return
        extra = extra_of(fields, _KNOWN)
        if is_message:
            if not isinstance(item, OpenText):
                item = self._begin_message(item_id, extra)
            item.complete(read_text(fields.get("text")) or "")
            item.value = replace(item.header, extra=extra or item.header.extra)
            self._end(item_id, "completed")
            return
        if not isinstance(item, OpenReasoning):
            item = self._begin_reasoning(item_id, extra)
        # Codex streams raw reasoning and then omits it here: an empty list removes nothing.
        channels: tuple[ReasoningChannel, ...] = ("summary", "content")
        for channel in channels:
            for index, entry in enumerate(read_texts(fields.get(channel))):
                item.complete(entry, channel, index)
        self._end(item_id, "completed", extra)

    def raw_message(self, fields: Fields) -> None:
        """Read the model's own message. An item has brought its text before, unless the caller asked for no items."""
        item_id = read_fragment(fields.get("id")) or ""
        is_known = item_id in self._ended or item_id in self._open
        if read_fragment(fields.get("role")) == "assistant" and not is_known:
            texts = [
                (read_fragment(content.get("text")) or "")
                for content in read_objects(fields.get("content"))
            ]
            self._begin_message(item_id, None).add("".join(texts))
            self._end(item_id, "completed")

    def raw_reasoning(self, fields: Fields) -> None:
        """Read the seal of the model's own reasoning, which only this item has. A late seal makes a part of its own."""
        data = read_fragment(fields.get("encrypted_content")) or ""
        if not data:
            return
        item_id = read_fragment(fields.get("id")) or ""
        seal = Seal("encrypted", replace_lone(data))
        item = self._open.get(item_id)
        if isinstance(item, OpenReasoning):
            item.seal((seal,))
        else:
            self._begin_reasoning(item_id, None).seal((seal,))
            self._end(item_id, "completed")

    def abandon(self) -> None:
        """End every open item as incomplete."""
        for item_id in tuple(self._open):
            self._end(item_id, "incomplete")

    @property
    def is_idle(self) -> bool:
        return not self._open

    def _begin_message(self, item_id: str, extra: Extra | None) -> OpenText:
        self._end_repeated(item_id)
        message = OpenText(self._parts, Text(item_id=item_id or None, extra=extra))
        self._open[item_id] = message
        return message

    def _begin_reasoning(self, item_id: str, extra: Extra | None) -> OpenReasoning:
        self._end_repeated(item_id)
        reasoning = OpenReasoning(self._parts, Reasoning(item_id=item_id or None, extra=extra))
        self._open[item_id] = reasoning
        return reasoning

    def _end_repeated(self, item_id: str) -> None:
        if item_id in self._open:
            message = f"item {item_id!r} was started again before it was completed"
            self._parts.report("restarted_item", message)
            self._end(item_id, "incomplete")

    def _report_missing_start(self, item_id: str) -> None:
        message = f"expected item/started of {item_id!r} before its text"
        self._parts.report("missing_start", message)

    def _end(self, item_id: str, status: PartStatus, extra: Extra | None = None) -> None:
        """End an item. `extra`: the extra fields of a finished reasoning."""
        item = self._open.pop(item_id)
        if isinstance(item, OpenReasoning):
            item.end(status, replace(item.header, extra=extra or item.header.extra))
        else:
            item.end(status)
        if status == "completed":
            self._ended.add(item_id)
