"""Answers and requests at the edges: halves of characters, calls cut by a limit, schemas for answers, old forms, crowds."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel, ConfigDict

from dragoman.config.settings import ServerSettings, Settings
from gateway_harness import running_gateway
from heard import HeardCall, HeardResult, hear
from plain_http import ask, plain_body
from sdk_clients import (
    CLIENT_KEY,
    DOORS,
    MODES,
    TIMEOUT,
    Offered,
    anthropic_client,
    conversation,
    openai_client,
)
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Offered("get_weather", SCHEMA, "the weather in a city")

doors = pytest.mark.parametrize("door", DOORS)
dialects = pytest.mark.parametrize("dialect", DOORS, ids=lambda dialect: f"over-{dialect}")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


# --- calls with one id ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["create", "stream"])
@dialects
@doors
def test_calls_of_one_answer_with_the_same_id_get_ids_of_their_own(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    calls = [Tool("call_1", "get_weather", (f'{{"city":"{city}"}}',)) for city in ("Oslo", "Rome")]
    scene = stage.scene(dialect, Answer(tuple(calls)), Answer((Said(("Cold and warm.",)),)))
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask(mode)
    first, second = got.calls
    assert first.call_id == "call_1" != second.call_id
    assert ["Oslo" in str(first.arguments), "Rome" in str(second.arguments)] == [True, True]
    asking.answer(second, "warm")
    asking.answer(first, "cold")
    assert asking.ask(mode).text == "Cold and warm."
    turns = hear(dialect, scene.requests[1].body).turns
    asked = {turn.call_id: str(turn.arguments) for turn in turns if isinstance(turn, HeardCall)}
    heard = {turn.call_id: turn.text for turn in turns if isinstance(turn, HeardResult)}
    assert {text: "Oslo" in asked[call_id] for call_id, text in heard.items()} == {
        "cold": True,
        "warm": False,
    }


# --- halves of characters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["stream", "helper"])
@dialects
@doors
def test_a_character_cut_between_two_deltas_is_whole_at_the_client(
    stage: Stage, door: str, dialect: str, mode: str
) -> None:
    """JSON escapes a character beyond U+FFFF as two halves, and some servers cut between them."""
    call = Tool("call_1", "get_weather", ('{"city":"', "\ud83d", "\ude00", '"}'))
    scene = stage.scene(dialect, Answer((Said(("a\ud83d", "\ude00b")), call)))
    asking = conversation(door, stage.url, scene.model, tools=(WEATHER,))
    asking.say("hi")
    got = asking.ask(mode)
    assert got.text == "a\U0001f600b"
    arguments = got.calls[0].arguments
    value = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert value == {"city": "\U0001f600"}


# --- calls cut by a limit ---------------------------------------------------------------------------------------------

CUT = Answer((Said(("So.",)), Tool("call_1", "get_weather", ('{"city":', ' "Pa'))), finish="length")


@dialects
@doors
def test_a_call_cut_by_the_limit_is_never_offered_as_whole(
    stage: Stage, door: str, dialect: str
) -> None:
    scene = stage.scene(dialect, CUT)
    if door == "chat":
        chunks = openai_client(stage.url).chat.completions.create(
            model=scene.model, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        ends = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
        assert [end for end in ends if end] == ["length"]
    elif door == "responses":
        events = list(
            openai_client(stage.url).responses.create(model=scene.model, input="hi", stream=True)
        )
        assert events[-1].type == "response.incomplete"
        whole = [
            event.item.status
            for event in events
            if event.type == "response.output_item.done" and event.item.type == "function_call"
        ]
        assert "completed" not in whole
    else:
        lines = anthropic_client(stage.url).messages.create(
            model=scene.model,
            max_tokens=99,
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
        )
        reasons = [event.delta.stop_reason for event in lines if event.type == "message_delta"]
        assert reasons == ["max_tokens"]


# --- spelling ---------------------------------------------------------------------------------------------------------


@dialects
@doors
def test_arguments_keep_their_spelling_in_a_body(stage: Stage, door: str, dialect: str) -> None:
    """Numbers beyond doubles, escapes, spaces, a repeated key: what a parser would change."""
    text = (
        '{"n": 1e2,  "big": 123456789012345678901234567890, "f": 1.50, "s": "\\u00e9é\\/", "n":1}'
    )
    scene = stage.scene(dialect, Answer((Tool("call_1", "get_weather", (text,)),)))
    result = ask(stage.url, door, plain_body(door, scene.model)).content.decode()
    if door == "messages":
        assert text in result
    else:
        body = json.loads(result)
        call = (
            body["choices"][0]["message"]["tool_calls"][0]["function"]
            if door == "chat"
            else body["output"][0]
        )
        assert call["arguments"] == text


# --- answers with a schema --------------------------------------------------------------------------------------------


class City(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    people: int


def schema_heard(dialect: str, body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any]
    match dialect:
        case "chat":
            assert body["response_format"]["type"] == "json_schema"
            found = body["response_format"]["json_schema"]["schema"]
        case "responses":
            assert body["text"]["format"]["type"] == "json_schema"
            found = body["text"]["format"]["schema"]
        case _:
            assert body["output_config"]["format"]["type"] == "json_schema"
            found = body["output_config"]["format"]["schema"]
    return found


@dialects
@doors
def test_a_schema_for_the_answer_reaches_the_upstream_and_the_answer_is_parsed(
    stage: Stage, door: str, dialect: str
) -> None:
    text = '{"name": "Paris", "people": 2000000}'
    scene = stage.scene(dialect, Answer((Said((text[:9], text[9:])),)))
    parsed: Any
    if door == "chat":
        completion = openai_client(stage.url).chat.completions.parse(
            model=scene.model,
            messages=[{"role": "user", "content": "hi"}],
            response_format=City,
        )
        parsed = completion.choices[0].message.parsed
    elif door == "responses":
        response = openai_client(stage.url).responses.parse(
            model=scene.model, input="hi", text_format=City
        )
        parsed = response.output_parsed
    else:
        message = anthropic_client(stage.url).messages.parse(
            model=scene.model,
            max_tokens=99,
            messages=[{"role": "user", "content": "hi"}],
            output_format=City,
        )
        parsed = message.parsed_output
    assert parsed == City(name="Paris", people=2_000_000)
    heard = schema_heard(dialect, scene.heard)
    assert set(heard["properties"]) == {"name", "people"}
    assert heard["additionalProperties"] is False


# --- the older form of tools ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stream", [False, True], ids=["body", "stream"])
@dialects
def test_a_client_that_offers_functions_gets_function_calls(
    stage: Stage, dialect: str, is_stream: bool
) -> None:
    call = Tool("call_1", "get_weather", ('{"city":', '"Paris"}'))
    scene = stage.scene(dialect, Answer((call,)))
    functions = [{"name": "get_weather", "parameters": SCHEMA}]
    body = plain_body("chat", scene.model, functions=functions, stream=is_stream)
    response = ask(stage.url, "chat", body)
    if dialect == "chat":  # an upstream that was asked in the older form and answers in the newer
        assert scene.heard["functions"] == functions
    if is_stream:
        payloads = [
            json.loads(line.removeprefix("data: "))
            for line in response.text.splitlines()
            if line.startswith("data: {")
        ]
        choices = [choice for payload in payloads for choice in payload["choices"]]
        lines: list[dict[str, Any]] = [
            choice["delta"].get("function_call") or {} for choice in choices
        ]
        finish = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    else:
        choice = response.json()["choices"][0]
        lines, finish = [choice["message"]["function_call"]], [choice["finish_reason"]]
    assert "".join(piece.get("name", "") for piece in lines) == "get_weather"
    assert "".join(piece.get("arguments", "") for piece in lines) == call.arguments
    assert finish == ["function_call"]


# --- crowds -----------------------------------------------------------------------------------------------------------


def test_many_conversations_at_once_do_not_mix(stage: Stage) -> None:
    """Sixty streams over every pair, with the asynchronous clients."""

    async def chat(client: openai.AsyncOpenAI, model: str) -> str:
        stream = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": model}], stream=True
        )
        pieces: list[str] = []
        async for chunk in stream:
            pieces += [choice.delta.content or "" for choice in chunk.choices]
        return "".join(pieces)

    async def responses(client: openai.AsyncOpenAI, model: str) -> str:
        async with client.responses.stream(model=model, input=model) as stream:
            return (await stream.get_final_response()).output_text

    async def messages(client: anthropic.AsyncAnthropic, model: str) -> str:
        hello: Any = [{"role": "user", "content": model}]
        async with client.messages.stream(model=model, max_tokens=9, messages=hello) as stream:
            return await stream.get_final_text()

    async def crowd() -> list[tuple[str, str]]:
        async with (
            openai.AsyncOpenAI(
                api_key=CLIENT_KEY, base_url=f"{stage.url}/v1", max_retries=0, timeout=TIMEOUT
            ) as first,
            anthropic.AsyncAnthropic(
                api_key=CLIENT_KEY, base_url=stage.url, max_retries=0, timeout=TIMEOUT
            ) as second,
        ):
            asked: list[tuple[str, Any]] = []
            for number in range(63):
                dialect, door = DOORS[number % 3], DOORS[number // 3 % 3]
                words = tuple(f"{number}-{word} " for word in range(20))
                scene = stage.scene(dialect, Answer((Said(words),)), delivery="frames")
                clients: dict[str, Any] = {
                    "chat": partial(chat, first),
                    "responses": partial(responses, first),
                    "messages": partial(messages, second),
                }
                asked.append(("".join(words), clients[door](scene.model)))
            result = await asyncio.gather(*(answer for _, answer in asked))
            return list(zip((wanted for wanted, _ in asked), result, strict=True))

    for wanted, result in asyncio.run(crowd()):
        assert result == wanted


# --- without any configuration ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rehearsing() -> Iterator[str]:
    with running_gateway(Settings(server=ServerSettings(shutdown_grace=0.3))) as gateway:
        yield gateway.url


@pytest.mark.parametrize(("door", "mode"), [(door, mode) for door in DOORS for mode in MODES[door]])
def test_a_gateway_without_configuration_rehearses_a_round_trip(
    rehearsing: str, door: str, mode: str
) -> None:
    strict = Offered("get_weather", {**SCHEMA, "additionalProperties": False}, strict=True)
    asking = conversation(door, rehearsing, "rehearsal", tools=(strict,))
    asking.say("How is the weather in Paris?")
    got = asking.ask(mode)
    assert [call.name for call in got.calls] == ["get_weather"]
    arguments = got.calls[0].arguments
    value = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert list(value) == ["city"]
    asking.answer(got.calls[0], "21 degrees and sunny")
    final = asking.ask(mode)
    assert final.calls == []
    assert "21 degrees and sunny" in final.text
