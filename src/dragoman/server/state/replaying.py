"""A stored stream, told again from some event on. Pure.

The bytes are those that the first reader got. Events are counted by their `sequence_number`; comments and keep-alives,
which kept that reader's connection open, mean nothing to a later one and are left out.
"""

from msgspec import Struct

from dragoman._json import FAST_FAILURES, typed_decoder
from dragoman.sse import Frame, FrameParser

__all__ = ("Replay", "replay")


class _Numbered(Struct, gc=False):
    sequence_number: int | None = None
    type: str = ""


_read = typed_decoder(_Numbered)


def replay(stream: bytes, after: int | None) -> bytes:
    """The frames whose number is greater than `after`; all of them if that is None."""
    return Replay(after).rest(stream)


class Replay:
    """The same of a stream that comes in pieces. `last`: the number of the last frame that was told, or was not due."""

    __slots__ = ("_parser", "last")

    def __init__(self, after: int | None) -> None:
        self.last = -1 if after is None else after
        self._parser = FrameParser()

    def feed(self, data: bytes) -> bytes:
        """The frames that are due and whole by now."""
        return self._due(self._parser.feed(data)) if data else b""

    def rest(self, stream: bytes) -> bytes:
        """Those of a whole stream that were not told yet."""
        parser = FrameParser(max(len(stream), 1))
        return self._due([*parser.feed(stream), *parser.close()])

    def _due(self, frames: list[Frame]) -> bytes:
        due: list[bytes] = []
        for frame in frames:
            number = _number(frame.data)
            if number is not None and number > self.last:
                self.last = number
                due.append(frame.raw)
        return b"".join(due)


def _number(data: bytes | None) -> int | None:
    if data is None:
        return None
    try:
        return _read(data).sequence_number
    except FAST_FAILURES:
        return None
