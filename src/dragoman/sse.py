"""Server-sent events: bytes in, frames with their exact bytes out; and frames back to bytes.

Follows the WHATWG parsing rules (html.spec.whatwg.org, "Server-sent events") on bytes, with two deviations that LLM
streams need: a last frame without its blank line is delivered when the input closes, and invalid UTF-8 is reported
on its frame instead of being replaced in silence. Joining `raw` of all frames gives the input back.

A frame ends at two line ends in a row; a blank line that ends nothing belongs to the frame after it. A CR at the end of
a read is held until the next byte shows whether it is half of a CRLF. A byte order mark means nothing at the very start
of the stream and is part of a line anywhere else.

Work is linear: a frame that arrives in many reads is joined once, when its end has been seen.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from dragoman.errors import FrameTooLarge

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Largest frame accepted. Real ones reach some MB (an image, a whole response object); rivals' limits of 64 KB, 1 MB
and 32 MB all broke somebody's large tool call."""

_BOM = b"\xef\xbb\xbf"
# Numbers, because asking for a byte by its number costs an eighth of asking for a bytes object.
_LF, _CR = b"\n\r"
# Two line ends in a row. The lookahead keeps one CRLF from being read as CR and LF. Written out twice because `{2}`
# hides from the compiler which bytes a match can begin with, and costs four times as much.
_FRAME_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LONGEST_END = 4  # CRLF, twice
_FIELDS = frozenset((b"", b"data", b"event", b"id", b"retry"))  # a comment has the empty name
_LONGEST_DONE = 64  # `[DONE]` with all the blanks that anybody was seen to add, and more
_PORTION = 32_768  # bytes of a large read that are split into frames at a time
_MAX_RETRY_DIGITS = 9  # a billion milliseconds; more is no reconnection time but an attack on int()


class Frame(Struct, frozen=True, gc=False):
    """One frame. `data` is None when it had no data line; its lines are joined by LF.

    `invalid_utf8` says that bytes which are no UTF-8 were replaced by U+FFFD in what is read; `raw` still has them.
    `is_first` says that it opens the stream. The fields below are seldom asked for and are read from `raw` when they
    are.
    """

    raw: bytes
    data: bytes | None = None
    invalid_utf8: bool = False
    is_first: bool = False

    @property
    def name(self) -> bytes:
        """The event name, empty if none was given."""
        values = self._values(b"event")
        return values[-1] if values else b""

    @property
    def comment(self) -> bytes | None:
        """The comment lines, joined by LF."""
        known = _repaired(self.raw) if self.invalid_utf8 else self.raw
        return _joined_values(known, b"", is_first=self.is_first)

    @property
    def unknown_field(self) -> bytes | None:
        """The first line that is neither a comment nor a field of an event. Readers pass over it."""
        raw = self.raw.removeprefix(_BOM) if self.is_first else self.raw
        start = 0
        for end in _LINE_END.finditer(raw):  # one by one: a frame may have millions
            line = raw[start : end.start()]
            if line.partition(b":")[0].strip() not in _FIELDS:
                return line
            start = end.end()
        line = raw[start:]
        return line if line.partition(b":")[0].strip() not in _FIELDS else None

    @property
    def id(self) -> bytes | None:
        values = [value for value in self._values(b"id") if b"\0" not in value]
        return values[-1] if values else None

    @property
    def retry(self) -> int | None:
        """The reconnection time in milliseconds."""
        values = [
            value
            for value in self._values(b"retry")
            if value.isdigit() and len(value) <= _MAX_RETRY_DIGITS
        ]
        return int(values[-1]) if values else None

    def _values(self, field: bytes) -> list[bytes]:
        known = _repaired(self.raw) if self.invalid_utf8 else self.raw
        return _values(known, field, is_first=self.is_first)

    @property
    def is_done(self) -> bool:
        """Whether this is the `[DONE]` marker of the OpenAI dialects, in any of its spellings."""
        data = self.data
        # The length first: a frame may hold a megabyte, and this is asked of each.
        return data is not None and len(data) <= _LONGEST_DONE and data.strip().upper() == b"[DONE]"


