"""The sweeper goes on after a failure, and a gateway that closes leaves nothing behind."""

import asyncio
import threading
from pathlib import Path

import pytest

from dragoman.config.settings import StoreSettings
from dragoman.errors import StoreUnavailable
from dragoman.state import managed_store
from dragoman.state.managed_store import ManagedStore
from dragoman.store.engine_store import Store, open_store
from dragoman.store.records import Swept
from store_help import Bench, bounded, draft, ending


def test_sweeper_removes_batch_after_batch_and_survives_an_absence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench("memory:")
    swept: list[Swept] = []
    done = asyncio.Event()
    monkeypatch.setattr(managed_store, "SWEEP_SECONDS", 0.0)

    def note(found: Swept) -> None:
        swept.append(found)
        if len(swept) == 2:
            done.set()

    def ignore(_name: str, _outcome: str, _seconds: float) -> None: ...

    async def main() -> None:
        async with bench.open() as store:
            for number in range(3):
                await store.put(draft(f"r{number}"), ending())
                bench.clock.now += 1  # rows that expire at the same time go together
            bench.clock.now += 5000
            expire, absences = store.expire, [StoreUnavailable("away")]

            async def away_once(_: Store) -> Swept:
                if absences:
                    raise absences.pop()
                return await expire(limit=2)

            async def same(_: StoreSettings) -> Store:
                return store

            monkeypatch.setattr(Store, "expire", away_once)
            monkeypatch.setattr(managed_store, "open_store", same)
            managed = ManagedStore(bench.settings, ignore, note)
            await managed.call("ping", Store.ping)
            await done.wait()
            assert managed.problem == "away"
            await managed.close()

    bounded(main())
    assert [found.responses for found in swept] == [2, 1]


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
