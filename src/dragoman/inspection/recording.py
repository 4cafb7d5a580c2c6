"""A recorded answer: finds its payloads and their dialect, and rewrites the answer in another dialect.

People record answers with `curl -i`, from a browser, from a log that dropped the blank lines, as one JSON object per line
or as one JSON array. `open_recording` removes what surrounds the payloads (byte order mark, HTTP header block) and returns
SSE frames, or one body.

`recognise` finds the dialect by the shape of the payloads (`dialects.shapes`). The first payload that only one dialect has
decides. Pings and errors, which several dialects share, decide only if there is no such payload.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from dragoman._json import FAST_FAILURES, Raw, as_object, is_strict, typed_decoder
from dragoman.core.fields import quoted
from dragoman.dialects.shapes import (
    DIALECTS,
    DialectName,
    Form,
    Shape,
    frame_fields,
    shape_of_frame,
)
from dragoman.dialects.translate import StreamTranslator, translate_body
from dragoman.errors import FrameTooLarge, MalformedJson, RemoteProtocolError
from dragoman.inspection.terminal_text import visible_line
from dragoman.model.outcome import Loss
from dragoman.sse import Frame, FrameParser, encode_frame, parse_lines

Framing = Literal["sse", "unspaced", "lines", "array", "body"]
"""`unspaced`: SSE lines without the blank lines that end frames. `lines`: one JSON object per line."""

_BOM = b"\xef\xbb\xbf"
# Large enough that feeding takes almost no time, small enough that few steps are in memory at once.
_SLICE = 256 * 1024
# Servers and curl allow far less; longer text without an end is not a header block.
_MAX_HEADERS = 64 * 1024
# A log may begin with a few damaged lines; with more of them its framing is not guessed.
_PROBED_LINES = 50

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
    """An opened recording. `line`: where `body` begins in the file. `status`: the HTTP status, if it was recorded."""

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
        """The lines on which these frames begin. Reads the recording again, so use it for few frames."""
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
            return  # the decoder reports the frame that is too large; the rest cannot be split into frames

    def _group_lines(self) -> Iterator[tuple[int, bytes]]:
        held: list[bytes] = []
        first = self.line
        for line, text in self.numbered_lines():
            if not held:
                first = line
            held.append(text)
            if text.startswith(b"data:"):
                yield first, b"\n".join(held) + b"\n\n"
                held.clear()
        if held:
            yield first, b"\n".join(held) + b"\n\n"

    def _wrap_lines(self) -> Iterator[tuple[int, bytes]]:
        for line, text in self.numbered_lines():
            if text.strip():
                yield line, _make_frame(text.strip())

    def numbered_lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, with their numbers."""
        line_end = b"\n" if b"\n" in self.body else b"\r"
        line, seen = self.line, 0
        for match in _LINE.finditer(self.body):
            line += self.body.count(line_end, seen, match.start())
            seen = match.start()
            yield line, match[0]


def _make_frame(payload: bytes) -> bytes:
    """A frame for a payload that was recorded without one. Its event name is the payload's type, if it has one."""
    try:
        kind = as_object(payload).get("type")
    except MalformedJson:
        kind = None
    name = _NAME.fullmatch(bytes(kind)) if kind is not None else None
    return encode_frame(payload, name[1] if name is not None else b"")


def open_recording(data: bytes) -> Recording:
    """Find the payloads.

    Raises:
        RemoteProtocolError: the bytes are neither SSE nor JSON.
    """
    status: int | None = None
    start = _after_mark(data, 0)
    while (block := _HEADER_BLOCK.match(data, start, start + _MAX_HEADERS)) is not None:
        status = int(block[1])
        start = _after_mark(data, block.end())
    body = data[start:]
    return Recording(body, _find_framing(body), status, 1 + data.count(b"\n", 0, start))


def _after_mark(data: bytes, start: int) -> int:
    return start + len(_BOM) if data.startswith(_BOM, start) else start


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
    return f"text that begins {quoted(head)}" + ("…" if len(text) > 60 else "")


