"""Calls written as Python: `f(a=1, b="x")`, in a list or one a line. Arguments are keywords with literal values.

[f(a=1), g()]        `in_list`
f(a=1)\\ng()          otherwise
"""

import re

from msgspec import Struct

from dragoman.textcalls.block import Block
from dragoman.textcalls.json_text import json_string
from dragoman.textcalls.literals import read_literal
from dragoman.textcalls.tape import SPACE, Wait
from dragoman.textcalls.words import Words

__all__ = ("PythonBody",)

_BRACKET = Words(("[",))
_PARENTHESIS = Words(("(",))
_EQUALS = Words(("=",))
_PRINT = Words(("print(",))
_END = Words((")",))
_NAME = re.compile(r"[^\W\d][\w.\-/:]*")
_NO_NAME = "<>{}[]\"'`=,; \t\r\n"
_KEY = re.compile(r"[^\W\d]\w*")


class PythonBody(Struct, frozen=True, kw_only=True):
    """in_list: the calls stand in brackets; None: with or without. is_opened: the block's opener was the bracket.
    offered_only: a name that was not offered is not even begun to be read as a call. prints: a call may stand in
    `print(…)`, as models do that believe they write a program.
    """

    in_list: bool | None = True
    is_opened: bool = False
    offered_only: bool = False
    prints: bool = False

    def parse(self, block: Block) -> Wait[None]:
        in_list = yield from self._begin(block)
        is_first = True
        while True:
            start = block.at
            yield from block.skip(SPACE)
            is_printed = self.prints and bool((yield from block.match(_PRINT)))
            yield from self._call(block, block.start if is_first else start)
            if is_printed:
                yield from block.skip(SPACE)
                yield from block.expect(_END)
            block.end()
            is_first = False
            if not (yield from self._goes_on(block, in_list=in_list)):
                return
            block.settle_calls()

    def _begin(self, block: Block) -> Wait[bool]:
        """What stands before the first call; whether it is a list."""
        if self.is_opened or self.in_list is False:
            return self.is_opened
        yield from block.skip(SPACE)
        if self.in_list:
            yield from block.expect(_BRACKET)
            return True
        return bool((yield from block.match(_BRACKET)))

    def _goes_on(self, block: Block, *, in_list: bool) -> Wait[bool]:
        """Whether another call follows."""
        if not in_list:
            return (yield from block.skip(SPACE + ";,")) not in ("", "<", "`", "[")
        if (yield from block.skip(SPACE)) == "]":
            block.at += 1
            return False
        if (yield from block.peek()) != ",":
            block.malformed("expected a comma or the end of the list")
        block.at += 1
        return True

    def _call(self, block: Block, start: int) -> Wait[None]:
        name, _ = yield from block.read(_PARENTHESIS, block.limits.max_name, forbid=_NO_NAME)
        if _NAME.fullmatch(name.strip()) is None:
            block.malformed("expected the name of a tool")
        name = name.strip()
        if self.offered_only and not block.is_confirmed and block.offers.resolve(name) is None:
            block.malformed("expected a tool that was offered")
        yield from block.confirm()
        block.begin(name, at=start)
        is_first = True
        while (yield from block.skip(SPACE)) != ")":
            key, _ = yield from block.read(_EQUALS, block.limits.max_key, forbid="()[]{}\"',")
            if _KEY.fullmatch(key.strip()) is None:
                block.malformed("expected the name of an argument")
            block.input(f"{'{' if is_first else ','}{json_string(key.strip())}:")
            is_first = False
            yield from read_literal(block, block.input, is_argument=True)
            if (yield from block.skip(SPACE)) == ",":
                block.at += 1
            elif (yield from block.peek()) != ")":
                block.malformed("expected a comma or the end of the call")
        block.at += 1
        block.input("{}" if is_first else "}")
