"""Runs blocking work in a thread of its own and awaits it.

Each piece of work has its own daemon thread instead of one from a pool: a tool that hangs must not keep other tools from
running or the program from ending, and the event loop's pool does both.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def run_detached(work: Callable[[], T], name: str) -> T:
    """The result of the work. If the caller is cancelled, the thread runs on: Python cannot stop it."""
    return await _start(work, name)


async def run_to_end(work: Callable[[], T], name: str, stop: Callable[[], None] | None = None) -> T:
    """The result of the work. If the caller is cancelled, this calls `stop` and waits until the work has ended."""
    future = _start(work, name)
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
        future.exception()  # mark the exception as retrieved: no task awaits the future any more
        raise


def _start(work: Callable[[], T], name: str) -> "asyncio.Future[T]":
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            settle = partial(_set_result, future, context.run(work))
        except BaseException as error:
            settle = partial(_set_exception, future, error)
        with suppress(RuntimeError):  # the loop is closed, so no task waits for the result
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name=f"dragoman-{name}", daemon=True).start()
    return future


def _set_result(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)


def _set_exception(future: "asyncio.Future[T]", error: BaseException) -> None:
    if isinstance(error, StopIteration):  # futures, like coroutines, refuse this exception
        error = RuntimeError(f"the work raised {error!r}")
    if not future.done():
        future.set_exception(error)
