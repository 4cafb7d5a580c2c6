"""The items of one answer, and the rules that find the item of an event.

Regular streams announce an item, name it by `item_id` and `output_index` in every event, and finish it. Others leave
out the announcement, the id or the index, use one id in the announcement and another in the deltas, use an index twice,
or repeat the whole output at the end under new ids. The rules, in order:

1. by id, if an item of a fitting type has it;
2. by index, if the item there fits and may take more input. An item of another type is not used: servers reuse indices;
3. with neither id nor index: the last item that fits and may take more input.

If no rule finds an item, the event implies a new one. An item keeps the first id it had.
"""

from collections.abc import Collection, Iterator

from msgspec import Struct

from dragoman.core.call_input import input_key
from dragoman.core.fields import Fields, read_text
from dragoman.core.open_parts import (
    OpenCall,
    OpenReasoning,
    OpenText,
    Problems,
)
from dragoman.core.open_wholes import OpenWhole
from dragoman.dialects.responses.items import find_call_id, find_name
from dragoman.model.parts import Call, Extra


class ItemCall(Struct, eq=False):
    """A call of an item.

    wire: the type of the input's delta events, if the input streams. closed: an event said that the input is complete.
    had_done: the `.done` event of the input came. had_whole: and it had the input. finished: the call as its item's end
    has it, if the item ended before the input. lacks_input: nothing on the wire has said yet what the input is, not even
    that it is empty. rest: the `input_key` of what deltas may still bring when the call has ended with its item; late:
    those deltas. gaps: how many gaps of the stream cannot have had a piece of the input, because they came before the call or
    before its whole input; -1 if an event of the call is missing for certain.
    streams: deltas of the input are expected.
    """

    open: OpenCall
    wire: str | None
    position: int
    gaps: int
    closed: bool = False
    had_done: bool = False
    had_whole: bool = False
    finished: Call | None = None
    lacks_input: bool = False
    rest: str | bytes = ""
    late: list[str] = []
    streams: bool = True


class OpenItem(Struct, eq=False):
    """A native item and its parts. `announced` by `output_item.added`, `done` by `output_item.done`.

    active: the call that took input last, until its input is closed or another call of the item begins. is_shared:
    another unfinished item has the same id, and only the index distinguishes the two.
    """

    type: str
    id: str | None
    index: int | None
    announced: bool = False
    done: bool = False
    matched: bool = False
    is_shared: bool = False
    active: ItemCall | None = None
    extra: Extra | None = None
    texts: dict[int, OpenText] = {}
    calls: list[ItemCall] = []
    reasoning: OpenReasoning | None = None
    whole: OpenWhole | None = None

    @property
    def takes_input(self) -> bool:
        """Whether more input may come: the item is not finished, or one of its calls still waits for its arguments."""
        return not self.done or any(not call.had_done for call in self.calls)

    @property
    def is_empty(self) -> bool:
        """Whether no part of the item exists yet."""
        return not (self.texts or self.calls or self.reasoning or self.whole)


