"""A whole answer of the same dialect on both sides: the same bytes if every client can use them, else written anew."""

from itertools import chain

from dragoman._json import dumps_text
from dragoman.core.aliases import NameMap
from dragoman.core.losses import answer_book
from dragoman.core.members import replace_member
from dragoman.core.restore import Restorer
from dragoman.core.tally import NOTED, Tally
from dragoman.dialects.base import DecodeContext, EncodeContext, Step
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import TranslatedBody
from dragoman.model.events import Event

__all__ = ("relay_body",)


def relay_body(
    data: bytes,
    dialect: str,
    *,
    decode: DecodeContext,
    encode: EncodeContext,
    names: NameMap | None = None,
    exact: bool = False,
) -> tuple[TranslatedBody, Tally]:
    """The body to send, and what it amounts to. `exact`: the bytes as they came, whatever they are."""
    own = codec(dialect)
    step = own.read_body(data, decode)
    events = _restored(step, names)
    tally = Tally()
    for event in events:
        if type(event) in NOTED:
            tally.note(event)
    same: bytes | None = data
    if not exact:
        is_same = (
            not step.problems
            and tally.error is None
            and events == step.events
            and own.is_regular_body(data, encode)
        )
        same = _renamed(data, tally.model, encode.model) if is_same else None
    if same is not None:
        return TranslatedBody(same, step.problems, tally.error), tally
    book = answer_book(own.losses, encode.losses)
    body = own.encode_body(events, encode, book)
    return TranslatedBody(body, step.problems, tally.error, book.losses), tally


def _restored(step: Step, names: NameMap | None) -> tuple[Event, ...]:
    if names is None:
        return step.events
    return tuple(chain.from_iterable(map(Restorer(names).feed, step.events)))


def _renamed(data: bytes, model: str, wanted: str | None) -> bytes | None:
    if wanted is None or wanted == model:
        return data
    return replace_member(data, ("model",), dumps_text(wanted))
