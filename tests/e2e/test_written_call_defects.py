"""Defects of other gateways with calls that a model writes as text, each by its number in the collection of defects."""

from collections.abc import Iterator

import pytest

from gateway_harness import DIALECTS
from sdk_clients import DOORS, Got, Offered, conversation
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Thought, Tool

RUN_TESTS = Offered("run_tests", {"type": "object", "properties": {}}, "run the tests")
EXEC = Offered("exec", {"type": "object", "properties": {"cmd": {"type": "string"}}}, "a shell")
WEATHER = Offered("get_weather", {"type": "object", "properties": {"city": {"type": "string"}}}, "")
TOOLS = (RUN_TESTS, EXEC, WEATHER)
EVERY_WAY = [(door, mode) for door in DOORS for mode in ("create", "stream")]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage(upstreams={kind: {"kind": kind} for kind in DIALECTS}) as running:
        yield running


def ask(
    stage: Stage, door: str, mode: str, answer: Answer, tools: tuple[Offered, ...] = TOOLS
) -> Got:
    scene = stage.scene("chat", answer)
    asking = conversation(door, stage.url, scene.model, tools=tools)
    asking.say("Go on.")
    return asking.ask(mode)


@pytest.mark.parametrize(("door", "mode"), EVERY_WAY)
def test_m133_a_written_call_is_a_call_in_every_dialect(stage: Stage, door: str, mode: str) -> None:
    said = "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>"
    got = ask(stage, door, mode, Answer((Said((said[:15], said[15:40], said[40:])),)))
    assert [call.name for call in got.calls] == ["get_weather"]
    assert "<" not in got.text


@pytest.mark.parametrize(("door", "mode"), EVERY_WAY)
def test_m158_the_mark_of_a_structured_call_is_no_text(stage: Stage, door: str, mode: str) -> None:
    answer = Answer((Said(("<function",)), Tool("call_a", "run_tests", ("{}",))))
    got = ask(stage, door, mode, answer)
    assert [call.name for call in got.calls] == ["run_tests"]
    assert got.text == ""


@pytest.mark.parametrize(("door", "mode"), EVERY_WAY)
def test_m159_a_call_whose_opener_began_in_the_reasoning_is_found(
    stage: Stage, door: str, mode: str
) -> None:
    rest = "function=exec><parameter=cmd>ls</parameter></function>"
    got = ask(stage, door, mode, Answer((Thought("<", ""), Said((rest,)))))
    assert [call.name for call in got.calls] == ["exec"]
    assert got.text == ""


@pytest.mark.parametrize(("door", "mode"), EVERY_WAY)
def test_m160_text_is_no_call_where_no_such_tool_was_offered(
    stage: Stage, door: str, mode: str
) -> None:
    said = '<tool_call>{"name":"shell","arguments":{"command":"pwd"}}</tool_call>'
    for tools in ((), TOOLS):
        got = ask(stage, door, mode, Answer((Said((said,)),)), tools)
        assert got.calls == []
        assert got.text == said
