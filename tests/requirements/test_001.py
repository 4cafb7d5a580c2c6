"""One shape for the calls of whole and streamed answers."""

import ast
import gc
import json
import tracemalloc
import weakref
from datetime import UTC, datetime

import pytest

from dragoman.errors import ToolError
from dragoman.model.parts import Call
from dragoman.toolcalls import ToolCallParser, parse_tool_calls
from import_rules import modules
from seed_wires import (
    CHAT_CALL,
    MESSAGES_CALL,
    RESPONSES_CALL,
    Payload,
    as_sse,
    chat_chunk,
    message_block,
    messages_stream,
    responses_call,
    responses_stream,
    tool_delta,
)

STREAMS = {"chat": CHAT_CALL, "responses": RESPONSES_CALL, "messages": MESSAGES_CALL}


def tool_call(call_id: object, name: object, arguments: object) -> Payload:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat_body(*calls: object, content: str | None = None) -> Payload:
    message = {"role": "assistant", "content": content, "tool_calls": list(calls)}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
    }


def clock() -> datetime:
    return datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.mark.requirement("S001-01", "S001-04")
def test_calls_of_a_chat_body_come_with_parsed_parameters() -> None:
    (call,) = parse_tool_calls(
        chat_body(tool_call("call_1", "f", '{"a": [1, "x"], "b": null}'))
    ).calls
    assert (call.id, call.name, call.parameters) == ("call_1", "f", {"a": [1, "x"], "b": None})
    assert call.metadata.error is None


@pytest.mark.requirement("S001-02")
@pytest.mark.parametrize(
    "body",
    [
        {"object": "chat.completion", "id": "x", "choices": []},
        {
            "object": "chat.completion",
            "id": "x",
            "choices": [{"index": 0, "message": None, "finish_reason": "stop"}],
        },
        {
            "object": "chat.completion",
            "id": "x",
            "choices": [{"index": 0, "message": {"content": "Hello"}}],
        },
        chat_body(content="Hello")
        | {"choices": [{"index": 0, "message": {"content": "Hi", "tool_calls": None}}]},
    ],
)
def test_answer_without_calls_has_none_and_no_error(body: Payload) -> None:
    parsed = parse_tool_calls(body)
    assert parsed.calls == ()
    assert parsed.errors == ()


@pytest.mark.requirement("S001-03", "S001-05")
@pytest.mark.parametrize(
    ("dialect", "provider"),
    [("chat", "openai"), ("responses", "openai"), ("messages", "anthropic")],
)
def test_every_dialect_gives_the_same_shape_and_names_its_provider(
    dialect: str, provider: str
) -> None:
    (call,) = parse_tool_calls(as_sse(STREAMS[dialect])).calls
    assert call.id
    assert (call.name, call.parameters) == ("shell", {"command": ["echo", "hello"]})
    assert (call.metadata.provider, call.metadata.dialect) == (provider, dialect)


@pytest.mark.requirement("S001-06")
def test_time_is_the_callers() -> None:
    body = chat_body(tool_call("call_1", "f", "{}"))
    (call,) = parse_tool_calls(body, clock=clock).calls
    assert call.metadata.timestamp is not None
    assert datetime.fromisoformat(call.metadata.timestamp) == clock()
    assert parse_tool_calls(body).calls[0].metadata.timestamp is None


@pytest.mark.requirement("S001-07")
def test_raw_call_keeps_the_arguments_as_they_came() -> None:
    (call,) = parse_tool_calls(chat_body(tool_call("call_1", "f", '{"a":  1.0}'))).calls
    assert isinstance(call.metadata.raw, Call)
    assert (call.metadata.raw.call_id, call.metadata.raw.input) == ("call_1", '{"a":  1.0}')


@pytest.mark.requirement("S001-07")
def test_raw_call_keeps_the_fields_that_nobody_knows() -> None:
    wire: Payload = {**tool_call("call_1", "f", "{}"), "index": 7, "x_vendor": {"trace": "t"}}
    (call,) = parse_tool_calls(chat_body(wire)).calls
    raw = call.metadata.raw
    assert isinstance(raw, Call)
    assert raw.extra is not None
    assert raw.extra.dialect == "chat"
    assert json.loads(bytes(raw.extra.fields["x_vendor"])) == {"trace": "t"}


