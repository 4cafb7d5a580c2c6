"""A child process with three pipes: started in its own session, ended with all processes that it has started.

Its standard error is logged line by line, with limits on the length and number of lines (`StderrLog`). The log
hides secrets.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from dragoman.config.settings import CODEX_INSTALL_HINT
from dragoman.errors import UpstreamError

# An app-server ends some 30 ms after its input closes; the rest is for a busy machine.
GRACE_SECONDS = 3.0
_READ_BYTES = 256 * 1024


class Process:
    """A process made by `spawn`. Its owner calls `end`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101 - `spawn` requests the pipes
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def how_it_ended(self) -> str:
        code = self._process.returncode or 0
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def write(self, data: bytes) -> None:
        """Write lines to its standard input; they are lost if the process has ended."""
        if not self._stdin.is_closing():
            self._stdin.write(data)

    async def drain(self) -> None:
        """Wait while its input buffer is full."""
        with suppress(ConnectionError):
            await self._stdin.drain()

    async def read(self) -> bytes:
        """Read from its standard output; empty at the end."""
        return await self._stdout.read(_READ_BYTES)

    async def read_errors(self) -> bytes:
        return await self._stderr.read(_READ_BYTES)

    async def wait(self) -> None:
        await self._process.wait()

    def close_input(self) -> None:
        if not self._stdin.is_closing():
            self._stdin.close()

    def kill(self) -> None:
        """Kill the process and all that it has started, now."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self, grace: float) -> None:
        """Close its input, which ends it; kill it if it does not end within the grace period."""
        self.close_input()
        try:
            async with asyncio.timeout(grace):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()


async def spawn(
    name: str, command: Sequence[str], environment: Mapping[str, str], folder: str
) -> Process:
    """Start a program.

    Raises:
        UpstreamError: there is no such program, or it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            cwd=folder,
            # Launchers start the real program as a child: in its own session both can be ended together.
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise UpstreamError(
            f"upstream {name!r}: expected the program {command[0]!r}, found none; {CODEX_INSTALL_HINT}",
            status=503,
        ) from error
    except OSError as error:
        raise UpstreamError(
            f"upstream {name!r}: {command[0]!r} cannot be started: {error.strerror or error}",
            status=503,
        ) from error
    return Process(process)


# A log line of Codex has some 200 characters; a backtrace a few hundred lines.
MAX_LINE = 1000
LINES_PER_PERIOD = 100
PERIOD_SECONDS = 10.0
# The last lines of a child that dies are part of the error's detail.
REMEMBERED = 3


class StderrLog:
    """Limits a child's standard error; `feed` returns the lines to log."""

    def __init__(self) -> None:
        self.last: deque[str] = deque(maxlen=REMEMBERED)
        self._rest = b""
        self._period = float("-inf")
        self._count = 0
        self._hidden = 0

    def feed(self, data: bytes, now: float) -> list[str]:
        *lines, rest = (self._rest + data).split(b"\n")
        # A line without an end is truncated here, so that its bytes do not accumulate.
        self._rest = rest[:MAX_LINE] if len(rest) > MAX_LINE else rest
        return [shown for line in lines if line.strip() for shown in self._limited(line, now)]

    def _limited(self, line: bytes, now: float) -> list[str]:
        text = line[:MAX_LINE].decode("utf-8", "replace").strip()
        self.last.append(text)
        shown: list[str] = []
        if now - self._period >= PERIOD_SECONDS:
            if self._hidden:
                shown.append(f"({self._hidden} lines are not shown)")
            self._period, self._count, self._hidden = now, 0, 0
        self._count += 1
        if self._count > LINES_PER_PERIOD:
            self._hidden += 1
            return shown
        return [*shown, text]
