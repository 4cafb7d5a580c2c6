"""Writes the cache breakpoints of a request: the client's, and those that the gateway adds for clients that cannot set any.

The vendor caches a prompt up to a breakpoint, in the order tools, system, messages. It takes four. The position of a breakpoint is
not part of the prompt, so breakpoints may move from request to request. The gateway adds three (`Target.cache`):

1. on the last block of the last message: the next request of the conversation reads the cache up to there;
2. on the last system block, or without a system text on the last tool: other conversations read the cache up to there;
3. on the last block of the user's message before: the breakpoint of the request before. The vendor looks back only 20 blocks
   from a breakpoint, which a turn with many parallel calls exceeds.

Client's breakpoints come first, the latest four or, beside the gateway's, the latest three, as OpenAI counts them. A client
that uses this vendor's own form places all breakpoints itself.
"""

from collections.abc import Iterator, Sequence
from typing import cast

from msgspec import Struct

from dragoman._json import Raw
from dragoman.core.losses import LossBook
from dragoman.core.prompt_cache import seconds_of
from dragoman.dialects.codec import Target
from dragoman.dialects.messages.losses import note_foreign
from dragoman.dialects.messages.render import Block
from dragoman.dialects.messages.wire import CACHE_CONTROL, CACHEABLE
from dragoman.model.parts import Breakpoint
from dragoman.model.request import CacheSettings

MAX_BREAKPOINTS = 4
"""The vendor answers 400 to a request with more."""

_KEY = "cache_control"
_EXPLICIT = "explicit"
_THINKING = frozenset({"thinking", "redacted_thinking"})
# Clients that ask for this many seconds expect more than the vendor's five minutes. OpenAI's shortest is half an hour.
_LONG = 1800
_HOUR = "1h"


class ToolBreakpoints(Struct, frozen=True):
    """The breakpoints of the list of tools. `kept`: how many of the client's remain, the latest; None: all.

    added: how long one on the last tool lasts; None: none is added.
    """

    kept: int | None = None
    added: str | None = None

    def settle(self, tools: Sequence[Block]) -> int:
        """Change the breakpoints of these tools, and return how many there are."""
        marked = [tool for tool in tools if _KEY in tool]
        if self.kept is not None:
            for tool in marked[: len(marked) - self.kept]:
                del tool[_KEY]
        if self.added is not None:
            # The vendor refuses a breakpoint on a tool that it does not show to the model.
            shown = [tool for tool in tools if not is_deferred(tool)]
            for tool in shown[-1:]:
                tool[_KEY] = _lasting(self.added)
        return len(marked)


NO_CHANGE = ToolBreakpoints()


class BreakpointWriter:
    """Writes the breakpoints of one request."""

    def __init__(self, target: Target, book: LossBook) -> None:
        self._target = target
        self._book = book
        self._count = 0
        self._is_alone = False

    def put(self, blocks: Sequence[Block], point: Breakpoint | None, where: str) -> None:
        """Set a client's breakpoint on the last block that is not thinking, in place of the one that it has."""
        if point is None:
            return
        for block in reversed(blocks):
            if block.get("type") not in _THINKING:
                block[_KEY] = self.written(point, where)
                return

    def written(self, point: Breakpoint, where: str) -> Block:
        """A client's breakpoint as this vendor writes it."""
        self._count += 1
        if point.alone:
            self._is_alone = True
            return CACHE_CONTROL.write(point)
        note_foreign(
            self._book, point.extra, f"{where}.prompt_cache_breakpoint", known=("mode", "ttl")
        )
        self._note_ttl(point.ttl, f"{where}.prompt_cache_breakpoint.ttl")
        return _lasting(self._target.cache_ttl)

    def settle(
        self,
        settings: CacheSettings | None,
        system: Sequence[Block],
        messages: Sequence[tuple[str, Sequence[Block]]],
        tool_count: int,
        tool_points: int,
    ) -> ToolBreakpoints:
        """Remove the breakpoints that are too many, and add the gateway's. Return what changes in the list of tools."""
        is_alone = self._is_alone or tool_points > 0
        adds = self._target.cache and not is_alone
        if settings is not None:
            self._note_settings(settings)
            adds = adds and settings.mode != _EXPLICIT and settings.last is None
        if not self._count and not tool_points:
            return self._add(system, messages, tool_count, MAX_BREAKPOINTS) if adds else NO_CHANGE
        marked = [*_marked(system), *(each for _, blocks in messages for each in _marked(blocks))]
        # The gateway's on the last block, or the vendor's in its place, is one of the four.
        is_full = adds or (settings is not None and settings.last is not None)
        surplus = len(marked) + tool_points - MAX_BREAKPOINTS + is_full
        dropped_tools = min(max(surplus, 0), tool_points)
        if surplus > 0:
            if is_alone:
                self._book.note("cache_breakpoints", _KEY, f"{surplus} too many")
            for block in marked[: surplus - dropped_tools]:
                del block[_KEY]
        if adds:
            return self._add(system, messages, tool_count, MAX_BREAKPOINTS - min(len(marked), 3))
        return ToolBreakpoints(kept=tool_points - dropped_tools) if dropped_tools else NO_CHANGE

    def _add(
        self,
        system: Sequence[Block],
        messages: Sequence[tuple[str, Sequence[Block]]],
        tool_count: int,
        room: int,
    ) -> ToolBreakpoints:
        """Add the gateway's breakpoints as far as there is room, in the order of their use."""
        ends = _ends(messages)
        last = next(ends, None)
        before = next((block for role, block in ends if role == "user"), None)
        head = next((block for block in reversed(system) if block.get("type") in CACHEABLE), None)
        tools = NO_CHANGE
        for place, block in (("last", last and last[1]), ("head", head), ("before", before)):
            if room and block is not None and _KEY not in block:
                block[_KEY] = _lasting(self._target.cache_ttl)
                room -= 1
            elif (
                room and place == "head" and not system and tool_count and self._target.cached_tools
            ):
                tools = ToolBreakpoints(added=self._target.cache_ttl)
                room -= 1
        return tools

    def _note_settings(self, settings: CacheSettings) -> None:
        note_foreign(self._book, settings.extra, "prompt_cache_options")
        self._note_ttl(settings.ttl, "prompt_cache_options.ttl")
        self._note_ttl(settings.retention, "prompt_cache_retention")

    def _note_ttl(self, ttl: str | None, where: str) -> None:
        if self._target.cache_ttl != _HOUR and (seconds_of(ttl) or 0) >= _LONG:
            self._book.note("cache_ttl", where, ttl or "")


def _lasting(ttl: str) -> Block:
    return CACHE_CONTROL.write(Breakpoint(ttl=ttl if ttl == _HOUR else None))


def is_deferred(tool: Block) -> bool:
    """Whether a tool is hidden from the model until a search finds it."""
    flag = tool.get("defer_loading")
    return flag is True or (isinstance(flag, Raw) and bytes(flag) == b"true")


def _marked(blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks that have a breakpoint, also those inside results, in their order."""
    for block in blocks:
        content = block.get("content")
        if isinstance(content, list):
            yield from _marked(cast("list[Block]", content))
        if _KEY in block:
            yield block


def _ends(messages: Sequence[tuple[str, Sequence[Block]]]) -> Iterator[tuple[str, Block]]:
    """The last block of each message that takes a breakpoint, from the last message on."""
    for role, blocks in reversed(messages):
        if role != "system":
            for block in reversed(blocks):
                if block.get("type") in CACHEABLE:
                    yield role, block
                    break
