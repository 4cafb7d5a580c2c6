"""Work that would hold the event loop too long is done in a thread: reading, translating, writing, compressing what is large.

A thread that runs Python gives way every few milliseconds; only a single call into C does not. What such a call may be
given is bounded where the bytes come in (`_json.MAX_VALUES`, the limits of bodies and frames).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

__all__ = ("LARGE", "beside")

P = ParamSpec("P")
T = TypeVar("T")

# Bytes. About a millisecond of writing and compressing, or some of translating; a change of threads costs a tenth of that.
LARGE = 256 * 1024

# Each thread that computes makes the event loop wait for its turn; a second one lets a short job pass a long one.
_THREADS = 2
_pool = ThreadPoolExecutor(_THREADS, "dragoman-work")


async def beside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns: here if it is about few bytes, else in a thread.

    Whoever is cancelled meanwhile is so when the thread is done: what it works on is its own until then.
    """
    if size < LARGE:
        return work(*args, **kwargs)
    future = asyncio.get_running_loop().run_in_executor(_pool, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not future.done():
            await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # nobody else asks for it
        raise
