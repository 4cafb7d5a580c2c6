"""Streams that deviate: what is understood all the same, and how it is reported."""

import json

import pytest

from dragoman._json import Raw
from dragoman.core.call_input import judge
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.messages import MessagesReader
from dragoman.dialects.stream_decoder import StreamDecoder
from dragoman.model.events import (
    Completed,
    Failed,
    Finished,
    InputDelta,
    Noticed,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
)
from dragoman.model.parts import Call, Opaque, Reasoning, Seal, Text
from dragoman.model.request import Tool
from messages_streams import (
    MESSAGE,
    START,
    answer,
    block_delta,
    block_start,
    block_stop,
    calls,
    end,
    event,
    input_delta,
    kinds,
    outcome,
    parts,
    read,
    text_delta,
    tool_use,
    write,
)

TEXT = block_start(0, {"type": "text", "text": ""})
CITY = Tool(
    name="weather",
    schema=Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'),
)
PATH = Tool(
    name="open",
    schema=Raw(b'{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'),
)


# --- the message ---------------------------------------------------------------------------------


def test_stream_without_event_names_is_understood_and_reported_once() -> None:
    data = answer(TEXT, text_delta(0, "a"), block_stop(0))
    bare = b"".join(
        b"data:" + frame.partition(b"data:")[2] + b"\n\n" for frame in data.split(b"\n\n")[:-1]
    )
    events, problems = read(bare)
    assert problems == ["missing_event_name"]
    assert events == read(data)[0]


def test_event_name_stands_in_for_a_missing_type() -> None:
    data = START + write({}, "ping") + write({"x": 1}, "other") + end()
    events, problems = read(data)
    assert problems == ["missing_type", "missing_type", "unknown_event"]
    assert Noticed("ping", "messages") in events


def test_type_wins_over_another_event_name() -> None:
    data = START + write({"type": "ping"}, "message") + end()
    events, problems = read(data)
    assert problems == ["wrong_event_name"]
    assert Noticed("ping", "messages") in events


def test_unknown_event_is_noticed_whole() -> None:
    events, problems = read(START + event("gateway_note", x=1) + end())
    assert problems == ["unknown_event"]
    whole = Raw(b'{"type": "gateway_note", "x": 1}')
    assert Noticed("unknown", "messages", "gateway_note", whole) in events


def test_stream_of_another_dialect_is_no_answer() -> None:
    # M082
    events, problems = read(write({"object": "chat.completion.chunk", "choices": []}))
    assert problems == ["missing_event_name", "unknown_event", "cut_stream"]
    assert isinstance(events[-1], Failed)


def test_error_in_another_dialects_form_is_an_error() -> None:
    events, _ = read(START + write({"error": {"message": "no", "type": "server_error"}}))
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.message == "no"


