"""Tool calls in streams: every museum case that touches the reader, and the rules between them."""

import pytest

from chat_help import DONE, Reading, call, chunk, finish, read, sse
from dragoman.core.call_input import judge
from dragoman.dialects.chat import ChatReader
from dragoman.dialects.codec import DecodeContext
from dragoman.model.events import (
    Failed,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import Call, Extra, Seal, Text
from dragoman.model.request import Tool
from dragoman.sse import Frame

FINISH = finish("tool_calls")


def entry(
    arguments: object = None,
    index: int | None = 0,
    call_id: str | None = None,
    name: str | None = None,
) -> dict[str, object]:
    """An entry of `tool_calls`; what is None is left out."""
    out: dict[str, object] = {} if index is None else {"index": index}
    if call_id is not None:
        out["id"] = call_id
    function: dict[str, object] = {}
    if name is not None:
        out["type"] = "function"
        function["name"] = name
    if arguments is not None:
        function["arguments"] = arguments
    return {**out, "function": function} if function else out


def read_calls(*chunks: dict[str, object], tools: tuple[str, ...] = ()) -> Reading:
    context = DecodeContext(tools=tuple(Tool(name=name) for name in tools))
    return read([*chunks, FINISH, DONE], context)


def test_call_as_openai_streams_it() -> None:
    reading = read_calls(
        call(entry("", 0, "call_a", "f")), call(entry('{"x"')), call(entry(":1}")), tools=("f",)
    )
    header = Call(call_id="call_a", name="f", status="in_progress")
    assert reading.events[1:] == [
        PartStarted(0, header),
        InputDelta(0, '{"x"'),
        InputDelta(0, ":1}"),
        PartEnded(0, Call(call_id="call_a", name="f", input='{"x":1}')),
        Finished("tool_calls", native="tool_calls"),
        reading.events[-1],
    ]
    assert reading.problems == []


def test_call_is_announced_with_its_first_delta_when_its_tool_is_declared() -> None:
    reader = ChatReader(DecodeContext(tools=(Tool(name="f"),)))
    data = sse(call(entry("", 0, "call_a", "f")))
    events = reader.read(Frame(data, data[6:-2]))
    assert isinstance(events[-1], PartStarted)


def test_text_ends_where_a_call_begins_and_text_after_it_is_a_new_part() -> None:
    reading = read(
        [
            chunk({"content": "Look."}),
            call(entry("{}", 0, "a", "f")),
            chunk({"content": "Done."}),
            FINISH,
            DONE,
        ]
    )
    assert [type(event).__name__ for event in reading.events[1:-2]] == [
        "PartStarted",
        "TextDelta",
        "PartEnded",
        "PartStarted",
        "InputDelta",
        "PartEnded",
        "PartStarted",
        "TextDelta",
        "PartEnded",
    ]
    assert [type(part) for part in reading.parts] == [Text, Call, Text]


def test_text_and_call_in_one_delta_come_in_that_order() -> None:
    both = chunk({"content": "Look.", "tool_calls": [entry("{}", 0, "a", "f")]})
    assert [type(part) for part in read([both, FINISH, DONE]).parts] == [Text, Call]


def test_text_beside_a_later_delta_of_a_call_is_emitted() -> None:
    later = chunk({"content": "hm", "tool_calls": [entry("}", 0)]})
    reading = read([call(entry("{", 0, "a", "f")), later, FINISH, DONE])
    assert reading.inputs == [("a", "f", "{}")]
    assert Text(text="hm") in reading.parts


def test_complete_call_ends_as_soon_as_another_begins() -> None:
    reading = read_calls(
        call(entry('{"x":1}', 0, "a", "f")), call(entry("", 1, "b", "g")), call(entry("{}", 1))
    )
    kinds = [(type(event).__name__, getattr(event, "part", None)) for event in reading.events]
    assert kinds.index(("PartEnded", 0)) < kinds.index(("PartStarted", 1))
    assert reading.problems == []


def test_incomplete_call_stays_open_beside_the_next_and_interleaving_is_reported() -> None:
    reading = read_calls(
        call(entry('{"x"', 0, "a", "f")),
        call(entry('{"y"', 1, "b", "g")),
        call(entry(":1}", 0)),
        call(entry(":2}", 1)),
    )
    assert reading.inputs == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]
    assert reading.problems == ["interleaved_calls"]


