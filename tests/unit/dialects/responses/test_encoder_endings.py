"""How a stream ends: every reason, calls that are cut, failures, keep-alive, the `required_action` profile, misuse."""

from typing import Any

import pytest

import doors
from dragoman._json import Raw, raw
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.responses import ResponsesEncoder
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason, Limits, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    Extra,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from responses_events import CALLED, START, STOP, call_events, checked, names, text_events, whole
from responses_help import payloads, read_answer, write


@pytest.mark.parametrize(
    ("reason", "event", "status", "why"),
    [
        ("stop", "completed", "completed", None),
        ("stop_sequence", "completed", "completed", None),
        ("refusal", "incomplete", "incomplete", "content_filter"),
        ("length", "incomplete", "incomplete", "max_output_tokens"),
        ("context_window", "incomplete", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "incomplete", "content_filter"),
        ("pause", "incomplete", "incomplete", "steered"),
        ("cancelled", "incomplete", "cancelled", "steered"),
        ("error", "failed", "failed", None),
    ],
)
def test_every_reason_has_its_terminal(
    reason: FinishReason, event: str, status: str, why: str | None
) -> None:
    end = checked([START, Finished(reason), Completed()])[-1]
    assert end["type"] == f"response.{event}"
    assert end["response"]["status"] == status
    details = end["response"]["incomplete_details"]
    assert (details and details["reason"]) == why


def test_refusal_that_is_a_part_completes_the_answer() -> None:
    part: list[Event] = [
        PartStarted(0, Refusal()),
        TextDelta(0, "No."),
        PartEnded(0, Refusal(text="No.")),
    ]
    end = checked([START, *part, Finished("refusal"), Completed()])[-1]
    assert end["type"] == "response.completed"
    assert end["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_own_reason_is_emitted_exactly() -> None:
    details = Extra("responses", {"incomplete_details": raw({"reason": "max_messages"})})
    end = checked([START, Finished("length", native="max_messages", extra=details), Completed()])[
        -1
    ]
    assert end["response"]["incomplete_details"] == {"reason": "max_messages"}


def test_other_fields_of_the_end_are_noted() -> None:
    encoder = ResponsesEncoder()
    extra = Extra("responses", {"x": Raw(b"1")})
    for event in (START, Finished("stop", extra=extra), Completed()):
        encoder.encode(event)
    assert [loss.code for loss in encoder.losses] == ["unknown_field"]


def test_stop_sequence_and_limits_cannot_be_encoded() -> None:
    encoder = ResponsesEncoder()
    for event in (
        START,
        LimitsReported(Limits()),
        Finished("stop_sequence", stop_sequence="#"),
        Completed(),
    ):
        encoder.encode(event)
    assert {loss.code for loss in encoder.losses} == {"stop_sequence", "rate_limits"}


def test_refusing_policy_only_drops_once_an_answer_has_begun() -> None:
    encoder = ResponsesEncoder(EncodeContext(losses={"rate_limits": "refuse", "seed": "carry"}))
    encoder.encode(START)
    encoder.encode(LimitsReported(Limits()))
    assert [loss.action for loss in encoder.losses] == ["drop"]


def test_other_choices_are_left_out_and_noted() -> None:
    encoder = ResponsesEncoder()
    events: list[Event] = [
        START,
        PartStarted(0, Text(status="in_progress"), 1),
        TextDelta(0, "x"),
        AnnotationAdded(0, Annotation("chat", Raw(b"{}"))),
        ReasoningDelta(0, "x"),
        OutputDelta(0, "x"),
        PartEnded(0, Text(text="x")),
        Finished("stop", 1),
        *text_events(1),
        *STOP,
    ]
    data = b"".join(encoder.encode(event) for event in events)
    doors.check_responses(data)
    assert len(payloads(data)[-1]["response"]["output"]) == 1
    assert {loss.code for loss in encoder.losses} == {"extra_choices"}


def test_usage_has_everything_clients_demand() -> None:
    usage = Usage(input=10, output=5, cached=4)
    events: list[Event] = [
        START,
        Finished("stop"),
        UsageReported(usage),
        UsageReported(Usage(reasoning=3)),
        Completed(),
    ]
    assert checked(events)[-1]["response"]["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 15,
    }


def test_usage_keeps_its_own_fields() -> None:
    details = raw({"cached_tokens": 4, "x": 1})
    usage = Usage(
        input=1,
        total=9,
        extra=Extra("responses", {"cost": Raw(b"2"), "input_tokens_details": details}),
    )
    found = checked([START, Finished("stop"), UsageReported(usage), Completed()])[-1]["response"][
        "usage"
    ]
    assert found["cost"] == 2
    assert found["total_tokens"] == 9
    assert found["input_tokens_details"] == {"cached_tokens": 4, "cache_write_tokens": 0, "x": 1}


def test_response_echoes_its_own_fields_and_no_others() -> None:
    own = Extra("responses", {"instructions": Raw(b'"be"'), "id": Raw(b'"x"')})
    events: list[Event] = [
        Started("chatcmpl-1", "m", None, own),
        Finished("stop"),
        Completed(Extra("responses", {"completed_at": Raw(b"7")})),
    ]
    written = checked(events, EncodeContext(model="asked", created=42))
    first, last = written[0]["response"], written[-1]["response"]
    assert first["instructions"] == "be"
    assert first["model"] == "asked"
    assert first["created_at"] == 42
    assert first["id"].startswith("resp_")
    assert first["reasoning"] == {"effort": None, "summary": None}
    assert first["completed_at"] is None
    assert last["completed_at"] == 7
    foreign = Started("resp_1", "m", 1, Extra("chat", {"instructions": Raw(b'"be"')}))
    assert checked([foreign, *STOP])[0]["response"]["instructions"] is None


# --- calls that are cut, and failures --------------------------------------------------------------------------------


def cut_call(part: int = 0) -> list[Event]:
    header = Call(call_id="call_x", name="f", status="in_progress")
    value = Call(call_id="call_x", name="f", input='{"x', status="incomplete")
    return [PartStarted(part, header), InputDelta(part, '{"x'), PartEnded(part, value)]


def test_m062_m068_cut_call_has_no_end_and_is_incomplete_in_the_output() -> None:
    written = checked([START, *cut_call(), Finished("length"), Completed()])
    assert names(written)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "incomplete",
    ]
    (item,) = written[-1]["response"]["output"]
    assert (item["arguments"], item["status"]) == ('{"x', "incomplete")


