"""The contract of a store: what every engine does, and what its callers may rely on.

    begin ─► (renew, lost)* ─► finish    a response that others may see while it runs
    append, progress                     its stream so far, for followers on other nodes
    put                                  `begin` and `finish` in one write, at the end
    head, read, chain                    reading: by id, constant in the number stored; a chain is one query
    claim ─► begin/put ─► finish         `submit_tool_outputs`: one wins
    cancel, delete
    put_seals, get_seals                 the escrow: seals that a client's dialect has no field for
    put_items, find_items                which response an item belongs to
    conversations                        lists of items that clients make and responses add to (`Conversations`)
    count_key, read_keys                 what named keys have used, and their limits (`key_usage`)
    expire, stats, ping, close

**Acknowledged is durable.** When `begin`, `append`, `put`, `finish`, `claim`, `cancel`, `delete`, `put_seals` or `put_items` has
returned, its change survives the death of this process at any moment, and every later read, here or on another node,
sees it. A call that raises `StoreUnavailable`, or that is cancelled, may or may not have taken effect.

**Owners.** Everything belongs to an owner and is found under that owner only: another owner's response raises
`StoreMissing`, like a response that never existed. `owner_of` makes owners from keys.

**Claims.** Exactly one response continues another by `submit_tool_outputs`. `claim(owner, parent, by=child)` gives the
claim to the child's id. The child is stored with `claims=True`: `begin`, `put` and `finish` then refuse it
(`StoreConflict`) unless it still holds the claim, and its end settles the claim for good, or gives it back if it failed or
was cancelled. A claim whose holder neither ends nor renews within its lease is void, because the gateway that took it
died: another response may take it. Branches by `previous_response_id` take no claim and are always allowed.

**Leases.** A running response has a lease too. A node calls `renew` for all its running responses every third of a
lease; `renew` extends their leases and claims, and returns the responses that no longer run (cancelled or deleted,
perhaps on another node). `lost` only returns those, and is called more often. A lease lasts as long as the setting
`store.lease` says, unless the caller says otherwise. A lease that has lapsed is not renewed: others may have seen that the
response has failed. A response that never ended keeps what was appended.

**Conversations.** A response that continues a conversation holds it from its beginning to its end: `hold` gives the hold
to one response's id, `begin` and `put` do not take it. The response's end (`put`, `finish`) adds its input and output in
the same write, and releases the hold; a response that failed or was cancelled adds nothing. While a conversation is held,
nobody else adds or deletes items (`StoreHeld`). A hold that is not renewed within its lease is void, and a response that lost
its hold cannot add its items: `put` and `finish` refuse it. If the conversation was deleted meanwhile, the response is
stored, and nothing is added.

**Expiry.** A response lives `ttl` seconds from being stored, and at most `WAITING_SECONDS` if it is `only_waiting`. A response that continues it keeps all its ancestors alive
as long as itself, so that no active conversation loses its beginning. Expired responses are not found, swept or not.
`expire` removes them, and then those that expire next while the total exceeds `max_bytes`. A conversation lives `ttl`
seconds from its last use (`hold`, `add`, `update`), with all its items, and is removed whole.

**Keys.** `count_key` reports what the requests of a named key used and, if a request asks, admits or refuses it, in one
transaction: of any number of requests at once, on any nodes, no more are admitted than the limits allow. Usage is
stored under the key's name, without an expiry: names are the operator's, and few.

**Nothing secret.** Requests are stored in canonical form, without the credentials that some tools contain (`credentials`).

Engines store values unchecked: they do not know dialects, and verify neither call ids nor statuses.
"""

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Literal, Protocol

from dragoman.store.key_usage import KeyChange, KeyRequest, KeyUsage, LimitReached
from dragoman.store.records import (
    ConversationItem,
    Draft,
    Escrowed,
    ItemPage,
    Link,
    NewConversation,
    Status,
    Stored,
    StoredConversation,
    StoredEnd,
    StoredHead,
    StoreStats,
    StreamProgress,
    Swept,
)

WAITING_SECONDS = 3600.0
"""How long a response of a client that wants nothing stored waits for the outputs of its calls. The longest tool runs, and
the people who approve them, take less."""

MAX_CHAIN = 4096
"""Responses in one conversation: more turns than any context window holds, and a bound on what one query reads."""

MAX_CHAIN_BYTES = 64 * 1024 * 1024
"""Stored, compressed requests and answers of one conversation: as much as one request may have."""

MAX_ITEMS = 4 * MAX_CHAIN
"""Items in one conversation: a turn adds about four (a message, a call, its output, an answer)."""

MAX_PAGE = 100
"""Items in one page of a list: OpenAI's limit."""

SWEEP_BATCH = 1000
"""Rows that one `expire` removes at most: some tens of milliseconds, during which other operations wait."""

