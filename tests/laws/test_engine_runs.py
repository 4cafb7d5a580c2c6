"""Whole runs over any answers and any tools: the observer's events are in order, and nothing is left open."""

import asyncio
import os
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core.pairing import is_paired, pair_results
from dragoman.engine.events import (
    CallSettled,
    CallStarted,
    EngineEvent,
    ModelSpoke,
    RunEnded,
    TurnEnded,
    TurnStarted,
)
from dragoman.engine.run import Engine
from dragoman.engine.settings import EngineSettings
from dragoman.engine.tools import Invocation, Output, text_output
from dragoman.errors import FatalToolError, ToolError
from dragoman.model.events import Event, Failed, PartEnded
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Call
from engine_models import Acting, Notes, Script, Step, answer_text, ask, bounded, call, part_events
from strategies import events as answers

ROUNDS = int(os.environ.get("DRAGOMAN_LAW_ROUNDS", "1"))
law = settings(max_examples=100 * ROUNDS, deadline=None, derandomize=True)

ERROR = ErrorInfo(kind="invalid_request", message="no")
MAX_PAUSES = 6


class Moody(Acting):
    """A tool that takes a given number of steps and then succeeds or fails as scripted."""

    def __init__(self, name: str, moods: Sequence[tuple[int, str]], *, is_parallel: bool) -> None:
        super().__init__(self._act, name, is_parallel=is_parallel)
        self._moods = list(moods)
        self.running = 0
        self.others: list[Moody] = []

    async def _act(self, invocation: Invocation) -> Output:
        pauses, mood = self._moods.pop() if self._moods else (0, "done")
        self._check()
        self.running += 1
        try:
            for _ in range(pauses):
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        if mood == "error":
            raise ToolError("no")
        if mood == "fatal":
            raise FatalToolError("no more")
        return text_output(invocation.call.call_id)

    def _check(self) -> None:
        """An exclusive tool runs alone."""
        for other in (*self.others, self):
            if not (self.offer.is_parallel and other.offer.is_parallel):
                assert other.running == 0


moods = st.lists(
    st.tuples(
        st.integers(0, MAX_PAUSES), st.sampled_from(("done", "done", "done", "error", "fatal"))
    ),
    max_size=8,
)
calls = st.builds(
    call,
    st.sampled_from(("read", "read", "write", "unknown")),
    st.sampled_from(("a", "b", "c", "")),
    st.sampled_from(("{}", '{"a":1}', '{"a')),
    status=st.sampled_from(("completed", "completed", "completed", "incomplete")),
)


@st.composite
def scripts(draw: st.DrawFn) -> list[list[Step]]:
    """Answers with calls, some of them cut, then one without."""
    found: list[list[Step]] = []
    for made in draw(st.lists(st.lists(calls, max_size=4), max_size=3)):
        steps: list[Step] = []
        for number, one in enumerate(made):
            steps += part_events(number, one)
            steps += [_yield] * draw(st.integers(0, 2))
        found.append([*steps, Failed(ERROR)] if draw(st.integers(0, 5)) == 0 else [*steps, *_END])
    return [*found, answer_text()]


async def _yield() -> None:
    await asyncio.sleep(0)


_END = answer_text()[-2:]


@law
@given(scripts(), moods, moods, st.none() | st.integers(0, 60))
def test_run_is_emitted_in_order_and_leaves_nothing_open(
    script: list[list[Step]],
    read: list[tuple[int, str]],
    write: list[tuple[int, str]],
    interrupt: int | None,
) -> None:
    async def main() -> None:
        tools = [Moody("read", read, is_parallel=True), Moody("write", write, is_parallel=False)]
        tools[0].others, tools[1].others = [tools[1]], [tools[0]]
        notes = Notes()
        engine = Engine(Script(*script, repeats=True), tools, observer=notes)
        run = asyncio.create_task(engine.run(ask()))
        for _ in range(interrupt or 0):
            await asyncio.sleep(0)
        if interrupt is not None:
            engine.interrupt()
        ended = await bounded(run)
        assert is_paired(ended.turns)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        check_order(notes.events)
        assert notes.events[-1] == ended

    asyncio.run(main())


def check_order(events: Sequence[EngineEvent]) -> None:
    turn = 0
    is_open = False
    running: set[str] = set()
    settled: set[str] = set()
    for event in events:
        match event:
            case TurnStarted():
                assert not is_open
                assert event.turn == turn + 1
                turn, is_open = event.turn, True
            case ModelSpoke():
                assert is_open
            case CallStarted():
                assert event.turn == turn
                assert event.call.call_id not in settled | running
                running.add(event.call.call_id)
            case CallSettled():
                assert event.turn == turn
                assert event.call.call_id not in settled
                assert event.result.call_id == event.call.call_id
                running.discard(event.call.call_id)
                settled.add(event.call.call_id)
            case TurnEnded():
                assert is_open
                assert not running
                is_open = False
            case RunEnded():
                assert event is events[-1]
                assert not is_open
            case _:
                pass


@law
@given(answers(), st.integers(0, 80))
def test_any_answer_ends_a_run_with_a_conversation_that_can_be_gone_on_with(
    events: tuple[Event, ...], cut: int
) -> None:
    steps: list[Step] = [_to_ours(event) for event in events[:cut]]

    async def main() -> None:
        tools = [Moody("read", [], is_parallel=True)]
        settings = EngineSettings(retries=0)
        model = Script(steps, answer_text(), repeats=True)
        ended = await bounded(Engine(model, tools, settings=settings).run(ask()))
        assert ended.reason in {"answered", "failed"}
        assert is_paired(ended.turns) or pair_results(ended.turns)[1] == ()

    asyncio.run(main())


def _to_ours(event: Event) -> Event:
    if isinstance(event, PartEnded) and isinstance(event.value, Call) and event.part % 2:
        return PartEnded(event.part, call("read", event.value.call_id))
    return event
