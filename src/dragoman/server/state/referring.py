"""Items that a request only refers to (`item_reference`): found in the store, and put where they are meant.

The AI SDK tells of what a response said in this way alone. Where we wrote the answer, the id of an item says in which response
it was told; where an upstream's ids passed through, the store knows it.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, structs

from dragoman.core.ids import response_of
from dragoman.errors import StoreMissing
from dragoman.model.parts import Opaque, Part
from dragoman.model.request import Request, Turn
from dragoman.server.state.holding import StoreHolder
from dragoman.store.records import Link

__all__ = ("Referred", "references", "resolve")

_REFERENCE = "item_reference"


class Referred(Struct, frozen=True, kw_only=True):
    """A request with the items it referred to.

    missing: the ids of those that are not known here. links: the responses in which the others were told.
    """

    request: Request
    missing: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


def references(request: Request) -> tuple[str, ...]:
    """The ids of the items that a request refers to, each once."""
    found = {
        part.item_id or ""
        for turn in request.turns
        for part in turn.parts
        if type(part) is Opaque and part.type == _REFERENCE
    }
    return tuple(sorted(found)) if found else ()


async def resolve(
    holder: StoreHolder, owner: str, request: Request, wanted: tuple[str, ...]
) -> Referred:
    """Raises StoreError: the store did not answer."""
    places = {item_id: response_of(item_id) for item_id in wanted}
    foreign = [item_id for item_id, place in places.items() if place is None]
    if foreign:
        places.update(await holder.ask("items", lambda store: store.find_items(owner, foreign)))
    links = [
        link
        for response_id in sorted({place for place in places.values() if place is not None})
        if (link := await _link(holder, owner, response_id)) is not None
    ]
    items = _items(links)
    turns = tuple(_with_items(turn, items) for turn in request.turns)
    return Referred(
        request=structs.replace(request, turns=turns),
        missing=tuple(item_id for item_id in wanted if item_id not in items),
        links=tuple(links),
    )


async def _link(holder: StoreHolder, owner: str, response_id: str) -> Link | None:
    try:
        (link,) = await holder.ask("chain", lambda store: store.chain(owner, response_id, depth=1))
    except StoreMissing:
        return None
    return link


def _items(links: Iterable[Link]) -> dict[str, list[Part]]:
    """The parts of each item. Those of a message share the id of theirs."""
    items: dict[str, list[Part]] = {}
    for link in links:
        for part in () if link.answer is None else link.answer.parts:
            if part.item_id:
                items.setdefault(part.item_id, []).append(part)
    return items


def _with_items(turn: Turn, items: Mapping[str, list[Part]]) -> Turn:
    if not any(type(part) is Opaque and part.type == _REFERENCE for part in turn.parts):
        return turn
    parts: list[Part] = []
    for part in turn.parts:
        is_reference = type(part) is Opaque and part.type == _REFERENCE
        parts += items.get(part.item_id or "", [part]) if is_reference else [part]
    return structs.replace(turn, parts=tuple(parts))
