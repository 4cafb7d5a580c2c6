"""From the stream of a Responses-style backend, regular or not, to Chat tool calls."""

import json

import pytest

from dragoman import _json
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import StreamTranslator, make_decoder, translate_body
from dragoman.model.events import Event
from dragoman.model.outcome import Problem
from dragoman.model.request import Tool
from dragoman.toolcalls import ToolCallAggregator
from seed_wires import (
    CHAT_TEXT,
    RESPONSES_CALL,
    Payload,
    as_sse,
    calls,
    decode,
    payloads,
    responses_call,
    responses_stream,
    text,
    translate,
)

FUNCTION_LIKE = ("function_call", "function", "tool_use", "tool_call")


def problems(dialect: str, stream: bytes) -> list[Problem]:
    decoder = make_decoder(dialect)
    return [problem for step in decoder.feed(stream) + decoder.close() for problem in step.problems]


def part_added(part: Payload, item_id: str = "item_1") -> Payload:
    return {
        "type": "response.content_part.added",
        "item_id": item_id,
        "output_index": 0,
        "content_index": 0,
        "part": part,
    }


def arguments_delta(piece: str, item_id: str = "item_1") -> Payload:
    return {
        "type": "response.function_call_arguments.delta",
        "item_id": item_id,
        "output_index": 0,
        "delta": piece,
    }


def arguments_done(item_id: str = "item_1", **more: str) -> Payload:
    return {
        "type": "response.function_call_arguments.done",
        "item_id": item_id,
        "output_index": 0,
        **more,
    }


