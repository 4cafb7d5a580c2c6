"""Server-sent events: exact frames from any cutting, agreement with the plain rules, limits, and linear work."""

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragoman.errors import FrameTooLarge
from dragoman.sse import (
    MAX_FRAME_BYTES,
    Frame,
    FrameParser,
    encode_comment,
    encode_frame,
    parse_lines,
    portions,
)
from strategies import byte_by_byte, chunkings, rechunk

BOM = b"\xef\xbb\xbf"


def frames_of(reads: Iterable[bytes]) -> list[Frame]:
    parser = FrameParser()
    frames = [frame for read in reads for frame in parser.feed(read)]
    return frames + parser.close()


class Message(NamedTuple):
    """What the WHATWG algorithm dispatches, and what else it learnt between two blank lines."""

    data: str | None
    name: str
    last_id: str | None
    retry: int | None
    comments: tuple[str, ...]


class ReferenceParser:
    """The parsing rules of html.spec.whatwg.org word for word, on the whole stream, line by line.

    Two deviations, those of the implementation: a last block without its blank line is delivered, and blocks without
    data are shown too (as None) so that their other fields can be compared.
    """

    def __init__(self, stream: bytes) -> None:
        self.messages: list[Message] = []
        self._id: str | None = None
        self._retry: int | None = None
        self._clear()
        for line in self._lines(stream.decode("utf-8", "replace").removeprefix("\ufeff")):
            if line == "":
                self._dispatch()
            elif line.startswith(":"):
                self._comments.append(line[1:].removeprefix(" "))
            elif ":" in line:
                field, value = line.split(":", 1)
                self._process(field, value.removeprefix(" "))
            else:
                self._process(line, "")
        self._dispatch()

    @staticmethod
    def _lines(text: str) -> Iterable[str]:
        line: list[str] = []
        previous = ""
        for character in text:
            if character == "\n" and previous == "\r":
                pass  # second half of a CRLF
            elif character in "\r\n":
                yield "".join(line)
                line = []
            else:
                line.append(character)
            previous = character
        if line:
            yield "".join(line)

    def _process(self, field: str, value: str) -> None:
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id" and "\0" not in value:
            self._id = value
        elif field == "retry" and value and all(each in "0123456789" for each in value):
            # nine digits: the limit of the implementation, which no server reaches
            self._retry = int(value) if len(value) <= 9 else self._retry

    def _dispatch(self) -> None:
        data = "\n".join(self._data) if self._data else None
        message = Message(data, self._name, self._id, self._retry, tuple(self._comments))
        if message != Message(None, "", None, None, ()):
            self.messages.append(message)
        self._clear()

    def _clear(self) -> None:
        self._data: list[str] = []
        self._name = ""
        self._id = None
        self._retry = None
        self._comments: list[str] = []


def message_of(frame: Frame) -> Message:
    return Message(
        None if frame.data is None else frame.data.decode(),
        frame.name.decode(),
        None if frame.id is None else frame.id.decode(),
        frame.retry,
        () if frame.comment is None else tuple(frame.comment.decode().split("\n")),
    )


def meaning(frames: Iterable[Frame]) -> list[Message]:
    messages = [message_of(frame) for frame in frames]
    return [message for message in messages if message != Message(None, "", None, None, ())]


def flags(frames: Iterable[Frame]) -> list[tuple[bool, bool]]:
    """Of frames that are more than a line end: whether a late LF is a frame of its own depends on the cutting."""
    return [(frame.invalid_utf8, frame.is_first) for frame in frames if frame.raw.strip(b"\r\n")]


