"""The tool-call aggregator: pieces in, records out."""

import copy
import json
from collections.abc import Iterator

import pytest

from dragoman.toolcalls import TextCall, TextPatterns, ToolCallAggregator, register_text_pattern
from import_rules import IMPURE, modules
from seed_wires import (
    CHAT_CALL,
    MESSAGES_CALL,
    RESPONSES_CALL,
    Payload,
    chat_chunk,
    tool_delta,
)

ARGUMENTS = '{"command": ["echo","hello"]}'
TOOL_CALL: Payload = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "f", "arguments": '{"a":1}'},
}


def fed(*deltas: object, choice_index: int = 0) -> ToolCallAggregator:
    aggregator = ToolCallAggregator()
    for delta in deltas:
        aggregator.ingest_delta(delta, choice_index=choice_index)
    return aggregator


def brackets(text: str) -> Iterator[TextCall]:
    """A toy format: `[[name arguments]]`."""
    start = text.find("[[")
    while start >= 0:
        end = text.index("]]", start) + 2
        name, _, arguments = text[start + 2 : end - 2].partition(" ")
        yield TextCall(name, arguments, start, end)
        start = text.find("[[", end)


@pytest.mark.requirement("S003-08")
def test_aggregator_imports_nothing_it_could_log_or_write_with() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for name, path in modules().items()
        if name.startswith("toolcalls")
    ]
    assert sources
    assert not [name for name in IMPURE for source in sources if f"import {name}\n" in source]


@pytest.mark.requirement("S003-08")
def test_aggregator_writes_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    aggregator = fed(*CHAT_CALL, "no JSON at all", {"tool_calls": 7})
    aggregator.ingest_message({"role": "assistant", "tool_calls": "?"}, emit_if_missing=True)
    aggregator.reset_turn()
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


@pytest.mark.requirement("S003-09")
def test_finish_reasons_change_nothing_of_the_records() -> None:
    for reason in ("stop", "tool_calls"):
        records = fed(*CHAT_CALL[:-2], chat_chunk({}, reason)).snapshot()
        assert [(record.name, record.arguments, record.executable) for record in records] == [
            ("shell", ARGUMENTS, True)
        ]
        assert "finish" not in " ".join(records[0].__struct_fields__)


@pytest.mark.requirement("S003-10", "S003-47", "S003-49")
def test_pieces_become_one_record() -> None:
    (record,) = fed(*CHAT_CALL).snapshot()
    assert (record.id, record.type, record.name, record.arguments) == (
        "call_1",
        "function",
        "shell",
        ARGUMENTS,
    )


@pytest.mark.requirement("S003-13", "S003-20")
def test_message_with_tool_calls_gives_its_calls() -> None:
    aggregator = ToolCallAggregator()
    second = {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}}
    result = aggregator.ingest_message(
        {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL, second]}
    )
    assert result.updated
    assert [(record.id, record.name, record.arguments) for record in aggregator.snapshot()] == [
        ("call_1", "f", '{"a":1}'),
        ("call_2", "g", "{}"),
    ]


@pytest.mark.requirement("S003-13", "S003-21")
def test_message_with_a_legacy_function_call_gives_its_call() -> None:
    aggregator = ToolCallAggregator()
    aggregator.ingest_message(
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a":1}'}}
    )
    (record,) = aggregator.snapshot()
    assert (record.type, record.name, record.arguments) == ("function", "f", '{"a":1}')
    assert record.id


@pytest.mark.requirement("S003-14")
def test_responses_events_are_deltas() -> None:
    (record,) = fed(*RESPONSES_CALL).snapshot()
    assert (record.id, record.name, record.arguments, record.executable) == (
        "call_0",
        "shell",
        ARGUMENTS,
        True,
    )


@pytest.mark.requirement("S003-15")
def test_notifications_of_the_codex_app_server_are_deltas() -> None:
    item = {
        "type": "dynamicToolCall",
        "id": "call_9",
        "tool": "lookup",
        "arguments": {"key": "a"},
        "status": "inProgress",
        "namespace": None,
        "contentItems": None,
        "success": None,
        "durationMs": None,
    }
    where = {"threadId": "t", "turnId": "u"}
    aggregator = fed(
        {"method": "item/started", "params": {"item": item, **where}},
        {
            "id": 0,
            "method": "item/tool/call",
            "params": {
                **where,
                "callId": "call_9",
                "namespace": None,
                "tool": "lookup",
                "arguments": {"key": "a"},
            },
        },
    )
    (record,) = aggregator.snapshot()
    assert (record.id, record.name, json.loads(record.arguments)) == (
        "call_9",
        "lookup",
        {"key": "a"},
    )


@pytest.mark.requirement("S003-16")
def test_legacy_function_call_delta_is_a_call() -> None:
    aggregator = fed(
        chat_chunk({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}),
        chat_chunk({"function_call": {"arguments": '{"a"'}}),
        chat_chunk({"function_call": {"arguments": ":1}"}}),
        chat_chunk({}, "function_call"),
    )
    (record,) = aggregator.snapshot()
    assert (record.name, record.arguments, record.executable) == ("f", '{"a":1}', True)


