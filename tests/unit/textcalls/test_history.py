"""Calls that the assistant wrote as text, in a conversation that is sent back."""

from typing import cast

import pytest
from msgspec.structs import replace

from dragoman._json import Raw, raw
from dragoman.core.pairing import pair_results
from dragoman.model.parts import Annotation, Breakpoint, Call, Part, Result, Text
from dragoman.model.request import Request, Role, Tool, Turn
from dragoman.textcalls.history import repair_history

SCHEMA = raw({"type": "object", "properties": {"command": {"type": "string"}}})
TOOLS = (Tool(name="Bash", schema=SCHEMA), Tool(name="note", kind="custom"))
CALL = '<invoke name="Bash">\n<parameter name="command">ls</parameter>\n</invoke>'
HERMES = '<tool_call>{"name": "Bash", "arguments": {"command": "pwd"}}</tool_call>'


def turn(role: Role, *parts: Part | str) -> Turn:
    return Turn(
        role=role,
        parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts),
    )


def request(*turns: Turn) -> Request:
    return Request(model="m", tools=TOOLS, turns=(turn("user", "Go on."), *turns))


def result(call_id: str) -> Result:
    return Result(call_id=call_id, content=(Text(text="a.txt"),))


def calls_of(asked: Request) -> list[Call]:
    return [part for each in asked.turns for part in each.parts if isinstance(part, Call)]


def test_written_call_goes_up_as_the_call_that_it_is() -> None:
    asked = request(
        turn("assistant", f"I look.\ncourt\n{CALL}\n</function_calls>"), turn("user", "Well?")
    )
    repaired, repairs = repair_history(asked)
    text, call = repaired.turns[1].parts
    assert isinstance(call, Call)
    assert (text, call.name, call.input) == (Text(text="I look.\n"), "Bash", '{"command":"ls"}')
    assert [(repair.rule, repair.where, repair.detail) for repair in repairs] == [
        ("written_call", "turns[1].parts[0]", "Bash")
    ]
    assert repaired.turns[0] is asked.turns[0]
    assert repaired.turns[2] is asked.turns[2]


def test_call_without_a_result_gets_one_by_the_rule_of_pairing() -> None:
    repaired, _ = repair_history(request(turn("assistant", CALL), turn("user", "Well?")))
    turns, repairs = pair_results(repaired.turns)
    assert [repair.rule for repair in repairs] == ["missing_result"]
    assert [each.role for each in turns] == ["user", "assistant", "tool", "user"]


def test_call_gets_the_result_that_the_client_sent_for_it() -> None:
    asked = request(
        turn("assistant", f"{CALL}{HERMES}"),
        turn("tool", result("a"), result("b")),
        turn("user", "Well?"),
    )
    repaired, _ = repair_history(asked)
    assert [call.call_id for call in calls_of(repaired)] == ["a", "b"]
    assert pair_results(repaired.turns)[1] == ()


_CALLS = "".join(
    f"<|tool_call_begin|>{header}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    for header in ("functions.Bash:0", "functions.note:1")
)
KIMI = f"<|tool_calls_section_begin|>{_CALLS}<|tool_calls_section_end|>"


@pytest.mark.parametrize(
    "results",
    [
        (("functions.note:1", None), ("functions.Bash:0", None)),
        (("b", "note"), ("a", "Bash")),
        (("b", "note"), ("functions.Bash:0", None)),
        (("b", "note"), ("a", None)),
    ],
)
def test_results_go_to_the_calls_that_they_name(
    results: tuple[tuple[str, str | None], ...],
) -> None:
    asked = request(
        turn("assistant", KIMI),
        *(turn("tool", replace(result(call_id), name=name)) for call_id, name in results),
        turn("user", "Well?"),
    )
    called = {call.call_id: call.name for call in calls_of(repair_history(asked)[0])}
    assert [called[call_id] for call_id, _ in results] == ["note", "Bash"]


def test_results_of_other_calls_are_left_to_them() -> None:
    own = Call(call_id="a", name="Bash", input="{}")
    asked = request(
        turn("assistant", CALL),
        turn("user", "Well?"),
        turn("assistant", own),
        turn("tool", result("a")),
        turn("user", "So?"),
    )
    repaired, _ = repair_history(asked)
    assert [call.call_id for call in calls_of(repaired)][1:] == ["a"]
    assert calls_of(repaired)[0].call_id != "a"


def test_the_same_conversation_is_repaired_in_the_same_way_when_it_goes_on() -> None:
    first = request(turn("assistant", CALL), turn("user", "Well?"))
    longer = replace(first, turns=(*first.turns, turn("assistant", CALL), turn("user", "So?")))
    repaired, again = repair_history(first)[0], repair_history(longer)[0]
    assert again.turns[: len(repaired.turns)] == repaired.turns
    ids = [call.call_id for call in calls_of(again)]
    assert len(set(ids)) == 2


def test_input_of_a_tool_with_free_text_is_its_text() -> None:
    written = '<tool_call>{"name": "note", "arguments": {"input": "hi"}}</tool_call>'
    repaired, _ = repair_history(request(turn("assistant", written), turn("user", "Well?")))
    assert [(call.kind, call.input) for call in calls_of(repaired)] == [("custom", "hi")]


def test_mark_for_the_cache_stays_at_the_end() -> None:
    cache = Breakpoint(alone=True)
    asked = request(
        turn("assistant", Text(text=f"So.\n{CALL}", cache=cache)), turn("user", "Well?")
    )
    text, call = cast("tuple[Text, Call]", repair_history(asked)[0].turns[1].parts)
    assert (text.cache, call.cache) == (None, cache)


@pytest.mark.parametrize(
    "said",
    [
        "Nothing is written here.",
        f"```xml\n{CALL}\n```",
        f"Write `{HERMES}` for that.",
        CALL.replace("Bash", "Other"),
        CALL[:-12],
        "<tool_call> is only a word here",
        '{"name": "Bash", "arguments": {"command": "ls"}}',
    ],
)
def test_anything_else_is_left_as_it_is(said: str) -> None:
    asked = request(turn("assistant", said), turn("user", "Well?"))
    assert repair_history(asked) == (asked, ())
    assert repair_history(asked)[0] is asked


@pytest.mark.parametrize(
    "asked",
    [
        request(turn("user", CALL), turn("user", "Well?")),
        request(turn("assistant", CALL)),  # the model continues this turn
        request(turn("assistant", CALL, Call(call_id="a", name="Bash", input="{}")), turn("user", "Well?")),
        replace(request(turn("assistant", CALL), turn("user", "Well?")), tools=()),
        request(
            turn("assistant", Text(text=CALL, annotations=(Annotation("messages", Raw(b"{}")),))), turn("user", "Well?")
        ),
    ],
    ids=["user", "last", "structured", "no tools", "cited"],
)  # fmt: skip
def test_conversation_without_a_written_call_of_the_assistant_is_not_touched(
    asked: Request,
) -> None:
    assert repair_history(asked)[0] is asked


def test_only_formats_that_the_operator_looks_for_count() -> None:
    asked = request(turn("assistant", HERMES), turn("user", "Well?"))
    assert repair_history(asked, formats=("glm",))[0] is asked
    assert calls_of(repair_history(asked, formats=("auto", "react"))[0])
