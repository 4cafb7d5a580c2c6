"""The store in PostgreSQL, for several nodes: they share nothing but the database, and any of them serves any request.

Operations of every request are one statement and one round trip. Operations on two rows (claims) are a transaction. Nodes
use their own clocks, which must agree within a second or so; leases tolerate that.

Two statements that lock rows in different orders (one renews a conversation while another settles one of its claims) may
deadlock; PostgreSQL aborts one of them, and the pool retries it.
"""

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import TypeVar, cast

from msgspec import structs

from dragoman.config.settings import StoreSettings
from dragoman.errors import StoreError
from dragoman.store.contract import MAX_CHAIN_BYTES, ClaimResult, Key
from dragoman.store.engine import (
    COLUMNS,
    STEP,
    Entry,
    ExpiryLimit,
    ItemRow,
    KeyUpdate,
    Row,
    RowEnd,
    StoredContent,
    StreamPiece,
    check_running,
    claim_result,
    claim_taken,
    exists,
    gives_back,
    head_of,
    is_over,
    limit_for_excess,
    missing,
)
from dragoman.store.postgres import conversations, statements
from dragoman.store.postgres.conversations import PostgresConversations
from dragoman.store.postgres.pool import Connection, PostgresPool, Statement
from dragoman.store.postgres.schema import migrate
from dragoman.store.records import Status, StoreStats, Swept

T = TypeVar("T")

# Bytes. An entry of an index takes at most 2,704, with the owner and the provider family.
_MOST_INDEXED = 2048

_WIDTH = len(COLUMNS)


