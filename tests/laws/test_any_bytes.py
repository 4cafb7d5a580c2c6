"""Laws 1 and 2 on any bytes at all: nothing raises outside our errors, the bytes come back, the events are grammatical.

Mutated real streams, bodies and requests: bytes cut, doubled, swapped and flipped, and JSON values replaced by values
of other types where they stand. The seeds are fixed, so that a failure is the same failure tomorrow; set
DRAGOMAN_FUZZ_ROUNDS to run more (`make fuzz`).
"""

import itertools
import json
import os
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from corpus_cases import DIALECTS, folder_cases, stream_cases
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.base import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import StreamTranslator, make_decoder
from dragoman.errors import RequestRefused
from dragoman.model.events import Completed, Event, Failed

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
BATCHES = range(20 * ROUNDS)
STREAMS_PER_BATCH = 1500
BODIES_PER_BATCH = 2000
REQUESTS_PER_BATCH = 1500
"""Twenty batches of 5,000: the hundred thousand cases that every run makes."""

SMALL = 8_000  # bytes; larger seeds only make the same mistakes more slowly
STREAMS = [(case.dialect, case.stream) for case in stream_cases() if len(case.stream) < SMALL]
BODIES = [(case.meta["dialect"], case.read("body.json")) for case in folder_cases("bodies")]
REQUESTS = [(case.meta["source"], case.read("request.json")) for case in folder_cases("requests")]
ODD_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1e300,
    "",
    "x",
    [],
    {},
    [None],
    [[]],
    {"type": None},
    "\ud83d",
    "{",
    10**30,
]
ODD_BYTES = [
    b"\xff",
    b"\r",
    b"\n\n",
    b"\x00",
    b"{",
    b"}",
    b'"',
    b"\\ud83d",
    b"\xe2\x80\xa8",
    b": ",
    b"[DONE]",
]


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.randrange(1, 40))
        match rng.randrange(5):
            case 0:
                data = data[:start] + data[end:]
            case 1:
                data = data[:start] + data[start:end] * 2 + data[end:]
            case 2:
                data = data[:start] + rng.choice(ODD_BYTES) + data[start:]
            case 3:
                data = data[:start] + rng.randbytes(end - start) + data[end:]
            case _:
                data = data[:start]
    return data


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key or index) inside a JSON value."""
    entries: list[tuple[Any, Any]] = []
    if hasattr(value, "items"):
        entries = list(value.items())
    elif hasattr(value, "append"):
        entries = [(index, value[index]) for index in range(len(value))]
    for key, item in entries:
        yield value, key
        yield from places(item)


def mutate_json(value: Any, rng: random.Random) -> Any:
    """The value with one place in it changed: replaced, removed, renamed or doubled."""
    holders = list(places(value))
    if not holders:
        return deepcopy(rng.choice(ODD_VALUES))
    holder, key = rng.choice(holders)
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(key, int):
            holder.append(holder[key])
        case 2 if isinstance(key, str):
            holder[key + "x"] = holder.pop(key)
        case _:
            holder[key] = deepcopy(rng.choice(ODD_VALUES))
    return value


def mutate_body(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return mutate_bytes(data, rng)
    value = json.loads(data)
    for _ in range(rng.randint(1, 3)):
        value = mutate_json(value, rng)
    return json.dumps(value).encode()


def mutate_stream(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    frames = data.split(b"\n\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(frames))
        head, mark, payload = frames[at].partition(b"data: ")
        match rng.randrange(5):
            case 0:
                del frames[at]
            case 1:
                frames.insert(rng.randrange(len(frames) + 1), frames[at])
            case 2:
                other = rng.randrange(len(frames))
                frames[at], frames[other] = frames[other], frames[at]
            case _ if mark and payload.startswith(b"{") and b"\n" not in payload:
                value = mutate_json(json.loads(payload), rng)
                frames[at] = head + mark + json.dumps(value).encode()
            case _:
                pass
        if not frames:
            break
    return b"\n\n".join(frames)


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
