"""Whole answers, both ways."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from chat_help import call, chunk, finish, read
from dragoman._json import Raw
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.core.losses import answer_book
from dragoman.dialects.chat import LOSSES, read_body
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.registry import codec
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    LimitsReported,
    PartEnded,
    PartStarted,
    Started,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason, Limits, Outcome, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import Tool

encode_body = codec("chat").encode_body


def body(message: object, reason: object = "stop", **fields: object) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1700000000,
            "model": "m",
            "choices": [choice],
            **fields,
        }
    ).encode()


def problems(data: bytes) -> list[str]:
    return [problem.kind for problem in read_body(data).problems]


def outcome(data: bytes, context: DecodeContext | None = None) -> Outcome:
    step = read_body(data, context or DecodeContext())
    assert is_grammatical(step.events)
    assert all(problem.frame == 1 for problem in step.problems)
    return fold(step.events)


def parts(data: bytes) -> tuple[Part, ...]:
    return outcome(data).choices[0].parts


FUNCTION = {"name": "f", "arguments": '{"x": 1}'}


def test_body_is_read_to_the_parts_it_has() -> None:
    message = {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "a", "type": "function", "function": FUNCTION},
            {"id": "b", "type": "custom", "custom": {"name": "exec", "input": "ls"}},
        ],
    }
    data = body(message, "tool_calls", usage={"prompt_tokens": 1, "completion_tokens": 2})
    found = outcome(data)
    assert found.choices[0].parts == (
        Reasoning(summary=("hm",)),
        Text(text="Hi"),
        Call(call_id="a", name="f", input='{"x": 1}'),
        Call(call_id="b", name="exec", input="ls", kind="custom"),
    )
    assert found.choices[0].finish == "tool_calls"
    assert found.usage == Usage(input=1, output=2)
    assert problems(data) == []


def test_calls_of_a_body_never_overlap() -> None:
    calls = [{"id": each, "type": "function", "function": {"name": each}} for each in "abc"]
    kinds = [type(event) for event in read_body(body({"tool_calls": calls}, "tool_calls")).events]
    started = [index for index, kind in enumerate(kinds) if kind is PartStarted]
    ended = [index for index, kind in enumerate(kinds) if kind is PartEnded]
    assert sorted(started + ended) == [
        each for pair in zip(started, ended, strict=True) for each in pair
    ]


def test_body_call_without_arguments_is_an_empty_object() -> None:
    entry = {"id": "a", "type": "function", "function": {"name": "f"}}
    assert parts(body({"tool_calls": [entry]}, "tool_calls")) == (
        Call(call_id="a", name="f", input="{}"),
    )


def test_last_call_of_a_body_cut_by_length_is_incomplete() -> None:
    calls = [{"id": each, "type": "function", "function": FUNCTION} for each in "ab"]
    found = parts(body({"tool_calls": calls}, "length"))
    assert [part.status for part in found if isinstance(part, Call)] == ["completed", "incomplete"]


def test_body_calls_without_id_or_with_one_id_get_their_own() -> None:
    calls = [
        {"id": "a", "function": FUNCTION},
        {"id": "a", "function": FUNCTION},
        {"function": FUNCTION},
    ]
    data = body({"tool_calls": calls}, "tool_calls")
    ids = [part.call_id for part in parts(data) if isinstance(part, Call)]
    assert len(set(ids)) == 3
    assert problems(data) == ["missing_id", "missing_id"]


def test_nameless_call_of_a_body_is_concluded_or_an_error() -> None:
    data = body({"tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]}, "tool_calls")
    context = DecodeContext(tools=(Tool(name="only"),))
    assert outcome(data, context).choices[0].parts == (Call(call_id="a", name="only", input="{}"),)
    failed = outcome(data)
    assert failed.error is not None
    assert failed.error.kind == "protocol"


def test_legacy_body_is_a_call() -> None:
    found = parts(body({"content": None, "function_call": FUNCTION}, "function_call"))
    assert [(part.name, part.input) for part in found if isinstance(part, Call)] == [
        ("f", '{"x": 1}')
    ]


def test_body_without_finish_reason_is_inferred() -> None:
    data = body({"content": "a"}, None)
    assert outcome(data).choices[0].finish == "stop"
    assert problems(data) == ["missing_finish"]


def test_error_body_is_a_failure() -> None:
    found = outcome(b'{"error":{"message":"no","type":"invalid_request_error","code":null}}')
    assert found.error is not None
    assert (found.error.kind, found.error.message) == ("invalid_request", "no")


def test_body_with_a_failed_choice_is_a_failure() -> None:
    assert outcome(body({"content": "a"}, "error")).error is not None


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        (b"nonsense", ["malformed_body"]),
        (b"[]", ["malformed_body"]),
        (b'{"object":"response","output":[]}', ["foreign_body"]),
        (b"{}", ["foreign_body"]),
        (b'{"choices":[]}', ["empty_output"]),
        (b'{"detail":"Not Found"}', []),
    ],
)
def test_bad_body_is_a_failure_and_says_why(data: bytes, kinds: list[str]) -> None:
    assert outcome(data).error is not None
    assert problems(data) == kinds


def test_body_with_bytes_that_are_no_utf8_is_an_error() -> None:
    data = body({"content": "a?"}).replace(b"?", b"\xff")
    failed = read_body(data).events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "protocol"
    assert problems(data) == ["invalid_utf8"]


def test_replacement_character_in_a_body_is_no_problem() -> None:
    assert problems(body({"content": "\ufffd"})) == []


# --- writing ----------------------------------------------------------------------------------------------------------


def events(*parts: Part, reason: FinishReason = "stop", usage: Usage | None = None) -> list[Event]:
    out: list[Event] = [Started("chatcmpl-1", "m", 1700000000)]
    for number, part in enumerate(parts):
        out += [PartStarted(number, part), PartEnded(number, part)]
    out.append(Finished(reason))
    if usage is not None:
        out.append(UsageReported(usage))
    return [*out, Completed()]


def write(
    *parts: Part, reason: FinishReason = "stop", context: EncodeContext | None = None
) -> dict[str, Any]:
    data = encode_body(events(*parts, reason=reason), context or EncodeContext())
    ChatCompletion.model_validate_json(data, strict=True)
    found: dict[str, Any] = json.loads(data)
    return found


def message(*parts: Part, reason: FinishReason = "stop", **context: Any) -> dict[str, Any]:
    written = write(*parts, reason=reason, context=EncodeContext(**context))
    choices = written["choices"]
    return {**choices[0]["message"], "finish_reason": choices[0]["finish_reason"]}


def test_body_round_trip_gives_the_same_json() -> None:
    original: dict[str, object] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hi",
                    "refusal": None,
                    "reasoning_content": "hm",
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url_citation": {
                                "url": "u",
                                "title": "t",
                                "start_index": 0,
                                "end_index": 1,
                            },
                        }
                    ],
                    "tool_calls": [
                        {
                            "id": "a",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"x": 1.0}'},
                            "extra_content": {"google": {"thought_signature": "s"}},
                            "mystery": 1,
                        }
                    ],
                    "unknown": {"a": 1},
                },
                "logprobs": {
                    "content": [{"token": "Hi", "logprob": -0.1, "top_logprobs": []}],
                    "refusal": None,
                },
                "finish_reason": "tool_calls",
                "native_finish_reason": "STOP",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 6,
            "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 3,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
            },
            "cost": 0.25,
        },
        "system_fingerprint": "fp",
        "service_tier": "default",
    }
    data = json.dumps(original).encode()
    assert json.loads(encode_body(read_body(data).events)) == original


def test_content_is_null_beside_calls_alone() -> None:
    found = message(Call(call_id="a", name="f", input="{}"), reason="tool_calls")
    assert found["content"] is None
    assert found["finish_reason"] == "tool_calls"


def test_texts_are_joined_in_order_around_a_call() -> None:
    found = message(Text(text="a"), Call(call_id="a", name="f", input="{}"), Text(text="b"))
    assert found["content"] == "ab"


def test_answer_without_anything_has_empty_content() -> None:
    assert message()["content"] == ""


def test_refusal_has_its_field_and_no_content() -> None:
    found = message(Refusal(text="No."))
    assert (found["content"], found["refusal"]) == (None, "No.")


def test_cut_call_is_written_as_it_came_and_ends_with_length() -> None:
    cut = Call(call_id="a", name="f", input='{"x', status="incomplete")
    found = message(cut, reason="tool_calls")
    assert found["finish_reason"] == "length"
    assert found["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x'}}
    ]


def test_provider_run_calls_and_results_are_not_shown_as_calls() -> None:
    found = message(
        Call(call_id="ws_1", name="web_search", kind="web_search", executor="provider"),
        Result(call_id="ws_1", executor="provider"),
        Text(text="x"),
        reason="tool_calls",
    )
    assert "tool_calls" not in found
    assert found["finish_reason"] == "stop"


def test_namespaced_call_is_flattened_and_other_kinds_become_functions() -> None:
    found = message(
        Call(call_id="a", name="js", namespace="mcp__repl", input="{}"),
        Call(call_id="b", name="js", namespace="mcp__repl__", input="{}"),
        Call(call_id="c", name="", kind="local_shell", input='{"command":[]}'),
        Call(call_id="", name="exec", kind="custom", input="ls"),
        reason="tool_calls",
    )
    calls = found["tool_calls"]
    assert [each[each["type"]]["name"] for each in calls] == [
        "mcp__repl__js",
        "mcp__repl__js",
        "local_shell",
        "exec",
    ]
    assert calls[3]["id"].startswith("call_")


def test_legacy_client_gets_one_function_call() -> None:
    calls = [Call(call_id=each, name=each, input="{}") for each in "ab"]
    found = message(*calls, reason="tool_calls", legacy_functions=True)
    assert found["function_call"] == {"name": "a", "arguments": "{}"}
    assert found["finish_reason"] == "function_call"
    assert "tool_calls" not in found


def test_reasoning_of_several_sections_is_one_text() -> None:
    parted = Reasoning(summary=("a", "b"), content=("c",), seals=(Seal("signature", "s"),))
    assert message(parted, Text(text="x"))["reasoning_content"] == "a\n\nb\n\nc"


def test_reasoning_keeps_the_name_and_the_list_it_came_under() -> None:
    extra = Extra("chat", {"reasoning": Raw(b'""'), "reasoning_details": Raw(b"[1]")})
    found = message(Reasoning(summary=("hm",), extra=extra))
    assert (found["reasoning"], found["reasoning_details"]) == ("hm", [1])
    more = Reasoning(extra=Extra("chat", {"reasoning_details": Raw(b"[2, 3]")}))
    found = message(Reasoning(extra=extra), Text(text="So."), more)
    assert found["reasoning_details"] == [1, 2, 3]
    assert "reasoning_content" not in found


def test_media_are_written_where_there_is_a_form() -> None:
    found = message(
        Media(kind="audio", data="QQ==", transcript="a", item_id="audio_1"),
        Media(kind="image", data="QQ=="),
        Media(kind="image", url="u"),
        Media(kind="file", file_id="f"),
    )
    assert found["audio"] == {"id": "audio_1", "data": "QQ==", "transcript": "a", "expires_at": 0}
    assert found["images"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
        {"type": "image_url", "image_url": {"url": "u"}},
    ]


def test_policy_drops_what_is_only_an_extension() -> None:
    context = EncodeContext(losses={"output_media": "drop", "stop_sequence": "refuse"})
    result = [
        *events(Media(kind="image", url="u"))[:-2],
        Finished("stop_sequence", 0, "###"),
        Completed(),
    ]
    written = json.loads(encode_body(result, context))
    assert "images" not in written["choices"][0]["message"]
    assert "stop_reason" not in written["choices"][0]


def test_stop_sequence_is_written_as_vllm_does() -> None:
    result = [*events(Text(text="a"))[:-2], Finished("stop_sequence", 0, "###"), Completed()]
    choice = json.loads(encode_body(result))["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "###")


def test_piece_that_came_in_a_list_goes_back_in_a_list() -> None:
    raw = Raw(b'{"type":"reference"}')
    result = events(
        Text(text="a"),
        Opaque(dialect="chat", type="reference", raw=raw),
        Opaque(dialect="messages", type="x", raw=raw),
    )
    written = json.loads(encode_body(result))["choices"][0]["message"]["content"]
    assert written == [{"type": "text", "text": "a"}, {"type": "reference"}]


def test_foreign_citation_with_a_url_is_translated_and_others_are_left_out() -> None:
    cited = Text(
        text="a",
        annotations=(
            Annotation("messages", Raw(b"{}"), url="u", title="t", start=1, end=2),
            Annotation("messages", Raw(b"{}"), url="v"),
            Annotation("messages", Raw(b"{}")),
        ),
    )
    assert message(cited)["annotations"] == [
        {
            "type": "url_citation",
            "url_citation": {"end_index": 2, "start_index": 1, "title": "t", "url": "u"},
        },
        {
            "type": "url_citation",
            "url_citation": {"end_index": 0, "start_index": 0, "title": "v", "url": "v"},
        },
    ]


def losses(sequence: list[Event]) -> set[str]:
    book = answer_book(LOSSES, {})
    encode_body(sequence, EncodeContext(), book)
    return {loss.code for loss in book.losses}


FOREIGN = Extra("responses", {"x": Raw(b"1")})


@pytest.mark.parametrize(
    ("part", "code"),
    [
        (Text(text="a", extra=FOREIGN), "unknown_field"),
        (Text(text="a", item_extra=FOREIGN), "unknown_field"),
        (Text(annotations=(Annotation("messages", Raw(b"{}")),)), "annotation"),
        (Text(annotations=(Annotation("messages", Raw(b"{}"), url="u", quote="q"),)), "annotation"),
        (Reasoning(summary=("a", "b")), "reasoning_sections"),
        (Reasoning(seals=(Seal("encrypted", "x"),)), "seal"),
        (Reasoning(extra=FOREIGN), "unknown_field"),
        (Reasoning(extra=Extra("chat", {"x": Raw(b"1")})), "unknown_field"),
        (Call(call_id="a", name="f", input="{}", extra=FOREIGN), "unknown_field"),
        (Call(call_id="a", name="f", input="{}", seals=(Seal("encrypted", "x"),)), "seal"),
        (Call(call_id="a", name="f", input="{}", executor="provider"), "provider_call"),
        (Result(call_id="a", executor="provider"), "provider_result"),
        (Media(kind="audio", data="AAAA", media_type="audio/wav"), "output_media"),
        (Media(kind="file", data="AAAA"), "output_media"),
        (Opaque(dialect="messages", type="x", raw=Raw(b"{}")), "opaque_part"),
    ],
)
def test_a_body_declares_what_it_leaves_out(part: Part, code: str) -> None:
    assert losses(events(part)) == {code}


def test_a_body_declares_what_stands_beside_its_choices() -> None:
    start, *rest = events(Text(text="a"))
    assert losses([Started("x", "m", 1, FOREIGN), *rest]) == {"unknown_field"}
    assert losses([start, Finished("stop"), Completed(FOREIGN)]) == {"unknown_field"}
    assert losses([start, Finished("stop", extra=FOREIGN), Completed()]) == {"unknown_field"}
    assert losses([start, Finished("pause"), Completed()]) == {"finish_detail"}
    assert losses([start, LimitsReported(Limits()), *rest]) == {"rate_limits"}
    assert losses(events(usage=Usage(input=1, extra=FOREIGN))) == {"unknown_field"}


def test_a_plain_body_loses_nothing() -> None:
    result = (Reasoning(summary=("a",)), Text(text="a"), Call(call_id="a", name="f", input="{}"))
    assert losses(events(*result, reason="tool_calls", usage=Usage(input=1, output=2))) == set()


def test_a_message_has_one_sound() -> None:
    first, second = Media(kind="audio", data="AAAA"), Media(kind="audio", data="BBBB")
    assert message(first, second)["audio"]["data"] == "AAAA"
    assert losses(events(first, second)) == {"output_media"}


def test_content_is_null_beside_a_sound_or_a_picture_alone() -> None:
    assert message(Media(kind="audio", data="AAAA"))["content"] is None
    assert message(Media(kind="image", data="AAAA"))["content"] is None


def test_identity_comes_from_the_context_where_the_answer_has_none() -> None:
    sequence: list[Event] = [Started(), Finished("stop"), Completed()]
    written = json.loads(encode_body(sequence, EncodeContext(model="mine", created=7)))
    assert written["id"].startswith("chatcmpl-")
    assert (written["model"], written["created"]) == ("mine", 7)
    assert "usage" not in written


@pytest.mark.parametrize("part", [Text(text="a"), Call(call_id="a", name="f", input="{}"), Refusal(text="No.")])  # fmt: skip
def test_a_body_has_every_field_that_the_vendor_always_sends(part: Part) -> None:
    reason: FinishReason = "tool_calls" if isinstance(part, Call) else "stop"
    written = write(part, reason=reason)
    (choice,) = written["choices"]
    assert choice.keys() == {"index", "message", "logprobs", "finish_reason"}
    assert choice["logprobs"] is None
    assert choice["message"].keys() >= {"role", "content", "refusal", "annotations"}
    assert choice["message"]["annotations"] == []
    assert ("tool_calls" in choice["message"]) is isinstance(part, Call)
    assert not {"usage", "service_tier", "system_fingerprint"} & written.keys()


@pytest.mark.parametrize("part", [Text(text="a"), Refusal(text="No.")])
@pytest.mark.parametrize(("asked", "shown"), [("auto", "default"), ("flex", "flex")])
def test_a_body_repeats_the_tier_that_the_client_asked_for(
    part: Part, asked: str, shown: str
) -> None:
    context = EncodeContext(service_tier=asked)
    assert write(part, context=context)["service_tier"] == shown


@pytest.mark.parametrize("part", [Text(text="a"), Refusal(text="No.")])
def test_an_id_of_another_dialect_is_replaced_by_one_of_this(part: Part) -> None:
    sequence = [Started("msg_1", "m"), *events(part)[1:]]
    assert json.loads(encode_body(sequence))["id"] == "msg_1"
    context = EncodeContext(mints_id=True, seed="x")
    assert json.loads(encode_body(sequence, context))["id"].startswith("chatcmpl-")


def test_failed_answer_is_an_error_body() -> None:
    sequence: list[Event] = [Started(), Failed(ErrorInfo(kind="overloaded", message="busy"))]
    assert json.loads(encode_body(sequence))["error"]["message"] == "busy"


@pytest.mark.parametrize(
    "sequence",
    [
        [Started(), PartStarted(0, Text(status="in_progress"))],
        [Started(), Finished("error"), Completed()],
        [Started(), Finished("cancelled"), Completed()],
    ],
)
def test_answer_that_did_not_end_is_an_error_body(sequence: list[Event]) -> None:
    assert json.loads(encode_body(sequence))["error"]["message"]


def test_several_choices_are_written_in_order() -> None:
    reading = read(
        [chunk({"content": "a"}, "stop", 0), chunk({"content": "b"}, "length", 1), "[DONE]"]
    )
    written = json.loads(encode_body(reading.events))
    assert [
        (each["index"], each["message"]["content"], each["finish_reason"])
        for each in written["choices"]
    ] == [
        (0, "a", "stop"),
        (1, "b", "length"),
    ]


def test_streamed_call_and_its_body_agree() -> None:
    entry = {"index": 0, "id": "a", "type": "function", "function": FUNCTION}
    reading = read([call(entry), finish("tool_calls"), "[DONE]"])
    again = fold(read_body(encode_body(reading.events)).events)
    assert again == reading.outcome
