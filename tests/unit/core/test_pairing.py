"""Law 9: every call has exactly one result, directly after its run, and every result its call."""

from collections import Counter
from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import Raw
from dragoman.core.pairing import (
    ERROR_MARK,
    INTERRUPTED,
    is_paired,
    mark_error,
    merge_turns,
    pair_results,
    put_system_first,
    unmark_error,
)
from dragoman.model.outcome import Repair
from dragoman.model.parts import (
    Breakpoint,
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Result,
    Text,
)
from dragoman.model.request import Role, Turn


def call(call_id: str, name: str = "f") -> Call:
    return Call(call_id=call_id, name=name, input="{}")


def result(call_id: str, text: str = "ok", *, is_error: bool = False) -> Result:
    return Result(call_id=call_id, content=(Text(text=text),), is_error=is_error)


def said(*parts: Part) -> Turn:
    return Turn(role="assistant", parts=parts)


def tool(*parts: Part) -> Turn:
    return Turn(role="tool", parts=parts)


def user(text: str) -> Turn:
    return Turn(role="user", parts=(Text(text=text),))


def system(text: str) -> Turn:
    return Turn(role="system", parts=(Text(text=text),))


def interrupted(call_id: str) -> Result:
    return result(call_id, INTERRUPTED, is_error=True)


def rules(repairs: tuple[Repair, ...]) -> list[str]:
    return [repair.rule for repair in repairs]


# --- what the museum holds ---


def test_a_regular_conversation_is_not_touched() -> None:
    turns = (
        system("be kind"),
        user("go"),
        said(Text(text="yes"), call("a"), call("b")),
        tool(result("a"), result("b")),
        said(call("c")),
        tool(result("c")),
        said(Text(text="done")),
    )
    paired, repairs = pair_results(turns)
    assert repairs == ()
    assert all(one is other for one, other in zip(paired, turns, strict=True))


def test_ids_repeated_across_turns_pair_by_turn_and_get_aliases() -> None:
    """M027"""
    turns = (
        said(call("list_dir:0")),
        tool(result("list_dir:0", "A")),
        said(call("list_dir:0")),
        tool(result("list_dir:0", "B")),
    )
    paired, repairs = pair_results(turns)
    assert paired == (
        *turns[:2],
        said(call("list_dir:0_2")),
        tool(result("list_dir:0_2", "B")),
    )
    assert repairs == (
        Repair("repeated_id", "turns[2].parts[0]", "list_dir:0 is now list_dir:0_2"),
    )


def test_an_alias_is_no_id_that_is_there_already() -> None:
    turns = (said(call("a"), call("a"), call("a_2")), tool(result("a_2", "third")))
    paired, _ = pair_results(turns)
    assert [part.call_id for part in paired[0].parts if isinstance(part, Call)] == [
        "a",
        "a_3",
        "a_2",
    ]
    assert paired[2] == tool(result("a_2", "third"))


def test_two_calls_with_one_id_in_one_turn_get_results_by_occurrence() -> None:
    turns = (said(call("a"), call("a")), tool(result("a", "1")), tool(result("a", "2")))
    paired, repairs = pair_results(turns)
    assert paired == (
        said(call("a"), call("a_2")),
        tool(result("a", "1")),
        tool(result("a_2", "2")),
    )
    assert rules(repairs) == ["repeated_id"]


def test_aliases_do_not_change_when_the_conversation_grows() -> None:
    turns = tuple(
        turn
        for number in range(5)
        for turn in (said(call("a"), call("")), tool(result("a", str(number)), result("")))
    )
    whole, _ = pair_results(turns)
    for size in range(0, len(turns), 2):
        assert pair_results(turns[:size])[0] == whole[:size]


def test_an_empty_pair_gets_an_id() -> None:
    """M035"""
    paired, repairs = pair_results((said(call("")), tool(result("", "ok"))))
    (made,) = [part.call_id for part in paired[0].parts if isinstance(part, Call)]
    assert made.startswith("call_")
    assert paired == (said(call(made)), tool(result(made, "ok")))
    assert rules(repairs) == ["empty_id"]


