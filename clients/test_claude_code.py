"""The real Claude Code CLI through the gateway, to every dialect of upstream."""

import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from clients.claude_code import ClaudeCode
from clients.model import SMALL_TALK
from clients.program import StreamJsonRun, describe
from clients.script import Call, Dialect, Fault, MidStream, ModelTurn, Script
from clients.stack import Stack

DOOR: Dialect = "messages"
PROBE = Path(__file__).parent / "mcp_probe.py"
DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def bash(command: str) -> Call:
    return Call("Bash", json.dumps({"command": command, "description": "é"}, ensure_ascii=False))


ECHO = bash("echo marker-77")


def name(stack: Stack, kind: str = "m") -> str:
    """A model that the gateway sends there."""
    return f"to-{stack.to(DOOR)}-{kind}"


def check(run: StreamJsonRun, stack: Stack) -> None:
    """Claude Code reports success, and the model objects to nothing: every call has come back with its result."""
    model, to = stack.model, stack.to(DOOR)
    report = describe(run, model)
    assert model.objections == [], report
    assert (run.code, run.is_error) == (0, False), report
    assert [heard.dialect for heard in model.heard] == [to] * (len(model.script.turns) + 1), report
    # It asks again without `stream` when it could not read one: that must not have been needed.
    assert all(heard.conversation.stream for heard in model.heard), report
    last = model.heard[-1].conversation
    assert [call.id for call in last.calls] == model.call_ids(to), report
    # The results come in the order in which the commands ended.
    results = {result.id: result.text for result in last.results}
    assert sorted(results) == sorted(model.call_ids(to)), report
    quoted = [results[call_id] for call_id in model.call_ids(to)]
    assert run.text == " | ".join((model.script.closing, *quoted))


def test_text_alone(gateway: Stack, tmp_path: Path) -> None:
    gateway.model.play(Script())
    run = ClaudeCode(tmp_path, gateway.url).run(name(gateway), "say it")
    check(run, gateway)
    assert run.text == "Results:"


def test_text_then_shell_call(stack: Stack, tmp_path: Path) -> None:
    stack.model.play(Script((ModelTurn("First „this“.", (ECHO,)),)))
    run = ClaudeCode(tmp_path, stack.url).run(name(stack), "run it")
    check(run, stack)
    assert run.text == "Results: | marker-77"


def test_parallel_calls_in_two_rounds(gateway: Stack, tmp_path: Path) -> None:
    first = ModelTurn(calls=(ECHO, bash("echo marker-78"), bash("echo marker-79")))
    second = ModelTurn("Then this.", (bash("echo marker-80"),))
    gateway.model.play(Script((first, second)))
    run = ClaudeCode(tmp_path, gateway.url).run(name(gateway), "run it")
    check(run, gateway)
    assert run.text == "Results: | marker-77 | marker-78 | marker-79 | marker-80"


def test_arguments_arrive_as_the_model_wrote_them(gateway: Stack, tmp_path: Path) -> None:
    claude = ClaudeCode(tmp_path, gateway.url)
    content = 'Zürich "q" \\ \t{"input": "é"} 東京 😀 \u2028\u0085 12345678901234567890\n'
    target = claude.work / "notes é.txt"
    written = json.dumps({"file_path": str(target), "content": content}, ensure_ascii=False)
    gateway.model.play(Script((ModelTurn(calls=(Call("Write", written),)),)))
    run = claude.run(name(gateway), "write it")
    check(run, gateway)
    assert target.read_text(encoding="utf-8") == content
    assert [call["input"] for call in run.blocks("tool_use")] == [json.loads(written)]


def test_thinking_does_not_disturb_the_calls(gateway: Stack, tmp_path: Path) -> None:
    turns = (
        ModelTurn("Ah.", (ECHO,), thinking="I shall run it."),
        ModelTurn(calls=(bash("echo marker-78"),), thinking="And again."),
    )
    gateway.model.play(Script(turns))
    run = ClaudeCode(tmp_path, gateway.url).run(name(gateway), "run it")
    check(run, gateway)


