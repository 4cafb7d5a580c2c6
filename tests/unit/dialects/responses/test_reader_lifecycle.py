"""Beginnings, ends and places: what is irregular about a stream as a whole, and about which item an event means."""

from typing import Any

import pytest

from dragoman._json import Raw
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.relay import StreamRelay
from dragoman.dialects.responses import ResponsesReader
from dragoman.dialects.stream_decoder import StreamDecoder
from dragoman.dialects.translate import StreamTranslator, make_decoder
from dragoman.errors import MalformedJson
from dragoman.model.events import (
    Completed,
    Failed,
    Finished,
    Noticed,
    PartEnded,
    Progress,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Usage
from dragoman.model.parts import Opaque, Text
from dragoman.sse import Frame
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
    part_added,
    parts_in,
    problems_in,
    read,
    read_answer,
    stream,
    text_delta,
    text_message,
)

HELLO = text_message("hello")
F = function_call(arguments='{"x":1}', status="completed")


def texts_of(events: list[Any]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


# --- the beginning ---------------------------------------------------------------------------------------------------


def test_answer_without_created_begins_at_its_first_event() -> None:
    events, problems = read([added(message()), done(HELLO, 0), completed([HELLO])])
    assert events[0] == Started()
    assert problems == ["missing_start"]


def test_answer_that_begins_with_its_end_takes_its_names_from_there() -> None:
    events, problems = read([completed([])])
    assert events[0] == Started("resp_1", "m", 1)
    assert problems == ["missing_start"]


def test_answer_may_begin_in_progress() -> None:
    response = created()["response"]
    events, problems = read([{"type": "response.in_progress", "response": response}, completed([])])
    assert events[:2] == [Started("resp_1", "m", 1), Progress("in_progress")]
    assert problems == ["missing_start"]


def test_second_beginning_is_noticed() -> None:
    events, problems = read([created(), created(), completed([])])
    assert isinstance(events[1], Noticed)
    assert events[1].name == "response.created"
    assert problems == ["repeated_start"]


def test_beginning_without_output_is_reported() -> None:
    start = created()
    del start["response"]["output"]
    assert problems_in([start, completed([])]) == ["missing_output"]


# --- the end ---------------------------------------------------------------------------------------------------------


def test_end_of_the_wire_before_the_end_of_the_answer_is_a_failure() -> None:
    """M154: what was complete stays complete, what was open is incomplete."""
    events, problems = read(
        [created(), added(message()), part_added(), text_delta("hel"), text_delta("lo")]
    )
    assert events[-2:] == [
        PartEnded(0, Text(text="hello", status="incomplete", item_id="msg_1")),
        Failed(ErrorInfo(kind="truncated", message="the stream ended before response.completed")),
    ]
    assert problems == ["cut_stream"]


def test_empty_stream_is_a_failure() -> None:
    events, _ = read([])
    assert isinstance(events[0], Failed)
    assert len(events) == 1


def test_done_marker_ends_an_answer_that_left_nothing_open() -> None:
    """M066, for this wire."""
    events, problems = read(
        [
            created(),
            added(function_call()),
            args_delta("{}"),
            done({**F, "arguments": "{}"}),
            b"data: [DONE]\n\n",
        ]
    )
    assert events[-2] == Finished("tool_calls", inferred=True, native="completed")
    assert events[-1] == Completed()
    assert problems == ["inferred_end"]


@pytest.mark.parametrize("before", [[], [created(), added(function_call()), args_delta('{"x')]])
def test_done_marker_does_not_close_a_call(before: list[Json | bytes]) -> None:
    events, problems = read([*before, b"data: [DONE]\n\n"])
    assert isinstance(events[-1], Failed)
    assert events[-1].error.kind == "truncated"
    assert problems[-1] == "cut_stream"


def test_incomplete_without_a_reason_is_taken_for_the_limit() -> None:
    end = {**completed([], status="incomplete"), "type": "response.incomplete"}
    events, problems = read([created(), end])
    assert Finished("length", native="incomplete") in events
    assert problems == ["missing_finish"]


def test_status_is_not_trusted_over_the_content() -> None:
    """The `required_action` profile: status incomplete, no details, complete calls."""
    action: Json = {
        "type": "response.required_action",
        "response": {"id": "resp_1", "status": "incomplete"},
        "required_action": {
            "type": "submit_tool_outputs",
            "submit_tool_outputs": {"tool_calls": []},
        },
    }
    events, problems = read(
        [
            created(),
            added(function_call()),
            args_delta('{"x":1}'),
            done(F),
            {"type": "ping", "sequence_number": 5},
            action,
            completed([F], status="incomplete"),
        ]
    )
    finish = next(event for event in events if isinstance(event, Finished))
    assert finish == Finished("tool_calls", native="incomplete")
    notices = [event.name for event in events if isinstance(event, Noticed)]
    assert notices == ["ping", "response.required_action"]
    assert problems == ["unknown_event", "unknown_event", "wrong_finish"]


def test_cancelled_status_counts_in_any_terminal() -> None:
    events = decode_events([created(), completed([], status="cancelled")])
    assert Finished("cancelled", native="cancelled") in events


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "boom", "param": None},
        {"type": "error", "error": {"code": "server_error", "message": "boom"}},
        {"error": {"code": "server_error", "message": "boom"}},
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"code": "server_error", "message": "boom"}},
        },
        {
            "type": "response.completed",
            "response": {"status": "failed", "error": {"code": "server_error", "message": "boom"}},
        },
    ],
)
def test_errors_in_every_form_fail_the_answer(event: Json) -> None:
    events = decode_events([created(), added(message()), part_added(), text_delta("a"), event])
    end = events[-1]
    assert isinstance(end, Failed)
    assert (end.error.kind, end.error.message, end.error.code) == ("server", "boom", "server_error")
    assert events[-2] == PartEnded(0, Text(text="a", status="incomplete", item_id="msg_1"))


