"""The policy over calls that came as text: they end the turn by themselves, and all else is as with other calls."""

from random import Random

import pytest
from msgspec.structs import replace

from dragoman.core.aliases import NameLimits, NameMap
from dragoman.model.events import Event, Failed
from dragoman.model.outcome import ErrorInfo, Usage
from dragoman.model.request import Request
from dragoman.obsidian.answer import ObsidianAnswer
from dragoman.obsidian.policy import ObsidianPolicy
from dragoman.obsidian.settings import ChatSettings
from dragoman.textcalls.stage import stage_for
from obsidian_answers import TOOLS, Called, answer, block, calls_of, checked, text_of

ONE = block("search", ("query", "piano"), ("terms", '["a"]'))
TWO = block("now")
WRITTEN_ONE = (
    '<use_tool>\n<name>search</name>\n<terms>["a"]</terms>\n<query>piano</query>\n</use_tool>'
)
WRITTEN_TWO = "<use_tool>\n<name>now</name>\n</use_tool>"
CALLS = [("search", '{"terms":["a"],"query":"piano"}'), ("now", "{}")]
MODES = ("openai-json", "obsidian-xml")


def made(policy: ObsidianPolicy, *, choices: int = 1) -> ObsidianAnswer:
    request = Request(model="m", tools=TOOLS)
    written = stage_for(request, formats=("use_tool",), policy=policy.tail, seed="s")
    return ObsidianAnswer(policy, tools=TOOLS, text_calls=written, choices=choices)


def policy_of(mode: str, **more: object) -> ObsidianPolicy:
    return ObsidianPolicy(
        mode="obsidian-xml" if mode == "obsidian-xml" else "openai-json",
        chat=replace(ChatSettings(), **more),
    )


def run(obsidian: ObsidianAnswer, events: list[Event]) -> list[Event]:
    sequence: list[Event] = []
    for event in events:
        sequence += obsidian.feed(event)
    return sequence


@pytest.mark.requirement("S003-43")
@pytest.mark.parametrize("mode", MODES)
def test_written_calls_are_calls_and_canonical_blocks(mode: str) -> None:
    obsidian = made(policy_of(mode))
    outcome = checked(run(obsidian, answer(f"I look.\n{WRITTEN_ONE}\n\n{WRITTEN_TWO}\n")))
    assert calls_of(outcome) == CALLS
    assert text_of(outcome) == "I look.\n" + (ONE + TWO if mode == "obsidian-xml" else "")
    assert outcome.choices[0].finish == "tool_calls"
    assert obsidian.report().tool_call_count == 2


@pytest.mark.requirement("S003-43")
def test_text_is_text_where_a_structured_call_came() -> None:
    obsidian = made(ObsidianPolicy(mode="obsidian-xml"))
    outcome = checked(run(obsidian, answer(Called("c", "now"), f"Like {WRITTEN_ONE}")))
    assert calls_of(outcome) == CALLS[1:]
    assert text_of(outcome) == f"{TWO}Like {WRITTEN_ONE}"


@pytest.mark.parametrize("mode", MODES)
def test_prose_after_written_calls_ends_the_answer(mode: str) -> None:
    obsidian = made(policy_of(mode))
    text = f"{WRITTEN_ONE}\nIt is five.\n{WRITTEN_TWO}"
    outcome = checked(run(obsidian, answer(text, random=Random(1))))
    assert calls_of(outcome) == CALLS[:1]
    assert obsidian.is_cut
    assert obsidian.is_over


def test_first_ends_the_answer_with_the_first_written_call() -> None:
    obsidian = made(ObsidianPolicy(chat=ChatSettings(stop_after_tools_mode="first")))
    outcome = checked(run(obsidian, answer(f"{WRITTEN_ONE}\n{WRITTEN_TWO}", random=Random(1))))
    assert calls_of(outcome) == CALLS[:1]
    assert obsidian.is_cut


def test_nothing_is_cut_where_stopping_is_off() -> None:
    obsidian = made(
        ObsidianPolicy(chat=ChatSettings(stop_after_tools=False, suppress_tail_after_tools=False))
    )
    outcome = checked(run(obsidian, answer(f"{WRITTEN_ONE} and {WRITTEN_TWO} so.")))
    assert calls_of(outcome) == CALLS
    assert "so." in text_of(outcome)
    assert not obsidian.is_cut


