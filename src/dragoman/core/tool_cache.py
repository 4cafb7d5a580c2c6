"""Tools that were read before: clients send the same list with every request of a session, up to hundreds of kilobytes.

`remembered` keeps what a reader made of the same bytes; `CachedTools` is a tuple of tools that remembers what was made of it in
turn (names, the list as a target is sent it). Both only save work: whatever comes out equals what would have been made
anew, so it must be a function of the bytes, the tools and the key alone, and nobody may change it.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import TypeVar

from dragoman._json import Raw
from dragoman.core.losses import LossBook
from dragoman.model.outcome import Loss
from dragoman.model.request import Tool

T = TypeVar("T")

# Distinct lists of tools in use at a time: agents at work, with their subagents. With the next constant this bounds what
# the sources take to 16 MiB in each dialect.
MAX_LISTS = 64
# Coding agents send 60 to 100 KiB, with many MCP servers twice that. Longer lists are read each time.
MAX_SOURCE = 262_144
# A list is written for a handful of targets; a caller whose keys never repeat must not fill the memory.
MAX_MADE = 32


_NOTHING = object()


class CachedTools(tuple[Tool, ...]):  # noqa: SLOT001 -- a tuple can have no slot with a value
    """A tuple of tools, equal to the plain one. `made` is for `made_of` alone."""

    made: dict[Hashable, object]

    def __init__(self, _tools: Iterable[Tool] = (), /) -> None:
        self.made = {}


def remembered(read: Callable[[Raw], T]) -> Callable[[Raw], T]:
    """The same reader, which looks at the same bytes once. What it raises is raised each time."""

    @lru_cache(MAX_LISTS)
    def recall(source: bytes) -> T:
        # From a copy: what is kept must not hold on to the whole request that it came in.
        return read(Raw(source))

    def look_up(value: Raw) -> T:
        source = bytes(value)
        return recall(source) if len(source) <= MAX_SOURCE else read(value)

    return look_up


def written_once(
    tools: tuple[Tool, ...], key: Hashable, book: LossBook, write: Callable[[LossBook], T]
) -> T:
    """What `write` makes of the tools, made once for each key and policy; its losses are noted each time."""

    def make() -> tuple[T, tuple[Loss, ...]]:
        fresh = book.fresh()
        return write(fresh), fresh.losses

    written, losses = made_of(tools, (key, book.rules), make)
    book.add(losses)
    return written


def made_of(tools: tuple[Tool, ...], key: Hashable, make: Callable[[], T]) -> T:
    """What `make` makes of the tools, made once for each key where they are `CachedTools`."""
    if not isinstance(tools, CachedTools):
        return make()
    made = tools.made
    found = made.get(key, _NOTHING)
    if found is _NOTHING:
        if len(made) >= MAX_MADE:
            made.clear()
        found = made[key] = make()
    return found  # type: ignore[return-value]  # a key stands for a type; a cast is a call, and there are many
