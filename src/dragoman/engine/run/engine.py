"""The engine: it runs conversations with a model and tools, one at a time.

`Run` is one conversation from its request to its end: turn after turn, with retries and summaries between them. All its tasks
are in one group. A run ends by itself, by `stop`, by an observer that raises, or because its task is cancelled. In each case
every task has ended when the run returns, and `turns` is a conversation that can be continued.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from msgspec.structs import replace

from dragoman.core.failures import error_info
from dragoman.engine.conversation import RunConversation, retry_after
from dragoman.engine.events import (
    EngineEvent,
    Retried,
    RunEnd,
    RunEnded,
    TurnEnded,
    TurnStarted,
)
from dragoman.engine.run.live_turn import LiveTurn, Observer
from dragoman.engine.run.model import ConversationSummary, Model, summarise
from dragoman.engine.schedule import Schedule
from dragoman.engine.settings import EngineSettings
from dragoman.engine.toolbox import CallRouter, Toolbox, gather
from dragoman.engine.tools import Tool, ToolSource
from dragoman.engine.turn import Stopped, TurnMachine, TurnOutcome
from dragoman.engine.validation import check_arguments
from dragoman.errors import ConfigError, GatewayError
from dragoman.model.outcome import ErrorInfo
from dragoman.model.request import Request, ToolChoice, Turn

T = TypeVar("T")

logger = logging.getLogger("dragoman.engine")


class Run:
    """One run of the engine. Used once, and created on the event loop on which it runs."""

    def __init__(
        self,
        model: Model,
        tools: Sequence[Tool | ToolSource],
        request: Request,
        *,
        settings: EngineSettings,
        observer: Observer | None,
    ) -> None:
        self._model = model
        self._tools = tools
        self._theirs = request.tools
        self._settings = settings
        self._observer = observer
        self._conversation = RunConversation(request, settings)
        self._turn: LiveTurn | None = None
        self._summary_task: asyncio.Task[ConversationSummary] | None = None
        self._stopped: Stopped | None = None
        self._stop_requested: asyncio.Future[Stopped] = asyncio.get_running_loop().create_future()

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self._conversation.turns

    def stop(self, reason: RunEnd) -> None:
        """End the run. Only the first reason is kept."""
        if self._stopped is not None:
            return
        self._stopped = Stopped(reason)
        self._stop_requested.set_result(self._stopped)
        if self._summary_task is not None:
            self._summary_task.cancel()
        if self._turn is not None:
            self._turn.stop(self._stopped)

    async def run(self) -> RunEnded:
        """Run the conversation to its end.

        Raises:
            ConfigError: two tools have the same name.
        """
        toolbox = self._gather()
        return await self._in_group(lambda group: self._run_within_time(group, toolbox))

    async def compact(self) -> bool:
        """Replace older turns with a summary now, however long the conversation is. Returns whether turns were replaced.

        Raises:
            ConfigError: two tools have the same name.
        """
        toolbox = self._gather()
        return await self._in_group(lambda group: self._compact(group, toolbox, is_full=True))

    async def _in_group(self, work: Callable[[asyncio.TaskGroup], Awaitable[T]]) -> T:
        """The result of the work; every task of its group has ended then."""
        outcome: T | Exception
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    outcome = await work(group)
                except Exception as error:
                    # Mostly an exception of the observer. Raise it outside the group, because the group would wrap it.
                    outcome = error
                    if self._turn is not None:
                        self._turn.cancel_tasks()
        finally:
            self._keep_turn()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _run_within_time(self, group: asyncio.TaskGroup, toolbox: Toolbox) -> RunEnded:
        seconds = self._settings.max_seconds
        if seconds is None:
            return await self._converse(group, toolbox)
        timer = asyncio.get_running_loop().call_later(seconds, self.stop, "max_time")
        try:
            return await self._converse(group, toolbox)
        finally:
            timer.cancel()

    async def _converse(self, group: asyncio.TaskGroup, toolbox: Toolbox) -> RunEnded:
        conversation = self._conversation
        while self._stopped is None:
            conversation.turn_count += 1
            await self._notify(TurnStarted(conversation.turn_count))
            answer = await self._ask(group, toolbox)
            end = conversation.add_outcome(answer)
            await self._notify(
                TurnEnded(
                    conversation.turn_count,
                    answer.finish,
                    answer.usage,
                    conversation.total,
                    answer.limits,
                )
            )
            if end is not None:
                return await self._end(end, answer.error)
            try:
                toolbox = self._gather()
            except GatewayError as error:
                return await self._end("failed", error_info(error))
            except Exception as error:
                logger.exception("a source of tools failed")
                broken = ErrorInfo(kind="server", message=f"a source of tools failed: {error!r}")
                return await self._end("failed", broken)
            await self._compact(group, toolbox)
        return await self._end(self._stopped.reason, self._stopped.error)

    async def _ask(self, group: asyncio.TaskGroup, toolbox: Toolbox) -> TurnOutcome:
        """Send the request, and send it again if an answer breaks off, until there is an outcome."""
        conversation = self._conversation
        request = conversation.next_request(toolbox)
        attempt = 0
        may_compact = True
        while True:
            attempt += 1
            turn = self._open_turn(group, toolbox)
            answer = await turn.run(self._model, request)
            self._turn = None
            if answer.error is None or not turn.may_retry:
                return answer
            if answer.error.kind == "context_length" and may_compact:
                may_compact = False
                after = 0.0 if await self._compact(group, toolbox, is_full=True) else None
                request = conversation.next_request(toolbox)
                if self._stopped is not None:
                    return replace(answer, end=self._stopped.reason, error=None)
            else:
                after = retry_after(
                    self._settings,
                    answer.error,
                    attempt=attempt,
                    jitter=random.random(),  # noqa: S311 -- spreads retries, keeps no secret
                )
            if after is None:
                return answer
            if self._stopped is None:
                await self._notify(Retried(conversation.turn_count, answer.error, after))
            conversation.count_usage(answer.usage)
            await asyncio.wait((self._stop_requested,), timeout=after)
            if self._stopped is not None:
                return replace(answer, usage=None, end=self._stopped.reason, error=None)

    def _open_turn(self, group: asyncio.TaskGroup, toolbox: Toolbox) -> LiveTurn:
        conversation = self._conversation
        machine = TurnMachine(
            CallRouter(toolbox, self._theirs, check_arguments),
            Schedule(self._settings.max_parallel),
            turn=conversation.turn_count,
            call_ids=conversation.call_ids,
        )
        self._turn = LiveTurn(
            machine,
            conversation.turn_count,
            group=group,
            settings=self._settings,
            observer=self._observer,
        )
        if self._stopped is not None:
            self._turn.stop(self._stopped)
        return self._turn

    async def _compact(
        self, group: asyncio.TaskGroup, toolbox: Toolbox, *, is_full: bool = False
    ) -> bool:
        """Replace older turns with a summary if the conversation is too long. Returns whether turns were replaced."""
        plan = self._conversation.plan_compaction(is_full=is_full)
        if plan is None or self._stopped is not None:
            return False
        request = replace(
            self._conversation.next_request(toolbox),
            turns=plan.asked,
            # The request keeps the tools, because some providers refuse a history with calls of undeclared tools.
            tool_choice=ToolChoice(mode="none"),
        )
        self._summary_task = group.create_task(
            summarise(self._model, request, self._settings.idle_timeout)
        )
        await asyncio.wait((self._summary_task,))
        summary_task, self._summary_task = self._summary_task, None
        if summary_task.cancelled():
            return False
        summary = summary_task.result()
        self._conversation.count_usage(summary.usage)
        if summary.text:
            await self._notify(self._conversation.compact(plan, summary.text))
        return bool(summary.text)

    def _gather(self) -> Toolbox:
        toolbox = gather(self._tools)
        toolbox.check_names_differ(self._theirs)
        return toolbox

    def _keep_turn(self) -> None:
        """Add the received part of an interrupted turn to the conversation."""
        if self._turn is not None:
            self._conversation.add_outcome(self._turn.conclude())
            self._turn = None

    async def _end(self, reason: RunEnd, error: ErrorInfo | None) -> RunEnded:
        conversation = self._conversation
        ended = RunEnded(
            reason=reason,
            turns=conversation.turns,
            total=conversation.total,
            turn_count=conversation.turn_count,
            error=error,
        )
        await self._notify(ended)
        return ended

    async def _notify(self, event: EngineEvent) -> None:
        if self._observer is not None:
            await self._observer(event)


class Engine:
    """Runs conversations: it asks the model, runs the tools that the model calls while the answer streams, and asks again.

    tools: the tools that the engine runs. The caller runs the tools that a request declares; the engine never does.
    observer: receives every event in order, and is awaited.
    """

    def __init__(
        self,
        model: Model,
        tools: Sequence[Tool | ToolSource] = (),
        *,
        settings: EngineSettings | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._model = model
        self._tools = tuple(tools)
        self._settings = settings or EngineSettings()
        self._observer = observer
        self._run: Run | None = None
        self._turns: tuple[Turn, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The conversation so far, up to the last complete answer; after the run, all of it."""
        return self._turns if self._run is None else self._run.turns

    async def run(self, request: Request) -> RunEnded:
        """Continue a conversation until the model has answered, a limit is reached or the run is interrupted.

        If this task is cancelled, the engine stops running tools, leaves a conversation in `turns` that can be continued, and
        raises the cancellation. It handles an exception of the observer in the same way, and raises it unchanged.

        Raises:
            ConfigError: two tools have the same name, the request is for several choices, or another run is not over.
        """
        if request.choices is not None and request.choices > 1:
            raise ConfigError(
                f"expected a request for one choice, got one for {request.choices}: "
                "a conversation goes on with one answer"
            )
        with self._started(request) as run:
            return await run.run()

    @contextmanager
    def _started(self, request: Request) -> Generator[Run]:
        if self._run is not None:
            raise ConfigError("expected one run at a time, got a second before the first was over")
        self._run = run = Run(
            self._model, self._tools, request, settings=self._settings, observer=self._observer
        )
        try:
            yield run
        finally:
            self._turns = run.turns
            self._run = None

    async def compact(self, request: Request) -> bool:
        """Replace older turns of a conversation with a summary, which `turns` then has. Returns whether it did.

        Raises:
            ConfigError: two tools have the same name, or a run is not over.
        """
        with self._started(request) as run:
            return await run.compact()

    def interrupt(self) -> None:
        """End the current run, if there is one; `run` returns the reason `cancelled`. Call this on the event loop's thread."""
        if self._run is not None:
            self._run.stop("cancelled")
