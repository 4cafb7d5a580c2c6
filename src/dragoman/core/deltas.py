"""Deltas that came in one read, kept together: they are then searched and encoded in one go. Knows no wire."""

from collections.abc import Sequence
from typing import cast, final

from msgspec import Struct

from dragoman.model.events import Event, InputDelta, TextDelta


@final
class Deltas(Struct, frozen=True, gc=False):
    """Several deltas of one part. They follow one of the same part and kind, and nothing stands between."""

    kind: type[TextDelta] | type[InputDelta]
    part: int
    texts: list[str]

    def events(self) -> list[Event]:
        kind, part = self.kind, self.part
        return [kind(part, text) for text in self.texts]


def add_deltas(
    kind: type[TextDelta] | type[InputDelta],
    part: int,
    texts: list[str],
    out: list[Event | Deltas],
) -> None:
    """Append these deltas of a part: the first by itself, the others together."""
    out.append(kind(part, texts[0]))
    if len(texts) > 1:
        out.append(Deltas(kind, part, texts[1:]))


def spread(events: Sequence[Event | Deltas]) -> Sequence[Event]:
    """The same, delta by delta."""
    if Deltas not in map(type, events):
        return cast("Sequence[Event]", events)
    single: list[Event] = []
    for one in events:
        if type(one) is Deltas:
            single += one.events()
        else:
            single.append(one)
    return single
