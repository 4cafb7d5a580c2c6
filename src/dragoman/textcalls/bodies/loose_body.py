"""Calls in a loose object notation: `call:f{key:<|"|>text<|"|>,n:42,list:[1,{a:true}]}`.

Keys have no quotes, strings stand between two `quote` words, everything else is a literal.
"""

from collections.abc import Callable

from msgspec import Struct

from dragoman._json import is_strict
from dragoman.textcalls.block import Block
from dragoman.textcalls.json_text import json_string, json_string_inside
from dragoman.textcalls.tape import SPACE, Wait
from dragoman.textcalls.words import Words, words

__all__ = ("LooseBody",)

_BRACE = Words(("{",))
_COLON = Words((":",))
_MAX_ATOM = 4096


class LooseBody(Struct, frozen=True, kw_only=True):
    """lead: what stands before the name. quote: what stands around a string."""

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
        block.end()

    def _object(self, block: Block, take: Callable[[str], None], depth: int) -> Wait[None]:
        """What stands behind a brace, and the other brace."""
        self._bound(block, depth)
        take("{")
        lead = ""
        while (yield from block.skip(SPACE)) != "}":
            key = yield from self._key(block)
            take(f"{lead}{json_string(key)}:")
            lead = ","
            yield from self._value(block, take, depth)
            if (yield from block.skip(SPACE)) == ",":
                block.at += 1
            elif (yield from block.peek()) != "}":
                block.malformed("expected a comma or the end of an object")
        block.at += 1
        take("}")

    def _key(self, block: Block) -> Wait[str]:
        if (yield from block.match(words(self.quote))):
            key, _ = yield from block.read(words(self.quote), block.limits.max_key)
            yield from block.skip(SPACE)
            yield from block.expect(_COLON)
            return key
        key, _ = yield from block.read(_COLON, block.limits.max_key)
        return key.strip().strip("\"'")

    def _value(self, block: Block, take: Callable[[str], None], depth: int) -> Wait[None]:
        first = yield from block.skip(SPACE)
        if first == "{":
            block.at += 1
            yield from self._object(block, take, depth + 1)
        elif first == "[":
            block.at += 1
            yield from self._list(block, take, depth + 1)
        elif (yield from block.match(words(self.quote))):
            take('"')
            give = _Escaper(take)
            if not (yield from block.until(words(self.quote), give)):
                block.malformed("the text ended inside a string")
            take('"')
        else:
            yield from self._atom(block, take)

    def _list(self, block: Block, take: Callable[[str], None], depth: int) -> Wait[None]:
        self._bound(block, depth)
        take("[")
        lead = ""
        while (yield from block.skip(SPACE)) != "]":
            take(lead)
            lead = ","
            yield from self._value(block, take, depth)
            if (yield from block.skip(SPACE)) == ",":
                block.at += 1
            elif (yield from block.peek()) != "]":
                block.malformed("expected a comma or the end of a list")
        block.at += 1
        take("]")

    def _atom(self, block: Block, take: Callable[[str], None]) -> Wait[None]:
        """A literal up to the next comma or bracket: JSON where it is, else text."""
        start = block.at
        pieces: list[str] = []
        size = 0
        while (character := (yield from block.peek())) not in (",", "}", "]", ""):
            size += 1
            if size > _MAX_ATOM:
                block.malformed("expected a shorter value", at=start)
            pieces.append(character)
            block.at += 1
        text = "".join(pieces).strip()
        if not text:
            block.malformed("expected a value", at=start)
        take(text if is_strict(text) else json_string(text.strip("\"'")))

    def _bound(self, block: Block, depth: int) -> None:
        if depth > block.limits.max_depth:
            block.malformed(f"expected at most {block.limits.max_depth} levels", is_limit=True)


class _Escaper:
    """Gives text on as the inside of a JSON string."""

    __slots__ = ("_take",)

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take

    def __call__(self, piece: str) -> None:
        self._take(json_string_inside(piece))
