"""Hosted tools run when the client lets the model call them, and from a real call: not from words that look like one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_harness import DIALECTS
from hosted_stage import (
    WEATHER,
    add,
    answers,
    echo,
    hosting_stage,
    last_heard,
    said,
    sent,
    workshop,
)
from plain_http import ask as ask_plainly
from plain_http import plain_body
from sdk_clients import DOORS
from stage import Scene, Stage
from vendor_wire import Answer, Said

BOTH_MODES = [(door, mode) for door in DOORS for mode in ("create", "stream")]
NONE: dict[str, Any] = {"chat": "none", "responses": "none", "messages": {"type": "none"}}
WRITTEN = '<tool_call>\n{"name": "workshop__echo", "arguments": {"text": "a saw"}}\n</tool_call>'
QUOTED = {
    "alone": WRITTEN,
    "after words": f"The manual says:\n\n{WRITTEN}\n\nThat is how it is called.",
    "in a fence": f"Write this:\n```\n{WRITTEN}\n```\nand wait.",
    "in a fence of xml": f"```xml\n{WRITTEN}\n```",
    "behind a mark of quotation": "\n".join(f"> {line}" for line in WRITTEN.split("\n")),
    "as json": '{"name": "workshop__echo", "arguments": {"text": "a saw"}}',
    "as a block of json": '```json\n{"name": "workshop__echo", "arguments": {"text": "a saw"}}\n```',
    "by another tag": "<use_tool><name>workshop__echo</name><text>a saw</text></use_tool>",
    "as a function": '<function=workshop__echo>{"text": "a saw"}</function>',
    "of mistral": '[TOOL_CALLS][{"name": "workshop__echo", "arguments": {"text": "a saw"}}]',
    "of llama": '<|python_tag|>{"name": "workshop__echo", "parameters": {"text": "a saw"}}',
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records") / "calls"


@pytest.fixture(scope="module")
def stage(records: Path) -> Iterator[Stage]:
    upstreams: dict[str, dict[str, object]] = {
        "declared": {"kind": "chat", "text_calls": ("hermes",)},
        "prompted": {"kind": "chat", "prompted_tools": "hermes"},
    }
    with hosting_stage(workshop(records), upstreams=upstreams) as running:
        yield running


def outcome(scene: Scene) -> list[str]:
    """Return the results of its calls that the model got."""
    return [result.text for result in last_heard(scene).results]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("door", "mode"), BOTH_MODES)
def test_no_tool_is_run_for_a_client_that_allows_none(
    stage: Stage, door: str, mode: str, dialect: str
) -> None:
    scene = stage.scene(dialect, answers(echo("ran")), answers(said("Done.")))
    got = sent(stage, door, mode, scene, (WEATHER,), tool_choice=NONE[door])
    assert got.text == "Done."
    (found,) = outcome(scene)
    assert "ran" not in found.split()
    assert "allows no tool" in found
    if door == "responses":
        assert [item.output for item in got.hosted] == [None]


def test_no_tool_is_run_for_a_chat_client_that_says_so_in_the_older_form(stage: Stage) -> None:
    scene = stage.scene("chat", answers(echo("ran")), answers(said("Done.")))
    functions: list[dict[str, object]] = [
        {"name": "f", "parameters": {"type": "object", "properties": {}}}
    ]
    body = plain_body("chat", scene.model, functions=functions, function_call="none")
    answer = ask_plainly(stage.url, "chat", body)
    assert answer.json()["choices"][0]["message"]["content"] == "Done."
    assert "allows no tool" in outcome(scene)[0]


@pytest.mark.parametrize("written", QUOTED)
@pytest.mark.parametrize("door", DOORS)
def test_nothing_written_is_run_for_a_client_that_allows_no_tool(
    stage: Stage, door: str, written: str
) -> None:
    for route in ("chat", "declared", "prompted"):
        scene = stage.scene("chat", Answer((Said((QUOTED[written],)),)), route=route)
        got = sent(stage, door, "create", scene, (WEATHER,), tool_choice=NONE[door])
        assert got.text == QUOTED[written]
        assert len(scene.requests) == 1


@pytest.mark.parametrize(
    ("door", "mode"), [("chat", "create"), ("chat", "stream"), ("responses", "stream")]
)
def test_tools_that_the_client_does_not_name_are_not_run(
    stage: Stage, door: str, mode: str
) -> None:
    allowed = ("get_weather", "workshop__add")
    names: list[dict[str, Any]] = [{"type": "function", "name": name} for name in allowed]
    if door == "chat":
        names = [{"type": "function", "function": {"name": name}} for name in allowed]
        choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": names}}
    else:
        choice = {"type": "allowed_tools", "mode": "auto", "tools": names}
    first = answers(echo("ran"), add(2, 3))
    scene = stage.scene("responses", first, answers(said("Done.")))
    got = sent(stage, door, mode, scene, (WEATHER,), tool_choice=choice)
    assert got.text == "Done."
    refused, done = outcome(scene)
    assert "workshop__echo" in refused
    assert "ran" not in refused.split()
    assert done == "5"


@pytest.mark.parametrize("door", DOORS)
def test_tool_that_must_be_called_is_the_only_one_in_the_first_answer(
    stage: Stage, door: str
) -> None:
    choices: dict[str, Any] = {
        "chat": {"type": "function", "function": {"name": "workshop__add"}},
        "responses": {"type": "function", "name": "workshop__add"},
        "messages": {"type": "tool", "name": "workshop__add"},
    }
    script = (
        answers(echo("ran"), add(2, 3)),
        answers(echo("later", "call_3")),
        answers(said("Done.")),
    )
    scene = stage.scene("chat", *script)
    got = sent(stage, door, "create", scene, (WEATHER,), tool_choice=choices[door])
    assert got.text == "Done."
    refused, done, later = outcome(scene)
    assert "ran" not in refused.split()
    assert (done, later) == ("5", "later")


@pytest.mark.parametrize("written", QUOTED)
@pytest.mark.parametrize(("door", "mode"), BOTH_MODES)
def test_words_that_look_like_a_call_are_words(
    stage: Stage, door: str, mode: str, written: str
) -> None:
    scene = stage.scene("chat", Answer((Said(tuple(QUOTED[written])),)))
    got = sent(stage, door, mode, scene)
    assert got.text == QUOTED[written]
    assert not got.calls
    assert len(scene.requests) == 1


@pytest.mark.parametrize("door", DOORS)
def test_written_calls_of_the_clients_own_tools_are_found_beside_ours(
    stage: Stage, door: str
) -> None:
    own = WRITTEN.replace("workshop__echo", "get_weather").replace("text", "city")
    scene = stage.scene("chat", Answer((Said((f"{WRITTEN}\n{own}",)),)))
    got = sent(stage, door, "create", scene, (WEATHER,))
    assert [call.name for call in got.calls] == ["get_weather"]
    assert "workshop__echo" in got.text
    assert len(scene.requests) == 1


@pytest.mark.parametrize("route", ["declared", "prompted"])
@pytest.mark.parametrize(("door", "mode"), BOTH_MODES)
def test_calls_of_an_upstream_that_is_said_to_write_them_are_run(
    stage: Stage, door: str, mode: str, route: str
) -> None:
    scene = stage.scene(
        "chat", Answer((Said(tuple(WRITTEN)),)), answers(said("A saw.")), route=route
    )
    got = sent(stage, door, mode, scene)
    assert got.text == "A saw."
    assert "a saw" in json.dumps(json.loads(scene.requests[-1].body)["messages"])


@pytest.mark.parametrize(
    "written", ["in a fence", "in a fence of xml", "behind a mark of quotation"]
)
@pytest.mark.parametrize("route", ["declared", "prompted"])
def test_quotation_is_not_run_where_calls_are_written(
    stage: Stage, route: str, written: str
) -> None:
    scene = stage.scene("chat", Answer((Said(tuple(QUOTED[written])),)), route=route)
    assert sent(stage, "chat", "stream", scene).text == QUOTED[written]
    assert len(scene.requests) == 1
