"""The items of an answer, streamed: what each event about a part puts on the wire.

One part is open at a time, but for calls that the gateway runs: such a one stands open beside the others from the moment
its input is complete (the stage `calling`) until its result is there. It ends between other items, never inside one:
Codex takes every end for that of the item it shows. What ended incomplete is closed on the wire only when the answer goes
on (`flush`), never before a failure (`abandon`): a client that retries would keep it.
"""

from typing import Never, final

from dragoman.dialects.responses.fields import Fields, own_fields
from dragoman.dialects.responses.frames import Stencil
from dragoman.dialects.responses.items import is_streamed
from dragoman.dialects.responses.losses import note_foreign
from dragoman.dialects.responses.message_stream import MessageStream
from dragoman.dialects.responses.reasoning_stream import ReasoningStream
from dragoman.dialects.responses.sheet import Sheet
from dragoman.dialects.responses.wire import PROGRESS_NAMES, CallSpec
from dragoman.dialects.responses.writing import JsonObject, MessagePart, as_message_part
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    InputDelta,
    MediaDelta,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text

__all__ = ("CALLING", "IDLE", "ItemStream")

IDLE = Stencil(-1, None)
"""The stencil while no part is open."""

CALLING = "calling"
"""The stage of a call that the gateway runs: its input, which the event brings, is complete."""

_INPUT_EVENTS = {
    "function_call": "response.function_call_arguments",
    "custom_tool_call": "response.custom_tool_call_input",
    "mcp_call": "response.mcp_call_arguments",
    "code_interpreter_call": "response.code_interpreter_call_code",
}


@final
class _CallStream:
    def __init__(self, part: int, header: Call, spec: CallSpec, sheet: Sheet) -> None:
        self.part = part
        self.type = spec.type
        self._spec = spec
        self._sheet = sheet
        self._id = sheet.items.item_id(spec.type, header.item_id)
        self._index, self.opening = sheet.add_item(sheet.items.call(header, spec, self._id))
        self._family = _INPUT_EVENTS.get(spec.type)
        self.place: JsonObject = {"item_id": self._id, "output_index": self._index}
        kind = InputDelta if self._family is not None and is_streamed(header, spec) else None
        self.stencil = Stencil(part, kind, f"{self._family}.delta", self.place)
        self.is_hosted = header.executor == "gateway"
        self._is_input_told = False

    def tell_input(self, fields: Fields) -> bytes:
        """The input is complete, and the call goes on: `fields` has it whole."""
        self._is_input_told = True
        return self._sheet.events.event(f"{self._family}.done", {**self.place, **fields})

    def end(self, value: Call) -> bytes:
        item = self._sheet.items.call(value, self._spec, self._id)
        if value.status not in ("completed", "failed"):
            # No `output_item.done`: Codex would run it.
            self._sheet.output[self._index] = item
            return b""
        out = b""
        if self._family is not None and not self._is_input_told:
            fields: JsonObject = {**self.place, self._spec.field: item[self._spec.field]}
            out = self._sheet.events.event(f"{self._family}.done", fields)
        if self.is_hosted:
            out += self._sheet.events.event(f"response.{self.type}.{value.status}", self.place)
        return out + self._sheet.end_item(self._index, item)


@final
class _WholeStream:
    """A result, or an item that only this dialect understands."""

    def __init__(self, part: int, item: object, kind: str, item_id: str, sheet: Sheet) -> None:
        self.part = part
        self.type = kind
        self.id = item_id
        self._sheet = sheet
        self._index, self.opening = sheet.add_item(item)
        self.place: JsonObject = {"item_id": item_id, "output_index": self._index}

    def end(self, item: object) -> bytes:
        return self._sheet.end_item(self._index, item)


