"""What Chat Completions keeps of an answer."""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman._json import Raw, is_strict, raw
from dragoman.core.fold import join_logprobs
from dragoman.model.outcome import Choice, ErrorInfo, ErrorKind, FinishReason, Outcome, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from projecting import Answer, Book, Projection, Story, failed, settle

_CUT: frozenset[FinishReason | None] = frozenset({"length", "content_filter"})
_WORDS: dict[ErrorKind, tuple[str, ErrorKind]] = {
    # the code that a kind without one is given, and what is left of the kind beside a code nobody knows
    "invalid_request": ("invalid_request", "invalid_request"),
    "rate_limit": ("rate_limit_exceeded", "rate_limit"),
    "overloaded": ("overloaded", "server"),
    "truncated": ("stream_truncated", "server"),
    "protocol": ("protocol_error", "server"),
    "upstream": ("upstream_error", "server"),
    "server": ("server_error", "server"),
}


def project_chat(answer: Answer) -> Projection:
    book = Book("chat")
    outcome = answer.outcome
    if answer.has_limits:
        book.note("rate_limits")
    for usage in answer.usages:
        book.own(usage.extra)
    choices = tuple(
        _choice(choice, answer.stories[choice.index], book, has_failed=answer.has_failed)
        for choice in outcome.choices
    )
    kept = replace(
        outcome,
        created=(outcome.created or 0) if answer.has_started else None,
        choices=choices,
        usage=None if outcome.usage is None else _usage(outcome.usage, book),
        limits=None,
        error=None if outcome.error is None else _error(outcome.error),
        started_extra=book.own(outcome.started_extra),
        completed_extra=None,
    )
    book.lose(outcome.completed_extra)
    return Projection(settle_chat(kept), frozenset(book.codes))


def settle_chat(outcome: Outcome) -> Outcome:
    """Without what Chat does not promise: how far anything but a call in a regular answer had come."""
    choices = tuple(
        replace(
            choice,
            parts=tuple(
                _without_status(part, choice.finish, has_failed=outcome.error is not None)
                for part in choice.parts
            ),
        )
        for choice in outcome.choices
    )
    outcome = replace(outcome, choices=choices)
    # More may follow a finish, so a stream that fails has sent no finish.
    return settle(failed(outcome) if outcome.error is not None else outcome)


def _without_status(part: Part, finish: FinishReason | None, *, has_failed: bool) -> Part:
    if isinstance(part, Opaque):
        return part
    if isinstance(part, Call) and not has_failed and finish not in _CUT:
        return part
    return replace(part, status="completed")


def _usage(usage: Usage, book: Book) -> Usage:
    spent, made = usage.input or 0, usage.output or 0
    total = spent + made if usage.total is None else usage.total
    return replace(usage, input=spent, output=made, total=total, extra=book.own(usage.extra))


def _error(error: ErrorInfo) -> ErrorInfo:
    word, vague = _WORDS[error.kind]
    if error.code is None:
        return replace(error, code=word)
    return replace(error, kind=vague)


def _choice(choice: Choice, stories: Sequence[Story], book: Book, *, has_failed: bool) -> Choice:
    message = _Message(book)
    for story in stories:
        message.take(story)
    if not has_failed:
        message.finish()
    finish = _finish(choice, message)
    if finish != choice.finish:
        book.note("finish_detail")
    if choice.stop_sequence is not None:
        book.note("stop_sequence")
    return replace(
        choice,
        parts=tuple(message.parts),
        finish=finish,
        finish_extra=book.own(choice.finish_extra),
    )


def _finish(choice: Choice, message: "_Message") -> FinishReason | None:
    nearest: dict[FinishReason, FinishReason] = {
        "context_window": "length",
        "pause": "length",
        "refusal": "content_filter",
    }
    return None if choice.finish is None else nearest.get(choice.finish, choice.finish)


