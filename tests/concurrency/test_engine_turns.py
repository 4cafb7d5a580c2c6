"""Calls while the answer still comes: when they start, which run at once, in which order their results go back."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

import pytest

from dragoman.core.pairing import is_paired
from dragoman.engine.events import (
    CallReported,
    CallSettled,
    CallStarted,
    EngineEvent,
    ModelSpoke,
    RunEnded,
    TurnEnded,
    TurnStarted,
)
from dragoman.engine.run import Engine
from dragoman.engine.run.live_turn import MAX_WAITING_READS
from dragoman.engine.settings import EngineSettings
from dragoman.engine.tools import Invocation, Output, Tool, text_output
from dragoman.errors import ConfigError
from dragoman.model.events import Completed, Event, PartEnded, Started, TextDelta
from dragoman.model.outcome import Usage
from dragoman.model.parts import Call, Result, Text
from dragoman.model.request import Tool as Declaration
from engine_models import (
    Acting,
    Gated,
    Notes,
    Script,
    Step,
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


def is_completed(event: EngineEvent) -> bool:
    return isinstance(event, ModelSpoke) and isinstance(event.event, Completed)


def test_call_starts_while_the_answer_is_still_coming() -> None:
    async def main() -> None:
        tool = Gated()
        # The model goes on only when the tool has begun: a tool that waited for the end would wait for ever.
        model = Script(
            [
                Started(),
                *part_events(0, call()),
                tool.begun.wait,
                *part_events(1, Text(text="Meanwhile.")),
                *ending("tool_calls"),
            ],
            answer_text(),
        )
        notes = Notes()

        async def let_go(event: EngineEvent) -> None:
            await notes(event)
            if is_completed(event):
                tool.go_on.set()

        ended = await bounded(Engine(model, [tool], observer=let_go).run(ask()))
        assert ended.reason == "answered"
        found = [type(event) for event in notes.events]
        assert found.index(CallStarted) < found.index(CallSettled)
        started = notes.events.index(notes.of(CallStarted)[0])
        spoken = notes.events[started + 1]
        assert isinstance(spoken, ModelSpoke)
        assert texts_of(ended.turns) == [("call_1", "work ok")]

    asyncio.run(main())


def test_parallel_tools_run_at_once_and_results_keep_the_order_of_the_calls() -> None:
    async def main() -> None:
        one, two = Gated("one", is_parallel=True), Gated("two", is_parallel=True)
        model = Script(
            answer_calls(call("one", "a"), call("two", "b")),
            answer_text(),
        )
        notes = Notes()
        run = asyncio.create_task(Engine(model, [one, two], observer=notes).run(ask()))
        await bounded(one.begun.wait())
        await bounded(two.begun.wait())
        two.go_on.set()
        await notes.wait_for(lambda event: isinstance(event, CallSettled))
        one.go_on.set()
        ended = await bounded(run)
        assert [event.call.name for event in notes.of(CallSettled)] == ["two", "one"]
        assert texts_of(ended.turns) == [("a", "one ok"), ("b", "two ok")]
        assert texts_of(model.requests[1].turns) == [("a", "one ok"), ("b", "two ok")]

    asyncio.run(main())


def test_exclusive_tool_waits_for_the_parallel_ones_and_keeps_later_ones_waiting() -> None:
    async def main() -> None:
        first, alone, last = (
            Gated("first", is_parallel=True),
            Gated("alone"),
            Gated("last", is_parallel=True),
        )
        model = Script(
            answer_calls(call("first", "a"), call("alone", "b"), call("last", "c")), answer_text()
        )
        notes = Notes()
        run = asyncio.create_task(Engine(model, [first, alone, last], observer=notes).run(ask()))
        await bounded(first.begun.wait())
        await notes.wait_for(is_completed)
        assert not alone.begun.is_set()
        assert not last.begun.is_set()
        first.go_on.set()
        await bounded(alone.begun.wait())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not last.begun.is_set()
        alone.go_on.set()
        await bounded(last.begun.wait())
        last.go_on.set()
        assert (await bounded(run)).reason == "answered"

    asyncio.run(main())


def test_no_more_calls_run_at_once_than_allowed() -> None:
    async def main() -> None:
        running = most = 0

        async def count(invocation: Invocation) -> Output:
            nonlocal running, most
            running += 1
            most = max(most, running)
            for _ in range(100):
                await asyncio.sleep(0)
            running -= 1
            return text_output("ok")

        tool = Acting(count, is_parallel=True)
        model = Script(
            answer_calls(*(call(call_id=f"c{number}") for number in range(7))), answer_text()
        )
        settings = EngineSettings(max_parallel=3)
        await bounded(Engine(model, [tool], settings=settings).run(ask()))
        assert most == 3

    asyncio.run(main())


def test_everything_the_model_says_is_emitted_in_order_between_the_turn_s_start_and_end() -> None:
    async def main() -> None:
        usage = Usage(input=10, output=2)
        answers = (answer_calls(call(), usage=usage), answer_text(usage=Usage(input=20, output=3)))
        notes = Notes()
        ended = await bounded(Engine(Script(*answers), [Acting(say_ok)], observer=notes).run(ask()))
        spoken = [event.event for event in notes.of(ModelSpoke)]
        assert spoken == [step for answer in answers for step in answer]
        ends = notes.of(TurnEnded)
        assert [end.turn for end in ends] == [1, 2]
        assert ends[0].usage == usage
        assert ends[1].total == Usage(input=30, output=5) == ended.total
        assert isinstance(notes.events[0], TurnStarted)
        assert notes.events[-1] == ended
        assert ended.turn_count == 2
        assert is_paired(ended.turns)

    asyncio.run(main())


def test_next_request_has_the_caller_s_fields_and_all_tools() -> None:
    async def main() -> None:
        model = Script(answer_calls(call()), answer_text())
        own = Declaration(name="mine")
        await bounded(
            Engine(model, [Acting(say_ok)]).run(ask(tools=(own,), temperature=0.5, user="u"))
        )
        second = model.requests[1]
        assert [tool.name for tool in second.tools] == ["mine", "work"]
        assert second.temperature == 0.5
        assert second.user == "u"
        assert [turn.role for turn in second.turns] == ["user", "assistant", "tool"]

    asyncio.run(main())


def test_caller_s_own_call_is_handed_over_after_the_engine_s_calls_have_settled() -> None:
    async def main() -> None:
        tool = Gated()
        model = Script(answer_calls(call("mine", "a"), call("work", "b")))
        engine = Engine(model, [tool])
        run = asyncio.create_task(engine.run(ask(tools=(Declaration(name="mine"),))))
        await bounded(tool.begun.wait())
        assert not run.done()
        tool.go_on.set()
        ended = await bounded(run)
        assert ended.reason == "handed_over"
        assert texts_of(ended.turns) == [("b", "work ok")]
        answer = ended.turns[1].parts
        assert [part.call_id for part in answer if isinstance(part, Call)] == ["a", "b"]

    asyncio.run(main())


def test_call_of_the_provider_is_never_run_and_needs_no_result() -> None:
    async def main() -> None:
        tool = Acting(say_ok, "web_search")
        searched = call("web_search", kind="web_search", executor="provider")
        model = Script([Started(), *part_events(0, searched), *ending()])
        ended = await bounded(Engine(model, [tool]).run(ask()))
        assert ended.reason == "answered"
        assert not tool.calls
        assert ended.turns[1].parts == (searched,)

    asyncio.run(main())


def test_result_has_the_id_of_its_call_and_no_other() -> None:
    """The museum's M034: an executor that mints an id for the output, which then answers no call."""

    async def main() -> None:
        made = call("python", "call_a", '{"code":"1+1"}', item_id="fc_1")
        model = Script(answer_calls(made), answer_text())
        ended = await bounded(Engine(model, [Acting(say_ok, "python")]).run(ask()))
        results = [part for part in ended.turns[2].parts if isinstance(part, Result)]
        assert [result.call_id for result in results] == ["call_a"]
        assert results[0].item_id is None
        assert is_paired(model.requests[1].turns)

    asyncio.run(main())


