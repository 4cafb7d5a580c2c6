"""The real Qwen Code CLI through the gateway, by each dialect that it speaks, to every dialect of upstream."""

import json
from pathlib import Path

import pytest

from clients.model import DIALECTS
from clients.program import StreamJsonRun, describe
from clients.qwen_code import QwenCode
from clients.script import Call, Dialect, Fault, ModelTurn, Script
from clients.stack import Stack


def shell(command: str) -> Call:
    value = {"command": command, "is_background": False, "description": "é"}
    return Call("run_shell_command", json.dumps(value, ensure_ascii=False))


ECHO = shell("echo marker-77")


def name(stack: Stack, door: Dialect) -> str:
    """A model that the gateway sends there."""
    return f"to-{stack.to(door)}-m"


def check(run: StreamJsonRun, stack: Stack, door: Dialect) -> None:
    """Qwen Code reports success, and the model objects to nothing: every call has come back with its result."""
    model, to = stack.model, stack.to(door)
    report = describe(run, model)
    assert model.objections == [], report
    assert (run.code, run.is_error) == (0, False), report
    assert [heard.dialect for heard in model.heard] == [to] * (len(model.script.turns) + 1), report
    assert all(heard.conversation.stream for heard in model.heard), report
    calls = [call for turn in model.script.turns for call in turn.calls]
    understood = [(block["id"], block["name"], block["input"]) for block in run.blocks("tool_use")]
    ids = model.call_ids(to)
    assert understood == [
        (call_id, call.name, json.loads(call.input))
        for call_id, call in zip(ids, calls, strict=True)
    ], report
    last = model.heard[-1].conversation
    assert [call.id for call in last.calls] == ids, report
    assert [result.id for result in last.results] == ids, report
    for call, replayed in zip(calls, last.calls, strict=True):
        assert replayed.name == call.name, report
        assert json.loads(replayed.input) == json.loads(call.input), report
    said = [turn.text for turn in model.script.turns if turn.text]
    assert [block["text"] for block in run.blocks("text")][:-1] == said, report
    quoted = [result.text for result in last.results]
    assert run.text == " | ".join((model.script.closing, *quoted)), report


@pytest.mark.parametrize("door", DIALECTS)
def test_calls_of_two_rounds(stack: Stack, tmp_path: Path, door: Dialect) -> None:
    """Parallel ones, with arguments that a careless writer would change, and a command that fails."""
    qwen = QwenCode(tmp_path, stack.url)
    content = 'Zürich "q" \\ \t{"input": "é"} 東京 😀 \u2028\u0085 12345678901234567890\n'
    target = qwen.work / "notes é.txt"
    written = json.dumps({"file_path": str(target), "content": content}, ensure_ascii=False)
    calls = (ECHO, Call("write_file", written), shell("echo marker-79; exit 3"))
    second = ModelTurn(calls=(shell("echo marker-80"),), thinking="And again.")
    stack.model.play(Script((ModelTurn("First „these“.", calls), second)))
    run = qwen.run(door, name(stack, door), "run it")
    check(run, stack, door)
    assert target.read_text(encoding="utf-8") == content
    results = [result.text for result in stack.model.heard[-1].conversation.results]
    assert "Output: marker-77" in results[0]
    assert "Output: marker-79" in results[2]
    assert "Exit Code: 3" in results[2]
    assert "Output: marker-80" in results[3]


def test_error_of_a_tool_reaches_the_model(gateway: Stack, tmp_path: Path) -> None:
    qwen = QwenCode(tmp_path, gateway.url)
    call = Call("read_file", json.dumps({"file_path": str(qwen.work / "absent é.txt")}))
    gateway.model.play(Script((ModelTurn(calls=(call, ECHO)),)))
    run = qwen.run("chat", name(gateway, "chat"), "read it")
    check(run, gateway, "chat")
    first, second = gateway.model.heard[-1].conversation.results
    assert "absent é.txt" in first.text
    assert "marker-77" in second.text


def test_next_turn_of_a_session_has_the_whole_history(gateway: Stack, tmp_path: Path) -> None:
    qwen = QwenCode(tmp_path, gateway.url)
    gateway.model.play(Script((ModelTurn("Ah.", (ECHO, shell("echo marker-78"))),)))
    check(qwen.run("messages", name(gateway, "messages"), "run it"), gateway, "messages")
    gateway.model.play(gateway.model.script)
    run = qwen.run("messages", name(gateway, "messages"), "and then?", "--continue")
    report = describe(run, gateway.model)
    assert (run.code, gateway.model.objections) == (0, []), report
    assert gateway.model.heard, report
    for (
        heard
    ) in gateway.model.heard:  # Qwen Code may ask for a suggestion too, with the same history
        calls = [call.id for call in heard.conversation.calls]
        assert calls == gateway.model.call_ids(heard.dialect), report
    assert "marker-78" in run.text, report


def test_failure_in_the_middle_of_a_call_is_reported_and_runs_nothing(
    gateway: Stack, tmp_path: Path
) -> None:
    call = shell(f"echo x >>{tmp_path}/runs")
    gateway.model.play(Script((ModelTurn("Ah.", (call,)),), Fault(mid_stream="end")))
    run = QwenCode(tmp_path, gateway.url).run("chat", name(gateway, "chat"), "run it")
    report = describe(run, gateway.model)
    assert run.is_error or run.code, report
    assert not (tmp_path / "runs").exists(), report
