"""A set of literal words, looked for while text streams.

One compiled alternation finds the earliest word, the longest where several begin at one place. What the end of a text
cuts short is told by `held_from`: the first place from which the rest may still become a word. Knows nothing of calls.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

__all__ = ("Words", "words")


class Words:
    """Literals to find. Built once per pattern or scanner, shared and never changed."""

    __slots__ = ("_finds", "_firsts", "_prefixes", "_reach", "words")

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(sorted(set(words), key=lambda word: (-len(word), word)))
        alternatives = "|".join(map(re.escape, self.words)) or r"(?!)"
        self._finds = re.compile(alternatives)
        firsts = "".join(sorted({word[0] for word in self.words if word}))
        self._firsts = re.compile(f"[{re.escape(firsts)}]" if firsts else r"(?!)")
        self._prefixes = frozenset(
            word[:size] for word in self.words for size in range(1, len(word))
        )
        self._reach = max((len(word) for word in self.words), default=1) - 1

    @property
    def reach(self) -> int:
        """How many characters may be the beginning of a word and not yet one."""
        return self._reach

    def find(self, text: str, start: int, end: int | None = None) -> tuple[int, str] | None:
        """Where the first word stands and which it is; None if none stands before `end`."""
        found = self._finds.search(text, start, len(text) if end is None else end)
        return None if found is None else (found.start(), found.group())

    def may_grow(self, text: str, start: int) -> bool:
        """Whether everything from `start` on is the beginning of a word."""
        return len(text) - start <= self._reach and text[start:] in self._prefixes

    def held_from(self, text: str, start: int) -> int:
        """The first place from which the rest of the text may still become a word; its length if there is none."""
        size = len(text)
        for first in self._firsts.finditer(text, max(start, size - self._reach)):
            if text[first.start() :] in self._prefixes:
                return first.start()
        return size


@lru_cache(maxsize=1024)
def words(*literals: str) -> Words:
    """The words, built once for all who ask for the same. For bodies, which meet them with every block."""
    return Words(literals)
