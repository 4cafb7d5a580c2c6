"""Calls and entries that nobody can use: each is reported, and none costs another call its place."""

from typing import Any, cast

import pytest

from dragoman.errors import ConfigError
from dragoman.toolcalls import ToolCallAggregator, parse_tool_calls

Json = dict[str, Any]


def call(number: int) -> Json:
    function = {"name": "f", "arguments": f'{{"n":{number}}}'}
    return {"id": f"call_{number}", "type": "function", "function": function}


NAMELESS: Json = {"id": "call_1", "type": "function", "function": {"arguments": '{"n":1}'}}


def chat_body(entries: list[Json | None]) -> Json:
    message = {"role": "assistant", "content": None, "tool_calls": entries}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def chat_stream(entries: list[Json | None]) -> list[Json]:
    deltas = [
        [entry if entry is None else {"index": number, **entry}]
        for number, entry in enumerate(entries)
    ]
    chunks: list[Json] = [
        {"choices": [{"index": 0, "delta": {"tool_calls": delta}, "finish_reason": None}]}
        for delta in deltas
    ]
    end: Json = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    return [*chunks, {"choices": [end]}]


def messages_body(entries: list[Json]) -> Json:
    blocks = [
        {
            "type": "tool_use",
            "id": entry["id"],
            "input": {"n": number},
            **({"name": "f"} if "name" in entry["function"] else {}),
        }
        for number, entry in enumerate(entries)
    ]
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {
        "type": "message",
        "role": "assistant",
        "content": blocks,
        "stop_reason": "tool_use",
        "usage": usage,
    }


SOURCES: dict[str, Any] = {
    "chat body": chat_body([call(0), NAMELESS, call(2)]),
    "chat stream": chat_stream([call(0), NAMELESS, call(2)]),
    "messages body": messages_body([call(0), NAMELESS, call(2)]),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_call_without_a_name_keeps_its_id_and_place_and_has_an_error(source: object) -> None:
    parsed = parse_tool_calls(source)
    assert [(one.id, one.name) for one in parsed.calls] == [
        ("call_0", "f"),
        ("call_1", ""),
        ("call_2", "f"),
    ]
    errors = [one.metadata.error for one in parsed.calls]
    assert errors[0] is None
    assert errors[2] is None
    assert errors[1] is not None
    assert "call_1" in str(errors[1])
    raw = parsed.calls[1].metadata.raw
    assert raw is not None
    assert raw.input == '{"n":1}'
    assert "nameless_call" in [problem.kind for problem in parsed.problems]


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_aggregator_keeps_the_place_of_a_call_without_a_name(source: Any) -> None:
    aggregator = ToolCallAggregator()
    if isinstance(source, list):
        chunks = cast("list[Json]", source)
        results = [aggregator.ingest_delta(chunk) for chunk in chunks]
    else:
        results = [aggregator.ingest_message(source)]
    records = aggregator.snapshot()
    assert [(one.index, one.id, one.reason) for one in records] == [
        (0, "call_0", "complete"),
        (1, "call_1", "no_name"),
        (2, "call_2", "complete"),
    ]
    assert [one.executable for one in records] == [True, False, True]
    assert all(delta.name for result in results for delta in result.deltas)
    assert [one.id for result in results for one in result.closed] == ["call_0", "call_2"]


def test_nameless_call_of_responses_keeps_its_id() -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "arguments": "{}"}
    events: list[Json] = [
        {"type": "response.created", "response": {"id": "resp_1", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "output": []}},
    ]
    (parsed,) = parse_tool_calls(events).calls
    assert (parsed.id, parsed.name) == ("call_1", "")
    assert parsed.metadata.error is not None


@pytest.mark.parametrize("is_stream", [False, True])
def test_null_entry_is_a_problem_and_no_call(is_stream: bool) -> None:
    entries = [call(0), None, call(2)]
    source = chat_stream(entries) if is_stream else chat_body(entries)
    parsed = parse_tool_calls(source)
    assert [one.id for one in parsed.calls] == ["call_0", "call_2"]
    assert parsed.errors == ()
    assert [problem.kind for problem in parsed.problems].count("null_call") == 1


def test_null_entry_of_a_bare_delta_is_a_problem() -> None:
    aggregator = ToolCallAggregator()
    result = aggregator.ingest_delta({"tool_calls": [None, {"index": 0, **call(0)}]})
    assert [delta.id for delta in result.deltas] == ["call_0"]
    assert [problem.kind for problem in aggregator.problems] == ["null_call"]


@pytest.mark.parametrize("entries", ["x", 5, True])
def test_tool_calls_that_are_no_list_are_a_problem(entries: object) -> None:
    aggregator = ToolCallAggregator()
    assert not aggregator.ingest_delta({"tool_calls": entries}).updated
    assert "expected tool_calls as an array" in aggregator.problems[0].message


def test_choice_index_may_be_digits() -> None:
    index: Any = "1"
    aggregator = ToolCallAggregator()
    (delta,) = aggregator.ingest_delta({"tool_calls": [call(0)]}, choice_index=index).deltas
    assert delta.choice_index == 1
    assert aggregator.ingest_message({"tool_calls": [call(0)]}, choice_index=index).closed
    assert aggregator.snapshot(choice_index=index) == aggregator.snapshot(choice_index=1) != ()
    assert aggregator.has_calls(index)
    aggregator.close(index)
    aggregator.reset_turn(index)
    assert not aggregator.has_calls()


@pytest.mark.parametrize("index", ["x", -1, 1.5, None, True])
def test_choice_index_that_is_no_number_is_a_clear_error(index: Any) -> None:
    with pytest.raises(ConfigError, match="choice_index"):
        ToolCallAggregator().ingest_delta({"tool_calls": [call(0)]}, choice_index=index)


@pytest.mark.parametrize("payload", [{"type": "response.\ud800"}, b'{"type":"response.\\ud800"}'])
def test_type_with_half_a_character_is_no_reason_to_raise(payload: object) -> None:
    aggregator = ToolCallAggregator()
    aggregator.ingest_delta(payload)
    aggregator.ingest_message(payload, emit_if_missing=True)
    assert [problem.kind for problem in aggregator.problems][:1] == ["unknown_event"]
    assert parse_tool_calls(payload).calls == ()