@pytest.mark.requirement("S003-17", "S003-48")
def test_every_call_has_an_id_of_its_own_that_does_not_change() -> None:
    aggregator = ToolCallAggregator()
    aggregator.ingest_delta(
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": '{"a"'}}]}
    )
    first = aggregator.snapshot()[0].id
    aggregator.ingest_delta(
        {"tool_calls": [{"index": 0, "id": "call_late", "function": {"arguments": ":1}"}}]}
    )
    aggregator.ingest_delta(
        {"tool_calls": [{"index": 1, "function": {"name": "f", "arguments": "{}"}}]}
    )
    ids = [record.id for record in aggregator.snapshot()]
    assert ids[0] == first
    assert len(set(ids)) == 2
    assert all(ids)


@pytest.mark.requirement("S003-18")
def test_result_says_whether_anything_changed() -> None:
    aggregator = ToolCallAggregator()
    nothing = aggregator.ingest_delta(chat_chunk({"role": "assistant", "content": "Hello"}))
    assert (nothing.updated, nothing.deltas) == (False, ())
    something = aggregator.ingest_delta(chat_chunk(tool_delta(0, "{", "call_1", "f")))
    assert something.updated
    assert [(delta.id, delta.name) for delta in something.deltas] == [("call_1", "f")]


@pytest.mark.requirement("S003-19")
def test_delta_carries_the_increment_and_the_arguments_so_far() -> None:
    aggregator = ToolCallAggregator()
    found = [delta for item in CHAT_CALL for delta in aggregator.ingest_delta(item).deltas]
    assert "".join(delta.arguments_delta for delta in found) == ARGUMENTS
    so_far = ""
    for delta in found:
        so_far += delta.arguments_delta
        assert delta.arguments == so_far


@pytest.mark.requirement("S003-22", "S003-28")
def test_calls_written_as_text_are_found_by_registered_patterns_on_request() -> None:
    patterns = TextPatterns()
    patterns.register("brackets", brackets)
    message = {"role": "assistant", "content": 'Now [[f {"a":1}]] and [[g {}]].'}
    silent = ToolCallAggregator(text_patterns=patterns)
    silent.ingest_message(message)
    assert silent.snapshot() == ()
    aggregator = ToolCallAggregator(text_patterns=patterns)
    assert aggregator.ingest_message(message, emit_if_missing=True).updated
    assert [(record.name, record.arguments) for record in aggregator.snapshot()] == [
        ("f", '{"a":1}'),
        ("g", "{}"),
    ]


@pytest.mark.requirement("S003-28")
def test_registered_pattern_serves_every_aggregator_until_it_is_taken_out() -> None:
    message = {"role": "assistant", "content": "[[f {}]]"}
    take_out = register_text_pattern("brackets", brackets)
    aggregator = ToolCallAggregator()
    aggregator.ingest_message(message, emit_if_missing=True)
    take_out()
    assert aggregator.has_calls()
    later = ToolCallAggregator()
    later.ingest_message(message, emit_if_missing=True)
    assert not later.has_calls()


@pytest.mark.requirement("S003-55")
def test_text_is_not_looked_at_beside_structured_calls() -> None:
    patterns = TextPatterns()
    patterns.register("brackets", brackets)
    aggregator = ToolCallAggregator(text_patterns=patterns)
    message = {"role": "assistant", "content": "[[g {}]]", "tool_calls": [TOOL_CALL]}
    aggregator.ingest_message(message, emit_if_missing=True)
    assert [record.name for record in aggregator.snapshot()] == ["f"]


@pytest.mark.requirement("S003-23")
def test_snapshot_keeps_the_order_in_which_calls_began() -> None:
    aggregator = fed(
        chat_chunk(tool_delta(0, "{", "call_b", "b")),
        chat_chunk(tool_delta(1, "{", "call_a", "a")),
        chat_chunk(tool_delta(1, "}")),
        chat_chunk(tool_delta(0, "}")),
    )
    assert [(record.name, record.arguments) for record in aggregator.snapshot()] == [
        ("b", "{}"),
        ("a", "{}"),
    ]


@pytest.mark.requirement("S003-24")
def test_snapshot_does_not_change_and_cannot_be_changed() -> None:
    aggregator = fed(chat_chunk(tool_delta(0, '{"a"', "call_1", "f")))
    before = aggregator.snapshot()
    aggregator.ingest_delta(chat_chunk(tool_delta(0, ":1}")))
    assert isinstance(before, tuple)
    assert before[0].arguments == '{"a"'
    assert aggregator.snapshot()[0].arguments == '{"a":1}'
    attribute = "arguments"
    with pytest.raises(AttributeError):
        setattr(before[0], attribute, "{}")


