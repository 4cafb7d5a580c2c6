"""Streams to events: beginning, text, usage, errors, ends. Calls are in test_calls.py."""

import json

import pytest

from chat_help import DONE, call, chunk, finish, read, sse
from dragoman._json import Raw
from dragoman.dialects.chat import ChatReader
from dragoman.dialects.codec import DecodeContext
from dragoman.model.events import (
    Completed,
    Failed,
    Finished,
    Noticed,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Usage
from dragoman.model.parts import Extra, Text
from dragoman.sse import Frame

ROLE = chunk({"role": "assistant", "content": ""})


def text(piece: str) -> dict[str, object]:
    return chunk({"content": piece})


def test_text_stream_as_openai_sends_it() -> None:
    usage: dict[str, object] = {
        "choices": [],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5},
    }
    reading = read([ROLE, text("Hel"), text("lo"), finish(), usage, DONE])
    assert reading.events == [
        Started("chatcmpl-1", "m", 1700000000),
        PartStarted(0, Text(status="in_progress")),
        TextDelta(0, "Hel"),
        TextDelta(0, "lo"),
        PartEnded(0, Text(text="Hello")),
        UsageReported(Usage(input=2, output=3, total=5)),
        Finished("stop", native="stop"),
        Completed(),
    ]
    assert reading.problems == []


def test_role_only_chunk_starts_the_answer() -> None:
    reader = ChatReader()
    data = sse(ROLE)[6:-2]
    assert reader.read(Frame(sse(ROLE), data)) == (Started("chatcmpl-1", "m", 1700000000),)


def test_missing_done_after_a_finish_is_regular() -> None:
    reading = read([text("a"), finish()])
    assert reading.events[-1] == Completed()
    assert reading.problems == []


def test_end_without_a_finish_is_truncated_and_closes_the_open_part() -> None:
    reading = read([text("a"), text("b")])
    assert reading.parts == (Text(text="ab", status="incomplete"),)
    assert reading.error.kind == "truncated"
    assert reading.problems == ["cut_stream"]


def test_nothing_at_all_is_truncated() -> None:
    reading = read(b"")
    assert reading.events == [Failed(reading.error)]
    assert reading.error.kind == "truncated"


def test_done_without_any_choice_is_an_error_and_not_an_empty_answer() -> None:
    reading = read([DONE])
    assert reading.error.kind == "protocol"
    assert reading.problems == ["empty_output"]


def test_done_without_a_finish_infers_it_from_text() -> None:
    reading = read([text("a"), DONE])
    assert Finished("stop", inferred=True) in reading.events
    assert reading.problems == ["missing_finish"]


def test_frames_after_the_end_mean_nothing() -> None:
    reading = read([text("a"), finish(), DONE, text("b")])
    assert reading.parts == (Text(text="a"),)


@pytest.mark.parametrize("payload", ["{nonsense", "[]", '"x"', "3", "null"])
def test_frame_that_is_no_json_object_fails_the_answer(payload: str) -> None:
    reading = read([text("a"), payload, text("b"), finish(), DONE])
    assert reading.parts == (Text(text="a", status="incomplete"),)
    assert isinstance(reading.events[-1], Failed)
    assert reading.problems == ["malformed_frame"]


UNREADABLE: list[dict[str, object]] = [
    {"choices": 5},
    {"choices": [5]},
    {"choices": [{"index": "x", "delta": {}}]},
    {"choices": [{"index": 0, "delta": "x"}]},
    {"choices": [{"index": 0, "delta": {"content": 5}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": 5}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": "x"}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [5]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": []}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": "x"}]}}]},
    {"choices": [{"index": 0, "delta": {"function_call": "x"}}]},
    {"choices": [{"index": 0, "delta": {"function_call": {"name": 5}}}]},
]


