"""What the finder reports about a text: findings, which `scanner` turns into events, and all findings as one value.

    TextFound ThoughtFound                     text for the reader, reasoning of the model
    CallFound InputFound* CallEnded            a call, whose inputs join to one JSON object
    CallFound InputFound* CallBroken           a call that was reported while it streamed and then went wrong
    ProblemFound                               an irregularity

Offsets count characters from the beginning of the text. `index` counts the calls of one text from 0.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from dragoman.model.outcome import Problem

ProblemKind = Literal["malformed", "truncated", "unknown_tool", "limit", "repaired"]


class TextFound(Struct, frozen=True, gc=False):
    text: str


class ThoughtFound(Struct, frozen=True, gc=False):
    text: str


class CallFound(Struct, frozen=True, gc=False):
    """A call begins. `call_id` is the model's own, empty if its format has none."""

    index: int
    name: str
    call_id: str
    pattern: str


class InputFound(Struct, frozen=True, gc=False):
    index: int
    text: str


class CallEnded(Struct, frozen=True, gc=False):
    """The call is complete. Its markup is from `start` to `end`."""

    index: int
    start: int
    end: int


class CallBroken(Struct, frozen=True, gc=False):
    """A call that was already reported cannot be completed and must not be run."""

    index: int
    reason: str


class ProblemFound(Struct, frozen=True, gc=False):
    kind: ProblemKind
    message: str
    offset: int


Found = TextFound | ThoughtFound | CallFound | InputFound | CallEnded | CallBroken | ProblemFound


class FoundCall(Struct, frozen=True):
    """A call in a text, from `start` to `end`. arguments: JSON source. call_id: the model's own id, or empty."""

    name: str
    arguments: str
    call_id: str = ""
    pattern: str = ""
    start: int = 0
    end: int = 0


class TextScan(Struct, frozen=True):
    """The calls in a text, the rest of the text, the reasoning inside markup, and the problems.

    `frame` of a problem is its position in characters, counted from 1.
    """

    calls: tuple[FoundCall, ...] = ()
    text: str = ""
    thoughts: str = ""
    problems: tuple[Problem, ...] = ()


def gather(found: Iterable[Found]) -> TextScan:
    """Return all findings of a text as one value."""
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
            case ProblemFound():
                problems.append(Problem(one.offset + 1, one.kind, one.message))
    return TextScan(tuple(calls), "".join(texts), "".join(thoughts), tuple(problems))
