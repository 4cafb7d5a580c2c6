"""Texts and reasoning that come irregularly: emitted once, in order, and never after their end."""

from typing import Any

import pytest

from dragoman.core.fold import fold
from dragoman.dialects.translate import StreamTranslator
from dragoman.model.events import (
    PartEnded,
    ReasoningDelta,
    TextDelta,
)
from dragoman.model.parts import Opaque, Reasoning, Refusal, Result, Text
from responses_help import (
    TEXT_PART,
    Json,
    added,
    completed,
    created,
    decode_events,
    done,
    function_call,
    message,
    part_added,
    part_done,
    parts_in,
    payloads,
    read,
    read_answer,
    stream,
    text_delta,
    text_done,
    text_message,
)

HELLO = text_message("hello")
F = function_call(arguments='{"x":1}', status="completed")


def texts_of(events: list[Any]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


# --- texts -----------------------------------------------------------------------------------------------------------


def test_text_without_announcement_is_emitted() -> None:
    events, problems = read([created(), text_delta("hello"), completed([])])
    assert texts_of(events) == ["hello"]
    assert problems == ["missing_added", "empty_output", "missing_done"]


@pytest.mark.parametrize(
    "ending", [[text_done("hello")], [part_done({**TEXT_PART, "text": "hello"})], [done(HELLO)]]
)
def test_text_that_comes_only_at_the_end_is_emitted_then(ending: list[Json | bytes]) -> None:
    events = decode_events([created(), added(message()), part_added(), *ending, completed([])])
    assert texts_of(events) == ["hello"]


def test_end_tops_up_what_the_deltas_left_out() -> None:
    events = decode_events(
        [
            created(),
            added(message()),
            part_added(),
            text_delta("hel"),
            text_done("hell"),
            done(HELLO),
            completed([HELLO]),
        ]
    )
    assert texts_of(events) == ["hel", "l", "o"]


def test_end_that_contradicts_the_deltas_amends_them() -> None:
    events, problems = read(
        [
            created(),
            added(message()),
            part_added(),
            text_delta("bye"),
            done(HELLO),
            completed([HELLO]),
        ]
    )
    assert PartEnded(0, Text(text="hello", item_id="msg_1"), amended=True) in events
    assert problems == ["text_disagrees"]


def test_text_in_the_announcement_is_used_only_if_nothing_else_has_it() -> None:
    early = part_added({**TEXT_PART, "text": "hello"})
    events = decode_events([created(), added(message()), early, completed([])])
    assert texts_of(events) == ["hello"]
    events = decode_events(
        [created(), added(message()), early, text_delta("hello"), done(HELLO), completed([HELLO])]
    )
    assert texts_of(events) == ["hello"]


def test_closed_text_ends_when_something_else_begins() -> None:
    events = decode_events(
        [
            created(),
            added(message()),
            part_added(),
            text_delta("hello"),
            text_done("hello"),
            added(function_call(), 1),
            text_delta("late"),
            text_done("late"),
            part_done({**TEXT_PART, "text": "late"}),
        ]
    )
    assert events[3] == PartEnded(0, Text(text="hello", item_id="msg_1"))
    assert texts_of(events) == ["hello"]


@pytest.mark.parametrize(
    "late",
    [
        text_delta("x"),
        text_done("x"),
        part_added(),
        part_done({**TEXT_PART, "text": "x"}),
        {
            "type": "response.output_text.annotation.added",
            "item_id": "msg_1",
            "content_index": 0,
            "annotation": {"type": "x"},
        },
    ],
)
def test_nothing_is_said_of_a_message_after_its_end(late: Json) -> None:
    events = decode_events([created(), added(message()), done(HELLO), late, completed([HELLO])])
    assert texts_of(events) == ["hello"]


def test_text_that_turns_into_a_refusal_is_two_parts() -> None:
    item = message([{"type": "refusal", "refusal": "no"}], status="completed")
    outcome = read_answer(
        [created(), added(message()), part_added(), text_delta("he"), done(item), completed([])]
    )
    assert parts_in(outcome) == (
        Text(text="he", item_id="msg_1"),
        Refusal(text="no", item_id="msg_1"),
    )


def test_text_that_had_ended_before_it_turned_into_a_refusal_is_two_parts() -> None:
    item = message([{"type": "refusal", "refusal": "no"}], status="completed")
    outcome = read_answer(
        [
            created(),
            added(message()),
            part_added(),
            text_delta("he"),
            text_done("he"),
            added(function_call(), 1),
            done(item),
            completed([]),
        ]
    )
    assert [type(part).__name__ for part in parts_in(outcome)] == ["Text", "Call", "Refusal"]


def test_unknown_content_part_is_carried_whole() -> None:
    part: Json = {"type": "output_video", "data": "AAAA"}
    item = message([part, {**TEXT_PART, "text": "x"}], status="completed")
    outcome = read_answer(
        [created(), added(message()), part_added(part), part_done(part), done(item), completed([])]
    )
    first, second = parts_in(outcome)
    assert isinstance(first, Opaque)
    assert first.type == "content/output_video"
    assert second == Text(text="x", item_id="msg_1")


def test_part_of_a_call_item_is_no_text() -> None:
    part = part_done({**TEXT_PART, "text": "x"}, item_id="fc_1")
    outcome = read_answer([created(), added(function_call()), part, done(F), completed([F])])
    assert len(parts_in(outcome)) == 1


def test_content_part_without_index_is_the_next() -> None:
    event = part_added()
    del event["content_index"]
    delta = text_delta("hello")
    del delta["content_index"]
    events = decode_events(
        [created(), added(message()), event, delta, done(HELLO), completed([HELLO])]
    )
    assert texts_of(events) == ["hello"]


# --- reasoning -------------------------------------------------------------------------------------------------------

SUMMARY = "response.reasoning_summary"
PLACE = {"item_id": "rs_1", "output_index": 0}


def reasoning(*texts: str) -> Json:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "rs_1", "summary": summary}


