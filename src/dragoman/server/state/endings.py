"""What is kept of an answer, read from the bytes that the client is told. Pure.

Only what was told counts: whether those bytes were passed on or written here makes no difference to a store.
"""

from collections.abc import Callable

from msgspec import Struct

from dragoman.core.fold import fold
from dragoman.core.losses import LossBook
from dragoman.dialects import messages, responses
from dragoman.dialects.base import DecodeContext, EncodeContext
from dragoman.dialects.registry import CODECS
from dragoman.dialects.translate import make_decoder
from dragoman.model.outcome import ErrorInfo, Outcome
from dragoman.model.parts import Call, Dialect, Part, Result
from dragoman.store.records import Answer, EndStatus

__all__ = ("Ended", "fail_last", "read_ended_body", "read_ended_stream")

_NO_DECODE = DecodeContext()
_NO_ENCODE = EncodeContext()


class Ended(Struct, frozen=True, kw_only=True):
    """An answer that is over. `waiting`: the ids of the calls whose results the client owes."""

    id: str
    status: EndStatus
    body: bytes
    answer: Answer
    waiting: tuple[str, ...] = ()


def read_ended_stream(door: Dialect, last: bytes, whole: Callable[[], bytes]) -> Ended | None:
    """The answer that ends in `last`; None if none does. `whole`: all of its stream, asked for where it is needed."""
    if door == "responses":
        terminal = responses.read_terminal(last)
        return None if terminal is None else _response(terminal)
    decoder = make_decoder(door)
    events = [*decoder.events(whole())]
    for step in decoder.close():
        events += step.events
    return _message(door, fold(events))


def read_ended_body(door: Dialect, body: bytes) -> Ended | None:
    """The same of a body; None if it tells of no answer with an id."""
    if door == "responses":
        whole = responses.read_whole(body)
        return None if whole is None else _response(whole)
    return _message(door, _outcome(door, body), body)


def fail_last(door: Dialect, last: bytes, error: ErrorInfo) -> bytes:
    """The last frames of a stream, with a failure in place of their end."""
    if door == "responses":
        return responses.fail_terminal(last, error)
    return messages.fail_terminal(last, error)


def _response(terminal: responses.Terminal) -> Ended:
    outcome = _outcome("responses", terminal.body)
    return _ended(outcome, terminal.id, terminal.status, terminal.body)


def _message(door: Dialect, outcome: Outcome, body: bytes = b"") -> Ended | None:
    if not outcome.response_id or not (outcome.completed or outcome.error is not None):
        return None
    status: EndStatus = "completed" if outcome.error is None else "failed"
    if not body and outcome.error is None:
        dialect = CODECS[door]
        body = dialect.write_body(outcome, _NO_ENCODE, LossBook(dialect.losses))
    return _ended(outcome, outcome.response_id, status, body)


def _outcome(door: Dialect, body: bytes) -> Outcome:
    dialect = CODECS[door]
    plain = dialect.read_plain(body)
    return fold(dialect.read_body(body, _NO_DECODE).events) if plain is None else plain


def _ended(outcome: Outcome, response_id: str, status: EndStatus, body: bytes) -> Ended:
    choice = next((choice for choice in outcome.choices if choice.index == 0), None)
    parts = () if choice is None else choice.parts
    answer = Answer(
        parts=parts,
        finish=None if choice is None else choice.finish,
        usage=outcome.usage,
        error=outcome.error,
    )
    return Ended(id=response_id, status=status, body=body, answer=answer, waiting=_waiting(parts))


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
