"""The broom goes on."""

import asyncio

from dragoman.errors import StoreError, StoreUnavailable
from dragoman.state.managed_store import sweep_forever
from dragoman.store.engine_store import Store
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