@pytest.mark.parametrize("chunk", UNREADABLE)
def test_field_that_may_hold_a_piece_of_a_call_is_never_passed_over(chunk: object) -> None:
    reading = read([text("a"), json.dumps(chunk), finish(), DONE])
    failed = reading.events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "protocol"
    assert reading.problems == ["malformed_frame"]


def test_empty_data_and_bare_fields_mean_nothing() -> None:
    data = sse(text("a")) + b"data:\n\nretry: 100\n\n" + sse(finish(), DONE)
    assert read(data).problems == []


def test_comments_are_noticed_as_comments() -> None:  # M145
    data = b": OPENROUTER PROCESSING\n\n" + sse(text("a"), finish(), DONE)
    assert read(data).events[0] == Noticed("comment", raw=Raw(b'"OPENROUTER PROCESSING"'))


# --- text -------------------------------------------------------------------------------------------------------------


def test_character_cut_between_two_deltas_is_joined() -> None:
    data = (
        b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00b"}}]}\n\n'
    ) + sse(text("c"), finish(), DONE)
    reading = read(data)
    assert [event.text for event in reading.events if isinstance(event, TextDelta)] == [
        "a",
        "\U0001f600b",
        "c",
    ]


def test_half_a_character_that_stays_alone_is_replaced() -> None:
    data = b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n'
    assert read(data + sse(finish(), DONE)).parts == (Text(text="a\ufffd"),)


def test_logprobs_travel_with_their_text() -> None:
    first = chunk({"content": "a"})
    first["choices"] = [
        {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{"token": "a"}]}}
    ]
    second = dict(first)
    second["choices"] = [
        {"index": 0, "delta": {"content": ""}, "logprobs": {"content": [{"token": ""}]}}
    ]
    third = dict(first)
    third["choices"] = [
        {"index": 0, "delta": {"content": "b"}, "logprobs": {"content": [{"token": "b"}]}}
    ]
    reading = read([first, second, third, finish(), DONE])
    deltas = [event for event in reading.events if isinstance(event, TextDelta)]
    assert [(each.text, each.logprobs) for each in deltas] == [
        ("a", Raw(b'[{"token": "a"}]')),
        ("b", Raw(b'[{"token": ""},{"token": "b"}]')),
    ]
    assert reading.parts == (
        Text(text="ab", logprobs=Raw(b'[{"token": "a"},{"token": ""},{"token": "b"}]')),
    )


def test_logprobs_without_any_text_are_noticed() -> None:
    only = chunk()
    only["choices"] = [{"index": 0, "delta": {}, "logprobs": {"content": [1], "refusal": []}}]
    reading = read([only, finish(), DONE])
    raw = Raw(b'{"logprobs":{"content":[1]}}')
    assert Noticed("fields", "chat", "choice", raw) in reading.events


def test_whole_message_in_a_stream_is_read_like_a_delta() -> None:
    whole = chunk()
    whole["choices"] = [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ]
    assert read([whole, DONE]).parts == (Text(text="hi"),)


def test_cumulative_message_beside_the_delta_is_ignored() -> None:
    chunks: list[dict[str, object]] = []
    for piece, whole in (("a", "a"), ("b", "ab")):
        each = text(piece)
        each["choices"] = [{"index": 0, "delta": {"content": piece}, "message": {"content": whole}}]
        chunks.append(each)
    assert read([*chunks, finish(), DONE]).parts == (Text(text="ab"),)


def test_deltas_that_open_nothing_mean_nothing() -> None:
    empty = chunk({"role": "assistant", "content": "", "reasoning_content": ""})
    reading = read([empty, text("a"), empty, text("b"), finish(), DONE])
    assert reading.parts == (Text(text="ab"),)


def test_text_and_reasoning_in_one_delta_come_in_that_order() -> None:
    both = chunk({"content": "a", "reasoning_content": "hm"})
    reading = read([text("x"), both, finish(), DONE])
    assert [type(part).__name__ for part in reading.parts] == ["Text", "Reasoning", "Text"]


