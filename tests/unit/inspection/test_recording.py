"""Recordings opened, recognised by their payloads, and rewritten in another dialect."""

import json
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import dumps
from dragoman.dialects.shapes import DialectName, Form
from dragoman.errors import GatewayError, RemoteProtocolError
from dragoman.inspection.recording import Recording, open_recording, recognise, rewrite
from dragoman.inspection.report import examine
from dragoman.sse import encode_frame

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


def test_the_work_for_header_blocks_is_linear() -> None:
    blocks = b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000
    began = process_time()
    assert open_recording(blocks + b"data: " + ONE + b"\n\n").status == 100
    assert process_time() - began < 2


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
        (b"hello \x1b[1m", r"text that begins 'hello \x1b[1m'"),
        (rb"C:\new", r"text that begins 'C:\new'"),
        (b"h" * 99, "…"),
    ],
)
def test_other_bytes_are_refused_with_words_for_what_they_are(data: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        open_recording(data)
    assert words in caught.value.message
    assert "expected" in caught.value.message
    assert "\n" not in caught.value.message


SHAPES: list[tuple[dict[str, object], DialectName, Form]] = [
    ({"object": "chat.completion.chunk", "choices": []}, "chat", "stream"),
    ({"object": "chat.completion", "choices": [{"message": {}}]}, "chat", "body"),
    ({"choices": [{"delta": {}}]}, "chat", "stream"),
    ({"choices": [{"message": {}}]}, "chat", "body"),
    ({"choices": None}, "chat", "stream"),
    ({"object": "response", "output": []}, "responses", "body"),
    ({"id": "r", "output": [{"type": "message"}]}, "responses", "body"),
    ({"type": "response.created", "response": {}}, "responses", "stream"),
    ({"type": "response.required_action"}, "responses", "stream"),
    ({"type": "message_start", "message": {}}, "messages", "stream"),
    ({"type": "content_block_stop", "index": 0}, "messages", "stream"),
    (
        {"type": "message", "role": "assistant", "content": [], "stop_reason": None},
        "messages",
        "body",
    ),
    ({"content": [], "stop_reason": "end_turn"}, "messages", "body"),
    ({"type": "error", "error": {"type": "api_error"}}, "messages", "body"),
    ({"type": "error", "message": "x", "code": "y"}, "responses", "stream"),
    ({"type": "error", "error": {}, "sequence_number": 3}, "responses", "stream"),
    ({"type": "keepalive"}, "responses", "stream"),
    ({"type": "ping"}, "messages", "stream"),
    ({"error": {"message": "x"}}, "chat", "body"),
    ({"error": {"message": "x"}, "type": None}, "chat", "body"),
]


@pytest.mark.parametrize(("payload", "dialect", "form"), SHAPES)
def test_a_payload_alone_is_recognised(
    payload: dict[str, object], dialect: DialectName, form: Form
) -> None:
    found = recognise(dumps(payload))
    assert (found.dialect, found.form) == (dialect, form)


@pytest.mark.parametrize(("payload", "dialect", "form"), SHAPES)
def test_a_payload_in_a_frame_is_a_stream(
    payload: dict[str, object], dialect: DialectName, form: Form
) -> None:
    found = recognise(b": hello\n\n" + encode_frame(dumps(payload)))
    assert (found.dialect, found.form) == (dialect, "stream")


def test_pings_and_errors_yield_to_what_only_one_dialect_writes() -> None:
    ping, chunk = dumps({"type": "ping"}), dumps({"object": "chat.completion.chunk"})
    assert recognise(encode_frame(ping) + encode_frame(chunk)).dialect == "chat"
    error = dumps({"error": {}})
    assert recognise(
        encode_frame(error) + encode_frame(dumps({"type": "message_stop"}))
    ).dialect == ("messages")


def test_an_event_name_reports_when_its_payload_is_damaged() -> None:
    assert recognise(encode_frame(b'{"type":"mess', b"message_start")).dialect == "messages"
    assert recognise(encode_frame(b"", b"response.created")).dialect == "responses"


def test_a_damaged_frame_before_a_good_one_is_skipped() -> None:
    good = encode_frame(dumps({"object": "chat.completion.chunk"}))
    assert recognise(encode_frame(b"{") + encode_frame(b"[DONE]") + good).dialect == "chat"


@pytest.mark.parametrize(
    ("data", "dialect"),
    [
        (b'{"id":"x","object":"chat.completion","cho', "chat"),
        (b'{\n "object" : "response",\n', "responses"),
        (b'{"type":"message","role', "messages"),
        (b'{"id":"x","choices":[{', "chat"),
        (b'{"id":"x","output":[{', "responses"),
    ],
)
def test_a_body_that_is_cut_still_reports_its_dialect(data: bytes, dialect: DialectName) -> None:
    found = recognise(data)
    assert (found.dialect, found.form) == (dialect, "body")


def test_the_caller_may_say_which_dialect_it_is() -> None:
    assert recognise(encode_frame(b'{"x":1}'), "messages").dialect == "messages"
    assert recognise(dumps({"object": "chat.completion"}), "responses").dialect == "responses"
    assert recognise(b'{"x":', "chat").form == "body"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"model":"m","messages":[]}', "looks like a request (it has `messages`)"),
        (b'{"model":"m","input":"hi"}', "looks like a request (it has `input`)"),
        (b'{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7}', "the fields a, b, c, d, e, f, …"),
        (b'{"detail":"Not Found"}', "the fields detail"),
        (b'{"object":"text_completion","choices":[]}', "the fields object, choices"),
        (b'{"object":"list","type":5}', "the fields object, type"),
        (b'{"output":"text"}', "the fields output"),
        (b"data: hello\n\ndata: [DONE]\n\n", "a stream whose payloads are not JSON objects"),
        (b": ping\n\n", "a stream without payloads"),
        (b'{"x":', "cut or damaged"),
        (b"{}", "an empty JSON object"),
    ],
)
def test_what_no_dialect_writes_is_refused_with_what_it_is(data: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        recognise(data)
    assert words in caught.value.message
    assert "OpenAI Chat Completions, OpenAI Responses or Anthropic Messages" in caught.value.message


@given(
    st.one_of(
        st.binary(),
        st.lists(
            st.sampled_from(
                [
                    b"data:",
                    b"event:",
                    b"{",
                    b"}",
                    b"[",
                    b'"type"',
                    b":",
                    b'"ping"',
                    b"\n",
                    b"\r",
                    b" ",
                    b"\xff",
                ]
            )
        ).map(b"".join),
    )
)
def test_any_bytes_are_recognised_or_refused(data: bytes) -> None:
    try:
        found = recognise(data)
    except GatewayError:
        return
    assert found.form in ("stream", "body")


CHUNKS: tuple[dict[str, object], ...] = (
    {"role": "assistant", "content": "Hi", "tool_calls": None},
    {
        "tool_calls": [
            {
                "index": 0,
                "id": "call_1",
                "type": "function",
                "function": {"name": "f", "arguments": "{}"},
            }
        ]
    },
)
STREAM = (
    b"".join(
        b"data: "
        + json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
        ).encode()
        + b"\n\n"
        for delta, finish in (*((chunk, None) for chunk in CHUNKS), ({}, "tool_calls"))
    )
    + b"data: [DONE]\n\n"
)
BODY = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
).encode()


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
def test_a_stream_stays_a_stream_with_the_same_calls(target: DialectName) -> None:
    found = recognise(rewrite(recognise(STREAM), target).data)
    report = examine(found)
    assert (found.dialect, found.form) == (target, "stream")
    assert [(call.id, call.name, call.arguments) for call in report.calls] == [
        ("call_1", "f", "{}")
    ]
    assert (report.choices[0].text, report.problems) == ("Hi", ())


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
def test_a_body_stays_a_body_with_the_same_calls(target: DialectName) -> None:
    found = recognise(rewrite(recognise(BODY), target).data)
    report = examine(found)
    assert (found.dialect, found.form) == (target, "body")
    assert [(call.id, call.name) for call in report.calls] == [("toolu_1", "f")]
    assert json.loads(report.calls[0].arguments) == {"x": 1}
    assert report.problems == ()
