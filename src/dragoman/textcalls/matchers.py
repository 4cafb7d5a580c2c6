"""Formats as plain functions: from the text of a finished message to the calls it holds.

The simplest way to add a format. A matcher sees only whole texts, so it serves `PatternRegistry.find`, which the
aggregator of finished messages asks, and no scanner of a stream. Matchers are foreign code: one that raises is reported
and the others go on.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from dragoman.errors import ConfigError

__all__ = ("TextCall", "TextMatcher", "ask_matchers", "without_overlaps")


class TextCall(Struct, frozen=True):
    """A call found in a text, which it occupies from `start` to `end`. `arguments` is JSON source text."""

    name: str
    arguments: str
    start: int
    end: int


TextMatcher = Callable[[str], Iterable[TextCall]]

MATCHER_FAILURES = (Exception,)
"""What a matcher may raise: it is foreign code, so anything. Only what ends the program goes past us."""


def ask_matchers(
    matchers: Mapping[str, TextMatcher], text: str
) -> tuple[list[TextCall], list[str]]:
    """What the matchers find, in their order, and what went wrong with which."""
    found: list[TextCall] = []
    troubles: list[str] = []
    for name, matcher in matchers.items():
        try:
            found.extend(_checked(matcher(text)))
        except MATCHER_FAILURES as error:
            # Not its words: a matcher's message may quote the text.
            troubles.append(f"text pattern {name!r} raised {type(error).__name__}")
    return found, troubles


def without_overlaps(found: Iterable[TextCall]) -> tuple[TextCall, ...]:
    """Calls by position. Where two overlap the one that starts first stands; of two that start together, the first."""
    calls: list[TextCall] = []
    for call in sorted(found, key=lambda call: call.start):
        if not calls or call.start >= calls[-1].end:
            calls.append(call)
    return tuple(calls)


def _checked(found: Iterable[object]) -> list[TextCall]:
    calls = list(found)
    wrong = [type(call).__name__ for call in calls if not isinstance(call, TextCall)]
    if wrong:
        raise ConfigError(f"expected TextCall values, got {wrong[0]}")
    return [call for call in calls if isinstance(call, TextCall)]
