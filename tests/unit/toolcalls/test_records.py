"""Records of calls: deltas, snapshots, and calls that come through several channels."""

import pytest
from msgspec.structs import replace
from openai.types.chat import (
    ChatCompletionMessageCustomToolCall,
    ChatCompletionMessageFunctionToolCall,
)
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

from dragoman._json import is_same_json
from dragoman.model.events import Event, InputDelta, PartEnded, PartStarted, TextDelta
from dragoman.model.parts import Call, PartStatus, Text
from dragoman.toolcalls.aggregator import (
    CallRecords,
    Changes,
    IngestResult,
    Pieces,
    ToolCallDelta,
    ToolCallRecord,
)


def call(
    text: str = "{}", call_id: str = "c", name: str = "f", status: PartStatus = "completed"
) -> Call:
    return Call(call_id=call_id, name=name, input=text, status=status)


def start(part: int = 0, call_id: str = "c", name: str = "f") -> Event:
    return PartStarted(part, call("", call_id, name, "in_progress"))


def end(
    text: str,
    part: int = 0,
    call_id: str = "c",
    name: str = "f",
    *,
    status: PartStatus = "completed",
    amended: bool = False,
) -> Event:
    return PartEnded(part, call(text, call_id, name, status), amended)


def absorb(records: CallRecords, channel: int, *events: Event) -> IngestResult:
    changes = Changes()
    records.absorb(channel, events, changes)
    return changes.result()


def confirm(records: CallRecords, channel: int, *calls: Call) -> IngestResult:
    changes = Changes()
    records.confirm(channel, calls, changes)
    return changes.result()


def shown(records: CallRecords) -> list[tuple[str, str, str]]:
    return [(record.id, record.arguments, record.reason) for record in records.snapshot()]


def test_one_payload_gives_one_delta_per_call() -> None:
    records = CallRecords(3)
    result = absorb(
        records,
        1,
        start(0, "a"),
        InputDelta(0, "{"),
        start(1, "b"),
        InputDelta(0, '"x"'),
        InputDelta(1, "{}"),
    )
    assert [(delta.index, delta.id, delta.arguments_delta) for delta in result.deltas] == [
        (0, "a", '{"x"'),
        (1, "b", "{}"),
    ]
    assert all(delta.is_first and delta.choice_index == 3 for delta in result.deltas)
    (later,) = absorb(records, 1, InputDelta(0, ":1}")).deltas
    assert not later.is_first
    assert (later.arguments_delta, later.arguments) == (":1}", '{"x":1}')


def test_closing_a_call_makes_it_executable_and_is_no_delta() -> None:
    records = CallRecords()
    absorb(records, 1, start(), InputDelta(0, "{}"))
    assert shown(records) == [("c", "{}", "not_closed")]
    result = absorb(records, 1, end("{}"))
    assert (result.updated, result.deltas) == (False, ())
    assert [(record.id, record.executable, record.reason) for record in result.closed] == [
        ("c", True, "complete")
    ]


def test_call_that_ends_incomplete_stays_open() -> None:
    records = CallRecords()
    result = absorb(records, 1, start(), InputDelta(0, "{"), end("{", status="incomplete"))
    assert result.closed == ()
    assert shown(records) == [("c", "{", "not_closed")]


def test_amended_call_says_so_and_old_deltas_keep_their_text() -> None:
    records = CallRecords()
    (before,) = absorb(records, 1, start(), InputDelta(0, '{"a":1}')).deltas
    (after,) = absorb(records, 1, end('{"a":2}', amended=True)).deltas
    assert before.arguments == '{"a":1}'
    assert (after.amended, after.arguments_delta, after.arguments) == (True, "", '{"a":2}')
    assert shown(records) == [("c", '{"a":2}', "amended")]
    assert records.found == []


def test_amended_text_that_is_no_json_is_not_executable() -> None:
    records = CallRecords()
    absorb(records, 1, start(), InputDelta(0, "{}"), end("{", amended=True))
    assert shown(records) == [("c", "{", "invalid_json")]


def test_providers_own_calls_and_texts_make_no_record() -> None:
    records = CallRecords()
    own = Call(call_id="s", name="web_search", executor="provider", status="in_progress")
    done = Call(call_id="s", name="web_search", executor="provider", input="{}")
    result = absorb(
        records,
        1,
        PartStarted(0, own),
        InputDelta(0, "{}"),
        PartEnded(0, done),
        PartStarted(1, Text(status="in_progress")),
        TextDelta(1, "x"),
        PartEnded(1, Text(text="x")),
    )
    assert result == IngestResult()
    assert len(records) == 0


