"""`shell`: runs a command below the root, with limits on its time and output, and leaves no process behind.

The command is text for a shell, or a list of words that is run without a shell. The same tool runs the `local_shell` calls of
models that have that tool built in; their action holds the command.

A command leads a session of its own and has no input; its output and errors come in one stream. When it ends, runs out of
time, writes too much or is stopped, its whole process group gets SIGTERM, and SIGKILL after a grace. A child that made a
session of its own is found by a mark in its environment (where there is a /proc) and ended the same way. Running a command
blocks, so it runs in a thread, and the thread must live as long as the command: a sandbox ends when its thread ends.

The environment of a command is the user's own without what could be a secret, recognised by name (`*_KEY`, `*TOKEN*`, …) and
by value (an address with a password, the prefixes that providers give their keys). `passed` names exceptions.
"""

import asyncio
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, Literal, cast

from msgspec import Struct, structs

from dragoman.core.secrets import begins_secret
from dragoman.engine.approval import Subject
from dragoman.engine.builtin.root import Root
from dragoman.engine.builtin.sandbox import Sandbox, Wrapped
from dragoman.engine.commands import command_text
from dragoman.engine.function_tool import describe_record
from dragoman.engine.threads import run_to_end
from dragoman.engine.tools import Invocation, Offer, Output, text_output
from dragoman.errors import ToolError
from dragoman.model.parts import Call


class BoundedOutput:
    """Output of any length in bounded memory: the first and the last bytes."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head: list[bytes] = []
        self._head_left = self._half
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if self._head_left:
            taken = data[: self._head_left]
            self._head.append(taken)
            self._head_left -= len(taken)
            data = data[len(taken) :]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail_size - len(self._tail[0]) >= self._half:
                self._tail_size -= len(self._tail.popleft())

    def text(self) -> str:
        """The whole output, or both ends with a note on how much is missing between them."""
        head = b"".join(self._head)
        tail = b"".join(self._tail)[-self._half :]
        missing = self.size - len(head) - len(tail)
        if not missing:
            return (head + tail).decode("utf-8", "replace")
        first, last = head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return f"{first}\n… {missing:,} bytes left out …\n{last}"


_NAMES = re.compile(
    r"KEY|TOKEN|SECRET|PASS(?!IVE|THROUGH)|CREDENTIAL|CREDS|AUTH|COOKIE|SESSION_ID|BEARER|PRIVATE|SIGNATURE|DSN$|_PAT$|(^|_)PWD_|_PWD$"
    r"|CONNECTION_STRING|WEBHOOK",
    re.IGNORECASE,
)
_VALUES = re.compile(
    r"^[A-Za-z][A-Za-z0-9+.-]*://[^/\s@]*:[^/\s@]+@"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|(?:^|[\s;])(?i:password|pwd)=[^\s;]"
)
# No pager, colours, animations or questions: no person is at this terminal.
_PLAIN = {
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "TERM": "dumb",
}


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like a secret that a command must not see."""
    value = value[:4096]
    return bool(_NAMES.search(name) or _VALUES.search(value)) or begins_secret(value)


