"""Calls written as JSON objects: alone, in an array, or one after the other.

    {"name": "f", "arguments": {…}}          the name and the arguments under any of several keys, in any order
    {"f": {…}}                               `keyed`: the key is the name
    {"type": "function", "function": {…}}    the vendor's own shape, one level deeper

The whole may stand in its own code fence. If a bracket, or the brace around a `keyed` call, is missing at the block's
closer, the call is accepted, because its arguments are complete. Arguments pass unchanged. Arguments that are a string
with JSON in it (as in the vendor's API) are unwrapped. Arguments that are not an object are malformed.

The lexer below finds and checks one JSON value while it streams, and examines every character once. It passes the text
on verbatim with one repair: bare control characters inside a string (a model's raw line breaks) become escapes.
"""

import re
from collections.abc import Callable, Generator
from enum import Enum, auto
from typing import Literal, TypeVar, cast

from msgspec import Struct

from dragoman._json import is_strict, loads
from dragoman.textcalls.block import Block
from dragoman.textcalls.cursor import SPACE, LiteralSet, Wait

T = TypeVar("T")

_WHITE_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_NOTHING = re.compile("")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_IS_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = frozenset('"\\/bfnrt')
_SCALAR_STARTS = frozenset("-0123456789tfn")
_CLOSERS = {"{": "}", "[": "]"}
_MAX_SCALAR = 4096  # digits of one number

_Lex = Generator[str | None, None, T]
"""A step of the lexer. Yields None to wait for text, or a replacement for the character at the cursor."""


class _Next(Enum):
    """What may come next in a JSON text."""

    VALUE = auto()
    FIRST_VALUE = auto()  # in an array: a value or its end
    KEY = auto()
    FIRST_KEY = auto()  # in an object: a key or its end
    COLON = auto()
    COMMA = auto()  # or the end of the array or object


_MAY_BE_VALUE = frozenset({_Next.VALUE, _Next.FIRST_VALUE})
_MAY_BE_KEY = frozenset({_Next.KEY, _Next.FIRST_KEY})
_MAY_BE_END = frozenset({_Next.FIRST_VALUE, _Next.FIRST_KEY, _Next.COMMA})


def read_json(block: Block, take: Callable[[str], None]) -> Wait[None]:
    """Read one JSON value at the cursor and pass it to `take`, in as few pieces as the text came in."""
    buffer = block.buffer
    start = block.at
    is_repaired = False
    for replacement in _lex(block):
        text = buffer.slice(start, block.at) + (replacement or "")
        if replacement:
            is_repaired = True
            block.at += 1
        start = block.at
        if text:
            take(text)
        if not replacement:
            yield
    if block.at > start:
        take(buffer.slice(start, block.at))
    if is_repaired:
        block.repaired("control characters in a string were written as escapes")


def _lex(block: Block) -> _Lex[None]:
    closers: list[str] = []
    state = _Next.VALUE
    while state is not _Next.COMMA or closers:
        sign = yield from _skip(block, _WHITE_SPACE)
        if state in _MAY_BE_VALUE and sign in _CLOSERS:
            closers.append(_CLOSERS[sign])
            block.check_depth(len(closers))
            block.at += 1
            state = _Next.FIRST_KEY if sign == "{" else _Next.FIRST_VALUE
        elif state in _MAY_BE_VALUE and sign == '"':
            yield from _lex_string(block)
            state = _Next.COMMA
        elif state in _MAY_BE_VALUE and sign in _SCALAR_STARTS:
            yield from _lex_scalar(block)
            state = _Next.COMMA
        elif state in _MAY_BE_KEY and sign == '"':
            yield from _lex_string(block)
            state = _Next.COLON
        elif state is _Next.COLON and sign == ":":
            block.at += 1
            state = _Next.VALUE
        elif state is _Next.COMMA and sign == ",":
            block.at += 1
            state = _Next.KEY if closers[-1] == "}" else _Next.VALUE
        elif state in _MAY_BE_END and sign == closers[-1]:
            block.at += 1
            closers.pop()
            state = _Next.COMMA
        else:
            block.malformed(f"expected JSON, got {sign!r}")


def _skip(block: Block, characters: re.Pattern[str]) -> _Lex[str]:
    """Pass over these characters; return the next character. The text must not end here."""
    buffer = block.buffer
    while True:
        index = block.at - buffer.base
        match = characters.match(buffer.data, index)
        end = index if match is None else match.end()
        buffer.examined += end - index + 1
        block.at += end - index
        if end < len(buffer.data):
            return buffer.data[end]
        if buffer.ended:
            block.malformed("the text ended inside a JSON value")
        yield None