def test_m154_m155_failure_says_nothing_more_of_what_was_open() -> None:
    failed = Failed(ErrorInfo(kind="truncated", message="cut"))
    text: list[Event] = [
        PartStarted(0, Text(status="in_progress")),
        TextDelta(0, "a"),
        PartEnded(0, Text(text="a", status="incomplete")),
    ]
    written = checked([START, *text, failed])
    assert names(written)[2:] == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "failed",
    ]
    response = written[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {
        "code": "server_error",
        "message": "cut",
        "type": "stream_truncated",
    }
    assert response["output"][0]["status"] == "incomplete"


def test_complete_message_is_closed_before_a_failure() -> None:
    failed = Failed(ErrorInfo(kind="server", message="x"))
    written = checked([START, *text_events(item_id="msg_1"), failed])
    assert names(written)[-2:] == ["output_item.done", "failed"]


def test_what_follows_a_cut_call_is_emitted_if_the_answer_ends() -> None:
    text = text_events(1, item_id="msg_1")
    text.insert(2, Progress("x", 1))
    written = checked([START, *cut_call(), *text, Finished("length"), Completed()])
    assert [item["type"] for item in written[-1]["response"]["output"]] == [
        "function_call",
        "message",
    ]
    assert "output_text.delta" in names(written)


def test_what_follows_a_cut_call_is_not_emitted_if_the_answer_fails() -> None:
    failed = Failed(ErrorInfo(kind="server", message="x"))
    written = checked([START, *cut_call(), *call_events(1), failed])
    assert names(written)[2:] == ["output_item.added", "function_call_arguments.delta", "failed"]


def test_incomplete_text_and_reasoning_are_closed_when_the_answer_goes_on() -> None:
    reasoning: list[Event] = [
        PartStarted(0, Reasoning(status="in_progress")),
        ReasoningDelta(0, "hm"),
        PartEnded(0, Reasoning(summary=("hm",), status="incomplete")),
    ]
    text: list[Event] = [
        PartStarted(1, Text(status="in_progress", item_id="msg_1")),
        TextDelta(1, "a"),
        PartEnded(1, Text(text="a", status="incomplete", item_id="msg_1")),
    ]
    more = text_events(2, "b", item_id="msg_1")
    written = checked([START, *reasoning, *text, *more, Finished("length"), Completed()])
    statuses = [item["status"] for item in written[-1]["response"]["output"]]
    assert statuses == ["incomplete", "completed"]
    cut = checked([START, *reasoning, *text, Finished("length"), Completed()])
    assert names(cut)[-3:] == ["content_part.done", "output_item.done", "incomplete"]
    assert cut[-2]["item"]["status"] == "incomplete"


def test_failed_provider_call_is_done_and_says_so() -> None:
    events = call_events(kind="mcp", executor="provider", status="failed", text="{}")
    item = checked([START, *events, *STOP])[-1]["response"]["output"][0]
    assert item["status"] == "failed"


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("apply_patch", "in_progress"),
        ("image_generation", "generating"),
        ("computer", "incomplete"),
    ],
)
def test_kinds_without_the_word_incomplete_use_the_nearest(kind: Any, status: str) -> None:
    header = Call(call_id="c", name="x", kind=kind, status="in_progress")
    value = Call(call_id="c", name="x", kind=kind, status="incomplete")
    events: list[Event] = [
        START,
        PartStarted(0, header),
        PartEnded(0, value),
        Finished("length"),
        Completed(),
    ]
    assert checked(events)[-1]["response"]["output"][0]["status"] == status


