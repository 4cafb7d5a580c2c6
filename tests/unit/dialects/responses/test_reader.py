"""Regular streams: what each event of the vendor's own sequence means. None of them is a problem."""

import json

import pytest

from dragoman._json import Raw
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Finished,
    MediaDelta,
    Noticed,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import Usage
from dragoman.model.parts import (
    Annotation,
    Extra,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    Seal,
    Text,
)
from responses_help import (
    TEXT_PART,
    Json,
    added,
    completed,
    created,
    decode_events,
    done,
    message,
    part_added,
    part_done,
    parts_in,
    problems_in,
    read,
    read_answer,
    text_delta,
    text_done,
    text_message,
)


def text_stream(pieces: list[str]) -> list[Json | bytes]:
    text = "".join(pieces)
    item = text_message(text)
    return [
        created(),
        {"type": "response.in_progress", "response": created()["response"]},
        added(message()),
        part_added(),
        *(text_delta(piece) for piece in pieces),
        text_done(text),
        part_done({**TEXT_PART, "text": text}),
        done(item),
        completed([item], usage={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}),
    ]


def test_text_streams_as_it_comes() -> None:
    events, problems = read(text_stream(["Hel", "lo"]))
    header = Text(status="in_progress", item_id="msg_1")
    assert events == [
        Started("resp_1", "m", 1, None),
        Progress("in_progress"),
        PartStarted(0, header),
        TextDelta(0, "Hel"),
        TextDelta(0, "lo"),
        PartEnded(0, Text(text="Hello", item_id="msg_1")),
        Finished("stop", native="completed"),
        UsageReported(Usage(input=3, output=2, total=5)),
        Completed(),
    ]
    assert problems == []


