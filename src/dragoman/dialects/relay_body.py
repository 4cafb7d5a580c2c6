"""A whole answer of the same dialect on both sides: the same bytes if every client can use them, else written anew."""

from dragoman._json import dumps_text
from dragoman.core.aliases import NameMap
from dragoman.core.members import replace_member
from dragoman.core.tally import Tally
from dragoman.dialects.base import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.staging import Stage
from dragoman.dialects.translate import TranslatedBody, read_answer, write_answer

__all__ = ("relay_body",)


def relay_body(  # noqa: PLR0913 -- a body, and what is known of it
    data: bytes,
    dialect: str,
    *,
    decode: DecodeContext,
    encode: EncodeContext,
    names: NameMap | None = None,
    stage: Stage | None = None,
    exact: bool = False,
) -> tuple[TranslatedBody, Tally]:
    """The body to send, and what it amounts to. `exact`: the bytes as they came, whatever they are.

    stage: reads the text; the bytes stay as they came if it finds nothing.
    """
    answer = read_answer(data, dialect, decode, names, scan=stage)
    tally = answer.tally
    same: bytes | None = data
    if not exact:
        is_same = (
            not answer.is_changed
            and not answer.problems
            and tally.error is None
            and codec(dialect).is_regular_body(data, encode)
        )
        same = _renamed(data, tally.model, encode.model) if is_same else None
    if same is not None:
        return TranslatedBody(same, answer.problems, tally.error), tally
    return write_answer(answer, dialect, encode), tally


def _renamed(data: bytes, model: str, wanted: str | None) -> bytes | None:
    if wanted is None or wanted == model:
        return data
    return replace_member(data, ("model",), dumps_text(wanted))
