"""Reads regular bodies, and writes all bodies.

A regular body, as nearly all are (one choice of text, reasoning and function calls), is read and written by its typed shape,
which halves the cost of a small request. Any other body is read as a chunk (`decode`) and written part by part. Both ways
give the same result for a regular body.
"""

from collections.abc import Mapping
from typing import assert_never

from dragoman._json import FAST_FAILURES, Raw, as_object, dumps_document, is_strict, typed_decoder
from dragoman.core.fields import NULL, own_fields, read_present
from dragoman.core.fold import join_logprobs, settled_parts
from dragoman.core.ids import Minter
from dragoman.core.losses import LossBook
from dragoman.dialects.chat.content import (
    FAILING_REASONS,
    cite,
    finish_word,
    flat_name,
    is_expressible,
    join_sealed,
    note_finish,
    seal_content,
    sealed_fields,
    write_audio,
    write_image,
)
from dragoman.dialects.chat.encode import answer_id, answer_tier
from dragoman.dialects.chat.errors import encode_error
from dragoman.dialects.chat.losses import note_extra, note_foreign
from dragoman.dialects.chat.usage import read_usage, write_usage
from dragoman.dialects.chat.wire import (
    CHUNK_FIELDS,
    REASONING_FIELDS,
    BodyCall,
    ClosedBody,
    TypedBody,
    TypedFunction,
    WrittenBody,
    WrittenChoice,
    WrittenMessage,
)
from dragoman.dialects.codec import EncodeContext
from dragoman.model.outcome import Choice, ErrorInfo, Outcome
from dragoman.model.parts import Call, Extra, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.sse import is_utf8

_decode_closed = typed_decoder(ClosedBody)
_decode = typed_decoder(TypedBody)


def read_typed(data: bytes) -> Outcome | None:
    """Read a regular body, which every client can use; None if it must be read field by field."""
    try:
        body = _decode_closed(data)
    except FAST_FAILURES:
        return _read_open(data)
    rest: dict[str, Raw] = {}
    if body.service_tier != NULL:
        rest["service_tier"] = body.service_tier
    if body.system_fingerprint != NULL:
        rest["system_fingerprint"] = body.system_fingerprint
    return _outcome(data, body, body.usage, rest)


def _read_open(data: bytes) -> Outcome | None:
    """Read a regular body that has further fields."""
    try:
        body = _decode(data)
        fields = as_object(data, is_utf8=True)
    except FAST_FAILURES:
        return None
    usage = fields.get("usage", NULL)
    if usage == NULL and "x_groq" in fields:
        return None
    rest = {name: raw for name, raw in fields.items() if name not in CHUNK_FIELDS and raw != NULL}
    return _outcome(data, body, usage, rest)


def _outcome(data: bytes, body: TypedBody, usage: Raw, rest: dict[str, Raw]) -> Outcome | None:
    if not body.id:
        return None
    (choice,) = body.choices
    message = choice.message
    calls = message.tool_calls or ()
    # A choice with calls ends with `tool_calls`; if it does not, it was cut or its finish_reason is wrong.
    if bool(calls) is not (choice.finish_reason == "tool_calls") or not (
        data.isascii() or is_utf8(data)
    ):
        return None
    parts: list[Part] = []
    if message.reasoning_content:
        parts.append(Reasoning(summary=(message.reasoning_content,)))
    if message.content:
        parts.append(Text(text=message.content))
    ids: set[str] = set()
    for call in calls:
        name, arguments = call.function.name, call.function.arguments
        if not call.id or call.id in ids or not name or not is_strict(arguments):
            return None
        if arguments[:1] == '"':
            return None  # it may be an object in a JSON string
        ids.add(call.id)
        parts.append(Call(call_id=call.id, name=name, input=arguments))
    return Outcome(
        response_id=body.id,
        model=body.model,
        created=body.created,
        choices=(Choice(parts=tuple(parts), finish=choice.finish_reason),),
        usage=None if usage == NULL else read_usage(usage),
        completed=True,
        started_extra=Extra("chat", rest) if rest else None,
    )


