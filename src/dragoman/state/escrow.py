"""Stores the seals of reasoning for clients that cannot send them back, by the call that followed the reasoning.

A Chat client has no field for a signature or for encrypted reasoning. Providers expect both back, in front of the call
they preceded: without them the model loses its reasoning, and Anthropic refuses to continue thinking. So the gateway
stores the seals by call id and restores them when the client repeats that call, only for the provider family that made
them.

If the store does not answer, the request goes on without the seals, as it would without a store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from itertools import chain
from typing import TypeVar

from msgspec import structs

from dragoman._json import dumps_canonical, loads
from dragoman.core.fold import fold
from dragoman.core.seals import Family, split_family
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import upstream_codec
from dragoman.dialects.translate import Change
from dragoman.errors import MalformedJson, StoreError, StoreUnavailable
from dragoman.model.events import Event, PartEnded
from dragoman.model.parts import Call, Dialect, Part, Reasoning
from dragoman.model.request import Request, Turn
from dragoman.offload import offload
from dragoman.state.managed_store import ManagedStore
from dragoman.store.engine_store import Store
from dragoman.store.records import Escrowed

logger = logging.getLogger(__name__)

T = TypeVar("T")

FAMILIES: Mapping[Dialect, Family] = {"messages": "anthropic", "responses": "openai"}
"""The provider families by the dialect of an upstream. Chat servers use fields of their own, which clients send back."""

PATIENCE = 2.0
"""Seconds that a request waits for the escrow. The request can be sent without it."""

# Every body with a seal contains one of these.
_MARKS = (b'"signature"', b'"redacted_thinking"', b'"encrypted_content"')


class Escrow:
    """Stores the seals of one answer. Takes the place of a `Keeper` for answers that are not stored whole."""

    __slots__ = ("_before", "_family", "_found", "_managed", "_owner")

    problem = None  # seals that could not be stored do not fail this answer

    def __init__(self, managed: ManagedStore, owner: str, family: Family) -> None:
        self._managed = managed
        self._owner = owner
        self._family: Family = family
        self._before: list[Reasoning] = []
        self._found: dict[str, Escrowed] = {}

    def see(self, event: Event) -> tuple[Event]:
        """Note the seals of an event, which has the client's names and ids, and return the event unchanged."""
        if type(event) is PartEnded:
            self._note(event.value)
        return (event,)

    def see_body(self, dialect: Dialect, data: bytes) -> None:
        """Note the seals of a whole answer, as the upstream sent it."""
        if any(mark in data for mark in _MARKS):
            codec = upstream_codec(dialect)
            outcome = codec.read_typed(data)
            if outcome is None:
                outcome = fold(codec.read_body(data, DecodeContext()).events)
            for choice in outcome.choices:
                for part in choice.parts:
                    self._note(part)

    def take(self, sent: bytes) -> None:
        """Does nothing: the escrow needs no bytes."""

    async def end_stream(self, last: bytes) -> bytes:
        await self._keep()
        return last

    async def end_body(self, body: bytes) -> bytes:
        await self._keep()
        return body

    def repeats(self, response_id: str) -> bool:
        """Always False: the escrow does not store answers by id."""
        del response_id
        return False

    def _note(self, part: Part) -> None:
        if isinstance(part, Reasoning):
            own = split_family(part.seals, self._family)[0]
            if own:
                self._before.append(structs.replace(part, seals=own))
        elif isinstance(part, Call) and part.executor == "client" and part.call_id:
            own = split_family(part.seals, self._family)[0]
            if self._before or own:
                self._found[escrow_key(part)] = Escrowed(before=tuple(self._before), seals=own)
                self._before = []

    async def _keep(self) -> None:
        found, self._found = self._found, {}
        if not found:
            return

        async def put(store: Store) -> bool:
            await store.put_seals(self._owner, self._family, found)
            return True

        if not await _ask(self._managed, "put_seals", put):
            logger.warning("the seals of %d calls could not be stored", len(found))


def seen_by(escrow: Escrow, change: Change | None) -> Change:
    """Return `change` with `escrow.see` applied to each event that it returns."""
    if change is None:
        return escrow.see
    return lambda event: chain.from_iterable(map(escrow.see, change(event)))


async def restore(
    managed: ManagedStore, owner: str, family: Family, request: Request, size: int
) -> Request:
    """Return the request with the seals that are stored for its calls; the same object if there are none.

    size: the approximate size of the request in bytes.
    """
    calls = await offload(size, _keys_of, request)
    if not calls:
        return request
    kept = await _ask(managed, "get_seals", lambda store: store.get_seals(owner, family, calls))
    return request if not kept else await offload(size, put_back, request, kept)


def _keys_of(request: Request) -> set[str]:
    return {
        escrow_key(part)
        for turn in request.turns
        if turn.role == "assistant"
        for part in turn.parts
        if isinstance(part, Call) and part.executor == "client"
    }


async def _ask(managed: ManagedStore, name: str, work: Callable[[Store], Awaitable[T]]) -> T | None:
    """Return the store's answer; None if the store fails or does not answer within `PATIENCE`."""
    if not managed.is_worth_trying:
        return None
    try:
        async with asyncio.timeout(PATIENCE):
            return await managed.call(name, work)
    except TimeoutError:
        managed.report_problem(StoreUnavailable(f"no answer within {PATIENCE:g} seconds"))
    except StoreError as error:
        logger.debug("the escrow could not be used: %s", error.whole)
    return None


def put_back(request: Request, kept: Mapping[str, Escrowed]) -> Request:
    """Return the request with the stored reasoning inserted before its calls, and their seals restored. Pure."""
    turns = tuple(
        _filled(turn, kept) if turn.role == "assistant" else turn for turn in request.turns
    )
    return structs.replace(request, turns=turns)


def _filled(turn: Turn, kept: Mapping[str, Escrowed]) -> Turn:
    if not any(isinstance(part, Call) and escrow_key(part) in kept for part in turn.parts):
        return turn
    if any(isinstance(part, Reasoning) and part.seals for part in turn.parts):
        return turn  # the turn has its seals already: it comes from a stored response, which is complete
    filled: list[Part] = []
    for part in turn.parts:
        if isinstance(part, Reasoning):
            continue  # without a seal: only a copy of the stored text
        escrowed = kept.get(escrow_key(part)) if isinstance(part, Call) else None
        if escrowed is None or not isinstance(part, Call):
            filled.append(part)
            continue
        is_first = not any(isinstance(each, Call) for each in filled)
        # The reasoning before the first call also preceded the text that came with the call.
        place = 0 if is_first else len(filled)
        filled[place:place] = escrowed.before
        new = [seal for seal in escrowed.seals if seal not in part.seals]
        filled.append(structs.replace(part, seals=(*part.seals, *new)))
    return structs.replace(turn, parts=tuple(filled))


def escrow_key(call: Call) -> str:
    """Return the key that identifies a call: its id, and a digest of its name and input.

    The id alone does not suffice: some servers number their calls from one in every answer, and the reasoning before a
    different call must not be restored. The digest ignores the order of members, which clients that parse a call may change.
    """
    try:
        value: object = loads(call.input)
    except MalformedJson:
        value = call.input
    data = dumps_canonical([call.name, call.namespace, value])
    return f"{call.call_id} {blake2b(data, digest_size=8).hexdigest()}"
