"""The parts of a choice that are told one after another: text, refusal, reasoning, sound.

Each class is one open part. It tells deltas as they come and keeps what its end must carry. A character cut in half
between two deltas is held until its other half comes.
"""

from dragoman._json import Raw
from dragoman.core.drafts import join_logprobs
from dragoman.core.surrogates import join_halves, replace_lone
from dragoman.dialects.chat.telling import Telling
from dragoman.model.events import (
    AnnotationAdded,
    MediaDelta,
    PartEnded,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import (
    Annotation,
    Extra,
    Media,
    PartStatus,
    Reasoning,
    Refusal,
    Seal,
    Text,
)

__all__ = ("OpenAudio", "OpenReasoning", "OpenText")


class OpenText:
    """A Text or a Refusal. `part` and `pieces` are the reader's to use for deltas it has understood by itself."""

    __slots__ = (
        "_annotations",
        "_logprobs",
        "_telling",
        "_unsaid",
        "half",
        "is_refusal",
        "part",
        "pieces",
    )

    def __init__(self, telling: Telling, choice: int, *, is_refusal: bool) -> None:
        header = Refusal(status="in_progress") if is_refusal else Text(status="in_progress")
        self._telling = telling
        self._annotations: list[Annotation] = []
        self._logprobs: list[Raw] = []
        self._unsaid: list[Raw] = []  # logprobs of tokens that had no text of their own
        self.is_refusal = is_refusal
        self.half = ""
        self.pieces: list[str] = []
        self.part = telling.start(header, choice)

    @property
    def is_plain(self) -> bool:
        """Whether the next delta can be told as it is."""
        return not self.half and not self._unsaid

    def add(self, text: str, logprobs: Raw | None = None) -> None:
        if logprobs is not None:
            self._logprobs.append(logprobs)
            self._unsaid.append(logprobs)
        text, self.half = join_halves(self.half, text)
        self._tell(text)

    def annotate(self, annotation: Annotation) -> None:
        self._annotations.append(annotation)
        self._telling.events.append(AnnotationAdded(self.part, annotation))

    def end(self, status: PartStatus) -> None:
        self._tell(replace_lone(self.half))
        if self._unsaid:
            # Tokens at the end that have no text of their own.
            self._telling.events.append(TextDelta(self.part, "", join_logprobs(self._unsaid)))
        text = "".join(self.pieces)
        logprobs = join_logprobs(self._logprobs)
        annotations = tuple(self._annotations)
        value = (
            Refusal(text=text, logprobs=logprobs, status=status)
            if self.is_refusal
            else Text(text=text, annotations=annotations, logprobs=logprobs, status=status)
        )
        self._telling.events.append(PartEnded(self.part, value))

    def _tell(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self._telling.events.append(TextDelta(self.part, text, join_logprobs(self._unsaid)))
            self._unsaid.clear()


class OpenReasoning:
    """A Reasoning, all in `summary`: Chat servers do not tell summaries from the thoughts themselves.

    `field` is the wire's name for it, kept (as extra) where it is not the usual one.
    """

    __slots__ = ("_extra", "_sealed", "_seals", "_telling", "half", "part", "pieces")

    def __init__(self, telling: Telling, choice: int, field: str) -> None:
        self._telling = telling
        self._extra = {} if field == "reasoning_content" else {field: Raw(b'""')}
        self._seals: list[Seal] = []
        self._sealed: dict[str, list[bytes]] = {}
        self.half = ""
        self.pieces: list[str] = []
        extra = Extra("chat", dict(self._extra)) if self._extra else None
        self.part = telling.start(Reasoning(status="in_progress", extra=extra), choice)

    def add(self, text: str) -> None:
        text, self.half = join_halves(self.half, text)
        self._tell(text)

    def seal(self, seal: Seal) -> None:
        self._seals.append(seal)
        self._telling.events.append(SealAdded(self.part, seal))

    def keep(self, field: str, entry: Raw) -> None:
        """An entry of a sealed list, to be given back as it came."""
        self._sealed.setdefault(field, []).append(bytes(entry))

    def end(self, status: PartStatus) -> None:
        self._tell(replace_lone(self.half))
        for field, entries in self._sealed.items():
            self._extra[field] = Raw(b"[" + b",".join(entries) + b"]")
        text = "".join(self.pieces)
        value = Reasoning(
            summary=(text,) if text else (),
            seals=tuple(self._seals),
            status=status,
            extra=Extra("chat", self._extra) if self._extra else None,
        )
        self._telling.events.append(PartEnded(self.part, value))

    def _tell(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self._telling.events.append(ReasoningDelta(self.part, text))


class OpenAudio:
    """Sound: base64 pieces, a transcript beside them, and fields (`expires_at`) that come at the end."""

    __slots__ = ("_data", "_extra", "_item_id", "_telling", "_transcript", "part")

    def __init__(self, telling: Telling, choice: int, item_id: str | None) -> None:
        self._telling = telling
        self._item_id = item_id
        self._data: list[str] = []
        self._transcript: list[str] = []
        self._extra: dict[str, Raw] = {}
        header = Media(kind="audio", item_id=item_id, status="in_progress")
        self.part = telling.start(header, choice)

    def add(self, data: str, transcript: str, extra: Extra | None) -> None:
        data, transcript = replace_lone(data), replace_lone(transcript)
        self._data.append(data)
        self._transcript.append(transcript)
        if extra is not None:
            self._extra.update(extra.fields)
        if data or transcript or extra is not None:
            self._telling.events.append(MediaDelta(self.part, data, transcript, extra))

    def end(self, status: PartStatus) -> None:
        value = Media(
            kind="audio",
            data="".join(self._data) or None,
            transcript="".join(self._transcript) or None,
            item_id=self._item_id,
            status=status,
            extra=Extra("chat", self._extra) if self._extra else None,
        )
        self._telling.events.append(PartEnded(self.part, value))
