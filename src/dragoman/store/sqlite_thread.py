"""A thread with a connection to one SQLite file, and jobs for it: the event loop never waits for the disk.

Jobs that wait at the same time are done in one transaction (group commit), and under load they wait a moment for one
another, so that a write costs a share of a commit. A job is a function over the connection that either raises a
`StoreError` before it has written anything, or succeeds. When SQLite itself fails, the transaction is undone and each of
its jobs is tried again in one of its own: what is wrong with one must not fail another's.

Jobs of one kind can also be done by one call (`do_with`). Each call into SQLite lets go of the interpreter and has to
wait for it again, while the event loop is busy for milliseconds at a time: few statements for many rows are what counts.
"""

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

from msgspec import Struct

from dragoman.errors import StoreDamaged, StoreError, StoreUnavailable

__all__ = ("BUSY_SECONDS", "Separately", "SqliteThread", "translated")

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], object]
Group = Callable[[sqlite3.Connection, Sequence[T]], Sequence[StoreError | None]]
"""Jobs done by one call: what each of them ended with. Raises `Separately`."""

BUSY_SECONDS = 5.0
"""How long another process may hold the file. A commit takes milliseconds, a sweep some tens of them."""

# Beyond the busy time there is the work itself; a disk that takes longer is as good as gone.
_WAIT_SECONDS = 15.0
# One for every stream that a worker process may have open.
_MAX_WAITING = 4096
# Bounds how long the first of a batch waits for the last.
_MAX_BATCH = 256
# A commit costs as much as ten writes. Where commits follow one another faster than this, the next waits for company: the
# end of an answer comes so much later, and storing it costs half.
_GATHER_SECONDS = 0.02
# Commits without waiting, after several waits in which nobody came.
_MAX_VAIN = 63


class Separately(Exception):
    """What a group says that cannot be done by one call: the transaction is undone, and each is done alone."""


class _Job(Struct, eq=False):
    """`group`, if it has one, does it together with others, of which it is given the `item`."""

    work: Work
    future: "asyncio.Future[object]"
    since: float
    group: Group[object] | None = None
    item: object = None
    result: object = None
    error: StoreError | None = None


