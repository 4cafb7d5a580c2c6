"""A child process with three pipes: started in a session of its own, ended with all that it has started."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from dragoman.errors import UpstreamError

__all__ = ("INSTALL_HINT", "Process", "spawn")

INSTALL_HINT = "install it with `npm install -g @openai/codex`, or say in `command` where it is"

# An app-server ends some 30 ms after its input; more is for a machine that is busy.
GRACE_SECONDS = 3.0
_READ_BYTES = 256 * 1024


class Process:
    """What `spawn` made. Whoever has it calls `end`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101 - asked for
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
        """Lines for its standard input; lost if it is gone."""
        if not self._stdin.is_closing():
            self._stdin.write(data)

    async def drain(self) -> None:
        """Wait while its input is full."""
        with suppress(ConnectionError):
            await self._stdin.drain()

    async def read(self) -> bytes:
        """From its standard output; nothing at the end."""
        return await self._stdout.read(_READ_BYTES)

    async def read_errors(self) -> bytes:
        return await self._stderr.read(_READ_BYTES)

    async def wait(self) -> None:
        await self._process.wait()

    def close_input(self) -> None:
        if not self._stdin.is_closing():
            self._stdin.close()

    def kill(self) -> None:
        """End it and all it has started, now."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self, grace: float) -> None:
        """Close its input, which ends it; if it does not end within the grace, kill it."""
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
            # Launchers start the real program as a child: with a session of its own all of it can be ended.
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise _unusable(
            f"upstream {name!r}: expected the program {command[0]!r}, found none; {INSTALL_HINT}"
        ) from error
    except OSError as error:
        raise _unusable(
            f"upstream {name!r}: {command[0]!r} cannot be started: {error.strerror or error}"
        ) from error
    return Process(process)


def _unusable(message: str) -> UpstreamError:
    error = UpstreamError(message)
    error.status = 503
    return error
