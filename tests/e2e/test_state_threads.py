"""Anthropic's message threads, kept by the gateway over every upstream: the SDK's tool runners never fall back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import beta_tool

from dragoman.config.settings import StoreSettings
from gateway_harness import DIALECTS
from heard import HeardCall, HeardResult, Spoken, hear
from plain_http import ask
from sdk_clients import anthropic_client
from stage import Scene, Stage, running_stage
from vendor_wire import Answer, Said, Thought, Tool

CALL = Tool("toolu_1", "get_weather", ('{"city":', '"Paris"}'))
SECOND = Tool("toolu_2", "get_weather", ('{"city":"Rome"}',))
DONE = Answer((Said(("It is ", "sunny.")),))
SYSTEM = "You know the weather."
TOOLS: list[Any] = [{"name": "get_weather", "description": "d", "input_schema": {"type": "object"}}]
USER = [{"role": "user", "content": "How is the weather?"}]
BETA = {"anthropic-beta": "message-threads-2026-08-12"}

dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
streams = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


@beta_tool
def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: where
    """
    return f"{city}: sunny"


def heard_threads(scene: Scene) -> list[Any]:
    """Return the `thread` field of each request that the upstream got; always None."""
    return [json.loads(request.body).get("thread") for request in scene.requests]


@streams
@dialects
def test_the_tool_runner_of_the_sdk_goes_on_by_threads(
    stage: Stage, dialect: str, stream: bool
) -> None:
    scene = stage.scene(dialect, Answer((Said(("Paris.",)), CALL)), Answer((SECOND,)), DONE)
    runner = anthropic_client(stage.url).beta.messages.tool_runner(
        model=scene.model,
        max_tokens=500,
        system=SYSTEM,
        tools=[get_weather],
        messages=USER,
        stream=stream,
    )
    last: Any = None
    for step in runner:
        last = step.get_final_message() if stream else step
    assert last.content[0].text == "It is sunny."
    # It threads still: nothing made it send the whole history.
    assert runner._thread._state.previous_message_id == last.id
    assert len(scene.requests) == 3
    assert heard_threads(scene) == [None, None, None]
    heard = hear(dialect, scene.requests[2].body)
    assert Spoken("user", "How is the weather?") in heard.turns
    assert [turn.call_id for turn in heard.turns if isinstance(turn, HeardCall)] == [
        "toolu_1",
        "toolu_2",
    ]
    assert [turn for turn in heard.turns if isinstance(turn, HeardResult)] == [
        HeardResult("toolu_1", "Paris: sunny"),
        HeardResult("toolu_2", "Rome: sunny"),
    ]
    assert [tool.name for tool in heard.tools] == ["get_weather"]
    assert SYSTEM.encode() in scene.requests[2].body


@pytest.mark.parametrize("call_id", ["functions.get_weather:0", "call|" + "x" * 70])
@streams
@dialects
def test_calls_whose_ids_need_an_alias_get_their_results_in_a_thread(
    stage: Stage, dialect: str, stream: bool, call_id: str
) -> None:
    """Kimi's ids have dots and colons, which Messages forbids; some ids are too long for it."""
    first = Tool(call_id, "get_weather", ('{"city":"Paris"}',))
    second = Tool(f"{call_id}1", "get_weather", ('{"city":"Rome"}',))
    scene = stage.scene(dialect, Answer((Said(("Both.",)), first, second)), DONE)
    runner = anthropic_client(stage.url).beta.messages.tool_runner(
        model=scene.model, max_tokens=500, tools=[get_weather], messages=USER, stream=stream
    )
    for step in runner:
        if stream:
            step.get_final_message()
    assert len(scene.requests) == 2
    heard = hear(dialect, scene.requests[1].body)
    ids = [call.call_id for call in heard.calls]
    assert len(set(ids)) == 2
    assert heard.results == [
        HeardResult(ids[0], "Paris: sunny"),
        HeardResult(ids[1], "Rome: sunny"),
    ]
    if dialect == "chat" and len(call_id) < 40:
        assert ids == [call_id, f"{call_id}1"]


@dialects
def test_a_thread_goes_on_after_a_restart_with_the_ids_of_the_upstream(
    dialect: str, tmp_path: Path
) -> None:
    store = StoreSettings(url=f"sqlite://{tmp_path / 'store.db'}")
    call = Tool("functions.get_weather:0", "get_weather", ('{"city":"Paris"}',))
    with running_stage(store=store) as stage:
        scene = stage.scene(dialect, Answer((call,)))
        first = create(stage, scene, tools=TOOLS, thread={"type": "create"}).json()
    (block,) = first["content"]
    with running_stage(store=store) as stage:
        scene = stage.scene(dialect, DONE)
        messages = [{**result("sunny")[0]["content"][0], "tool_use_id": block["id"]}]
        again = [{"role": "user", "content": messages}]
        second = create(stage, scene, messages=again, thread=follow(first["id"]))
        assert second.status_code == 200, second.content
    heard = hear(dialect, scene.requests[0].body)
    (call_id,) = [call.call_id for call in heard.calls]
    assert heard.results == [HeardResult(call_id, "sunny")]
    # Only Messages forbids the id itself.
    assert (call_id == call.call_id) == (dialect != "messages")


