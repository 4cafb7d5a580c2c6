"""What surrounds the payloads of a recording: byte order mark, HTTP header block, and how payloads are set apart.

People record answers with `curl -i`, from a browser, from a log that dropped the blank lines, as one JSON object per
line or as one JSON array. All of these are opened here and come out as SSE frames, or as one body. What the payloads
mean is not known here.
"""

import re
from collections.abc import Collection, Iterator
from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, as_object, typed_decoder
from dragoman.errors import FrameTooLarge, MalformedJson, RemoteProtocolError
from dragoman.inspection.visible import visible_line
from dragoman.sse import FrameParser, encode_frame

__all__ = ("Framing", "Recording", "open_recording")

Framing = Literal["sse", "unspaced", "lines", "array", "body"]
"""`unspaced`: SSE lines without the blank lines that end frames. `lines`: one JSON object per line."""

_BOM = b"\xef\xbb\xbf"
_SLICE = (
    256 * 1024
)  # large enough that feeding costs nothing, small enough that few steps are held at once
_MAX_HEADERS = (
    64 * 1024
)  # servers and curl stop far below; what has no end by then is no header block
_PROBED_LINES = 50  # a log may begin with a few damaged lines; one that is damaged for longer is not worth a guess

_HEADER_BLOCK = re.compile(rb"HTTP/[\d.]+ (\d{3})[^\n]*\n(?:[^\r\n]+\r?\n)*\r?\n")
_LINE = re.compile(rb"[^\r\n]+")
_NAME = re.compile(rb'"([\w.]+)"')
_CONTENT = re.compile(rb"\S")
_SSE_LINE = re.compile(rb"(?:\A|[\r\n])(?:data|event):|\A:")
_DATA_LINE = re.compile(rb"(?:\A|[\r\n])data: ?([^\r\n]*)")
# After a data line: the next line is not blank, and another data line follows before any blank one.
_NO_BLANK = re.compile(rb"(?:\r\n|\n|\r)(?:(?:event|id|retry)?:[^\r\n]*(?:\r\n|\n|\r))*data:")

_decode_array = typed_decoder(list[Raw])


class Recording(Struct, frozen=True):
    """A recording, opened. `line` is where `body` begins in the file; `status` is the HTTP status if one was there."""

    body: bytes
    framing: Framing
    status: int | None = None
    line: int = 1

    def stream(self) -> Iterator[bytes]:
        """The payloads as SSE, in pieces that may be fed to a decoder."""
        if self.framing == "sse":
            for start in range(0, len(self.body), _SLICE):
                yield self.body[start : start + _SLICE]
        else:
            for _, frame in self.frames():
                yield frame

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Each frame with the line of the file it begins on, numbered as a decoder of `stream` numbers them."""
        match self.framing:
            case "sse":
                return self._split_frames()
            case "unspaced":
                return self._group_lines()
            case "lines":
                return self._wrap_lines()
            case "array":
                return ((self.line, _make_frame(bytes(item))) for item in _decode_array(self.body))
            case _:
                return iter(((self.line, _make_frame(self.body)),))

    def locate(self, frames: Collection[int]) -> dict[int, int]:
        """The lines on which these frames begin. Reads the recording again, so it is for the few that matter."""
        wanted = set(frames)
        if not wanted or self.framing in ("array", "body"):
            return {}
        found: dict[int, int] = {}
        for number, (line, _) in enumerate(self.frames(), 1):
            if number in wanted:
                found[number] = line
                if len(found) == len(wanted):
                    break
        return found

    def _split_frames(self) -> Iterator[tuple[int, bytes]]:
        parser = FrameParser()
        line_end = b"\n" if b"\n" in self.body else b"\r"
        line = self.line
        try:
            for piece in self.stream():
                for frame in parser.feed(piece):
                    blank = len(frame.raw) - len(frame.raw.lstrip(b"\r\n"))
                    yield line + frame.raw.count(line_end, 0, blank), frame.raw
                    line += frame.raw.count(line_end)
            for frame in parser.close():
                yield line, frame.raw
        except FrameTooLarge:
            return  # the decoder reports it; nothing after it can be told apart

    def _group_lines(self) -> Iterator[tuple[int, bytes]]:
        held: list[bytes] = []
        first = self.line
        for line, text in self._numbered():
            if not held:
                first = line
            held.append(text)
            if text.startswith(b"data:"):
                yield first, b"\n".join(held) + b"\n\n"
                held.clear()
        if held:
            yield first, b"\n".join(held) + b"\n\n"

    def _wrap_lines(self) -> Iterator[tuple[int, bytes]]:
        for line, text in self._numbered():
            if text.strip():
                yield line, _make_frame(text.strip())

    def _numbered(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, with their numbers."""
        line_end = b"\n" if b"\n" in self.body else b"\r"
        line, seen = self.line, 0
        for match in _LINE.finditer(self.body):
            line += self.body.count(line_end, seen, match.start())
            seen = match.start()
            yield line, match[0]


