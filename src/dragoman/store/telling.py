"""An answer read from the body in which it was told. Pure.

A body says all that the answer does: a store that keeps it need not write the answer a second time, and reads it when a
conversation goes on.
"""

from dragoman.core.fold import fold
from dragoman.dialects.base import DecodeContext
from dragoman.dialects.registry import CODECS
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Dialect
from dragoman.store.records import Answer

__all__ = ("answer_of", "read_answer", "read_outcome")

_NO_DECODE = DecodeContext()


def read_answer(door: Dialect, body: bytes) -> Answer:
    """What a body of this dialect tells."""
    return answer_of(read_outcome(door, body))


def read_outcome(door: Dialect, body: bytes) -> Outcome:
    """The same with all that is not kept of it."""
    codec = CODECS[door]
    plain = codec.read_plain(body)
    return fold(codec.read_body(body, _NO_DECODE).events) if plain is None else plain


def answer_of(outcome: Outcome) -> Answer:
    """What is kept of an outcome."""
    choice = next((choice for choice in outcome.choices if choice.index == 0), None)
    return Answer(
        parts=() if choice is None else choice.parts,
        finish=None if choice is None else choice.finish,
        usage=outcome.usage,
        error=outcome.error,
    )
