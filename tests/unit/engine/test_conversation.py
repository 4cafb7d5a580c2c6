"""From answer to answer: requests, sums, and ends."""

import pytest

from dragoman.engine.answer import Answer
from dragoman.engine.compaction import SummaryCompaction
from dragoman.engine.conversation import Conversation
from dragoman.engine.events import Compacted
from dragoman.engine.settings import EngineSettings
from dragoman.engine.toolbox import Toolbox
from dragoman.model.outcome import Usage
from dragoman.model.parts import Text
from dragoman.model.request import Namespace, Tool, ToolChoice, ToolRef, Turn
from engine_models import Acting, ask, call, say_ok

SETTINGS = EngineSettings(max_turns=2, compaction=SummaryCompaction(threshold=10, keep=1))
CALLED = Answer(turns=(Turn(role="assistant", parts=(call(),)),), calls=(call(),))


def test_request_keeps_the_caller_s_wishes() -> None:
    toolbox = Toolbox([Acting(say_ok)])
    request = ask(tools=(Tool(name="mine"),), namespaces=(Namespace("n"),), include_usage=False)
    made = Conversation(request, SETTINGS).next_request(toolbox)
    assert [tool.name for tool in made.tools] == ["mine", "work"]
    assert made.namespaces == (Namespace("n"),)
    assert made.include_usage is False
    assert Conversation(ask(), SETTINGS).next_request(toolbox).include_usage is True


def test_answer_without_calls_is_the_end() -> None:
    conversation = Conversation(ask(), SETTINGS)
    turn = Turn(role="assistant", parts=(Text(text="Hi"),))
    assert conversation.take(Answer(turns=(turn,), finish="stop")) == "answered"
    assert conversation.turns == (*ask().turns, turn)


def test_answer_with_calls_goes_on_until_a_limit() -> None:
    conversation = Conversation(ask(), SETTINGS)
    conversation.turn_count = 1
    assert conversation.take(CALLED) is None
    conversation.turn_count = 2
    assert conversation.take(CALLED) == "max_turns"


def test_ids_of_all_calls_are_known() -> None:
    conversation = Conversation(ask(turns=CALLED.turns), SETTINGS)
    assert conversation.call_ids == {"call_1"}
    made = Answer(turns=(Turn(role="assistant", parts=(call(call_id="x"), Text())),))
    conversation.take(made)
    assert conversation.call_ids == {"call_1", "x"}


def test_answer_that_ends_the_run_says_why() -> None:
    assert Conversation(ask(), SETTINGS).take(Answer(end="failed")) == "failed"


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
    conversation = Conversation(ask(tool_choice=choice), SETTINGS)
    assert conversation.next_request(Toolbox()).tool_choice == choice
    conversation.take(Answer(finish="pause"))
    assert conversation.next_request(Toolbox()).tool_choice == choice
    conversation.take(CALLED)
    assert conversation.next_request(Toolbox()).tool_choice == after


def test_compaction_is_planned_once_after_an_answer() -> None:
    turn = ask().turns[0]
    conversation = Conversation(ask(turns=(turn,) * 5), SETTINGS)
    assert conversation.plan_compaction() is None
    conversation.take(Answer(usage=Usage(input=9, output=1)))
    plan = conversation.plan_compaction()
    assert plan is not None
    assert conversation.plan_compaction() is None
    assert conversation.compact(plan, "S") == Compacted(10, 5, 2)
    assert len(conversation.turns) == 2
    off = Conversation(ask(), EngineSettings(compaction=None))
    off.take(Answer(usage=Usage(input=10**9)))
    assert off.plan_compaction() is None
