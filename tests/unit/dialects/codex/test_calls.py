"""One call, seen through several messages."""

import pytest

from codex_reading import (
    completed,
    note,
    raw_item,
    read,
    read_all,
    read_message,
    started,
    turn_completed,
)
from dragoman._json import raw
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.codex import CodexReader
from dragoman.model.events import Event, Failed, InputDelta, PartEnded, PartStarted, Started
from dragoman.model.parts import Call, Opaque, Result, Text
from dragoman.model.request import Tool

ARGUMENTS = {"city": "Paris"}
ITEM = started("dynamicToolCall", "c", tool="f", arguments=ARGUMENTS)
REQUEST = {
    "id": 0,
    "method": "item/tool/call",
    "params": {"turnId": "u", "callId": "c", "tool": "f", "arguments": ARGUMENTS},
}
ANSWERED = completed("dynamicToolCall", "c", tool="f", arguments=ARGUMENTS, status="completed")
RAW = raw_item("function_call", id="fc", call_id="c", name="f", arguments='{"city":  "Paris"}')
OUTPUT = raw_item("function_call_output", call_id="c", output="Sunny")


def calls(events: list[Event]) -> list[Call]:
    return [
        event.value
        for event in events
        if isinstance(event, PartEnded) and isinstance(event.value, Call)
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [ITEM],
        [REQUEST],
        [ANSWERED],
        [ITEM, REQUEST, ANSWERED, OUTPUT],
        [REQUEST, ITEM, ANSWERED],
        [ITEM, RAW, REQUEST, OUTPUT, ANSWERED],
        [ITEM, ITEM, REQUEST, REQUEST, ANSWERED, ANSWERED][:5],
    ],
)
def test_call_is_emitted_once_whichever_message_shows_it(
    messages: list[dict[str, object]],
) -> None:
    events, found = read(*messages, turn_completed("interrupted"))
    assert calls(events) == [Call(call_id="c", name="f", input='{"city":"Paris"}')]
    assert found == []


def test_call_comes_whole_and_closed() -> None:
    reader = CodexReader()
    assert read_message(reader, ITEM) == (
        Started("u"),
        PartStarted(0, Call(call_id="c", name="f", status="in_progress")),
        InputDelta(0, '{"city":"Paris"}'),
        PartEnded(0, Call(call_id="c", name="f", input='{"city":"Paris"}')),
    )


def test_models_own_text_is_kept_when_it_comes_first() -> None:
    events, _ = read(RAW, ITEM, REQUEST, ANSWERED, OUTPUT, turn_completed())
    assert calls(events) == [Call(call_id="c", name="f", input='{"city":  "Paris"}', item_id="fc")]


def test_bytes_of_arguments_are_kept_as_they_stand() -> None:
    reader = CodexReader()
    line = b'{"method":"item/started","params":{"item":{"type":"dynamicToolCall","id":"c","tool":"f","arguments":{"n": 1.0, "n": 12345678901234567890}}}}'
    assert [call.input for call in calls(list(reader.read_line(line)))] == [
        '{"n": 1.0, "n": 12345678901234567890}'
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (None, "{}"),
        ('{"a": 1}', '{"a": 1}'),
        ("[1]", '"[1]"'),
        ("{broken", '"{broken"'),
        ([1], "[1]"),
    ],
)
def test_arguments_become_source_text(arguments: object, text: str) -> None:
    events, _ = read(started("dynamicToolCall", "c", tool="f", arguments=arguments))
    assert [call.input for call in calls(events)] == [text]


@pytest.mark.parametrize(
    ("arguments", "text"), [(None, "{}"), ({"a": 1}, '{"a":1}'), ("[1]", "[1]")]
)
def test_raw_arguments_become_source_text(arguments: object, text: str) -> None:
    events, found = read(raw_item("function_call", call_id="c", name="f", arguments=arguments))
    assert [(call.input, call.executor) for call in calls(events)] == [(text, "client")]
    assert [kind for kind, _ in found] == ["cut_stream"]


def test_id_used_again_after_its_answer_is_another_call() -> None:
    again = started("dynamicToolCall", "c", tool="f", arguments={"city": "Rome"})
    events, found = read(ITEM, REQUEST, ANSWERED, again, REQUEST, ANSWERED, turn_completed())
    assert [call.input for call in calls(events)] == ['{"city":"Paris"}', '{"city":"Rome"}']
    assert [kind for kind, _ in found] == ["repeated_id"]


def test_raw_item_that_comes_after_the_answer_is_the_same_call() -> None:
    events, found = read(ITEM, ANSWERED, RAW, turn_completed())
    assert len(calls(events)) == 1
    assert found == []