def test_failure_before_the_beginning_is_all_there_is() -> None:
    events = decode_events([{"type": "error", "message": "no"}])
    assert len(events) == 1
    assert isinstance(events[0], Failed)


def test_failed_answer_reports_its_usage() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    failed = {
        "type": "response.failed",
        "response": {"status": "failed", "error": None, "usage": usage},
    }
    events = decode_events([created(), failed])
    assert events[1] == UsageReported(Usage(input=1, output=2, total=3))
    assert isinstance(events[2], Failed)
    assert events[2].error.message == "the upstream reported an error without a message"


def test_usage_without_a_total_is_reported() -> None:
    """Codex repeats the whole answer when `total_tokens` is missing."""
    assert problems_in([created(), completed([], usage={"input_tokens": 1})]) == ["partial_usage"]


def test_frames_after_the_end_mean_nothing() -> None:
    decoder = StreamDecoder(ResponsesReader())
    steps = decoder.feed(stream([created(), completed([]), added(message())]))
    assert steps[-1].events == ()


def test_failure_from_outside_closes_what_is_open() -> None:
    reader = ResponsesReader()
    decoder = StreamDecoder(reader)
    steps = decoder.feed(stream([created(), added(function_call()), args_delta('{"x')]))
    error = ErrorInfo(kind="timeout", message="idle")
    events = [event for step in steps for event in step.events] + list(reader.fail(error))
    assert is_grammatical(events)
    assert events[-1] == Failed(error)
    assert [call.status for call in calls_in(fold(events))] == ["incomplete"]
    assert reader.over


# --- frames ----------------------------------------------------------------------------------------------------------


def test_event_line_stands_in_for_a_missing_type() -> None:
    data = b'event: response.completed\ndata: {"response":{"id":"resp_1","output":[]}}\n\n'
    events, problems = read([created(), data])
    assert isinstance(events[-1], Completed)
    assert problems == ["missing_type"]


def test_data_without_any_type_is_noticed() -> None:
    events, problems = read([created(), b"data: {}\n\n", completed([])])
    assert events[1] == Noticed("unknown", "responses", "", Raw(b"{}"))
    assert problems == ["missing_type", "unknown_event"]


