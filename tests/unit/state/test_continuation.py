"""What a request continues: outputs may be submitted again by a client that left, and references are no way to fill the memory."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dragoman._json import dumps
from dragoman.config.settings import StoreSettings
from dragoman.dialects.responses import decode_request
from dragoman.errors import RequestRefused, StoreMissing, StoreTooLarge
from dragoman.state import held_conversation
from dragoman.state.continuation import StorageCaller, continue_submitted, find_continuation
from dragoman.state.held_conversation import find_items
from dragoman.state.managed_store import ManagedStore
from dragoman.store.engine_store import Store
from dragoman.store.records import ConversationItem, NewConversation
from store_help import OWNER, bounded, call_ending, draft, ending

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


def test_references_to_more_than_a_request_may_have_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that stored one long item could otherwise make gigabytes of it with a small request."""
    monkeypatch.setattr(held_conversation, "MAX_CHAIN_BYTES", 10_000)
    managed = ManagedStore(StoreSettings(url="memory:"), ignore, ignore)
    caller = StorageCaller(OWNER, "1", 1.0, ignore)
    message = dumps({"type": "message", "role": "user", "content": "x" * 3_000, "id": "msg_2"})
    conversation = NewConversation(
        id="conv_1",
        owner=OWNER,
        created=1.0,
        metadata=b"{}",
        items=(ConversationItem("msg_2", message),),
    )

    async def put(store: Store) -> None:
        await store.put(draft("resp_1"), ending("x" * 3_000))
        await store.put_items(OWNER, "resp_1", ["msg_1"])
        await store.conversations.create(conversation)

    async def turns(*item_ids: str) -> int:
        asked = [{"type": "item_reference", "id": item_id} for item_id in item_ids]
        request = decode_request(dumps({"model": "m", "input": asked}))
        found = await find_continuation(managed, "responses", request, caller)
        assert found.request is not None
        return len(found.request.turns)

    async def main() -> None:
        await managed.call("put", put)
        for item_id in ("msg_1", "msg_2"):
            assert await turns(*[item_id] * 3) == 3
            with pytest.raises(StoreTooLarge, match="at most 10,000 bytes"):
                await turns(*[item_id] * 4)
        with pytest.raises(StoreTooLarge):
            await turns("msg_1", "msg_1", "msg_2", "msg_2")
        await managed.close()

    bounded(main())


def test_items_of_many_responses_are_read_up_to_the_size_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_conversation, "MAX_CHAIN_BYTES", 10_000)
    managed = ManagedStore(StoreSettings(url="memory:"), ignore, ignore)
    ids = [f"msg_{number}" for number in range(9)]

    async def put(store: Store) -> None:
        for number, item_id in enumerate(ids):
            body = ending("x" * 3_000).body.replace(b"msg_1", item_id.encode())
            await store.put(draft(f"resp_{number}"), ending(body=body))
            await store.put_items(OWNER, f"resp_{number}", [item_id])

    async def main() -> None:
        await managed.call("put", put)
        assert len(await find_items(managed, OWNER, ids[:3])) == 3
        with pytest.raises(StoreTooLarge):
            await find_items(managed, OWNER, ids)
        await managed.close()

    bounded(main())
