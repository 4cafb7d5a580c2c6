"""What OpenAI Responses keeps of an answer."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dragoman._json import as_object, loads, raw
from dragoman.core.ids import Minter
from dragoman.model.outcome import Choice, ErrorInfo, ErrorKind, FinishReason, Outcome, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    CallKind,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from projecting import Answer, Book, Projection, Story, failed, settle, without_fields

_ECHO: Mapping[str, bytes] = {
    # what a response says of its request, where the events do not
    "background": b"false",
    "frequency_penalty": b"0.0",
    "metadata": b"{}",
    "parallel_tool_calls": b"true",
    "presence_penalty": b"0.0",
    "reasoning": b'{"effort":null,"summary":null}',
    "service_tier": b'"default"',
    "store": b"true",
    "temperature": b"1.0",
    "text": b'{"format":{"type":"text"},"verbosity":"medium"}',
    "tool_choice": b'"auto"',
    "tools": b"[]",
    "top_logprobs": b"0",
    "top_p": b"1.0",
    "truncation": b'"disabled"',
}
_REQUIRED: Mapping[str, bytes] = {
    # what an item of the vendor's own tools must have
    "container_id": b'""',
    "server_label": b'"mcp"',
}
# the only reason to pause an answer here, encoded exactly
_PAUSED: Mapping[str, bytes] = {"incomplete_details": b'{"reason":"steered"}'}
_CODES: dict[ErrorKind, str] = {
    "invalid_request": "invalid_prompt",
    "rate_limit": "rate_limit_exceeded",
    "overloaded": "server_is_overloaded",
}
_NATIVE_NAMES: dict[CallKind, str] = {
    "web_search": "web_search",
    "code_interpreter": "code_interpreter",
    "file_search": "file_search",
}
_NEAREST: dict[FinishReason, FinishReason] = {
    "context_window": "length",
    "refusal": "content_filter",
    "stop_sequence": "stop",
}


def project_responses(answer: Answer) -> Projection:
    book = Book("responses")
    outcome = answer.outcome
    if answer.has_limits:
        book.note("rate_limits")
    for usage in answer.usages:
        book.own(usage.extra)
    choices: list[Choice] = []
    for choice in outcome.choices:
        if choice.index == 0:
            choices.append(_choice(choice, answer.stories[0], book, has_failed=answer.has_failed))
        else:
            book.note("extra_choices")
    started = book.own(outcome.started_extra)
    kept = replace(
        outcome,
        response_id=_response_id(outcome.response_id),
        created=outcome.created or 0,
        choices=tuple(choices),
        usage=None if outcome.usage is None else _usage(outcome.usage, book),
        limits=None,
        error=None if outcome.error is None else _error(outcome.error),
        started_extra=started,
        completed_extra=_news(book.own(outcome.completed_extra), started),
    )
    return Projection(settle_responses(kept), frozenset(book.codes))


def _response_id(given: str) -> str:
    return given if given.startswith("resp_") else Minter(given)("resp_")


def settle_responses(outcome: Outcome) -> Outcome:
    """Without what a response says of its request, what its items must have, and the ids of its provider's calls."""
    choices = tuple(
        replace(
            choice,
            parts=tuple(_settled(part) for part in choice.parts),
            finish_extra=_without(choice.finish_extra, _PAUSED),
        )
        for choice in outcome.choices
    )
    if outcome.error is not None:
        choices = tuple(
            replace(choice, parts=tuple(_unfinished(part) for part in choice.parts))
            for choice in choices
        )
    outcome = replace(
        outcome, choices=choices, started_extra=_without(outcome.started_extra, _ECHO)
    )
    if outcome.usage is not None:
        names = ("input_tokens_details", "output_tokens_details")
        extra = without_fields(outcome.usage.extra, *names)
        outcome = replace(outcome, usage=replace(outcome.usage, extra=extra))
    ids = frozenset(
        part.item_id for choice in choices for part in choice.parts if _has_own_id(part)
    )
    outcome = failed(outcome) if outcome.error is not None else outcome
    return settle(outcome, frozenset(each for each in ids if each is not None))


def _has_own_id(part: Part) -> bool:
    """Whether the id came with the part: minted ones have 24 hexadecimal digits."""
    return part.item_id is not None and len(part.item_id.rpartition("_")[2]) < 24


def _settled(part: Part) -> Part:
    if isinstance(part, Call) and part.executor == "provider":
        return replace(part, call_id="", extra=_without(part.extra, _REQUIRED))
    return part


def _unfinished(part: Part) -> Part:
    """Return what a failed stream has sent of a part that had not ended: seals and fields come with the end."""
    match part:
        case Text() | Refusal() if part.status == "incomplete":
            return replace(part, extra=None, logprobs=part.logprobs if part.text else None)
        case Reasoning() if part.status == "incomplete":
            return replace(part, seals=(), extra=None)
        case Call(executor="provider", status="incomplete"):
            return replace(part, input="", extra=None)
        case _:
            return part


def _without(extra: Extra | None, fields: Mapping[str, bytes]) -> Extra | None:
    if extra is None:
        return None
    rest = {name: each for name, each in extra.fields.items() if fields.get(name) != bytes(each)}
    return Extra(extra.dialect, rest) if rest else None


