"""The grammar: every pair of the table, every rule of a part, and agreement with the generator."""

from collections.abc import Sequence
from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import Raw
from dragoman.core.grammar import FITTING, TRANSITIONS, GrammarChecker, GrammarState, is_grammatical
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    MediaDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Limits, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from strategies import events, prefixes

FAILED = Failed(ErrorInfo(kind="upstream", message="gone"))
HEADERS: dict[type[Part], Part] = {
    Text: Text(status="in_progress"),
    Refusal: Refusal(status="in_progress"),
    Reasoning: Reasoning(status="in_progress"),
    Call: Call(call_id="call_1", name="f", status="in_progress"),
    Result: Result(call_id="call_1", status="in_progress"),
    Media: Media(kind="audio", status="in_progress"),
    Opaque: Opaque(dialect="chat", type="x", raw=Raw(b"{}")),
}
DELTAS: dict[type[Event], Event] = {
    TextDelta: TextDelta(0, "a"),
    ReasoningDelta: ReasoningDelta(0, "a"),
    InputDelta: InputDelta(0, "a"),
    OutputDelta: OutputDelta(0, "a"),
    MediaDelta: MediaDelta(0, "a"),
    AnnotationAdded: AnnotationAdded(0, Annotation("chat", Raw(b"{}"))),
    SealAdded: SealAdded(0, Seal("signature", "s")),
}
TEXT = HEADERS[Text]


def refuses(sequence: Sequence[Event], last: Event, reason: str) -> None:
    """Everything but the last event is accepted, the last is refused, and so is all that follows."""
    grammar = GrammarChecker()
    for event in sequence:
        grammar.check(event)
    with pytest.raises(LocalProtocolError, match=reason):
        grammar.check(last)
    with pytest.raises(LocalProtocolError, match="BROKEN"):
        grammar.check(FAILED)
    assert not grammar.is_over


@given(events(may_amend=True))
def test_every_generated_answer_is_grammatical(sequence: tuple[Event, ...]) -> None:
    assert is_grammatical(sequence)


@given(prefixes())
def test_the_beginning_of_an_answer_is_accepted_but_is_no_whole_answer(
    sequence: tuple[Event, ...],
) -> None:
    grammar = GrammarChecker()
    for event in sequence:
        grammar.check(event)
    is_whole = bool(sequence) and isinstance(sequence[-1], Completed | Failed)
    assert grammar.is_over == is_whole
    assert is_grammatical(sequence) == is_whole


@given(events(), st.data())
def test_nothing_follows_a_terminal_event(sequence: tuple[Event, ...], data: st.DataObject) -> None:
    late = data.draw(st.sampled_from(sequence))
    assert not is_grammatical((*sequence, late))


@given(events(noise=False, may_fail=False), st.data())
def test_an_answer_that_lacks_an_event_that_opens_or_ends_something_is_not_grammatical(
    sequence: tuple[Event, ...], data: st.DataObject
) -> None:
    bounds = [
        index
        for index, event in enumerate(sequence)
        if isinstance(event, Started | PartStarted | PartEnded | Completed)
    ]
    index = data.draw(st.sampled_from(bounds))
    assert not is_grammatical(sequence[:index] + sequence[index + 1 :])


EVENTS: tuple[Event, ...] = (
    Started(),
    PartStarted(0, TEXT),
    *DELTAS.values(),
    Progress("searching"),
    PartEnded(0, Text()),
    UsageReported(Usage()),
    LimitsReported(Limits()),
    Finished("stop"),
    FAILED,
    Completed(),
    Noticed("ping"),
)
WAYS: dict[GrammarState, tuple[Event, ...]] = {
    GrammarState.SILENT: (),
    GrammarState.SPEAKING: (Started(),),
    GrammarState.ENDING: (Started(), Finished("stop")),
    GrammarState.OVER: (FAILED,),
}


UNLISTED = [
    (state, event)
    for state, event in product(WAYS, EVENTS)
    if (state, type(event)) not in TRANSITIONS
]


@pytest.mark.parametrize(
    ("state", "event"),
    UNLISTED,
    ids=[f"{state.name}-{type(event).__name__}" for state, event in UNLISTED],
)
def test_a_pair_without_a_row_is_refused(state: GrammarState, event: Event) -> None:
    grammar = GrammarChecker()
    for step in WAYS[state]:
        grammar.check(step)
    with pytest.raises(LocalProtocolError, match=f"answer is {state.name}"):
        grammar.check(event)


