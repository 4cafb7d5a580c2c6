"""A driver process that runs jobs one after the other: SDKs take longer to load than to run."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

__all__ = ("COMMANDS", "NODE", "Seen", "SeenByClient", "Worker")

HERE = Path(__file__).parent
# Newer than distributions have, for those who need it; it comes from package-lock.json for the usual platforms.
NODE = next((str(path) for path in HERE.glob("node_modules/node-*/bin/node")), "node")
# The drivers, by where their packages are installed.
COMMANDS = {
    "node": [NODE, "drivers/worker.mjs"],
    "langchain": [".venv/langchain/bin/python", "drivers/worker.py"],
    "agents": [".venv/agents/bin/python", "drivers/worker.py"],
}
# The longest job has six turns and, where the SDK retries, waits of half a second in between. The first one loads a framework, for
# which a busy machine takes its time.
JOB_SECONDS = 120.0


@dataclass(frozen=True)
class SeenByClient:
    """A call as the client understood it. `text` is None where the SDK shows only the value."""

    id: str | None
    name: str
    text: str | None
    value: Any


@dataclass(frozen=True)
class Seen:
    """What the client saw: the text of each turn, the calls it made, the error it raised."""

    texts: list[str]
    calls: list[SeenByClient]
    error: dict[str, Any] | None


class Worker:
    """One driver process. It is started by the first job and again after a job that had to be stopped."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, job: dict[str, Any]) -> Seen:
        if self._process is None:
            # The driver has packages of its own: none of ours.
            ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            self._process = subprocess.Popen(
                self._command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ours
            )
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise AssertionError("the driver has no pipes")
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        watchdog = Timer(JOB_SECONDS, process.kill)
        watchdog.start()
        line = process.stdout.readline()
        watchdog.cancel()
        if not line:
            self.close()
            what = (
                f"{job['client']}/{job['mode']} gave no answer within {JOB_SECONDS} s, or crashed"
            )
            return Seen([], [], {"kind": "driver", "status": None, "message": what})
        try:
            report = json.loads(line)
        except ValueError as error:
            raise AssertionError(f"expected a report of the driver, got {line!r}") from error
        calls = [SeenByClient(**call) for call in report["calls"]]
        return Seen(report["texts"], calls, report["error"])

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