def test_second_channel_of_a_call_adds_nothing() -> None:
    records = CallRecords()
    absorb(records, 1, start(), InputDelta(0, '{"a": 1}'), end('{"a": 1}'))
    assert (
        absorb(records, 2, start(5), InputDelta(5, '{"a":1}'), end('{"a":1}', 5)) == IngestResult()
    )
    assert shown(records) == [("c", '{"a": 1}', "complete")]


def test_second_channel_closes_what_the_first_left_open() -> None:
    records = CallRecords()
    absorb(records, 1, start(), InputDelta(0, '{"a"'), end('{"a"', status="incomplete"))
    result = absorb(records, 2, start(), InputDelta(0, '{"a":1}'), end('{"a":1}'))
    assert [delta.arguments_delta for delta in result.deltas] == [":1}"]
    assert [record.id for record in result.closed] == ["c"]


def test_second_channel_that_is_cut_changes_nothing() -> None:
    records = CallRecords()
    absorb(records, 1, start(), InputDelta(0, "{"))
    absorb(records, 2, start(), InputDelta(0, "{}"), end("{}", status="incomplete"))
    assert shown(records) == [("c", "{", "not_closed")]


def test_second_channel_that_disagrees_wins_and_is_reported() -> None:
    records = CallRecords()
    absorb(records, 1, start(), InputDelta(0, '{"a":1}'), end('{"a":1}'))
    (delta,) = absorb(records, 2, start(), end('{"a":2}')).deltas
    assert (delta.amended, delta.arguments) == (True, '{"a":2}')
    assert shown(records) == [("c", '{"a":2}', "amended")]
    assert [kind for kind, _ in records.found] == ["input_disagrees"]


def test_owner_that_goes_on_after_another_closed_the_call_is_heard_only_at_its_end() -> None:
    records = CallRecords()
    absorb(records, 1, start(), InputDelta(0, '{"a"'))
    absorb(records, 2, start(), end('{"a":1}'))
    assert absorb(records, 1, InputDelta(0, ":1}")) == IngestResult()
    assert absorb(records, 1, end('{"a":1}')) == IngestResult()
    assert shown(records) == [("c", '{"a":1}', "complete")]


def test_message_has_the_last_word() -> None:
    records = CallRecords()
    absorb(records, 1, start(), InputDelta(0, '{"a":1}'))
    confirm(records, 2, call('{"a":2}'))
    assert absorb(records, 1, end('{"a":1}')) == IngestResult()
    assert shown(records) == [("c", '{"a":2}', "amended")]


def test_stream_closes_what_a_message_left_open() -> None:
    records = CallRecords()
    absorb(records, 1, start(), InputDelta(0, "{"))
    confirm(records, 2, call("{", status="incomplete"))
    absorb(records, 1, InputDelta(0, "}"), end("{}"))
    assert shown(records) == [("c", "{}", "complete")]


def test_two_parts_of_one_channel_are_two_calls() -> None:
    records = CallRecords()
    absorb(records, 1, start(0), end("", 0), start(1), InputDelta(1, "{}"), end("{}", 1))
    assert [record.id for record in records.snapshot()] == ["c", "c"]
    assert [record.index for record in records.snapshot()] == [0, 1]


def test_same_id_with_another_name_is_another_call() -> None:
    records = CallRecords()
    absorb(records, 1, start())
    absorb(records, 2, start(0, "c", "g"))
    confirm(records, 3, call("{}", "c", "h"))
    assert [record.name for record in records.snapshot()] == ["f", "g", "h"]


def test_message_that_repeats_streamed_calls_adds_nothing_and_closes_them() -> None:
    records = CallRecords()
    absorb(records, 1, start(0, "a"), InputDelta(0, "{}"), start(1, "b"), InputDelta(1, '{"x":1}'))
    result = confirm(records, 2, call("{}", "a"), call('{"x":1}', "b"))
    assert not result.updated
    assert [record.id for record in result.closed] == ["a", "b"]
    assert confirm(records, 3, call("{}", "a"), call('{"x":1}', "b")) == IngestResult()


def test_message_adds_the_calls_that_were_not_streamed() -> None:
    records = CallRecords()
    absorb(records, 1, start(0, "a"), InputDelta(0, "{}"))
    result = confirm(records, 2, call("{}", "b", "g"), call("{}", "a"))
    assert [(delta.id, delta.arguments) for delta in result.deltas] == [("b", "{}")]
    assert [record.id for record in records.snapshot()] == ["a", "b"]


@pytest.mark.parametrize("streamed", ['{"x":1}', '{"x"', "", '{"x": 1}'])
def test_streamed_call_under_another_id_is_the_same_call(streamed: str) -> None:
    """M018: a server that parses its output twice gives the final message other ids."""
    records = CallRecords()
    absorb(records, 1, start(0, "a"), *([InputDelta(0, streamed)] if streamed else []))
    confirm(records, 2, call('{"x":1}', "z"))
    (record,) = records.snapshot()
    assert (record.id, record.executable) == ("a", True)


