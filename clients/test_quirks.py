"""Upstreams with the quirks of real servers, of the client's own dialect and of others: no client may notice."""

from pathlib import Path

import pytest

from clients.claude_code import ClaudeCode
from clients.codex import Codex
from clients.model import Model
from clients.quirks import QUIRKS
from clients.scenarios import MODES, PYTHON_MODES, TOOLS, Mode, check_round_trip
from clients.script import Call, Dialect, ModelTurn, Script
from clients.stack import Stack
from clients.worker import Worker

# Spelled as the quirks spell it that put an object where text belongs.
ALL = (*MODES, *PYTHON_MODES)
CALLS = (
    Call("get_weather", '{"city": "Paris"}'),
    Call("get_time", "{}"),
    Call("get_weather", '{"city": "Oslo", "days": 3}'),
)


@pytest.mark.parametrize("mode", [mode for mode in ALL if mode.streams], ids=str)
@pytest.mark.parametrize(("to", "quirk"), QUIRKS, ids=str)
def test_quirk_is_not_noticed(
    model_server: tuple[Model, str],
    gateway_url: str,
    workers: dict[str, Worker],
    mode: Mode,
    to: Dialect,
    quirk: str,
) -> None:
    stack = Stack(model_server[0], gateway_url, to)
    stack.model.play(Script((ModelTurn("First.", CALLS),), quirk=QUIRKS[to, quirk]))
    seen = workers[mode.worker].run(stack.job(mode.client, mode.mode, mode.door, TOOLS))
    check_round_trip(stack, mode, seen)


@pytest.mark.parametrize("quirk", [quirk for to, quirk in QUIRKS if to == "responses"])
def test_quirk_is_not_noticed_by_codex(
    model_server: tuple[Model, str], gateway_url: str, tmp_path: Path, quirk: str
) -> None:
    model = model_server[0]
    calls = (
        Call("exec_command", '{"cmd": "echo marker-77"}'),
        Call("exec_command", '{"cmd": "echo marker-78"}'),
    )
    model.play(Script((ModelTurn("First.", calls),), quirk=QUIRKS["responses", quirk]))
    run = Codex(tmp_path, gateway_url).run("to-responses-gpt-5.5", "run it")
    assert (run.code, run.errors, model.objections) == (0, [], []), run
    assert [item["text"] for item in run.items("agent_message")][:1] == ["First."], run
    assert "marker-77" in run.text, run
    assert "marker-78" in run.text, run
    assert len(model.heard) == 2


@pytest.mark.parametrize("quirk", [quirk for to, quirk in QUIRKS if to == "messages"])
def test_quirk_is_not_noticed_by_claude_code(
    model_server: tuple[Model, str], gateway_url: str, tmp_path: Path, quirk: str
) -> None:
    model = model_server[0]
    calls = (
        Call("Bash", '{"command": "echo marker-77", "description": "Say"}'),
        Call("Bash", '{"command": "echo marker-78", "description": "Say"}'),
    )
    model.play(Script((ModelTurn("First.", calls),), quirk=QUIRKS["messages", quirk]))
    run = ClaudeCode(tmp_path, gateway_url).run("to-messages-m", "run it")
    assert (run.text, model.objections) == ("Results: | marker-77 | marker-78", []), run
    assert [heard.conversation.stream for heard in model.heard] == [True, True]
