"""Laws of the dialect: any bytes are read grammatically, and what we write we read back as the same."""

import json
from collections.abc import Sequence
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from chat_help import DONE, chunk, finish, read, sse
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.chat import ChatReader, decode_error, decode_request, read_body
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.stream_decoder import StreamDecoder
from dragoman.errors import RequestRefused
from dragoman.model.request import Tool

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", "a", "{", "}", "{}", '{"x":1}', "f", "text", "function", "custom", "error"]
    ),
    st.text(max_size=3),
)
keys = st.sampled_from(
    [
        "id", "index", "type", "function", "custom", "name", "arguments", "input", "extra_content",
        "content", "text", "refusal", "reasoning", "reasoning_content", "reasoning_details", "audio",
        "data", "transcript", "expires_at", "annotations", "images", "image_url", "url", "tool_calls",
        "function_call", "delta", "message", "finish_reason", "stop_reason", "logprobs", "choices",
        "usage", "error", "base_resp", "status_code", "thinking", "x", "role", "tool_call_id", "cache_control",
        "messages", "tools", "tool_choice", "allowed_tools", "mode", "parameters", "format", "grammar",
        "definition", "file", "file_data", "file_id", "input_audio", "video_url", "stop", "stream_options",
        "response_format", "json_schema", "functions", "model", "signature", "summary",
    ]
)  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)


def loosely(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Objects with some of these fields, each mostly as it should be, and one that may be anything."""
    some = {name: value | anything for name, value in fields.items()}

    def join(known: dict[str, object], other: dict[str, object]) -> dict[str, object]:
        return {**known, **other}

    known = st.fixed_dictionaries({}, optional=some)
    return st.builds(join, known, st.dictionaries(keys, anything, max_size=1))


names = st.sampled_from(["", "f", "g", "fo", "o"])
functions = loosely(name=names, arguments=st.sampled_from(["", "{", "}", '{"x":', "1}", "{}"]))
entries = loosely(
    index=st.integers(0, 2),
    id=st.sampled_from(["", "a", "b", "c"]),
    type=st.sampled_from(["function", "custom"]),
    function=functions,
    custom=loosely(name=names, input=st.text(max_size=2)),
    extra_content=st.just({"google": 1}),
)
texts = st.sampled_from(["", "a", "\ud83d", "\ude00", "b"])
deltas = loosely(
    content=texts,
    refusal=texts,
    reasoning_content=texts,
    reasoning=texts,
    reasoning_details=st.lists(loosely(type=st.just("reasoning.text"), text=texts), max_size=2),
    tool_calls=st.lists(entries, max_size=3),
    function_call=functions,
    audio=loosely(id=st.just("x"), data=st.just("QQ=="), transcript=texts),
    annotations=st.lists(loosely(url_citation=st.just({"url": "u"})), max_size=1),
    images=st.lists(st.just({"type": "image_url", "image_url": {"url": "u"}}), max_size=1),
)
reasons = st.sampled_from([None, None, None, "stop", "tool_calls", "length", "weird", "error"])
choices = loosely(
    index=st.integers(0, 1),
    delta=deltas,
    finish_reason=reasons,
    logprobs=loosely(content=st.lists(st.just({"token": "a"}), max_size=1)),
)
chunks = loosely(
    id=st.just("chatcmpl-1"),
    choices=st.lists(choices, max_size=2),
    usage=loosely(prompt_tokens=st.integers(0, 3)),
)
streams = st.lists(chunks.map(json.dumps) | st.sampled_from([DONE, "{", "x"]), max_size=8)


def context(tools: list[str], count: int | None) -> DecodeContext:
    return DecodeContext(tools=tuple(Tool(name=each) for each in tools), choices=count)


contexts = st.builds(
    context,
    st.lists(st.sampled_from(["f", "foo", "g"]), max_size=2),
    st.sampled_from([None, 1, 2]),
)


@given(streams, contexts)
def test_any_stream_is_read_grammatically(stream: Sequence[str], known: DecodeContext) -> None:
    read(sse(*stream), known)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_grammatically(data: bytes) -> None:
    decoder = StreamDecoder(ChatReader())
    steps = [*decoder.feed(b"data: " + data + b"\n\n" + data), *decoder.close()]
    assert is_grammatical([event for step in steps for event in step.events])


@given(chunks.map(json.dumps).map(str.encode) | st.binary(max_size=60), contexts)
def test_any_body_is_read_grammatically(data: bytes, context: DecodeContext) -> None:
    step = read_body(data, context)
    assert step.raw == data
    assert is_grammatical(step.events)


@given(
    anything.map(json.dumps).map(str.encode) | st.binary(max_size=60),
    st.none() | st.integers(0, 700),
)
def test_any_error_is_read(data: bytes, status: int | None) -> None:
    assert decode_error(data, status).message


messages = loosely(
    role=st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]),
    content=texts | st.lists(loosely(type=st.just("text"), text=texts), max_size=2),
    tool_calls=st.lists(entries, max_size=2),
    function_call=functions,
    tool_call_id=st.sampled_from(["a", "b"]),
    cache_control=st.just({"type": "ephemeral"}),
)
requests = loosely(
    model=st.just("m"),
    messages=st.lists(messages, max_size=4),
    tools=st.lists(loosely(type=st.just("function"), function=functions), max_size=2),
    tool_choice=st.sampled_from(["auto", "none", "required"]),
    stop=st.lists(st.text(max_size=2), max_size=2),
    max_tokens=st.integers(1, 9),
)


@given(requests.map(json.dumps).map(str.encode) | st.binary(max_size=60))
def test_any_request_is_read_or_refused(body: bytes) -> None:
    with suppress(RequestRefused):
        decode_request(body)


@given(st.lists(st.sampled_from(["a", "b\n", "\u2028", "é", "\U0001f600"]), min_size=1, max_size=5))
def test_stream_and_body_of_one_answer_fold_alike(pieces: list[str]) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    stream: list[dict[str, object] | str] = [chunk({"reasoning_content": "hm"})]
    stream += [chunk({"content": each}) for each in pieces]
    stream += [chunk({"tool_calls": [{"index": 0, **call}]}), finish("tool_calls"), DONE]
    message = {
        "role": "assistant",
        "content": "".join(pieces),
        "reasoning_content": "hm",
        "tool_calls": [call],
    }
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
    }
    assert read(stream).outcome == fold(read_body(json.dumps(body).encode()).events)
