"""Events to streams: the skeleton that clients enforce, and what becomes of what Chat cannot say."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from chat_help import DONE, call, chunk, finish, frames, payloads, read
from dragoman._json import Raw
from dragoman.core.serialize import Serializer
from dragoman.dialects.chat import ChatEncoder
from dragoman.dialects.codec import EncodeContext
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    MediaDelta,
    Noticed,
    OutputDelta,
    PartEnded,
    PartStarted,
    Progress,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason, Limits, LimitWindow, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    Dialect,
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

START = Started("chatcmpl-1", "m", 1700000000)
END: tuple[Event, ...] = (Finished("stop"), Completed())
TEXT = PartStarted(0, Text(status="in_progress"))
CALL = PartStarted(0, Call(call_id="a", name="f", status="in_progress"))


def ended(part: Part, number: int = 0, *, amended: bool = False) -> PartEnded:
    return PartEnded(number, part, amended)


class Written:
    """What an encoder made of events, checked against the SDK's types."""

    def __init__(self, events: Iterable[Event], context: EncodeContext | None = None) -> None:
        self.encoder = ChatEncoder(context or EncodeContext())
        self.stream = b"".join(map(self.encoder.encode, events))
        self.chunks = [each for each in payloads(self.stream) if "error" not in each]
        for each in self.chunks:
            if '"custom"' not in json.dumps(each):  # the SDK's type knows no custom deltas
                ChatCompletionChunk.model_validate_json(json.dumps(each), strict=True)

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for each in self.chunks for choice in each["choices"]]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        """All but the role and the empty ones."""
        found = [choice["delta"] for choice in self.choices]
        return [each for each in found if each and "role" not in each]

    @property
    def losses(self) -> list[str]:
        return [loss.code for loss in self.encoder.losses]

    @property
    def finish(self) -> object:
        return self.choices[-1]["finish_reason"]


def test_text_stream_byte_for_byte() -> None:
    usage = UsageReported(Usage(input=2, output=3))
    sequence: list[Event] = [
        START,
        TEXT,
        TextDelta(0, "Hi\u2028"),
        ended(Text(text="Hi\u2028")),
        Finished("stop"),
        usage,
    ]
    head = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":['
    assert Written([*sequence, Completed()]).stream == b"".join(
        [
            head
            + b'{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n',
            head + b'{"index":0,"delta":{"content":"Hi\\u2028"},"finish_reason":null}]}\n\n',
            head + b'{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
            head + b'],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}}\n\n',
            b"data: [DONE]\n\n",
        ]
    )


