"""`dragoman completion`, in a real bash; and that the scripts of all shells know every command and option."""

import os
import pty
import re
import select
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest

from commands import run_command
from dragoman.cli import make_parser
from dragoman.cli.completion import commands_of, fish_script, zsh_script

SCRIPTS = sysconfig.get_path("scripts")
WAIT = 60.0


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{SCRIPTS}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", **more}


def script(folder: Path, shell: str) -> str:
    done = run_command("completion", shell, cwd=folder, env=environment(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout


def replies(folder: Path, *words: str, **more: str) -> list[str]:
    """What bash offers for the last of the words."""
    (folder / "script").write_text(script(folder, "bash"), encoding="utf-8")
    program = (
        'source ./script; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dragoman; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-uo", "pipefail", "-c", program, "bash", *words],
        cwd=folder,
        env=environment(folder, **more),
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("la",), ["launch"]),
        (("--v",), ["--version"]),
        (("launch", "c"), ["codex", "claude"]),
        (("launch", "--up"), ["--upstream"]),
        (("launch", "--upstream", "ch"), ["chat=", "chatgpt-codex"]),
        (("serve", "--log-level", ""), ["debug", "info", "warning", "error"]),
        (("serve", "--log-level", "=", "d"), ["debug"]),
        (("connect", "cl"), ["claude-code"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("launch", "codex", "--", "--"), []),
        (("serve", "--port", ""), []),
        (("run", "--model", "rehearsal-pa"), ["rehearsal-parallel"]),
        # A value that is the name of a command is no command.
        (("connect", "codex", "--m"), ["--model"]),
    ],
)
def test_bash_completes(tmp_path: Path, words: tuple[str, ...], offered: list[str]) -> None:
    assert replies(tmp_path, "dragoman", *words) == offered


def test_every_command_and_option_is_offered_by_bash(tmp_path: Path) -> None:
    root, *others = commands_of(make_parser())
    assert set(replies(tmp_path, "dragoman", "")) >= {each.name for each in others}
    for command in others:
        names = {name for word in command.options for name in word.names}
        assert set(replies(tmp_path, "dragoman", command.name, "-")) == names
    assert {name for word in root.options for name in word.names} >= {"--help", "--version"}


def test_models_of_a_configuration_are_offered_without_trusting_it(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(
        """
[upstreams.theirs]
kind = "chat"
base_url = "https://models.example/v1"
api_key_env = "MINE"
[[mcp]]
name = "evil"
command = ["/bin/sh", "-c", "touch started"]
[[routes]]
model = "their-model"
upstream = "theirs"
[[routes]]
model = "$(touch started)"
upstream = "theirs"
[[routes]]
model = "`touch started`"
upstream = "theirs"
[[routes]]
model = "$(touch${IFS}started)"
upstream = "theirs"
[[routes]]
model = "their-other;touch${IFS}started"
upstream = "theirs"
""",
        encoding="utf-8",
    )
    assert replies(tmp_path, "dragoman", "launch", "--model", "th") == ["their-model"]
    replies(tmp_path, "dragoman", "launch", "--model", "")
    assert not (tmp_path / "started").exists()


def test_a_broken_configuration_offers_no_models_and_no_noise(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text("[[[", encoding="utf-8")
    assert replies(tmp_path, "dragoman", "launch", "--model", "") == []


def test_a_person_completes_in_an_interactive_bash(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text(f"PS1='> '\n{script(tmp_path, 'bash')}", encoding="utf-8")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "--rcfile", "rc", "-i"],
        cwd=tmp_path,
        env=environment(tmp_path, TERM="dumb"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    written = ""

    def until(pattern: str) -> None:
        nonlocal written
        deadline = time.monotonic() + WAIT
        while not re.search(pattern, written):
            assert time.monotonic() < deadline, written
            if select.select([ours], [], [], 0.1)[0]:
                written += os.read(ours, 65536).decode("utf-8", "replace")

    try:
        until("> ")
        os.write(ours, b"dragoman lau\tcl\t--mo")
        until(r"dragoman launch claude --mo")
        os.write(ours, b"\x15dragoman launch --upstream resp\t")
        until("--upstream responses=")
    finally:
        process.kill()
        process.wait(WAIT)
        os.close(ours)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_know_every_command_and_option(tmp_path: Path, shell: str) -> None:
    text = script(tmp_path, shell)
    _, *others = commands_of(make_parser())
    for command in others:
        assert re.search(rf"\b{command.name}\b", text)
        for word in command.options:
            for name in word.names:
                shown = name if shell == "zsh" else re.sub("^--", "-l ", name)
                assert shown in text or f"-s {name[1:]}" in text
    assert text == (zsh_script if shell == "zsh" else fish_script)(commands_of(make_parser()))


def test_a_shell_must_be_named(tmp_path: Path) -> None:
    done = run_command("completion", cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 2
    assert "expected a SHELL: bash, zsh, fish" in done.stderr
