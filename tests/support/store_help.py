"""Values for the tests of stores, and stores to test."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

from msgspec import structs

from dragoman.config.settings import StoreSettings
from dragoman.model.parts import Call, Text
from dragoman.model.request import Request, Turn
from dragoman.store.contract import Store
from dragoman.store.records import Answer, Draft, Ending
from dragoman.store.url import open_store

__all__ = ("BOUND", "OWNER", "Bench", "Clock", "bounded", "call_ending", "draft", "ending")

T = TypeVar("T")

OWNER = "owner-1"
BOUND = 30.0
"""Seconds that any one test may take, on a machine with much else to do."""


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Bench:
    """Where stores of one engine are opened: each `open` on the same state."""

    def __init__(self, url: str) -> None:
        self.clock = Clock()
        self.settings = StoreSettings(url=url, ttl=1000.0)

    @asynccontextmanager
    async def open(self, **changes: float) -> AsyncGenerator[Store, None]:
        store = await open_store(structs.replace(self.settings, **changes), clock=self.clock)
        try:
            yield store
        finally:
            await store.close()

    def run(self, work: Callable[[Store], Awaitable[T]], **changes: float) -> T:
        """What `work` does with an open store."""

        async def main() -> T:
            async with self.open(**changes) as store:
                return await work(store)

        return bounded(main())


def bounded(main: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(main, BOUND))


def draft(name: str = "resp_1", text: str = "hello", **changes: object) -> Draft:
    request = Request(
        model="m", turns=(Turn(role="user", parts=(Text(text=text),)),), temperature=0.5
    )
    plain = Draft(
        id=name, owner=OWNER, created=1_000_000.0, door="responses", request=request, model="m"
    )
    return structs.replace(plain, **changes)


def ending(text: str = "world", **changes: object) -> Ending:
    answer = Answer(parts=(Text(text=text, item_id="msg_1"),), finish="stop")
    body = b'{"id":"resp_1","status":"completed"}'
    return structs.replace(Ending(status="completed", answer=answer, body=body), **changes)


def call_ending(*call_ids: str, **changes: object) -> Ending:
    """An answer that waits for results."""
    calls = tuple(Call(call_id=call_id, name="f", input="{}") for call_id in call_ids)
    answer = Answer(parts=calls, finish="tool_calls")
    plain = Ending(status="completed", answer=answer, body=b"{}", open_calls=call_ids)
    return structs.replace(plain, **changes)