ClaimResult = Literal["won", "running", "taken"]
"""`running`: the response has not ended yet. `taken`: it was continued, or is being continued."""

Key = tuple[str, str]
"""(owner, id) of a response."""

_OWNER_DIGITS = 32


def owner_of(key: str | None) -> str:
    """Return the owner of a caller's state, derived from the caller's key. All callers without a key are one owner.

    The owner is a digest of 128 bits: it reveals neither the key nor another key with the same owner.
    """
    if not key:
        return ""
    return sha256(b"dragoman store owner\0" + key.encode("utf-8", "surrogatepass")).hexdigest()[
        :_OWNER_DIGITS
    ]


def waiting_owner(owner: str) -> str:
    """Return the owner of the responses that this owner's clients may continue by `submit_tool_outputs`, and not read."""
    return f"{owner}-waiting"


class Store(Protocol):
    """An open store. Safe for any number of tasks of one event loop; not for threads or forked processes.

    Every method may raise `StoreUnavailable`; methods that read content may also raise `StoreDamaged`.
    """

    @property
    def engine(self) -> str:
        """`memory`, `sqlite` or `postgresql`."""
        ...

    async def begin(self, draft: Draft, *, lease: float | None = None) -> None:
        """Store a response that runs.

        Raises:
            StoreConflict: the owner has a response with this id, or another response holds the claim.
            StoreTooLarge: the request exceeds a cap.
        """
        ...

    async def renew(
        self, running: Collection[Key], *, lease: float | None = None
    ) -> frozenset[Key]:
        """Extend the leases of running responses, and their claims. Returns the responses that no longer run."""
        ...

    async def lost(self, running: Collection[Key]) -> frozenset[Key]:
        """Return the responses that no longer run, like `renew`, but only read: cheap enough for once a second."""
        ...

    async def append(
        self, owner: str, response_id: str, place: int, sent: bytes, *, body: bytes = b""
    ) -> None:
        """Add the bytes from `place` on to the stream of a running response. The same place may be written again.

        body: the response object as it is now; empty: it has not changed. The end of the response replaces both.

        Raises:
            StoreMissing: the response was deleted, or has expired. StoreConflict: it has ended, or was cancelled.
            StoreTooLarge: the bytes exceed a cap.
        """
        ...

    async def progress(self, owner: str, response_id: str, *, start: int = 0) -> StreamProgress:
        """Return the head, and the appended bytes from the byte `start` on; none once it has ended. Raises StoreMissing."""
        ...

    async def finish(self, owner: str, response_id: str, ending: StoredEnd) -> Status:
        """End a response that was begun, settle its claim, and return its status.

        A response that was cancelled meanwhile stays cancelled, and the ending is not stored.

        Raises:
            StoreMissing: the response was deleted, or has expired. StoreTooLarge: the ending exceeds a cap.
            StoreConflict: the response has ended before, another response holds the claim, or the ending comes after the
                lease that it needs.
        """
        ...

    async def put(self, draft: Draft, ending: StoredEnd) -> None:
        """`begin` and `finish` in one write.

        Raises:
            StoreConflict: the owner has a response with this id, or another response holds the claim.
            StoreTooLarge: the request or the ending exceeds a cap.
        """
        ...

    async def head(self, owner: str, response_id: str) -> StoredHead:
        """Raises StoreMissing."""
        ...

    async def read(self, owner: str, response_id: str, *, stream: bool = False) -> Stored:
        """Return the body that was sent to the client; with `stream`, the stream as well. Raises StoreMissing."""
        ...

    async def chain(
        self, owner: str, response_id: str, *, depth: int = MAX_CHAIN
    ) -> tuple[Link, ...]:
        """Return the response and its ancestors, the oldest first. A smaller `depth` returns only the last ones.

        Raises:
            StoreMissing: the response or an ancestor is not stored; `response_id` of the error says which.
            StoreTooLarge: there are more than `MAX_CHAIN` responses, or they take more than `MAX_CHAIN_BYTES`.
        """
        ...

    async def claim(
        self, owner: str, response_id: str, *, by: str, lease: float | None = None
    ) -> ClaimResult:
        """Take the right to continue a response, for the response whose id will be `by`. Raises StoreMissing."""
        ...

    async def release(self, owner: str, response_id: str, *, by: str) -> None:
        """Give back a claim that `by` holds and has not settled; does nothing if `by` holds none."""
        ...

    async def cancel(self, owner: str, response_id: str) -> Status:
        """Cancel a running response and give back its claim. Returns its status, which is unchanged if it had ended.

        Raises:
            StoreMissing
        """
        ...

    async def delete(self, owner: str, response_id: str) -> None:
        """Remove a response with all its content. Responses that continue it can no longer be continued.

        Raises:
            StoreMissing
        """
        ...

    async def put_seals(self, owner: str, family: str, escrow: Mapping[str, Escrowed]) -> None:
        """Store seals by the client's call id; only this provider family gets them back. A later value replaces an earlier one.

        Raises:
            StoreTooLarge: the seals of a call exceed a cap.
        """
        ...

    async def get_seals(
        self, owner: str, family: str, call_ids: Collection[str]
    ) -> dict[str, Escrowed]:
        """Return the stored seals by call id, without the calls that have none."""
        ...

    async def put_items(self, owner: str, response_id: str, item_ids: Collection[str]) -> None:
        """Store which response these items belong to, for `ttl` seconds. A later entry of an item replaces an earlier one."""
        ...

    async def find_items(self, owner: str, item_ids: Collection[str]) -> dict[str, str]:
        """Return the id of the response of each item, without the items that are not stored."""
        ...

    async def count_key(
        self, name: str, change: KeyChange, asked: KeyRequest | None = None
    ) -> LimitReached | None:
        """Store what a worker reports of a key, then admit the request that asks; return the limit that refuses it, if one does.

        A request that is admitted is counted, and counts as running for `store.lease` seconds unless it is renewed.
        """
        ...

    async def read_keys(self, names: Collection[str]) -> dict[str, KeyUsage]:
        """Return what each of these keys has used in the windows that now is in; zeros for a key that was never used."""
        ...

    @property
    def conversations(self) -> "Conversations": ...

    async def expire(self, *, limit: int = SWEEP_BATCH) -> Swept:
        """Remove expired rows, and then those that expire next while the total exceeds `max_bytes`; about `limit` rows."""
        ...

    async def stats(self) -> StoreStats:
        """Return how much is stored. Counts every row: fit for a page that a person opens, or once a minute."""
        ...

    async def ping(self) -> None:
        """Raises StoreUnavailable if the store does not answer."""
        ...

    async def close(self) -> None:
        """Finish pending operations and release all resources. A second call does nothing."""
        ...


