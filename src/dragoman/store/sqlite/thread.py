"""A thread that runs jobs on a connection to one SQLite file, so that the event loop never waits for the disk.

Jobs that wait at the same time run in one transaction (group commit), and under load they wait a moment for one another,
so that a write costs a share of a commit. They wait in the event loop, which prepares their rows together when it hands
them over: a row prepared together with others costs half of a row prepared between other work.

A job is a function over the connection that either raises a `StoreError` before it has written anything, or succeeds.
When SQLite itself fails, the transaction is rolled back and each job is retried in a transaction of its own, so that one
job's problem does not fail another job.

Jobs of one kind can also run in one call (`do_with`). Each call into SQLite releases the interpreter lock and must wait
to get it back from an event loop that is busy for milliseconds at a time, so few statements for many rows are faster.
"""

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar, cast

from msgspec import Struct

from dragoman.errors import GatewayError, StoreError, StoreUnavailable
from dragoman.store.sqlite.file import OpenedDatabase, SqliteFile, translated

logger = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], object]
Group = Callable[[sqlite3.Connection, Sequence[T]], Sequence[StoreError | None]]
"""Runs several jobs in one call and returns the error of each, or None. May raise `BatchConflict` if there are several."""

# The busy time, and time for the work itself; a disk that takes longer counts as failed.
_WAIT_SECONDS = 15.0
# One for every stream that a worker process may have open.
_MAX_WAITING = 4096
# Bounds how long the first job of a batch waits for the last.
_MAX_BATCH = 256
# A commit costs as much as ten writes. If commits follow one another faster than this, the next waits for more jobs: that
# delays the end of an answer by at most this time, and halves the cost of storing it.
_GATHER_SECONDS = 0.02
# The most commits without waiting, after several waits in which no other job came.
_MAX_SKIPPED = 63


# SQLite's errors and the store's own, and what a bug, a value that no version of this program writes, or a lack of memory may
# raise. All are caught, because the store could not be used again after its thread ended.
_FAILURES = (
    *(sqlite3.Error, GatewayError, ArithmeticError, AssertionError, AttributeError, LookupError),
    *(MemoryError, OSError, RuntimeError, TypeError, ValueError),
)


class BatchConflict(Exception):
    """A group raises it if it cannot run in one call: the transaction is rolled back, and each job runs alone."""


class _Job(Struct, eq=False):
    """One job: either `work` runs it, or `group` runs it with others, from the `item` that `prepare` returns."""

    future: "asyncio.Future[object]"
    since: float
    work: Work | None = None
    group: Group[object] | None = None
    prepare: Callable[[], object] | None = None
    item: object = None
    result: object = None
    error: StoreError | None = None


