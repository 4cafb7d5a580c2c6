"""Items of calls that a gateway ran, back as calls and results; and what is remembered of them for other clients."""

import tracemalloc

import pytest
from msgspec import structs

from dragoman._json import Raw, dumps
from dragoman.core.pairing import is_paired, pair_results
from dragoman.dialects.responses.mcp_calls import (
    ServerTool,
    begin_mcp_call,
    end_mcp_call,
    mcp_result,
)
from dragoman.gateway.hosted import history
from dragoman.gateway.hosted.history import (
    AnswerMemory,
    has_hosted_calls,
    is_ours,
    plain_name,
    restore_calls,
)
from dragoman.model.parts import Call, Extra, Part, Reasoning, Result, Text
from dragoman.model.request import Request, Turn

SERVERS = frozenset({"files"})
LABEL = ServerTool("files", "read")
ARGUMENTS = '{"path": "a.txt"}'


def result(text: str = "words", *, is_error: bool = False) -> Result:
    return Result(call_id="x", content=(Text(text=text),), is_error=is_error)


def item(number: int = 1, found: Result | None = None) -> Call:
    """As a client sends it back: the vendor's codec takes it for a provider's."""
    ended = end_mcp_call(begin_mcp_call(LABEL, f"mcp_dgm{number}"), ARGUMENTS, found or result())
    return structs.replace(ended, executor="provider")


def restored(*turns: Turn) -> tuple[Turn, ...]:
    request = restore_calls(Request(turns=turns), SERVERS, plain_name)
    pair = pair_results(request.turns)
    assert pair == (request.turns, ()), "nothing is left to be repaired"
    return request.turns


def spoken(*parts: Part) -> Turn:
    return Turn(role="assistant", parts=parts)


def shape(turns: tuple[Turn, ...]) -> list[tuple[str, list[str]]]:
    return [(turn.role, [type(part).__name__ for part in turn.parts]) for turn in turns]


def test_an_item_is_a_call_and_its_result() -> None:
    assistant, tool = restored(spoken(item()))
    (call,) = assistant.parts
    assert call == Call(call_id="mcp_dgm1", name="files__read", input=ARGUMENTS)
    (found,) = tool.parts
    assert isinstance(found, Result)
    assert (found.call_id, found.content, found.is_error) == (
        "mcp_dgm1",
        (Text(text="words"),),
        False,
    )


def test_a_failed_item_is_a_failed_result() -> None:
    _, tool = restored(spoken(item(found=result("blunt", is_error=True))))
    (found,) = tool.parts
    assert isinstance(found, Result)
    assert found.is_error
    assert found.content == (Text(text="blunt"),)


def test_an_item_without_an_end_has_a_result_that_says_so() -> None:
    open_item = structs.replace(begin_mcp_call(LABEL, "mcp_dgm1"), executor="provider")
    _, tool = restored(spoken(open_item))
    (found,) = tool.parts
    assert isinstance(found, Result)
    assert found.is_error


def test_errors_are_read_in_every_form_they_had() -> None:
    for error, words in (
        ("plain words", "plain words"),
        ({"type": "mcp_protocol_error", "code": 1, "message": "lost"}, "lost"),
        ({"type": "odd"}, '{"type":"odd"}'),
    ):
        fields = {"server_label": Raw(b'"files"'), "error": Raw(dumps(error))}
        call = Call(call_id="", name="read", kind="mcp", extra=Extra("responses", fields))
        found = mcp_result(call, "x")
        assert found is not None
        assert found.content == (Text(text=words),)


def test_one_turn_is_split_where_results_belong() -> None:
    turns = restored(
        spoken(Text(text="a"), item(1), item(2), Text(text="b"), item(3), Reasoning(), Text())
    )
    assert shape(turns) == [
        ("assistant", ["Text", "Call", "Call"]),
        ("tool", ["Result", "Result"]),
        ("assistant", ["Text", "Call"]),
        ("tool", ["Result"]),
        ("assistant", ["Reasoning", "Text"]),
    ]


def test_calls_of_one_answer_stay_together() -> None:
    own = Call(call_id="own", name="get_weather", input="{}")
    answer = Turn(role="tool", parts=(Result(call_id="own"),))
    together = restored(spoken(item(), own), answer)
    apart = restored(spoken(item()), spoken(own), answer)
    assert shape(together) == [
        ("assistant", ["Call", "Call"]),
        ("tool", ["Result"]),
        ("tool", ["Result"]),
    ]
    assert is_paired(apart)
    assert shape(apart)[:3] == [
        ("assistant", ["Call"]),
        ("assistant", ["Call"]),
        ("tool", ["Result"]),
    ]


