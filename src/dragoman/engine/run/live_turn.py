"""One turn while it runs: the machine of `engine.turn`, and the tasks that perform its actions.

the run's task     takes messages from the inbox, steps the machine, calls the observer; owns all state
one reader         reads the answer into the inbox, with a limit on silence; owns the exchange with the model
one task per call  starts the task of a tool and waits for it

A tool has a time limit; its output is checked and cut, and its exceptions become results. It runs in a task of its own. To stop it, the
engine cancels it once and gives it `stop_grace` seconds to clean up. A tool that does not stop is left behind, cancelled again, and
logged: no tool can block a run.

The inbox holds messages of the reader, the tools and the owner in the order in which they arrive. The number of reads in the
inbox is limited: the reader waits at the limit, so an observer that pauses also pauses the reading. The number of calls
limits the other messages; reports of progress are dropped while many are waiting.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.failures import error_info
from dragoman.engine.events import (
    CallReported,
    CallSettled,
    CallStarted,
    EngineEvent,
    ModelSpoke,
    Settlement,
)
from dragoman.engine.results import STILL_RUNNING, check_output, cut_text, encodable, fit_content
from dragoman.engine.run.model import IdleTimeout, Model
from dragoman.engine.settings import EngineSettings
from dragoman.engine.toolbox import Entry
from dragoman.engine.tools import Invocation, Output
from dragoman.engine.turn import (
    AbortCall,
    Action,
    CloseStream,
    EndTurn,
    RunCall,
    Settled,
    Stopped,
    TurnMachine,
    TurnOutcome,
)
from dragoman.errors import FatalToolError, GatewayError, LocalProtocolError, ToolError
from dragoman.model.events import Completed, Event, Failed
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Call, Text
from dragoman.model.request import Request

logger = logging.getLogger("dragoman.engine")

MAX_WAITING_READS = 8
"""Reads in the inbox: enough that a fast stream and a fast run need not wait for each other at every read."""

MAX_WAITING_REPORTS = 64
"""Reports of progress in the inbox. They are for a screen; most are dropped if a tool sends very many."""


class AnswerRead(Struct, frozen=True):
    events: Sequence[Event]


class StreamEnded(Struct, frozen=True):
    """The reader has ended. `error`: why the answer broke off, unless it was complete."""

    error: ErrorInfo


class ProgressReported(Struct, frozen=True):
    number: int
    text: str


Message = AnswerRead | StreamEnded | ProgressReported | Settled | Stopped


class Inbox:
    """The messages in their order. With `asyncio.Queue` and a semaphore, a read of one event takes 4.2 µs instead of 2.8."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._reads = 0
        self._reports = 0
        self._arrived: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._messages

    def put(self, message: Message) -> None:
        """Add a message without waiting. Reports are dropped while too many wait."""
        if isinstance(message, ProgressReported):
            if self._reports >= MAX_WAITING_REPORTS:
                return
            self._reports += 1
        self._add(message)

    def put_read(self, events: Sequence[Event]) -> bool:
        """Add a read. Returns whether the inbox is full now."""
        self._reads += 1
        self._add(AnswerRead(events))
        return self._reads >= MAX_WAITING_READS

    async def wait_for_room(self) -> None:
        while self._reads >= MAX_WAITING_READS:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def take(self) -> Message:
        while not self._messages:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return self.take_now()

    def take_now(self) -> Message:
        """The next message; there must be one."""
        message = self._messages.popleft()
        if isinstance(message, AnswerRead):
            self._reads -= 1
            if self._room is not None:
                _wake(self._room)
                self._room = None
        elif isinstance(message, ProgressReported):
            self._reports -= 1
        return message

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        if self._arrived is not None:
            _wake(self._arrived)
            self._arrived = None


def _wake(waiting: asyncio.Future[None]) -> None:
    # The waiting task may have been cancelled in the meantime.
    if not waiting.done():
        waiting.set_result(None)


CLOSED_EARLY = ErrorInfo(kind="truncated", message="the answer ended before it was complete")

_ENDS = (Completed, Failed)


async def read_answer(
    model: Model, request: Request, inbox: Inbox, idle_timeout: float
) -> ErrorInfo:
    """Put every read of the answer into the inbox. Returns why the answer broke off, unless it was complete."""
    idle = IdleTimeout(idle_timeout)
    try:
        async with idle:
            await _read(model, request, inbox, idle)
    except TimeoutError as error:
        message = (
            f"expected the answer to continue within {idle_timeout:g} s, got nothing"
            if idle.has_expired
            else f"the model timed out: {error}"
        )
        return ErrorInfo(kind="timeout", message=message)
    except GatewayError as error:
        return error_info(error)
    except Exception as error:
        logger.exception("the model failed")
        return ErrorInfo(kind="server", message=f"the model failed: {error!r}")
    return CLOSED_EARLY


async def _read(model: Model, request: Request, inbox: Inbox, idle: IdleTimeout) -> None:
    async with model.ask(request) as reads:
        async for events in reads:
            if inbox.put_read(events):
                # The run waits for the observer, so the model's silence does not count.
                idle.pause()
                await inbox.wait_for_room()
            if events and isinstance(events[-1], _ENDS):
                return
            idle.reset()


