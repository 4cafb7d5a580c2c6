"""The store in memory, for tests and short runs: one process, and nothing survives it.

It stores the same bytes as the other engines, with the same caps, but enforces `max_bytes` at every write.
"""

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct, structs

from dragoman.config.settings import StoreSettings
from dragoman.store.contract import MAX_CHAIN_BYTES, ClaimResult, Key
from dragoman.store.engine import (
    Entry,
    Piece,
    Row,
    RowEnd,
    StoredContent,
    check_running,
    claim_result,
    claim_taken,
    exists,
    gives_back,
    head_of,
    is_over,
    lifetime,
    missing,
)
from dragoman.store.records import Status, StoreStats, Swept

# When the cap is exceeded, this share is freed at once, because finding the oldest rows reads every row.
_FREED = 1 / 16

_Place = tuple[str, str, str]


class _Sealed(Struct, frozen=True):
    data: bytes
    expires: float


class MemoryEngine:
    """An engine of dictionaries. No method awaits anything, so every operation is a transaction."""

    __slots__ = ("_kept", "_pieces", "_sealed", "_settings", "_size")

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._kept: dict[Key, StoredContent] = {}
        self._pieces: dict[Key, dict[int, Piece]] = {}
        self._sealed: dict[_Place, _Sealed] = {}
        self._size = 0

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
        life = lifetime(now, ttl, None if above is None else above.row.expires)
        row.expires = life.expires
        if life.renews:
            for ancestor in self._upwards(above, now):
                ancestor.row.expires = max(ancestor.row.expires, life.expires)
        self._drop(key)
        self._kept[key] = structs.replace(made, row=row)
        self._size += row.size
        if row.status != "in_progress":
            self._settle(row, row.status)
        self._make_room()

    async def append(self, key: Key, piece: Piece, body: bytes | None, now: float) -> None:
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

    async def pieces(self, key: Key, start: int, now: float) -> tuple[Row, list[Piece]] | None:
        kept = self._live(key, now)
        if kept is None:
            return None
        found = sorted(self._pieces.get(key, {}).items())
        return kept.row, [piece for _, piece in found if piece.until > start]

    async def finish(self, key: Key, over: RowEnd, now: float) -> Status:
        kept = self._find(key, now)
        if is_over(kept.row, over, now):
            return "cancelled"
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

    async def expire(self, now: float, limit: int) -> Swept:
        before = self._size
        old = [key for key, kept in self._kept.items() if kept.row.expires <= now]
        stale = [place for place, sealed in self._sealed.items() if sealed.expires <= now]
        for key in old[:limit]:
            self._drop(key)
        for place in stale[:limit]:
            self._unseal(place)
        return Swept(
            responses=min(len(old), limit),
            seals=min(len(stale), limit),
            size=before - self._size,
            more=max(len(old), len(stale)) > limit,
        )

    async def stats(self) -> StoreStats:
        return StoreStats(responses=len(self._kept), seals=len(self._sealed), size=self._size)

    async def ping(self) -> None:
        return None

    async def close(self) -> None:
        self._kept.clear()
        self._pieces.clear()
        self._sealed.clear()
        self._size = 0

    def _end(self, kept: StoredContent, over: RowEnd) -> None:
        """Raises StoreConflict: another holds the claim."""
        row = kept.row
        self._settle(row, over.status)
        self._size -= row.size
        row.size = len(kept.request) + over.size
        row.status, row.open_calls = over.status, over.open_calls
        row.upstream, row.family = over.upstream, over.family
        self._size += row.size
        kept.answer, kept.body, kept.stream = over.answer, over.body, over.stream

    def _settle(self, row: Row, status: Status) -> None:
        """Settle or give back the claim of a response that ends with `status`. Raises StoreConflict: another holds the claim."""
        if not row.claims:
            return
        claimed = self._claimed(row)
        if gives_back(status):
            if claimed is not None:
                _give_back(claimed)
        elif claimed is None:
            raise claim_taken(row.id, row.parent)
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
        if self._size <= most:
            return
        goal = most - int(most * _FREED)
        oldest: list[tuple[float, Key | _Place]] = [
            *((kept.row.expires, key) for key, kept in self._kept.items()),
            *((sealed.expires, place) for place, sealed in self._sealed.items()),
        ]
        # The last row stays: alone it is within the cap, and it may be the row that this write acknowledges.
        for _, place in sorted(oldest, key=lambda entry: entry[0])[:-1]:
            if self._size <= goal:
                return
            if len(place) == 2:
                self._drop(place)
            else:
                self._unseal(place)


def _runs(row: Row, now: float) -> bool:
    return row.status == "in_progress" and row.lease > now


def _give_back(row: Row) -> None:
    row.claimed_by = None
    row.claimed_until = None
