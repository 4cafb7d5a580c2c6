"""A body behind a header that says nothing we need: everything up to `ends` is passed, then `body` reads on."""

from msgspec import Struct

from dragoman.textcalls.block import Block
from dragoman.textcalls.patterns import Body
from dragoman.textcalls.tape import Wait
from dragoman.textcalls.words import words

__all__ = ("LedBody",)


class LedBody(Struct, frozen=True, kw_only=True):
    ends: tuple[str, ...]
    body: Body

    def parse(self, block: Block) -> Wait[None]:
        yield from block.read(words(*self.ends), block.limits.max_name, forbid="\n")
        yield from self.body.parse(block)
