"""The real Codex CLI and Claude Code, started by `dragoman launch` in front of an upstream of each dialect."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from clients.codex import CodexRun
from clients.model import DIALECTS, Model
from clients.program import Ran, StreamJsonRun, describe, run_program
from clients.script import Call, Dialect, ModelTurn, Script

BINARIES = Path(__file__).parent / "node_modules" / ".bin"
NAME = "qwen3-coder"
FALLBACK = "Model metadata for"
PATCH = "*** Begin Patch\n*** Add File: notes.txt\n+marker-77\n*** End Patch\n"

# What a user may have: another provider, a login, a history, and settings that lead elsewhere.
FILES: Mapping[str, str] = {
    ".codex/config.toml": 'model = "gpt-5.5"\n[model_providers.other]\nname = "other"\nbase_url = "http://127.0.0.1:9/v1"\n',
    ".codex/auth.json": json.dumps({"OPENAI_API_KEY": "sk-mine", "tokens": None}),
    ".codex/history.jsonl": '{"session_id":"1","ts":1,"text":"mine"}\n',
    ".claude/settings.json": json.dumps(
        {"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_AUTH_TOKEN": "mine"}}
    ),
    ".claude/history.jsonl": '{"display":"mine"}\n',
    ".claude.json": json.dumps({"numStartups": 3}),
}


class User:
    """A home with files of the user, and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.state = folder / "state"
        self.work.mkdir()
        for name, text in FILES.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def files(self) -> dict[str, bytes]:
        paths = [path for path in self.home.rglob("*") if path.is_file()]
        return {path.relative_to(self.home).as_posix(): path.read_bytes() for path in paths}

    def launch(self, url: str, dialect: Dialect, *words: str) -> Ran:
        """`words`: options, the client, `--` and its arguments."""
        upstream = ("--upstream", f"{dialect}={url}/v1", "--model", NAME)
        command = [sys.executable, "-m", "dragoman", "launch", *upstream, *words]
        environment = {
            "PATH": f"{BINARIES}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.state),
            "DRAGOMAN_STORE_URL": "memory:",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
        }
        return run_program(command, environment, self.work)


def codex(user: User, url: str, dialect: Dialect, *options: str) -> CodexRun:
    words = ("--json", "--skip-git-repo-check", "--sandbox", "danger-full-access", "run it")
    ran = user.launch(url, dialect, *options, "codex", "--", "exec", *words)
    events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
    return CodexRun(ran.code, events, ran.stderr)


def claude(user: User, url: str, dialect: Dialect, *options: str) -> StreamJsonRun:
    words = (
        "-p",
        "run it",
        "--output-format",
        "stream-json",
        "--verbose",
        "--allowedTools",
        "Bash",
    )
    ran = user.launch(url, dialect, *options, "claude", "--", *words)
    events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
    return StreamJsonRun(ran.code, events, ran.stderr)


def shell(command: str) -> Call:
    return Call("exec_command", json.dumps({"cmd": command}))


BASH = Call("Bash", json.dumps({"command": "echo marker-77", "description": "echo"}))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_codex_runs_a_command_and_knows_its_model(
    model_server: tuple[Model, str], tmp_path: Path, dialect: Dialect
) -> None:
    model, url = model_server
    model.play(Script((ModelTurn("Ah.", (shell("echo marker-77"),)),)))
    user = User(tmp_path)
    before = user.files()
    run = codex(user, url, dialect)
    report = describe(run, model)
    assert (run.code, run.errors, model.objections) == (0, [], []), report
    assert "marker-77" in run.text, report
    assert [heard.dialect for heard in model.heard] == [dialect] * 2, report
    assert {heard.conversation.model for heard in model.heard} == {NAME}
    # A model that Codex does not know costs a warning and the tool for patches.
    assert run.items("error") == [], report
    assert FALLBACK not in run.stderr, report
    assert "apply_patch" in {tool.name for tool in model.heard[0].conversation.tools}, report
    assert user.files() == before


