"""Results that came as a user's text: paired with the calls they answer where that is certain, else left alone."""

import time

import pytest

from dragoman._json import raw
from dragoman.model.parts import Call, Media, Part, Reasoning, Result, Text
from dragoman.model.request import Request, Tool, Turn
from dragoman.obsidian.request import pair_written_results
from obsidian_answers import TOOLS, block

ASK = Turn(role="user", parts=(Text(text="What time is it?"),))


def said(*parts: Part) -> Turn:
    return Turn(role="assistant", parts=parts)


def user_turn(*texts: str) -> Turn:
    return Turn(role="user", parts=tuple(Text(text=text) for text in texts))


def request(*turns: Turn, tools: tuple[Tool, ...] = TOOLS) -> Request:
    return Request(model="m", turns=(ASK, *turns), tools=tools)


def test_calls_and_results_are_paired_in_order() -> None:
    text = f"I look.\n{block('now')}\n{block('search', ('query', 'piano'))}"
    results = "Tool 'now' result: five\no'clock\n\nTool 'search' result: {\"hits\": []}"
    paired, repairs = pair_written_results(request(said(Text(text=text)), user_turn(results)))
    assert [turn.role for turn in paired.turns] == ["user", "assistant", "tool", "tool"]
    words, first, second = paired.turns[1].parts
    assert words == Text(text="I look.")
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert (first.name, first.input) == ("now", "{}")
    assert (second.name, second.input) == ("search", '{"query":"piano"}')
    assert first.call_id != second.call_id
    one, two = (turn.parts[0] for turn in paired.turns[2:])
    assert one == Result(call_id=first.call_id, name="now", content=(Text(text="five\no'clock"),))
    assert two == Result(
        call_id=second.call_id, name="search", content=(Text(text='{"hits": []}'),)
    )
    assert [(repair.rule, repair.where, repair.detail) for repair in repairs] == [
        ("written_results", "messages[2]", "now, search")
    ]


def test_a_long_conversation_is_paired_turn_by_turn_always_alike() -> None:
    pair = (said(Text(text=block("now"))), user_turn("Tool 'now' result: five"))
    paired, repairs = pair_written_results(request(*pair, *pair, said(Text(text="Five."))))
    calls = [part for turn in paired.turns for part in turn.parts if isinstance(part, Call)]
    assert len({call.call_id for call in calls}) == 2
    assert len(repairs) == 2
    assert pair_written_results(request(*pair, *pair, said(Text(text="Five."))))[0] == paired


def test_the_tools_are_read_once_for_a_long_conversation() -> None:
    """They were read for each turn."""
    properties: dict[str, object] = {f"key_{n}": {} for n in range(20_000)}
    schema = raw({"type": "object", "properties": properties})
    pair = (said(Text(text=block("now"))), user_turn("Tool 'now' result: five"))
    asked = request(*pair * 500, tools=(*TOOLS, Tool(name="large", schema=schema)))
    start = time.process_time()
    assert len(pair_written_results(asked)[1]) == 500
    assert time.process_time() - start < 2


def test_thoughts_stay_before_the_calls() -> None:
    thought = Reasoning(summary=("hm",))
    turns = (said(thought, Text(text=block("now"))), user_turn("Tool 'now' result: five"))
    paired, _ = pair_written_results(request(*turns))
    assert paired.turns[1].parts[0] == thought
    assert isinstance(paired.turns[1].parts[1], Call)


NOW = said(Text(text=block("now")))


@pytest.mark.parametrize(
    "turns",
    [
        (NOW, user_turn("Five.")),
        (NOW, user_turn("Here: Tool 'now' result: five")),
        (NOW, user_turn("Tool 'search' result: five")),
        (NOW, user_turn("Tool 'now' result: a\n\nTool 'now' result: b")),
        (NOW, user_turn("Tool 'now' result: he said\n\nTool 'x' result: y")),
        (said(Text(text=block("now") + block("search"))), user_turn("Tool 'now' result: five")),
        (said(Text(text="No block.")), user_turn("Tool 'now' result: five")),
        (said(Text(text=block("stranger"))), user_turn("Tool 'stranger' result: five")),
        (said(Call(call_id="c", name="now", input="{}")), user_turn("Tool 'now' result: five")),
        (user_turn("Tool 'now' result: five"),),
        (
            NOW,
            Turn(
                role="user",
                parts=(Text(text="Tool 'now' result: x"), Media(kind="image", url="u")),
            ),
        ),
    ],
)
def test_what_is_not_certain_stays_text(turns: tuple[Turn, ...]) -> None:
    asked = request(*turns)
    assert pair_written_results(asked) == (asked, ())


def test_without_tools_there_is_nothing_to_pair() -> None:
    asked = request(NOW, user_turn("Tool 'now' result: five"), tools=())
    assert pair_written_results(asked)[0] is asked


@pytest.mark.parametrize("tool", [Tool(name="now", kind="custom"), Tool(name="now", namespace="n")])
def test_calls_of_tools_that_blocks_cannot_call_stay_text(tool: Tool) -> None:
    asked = request(NOW, user_turn("Tool 'now' result: five"), tools=(tool,))
    assert pair_written_results(asked)[0] is asked


# --- blocks that repeat the calls of their turn -----------------------------------------------------------------------

CALL = Call(call_id="c", name="now", input="{}")
DONE = Turn(role="tool", parts=(Result(call_id="c", content=(Text(text="five"),)),))


@pytest.mark.parametrize(
    ("text", "left"), [(block("now"), ""), (f"I look.\n{block('now')}", "I look.")]
)
def test_a_block_that_repeats_a_call_is_taken_out(text: str, left: str) -> None:
    paired, repairs = pair_written_results(request(said(Text(text=text), CALL), DONE))
    assert paired.turns[1].parts == ((Text(text=left), CALL) if left else (CALL,))
    assert [repair.rule for repair in repairs] == ["written_copies"]


@pytest.mark.parametrize("text", [block("search"), block("now") * 2, "about <use_tool> in general"])
def test_blocks_that_are_not_the_calls_stay(text: str) -> None:
    asked = request(said(Text(text=text), CALL), DONE)
    assert pair_written_results(asked) == (asked, ())
