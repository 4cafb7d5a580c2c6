"""Threads for work on large values: reading, translating, writing and compressing them would block the event loop too long.

A thread that runs Python releases the interpreter's lock every few milliseconds; only a single call into C does not.
The input of such a call is bounded where the bytes are received (`_json.MAX_VALUES`, the limits of bodies and frames).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Bytes. About a millisecond of writing and compressing, or a few of translating; a change of threads costs a tenth of that.
LARGE = 256 * 1024

# Each busy thread makes the event loop wait longer for the lock; a second thread lets a short job overtake a long one.
_THREADS = 2
_pool = ThreadPoolExecutor(_THREADS, "dragoman-work")


async def offload(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` and return its result: in the caller's thread if `size`, in bytes, is small, else in another thread.

    If the caller is cancelled, the cancellation takes effect when the thread is done: until then the thread owns the values.
    """
    if size < LARGE:
        return work(*args, **kwargs)
    loop = asyncio.get_running_loop()
    return await to_its_end(loop.run_in_executor(_pool, partial(work, *args, **kwargs)))


async def to_its_end(future: "asyncio.Future[T]", stop: Callable[[], None] | None = None) -> T:
    """The result of work in another thread. If the caller is cancelled, this calls `stop` and waits until the work has ended."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if stop is not None:
            stop()
        while not future.done():
            # Wait for the work even if the caller is cancelled again.
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        if not future.cancelled():
            future.exception()  # retrieved, or asyncio logs "exception was never retrieved"
        raise
