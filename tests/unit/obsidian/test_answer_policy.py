"""Answers under the contract: what is emitted, what is withheld, and how they end."""

from random import Random

import pytest

from dragoman._json import raw
from dragoman.core.grammar import is_grammatical
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    Noticed,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, LossAction, Usage
from dragoman.model.parts import Annotation, Call, Reasoning, Refusal, Result, Text
from dragoman.obsidian.answer import ObsidianAnswer
from dragoman.obsidian.policy import ObsidianPolicy
from dragoman.obsidian.settings import ChatSettings, mode_of
from obsidian_answers import (
    TOOLS,
    Called,
    answer,
    block,
    calls_of,
    checked,
    part_events,
    text_of,
)

XML = ObsidianPolicy(mode="obsidian-xml")
ONE = Called("c1", "search", '{"terms":["a"],"query":"piano"}')
TWO = Called("c2", "now")
THREE = Called("c3", "write", '{"path":"a.md","content":"x"}')
BLOCK_ONE = block("search", ("query", "piano"), ("terms", '["a"]'))
BLOCK_TWO = block("now")
BLOCK_THREE = block("write", ("path", "a.md"), ("content", "x"))
ERROR = Failed(ErrorInfo(kind="upstream", message="it broke"))
CALLS = [("search", ONE.source), ("now", "{}"), ("write", THREE.source)]


def run(stage: ObsidianAnswer, events: list[Event], *, until_over: bool = False) -> list[Event]:
    sequence: list[Event] = []
    for event in events:
        sequence += stage.feed(event)
        if until_over and stage.is_over:
            break
    return sequence


def made(policy: ObsidianPolicy, losses: dict[str, LossAction] | None = None) -> ObsidianAnswer:
    return ObsidianAnswer(policy, tools=TOOLS, losses=losses)


@pytest.mark.parametrize("mode", ["openai-json", "obsidian-xml"])
def test_an_answer_without_calls_passes_as_it_is(mode: str) -> None:
    events = answer("Hello.")
    found = run(made(ObsidianPolicy(mode=mode_of(mode) or "openai-json")), events)
    assert found == events


def test_calls_alone_change_nothing_in_openai_json() -> None:
    events = answer("I look.", ONE, TWO)
    assert run(made(ObsidianPolicy()), events) == events


def test_blocks_follow_their_calls_after_the_text_before() -> None:
    stage = made(XML)
    outcome = checked(run(stage, answer("I look.", ONE, TWO)))
    assert calls_of(outcome) == CALLS[:2]
    assert text_of(outcome) == f"I look.\n{BLOCK_ONE}{BLOCK_TWO}"
    assert outcome.choices[0].finish == "tool_calls"
    assert outcome.usage == Usage(input=1, output=2)
    assert stage.losses == ()


@pytest.mark.parametrize(
    ("text", "content"),
    [("", ""), ("line\n", "line\n"), ("no line end", "no line end\n")],
)
def test_a_block_begins_on_a_line_of_its_own(text: str, content: str) -> None:
    pieces = (text, TWO) if text else (TWO,)
    assert text_of(checked(run(made(XML), answer(*pieces)))) == content + BLOCK_TWO


def test_the_delimiter_stands_between_blocks_and_nowhere_else() -> None:
    policy = ObsidianPolicy(mode="obsidian-xml", chat=ChatSettings(tool_block_delimiter="\n--\n"))
    text = text_of(checked(run(made(policy), answer("Hi.", ONE, TWO, "\nand\n", THREE))))
    assert text == f"Hi.\n{BLOCK_ONE}\n--\n{BLOCK_TWO}\nand\n{BLOCK_THREE}"


def test_a_cut_call_has_no_block() -> None:
    cut = Called("c2", "search", '{"query":"pi', is_whole=False)
    stage = made(XML)
    outcome = checked(run(stage, answer(TWO, cut, finish="length")))
    assert text_of(outcome) == BLOCK_TWO
    assert outcome.choices[0].finish == "length"
    assert stage.report().tool_call_count == 1


def test_a_call_whose_arguments_are_no_json_has_no_block_and_is_a_loss() -> None:
    stage = made(XML)
    assert text_of(checked(run(stage, answer(Called("c", "search", "{oops"))))) == ""
    assert [loss.code for loss in stage.losses] == ["use_tool_value"]


