"""Irregular streams with calls: what backends get wrong, read right, and reported. Museum ids name real defects."""

from typing import Any

import pytest

from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext
from dragoman.model.events import Event, Failed, Finished, InputDelta, PartEnded, PartStarted
from dragoman.model.parts import Call, Reasoning, Text
from responses_help import (
    Json,
    added,
    args_delta,
    args_done,
    calls_in,
    completed,
    created,
    decode_events,
    done,
    function_call,
    message,
    parts_in,
    read,
    read_answer,
    text_message,
    tool,
)

F = function_call(arguments='{"x":1}', status="completed")
G_START = function_call(id="fc_2", call_id="call_b", name="g")
G = {**G_START, "arguments": '{"y":2}', "status": "completed"}


def shown(calls: list[Call]) -> list[tuple[str, str, str, str]]:
    return [(call.call_id, call.name, call.input, call.status) for call in calls]


def kinds(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def test_m001_calls_that_are_never_closed_one_by_one_are_two_calls() -> None:
    events, problems = read(
        [
            created(),
            added(function_call()),
            args_delta('{"x":1}'),
            added(G_START, 1),
            args_delta('{"y":2}', 1, "fc_2"),
            completed([]),
        ]
    )
    assert shown(calls_in(fold(events))) == [
        ("call_a", "f", '{"x":1}', "completed"),
        ("call_b", "g", '{"y":2}', "completed"),
    ]
    assert problems == ["interleaved_calls", "empty_output", "missing_done", "missing_done"]


def test_m010_interleaved_calls_keep_their_own_input() -> None:
    events, problems = read(
        [
            created(),
            added(function_call()),
            added(G_START, 1),
            args_delta('{"x"'),
            args_delta('{"y"', 1, "fc_2"),
            args_delta(":1}"),
            args_delta(":2}", 1, "fc_2"),
            done(F),
            done(G, 1),
            completed([F, G]),
        ]
    )
    assert shown(calls_in(fold(events))) == [
        ("call_a", "f", '{"x":1}', "completed"),
        ("call_b", "g", '{"y":2}', "completed"),
    ]
    assert problems == ["interleaved_calls"]


def test_m012_reused_index_is_another_item() -> None:
    events, problems = read(
        [
            created(),
            added(function_call()),
            args_delta('{"x":1}'),
            done(F),
            {
                "type": "response.reasoning_summary_part.added",
                "output_index": 0,
                "item_id": "rs_1",
                "summary_index": 0,
                "part": {"type": "summary_text", "text": ""},
            },
            {
                "type": "response.reasoning_summary_text.delta",
                "output_index": 0,
                "item_id": "rs_1",
                "summary_index": 0,
                "delta": "hm",
            },
            completed([F]),
        ]
    )
    first, second = parts_in(fold(events))
    assert isinstance(first, Call)
    assert second == Reasoning(summary=("hm",), item_id="rs_1")
    assert problems == ["index_reused", "missing_added", "missing_done"]


def test_m018_streamed_ids_win_and_no_call_is_emitted_twice() -> None:
    events, problems = read(
        [
            created(),
            added(function_call()),
            args_delta('{"x":1}'),
            done(F),
            completed([{**F, "id": "fc_9", "call_id": "call_z"}]),
        ]
    )
    assert shown(calls_in(fold(events))) == [("call_a", "f", '{"x":1}', "completed")]
    assert problems == ["id_mismatch"]


def test_m018_holds_when_the_final_output_leaves_items_out() -> None:
    reasoning: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    events, problems = read(
        [
            created(),
            added(reasoning),
            done(reasoning),
            added(function_call(), 1),
            args_delta('{"x":1}', 1),
            done(F, 1),
            completed([{**F, "id": "fc_9", "call_id": "call_z"}]),
        ]
    )
    assert len(calls_in(fold(events))) == 1
    assert problems == ["id_mismatch"]


def test_final_output_that_contradicts_a_streamed_call_is_reported() -> None:
    _, problems = read(
        [
            created(),
            added(function_call()),
            args_delta('{"x":1}'),
            done(F),
            completed([{**F, "arguments": '{"x":2}'}]),
        ]
    )
    assert problems == ["input_disagrees"]


def test_m048_empty_delta_is_nothing() -> None:
    events, problems = read(
        [
            created(),
            added(function_call()),
            args_delta(""),
            args_delta('{"x":1}'),
            args_delta(""),
            done(F),
            completed([F]),
        ]
    )
    assert kinds(events)[2:4] == [InputDelta, PartEnded]
    assert problems == []


def test_m049_input_only_in_done_is_emitted_then() -> None:
    events, problems = read(
        [created(), added(function_call()), args_done('{"x":1}'), done(F), completed([F])]
    )
    assert events[2] == InputDelta(0, '{"x":1}')
    assert problems == ["late_input"]


def test_m049_input_only_in_the_finished_item_is_emitted_then() -> None:
    events, problems = read([created(), added(function_call()), done(F), completed([F])])
    assert events[2] == InputDelta(0, '{"x":1}')
    assert problems == ["late_input"]


def test_m049_done_wins_where_it_contradicts_the_deltas() -> None:
    events, problems = read(
        [created(), added(function_call()), args_delta('{"x":9}'), done(F), completed([F])]
    )
    end = events[3]
    assert isinstance(end, PartEnded)
    assert end.amended
    assert isinstance(end.value, Call)
    assert end.value.input == '{"x":1}'
    assert problems == ["input_disagrees"]


def test_done_that_differs_only_in_formatting_changes_nothing() -> None:
    item: Json = {**F, "arguments": '{ "x" : 1 }'}
    events, problems = read(
        [created(), added(function_call()), args_delta('{"x":1}'), done(item), completed([])]
    )
    end = events[3]
    assert isinstance(end, PartEnded)
    assert not end.amended
    assert isinstance(end.value, Call)
    assert end.value.input == '{"x":1}'
    assert problems == ["empty_output"]


@pytest.mark.parametrize("other", ['{"x":true}', '{"x":1.0}', "not json"])
def test_numbers_that_python_holds_equal_are_not_the_same_json(other: str) -> None:
    item: Json = {**F, "arguments": other}
    events = decode_events([created(), added(function_call()), args_delta('{"x":1}'), done(item)])
    end = events[3]
    assert isinstance(end, PartEnded)
    assert end.amended


def test_done_tops_up_what_the_deltas_left_out() -> None:
    events, problems = read(
        [
            created(),
            added(function_call()),
            args_delta('{"x"'),
            args_done('{"x":1'),
            done(F),
            completed([F]),
        ]
    )
    texts = [event.text for event in events if isinstance(event, InputDelta)]
    assert texts == ['{"x"', ":1", "}"]
    assert problems == []


def test_m051_cumulative_deltas_are_emitted_as_increments() -> None:
    whole = '{"q":"abc"}'
    events, problems = read(
        [
            created(),
            added(function_call()),
            *(args_delta(whole[:end]) for end in (6, 8, len(whole))),
            done({**F, "arguments": whole}),
            completed([{**F, "arguments": whole}]),
        ]
    )
    assert "".join(event.text for event in events if isinstance(event, InputDelta)) == whole
    assert problems == ["cumulative_input"]


def test_m053_object_arguments_keep_their_bytes() -> None:
    item: Json = {**F, "arguments": {"x": 1.0}}
    events, problems = read([created(), added(function_call()), done(item), completed([])])
    assert events[2] == InputDelta(0, '{"x": 1.0}')
    assert problems == ["object_input", "late_input", "empty_output"]


def test_object_arguments_in_the_done_event_keep_their_bytes() -> None:
    events, problems = read(
        [created(), added(function_call()), {**args_done(""), "arguments": {"x": [1]}}]
    )
    assert events[2] == InputDelta(0, '{"x": [1]}')
    assert "object_input" in problems


def test_m068_call_cut_by_the_limit_is_incomplete() -> None:
    end = completed([], status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    outcome = read_answer(
        [
            created(),
            added(function_call()),
            args_delta('{"x'),
            {**end, "type": "response.incomplete"},
        ]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x', "incomplete")]
    assert outcome.choices[0].finish == "length"


@pytest.mark.parametrize("status", [{}, {"status": "in_progress"}, {"status": "incomplete"}])
def test_m068_call_that_the_final_output_repeats_is_no_more_complete(status: Json) -> None:
    cut = {**function_call(arguments='{"x'), **status}
    if not status:
        del cut["status"]
    end = completed([cut], status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    outcome = read_answer(
        [
            created(),
            added(function_call()),
            args_delta('{"x'),
            {**end, "type": "response.incomplete"},
        ]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x', "incomplete")]


def test_call_whose_input_was_closed_before_the_limit_is_complete() -> None:
    end = completed([], status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    outcome = read_answer(
        [
            created(),
            added(function_call()),
            args_delta('{"x":1}'),
            args_done('{"x":1}'),
            {**end, "type": "response.incomplete"},
        ]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]
    assert outcome.choices[0].finish == "length"


def test_closed_call_stays_complete_where_the_output_repeats_it_without_status() -> None:
    bare = {key: value for key, value in F.items() if key != "status"}
    end = completed([bare], status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    outcome = read_answer(
        [
            created(),
            added(function_call()),
            args_delta('{"x":1}'),
            args_done('{"x":1}'),
            {**end, "type": "response.incomplete"},
        ]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]


def test_m085_each_reasoning_segment_is_a_part_of_its_own() -> None:
    def thought(index: int, item_id: str, text: str) -> Json:
        return {
            "type": "response.reasoning_summary_text.delta",
            "output_index": index,
            "item_id": item_id,
            "summary_index": 0,
            "delta": text,
        }

    outcome = read_answer(
        [
            created(),
            thought(0, "rs_1", "a"),
            added(function_call(), 1),
            args_delta("{}", 1),
            thought(2, "rs_2", "b"),
            completed([]),
        ]
    )
    first, call, second = parts_in(outcome)
    assert first == Reasoning(summary=("a",), item_id="rs_1")
    assert isinstance(call, Call)
    assert second == Reasoning(summary=("b",), item_id="rs_2")


def test_m130_empty_final_output_is_rebuilt_from_the_items() -> None:
    events, problems = read(
        [created(), added(function_call()), args_delta('{"x":1}'), done(F), completed([])]
    )
    outcome = fold(events)
    assert outcome.choices[0].finish == "tool_calls"
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]
    assert problems == ["empty_output"]


def test_items_that_were_never_streamed_are_emitted_at_the_end() -> None:
    events, problems = read([created(), completed([text_message("hi"), F])])
    outcome = fold(events)
    assert parts_in(outcome)[0] == Text(text="hi", item_id="msg_1")
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]
    assert problems == ["unstreamed_item", "unstreamed_item"]


def test_m136_call_that_stalls_is_incomplete() -> None:
    """M063: no input came, and none is made up."""
    item: Json = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "c",
        "name": "exec",
        "input": "",
    }
    outcome = read_answer([created(), added(item)])
    assert shown(calls_in(outcome)) == [("c", "exec", "", "incomplete")]
    assert outcome.error is not None
    assert outcome.error.kind == "truncated"


@pytest.mark.parametrize("arguments", ["", '{"target":"prod"'])
def test_m061_m155_cut_call_is_never_complete(arguments: str) -> None:
    events, problems = read([created(), added(function_call()), args_delta(arguments)])
    assert shown(calls_in(fold(events))) == [("call_a", "f", arguments, "incomplete")]
    assert isinstance(events[-1], Failed)
    assert problems == ["cut_stream"]


def test_call_whose_input_was_closed_is_still_cut_without_the_end() -> None:
    outcome = read_answer([created(), added(function_call()), args_delta("{}"), args_done("{}")])
    assert shown(calls_in(outcome)) == [("call_a", "f", "{}", "incomplete")]


def test_finished_item_without_announcement_is_emitted() -> None:
    events, problems = read([created(), done(F), completed([F])])
    assert kinds(events)[1:4] == [PartStarted, InputDelta, PartEnded]
    assert problems == ["missing_added"]


def test_input_before_the_announcement_waits_for_the_name() -> None:
    """M038, for this wire."""
    events, problems = read(
        [
            created(),
            args_delta('{"x"'),
            args_delta(":1}"),
            added(function_call()),
            done(F),
            completed([F]),
        ]
    )
    assert kinds(events)[1:4] == [PartStarted, InputDelta, PartEnded]
    assert events[2] == InputDelta(0, '{"x":1}')
    assert problems == ["missing_added", "late_name"]


def test_closed_input_before_the_finished_item_waits_for_the_name() -> None:
    events, _ = read([created(), args_done('{"x":1}'), done(F), completed([F])])
    assert events[2] == InputDelta(0, '{"x":1}')


@pytest.mark.parametrize("key", ["name", "function_name", "tool_name", "call_name"])
def test_names_and_ids_may_stand_beside_the_input(key: str) -> None:
    events = decode_events(
        [
            created(),
            {**args_delta('{"x"'), key: "f", "call_id": "call_a"},
            args_delta(":1}"),
            args_done('{"x":1}'),
            completed([]),
        ]
    )
    assert shown(calls_in(fold(events))) == [("call_a", "f", '{"x":1}', "completed")]


def test_name_may_stand_inside_function_beside_the_input() -> None:
    function = {"name": "f", "id": "call_a"}
    outcome = read_answer([created(), {**args_done("{}"), "function": function}, completed([])])
    assert shown(calls_in(outcome)) == [("call_a", "f", "{}", "completed")]


LIKE = ["function_call", "function", "tool_use", "tool_call"]


@pytest.mark.parametrize("kind", LIKE)
def test_call_inside_a_message_is_a_call(kind: str) -> None:
    part: Json = {"type": kind, "id": "call_a", "name": "f"}
    events = decode_events(
        [
            created(),
            {
                "type": "response.content_part.added",
                "item_id": "item_1",
                "output_index": 0,
                "content_index": 0,
                "part": part,
            },
            args_delta('{"x"', item_id="item_1"),
            args_delta(":1}", item_id="item_1"),
            args_done('{"x":1}', item_id="item_1"),
            done(message([part], id="item_1")),
            completed([]),
        ]
    )
    assert shown(calls_in(fold(events))) == [("call_a", "f", '{"x":1}', "completed")]
    assert len(calls_in(fold(events))) == 1


@pytest.mark.parametrize("kind", LIKE)
def test_call_named_only_in_the_finished_message_is_backfilled(kind: str) -> None:
    part: Json = {"type": kind, "function": {"name": "f", "call_id": "call_a"}}
    outcome = read_answer(
        [
            created(),
            args_delta('{"x":1}', item_id="item_1"),
            args_done('{"x":1}', item_id="item_1"),
            done({"type": "assistant_output", "id": "item_1", "content": [part]}),
            completed([]),
        ]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]


def test_several_calls_inside_one_message_follow_each_other() -> None:
    def part(name: str) -> Json:
        return {"type": "tool_call", "call_id": f"call_{name}", "name": name}

    def part_of(name: str, index: int) -> Json:
        return {
            "type": "response.content_part.added",
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": index,
            "part": part(name),
        }

    outcome = read_answer(
        [
            created(),
            added(message()),
            part_of("f", 0),
            args_delta('{"x":1}', item_id="msg_1"),
            args_done('{"x":1}', item_id="msg_1"),
            part_of("g", 1),
            args_done('{"y":2}', item_id="msg_1"),
            done(message([part("f"), part("g"), {**part("h"), "input": {"z": 3}}])),
            completed([]),
        ]
    )
    assert shown(calls_in(outcome)) == [
        ("call_f", "f", '{"x":1}', "completed"),
        ("call_g", "g", '{"y":2}', "completed"),
        ("call_h", "h", '{"z": 3}', "completed"),
    ]


def test_call_left_open_inside_a_message_ends_with_it() -> None:
    part: Json = {"type": "tool_call", "call_id": "call_a", "name": "f"}
    outcome = read_answer(
        [
            created(),
            added(message([part])),
            args_delta("{}", item_id="msg_1"),
            done(message()),
            completed([]),
        ]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", "{}", "completed")]


@pytest.mark.parametrize("kind", ["function", "tool_use", "tool_call"])
def test_item_that_calls_itself_otherwise_is_a_call(kind: str) -> None:
    item: Json = {
        "type": kind,
        "id": "call_a",
        "name": "f",
        "input": {"x": 1},
        "status": "completed",
    }
    outcome = read_answer([created(), added({**item, "input": {}}), done(item), completed([item])])
    assert [(call.call_id, call.name, call.kind) for call in calls_in(outcome)] == [
        ("call_a", "f", "function")
    ]


def test_part_that_repeats_the_call_of_its_item_is_no_second_call() -> None:
    part: Json = {
        "type": "response.content_part.added",
        "item_id": "fc_1",
        "output_index": 0,
        "content_index": 0,
        "part": {"type": "function_call", "name": "f", "call_id": "call_a"},
    }
    outcome = read_answer([created(), added(function_call()), part, done(F), completed([F])])
    assert len(calls_in(outcome)) == 1


def nameless(text: str) -> list[Json | bytes]:
    return [created(), args_delta(text), args_done(text), completed([])]


def test_name_that_never_comes_is_concluded_from_the_schemas() -> None:
    context = DecodeContext(tools=(tool("f", x="integer"), tool("g", y="integer")))
    events, problems = read(nameless('{"y":2}'), context)
    (call,) = calls_in(fold(events))
    assert (call.name, call.input) == ("g", '{"y":2}')
    assert call.call_id.startswith("call_")
    assert "missing_name" in problems


def test_name_that_never_comes_is_the_only_tool() -> None:
    events, _ = read(nameless("{}"), DecodeContext(tools=(tool("f", x="integer"),)))
    assert [call.name for call in calls_in(fold(events))] == ["f"]


def test_name_that_never_comes_may_go_by_position() -> None:
    """The rule of the reverse proxy that this comes from: the n-th call is the n-th tool."""
    context = DecodeContext(
        tools=(tool("f", x="integer"), tool("g", x="integer")), name_fallback="positional"
    )
    second = [args_delta("{}", 1, "fc_2"), args_done("{}", 1, "fc_2")]
    events = decode_events(
        [created(), args_delta("{}"), args_done("{}"), *second, completed([])], context
    )
    assert [call.name for call in calls_in(fold(events))] == ["f", "g"]


def test_name_that_cannot_be_concluded_is_a_typed_error() -> None:
    events, problems = read(nameless("{}"))
    end = events[-1]
    assert isinstance(end, Failed)
    assert end.error.kind == "protocol"
    assert "nameless_call" in problems


def test_nameless_call_that_was_cut_by_the_limit_does_not_fail_the_answer() -> None:
    end = completed([], status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    events, problems = read([created(), args_delta('{"x'), {**end, "type": "response.incomplete"}])
    assert Finished("length", native="max_output_tokens") in events
    assert "nameless_call" in problems


def test_m032_item_id_is_lent_where_a_call_has_none() -> None:
    bare = {key: value for key, value in F.items() if key != "call_id"}
    events, problems = read(
        [created(), added({**bare, "arguments": ""}), done(bare), completed([bare])]
    )
    assert [call.call_id for call in calls_in(fold(events))] == ["fc_1"]
    assert "missing_id" in problems


def test_finished_item_without_call_id_does_not_contradict_the_announced_one() -> None:
    bare = {key: value for key, value in F.items() if key != "call_id"}
    events, problems = read(
        [created(), added(function_call()), args_delta('{"x":1}'), done(bare), completed([F])]
    )
    assert [call.call_id for call in calls_in(fold(events))] == ["call_a"]
    assert problems == []


def test_m029_missing_ids_are_minted_and_stay() -> None:
    bare = {key: value for key, value in F.items() if key not in ("call_id", "id")}
    stream: list[Json | bytes] = [
        created(),
        added({**bare, "arguments": ""}),
        done(bare),
        completed([bare]),
    ]
    (call,) = calls_in(read_answer(stream))
    assert call.call_id.startswith("call_")
    assert call.item_id is None
    assert calls_in(read_answer(stream)) == [call]
    (other,) = calls_in(read_answer(stream, DecodeContext(seed="another")))
    assert other.call_id != call.call_id


def test_first_name_and_id_win() -> None:
    other = {**F, "name": "other", "call_id": "call_z"}
    events, problems = read(
        [created(), added(function_call()), args_delta('{"x":1}'), done(other), completed([other])]
    )
    assert shown(calls_in(fold(events))) == [("call_a", "f", '{"x":1}', "completed")]
    assert problems == ["repeated_name", "id_mismatch"]


def test_input_in_the_announcement_is_used_only_if_nothing_else_has_it() -> None:
    early = function_call(arguments='{"x":1}')
    events, problems = read(
        [created(), added(early), args_delta('{"x":1}'), done(F), completed([F])]
    )
    assert shown(calls_in(fold(events))) == [("call_a", "f", '{"x":1}', "completed")]
    assert problems == ["early_input"]
    events, problems = read([created(), added(early), completed([])])
    assert shown(calls_in(fold(events))) == [("call_a", "f", '{"x":1}', "completed")]


def test_arguments_that_are_no_json_are_reported_and_carried() -> None:
    item: Json = {**F, "arguments": "{oops"}
    events, problems = read(
        [created(), added(function_call()), args_delta("{oops"), done(item), completed([item])]
    )
    assert shown(calls_in(fold(events))) == [("call_a", "f", "{oops", "completed")]
    assert problems == ["invalid_arguments"]


def test_kind_is_what_the_item_says_whatever_the_deltas_were_called() -> None:
    start = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "p", "input": ""}
    item: Json = {**start, "input": "text"}
    outcome = read_answer(
        [created(), args_delta("te", item_id="ctc_1"), added(start), done(item), completed([item])]
    )
    (call,) = calls_in(outcome)
    assert (call.kind, call.input) == ("custom", "text")


def test_item_announced_as_another_type_is_what_it_ends_as() -> None:
    outcome = read_answer(
        [created(), added(message(id="fc_1")), done({**F, "id": "fc_1"}), completed([])]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]


def test_call_that_ends_as_a_message_keeps_what_was_emitted() -> None:
    outcome = read_answer(
        [
            created(),
            added(function_call()),
            args_delta('{"x":1}'),
            done(message(id="fc_1", status="completed")),
            completed([]),
        ]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]


@pytest.mark.parametrize(
    "late",
    [
        args_delta("x"),
        args_done("x"),
        {**args_delta("x"), "type": "response.output_text.delta", "content_index": 0},
        done(F),
        added(function_call()),
    ],
)
def test_nothing_is_said_of_a_call_after_its_end(late: Any) -> None:
    outcome = read_answer(
        [created(), added(function_call()), args_delta('{"x":1}'), done(F), late, completed([F])]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]


def test_name_beside_the_input_may_come_before_the_announcement() -> None:
    outcome = read_answer(
        [
            created(),
            {**args_delta(""), "name": "f", "call_id": "call_a"},
            args_delta('{"x":1}'),
            added(function_call()),
            done(F),
            completed([F]),
        ]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]


def test_empty_input_before_the_name_is_nothing() -> None:
    outcome = read_answer(
        [created(), args_delta(""), added(function_call()), done(F), completed([F])]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]


def test_input_before_the_part_that_names_its_call_waits() -> None:
    part: Json = {
        "type": "response.content_part.added",
        "item_id": "fc_1",
        "output_index": 0,
        "content_index": 0,
        "part": {"type": "tool_use", "id": "call_a", "name": "f"},
    }
    outcome = read_answer([created(), args_delta('{"x"'), part, args_delta(":1}"), completed([])])
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]


def test_finished_item_without_a_name_waits_for_the_end() -> None:
    bare = {key: value for key, value in F.items() if key != "name"}
    context = DecodeContext(tools=(tool("f", x="integer"),))
    outcome = read_answer([created(), done(bare), completed([])], context)
    assert shown(calls_in(outcome)) == [("call_a", "f", '{"x":1}', "completed")]


def test_final_output_may_repeat_some_items_and_add_others() -> None:
    events, problems = read(
        [
            created(),
            added(function_call()),
            args_delta('{"x":1}'),
            done(F),
            completed([F, {**F, "id": "fc_5"}, {**G, "id": None}]),
        ]
    )
    calls = calls_in(fold(events))
    assert [call.name for call in calls] == ["f", "f", "g"]
    assert len({call.call_id for call in calls}) == 3
    assert problems == ["unstreamed_item", "repeated_id", "unstreamed_item", "missing_id"]


def test_blank_arguments_are_an_empty_object_although_the_end_repeats_them() -> None:
    blank = {**F, "arguments": "  "}
    outcome = read_answer(
        [created(), added(function_call()), args_delta("  "), done(blank), completed([blank])]
    )
    assert shown(calls_in(outcome)) == [("call_a", "f", "  {}", "completed")]
    assert outcome.error is None
