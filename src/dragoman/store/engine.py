"""The interface of an engine: it stores rows and bytes in transactions. It knows neither records nor codecs, and has no clock.

`engine_store.Store` makes a store of an engine. It guarantees that texts are valid UTF-8 without NUL and that sizes
are within the caps; `now` is the caller's time.

The functions over a `Row` are the rules of leases, claims and expiry; they are pure. The SQLite engine reads a
row, applies a rule, and writes; PostgreSQL's most frequent statements express the same rules in SQL, and one suite of tests
checks all engines.
"""

from collections.abc import Awaitable, Callable, Collection, Container, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct

from dragoman.config.settings import StoreSettings
from dragoman.core.store_notes import TerminalStatus
from dragoman.errors import StoreConflict, StoreHeld, StoreMissing, StoreTooLarge
from dragoman.model.parts import Dialect
from dragoman.store.codec import unpack_names
from dragoman.store.contract import MAX_CHAIN, MAX_CHAIN_BYTES, MAX_ITEMS, ClaimResult, Key
from dragoman.store.records import Status, StoredHead, StoreStats, Swept

STEP = 1 / 64
"""Continuing a conversation extends the expiry of its ancestors. Extending it in steps of this share of the time to live
avoids nearly all of those writes; ancestors live up to that share longer."""


class Row(Struct, gc=False):
    """One row. `lease`: until when it counts as running without a renewal. `claimed_until`: None for a settled claim."""

    id: str
    owner: str
    parent: str | None
    created: float
    expires: float
    status: Status
    lease: float
    door: Dialect
    model: str
    upstream: str
    family: str
    inherits: bool
    claims: bool
    open_calls: str
    claimed_by: str | None
    claimed_until: float | None
    size: int
    conversation: str | None = None
    position: int | None = None


COLUMNS = Row.__struct_fields__
"""The names of a row's columns, in the order of its fields."""


def head_of(row: Row, now: float) -> StoredHead:
    """Return the head of a row as of `now`: a lapsed lease means `failed`, a lapsed claim is void."""
    held = row.claimed_by is not None and (row.claimed_until is None or row.claimed_until > now)
    return StoredHead(
        id=row.id,
        owner=row.owner,
        created=row.created,
        expires=row.expires,
        status="failed" if row.status == "in_progress" and row.lease <= now else row.status,
        door=row.door,
        model=row.model,
        parent=row.parent,
        inherits=bool(row.inherits),
        open_calls=unpack_names(row.open_calls),
        upstream=row.upstream,
        family=row.family,
        continued_by=row.claimed_by if held else None,
        is_settled=held and row.claimed_until is None,
        size=row.size,
        conversation=row.conversation,
        position=row.position or 0,
    )


def is_over(row: Row, over: "RowEnd", now: float) -> bool:
    """Whether an ending comes too late because the response was cancelled.

    Raises:
        StoreConflict: the response has an ending already, or counts as failed.
    """
    if row.status not in ("in_progress", "cancelled"):
        raise _ended_before(row.id, row.status)
    if over.needs_lease and row.status == "in_progress" and row.lease <= now:
        raise _ended_before(row.id, "failed")
    return row.status == "cancelled"


def check_running(row: Row) -> None:
    """Raises StoreConflict: the response has ended, or was cancelled."""
    if row.status != "in_progress":
        raise _ended_before(row.id, row.status)


def claim_result(head: StoredHead, by: str) -> ClaimResult:
    if head.status == "in_progress":
        return "running"
    if head.is_settled or head.continued_by not in (None, by):
        return "taken"
    return "won"


class ExpiryLimit(Struct, frozen=True):
    """A sweep removes every row that expires by `until`. `more`: another sweep is needed after it."""

    until: float
    more: bool


