"""The machine of one turn, step by step and without a loop; and the turns that it leaves, which can always be sent again."""

import time
from itertools import product

import pytest

from dragoman._json import Raw
from dragoman.core.pairing import is_paired
from dragoman.engine.events import CallSettled
from dragoman.engine.schedule import Schedule
from dragoman.engine.toolbox import CallRouter, Toolbox
from dragoman.engine.tools import Declaration, text_output
from dragoman.engine.turn import (
    TRANSITIONS,
    UNNAMED,
    AbortCall,
    Action,
    CloseStream,
    EndTurn,
    RunCall,
    Settled,
    TurnMachine,
    TurnOutcome,
    TurnState,
    compose_turns,
)
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Limits, LimitWindow, Usage
from dragoman.model.parts import Call, Media, Opaque, Part, Reasoning, Refusal, Result, Text
from dragoman.model.request import Turn
from engine_models import Acting, call, say_ok

ERROR = ErrorInfo(kind="overloaded", message="busy")
FATAL = ErrorInfo(kind="server", message="gone")


def machine(call_ids: frozenset[str] = frozenset()) -> TurnMachine:
    tools = Toolbox([Acting(say_ok, "read", is_parallel=True), Acting(say_ok, "write")])
    router = CallRouter(tools, (Declaration(name="mine"),), lambda _, __: None)
    return TurnMachine(router, Schedule(8), turn=3, call_ids=call_ids)


def feed_turn(turn: TurnMachine, *events: Event) -> list[Action]:
    return [action for event in events for action in turn.hear(event)]


def ended(number: int, made: Call) -> PartEnded:
    return PartEnded(number, made)


def done(number: int, text: str = "ok") -> Settled:
    return Settled(
        number=number, how="done", content=text_output(text).content, is_error=False, elapsed=0.5
    )


def answer_of(actions: list[Action] | object) -> TurnOutcome:
    assert isinstance(actions, list)
    end = actions[-1]  # pyright: ignore[reportUnknownVariableType]
    assert isinstance(end, EndTurn)
    return end.outcome


def words(actions: list[Action]) -> list[str]:
    return [
        piece.text
        for action in actions
        if isinstance(action, CallSettled)
        for piece in action.result.content
        if isinstance(piece, Text)
    ]


def test_call_is_run_when_its_part_has_ended() -> None:
    turn = machine()
    assert feed_turn(turn, Started(), PartStarted(0, call("read", status="in_progress"))) == []
    assert feed_turn(turn, InputDelta(0, "{}")) == []
    actions = feed_turn(turn, ended(0, call("read")))
    assert [type(action) for action in actions] == [RunCall]
    assert turn.is_listening
    assert not turn.may_retry


def test_turn_is_over_when_the_answer_and_every_call_are() -> None:
    turn = machine()
    feed_turn(turn, ended(0, call("read", "a")), ended(1, call("read", "b")))
    assert feed_turn(turn, Finished("tool_calls"), Completed()) == []
    assert not turn.is_listening
    first = list(turn.settle(done(1, "two")))
    assert [type(action) for action in first] == [CallSettled]
    last = list(turn.settle(done(0, "one")))
    assert [type(action) for action in last] == [CallSettled, EndTurn]
    assert turn.is_over
    answer = answer_of(last)
    assert answer.finish == "tool_calls"
    assert answer.end is None
    assert [part.call_id for part in answer.turns[1].parts if isinstance(part, Result)] == [
        "a",
        "b",
    ]
    assert is_paired(answer.turns)


def test_exclusive_call_starts_when_the_one_before_it_has_settled() -> None:
    turn = machine()
    assert len(feed_turn(turn, ended(0, call("write", "a")))) == 1
    assert feed_turn(turn, ended(1, call("write", "b"))) == []
    settled = list(turn.settle(done(0)))
    assert [type(action) for action in settled] == [CallSettled, RunCall]


def test_refused_call_is_settled_at_once_and_does_not_hinder_a_retry() -> None:
    turn = machine()
    actions = feed_turn(turn, ended(0, call("raed")))
    assert words(actions) == ["There is no tool named 'raed'. Did you mean 'read'?"]
    assert turn.may_retry


