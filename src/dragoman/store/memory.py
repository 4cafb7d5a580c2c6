"""The store in memory, for tests and short runs: one process, and nothing survives it.

It stores the same bytes as the other engines, with the same caps, but enforces `max_bytes` at every write.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Struct, structs

from dragoman.config.settings import StoreSettings
from dragoman.store.contract import MAX_CHAIN_BYTES, ClaimResult, Key
from dragoman.store.engine import (
    ConversationRow,
    Entry,
    ItemRow,
    KeyUpdate,
    Row,
    RowEnd,
    StoredContent,
    StreamPiece,
    check_hold,
    check_ids,
    check_room,
    check_running,
    claim_result,
    claim_taken,
    exists,
    extend,
    gives_back,
    head_of,
    held,
    is_held,
    is_over,
    lifetime,
    missing,
    no_conversation,
    no_item,
)
from dragoman.store.records import Status, StoreStats, Swept

# When the cap is exceeded, this share is freed at once, because finding the oldest rows reads every row.
_FREED = 1 / 16

_Place = tuple[str, str, str]
T = TypeVar("T")


class _Sealed(Struct, frozen=True):
    data: bytes
    expires: float


class MemoryEngine:
    """An engine of dictionaries. No method awaits anything, so every operation is a transaction."""

    __slots__ = ("_kept", "_keys", "_pieces", "_sealed", "_settings", "_size", "conversations")

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._keys: dict[str, bytes] = {}
        self._kept: dict[Key, StoredContent] = {}
        self._pieces: dict[Key, dict[int, StreamPiece]] = {}
        self._sealed: dict[_Place, _Sealed] = {}
        self._size = 0
        self.conversations = MemoryConversations(self._make_room)

    @property
    def name(self) -> str:
        return "memory"

    async def insert(self, entry: Entry, now: float, ttl: float) -> None:
        made = entry()
        # A copy: the engine changes the row, and the caller's row must not change.
        row = structs.replace(made.row)
        key = (row.owner, row.id)
        if self._live(key, now) is not None:
            raise exists(row.id)
        above = self._parent(row)
        above = above if above is not None and above.row.expires > now else None
        if row.claims and (above is None or above.row.claimed_by != row.id):
            raise claim_taken(row.id, row.parent)
        if row.status != "in_progress":
            self.conversations.end(row, row.status, made.items, now, ttl)
        life = lifetime(now, ttl, None if above is None else above.row.expires)
        row.expires = life.expires
        if life.renews:
            for ancestor in self._upwards(above, now):
                ancestor.row.expires = max(ancestor.row.expires, life.expires)
        self._drop(key)
        self._kept[key] = structs.replace(made, row=row, items=())
        self._size += row.size
        if row.status != "in_progress":
            self._settle(row, row.status)
        self._make_room()

    async def append(self, key: Key, piece: StreamPiece, body: bytes | None, now: float) -> None:
        kept = self._find(key, now)
        check_running(kept.row)
        pieces = self._pieces.setdefault(key, {})
        before = pieces.get(piece.place)
        pieces[piece.place] = piece
        grown = len(piece.data) - (0 if before is None else len(before.data))
        if body is not None:
            grown += len(body) - len(kept.body)
            kept.body = body
        kept.row.size += grown
        self._size += grown
        self._make_room()

    async def pieces(
        self, key: Key, start: int, now: float
    ) -> tuple[Row, list[StreamPiece]] | None:
        kept = self._live(key, now)
        if kept is None:
            return None
        found = sorted(self._pieces.get(key, {}).items())
        return kept.row, [piece for _, piece in found if piece.until > start]

    async def finish(self, key: Key, over: RowEnd, now: float, ttl: float) -> Status:
        kept = self._find(key, now)
        if is_over(kept.row, over, now):
            return "cancelled"
        self._check_claim(kept.row, over.status)
        self.conversations.end(kept.row, over.status, over.items, now, ttl)
        self._end(kept, over)
        self._pieces.pop(key, None)
        self._make_room()
        return over.status

    async def renew(self, running: Collection[Key], until: float, now: float) -> frozenset[Key]:
        lost: set[Key] = set()
        for key in running:
            kept = self._live(key, now)
            if kept is None or not _runs(kept.row, now):
                lost.add(key)
                continue
            kept.row.lease = until
            claimed = self._claimed(kept.row)
            if claimed is not None:
                claimed.claimed_until = until
        return frozenset(lost)

    async def lost(self, running: Collection[Key], now: float) -> frozenset[Key]:
        found = [(key, self._live(key, now)) for key in running]
        return frozenset([key for key, kept in found if kept is None or not _runs(kept.row, now)])

    async def row(self, key: Key, now: float) -> Row | None:
        kept = self._live(key, now)
        return None if kept is None else kept.row

    async def content(self, key: Key, now: float, *, stream: bool) -> StoredContent | None:
        kept = self._live(key, now)
        if kept is None or stream:
            return kept
        return structs.replace(kept, stream=None)

    async def chain(self, key: Key, now: float, *, depth: int) -> list[StoredContent]:
        shares: list[StoredContent] = []
        size = 0
        for kept in self._upwards(self._live(key, now), now):
            shares.append(kept)
            size += len(kept.request) + len(kept.body)
            if len(shares) >= depth or size > MAX_CHAIN_BYTES:
                break
        return shares

    async def claim(self, key: Key, by: str, until: float, now: float) -> ClaimResult:
        row = self._find(key, now).row
        result = claim_result(head_of(row, now), by)
        if result == "won":
            row.claimed_by, row.claimed_until = by, until
        return result

    async def release(self, key: Key, by: str) -> None:
        kept = self._kept.get(key)
        if kept is not None and kept.row.claimed_by == by and kept.row.claimed_until is not None:
            _give_back(kept.row)

    async def cancel(self, key: Key, now: float) -> Status:
        row = self._find(key, now).row
        if row.status == "in_progress":
            row.status = "cancelled"
            claimed = self._claimed(row)
            if claimed is not None:
                _give_back(claimed)
        return row.status

    async def delete(self, key: Key, now: float) -> bool:
        is_found = self._live(key, now) is not None
        self._drop(key)
        return is_found

    async def put_seals(
        self, owner: str, family: str, sealed: Mapping[str, bytes], expires: float
    ) -> None:
        for call_id, data in sealed.items():
            place = (owner, family, call_id)
            self._unseal(place)
            self._sealed[place] = _Sealed(data, expires)
            self._size += len(data)
        self._make_room()

    async def get_seals(
        self, owner: str, family: str, call_ids: Collection[str], now: float
    ) -> dict[str, bytes]:
        found = [(call_id, self._sealed.get((owner, family, call_id))) for call_id in call_ids]
        return {
            call_id: sealed.data
            for call_id, sealed in found
            if sealed is not None and sealed.expires > now
        }

    async def change_key(self, name: str, change: KeyUpdate[T]) -> T:
        self._keys[name], result = change(self._keys.get(name))
        return result

    async def key_states(self, names: Collection[str]) -> dict[str, bytes]:
        return {name: self._keys[name] for name in names if name in self._keys}

    async def expire(self, now: float, limit: int) -> Swept:
        before = self._size
        old = [key for key, kept in self._kept.items() if kept.row.expires <= now]
        stale = [place for place, sealed in self._sealed.items() if sealed.expires <= now]
        for key in old[:limit]:
            self._drop(key)
        for place in stale[:limit]:
            self._unseal(place)
        swept, size, is_more = self.conversations.expire(now, limit)
        return Swept(
            responses=min(len(old), limit),
            seals=min(len(stale), limit),
            conversations=swept,
            size=before - self._size + size,
            more=max(len(old), len(stale)) > limit or is_more,
        )

    async def stats(self) -> StoreStats:
        return StoreStats(
            responses=len(self._kept),
            seals=len(self._sealed),
            conversations=len(self.conversations.rows),
            size=self._size + self.conversations.size,
        )

    async def ping(self) -> None:
        return None

    async def close(self) -> None:
        self._keys.clear()
        self._kept.clear()
        self._pieces.clear()
        self._sealed.clear()
        self.conversations.clear()
        self._size = 0

    def _end(self, kept: StoredContent, over: RowEnd) -> None:
        row = kept.row
        self._settle(row, over.status)
        self._size -= row.size
        row.size = len(kept.request) + over.size
        row.status, row.open_calls = over.status, over.open_calls
        row.upstream, row.family = over.upstream, over.family
        self._size += row.size
        kept.answer, kept.body, kept.stream = over.answer, over.body, over.stream

    def _check_claim(self, row: Row, status: Status) -> None:
        """Raises StoreConflict: another response holds the claim."""
        if row.claims and not gives_back(status) and self._claimed(row) is None:
            raise claim_taken(row.id, row.parent)

    def _settle(self, row: Row, status: Status) -> None:
        """Settle or give back the claim of a response that ends with `status`."""
        claimed = self._claimed(row)
        if claimed is None:
            return
        if gives_back(status):
            _give_back(claimed)
        else:
            claimed.claimed_until = None

    def _parent(self, row: Row) -> StoredContent | None:
        return None if row.parent is None else self._kept.get((row.owner, row.parent))

    def _claimed(self, row: Row) -> Row | None:
        """The row on which this one holds a claim."""
        parent = self._parent(row) if row.claims else None
        return parent.row if parent is not None and parent.row.claimed_by == row.id else None

    def _upwards(self, kept: StoredContent | None, now: float) -> Iterator[StoredContent]:
        while kept is not None and kept.row.expires > now:
            yield kept
            kept = self._parent(kept.row)

    def _live(self, key: Key, now: float) -> StoredContent | None:
        kept = self._kept.get(key)
        return kept if kept is not None and kept.row.expires > now else None

    def _find(self, key: Key, now: float) -> StoredContent:
        kept = self._live(key, now)
        if kept is None:
            raise missing(key[1])
        return kept

    def _drop(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        self._pieces.pop(key, None)
        if kept is not None:
            self._size -= kept.row.size

    def _unseal(self, place: _Place) -> None:
        sealed = self._sealed.pop(place, None)
        if sealed is not None:
            self._size -= len(sealed.data)

    def _make_room(self) -> None:
        """Drop the rows that expire first until the total is below the cap again."""
        most = self._settings.max_bytes
        conversations = self.conversations
        if self._size + conversations.size <= most:
            return
        goal = most - int(most * _FREED)
        oldest: list[tuple[float, Callable[[], None]]] = [
            *((kept.row.expires, partial(self._drop, key)) for key, kept in self._kept.items()),
            *((each.expires, partial(self._unseal, place)) for place, each in self._sealed.items()),
            *(
                (each.expires, partial(conversations.drop, key))
                for key, each in conversations.rows.items()
            ),
        ]
        # The last row stays: alone it is within the cap, and it may be the row that this write acknowledges.
        for _, drop in sorted(oldest, key=lambda entry: entry[0])[:-1]:
            if self._size + conversations.size <= goal:
                return
            drop()


class MemoryConversations:
    """The conversations of a `MemoryEngine`. `rows`: expired ones too. `size`: of all of them."""

    __slots__ = ("_items", "_make_room", "_places", "rows", "size")

    def __init__(self, make_room: Callable[[], None]) -> None:
        self.rows: dict[Key, ConversationRow] = {}
        self.size = 0
        self._items: dict[Key, dict[int, ItemRow]] = {}  # by position; in order, since they rise
        self._places: dict[Key, dict[str, int]] = {}  # the position of each id
        self._make_room = make_room

    async def insert(self, row: ConversationRow, items: tuple[ItemRow, ...], now: float) -> None:
        key = (row.owner, row.id)
        old = self.rows.get(key)
        if old is not None and old.expires > now:
            raise exists(row.id)
        check_room(row, items)
        check_ids((), items)
        self.drop(key)
        row = structs.replace(row)
        self.rows[key], self._items[key], self._places[key] = row, {}, {}
        self.size += row.size
        self._extend(key, row, items, row.expires)

    async def row(self, key: Key, now: float) -> ConversationRow:
        return self._find(key, now)

    async def update(
        self, key: Key, metadata: str | None, expires: float, now: float
    ) -> ConversationRow:
        row = self._find(key, now)
        row.expires = max(row.expires, expires)
        if metadata is not None:
            more = len(metadata) - len(row.metadata)
            row.metadata = metadata
            row.size += more
            self.size += more
            self._make_room()
        return row

    async def delete(self, key: Key, now: float) -> None:
        try:
            self._find(key, now)
        finally:
            self.drop(key)

    async def hold(
        self, key: Key, by: str, until: float, expires: float, now: float
    ) -> ConversationRow:
        row = self._find(key, now)
        if is_held(row, now, by=by):
            raise held(row.id)
        row.held_by, row.held_until = by, until
        row.expires = max(row.expires, expires)
        return row

    async def release(self, key: Key, by: str) -> None:
        row = self.rows.get(key)
        if row is not None and row.held_by == by:
            row.held_by, row.held_until = None, 0.0

    async def add(
        self, key: Key, items: tuple[ItemRow, ...], by: str | None, expires: float, now: float
    ) -> ConversationRow:
        row = self._find(key, now)
        check_hold(row, by, now)
        check_room(row, items)
        check_ids(self._places[key], items)
        self._extend(key, row, items, expires)
        return row

    async def page(
        self, key: Key, after: str | None, limit: int, now: float, *, is_descending: bool
    ) -> list[ItemRow]:
        self._find(key, now)
        found = list(self._items[key].values())
        if is_descending:
            found.reverse()
        if after is None:
            return found[:limit]
        start = next((place for place, item in enumerate(found, 1) if item.id == after), None)
        if start is None:
            raise no_item(after)
        return found[start : start + limit]

    async def before(self, key: Key, position: int | None, now: float) -> list[ItemRow]:
        self._find(key, now)
        items = self._items[key].items()
        return [item for place, item in items if position is None or place < position]

    async def item(self, key: Key, item_id: str, now: float) -> ItemRow:
        self._find(key, now)
        place = self._places[key].get(item_id)
        if place is None:
            raise no_item(item_id)
        return self._items[key][place]

    async def delete_item(self, key: Key, item_id: str, now: float) -> ConversationRow:
        row = self._find(key, now)
        check_hold(row, None, now)
        place = self._places[key].pop(item_id, None)
        if place is None:
            raise no_item(item_id)
        size = len(self._items[key].pop(place).data)
        row.count -= 1
        row.size -= size
        self.size -= size
        return row

    async def find(self, owner: str, item_ids: Collection[str], now: float) -> list[ItemRow]:
        wanted = set(item_ids)
        return [
            self._items[key][places[item_id]]
            for key, places in self._places.items()
            if key[0] == owner and self.rows[key].expires > now
            for item_id in wanted & places.keys()
        ]

    def end(
        self, row: Row, status: Status, items: tuple[ItemRow, ...], now: float, ttl: float
    ) -> None:
        """Add the items of a response that ends, and release its hold. Raises before it changes anything, like `add`."""
        key = (row.owner, row.conversation or "")
        found = self.rows.get(key)
        if row.conversation is None or found is None or found.expires <= now:
            return
        if gives_back(status):
            if found.held_by == row.id:
                found.held_by, found.held_until = None, 0.0
            return
        check_hold(found, row.id, now)
        check_room(found, items)
        check_ids(self._places[key], items)
        self._extend(key, found, items, now + ttl)

    def expire(self, now: float, limit: int) -> tuple[int, int, bool]:
        """Return how many were removed, their size, and whether there are more."""
        before = self.size
        old = [key for key, row in self.rows.items() if row.expires <= now]
        for key in old[:limit]:
            self.drop(key)
        return min(len(old), limit), before - self.size, len(old) > limit

    def drop(self, key: Key) -> None:
        row = self.rows.pop(key, None)
        if row is not None:
            self.size -= row.size
            del self._items[key], self._places[key]

    def clear(self) -> None:
        self.rows.clear()
        self._items.clear()
        self._places.clear()
        self.size = 0

    def _extend(
        self, key: Key, row: ConversationRow, items: tuple[ItemRow, ...], expires: float
    ) -> None:
        for place, item in enumerate(items, row.position):
            self._items[key][place] = item
            self._places[key][item.id] = place
        before = row.size
        extend(row, items, expires)
        self.size += row.size - before
        self._make_room()

    def _find(self, key: Key, now: float) -> ConversationRow:
        row = self.rows.get(key)
        if row is None or row.expires <= now:
            raise no_conversation(key[1])
        return row


def _runs(row: Row, now: float) -> bool:
    return row.status == "in_progress" and row.lease > now


def _give_back(row: Row) -> None:
    row.claimed_by = None
    row.claimed_until = None