def test_call_has_its_identity_once_and_increments_after_it() -> None:
    written = Written(
        [
            START,
            CALL,
            InputDelta(0, '{"x"'),
            InputDelta(0, ":1}"),
            ended(Call(call_id="a", name="f", input='{"x":1}')),
            Finished("tool_calls"),
            Completed(),
        ]
    )
    first = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert written.deltas == [
        {"tool_calls": [first]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
    ]
    assert written.finish == "tool_calls"


def test_calls_are_numbered_densely_in_each_choice() -> None:  # M001, M002, M004
    sequence: list[Event] = [START, TEXT, ended(Text())]
    for number, name in enumerate(("f", "g"), 1):
        part = Call(call_id=name, name=name, status="in_progress")
        sequence += [
            PartStarted(number, part),
            ended(Call(call_id=name, name=name, input="{}"), number),
        ]
    written = Written([*sequence, Finished("tool_calls"), Completed()])
    assert [each["tool_calls"][0]["index"] for each in written.deltas] == [0, 1]


def test_every_chunk_has_its_envelope_and_finish_reason() -> None:  # M075
    written = Written([START, TEXT, TextDelta(0, "a"), ended(Text(text="a")), *END])
    assert all(list(each)[:4] == ["id", "object", "created", "model"] for each in written.chunks)
    assert all("finish_reason" in choice for choice in written.choices)
    assert written.choices[0]["delta"] == {"role": "assistant", "content": ""}


def test_role_comes_first_in_every_choice() -> None:
    sequence: list[Event] = [
        START,
        PartStarted(0, Text(status="in_progress"), 2),
        TextDelta(0, "a"),
    ]
    sequence += [ended(Text(text="a")), Finished("stop", 2), Finished("stop", 0), Completed()]
    written = Written(sequence)
    first = {choice["index"]: choice["delta"] for choice in reversed(written.choices)}
    assert first == {
        0: {"role": "assistant", "content": ""},
        2: {"role": "assistant", "content": ""},
    }


def test_choice_without_parts_finishes_after_its_role() -> None:
    written = Written([START, Finished("stop", 1), Finished("stop"), Completed()])
    assert [choice["index"] for choice in written.choices] == [0, 1, 1, 0]


def test_usage_is_sent_last_and_only_if_asked_for() -> None:
    output = [START, UsageReported(Usage(input=1)), UsageReported(Usage(output=2)), *END]
    assert Written(output).chunks[-1]["usage"] == {
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "total_tokens": 3,
    }
    silent = Written(output, EncodeContext(include_usage=False))
    assert all("usage" not in each for each in silent.chunks)


def test_failure_is_an_error_chunk_without_done() -> None:  # M154
    written = Written(
        [
            START,
            TEXT,
            TextDelta(0, "a"),
            ended(Text(text="a", status="incomplete")),
            Failed(ErrorInfo(kind="truncated", message="cut")),
        ]
    )
    assert payloads(written.stream)[-1] == {
        "error": {
            "message": "cut",
            "type": "server_error",
            "param": None,
            "code": "stream_truncated",
        }
    }
    assert b"[DONE]" not in written.stream
    assert written.encoder.close() == b""


def test_failure_before_the_start_is_the_error_alone() -> None:
    assert len(frames(Written([Failed(ErrorInfo(kind="server", message="no"))]).stream)) == 1


def test_stream_left_without_an_end_is_failed_by_close() -> None:
    encoder = ChatEncoder()
    encoder.encode(START)
    (error,) = payloads(encoder.close())
    assert "error" in error
    assert encoder.close() == b""


def test_arguments_changed_after_streaming_fail_the_stream() -> None:
    amended = ended(Call(call_id="a", name="f", input="{}"), amended=True)
    written = Written([START, CALL, InputDelta(0, "{"), amended])
    assert "error" in payloads(written.stream)[-1]
    # The upstream goes on, but nothing may follow the failure.
    assert written.encoder.encode(Completed()) == b""


def test_text_changed_after_streaming_is_a_declared_loss() -> None:
    written = Written([START, TEXT, TextDelta(0, "a"), ended(Text(text="b"), amended=True), *END])
    assert written.losses == ["amended_text"]


def test_cut_call_never_ends_as_if_it_could_be_run() -> None:  # M062, M155
    cut = ended(Call(call_id="a", name="f", input="{", status="incomplete"))
    for reason in ("tool_calls", "stop", "length"):
        sequence: list[Event] = [
            START,
            CALL,
            InputDelta(0, "{"),
            cut,
            Finished(reason),
            Completed(),
        ]
        assert Written(sequence).finish == "length"


@pytest.mark.parametrize(
    ("reason", "word", "losses"),
    [
        ("stop", "stop", []),
        ("length", "length", []),
        ("content_filter", "content_filter", []),
        ("context_window", "length", ["finish_detail"]),
        ("refusal", "content_filter", ["finish_detail"]),
        ("pause", "length", ["finish_detail"]),
        ("tool_calls", "stop", []),
    ],
)
def test_finish_reasons_are_chats_own_words(
    reason: FinishReason, word: str, losses: list[str]
) -> None:
    written = Written([START, Finished(reason), Completed()])
    assert (written.finish, written.losses) == (word, losses)


@pytest.mark.parametrize("reason", ["error", "cancelled"])
def test_finish_that_is_no_end_is_an_error(reason: FinishReason) -> None:
    written = Written([START, Finished(reason)])
    assert "error" in payloads(written.stream)[-1]


def test_stop_sequence_is_carried_or_dropped() -> None:
    sequence: list[Event] = [START, Finished("stop_sequence", 0, "###"), Completed()]
    assert Written(sequence).choices[-1]["stop_reason"] == "###"
    dropped = Written(sequence, EncodeContext(losses={"stop_sequence": "refuse"}))
    assert "stop_reason" not in dropped.choices[-1]
    assert dropped.losses == ["stop_sequence"]


# --- calls of other kinds ---------------------------------------------------------------------------------------------


def test_custom_call_has_its_own_form() -> None:
    header = Call(call_id="a", name="exec", kind="custom", status="in_progress")
    value = Call(call_id="a", name="exec", kind="custom", input="ls")
    written = Written(
        [
            START,
            PartStarted(0, header),
            InputDelta(0, "ls"),
            ended(value),
            Finished("tool_calls"),
            Completed(),
        ]
    )
    assert written.deltas == [
        {
            "tool_calls": [
                {"index": 0, "id": "a", "type": "custom", "custom": {"name": "exec", "input": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "custom": {"input": "ls"}}]},
    ]


def test_legacy_client_gets_function_call_and_the_first_call_only() -> None:
    sequence: list[Event] = [START]
    for number, name in enumerate(("f", "g")):
        header = Call(call_id=name, name=name, status="in_progress")
        value = Call(call_id=name, name=name, input="{}")
        sequence += [PartStarted(number, header), InputDelta(number, "{}"), ended(value, number)]
    written = Written(
        [*sequence, Finished("tool_calls"), Completed()], EncodeContext(legacy_functions=True)
    )
    assert written.deltas == [
        {"function_call": {"name": "f", "arguments": ""}},
        {"function_call": {"arguments": "{}"}},
    ]
    assert written.finish == "function_call"
    assert written.losses == ["parallel_functions"]


def test_namespace_is_flattened_and_declared() -> None:
    header = Call(call_id="a", name="js", namespace="mcp__repl", status="in_progress")
    written = Written([START, PartStarted(0, header)])
    (delta,) = written.deltas
    assert delta["tool_calls"][0]["function"]["name"] == "mcp__repl__js"
    assert written.losses == ["namespace"]


def test_provider_run_tool_is_no_call_of_the_client() -> None:  # M072
    search = Call(call_id="ws", name="web_search", kind="web_search", executor="provider")
    header = Call(
        call_id="ws",
        name="web_search",
        kind="web_search",
        executor="provider",
        status="in_progress",
    )
    result = Result(call_id="ws", executor="provider")
    written = Written(
        [
            START,
            PartStarted(0, header),
            InputDelta(0, "{}"),
            OutputDelta(0, "x"),
            SealAdded(0, Seal("thought", "{}")),
            ended(search, amended=True),
            PartStarted(1, result),
            ended(result, 1),
            Finished("tool_calls"),
            Completed(),
        ]
    )
    assert written.deltas == []
    assert written.finish == "stop"
    assert written.losses == ["provider_call", "provider_result", "seal", "provider_result"]


def test_other_client_kind_becomes_a_function() -> None:
    header = Call(call_id="a", name="", kind="local_shell", status="in_progress")
    written = Written([START, PartStarted(0, header)])
    (delta,) = written.deltas
    assert delta["tool_calls"][0]["function"]["name"] == "local_shell"
    assert written.losses == ["call_kind"]


def test_thought_signature_goes_back_as_extra_content() -> None:  # M094
    value = Call(call_id="a", name="f", input="{}", seals=(Seal("thought", '{"google":1}'),))
    written = Written(
        [
            START,
            CALL,
            SealAdded(0, Seal("thought", '{"google":1}')),
            SealAdded(0, Seal("thought", "not json")),
            SealAdded(0, Seal("encrypted", "x")),
            ended(value),
            Finished("tool_calls"),
            Completed(),
        ]
    )
    assert written.deltas[1] == {
        "tool_calls": [{"index": 0, "function": {"arguments": ""}, "extra_content": {"google": 1}}]
    }
    assert written.losses == ["seal"]


def test_thought_signature_of_a_custom_call_keeps_its_form() -> None:
    header = Call(call_id="a", name="x", kind="custom", status="in_progress")
    written = Written([START, PartStarted(0, header), SealAdded(0, Seal("thought", "{}"))])
    assert written.deltas[1] == {
        "tool_calls": [{"index": 0, "custom": {"input": ""}, "extra_content": {}}]
    }


def test_unknown_fields_of_a_call_come_back_when_they_are_known() -> None:
    header = Call(
        call_id="a", name="f", status="in_progress", extra=Extra("chat", {"x": Raw(b"1")})
    )
    late = Extra("chat", {"x": Raw(b"1"), "y": Raw(b"2")})
    written = Written(
        [START, PartStarted(0, header), ended(Call(call_id="a", name="f", extra=late))]
    )
    first, second = written.deltas
    assert first["tool_calls"][0]["x"] == 1
    assert second["tool_calls"][0] == {"index": 0, "function": {"arguments": ""}, "y": 2}


def test_call_without_an_id_gets_one() -> None:
    written = Written([START, PartStarted(0, Call(call_id="", name="f", status="in_progress"))])
    (delta,) = written.deltas
    assert delta["tool_calls"][0]["id"].startswith("call_")


# --- other parts ------------------------------------------------------------------------------------------------------


def test_refusal_and_logprobs_have_their_fields() -> None:
    written = Written(
        [
            START,
            PartStarted(0, Refusal(status="in_progress")),
            TextDelta(0, "No"),
            TextDelta(0, ".", Raw(b"[]")),
            ended(Refusal(text="No.")),
            PartStarted(1, Text(status="in_progress")),
            TextDelta(1, "a", Raw(b'[{"token":"a","logprob":-1.0,"top_logprobs":[]}]')),
            ended(Text(text="a"), 1),
            *END,
        ]
    )
    assert written.deltas == [{"refusal": "No"}, {"refusal": "."}, {"content": "a"}]
    assert written.choices[3]["logprobs"] == {
        "content": [{"token": "a", "logprob": -1.0, "top_logprobs": []}],
        "refusal": None,
    }


def test_reasoning_is_reasoning_content_with_its_sections_apart() -> None:
    written = Written(
        [
            START,
            PartStarted(0, Reasoning(status="in_progress")),
            ReasoningDelta(0, "a"),
            ReasoningDelta(0, "b"),
            ReasoningDelta(0, "c", "summary", 1),
            ended(Reasoning(summary=("ab", "c"), seals=(Seal("encrypted", "x"),))),
            *END,
        ]
    )
    assert written.deltas == [
        {"reasoning_content": "a"},
        {"reasoning_content": "b"},
        {"reasoning_content": "\n\nc"},
    ]
    assert written.losses == ["reasoning_sections", "seal"]


def test_reasoning_without_seals_is_no_loss() -> None:
    sequence = [START, PartStarted(0, Reasoning(status="in_progress")), ended(Reasoning()), *END]
    assert Written(sequence).losses == []


def test_reasoning_of_this_dialect_keeps_its_name_and_its_seals() -> None:
    details = {"type": "reasoning.text", "text": "hm", "signature": "s"}
    reading = read([chunk({"reasoning": "hm", "reasoning_details": [details]}), finish(), DONE])
    written = Written(reading.events)
    assert written.deltas == [{"reasoning": "hm"}, {"reasoning_details": [details]}]
    assert written.losses == []


def test_citations_are_written_or_declared() -> None:
    own = Annotation("chat", Raw(b'{"type":"url_citation"}'))
    foreign = Annotation("messages", Raw(b"{}"))
    output = [
        START,
        TEXT,
        AnnotationAdded(0, own),
        AnnotationAdded(0, foreign),
        ended(Text()),
        *END,
    ]
    written = Written(output)
    assert written.deltas == [{"annotations": [{"type": "url_citation"}]}]
    assert written.losses == ["annotation"]


def test_sound_streams_and_other_media_come_at_their_end() -> None:
    audio = Media(kind="audio", item_id="audio_1", status="in_progress")
    image = Media(kind="image", data="QQ==")
    written = Written(
        [
            START,
            PartStarted(0, audio),
            MediaDelta(0, "QQ==", "a"),
            MediaDelta(0, extra=Extra("chat", {"expires_at": Raw(b"9")})),
            MediaDelta(0, extra=Extra("responses", {"x": Raw(b"9")})),
            ended(Media(kind="audio")),
            PartStarted(1, Media(kind="image", status="in_progress")),
            MediaDelta(1, "preview"),
            ended(image, 1),
            PartStarted(2, Media(kind="file", file_id="f")),
            ended(Media(kind="file", file_id="f"), 2),
            *END,
        ]
    )
    assert written.deltas == [
        {"audio": {"id": "audio_1"}},
        {"audio": {"data": "QQ==", "transcript": "a"}},
        {"audio": {"expires_at": 9}},
        {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}]},
    ]
    assert written.losses == ["output_media", "output_media"]


