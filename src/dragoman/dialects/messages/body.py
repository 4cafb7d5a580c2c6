"""Reads regular bodies, and writes all bodies.

A regular message, as nearly all are (text, thinking, calls of the client's tools), is read and written by its typed shape,
which halves the cost of a small request. Any other is read as a stream in which each block comes whole (`decode`), and
written block by block. Both ways give the same result for a regular message.
"""

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_document, is_strict, typed_decoder
from dragoman.core.fields import (
    first_byte,
    own_fields,
    present,
    without,
)
from dragoman.core.fold import settled_parts
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook
from dragoman.core.store_notes import AnswerEnd, open_call_ids
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.messages.blocks import part_of
from dragoman.dialects.messages.encode import (
    StopReasonInputs,
    message_fields,
    note_refusal,
    settle_reason,
    stop_fields,
)
from dragoman.dialects.messages.errors import encode_error
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
    CUT_REASONS,
    END_FIELDS,
    INVALID_KEY,
    MAPPED_FIELDS,
    ToolUseBlock,
    TypedBody,
    WrittenBody,
    WrittenCall,
    WrittenText,
)
from dragoman.model.events import Started
from dragoman.model.outcome import Choice, ErrorInfo, FinishReason, Outcome
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
