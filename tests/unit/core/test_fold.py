"""Folding and unfolding: streamed and whole answers are one thing."""

import pytest
from hypothesis import given

from disagreements import find_disagreements
from dragoman._json import Raw
from dragoman.core.fold import fold, unfold
from dragoman.core.grammar import GrammarChecker, is_grammatical
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    Noticed,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import Choice, ErrorInfo, Limits, Outcome, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from strategies import events, outcomes, prefixes, unfinished

ERROR = ErrorInfo(kind="upstream", message="gone")
EXTRA = Extra("chat", {"x": Raw(b"1")})
TEXT = Text(status="in_progress")


def call_header(name: str) -> Call:
    return Call(call_id=f"call_{name}", name=name, status="in_progress")


@given(outcomes())
def test_folding_an_unfolded_answer_gives_it_back(outcome: Outcome) -> None:
    assert fold(unfold(outcome)) == outcome


@given(outcomes())
def test_an_unfolded_answer_is_grammatical_and_its_deltas_join(outcome: Outcome) -> None:
    sequence = unfold(outcome)
    grammar = GrammarChecker()
    for event in sequence:
        grammar.check(event)
    assert grammar.is_over == (outcome.completed or outcome.error is not None)
    assert find_disagreements(sequence) == ()


@given(events(may_amend=True))
def test_the_parts_of_an_answer_are_the_values_its_ends_carry(sequence: tuple[Event, ...]) -> None:
    outcome = fold(sequence)
    choices = {event.part: event.choice for event in sequence if isinstance(event, PartStarted)}
    values = {event.part: event.value for event in sequence if isinstance(event, PartEnded)}
    assert [choice.index for choice in outcome.choices] == sorted(
        {choice.index for choice in outcome.choices}
    )
    for choice in outcome.choices:
        numbers = [number for number, owner in choices.items() if owner == choice.index]
        assert choice.parts == tuple(values[number] for number in numbers)
    assert outcome.completed == isinstance(sequence[-1], Completed)
    assert (outcome.error is not None) == isinstance(sequence[-1], Failed)


@given(prefixes())
def test_the_open_parts_of_a_beginning_are_what_was_emitted_and_incomplete(
    sequence: tuple[Event, ...],
) -> None:
    values = unfinished(sequence)
    values |= {event.part: event.value for event in sequence if isinstance(event, PartEnded)}
    owners = {event.part: event.choice for event in sequence if isinstance(event, PartStarted)}
    for choice in fold(sequence).choices:
        numbers = [number for number, owner in owners.items() if owner == choice.index]
        assert choice.parts == tuple(values[number] for number in numbers)


def test_a_whole_answer_folds_to_its_outcome() -> None:
    sequence = (
        Noticed("comment"),
        Started("resp_1", "a-model", 7, EXTRA),
        UsageReported(Usage(input=3)),
        PartStarted(0, TEXT, 1),
        PartStarted(1, call_header("f")),
        Progress("searching"),
        TextDelta(0, "not the last word"),
        InputDelta(1, "{}"),
        PartEnded(1, Call(call_id="call_f", name="f", input="{}")),
        PartEnded(0, Text(text="the last word"), amended=True),
        Finished("stop_sequence", 1, "END", extra=EXTRA),
        Finished("tool_calls", 0),
        LimitsReported(Limits(balance="1")),
        LimitsReported(Limits(balance="2")),
        UsageReported(Usage(output=4)),
        Completed(EXTRA),
    )
    assert fold(sequence) == Outcome(
        response_id="resp_1",
        model="a-model",
        created=7,
        choices=(
            Choice(
                index=0,
                parts=(Call(call_id="call_f", name="f", input="{}"),),
                finish="tool_calls",
            ),
            Choice(
                index=1,
                parts=(Text(text="the last word"),),
                finish="stop_sequence",
                stop_sequence="END",
                finish_extra=EXTRA,
            ),
        ),
        usage=Usage(input=3, output=4),
        limits=Limits(balance="2"),
        completed=True,
        started_extra=EXTRA,
        completed_extra=EXTRA,
    )


def test_a_part_that_never_ended_is_what_was_emitted_and_incomplete() -> None:
    sequence = (
        Started(),
        PartStarted(0, call_header("f")),
        InputDelta(0, '{"a'),
        InputDelta(0, '":'),
    )
    (choice,) = fold(sequence).choices
    assert choice == Choice(
        parts=(Call(call_id="call_f", name="f", input='{"a":', status="incomplete"),)
    )
    assert not fold(sequence).completed


def test_a_call_cut_before_its_first_byte_of_input_is_not_given_an_empty_object() -> None:
    """M063: empty means `{}` only where the protocol closed the call."""
    (choice,) = fold((Started(), PartStarted(0, call_header("f")))).choices
    assert choice.parts == (Call(call_id="call_f", name="f", status="incomplete"),)


def test_an_opaque_part_that_never_ended_is_kept_as_it_came() -> None:
    opaque = Opaque(dialect="chat", type="x", raw=Raw(b"{}"))
    (choice,) = fold((Started(), PartStarted(0, opaque))).choices
    assert choice.parts == (opaque,)


