"""Upstreams that answer in another dialect than they were asked in: the answer is read by its shape, at every door."""

import asyncio
import json
import logging
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

from dragoman.agent import open_model
from dragoman.config.settings import StoreSettings, UpstreamKind
from dragoman.engine.run import Engine
from dragoman.model.parts import Text
from dragoman.model.request import Request
from dragoman.testing import ScriptedReply, ScriptedUpstream, json_reply, sse
from engine_models import ask as engine_ask
from engine_models import bounded
from gateway_harness import wait_until
from plain_http import ask, fetch, plain_body
from sdk_clients import DOORS, Offered, conversation
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Tool, body_bytes, stream

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = Offered("get_weather", SCHEMA)
ARGUMENTS = '{"city":  "Paris", "days": 1.0}'
ANSWER = Answer((Said(("Let me ", "look.")), Tool("call_1", "get_weather", ('{"city":  "Par', 'is", "days": 1.0}'))))  # fmt: skip
DONE = Answer((Said(("Sunny.",)),))

doors = pytest.mark.parametrize("door", DOORS)
asked_and_answered = pytest.mark.parametrize(("asked", "answered"), [*permutations(DOORS, 2)])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage(store=StoreSettings(policy="off")) as running:
        yield running


def reply(dialect: str, answer: Answer, *, streamed: bool, cut: Any = None) -> ScriptedReply:
    if not streamed:
        return json_reply(body_bytes(dialect, answer))
    return sse(stream(dialect, answer), cut_into=cut)


def arguments(call: Any) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


@pytest.mark.parametrize("mode", ["create", "stream"])
@asked_and_answered
@doors
def test_an_answer_in_another_dialect_reaches_every_client_and_is_reported(
    stage: Stage,
    door: str,
    asked: str,
    answered: str,
    mode: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    streamed = mode == "stream"
    replies = [reply(answered, each, streamed=streamed) for each in (ANSWER, DONE)]
    scene = stage.scene(asked, *replies)
    talk = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    talk.say("hi")
    caplog.set_level(logging.INFO)
    got = talk.ask(mode)
    assert got.text == "Let me look."
    (call,) = got.calls
    assert call.name == "get_weather"
    assert json.loads(arguments(call)) == json.loads(ARGUMENTS)
    talk.answer(call, "sunny")
    assert talk.ask(mode).text == "Sunny."
    # The line is written when the request is over, which is after its client has heard the end.
    wait_until(lambda: "other_dialect" in caplog.text)


@pytest.mark.parametrize("cut", [1, "frames"])
@asked_and_answered
def test_the_first_frame_decides_however_it_is_cut(
    stage: Stage, asked: str, answered: str, cut: Any
) -> None:
    scene = stage.scene(asked, reply(answered, ANSWER, streamed=True, cut=cut))
    talk = conversation(asked, stage.url, scene.model, tools=(WEATHER,))
    talk.say("hi")
    got = talk.ask("stream")
    assert (got.text, [call.call_id for call in got.calls]) == ("Let me look.", ["call_1"])


@asked_and_answered
def test_a_body_in_another_dialect_is_streamed_where_a_stream_was_asked_for(
    stage: Stage, asked: str, answered: str
) -> None:
    scene = stage.scene(asked, reply(answered, ANSWER, streamed=False))
    talk = conversation(asked, stage.url, scene.model, tools=(WEATHER,))
    talk.say("hi")
    got = talk.ask("stream")
    assert (got.text, [call.call_id for call in got.calls]) == ("Let me look.", ["call_1"])


@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_stored_is_what_the_client_got(streamed: bool) -> None:
    with running_stage() as kept:
        scene = kept.scene("responses", reply("chat", ANSWER, streamed=streamed))
        got = ask(kept.url, "responses", plain_body("responses", scene.model, stream=streamed))
        data = got.text.rpartition("data: ")[2] if streamed else got.text
        response = json.loads(data)
        response = response.get("response", response)
        stored = fetch("GET", f"{kept.url}/v1/responses/{response['id']}").json()
    assert stored["output"] == response["output"]
    assert [item["type"] for item in stored["output"]] == ["message", "function_call"]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("asked", "answered"), [("chat", "responses"), ("responses", "chat")])
def test_the_engine_reads_an_answer_in_another_dialect(
    asked: UpstreamKind, answered: str, streamed: bool
) -> None:
    async def main() -> None:
        async with (
            ScriptedUpstream([reply(answered, DONE, streamed=streamed)]) as upstream,
            open_model("m", kind=asked, base_url=upstream.url) as model,
        ):
            request = Request(turns=engine_ask().turns, stream=streamed)
            ended = await bounded(Engine(model, []).run(request))
            assert ended.reason == "answered", ended.error
            texts = [part.text for part in ended.turns[-1].parts if isinstance(part, Text)]
            assert texts == ["Sunny."]

    asyncio.run(main())
