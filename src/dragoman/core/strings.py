"""The inside of a JSON string, decoded while it streams.

For text that must be told as it comes although it travels inside a JSON string. Where a model broke the rules (a raw
line break, an escape that is none) the characters stand for themselves; this is a reader, not a validator.
"""

import re
from string import hexdigits

from dragoman._json import loads
from dragoman.core.surrogates import join_halves, replace_lone

__all__ = ("StringReader",)

_ESCAPES = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_STOP = re.compile(r'["\\]')
# Well-formed content of a JSON string, less bare halves of characters, which the JSON library does not take.
# Possessive: a long text must not pile up places to go back to.
_REGULAR = re.compile(r'(?:[^"\\\x00-\x1f\ud800-\udfff]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})++')
# From here on it is cheaper to hand a whole stretch to the JSON library than to decode escape by escape.
_LONG = 64


class StringReader:
    """The inside of one JSON string, wherever it is cut: escapes and surrogate pairs may be split."""

    __slots__ = ("_escape", "_half")

    def __init__(self) -> None:
        self._escape = ""
        self._half = ""

    @property
    def is_idle(self) -> bool:
        return not self._escape and not self._half

    def read(self, text: str, start: int) -> tuple[str, int, bool]:
        """What the text from `start` says, where the reading stopped, and whether the string is over."""
        pieces: list[str] = []
        index, size, closed = start, len(text), False
        while index < size and not closed:
            if self._escape:
                index = self._continue_escape(text, index, pieces)
                continue
            if size - index >= _LONG:
                index = self._take_stretch(text, index, pieces)
            stop = _STOP.search(text, index)
            if stop is None:
                pieces.append(text[index:])
                index = size
            else:
                pieces.append(text[index : stop.start()])
                index = stop.end()
                closed = stop.group() == '"'
                self._escape = "" if closed else "\\"
        told, self._half = join_halves(self._half, "".join(pieces))
        return (told + self.end() if closed else told), index, closed

    def end(self) -> str:
        """What is left when no more comes: a cut escape says nothing, half a pair is U+FFFD."""
        half, self._half, self._escape = self._half, "", ""
        return replace_lone(half)

    def _take_stretch(self, text: str, index: int, pieces: list[str]) -> int:
        stretch = _REGULAR.match(text, index)
        if stretch is None:
            return index
        content = stretch.group()
        pieces.append(str(loads(f'"{content}"')) if "\\" in content else content)
        return stretch.end()

    def _continue_escape(self, text: str, index: int, pieces: list[str]) -> int:
        character = text[index]
        if self._escape == "\\":
            if character == "u":
                self._escape = "\\u"
            else:
                # A backslash that escapes nothing was meant: models forget to double it in patterns and paths.
                pieces.append(_ESCAPES.get(character, "\\" + character))
                self._escape = ""
            return index + 1
        if character not in hexdigits:
            pieces.append(self._escape)
            self._escape = ""
            return index
        self._escape += character
        digits = self._escape[2:]
        if len(digits) == 4:
            pieces.append(chr(int(digits, 16)))
            self._escape = ""
        return index + 1
