"""Laws 1 and 2 on any bytes at all: nothing raises outside our errors, the bytes come back, the events are grammatical.

Mutated real streams, bodies and requests: bytes cut, doubled, swapped and flipped, and JSON values replaced by values
of other types where they stand. The seeds are fixed, so that a failure is the same failure tomorrow; set
DRAGOMAN_FUZZ_ROUNDS to run more (`make fuzz`).
"""

import itertools
import json
import os
import random
from collections.abc import Callable

import pytest

from corpus_cases import DIALECTS, folder_cases, stream_cases
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import StreamTranslator, make_decoder
from dragoman.errors import RequestRefused
from dragoman.model.events import Completed, Event, Failed
from mutation import mutate_body, mutate_stream

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
BATCHES = range(4 * ROUNDS)
STREAMS_PER_BATCH = 1500
BODIES_PER_BATCH = 2000
REQUESTS_PER_BATCH = 1500
"""Four batches of 5,000: the twenty thousand cases that every run makes. `make fuzz` makes a million."""

SMALL = 8_000  # bytes; larger seeds only make the same mistakes more slowly
STREAMS = [(case.dialect, case.stream) for case in stream_cases() if len(case.stream) < SMALL]
BODIES = [(case.meta["dialect"], case.read("body.json")) for case in folder_cases("bodies")]
REQUESTS = [(case.meta["source"], case.read("request.json")) for case in folder_cases("requests")]


def reads_of(data: bytes, rng: random.Random) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 5, 30))))
    bounds = [0, *cuts, len(data)]
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


def run_batch(batch: int, count: int, name: str, one: Callable[[random.Random], None]) -> None:
    for number in range(count):
        rng = random.Random(f"{name} {batch} {number}")
        try:
            one(rng)
        except BaseException as error:
            error.add_note(f"{name}, batch {batch}, case {number}")
            raise


def check_stream(rng: random.Random) -> None:
    dialect, seed = rng.choice(STREAMS)
    data = mutate_stream(seed, rng)
    if rng.random() < 0.05:
        dialect = rng.choice(DIALECTS)
    decoder = make_decoder(dialect)
    steps = [step for read in reads_of(data, rng) for step in decoder.feed(read)]
    steps += decoder.close()
    events: list[Event] = [event for step in steps for event in step.events]
    assert b"".join(step.raw for step in steps) == data
    assert is_grammatical(events), events
    assert isinstance(events[-1], Completed | Failed)
    translator = StreamTranslator(dialect, rng.choice(DIALECTS))
    out = translator.feed(data) + translator.close()
    assert out
    out.decode("utf-8")


def check_body(rng: random.Random) -> None:
    dialect, seed = rng.choice(BODIES)
    data = mutate_body(seed, rng)
    step = codec(dialect).read_body(data, DecodeContext())
    assert step.raw == data
    assert is_grammatical(step.events), step.events
    assert isinstance(step.events[-1], Completed | Failed)
    json.loads(codec(rng.choice(DIALECTS)).encode_body(step.events, EncodeContext()))


def check_request(rng: random.Random) -> None:
    dialect, seed = rng.choice(REQUESTS)
    data = mutate_body(seed, rng)
    try:
        request = codec(dialect).decode_request(data)
        encoded = codec(rng.choice(DIALECTS)).encode_request(request)
    except RequestRefused:
        return
    json.loads(encoded.body)


@pytest.mark.parametrize("batch", BATCHES)
def test_no_stream_breaks_a_decoder_or_an_encoder(batch: int) -> None:
    run_batch(batch, STREAMS_PER_BATCH, "stream", check_stream)


@pytest.mark.parametrize("batch", BATCHES)
def test_no_body_breaks_a_reader_or_an_encoder(batch: int) -> None:
    run_batch(batch, BODIES_PER_BATCH, "body", check_body)


@pytest.mark.parametrize("batch", BATCHES)
def test_no_request_does_worse_than_be_refused(batch: int) -> None:
    run_batch(batch, REQUESTS_PER_BATCH, "request", check_request)