@pytest.mark.parametrize(
    "frame",
    [
        b"event: content_block_delta\ndata: {oops\n\n",
        b"event: content_block_delta\ndata: []\n\n",
        b"event: content_block_delta\ndata:\n\n",
        b"event: content_block_delta\n\n",
        b"event: content_block_stop\n\n",
        b'data: {"type": 5, "index": 0}\n\n',
        block_delta(0, None),
        block_delta(0, "x"),
        block_delta(0, {"partial_json": "x"}),
        block_delta(0, {"type": "text_delta", "text": 5}),
        block_delta(0, {"type": "input_json_delta", "partial_json": 5}),
        block_delta(0, {"type": "input_json_delta", "partial_json": [1]}),
        event("content_block_delta", index="x", delta={"type": "text_delta", "text": "b"}),
        event("message_delta", delta={"stop_reason": 5}),
        block_start(1, "text"),
        block_start(1, {"type": "tool_use", "id": "a", "name": 5, "input": {}}),
        block_start(1, {"type": "tool_use", "id": "a", "name": "f", "input": 5}),
        block_start(1, {"type": "text", "text": 5}),
    ],
)
def test_frame_that_cannot_be_read_fails_the_answer(frame: bytes) -> None:
    data = answer(TEXT, text_delta(0, "a"), frame, text_delta(0, "c"), block_stop(0))
    assert kinds(data) in (["malformed_frame"], ["missing_event_name", "malformed_frame"])
    assert parts(data) == [Text(text="a", status="incomplete")]
    failed = read(data)[0][-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "protocol"


@pytest.mark.parametrize(
    "frame", [b"event: ping\n\n", b"event: ping\ndata:\n\n", b"data:\n\n", b"data: \n\n"]
)
def test_frame_without_data_that_keeps_a_connection_open_is_nothing(frame: bytes) -> None:
    data = answer(TEXT, frame, text_delta(0, "a"), block_stop(0))
    assert kinds(data) == []
    assert parts(data) == [Text(text="a")]


def test_event_whose_type_is_unknown_is_read_by_its_name() -> None:
    odd = text_delta(0, "a").replace(b'"content_block_delta"', b'"content_blck_delta"')
    data = answer(TEXT, odd, block_stop(0))
    assert kinds(data) == ["missing_type"]
    assert parts(data) == [Text(text="a")]


def test_bytes_that_are_no_utf8_fail_the_answer() -> None:
    data = answer(TEXT, text_delta(0, "a?").replace(b"?", b"\xff"), block_stop(0))
    assert kinds(data) == ["invalid_utf8"]
    assert isinstance(read(data)[0][-1], Failed)


def test_missing_message_start_is_made_up() -> None:
    events, problems = read(TEXT + text_delta(0, "a") + block_stop(0) + end())
    assert problems == ["missing_start"]
    assert events[0] == Started()


def test_message_start_may_lack_everything() -> None:
    events, problems = read(event("message_start") + end())
    assert problems == ["missing_id", "missing_usage"]
    assert events[0] == Started()


def test_content_in_message_start_is_emitted() -> None:
    message = {**MESSAGE, "content": [{"type": "text", "text": "hi"}]}
    data = event("message_start", message=message) + end()
    assert "content_in_start" in kinds(data)
    assert parts(data) == [Text(text="hi")]


def test_second_message_start_is_ignored_if_it_repeats_the_first() -> None:
    events, problems = read(START + START + end())
    assert problems == ["repeated_start"]
    assert sum(isinstance(each, Started) for each in events) == 1


def test_second_answer_in_one_stream_is_a_failure() -> None:
    # M156: a retry behind the upstream must not be joined to the first attempt
    again = event("message_start", message={**MESSAGE, "id": "msg_2"})
    data = START + tool_use(0) + input_delta(0, '{"code":"pri') + again + end("tool_use")
    events, problems = read(data)
    assert problems == ["repeated_start"]
    assert calls(data) == [("toolu_a", "f", '{"code":"pri', "incomplete")]
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "protocol"


def test_missing_usage_is_reported() -> None:
    message = {key: value for key, value in MESSAGE.items() if key != "usage"}
    start = event("message_start", message=message)
    stop = event("message_delta", delta={"stop_reason": "end_turn"})
    assert kinds(start + stop + event("message_stop")) == ["missing_usage", "missing_usage"]


def test_missing_message_delta_is_inferred() -> None:
    # M066
    data = START + tool_use(0) + input_delta(0, "{}") + block_stop(0) + event("message_stop")
    events, problems = read(data)
    assert problems == ["missing_finish"]
    assert Finished("tool_calls", inferred=True) in events


def test_missing_message_stop_after_the_reason_is_forgiven() -> None:
    data = (START + end())[: -len(event("message_stop"))]
    events, problems = read(data)
    assert problems == ["missing_end"]
    assert isinstance(events[-1], Completed)


def test_end_before_the_reason_is_a_cut() -> None:
    # M061, M154
    data = START + tool_use(0) + input_delta(0, '{"content":"e tes')
    events, problems = read(data)
    assert problems == ["cut_stream"]
    assert calls(data) == [("toolu_a", "f", '{"content":"e tes', "incomplete")]
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "truncated"


def test_call_cut_after_its_name_has_no_input() -> None:
    # M063
    assert calls(START + tool_use(0)) == [("toolu_a", "f", "", "incomplete")]
    assert calls(START + tool_use(0) + block_stop(0)) == [("toolu_a", "f", "", "incomplete")]


def test_cut_leaves_complete_calls_complete() -> None:
    data = START + tool_use(0) + input_delta(0, '{"x":1}') + block_stop(0)
    assert calls(data) == [("toolu_a", "f", '{"x":1}', "completed")]
    assert outcome(data).error is not None


def test_empty_stream_is_a_cut() -> None:
    events, problems = read(b"")
    assert problems == ["cut_stream"]
    assert [type(each) for each in events] == [Failed]


def test_done_marker_ends_a_stream_whose_reason_was_given() -> None:
    data = (START + end())[: -len(event("message_stop"))] + b"data: [DONE]\n\n"
    events, problems = read(data)
    assert problems == ["missing_end"]
    assert events[-2:] == [Noticed("done", "messages"), Completed()]


def test_done_marker_ends_a_stream_without_a_reason_if_its_calls_are_whole() -> None:
    # M066
    whole = START + tool_use(0) + input_delta(0, '{"x":1}') + b"data: [DONE]\n\n"
    events, problems = read(whole)
    assert problems == ["missing_finish", "missing_block_stop"]
    assert Finished("tool_calls", inferred=True) in events
    cut = START + tool_use(0) + input_delta(0, '{"x":') + b"data: [DONE]\n\n"
    assert outcome(cut).error is not None
    assert outcome(b"data: [DONE]\n\n").error is not None


def test_done_marker_does_not_save_a_call_without_a_name() -> None:
    data = START + tool_use(0, name="") + input_delta(0, '{"x":1}') + b"data: [DONE]\n\n"
    error = outcome(data).error
    assert error is not None
    assert error.kind == "protocol"


def test_end_turn_beside_a_call_is_a_tool_call() -> None:
    # M064
    data = answer(tool_use(0), input_delta(0, "{}"), block_stop(0))
    assert kinds(data) == ["wrong_finish"]
    assert outcome(data).choices[0].finish == "tool_calls"


def test_tool_use_without_a_call_is_a_stop() -> None:
    data = answer(TEXT, text_delta(0, "a"), block_stop(0), reason="tool_use")
    assert kinds(data) == ["wrong_finish"]
    assert outcome(data).choices[0].finish == "stop"


def test_unknown_stop_reason_is_settled_by_content_and_kept() -> None:
    data = answer(reason="weird")
    assert kinds(data) == ["unknown_finish"]
    choice = outcome(data).choices[0]
    assert choice.finish == "stop"
    assert choice.finish_extra is not None
    assert choice.finish_extra.fields == {"stop_reason": Raw(b'"weird"')}


def test_second_reason_changes_nothing() -> None:
    stop = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1})
    data = START + stop + end("max_tokens")
    assert kinds(data) == ["repeated_finish"]
    assert outcome(data).choices[0].finish == "stop"


