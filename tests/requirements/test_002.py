"""A turn on the stream of the Responses API: calls run as soon as their items are done, and the model gets their results."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from dragoman.core.pairing import is_paired
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.translate import make_decoder
from dragoman.engine.compaction import SummaryCompaction
from dragoman.engine.events import (
    CallSettled,
    CallStarted,
    Compacted,
    EngineEvent,
    ModelSpoke,
    RunEnded,
    TurnEnded,
)
from dragoman.engine.run import Engine
from dragoman.engine.run.live_turn import MAX_WAITING_READS
from dragoman.engine.settings import EngineSettings
from dragoman.engine.tools import Declaration, Invocation, Offer, Output
from dragoman.errors import FatalToolError
from dragoman.model.events import Completed, Event, LimitsReported, Started, TextDelta
from dragoman.model.outcome import Limits, LimitWindow
from dragoman.model.parts import CallKind, Reasoning, Text
from dragoman.model.request import Request, Turn
from engine_models import Acting, Gated, Notes, Script, ask, bounded, ending, say_ok, texts_of
from seed_wires import Payload, as_sse, responses_stream

Step = Payload | bytes | Callable[[], Awaitable[object]]


class Wire:
    """A model that speaks the wire of the Responses API, frame by frame."""

    def __init__(self, *answers: Sequence[Step | str]) -> None:
        self.requests: list[Request] = []
        self._answers = answers

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncGenerator[AsyncIterator[Sequence[Event]], None]:
        self.requests.append(request)
        reads = self._tell(self._answers[len(self.requests) - 1])
        try:
            yield reads
        finally:
            await reads.aclose()

    async def _tell(self, steps: Sequence[Step | str]) -> AsyncGenerator[Sequence[Event], None]:
        decoder = make_decoder("responses", DecodeContext())
        for step in steps:
            if callable(step):
                await step()
                continue
            data = step if isinstance(step, bytes) else as_sse([step])
            yield [event for one in decoder.feed(data) for event in one.events]
        yield [event for one in decoder.close() for event in one.events]


def done(index: int, item: Payload) -> Payload:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def added(index: int, item: Payload) -> Payload:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def function(name: str, call_id: str, arguments: str = "{}") -> Payload:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def said(text: str) -> Payload:
    content: list[Payload] = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def whole(*items: Payload) -> list[Payload | str]:
    return responses_stream([done(number, item) for number, item in enumerate(items)])


ANSWER = whole(said("Done."))


def played(
    model: Wire | Script, *tools: Acting, settings: EngineSettings | None = None
) -> tuple[RunEnded, Notes]:
    async def main() -> tuple[RunEnded, Notes]:
        notes = Notes()
        engine = Engine(model, tools, settings=settings, observer=notes)
        return await bounded(engine.run(ask())), notes

    return asyncio.run(main())


def tool_of(kind: CallKind, name: str) -> Acting:
    tool = Acting(say_ok, name)
    tool.offer = Offer(declaration=Declaration(name=name, kind=kind))
    return tool


@pytest.mark.requirement("S002-01")
def test_an_answer_with_a_malformed_event_is_asked_for_again_and_the_turn_goes_on() -> None:
    head, *rest = whole(function("work", "a"))
    damaged: list[Step | str] = [head, b"data: {not json\n\n", *rest]
    tool = Acting(say_ok)
    ended, _ = played(Wire(damaged, [head, *rest], ANSWER), tool)
    assert ended.reason == "answered"
    assert texts_of(ended.turns) == [("a", "ok a")]
    assert len(tool.calls) == 1


@pytest.mark.requirement("S002-02")
def test_events_of_unknown_types_are_passed_over_and_the_turn_goes_on() -> None:
    head, *rest = whole(function("work", "a"))
    ended, _ = played(
        Wire([head, {"type": "response.novelty", "x": 1}, *rest], ANSWER), Acting(say_ok)
    )
    assert ended.reason == "answered"
    assert texts_of(ended.turns) == [("a", "ok a")]


@pytest.mark.requirement("S002-03")
def test_five_minutes_of_silence_are_the_limit() -> None:
    assert EngineSettings().idle_timeout == 300
    head, *_ = ANSWER
    settings = EngineSettings(idle_timeout=0.02, retries=0)
    ended, _ = played(Wire([head, asyncio.Event().wait]), settings=settings)
    assert ended.error is not None
    assert ended.error.kind == "timeout"


@pytest.mark.requirement("S002-04")
def test_stream_that_ends_before_its_completion_is_an_error() -> None:
    ended, _ = played(Wire(ANSWER[:-1]), settings=EngineSettings(retries=0))
    assert ended.reason == "failed"
    assert ended.error is not None
    assert ended.error.kind == "truncated"


@pytest.mark.requirement("S002-05")
def test_failed_response_is_an_error_with_its_words() -> None:
    error = {"code": "invalid_prompt", "message": "not this one"}
    failed: Payload = {
        "type": "response.failed",
        "response": {"id": "resp_1", "status": "failed", "error": error, "output": []},
    }
    ended, _ = played(Wire([ANSWER[0], failed]), settings=EngineSettings(retries=0))
    assert ended.error is not None
    assert "not this one" in ended.error.message


@pytest.mark.requirement("S002-06")
def test_usage_of_the_completion_is_reported_per_turn_and_in_total() -> None:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }
    last: Payload = {
        "type": "response.completed",
        "response": {"id": "resp_1", "status": "completed", "output": [], "usage": usage},
    }
    calls = whole(function("work", "a"))
    ended, notes = played(Wire([*calls[:-1], last], [ANSWER[0], last]), Acting(say_ok))
    first = notes.of(TurnEnded)[0].usage
    assert first is not None
    assert (first.input, first.cached, first.output, first.reasoning) == (10, 4, 5, 2)
    assert (ended.total.input, ended.total.output, ended.total.total) == (20, 10, 30)


@pytest.mark.requirement("S002-07", "S002-08", "S002-09")
def test_call_is_run_when_its_item_is_done_while_the_text_goes_on() -> None:
    async def main() -> None:
        tool = Gated()
        head, call_done, *_, end = whole(function("work", "a"))
        delta: Payload = {
            "type": "response.output_text.delta",
            "item_id": "msg_1",
            "output_index": 1,
            "content_index": 0,
            "delta": "Meanwhile",
        }
        opened = added(1, {**said(""), "status": "in_progress", "content": []})
        model = Wire(
            [head, call_done, tool.begun.wait, opened, delta, done(1, said("Meanwhile")), end],
            ANSWER,
        )
        events = asyncio.Event()
        notes = Notes()

        async def watch(event: EngineEvent) -> None:
            await notes(event)
            if isinstance(event, ModelSpoke) and isinstance(event.event, Completed):
                events.set()

        run = asyncio.create_task(Engine(model, [tool], observer=watch).run(ask()))
        await bounded(events.wait())
        texts = [
            event.event for event in notes.of(ModelSpoke) if isinstance(event.event, TextDelta)
        ]
        assert [event.text for event in texts] == ["Meanwhile"]
        assert not notes.of(TurnEnded), "the turn waits for its call"
        tool.go_on.set()
        assert (await bounded(run)).reason == "answered"

    asyncio.run(main())


@pytest.mark.requirement("S002-10")
def test_tool_gets_the_arguments_as_the_text_they_are() -> None:
    tool = Acting(say_ok)
    text = '{"a": 1.0,  "b": [1e3]}'
    played(Wire(whole(function("work", "a", text)), ANSWER), tool)
    assert (tool.calls[0].call_id, tool.calls[0].input) == ("a", text)


@pytest.mark.requirement("S002-30")
def test_call_of_unified_exec_reaches_the_tool_of_that_name_with_its_arguments() -> None:
    tool = Acting(say_ok, "unified_exec")
    text = '{"input": ["ls",  "-l"], "session_id": null, "timeout_ms": 1e3}'
    ended, _ = played(Wire(whole(function("unified_exec", "a", text)), ANSWER), tool)
    assert (tool.calls[0].name, tool.calls[0].input) == ("unified_exec", text)
    assert texts_of(ended.turns) == [("a", "ok a")]


@pytest.mark.requirement("S002-11")
@pytest.mark.parametrize("name", ["files__get", "mcp__files__get"])
def test_name_of_server_and_tool_finds_the_server_s_tool(name: str) -> None:
    tool = Acting(say_ok, "get")
    tool.offer = Offer(declaration=Declaration(name="get", namespace="files"))
    ended, _ = played(Wire(whole(function(name, "a")), ANSWER), tool, Acting(say_ok, "get"))
    assert len(tool.calls) == 1
    assert texts_of(ended.turns) == [("a", "ok a")]


@pytest.mark.requirement("S002-12")
def test_custom_call_is_run_with_its_free_text() -> None:
    patch = "*** Begin Patch\n{ not json"
    item: Payload = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "a",
        "name": "apply",
        "input": patch,
        "status": "completed",
    }
    tool = tool_of("custom", "apply")
    ended, _ = played(Wire(whole(item), ANSWER), tool)
    assert tool.calls[0].input == patch
    assert texts_of(ended.turns) == [("a", "ok a")]
    assert is_paired(ended.turns)


@pytest.mark.requirement("S002-13", "S002-14")
@pytest.mark.parametrize("call_id", ["a", None])
def test_local_shell_call_is_answered_by_its_call_id_or_its_item_s(call_id: str | None) -> None:
    action = {"type": "exec", "command": ["ls"], "working_directory": "/srv", "timeout_ms": 5}
    item: Payload = {
        "type": "local_shell_call",
        "id": "lsh_1",
        "action": action,
        "status": "completed",
    }
    if call_id is not None:
        item["call_id"] = call_id
    tool = tool_of("local_shell", "shell")
    ended, _ = played(Wire(whole(item), ANSWER), tool)
    assert '"command"' in tool.calls[0].input
    assert '"working_directory"' in tool.calls[0].input
    assert '"timeout_ms"' in tool.calls[0].input
    ((answered, _),) = texts_of(ended.turns)
    assert answered == (call_id or "lsh_1")
    assert is_paired(ended.turns)


@pytest.mark.requirement("S002-15")
def test_wrong_call_becomes_an_error_result_and_the_turn_goes_on() -> None:
    calls = whole(function("wrok", "a"), function("work", "b", "{"), function("work", "c"))
    ended, notes = played(Wire(calls, ANSWER), Acting(say_ok))
    assert ended.reason == "answered"
    results = dict(texts_of(ended.turns))
    assert "'work'" in results["a"]
    assert "JSON" in results["b"]
    assert results["c"] == "ok c"
    assert len(notes.of(CallStarted)) == 1


@pytest.mark.requirement("S002-16")
def test_messages_and_reasoning_are_no_calls() -> None:
    thought: Payload = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
    }
    ended, notes = played(Wire(whole(thought, said("Hello."))), Acting(say_ok))
    assert ended.reason == "answered"
    assert not notes.of(CallStarted)
    assert [type(part) for part in ended.turns[1].parts] == [Reasoning, Text]


@pytest.mark.requirement("S002-17", "S002-18")
def test_tools_that_allow_it_run_together_and_the_others_alone() -> None:
    async def main() -> None:
        one, two = Gated("one", is_parallel=True), Gated("two", is_parallel=True)
        alone = Gated("alone")
        calls = whole(function("one", "a"), function("two", "b"), function("alone", "c"))
        run = asyncio.create_task(Engine(Wire(calls, ANSWER), [one, two, alone]).run(ask()))
        await bounded(one.begun.wait())
        await bounded(two.begun.wait())
        one.go_on.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not alone.begun.is_set()
        two.go_on.set()
        await bounded(alone.begun.wait())
        alone.go_on.set()
        await bounded(run)

    asyncio.run(main())


@pytest.mark.requirement("S002-19")
def test_interrupted_call_is_answered_as_aborted_with_the_time_it_ran() -> None:
    async def main() -> None:
        tool = Gated()
        engine = Engine(Wire(whole(function("work", "a"))), [tool])
        run = asyncio.create_task(engine.run(ask()))
        await bounded(tool.begun.wait())
        engine.interrupt()
        ended = await bounded(run)
        assert tool.is_cancelled
        assert texts_of(ended.turns)[0][1].startswith("Aborted after 0.")

    asyncio.run(main())


@pytest.mark.requirement("S002-20")
def test_fatal_error_of_a_tool_ends_the_turn() -> None:
    async def give_up(_: Invocation) -> Output:
        raise FatalToolError("no more")

    ended, _ = played(Wire(whole(function("work", "a"))), Acting(give_up))
    assert ended.reason == "failed"
    assert ended.error is not None
    assert ended.error.message == "no more"


@pytest.mark.requirement("S002-21")
def test_results_go_back_by_call_id_in_the_order_of_the_calls() -> None:
    async def main() -> None:
        slow, quick = Gated("slow", is_parallel=True), Gated("quick", is_parallel=True)
        quick.go_on.set()
        notes = Notes()
        model = Wire(whole(function("slow", "a"), function("quick", "b")), ANSWER)
        run = asyncio.create_task(Engine(model, [slow, quick], observer=notes).run(ask()))
        await notes.wait_for(lambda event: isinstance(event, CallSettled))
        slow.go_on.set()
        await bounded(run)
        assert [event.call.name for event in notes.of(CallSettled)] == ["quick", "slow"]
        assert [call_id for call_id, _ in texts_of(model.requests[1].turns)] == ["a", "b"]

    asyncio.run(main())


@pytest.mark.requirement("S002-22")
def test_rate_limits_are_reported_with_the_turn() -> None:
    limits = Limits(windows=(LimitWindow(name="primary", used_percent=40.0),))
    _, notes = played(Script([Started(), LimitsReported(limits), *ending()]))
    assert notes.of(TurnEnded)[0].limits == limits


@pytest.mark.requirement("S002-23")
def test_reading_waits_for_whoever_watches() -> None:
    async def main() -> None:
        reads = 0
        go_on = asyncio.Event()

        async def count() -> None:
            nonlocal reads
            reads += 1

        noise: list[Step | str] = []
        for _ in range(50):
            noise += [count, {"type": "response.in_progress", "response": {"id": "resp_1"}}]

        async def pause(event: EngineEvent) -> None:
            if isinstance(event, ModelSpoke):
                await go_on.wait()

        run = asyncio.create_task(
            Engine(Wire([ANSWER[0], *noise, *ANSWER[1:]]), observer=pause).run(ask())
        )
        for _ in range(500):
            await asyncio.sleep(0)
        assert reads <= MAX_WAITING_READS + 1
        go_on.set()
        await bounded(run)
        assert reads == 50

    asyncio.run(main())


@pytest.mark.requirement("S002-24")
def test_tokens_of_an_answer_decide_when_the_conversation_is_summed_up() -> None:
    usage = {"input_tokens": 90, "output_tokens": 10, "total_tokens": 100}
    calls = whole(function("work", "a"))
    last: Payload = {
        "type": "response.completed",
        "response": {"id": "resp_1", "status": "completed", "output": [], "usage": usage},
    }

    async def main() -> None:
        notes = Notes()
        settings = EngineSettings(compaction=SummaryCompaction(threshold=100, keep=1))
        turn = Turn(role="user", parts=(Text(text="On."),))
        model = Wire([*calls[:-1], last], whole(said("In short.")), ANSWER)
        engine = Engine(model, [Acting(say_ok)], settings=settings, observer=notes)
        ended = await bounded(engine.run(ask(turns=(turn,) * 4)))
        assert ended.reason == "answered"
        assert notes.of(Compacted)[0].tokens_before == 100
        assert "In short." in str(model.requests[2].turns[0].parts)

    asyncio.run(main())
