"""Calls in a notation of their own: Python calls, and Gemma's objects.

[f(a=1, b="x"), g()]                                  PythonBody
call:f{key:<|"|>text<|"|>,n:42,list:[1,{a:true}]}     LooseBody: bare keys, strings between two `quote` words
"""

import re
from collections.abc import Callable

from msgspec import Struct

from dragoman._json import is_strict
from dragoman.textcalls.block import Block
from dragoman.textcalls.cursor import SPACE, LiteralSet, Wait, words
from dragoman.textcalls.values import json_string, json_string_inside, read_literal

_BRACKET = LiteralSet(("[",))
_PARENTHESIS = LiteralSet(("(",))
_EQUALS = LiteralSet(("=",))
_PRINT = LiteralSet(("print(",))
_END = LiteralSet((")",))
_PYTHON_NAME = re.compile(r"[^\W\d][\w.\-/:]*")
_NO_NAME = "<>{}[]\"'`=,; \t\r\n"
_PYTHON_KEY = re.compile(r"[^\W\d]\w*")


class PythonBody(Struct, frozen=True, kw_only=True):
    """in_list: the calls are in brackets; None: with or without. is_opened: the block's opener was the bracket.
    offered_only: a name that was not offered does not begin a call. prints: a call may be in `print(…)`, which models
    write that assume they write a program.
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
        """Read the text before the first call; return whether the calls are in a list."""
        if self.is_opened or self.in_list is False:
            return self.is_opened
        yield from block.skip(SPACE)
        if self.in_list:
            yield from block.expect(_BRACKET)
            return True
        return bool((yield from block.match(_BRACKET)))

    def _goes_on(self, block: Block, *, in_list: bool) -> Wait[bool]:
        """Return whether another call follows."""
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
        if _PYTHON_NAME.fullmatch(name.strip()) is None:
            block.malformed("expected the name of a tool")
        name = name.strip()
        if self.offered_only and not block.is_confirmed and block.offers.resolve(name) is None:
            block.malformed("expected a tool that was offered")
        yield from block.confirm()
        block.begin(name, at=start)

        keys = block.offers.parameters(name)

        def read_argument() -> Wait[None]:
            key, _ = yield from block.read(_EQUALS, block.limits.max_key, forbid="()[]{}\"',")
            if _PYTHON_KEY.fullmatch(key.strip()) is None:
                block.malformed("expected the name of an argument")
            block.input(f"{json_string(key.strip())}:")
            yield from read_literal(block, block.input, keys=keys)

        yield from block.read_items(")", "the call", read_argument, block.input, "{}")


_BRACE = LiteralSet(("{",))
_COLON = LiteralSet((":",))
_MAX_ATOM = 4096
_NO_KEY = "{}[](),<>"
_DIGITS = "-0123456789"
_CONSTANTS = ("true", "false", "null")
_NO_ATOM = "{[<>:\n"
_AFTER_CALL = LiteralSet((*SPACE, "<"))


class LooseBody(Struct, frozen=True, kw_only=True):
    """lead: the literal before the name. quote: the literal around a string."""

    lead: str
    quote: str

    def parse(self, block: Block) -> Wait[None]:
        yield from block.skip(SPACE)
        yield from block.expect(words(self.lead))
        name, _ = yield from block.read(_BRACE, block.limits.max_name, forbid=f"<>{SPACE}")
        if not name:
            block.malformed("expected a name")
        yield from block.confirm()
        block.begin(name, at=block.start)
        yield from self._object(block, block.input, 1)
        # A call without its closer ends with the text, or before other text or another mark.
        if not (yield from block.is_at_end()):
            yield from block.expect(_AFTER_CALL)
            block.at -= 1
        block.end()

    def _object(self, block: Block, take: Callable[[str], None], depth: int) -> Wait[None]:
        """Read an object after its brace, up to and with the closing brace."""
        block.check_depth(depth)

        def read_member() -> Wait[None]:
            key = yield from self._key(block)
            take(f"{json_string(key)}:")
            yield from self._value(block, take, depth)

        yield from block.read_items("}", "an object", read_member, take, "{}")

    def _key(self, block: Block) -> Wait[str]:
        if (yield from block.match(words(self.quote))):
            key, _ = yield from block.read(words(self.quote), block.limits.max_key)
            yield from block.skip(SPACE)
            yield from block.expect(_COLON)
            return key
        key, _ = yield from block.read(_COLON, block.limits.max_key, forbid=_NO_KEY)
        key = key.strip().strip("\"'")
        if any(character in SPACE for character in key):
            block.malformed("expected a key")
        return key

    def _value(self, block: Block, take: Callable[[str], None], depth: int) -> Wait[None]:
        first = yield from block.skip(SPACE)
        if first == "{":
            block.at += 1
            yield from self._object(block, take, depth + 1)
        elif first == "[":
            block.at += 1
            block.check_depth(depth + 1)
            yield from block.read_items(
                "]", "a list", lambda: self._value(block, take, depth + 1), take
            )
        elif (yield from block.match(words(self.quote))):

            def give(piece: str) -> None:
                take(json_string_inside(piece))

            take('"')
            if not (yield from block.until(words(self.quote), give)):
                block.malformed("the text ended inside a string")
            take('"')
        else:
            yield from self._atom(block, take)

    def _atom(self, block: Block, take: Callable[[str], None]) -> Wait[None]:
        """A literal up to the next comma or bracket: JSON where it is, else text."""
        start = block.at
        pieces: list[str] = []
        size = 0
        while (character := (yield from block.peek())) not in (",", "}", "]", ""):
            size += 1
            if character in _NO_ATOM:
                block.malformed(f"expected a value, got {character!r}")
            if size > _MAX_ATOM:
                block.malformed("expected a shorter value", at=start)
            pieces.append(character)
            block.at += 1
        text = "".join(pieces).strip()
        if not text:
            block.malformed("expected a value", at=start)
        is_json = is_strict(text)
        if not is_json and (text[0] in _DIGITS or text.split()[0] in _CONSTANTS):
            block.malformed("expected one value", at=start)
        take(text if is_json else json_string(text.strip("\"'")))
