"""The store of a gateway: opened when it is needed, maintained while it is open, and watched for problems.

A gateway goes on without its store: callers get the reason why it is not there, and the next call tries again. One task
maintains the store: it begins the responses that have run for a while, renews the leases of all that run, and sweeps.
Every worker process of every node may sweep: PostgreSQL gives each other rows, SQLite's file takes them in turn.
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
from dragoman.store.contract import LEASE_SECONDS, Key, Store
from dragoman.store.engine_store import open_store
from dragoman.store.records import Swept

if TYPE_CHECKING:
    from dragoman.state.keeper import Keeper

logger = logging.getLogger(__name__)

T = TypeVar("T")

BEGIN_SECONDS = 0.5
"""How long a response runs before it is begun in the store, where others see it: most are over by then, and cost one write, not two."""

LOOK_SECONDS = 1.0
"""How often a node looks whether what runs on it was cancelled or deleted elsewhere; not at all while nothing is begun."""

AWAY_SECONDS = 5.0
"""How long callers that can do without the store leave it alone after it failed."""

CHECK_SECONDS = 1.0
"""How often at most a health check asks the store."""

CHECK_PATIENCE = 2.0
"""How long a health check waits for the store."""

REPEAT_SECONDS = 600.0
"""How often the log repeats what is wrong with a store."""

PAUSE_SECONDS = 60.0
"""How soon the log repeats the same of a store that works and fails in turn, as on a disk that is nearly full."""

SWEEP_SECONDS = 60.0
"""Between sweeps. What has expired is not found even before it is swept: this bounds only the room it takes."""

SWEEP_PAUSE_SECONDS = 0.05
"""Between the batches of one sweep, for others to get their turn."""

# What changes nothing: a store that can be read may still be one that cannot be written, on a full disk for example.
_READS = frozenset({"chain", "get_seals", "head", "items", "look", "ping", "read"})


class ManagedStore:
    """One per gateway. `note`: called with each operation, whether it failed, and how long it took."""

    def __init__(
        self,
        settings: StoreSettings,
        note: Callable[[str, str, float], None],
        on_sweep: Callable[[Swept], None],
    ) -> None:
        self.settings = settings
        self.running: set[Keeper] = set()
        self.repeating: set[str] = set()
        """The upstreams that have given one id to several responses."""
        self.last_named: dict[str, tuple[str, Request]] = {}
        """By upstream: the last id that it gave to a response, and what was asked."""
        self.problem: str | None = None
        self._away_until = self._checked = 0.0
        self._reported = ("", float("-inf"))  # what is wrong, and when it was logged
        self._is_reported = False  # that it does not work now
        self._recovering: asyncio.Task[None] | None = None
        self._note = note
        self._on_sweep = on_sweep
        self._store: Store | None = None
        self._opening: asyncio.Task[Store] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._maintenance: list[asyncio.Task[None]] = []
        self._is_closed = False

    @property
    def is_on(self) -> bool:
        return self.settings.policy != "off"

    @property
    def is_open(self) -> bool:
        return self._store is not None

    @property
    def is_worth_trying(self) -> bool:
        """Whether a caller that can do without the store should call it all the same."""
        return self.problem is None or time.monotonic() >= self._away_until

    def start(self) -> None:
        """Open it now, in the background: but do not make a file for those who never said where to keep state."""
        is_there = self.settings.url != "sqlite:" or default_store_path(os.environ).exists()
        if self.is_on and is_there and self.settings.url != "memory:":
            self.spawn(self._try_to_open())

    async def call(self, name: str, work: Callable[[Store], Awaitable[T]]) -> T:
        """Call the store and return its result.

        Raises:
            StoreError: what it raises; StoreUnavailable also if it cannot be opened.
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
        """Why the store does not work; None if it does, or nobody has needed it yet."""
        now = time.monotonic()
        if (self._store is not None or self.problem is not None) and (
            now - self._checked >= CHECK_SECONDS
        ):
            self._checked = now
            name, work = ("ping", _ping) if self.problem is None else ("try", _try)
            try:
                async with asyncio.timeout(CHECK_PATIENCE):
                    await self.call(name, work)
            except TimeoutError:
                self.report_problem(
                    StoreUnavailable(f"no answer within {CHECK_PATIENCE:g} seconds")
                )
            except StoreError:
                pass  # which is noted
        return self.problem

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Start something that no caller waits for; `close` does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def find(self, key: Key) -> "Keeper | None":
        """The response of this gateway that runs under this key."""
        return next((each for each in self.running if each.key == key), None)

    async def close(self) -> None:
        """Let what was begun end, and close the store."""
        self._is_closed = True
        tending = [*self._maintenance, *([] if self._recovering is None else [self._recovering])]
        for task in tending:
            task.cancel()
        await asyncio.gather(*tending, return_exceptions=True)
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
            await self.call("ping", _ping)

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
        self._maintenance = [
            loop.create_task(self._maintain()),
            loop.create_task(
                sweep_forever(store, on_sweep=self._swept, on_error=self._could_not_sweep)
            ),
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
            if now - renewed >= LEASE_SECONDS / 3:
                renewed = looked = now
                self.spawn(self._lose("renew", lambda store, keys: store.renew(keys)))
            elif now - looked >= LOOK_SECONDS:
                looked = now
                self.spawn(self._lose("look", lambda store, keys: store.lost(keys)))

    async def _lose(
        self, name: str, find: Callable[[Store, list[Key]], Awaitable[frozenset[Key]]]
    ) -> None:
        """Stop what runs no more according to the store."""
        begun: dict[Key, list[Keeper]] = {}
        for each in self.running:
            if each.is_begun and each.key is not None:
                begun.setdefault(each.key, []).append(each)  # one that repeats an id has it too
        if not begun:
            return
        with suppress(StoreError):
            for key in await self.call(name, lambda store: find(store, [*begun])):
                if await self.call("head", partial(_is_cancelled, key)):
                    for each in begun[key]:
                        each.lose()

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
            self.report_problem(error)

    def report_problem(self, error: StoreError) -> None:
        """Note that the store fails. It is tried from time to time until it works."""
        if self._is_closed:
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


async def _ping(store: Store) -> None:
    await store.ping()


async def _is_cancelled(key: Key, store: Store) -> bool:
    """Whether a response that runs no more was cancelled or deleted. Else it has ended, by itself or by another with its id."""
    try:
        return (await store.head(*key)).status == "cancelled"
    except StoreMissing:
        return True


async def _try(store: Store) -> None:
    """Write something: an item of nobody's, which expires like others."""
    await store.put_items("nobody", "nothing", ["nothing"])


async def sweep_forever(
    store: Store,
    *,
    interval: float = SWEEP_SECONDS,
    on_sweep: Callable[[Swept], None],
    on_error: Callable[[StoreError], None],
) -> None:
    """Sweep until cancelled. A store that cannot be reached is reported (`on_error`), and tried again at the next turn."""
    while True:
        more = False
        try:
            swept = await store.expire()
            more = swept.more
            on_sweep(swept)
        except StoreError as error:
            on_error(error)
        await asyncio.sleep(SWEEP_PAUSE_SECONDS if more else interval)
