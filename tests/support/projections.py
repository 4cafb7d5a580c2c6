"""What each dialect keeps of an answer, written apart from the codecs: the other side of laws 3, 5 and 10.

    project(dialect, events)   what must come back when the events were written in the dialect and read again,
                               and the loss codes that must have been reported
    received(dialect, events)  what came back, to be compared with it

Every step that leaves something out notes a code of the dialect's loss table, or is in `NORMALISED` with its reason.
No projection imports a codec: an encoder and a reader that agree on a mistake are still found out.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.fold import fold
from dragoman.dialects.translate import make_decoder, make_encoder
from dragoman.model.events import Event, Noticed, PartEnded, PartStarted
from dragoman.model.outcome import Loss, Outcome, Problem
from dragoman.model.parts import Opaque, Part
from projecting import NORMALISED, Answer, Projection
from projection_chat import project_chat, settle_chat
from projection_messages import project_messages, settle_messages
from projection_responses import project_responses, settle_responses

__all__ = (
    "NORMALISED",
    "Projection",
    "Read",
    "Written",
    "project",
    "read",
    "received",
    "without_the_unheard_of",
    "write",
)

_PROJECTIONS: Mapping[str, Callable[[Answer], Projection]] = {
    "chat": project_chat,
    "messages": project_messages,
    "responses": project_responses,
}
_SETTLERS: Mapping[str, Callable[[Outcome], Outcome]] = {
    "chat": settle_chat,
    "messages": settle_messages,
    "responses": settle_responses,
}


class Written(Struct, frozen=True):
    data: bytes
    losses: tuple[Loss, ...]


class Read(Struct, frozen=True):
    events: tuple[Event, ...]
    problems: tuple[Problem, ...]


def project(dialect: str, events: Iterable[Event]) -> Projection:
    return _PROJECTIONS[dialect](Answer(events))


def received(dialect: str, events: Iterable[Event]) -> Outcome:
    return _SETTLERS[dialect](fold(events))


def write(dialect: str, events: Iterable[Event]) -> Written:
    """A stream of the dialect, as a door writes it: one part at a time."""
    encoder = make_encoder(dialect)
    data = [encoder.encode(event) for event in events]
    return Written(b"".join(data) + encoder.close(), encoder.losses)


def read(dialect: str, reads: Iterable[bytes]) -> Read:
    decoder = make_decoder(dialect)
    steps = [step for data in reads for step in decoder.feed(data)]
    steps += decoder.close()
    return Read(
        tuple(event for step in steps for event in step.events),
        tuple(problem for step in steps for problem in step.problems),
    )


def without_the_unheard_of(dialect: str, sequence: tuple[Event, ...]) -> list[Event]:
    """The events without parts and frames of this dialect that its SDK does not know.

    They are given back as they came, to a client that talks to their server anyhow; its types are its own affair.
    """
    kept: list[Event] = []
    for event in sequence:
        match event:
            case Noticed(kind="unknown") if event.dialect == dialect:
                continue
            case PartStarted():
                kept.append(replace(event, header=_of_another(event.header, dialect)))
            case PartEnded():
                kept.append(replace(event, value=_of_another(event.value, dialect)))
            case _:
                kept.append(event)
    return kept


def _of_another(part: Part, dialect: str) -> Part:
    is_own = isinstance(part, Opaque) and part.dialect == dialect
    return replace(part, dialect="codex") if is_own else part
