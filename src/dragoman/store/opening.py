"""A store by its URL.

memory:                                nothing survives the process
sqlite:                                a file in the user's state directory
sqlite:///var/lib/dragoman/store.db    that file; `sqlite:` and a path without slashes before it is relative
sqlite:…?synchronous=normal            faster where fsync is slow; what the machine lost with its power is gone
postgresql://user@host/database        any URL that libpq takes; `postgres://` is the same
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from dragoman.errors import ConfigError
from dragoman.store.base import Store
from dragoman.store.engine import Engine
from dragoman.store.front import KeptStore
from dragoman.store.memory import MemoryEngine
from dragoman.store.settings import StoreSettings
from dragoman.store.sqlite import open_sqlite
from dragoman.store.sqlite_file import Synchronous

__all__ = ("check_url", "default_path", "open_store", "sqlite_place")

_EXPECTED = "expected memory:, sqlite:, sqlite:///path or postgresql://… as the store's url"


async def open_store(settings: StoreSettings, *, clock: Callable[[], float] = time.time) -> Store:
    """The store, reached and at the newest version of its tables.

    Raises:
        ConfigError: the URL names no engine, or one that is not installed.
        StoreUnavailable: it cannot be reached. StoreDamaged: what is there is not ours, or of a version to come.
    """
    return KeptStore(await _open_engine(settings), settings, clock=clock)


async def _open_engine(settings: StoreSettings) -> Engine:
    match check_url(settings.url):
        case "memory":
            return MemoryEngine(settings)
        case "sqlite":
            path, synchronous = sqlite_place(settings.url, os.environ)
            return await open_sqlite(path, settings, synchronous=synchronous)
        case _:
            try:
                from dragoman.store.postgres import open_postgres  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise ConfigError(
                    "expected psycopg for a store in PostgreSQL: install dragoman[postgres]"
                ) from error
            return await open_postgres(settings)


def check_url(url: str) -> str:
    """The engine that a URL names. Nothing of the URL but its scheme is told: it may hold a password.

    Raises:
        ConfigError: it names none, or says what that engine does not know.
    """
    scheme, colon, rest = url.partition(":")
    match scheme.lower():
        case "memory" if colon and not rest:
            return "memory"
        case "sqlite" if colon:
            sqlite_place(url, {})
            return "sqlite"
        case "postgresql" | "postgres" if rest.startswith("//"):
            return "postgresql"
        case _:
            shown = scheme + ":…" if colon and scheme.isalnum() else "something else"
            raise ConfigError(f"{_EXPECTED}, got {shown}")


def sqlite_place(url: str, environ: Mapping[str, str]) -> tuple[Path, Synchronous]:
    """The file that a `sqlite:` URL names, and how it is written.

    Raises:
        ConfigError: it names a host, or says what is not known.
    """
    parts = urlsplit(url)
    if parts.netloc or parts.fragment:
        raise ConfigError(
            "expected sqlite:///path (three slashes) as the store's url, got a host or a fragment"
        )
    synchronous: Synchronous = "full"
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name != "synchronous" or value not in get_args(Synchronous):
            raise ConfigError(
                f"expected synchronous=full or synchronous=normal after the ? of the store's url, got {name}=…"
            )
        synchronous = "normal" if value == "normal" else "full"
    path = Path(unquote(parts.path)).expanduser() if parts.path else default_path(environ)
    return path, synchronous


def default_path(environ: Mapping[str, str]) -> Path:
    """`store.db` in the user's state directory, where the XDG base directory specification puts it."""
    # "If $XDG_STATE_HOME is either not set or empty" or relative, the default counts.
    home = Path(environ.get("XDG_STATE_HOME", ""))
    base = home if home.is_absolute() else Path("~/.local/state").expanduser()
    return base / "dragoman" / "store.db"