def test_unknown_events_are_carried_whole() -> None:
    event = {"type": "codex.plan", "plan": "pro"}
    events, problems = read([created(), event, completed([])])
    notice = events[1]
    assert isinstance(notice, Noticed)
    assert (notice.kind, notice.name) == ("unknown", "codex.plan")
    assert notice.raw is not None
    assert b"pro" in bytes(notice.raw)
    assert problems == ["unknown_event"]


@pytest.mark.parametrize(
    "frame",
    [
        b"data: {oops\n\n",
        b"event: response.output_text.delta\n\n",
        b"event: response.output_text.delta\ndata:\n\n",
        b'data: {"type": 5}\n\n',
    ],
)
def test_frame_that_is_no_event_fails_the_answer(frame: bytes) -> None:
    events, problems = read([created(), frame, completed([])])
    assert isinstance(events[-1], Failed)
    assert problems == ["malformed_frame"]
    with pytest.raises(MalformedJson):
        ResponsesReader().read(Frame(b"", b"[1]"))


def test_nulls_are_absent_everywhere() -> None:
    """M080, for this wire."""
    item: Json = {**F, "namespace": None, "caller": None, "id": "fc_1"}
    events, problems = read(
        [
            created(usage=None, error=None),
            added({**function_call(), "namespace": None}),
            {**args_delta('{"x":1}'), "content_index": None, "logprobs": None},
            done(item),
            completed([item], usage=None, incomplete_details=None, error=None),
        ]
    )
    assert [call.namespace for call in calls_in(fold(events))] == [None]
    assert problems == []


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_item.added", "output_index": 0},
        {"type": "response.output_item.done", "output_index": 0},
        {"type": "response.content_part.added", "output_index": 0, "item_id": "msg_1"},
        {"type": "response.content_part.done", "output_index": 0, "item_id": "msg_1"},
        {"type": "response.output_text.annotation.added", "item_id": "msg_1", "annotation": {}},
        {"type": "response.web_search_call.searching", "output_index": 3, "item_id": "ws_1"},
        {"type": "response.image_generation_call.partial_image", "item_id": "ig_1"},
        {"type": "response.shell_call_output_content.delta", "item_id": "sho_1", "delta": {}},
    ],
)
def test_event_that_is_about_nothing_known_is_passed_on_unread(event: Json) -> None:
    events, problems = read([created(), event, completed([])])
    assert isinstance(events[1], Noticed)
    assert events[1].kind == "unknown"
    assert "unplaced_event" in problems


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_text.delta", "output_index": 0, "item_id": "msg_1"},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": {"x": 1}},
        {"type": "response.function_call_arguments.delta", "output_index": 0},
        {"type": "response.function_call_arguments.delta", "output_index": "x", "delta": "a"},
        {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": 5},
        {"type": "response.reasoning_text.delta", "output_index": 0},
        {"type": "response.content_part.added", "item_id": "msg_1", "part": 5},
        {"type": "response.output_item.done", "output_index": 0, "item": "text"},
        {"type": "response.output_item.done", "output_index": 0, "item": {**F, "arguments": 5}},
        {"type": "response.output_item.done", "output_index": 0, "item": {**F, "name": 5}},
        {"type": "response.output_item.done", "output_index": 0, "item": {**F, "status": 5}},
        {"type": "response.completed", "response": 5},
        {"type": "response.completed", "response": {"output": 5}},
        {"type": "response.completed", "response": {"output": [5]}},
    ],
)
def test_field_that_may_hold_a_piece_of_a_call_is_never_passed_over(event: Json) -> None:
    events, problems = read([created(), event, completed([])])
    assert isinstance(events[-1], Failed)
    assert "malformed_frame" in problems


def test_progress_of_an_ended_item_is_passed_on_unread() -> None:
    search: Json = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "x"},
    }
    event = {"type": "response.web_search_call.completed", "output_index": 0, "item_id": "ws_1"}
    _, problems = read([created(), added(search), done(search), event, completed([search])])
    assert problems == ["unplaced_event"]