def test_pictures_are_dropped_by_policy() -> None:
    sequence = [
        START,
        PartStarted(0, Media(kind="image", url="u")),
        ended(Media(kind="image", url="u")),
        *END,
    ]
    assert Written(sequence, EncodeContext(losses={"output_media": "drop"})).deltas == []


def test_opaque_part_goes_back_to_its_own_dialect_only() -> None:
    raw = Raw(b'{"type":"reference"}')
    sequence: list[Event] = [START]
    dialects: tuple[Dialect, ...] = ("chat", "messages")
    for number, dialect in enumerate(dialects):
        part = Opaque(dialect=dialect, type="reference", raw=raw)
        sequence += [PartStarted(number, part), ended(part, number)]
    encoder = ChatEncoder()
    stream = b"".join(map(encoder.encode, sequence))
    assert payloads(stream)[1]["choices"][0]["delta"] == {"content": [{"type": "reference"}]}
    assert [loss.code for loss in encoder.losses] == ["opaque_part"]


# --- around the answer ------------------------------------------------------------------------------------------------


def test_identity_is_the_contexts_where_the_answer_has_none() -> None:
    written = Written([Started(), *END], EncodeContext(model="mine", created=7, seed="s"))
    first = written.chunks[0]
    assert str(first["id"]).startswith("chatcmpl-")
    assert (first["model"], first["created"]) == ("mine", 7)


