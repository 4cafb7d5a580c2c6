"""Which patterns a scanner uses: the shared registry, and how `formats` and a model's name choose from it."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from dragoman.textcalls.formats import BUILT_IN
from dragoman.textcalls.patterns import TextPattern
from dragoman.textcalls.profiles import formats_of_model, thinking_of_model
from dragoman.textcalls.registry import PatternRegistry

__all__ = ("PATTERNS", "choose_patterns", "register_text_pattern")

PATTERNS = PatternRegistry(BUILT_IN)
"""The registry that scanners take their patterns from unless they are given another."""


def register_text_pattern(pattern: TextPattern, *, first: bool = True) -> Callable[[], None]:
    """Add a format to the shared registry. Gives a function that takes it out again.

    first: it is asked before the built-in formats where an opener is shared.

    Raises:
        ConfigError: the pattern cannot work.
    """
    return PATTERNS.register(pattern, first=first)


def choose_patterns(
    formats: str | Iterable[str], model: str | None, registry: PatternRegistry | None = None
) -> tuple[TextPattern, ...]:
    """`auto`: every format with a sentinel and those of the model's profile. Otherwise the formats named.

    The profile also says which of them count in thinking.

    Raises:
        ConfigError: a name that no format has.
    """
    patterns = PATTERNS if registry is None else registry
    names = (formats,) if isinstance(formats, str) else tuple(formats)
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
