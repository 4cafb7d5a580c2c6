"""Work that blocks, in a thread of its own, awaited.

Each piece of work has its own daemon thread, not one of a pool: a tool that hangs must neither keep the others from being
run nor the program from ending, and a pool of the event loop does both.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

__all__ = ("let_go", "run_to_end")

T = TypeVar("T")


async def let_go(work: Callable[[], T], name: str) -> T:
    """What the work gives. When it is cancelled the thread is left to itself: Python cannot stop one."""
    return await _started(work, name)


async def run_to_end(work: Callable[[], T], name: str, stop: Callable[[], None] | None = None) -> T:
    """What the work gives. When it is cancelled, `stop` tells it to end, and its end is waited for."""
    future = _started(work, name)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if stop is not None:
            stop()
        while not future.done():
            # However often one is cancelled: what was begun is not left behind.
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        future.exception()  # nobody is left to be told
        raise


def _started(work: Callable[[], T], name: str) -> "asyncio.Future[T]":
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            settle = partial(_give, future, context.run(work))
        except BaseException as error:
            settle = partial(_fail, future, error)
        with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name=f"dragoman-{name}", daemon=True).start()
    return future


def _give(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if isinstance(error, StopIteration):  # a future refuses it, as a coroutine does
        error = RuntimeError(f"the work raised {error!r}")
    if not future.done():
        future.set_exception(error)
