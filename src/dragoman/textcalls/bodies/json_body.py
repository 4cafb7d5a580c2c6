"""Calls written as JSON objects: alone, in an array, or one after the other.

    {"name": "f", "arguments": {…}}          the name and the arguments under any of several keys, in any order
    {"f": {…}}                               `keyed`: the key is the name
    {"type": "function", "function": {…}}    the vendor's own shape, one level deeper

All of it may stand in a code fence of its own. A bracket, or the brace around a `keyed` call, that is missing where the
block's closer stands is forgiven: the arguments are whole.
The arguments pass as they were written. Arguments that come as a string with JSON in it (as on the vendor's wire) are
taken out of it; any that are no object are malformed.
"""

from typing import Literal, cast

from msgspec import Struct

from dragoman._json import is_strict, loads
from dragoman.textcalls.block import Block
from dragoman.textcalls.bodies.json_span import read_json, read_json_string
from dragoman.textcalls.tape import SPACE, Wait
from dragoman.textcalls.words import Words

__all__ = ("JsonBody", "read_arguments")

_BRACES = Words(("{",))
_COLON = Words((":",))
_NEXT = Words((",", "}"))
_NEXT_CALL = Words((",", "]"))
_FENCES = Words(("```json", "```"))
_FENCE_END = Words(("```",))
_WRAPPER = "function"
_EXTRA_KEYS = frozenset({"type", "index", "id", "tool_call_id", "call_id", _WRAPPER})