def test_the_tail_is_emitted_where_it_is_wanted_but_not_its_calls() -> None:
    obsidian = made(ObsidianPolicy(chat=ChatSettings(suppress_tail_after_tools=False)))
    outcome = checked(run(obsidian, answer(f"{WRITTEN_ONE} It is five. {WRITTEN_TWO}")))
    assert calls_of(outcome) == CALLS[:1]
    assert "It is five." in text_of(outcome)
    assert obsidian.report().tool_call_truncated
    assert not obsidian.is_cut


def test_the_maximum_counts_written_calls() -> None:
    obsidian = made(ObsidianPolicy(chat=ChatSettings(tool_block_max=1)))
    outcome = checked(run(obsidian, answer(f"{WRITTEN_ONE}\n{WRITTEN_TWO}")))
    assert calls_of(outcome) == CALLS[:1]
    assert obsidian.report().tool_call_truncated


def test_an_answer_that_is_there_as_a_whole_keeps_its_usage() -> None:
    obsidian = made(ObsidianPolicy())
    obsidian.expect_complete()
    outcome = checked(run(obsidian, answer(f"{WRITTEN_ONE}\nprose", finish="length")))
    assert outcome.usage == Usage(input=1, output=2)
    assert outcome.choices[0].finish == "tool_calls"
    assert not obsidian.is_cut


def test_text_alone_ends_as_it_would() -> None:
    obsidian = made(ObsidianPolicy())
    events = answer("Just words.", random=Random(1))
    assert checked(run(obsidian, events)) == checked(events)
    assert not obsidian.is_cut


def test_of_several_choices_none_is_cut_for_another() -> None:
    obsidian = made(ObsidianPolicy(), choices=2)
    run(obsidian, answer(f"{WRITTEN_ONE}\nprose")[:-3])
    assert not obsidian.is_over


def test_a_block_that_is_being_written_is_waited_for() -> None:
    obsidian = made(ObsidianPolicy(chat=ChatSettings(stop_after_tools=True)))
    events = answer(f"{WRITTEN_ONE}\n<use_tool>\n<na", random=Random(1))
    run(obsidian, events[:-4])
    assert not obsidian.awaits_calls
    assert obsidian.calls_begun == 1


def test_waiting_ends_with_the_calls() -> None:
    obsidian = made(ObsidianPolicy(chat=ChatSettings(stop_after_tools=True)))
    found = run(obsidian, answer(f"{WRITTEN_ONE}\n", random=Random(1))[:-4])
    assert obsidian.awaits_calls
    obsidian.stop()
    assert obsidian.is_stopped
    found += obsidian.feed(answer("x")[-4])
    found += obsidian.feed(Failed(ErrorInfo(kind="cancelled", message="")))
    assert checked(found).choices[0].finish == "tool_calls"


def test_names_are_the_clients() -> None:
    names = NameMap.build(TOOLS, limits=NameLimits(max_length=4))
    obsidian = ObsidianAnswer(ObsidianPolicy(mode="obsidian-xml"), tools=TOOLS, names=names)
    wire = names.wire("search", None)
    assert wire != "search"
    outcome = checked(run(obsidian, answer(Called("c", wire, CALLS[0][1]))))
    assert text_of(outcome) == ONE
    assert obsidian.losses == ()
    assert obsidian.problems == ()
    assert obsidian.comment() == (
        '{"tool_call_count":1,"tool_call_truncated":false,"stop_after_tools_mode":"burst"}'
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", MODES)
def test_how_the_text_is_cut_changes_nothing_that_is_emitted(mode: str, seed: int) -> None:
    random = Random(seed)
    pool = ("Some words. ", "\n\n", WRITTEN_ONE, WRITTEN_TWO, "<use_tool>", " x")
    for stop in (None, True, False):
        for how in ("burst", "first"):
            for tail in (None, True, False):
                policy = policy_of(
                    mode,
                    stop_after_tools=stop,
                    stop_after_tools_mode=how,
                    suppress_tail_after_tools=tail,
                    tool_block_max=2,
                )
                text = "".join(random.choices(pool, k=random.randint(1, 6)))
                whole = checked(run(made(policy), answer(text)))
                cut = checked(run(made(policy), answer(text, random=random)))
                assert calls_of(whole) == calls_of(cut)
                assert text_of(whole) == text_of(cut)
                assert whole.choices[0].finish == cut.choices[0].finish
