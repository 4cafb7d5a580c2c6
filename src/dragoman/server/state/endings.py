"""What is kept of an answer, read from the bytes that the client is told. Pure.

Only what was told counts: whether those bytes were passed on or written here makes no difference to a store.
"""

from collections.abc import Callable

from msgspec import Struct

from dragoman.core.fold import fold
from dragoman.core.journal import Terminal
from dragoman.core.losses import answer_book
from dragoman.dialects import messages, responses
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.registry import CODECS
from dragoman.dialects.translate import make_decoder
from dragoman.model.outcome import ErrorInfo, Outcome
from dragoman.model.parts import Call, Dialect, Part, Result
from dragoman.store.records import Answer, EndStatus
from dragoman.store.telling import answer_of, read_outcome

__all__ = ("Ended", "ended_response", "fail_last", "read_ended_body", "read_ended_stream")

_NO_ENCODE = EncodeContext()


class Ended(Struct, frozen=True, kw_only=True):
    """An answer that is over. `waiting`: the ids of the calls whose results the client owes.

    answer: None if it is what the body tells. items: the ids of its items, where its dialect has some.
    """

    id: str
    status: EndStatus
    body: bytes
    answer: Answer | None = None
    waiting: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


def read_ended_stream(door: Dialect, last: bytes, whole: Callable[[], bytes]) -> Ended | None:
    """The answer that ends in `last`; None if none does. `whole`: all of its stream, asked for where it is needed."""
    if door == "responses":
        terminal = responses.read_terminal(last)
        return None if terminal is None else ended_response(terminal)
    decoder = make_decoder(door)
    events = [*decoder.events(whole())]
    for step in decoder.close():
        events += step.events
    return _message(door, fold(events))


def read_ended_body(door: Dialect, body: bytes) -> Ended | None:
    """The same of a body; None if it tells of no answer with an id."""
    if door == "responses":
        whole = responses.read_whole(body)
        return None if whole is None else ended_response(whole)
    return _message(door, read_outcome(door, body), body)


def fail_last(door: Dialect, last: bytes, error: ErrorInfo) -> bytes:
    """The last frames of a stream, with a failure in place of their end."""
    if door == "responses":
        return responses.fail_terminal(last, error)
    return messages.fail_terminal(last, error)


def ended_response(terminal: Terminal) -> Ended:
    """The same where the end says it of itself."""
    waiting = terminal.waiting
    if waiting is None:
        waiting = _waiting(answer_of(read_outcome("responses", terminal.body)).parts)
    return Ended(
        id=terminal.id,
        status=terminal.status,
        body=terminal.body,
        waiting=waiting,
        items=terminal.items,
    )


def _message(door: Dialect, outcome: Outcome, body: bytes = b"") -> Ended | None:
    if not outcome.response_id or not (outcome.completed or outcome.error is not None):
        return None
    status: EndStatus = "completed" if outcome.error is None else "failed"
    if not body and outcome.error is None:
        dialect = CODECS[door]
        body = dialect.write_body(outcome, _NO_ENCODE, answer_book(dialect.losses, {}))
    answer = answer_of(outcome)
    return Ended(
        id=outcome.response_id,
        status=status,
        body=body,
        answer=answer,
        waiting=_waiting(answer.parts),
    )


def _waiting(parts: tuple[Part, ...]) -> tuple[str, ...]:
    answered = {part.call_id for part in parts if isinstance(part, Result)}
    return tuple(
        part.call_id
        for part in parts
        if isinstance(part, Call)
        and part.executor == "client"
        and part.status == "completed"
        and part.call_id not in answered
    )
