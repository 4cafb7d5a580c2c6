"""The shell on real processes: limits, the environment, and that nothing of a command is ever left behind."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from dragoman._json import dumps_document
from dragoman.engine.builtin import (
    Root,
    Sandbox,
    ShellTool,
    find_sandbox,
    shell,
    without_sandbox,
)
from dragoman.engine.builtin.shell import BoundedOutput, command_environment, is_secret
from dragoman.engine.tools import Invocation
from running_tools import call_of, error_of, open_files, processes_with, run_tool, said, stuck

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nowhere"}


def shell_below(root: Path, sandbox: Sandbox | None = None) -> ShellTool:
    return ShellTool(Root(root), sandbox=sandbox or without_sandbox(root), environment=ENVIRONMENT)


def around(root: Path) -> list[Sandbox]:
    """Without a sandbox, and with one where it works: what holds for the one holds for the other."""
    found = find_sandbox(root)
    return [without_sandbox(root), *([found] if found.is_on else [])]


def test_output_and_exit_code_come_back(tmp_path: Path) -> None:
    for sandbox in around(tmp_path):
        output = run_tool(shell_below(tmp_path, sandbox), command="echo out; echo err >&2; exit 3")
        assert said(output).startswith("out\nerr\n[exit code 3, ")
        assert output.is_error


def test_a_command_of_words_is_run_as_it_is(tmp_path: Path) -> None:
    for sandbox in around(tmp_path):
        output = run_tool(shell_below(tmp_path, sandbox), command=["echo", "$HOME; ls", "*"])
        assert said(output).startswith("$HOME; ls *\n[exit code 0")
        assert not output.is_error


def test_it_runs_in_the_folder_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for sandbox in around(tmp_path):
        tool = shell_below(tmp_path, sandbox)
        assert said(run_tool(tool, command="pwd")).startswith(f"{tmp_path}\n")
        assert said(run_tool(tool, command="pwd", workdir="below")).startswith(
            f"{tmp_path}/below\n"
        )


@pytest.mark.parametrize("workdir", ["..", "/", "/etc", "link", "below/../.."])
def test_the_folder_is_below_the_root(tmp_path: Path, workdir: str) -> None:
    root = tmp_path / "root"
    (root / "below").mkdir(parents=True)
    (root / "link").symlink_to("/")
    assert error_of(shell_below(root), command="pwd", workdir=workdir)


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": ""},
        {"command": []},
        {"command": " "},
        {"command": "a\0b"},
        {"command": "x" * 200_000},
        {"command": "true", "timeout": 0},
        {"command": "true", "timeout": -1},
        {"command": 3},
        {"command": ["a", 3]},
        {"command": "true", "user": "root"},
        {},
        {"command": ["/none/such"]},
        {"command": "true", "workdir": "none"},
    ],
)
def test_what_cannot_be_run_is_reported(tmp_path: Path, arguments: dict[str, object]) -> None:
    assert error_of(shell_below(tmp_path), **arguments)


def test_there_is_no_input(tmp_path: Path) -> None:
    for sandbox in around(tmp_path):
        assert said(
            run_tool(shell_below(tmp_path, sandbox), command="cat; read x; echo done")
        ).startswith("done\n")


def test_a_hanging_command_is_ended_in_time(tmp_path: Path) -> None:
    for sandbox in around(tmp_path):
        output = run_tool(shell_below(tmp_path, sandbox), command="sleep 61.2507319", timeout=0.3)
        assert "timed out after 0.3 s" in said(output)
        assert output.is_error
        assert not stuck("61.2507319")


STUBBORN = """
trap '' TERM
(trap '' TERM; while :; do sleep 0.06250731; done) &
setsid sh -c 'trap "" TERM; while :; do sleep 0.06250732; done' &
(setsid sh -c 'trap "" TERM; (while :; do sleep 0.06250733; done) & wait' &)
echo started
wait
"""


def test_nothing_is_left_of_a_stubborn_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "GRACE_SECONDS", 0.2)
    for sandbox in around(tmp_path):
        output = run_tool(shell_below(tmp_path, sandbox), command=STUBBORN, timeout=2.5)
        assert "started" in said(output)
        assert "timed out" in said(output)
        assert not stuck("0.0625073")


def test_what_stays_in_the_background_ends_with_the_command(tmp_path: Path) -> None:
    for sandbox in around(tmp_path):
        command = "sleep 62.2507311 & setsid sleep 62.2507312 & echo done"
        assert said(run_tool(shell_below(tmp_path, sandbox), command=command)).startswith("done\n")
        assert not stuck("62.250731")


def test_a_command_may_put_its_things_in_order(tmp_path: Path) -> None:
    command = "trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    for sandbox in around(tmp_path):
        output = run_tool(shell_below(tmp_path, sandbox), command=command, timeout=2.5)
        assert "ready\n" in said(output)
        assert "tidied\n" in said(output)


def test_a_cancelled_command_is_gone_before_the_cancellation_goes_on(tmp_path: Path) -> None:
    for sandbox in around(tmp_path):
        tool = shell_below(tmp_path, sandbox)
        before = open_files()
        reports: list[str] = []

        async def go(tool: ShellTool, reports: list[str]) -> None:
            text = dumps_document(
                {"command": "echo up; sleep 63.2507311 & sleep 63.2507312"}
            ).decode()
            task = asyncio.ensure_future(tool.run(Invocation(call_of(tool, text), reports.append)))
            for _ in range(3000):
                if reports:
                    break
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not processes_with("63.250731")

        asyncio.run(go(tool, reports))
        assert reports == ["up"]
        assert open_files() <= before


def test_a_command_cancelled_twice_is_gone_all_the_same(tmp_path: Path) -> None:
    tool = shell_below(tmp_path)

    async def go() -> None:
        text = dumps_document(
            {"command": "trap '' TERM; while :; do sleep 0.06310731; done"}
        ).decode()
        task = asyncio.ensure_future(tool.run(Invocation(call_of(tool, text), lambda _: None)))
        for _ in range(3000):
            if processes_with("0.06310731"):
                break
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not processes_with("0.06310731")

    asyncio.run(go())


def test_a_flooding_command_keeps_its_head_and_its_tail(tmp_path: Path) -> None:
    for sandbox in around(tmp_path):
        command = "echo first; yes | head -c 30000000; echo last"
        text = said(run_tool(shell_below(tmp_path, sandbox), command=command))
        assert text.startswith("first\ny\n")
        assert "last\n[exit code 0" in text
        assert "bytes left out" in text
        assert len(text) < 64_000


def test_a_command_that_floods_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "MAX_FLOOD", 1_000_000)
    output = run_tool(shell_below(tmp_path), command="yes flood-of-words-0731")
    assert "wrote too much" in said(output)
    assert not stuck("flood-of-words-0731")


def test_a_crashing_command_is_reported_by_its_signal(tmp_path: Path) -> None:
    output = run_tool(shell_below(tmp_path), command=["sh", "-c", "kill -SEGV $$"])
    assert "was ended by signal 11" in said(output)
    assert output.is_error


def test_bytes_that_are_no_text_are_shown_nevertheless(tmp_path: Path) -> None:
    assert "\ufffd" in said(run_tool(shell_below(tmp_path), command="printf '\\377\\n'"))


def test_no_file_and_no_thread_stays(tmp_path: Path) -> None:
    tool = shell_below(tmp_path)
    run_tool(tool, command="true")
    before, threads = open_files(), threading.active_count()
    for _ in range(5):
        run_tool(tool, command="echo x; exit 1")
        error_of(tool, command=["/none/such"])
    assert open_files() <= before
    # A thread ends a moment after it has reported its result.
    for _ in range(3000):
        if threading.active_count() <= threads:
            break
        time.sleep(0.01)
    assert threading.active_count() <= threads


def test_secrets_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "x1", "GH_TOKEN": "x2", "MY_SECRET_THING": "x3",
             "DB": "postgres://me:x4@host/db", "PLAIN": "seen", "SSH_AUTH_SOCK": "x5"}  # fmt: skip
    for sandbox in around(tmp_path):
        tool = ShellTool(Root(tmp_path), sandbox=sandbox, environment=command_environment(given))
        text = said(run_tool(tool, command="env"))
        assert "PLAIN=seen" in text
        assert "TERM=dumb" in text
        assert not any(f"x{number}" in text for number in range(1, 6))


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("ANTHROPIC_API_KEY", "", True),
        ("aws_secret_access_key", "x", True),
        ("NPM_TOKEN", "x", True),
        ("DB_PASSWORD", "x", True),
        ("PGPASSFILE", "x", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/x", True),
        ("SENTRY_DSN", "x", True),
        ("GITHUB_PAT", "x", True),
        ("MYSQL_PWD", "x", True),
        ("AWS_CREDS", "x", True),
        ("SLACK_WEBHOOK_URL", "https://host/x", True),
        ("ANYTHING", "Server=db;User=me;Password=x", True),
        ("ANYTHING", "ghu_abcdef", True),
        ("ANYTHING", "dgk_abcdef", True),
        ("ANYTHING", "ASIAABCDEFGHIJKLMNOP", True),
        ("ANYTHING", "sk-abcdef", True),
        ("ANYTHING", "https://user:pass@host/", True),
        ("ANYTHING", "eyJhbGciOiJIUzI1NiJ9.x", True),
        ("PATH", "/usr/bin", False),
        ("HOME", "/root", False),
        ("LANG", "C", False),
        ("PWD", "/", False),
        ("OLDPWD", "/", False),
        ("ANYTHING", "password= or none", False),
        ("EDITOR", "vi", False),
        ("URL", "https://host/path:with@signs", False),
        ("VIRTUAL_ENV", "/x", False),
    ],
)
def test_secrets_are_reported_by_name_and_by_value(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) is secret


def test_what_looks_secret_can_be_passed_by_name() -> None:
    assert command_environment({"A_KEY": "1", "B_KEY": "2"}, ["A_KEY"])["A_KEY"] == "1"
    assert "B_KEY" not in command_environment({"A_KEY": "1", "B_KEY": "2"}, ["A_KEY"])


def test_the_built_in_kind_is_run_by_the_same_tool(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    tool = ShellTool(
        Root(tmp_path),
        sandbox=without_sandbox(tmp_path),
        environment=ENVIRONMENT,
        kind="local_shell",
    )
    assert tool.offer.declaration.kind == "local_shell"
    output = run_tool(
        tool,
        type="exec",
        command=["sh", "-c", "pwd"],
        working_directory="below",
        timeout_ms=5000,
        env={},
        user=None,
    )
    assert said(output).startswith(f"{tmp_path}/below\n")
    assert "local_shell cannot take" in error_of(tool, type="exec")
    (subject,) = tool.subjects(call_of(tool, '{"command":["bash","-lc","rm x"]}'))
    assert subject.text == "rm x"


def test_the_longest_time_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MAX_SECONDS", 0.2)
    assert "timed out after 0.2 s" in said(
        run_tool(shell_below(tmp_path), command="sleep 64.2507319", timeout=1e9)
    )
    assert not stuck("64.2507319")


def test_output_in_pieces_is_bounded_as_output_in_one() -> None:
    for size in (1, 7, 100, 10_000):
        output = BoundedOutput(100)
        data = bytes(ord("a") + number % 26 for number in range(5000))
        for start in range(0, len(data), size):
            output.add(data[start : start + size])
        text = output.text()
        assert text == f"{data[:50].decode()}\n… 4,900 bytes left out …\n{data[-50:].decode()}"
    small = BoundedOutput(100)
    small.add(b"x" * 60)
    small.add(b"y" * 40)
    assert small.text() == "x" * 60 + "y" * 40