def write_typed(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes | None:
    """Write the body of a regular answer; None if it must be written part by part."""
    parts = settled_parts(outcome, "chat")
    if parts is None or context.legacy_functions:
        return None
    thoughts: list[str] = []
    texts: list[str] = []
    calls: list[BodyCall] = []
    for part in parts:
        if isinstance(part, Call):
            calls.append(BodyCall(part.call_id, "function", TypedFunction(part.name, part.input)))
        elif isinstance(part, Text):
            texts.append(part.text)
        else:
            thoughts += (*part.summary, *part.content)
            if part.seals:
                book.note("seal", "choice 0")
    content = "".join(texts) if texts or not calls else None
    thought = "".join(thoughts) or None
    message = WrittenMessage("assistant", content, None, (), thought, calls or None)
    usage = outcome.usage
    if usage is not None and usage.extra is not None:
        note_foreign(book, usage.extra, "usage")
    if outcome.started_extra is not None:
        note_foreign(book, outcome.started_extra, "answer")
    note_extra(book, outcome.completed_extra, "answer")
    return dumps_document(
        WrittenBody(
            answer_id(outcome.response_id, context, Minter(context.seed)),
            "chat.completion",
            context.created if outcome.created is None else outcome.created,
            context.model or outcome.model or context.asked_model,
            (WrittenChoice(0, message, None, outcome.choices[0].finish or "stop"),),
            None if usage is None else write_usage(usage),
            answer_tier(context),
        )
    )


def write_body(outcome: Outcome, context: EncodeContext, book: LossBook) -> bytes:
    """Write a whole answer as a body; an error body if it failed or never ended. Note losses in `book`."""
    plain = write_typed(outcome, context, book)
    if plain is not None:
        return plain
    error = outcome.error or _why_not(outcome)
    if error is not None:
        return encode_error(error)
    body: dict[str, object] = {
        "id": answer_id(outcome.response_id, context, Minter(context.seed)),
        "object": "chat.completion",
        "created": context.created if outcome.created is None else outcome.created,
        "model": context.model or outcome.model or context.asked_model,
        "choices": [_Message(choice, context, book).write() for choice in outcome.choices],
    }
    if outcome.usage is not None:
        body["usage"] = write_usage(outcome.usage)
        note_foreign(book, outcome.usage.extra, "usage")
    tier = answer_tier(context)
    if tier is not None:
        body["service_tier"] = tier
    note_foreign(book, outcome.started_extra, "answer")
    note_extra(book, outcome.completed_extra, "answer")
    if outcome.limits is not None:
        book.note("rate_limits")
    return dumps_document({**body, **own_fields("chat", outcome.started_extra)})


def _why_not(outcome: Outcome) -> ErrorInfo | None:
    """Return the error to write for an answer that did not fail but cannot be written as an answer; else None."""
    if not outcome.completed:
        return ErrorInfo(kind="truncated", message="the answer ended before it was complete")
    for choice in outcome.choices:
        if choice.finish in FAILING_REASONS:
            return ErrorInfo(kind="upstream", message=f"the answer ended with {choice.finish}")
    return None


class _Message:
    """Writes one choice: sorts its parts into the fields of a message."""

    def __init__(self, choice: Choice, context: EncodeContext, book: LossBook) -> None:
        self._choice = choice
        self._legacy = context.legacy_functions
        self._mint = Minter(context.seed)
        self._book = book
        self._where = f"choice {choice.index}"
        self._pieces: list[str | Raw] = []
        self._refusals: list[str] = []
        self._logprobs: dict[str, list[Raw | None]] = {"content": [], "refusal": []}
        self._thoughts: list[str] = []
        self._sealed: list[Mapping[str, Raw]] = []
        self._fields: dict[str, object] = {}
        self._annotations: list[Raw] = []
        self._images: list[object] = []
        self._calls: list[Call] = []
        for part in choice.parts:
            self._take(part)

    def write(self) -> dict[str, object]:
        choice = self._choice
        logprobs = {name: join_logprobs(pieces) for name, pieces in self._logprobs.items()}
        has_logprobs = any(piece is not None for piece in logprobs.values())
        extra = dict(own_fields("chat", choice.finish_extra))
        message = {**self._message(), **read_present(extra.pop("message", None))}
        out: dict[str, object] = {
            "index": choice.index,
            "message": message,
            "logprobs": logprobs if has_logprobs else None,
            "finish_reason": finish_word(
                choice.finish or "stop",
                len(self._calls),
                has_cut_call=any(call.status != "completed" for call in self._calls),
                legacy=self._legacy,
            ),
        }
        note_finish(choice.finish or "stop", self._book, self._where)
        note_foreign(self._book, choice.finish_extra, self._where)
        stop = choice.stop_sequence
        if stop is not None and self._book.note("stop_sequence", self._where, stop) == "carry":
            out["stop_reason"] = stop
        return {**out, **extra}

    def _take(self, part: Part) -> None:
        match part:
            case Text():
                self._take_text(part)
                self._pieces.append(part.text)
                self._logprobs["content"].append(part.logprobs)
            case Refusal():
                self._take_text(part)
                self._refusals.append(part.text)
                self._logprobs["refusal"].append(part.logprobs)
            case Reasoning():
                self._take_reasoning(part)
            case Call():
                self._take_call(part)
            case Media():
                self._take_media(part)
            case Opaque() if part.dialect == "chat":
                self._pieces.append(part.raw)
            case Opaque():
                self._book.note("opaque_part", self._where, part.type)
            case Result():
                self._book.note("provider_result", self._where)
            case _:
                assert_never(part)

    def _take_text(self, part: Text | Refusal) -> None:
        note_extra(self._book, part.extra, self._where)
        note_extra(self._book, part.item_extra, self._where)
        if isinstance(part, Text):
            cited = [cite(each, self._book, self._where) for each in part.annotations]
            self._annotations.extend(raw for raw in cited if raw is not None)

    def _take_reasoning(self, part: Reasoning) -> None:
        sections = [text for text in (*part.summary, *part.content) if text]
        if len(sections) > 1:
            self._book.note("reasoning_sections", self._where)
        self._thoughts.append("\n\n".join(sections))
        own = own_fields("chat", part.extra)
        self._fields |= {name: own[name] for name in REASONING_FIELDS if name in own}
        self._sealed.append(sealed_fields(part, self._book, self._where))

    def _take_call(self, call: Call) -> None:
        if not is_expressible(call, self._book, self._where):
            return
        if self._legacy and self._calls:
            self._book.note("parallel_functions", self._where, call.name)
            return
        note_foreign(self._book, call.extra, self._where)
        self._calls.append(call)

    def _take_media(self, media: Media) -> None:
        note_foreign(self._book, media.extra, self._where)
        is_sound = media.kind == "audio" and "audio" not in self._fields
        if is_sound:
            self._fields["audio"] = self._audio(media)
        if is_sound and media.media_type is None:
            return
        image = write_image(media)
        action = self._book.note("output_media", self._where, media.media_type or media.kind)
        if image is not None and action == "carry":
            self._images.append(image)

    def _message(self) -> dict[str, object]:
        message: dict[str, object] = {
            "role": "assistant",
            "content": self._content(),
            "refusal": "".join(self._refusals) or None,
            "annotations": self._annotations,
            **self._fields,
            **join_sealed(self._sealed),
        }
        thoughts = "".join(self._thoughts)
        if thoughts:
            field = next(
                (name for name in REASONING_FIELDS if name in message), "reasoning_content"
            )
            message[field] = thoughts
        if self._images:
            message["images"] = self._images
        if self._calls and self._legacy:
            call = self._calls[0]
            name = flat_name(call, self._book, self._where)
            message["function_call"] = {"name": name, "arguments": call.input}
        elif self._calls:
            message["tool_calls"] = [self._call(call) for call in self._calls]
        return message

    def _content(self) -> str | list[object] | None:
        """Return the text as one string; None if it is empty beside other content; a list if an entry must be kept raw."""
        if any(not isinstance(piece, str) for piece in self._pieces):
            return [
                {"type": "text", "text": piece} if isinstance(piece, str) else piece
                for piece in self._pieces
            ]
        text = "".join(piece for piece in self._pieces if isinstance(piece, str))
        says_other = self._calls or self._refusals or self._images or "audio" in self._fields
        return text if text or not says_other else None

    def _call(self, call: Call) -> dict[str, object]:
        kind, field = ("custom", "input") if call.kind == "custom" else ("function", "arguments")
        seals = [seal_content(seal) for seal in call.seals]
        if None in seals:
            self._book.note("seal", self._where)
        content = next((raw for raw in seals if raw is not None), None)
        return {
            "id": call.call_id or self._mint("call_"),
            "type": kind,
            kind: {"name": flat_name(call, self._book, self._where), field: call.input},
            **({"extra_content": content} if content is not None else {}),
            **own_fields("chat", call.extra),
        }

    def _audio(self, media: Media) -> dict[str, object]:
        audio = write_audio(media, media.item_id or self._mint("audio_"))
        # The SDK's type requires these fields; 0 stands for an `expires_at` that the provider did not send.
        return {"data": "", "transcript": "", "expires_at": 0, **audio}
