"""The clients of `make faults` read whole answers whole, and count no call that its dialect has not completed."""

import random

import pytest
from fault_oracle import Circumstances, broken_promises
from fault_plan import UPSTREAMS, Exchange, answer_bytes, frames_of, random_answer, sent_of
from fault_readers import StreamReader, read_body, read_error
from msgspec import structs

from dragoman._json import dumps_document
from vendor_wire import Answer, Said, Tool


def exchange(upstream: str, answer: Answer, *, is_stream: bool) -> Exchange:
    return Exchange(name="s1n1", door="chat", upstream=upstream, answer=answer, is_stream=is_stream)


def structured_answers() -> list[Answer]:
    """Call by call, as the gateway sends them; vendors may alternate."""
    made = [random_answer(f"s{number}n1", random.Random(number)) for number in range(60)]
    return [
        structs.replace(answer, interleaved=False)
        for answer in made
        if "<tool_call>" not in str(answer)
    ]


@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_answers_of_the_vendors_are_read_as_they_were_sent(dialect: str) -> None:
    answers = structured_answers()
    assert any(answer.calls for answer in answers)
    for answer in answers:
        sent = sent_of(exchange(dialect, answer, is_stream=True))
        reader = StreamReader(dialect)
        reader.feed(answer_bytes(exchange(dialect, answer, is_stream=True)))
        assert broken_promises(sent, reader.cut("closed", "cut"), Circumstances()) == []
        body = read_body(dialect, answer_bytes(exchange(dialect, answer, is_stream=False)))
        assert broken_promises(sent, body, Circumstances()) == []


@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_stream_that_is_cut_anywhere_is_no_success_and_delivers_no_half_call(dialect: str) -> None:
    tool = Tool("call_1", "search", ('{"q":', '"x"}'))
    answer = Answer((Said(("I ", "look.")), tool, Tool("call_2", "search", ("{}",))))
    frames = frames_of(dialect, answer)
    sent = sent_of(exchange(dialect, answer, is_stream=True))
    for count in range(len(frames)):
        reader = StreamReader(dialect)
        reader.feed(b"".join(frames[:count]) + frames[count][:-2])
        received = reader.cut("closed", "cut")
        if count < len(frames) - 1:
            assert received.end == "closed"
        allowed = Circumstances(may_close=True)
        assert broken_promises(sent, received, allowed) == []


def test_end_without_a_finish_and_frames_after_the_end_are_malformed() -> None:
    reader = StreamReader("chat")
    reader.feed(b"data: [DONE]\n\n")
    assert reader.cut("closed", "").end == "malformed"
    reader = StreamReader("messages")
    reader.feed(b'event: message_stop\ndata: {"type": "message_stop"}\n\n')
    assert reader.cut("closed", "").end == "malformed"
    reader = StreamReader("responses")
    reader.feed(
        b'data: {"type": "error", "message": "x"}\n\ndata: {"type": "response.created"}\n\n'
    )
    assert reader.cut("closed", "").end == "malformed"


def test_response_whose_output_has_other_calls_than_its_items_is_malformed() -> None:
    answer = Answer((Tool("call_1", "search", ("{}",)),))
    frames = frames_of("responses", answer)
    last = frames[-1].replace(b'"arguments": "{}"', b'"arguments": "{ }"')
    reader = StreamReader("responses")
    reader.feed(b"".join(frames[:-1]) + last)
    assert reader.cut("closed", "").end == "malformed"


@pytest.mark.parametrize("door", UPSTREAMS)
def test_error_must_have_the_form_of_its_dialect(door: str) -> None:
    error = {"type": "error", "error": {"type": "api_error", "message": "why"}}
    assert read_error(door, 502, dumps_document(error)).end == "error"
    assert read_error(door, 502, b"<html>").end == "malformed"
    assert read_error(door, 502, dumps_document({"error": {"message": ""}})).end == "malformed"
    assert read_error(door, 502, dumps_document({"error": "why"})).end == "malformed"


def test_error_of_another_dialect_is_malformed_for_messages() -> None:
    body = dumps_document({"error": {"message": "why"}})
    assert read_error("messages", 500, body).end == "malformed"