def test_items_of_the_provider_are_left_alone() -> None:
    theirs = structs.replace(item(), item_id="mcp_0123")
    nameless = structs.replace(item(), item_id=None)
    assert not is_ours(theirs, SERVERS)
    assert is_ours(nameless, SERVERS)
    assert not is_ours(nameless, frozenset())
    assert not has_hosted_calls(Request(turns=(spoken(theirs),)), SERVERS)
    assert has_hosted_calls(Request(turns=(spoken(item()),)), SERVERS)


# --- what is remembered ----------------------------------------------------------------------------------------------

USER = Turn(role="user", parts=(Text(text="What is there?"),))
HOSTED = Call(call_id="call_1", name="files__read", input="{}")
OWN = Call(call_id="call_2", name="get_weather", input='{"city":"Oslo"}')


def is_own(call: Call) -> bool:
    return call.name == "get_weather"


def kept(memory: AnswerMemory, lines: str, *turns: Turn, past: tuple[Turn, ...] = (USER,)) -> None:
    memory.keep("me", past, turns, text=lines, is_own=is_own)


def run_turns(*last: Part) -> tuple[Turn, ...]:
    return (
        spoken(Text(text="Look."), HOSTED),
        Turn(role="tool", parts=(Result(call_id="call_1", content=(Text(text="a saw"),)),)),
        spoken(*last),
    )


def test_an_answer_is_known_by_its_words() -> None:
    memory = AnswerMemory()
    turns = run_turns(Text(text="A saw."))
    kept(memory, "Look.\n\nA saw.", *turns)
    request = Request(turns=(USER, spoken(Text(text="Look.\n\nA saw. "))))
    assert memory.restore("me", request, is_own).turns == (USER, *turns)
    assert memory.restore("you", request, is_own) is request


def test_the_same_words_after_other_words_are_another_answer() -> None:
    memory = AnswerMemory()
    kept(memory, "Done.", *run_turns(Text(text="Done.")))
    other = Turn(role="user", parts=(Text(text="Something else"),))
    request = Request(turns=(other, spoken(Text(text="Done."))))
    assert memory.restore("me", request, is_own) is request


def test_an_answer_is_known_by_the_clients_call() -> None:
    memory = AnswerMemory()
    turns = run_turns(OWN)
    kept(memory, "Look.", *turns)
    same = Call(call_id="call_2", name="get_weather", input='{ "city": "Oslo" }')
    after = Turn(role="tool", parts=(Result(call_id="call_2"),))
    request = Request(turns=(USER, spoken(Text(text="changed"), same), after))
    assert memory.restore("me", request, is_own).turns == (USER, *turns, after)


def test_an_answer_with_other_calls_is_not_taken_for_it() -> None:
    memory = AnswerMemory()
    kept(memory, "", *run_turns(OWN))
    more = Call(call_id="call_3", name="get_weather", input="{}")
    request = Request(turns=(USER, spoken(OWN, more)))
    assert memory.restore("me", request, is_own) is request


def test_answers_without_calls_of_ours_are_not_kept() -> None:
    memory = AnswerMemory()
    kept(memory, "Hi.", spoken(Text(text="Hi.")))
    request = Request(turns=(USER, spoken(Text(text="Hi."))))
    assert memory.restore("me", request, is_own) is request


def test_many_answers_of_a_few_words_take_no_more_memory_than_long_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = 200_000
    monkeypatch.setattr(history, "MAX_CHARACTERS", limit)
    memory = AnswerMemory()
    tracemalloc.start()
    try:
        for number in range(2000):
            call = structs.replace(HOSTED, call_id=f"call_{number}")
            result = Result(call_id=call.call_id, content=(Text(text=f"{number}"),))
            turns = (spoken(call), Turn(role="tool", parts=(result,)), spoken(Text(text="So.")))
            kept(memory, str(number), *turns)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * limit


def test_the_oldest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_CHARACTERS", 2500)
    monkeypatch.setattr(history, "MAX_ANSWER", 1900)
    memory = AnswerMemory()
    kept(memory, "one", *run_turns(Text(text="1" * 40)))
    kept(memory, "two", *run_turns(Text(text="2" * 40)))
    kept(memory, "large", *run_turns(Text(text="3" * 400)))
    for words, is_there in (("one", False), ("two", True), ("large", False)):
        request = Request(turns=(USER, spoken(Text(text=words))))
        assert (memory.restore("me", request, is_own) is not request) == is_there