def test_nameless_call_has_a_name_in_the_conversation() -> None:
    turn = machine()
    actions = feed_turn(turn, ended(0, call("")), Completed())
    said = answer_of(actions).turns[0].parts[0]
    assert isinstance(said, Call)
    assert said.name == UNNAMED


@pytest.mark.parametrize(
    ("made", "call_id"),
    [
        (call("read", "x"), "x"),
        (call("read", "", item_id="lsh_1"), "lsh_1"),
        (call("read", ""), "call_3_0"),
        (call("read", "old"), "old_2"),
        (call("read", "older"), "older_3"),
    ],
)
def test_every_call_has_an_id_of_its_own(made: Call, call_id: str) -> None:
    turn = machine(frozenset(("old", "older", "older_2")))
    (action,) = feed_turn(turn, ended(0, made))
    assert isinstance(action, RunCall)
    assert action.call.call_id == call_id


def test_second_call_with_one_id_in_one_answer_gets_another() -> None:
    turn = machine()
    actions = feed_turn(turn, ended(0, call("read", "a")), ended(1, call("read", "a")))
    assert [action.call.call_id for action in actions if isinstance(action, RunCall)] == [
        "a",
        "a_2",
    ]


def test_call_marked_as_the_gateway_s_is_run_and_the_provider_s_is_not() -> None:
    turn = machine()
    hosted = call("read", executor="gateway")
    searched = call("read", "b", executor="provider")
    (action,) = feed_turn(turn, ended(0, hosted), ended(1, searched))
    assert isinstance(action, RunCall)
    assert action.call.executor == "client"
    feed_turn(turn, Completed())
    answer = answer_of(list(turn.settle(done(0))))
    assert answer.turns[0].parts[1] == searched
    assert answer.calls == (action.call,)


def test_cut_call_is_refused_when_the_answer_ends_and_forgotten_when_it_breaks() -> None:
    half = call("read", arguments='{"a', status="incomplete")
    turn = machine()
    assert feed_turn(turn, ended(0, half)) == []
    actions = feed_turn(turn, Finished("length"), Completed())
    assert "cut off" in words(actions)[0]
    said = answer_of(actions).turns[0].parts[0]
    assert isinstance(said, Call)
    assert (said.status, said.input) == ("completed", '{"a')
    turn = machine()
    actions = feed_turn(turn, ended(0, half), Failed(ERROR))
    assert answer_of(actions) == TurnOutcome(end="failed", error=ERROR)


def test_broken_answer_waits_for_its_calls() -> None:
    turn = machine()
    feed_turn(turn, ended(0, call("read")))
    assert feed_turn(turn, Failed(ERROR)) == []
    answer = answer_of(list(turn.settle(done(0))))
    assert (answer.end, answer.error) == ("failed", ERROR)
    assert is_paired(answer.turns)


def test_text_that_was_being_said_is_kept() -> None:
    turn = machine()
    feed_turn(
        turn,
        PartStarted(0, Text(status="in_progress")),
        TextDelta(0, "Hel"),
        TextDelta(0, "lo"),
        PartStarted(1, Refusal(status="in_progress")),
        TextDelta(1, "No"),
        TextDelta(2, "a part nobody opened"),
    )
    answer = answer_of(feed_turn(turn, Failed(ERROR)))
    assert answer.turns[0].parts == (
        Text(text="Hello", status="incomplete"),
        Refusal(text="No", status="incomplete"),
    )


def test_stop_closes_the_stream_aborts_what_runs_and_settles_what_waits() -> None:
    turn = machine()
    feed_turn(turn, ended(0, call("write", "a")), ended(1, call("write", "b")))
    actions = list(turn.stop("cancelled"))
    assert [type(action) for action in actions] == [CloseStream, CallSettled, AbortCall]
    assert words(actions) == ["Not run: the run was interrupted."]
    assert turn.stop("max_time") == []
    assert feed_turn(turn, ended(2, call("read", "c")), Completed()) == []
    actions = list(turn.settle(Settled(number=0, how="aborted", elapsed=1.25)))
    assert words(actions) == ["Aborted after 1.2 s: the run was interrupted."]
    answer = answer_of(actions)
    assert answer.end == "cancelled"
    assert is_paired(answer.turns)
    assert turn.stop("cancelled") == []


