"""Conversations in the PostgreSQL store.

Whoever adds or deletes items locks the conversation's row first, so that positions follow one another and nobody adds to a
conversation that is being deleted.
"""

from collections.abc import Collection
from typing import cast

from msgspec import structs

from dragoman.store.contract import MAX_ITEMS, Key
from dragoman.store.engine import (
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
    no_conversation,
    no_item,
)
from dragoman.store.postgres import statements
from dragoman.store.postgres.pool import Connection, PostgresPool, Statement
from dragoman.store.records import Status

_MAX_POSITION = 2**62


class PostgresConversations:
    """The conversations of a `PostgresEngine`."""

    __slots__ = ("_pool",)

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    async def insert(self, row: ConversationRow, items: tuple[ItemRow, ...], now: float) -> None:
        check_room(row, items)
        check_ids((), items)

        async def write(connection: Connection) -> None:
            async with connection.transaction():
                place = {"owner": row.owner, "id": row.id, "now": now}
                await connection.execute(statements.DELETE_EXPIRED_CONVERSATION, place)
                values = structs.asdict(row)
                if await connection.one(statements.INSERT_CONVERSATION, values) is None:
                    raise exists(row.id)
                await _append(connection, structs.replace(row), items, row.expires)

        await self._pool.run(write)

    async def row(self, key: Key, now: float) -> ConversationRow:
        return await self._pool.run(
            lambda connection: _known(connection, statements.CONVERSATION, key, now)
        )

    async def update(
        self, key: Key, metadata: str | None, expires: float, now: float
    ) -> ConversationRow:
        values = {"metadata": metadata, "expires": expires}
        statement = statements.UPDATE_CONVERSATION
        return await self._pool.run(
            lambda connection: _known(connection, statement, key, now, **values)
        )

    async def delete(self, key: Key, now: float) -> None:
        values = {"owner": key[0], "id": key[1], "now": now}

        found = await self._pool.one(statements.DELETE_CONVERSATION, values)
        if found is None or not found[0]:
            raise no_conversation(key[1])

    async def hold(
        self, key: Key, by: str, until: float, expires: float, now: float
    ) -> ConversationRow:
        values = {"by": by, "until": until, "expires": expires}
        found = await self._pool.run(
            lambda connection: _row(connection, statements.HOLD, key, now, **values)
        )
        if found is None:
            await self.row(key, now)
            raise held(key[1])
        return found

    async def release(self, key: Key, by: str) -> None:
        values = {"owner": key[0], "id": key[1], "by": by}
        await self._pool.run(lambda connection: connection.execute(statements.RELEASE_HOLD, values))

    async def add(
        self, key: Key, items: tuple[ItemRow, ...], by: str | None, expires: float, now: float
    ) -> ConversationRow:
        async def write(connection: Connection) -> ConversationRow:
            async with connection.transaction():
                row = await _known(connection, statements.LOCK_CONVERSATION, key, now)
                await _check_add(connection, row, items, by, now)
                await _append(connection, row, items, expires)
                return row

        return await self._pool.run(write)

    async def page(
        self, key: Key, after: str | None, limit: int, now: float, *, is_descending: bool
    ) -> list[ItemRow]:
        statement = statements.ITEMS_DESCENDING if is_descending else statements.ITEMS_ASCENDING
        start = _MAX_POSITION if is_descending else -1

        async def read(connection: Connection) -> list[ItemRow]:
            await _known(connection, statements.CONVERSATION, key, now)
            place = start if after is None else (await _item(connection, key, after))[1]
            return await _items(connection, statement, key, position=place, limit=limit)

        return await self._pool.run(read)

    async def before(self, key: Key, position: int | None, now: float) -> list[ItemRow]:
        most = _MAX_POSITION if position is None else position

        async def read(connection: Connection) -> list[ItemRow]:
            await _known(connection, statements.CONVERSATION, key, now)
            return await _items(
                connection, statements.ITEMS_BEFORE, key, position=most, limit=MAX_ITEMS
            )

        return await self._pool.run(read)

    async def item(self, key: Key, item_id: str, now: float) -> ItemRow:
        async def read(connection: Connection) -> ItemRow:
            await _known(connection, statements.CONVERSATION, key, now)
            return (await _item(connection, key, item_id))[0]

        return await self._pool.run(read)

    async def delete_item(self, key: Key, item_id: str, now: float) -> ConversationRow:
        values = {"owner": key[0], "id": key[1], "item": item_id}

        async def write(connection: Connection) -> ConversationRow:
            async with connection.transaction():
                check_hold(
                    await _known(connection, statements.LOCK_CONVERSATION, key, now), None, now
                )
                found = await connection.one(statements.DELETE_ITEM, values)
                if found is None:
                    raise no_item(item_id)
                shrink = statements.SHRINK_CONVERSATION
                return await _known(connection, shrink, key, now, less=found[0])

        return await self._pool.run(write)

    async def find(self, owner: str, item_ids: Collection[str], now: float) -> list[ItemRow]:
        values = {"owner": owner, "ids": list(item_ids), "now": now}

        found = await self._pool.all(statements.FIND_ITEMS, values)
        return [ItemRow(*each) for each in found]