class FrameParser:
    """Splits a byte stream into frames, however it is cut into reads."""

    def __init__(self, max_frame: int = MAX_FRAME_BYTES) -> None:
        self._max_frame = max_frame
        self._pending: list[bytes] = []
        self._pending_size = 0
        # The last bytes of what is pending: only they can form an end with the next read.
        self._seam = b""
        self._has_cr = False
        self._at_start = True
        self._error: FrameTooLarge | None = None

    @property
    def waiting(self) -> int:
        """How many bytes wait for the end of their frame."""
        return self._pending_size

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that end in `data`.

        Raises:
            FrameTooLarge: a frame exceeds the limit; the frames before it have been given. No more frames will come,
                `rest` has the bytes.
        """
        if self._error is not None:
            self._pending.append(data)
            raise self._error
        if not self._has_cr and _CR in data:
            self._has_cr = True
        known = 0
        if self._pending:
            if not self._has_end(data):
                self._hold(data)
                return self._within_limit([]) if self._pending_size > self._max_frame else []
            known = self._pending_size
            self._pending.append(data)
            data = self.rest()
        frames = self._split_general(data, known) if self._has_cr else self._split_lf(data)
        if self._at_start and frames:
            self._at_start = False
            frames[0] = parse_lines(frames[0].raw)
        return frames if len(data) <= self._max_frame else self._within_limit(frames)

    def line(self, data: bytes, start: int) -> bytes | None:
        """What `data` has from `start` on, if it is exactly one frame in UTF-8 of which one line is left there.

        None too if anything waits before it. Token streams come one frame a read; this is then all that splitting costs.
        """
        if self._pending or self._has_cr or self._at_start or len(data) > self._max_frame:
            return None
        line = data[start:-2]
        is_line = data[-1] == _LF == data[-2] and _LF not in line and _CR not in data
        return line if is_line and (data.isascii() or is_utf8(data)) else None

    def block(self, data: bytes) -> bytes | None:
        """As `feed`, for callers that split the frames themselves: all of them, with their blank lines.

        None where that will not do (a CR, a byte order mark, more than the limit): call `feed`, nothing is lost.
        """
        if self._has_cr or _CR in data or self._error is not None:
            return None
        if self._pending_size + len(data) > self._max_frame:
            return None
        if self._at_start:
            if self._pending or b"\n\n" not in data or data.startswith(_BOM):
                return None
            self._at_start = False
        if self._pending:
            if not self._has_end(data):
                self._hold(data)
                return b""
            self._pending.append(data)
            data = self.rest()
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            if data:
                self._hold(data)
            return b""
        # Where more than two line ends follow each other, they make pairs from the first on.
        first = end - 2
        while first and data[first - 1] == _LF:
            first -= 1
        end -= (end - first) % 2
        if end < len(data):
            self._hold(data[end:])
        return data[:end]

    def close(self) -> list[Frame]:
        """The frame that was left without its end, if any.

        Raises:
            FrameTooLarge: as `feed`, if it had no occasion to say so.
        """
        if self._error is not None:
            raise self._error
        rest = self.rest()
        return [parse_lines(rest, is_first=self._at_start)] if rest else []

    def rest(self) -> bytes:
        """Take the bytes that are in no frame."""
        rest = b"".join(self._pending)
        self._pending.clear()
        self._pending_size = 0
        self._seam = b""
        return rest

    def _within_limit(self, frames: list[Frame]) -> list[Frame]:
        """The frames before one that is too large. If there are any the error waits for the next call."""
        sizes = [len(frame.raw) for frame in frames] + [self._pending_size]
        bad = next((index for index, size in enumerate(sizes) if size > self._max_frame), None)
        if bad is None:
            return frames
        self._pending[:0] = [frame.raw for frame in frames[bad:]]
        # Not how long it is: that would depend on how the stream was cut into reads.
        self._error = FrameTooLarge(
            f"expected an SSE frame of at most {self._max_frame} bytes, got a longer one"
        )
        if bad == 0:
            raise self._error
        return frames[:bad]

    def _hold(self, data: bytes) -> None:
        self._pending.append(data)
        self._pending_size += len(data)
        self._seam = (self._seam + data)[-3:] if len(data) < 3 else data[-3:]

    def _has_end(self, data: bytes) -> bool:
        """Whether a frame ends in the next read, or between it and what is pending."""
        if not self._has_cr:
            return b"\n\n" in data or b"\n\n" in self._seam + data[:1]
        data = self._seam + data
        end = _FRAME_END.search(data)
        return end is not None and not (end.end() == len(data) and data.endswith(b"\r"))

    def _split_lf(self, data: bytes) -> list[Frame]:
        """The fast path: no CR so far. The two shapes that servers send are read without splitting lines."""
        frames: list[Frame] = []
        add = frames.append
        pieces = data.split(b"\n\n")
        rest = pieces.pop()
        for piece in pieces:
            if piece.startswith(b"data: "):
                data = piece[6:]
            elif piece.startswith(b"event: "):
                start = piece.find(b"\n") + 7
                if not piece.startswith(b"data: ", start - 6):
                    add(parse_lines(piece + b"\n\n", is_first=False))
                    continue
                data = piece[start:]
            else:
                add(parse_lines(piece + b"\n\n", is_first=False))
                continue
            if _LF not in data and (piece.isascii() or is_utf8(piece)):
                add(Frame(piece + b"\n\n", data))
            else:
                add(parse_lines(piece + b"\n\n", is_first=False))
        if rest:
            self._hold(rest)
        return frames

    def _split_general(self, data: bytes, known: int) -> list[Frame]:
        """`known`: how many bytes it begins with that have no end in them; only their last ones may begin one."""
        frames: list[Frame] = []
        start = 0
        for end in _FRAME_END.finditer(data, max(0, known - _LONGEST_END)):
            if end.end() == len(data) and data.endswith(b"\r"):
                break  # the CR may be half of a CRLF
            frames.append(_parse_crlf(data[start : end.end()]))
            start = end.end()
        if start < len(data):
            self._hold(data[start:])
        return frames


def portions(block: bytes) -> Iterator[bytes]:
    """Whole frames, a few dozen at a time: what is made of them is then still in the processor's reach."""
    at = 0
    while len(block) - at > _PORTION:
        blank = first = block.find(b"\n\n", at + _PORTION)
        if blank < 0:
            break
        # Where more than two line ends follow each other, they make pairs from the first on.
        while first > at and block[first - 1] == _LF:
            first -= 1
        end = blank + 2 - (blank - first) % 2
        yield block[at:end]
        at = end
    if at < len(block):
        yield block[at:]