def _make_frame(payload: bytes) -> bytes:
    """A frame for a payload that was recorded without one. Its event name, where the dialect has any, is its type."""
    try:
        kind = as_object(payload).get("type")
    except MalformedJson:
        kind = None
    name = _NAME.fullmatch(bytes(kind)) if kind is not None else None
    return encode_frame(payload, name[1] if name is not None else b"")


def open_recording(data: bytes) -> Recording:
    """Find the payloads.

    Raises:
        RemoteProtocolError: these bytes are neither SSE nor JSON.
    """
    body = data.removeprefix(_BOM)
    status: int | None = None
    while (block := _HEADER_BLOCK.match(body[:_MAX_HEADERS])) is not None:
        status = int(block[1])
        body = body[block.end() :].removeprefix(_BOM)
    line = 1 + data.count(b"\n", 0, len(data) - len(body))
    return Recording(body, _find_framing(body), status, line)


def _find_framing(body: bytes) -> Framing:
    content = _CONTENT.search(body)
    if content is None:
        raise RemoteProtocolError("expected a recorded answer, got nothing but white space")
    if content[0] in (b"{", b"["):
        return _find_json_framing(body)
    if _SSE_LINE.search(body) is None:
        raise RemoteProtocolError(f"expected an SSE stream or JSON, got {_describe(body)}")
    return "unspaced" if _is_unspaced(body) else "sse"


def _is_unspaced(body: bytes) -> bool:
    """Whether the first data line is a whole payload although no blank line ends its frame."""
    first = _DATA_LINE.search(body)
    return (
        first is not None
        and _NO_BLANK.match(body, first.end()) is not None
        and _is_object(first[1])
    )


def _find_json_framing(body: bytes) -> Framing:
    lines = (match[0] for match in _LINE.finditer(body) if match[0].strip())
    first = next(lines)
    if _is_object(first):
        return "body" if next(lines, None) is None else "lines"
    if _is_object(body):
        return "body"
    try:
        _decode_array(body)
    except FAST_FAILURES:
        probed = (line for _, line in zip(range(_PROBED_LINES), lines, strict=False))
        return "lines" if any(map(_is_object, probed)) else "body"
    return "array"


def _is_object(text: bytes) -> bool:
    """Whether the text is a JSON object with something in it (pretty-printed JSON has lines that are just `{}`)."""
    try:
        return bool(as_object(text))
    except MalformedJson:
        return False


_KNOWN_BYTES = (
    (b"\x1f\x8b", "gzip-compressed bytes (unpack them, or record with curl --compressed)"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed bytes (unpack them, or record with curl --compressed)"),
    (b"\xff\xfe", "UTF-16 text (PowerShell's > writes it; save it as UTF-8)"),
    (b"\xfe\xff", "UTF-16 text (save it as UTF-8)"),
    (b"<", "markup, such as a proxy's HTML error page"),
    (b"HTTP/", "an HTTP header block without a body"),
)


def _describe(body: bytes) -> str:
    text = body.lstrip()
    for start, words in _KNOWN_BYTES:
        if text.startswith(start):
            return words
    if b"\0" in text[:1024]:
        return "binary data"
    head = text[:60].decode("utf-8", "replace")
    return f"text that begins {visible_line(head)!r}" + ("…" if len(text) > 60 else "")
