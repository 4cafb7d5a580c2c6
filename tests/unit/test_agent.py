"""The facade for builders of agents: a model from anywhere, tools, a conversation that goes on."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.agent import (
    Agent,
    EngineEvent,
    EngineSettings,
    RunEnded,
    RunFailed,
    Settings,
    UpstreamSettings,
    default_model,
    open_model,
    tool,
)
from dragoman.engine.events import TurnEnded
from dragoman.errors import ConfigError
from dragoman.model.parts import Text
from dragoman.model.request import Turn
from dragoman.testing import Pause, ReceivedRequest, ScriptedReply, ScriptedUpstream, sse
from vendor_wire import Answer, Said, Tool, stream

REHEARSAL = Settings(upstreams={"rehearsal": UpstreamSettings(kind="rehearsal")})


@tool
async def weather(city: str) -> str:
    """The weather in a city."""
    return f"21 degrees in {city}"


def said(text: str) -> ScriptedReply:
    return sse(stream("chat", Answer((Said((text,)),))))


def called(name: str, **arguments: object) -> ScriptedReply:
    return sse(stream("chat", Answer((Tool("call_1", name, (json.dumps(arguments),)),))))


def messages(request: ReceivedRequest) -> list[tuple[str, object]]:
    asked = cast("dict[str, Any]", request.json())
    return [(each["role"], each["content"]) for each in asked["messages"]]


def test_two_lines_give_a_running_agent_without_a_key() -> None:
    async def ask() -> None:
        async with open_model(settings=REHEARSAL) as model:
            reply = await Agent(model, [weather]).ask("What is the weather in Oslo?")
        assert reply.text == "weather returned: 21 degrees in Oslo"

    asyncio.run(ask())


def test_nothing_configured_is_the_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DRAGOMAN_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    async def ask() -> str:
        async with open_model() as model:
            return (await Agent(model).ask("Say marker-1.")).text

    assert "marker-1" in asyncio.run(ask())


def test_configuration_file_says_which_upstream_and_model(tmp_path: Path) -> None:
    async def ask() -> None:
        async with ScriptedUpstream([said("Fine.")]) as upstream:
            file = tmp_path / "some.toml"
            file.write_text(
                f'[upstreams.local]\nkind = "chat"\nbase_url = "{upstream.url}/v1"\n'
                '[[routes]]\nmodel = "house"\nupstream = "local"\nupstream_model = "real"\n',
                encoding="utf-8",
            )
            async with open_model(settings=file) as model:
                reply = await Agent(model).ask("How are you?")
            assert reply.text == "Fine."
            assert upstream.requests[0].at("model") == "real"

    asyncio.run(ask())


def test_conversation_goes_on_with_instructions_first_and_what_was_said() -> None:
    async def ask() -> None:
        script = [called("weather", city="Oslo"), said("First."), said("Second.")]
        async with (
            ScriptedUpstream(script) as upstream,
            open_model("m", base_url=f"{upstream.url}/v1") as model,
        ):
            agent = Agent(model, [weather], instructions="Be brief.")
            await agent.ask("one")
            reply = await agent.ask("two")
        assert reply.text == "Second."
        assert messages(upstream.requests[2]) == [
            ("system", "Be brief."),
            ("user", "one"),
            ("assistant", None),
            ("tool", "21 degrees in Oslo"),
            ("assistant", "First."),
            ("user", "two"),
        ]
        assert [turn.role for turn in agent.turns].count("system") == 0

    asyncio.run(ask())


def test_turns_of_one_agent_are_the_beginning_of_another() -> None:
    async def ask() -> None:
        async with (
            ScriptedUpstream([said("First."), said("Second.")]) as upstream,
            open_model("m", base_url=f"{upstream.url}/v1") as model,
        ):
            first = Agent(model)
            await first.ask("one")
            asked = Turn(role="user", parts=(Text(text="two"),))
            await Agent(model, turns=first.turns).ask(asked)
        assert [text for _, text in messages(upstream.requests[1])] == ["one", "First.", "two"]

    asyncio.run(ask())


def test_key_is_read_from_the_variable_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret-1")

    async def ask() -> None:
        async with (
            ScriptedUpstream([said("Fine.")]) as upstream,
            open_model("m", base_url=f"{upstream.url}/v1", api_key_env="MY_KEY") as model,
        ):
            await Agent(model).ask("Hello")
        assert upstream.requests[0].headers["authorization"] == "Bearer secret-1"

    asyncio.run(ask())


def test_interruption_ends_the_answer_and_leaves_a_conversation_to_go_on_with() -> None:
    async def ask() -> None:
        begun = asyncio.Event()
        ended: list[str] = []

        @tool
        async def wait() -> str:
            """Wait."""
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("stopped")
            return "waited"

        async with (
            ScriptedUpstream([called("wait"), said("Going on.")]) as upstream,
            open_model("m", base_url=f"{upstream.url}/v1") as model,
        ):
            agent = Agent(model, [wait])
            agent.interrupt()  # nothing goes on: nothing happens
            asking = asyncio.create_task(agent.ask("one"))
            await asyncio.wait_for(begun.wait(), 60)
            with pytest.raises(RuntimeError, match="one question at a time"):
                await agent.ask("two")
            agent.interrupt()
            with pytest.raises(RunFailed, match="interrupted") as failed:
                await asyncio.wait_for(asking, 60)
            assert (failed.value.reason, ended) == ("cancelled", ["stopped"])
            assert (await agent.ask("two")).text == "Going on."
        roles = [role for role, _ in messages(upstream.requests[1])]
        assert roles == ["user", "assistant", "tool", "user"]

    asyncio.run(ask())


def test_cancelled_question_is_kept() -> None:
    async def ask() -> None:
        silence = ScriptedReply(chunks=[Pause(60)], content_type="text/event-stream")
        async with (
            ScriptedUpstream([silence, said("Fine.")]) as upstream,
            open_model("m", base_url=f"{upstream.url}/v1") as model,
        ):
            agent = Agent(model)
            asking = asyncio.create_task(agent.ask("one"))
            await upstream.until(lambda: upstream.requests)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await agent.ask("two")
        asked = [text for role, text in messages(upstream.requests[1]) if role == "user"]
        assert asked == ["one", "two"]

    asyncio.run(ask())


def test_observer_hears_of_everything_and_settings_bound_it() -> None:
    heard: list[EngineEvent] = []

    async def hear(event: EngineEvent) -> None:
        heard.append(event)

    async def ask() -> None:
        async with open_model(settings=REHEARSAL) as model:
            settings = EngineSettings(max_turns=1)
            agent = Agent(model, [weather], settings=settings, observer=hear)
            with pytest.raises(RunFailed, match="limit of turns") as failed:
                await agent.ask("What is the weather in Oslo?")
        assert failed.value.reason == "max_turns"
        assert failed.value.reply.ended.turns == agent.turns

    asyncio.run(ask())
    names = {type(event).__name__ for event in heard}
    assert {"TurnStarted", "CallStarted", "CallSettled", "TurnEnded", "RunEnded"} <= names


def test_upstream_without_a_known_model_must_be_given_one() -> None:
    async def enter() -> None:
        async with open_model(base_url="http://127.0.0.1:1/v1"):
            pass

    with pytest.raises(ConfigError, match="name of a model"):
        asyncio.run(enter())
    assert default_model(REHEARSAL) == "rehearsal"


def test_settings_that_cannot_work_are_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        open_model(base_url="nowhere")


def test_limits_that_come_as_headers_are_reported() -> None:
    heard: list[TurnEnded] = []

    async def hear(event: EngineEvent) -> None:
        if isinstance(event, TurnEnded):
            heard.append(event)

    async def ask() -> None:
        headers = {"x-ratelimit-limit-requests": "100", "x-ratelimit-remaining-requests": "42"}
        reply = sse(stream("chat", Answer((Said(("Fine.",)),))), headers=headers)
        async with (
            ScriptedUpstream([reply, said("Fine.")]) as upstream,
            open_model("m", base_url=f"{upstream.url}/v1") as model,
        ):
            agent = Agent(model, observer=hear)
            await agent.ask("one")
            await agent.ask("two")

    asyncio.run(ask())
    first, second = heard
    assert first.limits is not None
    assert [(each.name, each.remaining, each.limit) for each in first.limits.windows] == [
        ("requests", 42, 100)
    ]
    assert second.limits is None


def test_failure_of_the_upstream_raises_with_its_reason_and_the_conversation_goes_on() -> None:
    async def ask() -> None:
        refused = ScriptedReply(status=401, chunks=[b'{"error": {"message": "bad key"}}'])
        async with (
            ScriptedUpstream([refused, said("Fine.")]) as upstream,
            open_model("m", base_url=f"{upstream.url}/v1") as model,
        ):
            agent = Agent(model)
            with pytest.raises(RunFailed, match="bad key") as failed:
                await agent.ask("one")
            assert (failed.value.reason, failed.value.kind) == ("failed", "authentication")
            assert [turn.role for turn in agent.turns] == ["user"]
            assert (await agent.ask("two")).text == "Fine."

    asyncio.run(ask())


def test_stream_yields_the_events_and_the_conversation_goes_on() -> None:
    async def ask() -> None:
        async with open_model(settings=REHEARSAL) as model:
            agent = Agent(model, [weather])
            events = [event async for event in agent.stream("What is the weather in Oslo?")]
            assert isinstance(events[-1], RunEnded)
            assert events[-1].reason == "answered"
            names = [type(event).__name__ for event in events]
            assert {"TurnStarted", "CallStarted", "CallSettled"} <= set(names)
            assert agent.turns == events[-1].turns
            assert (await agent.ask("Say marker-2.")).text

    asyncio.run(ask())


def test_stream_that_is_left_ends_the_run() -> None:
    async def ask() -> None:
        async with open_model(settings=REHEARSAL) as model:
            agent = Agent(model, [weather])
            async with aclosing(agent.stream("What is the weather in Oslo?")) as events:
                async for _ in events:
                    break
            assert agent.turns[0].role == "user"
            assert (await agent.ask("Say marker-2.")).text

    asyncio.run(ask())


def test_stream_raises_what_its_observer_raised() -> None:
    async def fail(event: EngineEvent) -> None:
        raise ValueError(type(event).__name__)

    async def ask() -> None:
        async with open_model(settings=REHEARSAL) as model:
            async for _ in Agent(model, observer=fail).stream("Hello"):
                pass

    with pytest.raises(ValueError, match="TurnStarted"):
        asyncio.run(ask())