def test_progress_of_a_result_is_its_own() -> None:
    item: Json = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    event = {"type": "response.compaction.compacting", "output_index": 0, "item_id": "cmp_1"}
    _, problems = read([created(), added(item), done(item), event, completed([item])])
    assert problems == ["unplaced_event"]


# --- places ----------------------------------------------------------------------------------------------------------


def test_deltas_without_item_id_go_by_index() -> None:
    delta = text_delta("hello")
    del delta["item_id"]
    events, problems = read(
        [created(), added(message()), part_added(), delta, done(HELLO), completed([HELLO])]
    )
    assert texts_of(events) == ["hello"]
    assert problems == ["missing_id"]


def test_deltas_without_any_place_go_to_the_last_open_item() -> None:
    def bare(text: str) -> Json:
        return {"type": "response.output_text.delta", "delta": text}

    events, problems = read(
        [
            created(),
            added(message()),
            part_added(),
            bare("hel"),
            bare("lo"),
            done(HELLO),
            completed([HELLO]),
        ]
    )
    assert texts_of(events) == ["hel", "lo"]
    assert problems == ["missing_index"]


def test_deltas_with_another_item_id_go_by_index() -> None:
    events, problems = read(
        [
            created(),
            added(message()),
            part_added(),
            {**text_delta("hel"), "item_id": "msg_other"},
            {**text_delta("lo"), "item_id": "msg_other"},
            done(HELLO),
            completed([HELLO]),
        ]
    )
    assert texts_of(events) == ["hel", "lo"]
    assert [part.item_id for part in parts_in(fold(events)) if isinstance(part, Text)] == ["msg_1"]
    assert problems == ["id_mismatch"]


def test_item_without_id_takes_that_of_its_deltas() -> None:
    bare = message()
    del bare["id"]
    events, problems = read(
        [created(), added(bare), {**text_delta("hello"), "item_id": "msg_9"}, completed([])]
    )
    assert [part.item_id for part in parts_in(fold(events)) if isinstance(part, Text)] == ["msg_9"]
    assert problems == ["missing_id", "missing_added", "empty_output", "missing_done"]


def test_item_announced_without_index_is_reported() -> None:
    event = added(message())
    del event["output_index"]
    _, problems = read(
        [created(), event, part_added(), text_delta("hello"), done(HELLO), completed([HELLO])]
    )
    assert problems == ["missing_index"]


def test_finished_item_with_another_id_goes_by_index() -> None:
    events, problems = read(
        [
            created(),
            added(message()),
            part_added(),
            text_delta("hello"),
            done({**HELLO, "id": "msg_7"}),
            completed([HELLO]),
        ]
    )
    assert len(parts_in(fold(events))) == 1
    assert problems == ["id_mismatch"]


def test_items_that_share_an_id_are_distinguished_by_index() -> None:
    second = function_call(name="g", call_id="call_b")
    events, problems = read(
        [
            created(),
            added(function_call()),
            added(second, 1),
            args_delta('{"x"'),
            args_delta('{"y":2}', 1),
            args_delta(":1}"),
            done(F),
            done({**second, "arguments": '{"y":2}'}, 1),
            completed([]),
        ]
    )
    assert [(call.name, call.input) for call in calls_in(fold(events))] == [
        ("f", '{"x":1}'),
        ("g", '{"y":2}'),
    ]
    assert "repeated_id" in problems


def test_id_that_comes_again_after_its_item_ended_is_a_new_item() -> None:
    other = text_message("again")
    events, problems = read(
        [
            created(),
            added(message()),
            done(HELLO),
            added(message(), 1),
            done(other, 1),
            completed([]),
        ]
    )
    assert texts_of(events) == ["hello", "again"]
    assert "repeated_id" in problems


def test_item_that_is_announced_or_ended_twice_is_one_item() -> None:
    events, problems = read(
        [
            created(),
            added(message()),
            added(message()),
            done(HELLO),
            done(HELLO),
            completed([HELLO]),
        ]
    )
    assert texts_of(events) == ["hello"]
    assert problems == ["repeated_item"]