def _lex_string(block: Block) -> _Lex[None]:
    block.at += 1
    while (sign := (yield from _skip(block, _PLAIN))) != '"':
        if sign != "\\":
            yield f"\\u{ord(sign):04x}"
            continue
        block.at += 1
        sign = yield from _skip(block, _NOTHING)
        if sign != "u" and sign not in _ESCAPES:
            block.malformed("expected a JSON escape")
        block.at += 1
        for _ in range(4 if sign == "u" else 0):
            if (yield from _skip(block, _NOTHING)) not in _HEX:
                block.malformed("expected four hexadecimal digits")
            block.at += 1
    block.at += 1


def _lex_scalar(block: Block) -> _Lex[None]:
    buffer, start = block.buffer, block.at
    text = ""
    while True:
        index = block.at - buffer.base
        match = _SCALAR.match(buffer.data, index)
        text += "" if match is None else match.group()
        buffer.examined += start + len(text) - block.at + 1
        block.at = start + len(text)
        if len(text) > _MAX_SCALAR:
            block.malformed("expected a shorter number", at=start + _MAX_SCALAR)
        if block.at < buffer.end:
            break
        if buffer.ended:
            block.malformed("the text ended inside a JSON value")
        yield None
    if _IS_SCALAR.fullmatch(text) is None:
        block.malformed("expected a JSON value")


def read_json_string(block: Block) -> Wait[str]:
    """Read one JSON string at the cursor and return it decoded."""
    if (yield from block.peek()) != '"':
        block.malformed("expected a JSON string")
    pieces: list[str] = []
    end = block.at + block.limits.max_key
    yield from read_json(block, pieces.append)
    if block.at > end:
        block.malformed("expected a shorter string", at=end)
    return str(loads("".join(pieces)))


_BRACES = LiteralSet(("{",))
_COLON = LiteralSet((":",))
_NEXT = LiteralSet((",", "}"))
_NEXT_CALL = LiteralSet((",", "]"))
_GOES_ON = LiteralSet(("}", "]", ":", ',"', ', "'))
_FENCES = LiteralSet(("```json", "```"))
_FENCE_END = LiteralSet(("```",))
_WRAPPER = "function"
_SHAPES = {"object": ("{",), "array": ("[",), "either": ("{", "[")}
_EXTRA_KEYS = frozenset({"type", "index", "id", "tool_call_id", "call_id", _WRAPPER})


class JsonBody(Struct, frozen=True, kw_only=True):
    """shape: an object, an array of objects, or either. `keyed`: each object's key is the name of the tool.
    separators: characters that may separate several objects of one block besides white space; None: one object only.
    id_keys: the keys of the model's own id. needs_arguments: a call without arguments is malformed even if its tool takes
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
        start = block.start
        if self.is_opened:
            first = block.opener[-1]
        else:
            first = yield from block.skip(SPACE)
            is_fenced = first == "`" and bool((yield from block.match(_FENCES)))
            if is_fenced:
                first = yield from block.skip(SPACE)
            if first not in _SHAPES[self.shape]:
                block.malformed(f"expected {self.shape}")
            start = block.at
            block.at += 1
        if first == "[":
            yield from self._array(block)
        else:
            yield from self._call(block, start)
            if self.separators is not None:
                yield from self._more(block, self.separators)
        if is_fenced:
            yield from block.skip(SPACE)
            yield from block.match(_FENCE_END)
        elif block.stop is None:
            yield from check_end(block)

    def _array(self, block: Block) -> Wait[None]:
        """Read the array after its bracket, up to and with the closing bracket."""
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
        """Read further objects. If no object follows, the body ends before the separator."""
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
        """Read the object after its brace, up to and with the closing brace."""
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
        yield from pass_arguments(block)
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
        """Return whether a call may have no arguments: if the tool is known to take none."""
        return not self.needs_arguments and block.offers.takes_nothing(name)

    def _knows(self, key: str) -> bool:
        return key in _EXTRA_KEYS or key in (*self.name_keys, *self.argument_keys, *self.id_keys)


def check_end(block: Block) -> Wait[None]:
    """Check that the JSON before the cursor does not go on: then a bracket in it was wrong, and it is another call.

    Only if the block has a closer: otherwise a complete call would have to wait for the text behind it.
    """
    if block.closers.words and (yield from block.match(_GOES_ON)):
        block.malformed("expected the end of the call")


class _Members(Struct):
    """The call as far as the members of its object have been read."""

    name: str = ""
    call_id: str = ""
    pieces: list[str] = []
    has_arguments: bool = False
    is_begun: bool = False


def read_arguments(block: Block) -> Wait[list[str]]:
    """Read the arguments at the cursor: an object, a string that holds one, or null for none."""
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


def pass_arguments(block: Block) -> Wait[None]:
    """Report the arguments at the cursor as the input of the call that has begun."""
    if (yield from block.peek()) == "{":
        yield from read_json(block, block.input)
    else:
        for piece in (yield from read_arguments(block)):
            block.input(piece)


def _forget(_: str) -> None:
    """Drop a value that does not concern the call."""
