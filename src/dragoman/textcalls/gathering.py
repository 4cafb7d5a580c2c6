"""What a finder told of a text, as one value: the calls, the rest of the text, what went wrong."""

from collections.abc import Iterable

from msgspec import Struct

from dragoman.model.outcome import Problem
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

__all__ = ("FoundCall", "TextScan", "gather")


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
