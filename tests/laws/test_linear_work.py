"""Law 7: work is linear in what arrives. Counted in calls, not in seconds, so that it is the same on every machine."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

import pytest
from bench_streams import Story, dialect_stream

from corpus_cases import DIALECTS
from dragoman._json import dumps
from dragoman.dialects.translate import StreamTranslator, make_decoder
from dragoman.sse import FrameParser

SMALL, LARGE = 1_000, 10_000


def calls_of(work: Callable[[], object]) -> int:
    """How many functions, Python's and C's, the work calls."""
    calls = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def translate(source: str, target: str, frames: list[bytes]) -> None:
    translator = StreamTranslator(source, target)
    for frame in frames:
        translator.feed(frame)
    translator.close()


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
def test_ten_times_the_argument_deltas_cost_ten_times_the_calls(source: str, target: str) -> None:
    small, large = (
        dialect_stream(source, Story(texts=0, calls=1, arguments=count)) for count in (SMALL, LARGE)
    )
    few = calls_of(lambda: translate(source, target, small))
    many = calls_of(lambda: translate(source, target, large))
    assert many <= few * (LARGE / SMALL) * 1.05


def test_a_frame_in_many_reads_is_joined_once() -> None:
    data = b'data: {"t":"' + b"x" * 1_000_000 + b'"}\n\n'
    few = calls_of(lambda: feed_in(FrameParser(), data, 10_000))
    many = calls_of(lambda: feed_in(FrameParser(), data, 1_000))
    assert many <= few * 11


def feed_in(parser: FrameParser, data: bytes, size: int) -> None:
    for start in range(0, len(data), size):
        parser.feed(data[start : start + size])


def test_missing_events_beside_many_open_calls_cost_linear_work() -> None:
    few = calls_of(lambda: decode_gaps(100))
    many = calls_of(lambda: decode_gaps(1_000))
    assert many <= few * 10 * 1.05


def decode_gaps(count: int) -> None:
    """A Responses stream that begins many calls, and then leaves out an event before each event."""
    decoder = make_decoder("responses")
    for number in range(count):
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"c{number}", "name": "f"}
        decoder.feed(event("response.output_item.added", number, output_index=number, item=item))
    for number in range(count, 3 * count, 2):
        decoder.feed(event("keepalive", number))


def event(kind: str, number: int, **fields: object) -> bytes:
    return b"data: %b\n\n" % dumps({"type": kind, "sequence_number": number, **fields})


MEGABYTE = 1024 * 1024
PIECE = "x" * 1024


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
def test_a_large_argument_passes_in_bounded_memory(source: str, target: str) -> None:
    """The decoder keeps the argument once, joins it once, and the encoder writes it at most twice more."""
    frames = wide_stream(source, 4 * 1024)
    tracemalloc.start()
    try:
        translate(source, target, frames)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 10 * 4 * MEGABYTE


def wide_stream(source: str, count: int) -> list[bytes]:
    """A stream whose one call has `count` pieces of 1 KB."""
    story = WideStory(texts=0, calls=1, arguments=count)
    return dialect_stream(source, story)


class WideStory(Story, frozen=True):
    def pieces(self) -> list[str]:
        return ['{"a":"', *([PIECE] * self.arguments), '"}']
