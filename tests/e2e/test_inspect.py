"""`dragoman inspect` as a user runs it: the real command, in a process of its own, on recorded answers."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"
COMMAND = (sys.executable, "-m", "dragoman", "inspect")
WAIT = 60
"""Seconds a run may take; far more than it needs, so that only a hang fails."""

CALLS = [("get_weather", '{"city":"Paris"}'), ("get_time", '{"zone":"Europe/Paris"}')]


def run(
    *arguments: str, stdin: bytes = b"", variables: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    return subprocess.run(
        (*COMMAND, *arguments),
        input=stdin,
        capture_output=True,
        env={**kept, **(variables or {})},
        timeout=WAIT,
        check=False,
    )


def findings(sample: str, *options: str) -> tuple[int, dict[str, object]]:
    """The exit code and the JSON object."""
    done = run("--json", *options, str(SAMPLES / sample))
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1
    return done.returncode, json.loads(done.stdout)


def calls_of(found: dict[str, object]) -> list[dict[str, object]]:
    calls = found["calls"]
    assert isinstance(calls, list)
    return calls


def kinds_of(found: dict[str, object]) -> list[str]:
    problems = found["problems"]
    assert isinstance(problems, list)
    return [problem["kind"] for problem in problems]
