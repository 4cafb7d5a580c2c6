"""What the property tests are fed: grammatical event sequences, whole answers, and ways to cut bytes into reads.

    events(...)      one whole answer as a tuple of events, grammatical by construction
    prefixes(...)    the beginning of one
    outcomes()       folded answers, finished and not
    rechunk(data)    the same bytes as one read, byte by byte, and randomly cut
    chunkings(data)  the same as a strategy
    texts(), json_texts(), parts(), …   what goes into them, from `part_strategies`

The generator does not use the code under test: order, numbering and joins are its own.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.fold import fold
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    MediaDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningChannel,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason, Outcome, Usage
from dragoman.model.parts import Call, Extra, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from part_strategies import (
    ALL_KINDS,
    Kind,
    annotations,
    custom_calls,
    dialects,
    errors,
    extras,
    function_calls,
    json_texts,
    json_values,
    limits,
    logprobs,
    maybe,
    media,
    names,
    opaques,
    parts,
    provider_calls,
    raws,
    reasonings,
    refusals,
    results,
    seals,
    seldom,
    several,
    text_parts,
    texts,
    usages,
)

__all__ = (
    "ALL_KINDS",
    "Kind",
    "annotations",
    "byte_by_byte",
    "chunkings",
    "custom_calls",
    "dialects",
    "errors",
    "events",
    "extras",
    "fragments",
    "function_calls",
    "json_texts",
    "json_values",
    "limits",
    "logprobs",
    "maybe",
    "media",
    "names",
    "opaques",
    "outcomes",
    "parts",
    "prefixes",
    "provider_calls",
    "random_cuts",
    "raws",
    "reasonings",
    "rechunk",
    "refusals",
    "results",
    "seals",
    "seldom",
    "several",
    "text_parts",
    "texts",
    "unfinished",
    "usages",
)

T = TypeVar("T")

# --- parts as events -----------------------------------------------------------------------------------------------------


_FRAGMENT_COUNTS = st.sampled_from((1, 2, 3, 6))


def fragments(text: str) -> st.SearchStrategy[list[str]]:
    """The text in non-empty pieces: whole, or in two, three or six. None if it is empty."""
    return _FRAGMENT_COUNTS.map(lambda count: _cut(text, count))


def _fragments(draw: st.DrawFn, text: str) -> list[str]:
    return _cut(text, draw(_FRAGMENT_COUNTS)) if len(text) > 1 else _cut(text, 1)


def _cut(text: str, count: int) -> list[str]:
    count = min(count, len(text))
    edges = [index * len(text) // count for index in range(count + 1)] if text else []
    return [text[start:end] for start, end in pairwise(edges)]


_NUMBER = -1  # stands for a part's number until the order of parts is known


def _tellings(draw: st.DrawFn, value: Part) -> list[Event]:
    """One part as events: header, deltas, end. Deltas of one kind keep their order; the kinds are mixed."""
    lanes = _lanes(draw, value)
    deltas = _interleaved(draw, lanes)
    return [PartStarted(_NUMBER, _header_of(value)), *deltas, PartEnded(_NUMBER, value)]


def _header_of(value: Part) -> Part:
    match value:
        case Text():
            return replace(value, text="", annotations=(), logprobs=None, status="in_progress")
        case Refusal():
            return replace(value, text="", logprobs=None, status="in_progress")
        case Reasoning():
            return replace(value, summary=(), content=(), seals=(), status="in_progress")
        case Call():
            return replace(value, input="", seals=(), status="in_progress")
        case Result():
            return replace(value, content=(), status="in_progress")
        case Media():
            return replace(value, data=None, transcript=None, status="in_progress")
        case Opaque():
            return value


def _lanes(draw: st.DrawFn, value: Part) -> list[list[Event]]:
    number = _NUMBER
    match value:
        case Text():
            pieces = _fragments(draw, value.text)
            deltas: list[Event] = [TextDelta(number, piece) for piece in pieces]
            if value.logprobs is not None:
                # All of them on one delta: how an array is cut into arrays is a dialect's affair.
                last = pieces[-1] if pieces else ""
                deltas[-1:] = [TextDelta(number, last, value.logprobs)]
            return [deltas, [AnnotationAdded(number, each) for each in value.annotations]]
        case Refusal():
            return [[TextDelta(number, piece) for piece in _fragments(draw, value.text)]]
        case Reasoning():
            return [
                _entries(draw, value.summary, "summary"),
                _entries(draw, value.content, "content"),
                [SealAdded(number, seal) for seal in value.seals],
            ]
        case Call():
            output: list[Event] = []
            if value.executor == "provider":
                output = [OutputDelta(number, piece) for piece in _fragments(draw, draw(texts()))]
            return [
                [InputDelta(number, piece) for piece in _fragments(draw, value.input)],
                output,
                [SealAdded(number, seal) for seal in value.seals],
            ]
        case Result():
            printed = "".join(part.text for part in value.content if isinstance(part, Text))
            return [[OutputDelta(number, piece) for piece in _fragments(draw, printed)]]
        case Media():
            return [_media_deltas(draw, value)]
        case Opaque():
            return []


def _entries(draw: st.DrawFn, entries: tuple[str, ...], channel: ReasoningChannel) -> list[Event]:
    return [
        ReasoningDelta(_NUMBER, piece, channel, index)
        for index, entry in enumerate(entries)
        for piece in _fragments(draw, entry)
    ]


def _media_deltas(draw: st.DrawFn, value: Media) -> list[Event]:
    data = value.data or ""
    # An image is shown as previews, each whole; anything else grows.
    pieces = [data] if value.kind == "image" else _fragments(draw, data)
    deltas: list[Event] = [MediaDelta(_NUMBER, data=piece) for piece in pieces]
    deltas += [
        MediaDelta(_NUMBER, transcript=piece) for piece in _fragments(draw, value.transcript or "")
    ]
    return deltas


def _interleaved(draw: st.DrawFn, lanes: list[list[T]]) -> list[T]:
    """The lanes merged into one; each keeps its own order."""
    lanes = [lane for lane in lanes if lane]
    way = draw(st.integers(0, 3)) if len(lanes) > 1 else 0
    if way == 0:  # one after the other
        return [item for lane in lanes for item in lane]
    if way == 1:  # in turns
        longest = max(len(lane) for lane in lanes)
        return [lane[turn] for turn in range(longest) for lane in lanes if turn < len(lane)]
    # By a seed: drawn one by one, the places cost more than all the rest, and shrinking prefers the ways above anyhow.
    order = [number for number, lane in enumerate(lanes) for _ in lane]
    random.Random(draw(st.integers(0, 2**32))).shuffle(order)
    queues = [iter(lane) for lane in lanes]
    return [next(queues[number]) for number in order]


# --- answers ---------------------------------------------------------------------------------------------------------


@dataclass
class _Script:
    """One part of one choice as events, before the parts are put in order."""

    choice: int
    deltas: list[Event]

    @property
    def value(self) -> Part:
        end = self.deltas[-1]
        assert isinstance(end, PartEnded)
        return end.value

    def amend(self, header: Part, value: Part, *, amended: bool = False) -> None:
        self.deltas[0] = PartStarted(_NUMBER, header, self.choice)
        self.deltas[-1] = PartEnded(_NUMBER, value, amended)


@st.composite
def events(
    draw: st.DrawFn,
    *,
    kinds: Sequence[Kind] = ALL_KINDS,
    max_parts: int = 4,
    max_choices: int = 2,
    overlapping: bool = True,
    may_fail: bool = True,
    may_amend: bool = False,
    noise: bool = True,
) -> tuple[Event, ...]:
    """One whole answer.

    kinds: which parts it may hold. overlapping: parts of one choice may be open at once. may_fail: it may end in
    Failed at any point, its open parts ended as incomplete. may_amend: a call's end may differ from what was streamed
    and say so. noise: Noticed, Progress and LimitsReported anywhere they may stand.
    """
    count = draw(st.integers(1, max_choices))
    scripts = [
        _Script(choice, _tellings(draw, value))
        for choice in range(count)
        for value in draw(several(parts(tuple(kinds)), max_parts))
    ]
    scripts = _identified(scripts)
    for choice in range(count):
        if draw(st.integers(0, 5)) == 0:
            _cut_last_call(scripts, choice, draw(st.integers(0, 3)))
    if may_amend:
        _amend_some(scripts, draw(st.sets(st.integers(0, len(scripts)))))
    body = _numbered(_interleaved(draw, _laid_out(scripts, overlapping=overlapping)))
    for choice in range(count):
        finish = _finishes(draw, choice, [each.value for each in scripts if each.choice == choice])
        body.insert(draw(st.integers(_end_of(choice, body), len(body))), finish)
    body = _with_reports(draw, body, noise=noise)
    whole: list[Event] = [draw(_starts()), *body, Completed(draw(seldom(extras())))]
    if noise and draw(st.booleans()):
        whole.insert(0, draw(_notices()))
    if may_fail and draw(st.integers(0, 3)) == 0:
        whole = _failed(whole[: draw(st.integers(0, len(whole) - 1))], draw(errors()))
    return tuple(whole)


def prefixes(
    whole: st.SearchStrategy[tuple[Event, ...]] | None = None,
) -> st.SearchStrategy[tuple[Event, ...]]:
    """The beginning of an answer, down to nothing at all."""
    return (events() if whole is None else whole).flatmap(
        lambda result: st.integers(0, len(result)).map(lambda end: result[:end])
    )


def outcomes() -> st.SearchStrategy[Outcome]:
    """Whole answers: finished, failed, and cut off anywhere."""
    return (events() | prefixes()).map(fold)


def _starts() -> st.SearchStrategy[Started]:
    return st.builds(
        Started,
        st.just("resp_1"),
        st.sampled_from(("", "a-model")),
        st.sampled_from((None, 0, 1700000000)),
        seldom(extras()),
    )


def _notices(part: int | None = None) -> st.SearchStrategy[Noticed]:
    return st.sampled_from(
        (
            Noticed("ping"),
            Noticed("comment", raw=Raw(b'"OPENROUTER PROCESSING"'), part=part),
            Noticed("unknown", "responses", "response.later", Raw(b'{"type":"x"}'), part),
            Noticed("fields", "chat", raw=Raw(b'{"obfuscation":"a"}'), part=part),
        )
    )


def _identified(scripts: Iterable[_Script]) -> list[_Script]:
    """Ids made unique, and each result given to the provider-run call before it in its choice (dropped if none)."""
    kept: list[_Script] = []
    asked: dict[int, str] = {}
    for number, script in enumerate(scripts):
        value = script.value
        match value:
            case Call():
                value = replace(value, call_id=f"{value.call_id}{number}")
                if value.executor == "provider":
                    asked[script.choice] = value.call_id
            case Result():
                call_id = asked.pop(script.choice, None)
                if call_id is None:
                    continue
                value = replace(value, call_id=call_id)
            case _:
                pass
        if value.item_id is not None:
            value = replace(value, item_id=f"{value.item_id}{number}")
        script.amend(_header_of(value), value)
        kept.append(script)
    return kept


def _cut_last_call(scripts: Sequence[_Script], choice: int, keep: int) -> None:
    """The answer ran into its limit: the last client call of the choice has only its first fragments."""
    for script in reversed(scripts):
        value = script.value
        if script.choice == choice and isinstance(value, Call) and value.executor == "client":
            result = [event for event in script.deltas if isinstance(event, InputDelta)][:keep]
            text = "".join(event.text for event in result)
            cut = replace(value, input=text, status="incomplete", seals=())
            script.deltas[1:-1] = result
            script.amend(_header_of(cut), cut)
            return


def _amend_some(scripts: Sequence[_Script], chosen: set[int]) -> None:
    for number, script in enumerate(scripts):
        value = script.value
        if number in chosen and isinstance(value, Call) and value.status == "completed":
            other = replace(value, input='{"amended":true}')
            script.amend(_header_of(other), other, amended=True)


def _laid_out(
    scripts: Sequence[_Script], *, overlapping: bool
) -> list[list[tuple[_Script, Event]]]:
    """What keeps its order: each part by itself, a result after its call; or all parts of a choice."""
    lanes: dict[object, list[tuple[_Script, Event]]] = {}
    for number, script in enumerate(scripts):
        value = script.value
        lane: object = script.choice if not overlapping else ("part", number)
        if overlapping and isinstance(value, Call | Result):
            lane = value.call_id
        lanes.setdefault(lane, []).extend((script, event) for event in script.deltas)
    return list(lanes.values())


def _numbered(order: Iterable[tuple[_Script, Event]]) -> list[Event]:
    numbers: dict[int, int] = {}
    return [
        replace(event, part=numbers.setdefault(id(script), len(numbers))) for script, event in order
    ]


def _end_of(choice: int, body: Sequence[Event]) -> int:
    """The first position at which nothing of the choice is left."""
    mine = {
        event.part for event in body if isinstance(event, PartStarted) and event.choice == choice
    }
    ends = [
        position
        for position, event in enumerate(body)
        if isinstance(event, PartEnded) and event.part in mine
    ]
    return ends[-1] + 1 if ends else 0


def _finishes(draw: st.DrawFn, choice: int, values: Sequence[Part]) -> Finished:
    calls = [value for value in values if isinstance(value, Call) and value.executor == "client"]
    reasons: tuple[FinishReason, ...]
    if any(call.status == "incomplete" for call in calls):
        reasons = ("length", "content_filter", "context_window")
    elif draw(st.integers(0, 5)) == 0:
        reasons = ("length", "content_filter", "refusal", "pause", "context_window")
    elif calls:
        reasons = ("tool_calls",)
    else:
        reasons = ("stop", "stop_sequence")
    reason: FinishReason = draw(st.sampled_from(reasons))
    sequence = draw(texts(min_size=1)) if reason == "stop_sequence" else None
    return Finished(reason, choice, sequence, extra=draw(seldom(extras())))


def _with_reports(draw: st.DrawFn, body: list[Event], *, noise: bool) -> list[Event]:
    """Usage anywhere; and noise: limits and notices anywhere, progress before the first choice has finished."""
    for usage in _of_one_provider(draw(several(usages()))):
        body.insert(draw(st.integers(0, len(body))), UsageReported(usage))
    if not noise:
        return body
    for report in draw(several(limits(), most=1)):
        body.insert(draw(st.integers(0, len(body))), LimitsReported(report))
    for _ in range(draw(st.integers(0, 2))):
        position = draw(st.integers(0, len(body)))
        body.insert(position, draw(_notices(draw(_told_parts(body[:position])))))
    for stage in draw(several(names(), most=1)):
        first = next(index for index, event in enumerate(body) if isinstance(event, Finished))
        position = draw(st.integers(0, first))
        body.insert(position, Progress(stage, draw(_told_parts(body[:position]))))
    return body


def _of_one_provider(reports: Sequence[Usage]) -> list[Usage]:
    """Reports whose extra fields are of one dialect: one provider makes an answer."""
    found = [report.extra for report in reports if report.extra is not None]
    return [
        report
        if report.extra is None
        else replace(report, extra=Extra(found[0].dialect, report.extra.fields))
        for report in reports
    ]


def _told_parts(body: Sequence[Event]) -> st.SearchStrategy[int | None]:
    started = [event.part for event in body if isinstance(event, PartStarted)]
    return maybe(st.sampled_from(started)) if started else st.none()


def _failed(result: list[Event], error: ErrorInfo) -> list[Event]:
    """The answer breaks off: what is open is ended as incomplete, then the failure."""
    ends = [PartEnded(part, value) for part, value in unfinished(result).items()]
    return [*result, *ends, Failed(error)]


def unfinished(result: Iterable[Event]) -> dict[int, Part]:
    """The parts that are still open, as incomplete values. Written apart from `core.fold`, which it helps to test."""
    opened: dict[int, list[Event]] = {}
    for event in result:
        match event:
            case PartEnded():
                del opened[event.part]
            case Progress() | Noticed():
                pass
            case PartStarted():
                opened[event.part] = [event]
            case (
                TextDelta()
                | ReasoningDelta()
                | InputDelta()
                | OutputDelta()
                | MediaDelta()
                | AnnotationAdded()
                | SealAdded()
            ):
                opened[event.part].append(event)
            case _:
                pass
    return {part: _so_far(story) for part, story in opened.items()}


def _so_far(story: list[Event]) -> Part:
    start = story[0]
    assert isinstance(start, PartStarted)
    header = start.header
    texts_told = "".join(event.text for event in story if isinstance(event, TextDelta | InputDelta))
    sealed = tuple(event.seal for event in story if isinstance(event, SealAdded))
    match header:
        case Text():
            probabilities = [
                event.logprobs
                for event in story
                if isinstance(event, TextDelta) and event.logprobs is not None
            ]
            return replace(
                header,
                text=texts_told,
                annotations=tuple(
                    event.annotation for event in story if isinstance(event, AnnotationAdded)
                ),
                logprobs=probabilities[0] if probabilities else None,
                status="incomplete",
            )
        case Refusal():
            return replace(header, text=texts_told, status="incomplete")
        case Reasoning():
            entries: dict[tuple[ReasoningChannel, int], str] = {}
            for event in story:
                if isinstance(event, ReasoningDelta):
                    key = (event.channel, event.index)
                    entries[key] = entries.get(key, "") + event.text
            return replace(
                header,
                summary=tuple(
                    text for (channel, _), text in entries.items() if channel == "summary"
                ),
                content=tuple(
                    text for (channel, _), text in entries.items() if channel == "content"
                ),
                seals=sealed,
                status="incomplete",
            )
        case Call():
            return replace(header, input=texts_told, seals=sealed, status="incomplete")
        case Result():
            printed = "".join(event.text for event in story if isinstance(event, OutputDelta))
            content = (Text(text=printed),) if printed else ()
            return replace(header, content=content, status="incomplete")
        case Media():
            pieces = [event for event in story if isinstance(event, MediaDelta)]
            return replace(
                header,
                data="".join(event.data for event in pieces) or None,
                transcript="".join(event.transcript for event in pieces) or None,
                status="incomplete",
            )
        case Opaque():
            return header


# --- bytes in reads --------------------------------------------------------------------------------------------------

_RANDOM_CUTTINGS = 3


def rechunk(data: bytes) -> list[list[bytes]]:
    """The same bytes as one read, byte by byte, and cut at random (the same cuts in every run)."""
    return [
        [data],
        byte_by_byte(data),
        *(random_cuts(data, seed) for seed in range(_RANDOM_CUTTINGS)),
    ]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


def random_cuts(data: bytes, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    pieces: list[bytes] = []
    start = 0
    while start < len(data):
        end = start + chance.choice((1, 2, 3, 7, 30, 200))
        pieces.append(data[start:end])
        start = end
    return pieces


@st.composite
def chunkings(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The bytes cut anywhere, empty reads included."""
    edges = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    bounds = [0, *edges, len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]
