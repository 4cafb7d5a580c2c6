"""Parts other than calls while they are told: what has been said of each, and what its end adds.

A track turns what the wire repeats (`.done` events, finished items) into what is new: the suffix that no delta has
brought. Where the wire contradicts what was already told the end says so (`amended`). A track numbers nothing and
looks nothing up; `ledger` does.

The problems a track finds go to `found`, the reader's own list.
"""

from collections.abc import Sequence
from typing import final

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.drafts import join_logprobs
from dragoman.core.surrogates import join_halves, replace_lone
from dragoman.dialects.responses.wire import (
    Delta,
    OutputTextDelta,
    ReasoningTextDelta,
    RefusalDelta,
    SummaryTextDelta,
)
from dragoman.model.events import (
    AnnotationAdded,
    Event,
    MediaDelta,
    PartEnded,
    ReasoningChannel,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import (
    Annotation,
    Media,
    Opaque,
    PartStatus,
    Reasoning,
    Refusal,
    Result,
    Text,
)

__all__ = ("Found", "ReasoningTrack", "SoundTrack", "TextTrack", "WholeTrack")

Found = list[tuple[str, str]]


@final
class TextTrack:
    """A Text or a Refusal. `index` is its content index."""

    __slots__ = (
        "_annotations",
        "_contradiction",
        "_half",
        "_logprobs",
        "_native",
        "early",
        "ended",
        "header",
        "index",
        "part",
        "pieces",
        "value",
        "wire",
    )

    def __init__(self, part: int, header: Text | Refusal, index: int) -> None:
        self.part = part
        self.header = header
        self.index = index
        self._native: type[Delta] = OutputTextDelta if isinstance(header, Text) else RefusalDelta
        # The deltas that need no thought; none while half a character is held and after the end.
        self.wire: type[Delta] | None = self._native
        self.pieces: list[str] = []
        self.value: Text | Refusal | None = None
        self.early = (
            ""  # text that stood in `content_part.added`: used only if nothing else tells it
        )
        self.ended = False
        self._half = ""
        self._logprobs: list[Raw] = []
        self._annotations: list[Annotation] = []
        self._contradiction: str | None = None

    def push(self, text: str, logprobs: Raw | None = None) -> list[Event]:
        told, self._half = join_halves(self._half, text)
        self.wire = None if self._half else self._native
        if logprobs is not None:
            self._logprobs.append(logprobs)
        return self._tell(told, logprobs)

    def top_up(self, whole: str) -> list[Event]:
        """The wire says what the whole text is: tell what is missing."""
        if not whole:
            return []
        told = self._told()
        if not whole.startswith(told):
            self._contradiction = whole
            return []
        self._half = ""
        self._contradiction = None
        self.wire = self._native
        return self._tell(whole[len(told) :], None)

    def annotate(self, annotation: Annotation) -> list[Event]:
        self._annotations.append(annotation)
        return [AnnotationAdded(self.part, annotation)]

    def end(self, status: PartStatus, found: Found) -> list[Event]:
        out: list[Event] = []
        if not self.pieces and self.early:
            out += self.top_up(self.early)
        if self._half:
            out += self._tell(replace_lone(self._half), None)
        self.ended = True
        self.wire = None
        amended = self._contradiction is not None
        if amended:
            found.append(
                (
                    "text_disagrees",
                    f"expected the finished text to begin with its deltas, got another in part {self.part}",
                )
            )
        text = self._told() if self._contradiction is None else self._contradiction
        value = self.header if self.value is None else self.value
        if isinstance(value, Text) and (value.annotations or self._annotations):
            for annotation in value.annotations[len(self._annotations) :]:
                out += self.annotate(annotation)
            value = replace(value, annotations=value.annotations or tuple(self._annotations))
        if value.logprobs is None and self._logprobs:
            value = replace(value, logprobs=join_logprobs(self._logprobs))
        out.append(PartEnded(self.part, replace(value, text=text, status=status), amended))
        return out

    def _told(self) -> str:
        """Everything told so far, joined once: the wire repeats the whole three times."""
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def _tell(self, text: str, logprobs: Raw | None) -> list[Event]:
        if not text:
            return []
        self.pieces.append(text)
        return [TextDelta(self.part, text, logprobs)]


class _Entry:
    """One entry of a reasoning's summary or content."""

    __slots__ = ("half", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.half = ""


@final
class ReasoningTrack:
    """A Reasoning. `wire`, `index`, `channel` and `pieces` are those of the entry that grows now."""

    __slots__ = (
        "_contradiction",
        "_entries",
        "channel",
        "ended",
        "header",
        "index",
        "part",
        "pieces",
        "wire",
    )

    def __init__(self, part: int, header: Reasoning) -> None:
        self.part = part
        self.header = header
        self.ended = False
        self.wire: type[Delta] | None = None
        self.index = 0
        self.channel: ReasoningChannel = "summary"
        self.pieces: list[str] = []
        self._entries: dict[ReasoningChannel, dict[int, _Entry]] = {"summary": {}, "content": {}}
        self._contradiction = False

    def open(self, channel: ReasoningChannel, index: int) -> None:
        """An entry exists, although it may stay empty."""
        self._entries[channel].setdefault(index, _Entry())

    def push(self, channel: ReasoningChannel, index: int, text: str) -> list[Event]:
        entry = self._entry(channel, index)
        told, entry.half = join_halves(entry.half, text)
        self.index, self.channel, self.pieces = index, channel, entry.pieces
        native = SummaryTextDelta if channel == "summary" else ReasoningTextDelta
        self.wire = None if entry.half else native
        return self._tell(entry, channel, index, told)

    def top_up(self, channel: ReasoningChannel, index: int, whole: str) -> list[Event]:
        entry = self._entry(channel, index)
        told = "".join(entry.pieces)
        self.wire = None
        if whole.startswith(told):
            entry.half = ""
            return self._tell(entry, channel, index, whole[len(told) :])
        self._contradiction = self._contradiction or bool(whole)
        return []

    def end(self, value: Reasoning | None, status: PartStatus, found: Found) -> list[Event]:
        """`value` is the finished item, None if it never came."""
        out: list[Event] = []
        final = self.header if value is None else value
        out += self._finish("summary", final.summary)
        out += self._finish("content", final.content)
        out += [SealAdded(self.part, seal) for seal in final.seals]
        if self._contradiction:
            found.append(
                (
                    "text_disagrees",
                    f"expected the finished reasoning to begin with its deltas, got another in part {self.part}",
                )
            )
        else:
            final = replace(final, summary=self._texts("summary"), content=self._texts("content"))
        self.ended = True
        self.wire = None
        out.append(PartEnded(self.part, replace(final, status=status), self._contradiction))
        return out

    def _finish(self, channel: ReasoningChannel, texts: Sequence[str]) -> list[Event]:
        out: list[Event] = []
        entries = self._entries[channel]
        # Finished entries are counted by their place; deltas name theirs. Regular streams count both from 0.
        places = [*sorted(entries), *range(max(entries, default=-1) + 1, len(texts))]
        for place, text in zip(places, texts, strict=False):
            out += self.top_up(channel, place, text)
        for index, entry in entries.items():
            out += self._tell(entry, channel, index, replace_lone(entry.half))
            entry.half = ""
        return out

    def _texts(self, channel: ReasoningChannel) -> tuple[str, ...]:
        return tuple("".join(entry.pieces) for _, entry in sorted(self._entries[channel].items()))

    def _entry(self, channel: ReasoningChannel, index: int) -> _Entry:
        return self._entries[channel].setdefault(index, _Entry())

    def _tell(self, entry: _Entry, channel: ReasoningChannel, index: int, text: str) -> list[Event]:
        if not text:
            return []
        entry.pieces.append(text)
        return [ReasoningDelta(self.part, text, channel, index)]


class WholeTrack:
    """A part that comes whole: an Opaque or a Result."""

    __slots__ = ("ended", "header", "part")

    def __init__(self, part: int, header: Opaque | Result) -> None:
        self.part = part
        self.header = header
        self.ended = False

    def end(self, status: PartStatus, value: Opaque | Result | None) -> list[Event]:
        final = self.header if value is None or type(value) is not type(self.header) else value
        if isinstance(final, Result):
            final = replace(final, status=status)
        self.ended = True
        return [PartEnded(self.part, final)]


class SoundTrack:
    """The sound of an answer. It belongs to no item."""

    __slots__ = ("_data", "_transcript", "ended", "part", "waiting")

    def __init__(self, part: int) -> None:
        self.part = part
        self.ended = False
        self.waiting = {"data", "transcript"}  # what has not been closed yet
        self._data: list[str] = []
        self._transcript: list[str] = []

    def push(self, data: str, transcript: str) -> list[Event]:
        if data:
            self._data.append(data)
        if transcript:
            self._transcript.append(transcript)
        return [MediaDelta(self.part, data, transcript)] if data or transcript else []

    def end(self, status: PartStatus) -> list[Event]:
        self.ended = True
        media = Media(
            kind="audio",
            data="".join(self._data) or None,
            transcript="".join(self._transcript) or None,
            status=status,
        )
        return [PartEnded(self.part, media)]
