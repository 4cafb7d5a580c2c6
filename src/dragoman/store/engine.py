"""What an engine does: it keeps rows and bytes, in transactions. It knows neither records nor codecs, and has no clock.

`engine_store.EngineStore` makes a store of an engine. Texts that reach an engine are valid UTF-8 without NUL, sizes are
within the caps, and `now` is the time of the caller.

The functions over a `Row` are the rules of leases, claims and expiry; they are pure. Engines with transactions of their
own read a row, apply a rule, and write; PostgreSQL's most frequent statements say the same in SQL, and one suite of tests
holds both to it.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from msgspec import Struct

from dragoman.config.settings import StoreSettings
from dragoman.core.store_notes import TerminalStatus
from dragoman.errors import StoreConflict, StoreMissing, StoreTooLarge
from dragoman.model.parts import Dialect
from dragoman.store.codec import unpack_names
from dragoman.store.contract import MAX_CHAIN, MAX_CHAIN_BYTES, ClaimResult, Key
from dragoman.store.records import Status, StoredHead, StoreStats, Swept

STEP = 1 / 64
"""A conversation that goes on pushes the expiry of its beginning forward. Doing so in steps of this share of the time to
live spares nearly all of those writes; what goes on lives up to that share longer."""


class Row(Struct, kw_only=False):
    """One row. `lease`: until when it may run unseen. `claimed_until` is None for a claim that is settled."""

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


COLUMNS = Row.__struct_fields__
"""The names of a row's columns, in the order of its fields."""


class Lifetime(Struct, frozen=True):
    """When a new row expires. `renews`: its ancestors are to live as long."""

    expires: float
    renews: bool


def lifetime(now: float, ttl: float, parent: float | None) -> Lifetime:
    """`parent` is when the parent expires; None if there is none."""
    expires = now + ttl
    if parent is None:
        return Lifetime(expires, renews=False)
    if parent >= expires:
        return Lifetime(parent, renews=False)
    return Lifetime(expires + ttl * STEP, renews=True)


def head_of(row: Row, now: float) -> StoredHead:
    """What a row says at this moment."""
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
    )


def is_over(row: Row) -> bool:
    """Whether an ending comes too late because the response was cancelled.

    Raises:
        StoreConflict: it comes too late because there was one.
    """
    if row.status not in ("in_progress", "cancelled"):
        raise _ended_before(row.id, row.status)
    return row.status == "cancelled"


def claim_result(head: StoredHead, by: str) -> ClaimResult:
    if head.status == "in_progress":
        return "running"
    if head.is_settled or head.continued_by not in (None, by):
        return "taken"
    return "won"


def gives_back(status: Status) -> bool:
    """Whether a response that ends so gives back its claim: another attempt may continue what it could not."""
    return status in ("failed", "cancelled")


def check_size(size: int, settings: StoreSettings, what: str, *, is_sent: bool = False) -> None:
    """`is_sent`: the client has sent it. That an answer is too large is no fault of its request.

    Raises:
        StoreTooLarge: it is larger than the store takes.
    """
    for name in ("max_record_bytes", "max_bytes"):
        limit: int = getattr(settings, name)
        if size > limit:
            error = StoreTooLarge(
                f"expected {what} to take at most {limit:,} bytes in the store ({name}), it takes {size:,}"
            )
            if not is_sent:
                error.kind, error.status = "server", 500
            raise error


def missing(response_id: str) -> StoreMissing:
    return StoreMissing(
        f"expected a stored response, none is called {response_id!r} (any more)",
        response_id=response_id,
    )


def exists(response_id: str) -> StoreConflict:
    return StoreConflict(f"expected a new id, a response called {response_id!r} is stored already")


def _ended_before(response_id: str, status: Status) -> StoreConflict:
    return StoreConflict(f"expected {response_id!r} to be running, it has ended as {status}")


def claim_taken(response_id: str, parent: str | None) -> StoreConflict:
    return StoreConflict(
        f"expected {response_id!r} to hold the claim on continuing {parent!r}, it does not (any more)"
    )


def broken_chain(oldest: StoredHead, *, count: int, size: int) -> StoreMissing | StoreTooLarge:
    """Why a chain ends at a response that continues another: it is too long, or the other is gone."""
    if count >= MAX_CHAIN or size > MAX_CHAIN_BYTES:
        return StoreTooLarge(
            f"expected a conversation of at most {MAX_CHAIN:,} responses and {MAX_CHAIN_BYTES:,} bytes, "
            f"found more before {oldest.id!r}"
        )
    parent = oldest.parent or ""
    return StoreMissing(
        f"expected the response {parent!r}, which {oldest.id!r} continues, it is not stored (any more)",
        response_id=parent,
    )


class StoredContent(Struct, gc=False):
    """A row with its content, as far as it was asked for.

    body: what was sent at the beginning, or the whole answer. answer: None while it runs. Earlier versions wrote answers
    there; now it is empty, and the answer is read from `body`.
    """

    row: Row
    request: bytes = b""
    answer: bytes | None = None
    body: bytes = b""
    stream: bytes | None = None


class RowEnd(Struct, frozen=True, gc=False, kw_only=True):
    """What the end of a response adds to its row. `answer`: as of `StoredContent`."""

    status: TerminalStatus
    open_calls: str
    upstream: str
    family: str
    answer: bytes = b""
    body: bytes
    stream: bytes | None

    @property
    def size(self) -> int:
        return len(self.answer) + len(self.body) + len(self.stream or b"")


Entry = Callable[[], StoredContent]
"""What is to be inserted, made when it is: many at once are made faster. The engine sets when it expires. Raises StoreError."""


class StoreEngine(Protocol):
    """See `contract.Store` for what each of these means; here only live rows are found, and None is what is missing."""

    @property
    def name(self) -> str: ...

    async def insert(self, entry: Entry, now: float) -> None:
        """Raises StoreConflict, and what making the entry raises."""
        ...

    async def finish(self, key: Key, over: RowEnd, now: float) -> Status:
        """Raises StoreMissing, StoreConflict."""
        ...

    async def renew(self, running: Collection[Key], until: float, now: float) -> frozenset[Key]: ...

    async def lost(self, running: Collection[Key], now: float) -> frozenset[Key]: ...

    async def row(self, key: Key, now: float) -> Row | None: ...

    async def content(self, key: Key, now: float, *, stream: bool) -> StoredContent | None: ...

    async def chain(self, key: Key, now: float, *, depth: int) -> list[StoredContent]:
        """The newest first; with its body where the answer is read from it. Stops at `depth`, at `MAX_CHAIN_BYTES` and where a parent is missing."""
        ...

    async def claim(self, key: Key, by: str, until: float, now: float) -> ClaimResult:
        """Raises StoreMissing."""
        ...

    async def release(self, key: Key, by: str) -> None: ...

    async def cancel(self, key: Key, now: float) -> Status:
        """Raises StoreMissing."""
        ...

    async def delete(self, key: Key, now: float) -> bool: ...

    async def put_seals(
        self, owner: str, family: str, sealed: Mapping[str, bytes], expires: float
    ) -> None: ...

    async def get_seals(
        self, owner: str, family: str, call_ids: Collection[str], now: float
    ) -> dict[str, bytes]: ...

    async def expire(self, now: float, limit: int) -> Swept: ...

    async def stats(self) -> StoreStats: ...

    async def ping(self) -> None: ...

    async def close(self) -> None: ...
