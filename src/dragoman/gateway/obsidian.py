"""Ends an answer under the Obsidian policy before the upstream's answer ends.

PatientReply         the reply; once the turn should stop, it waits for further calls only for the grace period
ObsidianInterpreter  writes the answer as a stream
ObsidianCollector    collects the answer for a body
"""

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import structs

from dragoman.core.usage import Tally
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.interpret import BodyCollector, Interpreter
from dragoman.dialects.translate import TranslatedBody
from dragoman.model.outcome import ErrorInfo, Loss, Problem
from dragoman.obsidian.answer import ObsidianAnswer
from dragoman.upstream.base import Reply

_Inner = TypeVar("_Inner", bound=Interpreter | BodyCollector)

_CUT = ErrorInfo(kind="cancelled", message="the answer was ended after its calls")


class PatientReply(Reply):
    """A reply that ends when the grace period is over. grace: seconds to wait after the last call."""

    __slots__ = ("_deadline", "_grace", "_obsidian", "_reply", "_sent", "headers", "status")

    def __init__(self, reply: Reply, obsidian: ObsidianAnswer, grace: float) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._reply = reply
        self._obsidian = obsidian
        self._grace = grace
        self._sent = 0
        self._deadline = 0.0

    async def read(self) -> bytes:
        obsidian = self._obsidian
        if obsidian.is_over:
            return b""
        if not obsidian.awaits_calls:
            return await self._reply.read()
        if obsidian.sent_calls != self._sent:
            self._sent = obsidian.sent_calls
            self._deadline = asyncio.get_running_loop().time() + self._grace
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._reply.read()
        except TimeoutError:
            obsidian.stop()
            return b""

    def close(self) -> None:
        self._reply.close()


class _ObsidianOutput(Generic[_Inner]):
    """An answer whose event changes include an `ObsidianAnswer`, streamed or collected."""

    __slots__ = ("_inner", "_obsidian")

    def __init__(self, inner: _Inner, obsidian: ObsidianAnswer) -> None:
        self._inner = inner
        self._obsidian = obsidian

    @property
    def tally(self) -> Tally:
        return self._inner.tally

    @property
    def is_over(self) -> bool:
        return self._obsidian.is_over or self._inner.is_over

    @property
    def waiting(self) -> int:
        return self._inner.waiting

    @property
    def problems(self) -> Sequence[Problem]:
        return (*self._inner.problems, *self._obsidian.problems)

    @property
    def losses(self) -> Sequence[Loss]:
        return (*self._inner.losses, *self._obsidian.losses)

    def feed(self, data: bytes) -> bytes:
        return self._inner.feed(data)

    def close(self) -> bytes:
        if self._obsidian.is_over:
            return b""
        return self._inner.fail(_CUT) if self._obsidian.is_stopped else self._inner.close()

    def fail(self, error: ErrorInfo) -> bytes:
        return b"" if self._obsidian.is_over else self._inner.fail(error)


class ObsidianInterpreter(_ObsidianOutput[Interpreter]):
    """An `Interpreter` whose event changes include an `ObsidianAnswer`."""

    __slots__ = ()

    def keep_alive(self) -> bytes:
        return b"" if self._obsidian.is_over else self._inner.keep_alive()


class ObsidianCollector(_ObsidianOutput[BodyCollector]):
    """A `BodyCollector` whose event changes include an `ObsidianAnswer`."""

    __slots__ = ()

    def body(self, target: str, encode: EncodeContext) -> TranslatedBody:
        return completed(self._inner.body(target, encode), self._obsidian)


def completed(body: TranslatedBody, obsidian: ObsidianAnswer | None) -> TranslatedBody:
    """A body with the problems and losses of the Obsidian policy."""
    if obsidian is None:
        return body
    return structs.replace(
        body,
        problems=(*body.problems, *obsidian.problems),
        losses=(*body.losses, *obsidian.losses),
    )
