"""A part before its end: what a header and the deltas since amount to.

`PartEnded` is authoritative, so this matters where it never came, and where a test checks it.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.model.events import (
    AnnotationAdded,
    Event,
    InputDelta,
    MediaDelta,
    OutputDelta,
    PartEnded,
    PartStarted,
    ReasoningChannel,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Seal, Text

Delta = (
    TextDelta | ReasoningDelta | InputDelta | OutputDelta | MediaDelta | AnnotationAdded | SealAdded
)


def join_part(header: Part, deltas: Sequence[Delta]) -> Part:
    """The part so far. What a provider-run tool prints into its call, and previews of an image there, have no field."""
    match header:
        case Text():
            return _join_text(header, deltas)
        case Refusal():
            texts = [delta for delta in deltas if isinstance(delta, TextDelta)]
            return replace(
                header,
                text="".join([header.text, *(delta.text for delta in texts)]),
                logprobs=join_logprobs([header.logprobs, *(delta.logprobs for delta in texts)]),
            )
        case Reasoning():
            return replace(
                header,
                summary=header.summary + _entries(deltas, "summary"),
                content=header.content + _entries(deltas, "content"),
                seals=header.seals + _seals(deltas),
            )
        case Call():
            inputs = [delta.text for delta in deltas if isinstance(delta, InputDelta)]
            return replace(
                header,
                input="".join([header.input, *inputs]),
                seals=header.seals + _seals(deltas),
            )
        case Result():
            output = "".join(delta.text for delta in deltas if isinstance(delta, OutputDelta))
            content = (*header.content, Text(text=output)) if output else header.content
            return replace(header, content=content)
        case Media():
            return _join_media(header, deltas)
        case Opaque():
            return header
        case _:
            assert_never(header)


def join_logprobs(pieces: Iterable[Raw | None]) -> Raw | None:
    """The logprobs of all deltas as one JSON array. A piece that is no array counts as one entry."""
    entries: list[bytes] = []
    found = False
    for piece in pieces:
        if piece is None:
            continue
        found = True
        entry = bytes(piece).strip()
        if entry.startswith(b"["):
            entry = entry[1:-1].strip()
        if entry:
            entries.append(entry)
    return Raw(b"[" + b",".join(entries) + b"]") if found else None


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


def _join_text(header: Text, deltas: Sequence[Delta]) -> Text:
    texts = [header.text]
    logprobs = [header.logprobs]
    annotations = list(header.annotations)
    for delta in deltas:
        match delta:
            case TextDelta():
                texts.append(delta.text)
                logprobs.append(delta.logprobs)
            case AnnotationAdded():
                annotations.append(delta.annotation)
            case _:
                pass
    return replace(
        header,
        text="".join(texts),
        logprobs=join_logprobs(logprobs),
        annotations=tuple(annotations),
    )


def _entries(deltas: Sequence[Delta], channel: ReasoningChannel) -> tuple[str, ...]:
    """In order of their indexes. Gaps are closed, not filled: an index is the wire's number and may be anything."""
    pieces: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, ReasoningDelta) and delta.channel == channel:
            pieces.setdefault(delta.index, []).append(delta.text)
    return tuple("".join(pieces[index]) for index in sorted(pieces))


def _seals(deltas: Sequence[Delta]) -> tuple[Seal, ...]:
    return tuple(delta.seal for delta in deltas if isinstance(delta, SealAdded))


def _join_media(header: Media, deltas: Sequence[Delta]) -> Media:
    media = [delta for delta in deltas if isinstance(delta, MediaDelta)]
    pieces = [delta.data for delta in media if delta.data]
    transcript = "".join(delta.transcript for delta in media)
    if header.kind == "image":
        # Each delta is a whole preview, better than the one before; nothing to append.
        data = pieces[-1] if pieces else header.data
    else:
        data = "".join([header.data or "", *pieces]) or header.data
    return replace(
        header,
        data=data,
        transcript=(header.transcript or "") + transcript if transcript else header.transcript,
    )
