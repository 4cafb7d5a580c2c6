"""The calls of one turn, from whatever reports them."""

import copy
import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from anthropic.types import RawMessageStreamEvent
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from dragoman.dialects.codec import DecodeContext
from dragoman.model.request import Tool
from dragoman.toolcalls import (
    IngestResult,
    TextCall,
    TextPatterns,
    ToolCallAggregator,
    ToolCallDelta,
    ToolCallRecord,
)
from dragoman.toolcalls.aggregator import Pieces
from toolcall_wires import (
    Payload,
    chat_body,
    chat_call,
    chat_stream,
    chunk,
    codex_stream,
    function_item,
    messages_body,
    messages_stream,
    responses_body,
    responses_stream,
    tool_delta,
)

TRANSCRIPTS = Path(__file__).parents[4] / "shared" / "codex" / "transcripts"
ARGUMENTS = '{"city": "Paris",  "n": 1.0}'
RECORD = ToolCallRecord("call_1", "function", "f", ARGUMENTS, True, "complete")
TOOL_USE: Payload = {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}}

Streams = Callable[[Sequence[str]], list[Payload]]
STREAMS: list[Streams] = [chat_stream, responses_stream, messages_stream]


def fed(*payloads: object, choice_index: int = 0) -> ToolCallAggregator:
    aggregator = ToolCallAggregator()
    for payload in payloads:
        aggregator.ingest_delta(payload, choice_index=choice_index)
    return aggregator


