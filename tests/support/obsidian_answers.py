"""Answers for tests of the Obsidian contract: as events, cut in any way, and folded again."""

from collections.abc import Iterable, Sequence
from random import Random

from msgspec import Struct

from disagreements import find_disagreements
from dragoman._json import raw
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.model.events import (
    Completed,
    Event,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import FinishReason, Outcome, Usage
from dragoman.model.parts import Call, PartStatus, Text
from dragoman.model.request import Tool

TOOLS = (
    Tool(
        name="search",
        schema=raw(
            {"type": "object", "properties": {"query": {"type": "string"}, "terms": {"type": "array"}}}
        ),
    ),
    Tool(
        name="write",
        schema=raw(
            {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
        ),
    ),
    Tool(name="now"),
)  # fmt: skip


class Called(Struct, frozen=True):
    call_id: str
    name: str
    source: str = "{}"
    is_whole: bool = True


Piece = str | Called


def block(name: str, *parameters: tuple[str, str]) -> str:
    """A `<use_tool>` block as it is to be written."""
    lines = [f"  <{key}>{value}</{key}>" for key, value in (("name", name), *parameters)]
    return "\n".join(("<use_tool>", *lines, "</use_tool>"))


def cuts(text: str, random: Random | None) -> list[str]:
    """The text in pieces: whole, or cut by chance."""
    if random is None:
        return [text]
    pieces: list[str] = []
    while text:
        size = random.randint(1, 7)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def part_events(
    number: int, piece: Piece, random: Random | None = None, choice: int = 0
) -> list[Event]:
    if isinstance(piece, str):
        return [
            PartStarted(number, Text(status="in_progress"), choice),
            *(TextDelta(number, each) for each in cuts(piece, random)),
            PartEnded(number, Text(text=piece)),
        ]
    call = Call(call_id=piece.call_id, name=piece.name, status="in_progress")
    status: PartStatus = "completed" if piece.is_whole else "incomplete"
    return [
        PartStarted(number, call, choice),
        *(InputDelta(number, each) for each in cuts(piece.source, random)),
        PartEnded(
            number, Call(call_id=piece.call_id, name=piece.name, input=piece.source, status=status)
        ),
    ]


def answer(
    *pieces: Piece, finish: FinishReason | None = None, random: Random | None = None
) -> list[Event]:
    """A whole answer of one choice."""
    has_calls = any(isinstance(piece, Called) for piece in pieces)
    events: list[Event] = [Started("chatcmpl-1", "m", 1)]
    for number, piece in enumerate(pieces):
        events += part_events(number, piece, random)
    return [
        *events,
        Finished(finish or ("tool_calls" if has_calls else "stop")),
        UsageReported(Usage(input=1, output=2)),
        Completed(),
    ]


def checked(events: Iterable[Event]) -> Outcome:
    """What the events amount to; they must be a grammatical answer whose deltas join."""
    sequence: Sequence[Event] = list(events)
    assert is_grammatical(sequence), sequence
    assert find_disagreements(sequence) == ()
    return fold(sequence)


def calls_of(outcome: Outcome, choice: int = 0) -> list[tuple[str, str]]:
    parts = outcome.choices[choice].parts
    return [(part.name, part.input) for part in parts if isinstance(part, Call)]


def text_of(outcome: Outcome, choice: int = 0) -> str:
    parts = outcome.choices[choice].parts
    return "".join(part.text for part in parts if isinstance(part, Text))
