"""Reading the configuration again while the gateway runs: what asks for it, where it is read from, and what came of it.

    signal     meaning
    SIGHUP     read the configuration again; if it came because the terminal was closed: stop
    SIGUSR2    start new workers in place of the running ones (`workers`)

A configuration with a problem changes nothing. The address and the number of workers cannot change while the gateway listens:
they stay, and the log says so.
"""

import asyncio
import errno
import logging
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, Self

from msgspec import Struct, structs

from dragoman.config.check import complete
from dragoman.config.read import CONFIG_FILE, Flags, find_file, load_checked_settings
from dragoman.config.settings import ServerSettings, Settings
from dragoman.config.trust import refuse_untrusted
from dragoman.config.values import read_toml
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.server.run import Server

logger = logging.getLogger(__name__)

LISTENING = ("host", "port")
"""The settings of the server that belong to its socket."""
FIXED = (*LISTENING, "workers")
"""The settings of the server that a reload does not change."""

Request = Literal["stop", "reload", "restart"]


class ReloadResult(Struct, frozen=True):
    """What came of a reload or a restart. problems: why nothing changed. notes: what did not change, and why."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


OnReload = Callable[[ReloadResult], None]


class Source(Struct, frozen=True):
    """Where the settings of a gateway come from: the file, if one was named, and the flags; and the environment.

    has_file: there was a file with settings when the gateway started.
    """

    path: str | None
    flags: Flags
    has_file: bool = False

    @classmethod
    def at_start(cls, path: str | None, flags: Flags) -> Self:
        """The source of a gateway that starts. A file that can be read once, such as a pipe, is not read here."""
        file = find_file(path, os.environ)
        return cls(path, flags, file is not None and (not file.is_file() or _has_settings(file)))

    def load(self, fixed: Mapping[str, object]) -> tuple[Settings, tuple[str, ...]]:
        """The settings as they are now, and notes about those of `fixed` that stay as they are.

        Raises:
            ConfigError: the settings cannot work (one line of the message per reason), or they are not trusted.
        """
        if self.has_file:
            _check_file(find_file(self.path, os.environ))
        settings = load_checked_settings(self.path, os.environ, self.flags, refuse_untrusted)
        notes = [
            f"server.{name}: {getattr(settings.server, name)!r} needs a restart; it stays {value!r}"
            for name, value in fixed.items()
            if getattr(settings.server, name) != value
        ]
        if notes:
            # Checked again: a server that listens beyond this machine must not lose its keys because the file says it does not.
            server = structs.replace(settings.server, **fixed)
            settings = complete(structs.replace(settings, server=server))
        return settings, tuple(notes)


def _check_file(file: Path | None) -> None:
    """Refuse a file that is about to be replaced, or that was read already: without its settings there are no keys.

    Raises:
        ConfigError: the file is not there, is no file, or has no settings.
    """
    if file is None:
        raise ConfigError(
            f"{CONFIG_FILE}: expected the file that was read at the start, it is gone"
        )
    if file.exists() and not file.is_file():
        raise ConfigError(f"{file}: expected a regular file, which can be read again")
    if file.exists() and not _has_settings(file):
        raise ConfigError(f"{file}: expected the settings of the gateway, the file has no settings")


def _has_settings(file: Path) -> bool:
    """Whether a file is more than comments. One that cannot be read is reported when it is read for its settings."""
    try:
        return bool(read_toml(file.read_bytes(), str(file)))
    except (OSError, ConfigError):
        return True


def fixed_settings(server: ServerSettings) -> dict[str, object]:
    """The values of the settings that a reload cannot change, for `Source.load`."""
    return {name: getattr(server, name) for name in FIXED}


class ReloadSignals:
    """What signals have asked for. They are taken some time later, in the order of their urgency."""

    def __init__(self) -> None:
        self._wanted: set[Request] = set()
        self._had_terminal = _has_terminal()

    def listen(self) -> None:
        """Take the signals from now on. One that is ignored, as `nohup` has it, stays ignored."""
        if sys.platform == "win32":
            return
        for number, handler in ((signal.SIGHUP, self._hang_up), (signal.SIGUSR2, self._restart)):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

    def take(self) -> Request | None:
        """The next request; None if there is none."""
        for request in ("stop", "reload", "restart"):
            if request in self._wanted:
                self._wanted.discard(request)
                return request
        return None

    def _hang_up(self, _signal: int, _frame: FrameType | None) -> None:
        is_closed = self._had_terminal and not _has_terminal()
        self._wanted.add("stop" if is_closed or _has_hung_up() else "reload")

    def _restart(self, _signal: int, _frame: FrameType | None) -> None:
        self._wanted.add("restart")


def takes_hangups() -> bool:
    """Whether a gateway that is started in this process can be reloaded by a signal."""
    return sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal, and that is open. Its streams may lead elsewhere all the same."""
    if sys.platform == "win32":
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)  # that says nothing about the terminal
    return True


def _has_hung_up() -> bool:
    """Whether a standard stream is a terminal that was closed. (A pipe whose other end was closed is none.)"""
    for descriptor in (0, 1, 2):
        try:
            if not stat.S_ISCHR(os.fstat(descriptor).st_mode):
                continue
            poll = select.poll()
            poll.register(descriptor, 0)
            if any(state & select.POLLHUP for _, state in poll.poll(0)):
                return True
        except OSError:
            continue
    return False


class SignalledChanges:
    """The changes that signals ask of a server that is alone in its process."""

    def __init__(self, signals: ReloadSignals, source: Source, report: OnReload) -> None:
        self._signals = signals
        self._source = source
        self._report = report

    def take(self, server: "Server") -> Coroutine[object, object, None] | None:
        """The work to do now; None if there is none."""
        request = self._signals.take()
        if request == "stop":
            server.should_exit = True
        elif request == "reload":
            return self._reload(server)
        elif request == "restart":
            problem = "expected several workers (server.workers) that can be replaced one by one; this gateway is one process"
            logger.error("not restarted: %s", problem)
            self._report(ReloadResult((problem,)))
        return None

    async def _reload(self, server: "Server") -> None:
        outcome = await read_settings(self._source, fixed_settings(server.settings.server))
        if not isinstance(outcome, ReloadResult):
            settings, notes = outcome
            outcome = await apply_settings(server, settings, notes)
        self._report(outcome)


async def read_settings(
    source: Source, fixed: Mapping[str, object]
) -> tuple[Settings, tuple[str, ...]] | ReloadResult:
    """The settings as they are now, with the notes of `Source.load`; or the outcome, if they have problems, which are logged."""
    try:
        return await asyncio.to_thread(source.load, fixed)
    except ConfigError as error:
        return _refused(error)


async def apply_settings(
    server: "Server", settings: Settings, notes: tuple[str, ...]
) -> ReloadResult:
    """Have a server work by other settings."""
    try:
        await server.change(settings)
    except ConfigError as error:
        return _refused(error)
    except Exception as error:
        logger.exception("the configuration could not be applied; the settings stay as they were")
        return ReloadResult((f"the settings could not be applied: {error}",))
    for note in notes:
        logger.warning("%s", note)
    return ReloadResult((), notes)


def _refused(error: ConfigError) -> ReloadResult:
    problems = tuple(error.message.split("\n"))
    for problem in problems:
        logger.error("the settings stay as they were: %s", problem)
    return ReloadResult(problems)
