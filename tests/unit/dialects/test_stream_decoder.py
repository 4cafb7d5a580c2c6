"""The machine every dialect shares: bad frames fail, late frames mute, limits, and no byte lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.open_parts import OpenPart, OpenReasoning, OpenText, Parts
from dragoman.dialects.stream_decoder import Step, StreamDecoder
from dragoman.errors import MalformedJson
from dragoman.model.events import Completed, Event, Failed, Noticed, ReasoningDelta, TextDelta
from dragoman.model.outcome import ErrorInfo, Problem
from dragoman.model.parts import Reasoning, Text
from dragoman.sse import Frame
from strategies import chunkings, rechunk

LIMIT = 24
TOO_LARGE = "expected an SSE frame of at most 24 bytes, got a longer one"


class EchoReader:
    """Notices each frame's data; `bad` cannot be read, `odd` is irregular, `end` ends the stream."""

    def __init__(self) -> None:
        self.over = False
        self.frame = 0
        self.problems: list[tuple[str, str]] = []

    def find_delta(self, _opening: bytes, _data: bytes, /) -> tuple[OpenPart, str] | None:
        return None

    def read(self, frame: Frame) -> tuple[Event, ...]:
        match frame.data:
            case b"bad":
                raise MalformedJson("expected JSON")
            case b"odd":
                self.problems.append(("odd_frame", "odd"))
            case b"end":
                self.over = True
                return (Completed(),)
            case _:
                pass
        return (heard(frame.data or b""),)

    def end(self) -> tuple[Event, ...]:
        self.over = True
        self.problems.append(("missing_end", "no end"))
        return (Completed(),)

    def fail(self, error: ErrorInfo) -> tuple[Event, ...]:
        self.over = True
        return (Failed(error),)


def heard(data: bytes) -> Noticed:
    return Noticed("unknown", name=data.decode())


def steps_of(reads: list[bytes]) -> list[Step]:
    decoder = StreamDecoder(EchoReader(), LIMIT)
    steps = [step for read in reads for step in decoder.feed(read)]
    return steps + decoder.close()


def decoded(stream: bytes) -> tuple[list[Event], list[Problem]]:
    """The events and problems, the same for every cutting, and no byte lost."""
    results: list[tuple[list[Event], list[Problem]]] = []
    for reads in rechunk(stream):
        steps = steps_of(reads)
        assert b"".join(step.raw for step in steps) == stream
        events = [event for step in steps for event in step.events]
        results.append((events, [problem for step in steps for problem in step.problems]))
    assert all(result == results[0] for result in results)
    return results[0]


def test_a_frame_that_cannot_be_read_fails_the_stream_after_what_came_before() -> None:
    events, problems = decoded(b"data: odd\n\ndata: bad\n\ndata: a\n\ndata: end\n\n")
    message = "the upstream's stream cannot be read from frame 2 on: expected JSON"
    error = ErrorInfo(kind="protocol", message=message, status=502)
    assert events == [heard(b"odd"), Failed(error)]
    assert problems == [
        Problem(1, "odd_frame", "odd"),
        Problem(2, "malformed_frame", "expected JSON"),
    ]


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (b"data: a\xff\n\n", "invalid_utf8"),
        (b"dXta: a\n\n", "malformed_frame"),
        (b'uffering":false}\n\n', "malformed_frame"),
    ],
)
def test_a_frame_that_is_no_event_stream_fails_the_stream(frame: bytes, kind: str) -> None:
    events, problems = decoded(b"data: a\n\n" + frame + b"data: end\n\n")
    assert events[0] == heard(b"a")
    assert isinstance(events[1], Failed)
    assert len(events) == 2
    assert [(problem.frame, problem.kind) for problem in problems] == [(2, kind)]


@pytest.mark.parametrize(
    "frame", [b": caf\xe9\n\n", b"retry: 5\n\n", b"\n\n", b" \n\n", b"x: y\ndata: b\n\n"]
)
def test_a_frame_that_only_looks_odd_is_read(frame: bytes) -> None:
    events, problems = decoded(b"data: a\n\n" + frame + b"data: end\n\n")
    assert events[-1] == Completed()
    assert problems == []


def test_what_the_end_of_the_wire_left_of_a_frame_is_a_cut_and_no_frame() -> None:
    events, problems = decoded(b"data: a\n\ndata: bad")
    assert events == [heard(b"a"), Completed()]
    assert [problem.kind for problem in problems] == ["malformed_frame", "missing_end"]


def test_frames_after_the_end_keep_their_bytes_and_mean_nothing() -> None:
    events, problems = decoded(b"data: end\n\ndata: late\n\n")
    assert (events, problems) == ([Completed()], [])


def test_a_stream_without_its_end_is_ended_by_the_reader() -> None:
    events, problems = decoded(b"data: a\n\ndata: b")
    assert events == [heard(b"a"), heard(b"b"), Completed()]
    assert problems == [Problem(2, "missing_end", "no end")]


