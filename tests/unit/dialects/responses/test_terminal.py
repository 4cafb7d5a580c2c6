"""The end of a Responses stream, read by whoever keeps it, and taken back."""

import json

import pytest

from dragoman.dialects.responses import (
    change_status,
    fail_relayed,
    failed_event,
    is_waiting,
    read_opening,
    read_terminal,
    read_whole,
)
from dragoman.model.outcome import ErrorInfo

ERROR = ErrorInfo(kind="overloaded", message="no room")


def frame(kind: str, number: int, **fields: object) -> bytes:
    data = json.dumps({"type": kind, **fields, "sequence_number": number})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def response(status: str = "completed", **more: object) -> dict[str, object]:
    return {"id": "resp_1", "status": status, "output": [], **more}


CREATED = frame("response.created", 0, response=response("in_progress"))
DELTA = frame("response.output_text.delta", 1, delta="x")


@pytest.mark.parametrize(
    ("kind", "status", "told"),
    [
        ("response.completed", "completed", "completed"),
        ("response.completed", "incomplete", "incomplete"),
        ("response.incomplete", "incomplete", "incomplete"),
        ("response.failed", "failed", "failed"),
        ("response.cancelled", "cancelled", "cancelled"),
        ("response.failed", "of its own", "failed"),
    ],
)
def test_the_end_of_a_stream_tells_the_response_and_its_status(
    kind: str, status: str, told: str
) -> None:
    body = response(status)
    terminal = read_terminal(CREATED + DELTA + frame(kind, 2, response=body))
    assert terminal is not None
    assert (terminal.id, terminal.status) == ("resp_1", told)
    assert json.loads(terminal.body) == body


def test_an_end_is_found_in_any_line_ends_and_before_what_means_nothing() -> None:
    end = frame("response.completed", 2, response=response())
    crlf = end.replace(b"\n", b"\r\n")
    assert read_terminal(DELTA.replace(b"\n", b"\r\n") + crlf) is not None
    assert read_terminal(end + b": comment\n\n") is not None
    assert read_terminal(end + DELTA + b"data: [DONE]\n\n") is not None


@pytest.mark.parametrize(
    "last",
    [
        b"",
        DELTA,
        b"data: nonsense\n\n",
        b'data: {"type":"response.completed"}\n\n',
        frame("response.completed", 1, response={"status": "completed"}),
        frame("response.completed", 1, response=7),
        frame("error", 1, message="x"),
    ],
)
def test_where_no_response_ends_there_is_none(last: bytes) -> None:
    assert read_terminal(last) is None


def test_a_stream_opens_with_its_response() -> None:
    response_id, body = read_opening(b": hello\n\n" + CREATED + DELTA)
    assert response_id == "resp_1"
    assert json.loads(body) == response("in_progress")
    assert read_opening(DELTA) == ("", b"")
    assert read_opening(frame("response.created", 0, response=[])) == ("", b"")


def test_a_body_tells_the_same() -> None:
    whole = read_whole(json.dumps(response("incomplete")).encode())
    assert whole is not None
    assert (whole.id, whole.status) == ("resp_1", "incomplete")
    odd = read_whole(b'{"id":"resp_2"}')
    assert odd is not None
    assert odd.status == "completed"
    assert read_whole(b'{"error":{}}') is None
    assert read_whole(b"[") is None


def test_a_failure_takes_the_place_and_the_number_of_the_end() -> None:
    waiting = frame("response.required_action", 2, response=response("incomplete"))
    body = response("incomplete", required_action={"type": "x"})
    last = DELTA + waiting + b": ping\n\n" + frame("response.completed", 3, response=body)
    told = fail_relayed(last, ERROR)
    assert told.startswith(DELTA + b": ping\n\nevent: response.failed\n")
    event = json.loads(told.rpartition(b"data: ")[2])
    assert event["sequence_number"] == 2
    assert event["response"]["status"] == "failed"
    assert event["response"]["error"]["message"] == "no room"
    assert "required_action" not in event["response"]


def test_an_end_without_a_number_gets_one() -> None:
    end = b'data: {"type":"response.completed","response":{"id":"resp_1"}}\n\n'
    event = json.loads(fail_relayed(end, ERROR).rpartition(b"data: ")[2])
    assert event["sequence_number"] == 0


def test_a_response_object_comes_to_another_end() -> None:
    body = json.dumps(response("incomplete", required_action={}, x=[1.50])).encode()
    assert is_waiting(body)
    changed = change_status(body, "completed")
    assert json.loads(changed) == response("completed", x=[1.5])
    assert b"1.5" in changed
    assert not is_waiting(changed)
    assert not is_waiting(b'{"required_action":null}')
    assert not is_waiting(b"[")


CALLS = [
    {"type": "reasoning", "id": "rs_1"},
    {"type": "message", "id": "msg_1"},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed"},
    {"type": "custom_tool_call", "call_id": "call_2", "status": "completed"},
]


def test_an_end_tells_its_items_and_the_calls_that_wait() -> None:
    whole = read_whole(json.dumps(response(output=CALLS)).encode())
    assert whole is not None
    assert whole.items == ("rs_1", "msg_1", "fc_1")
    assert whole.waiting == ("call_1", "call_2")
    nothing = read_whole(json.dumps(response(output=None)).encode())
    assert nothing is not None
    assert (nothing.items, nothing.waiting) == ((), ())


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call", "call_id": "call_1", "status": "incomplete"},
        {"type": "function_call", "call_id": "call_1", "status": "completed", "execution": "x"},
        {"type": "shell_call", "call_id": "call_1", "status": "completed"},
        {"type": 7},
    ],
)
def test_what_else_may_wait_takes_a_closer_look(item: dict[str, object]) -> None:
    whole = read_whole(json.dumps(response(output=[item])).encode())
    assert whole is not None
    assert whole.waiting is None


def test_a_stream_without_an_end_gets_one() -> None:
    told = failed_event(b'{"id":"resp_1","status":"cancelled"}', 7)
    assert told.startswith(b"event: response.failed\ndata: ")
    assert json.loads(told.partition(b"data: ")[2]) == {
        "type": "response.failed",
        "response": {"id": "resp_1", "status": "cancelled"},
        "sequence_number": 7,
    }
