"""Links the events of the upstreams' answers to the frames of the client's answer. Pure.

A delta that covers the characters a to b of a part is linked to the deltas of the other wire that cover the same characters of
the corresponding part: calls correspond by id, or by name and order where the id has an alias; other parts by kind and order,
as one text. The work is linear in the number of deltas.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from dragoman.inspection.call_rows import ExchangeReading, pair_calls
from dragoman.inspection.exchange_form import EventReport
from dragoman.inspection.wire_reading import PlacedEvent, WireReading
from dragoman.model.events import (
    Completed,
    Failed,
    Finished,
    InputDelta,
    OutputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.parts import Call


class _Span(Struct, frozen=True):
    """A delta: the characters of its channel that it covers."""

    start: int
    end: int
    placed: PlacedEvent


Channel = tuple[str, int]


class _Wire:
    """The deltas of one or more answers by channel: the text of one kind of part of a choice, or the input of one call."""

    def __init__(self) -> None:
        self.spans: dict[Channel, list[_Span]] = defaultdict(list)
        self.marks: dict[tuple[str, Channel], PlacedEvent] = {}
        self._sizes: dict[Channel, int] = defaultdict(int)

    def add(self, wire: WireReading, numbers: Mapping[int, int]) -> None:
        """`numbers`: the number of each call, by its part."""
        channels: dict[int, Channel] = {}
        for placed in wire.events:
            event = placed.event
            match event:
                case PartStarted():
                    kind = type(event.header).__name__.lower()
                    if isinstance(event.header, Call):
                        channels[event.part] = ("call", numbers.get(event.part, -1 - event.part))
                    else:
                        channels[event.part] = (kind, event.choice)
                    self._mark("started", channels[event.part], placed)
                case TextDelta() | ReasoningDelta() | InputDelta():
                    self._span(channels.get(event.part, ("", 0)), event.text, placed)
                case OutputDelta():
                    self._span(("output", event.part), event.text, placed)
                case PartEnded():
                    self.marks["ended", channels.get(event.part, ("", 0))] = placed
                case Finished():
                    self._mark("finished", ("", event.choice), placed)
                case Started() | Completed() | Failed() | UsageReported():
                    self.marks[type(event).__name__.lower(), ("", 0)] = placed
                case _:
                    pass

    def _mark(self, name: str, channel: Channel, placed: PlacedEvent) -> None:
        self.marks.setdefault((name, channel), placed)

    def _span(self, channel: Channel, text: str, placed: PlacedEvent) -> None:
        start = self._sizes[channel]
        self._sizes[channel] = end = start + len(text)
        self.spans[channel].append(_Span(start, end, placed))


def link_events(reading: ExchangeReading) -> Iterator[EventReport]:
    """The events of the upstreams' answers, in order of time, each with the frames of the client's answer that it became."""
    upstream_calls = reading.upstream_calls()
    pairs = pair_calls([call for _, call in upstream_calls], reading.client.calls)
    attempt_of = {id(call): index for index, call in upstream_calls}
    ours: dict[int, int] = {}  # the number of a pair, by the part of the client's answer
    theirs: dict[int, dict[int, int]] = defaultdict(dict)  # by attempt and part
    for number, (first, second) in enumerate(pairs):
        if first is not None:
            theirs[attempt_of[id(first)]][first.part] = number
        if second is not None:
            ours[second.part] = number
    client, upstream = _Wire(), _Wire()
    client.add(reading.client, ours)
    placed: list[tuple[int | None, PlacedEvent]] = []
    for index, wire in zip(reading.answered, reading.wires, strict=True):
        upstream.add(wire, theirs[index])
        placed += [(index, each) for each in wire.events]
    for channel, spans in client.spans.items():
        if channel not in upstream.spans:
            placed += [(None, span.placed) for span in spans]
    if not reading.answered:
        placed = [(None, each) for each in reading.client.events]
    placed.sort(key=lambda each: each[1].at)
    linked = _linked(upstream, client)
    for number, (attempt, each) in enumerate(placed):
        yield _report(number, attempt, each, linked.get(id(each), ()))


def _linked(upstream: _Wire, client: _Wire) -> dict[int, list[PlacedEvent]]:
    """The events of the client's answer for each event of an upstream's."""
    linked: dict[int, list[PlacedEvent]] = {}
    for channel, spans in upstream.spans.items():
        _link_spans(spans, client.spans.get(channel, []), linked)
    for key, placed in upstream.marks.items():
        same = client.marks.get(key)
        if same is not None:
            linked[id(placed)] = [same]
    return linked


def _report(
    number: int, attempt: int | None, placed: PlacedEvent, linked: Sequence[PlacedEvent]
) -> EventReport:
    event = placed.event
    ours = linked if attempt is not None else (placed,)
    frames = dict.fromkeys(each.frame for each in ours if each.frame is not None)
    has_place = attempt is not None and placed.start >= 0
    return EventReport(
        n=number,
        at=round(placed.at, 3),
        type=type(event).__name__,
        part=getattr(event, "part", None),
        choice=getattr(event, "choice", 0),
        text=_event_text(placed),
        attempt=attempt,
        upstream_frame=placed.frame if attempt is not None else None,
        client_frames=tuple(frames),
        upstream_range=(placed.start, placed.end) if has_place else None,
        client_ranges=tuple(
            (each.frame, each.start, each.end)
            for each in ours
            if each.frame is not None and each.start >= 0
        ),
    )


def _link_spans(
    upstream: Sequence[_Span], client: Sequence[_Span], linked: dict[int, list[PlacedEvent]]
) -> None:
    """Link deltas that cover the same characters, up to where the texts differ."""
    limit = common_prefix(_joined(upstream), _joined(client))
    at = 0
    for span in upstream:
        while at < len(client) and client[at].end <= span.start:
            at += 1
        found: list[PlacedEvent] = []
        end = at
        while end < len(client) and client[end].start < min(span.end, limit):
            found.append(client[end].placed)
            end += 1
        if span.start < limit:
            linked[id(span.placed)] = found


def _joined(spans: Sequence[_Span]) -> str:
    return "".join([span.placed.text for span in spans])


def _event_text(placed: PlacedEvent) -> str | None:
    event = placed.event
    match event:
        case TextDelta() | ReasoningDelta() | InputDelta() | OutputDelta():
            return event.text
        case Finished():
            return event.reason
        case Failed():
            return event.error.message
        case PartStarted() | PartEnded():
            part = event.header if isinstance(event, PartStarted) else event.value
            return part.name if isinstance(part, Call) else type(part).__name__.lower()
        case _:
            return None


def common_prefix(one: str | bytes, other: str | bytes) -> int:
    """How long two texts are the same from the beginning. Compares by halves: slices are compared at once."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
