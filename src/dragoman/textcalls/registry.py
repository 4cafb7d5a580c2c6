"""Text formats by name: patterns, which find calls in a text while it streams, and matchers, which need it whole.

A scanner takes a snapshot when it is made: later changes do not reach it.
"""

from collections.abc import Callable, Iterable

from dragoman.errors import ConfigError
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.gathering import gather
from dragoman.textcalls.limits import MAX_WORD
from dragoman.textcalls.matchers import TextCall, TextMatcher, ask_matchers, without_overlaps
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers
from dragoman.textcalls.patterns import TextPattern

__all__ = ("PatternRegistry",)


class PatternRegistry:
    """Patterns in order of rank: where several share an opener, the first that confirms wins. `changes` counts them."""

    def __init__(self, patterns: Iterable[TextPattern] = ()) -> None:
        self._patterns: dict[str, TextPattern] = {}
        self._matchers: dict[str, TextMatcher] = {}
        self.changes = 0
        for pattern in patterns:
            self.register(pattern)

    def register(
        self,
        pattern: TextPattern | str,
        matcher: TextMatcher | None = None,
        *,
        first: bool = False,
    ) -> Callable[[], None]:
        """Add a pattern, or a matcher under a name; what had that name is replaced. Gives a function that takes it out.

        first: before all other patterns, so that it is asked first where openers are shared.

        Raises:
            ConfigError: the pattern has no name or no opener, or an opener that is empty or too long; the matcher has
                no name or cannot be called.
        """
        if isinstance(pattern, str):
            return self._register_matcher(pattern, matcher)
        _check(pattern)
        self._matchers.pop(pattern.name, None)
        if first:
            others = {name: old for name, old in self._patterns.items() if name != pattern.name}
            self._patterns = {pattern.name: pattern, **others}
        else:
            self._patterns[pattern.name] = pattern
        self.changes += 1

        def unregister() -> None:
            if self._patterns.get(pattern.name) is pattern:
                del self._patterns[pattern.name]
                self.changes += 1

        return unregister

    def _register_matcher(self, name: str, matcher: TextMatcher | None) -> Callable[[], None]:
        if not name.strip():
            raise ConfigError("expected a name for the text pattern, got an empty one")
        if matcher is None or not callable(matcher):
            raise ConfigError(f"expected a callable for text pattern {name!r}, got {matcher!r}")
        self._patterns.pop(name, None)
        self._matchers[name] = matcher
        self.changes += 1

        def unregister() -> None:
            if self._matchers.get(name) is matcher:
                del self._matchers[name]

        return unregister

    def find(
        self, text: str, tools: Iterable[object] | None = None
    ) -> tuple[tuple[TextCall, ...], tuple[str, ...]]:
        """The calls in a whole text, by position and without overlaps, and what went wrong with which matcher.

        Asks the matchers and every pattern with a sentinel. tools: patterns find only calls of these; None: of any.
        Where two calls overlap, the one that starts first stands; of two that start together, the matcher's.
        """
        found, troubles = ask_matchers(self._matchers, text)
        sentinels = tuple(one for one in self._patterns.values() if one.is_sentinel)
        offers = Offers(tools)
        if sentinels and offers:
            finder = Finder(Openers(sentinels, offers), offers)
            scan = gather([*finder.feed(text), *finder.finish()])
            found += (
                TextCall(call.name, call.arguments, call.start, call.end) for call in scan.calls
            )
        return without_overlaps(found), tuple(troubles)

    def conflicts(self, pattern: TextPattern) -> tuple[str, ...]:
        """The other patterns with an opener that begins one of this pattern's, or is begun by it."""
        return tuple(
            other.name
            for other in self._patterns.values()
            if other.name != pattern.name and _collide(pattern.openers, other.openers)
        )

    def snapshot(self) -> tuple[TextPattern, ...]:
        """All patterns, in order of rank."""
        return tuple(self._patterns.values())

    def named(self, names: Iterable[str]) -> tuple[TextPattern, ...]:
        """The patterns of these names, in order of rank.

        Raises:
            ConfigError: there is no pattern of that name.
        """
        wanted = set(names)
        unknown = sorted(wanted - self._patterns.keys())
        if unknown:
            raise ConfigError(
                f"expected text formats among {', '.join(sorted(self._patterns))}; got {unknown[0]!r}"
            )
        return tuple(pattern for name, pattern in self._patterns.items() if name in wanted)


def _check(pattern: TextPattern) -> None:
    if not pattern.name.strip():
        raise ConfigError("expected a name for the text pattern, got an empty one")
    if not pattern.openers:
        raise ConfigError(f"expected openers in text pattern {pattern.name!r}, got none")
    for word in (*pattern.openers, *pattern.closers):
        if not word.strip() or len(word) > MAX_WORD:
            raise ConfigError(
                f"expected openers and closers of 1 to {MAX_WORD} characters in text pattern {pattern.name!r}, got {word!r}"
            )


def _collide(ours: Iterable[str], theirs: Iterable[str]) -> bool:
    others = tuple(theirs)
    return any(a.startswith(b) or b.startswith(a) for a in ours for b in others)
