"""A gateway in a process of its own that measures how long its event loop is held. Run by `test_loop_is_not_held`.

A task ticks every millisecond. Between two ticks the process may spend CPU time: in a callback of the loop, or in a
thread that keeps the interpreter's lock. That is what is recorded, and not the time on the clock, which counts other
processes of a busy machine too. Each line on stdin asks for the figures since the last one.
"""

import asyncio
import gc
import json
import socket
import sys
import time
from pathlib import Path

import uvloop

from dragoman.config.read import load_settings
from dragoman.server.app import create_app
from dragoman.server.run import make_server

TICK = 0.001


class Heartbeat:
    """The longest time between two ticks: CPU time of the process, CPU time of the loop's thread, time on the clock."""

    def __init__(self) -> None:
        self.longest = [0.0, 0.0, 0.0]

    async def beat(self) -> None:
        before = _clocks()
        while True:
            await asyncio.sleep(TICK)
            now = _clocks()
            self.longest = [
                max(most, after - start)
                for most, after, start in zip(self.longest, now, before, strict=True)
            ]
            before = now

    def take(self) -> dict[str, float]:
        process, loop, wall = self.longest
        self.longest = [0.0, 0.0, 0.0]
        return {"process": process, "loop": loop, "wall": wall, "peak": _peak_bytes()}


def _peak_bytes() -> int:
    """What the process took at most. Not `getrusage`: that counts what the process had before it was this program."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _clocks() -> tuple[float, float, float]:
    return time.process_time(), time.thread_time(), time.monotonic()


async def main(config: str) -> None:
    settings = load_settings(Path(config), {})
    app = create_app(settings)
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        listener.setblocking(False)
        server = make_server(app, settings)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        heartbeat = Heartbeat()
        beating = asyncio.create_task(heartbeat.beat())
        print(listener.getsockname()[1], flush=True)
        loop = asyncio.get_running_loop()
        lines = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while await lines.readline():
            await asyncio.sleep(5 * TICK)  # the tick that sees what was just done
            print(json.dumps(heartbeat.take()), flush=True)
        beating.cancel()
        server.should_exit = True
        await serving


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    sys.setswitchinterval(0.001)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))
