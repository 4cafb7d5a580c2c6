"""The store of a gateway: opened when it is needed, tended while it is open, and known for its troubles.

A gateway goes on without its store: whoever needs it is told why it is not there, and the next one tries again. What
tends it is one task: it begins the responses that have run for a while, renews the leases of all that run, and sweeps.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Protocol, TypeVar

from dragoman.errors import GatewayError, StoreError, StoreMissing, StoreUnavailable
from dragoman.store.base import LEASE_SECONDS, Key, Store
from dragoman.store.opening import open_store
from dragoman.store.records import Swept
from dragoman.store.settings import StoreSettings
from dragoman.store.sweeping import sweep_forever

__all__ = ("Running", "StoreHolder")

logger = logging.getLogger(__name__)

T = TypeVar("T")

BEGIN_SECONDS = 0.5
"""How long a response runs before others may see that it does: most are over by then, and cost one write, not two."""

LOOK_SECONDS = 1.0
"""How often a node looks whether what runs on it was cancelled or deleted elsewhere; not at all while nothing is begun."""

AWAY_SECONDS = 5.0
"""How long a store that did not answer is left alone by those who can do without it."""


class Running(Protocol):
    """A response that is being told, as far as whoever tends it must know."""

    @property
    def key(self) -> Key | None:
        """None: it has no id yet, or nobody else may see it."""
        ...

    @property
    def since(self) -> float: ...

    @property
    def is_begun(self) -> bool: ...

    def begin_soon(self) -> None:
        """Have others see it."""
        ...

    async def begin_now(self) -> None:
        """The same, and wait for it."""
        ...

    def told_from(self, start: int) -> bytes:
        """What was told of it, from a byte on."""
        ...

    def more(self) -> "asyncio.Future[None]":
        """Done when more was told of it, or it is over."""
        ...

    def lose(self) -> None:
        """It is running no more: cancelled or deleted, perhaps on another node."""
        ...


class StoreHolder:
    """One per gateway. `note`: told of each operation, whether it failed, and how long it took."""

    def __init__(
        self,
        settings: StoreSettings,
        note: Callable[[str, str, float], None],
        on_sweep: Callable[[Swept], None],
    ) -> None:
        self.settings = settings
        self.running: set[Running] = set()
        self.trouble: str | None = None
        self._away_until = 0.0
        self._note = note
        self._on_sweep = on_sweep
        self._store: Store | None = None
        self._opening: asyncio.Task[Store] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._tending: list[asyncio.Task[None]] = []
        self._is_closed = False

    @property
    def is_on(self) -> bool:
        return self.settings.policy != "off"

    @property
    def is_open(self) -> bool:
        return self._store is not None

    @property
    def is_worth_asking(self) -> bool:
        """Whether somebody who can do without the store should ask it all the same."""
        return self.trouble is None or time.monotonic() >= self._away_until

    def start(self) -> None:
        """Open it now, in the background: not the file that only exists for those who never said where to keep state."""
        if self.is_on and self.settings.url not in ("sqlite:", "memory:"):
            self.spawn(self._try_to_open())

    async def ask(self, name: str, work: Callable[[Store], Awaitable[T]]) -> T:
        """What the store says.

        Raises:
            StoreError: what it raises; StoreUnavailable also if it cannot be opened.
        """
        began = time.perf_counter()
        outcome = "error"
        try:
            store = self._store or await self._opened()
            result = await work(store)
        except StoreUnavailable as error:
            self.note_trouble(error)
            raise
        except StoreError:
            outcome = "refused"
            raise
        else:
            outcome = "ok"
            self.trouble = None
            return result
        finally:
            self._note(name, outcome, time.perf_counter() - began)

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Have something done that nobody waits for; `close` does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def find(self, key: Key) -> Running | None:
        """The response of this gateway that runs under this key."""
        return next((each for each in self.running if each.key == key), None)

    async def close(self) -> None:
        """Let what was begun end, and close the store."""
        self._is_closed = True
        for task in self._tending:
            task.cancel()
        await asyncio.gather(*self._tending, return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        if self._opening is not None:
            self._opening.cancel()
            with suppress(asyncio.CancelledError, GatewayError):
                await self._opening
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def _try_to_open(self) -> None:
        with suppress(GatewayError):
            await self.ask("open", _ping)

    async def _opened(self) -> Store:
        """All who ask while it is being opened wait for the same attempt."""
        if self._is_closed:
            raise StoreUnavailable("expected an open store, the gateway is shutting down")
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Store:
        try:
            store = await open_store(self.settings)
        except StoreError:
            raise
        except GatewayError as error:
            unopened = StoreUnavailable(f"the store cannot be opened: {error.message}")
            unopened.detail = error.detail
            raise unopened from error
        self._store = store
        loop = asyncio.get_running_loop()
        self._tending = [
            loop.create_task(self._tend()),
            loop.create_task(
                sweep_forever(store, on_sweep=self._swept, on_error=self._could_not_sweep)
            ),
        ]
        logger.info("state is kept in %s", store.engine)
        return store

    async def _tend(self) -> None:
        renewed = looked = time.monotonic()
        while True:
            await asyncio.sleep(BEGIN_SECONDS / 2)
            now = time.monotonic()
            for each in tuple(self.running):
                if not each.is_begun and each.since < now - BEGIN_SECONDS:
                    each.begin_soon()
            if now - renewed >= LEASE_SECONDS / 3:
                renewed = looked = now
                self.spawn(self._lose("renew", lambda store, keys: store.renew(keys)))
            elif now - looked >= LOOK_SECONDS:
                looked = now
                self.spawn(self._lose("look", lambda store, keys: store.lost(keys)))

    async def _lose(
        self, name: str, find: Callable[[Store, list[Key]], Awaitable[frozenset[Key]]]
    ) -> None:
        """End what is running no more by what the store says."""
        begun = {key: each for each in self.running if each.is_begun and (key := each.key)}
        if not begun:
            return
        with suppress(StoreError):
            for key in await self.ask(name, lambda store: find(store, [*begun])):
                begun[key].lose()

    def _swept(self, swept: Swept) -> None:
        if swept.responses or swept.seals:
            logger.info(
                "swept %d responses and %d seals, %d bytes",
                swept.responses,
                swept.seals,
                swept.size,
            )
        self._on_sweep(swept)

    def _could_not_sweep(self, error: StoreError) -> None:
        if not isinstance(error, StoreMissing):
            self.note_trouble(error)

    def note_trouble(self, error: StoreError) -> None:
        """It did not answer."""
        if self.trouble is None:
            logger.warning("the store does not answer: %s", error.whole)
        self.trouble = error.message
        self._away_until = time.monotonic() + AWAY_SECONDS


async def _ping(store: Store) -> None:
    await store.ping()
