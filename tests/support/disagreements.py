"""Whether the ends of parts carry the text of their deltas."""

from collections.abc import Iterable

from dragoman.core.fold import join_part
from dragoman.model.events import (
    Delta,
    Event,
    InputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.parts import Call, Part, Reasoning, Refusal, Text


def find_disagreements(events: Iterable[Event]) -> tuple[int, ...]:
    """The parts whose end does not carry the text of its deltas, without saying that it was amended."""
    headers: dict[int, Part] = {}
    deltas: dict[int, list[Delta]] = {}
    found: list[int] = []
    for event in events:
        match event:
            case PartStarted():
                headers[event.part] = event.header
                deltas[event.part] = []
            case PartEnded():
                joined = join_part(headers[event.part], deltas.pop(event.part))
                if not event.amended and _words(joined) != _words(event.value):
                    found.append(event.part)
            case TextDelta() | ReasoningDelta() | InputDelta():
                deltas[event.part].append(event)
            case _:
                pass
    return tuple(found)


def _words(part: Part) -> tuple[object, ...]:
    """The text that deltas must join to. Empty entries of a reasoning have no delta."""
    match part:
        case Text() | Refusal():
            return (part.text,)
        case Reasoning():
            return (
                [entry for entry in part.summary if entry],
                [entry for entry in part.content if entry],
            )
        case Call():
            return (part.input,)
        case _:
            return ()
