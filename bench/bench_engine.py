"""Measures the turn engine's cost per event of an answer: a run over a stream that was decoded beforehand.

The model has its events ready and the tools return at once, so that only the engine is measured: its state machine alone,
a run without an observer, and a run with an observer that does nothing.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from bench_streams import Story, dialect_stream

from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import CODECS
from dragoman.dialects.stream_decoder import StreamDecoder
from dragoman.engine.events import EngineEvent
from dragoman.engine.run import Engine
from dragoman.engine.schedule import Schedule
from dragoman.engine.toolbox import CallRouter, Toolbox
from dragoman.engine.tools import Declaration, Invocation, Offer, Output, text_output
from dragoman.engine.turn import TurnMachine
from dragoman.model.events import Completed, Event, Finished, PartEnded, Started
from dragoman.model.parts import Call
from dragoman.model.request import Request

Reads = Sequence[Sequence[Event]]

_END: Sequence[Event] = (Started(), Finished("stop"), Completed())


class _Write:
    """The tool that the story calls."""

    offer = Offer(declaration=Declaration(name="write"), is_parallel=True)

    async def run(self, invocation: Invocation) -> Output:
        return text_output(invocation.call.name)


class _Ready:
    """A model that gives one answer as fast as the engine reads it, and then ends the run."""

    def __init__(self, reads: Reads) -> None:
        self.asked: Request | None = None
        self._answers = iter((reads, (_END,)))

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncGenerator[AsyncIterator[Sequence[Event]], None]:
        self.asked = request
        yield self.emit(next(self._answers))

    async def emit(self, reads: Reads) -> AsyncGenerator[Sequence[Event], None]:
        for read in reads:
            yield read


async def _watch(_: EngineEvent) -> None:
    pass


def decoded_reads(frames: Sequence[bytes], per_read: int) -> list[list[Event]]:
    """Return the events of a Responses stream, grouped by so many frames."""
    decoder = StreamDecoder(CODECS["responses"].reader(DecodeContext()))
    found = [
        [event for frame in frames[start : start + per_read] for event in decoder.events(frame)]
        for start in range(0, len(frames), per_read)
    ]
    return [events for events in found if events]


def engine_runs(per_read: int) -> tuple[dict[str, Callable[[], object]], int]:
    """Return the candidates by name, and how many events each processes."""
    reads = decoded_reads(dialect_stream("responses", Story()), per_read)
    count = sum(map(len, reads))
    tool = _Write()
    loop = asyncio.new_event_loop()  # kept: making one costs as much as some hundred events

    def machine() -> object:
        turn = TurnMachine(CallRouter(Toolbox([tool]), (), lambda _, __: None), Schedule(8))
        for read in reads:
            for event in read:
                turn.hear(event)
        return turn

    def run() -> object:
        return loop.run_until_complete(Engine(_Ready(reads), [tool]).run(Request(model="m")))

    def watched() -> object:
        engine = Engine(_Ready(reads), [tool], observer=_watch)
        return loop.run_until_complete(engine.run(Request(model="m")))

    return {"machine": machine, "run": run, "watched run": watched}, count


def start_times() -> tuple[float, float]:
    """Seconds from a call's last event to the first step of its tool, and from there to the end of the answer."""
    events = [
        event for read in decoded_reads(dialect_stream("responses", Story()), 1) for event in read
    ]
    calls = [number for number, event in enumerate(events) if _is_call(event)]
    times: dict[str, float] = {}

    class Timed(_Write):
        async def run(self, invocation: Invocation) -> Output:
            times.setdefault("begun", time.perf_counter())
            return await super().run(invocation)

    class Paced(_Ready):
        async def emit(self, reads: Reads) -> AsyncGenerator[Sequence[Event], None]:
            for number, read in enumerate(reads):
                await asyncio.sleep(0)  # a read of its own, as a socket's
                if number == calls[0]:
                    times["complete"] = time.perf_counter()
                elif number == len(events) - 1:
                    times["end"] = time.perf_counter()
                yield read

    model = Paced([[event] for event in events])
    asyncio.run(Engine(model, [Timed()], observer=_watch).run(Request(model="m")))
    return times["begun"] - times["complete"], times["end"] - times["begun"]


def side_by_side() -> float:
    """Seconds that an answer with two calls takes, each to a parallel-safe tool that takes one second."""

    class Slow(_Write):
        async def run(self, invocation: Invocation) -> Output:
            await asyncio.sleep(1)
            return await super().run(invocation)

    reads = decoded_reads(dialect_stream("responses", Story()), 64)
    start = time.perf_counter()
    asyncio.run(Engine(_Ready(reads), [Slow()]).run(Request(model="m")))
    return time.perf_counter() - start


def _is_call(event: Event) -> bool:
    return isinstance(event, PartEnded) and isinstance(event.value, Call)