def command_environment(
    environment: Mapping[str, str], passed: Collection[str] = ()
) -> dict[str, str]:
    """The environment of a command; `passed` names variables that it gets although they look secret."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in passed or not is_secret(name, value)
    }
    return {**kept, **_PLAIN}


# Time for a program to clean up; the engine waits a little longer.
GRACE_SECONDS = 2.0
# How soon a stop, an end or late output is noticed.
_LOOK_SECONDS = 0.05
_READ_BYTES = 65_536
# Less than the engine's limit for one result.
MAX_OUTPUT = 48_000
# A program that writes more than this is out of control.
MAX_FLOOD = 268_435_456
_MARK = "DRAGOMAN_CALL"

How = Literal["ended", "timed_out", "flooded", "stopped"]


class RunningCommand:
    """A process, its output so far, and how to end it. `watch` gets the output as it arrives.

    Raises:
        OSError: the process could not be started.
    """

    def __init__(
        self, wrapped: Wrapped, environment: Mapping[str, str], watch: Callable[[bytes], None]
    ) -> None:
        mark = secrets.token_hex(16)
        self._began = time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603 -- running commands is what this is for
            list(wrapped.argv),
            cwd=wrapped.folder,
            env={**environment, _MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=wrapped.descriptors,
        )
        # In a sandbox the first process is the sandbox itself; when it ends, everything in it ends.
        self._is_sandboxed = bool(wrapped.descriptors)
        self._mark = f"{_MARK}={mark}".encode("ascii")
        self._watch = watch
        self._pipe = cast("IO[bytes]", self._process.stdout)
        self._is_open = True
        self._output = BoundedOutput(MAX_OUTPUT)
        os.set_blocking(self._pipe.fileno(), False)
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)

    def run(self, seconds: float, stop: threading.Event) -> Output:
        """Wait for the end of the command, and end everything that it started. Returns its output, and how it ended."""
        try:
            how = self._follow(self._began + seconds, stop)
        finally:
            self._end()
        elapsed = time.monotonic() - self._began
        code = self._process.returncode  # negative for a signal
        match how:
            case "timed_out":
                end = f"timed out after {seconds:g} s and was ended"
            case "flooded":
                end = "wrote too much and was ended"
            case "stopped":
                end = "was stopped"
            case "ended":
                end = f"exit code {code}" if code >= 0 else f"was ended by signal {-code}"
        output = self._output.text().rstrip("\n")
        text = f"{output}\n[{end}, {elapsed:.1f} s]" if output else f"[{end}, {elapsed:.1f} s]"
        return text_output(text, is_error=how != "ended" or code != 0)

    def _follow(self, deadline: float, stop: threading.Event) -> How:
        """Read until the command itself has ended; its children may still hold the output open."""
        while not self._has_ended():
            self._take(_LOOK_SECONDS)
            if stop.is_set():
                return "stopped"
            if time.monotonic() >= deadline:
                return "timed_out"
            if self._output.size > MAX_FLOOD:
                return "flooded"
        return "ended"

    def _end(self) -> None:
        """End all processes of the command, and read the rest of the output."""
        try:
            if self._members():
                self._signal(signal.SIGTERM)
                limit = time.monotonic() + GRACE_SECONDS
                while self._members() and time.monotonic() < limit:
                    self._take(_LOOK_SECONDS)
                    self._has_ended()
            # A process may start another during the search: repeat until none is found.
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
            # Once more for systems without a /proc, before the number of the group can be reused.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _has_ended(self) -> bool:
        """Whether the command has ended. It is not reaped yet, so that its process number and its group's are not reused."""
        if not hasattr(os, "waitid"):  # on such systems the command is reaped at once
            return self._process.poll() is not None
        try:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, flags) is not None
        except ChildProcessError:
            return True

    def _take(self, seconds: float) -> bool:
        """Wait for output and read it. Returns False if there was none."""
        if not self._is_open:
            time.sleep(min(seconds, _LOOK_SECONDS))
            return False
        if not self._poll.poll(seconds * 1000):
            return False
        with suppress(BlockingIOError):
            data = os.read(self._pipe.fileno(), _READ_BYTES)
            self._is_open = bool(data)
            self._output.add(data)
            self._watch(data)
            return bool(data)
        return False

    def _members(self) -> list[int]:
        """All processes that still run: the command itself, its group, and those with its mark."""
        own = [] if self._has_ended() else [self._process.pid]
        return [*own, *(pid for pid in self._relatives() if pid not in own)]

    def _relatives(self) -> Iterator[int]:
        group = self._process.pid
        for entry in processes():
            fields = stat_fields(entry)
            is_alive = len(fields) > 2 and fields[0] not in ("Z", "X")
            if is_alive and (int(fields[2]) == group or _has_mark(entry, self._mark)):
                yield int(entry.name)

    def _signal(self, number: signal.Signals) -> None:
        # A sandbox that gets a signal kills everything in it, so SIGTERM goes only to the processes inside.
        spares_first = self._is_sandboxed and number == signal.SIGTERM
        if not spares_first:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
        for pid in self._relatives():
            if not (spares_first and pid == self._process.pid):
                _signal_if(pid, number, self._mark)


