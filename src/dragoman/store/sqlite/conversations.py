"""The operations on conversations in the SQLite store: functions over a connection.

Like those in `operations`, each raises before it writes, or succeeds.
"""

import sqlite3
from collections.abc import Collection
from typing import cast

from msgspec import structs

from dragoman.store.contract import MAX_ITEMS, Key
from dragoman.store.engine import (
    CONVERSATION_COLUMNS,
    ConversationRow,
    ItemRow,
    Row,
    check_hold,
    check_ids,
    check_room,
    exists,
    extend,
    gives_back,
    held,
    is_held,
    no_conversation,
    no_item,
)
from dragoman.store.records import Status

# Beyond every position.
_MAX_POSITION = 2**62

_WIDTH = len(CONVERSATION_COLUMNS)
_NAMES = ", ".join(CONVERSATION_COLUMNS)
_SELECT = f"SELECT {_NAMES}, n FROM conversations WHERE owner = ? AND id = ?"
_INSERT = f"INSERT INTO conversations ({_NAMES}) VALUES ({', '.join('?' * _WIDTH)})"
_UPDATE = """
    UPDATE conversations SET expires = ?, metadata = ?, position = ?, count = ?, size = ?, held_by = ?, held_until = ?
    WHERE n = ?
"""
_RELEASE = "UPDATE conversations SET held_by = NULL, held_until = 0 WHERE owner = ? AND id = ? AND held_by = ?"
_PLACE = "SELECT position FROM conversation_items WHERE id = ? AND conversation = ?"
_FIND = """
    SELECT i.id, i.data FROM conversation_items i JOIN conversations c ON c.n = i.conversation
    WHERE i.id = ? AND c.owner = ? AND c.expires > ? LIMIT 1
"""

_Found = tuple[ConversationRow, int]
"""A conversation and its number."""


def _by_id(db: sqlite3.Connection, key: Key, now: float) -> _Found | None:
    found = db.execute(_SELECT, key).fetchone()
    if found is None or found[CONVERSATION_COLUMNS.index("expires")] <= now:
        return None
    return ConversationRow(*found[:_WIDTH]), found[_WIDTH]


def _find(db: sqlite3.Connection, key: Key, now: float) -> _Found:
    found = _by_id(db, key, now)
    if found is None:
        raise no_conversation(key[1])
    return found


def _write(db: sqlite3.Connection, row: ConversationRow, number: int) -> None:
    values = (row.expires, row.metadata, row.position, row.count, row.size)
    db.execute(_UPDATE, (*values, row.held_by, row.held_until, number))


def _check_new(db: sqlite3.Connection, number: int, items: Collection[ItemRow]) -> None:
    """Raises StoreConflict: the conversation has an item with one of these ids."""
    # One query for each item: the statement is prepared once, and each query is one descent of a tree.
    taken = [item.id for item in items if db.execute(_PLACE, (item.id, number)).fetchone()]
    check_ids(taken, items)


def _append(
    db: sqlite3.Connection, found: _Found, items: tuple[ItemRow, ...], expires: float
) -> None:
    row, number = found
    rows = [(number, place, item.id, item.data) for place, item in enumerate(items, row.position)]
    db.executemany("INSERT INTO conversation_items VALUES (?, ?, ?, ?)", rows)
    extend(row, items, expires)
    _write(db, row, number)


def drop(db: sqlite3.Connection, number: int) -> None:
    """Remove a conversation with all its items."""
    db.execute("DELETE FROM conversation_items WHERE conversation = ?", (number,))
    db.execute("DELETE FROM conversations WHERE n = ?", (number,))


def insert(
    db: sqlite3.Connection, row: ConversationRow, items: tuple[ItemRow, ...], now: float
) -> None:
    key = (row.owner, row.id)
    if _by_id(db, key, now) is not None:
        raise exists(row.id)
    check_room(row, items)
    check_ids((), items)
    old = db.execute(_SELECT, key).fetchone()
    if old is not None:
        drop(db, old[_WIDTH])
    number = cast("int", db.execute(_INSERT, structs.astuple(row)).lastrowid)
    if items:
        # A copy for each attempt: a transaction that fails is tried again.
        row = structs.replace(row)
        _append(db, (row, number), items, row.expires)


def row(db: sqlite3.Connection, key: Key, now: float) -> ConversationRow:
    return _find(db, key, now)[0]


def update(
    db: sqlite3.Connection, key: Key, metadata: str | None, expires: float, now: float
) -> ConversationRow:
    row, number = _find(db, key, now)
    row.expires = max(row.expires, expires)
    if metadata is not None:
        row.size += len(metadata) - len(row.metadata)
        row.metadata = metadata
    _write(db, row, number)
    return row


