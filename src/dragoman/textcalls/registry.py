"""Text patterns by name. A scanner takes a snapshot when it is made: later changes do not reach it."""

from collections.abc import Callable, Iterable

from dragoman.errors import ConfigError
from dragoman.textcalls.limits import MAX_WORD
from dragoman.textcalls.patterns import TextPattern

__all__ = ("PatternRegistry",)


class PatternRegistry:
    """Patterns in order of rank: where several share an opener, the first that confirms wins."""

    def __init__(self, patterns: Iterable[TextPattern] = ()) -> None:
        self._patterns: dict[str, TextPattern] = {}
        for pattern in patterns:
            self.register(pattern)

    def register(self, pattern: TextPattern, *, first: bool = False) -> Callable[[], None]:
        """Add a pattern, or replace the one of that name. Gives a function that takes it out again.

        first: before all others, so that it is asked first where openers are shared.

        Raises:
            ConfigError: the pattern has no name or no opener, or an opener that is empty or too long.
        """
        _check(pattern)
        if first:
            others = {name: old for name, old in self._patterns.items() if name != pattern.name}
            self._patterns = {pattern.name: pattern, **others}
        else:
            self._patterns[pattern.name] = pattern

        def unregister() -> None:
            if self._patterns.get(pattern.name) is pattern:
                del self._patterns[pattern.name]

        return unregister

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
