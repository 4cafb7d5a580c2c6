"""Calls in a text that is there as a whole."""

from collections.abc import Iterable

from msgspec import Struct

from dragoman.model.outcome import FinishReason, Problem
from dragoman.textcalls.choosing import choose_patterns
from dragoman.textcalls.finder import Finder
from dragoman.textcalls.found import (
    CallBroken,
    CallEnded,
    CallFound,
    Found,
    InputFound,
    TextFound,
    ThoughtFound,
    TroubleFound,
)
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.openers import Openers
from dragoman.textcalls.registry import PatternRegistry

__all__ = ("FoundCall", "TextScan", "gather", "scan_text")


class FoundCall(Struct, frozen=True):
    """A call that stood in a text from `start` to `end`. `arguments` is JSON source; `call_id` the model's own id."""

    name: str
    arguments: str
    call_id: str = ""
    pattern: str = ""
    start: int = 0
    end: int = 0


class TextScan(Struct, frozen=True):
    """What a text holds: the calls, what is left for the reader, what the model told itself, and what went wrong.

    `frame` of a problem is the character where it stands, counted from 1.
    """

    calls: tuple[FoundCall, ...] = ()
    text: str = ""
    thoughts: str = ""
    problems: tuple[Problem, ...] = ()


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
    finder = Finder(Openers(choose_patterns(formats, model, registry), offers), offers)
    return gather([*finder.feed(text), *finder.finish(finish)])


def gather(found: Iterable[Found]) -> TextScan:
    """What a finder told, as one value."""
    calls: list[FoundCall] = []
    texts: list[str] = []
    thoughts: list[str] = []
    problems: list[Problem] = []
    begun: dict[int, CallFound] = {}
    inputs: dict[int, list[str]] = {}
    for one in found:
        match one:
            case TextFound():
                texts.append(one.text)
            case ThoughtFound():
                thoughts.append(one.text)
            case CallFound():
                begun[one.index], inputs[one.index] = one, []
            case InputFound():
                inputs[one.index].append(one.text)
            case CallEnded():
                call, source = begun[one.index], "".join(inputs[one.index])
                calls.append(
                    FoundCall(call.name, source, call.call_id, call.pattern, one.start, one.end)
                )
            case CallBroken():
                pass
            case TroubleFound():
                problems.append(Problem(one.offset + 1, one.kind, one.message))
    return TextScan(tuple(calls), "".join(texts), "".join(thoughts), tuple(problems))
