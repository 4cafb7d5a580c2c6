"""The values a store keeps and gives back. Frozen, without behaviour, in no dialect but for what was sent to the client.

A stored response is made of a `Draft` (known when it begins) and an `StoredEnd` (known when it is over). It is read back
as a `StoredHead` (small, all that decisions need), a `Stored` (what was sent to the client) or a `Link` (its share of the
conversation).
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

    owner: whose it is (`contract.owner_of`); nobody else can see it, under any operation.
    created: seconds since the epoch. door: the dialect it is sent in. model: the name the client asked for.
    request: what was asked, in canonical form, with the new turns alone: what went before is the parent's.
    parent: the response that this one continues.
    inherits: where the request is silent, the parent's settings count (threads, `submit_tool_outputs`); without it
        nothing but the turns goes on (`previous_response_id`).
    claims: it continues its parent by a claim that it holds (`submit_tool_outputs`); without it, by a branch.
    body: the response object as sent at the beginning, for those who ask before the end.
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
    body: bytes = b""


class StoredEnd(Struct, frozen=True, kw_only=True):
    """A response that is over.

    body: the JSON body as sent, or as it would have been: what a later GET returns. What the model said is read from it, in
        the dialect of the door.
    stream: the SSE stream as sent, with its terminal event; None if it was not streamed, or is not to be sent again.
    open_calls: the ids of the calls whose results the client owes, as it knows them.
    upstream: the name of the upstream that answered. family: the provider family whose seals are in the answer.
    """

    status: TerminalStatus
    body: bytes = b""
    stream: StreamBuffer | None = None
    open_calls: tuple[str, ...] = ()
    upstream: str = ""
    family: str = ""


class StoredHead(Struct, frozen=True, kw_only=True):
    """What is known of a stored response without its content.

    status: `failed` also for one that was begun and whose lease lapsed: its gateway died.
    continued_by: the response that holds the claim on its continuation, if any does now.
    is_settled: that response is stored; the claim is for good.
    expires: seconds since the epoch. size: the bytes it takes.
    """

    id: str
    owner: str
    created: float
    expires: float
    status: Status
    door: Dialect
    model: str
    parent: str | None
    inherits: bool
    open_calls: tuple[str, ...]
    upstream: str
    family: str
    continued_by: str | None
    is_settled: bool
    size: int


class Stored(Struct, frozen=True):
    """What was sent to the client. `body` may be empty while it runs; `stream` is None unless asked for and streamed."""

    head: StoredHead
    body: bytes
    stream: bytes | None = None


class Link(Struct, frozen=True):
    """A response's share of its conversation. `parts`: what the model said; None while it runs, and if it never ended."""

    head: StoredHead
    request: Request
    parts: tuple[Part, ...] | None


class Escrowed(Struct, frozen=True, kw_only=True):
    """What a client could not carry for a call: the reasoning that stood before it, and the call's own seals."""

    before: tuple[Reasoning, ...] = ()
    seals: tuple[Seal, ...] = ()


class Swept(Struct, frozen=True, kw_only=True):
    """What one sweep removed. `more`: it stopped at its limit, and another is worth while."""

    responses: int = 0
    seals: int = 0
    size: int = 0
    more: bool = False


class StoreStats(Struct, frozen=True, kw_only=True):
    """How much is stored, what has expired but was not swept included."""

    responses: int
    seals: int
    size: int