Observer = Callable[[EngineEvent], Awaitable[None]]
"""Receives every event, one at a time, in order. It is awaited: until it returns, nothing more is read. If it raises, the run
ends and raises its exception."""


CLOSE_GRACE = 2.0
"""Seconds for an exchange to close after its answer is over: only a few bytes remain to be read then."""

MAX_REPORT = 2000
"""Characters of one report of progress: about one screen."""


class LiveTurn:
    """One turn; an instance runs once. `number`: the number of the turn in the run."""

    def __init__(
        self,
        machine: TurnMachine,
        number: int,
        *,
        group: asyncio.TaskGroup,
        settings: EngineSettings,
        observer: Observer | None,
    ) -> None:
        self._machine = machine
        self._number = number
        self._group = group
        self._settings = settings
        self._observer = observer
        self._inbox = Inbox()
        self._reader: asyncio.Task[ErrorInfo] | None = None
        self._running: dict[int, tuple[Call, asyncio.Task[Settled]]] = {}
        self._stopped: Stopped | None = None
        self._outcome: TurnOutcome | None = None

    @property
    def may_retry(self) -> bool:
        return self._machine.may_retry

    async def run(self, model: Model, request: Request) -> TurnOutcome:
        """Send the request, and run the turn to its end."""
        reading = read_answer(model, request, self._inbox, self._settings.idle_timeout)
        reader = self._group.create_task(reading)
        reader.add_done_callback(self._take_stream_end)
        self._reader = reader
        inbox = self._inbox
        while self._outcome is None:
            message = await inbox.take() if inbox.is_empty else inbox.take_now()
            await self._handle(message)
        # Wait a moment for the exchange to end in order, so that its connection can be reused.
        await asyncio.wait((reader,), timeout=CLOSE_GRACE)
        reader.cancel()
        await asyncio.wait((reader,))
        return self._outcome

    def stop(self, stopped: Stopped) -> None:
        """End the turn. Tools and stream stop at once, whatever the observer is doing; its events still come in order."""
        self._stopped = stopped
        self._inbox.put(stopped)
        self.cancel_tasks()

    def cancel_tasks(self) -> None:
        self._close_stream()
        for _, task in self._running.values():
            task.cancel()

    def conclude(self) -> TurnOutcome:
        """The outcome. Call this when all tasks have ended; the observer is not called any more."""
        if self._outcome is None:
            self._perform(self._machine.stop("cancelled"))
        # Every task has reported its end to the inbox, so the turn ends before the inbox is empty.
        while self._outcome is None:
            message = self._inbox.take_now()
            if isinstance(message, Settled):
                self._perform(self._machine.settle(message))
        return self._outcome

    async def _handle(self, message: Message) -> None:
        match message:
            case AnswerRead():
                await self._take_events(message.events)
            case StreamEnded():
                if self._machine.is_listening:
                    await self._act(self._machine.hear(Failed(message.error)))
            case ProgressReported():
                await self._report(message)
            case Settled():
                self._running.pop(message.number, None)
                await self._act(self._machine.settle(message))
            case Stopped():
                await self._act(self._machine.stop(message.reason, message.error))
            case _:
                assert_never(message)

    async def _take_events(self, events: Sequence[Event]) -> None:
        observer = self._observer
        for event in events:
            if self._stopped is not None:
                return
            actions = self._hear(event)
            # Perform the actions before the observer is called: a call starts as soon as it is complete.
            if actions:
                self._perform(actions)
            if observer is not None:
                await observer(ModelSpoke(event))
                if actions:
                    await self._notify(actions)

    def _hear(self, event: Event) -> Sequence[Action]:
        try:
            return self._machine.hear(event)
        except LocalProtocolError as error:
            self._close_stream()
            return self._machine.stop("failed", error_info(error))

    async def _report(self, message: ProgressReported) -> None:
        call, _ = self._running[message.number]
        if self._observer is not None:
            await self._observer(CallReported(call.call_id, message.text))

    async def _act(self, actions: Sequence[Action]) -> None:
        self._perform(actions)
        await self._notify(actions)

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case RunCall():
                    self._start(action)
                case AbortCall():
                    running = self._running.get(action.number)
                    if running is not None:
                        running[1].cancel()
                case CloseStream():
                    self._close_stream()
                case EndTurn():
                    self._outcome = action.outcome
                case CallSettled():
                    pass
                case _:
                    assert_never(action)

    async def _notify(self, actions: Sequence[Action]) -> None:
        if self._observer is None:
            return
        for action in actions:
            if isinstance(action, RunCall):
                await self._observer(CallStarted(self._number, action.call))
            elif isinstance(action, CallSettled):
                await self._observer(action)

    def _close_stream(self) -> None:
        if self._reader is not None:
            self._reader.cancel()

    def _start(self, order: RunCall) -> None:
        if self._stopped is not None:
            # `Stopped` is still in the inbox; until the machine gets it, the machine may start calls.
            self._inbox.put(Settled(number=order.number, how="aborted"))
            return
        if logger.isEnabledFor(logging.DEBUG):
            call = order.call
            # An input may hold secrets: only its size is logged.
            logger.debug(
                "tool call %r, id %r, %s, %d characters of input, turn %d",
                call.name,
                call.call_id,
                call.kind,
                len(call.input),
                self._number,
            )
        report = partial(self._take_report, order.number)
        task = self._group.create_task(run_call(order, self._settings, report))
        task.add_done_callback(partial(self._take_settled, order.number))
        self._running[order.number] = (order.call, task)

    def _take_stream_end(self, reader: asyncio.Task[ErrorInfo]) -> None:
        has_result = not reader.cancelled() and reader.exception() is None
        self._inbox.put(StreamEnded(reader.result() if has_result else CLOSED_EARLY))

    def _take_report(self, number: int, text: str) -> None:
        running = self._running.get(number)
        if running is not None and not running[1].done():
            self._inbox.put(ProgressReported(number, str(text)[:MAX_REPORT]))

    def _take_settled(self, number: int, task: asyncio.Task[Settled]) -> None:
        # A task that was cancelled before its first step has no result.
        settled = Settled(number=number, how="aborted") if task.cancelled() else task.result()
        self._inbox.put(settled)


