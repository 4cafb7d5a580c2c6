"""Calls that were run in the gateway, in the conversation that goes on after them."""

from collections.abc import Iterator
from typing import Any

import pytest

from background_runs import ended, queued
from doors import check_responses
from dragoman.config.settings import Route, StoreSettings
from dragoman.engine.compaction import PREFACE
from gateway_harness import DIALECTS
from heard import HeardCall, HeardResult, Spoken
from hosted_stage import WEATHER, add, answers, echo, hosting_stage, last_heard, said, tool
from plain_http import ask as ask_plainly
from plain_http import fetch, plain_body
from sdk_clients import conversation, openai_client
from stage import Scene, Stage
from websocket_client import socket_client

FUNCTION: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
PROFILE = {"x-dragoman-profile": "required-action"}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    routes = tuple(Route(model=f"bare-{kind}/*", upstream=kind, mcp=()) for kind in DIALECTS)
    with hosting_stage(routes=routes, store=StoreSettings(url="memory:")) as running:
        yield running


def created(stage: Stage, scene: Scene, **more: Any) -> Any:
    given: dict[str, Any] = {"model": scene.model, "input": "What is there?", **more}
    return openai_client(stage.url).responses.create(**given)


def spoken_turns(scene: Scene) -> list[tuple[str, str]]:
    """Return a summary of the upstream's last request."""
    lines: list[tuple[str, str]] = []
    for turn in last_heard(scene).turns:
        if isinstance(turn, Spoken):
            lines.append((turn.role, turn.text))
        elif isinstance(turn, HeardCall):
            lines.append(("call", turn.name))
        elif isinstance(turn, HeardResult):
            lines.append(("result", turn.text))
    return lines


WHOLE = [
    ("user", "What is there?"),
    ("assistant", "Look."),
    ("call", "workshop__echo"),
    ("result", "a saw"),
    ("assistant", "A saw."),
    ("user", "And more?"),
]


