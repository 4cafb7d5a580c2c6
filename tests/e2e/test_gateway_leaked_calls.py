"""Calls that a model with calls of its own leaks into its text: the client gets a call, and the next request has no bad example."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.config.settings import StoreSettings
from gateway_harness import DIALECTS, wait_until
from plain_http import ask as plain_ask
from plain_http import fetch
from sdk_clients import DOORS, Offered, conversation
from stage import Stage, running_stage
from vendor_wire import Answer, Said

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}}
BASH = Offered("Bash", SCHEMA, "a shell")
PREFIX = "antml" + ":"
CALL = '<invoke name="Bash">\n<parameter name="command">ls -l</parameter>\n</invoke>'
LEAKED = CALL.replace("invoke", f"{PREFIX}invoke").replace("parameter", f"{PREFIX}parameter")
SAID = (f"court\n{CALL}\n</function_calls>", f"count\n{LEAKED}\n</{PREFIX}function_calls>")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    upstreams: dict[str, dict[str, object]] = {kind: {"kind": kind} for kind in DIALECTS}
    upstreams["off"] = {"kind": "messages", "text_calls": ()}
    upstreams["exact"] = {"kind": "messages", "passthrough": "exact"}
    with running_stage(upstreams=upstreams, store=StoreSettings(policy="off")) as running:
        yield running


def pieces(text: str, size: int) -> tuple[str, ...]:
    return tuple(text[at : at + size] for at in range(0, len(text), size))


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("before", ["", "Let me look.\n\n"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("mode", ["create", "stream"])
def test_leaked_call_is_a_call_and_its_stray_word_is_no_text(
    stage: Stage, door: str, mode: str, before: str, said: str, size: int
) -> None:
    scene = stage.scene("messages", Answer((Said(pieces(before + said, size)),)))
    asking = conversation(door, stage.url, scene.model, tools=(BASH,))
    asking.say("List the files.")
    got = asking.ask(mode)
    assert [(call.name, _value(call.arguments)) for call in got.calls] == [
        ("Bash", {"command": "ls -l"})
    ]
    assert got.text.strip() == before.strip()


def _value(arguments: object) -> object:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def history(model: str, *after: object, said: str = SAID[0], **more: object) -> dict[str, Any]:
    """A request of Messages whose assistant wrote a call as text. `after`: the content of the user's next message."""
    content = list(after) or "Go on."
    return {
        "model": model,
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "Bash", "description": "a shell", "input_schema": SCHEMA}],
        "metadata": {"user_id": "u"},
        "messages": [
            {"role": "user", "content": "List the files."},
            {"role": "assistant", "content": [{"type": "text", "text": f"I look.\n{said}"}]},
            {"role": "user", "content": content},
        ],
        **more,
    }


def test_written_call_in_the_history_goes_up_as_a_call_with_a_result(stage: Stage) -> None:
    scene = stage.scene("messages", Answer((Said(("Done.",)),)))
    before = repairs_of(stage)
    asked = history(scene.model)
    assert plain_ask(stage.url, "messages", asked).status_code == 200
    sent = scene.heard
    _, said, after = sent["messages"]
    assert said["content"][0] == {"type": "text", "text": "I look.\n"}
    call = said["content"][1]
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "Bash", {"command": "ls -l"})
    assert after["content"][0]["tool_use_id"] == call["id"]
    assert after["content"][0]["is_error"] is True
    assert after["content"][1] == {"type": "text", "text": "Go on."}
    assert {**sent, "messages": None} == {**asked, "messages": None}
    assert sent["messages"][0] == asked["messages"][0]
    wait_until(lambda: repairs_of(stage) == before + 1)


def repairs_of(stage: Stage) -> float:
    lines = fetch("GET", f"{stage.url}/metrics").text.splitlines()
    found = [
        line
        for line in lines
        if line.startswith("dragoman_repairs_total") and 'rule="written_call"' in line
    ]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def test_the_rest_of_the_request_keeps_its_bytes(stage: Stage) -> None:
    scene = stage.scene("messages", Answer((Said(("Done.",)),)))
    asked = history(scene.model)
    body = json.dumps(asked, indent=1).encode()
    assert plain_ask(stage.url, "messages", body).status_code == 200
    sent = scene.requests[-1].body
    start = body.index(b'"messages": [')
    assert sent[:start] == body[:start]


def test_written_call_gets_the_result_that_the_client_sent(stage: Stage) -> None:
    scene = stage.scene("messages", Answer((Said(("Done.",)),)))
    result = {"type": "tool_result", "tool_use_id": "toolu_9", "content": "a.txt"}
    assert plain_ask(stage.url, "messages", history(scene.model, result)).status_code == 200
    _, said, after = scene.heard["messages"]
    assert said["content"][1]["id"] == "toolu_9"
    assert after["content"] == [result]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_history_is_repaired_for_every_upstream(stage: Stage, dialect: str) -> None:
    scene = stage.scene(dialect, Answer((Said(("Done.",)),)))
    assert plain_ask(stage.url, "messages", history(scene.model)).status_code == 200
    sent = json.dumps(scene.heard, ensure_ascii=False)
    assert "<invoke" not in sent
    assert "court" not in sent
    assert "The call was interrupted before it gave a result." in sent


def test_repair_is_the_same_in_every_request(stage: Stage) -> None:
    scene = stage.scene("messages", *[Answer((Said(("Done.",)),))] * 2)
    first = history(scene.model)
    longer = {**first, "messages": [*first["messages"], {"role": "assistant", "content": "Done."},
                                    {"role": "user", "content": "Thanks."}]}  # fmt: skip
    for body in (first, longer):
        assert plain_ask(stage.url, "messages", body).status_code == 200
    one, other = (json.loads(request.body)["messages"] for request in scene.requests)
    assert other[: len(one)] == one


@pytest.mark.parametrize("route", ["off", "exact"])
def test_who_does_not_want_text_searched_gets_the_history_as_it_is(
    stage: Stage, route: str
) -> None:
    scene = stage.scene("messages", Answer((Said(("Done.",)),)), route=route)
    asked = history(scene.model)
    assert plain_ask(stage.url, "messages", asked).status_code == 200
    assert scene.heard == asked


@pytest.mark.parametrize(
    "said", [f"```xml\n{CALL}\n```", CALL.replace("Bash", "Other"), "court\nis a word"]
)
def test_text_that_is_no_call_stays_byte_for_byte(stage: Stage, said: str) -> None:
    scene = stage.scene("messages", Answer((Said(("Done.",)),)))
    body = json.dumps(history(scene.model, said=said)).encode()
    assert plain_ask(stage.url, "messages", body).status_code == 200
    assert scene.requests[-1].body == body


def test_thinking_that_the_repaired_conversation_does_not_allow_is_switched_off(
    stage: Stage,
) -> None:
    """The vendor demands a signed thinking block before the last calls."""
    scene = stage.scene("messages", Answer((Said(("Done.",)),)))
    asked = history(scene.model, thinking={"type": "enabled", "budget_tokens": 50})
    assert plain_ask(stage.url, "messages", asked).status_code == 200
    assert scene.heard["thinking"] == {"type": "disabled"}