class Conversations(Protocol):
    """The conversations in a store. Every method but `create` and `find_items` raises `StoreMissing` if there is none with this id."""

    async def create(self, new: NewConversation) -> StoredConversation:
        """Raises StoreConflict: the owner has a conversation with this id, or two items have one id. StoreTooLarge."""
        ...

    async def read(self, owner: str, conversation_id: str) -> StoredConversation: ...

    async def update(
        self, owner: str, conversation_id: str, metadata: bytes | None = None
    ) -> StoredConversation:
        """Replace the metadata, if there is new metadata, and extend the expiry."""
        ...

    async def delete(self, owner: str, conversation_id: str) -> None:
        """Remove a conversation with all its items, held or not."""
        ...

    async def hold(
        self, owner: str, conversation_id: str, *, by: str, lease: float | None = None
    ) -> StoredConversation:
        """Give the hold to the response whose id is `by`, or renew it. Raises StoreHeld: another response has it."""
        ...

    async def release(self, owner: str, conversation_id: str, *, by: str) -> None:
        """Give back a hold; does nothing if `by` has none, or if there is no such conversation."""
        ...

    async def add(
        self,
        owner: str,
        conversation_id: str,
        items: tuple[ConversationItem, ...],
        *,
        by: str | None = None,
    ) -> StoredConversation:
        """Add items at the end. `by`: the response that holds the conversation; its hold is released.

        Raises:
            StoreHeld: another response holds the conversation, or `by` holds it no longer.
            StoreConflict: the conversation has an item with one of these ids. StoreTooLarge: a cap or `MAX_ITEMS` is exceeded.
        """
        ...

    async def page(
        self,
        owner: str,
        conversation_id: str,
        *,
        after: str | None = None,
        limit: int = MAX_PAGE,
        is_descending: bool = False,
    ) -> ItemPage:
        """Return at most `limit` items after the item `after`, in this order; reads no others.

        Raises:
            StoreMissing: there is no conversation, or no item `after`, which the error's `response_id` then names.
        """
        ...

    async def items(
        self, owner: str, conversation_id: str, *, before: int | None = None
    ) -> tuple[ConversationItem, ...]:
        """Return all items, or those at positions below `before`, in one query. Raises StoreTooLarge."""
        ...

    async def item(self, owner: str, conversation_id: str, item_id: str) -> ConversationItem:
        """Raises StoreMissing."""
        ...

    async def delete_item(
        self, owner: str, conversation_id: str, item_id: str
    ) -> StoredConversation:
        """Raises StoreMissing. StoreHeld: a response holds the conversation."""
        ...

    async def find_items(
        self, owner: str, item_ids: Collection[str]
    ) -> dict[str, ConversationItem]:
        """Return the items with these ids in any of the owner's conversations, without the ids that none has."""
        ...