def test_nothing_folds_to_nothing() -> None:
    assert fold(()) == Outcome()
    assert unfold(Outcome()) == (Started(),)


@pytest.mark.parametrize("event", [TextDelta(0, "a"), PartEnded(0, Text())])
def test_a_part_that_never_started_is_refused(event: Event) -> None:
    with pytest.raises(LocalProtocolError, match="got part 0"):
        fold((Started(), event))


ANNOTATION = Annotation("chat", Raw(b"{}"))
SEAL = Seal("signature", "s")


@pytest.mark.parametrize(
    ("part", "deltas"),
    [
        (Text(), []),
        (
            Text(text="a", annotations=(ANNOTATION,), logprobs=Raw(b"[1]")),
            [TextDelta(0, "a", Raw(b"[1]")), AnnotationAdded(0, ANNOTATION)],
        ),
        (Text(logprobs=Raw(b"[1]")), [TextDelta(0, "", Raw(b"[1]"))]),
        (Refusal(text="no"), [TextDelta(0, "no")]),
        (
            Reasoning(summary=("a", "", "b"), content=("c",), seals=(SEAL,)),
            [
                ReasoningDelta(0, "a", "summary", 0),
                ReasoningDelta(0, "b", "summary", 2),
                ReasoningDelta(0, "c", "content", 0),
                SealAdded(0, SEAL),
            ],
        ),
        (
            Call(call_id="c", name="f", input="{}", seals=(SEAL,)),
            [InputDelta(0, "{}"), SealAdded(0, SEAL)],
        ),
        (Call(call_id="c", name="f", status="incomplete"), []),
    ],
)
def test_a_part_that_streams_is_unfolded_into_an_empty_header_and_deltas(
    part: Part, deltas: list[Event]
) -> None:
    sequence = unfold(Outcome(choices=(Choice(parts=(part,)),)))
    started, start, *between, end = sequence
    assert started == Started()
    assert isinstance(start, PartStarted)
    assert type(start.header) is type(part)
    assert between == deltas
    assert end == PartEnded(0, part)


@pytest.mark.parametrize(
    "part",
    [
        Result(call_id="c", content=(Text(text="a"),)),
        Media(kind="image", data="AAAA"),
        Opaque(dialect="chat", type="x", raw=Raw(b"{}")),
    ],
)
def test_other_parts_come_whole_in_their_header(part: Part) -> None:
    sequence = unfold(Outcome(choices=(Choice(parts=(part,)),)))
    assert sequence == (Started(), PartStarted(0, part), PartEnded(0, part))


def test_a_failure_with_nothing_before_it_is_unfolded_without_a_start() -> None:
    assert unfold(Outcome(error=ERROR)) == (Failed(ERROR),)
    assert unfold(Outcome(error=ERROR, model="m")) == (Started(model="m"), Failed(ERROR))


def test_reports_stand_between_the_finish_and_the_end() -> None:
    outcome = Outcome(
        choices=(Choice(finish="stop"),),
        usage=Usage(input=1),
        limits=Limits(balance="1"),
        completed=True,
        completed_extra=EXTRA,
    )
    assert unfold(outcome) == (
        Started(),
        Finished("stop"),
        UsageReported(Usage(input=1)),
        LimitsReported(Limits(balance="1")),
        Completed(EXTRA),
    )


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((), "stop"),
        ((Text(text="a"),), "stop"),
        ((Call(call_id="c", name="f", input="{}"),), "tool_calls"),
        ((Call(call_id="c", name="f", input='{"a', status="incomplete"),), "stop"),
        ((Call(call_id="c", name="f", input="{}", executor="provider"),), "stop"),
    ],
)
def test_a_completed_answer_that_lacks_a_finish_gets_one_inferred_from_its_content(
    parts: tuple[Part, ...], reason: str
) -> None:
    sequence = unfold(Outcome(choices=(Choice(parts=parts),), completed=True))
    (finish,) = [event for event in sequence if isinstance(event, Finished)]
    assert (finish.reason, finish.inferred) == (reason, True)
    assert is_grammatical(sequence)


def test_a_completed_answer_that_lacks_choice_0_still_finishes_it() -> None:
    sequence = unfold(Outcome(choices=(Choice(index=1, finish="stop"),), completed=True))
    assert sequence == (
        Started(),
        Finished("stop", inferred=True),
        Finished("stop", 1),
        Completed(),
    )
    assert is_grammatical(unfold(Outcome(completed=True)))


def test_a_failed_answer_is_not_given_a_finish() -> None:
    sequence = unfold(Outcome(choices=(Choice(parts=(Text(text="a"),)),), error=ERROR))
    assert not [event for event in sequence if isinstance(event, Finished)]
    assert sequence[-1] == Failed(ERROR)


def test_a_hundred_thousand_deltas_are_joined_once() -> None:
    count = 100_000
    sequence: list[Event] = [Started(), PartStarted(0, call_header("f"))]
    sequence += [InputDelta(0, "x")] * count
    (choice,) = fold(sequence).choices
    assert choice.parts == (
        Call(call_id="call_f", name="f", input="x" * count, status="incomplete"),
    )