def cut(text: str, places: Sequence[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    return [piece for piece in pieces if piece]


# One call in each dialect


@pytest.mark.parametrize("stream", STREAMS)
def test_streamed_call_becomes_one_executable_record(stream: Streams) -> None:
    aggregator = fed(*stream([ARGUMENTS[:3], ARGUMENTS[3:11], ARGUMENTS[11:]]))
    assert aggregator.snapshot() == (RECORD,)
    assert aggregator.problems == ()


@pytest.mark.parametrize("stream", STREAMS)
def test_payloads_may_be_json_text_or_bytes_or_frames(stream: Streams) -> None:
    payloads = [json.dumps(payload) for payload in stream([ARGUMENTS])]
    assert fed(*payloads).snapshot() == (RECORD,)
    assert fed(*(payload.encode() for payload in payloads)).snapshot() == (RECORD,)
    assert fed(
        *(f"data: {payload}\n\n" for payload in payloads), "data: [DONE]\n\n"
    ).snapshot() == (RECORD,)
    assert fed([json.loads(payload) for payload in payloads]).snapshot() == (RECORD,)


def test_objects_of_the_sdks_are_payloads() -> None:
    chat = [ChatCompletionChunk.model_validate(each) for each in chat_stream([ARGUMENTS])]
    assert fed(*chat).snapshot() == (RECORD,)
    events: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
    made = [events.validate_python(each) for each in _full(responses_stream([ARGUMENTS]))]
    assert fed(*made).snapshot() == (RECORD,)
    blocks: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
    raw = [blocks.validate_python(each) for each in messages_stream([ARGUMENTS])]
    assert fed(*raw).snapshot() == (RECORD,)


def _full(events: Sequence[Payload]) -> list[Payload]:
    """The SDK demands fields of a response that nobody reads."""
    more: Payload = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return [
        {**event, "response": {**response, **more}}
        if isinstance(response := event.get("response"), dict)
        else event
        for event in events
    ]


def test_codex_notifications_become_a_record() -> None:
    aggregator = fed(*codex_stream({"city": "Paris"}))
    (record,) = aggregator.snapshot()
    assert (record.id, record.name, record.arguments) == ("call_1", "f", '{"city":"Paris"}')
    assert (record.executable, record.reason) == (True, "complete")
    assert aggregator.problems == ()


@pytest.mark.parametrize("number", range(1, 4))
def test_each_codex_message_alone_shows_the_call(number: int) -> None:
    (record,) = fed(codex_stream({})[number]).snapshot()
    assert (record.id, record.executable) == ("call_1", True)


def test_codex_threads_do_not_silence_one_another() -> None:
    other = json.loads(
        json.dumps(codex_stream({})).replace('"t"', '"t2"').replace("call_1", "call_2")
    )
    assert [record.id for record in fed(*codex_stream({})[:2], *other[:2]).snapshot()] == [
        "call_1",
        "call_2",
    ]


def test_raw_item_of_codex_keeps_its_text_when_it_comes_first() -> None:
    raw = {
        "method": "rawResponseItem/completed",
        "params": {"threadId": "t", "turnId": "u", "item": function_item('{"a":  1}', "completed")},
    }
    first, second = codex_stream({"a": 1})[:2]
    assert [record.arguments for record in fed(first, raw, second).snapshot()] == ['{"a":  1}']
    assert [record.arguments for record in fed(first, second, raw).snapshot()] == ['{"a":1}']


def test_recorded_codex_turns_give_their_calls() -> None:
    expected = {
        "client_tool.jsonl": [("call_1", None, '{"city":"Paris"}')],
        "client_tool_ns.jsonl": [("call_1", "wx", '{"city":"Paris"}')],
        "client_tool_raw.jsonl": [("call_1", None, '{"city": "Paris"}')],
        "raw_parallel_hold.jsonl": [
            ("call_A", None, '{"city": "Paris"}'),
            ("call_B", None, '{"city": "Rome"}'),
        ],
        "early_interrupt_replay.jsonl": [("call_1", None, '{"city": "Paris"}')],
        "reasoning_shell.jsonl": [],
    }
    for path in (TRANSCRIPTS / name for name in expected if TRANSCRIPTS.is_dir()):
        recorded = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        aggregator = fed(*(entry["msg"] for entry in recorded if entry["dir"] == "s2c"))
        shown = [(each.id, each.namespace, each.arguments) for each in aggregator.snapshot()]
        assert shown == expected[path.name], path.name
        assert all(each.executable for each in aggregator.snapshot()), path.name


@pytest.mark.parametrize("stream", STREAMS)
def test_call_seen_through_two_channels_is_one_record(stream: Streams) -> None:
    for other in STREAMS:
        aggregator = fed(*stream(["{", "}"]), *other(["{}"]), *codex_stream({}))
        assert [(each.id, each.reason) for each in aggregator.snapshot()] == [
            ("call_1", "complete")
        ]


@pytest.mark.parametrize("stream", STREAMS)
def test_channels_may_be_mixed_payload_by_payload(stream: Streams) -> None:
    for other in (each for each in STREAMS if each is not stream):
        aggregator = ToolCallAggregator()
        found = ""
        for pair in zip(stream(list(ARGUMENTS)), other(list(ARGUMENTS)), strict=False):
            for payload in pair:
                found += "".join(
                    delta.arguments_delta for delta in aggregator.ingest_delta(payload).deltas
                )
        assert [each.arguments for each in aggregator.snapshot()] == [ARGUMENTS]
        assert found == ARGUMENTS


# Increments and so far


@pytest.mark.parametrize("arguments", ['{"n":100}', '{"a":{"b":1}}', '{"s":"aaaa"}', '{"a":"{}"}'])
@pytest.mark.parametrize("stream", STREAMS)
def test_arguments_character_by_character_are_not_damaged(stream: Streams, arguments: str) -> None:
    aggregator = ToolCallAggregator()
    deltas = [
        delta for each in stream(list(arguments)) for delta in aggregator.ingest_delta(each).deltas
    ]
    assert "".join(delta.arguments_delta for delta in deltas) == arguments
    assert [record.arguments for record in aggregator.snapshot()] == [arguments]


def test_chat_deltas_join_to_the_call_as_a_client_joins_them() -> None:
    aggregator = ToolCallAggregator()
    entries = [
        delta.as_chat_delta()
        for payload in chat_stream(list(ARGUMENTS))
        for delta in aggregator.ingest_delta(payload).deltas
    ]
    assert [entry for entry in entries if "id" in entry] == entries[:1]
    functions = [cast("dict[str, str]", entry["function"]) for entry in entries]
    assert [each.get("name") for each in functions] == ["f"] + [None] * (len(functions) - 1)
    assert "".join(each["arguments"] for each in functions) == ARGUMENTS


def test_responses_keep_their_call_id_and_custom_calls_are_seen() -> None:
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_c", "name": "patch"}
    aggregator = fed(
        *responses_stream([ARGUMENTS])[:-1],
        {"type": "response.output_item.added", "output_index": 1, "item": {**item, "input": ""}},
        {
            "type": "response.custom_tool_call_input.delta",
            "output_index": 1,
            "item_id": "ctc_1",
            "delta": "*** Begin",
        },
        {
            "type": "response.output_item.done",
            "output_index": 1,
            "item": {**item, "input": "*** Begin", "status": "completed"},
        },
    )
    assert [(each.id, each.type, each.index) for each in aggregator.snapshot()] == [
        ("call_1", "function", 0),
        ("call_c", "custom", 1),
    ]
    assert all(record.executable for record in aggregator.snapshot())


def test_cumulative_arguments_cost_nothing_until_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joins: list[int] = []
    join = Pieces.join

    def counted(pieces: Pieces) -> str:
        joins.append(pieces.count)
        return join(pieces)

    monkeypatch.setattr(Pieces, "join", counted)
    count = 10_000
    aggregator = fed(tool_delta("", 0, "call_1", "f"), tool_delta('{"a":"'))
    deltas: list[ToolCallDelta] = []
    for _ in range(count):
        deltas.extend(aggregator.ingest_delta(tool_delta("x")).deltas)
    assert len(deltas) == count
    assert sum(len(delta.arguments_delta) for delta in deltas) == count
    assert joins == []
    shared = deltas[0].pieces.shared
    assert all(delta.pieces.shared is shared for delta in deltas)
    assert deltas[-1].arguments == '{"a":"' + "x" * count
    assert len(joins) == 1
    assert aggregator.snapshot()[0].arguments == deltas[-1].arguments
    assert deltas[0].arguments == '{"a":"x'


# Choices


def test_call_is_emitted_at_its_name_when_the_tools_are_known() -> None:
    """Without them a name may still grow (M037), and the call is emitted with its first argument."""
    first = tool_delta("", 0, "call_1", "f")
    unaware = ToolCallAggregator()
    assert not unaware.ingest_delta(first).updated
    assert unaware.ingest_delta(tool_delta("{")).updated
    aware = ToolCallAggregator(DecodeContext(tools=(Tool(name="f"), Tool(name="g"))))
    assert aware.ingest_delta(first).updated


def test_choices_are_kept_apart() -> None:
    two = {
        "choices": [
            {"index": 1, "delta": tool_delta("{}", 0, "call_b", "g")},
            {"index": 0, "delta": tool_delta("{}", 0, "call_a", "f")},
        ]
    }
    aggregator = ToolCallAggregator()
    result = aggregator.ingest_delta(two)
    assert [(delta.choice_index, delta.id) for delta in result.deltas] == [
        (1, "call_b"),
        (0, "call_a"),
    ]
    assert [each.id for each in aggregator.snapshot(choice_index=1)] == ["call_b"]
    assert aggregator.snapshot(choice_index=7) == ()
    assert not aggregator.has_calls(7)


def test_answer_spread_over_choices_is_merged_when_one_was_asked_for() -> None:
    aggregator = ToolCallAggregator(DecodeContext(choices=1))
    aggregator.ingest_delta(chunk({"role": "assistant", "content": "x"}, "stop", 0))
    aggregator.ingest_delta(chunk(tool_delta("{}", 0, "call_1", "f"), choice=1))
    assert [record.id for record in aggregator.snapshot()] == ["call_1"]


@pytest.mark.parametrize("stream", [responses_stream, messages_stream])
def test_payloads_without_a_choice_belong_to_the_one_given(stream: Streams) -> None:
    aggregator = fed(*stream([ARGUMENTS]), choice_index=2)
    assert aggregator.snapshot(choice_index=2) == (RECORD,)
    assert aggregator.snapshot() == ()


def test_message_belongs_to_the_choice_given_and_a_body_says_its_own() -> None:
    aggregator = ToolCallAggregator()
    aggregator.ingest_message(
        {"role": "assistant", "tool_calls": [chat_call("{}")]}, choice_index=3
    )
    aggregator.ingest_message(messages_body(TOOL_USE), choice_index=4)
    aggregator.ingest_message(chat_body(chat_call("{}", "call_0")), choice_index=5)
    assert [aggregator.has_calls(choice) for choice in (0, 3, 4, 5)] == [True, True, True, False]


# Messages


@pytest.mark.parametrize(
    "message",
    [
        chat_body(chat_call(ARGUMENTS)),
        {"role": "assistant", "content": None, "tool_calls": [chat_call(ARGUMENTS)]},
        {"message": {"tool_calls": [chat_call(ARGUMENTS)]}, "finish_reason": "tool_calls"},
        chat_call(ARGUMENTS),
        [chat_call(ARGUMENTS)],
        responses_body(ARGUMENTS),
        function_item(ARGUMENTS, "completed"),
        [function_item(ARGUMENTS, "completed")],
        json.dumps(messages_body({**TOOL_USE, "input": "?"})).replace('"?"', ARGUMENTS),
        json.dumps({**TOOL_USE, "input": "?"}).replace('"?"', ARGUMENTS),
        {"type": "agent_message", "message": {"tool_calls": [chat_call(ARGUMENTS)]}},
        ChatCompletion.model_validate(chat_body(chat_call(ARGUMENTS))),
        Response.model_validate(_full([{"response": responses_body(ARGUMENTS)}])[0]["response"]),
    ],
)
def test_finished_message_gives_its_calls_whole(message: object) -> None:
    aggregator = ToolCallAggregator()
    result = aggregator.ingest_message(message)
    assert aggregator.snapshot() == (RECORD,)
    assert [(delta.arguments_delta, delta.is_first) for delta in result.deltas] == [
        (ARGUMENTS, True)
    ]
    assert result.closed == (RECORD,)
    assert aggregator.ingest_message(message) == IngestResult()


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("body", [chat_body(chat_call(ARGUMENTS)), responses_body(ARGUMENTS)])
def test_message_that_repeats_a_stream_adds_nothing(stream: Streams, body: Payload) -> None:
    aggregator = fed(*stream([ARGUMENTS]))
    assert aggregator.ingest_message(body) == IngestResult()
    assert aggregator.snapshot() == (RECORD,)


def test_message_closes_calls_whose_stream_did_not() -> None:
    aggregator = fed(*chat_stream([ARGUMENTS])[:-1])
    assert [record.reason for record in aggregator.snapshot()] == ["not_closed"]
    result = aggregator.ingest_message(chat_body(chat_call(ARGUMENTS)))
    assert (result.updated, result.deltas, result.closed) == (False, (), (RECORD,))
    assert aggregator.snapshot() == (RECORD,)
    aggregator.close()
    assert aggregator.snapshot() == (RECORD,)


def test_message_that_disagrees_wins_and_the_record_says_so() -> None:
    aggregator = fed(*chat_stream(['{"a":1}']))
    (delta,) = aggregator.ingest_message(chat_body(chat_call('{"a":2}'))).deltas
    assert (delta.amended, delta.arguments) == (True, '{"a":2}')
    (record,) = aggregator.snapshot()
    assert (record.arguments, record.executable, record.reason) == ('{"a":2}', True, "amended")
    assert [problem.kind for problem in aggregator.problems] == ["input_disagrees"]


def test_legacy_function_call_is_one_call_streamed_and_whole() -> None:
    aggregator = fed(
        {"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": '{"a"'}}
    )
    aggregator.ingest_message(
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a":1}'}}
    )
    (record,) = aggregator.snapshot()
    assert (record.arguments, record.executable) == ('{"a":1}', True)


def test_minted_ids_differ_between_turns_choices_and_answers() -> None:
    seen: list[str] = []
    aggregator = ToolCallAggregator()
    for number in range(4):
        for choice in range(2):
            bare: dict[str, object] = {"function_call": {"name": "f", "arguments": "{"}}
            payload = bare if number < 2 else {**chunk(bare, choice=choice), "id": f"r{number}"}
            aggregator.ingest_delta(payload, choice_index=choice)
            seen.extend(record.id for record in aggregator.snapshot(choice_index=choice))
        aggregator.reset_turn()
    assert len(seen) == 8
    assert len(set(seen)) == 8


def test_tools_of_the_request_settle_a_name_that_never_comes() -> None:
    aggregator = ToolCallAggregator(DecodeContext(tools=(Tool(name="only"),)))
    aggregator.ingest_message({"tool_calls": [{"id": "c", "function": {"arguments": "{}"}}]})
    assert [record.name for record in aggregator.snapshot()] == ["only"]


def test_calls_of_the_provider_are_not_calls_for_us() -> None:
    block: Payload = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {},
    }
    aggregator = ToolCallAggregator()
    aggregator.ingest_message(messages_body(block))
    assert not aggregator.has_calls()