def test_what_the_client_would_misread_is_a_loss() -> None:
    html = Called("c", "write", '{"path":"a","content":"<p>x</p>"}')
    stage = made(XML)
    assert "<p>x</p>" in text_of(checked(run(stage, answer(html))))
    (loss,) = stage.losses
    assert (loss.code, loss.where, loss.action) == ("use_tool_value", "write.content", "carry")


def test_a_block_that_would_be_misread_is_left_out_where_the_operator_says_so() -> None:
    html = Called("c", "write", '{"content":"<p>x</p>"}')
    stage = made(XML, {"use_tool_value": "drop"})
    outcome = checked(run(stage, answer(html)))
    assert text_of(outcome) == ""
    assert calls_of(outcome) == [("write", html.source)]


@pytest.mark.parametrize(("action", "word"), [("drop", ""), ("carry", "null")])
def test_a_null_is_a_loss(action: LossAction, word: str) -> None:
    stage = made(XML, {"use_tool_null": action})
    text = text_of(checked(run(stage, answer(Called("c", "search", '{"query":null}')))))
    assert text == block("search", *((("query", word),) if word else ()))
    assert stage.losses[0].code == "use_tool_null"


def test_entities_are_written_where_asked_for() -> None:
    policy = ObsidianPolicy(mode="obsidian-xml", chat=ChatSettings(xml_escape="entities"))
    stage = made(policy)
    called = Called("c", "write", '{"content":"<p>"}')
    assert text_of(checked(run(stage, answer(called)))) == block("write", ("content", "&lt;p&gt;"))
    assert stage.losses == ()


def test_interleaved_calls_get_their_blocks_in_the_order_they_end() -> None:
    one, two = part_events(0, ONE), part_events(1, TWO)
    events = [Started(), one[0], two[0], one[1], two[1], two[2], one[2], Finished("tool_calls"), Completed()]  # fmt: skip
    outcome = checked(run(made(XML), events))
    assert text_of(outcome) == BLOCK_TWO + BLOCK_ONE
    assert calls_of(outcome) == [CALLS[0], CALLS[1]]


def test_every_choice_has_its_own_blocks_and_its_own_count() -> None:
    policy = ObsidianPolicy(mode="obsidian-xml", chat=ChatSettings(tool_block_max=1))
    stage = ObsidianAnswer(policy, tools=TOOLS, choices=2)
    events = [
        Started(),
        *part_events(0, ONE),
        *part_events(1, TWO, choice=1),
        *part_events(2, THREE, choice=1),
        Finished("tool_calls"),
        Finished("tool_calls", 1),
        Completed(),
    ]
    outcome = checked(run(stage, events))
    assert [calls_of(outcome, choice) for choice in (0, 1)] == [CALLS[:1], CALLS[1:2]]
    assert [text_of(outcome, choice) for choice in (0, 1)] == [BLOCK_ONE, BLOCK_TWO]
    assert stage.report().tool_call_truncated


# --- how many, and which ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("mode", ["openai-json", "obsidian-xml"])
def test_the_maximum_is_exact_and_truncated_only_says_what_was_withheld(
    mode: str, most: int
) -> None:
    policy = ObsidianPolicy(
        mode=mode_of(mode) or "openai-json", chat=ChatSettings(tool_block_max=most)
    )
    stage = made(policy)
    outcome = checked(run(stage, answer("Hi.", ONE, TWO, THREE)))
    found = 3 if most == 0 else min(most, 3)
    assert calls_of(outcome) == CALLS[:found]
    assert text_of(outcome).count("<use_tool>") == (found if mode == "obsidian-xml" else 0)
    assert stage.report().tool_call_truncated is (found < 3)
    assert stage.report().tool_call_count == found
    assert outcome.choices[0].finish == "tool_calls"


@pytest.mark.parametrize("mode", ["openai-json", "obsidian-xml"])
def test_a_repeated_call_is_emitted_once(mode: str) -> None:
    again = Called("c9", "search", '{ "query": "piano", "terms": ["a"] }')
    other = Called("c8", "search", '{"query":"violin"}')
    policy = ObsidianPolicy(
        mode=mode_of(mode) or "openai-json", chat=ChatSettings(tool_block_dedup=True)
    )
    stage = made(policy)
    outcome = checked(run(stage, answer(ONE, again, other, TWO, TWO)))
    assert calls_of(outcome) == [CALLS[0], ("search", other.source), CALLS[1]]
    assert not stage.report().tool_call_truncated
    assert stage.report().tool_call_ids == ("c1", "c8", "c2")


