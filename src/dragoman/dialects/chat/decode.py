"""Decodes Chat Completions to events: the frames of a stream, and a whole body.

Nearly every frame is one delta of text, reasoning or arguments and is decoded by its typed shape alone
(`wire.DeltaChunk`). All others are read field by field, leniently: null is absent, unknown fields are kept. `choice` decodes
the entries of `choices`; this module decodes what belongs to the whole answer: its beginning, its usage, its errors, its end.

    SILENT --first chunk with choices--> SPEAKING --[DONE], or the end of the stream-> OVER
       '-------------- an error chunk, a broken rule, the end too early --------------^
"""

from collections.abc import Mapping

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_text
from dragoman.core.failures import error_info
from dragoman.core.fields import (
    NULL,
    expect_int,
    expect_items,
    expect_present,
    extra_of,
    join_object,
    present,
    read_fragment,
    read_int,
    read_present,
)
from dragoman.core.open_parts import OpenCall, OpenPart, OpenReasoning, OpenText, Parts
from dragoman.dialects.chat.choice import ChoiceTrack, noticed
from dragoman.dialects.chat.errors import decode_error, find_error, read_error
from dragoman.dialects.chat.usage import read_usage
from dragoman.dialects.chat.wire import (
    CHUNK_FIELDS,
    FAILED_FINISHES,
    TypedChunk,
    decode_chunk,
    decode_delta,
)
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.stream_decoder import Step
from dragoman.errors import MalformedJson, RemoteProtocolError
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    Noticed,
    Started,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Problem, Usage
from dragoman.model.parts import Extra
from dragoman.sse import Frame, is_utf8

_NO_CONTEXT = DecodeContext()


