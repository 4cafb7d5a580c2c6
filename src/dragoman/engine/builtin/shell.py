"""`shell`: a command, run below the root within bounds of time and output.

The command is text for a shell, or a list of words that is run as it is. The same tool runs the `local_shell` calls of models
that have that tool built in; what they ask for is read from their action.
"""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal

from msgspec import Struct, structs

from dragoman.engine.approval import Subject
from dragoman.engine.builtin.processes import Ended, Job, run_job
from dragoman.engine.builtin.rooted import Root
from dragoman.engine.builtin.sandbox import Sandbox, Wrapped
from dragoman.engine.commands import spoken
from dragoman.engine.describing import describe_record
from dragoman.engine.threads import run_to_end
from dragoman.engine.tools import Invocation, Offer, Output, text_output
from dragoman.errors import ToolError
from dragoman.model.parts import Call

__all__ = ("LocalShellAction", "ShellArguments", "ShellTool")

DEFAULT_SECONDS = 120.0
MAX_SECONDS = 600.0
# Fits into what the engine lets one result have.
MAX_OUTPUT = 48_000
# The kernel takes no longer single argument.
MAX_COMMAND = 131_000
# A sandbox and the end of a process group take time beyond the command's own.
_SPARE_SECONDS = 15.0
# How often whoever watches is told.
_REPORT_SECONDS = 0.2
_REPORT_CHARACTERS = 200

DESCRIPTION = (
    "Run a command in a shell in the working folder and get its output (standard output and errors together) and exit "
    "code. It has no input: it cannot ask. Processes left in the background are ended with it. Long output is cut in the "
    "middle. Prefer read, glob, grep and edit for files."
)


class ShellArguments(Struct, forbid_unknown_fields=True):
    command: Annotated[
        str | list[str], "The command line, or the words of a command to run without a shell"
    ]
    workdir: Annotated[str, "The folder to run it in, relative to the working folder"] = "."
    timeout: Annotated[float, f"Seconds it may take, at most {MAX_SECONDS:g}"] = DEFAULT_SECONDS


class LocalShellAction(Struct):
    """The action of a `local_shell` call, as far as it is followed; its `user` and `env` are not."""

    command: Annotated[list[str], "The words of the command"]
    working_directory: Annotated[str | None, "The folder to run it in"] = None
    timeout_ms: Annotated[float | None, "Milliseconds it may take"] = None


class ShellTool:
    """The shell below a root. `kind` chooses whether it is a function or answers the built-in kind."""

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
        # What models write is for bash; a plain shell stands in where there is none.
        self._shell = shutil.which("bash") or "/bin/sh"
        self.sandbox = sandbox
        description = f"{DESCRIPTION} {sandbox.summary}"
        self._arguments = describe_record("shell", description, ShellArguments)
        self._action = describe_record("local_shell", description, LocalShellAction)
        declaration = self._arguments.declaration
        if kind == "local_shell":
            # With its schema, so that it can be offered as a function where the kind is not built in.
            declaration = structs.replace(self._action.declaration, kind=kind)
        self._offer = Offer(declaration=declaration, timeout=MAX_SECONDS + _SPARE_SECONDS)

    @property
    def offer(self) -> Offer:
        return self._offer

    def subjects(self, call: Call) -> Sequence[Subject]:
        command = self._read(call).command
        text = command if isinstance(command, str) else spoken(command)
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
                job = self._job(wrapped, folder, seconds)
                ended = await run_to_end(partial(run_job, job, stop, watch.see), "shell", stop.set)
        except OSError as error:
            raise ToolError(f"the command cannot be run: {error.strerror or error}") from error
        return _told(ended, seconds)

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

    def _job(self, wrapped: Wrapped, folder: str, seconds: float) -> Job:
        return Job(
            argv=wrapped.argv,
            # The sandbox goes there itself.
            folder=str(self._root.path) if self.sandbox.is_on else folder,
            environment=self._environment,
            seconds=seconds,
            output_limit=MAX_OUTPUT,
            is_wrapped=self.sandbox.is_on,
            descriptors=wrapped.descriptors,
        )


class _Reporter:
    """Tells the last line of the output to whoever watches, not too often, from the thread to the loop."""

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


def _told(ended: Ended, seconds: float) -> Output:
    output = ended.output.rstrip("\n")
    match ended.how:
        case "timed_out":
            end = f"timed out after {seconds:g} s and was ended"
        case "flooded":
            end = "wrote too much and was ended"
        case "stopped":
            end = "was stopped"
        case "ended" if ended.code < 0:
            end = f"was ended by signal {-ended.code}"
        case "ended":
            end = f"exit code {ended.code}"
    text = (
        f"{output}\n[{end}, {ended.elapsed:.1f} s]" if output else f"[{end}, {ended.elapsed:.1f} s]"
    )
    return text_output(text, is_error=ended.how != "ended" or ended.code != 0)
