"""Streams the items of an answer: writes the events that each model event about a part becomes.

One part is open at a time, except calls that the gateway runs: such a call stays open beside the other parts from the
moment its input is complete (the stage `calling`) until its result arrives. Its end is written between other items, never
inside one: Codex takes every end for the end of the item that it shows. An incomplete part is closed on the wire only if
the answer continues (`flush`), never before a failure (`abandon`): a client that retries would keep it.

`NumberedEventWriter` numbers the events and writes them as SSE frames with the fields in the vendor's order: the type, the
others by name, the number. The first delta of a reasoning entry opens it, and the next entry closes it; a later delta for
a closed entry is written under its index without opening the entry again. The finished item has the whole text.
"""

from collections.abc import Sequence
from itertools import chain, count
from typing import Never, assert_never, final

from msgspec import Struct

from dragoman._json import Raw, dumps, dumps_each, dumps_text
from dragoman.core.fields import Fields, own_fields
from dragoman.core.losses import LossBook
from dragoman.dialects.responses.item_writer import (
    ItemWriter,
    JsonObject,
    MessagePart,
    as_message_part,
)
from dragoman.dialects.responses.items import is_streamed
from dragoman.dialects.responses.losses import note_foreign
from dragoman.dialects.responses.wire import PROGRESS_NAMES, CallSpec
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    InputDelta,
    MediaDelta,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningChannel,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.parts import (
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    PartStatus,
    Reasoning,
    Refusal,
    Result,
    Text,
)

_Named = tuple[str, JsonObject]
"""An event: its name and its fields."""


class DeltaTemplate:
    """A delta event with two gaps, for the text and the number. Nearly all events are written this way.

    `kind` is the model event that the template encodes for `part`; None if the part's deltas have no event on this wire.
    """

    __slots__ = ("head", "kind", "line", "middle", "part")

    def __init__(
        self,
        part: int,
        kind: type[TextDelta | InputDelta | ReasoningDelta] | None,
        name: str = "",
        place: JsonObject | None = None,
    ) -> None:
        self.part = part
        self.kind = kind
        # The text replaces the empty `delta`; every other field is known.
        whole = dumps({"type": name, "delta": "", **(place or {}), "sequence_number": 0})
        head, _, tail = whole.partition(b'"delta":""')
        self.head = b"event: " + name.encode("ascii") + b"\ndata: " + head + b'"delta":'
        self.middle = tail[: -len(b"0}")]
        self.line = b""  # the same event as a %-format, to write many events at once


class NumberedEventWriter:
    """Writes events and counts them."""

    __slots__ = ("sequence",)

    def __init__(self) -> None:
        self.sequence = 0

    def event(self, name: str, fields: JsonObject) -> bytes:
        number = self.sequence
        self.sequence = number + 1
        data = dumps({"type": name, **fields, "sequence_number": number})
        return b"".join((b"event: ", name.encode("ascii", "replace"), b"\ndata: ", data, b"\n\n"))

    def snapshot(self, name: str, response: bytes) -> bytes:
        """Write an event that has a response object, which `envelope` has written, and nothing else."""
        number = self.sequence
        self.sequence = number + 1
        kind = name.encode("ascii")
        line = b'event: %b\ndata: {"type":"%b","response":%b,"sequence_number":%d}\n\n'
        return line % (kind, kind, response, number)

    def delta(self, template: DeltaTemplate, text: str) -> bytes:
        number = self.sequence
        self.sequence = number + 1
        return b"%b%b%b%d}\n\n" % (template.head, dumps_text(text), template.middle, number)

    def deltas(self, template: DeltaTemplate, texts: Sequence[str]) -> bytes:
        number = self.sequence
        self.sequence = number + len(texts)
        if not template.line:
            around = [part.replace(b"%", b"%%") for part in (template.head, template.middle)]
            template.line = b"%b%%b%b%%d}\n\n" % tuple(around)
        holes = chain.from_iterable(zip(dumps_each(texts), count(number), strict=False))
        return template.line * len(texts) % tuple(holes)


