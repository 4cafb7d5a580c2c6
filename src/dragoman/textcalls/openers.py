"""Finds where a call may begin: one search for the openers of all patterns.

The search also finds the marks that `Surroundings` needs: runs of backticks and tildes, and the tags around reasoning.
"""

import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile

from dragoman.errors import ConfigError
from dragoman.textcalls.block import MAX_WORD, TextPattern
from dragoman.textcalls.cursor import LiteralSet, words
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.surroundings import THINKING, Surroundings

NAME_SLOT = "{name}"
REASONING_TAGS = frozenset(THINKING) | frozenset(THINKING.values())
_RUNS = frozenset("`~")
_STEM = 3  # characters that openers of one group share
_MAX_TOKEN = 16  # characters of a cached piece of text, and below the number of cached pieces
_MAX_TOKENS = 4096
_FEW_MARKS = 12  # more marks are found faster by one regular expression
_SHORTEST_MARK = 2  # a single `<` or `[` may be the end of a sentence
# A word alone at the end of a text, perhaps with line breaks behind it; and where such a word may begin, or come next.
MAX_STRAY = 16
_STRAY = re.compile(rf"(?:\A|(?<=\n))[a-z]{{1,{MAX_STRAY}}}(?:\r?\n){{0,3}}\Z")
_MAX_STRAY_TEXT = MAX_STRAY + 8  # with its line breaks, and the one before it
_STRAY_BEGINS = rf"\n[a-z]{{0,{MAX_STRAY}}}(?:\r?\n){{0,3}}\Z"
_SIGNS = re.compile("|".join((*map(re.escape, REASONING_TAGS), "`+", "~+")))


class PreparedPattern:
    """A pattern with its words compiled, for the tools of one request."""

    __slots__ = ("closers", "openers", "pattern")

    def __init__(self, pattern: TextPattern, offers: Offers) -> None:
        self.pattern = pattern
        self.openers = _words(pattern.openers, offers)
        self.closers = _words(pattern.closers, offers)
        for word in (*self.openers.words, *self.closers.words):
            if len(word) > MAX_WORD:
                raise ConfigError(
                    f"expected words of at most {MAX_WORD} characters in text pattern {pattern.name!r}, got {word!r}"
                )


def _words(literals: Sequence[str], offers: Offers) -> LiteralSet:
    if any(NAME_SLOT in word for word in literals):
        return LiteralSet(_spell(literals, offers))  # not cached: clients choose the names
    return words(*literals)


def _spell(words: Sequence[str], offers: Offers) -> list[str]:
    """Return the words with each offered tool in place of `{name}`. A name that is too long to search for gets no opener."""
    spelled: list[str] = []
    for word in words:
        if NAME_SLOT in word:
            named = (word.replace(NAME_SLOT, name) for name in offers.names)
            spelled.extend(found for found in named if len(found) <= MAX_WORD)
        else:
            spelled.append(word)
    return spelled


def _beginnings(prepared: Sequence[PreparedPattern]) -> Callable[[str], object]:
    """Return a search for the places where a word may begin, by its first character. Letters are too common for that: a word
    that begins with a letter is found by its first two, and not in the middle of another word unless it may be anywhere.
    """
    marks = {word[0] for word in (*_RUNS, *REASONING_TAGS)}
    ends: set[str] = set()  # letters that begin a word, to be checked at the end of the text
    found = {re.escape(mark) for mark in marks}
    for one in prepared:
        inside = "" if one.pattern.place == "anywhere" else r"\w"
        for word in one.openers.words:
            first, two = re.escape(word[0]), re.escape(word[:2])
            if not word[0].isalnum():
                marks.add(word[0])
                found.add(first)
                continue
            marks.add(word[:2])
            ends.add(word[0])
            if inside:
                # The look-behind comes last: a search for an alternative that begins with a literal is much faster.
                found |= {rf"{two}(?<!{inside}{two})", rf"{first}\Z(?<!{inside}{first})"}
            else:
                found |= {two, rf"{first}\Z"}
    if any(one.pattern.has_stray_word for one in prepared):
        marks.add("\n")
        found.add(_STRAY_BEGINS)
    search = re.compile("|".join(sorted(found))).search
    return search if len(marks) > _FEW_MARKS else _one_by_one(search, sorted(marks), ends)


def _one_by_one(
    search: Callable[[str], object], marks: Sequence[str], ends: AbstractSet[str]
) -> Callable[[str], object]:
    """Run the search only if a mark occurs: in prose, testing each mark by itself takes half the time."""

    def begins_in(text: str) -> object:
        for mark in marks:
            if mark in text:
                return search(text)
        return search(text) if text[-1:] in ends else None

    return begins_in


def _stems(prepared: Sequence[PreparedPattern]) -> dict[str, list[str]]:
    """Return the beginnings that openers have in common, by first character: a text without any of them has no opener.

    Testing for each of them takes a fifth of the time of one search for all openers; without a `<`, a twentieth.
    """
    groups: dict[str, list[str]] = {}
    for word in sorted(word for one in prepared for word in one.openers.words):
        groups.setdefault(word[:_STEM], []).append(word)
    stems: dict[str, list[str]] = {}
    for group in groups.values():
        # The words are sorted: what the first and the last share, all share.
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(group[0], group[-1], strict=False))
        stem = "".join(first for first, _ in pairs)
        stems.setdefault(stem[0], []).append(stem)
    return stems