def test_stop_after_the_answer_leaves_its_words_alone() -> None:
    turn = machine()
    feed_turn(
        turn, PartEnded(0, Text()), ended(1, call("read")), Finished("tool_calls"), Completed()
    )
    actions = list(turn.stop("max_time"))
    assert [type(action) for action in actions] == [AbortCall]
    answer = answer_of(list(turn.settle(Settled(number=1, how="aborted", is_stuck=True))))
    assert len(answer.turns[0].parts) == 2
    assert answer.end == "max_time"


def test_call_that_finishes_while_it_is_aborted_keeps_its_result() -> None:
    turn = machine()
    feed_turn(turn, ended(0, call("read")))
    turn.stop("cancelled")
    assert words(list(turn.settle(done(0, "in time")))) == ["in time"]


def test_aborted_call_without_an_order_is_an_interruption() -> None:
    turn = machine()
    feed_turn(turn, ended(0, call("read")))
    actions = list(turn.settle(Settled(number=0, how="aborted", elapsed=2.0)))
    assert words(actions) == ["Aborted after 2.0 s: the run was interrupted."]


@pytest.mark.parametrize("is_answer_over", [False, True])
def test_fatal_error_stops_the_turn_with_its_words(is_answer_over: bool) -> None:
    turn = machine()
    feed_turn(
        turn, ended(0, call("read", "a")), ended(1, call("read", "b")), ended(2, call("write", "c"))
    )
    if is_answer_over:
        feed_turn(turn, Completed())
    settled = Settled(number=1, how="failed", content=(Text(text="gone"),), fatal=FATAL)
    actions = list(turn.settle(settled))
    assert AbortCall(0) in actions
    assert AbortCall(1) not in actions
    assert (CloseStream() in actions) is not is_answer_over
    assert words(actions) == ["Not run: the run ended with an error.", "gone"]
    answer = answer_of(list(turn.settle(Settled(number=0, how="aborted"))))
    assert (answer.end, answer.error) == ("failed", FATAL)
    assert is_paired(answer.turns)


def test_fatal_error_of_the_only_call_ends_the_turn() -> None:
    turn = machine()
    feed_turn(turn, ended(0, call("read")), Completed())
    answer = answer_of(list(turn.settle(Settled(number=0, how="failed", fatal=FATAL))))
    assert (answer.end, answer.error) == ("failed", FATAL)


def test_caller_s_calls_are_handed_over_or_answered() -> None:
    turn = machine()
    assert feed_turn(turn, ended(0, call("mine"))) == []
    assert not turn.may_retry
    answer = answer_of(feed_turn(turn, Completed()))
    assert answer.end == "handed_over"
    assert len(answer.turns) == 1
    turn = machine()
    feed_turn(turn, ended(0, call("mine")))
    actions = feed_turn(turn, Failed(ERROR))
    assert words(actions) == ["Not run: the run ended with an error."]
    assert is_paired(answer_of(actions).turns)


def test_usage_limits_and_finish_are_those_of_the_last_report() -> None:
    turn = machine()
    old, new = LimitWindow(name="a", remaining=2), LimitWindow(name="b", remaining=1)
    answer = answer_of(
        feed_turn(
            turn,
            UsageReported(Usage(input=1)),
            UsageReported(Usage(output=2)),
            LimitsReported(Limits(windows=(old,))),
            LimitsReported(Limits(windows=(new,))),
            Finished("stop"),
            Finished("length", choice=1),
            Completed(),
        )
    )
    assert answer.usage == Usage(input=1, output=2)
    assert answer.limits == Limits(windows=(new, old))
    assert answer.finish == "stop"


