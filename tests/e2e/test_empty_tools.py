"""An empty list of tools, which Codex sends with the request for a summary, reaches no upstream: OpenAI's Chat refuses it."""

from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.config.settings import StoreSettings
from gateway_harness import DIALECTS
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
