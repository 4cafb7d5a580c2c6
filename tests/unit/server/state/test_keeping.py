"""An answer on its way into the store: what may be told ahead of its end, and an end that comes twice."""

import asyncio

from dragoman.core.fold import unfold
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.translate import make_encoder
from dragoman.model.outcome import Choice, Outcome
from dragoman.model.parts import Dialect, Text
from dragoman.model.request import Request
from dragoman.server.state.holding import StoreHolder
from dragoman.server.state.keeping import Keeper, Kept
from dragoman.store.settings import StoreSettings

ID = "resp_1"
KEY = ("owner", ID)


def stream_of(text: str, door: str = "responses") -> bytes:
    choice = Choice(parts=(Text(text=text),), finish="stop")
    outcome = Outcome(response_id=ID, model="m", choices=(choice,), completed=True)
    encoder = make_encoder(door, EncodeContext(response_id=ID, created=7))
    return encoder.encode_all(unfold(outcome)) + encoder.close()


def keeper_of(holder: StoreHolder, door: Dialect = "responses") -> Keeper:
    kept = Kept(owner="owner", door=door, request=Request(model="m"), response_id=ID)
    return Keeper(holder, kept, lambda _: None, 7.0)


def holder_of() -> StoreHolder:
    def note(_operation: str, _outcome: str, _seconds: float) -> None:
        return

    return StoreHolder(StoreSettings(url="memory:"), note, lambda _: None)


def test_a_short_answer_is_told_with_its_end_and_a_long_one_ahead_of_it() -> None:
    holder = holder_of()
    short, long = stream_of("x" * 100), stream_of("x" * 20_000)
    assert keeper_of(holder).ahead(short) == 0
    place = keeper_of(holder).ahead(long)
    assert long[place:].startswith(b"event: response.completed\n")
    # A thread ends in two frames, of which the first is told of by no other.
    assert keeper_of(holder, "messages").ahead(stream_of("x" * 20_000, "messages")) == 0


def test_what_was_told_ahead_is_found_while_the_end_is_stored() -> None:
    async def run() -> None:
        holder = holder_of()
        keeper = keeper_of(holder)
        told = stream_of("x" * 20_000)
        ahead = keeper.ahead(told)
        ending = asyncio.create_task(keeper.end_stream(told, ahead))
        await asyncio.sleep(0)
        running = holder.find(KEY)
        assert running is not None
        assert running.told_from(0) == told[:ahead]
        assert await ending == told[ahead:]
        kept = await holder.ask("read", lambda store: store.told(*KEY, stream=True))
        assert kept.stream == told
        keeper.close()
        await holder.close()

    asyncio.run(run())


def test_an_answer_that_is_stopped_while_it_is_stored_is_kept_once() -> None:
    async def run() -> None:
        holder = holder_of()
        keeper = keeper_of(holder)
        told = stream_of("x" * 20_000)
        ahead = keeper.ahead(told)
        first = asyncio.create_task(keeper.end_stream(told, ahead))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert await keeper.end_stream(told[ahead:]) == told[ahead:]
        kept = await holder.ask("read", lambda store: store.told(*KEY, stream=True))
        assert kept.stream == told
        keeper.close()
        await holder.close()

    asyncio.run(run())
