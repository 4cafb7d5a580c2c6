"""The stream of a response that still runs: what was told of it so far, and then what is told as it comes.

On the node that runs it, a follower hears each event a moment after the first client did, but for the end: that comes from the
store, when it is there. On another node nothing is known of it until it is over: the connection is kept open, and then
everything is told at once.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from dragoman.dialects.responses import failed_event
from dragoman.errors import StoreError
from dragoman.server.state.holding import StoreHolder
from dragoman.server.state.replaying import Replay
from dragoman.sse import encode_comment
from dragoman.store.base import Key
from dragoman.store.records import Told

__all__ = ("follow",)

POLL_SECONDS = 0.5
"""How late a follower on another node hears of the end."""

KEEP_ALIVE_SECONDS = 10.0
"""Without a word, proxies and clients take a connection for dead: the usual patience is a minute."""


async def follow(
    holder: StoreHolder,
    key: Key,
    after: int | None,
    tell: Callable[[Told], tuple[bytes | None, bytes]],
) -> AsyncIterator[bytes]:
    """The events after a number. `tell`: the stream of what is stored, if it has one, and the response object."""
    replay = Replay(after)
    spoke = time.monotonic()
    place = 0
    while (running := holder.find(key)) is not None:
        data = running.told_from(place)
        place += len(data)
        frames = replay.feed(data)
        if frames:
            spoke = time.monotonic()
            yield frames
        elif not data:
            more = running.more()
            await asyncio.wait((more,), timeout=KEEP_ALIVE_SECONDS)
            if not more.done():
                yield encode_comment("keep-alive")
    try:
        while True:
            told = await holder.ask("read", lambda store: store.told(*key, stream=True))
            if told.head.status != "in_progress":
                break
            if time.monotonic() - spoke > KEEP_ALIVE_SECONDS:
                spoke = time.monotonic()
                yield encode_comment("keep-alive")
            await asyncio.sleep(POLL_SECONDS)
    except StoreError:
        return  # a stream without an end is heard as one that was cut
    stream, body = tell(told)
    yield replay.rest(stream) if stream is not None else failed_event(body, replay.last + 1)
