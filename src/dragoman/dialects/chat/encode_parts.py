"""The parts of an answer as chunks: what opens a part, its deltas, and what its end still has to say.

What a delta's chunk is made of is known when its part starts: a delta is written as prefix, JSON string, suffix.
"""

from collections.abc import Mapping, Sequence
from typing import Never, assert_never

from dragoman._json import Raw, dumps_text, dumps_texts
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook
from dragoman.dialects.chat.chunks import Envelope
from dragoman.dialects.chat.fields import own_fields
from dragoman.dialects.chat.losses import note_extra, note_foreign
from dragoman.dialects.chat.wire import REASONING_FIELDS
from dragoman.dialects.chat.writing import (
    cite,
    flat_name,
    is_expressible,
    seal_content,
    sealed_fields,
    write_audio,
    write_image,
)
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    Event,
    InputDelta,
    MediaDelta,
    OutputDelta,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text

__all__ = ("ChoiceState", "PartWriter", "refuse")

_TAKES: dict[type[Part], type[Event]] = {
    Text: TextDelta,
    Refusal: TextDelta,
    Reasoning: ReasoningDelta,
    Call: InputDelta,
    Media: MediaDelta,
}

_NO_ENVELOPE = Envelope({})


class ChoiceState:
    """What has been written of one choice."""

    __slots__ = ("calls", "has_cut_call", "has_sound", "is_finished", "open_part")

    def __init__(self) -> None:
        self.calls = 0
        self.has_sound = False
        self.has_cut_call = False
        self.is_finished = False
        self.open_part: int | None = None


class _OpenPart:
    """Which deltas a part takes and how they are written. Without a prefix they are not."""

    __slots__ = ("choice", "header", "index", "prefix", "section", "suffix", "takes", "where")

    def __init__(self, start: PartStarted) -> None:
        self.header = start.header
        self.choice = start.choice
        self.where = f"part {start.part}"
        self.takes = _TAKES.get(type(start.header))
        self.index = -1  # of a call among those of its choice
        self.prefix = b""
        self.suffix = b""
        self.section: tuple[str, int] | None = None  # of a reasoning: where the last delta went