def processes() -> list[Path]:
    """The folders of all processes; none if the system has no /proc."""
    try:
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def stat_fields(entry: Path) -> list[str]:
    """The state of a process, its parent, its group, and more; empty if it has ended."""
    try:
        # The program's name, in parentheses, may contain any character.
        return (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _has_mark(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _signal_if(pid: int, number: signal.Signals, mark: bytes) -> None:
    """Signal a process if it has the mark: another process may have got its number in the meantime."""
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return
    try:
        if _has_mark(Path("/proc") / str(pid), mark):
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(handle)


DEFAULT_SECONDS = 120.0
MAX_SECONDS = 600.0
# The kernel accepts no longer argument.
MAX_COMMAND = 131_000
# A sandbox and the end of a process group take time beyond the command's own.
_SPARE_SECONDS = 15.0
# How often progress is reported.
_REPORT_SECONDS = 0.2
_REPORT_CHARACTERS = 200

DESCRIPTION = (
    "Run a command in a shell in the working folder and get its output (standard output and errors together) and exit "
    "code. It gets no input, so it cannot ask questions. Processes that it leaves in the background are ended with it. Long "
    "output is cut in the middle. Prefer read, glob, grep and edit for files."
)


class ShellArguments(Struct, forbid_unknown_fields=True):
    command: Annotated[
        str | list[str], "The command line, or the words of a command to run without a shell"
    ]
    workdir: Annotated[str, "The folder to run it in, relative to the working folder"] = "."
    timeout: Annotated[float, f"Seconds it may take, at most {MAX_SECONDS:g}"] = DEFAULT_SECONDS


class LocalShellAction(Struct):
    """The action of a `local_shell` call. Its `user` and `env` are ignored."""

    command: Annotated[list[str], "The words of the command"]
    working_directory: Annotated[str | None, "The folder to run it in"] = None
    timeout_ms: Annotated[float | None, "Milliseconds it may take"] = None


class ShellTool:
    """The shell below a root. `kind`: a function, or the built-in kind `local_shell`."""

    def __init__(
        self,
        root: Root,
        *,
        sandbox: Sandbox,
        environment: Mapping[str, str],
        kind: Literal["function", "local_shell"] = "function",
    ) -> None:
        self._root = root
        self._environment = dict(environment)
        # Models write commands for bash; if it is missing, /bin/sh runs them.
        self._shell = shutil.which("bash") or "/bin/sh"
        self.sandbox = sandbox
        description = f"{DESCRIPTION} {sandbox.summary}"
        self._arguments = describe_record("shell", description, ShellArguments)
        self._action = describe_record("local_shell", description, LocalShellAction)
        declaration = self._arguments.declaration
        if kind == "local_shell":
            # With a schema, so that models without the built-in kind can call it as a function.
            declaration = structs.replace(self._action.declaration, kind=kind)
        self.offer = Offer(declaration=declaration, timeout=MAX_SECONDS + _SPARE_SECONDS)

    def subjects(self, call: Call) -> Sequence[Subject]:
        command = self._read(call).command
        text = command if isinstance(command, str) else command_text(command)
        return [Subject("command", text)]

    async def run(self, invocation: Invocation) -> Output:
        arguments = self._read(invocation.call)
        seconds = min(arguments.timeout, MAX_SECONDS)
        folder = str(self._root.path / self._root.resolved(arguments.workdir))
        command = arguments.command
        argv = [self._shell, "-c", command] if isinstance(command, str) else command
        stop = threading.Event()
        watch = _Reporter(asyncio.get_running_loop(), invocation.report)
        try:
            with self.sandbox.wrapped(argv, folder) as wrapped:

                def work() -> Output:
                    # A sandbox ends with the thread that started it, so this thread starts it.
                    return RunningCommand(wrapped, self._environment, watch.see).run(seconds, stop)

                return await run_to_end(work, "shell", stop.set)
        except OSError as error:
            raise ToolError(f"the command cannot be run: {error.strerror or error}") from error

    def _read(self, call: Call) -> ShellArguments:
        if call.kind in ("function", "custom"):
            arguments = self._arguments.read(call.input)
        else:
            arguments = self._from_action(call.input)
        _refuse_unfit(arguments)
        return arguments

    def _from_action(self, text: str) -> ShellArguments:
        action = self._action.read(text)
        milliseconds = action.timeout_ms
        seconds = DEFAULT_SECONDS if milliseconds is None else milliseconds / 1000
        return ShellArguments(action.command, action.working_directory or ".", seconds)


class _Reporter:
    """Reports the last line of the output, not too often, from the thread to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[str], None]) -> None:
        self._loop = loop
        self._report = report
        self._next = 0.0

    def see(self, data: bytes) -> None:
        now = time.monotonic()
        lines = data.decode("utf-8", "replace").strip().splitlines() if now >= self._next else []
        if lines:
            self._next = now + _REPORT_SECONDS
            self._loop.call_soon_threadsafe(self._report, lines[-1][:_REPORT_CHARACTERS])


def _refuse_unfit(arguments: ShellArguments) -> None:
    command = arguments.command
    words = [command] if isinstance(command, str) else command
    if not words or not words[0].strip():
        raise ToolError("expected a command, got nothing")
    if any("\0" in word for word in words):
        raise ToolError("expected a command without zero characters")
    if sum(map(len, words)) > MAX_COMMAND:
        raise ToolError(
            f"expected a command of at most {MAX_COMMAND:,} characters; write a file first"
        )
    if not arguments.timeout > 0:
        raise ToolError(f"expected timeout to be more than 0 seconds, got {arguments.timeout:g}")
