"""The contract of a store: what every engine does, and what its callers may rely on.

    begin ─► (renew, lost)* ─► finish    a response that others may see while it runs
    put                                  the same in one write, at the end
    head, read, chain                    reading: by id, constant in the number stored; a chain is one query
    claim ─► begin/put ─► finish         `submit_tool_outputs`: one wins
    cancel, delete
    put_seals, get_seals                 the escrow of what a client's dialect cannot carry
    put_items, find_items                which response an item belongs to
    expire, stats, ping, close

**Acknowledged is durable.** When `begin`, `put`, `finish`, `claim`, `cancel`, `delete`, `put_seals` or `put_items` has returned, what
it did survives the death of this process at any moment, and every later read, here or on another node, sees it. A call
that raises `StoreUnavailable`, or that is cancelled, may or may not have happened.

**Owners.** Everything belongs to an owner and is found under that owner only: what is another's raises `StoreMissing`
like what never was. `owner_of` makes owners from keys.

**Claims.** Exactly one response continues another by `submit_tool_outputs`. `claim(owner, parent, by=child)` gives the
claim to the child's id. The child is stored with `claims=True`: `begin`, `put` and `finish` then refuse it
(`StoreConflict`) unless it still holds the claim, and its end settles the claim for good, or gives it back if it failed or
was cancelled. A claim whose holder neither ends nor renews within its lease is void, the gateway that took it died: the
next may have it. Branches by `previous_response_id` take no claim and are always allowed.

**Leases.** A running response has a lease too. `renew`, called for all that run on a node every third of a lease, keeps
leases and claims alive, and returns which of them are running no more (cancelled or deleted, perhaps on another node);
`lost` returns that alone, sooner.

**Expiry.** A response lives `ttl` seconds from being stored. One that continues it keeps all its ancestors alive as long
as itself, so that no conversation that goes on loses its beginning. What has expired is not found, swept or not.
`expire` removes it, and what expires next while all together exceed `max_bytes`.

**Nothing secret.** Requests are kept in canonical form, without the credentials that some tools carry (`credentials`).

Engines take what they are given as it is: they do not know dialects, and check neither call ids nor statuses.
"""

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Literal, Protocol

from dragoman.store.records import (
    Draft,
    Escrowed,
    Link,
    Status,
    Stored,
    StoredEnd,
    StoredHead,
    StoreStats,
    Swept,
)

LEASE_SECONDS = 60.0
"""How long a response may run unseen. Renewed every third of it, it forgives two renewals that failed."""

MAX_CHAIN = 4096
"""Responses in one conversation: more turns than any context window holds, and a bound to what one query reads."""

MAX_CHAIN_BYTES = 64 * 1024 * 1024
"""Of requests and answers as stored, compressed: what a request may have in one piece."""

SWEEP_BATCH = 1000
"""Rows that one `expire` removes at most: some tens of milliseconds of work that others wait for."""

ClaimResult = Literal["won", "running", "taken"]
"""`running`: the response has not ended yet. `taken`: it was continued, or is being continued."""

Key = tuple[str, str]
"""(owner, id) of a response."""

_OWNER_DIGITS = 32


def owner_of(key: str | None) -> str:
    """Whose the state of a caller with this key is. All callers without one are the same owner.

    A digest of 128 bits: neither can the key be found from it, nor another key with the same owner.
    """
    if not key:
        return ""
    return sha256(b"dragoman store owner\0" + key.encode("utf-8", "surrogatepass")).hexdigest()[
        :_OWNER_DIGITS
    ]