@dialects
def test_signed_thinking_stays_in_a_thread(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, Answer((Thought("Hm.", "c2VhbA=="), CALL)), DONE)
    runner = anthropic_client(stage.url).beta.messages.tool_runner(
        model=scene.model,
        max_tokens=5000,
        thinking={"type": "enabled", "budget_tokens": 1024},
        tools=[get_weather],
        messages=USER,
    )
    runner.until_done()
    thoughts = hear(dialect, scene.requests[1].body).thoughts
    assert [thought.text for thought in thoughts] == ["Hm."]
    if dialect != "chat":
        assert thoughts[0].seal == "c2VhbA=="


def create(stage: Stage, scene: Scene, **more: Any) -> Any:
    body = {"model": scene.model, "max_tokens": 99, "messages": USER, **more}
    return ask(stage.url, "messages", body, BETA)


def follow(message_id: str) -> dict[str, str]:
    return {"type": "continue", "previous_message_id": message_id}


def result(text: str) -> list[Any]:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": text}
    return [{"role": "user", "content": [block]}]


def raised(stage: Stage, scene: Scene, **more: Any) -> anthropic.APIStatusError:
    with pytest.raises(anthropic.APIStatusError) as refused:
        anthropic_client(stage.url).beta.messages.create(
            model=scene.model, max_tokens=99, betas=["message-threads-2026-08-12"], **more
        )
    return refused.value


def test_a_thread_that_is_not_known_is_not_found(stage: Stage) -> None:
    scene = stage.scene("chat", DONE)
    error = raised(stage, scene, messages=USER, thread=follow("msg_unknown"))
    assert isinstance(error, anthropic.NotFoundError)
    assert error.error_code == "thread_not_found"
    assert scene.requests == []


def test_a_message_is_continued_once(stage: Stage) -> None:
    scene = stage.scene("messages", Answer((CALL,)), DONE, DONE)
    client = anthropic_client(stage.url)
    first = client.beta.messages.create(
        model=scene.model,
        max_tokens=99,
        tools=TOOLS,
        messages=USER,
        thread={"type": "create"},
        betas=["message-threads-2026-08-12"],
    )
    thread = follow(first.id)
    with client.beta.messages.stream(
        model=scene.model,
        max_tokens=99,
        messages=result("sunny"),
        thread=thread,
        betas=["message-threads-2026-08-12"],
    ) as found:
        second = found.get_final_message()
    assert second.id != first.id
    error = raised(stage, scene, messages=result("again"), thread=thread)
    assert isinstance(error, anthropic.BadRequestError)
    assert error.error_code == "thread_already_continued"
    assert len(scene.requests) == 2


def test_tools_of_a_thread_may_be_repeated_and_not_changed(stage: Stage) -> None:
    scene = stage.scene("chat", DONE, DONE)
    first = create(stage, scene, tools=TOOLS, system=SYSTEM, thread={"type": "create"}).json()
    again = {"model": scene.model, "max_tokens": 9, "messages": USER, "thread": follow(first["id"])}
    other = [{**TOOLS[0], "name": "another"}]
    refused = ask(stage.url, "messages", {**again, "tools": other, "system": "no"}, BETA)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["details"]["error_code"] == "thread_fingerprint_mismatch"
    assert "tools and system" in error["message"]
    same = ask(stage.url, "messages", {**again, "tools": TOOLS, "system": SYSTEM}, BETA)
    assert same.status_code == 200


@pytest.mark.parametrize(
    ("thread", "param"),
    [
        ({"type": "fork"}, "thread.type"),
        ({"type": "continue"}, "previous_message_id"),
        (7, "thread"),
    ],
)
def test_a_thread_that_makes_no_sense_is_refused(stage: Stage, thread: Any, param: str) -> None:
    scene = stage.scene("chat", DONE)
    refused = create(stage, scene, thread=thread)
    assert refused.status_code == 400
    assert param in refused.json()["error"]["message"]


def test_a_message_of_a_thread_is_no_response(stage: Stage) -> None:
    scene = stage.scene("chat", DONE)
    answer = create(stage, scene, thread={"type": "create"}).json()
    refused = ask(
        stage.url,
        "responses",
        {"model": scene.model, "input": "x", "previous_response_id": answer["id"]},
    )
    assert refused.status_code == 400


def test_without_a_store_the_runner_falls_back_to_the_whole_history() -> None:
    with running_stage(store=StoreSettings(policy="off")) as stage:
        scene = stage.scene("chat", Answer((CALL,)), DONE)
        runner = anthropic_client(stage.url).beta.messages.tool_runner(
            model=scene.model, max_tokens=500, tools=[get_weather], messages=USER
        )
        assert runner.until_done().content[0].text == "It is sunny."
        assert len(scene.requests) == 2
        assert len(hear("chat", scene.requests[1].body).results) == 1