def item_done(content: list[Payload], item_id: str = "item_1") -> Payload:
    item = {
        "type": "message",
        "id": item_id,
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def found(*events: Payload, context: DecodeContext | None = None) -> list[tuple[str, str, str]]:
    outcome = decode("responses", responses_stream(events), context)
    return [(call.call_id, call.name, call.input) for call in calls(outcome)]


@pytest.mark.requirement("S000-01")
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_stream_is_read_by_lines_however_it_is_cut(line_end: bytes, size: int) -> None:
    stream = as_sse(RESPONSES_CALL).replace(b"\n", line_end)
    decoder = make_decoder("responses")
    events: list[Event] = []
    for start in range(0, len(stream), size):
        events += [
            event for step in decoder.feed(stream[start : start + size]) for event in step.events
        ]
    events += [event for step in decoder.close() for event in step.events]
    (call,) = calls(fold(events))
    assert (call.name, call.input) == ("shell", '{"command": ["echo","hello"]}')


@pytest.mark.requirement("S000-02")
@pytest.mark.parametrize(
    "marker",
    [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [done]\r\n\r\n", b"data:  [DONE] \n\n"],
)
def test_done_marker_is_never_read_as_json(marker: bytes) -> None:
    assert problems("chat", as_sse(CHAT_TEXT[:-1]) + marker) == []
    assert problems("responses", as_sse(RESPONSES_CALL) + marker) == []


@pytest.mark.requirement("S000-03")
def test_text_pieces_are_collected() -> None:
    where: Payload = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    deltas = [
        {"type": "response.output_text.delta", **where, "delta": piece} for piece in ("Hel", "lo")
    ]
    assert text(decode("responses", responses_stream(deltas))) == "Hello"


@pytest.mark.requirement("S000-04", "S000-09")
def test_pieces_of_two_items_do_not_mix() -> None:
    one = responses_call("f", ['{"a"', ":1}"], place=0)
    other = responses_call("g", ['{"b"', ":2}"], place=1)
    interleaved = [event for pair in zip(one, other, strict=True) for event in pair]
    assert found(*interleaved) == [("call_0", "f", '{"a":1}'), ("call_1", "g", '{"b":2}')]


@pytest.mark.requirement("S000-05", "S000-06")
@pytest.mark.parametrize("kind", FUNCTION_LIKE)
def test_function_like_part_opens_a_call(kind: str) -> None:
    added = part_added({"type": kind, "id": "call_1", "name": "f"})
    events = [
        added,
        arguments_delta('{"a"'),
        arguments_delta(":1}"),
        arguments_done(arguments='{"a":1}'),
    ]
    assert found(*events) == [("call_1", "f", '{"a":1}')]


@pytest.mark.requirement("S000-06")
@pytest.mark.parametrize("kind", ["output_text", "refusal", "reasoning_text", "function_calls"])
def test_other_parts_open_no_call(kind: str) -> None:
    assert (
        found(part_added({"type": kind, "id": "call_1", "name": "f", "text": "", "refusal": ""}))
        == []
    )


@pytest.mark.requirement("S000-07", "S000-23")
@pytest.mark.parametrize("kind", FUNCTION_LIKE)
def test_finished_item_reports_the_calls_in_its_content(kind: str) -> None:
    parts: list[Payload] = [
        {"type": kind, "id": "call_1", "name": "f", "arguments": '{"a":1}'},
        {"type": kind, "call_id": "call_2", "tool_name": "g", "arguments": "{}"},
    ]
    assert found(item_done(parts)) == [("call_1", "f", '{"a":1}'), ("call_2", "g", "{}")]


@pytest.mark.requirement("S000-07")
@pytest.mark.parametrize("kind", FUNCTION_LIKE)
def test_finished_item_names_the_call_whose_arguments_are_under_way(kind: str) -> None:
    named = item_done([{"type": kind, "call_id": "call_1", "function_name": "f"}])
    assert found(arguments_delta('{"a":'), arguments_delta("1}"), named) == [
        ("call_1", "f", '{"a":1}')
    ]


@pytest.mark.requirement("S000-08")
def test_name_that_comes_after_the_arguments_is_filled_in() -> None:
    events = [
        arguments_delta('{"a":1}'),
        arguments_done(arguments='{"a":1}'),
        item_done([{"type": "function_call", "call_id": "call_1", "name": "f"}]),
    ]
    (call,) = found(*events)
    assert call[1:] == ("f", '{"a":1}')


@pytest.mark.requirement("S000-10")
def test_piece_for_an_unannounced_item_waits_for_its_name() -> None:
    decoder = make_decoder("responses")
    early = decoder.feed(as_sse(responses_stream([arguments_delta('{"a":1}')])[:2]))
    assert "PartStarted" not in [type(event).__name__ for step in early for event in step.events]
    ((call_id, name, arguments),) = found(
        arguments_delta('{"a":1}'), arguments_done(name="f", arguments='{"a":1}')
    )
    assert call_id.startswith("call_")
    assert (name, arguments) == ("f", '{"a":1}')


@pytest.mark.requirement("S000-11")
@pytest.mark.parametrize(
    "events",
    [
        [
            part_added({"type": "tool_use", "id": "c", "name": "f"}),
            arguments_done(arguments='{"a":1}'),
        ],
        [arguments_delta('{"a":1}'), arguments_done(name="f", call_id="c")],
        [arguments_done(name="f", call_id="c", arguments='{"a":1}')],
    ],
)
def test_call_is_built_from_whichever_events_describe_it(events: list[Payload]) -> None:
    assert found(*events) == [("c", "f", '{"a":1}')]


@pytest.mark.requirement("S000-12")
def test_repeating_events_do_not_deliver_a_call_again() -> None:
    once = responses_call("f", ['{"a":1}'])
    outcome = decode("responses", responses_stream([*once, once[-1], once[-2]]))
    assert [(call.call_id, call.input) for call in calls(outcome)] == [("call_0", '{"a":1}')]


@pytest.mark.requirement("S000-13")
def test_text_and_calls_come_out() -> None:
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    part: Payload = {"type": "output_text", "text": "Hello", "annotations": []}
    done: Payload = {
        "type": "response.output_item.done",
        "output_index": 0,
        "item": {**message, "content": [part]},
    }
    stream = responses_stream([done, *responses_call("f", ["{}"], place=1)])
    assert text(decode("responses", stream)) == "Hello"
    aggregator = ToolCallAggregator()
    for event in stream:
        aggregator.ingest_delta(event)
    (record,) = aggregator.snapshot()
    assert record.as_chat() == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }


@pytest.mark.requirement("S000-14", "S000-15")
@pytest.mark.parametrize(
    ("said", "called", "content", "finish"),
    [
        ("Hello", True, "Hello", "tool_calls"),
        ("", True, None, "tool_calls"),
        ("Hello", False, "Hello", "stop"),
    ],
)
def test_chat_body_has_text_calls_and_finish(
    said: str, called: bool, content: str | None, finish: str
) -> None:
    output: list[Payload] = []
    if said:
        part: Payload = {"type": "output_text", "text": said, "annotations": []}
        output.append(
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    if called:
        output.append(responses_call("f", ["{}"])[-1]["item"])
    head = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
    }
    body = json.loads(
        translate_body(json.dumps({**head, "output": output}).encode(), "responses", "chat").body
    )
    (choice,) = body["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (content, finish)
    assert [call["function"]["name"] for call in choice["message"].get("tool_calls") or ()] == [
        "f"
    ] * called


@pytest.mark.requirement("S000-16")
def test_stream_and_body_give_the_same_answer() -> None:
    stream = responses_stream(responses_call("f", ['{"a"', ":1}"]))
    final = stream[-1]
    assert isinstance(final, dict)
    body = codec("responses").read_body(_json.dumps(final["response"]), DecodeContext())
    assert fold(body.events).choices == decode("responses", stream).choices


@pytest.mark.requirement("S000-17")
def test_calls_are_streamed_as_increments_while_they_are_produced() -> None:
    translator = StreamTranslator("responses", "chat")
    sent = [payloads(translator.feed(as_sse([item]))) for item in RESPONSES_CALL]
    pieces = [
        entry["function"].get("arguments", "")
        for chunks in sent[1:4]
        for chunk in chunks
        for choice in chunk["choices"]
        for entry in choice["delta"].get("tool_calls") or ()
    ]
    assert [piece for piece in pieces if piece] == ['{"command": ', '["echo","hello"]}']


@pytest.mark.requirement("S000-18", "S000-19")
def test_stream_with_calls_has_one_finish_and_ends_with_done() -> None:
    stream = translate("responses", "chat", RESPONSES_CALL)
    finishes = [
        choice["finish_reason"] for chunk in payloads(stream) for choice in chunk["choices"]
    ]
    assert [finish for finish in finishes if finish] == ["tool_calls"]
    assert stream.endswith(b"data: [DONE]\n\n")


@pytest.mark.requirement("S000-20")
def test_wire_that_ends_early_is_an_error_and_delivers_what_was_complete() -> None:
    cut = [*RESPONSES_CALL[:-1], *responses_call("g", ['{"b"'], place=1)[:2]]
    outcome = decode("responses", cut)
    assert outcome.error is not None
    assert outcome.error.kind == "truncated"
    assert [(call.name, call.status) for call in calls(outcome)] == [
        ("shell", "completed"),
        ("g", "incomplete"),
    ]


@pytest.mark.requirement("S000-21", "S000-23")
@pytest.mark.parametrize(
    "named",
    [
        {"name": "f"},
        {"function_name": "f"},
        {"tool_name": "f"},
        {"function": {"name": "f"}},
        {"call_name": "f"},
        {"name": "", "function_name": None, "tool_name": "f", "call_name": "g"},
    ],
)
def test_name_is_read_from_any_of_its_places(named: Payload) -> None:
    added = [
        part_added({"type": "function_call", "id": "c", **named}),
        arguments_done(arguments="{}"),
    ]
    in_content = [item_done([{"type": "function_call", "id": "c", "arguments": "{}", **named}])]
    at_the_end = [
        arguments_delta("{}"),
        {**arguments_done(arguments="{}"), "call_id": "c", **named},
    ]
    for events in (added, in_content, at_the_end):
        assert found(*events) == [("c", "f", "{}")]


@pytest.mark.requirement("S000-22")
@pytest.mark.parametrize(
    "identified",
    [{"id": "c"}, {"call_id": "c"}, {"function": {"id": "c"}}, {"id": "item", "call_id": "c"}],
)
def test_id_that_pairs_is_read_from_any_of_its_places(identified: Payload) -> None:
    added = part_added({"type": "function_call", "name": "f", **identified})
    assert found(added, arguments_done(arguments="{}")) == [("c", "f", "{}")]


@pytest.mark.requirement("S000-22")
def test_id_is_made_where_none_came() -> None:
    ((call_id, *_),) = found(
        part_added({"type": "function_call", "name": "f"}), arguments_done(arguments="{}")
    )
    assert call_id.startswith("call_")


SCHEMA_A = _json.raw(
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
)
SCHEMA_B = _json.raw({"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]})
NAMELESS = (arguments_delta('{"b":"x"}'), arguments_done(arguments='{"b":"x"}'))


@pytest.mark.requirement("S000-24", "S000-26")
def test_only_tool_on_offer_is_the_one_meant() -> None:
    context = DecodeContext(tools=(Tool(name="f"),))
    assert [name for _, name, _ in found(*NAMELESS, context=context)] == ["f"]


@pytest.mark.requirement("S000-25")
def test_tool_whose_schema_fits_is_the_one_meant() -> None:
    tools = (Tool(name="f", schema=SCHEMA_A), Tool(name="g", schema=SCHEMA_B))
    assert [name for _, name, _ in found(*NAMELESS, context=DecodeContext(tools=tools))] == ["g"]
    positional = DecodeContext(tools=tools, name_fallback="positional")
    assert [name for _, name, _ in found(*NAMELESS, context=positional)] == ["f"]


@pytest.mark.requirement("S000-25")
def test_name_that_cannot_be_settled_is_an_error() -> None:
    tools = (Tool(name="f", schema=SCHEMA_B), Tool(name="g", schema=SCHEMA_B))
    outcome = decode("responses", responses_stream(NAMELESS), DecodeContext(tools=tools))
    assert outcome.error is not None
    assert outcome.error.kind == "protocol"
    assert calls(outcome) == []


@pytest.mark.requirement("S000-26")
def test_tools_on_offer_settle_the_name_in_a_body_too() -> None:
    item = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c",
        "arguments": "{}",
        "status": "completed",
    }
    head = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
    }
    data = json.dumps({**head, "output": [item]}).encode()
    step = codec("responses").read_body(data, DecodeContext(tools=(Tool(name="f"),)))
    assert [call.name for call in calls(fold(step.events))] == ["f"]
