"""Calls written as JSON objects: alone, in an array, or one after the other.

    {"name": "f", "arguments": {…}}          the name and the arguments under any of several keys, in any order
    {"f": {…}}                               `keyed`: the key is the name
    {"type": "function", "function": {…}}    the vendor's own shape, one level deeper

All of it may stand in a code fence of its own. If a bracket, or the brace around a `keyed` call, is missing where the
block's closer stands, that is accepted, because the arguments are complete. The arguments pass as they were written.
Arguments that are a string with JSON in it (as on the vendor's wire) are unwrapped. Arguments that are not an object are
malformed.

The lexer below finds and checks one JSON value while it streams, and never looks at a character twice. It passes the
text on verbatim with one repair: bare control characters inside a string (a model's raw line breaks) become escapes.
"""

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Literal, cast

from msgspec import Struct

from dragoman._json import is_strict, loads
from dragoman.textcalls.block import Block
from dragoman.textcalls.cursor import SPACE, Malformed, Wait, Words

_WHITE_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_IS_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = frozenset('"\\/bfnrt')
_MAX_SCALAR = 4096  # digits of one number


class _JsonState(Enum):
    VALUE = auto()  # a value must come
    FIRST = auto()  # in an array: a value or its end
    KEY = auto()  # a key must come
    FIRST_KEY = auto()  # in an object: a key or its end
    COLON = auto()
    AFTER = auto()  # a value is over: comma or end
    STRING = auto()
    ESCAPE = auto()
    HEX = auto()
    SCALAR = auto()
    DONE = auto()


_OPEN_VALUE = frozenset({_JsonState.VALUE, _JsonState.FIRST})
_OPEN_KEY = frozenset({_JsonState.KEY, _JsonState.FIRST_KEY})


