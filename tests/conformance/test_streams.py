"""Every stream case through its decoder, all encoders and back, however it is cut."""

import random
from typing import Any

import doors
import pytest
from corpus_cases import DIALECTS, Case, decode, golden_bytes, stream_cases

from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import StreamTranslator, make_decoder, translate_body
from dragoman.model.outcome import Outcome
from dragoman.model.parts import Call, Reasoning, Refusal, Text

CASES = stream_cases()
CHECKS = {
    "chat": doors.check_chat,
    "responses": doors.check_responses,
    "messages": doors.check_messages,
}
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def cuts(data: bytes) -> dict[str, list[bytes]]:
    """The stream whole, in random cuts, and byte by byte (large ones in pieces of 997 bytes instead)."""
    rng = random.Random(len(data))
    points = sorted(rng.randrange(len(data) + 1) for _ in range(40))
    bounds = [0, *points, len(data)]
    size = 1 if len(data) < 20_000 else 997
    return {
        "whole": [data],
        "random": [data[a:b] for a, b in zip(bounds, bounds[1:], strict=False)],
        "bytes": [data[at : at + size] for at in range(0, len(data), size)],
    }


def text_of(outcome: Outcome) -> str:
    parts = outcome.choices[0].parts if outcome.choices else ()
    return "".join(part.text for part in parts if isinstance(part, Text | Refusal))


def reasoning_of(outcome: Outcome) -> str:
    parts = outcome.choices[0].parts if outcome.choices else ()
    return "".join(
        "".join(part.summary) + "".join(part.content)
        for part in parts
        if isinstance(part, Reasoning)
    )


def calls_of(outcome: Outcome) -> list[Call]:
    return [
        part
        for choice in outcome.choices
        for part in choice.parts
        if isinstance(part, Call) and part.executor == "client"
    ]


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


def check_calls(calls: list[Call], expect: dict[str, Any]) -> None:
    wanted = expect.get("calls", [])
    assert len(calls) == len(wanted), calls
    if expect.get("unordered"):
        calls = sorted(calls, key=lambda call: call.name)
    for call, want in zip(calls, wanted, strict=True):
        assert call.call_id
        assert call.call_id == want.get("call_id", call.call_id)
        assert (call.name, call.input) == (want["name"], want["input"])
        assert want["status"] in ("*", call.status)
        assert call.kind == want.get("kind", "function")
        assert call.namespace == want.get("namespace")


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
    crossed = fold(
        event for step in decoder.feed(out) + decoder.close() for event in step.events
    )
    assert text_of(crossed) == text_of(source)
    assert (crossed.error is None) == (source.error is None)
    if source.error is None:
        assert crossed.choices[0].finish == expressible(source.choices[0].finish, target)
    assert [shape(call, target) for call in calls_of(crossed)] == [
        shape(call, target) for call in calls_of(source)
    ]


def shape(call: Call, target: str) -> tuple[object, ...]:
    """What of a call every dialect can say. Namespaces and customs need the request's names to come back."""
    plain = call.kind == "function" and call.namespace is None
    name = call.name if plain or target == "responses" else ""
    text = call.input if call.kind == "function" or target != "messages" else ""
    return (call.call_id if target != "messages" else "", name, text, call.status)


def expressible(finish: str | None, target: str) -> str | None:
    if finish == "stop_sequence" and target != "messages":
        return "stop"
    return finish


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
    assert [shape(call, case.dialect) for call in calls_of(again)] == [
        shape(call, case.dialect) for call in calls_of(outcome)
    ]
    assert again.choices[0].finish == expressible(outcome.choices[0].finish, case.dialect)
    assert again.usage == outcome.usage


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
    assert [shape(call, target)[1:] for call in calls_of(again)] == [
        shape(call, target)[1:] for call in calls_of(outcome)
    ]
