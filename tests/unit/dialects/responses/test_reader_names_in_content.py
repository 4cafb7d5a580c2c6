"""Calls whose names and ids come in the content of a finished item, before, between or after their arguments."""

from collections.abc import Sequence

import pytest

from dragoman.core.call_input import judge
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.translate import StreamTranslator, make_decoder
from dragoman.model.parts import Call
from dragoman.toolcalls import ToolCallAggregator, parse_tool_calls
from responses_help import (
    Json,
    added,
    args_delta,
    args_done,
    calls_in,
    completed,
    created,
    done,
    function_call,
    message,
    part_added,
    read,
    read_answer,
    stream,
    tool,
)

F = {"type": "function_call", "call_id": "call_a", "name": "f"}
G = {"type": "tool_use", "id": "call_b", "tool_name": "g"}
ONE = '{"x": 1}'
TWO = '{"y":"two"}'
WANTED = [("call_a", "f", ONE), ("call_b", "g", TWO)]


def names(*content: Json, kind: str = "message") -> Json:
    return done(message(content, type=kind, id="it_1", status="completed"))


def delta(text: str, **place: object) -> Json:
    return args_delta(text, item_id="it_1") | place


def whole(text: str, **place: object) -> Json:
    return args_done(text, item_id="it_1") | place


def seen(calls: Sequence[Call]) -> list[tuple[str, str, str]]:
    return [(call.call_id, call.name, call.input) for call in calls]


def with_names_at(at: int, events: Sequence[Json], end: Json) -> list[Json]:
    return [created(), *events[:at], end, *events[at:], completed()]


def check_everywhere(events: Sequence[Json], wanted: Sequence[tuple[str, str, str]]) -> None:
    """The calls as each reader of the library returns them."""
    found = calls_in(read_answer(events))
    assert seen(found) == list(wanted)
    assert all(judge(call).executable for call in found)
    aggregator = ToolCallAggregator()
    closed = [record for event in events for record in aggregator.ingest_delta(event).closed]
    for records in (aggregator.snapshot(), sorted(closed, key=lambda one: one.index)):
        assert [(one.id, one.name, one.arguments) for one in records] == list(wanted)
        assert all(one.executable for one in records)
    for source in (stream(events), events):
        parsed = parse_tool_calls(source)  # in the order in which they were complete
        raws = [one.metadata.raw for one in sorted(parsed.calls, key=lambda one: one.id)]
        assert seen([call for call in raws if call is not None]) == list(wanted)
        assert parsed.errors == ()
    for target in ("chat", "messages", "responses"):
        translator = StreamTranslator("responses", target)
        decoder = make_decoder(target)
        steps = decoder.feed(translator.feed(stream(events)) + translator.close())
        steps += decoder.close()
        crossed = fold(event for step in steps for event in step.events)
        assert seen(calls_in(crossed)) == list(wanted)
        assert crossed.completed
        assert crossed.choices[0].finish == "tool_calls"


EVENTS = {
    "deltas and done": [
        *(delta(ONE[:3]), delta(ONE[3:]), whole(ONE)),
        *(delta(TWO[:3]), delta(TWO[3:]), whole(TWO)),
    ],
    "done only": [whole(ONE), whole(TWO)],
    "done without arguments": [
        *(delta(ONE[:3]), delta(ONE[3:]), whole("")),
        *(delta(TWO[:3]), delta(TWO[3:]), whole("")),
    ],
}


@pytest.mark.requirement("S000-28")
@pytest.mark.parametrize("kind", ["message", "function_call", "tool_calls"])
@pytest.mark.parametrize("events", EVENTS.values(), ids=EVENTS)
def test_finished_item_names_its_calls_wherever_it_comes(events: list[Json], kind: str) -> None:
    for at in range(len(events) + 1):
        check_everywhere(with_names_at(at, events, names(F, G, kind=kind)), WANTED)


@pytest.mark.parametrize("events", EVENTS.values(), ids=EVENTS)
@pytest.mark.parametrize("missing", ["item_id", "output_index"])
def test_arguments_find_a_finished_item_by_id_or_by_index(events: list[Json], missing: str) -> None:
    bare = [{key: value for key, value in event.items() if key != missing} for event in events]
    for at in range(len(bare) + 1):
        check_everywhere(with_names_at(at, bare, names(F, G)), WANTED)


@pytest.mark.parametrize("given", [{"arguments": ""}, {"arguments": "{}"}, {"input": {}}])
def test_placeholder_in_the_content_gives_way_to_the_arguments(given: Json) -> None:
    for events in ([delta(ONE[:3]), delta(ONE[3:]), whole(ONE)], [whole(ONE)]):
        check_everywhere([created(), names({**F, **given}), *events, completed()], WANTED[:1])