def test_calls_in_separate_chunks_keep_their_slots() -> None:  # M004
    reading = read_calls(call(entry('{"x":1}', 0, "a", "f")), call(entry('{"y":2}', 1, "b", "g")))
    assert reading.inputs == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]


def test_every_call_on_index_zero_is_a_call_of_its_own() -> None:  # M005
    reading = read_calls(call(entry('{"x":1}', 0, "a", "f")), call(entry('{"y":2}', 0, "b", "g")))
    assert reading.inputs == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]
    assert reading.problems == ["index_reused"]


def test_missing_index_goes_by_position() -> None:  # M007
    reading = read_calls(
        call(entry('{"x":', None, "a", "f"), entry('{"y":', None, "b", "g")),
        call(entry("1}", None), entry("2}", None)),
    )
    assert reading.inputs == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]
    assert "missing_index" in reading.problems


def test_fresh_id_on_every_delta_is_one_call() -> None:  # M009
    reading = read_calls(
        call(entry("", 0, "id0", "write")),
        call(entry("{", 0, "id1", "")),
        call(entry("}", 0, "id2", "")),
    )
    assert reading.inputs == [("id0", "write", "{}")]


def test_late_name_keeps_the_order_of_first_sight() -> None:  # M015
    reading = read_calls(
        call(entry("{}", 0, "a")), call(entry("{}", 1, "b", "g")), call(entry(None, 0, None, "f"))
    )
    assert reading.inputs == [("a", "f", "{}"), ("b", "g", "{}")]
    assert [event.part for event in reading.events if isinstance(event, PartStarted)] == [0, 1]


def test_every_entry_of_a_chunk_is_read() -> None:  # M017
    reading = read_calls(call(entry('{"x":1}', 0, "a", "f"), entry('{"y":2}', 1, "b", "g")))
    assert reading.inputs == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]
    assert reading.problems == []


def test_empty_id_and_name_change_nothing() -> None:  # M026
    reading = read_calls(call(entry("", 0, "a", "f")), call(entry("{}", 0, "", "")))
    assert reading.inputs == [("a", "f", "{}")]
    assert reading.problems == ["empty_id", "empty_name"]


def test_empty_id_and_name_in_a_first_delta_are_no_more_than_missing() -> None:
    reading = read_calls(call(entry("{", 0, "", "")), call(entry("}", 0, None, "f")))
    assert reading.problems == ["late_name", "missing_id"]


def test_missing_id_is_minted_once_and_never_replaced() -> None:  # M029
    reading = read_calls(call(entry("{", 0, None, "f")), call(entry("}", 0, "late")))
    (made,) = reading.calls
    assert made.call_id.startswith("call_")
    assert made.call_id != "late"
    assert reading.problems == ["missing_id", "late_id"]


def test_minted_ids_are_the_same_every_time() -> None:
    def once() -> str:
        return read_calls(call(entry("{}", 0, None, "f"))).calls[0].call_id

    assert once() == once()


def test_real_id_is_adopted_while_none_was_shown() -> None:
    reading = read_calls(call(entry("{", 0)), call(entry("}", 0, "real", "f")))
    assert reading.inputs == [("real", "f", "{}")]


def test_repeated_id_continues_its_call() -> None:  # M030
    reading = read_calls(
        call(entry("", 0, "a", "Bash")), call(entry('{"c":', 0, "a")), call(entry("1}", 0, "a"))
    )
    assert reading.inputs == [("a", "Bash", '{"c":1}')]


def test_two_calls_with_one_id_get_ids_of_their_own() -> None:
    reading = read_calls(call(entry("{}", 0, "f", "f")), call(entry("{}", 1, "f", "f")))
    assert reading.calls[0].call_id == "f"
    assert reading.calls[1].call_id not in ("", "f")
    assert "duplicate_id" in reading.problems


def test_split_name_is_joined() -> None:  # M037
    chunks = (call(entry("", 0, "a", "edit_ex")), call(entry("{}", 0, None, "isting_file")))
    declared = read_calls(*chunks, tools=("edit_existing_file", "other"))
    unknown = read_calls(*chunks)
    assert declared.inputs == unknown.inputs == [("a", "edit_existing_file", "{}")]


