"""What a client is told whose request speaks of state that is not there, or not free. Each in the words of its vendor.

RequestRefused
  Refusal
    PreviousMissing    400  OpenAI's: `previous_response_id` names nothing that is known
    Conflicting        409  the response is still running, or was continued
    ThreadMissing      404  Anthropic's: no thread under this message
    ThreadRefused      400  Anthropic's: it was continued, is being continued, or is asked for otherwise
"""

from dragoman.server.refusals import Refusal

__all__ = (
    "Conflicting",
    "PreviousMissing",
    "ThreadMissing",
    "ThreadRefused",
    "already_continued",
    "previous_missing",
    "still_running",
    "thread_missing",
    "thread_refused",
)


class PreviousMissing(Refusal):
    """No response is known under the id that a request continues."""


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
