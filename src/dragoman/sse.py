"""Server-sent events: bytes in, frames with their exact bytes out; and frames back to bytes.

Follows the WHATWG parsing rules (html.spec.whatwg.org, "Server-sent events") on bytes, with two deviations that LLM
streams need: a last frame without its blank line is delivered when the input closes, and invalid UTF-8 is reported
on its frame instead of being replaced in silence. Joining `raw` of all frames gives the input back.

A frame ends at two line ends in a row; a blank line that ends nothing belongs to the frame after it. A frame that ends
with a CR is returned at once; if the next byte is an LF, both were one CRLF, and the LF is in `raw` of the next frame. Only
after a CRLF the parser waits for the second LF: such a stream writes CRLF, and a client of the relay may need all four
bytes. A byte order mark is ignored at the very start of the stream and is part of a line anywhere else.

Work is linear: a frame that arrives in many reads is joined once, when its end has been seen.
"""

import re
from collections.abc import Iterator

from msgspec import Struct, structs

from dragoman.errors import ConfigError, FrameTooLarge

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Largest accepted frame. Real frames reach some MB (an image, a whole response object); limits of 64 KB, 1 MB and
32 MB in other gateways all broke somebody's large tool call."""

_BOM = b"\xef\xbb\xbf"
# Integers: `number in data` costs an eighth of `one_byte_object in data`.
_LF, _CR = b"\n\r"
# Two line ends in a row. The lookahead keeps one CRLF from being read as CR and LF. Written out twice because `{2}`
# hides from the compiler which bytes a match can begin with, and costs four times as much.
_FRAME_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LONGEST_END = 4  # CRLF, twice
_HALF_END = b"\r\n\r"  # at the end of a read: the LF of the second CRLF is still to come
_FIELDS = frozenset((b"", b"data", b"event", b"id", b"retry"))  # a comment has the empty name
_LONGEST_DONE = 64  # bytes; `[DONE]` with more blanks than any server was seen to add
_PORTION = 32_768  # bytes of a large read that are split into frames at a time
_MAX_RETRY_DIGITS = 9  # a billion milliseconds; a longer number is an attack on int()