class StreamState(Struct, eq=False):
    """The state that the streams of all items share.

    `output` has an entry for every item from its first event on, so indices are dense and equal the final order. `held` are
    the events that close incomplete parts: written if the answer continues, dropped before a failure.
    """

    events: NumberedEventWriter
    items: ItemWriter
    book: LossBook
    output: list[object] = []
    held: list[_Named] = []

    def add_item(self, item: object) -> tuple[int, bytes]:
        """Announce an item and return its index and its event."""
        index = len(self.output)
        self.output.append(item)
        return index, self.events.event(
            "response.output_item.added", {"item": item, "output_index": index}
        )

    def end_item(self, index: int, item: object, *, is_held: bool = False) -> bytes:
        """Finish an item. is_held: `release` writes the end, or nothing does."""
        self.output[index] = item
        fields: JsonObject = {"item": item, "output_index": index}
        if is_held:
            self.held.append(("response.output_item.done", fields))
            return b""
        return self.events.event("response.output_item.done", fields)

    def release(self) -> bytes:
        """Write the held events."""
        held, self.held = self.held, []
        return self.write(held)

    def write(self, written: Sequence[_Named]) -> bytes:
        """Write events, each by its name and its fields."""
        return b"".join([self.events.event(name, fields) for name, fields in written])


@final
class MessageStream:
    """Streams a message. `source` is the id of the native item; None if each text is a message of its own."""

    def __init__(self, header: MessagePart, state: StreamState) -> None:
        self.source = header.item_id
        self.part = -1
        self.template = DeltaTemplate(-1, None)
        self._state = state
        self._extra = _item_extra(header)
        self._id = state.items.item_id("message", header.item_id)
        item = state.items.message(self._id, "in_progress", (), self._extra)
        self._index, self._opening = state.add_item(item)
        self._contents: list[object] = []
        self._annotations = 0
        self._is_refusal = False
        self._status: PartStatus = "completed"
        self._held: list[_Named] = []

    def start(self, part: int, header: MessagePart) -> bytes:
        """Start another content part of this message."""
        self.part = part
        self._annotations = 0
        self._is_refusal = isinstance(header, Refusal)
        opening, self._opening = self._opening, b""
        late, self._held = self._held, []
        place = self._place()
        empty = self._state.items.empty_content(header)
        late.append(("response.content_part.added", {**place, "part": empty}))
        match header:
            case Text():
                name = "response.output_text.delta"
                self.template = DeltaTemplate(part, TextDelta, name, {**place, "logprobs": []})
            case Refusal():
                self.template = DeltaTemplate(part, TextDelta, "response.refusal.delta", place)
            case Opaque():
                self.template = DeltaTemplate(part, None)
            case _:
                assert_never(header)
        return opening + self._state.write(late)

    def delta(self, event: TextDelta) -> bytes:
        if event.logprobs is None or self._is_refusal:
            return self._state.events.delta(self.template, event.text)
        fields: JsonObject = {**self._place(), "delta": event.text, "logprobs": event.logprobs}
        return self._state.events.event("response.output_text.delta", fields)

    def annotate(self, event: AnnotationAdded) -> bytes:
        annotation = self._state.items.annotation(event.annotation)
        if annotation is None:
            return b""
        index = self._annotations
        self._annotations += 1
        fields: JsonObject = {**self._place(), "annotation": annotation, "annotation_index": index}
        return self._state.events.event("response.output_text.annotation.added", fields)

    def end(self, value: MessagePart) -> bytes:
        """End the content part; more parts of the message may follow."""
        place = self._place()
        content = self._state.items.content(value)
        written: list[_Named] = []
        match value:
            case Text():
                logprobs = Raw(b"[]") if value.logprobs is None else value.logprobs
                fields: JsonObject = {**place, "logprobs": logprobs, "text": value.text}
                written.append(("response.output_text.done", fields))
            case Refusal():
                written.append(("response.refusal.done", {**place, "refusal": value.text}))
            case Opaque():
                pass
            case _:
                assert_never(value)
        written.append(("response.content_part.done", {**place, "part": content}))
        self._contents.append(content)
        self._extra = _item_extra(value) or self._extra
        self.part = -1
        self._status = "completed" if isinstance(value, Opaque) else value.status
        if self._status != "completed":
            self._held += written
            return b""
        return self._state.write(written)

    def close(self) -> bytes:
        """End the message. The end is held if the last text is incomplete."""
        item = self._state.items.message(self._id, self._status, self._contents, self._extra)
        is_held = self._status != "completed"
        self._state.held += self._held
        return self._state.end_item(self._index, item, is_held=is_held)

    def _place(self) -> JsonObject:
        return {
            "content_index": len(self._contents),
            "item_id": self._id,
            "output_index": self._index,
        }


