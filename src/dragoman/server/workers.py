"""The worker processes of `dragoman serve`, which accept connections from one listening socket, and the process that starts them.

The parent has a pipe to each worker. It reads no configuration itself: a worker does, and what it has read goes as bytes to
the others. So workers of a newer version, which were started without stopping the parent, understand what the parent cannot.

    parent ──► worker                       worker ──► parent
    ("read", fixed)                         ("settings", bytes, notes)  or  ("problems", problems)
    ("apply", bytes)                        ("applied",)                or  ("problems", problems)
    the end of the parent: stop             ("serving", bytes, count)   once, when it accepts connections
"""

import logging
import multiprocessing
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, cast

from dragoman.config.settings import Settings
from dragoman.errors import ConfigError
from dragoman.server.observe.metrics import forget_worker
from dragoman.server.reload import (
    LISTENING,
    OnReload,
    ReloadResult,
    ReloadSignals,
    Source,
    apply_settings,
    fixed_settings,
    read_settings,
)

if TYPE_CHECKING:
    from dragoman.server.run import Server

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
# A worker that fails sooner, or before it served, cannot start. (A worker that a signal ended, or that was asked to end, has an
# exit code of zero or below.)
_MIN_LIFE_SECONDS = 2.0
# After which a worker that cannot start is tried again, while others serve: another version may be about to be installed.
_PAUSE_SECONDS = 5.0
# In which a worker must read the settings, or begin to serve. A worker imports everything again, on a machine that may be busy.
_PATIENCE = 60.0
_ANSWER_POLL = 0.05

Message = tuple[object, ...]
Serve = Callable[[Settings, socket.socket, "WorkerChanges"], None]
"""Serves in a worker until it is stopped. It is sent to new processes, so it must be picklable; it must end on SIGTERM."""

_ENDED = "a worker ended before it answered; its log says why"


@contextmanager
def _signals_blocked() -> Generator[None]:
    """Block the signals for the parent, so that a process that is started now has them blocked until it handles them.

    A terminal sends them to all processes of the group, and a new interpreter does not handle them for its first second.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGUSR2))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, start: Callable[[Connection], multiprocessing.Process]) -> None:
        self.pipe, other = multiprocessing.Pipe()
        with other:
            self.process = start(other)
        self.has_served = False
        self.retry_at: float | None = None  # it could not start, and is tried again then
        self._began = time.monotonic()

    @property
    def cannot_start(self) -> bool:
        """Whether a worker that has ended has failed at its start. To be asked soon after its end."""
        is_young = time.monotonic() - self._began < _MIN_LIFE_SECONDS
        return (is_young or not self.has_served) and (self.process.exitcode or 0) > 0

    def _receive(self) -> Message:
        message = cast("Message", self.pipe.recv())
        self.has_served = self.has_served or message[0] == "serving"
        return message

    def send(self, *message: object) -> None:
        with suppress(OSError):  # it has ended, which the next question shows
            self.pipe.send(message)

    def answer(self, *, kinds: Sequence[str], is_stopped: Callable[[], bool]) -> Message:
        """The next message of one of these kinds, or the problems that prevent it."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and not is_stopped():
            try:
                if self.pipe.poll(_ANSWER_POLL):
                    message = self._receive()
                    if message[0] in kinds:
                        return message
            except (EOFError, OSError):
                return ("problems", (_ENDED,))
        problem = (
            "the gateway stops" if is_stopped() else f"a worker did not answer in {_PATIENCE:g} s"
        )
        return ("problems", (problem,))

    def drop_messages(self) -> None:
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                self._receive()

    def end(self) -> None:
        """Wait for the end of the process, and forget its gauges."""
        self.process.join()
        self.pipe.close()
        forget_worker(self.process.pid or 0)


