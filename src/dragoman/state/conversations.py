"""Conversations over HTTP: one function for each endpoint. Each may raise RequestRefused.

    POST   /v1/conversations                      a new conversation, with up to 20 items
    GET    /v1/conversations/{id}                 the conversation without its items
    POST   /v1/conversations/{id}                 replaces its metadata
    DELETE /v1/conversations/{id}                 removes it with its items
    POST   /v1/conversations/{id}/items           adds up to 20 items
    GET    /v1/conversations/{id}/items           its items, in pages
    GET    /v1/conversations/{id}/items/{item}    one item
    DELETE /v1/conversations/{id}/items/{item}    removes an item

A request with `conversation` continues one: `continuation`, `held_conversation`.
"""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from random import getrandbits

from starlette.responses import Response

from dragoman.core.credentials import remove_from_item
from dragoman.core.ids import CONVERSATION_PREFIX, NOISE_BITS, number_of
from dragoman.dialects.responses.conversations import (
    StoredItem,
    read_new,
    read_new_items,
    read_update,
    write_conversation,
    write_deleted,
    write_page,
)
from dragoman.errors import RequestRefused, StoreConflict, StoreHeld, StoreMissing
from dragoman.offload import offload
from dragoman.state.endpoints import page_limit, page_order
from dragoman.state.held_conversation import (
    Missing,
    complete_items,
    conversation_missing,
    locked,
)
from dragoman.state.managed_store import ManagedStore
from dragoman.store.records import ConversationItem, NewConversation, StoredConversation

_JSON = "application/json"


async def create_conversation(managed: ManagedStore, owner: str, body: bytes) -> Response:
    sent, metadata = await offload(len(body), read_new, body)
    now = time.time()
    conversation_id = CONVERSATION_PREFIX + number_of(now, getrandbits(NOISE_BITS))
    items = _stored(await complete_items(managed, owner, sent, f"items of {conversation_id}"))
    new = NewConversation(
        id=conversation_id, owner=owner, created=now, metadata=metadata, items=items
    )
    with _refused(conversation_id):
        made = await managed.call("create", lambda store: store.conversations.create(new))
    return _written(made)


async def read_conversation(managed: ManagedStore, owner: str, conversation_id: str) -> Response:
    with _refused(conversation_id):
        found = await managed.call(
            "read", lambda store: store.conversations.read(owner, conversation_id)
        )
    return _written(found)


async def update_conversation(
    managed: ManagedStore, owner: str, conversation_id: str, body: bytes
) -> Response:
    metadata = await offload(len(body), read_update, body)
    with _refused(conversation_id):
        changed = await managed.call(
            "update", lambda store: store.conversations.update(owner, conversation_id, metadata)
        )
    return _written(changed)


async def delete_conversation(managed: ManagedStore, owner: str, conversation_id: str) -> Response:
    with _refused(conversation_id):
        await managed.call(
            "delete", lambda store: store.conversations.delete(owner, conversation_id)
        )
    return Response(write_deleted(conversation_id), media_type=_JSON)


async def add_items(
    managed: ManagedStore, owner: str, conversation_id: str, body: bytes
) -> Response:
    sent = await offload(len(body), read_new_items, body)
    number = number_of(time.time(), getrandbits(NOISE_BITS))
    made = await complete_items(managed, owner, sent, f"items {number} of {conversation_id}")
    items = _stored(made)
    with _refused(conversation_id):
        await managed.call(
            "add_items", lambda store: store.conversations.add(owner, conversation_id, items)
        )
    return _page(items, more=False)


async def list_conversation(
    managed: ManagedStore, owner: str, conversation_id: str, query: Mapping[str, str]
) -> Response:
    limit, is_descending = page_limit(query), page_order(query) == "desc"
    after = query.get("after")
    no_item = Missing(f"No item found with id '{after}'", param="after")
    with _refused(conversation_id, no_item):
        page = await managed.call(
            "items",
            lambda store: store.conversations.page(
                owner, conversation_id, after=after, limit=limit, is_descending=is_descending
            ),
        )
    return _page(page.items, more=page.more)


async def read_item(
    managed: ManagedStore, owner: str, conversation_id: str, item_id: str
) -> Response:
    with _refused(conversation_id, _item_missing(conversation_id, item_id)):
        item = await managed.call(
            "items", lambda store: store.conversations.item(owner, conversation_id, item_id)
        )
    return Response(item.data, media_type=_JSON)


async def delete_item(
    managed: ManagedStore, owner: str, conversation_id: str, item_id: str
) -> Response:
    with _refused(conversation_id, _item_missing(conversation_id, item_id)):
        left = await managed.call(
            "delete",
            lambda store: store.conversations.delete_item(owner, conversation_id, item_id),
        )
    return _written(left)


@contextmanager
def _refused(conversation_id: str, no_item: Missing | None = None) -> Generator[None]:
    """Refuse the request in OpenAI's words if the store refuses it. `no_item`: for an item that the conversation does not have."""
    try:
        yield
    except StoreMissing as error:
        if no_item is not None and error.response_id != conversation_id:
            raise no_item from error
        raise conversation_missing(conversation_id) from error
    except StoreHeld as error:
        raise locked() from error
    except StoreConflict as error:
        raise RequestRefused(
            "Item already in conversation", param="items", code="item_already_in_conversation"
        ) from error


def _item_missing(conversation_id: str, item_id: str) -> Missing:
    return Missing(f"Item with id '{item_id}' not found in conversation '{conversation_id}'.")


def _stored(items: list[StoredItem]) -> tuple[ConversationItem, ...]:
    return tuple(
        [ConversationItem(item.id, remove_from_item(item.turn, item.data)) for item in items]
    )


def _written(found: StoredConversation) -> Response:
    data = write_conversation(found.id, found.created, found.metadata)
    return Response(data, media_type=_JSON)


def _page(items: tuple[ConversationItem, ...], *, more: bool) -> Response:
    pairs = [(item.id, item.data) for item in items]
    return Response(write_page(pairs, more=more), media_type=_JSON)
