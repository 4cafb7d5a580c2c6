"""Reads a message body to events, and writes an answer as a message body.

A body is read into an `Outcome` and unfolded, so that it gives the same events as the same answer in a stream. A body does
not show whether the last call of an answer that a limit cut is whole: such a call counts as incomplete.

A regular message, as nearly all are (text, thinking, calls of the client's tools), is read and written by its typed shape,
which halves the cost of a small request; any other is read and written block by block. Both ways give the same result for a
regular message.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_document, is_strict, typed_decoder
from dragoman.core.fields import (
    Fields,
    expect_text,
    first_byte,
    is_object,
    is_present,
    own_fields,
    present,
    read_list,
    read_object,
    read_text,
    without,
)
from dragoman.core.fold import settle_finish, settled_parts, unfold
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook
from dragoman.core.open_parts import nameless_notice
from dragoman.core.schemas import resolve_name
from dragoman.core.store_notes import AnswerEnd, open_call_ids
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.messages.blocks import check_block, part_from_block, part_of, type_of
from dragoman.dialects.messages.decode import finish_extra
from dragoman.dialects.messages.encode import (
    StopReasonInputs,
    message_fields,
    note_refusal,
    settle_reason,
    stop_fields,
)
from dragoman.dialects.messages.errors import encode_error, error_from_fields
from dragoman.dialects.messages.losses import note_foreign, note_usage
from dragoman.dialects.messages.render import (
    Block,
    block_from_part,
    is_object_text,
    reasoning_block,
    write_id,
)
from dragoman.dialects.messages.usage import UsageReader, usage_in_full
from dragoman.dialects.messages.wire import (
    COMPLETED_FIELDS,
    CUT_REASONS,
    END_FIELDS,
    FINISH_FIELDS,
    INVALID_KEY,
    MAPPED_FIELDS,
    STOP_REASONS,
    ToolUseBlock,
    TypedBody,
    WrittenBody,
    WrittenCall,
    WrittenText,
)
from dragoman.dialects.stream_decoder import Step
from dragoman.errors import MalformedJson
from dragoman.model.events import Event, Failed, PartStarted, Started
from dragoman.model.outcome import Choice, ErrorInfo, FinishReason, Outcome, Problem
from dragoman.model.parts import Call, Extra, Part, Refusal, Text
from dragoman.sse import is_utf8

_KNOWN = MAPPED_FIELDS["message"]
_REASONS: dict[str, FinishReason] = {"end_turn": "stop", "tool_use": "tool_calls"}
_WORDS: dict[FinishReason | None, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
}


_decode = typed_decoder(TypedBody)


def read_typed(data: bytes) -> Outcome | None:
    """Read a regular message; None if it must be read block by block."""
    try:
        message = _decode(data)
        fields = as_object(data, is_utf8=True)
    except FAST_FAILURES:
        return None
    parts: list[Part] = []
    ids: list[str] = []
    for block in message.content:
        part = part_of(block)
        parts.append(part)
        if type(part) is Call:
            ids.append(part.call_id)
            # The input must be an object; any other input is left to `read_body`, also an object in a string.
            is_object_itself = isinstance(block, ToolUseBlock) and first_byte(block.input) == b"{"
            is_whole = is_object_itself and is_strict(part.input)
            if not part.call_id or not part.name or not is_whole:
                return None
    rest = without(present(fields), _KNOWN)
    if (
        bool(ids) is not (message.stop_reason == "tool_use")
        or len(set(ids)) != len(ids)
        or not END_FIELDS.isdisjoint(rest)
        or not (data.isascii() or is_utf8(data))
    ):
        return None
    return Outcome(
        response_id=message.id or "",
        model=message.model or "",
        choices=(Choice(parts=tuple(parts), finish=_REASONS[message.stop_reason]),),
        usage=UsageReader().read(message.usage),
        completed=True,
        started_extra=Extra("messages", rest) if rest else None,
    )


_WrittenBlock = WrittenText | WrittenCall | Block


def write_typed(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes | None:
    """Write the message of a regular answer; None if it must be written block by block."""
    parts = settled_parts(outcome, "messages")
    if parts is None:
        return None
    content: list[_WrittenBlock] = []
    for part in parts:
        if isinstance(part, Text):
            content.append(WrittenText(part.text))
        elif isinstance(part, Call):
            if not is_object_text(part.input):
                return None
            source = Raw(part.input.encode("utf-8", "replace"))
            content.append(WrittenCall(write_id(part.call_id), part.name, source))
        else:
            block = reasoning_block(part, book, "")
            if block is not None:
                content.append(block)
    for extra in (outcome.started_extra, outcome.completed_extra):
        if extra is not None:
            note_foreign(book, extra, "message")
    if outcome.usage is not None:
        note_usage(outcome.usage, book)
    return dumps_document(
        WrittenBody(
            context.response_id or outcome.response_id or Minter(context.seed)("msg_"),
            "message",
            "assistant",
            context.model or outcome.model or context.asked_model,
            content,
            _WORDS[outcome.choices[0].finish],
            None,
            None,
            None,
            usage_in_full(outcome.usage),
        )
    )


_NO_DECODE = DecodeContext()


def read_body(data: bytes, context: DecodeContext = _NO_DECODE) -> Step:
    """Decode a whole body. A body that is an error or not a message gives Failed; never raises."""
    found: list[tuple[str, str]] = []
    events = _BodyReader(context, found).read(data)
    return Step(data, events, tuple(Problem(1, kind, message) for kind, message in found))


class _BodyReader:
    def __init__(self, context: DecodeContext, found: list[tuple[str, str]]) -> None:
        self._context = context
        self._found = found

    def read(self, data: bytes) -> tuple[Event, ...]:
        try:
            return self._read(data)
        except MalformedJson as error:
            self._note("malformed_frame" if is_utf8(data) else "invalid_utf8", error.message)
            return (Failed(ErrorInfo(kind="protocol", message=error.message)),)

    def _read(self, text: bytes) -> tuple[Event, ...]:
        fields = as_object(text)
        kind = type_of(fields)
        if kind == "error" or ("error" in fields and "content" not in fields):
            return (Failed(error_from_fields(fields, None, Raw(text))),)
        value = fields.get("content")
        is_empty = kind == "message" and not is_present(value)
        content = [] if is_empty else read_list(value)
        if content is None or kind not in ("message", ""):
            shown = kind or read_text(fields.get("object")) or "another object"
            message = f"expected a Messages body, got {shown}"
            self._note("foreign_body", message)
            return (Failed(ErrorInfo(kind="protocol", message=message)),)
        if not all(map(is_object, content)):
            raise MalformedJson("expected objects in content, got other entries too")
        blocks = [read_object(entry) for entry in content]
        for block in blocks:
            check_block(block)
            if read_text(block.get("input")):
                name = read_text(block.get("name"))
                self._note("string_input", f"expected an object as input of {name!r}, got a string")
        return self._message(fields, list(map(part_from_block, blocks, content)))

    def _message(self, fields: Fields, content: Sequence[Part]) -> tuple[Event, ...]:
        native = expect_text(fields.get("stop_reason"), "stop_reason")
        reason = None if native is None else STOP_REASONS.get(native)
        response_id = read_text(fields.get("id")) or ""
        mint = Minter(self._context.seed or response_id)
        ids: set[str] = set()
        parts: list[Part] = []
        # Calls without a name, with the number of parts before them.
        dropped: list[tuple[int, Call]] = []
        for part in content:
            if isinstance(part, Call):
                is_last = len(parts) == len(content) - 1
                is_cut = is_last and reason in CUT_REASONS
                calls = sum(isinstance(each, Call) for each in parts)
                call = self._call(part, mint, calls, is_cut=is_cut)
                if call is None:
                    dropped.append((len(parts), part))
                    continue
                if call.call_id in ids:
                    self._note("repeated_id", "a call has the id of an earlier call")
                    if call.executor == "client":
                        call = replace(call, call_id=mint("toolu_"))
                ids.add(call.call_id)
                parts.append(call)
            else:
                parts.append(part)
        if dropped:
            message = "expected a name for every call, got a call without a name that fits no tool"
            error = ErrorInfo(kind="protocol", message=message)
            outcome = Outcome(
                response_id=response_id, choices=(Choice(parts=tuple(parts)),), error=error
            )
            return _with_notices(unfold(outcome), dropped)
        return self._events(fields, parts, native)

    def _call(self, call: Call, mint: Minter, position: int, *, is_cut: bool) -> Call | None:
        if not call.input.strip():
            call = replace(call, input="" if is_cut else "{}")
        if not call.call_id:
            self._note("missing_id", "expected an id, a call has none")
            call = replace(
                call, call_id=mint("toolu_" if call.executor == "client" else "srvtoolu_")
            )
        if not call.name:
            self._note("missing_name", "expected a name, a call has none")
            context = self._context
            name = resolve_name(call.input, context.tools, position, context.name_fallback)
            if name is None:
                self._note("nameless_call", f"no tool fits the arguments of call {call.call_id}")
                return None
            call = replace(call, name=name)
        if not is_cut and not is_strict(call.input):
            self._note("invalid_arguments", f"expected JSON as input of call {call.call_id}")
        return replace(call, status="incomplete") if is_cut else call

    def _events(self, fields: Fields, parts: list[Part], native: str | None) -> tuple[Event, ...]:
        reason = None if native is None else STOP_REASONS.get(native)
        if native is None:
            self._note("missing_finish", "expected a stop_reason")
        elif reason is None:
            self._note("unknown_finish", f"the message has the unknown stop_reason {native!r}")
        has_calls = any(
            isinstance(part, Call) and part.executor == "client" and part.status == "completed"
            for part in parts
        )
        settled = settle_finish(reason, has_complete_client_calls=has_calls)
        if reason is not None and settled != reason:
            self._note("wrong_finish", f"stop_reason {native} does not fit the content")
        usage = read_object(fields["usage"]) if is_object(fields.get("usage")) else None
        if usage is None:
            self._note("missing_usage", "expected usage")
        rest = without(present(fields), MAPPED_FIELDS["message"])
        started = {k: v for k, v in rest.items() if k not in END_FIELDS}
        completed = {k: v for k, v in rest.items() if k in COMPLETED_FIELDS}
        choice = Choice(
            parts=tuple(parts),
            finish=settled,
            stop_sequence=read_text(fields.get("stop_sequence")),
            finish_extra=finish_extra(
                native, {k: v for k, v in rest.items() if k in FINISH_FIELDS}
            ),
        )
        outcome = Outcome(
            response_id=read_text(fields.get("id")) or "",
            model=read_text(fields.get("model")) or "",
            choices=(choice,),
            usage=None if usage is None else UsageReader().read(usage),
            completed=True,
            started_extra=Extra("messages", started) if started else None,
            completed_extra=Extra("messages", completed) if completed else None,
        )
        return unfold(outcome)

    def _note(self, kind: str, message: str) -> None:
        self._found.append((kind, message))


def write_body(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes:
    """Write a whole answer as a body; an error body if it failed or never ended. Note losses in `book`."""
    body = write_typed(outcome, context, book) if context.edits is None else None
    if body is None:
        error = _why_failed(outcome)
        if error is not None:
            return encode_error(error)
        body = _write_message(outcome, context, book)
    if context.notes is not None:
        context.notes.end = AnswerEnd(
            id=context.response_id,
            status="completed",
            body=body,
            open_calls=open_call_ids(outcome),
        )
    return body


def _write_message(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes:
    started = Started(outcome.response_id, outcome.model, outcome.created, outcome.started_extra)
    note_foreign(book, outcome.started_extra, "message")
    note_foreign(book, outcome.completed_extra, "message")
    _note_reports(outcome, book)
    choice = next((choice for choice in outcome.choices if choice.index == 0), Choice())
    has_calls = any(
        isinstance(part, Call) and part.executor == "client" and part.status == "completed"
        for part in choice.parts
    )
    has_refusal = any(isinstance(part, Refusal) for part in choice.parts)
    settling = StopReasonInputs(has_calls, has_refusal)
    reason = settle_reason(choice.finish or "stop", settling)
    note_refusal(reason, settling, book)
    # Clients expect that a limit has cut the last call, and no other call.
    cut = len(choice.parts) - 1 if reason in CUT_REASONS else None
    content: list[Block] = []
    for number, part in enumerate(choice.parts):
        block = block_from_part(part, book, f"parts.{number}")
        if block is None:
            continue
        if (
            isinstance(part, Call)
            and part.executor == "client"
            and part.status != "completed"
            and number != cut
        ):
            block["input"] = {INVALID_KEY: part.input}
        content.append(block)
    message: Block = {
        **message_fields(started, context),
        "content": content,
        **stop_fields(reason, choice.stop_sequence, choice.finish_extra, book),
        "usage": usage_in_full(outcome.usage),
        **own_fields("messages", outcome.started_extra),
        **own_fields("messages", outcome.completed_extra),
        **({} if context.edits is None else {"context_management": context.edits}),
    }
    return dumps_document(message)


def _note_reports(outcome: Outcome, book: LossBook) -> None:
    """Note as losses further choices, rate limits and counts that have no field."""
    if any(choice.index != 0 for choice in outcome.choices):
        book.note("choices")
    if outcome.limits is not None:
        book.note("limits")
    if outcome.usage is not None:
        note_usage(outcome.usage, book)


def _why_failed(outcome: Outcome) -> ErrorInfo | None:
    """Return the error to write instead of the answer; None if the answer is whole."""
    if outcome.error is not None:
        return outcome.error
    if not outcome.completed:
        return ErrorInfo(kind="truncated", message="the upstream ended before its answer did")
    if any(choice.index == 0 and choice.finish == "error" for choice in outcome.choices):
        return ErrorInfo(kind="upstream", message="the upstream ended with an error")
    return None


def _with_notices(
    events: Sequence[Event], dropped: Sequence[tuple[int, Call]]
) -> tuple[Event, ...]:
    """Return the events with a notice in the place of each call that has no name."""
    found: list[Event] = []
    left = list(dropped)
    for event in events:
        place = event.part if isinstance(event, PartStarted) else None
        if isinstance(event, Failed):
            place = len(events)
        while left and place is not None and left[0][0] <= place:
            call = left.pop(0)[1]
            found.append(nameless_notice(call.call_id, call.input))
        found.append(event)
    return tuple(found)
