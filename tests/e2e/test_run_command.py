"""`dragoman run` as scripts have it: prompts, pipes, exit codes, event lines, kept conversations."""

import json
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.cli import main
from dragoman.testing import ReceivedRequest, ScriptedReply, ScriptedUpstream, json_reply
from ports import free_port
from pty_command import PATIENCE, answer, call, lines_of, messages, run_open, run_piped


def upstream_option(upstream: ScriptedUpstream) -> tuple[str, str, str, str]:
    return "--upstream", f"chat={upstream.url}/v1", "--model", "some-model"


def spoken(request: ReceivedRequest) -> list[tuple[str, object]]:
    """The roles and contents of what a Chat upstream was asked, without the instructions."""
    return [
        (each["role"], each.get("content"))
        for each in messages(request)
        if each["role"] != "system"
    ]


def test_without_a_key_it_reads_what_it_is_asked_for_and_quotes_it(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# The heading\n", encoding="utf-8")
    done = run_piped(tmp_path, "read README.md")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(line.startswith("✓ read README.md") for line in lines)
    assert any(line.startswith("read returned:") and "# The heading" in line for line in lines)
    assert "2 turns, 1 call" in lines[-1]
    assert "\x1b" not in done.stdout


def test_missing_file_is_reported_to_the_model_and_ends_well(tmp_path: Path) -> None:
    done = run_piped(tmp_path, "read missing.txt")
    assert done.returncode == 0
    assert "✗ read missing.txt" in done.stdout
    assert "read failed: missing.txt" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_prompt_comes_from_a_pipe(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with ScriptedUpstream.in_thread([answer("Fine.")]) as upstream:
        done = run_piped(
            tmp_path, *arguments, "--quiet", *upstream_option(upstream), stdin="How are you?"
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Fine.\n", "")
    assert spoken(upstream.requests[0]) == [("user", "How are you?")]


def test_prompt_that_is_not_utf8_can_be_sent(tmp_path: Path) -> None:
    with ScriptedUpstream.in_thread([answer("Fine.")]) as upstream:
        done = run_piped(tmp_path, os.fsdecode(b"caf\xe9?"), "--quiet", *upstream_option(upstream))
    assert (done.returncode, done.stdout, done.stderr) == (0, "Fine.\n", "")
    assert spoken(upstream.requests[0]) == [("user", "caf\ufffd?")]


def test_event_lines_have_everything_in_order_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the content", encoding="utf-8")
    script = [call("read", {"path": "a.txt"}), answer("It says so.")]
    with ScriptedUpstream.in_thread(script) as upstream:
        done = run_piped(tmp_path, "--json", "look", *upstream_option(upstream))
    assert (done.returncode, done.stderr) == (0, "")
    lines = lines_of(done.stdout)
    types = [line["type"] for line in lines if line["type"] != "model_spoke"]
    assert types == [
        "session_started",
        "turn_started",
        "call_started",
        "call_settled",
        "turn_ended",
        "turn_started",
        "turn_ended",
        "run_ended",
    ]
    (settled,) = [line for line in lines if line["type"] == "call_settled"]
    assert (settled["call"]["name"], settled["how"]) == ("read", "done")
    assert "the content" in settled["result"]["content"][0]["text"]
    deltas = [line["event"] for line in lines if line["type"] == "model_spoke"]
    assert (
        "".join(each["text"] for each in deltas if each["event"] == "text_delta") == "It says so."
    )
    assert lines[-1]["reason"] == "answered"
    assert lines[-1]["total"]["input"] == 22
    assert "read" in lines[0]["tools"]


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_result_of_a_call_goes_back_to_the_model(tmp_path: Path, dialect: str) -> None:
    (tmp_path / "a.txt").write_text("the content", encoding="utf-8")
    script = [call("read", {"path": "a.txt"}, "call_7", dialect), answer("Done.", dialect)]
    with ScriptedUpstream.in_thread(script) as upstream:
        url = f"{dialect}={upstream.url}/v1"
        done = run_piped(tmp_path, "look", "--quiet", "--upstream", url, "--model", "some-model")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    asked = upstream.requests[1].json()
    result = cast("dict[str, Any]", asked)["input" if dialect == "responses" else "messages"][-1]
    found = json.dumps(result)
    assert "call_7" in found
    assert "the content" in found


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--model", "rehearsal-error-401"), 1, "HTTP 401"),
        (("--model", "rehearsal-length"), 3, "limit of tokens"),
        (("--max-turns", "1"), 3, "limit of turns"),
    ],
)
def test_exit_code_says_how_it_ended(
    tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    (tmp_path / "README.md").write_text("x", encoding="utf-8")
    done = run_piped(tmp_path, "read README.md", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("",), "PROMPT"),
        (("x", "--root", "nowhere"), "--root"),
        (("x", "--max-turns", "0"), "--max-turns"),
        (("x", "--max-seconds", "nan"), "--max-seconds"),
        (("x", "--resume"), "--resume"),
        (("x", "--resume", "20260101-000000-abcdef"), "--resume"),
        (("x", "--upstream", "chat"), "--upstream"),
        (("x", "--upstream", "chat=http://127.0.0.1:1/v1"), "--model"),
        (("x", "--mcp", "nothing"), "--mcp"),
        (("x", "--mcp", "missing.json"), "--mcp"),
        (("x", "--policy", "missing.toml"), "missing.toml"),
        (("x", "--no-sandbox", "--network"), "--network"),
        (("x", "--instructions", "missing.md"), "--instructions"),
        (("x", "--config", "missing.toml"), "missing.toml"),
    ],
)
def test_what_cannot_be_started_says_why_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DRAGOMAN_CONFIG", "DRAGOMAN_MODEL"):
        monkeypatch.delenv(name, raising=False)
    assert main(["run", *arguments]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert says in written.err
    assert len(written.err.splitlines()) == 1


def test_upstream_is_the_one_whose_key_is_in_the_environment_and_its_refusal_is_reported(
    tmp_path: Path,
) -> None:
    refusal = json_reply({"error": {"message": "no such key", "type": "invalid"}}, 401)
    with ScriptedUpstream.in_thread([refusal]) as upstream:
        env = {"OPENAI_API_KEY": "sk-test-1", "OPENAI_BASE_URL": f"{upstream.url}/v1"}
        done = run_piped(tmp_path, "hello", env={**env, "DRAGOMAN_MODEL": "some-model"})
    assert done.returncode == 1
    assert "failed: no such key" in done.stdout
    assert "sk-test-1" not in done.stdout + done.stderr
    assert upstream.requests[0].path == "/v1/responses"
    assert upstream.requests[0].at("model") == "some-model"


def test_second_run_goes_on_with_what_was_said_and_done_in_the_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the content", encoding="utf-8")
    script = [
        call("read", {"path": "a.txt"}),
        answer("First."),
        answer("Second."),
        answer("Third."),
    ]
    with ScriptedUpstream.in_thread(script) as upstream:
        options = upstream_option(upstream)
        assert run_piped(tmp_path, "one", *options).returncode == 0
        done = run_piped(tmp_path, "--resume", "two", *options)
        assert done.returncode == 0, done.stderr
        session = done.stdout.split("session ")[-1].strip()
        other = tmp_path / "other"
        other.mkdir()
        env = {"XDG_STATE_HOME": str(tmp_path / "state")}
        done = run_piped(other, "three", "--resume", session, *options[:2], env=env)
    assert done.returncode == 0, done.stderr
    assert [role for role, _ in spoken(upstream.requests[2])] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert [text for role, text in spoken(upstream.requests[3]) if role == "user"] == [
        "one",
        "two",
        "three",
    ]
    assert upstream.requests[3].at("model") == "some-model"
    assert len([each for each in messages(upstream.requests[3]) if each["role"] == "system"]) == 1


def test_conversations_are_listed(tmp_path: Path) -> None:
    run_piped(tmp_path, "say hello")
    done = run_piped(tmp_path, "--sessions")
    assert done.returncode == 0
    assert done.stdout.rstrip().endswith("say hello")


def test_nothing_is_kept_where_storing_is_off(tmp_path: Path) -> None:
    env = {"DRAGOMAN_STORE_POLICY": "off", "XDG_STATE_HOME": str(tmp_path / "nothing")}
    done = run_piped(tmp_path, "say hello", env=env)
    assert (done.returncode, done.stdout.rstrip().endswith("not kept")) == (0, True), done
    assert not (tmp_path / "nothing").exists()


def test_a_conversation_that_cannot_be_saved_is_not_offered_by_its_id(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    done = run_piped(tmp_path, "say hello", env={"XDG_STATE_HOME": str(tmp_path / "file")})
    assert done.returncode == 0
    assert "this conversation cannot be saved: Not a directory" in done.stdout
    assert done.stdout.rstrip().endswith("not kept")


def test_an_upstream_that_is_down_is_named_once_with_its_address(tmp_path: Path) -> None:
    port = free_port()
    done = run_piped(
        tmp_path, "hello", "--upstream", f"chat=http://127.0.0.1:{port}/v1", "--model", "some-model"
    )
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert len([line for line in lines if str(port) in line]) == 1, done.stdout
    reason = "upstream 'chat' cannot be reached: Connection refused"
    assert [line for line in lines if line.startswith(f"{reason}; asking again in ")]
    assert f"failed: {reason}" in lines


def test_process_that_is_killed_loses_only_the_turn_it_was_in(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the content", encoding="utf-8")

    def script(request: ReceivedRequest) -> ScriptedReply:
        number = len(upstream.requests)
        if number == 1:
            return call("read", {"path": "a.txt"})
        if number == 2:
            killed.append(_kill(tmp_path))
            return json_reply({})
        return answer("Going on.")

    killed: list[int] = []
    with ScriptedUpstream.in_thread(script) as upstream:
        options = upstream_option(upstream)
        done = run_piped(tmp_path, "one", *options)
        assert done.returncode == -signal.SIGKILL
        done = run_piped(tmp_path, "two", "--resume", *options)
    assert done.returncode == 0, done.stderr
    assert [role for role, _ in spoken(upstream.requests[2])] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]


def test_reader_that_leaves_ends_it_without_a_trace(tmp_path: Path) -> None:
    with run_open(tmp_path, "--json", "--model", "rehearsal-slow", "say something long") as process:
        assert process.stdout is not None
        assert b"session_started" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 141


def _kill(folder: Path) -> int:
    """Kill the one that runs in the folder."""
    for link in Path("/proc").glob("[0-9]*/cwd"):
        process = int(link.parent.name)
        try:
            is_ours = link.readlink() == folder and process != os.getpid()
        except OSError:
            continue
        if is_ours:
            os.kill(process, signal.SIGKILL)
            return process
    raise AssertionError("found no process")
