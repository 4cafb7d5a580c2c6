"""Text as it arrives, and the cursor that reads it. Every body of a format reads through a cursor.

A body is a generator. It reads through a `Cursor`, whose methods are generators too: each *waits* (yields) for text that
has not arrived yet and never decides by where a piece of text ends. So a body sees the same characters and does the same
things, wherever the text was cut.

Positions are absolute: they count from the first character that was fed. The buffer keeps only the text that a cursor may
still need. `examined` counts the characters that were looked at, so that tests can check that the work is linear.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable
from functools import lru_cache
from typing import Never, TypeVar

from msgspec import Struct

T = TypeVar("T")
Wait = Generator[None, None, T]
"""A step that may have to wait for text; returns a T."""

SPACE = " \t\r\n"


class LiteralSet:
    """Literals to find in text that streams. Built once per pattern, shared and never changed.

    One compiled alternation finds the earliest word, and the longest if several begin at the same place.
    reach: the most characters that can be a proper prefix of a word.
    """

    __slots__ = ("_finds", "_firsts", "_sorted", "reach", "words")

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(sorted(set(words), key=lambda word: (-len(word), word)))
        alternatives = "|".join(map(re.escape, self.words)) or r"(?!)"
        self._finds = re.compile(alternatives)
        firsts = "".join(sorted({word[0] for word in self.words if word}))
        self._firsts = re.compile(f"[{re.escape(firsts)}]" if firsts else r"(?!)")
        self._sorted = sorted(self.words)
        self.reach = max((len(word) for word in self.words), default=1) - 1

    def find(self, text: str, start: int, end: int | None = None) -> tuple[int, str] | None:
        """Return the position of the first word, and the word; None if there is none before `end`."""
        found = self._finds.search(text, start, len(text) if end is None else end)
        return None if found is None else (found.start(), found.group())

    def may_grow(self, text: str, start: int) -> bool:
        """Return whether the text from `start` on is a proper prefix of a word."""
        return len(text) - start <= self.reach and self._begins_word(text[start:])

    def _begins_word(self, text: str) -> bool:
        after = bisect_right(self._sorted, text)
        return bool(text) and after < len(self._sorted) and self._sorted[after].startswith(text)

    def held_from(self, text: str, start: int) -> int:
        """Return the first place from which the rest of the text may become a word; the text's length if there is none."""
        size = len(text)
        for first in self._firsts.finditer(text, max(start, size - self.reach)):
            if self._begins_word(text[first.start() :]):
                return first.start()
        return size


@lru_cache(maxsize=1024)
def words(*literals: str) -> LiteralSet:
    """Return the words, built once for the same literals, because bodies need them for every block."""
    return LiteralSet(literals)


NO_WORDS = LiteralSet(())


class Limits(Struct, frozen=True, kw_only=True):
    """max_block: characters of one call's markup; a model that writes a file into an argument needs hundreds of
    thousands. max_depth: nesting of values, far below Python's recursion limit. max_calls: calls of one text; agents
    send tens. max_name: OpenAI accepts 64, Anthropic 128. max_key: one parameter's name. confirm: characters after
    an opener within which its format must confirm it, so that prose about `<tool_call>` is not held for long.

    Every limit has the same effect: the block is text, and a problem gives the reason.
    """

    max_block: int = 4 * 1024 * 1024
    max_depth: int = 100
    max_calls: int = 128
    max_name: int = 128
    max_key: int = 256
    confirm: int = 256


DEFAULT_LIMITS = Limits()