@pytest.mark.parametrize(("asked", "answered"), [("a", ""), ("", "a")])
def test_the_only_call_and_the_only_result_pair_if_one_has_no_id(asked: str, answered: str) -> None:
    paired, repairs = pair_results((said(call(asked)), tool(result(answered, "ok"))))
    (asked_part,), (answer_part,) = paired[0].parts, paired[1].parts
    assert isinstance(asked_part, Call)
    assert isinstance(answer_part, Result)
    assert asked_part.call_id == answer_part.call_id != ""
    assert rules(repairs) == ["empty_id"]


def test_unanswered_calls_get_an_error_result() -> None:
    """M101"""
    turns = (said(call("a"), call("b")), user("next question"))
    paired, repairs = pair_results(turns)
    assert paired == (turns[0], tool(interrupted("a"), interrupted("b")), turns[1])
    assert rules(repairs) == ["missing_result", "missing_result"]


def test_one_missing_result_is_put_in_call_order() -> None:
    """M103"""
    turns = (said(call("skill:0"), call("glob:1")), tool(result("glob:1")))
    paired, repairs = pair_results(turns)
    assert paired == (turns[0], tool(interrupted("skill:0")), turns[1])
    assert rules(repairs) == ["missing_result"]


def test_a_message_between_call_and_result_follows_the_result() -> None:
    """M105"""
    turns = (said(call("1")), system("tools changed"), user("and?"), tool(result("1", "real")))
    paired, repairs = pair_results(turns)
    assert paired == (turns[0], turns[3], turns[1], turns[2])
    assert repairs == (Repair("moved_result", "turns[3].parts[0]", "1"),)


def test_an_empty_turn_between_call_and_result_follows_the_result() -> None:
    turns = (said(call("1")), Turn(role="user"), tool(result("1")))
    paired, repairs = pair_results(turns)
    assert paired == (turns[0], turns[2], turns[1])
    assert rules(repairs) == ["moved_result"]


def test_results_are_put_in_call_order() -> None:
    turns = (
        said(call("a")),
        said(call("b"), call("c")),
        tool(result("c"), result("a"), result("b")),
    )
    paired, repairs = pair_results(turns)
    assert paired == (*turns[:2], tool(result("a"), result("b"), result("c")))
    assert repairs == (
        Repair("moved_result", "turns[2].parts[1]", "a"),
        Repair("moved_result", "turns[2].parts[2]", "b"),
    )


def test_a_turn_whose_results_part_keeps_its_fields_once() -> None:
    mixed = Turn(role="tool", parts=(result("a"), result("c")), item_id="item")
    paired, _ = pair_results((said(call("a"), call("b"), call("c")), mixed, tool(result("b"))))
    assert paired[1:] == (
        Turn(role="tool", parts=(result("a"),), item_id="item"),
        tool(result("b")),
        tool(result("c")),
    )


def test_what_a_model_said_after_its_call_stays_in_its_run() -> None:
    turns = (said(call("a")), said(Text(text="done?")), tool(result("a")))
    assert pair_results(turns) == (turns, ())


def test_a_result_is_found_behind_an_assistant_turn_without_calls() -> None:
    turns = (said(call("a")), user("x"), said(Text(text="y")), tool(result("a")))
    paired, repairs = pair_results(turns)
    assert paired == (turns[0], turns[3], turns[1], turns[2])
    assert rules(repairs) == ["moved_result"]


def test_a_result_behind_later_calls_goes_to_its_own_call() -> None:
    turns = (said(call("a")), user("x"), said(call("b")), tool(result("a")), tool(result("b")))
    paired, repairs = pair_results(turns)
    assert paired == (turns[0], turns[3], turns[1], turns[2], turns[4])
    assert rules(repairs) == ["moved_result"]


def test_an_orphan_becomes_text_of_a_user_turn() -> None:
    turns = (user("hi"), tool(result("gone", "42", is_error=True)), said(Text(text="ok")))
    paired, repairs = pair_results(turns)
    heading, *content = paired[1].parts
    assert paired[1].role == "user"
    assert isinstance(heading, Text)
    assert heading.text.startswith(ERROR_MARK)
    assert content == [Text(text="42")]
    assert (paired[0], paired[2]) == (turns[0], turns[2])
    assert repairs == (Repair("orphan_result", "turns[1].parts[0]", "gone"),)