class Frame(Struct, frozen=True, gc=False):
    """One frame. `data` joins the data lines by LF; None if the frame has no data line.

    `invalid_utf8`: the frame has bytes that are not UTF-8. The fields have U+FFFD in their place; `raw` keeps them.
    `is_first`: the frame is the first of the stream. The properties are seldom needed, so each read parses `raw`.
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
        """The first line that is neither a comment nor a field of an event. SSE readers ignore such lines."""
        raw = self.raw.removeprefix(_BOM) if self.is_first else self.raw
        start = 0
        for end in _LINE_END.finditer(raw):  # without a list: a frame may have millions of lines
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
        # The length first: a frame may hold a megabyte, and every frame is checked.
        return data is not None and len(data) <= _LONGEST_DONE and data.strip().upper() == b"[DONE]"


class FrameParser:
    """Splits a byte stream into frames. How the stream is cut into reads does not matter.

    Examples:
        >>> parser = FrameParser()
        >>> parser.feed(b"event: greeting\\nda")
        []
        >>> [(frame.name, frame.data) for frame in parser.feed(b"ta: hello\\n\\n")]
        [(b'greeting', b'hello')]
    """

    def __init__(self, max_frame: int = MAX_FRAME_BYTES) -> None:
        self._max_frame = max_frame
        self._pending: list[bytes] = []
        self._pending_size = 0
        # The last pending bytes: only they can form the end of a frame together with the next read.
        self._seam = b""
        self._has_cr = False
        self._after_cr = False  # the last frame ended with a CR and a read: an LF that follows is half of its CRLF
        self._late_lf = b""  # this LF, until the next frame
        self._at_start = True
        self._is_broken = False  # a frame was too large

    @property
    def waiting(self) -> int:
        """How many bytes wait for the end of their frame."""
        return self._pending_size

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that end in `data`.

        Raises:
            FrameTooLarge: a frame exceeds the limit. The frames before it have been returned, and no more frames will
                be; `rest` returns the bytes.
        """
        if self._is_broken:
            self._pending.append(data)
            raise self._too_large()
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == _LF:
                self._late_lf, data = data[:1], data[1:]
        try:
            if not self._has_cr and _CR in data:
                self._has_cr = True
        except TypeError as error:
            kind = type(data).__name__
            raise ConfigError(f"expected a piece of a stream as bytes, got {kind}") from error
        known = 0
        if self._pending:
            if not self._has_end(data):
                self._hold(data)
                return self._within_limit([]) if self._pending_size > self._max_frame else []
            known = self._pending_size
            self._pending.append(data)
            data = self._join()
        frames = self._split_general(data, known) if self._has_cr else self._split_lf(data)
        if self._at_start and frames:
            self._at_start = False
            frames[0] = parse_lines(frames[0].raw)
        if len(data) > self._max_frame:
            frames = self._within_limit(frames)
        if self._late_lf and frames:
            frames[0] = structs.replace(frames[0], raw=self._late_lf + frames[0].raw)
            self._late_lf = b""
        return frames

    def line(self, data: bytes, start: int) -> bytes | None:
        """`data` from `start` to its blank line, if `data` is exactly one UTF-8 frame and only one line follows `start`.

        Else None, also if earlier bytes are pending. Token streams often send one frame per read: this is their fast path.
        """
        if self._pending or self._has_cr or self._at_start or len(data) > self._max_frame:
            return None
        line = data[start:-2]
        is_line = data.endswith(b"\n\n") and _LF not in line and _CR not in data
        return line if is_line and (data.isascii() or is_utf8(data)) else None

    def block(self, data: bytes) -> bytes | None:
        """Like `feed`, for callers that split the frames themselves: all frames as one block, with their blank lines.

        None if the data has a CR or a byte order mark or exceeds the limit; the parser is unchanged, so call `feed`.
        """
        if self._has_cr or _CR in data or self._is_broken:
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
            data = self._join()
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            if data:
                self._hold(data)
            return b""
        # In a run of more than two line ends, pairs are counted from the first.
        first = end - 2
        while first and data[first - 1] == _LF:
            first -= 1
        end -= (end - first) % 2
        if end < len(data):
            self._hold(data[end:])
        return data[:end]

    def close(self) -> list[Frame]:
        """Return the last frame if it has no blank line, else nothing.

        Raises:
            FrameTooLarge: a frame exceeds the limit, and `feed` has not raised the error yet.
        """
        if self._is_broken:
            raise self._too_large()
        rest = self.rest()
        return [parse_lines(rest, is_first=self._at_start)] if rest else []

    def rest(self) -> bytes:
        """Return the bytes that are in no frame yet, and forget them."""
        rest = self._late_lf + self._join()
        self._late_lf = b""
        return rest

    def _join(self) -> bytes:
        joined = b"".join(self._pending)
        self._pending.clear()
        self._pending_size = 0
        self._seam = b""
        return joined

    def _within_limit(self, frames: list[Frame]) -> list[Frame]:
        """The frames before the first one that is too large. If there are none, raises; else the next call raises."""
        # The LF of a last CRLF does not count: it may come after its frame.
        sizes = [len(frame.raw) - frame.raw.endswith(b"\r\n") for frame in frames]
        sizes.append(self._pending_size)
        bad = next((index for index, size in enumerate(sizes) if size > self._max_frame), None)
        if bad is None:
            return frames
        self._pending[:0] = [frame.raw for frame in frames[bad:]]
        self._is_broken = True
        if bad == 0:
            raise self._too_large()
        return frames[:bad]

    def _too_large(self) -> FrameTooLarge:
        # A new error each time: one that is kept refers, by its traceback, to the parser and to the bytes of the frame, and this
        # cycle would wait for the garbage collector. The message omits the length: it would depend on how the stream was cut into reads.
        return FrameTooLarge(
            f"expected an SSE frame of at most {self._max_frame} bytes, got a longer one"
        )

    def _hold(self, data: bytes) -> None:
        self._pending.append(data)
        self._pending_size += len(data)
        self._seam = (self._seam + data)[-3:] if len(data) < 3 else data[-3:]

    def _has_end(self, data: bytes) -> bool:
        """Whether a frame ends in `data`, or where the pending bytes and `data` meet."""
        if not self._has_cr:
            return b"\n\n" in data or b"\n\n" in self._seam + data[:1]
        data = self._seam + data
        end = _FRAME_END.search(data)
        return end is not None and not _is_half(end)

    def _split_lf(self, data: bytes) -> list[Frame]:
        """The fast path: no CR so far. Reads the two shapes that servers send without splitting lines."""
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
        """`known`: how many bytes at the start are known to hold no end of a frame; only their last ones may begin one."""
        frames: list[Frame] = []
        start = 0
        for end in _FRAME_END.finditer(data, max(0, known - _LONGEST_END)):
            if _is_half(end):
                break
            frames.append(_parse_crlf(data[start : end.end()]))
            start = end.end()
        if start < len(data):
            self._hold(data[start:])
        elif frames:
            self._after_cr = data[-1] == _CR
        return frames