class Malformed(Exception):
    """The text at `at` does not follow its format. Never leaves this package."""

    def __init__(self, reason: str, at: int, *, is_limit: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.is_limit = is_limit


class TextBuffer:
    """The window on the text that is still needed: `data` holds the characters from `base` to `end`."""

    __slots__ = ("base", "data", "end", "ended", "examined")

    def __init__(self) -> None:
        self.base = 0
        self.data = ""
        self.end = 0
        self.ended = False
        self.examined = 0

    def feed(self, text: str, keep: int) -> None:
        """Drop everything before `keep` and add a text."""
        self.data = self.data[keep - self.base :] + text if keep < self.end else text
        self.base = keep
        self.end += len(text)

    def slice(self, start: int, stop: int) -> str:
        return self.data[start - self.base : stop - self.base]


class Cursor:
    """A position in the buffer, which only moves forwards, and methods that read there within the limits."""

    __slots__ = ("at", "buffer", "limits")

    def __init__(self, buffer: TextBuffer, at: int, limits: Limits) -> None:
        self.buffer = buffer
        self.at = at
        self.limits = limits

    def peek(self) -> Wait[str]:
        """Return the character at the cursor; empty at the end of the text."""
        buffer = self.buffer
        while self.at >= buffer.end:
            if buffer.ended:
                return ""
            yield
        buffer.examined += 1
        return buffer.data[self.at - buffer.base]

    def skip(self, characters: str = SPACE) -> Wait[str]:
        """Pass over all of these characters; return the next character."""
        buffer = self.buffer
        while True:
            data, index = buffer.data, self.at - buffer.base
            rest = index
            while rest < len(data) and data[rest] in characters:
                rest += 1
            self.at += rest - index
            buffer.examined += rest - index + 1
            if rest < len(data):
                return data[rest]
            if buffer.ended:
                return ""
            yield

    def match(self, words: LiteralSet) -> Wait[str]:
        """Pass over the longest of the words at the cursor and return it; empty if there is none."""
        buffer = self.buffer
        while words.words:
            data, index = buffer.data, self.at - buffer.base
            may_grow = not buffer.ended and (index == len(data) or words.may_grow(data, index))
            found = next((word for word in words.words if data.startswith(word, index)), "")
            buffer.examined += len(found) + 1
            if not may_grow:
                self.at += len(found)
                return found
            yield
        return ""

    def until(
        self, stops: LiteralSet, take: Callable[[str], None], within: int | None = None
    ) -> Wait[str]:
        """Pass the text up to the first stop to `take`, piece by piece, and pass over the stop.

        Returns the stop, or an empty string if the text ended before a stop.

        Raises:
            Malformed: no stop begins within `within` characters.
        """
        buffer = self.buffer
        end = None if within is None else self.at + within
        while True:
            data, index = buffer.data, self.at - buffer.base
            reach = len(data) if end is None else end - buffer.base + stops.reach + 1
            found = stops.find(data, index, reach)
            if found is not None and (buffer.ended or not stops.may_grow(data, found[0])):
                self._pass(found[0] - index, take, end)
                self.at += len(found[1])
                return found[1]
            if buffer.ended:
                self._pass(len(data) - index, take, end)
                return ""
            held = stops.held_from(data, index) if found is None else found[0]
            self._pass(held - index, take, end)
            yield

    def _pass(self, count: int, take: Callable[[str], None], end: int | None) -> None:
        """Pass over `count` characters, but none from `end` on."""
        buffer = self.buffer
        is_beyond = end is not None and self.at + count > end
        if is_beyond and end is not None:
            count = end - self.at
        buffer.examined += count + 1
        if count > 0:
            index = self.at - buffer.base
            self.at += count
            take(buffer.data[index : index + count])
        if is_beyond:
            raise Malformed("expected the end of this part of a block", self.at, is_limit=True)

    def malformed(self, reason: str, *, at: int | None = None, is_limit: bool = False) -> Never:
        """Give up: the block is text. `at` is the position of the error, and must not depend on how the text was cut."""
        raise Malformed(reason, self.at if at is None else at, is_limit=is_limit)

    def check_depth(self, depth: int) -> None:
        """Raises:
        Malformed: values are nested deeper than the limit.
        """
        if depth > self.limits.max_depth:
            self.malformed(f"expected at most {self.limits.max_depth} levels", is_limit=True)

    def expect(self, words: LiteralSet) -> Wait[str]:
        """Pass over one of the words at the cursor and return it.

        Raises:
            Malformed: none of the words is there.
        """
        found = yield from self.match(words)
        if not found:
            self.malformed(f"expected {' or '.join(words.words)}")
        return found

    def read(
        self, stops: LiteralSet, limit: int, *, forbid: str = "", eos_ok: bool = False
    ) -> Wait[tuple[str, str]]:
        """Return the text up to a stop, and the stop.

        Raises:
            Malformed: the text is longer than the limit, contains a forbidden character, or ends before a stop. With
                `eos_ok` the end of the text is an empty stop.
        """
        pieces: list[str] = []

        def take(piece: str) -> None:
            for index, character in enumerate(piece):
                if character in forbid:
                    at = self.at - len(piece) + index
                    self.malformed(f"expected {' or '.join(stops.words)}, got {character!r}", at=at)
            pieces.append(piece)

        stop = yield from self.until(stops, take if forbid else pieces.append, limit)
        if not stop and not eos_ok:
            self.malformed("the text ended inside a block")
        return "".join(pieces), stop

    def read_items(
        self,
        end: str,
        what: str,
        read_item: Callable[[], Wait[None]],
        take: Callable[[str], None],
        json: str = "[]",
    ) -> Wait[None]:
        """Read items with commas between them, up to and with the character `end`; a comma may follow the last item.

        take: receives the brackets `json` and the commas; `read_item` passes it the items.
        """
        take(json[0])
        comma = ""
        while (yield from self.skip(SPACE)) != end:
            take(comma)
            comma = ","
            yield from read_item()
            if (yield from self.skip(SPACE)) == ",":
                self.at += 1
            elif (yield from self.peek()) != end:
                self.malformed(f"expected a comma or the end of {what}")
        self.at += 1
        take(json[1])
