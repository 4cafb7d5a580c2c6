"""The real Codex CLI through the gateway, to every dialect of upstream."""

import json
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clients.codex import MCP, Codex, CodexRun, CodexSession
from clients.gateway import serve_gateway
from clients.model import Model
from clients.program import describe
from clients.script import Call, Dialect, Fault, MidStream, ModelTurn, Script
from clients.stack import Stack
from clients.tcp_proxy import tcp_proxy

PROBE = Path(__file__).parent / "mcp_probe.py"
Install = Callable[..., Codex]

DOOR: Dialect = "responses"
MAX_AGE = 5.0
"""Seconds of a WebSocket. In less than that Codex cannot connect and send its request on a machine that is busy."""


def shell(command: str) -> Call:
    return Call("exec_command", json.dumps({"cmd": command}, ensure_ascii=False))


ECHO = shell("echo marker-77")


def name(stack: Stack, kind: str = "m") -> str:
    """A model that the gateway sends there."""
    return f"to-{stack.to(DOOR)}-{kind}"


def check(run: CodexRun, stack: Stack) -> None:
    """Codex reports success, and the model objects to nothing: every call has come back with its result."""
    model, to = stack.model, stack.to(DOOR)
    report = describe(run, model)
    assert model.objections == [], report
    assert (run.code, run.errors) == (0, []), report
    assert [heard.dialect for heard in model.heard] == [to] * (len(model.script.turns) + 1), report
    last = model.heard[-1].conversation
    assert [call.id for call in last.calls] == model.call_ids(to), report
    assert [result.id for result in last.results] == model.call_ids(to), report
    assert run.text == " | ".join((model.script.closing, *(each.text for each in last.results)))


@pytest.mark.parametrize("kind", ["plain", "gpt-5.5", "gpt-6.1-sol"])
def test_text_alone(gateway: Stack, tmp_path: Path, kind: str) -> None:
    gateway.model.play(Script())
    run = Codex(tmp_path, gateway.url).run(name(gateway, kind), "say it")
    check(run, gateway)
    assert run.text == "Results:"


@pytest.mark.parametrize("kind", ["plain", "gpt-5.5"])
def test_shell_call(stack: Stack, tmp_path: Path, kind: str) -> None:
    stack.model.play(Script((ModelTurn(calls=(ECHO,)),)))
    run = Codex(tmp_path, stack.url).run(name(stack, kind), "run it")
    check(run, stack)
    (command,) = run.items("command_execution")
    assert (command["aggregated_output"], command["exit_code"]) == ("marker-77\n", 0)
    assert "marker-77" in run.text


def test_text_then_parallel_calls_in_two_rounds(gateway: Stack, tmp_path: Path) -> None:
    first = ModelTurn("First „these“.", (ECHO, shell("echo marker-78"), shell("echo marker-79")))
    second = ModelTurn("Then this.", (shell("echo marker-80"),))
    gateway.model.play(Script((first, second)))
    run = Codex(tmp_path, gateway.url).run(name(gateway, "gpt-5.5"), "run it")
    check(run, gateway)
    outputs = {item["aggregated_output"] for item in run.items("command_execution")}
    assert outputs == {f"marker-{number}\n" for number in range(77, 81)}
    said = [item["text"] for item in run.items("agent_message")]
    assert said[:2] == ["First „these“.", "Then this."]


def test_arguments_arrive_byte_for_byte(gateway: Stack, tmp_path: Path) -> None:
    text = r'{ "cmd" : "printf %s \u0027Z\u00fcrich \"q\" \\\\ 東京 😀 \ud83d\ude00\u0027", "yield_time_ms":1000 }'
    gateway.model.play(Script((ModelTurn(calls=(Call("exec_command", text),)),)))
    run = Codex(tmp_path, gateway.url).run(name(gateway, "gpt-5.5"), "run it")
    check(run, gateway)
    (command,) = run.items("command_execution")
    assert command["aggregated_output"] == 'Zürich "q" \\\\ 東京 😀 😀'
    (call,) = gateway.model.heard[-1].conversation.calls
    assert (
        text in gateway.model.heard[-1].text()
        if gateway.to(DOOR) == "messages"
        else call.input == text
    )


