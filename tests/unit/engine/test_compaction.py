"""What is summed up of a long conversation and what stays."""

from dragoman.core.pairing import is_paired
from dragoman.engine.compaction import INSTRUCTION, PREFACE, SummaryCompaction
from dragoman.model.parts import Call, Result, Text
from dragoman.model.request import Role, Turn


def said(role: Role, text: str = "…") -> Turn:
    return Turn(role=role, parts=(Text(text=text),))


def called(*ids: str) -> Turn:
    return Turn(role="assistant", parts=tuple(Call(call_id=name, name="f") for name in ids))


def answered(*ids: str) -> Turn:
    return Turn(role="tool", parts=tuple(Result(call_id=name, name="f") for name in ids))


SYSTEM, USER, ASSISTANT = said("system"), said("user"), said("assistant")


def test_short_conversation_is_left_alone() -> None:
    assert SummaryCompaction(threshold=10).plan([USER] * 20, 9) is None


def test_head_and_newest_turns_stay() -> None:
    turns = (SYSTEM, said("developer"), USER, ASSISTANT, USER, ASSISTANT, said("user", "last"))
    plan = SummaryCompaction(threshold=10, keep=1).plan(turns, 10)
    assert plan is not None
    assert plan.tokens == 10
    assert plan.head == turns[:2]
    assert plan.tail == turns[6:]
    assert plan.asked == (*turns[:6], said("user", INSTRUCTION))
    assert plan.turns("S") == (*turns[:2], said("user", PREFACE + "S"), turns[6])


def test_calls_and_their_results_are_never_torn_apart() -> None:
    turns = (USER, ASSISTANT, USER, called("a", "b"), answered("a"), answered("b"), ASSISTANT)
    for keep in range(1, 7):
        plan = SummaryCompaction(threshold=1, keep=keep).plan(turns, 1)
        if plan is not None:
            assert is_paired(plan.turns("S"))
            assert is_paired(plan.asked)
            assert len(plan.tail) >= keep
    plan = SummaryCompaction(threshold=1, keep=2).plan(turns, 1)
    assert plan is not None
    assert plan.tail == turns[3:]


def test_open_calls_and_all_after_them_stay() -> None:
    turns = (USER, ASSISTANT, USER, called("a", "b"), answered("a"), USER, ASSISTANT, USER)
    plan = SummaryCompaction(threshold=1, keep=1).plan(turns, 1)
    assert plan is not None
    assert plan.tail == turns[3:]


def test_result_that_stands_apart_from_its_call_keeps_the_cut_away() -> None:
    turns = (USER, ASSISTANT, USER, called("a"), USER, answered("a"), ASSISTANT)
    plan = SummaryCompaction(threshold=1, keep=3).plan(turns, 1)
    assert plan is not None
    assert plan.tail == turns[3:]


def test_provider_s_calls_need_no_result() -> None:
    searched = Turn(role="assistant", parts=(Call(call_id="w", name="web", executor="provider"),))
    turns = (USER, searched, USER, ASSISTANT)
    plan = SummaryCompaction(threshold=1, keep=1).plan(turns, 1)
    assert plan is not None
    assert plan.tail == turns[3:]


def test_nothing_between_head_and_tail_is_nothing_to_sum_up() -> None:
    policy = SummaryCompaction(threshold=1, keep=2)
    assert policy.plan((SYSTEM, USER, ASSISTANT, USER), 1) is None
    assert policy.plan((SYSTEM, SYSTEM), 1) is None
    assert policy.plan((), 1) is None


def test_whole_conversation_may_be_summed_up() -> None:
    turns = (USER, ASSISTANT, USER, ASSISTANT)
    plan = SummaryCompaction(threshold=1, keep=0).plan(turns, 1)
    assert plan is not None
    assert plan.tail == ()