@pytest.mark.parametrize("item", [{}, {"id": "x"}, None, {"type": None}])
def test_item_without_type_is_reported(item: Any) -> None:
    event = {"type": "response.output_item.added", "output_index": 0, "item": item}
    finished = {"type": "response.output_item.done", "output_index": 0, "item": item}
    assert "malformed_item" in problems_in([created(), event, completed([])])
    assert "malformed_item" in problems_in([created(), finished, completed([item])])


def test_unknown_item_is_carried_whole() -> None:
    item: Json = {"type": "thing_from_tomorrow", "id": "t_1", "x": [1]}
    outcome = read_answer([created(), added(item), done({**item, "y": 2}), completed([])])
    (part,) = parts_in(outcome)
    assert isinstance(part, Opaque)
    assert part.type == "thing_from_tomorrow"
    assert b'"y"' in bytes(part.raw)


def test_what_clients_stumble_over_is_reported() -> None:
    bare = {"type": "output_text", "text": "x"}
    item: Json = {"type": "message", "id": "call_1", "role": "assistant", "content": [bare]}
    problems = problems_in(
        [created(), added({**item, "content": []}), done(item), completed([item])]
    )
    assert problems == ["foreign_item_id", "missing_status", "missing_annotations"]


# --- what was sent, and what came ------------------------------------------------------------------------------------


def numbered(events: list[Json], *lost: int) -> list[Json]:
    """Events with their numbers, less those that were lost on the way."""
    kept = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return [event for number, event in enumerate(kept) if number not in lost]


PIECES = ('{"path":"/srv', "/app", '/main.py"}')
READ = function_call(arguments="".join(PIECES), status="completed")
OPEN = function_call(arguments="", status="in_progress")
STREAM = [created(), added(OPEN), *(args_delta(piece) for piece in PIECES)]


def statuses(events: list[Any]) -> list[tuple[str, str]]:
    return [(call.input, call.status) for call in calls_in(fold(events))]


@pytest.mark.parametrize("lost", [2, 3, 4])
def test_gap_in_the_numbers_inside_a_call_that_nothing_repeats_fails_the_answer(lost: int) -> None:
    events, problems = read(numbered([*STREAM, completed([])], lost))
    assert [status for _, status in statuses(events)] == ["incomplete"]
    assert isinstance(events[-1], Failed)
    assert events[-1].error.kind == "protocol"
    assert "missing_events" in problems


@pytest.mark.parametrize("lost", [2, 4])
def test_gap_is_harmless_where_the_item_repeats_its_input(lost: int) -> None:
    events, problems = read(numbered([*STREAM, done(READ), completed([READ])], lost))
    if lost == 4:
        assert statuses(events) == [("".join(PIECES), "completed")]
        assert problems == []
    else:
        # The deltas said something else before: encoders that cannot take it back fail.
        assert problems == ["input_disagrees"]
        assert any(isinstance(event, PartEnded) and event.amended for event in events)


@pytest.mark.parametrize("step", [0, 2, -1])
def test_numbers_that_do_not_count_events_show_nothing(step: int) -> None:
    stream_ = [*STREAM, completed([])]
    events = [{**event, "sequence_number": 50 + at * step} for at, event in enumerate(stream_)]
    told_, problems = read(events)
    assert statuses(told_) == [("".join(PIECES), "completed")]
    assert "missing_events" not in problems


def test_end_that_contradicts_a_call_fails_the_answer() -> None:
    other = {**READ, "arguments": '{"path":"/srv/main.py"}'}
    events, problems = read([*STREAM, done(READ), completed([other])])
    assert isinstance(events[-1], Failed)
    assert "input_disagrees" in problems
    spaced = {**READ, "arguments": READ["arguments"].replace(":", ": ")}
    events, _ = read([*STREAM, done(READ), completed([spaced])])
    assert isinstance(events[-1], Completed)


