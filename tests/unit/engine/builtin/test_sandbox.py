"""The sandbox: what holds in it, and that it is said where there is none. Set-up installs bubblewrap; whether the kernel
permits it is found out, and the machine's answer decides which half of each test is meant."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from dragoman.engine.builtin import Root, ShellTool, find_sandbox, terminal_tools, without_sandbox
from dragoman.errors import ConfigError
from running_tools import run_tool, said

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def shell_in_sandbox(root: Path, *, network: bool = False) -> ShellTool:
    return ShellTool(
        Root(root), sandbox=find_sandbox(root, network=network), environment=ENVIRONMENT
    )


def test_only_the_root_and_a_private_tmp_can_be_written(tmp_path: Path) -> None:
    root, beside = tmp_path / "root", tmp_path / "beside"
    root.mkdir()
    beside.mkdir()
    tool = shell_in_sandbox(root)
    command = f"echo in > {root}/a; echo out > {beside}/b; echo out > /etc/dragoman-test; echo t > /tmp/dragoman-test && cat /tmp/dragoman-test"
    if not tool.sandbox.is_on:
        assert "without a sandbox" in tool.sandbox.summary
        return
    text = said(run_tool(tool, command=command))
    assert (root / "a").read_text(encoding="utf-8") == "in\n"
    assert not list(beside.iterdir())
    assert not Path("/etc/dragoman-test").exists()
    assert "t\n[exit code 0" in text
    assert not Path("/tmp/dragoman-test").exists()


def test_other_processes_are_out_of_sight(tmp_path: Path) -> None:
    tool = shell_in_sandbox(tmp_path)
    text = said(
        run_tool(tool, command=f"kill -0 {os.getpid()} && echo seen; ls /proc | grep -c '^[0-9]'")
    )
    assert ("seen" in text) is not tool.sandbox.is_on


def test_there_is_no_network_unless_it_is_allowed(tmp_path: Path) -> None:
    command = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print(1+1)\""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=lambda: _accept(server), daemon=True)
        accepting.start()
        text = command.format(port=server.getsockname()[1])
        inside = shell_in_sandbox(tmp_path)
        closed = said(run_tool(inside, command=text))
        opened = said(run_tool(shell_in_sandbox(tmp_path, network=True), command=text))
    assert opened.startswith("2\n")
    assert closed.startswith("2\n") is not inside.sandbox.is_on


def _accept(server: socket.socket) -> None:
    try:
        while True:
            server.accept()[0].close()
    except OSError:
        return


def test_places_of_secrets_are_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    root = home / "project"
    (home / ".ssh").mkdir(parents=True)
    root.mkdir()
    (home / ".ssh/id").write_text("the key", encoding="utf-8")
    (home / ".netrc").write_text("the password", encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    for place in (root, home):
        tool = shell_in_sandbox(place)
        text = said(run_tool(tool, command=f"cat {home}/.ssh/id {home}/.netrc"))
        assert ("the key" in text) is not tool.sandbox.is_on
        assert ("the password" in text) is not tool.sandbox.is_on


def test_the_file_system_cannot_be_made_writable_again(tmp_path: Path) -> None:
    tool = shell_in_sandbox(tmp_path)
    if tool.sandbox.is_on:
        text = said(
            run_tool(
                tool,
                command="mount -o remount,rw / && echo remounted; grep CapEff /proc/self/status",
            )
        )
        assert "remounted" not in text
        assert "CapEff:\t0000000000000000" in text


def test_where_it_is_not_installed_that_is_said(tmp_path: Path) -> None:
    sandbox = find_sandbox(tmp_path, program="no-such-bubblewrap")
    assert not sandbox.is_on
    assert sandbox.summary == "Commands run without a sandbox (bubblewrap is not installed)."
    tool = ShellTool(Root(tmp_path), sandbox=sandbox, environment=ENVIRONMENT)
    assert sandbox.summary in (tool.offer.declaration.description or "")
    assert said(run_tool(tool, command="echo works")).startswith("works\n")


def test_where_it_is_not_permitted_that_is_said(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2\nexit 1\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    sandbox = find_sandbox(tmp_path, program=str(program))
    assert not sandbox.is_on
    assert "not permitted here: bwrap: No permissions" in sandbox.summary


def test_one_that_is_required_and_missing_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="a sandbox is required"):
        terminal_tools(tmp_path, sandbox="required")
    assert not terminal_tools(tmp_path).sandbox.is_on


def test_turned_off_is_said() -> None:
    assert "it is turned off" in without_sandbox(Path("/")).summary
