"""A client that is a program: run to its end, or stopped with all it has started."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ("Ran", "run_program")

RUN_SECONDS = 90.0


@dataclass(frozen=True)
class Ran:
    """How it ended and what it printed."""

    code: int
    stdout: bytes
    stderr: str


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
