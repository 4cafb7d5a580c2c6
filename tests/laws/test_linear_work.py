"""Law 7: work is linear in what arrives. Counted in calls, not in seconds, so that it is the same on every machine."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

import pytest
from bench_streams import Story, dialect_stream

from corpus_cases import DIALECTS
from dragoman.dialects.translate import StreamTranslator
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