class _Message:
    """The parts of one choice as they come back: what follows its like is one with it."""

    def __init__(self, book: Book) -> None:
        self.parts: list[Part] = []
        self._book = book
        self._has_sound = False
        # What was said of a text without a word of it, for the next text.
        self._citations: list[Annotation] = []
        self._unsaid: dict[type[Part], list[Raw | None]] = {Text: [], Refusal: []}

    def take(self, story: Story) -> None:
        part, book = story.value, self._book
        if story.has_output:
            book.note("provider_result")
        match part:
            case Text():
                book.lose(part.extra)
                book.lose(part.item_extra)
                self._say(part, [self._cite(each) for each in part.annotations])
            case Refusal():
                book.lose(part.extra)
                book.lose(part.item_extra)
                self._say(part, [])
            case Reasoning():
                self._think(part, story)
            case Call():
                self._call(part)
            case Result():
                book.note("provider_result")
            case Media():
                self._show(part)
            case Opaque():
                if part.dialect == "chat":
                    self.parts.append(part)
                else:
                    book.note("opaque_part")

    def finish(self) -> None:
        if self._citations:
            self._last(Text)

    def _last(self, kind: type[Text | Refusal]) -> Text | Refusal:
        last = self.parts[-1] if self.parts else None
        if isinstance(last, kind):
            return last
        new = kind()
        if isinstance(new, Text):
            new = replace(new, annotations=tuple(self._citations))
            self._citations.clear()
        self.parts.append(new)
        return new

    def _say(self, part: Text | Refusal, citations: Sequence[Annotation | None]) -> None:
        kind = type(part)
        kept = [each for each in citations if each is not None]
        unsaid = self._unsaid[kind]
        unsaid.append(part.logprobs)
        is_open = bool(self.parts) and isinstance(self.parts[-1], kind)
        if not part.text and not is_open:
            self._citations += kept
            return
        last = self._last(kind)
        last = replace(
            last, text=last.text + part.text, logprobs=join_logprobs([last.logprobs, *unsaid])
        )
        unsaid.clear()
        if isinstance(last, Text):
            last = replace(last, annotations=last.annotations + tuple(kept))
        self.parts[-1] = last

    def _cite(self, annotation: Annotation) -> Annotation | None:
        if annotation.dialect == "chat":
            return annotation
        if annotation.url is None:
            self._book.note("annotation")
            return None
        if annotation.quote is not None:
            self._book.note("annotation")
        title = annotation.title or annotation.url
        start, end = annotation.start or 0, annotation.end or 0
        fields = {"end_index": end, "start_index": start, "title": title, "url": annotation.url}
        written = raw({"type": "url_citation", "url_citation": fields})
        return Annotation("chat", written, annotation.url, title, None, start, end)

    def _think(self, part: Reasoning, story: Story) -> None:
        self._book.lose(part.extra)
        if part.seals:
            self._book.note("seal")
        pieces: list[str] = []
        section: tuple[str, int] | None = None
        for delta in story.thoughts:
            if section not in (None, (delta.channel, delta.index)):
                self._book.note("reasoning_sections")
                pieces.append("\n\n")
            section = (delta.channel, delta.index)
            pieces.append(delta.text)
        if not pieces:
            return
        text = "".join(pieces)
        last = self.parts[-1] if self.parts else None
        if isinstance(last, Reasoning):
            self.parts[-1] = Reasoning(summary=(last.summary[0] + text,))
        else:
            self.parts.append(Reasoning(summary=(text,)))

    def _call(self, call: Call) -> None:
        book = self._book
        if call.executor != "client":
            book.note("provider_call")
            return
        name = call.name
        if call.namespace is not None:
            book.note("namespace")
            name = f"{call.namespace}__{name}"
        seals = tuple(
            seal for seal in call.seals if seal.kind == "thought" and is_strict(seal.data)
        )
        if seals != call.seals:
            book.note("seal")
        self.parts.append(
            replace(call, name=name, namespace=None, seals=seals, extra=book.own(call.extra))
        )

    def _show(self, media: Media) -> None:
        book = self._book
        if media.kind == "audio":
            if media.media_type is not None or self._has_sound:
                book.note("output_media")
            if not self._has_sound:
                self._has_sound = True
                extra = book.own(media.extra)
                self.parts.append(replace(media, media_type=None, extra=extra))
            return
        book.note("output_media")
        if media.kind == "image" and media.data is not None:
            media_type = media.media_type or "image/png"
            self.parts.append(Media(kind="image", media_type=media_type, data=media.data))