def test_repeated_name_is_not_concatenated() -> None:
    reading = read_calls(call(entry("{", 0, "a", "f")), call(entry("}", 0, None, "f")))
    assert reading.inputs == [("a", "f", "{}")]
    assert reading.problems == ["repeated_name"]


def test_whole_call_that_comes_again_before_its_end_is_one_call() -> None:
    whole = entry('{"x":1}', 0, "a", "f")
    once = read_calls(call(entry("", 0, "a", "f")), call(entry('{"x"', 0)), call(entry(":1}", 0)), call(whole))  # fmt: skip
    twice = read_calls(call(whole), call(whole))
    assert once.inputs == twice.inputs == [("a", "f", '{"x":1}')]
    assert "cumulative_input" in once.problems
    other = read_calls(call(whole), call(entry('{"x":2}', 0, "a", "f")))
    assert other.inputs == [("a", "f", '{"x":1}{"x":2}')]


def test_name_repeated_on_every_delta_costs_linear_work() -> None:
    pieces = ['{"x":"', *["{}"] * 2000, '"}']
    reading = read_calls(
        call(entry(pieces[0], 0, "a", "f")),
        *(call(entry(each, 0, None, "f")) for each in pieces[1:]),
    )
    assert reading.inputs == [("a", "f", "".join(pieces))]


def test_arguments_before_the_name_are_held() -> None:  # M038
    reading = read_calls(call(entry('{"c":', 0, "a")), call(entry('"ls"}', 0, None, "bash")))
    assert reading.inputs == [("a", "bash", '{"c":"ls"}')]
    assert reading.problems == ["late_name"]


def test_name_that_never_comes_is_concluded_from_the_only_tool() -> None:
    reading = read_calls(call(entry("{}", 0, "a")), tools=("only",))
    assert reading.inputs == [("a", "only", "{}")]
    assert reading.problems == ["missing_name"]


def test_call_that_stays_nameless_is_a_typed_error() -> None:
    reading = read_calls(call(entry("{}", 0, "a")), call(entry("{}", 1, "b", "g")))
    assert reading.error.kind == "protocol"
    assert "nameless_call" in reading.problems
    assert reading.inputs == [("b", "g", "{}")]


def test_nameless_call_before_an_inferred_end_is_a_typed_error() -> None:
    reading = read([call(entry("{}", 0, "a")), DONE])
    assert reading.error.kind == "protocol"


def test_nameless_call_of_a_cut_answer_goes_unseen_and_reported() -> None:
    reading = read([call(entry("{", 0, "a")), finish("length"), DONE])
    assert reading.calls == []
    assert reading.problems == ["nameless_call"]


def test_pseudo_tool_passes_through() -> None:  # M045
    name = "multi_tool_use.parallel"
    assert read_calls(call(entry("{}", 0, "a", name)), tools=("f",)).inputs == [("a", name, "{}")]


# --- input ------------------------------------------------------------------------------------------------------------


def test_empty_input_closed_by_the_protocol_is_an_empty_object() -> None:  # M046
    reading = read_calls(call(entry("", 0, "a", "snooze")))
    assert reading.inputs == [("a", "snooze", "{}")]
    assert InputDelta(0, "{}") in reading.events


def test_cumulative_arguments_give_their_suffixes() -> None:  # M051
    reading = read_calls(
        call(entry('{"q":"a', 0, "a", "f")),
        call(entry('{"q":"ab', 0)),
        call(entry('{"q":"ab"}', 0)),
        tools=("f",),
    )
    assert reading.inputs == [("a", "f", '{"q":"ab"}')]
    assert reading.problems == ["cumulative_input"]


def test_overlapping_increments_are_not_cut() -> None:  # M052
    reading = read_calls(call(entry('{"cmd":"l', 0, "a", "sh")), call(entry('l -l"}', 0)))
    assert reading.inputs == [("a", "sh", '{"cmd":"ll -l"}')]
    assert reading.problems == []


def test_object_arguments_are_merged_by_key() -> None:  # M053
    reading = read_calls(
        call(entry({"input": "a", "n": 1}, 0, "a", "f")), call(entry({"input": "ab", "n": 2}, 0))
    )
    assert reading.inputs == [("a", "f", '{"input":"ab","n":2}')]


