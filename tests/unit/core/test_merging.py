"""Runs of turns become one, and nothing in them gets lost."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import Raw
from dragoman.core.merging import merge_turns
from dragoman.model.outcome import Repair
from dragoman.model.parts import Call, Extra, Part, Reasoning, Result, Text
from dragoman.model.request import Role, Turn

CALL = Call(call_id="a", name="f")
SEARCH = Call(call_id="s", name="web_search", kind="web_search", executor="provider")


def said(*parts: Part) -> Turn:
    return Turn(role="assistant", parts=parts)


def test_one_turn_for_each_run_of_assistant_and_of_tool_turns() -> None:
    other = Call(call_id="b", name="g")
    turns = (
        Turn(role="user", parts=(Text(text="1"),)),
        Turn(role="user", parts=(Text(text="2"),)),
        said(Text(text="hm")),
        said(CALL),
        said(other),
        Turn(role="tool", parts=(Result(call_id="a"),)),
        Turn(role="tool", parts=(Result(call_id="b"),)),
    )
    assert merge_turns(turns) == (
        (
            *turns[:2],
            said(Text(text="hm"), CALL, other),
            Turn(role="tool", parts=(Result(call_id="a"), Result(call_id="b"))),
        ),
        (),
    )


def test_text_after_a_call_is_moved_before_it() -> None:
    """M095"""
    turn = said(Reasoning(summary=("t",)), CALL, Text(text="done?"), SEARCH, Text(text="so"))
    merged, repairs = merge_turns((Turn(role="user"), turn))
    assert merged[1].parts == (
        Reasoning(summary=("t",)),
        Text(text="done?"),
        SEARCH,
        Text(text="so"),
        CALL,
    )
    assert repairs == (Repair("text_before_calls", "turns[1]"),)


def test_a_turn_that_needs_nothing_is_the_same_object() -> None:
    turns = (said(SEARCH, Text(text="x"), CALL), Turn(role="tool"), said())
    merged, repairs = merge_turns(turns)
    assert all(one is other for one, other in zip(merged, turns, strict=True))
    assert repairs == ()


def test_the_fields_of_merged_turns_are_kept() -> None:
    first = Turn(role="assistant", item_id="m", cache=Raw(b"1"))
    second = Turn(
        role="assistant",
        name="n",
        status="completed",
        item_id="other",
        cache=Raw(b"2"),
        extra=Extra("chat", {"x": Raw(b"1")}),
    )
    third = Turn(role="assistant", extra=Extra("chat", {"x": Raw(b"2"), "y": Raw(b"3")}))
    fourth = Turn(role="assistant", extra=Extra("messages", {"z": Raw(b"4")}))
    (merged,), _ = merge_turns((first, second, third, fourth))
    assert merged == Turn(
        role="assistant",
        name="n",
        status="completed",
        item_id="m",
        cache=Raw(b"2"),
        extra=Extra("chat", {"x": Raw(b"1"), "y": Raw(b"3")}),
    )


_PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=st.text(max_size=2)),
    st.builds(Call, call_id=st.text(max_size=2), name=st.just("f")),
    st.just(SEARCH),
    st.builds(Result, call_id=st.text(max_size=2)),
)
_ROLES = st.sampled_from(list[Role](["user", "assistant", "tool", "system"]))
TURNS = st.lists(st.builds(Turn, role=_ROLES, parts=st.lists(_PARTS, max_size=4).map(tuple)))


@given(TURNS)
def test_every_part_is_kept_and_each_kind_in_order(turns: list[Turn]) -> None:
    merged, _ = merge_turns(turns)

    def lanes(all_turns: tuple[Turn, ...] | list[Turn]) -> list[list[Part]]:
        parts = [part for turn in all_turns for part in turn.parts]
        is_call = [isinstance(part, Call) and part.executor == "client" for part in parts]
        return [
            [part for part, is_it in zip(parts, is_call, strict=True) if is_it is wanted]
            for wanted in (True, False)
        ]

    assert lanes(merged) == lanes(turns)


@given(TURNS)
def test_merging_twice_is_merging_once(turns: list[Turn]) -> None:
    merged, _ = merge_turns(turns)
    assert merge_turns(merged) == (merged, ())
    for one, other in pairwise(merged):
        assert one.role != other.role or one.role in {"user", "system"}