def test_failure_before_the_beginning_is_a_whole_stream() -> None:
    written = checked([Failed(ErrorInfo(kind="rate_limit", message="slow", retry_after=2.5))])
    assert names(written) == ["created", "in_progress", "failed"]
    error = written[-1]["response"]["error"]
    assert error["code"] == "rate_limit_exceeded"
    assert error["message"] == "slow Please try again in 2.5s."


def test_m132_close_guarantees_a_terminal() -> None:
    encoder = ResponsesEncoder()
    data = encoder.encode(START) + b"".join(encoder.encode(event) for event in text_events()[:2])
    data += encoder.close()
    doors.check_responses(data)
    assert payloads(data)[-1]["type"] == "response.failed"
    assert encoder.close() == b""


def test_amended_input_is_emitted_by_the_end() -> None:
    """M049: this wire can amend; `.done` and the finished item are what clients take."""
    value = Call(call_id="c", name="f", input='{"x":2}')
    header = Call(call_id="c", name="f", status="in_progress")
    events: list[Event] = [
        START,
        PartStarted(0, header),
        InputDelta(0, '{"x":1}'),
        PartEnded(0, value, amended=True),
        *CALLED,
    ]
    written = payloads(write(events))
    assert written[4]["arguments"] == '{"x":2}'
    assert written[5]["item"]["arguments"] == '{"x":2}'


# --- keep-alive, notices, profile ------------------------------------------------------------------------------------


def test_keep_alive_is_the_vendors_own_event() -> None:
    """M145: a comment of the upstream never becomes data of ours."""
    notices: list[Event] = [
        Noticed("comment", "chat", raw=Raw(b'"x"')),
        Noticed("ping", "messages"),
    ]
    written = checked([START, *notices, *STOP])
    assert names(written)[2:4] == ["keepalive", "keepalive"]
    encoder = ResponsesEncoder()
    assert encoder.encode(Noticed("ping")) == b": keep-alive\n\n"