def test_reasoning_that_comes_only_at_the_end_is_emitted_then() -> None:
    outcome = read_answer([created(), added(reasoning()), done(reasoning("a", "b")), completed([])])
    assert parts_in(outcome) == (Reasoning(summary=("a", "b"), item_id="rs_1"),)


def test_empty_reasoning_entries_are_kept() -> None:
    opened = {"type": f"{SUMMARY}_part.added", **PLACE, "summary_index": 0, "part": {"text": ""}}
    outcome = read_answer(
        [created(), added(reasoning()), opened, done(reasoning("")), completed([])]
    )
    assert parts_in(outcome) == (Reasoning(summary=("",), item_id="rs_1"),)


def test_reasoning_that_contradicts_its_deltas_is_amended() -> None:
    delta = {"type": f"{SUMMARY}_text.delta", **PLACE, "summary_index": 0, "delta": "x"}
    events, problems = read(
        [created(), added(reasoning()), delta, done(reasoning("abc")), completed([])]
    )
    assert PartEnded(0, Reasoning(summary=("abc",), item_id="rs_1"), amended=True) in events
    assert "text_disagrees" in problems


def test_reasoning_without_end_ends_with_the_answer() -> None:
    delta = {"type": f"{SUMMARY}_text.delta", **PLACE, "delta": "x"}
    outcome = read_answer([created(), added(reasoning()), delta, completed([])])
    assert parts_in(outcome) == (Reasoning(summary=("x",), item_id="rs_1"),)


@pytest.mark.parametrize(
    "late",
    [
        {"type": f"{SUMMARY}_text.delta", **PLACE, "summary_index": 0, "delta": "x"},
        {"type": f"{SUMMARY}_text.done", **PLACE, "summary_index": 0, "text": "x"},
        {"type": f"{SUMMARY}_part.added", **PLACE, "summary_index": 0, "part": {"text": ""}},
        {"type": "response.content_part.added", **PLACE, "content_index": 0, "part": {"text": ""}},
    ],
)
def test_nothing_is_said_of_reasoning_after_its_end(late: Json) -> None:
    events, problems = read(
        [created(), added(reasoning()), done(reasoning("a")), late, completed([reasoning("a")])]
    )
    assert parts_in(fold(events)) == (Reasoning(summary=("a",), item_id="rs_1"),)
    assert problems == ["after_done"]


def test_closing_event_without_text_adds_nothing() -> None:
    event = {"type": f"{SUMMARY}_text.done", **PLACE, "summary_index": 0}
    outcome = read_answer(
        [created(), added(reasoning()), event, done(reasoning("a")), completed([])]
    )
    assert parts_in(outcome) == (Reasoning(summary=("a",), item_id="rs_1"),)


def test_reasoning_item_that_ends_as_another_keeps_what_was_emitted() -> None:
    delta = {"type": f"{SUMMARY}_text.delta", **PLACE, "summary_index": 0, "delta": "x"}
    end = {"type": "compaction", "id": "rs_1"}
    outcome = read_answer([created(), added(reasoning()), delta, done(end), completed([])])
    assert parts_in(outcome) == (Reasoning(summary=("x",), item_id="rs_1"),)


def test_result_without_end_ends_with_the_answer() -> None:
    output: Json = {"type": "function_call_output", "id": "fco_1", "call_id": "c", "output": "x"}
    (part,) = parts_in(read_answer([created(), added(output), completed([])]))
    assert isinstance(part, Result)
    assert part.status == "completed"


