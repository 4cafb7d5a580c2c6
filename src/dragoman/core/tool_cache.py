"""Caches for tools: clients send the same list with every request of a session, up to hundreds of kilobytes.

`remembered` caches the result of a reader by the bytes it read; `CachedTools` is a tuple of tools that caches values derived
from it (names, the encoded list for a target). Both only save work, so a cached value must depend on the bytes, the tools
and the key alone, and must never be changed.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import TypeVar, TypeVarTuple, cast

from dragoman._json import Raw
from dragoman.core.losses import LossBook
from dragoman.model.outcome import Loss
from dragoman.model.request import Tool

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Distinct lists of tools in use at a time: agents and their subagents. With the next constant this bounds the cached
# bytes to 16 MiB in each dialect.
MAX_LISTS = 64
# Bytes. Coding agents send 60 to 100 KiB, with many MCP servers twice that. Longer lists are not cached.
MAX_SOURCE = 262_144
# A list is encoded for a handful of targets; a caller whose keys never repeat must not fill the memory.
MAX_MADE = 32
# Characters. Some keys have names that the client chose, as many and as long as a request may have. A value with a longer key
# is made each time; the keys of agents, with the names of a hundred tools, are shorter.
MAX_KEY = 32_768


class CachedTools(tuple[Tool, ...]):  # noqa: SLOT001 -- a tuple can have no slot with a value
    """A tuple of tools, equal to the plain tuple. Only `made_of` uses `made`."""

    made: dict[Hashable, object]

    def __init__(self, _tools: Iterable[Tool] = (), /) -> None:
        self.made = {}


def remembered(read: Callable[[Raw], T]) -> Callable[[Raw], T]:
    """A reader that caches its results by the bytes. Exceptions are not cached."""

    @lru_cache(MAX_LISTS)
    def recall(source: bytes) -> T:
        # From a copy: a cached value must not keep the whole request alive.
        return read(Raw(source))

    def look_up(value: Raw) -> T:
        source = bytes(value)
        return recall(source) if len(source) <= MAX_SOURCE else read(value)

    return look_up


def written_once(
    tools: tuple[Tool, ...],
    key: Hashable,
    book: LossBook,
    write: Callable[[LossBook, *Ts], T],
    *arguments: *Ts,
) -> T:
    """The result of `write`, cached for each key and policy; its losses are recorded in `book` each time."""
    full_key = (key, book.rules) if book.policy else key
    written, losses = made_of(tools, full_key, _written, book, write, *arguments)
    if losses:
        book.add(losses)
    return written


def _written(
    book: LossBook, write: Callable[[LossBook, *Ts], T], *arguments: *Ts
) -> tuple[T, tuple[Loss, ...]]:
    fresh = book.fresh()
    return write(fresh, *arguments), fresh.losses


def made_of(tools: tuple[Tool, ...], key: Hashable, make: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """The result of `make`, cached for each key if the tools are `CachedTools`.

    The arguments are passed on, so that callers need no closures: every request would create them, and nearly none call them.
    """
    if type(tools) is not CachedTools:
        return make(*arguments)
    made = tools.made
    try:
        return made[key]  # type: ignore[return-value]  # a key stands for a type; a cast is a call, and there are many
    except KeyError:
        pass  # `make` is called outside, so that its exceptions have no context
    found = make(*arguments)
    if _size_of(key) <= MAX_KEY:
        if len(made) >= MAX_MADE:
            made.clear()
        made[key] = found
    return found


def _size_of(key: object) -> int:
    """The characters in a key, approximately."""
    if isinstance(key, str):
        return len(key)
    if isinstance(key, (tuple, frozenset)):
        return 1 + sum(map(_size_of, cast("Iterable[object]", key)))
    return 1