class PostgresEngine:
    """An engine of statements over a connection pool."""

    __slots__ = ("_pool", "_settings", "conversations")

    name = "postgresql"

    def __init__(self, pool: PostgresPool, settings: StoreSettings) -> None:
        self._pool = pool
        self._settings = settings
        self.conversations = PostgresConversations(pool)

    async def insert(self, entry: Entry, now: float, ttl: float) -> None:
        made = entry()
        new = made.row
        values = {**_values(made), "now": now, "expires": now + ttl}
        values["later"] = now + ttl + ttl * STEP
        statement = statements.INSERT_FIRST if new.parent is None else statements.INSERT

        async def write(connection: Connection) -> bool:
            return await connection.one(statement, values) is not None

        async def write_with_others(connection: Connection) -> bool:
            async with connection.transaction():
                if new.claims:
                    above = await _row(connection, statements.LOCK, _parent(new), now)
                    if above is None or above.claimed_by != new.id:
                        raise claim_taken(new.id, new.parent)
                is_new = await write(connection)
                if is_new and new.status != "in_progress":
                    await _end_others(connection, new, new.status, made.items, now, ttl)
                return is_new

        way = write_with_others if new.claims or new.conversation is not None else write
        if await self._pool.run(way):
            return
        # The row with this id may have expired and not been swept yet.
        place = {"owner": new.owner, "id": new.id, "now": now}
        await self._pool.run(
            lambda connection: connection.execute(statements.DELETE_EXPIRED, place)
        )
        if not await self._pool.run(way):
            raise exists(new.id)

    async def append(self, key: Key, piece: StreamPiece, body: bytes | None, now: float) -> None:
        values = {**_place(key), "place": piece.place, "until": piece.until, "data": piece.data}

        async def write(connection: Connection) -> None:
            async with connection.transaction():
                check_running(await _locked(connection, key, now))
                before = await connection.one(statements.PIECE_SIZE, values)
                grown = len(piece.data) - (0 if before is None else cast("int", before[0]))
                await connection.execute(statements.APPEND, values)
                await connection.execute(statements.GROW, {**_place(key), "grown": grown})
                if body is not None:
                    await connection.execute(statements.SET_BODY, {**_place(key), "body": body})

        await self._pool.run(write)

    async def pieces(
        self, key: Key, start: int, now: float
    ) -> tuple[Row, list[StreamPiece]] | None:
        values = {**_place(key), "start": start}

        async def read(connection: Connection) -> tuple[Row, list[StreamPiece]] | None:
            found = await _row(connection, statements.SELECT, key, now)
            if found is None:
                return None
            rows = await connection.all(statements.PIECES, values)
            return found, [StreamPiece(*each) for each in rows]

        return await self._pool.run(read)

    async def finish(self, key: Key, over: RowEnd, now: float, ttl: float) -> Status:
        place = {**_place(key), "now": now, "size": over.size}
        values = {**_ending(over), **place, "has_others": False}

        async def write(connection: Connection) -> Status:
            if await connection.one(statements.FINISH, values) is not None:
                return over.status
            async with connection.transaction():
                found = await _locked(connection, key, now)
                if is_over(found, over, now):
                    return "cancelled"
                await _end_others(connection, found, over.status, over.items, now, ttl)
                has_others = found.claims or found.conversation is not None
                await connection.execute(statements.FINISH, {**values, "has_others": has_others})
                return over.status

        return await self._pool.run(write)

    async def renew(self, running: Collection[Key], until: float, now: float) -> frozenset[Key]:
        return await self._lost(statements.RENEW, running, {"until": until, "now": now})

    async def lost(self, running: Collection[Key], now: float) -> frozenset[Key]:
        return await self._lost(statements.LOST, running, {"now": now})

    async def row(self, key: Key, now: float) -> Row | None:
        return await self._pool.run(
            lambda connection: _row(connection, statements.SELECT, key, now)
        )

    async def content(self, key: Key, now: float, *, stream: bool) -> StoredContent | None:
        values = {**_place(key), "now": now}
        statement = statements.SELECT_STREAM if stream else statements.SELECT_CONTENT
        found = await self._pool.one(statement, values)
        if found is None:
            return None
        sent = found[_WIDTH + 1] if stream else None
        return StoredContent(Row(*found[:_WIDTH]), body=found[_WIDTH], stream=sent)

    async def chain(self, key: Key, now: float, *, depth: int) -> list[StoredContent]:
        values = {**_place(key), "now": now, "depth": depth, "most": MAX_CHAIN_BYTES}
        rows = await self._pool.all(statements.CHAIN, values)
        return [StoredContent(Row(*row[:_WIDTH]), *row[_WIDTH:]) for row in rows]

    async def claim(self, key: Key, by: str, until: float, now: float) -> ClaimResult:
        async def write(connection: Connection) -> ClaimResult:
            async with connection.transaction():
                result = claim_result(head_of(await _locked(connection, key, now), now), by)
                if result == "won":
                    values = {**_place(key), "by": by, "until": until}
                    await connection.execute(statements.CLAIM, values)
                return result

        return await self._pool.run(write)

    async def release(self, key: Key, by: str) -> None:
        values = {**_place(key), "by": by}
        await self._pool.run(lambda connection: connection.execute(statements.RELEASE, values))

    async def cancel(self, key: Key, now: float) -> Status:
        async def write(connection: Connection) -> Status:
            async with connection.transaction():
                found = await _locked(connection, key, now)
                if found.status != "in_progress":
                    return found.status
                await connection.execute(statements.CANCEL, _place(key))
                await connection.execute(statements.RELEASE, _claim_of(found))
                return "cancelled"

        return await self._pool.run(write)

    async def delete(self, key: Key, now: float) -> bool:
        values = {**_place(key), "now": now}
        found = await self._pool.one(statements.DELETE, values)
        return found is not None and cast("bool", found[0])

    async def put_seals(
        self, owner: str, family: str, sealed: Mapping[str, bytes], expires: float
    ) -> None:
        # Sorted, so that two nodes that write the same seals wait for each other and do not deadlock.
        rows = sorted([(_indexed(name), data) for name, data in sealed.items()])
        values = {
            "owner": owner,
            "family": family,
            "names": [name for name, _ in rows],
            "values": [data for _, data in rows],
            "expires": expires,
        }
        await self._pool.run(lambda connection: connection.execute(statements.PUT_SEALS, values))

    async def get_seals(
        self, owner: str, family: str, call_ids: Collection[str], now: float
    ) -> dict[str, bytes]:
        names = {_indexed(call_id): call_id for call_id in call_ids}
        values = {"owner": owner, "family": family, "names": list(names), "now": now}
        rows = await self._pool.all(statements.GET_SEALS, values)
        return {names[cast("str", name)]: cast("bytes", data) for name, data in rows}

    async def change_key(self, name: str, change: KeyUpdate[T]) -> T:
        place = {"name": name}

        async def write(connection: Connection) -> T:
            async with connection.transaction():
                found = await connection.one(statements.LOCK_KEY, place)
                if found is None:
                    await connection.execute(statements.NEW_KEY, place)
                    found = await connection.one(statements.LOCK_KEY, place)
                before = b"" if found is None else cast("bytes", found[0])
                after, result = change(before or None)
                if after != before:
                    await connection.execute(statements.CHANGE_KEY, {**place, "state": after})
                return result

        return await self._pool.run(write)

    async def key_states(self, names: Collection[str]) -> dict[str, bytes]:
        values = {"names": list(names)}
        rows = await self._pool.all(statements.KEY_STATES, values)
        return {cast("str", name): cast("bytes", state) for name, state in rows}

    async def expire(self, now: float, limit: int) -> Swept:
        mark = await self._mark(now, limit)
        if mark is None:
            return Swept()
        gone = await self._count(statements.SWEEP, mark.until)
        return Swept(**structs.asdict(gone), more=mark.more)

    async def stats(self) -> StoreStats:
        return await self._count(statements.STATS, 0.0)

    async def ping(self) -> None:
        await self._pool.run(lambda connection: connection.execute("SELECT FROM dragoman_schema"))

    async def close(self) -> None:
        await self._pool.close()

    async def _lost(
        self, statement: Statement, running: Collection[Key], values: Mapping[str, object]
    ) -> frozenset[Key]:
        """Execute a statement that returns which of these responses no longer run."""
        keys = {"owners": [owner for owner, _ in running], "ids": [each for _, each in running]}
        lost = await self._pool.all(statement, {**keys, **values})
        return frozenset([(cast("str", owner), cast("str", found)) for owner, found in lost])

    async def _mark(self, now: float, limit: int) -> ExpiryLimit | None:
        """Return how far the next sweep goes; None if there is nothing to remove."""
        old = await self._oldest(now, limit + 1)
        if old:
            return ExpiryLimit(old[:limit][-1][0], more=len(old) > limit)
        # The tables' files take more than the content, and are known at once; summing the sizes reads an entry for every row.
        most = self._settings.max_bytes
        files = await self._pool.one(statements.FILES, {})
        if files is not None and cast("int", files[0]) <= most:
            return None
        excess = (await self.stats()).size - most
        if excess <= 0:
            return None
        return limit_for_excess(await self._oldest(float("inf"), limit), excess)

    async def _oldest(self, until: float, limit: int) -> list[tuple[float, int]]:
        values = {"until": until, "limit": limit}
        return cast("list[tuple[float, int]]", await self._pool.all(statements.OLDEST, values))

    async def _count(self, each: Sequence[bytes], until: float) -> StoreStats:
        """Execute a statement for each table that returns how many rows it counts, and their size."""
        found = [await self._pool.one(statement, {"until": until}) for statement in each]
        counts, sizes = zip(*cast("list[tuple[int, int]]", found), strict=True)
        return StoreStats(
            responses=counts[0], seals=counts[1], conversations=counts[2], size=sum(sizes)
        )


