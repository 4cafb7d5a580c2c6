"""Text as it arrives, and a cursor that reads it: the ground under every body.

A body is a generator. It reads through a `Cursor`, whose methods are generators too: each *waits* (yields) for text
that has not come, and never decides by where a piece of text happens to end. So whatever the cuts, a body sees the same
characters and does the same things.

Positions are absolute: they count from the first character ever fed. The tape keeps only what a cursor may still need;
what a cursor has passed it never sees again. `examined` counts the characters looked at, so that linear work is a
number and not a hope.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

from dragoman.textcalls.words import Words

__all__ = ("SPACE", "Cursor", "Malformed", "Tape", "Wait")

T = TypeVar("T")
Wait = Generator[None, None, T]
"""A step that may have to wait for text; gives a T."""

SPACE = " \t\r\n"


class Malformed(Exception):
    """The text at `at` is not what its format asks for. Never leaves this package."""

    def __init__(self, reason: str, at: int, *, is_limit: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.is_limit = is_limit


class Tape:
    """The window on the text that is still needed: `data` holds the characters from `base` to `end`."""

    __slots__ = ("base", "data", "end", "ended", "examined")

    def __init__(self) -> None:
        self.base = 0
        self.data = ""
        self.end = 0
        self.ended = False
        self.examined = 0

    def feed(self, text: str, keep: int) -> None:
        """Forget everything before `keep` and add a text."""
        self.data = self.data[keep - self.base :] + text if keep < self.end else text
        self.base = keep
        self.end += len(text)

    def slice(self, start: int, stop: int) -> str:
        return self.data[start - self.base : stop - self.base]


class Cursor:
    """A place on the tape, and the ways to move it. It moves forwards only."""

    __slots__ = ("at", "tape")

    def __init__(self, tape: Tape, at: int) -> None:
        self.tape = tape
        self.at = at

    def peek(self) -> Wait[str]:
        """The character at the cursor; empty at the end of the text."""
        tape = self.tape
        while self.at >= tape.end:
            if tape.ended:
                return ""
            yield
        tape.examined += 1
        return tape.data[self.at - tape.base]

    def skip(self, characters: str = SPACE) -> Wait[str]:
        """Pass over all of these characters; give the one that comes after."""
        tape = self.tape
        while True:
            data, index = tape.data, self.at - tape.base
            rest = index
            while rest < len(data) and data[rest] in characters:
                rest += 1
            self.at += rest - index
            tape.examined += rest - index + 1
            if rest < len(data):
                return data[rest]
            if tape.ended:
                return ""
            yield

    def match(self, words: Words) -> Wait[str]:
        """The longest of the words that stands at the cursor, passed over; empty if none does."""
        tape = self.tape
        while words.words:
            data, index = tape.data, self.at - tape.base
            may_grow = not tape.ended and (index == len(data) or words.may_grow(data, index))
            found = next((word for word in words.words if data.startswith(word, index)), "")
            tape.examined += len(found) + 1
            if not may_grow:
                self.at += len(found)
                return found
            yield
        return ""

    def until(
        self, stops: Words, take: Callable[[str], None], within: int | None = None
    ) -> Wait[str]:
        """Give the text up to the first stop to `take`, piece by piece, and pass over the stop.

        Gives the stop, or nothing where the text ended before one.

        Raises:
            Malformed: no stop begins `within` so many characters.
        """
        tape = self.tape
        end = None if within is None else self.at + within
        while True:
            data, index = tape.data, self.at - tape.base
            reach = len(data) if end is None else end - tape.base + stops.reach + 1
            found = stops.find(data, index, reach)
            if found is not None and (tape.ended or not stops.may_grow(data, found[0])):
                self._pass(found[0] - index, take, end)
                self.at += len(found[1])
                return found[1]
            if tape.ended:
                self._pass(len(data) - index, take, end)
                return ""
            held = stops.held_from(data, index) if found is None else found[0]
            self._pass(held - index, take, end)
            yield

    def _pass(self, count: int, take: Callable[[str], None], end: int | None) -> None:
        """Pass over so many characters, but none from `end` on."""
        tape = self.tape
        is_beyond = end is not None and self.at + count > end
        if is_beyond and end is not None:
            count = end - self.at
        tape.examined += count + 1
        if count > 0:
            index = self.at - tape.base
            self.at += count
            take(tape.data[index : index + count])
        if is_beyond:
            raise Malformed("expected what ends this part of a block", self.at, is_limit=True)