def test_a_frame_over_the_limit_fails_the_stream_after_what_came_before() -> None:
    big = b"data: " + b"x" * LIMIT + b"\n\n"
    for stream in (b"data: a\n\n" + big + b"data: b\n\n", b"data: a\n\n" + big):
        events, problems = decoded(stream)
        error = ErrorInfo(kind="protocol", message=TOO_LARGE, status=502)
        assert events == [heard(b"a"), Failed(error)]
        assert problems == [Problem(2, "frame_too_large", TOO_LARGE)]


def test_a_frame_over_the_limit_after_the_end_fails_nothing() -> None:
    events, problems = decoded(b"data: end\n\ndata: " + b"x" * LIMIT + b"\n\n")
    assert events == [Completed()]
    assert [problem.kind for problem in problems] == ["frame_too_large"]


@given(
    st.lists(
        st.sampled_from(
            (b"data: a\n\n", b"data: bad\r\n\r\n", b": c\n\n", b"x" * 30, b"\xff", b"\n")
        ),
        max_size=6,
    ).map(b"".join),
    st.data(),
)
def test_no_cutting_changes_what_is_decoded(stream: bytes, data: st.DataObject) -> None:
    def summary(steps: list[Step]) -> tuple[list[Event], list[Problem], bytes]:
        return (
            [event for step in steps for event in step.events],
            [problem for step in steps for problem in step.problems],
            b"".join(step.raw for step in steps),
        )

    whole = summary(steps_of([stream]))
    assert summary(steps_of(data.draw(chunkings(stream)))) == whole
    assert whole[2] == stream


class DeltaReader(EchoReader):
    """Takes plain frames for deltas of a text; `odd` is one of a reasoning, and irregular there too."""

    def __init__(self) -> None:
        super().__init__()
        parts = Parts(self.problems)
        self._text = OpenText(parts, Text())
        self._reasoning = OpenReasoning(parts, Reasoning())

    def find_delta(self, _opening: bytes, data: bytes, /) -> tuple[OpenPart, str] | None:
        if data == b"odd":
            self.problems.append(("odd_frame", "odd"))
            return self._reasoning, "odd"
        return (self._text, "a") if data == b"a" else None

    def read(self, frame: Frame) -> tuple[Event, ...]:
        grown = self.find_delta(b"", frame.data or b"")
        if grown is None:
            return super().read(frame)
        event = grown[0].grow(grown[1])
        return () if event is None else (event,)


@given(
    chunkings(
        b"data: a\n\nevent: x\ndata: odd\n\ndata: a\n\ndata: b\n\ndata: odd\n\ndata: end\n\ndata: a\n\n"
    )
)
def test_events_alone_are_those_of_the_steps(reads: list[bytes]) -> None:
    assert [problem.frame for problem in compare_events_and_steps(reads)] == [2, 5]


def compare_events_and_steps(reads: list[bytes]) -> list[Problem]:
    with_steps, alone = StreamDecoder(DeltaReader()), StreamDecoder(DeltaReader())
    steps = [step for read in reads for step in with_steps.feed(read)] + with_steps.close()
    events = [event for read in reads for event in alone.events(read)]
    events += [event for step in alone.close() for event in step.events]
    assert events == [event for step in steps for event in step.events]
    assert alone.problems == with_steps.problems
    assert [problem for step in steps for problem in step.problems] == with_steps.problems
    return alone.problems


FRAMES = (
    b"data: a\n\n",
    b"data: odd\n\n",
    b"data: \xc3\xa9\n\n",
    b"data: \xff\n\n",
    b"data: a\ndata: b\n\n",
    b"event: x.delta\ndata: a\n\n",
    b"event: x.delta\ndata: odd\n\n",
    b"event: x.delta\ndata: bad\n\n",
    b"event: x\ndata: a\n\n",
    b"event: " + b"x" * 300 + b".delta\ndata: a\n\n",
    b": c\n\n",
    b"\n",
    b"data: end\n\n",
)


@given(st.lists(st.sampled_from(FRAMES), max_size=16).map(b"".join), st.data())
def test_frames_that_begin_alike_and_others_mean_the_same_in_one_read(
    stream: bytes, data: st.DataObject
) -> None:
    compare_events_and_steps([stream])
    compare_events_and_steps(data.draw(chunkings(stream)))


def test_events_after_a_frame_over_the_limit_are_none() -> None:
    decoder = StreamDecoder(EchoReader(), LIMIT)
    first = decoder.events(b"data: " + b"x" * LIMIT)
    assert [type(event) for event in first] == [Failed]
    assert list(decoder.events(b"data: a\n\n")) == []
    assert [problem.kind for problem in decoder.problems] == ["frame_too_large"]


def test_a_read_that_is_one_frame_keeps_its_problem() -> None:
    decoder = StreamDecoder(DeltaReader())
    reads = [b"data: a\n\n", b"data: a\n\n", b"data: odd\n\n"]
    assert [list(decoder.events(read)) for read in reads] == [
        [TextDelta(0, "a")],
        [TextDelta(0, "a")],
        [ReasoningDelta(1, "odd")],
    ]
    assert decoder.problems == [Problem(3, "odd_frame", "odd")]