def _item_extra(part: MessagePart) -> Extra | None:
    return None if isinstance(part, Opaque) else part.item_extra


_Key = tuple[ReasoningChannel, int]

_NAMES = {
    # channel: its index field, and the names of its events
    "summary": (
        "summary_index",
        "response.reasoning_summary_part",
        "response.reasoning_summary_text",
    ),
    "content": ("content_index", "response.content_part", "response.reasoning_text"),
}
_TYPES = {"summary": "summary_text", "content": "reasoning_text"}


@final
class ReasoningStream:
    def __init__(self, part: int, header: Reasoning, state: StreamState) -> None:
        self.part = part
        self._state = state
        self._id = state.items.item_id("reasoning", header.item_id)
        self._index, self.opening = state.add_item(state.items.reasoning(header, self._id))
        self._templates: dict[_Key, DeltaTemplate] = {}
        self._pieces: dict[_Key, list[str]] = {}
        self._open: _Key | None = None

    def delta(self, event: ReasoningDelta) -> bytes:
        key = (event.channel, event.index)
        template = self._templates.get(key)
        out = b""
        if template is None:
            out = self._state.write([*self._close_entry(), self._open_entry(key)])
            template = self._templates[key]
        if not event.text:
            return out
        self._pieces[key].append(event.text)
        return out + self._state.events.delta(template, event.text)

    def end(self, value: Reasoning) -> bytes:
        written = self._close_entry()
        written += self._open_empty("summary", len(value.summary))
        written += self._open_empty("content", len(value.content))
        item = self._state.items.reasoning(value, self._id)
        is_held = value.status != "completed"
        if is_held:
            self._state.held += written
            return self._state.end_item(self._index, item, is_held=True)
        return self._state.write(written) + self._state.end_item(self._index, item)

    def _open_empty(self, channel: ReasoningChannel, count: int) -> list[_Named]:
        """Write the entries without text, which had no deltas."""
        known = [index for name, index in self._templates if name == channel]
        first = max(known, default=-1) + 1
        written: list[_Named] = []
        for index in range(first, first + count - len(known)):
            written += [self._open_entry((channel, index)), *self._close_entry()]
        return written

    def _open_entry(self, key: _Key) -> _Named:
        channel, index = key
        index_name, part_name, text_name = _NAMES[channel]
        place = self._place(index_name, index)
        self._templates[key] = DeltaTemplate(self.part, ReasoningDelta, f"{text_name}.delta", place)
        self._pieces[key] = []
        self._open = key
        return f"{part_name}.added", {**place, "part": {"type": _TYPES[channel], "text": ""}}

    def _close_entry(self) -> list[_Named]:
        if self._open is None:
            return []
        channel, index = key = self._open
        self._open = None
        index_name, part_name, text_name = _NAMES[channel]
        place = self._place(index_name, index)
        text = "".join(self._pieces[key])
        return [
            (f"{text_name}.done", {**place, "text": text}),
            (f"{part_name}.done", {**place, "part": {"type": _TYPES[channel], "text": text}}),
        ]

    def _place(self, index_name: str, index: int) -> JsonObject:
        return {"item_id": self._id, "output_index": self._index, index_name: index}


IDLE = DeltaTemplate(-1, None)
"""The template while no part is open."""

