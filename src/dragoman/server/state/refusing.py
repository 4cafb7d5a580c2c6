"""What a client is told whose request speaks of state that is not there, or not free. Each in the words of its vendor.

RequestRefused
  Refusal
    PreviousMissing    400  OpenAI's: `previous_response_id` names nothing that is known
    ItemMissing        404  OpenAI's: the input refers to an item that is not known
    BackgroundRefused  400  a response that nobody waits for
    Conflicting        409  the response is still running, or was continued
    ThreadMissing      404  Anthropic's: no thread under this message
    ThreadRefused      400  Anthropic's: it was continued, is being continued, or is asked for otherwise
"""

from dragoman.server.refusals import Refusal

__all__ = (
    "BackgroundRefused",
    "Conflicting",
    "ItemMissing",
    "PreviousMissing",
    "ThreadMissing",
    "ThreadRefused",
    "already_continued",
    "background_refused",
    "item_missing",
    "previous_missing",
    "still_running",
    "thread_missing",
    "thread_refused",
)


class PreviousMissing(Refusal):
    """No response is known under the id that a request continues."""


class ItemMissing(Refusal):
    """No item is known under an id that a request refers to."""

    kind = "not_found"
    status = 404


class BackgroundRefused(Refusal):
    """A response would have to go on without a client."""


class Conflicting(Refusal):
    """A response is not in the state that the request needs."""

    kind = "conflict"
    status = 409


class ThreadMissing(Refusal):
    """No thread is known under the message that a request continues."""

    kind = "not_found"
    status = 404


class ThreadRefused(Refusal):
    """A thread cannot be continued as asked."""


def previous_missing(response_id: str) -> PreviousMissing:
    return PreviousMissing(
        f"Previous response with id '{response_id}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def item_missing(item_id: str) -> ItemMissing:
    return ItemMissing(
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input.",
        param="input",
    )


def background_refused() -> BackgroundRefused:
    return BackgroundRefused(
        "background: expected false, got true: a response of this gateway ends with its client; "
        "stream it instead, and follow it with GET /v1/responses/{id}?stream=true",
        param="background",
        code="unsupported_parameter",
    )


def still_running(response_id: str) -> Conflicting:
    return Conflicting(
        f"Response with id '{response_id}' is still in progress; wait for it to end, or cancel it.",
        code="response_in_progress",
    )


def already_continued(response_id: str) -> Conflicting:
    return Conflicting(
        f"Response with id '{response_id}' was already continued: its tool outputs can be submitted once. "
        "Send another request with `previous_response_id` to branch from it.",
        code="response_already_continued",
    )


def thread_missing(message_id: str) -> ThreadMissing:
    return ThreadMissing(
        f"thread.previous_message_id: no thread is kept under {message_id!r}; "
        'send the whole conversation with `thread: {"type": "create"}`',
        code="thread_not_found",
    )


def thread_refused(message: str, code: str) -> ThreadRefused:
    return ThreadRefused(message, param="thread", code=code)