def test_repeated_calls_do_not_count_towards_the_maximum() -> None:
    stage = made(ObsidianPolicy(chat=ChatSettings(tool_block_dedup=True, tool_block_max=2)))
    outcome = checked(run(stage, answer(TWO, TWO, ONE, THREE)))
    assert calls_of(outcome) == [CALLS[1], CALLS[0]]
    assert stage.report().tool_call_truncated


def test_broken_calls_are_compared_as_text_and_emitted() -> None:
    half = Called("c1", "search", "{half", is_whole=False)
    outcome = checked(
        run(
            made(ObsidianPolicy(chat=ChatSettings(tool_block_dedup=True))),
            answer(half, half, finish="length"),
        )
    )
    assert len(calls_of(outcome)) == 2


def test_calls_that_are_held_together_keep_to_the_maximum() -> None:
    one, two = part_events(0, ONE), part_events(1, TWO)
    events = [Started(), *one[:2], *two, *one[2:], Finished("tool_calls"), Completed()]
    stage = made(ObsidianPolicy(chat=ChatSettings(tool_block_dedup=True, tool_block_max=1)))
    assert calls_of(checked(run(stage, events))) == CALLS[1:2]
    assert stage.report().tool_call_truncated


def test_free_text_is_compared_as_it_is() -> None:
    def note(number: int, text: str) -> list[Event]:
        call = Call(call_id=f"c{number}", name="note", kind="custom", input=text)
        header = Call(call_id=f"c{number}", name="note", kind="custom", status="in_progress")
        return [PartStarted(number, header), InputDelta(number, text), PartEnded(number, call)]

    events = [Started(), *note(0, "{ }"), *note(1, "{}"), *note(2, "{}"), Finished("tool_calls"), Completed()]  # fmt: skip
    outcome = checked(run(made(ObsidianPolicy(chat=ChatSettings(tool_block_dedup=True))), events))
    assert calls_of(outcome) == [("note", "{ }"), ("note", "{}")]


def test_of_many_calls_all_are_counted_and_some_are_named() -> None:
    stage = made(XML)
    run(stage, answer(*(Called(f"c{number}", "now") for number in range(40))))
    report = stage.report()
    assert (report.tool_call_count, len(report.tool_call_names), len(report.tool_call_ids)) == (40, 32, 32)  # fmt: skip


# --- what comes after calls -------------------------------------------------------------------------------------------


def test_text_after_calls_is_emitted_unless_it_is_suppressed() -> None:
    pieces = ("Before.", ONE, "After.")
    assert text_of(checked(run(made(ObsidianPolicy()), answer(*pieces)))) == "Before.After."
    stage = made(ObsidianPolicy(chat=ChatSettings(suppress_tail_after_tools=True)))
    outcome = checked(run(stage, answer(*pieces)))
    assert text_of(outcome) == "Before."
    assert outcome.usage is not None
    assert not stage.is_cut


def test_text_that_was_open_before_a_call_is_emitted_up_to_it() -> None:
    one = part_events(1, TWO)
    events = [
        Started(),
        PartStarted(0, Text(status="in_progress")),
        TextDelta(0, "Before."),
        *one,
        TextDelta(0, "After."),
        PartEnded(0, Text(text="Before.After.")),
        Finished("tool_calls"),
        Completed(),
    ]
    outcome = checked(
        run(made(ObsidianPolicy(chat=ChatSettings(suppress_tail_after_tools=True))), events)
    )
    assert text_of(outcome) == "Before."


@pytest.mark.parametrize("mode", ["openai-json", "obsidian-xml"])
def test_first_ends_the_turn_after_the_first_call(mode: str) -> None:
    policy = ObsidianPolicy(
        mode=mode_of(mode) or "openai-json",
        chat=ChatSettings(stop_after_tools=True, stop_after_tools_mode="first"),
    )
    stage = made(policy)
    outcome = checked(run(stage, answer("Hi.", ONE, TWO, THREE), until_over=True))
    assert calls_of(outcome) == CALLS[:1]
    assert outcome.choices[0].finish == "tool_calls"
    assert stage.is_cut
    assert not stage.report().tool_call_truncated  # nothing more was heard


def test_burst_ends_the_turn_at_the_first_other_text() -> None:
    stage = made(ObsidianPolicy(chat=ChatSettings(stop_after_tools=True)))
    outcome = checked(run(stage, answer("Hi.", ONE, " \n", TWO, "It is five.", THREE)))
    assert calls_of(outcome) == CALLS[:2]
    assert text_of(outcome) == "Hi."
    assert stage.is_cut
    assert outcome.usage is None