class ChatReader:
    """A `stream_decoder.FrameReader` for Chat Completions."""

    def __init__(self, context: DecodeContext = _NO_CONTEXT) -> None:
        self.over = False
        self.frame = 0
        self.problems: list[tuple[str, str]] = []
        self._parts = Parts(
            self.problems, tools=context.tools, name_rule=context.name_fallback, seed=context.seed
        )
        self._declared = frozenset(tool.name for tool in context.tools)
        self._is_single = context.choices == 1
        self._choices: dict[int, ChoiceTrack] = {}
        self._has_started = False
        self._usage: Usage | None = None
        self._extra: dict[str, Raw] = {}  # fields of chunks, as last seen

    def find_delta(self, _opening: bytes, data: bytes, /) -> tuple[OpenPart, str] | None:
        """See `stream_decoder.FrameReader`. Decodes by the typed shape alone."""
        try:
            choice = decode_delta(data).choices[0]
        except FAST_FAILURES:
            return None
        track = self._choices.get(choice.index)
        if track is None:
            return None
        part, delta = track.streaming, choice.delta
        text, calls = delta.content, delta.tool_calls
        thought = delta.reasoning_content or delta.reasoning
        if calls is not None:
            is_its = type(part) is OpenCall and calls[0].index == track.call_index
            text = None if text or thought or not is_its else calls[0].function.arguments
        elif text:
            text = text if type(part) is OpenText and not thought else None
        else:
            text = thought if type(part) is OpenReasoning and thought else None
        return None if part is None or text is None else (part, text)

    def read(self, frame: Frame) -> tuple[Event, ...]:
        data = frame.data
        if data is None or not data.strip():
            return self._read_empty(frame)
        if frame.is_done:
            return self._finish_marked()
        events = self._read_typed(data)
        if events is not None:
            return events
        chunk = present(as_object(data))  # raises MalformedJson before any state changes
        error = find_error(chunk)
        if error is not None:
            return self.fail(read_error(error))
        if "choices" not in chunk and "usage" not in chunk:
            return self._read_stranger(frame, data, chunk)
        return self._read_chunk(chunk)

    def end(self) -> tuple[Event, ...]:
        if self._choices:
            return self._conclude(was_marked=False)
        message = "expected a stream of chunks, got its end before any choice"
        self.problems.append(("cut_stream", message))
        return self.fail(ErrorInfo(kind="truncated", message=message))

    def fail(self, error: ErrorInfo) -> tuple[Event, ...]:
        for track in self._choices.values():
            track.abandon()
        self.over = True
        self._parts.events.append(Failed(error))
        return self._parts.take()

    def read_whole(self, body: Mapping[str, Raw]) -> tuple[Event, ...]:
        """Decode a body that has choices, as one chunk that contains a whole stream."""
        error = self._take_chunk(body, is_whole=True)
        return self.fail(error) if error is not None else self._finish_marked()

    # --- frames that are not one plain delta --------------------------------------------------------------------------

    def _read_empty(self, frame: Frame) -> tuple[Event, ...]:
        """Decode a frame without data: a comment, a frame that keeps the connection open, or an event that lost its data."""
        comment = frame.comment
        if frame.name == b"message":
            raise MalformedJson("expected data with the event `message`, got none")
        if comment is None:
            return ()
        text = comment.decode("utf-8", "replace")
        return (Noticed("comment", raw=Raw(dumps_text(text))),)

    def _read_typed(self, data: bytes) -> tuple[Event, ...] | None:
        """Decode a chunk that fits `TypedChunk`; None if it must be read field by field."""
        try:
            chunk = decode_chunk(data)
        except FAST_FAILURES:
            return None
        if chunk.is_odd:
            return None
        is_single = self._is_single
        try:
            self._read_typed_envelope(chunk)
            for choice in chunk.choices:
                wire_index = max(choice.index, 0)
                track = self._track(0 if is_single else wire_index)
                track.read_typed(choice, wire_index=wire_index if is_single else 0)
        except RemoteProtocolError as broken:
            return self.fail(error_info(broken))
        if chunk.usage != NULL:
            self._note_usage(read_usage(chunk.usage))
        return self._parts.take()

    def _read_typed_envelope(self, chunk: TypedChunk) -> None:
        changed: dict[str, Raw] = {}
        if chunk.service_tier not in (NULL, self._extra.get("service_tier")):
            changed["service_tier"] = chunk.service_tier
        if chunk.system_fingerprint not in (NULL, self._extra.get("system_fingerprint")):
            changed["system_fingerprint"] = chunk.system_fingerprint
        self._extra.update(changed)
        if self._has_started:
            if changed:
                self._parts.events.append(noticed("chunk", join_object(changed)))
        elif chunk.choices or chunk.usage != NULL:
            self._start(chunk.id or "", chunk.model or "", chunk.created)

    def _read_stranger(
        self, frame: Frame, data: bytes, chunk: Mapping[str, Raw]
    ) -> tuple[Event, ...]:
        """Decode a frame without choices and usage: by its name a part of the answer, an error, or an unknown event."""
        name = read_fragment(chunk.get("object")) or read_fragment(chunk.get("type")) or ""
        if name.startswith("chat.completion"):
            return self._read_chunk(chunk)
        if frame.name == b"error" or name == "error" or "message" in chunk or "detail" in chunk:
            return self.fail(decode_error(data))
        shown = name or ", ".join(chunk) or "an empty object"
        self.problems.append(("unknown_event", f"expected a chunk with choices, got {shown}"))
        return (Noticed("unknown", "chat", name, Raw(data)),)

    def _read_chunk(self, chunk: Mapping[str, Raw]) -> tuple[Event, ...]:
        try:
            error = self._take_chunk(chunk)
        except MalformedJson:
            raise  # `StreamDecoder` fails the stream at a frame that cannot be read
        except RemoteProtocolError as broken:
            error = error_info(broken)
        return self._parts.take() if error is None else self.fail(error)

    def _take_chunk(self, chunk: Mapping[str, Raw], *, is_whole: bool = False) -> ErrorInfo | None:
        """Decode a chunk. Returns the error with which it ends the answer, if any."""
        choices = [
            expect_present(raw, "a choice") for raw in expect_items(chunk.get("choices"), "choices")
        ]
        self._read_envelope(chunk, must_start=bool(choices))
        for choice in choices:
            wire_index = max(expect_int(choice.get("index"), "a choice's index") or 0, 0)
            track = self._track(0 if self._is_single else wire_index)
            track.read(choice, wire_index=wire_index if self._is_single else 0, is_whole=is_whole)
        self._read_usage(chunk)
        for choice in choices:
            error = find_error(choice)
            if error is not None:
                return read_error(error)
            native = read_fragment(choice.get("finish_reason"))
            if native in FAILED_FINISHES:
                message = f"the upstream ended its answer with finish_reason {native!r}"
                return ErrorInfo(kind="upstream", message=message)
        return None

    def _read_envelope(self, chunk: Mapping[str, Raw], *, must_start: bool) -> None:
        """Decode the fields beside the choices. Azure's first chunk has only such fields, and no id yet."""
        extra = extra_of("chat", chunk, CHUNK_FIELDS)
        changed = {
            name: value
            for name, value in (extra.fields if extra else {}).items()
            if self._extra.get(name) != value
        }
        self._extra.update(changed)
        if self._has_started:
            if changed:
                self._parts.events.append(noticed("chunk", join_object(changed)))
        elif must_start or "usage" in chunk:
            self._start(
                read_fragment(chunk.get("id")) or "",
                read_fragment(chunk.get("model")) or "",
                read_int(chunk.get("created")),
            )

    def _start(self, response_id: str, model: str, created: int | None) -> None:
        self._has_started = True
        self._parts.seed = self._parts.seed or response_id
        extra = Extra("chat", dict(self._extra)) if self._extra else None
        self._parts.events.append(Started(response_id, model, created, extra))

    def _read_usage(self, chunk: Mapping[str, Raw]) -> None:
        raw = chunk.get("usage") or read_present(chunk.get("x_groq")).get("usage")
        if raw is not None:
            self._note_usage(read_usage(raw))

    def _note_usage(self, usage: Usage) -> None:
        if usage != self._usage:
            self._usage = usage
            self._parts.events.append(UsageReported(usage))

    def _track(self, index: int) -> ChoiceTrack:
        track = self._choices.get(index)
        if track is None:
            track = self._choices[index] = ChoiceTrack(self._parts, index, self._declared)
        return track

    # --- the end ------------------------------------------------------------------------------------------------------

    def _finish_marked(self) -> tuple[Event, ...]:
        if self._choices:
            return self._conclude(was_marked=True)
        message = "expected at least one choice, got the end of the answer"
        self.problems.append(("empty_output", message))
        return self.fail(ErrorInfo(kind="protocol", message=message))

    def _conclude(self, *, was_marked: bool) -> tuple[Event, ...]:
        """End the answer: every choice has finished, or its finish can be inferred; otherwise the answer was cut."""
        self._track(0)
        finishes: list[Finished] = []
        try:
            for index in sorted(self._choices):
                finished = self._choices[index].conclude(may_infer=was_marked)
                if finished is None:
                    return self._cut(index, was_marked=was_marked)
                finishes.append(finished)
        except RemoteProtocolError as broken:
            return self.fail(error_info(broken))
        self.over = True
        self._parts.events.extend((*finishes, Completed()))
        return self._parts.take()

    def _cut(self, index: int, *, was_marked: bool) -> tuple[Event, ...]:
        end = "[DONE]" if was_marked else "the end of the stream"
        message = f"expected a finish_reason for choice {index}, got {end}"
        self.problems.append(("cut_stream", message))
        return self.fail(ErrorInfo(kind="truncated", message=message))


def read_body(data: bytes, context: DecodeContext = _NO_CONTEXT) -> Step:
    """Decode a whole body. Never raises: a bad body becomes Failed."""
    reader = ChatReader(context)
    try:
        events = _read_text(data, reader)
    except RemoteProtocolError as error:
        if isinstance(error, MalformedJson):
            kind = "malformed_body" if is_utf8(data) else "invalid_utf8"
            reader.problems.append((kind, error.message))
        events = reader.fail(error_info(error))
    return Step(data, events, tuple(Problem(1, kind, message) for kind, message in reader.problems))


def _read_text(data: bytes, reader: ChatReader) -> tuple[Event, ...]:
    body = data.strip()
    fields = present(as_object(body))
    error = find_error(fields)
    if error is not None:
        return reader.fail(read_error(error))
    if "choices" in fields:
        return reader.read_whole(fields)
    name = read_fragment(fields.get("object")) or read_fragment(fields.get("type")) or "an object"
    if "message" in fields or "detail" in fields:
        return reader.fail(decode_error(body))
    message = f"expected a body with choices, got {name} with {', '.join(fields) or 'no fields'}"
    reader.problems.append(("foreign_body", message))
    raise RemoteProtocolError(message)
