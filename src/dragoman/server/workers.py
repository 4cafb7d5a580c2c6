"""Several processes behind one socket. The parent binds it, starts the workers, replaces one that dies, and stops all.

Each worker is a whole gateway of its own; they share the socket and, through files, the metrics. Workers whose parent was
killed stop as well: nobody could stop them any more, and a new parent could not bind the socket.
"""

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from types import FrameType

from dragoman.server.shared_metrics import forget_worker

__all__ = ("stop_signals", "supervise")

_POLL_SECONDS = 0.2
# A worker that fails younger than this cannot start: starting it again would go on for ever. (One that a signal ended, or
# that was asked to end, has an exit code of zero or below.)
_MIN_LIFE_SECONDS = 2.0

Work = Callable[[socket.socket], None]


def stop_signals() -> tuple[int, ...]:
    """The signals that end a gateway. SIGHUP (the terminal is gone) unless whoever started it had it ignored, like `nohup`."""
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    hangup: int | None = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        numbers.append(hangup)
    return tuple(numbers)


def supervise(work: Work, listener: socket.socket, count: int) -> int:
    """Run `work(listener)` in `count` processes until a signal ends it. The exit code.

    `work` is sent to fresh processes, so it must be picklable; it ends by itself on SIGTERM.
    """
    context = multiprocessing.get_context("spawn")
    stopped = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    for number in stop_signals():
        signal.signal(number, stop)

    def start() -> tuple[BaseProcess, float]:
        process = context.Process(target=_work, args=(work, listener))
        process.start()
        return process, time.monotonic()

    workers = [start() for _ in range(count)]
    code = 0
    while not stopped:
        time.sleep(_POLL_SECONDS)
        for position, (process, began) in enumerate(workers):
            if process.is_alive() or stopped:
                continue
            is_young = time.monotonic() - began < _MIN_LIFE_SECONDS
            if is_young and (process.exitcode or 0) > 0:
                code, stopped = 1, True
                break
            forget_worker(process.pid or 0)
            workers[position] = start()
    for process, _ in workers:
        process.terminate()
    for process, _ in workers:
        process.join()
    return code


def _work(work: Work, listener: socket.socket) -> None:
    """The whole of a worker process."""
    threading.Thread(target=_stop_with_parent, name="parent-watch", daemon=True).start()
    work(listener)


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
