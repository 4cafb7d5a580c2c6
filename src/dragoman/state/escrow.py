"""What a client cannot carry, kept for it: the seals of reasoning, by the call that the reasoning led to.

A Chat client has no field for a signature or for encrypted reasoning. Providers want them back with the call they stood
before: without them a model has lost its thoughts, and Anthropic refuses to think on. So they are kept by call id, and
put back when the client repeats that call; only to the provider family that made them.

A store that does not answer costs the seals, not the request: it goes on without them, as it would without a store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
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
from dragoman.model.parts import Call, Dialect, Part, Reasoning, Seal
from dragoman.model.request import Request, Turn
from dragoman.offload import offload
from dragoman.state.managed_store import ManagedStore
from dragoman.store.contract import Store
from dragoman.store.records import Escrowed

logger = logging.getLogger(__name__)

T = TypeVar("T")

FAMILIES: Mapping[Dialect, Family] = {"messages": "anthropic", "responses": "openai"}
"""The provider families by the dialect of an upstream. Chat servers have fields of their own, which clients carry."""

PATIENCE = 2.0
"""Seconds that a request waits for the escrow, which it could do without."""

# What a body has somewhere if it has a seal.
_MARKS = (b'"signature"', b'"redacted_thinking"', b'"encrypted_content"')


class Escrow:
    """The seals of one answer. Stands where a `Keeper` does, for answers that are not kept whole."""

    __slots__ = ("_before", "_family", "_found", "_managed", "_owner")

    problem = None  # what cannot be kept is missed later, if at all

    def __init__(self, managed: ManagedStore, owner: str, family: Family) -> None:
        self._managed = managed
        self._owner = owner
        self._family: Family = family
        self._before: list[Reasoning] = []
        self._found: dict[str, Escrowed] = {}

    def see(self, event: Event) -> tuple[Event]:
        """An event of the answer, in the client's terms."""
        if type(event) is PartEnded:
            self._note(event.value)
        return (event,)

    def see_body(self, dialect: Dialect, data: bytes) -> None:
        """A whole answer, as the upstream sent it."""
        if any(mark in data for mark in _MARKS):
            codec = upstream_codec(dialect)
            outcome = codec.read_typed(data)
            if outcome is None:
                outcome = fold(codec.read_body(data, DecodeContext()).events)
            for choice in outcome.choices:
                for part in choice.parts:
                    self._note(part)

    def take(self, sent: bytes) -> None:
        """The escrow needs no bytes."""

    async def end_stream(self, last: bytes) -> bytes:
        await self._keep()
        return last

    async def end_body(self, body: bytes) -> bytes:
        await self._keep()
        return body

    def repeats(self, response_id: str) -> bool:
        """No answer is found by its id here."""
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
            logger.warning("the seals of %d calls could not be kept", len(found))


def seen_by(escrow: Escrow, change: Change | None) -> Change:
    """The same change, whose outcome the escrow sees."""
    if change is None:
        return escrow.see
    return lambda event: chain.from_iterable(map(escrow.see, change(event)))


async def restore(
    managed: ManagedStore, owner: str, family: Family, request: Request, size: int
) -> Request:
    """The request with the seals that are kept for its calls; the very same if there are none.

    size: about how many bytes it takes.
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
    """What the store says; None if it does not, soon."""
    if not managed.is_worth_trying:
        return None
    try:
        async with asyncio.timeout(PATIENCE):
            return await managed.call(name, work)
    except TimeoutError:
        managed.report_problem(StoreUnavailable(f"no answer within {PATIENCE:g} seconds"))
    except StoreError as error:
        logger.debug("the escrow was not asked: %s", error.whole)
    return None


def put_back(request: Request, kept: Mapping[str, Escrowed]) -> Request:
    """The request with what was kept for its calls before them. Pure."""
    turns = tuple(
        _filled(turn, kept) if turn.role == "assistant" else turn for turn in request.turns
    )
    return structs.replace(request, turns=turns)


def _filled(turn: Turn, kept: Mapping[str, Escrowed]) -> Turn:
    if not any(isinstance(part, Call) and escrow_key(part) in kept for part in turn.parts):
        return turn
    if any(isinstance(part, Reasoning) and part.seals for part in turn.parts):
        return turn  # it has them: what the gateway remembers of an answer is whole
    # What the client still has of these thoughts is their text: said already, and without a seal no use.
    parts = [part for part in turn.parts if not (isinstance(part, Reasoning) and not part.seals)]
    filled: list[Part] = []
    for part in parts:
        escrowed = kept.get(escrow_key(part)) if isinstance(part, Call) else None
        if escrowed is None or not isinstance(part, Call):
            filled.append(part)
            continue
        is_first = not any(isinstance(each, Call) for each in filled)
        # The thoughts before the first call came before the words that came with it.
        place = 0 if is_first else len(filled)
        filled[place:place] = escrowed.before
        filled.append(structs.replace(part, seals=(*part.seals, *_new(part, escrowed))))
    return structs.replace(turn, parts=tuple(filled))


def escrow_key(call: Call) -> str:
    """What a call is known by: its id, and what it says.

    There are servers that count their calls from one in every answer: the thoughts before another call are not wanted. Clients
    that parse a call need not keep the order of its members.
    """
    try:
        value: object = loads(call.input)
    except MalformedJson:
        value = call.input
    said = dumps_canonical([call.name, call.namespace, value])
    return f"{call.call_id} {blake2b(said, digest_size=8).hexdigest()}"


def _new(call: Call, escrowed: Escrowed) -> Iterable[Seal]:
    return (seal for seal in escrowed.seals if seal not in call.seals)