def test_every_chunk_repeats_the_tier_that_the_client_asked_for() -> None:
    sequence: list[Event] = [START, Finished("stop"), Completed()]
    for asked, shown in (("auto", "default"), ("priority", "priority")):
        chunks = Written(sequence, EncodeContext(service_tier=asked)).chunks
        assert {chunk["service_tier"] for chunk in chunks} == {shown}
    assert all("service_tier" not in chunk for chunk in Written(sequence).chunks)


def test_an_id_of_another_dialect_is_replaced_by_one_of_this() -> None:
    sequence: list[Event] = [Started("msg_1", "m"), Finished("stop"), Completed()]
    (found,) = {chunk["id"] for chunk in Written(sequence, EncodeContext(mints_id=True)).chunks}
    assert found.startswith("chatcmpl-")


def test_own_fields_of_the_envelope_are_said_again() -> None:
    extra = Extra(
        "chat", {"system_fingerprint": Raw(b'"fp"'), "prompt_filter_results": Raw(b'[\n{"a":1}]')}
    )
    written = Written([Started("x", "m", 1, extra), *END])
    assert all(each["system_fingerprint"] == "fp" for each in written.chunks)
    # Before the first choice, so that a reader finds them with the beginning.
    assert [each.get("prompt_filter_results") for each in written.chunks] == [
        [{"a": 1}],
        None,
        None,
    ]


