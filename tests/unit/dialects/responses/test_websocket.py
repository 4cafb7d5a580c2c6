"""The messages of Responses over a WebSocket."""

import json

import pytest

from dragoman.dialects.responses.websocket import (
    Create,
    Steer,
    error_frame,
    lane_member,
    read_message,
    read_refused,
)
from dragoman.errors import RequestRefused


def read(**fields: object) -> Create:
    message = read_message(json.dumps({"type": "response.create", **fields}))
    assert isinstance(message, Create)
    return message


def refusal(text: str) -> RequestRefused:
    with pytest.raises(RequestRefused) as refused:
        read_message(text)
    return refused.value


def test_body_is_that_of_a_post_and_keeps_its_values_as_they_came() -> None:
    text = '{"type":"response.create","model":"m","stream":false,"x":[1.0e2, "\\u00e9"],"generate":false}'
    message = read_message(text)
    assert isinstance(message, Create)
    assert message.body == b'{"model":"m","x":[1.0e2, "\\u00e9"],"stream":true}'
    assert not message.generates


@pytest.mark.parametrize("name", ["", "a b", "a" * 257, "ä", "a/b", 7, True, [], {}])
def test_name_of_a_lane_has_few_characters(name: object) -> None:
    refused = refusal(json.dumps({"type": "response.create", "stream_id": name}))
    assert (refused.code, refused.param) == ("invalid_stream_id", "stream_id")


@pytest.mark.parametrize("name", [None, "a", "A_1.b-c", "a" * 256])
def test_good_name_of_a_lane_is_returned(name: str | None) -> None:
    assert read(stream_id=name).lane == name
    assert read_refused(json.dumps({"stream_id": name, "type": "x"})) == (name, None)


def test_lane_and_previous_response_of_a_refused_message_are_found_if_they_are_valid() -> None:
    assert read_refused('{"stream_id": "a", "type": 7}') == ("a", None)
    assert read_refused('{"stream_id": ""}') == (None, None)
    assert read_refused("{") == (None, None)
    create = {"type": "response.create", "previous_response_id": "resp_1", "stream_id": "a"}
    assert read_refused(json.dumps(create)) == ("a", "resp_1")
    assert read_refused(json.dumps({**create, "stream_id": "a b"})) == (None, None)
    assert read_refused(json.dumps({**create, "previous_response_id": 7})) == ("a", None)
    assert read_refused(json.dumps({**create, "type": "response.cancel"})) == ("a", None)


def test_previous_response_is_found() -> None:
    assert read(previous_response_id="resp_1").previous == "resp_1"
    assert read(previous_response_id=None).previous is None
    assert read(previous_response_id=7).previous is None  # the decoder of the request refuses it
    assert b"resp_1" in read(previous_response_id="resp_1").body


@pytest.mark.parametrize("value", [None, False])
def test_background_that_is_not_wanted_is_left_out(value: object) -> None:
    assert b"background" not in read(background=value).body


@pytest.mark.parametrize("value", [True, 1, "yes"])
def test_background_is_refused(value: object) -> None:
    refused = refusal(json.dumps({"type": "response.create", "background": value}))
    assert (refused.code, refused.param) == ("unsupported_parameter", "background")


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '"response.create"'])
def test_message_must_be_a_json_object(text: str) -> None:
    assert "one JSON object" in refusal(text).message


def test_headers_of_codex_come_from_its_metadata_and_no_others() -> None:
    metadata = {
        "x-codex-turn-metadata": '{"turn_id":"1"}',
        "ws_request_header_x_openai_internal_codex_responses_lite": "true",
        "ws_request_header_authorization": "Bearer x",
        "authorization": "Bearer x",
        "x-codex-line": "a\r\nauthorization: x",
        "x-codex-umlaut": "ä",
        "x-codex-number": 7,
    }
    assert read(client_metadata=metadata).headers == (
        (b"x-codex-turn-metadata", b'{"turn_id":"1"}'),
        (b"x-openai-internal-codex-responses-lite", b"true"),
    )
    assert read(client_metadata="x").headers == ()


def test_steering_fails_with_what_was_asked() -> None:
    asked = {"previous_response_id": "resp_1", "input": [{"role": "user", "content": "é"}]}
    message = read_message(json.dumps({"type": "response.steer", "stream_id": "a", **asked}))
    assert isinstance(message, Steer)
    assert message.lane == "a"
    frame = json.loads(message.failure)
    assert frame["steer"] == asked
    assert frame["error"]["code"] == "steering_not_supported"


def test_error_always_has_status_and_code() -> None:
    body = b'{"error":{"message":"no","type":"server_error","param":null,"code":null}}'
    headers = ((b"content-type", b"x"), (b"retry-after", b"7"), (b"access-control-x", b"*"))
    assert json.loads(error_frame(503, headers, body)) == {
        "type": "error",
        "status": 503,
        "error": {"message": "no", "type": "server_error", "param": None, "code": "server_error"},
        "headers": {"retry-after": "7"},
    }


def test_frame_names_its_lane() -> None:
    assert lane_member(None) == b"{"
    assert json.loads(lane_member("a") + b'"type":"x"}') == {"stream_id": "a", "type": "x"}