def test_item_repeated_as_another_type_at_its_end_keeps_its_kind() -> None:
    output: Json = {"type": "function_call_output", "id": "fco_1", "call_id": "c", "output": "x"}
    end = {"type": "compaction", "id": "fco_1"}
    (part,) = parts_in(read_answer([created(), added(output), done(end), completed([])]))
    assert isinstance(part, Result)


def test_delta_without_any_place_and_nothing_open_begins_a_message() -> None:
    events, problems = read(
        [created(), {"type": "response.output_text.delta", "delta": "x"}, completed([])]
    )
    assert texts_of(events) == ["x"]
    assert "missing_added" in problems


def test_closing_event_with_empty_text_adds_nothing() -> None:
    events = decode_events(
        [
            created(),
            added(message()),
            part_added(),
            text_delta("hello"),
            text_done(""),
            done(HELLO),
            completed([HELLO]),
        ]
    )
    assert texts_of(events) == ["hello"]


def test_messages_that_share_an_id_are_distinguished_by_index() -> None:
    events, problems = read(
        [
            created(),
            added(message()),
            added(message(), 1),
            text_delta("a"),
            {**text_delta("b"), "output_index": 1},
            text_delta("c"),
            completed([]),
        ]
    )
    texts = [part.text for part in parts_in(fold(events)) if isinstance(part, Text)]
    assert texts == ["ac", "b"]
    assert "repeated_id" in problems


def test_reasonings_that_share_an_id_are_distinguished_by_index() -> None:
    def delta(index: int, text: str) -> Json:
        return {
            "type": f"{SUMMARY}_text.delta",
            "item_id": "rs_1",
            "output_index": index,
            "summary_index": 0,
            "delta": text,
        }

    outcome = read_answer(
        [
            created(),
            added(reasoning()),
            added(reasoning(), 1),
            delta(0, "a"),
            delta(1, "b"),
            delta(0, "c"),
            completed([]),
        ]
    )
    assert parts_in(outcome) == (
        Reasoning(summary=("ac",), item_id="rs_1"),
        Reasoning(summary=("b",), item_id="rs_1"),
    )


def test_reasoning_entries_may_change_from_delta_to_delta() -> None:
    def delta(index: int, text: str) -> Json:
        return {"type": f"{SUMMARY}_text.delta", **PLACE, "summary_index": index, "delta": text}

    outcome = read_answer(
        [created(), added(reasoning()), delta(0, "a"), delta(1, "b"), delta(0, "c"), completed([])]
    )
    assert parts_in(outcome) == (Reasoning(summary=("ac", "b"), item_id="rs_1"),)


def test_announced_entry_of_a_reasoning_is_emitted_where_it_begins() -> None:
    place: Json = {"item_id": "rs_1", "output_index": 0}
    item: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    entry: Json = {"type": "summary_text", "text": ""}
    first = {"type": "response.reasoning_summary_part.added", **place, "part": entry}
    text = {"type": "response.reasoning_summary_text.delta", **place, "delta": "a"}
    events = decode_events(
        [
            created(),
            added(item),
            first | {"summary_index": 0},
            text | {"summary_index": 0},
            first | {"summary_index": 1},
        ]
    )
    begun = [event for event in events if isinstance(event, ReasoningDelta)]
    assert begun == [
        ReasoningDelta(0, "", "summary", 0),
        ReasoningDelta(0, "a", "summary", 0),
        ReasoningDelta(0, "", "summary", 1),
    ]


@pytest.mark.parametrize("target", ["responses", "chat", "messages"])
def test_boundary_of_reasoning_entries_crosses_when_it_comes(target: str) -> None:
    place: Json = {"item_id": "rs_1", "output_index": 0}
    item: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    entry: Json = {"type": "summary_text", "text": ""}
    translator = StreamTranslator("responses", target)
    translator.feed(stream([created(), added(item)]))
    out = b""
    for index, words in enumerate(("a", "b", "")):
        where = {**place, "summary_index": index}
        begun = translator.feed(
            stream([{"type": "response.reasoning_summary_part.added", **where, "part": entry}])
        )
        if target == "responses":
            names = [one["type"] for one in payloads(begun)]
            assert names[-1] == "response.reasoning_summary_part.added"
            assert payloads(begun)[-1]["summary_index"] == index
        else:
            assert begun == b""
        out += begun
        if words:
            delta = {"type": "response.reasoning_summary_text.delta", **where, "delta": words}
            out += translator.feed(stream([delta]))
    texts = [{"type": "summary_text", "text": words} for words in ("a", "b", "")]
    whole = {**item, "summary": texts}
    out += translator.feed(stream([done(whole), completed([whole])])) + translator.close()
    assert out.count(b'"type":"response.reasoning_summary_part.added"') == (
        3 if target == "responses" else 0
    )
