"""Ends an answer before the upstream's answer ends: after calls by the Obsidian policy, or at a stop sequence.

PatientReply       the reply; once the turn should stop, it waits for further calls only for the grace period
EndingInterpreter  writes the answer as a stream
EndingCollector    collects the answer for a body
"""

import asyncio
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import structs

from dragoman.core.usage import Tally
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.translate import BodyCollector, Interpreter, TranslatedBody
from dragoman.model.outcome import ErrorInfo, Loss, Problem
from dragoman.obsidian.answer import ObsidianAnswer
from dragoman.upstream.base import UpstreamReply

_Inner = TypeVar("_Inner", bound=Interpreter | BodyCollector)

_CUT = ErrorInfo(kind="cancelled", message="the answer was ended after its calls")


class EndingStage(Protocol):
    """A stage that may end the answer: an `ObsidianAnswer` or a `StopStage`.

    is_over: the answer has ended, and what the upstream still sends is dropped. is_stopped: the grace period ran out.
    is_cut: the answer ended before the upstream's did, so that the upstream is not read to its end.
    """

    @property
    def is_over(self) -> bool: ...

    @property
    def is_stopped(self) -> bool: ...

    @property
    def is_cut(self) -> bool: ...

    @property
    def problems(self) -> Sequence[Problem]: ...

    @property
    def losses(self) -> Sequence[Loss]: ...

    def expect_complete(self) -> None:
        """Read the answer to its end, and drop what is not sent: the whole body is available."""
        ...


class PatientReply(UpstreamReply):
    """A reply that ends when the grace period after its last call is over."""

    __slots__ = ("_begun", "_deadline", "_obsidian", "_reply", "headers", "status")

    def __init__(self, reply: UpstreamReply, obsidian: ObsidianAnswer) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._reply = reply
        self._obsidian = obsidian
        self._begun = 0
        self._deadline = 0.0

    async def read(self) -> bytes:
        obsidian = self._obsidian
        if obsidian.is_over:
            return b""
        if not obsidian.awaits_calls:
            return await self._reply.read()
        if obsidian.calls_begun != self._begun:
            self._begun = obsidian.calls_begun
            self._deadline = asyncio.get_running_loop().time() + obsidian.grace
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._reply.read()
        except TimeoutError:
            obsidian.stop()
            return b""

    def close(self) -> None:
        self._reply.close()


class _EndingOutput(Generic[_Inner]):
    """An answer whose event changes include an `EndingStage`, streamed or collected."""

    __slots__ = ("_ending", "_inner")

    def __init__(self, inner: _Inner, ending: EndingStage) -> None:
        self._inner = inner
        self._ending = ending

    @property
    def tally(self) -> Tally:
        return self._inner.tally

    @property
    def is_over(self) -> bool:
        return self._ending.is_over or self._inner.is_over

    @property
    def waiting(self) -> int:
        return self._inner.waiting

    @property
    def problems(self) -> Sequence[Problem]:
        return (*self._inner.problems, *self._ending.problems)

    @property
    def losses(self) -> Sequence[Loss]:
        return (*self._inner.losses, *self._ending.losses)

    def feed(self, data: bytes) -> bytes:
        return self._inner.feed(data)

    def close(self) -> bytes:
        if self._ending.is_over:
            return b""
        return self._inner.fail(_CUT) if self._ending.is_stopped else self._inner.close()

    def fail(self, error: ErrorInfo) -> bytes:
        return b"" if self._ending.is_over else self._inner.fail(error)


class EndingInterpreter(_EndingOutput[Interpreter]):
    """An `Interpreter` whose event changes include an `EndingStage`."""

    __slots__ = ()

    def keep_alive(self) -> bytes:
        return b"" if self._ending.is_over else self._inner.keep_alive()


class EndingCollector(_EndingOutput[BodyCollector]):
    """A `BodyCollector` whose event changes include an `EndingStage`."""

    __slots__ = ()

    def body(self, target: str, encode: EncodeContext) -> TranslatedBody:
        return completed(self._inner.body(target, encode), self._ending)


def completed(body: TranslatedBody, ending: EndingStage | None) -> TranslatedBody:
    """A body with the problems and losses of the stage that may end it."""
    if ending is None:
        return body
    return structs.replace(
        body,
        problems=(*body.problems, *ending.problems),
        losses=(*body.losses, *ending.losses),
    )
