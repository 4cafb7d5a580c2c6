"""Reasoning, refusals, sound, pictures, citations and lists of content in streams."""

from chat_help import DONE, chunk, finish, read
from dragoman._json import Raw
from dragoman.model.events import (
    AnnotationAdded,
    MediaDelta,
    Noticed,
    PartStarted,
    ReasoningDelta,
    SealAdded,
    TextDelta,
)
from dragoman.model.parts import (
    Annotation,
    Call,
    Extra,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    Seal,
    Text,
)

END = (finish(), DONE)


def test_reasoning_ends_where_text_begins() -> None:
    reading = read(
        [
            chunk({"reasoning_content": "h"}),
            chunk({"reasoning_content": "m"}),
            chunk({"content": "Yes."}),
            *END,
        ]
    )
    assert reading.parts == (Reasoning(summary=("hm",)), Text(text="Yes."))
    assert [event.text for event in reading.events if isinstance(event, ReasoningDelta)] == [
        "h",
        "m",
    ]
    assert reading.problems == []


def test_reasoning_and_a_call_take_separate_parts() -> None:  # M013
    call = {"index": 0, "id": "a", "function": {"name": "apply_patch", "arguments": "{}"}}
    reading = read(
        [
            chunk({"reasoning_content": "hm"}),
            chunk({"tool_calls": [call]}),
            finish("tool_calls"),
            DONE,
        ]
    )
    assert [type(part) for part in reading.parts] == [Reasoning, Call]


def test_reasoning_under_another_name_keeps_that_name() -> None:
    for field in ("reasoning", "reasoning_text", "thinking"):
        reading = read([chunk({field: "h"}), chunk({field: "m"}), *END])
        extra = Extra("chat", {field: Raw(b'""')})
        assert reading.parts == (Reasoning(summary=("hm",), extra=extra),)


def test_reasoning_under_two_names_at_once_is_emitted_once() -> None:
    both = chunk({"reasoning_content": "hm", "reasoning": "hm"})
    assert read([both, *END]).parts == (Reasoning(summary=("hm",)),)


def test_openrouters_details_are_not_emitted_twice_and_give_their_seals() -> None:
    first = {"type": "reasoning.text", "text": "hm", "index": 0}
    second = {"type": "reasoning.text", "text": "", "signature": "sig", "index": 0}
    reading = read(
        [
            chunk({"reasoning": "hm", "reasoning_details": [first]}),
            chunk({"reasoning_details": [second]}),
            chunk({"content": "a"}),
            *END,
        ]
    )
    part = reading.parts[0]
    assert isinstance(part, Reasoning)
    assert part.summary == ("hm",)
    assert part.seals == (Seal("signature", "sig"),)
    assert part.extra is not None
    assert set(part.extra.fields) == {"reasoning", "reasoning_details"}
    assert SealAdded(0, Seal("signature", "sig")) in reading.events


def test_details_alone_are_the_reasoning() -> None:
    details = [
        {"type": "reasoning.summary", "summary": "a"},
        {"type": "reasoning.text", "text": "b"},
        {"type": "reasoning.encrypted", "data": "x", "format": "openai-responses-v1"},
        {"type": "reasoning.encrypted", "data": "y", "format": "anthropic-claude-v1"},
        {"type": "reasoning.encrypted", "data": "z", "format": "google-gemini-v1"},
        {"type": "reasoning.new", "data": "q"},
        {"type": "reasoning.encrypted"},
    ]
    reading = read([chunk({"reasoning_details": details}), chunk({"reasoning": "ab"}), *END])
    part = reading.parts[0]
    assert isinstance(part, Reasoning)
    assert part.summary == ("ab",)
    assert part.seals == (
        Seal("encrypted", "x"),
        Seal("redacted", "y"),
        Seal("thought", '{"google":{"thought_signature":"z"}}'),
    )


def test_litellms_thinking_blocks_give_their_seals() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xyz"},
    ]
    reading = read([chunk({"reasoning_content": "hm", "thinking_blocks": blocks}), *END])
    part = reading.parts[0]
    assert isinstance(part, Reasoning)
    assert part.summary == ("hm",)
    assert part.seals == (Seal("signature", "sig"), Seal("redacted", "xyz"))


def test_half_a_character_in_reasoning_is_held() -> None:
    def thought(escape: str) -> bytes:
        return b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"%s"}}]}\n\n' % (
            escape.encode()
        )

    data = thought("\\ud83d") + thought("\\ude00") + b"data: [DONE]\n\n"
    assert read(data).parts == (Reasoning(summary=("\U0001f600",)),)


def test_refusal_is_a_part_of_its_own() -> None:
    reading = read([chunk({"refusal": "I "}), chunk({"refusal": "cannot."}), *END])
    assert reading.parts == (Refusal(text="I cannot."),)
    assert TextDelta(0, "I ") in reading.events