def test_burst_ends_the_turn_at_a_call_too_many() -> None:
    stage = made(ObsidianPolicy(chat=ChatSettings(stop_after_tools=True, tool_block_max=2)))
    outcome = checked(run(stage, answer(ONE, TWO, THREE)))
    assert calls_of(outcome) == CALLS[:2]
    assert stage.is_cut
    assert stage.report().tool_call_truncated


def test_an_answer_that_ends_by_itself_is_not_cut() -> None:
    stage = made(ObsidianPolicy(chat=ChatSettings(stop_after_tools=True)))
    outcome = checked(run(stage, answer("Hi.", ONE, TWO)))
    assert outcome.usage is not None
    assert not stage.is_cut


def test_a_cut_waits_for_calls_under_way() -> None:
    one, two = part_events(0, ONE), part_events(1, TWO)
    text = part_events(2, "prose")
    events = [Started(), *one[:2], *two[:2], two[2], *text, *one[2:], *part_events(3, THREE)]
    for dedup in (False, True):
        stage = made(
            ObsidianPolicy(chat=ChatSettings(stop_after_tools=True, tool_block_dedup=dedup))
        )
        outcome = checked(run(stage, events))
        assert sorted(calls_of(outcome)) == sorted(CALLS[:2])
        assert stage.is_cut


def test_a_cut_closes_the_text_that_is_open() -> None:
    note = Annotation("chat", raw({}))
    events = [
        Started(),
        PartStarted(0, Text(status="in_progress")),
        TextDelta(0, "Hi."),
        AnnotationAdded(0, note),
        *part_events(1, TWO),
        TextDelta(0, "More."),
    ]
    found = run(made(ObsidianPolicy(chat=ChatSettings(stop_after_tools=True))), events)
    outcome = checked(found)
    (text,) = [part for part in outcome.choices[0].parts if isinstance(part, Text)]
    assert (text.text, text.annotations) == ("Hi.", (note,))


def test_a_cut_closes_a_refusal() -> None:
    events = [
        Started(),
        PartStarted(0, Refusal(status="in_progress")),
        TextDelta(0, "No."),
        *part_events(1, TWO),
        TextDelta(0, "More."),
    ]
    outcome = checked(run(made(ObsidianPolicy(chat=ChatSettings(stop_after_tools=True))), events))
    assert outcome.choices[0].parts[0] == Refusal(text="No.")


def test_a_cut_waits_for_thoughts() -> None:
    thought = Reasoning(summary=("t",))
    events: list[Event] = [
        Started(),
        PartStarted(0, Reasoning(status="in_progress")),
        *part_events(1, TWO),
        *part_events(2, "prose"),
        ReasoningDelta(0, "t"),
    ]
    stage = made(
        ObsidianPolicy(chat=ChatSettings(stop_after_tools=True, stop_after_tools_mode="first"))
    )
    found = run(stage, events)
    assert not stage.is_over
    found += run(stage, [PartEnded(0, thought), Finished("tool_calls"), Completed()])
    assert checked(found).choices[0].parts[0] == thought


def test_who_waits_no_longer_gets_the_end() -> None:
    stage = made(ObsidianPolicy(chat=ChatSettings(stop_after_tools=True)))
    found = run(stage, answer("Hi.", ONE)[:-3])
    assert stage.awaits_calls
    stage.stop()
    assert not stage.is_over
    found += stage.feed(ERROR)
    assert checked(found).choices[0].finish == "tool_calls"
    assert stage.feed(ERROR) == ()


@pytest.mark.parametrize("stop", [None, False])
def test_nobody_waits_where_the_turn_is_not_to_stop(stop: bool | None) -> None:
    stage = made(ObsidianPolicy(chat=ChatSettings(stop_after_tools=stop)))
    run(stage, answer("Hi.", ONE)[:-3])
    assert not stage.awaits_calls


def test_nobody_waits_while_a_call_is_under_way_or_after_the_finish() -> None:
    stage = made(ObsidianPolicy(chat=ChatSettings(stop_after_tools=True)))
    waited = [stage.awaits_calls]
    steps: list[list[Event]] = [
        [Started(), *part_events(0, ONE), *part_events(1, TWO)[:2]],
        part_events(1, TWO)[2:],
        [Finished("tool_calls")],
    ]
    for events in steps:
        run(stage, events)
        waited.append(stage.awaits_calls)
    assert waited == [False, False, True, False]


