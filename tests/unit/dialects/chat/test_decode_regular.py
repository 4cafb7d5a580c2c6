"""Chunks of the usual shape, read by their type, mean what they mean when they are read field by field."""

import json
from typing import Any

import pytest

from dragoman.dialects.chat.decode import ChatReader
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.stream_decoder import StreamDecoder
from dragoman.model.events import Event, Failed
from dragoman.model.outcome import Problem

Chunk = dict[str, Any]
ENVELOPE: Chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def chunk(delta: Chunk, finish: str | None = None, index: int = 0, **fields: object) -> Chunk:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {**ENVELOPE, "choices": [choice], **fields}


def call(index: int = 0, call_id: str | None = "call_1", **function: object) -> Chunk:
    entry: Chunk = {"index": index, "type": "function", "function": function}
    return {"tool_calls": [entry if call_id is None else {**entry, "id": call_id}]}


def read(chunks: list[Chunk], context: DecodeContext) -> tuple[list[Event], list[Problem]]:
    decoder = StreamDecoder(ChatReader(context))
    frames = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks]
    events = [event for frame in frames for event in decoder.events(frame)]
    events += [*decoder.events(b"data: [DONE]\n\n")]
    return events + [event for step in decoder.close() for event in step.events], decoder.problems


ROLE = chunk({"role": "assistant", "content": "", "refusal": None})
CASES: dict[str, list[Chunk]] = {
    "text": [ROLE, chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop")],
    "calls": [
        ROLE,
        chunk({"content": "a"}),
        chunk(call(name="f", arguments="")),
        chunk(call(call_id=None, arguments='{"a":')),
        chunk(call(call_id=None, arguments="1}")),
        chunk(call(1, "call_2", name="g", arguments="{}")),
        chunk({}, "tool_calls"),
        {**ENVELOPE, "choices": [], "usage": USAGE},
    ],
    "two calls in one chunk": [
        chunk(
            {
                "tool_calls": [
                    *call(name="f", arguments="{}")["tool_calls"],
                    *call(1, "x", name="g")["tool_calls"],
                ]
            }
        ),
        chunk({}, "tool_calls"),
    ],
    "null and absent": [
        chunk({"role": "assistant", "content": None, "tool_calls": None}),
        chunk({"content": "a", "reasoning_content": None, "tool_calls": []}),
        chunk({}, "stop", usage=None),
    ],
    "an empty id and an empty name": [
        chunk(call(name="f", arguments="{")),
        chunk(call(call_id="", name="", arguments="}")),
        chunk({}, "tool_calls"),
    ],
    "a call that nobody names": [ROLE, chunk(call(arguments="{}")), chunk({}, "tool_calls")],
    "a finish that is a failure": [ROLE, chunk({"content": "a"}, "error")],
    "a finish that nobody knows": [ROLE, chunk({"content": "a"}, "because")],
    "a second finish": [ROLE, chunk({"content": "a"}, "stop"), chunk({}, "length")],
    "words after the finish": [ROLE, chunk({}, "stop"), chunk({"content": "a"})],
    "several choices": [
        ROLE,
        chunk({"content": "a"}, index=1),
        chunk({}, "stop"),
        chunk({}, "stop", 1),
    ],
    "fields around the choices": [
        chunk({"role": "assistant"}, service_tier="default", system_fingerprint=None),
        chunk({"content": "a"}, service_tier="default", system_fingerprint="fp_1"),
        chunk({}, "stop", service_tier="flex", system_fingerprint="fp_2"),
    ],
    "usage before anything": [{**ENVELOPE, "choices": [], "usage": USAGE}, ROLE, chunk({}, "stop")],
    "Azure's first": [{**ENVELOPE, "id": "", "choices": []}, ROLE, chunk({}, "stop")],
    "an input after its end": [
        chunk(call(name="f", arguments='{"a":1}')),
        chunk(call(1, "call_2", name="g", arguments="{}")),
        chunk(call(call_id=None, arguments="more", index=0)),
        chunk({}, "tool_calls"),
    ],
}


@pytest.mark.parametrize("choices", [1, None])
@pytest.mark.parametrize("name", CASES)
def test_chunk_of_the_usual_shape_means_the_same(name: str, choices: int | None) -> None:
    context = DecodeContext(choices=choices)
    # A field that is null says nothing, and is unusual.
    unusual = [{**each, "x_unusual": None} for each in CASES[name]]
    assert read(CASES[name], context) == read(unusual, context)


def test_nameless_call_of_the_usual_shape_fails_the_answer() -> None:
    events, problems = read(CASES["a call that nobody names"], DecodeContext())
    assert isinstance(events[-1], Failed)
    assert "nameless_call" in [problem.kind for problem in problems]
