"""Reasoning crosses doors with its seal, and comes back to the upstream that sealed it, unchanged, on the next turn."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.config.settings import Route, StoreSettings
from dragoman.testing import ReceivedRequest, ScriptedReply
from heard import HeardCall, HeardResult, Spoken, Thinking, hear
from sdk_clients import DOORS, Offered, conversation, openai_client
from stage import Stage, deliver, running_stage
from vendor_wire import Answer, Said, Thought, Tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Offered("get_weather", SCHEMA, "the weather in a city")
SEAL = "EqQBCkYIBRgCKkAzE+/w=="
SECOND_SEAL = "gAAAAABo/_-=="
MODES = ("create", "stream", "helper")
ASKS: dict[str, Any] = {
    "chat": {"reasoning_effort": "low"},
    "responses": {
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "store": False,
    },
    "messages": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
}
DONE = Answer((Said(("Done.",)),))

doors = pytest.mark.parametrize("door", DOORS)
dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")
modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


def thinking_answer() -> Answer:
    call = Tool("call_1", "get_weather", ('{"city":', '"Paris"}'))
    return Answer((Thought("Paris it is.", SEAL), call))


@modes
@dialects
@doors
def test_a_seal_comes_back_to_the_upstream_that_made_it(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    scene = stage.scene(dialect, thinking_answer(), DONE)
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,), more=ASKS[door])
    asking.say("How is the weather?")
    got = asking.ask(mode)
    assert got.thought == "Paris it is."
    if dialect == door != "chat":
        assert got.seal == SEAL
    asking.answer(got.calls[0], "sunny")
    asking.ask(mode)
    heard = hear(dialect, scene.requests[1].body)
    if dialect == "chat":  # which has no seals; its reasoning goes back as the text it is
        assert heard.thoughts == [Thinking("Paris it is.")]
    else:  # from Chat too, which has no field for seals: the gateway keeps them
        assert heard.thoughts == [Thinking("Paris it is.", SEAL)]
        order = [type(turn) for turn in heard.turns]
        assert order == [Spoken, Thinking, HeardCall, HeardResult]
    if dialect == "messages":
        # The vendor wants the signed block before the last calls, or no thinking at all.
        assert scene.heard["thinking"]["type"] == "enabled"


@modes
@pytest.mark.parametrize("door", ["chat", "messages"])
def test_a_model_that_reasons_unasked_gets_its_reasoning_back(door: str, mode: str) -> None:
    """Nothing in the request asks for reasoning, and the upstream is to store nothing."""
    call = Tool("call_1", "get_weather", ('{"city":"Paris"}',))

    def think(request: ReceivedRequest) -> ScriptedReply:
        asked = json.loads(request.body)
        assert asked["store"] is False
        is_sealed = asked.get("include") == ["reasoning.encrypted_content"]
        parts = (Thought("Paris it is.", SEAL), call) if is_sealed else (call,)
        return deliver("responses", Answer(parts), is_stream=asked.get("stream") is True)

    route = Route(model="reasons/*", upstream="responses", upstream_model="gpt-5.5")
    with running_stage(routes=(route,)) as stage:
        scene = stage.scene(
            "responses", think, DONE, route="reasons", upstream_model=route.upstream_model
        )
        asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
        asking.say("How is the weather?")
        asking.answer(asking.ask(mode).calls[0], "sunny")
        asking.ask(mode)
    heard = hear("responses", scene.requests[1].body)
    assert heard.thoughts == [Thinking("Paris it is.", SEAL)]
    assert scene.heard["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize("dialect", ["responses", "messages"])
def test_without_a_store_what_chat_cannot_carry_is_not_sent(dialect: str) -> None:
    with running_stage(store=StoreSettings(policy="off")) as stage:
        scene = stage.scene(dialect, thinking_answer(), DONE)
        asking = conversation("chat", stage.url, scene.model, tools=(WEATHER,), more=ASKS["chat"])
        asking.say("How is the weather?")
        asking.answer(asking.ask("create").calls[0], "sunny")
        asking.ask("create")
        assert hear(dialect, scene.requests[1].body).thoughts == []
        if dialect == "messages":
            assert scene.heard["thinking"]["type"] == "disabled"


def test_seals_are_kept_for_the_call_they_stood_before(stage: Stage) -> None:
    """There are servers that count their calls from one in every answer."""
    sealed = stage.scene("messages", thinking_answer())
    asking = conversation("chat", stage.url, sealed.model, tools=(WEATHER,), more=ASKS["chat"])
    asking.say("hi")
    asking.ask("create")
    other = Tool("call_1", "get_weather", ('{"city":"Rome"}',))
    plain = stage.scene("messages", Answer((other,)), DONE)
    asking = conversation("chat", stage.url, plain.model, tools=(WEATHER,), more=ASKS["chat"])
    asking.say("hi")
    asking.answer(asking.ask("create").calls[0], "sunny")
    asking.ask("create")
    assert hear("messages", plain.requests[1].body).thoughts == []


def test_seals_kept_for_one_key_are_not_put_back_for_another(stage: Stage) -> None:
    call = Tool("call_7", "get_weather", ('{"city":"Oslo"}',))
    scene = stage.scene("messages", Answer((Thought("Hm.", SEAL), call)))
    asking = conversation("chat", stage.url, scene.model, tools=(WEATHER,), more=ASKS["chat"])
    asking.say("hi")
    asking.answer(asking.ask("create").calls[0], "sunny")
    other = stage.scene("messages", DONE)
    openai_client(stage.url, "another-key").chat.completions.create(
        model=other.model, messages=asking.history
    )
    assert SEAL.encode() not in other.requests[0].body


@dialects
@doors
def test_how_much_to_reason_reaches_the_upstream(stage: Stage, door: str, dialect: str) -> None:
    scene = stage.scene(dialect, DONE)
    asking = conversation(door, stage.url, scene.model, more=ASKS[door])
    asking.say("hi")
    asking.ask("create")
    heard = scene.heard
    match dialect:
        case "chat":
            assert heard["reasoning_effort"] == "low"
        case "responses":
            assert heard["reasoning"]["effort"] == "low"
            assert heard["include"] == ["reasoning.encrypted_content"] or door == "chat"
        case _:
            assert heard["thinking"]["type"] == "enabled"
            assert 1024 <= heard["thinking"]["budget_tokens"] < heard["max_tokens"]


@modes
@pytest.mark.parametrize(
    "dialect", ["responses", "messages"], ids=lambda dialect: f"over-{dialect}"
)
@doors
def test_thoughts_between_calls_keep_their_places_and_their_seals(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    first = Tool("call_1", "get_weather", ('{"city":"Paris"}',))
    second = Tool("call_2", "get_weather", ('{"city":"Rome"}',))
    answer = Answer(
        (Thought("One.", SEAL), Said(("So.",)), first, Thought("Two.", SECOND_SEAL), second)
    )
    scene = stage.scene(dialect, answer, DONE)
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,), more=ASKS[door])
    asking.say("hi")
    got = asking.ask(mode)
    for call in got.calls:
        asking.answer(call, "sunny")
    asking.ask(mode)
    turns = hear(dialect, scene.requests[1].body).turns
    said = [turn for turn in turns if not isinstance(turn, HeardCall | HeardResult)]
    assert said == [
        Spoken("user", "hi"),
        Thinking("One.", SEAL),
        Spoken("assistant", "So."),
        Thinking("Two.", SECOND_SEAL),
    ]
    kinds = [type(turn) for turn in turns]
    assert kinds.index(HeardCall) > kinds.index(Thinking)


@pytest.mark.parametrize(
    ("dialect", "other"), [("responses", "messages"), ("messages", "responses")]
)
@doors
def test_a_seal_never_goes_to_another_provider(
    stage: Stage, door: str, dialect: str, other: str
) -> None:
    call_id, seal = f"call_{door}_{dialect}", f"{SEAL}{door}{dialect}"
    calling = Tool(call_id, "get_weather", ('{"city":"Paris"}',))
    sealing = stage.scene(dialect, Answer((Thought("Paris it is.", seal), calling)))
    elsewhere = stage.scene(other, DONE)
    asking = conversation(door, stage.url, sealing.model, tools=(WEATHER,), more=ASKS[door])
    asking.say("hi")
    got = asking.ask("helper")
    asking.answer(got.calls[0], "sunny")
    asking.model = elsewhere.model
    asking.ask("helper")
    request = elsewhere.requests[0]
    assert seal.encode() not in request.body
    assert b"dgm1." not in request.body
    heard = hear(other, request.body)
    assert [turn.seal for turn in heard.thoughts] == []
    assert heard.results == [HeardResult(call_id, "sunny")]
    # And back again, with what the client still holds.
    back = stage.scene(dialect, DONE)
    asking.model = back.model
    asking.say("again")
    asking.ask("create")
    assert hear(dialect, back.requests[0].body).thoughts == [Thinking("Paris it is.", seal)]
