"""Every stream case through its decoder, all encoders and back, however it is cut."""

import pytest

from corpus_cases import DIALECTS, Case, decode, golden_bytes, stream_cases
from corpus_checks import (
    CHECKS,
    calls_of,
    check_calls,
    cuts,
    reasoning_of,
    same_calls,
    same_finish,
    text_of,
)
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import StreamTranslator, make_decoder, translate_body
from dragoman.model.outcome import Usage
from dragoman.model.parts import Reasoning

CASES = stream_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
def test_case_decodes_to_what_it_expects(case: Case) -> None:
    steps, events = decode(case, [case.stream])
    outcome = fold(events)
    expect = case.meta["expect"]
    assert text_of(outcome) == expect.get("text", "")
    assert reasoning_of(outcome) == expect.get("reasoning", "")
    check_calls(calls_of(outcome), expect)
    if "error" in expect:
        assert outcome.error is not None
        assert expect["error"] in ("*", outcome.error.kind)
        assert outcome.error.message
    else:
        assert outcome.error is None
        assert outcome.completed
        assert [choice.finish for choice in outcome.choices] == [expect["finish"]]
        assert outcome.choices[0].stop_sequence == expect.get("stop_sequence")
    seals = [
        seal.data
        for part in (outcome.choices[0].parts if outcome.choices else ())
        if isinstance(part, Reasoning)
        for seal in part.seals
    ]
    assert seals == expect.get("seals", [])
    problems = [problem for step in steps for problem in step.problems]
    if "regular" in expect:
        assert (not problems) == expect["regular"], problems
    assert all(problem.message and problem.frame >= 1 for problem in problems)


@each_case
def test_case_means_the_same_however_it_is_cut(case: Case) -> None:
    whole = decode(case, [case.stream])[1]
    for reads in cuts(case.stream).values():
        steps, events = decode(case, reads)
        assert b"".join(step.raw for step in steps) == case.stream
        assert events == whole
    assert is_grammatical(whole)


@each_case
def test_case_decodes_to_its_accepted_events(case: Case) -> None:
    events = decode(case, [case.stream])[1]
    assert golden_bytes(events) == case.golden.read_bytes()


@pytest.mark.parametrize("target", DIALECTS)
@each_case
def test_case_satisfies_every_door(case: Case, target: str) -> None:
    translator = StreamTranslator(case.dialect, target, decode=case.context)
    out = translator.feed(case.stream) + translator.close()
    CHECKS[target](out)


@pytest.mark.parametrize("target", DIALECTS)
@each_case
def test_calls_survive_the_crossing(case: Case, target: str) -> None:
    source = fold(decode(case, [case.stream])[1])
    translator = StreamTranslator(case.dialect, target, decode=case.context)
    out = translator.feed(case.stream) + translator.close()
    decoder = make_decoder(target)
    crossed = fold(event for step in decoder.feed(out) + decoder.close() for event in step.events)
    assert text_of(crossed) == text_of(source)
    if target in case.meta.get("fails_on", ()):
        assert crossed.error is not None
        return
    assert (crossed.error is None) == (source.error is None)
    if source.error is None:
        same_finish(crossed.choices[0].finish, source.choices[0].finish)
    same_calls(calls_of(crossed), calls_of(source), target)


@each_case
def test_stream_and_body_of_the_same_answer_fold_alike(case: Case) -> None:
    """The body is written by the dialect's own body encoder from the stream's events."""
    events = decode(case, [case.stream])[1]
    outcome = fold(events)
    body = codec(case.dialect).encode_body(events, EncodeContext())
    again = fold(codec(case.dialect).read_body(body, case.context).events)
    assert (again.error is None) == (outcome.error is None)
    if outcome.error is not None:
        return
    assert text_of(again) == text_of(outcome)
    same_calls(calls_of(again), calls_of(outcome), case.dialect)
    same_finish(again.choices[0].finish, outcome.choices[0].finish)
    assert counts(again.usage) == counts(outcome.usage)


def counts(usage: Usage | None) -> tuple[int, ...] | None:
    """Where a wire demands a count that nobody gave, zero is written."""
    if usage is None:
        return None
    detail = (usage.cached, usage.cache_write, usage.reasoning)
    return (usage.input or 0, usage.output or 0, *(count or 0 for count in detail))


@pytest.mark.parametrize("target", DIALECTS)
@each_case
def test_bodies_cross_like_streams(case: Case, target: str) -> None:
    events = decode(case, [case.stream])[1]
    outcome = fold(events)
    if outcome.error is not None:
        return
    body = codec(case.dialect).encode_body(events, EncodeContext())
    crossed = translate_body(body, case.dialect, target, decode=case.context)
    again = fold(codec(target).read_body(crossed.body, case.context).events)
    assert text_of(again) == text_of(outcome)
    same_calls(calls_of(again), calls_of(outcome), target)