def test_text_after_a_refusal_is_a_part_of_its_own() -> None:
    reading = read([chunk({"refusal": "No."}), chunk({"content": "But"}), *END])
    assert reading.parts == (Refusal(text="No."), Text(text="But"))


def test_logprobs_of_a_refusal_stay_with_it() -> None:
    each = chunk()
    each["choices"] = [
        {"index": 0, "delta": {"refusal": "No"}, "logprobs": {"refusal": [{"token": "No"}]}}
    ]
    assert read([each, *END]).parts == (Refusal(text="No", logprobs=Raw(b'[{"token": "No"}]')),)


# --- lists of content -------------------------------------------------------------------------------------------------


def test_logprobs_after_the_last_word_are_emitted_with_it() -> None:
    last = chunk()
    last["choices"] = [{"index": 0, "delta": {}, "logprobs": {"content": [{"token": ""}]}}]
    reading = read([chunk({"content": "a"}), last, *END])
    assert TextDelta(0, "", Raw(b'[{"token": ""}]')) in reading.events
    assert reading.parts == (Text(text="a", logprobs=Raw(b'[{"token": ""}]')),)


def test_mistrals_content_lists_are_reasoning_and_text() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reading = read(
        [
            chunk({"content": [thinking]}),
            chunk({"content": [{"type": "thinking", "thinking": "!"}]}),
            chunk({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
            chunk({"content": "c"}),
            *END,
        ]
    )
    assert reading.parts == (Reasoning(summary=("hm!",)), Text(text="abc"))


def test_refusal_in_a_content_list_is_a_refusal() -> None:
    assert read([chunk({"content": [{"type": "refusal", "refusal": "No"}]}), *END]).parts == (
        Refusal(text="No"),
    )


def test_unknown_piece_of_content_is_kept_whole() -> None:
    piece = {"type": "reference", "reference_ids": [1]}
    reading = read([chunk({"content": "a"}), chunk({"content": [piece]}), *END])
    raw = Raw(b'{"type": "reference", "reference_ids": [1]}')
    assert reading.parts == (Text(text="a"), Opaque(dialect="chat", type="reference", raw=raw))


def test_picture_in_an_answer_is_a_part() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}
    assert read([chunk({"images": [image]}), *END]).parts == (
        Media(kind="image", media_type="image/png", data="QQ=="),
    )


# --- citations --------------------------------------------------------------------------------------------------------

CITATION = {
    "type": "url_citation",
    "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1},
}


def test_citation_joins_the_text_it_comes_with() -> None:
    reading = read([chunk({"content": "a"}), chunk({"annotations": [CITATION]}), *END])
    part = reading.parts[0]
    assert isinstance(part, Text)
    assert [(each.url, each.title, each.start, each.end) for each in part.annotations] == [
        ("u", "t", 0, 1)
    ]
    assert any(isinstance(event, AnnotationAdded) for event in reading.events)


def test_citation_before_its_text_waits_for_it() -> None:
    reading = read([chunk({"annotations": [CITATION]}), chunk({"content": "a"}), *END])
    part = reading.parts[0]
    assert isinstance(part, Text)
    assert len(part.annotations) == 1
    assert part.text == "a"


def test_citation_without_any_text_gets_an_empty_one() -> None:
    reading = read([chunk({"annotations": [{"type": "file_citation"}]}), *END])
    annotation = Annotation("chat", Raw(b'{"type": "file_citation"}'))
    assert reading.parts == (Text(annotations=(annotation,)),)


# --- sound ------------------------------------------------------------------------------------------------------------


def test_sound_streams_with_its_transcript() -> None:
    reading = read(
        [
            chunk({"audio": {"id": "audio_1", "transcript": "He"}}),
            chunk({"audio": {"data": "QUFB"}}),
            chunk({"audio": {"data": "QkJC", "transcript": "llo"}}),
            chunk({"audio": {"expires_at": 99}}),
            *END,
        ]
    )
    extra = Extra("chat", {"expires_at": Raw(b"99")})
    assert reading.parts == (
        Media(kind="audio", data="QUFBQkJC", transcript="Hello", item_id="audio_1", extra=extra),
    )
    assert [type(event) for event in reading.events[1:6]] == [PartStarted, *[MediaDelta] * 4]


def test_last_update_of_sound_may_come_after_the_finish() -> None:
    reading = read(
        [chunk({"audio": {"id": "audio_1"}}), finish(), chunk({"audio": {"expires_at": 9}}), DONE]
    )
    notice = Noticed("fields", "chat", "delta", Raw(b'{"audio":{"expires_at":9}}'))
    assert notice in reading.events
    assert reading.problems == []
    assert reading.parts == (Media(kind="audio", item_id="audio_1"),)


def test_cut_sound_is_incomplete() -> None:
    (part,) = read([chunk({"audio": {"id": "x", "data": "QQ=="}})]).parts
    assert isinstance(part, Media)
    assert part.status == "incomplete"
