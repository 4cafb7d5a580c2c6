"""The laws of the project, on generated answers and on any bytes, for this dialect alone."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import doors
from dragoman.core.aliases import NameMap, original_id
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.messages import (
    DEFAULT_TARGET,
    MessagesReader,
    decode_request,
    encode_request,
    read_body,
)
from dragoman.dialects.messages.wire import CUT_REASONS
from dragoman.dialects.registry import codec
from dragoman.dialects.stream_decoder import StreamDecoder
from dragoman.errors import RequestRefused
from dragoman.model.events import Event
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call, PartStatus, Reasoning, Refusal, Text
from messages_streams import (
    MESSAGE,
    USAGE,
    answer,
    block_delta,
    block_start,
    block_stop,
    encode,
    tool_use,
)
from strategies import Kind, events, json_values
from unwrapped import unwrap_input

encode_body = codec("messages").encode_body

generously = settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = NameMap(limits=DEFAULT_TARGET.names)
PLAIN: tuple[Kind, ...] = (
    "text",
    "refusal",
    "reasoning",
    "function",
    "custom",
    "provider",
    "result",
    "media",
)


def read_stream(data: bytes) -> tuple[tuple[Event, ...], set[str]]:
    decoder = StreamDecoder(MessagesReader())
    steps = decoder.feed(data) + decoder.close()
    assert b"".join(step.raw for step in steps) == data
    result = tuple(event for step in steps for event in step.events)
    return result, {problem.kind for step in steps for problem in step.problems}


def said(
    outcome: Outcome,
) -> tuple[str, list[tuple[str, ...]], list[tuple[str, str, str, PartStatus]]]:
    """The text, the seals and the client's calls of an answer."""
    parts = outcome.choices[0].parts if outcome.choices else ()
    text = "".join(part.text for part in parts if isinstance(part, Text | Refusal))
    seals = [
        tuple(seal.data for seal in part.seals)
        for part in parts
        if isinstance(part, Reasoning) and part.seals
    ]
    calls: list[tuple[str, str, str, PartStatus]] = [
        (
            original_id(part.call_id),
            NAMES.wire(part.name, part.namespace),
            _input(part),
            part.status,
        )
        for part in parts
        if isinstance(part, Call) and part.executor == "client"
    ]
    return text, seals, calls


def _input(call: Call) -> str:
    return call.input.strip() or "{}" if call.kind == "function" else call.input


@generously
@given(events(kinds=PLAIN, may_amend=True))
def test_every_stream_written_pleases_every_client(sequence: tuple[Event, ...]) -> None:
    stream = encode(sequence)
    doors.check_messages(stream)
    back, problems = read_stream(stream)
    assert is_grammatical(back)
    assert problems <= {"invalid_arguments", "cut_stream"}


@generously
@given(events(kinds=("text", "refusal", "reasoning", "function"), max_choices=1, may_fail=False))
def test_what_is_written_is_read_back(sequence: tuple[Event, ...]) -> None:
    wanted_text, wanted_seals, wanted_calls = said(fold(sequence))
    for back in (read_stream(encode(sequence))[0], read_body(encode_body(sequence)).events):
        after = fold(back)
        if after.error is not None:
            continue
        text, seals, calls = said(after)
        assert (text, seals) == (wanted_text, wanted_seals)
        assert [call[:2] for call in calls] == [call[:2] for call in wanted_calls]
        for found, wanted in zip(calls, wanted_calls, strict=True):
            if wanted[3] == "completed" and _is_object(wanted[2]):
                assert found[2] == wanted[2]
                # A body cannot show whether the last call of an answer cut by a limit is whole.
                assert found[3] == "completed" or after.choices[0].finish in CUT_REASONS


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@generously
@given(events(kinds=("custom",), max_choices=1, may_fail=False))
def test_custom_input_survives_its_wrapper(sequence: tuple[Event, ...]) -> None:
    after = fold(read_stream(encode(sequence))[0])
    if after.error is None:
        # A wrapper that was never closed is closed by the protocol but is no JSON, and is never run.
        unwrapped = [
            unwrap_input(call[2])
            for call in said(after)[2]
            if call[3] == "completed" and _is_object(call[2])
        ]
        wanted = [call[2] for call in said(fold(sequence))[2] if call[3] == "completed"]
        assert unwrapped == wanted


