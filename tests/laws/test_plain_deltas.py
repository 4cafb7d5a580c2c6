"""A delta read by its type alone means what it means when it is read field by field, and steps mean what events do."""

import pytest
from bench_streams import Story, dialect_stream

from corpus_cases import DIALECTS, Case, stream_cases
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.stream_decoder import FrameReader, StreamDecoder
from dragoman.model.events import Event
from dragoman.model.outcome import Problem

CASES = stream_cases()


def find_none(_opening: bytes, _data: bytes, /) -> None:
    """Takes no frame for a plain delta."""


def slow_reader(dialect: str, context: DecodeContext) -> FrameReader:
    reader = codec(dialect).reader(context)
    reader.find_delta = find_none  # type: ignore[method-assign]  # what the law compares is reading without it
    return reader


def decoded(decoder: StreamDecoder, reads: list[bytes]) -> tuple[list[Event], list[Problem]]:
    steps = [step for read in reads for step in decoder.feed(read)] + decoder.close()
    return [event for step in steps for event in step.events], decoder.problems


def decode_reads(decoder: StreamDecoder, reads: list[bytes]) -> tuple[list[Event], list[Problem]]:
    events = [event for read in reads for event in decoder.events(read)]
    events += [event for step in decoder.close() for event in step.events]
    return events, decoder.problems


def check(dialect: str, context: DecodeContext, reads: list[bytes]) -> None:
    def decoder() -> StreamDecoder:
        return StreamDecoder(codec(dialect).reader(context))

    quick = decoded(decoder(), reads)
    assert quick == decoded(StreamDecoder(slow_reader(dialect, context)), reads)
    assert quick == decode_reads(decoder(), reads)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_read_quickly_means_the_same(case: Case) -> None:
    check(case.dialect, case.context, [case.stream])
    check(case.dialect, case.context, case.stream.splitlines(keepends=True))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_read_quickly_means_the_same(dialect: str) -> None:
    frames = dialect_stream(dialect, Story())
    check(dialect, DecodeContext(), frames)
    check(dialect, DecodeContext(), [b"".join(frames)])
