"""Calls whose parameters are pairs of tags, one for the name and one for the value, behind the bare name of the tool.

f <arg_key>k</arg_key> <arg_value>v</arg_value> …        the name ends at a line break, a separator or a tag
"""

from msgspec import Struct

from dragoman.textcalls.block import Block
from dragoman.textcalls.bodies.arguments import Arguments
from dragoman.textcalls.coerce import Untyped
from dragoman.textcalls.tape import SPACE, Wait
from dragoman.textcalls.words import Words, words

__all__ = ("PairBody",)

_NO_NAME = "<>{}[]()\"'`,; \t\r"
_NAME_RUBBISH = "\\n"  # models write the two characters instead of the line break they stand for


class PairBody(Struct, frozen=True, kw_only=True):
    """opens: what begins each call; none: the block's opener does. separators: what may stand behind the name.
    closes: what ends each call. suffix: any text that may stand inside each tag before its end (`<arg_key:x>`).
    """

    opens: tuple[str, ...] = ()
    closes: tuple[str, ...]
    key: tuple[str, str] = ("<arg_key>", "</arg_key>")
    value: tuple[str, str] = ("<arg_value>", "</arg_value>")
    separators: tuple[str, ...] = ()
    untyped: Untyped = "string"

    def parse(self, block: Block) -> Wait[None]:
        if not self.opens:
            yield from self._call(block, block.start)
            return
        opens = words(*self.opens)
        is_first = True
        while True:
            start = block.at
            yield from block.skip(SPACE)
            if not (yield from block.match(opens)):
                if is_first:
                    block.malformed(f"expected {' or '.join(self.opens)}")
                return
            yield from self._call(block, block.start if is_first else start)
            is_first = False

    def _call(self, block: Block, start: int) -> Wait[None]:
        key_open = self.key[0]
        stops = words("\n", "\r\n", key_open, *self.separators, *self.closes)
        yield from block.skip(" \t\n")
        name, stop = yield from block.read(stops, block.limits.max_name, forbid=_NO_NAME)
        name = name.removesuffix(_NAME_RUBBISH)
        if not name:
            block.malformed("expected a name")
        inside = words(key_open, *self.closes)
        if stop in ("\n", "\r\n") or stop in self.separators:
            stop = yield from self._next(block, inside)
        yield from block.confirm()
        block.begin(name, at=start)
        arguments = Arguments(block, name, self.untyped)
        while stop == key_open:
            stop = yield from self._pair(block, arguments, inside)
        arguments.finish()
        block.close_call()

    def _pair(self, block: Block, arguments: Arguments, inside: Words) -> Wait[str]:
        """One pair; gives what comes behind it. A key without a value is nothing."""
        key, _ = yield from block.read(words(self.key[1]), block.limits.max_key)
        stop = yield from self._next(block, words(*inside.words, self.value[0]))
        if stop != self.value[0]:
            return stop
        value_stops = words(self.value[1])
        if not (yield from arguments.read(key.strip(), value_stops, trims=False)):
            block.malformed("the text ended inside a value")
        return (yield from self._next(block, inside))

    def _next(self, block: Block, words: Words) -> Wait[str]:
        yield from block.skip(SPACE)
        yield from block.match(_RUBBISH)
        yield from block.skip(SPACE)
        return (yield from block.expect(words))


_RUBBISH = Words((_NAME_RUBBISH,))
