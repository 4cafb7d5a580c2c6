"""The store of a gateway: opens it on first use, maintains it while it is open, and reports its problems.

A gateway keeps working when its store fails: callers get the reason, and the next call tries again. Background tasks
begin the responses that have run for a while, append what was sent of background responses, renew the leases of all
running responses, and sweep. Every worker process
of every node may sweep: PostgreSQL gives each sweeper different rows, and SQLite's file lets in one sweeper at a time.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from dragoman.config.environment import default_store_path
from dragoman.config.settings import StoreSettings
from dragoman.errors import (
    GatewayError,
    StoreDamaged,
    StoreError,
    StoreMissing,
    StoreUnavailable,
)
from dragoman.model.request import Request
from dragoman.store.contract import Key
from dragoman.store.engine_store import Store, open_store
from dragoman.store.records import Status, Swept

if TYPE_CHECKING:
    from dragoman.state.keeper import Keeper

logger = logging.getLogger(__name__)

T = TypeVar("T")

BEGIN_SECONDS = 0.5
"""How long a response runs before it is begun in the store, where others see it: most end sooner, and cost one write, not two."""

LOOK_SECONDS = 1.0
"""How often a node checks whether another node cancelled or deleted its running responses; never while none is begun."""

AWAY_SECONDS = 5.0
"""How long callers that can do without the store do not call it after it failed."""

CHECK_SECONDS = 1.0
"""The shortest time between two health checks that call the store."""

CHECK_PATIENCE = 2.0
"""How long a health check waits for the store."""

REPEAT_SECONDS = 600.0
"""How often the log repeats the problem of a store that keeps failing."""

PAUSE_SECONDS = 60.0
"""How soon the log repeats the problem of a store that works and fails in turn, as on a disk that is nearly full."""

SWEEP_SECONDS = 60.0
"""Between sweeps. Expired rows are not found even before a sweep: the interval bounds only the space they take."""

SWEEP_PAUSE_SECONDS = 0.05
"""Between the batches of one sweep, so that other operations get their turn."""

# Operations that only read. Their success does not prove that the store works: a full disk can be read, not written.
_READS = frozenset({"chain", "get_seals", "head", "items", "look", "ping", "progress", "read"})


class ManagedStore:
    """The store of one gateway. `note`: called after each operation with its name, its result and its duration."""

    def __init__(
        self,
        settings: StoreSettings,
        note: Callable[[str, str, float], None],
        on_sweep: Callable[[Swept], None],
    ) -> None:
        self.settings = settings
        self.running: set[Keeper] = set()
        self.repeating: set[str] = set()
        """The upstreams that gave the same id to several responses."""
        self.last_named: dict[str, tuple[str, Request]] = {}
        """By upstream: the last id that it gave to a response, and the request of that response."""
        self.problem: str | None = None
        self._away_until = self._checked = 0.0
        self._reported = ("", float("-inf"))  # the last problem that was logged, and when
        self._is_reported = False  # whether the log's last word is that the store does not work
        self._recovering: asyncio.Task[None] | None = None
        self._note = note
        self._on_sweep = on_sweep
        self._store: Store | None = None
        self._opening: asyncio.Task[Store] | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._maintenance: list[asyncio.Task[None]] = []
        self.is_closed = False

    @property
    def is_on(self) -> bool:
        return self.settings.policy != "off"

    @property
    def is_worth_trying(self) -> bool:
        """Whether a caller that can do without the store should call it all the same."""
        return self.problem is None or time.monotonic() >= self._away_until

    def start(self) -> None:
        """Open the store in the background, unless that would create the default file for a user who set no store URL."""
        is_there = self.settings.url != "sqlite:" or default_store_path(os.environ).exists()
        if self.is_on and is_there and self.settings.url != "memory:":
            self.spawn(self._try_to_open())

    async def call(self, name: str, work: Callable[[Store], Awaitable[T]]) -> T:
        """Call the store and return its result.

        Raises:
            StoreError: the store raised it; StoreUnavailable also if the store cannot be opened.
        """
        began = time.perf_counter()
        outcome = "error"
        try:
            store = self._store or await self._opened()
            result = await work(store)
        except (StoreUnavailable, StoreDamaged) as error:
            self.report_problem(error)
            raise
        except StoreError:
            outcome = "refused"
            raise
        else:
            outcome = "ok"
            if self.problem is not None and name not in _READS:
                self._recover()
            return result
        finally:
            self._note(name, outcome, time.perf_counter() - began)

    async def check(self) -> str | None:
        """Return why the store does not work; None if it works or was never opened."""
        now = time.monotonic()
        if (self._store is not None or self.problem is not None) and (
            now - self._checked >= CHECK_SECONDS
        ):
            self._checked = now
            name, work = ("ping", Store.ping) if self.problem is None else ("try", _try)
            try:
                async with asyncio.timeout(CHECK_PATIENCE):
                    await self.call(name, work)
            except TimeoutError:
                self.report_problem(
                    StoreUnavailable(f"no answer within {CHECK_PATIENCE:g} seconds")
                )
            except StoreError:
                pass  # `call` has reported it
        return self.problem

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start a task that no caller waits for; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def find(self, key: Key) -> "Keeper | None":
        """Return the keeper of the response that runs in this gateway under this key."""
        return next((each for each in self.running if each.key == key), None)

    async def close(self) -> None:
        """Wait up to five seconds for spawned tasks, then close the store."""
        self.is_closed = True
        await self._stop_maintenance()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        if self._opening is not None:
            self._opening.cancel()
            with suppress(asyncio.CancelledError, GatewayError):
                await self._opening
        await self._stop_maintenance()  # the store may have been opened meanwhile
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def _stop_maintenance(self) -> None:
        tending = [*self._maintenance, *([] if self._recovering is None else [self._recovering])]
        for task in tending:
            task.cancel()
        await asyncio.gather(*tending, return_exceptions=True)

    async def _try_to_open(self) -> None:
        with suppress(GatewayError):
            await self.call("ping", Store.ping)

    async def _opened(self) -> Store:
        """Return the open store. All callers during one opening wait for the same attempt."""
        if self.is_closed:
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
            message = f"the store cannot be opened: {error.message}"
            raise StoreUnavailable(message, detail=error.detail) from error
        self._store = store
        loop = asyncio.get_running_loop()
        self._maintenance = [
            loop.create_task(self._maintain()),
            loop.create_task(self._sweep(store)),
        ]
        logger.info("state is kept in %s", store.engine)
        return store

    async def _maintain(self) -> None:
        renewed = looked = time.monotonic()
        while True:
            await asyncio.sleep(BEGIN_SECONDS / 2)
            now = time.monotonic()
            for each in tuple(self.running):
                if not each.is_begun and each.since < now - BEGIN_SECONDS:
                    each.begin_soon()
                each.append_soon(now)
            if now - renewed >= self.settings.lease / 3:
                renewed = looked = now
                self.spawn(self._lose("renew", Store.renew))
                self.spawn(self._renew_holds())
            elif now - looked >= LOOK_SECONDS:
                looked = now
                self.spawn(self._lose("look", Store.lost))

    async def _lose(
        self, name: str, find: Callable[[Store, list[Key]], Awaitable[frozenset[Key]]]
    ) -> None:
        """Stop the keepers whose responses were cancelled or deleted in the store, and background responses without a lease."""
        begun: dict[Key, list[Keeper]] = {}
        for each in self.running:
            if each.is_begun and each.key is not None:
                # Two responses share a key if the upstream repeats an id.
                begun.setdefault(each.key, []).append(each)
        if not begun:
            return
        with suppress(StoreError):
            for key in await self.call(name, lambda store: find(store, [*begun])):
                status = await self.call("head", partial(_status, key))
                for each in begun[key]:
                    if status == "cancelled" or (status == "failed" and each.draft.background):
                        each.lose()

    async def _renew_holds(self) -> None:
        """Renew the holds that running responses have on their conversations."""
        for each in tuple(self.running):
            await each.renew_hold()

    async def _sweep(self, store: Store) -> None:
        """Sweep until cancelled. After a problem, the next sweep tries again."""
        while True:
            more = False
            try:
                swept = await store.expire()
            except StoreError as error:
                self.report_problem(error)
            else:
                more = swept.more
                if swept.responses or swept.seals or swept.conversations:
                    logger.info(
                        "swept %d responses, %d conversations and %d seals, %d bytes",
                        swept.responses,
                        swept.conversations,
                        swept.seals,
                        swept.size,
                    )
                self._on_sweep(swept)
            await asyncio.sleep(SWEEP_PAUSE_SECONDS if more else SWEEP_SECONDS)

    def report_problem(self, error: StoreError) -> None:
        """Record and log that the store fails, and try it from time to time until it works."""
        if self.is_closed:
            return
        now = time.monotonic()
        reported, when = self._reported
        is_new = self.problem is None and (error.whole != reported or now - when >= PAUSE_SECONDS)
        if is_new or now - when >= REPEAT_SECONDS:
            logger.error("the store does not work, nothing can be stored: %s", error.whole)
            self._reported = (error.whole, now)
            self._is_reported = True
        self.problem = error.message
        self._away_until = now + AWAY_SECONDS
        if self._recovering is None or self._recovering.done():
            self._recovering = asyncio.get_running_loop().create_task(self._try_until_it_works())

    def _recover(self) -> None:
        self.problem = None
        if self._is_reported:
            self._is_reported = False
            logger.info("the store works again")

    async def _try_until_it_works(self) -> None:
        while self.problem is not None:
            await asyncio.sleep(AWAY_SECONDS)
            with suppress(GatewayError):
                await self.call("try", _try)


async def _status(key: Key, store: Store) -> Status:
    """The status of a response that no longer runs; a deleted one is cancelled too. Or of another response with its id."""
    try:
        return (await store.head(*key)).status
    except StoreMissing:
        return "cancelled"


async def _try(store: Store) -> None:
    """Write a dummy item that belongs to no owner and expires like any other."""
    await store.put_items("nobody", "nothing", ["nothing"])
