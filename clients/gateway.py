"""The gateway as an operator starts it: a process with a configuration file, ready when /healthz says so."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from clients.model import DIALECTS
from ports import free_port

__all__ = ("configured", "run_gateway", "serve_gateway")

START_SECONDS = 60.0
STOP_SECONDS = 60.0

# Retries are few and short, so that tests of failures end soon; clients add their own.
CONFIG = """
[server]
shutdown_grace = 1.0
{server}

[retry]
attempts = 2
base_delay = 0.05
max_wait = 2.0

{upstreams}
"""
UPSTREAM = """
[upstreams.{dialect}]
kind = "{dialect}"
base_url = "{url}/v1"
api_key = "sk-upstream"

[[routes]]
model = "to-{dialect}-*"
upstream = "{dialect}"
"""


@contextmanager
def serve_gateway(
    folder: Path, upstream_url: str | None = None, server: str = ""
) -> Generator[str]:
    """Yield the address of a gateway in front of that server, which speaks all dialects; without a server, unconfigured.

    It runs in the folder, which gets its configuration and its log. `server`: more of its section `[server]`.
    """
    options: list[str] = []
    if upstream_url is not None:
        upstreams = "".join(UPSTREAM.format(dialect=name, url=upstream_url) for name in DIALECTS)
        options = configured(folder, upstreams, server)
    with run_gateway(folder, options) as (url, _):
        yield url


def configured(folder: Path, upstreams: str, server: str = "") -> list[str]:
    """The options for a gateway with these upstreams, in TOML. `server`: more of its section `[server]`."""
    config = folder / "upstreams.toml"
    config.write_text(CONFIG.format(upstreams=upstreams, server=server), encoding="utf-8")
    return ["--config", str(config)]


@contextmanager
def run_gateway(
    folder: Path, options: list[str], environment: Mapping[str, str] | None = None
) -> Generator[tuple[str, int]]:
    """The address and the process id of `dragoman serve` with these options."""
    port = free_port()
    log = folder / "gateway.log"
    command = [sys.executable, "-m", "dragoman", "serve", *options]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if "API_KEY" not in name}
            | {"DRAGOMAN_STORE_URL": "memory:"}
            | dict(environment or {}),
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process, log)
            yield url, process.pid
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=1):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    said = log.read_text(encoding="utf-8", errors="replace")[-4000:]
    raise AssertionError(f"the gateway did not start within {START_SECONDS} s:\n{said}")
