"""The `dragoman` command in processes of its own, forked from one that has imported it.

A fresh interpreter spends a quarter of a second of CPU time on importing the command, and twice that on the gateway: most of
what a short command costs. Each test process therefore starts one *parent*, at its first command. It imports the whole
package once and forks a child per command. A child has its own files, folder, environment, session and exit code. It
differs from a fresh process only in what an interpreter reads from its environment when it starts (`PYTHONPATH`,
`PYTHONIOENCODING`): tests of such things start a fresh one, and so does at least one test of every command.

    test --request, standard files, status pipe--> parent --fork--> monitor --fork--> command
                 <------------ its process id, then its exit status ----'
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

_MOST_BYTES = 1024 * 1024
"""Of a request: arguments and environment."""


class Command:
    """One run of the command, with the part of `subprocess.Popen`'s interface that tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        files: tuple[int, int, int],
        takes_terminal: bool = False,
    ) -> None:
        """It leads a session of its own. `takes_terminal`: its standard input is the terminal of this session."""
        request = {
            "arguments": list(arguments),
            "cwd": str(cwd),
            "env": dict(env),
            "takes_terminal": takes_terminal,
        }
        self._status, theirs = os.pipe()
        try:
            data = json.dumps(request).encode()
            sent = socket.send_fds(_parent(), [data], [*files, theirs])
            assert sent == len(data), "the request is too large"
        finally:
            os.close(theirs)
        self._received = b""
        self.pid = int(self._read_line())
        self.returncode: int | None = None
        self.cpu_time = 0.0
        """Its CPU time in seconds, once it has ended."""

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None and self._has_more(0.0):
            self._end()
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Until it has ended.

        Raises:
            TimeoutError: it still runs.
        """
        if self.returncode is None:
            if not self._has_more(timeout):
                raise TimeoutError(f"process {self.pid} still runs after {timeout} seconds")
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        """Ends it, if it still runs."""
        self.kill()
        self.wait(30.0)

    def _end(self) -> None:
        status, microseconds = map(int, self._read_line().split())
        os.close(self._status)
        self.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_time = microseconds / 1_000_000

    def _has_more(self, timeout: float) -> bool:
        return bool(self._received or select.select([self._status], [], [], timeout)[0])

    def _read_line(self) -> bytes:
        while b"\n" not in self._received:
            data = os.read(self._status, 80)
            assert data, "the process that forks commands has ended"
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line


def run_command(
    *arguments: str, cwd: Path, env: Mapping[str, str], stdin: str = "", timeout: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end: its exit code and everything it wrote, as text."""
    done = run_for_bytes(*arguments, cwd=cwd, env=env, stdin=stdin.encode(), timeout=timeout)
    return subprocess.CompletedProcess(
        arguments, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def run_for_bytes(
    *arguments: str, cwd: Path, env: Mapping[str, str], stdin: bytes = b"", timeout: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    """The same, as bytes."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        given.write(stdin)
        given.seek(0)
        files = (given.fileno(), output.fileno(), errors.fileno())
        with Command(arguments, cwd=cwd, env=env, files=files) as command:
            code = command.wait(timeout)
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, output.read(), errors.read())


@cache
def _parent() -> socket.socket:
    """The connection to the process that forks commands. It ends when the connection is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for side in (ours, theirs):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
    with theirs:
        process = subprocess.Popen(
            (sys.executable, __file__, str(theirs.fileno())),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait(30.0)

    atexit.register(end)
    return ours


# --- the process that forks ------------------------------------------------------------------------------------------


def _serve(connection: socket.socket) -> None:
    """Fork for each request. Returns at the end of the connection, and in a child never."""
    while True:
        data, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, 4)
        if not data:
            return
        if os.fork() == 0:
            connection.close()
            _watch(json.loads(data), files)
        for file in files:
            os.close(file)


def _watch(request: dict[str, Any], files: Sequence[int]) -> None:
    """In the monitor: fork the command, report its id and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *standard, status = files
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become(request, standard)
    for file in standard:
        os.close(file)
    with suppress(BrokenPipeError):  # the test is gone
        os.write(status, b"%d\n" % pid)
        _, ended, used = os.wait4(pid, 0)
        os.write(status, b"%d %d\n" % (ended, (used.ru_utime + used.ru_stime) * 1_000_000))
    os._exit(0)


def _become(request: dict[str, Any], standard: Sequence[int]) -> None:
    """In the child: what a fresh process would be, then the command."""
    os.setsid()
    # A shell that starts the tests in the background has the one ignored, nohup the other, which children inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number, file in enumerate(standard):
        os.dup2(file, number)
    os.closerange(3, 64)
    if request["takes_terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115 - it lives as long as the process
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115 - the same
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace")  # noqa: SIM115 - the same
    sys.argv = ["dragoman", *request["arguments"]]
    from dragoman.cli import main  # noqa: PLC0415 - tests import this module and need no command

    try:
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    # What Python does at its end: it waits for threads, then runs what was registered.
    vars(threading)["_shutdown"]()
    vars(atexit)["_run_exitfuncs"]()
    _flush()
    # Python would take every module apart now, which costs more than most commands.
    os._exit(code)


def _flush() -> None:
    for file in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            file.flush()


def _import_all() -> None:
    package = importlib.import_module("dragoman")
    for module in pkgutil.walk_packages(package.__path__, "dragoman."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    # Monitors need no one who waits for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _import_all()
    gc.freeze()  # what a child does not look at it need not copy
    _serve(socket.socket(fileno=int(sys.argv[1])))