def test_reasoning_has_summary_content_and_seal() -> None:
    place = {"item_id": "rs_1", "output_index": 0}
    summary = "response.reasoning_summary"
    item: Json = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "ab"}, {"type": "summary_text", "text": "c"}],
        "content": [{"type": "reasoning_text", "text": "deep"}],
        "encrypted_content": "gAAA",
    }
    content = {"type": "reasoning_text", "text": ""}
    events, problems = read(
        [
            created(),
            added({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gA"}),
            {"type": f"{summary}_part.added", **place, "summary_index": 0, "part": {"text": ""}},
            {"type": f"{summary}_text.delta", **place, "summary_index": 0, "delta": "a"},
            {"type": f"{summary}_text.delta", **place, "summary_index": 0, "delta": "b"},
            {"type": f"{summary}_text.done", **place, "summary_index": 0, "text": "ab"},
            {"type": f"{summary}_part.done", **place, "summary_index": 0, "part": {"text": "ab"}},
            {"type": f"{summary}_text.delta", **place, "summary_index": 1, "delta": "c"},
            part_added(content, 0, "rs_1"),
            {"type": "response.reasoning_text.delta", **place, "content_index": 0, "delta": "de"},
            {"type": "response.reasoning_text.delta", **place, "content_index": 0, "delta": "ep"},
            {"type": "response.reasoning_text.done", **place, "content_index": 0, "text": "deep"},
            part_done({**content, "text": "deep"}, 0, "rs_1"),
            done(item),
            completed([item]),
        ]
    )
    seal = Seal("encrypted", "gAAA")
    assert events[1:-2] == [
        PartStarted(0, Reasoning(status="in_progress", item_id="rs_1")),
        ReasoningDelta(0, ""),
        ReasoningDelta(0, "a"),
        ReasoningDelta(0, "b"),
        ReasoningDelta(0, "c", "summary", 1),
        ReasoningDelta(0, "", "content"),
        ReasoningDelta(0, "de", "content"),
        ReasoningDelta(0, "ep", "content"),
        SealAdded(0, seal),
        PartEnded(
            0, Reasoning(summary=("ab", "c"), content=("deep",), seals=(seal,), item_id="rs_1")
        ),
    ]
    assert problems == []


def test_refusal_is_a_part_of_its_own() -> None:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = message([{"type": "refusal", "refusal": "no, no"}], status="completed")
    outcome = read_answer(
        [
            created(),
            added(message()),
            part_added({"type": "refusal", "refusal": ""}),
            {"type": "response.refusal.delta", **place, "delta": "no, "},
            {"type": "response.refusal.delta", **place, "delta": "no"},
            {"type": "response.refusal.done", **place, "refusal": "no, no"},
            done(item),
            completed([item]),
        ]
    )
    assert parts_in(outcome) == (Refusal(text="no, no", item_id="msg_1"),)


def test_texts_of_one_message_share_its_id_and_follow_each_other() -> None:
    item = message([{**TEXT_PART, "text": "a"}, {**TEXT_PART, "text": "b"}], status="completed")
    events = decode_events(
        [
            created(),
            added(message(phase="commentary")),
            part_added(),
            text_delta("a"),
            text_done("a"),
            part_added(index=1),
            text_delta("b", 1),
            done({**item, "phase": "commentary"}),
            completed([{**item, "phase": "commentary"}]),
        ]
    )
    extra = Extra("responses", {"phase": Raw(b'"commentary"')})
    kinds = [type(event) for event in events[1:7]]
    assert kinds == [PartStarted, TextDelta, PartEnded, PartStarted, TextDelta, PartEnded]
    assert events[3] == PartEnded(0, Text(text="a", item_id="msg_1", item_extra=extra))
    assert events[6] == PartEnded(1, Text(text="b", item_id="msg_1", item_extra=extra))


def test_annotations_are_emitted_once() -> None:
    citation = {
        "type": "url_citation",
        "start_index": 0,
        "end_index": 1,
        "title": "T",
        "url": "https://example.com",
    }
    other = {"type": "file_citation", "file_id": "file_1", "filename": "a.txt", "index": 4}
    part: Json = {**TEXT_PART, "text": "a", "annotations": [citation, other]}
    events = decode_events(
        [
            created(),
            added(message()),
            part_added(),
            text_delta("a"),
            {
                "type": "response.output_text.annotation.added",
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "annotation_index": 0,
                "annotation": citation,
            },
            part_done(part),
            done(message([part], status="completed")),
            completed([message([part], status="completed")]),
        ]
    )
    added_ones = [event.annotation for event in events if isinstance(event, AnnotationAdded)]
    first = Annotation(
        "responses",
        Raw(json.dumps(citation).encode()),
        "https://example.com",
        "T",
        None,
        0,
        1,
    )
    second = Annotation("responses", Raw(json.dumps(other).encode()), None, "a.txt", None, 4)
    assert added_ones == [first, second]
    end = events[-3]
    assert isinstance(end, PartEnded)
    assert isinstance(end.value, Text)
    assert end.value.annotations == (first, second)


def test_logprobs_ride_with_their_deltas() -> None:
    one = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}
    item = message([{**TEXT_PART, "text": "aa"}], status="completed")
    events = decode_events(
        [
            created(),
            added(message()),
            part_added(),
            text_delta("a", logprobs=[one]),
            text_delta("a", logprobs=[one, one]),
            done(item),
            completed([item]),
        ]
    )
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert [len(json.loads(bytes(delta.logprobs or b""))) for delta in deltas] == [1, 2]
    end = events[-3]
    assert isinstance(end, PartEnded)
    assert isinstance(end.value, Text)
    assert end.value.logprobs is not None
    assert json.loads(bytes(end.value.logprobs)) == [one, one, one]


def test_sound_is_one_part_with_its_transcript() -> None:
    events, problems = read(
        [
            created(),
            {"type": "response.audio.delta", "delta": "AA=="},
            {"type": "response.audio.transcript.delta", "delta": "hi"},
            {"type": "response.audio.transcript.delta", "delta": ""},
            {"type": "response.audio.done"},
            {"type": "response.audio.transcript.done"},
            {"type": "response.audio.done"},
            completed([]),
        ]
    )
    assert problems == []
    assert events[1:5] == [
        PartStarted(0, Media(kind="audio", status="in_progress")),
        MediaDelta(0, "AA=="),
        MediaDelta(0, "", "hi"),
        PartEnded(0, Media(kind="audio", data="AA==", transcript="hi")),
    ]


def test_sound_that_is_never_closed_ends_with_the_answer() -> None:
    outcome = read_answer(
        [created(), {"type": "response.audio.delta", "delta": "AA=="}, completed([])]
    )
    assert parts_in(outcome) == (Media(kind="audio", data="AA=="),)


def test_sound_may_begin_again() -> None:
    ends = [{"type": "response.audio.done"}, {"type": "response.audio.transcript.done"}]
    sound = {"type": "response.audio.delta", "delta": "AA=="}
    assert len(parts_in(read_answer([created(), sound, *ends, sound, completed([])]))) == 2


def test_compaction_is_carried_whole_and_shows_progress() -> None:
    item: Json = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    events, problems = read(
        [
            created(),
            added(item),
            {"type": "response.compaction.compacting", "item_id": "cmp_1", "output_index": 0},
            done(item),
            completed([item]),
        ]
    )
    assert problems == []
    assert events[2] == Progress("compacting", 0)
    opaque = Opaque(
        dialect="responses", type="compaction", raw=Raw(json.dumps(item).encode()), item_id="cmp_1"
    )
    assert events[3] == PartEnded(0, opaque)


def test_queued_and_in_progress_are_progress_of_the_answer() -> None:
    queued = {"type": "response.queued", "response": created()["response"]}
    assert decode_events([created(), queued, completed([])])[1] == Progress("queued")


def test_keepalives_and_comments_are_noticed() -> None:
    events, problems = read(
        [
            b": waiting\n\n",
            created(),
            {"type": "keepalive", "sequence_number": 3},
            b"event: keepalive\n\n",
            completed([]),
            b"data: [DONE]\n\n",
        ]
    )
    assert events[0] == Noticed("comment", "responses", "", Raw(b'"waiting"'))
    assert events[2] == Noticed("ping", "responses", "keepalive")
    assert len(events) == 5
    assert problems == []


def test_fields_of_the_response_without_a_home_ride_along() -> None:
    events = decode_events(
        [
            created(tools=[], instructions="x", completed_at=None),
            completed([], tools=[], instructions="y", completed_at=9),
        ]
    )
    assert events[0] == Started(
        "resp_1",
        "m",
        1,
        Extra("responses", {"tools": Raw(b"[]"), "instructions": Raw(b'"x"')}),
    )
    assert events[-1] == Completed(
        Extra("responses", {"instructions": Raw(b'"y"'), "completed_at": Raw(b"9")})
    )


def test_unknown_fields_of_an_event_are_noticed() -> None:
    events = decode_events([created(), {**added(message()), "agent": {"name": "a"}}, completed([])])
    notice = Noticed(
        "fields", "responses", "response.output_item.added", Raw(b'{"agent":{"name": "a"}}')
    )
    assert notice in events


def test_usage_counts_are_read_and_the_rest_is_kept() -> None:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2, "x": 1},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3, "audio_tokens": 1, "y": 2},
        "total_tokens": 15,
        "cost": 1,
    }
    outcome = read_answer([created(), completed([], usage=usage)])
    assert outcome.usage is not None
    assert outcome.usage.cached == 4
    assert outcome.usage.cache_write == 2
    assert outcome.usage.reasoning == 3
    assert outcome.usage.output_audio == 1
    assert outcome.usage.extra is not None
    assert set(outcome.usage.extra.fields) == {
        "cost",
        "input_tokens_details",
        "output_tokens_details",
    }


