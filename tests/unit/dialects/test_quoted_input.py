"""Arguments that were encoded twice: a JSON string around the object that the tool's schema wants."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from corpus_checks import calls_of
from dragoman._json import raw
from dragoman.core.fold import fold
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.relay import StreamRelay, relay_body
from dragoman.dialects.translate import StreamTranslator, make_decoder, translate_body
from dragoman.model.request import Tool
from seed_wires import as_sse, messages_stream, responses_call, responses_stream

Json = dict[str, Any]

DIALECTS = ("chat", "responses", "messages")
INNER = '{"x": 1, "text": "a \\"b\\" \\u00e9"}'
QUOTED = json.dumps(INNER)
OBJECT = raw({"type": "object", "properties": {"x": {"type": "integer"}}})
CONTEXT = DecodeContext(tools=(Tool(name="f", schema=OBJECT), Tool(name="g", schema=OBJECT)))


def pieces_of(text: str, size: int = 5) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def chat(pieces: list[str]) -> list[Json | str]:
    first = {"index": 0, "id": "call_0", "type": "function", "function": {"name": "f"}}
    entries = [first, *({"index": 0, "function": {"arguments": piece}} for piece in pieces)]
    deltas: list[Json] = [{"tool_calls": [entry]} for entry in entries]
    choices: list[Json] = [
        *({"index": 0, "delta": delta, "finish_reason": None} for delta in deltas),
        {"index": 0, "delta": {}, "finish_reason": "tool_calls"},
    ]
    start = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return [*({**start, "choices": [choice]} for choice in choices), "[DONE]"]


def responses(pieces: list[str]) -> list[Json | str]:
    return responses_stream(responses_call("f", pieces))


def messages(pieces: list[str]) -> list[Json | str]:
    block: Json = {"type": "tool_use", "id": "call_0", "name": "f", "input": {}}
    deltas = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": piece},
        }
        for piece in pieces
    ]
    start: Json = {"type": "content_block_start", "index": 0, "content_block": block}
    return messages_stream([start, *deltas, {"type": "content_block_stop", "index": 0}], "tool_use")


WIRES: dict[str, Callable[[list[str]], Any]] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
}


def inputs_in(dialect: str, data: bytes, context: DecodeContext | None = None) -> list[str]:
    decoder = make_decoder(dialect, context or DecodeContext())
    steps = decoder.feed(data) + decoder.close()
    outcome = fold(event for step in steps for event in step.events)
    assert outcome.completed
    return [call.input for call in calls_of(outcome)]


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_object_in_a_string_is_unwrapped_and_the_string_is_never_sent(
    source: str, target: str, size: int
) -> None:
    stream = as_sse(WIRES[source](pieces_of(QUOTED, size)))
    translator = StreamTranslator(source, target, decode=CONTEXT)
    out = translator.feed(stream) + translator.close()
    assert inputs_in(target, out) == [INNER]
    kinds = [problem.kind for problem in translator.problems]
    assert "unquoted_input" in kinds


@pytest.mark.parametrize("dialect", DIALECTS)
def test_relay_encodes_again_from_the_first_quotation_mark(dialect: str) -> None:
    relay = StreamRelay(dialect, decode=CONTEXT, encode=EncodeContext())
    frames = as_sse(WIRES[dialect](pieces_of(QUOTED))).split(b"\n\n")
    out = b"".join(relay.feed(frame + b"\n\n") for frame in frames if frame) + relay.close()
    assert inputs_in(dialect, out) == [INNER]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("blanks", [" ", "\n\t"])
def test_blanks_before_the_string_do_not_hide_it(dialect: str, blanks: str) -> None:
    stream = as_sse(WIRES[dialect]([blanks, *pieces_of(QUOTED)]))
    assert inputs_in(dialect, stream, CONTEXT) == [blanks + INNER]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "context",
    [
        DecodeContext(),
        DecodeContext(tools=(Tool(name="f"),)),
        DecodeContext(tools=(Tool(name="f", schema=raw({"type": "string"})),)),
        DecodeContext(tools=(Tool(name="f", schema=raw({"type": ["object", "string"]})),)),
    ],
)
def test_string_stays_where_no_schema_wants_an_object(dialect: str, context: DecodeContext) -> None:
    stream = as_sse(WIRES[dialect](pieces_of(QUOTED)))
    assert inputs_in(dialect, stream, context) == [QUOTED]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", ['"a word"', '"[1]"', '"{\\"x\\":"', json.dumps(QUOTED)])
def test_string_that_holds_no_object_stays_as_it_came(dialect: str, text: str) -> None:
    assert inputs_in(dialect, as_sse(WIRES[dialect](pieces_of(text))), CONTEXT) == [text]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_object_is_streamed_as_it_comes(dialect: str) -> None:
    decoder = make_decoder(dialect, CONTEXT)
    frames = as_sse(WIRES[dialect](pieces_of(INNER))).split(b"\n\n")
    said = ""
    for frame in frames[: len(frames) // 2]:
        for step in decoder.feed(frame + b"\n\n"):
            said += "".join(getattr(event, "text", "") for event in step.events)
    assert said
    assert INNER.startswith(said)


def chat_body(arguments: str) -> bytes:
    call = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**body, "choices": [choice]}).encode()


def responses_body(arguments: str) -> bytes:
    item = {"type": "function_call", "id": "fc_0", "call_id": "call_0", "name": "f"}
    item |= {"arguments": arguments, "status": "completed"}
    body = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
    return json.dumps({**body, "status": "completed", "output": [item]}).encode()


def messages_body(arguments: str) -> bytes:
    block = {"type": "tool_use", "id": "call_0", "name": "f", "input": json.loads(arguments)}
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    end = {"stop_reason": "tool_use", "stop_sequence": None, "usage": usage}
    return json.dumps({**body, "content": [block], **end}).encode()


BODIES = {"chat": chat_body, "responses": responses_body, "messages": messages_body}


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
def test_body_with_an_object_in_a_string_is_unwrapped(source: str, target: str) -> None:
    data = BODIES[source](QUOTED)
    crossed = translate_body(data, source, target, decode=CONTEXT)
    outcome = fold(codec(target).read_body(crossed.body, DecodeContext()).events)
    assert [call.input for call in calls_of(outcome)] == [INNER]
    kind = "string_input" if source == "messages" else "unquoted_input"
    assert kind in [problem.kind for problem in crossed.problems]
    if source == target:
        relayed, _ = relay_body(data, source, decode=CONTEXT, encode=EncodeContext())
        assert kind in [problem.kind for problem in relayed.problems]