def test_a_result_before_its_call_is_an_orphan() -> None:
    paired, repairs = pair_results((tool(result("a")), said(call("a"))))
    assert [turn.role for turn in paired] == ["user", "assistant", "tool"]
    assert rules(repairs) == ["orphan_result", "missing_result"]


def test_an_equal_duplicate_is_dropped_and_another_becomes_text() -> None:
    turns = (
        said(call("a")),
        tool(result("a", "1")),
        tool(result("a", "1")),
        tool(result("a", "2")),
        said(call("b")),
        tool(result("b")),
        tool(result("a", "1")),
    )
    paired, repairs = pair_results(turns)
    assert paired[:2] == turns[:2]
    assert paired[2].role == "user"
    assert paired[2].parts[-1] == Text(text="2")
    assert paired[3:] == turns[4:6]
    assert rules(repairs) == ["duplicate_result"] * 3


def test_empty_ids_are_never_taken_for_duplicates() -> None:
    turns = (said(call("")), tool(result("", "x")), tool(result("", "x")))
    paired, repairs = pair_results(turns)
    assert paired[2].parts[-1] == Text(text="x")
    assert rules(repairs) == ["empty_id", "orphan_result"]


def test_results_inside_a_user_turn_are_taken_out_of_it() -> None:
    turn = Turn(role="user", parts=(result("a"), Text(text="and now?")), item_id="m")
    paired, repairs = pair_results((said(call("a")), turn))
    assert paired[1:] == (
        tool(result("a")),
        Turn(role="user", parts=(Text(text="and now?"),), item_id="m"),
    )
    assert repairs == ()
    whole = Turn(role="user", parts=(result("a"),), item_id="m")
    assert pair_results((said(call("a")), whole))[0][1] == Turn(
        role="tool", parts=(result("a"),), item_id="m"
    )


def test_text_before_a_result_in_one_user_turn_follows_it() -> None:
    turn = Turn(role="user", parts=(Text(text="first"), result("a")))
    paired, repairs = pair_results((said(call("a")), turn))
    assert paired[1:] == (tool(result("a")), user("first"))
    assert rules(repairs) == ["moved_result"]


def test_an_orphan_inside_a_user_turn_stays_in_it() -> None:
    turn = Turn(role="user", parts=(Text(text="1"), result("gone", "2"), Text(text="3")))
    (paired,), _ = pair_results((turn,))
    assert paired.role == "user"
    assert [part.text for part in paired.parts if isinstance(part, Text)][::2] == ["1", "2"]
    assert paired.parts[-1] == Text(text="3")


def test_results_inside_an_assistant_turn_come_out_of_it() -> None:
    turns = (said(call("a"), result("a"), result("gone", "g")), said(result("a")), user("x"))
    paired, repairs = pair_results(turns)
    assert paired[0] == said(call("a"))
    assert paired[1] == tool(result("a"))
    assert (paired[2].role, paired[2].parts[-1]) == ("user", Text(text="g"))
    assert paired[3:] == (user("x"),)
    assert rules(repairs) == ["moved_result", "orphan_result", "duplicate_result"]


def test_an_orphan_in_an_assistant_turn_without_calls_follows_it() -> None:
    paired, _ = pair_results((said(Text(text="t"), result("gone", "g")), said(result("g2", "h"))))
    assert paired[0] == said(Text(text="t"))
    assert [turn.role for turn in paired] == ["assistant", "user", "user"]


def test_a_tool_turn_without_results_does_not_stay_one() -> None:
    turns = (said(call("a")), Turn(role="tool"), tool(Text(text="loose")), tool(result("a")))
    paired, repairs = pair_results(turns)
    assert paired == (turns[0], turns[3], user("loose"))
    assert rules(repairs) == ["orphan_result", "orphan_result", "moved_result"]


def test_calls_and_results_of_providers_stay_where_they_are() -> None:
    search = Call(call_id="s", name="web_search", kind="web_search", executor="provider")
    found = Result(call_id="s", kind="web_search", executor="provider")
    unmarked = Result(call_id="s", content=(Text(text="page"),))
    turns = (
        said(search, found, Text(text="so"), call("a")),
        tool(result("a")),
        said(search),
        tool(unmarked),
        tool(found),
    )
    assert pair_results(turns) == (turns, ())


