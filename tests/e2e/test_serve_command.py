"""`dragoman serve` as a person starts it: in a process of its own, stopped by a signal."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway_harness import wait_until
from ports import free_port

PATIENCE = 60.0  # a new process imports everything again, on a machine that may be busy


@contextmanager
def serving(folder: Path, *options: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "serve", "--port", str(port), *options],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or _answers(f"{url}/readyz"), PATIENCE)
        yield process, url
    finally:
        if process.poll() is None:
            process.terminate()  # a parent that is killed cannot end its workers
        process.communicate(timeout=PATIENCE)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _requests_counted(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as response:
        lines = response.read().decode().splitlines()
    counts = [line for line in lines if line.startswith("dragoman_requests_total")]
    return sum(float(line.rpartition(" ")[2]) for line in counts)


def ask(url: str) -> str:
    body = {"model": "rehearsal", "messages": [{"role": "user", "content": "Say marker-1."}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        answer = json.loads(response.read())
    text: str = answer["choices"][0]["message"]["content"]
    return text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serves_without_key_or_configuration_until_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path, "--log-format", "json") as (process, url):
        assert "marker-1" in ask(url)
        process.send_signal(number)
        _, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        lines = [json.loads(line) for line in log.splitlines()]
        (line,) = [line for line in lines if line.get("event") == "request"]
        assert line["door"] == "chat"
        assert line["upstream"] == "rehearsal"
        assert "marker-1" not in log


def test_several_workers_share_one_address_and_one_set_of_metrics(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2", "--log-format", "json") as (process, url):
        for _ in range(8):
            assert "marker-1" in ask(url)
        wait_until(lambda: _requests_counted(url) == 8, PATIENCE)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


def serve_at(folder: Path, port: int) -> str:
    """What a gateway complains of that cannot be started at a port."""
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "serve", "--port", str(port)],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    return done.stderr


def test_port_of_another_program_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve_at(tmp_path, port) == (
            f"dragoman: expected to listen on 127.0.0.1:{port}, but another program does; "
            "stop it, or choose another port: --port, server.port\n"
        )


def test_port_of_a_gateway_is_reported_as_such(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, url):
        complaint = serve_at(tmp_path, int(url.rpartition(":")[2]))
    assert "but a gateway already runs there; use it (dragoman connect), stop it" in complaint


def test_listening_beyond_this_machine_needs_a_key(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "serve", "--host", "0.0.0.0", "--port", "0"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert "DRAGOMAN_API_KEYS" in done.stderr
