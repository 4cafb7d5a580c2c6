"""`dragoman serve` in processes of its own: started, stopped, killed; asked by plain HTTP."""

import http.client
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway_harness import wait_until

from ports import free_port

__all__ = ("PATIENCE", "Served", "serving")

PATIENCE = 30.0
"""A process of its own imports everything anew, on a machine that may be busy."""


class Served:
    """One gateway. It may be started again on the same port, with the same state."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *options: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._environment = environment
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "dragoman", "serve", "--port", str(self.port)]
        with (self._folder / f"gateway-{self.port}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options],
                cwd=self._folder,
                env={"PATH": "/usr/bin:/bin", "HOME": str(self._folder), **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(self._is_there, PATIENCE)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has written so far."""
        return (self._folder / f"gateway-{self.port}.log").read_text(encoding="utf-8")

    def kill(self) -> None:
        """At once, as if the machine had taken it away."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)

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

    def read(self, body: Mapping[str, Any]) -> bytes:
        """A streamed response as far as it came: all of it, or less if the gateway was killed."""
        pieces: list[bytes] = []
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"content-type": "application/json", "authorization": "Bearer key"}
        try:
            client.request("POST", "/v1/responses", json.dumps(body).encode(), headers)
            with client.getresponse() as response:
                while piece := response.read1(65536):
                    pieces.append(piece)
        except (OSError, http.client.HTTPException):
            pass
        finally:
            client.close()
        return b"".join(pieces)

    def _is_there(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the gateway has ended"
        try:
            return self.ask("/healthz")[0] == 200
        except OSError:
            return False


@contextmanager
def serving(folder: Path, environment: Mapping[str, str], *options: str) -> Generator[Served]:
    served = Served(folder, environment, *options)
    try:
        served.start()
        yield served
    finally:
        served.stop()
