"""An answer on its way into the store, and an end that comes twice."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.core.fold import unfold
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.translate import make_encoder
from dragoman.model.outcome import Choice, ErrorInfo, Outcome
from dragoman.model.parts import Text
from dragoman.model.request import Request
from dragoman.server.state import holding
from dragoman.server.state.holding import StoreHolder
from dragoman.server.state.keeping import Keeper, Kept
from dragoman.store.base import Key
from dragoman.store.settings import StoreSettings
from store_help import draft, ending

ID = "resp_1"
KEY = ("owner", ID)


def stream_of(text: str) -> bytes:
    choice = Choice(parts=(Text(text=text),), finish="stop")
    outcome = Outcome(response_id=ID, model="m", choices=(choice,), completed=True)
    encoder = make_encoder("responses", EncodeContext(response_id=ID, created=7))
    return encoder.encode_all(unfold(outcome)) + encoder.close()


def keeper_of(
    holder: StoreHolder,
    stop: Callable[[ErrorInfo], None] = lambda _: None,
    parent: str | None = None,
) -> Keeper:
    """`parent`: the response that it continues by a claim."""
    request = Request(model="m")
    kept = Kept(
        owner="owner",
        door="responses",
        request=request,
        response_id=ID,
        parent=parent,
        claims=parent is not None,
    )
    return Keeper(holder, kept, stop, 7.0)


def holder_of(url: str = "memory:") -> StoreHolder:
    def note(_operation: str, _outcome: str, _seconds: float) -> None:
        return

    return StoreHolder(StoreSettings(url=url), note, lambda _: None)


def test_an_answer_that_is_stopped_while_it_is_stored_is_kept_once() -> None:
    async def run() -> None:
        holder = holder_of()
        keeper = keeper_of(holder)
        told = stream_of("x" * 20_000)
        first = asyncio.create_task(keeper.end_stream(told))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert await keeper.end_stream(told) == told
        kept = await holder.ask("read", lambda store: store.told(*KEY, stream=True))
        assert kept.stream == told
        keeper.close()
        await holder.close()

    asyncio.run(run())


async def claimed(
    holder: StoreHolder, stop: Callable[[ErrorInfo], None] = lambda _: None
) -> Keeper:
    """A response that continues another by a claim, begun."""
    above = structs.replace(draft("above"), owner="owner")
    await holder.ask("store", lambda store: store.put(above, ending()))
    await holder.ask("claim", lambda store: store.claim("owner", "above", by=ID))
    keeper = keeper_of(holder, stop, parent="above")
    await keeper.claim()
    return keeper


def test_a_response_that_is_being_stored_is_not_lost_because_it_runs_no_more(
    tmp_path: Path,
) -> None:
    """Whoever looks for cancelled responses sees in the store that this one has ended, before its own client does."""
    stopped: list[ErrorInfo] = []

    async def run() -> None:
        holder = holder_of(f"sqlite://{tmp_path / 'store.db'}")
        keeper = await claimed(holder, stopped.append)
        told = stream_of("x")
        storing = asyncio.create_task(keeper.end_stream(told))
        lost: frozenset[Key] = frozenset()
        async with asyncio.timeout(10):
            while not lost and not storing.done():
                lost = await holder.ask("look", lambda store: store.lost([KEY]))
        keeper.lose()
        assert await storing == told
        keeper.close()
        await holder.close()

    asyncio.run(run())
    assert stopped == []


@pytest.mark.parametrize("is_claimed", [True, False])
def test_an_end_that_is_stored_twice_is_no_conflict_with_itself(is_claimed: bool) -> None:
    async def run() -> None:
        holder = holder_of()
        keeper = await claimed(holder) if is_claimed else keeper_of(holder)
        told = stream_of("x")
        assert await keeper.end_stream(told) == told
        assert await keeper.end_stream(told) == told
        kept = await holder.ask("read", lambda store: store.told(*KEY, stream=True))
        assert kept.stream == told
        keeper.close()
        await holder.close()

    asyncio.run(run())


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_true():
            return
        await asyncio.sleep(0.01)
    pytest.fail("waited too long")


def test_the_same_answer_that_runs_twice_at_once_ends_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One ends while the other still runs under the same id: that is no cancellation of the other."""
    monkeypatch.setattr(holding, "BEGIN_SECONDS", 0.02)
    monkeypatch.setattr(holding, "LOOK_SECONDS", 0.02)
    stopped: list[ErrorInfo] = []
    looks = 0

    def note(operation: str, _outcome: str, _seconds: float) -> None:
        nonlocal looks
        looks += operation == "look"

    async def run() -> None:
        nonlocal looks
        holder = StoreHolder(StoreSettings(url="memory:"), note, lambda _: None)
        running, other = keeper_of(holder, stopped.append), keeper_of(holder)
        told = stream_of("x")
        first = told[: told.index(b"\n\n") + 2]
        await holder.ask("ping", lambda store: store.ping())
        running.take(first)
        await until(lambda: running.is_begun)
        assert await other.end_stream(told) == told
        looks = 0
        await until(lambda: looks >= 3)
        assert stopped == []
        assert await running.end_stream(told[len(first) :]) == told[len(first) :]
        await holder.ask("cancel", lambda store: store.delete(*KEY))
        kept = keeper_of(holder, stopped.append)
        kept.take(first)
        await until(lambda: kept.is_begun)
        await holder.ask("cancel", lambda store: store.cancel(*KEY))
        await until(lambda: bool(stopped))
        for keeper in (running, other, kept):
            keeper.close()
        await holder.close()

    asyncio.run(run())
