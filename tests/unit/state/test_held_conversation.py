"""The hold on a conversation: renewed while a response runs, lost to another, given back whatever happens."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dragoman.config.settings import StoreSettings
from dragoman.core.store_notes import AnswerEnd
from dragoman.dialects.responses.conversations import read_input
from dragoman.errors import RequestRefused, StoreHeld
from dragoman.model.outcome import ErrorInfo
from dragoman.model.request import Request
from dragoman.state.held_conversation import HeldConversation
from dragoman.state.keeper import Keeper
from dragoman.state.managed_store import ManagedStore
from dragoman.store.records import Draft, NewConversation, Swept

KEY = ("o", "c")
BODY = b'{"id":"resp_1","status":"completed","output":[{"id":"msg_x","type":"message","role":"assistant","content":[]}]}'


def _note(_name: str, _outcome: str, _seconds: float) -> None: ...


def _swept(_swept: Swept) -> None: ...


def run(work: Callable[[ManagedStore], Awaitable[None]]) -> None:
    async def main() -> None:
        managed = ManagedStore(StoreSettings(url="memory:"), _note, _swept)
        new = NewConversation(id="c", owner="o", created=0.0)
        await managed.call("create", lambda store: store.conversations.create(new))
        try:
            await work(managed)
        finally:
            await managed.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def keeper_of(managed: ManagedStore, stopped: list[ErrorInfo]) -> Keeper:
    draft = Draft(id="resp_1", owner="o", created=0.0, door="responses", request=Request())
    return Keeper(managed, draft, stopped.append)


async def is_free(managed: ManagedStore) -> bool:
    other = HeldConversation(managed, KEY, "other")
    try:
        await other.take()
    except RequestRefused:
        return False
    await other.release()
    return True


async def settled() -> None:
    """Let spawned tasks run: a store in memory makes none of them wait."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_hold_that_is_renewed_after_the_end_is_given_back() -> None:
    async def work(managed: ManagedStore) -> None:
        held = HeldConversation(managed, KEY, "resp_1")
        await held.take()
        await held.release()
        await held.renew()  # as if the renewal had begun before the end
        assert await is_free(managed)

    run(work)


def test_response_that_lost_its_hold_is_stopped_and_adds_nothing() -> None:
    async def work(managed: ManagedStore) -> None:
        held = HeldConversation(managed, KEY, "resp_1")
        await held.take()
        stopped: list[ErrorInfo] = []
        keeper = keeper_of(managed, stopped)
        keeper.only_add()
        keeper.hold(held)
        await keeper.renew_hold()
        assert stopped == []
        # Its lease lapsed, and another response took the conversation.
        await managed.call("release", lambda store: store.conversations.release(*KEY, by="resp_1"))
        await managed.call("hold", lambda store: store.conversations.hold(*KEY, by="resp_2"))
        with pytest.raises(StoreHeld):
            await held.add(AnswerEnd(id="resp_1", status="completed", body=BODY))
        await keeper.renew_hold()
        assert [error.kind for error in stopped] == ["conflict"]
        assert await managed.call("items", lambda store: store.conversations.items(*KEY)) == ()

    run(work)


def test_end_that_is_written_twice_is_added_once() -> None:
    async def work(managed: ManagedStore) -> None:
        held = HeldConversation(managed, KEY, "resp_1")
        await held.take()
        await held.add_input(read_input(b'{"input":"hi"}'))
        end = AnswerEnd(id="resp_1", status="completed", body=BODY)
        await held.add(end)
        await held.add(end)  # the first write was stopped, and had happened
        found = await managed.call("items", lambda store: store.conversations.items(*KEY))
        assert len(found) == 2

    run(work)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_hold_is_given_back_if_no_keeper_takes_it(is_cancelled: bool) -> None:
    async def work(managed: ManagedStore) -> None:
        async def fail() -> None:
            held = HeldConversation(managed, KEY, "resp_1")
            with held.given_back():
                await held.take()
                if is_cancelled:
                    raise asyncio.CancelledError
                raise RequestRefused("no")

        with pytest.raises((RequestRefused, asyncio.CancelledError)):
            await fail()
        await settled()
        assert await is_free(managed)

    run(work)


def test_keeper_that_closes_gives_the_hold_back() -> None:
    async def work(managed: ManagedStore) -> None:
        held = HeldConversation(managed, KEY, "resp_1")
        await held.take()
        keeper = keeper_of(managed, [])
        keeper.hold(held)
        assert not await is_free(managed)
        keeper.close()
        await settled()
        assert await is_free(managed)

    run(work)
