"""Decodes Messages to events: the frames of a stream, and a whole body.

    SILENT --message_start--> SPEAKING --message_delta with stop_reason--> ENDING --message_stop--> over
                                 '--message_stop, [DONE]: the reason is inferred-----------------^

Between them blocks open, grow and close by their index; `open_blocks` keeps them. A block's own stop closes it; where the
stop is missing, the end of the message closes the block. A call is complete when it was closed; empty input is `{}`. The
vendor also closes the block that a limit cut, so a call that was closed without input, or with input that is no JSON, waits
for the next event: if the message then ends by a limit, the call is incomplete.

A body is read as a stream in which each block comes whole. It does not show whether the last call of an answer that a limit
cut is whole: such a call counts as incomplete.

`problems` reports everything that made some client fail. The vendor's own streams have no problems.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps, raw
from dragoman.core.fields import (
    Fields,
    expect_list,
    expect_object,
    expect_text,
    extra_of,
    is_object,
    is_present,
    present,
    read_int,
    read_list,
    read_object,
    read_text,
    without,
)
from dragoman.core.fold import settle_finish
from dragoman.core.open_parts import OpenCall, OpenPart, OpenReasoning, OpenText, Parts
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.messages.blocks import check_block, check_delta, type_of
from dragoman.dialects.messages.errors import decode_error, error_from_fields
from dragoman.dialects.messages.open_blocks import OpenBlocks
from dragoman.dialects.messages.usage import UsageReader
from dragoman.dialects.messages.wire import (
    COMPLETED_FIELDS,
    CUT_REASONS,
    END_FIELDS,
    EVENTS,
    FINISH_FIELDS,
    MAPPED_FIELDS,
    STOP_REASONS,
    InputFragment,
    TextFragment,
    decode_block_delta,
)
from dragoman.dialects.stream_decoder import Step
from dragoman.errors import MalformedJson
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    Noticed,
    Started,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason, Problem
from dragoman.model.parts import Extra
from dragoman.sse import Frame, is_utf8

_NO_CONTEXT = DecodeContext()
_DELTA = b"event: content_block_delta\n"
# Problems that a body does not have: its calls have their inputs, and clients get its blocks as they are.
_OF_STREAMS = frozenset({"input_in_start", "unknown_block"})

_Events = tuple[Event, ...]


class MessagesReader:
    """Reads one stream. See `stream_decoder.FrameReader`."""

    def __init__(self, context: DecodeContext = _NO_CONTEXT) -> None:
        self.over = False
        self.frame = 0
        self.problems: list[tuple[str, str]] = []
        self._parts = Parts(
            self.problems, tools=context.tools, name_rule=context.name_fallback, seed=context.seed
        )
        self._blocks = OpenBlocks(self._parts)
        self._usage = UsageReader()
        self._is_started = False
        self._response_id = ""
        self._is_finished = False
        self._has_content = False
        self._end_fields: dict[str, Raw] = {}
        self._is_unnamed = False

    def find_delta(self, opening: bytes, data: bytes, /) -> tuple[OpenPart, str] | None:
        """See `stream_decoder.FrameReader`. Decodes by the typed shape alone."""
        if not opening.startswith(_DELTA):
            return None
        try:
            event = decode_block_delta(data)
        except FAST_FAILURES:
            return None
        part, delta = self._blocks.streaming.get(event.index), event.delta
        if part is None or not part.is_plain:
            return None
        if type(delta) is TextFragment:
            return (part, delta.text) if type(part) is OpenText and delta.text else None
        if type(delta) is InputFragment:
            return (part, delta.partial_json) if type(part) is OpenCall else None
        is_plain = type(part) is OpenReasoning and delta.estimated_tokens is None
        return (part, delta.thinking) if is_plain and delta.thinking else None

    def read(self, frame: Frame) -> _Events:
        """Return the events of one frame. Raises MalformedJson for a frame that is not a JSON object."""
        data = frame.data
        name = frame.name.decode("utf-8", "replace")
        if data is None or not data.strip():
            return self._read_empty(name, frame.comment)
        if frame.is_done:
            return self._read_done()
        if name == "error":
            return self.fail(decode_error(data))
        fields = as_object(data)
        kind = self._kind(name, fields)
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, fields)
            return self._parts.take()
        if kind == "error" or (not kind and "error" in fields):
            return self.fail(error_from_fields(fields, None, Raw(data)))
        return self._read_unknown(kind, fields, Raw(data))

    def end(self) -> _Events:
        """Return the last events: the stream has ended."""
        if self.over:
            return ()
        if self._is_finished:
            self._note("missing_end", "expected message_stop, the stream ended after message_delta")
            self._complete()
            return self._parts.take()
        stage = "message_stop" if self._is_started else "message_start"
        message = f"expected {stage}, the stream ended"
        self._note("cut_stream", message)
        return self.fail(ErrorInfo(kind="truncated", message=message))

    def fail(self, error: ErrorInfo) -> _Events:
        """Return the events that close all open parts as incomplete, then Failed."""
        self._fail(error)
        return self._parts.take()

    def _fail(self, error: ErrorInfo) -> None:
        self.over = True
        self._blocks.abandon()
        self._emit(Failed(error))

    def read_whole(self, data: bytes) -> _Events:
        """Return the events of a body. Raises MalformedJson if it cannot be read."""
        fields = as_object(data)
        kind = type_of(fields)
        if kind == "error" or ("error" in fields and "content" not in fields):
            return self.fail(error_from_fields(fields, None, Raw(data)))
        value = fields.get("content")
        is_empty = kind == "message" and not is_present(value)
        content = [] if is_empty else read_list(value)
        if content is None or kind not in ("message", ""):
            shown = kind or read_text(fields.get("object")) or "another object"
            message = f"expected a Messages body, got {shown}"
            self._note("foreign_body", message)
            return self.fail(ErrorInfo(kind="protocol", message=message))
        if not all(map(is_object, content)):
            raise MalformedJson("expected objects in content, got other entries too")
        blocks = [(read_object(entry), entry) for entry in content]
        for block, _ in blocks:
            check_block(block)
        native = expect_text(fields.get("stop_reason"), "stop_reason")
        self._start(without(fields, END_FIELDS), read_text(fields.get("id")) or "")
        self._blocks.read_whole(blocks, is_cut=STOP_REASONS.get(native or "") in CUT_REASONS)
        if not self._fail_if_faulty():
            self._end_whole(native, fields)
        return self._parts.take()

    def _end_whole(self, native: str | None, fields: Fields) -> None:
        if native is None:
            self._note("missing_finish", "expected a stop_reason")
        known = FINISH_FIELDS | MAPPED_FIELDS["message_delta"]
        self._finish(native, {name: raw for name, raw in fields.items() if name in known})
        self._report(fields.get("usage"), "the message")
        rest = present(fields)
        self._end_fields = {name: rest[name] for name in COMPLETED_FIELDS if name in rest}
        self._complete()

    def _read_empty(self, name: str, comment: bytes | None) -> _Events:
        """Decode a frame without data: a comment, a frame that keeps the connection open, or an event that lost its data."""
        if name in EVENTS and name != "ping":
            raise MalformedJson(f"expected data with the event {name}, got none")
        if comment is None:
            return ()
        text = comment.decode("utf-8", "replace")
        return (Noticed("comment", "messages", raw=Raw(dumps(text))),)

    def _read_done(self) -> _Events:
        """Decode `[DONE]`, the end of a Chat stream. It ends a Messages stream too, unless a call is incomplete."""
        done = Noticed("done", "messages")
        if self._is_finished:
            return (done, *self.end())
        if not self._is_started or self._blocks.is_doubtful:
            return (done,)
        self._emit(done)
        self._note("missing_finish", "expected message_delta and message_stop, got [DONE]")
        self._finish(None, {})
        if not self.over:
            self._complete()
        return self._parts.take()

    def _read_unknown(self, kind: str, fields: Fields, whole: Raw) -> _Events:
        shown = kind or read_text(fields.get("object")) or "an object without a type"
        self._note("unknown_event", f"expected a Messages event, got {shown}")
        return (Noticed("unknown", "messages", kind, whole),)

    def _kind(self, name: str, fields: Fields) -> str:
        kind = read_text(fields.get("type")) or ""
        if not kind and not name:
            expect_text(fields.get("type"), "type")
        if kind not in EVENTS and kind != "error" and name in EVENTS:
            kind = ""  # an unknown type on a known event line: the event line decides
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

    # --- the events of the protocol -----------------------------------------------------------------------------------

    def _on_message_start(self, fields: Fields) -> None:
        message = expect_object(fields.get("message"), "message")
        response_id = read_text(message.get("id")) or ""
        if self._is_started:
            self._note("repeated_start", "message_start came a second time")
            if self._has_content or response_id != self._response_id:
                # The upstream retried: joining two answers would produce calls that the model did not make.
                text = "the upstream began a second answer in the same stream"
                self._fail(ErrorInfo(kind="protocol", message=text))
            return
        if not response_id:
            self._note("missing_id", "expected an id in message_start")
        self._notice("message_start", fields, {"type", "message"})
        self._start(message, response_id)
        self._report(message.get("usage"), "message_start")
        for block in expect_list(message.get("content"), "content"):
            self._note("content_in_start", "message_start carries content")
            self._has_content = True
            self._blocks.open(None, expect_object(block, "a content block"), block)
            self._close(None)

    def _start(self, message: Fields, response_id: str) -> None:
        self._is_started = True
        self._response_id = response_id
        self._parts.seed = self._parts.seed or response_id
        model = read_text(message.get("model")) or ""
        extra = extra_of("messages", present(message), MAPPED_FIELDS["message"])
        self._emit(Started(response_id, model, None, extra))

    def _on_block_start(self, fields: Fields) -> None:
        whole = fields.get("content_block")
        block = expect_object(whole, "content_block")
        if whole is None or not block:
            raise MalformedJson("expected a content_block in content_block_start, got none")
        index = _index(fields)
        check_block(block)
        if self._is_late("content_block_start"):
            return
        self._has_content = True
        self._ensure_started()
        self._notice("content_block_start", fields, {"type", "index", "content_block"})
        self._blocks.open(index, block, whole)

    def _on_block_delta(self, fields: Fields) -> None:
        whole = fields.get("delta")
        delta = expect_object(whole, "delta")
        if whole is None or not delta:
            raise MalformedJson("expected a delta in content_block_delta, got none")
        index = _index(fields)
        check_delta(delta)
        if self._is_late("content_block_delta"):
            return
        self._has_content = True
        self._ensure_started()
        self._notice("content_block_delta", fields, {"type", "index", "delta"})
        self._blocks.grow(index, delta, whole)

    def _on_block_stop(self, fields: Fields) -> None:
        if self._is_late("content_block_stop"):
            return
        self._ensure_started()
        self._notice("content_block_stop", fields, {"type", "index"})
        self._close(_index(fields))

    def _close(self, index: int | None) -> None:
        self._blocks.close(index)
        self._fail_if_faulty()

    def _on_message_delta(self, fields: Fields) -> None:
        delta = expect_object(fields.get("delta"), "delta")
        native = expect_text(delta.get("stop_reason"), "stop_reason")
        usage = fields.get("usage")
        self._ensure_started()
        self._report(usage, "message_delta")
        self._end_fields.update(without(present(fields), {"type", "delta", "usage"}))
        if native is None:
            self._notice("message_delta", delta, {"stop_reason", "stop_sequence"})
        elif self._is_finished:
            self._note("repeated_finish", f"a second message_delta says {native}")
        else:
            self._finish(native, delta)

    def _finish(self, native: str | None, delta: Fields) -> None:
        reason = None if native is None else STOP_REASONS.get(native)
        if native is not None and reason is None:
            self._note("unknown_finish", f"the message has the unknown stop_reason {native!r}")
        self._blocks.finish(is_cut=reason in CUT_REASONS)
        if self._fail_if_faulty():
            return
        has_calls = self._blocks.complete_calls > 0
        settled = settle_finish(reason, has_complete_client_calls=has_calls)
        if reason is not None and settled != reason:
            self._note("wrong_finish", f"expected {_native(settled)}, got stop_reason {native}")
        self._is_finished = True
        finished = Finished(
            settled,
            stop_sequence=read_text(delta.get("stop_sequence")),
            inferred=native is None,
            native=native,
            extra=finish_extra(native, without(present(delta), MAPPED_FIELDS["message_delta"])),
        )
        self._emit(finished)

    def _on_message_stop(self, fields: Fields) -> None:
        self._ensure_started()
        if not self._is_finished:
            self._note("missing_finish", "expected message_delta with a stop_reason")
            self._finish(None, {})
            if self.over:
                return
        self._notice("message_stop", fields, {"type"})
        self._complete()

    def _on_ping(self, fields: Fields) -> None:
        rest = without(present(fields), {"type"})
        self._emit(Noticed("ping", "messages", raw=raw(rest) if rest else None))

    def _complete(self) -> None:
        self.over = True
        extra = Extra("messages", self._end_fields) if self._end_fields else None
        self._emit(Completed(extra))

    def _ensure_started(self) -> None:
        if not self._is_started:
            self._note("missing_start", "expected message_start before anything else")
            self._start({}, "")

    def _is_late(self, kind: str) -> bool:
        """Report and skip block events after message_delta. True: the event is late."""
        if self._is_finished:
            self._note("after_finish", f"dropped a {kind} after message_delta")
        return self._is_finished

    def _fail_if_faulty(self) -> bool:
        fault = self._parts.fault
        if fault and not self.over:
            self._fail(ErrorInfo(kind="protocol", message=fault))
        return bool(fault)

    def _report(self, usage: Raw | None, where: str) -> None:
        if not is_object(usage):
            self._note("missing_usage", f"expected usage in {where}")
        else:
            self._emit(UsageReported(self._usage.read(read_object(usage))))

    def _notice(self, name: str, fields: Fields, known: set[str]) -> None:
        rest = without(present(fields), known)
        if rest:
            self._emit(Noticed("fields", "messages", name, raw(rest)))

    def _emit(self, event: Event) -> None:
        self._parts.events.append(event)

    def _note(self, kind: str, message: str) -> None:
        self.problems.append((kind, message))

    handlers: ClassVar[Mapping[str, Callable[["MessagesReader", Fields], None]]] = {  # pyright: ignore[reportAssignmentType] -- functions, not bound to a reader
        "message_start": _on_message_start,
        "content_block_start": _on_block_start,
        "content_block_delta": _on_block_delta,
        "content_block_stop": _on_block_stop,
        "message_delta": _on_message_delta,
        "message_stop": _on_message_stop,
        "ping": _on_ping,
    }


_HANDLERS = MessagesReader.handlers


def read_body(data: bytes, context: DecodeContext = _NO_CONTEXT) -> Step:
    """Decode a whole body. A body that is an error or not a message gives Failed; never raises."""
    reader = MessagesReader(context)
    try:
        events = reader.read_whole(data)
    except MalformedJson as error:
        kind = "malformed_frame" if is_utf8(data) else "invalid_utf8"
        reader.problems.append((kind, error.message))
        events = reader.fail(ErrorInfo(kind="protocol", message=error.message))
    found = [problem for problem in reader.problems if problem[0] not in _OF_STREAMS]
    return Step(data, events, tuple(Problem(1, kind, message) for kind, message in found))


def finish_extra(native: str | None, fields: dict[str, Raw]) -> Extra | None:
    """Return the fields beside a stop reason, and the stop reason itself where `FinishReason` has no value for it alone."""
    if native is not None and _native(STOP_REASONS.get(native)) != native:
        fields = {**fields, "stop_reason": raw(native)}
    return Extra("messages", fields) if fields else None


def _native(reason: FinishReason | None) -> str | None:
    return next((native for native, mapped in STOP_REASONS.items() if mapped == reason), None)


def _index(fields: Fields) -> int | None:
    value = fields.get("index")
    index = read_int(value)
    if index is None and is_present(value):
        raise MalformedJson("expected an integer as index, got another value")
    return index if index is not None and index >= 0 else None