def test_a_client_call_with_the_id_of_a_providers_gets_its_own() -> None:
    search = Call(call_id="s", name="web_search", kind="web_search", executor="provider")
    paired, repairs = pair_results((said(search, call("s")), tool(result("s"))))
    assert paired == (said(search, call("s_2")), tool(result("s_2")))
    assert rules(repairs) == ["repeated_id"]


def test_an_unheard_of_result_is_not_given_to_the_only_call_left() -> None:
    paired, repairs = pair_results((said(call("a")), tool(result("b", "x"))))
    assert paired[1] == tool(interrupted("a"))
    assert paired[2].parts[-1] == Text(text="x")
    assert rules(repairs) == ["missing_result", "orphan_result"]


def test_a_result_takes_the_kind_of_its_call() -> None:
    custom = Call(call_id="a", name="apply_patch", kind="custom")
    paired, repairs = pair_results((said(custom, call("b")), tool(result("a")), user("x")))
    (answer,) = paired[1].parts
    assert isinstance(answer, Result)
    assert answer.kind == "custom"
    assert rules(repairs) == ["missing_result"]
    shell = Result(call_id="a", kind="shell")
    assert pair_results((said(custom), tool(shell)))[0][1] == tool(shell)


def test_results_for_turns_the_provider_holds_stay() -> None:
    """M102: with server-held state the call is on the provider's side."""
    turns = (tool(result("held")), user("go on"), said(call("a")), tool(result("a")))
    assert pair_results(turns, continues=True) == (turns, ())
    assert rules(pair_results(turns)[1]) == ["orphan_result"]


def test_media_and_opaque_content_of_an_orphan_is_kept() -> None:
    content = (
        Media(kind="image", data="aGk="),
        Opaque(dialect="messages", type="x", raw=Raw(b"1")),
    )
    (paired,), _ = pair_results((tool(Result(call_id="gone", content=content)),))
    assert paired.parts[1:] == content


# --- laws, over any conversation ---

_IDS = st.sampled_from(["a", "b", "c", "a_2", ""])
_TEXTS = st.sampled_from(["one", "two"])
_WORDS = st.builds(Text, text=_TEXTS)
_CALLS = st.builds(call, _IDS, st.sampled_from(["f", "g"]))
_RESULTS = st.builds(result, _IDS, _TEXTS, is_error=st.booleans())
_PROVIDED = st.builds(
    Call, call_id=st.sampled_from(["p", "a"]), name=st.just("s"), executor=st.just("provider")
)
_FOUND = st.builds(Result, call_id=st.sampled_from(["p", "a"]), executor=st.just("provider"))
_SAID: st.SearchStrategy[Part] = st.one_of(
    _WORDS, _CALLS, _PROVIDED, _FOUND, st.just(Reasoning(summary=("hm",)))
)
_ANSWERED: st.SearchStrategy[Part] = _RESULTS | _WORDS
TURNS = st.lists(
    st.one_of(
        st.builds(said, _CALLS),
        st.builds(said, _CALLS, _CALLS),
        st.lists(_SAID, max_size=3).map(lambda parts: said(*parts)),
        st.builds(tool, _RESULTS),
        st.builds(tool, _RESULTS, _RESULTS),
        st.lists(_ANSWERED, max_size=3).map(lambda parts: tool(*parts)),
        st.builds(user, _TEXTS),
        st.builds(system, _TEXTS),
        st.tuples(_RESULTS, _WORDS).map(lambda parts: Turn(role="user", parts=parts)),
        st.tuples(_WORDS, _RESULTS).map(lambda parts: said(*parts)),
    ),
    max_size=14,
)


def client_calls(turn: Turn) -> list[Call]:
    return [part for part in turn.parts if isinstance(part, Call) and part.executor == "client"]


def client_results(turn: Turn) -> list[Result]:
    return [part for part in turn.parts if isinstance(part, Result) and part.executor == "client"]


