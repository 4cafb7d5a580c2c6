"""What Anthropic Messages keeps of an answer."""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman._json import dumps_text, is_strict, raw
from dragoman.core.freeform import wrap_input
from dragoman.model.outcome import Choice, ErrorInfo, ErrorKind, FinishReason, Outcome, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    CallKind,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from projecting import Answer, Book, Projection, Story, failed, settle, without_fields

_SERVER_TOOLS: dict[CallKind, str] = {
    "web_search": "web_search",
    "web_fetch": "web_fetch",
    "code_interpreter": "code_execution",
}
_KINDS: dict[ErrorKind, ErrorKind] = {
    # kinds that share the type `api_error`
    "truncated": "server",
    "protocol": "server",
    "upstream": "server",
}


def project_messages(answer: Answer) -> Projection:
    book = Book("messages")
    outcome = answer.outcome
    if answer.has_limits:
        book.note("limits")
    if answer.has_part_progress:
        book.note("progress")
    for usage in answer.usages:
        book.own(usage.extra)
        if usage.input_audio is not None or usage.output_audio is not None:
            book.note("usage_details")
    if not answer.has_failed and _is_misleading(answer.stories.get(0, ())):
        answer = _broken(answer)
        outcome = answer.outcome
    choices: list[Choice] = []
    for choice in outcome.choices:
        if choice.index == 0:
            choices.append(_choice(choice, answer.stories[0], book, has_failed=answer.has_failed))
        else:
            book.note("choices")
    kept = replace(
        outcome,
        created=None,
        choices=tuple(choices),
        usage=_usage(outcome.usage, book),
        limits=None,
        error=None if outcome.error is None else _error(outcome.error),
        started_extra=book.own(outcome.started_extra),
        completed_extra=None if answer.has_failed else book.own(outcome.completed_extra),
    )
    return Projection(settle_messages(kept), frozenset(book.codes))


def _is_misleading(stories: Sequence[Story]) -> bool:
    """Whether a cut call that looks whole is followed by more: no stop reason could show that it was cut."""
    shown = [story.value for story in stories if _part(story, Book("messages")) is not None]
    return any(_is_cut(part) and _looks_whole(part) for part in shown[:-1])


def _looks_whole(part: Part) -> bool:
    if not isinstance(part, Call) or not part.input:
        return True
    return part.kind != "custom" and (not part.input.strip() or is_strict(part.input))


def _broken(answer: Answer) -> Answer:
    message = "the upstream ended its answer with a tool call that is not complete"
    error = ErrorInfo(kind="protocol", message=message)
    answer.outcome = replace(answer.outcome, error=error, completed=False)
    return answer


def settle_messages(outcome: Outcome) -> Outcome:
    """Without what Messages does not promise: how far a text, or a provider's call, had come."""
    choices = tuple(
        replace(choice, parts=tuple(_without_status(part) for part in choice.parts))
        for choice in outcome.choices
    )
    outcome = replace(outcome, choices=choices)
    if outcome.error is not None:
        choices = tuple(
            replace(choice, parts=tuple(_without_nothing(part) for part in choice.parts))
            for choice in choices
        )
        outcome = replace(outcome, choices=choices)
    if outcome.usage is not None:
        # The count in it is read; the object itself is kept beside it.
        extra = without_fields(outcome.usage.extra, "output_tokens_details")
        outcome = replace(outcome, usage=replace(outcome.usage, extra=extra))
    return settle(failed(outcome) if outcome.error is not None else outcome)


def _without_status(part: Part) -> Part:
    if isinstance(part, Opaque) or (isinstance(part, Call) and part.executor == "client"):
        return part
    return replace(part, status="completed")


def _without_nothing(part: Part) -> Part:
    """A provider's call that was cut before its input began: `{}` to a client, if another block follows."""
    if isinstance(part, Call) and part.executor != "client" and part.input.strip() == "{}":
        return replace(part, input="")
    return part


def _usage(usage: Usage | None, book: Book) -> Usage:
    usage = usage or Usage()
    return Usage(
        input=usage.input or 0,
        output=usage.output or 0,
        cached=usage.cached or 0,
        cache_write=usage.cache_write or 0,
        reasoning=usage.reasoning,
        extra=book.own(usage.extra),
    )


def _error(error: ErrorInfo) -> ErrorInfo:
    return replace(error, kind=_KINDS.get(error.kind, error.kind))


def _choice(choice: Choice, stories: Sequence[Story], book: Book, *, has_failed: bool) -> Choice:
    parts: list[Part] = []
    is_cut = False
    for story in stories:
        part = _part(story, book)
        if story.has_output and isinstance(part, Call):
            book.note("provider_output")
        # Nothing is sent after a call that was cut, until it is known how the answer ends.
        if part is not None and not (is_cut and has_failed):
            parts.append(part)
        is_cut = is_cut or _is_cut(story.value)
    finish = choice.finish
    if not has_failed:
        last = len(parts) - 1
        parts = [_closed(part, is_last=number == last) for number, part in enumerate(parts)]
        if finish == "content_filter":
            book.note("finish_reason")
            finish = "refusal"
        if any(isinstance(story.value, Refusal) for story in stories):
            finish = _refused(finish, book)
    extra = None if has_failed else book.own(choice.finish_extra)
    return replace(choice, parts=tuple(parts), finish=finish, finish_extra=extra)


