"""The store in one SQLite file: the default, for one machine, with any number of worker processes.

The file is in WAL mode, so that readers and the writer do not wait for one another. With `synchronous=FULL` a commit is
on the disk before it is acknowledged: it survives the death of the process (as it would with `NORMAL`, since the bytes
are the kernel's by then) and of the machine (as it would not). One thread writes, in group commits, and one reads.
The file must be on a local disk: WAL needs memory that all its processes share.
"""

import os
import sqlite3
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from dragoman.errors import StoreError, StoreUnavailable
from dragoman.store import sqlite_jobs as jobs
from dragoman.store.base import ClaimResult, Key
from dragoman.store.engine import Content, Entry, Over, Share
from dragoman.store.records import Status, StoreStats, Swept
from dragoman.store.rows import Row
from dragoman.store.settings import StoreSettings
from dragoman.store.sqlite_schema import migrate
from dragoman.store.sqlite_thread import BUSY_SECONDS, SqliteThread

__all__ = ("SqliteEngine", "Synchronous", "connect", "open_sqlite")

Synchronous = Literal["full", "normal"]

# The log is cut back to this after a checkpoint; it grows with the largest transaction.
_WAL_BYTES = 64 * 1024 * 1024
_RETRY_SECONDS = 0.02
# All there are: inserting has one for each number of rows (`jobs.MAX_TOGETHER`) and table.
_STATEMENTS = 256


class SqliteEngine:
    """Two threads on one file."""

    __slots__ = ("_reader", "_settings", "_writer")

    def __init__(self, path: Path, settings: StoreSettings, synchronous: Synchronous) -> None:
        self._settings = settings
        self._writer = SqliteThread(
            lambda: connect(path, synchronous, writes=True), name="store-writer", writes=True
        )
        self._reader = SqliteThread(
            lambda: connect(path, synchronous, writes=False), name="store-reader", writes=False
        )

    @property
    def name(self) -> str:
        return "sqlite"

    async def migrate(self) -> None:
        """Bring the file to the newest version. Raises StoreDamaged."""
        await self._writer.do(migrate)

    async def insert(self, entry: Entry, now: float) -> None:
        ttl = self._settings.ttl
        await self._writer.do_with(jobs.insert_all, lambda: jobs.New(*entry(), now, ttl))

    async def finish(self, key: Key, over: Over, now: float) -> Status:
        return await self._writer.do(lambda db: jobs.finish(db, key, over, now))

    async def renew(self, running: Collection[Key], until: float, now: float) -> frozenset[Key]:
        return await self._writer.do(lambda db: jobs.renew(db, running, until, now))

    async def lost(self, running: Collection[Key], now: float) -> frozenset[Key]:
        return await self._reader.do(lambda db: jobs.lost(db, running, now))

    async def row(self, key: Key, now: float) -> Row | None:
        return await self._reader.do(lambda db: jobs.row(db, key, now))

    async def content(self, key: Key, now: float, *, stream: bool) -> Content | None:
        return await self._reader.do(lambda db: jobs.content(db, key, now, stream=stream))

    async def chain(self, key: Key, now: float, *, depth: int) -> list[Share]:
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

    async def expire(self, now: float, limit: int) -> Swept:
        # Summing up reads an index: in the reader, for nobody to wait behind.
        most = self._settings.max_bytes
        mark = await self._reader.do(lambda db: jobs.mark(db, now, limit, most))
        return Swept() if mark is None else await self._writer.do(lambda db: jobs.sweep(db, mark))

    async def stats(self) -> StoreStats:
        return await self._reader.do(jobs.stats)

    async def ping(self) -> None:
        await self._reader.do(jobs.ping)

    async def close(self) -> None:
        # The last connection to close writes the log back into the file; that is the writer's.
        await self._reader.close()
        await self._writer.close()


async def open_sqlite(
    path: Path, settings: StoreSettings, *, synchronous: Synchronous = "full"
) -> SqliteEngine:
    """The engine on this file, made if it is not there, at the newest version.

    Raises:
        StoreUnavailable: it cannot be opened. StoreDamaged: it is no store of this program.
    """
    engine = SqliteEngine(path, settings, synchronous)
    try:
        await engine.migrate()
    except StoreError:
        await engine.close()
        raise
    return engine


def connect(path: Path, synchronous: Synchronous, *, writes: bool) -> sqlite3.Connection:
    """A connection to the file, made if it is not there. `writes`: it sees to how the file is kept.

    Raises:
        StoreUnavailable: the file cannot be made or written. sqlite3.Error
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Conversations are nobody else's business; SQLite gives its other files the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreUnavailable(
            f"expected a store's file that can be written: {error.strerror}: {path}"
        ) from error
    # While another process makes the file or lets go of it, SQLite does not wait but refuses.
    until = time.monotonic() + BUSY_SECONDS
    while True:
        connection = sqlite3.connect(
            path, timeout=_RETRY_SECONDS, isolation_level=None, cached_statements=_STATEMENTS
        )
        try:
            return _prepared(connection, synchronous, writes=writes)
        except sqlite3.Error as error:
            connection.close()
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > until:
                raise
        time.sleep(_RETRY_SECONDS)


def _prepared(
    connection: sqlite3.Connection, synchronous: Synchronous, *, writes: bool
) -> sqlite3.Connection:
    if writes:
        # Once, by whoever makes the file; it would wait for those who write each time.
        if not connection.execute("PRAGMA page_count").fetchone()[0]:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
    return connection