def test_item_that_contradicts_the_done_event_of_its_input_fails_the_answer() -> None:
    """Two events have the whole input, and one of them is wrong: nobody can say which."""
    other = {**READ, "arguments": '{"path":"/srv/main.py"}'}
    events, problems = read([*STREAM, args_done(READ["arguments"]), done(other), completed([READ])])
    assert [status for _, status in statuses(events)] == ["incomplete"]
    assert isinstance(events[-1], Failed)
    assert "input_disagrees" in problems
    spaced = {**READ, "arguments": READ["arguments"].replace(":", ": ")}
    events, _ = read([*STREAM, args_done(READ["arguments"]), done(spaced), completed([READ])])
    assert isinstance(events[-1], Completed)
    events, _ = read([*STREAM, args_done(""), done(other), completed([other])])
    assert isinstance(events[-1], Completed)


def test_item_of_an_unknown_type_that_takes_input_is_a_call() -> None:
    odd = {**READ, "type": "function_call_of_tomorrow"}
    events, _ = read([created(), added({**odd, "arguments": ""}), *STREAM[2:], done(odd)])
    assert is_grammatical(events)


@pytest.mark.parametrize(
    "pieces", [('{"a":"\ud83d', '"}'), ('{"b":"\ude00', '"}'), ('{"a":"\ud83d',)]
)
def test_call_with_half_of_a_character_is_never_complete(pieces: tuple[str, ...]) -> None:
    deltas = [args_delta(piece) for piece in pieces]
    events, _ = read([created(), added(OPEN), *deltas, completed([])])
    assert [status for _, status in statuses(events)] == ["incomplete"]
    assert isinstance(events[-1], Failed)


BAD_ENDS: dict[str, Json] = {
    "no response": {},
    "null": {"response": None},
    "a string": {"response": "resp_1"},
    "no id": {"response": {"status": "completed", "output": []}},
    "an empty id": {"response": {"id": "", "status": "completed", "output": []}},
    "an id that is a number": {"response": {"id": 7, "output": []}},
    "usage that is text": {"response": {"id": "resp_1", "output": [], "usage": "12"}},
    "a count that is text": {
        "response": {"id": "resp_1", "output": [], "usage": {"input_tokens": "many"}}
    },
    "details that are text": {
        "response": {"id": "resp_1", "output": [], "usage": {"input_tokens_details": "x"}}
    },
    "a detail that is text": {
        "response": {
            "id": "resp_1",
            "output": [],
            "usage": {"output_tokens_details": {"reasoning_tokens": "x"}},
        }
    },
}


@pytest.mark.requirement("S002-29")
@pytest.mark.parametrize("name", ["response.completed", "response.incomplete", "response.done"])
@pytest.mark.parametrize("end", BAD_ENDS.values(), ids=BAD_ENDS)
def test_end_that_is_no_response_fails_the_answer(end: Json, name: str) -> None:
    call = function_call(arguments="{}")
    said = [created(), added(function_call()), args_delta("{}"), args_done("{}"), done(call)]
    events, problems = read([*said, {"type": name, **end}])
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "protocol"
    assert "expected" in failed.error.message
    assert "malformed_frame" in problems
    assert not any(isinstance(event, Finished | Completed) for event in events)


@pytest.mark.parametrize("target", ["chat", "messages", "responses"])
@pytest.mark.parametrize("end", BAD_ENDS.values(), ids=BAD_ENDS)
def test_client_gets_an_error_for_an_end_that_is_no_response(end: Json, target: str) -> None:
    said = [created(), added(message()), part_added(), text_delta("a")]
    data = stream([*said, {"type": "response.completed", **end}])
    translator = StreamTranslator("responses", target)
    relay = StreamRelay("responses", decode=DecodeContext(), encode=EncodeContext())
    writers: list[StreamTranslator | StreamRelay] = [translator]
    if target == "responses":
        writers.append(relay)
    for writer in writers:
        decoder = make_decoder(target)
        out = writer.feed(data) + writer.close()
        steps = decoder.feed(out) + decoder.close()
        crossed = fold(event for step in steps for event in step.events)
        assert crossed.error is not None
        assert not crossed.completed
        assert (b"event: response.failed" in out) == (target == "responses")


def test_usage_with_absent_counts_is_still_an_end() -> None:
    events, problems = read([created(), completed([], usage={"input_tokens": 3})])
    assert isinstance(events[-1], Completed)
    assert "partial_usage" in problems
