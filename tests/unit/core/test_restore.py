"""An answer comes back in the client's own names and kinds, in grammatical order."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from disagreements import find_disagreements
from dragoman.core.aliases import NameMap
from dragoman.core.freeform import wrap_input
from dragoman.core.grammar import is_grammatical
from dragoman.core.restore import Restorer
from dragoman.model.events import (
    Completed,
    Event,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
)
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import Call, CallKind, PartStatus, Text
from dragoman.model.request import Tool
from strategies import events as any_events

TOOLS = (
    Tool(name="search", namespace="mcp__docs__"),
    Tool(name="js", namespace="mcp__node_repl"),
    Tool(name="apply_patch", kind="custom", namespace="editor"),
    Tool(name="exec", kind="custom"),
    Tool(name="weather"),
    Tool(name="web_search", kind="web_search"),
    Tool(name="find_tools", kind="tool_search"),
    Tool(name="docs.get"),
)
NAMES = NameMap.build(TOOLS)


def answer(
    name: str, pieces: list[str], *, status: PartStatus = "completed", kind: CallKind = "function"
) -> list[Event]:
    call = Call(call_id="call_1", name=name, input="".join(pieces), kind=kind, status=status)
    header = structs.replace(call, input="", status="in_progress")
    return [
        Started(),
        PartStarted(0, header),
        *(InputDelta(0, piece) for piece in pieces if piece),
        PartEnded(0, call),
        Finished("tool_calls"),
        Completed(),
    ]


def restore(events: list[Event] | tuple[Event, ...], names: NameMap = NAMES) -> list[Event]:
    restorer = Restorer(names)
    return [out for event in events for out in restorer.feed(event)]


def call_in(events: list[Event]) -> Call:
    (call,) = [event.value for event in events if isinstance(event, PartEnded)]
    assert isinstance(call, Call)
    return call


def deltas_in(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, InputDelta)]


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_gets_its_own_name_back(tool: Tool) -> None:
    events = restore(answer(NAMES.wire(tool.name, tool.namespace), ["{}"]))
    call = call_in(events)
    assert (call.name, call.namespace) == (tool.name, tool.namespace)
    header = next(event.header for event in events if isinstance(event, PartStarted))
    assert header == structs.replace(call, input="", status="in_progress")
    assert is_grammatical(events)


@pytest.mark.parametrize(
    ("spelling", "name", "namespace"),
    [
        ("mcp__node_repl.js", "js", "mcp__node_repl"),
        ("mcp__node_repl__js", "js", "mcp__node_repl"),
        ("js", "js", "mcp__node_repl"),
        ("functions.weather", "weather", None),
        ("functions.js", "js", "mcp__node_repl"),
        ("docs.get", "docs.get", None),
        ("mcp__docs.search", "search", "mcp__docs__"),
    ],
)
def test_spellings_that_models_invent_are_split_again(
    spelling: str, name: str, namespace: str | None
) -> None:
    """M044"""
    call = call_in(restore(answer(spelling, ["{}"])))
    assert (call.name, call.namespace) == (name, namespace)


@pytest.mark.parametrize("name", ["multi_tool_use.parallel", "functions.nothing", "Weather", ""])
def test_a_name_nobody_offered_passes_unchanged(name: str) -> None:
    """M045"""
    events = answer(name, ['{"tool_uses":[]}'])
    assert restore(events) == events


def test_without_tools_nothing_changes() -> None:
    events = answer("f", ['{"input":"x"}'])
    assert restore(events, NameMap()) == events


def test_a_function_call_keeps_its_input_and_its_deltas() -> None:
    events = restore(answer("weather", ['{"input":', ' "x"}']))
    assert deltas_in(events) == ['{"input":', ' "x"}']
    assert call_in(events).input == '{"input": "x"}'


def test_a_custom_call_comes_back_unwrapped_while_it_streams() -> None:
    """M123"""
    events = restore(answer("exec", ['{"input":"*** Begin', ' Patch\\n"}']))
    assert deltas_in(events) == ["*** Begin", " Patch\n"]
    assert call_in(events) == Call(
        call_id="call_1", name="exec", input="*** Begin Patch\n", kind="custom"
    )


def test_a_custom_call_in_a_namespace_is_custom_too() -> None:
    """M124"""
    call = call_in(restore(answer("editor__apply_patch", ['{"input":"x"}'])))
    assert (call.kind, call.name, call.namespace) == ("custom", "apply_patch", "editor")


def test_what_is_known_only_at_the_end_is_emitted_as_a_last_delta() -> None:
    events = restore(answer("exec", ['{"patch":', '"x"}']))
    assert deltas_in(events) == ["x"]
    assert call_in(events).input == "x"
    assert is_grammatical(events)


def test_a_call_that_is_custom_on_the_wire_is_not_unwrapped() -> None:
    events = restore(answer("exec", ['{"input":"x"}'], kind="custom"))
    assert deltas_in(events) == ['{"input":"x"}']
    assert call_in(events).kind == "custom"


def test_a_custom_call_without_input_is_empty() -> None:
    events = restore(answer("exec", ["{}"]))
    assert deltas_in(events) == []
    assert call_in(events).input == ""


def test_other_kinds_that_the_client_runs_come_back() -> None:
    events = restore(answer("find_tools", ['{"query":"x"}']))
    assert call_in(events).kind == "tool_search"
    assert call_in(events).input == '{"query":"x"}'
    assert call_in(restore(answer("web_search", ["{}"]))).kind == "function"


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_a_cut_wrapper_ends_incomplete_with_what_was_decoded(status: PartStatus) -> None:
    events = restore(answer("exec", ['{"input":"*** Be', "gin\\"], status=status))
    assert deltas_in(events) == ["*** Be", "gin"]
    assert call_in(events).input == "*** Begin"
    assert call_in(events).status == "incomplete"
    assert not any(isinstance(event, Finished) and event.reason == "tool_calls" for event in events)


@pytest.mark.parametrize(("other", "reason"), [("weather", "tool_calls"), ("exec", "stop")])
def test_a_cut_call_beside_a_whole_one_does_not_end_the_others_turn(
    other: str, reason: FinishReason
) -> None:
    cut = answer("exec", ['{"input":"x'])[1:4]
    beside = [structs.replace(event, part=1) for event in answer(other, ['{"input":'])[1:4]]
    events = restore([Started(), *cut, *beside, Finished("tool_calls"), Completed()])
    assert events[-2] == Finished(reason)
    assert is_grammatical(events)


def test_a_limit_stays_the_reason_of_a_cut_call() -> None:
    events = [
        structs.replace(event, reason="length") if isinstance(event, Finished) else event
        for event in answer("exec", ['{"input":"x'])
    ]
    assert restore(events)[-2] == Finished("length")


def test_plain_text_of_a_call_that_was_closed_stays_complete() -> None:
    assert call_in(restore(answer("exec", ["ls -l"]))).status == "completed"
    assert call_in(restore(answer("exec", ["ls -l"], status="incomplete"))).status == "incomplete"


def amend(events: list[Event], whole: str) -> list[Event]:
    return [
        PartEnded(event.part, structs.replace(event.value, input=whole), amended=True)
        if isinstance(event, PartEnded) and isinstance(event.value, Call)
        else event
        for event in events
    ]


def test_an_amended_call_is_unwrapped_as_a_whole() -> None:
    events = restore(amend(answer("exec", ['{"input":"a"}']), '{"input":"b"}'))
    assert deltas_in(events) == ["a"]
    assert call_in(events).input == "b"
    assert [event.amended for event in events if isinstance(event, PartEnded)] == [True]


def test_an_amendment_that_only_goes_on_is_none() -> None:
    events = restore(amend(answer("exec", ['{"input":"a"}']), '{"input": "ab"}'))
    assert deltas_in(events) == ["a", "b"]
    assert [event.amended for event in events if isinstance(event, PartEnded)] == [False]


def test_an_amended_function_call_stays_amended() -> None:
    events = restore(amend(answer("js", ["{}"]), "[]"))
    assert [event.amended for event in events if isinstance(event, PartEnded)] == [True]
    assert call_in(events).namespace == "mcp__node_repl"


def test_parallel_calls_that_interleave_are_restored_apart() -> None:
    one = Call(call_id="a", name="exec", input='{"input":"1"}')
    two = Call(call_id="b", name="editor__apply_patch", input='{"input":"2"}')
    events: list[Event] = [
        Started(),
        PartStarted(0, Text(status="in_progress")),
        PartStarted(1, structs.replace(one, input="", status="in_progress")),
        PartStarted(2, structs.replace(two, input="", status="in_progress")),
        InputDelta(1, '{"input":'),
        InputDelta(2, '{"input":"'),
        TextDelta(0, "hm"),
        InputDelta(1, '"1"}'),
        InputDelta(2, '2"}'),
        PartEnded(0, Text(text="hm")),
        PartEnded(2, two),
        PartEnded(1, one),
        Finished("tool_calls"),
        Completed(),
    ]
    restored = restore(events)
    assert is_grammatical(restored)
    assert [event for event in restored if isinstance(event, InputDelta)] == [
        InputDelta(1, "1"),
        InputDelta(2, "2"),
    ]


def test_calls_that_others_run_are_left_alone() -> None:
    call = Call(call_id="a", name="exec", executor="provider", input="{}")
    header = structs.replace(call, input="", status="in_progress")
    events: list[Event] = [
        Started(),
        PartStarted(0, header),
        InputDelta(0, "{}"),
        PartEnded(0, call),
    ]
    assert restore(events) == events


def test_a_native_namespace_is_understood() -> None:
    names = NameMap.build(TOOLS, flatten=False)
    call = Call(call_id="a", name="search", namespace="mcp__docs__", status="in_progress")
    (event,) = Restorer(names).feed(PartStarted(0, call))
    assert event == PartStarted(0, call)


@st.composite
def fragments(draw: st.DrawFn, source: str) -> list[str]:
    edges = sorted({0, len(source), *draw(st.lists(st.integers(0, len(source)), max_size=6))})
    return [source[a:b] for a, b in pairwise(edges)]


@given(st.text(), st.data())
def test_streamed_text_and_the_final_value_agree(text: str, data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([wrap_input(text), json.dumps({"input": text}), text]))
    size = data.draw(st.integers(0, len(source)))
    status: PartStatus = "completed" if size == len(source) else "incomplete"
    events = restore(answer("exec", data.draw(fragments(source[:size])), status=status))
    assert "".join(deltas_in(events)) == call_in(events).input
    assert "" not in deltas_in(events)
    assert is_grammatical(events)


@given(any_events(), st.data())
def test_any_answer_stays_grammatical_and_agrees_with_itself(
    events: tuple[Event, ...], data: st.DataObject
) -> None:
    calls = [
        event.header.name
        for event in events
        if isinstance(event, PartStarted) and isinstance(event.header, Call)
    ]
    kinds = st.sampled_from(list[CallKind](["function", "custom", "tool_search"]))
    spaces = st.sampled_from([None, "ns", "a__"])
    names = NameMap.build(
        [Tool(name=name, kind=data.draw(kinds), namespace=data.draw(spaces)) for name in calls]
    )
    restored = restore(events, names)
    assert is_grammatical(restored)
    assert not find_disagreements(restored)
