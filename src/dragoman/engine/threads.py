"""Runs blocking work in a thread of its own and awaits it.

Each piece of work has its own daemon thread instead of one from a pool: a tool that hangs must not keep other tools from
running or the program from ending, and the event loop's pool does both.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from dragoman.offload import to_its_end

T = TypeVar("T")


async def run_detached(work: Callable[[], T], name: str) -> T:
    """The result of the work. If the caller is cancelled, the thread runs on: Python cannot stop it."""
    return await _start(work, name)


async def run_to_end(work: Callable[[], T], name: str, stop: Callable[[], None] | None = None) -> T:
    """The result of the work. If the caller is cancelled, this calls `stop` and waits until the work has ended."""
    return await to_its_end(_start(work, name), stop)


def _start(work: Callable[[], T], name: str) -> "asyncio.Future[T]":
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(work))
        except (StopIteration, CancelledError) as error:
            # asyncio's futures refuse the first, and take the second for a cancellation of the caller.
            future.set_exception(RuntimeError(f"the work raised {error!r}"))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=f"dragoman-{name}", daemon=True).start()
    return asyncio.wrap_future(future)
