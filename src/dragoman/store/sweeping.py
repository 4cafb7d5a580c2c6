"""The broom: removes in the background what has expired, and what is too much.

Every worker process of every node may run one: PostgreSQL gives each other rows, SQLite's file takes them in turn.
"""

import asyncio
from collections.abc import Callable

from dragoman.errors import StoreError
from dragoman.store.base import Store
from dragoman.store.records import Swept

__all__ = ("PAUSE_SECONDS", "SWEEP_SECONDS", "sweep_forever")

SWEEP_SECONDS = 60.0
"""Between sweeps. What has expired is not found before it is swept either; this bounds only the room it takes."""

PAUSE_SECONDS = 0.05
"""Between the batches of one sweep, for others to get their turn."""


async def sweep_forever(
    store: Store,
    *,
    interval: float = SWEEP_SECONDS,
    on_sweep: Callable[[Swept], None],
    on_error: Callable[[StoreError], None],
) -> None:
    """Sweep until cancelled. A store that cannot be reached is told, and tried again at the next turn."""
    while True:
        more = False
        try:
            swept = await store.expire()
            more = swept.more
            on_sweep(swept)
        except StoreError as error:
            on_error(error)
        await asyncio.sleep(PAUSE_SECONDS if more else interval)
