"""Corners of a relay that looks for calls in the text."""

import json
from typing import Any

import pytest

from corpus_checks import CHECKS, calls_of, text_of
from dragoman._json import raw
from dragoman.core.fold import fold
from dragoman.dialects import relay as relay_module
from dragoman.dialects.chat.decode import ChatReader
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.relay import StreamRelay, relay_body
from dragoman.dialects.translate import make_decoder
from dragoman.model.events import TextDelta
from dragoman.model.outcome import Outcome
from dragoman.model.request import Request, Tool
from dragoman.sse import parse_lines
from dragoman.textcalls.stage import TextCallStage, stage_for

SCHEMA = raw({"type": "object", "properties": {"a": {"type": "string"}}})
REQUEST = Request(model="m", tools=(Tool(name="look", schema=SCHEMA),))
BLOCK = '<tool_call>{"name": "look", "arguments": {"a": "x"}}</tool_call>'
BROKEN = '<tool_call>{"name": "look", "arguments": {"a": }}</tool_call>'
COMMENT = b": still here\n\n"
DONE = b"data: [DONE]\n\n"


def stage(model: str = "m") -> TextCallStage:
    made = stage_for(REQUEST, model=model, seed="seed")
    assert made is not None
    return made


def relay(choices: int = 1, model: str = "m") -> StreamRelay:
    decode = DecodeContext(choices=choices)
    return StreamRelay("chat", decode=decode, encode=EncodeContext(), stage=stage(model))


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    payload = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1757000000,
        "model": "gpt-x",
        "choices": [choice],
        **more,
    }
    return f"data: {json.dumps(payload)}\n\n".encode()


def said(text: str, size: int = 4, index: int = 0) -> list[bytes]:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [chunk({"content": piece}, index=index) for piece in pieces]


def first(index: int = 0) -> bytes:
    return chunk({"role": "assistant", "content": ""}, index=index)


def last(index: int = 0, finish: str = "stop") -> bytes:
    return chunk({}, finish, index)


def outcome(data: bytes, choices: int = 1) -> Outcome:
    decoder = make_decoder("chat", DecodeContext(choices=choices))
    events = [*decoder.events(data)]
    return fold([*events, *(event for step in decoder.close() for event in step.events)])


def test_frames_of_plain_text_pass_at_once() -> None:
    machine = relay()
    for frame in (first(), *said("Let me look at it, and then some."), last(), DONE):
        assert machine.feed(frame) in (frame, b"", last() + DONE)
    assert machine.is_passing


def test_frames_wait_for_a_possible_opener_and_no_longer() -> None:
    machine = relay()
    machine.feed(first())
    machine.feed(chunk({"content": "If a "}))
    opener, rest = chunk({"content": "<tool_"}), chunk({"content": "box> b"})
    assert machine.feed(opener) == b""
    assert machine.feed(COMMENT) == b""
    assert machine.feed(rest) == opener + COMMENT + rest


def test_call_is_emitted_where_its_block_stood_and_what_came_before_is_not_repeated() -> None:
    machine = relay()
    sent = machine.feed(first() + b"".join(said("Let me look. ")))
    assert sent == first() + b"".join(said("Let me look. "))
    waiting = [machine.feed(frame) for frame in said(BLOCK)]
    assert not any(waiting[:-1])
    assert (machine.is_passing, machine.reason) == (False, "text_call")
    out = sent + b"".join(waiting) + machine.feed(last() + DONE) + machine.close()
    CHECKS["chat"](out)
    result = outcome(out)
    assert text_of(result) == "Let me look. "
    assert [(call.name, call.input) for call in calls_of(result)] == [("look", '{"a": "x"}')]
    assert result.choices[0].finish == "tool_calls"
    assert result.response_id == "chatcmpl-1"


def test_block_that_proves_to_be_text_is_passed_on_as_it_came() -> None:
    data = first() + b"".join(said(f"So: {BROKEN} Well.")) + last() + DONE
    machine = relay()
    out = b"".join(machine.feed(frame + b"\n\n") for frame in data.split(b"\n\n")[:-1])
    assert out + machine.close() == data


def test_irregular_frame_behind_one_that_waits_is_emitted_in_its_turn() -> None:
    machine = relay()
    out = machine.feed(first() + b"".join(said("a <to")))
    nameless = chunk({"content": "ol b"}, id="")
    out += machine.feed(nameless)
    assert (machine.is_passing, machine.reason) == (False, "unusable_frame")
    out += machine.feed(b"".join(said(" <tool_c")) + last() + DONE) + machine.close()
    CHECKS["chat"](out)
    assert text_of(outcome(out)) == "a <tool b <tool_c"


