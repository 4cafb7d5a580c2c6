"""However an answer was recorded, its payloads come out as the frames a decoder numbers."""

import pytest

from dragoman.errors import RemoteProtocolError
from dragoman.inspection.envelope import Recording, open_recording

ONE, TWO = b'{"n":1}', b'{"n":2}'


def frames(recording: Recording) -> list[tuple[int, bytes]]:
    return list(recording.frames())


def test_a_stream_is_passed_on_byte_for_byte() -> None:
    data = b"data: " + ONE + b"\n\n: hi\n\ndata:" + TWO
    recording = open_recording(data)
    assert recording.framing == "sse"
    assert b"".join(recording.stream()) == data
    assert frames(recording) == [
        (1, b"data: " + ONE + b"\n\n"),
        (3, b": hi\n\n"),
        (5, b"data:" + TWO),
    ]


def test_a_long_stream_comes_in_pieces() -> None:
    data = (b"data: " + ONE + b"\n\n") * 50_000
    recording = open_recording(data)
    pieces = list(recording.stream())
    assert len(pieces) > 1
    assert b"".join(pieces) == data
    assert recording.locate([50_000]) == {50_000: 99_999}


def test_a_frame_begins_after_the_blank_line_that_belongs_to_it() -> None:
    recording = open_recording(b"data: " + ONE + b"\n\n\ndata: " + TWO + b"\n\n")
    assert [line for line, _ in recording.frames()] == [1, 4]


def test_lines_are_counted_in_files_with_bare_carriage_returns() -> None:
    recording = open_recording(b"data: " + ONE + b"\r\rdata: " + TWO + b"\r\r")
    assert recording.locate([1, 2]) == {1: 1, 2: 3}


def test_a_byte_order_mark_and_crlf_are_no_obstacle() -> None:
    recording = open_recording(b"\xef\xbb\xbfdata: " + ONE + b"\r\n\r\ndata: " + TWO + b"\r\n\r\n")
    assert recording.framing == "sse"
    assert recording.locate([2]) == {2: 3}


def test_http_header_blocks_are_skipped_and_the_last_status_kept() -> None:
    headers = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/2 429 \r\ncontent-type: application/json\r\n\r\n"
    recording = open_recording(headers + b'{"error":{}}')
    assert recording == Recording(b'{"error":{}}', "body", 429, 6)


def test_header_blocks_with_bare_line_feeds_are_skipped_too() -> None:
    recording = open_recording(b"HTTP/1.1 200 OK\ncontent-type: x\n\ndata: " + ONE + b"\n\n")
    assert (recording.status, recording.line, recording.framing) == (200, 4, "sse")


def test_data_lines_without_blank_lines_are_one_frame_each() -> None:
    recording = open_recording(
        b"event: a\ndata: " + ONE + b"\nevent: b\nid: 7\ndata: " + TWO + b"\ndata: [DONE]\n: bye\n"
    )
    assert recording.framing == "unspaced"
    assert frames(recording) == [
        (1, b"event: a\ndata: " + ONE + b"\n\n"),
        (3, b"event: b\nid: 7\ndata: " + TWO + b"\n\n"),
        (6, b"data: [DONE]\n\n"),
        (7, b": bye\n\n"),
    ]
    assert b"".join(recording.stream()) == b"".join(raw for _, raw in recording.frames())


def test_a_payload_spread_over_data_lines_is_one_frame() -> None:
    assert open_recording(b'data: {\ndata: "n":1}\n\n').framing == "sse"


def test_an_event_line_after_its_data_line_is_no_sign_of_lost_blank_lines() -> None:
    assert (
        open_recording(b"data: " + ONE + b"\nevent: a\n\ndata: " + TWO + b"\n\n").framing == "sse"
    )


def test_a_stream_of_comments_is_a_stream() -> None:
    assert open_recording(b": ping\n\n: ping\n\n").framing == "sse"


def test_json_lines_become_frames() -> None:
    recording = open_recording(b"\n" + ONE + b"\r\n  \n" + TWO + b"\n[DONE]\n")
    assert recording.framing == "lines"
    assert frames(recording) == [
        (2, b"data: " + ONE + b"\n\n"),
        (4, b"data: " + TWO + b"\n\n"),
        (5, b"data: [DONE]\n\n"),
    ]
    assert recording.locate([2]) == {2: 4}


def test_a_payload_without_a_frame_gets_the_event_name_its_type_says() -> None:
    recording = open_recording(b'{"type":"message_stop"}\n{"type":"a\\nb"}\n{"type":7}\n')
    assert frames(recording) == [
        (1, b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        (2, b'data: {"type":"a\\nb"}\n\n'),
        (3, b'data: {"type":7}\n\n'),
    ]


def test_json_lines_whose_first_is_damaged_are_still_lines() -> None:
    assert open_recording(b'{"n":\n' + TWO + b"\n").framing == "lines"


def test_a_json_array_of_payloads_becomes_frames() -> None:
    recording = open_recording(b"[\n " + ONE + b',\n {\n"n":2}\n]\n')
    assert recording.framing == "array"
    assert frames(recording) == [
        (1, b"data: " + ONE + b"\n\n"),
        (1, b'data: {\ndata: "n":2}\n\n'),
    ]
    assert recording.locate([1]) == {}


@pytest.mark.parametrize(
    "body", [ONE, b'{\n  "n": 1,\n  "m": {}\n}\n', b'{\n "n": [\n  {}\n', b'{"n":']
)
def test_one_json_object_is_a_body_even_if_it_is_cut(body: bytes) -> None:
    recording = open_recording(body)
    assert recording.framing == "body"
    assert recording.body == body
    assert len(frames(recording)) == 1
    assert recording.locate([1]) == {}


def test_nothing_wanted_is_nothing_located() -> None:
    assert open_recording(b"data: " + ONE + b"\n\n").locate([]) == {}


def test_a_frame_that_is_not_there_is_not_located() -> None:
    assert open_recording(b"data: " + ONE + b"\n\n").locate([1, 9]) == {1: 1}


def test_a_frame_beyond_the_limit_ends_the_search() -> None:
    recording = open_recording(b"data: " + ONE + b"\n\ndata: " + b"x" * (65 * 1024 * 1024))
    assert recording.locate([1, 2]) == {1: 1}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b" \n\t", "nothing but white space"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "nothing but white space"),
        (b"HTTP/1.1 200 OK\r\ncontent-type", "header block without a body"),
        (b"<html>", "HTML"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xff\xfe{\x00", "UTF-16"),
        (b"\xfe\xff\x00{", "UTF-16"),
        (b"\x89PNG\x00\x00", "binary"),
        (b"hello \x1b[1m", r"text that begins 'hello \\x1b[1m'"),
        (b"h" * 99, "…"),
    ],
)
def test_other_bytes_are_refused_with_words_for_what_they_are(data: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        open_recording(data)
    assert words in caught.value.message
    assert "expected" in caught.value.message
    assert "\n" not in caught.value.message