def test_blocks_after_the_reason_are_dropped() -> None:
    stop = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1})
    late = TEXT + text_delta(0, "late") + block_stop(0)
    data = START + stop + late + event("message_stop")
    assert kinds(data) == ["after_finish"] * 3
    assert parts(data) == []


# --- blocks --------------------------------------------------------------------------------------


def test_interleaved_calls_are_kept_apart() -> None:
    # M010
    data = answer(
        tool_use(0, "toolu_a", "f"),
        tool_use(1, "toolu_b", "g"),
        input_delta(0, '{"x":'),
        input_delta(1, '{"y":'),
        input_delta(0, "1}"),
        input_delta(1, "2}"),
        block_stop(0),
        block_stop(1),
        reason="tool_use",
    )
    assert kinds(data) == ["interleaved_blocks"]
    assert calls(data) == [
        ("toolu_a", "f", '{"x":1}', "completed"),
        ("toolu_b", "g", '{"y":2}', "completed"),
    ]


def test_problems_of_many_open_blocks_are_short() -> None:
    data = answer(*(tool_use(number, f"toolu_{number}") for number in range(300)))
    problems = [
        problem for step in StreamDecoder(MessagesReader()).feed(data) for problem in step.problems
    ]
    assert len(problems) > 300
    assert max(len(problem.message) for problem in problems) < 100


def test_index_gaps_are_survived() -> None:
    data = answer(
        block_start(1, {"type": "text", "text": "a"}),
        block_stop(1),
        tool_use(3),
        input_delta(3, "{}"),
        block_stop(3),
        reason="tool_use",
    )
    assert kinds(data) == ["index_gap", "index_gap"]
    assert [type(part) for part in parts(data)] == [Text, Call]


