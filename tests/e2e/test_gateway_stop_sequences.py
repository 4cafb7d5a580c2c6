"""Stop sequences in front of upstreams that have none: the gateway cuts the answer and closes the upstream's."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codex_app_server import app_server, call, heard, text
from dragoman.agent import open_model
from dragoman.config.settings import Route, ServerSettings, Settings, StoreSettings
from dragoman.engine.run import Engine
from dragoman.model.parts import Text
from dragoman.model.request import Request
from dragoman.obsidian.settings import ChatSettings
from dragoman.testing import Chunk, ScriptedReply, ScriptedUpstream, Wait
from engine_models import ask as engine_ask
from engine_models import bounded
from gateway_harness import running_gateway, wait_until
from obsidian_cases import DECLARED, read_stream
from plain_http import ask, plain_body
from stage import Scene, Stage, running_stage
from vendor_wire import Answer, Said, Thought, Tool, stream

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
ANSWER = Answer(
    (
        Thought("END of thought", "c2VhbA=="),
        Said(("One", " two E", "ND", " three.")),
        Tool("call_1", "get_weather", ('{"city":"Paris"}',)),
    )
)
CALLED = Answer(
    (
        Tool("call_1", "get_weather", ('{"city":', '"the END"}')),
        Said(("One END", " two.")),
        Tool("call_2", "get_weather", ("{}",)),
    )
)
FIELDS = {"chat": "stop", "messages": "stop_sequences"}
USAGES = {"chat": "prompt_tokens", "messages": "input_tokens"}

doors = pytest.mark.parametrize("door", FIELDS)
streams = pytest.mark.parametrize("streamed", [False, True], ids=["body", "stream"])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    upstreams = {"always": {"kind": "responses", "always_stream": True}}
    with running_stage(upstreams=upstreams, store=StoreSettings(policy="off")) as running:
        yield running


class Got:
    """A whole answer of one door, streamed or not."""

    def __init__(self, door: str, data: str, *, streamed: bool) -> None:
        lines = [line[6:] for line in data.splitlines() if line.startswith("data: {")]
        events: list[Any] = [json.loads(line) for line in lines] if streamed else [json.loads(data)]
        self.text: str = ""
        self.calls: int = 0
        self.finish: str = ""
        self.stop: str | None = None
        self.usage: Any = None
        for event in events:
            assert "error" not in event, event
            read = self._chat if door == "chat" else self._messages
            read(event)

    def _chat(self, event: Any) -> None:
        self.usage = event.get("usage") or self.usage
        for choice in event["choices"]:
            message = choice.get("message") or choice["delta"]
            self.text += message.get("content") or ""
            calls: list[Any] = message.get("tool_calls") or []
            self.calls += len([each for each in calls if each.get("id")])
            self.finish = choice["finish_reason"] or self.finish
            self.stop = choice.get("stop_reason")

    def _messages(self, event: Any) -> None:
        delta = event.get("delta") or event
        self.usage = event.get("usage") or self.usage
        self.finish = delta.get("stop_reason") or self.finish
        self.stop = delta.get("stop_sequence") or self.stop
        self.text += delta.get("text", "")
        blocks: list[Any] = [*event.get("content", ()), event.get("content_block", {})]
        for block in blocks:
            self.text += block.get("text", "")
            self.calls += int(block.get("type") == "tool_use")


def got(
    stage: Stage, door: str, scene: Scene, *, streamed: bool, stops: Any = ("END",), **more: Any
) -> Got:
    if door == "chat" and streamed:
        more["stream_options"] = {"include_usage": True}
    fields = {FIELDS[door]: stops, "stream": streamed, **more}
    response = ask(stage.url, door, plain_body(door, scene.model, **fields))
    assert response.status_code == 200, response.text
    assert "stop_sequences" not in response.headers.get("x-dragoman-loss", "")
    return Got(door, response.text, streamed=streamed)


@doors
@streams
@pytest.mark.parametrize("delivery", ["whole", "frames", "bytes"])
def test_the_text_is_cut_before_the_sequence(
    stage: Stage, door: str, streamed: bool, delivery: Any
) -> None:
    scene = stage.scene("responses", ANSWER, delivery=delivery)
    answer = got(stage, door, scene, streamed=streamed)
    assert not {"stop", "stop_sequences"} & set(scene.heard)
    assert (answer.text, answer.calls, answer.stop) == ("One two ", 0, "END")
    assert answer.finish == ("stop" if door == "chat" else "stop_sequence")
    if streamed:  # the upstream was closed before it reported its usage
        usage: dict[str, Any] = answer.usage or {}
        counted = {name: count for name, count in usage.items() if count is not None}
        assert counted == ({} if door == "chat" else {"output_tokens": 0})
    else:
        assert answer.usage[USAGES[door]] == (11 if door == "chat" else 8)


@doors
@streams
def test_without_the_sequence_the_answer_is_whole(stage: Stage, door: str, streamed: bool) -> None:
    scene = stage.scene("responses", ANSWER)
    answer = got(stage, door, scene, streamed=streamed, stops=["STOP", "three!"])
    assert (answer.text, answer.calls, answer.stop) == ("One two END three.", 1, None)
    assert answer.finish == ("tool_calls" if door == "chat" else "tool_use")
    assert answer.usage is not None
    assert answer.usage[USAGES[door]]


@doors
@streams
def test_a_call_before_the_cut_is_run_and_its_arguments_are_not_searched(
    stage: Stage, door: str, streamed: bool
) -> None:
    scene = stage.scene("responses", CALLED)
    answer = got(stage, door, scene, streamed=streamed)
    assert (answer.text, answer.calls) == ("One ", 1)
    assert answer.finish == ("tool_calls" if door == "chat" else "tool_use")


@doors
@streams
def test_the_upstream_is_closed_at_the_cut(stage: Stage, door: str, streamed: bool) -> None:
    frames = [frame + b"\n\n" for frame in stream("responses", ANSWER).split(b"\n\n") if frame]
    end = next(number for number, frame in enumerate(frames) if b'"delta": "ND"' in frame)
    chunks: list[Chunk] = [*frames[: end + 1], Wait(threading.Event())]
    reply = ScriptedReply(content_type="text/event-stream", chunks=chunks)
    scene = stage.scene("responses", reply, route="always")
    answer = got(stage, door, scene, streamed=streamed)
    assert (answer.text, answer.stop) == ("One two ", "END")
    wait_until(lambda: scene.requests[0].was_abandoned)


@doors
@streams
def test_a_call_written_as_text_comes_out_and_the_text_after_it_is_cut(
    stage: Stage, door: str, streamed: bool
) -> None:
    # Calls are found first, so a sequence inside the markup of a call does not cut the call.
    written = '<tool_call>{"name": "get_weather", "arguments": {"city": "END"}}</tool_call>'
    function = {"name": "get_weather", "description": "d"}
    tools = {
        "chat": [{"type": "function", "function": {**function, "parameters": SCHEMA}}],
        "messages": [{**function, "input_schema": SCHEMA}],
    }
    for stops in (["END"], ["</tool_call>"], ["Obs"]):
        scene = stage.scene("responses", Answer((Said(("I look. ", written, "\nObs", "erve")),)))
        answer = got(stage, door, scene, streamed=streamed, stops=stops, tools=tools[door])
        assert (answer.text.strip(), answer.calls) == ("I look.", 1)
        assert answer.finish == ("tool_calls" if door == "chat" else "tool_use")
    scene = stage.scene("responses", Answer((Said(("I END look. ", written)),)))
    answer = got(stage, door, scene, streamed=streamed, tools=tools[door])
    assert (answer.text, answer.calls, answer.stop) == ("I ", 0, "END")


@doors
@streams
@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_an_upstream_with_stop_sequences_gets_them(
    stage: Stage, door: str, dialect: str, streamed: bool
) -> None:
    scene = stage.scene(dialect, ANSWER)
    answer = got(stage, door, scene, streamed=streamed, stops=["END", "x"])
    assert scene.heard[FIELDS[dialect]] == ["END", "x"]
    assert answer.text == "One two END three."


# --- limits -------------------------------------------------------------------------------------------------------------

FIVE = ["a1", "b2", "c3", "d4", "END"]


def test_a_chat_request_has_at_most_four_sequences(stage: Stage) -> None:
    scene = stage.scene("responses", ANSWER)
    response = ask(stage.url, "chat", plain_body("chat", scene.model, stop=FIVE))
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", "stop")
    assert error["message"] == "expected at most 4 stop sequences, got 5"
    assert not scene.requests


@streams
def test_a_messages_request_may_have_more(stage: Stage, streamed: bool) -> None:
    scene = stage.scene("responses", ANSWER)
    answer = got(stage, "messages", scene, streamed=streamed, stops=FIVE)
    assert (answer.text, answer.stop) == ("One two ", "END")


def test_a_chat_upstream_has_its_own_limit(stage: Stage) -> None:
    scene = stage.scene("chat", ANSWER)
    got(stage, "chat", scene, streamed=True, stops=FIVE)
    assert scene.heard["stop"] == FIVE


# --- what is stored -----------------------------------------------------------------------------------------------------


@streams
def test_a_thread_keeps_the_cut_text(streamed: bool) -> None:
    beta = {"anthropic-beta": "message-threads-2026-08-12"}
    with running_stage() as kept:
        scene = kept.scene("responses", ANSWER, ANSWER)
        hello = [{"role": "user", "content": "hi"}]
        body = {"model": scene.model, "max_tokens": 99, "messages": hello, "stream": streamed}
        first = ask(
            kept.url,
            "messages",
            body | {"thread": {"type": "create"}, "stop_sequences": ["END"]},
            beta,
        )
        data = first.text.partition("data: ")[2].partition("\n")[0] if streamed else first.text
        message = json.loads(data)
        follow = {"type": "continue", "previous_message_id": (message.get("message") or message)["id"]}  # fmt: skip
        assert ask(kept.url, "messages", body | {"thread": follow}, beta).status_code == 200
        said = [item for item in scene.heard["input"] if item.get("role") == "assistant"]
    assert [item["content"] for item in said] == ["One two "]
    assert not [item for item in scene.heard["input"] if item.get("type") == "function_call"]


# --- Codex --------------------------------------------------------------------------------------------------------------

ITEMS = [text("One two END three."), call("call_1", "search", '{"query":"x"}')]


@streams
@pytest.mark.parametrize("mode", ["openai-json", "obsidian-xml"])
@pytest.mark.parametrize("door", FIELDS)
def test_an_answer_of_codex_is_cut_and_its_turn_interrupted(
    tmp_path: Path, door: str, mode: str, streamed: bool
) -> None:
    settings = Settings(
        server=ServerSettings(shutdown_grace=0.3),
        chat=ChatSettings(),
        upstreams={"codex": app_server(tmp_path, [ITEMS], {"slow": 0.2})},
        routes=(Route(model="*", upstream="codex"),),
    )
    more: dict[str, Any] = {"tools": DECLARED} if door == "chat" else {}
    fields = {FIELDS[door]: ["END"], "stream": streamed, **more}
    with running_gateway(settings) as gateway:
        headers = {"x-proxy-output-mode": mode}
        response = ask(gateway.url, door, plain_body(door, "m", **fields), headers)
        wait_until(lambda: bool(heard(tmp_path, "turn/interrupt")))
    answer = Got(door, response.text, streamed=streamed)
    assert (answer.text, answer.calls) == ("One two ", 0)
    assert answer.finish == ("stop" if door == "chat" else "stop_sequence")
    if door == "chat" and streamed:
        assert read_stream(response.text).finishes == ["stop"]


# --- the engine ---------------------------------------------------------------------------------------------------------


def test_the_engine_gets_the_cut_text_and_closes_the_upstream() -> None:
    frames = [frame + b"\n\n" for frame in stream("responses", ANSWER).split(b"\n\n") if frame]
    end = next(number for number, frame in enumerate(frames) if b'"delta": "ND"' in frame)
    chunks: list[Chunk] = [*frames[: end + 1], Wait(asyncio.Event())]

    async def main() -> None:
        reply = ScriptedReply(content_type="text/event-stream", chunks=chunks)
        async with (
            ScriptedUpstream([reply]) as upstream,
            open_model("m", kind="responses", base_url=upstream.url) as model,
        ):
            request = Request(turns=engine_ask().turns, stop=("END",))
            ended = await bounded(Engine(model, []).run(request))
            assert ended.reason == "answered", ended.error
            texts = [part.text for part in ended.turns[-1].parts if isinstance(part, Text)]
            assert texts == ["One two "]
            await upstream.until(lambda: upstream.requests[0].was_abandoned)

    asyncio.run(main())