def limit_for_excess(oldest: Collection[tuple[float, int]], excess: int) -> ExpiryLimit | None:
    """Return how far a sweep goes that removes `excess` bytes. `oldest`: expiry and size of the rows that expire first."""
    until = None
    for until, size in oldest:
        excess -= size
        if excess <= 0:
            return ExpiryLimit(until, more=False)
    return None if until is None else ExpiryLimit(until, more=True)


def gives_back(status: Status) -> bool:
    """Whether a response that ends with this status gives back its claim, so that another attempt may continue the parent."""
    return status in ("failed", "cancelled")


def check_size(size: int, settings: StoreSettings, what: str, *, is_sent: bool = False) -> None:
    """Check a size against the caps. `is_sent`: the client sent the value; otherwise the error is the server's, not the client's.

    Raises:
        StoreTooLarge: the size exceeds a cap.
    """
    for name in ("max_record_bytes", "max_bytes"):
        limit: int = getattr(settings, name)
        if size > limit:
            message = f"expected {what} to take at most {limit:,} bytes in the store ({name}), it takes {size:,}"
            raise (
                StoreTooLarge(message)
                if is_sent
                else StoreTooLarge(message, kind="server", status=500)
            )


def missing(response_id: str) -> StoreMissing:
    return StoreMissing(
        f"expected a stored response, found none with the id {response_id!r}",
        response_id=response_id,
    )


def exists(response_id: str) -> StoreConflict:
    return StoreConflict(
        f"expected a new id, a response with the id {response_id!r} is stored already"
    )


def _ended_before(response_id: str, status: Status) -> StoreConflict:
    return StoreConflict(f"expected {response_id!r} to be running, it has ended as {status}")


def claim_taken(response_id: str, parent: str | None) -> StoreConflict:
    return StoreConflict(
        f"expected {response_id!r} to hold the claim on continuing {parent!r}, but it does not"
    )


def broken_chain(oldest: Row, *, count: int, size: int) -> StoreMissing | StoreTooLarge:
    """Return the error for a chain that ends at a response with a parent: the chain is too long, or the parent is gone."""
    if count >= MAX_CHAIN or size > MAX_CHAIN_BYTES:
        return StoreTooLarge(
            f"expected a conversation of at most {MAX_CHAIN:,} responses and {MAX_CHAIN_BYTES:,} bytes, "
            f"found more before {oldest.id!r}"
        )
    parent = oldest.parent or ""
    return StoreMissing(
        f"expected the response {parent!r}, which {oldest.id!r} continues, but it is not stored",
        response_id=parent,
    )


class ConversationRow(Struct, kw_only=False):
    """One conversation. `held_by`: the response that holds it, until `held_until` or longer if nobody else takes it."""

    id: str
    owner: str
    created: float
    expires: float
    metadata: str
    position: int
    count: int
    size: int
    held_by: str | None = None
    held_until: float = 0.0


CONVERSATION_COLUMNS = ConversationRow.__struct_fields__


class ItemRow(Struct, frozen=True, gc=False):
    """An item, packed."""

    id: str
    data: bytes


def is_held(row: ConversationRow, now: float, *, by: str | None = None) -> bool:
    """Whether another response than `by` holds a conversation."""
    return row.held_by not in (None, by) and row.held_until > now


def check_hold(row: ConversationRow, by: str | None, now: float) -> None:
    """Check that items may be added or deleted. `by`: the response that adds them, which must hold the conversation.

    Raises:
        StoreHeld
    """
    if is_held(row, now) if by is None else row.held_by != by:
        raise held(row.id)


def check_room(row: ConversationRow, items: Collection[ItemRow]) -> None:
    """Raises StoreTooLarge: the conversation would have too many items, or too large ones."""
    count = row.count + len(items)
    size = row.size + sum([len(item.data) for item in items])
    if count > MAX_ITEMS or size > MAX_CHAIN_BYTES:
        raise StoreTooLarge(
            f"expected a conversation of at most {MAX_ITEMS:,} items and {MAX_CHAIN_BYTES:,} bytes, "
            f"{row.id!r} would have {count:,} items and {size:,} bytes"
        )


