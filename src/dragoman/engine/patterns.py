"""What a regular expression may cost: Python's engine backtracks, and cannot be stopped once it runs.

The estimate reads the pattern's repetitions, not its meaning, so it errs on the side of too much: a repetition inside a
repetition may take a time that doubles with every character, and each repetition beside another one multiplies the time by
the length of the text. This module runs no pattern.
"""

import re
from functools import lru_cache

from msgspec import Struct

__all__ = ("PatternCost", "cost_of_pattern")

# Longer patterns are generated ones; compiling them takes time too.
MAX_PATTERN = 1_000
MAX_KEPT = 256
# Up to this many repetitions of a thing count as the thing itself: `[0-9]{4}`, `(ab?){2}`.
MAX_SMALL = 4

_TOKEN = re.compile(
    r"""
      (?P<escape>\\.)
    | (?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])
    | (?P<open>\((?:\?(?:P?<[A-Za-z_]\w*>|[:=!>]|<[=!]|[aiLmsux-]+:?|P=\w+|\#[^)]*))?)
    | (?P<close>\))
    | (?P<repeat>(?:[*+]|\{\d*,?\d*\}|\?)[?+]?)
    | (?P<bar>\|)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")


class PatternCost(Struct, frozen=True):
    """`degree`: the time to search a text of n characters is at most about n to this power."""

    compiled: re.Pattern[str]
    degree: int


class _Group(Struct):
    """One level of parentheses: the repetitions that stand in it, at any depth, and whether it offers a choice."""

    repeats: int = 0
    has_choice: bool = False


@lru_cache(MAX_KEPT)
def cost_of_pattern(pattern: str) -> PatternCost | None:
    """What a search with this pattern may cost; None if it cannot be read, or its time may double per character."""
    if len(pattern) > MAX_PATTERN:
        return None
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    repeats = _repeats(pattern)
    # An unanchored search begins anew at every character.
    return None if repeats is None else PatternCost(compiled, repeats + 1)


def _repeats(pattern: str) -> int | None:
    """How many repetitions may stand beside one another; None if one stands inside another."""
    levels = [_Group()]
    last = _Group()  # what a repetition right here would repeat
    for token in _TOKEN.finditer(pattern):
        match token.lastgroup:
            case "open":
                levels.append(_Group())
                continue
            case "close" if len(levels) > 1:
                last = levels.pop()
                levels[-1].repeats += last.repeats
                levels[-1].has_choice |= last.has_choice
                continue
            case "bar":
                levels[-1].has_choice = True
            case "repeat":
                size = _largest(token.group())
                if size > MAX_SMALL:
                    if last.repeats or last.has_choice:
                        return None
                    levels[-1].repeats += 1
                elif size > 1:
                    levels[-1].repeats += last.repeats * (size - 1)
            case "escape" if token.group()[1].isdecimal():
                return None  # a reference to a group: what it costs depends on what was found
            case _:
                pass
        last = _Group()
    return levels[0].repeats


def _largest(repeat: str) -> int:
    """How often at most; beyond `MAX_SMALL` it does not matter."""
    if repeat[0] == "?":
        return 1
    count = _COUNT.match(repeat)
    if count is None:
        return MAX_SMALL + 1
    low, comma, high = count.groups()
    if not low and not high:  # literal braces
        return 1
    if comma and not high:
        return MAX_SMALL + 1
    return min(int((high or low)[:9]), MAX_SMALL + 1)