def test_own_unknown_events_are_written_back_with_our_number() -> None:
    own = Noticed(
        "unknown",
        "responses",
        "codex.rate_limits",
        raw({"type": "x", "sequence_number": 99, "a": 1}),
    )
    silent: list[Event] = [
        Noticed("unknown", "chat", "x", raw({"a": 1})),
        Noticed("fields", "responses", "x", raw({"a": 1})),
        Noticed("unknown", "responses", "response.required_action", raw({"a": 1})),
        Noticed("unknown", "responses", "two\nlines", raw({"a": 1})),
        Noticed("unknown", "responses", "", raw({})),
    ]
    encoder = ResponsesEncoder()
    assert encoder.encode(own) == b""
    written = payloads(write([START, own, *silent, *STOP]))
    assert written[2] == {"type": "codex.rate_limits", "a": 1, "sequence_number": 2}
    assert len(written) == 4


PROFILE = EncodeContext(profile="required_action")


def test_required_action_profile_lists_the_calls_and_waits() -> None:
    custom = call_events(1, "p", "text", kind="custom")
    named = call_events(2, "g", namespace="ns")
    events: list[Event] = [START, *call_events(), *custom, *named, Noticed("ping"), *CALLED]
    written = checked(events, PROFILE)
    assert names(written)[-3:] == ["ping", "required_action", "completed"]
    action = written[-2]["required_action"]
    assert action["submit_tool_outputs"]["tool_calls"] == [
        {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "call_1", "type": "custom", "custom": {"name": "p", "input": "text"}},
        {
            "id": "call_2",
            "type": "function",
            "function": {"name": "g", "arguments": '{"x":1}', "namespace": "ns"},
        },
    ]
    response = written[-1]["response"]
    assert response["status"] == written[-2]["response"]["status"] == "incomplete"
    assert response["required_action"] == action
    assert len(response["output"]) == 3


def test_required_action_profile_ends_other_answers_as_usual() -> None:
    written = checked([START, *text_events(), *STOP], PROFILE)
    assert written[-1]["response"]["status"] == "completed"
    assert "required_action" not in written[-1]["response"]


def test_call_that_was_answered_in_the_answer_does_not_wait() -> None:
    result = Result(call_id="call_0", content=(Text(text="2"),), executor="gateway")
    events: list[Event] = [START, *call_events(), *whole(1, result), *call_events(2), *CALLED]
    action = payloads(write(events, PROFILE))[-2]["required_action"]
    assert [one["id"] for one in action["submit_tool_outputs"]["tool_calls"]] == ["call_2"]


def test_required_action_of_the_upstream_is_not_echoed() -> None:
    extra = Extra("responses", {"required_action": raw({"type": "x"})})
    assert (
        "required_action"
        not in checked([START, Finished("stop"), Completed(extra)])[-1]["response"]
    )


# --- misuse ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "events",
    [
        [TextDelta(0, "x")],
        [START, START],
        [START, TextDelta(0, "x")],
        [START, InputDelta(0, "x")],
        [START, Completed()],
        [START, Finished("stop"), Finished("stop")],
        [
            START,
            PartStarted(0, Text(status="in_progress")),
            PartStarted(1, Text(status="in_progress")),
        ],
        [
            START,
            PartStarted(0, Text(status="in_progress")),
            PartEnded(0, Call(call_id="c", name="f")),
        ],
        [START, PartStarted(0, Text(status="in_progress")), PartEnded(1, Text())],
        [START, *STOP, Noticed("ping")],
    ],
)
def test_sequences_that_break_the_grammar_are_refused(events: list[Event]) -> None:
    encoder = ResponsesEncoder()
    with pytest.raises(LocalProtocolError):
        b"".join(encoder.encode(event) for event in events)


def test_line_separators_are_escaped() -> None:
    data = write([START, *text_events(text="a\u2028b\u2029c\u0085d"), *STOP])
    assert not any(separator.encode() in data for separator in ("\u2028", "\u2029", "\u0085"))
    outcome = read_answer([data])
    assert outcome.choices[0].parts[0] == Text(
        text="a\u2028b\u2029c\u0085d", item_id="msg_" + data.decode().split('"id":"msg_')[1][:24]
    )
