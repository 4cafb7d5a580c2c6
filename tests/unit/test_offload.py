"""Work in another thread: who waits for it, and how long."""

import asyncio
import threading

import pytest

from dragoman.offload import LARGE, offload

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_caller_that_is_cancelled_waits_until_the_thread_is_done(times: int) -> None:
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        begun.set()
        may_end.wait(60)
        done.append("the work")

    async def call() -> None:
        try:
            await offload(LARGE, work)
        finally:
            done.append("the caller")

    task = asyncio.create_task(call())
    await asyncio.to_thread(begun.wait, 60)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["the work", "the caller"]


async def test_an_error_of_the_work_is_the_callers() -> None:
    def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await offload(LARGE, work)
