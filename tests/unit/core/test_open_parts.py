"""Open parts: every pair of the table, and each rule of the module once, without a wire."""

from time import process_time

import pytest

from dragoman._json import Raw
from dragoman.core.call_input import is_same_input
from dragoman.core.open_parts import (
    TRANSITIONS,
    Input,
    OpenCall,
    OpenReasoning,
    OpenText,
    Parts,
    PartState,
)
from dragoman.core.open_wholes import OpenMedia, OpenWhole
from dragoman.errors import LocalProtocolError, MalformedJson
from dragoman.model.events import (
    InputDelta,
    MediaDelta,
    Noticed,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import (
    Call,
    Extra,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import Tool

HIGH, LOW, WHOLE = "\ud83d", "\ude00", "\U0001f600"


def parts_of(*tools: str) -> Parts:
    return Parts([], tools=tuple(Tool(name=name) for name in tools))


def call_in(state: PartState, parts: Parts) -> OpenCall:
    call = OpenCall(parts, Call(call_id="c", name="f"))
    if state is not PartState.NAMELESS:
        call.announce()
    if state is PartState.ENDED:
        call.end("completed")
    return call


def say(call: OpenCall, said: Input) -> None:
    match said:
        case Input.NAME:
            call.announce()
        case Input.PIECE:
            call.add("{")
        case Input.WHOLE:
            call.complete("{}")
        case Input.END:
            call.drop(is_fault=False) if not call.is_announced else call.end("completed")


def kinds(parts: Parts) -> list[str]:
    return [kind for kind, _ in parts.problems]


@pytest.mark.parametrize("state", PartState)
@pytest.mark.parametrize("said", Input)
def test_call_takes_what_the_table_has_and_refuses_the_rest(state: PartState, said: Input) -> None:
    call = call_in(state, parts_of())
    if (state, said) in TRANSITIONS:
        say(call, said)
        assert call.has_ended == (TRANSITIONS[state, said] is PartState.ENDED)
    else:
        with pytest.raises(LocalProtocolError):
            say(call, said)


def test_every_open_part_refuses_more_after_its_end() -> None:
    parts = parts_of()
    text, reasoning = OpenText(parts, Text()), OpenReasoning(parts, Reasoning())
    media = OpenMedia(parts, Media(kind="audio"))
    for part in (text, reasoning, media):
        part.end("completed")
    with pytest.raises(LocalProtocolError):
        text.add("x")
    with pytest.raises(LocalProtocolError):
        reasoning.add("x")
    with pytest.raises(LocalProtocolError):
        media.add("x", "")


# --- texts ------------------------------------------------------------------------------------------------------------


def test_halves_of_a_character_in_two_deltas_are_one_character() -> None:
    parts = parts_of()
    text = OpenText(parts, Text())
    text.add("a" + HIGH)
    is_plain = [text.is_plain]
    text.add(LOW + "b")
    assert [*is_plain, text.is_plain] == [False, True]
    text.end("completed")
    assert parts.take() == (
        PartStarted(0, Text(status="in_progress")),
        TextDelta(0, "a"),
        TextDelta(0, WHOLE + "b"),
        PartEnded(0, Text(text="a" + WHOLE + "b")),
    )


def test_half_that_stays_alone_in_a_text_is_a_replacement_character() -> None:
    parts = parts_of()
    text = OpenText(parts, Refusal())
    text.add(HIGH)
    text.end("incomplete")
    assert parts.take()[1:] == (
        TextDelta(0, "\ufffd"),
        PartEnded(0, Refusal(text="\ufffd", status="incomplete")),
    )


def test_whole_text_brings_what_no_delta_brought() -> None:
    parts = parts_of()
    text = OpenText(parts, Text())
    text.add("a")
    text.complete("")
    text.complete("abc")
    text.end("completed")
    assert parts.take()[1:] == (
        TextDelta(0, "a"),
        TextDelta(0, "bc"),
        PartEnded(0, Text(text="abc")),
    )


def test_whole_text_that_contradicts_its_deltas_amends_the_end() -> None:
    parts = parts_of()
    text = OpenText(parts, Text())
    text.add("a")
    text.complete("xyz")
    text.end("completed")
    assert parts.take()[-1] == PartEnded(0, Text(text="xyz"), amended=True)
    assert kinds(parts) == ["text_disagrees"]


def test_early_text_counts_only_if_no_other_came() -> None:
    parts = parts_of()
    for pieces, expected in (((), "early"), (("a",), "a")):
        text = OpenText(parts, Text())
        text.early = "early"
        for piece in pieces:
            text.add(piece)
        text.end("completed")
        ended = parts.take()[-1]
        assert isinstance(ended, PartEnded)
        assert ended.value == Text(text=expected)


def test_logprobs_of_tokens_without_text_ride_with_the_next_text_or_the_end() -> None:
    parts = parts_of()
    text = OpenText(parts, Text())
    text.add("", Raw(b"[1]"))
    assert not text.is_plain
    text.add("a", Raw(b"[2]"))
    text.add("", Raw(b"[3]"))
    text.end("completed")
    assert parts.take()[1:] == (
        TextDelta(0, "a", Raw(b"[1,2]")),
        TextDelta(0, "", Raw(b"[3]")),
        PartEnded(0, Text(text="a", logprobs=Raw(b"[1,2,3]"))),
    )


def test_closed_text_ends_before_the_next_part_starts() -> None:
    parts = parts_of()
    text = OpenText(parts, Text())
    text.add("a")
    parts.end_before_next(text)
    parts.add_whole(Text(text="b"))
    assert [type(event) for event in parts.take()] == [
        PartStarted,
        TextDelta,
        PartEnded,
        PartStarted,
        PartEnded,
    ]


# --- reasoning --------------------------------------------------------------------------------------------------------


def test_entries_of_a_reasoning_are_kept_apart() -> None:
    parts = parts_of()
    reasoning = OpenReasoning(parts, Reasoning())
    reasoning.add("a" + HIGH, "summary", 1)
    reasoning.add("c", "content", 0)
    reasoning.open_entry("summary", 0)
    reasoning.end("completed")
    assert parts.take()[1:] == (
        ReasoningDelta(0, "a", "summary", 1),
        ReasoningDelta(0, "c", "content", 0),
        ReasoningDelta(0, "", "summary", 0),
        ReasoningDelta(0, "\ufffd", "summary", 1),
        PartEnded(0, Reasoning(summary=("", "a\ufffd"), content=("c",))),
    )


def test_finished_reasoning_brings_entries_and_seals_that_were_not_streamed() -> None:
    parts = parts_of()
    seal = Seal("encrypted", "s")
    reasoning = OpenReasoning(parts, Reasoning())
    reasoning.add("a")
    reasoning.end("completed", Reasoning(summary=("ab", "c"), seals=(seal,)))
    assert parts.take()[1:] == (
        ReasoningDelta(0, "a"),
        ReasoningDelta(0, "b"),
        ReasoningDelta(0, "c", "summary", 1),
        SealAdded(0, seal),
        PartEnded(0, Reasoning(summary=("ab", "c"), seals=(seal,))),
    )


def test_contradicted_entry_amends_the_reasoning_and_leaves_the_others() -> None:
    parts = parts_of()
    reasoning = OpenReasoning(parts, Reasoning())
    reasoning.add("a")
    reasoning.add("c", "content", 0)
    reasoning.complete("x")
    reasoning.complete("")
    reasoning.end("completed")
    ended = PartEnded(0, Reasoning(summary=("x",), content=("c",)), amended=True)
    assert parts.take()[-1] == ended
    assert kinds(parts) == ["text_disagrees"]


def test_seal_may_replace_the_one_before() -> None:
    parts = parts_of()
    first, second = Seal("signature", "1"), Seal("signature", "2")
    reasoning = OpenReasoning(parts, Reasoning())
    reasoning.seal((first,))
    assert reasoning.is_sealed
    reasoning.seal((second,), replaces=True)
    reasoning.end("completed")
    assert parts.take()[1:] == (
        SealAdded(0, first),
        SealAdded(0, second),
        PartEnded(0, Reasoning(seals=(second,))),
    )


# --- calls ------------------------------------------------------------------------------------------------------------


def test_input_and_seals_are_held_until_the_name_is_known() -> None:
    parts = parts_of()
    seal = Seal("thought", "s")
    call = OpenCall(parts, Call(call_id="c", name=""))
    call.add('{"a":')
    call.add("1}")
    call.seal(seal)
    call.seal(seal)
    assert parts.take() == ()
    call.header = Call(call_id="c", name="f")
    call.announce()
    call.end("completed")
    assert parts.take() == (
        PartStarted(0, Call(call_id="c", name="f", status="in_progress")),
        SealAdded(0, seal),
        InputDelta(0, '{"a":1}'),
        PartEnded(0, Call(call_id="c", name="f", input='{"a":1}', seals=(seal,))),
    )


def test_whole_input_that_came_before_the_name_counts_with_it() -> None:
    parts = parts_of()
    call = OpenCall(parts, Call(call_id="c", name="f"))
    call.complete('{"a":1}')
    assert call.text() == '{"a":1}'
    call.announce()
    assert parts.take()[1:] == (InputDelta(0, '{"a":1}'),)


def test_call_without_an_id_gets_one() -> None:
    parts = parts_of()
    call = OpenCall(parts, Call(call_id="", name="f"))
    call.announce()
    assert call.header.call_id.startswith("call_")
    assert kinds(parts) == ["missing_id"]


@pytest.mark.parametrize(("empty", "expected"), [("{}", "{}"), ("", "")])
def test_input_that_the_protocol_closed_empty(empty: str, expected: str) -> None:
    parts = parts_of()
    call = OpenCall(parts, Call(call_id="c", name="f"), empty=empty)
    call.announce()
    call.end("completed")
    ended = parts.take()[-1]
    assert isinstance(ended, PartEnded)
    assert ended.value == Call(call_id="c", name="f", input=expected)
    assert call.is_complete


def test_input_that_was_cut_empty_stays_empty() -> None:
    parts = parts_of()
    call = call_in(PartState.OPEN, parts)
    call.end("incomplete")
    assert call.text() == ""
    assert not call.is_complete


def test_input_that_ends_inside_a_character_is_a_fault() -> None:
    parts = parts_of()
    call = call_in(PartState.OPEN, parts)
    call.add('{"a":"' + HIGH)
    assert call.is_halved
    assert not call.is_plain
    call.end("completed")
    assert parts.fault == "the input of 'f' ends inside a character"
    assert not call.is_complete


def test_second_half_without_its_first_in_an_input_is_refused() -> None:
    call = call_in(PartState.OPEN, parts_of())
    with pytest.raises(MalformedJson):
        call.add(LOW)


def test_cumulative_input_is_reported_once_and_emitted_by_increments() -> None:
    parts = parts_of()
    call = call_in(PartState.OPEN, parts)
    for piece in ('{"a"', '{"a":1', '{"a":1}'):
        call.add(piece)
    call.end("completed")
    assert [event.text for event in parts.take() if isinstance(event, InputDelta)] == [
        '{"a"',
        ":1",
        "}",
    ]
    assert kinds(parts) == ["cumulative_input"]


def test_finished_input_that_differs_in_formatting_alone_changes_nothing() -> None:
    parts = parts_of()
    call = call_in(PartState.OPEN, parts)
    call.add('{"a": 1}')
    call.complete('{"a":1}')
    call.end("completed")
    assert parts.problems == []
    assert call.key == '{"a": 1}'


def test_finished_input_that_contradicts_its_deltas_amends_the_end() -> None:
    parts = parts_of()
    call = call_in(PartState.OPEN, parts)
    call.add('{"a":1}')
    call.complete('{"a":2}')
    call.end("completed")
    ended = PartEnded(0, Call(call_id="c", name="f", input='{"a":2}'), amended=True)
    assert parts.take()[-1] == ended
    assert kinds(parts) == ["input_disagrees"]


def test_input_that_is_no_json_is_reported() -> None:
    parts = parts_of()
    call = call_in(PartState.OPEN, parts)
    call.add("{nope")
    call.end("completed")
    assert kinds(parts) == ["invalid_arguments"]


def test_early_input_counts_only_if_no_other_came() -> None:
    for pieces, expected in (((), '{"e":1}'), (('{"a":1}',), '{"a":1}')):
        call = call_in(PartState.OPEN, parts_of())
        call.early = '{"e":1}'
        for piece in pieces:
            call.add(piece)
        call.end("completed")
        assert call.key == expected


def test_name_that_never_came_is_found_by_the_tools_or_the_call_is_dropped() -> None:
    parts = parts_of("only")
    call = OpenCall(parts, Call(call_id="c", name=""))
    assert call.find_name(0)
    assert call.header.name == "only"
    unknown = OpenCall(parts_of(), Call(call_id="c", name=""))
    assert not unknown.find_name(0)


@pytest.mark.parametrize("is_fault", [True, False])
def test_call_that_nobody_named_is_only_noticed(is_fault: bool) -> None:
    parts = parts_of()
    call = OpenCall(parts, Call(call_id="c", name=""))
    call.add('{"a":1}')
    call.drop(is_fault=is_fault)
    assert parts.take() == (Noticed("nameless", name="c", raw=Raw(b'"{\\"a\\":1}"')),)
    assert kinds(parts) == ["nameless_call"]
    assert bool(parts.fault) is is_fault


def test_call_may_turn_out_to_be_of_another_kind_before_its_name_is_known() -> None:
    parts = parts_of()
    call = OpenCall(parts, Call(call_id="c", name=""))
    call.add("-")
    call.add("--")
    call.become(Call(call_id="c", name="f", kind="custom"), "")
    call.announce()
    assert call.text() == "---"
    same = OpenCall(parts, Call(call_id="d", name=""))
    same.add("{")
    same.become(Call(call_id="d", name="f"), "{}")
    assert same.text() == "{"


def test_whether_an_input_is_whole_is_kept_up() -> None:
    call = call_in(PartState.OPEN, parts_of())
    call.add('{"a"')
    before = (call.is_whole, call.is_object(), call.is_plain)
    call.add(":1}")
    assert before == (False, False, False)
    assert (call.is_whole, call.is_object(), call.is_plain) == (True, True, False)


def test_inputs_are_the_same_if_they_are_the_same_json() -> None:
    assert is_same_input('{"a": 1}', '{"a":1}')
    assert not is_same_input('{"a":1}', '{"a":1.0}')
    assert not is_same_input('{"a":1,"b":1.0}', '{"a":1.0,"b":1}')
    assert not is_same_input('{"a":true,"b":1}', '{"a":1,"b":true}')
    assert not is_same_input('{"a":1e999}', '{"a":null}')
    assert not is_same_input("{", "{")
    deep = "[" * 700 + "]" * 700
    assert is_same_input(deep, f" {deep}")
    many = f"[{'1,' * 600_000}1]"  # more values than a document may have
    assert not is_same_input(many, f" {many}")


def test_wholes_that_are_repeated_without_end_cost_little() -> None:
    """Without a limit each of the first 5,000 parses 200 KB, and each of the others joins 50,000 pieces: half a minute."""
    parts = parts_of()
    call = call_in(PartState.OPEN, parts)
    call.add(f"[{'1,' * 100_000}1]")
    reasoning = OpenReasoning(parts_of(), Reasoning())
    for _ in range(50_000):
        reasoning.add("a")
    start = process_time()
    for _ in range(5_000):
        call.complete("1")
    for _ in range(50_000):
        reasoning.complete("a")
    assert process_time() - start < 5
    call.end("completed")
    value = Call(call_id="c", name="f", input="1")
    assert parts.events[-1] == PartEnded(0, value, amended=True)


# --- media, and what comes whole --------------------------------------------------------------------------------------


def test_sound_joins_its_data_its_transcript_and_its_fields() -> None:
    parts = parts_of()
    media = OpenMedia(parts, Media(kind="audio", item_id="i"))
    one, two = Extra("chat", {"a": Raw(b"1")}), Extra("chat", {"b": Raw(b"2")})
    media.add("AA", "hel", one)
    media.add("", "")
    media.add("BB", "lo", two)
    media.end("completed")
    both = Extra("chat", {"a": Raw(b"1"), "b": Raw(b"2")})
    assert parts.take()[1:] == (
        MediaDelta(0, "AA", "hel", one),
        MediaDelta(0, "BB", "lo", two),
        PartEnded(0, Media(kind="audio", data="AABB", transcript="hello", item_id="i", extra=both)),
    )


def test_part_that_came_whole_ends_as_the_wire_last_gave_it() -> None:
    parts = parts_of()
    opaque = Opaque(dialect="messages", type="x", raw=Raw(b"{}"))
    changed = Opaque(dialect="messages", type="x", raw=Raw(b"[]"))
    OpenWhole(parts, opaque).end("completed", changed)
    result = Result(call_id="c", status="in_progress")
    OpenWhole(parts, result).end("incomplete", opaque)
    assert [event for event in parts.take() if isinstance(event, PartEnded)] == [
        PartEnded(0, changed),
        PartEnded(1, Result(call_id="c", status="incomplete")),
    ]


def test_minted_ids_come_from_the_seed() -> None:
    parts = parts_of()
    parts.seed = "resp_1"
    first, second = parts.mint("call_"), parts.mint("call_")
    assert first != second
    again = Parts([], seed="resp_1")
    assert again.mint("call_") == first