@pytest.mark.requirement("S001-08", "S001-10")
@pytest.mark.parametrize("dialect", STREAMS)
def test_pieces_are_collected_and_the_call_is_given_once(dialect: str) -> None:
    parser = ToolCallParser()
    given = [parser.feed(item) for item in STREAMS[dialect]]
    given.append(parser.close())
    (call,) = [call for calls in given for call in calls]
    assert call.parameters == {"command": ["echo", "hello"]}
    arguments_end = next(
        n for n, item in enumerate(STREAMS[dialect]) if '\\"hello\\"]}' in json.dumps(item)
    )
    assert not any(given[:arguments_end])


@pytest.mark.requirement("S001-09")
@pytest.mark.parametrize("dialect", ["responses", "messages"])
def test_call_is_given_when_its_protocol_closes_it(dialect: str) -> None:
    parser = ToolCallParser()
    stream = STREAMS[dialect]
    at = next(n for n, item in enumerate(stream) if parser.feed(item))
    assert at < len(stream) - 1
    closing = stream[at]
    kind = closing["type"] if isinstance(closing, dict) else ""
    assert kind in (
        "response.function_call_arguments.done",
        "response.output_item.done",
        "content_block_stop",
    )


@pytest.mark.requirement("S001-09")
def test_chat_call_is_given_with_the_finish_at_the_latest() -> None:
    parser = ToolCallParser()
    given = [len(parser.feed(item)) for item in CHAT_CALL[:-1]]
    assert sum(given) == 1


@pytest.mark.requirement("S001-11", "S001-16")
def test_interleaved_calls_are_each_collected_whole_and_in_order() -> None:
    items = [
        chat_chunk(tool_delta(0, '{"a"', "call_1", "f")),
        chat_chunk(tool_delta(1, '{"b"', "call_2", "g")),
        chat_chunk(tool_delta(0, ":1}")),
        chat_chunk(tool_delta(1, ":2}")),
        chat_chunk({}, "tool_calls"),
    ]
    parsed = parse_tool_calls(items)
    assert [(call.name, call.parameters) for call in parsed.calls] == [
        ("f", {"a": 1}),
        ("g", {"b": 2}),
    ]


@pytest.mark.requirement("S001-16")
def test_calls_of_a_body_keep_their_order() -> None:
    calls = [tool_call(f"call_{number}", f"f{number}", "{}") for number in range(12)]
    assert [call.name for call in parse_tool_calls(chat_body(*calls)).calls] == [
        f"f{n}" for n in range(12)
    ]