def test_turn_that_ends_with_an_unanswered_call_asks_for_it() -> None:
    events, _ = read(ITEM, turn_completed())
    assert fold(events).choices[0].finish == "tool_calls"
    events, _ = read(ITEM, ANSWERED, turn_completed())
    assert fold(events).choices[0].finish == "stop"


def test_missing_id_is_made() -> None:
    events, found = read(started("dynamicToolCall", "", tool="f", arguments={}), turn_completed())
    (call,) = calls(events)
    assert call.call_id.startswith("call_")
    assert [kind for kind, _ in found] == ["missing_id"]
    reader = CodexReader(DecodeContext(seed="s"))
    read_all(reader, [started("dynamicToolCall", "", tool="f")] * 2)
    assert [kind for kind, _ in reader.problems] == ["missing_id", "missing_id"]


def test_missing_name_is_the_only_tool() -> None:
    reader = CodexReader(DecodeContext(tools=(Tool(name="f"),)))
    events = read_all(reader, [started("dynamicToolCall", "c", arguments={})])
    assert [call.name for call in calls(events)] == ["f"]
    assert [kind for kind, _ in reader.problems] == ["missing_name"]


@pytest.mark.parametrize(
    "message",
    [
        started("dynamicToolCall", "c", arguments={}),
        note("item/tool/call", callId="c", arguments={}),
        raw_item("function_call", call_id="c", arguments="{}"),
    ],
)
def test_name_that_cannot_be_determined_fails_the_stream(message: dict[str, object]) -> None:
    reader = CodexReader()
    events = read_all(reader, [message])
    assert isinstance(events[-1], Failed)
    assert events[-1].error.kind == "protocol"
    assert reader.over
    assert [kind for kind, _ in reader.problems] == ["nameless_call"]


def test_call_of_a_tool_that_was_not_offered_is_codexs_own() -> None:
    context = DecodeContext(tools=(Tool(name="f"), Tool(name="g", namespace="wx")))
    reader = CodexReader(context)
    events = read_all(
        reader,
        [
            RAW,
            raw_item("function_call", call_id="d", name="g", namespace="wx", arguments="{}"),
            raw_item("function_call", call_id="e", name="f", namespace="functions", arguments="{}"),
            raw_item("function_call", call_id="x", name="exec_command", arguments="{}"),
            raw_item("function_call_output", call_id="x", id="fco", output="ok"),
            raw_item("function_call_output", call_id="x", id="fco", output="ok"),
        ],
    )
    assert [(call.name, call.executor) for call in calls(events)] == [
        ("f", "client"),
        ("g", "client"),
        ("f", "client"),
        ("exec_command", "provider"),
    ]
    results = [
        event.value
        for event in events
        if isinstance(event, PartEnded) and isinstance(event.value, Result)
    ]
    assert results == [
        Result(call_id="x", content=(Text(text="ok"),), executor="provider", item_id="fco")
    ]


def test_arguments_that_are_no_json_are_codexs_own_affair() -> None:
    events, found = read(
        raw_item("function_call", call_id="c", name="f", arguments='{"city": "Par'),
        turn_completed(),
    )
    assert [call.executor for call in calls(events)] == ["provider"]
    assert fold(events).choices[0].finish == "stop"
    assert [kind for kind, _ in found] == ["invalid_arguments"]


def test_freeform_calls_are_codexs_own() -> None:
    image = {"type": "input_image", "image_url": "data:"}
    events, _ = read(
        raw_item("custom_tool_call", call_id="c", name="apply_patch", input="*** Begin"),
        raw_item(
            "custom_tool_call_output",
            call_id="c",
            output=[{"type": "input_text", "text": "ok"}, image, 7],
        ),
        turn_completed(),
    )
    call, result = fold(events).choices[0].parts
    assert call == Call(
        call_id="c", name="apply_patch", input="*** Begin", kind="custom", executor="provider"
    )
    assert isinstance(result, Result)
    assert result.kind == "custom"
    text, shown, other = result.content
    assert text == Text(text="ok")
    assert isinstance(shown, Opaque)
    assert (shown.type, bytes(shown.raw)) == ("input_image", bytes(raw(image)))
    assert isinstance(other, Opaque)
    assert bytes(other.raw) == b"7"


def test_output_without_content_is_an_empty_result() -> None:
    events, _ = read(
        raw_item("custom_tool_call", call_id="c", name="p", input=""),
        raw_item("custom_tool_call_output", call_id="c", output=None),
        turn_completed(),
    )
    assert fold(events).choices[0].parts[1] == Result(
        call_id="c", kind="custom", executor="provider"
    )
