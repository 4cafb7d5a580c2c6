"""The end of a Responses stream, read by whoever keeps it, and taken back."""

import json

import pytest

from dragoman.dialects.responses.terminal import (
    change_status,
    has_failed,
    is_waiting,
    read_body_end,
    read_end,
    read_opening,
    terminal_event,
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
    ("kind", "status", "lines"),
    [
        ("response.completed", "completed", "completed"),
        ("response.completed", "incomplete", "incomplete"),
        ("response.incomplete", "incomplete", "incomplete"),
        ("response.failed", "failed", "failed"),
        ("response.cancelled", "cancelled", "cancelled"),
        ("response.failed", "of its own", "failed"),
    ],
)
def test_the_end_of_a_stream_reports_the_response_and_its_status(
    kind: str, status: str, lines: str
) -> None:
    body = response(status)
    last = frame(kind, 2, response=body)
    end = read_end(last)
    assert end is not None
    assert (end.id, end.status, end.frames) == ("resp_1", lines, last)
    assert json.loads(end.body) == body


def test_an_end_is_read_in_any_line_ends() -> None:
    end = frame("response.completed", 2, response=response())
    for ends in (b"\n", b"\r\n", b"\r"):
        assert read_end(end.replace(b"\n", ends)) is not None


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
    assert read_end(last) is None


def test_a_stream_opens_with_its_response() -> None:
    assert json.loads(read_opening(CREATED)) == response("in_progress")
    assert read_opening(DELTA) == b""
    assert read_opening(frame("response.created", 0, response=[])) == b""


def test_a_body_reports_the_same() -> None:
    whole = read_body_end(json.dumps(response("incomplete")).encode())
    assert whole is not None
    assert (whole.id, whole.status) == ("resp_1", "incomplete")
    odd = read_body_end(b'{"id":"resp_2"}')
    assert odd is not None
    assert odd.status == "completed"
    assert read_body_end(b'{"error":{}}') is None
    assert read_body_end(b"[") is None


def test_a_failure_has_the_number_of_the_end_and_waits_for_nothing() -> None:
    body = response("incomplete", required_action={"type": "x"})
    end = read_end(frame("response.completed", 3, response=body))
    assert end is not None
    assert end.fail is not None
    found = end.fail(ERROR)
    assert found.startswith(b"event: response.failed\n")
    event = json.loads(found.rpartition(b"data: ")[2])
    assert event["sequence_number"] == 3
    assert event["response"]["status"] == "failed"
    assert event["response"]["error"]["message"] == "no room"
    assert "required_action" not in event["response"]
    assert has_failed(json.dumps(event["response"]).encode())
    assert not has_failed(end.body)
    assert not has_failed(b"[")


def test_an_end_without_a_number_gets_one() -> None:
    end = read_end(b'data: {"type":"response.completed","response":{"id":"resp_1"}}\n\n')
    assert end is not None
    assert end.fail is not None
    event = json.loads(end.fail(ERROR).rpartition(b"data: ")[2])
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


@pytest.mark.parametrize(
    ("output", "items"),
    [
        ([{"type": "reasoning", "id": "rs_1"}, {"type": "x"}, {"id": "msg_1"}], ("rs_1", "msg_1")),
        (None, ()),
        ([{"id": 7}], ()),
    ],
)
def test_an_end_reports_its_items(output: object, items: tuple[str, ...]) -> None:
    whole = read_body_end(json.dumps(response(output=output)).encode())
    assert whole is not None
    assert whole.items == items


def test_a_stream_without_an_end_gets_one() -> None:
    found = terminal_event(b'{"id":"resp_1","status":"cancelled"}', 7)
    assert found.startswith(b"event: response.failed\ndata: ")
    assert json.loads(found.partition(b"data: ")[2]) == {
        "type": "response.failed",
        "response": {"id": "resp_1", "status": "cancelled"},
        "sequence_number": 7,
    }
