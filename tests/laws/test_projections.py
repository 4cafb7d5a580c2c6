"""Laws 5 and 10: what comes back is what was sent, less what the loss table declares; and every loss is reported.

The cases are the same in every run. `make laws` reads ten times as many.
"""

import os

import pytest
from hypothesis import given, settings

import doors
from corpus_cases import DIALECTS
from dragoman.dialects.registry import codec
from dragoman.model.events import Completed, Event, Failed, PartEnded, PartStarted
from dragoman.model.parts import Call
from projections import project, read, received, without_the_unheard_of, write
from strategies import events
from vendor_answers import STREAMS, frames

ROUNDS = int(os.environ.get("DRAGOMAN_LAW_ROUNDS", "1"))
law = settings(max_examples=50 * ROUNDS, deadline=None, derandomize=True)

DOORS = {
    "chat": doors.check_chat,
    "responses": doors.check_responses,
    "messages": doors.check_own_messages,
}

CARRIED = {"chat": {"output_media", "stop_sequence"}, "messages": {"invalid_input"}}
"""Forms that only some servers and clients of a dialect know, or bear: reported even if they came that way."""


@pytest.mark.parametrize("dialect", DIALECTS)
@law
@given(sequence=events())
def test_what_comes_back_is_what_was_sent_less_the_declared_losses(
    dialect: str, sequence: tuple[Event, ...]
) -> None:
    written = write(dialect, sequence)
    expected = project(dialect, sequence)
    assert received(dialect, read(dialect, [written.data]).events) == expected.outcome
    assert {loss.code for loss in written.losses} == expected.codes
    assert expected.codes <= codec(dialect).losses.keys()


VENDORS = [
    (source, name, target)
    for source in DIALECTS
    for name in STREAMS[source]
    for target in DIALECTS
    if source != target
]


@pytest.mark.parametrize(("source", "name", "target"), VENDORS)
def test_what_a_vendor_said_crosses_less_the_declared_losses(
    source: str, name: str, target: str
) -> None:
    found = read(source, [frames(source, STREAMS[source][name])]).events
    written = write(target, found)
    expected = project(target, found)
    back = read(target, [written.data])
    assert received(target, back.events) == expected.outcome
    assert {loss.code for loss in written.losses} == expected.codes
    assert back.problems == ()


@pytest.mark.parametrize("dialect", DIALECTS)
@law
@given(sequence=events(may_fail=False))
def test_what_a_dialect_has_said_it_can_say_again(
    dialect: str, sequence: tuple[Event, ...]
) -> None:
    once = read(dialect, [write(dialect, sequence).data])
    if not isinstance(once.events[-1], Completed):
        return  # a cut call that looks whole: see the Messages encoder
    again = write(dialect, once.events)
    twice = read(dialect, [again.data])
    assert received(dialect, twice.events) == received(dialect, once.events)
    assert {loss.code for loss in again.losses} <= CARRIED.get(dialect, set())


@pytest.mark.parametrize("dialect", DIALECTS)
@law
@given(sequence=events())
def test_every_answer_is_written_as_the_clients_of_the_dialect_demand(
    dialect: str, sequence: tuple[Event, ...]
) -> None:
    DOORS[dialect](write(dialect, without_the_unheard_of(dialect, sequence)).data)


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@law
@given(sequence=events(may_amend=True))
def test_an_answer_that_was_amended_fails_as_the_clients_of_the_dialect_demand(
    dialect: str, sequence: tuple[Event, ...]
) -> None:
    data = write(dialect, without_the_unheard_of(dialect, sequence)).data
    DOORS[dialect](data)
    shown = {0, 1} if dialect == "chat" else {0}
    choices = {event.part: event.choice for event in sequence if isinstance(event, PartStarted)}
    is_amended = any(
        isinstance(event, PartEnded)
        and event.amended
        and isinstance(event.value, Call)
        and event.value.executor == "client"
        and choices[event.part] in shown
        for event in sequence
    )
    if is_amended:
        assert isinstance(read(dialect, [data]).events[-1], Failed)