# Text


def brackets(text: str) -> list[TextCall]:
    start = text.find("[[")
    return [TextCall("f", "{}", start, start + 4)] if start >= 0 else []


def failing(text: str) -> list[TextCall]:
    raise RuntimeError(text)


MESSAGE_ITEM = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "[["}],
}


def textual() -> ToolCallAggregator:
    patterns = TextPatterns()
    patterns.register("failing", failing)
    patterns.register("brackets", brackets)
    return ToolCallAggregator(text_patterns=patterns)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "Now [[ ]]"},
        {**responses_body("{}"), "output": [MESSAGE_ITEM]},
        messages_body({"type": "text", "text": "[["}),
        {"type": "agent_message", "message": "[["},
        {"type": "agentMessage", "id": "m", "text": "[["},
    ],
)
def test_calls_written_as_text_are_found_when_asked_for(message: object) -> None:
    aggregator = textual()
    assert aggregator.ingest_message(message).deltas == ()
    aggregator = textual()
    (delta,) = aggregator.ingest_message(message, emit_if_missing=True).deltas
    assert (delta.name, delta.arguments, delta.is_first) == ("f", "{}", True)
    (record,) = aggregator.snapshot()
    assert (record.executable, record.reason) == (True, "complete")
    assert record.id.startswith("call_")