def test_missing_index_means_the_open_block() -> None:
    data = answer(
        block_start(None, {"type": "text", "text": ""}),
        text_delta(None, "a"),
        block_stop(None),
        block_start(-4, {"type": "text", "text": "b"}),
        block_stop(-4),
    )
    assert kinds(data) == ["missing_index"] * 5
    assert parts(data) == [Text(text="a"), Text(text="b")]


def test_index_of_an_open_block_that_starts_another_closes_the_first() -> None:
    # M005
    data = answer(
        tool_use(0, "toolu_a", "f"),
        input_delta(0, '{"x":1}'),
        tool_use(0, "toolu_b", "g"),
        input_delta(0, '{"y":2}'),
        block_stop(0),
        reason="tool_use",
    )
    assert kinds(data) == ["index_reused"]
    assert calls(data) == [
        ("toolu_a", "f", '{"x":1}', "completed"),
        ("toolu_b", "g", '{"y":2}', "completed"),
    ]


def test_repeated_start_of_one_call_is_one_call() -> None:
    # M030
    data = answer(
        tool_use(0), tool_use(0), input_delta(0, '{"x":1}'), block_stop(0), reason="tool_use"
    )
    assert kinds(data) == ["index_reused"]
    assert calls(data) == [("toolu_a", "f", '{"x":1}', "completed")]


def test_index_of_an_ended_block_may_come_again() -> None:
    data = answer(
        block_start(0, {"type": "text", "text": "a"}),
        block_stop(0),
        block_start(0, {"type": "text", "text": "b"}),
        block_stop(0),
    )
    assert kinds(data) == ["index_reused"]
    assert parts(data) == [Text(text="a"), Text(text="b")]


def test_missing_block_stop_is_made_good_by_the_end() -> None:
    data = answer(
        block_start(0, {"type": "text", "text": "a"}),
        tool_use(1),
        input_delta(1, '{"x":1}'),
        reason="tool_use",
    )
    assert kinds(data) == ["interleaved_blocks", "missing_block_stop", "missing_block_stop"]
    assert parts(data) == [Text(text="a"), Call(call_id="toolu_a", name="f", input='{"x":1}')]


def test_call_left_open_at_a_limit_is_incomplete() -> None:
    data = answer(tool_use(0), input_delta(0, '{"x":1}'), reason="max_tokens")
    assert kinds(data) == ["missing_block_stop"]
    assert calls(data) == [("toolu_a", "f", '{"x":1}', "incomplete")]


def test_block_stop_without_a_block_is_reported() -> None:
    assert kinds(answer(block_stop(0))) == ["missing_block_start"]
    assert kinds(answer(block_stop(None))) == ["missing_index", "missing_block_start"]


@pytest.mark.parametrize(
    ("delta", "part"),
    [
        ({"type": "text_delta", "text": "a"}, Text(text="a")),
        ({"type": "thinking_delta", "thinking": "a"}, Reasoning(summary=("a",))),
        (
            {"type": "signature_delta", "signature": "s"},
            Reasoning(seals=(Seal("signature", "s"),)),
        ),
    ],
)
def test_delta_without_its_block_opens_one(delta: object, part: object) -> None:
    data = answer(block_delta(0, delta), block_stop(0))
    assert kinds(data) == ["missing_block_start"]
    assert parts(data) == [part]


def test_text_after_a_blocks_end_is_a_new_part() -> None:
    data = answer(TEXT, text_delta(0, "a"), block_stop(0), text_delta(0, "b"))
    assert kinds(data) == ["missing_block_start", "missing_block_stop"]
    assert parts(data) == [Text(text="a"), Text(text="b")]


def test_input_after_a_calls_end_is_dropped() -> None:
    data = answer(
        tool_use(0),
        input_delta(0, '{"x":1}'),
        block_stop(0),
        input_delta(0, ',"y":2}'),
        reason="tool_use",
    )
    assert kinds(data) == ["after_block_stop"]
    assert calls(data) == [("toolu_a", "f", '{"x":1}', "completed")]