PIECES = (
    *(b"data: ", b"data:", b"data", b"event: ", b"event:", b"id: ", b"id", b"retry: ", b"retry:7", b":", b": c"),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b" ", b"{}", b"[DONE]", b"\0", b"12", b"x"),
    *(BOM, "é".encode(), "\u2028".encode(), "😀".encode(), b"\xff", b"\xe2\x80", b"\xf0\x9f", b"\xe2\n", b"\x85"),
    *(b"data: {}\n\n", b"event: a\ndata: b\n\n", b"data: a\r\n\r\n", b"data: a\ndata: b\n\n"),
)  # fmt: skip


def streams() -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join) | st.binary(max_size=30)


@settings(max_examples=200)
@given(streams(), st.data())
@example(BOM + b"data: a\n\n" + BOM + b"data: b\n\n", None)
@example(b"\n" + BOM + b"data: a\n\n", None)
@example(b"event: x\n\ndata: a\n\n", None)
@example(b"data: a\r\n\r\ndata: b\n\rdata: c\r\r\ndata: d", None)
def test_every_cutting_agrees_with_the_plain_rules(
    stream: bytes, data: st.DataObject | None
) -> None:
    expected = ReferenceParser(stream).messages
    whole = frames_of([stream])
    assert meaning(whole) == expected
    cuttings = [byte_by_byte(stream), data.draw(chunkings(stream)) if data else rechunk(stream)[2]]
    for reads in cuttings:
        frames = frames_of(reads)
        assert meaning(frames) == expected
        assert flags(frames) == flags(whole)
        assert b"".join(frame.raw for frame in frames) == stream


@settings(max_examples=200)
@given(streams())
def test_the_fast_paths_read_a_frame_as_the_complete_rules_do(stream: bytes) -> None:
    for index, frame in enumerate(frames_of([stream])):
        slow = parse_lines(frame.raw, is_first=index == 0)
        assert (frame.data, frame.invalid_utf8) == (slow.data, slow.invalid_utf8)


def test_comments_joined_over_lines_are_distinguished_from_the_data() -> None:
    (frame,) = frames_of([b": one\n:two\ndata: x\n\n"])
    assert (frame.comment, frame.data) == (b"one\ntwo", b"x")