async def open_postgres(settings: StoreSettings) -> PostgresEngine:
    """Return the engine on this database, with its tables migrated to the newest version.

    Raises:
        ConfigError: the URL is invalid. StoreUnavailable: the database cannot be reached. StoreDamaged: it is of a later version.
    """
    pool = PostgresPool(settings.url, settings.pool_size)
    try:
        await migrate(pool)
    except StoreError:
        await pool.close()
        raise
    return PostgresEngine(pool, settings)


def _indexed(name: str) -> str:
    """Return the name of a seal as it is stored: a long one by its digest. Some gateways put a signature into the id of a call."""
    data = name.encode("utf-8")
    return name if len(data) <= _MOST_INDEXED else f"sha256 {sha256(data).hexdigest()}"


def _place(key: Key) -> dict[str, object]:
    return {"owner": key[0], "id": key[1]}


def _parent(child: Row) -> Key:
    return child.owner, child.parent or ""


def _claim_of(child: Row) -> dict[str, object]:
    """Return the parameters of a response's claim: the row of its parent, claimed by its own id."""
    return {**_place(_parent(child)), "by": child.id}


def _values(made: StoredContent) -> dict[str, object]:
    row = {name: getattr(made.row, name) for name in COLUMNS}
    content = {name: getattr(made, name) for name in ("request", "answer", "body", "stream")}
    return {**row, **content}


def _ending(over: RowEnd) -> dict[str, object]:
    return {name: getattr(over, name) for name in over.__struct_fields__ if name != "items"}


async def _row(connection: Connection, statement: Statement, key: Key, now: float) -> Row | None:
    found = await connection.one(statement, {**_place(key), "now": now})
    return None if found is None else Row(*found)


async def _locked(connection: Connection, key: Key, now: float) -> Row:
    found = await _row(connection, statements.LOCK, key, now)
    if found is None:
        raise missing(key[1])
    return found


async def _end_others(
    connection: Connection,
    row: Row,
    status: Status,
    items: tuple[ItemRow, ...],
    now: float,
    ttl: float,
) -> None:
    """Change the rows that the end of a response changes besides its own: its parent's claim, and its conversation."""
    if row.claims:
        await _settle(connection, row, status)
    if row.conversation is not None:
        await conversations.end(connection, row, status, items, now, ttl)


async def _settle(connection: Connection, child: Row, status: Status) -> None:
    """Settle or give back a claim. Raises StoreConflict: another response holds it, so this one would be a second continuation."""
    claim = _claim_of(child)
    if gives_back(status):
        await connection.execute(statements.RELEASE, claim)
    elif await connection.one(statements.SETTLE, claim) is None:
        raise claim_taken(child.id, child.parent)