def check_paired(turns: tuple[Turn, ...]) -> None:
    """Each run of assistant turns with calls is followed by exactly its results, and there are no others."""
    providers = {
        part.call_id
        for turn in turns
        for part in turn.parts
        if isinstance(part, Call) and part.executor == "provider"
    }
    index = 0
    seen: set[str] = set(providers)

    def answers(turn: Turn) -> list[Result]:
        return [part for part in client_results(turn) if part.call_id not in providers]

    while index < len(turns):
        asked: list[str] = []
        while index < len(turns) and turns[index].role == "assistant":
            assert not answers(turns[index])
            asked += [part.call_id for part in client_calls(turns[index])]
            index += 1
        answered: list[str] = []
        while index < len(turns) and len(answered) < len(asked):
            assert turns[index].role == "tool", "a result is missing"
            found = answers(turns[index])
            assert list(turns[index].parts[: len(found)]) == found
            answered += [part.call_id for part in found]
            index += 1
        assert asked == answered
        assert not seen & set(asked)
        assert "" not in asked
        assert len(set(asked)) == len(asked)
        seen |= set(asked)
        while index < len(turns) and turns[index].role != "assistant":
            assert not answers(turns[index]), "a result without a call"
            assert turns[index].role != "tool" or turns[index].parts
            index += 1


@given(TURNS)
def test_after_pairing_every_call_has_its_result_and_every_result_its_call(
    turns: list[Turn],
) -> None:
    check_paired(pair_results(turns)[0])


@given(TURNS)
def test_pairing_a_paired_conversation_changes_nothing(turns: list[Turn]) -> None:
    paired, _ = pair_results(turns)
    assert pair_results(paired) == (paired, ())


@given(TURNS)
def test_a_conversation_changes_only_if_a_repair_says_so(turns: list[Turn]) -> None:
    paired, repairs = pair_results(turns)
    flat = [part for turn in turns for part in turn.parts]
    assert repairs or [part for turn in paired for part in turn.parts] == flat


def contents(turns: tuple[Turn, ...] | list[Turn]) -> Counter[str]:
    texts: Counter[str] = Counter()
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, Text):
                texts[part.text] += 1
            elif isinstance(part, Result):
                texts.update(piece.text for piece in part.content if isinstance(piece, Text))
    return texts


@given(TURNS)
def test_no_text_is_lost_but_equal_duplicates(turns: list[Turn]) -> None:
    paired, repairs = pair_results(turns)
    dropped = sum(repair.detail.endswith(" dropped") for repair in repairs)
    before, after = contents(turns), contents(paired)
    assert sum((before - after).values()) == dropped
    assert set(before) <= set(after)


@given(TURNS)
def test_calls_and_the_other_parts_keep_their_order(turns: list[Turn]) -> None:
    def others(all_turns: tuple[Turn, ...] | list[Turn]) -> list[Part]:
        return [
            part
            for turn in all_turns
            if turn.role == "assistant"
            for part in turn.parts
            if not isinstance(part, Call | Result)
        ]

    paired, _ = pair_results(turns)
    before = [part for turn in turns for part in client_calls(turn) if turn.role == "assistant"]
    after = [part for turn in paired for part in client_calls(turn)]
    assert [part.name for part in after] == [part.name for part in before]
    assert others(paired) == others(turns)


@given(TURNS)
def test_missing_results_are_reported_one_by_one(turns: list[Turn]) -> None:
    paired, repairs = pair_results(turns)
    made = sum(
        part.content == (Text(text=INTERRUPTED),)
        for turn in paired
        for part in client_results(turn)
    )
    assert rules(repairs).count("missing_result") == made


@given(TURNS)
def test_paired_and_merged_turns_alternate_and_stay_paired(turns: list[Turn]) -> None:
    paired, _ = pair_results(turns)
    merged, _ = merge_turns(paired)
    check_paired(merged)
    for turn in merged:
        calls = client_calls(turn)
        assert list(turn.parts[len(turn.parts) - len(calls) :]) == calls


