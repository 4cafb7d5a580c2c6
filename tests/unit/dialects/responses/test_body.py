"""Bodies: the same meaning as the stream, by the same code; and what is no response at all."""

import json
from typing import Any

import pytest
from openai.types.responses import Response

from dragoman._json import Raw, raw
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.core.losses import answer_book
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.responses import LOSSES, read_body
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    LimitsReported,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
)
from dragoman.model.outcome import ErrorInfo, Limits
from dragoman.model.parts import Call, Extra, Media, Opaque, Reasoning, Refusal, Result, Text
from responses_events import CALLED, START, STOP, call_events, text_events, whole
from responses_help import (
    TEXT_PART,
    Json,
    added,
    args_delta,
    body_answer,
    calls_in,
    completed,
    created,
    done,
    function_call,
    message,
    part_added,
    parts_in,
    read_answer,
    text_delta,
    text_message,
)

encode_body = codec("responses").encode_body

F = function_call(arguments='{"x":1}', status="completed")


def body(output: list[Json], **fields: Any) -> Json:
    return {**completed(output)["response"], **fields}


def written(events: list[Event], context: EncodeContext | None = None) -> Json:
    data: Json = json.loads(encode_body(events, context or EncodeContext()))
    Response.model_validate_json(json.dumps(data), strict=True)
    return data


def test_stream_and_body_of_the_same_answer_amount_to_the_same() -> None:
    """Law 3."""
    reasoning: Json = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "gAAA",
    }
    output = [reasoning, text_message("hello"), F]
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    fields: Json = {"usage": usage, "tools": [], "instructions": None, "completed_at": 9}
    streamed = read_answer(
        [
            created(tools=[], instructions=None, completed_at=None),
            added({**reasoning, "summary": []}),
            done(reasoning),
            added(message(), 1),
            {**part_added(), "output_index": 1},
            {**text_delta("hello"), "output_index": 1},
            done(text_message("hello"), 1),
            added(function_call(), 2),
            args_delta('{"x":1}', 2),
            done(F, 2),
            completed(output, **fields),
        ]
    )
    assert body_answer(body(output, **fields)) == streamed


def test_m069_incomplete_body_without_message_is_an_answer() -> None:
    outcome = body_answer(
        body(
            [{"type": "reasoning", "id": "rs_1", "summary": []}],
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        )
    )
    assert outcome.choices[0].finish == "length"
    assert outcome.completed
    assert parts_in(outcome) == (Reasoning(item_id="rs_1"),)


def test_m072_searches_of_the_provider_are_no_calls_of_the_client() -> None:
    search: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    assert body_answer(body([search, text_message("x")])).choices[0].finish == "stop"


def test_calls_of_a_cut_body_are_not_complete_unless_they_say_so() -> None:
    bare = {key: value for key, value in F.items() if key != "status"}
    outcome = body_answer(
        body(
            [F, {**bare, "id": "fc_2", "call_id": "call_b"}],
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        )
    )
    assert [call.status for call in calls_in(outcome)] == ["completed", "incomplete"]


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_answer_that_still_runs_keeps_its_status(status: str) -> None:
    step = read_body(json.dumps(body([], status=status)).encode())
    assert fold(step.events).choices[0].finish == "pause"
    assert json.loads(encode_body(step.events))["status"] == status


def test_cancelled_body_is_cancelled() -> None:
    step = read_body(json.dumps(body([], status="cancelled")).encode())
    assert fold(step.events).choices[0].finish == "cancelled"
    assert json.loads(encode_body(step.events))["status"] == "cancelled"


def test_failed_body_gives_its_parts_and_its_error() -> None:
    failed = body(
        [text_message("x"), F], status="failed", error={"code": "server_error", "message": "boom"}
    )
    step = read_body(json.dumps(failed).encode())
    assert is_grammatical(step.events)
    outcome = fold(step.events)
    assert outcome.error is not None
    assert outcome.error.message == "boom"
    assert len(parts_in(outcome)) == 2


@pytest.mark.parametrize(
    "data",
    [b'{"error": {"message": "no", "code": "invalid_api_key"}}', b'{"error": "no"}'],
)
def test_error_body_is_a_failure(data: bytes) -> None:
    step = read_body(data)
    (failed,) = step.events
    assert isinstance(failed, Failed)
    assert failed.error.message == "no"
    assert step.problems == ()
    assert step.raw == data


@pytest.mark.parametrize("date", [b"1e400", b"-1e400", b"null", b'"today"'])
def test_a_date_that_is_no_number_is_absent(date: bytes) -> None:
    step = read_body(
        b'{"id":"resp_1","object":"response","created_at":%b,"status":"completed","output":[]}'
        % date
    )
    assert step.events[0] == Started("resp_1")


def test_m082_body_of_another_shape_is_named() -> None:
    step = read_body(b'{"object": "chat.completion", "choices": []}')
    assert [problem.kind for problem in step.problems] == ["foreign_body"]
    assert isinstance(step.events[0], Failed)


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b"\xff"])
def test_body_that_is_no_object_is_a_failure(data: bytes) -> None:
    step = read_body(data)
    assert [(problem.frame, problem.kind) for problem in step.problems] == [(1, "malformed_body")]
    assert isinstance(step.events[0], Failed)
    assert step.events[0].error.kind == "protocol"


def test_body_without_object_but_with_output_is_read() -> None:
    outcome = body_answer({"output": [text_message("x")]})
    assert parts_in(outcome) == (Text(text="x", item_id="msg_1"),)