def test_delta_of_another_type_opens_a_block_beside() -> None:
    # M085
    data = answer(
        tool_use(0),
        block_delta(0, {"type": "thinking_delta", "thinking": "b"}),
        block_delta(0, {"type": "thinking_delta", "thinking": "c"}),
        input_delta(0, "{}"),
        block_stop(0),
        reason="tool_use",
    )
    assert kinds(data) == ["delta_mismatch"]
    assert sorted(type(part).__name__ for part in parts(data)) == ["Call", "Reasoning"]
    assert Reasoning(summary=("bc",)) in parts(data)


def test_unknown_delta_is_noticed() -> None:
    data = answer(
        TEXT,
        block_delta(0, {"type": "gateway_delta", "x": 1}),
        block_delta(7, {"type": "gateway_delta"}),
        text_delta(0, "a"),
        block_stop(0),
    )
    events, problems = read(data)
    assert problems == ["unknown_delta", "unknown_delta"]
    noticed = [each for each in events if isinstance(each, Noticed)]
    assert [each.part for each in noticed] == [0, None]
    assert noticed[0].raw == Raw(b'{"type": "gateway_delta", "x": 1}')


def test_unknown_block_is_kept_whole_with_what_its_deltas_set() -> None:
    data = answer(
        block_start(0, {"type": "hologram", "a": 1}),
        block_delta(0, {"type": "hologram_delta", "b": 2}),
        block_stop(0),
    )
    assert kinds(data) == ["unknown_block", "unknown_delta"]
    (part,) = parts(data)
    assert isinstance(part, Opaque)
    assert json.loads(bytes(part.raw)) == {"type": "hologram", "a": 1, "b": 2}


def test_known_delta_of_an_opaque_block_opens_a_block_beside() -> None:
    data = answer(block_start(0, {"type": "fallback"}), text_delta(0, "a"), block_stop(0))
    assert kinds(data) == ["delta_mismatch"]
    assert [type(part) for part in parts(data)] == [Opaque, Text]


def test_broken_blocks_of_known_types_are_opaque() -> None:
    for block in (
        {"type": "redacted_thinking"},
        {"type": "web_search_tool_result", "tool_use_id": "a"},
        {"type": "image", "source": 5},
        {"type": "document", "source": {"type": "content", "content": "x"}},
    ):
        (part,) = parts(answer(block_start(0, block), block_stop(0)))
        assert isinstance(part, Opaque)


def test_null_text_is_empty() -> None:
    # M080
    data = answer(
        block_start(0, {"type": "text", "text": None}),
        block_delta(0, {"type": "text_delta", "text": None}),
        block_stop(0),
    )
    assert kinds(data) == []
    assert parts(data) == [Text()]


def test_second_signature_replaces_the_first() -> None:
    data = answer(
        block_start(0, {"type": "thinking", "thinking": "a", "signature": "one"}),
        block_delta(0, {"type": "signature_delta", "signature": "two"}),
        block_stop(0),
    )
    assert kinds(data) == ["repeated_signature"]
    assert parts(data) == [Reasoning(summary=("a",), seals=(Seal("signature", "two"),))]


# --- calls ---------------------------------------------------------------------------------------


def test_whole_input_in_the_start_is_taken_by_its_bytes() -> None:
    frame = (
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        b'"content_block":{"type":"tool_use","id":"toolu_a","name":"f",'
        b'"input":{"n": 1.0, "big": 12345678901234567890}}}\n\n'
    )
    data = answer(frame, block_stop(0), reason="tool_use")
    events, problems = read(data)
    assert problems == ["input_in_start"]
    text = '{"n": 1.0, "big": 12345678901234567890}'
    assert InputDelta(0, text) in events
    assert calls(data) == [("toolu_a", "f", text, "completed")]


def test_deltas_win_over_input_in_the_start() -> None:
    data = answer(
        tool_use(0, input={"x": 0}), input_delta(0, '{"x":1}'), block_stop(0), reason="tool_use"
    )
    assert kinds(data) == []
    assert calls(data) == [("toolu_a", "f", '{"x":1}', "completed")]


def test_string_as_input_is_the_text_of_the_input() -> None:
    data = answer(tool_use(0, input='{"x":1}'), block_stop(0), reason="tool_use")
    assert kinds(data) == ["string_input", "input_in_start"]
    assert calls(data) == [("toolu_a", "f", '{"x":1}', "completed")]
    empty = answer(tool_use(0, input=""), block_stop(0), reason="tool_use")
    assert kinds(empty) == ["string_input"]
    assert calls(empty) == [("toolu_a", "f", "{}", "completed")]