def test_one_object_keeps_its_bytes() -> None:
    data = (
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":'
        b'{"name":"f","arguments":{"n": 1.0, "m":12345678901234567890}}}]}}]}\n\n'
    ) + sse(FINISH, DONE)
    assert read(data).inputs == [("a", "f", '{"n": 1.0, "m":12345678901234567890}')]


def test_object_pieces_that_do_not_extend_are_appended() -> None:
    reading = read_calls(call(entry({"t": "a"}, 0, "a", "f")), call(entry({"t": "b"}, 0)))
    assert reading.inputs == [("a", "f", '{"t":"ab"}')]


@pytest.mark.parametrize("piece", [{"b": 1}, [1], 5, True])
def test_input_of_another_type_inside_a_call_fails_the_answer(piece: object) -> None:
    reading = read_calls(call(entry("[", 0, "a", "f")), call(entry(piece, 0)), call(entry("]", 0)))
    assert [part.status for part in reading.calls] == ["incomplete"]
    assert isinstance(reading.events[-1], Failed)
    assert "malformed_frame" in reading.problems


def test_object_arguments_end_early_when_another_call_begins() -> None:
    reading = read_calls(call(entry({"x": 1}, 0, "a", "f")), call(entry({"y": 2}, 1, "b", "g")))
    assert [each.input for each in reading.calls] == ['{"x": 1}', '{"y": 2}']


def test_second_whole_object_under_a_repeated_name_is_a_second_call() -> None:
    reading = read_calls(call(entry({"x": 1}, 0, None, "f")), call(entry({"y": 2}, 0, None, "f")))
    assert [each.input for each in reading.calls] == ['{"x": 1}', '{"y": 2}']


def test_invalid_json_is_carried_and_reported() -> None:
    reading = read_calls(call(entry("{x", 0, "a", "f")))
    assert reading.inputs == [("a", "f", "{x")]
    assert reading.problems == ["invalid_arguments"]
    assert judge(reading.calls[0]).reason == "invalid_json"


def test_character_cut_inside_arguments_is_joined() -> None:
    def frame(escape: bytes) -> bytes:
        return (
            b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":'
            b'{"arguments":"' + escape + b'"}}]}}]}\n\n'
        )

    data = sse(call(entry("", 0, "a", "f"))) + frame(b'{\\"t\\":\\"\\ud83d') + frame(b'\\ude00\\"}')
    assert read(data + sse(FINISH, DONE)).inputs == [("a", "f", '{"t":"\U0001f600"}')]


def test_half_a_character_at_the_end_of_arguments_is_replaced() -> None:
    data = (
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":'
        b'{"name":"f","arguments":"\\ud83d"}}]}}]}\n\n'
    )
    assert read(data + sse(finish("length"), DONE)).inputs == [("a", "f", "\ufffd")]


def test_arguments_beside_function_are_found() -> None:
    beside = {"index": 0, "id": "a", "name": "f", "arguments": "{}"}
    reading = read_calls(call(beside))
    assert reading.inputs == [("a", "f", "{}")]
    assert reading.problems == ["misplaced_input"]


def test_arguments_in_both_places_are_read_once() -> None:
    both = {
        "index": 0,
        "id": "a",
        "arguments": "{}",
        "name": "f",
        "function": {"name": "f", "arguments": "{}"},
    }
    reading = read_calls(call(both))
    assert reading.inputs == [("a", "f", "{}")]
    assert reading.problems == []


def test_null_is_absent_in_every_field() -> None:  # M080
    first = {
        "index": 0,
        "id": "a",
        "type": "custom",
        "function": None,
        "custom": {"name": "apply_patch", "input": ""},
    }
    second = {"index": 0, "id": None, "type": None, "function": None, "custom": {"input": "***"}}
    reading = read_calls(call(first), call(second))
    assert reading.calls == [Call(call_id="a", name="apply_patch", input="***", kind="custom")]
    assert reading.problems == []


def test_empty_custom_input_stays_empty() -> None:
    reading = read_calls(
        call({"index": 0, "id": "a", "type": "custom", "custom": {"name": "exec"}})
    )
    assert reading.inputs == [("a", "exec", "")]


