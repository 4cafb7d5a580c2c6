"""An empty list of tools, which Codex sends with the request for a summary, reaches no upstream: OpenAI's Chat refuses it."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from dragoman.config.settings import StoreSettings
from gateway_harness import DIALECTS
from hosted_stage import hosting_stage, workshop
from plain_http import ask, plain_body
from stage import Stage, running_stage
from vendor_wire import Answer, Said

CHOICES: dict[str, Any] = {"chat": "auto", "responses": "auto", "messages": {"type": "auto"}}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage(store=StoreSettings(policy="off")) as running:
        yield running


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("tools", [[], None])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("door", DIALECTS)
def test_an_empty_list_of_tools_is_left_out(
    stage: Stage, door: str, dialect: str, tools: Any, stream: bool
) -> None:
    scene = stage.scene(dialect, Answer((Said(("Hi.",)),)))
    more: dict[str, Any] = {"tools": tools, "tool_choice": CHOICES[door], "unknown_member": 1}
    if door != "messages":
        more["parallel_tool_calls"] = True
    reply = ask(stage.url, door, plain_body(door, scene.model, **more, stream=stream))
    assert reply.status_code == 200
    assert "tools" not in scene.heard
    if door == dialect or dialect != "responses":  # which takes a choice without tools
        assert "tool_choice" not in scene.heard
    if dialect == "chat":
        assert "parallel_tool_calls" not in scene.heard
    if door == dialect:  # the rest of the client's body is not changed
        assert scene.heard["unknown_member"] == 1


SUMMARY = Answer((Said(("The hull is done.",)),))
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Build a boat."},
    {"role": "assistant", "content": "Hull done."},
    {"role": "user", "content": "Go."},
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_for_a_summary_has_no_empty_list_of_tools(
    stage: Stage, dialect: str, stream: bool
) -> None:
    """As Codex asks with a trigger, and as its local compaction asks, which is an ordinary request."""
    items = [{"type": "message", **each} for each in TALK]
    for last in ({"type": "compaction_trigger"}, {"type": "message", **TALK[-1]}):
        scene = stage.scene(dialect, SUMMARY)
        body = {"model": scene.model, "input": [*items, last], "tools": [], "tool_choice": "auto"}
        reply = ask(stage.url, "responses", {**body, "stream": stream})
        assert reply.status_code == 200, reply.text
        assert "tools" not in scene.heard


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_messages_client_asks_for_a_summary_with_an_empty_list_of_tools(
    stage: Stage, dialect: str
) -> None:
    scene = stage.scene(dialect, SUMMARY)
    wish = {"type": "summarize"}
    body = {"model": scene.model, "max_tokens": 99, "messages": TALK, "tools": []}
    assert ask(stage.url, "messages", {**body, "compaction": wish}).status_code == 200
    assert "tools" not in scene.heard


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("door", DIALECTS)
def test_a_server_without_tools_adds_no_empty_list(
    bare: Stage, door: str, dialect: str, stream: bool
) -> None:
    scene = bare.scene(dialect, Answer((Said(("Hi.",)),)))
    more: dict[str, Any] = {"tools": [], "tool_choice": CHOICES[door], "stream": stream}
    reply = ask(bare.url, door, plain_body(door, scene.model, **more))
    assert reply.status_code == 200
    assert "tools" not in scene.heard
    assert dialect == "responses" or "tool_choice" not in scene.heard


@pytest.fixture(scope="module")
def bare() -> Iterator[Stage]:
    """A gateway with a server all of whose tools are denied."""
    with hosting_stage(structs.replace(workshop(), deny=("*",))) as running:
        yield running
