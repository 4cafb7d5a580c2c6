"""Laws 1 and 2 on regular streams: reads may be cut anywhere, bytes come back, events are grammatical and add up.

What every encoder writes is fed to its dialect's decoder whole, byte by byte and in random reads. (`test_any_bytes`
does the same with streams that are broken.) `make laws` reads ten times as many cases.
"""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_cases import DIALECTS
from disagreements import find_disagreements
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.stream_decoder import Step
from dragoman.dialects.translate import make_decoder
from dragoman.model.events import Event
from projections import write
from strategies import byte_by_byte, events, random_cuts

ROUNDS = int(os.environ.get("DRAGOMAN_LAW_ROUNDS", "1"))
law = settings(max_examples=50 * ROUNDS, deadline=None, derandomize=True)


def steps_of(dialect: str, reads: list[bytes]) -> list[Step]:
    decoder = make_decoder(dialect)
    steps = [step for data in reads for step in decoder.feed(data)]
    return steps + decoder.close()


def events_of(dialect: str, reads: list[bytes]) -> list[Event]:
    """The same by the shorter way, which keeps no bytes."""
    decoder = make_decoder(dialect)
    found = [event for data in reads for event in decoder.events(data)]
    return found + [event for step in decoder.close() for event in step.events]


@pytest.mark.parametrize("dialect", DIALECTS)
@law
@given(sequence=events(max_parts=3), seed=st.integers(0, 2**32))
def test_reads_may_be_cut_anywhere(dialect: str, sequence: tuple[Event, ...], seed: int) -> None:
    data = write(dialect, sequence).data
    whole = steps_of(dialect, [data])
    assert b"".join(step.raw for step in whole) == data
    told_whole = [event for step in whole for event in step.events]
    assert events_of(dialect, [data]) == told_whole
    frames = [frame + b"\n\n" for frame in data.split(b"\n\n")[:-1]]
    for reads in (byte_by_byte(data), random_cuts(data, seed), frames):
        assert steps_of(dialect, reads) == whole
        assert events_of(dialect, reads) == told_whole


@pytest.mark.parametrize("dialect", DIALECTS)
@law
@given(sequence=events(may_amend=True))
def test_decoded_events_are_grammatical_and_their_deltas_add_up(
    dialect: str, sequence: tuple[Event, ...]
) -> None:
    steps = steps_of(dialect, [write(dialect, sequence).data])
    decoded = [event for step in steps for event in step.events]
    assert is_grammatical(decoded)
    assert find_disagreements(decoded) == ()
