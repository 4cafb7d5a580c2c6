"""A model as the engine sees it, a limit on its silence, and the summary that replaces a long conversation."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct

from dragoman.core.usage import merge_usage
from dragoman.errors import GatewayError
from dragoman.model.events import Completed, Event, PartEnded, UsageReported
from dragoman.model.outcome import Usage
from dragoman.model.parts import Text
from dragoman.model.request import Request


class Model(Protocol):
    """A model behind any upstream: a request in, events out."""

    def ask(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Event]]]:
        """The answer as it arrives: the events of each read, in the grammar of `model.events`.

        An answer that breaks off ends with `Failed`. Leaving the context ends the exchange at once.

        Raises:
            GatewayError: there is no answer: the upstream could not be reached, or it refused the request.
        """
        ...


class IdleTimeout:
    """A limit on silence: an async context that raises `TimeoutError` when `reset` was not called for so many seconds.

    `asyncio.timeout`, rescheduled at every read, would create and cancel a timer each time, which takes 5 µs instead of 1. This
    class has one timer; when it fires, it checks how long ago the last read was.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._since: float | None = self._clock()
        self._timeout = asyncio.timeout(None)
        self._timer = self._loop.call_later(seconds, self._look)

    @property
    def has_expired(self) -> bool:
        return self._timeout.expired()

    def reset(self) -> None:
        """Count the silence from now: something arrived."""
        self._since = self._clock()

    def pause(self) -> None:
        """Stop counting until `reset`: the engine is not waiting for the model."""
        self._since = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _look(self) -> None:
        now = self._clock()
        due = (now if self._since is None else self._since) + self._seconds
        if due <= now:
            self._timeout.reschedule(now)
        else:
            self._timer = self._loop.call_at(due, self._look)


logger = logging.getLogger("dragoman.engine")


class ConversationSummary(Struct, frozen=True):
    """`text` is empty if there is no summary: the answer broke off, or was empty."""

    text: str = ""
    usage: Usage | None = None


async def summarise(model: Model, request: Request, idle_timeout: float) -> ConversationSummary:
    """Ask the model for a summary. A failure is only logged: the conversation continues without a summary."""
    try:
        async with IdleTimeout(idle_timeout) as idle, model.ask(request) as reads:
            return await _collect(reads, idle)
    except (GatewayError, TimeoutError) as error:
        logger.warning("no summary of the conversation: %s", error or "the answer did not continue")
    except Exception:
        logger.exception("no summary of the conversation: the model failed")
    return ConversationSummary()


async def _collect(reads: AsyncIterator[Sequence[Event]], idle: IdleTimeout) -> ConversationSummary:
    texts: list[str] = []
    usage: Usage | None = None
    is_whole = False
    async for events in reads:
        idle.reset()
        for event in events:
            match event:
                case PartEnded(value=Text(text=text)):
                    texts.append(text)
                case UsageReported():
                    usage = merge_usage(usage, event.usage)
                case Completed():
                    is_whole = True
                case _:
                    pass
    return ConversationSummary("\n\n".join(texts).strip() if is_whole else "", usage)