# --- one call ---------------------------------------------------------------------------------------------------------

MAX_ERROR_CHARACTERS = 4000
"""Characters of an exception's text: one that quotes its whole input must not fill the model's context."""

# Tools that did not stop, referenced so that they are not garbage-collected while they run. They remove themselves.
_left_behind: set[asyncio.Task[Output]] = set()


async def run_call(
    order: RunCall, settings: EngineSettings, report: Callable[[str], None]
) -> Settled:
    """Run the call to its end. If the caller is cancelled, the tool is stopped and the call settles as aborted."""
    clock = asyncio.get_running_loop().time
    start = clock()
    seconds = order.entry.offer.timeout
    limit = settings.tool_timeout if seconds is None else seconds
    task = asyncio.create_task(_perform(order.entry, Invocation(order.call, report)))
    how: Settlement = "timed_out"
    try:
        await asyncio.wait((task,), timeout=limit)
    except asyncio.CancelledError:
        how = "aborted"
    if task.done():
        return _settle(order, task, settings, clock() - start)
    is_stuck = not await _stop(task, settings.stop_grace)
    if is_stuck:
        _leave_behind(order.call.name, task)
    text = f"Timed out after {limit or 0.0:g} s and was stopped.{STILL_RUNNING if is_stuck else ''}"
    return Settled(
        number=order.number,
        how=how,
        content=() if how == "aborted" else (Text(text=text),),
        elapsed=clock() - start,
        is_stuck=is_stuck,
    )


async def _perform(entry: Entry, invocation: Invocation) -> Output:
    name = invocation.call.name
    try:
        return check_output(name, await entry.tool.run(invocation))
    except SystemExit as error:
        # An exception of this kind would end the event loop, and the program with it.
        raise ToolError(
            f"The tool {name!r} exited with the code {error.code!r} and returned no output."
        ) from error


async def _stop(task: asyncio.Task[Output], grace: float) -> bool:
    """Cancel the task and wait, even if the caller is cancelled too. Returns whether the task has stopped."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + grace
    task.cancel()
    while not task.done() and clock() < deadline:
        try:
            await asyncio.wait((task,), timeout=deadline - clock())
        except asyncio.CancelledError:
            continue
    if task.done() and not task.cancelled():
        # Retrieve an exception that the task raised while stopping, or asyncio logs it.
        task.exception()
    return task.done()


def _leave_behind(name: str, task: asyncio.Task[Output]) -> None:
    logger.warning("tool %s did not stop when it was cancelled and is left behind", name)
    _left_behind.add(task)
    task.add_done_callback(_forget)
    task.cancel()


def _forget(task: asyncio.Task[Output]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()


def _settle(
    order: RunCall, task: asyncio.Task[Output], settings: EngineSettings, elapsed: float
) -> Settled:
    name = order.call.name
    if task.cancelled():
        return _failed(order, f"The tool {name!r} was cancelled without an output.", elapsed)
    error = task.exception()
    if isinstance(error, FatalToolError):
        return replace(_failed(order, error.message, elapsed), fatal=error_info(error))
    if isinstance(error, ToolError):
        return _failed(order, error.message, elapsed)
    if error is not None:
        logger.warning("tool %s failed", name, exc_info=error)
        return _failed(order, f"The tool {name!r} failed: {_describe(error)}", elapsed)
    output = task.result()
    return Settled(
        number=order.number,
        how="failed" if output.is_error else "done",
        content=fit_content(
            output,
            max_characters=settings.max_output_characters,
            max_media=settings.max_media_characters,
        ),
        is_error=output.is_error,
        elapsed=elapsed,
    )


def _failed(order: RunCall, text: str, elapsed: float) -> Settled:
    content = (Text(text=encodable(cut_text(text, MAX_ERROR_CHARACTERS))),)
    return Settled(number=order.number, how="failed", content=content, elapsed=elapsed)


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        # An exception whose `__str__` raises.
        return type(error).__name__
