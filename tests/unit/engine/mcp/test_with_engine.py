"""MCP tools run by the engine: found by their names, side by side where they only read, stopped when the run is."""

import asyncio
from pathlib import Path

from dragoman.engine.events import CallReported, CallSettled, EngineEvent
from dragoman.engine.mcp.servers import McpServers
from dragoman.engine.run import Engine
from dragoman.model.parts import Call
from engine_models import Script, answer_calls, answer_text, ask, texts_of
from mcp_help import PATIENCE, played, recorded, rough, until, workshop


def call(name: str, call_id: str, arguments: str = "{}") -> Call:
    return Call(call_id=call_id, name=name, namespace="workshop", input=arguments)


def test_results_progress_and_errors_reach_the_model_and_the_observer(tmp_path: Path) -> None:
    events: list[EngineEvent] = []

    async def observe(event: EngineEvent) -> None:
        events.append(event)

    async def main() -> None:
        model = Script(
            answer_calls(
                call("add", "call_1", '{"a": 1, "b": 2}'),
                call("steps", "call_2", '{"count": 1}'),
                call("fail", "call_3"),
                Call(call_id="call_4", name="mcp__workshop__echo", input='{"text": "flat"}'),
                call("add", "call_5", '{"a": 1}'),
            ),
            answer_text("done"),
        )
        async with McpServers([workshop(tmp_path)]) as servers, asyncio.timeout(PATIENCE):
            end = await Engine(model, [servers], observer=observe).run(ask())
        assert end.reason == "answered"
        results = dict(texts_of(end.turns))
        assert results["call_1"] == "3"
        assert results["call_2"] == "done"
        assert "Error executing tool fail" in results["call_3"]
        assert results["call_4"] == "flat"
        assert "'b'" in results["call_5"]
        declared = model.requests[0].tools
        assert {tool.namespace for tool in declared} == {"workshop"}

    played(main())
    assert [each.text for each in events if isinstance(each, CallReported)] == ["step 1 (1/1)"]
    settled = {each.call.call_id: each.how for each in events if isinstance(each, CallSettled)}
    assert settled == {
        "call_1": "done",
        "call_2": "done",
        "call_3": "failed",
        "call_4": "done",
        "call_5": "refused",
    }


def test_interrupted_run_cancels_the_call_on_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        model = Script(
            answer_calls(Call(call_id="call_1", name="work", namespace="rough", input="{}"))
        )
        async with McpServers([rough("hangs", tmp_path)]) as servers, asyncio.timeout(PATIENCE):
            engine = Engine(model, [servers])
            run = asyncio.create_task(engine.run(ask()))
            await until(lambda: recorded(tmp_path, "called") is not None)
            engine.interrupt()
            assert (await run).reason == "cancelled"
            await until(lambda: recorded(tmp_path, "cancelled") is not None)

    played(main())