def test_problems_of_a_body_are_in_frame_one() -> None:
    item: Json = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "x"}],
    }
    step = read_body(json.dumps(body([item])).encode())
    assert {(problem.frame, problem.kind) for problem in step.problems} == {
        (1, "missing_id"),
        (1, "missing_status"),
        (1, "missing_annotations"),
    }


# --- writing ---------------------------------------------------------------------------------------------------------


def test_body_has_the_items_of_the_stream() -> None:
    reasoning = Reasoning(summary=("hm",), item_id="rs_1")
    result = Result(call_id="call_2", content=(Text(text="2"),), executor="gateway")
    opaque = Opaque(
        dialect="responses",
        type="compaction",
        raw=raw({"type": "compaction", "id": "c", "encrypted_content": "x"}),
    )
    events: list[Event] = [
        START,
        PartStarted(0, Reasoning(status="in_progress")),
        PartEnded(0, reasoning),
        *text_events(1, "a", item_id="msg_1"),
        *text_events(2, "b", item_id="msg_1"),
        *text_events(3, "c"),
        *call_events(4),
        *whole(5, result),
        *whole(6, opaque),
        *CALLED,
    ]
    data = written(events)
    kinds = [item["type"] for item in data["output"]]
    assert kinds == [
        "reasoning",
        "message",
        "message",
        "function_call",
        "function_call_output",
        "compaction",
    ]
    assert [part["text"] for part in data["output"][1]["content"]] == ["a", "b"]
    assert data["status"] == "completed"


def test_what_a_body_cannot_say_is_left_out() -> None:
    events: list[Event] = [
        START,
        *whole(0, Media(kind="audio", data="AAAA")),
        *whole(1, Opaque(dialect="chat", type="x", raw=Raw(b"{}"))),
        *whole(2, Result(call_id="c", kind="web_search", executor="provider")),
        PartStarted(
            3, Call(call_id="c", name="x", kind="other", executor="provider", status="in_progress")
        ),
        PartEnded(3, Call(call_id="c", name="x", kind="other", executor="provider")),
        *STOP,
    ]
    assert written(events)["output"] == []


def test_body_of_a_message_that_ends_with_an_opaque_part() -> None:
    part = Opaque(dialect="responses", type="content/x", raw=raw({"type": "x"}), item_id="msg_1")
    events: list[Event] = [START, *text_events(0, item_id="msg_1"), *whole(1, part), *STOP]
    data = json.loads(encode_body(events))
    assert data["output"][0]["content"][1] == {"type": "x"}
    assert data["output"][0]["status"] == "completed"


def test_a_refusal_in_plain_text_is_incomplete() -> None:
    data = written([START, *text_events(), Finished("refusal"), Completed()])
    assert (data["status"], data["incomplete_details"]) == (
        "incomplete",
        {"reason": "content_filter"},
    )
    part: list[Event] = [
        PartStarted(0, Refusal()),
        TextDelta(0, "No."),
        PartEnded(0, Refusal(text="No.")),
    ]
    data = written([START, *part, Finished("refusal"), Completed()])
    assert (data["status"], data["incomplete_details"]) == ("completed", None)


def test_body_says_why_it_is_incomplete() -> None:
    data = written([START, *text_events(), Finished("length"), Completed()])
    assert (data["status"], data["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )


def test_body_in_the_required_action_profile_waits() -> None:
    result = Result(call_id="call_0", content=(Text(text="2"),), executor="gateway")
    events: list[Event] = [START, *call_events(), *whole(1, result), *call_events(2), *CALLED]
    data = json.loads(encode_body(events, EncodeContext(profile="required_action")))
    assert data["status"] == "incomplete"
    calls = data["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert [call["id"] for call in calls] == ["call_2"]


def test_body_echoes_what_beginning_and_end_said() -> None:
    events: list[Event] = [
        Started("resp_1", "m", 1, Extra("responses", {"instructions": Raw(b'"be"')})),
        Finished("stop"),
        Completed(Extra("responses", {"completed_at": Raw(b"7")})),
    ]
    data = written(events)
    assert (data["instructions"], data["completed_at"]) == ("be", 7)


@pytest.mark.parametrize(
    "events",
    [
        [Failed(ErrorInfo(kind="quota", message="x"))],
        [START, Finished("error"), Completed()],
        [START],
        [],
    ],
)
def test_answer_that_failed_is_an_error_body(events: list[Event]) -> None:
    assert set(json.loads(encode_body(events))) == {"error"}


def test_body_and_stream_carry_the_same_text_part() -> None:
    item = message([{**TEXT_PART, "text": "x", "extra": 1}], status="completed")
    assert json.loads(encode_body(read_body(json.dumps(body([item])).encode()).events))[
        "output"
    ] == [item]


def test_what_a_body_cannot_say_is_noted() -> None:
    book = answer_book(LOSSES, {})
    events: list[Event] = [
        Started("resp_1", "m", 1, Extra("chat", {"a": Raw(b"1")})),
        LimitsReported(Limits()),
        PartStarted(0, Text(status="in_progress"), 1),
        PartEnded(0, Text(text="x")),
        Finished("stop", 1),
        Finished("stop"),
        Completed(),
    ]
    encode_body(events, EncodeContext(), book)
    assert {loss.code for loss in book.losses} == {"unknown_field", "rate_limits", "extra_choices"}
