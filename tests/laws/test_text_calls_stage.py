"""The stage between decoder and encoder: grammatical in, grammatical out; what holds no markup comes out as it went in."""

import json
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.staging import Scanning
from dragoman.model.events import (
    Completed,
    Event,
    Finished,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
)
from dragoman.model.outcome import FinishReason
from dragoman.model.parts import Call, Text
from dragoman.textcalls import PATTERNS, StageSettings, TailPolicy, TextCallStage
from dragoman.textcalls.offers import Offers
from strategies import events
from text_formats import FORMATS, TOOLS, TextFormat
from text_samples import ROUNDS, cut, texts_of

OFFERS = Offers(TOOLS)
KEEP_ALL = TailPolicy(stop="never", suppress_tail=False)
AUTO = tuple(pattern for pattern in PATTERNS.snapshot() if pattern.is_sentinel)
QUICK = settings(
    max_examples=50 * ROUNDS, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
HERMES = next(form for form in FORMATS if form.name == "hermes")
CALLS = HERMES.write([("search", {"query": "a </tool_call> b"}), ("now", {})])


def stage(policy: TailPolicy = KEEP_ALL) -> TextCallStage:
    return TextCallStage(StageSettings(offers=OFFERS, patterns=AUTO, policy=policy))


def through(answer: Iterable[Event], policy: TailPolicy = KEEP_ALL) -> list[Event]:
    machine = stage(policy)
    return [out for event in answer for out in machine.feed(event)]


def answer(
    pieces: Iterable[str], finish: FinishReason = "stop", tail: tuple[Event, ...] = ()
) -> list[Event]:
    texts = list(pieces)
    return [
        Started("id", "model"),
        PartStarted(0, Text(status="in_progress")),
        *(TextDelta(0, text) for text in texts),
        PartEnded(0, Text(text="".join(texts))),
        *tail,
        Finished(finish),
        Completed(),
    ]


@QUICK
@given(events())
def test_any_answer_stays_grammatical(sequence: tuple[Event, ...]) -> None:
    assert is_grammatical(through(sequence))


@QUICK
@given(events())
def test_answer_without_markup_is_the_same_answer(sequence: tuple[Event, ...]) -> None:
    assert fold(through(sequence)) == fold(sequence)


@QUICK
@given(st.data())
def test_calls_in_text_become_calls_however_the_text_is_cut(data: st.DataObject) -> None:
    text = f"Well.\n{CALLS}"
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    bounds = [0, *cuts, len(text)]
    pieces = [text[start:end] for start, end in pairwise(bounds)]
    found = through(answer(pieces), data.draw(st.sampled_from((KEEP_ALL, TailPolicy()))))
    assert is_grammatical(found)
    outcome = fold(found)
    parts = outcome.choices[0].parts
    assert [type(part) for part in parts] == [Text, Call, Call]
    assert outcome.choices[0].finish == "tool_calls"
    calls = [part for part in parts if isinstance(part, Call)]
    assert [json.loads(call.input) for call in calls] == [{"query": "a </tool_call> b"}, {}]
    assert len({call.call_id for call in calls}) == 2
    assert outcome == fold(through(answer([text])))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_events_that_come_together_give_the_same_as_one_by_one(form: TextFormat) -> None:
    """However many events a read brings, and whatever passes unseen."""
    for chance, text in texts_of(form, 4):
        pieces = cut(f"Some words. {text} and some more. " * 2, chance)
        came = answer([*pieces[:3], "plain words ", " quick", *pieces[3:]])
        machine = stage()
        scanning = Scanning(machine, lambda event: (event,))
        sequence: list[Event] = []
        start = 0
        while start < len(came):
            read = came[start : start + chance.choice((1, 1, 2, 5, 40))]
            start += len(read)
            if len(read) == 1 and scanning.passes(read[0]):
                sequence += read
            else:
                sequence += scanning.feed(read)
        assert fold(sequence) == fold(through(came)), text
        assert is_grammatical(sequence)


@QUICK
@given(st.integers(0, len(CALLS)), st.sampled_from(("length", "content_filter", "stop")))
def test_answer_that_was_cut_off_keeps_its_reason_and_its_text(
    end: int, finish: FinishReason
) -> None:
    found = through(answer([CALLS[:end]], finish))
    assert is_grammatical(found)
    outcome = fold(found)
    choice = outcome.choices[0]
    calls = [part for part in choice.parts if isinstance(part, Call)]
    if finish != "stop":
        assert choice.finish == finish
    else:
        assert choice.finish == ("tool_calls" if calls else "stop")
    assert all(call.status == "completed" for call in calls)
    if not calls:
        assert "".join(part.text for part in choice.parts if isinstance(part, Text)) == CALLS[:end]
