"""An answer of Codex on its way to the exchange: messages as frames, until the turn ends or pauses."""

import asyncio
from collections.abc import Mapping

from dragoman.upstream.codex.turn import Turn
from dragoman.upstream.faults import gone_silent, no_answer

__all__ = ("SETTLE_SECONDS", "CodexReply")

# A second parallel call with long arguments is silent for as long as the model writes it. Longer than this, the calls
# there are go out by themselves: the model's connection may be gone, and Codex would not say so before they are answered.
SETTLE_SECONDS = 10.0


class CodexReply:
    """`Reply` of a turn. Closing it stops the turn, unless it waits for results or is over."""

    status = 200

    def __init__(
        self,
        name: str,
        turn: Turn,
        headers: Mapping[str, str],
        *,
        first_timeout: float,
        idle_timeout: float,
        settle: float,
    ) -> None:
        self.headers = headers
        self._name = name
        self._turn: Turn | None = turn
        self._first_timeout = first_timeout
        self._idle_timeout = idle_timeout
        self._settle = settle
        self._has_read = False

    async def read(self) -> bytes:
        while (turn := self._turn) is not None:
            data = turn.take()
            if data:
                self._has_read = True
                return data
            if turn.failure is not None:
                self._turn = None
                raise turn.failure
            if turn.is_answer_over:
                self.close()
                break
            await self._wait(turn)
        return b""

    async def _wait(self, turn: Turn) -> None:
        patience = self._idle_timeout if self._has_read else self._first_timeout
        is_settling = turn.watch.is_waiting and self._settle < patience
        try:
            async with asyncio.timeout(self._settle if is_settling else patience):
                await turn.changed.wait()
        except TimeoutError:
            if is_settling:
                turn.pause()
                return
            make = gone_silent if self._has_read else no_answer
            turn.fail(make(self._name, patience))

    def close(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and not turn.is_paused:
            turn.abandon()
