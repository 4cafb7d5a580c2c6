"""What is kept of an answer: read from what was told."""

import json

import pytest

from dragoman.core.fold import unfold
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.translate import make_encoder
from dragoman.model.outcome import Choice, ErrorInfo, Outcome
from dragoman.model.parts import Call, Dialect, Text
from dragoman.server.state.endings import fail_last, read_ended_body, read_ended_stream
from dragoman.store.telling import read_answer

CALL = Call(call_id="call_1", name="f", input='{"a":1}')
CUT = Call(call_id="call_2", name="f", input='{"a":', status="incomplete")
OUTCOME = Outcome(
    response_id="resp_1",
    model="m",
    choices=(Choice(parts=(Text(text="So."), CALL), finish="tool_calls"),),
    completed=True,
)


def stream_of(door: str, outcome: Outcome) -> bytes:
    encoder = make_encoder(door, EncodeContext(response_id="id_1", created=7))
    return encoder.encode_all(unfold(outcome)) + encoder.close()


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_a_stream_and_its_body_are_kept_alike(door: Dialect) -> None:
    told = stream_of(door, OUTCOME)
    last = told[told.rindex(b"\n\n", 0, len(told) // 2) + 2 :]
    ended = read_ended_stream(door, last, lambda: told)
    assert ended is not None
    assert (ended.id, ended.status, ended.waiting) == ("id_1", "completed", ("call_1",))
    answer = ended.answer or read_answer(door, ended.body)
    assert [type(part) for part in answer.parts] == [Text, Call]
    again = read_ended_body(door, ended.body)
    assert again is not None
    assert (again.answer or read_answer(door, again.body)).finish == answer.finish == "tool_calls"
    assert again.waiting == ended.waiting
    assert json.loads(again.body) == json.loads(ended.body)


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_a_failure_is_kept_as_one_and_a_beginning_is_not_kept(door: Dialect) -> None:
    failed = Outcome(
        response_id="resp_1",
        choices=(Choice(parts=(Text(text="So."),)),),
        error=ErrorInfo(kind="server", message="broken"),
    )
    told = stream_of(door, failed)
    ended = read_ended_stream(door, told, lambda: told)
    assert ended is not None
    assert ended.status == "failed"
    assert ended.waiting == ()
    begun = told[: told.index(b"\n\n") + 2]
    if door == "responses":
        assert read_ended_stream(door, begun, lambda: begun) is None
    assert read_ended_body(door, b'{"error":{"message":"x"}}') is None


def test_a_call_that_was_cut_is_not_waited_for() -> None:
    outcome = Outcome(
        response_id="r",
        choices=(Choice(parts=(CALL, CUT), finish="length"),),
        completed=True,
    )
    told = stream_of("responses", outcome)
    ended = read_ended_stream("responses", told, lambda: told)
    assert ended is not None
    assert ended.status == "incomplete"
    assert ended.waiting == ("call_1",)


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_an_end_that_is_taken_back_tells_why(door: Dialect) -> None:
    told = fail_last(door, stream_of(door, OUTCOME), ErrorInfo(kind="overloaded", message="why"))
    assert b"why" in told
    assert b"message_stop" not in told
    assert b"response.completed" not in told
