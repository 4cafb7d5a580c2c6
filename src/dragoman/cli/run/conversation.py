"""Questions and answers, until there is no more to be asked: kept after every turn, and ended by an exit code.

0    answered                       2    it could not be started (told by whoever starts it)
1    the model or its upstream failed
3    a limit was reached: turns, tokens, time, or no progress
4    answered, but an MCP server was not there
130  interrupted
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct, structs

from dragoman.agent import Agent
from dragoman.cli.run.display import Watcher
from dragoman.cli.run.live import TICK_SECONDS
from dragoman.cli.run.questions import Person
from dragoman.cli.run.sessions import Session, Sessions
from dragoman.cli.run.signals import Signals
from dragoman.cli.screen import CLEAN, INTERRUPTED, PROBLEMS
from dragoman.engine.events import EngineEvent, RunEnded, TurnEnded
from dragoman.model.outcome import FinishReason, Usage

__all__ = ("LIMITED", "SERVER_FAILED", "Conversation", "Keeping")

LIMITED = 3
"""A limit was reached before the model was done."""

SERVER_FAILED = 4
"""Answered, but without a server whose tools were asked for: at the first request, or at the end."""

_CODES: dict[str, int] = {
    "answered": CLEAN,
    "cancelled": INTERRUPTED,
    "failed": PROBLEMS,
    "handed_over": PROBLEMS,
}
_CUT: dict[FinishReason, str] = {
    "length": "the answer is cut: the model has reached its limit of tokens",
    "context_window": "the answer is cut: the conversation fills the model's context",
}
_TITLE = 80


class Keeping(Struct):
    """The conversation as it is kept. `session` is the newest state of it."""

    sessions: Sessions
    session: Session
    clock: Callable[[], float]
    is_broken: bool = False


class Conversation:
    """One conversation with a person, or with a script. `make_agent` is given the observer of the agent."""

    def __init__(
        self,
        make_agent: "Callable[[Callable[[EngineEvent], Awaitable[None]]], Agent]",
        watcher: Watcher,
        keeping: Keeping,
        signals: Signals,
    ) -> None:
        self._agent = make_agent(self._observe)
        self._watcher = watcher
        self._keeping = keeping
        self._signals = signals
        self._usage = keeping.session.usage  # of the runs before this question
        self._finish: FinishReason | None = None

    async def answer(self, question: str) -> int:
        """Ask, and show what comes of it. The exit code that it deserves."""
        signals = self._signals
        signals.forgive()
        signals.on_interrupt = self._interrupt
        keeping = self._keeping
        self._usage = keeping.session.usage
        self._finish = None
        if not keeping.session.title:
            title = " ".join(question.split())[:_TITLE]
            keeping.session = structs.replace(keeping.session, title=title)
        ticking = asyncio.create_task(self._tick())
        try:
            reply = await self._agent.ask(question)
        except BaseException:
            self._keep(None)
            raise
        finally:
            ticking.cancel()
            signals.on_interrupt = None
        self._keep(reply.ended.total)
        cut = self._cut() if reply.is_answered else None
        if cut is not None:
            self._watcher.note(cut, "bad")
        self._watcher.end(reply.ended, keeping.session.id)
        return LIMITED if cut is not None else _code(reply.ended)

    async def talk(self, person: Person) -> int:
        """Answer question after question, until the person has no more."""
        while True:
            self._signals.on_interrupt = person.remind
            question = await person.next_question()
            if question is None:
                return CLEAN
            if question.strip():
                await self.answer(question)
                self._signals.forgive()

    async def _observe(self, event: EngineEvent) -> None:
        await self._watcher.observe(event)
        if isinstance(event, TurnEnded):
            self._finish = event.finish
            self._keep(event.total)

    def _cut(self) -> str | None:
        return None if self._finish is None else _CUT.get(self._finish)

    def _interrupt(self) -> None:
        self._watcher.note("interrupting (Ctrl-C again quits)")
        self._agent.interrupt()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._watcher.tick()

    def _keep(self, total: Usage | None) -> None:
        """Save the conversation as far as it has come. `total`: of this question; None: as told last."""
        keeping = self._keeping
        session = structs.replace(keeping.session, turns=self._agent.turns, updated=keeping.clock())
        if total is not None:
            session = structs.replace(session, usage=_sum(self._usage, total))
        keeping.session = session
        try:
            keeping.sessions.save(session)
        except OSError as error:
            if not keeping.is_broken:
                keeping.is_broken = True
                self._watcher.note(
                    f"this conversation cannot be kept: {error.strerror or error}", "bad"
                )


def _code(ended: RunEnded) -> int:
    return _CODES.get(ended.reason, LIMITED)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        input=_add(one.input, other.input),
        output=_add(one.output, other.output),
        cached=_add(one.cached, other.cached),
        cache_write=_add(one.cache_write, other.cache_write),
        reasoning=_add(one.reasoning, other.reasoning),
        total=_add(one.total, other.total),
    )


def _add(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)