def test_call_with_other_arguments_is_not_taken_for_a_streamed_one() -> None:
    records = CallRecords()
    absorb(records, 1, start(0, "a"), InputDelta(0, '{"x":1}'), end('{"x":1}', 0, "a"))
    confirm(records, 2, call('{"x":2}', "z"))
    assert [record.id for record in records.snapshot()] == ["a", "z"]


def test_ids_are_matched_before_contents() -> None:
    records = CallRecords()
    absorb(records, 1, start(0, "a"), InputDelta(0, "{}"))
    confirm(records, 2, call("{}", "z"), call("{}", "a"))
    assert [record.id for record in records.snapshot()] == ["a", "z"]


def test_call_confirmed_by_one_message_is_not_taken_by_the_next() -> None:
    records = CallRecords()
    absorb(records, 1, start(0, "a"), InputDelta(0, "{}"))
    confirm(records, 2, call("{}", "a"))
    confirm(records, 3, call("{}", "b"))
    assert [record.id for record in records.snapshot()] == ["a", "b"]


def test_incomplete_call_of_a_message_is_recorded_as_it_is() -> None:
    records = CallRecords()
    confirm(records, 1, call('{"a"', status="incomplete"))
    assert shown(records) == [("c", '{"a"', "not_closed")]


def test_freeform_texts_are_compared_as_texts() -> None:
    records = CallRecords()
    custom = Call(call_id="c", name="f", kind="custom", input="[1]")
    absorb(
        records, 1, PartStarted(0, Call(call_id="c", name="f", kind="custom", status="in_progress"))
    )
    absorb(records, 1, InputDelta(0, "[ 1]"))
    confirm(records, 2, custom)
    assert shown(records) == [("c", "[1]", "amended")]


def test_snapshot_is_made_anew_only_after_a_change() -> None:
    records = CallRecords()
    absorb(records, 1, start(), InputDelta(0, "{"))
    (before,) = records.snapshot()
    assert records.snapshot()[0] is before
    absorb(records, 1, InputDelta(0, "}"))
    assert records.snapshot()[0] is not before


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1, "b": [true, null]}', '{"b":[true,null],"a":1}', True),
        ('{"a":1}', '{"a":1.0}', True),
        ('{"a":1}', '{"a":true}', False),
        ("[1]", "[1,2]", False),
        ('{"a":1}', '{"b":1}', False),
        ('{"a":"é"}', '{"a":"\\u00e9"}', True),
        ("{", "{", False),
        ("[[1]]", "[[2]]", False),
    ],
)
def test_texts_are_compared_as_json_values(one: str, other: str, same: bool) -> None:
    assert is_same_json(one, other) is same


DELTA = ToolCallDelta(1, "call_1", "function", "f", '{"a"', Pieces(['{"a"', ":1}"], 1))
RECORD = ToolCallRecord("call_1", "function", "f", '{"a":1}', True, "complete")


def test_cumulative_arguments_are_those_up_to_the_delta() -> None:
    assert DELTA.arguments == '{"a"'
    assert replace(DELTA, pieces=Pieces(['{"a"', ":1}"], 2)).arguments == '{"a":1}'


def test_pieces_are_not_printed() -> None:
    assert repr(DELTA.pieces) == "<1 pieces>"


def test_first_chat_delta_has_id_type_and_name_and_later_ones_only_arguments() -> None:
    first = replace(DELTA, is_first=True).as_chat_delta()
    assert first == {
        "index": 1,
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a"'},
    }
    assert DELTA.as_chat_delta() == {"index": 1, "function": {"arguments": '{"a"'}}
    ChoiceDeltaToolCall.model_validate(first, strict=True)
    ChoiceDeltaToolCall.model_validate(DELTA.as_chat_delta(), strict=True)


def test_custom_chat_delta_has_input() -> None:
    custom = replace(DELTA, type="custom", is_first=True)
    assert custom.as_chat_delta() == {
        "index": 1,
        "id": "call_1",
        "type": "custom",
        "custom": {"name": "f", "input": '{"a"'},
    }


def test_record_is_a_call_of_a_chat_message() -> None:
    function = RECORD.as_chat()
    assert function == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a":1}'},
    }
    ChatCompletionMessageFunctionToolCall.model_validate(function, strict=True)
    custom = replace(RECORD, type="custom", arguments="text").as_chat()
    assert custom["custom"] == {"name": "f", "input": "text"}
    ChatCompletionMessageCustomToolCall.model_validate(custom, strict=True)


def test_empty_result_says_that_nothing_happened() -> None:
    assert IngestResult() == IngestResult(False, (), ())