@pytest.mark.requirement("S001-12")
def test_what_was_collected_is_released_with_the_call() -> None:
    size, count = 200_000, 20
    parser = ToolCallParser()
    head, *_, tail = messages_stream([])
    parser.feed(head)
    tracemalloc.start()
    try:
        for number in range(count):
            block: Payload = {"type": "tool_use", "id": f"toolu_{number}", "name": "f", "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps({"a": "x" * size})}
            calls = [
                call
                for event in message_block(number, block, [delta])
                for call in parser.feed(event)
            ]
            assert len(str(calls[0].parameters["a"])) == size
            del calls, delta
        assert tracemalloc.get_traced_memory()[0] < 2 * size
    finally:
        tracemalloc.stop()
    parser.feed(tail)


@pytest.mark.requirement("S001-12")
@pytest.mark.parametrize("dialect", STREAMS)
def test_nothing_that_was_collected_is_left_when_the_stream_has_ended(dialect: str) -> None:
    size, count = 50_000, 10
    streams = [
        json.loads(json.dumps(STREAMS[dialect]).replace("hello", f"{number}" + "x" * size))
        for number in range(count)
    ]
    tracemalloc.start()
    try:
        left: list[ToolCallParser] = []
        for stream in streams:
            parser = ToolCallParser()
            delivered = sum(len(parser.feed(item)) for item in stream) + len(parser.close())
            assert delivered == 1
            left.append(parser)
        assert tracemalloc.get_traced_memory()[0] < size * 2
    finally:
        tracemalloc.stop()


@pytest.mark.requirement("S001-13")
def test_two_parsers_share_nothing_and_leave_nothing_behind() -> None:
    one, other = ToolCallParser(), ToolCallParser()
    one.feed(chat_chunk(tool_delta(0, '{"a"', "call_1", "f")))
    other.feed(chat_chunk(tool_delta(0, '{"b"', "call_2", "g")))
    one.feed(chat_chunk(tool_delta(0, ":1}")))
    other.feed(chat_chunk(tool_delta(0, ":2}")))
    end = chat_chunk({}, "tool_calls")
    assert [call.parameters for call in one.feed(end) + one.close()] == [{"a": 1}]
    assert [call.parameters for call in other.feed(end) + other.close()] == [{"b": 2}]
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None


@pytest.mark.requirement("S001-14")
def test_text_and_calls_come_side_by_side() -> None:
    whole = parse_tool_calls(chat_body(tool_call("call_1", "f", "{}"), content="Let me see."))
    streamed = parse_tool_calls(as_sse(MESSAGES_CALL))
    assert whole.text == streamed.text == "Let me see."
    assert [len(whole.calls), len(streamed.calls)] == [1, 1]


@pytest.mark.requirement("S001-15")
def test_text_and_call_pieces_may_alternate() -> None:
    items = [
        chat_chunk({"role": "assistant", "content": "One "}),
        chat_chunk(tool_delta(0, '{"a"', "call_1", "f")),
        chat_chunk({"content": "two."}),
        chat_chunk(tool_delta(0, ":1}")),
        chat_chunk({}, "tool_calls"),
    ]
    parsed = parse_tool_calls(items)
    assert parsed.text == "One two."
    assert [call.parameters for call in parsed.calls] == [{"a": 1}]


@pytest.mark.requirement("S001-17", "S001-18")
@pytest.mark.parametrize("arguments", ['{"a":', "not JSON", "[1]", '"text"', "{'a': 1}"])
def test_bad_arguments_are_an_error_beside_the_call(arguments: str) -> None:
    parsed = parse_tool_calls(chat_body(tool_call("call_1", "f", arguments)))
    (call,) = parsed.calls
    assert (call.id, call.name, call.parameters) == ("call_1", "f", {})
    assert isinstance(call.metadata.error, ToolError)
    assert parsed.errors == (call.metadata.error,)


@pytest.mark.requirement("S001-19")
def test_bad_call_keeps_no_other_back() -> None:
    calls = [
        tool_call("call_1", "f", "{}"),
        tool_call("call_2", "g", "{"),
        tool_call("call_3", "h", '{"a":1}'),
    ]
    parsed = parse_tool_calls(chat_body(*calls))
    assert [(call.name, call.metadata.error is None) for call in parsed.calls] == [
        ("f", True),
        ("g", False),
        ("h", True),
    ]


@pytest.mark.requirement("S001-20")
@pytest.mark.parametrize(
    "bad",
    [
        7,
        "text",
        [],
        {},
        {"id": "call_1", "type": "function"},
        tool_call("call_1", None, "{}"),
        tool_call(None, "f", "{}"),
        tool_call("call_1", 7, "{}"),
        tool_call("call_1", "f", 7),
    ],
)
def test_call_of_the_wrong_structure_is_reported_and_breaks_nothing(bad: object) -> None:
    parsed = parse_tool_calls(chat_body(bad, tool_call("call_2", "g", "{}"), content="Hello"))
    assert parsed.text == "Hello"
    assert [call.name for call in parsed.calls if call.metadata.error is None] == ["g"]
    assert parsed.errors or parsed.problems


@pytest.mark.requirement("S001-21")
@pytest.mark.parametrize("arguments", ['{"password":"hunter2"', '"hunter2"', "hunter2"])
def test_error_does_not_repeat_what_was_in_the_answer(arguments: str) -> None:
    (error,) = parse_tool_calls(
        chat_body(tool_call("call_1", "f", arguments), content="hunter2 too")
    ).errors
    assert "hunter2" not in f"{error} {error!r} {error.__cause__} {error.__context__}"


@pytest.mark.requirement("S001-22")
def test_nothing_in_the_package_evaluates_text() -> None:
    evaluating = {"eval", "exec", "compile", "__import__"}
    sources = [path.read_text(encoding="utf-8") for path in modules().values()]
    for source in sources:
        if any(f"{name}(" in source for name in evaluating):
            called = {
                node.func.id
                for node in ast.walk(ast.parse(source))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            assert not called & evaluating


@pytest.mark.requirement("S001-22")
def test_arguments_that_are_code_are_only_bad_json() -> None:
    (call,) = parse_tool_calls(
        chat_body(tool_call("call_1", "f", "__import__('os').getcwd()"))
    ).calls
    assert call.parameters == {}
    assert call.metadata.error is not None


@pytest.mark.requirement("S001-23")
def test_streamed_and_whole_give_the_same_calls() -> None:
    items = [responses_call("f", ['{"a"', ":1}"]), responses_call("g", ["{}"], place=1)]
    stream = responses_stream([event for events in items for event in events])
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [events[-1]["item"] for events in items],
    }
    streamed, whole = parse_tool_calls(as_sse(stream)), parse_tool_calls(body)
    assert [(call.id, call.name, call.parameters) for call in streamed.calls] == [
        (call.id, call.name, call.parameters) for call in whole.calls
    ]
    assert len(whole.calls) == 2