def test_custom_call_stays_open_until_the_end() -> None:
    custom = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "exec", "input": "{}"}}
    more = {"index": 0, "custom": {"input": "{}"}}
    reading = read_calls(call(custom), call(entry("{}", 1, "b", "g")), call(more))
    assert [each.input for each in reading.calls] == ["{}{}", "{}"]


def test_thought_signature_stays_with_its_call() -> None:  # M094
    sealed = {**entry("{}", 0, "a", "f"), "extra_content": {"google": {"thought_signature": "abc"}}}
    reading = read_calls(call(sealed), call({"index": 0, "extra_content": {"google": 2}}))
    first = Seal("thought", '{"google": {"thought_signature": "abc"}}')
    second = Seal("thought", '{"google": 2}')
    assert reading.calls[0].seals == (first, second)
    assert [event.seal for event in reading.events if isinstance(event, SealAdded)] == [
        first,
        second,
    ]


def test_thought_signature_repeated_is_one() -> None:
    sealed = {**entry("{", 0, "a", "f"), "extra_content": {"x": 1}}
    again = {**entry("}", 0), "extra_content": {"x": 1}}
    assert len(read_calls(call(sealed), call(again)).calls[0].seals) == 1


def test_unknown_fields_of_a_call_are_kept() -> None:
    reading = read_calls(call({**entry("{}", 0, "a", "f"), "mystery": [1, 2]}))
    extra = reading.calls[0].extra
    assert isinstance(extra, Extra)
    assert {name: bytes(raw) for name, raw in extra.fields.items()} == {"mystery": b"[1, 2]"}


def test_legacy_function_call_is_a_call() -> None:
    reading = read(
        [
            chunk({"function_call": {"name": "f", "arguments": ""}}),
            chunk({"function_call": {"arguments": "{}"}}),
            finish("function_call"),
            DONE,
        ]
    )
    assert [(each.name, each.input, bool(each.call_id)) for each in reading.calls] == [
        ("f", "{}", True)
    ]
    assert reading.outcome.choices[0].finish == "tool_calls"
    assert reading.problems == []


# --- ends -------------------------------------------------------------------------------------------------------------


def test_cut_call_stays_as_it_came() -> None:  # M061
    reading = read([call(entry('{"target":"prod"', 0, "a", "delete"))])
    assert reading.inputs == [("a", "delete", '{"target":"prod"')]
    assert reading.calls[0].status == "incomplete"
    assert reading.error.kind == "truncated"


def test_call_cut_by_length_is_incomplete_with_its_raw_text() -> None:  # M062
    reading = read([call(entry('{"a":"half', 0, "a", "write")), finish("length"), DONE])
    assert reading.inputs == [("a", "write", '{"a":"half')]
    assert reading.calls[0].status == "incomplete"
    assert reading.outcome.choices[0].finish == "length"


def test_last_call_is_incomplete_at_length_even_if_it_is_json() -> None:
    reading = read(
        [
            call(entry('{"x":1}', 0, "a", "f"), entry("{", 1, "b", "g")),
            call(entry('{"z":1}', 2, "c", "h")),
            finish("length"),
            DONE,
        ]
    )
    assert [each.status for each in reading.calls] == ["completed", "incomplete", "incomplete"]


def test_earlier_open_call_that_is_json_is_complete_at_length() -> None:
    reading = read(
        [
            call(entry("", 0, "a", "f")),
            call(entry("{", 1, "b", "g")),
            call(entry("{}", 0)),
            finish("length"),
            DONE,
        ]
    )
    assert [each.status for each in reading.calls] == ["completed", "incomplete"]


def test_name_without_arguments_and_then_nothing_is_not_an_empty_object() -> None:  # M063
    reading = read([call(entry("", 0, "a", "rm"))])
    assert reading.inputs == [("a", "rm", "")]
    assert reading.calls[0].status == "incomplete"


def test_finish_stop_beside_calls_is_tool_calls() -> None:  # M064
    reading = read([call(entry("{}", 0, "a", "f")), finish("stop"), DONE])
    assert reading.outcome.choices[0].finish == "tool_calls"
    assert reading.problems == ["wrong_finish"]


def test_finish_tool_calls_without_calls_is_stop() -> None:
    reading = read([chunk({"content": "a"}), finish("tool_calls"), DONE])
    assert reading.outcome.choices[0].finish == "stop"
    assert reading.problems == ["wrong_finish"]


