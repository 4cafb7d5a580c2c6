"""The store in SQLite: in one file (the default, for one machine, with any number of worker processes), or in memory.

The file is in WAL mode, so that readers and the writer do not wait for one another. With `synchronous=FULL` a commit is
on the disk before it is acknowledged: it survives the death of the process (also with `NORMAL`, since the kernel has the
bytes by then) and of the machine (not with `NORMAL`). One thread writes, in group commits, and one reads.
The file must be on a local disk: WAL needs memory that all its processes share.

In memory, for tests and short runs, nothing survives the process, and every job runs at once in the caller's thread.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from dragoman.config.settings import StoreSettings, Synchronous
from dragoman.errors import StoreError
from dragoman.store.contract import SWEEP_BATCH
from dragoman.store.engine import Entry
from dragoman.store.records import Swept
from dragoman.store.sqlite import conversations
from dragoman.store.sqlite import operations as jobs
from dragoman.store.sqlite.file import SqliteFile, translated
from dragoman.store.sqlite.schema import migrate
from dragoman.store.sqlite.thread import Group, SqliteThread

P = ParamSpec("P")
T = TypeVar("T")
Job = Callable[Concatenate[sqlite3.Connection, P], T]


class MemoryRunner:
    """Runs jobs as a `SqliteThread` does, on a database in memory, each in a transaction.

    Keeps the content near the cap between the sweeps.
    """

    def __init__(self, most: int) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        migrate(self._db)
        self._most = most
        self._next_sweep = most

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            before = self._db.total_changes
            self._db.execute("BEGIN")
            with self._db:  # commits or rolls back
                result = work(self._db)
                if self._db.total_changes != before:
                    self._make_room()
        except sqlite3.Error as error:
            raise translated(error) from error
        return result

    async def do_with(self, group: Group[T], prepare: Callable[[], T]) -> None:
        item = prepare()
        (error,) = await self.do(lambda db: group(db, [item]))
        if error is not None:
            raise error

    async def close(self) -> None:
        self._db.close()

    def _make_room(self) -> None:
        if jobs.pages_in_use(self._db) <= self._next_sweep:
            return
        mark = jobs.mark(self._db, float("-inf"), SWEEP_BATCH, self._most)
        if mark is not None:
            jobs.sweep(self._db, mark)
        # Every sweep sums the sizes of all rows: the next one waits until more than a few rows have come.
        self._next_sweep = max(self._most, jobs.pages_in_use(self._db) + self._most // 16)


Runner = SqliteThread | MemoryRunner


def _writes(job: Job[P, T]) -> Callable[Concatenate["_Jobs", P], Awaitable[T]]:
    """Make a method of a job that the writer runs."""

    async def run(self: _Jobs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.writer.do(lambda db: job(db, *args, **kwargs))

    return run


def _reads(job: Job[P, T]) -> Callable[Concatenate["_Jobs", P], Awaitable[T]]:
    """Make a method of a job that the reader runs."""

    async def run(self: _Jobs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.reader.do(lambda db: job(db, *args, **kwargs))

    return run


class _Jobs:
    """The two that run jobs; they may be the same."""

    def __init__(self, reader: Runner, writer: Runner) -> None:
        self.reader = reader
        self.writer = writer


class SqliteConversations(_Jobs):
    """The conversations of a `SqliteEngine`."""

    insert = _writes(conversations.insert)
    row = _reads(conversations.row)
    update = _writes(conversations.update)
    delete = _writes(conversations.delete)
    hold = _writes(conversations.hold)
    release = _writes(conversations.release)
    add = _writes(conversations.add)
    page = _reads(conversations.page)
    before = _reads(conversations.before)
    item = _reads(conversations.item)
    delete_item = _writes(conversations.delete_item)
    find = _reads(conversations.find)


class SqliteEngine(_Jobs):
    """The engine. `reader` and `writer` run its jobs; `most`: what the content may take."""

    def __init__(self, name: str, reader: Runner, writer: Runner, most: int) -> None:
        super().__init__(reader, writer)
        self.name = name
        self._most = most
        self.conversations = SqliteConversations(reader, writer)

    async def insert(self, entry: Entry, now: float, ttl: float) -> None:
        await self.writer.do_with(jobs.insert_all, lambda: jobs.NewRow(entry(), now, ttl))

    append = _writes(jobs.append)
    pieces = _reads(jobs.pieces)
    finish = _writes(jobs.finish)
    renew = _writes(jobs.renew)
    lost = _reads(jobs.lost)
    row = _reads(jobs.row)
    content = _reads(jobs.content)
    chain = _reads(jobs.chain)
    claim = _writes(jobs.claim)
    release = _writes(jobs.release)
    cancel = _writes(jobs.cancel)
    delete = _writes(jobs.delete)
    put_seals = _writes(jobs.put_seals)
    get_seals = _reads(jobs.get_seals)
    change_key = _writes(jobs.change_key)
    key_states = _reads(jobs.key_states)
    stats = _reads(jobs.stats)
    ping = _reads(jobs.ping)

    async def expire(self, now: float, limit: int) -> Swept:
        # Summing the sizes reads an index: the reader does it, so that no write waits.
        mark = await self.reader.do(lambda db: jobs.mark(db, now, limit, self._most))
        return Swept() if mark is None else await self.writer.do(lambda db: jobs.sweep(db, mark))

    async def close(self) -> None:
        # The last connection to close writes the log back into the file; it must be the writer's.
        await self.reader.close()
        await self.writer.close()


def memory_engine(settings: StoreSettings) -> SqliteEngine:
    """Return the engine on a new database in memory."""
    runner = MemoryRunner(settings.max_bytes)
    return SqliteEngine("memory", runner, runner, settings.max_bytes)


async def open_sqlite(
    path: Path, settings: StoreSettings, *, synchronous: Synchronous = "full"
) -> SqliteEngine:
    """Return the engine on this file; create the file if there is none, and migrate it to the newest version.

    Raises:
        StoreUnavailable: the file cannot be opened. StoreDamaged: it is not a store of this program.
    """
    file = SqliteFile(path, synchronous)
    writer = SqliteThread(file, name="store-writer", writes=True)
    reader = SqliteThread(file, name="store-reader", writes=False)
    engine = SqliteEngine("sqlite", reader, writer, settings.max_bytes)
    try:
        await writer.do(jobs.ping)
    except (StoreError, asyncio.CancelledError):  # the threads would never end
        writer.stop()
        await engine.close()
        raise
    return engine