def check_ids(taken: Container[str], items: Collection[ItemRow]) -> None:
    """Raises StoreConflict: an item has an id that is taken, or that another of the items has."""
    seen: set[str] = set()
    for item in items:
        if item.id in taken or item.id in seen:
            raise StoreConflict(
                f"expected new ids, the conversation has an item with the id {item.id!r} already"
            )
        seen.add(item.id)


def extend(row: ConversationRow, items: Collection[ItemRow], expires: float) -> None:
    """Change a row as adding these items does; a hold is released."""
    row.position += len(items)
    row.count += len(items)
    row.size += sum([len(item.data) for item in items])
    row.expires = max(row.expires, expires)
    row.held_by, row.held_until = None, 0.0


def held(conversation_id: str) -> StoreHeld:
    return StoreHeld(
        f"expected the conversation {conversation_id!r} to be free, but a response holds it"
    )


def no_conversation(conversation_id: str) -> StoreMissing:
    return StoreMissing(
        f"expected a stored conversation, found none with the id {conversation_id!r}",
        response_id=conversation_id,
    )


def no_item(item_id: str) -> StoreMissing:
    return StoreMissing(
        f"expected an item of the conversation, found none with the id {item_id!r}",
        response_id=item_id,
    )


class StoredContent(Struct, gc=False):
    """A row with the parts of its content that were requested.

    body: the response object as sent at the beginning, or the whole answer. answer: None while the response runs, then
    empty: the answer is read from `body`. Earlier versions wrote the answer there. items: what a new row adds to its
    conversation; never read back.
    """

    row: Row
    request: bytes = b""
    answer: bytes | None = None
    body: bytes = b""
    stream: bytes | None = None
    items: tuple[ItemRow, ...] = ()


class RowEnd(Struct, frozen=True, gc=False, kw_only=True):
    """What the end of a response adds to its row, and `items` to its conversation."""

    status: TerminalStatus
    open_calls: str
    upstream: str
    family: str
    body: bytes
    stream: bytes | None
    needs_lease: bool = False
    items: tuple[ItemRow, ...] = ()

    @property
    def size(self) -> int:
        return len(self.body) + len(self.stream or b"")


class StreamPiece(Struct, frozen=True, gc=False):
    """A packed piece of the stream of a running response: the bytes from `place` up to `until`."""

    place: int
    until: int
    data: bytes


Entry = Callable[[], StoredContent]
"""Makes the row to insert. Called at the insert, because making many together is faster. The engine sets the expiry. Raises StoreError."""


T = TypeVar("T")

KeyUpdate = Callable[[bytes | None], tuple[bytes, T]]
"""Makes the new state of a key from the stored one, or from None if there is none; and a result for the caller."""