class JsonBody(Struct, frozen=True, kw_only=True):
    """shape: an object, an array of objects, or either. `keyed`: each object's key is the name of the tool.
    separators: what may stand between several objects of one block besides white space; None: one object only.
    id_keys: where the model's own id stands. needs_arguments: a call without any is malformed also where its tool takes
    none. is_opened: the block's opener ends with the bracket or brace.
    """

    shape: Literal["object", "array", "either"] = "either"
    keyed: bool = False
    name_keys: tuple[str, ...] = ("name", "tool_name", "tool")
    argument_keys: tuple[str, ...] = ("arguments", "parameters", "args", "input")
    id_keys: tuple[str, ...] = ("id", "tool_call_id", "call_id")
    separators: tuple[str, ...] | None = None
    needs_arguments: bool = False
    is_opened: bool = False

    def parse(self, block: Block) -> Wait[None]:
        is_fenced = False
        if self.is_opened:
            first = block.opener[-1]
            yield from self._opened(block, first)
        else:
            first = yield from block.skip(SPACE)
            is_fenced = first == "`" and bool((yield from block.match(_FENCES)))
            if is_fenced:
                first = yield from block.skip(SPACE)
            if first == "[" and self.shape != "object":
                block.at += 1
                yield from self._array(block)
            elif first == "{" and self.shape != "array":
                yield from self._object(block)
            else:
                block.malformed(f"expected {self.shape}")
        if first == "{" and self.separators is not None:
            yield from self._more(block, self.separators)
        if is_fenced:
            yield from block.skip(SPACE)
            yield from block.match(_FENCE_END)

    def _opened(self, block: Block, first: str) -> Wait[None]:
        """The opener was the bracket itself."""
        if first == "[":
            yield from self._array(block)
        else:
            yield from self._call(block, block.start)

    def _array(self, block: Block) -> Wait[None]:
        """What stands behind a bracket, and the other bracket."""
        yield from block.skip(SPACE)
        while True:
            yield from self._object(block)
            yield from block.skip(SPACE)
            if block.stop is not None or (yield from block.closes_here()):
                return
            if (yield from block.expect(_NEXT_CALL)) == "]":
                return
            block.settle_calls()
            yield from block.skip(SPACE)

    def _more(self, block: Block, separators: tuple[str, ...]) -> Wait[None]:
        """Further objects. What is no object ends the body before the separator."""
        between = SPACE + "".join(separators)
        while True:
            end = block.at
            if (yield from block.skip(between)) != "{":
                if separators:
                    block.stop = end
                return
            block.settle_calls()
            yield from self._object(block)

    def _object(self, block: Block) -> Wait[None]:
        start = block.at
        yield from block.expect(_BRACES)
        yield from self._call(block, start)

    def _call(self, block: Block, start: int) -> Wait[None]:
        """What stands behind a brace, and the other brace."""
        if self.keyed:
            yield from self._keyed(block, start)
            return
        call = _Members()
        yield from self._members(block, call, start)
        if not call.is_begun:
            if not call.name:
                block.malformed("expected a name")
            if not call.has_arguments and not self._needs_none(block, call.name):
                block.malformed("expected arguments")
            block.begin(call.name, call.call_id, at=start)
            block.input("".join(call.pieces) or "{}")
        block.end(call.call_id)

    def _members(self, block: Block, call: "_Members", start: int) -> Wait[None]:
        if (yield from block.skip(SPACE)) == "}":
            block.malformed("expected a call, got an empty object")
        while True:
            key = yield from read_json_string(block)
            yield from block.skip(SPACE)
            yield from block.expect(_COLON)
            if not block.is_confirmed and not self._knows(key):
                block.malformed(f"expected the key of a call, got {key!r}")
            yield from block.confirm()
            yield from block.skip(SPACE)
            yield from self._value(block, call, key, start)
            yield from block.skip(SPACE)
            if (yield from block.expect(_NEXT)) == "}":
                return
            yield from block.skip(SPACE)

    def _value(self, block: Block, call: "_Members", key: str, start: int) -> Wait[None]:
        first = yield from block.peek()
        if key in self.name_keys and first == '"' and not call.name:
            call.name = yield from read_json_string(block)
        elif key in self.argument_keys and not call.has_arguments:
            yield from self._arguments(block, call, start)
        elif key in self.id_keys and first == '"':
            call.call_id = yield from read_json_string(block)
        elif key == _WRAPPER and first == "{" and not call.name:
            block.at += 1
            yield from self._members(block, call, start)
        elif key == _WRAPPER and first == '"' and not call.name:
            call.name = yield from read_json_string(block)
        else:
            yield from read_json(block, _forget)

    def _arguments(self, block: Block, call: "_Members", start: int) -> Wait[None]:
        call.has_arguments = True
        if block.streams and call.name and (yield from block.peek()) == "{":
            call.is_begun = True
            block.begin(call.name, call.call_id, at=start)
            yield from read_json(block, block.input)
        else:
            call.pieces = yield from read_arguments(block)

    def _keyed(self, block: Block, start: int) -> Wait[None]:
        yield from block.skip(SPACE)
        name = yield from read_json_string(block)
        yield from block.skip(SPACE)
        yield from block.expect(_COLON)
        yield from block.confirm()
        yield from block.skip(SPACE)
        block.begin(name, at=start)
        if (yield from block.peek()) == "{":
            yield from read_json(block, block.input)
        else:
            for piece in (yield from read_arguments(block)):
                block.input(piece)
        end = block.at
        yield from block.skip(SPACE)
        if (yield from block.is_at_end()) or (yield from block.closes_here()):
            block.end(at=end)
            block.stop = block.at
            return
        if (yield from block.expect(_NEXT)) != "}":
            block.malformed("expected one tool in an object")
        block.end()

    def _needs_none(self, block: Block, name: str) -> bool:
        """Whether a call without arguments is one: where the tool is known to take none."""
        return not self.needs_arguments and block.offers.takes_nothing(name)

    def _knows(self, key: str) -> bool:
        return key in _EXTRA_KEYS or key in (*self.name_keys, *self.argument_keys, *self.id_keys)


class _Members:
    """What an object has told of its call."""

    __slots__ = ("call_id", "has_arguments", "is_begun", "name", "pieces")

    def __init__(self) -> None:
        self.name = ""
        self.call_id = ""
        self.pieces: list[str] = []
        self.has_arguments = False
        self.is_begun = False


def read_arguments(block: Block) -> Wait[list[str]]:
    """The arguments at the cursor: an object, a string that holds one, or null for none."""
    first = yield from block.peek()
    start = block.at
    pieces: list[str] = []
    yield from read_json(block, pieces.append)
    if first == "{":
        return pieces
    if first == '"':
        inner = cast("str", loads("".join(pieces))).strip()
        if not inner:
            return ["{}"]
        if inner.startswith("{") and is_strict(inner):
            return [inner]
    if first == "n":
        return ["{}"]
    block.malformed("expected arguments that are an object", at=start)


def _forget(_: str) -> None:
    """A value that says nothing about the call."""
