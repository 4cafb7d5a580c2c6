"""For tests of the Responses dialect: streams from events as plain values and back, and samples of the SDK's types."""

import json
import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from openai.types.responses import ResponseInputItemParam, ToolParam
from openai.types.responses.response_create_params import ResponseCreateParams
from pydantic import BaseModel, TypeAdapter
from typing_extensions import get_type_hints, is_typeddict

from dragoman._json import raw
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.core.serialize import Serializer
from dragoman.dialects.codec import DecodeContext, EncodeContext, EncodedRequest
from dragoman.dialects.responses import ResponsesEncoder, ResponsesReader, read_body
from dragoman.dialects.stream_decoder import StreamDecoder
from dragoman.model.events import Event
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call, Part
from dragoman.model.request import Tool

Json = dict[str, Any]


# --- requests --------------------------------------------------------------------------------------------------------


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    """Checks values against a type of the SDK. To make one takes longer than most tests."""
    return TypeAdapter(annotation)


def body_of(encoded: EncodedRequest) -> Json:
    """The JSON of a request that the SDK's types allow."""
    data: Json = json.loads(encoded.body)
    _adapter(ResponseCreateParams).validate_python({**data, "input": []})
    if isinstance(data["input"], list):
        _adapter(list[ResponseInputItemParam]).validate_python(data["input"])
    _adapter(list[ToolParam]).validate_python(data.get("tools", []))
    return data


# --- streams ---------------------------------------------------------------------------------------------------------


def stream(events: Iterable[Json | bytes]) -> bytes:
    """The events as SSE; bytes stand as they are."""
    return b"".join(
        one if isinstance(one, bytes) else b"data: " + json.dumps(one).encode() + b"\n\n"
        for one in events
    )


def read(
    events: Iterable[Json | bytes], context: DecodeContext | None = None
) -> tuple[list[Event], list[str]]:
    """What a stream means, and the kinds of problems found. Read whole and byte by byte; both must agree."""
    data = stream(events)
    whole = _decode([data], context)
    assert whole == _decode([data[at : at + 1] for at in range(len(data))], context)
    assert is_grammatical(whole[0]), whole[0]
    return whole


def _decode(reads: Iterable[bytes], context: DecodeContext | None) -> tuple[list[Event], list[str]]:
    decoder = StreamDecoder(ResponsesReader(context or DecodeContext()))
    steps = [step for each in reads for step in decoder.feed(each)]
    steps += decoder.close()
    return (
        [event for step in steps for event in step.events],
        [problem.kind for step in steps for problem in step.problems],
    )


def decode_events(
    events: Iterable[Json | bytes], context: DecodeContext | None = None
) -> list[Event]:
    return read(events, context)[0]


def problems_in(events: Iterable[Json | bytes], context: DecodeContext | None = None) -> list[str]:
    return read(events, context)[1]


def read_answer(events: Iterable[Json | bytes], context: DecodeContext | None = None) -> Outcome:
    return fold(decode_events(events, context))


def parts_in(outcome: Outcome) -> tuple[Part, ...]:
    return tuple(part for choice in outcome.choices for part in choice.parts)


def calls_in(source: Outcome | Iterable[Json | bytes]) -> list[Call]:
    outcome = source if isinstance(source, Outcome) else read_answer(source)
    return [part for part in parts_in(outcome) if isinstance(part, Call)]


def write(events: Iterable[Event], context: EncodeContext | None = None) -> bytes:
    encoder = ResponsesEncoder(context or EncodeContext())
    serializer = Serializer()
    out = [encoder.encode(ready) for event in events for ready in serializer.feed(event)]
    return b"".join([*out, encoder.close()])


def payloads(data: bytes) -> list[Json]:
    """The JSON of every data line."""
    return [
        json.loads(line.removeprefix(b"data: "))
        for line in data.split(b"\n")
        if line.startswith(b"data: ")
    ]


def body_answer(body: Json) -> Outcome:
    return fold(read_body(json.dumps(body).encode()).events)


# --- events of the wire ----------------------------------------------------------------------------------------------


def created(**fields: Any) -> Json:
    response: Json = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "in_progress",
        "model": "m",
        "output": [],
    }
    return {"type": "response.created", "response": {**response, **fields}}


def completed(output: Sequence[Json] = (), **fields: Any) -> Json:
    response: Json = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": list(output),
    }
    return {"type": "response.completed", "response": {**response, **fields}}


def function_call(**fields: Any) -> Json:
    item = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_a",
        "name": "f",
        "arguments": "",
        "status": "in_progress",
    }
    return {**item, **fields}


def message(content: Sequence[Json] = (), **fields: Any) -> Json:
    item = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "in_progress",
        "content": list(content),
    }
    return {**item, **fields}


