"""Streams of this dialect in tests: frames to write by hand, and a reading that checks every law on the way."""

import json
from collections.abc import Iterable
from typing import Any

from disagreements import find_disagreements
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.core.serialize import Serializer
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.messages import MessagesEncoder, MessagesReader
from dragoman.dialects.stream_decoder import StreamDecoder
from dragoman.model.events import Event, PartEnded
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call, Part
from strategies import rechunk

NO_CONTEXT = DecodeContext()


def write(payload: object, name: str | None = None) -> bytes:
    data = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=True)
    head = f"event: {name}\n" if name is not None else ""
    return f"{head}data: {data}\n\n".encode()


def event(name: str, **fields: object) -> bytes:
    return write({"type": name, **fields}, name)


def block_start(index: object, block: object, **fields: object) -> bytes:
    return event("content_block_start", index=index, content_block=block, **fields)


def block_delta(index: object, delta: object, **fields: object) -> bytes:
    return event("content_block_delta", index=index, delta=delta, **fields)


def block_stop(index: object) -> bytes:
    return event("content_block_stop", index=index)


def text_delta(index: object, text: str) -> bytes:
    return block_delta(index, {"type": "text_delta", "text": text})


def input_delta(index: object, text: str) -> bytes:
    return block_delta(index, {"type": "input_json_delta", "partial_json": text})


def tool_use(index: object, call_id: str = "toolu_a", name: str = "f", **fields: object) -> bytes:
    return block_start(
        index, {"type": "tool_use", "id": call_id, "name": name, "input": {}, **fields}
    )


USAGE: dict[str, Any] = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
    "output_tokens_details": None,
    "server_tool_use": None,
    "service_tier": "standard",
    "inference_geo": None,
}
END_USAGE: dict[str, Any] = {
    "input_tokens": None,
    "cache_creation_input_tokens": None,
    "cache_read_input_tokens": None,
    "output_tokens": 5,
    "output_tokens_details": None,
    "server_tool_use": None,
}
STOP: dict[str, Any] = {
    "stop_reason": None,
    "stop_sequence": None,
    "stop_details": None,
    "container": None,
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [],
    **STOP,
    "usage": USAGE,
}
"""With all fields of the vendor's schema."""
START = event("message_start", message=MESSAGE)


def end(reason: str | None = "end_turn", **delta: object) -> bytes:
    stop = event(
        "message_delta",
        delta={**STOP, "stop_reason": reason, **delta},
        usage=END_USAGE,
    )
    return stop + event("message_stop")


def answer(*frames: bytes, reason: str | None = "end_turn") -> bytes:
    return START + b"".join(frames) + end(reason)


def read(data: bytes, context: DecodeContext = NO_CONTEXT) -> tuple[list[Event], list[str]]:
    """The events and the kinds of problems of a stream, the same however it is cut."""
    readings: list[tuple[list[Event], list[str]]] = []
    for reads in rechunk(data):
        decoder = StreamDecoder(MessagesReader(context))
        steps = [step for chunk in reads for step in decoder.feed(chunk)] + decoder.close()
        assert b"".join(step.raw for step in steps) == data
        events = [each for step in steps for each in step.events]
        assert all(problem.message for step in steps for problem in step.problems)
        problems = [problem.kind for step in steps for problem in step.problems]
        readings.append((events, problems))
    first = readings[0]
    assert all(reading == first for reading in readings)
    assert is_grammatical(first[0])
    assert find_disagreements(first[0]) == ()
    return first


def outcome(data: bytes, context: DecodeContext = NO_CONTEXT) -> Outcome:
    return fold(read(data, context)[0])


def parts(data: bytes, context: DecodeContext = NO_CONTEXT) -> list[Part]:
    return [each.value for each in read(data, context)[0] if isinstance(each, PartEnded)]


def calls(data: bytes, context: DecodeContext = NO_CONTEXT) -> list[tuple[str, str, str, str]]:
    """(id, name, input, status) of each call."""
    return [
        (part.call_id, part.name, part.input, part.status)
        for part in parts(data, context)
        if isinstance(part, Call)
    ]


def kinds(data: bytes, context: DecodeContext = NO_CONTEXT) -> list[str]:
    """The kinds of problems."""
    return read(data, context)[1]


def encode(events: Iterable[Event], context: EncodeContext | None = None) -> bytes:
    """The events as a stream, parts one after the other."""
    encoder = MessagesEncoder() if context is None else MessagesEncoder(context)
    serializer = Serializer()
    out = [encoder.encode(ready) for each in events for ready in serializer.feed(each)]
    return b"".join(out) + encoder.close()


def data_of(stream: bytes) -> list[Any]:
    """The payloads of a stream, each with the name its frame gave it."""
    found: list[Any] = []
    for frame in stream.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert name == f"event: {payload['type']}"
        found.append(payload)
    return found
