"""Short streams in each dialect, and what came out of them, for the tests of the requirements."""

import json
from collections.abc import Iterable
from typing import Any

from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.translate import StreamTranslator, make_decoder
from dragoman.model.events import Event
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call, Text

Payload = dict[str, Any]


def as_sse(items: Iterable[Payload | str]) -> bytes:
    """Frames as the vendors send them: a name where the payload has a type, text such as `[DONE]` as it is."""
    frames: list[str] = []
    for item in items:
        data = item if isinstance(item, str) else json.dumps(item)
        name = "" if isinstance(item, str) or "type" not in item else f"event: {item['type']}\n"
        frames.append(f"{name}data: {data}\n\n")
    return "".join(frames).encode()


def payloads(stream: bytes) -> list[Payload]:
    """The JSON payloads of a stream, in order; `[DONE]` and comments left out."""
    lines = stream.decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(item) for item in data if item != "[DONE]"]


def event_names(stream: bytes) -> list[str]:
    return [
        line.removeprefix("event: ")
        for line in stream.decode().splitlines()
        if line.startswith("event: ")
    ]


def translate(
    source: str,
    target: str,
    items: Iterable[Payload | str],
    *,
    decode: DecodeContext | None = None,
    encode: EncodeContext | None = None,
) -> bytes:
    translator = StreamTranslator(
        source, target, decode=decode or DecodeContext(), encode=encode or EncodeContext()
    )
    return translator.feed(as_sse(items)) + translator.close()


def decode(
    dialect: str, items: Iterable[Payload | str], context: DecodeContext | None = None
) -> Outcome:
    decoder = make_decoder(dialect, context or DecodeContext())
    steps = decoder.feed(as_sse(items)) + decoder.close()
    events: list[Event] = [event for step in steps for event in step.events]
    return fold(events)


def calls(outcome: Outcome) -> list[Call]:
    return [part for choice in outcome.choices for part in choice.parts if isinstance(part, Call)]


def text(outcome: Outcome) -> str:
    return "".join(
        part.text for choice in outcome.choices for part in choice.parts if isinstance(part, Text)
    )


# --- Chat Completions ------------------------------------------------------------------------------------------------


def chat_chunk(delta: Payload, finish: str | None = None, choice: int = 0) -> Payload:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": choice, "delta": delta, "finish_reason": finish}],
    }


def tool_delta(
    index: int, arguments: str, call_id: str | None = None, name: str | None = None
) -> Payload:
    entry: Payload = {"index": index, "function": {"arguments": arguments}}
    if call_id is not None:
        entry |= {"id": call_id, "type": "function"}
    if name is not None:
        entry["function"]["name"] = name
    return {"tool_calls": [entry]}


CHAT_TEXT: list[Payload | str] = [
    chat_chunk({"role": "assistant", "content": "Hel"}),
    chat_chunk({"content": "lo"}),
    chat_chunk({}, "stop"),
    "[DONE]",
]
CHAT_CALL: list[Payload | str] = [
    chat_chunk({"role": "assistant", "content": None}),
    chat_chunk(tool_delta(0, "", "call_1", "shell")),
    chat_chunk(tool_delta(0, '{"command": ')),
    chat_chunk(tool_delta(0, '["echo","hello"]}')),
    chat_chunk({}, "tool_calls"),
    "[DONE]",
]

# --- Responses -------------------------------------------------------------------------------------------------------


def responses_stream(events: Iterable[Payload]) -> list[Payload | str]:
    """The events between `response.created` and `response.completed`, numbered; finished items stand in the output."""
    found = list(events)
    done = [event for event in found if event["type"] == "response.output_item.done"]
    output = list({event["output_index"]: event["item"] for event in done}.values())
    head: Payload = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
    items: list[Payload] = [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}},
        *found,
        {
            "type": "response.completed",
            "response": {**head, "status": "completed", "output": output},
        },
    ]
    return [{"sequence_number": number, **item} for number, item in enumerate(items)]


def responses_call(name: str, arguments: Iterable[str], *, place: int = 0) -> list[Payload]:
    """One call as OpenAI streams it."""
    pieces = list(arguments)
    item_id = f"fc_{place}"
    item: Payload = {
        "type": "function_call",
        "id": item_id,
        "call_id": f"call_{place}",
        "name": name,
    }
    where: Payload = {"item_id": item_id, "output_index": place}
    whole = "".join(pieces)
    return [
        {
            "type": "response.output_item.added",
            "output_index": place,
            "item": {**item, "status": "in_progress", "arguments": ""},
        },
        *(
            {"type": "response.function_call_arguments.delta", **where, "delta": piece}
            for piece in pieces
        ),
        {
            "type": "response.function_call_arguments.done",
            **where,
            "name": name,
            "arguments": whole,
        },
        {
            "type": "response.output_item.done",
            "output_index": place,
            "item": {**item, "status": "completed", "arguments": whole},
        },
    ]


RESPONSES_CALL = responses_stream(responses_call("shell", ['{"command": ', '["echo","hello"]}']))

# --- Messages --------------------------------------------------------------------------------------------------------


def message_block(index: int, block: Payload, deltas: Iterable[Payload]) -> list[Payload]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def messages_stream(
    events: Iterable[Payload], stop_reason: str = "tool_use"
) -> list[Payload | str]:
    message: Payload = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    return [
        {"type": "message_start", "message": message},
        *events,
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]


MESSAGES_CALL = messages_stream(
    [
        *message_block(
            0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": "Let me see."}]
        ),
        *message_block(
            1,
            {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {}},
            [
                {"type": "input_json_delta", "partial_json": '{"command": '},
                {"type": "input_json_delta", "partial_json": '["echo","hello"]}'},
            ],
        ),
    ]
)