_REQUEST_FIELDS = ("messages", "input", "prompt")
_NAMED_FIELDS = 6  # enough fields to recognise an unknown object, on one line
# How a body that was cut off can still be recognised.
_CUT_SHAPES: tuple[tuple[re.Pattern[bytes], DialectName], ...] = (
    (re.compile(rb'"object"\s*:\s*"chat\.completion'), "chat"),
    (re.compile(rb'"object"\s*:\s*"response"'), "responses"),
    (re.compile(rb'"type"\s*:\s*"message"'), "messages"),
    (re.compile(rb'"choices"\s*:'), "chat"),
    (re.compile(rb'"output"\s*:'), "responses"),
)
# Most deciding fields come early; `usage` and `choices` may come after a very long text.
_CUT_HEAD = 64 * 1024


class Recognised(Struct, frozen=True):
    """A recording whose dialect and form are known."""

    dialect: DialectName
    form: Form
    recording: Recording


def recognise(data: bytes, dialect: DialectName | None = None) -> Recognised:
    """Open a recording and find its dialect, unless the caller names it.

    Raises:
        RemoteProtocolError: the bytes are not a recorded answer. The message says what was expected and what came.
    """
    recording = open_recording(data)
    shape = _find_shape(recording)
    found = dialect or (shape.dialect if shape is not None else None)
    if found is None:
        *names, last = DIALECTS.values()
        raise RemoteProtocolError(
            f"expected an answer of {', '.join(names)} or {last}; got {_describe_recording(recording)}"
        )
    is_body = recording.framing == "body" and (shape is None or shape.form == "body")
    return Recognised(found, "body" if is_body else "stream", recording)


def _find_shape(recording: Recording) -> Shape | None:
    likely: Shape | None = None
    for frame in _frames(recording):
        shape = shape_of_frame(frame)
        if shape is not None and shape.is_sure:
            return shape
        likely = likely or shape
    if likely is None and recording.framing == "body" and not is_strict(recording.body):
        return _read_cut_shape(recording.body[:_CUT_HEAD])
    return likely


def _frames(recording: Recording) -> Iterator[Frame]:
    return (parse_lines(raw) for _, raw in recording.frames())


def _read_cut_shape(head: bytes) -> Shape | None:
    for pattern, dialect in _CUT_SHAPES:
        if pattern.search(head) is not None:
            return Shape(dialect, "body", is_sure=False)
    return None


def _describe_recording(recording: Recording) -> str:
    """A description of payloads that belong to no dialect."""
    has_payloads = False
    for frame in _frames(recording):
        fields = frame_fields(frame)
        if fields:
            return _describe_fields(fields)
        has_payloads = has_payloads or (frame.data is not None and not frame.is_done)
    if recording.framing != "body":
        what = "whose payloads are not JSON objects" if has_payloads else "without payloads"
        return f"a stream {what}"
    if is_strict(recording.body):
        return "an empty JSON object"
    return "JSON that is cut or damaged, with no sign of a dialect in it"


def _describe_fields(fields: Mapping[str, Raw]) -> str:
    for name in _REQUEST_FIELDS:
        if name in fields and "model" in fields:
            return f"what looks like a request (it has `{name}`): record the answer to it"
    names = ", ".join(visible_line(name) for name in list(fields)[:_NAMED_FIELDS])
    return f"JSON with the fields {names}" + (", …" if len(fields) > _NAMED_FIELDS else "")


class Rewritten(Struct, frozen=True):
    data: bytes
    losses: tuple[Loss, ...] = ()


def rewrite(recognised: Recognised, target: DialectName) -> Rewritten:
    """Write the answer in the target dialect: a stream as a stream, a body as a body.

    If the target is the recording's own dialect, the result is the answer in that dialect's regular form.
    """
    recording = recognised.recording
    if recognised.form == "body":
        return Rewritten(translate_body(recording.body, recognised.dialect, target).body)
    translator = StreamTranslator(recognised.dialect, target)
    pieces = [translator.feed(piece) for piece in recording.stream()]
    pieces.append(translator.close())
    return Rewritten(b"".join(pieces), translator.losses)