@given(TURNS)
def test_a_conversation_that_is_paired_needs_no_closer_look(turns: list[Turn]) -> None:
    # A stray result at the end makes the closer look necessary; it must find nothing else.
    closer, repairs = pair_results([*turns, user("and"), tool(result("nobody's"))])
    if is_paired(turns):
        assert list(closer[: len(turns)]) == turns
        assert rules(repairs) == ["orphan_result"]


def test_results_in_the_order_of_their_calls_are_paired() -> None:
    assert is_paired(())
    assert is_paired(
        (
            said(call("a"), call("b")),
            said(call("c")),
            tool(result("a")),
            tool(result("b"), result("c")),
        )
    )
    assert is_paired(
        (said(call("a")), tool(result("a")), said(call("b")), tool(result("b")), user("thanks"))
    )


@pytest.mark.parametrize(
    "turns",
    [
        (said(call("a")),),
        (said(call("a")), user("go on"), tool(result("a"))),
        (said(call("a"), call("b")), tool(result("b"), result("a"))),
        (said(call("a"), call("b")), tool(result("a")), said(), tool(result("b"))),
        (said(call("a")), tool(result("a"), result("a"))),
        (said(call("a")), tool(result("a")), said(call("a")), tool(result("a"))),
        (said(call("")), tool(result(""))),
        (said(call("a")), tool(Text(text="a"))),
        (said(call("a")), tool(), tool(result("a"))),
        (said(call("a")), Turn(role="user", parts=(result("a"),))),
        (said(Call(call_id="a", name="f", executor="provider")),),
        (said(Call(call_id="a", name="f", kind="custom")), tool(result("a"))),
        (tool(result("a")),),
    ],
)
def test_anything_else_needs_a_closer_look(turns: tuple[Turn, ...]) -> None:
    assert not is_paired(turns)


CALL = Call(call_id="a", name="f")
SEARCH = Call(call_id="s", name="web_search", kind="web_search", executor="provider")


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
    first = Turn(role="assistant", item_id="m", cache=Breakpoint(ttl="5m"))
    second = Turn(
        role="assistant",
        name="n",
        status="completed",
        item_id="other",
        cache=Breakpoint(ttl="1h"),
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
        cache=Breakpoint(ttl="1h"),
        extra=Extra("chat", {"x": Raw(b"1"), "y": Raw(b"3")}),
    )


_PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=st.text(max_size=2)),
    st.builds(Call, call_id=st.text(max_size=2), name=st.just("f")),
    st.just(SEARCH),
    st.builds(Result, call_id=st.text(max_size=2)),
)
_ROLES = st.sampled_from(list[Role](["user", "assistant", "tool", "system"]))
ANY_TURNS = st.lists(st.builds(Turn, role=_ROLES, parts=st.lists(_PARTS, max_size=4).map(tuple)))


@given(ANY_TURNS)
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


@given(ANY_TURNS)
def test_merging_twice_is_merging_once(turns: list[Turn]) -> None:
    merged, _ = merge_turns(turns)
    assert merge_turns(merged) == (merged, ())
    for one, other in pairwise(merged):
        assert one.role != other.role or one.role in {"user", "system"}


@given(st.text() | st.text().map(mark_error))
def test_a_marked_text_comes_back_as_it_was(text: str) -> None:
    """M100"""
    assert unmark_error(mark_error(text)) == (text, True)


@given(st.text().filter(lambda text: not text.startswith(ERROR_MARK)))
def test_a_text_without_the_mark_is_no_error(text: str) -> None:
    assert unmark_error(text) == (text, False)


def test_many_late_system_turns_are_joined_once() -> None:
    late = [
        Turn(role="system", parts=(Text(text="a"),), extra=extra_of(number))
        for number in range(50_000)
    ]
    start = process_time()
    turns, repairs = put_system_first((Turn(role="user", parts=(Text(text="hi"),)), *late))
    assert process_time() - start < 5
    assert [(turn.role, len(turn.parts)) for turn in turns] == [("user", 50_001)]
    assert turns[0].extra == Extra("chat", {"a": Raw(b"0"), "b": Raw(b"1")})
    assert len(repairs) == 50_000


def extra_of(number: int) -> Extra:
    """Of a field that several turns have, the first counts."""
    return Extra("chat", {"ab"[number % 2]: Raw(b"%d" % number)})
