"""Whole answers: reads and writes a completed response by its type, and writes a body with the same items as the stream.

A response of OpenAI's regular shape (messages of text, function calls, reasoning) is read and written by types, which
halves the cost of a small request; any other is read item by item (`output`) and written part by part. Both ways give the
same result for the same answer. A field typed `None` may only be null.
"""

from collections.abc import Sequence

from msgspec import Struct

from dragoman._json import FAST_FAILURES, as_object, dumps, is_strict, typed_decoder
from dragoman.core.fold import settled_parts
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook
from dragoman.core.seals import seal_to_encrypted, seals_from_encrypted
from dragoman.core.store_notes import AnswerEnd, StoreNotes, open_call_ids, open_calls
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses.answer import read_end, read_extra, read_usage
from dragoman.dialects.responses.compaction import retained_items
from dragoman.dialects.responses.envelope import (
    Envelope,
    completed_at,
    echo_of,
    ending_of,
    model_of,
    required_action,
    response_id,
    usage_fields,
)
from dragoman.dialects.responses.errors import encode_error
from dragoman.dialects.responses.item_writer import (
    ItemWriter,
    JsonObject,
    MessagePart,
    as_message_part,
)
from dragoman.dialects.responses.items import reasoning_fields
from dragoman.dialects.responses.losses import note_foreign
from dragoman.dialects.responses.terminal import item_ids, status_of
from dragoman.dialects.responses.wire import (
    LATE_FIELDS,
    PREFIXES,
    BodyReasoning,
    TypedBody,
    TypedFunctionCall,
    WrittenBody,
    WrittenCall,
    WrittenMessage,
    WrittenText,
)
from dragoman.model.events import Finished, Started
from dragoman.model.outcome import Choice, ErrorInfo, Outcome, Usage
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
from dragoman.sse import is_utf8

_MESSAGE = PREFIXES["message"]
_CALL = PREFIXES["function_call"]
_REASONING = PREFIXES["reasoning"]


_decode = typed_decoder(TypedBody)


def read_typed(data: bytes) -> Outcome | None:
    """Return the outcome of a response; None if it must be read item by item."""
    try:
        response = _decode(data)
        fields = as_object(data, is_utf8=True)
    except FAST_FAILURES:
        return None
    parts: list[Part] = []
    ids: set[str] = set()
    call_ids: list[str] = []
    for item in response.output:
        ids.add(item.id)
        if isinstance(item, TypedFunctionCall):
            if not _is_regular(item):
                return None
            call_ids.append(item.call_id)
            parts.append(
                Call(
                    call_id=item.call_id,
                    name=item.name,
                    input=item.arguments,
                    namespace=item.namespace or None,
                    item_id=item.id,
                )
            )
        elif isinstance(item, BodyReasoning):
            if not item.id.startswith(_REASONING):
                return None
            parts.append(
                Reasoning(
                    summary=tuple(entry.text for entry in item.summary),
                    seals=seals_from_encrypted(item.encrypted_content),
                    item_id=item.id,
                )
            )
        else:
            if not item.id.startswith(_MESSAGE):
                return None
            for text in item.content:
                if not text.text:
                    return None
                parts.append(Text(text=text.text, item_id=item.id))
    is_unique = len(ids) == len(response.output) and len(set(call_ids)) == len(call_ids)
    if not is_unique or not (data.isascii() or is_utf8(data)):
        return None
    usage = read_usage(fields.get("usage"))
    if usage is not None and (usage.input is None or usage.output is None or usage.total is None):
        return None
    extra = read_extra(fields)
    return Outcome(
        response_id=response.id or "",
        model=response.model or "",
        created=response.created_at,
        choices=(Choice(parts=tuple(parts), finish="tool_calls" if call_ids else "stop"),),
        usage=usage,
        completed=True,
        started_extra=extra,
        completed_extra=None if LATE_FIELDS.isdisjoint(fields) else read_end(fields, extra),
    )


def _is_regular(call: TypedFunctionCall) -> bool:
    return (
        call.status == "completed"
        and call.id.startswith(_CALL)
        and call.call_id != ""
        and call.name != ""
        and is_strict(call.arguments)
        and call.arguments[:1] != '"'  # it may be an object in a JSON string
    )


_WrittenItem = WrittenMessage | WrittenCall | JsonObject


_CUT = {"reason": "max_output_tokens"}


