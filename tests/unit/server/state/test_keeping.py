"""An answer on its way into the store, and an end that comes twice."""

import asyncio

from dragoman.core.fold import unfold
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.translate import make_encoder
from dragoman.model.outcome import Choice, Outcome
from dragoman.model.parts import Text
from dragoman.model.request import Request
from dragoman.server.state.holding import StoreHolder
from dragoman.server.state.keeping import Keeper, Kept
from dragoman.store.settings import StoreSettings

ID = "resp_1"
KEY = ("owner", ID)


def stream_of(text: str) -> bytes:
    choice = Choice(parts=(Text(text=text),), finish="stop")
    outcome = Outcome(response_id=ID, model="m", choices=(choice,), completed=True)
    encoder = make_encoder("responses", EncodeContext(response_id=ID, created=7))
    return encoder.encode_all(unfold(outcome)) + encoder.close()


def keeper_of(holder: StoreHolder) -> Keeper:
    kept = Kept(owner="owner", door="responses", request=Request(model="m"), response_id=ID)
    return Keeper(holder, kept, lambda _: None, 7.0)


def holder_of() -> StoreHolder:
    def note(_operation: str, _outcome: str, _seconds: float) -> None:
        return

    return StoreHolder(StoreSettings(url="memory:"), note, lambda _: None)


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
