"""A pool of a few connections to PostgreSQL, lent for one statement or transaction at a time.

The pool connects on demand and reuses its connections. While the database is away, each caller gets a clear error, at once
if the database refuses, after `CONNECT_SECONDS` if it is silent; when it is back, the next caller connects. An idle
connection that the server closed is readable (bytes, or their end): the pool checks that before it lends the connection,
so that no request notices a restart of the database between two requests.
"""

import asyncio
import select
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import random
from typing import LiteralString, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg.waiting import wait_async

from dragoman.errors import ConfigError, StoreDamaged, StoreError, StoreTooLarge, StoreUnavailable

CONNECT_SECONDS = 5.0
"""Time limit for a connection to be made, or to become free. A request that waits longer should fail instead."""

STATEMENT_SECONDS = 10.0
"""Time limit for one statement. Reads and writes by id take about a millisecond, a sweep some hundreds."""

# The server aborts the statement first; the client's own limit is for a server that sends nothing at all.
_SILENCE_SECONDS = STATEMENT_SECONDS + 2.0

# psycopg wakes up at this interval so that signals can interrupt it in threads; the pool does not need that.
_WAKE_SECONDS = 1.0

# A deadlock is over when one of its two sides was aborted; a third failure in a row has another cause.
_ATTEMPTS = 3
# Seconds, at most, before the next attempt: the other side needs some time for its work, and may be a retry itself.
_PAUSE = 0.1

# Connection parameters of libpq; the operator's URL overrides them.
_DEFAULTS = {
    "application_name": "dragoman",
    "connect_timeout": f"{CONNECT_SECONDS:.0f}",
    "keepalives_idle": "30",
    "tcp_user_timeout": f"{_SILENCE_SECONDS * 1000:.0f}",
    "options": (
        f"-c statement_timeout={STATEMENT_SECONDS * 1000:.0f} -c idle_in_transaction_session_timeout=30s"
        # Statements are planned when the tables are empty, and a plan that scans an empty table would be kept until the
        # tables are analyzed. An index serves every query.
        " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
    ),
}


T = TypeVar("T")

Statement = LiteralString | bytes


class Connection(psycopg.AsyncConnection[TupleRow]):
    """A connection that stops waiting at once when its task is cancelled; psycopg would ask the server to cancel first.

    psycopg's request takes up to ten seconds more with a silent server. The abandoned statement ends by its time limit.
    """

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = _WAKE_SECONDS,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg's own parameter
    ) -> RV:
        return await wait_async(gen, self.pgconn.socket, interval=interval, timeout=timeout)

    # In binary format: bytes in text format take twice their size.

    async def one(self, statement: Statement, values: Mapping[str, object]) -> TupleRow | None:
        """Return the first row of a statement's result."""
        return await (await self.execute(statement, values, binary=True)).fetchone()

    async def all(self, statement: Statement, values: Mapping[str, object]) -> list[TupleRow]:
        """Return the rows of a statement's result."""
        return await (await self.execute(statement, values, binary=True)).fetchall()


class PostgresPool:
    """At most `size` connections, which only `lend` gives out. `run` runs work on one, and again after a deadlock."""

    __slots__ = ("_conninfo", "_free", "_idle", "_is_closed")

    def __init__(self, url: str, size: int) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # libpq's message contains the URL, and with it a password
            raise ConfigError("expected a URL that libpq can read as the store's url") from None
        missing = {name: value for name, value in _DEFAULTS.items() if name not in given}
        self._conninfo = make_conninfo(url, **missing)
        self._free = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._is_closed = False

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[Connection, None]:
        """Lend a connection, in autocommit mode, for the duration of the block.

        Raises:
            StoreUnavailable: there is no connection, or a statement failed. StoreDamaged: the tables are missing or corrupt.
            StoreTooLarge: an id is too long for an index.
        """
        if self._is_closed:
            raise StoreUnavailable("expected an open store, it is closed")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"expected a free connection to the database within {CONNECT_SECONDS:g} seconds, all were busy"
            ) from None
        connection: Connection | None = None
        is_good = False
        try:
            async with asyncio.timeout(_SILENCE_SECONDS):
                connection = await self._take()
                yield connection
            is_good = True
        except StoreError:
            is_good = True
            raise
        except TimeoutError:
            raise StoreUnavailable(
                f"expected the database to answer within {_SILENCE_SECONDS:g} seconds, it did not"
            ) from None
        except (psycopg.Error, OSError) as error:
            is_good = connection is not None and not connection.broken
            raise translated(error) from error
        finally:
            self._free.release()
            if connection is not None:
                await self._give_back(connection, is_good=is_good)

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` on a connection, and retry soon after a deadlock. Raises what `lend` and `work` raise."""
        for _ in range(_ATTEMPTS - 1):
            async with self.lend() as connection:
                try:
                    return await work(connection)
                except errors.DeadlockDetected:
                    pass
            await asyncio.sleep(random() * _PAUSE)  # noqa: S311 - spreads retries, protects nothing
        async with self.lend() as connection:
            return await work(connection)

    async def one(self, statement: Statement, values: Mapping[str, object]) -> TupleRow | None:
        """`Connection.one` on a connection of the pool."""
        return await self.run(lambda connection: connection.one(statement, values))

    async def all(self, statement: Statement, values: Mapping[str, object]) -> list[TupleRow]:
        """`Connection.all` on a connection of the pool."""
        return await self.run(lambda connection: connection.all(statement, values))

    async def close(self) -> None:
        """Close the idle connections; lent connections are closed when they are returned."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop().close()

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and _is_quiet(connection):
                return connection
            await connection.close()
        return await Connection.connect(self._conninfo, autocommit=True, prepare_threshold=0)

    async def _give_back(self, connection: Connection, *, is_good: bool) -> None:
        idle = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if is_good and idle and not self._is_closed:
            self._idle.append(connection)
        else:
            await connection.close()


def _is_quiet(connection: Connection) -> bool:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


def translated(error: psycopg.Error | OSError) -> StoreError:
    """Translate an error of the database. Its message names hosts, users and tables, so it goes to the log alone (`detail`)."""
    state = getattr(error, "sqlstate", None)
    code = type(error).__name__ if state is None else f"{type(error).__name__}, {state}"
    # Only the first line: the others are hints, or repeat it for another address.
    detail = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, (errors.UndefinedTable, errors.UndefinedColumn, errors.DataCorrupted)):
        message = f"expected the tables of this version in the database ({code})"
        return StoreDamaged(message, detail=detail)
    if isinstance(error, errors.ProgramLimitExceeded):
        message = f"expected ids that the database can index, got a longer one ({code})"
        return StoreTooLarge(message, kind="server", status=500, detail=detail)
    message = f"expected the database to execute a statement, it failed ({code})"
    return StoreUnavailable(message, detail=detail)
