"""Tool calls written as text: a registry of matchers, one per format. Empty until somebody fills it.

A matcher takes the text of a finished message and gives the calls it sees, each with the span it stands in. Matchers
are foreign code: one that raises is reported and the others go on.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from dragoman.errors import ConfigError

__all__ = ("TEXT_PATTERNS", "TextCall", "TextMatcher", "TextPatterns", "register_text_pattern")


class TextCall(Struct, frozen=True):
    """A call found in a text, which it occupies from `start` to `end`. `arguments` is JSON source text."""

    name: str
    arguments: str
    start: int
    end: int


TextMatcher = Callable[[str], Iterable[TextCall]]

MATCHER_FAILURES = (Exception,)
"""What a matcher may raise: it is foreign code, so anything. Only what ends the program goes past us."""


class TextPatterns:
    """Matchers by name, consulted in order of registration."""

    def __init__(self) -> None:
        self._matchers: dict[str, TextMatcher] = {}

    def register(self, name: str, matcher: TextMatcher) -> Callable[[], None]:
        """Add a matcher, or replace the one of that name. Gives a function that takes it out again.

        Raises:
            ConfigError: the name is empty, or the matcher cannot be called.
        """
        if not name.strip():
            raise ConfigError("expected a name for the text pattern, got an empty one")
        if not callable(matcher):
            raise ConfigError(f"expected a callable for text pattern {name!r}, got {matcher!r}")
        self._matchers[name] = matcher

        def unregister() -> None:
            if self._matchers.get(name) is matcher:
                del self._matchers[name]

        return unregister

    def find(self, text: str) -> tuple[tuple[TextCall, ...], tuple[str, ...]]:
        """The calls in the text, by position and without overlaps, and what went wrong with which matcher.

        Where two calls overlap, the one that starts first stands; of two that start together, the one whose matcher
        was registered first.
        """
        found: list[TextCall] = []
        troubles: list[str] = []
        for name, matcher in self._matchers.items():
            try:
                found.extend(_checked(matcher(text)))
            except MATCHER_FAILURES as error:
                # Not its words: a matcher's message may quote the text.
                troubles.append(f"text pattern {name!r} raised {type(error).__name__}")
        found.sort(key=lambda call: call.start)
        calls: list[TextCall] = []
        for call in found:
            if not calls or call.start >= calls[-1].end:
                calls.append(call)
        return tuple(calls), tuple(troubles)


def _checked(found: Iterable[object]) -> list[TextCall]:
    calls = list(found)
    wrong = [type(call).__name__ for call in calls if not isinstance(call, TextCall)]
    if wrong:
        raise ConfigError(f"expected TextCall values, got {wrong[0]}")
    return [call for call in calls if isinstance(call, TextCall)]


TEXT_PATTERNS = TextPatterns()
"""The registry that aggregators consult unless they are given another."""


def register_text_pattern(name: str, matcher: TextMatcher) -> Callable[[], None]:
    """Add a matcher to the shared registry. Gives a function that takes it out again."""
    return TEXT_PATTERNS.register(name, matcher)
