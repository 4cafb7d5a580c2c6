"""A run that is ended from outside, at every point where it can be: nothing is left behind and the conversation is valid."""

import asyncio
from collections.abc import Callable

import pytest

from dragoman.core.pairing import is_paired
from dragoman.engine.compaction import SummaryCompaction
from dragoman.engine.events import (
    CallReported,
    CallSettled,
    CallStarted,
    Compacted,
    EngineEvent,
    ModelSpoke,
    Retried,
    RunEnded,
    TurnEnded,
    TurnStarted,
)
from dragoman.engine.run import Engine
from dragoman.engine.settings import EngineSettings
from dragoman.engine.tools import Invocation, Output, text_output
from dragoman.model.events import Failed, Started, TextDelta
from dragoman.model.outcome import ErrorInfo, Usage
from dragoman.model.parts import Reasoning, Text
from dragoman.model.request import Tool as Declaration
from dragoman.model.request import Turn
from engine_models import (
    Acting,
    Gated,
    Notes,
    Script,
    answer_calls,
    answer_text,
    ask,
    bounded,
    call,
    ending,
    part_events,
    say_ok,
    texts_of,
)
from loops import LOOPS, play

MAX_STEPS = 2000

LONG = (
    Turn(role="user", parts=(Text(text="Fix it."),)),
    Turn(role="assistant", parts=(Text(text="How?"),)),
    Turn(role="user", parts=(Text(text="Well."),)),
)


async def hold() -> None:
    await asyncio.Event().wait()


async def yield_once() -> None:
    await asyncio.sleep(0)


class Handles:
    """A tool that opens something, works, and closes it however it ends."""

    def __init__(self) -> None:
        self.open = 0

    async def work(self, invocation: Invocation) -> Output:
        self.open += 1
        try:
            for _ in range(4):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # what it takes to stop what was started
            raise
        finally:
            self.open -= 1
        return text_output("ok")


class Scene:
    """A run with everything in it: text, parallel and exclusive calls, a refusal, a retry, a summary."""

    def __init__(self) -> None:
        self.handles = Handles()
        busy = ErrorInfo(kind="overloaded", message="busy")
        self.model = Script(
            [Started(), Failed(busy)],
            [
                Started(),
                *part_events(0, Text(text="Let me see.")),
                yield_once,
                *part_events(1, call("read", "a")),
                *part_events(2, call("read", "b")),
                yield_once,
                *part_events(3, call("write", "c")),
                *part_events(4, call("wirte", "d")),
                *ending("tool_calls", Usage(input=100, output=5)),
            ],
            answer_text("Summary."),
            answer_calls(call("write", "e"), usage=Usage(input=10, output=5)),
            answer_text("All done."),
        )
        tools = [
            Acting(self.handles.work, "read", is_parallel=True),
            Acting(self.handles.work, "write"),
        ]
        self.notes = Notes()
        settings = EngineSettings(
            retry_delay=0.0, compaction=SummaryCompaction(threshold=100, keep=1)
        )
        self.engine = Engine(self.model, tools, settings=settings, observer=self._observe)

    async def _observe(self, event: EngineEvent) -> None:
        await asyncio.sleep(0)
        await self.notes(event)

    def check(self) -> None:
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert self.model.opened == self.model.closed
        assert self.handles.open == 0
        assert is_paired(self.engine.turns)
        settled = [event.call.call_id for event in self.notes.of(CallSettled)]
        assert len(settled) == len(set(settled))


End = Callable[[Scene, "asyncio.Task[RunEnded]"], object]


async def end_at(step: int, end: End) -> bool:
    """End a run at its n-th step of the event loop; whether it was over before."""
    scene = Scene()
    run = asyncio.create_task(scene.engine.run(ask(turns=LONG)))
    for _ in range(step):
        if run.done():
            break
        await asyncio.sleep(0)
    was_over = run.done()
    if not was_over:
        end(scene, run)
        await bounded(asyncio.wait((run,)))
    scene.check()
    if run.cancelled():
        return was_over
    ended = await run
    assert ended.reason == "answered" if was_over else ended.reason in {"cancelled", "answered"}
    assert ended.turns == scene.engine.turns
    assert scene.notes.events[-1] == ended
    return was_over


def interrupt_and_cancel(scene: Scene, run: "asyncio.Task[RunEnded]") -> None:
    scene.engine.interrupt()
    run.cancel()


