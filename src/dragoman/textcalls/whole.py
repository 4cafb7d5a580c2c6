"""Calls in a text that is there as a whole."""

from collections.abc import Iterable

from dragoman.model.outcome import FinishReason
from dragoman.textcalls.choosing import choose_patterns
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.gathering import FoundCall, TextScan, gather
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.preparing import openers_of
from dragoman.textcalls.registry import PatternRegistry

__all__ = ("FoundCall", "TextScan", "gather", "scan_text")


def scan_text(
    text: str,
    tools: Iterable[object] | None,
    *,
    formats: str | Iterable[str] = "auto",
    model: str | None = None,
    finish: FinishReason = "stop",
    registry: PatternRegistry | None = None,
) -> TextScan:
    """The tool calls in a whole text.

    tools: those the client offered, in any dialect's shape; a call of another is text. None: every name counts.
    finish: why the text ended; one that was cut off has no call at its end.

    Raises:
        ConfigError: `formats` names one that does not exist.
    """
    offers = Offers(tools)
    if not offers:
        return TextScan(text=text)
    patterns = choose_patterns(formats, model, registry)
    finder = Finder(openers_of(patterns, offers), offers)
    return gather([*finder.feed(text), *finder.finish(finish)])