class Beginnings(dict[str, bool]):
    """Whether anything may begin in a piece of text. Short pieces are cached: a model's tokens repeat, and a lookup costs
    half of a search.
    """

    __slots__ = ("_search",)

    def __init__(self, search: Callable[[str], object]) -> None:
        super().__init__()
        self._search = search

    def __missing__(self, text: str) -> bool:
        found = self._search(text) is not None
        if len(text) <= _MAX_TOKEN and len(self) < _MAX_TOKENS:
            self[text] = found
        return found


class Openers:
    """One search for everything that matters to a scanner in plain text.

    begins_in: matches if anything may begin in a text. begins: the same as a cached test, for the tokens of a stream.
    words: the openers, and the tags around reasoning.
    """

    __slots__ = (
        "_groups",
        "_prepared",
        "_stems",
        "_tokens",
        "begins",
        "begins_in",
        "has_stray_words",
        "words",
    )

    def __init__(self, patterns: Sequence[TextPattern], offers: Offers) -> None:
        self._prepared = [PreparedPattern(pattern, offers) for pattern in patterns]
        self._stems: dict[str, list[str]] | None = None
        self.has_stray_words = any(pattern.has_stray_word for pattern in patterns)
        found = {word for prepared in self._prepared for word in prepared.openers.words}
        self.words = LiteralSet(found | REASONING_TAGS)
        alternatives = "|".join(map(re.escape, self.words.words))
        # This runs on every piece of text, before anything else.
        self.begins_in = _beginnings(self._prepared)
        self.begins = Beginnings(self.begins_in)
        # Literals only: then the regular expression engine skips other text ten times as fast.
        self._tokens = re.compile(f"{alternatives}|`|~")
        self._groups: dict[str, list[PreparedPattern]] = {}  # by the word that was found

    def _group(self, word: str) -> list[PreparedPattern]:
        """Return the patterns with an opener that is a prefix of the word, or the reverse."""
        key = word if word[0] not in _RUNS else word[0]
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = [
                prepared
                for prepared in self._prepared
                if any(one.startswith(key) or key.startswith(one) for one in prepared.openers.words)
            ]
        return group

    def find(self, text: str, start: int) -> tuple[int, str] | None:
        """Return the next opener, run, or tag around reasoning."""
        found = self._tokens.search(text, start)
        if found is None:
            return None
        word = found.group()
        return found.start(), self.token_at(text, found.start()) if word in _RUNS else word

    def occur_in(self, text: str) -> bool:
        """Return whether a whole text may have an opener anywhere."""
        if self._stems is None:
            self._stems = _stems(self._prepared)
        for first, stems in self._stems.items():
            if first in text and any(stem in text for stem in stems):
                return True
        return False

    def token_at(self, text: str, start: int) -> str:
        """Return the run or the tag around reasoning at a position, or the first character there."""
        found = _SIGNS.match(text, start)
        return text[start] if found is None else found.group()

    def stray_from(self, text: str, start: int, end: int, *, is_line_empty: bool) -> int:
        """Return where a word alone at the end of `text[start:end]` begins, which a call may follow; `end` if there is none."""
        first = max(start, end - _MAX_STRAY_TEXT)
        found = _STRAY.search(text[first:end])
        if found is None or (found.start() == 0 and not (first == start and is_line_empty)):
            return end
        return first + found.start()

    def is_mark(self, text: str) -> bool:
        """Return whether a text is an opener that does not occur in prose, or a prefix of one."""
        return (
            len(text) >= _SHORTEST_MARK
            and not text[0].isalnum()
            and any(
                word.startswith(text)
                for prepared in self._prepared
                if prepared.pattern.is_sentinel
                for word in prepared.openers.words
            )
        )

    def candidates(
        self, word: str, text: str, start: int, around: Surroundings, *, ended: bool
    ) -> list[PreparedPattern]:
        """Return the patterns that allow an opener here and whose opener the text at `start` is, or may still become."""
        group = self._group(word)
        if not group:
            return group
        rest = text[start : start + MAX_WORD]
        is_cut = not ended and len(text) - start < MAX_WORD
        return [
            prepared
            for prepared in group
            if any(
                rest.startswith(word) or (is_cut and word.startswith(rest))
                for word in prepared.openers.words
            )
            and _counts(prepared.pattern, around)
        ]


def _counts(pattern: TextPattern, around: Surroundings) -> bool:
    match around.region:
        case "think":
            allowed = pattern.in_think == "call"
        case "fence" | "inline":
            allowed = pattern.in_fence == "call"
        case "plain":
            allowed = True
    allowed = allowed and not (pattern.is_mark and around.has_kept_block)
    match pattern.place:
        case "anywhere":
            return allowed
        case "word":
            return allowed and not around.is_in_word
        case "line":
            return allowed and around.is_line_start
        case "start":
            return allowed and around.is_fresh


# The number of models in use at a time. Clients choose the model names, so the cache needs a limit.
_MAX_PREPARED = 256

_prepared: dict[int, tuple[tuple[TextPattern, ...], Openers | None]] = {}


def openers_of(patterns: tuple[TextPattern, ...], offers: Offers) -> Openers:
    """Return the openers of these patterns, prepared once if they do not depend on the names of tools.

    Preparing fifty formats costs more than finding them.
    """
    known = _prepared.get(id(patterns))
    if known is None or known[0] is not patterns:
        words = [word for pattern in patterns for word in (*pattern.openers, *pattern.closers)]
        is_same = not any(NAME_SLOT in word for word in words)
        if len(_prepared) >= _MAX_PREPARED:
            _prepared.clear()
        known = _prepared[id(patterns)] = (patterns, Openers(patterns, offers) if is_same else None)
    return known[1] or Openers(patterns, offers)
