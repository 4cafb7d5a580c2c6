"""The items of a conversation, page by page, as `GET /v1/responses/{id}/input_items` tells them. Pure.

All that the model saw is listed: what earlier responses were asked and answered, and the input of this one.
"""

from collections.abc import Mapping, Sequence

from dragoman._json import dumps_document
from dragoman.dialects.responses import list_items
from dragoman.errors import RequestRefused
from dragoman.store.history import continued
from dragoman.store.records import Link

__all__ = ("page_of_items",)

# As OpenAI has them.
MAX_PAGE = 100
DEFAULT_PAGE = 20


def page_of_items(links: Sequence[Link], query: Mapping[str, str]) -> bytes:
    """A page of what stood before the answer of the last response. `query`: `limit`, `order`, `after`, `before`.

    Raises:
        RequestRefused: the query makes no sense.
    """
    *earlier, last = links
    turns = continued(earlier, last.request).turns
    items = list_items(turns, f"input of {last.head.id}")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestRefused(f"order: expected asc or desc, got {order!r}", param="order")
    if order == "desc":
        items.reverse()
    ids = [str(item["id"]) for item in items]
    first = _place(ids, query, "after") + 1
    last_place = _place(ids, query, "before") if "before" in query else len(items)
    limit = _limit(query.get("limit"))
    page = items[first:last_place][:limit]
    told = [str(item["id"]) for item in page]
    return dumps_document(
        {
            "object": "list",
            "data": page,
            "first_id": told[0] if told else None,
            "last_id": told[-1] if told else None,
            "has_more": first + len(page) < last_place,
        }
    )


def _place(ids: list[str], query: Mapping[str, str], name: str) -> int:
    """Where the item stands that a cursor names; before all of them if there is no cursor."""
    cursor = query.get(name)
    if cursor is None:
        return -1
    if cursor not in ids:
        raise RequestRefused(f"{name}: expected the id of an item, got {cursor!r}", param=name)
    return ids.index(cursor)


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_PAGE
    if not text.isdecimal() or not 1 <= int(text[:4]) <= MAX_PAGE or len(text) > len(str(MAX_PAGE)):
        raise RequestRefused(f"limit: expected 1 to {MAX_PAGE}, got {text!r}", param="limit")
    return int(text)