def added(item: Json, index: int = 0) -> Json:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(item: Json, index: int = 0) -> Json:
    item = {**item, "status": "completed"} if item.get("status") == "in_progress" else item
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def args_delta(text: str, index: int = 0, item_id: str = "fc_1", **fields: Any) -> Json:
    event = {
        "type": "response.function_call_arguments.delta",
        "output_index": index,
        "item_id": item_id,
        "delta": text,
    }
    return {**event, **fields}


def args_done(text: str, index: int = 0, item_id: str = "fc_1", **fields: Any) -> Json:
    event = {
        "type": "response.function_call_arguments.done",
        "output_index": index,
        "item_id": item_id,
        "arguments": text,
    }
    return {**event, **fields}


TEXT_PART: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def part_added(part: Json = TEXT_PART, index: int = 0, item_id: str = "msg_1") -> Json:
    return {
        "type": "response.content_part.added",
        "item_id": item_id,
        "output_index": 0,
        "content_index": index,
        "part": part,
    }


def part_done(part: Json, index: int = 0, item_id: str = "msg_1") -> Json:
    return {**part_added(part, index, item_id), "type": "response.content_part.done"}


def text_delta(text: str, index: int = 0, **fields: Any) -> Json:
    event: Json = {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": index,
        "delta": text,
        "logprobs": [],
        "obfuscation": "xk2",
    }
    return {**event, **fields}


def text_done(text: str, index: int = 0) -> Json:
    return {
        "type": "response.output_text.done",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": index,
        "text": text,
        "logprobs": [],
    }


def text_message(text: str) -> Json:
    return message([{**TEXT_PART, "text": text}], status="completed")


def tool(name: str, **properties: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return Tool(name=name, schema=raw(schema))


# --- samples of the SDK's types --------------------------------------------------------------------------------------


def union_members(union: Any) -> tuple[Any, ...]:
    if get_origin(union) is Annotated:
        return union_members(get_args(union)[0])
    return get_args(union) if get_origin(union) in (Union, types.UnionType) else (union,)


def samples(annotation: Any, fixed: Mapping[str, Any], name: str = "") -> list[Any]:
    """Values of a type with every field present: one for each member of a union directly below the top.

    `fixed` gives the values of fields by name; words and numbers are made up for the others.
    """
    members = [one for one in union_members(annotation) if one is not type(None)]
    if len(members) > 1:
        return [value for one in members for value in samples(one, fixed, name)]
    only = members[0]
    if _is_record(only):
        return _records(only, fixed)
    return [_sample(only, fixed, name)]


def _is_record(kind: Any) -> bool:
    kinds: tuple[Any, ...] = getattr(kind, "__mro__", ())
    return BaseModel in kinds or is_typeddict(kind)


def fields_of(kind: Any) -> dict[str, Any]:
    if is_typeddict(kind):
        return dict(get_type_hints(kind, include_extras=False))
    return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}


def _records(kind: Any, fixed: Mapping[str, Any], depth: int = 0) -> list[Json]:
    whole: Json = {}
    varied: dict[str, list[Any]] = {}
    for name, annotation in fields_of(kind).items():
        choices = [fixed[name]] if name in fixed else _choices(annotation, fixed, name, depth)
        whole[name] = choices[0]
        varied[name] = choices[1:]
    return [whole, *({**whole, name: value} for name, others in varied.items() for value in others)]


def _choices(annotation: Any, fixed: Mapping[str, Any], name: str, depth: int) -> list[Any]:
    members = [one for one in union_members(annotation) if one is not type(None)]
    if depth > 3:
        members = members[:1]
    return [_sample(one, fixed, name, depth) for one in members]


def _sample(annotation: Any, fixed: Mapping[str, Any], name: str, depth: int = 0) -> Any:
    origin = get_origin(annotation)
    if origin is Annotated or origin in (Required, NotRequired):
        return _sample(get_args(annotation)[0], fixed, name, depth)
    if origin in (Union, types.UnionType):
        return _choices(annotation, fixed, name, depth)[0]
    if origin is Literal:
        words = get_args(annotation)
        return "completed" if "completed" in words else words[0]
    if origin is dict:
        return {"key": _sample(get_args(annotation)[1], fixed, name, depth + 1)}
    if origin is not None:
        inner = get_args(annotation)[0]
        return [] if depth > 6 else _choices(inner, fixed, name, depth + 1)
    if _is_record(annotation):
        return {} if depth > 6 else _records(annotation, fixed, depth + 1)[0]
    plain: dict[Any, Any] = {str: f"a_{name}", int: 7, float: 1.5, bool: True}
    return plain.get(annotation, {"any": [1, "x"]})
