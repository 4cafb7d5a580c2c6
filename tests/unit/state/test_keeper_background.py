"""A background response on its way into the store: begun before anything is sent, appended, ended once."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from msgspec import structs

from dragoman._json import Raw
from dragoman.config.settings import StoreSettings
from dragoman.core.fold import unfold
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses.encode import queue_response
from dragoman.dialects.translate import make_encoder
from dragoman.errors import StoreConflict, StoreMissing
from dragoman.model.outcome import Choice, ErrorInfo, Outcome
from dragoman.model.parts import Extra, Text
from dragoman.model.request import Request
from dragoman.state import keeper as keeper_module
from dragoman.state.endpoints import follow
from dragoman.state.keeper import Keeper
from dragoman.state.managed_store import ManagedStore
from dragoman.store.engine_store import Store
from dragoman.store.records import Draft, Stored

ID = "resp_dgm1"
KEY = ("owner", ID)
REQUEST = Request(model="m", extra=Extra("responses", {"background": Raw(b"true")}))
Json = dict[str, Any]


def bounded(main: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


class Run:
    """One background response, from its queue to its end."""

    def __init__(self, **changes: float) -> None:
        def note(_operation: str, _outcome: str, _seconds: float) -> None:
            return

        settings = structs.replace(StoreSettings(url="memory:"), **changes)
        self.stopped: list[ErrorInfo] = []
        self.holder = ManagedStore(settings, note, lambda _: None)
        self.keeper = self._keeper()
        self.first = self.last = b""

    def _keeper(self) -> Keeper:
        draft = Draft(
            id=ID, owner="owner", created=7.0, door="responses", request=REQUEST, background=True
        )
        return Keeper(self.holder, draft, self.stopped.append)

    async def queue(self) -> None:
        context = EncodeContext(response_id=ID, created=7, request=REQUEST, is_queued=True)
        await self.keeper.queue(*queue_response(context))

    def say(self, text: str) -> None:
        """Take all of an answer but its end."""
        notes = self.keeper.expect("local", "openai")
        context = EncodeContext(
            response_id=ID, created=7, request=REQUEST, is_queued=True, notes=notes
        )
        encoder = make_encoder("responses", context)
        choice = Choice(parts=(Text(text=text),), finish="stop")
        outcome = Outcome(response_id="other", model="m", choices=(choice,), completed=True)
        stream = encoder.encode_all(unfold(outcome)) + encoder.close()
        cut = stream.index(b"event: response.completed")
        self.first, self.last = stream[:cut], stream[cut:]
        self.keeper.take(self.first)

    async def call(self, work: Callable[[Store], Awaitable[Any]]) -> Any:
        return await self.holder.call("test", work)

    async def stored(self) -> Stored:
        found: Stored = await self.call(lambda store: store.read(*KEY, stream=True))
        return found

    async def body(self) -> Json:
        found: Json = json.loads((await self.stored()).body)
        return found

    async def followed(self) -> list[Json]:
        data = b"".join([piece async for piece in follow(self.holder, KEY, None)])
        lines = data.decode().split("\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]

    async def close(self) -> None:
        self.keeper.close()
        await self.holder.close()


async def until(is_true: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(3000):
        if await is_true():
            return
        await asyncio.sleep(0.01)
    pytest.fail("waited too long")


def test_it_is_stored_as_queued_before_anything_is_sent() -> None:
    async def main() -> None:
        run = Run()
        await run.queue()
        body = await run.body()
        assert (body["id"], body["status"], body["output"]) == (ID, "queued", [])
        assert (body["background"], body["created_at"]) == (True, 7)
        assert run.keeper.key == KEY
        assert run.holder.find(KEY) is run.keeper
        await run.close()

    bounded(main())


def test_what_is_sent_is_appended_and_replaced_by_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "APPEND_SECONDS", 0.01)

    async def main() -> None:
        run = Run()
        await run.queue()

        async def sent() -> bytes:
            progress = await run.call(lambda store: store.progress(*KEY))
            found: bytes = progress.sent
            return found

        await until(lambda: _is(sent, lambda data: data.count(b"event: ") == 2))
        assert (await run.body())["status"] == "queued"
        run.say("Hello.")
        await until(lambda: _is(sent, lambda data: data.endswith(run.first)))
        assert (await run.body())["status"] == "in_progress"
        whole = await sent()
        assert await run.keeper.end_stream(run.last) == run.last
        stored = await run.stored()
        assert stored.stream == whole + run.last
        assert await sent() == b""
        run.keeper.close()
        events = await run.followed()
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        kinds = [event["type"] for event in events]
        assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"]
        await run.close()

    bounded(main())


async def _is(read: Callable[[], Awaitable[bytes]], holds: Callable[[bytes], bool]) -> bool:
    return holds(await read())


def test_an_answer_too_large_for_the_store_is_a_failure_that_says_so() -> None:
    async def main() -> None:
        run = Run(max_record_bytes=2000)
        await run.queue()
        text = "".join(chr(0x4E00 + number * 7 % 20000) for number in range(3000))
        run.say(text)
        sent = await run.keeper.end_stream(run.last)
        assert b"response.completed" not in sent
        body = await run.body()
        assert body["status"] == "failed"
        assert "2,000 bytes" in body["error"]["message"]
        await run.close()
        assert run.keeper.problem is not None

    bounded(main())


def test_an_answer_that_was_cancelled_meanwhile_stays_cancelled() -> None:
    async def main() -> None:
        run = Run()
        await run.queue()
        run.say("Hello.")
        await run.call(lambda store: store.cancel(*KEY))
        assert b"response.failed" in await run.keeper.end_stream(run.last)
        assert (await run.stored()).head.status == "cancelled"
        await run.close()

    bounded(main())


def test_an_answer_that_was_deleted_meanwhile_stays_deleted() -> None:
    async def main() -> None:
        run = Run()
        await run.queue()
        run.say("Hello.")
        await run.call(lambda store: store.delete(*KEY))
        await run.keeper.end_stream(run.last)
        with pytest.raises(StoreMissing):
            await run.stored()
        await run.close()

    bounded(main())


def test_an_end_that_is_written_twice_is_one_end() -> None:
    async def main() -> None:
        run = Run()
        await run.queue()
        run.say("Hello.")
        assert await run.keeper.end_stream(run.last) == run.last
        assert await run.keeper.end_stream(run.last) == run.last
        assert (await run.stored()).head.status == "completed"
        await run.close()

    bounded(main())


def test_an_end_after_the_lease_changes_nothing() -> None:
    """Pollers have seen that it failed."""

    async def main() -> None:
        run = Run(lease=0.05)
        await run.queue()
        run.say("Hello.")
        # Nobody renews it, as if the process had been stopped.
        run.holder.running.discard(run.keeper)
        await until(lambda: _has_failed(run))
        assert b"response.failed" in await run.keeper.end_stream(run.last)
        assert (await run.stored()).head.status == "failed"
        with pytest.raises(StoreConflict):
            await run.call(lambda store: store.begin(_again()))
        await run.close()

    bounded(main())


async def _has_failed(run: Run) -> bool:
    return (await run.stored()).head.status == "failed"


def _again() -> Draft:
    return Draft(id=ID, owner="owner", created=8.0, door="responses", request=REQUEST)


def test_a_response_without_a_lease_is_stopped() -> None:
    async def main() -> None:
        run = Run(lease=0.3)
        await run.queue()

        # The clock jumps: no renewal comes in time. (Renewals are due every third of a lease.)
        async def lapse(store: Store) -> None:
            engine = store._engine  # pyright: ignore[reportPrivateUsage] - no caller shortens a lease
            await engine.renew([KEY], 0.0, time.time())

        await run.call(lapse)

        async def is_stopped() -> bool:
            return bool(run.stopped)

        await until(is_stopped)
        await run.close()

    bounded(main())


def test_a_response_that_never_ended_was_not_cancelled() -> None:
    async def main() -> None:
        run = Run(lease=0.3)
        await run.queue()
        run.keeper.close()
        await until(lambda: _has_failed(run))
        events = await run.followed()
        assert events[-1]["type"] == "response.failed"
        assert "ended before" in events[-1]["response"]["error"]["message"]
        await run.holder.close()

    bounded(main())


def test_a_follower_gets_the_end_of_a_stream_that_is_too_large_to_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper_module, "MAX_STREAM_BYTES", 100)

    async def main() -> None:
        run = Run()
        await run.queue()
        live = follow(run.holder, KEY, None)
        seen = await anext(live)
        assert seen.count(b"event: ") == 2
        run.say("Hello.")
        assert await run.keeper.end_stream(run.last) == run.last
        assert (await run.stored()).stream is None
        run.keeper.close()
        (last,) = [piece async for piece in live]
        event = json.loads(last.split(b"data: ")[1])
        assert (event["type"], event["sequence_number"]) == ("response.completed", 2)
        assert event["response"] == await run.body()
        await run.holder.close()

    bounded(main())


def test_a_gateway_that_is_closed_does_not_wait_for_its_store() -> None:
    async def main() -> None:
        run = Run()
        await run.queue()
        run.say("Hello.")
        await run.holder.close()
        assert b"response.failed" in await run.keeper.end_stream(run.last)
        run.keeper.close()

    bounded(main())