@final
class _SoundStream:
    """Sound has events of its own and is no item."""

    def __init__(self, part: int, sheet: Sheet) -> None:
        self.part = part
        self._sheet = sheet
        self._told = False

    def delta(self, event: MediaDelta) -> bytes:
        self._told = True
        events = self._sheet.events
        out = events.event("response.audio.delta", {"delta": event.data}) if event.data else b""
        if event.transcript:
            out += events.event("response.audio.transcript.delta", {"delta": event.transcript})
        return out

    def end(self, value: Media) -> bytes:
        if value.media_type is not None:
            self._sheet.book.note("media_output", "audio", value.media_type)
        note_foreign(self._sheet.book, value.extra, "audio")
        out = b""
        if not self._told:
            out = self.delta(MediaDelta(self.part, value.data or "", value.transcript or ""))
        if value.status == "completed":
            out += self._sheet.events.event("response.audio.done", {})
            out += self._sheet.events.event("response.audio.transcript.done", {})
        return out


_Open = MessageStream | ReasoningStream | _CallStream | _WholeStream | _SoundStream


class ItemStream:
    """Writes what is about parts. `stencil` is that of the open part."""

    def __init__(self, sheet: Sheet) -> None:
        self.stencil = IDLE
        self.has_cut_call = False  # a call ended incomplete, and so has no end on the wire
        self.waiting: dict[str, Call] = {}  # complete calls that the client is to run, by their ids
        self._sheet = sheet
        self._open: _Open | None = None
        self._message: MessageStream | None = None
        self._standing: dict[int, _CallStream] = {}  # calls that the gateway is running
        self._settled: list[
            tuple[_CallStream, Call]
        ] = []  # those that have ended while another part was open
        self._ignored: set[int] = set()

    # --- parts begin and end -----------------------------------------------------------------------------------------

    def start(self, event: PartStarted) -> bytes:
        part, header = event.part, event.header
        if event.choice != 0:
            self._sheet.book.note("extra_choices", f"choice {event.choice}")
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
                self._open = stream = ReasoningStream(part, header, self._sheet)
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
            return self._tell_settled()
        stream = self._stream(event.part)
        self._open = None
        self.stencil = IDLE
        out = self._end_part(stream, value)
        return out + self._tell_settled() if self._settled else out

    def _end_part(self, stream: "_Open", value: Part) -> bytes:
        match stream, value:
            case MessageStream(), Text() | Refusal() | Opaque():
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
                return self._refuse(f"the end of another kind of part than {stream.part} began as")

    def flush(self) -> bytes:
        """The answer goes on without the open message: close it, and what was held back."""
        message, self._message = self._message, None
        out = b"" if message is None else message.close()
        settled, self._settled = self._settled, []
        out += self._sheet.release()
        return b"".join([out, *(stream.end(value) for stream, value in settled)])

    def _tell_settled(self) -> bytes:
        """The ends of calls that the gateway ran, unless an item is open on the wire, or has been cut."""
        is_early = self._open is not None or self._sheet.held or self.has_cut_call
        return b"" if is_early else self.flush()

    def abandon(self) -> bytes:
        """The answer fails: close what is complete, and nothing else."""
        message, self._message = self._message, None
        out = b"" if message is None or message is self._open else message.close()
        self._open = None
        self._standing.clear()
        self._settled.clear()
        self.stencil = IDLE
        self._sheet.held.clear()
        return out

    # --- deltas ------------------------------------------------------------------------------------------------------

    def text(self, event: TextDelta) -> bytes:
        stream = self._about(event.part)
        return stream.delta(event) if isinstance(stream, MessageStream) else b""

    def reasoning(self, event: ReasoningDelta) -> bytes:
        stream = self._about(event.part)
        return stream.delta(event) if isinstance(stream, ReasoningStream) else b""

    def input(self, event: InputDelta) -> bytes:
        """Input of most structured kinds has no delta event: it comes whole, with the finished item."""
        is_told = self._about(event.part) is not None and self.stencil.kind is InputDelta
        return self._sheet.events.delta(self.stencil, event.text) if is_told else b""

    def annotation(self, event: AnnotationAdded) -> bytes:
        stream = self._about(event.part)
        return stream.annotate(event) if isinstance(stream, MessageStream) else b""

    def media(self, event: MediaDelta) -> bytes:
        stream = self._about(event.part)
        if isinstance(stream, _SoundStream):
            return stream.delta(event)
        if not isinstance(stream, _CallStream) or stream.type != "image_generation_call":
            return b""
        own = own_fields(event.extra)
        fields: JsonObject = {"partial_image_index": 0, **own, **stream.place}
        fields["partial_image_b64"] = event.data
        return self._sheet.events.event("response.image_generation_call.partial_image", fields)

    def output(self, event: OutputDelta) -> bytes:
        stream = self._about(event.part)
        if isinstance(stream, _WholeStream | _CallStream) and stream.type.startswith("shell_call"):
            fields: JsonObject = {
                **stream.place,
                "command_index": 0,
                "delta": {"stdout": event.text},
            }
            return self._sheet.events.event("response.shell_call_output_content.delta", fields)
        if stream is not None:
            self._sheet.book.note("tool_output", "output")
        return b""

    def progress(self, event: Progress) -> bytes:
        """Where a tool of the provider's is; only of the part that is open, and only what the vendor has a name for."""
        standing = None if event.part is None else self._standing.get(event.part)
        stream = self._open if standing is None else standing
        if not isinstance(stream, _CallStream | _WholeStream) or stream.part != event.part:
            return b""
        if event.stage == CALLING and isinstance(stream, _CallStream) and stream.is_hosted:
            self._standing[stream.part] = stream
            self._open = None
            self.stencil = IDLE
            out = stream.tell_input(own_fields(event.extra))
            return out + self._tell_settled() if self._settled else out
        name = PROGRESS_NAMES.get((stream.type, event.stage))
        if name is None:
            return b""
        return self._sheet.events.event(name, {**own_fields(event.extra), **stream.place})

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _start_content(self, part: int, header: MessagePart) -> bytes:
        out = b""
        message = self._message
        if message is None or message.source is None or message.source != header.item_id:
            out = self.flush()
            self._message = message = MessageStream(header, self._sheet)
        out += message.start(part, header)
        self._open = message
        self.stencil = message.stencil
        return out

    def _end_content(self, message: MessageStream, value: MessagePart) -> bytes:
        out = message.end(value)
        if message.source is None:
            self._message = None
            out += message.close()
        return out

    def _start_call(self, part: int, header: Call) -> bytes:
        spec = self._sheet.items.call_spec(header)
        if spec is None:
            self._ignored.add(part)
            return b""
        self._open = stream = _CallStream(part, header, spec, self._sheet)
        self.stencil = stream.stencil
        return stream.opening

    def _start_whole(self, part: int, header: Result | Opaque) -> bytes:
        items = self._sheet.items
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
        self._open = stream = _WholeStream(part, item, kind, item_id, self._sheet)
        return stream.opening

    def _whole_item(self, stream: _WholeStream, value: Result | Opaque) -> object:
        items = self._sheet.items
        if isinstance(value, Opaque):
            return items.opaque(value)
        self.waiting.pop(value.call_id, None)
        spec = items.result_spec(value)
        return None if spec is None else items.result(value, spec, stream.id)

    def _start_media(self, part: int, header: Media) -> bytes:
        if header.kind == "audio":
            self._open = _SoundStream(part, self._sheet)
        else:
            self._sheet.book.note("media_output", header.kind)
            self._ignored.add(part)
        return b""

    def _about(self, part: int) -> _Open | None:
        """The open part; None if it is one that is left out."""
        return None if part in self._ignored else self._stream(part)

    def _stream(self, part: int) -> _Open:
        if self._open is None or self._open.part != part:
            self._refuse(f"an event about part {part}, which is not open")
        return self._open

    def _refuse(self, what: str) -> Never:
        raise LocalProtocolError(f"expected parts one after the other, got {what}")
