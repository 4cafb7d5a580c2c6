"""Processes under measurement: started, pinned, waited for, read from /proc and ended. Linux only.

CPU time comes from the process CPU clock (all threads; children are added): it does not depend on how busy the machine
is the way wall time does. Memory is PSS, so that pages shared between workers count once.
"""

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_CPUCLOCK_SCHED = 2
"""Linux' make_process_cpuclock: the clock id of another process' CPU time."""


def tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found: list[int] = []
    todo = [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        for children in Path(f"/proc/{current}/task").glob("*/children"):
            try:
                todo += map(int, children.read_text(encoding="ascii").split())
            except OSError:
                continue  # a thread that just ended
    return found


def cpu_ns(pid: int) -> int:
    """CPU nanoseconds used so far by the process and its descendants."""
    total = 0
    for each in tree(pid):
        try:
            total += time.clock_gettime_ns((~each << 3) | _CPUCLOCK_SCHED)
        except OSError:
            continue
    return total


def pss_kib(pid: int) -> int:
    """Proportional resident memory of the process and its descendants."""
    total = 0
    for each in tree(pid):
        try:
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:")
    return total


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def raise_file_limit() -> None:
    """A thousand streams are two thousand sockets in a proxy; the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


def pin(pid: int, *, is_target: bool) -> None:
    """What is measured runs on the first core we may use, the mock and the load on the second. One core: no pinning."""
    cores = sorted(os.sched_getaffinity(os.getppid()))
    if len(cores) > 1:
        os.sched_setaffinity(pid, {cores[0] if is_target else cores[1]})


class Service:
    """A child process that listens on a port."""

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        is_target: bool = True,
    ) -> None:
        self.port = port
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self.pid = self._process.pid
        pin(self.pid, is_target=is_target)

    def wait_ready(self, seconds: float = _START_SECONDS) -> None:
        """Raises RuntimeError with the end of its log if it does not listen in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        tail = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"expected a listener on port {self.port}; none came. Its log:\n{tail}")

    def stop(self) -> None:
        """Ends the process and what it started."""
        if self._process.poll() is not None:
            return
        os.killpg(self.pid, signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