@pytest.mark.parametrize(
    ("stream", "datas"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\n\r\ndata: b\r\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\n\ndata: c\r\r", [b"a", b"b", b"c"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
        (b"event: e\ndata: a\n\n", [b"a"]),
        (b"event: e\nid: 1\ndata: a\n\n", [b"a"]),
        (b"event: e\ndata: a\ndata: b\n\n", [b"a\nb"]),
        (b"event: e\ndata:a\n\n", [b"a"]),
        (b"event: e\n\n", [None]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a \n\n", [b" a "]),
        (b"data\n\n", [b""]),
        (b"data:\n\n", [b""]),
        (b"data: \n\n", [b""]),
        (b"data\ndata\n\n", [b"\n"]),
        (b"data: a:b: c\n\n", [b"a:b: c"]),
        (b"dataa: b\n\n", [None]),
        (b"Data: b\n\n", [None]),
        (b" data: b\n\n", [None]),
        (b": comment\n\n", [None]),
        (b"\n\n\ndata: a\n\n\n\n", [None, b"a", None]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data: a\r", [b"a"]),
        (b"", []),
        (BOM + b"data: a\n\n", [b"a"]),
        (BOM, [None]),
        (BOM + b"\ndata: a\n\n", [b"a"]),
        (BOM + BOM + b"data: a\n\n", [None]),
        (b"data: a\n\n" + BOM + b"data: b\n\n", [b"a", None]),
        (b"data: a\r\n\r\n" + BOM + b"data: b\r\n\r\n", [b"a", None]),
        (b"\n" + BOM + b"data: b\n\n", [None]),
        (BOM + b"data: a", [b"a"]),
        ("data: é漢😀\u2028\u0085\n\n".encode(), ["é漢😀\u2028\u0085".encode()]),
        ("data: é\r\n\r\n".encode(), ["é".encode()]),
    ],
)
def test_frames_are_the_same_however_the_stream_is_cut(
    stream: bytes, datas: list[bytes | None]
) -> None:
    for reads in rechunk(stream):
        frames = frames_of(reads)
        assert [frame.data for frame in frames] == datas
        assert b"".join(frame.raw for frame in frames) == stream
        assert not any(frame.invalid_utf8 for frame in frames)


def test_a_frame_comes_out_with_the_read_that_ends_it() -> None:
    parser = FrameParser()
    assert parser.feed(b"data: a\n") == []
    assert [frame.data for frame in parser.feed(b"\n")] == [b"a"]
    assert [frame.data for frame in parser.feed(b"data: b\r\n\r\n")] == [b"b"]


def test_a_cr_and_an_lf_in_two_reads_are_one_line_end() -> None:
    """M138."""
    parser = FrameParser()
    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\ndata: b\r") == []
    (frame,) = parser.feed(b"\n\r\n")
    assert frame.data == b"a\nb"
    assert parser.feed(b"data: c\r\n\r") == []
    (frame,) = parser.feed(b"\n")
    assert frame.raw == b"data: c\r\n\r\n"


@pytest.mark.parametrize("end", [b"\r\r", b"\n\r"])
def test_a_frame_that_ends_with_a_cr_comes_out_with_the_read_that_ends_it(end: bytes) -> None:
    parser = FrameParser()
    for name in (b"a", b"b"):
        assert [frame.data for frame in parser.feed(b"data: " + name + end)] == [name]
    assert parser.feed(b"") == []
    # The LF completes the CRLF that ended the last frame. It is no blank line, and no byte is lost.
    assert parser.feed(b"\n") == []
    assert parser.feed(b"data: c\r") == []
    (frame,) = parser.feed(b"\r")
    assert (frame.raw, frame.data, frame.name) == (b"\ndata: c\r\r", b"c", b"")
    assert parser.feed(b"\n") == []
    (frame,) = parser.close()
    assert (frame.raw, frame.data, frame.comment, frame.unknown_field) == (b"\n", None, None, None)


def test_id_retry_and_name_are_read_when_asked_for() -> None:
    (frame,) = frames_of([b"event: a\nevent: b\nid: 1\nid: 2\nretry: 10\nretry: x\ndata: d\n\n"])
    assert (frame.name, frame.id, frame.retry, frame.data) == (b"b", b"2", 10, b"d")


@pytest.mark.parametrize("value", [b"", b"-1", b"1.5", b"1e3", "١".encode(), b"1234567890"])
def test_a_retry_that_is_no_sensible_number_is_ignored(value: bytes) -> None:
    (frame,) = frames_of([b"retry: " + value + b"\n\n"])
    assert frame.retry is None


def test_an_id_with_a_nul_is_ignored() -> None:
    (frame,) = frames_of([b"id: a\nid: b\0\n\n"])
    assert frame.id == b"a"
    (frame,) = frames_of([b"id\n\n"])
    assert frame.id == b""


def test_fields_that_never_came_are_absent() -> None:
    frame = Frame(b"\n\n")
    assert (frame.name, frame.comment, frame.id, frame.retry) == (b"", None, None, None)


@pytest.mark.parametrize(
    ("data", "is_done"),
    [
        (b"[DONE]", True),
        (b" [DONE] ", True),
        (b"[done]", True),
        (b"[Done]\t", True),
        (b"[DONE", False),
        (b'"[DONE]"', False),
        (b"", False),
        (None, False),
    ],
)
def test_the_done_marker_is_known_in_its_variants(data: bytes | None, is_done: bool) -> None:
    assert Frame(b"", data).is_done == is_done


@pytest.mark.parametrize(
    "line", [b"data: [DONE]", b"data:[DONE]", b"data: [DONE]  ", b"data:  [DONE]"]
)
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n", b""])
def test_the_done_marker_is_found_on_any_wire(line: bytes, end: bytes) -> None:
    """M140: no space, trailing blanks, no blank line."""
    for reads in rechunk(line + end):
        assert [frame.is_done for frame in frames_of(reads)] == [True]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("head", [b"", b"event: \xffe\n", b": \xff\n", b"id: \xff\n"])
def test_invalid_utf_8_is_flagged_and_the_stream_goes_on(head: bytes, end: bytes) -> None:
    stream = head + b"data: a\xffb\xe2\x80" + end + b"data: c" + end
    for reads in rechunk(stream):
        bad, good = frames_of(reads)
        assert (bad.data, bad.invalid_utf8) == ("a\ufffdb\ufffd".encode(), True)
        assert bad.raw == head + b"data: a\xffb\xe2\x80" + end
        for value in (bad.name, bad.comment or b"", bad.id or b""):
            value.decode()
        assert (good.data, good.invalid_utf8) == (b"c", False)


def test_a_character_cut_by_the_end_of_the_stream_is_flagged() -> None:
    (frame,) = frames_of([b"data: \xf0\x9f"])
    assert (frame.data, frame.invalid_utf8) == ("\ufffd".encode(), True)


def test_lines_cut_at_read_boundaries_are_whole() -> None:
    """M142: neither half of a cut line is lost."""
    parser = FrameParser()
    assert parser.feed(b'data: {"a') == []
    assert [frame.data for frame in parser.feed(b'":1}\n\n')] == [b'{"a":1}']


def test_comments_are_no_data() -> None:
    """M145: a comment is never mistaken for a payload."""
    (frame,) = frames_of([b": OPENROUTER PROCESSING\n\n"])
    assert (frame.data, frame.comment) == (None, b"OPENROUTER PROCESSING")


# --- the contract of SSE clients ----------------------------------------------------------------------------------------


class Dispatched(NamedTuple):
    """An event as a browser's EventSource hands it to a program."""

    data: str
    name: str = "message"
    last_id: str = ""


def dispatched_while_open(reads: Iterable[bytes]) -> list[Dispatched]:
    """Return the events that come while the connection stays open. Ids stay in force; events without data do not count."""
    parser = FrameParser()
    events: list[Dispatched] = []
    last_id = ""
    for frame in (frame for read in reads for frame in parser.feed(read)):
        last_id = last_id if frame.id is None else frame.id.decode()
        if frame.data is not None:
            name = frame.name.decode() or "message"
            events.append(Dispatched(frame.data.decode(), name, last_id))
    return events


# Each case is sent with LF, with CRLF and with CR for each line end.
CONTRACT: dict[str, tuple[str, list[Dispatched]]] = {
    "one line": ("data: Bonjour\n\n", [Dispatched("Bonjour")]),
    "no space after the colon": ("data:Bonjour\n\n", [Dispatched("Bonjour")]),
    "only one leading space is removed": ("data:   x \n\n", [Dispatched("  x ")]),
    "a tab is data": ("data:\tx\n\n", [Dispatched("\tx")]),
    "colons inside data": ("data: a: b:c\n\n", [Dispatched("a: b:c")]),
    "several lines are joined by LF": ("data: a\ndata: b\ndata:c\n\n", [Dispatched("a\nb\nc")]),
    "empty lines of data": ("data: a\ndata:\ndata: b\n\n", [Dispatched("a\n\nb")]),
    "empty data at the end": ("data: a\ndata:\n\n", [Dispatched("a\n")]),
    "empty data": ("data:\n\n", [Dispatched("")]),
    "data without a colon": ("data\n\n", [Dispatched("")]),
    "data twice without a colon": ("data\ndata\n\n", [Dispatched("\n")]),
    "two events": ("data: a\n\ndata: b\n\n", [Dispatched("a"), Dispatched("b")]),
    "blank lines between events": ("data: a\n\n\n\n\ndata: b\n\n", [Dispatched("a"), Dispatched("b")]),
    "blank lines first": ("\n\n\ndata: a\n\n", [Dispatched("a")]),
    "a name": ("event: added\ndata: a\n\n", [Dispatched("a", "added")]),
    "a name after the data": ("data: a\nevent: added\n\n", [Dispatched("a", "added")]),
    "a name counts once": ("event: x\ndata: a\n\ndata: b\n\n", [Dispatched("a", "x"), Dispatched("b")]),
    "the last name wins": ("event: x\nevent: y\ndata: a\n\n", [Dispatched("a", "y")]),
    "an empty name is the default": ("event: x\nevent:\ndata: a\n\n", [Dispatched("a")]),
    "a name without a colon": ("event\ndata: a\n\n", [Dispatched("a")]),
    "a name without data": ("event: x\n\ndata: a\n\n", [Dispatched("a")]),
    "an id": ("id: 7\ndata: a\n\n", [Dispatched("a", last_id="7")]),
    "an id stays": ("id: 7\ndata: a\n\ndata: b\n\n", [Dispatched("a", last_id="7"), Dispatched("b", last_id="7")]),
    "an id without data stays": ("id: 7\n\ndata: b\n\n", [Dispatched("b", last_id="7")]),
    "an id is replaced": ("id: 7\ndata: a\n\nid: 8\ndata: b\n\n", [Dispatched("a", last_id="7"), Dispatched("b", last_id="8")]),
    "an empty id clears it": ("id: 7\ndata: a\n\nid:\ndata: b\n\n", [Dispatched("a", last_id="7"), Dispatched("b")]),
    "an id without a colon clears it": ("id: 7\ndata: a\n\nid\ndata: b\n\n", [Dispatched("a", last_id="7"), Dispatched("b")]),
    "an id with a NUL is ignored": ("id: 7\ndata: a\n\nid: 8\0\ndata: b\n\n", [Dispatched("a", last_id="7"), Dispatched("b", last_id="7")]),
    "a NUL in data is data": ("data: a\0b\n\n", [Dispatched("a\0b")]),
    "a comment": (": hello\ndata: a\n\n", [Dispatched("a")]),
    "a comment without a space": (":hello\n\ndata: a\n\n", [Dispatched("a")]),
    "an empty comment": (":\ndata: a\n:\n\n", [Dispatched("a")]),
    "a comment that looks like a field": (":data: x\ndata: a\n\n", [Dispatched("a")]),
    "a comment within data": ("data: a\n: c\ndata: b\n\n", [Dispatched("a\nb")]),
    "only comments": (": a\n\n: b\n\n", []),
    "a retry": ("retry: 250\ndata: a\n\n", [Dispatched("a")]),
    "a retry alone": ("retry: 250\n\ndata: a\n\n", [Dispatched("a")]),
    "a retry that is no number": ("retry: soon\ndata: a\n\n", [Dispatched("a")]),
    "an unknown field": ("color: red\ndata: a\n\n", [Dispatched("a")]),
    "an unknown field without a colon": ("color\ndata: a\n\n", [Dispatched("a")]),
    "names of fields have a case": ("Data: x\nEVENT: y\ndata: a\n\n", [Dispatched("a")]),
    "a space before a field makes another field": (" data: x\ndata: a\n\n", [Dispatched("a")]),
    "a field that only begins like data": ("database: x\ndata: a\n\n", [Dispatched("a")]),
    "a byte order mark first": ("\ufeffdata: a\n\n", [Dispatched("a")]),
    "a second byte order mark": ("\ufeff\ufeffdata: x\n\ndata: a\n\n", [Dispatched("a")]),
    "a byte order mark later": ("data: a\n\n\ufeffdata: x\n\ndata: b\n\n", [Dispatched("a"), Dispatched("b")]),
    "characters of two to four bytes": ("data: \u00e9\u20ac\U0001f600\n\n", [Dispatched("\u00e9\u20ac\U0001f600")]),
    "line ends of Unicode are data": ("data: a\x85b\u2028c\x0bd\n\n", [Dispatched("a\x85b\u2028c\x0bd")]),
    "without its blank line": ("data: a\n\ndata: b\n", [Dispatched("a")]),
    "without any line end": ("data: a\n\ndata: b", [Dispatched("a")]),
    "a long line": ("data: " + "x" * 9_000 + "\n\ndata: b\n\n", [Dispatched("x" * 9_000), Dispatched("b")]),
}  # fmt: skip

MIXED: dict[bytes, list[Dispatched]] = {
    b"data: a\rdata: b\ndata: c\r\n\r\n": [Dispatched("a\nb\nc")],
    b"data: a\n\r\ndata: b\r\n\ndata: c\r\r": [*map(Dispatched, "abc")],
    b"data: a\r\ndata: b\n\rdata: c\r\r\ndata: d\n\n": [*map(Dispatched, ("a\nb", "c", "d"))],
    b"data: a\r\n\rdata: b\r\n\r\n": [*map(Dispatched, "ab")],
    b"data: a\r\r\n\ndata: b\n\r": [*map(Dispatched, "ab")],
    b"data: a\r\r\r\r\ndata: b\r\r": [*map(Dispatched, "ab")],
    b"\xef\xbb\xbf\r\rdata: a\r\r": [Dispatched("a")],
}


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("case", CONTRACT)
def test_events_come_while_the_connection_is_open(case: str, end: bytes) -> None:
    text, events = CONTRACT[case]
    stream = text.encode().replace(b"\n", end)
    for reads in rechunk(stream):
        assert dispatched_while_open(reads) == events
        assert b"".join(frame.raw for frame in frames_of(reads)) == stream


@pytest.mark.parametrize("stream", MIXED)
def test_events_come_with_any_mixture_of_line_ends(stream: bytes) -> None:
    for reads in rechunk(stream):
        assert dispatched_while_open(reads) == MIXED[stream]
        assert b"".join(frame.raw for frame in frames_of(reads)) == stream


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_the_time_to_reconnect_is_the_last_number_given(end: bytes) -> None:
    for reads in rechunk(b"retry: 9\nretry: 250\nretry: x\n\n".replace(b"\n", end)):
        assert [frame.retry for frame in frames_of(reads)] == [250]


# --- limits ----------------------------------------------------------------------------------------------------------

SMALL = 24
GOOD = b"data: good\n\n"
BIG = b"data: " + b"x" * SMALL + b"\n\n"


def drain(parser: FrameParser, reads: Iterable[bytes]) -> tuple[list[Frame], str, bytes]:
    """The frames, the error and the bytes left over, as a caller that stops at the error sees them."""
    frames: list[Frame] = []
    remaining = iter(reads)
    try:
        for read in remaining:
            frames += parser.feed(read)
        frames += parser.close()
    except FrameTooLarge as error:
        return frames, error.message, parser.rest() + b"".join(remaining)
    return frames, "", parser.rest()


@pytest.mark.parametrize(
    ("stream", "good"),
    [
        (GOOD + BIG + GOOD, 1),
        (BIG, 0),
        (GOOD + GOOD + BIG, 2),
        (GOOD + BIG.rstrip(), 1),
        (GOOD + BIG.replace(b"\n", b"\r\n") + GOOD, 1),
        (GOOD.replace(b"\n", b"\r") + BIG.replace(b"\n", b"\r"), 1),
        (GOOD + b": " + b"c" * 60 + b"\n\n" + GOOD, 1),
    ],
)
def test_a_frame_over_the_limit_is_an_error_after_the_frames_before_it(
    stream: bytes, good: int
) -> None:
    """M143. Also when it stands complete inside one big read; and no byte is lost."""
    for reads in rechunk(stream):
        frames, message, rest = drain(FrameParser(SMALL), reads)
        assert message == "expected an SSE frame of at most 24 bytes, got a longer one"
        assert [frame.data for frame in frames] == [b"good"] * good
        assert b"".join(frame.raw for frame in frames) + rest == stream


@given(streams(), st.integers(1, 12), st.data())
@example(b"x\r\r\n", 3, None)
@example(b"x\r\n\r\n", 4, None)
@example(b"x\r\n\r\n", 3, None)
def test_the_limit_does_not_depend_on_the_cutting(
    stream: bytes, limit: int, data: st.DataObject | None
) -> None:
    whole = drain(FrameParser(limit), [stream])
    reads = data.draw(chunkings(stream)) if data else byte_by_byte(stream)
    cut = drain(FrameParser(limit), reads)
    for frames, _, rest in (whole, cut):
        assert b"".join(frame.raw for frame in frames) + rest == stream
    assert (meaning(cut[0]), cut[1]) == (meaning(whole[0]), whole[1])
    message = whole[1]
    # The LF of a last CRLF does not count: it may come when the frame is out already.
    raws = [frame.raw for frame in frames_of([stream])]
    sizes = [len(raw) - raw.endswith((b"\r\r\n", b"\n\r\n")) for raw in raws]
    assert bool(message) == any(size > limit for size in sizes)


def test_a_frame_of_exactly_the_limit_is_accepted() -> None:
    stream = b"data: " + b"x" * (SMALL - 8) + b"\n\n"
    assert len(stream) == SMALL
    for reads in rechunk(stream * 3):
        frames, message, _ = drain(FrameParser(SMALL), reads)
        assert (len(frames), message) == (3, "")


def test_after_the_error_no_more_frames_come() -> None:
    parser = FrameParser(SMALL)
    assert [frame.data for frame in parser.feed(GOOD + BIG)] == [b"good"]
    for _ in range(2):
        with pytest.raises(FrameTooLarge):
            parser.feed(GOOD)
    with pytest.raises(FrameTooLarge):
        parser.close()
    assert parser.rest() == BIG + GOOD + GOOD
    with pytest.raises(FrameTooLarge):
        parser.feed(GOOD)


def test_the_default_limit_is_far_above_real_frames() -> None:
    (frame,) = frames_of([b"data: " + b"x" * 2**20 + b"\n\n"])
    assert len(frame.raw) < MAX_FRAME_BYTES


# --- work ------------------------------------------------------------------------------------------------------------


class CountingParser(FrameParser):
    """Counts the bytes that are searched for an end and the bytes that are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.searched: list[int] = []
        self.joined: list[int] = []

    def _has_end(self, data: bytes) -> bool:
        self.searched.append(len(data))
        return super()._has_end(data)

    def _join(self) -> bytes:
        joined = super()._join()
        self.joined.append(len(joined))
        return joined


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_a_frame_in_many_reads_is_joined_once(end: bytes) -> None:
    """Ten megabytes in reads of one kilobyte: what is searched and copied grows with the bytes, not their square."""
    size, read = 10 * 2**20, 2**10
    stream = b"data: " + b"x" * size + end
    parser = CountingParser()
    frames = [
        frame
        for start in range(0, len(stream), read)
        for frame in parser.feed(stream[start : start + read])
    ]
    assert [len(frame.raw) for frame in frames] == [len(stream)]
    assert parser.joined == [len(stream)]
    assert sum(parser.searched) <= len(stream) + 3 * len(parser.searched)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_small_frames_byte_by_byte_are_joined_once_each(end: bytes) -> None:
    stream = (b"data: x" + end) * 1_000
    parser = CountingParser()
    frames = [frame for read in byte_by_byte(stream) for frame in parser.feed(read)]
    frames += parser.close()
    assert len(frames) == 1_000
    assert sum(parser.joined) == len(stream)


def test_many_small_frames_in_one_read_are_not_copied_again_and_again() -> None:
    stream = b"data: x\n\n" * 50_000
    parser = FrameParser()
    assert len(parser.feed(stream + b"data: y")) == 50_000
    assert parser.rest() == b"data: y"


# --- writing ---------------------------------------------------------------------------------------------------------


@given(
    st.binary(max_size=30).filter(lambda data: b"\r" not in data),
    st.sampled_from((b"", b"message_start")),
)
def test_a_written_frame_reads_back(data: bytes, name: bytes) -> None:
    for reads in rechunk(encode_frame(data, name)):
        (frame,) = frames_of(reads)
        assert frame.name == name
        if not frame.invalid_utf8:
            assert frame.data == data


def test_line_ends_in_data_become_data_lines() -> None:
    assert encode_frame(b"a\r\nb\rc") == b"data: a\ndata: b\ndata: c\n\n"


def test_line_ends_in_a_name_cannot_break_out_of_it() -> None:
    assert encode_frame(b"x", b"a\ndata: y") == b"event: a data: y\ndata: x\n\n"


@pytest.mark.parametrize("text", ["", "keep-alive", "two\nlines", "é\u2028", "lone \ud83d"])
def test_a_comment_is_only_a_comment(text: str) -> None:
    (frame,) = frames_of([encode_comment(text)])
    assert frame.data is None
    assert frame.comment == text.encode("utf-8", "replace")
    assert not frame.invalid_utf8


# --- for callers that read plain frames themselves ---


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: a\n\n", b"a"),
        (b"data: \n\n", b""),
        (b"data: \xc3\xa9\n\n", b"\xc3\xa9"),
        (b"data: \xc3\n\n", None),
        (b"\xc3ata: a\n\n", None),
        (b"data: a\n", None),
        (b"data: a\nb", None),
        (b"data: a\nid: 1\n\n", None),
        (b"data: a\n\ndata: b\n\n", None),
        (b"data: a\rb\n\n", None),
        (b"data: " + b"a" * 20 + b"\n\n", None),
    ],
)
def test_a_read_that_is_one_line_and_its_end_is_distinguished_from_others(
    data: bytes, expected: bytes | None
) -> None:
    parser = FrameParser(24)
    assert parser.line(data, 6) is None  # it might begin with a byte order mark
    assert parser.block(b"data: x\n\n") == b"data: x\n\n"
    assert parser.line(data, 6) == expected
    assert parser.block(b"data: ") == b""
    assert parser.line(data, 6) is None


@given(
    st.lists(
        st.sampled_from((b"data: a", b": c", b"\n", b"\n\n", b"\n\n\n", b"\r")), max_size=12
    ).map(b"".join),
    st.data(),
)
def test_a_block_is_the_frames_in_one(stream: bytes, data: st.DataObject) -> None:
    splitting, leaving = FrameParser(), FrameParser()
    for read in data.draw(chunkings(stream)):
        frames, block = splitting.feed(read), leaving.block(read)
        if block is None:
            assert leaving.feed(read) == frames
        else:
            assert block == b"".join(frame.raw for frame in frames)
    assert splitting.close() == leaving.close()


@given(
    st.lists(st.sampled_from([b"data: a", b"\n", b"\n\n", b"\n\n\n", b"x" * 20_000]), max_size=40)
)
def test_portions_of_a_block_have_the_frames_of_the_block(words: list[bytes]) -> None:
    block = b"".join(words) + b"y\n\n"
    parts = list(portions(block))
    assert b"".join(parts) == block
    assert [piece for part in parts for piece in part[:-2].split(b"\n\n")] == block[:-2].split(
        b"\n\n"
    )


def test_a_block_is_cut_into_portions_of_tens_of_kilobytes() -> None:
    block = (b"data: " + b"x" * 1_000 + b"\n\n") * 100
    sizes = [len(part) for part in portions(block)]
    assert len(sizes) == 4
    assert max(sizes) < 40_000
