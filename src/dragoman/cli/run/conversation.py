"""The questions and answers of one `dragoman run`. The conversation is saved after every turn and ends with an exit code.

0    answered                       2    it could not be started (see `start`)
1    the model or its upstream failed
3    a limit was reached: turns, tokens, time, or no progress
4    answered, but an MCP server was not available
130  interrupted
"""

import asyncio
import time
from collections.abc import Callable

from msgspec import structs

from dragoman.agent import Agent
from dragoman.cli.run.display import Watcher
from dragoman.cli.run.live_screen import TICK_SECONDS
from dragoman.cli.run.person import Person
from dragoman.cli.run.sessions import Session, Sessions
from dragoman.cli.run.signals import Signals
from dragoman.cli.screen import CLEAN, INTERRUPTED, PROBLEMS
from dragoman.core.usage import add_usage
from dragoman.engine.events import EngineEvent, TurnEnded
from dragoman.model.outcome import FinishReason, Usage

LIMITED = 3
"""A limit was reached before the model was done."""

SERVER_FAILED = 4
"""Answered, but an MCP server was not available, at the first request or at the end."""

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


class TerminalConversation:
    """One conversation with a person, or with a script. `session`: its newest state.

    make_agent: makes the agent for an `observer`.
    """

    def __init__(
        self,
        make_agent: Callable[..., Agent],
        watcher: Watcher,
        sessions: Sessions,
        session: Session,
        signals: Signals,
    ) -> None:
        self.session = session
        self._agent = make_agent(observer=self._observe)
        self._watcher = watcher
        self._sessions = sessions
        self._signals = signals
        self._usage = session.usage  # the usage of the runs before this question
        self._finish: FinishReason | None = None
        self._cannot_save = False

    async def answer(self, question: str) -> int:
        """Ask the agent, show what happens, and return the exit code."""
        signals = self._signals
        signals.reset()
        signals.on_interrupt = self._interrupt
        self._usage = self.session.usage
        self._finish = None
        if not self.session.title:
            title = " ".join(question.split())[:_TITLE]
            self.session = structs.replace(self.session, title=title)
        ticking = asyncio.create_task(self._tick())
        try:
            reply = await self._agent.ask(question)
        except BaseException:
            self._save(None)
            raise
        finally:
            ticking.cancel()
            signals.on_interrupt = None
        self._save(reply.ended.total)
        cut = _CUT.get(self._finish or "stop") if reply.is_answered else None
        if cut is not None:
            self._watcher.note(cut, "bad")
        self._watcher.end(reply.ended, self.session.id)
        return LIMITED if cut is not None else _CODES.get(reply.ended.reason, LIMITED)

    async def talk(self, person: Person) -> int:
        """Answer questions until the person ends the input."""
        while True:
            self._signals.on_interrupt = person.remind
            question = await person.next_question()
            if question is None:
                return CLEAN
            if question.strip():
                await self.answer(question)
                self._signals.reset()

    async def _observe(self, event: EngineEvent) -> None:
        await self._watcher.observe(event)
        if isinstance(event, TurnEnded):
            self._finish = event.finish
            self._save(event.total)

    def _interrupt(self) -> None:
        self._watcher.note("interrupting (Ctrl-C again quits)")
        self._agent.interrupt()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._watcher.tick()

    def _save(self, total: Usage | None) -> None:
        """Save the conversation so far. `total`: the usage of this question; None: the last one that was reported."""
        self.session = structs.replace(self.session, turns=self._agent.turns, updated=time.time())
        if total is not None:
            self.session = structs.replace(self.session, usage=add_usage(self._usage, total))
        try:
            self._sessions.save(self.session)
        except OSError as error:
            if not self._cannot_save:
                self._cannot_save = True
                self._watcher.note(
                    f"this conversation cannot be saved: {error.strerror or error}", "bad"
                )