def test_own_fields_of_a_finish_are_written_but_not_those_of_a_message() -> None:
    extra = Extra("chat", {"native_finish_reason": Raw(b'"STOP"'), "message": Raw(b'{"x":1}')})
    written = Written([START, Finished("stop", extra=extra), Completed()])
    assert written.choices[-1]["native_finish_reason"] == "STOP"
    assert "message" not in written.choices[-1]


def test_foreign_fields_of_anything_are_declared() -> None:
    extra = Extra("responses", {"x": Raw(b"1")})
    usage = UsageReported(Usage(input=1, extra=extra))
    answers: list[list[Event]] = [
        [Started("x", "m", 1, extra), *END],
        [START, Finished("stop", extra=extra), Completed()],
        [START, Finished("stop"), Completed(extra)],
        [START, Finished("stop"), usage, Completed()],
        [START, TEXT, ended(Text(extra=extra)), *END],
        [START, TEXT, ended(Text(item_extra=extra)), *END],
        [
            START,
            PartStarted(0, Reasoning(status="in_progress")),
            ended(Reasoning(extra=extra)),
            *END,
        ],
        [START, CALL, ended(Call(call_id="a", name="f", extra=extra)), *END],
        [START, PartStarted(0, Media(kind="audio")), ended(Media(kind="audio", extra=extra)), *END],
    ]
    for output in answers:
        assert Written(output).losses == ["unknown_field"], output


