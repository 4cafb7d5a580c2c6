"""The same question in three dialects, and answers read back with our own decoders."""

import asyncio
import json
from collections.abc import Mapping
from typing import Literal, cast

from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import make_decoder
from dragoman.model.events import Event
from dragoman.model.outcome import Choice, Outcome, Problem
from dragoman.model.parts import Call, Dialect, Part, Reasoning, Refusal, Text
from dragoman.upstream.base import UpstreamReply, UpstreamRequest
from dragoman.upstream.rehearsal.upstream import Delivery, perform

DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "messages")
WAIT = 60.0

Json = dict[str, object]
Kind = Literal["function", "custom"]

WEATHER: Json = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
CLOCK: Json = {
    "name": "get_time",
    "description": "The time of day somewhere.",
    "schema": {
        "type": "object",
        "properties": {"zone": {"type": "string"}},
        "required": ["zone"],
    },
}


def tool_in(dialect: Dialect, tool: Json) -> Json:
    name, description = tool["name"], tool.get("description", "")
    match dialect:
        case "chat":
            inner = {"name": name, "description": description, "parameters": tool.get("schema", {})}
            return {"type": "function", "function": inner}
        case "responses":
            schema = tool.get("schema", {})
            return {
                "type": "function",
                "name": name,
                "description": description,
                "parameters": schema,
            }
        case _:
            schema = tool.get("schema", {"type": "object"})
            return {"name": name, "description": description, "input_schema": schema}


def body(
    dialect: Dialect,
    words: str = "Weather in Paris and Tokyo?",
    *,
    model: str = "rehearsal",
    tools: tuple[Json, ...] = (),
    stream: bool = True,
    more: Mapping[str, object] | None = None,
) -> bytes:
    """A request with one question."""
    asked: Json = {"model": model, "stream": stream}
    if tools:
        asked["tools"] = [tool_in(dialect, tool) for tool in tools]
    if dialect == "responses":
        asked["input"] = words
    else:
        asked["messages"] = [{"role": "user", "content": words}]
    if dialect == "messages":
        asked["max_tokens"] = 1000
    elif dialect == "chat" and stream:
        asked["stream_options"] = {"include_usage": True}
    return json.dumps({**asked, **(more or {})}).encode()


def with_results(
    dialect: Dialect,
    results: tuple[str, ...],
    *,
    words: str = "Weather in Paris?",
    model: str = "rehearsal",
    tools: tuple[Json, ...] = (WEATHER,),
    more: Mapping[str, object] | None = None,
) -> bytes:
    """The same, after calls of `get_weather` whose results have come back."""
    ids = [f"call_{index}" for index in range(len(results))]
    pairs = list(zip(ids, results, strict=True))
    match dialect:
        case "chat":
            calls = [
                {
                    "id": i,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": "{}"},
                }
                for i in ids
            ]
            turns: list[object] = [
                {"role": "user", "content": words},
                {"role": "assistant", "content": None, "tool_calls": calls},
                *({"role": "tool", "tool_call_id": i, "content": text} for i, text in pairs),
            ]
        case "responses":
            turns = [
                {"type": "message", "role": "user", "content": words},
                *(
                    {
                        "type": "function_call",
                        "call_id": i,
                        "name": "get_weather",
                        "arguments": "{}",
                    }
                    for i in ids
                ),
                *({"type": "function_call_output", "call_id": i, "output": t} for i, t in pairs),
            ]
        case _:
            uses: list[Json] = [
                {"type": "tool_use", "id": i, "name": "get_weather", "input": {}} for i in ids
            ]
            blocks = [{"type": "tool_result", "tool_use_id": i, "content": t} for i, t in pairs]
            turns = [
                {"role": "user", "content": words},
                {"role": "assistant", "content": uses},
                {"role": "user", "content": blocks},
            ]
    key = "input" if dialect == "responses" else "messages"
    return body(dialect, model=model, tools=tools, more={key: turns, **(more or {})})


def ask(dialect: Dialect, data: bytes, *, stream: bool = True, model: str = "") -> Delivery:
    return perform(UpstreamRequest(dialect=dialect, body=data, stream=stream, model=model))


def said_by(delivery: Delivery) -> bytes:
    return b"".join(delivery.pieces)


def read_stream(dialect: Dialect, data: bytes) -> tuple[list[Event], list[Problem]]:
    decoder = make_decoder(dialect)
    steps = [*decoder.feed(data), *decoder.close()]
    return [event for step in steps for event in step.events], decoder.problems


def answer(
    dialect: Dialect, data: bytes, *, stream: bool = True, model: str = ""
) -> tuple[Outcome, list[Problem]]:
    """The answer as our decoder understands it."""
    delivery = ask(dialect, data, stream=stream, model=model)
    assert delivery.status == 200, said_by(delivery)
    if stream:
        events, problems = read_stream(dialect, said_by(delivery))
        return fold(events), problems
    step = codec(dialect).read_body(said_by(delivery), DecodeContext())
    return fold(step.events), list(step.problems)


def only_choice(outcome: Outcome) -> Choice:
    assert outcome.error is None, outcome.error
    assert len(outcome.choices) == 1
    return outcome.choices[0]


def parts(outcome: Outcome) -> tuple[Part, ...]:
    return only_choice(outcome).parts


def calls(outcome: Outcome) -> list[Call]:
    return [part for part in parts(outcome) if isinstance(part, Call)]


def text(outcome: Outcome) -> str:
    return "".join(part.text for part in parts(outcome) if isinstance(part, Text | Refusal))


def thoughts(outcome: Outcome) -> list[Reasoning]:
    return [part for part in parts(outcome) if isinstance(part, Reasoning)]


def loads(data: bytes | str) -> Json:
    return cast("Json", json.loads(data))


async def read_all(reply: UpstreamReply) -> list[bytes]:
    """Every piece of a reply that ends."""
    pieces: list[bytes] = []
    while piece := await asyncio.wait_for(reply.read(), WAIT):
        pieces.append(piece)
    return pieces
