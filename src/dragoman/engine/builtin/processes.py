"""A command run to its end, within bounds, with nothing of it left behind.

It is the head of a session of its own, has no input, and its output and errors come in one stream. When it ends, runs out of
time, floods or is stopped, its whole process group is told to end (SIGTERM), and killed after a grace. A child that made a
session of its own to escape is found by a mark in its environment (where there is a /proc to look in) and ended likewise.

Blocking: it belongs in a thread. That thread must live as long as the command does: a sandbox dies with it.
"""

import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal, cast

from msgspec import Struct

from dragoman.engine.builtin.bounded import BoundedOutput

__all__ = ("Ended", "Job", "run_job")

# What a program needs to put its files in order; the engine waits a little longer.
GRACE_SECONDS = 2.0
# How soon a stop, an end or a late output is seen.
_LOOK_SECONDS = 0.05
_READ_BYTES = 65_536
# Nobody reads so much; a program that writes it has lost its way.
MAX_FLOOD = 268_435_456
_MARK = "DRAGOMAN_CALL"

How = Literal["ended", "timed_out", "flooded", "stopped"]


class Job(Struct, frozen=True, kw_only=True):
    """What is to be run, and its bounds.

    is_wrapped: the first process is a sandbox, and dies with all that is in it. descriptors: those that it inherits.
    """

    argv: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    seconds: float
    output_limit: int
    is_wrapped: bool = False
    descriptors: tuple[int, ...] = ()


class Ended(Struct, frozen=True, kw_only=True):
    """What came of it. `code` is negative for a signal, as Python has it."""

    how: How
    code: int
    output: str
    elapsed: float


def run_job(job: Job, stop: threading.Event, watch: Callable[[bytes], None]) -> Ended:
    """Run it. `watch` is shown the output as it comes.

    Raises:
        OSError: it could not be started.
    """
    began = time.monotonic()
    mark = secrets.token_hex(16)
    process = subprocess.Popen(  # noqa: S603 -- running commands is what this is for
        list(job.argv),
        cwd=job.folder,
        env={**job.environment, _MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=job.descriptors,
    )
    running = _Running(process, job, mark, watch)
    try:
        how = running.follow(began + job.seconds, stop)
    finally:
        running.end()
    return Ended(
        how=how,
        code=process.returncode,
        output=running.output.text(),
        elapsed=time.monotonic() - began,
    )


class _Running:
    """A process, its output so far, and the ways to end it."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        job: Job,
        mark: str,
        watch: Callable[[bytes], None],
    ) -> None:
        self._process = process
        self._is_wrapped = job.is_wrapped
        self._mark = f"{_MARK}={mark}".encode("ascii")
        self._watch = watch
        self._pipe = cast("IO[bytes]", process.stdout)
        self._is_open = True
        self.output = BoundedOutput(job.output_limit)
        os.set_blocking(self._pipe.fileno(), False)
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)

    def follow(self, deadline: float, stop: threading.Event) -> How:
        """Read until the command itself has ended; its children may still hold the output open."""
        while not self._has_ended():
            self._take(_LOOK_SECONDS)
            if stop.is_set():
                return "stopped"
            if time.monotonic() >= deadline:
                return "timed_out"
            if self.output.size > MAX_FLOOD:
                return "flooded"
        return "ended"

    def end(self) -> None:
        """Let nothing of it go on, and take what it still had to say."""
        try:
            if self._members():
                self._signal(signal.SIGTERM)
                limit = time.monotonic() + GRACE_SECONDS
                while self._members() and time.monotonic() < limit:
                    self._take(_LOOK_SECONDS)
                    self._has_ended()
            # A process may start another while it is being looked for: until a look finds none.
            for _ in range(100):
                if not self._members():
                    break
                self._signal(signal.SIGKILL)
                self._take(_LOOK_SECONDS)
                self._has_ended()
            while self._take(0):
                pass
        finally:
            self._pipe.close()
            # Once more for systems without a /proc, before the group's number can become another's.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _has_ended(self) -> bool:
        """Whether the command has ended. It is not reaped yet: its number, and that of its group, stays its own."""
        if not hasattr(os, "waitid"):  # some systems: there it is reaped at once
            return self._process.poll() is not None
        try:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, flags) is not None
        except ChildProcessError:
            return True

    def _take(self, seconds: float) -> bool:
        """Read what there is, after waiting for it; False if there is nothing."""
        if not self._is_open:
            time.sleep(min(seconds, _LOOK_SECONDS))
            return False
        if not self._poll.poll(seconds * 1000):
            return False
        with suppress(BlockingIOError):
            data = os.read(self._pipe.fileno(), _READ_BYTES)
            self._is_open = bool(data)
            self.output.add(data)
            self._watch(data)
            return bool(data)
        return False

    def _members(self) -> list[int]:
        """Everything of it that still runs: the command itself, its group, and what bears its mark."""
        own = [] if self._has_ended() else [self._process.pid]
        return [*own, *(pid for pid in self._relatives() if pid not in own)]

    def _relatives(self) -> Iterator[int]:
        group = self._process.pid
        for entry in _processes():
            if _is_alive(entry) and (_group_of(entry) == group or _bears(entry, self._mark)):
                yield int(entry.name)

    def _signal(self, number: signal.Signals) -> None:
        # A sandbox that is told to end kills what is in it; asking comes first.
        spares_first = self._is_wrapped and number == signal.SIGTERM
        if not spares_first:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
        for pid in self._relatives():
            if not (spares_first and pid == self._process.pid):
                _signal_if(pid, number, self._mark)


def _processes() -> list[Path]:
    try:
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def _stat_fields(entry: Path) -> list[str]:
    try:
        # The name, in parentheses, may hold anything.
        return (
            (entry / "stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return []


def _is_alive(entry: Path) -> bool:
    fields = _stat_fields(entry)
    return bool(fields) and fields[0] not in ("Z", "X")


def _group_of(entry: Path) -> int | None:
    fields = _stat_fields(entry)
    return int(fields[2]) if len(fields) > 2 else None


def _bears(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _signal_if(pid: int, number: signal.Signals, mark: bytes) -> None:
    """Signal a process that bears the mark, and no other that has got its number meanwhile."""
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return
    try:
        if _bears(Path("/proc") / str(pid), mark):
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(handle)