def test_reasoning_after_text_is_a_new_part() -> None:
    thought = chunk({"reasoning_content": "hm"})
    reading = read([text("a"), thought, thought, finish(), DONE])
    assert [type(part).__name__ for part in reading.parts] == ["Text", "Reasoning"]


def test_call_delta_beside_reasoning_is_read_whole() -> None:
    first = call({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}})
    second = chunk(
        {"reasoning": "hm", "tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}
    )
    reading = read([first, second, finish("tool_calls"), DONE])
    assert reading.inputs == [("a", "f", "{}")]


# --- fields without a home --------------------------------------------------------------------------------------------


def test_envelope_fields_of_the_first_chunk_are_kept_and_later_ones_only_if_they_change() -> None:
    first = {**text("a"), "system_fingerprint": "fp", "obfuscation": "x"}
    same = {**chunk({"x": 1}), "system_fingerprint": "fp"}
    other = {**finish(), "system_fingerprint": "fp2"}
    reading = read([first, same, other, DONE])
    assert reading.outcome.started_extra == Extra("chat", {"system_fingerprint": Raw(b'"fp"')})
    raws = [event.raw for event in reading.events if isinstance(event, Noticed)]
    assert raws == [Raw(b'{"x":1}'), Raw(b'{"system_fingerprint":"fp2"}')]


def test_azures_first_chunk_gives_its_filter_results_to_the_start() -> None:
    azure = {"choices": [], "id": "", "model": "", "prompt_filter_results": [{"prompt_index": 0}]}
    reading = read([azure, text("a"), finish(), DONE])
    assert reading.outcome.response_id == "chatcmpl-1"
    extra = reading.outcome.started_extra
    assert extra is not None
    assert list(extra.fields) == ["prompt_filter_results"]
    assert reading.problems == []


def test_unknown_fields_of_a_finishing_choice_stay_with_the_finish() -> None:
    last = chunk()
    last["choices"] = [
        {"index": 0, "delta": {}, "finish_reason": "stop", "native_finish_reason": "STOP"}
    ]
    reading = read([text("a"), last, DONE])
    extra = Extra("chat", {"native_finish_reason": Raw(b'"STOP"')})
    assert reading.outcome.choices[0].finish_extra == extra


def test_unknown_fields_of_a_choice_are_noticed() -> None:
    each = chunk()
    each["choices"] = [{"index": 0, "delta": {}, "weight": 0.50}]
    notice = Noticed("fields", "chat", "choice", Raw(b'{"weight":0.5}'))
    assert notice in read([text("a"), each, finish(), DONE]).events


def test_frame_of_another_kind_is_noticed_and_reported() -> None:
    reading = read([text("a"), {"type": "ping"}, {}, finish(), DONE])
    assert Noticed("unknown", "chat", "ping", Raw(b'{"type": "ping"}')) in reading.events
    assert reading.problems == ["unknown_event", "unknown_event"]


def test_chunk_without_choices_is_regular() -> None:
    bare = {"object": "chat.completion.chunk", "choices": None}
    assert read([text("a"), bare, finish(), DONE]).problems == []


# --- usage ------------------------------------------------------------------------------------------------------------


def test_usage_in_every_chunk_is_emitted_when_it_changes() -> None:
    def counted(payload: dict[str, object], count: int) -> dict[str, object]:
        return {**payload, "usage": {"prompt_tokens": 1, "completion_tokens": count}}

    reading = read(
        [counted(text("a"), 1), counted(text("b"), 1), counted(finish(), 2), DONE],
    )
    found = [event.usage.output for event in reading.events if isinstance(event, UsageReported)]
    assert found == [1, 2]
    assert reading.parts == (Text(text="ab"),)


def test_usage_before_any_choice_starts_the_answer() -> None:
    early: dict[str, object] = {"choices": [], "id": "x", "usage": {"prompt_tokens": 1}}
    reading = read([early, text("a"), finish(), DONE])
    assert reading.outcome.response_id == "x"


def test_usage_of_groq_is_found() -> None:
    last = {**finish(), "x_groq": {"usage": {"prompt_tokens": 7}}}
    usage = read([text("a"), last, DONE]).outcome.usage
    assert usage is not None
    assert usage.input == 7


def test_empty_delta_with_usage_after_the_finish_is_regular() -> None:
    last = {**chunk({"role": "assistant", "content": ""}), "usage": {"prompt_tokens": 1}}
    assert read([text("a"), finish(), last, DONE]).problems == []


# --- finish -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("MAX_TOKENS", "length"),
        ("model_length", "context_window"),
        ("SAFETY", "content_filter"),
        ("eos_token", "stop"),
        ("abort", "cancelled"),
    ],
)
def test_finish_reasons_have_one_meaning(native: str, reason: str) -> None:
    reading = read([text("a"), finish(native), DONE])
    assert reading.outcome.choices[0].finish == reason
    assert reading.problems == []


