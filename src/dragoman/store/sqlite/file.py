"""The file of a SQLite store, and connections to it.

**No descriptor but SQLite's own is ever opened on the database file, its `-wal` or its `-shm`.** POSIX locks belong to a
process and a file: closing any descriptor of the file drops all locks that SQLite holds on it in this process. The next
process that closes the store then believes that it is the last, and deletes the log that this process still writes to:
all writes that are acknowledged from then on are lost. So this module only inspects the file by its path (`stat`), which
opens no descriptor.

Writes are also lost when somebody deletes or replaces the files of an open store: SQLite goes on with the files it has
opened, which no other process finds any more. So a connection remembers which files it has opened, and the writer checks
that they are still in place before it acknowledges a commit (`SqliteFile.is_current`).
"""

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from dragoman.config.settings import Synchronous
from dragoman.errors import StoreDamaged, StoreError, StoreUnavailable
from dragoman.store.sqlite.schema import check_version, migrate

BUSY_SECONDS = 5.0
"""How long another process may hold the file. A commit takes milliseconds, a sweep some tens of them."""

# The log is cut back to this after a checkpoint; it grows with the largest transaction.
_WAL_BYTES = 64 * 1024 * 1024
_RETRY_SECONDS = 0.02
# Enough for all statements: there is one insert for each table and number of rows (`operations.MAX_TOGETHER`).
_STATEMENTS = 256

_SMALLEST_PAGE = 512

_Identity = tuple[int, int]
"""Device and inode."""