ENDS: dict[str, End] = {
    "cancelled": lambda _, run: run.cancel(),
    "cancelled twice": lambda _, run: (run.cancel(), run.cancel()),
    "interrupted": lambda scene, _: scene.engine.interrupt(),
    "interrupted, then cancelled": interrupt_and_cancel,
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("loop", LOOPS)
def test_run_ended_at_any_step_leaves_nothing_behind(loop: str, how: str) -> None:
    async def main() -> None:
        for step in range(MAX_STEPS):
            if await end_at(step, ENDS[how]):
                assert step > 50, "the scene is too short to show anything"
                return
        raise AssertionError("the run never came to its end")

    play(loop, main())


def test_scene_has_a_retry_a_summary_and_every_kind_of_settlement() -> None:
    async def main() -> None:
        scene = Scene()
        ended = await bounded(scene.engine.run(ask(turns=LONG)))
        assert ended.reason == "answered"
        assert scene.notes.of(Retried)
        assert scene.notes.of(Compacted)
        hows = {event.how for event in scene.notes.of(CallSettled)}
        assert hows == {"done", "refused"}
        scene.check()

    asyncio.run(main())


def test_interrupt_aborts_the_tools_and_reports_how_long_they_ran_to_the_model() -> None:
    async def main() -> None:
        running, waiting = Gated("running"), Gated("waiting")
        model = Script(
            [
                Started(),
                *part_events(0, call("running", "a")),
                *part_events(1, call("waiting", "b")),
                hold,
            ]
        )
        notes = Notes()
        engine = Engine(model, [running, waiting], observer=notes)
        run = asyncio.create_task(engine.run(ask()))
        await bounded(running.begun.wait())
        for _ in range(20):
            await asyncio.sleep(0)
        engine.interrupt()
        engine.interrupt()
        ended = await bounded(run)
        assert ended.reason == "cancelled"
        assert running.is_cancelled
        assert not waiting.begun.is_set()
        assert model.closed == 1
        results = dict(texts_of(ended.turns))
        assert results["a"].startswith("Aborted after 0.")
        assert results["b"] == "Not run: the run was interrupted."
        assert {event.how for event in notes.of(CallSettled)} == {"aborted"}
        assert is_paired(ended.turns)

    asyncio.run(main())


def test_interrupt_stops_tools_although_the_observer_is_paused() -> None:
    async def main() -> None:
        tool = Gated()
        go_on = asyncio.Event()

        async def pause(event: EngineEvent) -> None:
            if isinstance(event, CallStarted):
                await go_on.wait()

        model = Script([Started(), *part_events(0, call()), hold])
        engine = Engine(model, [tool], observer=pause)
        run = asyncio.create_task(engine.run(ask()))
        await bounded(tool.begun.wait())
        engine.interrupt()
        for _ in range(10):
            await asyncio.sleep(0)
        assert tool.is_cancelled
        assert model.closed == 1
        assert not run.done()
        go_on.set()
        assert (await bounded(run)).reason == "cancelled"

    asyncio.run(main())


def test_call_that_is_let_go_while_the_run_is_being_interrupted_is_not_started() -> None:
    async def main() -> None:
        first, second = Gated("first"), Gated("second")
        go_on = asyncio.Event()
        paused = asyncio.Event()

        async def pause(event: EngineEvent) -> None:
            if isinstance(event, CallReported):
                paused.set()
                await go_on.wait()

        async def report(invocation: Invocation) -> Output:
            invocation.report("nearly")
            await first.go_on.wait()
            return text_output("ok")

        model = Script(
            [
                Started(),
                *part_events(0, call("reporting", "a")),
                *part_events(1, call("second", "b")),
                hold,
            ]
        )
        engine = Engine(model, [Acting(report, "reporting"), second], observer=pause)
        run = asyncio.create_task(engine.run(ask()))
        await bounded(paused.wait())
        first.go_on.set()
        for _ in range(10):
            await asyncio.sleep(0)
        engine.interrupt()  # the first is done, and the run has not heard of it
        go_on.set()
        ended = await bounded(run)
        assert not second.begun.is_set()
        assert is_paired(ended.turns)
        assert dict(texts_of(ended.turns))["a"] == "ok"

    asyncio.run(main())


def test_what_was_being_said_is_kept_and_what_cannot_be_sent_again_is_not() -> None:
    async def main() -> None:
        spoke = asyncio.Event()

        async def watch(event: EngineEvent) -> None:
            if isinstance(event, ModelSpoke) and event.event == TextDelta(1, "long"):
                spoke.set()

        model = Script(
            [
                Started(),
                *part_events(0, Reasoning(summary=("hm",))),
                *part_events(1, Text())[:1],
                TextDelta(1, "A "),
                TextDelta(1, "long"),
                *part_events(2, call())[:2],
                hold,
            ]
        )
        engine = Engine(model, observer=watch)
        run = asyncio.create_task(engine.run(ask()))
        await bounded(spoke.wait())
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        said = engine.turns[1].parts
        assert said[1:] == (Text(text="A long", status="incomplete"),)
        assert is_paired(engine.turns)

    asyncio.run(main())


def test_caller_s_call_has_a_result_when_the_run_is_interrupted_before_it_is_handed_over() -> None:
    async def main() -> None:
        tool = Gated()
        engine = Engine(Script(answer_calls(call("mine", "a"), call("work", "b"))), [tool])
        run = asyncio.create_task(engine.run(ask(tools=(Declaration(name="mine"),))))
        await bounded(tool.begun.wait())
        engine.interrupt()
        ended = await bounded(run)
        assert ended.reason == "cancelled"
        assert is_paired(ended.turns)
        assert dict(texts_of(ended.turns))["a"] == "Not run: the run was interrupted."

    asyncio.run(main())


def test_observer_that_raises_ends_the_run_with_its_own_exception() -> None:
    class Gone(Exception):
        pass

    async def main() -> None:
        tool = Gated()

        async def leave(event: EngineEvent) -> None:
            if isinstance(event, CallStarted):
                await tool.begun.wait()
                raise Gone

        model = Script([Started(), *part_events(0, call()), hold])
        engine = Engine(model, [tool], observer=leave)
        with pytest.raises(Gone):
            await bounded(engine.run(ask()))
        assert tool.is_cancelled
        assert model.closed == 1
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert is_paired(engine.turns)
        assert texts_of(engine.turns)[0][1].startswith("Aborted after")

        async def leave_at_once(event: EngineEvent) -> None:
            raise Gone

        with pytest.raises(Gone):
            await bounded(Engine(model, observer=leave_at_once).run(ask()))

    asyncio.run(main())


def test_wall_time_ends_the_run_and_aborts_what_runs() -> None:
    async def main() -> None:
        tool = Gated()
        settings = EngineSettings(max_seconds=0.05)
        ended = await bounded(
            Engine(Script(answer_calls(call())), [tool], settings=settings).run(ask())
        )
        assert ended.reason == "max_time"
        assert tool.is_cancelled
        assert "the time of the run was up" in texts_of(ended.turns)[0][1]

    asyncio.run(main())


def test_interrupt_between_turns_is_heeded() -> None:
    async def main() -> None:
        engine: Engine

        async def interrupt(event: EngineEvent) -> None:
            if isinstance(event, TurnEnded):
                engine.interrupt()

        model = Script(answer_calls(call()))
        engine = Engine(model, [Acting(say_ok)], observer=interrupt)
        ended = await bounded(engine.run(ask()))
        assert ended.reason == "cancelled"
        assert len(model.requests) == 1

    asyncio.run(main())


def test_interrupt_before_the_request_is_sent_sends_none() -> None:
    async def main() -> None:
        engine: Engine

        async def interrupt(event: EngineEvent) -> None:
            if isinstance(event, TurnStarted):
                engine.interrupt()

        model = Script(answer_calls(call()))
        engine = Engine(model, [Acting(say_ok)], observer=interrupt)
        ended = await bounded(engine.run(ask()))
        assert ended.reason == "cancelled"
        assert not model.requests
        assert ended.turns == ask().turns

    asyncio.run(main())


def test_interrupt_during_the_wait_before_a_retry_ends_it() -> None:
    async def main() -> None:
        engine: Engine

        async def interrupt(event: EngineEvent) -> None:
            if isinstance(event, Retried):
                asyncio.get_running_loop().call_soon(engine.interrupt)

        busy = ErrorInfo(kind="overloaded", message="busy")
        settings = EngineSettings(retry_delay=60.0, retry_max_delay=60.0)
        engine = Engine(Script([Started(), Failed(busy)]), settings=settings, observer=interrupt)
        ended = await bounded(engine.run(ask()))
        assert ended.reason == "cancelled"
        assert ended.error is None

    asyncio.run(main())


def test_interrupt_while_a_summary_is_written_keeps_the_conversation_as_it_was() -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def wait_for_ever() -> None:
            asked.set()
            await hold()

        model = Script(
            answer_calls(call(), usage=Usage(input=500, output=1)), [Started(), wait_for_ever]
        )
        settings = EngineSettings(compaction=SummaryCompaction(threshold=100, keep=1))
        engine = Engine(model, [Acting(say_ok)], settings=settings)
        run = asyncio.create_task(engine.run(ask(turns=LONG)))
        await bounded(asked.wait())
        engine.interrupt()
        ended = await bounded(run)
        assert ended.reason == "cancelled"
        assert ended.turns[: len(LONG)] == LONG
        assert model.closed == 2

    asyncio.run(main())
