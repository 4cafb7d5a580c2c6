"""A payload's own shape names its dialect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import dumps
from dragoman.errors import GatewayError, RemoteProtocolError
from dragoman.inspection.recognise import DialectName, Form, recognise
from dragoman.sse import encode_frame

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


def test_an_event_name_tells_when_its_payload_is_damaged() -> None:
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
def test_a_body_that_is_cut_still_tells_its_dialect(data: bytes, dialect: DialectName) -> None:
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
        (b"data: hello\n\ndata: [DONE]\n\n", "a stream whose payloads are no JSON objects"),
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
