"""The first Ctrl-C calls the registered handler, the second ends the program, whatever its tasks and processes do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

PATIENCE = 30.0

PROGRAM = """
import asyncio, subprocess, sys
from dragoman.cli.run import signals as module

async def main(way, grace):
    module.GRACE_SECONDS = float(grace)
    signals = module.Signals()
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    with signals.watched():
        if way != "bare":
            signals.on_interrupt = lambda: print("once", flush=True)
        print(child.pid, flush=True)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("cancelled", flush=True)
            while way == "stubborn":
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    pass
            child.kill()
            child.wait()
            return signals.code

sys.exit(asyncio.run(main(*sys.argv[1:])))
"""


@contextmanager
def running(way: str, *, grace: float = 0.5) -> Generator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, way, str(grace)],
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        process.stdout.close()


def is_gone(process: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("way", ["gentle", "stubborn"])
def test_second_ctrl_c_ends_it_even_if_a_task_will_not(way: str) -> None:
    with running(way) as (process, child):
        process.send_signal(signal.SIGINT)
        assert line(process) == "once"
        process.send_signal(signal.SIGINT)
        assert line(process) == "cancelled"
        assert process.wait(PATIENCE) == 130
        assert is_gone(child)


def test_third_ctrl_c_does_not_wait_for_the_grace() -> None:
    with running("stubborn", grace=3600.0) as (process, child):
        for found in ("once", "cancelled"):
            process.send_signal(signal.SIGINT)
            assert line(process) == found
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert is_gone(child)


def test_first_ctrl_c_ends_it_where_nothing_else_is_to_be_ended() -> None:
    with running("bare") as (process, child):
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert is_gone(child)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_to_end_ends_it(number: signal.Signals, code: int) -> None:
    with running("gentle") as (process, child):
        process.send_signal(number)
        assert process.wait(PATIENCE) == code
        assert is_gone(child)
