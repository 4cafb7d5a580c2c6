"""Answers that break off, and what is kept of them; models that cannot be reached; a conversation that grows too long."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from dragoman.core.pairing import is_paired
from dragoman.engine.compaction import SummaryCompaction
from dragoman.engine.events import Compacted, EngineEvent, ModelSpoke, Retried, TurnEnded
from dragoman.engine.run import Engine
from dragoman.engine.settings import EngineSettings
from dragoman.errors import ConfigError, UpstreamError
from dragoman.model.events import (
    Event,
    Failed,
    LimitsReported,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Limits, Usage
from dragoman.model.parts import Text
from dragoman.model.request import Request, Turn
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

BUSY = ErrorInfo(kind="overloaded", message="busy")
QUICK = EngineSettings(retry_delay=0.0)
UNREACHABLE: list[Step] = [UpstreamError("nobody there")]


async def hold() -> None:
    await asyncio.Event().wait()


def test_answer_that_breaks_off_before_any_call_is_asked_for_again() -> None:
    async def main() -> None:
        notes = Notes()
        model = Script(
            [
                Started(),
                *part_events(0, Text(text="Hm")),
                UsageReported(Usage(input=7)),
                Failed(BUSY),
            ],
            [Started()],
            UNREACHABLE,
            answer_text(usage=Usage(input=10)),
        )
        ended = await bounded(Engine(model, settings=QUICK, observer=notes).run(ask()))
        assert ended.reason == "answered"
        kinds = [event.error.kind for event in notes.of(Retried)]
        assert kinds == ["overloaded", "truncated", "upstream"]
        assert len(ended.turns) == 2
        assert ended.total == Usage(input=17)
        assert ended.turn_count == 1
        assert len(notes.of(TurnEnded)) == 1

    asyncio.run(main())


def test_answer_that_keeps_breaking_off_fails_with_its_error() -> None:
    async def main() -> None:
        model = Script([Started(), Failed(BUSY)], repeats=True)
        settings = EngineSettings(retries=2, retry_delay=0.0)
        ended = await bounded(Engine(model, settings=settings).run(ask()))
        assert ended.reason == "failed"
        assert ended.error == BUSY
        assert len(model.requests) == 3
        assert ended.turns == ask().turns

    asyncio.run(main())


def test_request_that_is_refused_is_not_sent_again() -> None:
    async def main() -> None:
        refused = ErrorInfo(kind="invalid_request", message="no", status=400)
        model = Script([Failed(refused)])
        ended = await bounded(Engine(model).run(ask()))
        assert ended.error == refused
        assert len(model.requests) == 1

    asyncio.run(main())


@pytest.mark.parametrize("how", ["failed", "closed", "raised"])
def test_answer_that_breaks_off_after_a_call_keeps_the_call_and_its_result(how: str) -> None:
    async def main() -> None:
        tool = Gated()
        end: dict[str, list[Step]] = {
            "failed": [Failed(BUSY)],
            "closed": [],
            "raised": [UpstreamError("line is dead")],
        }
        half = call("work", "b", '{"a', status="incomplete")
        model = Script(
            [
                Started(),
                *part_events(0, Text(text="I will.")),
                *part_events(1, call()),
                *part_events(2, half),
                tool.begun.wait,
                *end[how],
            ]
        )
        notes = Notes()
        run = asyncio.create_task(Engine(model, [tool], observer=notes).run(ask()))
        await bounded(tool.begun.wait())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not run.done(), "the call's result is waited for"
        tool.go_on.set()
        ended = await bounded(run)
        assert ended.reason == "failed"
        assert ended.error is not None
        assert ended.error.kind == {"failed": "overloaded", "closed": "truncated"}.get(
            how, "upstream"
        )
        assert not notes.of(Retried)
        assert ended.turns[1].parts == (Text(text="I will."), call())
        assert texts_of(ended.turns) == [("call_1", "work ok")]
        assert is_paired(ended.turns)

    asyncio.run(main())


def test_silence_is_an_error_of_its_own() -> None:
    async def main() -> None:
        settings = EngineSettings(idle_timeout=0.02, retries=0)
        silent: list[list[Step]] = [[Started(), hold], [hold]]
        for steps in silent:
            model = Script(steps)
            ended = await bounded(Engine(model, settings=settings).run(ask()))
            assert ended.reason == "failed"
            assert ended.error is not None
            assert ended.error.kind == "timeout"
            assert "0.02 s" in ended.error.message
            assert model.closed == 1

    asyncio.run(main())


def test_model_that_raises_anything_at_all_is_contained(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        settings = EngineSettings(retries=0)
        for error, kind in ((ZeroDivisionError("oh"), "server"), (TimeoutError("slow"), "timeout")):
            ended = await bounded(Engine(Script([error]), settings=settings).run(ask()))
            assert ended.reason == "failed"
            assert ended.error is not None
            assert ended.error.kind == kind

    with caplog.at_level(logging.CRITICAL, logger="dragoman.engine"):
        asyncio.run(main())


def test_what_goes_wrong_after_the_end_of_the_answer_changes_nothing() -> None:
    class Careless(Script):
        """Breaks while it closes."""

        @asynccontextmanager
        async def ask(
            self, request: Request
        ) -> AsyncGenerator[AsyncIterator[Sequence[Event]], None]:
            async with super().ask(request) as reads:
                yield reads
            raise UpstreamError("cannot close")

    async def main() -> None:
        model = Careless(answer_calls(call()), answer_text())
        ended = await bounded(Engine(model, [Acting(say_ok)]).run(ask()))
        assert ended.reason == "answered"

    asyncio.run(main())


def test_cut_call_of_an_answer_that_ended_by_itself_is_answered_with_an_error() -> None:
    async def main() -> None:
        half = call("work", "a", '{"path": "x', status="incomplete")
        model = Script([Started(), *part_events(0, half), *ending("length")], answer_text())
        tool = Acting(say_ok)
        ended = await bounded(Engine(model, [tool]).run(ask()))
        assert ended.reason == "answered"
        assert not tool.calls
        assert "cut off" in texts_of(ended.turns)[0][1]
        assert is_paired(ended.turns)

    asyncio.run(main())


def test_limits_and_usage_are_reported_at_the_end_of_the_turn() -> None:
    async def main() -> None:
        limits = Limits(balance="3")
        notes = Notes()
        model = Script([Started(), LimitsReported(limits), *ending("stop", Usage(total=5))])
        await bounded(Engine(model, observer=notes).run(ask()))
        end = notes.of(TurnEnded)[0]
        assert (end.limits, end.usage, end.finish) == (limits, Usage(total=5), "stop")

    asyncio.run(main())


LONG = (
    Turn(role="system", parts=(Text(text="Be."),)),
    Turn(role="user", parts=(Text(text="Do."),)),
    Turn(role="assistant", parts=(Text(text="I do."),)),
    Turn(role="user", parts=(Text(text="On."),)),
)
EAGER = EngineSettings(compaction=SummaryCompaction(threshold=100, keep=2), idle_timeout=1.0)


def test_long_conversation_is_summed_up_by_the_model_before_the_next_request() -> None:
    async def main() -> None:
        notes = Notes()
        model = Script(
            answer_calls(call(), usage=Usage(input=99, output=1)),
            answer_text("We did things.", usage=Usage(input=3)),
            answer_text(),
        )
        engine = Engine(model, [Acting(say_ok)], settings=EAGER, observer=notes)
        ended = await bounded(engine.run(ask(turns=LONG)))
        assert notes.of(Compacted) == [Compacted(100, 6, 4)]
        summary_request = model.requests[1]
        assert summary_request.tool_choice is not None
        assert summary_request.tool_choice.mode == "none"
        after = model.requests[2].turns
        assert [turn.role for turn in after] == ["system", "user", "assistant", "tool"]
        assert "We did things." in str(after[1].parts)
        assert is_paired(after)
        assert ended.total.input == 102
        said = [event.event for event in notes.of(ModelSpoke)]
        assert not any(isinstance(event, TextDelta) and "things" in event.text for event in said)

    asyncio.run(main())


FULL = ErrorInfo(kind="context_length", message="too long", status=400)


def test_conversation_that_the_model_finds_too_long_is_summed_up_and_asked_again() -> None:
    async def main() -> None:
        notes = Notes()
        model = Script([Failed(FULL)], answer_text("We did things."), answer_text())
        engine = Engine(model, [Acting(say_ok)], settings=EAGER, observer=notes)
        ended = await bounded(engine.run(ask(turns=(*LONG, *LONG[1:]))))
        assert ended.reason == "answered"
        assert notes.of(Compacted) == [Compacted(None, 7, 4)]
        assert notes.of(Retried) == [Retried(1, FULL, 0.0)]
        assert "We did things." in str(model.requests[2].turns[1].parts)
        assert is_paired(model.requests[2].turns)

    asyncio.run(main())


def test_conversation_that_stays_too_long_fails_after_one_summary() -> None:
    async def main() -> None:
        model = Script([Failed(FULL)], answer_text("We did things."), [Failed(FULL)])
        engine = Engine(model, settings=EAGER)
        ended = await bounded(engine.run(ask(turns=(*LONG, *LONG[1:]))))
        assert (ended.reason, ended.error) == ("failed", FULL)
        assert len(model.requests) == 3

    asyncio.run(main())


def test_conversation_that_cannot_be_summed_up_fails_as_too_long() -> None:
    async def main() -> None:
        model = Script([Failed(FULL)])
        ended = await bounded(Engine(model, settings=EAGER).run(ask()))
        assert (ended.reason, ended.error) == ("failed", FULL)

    asyncio.run(main())


def test_interrupt_during_the_summary_of_a_full_conversation_ends_the_run() -> None:
    async def main() -> None:
        async def interrupt() -> None:
            engine.interrupt()
            await hold()

        model = Script([Failed(FULL)], [interrupt])
        engine = Engine(model, settings=EngineSettings(compaction=SummaryCompaction(keep=2)))
        ended = await bounded(engine.run(ask(turns=(*LONG, *LONG[1:]))))
        assert ended.reason == "cancelled"

    asyncio.run(main())


@pytest.mark.parametrize(
    "summary",
    [
        [Started(), Failed(BUSY)],
        [Started(), PartStarted(0, Text(status="in_progress")), PartEnded(0, Text()), *ending()],
        [UpstreamError("gone")],
        [ZeroDivisionError()],
        [hold],
    ],
    ids=["failed", "empty", "unreachable", "broken", "silent"],
)
def test_summary_that_fails_leaves_the_conversation_as_it_is(
    summary: list[Step], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        notes = Notes()
        model = Script(answer_calls(call(), usage=Usage(total=100)), summary, answer_text())
        engine = Engine(model, [Acting(say_ok)], settings=EAGER, observer=notes)
        ended = await bounded(engine.run(ask(turns=LONG)))
        assert ended.reason == "answered"
        assert not notes.of(Compacted)
        assert len(ended.turns) == len(LONG) + 3

    with caplog.at_level(logging.CRITICAL, logger="dragoman.engine"):
        asyncio.run(main())


def test_compaction_raises_what_the_tools_and_the_observer_raise_unchanged() -> None:
    async def main() -> None:
        twins = [Acting(say_ok), Acting(say_ok)]
        with pytest.raises(ConfigError, match="twice"):
            await bounded(Engine(Script(), twins).compact(ask(turns=LONG)))

        async def refuse(event: EngineEvent) -> None:
            raise ZeroDivisionError(type(event).__name__)

        engine = Engine(Script(answer_text("done")), settings=EAGER, observer=refuse)
        with pytest.raises(ZeroDivisionError, match="Compacted"):
            await bounded(engine.compact(ask(turns=(*LONG, *LONG[1:]))))
        assert "done" in str(engine.turns)

    asyncio.run(main())


def test_exchange_is_left_to_close_in_order() -> None:
    class Closing(Script):
        """Takes a while to close, as a connection does that is to be used again."""

        is_closed_in_order = False

        @asynccontextmanager
        async def ask(
            self, request: Request
        ) -> AsyncGenerator[AsyncIterator[Sequence[Event]], None]:
            async with super().ask(request) as reads:
                yield reads
            for _ in range(50):
                await asyncio.sleep(0)
            self.is_closed_in_order = True

    async def main() -> None:
        model = Closing(answer_text())
        ended = await bounded(Engine(model).run(ask()))
        assert ended.reason == "answered"
        assert model.is_closed_in_order

    asyncio.run(main())


def test_completed_answer_closes_the_exchange_without_waiting_for_its_end() -> None:
    async def main() -> None:
        model = Script([Started(), *part_events(0, Text(text="Hi")), *ending(), hold])
        ended = await bounded(Engine(model).run(ask()))
        assert ended.reason == "answered"
        assert model.closed == 1

    asyncio.run(main())
