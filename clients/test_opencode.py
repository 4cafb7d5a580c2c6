"""The real OpenCode CLI through the gateway, by each dialect that it speaks, to every dialect of upstream."""

import json
from pathlib import Path

import pytest

from clients.model import DIALECTS
from clients.opencode import OpenCode, OpenCodeRun
from clients.program import describe
from clients.script import Call, Dialect, Fault, ModelTurn, Script
from clients.stack import Stack


def bash(command: str) -> Call:
    return Call("bash", json.dumps({"command": command, "description": "é"}, ensure_ascii=False))


ECHO = bash("echo marker-77")


def name(stack: Stack, door: Dialect) -> str:
    """A model that the gateway sends there."""
    return f"to-{stack.to(door)}-m"


def check(run: OpenCodeRun, stack: Stack, door: Dialect) -> None:
    """OpenCode reports success, and the model objects to nothing: every call has come back with its result."""
    model, to = stack.model, stack.to(door)
    report = describe(run, model)
    assert model.objections == [], report
    assert (run.code, run.errors) == (0, []), report
    assert [heard.dialect for heard in model.heard] == [to] * (len(model.script.turns) + 1), report
    calls = [call for turn in model.script.turns for call in turn.calls]
    understood = {part["callID"]: part for part in run.calls()}
    assert sorted(understood) == sorted(model.call_ids(to)), report
    last = model.heard[-1].conversation
    assert [call.id for call in last.calls] == model.call_ids(to), report
    assert [result.id for result in last.results] == model.call_ids(to), report
    for call, replayed in zip(calls, last.calls, strict=True):
        part = understood[replayed.id]
        assert part["tool"] == replayed.name == call.name, report
        assert part["state"]["input"] == json.loads(replayed.input) == json.loads(call.input)
    said = [turn.text for turn in model.script.turns if turn.text]
    assert run.texts[:-1] == said, report
    quoted = [result.text for result in last.results]
    assert run.texts[-1] == " | ".join((model.script.closing, *quoted)), report


@pytest.mark.parametrize("door", DIALECTS)
def test_calls_of_two_rounds(stack: Stack, tmp_path: Path, door: Dialect) -> None:
    """Parallel ones, with arguments that a careless writer would change, and a command that fails."""
    opencode = OpenCode(tmp_path, stack.url)
    content = 'Zürich "q" \\ \t{"input": "é"} 東京 😀 \u2028\u0085 12345678901234567890\n'
    target = opencode.work / "notes é.txt"
    written = json.dumps({"filePath": str(target), "content": content}, ensure_ascii=False)
    calls = (ECHO, Call("write", written), bash("echo marker-79; exit 3"))
    second = ModelTurn(calls=(bash("echo marker-80"),), thinking="And again.")
    stack.model.play(Script((ModelTurn("First „these“.", calls), second)))
    run = opencode.run(door, name(stack, door), "run it")
    check(run, stack, door)
    assert target.read_text(encoding="utf-8") == content
    results = [result.text for result in stack.model.heard[-1].conversation.results]
    assert [results[0], results[3]] == ["marker-77\n", "marker-80\n"]
    assert "marker-79" in results[2]
    exits = [part["state"]["metadata"].get("exit") for part in run.calls()]
    assert sorted(exits, key=str) == [0, 0, 3, None]


def test_error_of_a_tool_reaches_the_model(gateway: Stack, tmp_path: Path) -> None:
    opencode = OpenCode(tmp_path, gateway.url)
    call = Call("read", json.dumps({"filePath": str(opencode.work / "absent é.txt")}))
    gateway.model.play(Script((ModelTurn(calls=(call, ECHO)),)))
    run = opencode.run("chat", name(gateway, "chat"), "read it")
    check(run, gateway, "chat")
    first, second = gateway.model.heard[-1].conversation.results
    assert "absent é.txt" in first.text
    assert second.text == "marker-77\n"


def test_next_turn_of_a_session_has_the_whole_history(gateway: Stack, tmp_path: Path) -> None:
    opencode = OpenCode(tmp_path, gateway.url)
    gateway.model.play(Script((ModelTurn("Ah.", (ECHO, bash("echo marker-78"))),)))
    check(opencode.run("messages", name(gateway, "messages"), "run it"), gateway, "messages")
    gateway.model.play(gateway.model.script)
    run = opencode.run("messages", name(gateway, "messages"), "and then?", "--continue")
    report = describe(run, gateway.model)
    assert (run.code, gateway.model.objections) == (0, []), report
    (heard,) = gateway.model.heard
    assert [call.id for call in heard.conversation.calls] == gateway.model.call_ids(heard.dialect)
    assert run.texts == ["Results: | marker-77\n | marker-78\n"], report


def test_failure_in_the_middle_of_a_call_is_reported_and_runs_nothing(
    gateway: Stack, tmp_path: Path
) -> None:
    opencode = OpenCode(tmp_path, gateway.url)
    call = bash(f"echo x >>{tmp_path}/runs")
    gateway.model.play(Script((ModelTurn("Ah.", (call,)),), Fault(mid_stream="end")))
    run = opencode.run("chat", name(gateway, "chat"), "run it")
    report = describe(run, gateway.model)
    assert run.errors or run.code, report
    assert not (tmp_path / "runs").exists(), report
