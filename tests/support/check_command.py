"""Runs `dragoman check` and other commands in a folder of their own, and reads the verdicts."""

import os
import subprocess
from pathlib import Path

from commands import run_command


def environment(folder: Path) -> dict[str, str]:
    ours = ("DRAGOMAN_", "OPENAI_", "ANTHROPIC_", "NO_COLOR", "FORCE_COLOR")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**clean, "XDG_STATE_HOME": str(folder / "state")}


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, cwd=folder, env={**environment(folder), **variables})


def verdicts(screen: str) -> dict[str, tuple[str, str]]:
    """Of the lines after the configuration: verdict and detail by upstream."""
    rows = [line.split(maxsplit=2) for line in screen.rpartition("\n\n")[2].splitlines()]
    return {name: (verdict, detail) for name, verdict, detail in rows}
