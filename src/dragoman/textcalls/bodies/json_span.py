"""One JSON value, found and checked while it streams, and passed on as it was written.

A lexer with a stack: it says where the value ends and where it goes wrong, and never looks at a character twice. The
text passes verbatim, but for one repair: bare control characters inside a string (a model's raw line breaks) are
written as escapes, because the call is clear and the JSON is not.
"""

import re
from collections.abc import Callable
from enum import Enum, auto

from dragoman._json import loads
from dragoman.textcalls.block import Block
from dragoman.textcalls.tape import Malformed, Wait

__all__ = ("read_json", "read_json_string")

_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_IS_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = frozenset('"\\/bfnrt')
_MAX_SCALAR = 4096  # digits of one number; nobody computes with more


class _State(Enum):
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


_OPEN_VALUE = frozenset({_State.VALUE, _State.FIRST})
_OPEN_KEY = frozenset({_State.KEY, _State.FIRST_KEY})


class JsonSpan:
    """The lexer. `advance` may be called with any pieces of the text, in order."""

    __slots__ = ("_hex", "_in_key", "_max_depth", "_scalar", "_stack", "_state", "repaired")

    def __init__(self, max_depth: int) -> None:
        self._state = _State.VALUE
        self._stack: list[str] = []
        self._in_key = False
        self._hex = 0
        self._scalar = ""
        self._max_depth = max_depth
        self.repaired = False

    @property
    def is_done(self) -> bool:
        return self._state is _State.DONE

    def advance(self, text: str, start: int, base: int, take: Callable[[str], None]) -> int:
        """Read on from `start`, which is `base` characters into the whole text less its index. Gives the place reached.

        Raises:
            Malformed: this is no JSON.
        """
        index, size, told = start, len(text), start
        while index < size and self._state is not _State.DONE:
            if self._state is _State.STRING:
                index = self._string(text, index)
                if self._state is _State.STRING and index < size:
                    take(text[told:index] + f"\\u{ord(text[index]):04x}")
                    self.repaired = True
                    index += 1
                    told = index
                continue
            index = self._other(text, index, base)
        if index > told:
            take(text[told:index])
        return index

    def _string(self, text: str, index: int) -> int:
        match = _PLAIN.match(text, index)
        index = match.end() if match is not None else index
        if index == len(text):
            return index
        if text[index] == '"':
            self._state = _State.COLON if self._in_key else _State.AFTER
            self._settle()
            return index + 1
        if text[index] == "\\":
            self._state = _State.ESCAPE
            return index + 1
        return index

    def _other(self, text: str, index: int, base: int) -> int:
        state = self._state
        if state is _State.ESCAPE or state is _State.HEX:
            self._escape(text[index], base + index)
            return index + 1
        if state is _State.SCALAR:
            return self._go_on_scalar(text, index, base)
        match = _SPACE.match(text, index)
        index = match.end() if match is not None else index
        if index == len(text):
            return index
        return self._sign(text[index], index, base)

    def _escape(self, character: str, at: int) -> None:
        if self._state is _State.ESCAPE:
            if character == "u":
                self._state, self._hex = _State.HEX, 4
            elif character in _ESCAPES:
                self._state = _State.STRING
            else:
                raise Malformed("expected a JSON escape", at)
        elif character not in _HEX:
            raise Malformed("expected four hexadecimal digits", at)
        else:
            self._hex -= 1
            self._state = _State.HEX if self._hex else _State.STRING

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
            self._state = _State.AFTER
            self._settle()
        return end

    def _sign(self, character: str, index: int, base: int) -> int:
        """A character that is structure, or begins a value."""
        state = self._state
        if state in _OPEN_VALUE and self._begin(character):
            if len(self._stack) > self._max_depth:
                reason = f"expected at most {self._max_depth} levels"
                raise Malformed(reason, base + index, is_limit=True)
            return index if self._state is _State.SCALAR else index + 1
        if state in _OPEN_KEY and character == '"':
            self._state, self._in_key = _State.STRING, True
        elif state is _State.COLON and character == ":":
            self._state, self._in_key = _State.VALUE, False
        elif state is _State.AFTER and character == ",":
            self._state = _State.KEY if self._stack[-1] == "}" else _State.VALUE
        elif self._stack and character == self._stack[-1] and state in _ENDABLE:
            self._stack.pop()
            self._state = _State.AFTER
            self._settle()
        else:
            raise Malformed(f"expected JSON, got {character!r}", base + index)
        return index + 1

    def _begin(self, character: str) -> bool:
        if character == "{":
            self._stack.append("}")
            self._state = _State.FIRST_KEY
        elif character == "[":
            self._stack.append("]")
            self._state = _State.FIRST
        elif character == '"':
            self._state, self._in_key = _State.STRING, False
        elif character in "-0123456789tfn":
            self._state, self._scalar = _State.SCALAR, ""
        else:
            return False
        return True

    def _settle(self) -> None:
        if self._state is _State.AFTER and not self._stack:
            self._state = _State.DONE


_ENDABLE = frozenset({_State.FIRST, _State.FIRST_KEY, _State.AFTER})


def read_json(block: Block, take: Callable[[str], None]) -> Wait[None]:
    """One JSON value at the cursor, given to `take` piece by piece."""
    span = JsonSpan(block.limits.max_depth)
    tape = block.tape
    while True:
        start = block.at - tape.base
        reached = span.advance(tape.data, start, tape.base, take)
        tape.examined += reached - start + 1
        block.at = tape.base + reached
        if span.is_done:
            if span.repaired:
                block.repaired("control characters in a string were written as escapes")
            return
        if tape.ended:
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