def test_image_that_was_read_reaches_the_model(gateway: Stack, tmp_path: Path) -> None:
    claude = ClaudeCode(tmp_path, gateway.url)
    picture = claude.work / "dot.png"
    picture.write_bytes(b64decode(DOT))
    call = Call("Read", json.dumps({"file_path": str(picture)}))
    gateway.model.play(Script((ModelTurn(calls=(call,)),)))
    run = claude.run(name(gateway), "look at it")
    report = describe(run, gateway.model)
    assert (run.code, run.is_error, gateway.model.objections) == (0, False, []), report
    last = gateway.model.heard[-1]
    assert [result.id for result in last.conversation.results] == gateway.model.call_ids(
        last.dialect
    )
    assert "image/png" in last.text(), report


def test_failed_command_is_reported_to_the_model(gateway: Stack, tmp_path: Path) -> None:
    gateway.model.play(Script((ModelTurn(calls=(bash("echo marker-77; exit 3"),)),)))
    run = ClaudeCode(tmp_path, gateway.url).run(name(gateway), "run it")
    check(run, gateway)
    (result,) = gateway.model.heard[-1].conversation.results
    assert "Exit code 3" in result.text
    assert "marker-77" in result.text


def with_probe(claude: ClaudeCode) -> tuple[str, str]:
    """The options for an MCP server with one tool."""
    servers = {"probe": {"command": sys.executable, "args": [str(PROBE)]}}
    config = claude.home / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return "--mcp-config", str(config)


MCP_CALL = Call("mcp__probe__echo_text", '{"text": "marker-77 é"}')


def test_tool_of_an_mcp_server_is_called(stack: Stack, tmp_path: Path) -> None:
    claude = ClaudeCode(tmp_path, stack.url)
    stack.model.play(Script((ModelTurn(calls=(MCP_CALL,)),)))
    run = claude.run(name(stack), "echo it", *with_probe(claude))
    check(run, stack)
    assert run.text == "Results: | echo: marker-77 é"


@pytest.mark.parametrize("when", ["true", "auto:1"])
def test_deferred_tool_is_searched_for_and_called(
    gateway: Stack, tmp_path: Path, when: str
) -> None:
    """`auto:1`: if the tools take more than one percent of the context, by the gateway's count."""
    claude = ClaudeCode(tmp_path, gateway.url, ENABLE_TOOL_SEARCH=when)
    query = {"query": "select:mcp__probe__echo_text", "max_results": 5}
    search = Call("ToolSearch", json.dumps(query))
    gateway.model.play(Script((ModelTurn(calls=(search,)), ModelTurn(calls=(MCP_CALL,)))))
    run = claude.run(name(gateway), "echo it", *with_probe(claude))
    report = describe(run, gateway.model)
    assert (run.code, run.is_error, gateway.model.objections) == (0, False, []), report
    assert run.text.endswith("echo: marker-77 é"), report
    before, *_, after = [json.loads(heard.request.body) for heard in gateway.model.heard]
    assert "mcp__probe__echo_text" not in declared(before)
    assert "mcp__probe__echo_text" in declared(after)
    text = gateway.model.heard[-1].text()
    has_reference, has_definition = "tool_reference" in text, "<functions>\\n<function>{" in text
    is_own = gateway.to(DOOR) == DOOR
    assert (has_reference, has_definition) == (is_own, not is_own), report


def declared(request: dict[str, Any]) -> list[str]:
    return [tool.get("function", tool).get("name") for tool in request["tools"]]


def test_agent_of_its_own_is_started_and_heard(gateway: Stack, tmp_path: Path) -> None:
    task = {"description": "Talk", "prompt": "Say something.", "subagent_type": "Explore"}
    gateway.model.play(Script((ModelTurn(calls=(Call("Agent", json.dumps(task)),)),)))
    run = ClaudeCode(tmp_path, gateway.url).run(name(gateway), "delegate it")
    check(run, gateway)
    assert SMALL_TALK in run.text


def test_next_turn_of_a_session_has_the_whole_history(gateway: Stack, tmp_path: Path) -> None:
    claude = ClaudeCode(tmp_path, gateway.url)
    gateway.model.play(Script((ModelTurn("Ah.", (ECHO, bash("echo marker-78"))),)))
    check(claude.run(name(gateway), "run it"), gateway)
    gateway.model.play(gateway.model.script)
    run = claude.run(name(gateway), "and then?", "--continue")
    report = describe(run, gateway.model)
    assert (run.code, gateway.model.objections) == (0, []), report
    (heard,) = gateway.model.heard
    assert [call.id for call in heard.conversation.calls] == gateway.model.call_ids(heard.dialect)
    assert run.text == "Results: | marker-77 | marker-78", report