def _is_half(end: re.Match[bytes]) -> bool:
    return end.end() == len(end.string) and end[0] == _HALF_END


def portions(block: bytes) -> Iterator[bytes]:
    """Split a block into portions of a few dozen whole frames, so that the values made from them stay in the CPU cache."""
    at = 0
    while len(block) - at > _PORTION:
        blank = first = block.find(b"\n\n", at + _PORTION)
        if blank < 0:
            break
        # In a run of more than two line ends, pairs are counted from the first.
        while first > at and block[first - 1] == _LF:
            first -= 1
        end = blank + 2 - (blank - first) % 2
        yield block[at:end]
        at = end
    if at < len(block):
        yield block[at:]


def data_lines(block: bytes) -> list[bytes] | None:
    """The data of whole frames, without a parser, if each of them is an event line and a data line in UTF-8; else None.

    So the gateway writes every frame of a Responses stream, but for keep-alives; and so OpenAI writes them.
    """
    lines = block.split(b"\n")
    count = len(lines) // 3
    if (
        len(lines) != 3 * count + 1
        or any(lines[2::3])
        or not block.startswith(b"event: ")
        or block.count(b"\n\nevent: ") != count - 1
        or block.count(b"\ndata: ") != count
        or _CR in block
        or not (block.isascii() or is_utf8(block))
    ):
        return None
    return [line[6:] for line in lines[1::3]]


def _parse_crlf(raw: bytes) -> Frame:
    """Parse a frame that is not the first. One data line with CRLF, as many Python servers send, takes a fast path."""
    if raw.startswith(b"data: ") and raw.endswith(b"\r\n\r\n"):
        data = raw[6:-4]
        if _CR not in data and _LF not in data and (raw.isascii() or is_utf8(raw)):
            return Frame(raw, data)
    return parse_lines(raw, is_first=False)


def begins_stream(data: bytes) -> bool:
    """Whether the first bytes of an answer are those of a stream. Some servers do not declare it in the content type."""
    begin = data[:64].removeprefix(_BOM).lstrip()
    return begin.startswith((b"data:", b"event:", b":", b"id:", b"retry:"))


def parse_lines(raw: bytes, *, is_first: bool = True) -> Frame:
    """Parse one frame by the complete rules, line by line. `is_first`: it opens the stream, perhaps with a byte order mark."""
    valid = raw.isascii() or is_utf8(raw)
    data = _joined_values(raw if valid else _repaired(raw), b"data", is_first=is_first)
    return Frame(raw, data, not valid, is_first)


def _values(raw: bytes, field: bytes, *, is_first: bool) -> list[bytes]:
    """The values of one field. A line is the name, a colon and one optional space; without a colon the value is empty."""
    blocks = _some_lines(raw.removeprefix(_BOM) if is_first else raw)
    return [value for lines in blocks for value in _values_of_lines(lines, field)]


def _joined_values(raw: bytes, field: bytes, *, is_first: bool) -> bytes | None:
    """The values of one field, joined by LF; None if there are none. Avoids a list of millions, which is slow to free."""
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
    """Blocks of whole lines, not too many at a time: a frame may have millions of lines."""
    start = 0
    if len(raw) > _PORTION:
        raw = raw.replace(b"\r", b"\n")  # the extra blank lines are ignored
    while len(raw) - start > _PORTION:
        end = raw.find(b"\n", start + _PORTION) + 1
        if not end:
            break
        yield raw[start:end]
        start = end
    yield raw[start:] if start else raw


def is_utf8(data: bytes) -> bool:
    """Whether all bytes are valid UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _repaired(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode("utf-8")


def encode_frame(data: bytes, name: bytes = b"") -> bytes:
    """A frame as bytes. Each line of `data` becomes a data line; line ends in `name` become spaces."""
    lines = b"\ndata: ".join(_LINE_END.split(data))
    if name:
        return b"event: " + _LINE_END.sub(b" ", name) + b"\ndata: " + lines + b"\n\n"
    return b"data: " + lines + b"\n\n"


def encode_comment(text: str) -> bytes:
    """A comment frame, which only keeps a connection alive."""
    return b": " + b"\n: ".join(_LINE_END.split(text.encode("utf-8", "replace"))) + b"\n\n"
