"""How an answer ends in this dialect: the stop reason, decided from what the answer holds."""

from collections.abc import Mapping

from msgspec import Struct

from dragoman.core.finish import settle_finish
from dragoman.core.losses import LossBook
from dragoman.dialects.messages.losses import note_foreign
from dragoman.dialects.messages.render import Block, own_extra
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import Extra

__all__ = ("Content", "note_refusal", "settle_reason", "stop_fields")

_STOP_REASONS: Mapping[FinishReason, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "context_window": "model_context_window_exceeded",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
    "cancelled": "end_turn",
    "error": "end_turn",
}
_NEAREST: frozenset[FinishReason] = frozenset({"content_filter", "cancelled", "error"})


class Content(Struct, frozen=True):
    """What of an answer decides its stop reason."""

    has_complete_calls: bool
    has_refusal: bool


def settle_reason(reason: FinishReason, content: Content) -> FinishReason:
    """`tool_calls` exactly when there are complete calls for the client, `refusal` when the text is one."""
    settled = settle_finish(reason, has_complete_client_calls=content.has_complete_calls)
    return "refusal" if settled == "stop" and content.has_refusal else settled


def note_refusal(reason: FinishReason, content: Content, book: LossBook) -> None:
    """Declare a refusal that the stop reason does not tell."""
    if content.has_refusal and _STOP_REASONS[reason] != "refusal":
        book.note("refusal", "stop_reason", reason)


def stop_fields(
    reason: FinishReason, stop_sequence: str | None, extra: Extra | None, book: LossBook
) -> Block:
    """The fields that say how a message ended, for a settled reason."""
    if reason in _NEAREST:
        book.note("finish_reason", "stop_reason", reason)
    note_foreign(book, extra, "stop_reason")
    # The dialect's own word, where the vocabulary has none, stands in `extra` and wins.
    return {
        "stop_reason": _STOP_REASONS[reason],
        "stop_sequence": stop_sequence if reason == "stop_sequence" else None,
        **own_extra(extra),
    }
