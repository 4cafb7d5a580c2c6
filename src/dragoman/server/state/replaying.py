"""A stored stream, told again from some event on. Pure.

The bytes are those that the first reader got. Events are counted by their `sequence_number`; comments and keep-alives,
which kept that reader's connection open, mean nothing to a later one and are left out.
"""

from msgspec import Struct

from dragoman._json import FAST_FAILURES, typed_decoder
from dragoman.sse import FrameParser

__all__ = ("replay",)


class _Numbered(Struct, gc=False):
    sequence_number: int | None = None
    type: str = ""


_read = typed_decoder(_Numbered)


def replay(stream: bytes, after: int | None) -> bytes:
    """The frames whose number is greater than `after`; all of them if that is None."""
    parser = FrameParser()
    frames = [*parser.feed(stream), *parser.close()]
    return b"".join(frame.raw for frame in frames if _is_due(frame.data, after))


def _is_due(data: bytes | None, after: int | None) -> bool:
    if data is None:
        return False
    try:
        event = _read(data)
    except FAST_FAILURES:
        return False
    if event.sequence_number is None:
        return False
    return after is None or event.sequence_number > after
