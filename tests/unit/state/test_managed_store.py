"""The sweeper goes on after a failure, and a gateway that closes leaves nothing behind."""

import asyncio
import threading
from pathlib import Path

import pytest

from dragoman.config.settings import StoreSettings
from dragoman.errors import StoreError, StoreUnavailable
from dragoman.state.managed_store import ManagedStore, sweep_forever
from dragoman.store.engine_store import Store, open_store
from dragoman.store.records import Swept
from store_help import Bench, bounded, draft, ending


def test_sweeper_removes_batch_after_batch_and_survives_an_absence() -> None:
    bench = Bench("memory:")
    swept: list[Swept] = []
    failed: list[StoreError] = []
    done = asyncio.Event()

    def note(found: Swept) -> None:
        swept.append(found)
        if len(swept) == 2:
            done.set()

    class Away:
        """Fails once, as a database that is away; then it is the store."""

        def __init__(self, store: Store) -> None:
            self._store = store
            self._is_away = True

        async def expire(self) -> Swept:
            if self._is_away:
                self._is_away = False
                raise StoreUnavailable("away")
            return await self._store.expire(limit=2)

    async def main() -> None:
        async with bench.open() as store:
            for number in range(3):
                await store.put(draft(f"r{number}"), ending())
                bench.clock.now += 1  # rows that expire at the same time go together
            bench.clock.now += 5000
            sweeper = asyncio.create_task(
                sweep_forever(Away(store), interval=0.0, on_sweep=note, on_error=failed.append)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - one method of a store
            )
            await done.wait()
            sweeper.cancel()
            await asyncio.gather(sweeper, return_exceptions=True)

    bounded(main())
    assert [found.responses for found in swept] == [2, 1]
    assert len(failed) == 1


@pytest.mark.parametrize("turns", range(6))
def test_gateway_that_closes_while_it_opens_its_store_leaves_nothing_behind(
    turns: int, tmp_path: Path
) -> None:
    def note(*_: object) -> None:
        """Nothing is measured."""

    async def main() -> None:
        settings = StoreSettings(url=f"sqlite://{tmp_path / 'store.db'}")
        before = asyncio.all_tasks()
        managed = ManagedStore(settings, note, note)
        managed.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        await managed.close()
        assert asyncio.all_tasks() == before
        assert not [each for each in threading.enumerate() if each.name.startswith("store-")]

    bounded(main())


def test_opening_that_is_cancelled_ends_its_threads(tmp_path: Path) -> None:
    async def main() -> None:
        settings = StoreSettings(url=f"sqlite://{tmp_path / 'store.db'}")
        opening = asyncio.create_task(open_store(settings))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert not [each for each in threading.enumerate() if each.name.startswith("store-")]

    bounded(main())