def _parse_crlf(raw: bytes) -> Frame:
    """A frame that is not the first. One data line and CRLF, the shape of many Python servers, is read at once."""
    if raw.startswith(b"data: ") and raw.endswith(b"\r\n\r\n"):
        data = raw[6:-4]
        if _CR not in data and _LF not in data and (raw.isascii() or is_utf8(raw)):
            return Frame(raw, data)
    return parse_lines(raw, is_first=False)


def parse_lines(raw: bytes, *, is_first: bool = True) -> Frame:
    """One frame by the complete rules, line by line. `is_first`: it opens its stream, perhaps with a byte order mark."""
    valid = raw.isascii() or is_utf8(raw)
    data = _joined_values(raw if valid else _repaired(raw), b"data", is_first=is_first)
    return Frame(raw, data, not valid, is_first)


def _values(raw: bytes, field: bytes, *, is_first: bool) -> list[bytes]:
    """The values of one field: its name, a colon, one optional space; a line without a colon has an empty value."""
    blocks = _some_lines(raw.removeprefix(_BOM) if is_first else raw)
    return [value for lines in blocks for value in _values_of_lines(lines, field)]


def _joined_values(raw: bytes, field: bytes, *, is_first: bool) -> bytes | None:
    """The same, joined by LF; None if there is none. A list of millions would take as long to be forgotten as to be made."""
    blocks = _some_lines(raw.removeprefix(_BOM) if is_first else raw)
    joined = [b"\n".join(values) for lines in blocks if (values := _values_of_lines(lines, field))]
    return b"\n".join(joined) if joined else None


def _values_of_lines(lines: bytes, field: bytes) -> list[bytes]:
    values: list[bytes] = []
    for line in lines.splitlines():
        if line:
            name, _, value = line.partition(b":")
            if name == field:
                values.append(value.removeprefix(b" "))
    return values


def _some_lines(raw: bytes) -> Iterator[bytes]:
    """Whole lines, not too many at a time: a frame may have millions, and is then read where that holds up nobody."""
    start = 0
    if len(raw) > _PORTION:
        raw = raw.replace(b"\r", b"\n")  # blank lines mean nothing here
    while len(raw) - start > _PORTION:
        end = raw.find(b"\n", start + _PORTION) + 1
        if not end:
            break
        yield raw[start:end]
        start = end
    yield raw[start:] if start else raw


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are UTF-8 as a whole."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _repaired(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode("utf-8")


def encode_frame(data: bytes, name: bytes = b"") -> bytes:
    """A frame as bytes. `data` may hold line ends; each line becomes a data line. Those of a name become spaces."""
    lines = b"\ndata: ".join(_LINE_END.split(data))
    if name:
        return b"event: " + _LINE_END.sub(b" ", name) + b"\ndata: " + lines + b"\n\n"
    return b"data: " + lines + b"\n\n"


def encode_comment(text: str) -> bytes:
    """A comment frame: keeps a connection alive and means nothing."""
    return b": " + b"\n: ".join(_LINE_END.split(text.encode("utf-8", "replace"))) + b"\n\n"