def test_paused_observer_stops_the_reading() -> None:
    async def main() -> None:
        go_on = asyncio.Event()
        reads = 0

        async def count() -> None:
            nonlocal reads
            reads += 1

        steps = [step for number in range(50) for step in (count, TextDelta(0, str(number)))]
        model = Script(
            [Started(), *part_events(0, Text())[:1], *steps, PartEnded(0, Text()), *ending()]
        )

        async def pause(event: object) -> None:
            if isinstance(event, ModelSpoke) and isinstance(event.event, TextDelta):
                await go_on.wait()

        settings = EngineSettings(idle_timeout=0.8)
        run = asyncio.create_task(Engine(model, settings=settings, observer=pause).run(ask()))
        # Longer than the limit on silence, which must not count the observer's time.
        await asyncio.sleep(1.0)
        assert reads <= MAX_WAITING_READS + 2
        go_on.set()
        ended = await bounded(run)
        assert ended.reason == "answered"
        assert reads == 50

    asyncio.run(main())


def test_tool_s_reports_reach_the_observer_and_a_flood_of_them_is_cut() -> None:
    async def main() -> None:
        async def chatter(invocation: Invocation) -> Output:
            invocation.report("halfway")
            await asyncio.sleep(0)
            for number in range(10_000):
                invocation.report(f"step {number}")
            await asyncio.sleep(0)
            return text_output("ok")

        kept: list[Invocation] = []

        async def keep(invocation: Invocation) -> Output:
            kept.append(invocation)
            return await chatter(invocation)

        notes = Notes()
        model = Script(answer_calls(call()), answer_text())
        await bounded(Engine(model, [Acting(keep)], observer=notes).run(ask()))
        reports = notes.of(CallReported)
        assert reports[0] == CallReported("call_1", "halfway")
        assert 1 < len(reports) < 200
        kept[0].report("too late")  # changes nothing, breaks nothing
        again = Script(answer_calls(call()), answer_text())
        ended = await bounded(Engine(again, [Acting(chatter)]).run(ask()))
        assert ended.reason == "answered"

    asyncio.run(main())