def test_text_is_not_looked_at_beside_structured_calls() -> None:
    aggregator = textual()
    aggregator.ingest_message(chat_body(chat_call("{}"), text="[["), emit_if_missing=True)
    assert [record.id for record in aggregator.snapshot()] == ["call_1"]
    aggregator = textual()
    for payload in chat_stream(["{}"]):
        aggregator.ingest_delta(payload)
    aggregator.ingest_message({"content": "[["}, emit_if_missing=True)
    assert [record.id for record in aggregator.snapshot()] == ["call_1"]


def test_message_taken_again_gives_no_second_call_and_another_one_does() -> None:
    aggregator = textual()
    for content in ("a [[", "a [[", "and then [["):
        aggregator.ingest_message({"content": content}, emit_if_missing=True)
    ids = [record.id for record in aggregator.snapshot()]
    assert len(ids) == 2
    assert len(set(ids)) == 2


def test_failing_pattern_is_a_problem_without_the_text() -> None:
    aggregator = textual()
    aggregator.ingest_message({"content": "secret [["}, emit_if_missing=True)
    (problem,) = aggregator.problems
    assert (problem.frame, problem.kind) == (1, "text_pattern")
    assert "secret" not in problem.message


def test_text_of_a_body_is_looked_at_choice_by_choice() -> None:
    choices = [
        {"index": number, "message": {"content": text}, "finish_reason": "stop"}
        for number, text in enumerate(("plain", "[["))
    ]
    aggregator = textual()
    aggregator.ingest_message({"choices": choices}, emit_if_missing=True)
    assert [aggregator.has_calls(choice) for choice in (0, 1)] == [False, True]