class SqliteThread:
    """Runs jobs in order, on a connection of its own. `writes`: in transactions."""

    def __init__(self, file: SqliteFile, *, name: str, writes: bool) -> None:
        self._file = file
        self._writes = writes
        # Batches of jobs. An empty batch: close the connection to a file that was moved. None: end the thread.
        self._queue: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._jobs: set[_Job] = set()
        self._gathered: list[_Job] = []
        self._next: asyncio.Handle | None = None  # the timer that hands over the gathered jobs
        self._is_busy = False
        self._watch: asyncio.TimerHandle | None = None
        self._commits: deque[float] = deque((0.0, 0.0), maxlen=2)
        self._skips = self._skips_left = 0
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._is_closing = False
        self._opened: OpenedDatabase | None = None
        file.add_holder(lambda: self._queue.put([]))
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job and return its result once it is on disk.

        Raises:
            StoreUnavailable: the file cannot be used, is locked for too long, or too many jobs wait for it.
            StoreDamaged: the file is not a database of this program. And whatever the job raises.
        """
        job = self._job()
        job.work = work
        self._ask(job)
        return cast("T", await job.future)

    async def do_with(self, group: Group[T], prepare: Callable[[], T]) -> None:
        """Run a job that `group` can run together with others of its kind.

        `prepare`: returns the item for the group, and is called when the job is handed over. Raises what it raises.
        """
        job = self._job()
        job.group = cast("Group[object]", group)
        job.prepare = prepare
        self._ask(job)
        await job.future

    def _job(self) -> _Job:
        if self._is_closing:
            raise StoreUnavailable("expected an open store, it is closed")
        if len(self._jobs) >= _MAX_WAITING:
            raise StoreUnavailable(
                f"expected at most {_MAX_WAITING:,} waiting operations on the store, there are more"
            )
        return _Job(self._loop.create_future(), self._loop.time())

    def _ask(self, job: _Job) -> None:
        self._jobs.add(job)
        self._gathered.append(job)
        if self._watch is None:
            self._watch = self._loop.call_later(_WAIT_SECONDS, self._give_up)
        if not self._writes:
            self._hand_over()
        elif not self._is_busy and self._next is None:
            self._gather()

    def _gather(self) -> None:
        """Schedule the handover: at the end of this loop iteration, or later if recent commits suggest that more jobs come."""
        before, last = self._commits
        now = self._loop.time()
        if now - before > 2 * _GATHER_SECONDS or now - last > _GATHER_SECONDS:
            self._next = self._loop.call_soon(self._hand_over)
        elif self._skips_left:
            self._skips_left -= 1
            self._next = self._loop.call_soon(self._hand_over)
        else:
            self._next = self._loop.call_at(last + _GATHER_SECONDS, self._stop_waiting)

    def _stop_waiting(self) -> None:
        # A single client that writes repeatedly waits in vain: back off, so that it waits seldom.
        self._skips = 0 if len(self._gathered) > 1 else min(2 * self._skips + 1, _MAX_SKIPPED)
        self._skips_left = self._skips
        self._hand_over()

    def _hand_over(self) -> None:
        """Hand the gathered jobs to the thread, at most `_MAX_BATCH` for one transaction."""
        self._next = None
        batch = self._gathered[:_MAX_BATCH]
        self._gathered = self._gathered[_MAX_BATCH:]
        ready = [job for job in batch if self._is_prepared(job)]
        if ready:
            self._is_busy = True
            self._queue.put(ready)
        elif self._gathered:
            self._gather()

    def _is_prepared(self, job: _Job) -> bool:
        try:
            if job.prepare is not None:
                job.item = job.prepare()
        except _FAILURES as error:
            # Only this job fails: the others of its batch have the same callback of the event loop.
            self._jobs.discard(job)
            if not job.future.done():
                job.future.set_exception(error)
            return False
        return True

    def _give_up(self) -> None:
        """Fail the jobs that waited too long. One timer serves all jobs: a timer for each would double the cost of a job."""
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
        """Run the pending jobs and close the file."""
        self.stop()
        await asyncio.shield(self._ended)
        self._thread.join()
        if self._watch is not None:
            self._watch.cancel()

    def stop(self) -> None:
        """Let the thread end after the pending jobs."""
        if not self._is_closing:
            self._is_closing = True
            if self._next is not None:
                self._next.cancel()
            while self._gathered:
                self._hand_over()
            self._queue.put(None)

    def _run(self) -> None:
        try:
            while (batch := self._queue.get()) is not None:
                if batch:
                    self._do(batch)
                    self._call_back(self._answer, batch)
                elif self._opened is not None and not self._file.is_current(self._opened):
                    self._let_go()
        finally:
            # Also if a job broke the thread: waiting and later jobs get an error.
            self._is_closing = True
            self._let_go()
            self._call_back(self._end, None)

    def _end(self, _: None) -> None:
        left = list(self._jobs)
        for job in left:
            job.error = StoreUnavailable("expected the store to answer, its thread has ended")
        self._answer(left)
        self._ended.set_result(None)

    def _call_back(self, callback: Callable[[T], object], value: T) -> None:
        # The loop may have ended without closing the store: then no job is awaited.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, value)

    def _answer(self, batch: list[_Job]) -> None:
        self._is_busy = False
        self._commits.append(self._loop.time())
        self._jobs.difference_update(batch)
        for job in batch:
            if job.future.done():
                continue
            if job.error is None:
                job.future.set_result(job.result)
            else:
                job.future.set_exception(job.error)
        if self._gathered and self._next is None and not self._is_closing:
            self._gather()

    def _do(self, batch: list[_Job]) -> None:
        try:
            opened = self._open()
        except _FAILURES as error:
            _fail(batch, _logged(error))
            return
        try:
            self._do_together(opened.connection, batch)
        except BatchConflict:
            self._undo()
            self._do_each(batch)
        except _FAILURES as error:
            failed = _logged(error)
            self._file.is_current(opened)  # if it is not, other threads close their connections too
            self._let_go()
            if len(batch) == 1:
                batch[0].error = failed
                return
            self._do_each(batch)
        else:
            if self._writes and not self._file.is_current(opened):
                self._let_go()
                _fail(batch, self._file.moved())

    def _do_each(self, batch: list[_Job]) -> None:
        for job in batch:
            job.error = None
            self._do([job])

    def _undo(self) -> None:
        try:
            if self._opened is not None:
                self._opened.connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._let_go()

    def _open(self) -> OpenedDatabase:
        # The writer checks the files after its commit.
        if not self._writes and self._opened is not None:
            if self._file.is_current(self._opened):
                return self._opened
            self._let_go()
        if self._opened is None:
            self._opened = self._file.connect()
        return self._opened

    def _do_together(self, connection: sqlite3.Connection, batch: list[_Job]) -> None:
        if self._writes:
            connection.execute("BEGIN IMMEDIATE")
        groups: dict[Group[object], list[_Job]] = {}
        for job in batch:
            if job.group is not None:
                groups.setdefault(job.group, []).append(job)
            elif job.work is not None:
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

    def _let_go(self) -> None:
        """Close the connection, which rolls back; the next job opens the file again, which may have been replaced."""
        if self._opened is not None:
            self._file.close(self._opened)
            self._opened = None


def _logged(error: Exception) -> StoreError:
    """Translate an error, and log it unless it is SQLite's or the store's own."""
    if not isinstance(error, sqlite3.Error | StoreError):
        logger.error("the store's thread failed", exc_info=error)
    return translated(error)


def _fail(batch: list[_Job], error: StoreError) -> None:
    for job in batch:
        job.error = error
