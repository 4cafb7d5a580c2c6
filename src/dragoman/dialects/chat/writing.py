"""What the stream encoder and the body encoder write, and declare lost, alike: calls, citations, media, finishes."""

from dragoman._json import Raw, is_strict
from dragoman.core import aliases
from dragoman.core.losses import LossBook
from dragoman.dialects.chat.annotations import write_annotation
from dragoman.dialects.chat.content import data_url
from dragoman.dialects.chat.fields import own_fields
from dragoman.dialects.chat.losses import note_extra, note_foreign
from dragoman.dialects.chat.wire import FINISH_OF_REASON, REASONING_FIELDS, SEALED_FIELDS
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import Annotation, Call, Media, Reasoning, Seal

__all__ = (
    "FAILING_REASONS",
    "cite",
    "finish_word",
    "flat_name",
    "is_expressible",
    "note_finish",
    "seal_content",
    "sealed_fields",
    "write_audio",
    "write_image",
)

FAILING_REASONS: frozenset[FinishReason] = frozenset({"error", "cancelled"})
"""Reasons that Chat has no word for because the answer did not end: they are written as an error."""

_DETAILED: frozenset[FinishReason] = frozenset({"context_window", "refusal", "pause"})


def flat_name(call: Call, book: LossBook, where: str) -> str:
    """The name of a call where there are no namespaces. A kind without a name of its own is named for itself."""
    if call.namespace is not None:
        book.note("namespace", where, call.namespace)
    return aliases.flat_name(call.name or call.kind, call.namespace)


def is_expressible(call: Call, book: LossBook, where: str) -> bool:
    """Whether a call may be shown to the client as one of its own."""
    if call.executor != "client":
        book.note("provider_call", where, call.name)
        return False
    if call.kind not in ("function", "custom"):
        book.note("call_kind", where, call.kind)
    return True


def seal_content(seal: Seal) -> Raw | None:
    """A seal as a call's `extra_content`; None if that is not where it came from."""
    if seal.kind != "thought" or not is_strict(seal.data):
        return None
    return Raw(seal.data.encode("utf-8"))


def finish_word(reason: FinishReason, calls: int, *, has_cut_call: bool, legacy: bool) -> str:
    """Chat's word for how a choice ended that shows so many calls.

    A choice with a call that was cut never ends as if its calls could be run.
    """
    word = FINISH_OF_REASON[reason]
    if word in ("stop", "tool_calls"):
        if has_cut_call:
            return "length"
        if not calls:
            return "stop"
    return "function_call" if word == "tool_calls" and legacy else word


def note_finish(reason: FinishReason, book: LossBook, where: str) -> None:
    if reason in _DETAILED:
        book.note("finish_detail", where, reason)


def cite(annotation: Annotation, book: LossBook, where: str) -> Raw | None:
    """A citation as Chat has it; what it does not have is declared."""
    written = write_annotation(annotation)
    if written is None:
        book.note("annotation", where)
    elif annotation.quote is not None and annotation.dialect != "chat":
        book.note("annotation", where, "its quotation")
    return written


def sealed_fields(reasoning: Reasoning, book: LossBook, where: str) -> dict[str, Raw]:
    """The lists of sealed thoughts that came in this dialect; other seals and fields are declared."""
    own = own_fields(reasoning.extra)
    sealed = {name: own[name] for name in SEALED_FIELDS if name in own}
    if own.keys() - {*SEALED_FIELDS, *REASONING_FIELDS}:
        note_extra(book, reasoning.extra, where)
    note_foreign(book, reasoning.extra, where)
    if reasoning.seals and not sealed:
        book.note("seal", where)
    return sealed


def write_audio(media: Media, item_id: str) -> dict[str, object]:
    return {
        "id": item_id,
        **({"data": media.data} if media.data else {}),
        **({"transcript": media.transcript} if media.transcript else {}),
        **own_fields(media.extra),
    }


def write_image(media: Media) -> dict[str, object] | None:
    """An entry of `images`; None for what is no picture, or has none in it."""
    if media.kind != "image":
        return None
    url = media.url
    if media.data is not None:
        url = data_url(media.media_type or "image/png", media.data)
    return None if url is None else {"type": "image_url", "image_url": {"url": url}}