def test_the_table_speaks_of_every_event() -> None:
    assert {kind for _, kind in TRANSITIONS} == set(get_args(Event))
    assert {type(event) for event in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize(("part", "delta"), list(product(HEADERS, DELTAS)))
def test_a_delta_is_accepted_exactly_by_the_parts_it_fits(
    part: type[Part], delta: type[Event]
) -> None:
    sequence = (Started(), PartStarted(0, HEADERS[part]))
    if part in FITTING[delta]:
        grammar = GrammarChecker()
        for event in (*sequence, DELTAS[delta]):
            grammar.check(event)
    else:
        refuses(sequence, DELTAS[delta], f"part 0 is a {part.__name__}")


def test_part_numbers_are_dense() -> None:
    refuses((Started(),), PartStarted(1, TEXT), "expected part 0")
    refuses((Started(), PartStarted(0, TEXT)), PartStarted(0, TEXT), "expected part 1")


@pytest.mark.parametrize(
    "header",
    [
        Text(),
        Text(text="a", status="in_progress"),
        Text(logprobs=Raw(b"[]"), status="in_progress"),
        Text(annotations=(Annotation("chat", Raw(b"{}")),), status="in_progress"),
        Refusal(text="a", status="in_progress"),
        Refusal(logprobs=Raw(b"[]"), status="in_progress"),
        Reasoning(summary=("a",), status="in_progress"),
        Reasoning(content=("a",), status="in_progress"),
        Reasoning(seals=(Seal("signature", "s"),), status="in_progress"),
        Call(call_id="c", name="f", input="{}", status="in_progress"),
        Call(call_id="c", name="f", seals=(Seal("thought", "s"),), status="in_progress"),
        Call(call_id="c", name="f"),
    ],
)
def test_the_header_of_a_part_that_streams_is_empty_and_in_progress(header: Part) -> None:
    refuses((Started(),), PartStarted(0, header), "not empty and in progress")


@pytest.mark.parametrize(
    "header",
    [
        Result(call_id="c", content=(Text(text="a"),)),
        Media(kind="image", data="AAAA"),
        Opaque(dialect="chat", type="x", raw=Raw(b"{}")),
    ],
)
def test_a_part_that_cannot_stream_may_come_whole(header: Part) -> None:
    sequence = (
        Started(),
        PartStarted(0, header),
        PartEnded(0, header),
        Finished("stop"),
        Completed(),
    )
    assert is_grammatical(sequence)


def test_a_part_ends_once() -> None:
    sequence = (Started(), PartStarted(0, TEXT), PartEnded(0, Text()))
    refuses(sequence, PartEnded(0, Text()), "part 0 is not open")
    refuses((Started(),), PartEnded(0, Text()), "part 0 is not open")


def test_a_delta_after_the_end_of_its_part_is_refused() -> None:
    sequence = (Started(), PartStarted(0, TEXT), PartEnded(0, Text()))
    refuses(sequence, TextDelta(0, "late"), "part 0 is not open")


def test_a_part_ends_as_the_class_it_began_as() -> None:
    refuses((Started(), PartStarted(0, TEXT)), PartEnded(0, Refusal()), "began as Text")


@pytest.mark.parametrize(
    "value",
    [
        Call(call_id="other", name="f"),
        Call(call_id="call_1", name="g"),
        Call(call_id="call_1", name="f", namespace="n"),
        Call(call_id="call_1", name="f", kind="custom"),
    ],
)
def test_the_identity_of_a_call_is_set_once(value: Call) -> None:
    refuses((Started(), PartStarted(0, HEADERS[Call])), PartEnded(0, value), "began as")


def test_a_choice_with_an_open_part_cannot_finish() -> None:
    refuses((Started(), PartStarted(0, TEXT)), Finished("stop"), r"parts \[0\] of choice 0")


def test_a_choice_may_finish_while_another_goes_on() -> None:
    sequence = (
        Started(),
        PartStarted(0, TEXT),
        PartStarted(1, TEXT, 1),
        PartEnded(0, Text()),
        Finished("stop"),
        TextDelta(1, "a"),
        Progress("searching"),
        PartEnded(1, Text(text="a")),
        Finished("stop", 1),
        UsageReported(Usage()),
        Completed(),
    )
    assert is_grammatical(sequence)


def test_a_choice_finishes_once() -> None:
    refuses((Started(), Finished("stop")), Finished("length"), "choice 0 has finished before")


def test_nothing_starts_in_a_finished_choice() -> None:
    refuses((Started(), Finished("stop")), PartStarted(0, TEXT), "choice 0 is finished")


def test_an_answer_completes_only_when_every_choice_has_finished() -> None:
    sequence = (Started(), PartStarted(0, TEXT, 1), PartEnded(0, Text()), Finished("stop"))
    refuses(sequence, Completed(), r"choices \[1\] are not finished")


def test_choice_0_always_finishes() -> None:
    sequence = (Started(), PartStarted(0, TEXT, 1), PartEnded(0, Text()), Finished("stop", 1))
    refuses(sequence, Completed(), r"choices \[0\] are not finished")


def test_open_parts_are_ended_before_a_failure() -> None:
    refuses((Started(), PartStarted(0, TEXT)), FAILED, r"parts \[0\] are still open")
    ended = PartEnded(0, Text(status="incomplete"))
    assert is_grammatical((Started(), PartStarted(0, TEXT), ended, FAILED))


def test_an_answer_may_fail_before_it_starts() -> None:
    assert is_grammatical((Noticed("comment"), FAILED))


def test_notices_and_progress_speak_only_of_parts_that_have_started() -> None:
    refuses((Started(),), Noticed("fields", part=0), "part 0 has not started")
    refuses((Started(),), Progress("searching", -1), "part -1 has not started")
    sequence = (Started(), PartStarted(0, TEXT), PartEnded(0, Text()))
    grammar = GrammarChecker()
    for event in (*sequence, Noticed("fields", part=0), Progress("searching", 0)):
        grammar.check(event)


def test_no_progress_is_made_once_every_choice_has_finished() -> None:
    refuses((Started(), Finished("stop")), Progress("searching"), "every choice is finished")
