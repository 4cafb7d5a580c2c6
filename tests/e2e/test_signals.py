"""Signals to a gateway that is streaming: every stream ends with its end or a failure, in one process and in several."""

import os
import pty
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway_harness import wait_until
from served import PATIENCE, Served, serving

SLOW = {"model": "rehearsal-slow", "input": "one two three", "stream": True}
QUICK = {"model": "rehearsal", "input": "one", "store": False}


class Stream:
    """A stream that is read in a thread of its own."""

    def __init__(self, served: Served) -> None:
        self.answer = (0, b"")
        self._served = served
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        self.answer = self._served.receive("/v1/responses", SLOW)

    def end(self) -> bytes:
        self._thread.join(PATIENCE)
        assert self.answer[0] == 200
        return self.answer[1]


@contextmanager
def streaming(served: Served) -> Generator[Stream]:
    """While a stream is open."""
    stream = Stream(served)
    wait_until(lambda: "dragoman_open_streams 1.0" in served.ask("/metrics")[1].decode(), PATIENCE)
    yield stream
    assert b'"type":"response.completed"' in stream.end()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_terminal_that_is_closed_lets_streams_finish_and_ends_the_gateway(
    workers: str, tmp_path: Path
) -> None:
    """It sends SIGHUP, which elsewhere has the configuration read again."""
    terminal, inner = pty.openpty()
    gateway = Served(tmp_path, {}, "--workers", workers, "--log-format", "json")
    gateway.terminal = inner
    try:
        gateway.start()
        os.close(inner)
        with streaming(gateway):
            os.close(terminal)
        assert gateway.wait() == 0
        assert "stopping" in gateway.log.read_text(encoding="utf-8")
    finally:
        gateway.stop()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("to_group", [False, True])
def test_sighup_without_a_terminal_stops_nothing(
    workers: str, to_group: bool, tmp_path: Path
) -> None:
    with serving(tmp_path, {}, "--workers", workers, "--log-format", "json") as gateway:
        before = gateway.workers()
        with streaming(gateway):
            if to_group:
                os.killpg(gateway.pid, signal.SIGHUP)
            else:
                gateway.signal(signal.SIGHUP)
            read = "the configuration was read again"
            wait_until(lambda: gateway.log.read_text("utf-8").count(read) == int(workers), PATIENCE)
        assert gateway.workers() == before
        assert "stopping" not in gateway.log.read_text(encoding="utf-8")


def test_sighup_to_the_group_ends_no_worker_that_is_starting(tmp_path: Path) -> None:
    with serving(tmp_path, {}, "--workers", "2") as gateway:
        wait_until(lambda: len(gateway.workers()) == 2, PATIENCE)
        before = gateway.workers()
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: not set(gateway.workers()) <= set(before), PATIENCE)
        after = gateway.workers()
        os.killpg(gateway.pid, signal.SIGHUP)
        read = "the configuration was read again"
        wait_until(lambda: gateway.log.read_text("utf-8").count(read) == 2, PATIENCE)
        assert gateway.workers() == after


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sighup_is_ignored_where_it_was_ignored_before(workers: str, tmp_path: Path) -> None:
    with serving(tmp_path, {}, "--workers", workers, wrapper=("nohup",)) as gateway:
        with streaming(gateway):
            os.killpg(gateway.pid, signal.SIGHUP)
        assert gateway.ask("/v1/responses", QUICK)[0] == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_worker_that_is_ended_is_replaced_however_young(
    number: signal.Signals, tmp_path: Path
) -> None:
    with serving(tmp_path, {}, "--workers", "2") as gateway:
        for _ in range(2):
            wait_until(lambda: len(gateway.workers()) == 2, PATIENCE)
            before = gateway.workers()
            os.kill(before[0], number)
            wait_until(lambda: before[0] not in gateway.workers(), PATIENCE)  # noqa: B023 - awaited here
        wait_until(lambda: len(gateway.workers()) == 2, PATIENCE)
        assert gateway.ask("/v1/responses", QUICK)[0] == 200


def test_workers_finish_their_streams_and_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, {}, "--workers", "2") as gateway:
        workers = gateway.workers()
        with streaming(gateway):
            gateway.signal(signal.SIGKILL)
            gateway.wait()
        wait_until(lambda: not any(map(is_running, workers)), PATIENCE)


def is_running(pid: int) -> bool:
    """Not one that has ended and that nobody has waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
