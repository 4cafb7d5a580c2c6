"""Conversations: the bodies of `/v1/conversations`, and items as a conversation stores and lists them.

An item is stored as the client or the model sent it, with what every item of a list has: an id, a type and, for most types,
a status. The content of a message is a list of parts. Refusals use OpenAI's words.
"""

from collections.abc import Iterable, Sequence
from itertools import filterfalse

from msgspec import Struct, structs

from dragoman._json import Raw, as_object, dumps, dumps_document, dumps_text
from dragoman.core.fields import (
    Fields,
    ask_list,
    ask_object,
    is_present,
    kind_of,
    need_object,
    need_text,
    own_fields,
    read_list,
    read_object,
    read_shallow,
    read_text,
    refuse,
    set_members,
)
from dragoman.core.ids import Minter
from dragoman.core.request_settings import request_fields
from dragoman.dialects.responses.compaction import TRIGGER
from dragoman.dialects.responses.turns import EarlierItems, list_items, read_history
from dragoman.dialects.responses.wire import ITEMS_WITH_STATUS, PREFIXES, STRICT_PREFIXES
from dragoman.errors import RequestRefused
from dragoman.model.parts import Extra
from dragoman.model.request import Request, Turn

# OpenAI's limits.
MAX_NEW_ITEMS = 20
MAX_METADATA = 16
MAX_METADATA_NAME = 64
MAX_METADATA_VALUE = 512

MAX_ITEM_ID = 512
"""Characters in the id of an item. OpenAI's have some 60, those of other providers some hundred; an index of a database takes
two thousand bytes."""

_REFERENCE = "item_reference"
_OTHER_PREFIX = "item_"
_FIELD = "conversation"


class StoredItem(Struct, frozen=True, gc=False):
    """An item and its id. `turn`: what the item contributes to a conversation."""

    id: str
    data: bytes
    turn: Turn


class NewItems(Struct, frozen=True):
    """Items that a client sends, as received. `where`: the path of the list in the request."""

    entries: tuple[Raw, ...]
    where: str


def conversation_of(request: Request) -> str | None:
    """Return the id of the conversation that a request continues; None if it continues none.

    Raises:
        RequestRefused: the field is neither an id nor an object with an id.
    """
    raw = own_fields("responses", request.extra).get(_FIELD)
    if raw is None or not is_present(raw):
        return None
    found = read_shallow(raw)
    if isinstance(found, dict):
        found = need_text(found, "id", _FIELD)
    if not isinstance(found, str) or not found:
        refuse(_FIELD, "the id of a conversation, or an object with its id", raw)
    return found


def with_conversation(request: Request, conversation_id: str | None) -> Request:
    """Return the request with this conversation, or without one."""
    fields = dict(own_fields("responses", request.extra))
    fields.pop(_FIELD, None)
    if conversation_id is not None:
        fields[_FIELD] = Raw(dumps({"id": conversation_id}))
    return structs.replace(request, extra=Extra("responses", fields))


def read_new(body: bytes) -> tuple[NewItems, bytes]:
    """Return the items and the metadata of a new conversation. Raises RequestRefused."""
    fields = request_fields(body) if body.strip() else {}
    return _new_items(fields), _metadata(fields)


def read_update(body: bytes) -> bytes:
    """Return the new metadata of a conversation. Raises RequestRefused."""
    fields = request_fields(body)
    _need(fields, "metadata")
    return _metadata(fields)


def read_new_items(body: bytes) -> NewItems:
    """Return the items to add to a conversation. Raises RequestRefused."""
    fields = request_fields(body)
    _need(fields, "items")
    return _new_items(fields)


def read_input(body: bytes) -> NewItems:
    """Return the items in the input of a request that has been decoded before."""
    value = as_object(body).get("input")
    found = None if value is None else read_shallow(value)
    if isinstance(found, str):
        message = {"type": "message", "role": "user", "content": found}
        return NewItems((Raw(dumps_document(message)),), "input")
    entries = found if isinstance(found, list) else []
    return NewItems(tuple(filterfalse(_is_trigger, entries)), "input")


def _is_trigger(entry: Raw) -> bool:
    """Whether an item only asks for a compaction: it is not an item of a conversation."""
    return read_text(read_object(entry).get("type")) == TRIGGER


def items_of_turns(turns: Sequence[Turn], seed: str) -> NewItems:
    """Return the items of turns that came as something else."""
    items = list_items(turns, seed)
    return NewItems(tuple([Raw(dumps_document(item)) for item in items]), "input")


def references_of(items: NewItems) -> tuple[str, ...]:
    """Return the ids of the items that these items only refer to."""
    found = [_reference(entry) for entry in items.entries]
    return tuple([item_id for item_id in found if item_id])


def resolve(items: NewItems, known: dict[str, bytes]) -> NewItems:
    """Return the items with known ones in place of references to them."""
    entries = [
        Raw(known[item_id]) if (item_id := _reference(entry)) in known else entry
        for entry in items.entries
    ]
    return NewItems(tuple(entries), items.where)


def complete(items: NewItems, seed: str) -> list[StoredItem]:
    """Return the items with all that a stored item has. `seed`: for the ids of items without one.

    Raises:
        RequestRefused: an item cannot be used, or has an id that OpenAI would refuse.
    """
    mint = Minter(seed)
    done = [
        _complete(entry, f"{items.where}[{number}]", mint)
        for number, entry in enumerate(items.entries)
    ]
    turns = read_items([data for _, data in done], items.where).turns
    return [
        StoredItem(item_id, data, turn) for (item_id, data), turn in zip(done, turns, strict=True)
    ]


