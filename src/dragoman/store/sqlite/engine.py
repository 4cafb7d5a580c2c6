"""The store in one SQLite file: the default, for one machine, with any number of worker processes.

The file is in WAL mode, so that readers and the writer do not wait for one another. With `synchronous=FULL` a commit is
on the disk before it is acknowledged: it survives the death of the process (also with `NORMAL`, since the kernel has the
bytes by then) and of the machine (not with `NORMAL`). One thread writes, in group commits, and one reads.
The file must be on a local disk: WAL needs memory that all its processes share.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

from dragoman.config.settings import StoreSettings, Synchronous
from dragoman.errors import StoreError
from dragoman.store.contract import ClaimResult, Key
from dragoman.store.engine import Entry, KeyUpdate, Row, RowEnd, StoredContent, StreamPiece
from dragoman.store.records import Status, StoreStats, Swept
from dragoman.store.sqlite import operations as jobs
from dragoman.store.sqlite.conversations import SqliteConversations
from dragoman.store.sqlite.file import SqliteFile
from dragoman.store.sqlite.thread import SqliteThread

T = TypeVar("T")


class SqliteEngine:
    """An engine of two threads on one file."""

    __slots__ = ("_reader", "_settings", "_writer", "conversations")

    def __init__(self, path: Path, settings: StoreSettings, synchronous: Synchronous) -> None:
        self._settings = settings
        file = SqliteFile(path, synchronous)
        self._writer = SqliteThread(file, name="store-writer", writes=True)
        self._reader = SqliteThread(file, name="store-reader", writes=False)
        self.conversations = SqliteConversations(self._reader, self._writer)

    @property
    def name(self) -> str:
        return "sqlite"

    async def open(self) -> None:
        """Create the file if there is none, and migrate it to the newest version. Raises StoreDamaged."""
        await self._writer.do(jobs.ping)

    async def insert(self, entry: Entry, now: float, ttl: float) -> None:
        await self._writer.do_with(jobs.insert_all, lambda: jobs.NewRow(entry(), now, ttl))

    async def append(self, key: Key, piece: StreamPiece, body: bytes | None, now: float) -> None:
        await self._writer.do(lambda db: jobs.append(db, key, piece, body, now))

    async def pieces(
        self, key: Key, start: int, now: float
    ) -> tuple[Row, list[StreamPiece]] | None:
        return await self._reader.do(lambda db: jobs.pieces(db, key, start, now))

    async def finish(self, key: Key, over: RowEnd, now: float, ttl: float) -> Status:
        return await self._writer.do(lambda db: jobs.finish(db, key, over, now, ttl))

    async def renew(self, running: Collection[Key], until: float, now: float) -> frozenset[Key]:
        return await self._writer.do(lambda db: jobs.renew(db, running, until, now))

    async def lost(self, running: Collection[Key], now: float) -> frozenset[Key]:
        return await self._reader.do(lambda db: jobs.lost(db, running, now))

    async def row(self, key: Key, now: float) -> Row | None:
        return await self._reader.do(lambda db: jobs.row(db, key, now))

    async def content(self, key: Key, now: float, *, stream: bool) -> StoredContent | None:
        return await self._reader.do(lambda db: jobs.content(db, key, now, stream=stream))

    async def chain(self, key: Key, now: float, *, depth: int) -> list[StoredContent]:
        return await self._reader.do(lambda db: jobs.chain(db, key, now, depth))

    async def claim(self, key: Key, by: str, until: float, now: float) -> ClaimResult:
        return await self._writer.do(lambda db: jobs.claim(db, key, by, until, now))

    async def release(self, key: Key, by: str) -> None:
        await self._writer.do(lambda db: jobs.release(db, key, by))

    async def cancel(self, key: Key, now: float) -> Status:
        return await self._writer.do(lambda db: jobs.cancel(db, key, now))

    async def delete(self, key: Key, now: float) -> bool:
        return await self._writer.do(lambda db: jobs.delete(db, key, now))

    async def put_seals(
        self, owner: str, family: str, sealed: Mapping[str, bytes], expires: float
    ) -> None:
        await self._writer.do(lambda db: jobs.put_seals(db, owner, family, sealed, expires))

    async def get_seals(
        self, owner: str, family: str, call_ids: Collection[str], now: float
    ) -> dict[str, bytes]:
        names = list(call_ids)
        return await self._reader.do(lambda db: jobs.get_seals(db, owner, family, names, now))

    async def change_key(self, name: str, change: KeyUpdate[T]) -> T:
        return await self._writer.do(lambda db: jobs.change_key(db, name, change))

    async def key_states(self, names: Collection[str]) -> dict[str, bytes]:
        return await self._reader.do(lambda db: jobs.key_states(db, names))

    async def expire(self, now: float, limit: int) -> Swept:
        # Summing the sizes reads an index: the reader does it, so that no write waits.
        most = self._settings.max_bytes
        mark = await self._reader.do(lambda db: jobs.mark(db, now, limit, most))
        return Swept() if mark is None else await self._writer.do(lambda db: jobs.sweep(db, mark))

    async def stats(self) -> StoreStats:
        return await self._reader.do(jobs.stats)

    async def ping(self) -> None:
        await self._reader.do(jobs.ping)

    async def close(self) -> None:
        # The last connection to close writes the log back into the file; it must be the writer's.
        await self._reader.close()
        await self._writer.close()


async def open_sqlite(
    path: Path, settings: StoreSettings, *, synchronous: Synchronous = "full"
) -> SqliteEngine:
    """Return the engine on this file; create the file if there is none, and migrate it to the newest version.

    Raises:
        StoreUnavailable: the file cannot be opened. StoreDamaged: it is not a store of this program.
    """
    engine = SqliteEngine(path, settings, synchronous)
    try:
        await engine.open()
    except StoreError:
        await engine.close()
        raise
    return engine
