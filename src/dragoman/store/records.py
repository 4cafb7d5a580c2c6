"""The values that a store takes and returns. Frozen, without behaviour; in no dialect, except the bytes sent to the client.

A stored response is made of a `Draft` (known when it begins) and a `StoredEnd` (known when it is over). It is read back
as a `StoredHead` (small, all that decisions need), a `Stored` (the bytes sent to the client) or a `Link` (its part of
the conversation). A `StoredConversation` is a list of items that a client made and that responses add to.
"""

from typing import Literal

from msgspec import Struct

from dragoman.core.store_notes import TerminalStatus
from dragoman.model.parts import Dialect, Part, Reasoning, Seal
from dragoman.model.request import Request
from dragoman.store.packing import StreamBuffer

Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class Draft(Struct, frozen=True, kw_only=True):
    """A response that begins.

    owner: who may read it (`contract.owner_of`); no operation of another owner finds it.
    created: seconds since the epoch. door: the dialect it is sent in. model: the name that the client asked for.
    request: the request in canonical form, with the new turns only: the earlier turns are stored with the ancestors.
    parent: the response that this one continues.
    inherits: fields that the request leaves unset take the parent's settings (threads, `submit_tool_outputs`); otherwise
        only the turns carry over (`previous_response_id`).
    claims: it continues its parent by a claim that it holds (`submit_tool_outputs`); otherwise by a branch.
    only_waiting: its client wants nothing stored, but was asked to submit the outputs of calls. It is stored only if it waits
        for them, for a short time (`contract.WAITING_SECONDS`).
    background: it goes on without its client: it is begun before anything is sent, and others may follow it.
    conversation: the stored conversation that it belongs to, and must hold. position: where its own items begin there; the
        model got the items before them.
    body: the response object as sent at the beginning, for a GET before the end.
    """

    id: str
    owner: str
    created: float
    door: Dialect
    request: Request
    model: str = ""
    parent: str | None = None
    inherits: bool = False
    claims: bool = False
    only_waiting: bool = False
    background: bool = False
    conversation: str | None = None
    position: int = 0
    body: bytes = b""


class ConversationItem(Struct, frozen=True, gc=False):
    """An item of a conversation: its id, unique in the conversation, and its JSON object, which has the same id."""

    id: str
    data: bytes


class StoredEnd(Struct, frozen=True, kw_only=True):
    """A response that is over.

    body: the JSON body that a later GET returns: as sent, or the equivalent of the stream. The model's parts are decoded
        from it, in the dialect of the door.
    stream: the SSE stream as sent, with its terminal event; None if there was no stream or it is not stored.
    open_calls: the ids, as the client knows them, of the calls whose results the client has yet to send.
    upstream: the name of the upstream that answered. family: the provider family whose seals are in the answer.
    needs_lease: it is refused once the lease has lapsed, because pollers have seen that the response has failed.
    items: what the response adds to its conversation (`Draft.conversation`): its input and its output.
    """

    status: TerminalStatus
    body: bytes = b""
    stream: StreamBuffer | None = None
    open_calls: tuple[str, ...] = ()
    upstream: str = ""
    family: str = ""
    needs_lease: bool = False
    items: tuple[ConversationItem, ...] = ()


class StoredHead(Struct, frozen=True, kw_only=True):
    """A stored response without its content.

    status: `failed` also if the response was begun and its lease lapsed, because its gateway died.
    continued_by: the response that currently holds the claim on the continuation, if any.
    is_settled: whether the `continued_by` response has ended and keeps the claim for good.
    expires: seconds since the epoch. size: the stored bytes. conversation, position: see `Draft`.
    """

    id: str
    owner: str
    created: float
    expires: float
    status: Status
    door: Dialect
    model: str
    size: int
    parent: str | None = None
    inherits: bool = False
    open_calls: tuple[str, ...] = ()
    upstream: str = ""
    family: str = ""
    continued_by: str | None = None
    is_settled: bool = False
    conversation: str | None = None
    position: int = 0


class Stored(Struct, frozen=True):
    """The bytes sent to the client. `body` may be empty while it runs; `stream` is None unless requested and stored."""

    head: StoredHead
    body: bytes
    stream: bytes | None = None


class StreamProgress(Struct, frozen=True):
    """A response, and the part of its stream that was asked for, as far as it was appended while it ran."""

    head: StoredHead
    sent: bytes


class Link(Struct, frozen=True):
    """A response's part of its conversation. `parts`: the model's parts; None while it runs, and if it never ended."""

    head: StoredHead
    request: Request
    parts: tuple[Part, ...] | None


class NewConversation(Struct, frozen=True, kw_only=True):
    """A conversation that a client makes. `metadata`: a JSON object. `created`: seconds since the epoch."""

    id: str
    owner: str
    created: float
    metadata: bytes = b"{}"
    items: tuple[ConversationItem, ...] = ()


class StoredConversation(Struct, frozen=True, kw_only=True):
    """A stored conversation without its items.

    position: of the next item; positions rise, and are not used again. count: how many items there are.
    expires: seconds since the epoch. size: the stored bytes.
    """

    id: str
    owner: str
    created: float
    expires: float
    metadata: bytes
    position: int
    count: int
    size: int


class ItemPage(Struct, frozen=True):
    """Some of a conversation's items, in the order that was asked for. `more`: others follow."""

    items: tuple[ConversationItem, ...]
    more: bool = False


class Escrowed(Struct, frozen=True, kw_only=True):
    """What a client cannot send back with a call: the sealed reasoning before the call, and the call's own seals."""

    before: tuple[Reasoning, ...] = ()
    seals: tuple[Seal, ...] = ()


class StoreStats(Struct, frozen=True, kw_only=True):
    """How much is stored, including expired rows that are not swept yet."""

    responses: int = 0
    seals: int = 0
    conversations: int = 0
    size: int = 0


class Swept(StoreStats, frozen=True, kw_only=True):
    """What one sweep removed. `more`: the sweep stopped at its limit, and there is more to remove."""

    more: bool = False
