"""Decoders and encoders are freed by reference counts: an answer leaves no cycles for the garbage collector.

A thousand answers a second that wait for the collector hold megabytes, which are cold in the cache when they are reused.
"""

import pytest
from bench_streams import Story, dialect_stream

from corpus_cases import DIALECTS, Case, stream_cases
from dragoman.core.store_notes import StoreNotes
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.translate import StreamInterpreter, translate_body
from dragoman.sse import MAX_FRAME_BYTES
from garbage import left_by

_DECODE = DecodeContext(choices=1)
PAIRS = [(upstream, door) for upstream in DIALECTS for door in DIALECTS]


def translate(
    upstream: str, door: str, reads: list[bytes], decode: DecodeContext = _DECODE
) -> None:
    notes = StoreNotes()
    encode = EncodeContext(seed="law", notes=notes)
    interpreter = StreamInterpreter(upstream, door, decode=decode, encode=encode)
    for read in reads:
        interpreter.feed(read)
    interpreter.close()
    # As the keeper does when it has stored the answer: the end refers to the encoder.
    notes.end = None


@pytest.mark.parametrize(("upstream", "door"), PAIRS)
def test_a_translated_stream_leaves_no_cycles(upstream: str, door: str) -> None:
    frames = list(dialect_stream(upstream, Story(60, 2, 30)))
    assert not left_by(lambda: translate(upstream, door, [b"".join(frames)]))
    assert not left_by(lambda: translate(upstream, door, frames))


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES, MAX_FRAME_BYTES // 2], ids=["a-read", "reads"])
@pytest.mark.parametrize("upstream", DIALECTS)
def test_a_frame_that_is_too_large_leaves_no_cycles(upstream: str, size: int) -> None:
    reads = [b"data: ", b"x" * size, b"x" * size, b"more"]
    assert not left_by(lambda: translate(upstream, "chat", reads))


@pytest.mark.parametrize("case", stream_cases(), ids=lambda case: case.name)
def test_no_stream_of_the_corpus_leaves_cycles(case: Case) -> None:
    stream, body = case.stream, case.body

    def work() -> None:
        for door in DIALECTS:
            translate(case.dialect, door, [stream], case.context)
            if body is not None:
                translate_body(body, case.dialect, door, decode=case.context)

    assert not left_by(work)
