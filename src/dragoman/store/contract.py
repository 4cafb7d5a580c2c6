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
`store.lease` says. A lease that has lapsed is not renewed: others may have seen that the response has failed. A response
that never ended keeps what was appended.

**Conversations.** A response that continues a conversation holds it from its beginning to its end: `hold` gives the hold
to one response's id, `begin` and `put` do not take it. The response's end (`put`, `finish`) adds its input and output in
the same write, and releases the hold; a response that failed or was cancelled adds nothing. While a conversation is held,
nobody else adds or deletes items (`StoreHeld`). A hold that is not renewed within its lease is void, and a response that lost
its hold cannot add its items: `put` and `finish` refuse it. If the conversation was deleted meanwhile, the response is
stored, and nothing is added.

**Expiry.** A response lives `ttl` seconds from being stored, and at most `WAITING_SECONDS` if it is `only_waiting`. A
response that continues it keeps all its ancestors alive as long as itself, so that no active conversation loses its
beginning. Expired responses are not found, swept or not. `expire` removes them, and then those that expire next while the
total exceeds `max_bytes`. A conversation lives `ttl` seconds from its last use (`hold`, `add`, `update`), with all its
items, and is removed whole.

**Keys.** `count_key` reports what the requests of a named key used and, if a request asks, admits or refuses it, in one
transaction: of any number of requests at once, on any nodes, no more are admitted than the limits allow. Usage is
stored under the key's name, without an expiry: names are the operator's, and few.

**Nothing secret.** Requests are stored in canonical form, without the credentials that some tools contain (`core.credentials`).

Engines store values unchecked: they do not know dialects, and verify neither call ids nor statuses.
"""

from hashlib import sha256
from typing import Literal

WAITING_SECONDS = 3600.0
"""How long a response of a client that wants nothing stored waits for the outputs of its calls. The longest tool runs, and
the people who approve them, take less."""

MAX_CHAIN = 4096
"""Responses in one conversation: more turns than any context window holds, and a bound on what one query reads."""

MAX_CHAIN_BYTES = 64 * 1024 * 1024
"""Stored, compressed requests and answers of one conversation: as much as one request may have."""

MAX_UNPACKED_BYTES = 4 * MAX_CHAIN_BYTES
"""The same, unpacked. A text that repeats itself takes almost no space in the store, but all of it in memory."""

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
