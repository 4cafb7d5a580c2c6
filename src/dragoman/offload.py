"""Threads for work on large values: reading, translating, writing and compressing them would block the event loop too long.

A thread that runs Python gives way every few milliseconds; only a single call into C does not. What such a call may be
given is bounded where the bytes come in (`_json.MAX_VALUES`, the limits of bodies and frames).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Bytes. About a millisecond of writing and compressing, or some of translating; a change of threads costs a tenth of that.
LARGE = 256 * 1024

# Each thread that computes makes the event loop wait for its turn; a second one lets a short job pass a long one.
_THREADS = 2
_pool = ThreadPoolExecutor(_THREADS, "dragoman-work")


async def offload(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` and return its result: here if `size`, in bytes, is small, else in a thread.

    A caller that is cancelled meanwhile is cancelled when the thread is done: until then the thread owns what it works on.
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
