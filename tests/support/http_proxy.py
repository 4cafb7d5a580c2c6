"""A real HTTP proxy (proxy.py) in a process of its own, on loopback; with a user and a password if asked."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from gateway_harness import wait_until

# A new process imports everything again, on a machine that may be busy.
PATIENCE = 60.0


class RunningProxy(Struct, frozen=True):
    """It adds a `via` header to the requests that are not in a tunnel."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running_proxy(folder: Path, user: str | None = None) -> Generator[RunningProxy]:
    """`user`: `name:password`, which clients must send."""
    port_file = folder / "proxy-port"
    command = [
        *(sys.executable, "-m", "proxy", "--hostname", "127.0.0.1", "--port", "0"),
        *("--port-file", str(port_file), "--num-workers", "1", "--num-acceptors", "1"),
        *("--data-dir", str(folder / "proxy-data"), "--log-file", str(folder / "proxy.log")),
        *(("--basic-auth", user) if user else ()),
    ]
    with (folder / "proxy.out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
    try:
        wait_until(
            lambda: port_file.exists() and port_file.read_text("utf-8").strip() != "", PATIENCE
        )
        yield RunningProxy(int(port_file.read_text("utf-8")))
    finally:
        process.terminate()
        process.wait(PATIENCE)