def test_session_is_compacted_and_goes_on(gateway: Stack, tmp_path: Path) -> None:
    """It asks for the summary by an ordinary message, with all tools."""
    claude, model = ClaudeCode(tmp_path, gateway.url), gateway.model
    model.play(Script(tuple([ModelTurn(calls=(ECHO,)) for _ in range(4)])))
    # A turn that has ended is not compacted.
    claude.run(name(gateway), "run it", "--max-turns", "3")
    model.play(Script(closing="The hull is done."))
    compacted = claude.run(name(gateway), "/compact", "--continue")
    report = describe(compacted, model)
    assert (compacted.code, compacted.is_error, model.objections) == (0, False, []), report
    assert model.heard, (report, compacted.text)
    assert "marker-77" in model.heard[0].text(), report
    model.play(Script(closing="The mast is done."))
    run = claude.run(name(gateway), "and then?", "--continue")
    report = describe(run, model)
    assert (run.text, model.objections) == ("The mast is done.", []), report
    (heard,) = model.heard
    assert "The hull is done." in heard.text(), report
    assert heard.conversation.calls == [], report


@pytest.mark.parametrize("how", ["error", "cut", "end"])
def test_failure_in_the_middle_of_a_call_is_reported_and_runs_nothing(
    gateway: Stack, tmp_path: Path, how: MidStream
) -> None:
    fault = Fault(mid_stream=how)
    gateway.model.play(Script((ModelTurn("Ah.", (ECHO,)),), fault))
    run = ClaudeCode(tmp_path, gateway.url).run(name(gateway), "run it")
    report = describe(run, gateway.model)
    assert run.is_error, report
    assert "marker-77" not in run.text, report
    # One request, one without a stream, and the retries of both.
    assert len(gateway.model.heard) <= 8, report


def test_stream_that_breaks_once_is_asked_for_again(gateway: Stack, tmp_path: Path) -> None:
    """Claude Code asks again, at least once without `stream`; nothing is run twice."""
    command = f"echo x >>{tmp_path}/runs; echo marker-77"
    gateway.model.play(
        Script((ModelTurn(calls=(bash(command),)),), Fault(mid_stream="cut", times=1))
    )
    run = ClaudeCode(tmp_path, gateway.url).run(name(gateway), "run it")
    assert run.text == "Results: | marker-77", describe(run, gateway.model)
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "x\n"


@pytest.mark.parametrize("status", [400, 429, 500])
def test_http_error_ends_the_run(gateway: Stack, tmp_path: Path, status: int) -> None:
    gateway.model.play(Script((ModelTurn(calls=(ECHO,)),), Fault(status=status)))
    run = ClaudeCode(tmp_path, gateway.url).run(name(gateway), "run it")
    report = describe(run, gateway.model)
    assert run.is_error, report
    assert len(gateway.model.heard) <= 8, report


@pytest.mark.parametrize("status", [401, 403])
def test_refused_key_is_reported_after_one_request(
    gateway: Stack, tmp_path: Path, status: int
) -> None:
    """Without `x-should-retry: false` it repeats a 401 in silence."""
    gateway.model.play(Script((ModelTurn(calls=(ECHO,)),), Fault(status=status)))
    run = ClaudeCode(tmp_path, gateway.url).run(name(gateway), "run it")
    report = describe(run, gateway.model)
    assert run.is_error, report
    assert f"API Error: {status} scripted failure" in run.text, report
    assert len(gateway.model.heard) == 1, report


def test_failure_that_passes_is_not_seen(gateway: Stack, tmp_path: Path) -> None:
    gateway.model.play(Script((ModelTurn(calls=(ECHO,)),), Fault(status=503, times=1)))
    run = ClaudeCode(tmp_path, gateway.url).run(name(gateway), "run it")
    assert run.text == "Results: | marker-77", describe(run, gateway.model)