# Ends and resets


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("piece", ['{"a"', '{"a":1}'])
def test_call_cut_by_the_end_is_never_executable(stream: Streams, piece: str) -> None:
    aggregator = fed(*stream([piece])[:3])
    assert not aggregator.close().closed
    (record,) = aggregator.snapshot()
    assert (record.arguments, record.executable, record.reason) == (piece, False, "not_closed")
    assert "cut_stream" in [problem.kind for problem in aggregator.problems]


def test_call_stopped_by_length_is_not_executable() -> None:
    aggregator = fed(*chat_stream(['{"a"'])[:-1], chunk({}, "length"))
    assert [(each.executable, each.reason) for each in aggregator.snapshot()] == [
        (False, "not_closed")
    ]


def test_closing_one_choice_leaves_the_others() -> None:
    aggregator = ToolCallAggregator()
    for choice in (0, 1):
        aggregator.ingest_delta(tool_delta("{", 0, f"call_{choice}", "f"), choice_index=choice)
    aggregator.close(0)
    aggregator.ingest_delta(tool_delta("}"), choice_index=1)
    assert aggregator.snapshot(choice_index=1)[0].arguments == "{}"
    assert aggregator.close() == IngestResult()
    assert aggregator.close() == IngestResult()


def test_payload_after_the_end_begins_another_stream() -> None:
    aggregator = fed(*chat_stream(["{}"]), b"[DONE]")
    aggregator.ingest_delta(chunk(tool_delta("{}", 0, "call_2", "g")))
    assert [record.id for record in aggregator.snapshot()] == ["call_1", "call_2"]


