"""Deltas that came in one read: kept together they mean what they mean one by one."""

import json

from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.relay import StreamRelay
from dragoman.dialects.stream_decoder import Deltas, FrameStep, StreamDecoder
from dragoman.model.events import Event, Failed, InputDelta


def chunk(delta: dict[str, object], **fields: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**data, "choices": [choice], **fields}).encode() + b"\n\n"


def arguments(text: str, index: int = 0) -> bytes:
    return chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})


def call(index: int) -> bytes:
    function = {"name": "f", "arguments": ""}
    entry = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
    return chunk({"tool_calls": [entry]})


def told_and_meant(frames: list[bytes]) -> tuple[list[FrameStep | Deltas], list[Event]]:
    """Return the steps of frames read together, and the events of the same frames read one by one."""
    one_by_one = StreamDecoder(codec("chat").reader(DecodeContext()))
    meant = [event for frame in frames for event in one_by_one.events(frame)]
    decoder = StreamDecoder(codec("chat").reader(DecodeContext()))
    sent = decoder.decode(b"".join(frames))
    assert [event for one in sent for event in one.events] == meant
    assert decoder.problems == one_by_one.problems
    return sent, meant


def runs_of(found: list[FrameStep | Deltas]) -> list[int]:
    return [len(one.texts) for one in found if isinstance(one, Deltas)]


def test_deltas_of_one_text_are_kept_together() -> None:
    words = [chunk({"content": f"word{number}"}) for number in range(100)]
    found, _ = told_and_meant([chunk({"role": "assistant"}), *words])
    assert sum(runs_of(found)) > 80


def test_call_that_follows_another_is_not_taken_for_it() -> None:
    pieces = ['{"', "a", '":"', *"x" * 20, '"}']
    frames = [chunk({"role": "assistant", "content": None})]
    for index in range(2):
        frames += [call(index), *(arguments(piece, index) for piece in pieces)]
    found, meant = told_and_meant(frames)
    assert len({one.part for one in found if isinstance(one, Deltas)}) == 2
    for part in range(2):
        texts = [
            event.text for event in meant if isinstance(event, InputDelta) and event.part == part
        ]
        assert "".join(texts) == "".join(pieces)


def test_text_after_a_call_is_another_part() -> None:
    words = [chunk({"content": f"word{number}"}) for number in range(20)]
    found, _ = told_and_meant(
        [chunk({"role": "assistant"}), *words, call(0), arguments("{}"), *words]
    )
    assert len({one.part for one in found if isinstance(one, Deltas)}) == 2


def test_arguments_that_are_resent_as_a_whole_are_not_kept_together() -> None:
    whole = '{"a":"' + "x" * 40 + '"}'
    frames = [chunk({"role": "assistant"}), call(0)]
    found, _ = told_and_meant([*frames, *(arguments(whole[:end]) for end in range(3, 40))])
    assert not runs_of(found)


def test_delta_that_says_more_stands_alone() -> None:
    words = [chunk({"content": f"word{number}"}) for number in range(30)]
    odd = [
        chunk({"content": "thought", "reasoning_content": "hm"}),
        chunk({"content": ""}),
        chunk({"content": "counted"}, usage={"prompt_tokens": 1, "completion_tokens": 2}),
        chunk({"content": "broken"}).replace(b'"broken"', b'"bro\\ken"'),
        b": a comment\n\n",
    ]
    found, _ = told_and_meant(
        [chunk({"role": "assistant"}), *(frame for each in odd for frame in (*words, each)), *words]
    )
    assert len(runs_of(found)) == 4  # the broken one ends the stream


def test_deltas_that_differ_in_other_fields_are_kept_together() -> None:
    frames = [chunk({"content": f"word{number}"}, created=number) for number in range(300)]
    found, _ = told_and_meant([chunk({"role": "assistant"}), *frames])
    assert sum(runs_of(found)) > 280


def test_deltas_pass_exactly_where_that_is_wanted() -> None:
    frames = [chunk({"role": "assistant"}), *(chunk({"content": "a"}) for _ in range(20))]
    relay = StreamRelay("chat", decode=DecodeContext(), encode=EncodeContext(), exact=True)
    assert relay.feed(b"".join(frames)) == b"".join(frames)


def test_frames_after_one_over_the_limit_mean_nothing() -> None:
    decoder = StreamDecoder(codec("chat").reader(DecodeContext()), 400)
    frames = [chunk({"content": "a" * size}) for size in (1, 2, 500, 1, 1, 1, 1, 1, 1)]
    data = b"".join(frames)
    assert isinstance([*decoder.events(data), *decoder.events(data)][-1], Failed)
    assert decoder.decode(data) == [FrameStep(data)]