def delete(db: sqlite3.Connection, key: Key, now: float) -> None:
    _, number = _find(db, key, now)
    drop(db, number)


def hold(
    db: sqlite3.Connection, key: Key, by: str, until: float, expires: float, now: float
) -> ConversationRow:
    row, number = _find(db, key, now)
    if is_held(row, now, by=by):
        raise held(row.id)
    row.held_by, row.held_until = by, until
    row.expires = max(row.expires, expires)
    _write(db, row, number)
    return row


def release(db: sqlite3.Connection, key: Key, by: str) -> None:
    db.execute(_RELEASE, (*key, by))


def add(
    db: sqlite3.Connection,
    key: Key,
    items: tuple[ItemRow, ...],
    by: str | None,
    expires: float,
    now: float,
) -> ConversationRow:
    found = _find(db, key, now)
    _check_add(db, found, items, by, now)
    _append(db, found, items, expires)
    return found[0]


def _check_add(
    db: sqlite3.Connection,
    found: _Found,
    items: tuple[ItemRow, ...],
    by: str | None,
    now: float,
) -> None:
    row, number = found
    check_hold(row, by, now)
    check_room(row, items)
    _check_new(db, number, items)


def check_end(
    db: sqlite3.Connection, response: Row, status: Status, items: tuple[ItemRow, ...], now: float
) -> None:
    """Check that a response that ends may add its items. Raises StoreHeld, StoreConflict, StoreTooLarge."""
    found = _by_id(db, (response.owner, response.conversation or ""), now)
    if found is not None and not gives_back(status):
        _check_add(db, found, items, response.id, now)


def end(
    db: sqlite3.Connection,
    response: Row,
    status: Status,
    items: tuple[ItemRow, ...],
    now: float,
    ttl: float,
) -> None:
    """Add the items of a response that ends, and release its hold, after `check_end`."""
    key = (response.owner, response.conversation or "")
    found = _by_id(db, key, now)
    if found is None:
        return
    if gives_back(status):
        release(db, key, response.id)
    else:
        _append(db, found, items, now + ttl)


def page(
    db: sqlite3.Connection,
    key: Key,
    after: str | None,
    limit: int,
    now: float,
    *,
    is_descending: bool,
) -> list[ItemRow]:
    _, number = _find(db, key, now)
    sign, order = ("<", "DESC") if is_descending else (">", "ASC")
    start = _MAX_POSITION if is_descending else -1
    if after is not None:
        start = _place(db, number, after)
    found = db.execute(
        f"SELECT id, data FROM conversation_items WHERE conversation = ? AND position {sign} ?"
        f" ORDER BY position {order} LIMIT ?",
        (number, start, limit),
    )
    return [ItemRow(*each) for each in found]


def _place(db: sqlite3.Connection, number: int, item_id: str) -> int:
    found = db.execute(_PLACE, (item_id, number)).fetchone()
    if found is None:
        raise no_item(item_id)
    return cast("int", found[0])


def before(db: sqlite3.Connection, key: Key, position: int | None, now: float) -> list[ItemRow]:
    _, number = _find(db, key, now)
    found = db.execute(
        "SELECT id, data FROM conversation_items WHERE conversation = ? AND position < ? ORDER BY position LIMIT ?",
        (number, _MAX_POSITION if position is None else position, MAX_ITEMS),
    )
    return [ItemRow(*each) for each in found]


def item(db: sqlite3.Connection, key: Key, item_id: str, now: float) -> ItemRow:
    _, number = _find(db, key, now)
    select = "SELECT id, data FROM conversation_items WHERE id = ? AND conversation = ?"
    found = db.execute(select, (item_id, number)).fetchone()
    if found is None:
        raise no_item(item_id)
    return ItemRow(*found)


def delete_item(db: sqlite3.Connection, key: Key, item_id: str, now: float) -> ConversationRow:
    row, number = _find(db, key, now)
    check_hold(row, None, now)
    place = _place(db, number, item_id)
    ((size,),) = db.execute(
        "DELETE FROM conversation_items WHERE conversation = ? AND position = ? RETURNING length(data)",
        (number, place),
    ).fetchall()
    row.count -= 1
    row.size -= cast("int", size)
    _write(db, row, number)
    return row


def find(
    db: sqlite3.Connection, owner: str, item_ids: Collection[str], now: float
) -> list[ItemRow]:
    found = [db.execute(_FIND, (item_id, owner, now)).fetchone() for item_id in item_ids]
    return [ItemRow(*each) for each in found if each is not None]