def test_codex_applies_a_patch(model_server: tuple[Model, str], tmp_path: Path) -> None:
    model, url = model_server
    model.play(Script((ModelTurn(calls=(Call("apply_patch", PATCH, custom=True),)),)))
    user = User(tmp_path)
    run = codex(user, url, "chat")
    assert (run.code, model.objections) == (0, []), describe(run, model)
    assert (user.work / "notes.txt").read_text(encoding="utf-8") == "marker-77\n"


def test_codex_shows_no_warning_to_a_person(
    model_server: tuple[Model, str], tmp_path: Path
) -> None:
    model, url = model_server
    model.play(Script((ModelTurn(calls=(shell("echo marker-77"),)),)))
    words = ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "run it")
    ran = User(tmp_path).launch(url, "chat", "codex", "--", *words)
    assert (ran.code, b"marker-77" in ran.stdout) == (0, True), ran
    assert f"model: {NAME}" in ran.stderr
    assert FALLBACK not in ran.stderr + ran.stdout.decode()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_claude_code_runs_a_command_and_searches_for_tools(
    model_server: tuple[Model, str], tmp_path: Path, dialect: Dialect
) -> None:
    model, url = model_server
    model.play(Script((ModelTurn("Ah.", (BASH,)),)))
    user = User(tmp_path)
    before = user.files()
    run = claude(user, url, dialect)
    report = describe(run, model)
    assert (run.code, run.is_error, model.objections) == (0, False, []), report
    assert run.text == "Results: | marker-77", report
    assert {heard.conversation.model for heard in model.heard} == {NAME}
    assert "ToolSearch" in {tool.name for tool in model.heard[0].conversation.tools}, report
    assert user.files() == before


@pytest.mark.parametrize("client", [codex, claude])
def test_a_shared_home_keeps_settings_and_login(
    model_server: tuple[Model, str], tmp_path: Path, client: object
) -> None:
    """The client adds its sessions there, as it always does."""
    model, url = model_server
    is_codex = client is codex
    call = shell("echo marker-77") if is_codex else BASH
    model.play(Script((ModelTurn(calls=(call,)),)))
    user = User(tmp_path)
    run = (codex if is_codex else claude)(user, url, "chat", "--share-home")
    assert (run.code, "marker-77" in run.text) == (0, True), describe(run, model)
    after = user.files()
    kept = [name for name in FILES if name != ".claude.json"]
    assert {name: after[name].decode() for name in kept} == {name: FILES[name] for name in kept}
    folder = ".codex/sessions/" if is_codex else ".claude/projects/"
    assert any(name.startswith(folder) for name in after)


@pytest.mark.parametrize("client", ["codex", "claude"])
def test_the_exit_code_is_the_clients(
    model_server: tuple[Model, str], tmp_path: Path, client: str
) -> None:
    _, url = model_server
    ran = User(tmp_path).launch(url, "chat", client, "--", "--no-such-option")
    assert ran.code == (2 if client == "codex" else 1), ran
    assert "no-such-option" in ran.stderr


def test_a_profile_that_connect_writes_is_one_that_codex_takes(
    model_server: tuple[Model, str], gateway_url: str, tmp_path: Path
) -> None:
    model, _ = model_server
    model.play(Script((ModelTurn(calls=(shell("echo marker-77"),)),)))
    user = User(tmp_path)
    environment = {
        "PATH": f"{BINARIES}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(user.home),
        "XDG_STATE_HOME": str(user.state),
    }
    connect = [sys.executable, "-m", "dragoman", "connect", "codex", "--write"]
    connect += ["--url", gateway_url, "--model", "to-chat-m"]
    before = user.files()
    written = run_program(connect, environment, user.work)
    assert written.code == 0, written
    words = ["--skip-git-repo-check", "--sandbox", "danger-full-access", "run it"]
    command = [str(BINARIES / "codex"), "-p", "dragoman", "exec", *words]
    ran = run_program(command, environment, user.work)
    assert (ran.code, b"marker-77" in ran.stdout) == (0, True), ran
    assert {name: user.files()[name] for name in before} == before