def test_own_fields_without_a_place_are_declared() -> None:
    extra = Extra("chat", {"x": Raw(b"1")})
    reasoning: list[Event] = [
        PartStarted(0, Reasoning(status="in_progress")),
        ended(Reasoning(extra=extra)),
    ]
    assert Written([START, *reasoning, *END]).losses == ["unknown_field"]
    assert Written([START, TEXT, ended(Text(extra=extra)), *END]).losses == ["unknown_field"]


def test_what_a_foreign_citation_quotes_is_declared() -> None:
    citation = Annotation("messages", Raw(b"{}"), url="https://a", quote="q")
    written = Written(
        [START, TEXT, AnnotationAdded(0, citation), ended(Text(annotations=(citation,))), *END]
    )
    assert written.losses == ["annotation"]
    assert len(written.deltas) == 1


def test_a_message_has_one_sound() -> None:
    first, second = (Media(kind="audio", data=data) for data in ("AAAA", "BBBB"))
    written = Written(
        [
            START,
            PartStarted(0, Media(kind="audio", status="in_progress", media_type="audio/wav")),
            MediaDelta(0, "AAAA"),
            ended(Media(kind="audio", data=first.data, media_type="audio/wav")),
            PartStarted(1, Media(kind="audio", status="in_progress")),
            MediaDelta(1, "BBBB"),
            ended(second, 1),
            *END,
        ]
    )
    assert "BBBB" not in written.stream.decode()
    assert written.losses == ["output_media", "output_media"]


def test_a_file_is_no_picture() -> None:
    file = Media(kind="file", data="AAAA")
    written = Written([START, PartStarted(0, file), ended(file), *END])
    assert written.deltas == []
    assert written.losses == ["output_media"]


def test_fields_noticed_after_a_finish_are_not_written() -> None:
    noticed = Noticed("fields", "chat", "choice", Raw(b'{"x":1}'))
    written = Written([START, Finished("stop"), noticed, Completed()])
    assert "x" not in written.choices[-1]
    assert written.finish == "stop"


@pytest.mark.parametrize("last", [Finished("error"), Finished("cancelled")])
def test_nothing_is_written_after_a_failure_of_our_own(last: Event) -> None:
    written = Written([START, last, Noticed("ping"), UsageReported(Usage(input=1)), Completed()])
    assert payloads(written.stream)[-1].keys() == {"error"}
    assert written.encoder.close() == b""


def test_nothing_is_written_after_an_amended_call() -> None:
    amended = ended(Call(call_id="a", name="f", input="{}"), amended=True)
    written = Written([START, CALL, InputDelta(0, "{"), amended, *END])
    assert payloads(written.stream)[-1].keys() == {"error"}


def test_keep_alives_of_any_dialect_are_comments() -> None:  # M145
    output = [
        Noticed("comment", raw=Raw(b'"OPENROUTER PROCESSING"')),
        Noticed("ping", "messages", raw=Raw(b'{"type":"ping"}')),
    ]
    stream = b"".join(map(ChatEncoder().encode, output))
    assert stream == b": OPENROUTER PROCESSING\n\n: ping\n\n"


