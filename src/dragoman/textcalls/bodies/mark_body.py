"""Markup that is no call: marks around channels, which nobody should see, and what a model thinks aloud between them."""

from msgspec import Struct

from dragoman.textcalls.block import Block
from dragoman.textcalls.tape import Wait
from dragoman.textcalls.words import words

__all__ = ("MarkBody", "ThoughtBody")


class MarkBody(Struct, frozen=True, kw_only=True):
    """The opener is a mark, up to one of `ends` where it has any: it is taken out of the text."""

    ends: tuple[str, ...] = ()

    def parse(self, block: Block) -> Wait[None]:
        if self.ends:
            yield from block.read(words(*self.ends), block.limits.max_name, forbid="\n")
        yield from block.confirm()
        block.stop = block.at


class ThoughtBody(Struct, frozen=True, kw_only=True):
    """The opener begins thinking, which goes on to one of `ends` or to the end of the text."""

    ends: tuple[str, ...]

    def parse(self, block: Block) -> Wait[None]:
        yield from block.confirm()
        yield from block.until(words(*self.ends), block.thought)
        block.stop = block.at