class Store(Protocol):
    """One store, open. Safe for any number of tasks of one event loop; not for threads or forked processes.

    Every method may raise `StoreUnavailable`, and those that read content `StoreDamaged`.
    """

    @property
    def engine(self) -> str:
        """`memory`, `sqlite` or `postgresql`."""
        ...

    async def begin(self, draft: Draft, *, lease: float = LEASE_SECONDS) -> None:
        """Store a response that runs.

        Raises:
            StoreConflict: the owner has one with this id, or the claim is another's.
            StoreTooLarge: the request exceeds a cap.
        """
        ...

    async def renew(
        self, running: Collection[Key], *, lease: float = LEASE_SECONDS
    ) -> frozenset[Key]:
        """Extend the leases of responses that run, and their claims. Those that run no more are returned."""
        ...

    async def lost(self, running: Collection[Key]) -> frozenset[Key]:
        """Those of them that run no more, as `renew` returns them; a read, cheap enough for once a second."""
        ...

    async def finish(self, owner: str, response_id: str, ending: StoredEnd) -> Status:
        """End a response that was begun, settle its claim, and say which status it has now.

        One that was cancelled meanwhile stays cancelled, and the ending is not stored.

        Raises:
            StoreMissing: it was deleted, or has expired. StoreTooLarge: it exceeds a cap.
            StoreConflict: it has ended before, or the claim is another's.
        """
        ...

    async def put(self, draft: Draft, ending: StoredEnd) -> None:
        """`begin` and `finish` in one write.

        Raises:
            StoreConflict: the owner has one with this id, or the claim is another's. StoreTooLarge: it exceeds a cap.
        """
        ...

    async def head(self, owner: str, response_id: str) -> StoredHead:
        """Raises StoreMissing."""
        ...

    async def read(self, owner: str, response_id: str, *, stream: bool = False) -> Stored:
        """What was sent to the client; with `stream` its stream as well. Raises StoreMissing."""
        ...

    async def chain(
        self, owner: str, response_id: str, *, depth: int = MAX_CHAIN
    ) -> tuple[Link, ...]:
        """The response and what went before it, the oldest first. A smaller `depth` gives only the last of them.

        Raises:
            StoreMissing: it, or one that it continues, is not there; `response_id` of the error says which.
            StoreTooLarge: there are more than `MAX_CHAIN`, or of more than `MAX_CHAIN_BYTES`.
        """
        ...

    async def claim(
        self, owner: str, response_id: str, *, by: str, lease: float = LEASE_SECONDS
    ) -> ClaimResult:
        """Take the right to continue a response, for the response that will be called `by`. Raises StoreMissing."""
        ...

    async def release(self, owner: str, response_id: str, *, by: str) -> None:
        """Give back a claim that `by` holds and has not settled; nothing if it holds none."""
        ...

    async def cancel(self, owner: str, response_id: str) -> Status:
        """Cancel a response that runs, and give back its claim. The status it has now: another one if it had ended.

        Raises:
            StoreMissing
        """
        ...

    async def delete(self, owner: str, response_id: str) -> None:
        """Remove a response with all its content. Those that continue it have lost their beginning.

        Raises:
            StoreMissing
        """
        ...

    async def put_seals(self, owner: str, family: str, escrow: Mapping[str, Escrowed]) -> None:
        """Keep, by call id as the client knows it, what only this provider family may see again. The last one counts.

        Raises:
            StoreTooLarge: one exceeds a cap.
        """
        ...

    async def get_seals(
        self, owner: str, family: str, call_ids: Collection[str]
    ) -> dict[str, Escrowed]:
        """What is kept for these calls; those without are left out."""
        ...

    async def put_items(self, owner: str, response_id: str, item_ids: Collection[str]) -> None:
        """Note to which response items belong whose ids do not say so. The last one counts. They live `ttl` seconds."""
        ...

    async def find_items(self, owner: str, item_ids: Collection[str]) -> dict[str, str]:
        """The responses to which these items belong; those that are not known are left out."""
        ...

    async def expire(self, *, limit: int = SWEEP_BATCH) -> Swept:
        """Remove what has expired, and what expires next while there is more than `max_bytes`; some `limit` rows."""
        ...

    async def stats(self) -> StoreStats:
        """How much is stored. Counts every row: for a page that a person looks at, or once a minute."""
        ...

    async def ping(self) -> None:
        """Raises StoreUnavailable if the store does not answer."""
        ...

    async def close(self) -> None:
        """Finish what was asked for and let go of everything. Twice is as good as once."""
        ...
