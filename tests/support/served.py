"""`dragoman serve` in processes of its own: started, stopped, killed; asked by plain HTTP."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commands import Command
from gateway_harness import wait_until
from ports import free_port

PATIENCE = 30.0
"""A new process imports everything again, on a machine that may be busy."""


class Served:
    """One gateway. It may be started again on the same port, with the same state."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *options: str,
        wrapper: Sequence[str] = (),
    ) -> None:
        """`wrapper`: a command that starts a fresh interpreter with it, like `nohup`."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"gateway-{self.port}.log"
        self._folder = folder
        self._environment = environment
        self._options = options
        self._wrapper = wrapper
        self._process: subprocess.Popen[bytes] | Command | None = None
        self.terminal: int | None = None
        """The terminal that becomes its standard input and that of its session; None: it has none."""

    def start(self) -> None:
        arguments = ["serve", "--port", str(self.port), *self._options]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self._folder), **self._environment}
        with Path(os.devnull).open("rb") as nothing, self.log.open("ab") as log:
            if self._wrapper:
                self._process = subprocess.Popen(
                    [*self._wrapper, sys.executable, "-m", "dragoman", *arguments],
                    cwd=self._folder,
                    env=environment,
                    stdin=nothing,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            else:
                given = nothing.fileno() if self.terminal is None else self.terminal
                self._process = Command(
                    arguments,
                    cwd=self._folder,
                    env=environment,
                    files=(given, log.fileno(), log.fileno()),
                    takes_terminal=self.terminal is not None,
                )
        wait_until(self._is_there, PATIENCE)

    def kill(self) -> None:
        """At once and with its workers, as if the machine had taken it away."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)
            # Its workers may take longer to be gone, and listen until then.
            wait_until(self._is_port_free, PATIENCE)

    @property
    def pid(self) -> int:
        """Also of its process group."""
        assert self._process is not None
        return self._process.pid

    def wait(self) -> int:
        """Until it has ended: its exit code."""
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process that was started, and to no other."""
        assert self._process is not None
        self._process.send_signal(number)

    def workers(self) -> list[int]:
        """The ids of its worker processes, which are there only while it runs."""
        # The other child is the resource tracker of multiprocessing.
        return [pid for pid in children(self.pid) if _is_worker(pid)]

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(PATIENCE)

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """POST a body, or GET. The status and the whole answer.

        Raises:
            OSError: nobody answered, or the answer was cut.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path,
            data,
            {"content-type": "application/json", "authorization": "Bearer key"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def receive(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """POST a body. The status and the answer as far as it came: less than all if the gateway was killed, 0 if nothing."""
        pieces: list[bytes] = []
        status = 0
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"content-type": "application/json", "authorization": "Bearer key"}
        try:
            client.request("POST", path, json.dumps(body).encode(), headers)
            with client.getresponse() as response:
                status = response.status
                while piece := response.read1(65536):
                    pieces.append(piece)
        except (OSError, http.client.HTTPException):
            pass
        finally:
            client.close()
        return status, b"".join(pieces)

    def _is_port_free(self) -> bool:
        try:
            with socket.create_server(("127.0.0.1", self.port)):
                return True
        except OSError:
            return False

    def _is_there(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the gateway has ended"
        try:
            return self.ask("/healthz")[0] == 200
        except OSError:
            return False


def children(pid: int) -> list[int]:
    """The processes that a process has started and that are there.

    Not from `/proc/PID/task/PID/children`, which may leave out children while others end.
    """
    numbers = (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return sorted(number for number in numbers if _parent(number) == pid)


def _parent(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    # The name of the command stands in parentheses and may contain anything. State and parent follow it.
    return int(status.rpartition(")")[2].split()[1])


def _is_worker(pid: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@contextmanager
def serving(
    folder: Path, environment: Mapping[str, str], *options: str, wrapper: Sequence[str] = ()
) -> Generator[Served]:
    served = Served(folder, environment, *options, wrapper=wrapper)
    try:
        served.start()
        yield served
    finally:
        served.stop()