@pytest.mark.parametrize("route", ["", "bare-"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_items_that_come_back_are_calls_with_their_results(
    stage: Stage, dialect: str, route: str
) -> None:
    first = answers(said("Look."), echo("a saw"))
    scene = stage.scene(dialect, first, answers(said("A saw.")))
    response = created(stage, scene)
    goes_on = stage.scene(dialect, answers(said("No.")), route=f"{route}{dialect}")
    history: list[Any] = [{"role": "user", "content": "What is there?"}, *response.output]
    history.append({"role": "user", "content": "And more?"})
    created(stage, goes_on, input=history)
    assert spoken_turns(goes_on) == WHOLE


@pytest.mark.parametrize("dialect", DIALECTS)
def test_websocket_remembers_calls_with_their_results(stage: Stage, dialect: str) -> None:
    first = answers(said("Look."), echo("a saw"))
    scene = stage.scene(dialect, first, answers(said("A saw.")), answers(said("No.")))
    with socket_client(stage.url, scene.model) as client:
        previous = client.answer(input="What is there?")["id"]
        client.answer(input="And more?", previous_response_id=previous)
    assert spoken_turns(scene) == WHOLE


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hosted_tools_run_in_the_background(stage: Stage, dialect: str) -> None:
    first = answers(said("Look."), echo("a saw"))
    scene = stage.scene(dialect, first, answers(said("A saw.")), answers(said("No.")))
    path = queued(stage, scene, input="What is there?")
    response = ended(path)
    assert response["status"] == "completed"
    kinds = [item["type"] for item in response["output"]]
    assert kinds[-3:] == ["message", "mcp_call", "message"]
    stream = fetch("GET", f"{path}?stream=true").content
    check_responses(stream)
    assert stream.index(b"event: response.queued") < stream.index(b"event: response.in_progress")
    again = queued(stage, scene, input="And more?", previous_response_id=response["id"])
    assert ended(again)["status"] == "completed"
    assert spoken_turns(scene) == WHOLE


@pytest.mark.parametrize("dialect", DIALECTS)
def test_items_without_ids_are_known_by_their_server(stage: Stage, dialect: str) -> None:
    item = {"type": "mcp_call", "server_label": "workshop", "name": "echo"}
    item |= {"arguments": '{"text":"a saw"}', "output": "a saw"}
    scene = stage.scene(dialect, answers(said("No.")))
    created(stage, scene, input=[item, {"role": "user", "content": "And more?"}])
    found = [turn for turn in spoken_turns(scene) if turn[0] in ("call", "result")]
    assert found == [("call", "workshop__echo"), ("result", "a saw")]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_response_is_continued_with_all_that_was_run(
    stage: Stage, dialect: str, *, is_stream: bool
) -> None:
    first = answers(said("Look."), echo("a saw"))
    scene = stage.scene(dialect, first, answers(said("A saw.")))
    if is_stream:
        response = list(created(stage, scene, stream=True))[-1].response
    else:
        response = created(stage, scene)
    goes_on = stage.scene(dialect, answers(said("No.")))
    created(stage, goes_on, input="And more?", previous_response_id=response.id)
    assert spoken_turns(goes_on) == WHOLE
    kept = openai_client(stage.url).responses.retrieve(response.id)
    assert [item.type for item in kept.output] == ["message", "mcp_call", "message"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_mixed_response_goes_on_when_the_client_has_its_result(
    stage: Stage, dialect: str
) -> None:
    own = tool("get_weather", {"city": "Oslo"}, "call_own")
    scene = stage.scene(dialect, answers(echo("a saw"), own))
    response = created(stage, scene, tools=[FUNCTION])
    goes_on = stage.scene(dialect, answers(add(1, 2)), answers(said("Done.")))
    output = {"type": "function_call_output", "call_id": "call_own", "output": "rain"}
    more = {"previous_response_id": response.id, "tools": [FUNCTION]}
    last = created(stage, goes_on, input=[output], **more)
    assert last.output_text == "Done."
    found = spoken_turns(goes_on)
    assert found[1:5] == [
        ("call", "workshop__echo"),
        ("call", "get_weather"),
        ("result", "a saw"),
        ("result", "rain"),
    ]
    assert found[5:] == [("call", "workshop__add"), ("result", "3")]


def test_outputs_are_submitted_for_the_clients_calls_only(stage: Stage) -> None:
    own = tool("get_weather", {"city": "Oslo"}, "call_own")
    scene = stage.scene("chat", answers(echo("a saw"), own), answers(said("Rain.")))
    body = plain_body("responses", scene.model, tools=[FUNCTION])
    answer = ask_plainly(stage.url, "responses", body, PROFILE).json()
    waiting = answer["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert [call["id"] for call in waiting] == ["call_own"]
    address = f"{stage.url}/v1/responses/{answer['id']}/submit_tool_outputs"
    submitted = b'{"tool_outputs":[{"tool_call_id":"call_own","output":"rain"}]}'
    last = fetch("POST", address, {"content-type": "application/json"}, submitted)
    assert last.status_code == 200, last.text
    assert ("result", "a saw") in spoken_turns(scene)
    assert ("result", "rain") in spoken_turns(scene)


def test_the_required_action_profile_is_kept(stage: Stage) -> None:
    own = tool("get_weather", {"city": "Oslo"}, "call_own")
    scene = stage.scene("chat", answers(echo("a saw"), own))
    body = plain_body("responses", scene.model, tools=[FUNCTION], stream=True)
    answer = ask_plainly(stage.url, "responses", body, PROFILE)
    sent = bytes(answer.content)
    assert b"response.required_action" in sent
    assert b'"status":"incomplete"' in sent


def test_nothing_is_run_twice_by_a_stored_stream(stage: Stage) -> None:
    scene = stage.scene("chat", answers(echo("a saw")), answers(said("A saw.")))
    body = plain_body("responses", scene.model, stream=True)
    first = ask_plainly(stage.url, "responses", body)
    check_responses(bytes(first.content))
    response_id = first.text.split('"id":"')[1].split('"')[0]
    again = fetch("GET", f"{stage.url}/v1/responses/{response_id}?stream=true")
    assert again.content == first.content
    assert len(scene.requests) == 2


def test_a_response_that_nobody_knows_is_refused(stage: Stage) -> None:
    scene = stage.scene("chat", answers(said("No.")))
    body = plain_body("responses", scene.model, previous_response_id="resp_unknown")
    answer = ask_plainly(stage.url, "responses", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "previous_response_not_found"
    assert not scene.requests


@pytest.mark.parametrize("door", ["chat", "messages"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_run_is_remembered_for_clients_that_cannot_carry_it(
    stage: Stage, door: str, dialect: str
) -> None:
    own = tool("get_weather", {"city": "Oslo"}, "call_own")
    scene = stage.scene(
        dialect,
        answers(said("Both."), echo("a saw"), own),
        answers(said("Rain."), echo("more", "call_3")),
        answers(said("That is all.")),
    )
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("What is there?")
    got = asking.ask("stream")
    asking.answer(got.calls[0], "rain")
    assert asking.ask("stream").text.endswith("That is all.")
    scene.parts.append(answers(said("No.")))
    asking.say("And more?")
    asking.ask("create")
    assert spoken_turns(scene) == [
        ("user", "What is there?"),
        ("assistant", "Both."),
        ("call", "workshop__echo"),
        ("call", "get_weather"),
        ("result", "a saw"),
        ("result", "rain"),
        ("assistant", "Rain."),
        ("call", "workshop__echo"),
        ("result", "more"),
        ("assistant", "That is all."),
        ("user", "And more?"),
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_with_hosted_calls_is_compacted_without_running_any(
    stage: Stage, dialect: str
) -> None:
    scene = stage.scene(
        dialect,
        answers(said("Look."), echo("a saw")),
        answers(said("A saw.")),
        answers(said("There is a saw.")),
        answers(said("No.")),
    )
    response = created(stage, scene)
    trigger: list[Any] = [{"type": "compaction_trigger"}]
    compacted = created(stage, scene, input=trigger, previous_response_id=response.id)
    assert [item.type for item in compacted.output] == ["compaction"]
    assert ("result", "a saw") in spoken_turns(scene)
    created(stage, scene, input="And more?", previous_response_id=compacted.id)
    assert spoken_turns(scene) == [
        ("user", "What is there?"),
        ("user", f"{PREFACE}There is a saw."),
        ("user", "And more?"),
    ]
