"""Encodes events as a stream of Chat Completions.

The role comes first. The first delta of a call has its id, type and name; later deltas have only input. Every chunk has
`finish_reason`, which is null until the end; each choice has one finish. Then come the usage chunk if the client asked for
it, and `[DONE]`. A failure is an error chunk without `[DONE]`. Several clients merge calls whose deltas alternate, so parts
must not overlap within a choice; a `core.serialize.Serializer` before this encoder orders them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Never, assert_never

from msgspec import Struct

from dragoman._json import Raw, dumps, dumps_text, dumps_texts
from dragoman.core.fields import own_fields, read_fragment, read_present
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook, answer_book
from dragoman.core.usage import merge_usage
from dragoman.dialects.chat.content import (
    FAILING_REASONS,
    cite,
    finish_word,
    flat_name,
    is_expressible,
    note_finish,
    seal_content,
    sealed_fields,
    write_audio,
    write_image,
)
from dragoman.dialects.chat.errors import encode_error
from dragoman.dialects.chat.losses import LOSSES, note_extra, note_foreign
from dragoman.dialects.chat.usage import write_usage
from dragoman.dialects.chat.wire import REASONING_FIELDS
from dragoman.dialects.codec import EncodeContext
from dragoman.errors import LocalProtocolError
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
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Loss, Usage
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.sse import encode_comment


class ChunkEnvelope:
    """Writes chunks: `data: {"id":…,"object":…,"created":…,"model":…,…,"choices":[`, the choices, and the end."""

    __slots__ = ("_head",)

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._head = b"data: " + dumps(fields)[:-1] + b',"choices":['

    def chunk(
        self, choice: int, delta: Mapping[str, object], fields: Mapping[str, object] | None = None
    ) -> bytes:
        """Return a chunk of one choice; `fields` stand beside the delta."""
        entry = {"index": choice, "delta": delta, "finish_reason": None, **(fields or {})}
        return self._head + dumps(entry) + b"]}\n\n"

    def bare(self, fields: Mapping[str, object]) -> bytes:
        """Return a chunk without choices."""
        return self._head + b"]," + dumps(fields)[1:] + b"\n\n"

    def frame(self, choice: int, before: bytes, after: bytes) -> tuple[bytes, bytes]:
        """Return the bytes before and after the one JSON string in which the deltas of a part differ."""
        prefix = self._head + b'{"index":%d,"delta":' % choice + before
        return prefix, after + b',"finish_reason":null}]}\n\n'


_TAKES: dict[type[Part], type[Event]] = {
    Text: TextDelta,
    Refusal: TextDelta,
    Reasoning: ReasoningDelta,
    Call: InputDelta,
    Media: MediaDelta,
}

_NO_ENVELOPE = ChunkEnvelope({})


class ChoiceState(Struct, eq=False):
    """What was written of one choice."""

    calls: int = 0
    has_sound: bool = False
    has_cut_call: bool = False
    is_finished: bool = False
    open_part: int | None = None


class _OpenPart:
    """Which deltas a part takes and how they are written. Without a prefix, input is not written."""

    __slots__ = ("choice", "header", "index", "prefix", "section", "suffix", "takes", "where")

    def __init__(self, start: PartStarted) -> None:
        self.header = start.header
        self.choice = start.choice
        self.where = f"part {start.part}"
        self.takes = _TAKES.get(type(start.header))
        self.index = -1  # of a call among those of its choice
        self.prefix = b""
        self.suffix = b""
        self.section: tuple[str, int] | None = None  # of reasoning: the section of the last delta


class ChunkWriter:
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
            refuse(event, f"part {event.part} is not an open text")
        if event.logprobs is None:
            return part.prefix + dumps_text(event.text) + part.suffix
        channel = "content" if isinstance(part.header, Text) else "refusal"
        logprobs = {"content": None, "refusal": None, channel: event.logprobs}
        return self.envelope.chunk(part.choice, {channel: event.text}, {"logprobs": logprobs})

    def write_input(self, event: InputDelta) -> bytes:
        part = self._open.get(event.part)
        if part is None or part.takes is not InputDelta:
            refuse(event, f"part {event.part} is not an open call")
        if part.prefix:
            return part.prefix + dumps_text(event.text) + part.suffix
        return b""

    def write_many(
        self, kind: type[TextDelta | InputDelta], number: int, texts: Sequence[str]
    ) -> bytes | None:
        """Write several deltas of one part at once, without logprobs; None if the part takes no such deltas."""
        part = self._open.get(number)
        if part is None or part.takes is not kind:
            return None
        prefix, suffix = part.prefix, part.suffix
        return prefix + dumps_texts(texts, suffix + prefix) + suffix if prefix else b""

    def write_reasoning(self, event: ReasoningDelta) -> bytes:
        part = self._open.get(event.part)
        if part is None or part.takes is not ReasoningDelta:
            refuse(event, f"part {event.part} is not an open reasoning")
        section = (event.channel, event.index)
        text = event.text
        if not text:
            return b""  # the beginning of an entry: its first text follows the separator
        if section != part.section:
            if part.section is not None:
                self._book.note("reasoning_sections", part.where)
                text = "\n\n" + text
            part.section = section
        return part.prefix + dumps_text(text) + part.suffix

    def write_media(self, event: MediaDelta) -> bytes:
        part = self._find(event)
        if part.takes is not MediaDelta:
            return b""  # a preview of an image: the image itself comes with the end of its part
        audio: dict[str, object] = dict(own_fields("chat", event.extra))
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
            return b""  # the seals of reasoning are written at the end of the part
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
                own = own_fields("chat", header.extra)
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
        """Whether this open part is a call that the client has seen."""
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
            **own_fields("chat", call.extra),
        }
        return self.envelope.chunk(part.choice, {"tool_calls": [entry]})

    def _start_media(self, part: _OpenPart, media: Media, choice: ChoiceState) -> bytes:
        if media.kind != "audio" or choice.has_sound:
            part.takes = None
            return b""  # an image is written whole, at its end; a message has one sound
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
        """Write the fields of a call that were unknown when it started."""
        known = own_fields("chat", part.header.extra) if isinstance(part.header, Call) else {}
        late = {
            name: raw for name, raw in own_fields("chat", call.extra).items() if name not in known
        }
        return self._call_chunk(part, late) if late and not self._legacy else b""

    def _call_chunk(self, part: _OpenPart, fields: Mapping[str, Raw]) -> bytes:
        """Write fields of a call after its first delta. Clients expect arguments in every delta of a call."""
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


def answer_id(upstream_id: str, context: EncodeContext, mint: Minter) -> str:
    """Return the id of an answer."""
    return upstream_id if upstream_id and not context.mints_id else mint("chatcmpl-")


def answer_tier(context: EncodeContext) -> str | None:
    """Return the service tier of an answer whose upstream reported none: the tier that the client asked for."""
    # `auto` leaves the choice to the server and is never the tier that served a request.
    return "default" if context.service_tier == "auto" else context.service_tier


_NO_CONTEXT = EncodeContext()
_DONE = b"data: [DONE]\n\n"


class ChatEncoder:
    """A `codec.StreamEncoder` for Chat Completions."""

    def __init__(self, context: EncodeContext = _NO_CONTEXT) -> None:
        self._context = context
        self._book = answer_book(LOSSES, context.losses)
        self._mint = Minter(context.seed)
        self._parts = ChunkWriter(self._book, self._mint, legacy=context.legacy_functions)
        self._choices: dict[int, ChoiceState] = {}
        self._usage: Usage | None = None
        self._has_started = False
        self._is_over = False
        self._is_mute = False  # the encoder failed the stream itself: later events are not written

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self._book.losses

    def encode(self, event: Event) -> bytes:
        """Encode one event; the result is empty where Chat writes nothing for it.

        Raises:
            LocalProtocolError: the event is not allowed at this point.
        """
        if self._is_over:
            if self._is_mute:
                return b""
            refuse(event, "the stream is over")
        kind = type(event)
        write = _PART_WRITERS.get(kind)
        return _WRITERS[kind](self, event) if write is None else write(self._parts, event)

    def deltas(
        self, kind: type[TextDelta | InputDelta], part: int, texts: Sequence[str]
    ) -> bytes | None:
        """See `codec.StreamEncoder`."""
        return None if self._is_over else self._parts.write_many(kind, part, texts)

    def resume(self, seen: Sequence[Event], last: bytes, choices: int) -> None:  # noqa: ARG002 -- Chat numbers nothing
        """See `codec.StreamEncoder`. The roles of choices that have begun are not written again."""
        for event in seen:
            self.encode(event)
        for index in range(choices if self._has_started else 0):
            self._choices.setdefault(index, ChoiceState())

    def close(self) -> bytes:
        """Fail a stream that has not ended; return nothing for a stream that has."""
        if self._is_over:
            return b""
        message = "the answer ended before it was complete"
        return self._fail(Failed(ErrorInfo(kind="truncated", message=message)))

    def _start(self, event: Started) -> bytes:
        if self._has_started:
            refuse(event, "the answer has started before")
        self._has_started = True
        note_foreign(self._book, event.extra, "answer")
        extra = own_fields("chat", event.extra)
        # Simple extra values are repeated on every chunk, as vendors do; lists and objects are written once, before the
        # first choice, as Azure does.
        small = {name: raw for name, raw in extra.items() if bytes(raw)[:1] not in (b"{", b"[")}
        large = {name: raw for name, raw in extra.items() if name not in small}
        tier = answer_tier(self._context)
        self._parts.envelope = ChunkEnvelope(
            {
                "id": answer_id(event.response_id, self._context, self._mint),
                "object": "chat.completion.chunk",
                "created": self._context.created if event.created is None else event.created,
                "model": self._context.model or event.model or self._context.asked_model,
                **({} if tier is None else {"service_tier": tier}),
                **small,
            }
        )
        role, _ = self._choice(0, event)
        return (self._parts.envelope.bare(large) if large else b"") + role

    def _choice(self, index: int, event: Event) -> tuple[bytes, ChoiceState]:
        """Return the choice and, if it is new, the chunk with its role, which comes before its other chunks."""
        choice = self._choices.get(index)
        if choice is not None:
            return b"", choice
        if not self._has_started:
            refuse(event, "the answer has not started")
        choice = self._choices[index] = ChoiceState()
        return self._parts.envelope.chunk(index, {"role": "assistant", "content": ""}), choice

    def _start_part(self, event: PartStarted) -> bytes:
        role, choice = self._choice(event.choice, event)
        return role + self._parts.start(event, choice)

    def _end_part(self, event: PartEnded) -> bytes:
        value = event.value
        if event.amended and isinstance(value, Call) and self._parts.shows_call(event.part):
            message = f"the upstream changed the arguments of {value.name} after streaming them"
            return self._give_up(ErrorInfo(kind="protocol", message=message))
        return self._parts.end(event, self._choices)

    def _finish(self, event: Finished) -> bytes:
        role, choice = self._choice(event.choice, event)
        if choice.is_finished or choice.open_part is not None:
            refuse(event, f"choice {event.choice} has finished before, or has an open part")
        choice.is_finished = True
        if event.reason in FAILING_REASONS:
            message = f"the answer ended with {event.native or event.reason}"
            return role + self._give_up(ErrorInfo(kind="upstream", message=message))
        where = f"choice {event.choice}"
        word = finish_word(
            event.reason,
            choice.calls,
            has_cut_call=choice.has_cut_call,
            legacy=self._context.legacy_functions,
        )
        note_finish(event.reason, self._book, where)
        note_foreign(self._book, event.extra, where)
        fields: dict[str, object] = {"finish_reason": word}
        if event.stop_sequence is not None:
            action = self._book.note("stop_sequence", where, event.stop_sequence)
            if action == "carry":
                fields["stop_reason"] = event.stop_sequence
        own = {
            name: raw for name, raw in own_fields("chat", event.extra).items() if name != "message"
        }
        return role + self._parts.envelope.chunk(event.choice, {}, {**fields, **own})

    def _complete(self, event: Completed) -> bytes:
        if not self._choices or not all(choice.is_finished for choice in self._choices.values()):
            refuse(event, "a choice has not finished")
        note_extra(self._book, event.extra, "answer")
        self._is_over = True
        last = self._context.last_comment
        end = _DONE if last is None else encode_comment(last()) + _DONE
        if self._usage is None or not self._context.include_usage:
            return end
        return self._parts.envelope.bare({"usage": write_usage(self._usage)}) + end

    def _give_up(self, error: ErrorInfo) -> bytes:
        self._is_mute = True
        return self._fail(Failed(error))

    def _fail(self, event: Failed) -> bytes:
        self._is_over = True
        return b"data: " + encode_error(event.error) + b"\n\n"

    def _keep_usage(self, event: UsageReported) -> bytes:
        note_foreign(self._book, event.usage.extra, "usage")
        self._usage = merge_usage(self._usage, event.usage)
        return b""

    def _note_limits(self, event: LimitsReported) -> bytes:
        self._book.note("rate_limits", "", ", ".join(each.name for each in event.limits.windows))
        return b""

    def _pass_over(self, _: Progress) -> bytes:
        return b""

    def _write_notice(self, event: Noticed) -> bytes:
        raw = event.raw
        if event.kind in ("ping", "comment"):
            return encode_comment(read_fragment(raw) or "ping")
        if event.dialect != "chat" or raw is None:
            return b""
        if event.kind == "unknown":
            return b"data: " + dumps(raw) + b"\n\n"
        if event.kind != "fields" or not self._has_started:
            return b""
        fields = read_present(raw)
        if event.name == "chunk":
            return self._parts.envelope.bare(fields)
        role, choice = self._choice(event.choice, event)
        if choice.is_finished:
            return b""  # clients do not expect chunks of a choice after its finish
        delta, beside = (fields, None) if event.name == "delta" else ({}, fields)
        return role + self._parts.envelope.chunk(event.choice, delta, beside)

    writers: ClassVar[Mapping[type[Event], Callable[..., bytes]]] = {
        PartStarted: _start_part,
        PartEnded: _end_part,
        Started: _start,
        Progress: _pass_over,
        UsageReported: _keep_usage,
        LimitsReported: _note_limits,
        Finished: _finish,
        Failed: _fail,
        Completed: _complete,
        Noticed: _write_notice,
    }


_WRITERS = ChatEncoder.writers
_PART_WRITERS: Mapping[type[Event], Callable[..., bytes]] = {
    TextDelta: ChunkWriter.write_text,
    InputDelta: ChunkWriter.write_input,
    ReasoningDelta: ChunkWriter.write_reasoning,
    OutputDelta: ChunkWriter.skip_output,
    MediaDelta: ChunkWriter.write_media,
    AnnotationAdded: ChunkWriter.write_annotation,
    SealAdded: ChunkWriter.write_seal,
}