@pytest.mark.parametrize("given", [{"arguments": ""}, {"arguments": "{}"}, {"input": {}}])
def test_call_that_says_it_has_no_arguments_is_whole_without_more(given: Json) -> None:
    check_everywhere([created(), names({**F, **given}), completed()], [("call_a", "f", "{}")])


def test_arguments_in_the_content_are_not_delivered_again_by_their_events() -> None:
    content = ({**F, "arguments": ONE}, {**G, "arguments": TWO})
    for events in EVENTS.values():
        for at in range(len(events) + 1):
            check_everywhere(with_names_at(at, events, names(*content)), WANTED)


def test_parallel_calls_with_their_ids_may_alternate() -> None:
    one, two = {"call_id": "call_a"}, {"call_id": "call_b"}
    events = [
        names(F, G),
        *(delta(ONE[:3], **one), delta(TWO[:4], **two), delta(ONE[3:], **one)),
        *(delta(TWO[4:], **two), whole(TWO, **two), whole(ONE, **one)),
    ]
    check_everywhere([created(), *events, completed()], WANTED)


def test_two_items_name_one_call_each() -> None:
    other = done(message([G], id="it_2", status="completed"), 1)
    events = [
        *(names(F), delta(ONE[:3]), other, args_delta(TWO, 1, "it_2"), delta(ONE[3:])),
        *(args_done(TWO, 1, "it_2"), whole(ONE)),
    ]
    check_everywhere([created(), *events, completed()], WANTED)


@pytest.mark.parametrize("fields", [{"arguments": ""}, {}])
def test_call_item_that_ends_before_its_arguments_takes_them(fields: Json) -> None:
    item = {key: value for key, value in function_call().items() if key != "arguments"} | fields
    events = [added(function_call()), done(item), args_delta(ONE[:3]), args_delta(ONE[3:])]
    for tail in ([], [args_done(ONE)]):
        check_everywhere([created(), *events, *tail, completed()], WANTED[:1])


def test_order_of_opening_decides_between_parts_that_wait() -> None:
    first, second = part_added(F, 0, "it_1"), part_added(G, 1, "it_1")
    together = [first, second, delta(ONE), whole(ONE), delta(TWO), whole(TWO)]
    one_by_one = [first, delta(ONE), second, delta(TWO)]
    for events in (together, one_by_one):
        check_everywhere([created(), *events, completed()], WANTED)


@pytest.mark.parametrize("repeated", [[], [F]])
def test_final_output_may_bring_the_arguments(repeated: list[Json]) -> None:
    item = message([{**F, "arguments": ONE}], id="it_1", status="completed")
    events = [created(), names(F), *map(names, repeated), completed([item])]
    check_everywhere(events, WANTED[:1])


@pytest.mark.parametrize("item", [names(F), done(function_call(id="it_1") | {"arguments": None})])
def test_call_whose_arguments_never_come_fails_the_answer(item: Json) -> None:
    events = [created(), item, completed()]
    result, kinds = read(events)
    outcome = fold(result)
    (call,) = calls_in(outcome)
    assert not judge(call).executable
    assert call.input == ""
    assert outcome.error is not None
    assert outcome.error.kind == "protocol"
    assert "'f'" in outcome.error.message
    assert "missing_input" in kinds
    aggregator = ToolCallAggregator()
    for event in events:
        aggregator.ingest_delta(event)
    assert [record.executable for record in aggregator.snapshot()] == [False]
    (parsed,) = parse_tool_calls(events).calls
    assert parsed.metadata.error is not None


@pytest.mark.parametrize(
    "events",
    [
        [names({**F, "arguments": ONE}), delta(TWO), whole(TWO)],
        [names({**F, "arguments": ONE}), delta(TWO)],
        [added(function_call()), done(function_call(arguments="{}")), args_done(ONE)],
        [added(function_call()), done(function_call(arguments="{}")), args_delta(ONE)],
    ],
)
def test_other_arguments_after_the_end_fail_the_answer(events: list[Json]) -> None:
    outcome = read_answer([created(), *events, completed()])
    assert len(calls_in(outcome)) == 1
    assert outcome.error is not None
    assert "another" in outcome.error.message


def test_names_in_content_beat_the_offered_tools() -> None:
    context = DecodeContext(tools=(tool("only", x="integer"),))
    events = [delta(ONE), whole(ONE)]
    for at in range(3):
        found = calls_in(read_answer(with_names_at(at, events, names(F)), context))
        assert seen(found) == WANTED[:1]
