"""A recorded answer in another dialect: the whole of it, bytes and losses."""

from msgspec import Struct

from dragoman.dialects.translate import StreamTranslator, translate_body
from dragoman.inspection.recognise import DialectName, Recognised
from dragoman.model.outcome import Loss

__all__ = ("Rewritten", "rewrite")


class Rewritten(Struct, frozen=True):
    data: bytes
    losses: tuple[Loss, ...] = ()


def rewrite(recognised: Recognised, target: DialectName) -> Rewritten:
    """A stream becomes a stream, a body a body. Into its own dialect too: then in that dialect's regular form."""
    recording = recognised.recording
    if recognised.form == "body":
        return Rewritten(translate_body(recording.body, recognised.dialect, target).body)
    translator = StreamTranslator(recognised.dialect, target)
    pieces = [translator.feed(piece) for piece in recording.stream()]
    pieces.append(translator.close())
    return Rewritten(b"".join(pieces), translator.losses)