def test_unknown_finish_reason_is_decided_by_content_and_reported() -> None:
    reading = read([text("a"), finish("weird"), DONE])
    assert Finished("stop", native="weird") in reading.events
    assert reading.problems == ["unknown_finish"]


@pytest.mark.parametrize(
    ("fields", "stop"),
    [
        ({"stop_reason": "###"}, "###"),  # M074
        ({"matched_stop": "END"}, "END"),
        ({"stop_reason": 128009}, None),
        ({"stop_reason": "end_turn"}, None),
    ],
)
def test_matched_stop_sequence_is_emitted(fields: dict[str, object], stop: str | None) -> None:
    last = chunk()
    last["choices"] = [{"index": 0, "delta": {}, "finish_reason": "stop", **fields}]
    choice = read([text("a"), last, DONE]).outcome.choices[0]
    assert choice.finish == ("stop" if stop is None else "stop_sequence")
    assert choice.stop_sequence == stop


def test_text_after_the_finish_is_kept_and_reported() -> None:
    reading = read([text("a"), finish(), text("b"), DONE])
    assert reading.parts == (Text(text="a"), Text(text="b"))
    assert reading.problems == ["after_finish"]


def test_second_finish_is_nothing_but_reported() -> None:
    reading = read([text("a"), finish("length"), finish("stop"), DONE])
    assert reading.outcome.choices[0].finish == "length"
    assert reading.problems == ["after_finish"]


def test_finish_after_more_content_counts() -> None:
    reading = read([text("a"), finish(), text("b"), finish("length"), DONE])
    assert reading.outcome.choices[0].finish == "length"


def test_empty_finish_reason_is_none() -> None:
    assert read([chunk({"content": "a"}, ""), finish(), DONE]).problems == []


# --- errors -----------------------------------------------------------------------------------------------------------


def test_error_chunk_beats_empty_choices() -> None:  # M079
    error: dict[str, object] = {
        "choices": [],
        "error": {"code": 502, "message": "provider_unavailable"},
    }
    reading = read([text("a"), error])
    assert reading.parts == (Text(text="a", status="incomplete"),)
    assert (reading.error.kind, reading.error.message) == ("upstream", "provider_unavailable")


def test_error_hidden_in_base_resp_is_shown() -> None:  # M077
    error = {
        "choices": None,
        "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"},
    }
    reading = read([error])
    assert (reading.error.kind, reading.error.message) == ("quota", "insufficient balance")


def test_base_resp_that_says_all_is_well_is_no_error() -> None:
    fine = {**text("a"), "base_resp": {"status_code": 0, "status_msg": ""}}
    assert read([fine, finish(), DONE]).parts == (Text(text="a"),)


@pytest.mark.parametrize(
    "data",
    [
        b'data: {"error":"boom"}\n\n',
        b'data: {"error":{"error":{"message":"boom"}}}\n\n',
        b'event: error\ndata: {"msg":"boom"}\n\n',
        b'data: {"object":"error","message":"boom"}\n\n',
        b'data: {"detail":"boom"}\n\n',
    ],
)
def test_errors_in_other_forms_are_errors(data: bytes) -> None:
    assert read(data).error.message == "boom"


