"""Values for the tests of stores, and stores to test."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

from msgspec import structs

from dragoman._json import dumps_document
from dragoman.config.settings import StoreSettings
from dragoman.model.parts import Part, Text
from dragoman.model.request import Request, Turn
from dragoman.store.engine_store import Store, open_store
from dragoman.store.packing import StreamBuffer
from dragoman.store.records import Draft, StoredEnd

T = TypeVar("T")

OWNER = "owner-1"
BOUND = 30.0
"""Seconds that any one test may take, on a machine with much else to do."""


class Clock:
    """A clock that tests advance."""

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


def ending(text: str = "world", stream: bytes | None = None, **changes: object) -> StoredEnd:
    """An answer that says `text`."""
    content: list[object] = [{"type": "output_text", "text": text, "annotations": ()}]
    message: dict[str, object] = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }
    sent = None if stream is None else StreamBuffer(stream)
    plain = StoredEnd(status="completed", body=body_of(message), stream=sent)
    return structs.replace(plain, **changes)


def said(text: str = "world") -> tuple[Part, ...]:
    """What is read back of such an answer."""
    return (Text(text=text, item_id="msg_1"),)


def call_ending(*call_ids: str, **changes: object) -> StoredEnd:
    """An answer that waits for results."""
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": call_id,
            "name": "f",
            "arguments": "{}",
            "status": "completed",
        }
        for number, call_id in enumerate(call_ids)
    ]
    plain = StoredEnd(status="completed", body=body_of(*calls), open_calls=call_ids)
    return structs.replace(plain, **changes)


def body_of(*items: object) -> bytes:
    """A response with these items."""
    fields = {"id": "resp_1", "object": "response", "status": "completed", "model": "m"}
    return dumps_document({**fields, "output": items})