@generously
@given(st.lists(st.text(), max_size=4), st.text(), json_values())
def test_body_and_stream_mean_the_same(texts: list[str], name: str, value: Any) -> None:
    value = {"value": value}
    source = json.dumps(value)
    blocks = [
        *({"type": "text", "text": text} for text in texts),
        {"type": "tool_use", "id": "toolu_a", "name": name or "f", "input": value},
    ]
    usage = {**USAGE, "output_tokens": 5}
    body = {**MESSAGE, "content": blocks, "stop_reason": "tool_use", "usage": usage}
    frames: list[bytes] = []
    for index, text in enumerate(texts):
        frames.append(block_start(index, {"type": "text", "text": ""}))
        frames.append(block_delta(index, {"type": "text_delta", "text": text}))
        frames.append(block_stop(index))
    last = len(texts)
    frames.append(tool_use(last, name=name or "f"))
    frames.append(block_delta(last, {"type": "input_json_delta", "partial_json": source}))
    frames.append(block_stop(last))
    stream = read_stream(answer(*frames, reason="tool_use"))[0]
    assert fold(read_body(json.dumps(body).encode()).events) == fold(stream)


frames = st.sampled_from(
    (
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    )
)
ODD: tuple[dict[str, Any], ...] = (
    {"type": "tool_use", "id": "a", "name": "f", "input": {}},
    {"type": "text", "text": "x"},
    {"type": "thinking"},
    {"type": "input_json_delta", "partial_json": '{"a"'},
    {"type": "text_delta", "text": "\ud83d"},
    {"type": "signature_delta", "signature": "s"},
    {"stop_reason": "tool_use"},
    {"usage": {"input_tokens": 1e300}},
)
odd: st.SearchStrategy[Any] = st.one_of(
    json_values(),
    st.sampled_from(ODD),
)


def frame(parts: tuple[str, int, Any, Any]) -> bytes:
    name, index, one, other = parts
    payload = {"type": name, "index": index, "content_block": one, "delta": other}
    data = json.dumps({**payload, "message": one, "usage": other})
    return f"event: {name}\ndata: {data}\n\n".encode()


@generously
@given(st.lists(st.tuples(frames, st.integers(-1, 2), odd, odd).map(frame), max_size=12))
def test_any_frames_give_a_grammatical_answer(sent: list[bytes]) -> None:
    events_read, _ = read_stream(b"".join(sent))
    assert is_grammatical(events_read)
    last = encode(events_read).split(b"\n\n")[-2]
    assert last.startswith((b"event: message_stop\n", b"event: error\n"))


@generously
@given(st.binary(max_size=60))
def test_any_bytes_are_survived(data: bytes) -> None:
    assert is_grammatical(read_body(data).events)
    assert is_grammatical(read_stream(data)[0])
    with suppress(RequestRefused):
        decode_request(data)


request_values = st.fixed_dictionaries(
    {
        "messages": st.lists(
            json_values()
            | st.fixed_dictionaries(
                {"role": st.sampled_from(("user", "assistant", "system")), "content": json_values()}
            ),
            max_size=3,
        )
    },
    optional={
        key: json_values()
        for key in (
            "system",
            "tools",
            "tool_choice",
            "thinking",
            "max_tokens",
            "output_config",
            "metadata",
            "x",
        )
    },
)


@generously
@given(request_values)
def test_any_request_is_refused_or_can_be_written(fields: dict[str, Any]) -> None:
    with suppress(RequestRefused):
        encoded = encode_request(decode_request(json.dumps(fields).encode()))
        again = encode_request(decode_request(encoded.body))
        assert json.loads(again.body) == json.loads(encoded.body)
