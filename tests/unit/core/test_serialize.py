"""Serializing: no overlap within a choice, nothing lost, nothing delayed that need not be."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from msgspec.structs import replace

from disagreements import find_disagreements
from dragoman._json import Raw
from dragoman.core.fold import fold
from dragoman.core.grammar import GrammarChecker, is_grammatical
from dragoman.core.serialize import Serializer
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    Noticed,
    PartEnded,
    PartStarted,
    Progress,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Usage
from dragoman.model.parts import Call, Text
from strategies import events, prefixes


def call(name: str, text: str = "", status: str = "completed") -> Call:
    is_done = status == "completed"
    return Call(
        call_id=f"call_{name}",
        name=name,
        input=text,
        status="completed" if is_done else "in_progress",
    )


def starts(part: int, name: str, choice: int = 0) -> PartStarted:
    return PartStarted(part, call(name, status="in_progress"), choice)


def serialize(sequence: Iterable[Event]) -> list[Event]:
    serializer = Serializer()
    return [event for each in sequence for event in serializer.feed(each)]


def overlaps(sequence: Iterable[Event]) -> bool:
    """Whether two parts of one choice are ever open at once."""
    choices: dict[int, int] = {}
    for event in sequence:
        if isinstance(event, PartStarted):
            if event.choice in choices.values():
                return True
            choices[event.part] = event.choice
        elif isinstance(event, PartEnded):
            del choices[event.part]
    return False


@given(events(may_amend=True, max_choices=3))
def test_the_output_is_the_same_answer_without_overlap(sequence: tuple[Event, ...]) -> None:
    out = serialize(sequence)
    assert is_grammatical(out)
    assert not overlaps(out)
    assert fold(out) == fold(sequence)
    assert find_disagreements(out) == ()
    assert len(out) == len(sequence)


@given(prefixes())
def test_the_output_is_grammatical_at_every_moment(sequence: tuple[Event, ...]) -> None:
    grammar = GrammarChecker()
    for event in serialize(sequence):
        grammar.check(event)


@given(events(overlapping=False, may_amend=True))
def test_an_answer_without_overlap_passes_at_once_and_untouched(
    sequence: tuple[Event, ...],
) -> None:
    serializer = Serializer()
    for event in sequence:
        (passed,) = serializer.feed(event)
        assert passed is event


def test_the_first_call_streams_live_and_the_second_follows_in_order() -> None:
    """M010: blocks that overlap are emitted one after the other, the first without delay."""
    sequence: list[tuple[Event, list[Event]]] = [
        (Started(), [Started()]),
        (starts(0, "f"), [starts(0, "f")]),
        (starts(1, "g"), []),
        (InputDelta(1, "{"), []),
        (InputDelta(0, "[]"), [InputDelta(0, "[]")]),
        (
            PartEnded(0, call("f", "[]")),
            [PartEnded(0, call("f", "[]")), starts(1, "g"), InputDelta(1, "{")],
        ),
        (InputDelta(1, "}"), [InputDelta(1, "}")]),
        (PartEnded(1, call("g", "{}")), [PartEnded(1, call("g", "{}"))]),
        (Finished("tool_calls"), [Finished("tool_calls")]),
        (Completed(), [Completed()]),
    ]
    serializer = Serializer()
    for event, expected in sequence:
        assert list(serializer.feed(event)) == expected


def test_held_parts_that_ended_are_emitted_whole_until_one_is_still_open() -> None:
    serializer = Serializer()
    for event in (Started(), starts(0, "f"), starts(1, "g"), starts(2, "h"), starts(3, "i")):
        serializer.feed(event)
    assert serializer.feed(PartEnded(1, call("g"))) == ()
    assert serializer.feed(InputDelta(3, "x")) == ()
    assert serializer.feed(PartEnded(0, call("f"))) == (
        PartEnded(0, call("f")),
        starts(1, "g"),
        PartEnded(1, call("g")),
        starts(2, "h"),
    )
    assert serializer.feed(InputDelta(3, "y")) == ()
    assert serializer.feed(PartEnded(2, call("h"))) == (
        PartEnded(2, call("h")),
        starts(3, "i"),
        InputDelta(3, "x"),
        InputDelta(3, "y"),
    )


def test_what_speaks_of_a_held_part_waits_with_it_and_the_rest_passes() -> None:
    serializer = Serializer()
    for event in (Started(), starts(0, "f"), starts(1, "g")):
        serializer.feed(event)
    about = (Progress("searching", 1), Noticed("fields", part=1, raw=Raw(b"{}")))
    assert [serializer.feed(each) for each in about] == [(), ()]
    others = (Noticed("ping"), Progress("searching"), UsageReported(Usage(input=1)), Started())
    assert [serializer.feed(other) for other in others] == [(other,) for other in others]
    assert serializer.feed(PartEnded(0, call("f")))[2:] == about


def test_choices_do_not_wait_for_each_other() -> None:
    serializer = Serializer()
    serializer.feed(Started())
    for event in (starts(0, "f"), starts(1, "f", 1), InputDelta(1, "a"), InputDelta(0, "b")):
        assert serializer.feed(event) == (event,)


def test_a_part_that_overtakes_a_held_one_is_numbered_anew() -> None:
    sequence = (
        Started(),
        starts(0, "f"),
        starts(1, "g"),
        PartStarted(2, Text(status="in_progress"), 1),
        TextDelta(2, "a"),
        Noticed("fields", part=2),
        PartEnded(0, call("f")),
        InputDelta(1, "{}"),
        PartEnded(1, call("g", "{}")),
        PartEnded(2, Text(text="a")),
        Finished("tool_calls"),
        Finished("stop", 1),
        Completed(),
    )
    out = serialize(sequence)
    assert out == [
        Started(),
        starts(0, "f"),
        PartStarted(1, Text(status="in_progress"), 1),
        TextDelta(1, "a"),
        Noticed("fields", part=1),
        PartEnded(0, call("f")),
        replace(starts(2, "g"), part=2),
        InputDelta(2, "{}"),
        PartEnded(2, call("g", "{}")),
        PartEnded(1, Text(text="a")),
        Finished("tool_calls"),
        Finished("stop", 1),
        Completed(),
    ]
    assert is_grammatical(out)


@pytest.mark.parametrize(
    "end",
    [Finished("stop"), Completed(), Failed(ErrorInfo(kind="upstream", message="gone"))],
)
def test_an_end_while_parts_are_open_is_refused(end: Event) -> None:
    serializer = Serializer()
    for event in (Started(), starts(0, "f"), starts(1, "g")):
        serializer.feed(event)
    with pytest.raises(LocalProtocolError, match=r"\[0, 1\] are open"):
        serializer.feed(end)


def test_a_finished_choice_does_not_ask_about_the_parts_of_another() -> None:
    serializer = Serializer()
    for event in (Started(), starts(0, "f", 1)):
        serializer.feed(event)
    assert serializer.feed(Finished("stop")) == (Finished("stop"),)


def test_the_end_of_a_part_that_is_not_open_is_refused() -> None:
    serializer = Serializer()
    serializer.feed(Started())
    with pytest.raises(LocalProtocolError, match="the end of part 4"):
        serializer.feed(PartEnded(4, Text()))


def test_many_held_parts_cost_one_step_each() -> None:
    """Ten thousand calls opened before the first ends: each is moved once."""
    count = 10_000
    serializer = Serializer()
    serializer.feed(Started())
    for number in range(count):
        serializer.feed(starts(number, "f"))
    found = 0
    for number in range(count):
        found += len(serializer.feed(PartEnded(number, call("f"))))
    assert found == 2 * count - 1