def test_null_input_is_no_input() -> None:
    data = answer(tool_use(0, input=None), block_stop(0), reason="tool_use")
    assert kinds(data) == []
    assert calls(data) == [("toolu_a", "f", "{}", "completed")]


def test_white_space_as_input_is_an_empty_object() -> None:
    data = answer(tool_use(0), input_delta(0, " "), block_stop(0), reason="tool_use")
    assert kinds(data) == []
    assert calls(data) == [("toolu_a", "f", " {}", "completed")]


def test_cumulative_deltas_are_emitted_as_increments() -> None:
    # M051
    data = answer(
        tool_use(0),
        input_delta(0, '{"q":"a'),
        input_delta(0, '{"q":"ab'),
        input_delta(0, '{"q":"ab"}'),
        block_stop(0),
        reason="tool_use",
    )
    assert kinds(data) == ["cumulative_input"]
    assert calls(data) == [("toolu_a", "f", '{"q":"ab"}', "completed")]


def test_equal_fragments_are_not_dropped() -> None:
    # M052
    data = answer(
        tool_use(0),
        input_delta(0, '{"cmd":"l'),
        input_delta(0, 'l -l"}'),
        block_stop(0),
        reason="tool_use",
    )
    assert calls(data) == [("toolu_a", "f", '{"cmd":"ll -l"}', "completed")]


def test_object_as_fragment_is_taken_as_its_text() -> None:
    # M053
    data = answer(
        tool_use(0),
        block_delta(0, {"type": "input_json_delta", "partial_json": {"x": 1}}),
        block_delta(0, {"type": "input_json_delta", "partial_json": None}),
        block_delta(0, {"type": "input_json_delta"}),
        block_stop(0),
        reason="tool_use",
    )
    assert kinds(data) == ["object_input"]
    assert calls(data) == [("toolu_a", "f", '{"x": 1}', "completed")]


def test_closed_call_with_input_that_is_no_json_is_reported_and_may_not_run() -> None:
    data = answer(tool_use(0), input_delta(0, '{"x":'), block_stop(0), reason="tool_use")
    assert kinds(data) == ["invalid_arguments"]
    assert calls(data) == [("toolu_a", "f", '{"x":', "completed")]
    assert not judge(Call(call_id="toolu_a", name="f", input='{"x":')).executable


def test_call_that_a_limit_cut_is_incomplete_and_no_problem_of_the_stream() -> None:
    data = answer(tool_use(0), input_delta(0, '{"x":'), block_stop(0), reason="max_tokens")
    assert kinds(data) == []
    assert calls(data) == [("toolu_a", "f", '{"x":', "incomplete")]


def test_call_with_input_that_is_no_object_is_reported() -> None:
    data = answer(tool_use(0), input_delta(0, "[1]"), block_stop(0), reason="tool_use")
    assert kinds(data) == ["invalid_arguments"]
    assert calls(data) == [("toolu_a", "f", "[1]", "completed")]


def test_missing_ids_are_made_up_the_same_way_each_time() -> None:
    # M029
    data = answer(
        tool_use(0, call_id=""),
        input_delta(0, "{}"),
        block_stop(0),
        block_start(1, {"type": "server_tool_use", "name": "web_search", "input": {}}),
        block_stop(1),
        reason="tool_use",
    )
    assert kinds(data) == ["missing_id", "missing_id"]
    first, second = parts(data)
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert first.call_id.startswith("toolu_")
    assert second.call_id.startswith("srvtoolu_")
    seeded = parts(data, DecodeContext(seed="other"))[0]
    assert isinstance(seeded, Call)
    assert seeded.call_id != first.call_id


def test_repeated_id_is_reported() -> None:
    data = answer(
        tool_use(0),
        input_delta(0, "{}"),
        block_stop(0),
        tool_use(1),
        input_delta(1, "{}"),
        block_stop(1),
        reason="tool_use",
    )
    assert kinds(data) == ["repeated_id"]