CALLING = "calling"
"""The stage of a call that the gateway runs: its input is complete, and the event carries it."""


@final
class _CallStream:
    def __init__(self, part: int, header: Call, spec: CallSpec, state: StreamState) -> None:
        self.part = part
        self.type = spec.type
        self._spec = spec
        self._state = state
        self._id = state.items.item_id(spec.type, header.item_id)
        self._index, self.opening = state.add_item(state.items.call(header, spec, self._id))
        self.place: JsonObject = {"item_id": self._id, "output_index": self._index}
        kind = InputDelta if spec.events and is_streamed(header, spec) else None
        self.template = DeltaTemplate(part, kind, f"{spec.events}.delta", self.place)
        self.is_hosted = header.executor == "gateway" and spec.kind == "mcp"
        self._has_input = False

    def write_input(self, fields: Fields) -> bytes:
        """Write the complete input of a call that stays open; `fields` holds the whole input."""
        self._has_input = True
        return self._state.events.event(f"{self._spec.events}.done", {**self.place, **fields})

    def end(self, value: Call) -> bytes:
        item = self._state.items.call(value, self._spec, self._id)
        if value.status not in ("completed", "failed"):
            # An incomplete call gets no `output_item.done`, because Codex would run it.
            self._state.output[self._index] = item
            return b""
        out = b""
        if self._spec.events and not self._has_input:
            fields: JsonObject = {**self.place, self._spec.field: item[self._spec.field]}
            out = self._state.events.event(f"{self._spec.events}.done", fields)
        if self.is_hosted:
            out += self._state.events.event(f"response.{self.type}.{value.status}", self.place)
        return out + self._state.end_item(self._index, item)


@final
class _WholeStream:
    """Streams a result, or an item that only this dialect understands."""

    def __init__(
        self, part: int, item: object, kind: str, item_id: str, state: StreamState
    ) -> None:
        self.part = part
        self.type = kind
        self.id = item_id
        self._state = state
        self._index, self.opening = state.add_item(item)
        self.place: JsonObject = {"item_id": item_id, "output_index": self._index}

    def end(self, item: object) -> bytes:
        return self._state.end_item(self._index, item)


@final
class _SoundStream:
    """Streams audio, which has events of its own and is not an item."""

    def __init__(self, part: int, state: StreamState) -> None:
        self.part = part
        self._state = state
        self._has_text = False

    def delta(self, event: MediaDelta) -> bytes:
        self._has_text = True
        events = self._state.events
        out = events.event("response.audio.delta", {"delta": event.data}) if event.data else b""
        if event.transcript:
            out += events.event("response.audio.transcript.delta", {"delta": event.transcript})
        return out

    def end(self, value: Media) -> bytes:
        if value.media_type is not None:
            self._state.book.note("media_output", "audio", value.media_type)
        note_foreign(self._state.book, value.extra, "audio")
        out = b""
        if not self._has_text:
            out = self.delta(MediaDelta(self.part, value.data or "", value.transcript or ""))
        if value.status == "completed":
            out += self._state.events.event("response.audio.done", {})
            out += self._state.events.event("response.audio.transcript.done", {})
        return out


_Open = MessageStream | ReasoningStream | _CallStream | _WholeStream | _SoundStream


