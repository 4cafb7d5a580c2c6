"""`scripts/venv` decides what to install: a stand-in for Python writes down what it is asked to, and installs nothing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]

PYTHON = """#!/usr/bin/env bash
case "$1 $2" in
    "-c import sys"*) echo "$0" ;;
    "-c "*) ;;
    "--version ") echo "Python 3.11.0" ;;
    "-m venv") echo "make $3" >>"$LOG"; mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    "-m pip") echo "install ${@: -1}" >>"$LOG"; echo "Collecting a"; [ ! -e broken ] || { echo "ERROR: no such pin"; exit 1; } ;;
    *) exit 9 ;;
esac
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The script with the locks, in a folder of its own."""
    for name in (
        "scripts/venv",
        "requirements/dev.txt",
        "requirements/serve.txt",
        "pyproject.toml",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    python = tmp_path / "python"
    python.write_text(PYTHON, encoding="utf-8")
    python.chmod(0o755)
    return tmp_path


def run(folder: Path, *arguments: str, code: int = 0) -> tuple[list[str], str]:
    """What Python was asked to do in this run, and what the script said."""
    log = folder / "log"
    log.write_text("", encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHON": str(folder / "python"),
        "LOG": str(log),
    }
    done = subprocess.run(
        (str(folder / "scripts/venv"), *arguments),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return log.read_text(encoding="utf-8").splitlines(), done.stderr


SERVE = ["make .venv", "install requirements/serve.txt", "install ."]
DEV = ["make .venv", "install requirements/dev.txt", "install ."]


def test_serving_installs_what_serving_needs_once(copy: Path) -> None:
    steps, said = run(copy, "serve")
    assert steps == SERVE
    assert "23 pinned packages" in said
    assert said.endswith("ready: .venv/bin/dragoman\n")
    assert run(copy, "serve") == ([], "")


def test_the_rest_is_added_to_an_environment_that_serves(copy: Path) -> None:
    run(copy, "serve")
    steps, said = run(copy)
    assert steps == ["install requirements/dev.txt"]
    assert "adding what tests and checks need" in said
    assert run(copy) == ([], "")


def test_an_environment_for_tests_serves_as_it_is(copy: Path) -> None:
    assert run(copy)[0] == DEV
    assert run(copy, "serve") == ([], "")


@pytest.mark.parametrize(("arguments", "steps"), [(("serve",), SERVE), ((), DEV)])
def test_another_lock_makes_the_environment_anew(
    copy: Path, arguments: tuple[str, ...], steps: list[str]
) -> None:
    run(copy, *arguments)
    for lock in (copy / "requirements").iterdir():
        lock.write_text(lock.read_text(encoding="utf-8") + "# later\n", encoding="utf-8")
    (copy / ".venv" / "left-over").touch()
    assert run(copy, *arguments)[0] == steps
    assert not (copy / ".venv" / "left-over").exists()


def test_a_failed_installation_is_shown_and_tried_again(copy: Path) -> None:
    (copy / "broken").touch()
    steps, said = run(copy, "serve", code=1)
    assert steps == SERVE[:2]
    assert "ERROR: no such pin" in said
    (copy / "broken").unlink()
    assert run(copy, "serve")[0] == SERVE


def test_an_unknown_argument_is_refused(copy: Path) -> None:
    assert run(copy, "server", code=2) == (
        [],
        "venv: expected serve or no argument, got server\n",
    )
