"""What an engine does: keep rows and bytes, in transactions. It knows no record, no codec and no clock.

`front.KeptStore` makes a store of an engine. Texts that reach an engine have a UTF-8 and no NUL, sizes are within the
caps, and `now` is the time of the front.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from msgspec import Struct

from dragoman.store.base import ClaimResult, Key
from dragoman.store.records import EndStatus, Status, StoreStats, Swept
from dragoman.store.rows import Row

__all__ = ("Content", "Engine", "Entry", "Fresh", "Over", "Share")


class Fresh(Struct, frozen=True, gc=False):
    """A row to be written, with its request and what was told at its beginning. The engine sets when it expires."""

    row: Row
    request: bytes
    body: bytes


class Over(Struct, frozen=True, gc=False, kw_only=True):
    """What the end of a response adds to its row. `answer` is empty if it is what `body` tells."""

    status: EndStatus
    open_calls: str
    upstream: str
    family: str
    answer: bytes
    body: bytes
    stream: bytes | None

    @property
    def size(self) -> int:
        return len(self.answer) + len(self.body) + len(self.stream or b"")


Entry = Callable[[], tuple[Fresh, Over | None]]
"""What is to be inserted, made when it is: many at once are made faster. Raises StoreError."""


class Content(Struct, frozen=True, gc=False):
    """A row with what was told."""

    row: Row
    body: bytes
    stream: bytes | None


class Share(Struct, frozen=True, gc=False):
    """A row with its share of a conversation. `answer` is empty if `body` tells it, which is there only then."""

    row: Row
    request: bytes
    answer: bytes | None
    body: bytes | None = None

    @property
    def size(self) -> int:
        return len(self.request) + len(self.answer or b"") + len(self.body or b"")


class Engine(Protocol):
    """See `base.Store` for what each of these means; here only live rows are found, and None is what is missing."""

    @property
    def name(self) -> str: ...

    async def insert(self, entry: Entry, now: float) -> None:
        """Raises StoreConflict, and what making the entry raises."""
        ...

    async def finish(self, key: Key, over: Over, now: float) -> Status:
        """Raises StoreMissing, StoreConflict."""
        ...

    async def renew(self, running: Collection[Key], until: float, now: float) -> frozenset[Key]: ...

    async def lost(self, running: Collection[Key], now: float) -> frozenset[Key]: ...

    async def row(self, key: Key, now: float) -> Row | None: ...

    async def content(self, key: Key, now: float, *, stream: bool) -> Content | None: ...

    async def chain(self, key: Key, now: float, *, depth: int) -> list[Share]:
        """The newest first; stops at `depth`, at `MAX_CHAIN_BYTES` and where a parent is missing."""
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
