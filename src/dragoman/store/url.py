"""A store by its URL.

memory:                                nothing survives the process
sqlite:                                a file in the user's state directory
sqlite:///var/lib/dragoman/store.db    that file; `sqlite:` and a path without slashes before it is relative
sqlite:…?synchronous=normal            faster where fsync is slow; what the machine lost with its power is gone
postgresql://user@host/database        any URL that libpq takes; `postgres://` is the same
"""

import os
import time
from collections.abc import Callable

from dragoman.config.environment import sqlite_place, store_engine
from dragoman.config.settings import StoreSettings
from dragoman.errors import ConfigError
from dragoman.store.contract import Store
from dragoman.store.engine import Engine
from dragoman.store.engine_store import EngineStore
from dragoman.store.memory import MemoryEngine
from dragoman.store.sqlite.engine import open_sqlite


async def open_store(settings: StoreSettings, *, clock: Callable[[], float] = time.time) -> Store:
    """The store, reached and at the newest version of its tables.

    Raises:
        ConfigError: the URL names no engine, or one that is not installed.
        StoreUnavailable: it cannot be reached. StoreDamaged: what is there is not ours, or of a version to come.
    """
    return EngineStore(await _open_engine(settings), settings, clock=clock)


async def _open_engine(settings: StoreSettings) -> Engine:
    match store_engine(settings.url):
        case "memory":
            return MemoryEngine(settings)
        case "sqlite":
            path, synchronous = sqlite_place(settings.url, os.environ)
            return await open_sqlite(path, settings, synchronous=synchronous)
        case _:
            try:
                from dragoman.store.postgres.engine import open_postgres  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise ConfigError(
                    "expected psycopg for a store in PostgreSQL: install dragoman[postgres]"
                ) from error
            return await open_postgres(settings)