def test_source_is_asked_before_each_request() -> None:
    async def main() -> None:
        late = Acting(say_ok, "late")

        class Source:
            def __init__(self) -> None:
                self.asked = 0

            def tools(self) -> list[Tool]:
                self.asked += 1
                return [late] if self.asked > 1 else []

        model = Script(answer_calls(call()), answer_calls(call("late", "b")), answer_text())
        ended = await bounded(Engine(model, [Acting(say_ok), Source()]).run(ask()))
        assert [len(request.tools) for request in model.requests] == [1, 2, 2]
        assert texts_of(ended.turns)[1] == ("b", "ok b")

    asyncio.run(main())


def test_tools_with_one_name_are_a_config_error_at_the_start_and_a_failure_later() -> None:
    async def main() -> None:
        twice = [Acting(say_ok), Acting(say_ok)]
        with pytest.raises(ConfigError, match="twice"):
            await Engine(Script(), twice).run(ask())
        with pytest.raises(ConfigError, match="in both"):
            await Engine(Script(), twice[:1]).run(ask(tools=(Declaration(name="work"),)))

        class Source:
            def __init__(self) -> None:
                self.asked = 0

            def tools(self) -> list[Tool]:
                self.asked += 1
                return [Acting(say_ok)] if self.asked > 1 else []

        model = Script(answer_calls(call()))
        ended = await bounded(Engine(model, [Acting(say_ok), Source()]).run(ask()))
        assert ended.reason == "failed"
        assert ended.error is not None
        assert "twice" in ended.error.message
        assert is_paired(ended.turns)

    asyncio.run(main())


def test_source_that_breaks_between_turns_fails_the_run(caplog: pytest.LogCaptureFixture) -> None:
    class Source:
        def __init__(self) -> None:
            self.asked = 0

        def tools(self) -> list[Tool]:
            self.asked += 1
            if self.asked > 1:
                raise ZeroDivisionError
            return [Acting(say_ok)]

    async def main() -> None:
        ended = await bounded(Engine(Script(answer_calls(call())), [Source()]).run(ask()))
        assert ended.reason == "failed"
        assert ended.error is not None
        assert "ZeroDivisionError" in ended.error.message
        assert is_paired(ended.turns)

    with caplog.at_level(logging.CRITICAL, logger="dragoman.engine"):
        asyncio.run(main())


def test_engine_runs_one_conversation_at_a_time_and_one_choice() -> None:
    async def main() -> None:
        tool = Gated()
        engine = Engine(Script(answer_calls(call()), answer_text(), answer_text()), [tool])
        engine.interrupt()  # nothing runs: nothing to do
        run = asyncio.create_task(engine.run(ask()))
        await bounded(tool.begun.wait())
        with pytest.raises(ConfigError, match="one run at a time"):
            await engine.run(ask())
        tool.go_on.set()
        first = await bounded(run)
        assert engine.turns == first.turns
        with pytest.raises(ConfigError, match="one choice"):
            await engine.run(ask(choices=2))
        second = await bounded(engine.run(ask(turns=first.turns)))
        assert second.reason == "answered"

    asyncio.run(main())


def test_turns_hold_the_answer_when_its_end_is_emitted() -> None:
    async def main() -> None:
        seen: list[int] = []
        engine: Engine

        async def look(event: object) -> None:
            if isinstance(event, TurnEnded):
                seen.append(len(engine.turns))

        engine = Engine(
            Script(answer_calls(call()), answer_text()), [Acting(say_ok)], observer=look
        )
        await bounded(engine.run(ask()))
        assert seen == [3, 4]

    asyncio.run(main())


def test_paused_provider_is_asked_to_go_on() -> None:
    async def main() -> None:
        first: list[Event] = [Started(), *part_events(0, Text(text="One,")), *ending("pause")]
        model = Script(first, answer_text("two."))
        ended: RunEnded = await bounded(Engine(model).run(ask()))
        assert ended.reason == "answered"
        assert [turn.role for turn in model.requests[1].turns] == ["user", "assistant"]

    asyncio.run(main())


def test_answer_that_goes_on_after_its_end_ends_the_run() -> None:
    async def main() -> None:
        tool = Gated()

        class Chatty(Script):
            """Says all in one read, and more than an answer."""

            async def emit(self, steps: Sequence[Step]) -> AsyncGenerator[Sequence[Event], None]:
                yield [step for step in steps if isinstance(step, Event)]

        more = part_events(1, Text(text="more"))
        ended = await bounded(Engine(Chatty([*answer_calls(call()), *more]), [tool]).run(ask()))
        assert ended.reason == "failed"
        assert ended.error is not None
        assert ended.error.kind == "protocol"
        assert is_paired(ended.turns)

    asyncio.run(main())
