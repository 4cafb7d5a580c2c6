"""What was acknowledged survives: processes that write are killed at random moments."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from dragoman.store.engine_store import Store
from store_help import OWNER, Bench, ending, said

SUPPORT = Path(__file__).parents[2] / "support"
KILLS = 6
"""Of one engine, in every run of the tests; `DRAGOMAN_KILLS` asks for more."""


def writer(url: str, name: str, *extra: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / "store_writer.py"), url, name, *extra],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    )


def acknowledged(process: "subprocess.Popen[str]", count: int) -> list[str]:
    """Kill the process after it has acknowledged so many; all that it said."""
    assert process.stdout is not None
    said = [process.stdout.readline().strip() for _ in range(count)]
    process.send_signal(signal.SIGKILL)
    # What it had said when it died is in the pipe; a line that it was in the middle of was not said.
    rest = process.stdout.read()
    process.stdout.close()
    process.wait(timeout=30)
    return [*said, *(line for line in rest.splitlines(keepends=True) if line.endswith("\n"))]


@pytest.mark.parametrize("way", [(), ("begin",)], ids=["put", "begin-finish"])
def test_acknowledged_responses_survive_the_killed_process_whole(
    lasting: Bench, way: tuple[str, ...]
) -> None:
    random = Random(1)
    kills = int(os.environ.get("DRAGOMAN_KILLS", KILLS)) // 2
    names: list[str] = []
    for number in range(kills):
        # Two at a time, on the same file or database; each dies at a moment of its own.
        pair = [writer(lasting.settings.url, f"w{number}{side}", *way) for side in "ab"]
        for process in pair:
            names += [line.strip() for line in acknowledged(process, random.randint(1, 60))]
    assert len(names) == len(set(names)) >= kills * 2

    async def work(store: Store) -> None:
        for name in names:
            writer_name, caller, index = name.split("-")
            text = f"{writer_name} {caller} {index}" * 50
            (link,) = await store.chain(OWNER, name)
            assert (link.head.status, link.parts) == ("completed", said(text))
            sent = await store.read(OWNER, name, stream=True)
            assert (sent.body, sent.stream) == (ending(text).body, b"data: x\n\n" * 100)

    lasting.clock.now = 0.0
    lasting.run(work)
