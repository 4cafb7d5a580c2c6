"""Work that is too long for the event loop is done beside it: writing and compressing what is large."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ("LARGE", "beside")

P = ParamSpec("P")
T = TypeVar("T")

# Bytes. About a millisecond of writing and compressing; a change of threads costs a tenth of that.
LARGE = 256 * 1024


async def beside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns: here if it is about few bytes, else in a thread."""
    if size < LARGE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