class StoreEngine(Protocol):
    """`engine_store.Store` documents the operations. An engine finds only live rows, and returns None for a missing row."""

    @property
    def name(self) -> str: ...

    def insert(self, entry: Entry, now: float, ttl: float) -> Awaitable[None]:
        """`ttl`: how long the row lives from `now` on. Raises StoreConflict, and whatever `entry` raises."""
        ...

    def append(
        self, key: Key, piece: StreamPiece, body: bytes | None, now: float
    ) -> Awaitable[None]:
        """Add a piece, or replace the one in its place. `body`: None: unchanged. Raises StoreMissing, StoreConflict."""
        ...

    def pieces(
        self, key: Key, start: int, now: float
    ) -> Awaitable[tuple[Row, list[StreamPiece]] | None]:
        """Return the pieces that end after `start`, in their order."""
        ...

    def finish(self, key: Key, over: RowEnd, now: float, ttl: float) -> Awaitable[Status]:
        """Also removes the pieces. `ttl`: how long the response's conversation lives from `now` on.

        Raises StoreMissing, StoreConflict.
        """
        ...

    def renew(
        self, running: Collection[Key], until: float, now: float
    ) -> Awaitable[frozenset[Key]]: ...

    def lost(self, running: Collection[Key], now: float) -> Awaitable[frozenset[Key]]: ...

    def row(self, key: Key, now: float) -> Awaitable[Row | None]: ...

    def content(self, key: Key, now: float, *, stream: bool) -> Awaitable[StoredContent | None]: ...

    def chain(self, key: Key, now: float, *, depth: int) -> Awaitable[list[StoredContent]]:
        """Return the newest first, with the body if the answer is read from it. Stops at `depth`, at `MAX_CHAIN_BYTES` and at a missing parent."""
        ...

    def claim(self, key: Key, by: str, until: float, now: float) -> Awaitable[ClaimResult]:
        """Raises StoreMissing."""
        ...

    def release(self, key: Key, by: str) -> Awaitable[None]: ...

    def cancel(self, key: Key, now: float) -> Awaitable[Status]:
        """Raises StoreMissing."""
        ...

    def delete(self, key: Key, now: float) -> Awaitable[bool]: ...

    def put_seals(
        self, owner: str, family: str, sealed: Mapping[str, bytes], expires: float
    ) -> Awaitable[None]: ...

    def get_seals(
        self, owner: str, family: str, call_ids: Collection[str], now: float
    ) -> Awaitable[dict[str, bytes]]: ...

    def change_key(self, name: str, change: KeyUpdate[T]) -> Awaitable[T]:
        """Replace the stored state of a key by what `change` makes of it, and return its result.

        Nothing else reads or changes the state meanwhile. `change` may be called again if the engine retries. Raises whatever it raises.
        """
        ...

    def key_states(self, names: Collection[str]) -> Awaitable[dict[str, bytes]]:
        """Return the stored states by name, without the keys that have none."""
        ...

    @property
    def conversations(self) -> "ConversationEngine": ...

    def expire(self, now: float, limit: int) -> Awaitable[Swept]: ...

    def stats(self) -> Awaitable[StoreStats]: ...

    def ping(self) -> Awaitable[None]: ...

    def close(self) -> Awaitable[None]: ...


class ConversationEngine(Protocol):
    """`engine_store.Conversations` documents the operations; each but `insert` and `find` raises StoreMissing.

    `expires`: when the conversation expires if it is not used again.
    """

    def insert(
        self, row: ConversationRow, items: tuple[ItemRow, ...], now: float
    ) -> Awaitable[None]:
        """Raises StoreConflict."""
        ...

    def row(self, key: Key, now: float) -> Awaitable[ConversationRow]: ...

    def update(
        self, key: Key, metadata: str | None, expires: float, now: float
    ) -> Awaitable[ConversationRow]: ...

    def delete(self, key: Key, now: float) -> Awaitable[None]: ...

    def hold(
        self, key: Key, by: str, until: float, expires: float, now: float
    ) -> Awaitable[ConversationRow]:
        """Raises StoreHeld."""
        ...

    def release(self, key: Key, by: str) -> Awaitable[None]: ...

    def add(
        self, key: Key, items: tuple[ItemRow, ...], by: str | None, expires: float, now: float
    ) -> Awaitable[ConversationRow]:
        """Raises StoreHeld, StoreConflict, StoreTooLarge."""
        ...

    def page(
        self, key: Key, after: str | None, limit: int, now: float, *, is_descending: bool
    ) -> Awaitable[list[ItemRow]]: ...

    def before(self, key: Key, position: int | None, now: float) -> Awaitable[list[ItemRow]]: ...

    def item(self, key: Key, item_id: str, now: float) -> Awaitable[ItemRow]: ...

    def delete_item(self, key: Key, item_id: str, now: float) -> Awaitable[ConversationRow]: ...

    def find(
        self, owner: str, item_ids: Collection[str], now: float
    ) -> Awaitable[list[ItemRow]]: ...