def test_end_marker_without_a_stream_is_nothing() -> None:
    assert fed("[DONE]").problems == ()


def test_reset_forgets_one_choice_or_all() -> None:
    aggregator = ToolCallAggregator()
    for choice in (0, 1):
        aggregator.ingest_delta(tool_delta("{", 0, f"call_{choice}", "f"), choice_index=choice)
    aggregator.ingest_delta({"foo": 1})
    aggregator.reset_turn(0)
    assert [aggregator.has_calls(choice) for choice in (0, 1)] == [False, True]
    assert aggregator.problems
    aggregator.ingest_delta(tool_delta("}"), choice_index=1)
    assert aggregator.snapshot(choice_index=1)[0].arguments == "{}"
    aggregator.reset_turn()
    assert not aggregator.has_calls()
    assert aggregator.problems == ()
    aggregator.reset_turn(9)


# Odd payloads


@pytest.mark.parametrize(
    "payload",
    [None, "", b"", {}, [], {"tool_calls": None}, {"tool_calls": []}, {"choices": []}, chunk({})],
)
def test_empty_payload_is_no_update_and_no_problem(payload: object) -> None:
    aggregator = ToolCallAggregator()
    assert aggregator.ingest_delta(payload) == IngestResult()
    assert aggregator.ingest_message(payload, emit_if_missing=True) == IngestResult()
    assert [problem.kind for problem in aggregator.problems if "unknown" in problem.kind] == []


@pytest.mark.parametrize("payload", [{"foo": 1}, 7, object(), "hello", b"\xff", '{"a"', [[1]]])
def test_unknown_payload_is_a_problem_and_no_update(payload: object) -> None:
    aggregator = ToolCallAggregator()
    assert aggregator.ingest_delta(payload) == IngestResult()
    assert [(each.frame, each.kind) for each in aggregator.problems] == [(1, "unknown_payload")]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("payload", ["{oops", b"data: \xff\n\n", b"dXta: {}\n\n", "[1]"])
def test_call_is_unfinished_from_a_payload_that_cannot_be_read(
    stream: Streams, payload: object
) -> None:
    pieces = stream(['{"path": "/srv', "/app", '/main.py"}'])
    middle = next(number for number, each in enumerate(pieces) if "/app" in json.dumps(each))
    aggregator = fed(*pieces[:middle], payload, *pieces[middle + 1 :])
    aggregator.close()
    (record,) = aggregator.snapshot()
    assert record.arguments == '{"path": "/srv'
    assert not record.executable
    assert "failed" in {each.kind for each in aggregator.problems}
    # A finished message repeats it, and has the last word.
    body = {"role": "assistant", "tool_calls": [chat_call('{"path": "/srv/app/main.py"}')]}
    aggregator.ingest_message(body)
    assert [each.executable for each in aggregator.snapshot()] == [True]
    aggregator.reset_turn()
    for piece in pieces:
        aggregator.ingest_delta(piece)
    assert [each.executable for each in aggregator.snapshot()] == [True]


