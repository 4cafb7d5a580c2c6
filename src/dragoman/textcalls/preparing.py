"""What a stage looks for, prepared once for all answers of a model: fifty formats cost more to prepare than to find."""

from msgspec import Struct

from dragoman.core.memo import made_of
from dragoman.model.request import Tool
from dragoman.textcalls.choosing import PATTERNS, choose_patterns
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import NAME_SLOT, Openers
from dragoman.textcalls.patterns import TextPattern

__all__ = ("Looking", "look_for", "offers_of", "openers_of")

# Models in use at a time. Their names are the clients' to choose, so there is a bound.
_MAX_KNOWN = 256


class Looking(Struct, frozen=True, gc=False):
    """What to look for in the answers of one model: the same for all its requests."""

    patterns: tuple[TextPattern, ...]
    reasoning: tuple[TextPattern, ...]
    changes: int  # of the registry, when it was asked


_known: dict[tuple[str | tuple[str, ...], str], Looking] = {}


def look_for(formats: str | tuple[str, ...], model: str) -> Looking:
    """The patterns for the answers of a model, chosen anew only where the registry has changed."""
    changes = PATTERNS.changes
    known = _known.get((formats, model))
    if known is None or known.changes != changes:
        patterns = choose_patterns(formats, model, None)
        thinking = tuple(pattern for pattern in patterns if pattern.in_think == "call")
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        known = _known[formats, model] = Looking(patterns, thinking, changes)
    return known


_prepared: dict[int, tuple[tuple[TextPattern, ...], Openers | None]] = {}


def openers_of(patterns: tuple[TextPattern, ...], offers: Offers) -> Openers:
    """The openers of these very patterns, prepared once where they do not depend on the names of tools."""
    known = _prepared.get(id(patterns))
    if known is None or known[0] is not patterns:
        words = [word for pattern in patterns for word in (*pattern.openers, *pattern.closers)]
        is_same = not any(NAME_SLOT in word for word in words)
        if len(_prepared) >= _MAX_KNOWN:
            _prepared.clear()
        known = _prepared[id(patterns)] = (patterns, Openers(patterns, offers) if is_same else None)
    return known[1] or Openers(patterns, offers)


def offers_of(tools: tuple[Tool, ...]) -> Offers:
    """Those of the tools that a model can call in its text."""
    return made_of(tools, "textcalls", lambda: _offers(tools))


def _offers(tools: tuple[Tool, ...]) -> Offers:
    return Offers(tool for tool in tools if tool.kind in ("function", "custom"))