class ItemStream:
    """Writes the events about parts. `template` belongs to the open part."""

    def __init__(self, state: StreamState) -> None:
        self.template = IDLE
        self.has_cut_call = False  # a call ended incomplete, and so got no end on the wire
        self.has_refusal = False
        self.waiting: dict[str, Call] = {}  # complete calls that the client must run, by their ids
        self._state = state
        self._open: _Open | None = None
        self._message: MessageStream | None = None
        self._standing: dict[int, _CallStream] = {}  # calls that the gateway is running
        # Calls that the gateway ran and that ended while another part was open.
        self._settled: list[tuple[_CallStream, Call]] = []
        self._ignored: set[int] = set()

    @property
    def has_open_part(self) -> bool:
        return self._open is not None

    # --- parts begin and end -----------------------------------------------------------------------------------------

    def start(self, event: PartStarted) -> bytes:
        part, header = event.part, event.header
        if event.choice != 0:
            self._state.book.note("extra_choices", f"choice {event.choice}")
            self._ignored.add(part)
            return b""
        if self._open is not None:
            self._refuse(f"part {part} while part {self._open.part} is open")
        content = as_message_part(header)
        if content is not None:
            return self._start_content(part, content)
        out = self.flush()
        match header:
            case Reasoning():
                self._open = stream = ReasoningStream(part, header, self._state)
                return out + stream.opening
            case Call():
                return out + self._start_call(part, header)
            case Result() | Opaque():
                return out + self._start_whole(part, header)
            case Media():
                return out + self._start_media(part, header)
            case _:
                raise AssertionError("texts are content of messages")

    def end(self, event: PartEnded) -> bytes:
        if event.part in self._ignored:
            self._ignored.discard(event.part)
            return b""
        value = event.value
        standing = self._standing.pop(event.part, None)
        if standing is not None and isinstance(value, Call):
            self._settled.append((standing, value))
            return self._write_settled()
        stream = self._stream(event.part)
        self._open = None
        self.template = IDLE
        out = self._end_part(stream, value)
        return out + self._write_settled() if self._settled else out

    def _end_part(self, stream: "_Open", value: Part) -> bytes:
        match stream, value:
            case MessageStream(), Text() | Refusal() | Opaque():
                self.has_refusal = self.has_refusal or isinstance(value, Refusal)
                return self._end_content(stream, value)
            case ReasoningStream(), Reasoning():
                return stream.end(value)
            case _CallStream(), Call():
                if value.executor == "client" and value.status == "completed":
                    self.waiting[value.call_id] = value
                self.has_cut_call = self.has_cut_call or value.status == "incomplete"
                return stream.end(value)
            case _WholeStream(), Result() | Opaque():
                return stream.end(self._whole_item(stream, value))
            case _SoundStream(), Media():
                return stream.end(value)
            case _:
                return self._refuse(f"a value of another kind at the end of part {stream.part}")

    def flush(self) -> bytes:
        """Close the open message and write the held events, because the answer continues."""
        message, self._message = self._message, None
        out = b"" if message is None else message.close()
        settled, self._settled = self._settled, []
        out += self._state.release()
        return b"".join([out, *(stream.end(value) for stream, value in settled)])

    def _write_settled(self) -> bytes:
        """Write the ends of calls that the gateway ran, unless an item is open on the wire or was cut."""
        is_early = self._open is not None or self._state.held or self.has_cut_call
        return b"" if is_early else self.flush()

    def abandon(self) -> bytes:
        """Close only complete parts, because the answer fails."""
        message, self._message = self._message, None
        out = b"" if message is None or message is self._open else message.close()
        self._open = None
        self._standing.clear()
        self._settled.clear()
        self.template = IDLE
        self._state.held.clear()
        return out

    # --- deltas ------------------------------------------------------------------------------------------------------

    def text(self, event: TextDelta) -> bytes:
        stream = self._about(event.part)
        return stream.delta(event) if isinstance(stream, MessageStream) else b""

    def reasoning(self, event: ReasoningDelta) -> bytes:
        stream = self._about(event.part)
        return stream.delta(event) if isinstance(stream, ReasoningStream) else b""

    def input(self, event: InputDelta) -> bytes:
        """Write an input delta. Most structured inputs have no delta event and come whole with the finished item."""
        is_streamed = self._about(event.part) is not None and self.template.kind is InputDelta
        return self._state.events.delta(self.template, event.text) if is_streamed else b""

    def annotation(self, event: AnnotationAdded) -> bytes:
        stream = self._about(event.part)
        return stream.annotate(event) if isinstance(stream, MessageStream) else b""

    def media(self, event: MediaDelta) -> bytes:
        stream = self._about(event.part)
        if isinstance(stream, _SoundStream):
            return stream.delta(event)
        if not isinstance(stream, _CallStream) or stream.type != "image_generation_call":
            return b""
        own = own_fields("responses", event.extra)
        fields: JsonObject = {"partial_image_index": 0, **own, **stream.place}
        fields["partial_image_b64"] = event.data
        return self._state.events.event("response.image_generation_call.partial_image", fields)

    def output(self, event: OutputDelta) -> bytes:
        stream = self._about(event.part)
        if isinstance(stream, (_WholeStream, _CallStream)) and stream.type.startswith("shell_call"):
            fields: JsonObject = {
                **stream.place,
                "command_index": 0,
                "delta": {"stdout": event.text},
            }
            return self._state.events.event("response.shell_call_output_content.delta", fields)
        if stream is not None:
            self._state.book.note("tool_output", "output")
        return b""

    def progress(self, event: Progress) -> bytes:
        """Write the progress of the open part's tool, if the vendor has a name for the stage."""
        standing = None if event.part is None else self._standing.get(event.part)
        stream = self._open if standing is None else standing
        if not isinstance(stream, (_CallStream, _WholeStream)) or stream.part != event.part:
            return b""
        if event.stage == CALLING and isinstance(stream, _CallStream) and stream.is_hosted:
            self._standing[stream.part] = stream
            self._open = None
            self.template = IDLE
            out = stream.write_input(own_fields("responses", event.extra))
            return out + self._write_settled() if self._settled else out
        name = PROGRESS_NAMES.get((stream.type, event.stage))
        if name is None:
            return b""
        return self._state.events.event(
            name, {**own_fields("responses", event.extra), **stream.place}
        )

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _start_content(self, part: int, header: MessagePart) -> bytes:
        out = b""
        message = self._message
        if message is None or message.source is None or message.source != header.item_id:
            out = self.flush()
            self._message = message = MessageStream(header, self._state)
        out += message.start(part, header)
        self._open = message
        self.template = message.template
        return out

    def _end_content(self, message: MessageStream, value: MessagePart) -> bytes:
        out = message.end(value)
        if message.source is None:
            self._message = None
            out += message.close()
        return out

    def _start_call(self, part: int, header: Call) -> bytes:
        spec = self._state.items.call_spec(header)
        if spec is None:
            self._ignored.add(part)
            return b""
        self._open = stream = _CallStream(part, header, spec, self._state)
        self.template = stream.template
        return stream.opening

    def _start_whole(self, part: int, header: Result | Opaque) -> bytes:
        items = self._state.items
        if isinstance(header, Opaque):
            item: object = items.opaque(header)
            kind, item_id = header.type, header.item_id or ""
        else:
            spec = items.result_spec(header)
            kind, item_id = (
                ("", "") if spec is None else (spec.type, items.item_id(spec.type, header.item_id))
            )
            item = None if spec is None else items.result(header, spec, item_id)
        if item is None:
            self._ignored.add(part)
            return b""
        self._open = stream = _WholeStream(part, item, kind, item_id, self._state)
        return stream.opening

    def _whole_item(self, stream: _WholeStream, value: Result | Opaque) -> object:
        items = self._state.items
        if isinstance(value, Opaque):
            return items.opaque(value)
        self.waiting.pop(value.call_id, None)
        spec = items.result_spec(value)
        return None if spec is None else items.result(value, spec, stream.id)

    def _start_media(self, part: int, header: Media) -> bytes:
        if header.kind == "audio":
            self._open = _SoundStream(part, self._state)
        else:
            self._state.book.note("media_output", header.kind)
            self._ignored.add(part)
        return b""

    def _about(self, part: int) -> _Open | None:
        """Return the stream of the open part; None if the part is left out."""
        return None if part in self._ignored else self._stream(part)

    def _stream(self, part: int) -> _Open:
        if self._open is None or self._open.part != part:
            self._refuse(f"an event about part {part}, which is not open")
        return self._open

    def _refuse(self, what: str) -> Never:
        raise LocalProtocolError(f"expected parts one after the other, got {what}")
