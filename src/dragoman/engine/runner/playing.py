"""One turn being played: the machine of `engine.turn`, with the tasks that do what it decides.

the run's task     takes messages, steps the machine, tells the observer: owns all state
one reader         reads the answer into the inbox
one task per call  runs a tool, and a task of the tool's own below it
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import assert_never

from dragoman.core.failures import error_info
from dragoman.engine.actions import (
    AbortCall,
    Action,
    CloseStream,
    EndTurn,
    RunCall,
    SettleCall,
    Settled,
    Stopped,
)
from dragoman.engine.answer import Answer
from dragoman.engine.asking import Model
from dragoman.engine.events import CallReported, CallSettled, CallStarted, ModelSpoke
from dragoman.engine.runner.calling import run_call
from dragoman.engine.runner.inbox import Broke, Inbox, Message, Read, Reported, StreamEnded
from dragoman.engine.runner.observing import Observer
from dragoman.engine.runner.reading import CLOSED_EARLY, read_answer
from dragoman.engine.settings import EngineSettings
from dragoman.engine.turn import TurnMachine
from dragoman.errors import LocalProtocolError
from dragoman.model.events import Event, Failed
from dragoman.model.parts import Call
from dragoman.model.request import Request

__all__ = ("LiveTurn",)

CLOSE_GRACE = 2.0
"""Seconds an exchange has to close after its answer is over: what remains to be read then is a few bytes."""

MAX_REPORT = 2000
"""Characters of one word on progress: a screen's worth."""


class LiveTurn:
    """Used once. `number`: which turn of the run it is."""

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
        self._reader: asyncio.Task[None] | None = None
        self._running: dict[int, tuple[Call, asyncio.Task[Settled]]] = {}
        self._stopped: Stopped | None = None
        self._answer: Answer | None = None

    @property
    def may_retry(self) -> bool:
        return self._machine.may_retry

    async def play(self, model: Model, request: Request) -> Answer:
        """Ask, and see it through."""
        reading = read_answer(model, request, self._inbox, self._settings.idle_timeout)
        reader = self._group.create_task(reading)
        reader.add_done_callback(lambda _: self._inbox.tell(StreamEnded()))
        self._reader = reader
        inbox = self._inbox
        while self._answer is None:
            message = await inbox.take() if inbox.is_empty else inbox.take_now()
            await self._handle(message)
        # Left to itself the exchange ends in order, and its connection can be used again.
        await asyncio.wait((reader,), timeout=CLOSE_GRACE)
        reader.cancel()
        await asyncio.wait((reader,))
        return self._answer

    def stop(self, stopped: Stopped) -> None:
        """End it: tools and stream at once, whatever the observer is doing; the telling in its order."""
        self._stopped = stopped
        self._inbox.tell(stopped)
        self.cancel_tasks()

    def cancel_tasks(self) -> None:
        self._close_stream()
        for _, task in self._running.values():
            task.cancel()

    def conclude(self) -> Answer:
        """What it comes to when all its tasks have ended and nobody is told any more."""
        if self._answer is None:
            self._perform(self._machine.stop("cancelled"))
        # Every task has told how it ended, so this comes to an end before the messages do.
        while self._answer is None:
            message = self._inbox.take_now()
            if isinstance(message, Settled):
                self._perform(self._machine.settle(message))
        return self._answer

    async def _handle(self, message: Message) -> None:
        match message:
            case Read():
                await self._listen(message.events)
            case Broke():
                await self._break_off(Failed(message.error))
            case StreamEnded():
                await self._break_off(Failed(CLOSED_EARLY))
            case Reported():
                await self._report(message)
            case Settled():
                self._running.pop(message.number, None)
                await self._act(self._machine.settle(message))
            case Stopped():
                await self._act(self._machine.stop(message.reason, message.error))
            case _:
                assert_never(message)

    async def _listen(self, events: Sequence[Event]) -> None:
        observer = self._observer
        for event in events:
            if self._stopped is not None:
                return
            actions = self._hear(event)
            # Before the observer is told: a call is started the moment it is complete.
            if actions:
                self._perform(actions)
            if observer is not None:
                await observer(ModelSpoke(event))
                if actions:
                    await self._tell(actions)

    def _hear(self, event: Event) -> Sequence[Action]:
        try:
            return self._machine.hear(event)
        except LocalProtocolError as error:
            self._close_stream()
            return self._machine.stop("failed", error_info(error))

    async def _break_off(self, failed: Failed) -> None:
        if self._machine.is_listening:
            await self._act(self._machine.hear(failed))

    async def _report(self, message: Reported) -> None:
        call, _ = self._running[message.number]
        if self._observer is not None:
            await self._observer(CallReported(call.call_id, message.text))

    async def _act(self, actions: Sequence[Action]) -> None:
        self._perform(actions)
        await self._tell(actions)

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
                    self._answer = action.answer
                case SettleCall():
                    pass
                case _:
                    assert_never(action)

    async def _tell(self, actions: Sequence[Action]) -> None:
        if self._observer is None:
            return
        for action in actions:
            if isinstance(action, RunCall):
                await self._observer(CallStarted(self._number, action.call))
            elif isinstance(action, SettleCall):
                await self._observer(
                    CallSettled(
                        self._number, action.call, action.result, action.how, action.elapsed
                    )
                )

    def _close_stream(self) -> None:
        if self._reader is not None:
            self._reader.cancel()

    def _start(self, order: RunCall) -> None:
        if self._stopped is not None:
            # The machine will be told in its order; until then it may still let calls go.
            self._inbox.tell(Settled(number=order.number, how="aborted"))
            return
        report = partial(self._take_report, order.number)
        task = self._group.create_task(run_call(order, self._settings, report))
        task.add_done_callback(partial(self._take_settled, order.number))
        self._running[order.number] = (order.call, task)

    def _take_report(self, number: int, text: str) -> None:
        running = self._running.get(number)
        if running is not None and not running[1].done():
            self._inbox.tell(Reported(number, str(text)[:MAX_REPORT]))

    def _take_settled(self, number: int, task: asyncio.Task[Settled]) -> None:
        # Cancelled before its first step it has nothing to say for itself.
        settled = Settled(number=number, how="aborted") if task.cancelled() else task.result()
        self._inbox.tell(settled)