def test_halves_of_a_character_are_joined_and_cost_nobody_else() -> None:
    half, rest = b'"\\ud83d"', b'"\\ude00!"'
    item = text_message("a😀!b")

    def delta(text: bytes) -> bytes:
        return (
            b'data: {"type":"response.output_text.delta","item_id":"msg_1","output_index":0,'
            b'"content_index":0,"delta":' + text + b"}\n\n"
        )

    events = decode_events(
        [
            created(),
            added(message()),
            part_added(),
            text_delta("a"),
            delta(half),
            delta(rest),
            text_delta("b"),
            done(item),
            completed([item]),
        ]
    )
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert texts == ["a", "😀!", "b"]


def test_half_of_a_character_that_stays_alone_is_replaced() -> None:
    events = decode_events(
        [
            created(),
            added(message()),
            part_added(),
            b'data: {"type":"response.output_text.delta","item_id":"msg_1","content_index":0,"delta":"a\\ud83d"}\n\n',
        ]
    )
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "\ufffd"]


def test_half_of_a_character_in_reasoning_is_joined() -> None:
    def delta(text: bytes) -> bytes:
        return (
            b'data: {"type":"response.reasoning_summary_text.delta","item_id":"rs_1",'
            b'"output_index":0,"summary_index":0,"delta":' + text + b"}\n\n"
        )

    item: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    events = decode_events(
        [created(), added(item), delta(b'"\\ud83d"'), delta(b'"\\ude00"'), delta(b'"x\\ud83d"')]
    )
    texts = [event.text for event in events if isinstance(event, ReasoningDelta)]
    assert texts == ["😀", "x", "\ufffd"]


@pytest.mark.parametrize(
    ("details", "reason", "native"),
    [
        ({"reason": "max_output_tokens"}, "length", "max_output_tokens"),
        ({"reason": "content_filter"}, "content_filter", "content_filter"),
        ({"reason": "max_messages"}, "length", "max_messages"),
        ({"reason": "steered"}, "pause", "steered"),
        ({"reason": "something_new"}, "length", "something_new"),
    ],
)
def test_incomplete_answers_say_why(details: Json, reason: str, native: str) -> None:
    end = completed([], status="incomplete", incomplete_details=details)
    events, problems = read([created(), {**end, "type": "response.incomplete"}])
    assert problems == []
    finish = events[1]
    assert isinstance(finish, Finished)
    assert (finish.reason, finish.native) == (reason, native)


def test_incomplete_text_is_incomplete_and_what_came_before_it_is_not() -> None:
    item = message([{**TEXT_PART, "text": "ab"}], status="incomplete")
    end = completed([item], status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    outcome = read_answer(
        [
            created(),
            added(message()),
            part_added(),
            text_delta("ab"),
            text_done("ab"),
            part_done({**TEXT_PART, "text": "ab"}),
            done(item),
            {**end, "type": "response.incomplete"},
        ]
    )
    assert parts_in(outcome) == (Text(text="ab", status="incomplete", item_id="msg_1"),)


def test_cancelled_answer_is_finished_as_cancelled() -> None:
    end = completed([], status="cancelled")
    outcome = read_answer([created(), {**end, "type": "response.cancelled"}])
    assert outcome.choices[0].finish == "cancelled"
    assert outcome.completed


def test_regular_streams_have_no_problems_with_or_without_done_marker() -> None:
    assert problems_in([*text_stream(["a"]), b"data: [DONE]\n\n"]) == []
