"""Calls whose name stands in a header and whose arguments are a JSON object behind it.

    open  name  name_end  [fence]  {…}  [fence]  close        repeated where the format has several calls in a block

A header may be nothing but the name (`f{…}`), and may carry the model's own id (`read_name`).
"""

from collections.abc import Callable

from msgspec import Struct

from dragoman.textcalls.block import Block
from dragoman.textcalls.bodies.json_body import read_arguments
from dragoman.textcalls.bodies.json_span import read_json
from dragoman.textcalls.tape import SPACE, Wait
from dragoman.textcalls.words import words

__all__ = ("NO_NAME", "NamedBody", "plain_name")


_MAX_ID = 64  # what a header may hold beside the name

NO_NAME = "<>()\"'`,; \t\r\n"
"""What no name contains. Prose does, so that it is soon told from a header."""


def plain_name(header: str) -> tuple[str, str]:
    """The header is the name."""
    return header, ""


class NamedBody(Struct, frozen=True, kw_only=True):
    """opens: what begins each call; none: the block's opener does. name_ends: what ends the name; `{` is not passed.
    before, after: what may stand around the arguments (a code fence). closes: what ends each call; none: the brace.
    many: further calls may follow in the block, each with its own open. eos_name: a name alone at the end of the text
    is a call without arguments, if its tool declares none. needs_close: a call without its close is malformed, unless one of `ends`, which end the
    block, stands there. forbid: characters that no header contains. guesses: where a header has no name, the tool is the
    one that the arguments fit.
    """

    opens: tuple[str, ...] = ()
    name_ends: tuple[str, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    many: bool = False
    eos_name: bool = False
    needs_close: bool = False
    ends: tuple[str, ...] = ()
    forbid: str = NO_NAME
    guesses: bool = False
    read_name: Callable[[str], tuple[str, str]] = plain_name

    def parse(self, block: Block) -> Wait[None]:
        if not self.opens:
            yield from self._call(block, block.start)
            return
        opens = words(*self.opens, *self.ends)
        is_first = True
        while True:
            start = block.at
            yield from block.skip(SPACE)
            found = yield from block.match(opens)
            if found in self.ends and found:
                yield from block.confirm()
                block.stop = block.at
                return
            if not found:
                if is_first:
                    block.malformed(f"expected {' or '.join(self.opens)}")
                return
            yield from self._call(block, start if not is_first else block.start)
            is_first = False
            if not self.many or block.stop is not None:
                return

    def _call(self, block: Block, start: int) -> Wait[None]:
        header, stop = yield from self._header(block)
        name, call_id = self.read_name(header.strip())
        if not name and self.guesses and header.strip():
            yield from self._nameless(block, start)
            return
        if not name or any(character in SPACE for character in name):
            block.malformed("expected a name")
        if not stop:
            if block.offers.parameters(name):
                block.malformed("expected arguments")
            yield from block.confirm()
            block.begin(name, call_id, at=start)
            block.input("{}")
            block.end()
            return
        yield from self._pass(block, self.before)
        if (yield from block.skip(SPACE)) not in ("{", '"'):
            block.malformed("expected arguments")
        yield from block.confirm()
        block.begin(name, call_id, at=start)
        yield from self._arguments(block)
        yield from self._pass(block, self.after)
        yield from self._end(block)

    def _nameless(self, block: Block, start: int) -> Wait[None]:
        """A call whose header is a mere number."""
        if (yield from block.skip(SPACE)) not in ("{", '"'):
            block.malformed("expected arguments")
        yield from block.confirm()
        source = "".join((yield from read_arguments(block)))
        name = block.offers.fitting(source)
        if name is None:
            block.malformed("expected a name, or arguments that only one tool takes", at=start)
        block.begin(name, at=start)
        block.input(source)
        yield from self._end(block)

    def _header(self, block: Block) -> Wait[tuple[str, str]]:
        yield from block.skip(SPACE)
        ends, limit = words(*self.name_ends), block.limits.max_name + _MAX_ID
        header, stop = yield from block.read(ends, limit, forbid=self.forbid, eos_ok=self.eos_name)
        if stop.endswith("{"):
            block.at -= 1
        return header, stop

    def _arguments(self, block: Block) -> Wait[None]:
        if (yield from block.peek()) == "{":
            yield from read_json(block, block.input)
        else:
            for piece in (yield from read_arguments(block)):
                block.input(piece)

    def _pass(self, block: Block, literals: tuple[str, ...]) -> Wait[None]:
        if literals:
            yield from block.skip(SPACE)
            yield from block.match(words(*literals))

    def _end(self, block: Block) -> Wait[None]:
        if not self.closes:
            block.end()
            return
        end = block.at
        yield from block.skip(SPACE)
        found = yield from block.match(words(*self.closes, *self.ends))
        if found in self.ends:
            block.end(at=end)
            block.stop = block.at
        elif found:
            block.close_call()
        elif self.needs_close:
            block.malformed(f"expected {' or '.join(self.closes)}")
        else:
            block.end(at=end)