class SqliteThread:
    """Jobs in order, on a connection of its own. `writes`: in transactions."""

    def __init__(
        self, open_connection: Callable[[], sqlite3.Connection], *, name: str, writes: bool
    ) -> None:
        self._open = open_connection
        self._writes = writes
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._jobs: set[_Job] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._is_last = False
        self._commits: deque[float] = deque((0.0, 0.0), maxlen=2)
        self._vain = self._unwaited = 0
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._is_closing = False
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a job, when it is on disk.

        Raises:
            StoreUnavailable: the file cannot be used, is locked for too long, or too much waits for it.
            StoreDamaged: it is no database of ours. And what the job raises.
        """
        return cast("T", await self._asked(work))

    async def do_with(self, group: Group[T], item: T) -> None:
        """The same for a job that `group` can do together with others of the kind; it is given the item of each."""
        wide = cast("Group[object]", group)
        await self._asked(_alone(wide, item), wide, item)

    def _asked(
        self, work: Work, group: Group[object] | None = None, item: object = None
    ) -> "asyncio.Future[object]":
        if self._is_closing:
            raise StoreUnavailable("expected an open store, it is closed")
        if len(self._jobs) >= _MAX_WAITING:
            raise StoreUnavailable(
                f"expected at most {_MAX_WAITING:,} waiting operations on the store, there are more"
            )
        future: asyncio.Future[object] = self._loop.create_future()
        job = _Job(work, future, self._loop.time(), group, item)
        self._jobs.add(job)
        self._queue.put(job)
        if self._watch is None:
            self._watch = self._loop.call_later(_WAIT_SECONDS, self._give_up)
        return future

    def _give_up(self) -> None:
        """Tell those who have waited too long. One timer for all: each would cost as much as a job's way here and back."""
        self._watch = None
        if not self._jobs:
            return
        late = self._loop.time() - _WAIT_SECONDS
        for job in self._jobs:
            if job.since <= late and not job.future.done():
                message = (
                    f"expected the store to answer within {_WAIT_SECONDS:g} seconds, it did not"
                )
                job.future.set_exception(StoreUnavailable(message))
        oldest = min((job.since for job in self._jobs if not job.future.done()), default=None)
        if oldest is not None:
            when = oldest + _WAIT_SECONDS
            self._watch = self._loop.call_at(when, self._give_up)

    async def close(self) -> None:
        """Do what was asked for and let go of the file."""
        self.stop()
        await asyncio.shield(self._ended)
        self._thread.join()
        if self._watch is not None:
            self._watch.cancel()

    def stop(self) -> None:
        """The thread ends when it has done what was asked for."""
        if not self._is_closing:
            self._is_closing = True
            self._queue.put(None)

    def _run(self) -> None:
        try:
            while batch := self._next():
                self._do(batch)
                self._tell(self._answer, batch)
        finally:
            # Also if a job broke the thread: whoever waits, or comes later, is told.
            self._is_closing = True
            self._let_go()
            self._tell(self._end, None)

    def _next(self) -> list[_Job]:
        """All that waits, as far as one transaction should go; empty at the end."""
        batch: list[_Job] = []
        job = None if self._is_last else self._queue.get()
        has_waited = self._writes and job is not None and self._gather()
        while job is not None:
            batch.append(job)
            if len(batch) >= _MAX_BATCH:
                break
            try:
                job = self._queue.get_nowait()
            except Empty:
                break
        else:
            self._is_last = True
        if has_waited:
            # One who writes again and again waits in vain, and not often.
            self._vain = 0 if len(batch) > 1 else min(2 * self._vain + 1, _MAX_VAIN)
            self._unwaited = self._vain
        return batch

    def _gather(self) -> bool:
        """Wait for others that want to write, if it looks as if there were some. Whether it did."""
        before, last = self._commits
        now = time.monotonic()
        if now - before > 2 * _GATHER_SECONDS or now - last > _GATHER_SECONDS:
            return False
        if self._unwaited:
            self._unwaited -= 1
            return False
        time.sleep(max(last + _GATHER_SECONDS - now, 0.0))
        return True

    def _end(self, _: None) -> None:
        left = list(self._jobs)
        for job in left:
            job.error = StoreUnavailable("expected the store to answer, its thread has ended")
        self._answer(left)
        self._ended.set_result(None)

    def _tell(self, callback: Callable[[T], object], value: T) -> None:
        # The loop may have ended without closing the store: then there is nobody to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, value)

    def _answer(self, batch: list[_Job]) -> None:
        self._jobs.difference_update(batch)
        for job in batch:
            if job.future.done():
                continue
            if job.error is None:
                job.future.set_result(job.result)
            else:
                job.future.set_exception(job.error)

    def _do(self, batch: list[_Job]) -> None:
        try:
            self._do_together(batch)
        except Separately:
            self._undo()
            self._do_each(batch)
        except (sqlite3.Error, StoreError) as error:
            self._let_go()
            if len(batch) == 1:
                batch[0].error = translated(error)
                return
            self._do_each(batch)

    def _do_each(self, batch: list[_Job]) -> None:
        for job in batch:
            job.error = None
            self._do([job])

    def _undo(self) -> None:
        try:
            if self._connection is not None:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._let_go()

    def _do_together(self, batch: list[_Job]) -> None:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._open()
        if self._writes:
            connection.execute("BEGIN IMMEDIATE")
        groups: dict[Group[object], list[_Job]] = {}
        for job in batch:
            if job.group is not None and len(batch) > 1:
                groups.setdefault(job.group, []).append(job)
                continue
            try:
                job.result = job.work(connection)
            except StoreError as error:
                job.error = error
        for group, jobs in groups.items():
            found = group(connection, [job.item for job in jobs])
            for job, fault in zip(jobs, found, strict=True):
                job.error = fault
        if self._writes:
            connection.execute("COMMIT")
            self._commits.append(time.monotonic())

    def _let_go(self) -> None:
        """Undo what is not committed; the next job opens the file anew, which may have become another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _alone(group: Group[object], item: object) -> Work:
    def work(connection: sqlite3.Connection) -> None:
        (error,) = group(connection, (item,))
        if error is not None:
            raise error

    return work


def translated(error: sqlite3.Error | StoreError) -> StoreError:
    """What an error of SQLite means here; our own stay as they are."""
    if isinstance(error, StoreError):
        return error
    name: str = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")):
        return StoreDamaged(f"expected a database of this program: {error} ({name})")
    return StoreUnavailable(f"expected the store's file to be usable: {error} ({name})")
