"""A stream's frames for a reader that passes them on itself, many at a time.

What `StreamDecoder` does, for callers that have no use for what is told: plain deltas that came in one read and begin
alike are handed over as a list of their data, so that they can be passed on as they stand.
"""

from typing import Protocol

from dragoman.dialects.base import FrameReader, StreamDecoder, is_hopeful
from dragoman.sse import Frame, is_utf8, portions

__all__ = ("PassingReader", "RelayDecoder")

_LONG_OPENING = 256  # as in `base`
_LF = 0x0A
_FEW = 4  # frames that are not worth being split at their beginnings


class PassingReader(FrameReader, Protocol):
    """A reader that passes frames on."""

    def run(self, opening: bytes, lines: list[bytes], start: int, /) -> tuple[int, bool]:
        """As `quick`, for frames of one beginning, all of them UTF-8: those from `start` on that are plain. The number
        of the first that is not, or before which something was found, and whether it is known that it is not.
        """
        ...


class RelayDecoder(StreamDecoder):
    """Feeds a reader that passes frames on."""

    def __init__(self, reader: PassingReader) -> None:
        super().__init__(reader)
        self._run = reader.run

    def advance(self, data: bytes) -> None:
        """Read what `data` completes. See `StreamDecoder.events`."""
        if self._broken:
            return
        opening = self._opening
        start = len(opening) if data.startswith(opening) else self._open(data)
        if start and self._parser.is_line(data, start) and (data.isascii() or is_utf8(data)):
            line = data[start:-2]
            if self._quick(data, line) is None:
                self._read(Frame(data, line))
                return
            self._count += 1
            if self._found:
                self._note_found()
            return
        block = self._parser.block(data)
        if block is None:
            self.feed(data)
        else:
            for part in portions(block):
                self._advance(part)

    def advance_together(self, pieces: list[bytes]) -> None:
        """The same for a read that came in several pieces. See `StreamDecoder.told_together`."""
        for lines, data in self._parcels(pieces):
            if data:
                self.advance(data)
            else:
                self._advance_lines(self._opening, lines, 0)

    def _advance(self, block: bytes) -> None:
        """Whole frames, most of which begin as the one in the middle does."""
        if not (block.isascii() or is_utf8(block)):
            self._tell(block[:-2].split(b"\n\n"))
            return
        middle = block.find(b"\n\n", len(block) // 2) + 2
        self._open(block[middle : middle + _LONG_OPENING])
        opening = self._opening
        lines = block.split(b"\n\n" + opening)
        lines[-1] = lines[-1][:-2]
        self._tell(lines[0].split(b"\n\n"))
        self._advance_lines(opening, lines, 1)

    def _advance_lines(self, opening: bytes, lines: list[bytes], at: int) -> None:
        """The data of frames with one opening, from `at` on; perhaps with other frames behind it."""
        may_be_plain = is_hopeful(opening)
        while at < len(lines):
            is_known = False
            if may_be_plain and not self._reader.over:
                stop, is_known = self._run(opening, lines, at)
                self._count += stop - at
                if self._found:
                    self._note_found()
                at = stop
            if at < len(lines):
                line = lines[at]
                if not is_known or _LF in line:
                    self._advance_line(opening + line)
                else:
                    self._read(Frame(opening + line + b"\n\n", line))
                at += 1

    def _advance_line(self, line: bytes) -> None:
        """A frame that is not plain, and perhaps others behind it, which begin otherwise."""
        pieces = line.split(b"\n\n", _FEW)
        if len(pieces) <= _FEW:
            self._tell(pieces)
            return
        self._tell(pieces[:1])
        self._advance(line[len(pieces[0]) + 2 :] + b"\n\n")
