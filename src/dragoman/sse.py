"""Server-sent events: bytes in, frames with their exact bytes out; and frames back to bytes.

Follows the WHATWG parsing rules (html.spec.whatwg.org, "Server-sent events") on bytes, with two deviations that LLM
streams need: a last frame without its blank line is delivered when the input closes, and invalid UTF-8 is reported
on its frame instead of being replaced in silence. Joining `raw` of all frames gives the input back.

A frame ends at two line ends in a row; a blank line that ends nothing belongs to the frame after it. A CR at the end of a read is held until the next byte
shows whether it is half of a CRLF.

Work is linear: a frame that arrives in many reads is joined once, when its end has been seen.
"""

import re

from msgspec import Struct

from dragoman.errors import FrameTooLarge

__all__ = (
    "MAX_FRAME_BYTES",
    "Frame",
    "FrameParser",
    "encode_comment",
    "encode_frame",
    "parse_lines",
)

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Largest frame accepted. Real ones reach some MB (an image, a whole response object); rivals' limits of 64 KB, 1 MB
and 32 MB all broke somebody's large tool call."""

_BOM = b"\xef\xbb\xbf"
# Two line ends in a row. The lookahead keeps one CRLF from being read as CR and LF.
_FRAME_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_MAX_RETRY_DIGITS = 9  # a billion milliseconds; more is no reconnection time but an attack on int()


class Frame(Struct, frozen=True):
    """One frame. `data` is None when it had no data line; its lines are joined by LF.

    `invalid_utf8` says that bytes which are no UTF-8 were replaced by U+FFFD in `data`; `raw` still has them. The other
    fields are seldom asked for and are read from `raw` when they are.
    """

    raw: bytes
    data: bytes | None = None
    invalid_utf8: bool = False

    @property
    def name(self) -> bytes:
        """The event name, empty if none was given."""
        values = _values(self.raw, b"event")
        return values[-1] if values else b""

    @property
    def comment(self) -> bytes | None:
        """The comment lines, joined by LF."""
        values = _values(self.raw, b"")
        return b"\n".join(values) if values else None

    @property
    def id(self) -> bytes | None:
        values = [value for value in _values(self.raw, b"id") if b"\0" not in value]
        return values[-1] if values else None

    @property
    def retry(self) -> int | None:
        """The reconnection time in milliseconds."""
        values = [
            value
            for value in _values(self.raw, b"retry")
            if value.isdigit() and len(value) <= _MAX_RETRY_DIGITS
        ]
        return int(values[-1]) if values else None

    @property
    def is_done(self) -> bool:
        """Whether this is the `[DONE]` marker of the OpenAI dialects, in any of its spellings."""
        return self.data is not None and self.data.strip().upper() == b"[DONE]"


class FrameParser:
    """Splits a byte stream into frames, however it is cut into reads."""

    def __init__(self, max_frame: int = MAX_FRAME_BYTES) -> None:
        self._max_frame = max_frame
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._seam = (
            b""  # the last bytes of what is pending: only they can form an end with the next read
        )
        self._has_cr = False

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that end in `data`.

        Raises:
            FrameTooLarge: a frame exceeds the limit; the parser must not be fed again.
        """
        if not self._has_cr and b"\r" in data:
            self._has_cr = True
        if self._pending:
            if not self._has_end(self._seam + data):
                self._hold(data)
                return []
            self._pending.append(data)
            data = b"".join(self._pending)
            self._pending.clear()
            self._pending_size = 0
        return self._split_general(data) if self._has_cr else self._split_lf(data)

    def close(self) -> list[Frame]:
        """The frame that was left without its end, if any."""
        rest = b"".join(self._pending)
        self._pending.clear()
        self._pending_size = 0
        if not rest:
            return []
        return [parse_lines(rest)]

    def _hold(self, data: bytes) -> None:
        self._pending.append(data)
        self._pending_size += len(data)
        self._seam = (self._seam + data)[-3:] if len(data) < 3 else data[-3:]
        if self._pending_size > self._max_frame:
            raise FrameTooLarge(
                f"expected an SSE frame of at most {self._max_frame} bytes, "
                f"got {self._pending_size} bytes without its end"
            )

    def _has_end(self, data: bytes) -> bool:
        if not self._has_cr:
            return b"\n\n" in data
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
                start = 6
            elif piece.startswith(b"event: "):
                start = piece.find(b"\n") + 7
                if not piece.startswith(b"data: ", start - 6):
                    add(parse_lines(piece + b"\n\n"))
                    continue
            else:
                add(parse_lines(piece + b"\n\n"))
                continue
            if piece.find(b"\n", start) < 0 and (piece.isascii() or _is_utf8(piece)):
                add(Frame(piece + b"\n\n", piece[start:]))
            else:
                add(parse_lines(piece + b"\n\n"))
        if rest:
            self._hold(rest)
        return frames

    def _split_general(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        start = 0
        for end in _FRAME_END.finditer(data):
            if end.end() == len(data) and data.endswith(b"\r"):
                break  # the CR may be half of a CRLF
            frames.append(parse_lines(data[start : end.end()]))
            start = end.end()
        if start < len(data):
            self._hold(data[start:])
        return frames


def parse_lines(raw: bytes) -> Frame:
    """One frame by the complete rules, line by line."""
    valid = raw.isascii() or _is_utf8(raw)
    data = _values(raw if valid else _repaired(raw), b"data")
    return Frame(raw, b"\n".join(data) if data else None, not valid)


def _values(raw: bytes, field: bytes) -> list[bytes]:
    """The values of one field: its name, a colon, one optional space; a line without a colon has an empty value."""
    values: list[bytes] = []
    for line in _LINE_END.split(raw.removeprefix(_BOM)):
        if line:
            name, _, value = line.partition(b":")
            if name == field:
                values.append(value.removeprefix(b" "))
    return values


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _repaired(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode("utf-8")


def encode_frame(data: bytes, name: bytes = b"") -> bytes:
    """A frame as bytes. `data` may hold line ends; each line becomes a data line."""
    lines = b"\ndata: ".join(_LINE_END.split(data))
    if name:
        return b"event: " + name + b"\ndata: " + lines + b"\n\n"
    return b"data: " + lines + b"\n\n"


def encode_comment(text: str) -> bytes:
    """A comment frame: keeps a connection alive and means nothing."""
    return b": " + b"\n: ".join(_LINE_END.split(text.encode("utf-8", "replace"))) + b"\n\n"
