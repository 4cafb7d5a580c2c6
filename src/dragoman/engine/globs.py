"""Patterns with wildcards. Matching takes at most time proportional to the length of the pattern times that of the text.

There are patterns for paths and patterns for text. In a path `*` and `?` stop at `/`, and a segment `**` matches any number of
segments; in text `*` matches anything. `[abc]`, `[a-z]` and `[!a]` match one character, `{one,other}` is a choice, and a
backslash escapes the next character.

A regular expression would be shorter, but Python's takes exponential time for some patterns, and models write the patterns.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import cast

from msgspec import Struct

MAX_PATTERN = 1_000
# Choices multiply: `{a,b}{a,b}…`.
MAX_CHOICES = 64
# A command with longer first words has no name that a rule could match.
MAX_BEGINNING = 1_000


class _Star(Struct, frozen=True):
    """Any number of characters or segments."""


class _One(Struct, frozen=True):
    """One character: any, or one in (or not in) the ranges."""

    ranges: tuple[tuple[str, str], ...] = ()
    is_negated: bool = False

    def matches(self, char: str) -> bool:
        if not self.ranges:
            return True
        return any(low <= char <= high for low, high in self.ranges) != self.is_negated


_Sign = str | _Star | _One
_STAR = _Star()


class TextGlob(Struct, frozen=True):
    """A pattern for text."""

    choices: tuple[tuple[_Sign, ...], ...]

    def matches(self, text: str) -> bool:
        return any(_wild(signs, text, _fits) for signs in self.choices)

    def may_begin(self, text: str) -> bool:
        """Whether some text with this beginning matches. A long beginning counts as a match."""
        return len(text) > MAX_BEGINNING or any(_may_begin(signs, text) for signs in self.choices)

    @property
    def beginning(self) -> str:
        """The common beginning of all matching texts; empty if the pattern has choices."""
        pieces: list[str] = []
        for sign in self.choices[0] if len(self.choices) == 1 else ():
            if not isinstance(sign, str):
                break
            pieces.append(sign)
        return "".join(pieces)

    @property
    def is_literal(self) -> bool:
        """Whether the pattern matches one text only."""
        return len(self.choices) == 1 and all(isinstance(sign, str) for sign in self.choices[0])


class PathGlob(Struct, frozen=True):
    """A pattern for paths, segment by segment."""

    choices: tuple[tuple[_Star | tuple[_Sign, ...], ...], ...]

    def matches(self, path: str) -> bool:
        names = path.split("/") if path else []
        return any(_wild(segments, names, _fits_name) for segments in self.choices)


@lru_cache(256)
def text_glob(pattern: str) -> TextGlob:
    """Compile a pattern for text.

    Raises:
        ValueError: too long, or with too many choices.
    """
    return TextGlob(tuple(_signs(choice) for choice in _choices(pattern)))


@lru_cache(256)
def path_glob(pattern: str) -> PathGlob:
    """Compile a pattern for paths.

    Raises:
        ValueError: too long, or with too many choices.
    """
    return PathGlob(
        tuple(
            tuple(
                _STAR if segment == "**" else _signs(segment)
                for segment in choice.removeprefix("./").split("/")
                if segment
            )
            for choice in _choices(pattern)
        )
    )


def _wild(
    pattern: Sequence[object], text: Sequence[str], fits: Callable[[object, str], bool]
) -> bool:
    """Match in one pass. Backtracks to the last star only, so the work is at most the product of both lengths."""
    at = place = 0
    star = mark = -1
    while place < len(text):
        sign = pattern[at] if at < len(pattern) else None
        if isinstance(sign, _Star):
            star, mark = at, place
            at += 1
        elif sign is not None and fits(sign, text[place]):
            at += 1
            place += 1
        elif star >= 0:
            mark += 1
            at, place = star + 1, mark
        else:
            return False
    return all(isinstance(sign, _Star) for sign in pattern[at:])


def _may_begin(signs: Sequence[object], text: str) -> bool:
    """Follow every position of the pattern that the text can have reached, character by character."""
    places = _past_stars(signs, {0})
    for char in text:
        places = _past_stars(
            signs,
            {
                at if isinstance(signs[at], _Star) else at + 1
                for at in places
                if at < len(signs) and (isinstance(signs[at], _Star) or _fits(signs[at], char))
            },
        )
    return bool(places)


def _past_stars(signs: Sequence[object], places: set[int]) -> set[int]:
    past = {at + 1 for at in places if at < len(signs) and isinstance(signs[at], _Star)}
    return places | past


def _fits(sign: object, char: str) -> bool:
    return sign.matches(char) if isinstance(sign, _One) else sign == char


def _fits_name(signs: object, name: str) -> bool:
    return isinstance(signs, tuple) and _wild(cast("tuple[object, ...]", signs), name, _fits)


def _signs(pattern: str) -> tuple[_Sign, ...]:
    signs: list[_Sign] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            if not signs or signs[-1] is not _STAR:
                signs.append(_STAR)
        elif char == "?":
            signs.append(_One())
        elif (
            char == "[" and (end := pattern.find("]", at + 1 + (pattern[at : at + 1] in "!^"))) > 0
        ):
            signs.append(_class(pattern[at:end]))
            at = end + 1
        elif char == "\\" and at < len(pattern):
            signs.append(pattern[at])
            at += 1
        else:
            signs.append(char)
    return tuple(signs)


def _class(inner: str) -> _One:
    is_negated = inner[0] in "!^"
    chars = inner[is_negated:]
    ranges: list[tuple[str, str]] = []
    at = 0
    while at < len(chars):
        if at + 2 < len(chars) and chars[at + 1] == "-":
            ranges.append((chars[at], chars[at + 2]))
            at += 3
        else:
            ranges.append((chars[at], chars[at]))
            at += 1
    return _One(tuple(ranges), is_negated)


def _choices(pattern: str) -> list[str]:
    """The pattern once for each choice of its braces; a brace without a comma or an end is literal."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(
            f"expected a pattern of at most {MAX_PATTERN} characters, got {len(pattern)}"
        )
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        here = waiting.pop()
        braces = _innermost(here)
        if braces is None:
            done.append(here)
        else:
            start, end = braces
            parts = here[start + 1 : end].split(",")
            waiting.extend(f"{here[:start]}{part}{here[end + 1 :]}" for part in reversed(parts))
        if len(done) + len(waiting) > MAX_CHOICES:
            raise ValueError(f"expected at most {MAX_CHOICES} choices in the braces of {pattern!r}")
    return done


def _innermost(pattern: str) -> tuple[int, int] | None:
    start = None
    has_comma = False
    is_escaped = False
    for at, char in enumerate(pattern):
        if is_escaped:
            is_escaped = False
        elif char == "\\":
            is_escaped = True
        elif char == "{":
            start, has_comma = at, False
        elif char == "," and start is not None:
            has_comma = True
        elif char == "}" and start is not None:
            if has_comma:
                return start, at
            start = None
    return None
