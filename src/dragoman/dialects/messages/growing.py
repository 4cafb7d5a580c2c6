"""Blocks while they stream: what has been told of one, and the part it is when it ends.

Each class takes the fragments of one block type. `tell` is the hot path, for text without surrogates while no half of a
character is held. `add` is the complete rule: it joins the halves of a pair that two deltas share. Whether a block is closed by the
protocol is decided by the reader, not here.
"""

from msgspec.structs import replace

from dragoman._json import Raw, is_strict, raw
from dragoman.core.calls import InputBuffer
from dragoman.core.seals import seals_from_signature
from dragoman.core.surrogates import join_exactly, join_halves, replace_lone
from dragoman.dialects.messages.blocks import annotation_from_citation
from dragoman.dialects.messages.fields import Fields, is_null
from dragoman.model.events import (
    AnnotationAdded,
    Event,
    InputDelta,
    PartStarted,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import (
    Annotation,
    Call,
    Opaque,
    Part,
    PartStatus,
    Reasoning,
    Seal,
    Text,
)

__all__ = ("Growing", "GrowingCall", "GrowingText", "GrowingThinking", "GrowingWhole")

_NOTHING: tuple[Event, ...] = ()


class GrowingText:
    """A text block. `part` is its number; `half` is what waits for the other half of its character."""

    __slots__ = ("_annotations", "_header", "_pieces", "half", "part")

    def __init__(self, part: int, block: Text) -> None:
        self.part = part
        self.half = ""
        self._header = block
        self._pieces: list[str] = []
        self._annotations: list[Annotation] = []

    def start(self) -> tuple[Event, ...]:
        block = self._header
        header = replace(block, text="", annotations=(), status="in_progress")
        self._header = header
        events: list[Event] = [PartStarted(self.part, header), *self.add(block.text)]
        events.extend(self._annotate(each) for each in block.annotations)
        return tuple(events)

    def tell(self, text: str) -> tuple[Event, ...]:
        if not text:
            return _NOTHING
        self._pieces.append(text)
        return (TextDelta(self.part, text),)

    def tell_all(self, texts: list[str]) -> bool:
        """More of them, none empty."""
        self._pieces += texts
        return True

    def add(self, text: str) -> tuple[Event, ...]:
        told, self.half = join_halves(self.half, text)
        if not told:
            return _NOTHING
        self._pieces.append(told)
        return (TextDelta(self.part, told),)

    def cite(self, citation: Raw) -> tuple[Event, ...]:
        annotation = annotation_from_citation(citation)
        return () if annotation is None else (self._annotate(annotation),)

    def flush(self) -> tuple[Event, ...]:
        half, self.half = replace_lone(self.half), ""
        return self.add(half)

    def value(self, status: PartStatus) -> Part:
        return replace(
            self._header,
            text="".join(self._pieces),
            annotations=tuple(self._annotations),
            status=status,
        )

    def _annotate(self, annotation: Annotation) -> Event:
        self._annotations.append(annotation)
        return AnnotationAdded(self.part, annotation)


class GrowingThinking:
    """A thinking block: one summary text, and the signature that comes last."""

    __slots__ = ("_header", "_pieces", "_seals", "half", "part")

    def __init__(self, part: int, block: Reasoning) -> None:
        self.part = part
        self.half = ""
        self._header = block
        self._pieces: list[str] = []
        self._seals: tuple[Seal, ...] = ()

    @property
    def is_sealed(self) -> bool:
        return bool(self._seals)

    def start(self) -> tuple[Event, ...]:
        block = self._header
        header = replace(block, summary=(), seals=(), status="in_progress")
        self._header = header
        started = (PartStarted(self.part, header), *self.add("".join(block.summary)))
        return (*started, *self._keep(block.seals))

    def tell(self, text: str) -> tuple[Event, ...]:
        if not text:
            return _NOTHING
        self._pieces.append(text)
        return (ReasoningDelta(self.part, text),)

    def add(self, text: str) -> tuple[Event, ...]:
        told, self.half = join_halves(self.half, text)
        if not told:
            return _NOTHING
        self._pieces.append(told)
        return (ReasoningDelta(self.part, told),)

    def sign(self, signature: str) -> tuple[Event, ...]:
        """A signature replaces an earlier one, as in the vendor's own clients."""
        return self._keep(seals_from_signature(signature))

    def flush(self) -> tuple[Event, ...]:
        half, self.half = replace_lone(self.half), ""
        return self.add(half)

    def value(self, status: PartStatus) -> Part:
        text = "".join(self._pieces)
        return replace(
            self._header, summary=(text,) if text else (), seals=self._seals, status=status
        )

    def _keep(self, seals: tuple[Seal, ...]) -> tuple[Event, ...]:
        if seals:
            self._seals = seals
        return tuple(SealAdded(self.part, seal) for seal in seals)


class GrowingCall:
    """A call. Its input comes as fragments of source text, or whole in the block's start; fragments win.

    Without a name nothing is told: `is_held`, until `name_it` gives one.
    """

    __slots__ = ("_buffer", "_header", "_in_start", "half", "is_held", "part")

    def __init__(self, part: int, block: Call) -> None:
        self.part = part
        self.half = ""
        self.is_held = not block.name
        self._buffer = InputBuffer()
        self._in_start = block.input
        self._header = replace(block, input="", status="in_progress")

    @property
    def is_client(self) -> bool:
        return self._header.executor == "client"

    @property
    def call_id(self) -> str:
        return self._header.call_id

    @property
    def is_cumulative(self) -> bool:
        return self._buffer.is_cumulative

    def start(self) -> tuple[Event, ...]:
        return () if self.is_held else (PartStarted(self.part, self._header),)

    def tell(self, text: str) -> tuple[Event, ...]:
        told = self._buffer.push(text)
        return (InputDelta(self.part, told),) if told and not self.is_held else _NOTHING

    def tell_all(self, texts: list[str]) -> bool:
        """More of them, if they are told as they come; whether they are."""
        return not self.is_held and self._buffer.keep_all(texts)

    def add(self, text: str) -> tuple[Event, ...]:
        told, self.half = join_exactly(self.half, text)
        told = self._buffer.push(told)
        return (InputDelta(self.part, told),) if told and not self.is_held else _NOTHING

    def flush(self) -> tuple[Event, ...]:
        half, self.half = replace_lone(self.half), ""
        told = self._buffer.push(half) + self._buffer.settle()[0]
        return (InputDelta(self.part, told),) if told and not self.is_held else _NOTHING

    def settle(self) -> tuple[tuple[Event, ...], bool]:
        """No more fragments: the last increment, and whether it was the input in the block's start."""
        events = self.flush()
        start, self._in_start = self._in_start, ""
        # `{}` opens every block; only the protocol's end makes it the input (`fill`).
        if not start or start.strip() == "{}" or self.text.strip():
            return events, False
        return (*events, *self._append(start)), True

    def fill(self) -> tuple[Event, ...]:
        """The protocol closed a call without input: that is `{}`."""
        return () if self.text.strip() else self._append("{}")

    def name_it(self, part: int, name: str) -> tuple[Event, ...]:
        """Tell what was held."""
        self.part = part
        self.is_held = False
        self._header = replace(self._header, name=name)
        events: tuple[Event, ...] = (PartStarted(part, self._header),)
        return (*events, InputDelta(part, self.text)) if self.text else events

    @property
    def text(self) -> str:
        return self._buffer.text()

    @property
    def is_empty(self) -> bool:
        return not self.text.strip()

    @property
    def is_strict(self) -> bool:
        return is_strict(self.text)

    def value(self, status: PartStatus) -> Part:
        return replace(self._header, input=self.text, status=status)

    def _append(self, text: str) -> tuple[Event, ...]:
        told, _ = self._buffer.settle(self.text + text)
        return (InputDelta(self.part, told),) if not self.is_held else _NOTHING


class GrowingWhole:
    """A block that comes whole in its start: redacted thinking, a result of a provider's tool, an opaque block.

    Deltas of an opaque block set its fields (a compaction's summary comes that way).
    """

    __slots__ = ("_fields", "_is_merged", "_part", "half", "part")

    def __init__(self, part: int, block: Part, fields: Fields) -> None:
        self.part = part
        self.half = ""
        self._part = block
        self._fields = dict(fields)
        self._is_merged = False

    @property
    def is_opaque(self) -> bool:
        return isinstance(self._part, Opaque)

    def start(self) -> tuple[Event, ...]:
        block = self._part
        if isinstance(block, Reasoning):
            header = replace(block, seals=(), status="in_progress")
            seals = tuple(SealAdded(self.part, seal) for seal in block.seals)
            return (PartStarted(self.part, header), *seals)
        return (PartStarted(self.part, block),)

    def merge(self, delta: Fields) -> None:
        self._is_merged = True
        self._fields.update(
            {key: value for key, value in delta.items() if key != "type" and not is_null(value)}
        )

    def flush(self) -> tuple[Event, ...]:
        return ()

    def value(self, status: PartStatus) -> Part:
        block = self._part
        if isinstance(block, Opaque):
            return replace(block, raw=raw(self._fields)) if self._is_merged else block
        return replace(block, status=status)


Growing = GrowingText | GrowingThinking | GrowingCall | GrowingWhole