def test_patch_is_applied(stack: Stack, tmp_path: Path) -> None:
    codex = Codex(tmp_path, stack.url)
    (codex.work / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    patch = (
        "*** Begin Patch\n*** Update File: notes.txt\n@@\n one\n-two\n"
        '+"zwei" \\ {"input": "é"} 😀\n*** Add File: new.txt\n+fresh\n*** End Patch\n'
    )
    stack.model.play(Script((ModelTurn(calls=(Call("apply_patch", patch, custom=True),)),)))
    run = codex.run(name(stack, "gpt-5.5"), "patch it")
    check(run, stack)
    (change,) = run.items("file_change")
    assert change["status"] == "completed"
    notes = (codex.work / "notes.txt").read_text(encoding="utf-8")
    assert notes == 'one\n"zwei" \\ {"input": "é"} 😀\n'
    assert (codex.work / "new.txt").read_text(encoding="utf-8") == "fresh\n"


def test_script_of_a_code_mode_model_is_run(gateway: Stack, tmp_path: Path) -> None:
    source = 'const r = await tools.exec_command({cmd: "echo marker-77"});\ntext(r.output + "é");\n'
    call = Call("exec", source, namespace="functions", custom=True)
    gateway.model.play(Script((ModelTurn("Code.", (call,)),)))
    run = Codex(tmp_path, gateway.url).run(name(gateway, "gpt-6.1-sol"), "run it")
    check(run, gateway)
    assert "marker-77\né" in run.text


def test_tool_in_a_namespace_is_called(stack: Stack, tmp_path: Path) -> None:
    mcp = MCP.format(python=sys.executable, server=PROBE)
    codex = Codex(tmp_path, stack.url, more=mcp)
    call = Call("echo_text", '{"text": "marker-77 é"}', namespace="mcp__probe")
    stack.model.play(Script((ModelTurn(calls=(call,)),)))
    run = codex.run(name(stack, "plain"), "echo it")
    check(run, stack)
    (item,) = run.items("mcp_tool_call")
    assert (item["server"], item["tool"], item["status"]) == ("probe", "echo_text", "completed")
    assert "echo: marker-77 é" in run.text


def test_tool_that_has_to_be_searched_for_is_found_and_called(
    gateway: Stack, tmp_path: Path
) -> None:
    codex = Codex(tmp_path, gateway.url, more=MCP.format(python=sys.executable, server=PROBE))
    search = Call("tool_search", '{"query": "echo text", "limit": 3}')
    call = Call("echo_text", '{"text": "marker-77 é"}', namespace="mcp__probe")
    gateway.model.play(Script((ModelTurn(calls=(search,)), ModelTurn(calls=(call,)))))
    run = codex.run(name(gateway, "gpt-5.5"), "echo it")
    check(run, gateway)
    (item,) = run.items("mcp_tool_call")
    assert (item["server"], item["tool"], item["status"]) == ("probe", "echo_text", "completed")
    assert "echo: marker-77 é" in run.text


def answered(stack: Stack) -> int:
    """How many requests the gateway has answered."""
    with urllib.request.urlopen(f"{stack.url}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    counts = [line for line in lines if line.startswith("dragoman_requests_total{")]
    return sum([int(float(line.rpartition(" ")[2])) for line in counts])


@pytest.mark.parametrize("provider", ["custom", "built in"])
def test_calls_over_a_websocket(gateway: Stack, tmp_path: Path, provider: str) -> None:
    turns = (ModelTurn("Ah.", (ECHO,)), ModelTurn(calls=(ECHO, shell("echo marker-78"))))
    gateway.model.play(Script(turns))
    before = answered(gateway)
    codex = Codex(tmp_path, gateway.url, websockets=True)
    run = (codex.run if provider == "custom" else codex.run_as_openai)(
        name(gateway, "gpt-5.5"), "run it"
    )
    check(run, gateway)
    assert run.items("error") == []
    # Over a WebSocket, and only there, Codex first sends a request that generates nothing.
    assert answered(gateway) - before == len(gateway.model.heard) + 1


def quoted(turn: dict[str, Any], session: CodexSession) -> str:
    """The last text of a turn that is complete."""
    assert (turn["status"], turn["error"]) == ("completed", None), session.heard
    return str(turn["texts"][-1])


def test_session_over_a_websocket_uses_one_connection_until_it_is_interrupted_or_cut(
    gateway: Stack, tmp_path: Path
) -> None:
    """Four turns on one connection; one that is interrupted, with the upstream's work; one over a cut connection, twice."""
    model = gateway.model
    script = Script((ModelTurn("Ah.", (ECHO, shell("echo marker-78"))),))
    with tcp_proxy(gateway.url) as proxy:
        codex = Codex(tmp_path, proxy.url, websockets=True, retries=2)
        with codex.session(name(gateway, "gpt-5.5")) as session:
            model.play(script)
            for number in range(4):
                said = quoted(session.ask(f"turn {number}"), session)
                assert ("marker-77" in said, "marker-78" in said) == (True, True)
            assert (len(model.heard), model.objections) == (5, []), session.heard
            assert "turn 0" in model.heard[-1].text()
            assert proxy.websockets == 1

            model.play(Script((ModelTurn("One moment, please."),), Fault(mid_stream="silence")))
            session.begin("wait")
            session.wait_for("item/agentMessage/delta")
            (heard,) = model.heard
            assert session.interrupt()["status"] == "interrupted"
            gateway.wait_until(lambda: heard.request.was_abandoned)

            model.play(script)
            assert "marker-78" in quoted(session.ask("go on"), session)
            assert (len(model.heard), proxy.websockets) == (1, 2)

            proxy.cut()  # between two turns
            assert "marker-78" in quoted(session.ask("and on"), session)
            assert proxy.websockets == 3

            model.play(Script((ModelTurn("One moment, please."),), Fault(mid_stream="silence")))
            session.begin("in the middle")
            session.wait_for("item/agentMessage/delta")
            model.play(script)
            proxy.cut()
            assert "marker-78" in quoted(session.end(), session)
            assert (len(model.heard), model.objections) == (1, []), session.heard
            assert "turn 3" in model.heard[-1].text()
            assert proxy.websockets == 4


def test_session_over_a_websocket_goes_on_after_the_gateway_was_restarted(
    model_server: tuple[Model, str], tmp_path: Path
) -> None:
    model, url = model_server
    model.play(Script((ModelTurn("Ah.", (ECHO,)),)))
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        proxy = stack.enter_context(
            tcp_proxy(first.enter_context(serve_gateway(tmp_path / "first", url)))
        )
        codex = Codex(tmp_path / "codex", proxy.url, websockets=True)
        session = stack.enter_context(codex.session("to-messages-gpt-5.5"))
        assert "marker-77" in quoted(session.ask("run it"), session)
        first.close()
        proxy.lead_to(stack.enter_context(serve_gateway(tmp_path / "second", url)))
        assert "marker-77" in quoted(session.ask("and now?"), session)
        assert proxy.websockets == 2
    assert model.objections == []


@pytest.mark.parametrize(
    ("server", "fewest", "pause"),
    [
        ("websocket = false", 1, 0.0),  # 426: HTTP for the rest of the session
        ("websocket_memory = 1", 3, 0.0),  # each continuation is unknown: reconnects
        (f"websocket_max_age = {MAX_AGE}", 2, MAX_AGE),
    ],
    ids=["switched off", "forgetful", "short-lived"],
)
def test_session_over_a_websocket_does_not_notice_the_limits_of_the_gateway(
    model_server: tuple[Model, str], tmp_path: Path, server: str, fewest: int, pause: float
) -> None:
    """How often it reconnects beyond that depends on how fast the machine is."""
    model, url = model_server
    model.play(Script((ModelTurn("Ah.", (ECHO,)),)))
    with serve_gateway(tmp_path, url, server) as gateway, tcp_proxy(gateway) as proxy:
        codex = Codex(tmp_path / "codex", proxy.url, websockets=True, retries=3)
        with codex.session("to-chat-gpt-5.5") as session:
            assert "marker-77" in quoted(session.ask("turn 0"), session)
            time.sleep(pause)  # the connection gets too old
            assert "marker-77" in quoted(session.ask("turn 1"), session)
        assert proxy.websockets >= fewest
    assert model.objections == []
    assert "turn 0" in model.heard[-1].text()


@pytest.mark.parametrize("status", [401, 429, 500])
def test_session_over_a_websocket_survives_failures_of_the_upstream(
    gateway: Stack, tmp_path: Path, status: int
) -> None:
    """More of them than the gateway's own retries, so that Codex gets frames with this status."""
    model = gateway.model
    fault = Fault(status=status, headers=(("retry-after", "1"),), times=4)
    with tcp_proxy(gateway.url) as proxy:
        codex = Codex(tmp_path, proxy.url, websockets=True, retries=5)
        with codex.session(name(gateway, "gpt-5.5")) as session:
            model.play(Script((ModelTurn("Ah.", (ECHO,)),), fault))
            assert "marker-77" in quoted(session.ask("turn 0"), session)
            assert "marker-77" in quoted(session.ask("turn 1"), session)
        assert proxy.websockets > 1
    assert model.objections == []
    assert "turn 0" in model.heard[-1].text()


def test_thinking_does_not_disturb_the_calls(gateway: Stack, tmp_path: Path) -> None:
    turns = (
        ModelTurn("Ah.", (ECHO,), thinking="I shall run it."),
        ModelTurn(calls=(shell("echo marker-78"),), thinking="And again."),
    )
    gateway.model.play(Script(turns))
    run = Codex(tmp_path, gateway.url).run(name(gateway, "gpt-5.5"), "run it")
    check(run, gateway)


def test_next_turn_of_a_session_has_the_whole_history(gateway: Stack, tmp_path: Path) -> None:
    codex = Codex(tmp_path, gateway.url)
    gateway.model.play(Script((ModelTurn("Ah.", (ECHO, shell("echo marker-78"))),)))
    check(codex.run(name(gateway, "gpt-5.5"), "run it"), gateway)
    gateway.model.play(gateway.model.script)
    run = codex.resume(name(gateway, "gpt-5.5"), "and then?")
    report = describe(run, gateway.model)
    assert (run.code, gateway.model.objections) == (0, []), report
    (heard,) = gateway.model.heard
    assert [call.id for call in heard.conversation.calls] == gateway.model.call_ids(
        gateway.to(DOOR)
    ), report
    assert "marker-78" in run.text, report


def test_session_that_is_too_long_is_compacted_and_goes_on(gateway: Stack, tmp_path: Path) -> None:
    """The limit is below every usage, so Codex compacts before the second turn, with `compaction_trigger`."""
    model, kind = gateway.model, name(gateway, "gpt-5.5")
    codex = Codex(tmp_path, gateway.url, provider="OpenAI")
    model.play(Script(closing="The hull is done."))
    codex.run(kind, "build a boat")
    second = codex.resume(kind, "build the mast", "-c", "model_auto_compact_token_limit=1")
    report = describe(second, model)
    assert (second.code, second.errors, model.objections) == (0, [], []), report
    _, asked, after = [heard.text() for heard in model.heard]
    assert "Write a summary of everything above" in asked, report
    assert "Summary of the conversation so far" in after, report
    assert (
        after.index("build a boat")
        < after.index("The hull is done.")
        < after.index("build the mast")
    )
    assert second.text == "The hull is done."


@pytest.mark.parametrize("websockets", [False, True], ids=["http", "websocket"])
def test_session_is_compacted_between_two_turns_and_goes_on(
    gateway: Stack, tmp_path: Path, websockets: bool
) -> None:
    """The trigger has all tools, and over a WebSocket it follows the last response by its id."""
    model = gateway.model
    codex = Codex(tmp_path, gateway.url, provider="OpenAI", websockets=websockets)
    with codex.session(name(gateway, "gpt-5.5")) as session:
        model.play(Script((ModelTurn("Ah.", (ECHO,)),), closing="The hull is done."))
        assert "marker-77" in quoted(session.ask("build a boat"), session)
        model.play(Script(closing="The mast remains."))
        compacted = session.compact()
        assert (compacted["status"], compacted["error"]) == ("completed", None), session.heard
        (asked,) = [heard.text() for heard in model.heard]
        assert "marker-77" in asked
        assert "Write a summary of everything above" in asked
        for prompt in ("build the mast", "set the sails"):
            model.play(Script(closing="All is done."))
            assert quoted(session.ask(prompt), session) == "All is done."
            (after,) = model.heard
            assert "Summary of the conversation so far" in after.text()
            assert "The mast remains." in after.text()
            assert after.conversation.calls == []
        assert model.objections == [], session.heard


def test_session_of_another_provider_is_compacted_by_codex_itself(
    gateway: Stack, tmp_path: Path
) -> None:
    """An ordinary request with an empty list of tools, whose answer is the summary."""
    model, kind = gateway.model, name(gateway, "gpt-5.5")
    codex = Codex(tmp_path, gateway.url)
    model.play(Script(closing="The hull is done."))
    codex.run(kind, "build a boat")
    second = codex.resume(kind, "build the mast", "-c", "model_auto_compact_token_limit=1")
    report = describe(second, model)
    assert (second.code, second.errors, model.objections) == (0, [], []), report
    _, asked, after = model.heard
    assert "CONTEXT CHECKPOINT COMPACTION" in asked.text(), report
    assert asked.conversation.tools == [], report
    assert "Another language model started to solve this problem" in after.text(), report
    assert second.text == "The hull is done."


@pytest.mark.parametrize("how", ["error", "cut", "end"])
def test_failure_in_the_middle_of_a_call_is_reported_and_runs_nothing(
    gateway: Stack, tmp_path: Path, how: MidStream
) -> None:
    fault = Fault(mid_stream=how)
    gateway.model.play(Script((ModelTurn("Ah.", (ECHO,)),), fault))
    run = Codex(tmp_path, gateway.url).run(name(gateway, "gpt-5.5"), "run it")
    report = describe(run, gateway.model)
    assert run.code == 1, report
    (message,) = run.errors
    assert "stream closed before response.completed" not in message, report
    if how == "error":
        assert "scripted failure" in message, report
    assert run.items("command_execution") == [], report
    assert len(gateway.model.heard) == 1, report


@pytest.mark.parametrize("status", [400, 429, 500])
def test_http_error_ends_the_turn(gateway: Stack, tmp_path: Path, status: int) -> None:
    gateway.model.play(Script((ModelTurn(calls=(ECHO,)),), Fault(status=status)))
    run = Codex(tmp_path, gateway.url).run(name(gateway, "gpt-5.5"), "run it")
    report = describe(run, gateway.model)
    assert run.code == 1, report
    assert len(run.errors) == 1, report
    assert len(gateway.model.heard) <= 2, report


def test_failure_that_passes_is_not_seen(gateway: Stack, tmp_path: Path) -> None:
    fault = Fault(status=503, times=1)
    gateway.model.play(Script((ModelTurn(calls=(ECHO,)),), fault))
    run = Codex(tmp_path, gateway.url).run(name(gateway, "gpt-5.5"), "run it")
    assert (run.code, "marker-77" in run.text) == (0, True), describe(run, gateway.model)