class OpenItems:
    """The items of one answer, in order of appearance.

    streaming: by the id in their deltas, the parts whose next delta can be decoded by its type alone, with that type and,
    for a text, its content index. is_body: the answer is a body, so deltas and announcements are not expected.
    """

    def __init__(self, problems: Problems) -> None:
        self.items: list[OpenItem] = []
        self.streaming: dict[str | None, tuple[str, OpenText | OpenReasoning | OpenCall, int]] = {}
        self.is_body = False
        self._by_id: dict[str, OpenItem] = {}
        self._by_index: dict[int, OpenItem] = {}
        self._problems = problems
        self._by_call: dict[tuple[str, str, str | bytes], OpenItem] | None = None
        self._noted: set[tuple[str, int]] = set()

    def stream(
        self,
        item: OpenItem,
        item_id: str | None,
        part: OpenText | OpenReasoning | OpenCall,
        wire: str,
        index: int = 0,
    ) -> None:
        """Route the next delta with this id to this part, unless items share the id."""
        if not item.is_shared:
            self.streaming[item_id or item.id] = (wire, part, index)

    def report_in_stream(self, kind: str, message: str) -> None:
        """Report a problem that only a stream can have."""
        if not self.is_body:
            self._problems.append((kind, message))

    def find(
        self,
        item_id: str | None,
        index: int | None,
        types: Collection[str],
        *,
        by_index: bool = False,
    ) -> OpenItem | None:
        """Return the item of an event. `by_index`: events of this type never have an `item_id`."""
        item = self._named(item_id, index)
        if item is not None and item.type in types:
            return item
        if index is not None:
            item = self._by_index.get(index)
            if item is None or item.type not in types or not item.takes_input:
                return None
            if not by_index:
                self._reconcile(item, item_id)
            return item
        if item_id is not None:
            return None
        item = next(
            (one for one in reversed(self.items) if one.type in types and one.takes_input), None
        )
        if item is not None:
            self.note(item, "missing_index", "expected an item_id or an output_index, got neither")
        return item

    def put(self, kind: str, item_id: str | None, index: int | None) -> OpenItem:
        """Add a new item."""
        item = OpenItem(kind, item_id, index)
        self.items.append(item)
        if item_id:
            other = self._by_id.get(item_id)
            if other is not None:
                item.is_shared = other.is_shared = not other.done
                if item.is_shared:  # the id alone no longer identifies the item of a delta
                    self.streaming.pop(item_id, None)
                self.note(item, "repeated_id", f"expected a new item id, got {item_id!r} again")
            self._by_id[item_id] = item
        if index is not None:
            if index in self._by_index:
                self.note(item, "index_reused", f"expected a new output_index, got {index} again")
            self._by_index[index] = item
        return item

    def claim(
        self, item_id: str | None, index: int | None, types: Collection[str]
    ) -> OpenItem | None:
        """Return the item of an announcement or of a finished item: announced before, or implied by an event."""
        item = self._named(item_id, index)
        if item is not None:
            is_other = index is not None and item.index is not None and item.index != index
            return None if is_other else item
        if index is None:
            return None
        item = self._by_index.get(index)
        if item is None or item.done or item.type not in types:
            return None
        if item_id and item.id:
            self.note(item, "id_mismatch", f"expected item {item.id!r}, got {item_id!r}")
        return item

    def match(self, position: int, fields: Fields) -> OpenItem | None:
        """Return the streamed item that an entry of the final output repeats: by id, by call, by place, by content."""
        item_id = read_text(fields.get("id"))
        for item in self._candidates(position, item_id, fields):
            if item is not None and not item.matched:
                item.matched = True
                if item_id and item.id and item.id != item_id:
                    self.note(
                        item,
                        "id_mismatch",
                        f"expected item {item.id!r}, got {item_id!r} at the end",
                    )
                return item
        return None

    def _candidates(
        self, position: int, item_id: str | None, fields: Fields
    ) -> Iterator[OpenItem | None]:
        if item_id:
            yield self._by_id.get(item_id)
        kind = read_text(fields.get("type")) or ""
        calls = self._index_calls()
        call_id = find_call_id(fields)
        if call_id:
            yield calls.get(("", call_id, ""))
        at_place = self._by_index.get(position)
        if at_place is not None and at_place.type == kind:
            yield at_place
        # Some final outputs omit items and give new ids: a repeated call must not run twice.
        yield calls.get((kind, find_name(fields), input_key(_said(fields))))

    def note(self, item: OpenItem, kind: str, message: str) -> None:
        """Report a problem once for each item."""
        key = (kind, id(item))
        if key not in self._noted:
            self._noted.add(key)
            self._problems.append((kind, message))

    def _named(self, item_id: str | None, index: int | None) -> OpenItem | None:
        if not item_id:
            return None
        item = self._by_id.get(item_id)
        if item is not None and item.is_shared and index is not None:
            other = self._by_index.get(index)
            return other if other is not None and other.id == item_id else item
        return item

    def _index_calls(self) -> dict[tuple[str, str, str | bytes], OpenItem]:
        """Return the items by the ids and by the contents of their calls; built once, when the answer ends."""
        if self._by_call is None:
            self._by_call = {}
            for item in self.items:
                for call in item.calls:
                    header = call.open.header
                    self._by_call.setdefault(("", header.call_id, ""), item)
                    self._by_call.setdefault((item.type, header.name, call.open.key), item)
        return self._by_call

    def _reconcile(self, item: OpenItem, item_id: str | None) -> None:
        if item_id is None:
            self.note(item, "missing_id", f"expected an item_id beside output_index {item.index}")
            return
        self._by_id[item_id] = item
        if item.id is None:
            item.id = item_id
        else:
            self.note(item, "id_mismatch", f"expected item {item.id!r}, got {item_id!r}")


def _said(fields: Fields) -> str:
    return read_text(fields.get("arguments")) or read_text(fields.get("input")) or ""
