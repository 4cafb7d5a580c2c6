"""A whole answer to a body: the same items as in the stream, whole. Events are folded first."""

from collections.abc import Iterable, Sequence

from dragoman._json import dumps
from dragoman.core.fold import fold
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook, answer_book
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.responses.envelope import Envelope, ending_of, required_action
from dragoman.dialects.responses.errors import encode_error
from dragoman.dialects.responses.losses import LOSSES, note_foreign
from dragoman.dialects.responses.plain import write_plain
from dragoman.dialects.responses.writing import (
    ItemWriter,
    JsonObject,
    MessagePart,
    as_message_part,
)
from dragoman.model.events import Event, Finished, Started
from dragoman.model.outcome import Choice, ErrorInfo, Outcome
from dragoman.model.parts import (
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    PartStatus,
    Reasoning,
    Result,
)

__all__ = ("encode_body", "write_body")

_NO_CONTEXT = EncodeContext()


def encode_body(
    events: Iterable[Event], context: EncodeContext = _NO_CONTEXT, book: LossBook | None = None
) -> bytes:
    """The response object; an error body if the answer failed. Losses are noted in `book`."""
    book = answer_book(LOSSES, context.losses) if book is None else book
    return write_body(fold(events), context, book)


def write_body(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes:
    """The same for an answer that is whole already."""
    plain = write_plain(outcome, context, book)
    if plain is not None:
        return plain
    if outcome.error is not None:
        return encode_error(outcome.error)
    choice = outcome.choices[0] if outcome.choices else Choice()
    if choice.finish == "error" or not outcome.completed:
        message = "the upstream ended the answer with an error"
        return encode_error(ErrorInfo(kind="upstream", message=message))
    return dumps(_response(outcome, choice, context, book))


def _response(
    outcome: Outcome, choice: Choice, context: EncodeContext, book: LossBook
) -> JsonObject:
    mint = Minter(context.seed or outcome.response_id)
    started = Started(outcome.response_id, outcome.model, outcome.created, outcome.started_extra)
    envelope = Envelope(started, context, mint)
    envelope.add(outcome.completed_extra)
    note_foreign(book, outcome.started_extra, "response")
    note_foreign(book, outcome.completed_extra, "response")
    _note_reports(outcome, book)
    output = _output(choice.parts, ItemWriter(mint, book), book)
    finished = Finished(
        choice.finish or "stop", stop_sequence=choice.stop_sequence, extra=choice.finish_extra
    )
    ending = ending_of(finished, book)
    if context.profile == "required_action" and finished.reason == "tool_calls":
        action = required_action(_waiting(choice.parts))
        return envelope.fields("incomplete", output, outcome.usage, required_action=action)
    return envelope.fields(ending.status, output, outcome.usage, incomplete_details=ending.details)


def _note_reports(outcome: Outcome, book: LossBook) -> None:
    """Declare what stands beside the output and has no place."""
    for choice in outcome.choices:
        if choice.index != 0:
            book.note("extra_choices", f"choice {choice.index}")
    if outcome.limits is not None:
        book.note("rate_limits", "limits")
    if outcome.usage is not None:
        note_foreign(book, outcome.usage.extra, "usage")


def _waiting(parts: Sequence[Part]) -> tuple[Call, ...]:
    answered = {part.call_id for part in parts if isinstance(part, Result)}
    return tuple(
        part
        for part in parts
        if isinstance(part, Call)
        and part.executor == "client"
        and part.status == "completed"
        and part.call_id not in answered
    )


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
