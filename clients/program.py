"""A client that is a program: run to its end, or stopped with all it has started."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from clients.model import Model

__all__ = ("RUN_SECONDS", "Ran", "StreamJsonRun", "describe", "run_program")

RUN_SECONDS = 90.0


@dataclass(frozen=True)
class Ran:
    """How it ended and what it printed."""

    code: int
    stdout: bytes
    stderr: str


class Run(Protocol):
    @property
    def code(self) -> int: ...
    @property
    def events(self) -> Sequence[object]: ...
    @property
    def stderr(self) -> str: ...


@dataclass(frozen=True)
class StreamJsonRun:
    """What a program printed in the form that Claude Code calls `stream-json`: every message, the last one the result."""

    code: int
    events: list[dict[str, Any]]
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        ends = [event for event in self.events if event.get("type") == "result"]
        return ends[-1] if ends else {"is_error": True, "result": self.stderr}

    @property
    def text(self) -> str:
        return str(self.result.get("result", ""))

    @property
    def is_error(self) -> bool:
        return bool(self.result.get("is_error"))

    def blocks(self, kind: str) -> list[dict[str, Any]]:
        """What the model said, as the program understood it."""
        return [
            block
            for event in self.events
            if event.get("type") == "assistant"
            for block in event["message"]["content"]
            if block["type"] == kind
        ]


def describe(run: Run, model: Model) -> str:
    """What a program printed, and what the model was sent."""
    lines = [
        f"exit code {run.code}, {run.stderr[-2000:]}",
        *(str(each)[:1000] for each in run.events),
    ]
    lines += [f"objections: {model.objections}"]
    lines += [f"{heard.request.path}: {heard.text()[-3000:]}" for heard in model.heard]
    return "\n".join(lines)


def run_program(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Ran:
    """Raises AssertionError when it does not end in time."""
    # A session of its own, because launchers start the real program as a child.
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        said = (stdout + stderr)[-2000:].decode(errors="replace")
        raise AssertionError(f"no end within {RUN_SECONDS} s; it said: {said}") from error
    return Ran(process.returncode, stdout, stderr.decode(errors="replace"))