class Supervisor:
    """Runs `serve` in worker processes, on one socket, until a signal ends them."""

    def __init__(
        self, serve: Serve, listener: socket.socket, source: Source, report: OnReload
    ) -> None:
        self._serve = serve
        self._listener = listener
        self._source = source
        self._report = report
        self._context = multiprocessing.get_context("spawn")
        self._held = b""  # the settings in force
        self._fixed: dict[str, object] = {}
        self._workers: list[_Worker] = []
        self._leaving: list[_Worker] = []  # they serve what they have
        self._has_served = False
        self._is_stopped = False

    def run(self, settings: Settings, signals: ReloadSignals) -> int:
        """Run until a signal ends the workers. Returns the exit code."""
        self._held = pickle.dumps(settings)
        self._fixed = fixed_settings(settings.server)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        self._workers = [self._start(self._held) for _ in range(settings.server.workers)]
        code = 0
        while not self._is_stopped and code == 0:
            time.sleep(_POLL_SECONDS)
            code = self._replace_ended()
            request = signals.take()
            if request == "stop":
                self._is_stopped = True
            elif request == "reload":
                self._report(self._reload())
            elif request == "restart":
                self._report(self._restart())
        for worker in (*self._workers, *self._leaving):
            worker.process.terminate()
        for worker in (*self._workers, *self._leaving):
            worker.process.join()
        return code

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._is_stopped = True

    def _start(self, held: bytes | None) -> _Worker:
        """Start a worker. `held`: its settings; None: it reads them."""
        fixed = {name: self._fixed[name] for name in LISTENING}

        def start(pipe: Connection) -> multiprocessing.Process:
            process = self._context.Process(
                target=run_worker,
                args=(self._serve, self._listener, pipe, self._source, held, fixed),
            )
            with _signals_blocked():
                process.start()
            return cast("multiprocessing.Process", process)

        return _Worker(start)

    def _replace_ended(self) -> int:
        """Start workers in place of those that ended. Not zero: workers cannot start, and none serves; it is the exit code."""
        for worker in self._workers:
            worker.drop_messages()
            self._has_served = self._has_served or worker.has_served
        for position, worker in enumerate(self._workers):
            if worker.process.is_alive() or self._is_stopped:
                continue
            if worker.retry_at is None and worker.cannot_start:
                if not self._has_served or not self._running():
                    return 1
                worker.retry_at = time.monotonic() + _PAUSE_SECONDS
                logger.error(
                    "a worker cannot start, the others serve; it is started again in %g s",
                    _PAUSE_SECONDS,
                )
            if worker.retry_at is None or time.monotonic() >= worker.retry_at:
                worker.end()
                self._workers[position] = self._start(self._held)
        for worker in tuple(self._leaving):
            if not worker.process.is_alive():
                self._leaving.remove(worker)
                worker.end()
        return 0

    def _running(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.process.is_alive()]

    def _answer(self, worker: _Worker, *kinds: str) -> Message:
        return worker.answer(kinds=(*kinds, "problems"), is_stopped=lambda: self._is_stopped)

    def _reload(self) -> ReloadResult:
        """Have one worker read the settings, then all apply them; if one cannot, none does."""
        workers = self._running()
        if not workers:
            return ReloadResult((_ENDED,))
        reader = workers[0]
        reader.send("read", self._fixed)
        kind, *rest = self._answer(reader, "settings")
        if kind == "problems":
            return ReloadResult(_texts(rest[0]))
        held, notes = cast("tuple[bytes, tuple[str, ...]]", tuple(rest))
        problems = self._apply(held, workers)
        if not problems:
            self._held = held
            return ReloadResult((), notes)
        self._apply(self._held, workers)
        return ReloadResult(problems)

    def _apply(self, held: bytes, workers: Sequence[_Worker]) -> tuple[str, ...]:
        """Returns the problems of the workers that could not apply these settings."""
        for worker in workers:
            worker.send("apply", held)
        answers = [self._answer(worker, "applied") for worker in workers]
        problems = [
            text for kind, *rest in answers if kind == "problems" for text in _texts(rest[0])
        ]
        return tuple(dict.fromkeys(problems))

    def _restart(self) -> ReloadResult:
        """Start new workers, which read the settings, and let the old ones go when the new ones serve.

        The new ones run the code that is installed now. If one of them cannot serve, all of them go, and nothing has changed.
        """
        first = self._start(None)
        new = [first]
        kind, *rest = self._answer(first, "serving")
        if kind != "problems":
            held, count = cast("tuple[bytes, int]", tuple(rest))
            new += [self._start(held) for _ in range(count - 1)]
            answers = [self._answer(worker, "serving") for worker in new[1:]]
            kind, *rest = next((each for each in answers if each[0] == "problems"), ("serving",))
            if kind != "problems":
                self._held = held
                self._fixed["workers"] = count
                self._leaving += self._workers
                self._workers = new
                for worker in self._leaving:
                    worker.process.terminate()
                return ReloadResult()
        for worker in new:
            worker.process.terminate()
        self._leaving += new
        return ReloadResult(_texts(rest[0]))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, cast("Sequence[object]", value)))


class WorkerChanges:
    """The changes that a parent asks of its worker, as the worker sees them."""

    def __init__(self, pipe: Connection, source: Source) -> None:
        self._pipe = pipe
        self._source = source
        self._is_announced = False

    def take(self, server: "Server") -> Coroutine[object, object, None] | None:
        """The work to do now; None if there is none. Called while the server accepts connections."""
        if not self._is_announced:
            self._is_announced = True
            held = pickle.dumps(server.settings)
            self.send("serving", held, server.settings.server.workers)
        try:
            if not self._pipe.poll():
                return None
            kind, *rest = cast("Message", self._pipe.recv())
        except (EOFError, OSError):
            server.should_exit = True  # the parent is gone
            return None
        if kind == "read":
            return self._read(cast("Mapping[str, object]", rest[0]))
        return self._apply(server, cast("bytes", rest[0]))

    async def _read(self, fixed: Mapping[str, object]) -> None:
        outcome = await read_settings(self._source, fixed)
        if isinstance(outcome, ReloadResult):
            self.send("problems", outcome.problems)
        else:
            settings, notes = outcome
            for note in notes:
                logger.warning("%s", note)
            self.send("settings", pickle.dumps(settings), notes)

    async def _apply(self, server: "Server", held: bytes) -> None:
        settings: Settings = pickle.loads(held)  # noqa: S301 - from a worker of the same parent
        outcome = await apply_settings(server, settings, ())
        if outcome.problems:
            self.send("problems", outcome.problems)
        else:
            self.send("applied")

    def send(self, *message: object) -> None:
        with suppress(OSError):  # the parent is gone, which the next look at the pipe shows
            self._pipe.send(message)


def run_worker(
    serve: Serve,
    listener: socket.socket,
    pipe: Connection,
    source: Source,
    held: bytes | None,
    fixed: Mapping[str, object],
) -> None:
    """The main function of a worker process."""
    changes = WorkerChanges(pipe, source)
    if sys.platform != "win32":
        # They are for the parent, but a terminal sends them to all. Not `SIG_IGN`, which programs started here would inherit.
        for number in (signal.SIGHUP, signal.SIGUSR2):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _pass_over)
        # The parent has blocked them (`_signals_blocked`).
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP, signal.SIGUSR2))
    try:
        settings: Settings = (
            source.load(fixed)[0] if held is None else pickle.loads(held)  # noqa: S301 - from the parent
        )
    except ConfigError as error:
        changes.send("problems", tuple(error.message.split("\n")))
        return
    serve(settings, listener, changes)


def _pass_over(_signal: int, _frame: FrameType | None) -> None:
    pass