def test_done_is_an_end_when_every_call_is_json() -> None:  # M066
    reading = read([call(entry('{"x":1}', 0, "a", "f")), DONE])
    assert Finished("tool_calls", inferred=True) in reading.events
    assert reading.calls[0].status == "completed"


@pytest.mark.parametrize("arguments", ["", '{"x"'])
def test_done_is_no_end_when_a_call_is_not_json(arguments: str) -> None:
    reading = read([call(entry(arguments, 0, "a", "f")), DONE])
    assert reading.error.kind == "truncated"
    assert reading.calls[0].status == "incomplete"


def test_text_then_call_then_usage_ends_with_tool_calls() -> None:  # M070
    usage: dict[str, object] = {
        "choices": [],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    reading = read(
        [chunk({"content": "Looking."}), call(entry("{}", 0, "a", "f")), FINISH, usage, DONE]
    )
    assert reading.outcome.choices[0].finish == "tool_calls"


def test_second_attempt_in_one_stream_is_never_glued_to_the_first() -> None:  # M156
    reading = read_calls(
        call(entry('{"code":"pri', 0, "a", "exec")),
        call(entry('{"code":"print(1)"}', 0, "b", "exec")),
    )
    assert reading.inputs == [("a", "exec", '{"code":"pri'), ("b", "exec", '{"code":"print(1)"}')]


def test_blanks_after_the_end_of_a_call_are_nothing() -> None:
    reading = read_calls(
        call(entry("{}", 0, "a", "f")), call(entry("{}", 1, "b", "g")), call(entry(" \n", 0))
    )
    assert reading.problems == []


def test_whole_input_again_after_the_end_of_a_call_is_nothing() -> None:
    reading = read_calls(
        call(entry("{}", 0, "a", "f")), call(entry("{}", 1, "b", "g")), call(entry("{}", 0))
    )
    assert reading.inputs == [("a", "f", "{}"), ("b", "g", "{}")]


def test_other_input_after_the_end_of_a_call_fails_the_stream() -> None:
    reading = read_calls(
        call(entry("{}", 0, "a", "f")), call(entry("{}", 1, "b", "g")), call(entry("x", 0))
    )
    assert reading.error.kind == "protocol"
    assert "input_after_end" in reading.problems


def test_call_after_the_finish_is_kept_and_reported() -> None:
    reading = read(
        [call(entry("{}", 0, "a", "f")), FINISH, call(entry("{}", 1, "b", "g")), FINISH, DONE]
    )
    assert reading.inputs == [("a", "f", "{}"), ("b", "g", "{}")]
    assert reading.problems == ["after_finish"]


def test_ten_thousand_small_deltas_are_ten_thousand_small_steps() -> None:
    reader = ChatReader(DecodeContext(tools=(Tool(name="f"),)))
    first = sse(call(entry("", 0, "a", "f")))
    reader.read(Frame(first, first[6:-2]))
    small = sse(call(entry(" ", 0)))
    frame = Frame(small, small[6:-2])
    for _ in range(10_000):
        assert reader.read(frame) == (InputDelta(0, " "),)


def test_fast_path_and_slow_path_agree() -> None:
    plain = [chunk({"content": "a"}), chunk({"content": "b"}), call(entry("{", 0, "a", "f"))]
    plain += [
        call(entry("}", 0)),
        chunk({"reasoning_content": "x"}),
        chunk({"reasoning_content": "y"}),
    ]
    slow = [{**each, "usage": {"prompt_tokens": 1}} for each in plain]
    fast_events = read([*plain, FINISH, DONE]).outcome.choices
    assert read([*slow, FINISH, DONE]).outcome.choices == fast_events
    assert TextDelta(0, "b") in read(plain).events


@pytest.mark.parametrize(
    "pieces", [('{"a":"\ud83d', '"}'), ('{"b":"\ude00', '"}'), ('{"a":"\ud83d',)]
)
def test_call_with_half_of_a_character_is_never_complete(pieces: tuple[str, ...]) -> None:
    first, *rest = pieces
    later = [call(entry(piece, 0)) for piece in rest]
    reading = read_calls(call(entry(first, 0, "a", "f")), *later)
    assert [part.status for part in reading.calls] == ["incomplete"]
    assert isinstance(reading.events[-1], Failed)