class JsonSpan:
    """The lexer. `advance` may be called with any pieces of the text, in order."""

    __slots__ = ("_hex", "_in_key", "_max_depth", "_scalar", "_stack", "_state", "repaired")

    def __init__(self, max_depth: int) -> None:
        self._state = _JsonState.VALUE
        self._stack: list[str] = []
        self._in_key = False
        self._hex = 0
        self._scalar = ""
        self._max_depth = max_depth
        self.repaired = False

    @property
    def is_done(self) -> bool:
        return self._state is _JsonState.DONE

    def advance(self, text: str, start: int, base: int, take: Callable[[str], None]) -> int:
        """Read on from index `start`; `base` is the position of index 0 in the whole text. Returns the index reached.

        Raises:
            Malformed: this is no JSON.
        """
        index, size, taken = start, len(text), start
        while index < size and self._state is not _JsonState.DONE:
            if self._state is _JsonState.STRING:
                index = self._string(text, index)
                if self._state is _JsonState.STRING and index < size:
                    take(text[taken:index] + f"\\u{ord(text[index]):04x}")
                    self.repaired = True
                    index += 1
                    taken = index
                continue
            index = self._other(text, index, base)
        if index > taken:
            take(text[taken:index])
        return index

    def _string(self, text: str, index: int) -> int:
        match = _PLAIN.match(text, index)
        index = match.end() if match is not None else index
        if index == len(text):
            return index
        if text[index] == '"':
            self._state = _JsonState.COLON if self._in_key else _JsonState.AFTER
            self._settle()
            return index + 1
        if text[index] == "\\":
            self._state = _JsonState.ESCAPE
            return index + 1
        return index

    def _other(self, text: str, index: int, base: int) -> int:
        state = self._state
        if state is _JsonState.ESCAPE or state is _JsonState.HEX:
            self._escape(text[index], base + index)
            return index + 1
        if state is _JsonState.SCALAR:
            return self._go_on_scalar(text, index, base)
        match = _WHITE_SPACE.match(text, index)
        index = match.end() if match is not None else index
        if index == len(text):
            return index
        return self._sign(text[index], index, base)

    def _escape(self, character: str, at: int) -> None:
        if self._state is _JsonState.ESCAPE:
            if character == "u":
                self._state, self._hex = _JsonState.HEX, 4
            elif character in _ESCAPES:
                self._state = _JsonState.STRING
            else:
                raise Malformed("expected a JSON escape", at)
        elif character not in _HEX:
            raise Malformed("expected four hexadecimal digits", at)
        else:
            self._hex -= 1
            self._state = _JsonState.HEX if self._hex else _JsonState.STRING

    def _go_on_scalar(self, text: str, index: int, base: int) -> int:
        match = _SCALAR.match(text, index)
        end = match.end() if match is not None else index
        self._scalar += text[index:end]
        if len(self._scalar) > _MAX_SCALAR:
            raise Malformed(
                "expected a shorter number", base + end - len(self._scalar) + _MAX_SCALAR
            )
        if end < len(text):
            if _IS_SCALAR.fullmatch(self._scalar) is None:
                raise Malformed("expected a JSON value", base + end)
            self._state = _JsonState.AFTER
            self._settle()
        return end

    def _sign(self, character: str, index: int, base: int) -> int:
        """A character that is structure, or begins a value."""
        state = self._state
        if state in _OPEN_VALUE and self._begin(character):
            if len(self._stack) > self._max_depth:
                reason = f"expected at most {self._max_depth} levels"
                raise Malformed(reason, base + index, is_limit=True)
            return index if self._state is _JsonState.SCALAR else index + 1
        if state in _OPEN_KEY and character == '"':
            self._state, self._in_key = _JsonState.STRING, True
        elif state is _JsonState.COLON and character == ":":
            self._state, self._in_key = _JsonState.VALUE, False
        elif state is _JsonState.AFTER and character == ",":
            self._state = _JsonState.KEY if self._stack[-1] == "}" else _JsonState.VALUE
        elif self._stack and character == self._stack[-1] and state in _ENDABLE:
            self._stack.pop()
            self._state = _JsonState.AFTER
            self._settle()
        else:
            raise Malformed(f"expected JSON, got {character!r}", base + index)
        return index + 1

    def _begin(self, character: str) -> bool:
        if character == "{":
            self._stack.append("}")
            self._state = _JsonState.FIRST_KEY
        elif character == "[":
            self._stack.append("]")
            self._state = _JsonState.FIRST
        elif character == '"':
            self._state, self._in_key = _JsonState.STRING, False
        elif character in "-0123456789tfn":
            self._state, self._scalar = _JsonState.SCALAR, ""
        else:
            return False
        return True

    def _settle(self) -> None:
        if self._state is _JsonState.AFTER and not self._stack:
            self._state = _JsonState.DONE


_ENDABLE = frozenset({_JsonState.FIRST, _JsonState.FIRST_KEY, _JsonState.AFTER})


def read_json(block: Block, take: Callable[[str], None]) -> Wait[None]:
    """One JSON value at the cursor, given to `take` piece by piece."""
    span = JsonSpan(block.limits.max_depth)
    buffer = block.buffer
    while True:
        start = block.at - buffer.base
        reached = span.advance(buffer.data, start, buffer.base, take)
        buffer.examined += reached - start + 1
        block.at = buffer.base + reached
        if span.is_done:
            if span.repaired:
                block.repaired("control characters in a string were written as escapes")
            return
        if buffer.ended:
            block.malformed("the text ended inside a JSON value")
        yield


def read_json_string(block: Block) -> Wait[str]:
    """One JSON string at the cursor, decoded."""
    if (yield from block.peek()) != '"':
        block.malformed("expected a JSON string")
    pieces: list[str] = []
    end = block.at + block.limits.max_key

    def take(piece: str) -> None:
        pieces.append(piece)

    yield from read_json(block, take)
    if block.at > end:
        block.malformed("expected a shorter string", at=end)
    return str(loads("".join(pieces)))


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
    separators: what may separate several objects of one block besides white space; None: one object only.
    id_keys: the keys of the model's own id. needs_arguments: a call without any is malformed even if its tool takes
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
        """What follows a bracket, up to and with the closing bracket."""
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
        """What follows a brace, up to and with the closing brace."""
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
    """What the members of an object have said about its call."""

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
