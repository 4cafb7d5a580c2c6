"""The turn over any answer and any order of settling: every call settles once, and the conversation can be sent again."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.core.call_input import judge
from dragoman.core.pairing import is_paired, pair_results
from dragoman.engine.events import CallSettled
from dragoman.engine.schedule import Schedule
from dragoman.engine.toolbox import CallRouter, Toolbox
from dragoman.engine.tools import Declaration, text_output
from dragoman.engine.turn import (
    AbortCall,
    Action,
    CloseStream,
    EndTurn,
    RunCall,
    Settled,
    TurnMachine,
    TurnOutcome,
)
from dragoman.model.events import Completed, Event, Failed, PartEnded
from dragoman.model.outcome import ErrorInfo
from dragoman.model.parts import Call, Result
from engine_models import Acting, call, part_events, say_ok
from strategies import events as answers

ROUNDS = int(os.environ.get("DRAGOMAN_LAW_ROUNDS", "1"))
law = settings(max_examples=100 * ROUNDS, deadline=None, derandomize=True)

MAX_PARALLEL = 3
PARALLEL, EXCLUSIVE, THEIRS = "read", "write", "mine"
ERROR = ErrorInfo(kind="server", message="gone")
TOOLS = Toolbox([Acting(say_ok, PARALLEL, is_parallel=True), Acting(say_ok, EXCLUSIVE)])
ROUTER = CallRouter(TOOLS, (Declaration(name=THEIRS),), lambda _, __: None)

own_calls = st.builds(
    call,
    st.sampled_from((PARALLEL, PARALLEL, EXCLUSIVE, THEIRS, "unknown", "")),
    st.sampled_from(("a", "b", "c", "")),
    st.sampled_from(("{}", '{"a":1}', '{"a', "")),
    status=st.sampled_from(("completed", "completed", "completed", "incomplete")),
    executor=st.sampled_from(("client", "client", "client", "gateway")),
)
# Providers keep their ids apart from those of functions.
calls = own_calls | st.builds(
    call, st.just("web_search"), st.sampled_from(("p", "q")), executor=st.just("provider")
)


class Play:
    """A runner without a loop: keeps what runs, and checks every action against what may be."""

    def __init__(self) -> None:
        self.turn = TurnMachine(ROUTER, Schedule(MAX_PARALLEL), call_ids=frozenset(("b",)))
        self.running: dict[int, str] = {}
        self.settled: list[str] = []
        self.started: list[RunCall] = []
        self.answer: TurnOutcome | None = None
        self.is_closed = False
        self.overlap = 0

    def take(self, actions: object) -> None:
        assert isinstance(actions, list | tuple)
        for action in actions:  # pyright: ignore[reportUnknownVariableType]
            self._take(action)  # pyright: ignore[reportUnknownArgumentType]

    def _take(self, action: Action) -> None:
        assert self.answer is None, "nothing comes after the end"
        match action:
            case RunCall():
                assert judge(action.call).executable
                assert not self.is_closed
                self.started.append(action)
                self.running[action.number] = action.call.name
                self._check_overlap()
            case CallSettled():
                assert action.call.call_id not in self.settled
                assert action.result.call_id == action.call.call_id
                self.settled.append(action.call.call_id)
            case AbortCall():
                assert action.number in self.running
            case CloseStream():
                self.is_closed = True
            case EndTurn():
                assert not self.running
                self.answer = action.outcome

    def _check_overlap(self) -> None:
        names = list(self.running.values())
        self.overlap = max(self.overlap, len(names))
        assert len(names) <= MAX_PARALLEL
        if EXCLUSIVE in names:
            assert names == [EXCLUSIVE]

    def settle(self, index: int, how: str) -> None:
        numbers = sorted(self.running)
        number = numbers[index % len(numbers)]
        del self.running[number]
        content = text_output("ok").content
        self.take(
            self.turn.settle(
                {
                    "done": Settled(number=number, how="done", content=content, is_error=False),
                    "fatal": Settled(number=number, how="failed", content=content, fatal=ERROR),
                }.get(how, Settled(number=number, how="aborted", elapsed=1.0))
            )
        )

    def finish(self, order: st.DataObject) -> TurnOutcome:
        while self.running:
            self.settle(
                order.draw(st.integers(0, 8)), order.draw(st.sampled_from(("done", "abort")))
            )
        assert self.answer is not None
        assert self.turn.is_over
        return self.answer


def check(play: Play, answer: TurnOutcome) -> None:
    """The exit invariant."""
    if answer.end == "handed_over":
        made = [part for turn in answer.turns for part in turn.parts if isinstance(part, Call)]
        open_ids = {part.call_id for part in made if part.executor == "client"} - {
            part.call_id for turn in answer.turns for part in turn.parts if isinstance(part, Result)
        }
        assert open_ids == {part.call_id for part in made if part.name == THEIRS}
    else:
        # Providers' calls make `is_paired` look closer: the repair must find nothing to do.
        assert is_paired(answer.turns) or pair_results(answer.turns)[1] == ()
    assert {run.call.call_id for run in play.started} <= set(play.settled)
    assert all(turn.parts for turn in answer.turns)


@law
@given(st.lists(calls, max_size=8), st.sampled_from(("end", "break", "stop", "fatal")), st.data())
def test_every_call_settles_once_and_no_call_is_left_without_a_result(
    made: list[Call], end: str, data: st.DataObject
) -> None:
    play = Play()
    for number, one in enumerate(made):
        for event in part_events(number, one):
            play.take(play.turn.hear(event))
        for index in data.draw(st.lists(st.integers(0, 8), max_size=3)):
            if play.running:
                play.settle(index, "done")
    if end == "fatal" and play.running:
        play.settle(data.draw(st.integers(0, 8)), "fatal")
    elif end == "stop":
        play.take(play.turn.stop("cancelled"))
    elif end == "break":
        play.take(play.turn.hear(Failed(ERROR)))
    else:
        play.take(play.turn.hear(Completed()))
    if end != "end" and play.answer is None and data.draw(st.booleans()):
        play.take(play.turn.stop("max_time"))
    check(play, play.finish(data))


@law
@given(answers(), st.integers(0, 60), st.data())
def test_any_answer_cut_anywhere_leaves_a_conversation_that_can_be_sent_again(
    events: tuple[Event, ...], cut: int, data: st.DataObject
) -> None:
    play = Play()
    for event in events[:cut]:
        play.take(play.turn.hear(_renamed(event)))
    if play.answer is None:
        play.take(play.turn.stop("cancelled"))
    check(play, play.finish(data))


def _renamed(event: Event) -> Event:
    """Half of the calls go to tools that are there."""
    if isinstance(event, PartEnded) and isinstance(event.value, Call) and event.part % 2:
        return PartEnded(event.part, replace(event.value, name=PARALLEL))
    return event


@law
@given(st.lists(st.sampled_from((PARALLEL, EXCLUSIVE)), max_size=12), st.data())
def test_calls_start_in_their_order_and_parallel_ones_do_overlap(
    names: list[str], data: st.DataObject
) -> None:
    play = Play()
    for number, name in enumerate(names):
        play.take(play.turn.hear(PartEnded(number, call(name, f"c{number}"))))
    # Nothing has settled: what may run at once does.
    first = names.index(EXCLUSIVE) if EXCLUSIVE in names else len(names)
    assert len(play.running) == min(MAX_PARALLEL, max(first, 1), len(names))
    play.take(play.turn.hear(Completed()))
    while play.running:
        play.settle(data.draw(st.integers(0, 8)), "done")
    numbers = [run.number for run in play.started]
    assert numbers == sorted(numbers)
    assert len(play.started) == len(names)
    answer = play.answer
    assert answer is not None
    results = [part for turn in answer.turns[1:] for part in turn.parts if isinstance(part, Result)]
    assert [result.call_id for result in results] == [f"c{number}" for number in range(len(names))]
