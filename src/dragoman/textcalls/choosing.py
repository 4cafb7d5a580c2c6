"""Which patterns a scanner uses: the shared registry, and how `formats` and a model's name choose from it."""

from collections.abc import Callable, Iterable
from functools import lru_cache

from msgspec.structs import replace

from dragoman.textcalls.formats import BUILT_IN
from dragoman.textcalls.matchers import TextMatcher
from dragoman.textcalls.patterns import TextPattern
from dragoman.textcalls.profiles import formats_of_model, thinking_of_model
from dragoman.textcalls.registry import PatternRegistry

__all__ = ("PATTERNS", "choose_patterns", "register_text_pattern")

_MAX_CHOICES = 128  # upstreams and models of one gateway, and the registries of its tests

PATTERNS = PatternRegistry(BUILT_IN)
"""The registry that scanners and aggregators take their formats from unless they are given another."""


def register_text_pattern(
    pattern: TextPattern | str, matcher: TextMatcher | None = None, *, first: bool = True
) -> Callable[[], None]:
    """Add a format to the shared registry. Gives a function that takes it out again.

    pattern: a `TextPattern`, which every scanner looks for; or the name of a `matcher`, a function from the text of a
        finished message to `TextCall` values, which the aggregator asks.
    first: it is asked before the built-in formats where an opener is shared.

    Raises:
        ConfigError: the pattern cannot work.
    """
    return PATTERNS.register(pattern, matcher, first=first)


def choose_patterns(
    formats: str | Iterable[str],
    model: str | None,
    registry: PatternRegistry | None = None,
    *,
    stream: Iterable[str] = (),
) -> tuple[TextPattern, ...]:
    """`auto`: every format with a sentinel and those of the model's profile. Otherwise the formats named.

    The profile also says which of them count in thinking. stream: those that tell arguments as they come.

    Raises:
        ConfigError: a name that no format has.
    """
    patterns = PATTERNS if registry is None else registry
    names = (formats,) if isinstance(formats, str) else tuple(formats)
    streaming = frozenset(stream)
    patterns.named(streaming)
    chosen = _chosen(patterns, patterns.changes, names, model)
    if not streaming:
        return chosen
    return tuple(replace(one, stream_args=True) if one.name in streaming else one for one in chosen)


@lru_cache(maxsize=_MAX_CHOICES)
def _chosen(
    patterns: PatternRegistry, _changes: int, names: tuple[str, ...], model: str | None
) -> tuple[TextPattern, ...]:
    wanted: set[str] = set()
    for name in names:
        if name == "auto":
            wanted |= {pattern.name for pattern in patterns.snapshot() if pattern.is_sentinel}
            wanted |= set(formats_of_model(model))
        else:
            wanted.add(name)
    thinking = thinking_of_model(model)
    return tuple(
        replace(pattern, in_think="call") if pattern.name in thinking else pattern
        for pattern in patterns.named(wanted)
    )