def _news(completed: Extra | None, started: Extra | None) -> Extra | None:
    """What the end says beyond the beginning."""
    if completed is None or started is None:
        return completed
    result = started.fields
    news = {name: each for name, each in completed.fields.items() if result.get(name) != each}
    return Extra("responses", news) if news else None


def _usage(usage: Usage, book: Book) -> Usage:
    spent, made = usage.input or 0, usage.output or 0
    return replace(
        usage,
        input=spent,
        output=made,
        cached=usage.cached or 0,
        cache_write=usage.cache_write or 0,
        reasoning=usage.reasoning or 0,
        total=spent + made if usage.total is None else usage.total,
        extra=book.own(usage.extra),
    )


def _error(error: ErrorInfo) -> ErrorInfo:
    return replace(error, code=_CODES.get(error.kind, "server_error"))


def _choice(choice: Choice, stories: Sequence[Story], book: Book, *, has_failed: bool) -> Choice:
    parts: list[Part] = []
    for story in stories:
        part = _part(story.value, book)
        if part is None:
            continue
        parts.append(part)
        if story.has_output:
            book.note("tool_output")
        if choice.finish is None and isinstance(part, Call) and part.status == "incomplete":
            # Nothing is sent after a call that was cut, until it is known how the answer ends.
            break
    finish = choice.finish
    if not has_failed:
        if finish in ("context_window", "refusal", "pause"):
            book.note("finish_detail")
        if choice.stop_sequence is not None:
            book.note("stop_sequence")
        book.lose(choice.finish_extra)
    if finish == "refusal" and any(isinstance(part, Refusal) for part in parts):
        finish = "tool_calls" if any(_is_waiting(part) for part in parts) else "stop"
    return replace(
        choice,
        parts=tuple(parts),
        finish=None if finish is None else _NEAREST.get(finish, finish),
        stop_sequence=None,
        finish_extra=None,
    )


def _is_waiting(part: Part) -> bool:
    return isinstance(part, Call) and part.executor == "client" and part.status == "completed"


def _part(part: Part, book: Book) -> Part | None:
    match part:
        case Text():
            found = [_citation(each, book) for each in part.annotations]
            kept = tuple(each for each in found if each is not None)
            extra = book.own(part.extra)
            return replace(
                part, annotations=kept, extra=extra, item_extra=book.own(part.item_extra)
            )
        case Refusal():
            if part.logprobs is not None:
                book.note("logprobs")
            return replace(part, logprobs=None, extra=book.own(part.extra))
        case Reasoning():
            return replace(part, extra=book.own(part.extra))
        case Call():
            return _call(part, book)
        case Result():
            book.note("provider_result")
            return None
        case Media():
            return _media(part, book)
        case Opaque():
            if part.dialect == "responses":
                return part
            book.note("opaque_part")
            return None


def _citation(annotation: Annotation, book: Book) -> Annotation | None:
    if annotation.dialect == "responses":
        return annotation
    if annotation.url is None:
        book.note("annotation")
        return None
    if annotation.quote is not None:
        book.note("annotation")
    title = annotation.title or ""
    start = annotation.start or 0
    end = start if annotation.end is None else annotation.end
    fields = {
        "type": "url_citation",
        "start_index": start,
        "end_index": end,
        "title": title,
        "url": annotation.url,
    }
    return Annotation("responses", raw(fields), annotation.url, title, None, start, end)


def _media(media: Media, book: Book) -> Media | None:
    if media.kind != "audio":
        book.note("media_output")
        return None
    book.own(media.extra)
    if media.media_type is not None:
        book.note("media_output")
    if media.data is None and media.transcript is None:
        return None
    return replace(media, media_type=None, item_id=None, extra=None)


def _call(call: Call, book: Book) -> Call | None:
    if call.seals:
        book.note("call_seal")
    call = replace(call, seals=(), extra=book.own(call.extra))
    if call.executor == "client":
        return call
    call = replace(call, name=_NATIVE_NAMES.get(call.kind, call.name))
    if call.status == "incomplete":
        return call
    match call.kind:
        case "web_search":
            return replace(call, input=_search(call, book))
        case "file_search":
            return replace(call, input=_queries(call, book))
        case "code_interpreter":
            return replace(call, input=_code(call.input))
        case _:
            return call


def _search(call: Call, book: Book) -> str:
    """A search crosses by its query, a fetch by its address; another vendor's other settings have no place."""
    text = call.input.strip()
    fields = as_object(text)
    if "type" in fields:
        return text
    for key, head in (
        ("query", '{"type":"search","query":'),
        ("url", '{"type":"open_page","url":'),
    ):
        if isinstance(loads(bytes(fields.get(key, b"null"))), str):
            if len(fields) > 1:
                book.note("provider_call")
            return f"{head}{bytes(fields[key]).decode()}}}"
    book.note("provider_call")
    return '{"type":"search","query":""}'


def _queries(call: Call, book: Book) -> str:
    text = call.input.strip()
    if text.startswith("["):
        return text
    book.note("provider_call")
    return "[]"


def _code(text: str) -> str:
    code = loads(text).get("code")
    return code if isinstance(code, str) else text