def test_problems_do_not_quote_payloads_that_cannot_be_read() -> None:
    aggregator = fed('{"secret"', "secret", {"a" * 9: "secret"})
    assert len(aggregator.problems) == 3
    assert not [each for each in aggregator.problems if "secret" in each.message]


def test_long_unknown_payload_is_shown_in_part() -> None:
    (problem,) = fed({f"field{number}": 1 for number in range(20)}).problems
    assert problem.message.endswith("…")


def test_error_of_the_server_is_a_problem() -> None:
    aggregator = fed({"error": {"message": "overloaded", "type": "server_error"}})
    assert [problem.kind for problem in aggregator.problems] == ["failed"]


def test_problems_are_bounded() -> None:
    aggregator = ToolCallAggregator()
    for _ in range(1100):
        aggregator.ingest_delta({"foo": 1})
    assert len(aggregator.problems) == 1000
    assert aggregator.problems[-1].frame == 1100


def test_what_is_handed_in_is_not_changed() -> None:
    given_: list[object] = [
        *chat_stream([ARGUMENTS]),
        *responses_stream([ARGUMENTS]),
        *messages_stream([ARGUMENTS]),
        *codex_stream({"a": [1, {"b": None}]}),
        chat_body(chat_call(ARGUMENTS)),
        messages_body(TOOL_USE),
        responses_body(ARGUMENTS),
    ]
    before = copy.deepcopy(given_)
    aggregator = fed(*given_)
    for payload in given_:
        aggregator.ingest_message(payload, emit_if_missing=True)
    assert given_ == before


# Laws

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=4)


@settings(max_examples=100, deadline=None)
@given(value=OBJECTS, places=st.lists(st.integers(0, 200), max_size=12), spaced=st.booleans())
@pytest.mark.parametrize("stream", STREAMS)
def test_any_cut_of_the_arguments_gives_the_same_record(
    stream: Streams, value: dict[str, object], places: list[int], spaced: bool
) -> None:
    text = json.dumps(value, ensure_ascii=spaced, separators=(", ", ": ") if spaced else (",", ":"))
    pieces = cut(text, places)
    # Three pieces that each begin with the one before are what a server sends that repeats itself.
    assume(len(pieces) < 2 or not pieces[1].startswith(pieces[0]))
    aggregator = fed(*stream(pieces))
    assert [(each.arguments, each.reason) for each in aggregator.snapshot()] == [(text, "complete")]
    assert aggregator.problems == ()


@settings(max_examples=200, deadline=None)
@given(payload=JSON_VALUES, is_final=st.booleans())
def test_no_payload_raises(payload: object, is_final: bool) -> None:
    aggregator = ToolCallAggregator()
    take = aggregator.ingest_message if is_final else aggregator.ingest_delta
    assert take(payload) == IngestResult()
    aggregator.close()


WORDS = st.sampled_from(
    [
        "id",
        "type",
        "index",
        "function",
        "name",
        "arguments",
        "tool_calls",
        "delta",
        "choices",
        "message",
        "content",
        "item",
        "item_id",
        "call_id",
        "params",
        "method",
        "msg",
        "output",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "function_call",
        "content_block_start",
        "content_block",
        "tool_use",
        "input",
        "item/started",
        "finish_reason",
    ]
)
LIKELY = st.recursive(
    st.none() | st.integers(-1, 2) | WORDS | st.just("{}"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(payloads=st.lists(LIKELY, max_size=4))
def test_no_likely_payload_raises(payloads: list[object]) -> None:
    aggregator = ToolCallAggregator()
    for payload in payloads:
        aggregator.ingest_delta(payload)
        aggregator.ingest_message(payload, emit_if_missing=True)
    aggregator.close()
    for record in aggregator.snapshot():
        assert record.id
        assert record.name or record.reason == "no_name"