class OpenedDatabase(Struct, frozen=True, eq=False):
    """A connection, and the identity of the files it has opened: the database and its log."""

    connection: sqlite3.Connection
    path: str
    log: str
    identity: _Identity
    log_identity: _Identity

    @property
    def is_in_place(self) -> bool:
        """Whether opening the path now gives the same files, and the size is that of a database."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - for every commit, and faster than a path's own
        except OSError:
            return False
        is_whole = found.st_size and not found.st_size % _SMALLEST_PAGE
        return (
            bool(is_whole)
            and (found.st_dev, found.st_ino) == self.identity
            and _identity(self.log) == self.log_identity
        )


class SqliteFile:
    """The file at a path, and all connections that threads of this process have to it.

    When the files are no longer in place, all connections are *stale*, and no new one is opened before they are closed:
    the connections of one process share their view of the log, also with a connection that is opened later.
    """

    def __init__(self, path: Path, synchronous: Synchronous) -> None:
        self._path = path
        self._synchronous: Synchronous = synchronous
        self._changed = threading.Condition()
        self._opened: set[OpenedDatabase] = set()
        self._stale: set[OpenedDatabase] = set()
        self._last: OpenedDatabase | None = None
        self._holders: list[Callable[[], None]] = []

    def add_holder(self, let_go: Callable[[], None]) -> None:
        """Register a thread that keeps a connection: `let_go` asks it to close a stale connection. Called from any thread."""
        self._holders.append(let_go)

    def is_current(self, opened: OpenedDatabase) -> bool:
        """Whether others who open the store see what this connection has read and committed."""
        if opened not in self._stale:
            if opened.is_in_place:
                return True
            with self._changed:
                self._stale |= self._opened
            for let_go in self._holders:
                let_go()
        return False

    def moved(self) -> StoreError:
        message = "expected the store's file to stay as it was opened, it was removed, replaced or overwritten"
        return StoreUnavailable(message, detail=str(self._path))

    def close(self, opened: OpenedDatabase) -> None:
        try:
            opened.connection.close()
        finally:
            with self._changed:
                self._opened.discard(opened)
                self._stale.discard(opened)
                self._changed.notify_all()

    def connect(self) -> OpenedDatabase:
        """Return a connection to the file, migrated to the newest version.

        If the file was open and is gone, no new one is created: whoever moved the file may put it back.

        Raises:
            StoreUnavailable: the file cannot be made or written, or is gone. StoreDamaged: it is not a store of this program.
        """
        until = time.monotonic() + BUSY_SECONDS
        with self._changed:
            others = tuple(self._opened)
        for other in others:
            self.is_current(other)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._stale, BUSY_SECONDS):
                raise self.moved()
        # While another process creates or closes the file, SQLite does not wait but fails with SQLITE_BUSY.
        while True:
            try:
                opened = self._open()
            except (sqlite3.Error, UnicodeDecodeError, StoreDamaged) as error:
                is_busy = getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY"
                if not is_busy or time.monotonic() > until:
                    failed = translated(error)
                    failed.detail = str(self._path)
                    raise failed from error
            else:
                if opened is not None:
                    with self._changed:
                        self._opened.add(opened)
                    self._last = opened
                    return opened
                if time.monotonic() > until:
                    raise self.moved()
            time.sleep(_RETRY_SECONDS)

    def _open(self) -> OpenedDatabase | None:
        """Return a connection; None if the file was replaced meanwhile, so that it is unknown which file was opened."""
        path = Path(os.path.realpath(self._path))  # SQLite puts the log beside the real path
        log = path.with_name(path.name + "-wal")
        before = _identity(path)
        if before is None:
            self._make(path)
            before = _identity(path)
        self._remove_foreign_log(log, before)
        connection = sqlite3.connect(
            path, timeout=_RETRY_SECONDS, isolation_level=None, cached_statements=_STATEMENTS
        )
        opened: OpenedDatabase | None = None
        try:
            _prepare(connection, self._synchronous)
            after, log_identity = _identity(path), _identity(log)
            if before is not None and after == before and log_identity is not None:
                opened = OpenedDatabase(connection, str(self._path), str(log), before, log_identity)
        finally:
            if opened is None:
                connection.close()
        return opened

    def _make(self, path: Path) -> None:
        """Have SQLite create an empty file that only its owner can read, since conversations are private.

        SQLite gives its other files the mode of the database file, and the database file the mode of the file that `modeof`
        names. (A umask would apply to all threads.)
        """
        if self._last is not None:
            message = "expected the store's file where it was opened, it is gone; put it back, or start again without it"
            raise StoreUnavailable(message, detail=str(self._path))
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".dragoman-mode-") as model:
                uri = f"file:{quote(str(path))}?modeof={quote(model.name)}"
                sqlite3.connect(uri, uri=True).close()
        except OSError as error:
            message = f"expected a store's file that can be written: {error.strerror}"
            raise StoreUnavailable(message, detail=str(self._path)) from error

    def _remove_foreign_log(self, log: Path, identity: _Identity | None) -> None:
        """Delete the log of the database that was open if another database has been put in its place.

        SQLite does not notice, and would write the pages of the old log into the new database.
        """
        last = self._last
        if last is None or identity in (None, last.identity):
            return
        if _identity(log) == last.log_identity:
            log.unlink(missing_ok=True)
            log.with_name(log.name.removesuffix("-wal") + "-shm").unlink(missing_ok=True)


def _prepare(connection: sqlite3.Connection, synchronous: Synchronous) -> None:
    check_version(connection)  # before any change: the file may be another program's
    # Only for a new file: on an existing one this PRAGMA would wait for writers each time.
    if not connection.execute("PRAGMA page_count").fetchone()[0]:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    migrate(connection)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


def _identity(path: Path | str) -> _Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return None
    return found.st_dev, found.st_ino


def translated(error: Exception) -> StoreError:
    """Translate an error of SQLite into a StoreError; a StoreError is returned unchanged."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError | MemoryError):
        return StoreUnavailable(f"expected the store's file to be usable: {type(error).__name__}")
    if not isinstance(error, sqlite3.Error):
        # The file has a value of a type that no version of this program writes, or SQLite's message is not UTF-8.
        return StoreDamaged(f"expected a database of this program: {type(error).__name__}: {error}")
    name: str = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")):
        return StoreDamaged(f"expected a database of this program: {error} ({name})")
    return StoreUnavailable(f"expected the store's file to be usable: {error} ({name})")
