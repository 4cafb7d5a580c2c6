"""A response that was queued: its beginning, the encoder that goes on from there, and what upstreams see of it."""

import json
from typing import Any

import pytest

from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses import ResponsesEncoder, decode_request
from dragoman.dialects.responses.encode import queue_response
from dragoman.dialects.responses.request import asks_for_background, without_background
from dragoman.dialects.responses.terminal import terminal_event
from dragoman.model.events import Completed, Event, Failed, Finished, Started
from dragoman.model.outcome import ErrorInfo
from responses_help import payloads

Json = dict[str, Any]


def asked(**fields: object) -> Any:
    return decode_request(json.dumps({"model": "m", "input": "hi", **fields}).encode())


CONTEXT = EncodeContext(
    response_id="resp_1", created=7, request=asked(background=True), is_queued=True
)


def test_the_beginning_has_two_events_and_the_object() -> None:
    body, opening = queue_response(CONTEXT)
    response: Json = json.loads(body)
    assert (response["id"], response["status"], response["created_at"]) == ("resp_1", "queued", 7)
    assert (response["background"], response["output"], response["usage"]) == (True, [], None)
    created, queued = payloads(opening)
    assert (created["type"], created["sequence_number"]) == ("response.created", 0)
    assert (queued["type"], queued["sequence_number"]) == ("response.queued", 1)
    assert created["response"] == queued["response"] == response


def test_the_encoder_goes_on_from_there() -> None:
    encoder = ResponsesEncoder(CONTEXT)
    events: tuple[Event, ...] = (
        Started(response_id="other", created=99, model="x"),
        Finished("stop"),
        Completed(),
    )
    sent = payloads(b"".join(map(encoder.encode, events)))
    assert [(event["type"], event["sequence_number"]) for event in sent] == [
        ("response.in_progress", 2),
        ("response.completed", 3),
    ]
    responses = [event["response"] for event in sent]
    assert {each["id"] for each in responses} == {"resp_1"}
    assert {each["created_at"] for each in responses} == {7}
    assert [each["background"] for each in responses] == [True, True]


def test_a_failure_in_the_queue_was_never_in_progress() -> None:
    encoder = ResponsesEncoder(CONTEXT)
    error = ErrorInfo(kind="upstream", message="no")
    (failed,) = payloads(encoder.encode(Failed(error)) + encoder.close())
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", 2)
    assert failed["response"]["id"] == "resp_1"
    assert failed["response"]["error"]["message"] == "no"


@pytest.mark.parametrize(
    ("fields", "is_asked"),
    [({"background": True}, True), ({"background": False}, False), ({"background": None}, False)],
)
def test_background_is_asked_for_by_true_only(fields: Json, is_asked: bool) -> None:
    request = asked(**fields)
    assert asks_for_background(request) is is_asked
    assert not asks_for_background(asked())
    stripped = without_background(request)
    assert not asks_for_background(stripped)
    assert stripped == asked()
    assert without_background(stripped) is stripped


@pytest.mark.parametrize(
    ("status", "event"),
    [
        ("completed", "response.completed"),
        ("incomplete", "response.incomplete"),
        ("failed", "response.failed"),
        ("cancelled", "response.failed"),
        ("in_progress", "response.failed"),
    ],
)
def test_the_last_event_has_the_name_of_the_status(status: str, event: str) -> None:
    body = json.dumps({"id": "resp_1", "status": status}).encode()
    (sent,) = payloads(terminal_event(body, 5))
    assert (sent["type"], sent["sequence_number"]) == (event, 5)
