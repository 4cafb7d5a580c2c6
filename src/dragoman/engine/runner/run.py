"""One run, from its request to its end: turn after turn, with retries and summaries between them.

All its tasks live in one group. However the run ends, by itself, by `stop`, by an observer that raises or because its
task is cancelled, every one of them has ended when it does, and `turns` is a conversation that can be gone on with.
"""

import asyncio
import logging
import random
from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.core.failures import error_info
from dragoman.engine.actions import Stopped
from dragoman.engine.answer import Answer
from dragoman.engine.asking import Model
from dragoman.engine.conversation import Conversation
from dragoman.engine.events import (
    EngineEvent,
    Retried,
    RunEnd,
    RunEnded,
    TurnEnded,
    TurnStarted,
)
from dragoman.engine.retrying import retry_after
from dragoman.engine.routing import Router
from dragoman.engine.runner.observing import Observer
from dragoman.engine.runner.playing import LiveTurn
from dragoman.engine.runner.summing import Summary, summarise
from dragoman.engine.schedule import Schedule
from dragoman.engine.settings import EngineSettings
from dragoman.engine.toolbox import Toolbox, gather
from dragoman.engine.tools import Tool, ToolSource
from dragoman.engine.turn import TurnMachine
from dragoman.engine.validation import check_arguments
from dragoman.errors import GatewayError
from dragoman.model.outcome import ErrorInfo
from dragoman.model.request import Request, ToolChoice, Turn

__all__ = ("Run",)

logger = logging.getLogger("dragoman.engine")


class Run:
    """Used once, and made on the event loop it runs on."""

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
        self._conversation = Conversation(request, settings)
        self._turn: LiveTurn | None = None
        self._summing: asyncio.Task[Summary] | None = None
        self._stopped: Stopped | None = None
        self._stop_ordered: asyncio.Future[Stopped] = asyncio.get_running_loop().create_future()

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self._conversation.turns

    def stop(self, reason: RunEnd) -> None:
        """End it. The first reason stands."""
        if self._stopped is not None:
            return
        self._stopped = Stopped(reason)
        self._stop_ordered.set_result(self._stopped)
        if self._summing is not None:
            self._summing.cancel()
        if self._turn is not None:
            self._turn.stop(self._stopped)

    async def go(self) -> RunEnded:
        """Run it.

        Raises:
            ConfigError: tools that a model could not tell apart.
        """
        toolbox = self._gather()
        outcome: RunEnded | Exception
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    outcome = await self._watch_clock(group, toolbox)
                except Exception as error:
                    # The observer's, mostly. Raised outside the group, which would wrap it.
                    outcome = error
                    if self._turn is not None:
                        self._turn.cancel_tasks()
        finally:
            self._keep_turn()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _watch_clock(self, group: asyncio.TaskGroup, toolbox: Toolbox) -> RunEnded:
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
            await self._tell(TurnStarted(conversation.turn_count))
            answer = await self._ask(group, toolbox)
            end = conversation.take(answer)
            await self._tell(
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
                logger.exception("a source of tools broke")
                broken = ErrorInfo(kind="server", message=f"a source of tools broke: {error!r}")
                return await self._end("failed", broken)
            await self._compact(group, toolbox)
        return await self._end(self._stopped.reason, self._stopped.error)

    async def _ask(self, group: asyncio.TaskGroup, toolbox: Toolbox) -> Answer:
        """One answer, however often it has to be asked for."""
        conversation = self._conversation
        request = conversation.next_request(toolbox)
        attempt = 0
        may_compact = True
        while True:
            attempt += 1
            turn = self._open_turn(group, toolbox)
            answer = await turn.play(self._model, request)
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
                await self._tell(Retried(conversation.turn_count, answer.error, after))
            conversation.spend(answer.usage)
            await asyncio.wait((self._stop_ordered,), timeout=after)
            if self._stopped is not None:
                return replace(answer, usage=None, end=self._stopped.reason, error=None)

    def _open_turn(self, group: asyncio.TaskGroup, toolbox: Toolbox) -> LiveTurn:
        conversation = self._conversation
        machine = TurnMachine(
            Router(toolbox, self._theirs, check_arguments),
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
        """Make room, if there is need; whether it was made."""
        plan = self._conversation.plan_compaction(is_full=is_full)
        if plan is None or self._stopped is not None:
            return False
        request = replace(
            self._conversation.next_request(toolbox),
            turns=plan.asked,
            # The tools stay, for providers that refuse calls in a history without them.
            tool_choice=ToolChoice(mode="none"),
        )
        self._summing = group.create_task(
            summarise(self._model, request, self._settings.idle_timeout)
        )
        await asyncio.wait((self._summing,))
        summing, self._summing = self._summing, None
        if summing.cancelled():
            return False
        summary = summing.result()
        self._conversation.spend(summary.usage)
        if summary.text:
            await self._tell(self._conversation.compact(plan, summary.text))
        return bool(summary.text)

    def _gather(self) -> Toolbox:
        toolbox = gather(self._tools)
        toolbox.check_apart(self._theirs)
        return toolbox

    def _keep_turn(self) -> None:
        """A turn that nobody saw to its end is kept as far as it came."""
        if self._turn is not None:
            self._conversation.take(self._turn.conclude())
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
        await self._tell(ended)
        return ended

    async def _tell(self, event: EngineEvent) -> None:
        if self._observer is not None:
            await self._observer(event)
