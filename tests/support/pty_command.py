"""Runs `dragoman run` and other commands as a person does, in a terminal, or as a script does, with pipes; and finds what they leave behind."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from commands import Command, run_command
from dragoman.testing import ReceivedRequest, ScriptedReply, sse
from vendor_wire import Answer, Said, Tool, stream
from vt import Terminal

PATIENCE = 30.0
"""A new process imports everything again, on a machine that may be busy."""
WIDTH = 100


def answer(text: str, dialect: str = "chat") -> ScriptedReply:
    """The model says so, and is done."""
    return sse(stream(dialect, Answer((Said((text,)),))))


def call(
    name: str, arguments: Mapping[str, object], call_id: str = "call_1", dialect: str = "chat"
) -> ScriptedReply:
    """The model calls a tool."""
    return sse(stream(dialect, Answer((Tool(call_id, name, (json.dumps(arguments),)),))))


def environment(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Nothing of ours: no key, a home of its own."""
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "PYTHONDONTWRITEBYTECODE": "1",
        **(more or {}),
    }


def run_piped(
    folder: Path, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command without a terminal."""
    variables = environment(folder, env)
    return run_command("run", *arguments, cwd=folder, env=variables, stdin=stdin, timeout=PATIENCE)


@contextmanager
def run_open(folder: Path, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """The command without a terminal, while it runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "run", *arguments],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        for stream_ in (process.stdout, process.stderr):
            if stream_ is not None:
                stream_.close()


def lines_of(output: str) -> list[dict[str, Any]]:
    """JSON lines; every line must be one."""
    return [json.loads(line) for line in output.splitlines()]


def messages(request: ReceivedRequest) -> list[dict[str, Any]]:
    """What a Chat upstream was asked."""
    return cast("list[dict[str, Any]]", cast("dict[str, Any]", request.json())["messages"])


def processes_with(text: str) -> list[str]:
    """The command lines of all processes that hold the text."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if text in line:
                found.append(line)
    return found


class InTerminal:
    """The command in a terminal of its own. `raw` is everything that was written to it."""

    def __init__(self, process: Command, terminal: int) -> None:
        self.process = process
        self.raw = ""
        self._terminal = terminal
        self._seen = 0

    @property
    def screen(self) -> str:
        """What a person sees at last."""
        terminal = Terminal(WIDTH, feeds_return=False)
        terminal.feed(self.raw)
        return terminal.text

    def until(self, pattern: str) -> str:
        """Wait until the pattern appears in what was written since the last time; what was written till its end."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.raw[self._seen :])):
            assert time.monotonic() < deadline, f"waited too long for {pattern!r}:\n{self.raw}"
            if not self._read(deadline) and self.process.poll() is not None:
                raise AssertionError(f"ended without {pattern!r}:\n{self.raw}")
        begin, self._seen = self._seen, self._seen + found.end()
        return self.raw[begin : self._seen]

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def paste(self, text: str) -> None:
        """Paste as a terminal does that marks pastes; read meanwhile what is shown, as a terminal does."""
        rest = f"\x1b[200~{text}\x1b[201~".encode()
        os.set_blocking(self._terminal, False)
        try:
            deadline = time.monotonic() + PATIENCE
            while rest:
                assert time.monotonic() < deadline, "the paste was not taken"
                with suppress(BlockingIOError):
                    rest = rest[os.write(self._terminal, rest[:1024]) :]
                self._read(time.monotonic())
        finally:
            os.set_blocking(self._terminal, True)

    def press_ctrl_c(self) -> None:
        self.type("\x03")

    def press_ctrl_d(self) -> None:
        self.type("\x04")

    def wait(self) -> int:
        """The exit code; everything it wrote is read."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"did not end:\n{self.raw}"
            self._read(deadline)
        while self._read(time.monotonic()):
            pass
        return self.process.wait(0.0)

    def _read(self, deadline: float) -> bool:
        wait = min(max(deadline - time.monotonic(), 0.0), 0.05)
        if not select.select([self._terminal], [], [], wait)[0]:
            return False
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # the other side is closed
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def in_terminal(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None, command: str = "run"
) -> Generator[InTerminal]:
    """Start it; it ends with the test. `command`: another command than `run`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    process = Command(
        (command, *arguments),
        cwd=folder,
        env=environment(folder, env),
        files=(theirs, theirs, theirs),
        takes_terminal=True,
    )
    os.close(theirs)
    running = InTerminal(process, ours)
    try:
        yield running
    finally:
        process.kill()
        process.wait(PATIENCE)
        with suppress(OSError):
            os.close(ours)
