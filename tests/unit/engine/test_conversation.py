"""From answer to answer: requests, sums, limits, ends, and when an answer that broke off is requested again."""

import pytest
from msgspec.structs import replace

from dragoman.engine.compaction import SummaryCompaction
from dragoman.engine.conversation import (
    CallRepeats,
    RunConversation,
    exceeded,
    retry_after,
    signature,
)
from dragoman.engine.events import Compacted, RunEnd
from dragoman.engine.settings import EngineSettings
from dragoman.engine.toolbox import Toolbox
from dragoman.engine.turn import TurnOutcome
from dragoman.model.outcome import ErrorInfo, ErrorKind, Usage
from dragoman.model.parts import Call, Text
from dragoman.model.request import Namespace, Tool, ToolChoice, ToolRef, Turn
from engine_models import Acting, ask, call, say_ok

SETTINGS = EngineSettings(max_turns=2, compaction=SummaryCompaction(threshold=10, keep=1))
CALLED = TurnOutcome(turns=(Turn(role="assistant", parts=(call(),)),), calls=(call(),))


def test_request_keeps_the_caller_s_wishes() -> None:
    toolbox = Toolbox([Acting(say_ok)])
    request = ask(tools=(Tool(name="mine"),), namespaces=(Namespace("n"),), include_usage=False)
    made = RunConversation(request, SETTINGS).next_request(toolbox)
    assert [tool.name for tool in made.tools] == ["mine", "work"]
    assert made.namespaces == (Namespace("n"),)
    assert made.include_usage is False
    assert RunConversation(ask(), SETTINGS).next_request(toolbox).include_usage is True


def test_answer_without_calls_is_the_end() -> None:
    conversation = RunConversation(ask(), SETTINGS)
    turn = Turn(role="assistant", parts=(Text(text="Hi"),))
    assert conversation.add_outcome(TurnOutcome(turns=(turn,), finish="stop")) == "answered"
    assert conversation.turns == (*ask().turns, turn)


def test_answer_with_calls_goes_on_until_a_limit() -> None:
    conversation = RunConversation(ask(), SETTINGS)
    conversation.turn_count = 1
    assert conversation.add_outcome(CALLED) is None
    conversation.turn_count = 2
    assert conversation.add_outcome(CALLED) == "max_turns"


def test_ids_of_all_calls_are_known() -> None:
    conversation = RunConversation(ask(turns=CALLED.turns), SETTINGS)
    assert conversation.call_ids == {"call_1"}
    made = TurnOutcome(turns=(Turn(role="assistant", parts=(call(call_id="x"), Text())),))
    conversation.add_outcome(made)
    assert conversation.call_ids == {"call_1", "x"}


def test_answer_that_ends_the_run_says_why() -> None:
    assert RunConversation(ask(), SETTINGS).add_outcome(TurnOutcome(end="failed")) == "failed"


@pytest.mark.parametrize(
    ("choice", "after"),
    [
        (None, None),
        (ToolChoice(mode="auto"), ToolChoice(mode="auto")),
        (ToolChoice(mode="none"), ToolChoice(mode="none")),
        (ToolChoice(mode="required"), ToolChoice(mode="auto")),
        (ToolChoice(mode="tool", tool=ToolRef("work")), ToolChoice(mode="auto")),
        (
            ToolChoice(mode="allowed", allowed=(ToolRef("work"),), required=True),
            ToolChoice(mode="allowed", allowed=(ToolRef("work"),), required=False),
        ),
    ],
)
def test_choice_that_forces_a_call_holds_until_there_was_one(
    choice: ToolChoice | None, after: ToolChoice | None
) -> None:
    conversation = RunConversation(ask(tool_choice=choice), SETTINGS)
    assert conversation.next_request(Toolbox()).tool_choice == choice
    conversation.add_outcome(TurnOutcome(finish="pause"))
    assert conversation.next_request(Toolbox()).tool_choice == choice
    conversation.add_outcome(CALLED)
    assert conversation.next_request(Toolbox()).tool_choice == after


def test_compaction_is_planned_once_after_an_answer() -> None:
    turn = ask().turns[0]
    conversation = RunConversation(ask(turns=(turn,) * 5), SETTINGS)
    assert conversation.plan_compaction() is None
    conversation.add_outcome(TurnOutcome(usage=Usage(input=9, output=1)))
    plan = conversation.plan_compaction()
    assert plan is not None
    assert conversation.plan_compaction() is None
    assert conversation.compact(plan, "S") == Compacted(10, 5, 2)
    assert len(conversation.turns) == 2
    off = RunConversation(ask(), EngineSettings(compaction=None))
    off.add_outcome(TurnOutcome(usage=Usage(input=10**9)))
    assert off.plan_compaction() is None


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
def test_different_calls_are_distinguished(other: Call) -> None:
    assert signature(call(arguments='{"a": 1}')) != signature(other)


def test_repeats_are_counted_once_an_answer() -> None:
    repeats = CallRepeats()
    assert repeats.note([call(), call()]) == 1
    assert repeats.note([call()]) == 2
    assert repeats.note([]) == 0


def test_something_new_begins_the_count_again_and_going_round_does_not() -> None:
    repeats = CallRepeats()
    look, write = call("look"), call("write")
    for number in range(10):
        assert repeats.note([look, call(arguments=str(number))]) == 1
    repeats = CallRepeats()
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


RETRIES = EngineSettings(retries=3, retry_delay=1.0, retry_max_delay=10.0)


def error(kind: ErrorKind, **more: object) -> ErrorInfo:
    return replace(ErrorInfo(kind=kind, message=""), **more)


@pytest.mark.parametrize(
    "kind", ["rate_limit", "overloaded", "timeout", "truncated", "upstream", "server", "protocol"]
)
def test_what_may_pass_is_tried_again(kind: ErrorKind) -> None:
    assert retry_after(RETRIES, error(kind), attempt=1, jitter=0.0) == 0.5


@pytest.mark.parametrize("kind", ["invalid_request", "authentication", "quota", "context_length"])
def test_what_will_not_pass_is_not(kind: ErrorKind) -> None:
    assert retry_after(RETRIES, error(kind), attempt=1, jitter=0.0) is None


def test_status_that_blames_the_request_decides() -> None:
    assert retry_after(RETRIES, error("upstream", status=404), attempt=1, jitter=0.0) is None
    assert retry_after(RETRIES, error("upstream", status=502), attempt=1, jitter=0.0) is not None


def test_wait_doubles_and_is_bounded_and_jitter_takes_up_to_half() -> None:
    waits = [
        retry_after(
            EngineSettings(retries=99, retry_delay=1.0, retry_max_delay=10.0),
            error("overloaded"),
            attempt=attempt,
            jitter=1.0,
        )
        for attempt in (1, 2, 3, 4, 5, 90)
    ]
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_tries_are_counted() -> None:
    assert retry_after(RETRIES, error("overloaded"), attempt=3, jitter=0.0) is not None
    assert retry_after(RETRIES, error("overloaded"), attempt=4, jitter=0.0) is None


def test_provider_s_own_wait_is_kept_if_it_is_not_too_long() -> None:
    assert retry_after(RETRIES, error("rate_limit", retry_after=7.0), attempt=1, jitter=0) == 7.0
    assert retry_after(RETRIES, error("rate_limit", retry_after=0.1), attempt=1, jitter=1) == 1.0
    assert retry_after(RETRIES, error("rate_limit", retry_after=60.0), attempt=1, jitter=0) is None