class PartWriter:
    """Writes the parts of one answer, one at a time in each choice."""

    def __init__(self, book: LossBook, mint: Minter, *, legacy: bool) -> None:
        self._book = book
        self._mint = mint
        self._legacy = legacy
        self._open: dict[int, _OpenPart] = {}
        self.envelope = _NO_ENVELOPE

    # --- deltas -------------------------------------------------------------------------------------------------------

    def write_text(self, event: TextDelta) -> bytes:
        part = self._open.get(event.part)
        if part is None or part.takes is not TextDelta:
            refuse(event, f"part {event.part} is no open text")
        if event.logprobs is None:
            return part.prefix + dumps_text(event.text) + part.suffix
        channel = "content" if isinstance(part.header, Text) else "refusal"
        logprobs = {"content": None, "refusal": None, channel: event.logprobs}
        return self.envelope.chunk(part.choice, {channel: event.text}, {"logprobs": logprobs})

    def write_input(self, event: InputDelta) -> bytes:
        part = self._open.get(event.part)
        if part is None or part.takes is not InputDelta:
            refuse(event, f"part {event.part} is no open call")
        if part.prefix:
            return part.prefix + dumps_text(event.text) + part.suffix
        return b""

    def write_many(
        self, kind: type[TextDelta | InputDelta], number: int, texts: Sequence[str]
    ) -> bytes | None:
        """Several deltas of one part at once, without logprobs; None where one of them has to be refused."""
        part = self._open.get(number)
        if part is None or part.takes is not kind:
            return None
        prefix, suffix = part.prefix, part.suffix
        return prefix + dumps_texts(texts, suffix + prefix) + suffix if prefix else b""

    def write_reasoning(self, event: ReasoningDelta) -> bytes:
        part = self._open.get(event.part)
        if part is None or part.takes is not ReasoningDelta:
            refuse(event, f"part {event.part} is no open reasoning")
        section = (event.channel, event.index)
        text = event.text
        if section != part.section:
            if part.section is not None:
                self._book.note("reasoning_sections", part.where)
                text = "\n\n" + text
            part.section = section
        return part.prefix + dumps_text(text) + part.suffix

    def write_media(self, event: MediaDelta) -> bytes:
        part = self._find(event)
        if part.takes is not MediaDelta:
            return b""  # a preview of a picture: the picture itself comes with the end of its part
        audio: dict[str, object] = dict(own_fields(event.extra))
        if event.data:
            audio["data"] = event.data
        if event.transcript:
            audio["transcript"] = event.transcript
        return self.envelope.chunk(part.choice, {"audio": audio}) if audio else b""

    def write_annotation(self, event: AnnotationAdded) -> bytes:
        part = self._find(event)
        annotation = cite(event.annotation, self._book, part.where)
        if annotation is None:
            return b""
        return self.envelope.chunk(part.choice, {"annotations": [annotation]})

    def write_seal(self, event: SealAdded) -> bytes:
        part = self._find(event)
        if not isinstance(part.header, Call):
            return b""  # what becomes of it is seen at the end of its part
        content = None if self._legacy or part.index < 0 else seal_content(event.seal)
        if content is None:
            self._book.note("seal", part.where, event.seal.kind)
            return b""
        return self._call_chunk(part, {"extra_content": content})

    def skip_output(self, event: OutputDelta) -> bytes:
        self._book.note("provider_result", self._find(event).where)
        return b""

    # --- from start to end --------------------------------------------------------------------------------------------

    def start(self, event: PartStarted, choice: ChoiceState) -> bytes:
        if choice.is_finished:
            refuse(event, f"choice {event.choice} is finished")
        if choice.open_part is not None:
            refuse(event, f"part {choice.open_part} of the same choice is still open")
        if event.part in self._open:
            refuse(event, f"part {event.part} is open already")
        choice.open_part = event.part
        part = self._open[event.part] = _OpenPart(event)
        header = event.header
        match header:
            case Text():
                self._set_frame(part, b'{"content":', b"}")
            case Refusal():
                self._set_frame(part, b'{"refusal":', b"}")
            case Reasoning():
                own = own_fields(header.extra)
                field = next(
                    (name for name in REASONING_FIELDS if name in own), "reasoning_content"
                )
                self._set_frame(part, b"{" + dumps_text(field) + b":", b"}")
            case Call():
                return self._start_call(part, header, choice)
            case Media():
                return self._start_media(part, header, choice)
            case Opaque() | Result():
                return self._write_other(part, header)
            case _:
                assert_never(header)
        return b""

    def end(self, event: PartEnded, choices: Mapping[int, ChoiceState]) -> bytes:
        part = self._find(event)
        del self._open[event.part]
        choice = choices[part.choice]
        choice.open_part = None
        value = event.value
        match value:
            case Call() if part.index >= 0:
                choice.has_cut_call = choice.has_cut_call or value.status != "completed"
                note_foreign(self._book, value.extra, part.where)
                return self._write_late(part, value)
            case Reasoning():
                sealed = sealed_fields(value, self._book, part.where)
                return self.envelope.chunk(part.choice, sealed) if sealed else b""
            case Text() | Refusal():
                note_extra(self._book, value.extra, part.where)
                note_extra(self._book, value.item_extra, part.where)
                if event.amended:
                    self._book.note("amended_text", part.where)
            case Media():
                return self._end_media(part, value)
            case _:
                pass
        return b""

    def shows_call(self, number: int) -> bool:
        """Whether this open part is a call that the client has been told of."""
        part = self._open.get(number)
        return part is not None and part.index >= 0

    def _start_call(self, part: _OpenPart, call: Call, choice: ChoiceState) -> bytes:
        if not is_expressible(call, self._book, part.where):
            return b""
        if self._legacy and choice.calls:
            self._book.note("parallel_functions", part.where, call.name)
            return b""
        part.index = choice.calls
        choice.calls += 1
        name = flat_name(call, self._book, part.where)
        if self._legacy:
            self._set_frame(part, b'{"function_call":{"arguments":', b"}}")
            delta = {"function_call": {"name": name, "arguments": ""}}
            return self.envelope.chunk(part.choice, delta)
        kind, field = ("custom", "input") if call.kind == "custom" else ("function", "arguments")
        before = f'{{"tool_calls":[{{"index":{part.index},"{kind}":{{"{field}":'
        self._set_frame(part, before.encode("ascii"), b"}}]}")
        entry = {
            "index": part.index,
            "id": call.call_id or self._mint("call_"),
            "type": kind,
            kind: {"name": name, field: ""},
            **own_fields(call.extra),
        }
        return self.envelope.chunk(part.choice, {"tool_calls": [entry]})

    def _start_media(self, part: _OpenPart, media: Media, choice: ChoiceState) -> bytes:
        if media.kind != "audio" or choice.has_sound:
            part.takes = None
            return b""  # a picture is written whole, at its end; a message has one sound
        choice.has_sound = True
        audio = write_audio(media, media.item_id or self._mint("audio_"))
        return self.envelope.chunk(part.choice, {"audio": audio})

    def _end_media(self, part: _OpenPart, media: Media) -> bytes:
        note_foreign(self._book, media.extra, part.where)
        if part.takes is MediaDelta:
            if media.media_type is not None:
                self._book.note("output_media", part.where, media.media_type)
            return b""
        image = write_image(media)
        action = self._book.note("output_media", part.where, media.kind)
        if image is None or action != "carry":
            return b""
        return self.envelope.chunk(part.choice, {"images": [image]})

    def _write_other(self, part: _OpenPart, header: Opaque | Result) -> bytes:
        if isinstance(header, Result):
            self._book.note("provider_result", part.where)
        elif header.dialect != "chat":
            self._book.note("opaque_part", part.where, header.type)
        else:
            return self.envelope.chunk(part.choice, {"content": [header.raw]})
        return b""

    def _write_late(self, part: _OpenPart, call: Call) -> bytes:
        """Fields of a call that were not known when it started."""
        known = own_fields(part.header.extra) if isinstance(part.header, Call) else {}
        late = {name: raw for name, raw in own_fields(call.extra).items() if name not in known}
        return self._call_chunk(part, late) if late and not self._legacy else b""

    def _call_chunk(self, part: _OpenPart, fields: Mapping[str, Raw]) -> bytes:
        """Fields that a call gets after its first delta. Clients look for arguments in every delta of a call."""
        is_custom = isinstance(part.header, Call) and part.header.kind == "custom"
        inner = {"custom": {"input": ""}} if is_custom else {"function": {"arguments": ""}}
        entry = {"index": part.index, **inner, **fields}
        return self.envelope.chunk(part.choice, {"tool_calls": [entry]})

    def _set_frame(self, part: _OpenPart, before: bytes, after: bytes) -> None:
        part.prefix, part.suffix = self.envelope.frame(part.choice, before, after)

    def _find(
        self, event: MediaDelta | AnnotationAdded | SealAdded | OutputDelta | PartEnded
    ) -> _OpenPart:
        part = self._open.get(event.part)
        if part is None:
            refuse(event, f"part {event.part} is not open")
        return part


def refuse(event: Event, reason: str) -> Never:
    raise LocalProtocolError(f"{type(event).__name__} cannot be written: {reason}")
