"""Several processes behind one socket. The parent binds it, starts the workers, replaces one that dies, and stops all.

Each worker is a whole gateway of its own; they share the socket and, through files, the metrics.
"""

import multiprocessing
import signal
import socket
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from types import FrameType

from dragoman.server.shared_metrics import forget_worker

__all__ = ("supervise",)

_POLL_SECONDS = 0.2
# A worker that dies younger than this failed to start: starting it again would go on for ever.
_MIN_LIFE_SECONDS = 2.0

Work = Callable[[socket.socket], None]


def supervise(work: Work, listener: socket.socket, count: int) -> int:
    """Run `work(listener)` in `count` processes until SIGINT or SIGTERM. The exit code.

    `work` is sent to fresh processes, so it must be picklable; it ends by itself on SIGTERM.
    """
    context = multiprocessing.get_context("spawn")
    stopped = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)

    def start() -> tuple[BaseProcess, float]:
        process = context.Process(target=work, args=(listener,))
        process.start()
        return process, time.monotonic()

    workers = [start() for _ in range(count)]
    code = 0
    while not stopped:
        time.sleep(_POLL_SECONDS)
        for position, (process, began) in enumerate(workers):
            if process.is_alive() or stopped:
                continue
            if time.monotonic() - began < _MIN_LIFE_SECONDS:
                code, stopped = 1, True
                break
            forget_worker(process.pid or 0)
            workers[position] = start()
    for process, _ in workers:
        process.terminate()
    for process, _ in workers:
        process.join()
    return code