def write_typed(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes | None:
    """Return the body of a regular answer; None if it must be written part by part."""
    parts = settled_parts(outcome, "responses")
    if parts is None or context.profile != "default":
        return None
    mint = Minter(context.seed or outcome.response_id)
    called = response_id(outcome.response_id, context, mint)
    output: list[_WrittenItem] = []
    for part in parts:
        if part.item_id is not None:
            return None  # not every id of an upstream may be kept
        if isinstance(part, Text):
            text = WrittenText("output_text", (), (), part.text)
            message = (mint("msg_"), "message", "completed", "assistant", (text,))
            output.append(WrittenMessage(*message))
        elif isinstance(part, Call):
            call = (mint("fc_"), "function_call", part.call_id, part.name, part.input, "completed")
            output.append(WrittenCall(*call))
        else:
            fields = reasoning_fields(part, seal_to_encrypted(part.seals))
            output.append({"id": mint("rs_"), **fields})
    usage = outcome.usage
    for extra in (outcome.started_extra, outcome.completed_extra):
        if extra is not None:
            note_foreign(book, extra, "response")
    if usage is not None and usage.extra is not None:
        note_foreign(book, usage.extra, "usage")
    is_cut = outcome.choices[0].finish == "length"
    status = "incomplete" if is_cut else "completed"
    written = WrittenBody(
        called,
        "response",
        context.created if outcome.created is None else outcome.created,
        status,
        completed_at(status, context),
        None,
        _CUT if is_cut else None,
        model_of(outcome.model, context),
        output,
        None if usage is None else usage_fields(usage),
    )
    body = b"".join((dumps(written)[:-1], b",", echo_of(context.request, book)))
    if context.notes is not None:
        _note_end(context.notes, _Written(called, status, output, body), outcome)
    return body


class _Written(Struct, frozen=True):
    """A body, and the fields of it that the store needs."""

    id: str
    status: str
    output: Sequence[object]
    body: bytes


def _note_end(notes: StoreNotes, written: _Written, outcome: Outcome) -> None:
    notes.end = AnswerEnd(
        id=written.id,
        status=status_of(written.status, "completed"),
        body=written.body,
        open_calls=open_call_ids(outcome),
        items=item_ids(written.output),
    )


def write_body(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes:
    """Return a whole answer as a body, or an error body if the answer failed or did not end. Notes losses in `book`."""
    plain = None if context.retained is not None else write_typed(outcome, context, book)
    if plain is not None:
        return plain
    if outcome.error is not None:
        return encode_error(outcome.error)
    choice = outcome.choices[0] if outcome.choices else Choice()
    if choice.finish == "error" or not outcome.completed:
        message = "the upstream ended the answer with an error"
        return encode_error(ErrorInfo(kind="upstream", message=message))
    if context.retained is not None:
        return _compacted(outcome, choice, context, book)
    written = _response(outcome, choice, context, book)
    if context.notes is not None:
        _note_end(context.notes, written, outcome)
    return written.body


def _compacted(outcome: Outcome, choice: Choice, context: EncodeContext, book: LossBook) -> bytes:
    """Return the answer of `/responses/compact`: the messages that stay, then the compaction."""
    mint = Minter(context.seed or outcome.response_id)
    output = retained_items(context.retained or (), mint)
    output += _output(choice.parts, ItemWriter(mint, book), book)
    _note_reports(outcome, book)
    fields: JsonObject = {
        "id": response_id(outcome.response_id, context, mint),
        "object": "response.compaction",
        "created_at": context.created if outcome.created is None else outcome.created,
        "output": output,
        "usage": usage_fields(outcome.usage or Usage()),
    }
    return dumps(fields)


def _response(outcome: Outcome, choice: Choice, context: EncodeContext, book: LossBook) -> _Written:
    mint = Minter(context.seed or outcome.response_id)
    started = Started(outcome.response_id, outcome.model, outcome.created, outcome.started_extra)
    envelope = Envelope(started, context, mint, book)
    envelope.add(outcome.completed_extra)
    note_foreign(book, outcome.started_extra, "response")
    note_foreign(book, outcome.completed_extra, "response")
    _note_reports(outcome, book)
    output = _output(choice.parts, ItemWriter(mint, book), book)
    finished = Finished(
        choice.finish or "stop", stop_sequence=choice.stop_sequence, extra=choice.finish_extra
    )
    has_refusal = any(isinstance(part, Refusal) for part in choice.parts)
    ending = ending_of(finished, book, has_refusal=has_refusal)
    if context.profile == "required_action" and finished.reason == "tool_calls":
        status = "incomplete"
        action = required_action(open_calls(choice.parts))
        body = envelope.write(status, output, outcome.usage, required_action=action)
    else:
        status = ending.status
        body = envelope.write(status, output, outcome.usage, incomplete_details=ending.details)
    return _Written(envelope.id, status, output, body)


def _note_reports(outcome: Outcome, book: LossBook) -> None:
    """Note the losses beside the output: other choices, rate limits, fields of the usage."""
    for choice in outcome.choices:
        if choice.index != 0:
            book.note("extra_choices", f"choice {choice.index}")
    if outcome.limits is not None:
        book.note("rate_limits", "limits")
    if outcome.usage is not None:
        note_foreign(book, outcome.usage.extra, "usage")


class _Message:
    def __init__(self, source: str | None, item_id: str) -> None:
        self.source = source
        self.id = item_id
        self.contents: list[object] = []
        self.status: PartStatus = "completed"
        self.extra: Extra | None = None

    def add(self, part: MessagePart, content: object) -> None:
        self.contents.append(content)
        if isinstance(part, Opaque):
            self.status = "completed"
        else:
            self.status = part.status
            self.extra = part.item_extra or self.extra


def _output(parts: Sequence[Part], items: ItemWriter, book: LossBook) -> list[object]:
    output: list[object] = []
    message: _Message | None = None
    for part in parts:
        content = as_message_part(part)
        if content is None:
            _close(message, items, output)
            message = None
            item = _item(part, items, book)
            if item is not None:
                output.append(item)
            continue
        if message is None or message.source is None or message.source != content.item_id:
            _close(message, items, output)
            message = _Message(content.item_id, items.item_id("message", content.item_id))
        message.add(content, items.content(content))
    _close(message, items, output)
    return output


def _close(message: _Message | None, items: ItemWriter, output: list[object]) -> None:
    if message is not None:
        output.append(items.message(message.id, message.status, message.contents, message.extra))


def _item(part: Part, items: ItemWriter, book: LossBook) -> object:
    match part:
        case Reasoning():
            return items.reasoning(part, items.item_id("reasoning", part.item_id))
        case Call():
            call = items.call_spec(part)
            return (
                None
                if call is None
                else items.call(part, call, items.item_id(call.type, part.item_id))
            )
        case Result():
            result = items.result_spec(part)
            if result is None:
                return None
            return items.result(part, result, items.item_id(result.type, part.item_id))
        case Opaque():
            return items.opaque(part)
        case Media():
            book.note("media_output", part.kind)
            return None
        case _:
            raise AssertionError("texts are content of messages")
