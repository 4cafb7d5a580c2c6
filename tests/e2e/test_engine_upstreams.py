"""The engine on real upstreams, over real sockets, in every dialect: tools start before the stream's end."""

import asyncio
import json
from typing import Any

import pytest
from bench_streams import Story, dialect_stream

from dragoman.agent import open_model
from dragoman.config.settings import UpstreamKind
from dragoman.engine.events import CallSettled
from dragoman.engine.run import Engine
from dragoman.model.parts import Result
from dragoman.model.request import Request
from dragoman.testing import Chunk, ScriptedReply, ScriptedUpstream, Wait
from engine_models import Gated, Notes, ask, bounded, texts_of

KINDS: tuple[UpstreamKind, ...] = ("chat", "responses", "messages")
CALLS = Story(texts=2, calls=2, arguments=12)
WORDS = Story(texts=2, calls=0)
Json = dict[str, Any]


def sse_reply(chunks: list[Chunk]) -> ScriptedReply:
    return ScriptedReply(content_type="text/event-stream", chunks=chunks)


def held_calls(kind: str, gate: asyncio.Event) -> list[Chunk]:
    """A stream with two calls that stands still when the second has just begun, until the gate opens."""
    frames = dialect_stream(kind, CALLS)
    begins = [
        number
        for number, frame in enumerate(frames)
        if b'"name":"write"' in frame and b"item.done" not in frame
    ]
    second = begins[1] + 1
    return [*frames[:second], Wait(gate), *frames[second:]]


@pytest.mark.parametrize("kind", KINDS)
def test_tool_starts_before_the_upstream_s_stream_has_ended(kind: UpstreamKind) -> None:
    async def main() -> None:
        tool = Gated("write", is_parallel=True)
        tool.go_on.set()
        # The upstream goes on only when the tool has begun.
        script = [
            sse_reply(held_calls(kind, tool.begun)),
            sse_reply(list(dialect_stream(kind, WORDS))),
        ]
        async with (
            ScriptedUpstream(script) as upstream,
            open_model("m", kind=kind, base_url=upstream.url) as model,
        ):
            notes = Notes()
            ended = await bounded(Engine(model, [tool], observer=notes).run(ask(model="")))
            assert ended.reason == "answered", ended.error
            assert len(notes.of(CallSettled)) == 2
            assert [text for _, text in texts_of(ended.turns)] == ["write ok", "write ok"]
            second = upstream.requests[1].body
            results = [part for part in ended.turns[2].parts if isinstance(part, Result)]
            ids = [result.call_id for result in results]
            assert all(call_id.encode() in second for call_id in ids)
            # In the order of the calls, each after all calls it could answer.
            last = [second.rindex(call_id.encode()) for call_id in ids]
            assert last == sorted(last)

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_interrupt_closes_the_upstream_s_connection(kind: UpstreamKind) -> None:
    async def main() -> None:
        tool = Gated("write")
        script = [sse_reply(held_calls(kind, asyncio.Event()))]
        async with (
            ScriptedUpstream(script) as upstream,
            open_model("m", kind=kind, base_url=upstream.url) as model,
        ):
            engine = Engine(model, [tool])
            run = asyncio.create_task(engine.run(Request(turns=ask().turns)))
            await bounded(tool.begun.wait())
            engine.interrupt()
            ended = await bounded(run)
            assert ended.reason == "cancelled"
            assert tool.is_cancelled
            await upstream.until(lambda: upstream.requests[0].was_abandoned)
            assert len(texts_of(ended.turns)) == 1

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_stream_cut_after_a_call_keeps_the_call_and_its_result(kind: UpstreamKind) -> None:
    async def main() -> None:
        tool = Gated("write")
        gate = asyncio.Event()
        chunks = held_calls(kind, gate)
        cut = chunks[: next(n for n, chunk in enumerate(chunks) if isinstance(chunk, Wait)) + 1]
        reply = ScriptedReply(content_type="text/event-stream", chunks=cut, cut=True)
        async with (
            ScriptedUpstream([reply]) as upstream,
            open_model("m", kind=kind, base_url=upstream.url) as model,
        ):
            run = asyncio.create_task(Engine(model, [tool]).run(Request(turns=ask().turns)))
            await bounded(tool.begun.wait())
            gate.set()
            await upstream.until(lambda: upstream.requests[0].closed_at)
            tool.go_on.set()
            ended = await bounded(run)
            assert ended.reason == "failed"
            assert ended.error is not None
            assert [text for _, text in texts_of(ended.turns)] == ["write ok"]
            assert len(upstream.requests) == 1, "it must not be asked again"

    asyncio.run(main())


SEARCH: Json = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {
        "type": "search",
        "query": "weather in Paris",
        "queries": ["weather in Paris", "météo Paris"],
        "sources": [{"type": "url", "url": "https://example.org/w?q=1&lang=fr"}],
    },
}
OPENED: Json = {
    "id": "ws_2",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "open_page", "url": "https://example.org/w"},
}
SNAPSHOT: Json = {
    "type": "ghost_snapshot",
    "ghost_commit": {"id": "4f1c", "parent": None, "preexisting_untracked_files": ["a b"]},
}
CALL: Json = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "write",
    "arguments": '{"path": 1}',
}
MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
}
ITEMS: list[Json] = [SEARCH, MESSAGE, SNAPSHOT, OPENED, CALL]


def items_reply(items: list[Json]) -> ScriptedReply:
    """The stream of a Responses backend that only announces and ends its items, as Codex' backend may."""
    response: Json = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    events: list[Json] = [{"type": "response.created", "response": response}]
    for index, item in enumerate(items):
        begun = {**item, "status": "in_progress"} if "status" in item else item
        events += [
            {"type": "response.output_item.added", "output_index": index, "item": begun},
            {"type": "response.output_item.done", "output_index": index, "item": item},
        ]
    done = {**response, "status": "completed", "output": items}
    events.append({"type": "response.completed", "response": done})
    lines = [
        f"event: {event['type']}\ndata: {json.dumps({'sequence_number': number, **event})}\n\n"
        for number, event in enumerate(events)
    ]
    return sse_reply(["".join(lines).encode()])


@pytest.mark.requirement("S002-26", "S002-27")
def test_searches_and_snapshots_of_the_provider_go_back_in_order_and_unchanged() -> None:
    async def main() -> None:
        tool = Gated("write")
        tool.go_on.set()
        script = [
            items_reply(ITEMS),
            items_reply([SEARCH | {"id": "ws_3"}, CALL | {"call_id": "call_2"}]),
            sse_reply(list(dialect_stream("responses", WORDS))),
        ]
        async with (
            ScriptedUpstream(script) as upstream,
            open_model("m", kind="responses", base_url=upstream.url) as model,
        ):
            ended = await bounded(Engine(model, [tool]).run(ask(model="")))
            assert ended.reason == "answered", ended.error
            # Nothing was run for them.
            assert [text for _, text in texts_of(ended.turns)] == ["write ok", "write ok"]
            second, third = [json.loads(request.body)["input"] for request in upstream.requests[1:]]
            assert [item["type"] for item in second[1:]] == [
                *(item["type"] for item in ITEMS),
                "function_call_output",
            ]
            assert [second[1], *second[3:5]] == [SEARCH, SNAPSHOT, OPENED]
            assert third[: len(second)] == second
            assert third[len(second)] == SEARCH | {"id": "ws_3"}

    asyncio.run(main())
