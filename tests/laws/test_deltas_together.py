"""Deltas that come together mean what they mean one by one, and are encoded alike: in whole streams and in spoilt ones.

Long streams, as their vendors send them and with bytes and values changed: read frame by frame, at once, and cut
anywhere.
"""

import os
import random

import pytest
from bench_streams import Story, dialect_stream

from corpus_cases import DIALECTS
from dragoman.core.aliases import NameMap
from dragoman.core.restore import Restorer
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.relay import StreamRelay
from dragoman.dialects.stream_decoder import Deltas, StreamDecoder
from dragoman.dialects.translate import StreamInterpreter, make_decoder
from dragoman.model.events import Event
from dragoman.model.outcome import Problem
from dragoman.model.request import Request, Tool
from dragoman.textcalls.stage import TextCallStage, stage_for
from mutation import mutate_stream
from strategies import random_cuts

STORY = Story(60, 2, 30)
ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
SPOILT = 60 * ROUNDS  # `make laws` reads many more
DECODE = DecodeContext(choices=1)
ENCODE = EncodeContext(seed="law")
Read = tuple[list[Event], list[Problem]]


def spoilt(dialect: str) -> list[bytes]:
    """The stream, and many that are like it but for some places.

    No stream has a CR: frames that come together with one are read field by field, which also reports unknown fields of a
    delta. No stream has extra blank lines, which may or may not be passed on.
    """
    data = b"".join(dialect_stream(dialect, STORY))
    rng = random.Random(7)
    made = [data, *(mutate_stream(data, rng) for _ in range(SPOILT))]
    return [each for each in made if each and b"\r" not in each and b"\n\n\n" not in each]


def frames_of(data: bytes) -> list[bytes]:
    *frames, rest = data.split(b"\n\n")
    return [frame for frame in (*(frame + b"\n\n" for frame in frames), rest) if frame]


def decoder_of(dialect: str) -> StreamDecoder:
    return StreamDecoder(codec(dialect).reader(DECODE))


def ended(decoder: StreamDecoder, events: list[Event]) -> Read:
    return events + [event for step in decoder.close() for event in step.events], decoder.problems


def read_frames(dialect: str, reads: list[bytes]) -> Read:
    decoder = decoder_of(dialect)
    return ended(
        decoder,
        [event for read in reads for step in decoder.feed(read) for event in step.events],
    )


def read_at_once(dialect: str, data: bytes) -> Read:
    decoder = decoder_of(dialect)
    return ended(decoder, [*decoder.events(data)])


def read_steps(dialect: str, data: bytes) -> Read:
    decoder = decoder_of(dialect)
    steps = decoder.feed(data)
    assert b"".join([step.raw for step in steps]) + data[len(data) - decoder.waiting :] == data
    return ended(decoder, [event for step in steps for event in step.events])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_frames_that_come_together_mean_what_they_mean_alone(dialect: str) -> None:
    for number, data in enumerate(spoilt(dialect)):
        frames = frames_of(data)
        alone = read_frames(dialect, frames)
        assert read_at_once(dialect, data) == alone
        assert read_steps(dialect, data) == alone
        assert read_frames(dialect, random_cuts(data, number)) == alone


@pytest.mark.parametrize("dialect", DIALECTS)
def test_deltas_of_a_long_stream_are_kept_together(dialect: str) -> None:
    frames = dialect_stream(dialect, Story())
    decoder = make_decoder(dialect)
    read = decoder.decode(b"".join(frames))
    assert sum(len(one.texts) for one in read if isinstance(one, Deltas)) > 500
    assert b"".join([one.raw for one in read]) == b"".join(frames)


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize("target", DIALECTS)
def test_frames_that_come_together_are_encoded_as_they_are_alone(source: str, target: str) -> None:
    def interpreter() -> StreamInterpreter:
        change, scan = Restorer(NameMap.build(())), scanning()
        return StreamInterpreter(
            source, target, decode=DECODE, encode=ENCODE, change=change, scan=scan
        )

    for data in spoilt(source)[:60]:
        frames = frames_of(data)
        alone, at_once = interpreter(), interpreter()
        sent = b"".join([alone.feed(frame) for frame in frames]) + alone.close()
        assert at_once.feed(data) + at_once.close() == sent
        assert alone.tally.call_count == at_once.tally.call_count


def scanning() -> TextCallStage | None:
    return stage_for(Request(model="m", tools=(Tool(name="write"),)), seed="law")


@pytest.mark.parametrize("has_stage", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_frames_that_come_together_pass_as_they_do_alone(dialect: str, has_stage: bool) -> None:
    def relay() -> StreamRelay:
        stage = scanning() if has_stage else None
        return StreamRelay(dialect, decode=DECODE, encode=ENCODE, stage=stage)

    for number, data in enumerate(spoilt(dialect)):
        frames = frames_of(data)
        alone, at_once, in_cuts = relay(), relay(), relay()
        passed = b"".join([alone.feed(frame) for frame in frames]) + alone.close()
        assert at_once.feed(data) + at_once.close() == passed
        cuts = [in_cuts.feed(cut) for cut in random_cuts(data, number)]
        assert b"".join(cuts) + in_cuts.close() == passed
        assert {alone.reason} == {at_once.reason, in_cuts.reason}
