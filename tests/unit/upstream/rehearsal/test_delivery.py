"""Answers in pieces."""

import pytest

from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.dialects.base import EncodeContext
from dragoman.dialects.registry import codec
from dragoman.model.events import Failed, InputDelta, TextDelta, UsageReported
from dragoman.model.outcome import Choice, ErrorInfo, Outcome, Usage
from dragoman.model.parts import Call, Dialect, Part, Text
from dragoman.upstream.rehearsal.delivery import (
    BODY_PIECE,
    MAX_DELTAS,
    deliver_body,
    deliver_error,
    deliver_stream,
    tell,
)
from dragoman.upstream.rehearsal.scenarios import find_scenario

from .asking import DIALECTS, read_stream

CONTEXT = EncodeContext(seed="s")


def outcome_of(*parts: Part) -> Outcome:
    return Outcome(
        response_id="r",
        model="m",
        created=1,
        choices=(Choice(parts=parts, finish="stop"),),
        usage=Usage(input=3, output=5),
        completed=True,
    )


def test_events_amount_to_the_answer() -> None:
    outcome = outcome_of(Text(text="Guten Tag"), Call(call_id="c", name="f", input='{"a":1}'))
    events = list(tell(outcome))
    assert is_grammatical(events)
    assert fold(events) == outcome
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Gute", "n Ta", "g"]
    assert [event.usage for event in events if isinstance(event, UsageReported)] == [
        Usage(input=3, output=0),
        Usage(input=3, output=5),
    ]


def test_answer_without_usage_reports_none() -> None:
    events = tell(Outcome(response_id="r", completed=True))
    assert not any(isinstance(event, UsageReported) for event in events)


def test_long_input_comes_in_fewer_and_larger_deltas() -> None:
    events = tell(outcome_of(Call(call_id="c", name="f", input="x" * 300_000)))
    sizes = [len(event.text) for event in events if isinstance(event, InputDelta)]
    assert len(sizes) == MAX_DELTAS
    assert sum(sizes) == 300_000


def test_body_comes_in_pieces() -> None:
    outcome = outcome_of(Text(text="x" * 150_000))
    delivery = deliver_body(outcome, codec("chat"), CONTEXT, find_scenario("rehearsal"))
    assert [len(piece) for piece in delivery.pieces[:2]] == [BODY_PIECE, BODY_PIECE]
    assert len(delivery.pieces) == 3


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("ending", ["cut", "no-end", "stall", "error-midstream"])
@pytest.mark.parametrize(
    "parts",
    [
        (),
        (Text(text="word"),),
        (Call(call_id="c", name="f", input=""),),
        (Text(text="word"), Call(call_id="c", name="f", input="{}")),
    ],
    ids=["nothing", "text", "empty call", "text and call"],
)
def test_interrupted_answer_of_any_shape_is_one(
    dialect: Dialect, ending: str, parts: tuple[Part, ...]
) -> None:
    scenario = find_scenario(f"rehearsal-{ending}")
    delivery = deliver_stream(outcome_of(*parts), codec(dialect), CONTEXT, scenario)
    events, _ = read_stream(dialect, b"".join(delivery.pieces))
    assert isinstance(events[-1], Failed)


def test_error_says_when_to_come_back() -> None:
    error = ErrorInfo(kind="rate_limit", message="later", retry_after=2.5)
    delivery = deliver_error(error, codec("chat"))
    assert (delivery.status, delivery.headers["retry-after"]) == (429, "2.5")


def test_interleaving_leaves_what_is_no_call_in_its_place() -> None:
    calls = [Call(call_id=f"c{n}", name="f", input='{"a":1}') for n in range(3)]
    scenario = find_scenario("rehearsal-interleaved")
    outcome = outcome_of(Text(text="first"), *calls)
    delivery = deliver_stream(outcome, codec("messages"), CONTEXT, scenario)
    events, _ = read_stream("messages", b"".join(delivery.pieces))
    folded = fold(events)
    assert folded.choices[0].parts == outcome.choices[0].parts
    assert folded.completed
