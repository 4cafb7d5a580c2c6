"""Scripted models and tools for tests of the engine, with gates instead of sleeps.

Script    answers in order, each a list of steps: events to yield, or something to do in between
Acting    a tool that runs a function; Gated, a tool that says it has begun and waits to be released
answer_text, answer_calls, …   whole answers
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.engine.events import EngineEvent
from dragoman.engine.tools import Invocation, Offer, Output, text_output
from dragoman.model.events import (
    Completed,
    Event,
    Finished,
    InputDelta,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import FinishReason, Usage
from dragoman.model.parts import Call, Part, Reasoning, Result, Text
from dragoman.model.request import Request, Tool, Turn

LIMIT = 60.0
"""Seconds any wait of a test may take."""

T = TypeVar("T")
Act = Callable[[], Awaitable[object]]
Step = Event | Act | Exception


async def bounded(waiting: Awaitable[T]) -> T:
    async with asyncio.timeout(LIMIT):
        return await waiting


def call(
    name: str = "work", call_id: str = "call_1", arguments: str = "{}", **more: object
) -> Call:
    return replace(Call(call_id=call_id, name=name, input=arguments), **more)


def part_events(number: int, part: Part) -> list[Event]:
    match part:
        case Text():
            header: Part = Text(status="in_progress", item_id=part.item_id)
            events: list[Event] = [TextDelta(number, part.text)]
        case Call():
            header = Call(
                call_id=part.call_id,
                name=part.name,
                kind=part.kind,
                namespace=part.namespace,
                executor=part.executor,
                item_id=part.item_id,
                status="in_progress",
            )
            events = [InputDelta(number, part.input)]
        case Reasoning():
            header, events = Reasoning(status="in_progress"), []
        case _:
            header, events = part, []
    return [PartStarted(number, header), *events, PartEnded(number, part)]


def ending(finish: FinishReason = "stop", usage: Usage | None = None) -> list[Event]:
    reported: list[Event] = [] if usage is None else [UsageReported(usage)]
    return [Finished(finish), *reported, Completed()]


def answer_text(text: str = "Done.", usage: Usage | None = None) -> list[Step]:
    return [Started(), *part_events(0, Text(text=text)), *ending("stop", usage)]


def answer_calls(*calls: Call, usage: Usage | None = None) -> list[Step]:
    events: list[Step] = [Started()]
    for number, made in enumerate(calls):
        events += part_events(number, made)
    return [*events, *ending("tool_calls", usage)]


class Script:
    """A model that gives these answers, one per request. The last one is given again and again if `repeats`."""

    def __init__(self, *answers: Sequence[Step], repeats: bool = False) -> None:
        self.requests: list[Request] = []
        self.opened = 0
        self.closed = 0
        self._answers = answers
        self._repeats = repeats

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncGenerator[AsyncIterator[Sequence[Event]], None]:
        number = len(self.requests)
        self.requests.append(request)
        if self._repeats:
            number = min(number, len(self._answers) - 1)
        self.opened += 1
        reads = self.emit(self._answers[number])
        try:
            yield reads
        finally:
            self.closed += 1
            await reads.aclose()

    async def emit(self, steps: Sequence[Step]) -> AsyncGenerator[Sequence[Event], None]:
        for step in steps:
            if isinstance(step, Exception):
                raise step
            if callable(step):
                await step()
            else:
                yield (step,)


class Acting:
    """A tool that does what a function says."""

    def __init__(
        self,
        act: Callable[[Invocation], Awaitable[Output]],
        name: str = "work",
        *,
        is_parallel: bool = False,
        timeout: float | None = None,
        schema: bytes | None = None,
    ) -> None:
        declaration = Tool(name=name, schema=None if schema is None else Raw(schema))
        self.offer = Offer(declaration=declaration, is_parallel=is_parallel, timeout=timeout)
        self.calls: list[Call] = []
        self._act = act

    def run(self, invocation: Invocation) -> Awaitable[Output]:
        self.calls.append(invocation.call)
        return self._act(invocation)


async def say_ok(invocation: Invocation) -> Output:
    return text_output(f"ok {invocation.call.call_id}")


class Gated(Acting):
    """A tool that says it has begun and waits to be released."""

    def __init__(self, name: str = "work", *, is_parallel: bool = False) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.is_cancelled = False
        super().__init__(self.wait, name, is_parallel=is_parallel)

    async def wait(self, invocation: Invocation) -> Output:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        return text_output(f"{invocation.call.name} ok")


class Notes:
    """An observer that records its events, and lets a test wait for one."""

    def __init__(self) -> None:
        self.events: list[EngineEvent] = []
        self._told = asyncio.Event()

    async def __call__(self, event: EngineEvent) -> None:
        self.events.append(event)
        self._told.set()

    async def wait_for(self, is_it: Callable[[EngineEvent], bool]) -> None:
        while not any(map(is_it, self.events)):
            self._told.clear()
            await bounded(self._told.wait())

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]


def ask(text: str = "Go.", **more: object) -> Request:
    turns = (Turn(role="user", parts=(Text(text=text),)),)
    return replace(Request(model="m", turns=turns), **more)


def texts_of(turns: Sequence[Turn]) -> list[tuple[str, str]]:
    """(call id, text) of every result, in order."""
    return [
        (part.call_id, "".join(piece.text for piece in part.content if isinstance(piece, Text)))
        for turn in turns
        for part in turn.parts
        if isinstance(part, Result)
    ]
