"""How far a run may go."""

import pytest

from dragoman.engine.events import RunEnd
from dragoman.engine.limits import Repeats, add_usage, exceeded, signature, token_count
from dragoman.engine.settings import EngineSettings
from dragoman.model.outcome import Usage
from dragoman.model.parts import Call
from engine_models import call


def test_same_arguments_are_the_same_whatever_their_order_and_spacing() -> None:
    one = call(arguments='{"a": [1, {"c": 2, "b": 3}], "d": 1.0}')
    other = call(arguments='{"d":1.0,"a":[1,{"b":3,"c":2}]}', call_id="other")
    assert signature(one) == signature(other)


@pytest.mark.parametrize(
    "other",
    [
        call(arguments='{"a": 2}'),
        call(arguments='{"a": "1"}'),
        call("play", arguments='{"a": 1}'),
        call(arguments='{"a": 1}', namespace="x"),
        call(arguments='{"a": 1}', kind="custom"),
        call(arguments='{"a": 1'),
        call(arguments="[" * 5000),
    ],
)
def test_different_calls_are_told_apart(other: Call) -> None:
    assert signature(call(arguments='{"a": 1}')) != signature(other)


def test_repeats_are_counted_once_an_answer() -> None:
    repeats = Repeats()
    assert repeats.note([call(), call()]) == 1
    assert repeats.note([call()]) == 2
    assert repeats.note([]) == 0


def test_something_new_begins_the_count_again_and_going_round_does_not() -> None:
    repeats = Repeats()
    look, write = call("look"), call("write")
    for number in range(10):
        assert repeats.note([look, call(arguments=str(number))]) == 1
    repeats = Repeats()
    assert [repeats.note([made]) for made in (look, write) * 3] == [1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("turns", "tokens", "repeats", "reason"),
    [
        (1, 0, 0, None),
        (3, 0, 0, "max_turns"),
        (1, 100, 0, "max_tokens"),
        (1, 0, 2, "no_progress"),
        (3, 100, 2, "no_progress"),
        (3, 100, 1, "max_tokens"),
    ],
)
def test_first_limit_that_is_reached_is_named(
    turns: int, tokens: int, repeats: int, reason: RunEnd | None
) -> None:
    settings = EngineSettings(max_turns=3, max_tokens=100, max_repeats=2)
    assert exceeded(settings, turns=turns, tokens=tokens, repeats=repeats) == reason


def test_limits_can_be_lifted() -> None:
    settings = EngineSettings(max_turns=None, max_tokens=None, max_repeats=None)
    assert exceeded(settings, turns=10**6, tokens=10**9, repeats=10**6) is None


def test_usage_adds_up_and_what_nobody_states_stays_unstated() -> None:
    total = add_usage(Usage(), Usage(input=1, cached=1))
    total = add_usage(total, None)
    total = add_usage(total, Usage(input=2, output=3))
    assert total == Usage(input=3, output=3, cached=1)


def test_tokens_are_what_the_provider_says_they_are() -> None:
    assert token_count(None) == 0
    assert token_count(Usage(input=2, output=3)) == 5
    assert token_count(Usage(input=2, output=3, total=7)) == 7
    assert token_count(Usage()) == 0
