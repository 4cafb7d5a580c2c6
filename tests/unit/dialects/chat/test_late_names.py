"""A call's name that comes behind its arguments, beside an empty fragment of them."""

import json

import pytest

from corpus_checks import calls_of
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.translate import StreamTranslator, make_decoder
from dragoman.model.events import PartStarted
from dragoman.model.request import Tool
from dragoman.toolcalls import ToolCallAggregator, parse_tool_calls

Entry = dict[str, object]

FIRST: Entry = {"index": 0, "id": "call_a", "type": "function", "function": {"arguments": '{"x"'}}
SECOND: Entry = {"index": 0, "function": {"arguments": ":1}"}}
NAMES: list[Entry] = [
    {"index": 0, "function": {"arguments": "", "name": "f"}},
    {"index": 0, "function": {"name": "f"}},
    {"index": 0, "id": "call_a", "function": {"arguments": "", "name": "f"}},
]
NO_TOOLS = DecodeContext()
TOOLS = DecodeContext(tools=(Tool(name="f"), Tool(name="g")))


def chunk(*entries: Entry, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"tool_calls": list(entries)}, "finish_reason": finish}
    if finish:
        choice["delta"] = {}
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**data, "choices": [choice]}).encode() + b"\n\n"


@pytest.mark.parametrize("context", [NO_TOOLS, TOOLS])
@pytest.mark.parametrize("name", NAMES)
def test_name_behind_the_arguments_announces_the_call_at_once(
    name: Entry, context: DecodeContext
) -> None:
    decoder = make_decoder("chat", context)
    before = decoder.feed(chunk(FIRST) + chunk(SECOND))
    assert not any(isinstance(event, PartStarted) for step in before for event in step.events)
    (step,) = decoder.feed(chunk(name))
    assert any(isinstance(event, PartStarted) for event in step.events)


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
@pytest.mark.parametrize("name", NAMES)
def test_call_with_its_name_last_reaches_every_client(name: Entry, target: str) -> None:
    data = chunk(FIRST) + chunk(SECOND) + chunk(name) + chunk(finish="tool_calls")
    translator = StreamTranslator("chat", target)
    decoder = make_decoder(target)
    steps = decoder.feed(translator.feed(data + b"data: [DONE]\n\n") + translator.close())
    (call,) = calls_of(fold(event for step in steps + decoder.close() for event in step.events))
    assert (call.call_id, call.name, call.input) == ("call_a", "f", '{"x":1}')
    assert call.status == "completed"


@pytest.mark.parametrize("name", NAMES)
def test_collectors_have_a_call_with_its_name_last(name: Entry) -> None:
    aggregator = ToolCallAggregator()
    for entry in (FIRST, SECOND):
        assert not aggregator.ingest_delta({"tool_calls": [entry]}).updated
    (delta,) = aggregator.ingest_delta({"tool_calls": [name]}).deltas
    assert (delta.id, delta.name, delta.arguments) == ("call_a", "f", '{"x":1}')
    end: Entry = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    (record,) = aggregator.ingest_delta({"choices": [end]}).closed
    assert record.executable
    assert (record.name, record.arguments) == ("f", '{"x":1}')
    data = chunk(FIRST) + chunk(SECOND) + chunk(name) + chunk(finish="tool_calls")
    (parsed,) = parse_tool_calls(data).calls
    assert (parsed.id, parsed.name, parsed.parameters) == ("call_a", "f", {"x": 1})
    assert parsed.metadata.error is None


def test_name_behind_the_arguments_may_still_grow_towards_an_offered_tool() -> None:
    context = DecodeContext(tools=(Tool(name="get_weather"),))
    pieces: list[Entry] = [
        {"index": 0, "function": {"arguments": "", "name": part}} for part in ("get_", "weather")
    ]
    data = b"".join(map(chunk, (FIRST, SECOND, *pieces))) + chunk(finish="tool_calls")
    decoder = make_decoder("chat", context)
    steps = decoder.feed(data) + decoder.close()
    (call,) = calls_of(fold(event for step in steps for event in step.events))
    assert call.name == "get_weather"