@pytest.mark.requirement("S003-25")
def test_reset_forgets_one_choice_or_all() -> None:
    aggregator = ToolCallAggregator()
    for choice in (0, 1, 2):
        aggregator.ingest_delta(tool_delta(0, "{}", f"call_{choice}", "f"), choice_index=choice)
    aggregator.reset_turn(1)
    assert [aggregator.has_calls(choice) for choice in (0, 1, 2)] == [True, False, True]
    aggregator.reset_turn()
    assert not aggregator.has_calls()


@pytest.mark.requirement("S003-26")
def test_reset_leaves_the_patterns_in_place() -> None:
    patterns = TextPatterns()
    patterns.register("brackets", brackets)
    aggregator = ToolCallAggregator(text_patterns=patterns)
    for _ in range(2):
        aggregator.ingest_message(
            {"role": "assistant", "content": "[[f {}]]"}, emit_if_missing=True
        )
        assert len(aggregator.snapshot()) == 1
        aggregator.reset_turn()


@pytest.mark.requirement("S003-27")
def test_nothing_of_a_past_turn_is_left_after_a_reset() -> None:
    aggregator = fed(*CHAT_CALL[:3])
    aggregator.reset_turn()
    assert aggregator.snapshot() == ()
    assert aggregator.problems == ()
    result = aggregator.ingest_delta(chat_chunk(tool_delta(0, "{}", "call_1", "other")))
    assert [(delta.name, delta.arguments) for delta in result.deltas] == [("other", "{}")]


@pytest.mark.requirement("S003-30")
@pytest.mark.parametrize(
    "arguments", ['{"n":1.0,  "n":2e3}', '{"a":"\\u00e9"}', '{"cut":', "not JSON"]
)
def test_arguments_stay_the_text_they_came_in(arguments: str) -> None:
    (record,) = fed(
        chat_chunk(tool_delta(0, arguments, "call_1", "f")), chat_chunk({}, "tool_calls")
    ).snapshot()
    assert record.arguments == arguments


@pytest.mark.requirement("S003-31")
def test_what_is_handed_in_is_not_changed() -> None:
    given = copy.deepcopy([*CHAT_CALL, *RESPONSES_CALL, *MESSAGES_CALL])
    message: Payload = {
        "role": "assistant",
        "content": None,
        "tool_calls": [copy.deepcopy(TOOL_CALL)],
    }
    aggregator = fed(*given)
    aggregator.ingest_message(message, emit_if_missing=True)
    assert given == [*CHAT_CALL, *RESPONSES_CALL, *MESSAGES_CALL]
    assert message["tool_calls"] == [TOOL_CALL]


@pytest.mark.requirement("S003-32")
def test_two_aggregators_share_nothing() -> None:
    one, other = ToolCallAggregator(), ToolCallAggregator()
    one.ingest_delta(chat_chunk(tool_delta(0, '{"a"', "call_1", "f")))
    other.ingest_delta(chat_chunk(tool_delta(0, '{"b"', "call_2", "g")))
    one.ingest_delta(chat_chunk(tool_delta(0, ":1}")))
    assert [record.arguments for record in one.snapshot()] == ['{"a":1}']
    assert [record.arguments for record in other.snapshot()] == ['{"b"']


@pytest.mark.requirement("S003-33")
def test_choices_are_kept_apart() -> None:
    aggregator = fed(
        chat_chunk(tool_delta(0, '{"a"', "call_1", "f"), choice=0),
        chat_chunk(tool_delta(0, '{"b"', "call_2", "g"), choice=1),
        chat_chunk(tool_delta(0, ":1}"), choice=0),
        chat_chunk(tool_delta(0, ":2}"), choice=1),
    )
    assert [record.arguments for record in aggregator.snapshot(choice_index=0)] == ['{"a":1}']
    assert [record.arguments for record in aggregator.snapshot(choice_index=1)] == ['{"b":2}']


@pytest.mark.requirement("S003-46")
def test_aggregator_says_whether_it_has_calls() -> None:
    aggregator = ToolCallAggregator()
    assert not aggregator.has_calls()
    aggregator.ingest_delta(chat_chunk(tool_delta(0, "{", "call_1", "f")))
    assert aggregator.has_calls()


@pytest.mark.requirement("S003-64")
def test_malformed_arguments_are_delivered_and_marked() -> None:
    (record,) = fed(
        chat_chunk(tool_delta(0, '{"a":', "call_1", "f")), chat_chunk({}, "tool_calls"), "[DONE]"
    ).snapshot()
    assert (record.arguments, record.executable, record.reason) == ('{"a":', False, "invalid_json")


@pytest.mark.requirement("S003-37")
def test_arguments_beside_the_function_are_read_too() -> None:
    beside = {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "f"},
        "arguments": '{"a":1}',
    }
    (record,) = fed({"tool_calls": [beside]}).snapshot()
    assert record.arguments == '{"a":1}'