def _is_cut(part: Part) -> bool:
    return isinstance(part, Call) and part.executor == "client" and part.status != "completed"


def _closed(part: Part, *, is_last: bool) -> Part:
    """The vendor stops the block that a limit cut: its call counts as cut if it stands last and is no JSON."""
    if not isinstance(part, Call):
        return part
    is_whole = bool(part.input.strip()) and is_strict(part.input)
    return replace(part, status="completed") if is_whole or not is_last else part


def _refused(finish: FinishReason | None, book: Book) -> FinishReason | None:
    if finish in ("stop", "refusal"):
        return "refusal"
    book.note("refusal")
    return finish


def _part(story: Story, book: Book) -> Part | None:
    part = story.value
    match part:
        case Text():
            return _text(part, book)
        case Refusal():
            text = Text(text=part.text, logprobs=part.logprobs, extra=part.extra)
            return _text(text, book)
        case Reasoning():
            return _reasoning(part, story, book)
        case Call():
            return _call(part, book)
        case Result():
            return _result(part, book)
        case Media():
            book.note("media_output")
            return None
        case Opaque():
            if part.dialect == "messages":
                return part
            book.note("foreign_part")
            return None


def _text(part: Text, book: Book) -> Text | None:
    book.lose(part.item_extra)
    if part.logprobs is not None:
        book.note("logprobs")
    found = [_citation(each, book) for each in part.annotations]
    kept = tuple(each for each in found if each is not None)
    extra = book.own(part.extra)
    if not part.text and not kept:
        return None
    return Text(text=part.text, annotations=kept, status=part.status, extra=extra)


def _citation(annotation: Annotation, book: Book) -> Annotation | None:
    if annotation.dialect == "messages":
        return annotation
    if annotation.url is None:
        book.note("citation")
        return None
    if annotation.start is not None or annotation.end is not None:
        book.note("citation")
    fields = {
        "type": "web_search_result_location",
        "url": annotation.url,
        "title": annotation.title,
        "cited_text": annotation.quote or "",
        "encrypted_index": "",
    }
    return Annotation(
        "messages", raw(fields), annotation.url, annotation.title, annotation.quote or ""
    )


def _reasoning(part: Reasoning, story: Story, book: Book) -> Reasoning | None:
    extra = book.own(part.extra)
    pieces: list[str] = []
    section: tuple[str, int] | None = None
    for delta in story.thoughts:
        if section not in (None, (delta.channel, delta.index)):
            book.note("reasoning_entries")
            pieces.append("\n\n")
        section = (delta.channel, delta.index)
        pieces.append(delta.text)
    text = "".join(pieces)
    if not text and not part.seals:
        return None
    return Reasoning(
        summary=(text,) if text else (), seals=part.seals, status=part.status, extra=extra
    )


def _call(call: Call, book: Book) -> Call | None:
    extra = book.own(call.extra)
    if call.seals:
        book.note("call_seal")
    if call.executor != "client":
        return _server_call(replace(call, seals=(), extra=extra), book)
    name = call.name
    if call.namespace is not None:
        book.note("namespace")
        name = f"{call.namespace}__{name}"
    kept = replace(call, name=name, namespace=None, seals=(), extra=extra)
    if call.kind != "custom":
        return kept
    book.note("custom_call")
    wrapped = wrap_input(call.input)
    if call.status != "completed":
        # The end of a text that was cut is not known, so neither is that of the object around it.
        wrapped = wrapped.removesuffix('"}') if call.input else ""
    return replace(kept, kind="function", input=wrapped)


def _server_call(call: Call, book: Book) -> Call | None:
    name = call.name if call.kind == "mcp" else _SERVER_TOOLS.get(call.kind)
    if name is None:
        book.note("provider_call")
        return None
    if call.status == "failed":
        book.note("call_status")
    text = call.input
    if call.kind == "code_interpreter" and text and not text.lstrip().startswith("{"):
        # Other vendors' code tools take bare code, this one's an object.
        text = f'{{"code":{dumps_text(text).decode()}}}'
        text = text.removesuffix('"}') if call.status == "incomplete" else text
    return replace(call, name=name, input=text)


def _result(result: Result, book: Book) -> Result | None:
    extra = book.own(result.extra)
    if result.kind != "mcp" or not all(isinstance(each, Text) for each in result.content):
        book.note("provider_result")
        return None
    content = tuple(Text(text=each.text) for each in result.content if isinstance(each, Text))
    return replace(result, content=content, extra=extra)
