"""Tools of MCP servers run inside the gateway: the client gets one answer, whatever door, upstream and mode."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from codex_app_server import app_server, call, heard, text
from doors import check_chat, check_messages, check_responses, payloads
from dragoman.config.settings import HostedSettings, Route, ServerSettings, Settings
from gateway_harness import DIALECTS, running_gateway, wait_until
from heard import HeardCall, HeardResult, Spoken
from hosted_stage import (
    CALLED,
    STOPPED,
    WEATHER,
    add,
    answers,
    echo,
    hosting_stage,
    last_heard,
    raw_stream,
    said,
    sent,
    tool,
    workshop,
)
from plain_http import ask as ask_plainly
from plain_http import fetch, plain_body
from sdk_clients import DOORS, MODES, Got, Offered, conversation
from stage import Stage
from vendor_wire import Answer, Thought

CHECKS = {"chat": check_chat, "responses": check_responses, "messages": check_messages}
EVERY_WAY = [
    (door, mode, dialect)
    for door, mode, dialect in product(DOORS, ("create", "stream", "helper"), DIALECTS)
    if mode in MODES[door]
]
# The Chat SDK's helper takes only strict tools.
WITH_TOOLS = [way for way in EVERY_WAY if way[:2] != ("chat", "helper")]
EVERY_PAIR = list(product(DOORS, DIALECTS))
BOTH_MODES = [(door, mode) for door in DOORS for mode in ("create", "stream")]
ANOTHER = Offered("workshop__echo", {"type": "object", "properties": {}}, "the client's own")
BREAK = {"chat": "\n\n", "responses": "", "messages": ""}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    routes = (Route(model="bare/*", upstream="chat", mcp=()),)
    with hosting_stage(routes=routes) as running:
        yield running


def check_usage(got: Got, turns: int) -> None:
    """Each answer of the upstreams says that it took 11 tokens, 3 of them cached, and made 7."""
    assert got.usage is not None
    # Messages counts the uncached tokens only.
    whole = got.usage[0] if got.usage[0] != 8 * turns else 11 * turns
    assert (whole, got.usage[1], got.usage[2]) == (11 * turns, 7 * turns, 3 * turns)


@pytest.mark.parametrize(("door", "mode", "dialect"), EVERY_WAY)
def test_a_call_is_run_here_and_the_answer_is_one(
    stage: Stage, door: str, mode: str, dialect: str
) -> None:
    first = answers(said("Let me ", "look."), echo("a saw"))
    scene = stage.scene(dialect, first, answers(said("There is ", "a saw.")))
    got = sent(stage, door, mode, scene)
    assert got.text == f"Let me look.{BREAK[door]}There is a saw."
    assert got.calls == []
    assert got.finish == STOPPED[door]
    check_usage(got, 2)
    if door == "responses":
        (item,) = got.hosted
        assert (item.server_label, item.name, item.output) == ("workshop", "echo", "a saw")
        assert json.loads(item.arguments) == {"text": "a saw"}
        assert item.status == "completed"
        assert item.error is None
        assert item.id.startswith("mcp_")
    asked = last_heard(scene)
    spoken, made, result = asked.turns[-3:]
    assert spoken == Spoken("assistant", "Let me look.")
    assert isinstance(made, HeardCall)
    assert made.name == "workshop__echo"
    assert isinstance(result, HeardResult)
    assert result.text == "a saw"
    assert "workshop__add" in [offered.name for offered in asked.tools]


@pytest.mark.parametrize(("door", "dialect"), EVERY_PAIR)
def test_the_stream_is_one_that_every_client_reads(stage: Stage, door: str, dialect: str) -> None:
    first = answers(said("One."), echo("1"), add(1, 1))
    second = answers(said("Two."), echo("2", "call_3"))
    scene = stage.scene(dialect, first, second, answers(said("Three.")), delivery="frames")
    received = raw_stream(stage, door, scene)
    CHECKS[door](received)
    assert received.count(b"One.") + received.count(b"Two.") + received.count(b"Three.") >= 3


@pytest.mark.parametrize(("door", "mode", "dialect"), WITH_TOOLS)
def test_the_clients_own_call_is_handed_over_beside_one_that_is_run_here(
    stage: Stage, door: str, mode: str, dialect: str
) -> None:
    own = tool("get_weather", {"city": "Oslo"}, "call_own")
    scene = stage.scene(dialect, answers(said("Both."), echo("a saw"), own))
    got = sent(stage, door, mode, scene, (WEATHER,))
    assert [(call.call_id, call.name) for call in got.calls] == [("call_own", "get_weather")]
    assert got.finish == CALLED[door]
    assert got.text == "Both."
    assert len(scene.requests) == 1, "the model waits for the client's result"
    check_usage(got, 1)
    if door == "responses":
        assert [item.output for item in got.hosted] == ["a saw"]


@pytest.mark.parametrize(("door", "dialect"), EVERY_PAIR)
def test_a_mixed_stream_is_one_that_every_client_reads(
    stage: Stage, door: str, dialect: str
) -> None:
    own = tool("get_weather", {"city": "Oslo"}, "call_own")
    scene = stage.scene(dialect, answers(own, echo("a saw")), delivery="frames")
    shapes: dict[str, Any] = {
        "chat": {"type": "function", "function": {"name": WEATHER.name, "parameters": {}}},
        "responses": {"type": "function", "name": WEATHER.name, "parameters": {}, "strict": False},
        "messages": {"name": WEATHER.name, "input_schema": {"type": "object"}},
    }
    CHECKS[door](raw_stream(stage, door, scene, tools=[shapes[door]]))


@pytest.mark.parametrize(("door", "mode"), BOTH_MODES)
def test_two_calls_of_one_answer_have_their_results_in_order(
    stage: Stage, door: str, mode: str
) -> None:
    first = Answer((echo("one"), add(1, 2)), interleaved=True)
    scene = stage.scene("responses", first, answers(said("Done.")))
    got = sent(stage, door, mode, scene)
    assert got.text == "Done."
    assert [result.text for result in last_heard(scene).results] == ["one", "3"]
    if door == "responses":
        assert [item.output for item in got.hosted] == ["one", "3"]


@pytest.mark.parametrize(("door", "mode"), BOTH_MODES)
def test_what_a_tool_says_of_its_failure_reaches_the_model(
    stage: Stage, door: str, mode: str
) -> None:
    scene = stage.scene("chat", answers(tool("workshop__fail", {})), answers(said("It is blunt.")))
    got = sent(stage, door, mode, scene)
    assert got.text == "It is blunt."
    (result,) = last_heard(scene).results
    assert result.is_error
    assert "Error executing tool fail" in result.text
    if door == "responses":
        (item,) = got.hosted
        assert item.status == "failed"
        assert item.output is None
        assert item.error.type == "mcp_tool_execution_error"
        assert "Error executing tool fail" in item.error.content[0]["text"]


@pytest.mark.parametrize(("door", "mode"), BOTH_MODES)
@pytest.mark.parametrize(
    ("name", "arguments"), [("workshop__ecko", '{"text":"x"}'), ("workshop__echo", '{"no":1}')]
)
def test_a_wrong_call_is_put_right_by_the_model(
    stage: Stage, door: str, mode: str, name: str, arguments: str
) -> None:
    wrong = tool(name, json.loads(arguments))
    second = answers(echo("right", "call_2"))
    scene = stage.scene("chat", answers(wrong), second, answers(said("Right.")))
    got = sent(stage, door, mode, scene)
    assert got.text == "Right."
    assert got.calls == []
    results = last_heard(scene).results
    assert [result.is_error for result in results] == [True, False]


@pytest.mark.parametrize(("door", "mode"), BOTH_MODES)
def test_a_tool_of_the_client_keeps_its_name(stage: Stage, door: str, mode: str) -> None:
    first = answers(tool("workshop__echo_2", {"text": "ours"}, "call_1"))
    second = answers(tool("workshop__echo", {}, "call_2"))
    scene = stage.scene("chat", first, second)
    got = sent(stage, door, mode, scene, (ANOTHER,))
    names = [offered.name for offered in last_heard(scene).tools]
    assert names.count("workshop__echo") == 1
    assert [call.name for call in got.calls] == ["workshop__echo"]
    assert [result.text for result in last_heard(scene).results] == ["ours"]
    if door == "responses":
        assert [item.name for item in got.hosted] == ["echo"]


@pytest.mark.parametrize("door", DOORS)
def test_a_model_that_must_call_a_tool_need_not_go_on_for_ever(stage: Stage, door: str) -> None:
    choices = {"chat": "required", "responses": "required", "messages": {"type": "any"}}
    scene = stage.scene(door, answers(echo("x")), answers(said("Done.")))
    got = sent(stage, door, "create", scene, (WEATHER,), tool_choice=choices[door])
    assert got.text == "Done."
    first, second = [json.loads(request.body)["tool_choice"] for request in scene.requests]
    assert first == choices[door]
    assert second in ("auto", {"type": "auto"})


def test_one_call_at_a_time_is_what_every_request_asks_for(stage: Stage) -> None:
    scene = stage.scene("chat", answers(echo("x")), answers(said("Done.")))
    sent(stage, "chat", "create", scene, (WEATHER,), parallel_tool_calls=False)
    asked = [json.loads(request.body)["parallel_tool_calls"] for request in scene.requests]
    assert asked == [False, False]


@pytest.mark.parametrize("door", DOORS)
def test_thoughts_go_back_with_their_seals(stage: Stage, door: str) -> None:
    first = Answer((Thought("Hm.", "sealed"), echo("x")))
    scene = stage.scene("messages", first, answers(said("Done.")))
    got = sent(stage, door, "stream", scene)
    assert got.text == "Done."
    (thought,) = last_heard(scene).thoughts
    assert (thought.text, thought.seal) == ("Hm.", "sealed")


@pytest.mark.parametrize("door", DOORS)
def test_a_route_without_servers_offers_nothing(stage: Stage, door: str) -> None:
    scene = stage.scene("chat", answers(said("Nothing.")), route="bare")
    assert sent(stage, door, "create", scene).text == "Nothing."
    assert "tools" not in scene.heard


def test_several_choices_are_answered_without_tools_of_ours(stage: Stage) -> None:
    scene = stage.scene("chat", answers(said("One.")))
    assert sent(stage, "chat", "create", scene, n=2).text == "One."
    assert "tools" not in scene.heard


def test_a_picture_reaches_the_model(stage: Stage) -> None:
    scene = stage.scene("messages", answers(tool("workshop__picture", {})), answers(said("Seen.")))
    got = sent(stage, "responses", "create", scene)
    assert [item.output for item in got.hosted] == ["[image image/png]"]
    (result,) = last_heard(scene).results
    assert len(result.images) == 1


@pytest.mark.parametrize("door", DOORS)
def test_an_error_of_the_first_request_is_answered_as_ever(stage: Stage, door: str) -> None:
    scene = stage.scene(door)
    answer = ask_plainly(stage.url, door, plain_body(door, scene.model, stream=True))
    assert answer.status_code == 418
    assert "nobody expected this request" in answer.text


CHAT_TOOL: dict[str, Any] = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_contract_of_the_chat_door_holds(stage: Stage, *, is_stream: bool) -> None:
    own = tool("get_weather", {"city": "Oslo"}, "call_own")
    scene = stage.scene("chat", answers(said("Look."), echo("a saw")), answers(own))
    given = [{"type": "function", "function": CHAT_TOOL}]
    body = plain_body("chat", scene.model, stream=is_stream, tools=given)
    answer = ask_plainly(stage.url, "chat", body, {"x-proxy-output-mode": "obsidian-xml"})
    assert answer.headers["x-proxy-output-mode"] == "obsidian-xml"
    assert answer.text.count("<use_tool>") == 1
    assert "<name>get_weather</name>" in answer.text
    assert "workshop" not in answer.text


def test_tools_in_their_older_form_go_with_ours_in_the_newer(stage: Stage) -> None:
    own = tool("get_weather", {"city": "Oslo"}, "call_own")
    scene = stage.scene("chat", answers(echo("a saw")), answers(own))
    body = plain_body("chat", scene.model, functions=[CHAT_TOOL])
    answer = ask_plainly(stage.url, "chat", body).json()
    assert answer["choices"][0]["message"]["function_call"]["name"] == "get_weather"
    assert "functions" not in scene.heard
    assert {"get_weather", "workshop__echo"} <= {each.name for each in last_heard(scene).tools}


def test_a_turn_that_codex_holds_goes_on_with_what_was_run(tmp_path: Path) -> None:
    first = [text("Let me look."), call("call_1", "workshop__echo", '{"text":"a saw"}')]
    settings = Settings(
        server=ServerSettings(shutdown_grace=0.3),
        upstreams={"codex": app_server(tmp_path, [first, [text("A saw.")]])},
        mcp=(workshop(),),
        hosted=HostedSettings(servers=("workshop",)),
    )
    with running_gateway(settings) as gateway:
        asking = conversation("responses", gateway.url, "codex")
        asking.say("What is there?")
        got = asking.ask("stream")
    assert got.text == "Let me look.A saw."
    assert [item.output for item in got.hosted] == ["a saw"]
    assert len(heard(tmp_path, "thread/start")) == 1


def test_calls_are_counted(stage: Stage) -> None:
    scene = stage.scene("chat", answers(echo("x"), tool("workshop__fail", {}, "call_2")))
    scene.parts.append(answers(said("Done.")))
    sent(stage, "chat", "create", scene)

    def is_counted(outcome: str) -> bool:
        page = fetch("GET", f"{stage.url}/metrics").text
        return f'dragoman_hosted_calls_total{{outcome="{outcome}",server="workshop"}}' in page

    wait_until(lambda: is_counted("done") and is_counted("failed"))


def test_the_parts_of_an_mcp_call_come_in_the_vendors_order(stage: Stage) -> None:
    scene = stage.scene("chat", answers(echo("x")), answers(said("Done.")))
    names = [name for name, _ in payloads(raw_stream(stage, "responses", scene))]
    assert names[2:9] == [
        "response.output_item.added",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
        "response.output_item.done",
    ]