def test_error_inside_a_choice_ends_the_answer_after_its_text() -> None:
    last = chunk()
    last["choices"] = [
        {
            "index": 0,
            "delta": {"content": "b"},
            "finish_reason": "error",
            "error": {"code": 429, "message": "slow down"},
        }
    ]
    reading = read([text("a"), last])
    assert reading.parts == (Text(text="ab", status="incomplete"),)
    assert reading.error.kind == "rate_limit"


def test_finish_reason_error_is_a_failure() -> None:
    reading = read([text("a"), finish("error"), DONE])
    assert reading.error.kind == "upstream"


def test_error_object_that_is_empty_is_none() -> None:
    assert read([{**text("a"), "error": {}}, finish(), DONE]).parts == (Text(text="a"),)


def test_failure_from_outside_closes_what_is_open() -> None:
    reader = ChatReader()
    data = sse(text("a"))[6:-2]
    reader.read(Frame(b"", data))
    error = ErrorInfo(kind="timeout", message="idle")
    assert reader.fail(error) == (
        PartEnded(0, Text(text="a", status="incomplete")),
        Failed(error),
    )
    assert reader.over


# --- several choices --------------------------------------------------------------------------------------------------


def test_choices_are_distinguished() -> None:
    reading = read(
        [
            chunk({"content": "a"}, index=0),
            chunk({"content": "x"}, index=1),
            chunk({"content": "b"}, index=0),
            finish("stop", 0),
            chunk({"content": "y"}, index=1),
            finish("length", 1),
            DONE,
        ]
    )
    assert [(each.index, each.parts, each.finish) for each in reading.outcome.choices] == [
        (0, (Text(text="ab"),), "stop"),
        (1, (Text(text="xy"),), "length"),
    ]
    assert reading.problems == []


def test_choice_zero_finishes_even_if_it_never_appeared() -> None:
    reading = read([chunk({"content": "a"}, index=1), finish("stop", 1), DONE])
    assert [each.index for each in reading.outcome.choices] == [0, 1]


def test_unfinished_choice_cuts_the_whole_answer() -> None:
    reading = read([chunk({"content": "a"}), chunk({"content": "x"}, index=1), finish()])
    assert reading.error.kind == "truncated"
    assert "choice 1" in reading.error.message


def test_answer_spread_over_choices_is_one_where_one_was_asked_for() -> None:
    reading = read(
        [
            chunk({"content": "Looking."}, index=0),
            finish("stop", 0),
            chunk(
                {
                    "tool_calls": [
                        {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
                    ]
                },
                index=1,
            ),
            chunk(
                {
                    "tool_calls": [
                        {"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}
                    ]
                },
                index=2,
            ),
            finish("tool_calls", 1),
            DONE,
        ],
        DecodeContext(choices=1),
    )
    assert len(reading.outcome.choices) == 1
    assert reading.inputs == [("a", "f", "{}"), ("b", "g", "{}")]
    assert reading.outcome.choices[0].finish == "tool_calls"
    assert reading.problems == ["split_choices"]


def test_limit_in_one_of_the_merged_choices_stands() -> None:
    reading = read(
        [
            chunk({"content": "a"}, "length", 0),
            chunk({}, "stop", 1),
            DONE,
        ],
        DecodeContext(choices=1),
    )
    assert reading.outcome.choices[0].finish == "length"


def test_negative_choice_index_is_choice_zero() -> None:
    assert read([chunk({"content": "a"}, "stop", -3), DONE]).parts == (Text(text="a"),)


def test_call_with_index_from_another_world_is_read_by_the_slow_path() -> None:
    entry = {"index": "0", "id": "a", "function": {"name": "f", "arguments": "{}"}}
    assert read([call(entry), finish("tool_calls"), DONE]).inputs == [("a", "f", "{}")]
