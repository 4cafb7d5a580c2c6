"""What one frame of a Messages stream means.

    SILENT --message_start--> SPEAKING --message_delta with stop_reason--> ENDING --message_stop--> over
                                 '--message_stop, [DONE]: the reason is inferred-----------------^

Between them blocks open, grow and close by their index; `assembly` keeps them. A block's own stop closes it; where that
is missing, the message's end does. A call is complete when it was closed; empty input is `{}`. The vendor also closes
the block that a limit cut, so a call that was closed without input, or with input that is no JSON, waits for what comes
next: if the message then ends by a limit, the call is incomplete.

Everything that made some client fail is reported in `found`. What the vendor's own streams look like has no problems.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps, raw
from dragoman.core.fields import expect_list, expect_object, expect_text
from dragoman.core.finish import settle_finish
from dragoman.core.runs import Run
from dragoman.dialects.base import DecodeContext
from dragoman.dialects.messages.assembly import Assembly
from dragoman.dialects.messages.blocks import check_block, check_delta
from dragoman.dialects.messages.errors import decode_error, error_from_fields
from dragoman.dialects.messages.fields import (
    Fields,
    extra_of,
    is_null,
    number_of,
    object_of,
    own_fields,
    string_of,
)
from dragoman.dialects.messages.usage import UsageReader
from dragoman.dialects.messages.wire import (
    CUT_REASONS,
    EVENTS,
    MAPPED_FIELDS,
    STOP_REASONS,
    BlockDelta,
    InputFragment,
    TextFragment,
    decode_block_delta,
)
from dragoman.errors import MalformedJson
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    Noticed,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason
from dragoman.model.parts import Extra
from dragoman.sse import Frame

__all__ = ("MessagesReader", "finish_extra")

_NO_CONTEXT = DecodeContext()
_HOT = b"event: content_block_delta\n"
_LF = 0x0A

_Events = tuple[Event, ...]


class MessagesReader:
    """Reads one stream. See `base.FrameReader`."""

    padding: bytes | None = b""

    def __init__(self, context: DecodeContext = _NO_CONTEXT) -> None:
        self.over = False
        self.frame = 0
        self.found: list[tuple[str, str]] = []
        self._context = context
        self._assembly = Assembly(context, self.found)
        self._usage = UsageReader()
        self._is_started = False
        self._response_id = ""
        self._is_finished = False
        self._has_content = False
        self._end_fields: Fields = {}
        self._is_unnamed = False

    def quick(self, piece: bytes, data: bytes, /) -> _Events | None:
        """A delta of an open block, read by its type alone. See `base.FrameReader`."""
        if not piece.startswith(_HOT):
            return None
        try:
            event = decode_block_delta(data)
        except FAST_FAILURES:
            return None
        return self._tell_plain(event)

    def quick_many(self, opening: bytes, lines: list[bytes], told: list[Event], /) -> int:
        """See `base.FrameReader`."""
        if not opening.startswith(_HOT):
            return 0
        found = self.found
        for count, line in enumerate(lines):
            if _LF in line:
                return count
            try:
                event = decode_block_delta(line)
            except FAST_FAILURES:
                return count
            events = self._tell_plain(event)
            if events is None:
                return count
            if not events or found:
                told.extend(events)
                return count + 1
            told.append(events[0])
        return len(lines)

    def prolong(self, last: TextDelta | InputDelta, texts: list[str], /) -> bool:
        """See `base.FrameReader`."""
        blocks = self._assembly.texts if isinstance(last, TextDelta) else self._assembly.calls
        return any(block.part == last.part and block.tell_all(texts) for block in blocks.values())

    def quick_run(self, _lines: list[bytes], /) -> Run | None:
        """Deltas that are not written alike are read one by one."""
        return None

    def _tell_plain(self, event: BlockDelta) -> _Events | None:
        """What a delta of a block says; None if it must be read field by field."""
        delta = event.delta
        if type(delta) is TextFragment:
            text = self._assembly.texts.get(event.index)
            return None if text is None else text.tell(delta.text)
        if type(delta) is InputFragment:
            call = self._assembly.calls.get(event.index)
            return None if call is None else call.tell(delta.partial_json)
        thought = self._assembly.thoughts.get(event.index)
        if thought is None or delta.estimated_tokens is not None:
            return None
        return thought.tell(delta.thinking)

    def read(self, frame: Frame) -> _Events:
        """The events of one frame. Raises MalformedJson for a frame that is no JSON object."""
        data = frame.data
        name = frame.name.decode("utf-8", "replace")
        if data is None or not data.strip():
            return self._read_empty(name, frame.comment)
        if frame.is_done:
            return self._on_done()
        if name == "error":
            return self.fail(decode_error(data))
        fields = as_object(data)
        kind = self._kind(name, fields)
        handler = _HANDLERS.get(kind)
        if handler is not None:
            return handler(self, fields)
        if kind == "error" or (not kind and "error" in fields):
            return self.fail(error_from_fields(fields, None, Raw(data)))
        return self._on_unknown(kind, fields, Raw(data))

    def _read_empty(self, name: str, comment: bytes | None) -> _Events:
        """A frame without data: a comment, something that keeps the connection open, or an event that lost its data."""
        if name in EVENTS and name != "ping":
            raise MalformedJson(f"expected data with the event {name}, got none")
        if comment is None:
            return ()
        text = comment.decode("utf-8", "replace")
        return (Noticed("comment", "messages", raw=Raw(dumps(text))),)

    def end(self) -> _Events:
        """The wire has ended."""
        if self.over:
            return ()
        if self._is_finished:
            self._note("missing_end", "expected message_stop, the stream ended after message_delta")
            return self._complete()
        stage = "message_stop" if self._is_started else "message_start"
        message = f"expected {stage}, the stream ended"
        self._note("cut_stream", message)
        return self.fail(ErrorInfo(kind="truncated", message=message))

    def fail(self, error: ErrorInfo) -> _Events:
        """Close what is open as incomplete, then fail."""
        self.over = True
        return (*self._assembly.abandon(), Failed(error))

    def _kind(self, name: str, fields: Fields) -> str:
        kind = string_of(fields.get("type")) or ""
        if not kind and not name:
            expect_text(fields.get("type"), "type")
        if kind not in EVENTS and kind != "error" and name in EVENTS:
            kind = ""  # what it is called on its event line is all that can be read of it
        if not name:
            if not self._is_unnamed:
                self._note("missing_event_name", f"expected an event: line with {kind or 'a name'}")
                self._is_unnamed = True
        elif not kind:
            self._note("missing_type", f"the data of an {name} event has no type")
            return name if name in EVENTS else ""
        elif kind != name:
            self._note("wrong_event_name", f"the data of an {name} event has the type {kind}")
        return kind

    def _on_message_start(self, fields: Fields) -> _Events:
        message = expect_object(fields.get("message"), "message")
        response_id = string_of(message.get("id")) or ""
        if self._is_started:
            self._note("repeated_start", "message_start came a second time")
            if self._has_content or response_id != self._response_id:
                # A retry behind the upstream: joining two answers would make calls that nobody made.
                message_text = "the upstream began a second answer in the same stream"
                return self.fail(ErrorInfo(kind="protocol", message=message_text))
            return ()
        if not response_id:
            self._note("missing_id", "expected an id in message_start")
        events = [
            *self._notice("message_start", fields, {"type", "message"}),
            *self._start(message, response_id),
            *self._report(object_of(message.get("usage")), "message_start"),
        ]
        for block in expect_list(message.get("content"), "content"):
            self._note("content_in_start", "message_start carries content")
            events.extend(self._open_and_close(block))
        return tuple(events)

    def _open_and_close(self, block: Raw) -> _Events:
        fields = expect_object(block, "a content block")
        self._has_content = True
        return (*self._assembly.open(None, fields, block), *self._close(None))

    def _start(self, message: Fields, response_id: str) -> _Events:
        self._is_started = True
        self._response_id = response_id
        if not self._context.seed:
            self._assembly.seed(response_id)
        model = string_of(message.get("model")) or ""
        return (Started(response_id, model, None, extra_of(message, MAPPED_FIELDS["message"])),)

    def _on_block_start(self, fields: Fields) -> _Events:
        whole = fields.get("content_block")
        block = expect_object(whole, "content_block")
        if whole is None or not block:
            raise MalformedJson("expected a content_block in content_block_start, got none")
        index = _index(fields)
        check_block(block)
        late = self._late("content_block_start")
        if late is not None:
            return late
        self._has_content = True
        return (
            *self._ensure_started(),
            *self._notice("content_block_start", fields, {"type", "index", "content_block"}),
            *self._assembly.open(index, block, whole),
        )

    def _on_block_delta(self, fields: Fields) -> _Events:
        whole = fields.get("delta")
        delta = expect_object(whole, "delta")
        if whole is None or not delta:
            raise MalformedJson("expected a delta in content_block_delta, got none")
        index = _index(fields)
        check_delta(delta)
        late = self._late("content_block_delta")
        if late is not None:
            return late
        self._has_content = True
        return (
            *self._ensure_started(),
            *self._notice("content_block_delta", fields, {"type", "index", "delta"}),
            *self._assembly.grow(index, delta, whole),
        )

    def _on_block_stop(self, fields: Fields) -> _Events:
        late = self._late("content_block_stop")
        if late is not None:
            return late
        return (
            *self._ensure_started(),
            *self._notice("content_block_stop", fields, {"type", "index"}),
            *self._close(_index(fields)),
        )

    def _close(self, index: int | None) -> _Events:
        events = self._assembly.close(index)
        return (*events, *self._fail_if_faulty())

    def _on_message_delta(self, fields: Fields) -> _Events:
        delta = expect_object(fields.get("delta"), "delta")
        native = expect_text(delta.get("stop_reason"), "stop_reason")
        usage = object_of(fields.get("usage"))
        events = [*self._ensure_started(), *self._report(usage, "message_delta")]
        self._end_fields.update(own_fields(fields, {"type", "delta", "usage"}))
        if native is None:
            events.extend(self._notice("message_delta", delta, {"stop_reason", "stop_sequence"}))
            return tuple(events)
        if self._is_finished:
            self._note("repeated_finish", f"a second message_delta says {native}")
            return tuple(events)
        return (*events, *self._finish(native, delta))

    def _finish(self, native: str | None, delta: Fields) -> _Events:
        reason = None if native is None else STOP_REASONS.get(native)
        if native is not None and reason is None:
            self._note("unknown_finish", f"message_delta has the unknown stop_reason {native!r}")
        closed = self._assembly.finish(is_cut=reason in CUT_REASONS)
        failed = self._fail_if_faulty()
        if failed:
            return (*closed, *failed)
        has_calls = self._assembly.complete_calls > 0
        settled = settle_finish(reason, has_complete_client_calls=has_calls)
        if reason is not None and settled != reason:
            self._note("wrong_finish", f"expected {_native(settled)}, got stop_reason {native}")
        self._is_finished = True
        finished = Finished(
            settled,
            stop_sequence=string_of(delta.get("stop_sequence")),
            inferred=native is None,
            native=native,
            extra=finish_extra(native, own_fields(delta, MAPPED_FIELDS["message_delta"])),
        )
        return (*closed, finished)

    def _on_message_stop(self, fields: Fields) -> _Events:
        events = [*self._ensure_started()]
        if not self._is_finished:
            self._note("missing_finish", "expected message_delta with a stop_reason")
            events.extend(self._finish(None, {}))
            if self.over:
                return tuple(events)
        events.extend(self._notice("message_stop", fields, {"type"}))
        return (*events, *self._complete())

    def _on_ping(self, fields: Fields) -> _Events:
        rest = own_fields(fields, {"type"})
        return (Noticed("ping", "messages", raw=raw(rest) if rest else None),)

    def _on_done(self) -> _Events:
        """`[DONE]` is another dialect's end. It is one here too, unless a call is not whole."""
        done = Noticed("done", "messages")
        if self._is_finished:
            return (done, *self.end())
        if not self._is_started or self._assembly.is_doubtful:
            return (done,)
        self._note("missing_finish", "expected message_delta and message_stop, got [DONE]")
        events = self._finish(None, {})
        return (done, *events) if self.over else (done, *events, *self._complete())

    def _on_unknown(self, kind: str, fields: Fields, whole: Raw) -> _Events:
        shown = kind or string_of(fields.get("object")) or "an object without a type"
        self._note("unknown_event", f"expected a Messages event, got {shown}")
        return (Noticed("unknown", "messages", kind, whole),)

    def _complete(self) -> _Events:
        self.over = True
        extra = Extra("messages", self._end_fields) if self._end_fields else None
        return (Completed(extra),)

    def _ensure_started(self) -> _Events:
        if self._is_started:
            return ()
        self._note("missing_start", "expected message_start before anything else")
        return self._start({}, "")

    def _late(self, kind: str) -> _Events | None:
        """A block after the message's end changes nothing any more."""
        if not self._is_finished:
            return None
        self._note("after_finish", f"dropped a {kind} after message_delta")
        return ()

    def _fail_if_faulty(self) -> _Events:
        fault = self._assembly.fault
        if not fault or self.over:
            return ()
        return self.fail(ErrorInfo(kind="protocol", message=fault))

    def _report(self, usage: Fields | None, where: str) -> _Events:
        if usage is None:
            self._note("missing_usage", f"expected usage in {where}")
            return ()
        return (UsageReported(self._usage.read(usage)),)

    def _notice(self, name: str, fields: Fields, known: set[str]) -> _Events:
        rest = own_fields(fields, known)
        return (Noticed("fields", "messages", name, raw(rest)),) if rest else ()

    def _note(self, kind: str, message: str) -> None:
        self.found.append((kind, message))

    handlers: ClassVar[Mapping[str, Callable[..., _Events]]] = {
        "message_start": _on_message_start,
        "content_block_start": _on_block_start,
        "content_block_delta": _on_block_delta,
        "content_block_stop": _on_block_stop,
        "message_delta": _on_message_delta,
        "message_stop": _on_message_stop,
        "ping": _on_ping,
    }


_HANDLERS = MessagesReader.handlers


def finish_extra(native: str | None, fields: Fields) -> Extra | None:
    """What stands beside a stop reason; also the reason itself where the vocabulary has no own word for it."""
    if native is not None and _native(STOP_REASONS.get(native)) != native:
        fields = {**fields, "stop_reason": raw(native)}
    return Extra("messages", fields) if fields else None


def _native(reason: FinishReason | None) -> str | None:
    return next((native for native, mapped in STOP_REASONS.items() if mapped == reason), None)


def _index(fields: Fields) -> int | None:
    value = fields.get("index")
    index = number_of(value)
    if index is None and not is_null(value):
        raise MalformedJson("expected an integer as index, got another value")
    return index if index is not None and index >= 0 else None
