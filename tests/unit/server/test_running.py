"""Which gateways run: records, and what answers at an address."""

import json
import os
import socket
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from dragoman.config.check import complete
from dragoman.config.settings import Settings
from dragoman.server.running import (
    fetch_all,
    find_gateway,
    find_owners,
    recorded,
    recorded_urls,
)
from gateway_harness import running_gateway
from http_servers import QuietHandler, running_server
from ports import free_port


def test_a_gateway_is_found_with_its_models() -> None:
    with running_gateway(complete(Settings())) as gateway:
        found = find_gateway(gateway.url)
        assert found is not None
        assert found.models is not None
        assert found.models[0].name == "rehearsal"
        assert find_owners(
            gateway.url, None, ("rehearsal", "odd/na me?", "rehearsal-of-nothing")
        ) == {
            "rehearsal": "rehearsal",
            "odd/na me?": "rehearsal",
            "rehearsal-of-nothing": None,
        }


def test_nothing_is_found_where_nobody_listens() -> None:
    assert find_gateway(f"http://127.0.0.1:{free_port()}") is None


class Other(QuietHandler):
    """A server that answers everything in JSON."""

    def respond(self) -> None:
        self.answer(200, b'{"status":"ok","data":[{"id":"m"}]}')


def test_another_server_is_not_taken_for_a_gateway() -> None:
    with running_server(Other) as address:
        assert find_gateway(f"http://{address}") is None


def test_a_server_that_trickles_holds_nobody_up() -> None:
    stop = threading.Event()

    def trickle(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with closing(connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not stop.wait(0.05):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        began = time.monotonic()
        assert fetch_all((url,), patience=0.5) == {url: None}
        assert time.monotonic() - began < 30
        stop.set()
        thread.join()


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with running_gateway(complete(Settings())) as gateway:
        assert find_gateway(gateway.url) is not None


def test_a_record_lives_as_long_as_the_gateway(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    assert recorded_urls(environ) == []
    with recorded("http://127.0.0.1:9000", environ):
        assert recorded_urls(environ) == ["http://127.0.0.1:9000"]
        (file,) = (tmp_path / "dragoman" / "gateways").iterdir()
        assert file.stat().st_mode & 0o077 == 0
    assert recorded_urls(environ) == []


def test_records_of_processes_that_are_gone_and_damaged_ones_are_ignored(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    gone = subprocess.Popen(["true"])
    gone.wait()
    with recorded("http://127.0.0.1:9000", environ):
        folder = tmp_path / "dragoman" / "gateways"
        for name, text in (
            (str(gone.pid), json.dumps({"url": "http://127.0.0.1:1"})),
            (str(os.getppid()), "not JSON"),
            ("name", json.dumps({"url": "http://127.0.0.1:2"})),
            ("9" * 30, json.dumps({"url": "http://127.0.0.1:3"})),
        ):
            (folder / f"{name}.json").write_text(text, encoding="utf-8")
        assert recorded_urls(environ) == ["http://127.0.0.1:9000"]


def test_a_record_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "dragoman").write_text("a file where the folder should be", encoding="utf-8")
    with recorded("http://127.0.0.1:9000", {"XDG_STATE_HOME": str(tmp_path)}):
        assert recorded_urls({"XDG_STATE_HOME": str(tmp_path)}) == []