def test_pairs_that_are_not_in_the_table_are_refused() -> None:
    turn = machine()
    with pytest.raises(LocalProtocolError, match="expected a running call, got 7"):
        turn.settle(done(7))
    feed_turn(turn, ended(0, call("read")), Completed())
    with pytest.raises(
        LocalProtocolError, match="PartEnded is not allowed while the turn is SETTLING"
    ):
        feed_turn(turn, ended(1, call("read")))
    turn.settle(done(0))
    with pytest.raises(LocalProtocolError, match="Settled is not allowed while the turn is OVER"):
        turn.settle(done(0))
    assert feed_turn(turn, ended(1, call("read"))) == []  # nobody listens any more


def test_call_settles_once() -> None:
    turn = machine()
    feed_turn(turn, ended(0, call("read")))
    turn.settle(done(0))
    with pytest.raises(LocalProtocolError):
        turn.settle(done(0))


def test_table_leads_from_listening_to_over_and_never_back() -> None:
    order = list(TurnState)
    for (state, _), after in TRANSITIONS.items():
        assert order.index(after) >= order.index(state)
    inputs = {kind for _, kind in TRANSITIONS}
    missing = [pair for pair in product(TurnState, inputs) if pair not in TRANSITIONS]
    assert {state for state, _ in missing} == {
        TurnState.LISTENING,
        TurnState.SETTLING,
        TurnState.OVER,
    }


SEARCH = Call(call_id="s", name="web_search", kind="web_search", executor="provider")
FOUND = Result(call_id="s", executor="provider")
THOUGHT = Reasoning(summary=("hm",))
SAID = Text(text="Hi")
NOTE = Opaque(dialect="responses", type="note", raw=Raw(b"{}"))
HALF = Text(text="Hal", status="incomplete")


def kept(*parts: Part, is_cut: bool = True) -> tuple[Part, ...]:
    turns = compose_turns(dict(enumerate(parts)), {}, is_cut=is_cut)
    return turns[0].parts if turns else ()


def test_parts_stand_in_their_order_and_results_in_that_of_the_calls() -> None:
    one, two = Result(call_id="a"), Result(call_id="b")
    turns = compose_turns({2: call(), 0: SAID, 1: call()}, {2: two, 1: one}, is_cut=False)
    assert turns == (
        Turn(role="assistant", parts=(SAID, call(), call())),
        Turn(role="tool", parts=(one, two)),
    )


def test_whole_answer_stays_as_it_is() -> None:
    parts = (THOUGHT, Text(), SEARCH, THOUGHT)
    assert kept(*parts, is_cut=False) == parts


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ((THOUGHT, SAID, HALF), (THOUGHT, SAID, HALF)),
        ((THOUGHT, Text(status="incomplete")), ()),
        ((SAID, THOUGHT, call(status="incomplete")), (SAID,)),
        ((THOUGHT, call(), THOUGHT), (THOUGHT, call())),
        ((SAID, Reasoning(status="incomplete")), (SAID,)),
        ((SAID, SEARCH), (SAID,)),
        ((SAID, SEARCH, FOUND), (SAID, SEARCH, FOUND)),
        ((Refusal(text="No"), Refusal()), (Refusal(text="No"),)),
        ((SAID, Media(kind="image", url="u")), (SAID, Media(kind="image", url="u"))),
        ((SAID, Media(kind="image", status="incomplete")), (SAID,)),
        ((SAID, NOTE), (SAID, NOTE)),
    ],
)
def test_cut_answer_ends_with_something_a_provider_takes(
    parts: tuple[Part, ...], left: tuple[Part, ...]
) -> None:
    assert kept(*parts) == left


def test_nothing_said_is_no_turn() -> None:
    assert compose_turns({}, {}, is_cut=True) == ()


def test_any_number_of_calls_with_one_id_get_ids_of_their_own_in_time() -> None:
    turn = machine()
    count = 20_000
    began = time.process_time()
    for number in range(count):
        feed_turn(turn, ended(number, call("nothing", "a")))
    # Work that grows with the square would take a minute.
    assert time.process_time() - began < 10
    answer = answer_of(feed_turn(turn, Finished("tool_calls"), Completed()))
    assert len({each.call_id for each in answer.calls}) == count
