"""Runs a client in the foreground: it has the terminal; this process passes signals on to it and returns its exit code.

A terminal sends Ctrl-C, Ctrl-\\ and its end to all processes of its foreground group, so the client gets them by itself, and
this process must only not end because of them. A signal that was sent to this process alone is passed on.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from dragoman.errors import ConfigError

_FROM_TERMINAL = ("SIGINT", "SIGQUIT", "SIGHUP")
_HANDLED = (*_FROM_TERMINAL, "SIGTERM")
_BY_SIGNAL = 128  # shells report 128 and the number of the signal


def run_client(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end. Returns its exit code.

    Raises:
        ConfigError: the program cannot be started.
    """
    relay = _SignalRelay()
    with relay.installed(), _terminal_kept():
        try:
            process = subprocess.Popen(list(command), env=dict(environ))  # noqa: S603 - what the user asked to launch
        except OSError as error:
            raise ConfigError(
                f"expected to start {command[0]}: {error.strerror or error}"
            ) from error
        relay.process = process
        code = process.wait()
    return code if code >= 0 else _BY_SIGNAL - code


class _SignalRelay:
    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._has_been_ended = False

    @contextmanager
    def installed(self) -> Generator[None]:
        # Handlers, not SIG_IGN, which the client would inherit. A signal that is ignored (`nohup`) stays ignored for both.
        numbers = [getattr(signal, name) for name in _HANDLED if hasattr(signal, name)]
        handled = [each for each in numbers if signal.getsignal(each) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._receive) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.process is None:
            # The client does not run yet: end as if there were no handler.
            raise KeyboardInterrupt
        name = signal.Signals(number).name
        if name in _FROM_TERMINAL and _is_in_foreground():
            return
        if name == "SIGTERM" and self._has_been_ended:
            self.process.kill()
            return
        self._has_been_ended = self._has_been_ended or name == "SIGTERM"
        self.process.send_signal(number)


def _is_in_foreground() -> bool:
    """Whether a terminal sends its signals to this process and, in the same group, to the client."""
    if sys.platform == "win32":
        return True
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            return os.tcgetpgrp(descriptor) == os.getpgrp()
    return False


@contextmanager
def _terminal_kept() -> Generator[None]:
    """Restore the mode of the terminal: a killed client leaves it without echo and line ends."""
    if sys.platform == "win32" or not os.isatty(0):
        yield
        return
    import termios  # noqa: PLC0415 - not on every system

    before = termios.tcgetattr(0)
    try:
        yield
    finally:
        if _is_in_foreground():  # a process in the background would be stopped
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, before)
