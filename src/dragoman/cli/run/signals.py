"""Ctrl-C interrupts the current answer, a second Ctrl-C the program; SIGTERM and SIGHUP end the program at once.

The program ends by cancelling the command's task, and everything below it cleans up. Processes that do not end in time are
killed, so no process is left behind.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from dragoman.cli.screen import INTERRUPTED
from dragoman.engine.builtin.shell import processes, stat_fields

# Time for tools to end, short because the person has already pressed Ctrl-C twice.
GRACE_SECONDS = 0.5
_FATAL = {"SIGTERM": 143, "SIGHUP": 129}  # the exit codes that shells report for these signals


class Signals:
    """Handles signals. on_interrupt: called at the first Ctrl-C; None: the first Ctrl-C ends the program.

    on_leave: called before the program is ended without cleaning up.
    """

    def __init__(self) -> None:
        self.on_interrupt: Callable[[], None] | None = None
        self.on_leave: Callable[[], None] | None = None
        self.code: int | None = None
        self._is_warned = False
        self._task: asyncio.Task[object] | None = None

    @contextmanager
    def watched(self) -> Generator[None]:
        """Handle signals for the current task while the context lasts. Needs the running loop."""
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        numbers = [signal.SIGINT]
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        for name, code in _FATAL.items():
            number = getattr(signal, name, None)
            if number is not None:
                loop.add_signal_handler(number, self._end, code)
                numbers.append(number)
        try:
            yield
        finally:
            # From here on only the loop has to end, which takes almost no time: signals get their default effect.
            for number in numbers[1:]:
                loop.remove_signal_handler(number)

    @contextmanager
    def calling(self, name: str, function: Callable[[], None]) -> Generator[None]:
        """Call a function at a signal while the context lasts. Needs the running loop."""
        loop = asyncio.get_running_loop()
        number = getattr(signal, name, None)
        if number is None:
            yield
            return
        loop.add_signal_handler(number, function)
        try:
            yield
        finally:
            loop.remove_signal_handler(number)

    def reset(self) -> None:
        """Count the next Ctrl-C as the first: a new answer begins."""
        self._is_warned = False

    def _interrupted(self) -> None:
        if self.on_interrupt is None or self._is_warned:
            self._end(INTERRUPTED)
        else:
            self._is_warned = True
            self.on_interrupt()

    def _end(self, code: int) -> None:
        if self.code is not None:
            self._leave(code)
        self.code = code
        if self._task is not None:
            self._task.cancel()
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._leave, code)

    def _leave(self, code: int) -> None:
        if self.on_leave is not None:
            self.on_leave()
        _leave(code)


def _leave(code: int) -> None:
    for process in _descendants():
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)
    os._exit(code)


def _descendants() -> list[int]:
    """All child processes, direct and indirect; an empty list if the system has no /proc."""
    children: dict[int, list[int]] = {}
    for entry in processes():
        fields = stat_fields(entry)
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(children.get(os.getpid(), ()))
    for process in found:  # the list grows during the loop
        found.extend(children.get(process, ()))
    return found