def test_notices_of_this_dialect_are_written_back() -> None:
    sequence: list[Event] = [
        Noticed("fields", "chat", "chunk", Raw(b'{"x":1}')),
        START,
        Noticed("unknown", "chat", "odd", Raw(b'{"odd":\n1}')),
        Noticed("fields", "chat", "chunk", Raw(b'{"x":1}')),
        Noticed("fields", "chat", "delta", Raw(b'{"y":2}'), choice=1),
        Noticed("fields", "chat", "choice", Raw(b'{"z":3}')),
        Noticed("done", "chat", raw=Raw(b"1")),
        Noticed("unknown", "messages", "odd", Raw(b"{}")),
        Noticed("fields", "chat"),
    ]
    encoder = ChatEncoder()
    written = payloads(b"".join(map(encoder.encode, sequence)))
    assert written[1] == {"odd": 1}
    assert (written[2]["x"], written[2]["choices"]) == (1, [])
    assert written[4]["choices"][0]["delta"] == {"y": 2}
    assert written[5]["choices"][0]["z"] == 3
    assert len(written) == 6


def test_progress_says_nothing_and_limits_are_a_loss() -> None:
    limits = LimitsReported(Limits(windows=(LimitWindow(name="primary"),)))
    written = Written([START, Progress("searching"), limits, *END])
    assert written.losses == ["rate_limits"]
    assert written.deltas == []


# --- events that may not stand there ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sequence",
    [
        [TEXT],
        [Finished("stop")],
        [START, START],
        [START, Completed()],
        [Completed()],
        [START, *END, START],
        [START, TEXT, PartStarted(1, Text(status="in_progress"))],
        [START, TEXT, PartStarted(0, Text(status="in_progress"), 1)],
        [START, TEXT, Finished("stop")],
        [START, Finished("stop"), Finished("stop")],
        [START, Finished("stop"), TEXT],
        [START, TextDelta(0, "a")],
        [START, CALL, TextDelta(0, "a")],
        [START, TEXT, InputDelta(0, "a")],
        [START, InputDelta(0, "a")],
        [START, TEXT, ReasoningDelta(0, "a")],
        [START, ReasoningDelta(0, "a")],
        [START, ended(Text())],
        [START, SealAdded(0, Seal("thought", "{}"))],
        [START, MediaDelta(0)],
        [START, OutputDelta(0, "a")],
    ],
)
def test_ungrammatical_event_is_refused(sequence: list[Event]) -> None:
    encoder = ChatEncoder()
    for event in sequence[:-1]:
        encoder.encode(event)
    with pytest.raises(LocalProtocolError):
        encoder.encode(sequence[-1])


# --- there and back ---------------------------------------------------------------------------------------------------


def test_stream_written_and_read_again_is_the_same_answer() -> None:
    entry = {"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
    original: list[dict[str, object] | str] = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "Hi"}),
        call({"index": 0, **entry}),
        call({"index": 0, "function": {"arguments": '{"x":1}'}}),
        finish("tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
        DONE,
    ]
    reading = read(original)
    assert read(Written(reading.events).stream).outcome == reading.outcome
    assert read(Written(reading.events).stream).problems == []


def test_interleaved_calls_are_written_one_by_one() -> None:  # clients merge deltas that alternate
    def entry(index: int, arguments: str, **fields: object) -> dict[str, object]:
        return {"index": index, **fields, "function": {"arguments": arguments}}

    first = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}
    second = {"index": 1, "id": "b", "function": {"name": "g", "arguments": '{"y"'}}
    reading = read(
        [
            call(first),
            call(second),
            call(entry(0, ":1}")),
            call(entry(1, ":2}")),
            finish("tool_calls"),
            DONE,
        ]
    )
    serialize = Serializer().feed
    written = Written([ready for event in reading.events for ready in serialize(event)])
    indexes = [each["tool_calls"][0]["index"] for each in written.deltas]
    assert indexes == sorted(indexes)
    assert read(written.stream).inputs == reading.inputs