def test_an_answer_that_is_there_as_a_whole_keeps_its_own_end() -> None:
    stage = made(
        ObsidianPolicy(chat=ChatSettings(stop_after_tools=True, stop_after_tools_mode="first"))
    )
    stage.expect_complete()
    outcome = checked(run(stage, answer("Hi.", ONE, TWO, "tail", finish="length")))
    assert calls_of(outcome) == CALLS[:1]
    assert text_of(outcome) == "Hi."
    assert outcome.choices[0].finish == "tool_calls"
    assert outcome.usage == Usage(input=1, output=2)
    assert stage.report().tool_call_truncated


def test_what_comes_after_the_end_is_dropped() -> None:
    stage = made(ObsidianPolicy())
    run(stage, answer(ONE))
    assert run(stage, [*part_events(1, TWO), Finished("stop"), Completed(), ERROR]) == []


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failure_after_calls_is_emitted_by_default() -> None:
    found = run(made(ObsidianPolicy()), [*answer("Hi.", ONE)[:-3], ERROR])
    assert found[-1] == ERROR


def test_a_failure_after_complete_calls_may_end_the_answer_with_them() -> None:
    stage = made(ObsidianPolicy(finish_failed=True))
    outcome = checked(run(stage, [*answer("Hi.", ONE)[:-3], ERROR]))
    assert outcome.error is None
    assert outcome.choices[0].finish == "tool_calls"
    assert [problem.kind for problem in stage.problems] == ["error_after_calls"]


@pytest.mark.parametrize(
    "events",
    [
        [ERROR],
        [*answer("Hi.")[:-3], ERROR],
        [*answer(ONE, Called("c", "now", "", is_whole=False))[:-3], ERROR],
    ],
    ids=["at once", "after text", "in a call"],
)
def test_a_failure_before_the_calls_are_complete_is_emitted(events: list[Event]) -> None:
    found = run(made(ObsidianPolicy(finish_failed=True)), events)
    assert found[-1] == ERROR
    assert is_grammatical(found)


# --- noise ------------------------------------------------------------------------------------------------------------


def result_events(number: int, text: str) -> list[Event]:
    result = Result(call_id="x", content=(Text(text=text),), executor="provider")
    return [PartStarted(number, result), PartEnded(number, result)]


def test_the_answer_of_a_server_that_does_not_exist_is_not_emitted() -> None:
    noise = "resources/list failed: unknown MCP server 'obsidian'"
    events = [Started(), *result_events(0, noise), *part_events(1, TWO), Finished("tool_calls"), Completed()]  # fmt: skip
    outcome = checked(run(made(XML), events))
    assert not [part for part in outcome.choices[0].parts if isinstance(part, Result)]


def test_other_results_are_emitted() -> None:
    events = [Started(), *result_events(0, "done"), Finished("stop"), Completed()]
    assert run(made(XML), events) == events


def test_remarks_keep_to_their_part_or_lose_it() -> None:
    stage = made(ObsidianPolicy(chat=ChatSettings(tool_block_max=1)))
    run(stage, [Started(), *part_events(0, TWO), *part_events(1, ONE)[:1]])
    assert stage.feed(Progress("x", 1)) == (Progress("x", None),)
    assert stage.feed(Noticed("ping")) == (Noticed("ping"),)


# --- however it is cut ------------------------------------------------------------------------------------------------

POLICIES = [
    ObsidianPolicy(mode=mode, chat=ChatSettings(stop_after_tools=stop, stop_after_tools_mode=how, suppress_tail_after_tools=tail, tool_block_max=most, tool_block_dedup=dedup))
    for mode in ("obsidian-xml", "openai-json")
    for stop in (None, True, False)
    for how in ("burst", "first")
    for tail in (None, True, False)
    for most in (0, 2)
    for dedup in (False, True)
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_how_an_answer_is_cut_changes_nothing_that_is_emitted(seed: int) -> None:
    random = Random(seed)
    pool = ("Some words. ", "\n \n", ONE, TWO, THREE, TWO)
    for policy in POLICIES:
        pieces = random.choices(pool, k=random.randint(1, 6))
        whole = checked(run(made(policy), answer(*pieces)))
        cut = checked(run(made(policy), answer(*pieces, random=random)))
        assert whole == cut


def test_deltas_of_a_withheld_call_are_not_emitted() -> None:
    stage = made(ObsidianPolicy(chat=ChatSettings(tool_block_max=1)))
    run(stage, [Started(), *part_events(0, TWO)])
    assert run(stage, part_events(1, ONE)) == []
    assert stage.feed(UsageReported(Usage(input=1))) == (UsageReported(Usage(input=1)),)