async def end(
    connection: Connection,
    response: Row,
    status: Status,
    items: tuple[ItemRow, ...],
    now: float,
    ttl: float,
) -> None:
    """Add the items of a response that ends, and release its hold, in the caller's transaction.

    Raises:
        StoreHeld: the response has lost its hold. StoreConflict, StoreTooLarge
    """
    key = (response.owner, response.conversation or "")
    row = await _row(connection, statements.LOCK_CONVERSATION, key, now)
    if row is None:
        return
    if gives_back(status):
        values = {"owner": key[0], "id": key[1], "by": response.id}
        await connection.execute(statements.RELEASE_HOLD, values)
        return
    await _check_add(connection, row, items, response.id, now)
    await _append(connection, row, items, now + ttl)


async def _check_add(
    connection: Connection,
    row: ConversationRow,
    items: tuple[ItemRow, ...],
    by: str | None,
    now: float,
) -> None:
    check_hold(row, by, now)
    check_room(row, items)
    values = {"owner": row.owner, "id": row.id, "ids": [item.id for item in items]}
    taken = await connection.all(statements.TAKEN, values)
    check_ids([cast("str", found[0]) for found in taken], items)


async def _append(
    connection: Connection, row: ConversationRow, items: tuple[ItemRow, ...], expires: float
) -> None:
    place = {"owner": row.owner, "id": row.id}
    if items:
        new = {
            "position": row.position,
            "ids": [item.id for item in items],
            "values": [item.data for item in items],
        }
        await connection.execute(statements.ADD_ITEMS, {**place, **new})
    extend(row, items, expires)
    values = {"expires": row.expires, "position": row.position, "count": row.count}
    await connection.execute(statements.EXTEND_CONVERSATION, {**place, **values, "size": row.size})


async def _row(
    connection: Connection, statement: Statement, key: Key, now: float, **values: object
) -> ConversationRow | None:
    given = {"owner": key[0], "id": key[1], "now": now, **values}
    found = await connection.one(statement, given)
    return None if found is None else ConversationRow(*found)


async def _known(
    connection: Connection, statement: Statement, key: Key, now: float, **values: object
) -> ConversationRow:
    """Like `_row`. Raises StoreMissing: there is no such conversation."""
    found = await _row(connection, statement, key, now, **values)
    if found is None:
        raise no_conversation(key[1])
    return found


async def _item(connection: Connection, key: Key, item_id: str) -> tuple[ItemRow, int]:
    """Return an item and its position. Raises StoreMissing."""
    values = {"owner": key[0], "id": key[1], "item": item_id}
    found = await connection.one(statements.ITEM, values)
    if found is None:
        raise no_item(item_id)
    return ItemRow(found[0], found[1]), cast("int", found[2])


async def _items(
    connection: Connection, statement: Statement, key: Key, *, position: int, limit: int
) -> list[ItemRow]:
    values = {"owner": key[0], "id": key[1], "position": position, "limit": limit}
    return [ItemRow(*found) for found in await connection.all(statement, values)]
