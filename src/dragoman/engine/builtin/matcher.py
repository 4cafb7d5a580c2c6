"""Lines that match a regular expression, found by a process that can be stopped: see `_matching`."""

import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from dragoman.errors import ToolError

__all__ = ("MAX_LINE", "Matcher")

MAX_PATTERN = 1_000
# What is looked at of one line.
MAX_LINE = 20_000
# Matching lines of one file.
MAX_PER_FILE = 1_000
# How soon after a stop the process is ended.
_LOOK_SECONDS = 0.05
_PROGRAM = Path(__file__).with_name("_matching.py")


class Matcher:
    """A process that matches, for as long as the context is open. It belongs to one thread.

    Raises:
        ToolError: the pattern is no regular expression.
    """

    def __init__(
        self, pattern: str, stop: threading.Event, *, seconds: float, ignore_case: bool = False
    ) -> None:
        self._stop = stop
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        flags = re.IGNORECASE if ignore_case else re.NOFLAG
        if not pattern or len(pattern) > MAX_PATTERN:
            raise ToolError(
                f"expected a pattern of 1 to {MAX_PATTERN} characters, got {len(pattern)}"
            )
        try:
            re.compile(pattern, flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(
                f"expected a regular expression, got {pattern[:200]!r}: {error}"
            ) from error
        self._process = subprocess.Popen(  # noqa: S603 -- our own program; what it is asked is data
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={},
            cwd="/",
        )
        numbers = " ".join(str(ord(char)) for char in pattern)
        self._waiting = f"{int(flags)} {MAX_PER_FILE} {MAX_LINE}\n{numbers}\n".encode("ascii")
        self._came = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):  # what it had not read any more
            self._input.close()
        self._output.close()

    @property
    def _input(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdin)

    @property
    def _output(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdout)

    def lines(self, texts: Sequence[bytes]) -> list[list[int]]:
        """For each text the numbers of the lines that match, from 1.

        Raises:
            ToolError: it takes too long, or was stopped.
        """
        sizes = " ".join(str(len(text)) for text in texts)
        self._send(b"".join((self._waiting, f"{sizes}\n".encode("ascii"), *texts)))
        self._waiting = b""
        return [[int(number) for number in self._line().split()] for _ in texts]

    def _send(self, data: bytes) -> None:
        try:
            self._input.write(data)
            self._input.flush()
        except BrokenPipeError as error:
            raise ToolError("the search ended early: the pattern needs too much memory") from error

    def _line(self) -> bytes:
        while b"\n" not in self._came:
            self._wait()
            data = os.read(self._output.fileno(), 65_536)
            if not data:
                raise ToolError("the search ended early: the pattern needs too much memory")
            self._came += data
        line, _, self._came = self._came.partition(b"\n")
        return line

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        while not poll.poll(_LOOK_SECONDS * 1000):
            if self._stop.is_set():
                raise ToolError("the search was stopped")
            if time.monotonic() > self._deadline:
                raise ToolError(
                    f"the search took more than {self._seconds:g} s: use a simpler pattern, or name a folder"
                )