def output_items(body: bytes, seed: str) -> list[tuple[str, bytes]]:
    """Return the id and the data of each item in the output of a response object."""
    mint = Minter(seed)
    entries = read_list(as_object(body).get("output")) or ()
    return [_complete(entry, "output", mint, is_checked=False) for entry in entries]


def rename(data: bytes, item_id: str) -> bytes:
    """Return an item with another id."""
    return set_members(data, {"id": dumps_text(item_id)})


def mint_id(data: bytes, seed: str) -> str:
    """Return a new id for an item."""
    kind = read_text(as_object(data).get("type")) or "message"
    return Minter(seed)(PREFIXES.get(kind, _OTHER_PREFIX))


def read_items(data: Iterable[bytes], where: str = "input") -> EarlierItems:
    """Decode stored items: a turn for each of them, and the tools that they declare."""
    return read_history(Raw(b"[" + b",".join(data) + b"]"), where)


def write_conversation(conversation_id: str, created: float, metadata: bytes) -> bytes:
    return dumps(
        {
            "id": conversation_id,
            "object": "conversation",
            "created_at": int(created),
            "metadata": Raw(metadata),
        }
    )


def write_deleted(conversation_id: str) -> bytes:
    return dumps({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


def write_page(items: Sequence[tuple[str, bytes]], *, more: bool) -> bytes:
    return dumps_document(
        {
            "object": "list",
            "data": [Raw(data) for _, data in items],
            "first_id": items[0][0] if items else None,
            "last_id": items[-1][0] if items else None,
            "has_more": more,
        }
    )


def _complete(
    entry: Raw, where: str, mint: Minter, *, is_checked: bool = True
) -> tuple[str, bytes]:
    fields = need_object(entry, where)
    kind = read_text(fields.get("type")) or "message"
    prefix = PREFIXES.get(kind, _OTHER_PREFIX)
    minted = mint(prefix)
    item_id = read_text(fields.get("id"))
    if is_checked and item_id and kind in STRICT_PREFIXES and not item_id.startswith(prefix):
        raise RequestRefused(
            f"Invalid '{where}.id': '{item_id[:200]}'. Expected an ID that begins with '{prefix.rstrip('_')}'.",
            param=f"{where}.id",
            code="invalid_value",
        )
    if is_checked:
        _check_length(f"{where}.id", "string", len(item_id or ""), MAX_ITEM_ID)
    if not item_id or len(item_id) > MAX_ITEM_ID:
        item_id = minted
    out: dict[str, object] = {"id": item_id, "type": kind, **fields}
    out |= {"id": item_id, "type": kind}
    if kind == "message":
        said = fields.get("content")
        text = None if said is None else read_shallow(said)
        if isinstance(text, str):
            part = "output_text" if read_text(fields.get("role")) == "assistant" else "input_text"
            content: dict[str, object] = {"type": part, "text": said}
            if part == "output_text":
                content["annotations"] = []
            out["content"] = [content]
    if kind in ITEMS_WITH_STATUS and not is_present(fields.get("status")):
        out["status"] = "completed"
    return item_id, dumps_document(out)


def _reference(entry: Raw) -> str:
    """Return the id that an item refers to; empty if it is an item of its own."""
    found = read_shallow(entry)
    if not isinstance(found, dict):
        return ""
    kind = read_text(found.get("type"))
    if kind == _REFERENCE or (kind is None and "role" not in found):
        return read_text(found.get("id")) or ""
    return ""


def _need(fields: Fields, name: str) -> None:
    if name not in fields:
        raise RequestRefused(
            f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter"
        )


def _new_items(fields: Fields) -> NewItems:
    entries = ask_list(fields, "items") or ()
    _check_length("items", "array", len(entries), MAX_NEW_ITEMS, kind="array")
    for number, entry in enumerate(entries):
        if _is_trigger(entry):
            raise RequestRefused(
                f"Invalid value: '{TRIGGER}' at items[{number}]. It is not an item of a conversation: send it in the input of a response.",
                param=f"items[{number}]",
                code="invalid_value",
            )
    return NewItems(tuple(entries), "items")


def _metadata(fields: Fields) -> bytes:
    """Return the metadata as a JSON object. Raises RequestRefused."""
    pairs = ask_object(fields, "metadata") or {}
    if len(pairs) > MAX_METADATA:
        raise RequestRefused(
            f"Invalid 'metadata': too many properties. Expected an object with at most {MAX_METADATA} properties, "
            f"but got an object with {len(pairs)} properties instead.",
            param="metadata",
            code="object_above_max_properties",
        )
    metadata: dict[str, object] = {}
    for name, value in pairs.items():
        text = read_text(value)
        where = f"metadata.{name[:MAX_METADATA_NAME]}"
        if text is None:
            raise RequestRefused(
                f"Invalid type for '{where}': expected a string, but got {kind_of(value)} instead.",
                param=where,
                code="invalid_type",
            )
        _check_length(where, "property name", len(name), MAX_METADATA_NAME)
        _check_length(where, "string", len(text), MAX_METADATA_VALUE)
        metadata[name] = text
    return dumps_document(metadata)


def _check_length(where: str, what: str, size: int, most: int, kind: str = "string") -> None:
    if size > most:
        article = "an" if kind == "array" else "a"
        raise RequestRefused(
            f"Invalid '{where}': {what} too long. Expected {article} {kind} with maximum length {most}, "
            f"but got {article} {kind} with length {size} instead.",
            param=where,
            code=f"{kind}_above_max_length",
        )
