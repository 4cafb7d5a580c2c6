"""Tools that fail, lie, flood, hang and will not stop; calls that cannot be run; and how far a run may go."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from dragoman.core.pairing import is_paired
from dragoman.engine.events import CallSettled, CallStarted
from dragoman.engine.run import Engine
from dragoman.engine.run.live_turn import MAX_ERROR_CHARACTERS
from dragoman.engine.settings import EngineSettings
from dragoman.engine.tools import Invocation, Output, text_output
from dragoman.errors import FatalToolError, ToolError
from dragoman.model.events import Started
from dragoman.model.outcome import Usage
from dragoman.model.parts import Call, Result, Text
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
    part_events,
    say_ok,
    texts_of,
)

SILENT = logging.CRITICAL + 1


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


async def refuse(_: Invocation) -> Output:
    raise ToolError("no such file")


async def crash(_: Invocation) -> Output:
    raise ZeroDivisionError("by zero")


async def crash_at_length(_: Invocation) -> Output:
    raise ValueError("x" * 100_000)


async def crash_wordless(_: Invocation) -> Output:
    raise Wordless


async def cancel_itself(_: Invocation) -> Output:
    raise asyncio.CancelledError


async def leave(_: Invocation) -> Output:
    raise SystemExit(3)


async def say_so(_: Invocation) -> Output:
    return text_output("it did not work", is_error=True)


async def give_text(_: Invocation) -> Output:
    return "text"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


async def give_list(_: Invocation) -> Output:
    return Output(content=["text"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


BROKEN: dict[str, tuple[Callable[[Invocation], Awaitable[Output]], str]] = {
    "ToolError": (refuse, "no such file"),
    "any error": (crash, "The tool 'work' failed: ZeroDivisionError: by zero"),
    "long error": (crash_at_length, "characters left out"),
    "error without words": (crash_wordless, "The tool 'work' failed: Wordless"),
    "cancels itself": (cancel_itself, "was cancelled without an output"),
    "ends the program": (leave, "exited with the code 3"),
    "says it failed": (say_so, "it did not work"),
    "wrong type": (give_text, "is broken: it returned str"),
    "wrong content": (give_list, "is broken: it returned content as list"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_tool_that_fails_or_lies_becomes_an_error_the_model_can_read(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        act, words = BROKEN[how]
        notes = Notes()
        model = Script(answer_calls(call()), answer_text())
        ended = await bounded(Engine(model, [Acting(act)], observer=notes).run(ask()))
        assert ended.reason == "answered"
        assert notes.of(CallSettled)[0].how == "failed"
        result = ended.turns[2].parts[0]
        assert isinstance(result, Result)
        assert result.is_error
        text = texts_of(ended.turns)[0][1]
        assert words in text
        assert len(text) < MAX_ERROR_CHARACTERS + 100

    with caplog.at_level(SILENT, logger="dragoman.engine"):
        asyncio.run(main())


def test_tool_whose_run_is_no_coroutine_is_contained(caplog: pytest.LogCaptureFixture) -> None:
    class Plain(Acting):
        def run(self, invocation: Invocation) -> Awaitable[Output]:
            return text_output("at once")  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    async def main() -> None:
        model = Script(answer_calls(call()), answer_text())
        ended = await bounded(Engine(model, [Plain(say_ok)]).run(ask()))
        assert "TypeError" in texts_of(ended.turns)[0][1]

    with caplog.at_level(SILENT, logger="dragoman.engine"):
        asyncio.run(main())


def test_fatal_error_ends_the_turn_and_aborts_the_others() -> None:
    async def main() -> None:
        other = Gated("other", is_parallel=True)

        async def give_up(_: Invocation) -> Output:
            await other.begun.wait()
            raise FatalToolError("the disk is gone")

        fatal = Acting(give_up, "fatal", is_parallel=True)
        model = Script(
            [
                Started(),
                *part_events(0, call("other", "a")),
                *part_events(1, call("fatal", "b")),
                asyncio.Event().wait,
            ]
        )
        ended = await bounded(Engine(model, [other, fatal]).run(ask()))
        assert ended.reason == "failed"
        assert ended.error is not None
        assert ended.error.message == "the disk is gone"
        assert other.is_cancelled
        results = dict(texts_of(ended.turns))
        assert results["b"] == "the disk is gone"
        assert results["a"].startswith("Aborted after")
        assert is_paired(ended.turns)
        assert model.closed == 1

    asyncio.run(main())


def test_tool_that_takes_too_long_is_stopped() -> None:
    async def main() -> None:
        slow = Gated("slow")
        own = Acting(slow.wait, "own", timeout=0.01)
        notes = Notes()
        settings = EngineSettings(tool_timeout=0.02)
        model = Script(answer_calls(call("slow", "a"), call("own", "b")), answer_text())
        ended = await bounded(
            Engine(model, [slow, own], settings=settings, observer=notes).run(ask())
        )
        assert ended.reason == "answered"
        assert slow.is_cancelled
        assert [event.how for event in notes.of(CallSettled)] == ["timed_out", "timed_out"]
        results = dict(texts_of(ended.turns))
        assert results["a"] == "Timed out after 0.02 s and was stopped."
        assert results["b"] == "Timed out after 0.01 s and was stopped."
        assert notes.of(CallSettled)[0].elapsed >= 0.02

    asyncio.run(main())


@pytest.mark.parametrize("end", ["interrupt", "timeout"])
def test_tool_that_will_not_stop_does_not_hang_the_run(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        let_go = asyncio.Event()
        begun = asyncio.Event()
        is_over = asyncio.Event()

        async def cling(_: Invocation) -> Output:
            begun.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            is_over.set()
            raise ValueError("nobody hears this")

        timeout = 0.01 if end == "timeout" else None
        settings = EngineSettings(stop_grace=0.02)
        model = Script(answer_calls(call()), answer_text())
        engine = Engine(model, [Acting(cling, timeout=timeout)], settings=settings)
        run = asyncio.create_task(engine.run(ask()))
        await bounded(begun.wait())
        if end == "interrupt":
            engine.interrupt()
        ended = await bounded(run)
        assert ended.reason == ("answered" if end == "timeout" else "cancelled")
        assert "may still be running" in texts_of(ended.turns)[0][1]
        assert not is_over.is_set()
        let_go.set()
        await bounded(is_over.wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with caplog.at_level(logging.WARNING, logger="dragoman.engine"):
        asyncio.run(main())
    assert "did not stop when it was cancelled" in caplog.text


def test_tool_left_behind_that_yields_to_the_second_cancellation_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def stubborn(_: Invocation) -> Output:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()
            return text_output("never")

        settings = EngineSettings(stop_grace=0.01)
        engine = Engine(Script(answer_calls(call())), [Acting(stubborn)], settings=settings)
        run = asyncio.create_task(engine.run(ask()))
        await bounded(begun.wait())
        run.cancel()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bounded(run)
        assert is_paired(engine.turns)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with caplog.at_level(SILENT, logger="dragoman.engine"):
        asyncio.run(main())


def test_tool_that_raises_while_it_is_stopped_is_aborted_all_the_same() -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def stumble(_: Invocation) -> Output:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("on the way out")

        engine = Engine(Script(answer_calls(call())), [Acting(stumble)])
        run = asyncio.create_task(engine.run(ask()))
        await bounded(begun.wait())
        engine.interrupt()
        ended = await bounded(run)
        assert texts_of(ended.turns)[0][1].startswith("Aborted after")

    asyncio.run(main())


def test_flood_of_output_goes_back_without_its_middle() -> None:
    async def main() -> None:
        async def flood(_: Invocation) -> Output:
            return text_output("begin" + "x" * 10_000_000 + "end")

        model = Script(answer_calls(call()), answer_text())
        settings = EngineSettings(max_output_characters=1000)
        ended = await bounded(Engine(model, [Acting(flood)], settings=settings).run(ask()))
        text = texts_of(ended.turns)[0][1]
        assert text.startswith("begin")
        assert text.endswith("end")
        assert "9999008 characters left out" in text
        assert len(text) < 1100

    asyncio.run(main())


SCHEMA = b'{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (call("wrok"), "Did you mean 'work'?"),
        (call(arguments='{"path": "x"'), "not valid JSON"),
        (call(arguments="[1]"), "object"),
        (call(arguments="{}"), "path"),
        (call(""), "names no tool"),
        (call("work", arguments="free text", kind="custom"), "a JSON object"),
        (call("screen", kind="computer"), "'computer' cannot be run here"),
    ],
)
def test_wrong_call_is_refused_with_words_the_model_can_act_on(made: Call, words: str) -> None:
    async def main() -> None:
        tool = Acting(say_ok, schema=SCHEMA)
        notes = Notes()
        model = Script(answer_calls(made), answer_text())
        ended = await bounded(Engine(model, [tool], observer=notes).run(ask()))
        assert ended.reason == "answered"
        assert not tool.calls
        assert not notes.of(CallStarted)
        assert notes.of(CallSettled)[0].how == "refused"
        assert words in texts_of(ended.turns)[0][1]
        assert is_paired(ended.turns)

    asyncio.run(main())


def test_turns_are_limited() -> None:
    async def main() -> None:
        calls = [answer_calls(call(arguments=f'{{"n":{number}}}')) for number in range(5)]
        settings = EngineSettings(max_turns=3)
        ended = await bounded(
            Engine(Script(*calls), [Acting(say_ok)], settings=settings).run(ask())
        )
        assert (ended.reason, ended.turn_count) == ("max_turns", 3)
        assert is_paired(ended.turns)

    asyncio.run(main())


def test_tokens_are_limited() -> None:
    async def main() -> None:
        model = Script(answer_calls(call(), usage=Usage(input=90, output=10)), repeats=True)
        settings = EngineSettings(max_tokens=200)
        ended = await bounded(Engine(model, [Acting(say_ok)], settings=settings).run(ask()))
        assert (ended.reason, ended.turn_count) == ("max_tokens", 2)

    asyncio.run(main())


def test_same_call_again_and_again_is_no_progress() -> None:
    async def main() -> None:
        model = Script(
            answer_calls(call(arguments='{"a": 1, "b": 2}')),
            answer_calls(call(arguments='{"b":2,"a":1}')),
            repeats=True,
        )
        settings = EngineSettings(max_repeats=3)
        tool = Acting(say_ok)
        ended = await bounded(Engine(model, [tool], settings=settings).run(ask()))
        assert (ended.reason, ended.turn_count) == ("no_progress", 3)
        assert [made.call_id for made in tool.calls] == ["call_1", "call_1_2", "call_1_3"]
        assert is_paired(ended.turns)
        assert isinstance(ended.turns[0].parts[0], Text)

    asyncio.run(main())


@pytest.mark.requirement("S002-28")
def test_each_call_that_runs_has_a_debug_line_without_its_input(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        model = Script(
            answer_calls(call("work", "a", '{"b":"the secret"}'), call("work", "b", "{}")),
            answer_text(),
        )
        await bounded(Engine(model, [Acting(say_ok)]).run(ask()))

    with caplog.at_level(logging.INFO, logger="dragoman.engine"):
        asyncio.run(main())
    assert caplog.messages == []
    with caplog.at_level(logging.DEBUG, logger="dragoman.engine"):
        asyncio.run(main())
    assert caplog.messages == [
        "tool call 'work', id 'a', function, 18 characters of input, turn 1",
        "tool call 'work', id 'b', function, 2 characters of input, turn 1",
    ]
