"""Claims: a client that leaves while it submits tool outputs may submit them again at once."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dragoman._json import dumps
from dragoman.config.settings import StoreSettings
from dragoman.errors import RequestRefused, StoreMissing
from dragoman.state.continuation import StorageCaller, continue_submitted
from dragoman.state.managed_store import ManagedStore
from dragoman.store.engine_store import Store
from store_help import OWNER, bounded, call_ending, draft

OUTPUTS = dumps({"tool_outputs": [{"tool_call_id": "call_1", "output": "x"}]})


def ignore(*_: object) -> None: ...


@pytest.mark.parametrize("operation", ["claim", "begin"])
def test_outputs_whose_sender_leaves_can_be_submitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    operate: Any = getattr(Store, operation)

    async def operate_and_leave(store: Store, *args: Any, **changes: Any) -> Any:
        monkeypatch.setattr(Store, operation, operate)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # it is noticed while the write waits for the disk
        return await operate(store, *args, **changes)

    async def main() -> None:
        settings = StoreSettings(url=f"sqlite://{tmp_path / 'store.db'}")
        managed = ManagedStore(settings, ignore, ignore)
        await managed.call("put", lambda store: store.put(draft("a"), call_ending("call_1")))
        monkeypatch.setattr(Store, operation, operate_and_leave)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(
                continue_submitted(
                    managed, "a", OUTPUTS, StorageCaller(OWNER, "first", 1.0, ignore)
                )
            )
        again, caller = None, StorageCaller(OWNER, "second", 1.0, ignore)
        while again is None:  # for less than half the lease: `bounded`
            with suppress(RequestRefused):
                again = await continue_submitted(managed, "a", OUTPUTS, caller)
            await asyncio.sleep(0)
        with suppress(StoreMissing):  # what was begun is removed
            while True:
                await managed.call("head", lambda store: store.head(OWNER, "resp_dgmfirst"))
        assert again.keeper is not None
        again.keeper.close()
        await managed.close()

    bounded(main())