def test_irregular_frame_before_one_that_waits_ends_the_passing_of_both() -> None:
    machine = relay()
    frames = [first(), *said("a <"), chunk({"content": "b"}, id=""), *said("c <tool"), last(), DONE]
    out = b"".join(machine.feed(frame) for frame in frames) + machine.close()
    assert not machine.is_passing
    assert text_of(outcome(out)) == "a <bc <tool"


def test_block_beyond_what_may_wait_is_kept_by_the_stage_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "MAX_WAITING_BYTES", 2_000)
    machine = relay()
    text = BLOCK.replace('"x"', json.dumps("x" * 200))
    out = machine.feed(first())
    out += b"".join(machine.feed(frame) for frame in said(f"So. {text}"))
    assert machine.reason == "text_held"
    out += machine.feed(last() + DONE) + machine.close()
    result = outcome(out)
    assert text_of(result) == "So. "
    assert [call.input for call in calls_of(result)] == [f'{{"a": "{"x" * 200}"}}']


def test_other_choices_do_not_wait_for_the_end_of_a_block() -> None:
    machine = relay(choices=2)
    out = machine.feed(first() + first(1))
    out += b"".join(machine.feed(frame) for frame in said(BLOCK[:40]))
    assert machine.is_passing
    found = machine.feed(chunk({"content": "Hello"}, index=1))
    assert b"Hello" in found
    assert (machine.is_passing, machine.reason) == (False, "text_held")
    out += found + b"".join(machine.feed(frame) for frame in said(BLOCK[40:]))
    out += machine.feed(last(0) + last(1) + DONE) + machine.close()
    one, other = outcome(out, 2).choices
    assert (one.finish, other.finish) == ("tool_calls", "stop")


def test_structured_call_does_not_wait_for_text() -> None:
    machine = relay()
    machine.feed(first() + b"".join(said("a <tool_call>{")))
    function = {"name": "look", "arguments": ""}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    frames = [chunk({"tool_calls": [call]})]
    frames += [
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in "{}"
    ]
    out = [machine.feed(frame) for frame in (*frames, *said("<tool_call>", 3))]
    assert frames[0] in b"".join(out[:2])
    assert all(out[2:])
    assert machine.is_passing


def test_reasoning_that_holds_a_call_is_passed_on_and_the_call_emitted_after_it() -> None:
    machine = relay(model="qwen3-8b")
    thoughts = [chunk({"reasoning_content": piece}) for piece in ("I look. ", BLOCK)]
    out = [machine.feed(frame) for frame in (first(), *thoughts)]
    assert out == [first(), *thoughts]
    received = b"".join(out) + machine.feed(last() + DONE) + machine.close()
    assert machine.reason == "text_call"
    assert [call.name for call in calls_of(outcome(received))] == ["look"]


def test_silence_while_text_waits_is_filled_as_ever() -> None:
    machine = relay()
    machine.feed(first() + b"".join(said(BLOCK[:40])))
    assert machine.keep_alive() == b": ping\n\n"


def test_body_with_a_call_in_its_text_is_written_anew() -> None:
    message = {"role": "assistant", "content": f"Let me look. {BLOCK}"}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1757000000,
        "model": "gpt-x",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    for text, is_same in ((message["content"], False), ("a < b [1] `c`", True)):
        message["content"] = text
        data = json.dumps(body, indent=1).encode()
        received, tally = relay_body(
            data, "chat", decode=DecodeContext(), encode=EncodeContext(), stage=stage()
        )
        assert (received.body == data) is is_same
        assert tally.call_count == (0 if is_same else 1)


@pytest.mark.parametrize(
    "more",
    [
        {"content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}},
        {"content_filter_offsets": {"check_offset": 1}, "content_filter_results": {}},
        {"token_ids": [1, 2]},
        {"token_ids": None},
    ],
)
def test_decorated_deltas_are_read_quickly(more: dict[str, Any]) -> None:
    reader = ChatReader()
    for frame in (first(), *said("Well", 4)):
        reader.read(parse_lines(frame))
    payload = json.loads(said("now.")[0].removeprefix(b"data: "))
    payload["choices"][0] |= more
    data = json.dumps(payload).encode()
    grown = reader.find_delta(b"data: ", data)
    assert grown is not None
    assert grown[0].grow(grown[1]) == TextDelta(0, "now.")