def test_name_that_never_comes_is_concluded_from_the_arguments() -> None:
    # M038
    context = DecodeContext(tools=(CITY, PATH))
    data = answer(
        tool_use(0, name=""),
        input_delta(0, '{"path":'),
        input_delta(0, '"a"}'),
        block_stop(0),
        reason="tool_use",
    )
    events, problems = read(data, context)
    assert problems == ["missing_name"]
    assert events[2:5] == [
        PartStarted(0, Call(call_id="toolu_a", name="open", status="in_progress")),
        InputDelta(0, '{"path":"a"}'),
        PartEnded(0, Call(call_id="toolu_a", name="open", input='{"path":"a"}')),
    ]


def test_nameless_call_without_arguments_is_the_only_tool() -> None:
    context = DecodeContext(tools=(Tool(name="now"),))
    data = answer(tool_use(0, name=""), block_stop(0), reason="tool_use")
    assert calls(data, context) == [("toolu_a", "now", "{}", "completed")]


def test_nameless_call_that_fits_no_tool_is_an_error() -> None:
    data = answer(
        TEXT,
        text_delta(0, "a"),
        tool_use(1, name=""),
        input_delta(1, "{}"),
        block_stop(1),
        reason="tool_use",
    )
    events, problems = read(data)
    assert problems == ["interleaved_blocks", "missing_name", "nameless_call"]
    assert events[-2] == PartEnded(0, Text(text="a", status="incomplete"))
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "protocol"


def test_nameless_call_left_open_is_an_error_at_every_kind_of_end() -> None:
    opened = START + tool_use(0, name="") + input_delta(0, "{}")
    for ending in (end("tool_use"), event("message_stop")):
        error = outcome(opened + ending).error
        assert error is not None
        assert error.kind == "protocol"
    cut = outcome(opened).error
    assert cut is not None
    assert cut.kind == "truncated"


def test_input_without_its_block_is_a_nameless_call() -> None:
    context = DecodeContext(tools=(CITY,))
    data = answer(input_delta(0, '{"city":"P"}'), block_stop(0), reason="tool_use")
    assert kinds(data, context) == ["missing_block_start", "missing_name", "missing_id"]
    (call,) = parts(data, context)
    assert isinstance(call, Call)
    assert (call.name, call.input) == ("weather", '{"city":"P"}')


def test_positional_rule_counts_calls() -> None:
    context = DecodeContext(tools=(CITY, PATH), name_fallback="positional")
    data = answer(
        tool_use(0, "toolu_a", ""),
        input_delta(0, "{}"),
        block_stop(0),
        tool_use(1, "toolu_b", ""),
        input_delta(1, "{}"),
        block_stop(1),
        reason="tool_use",
    )
    assert [call[1] for call in calls(data, context)] == ["weather", "open"]


def test_noticed_fields_of_a_held_call_name_no_part() -> None:
    context = DecodeContext(tools=(CITY,))
    data = answer(
        tool_use(0, name=""),
        block_delta(0, {"type": "input_json_delta", "partial_json": "{}", "x": 1}),
        block_stop(0),
        reason="tool_use",
    )
    noticed = [each for each in read(data, context)[0] if isinstance(each, Noticed)]
    assert [each.part for each in noticed] == [None]


def test_ten_thousand_small_deltas_are_ten_thousand_small_steps() -> None:
    decoder = StreamDecoder(MessagesReader())
    decoder.feed(START + tool_use(0) + input_delta(0, '{"a":"'))
    steps = decoder.feed(input_delta(0, "x") * 10_000)
    assert len(steps) == 10_000
    assert all(step.events == (InputDelta(0, "x"),) for step in steps[1:])
    decoder.feed(TEXT)
    assert decoder.feed(text_delta(0, "y"))[0].events == (TextDelta(1, "y"),)


@pytest.mark.parametrize(
    "pieces", [('{"a":"\ud83d', '"}'), ('{"b":"\ude00', '"}'), ('{"a":"\ud83d',)]
)
def test_call_with_half_of_a_character_is_never_complete(pieces: tuple[str, ...]) -> None:
    deltas = [input_delta(0, piece) for piece in pieces]
    data = START + tool_use(0) + b"".join(deltas) + block_stop(0) + end("tool_use")
    assert [call[3] for call in calls(data)] == ["incomplete"]
    assert isinstance(read(data)[0][-1], Failed)
