"""Events as a stream: what every client of this dialect demands of it."""

import json
from typing import Any

import httpx2
import pytest
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaRawMessageStreamEvent
from pydantic import TypeAdapter

import doors
from dragoman._json import Raw
from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.messages import MessagesEncoder
from dragoman.errors import LocalProtocolError
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Event,
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
from dragoman.model.outcome import FinishReason, Limits, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    CallKind,
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
from messages_streams import (
    END_USAGE,
    STOP,
    USAGE,
    answer,
    block_delta,
    block_start,
    block_stop,
    data_of,
    encode,
    event,
    input_delta,
    outcome,
    read,
    text_delta,
    tool_use,
)

STARTED = Started("msg_1", "claude")
EVENT: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)


def of_part(number: int, part: Part, *deltas: Event) -> list[Event]:
    headers: dict[type[Part], Part] = {
        Text: Text(status="in_progress"),
        Refusal: Refusal(status="in_progress"),
        Reasoning: Reasoning(status="in_progress"),
    }
    header = headers.get(type(part), part)
    if isinstance(part, Call):
        header = Call(
            call_id=part.call_id,
            name=part.name,
            kind=part.kind,
            namespace=part.namespace,
            executor=part.executor,
            status="in_progress",
            extra=part.extra,
        )
    return [PartStarted(number, header), *deltas, PartEnded(number, part)]


def of_call(number: int, call: Call) -> list[Event]:
    return of_part(number, call, *([InputDelta(number, call.input)] if call.input else []))


def whole(*events: Event, reason: FinishReason = "stop") -> list[Event]:
    return [STARTED, *events, Finished(reason), Completed()]


def accumulated(stream: bytes) -> Any:
    """What the vendor's own client makes of a stream, as plain values."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for payload in data_of(stream):
        if payload["type"] == "ping":
            continue
        EVENT.validate_json(json.dumps(payload), strict=True)
        snapshot = accumulate_event(
            event=EVENT.validate_python(payload),
            current_snapshot=snapshot,
            json_bufs=buffers,
            request_headers=httpx2.Headers(),
        )
    return snapshot.to_dict()


def losses(events: list[Event]) -> dict[str, str]:
    encoder = MessagesEncoder()
    for each in events:
        encoder.encode(each)
    return {loss.code: loss.action for loss in encoder.losses}


# --- the skeleton ----------------------------------------------------------------------------------


def test_text_has_the_whole_skeleton() -> None:
    stream = encode(whole(*of_part(0, Text(text="Hello"), TextDelta(0, "Hel"), TextDelta(0, "lo"))))
    doors.check_own_messages(stream)
    assert data_of(stream) == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude",
                "content": [],
                **STOP,
                "usage": {**USAGE, "input_tokens": 0, "output_tokens": 0},
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": "", "citations": []},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Hel"},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "lo"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {**STOP, "stop_reason": "end_turn"},
            "usage": {**END_USAGE, "output_tokens": 0},
        },
        {"type": "message_stop"},
    ]


def test_regular_streams_come_back_as_they_were() -> None:
    stream = answer(
        block_start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        block_delta(0, {"type": "thinking_delta", "thinking": "hm"}),
        block_delta(0, {"type": "signature_delta", "signature": "c2ln"}),
        block_stop(0),
        event("ping"),
        block_start(1, {"type": "redacted_thinking", "data": "Em"}),
        block_stop(1),
        block_start(2, {"type": "text", "text": "", "citations": []}),
        text_delta(2, "a"),
        block_delta(2, {"type": "citations_delta", "citation": {"type": "char_location"}}),
        block_stop(2),
        block_start(
            3,
            {
                "type": "server_tool_use",
                "id": "srvtoolu_1",
                "name": "web_search",
                "input": {},
                "caller": {"type": "direct"},
            },
        ),
        input_delta(3, '{"query":"q"}'),
        block_stop(3),
        block_start(
            4,
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [],
                "caller": {"type": "direct"},
            },
        ),
        block_stop(4),
        block_start(5, {"type": "compaction", "content": None}),
        block_delta(5, {"type": "compaction_delta", "content": "S"}),
        block_stop(5),
        tool_use(6, caller={"type": "direct"}),
        input_delta(6, '{"x": 1.0}'),
        block_stop(6),
        event("later", x=1),
        reason="tool_use",
    )
    events, _ = read(stream)
    assert data_of(encode(events)) == data_of(stream)


def test_blocks_are_dense_whatever_the_parts_numbers() -> None:
    # M012
    stream = encode(
        whole(
            *of_part(0, Text()),
            *of_call(1, Call(call_id="call_a", name="f", input="{}")),
            *of_part(2, Reasoning()),
            *of_part(3, Reasoning(summary=("hm",)), ReasoningDelta(3, "hm")),
            reason="tool_calls",
        )
    )
    doors.check_own_messages(stream)
    starts = [each for each in data_of(stream) if each["type"] == "content_block_start"]
    assert [(each["index"], each["content_block"]["type"]) for each in starts] == [
        (0, "tool_use"),
        (1, "thinking"),
    ]


def test_overlapping_calls_arrive_one_by_one() -> None:
    # M010
    first, second = (
        Call(call_id="a", name="f", input='{"x":1}'),
        Call(call_id="b", name="g", input="{}"),
    )
    one, two = of_call(0, first), of_call(1, second)
    stream = encode(whole(one[0], two[0], two[1], one[1], two[2], one[2], reason="tool_calls"))
    doors.check_own_messages(stream)
    message = accumulated(stream)
    assert [block["input"] for block in message["content"]] == [{"x": 1}, {}]


def test_overlapping_parts_are_refused_without_a_serializer() -> None:
    encoder = MessagesEncoder()
    encoder.encode(STARTED)
    encoder.encode(PartStarted(0, Text(status="in_progress")))
    with pytest.raises(LocalProtocolError):
        encoder.encode(PartStarted(1, Text(status="in_progress")))
    with pytest.raises(LocalProtocolError):
        encoder.encode(TextDelta(5, "a"))


def test_order_is_demanded() -> None:
    with pytest.raises(LocalProtocolError):
        MessagesEncoder().encode(PartStarted(0, Text(status="in_progress")))
    encoder = MessagesEncoder()
    encoder.encode(STARTED)
    with pytest.raises(LocalProtocolError):
        encoder.encode(STARTED)
    with pytest.raises(LocalProtocolError):
        encoder.encode(Completed())
    encoder.encode(Finished("stop"))
    encoder.encode(Completed())
    with pytest.raises(LocalProtocolError):
        encoder.encode(Noticed("ping"))
    assert encoder.close() == b""


def test_model_and_id_are_the_clients() -> None:
    stream = encode(
        [Started(), Finished("stop"), Completed()], EncodeContext(model="mine", seed="s")
    )
    message = data_of(stream)[0]["message"]
    assert message["model"] == "mine"
    assert message["id"].startswith("msg_")


def test_line_separators_are_escaped() -> None:
    stream = encode(whole(*of_part(0, Text(text="\u2028\u0085"), TextDelta(0, "\u2028\u0085"))))
    doors.check_own_messages(stream)


def test_raw_values_never_break_a_line() -> None:
    raw = Raw(b'{"type": "fallback",\r\n "a": 1}')
    stream = encode(whole(*of_part(0, Opaque(dialect="messages", type="fallback", raw=raw))))
    starts = [each for each in data_of(stream) if each["type"] == "content_block_start"]
    assert starts[0]["content_block"] == {"type": "fallback", "a": 1}


# --- calls -----------------------------------------------------------------------------------------


def test_call_opens_empty_and_its_input_follows() -> None:
    call = Call(call_id="call_a", name="f", input='{"x": 1.0}')
    stream = encode(whole(*of_call(0, call), reason="tool_calls"))
    doors.check_own_messages(stream)
    frames = data_of(stream)
    assert frames[1]["content_block"] == {
        "type": "tool_use",
        "id": "call_a",
        "name": "f",
        "caller": {"type": "direct"},
        "input": {},
    }
    assert frames[2]["delta"] == {"type": "input_json_delta", "partial_json": '{"x": 1.0}'}
    assert frames[-2]["delta"]["stop_reason"] == "tool_use"


def test_empty_input_is_sent_as_an_object() -> None:
    for text in ("{}", ""):
        stream = encode(whole(*of_call(0, Call(call_id="a", name="f", input=text))))
        assert data_of(stream)[2]["delta"]["partial_json"] == "{}"
        assert data_of(stream)[-2]["delta"]["stop_reason"] == "tool_use"


def test_foreign_ids_are_mapped_reversibly() -> None:
    # M019
    stream = encode(whole(*of_call(0, Call(call_id="functions.f:0", name="f", input="{}"))))
    doors.check_own_messages(stream)
    assert data_of(stream)[1]["content_block"]["id"].startswith("dgm_")


def test_custom_input_is_wrapped_while_it_streams() -> None:
    text = 'say "hi"\n\\ \u2028'
    pieces = [InputDelta(0, piece) for piece in ('say "', 'hi"\n', "\\ \u2028")]
    call = Call(call_id="a", name="patch", kind="custom", input=text)
    events = whole(*of_part(0, call, *pieces), reason="tool_calls")
    stream = encode(events)
    doors.check_own_messages(stream)
    assert accumulated(stream)["content"][0]["input"] == {"input": text}
    assert losses(events) == {"custom_call": "carry"}


def test_empty_custom_input_is_wrapped_too() -> None:
    stream = encode(whole(*of_part(0, Call(call_id="a", name="p", kind="custom"))))
    assert accumulated(stream)["content"][0]["input"] == {"input": ""}


def test_namespace_is_joined_to_the_name() -> None:
    events = whole(*of_call(0, Call(call_id="a", name="q", namespace="db", input="{}")))
    assert data_of(encode(events))[1]["content_block"]["name"] == "db__q"
    assert losses(events) == {"namespace": "carry"}


def test_other_kinds_of_client_calls_are_tool_use() -> None:
    events = whole(*of_call(0, Call(call_id="a", name="", kind="local_shell", input='{"a":1}')))
    assert data_of(encode(events))[1]["content_block"]["name"] == "local_shell"
    assert losses(events) == {"call_kind": "carry"}


def test_complete_call_with_input_that_is_no_object_is_carried_as_streamed() -> None:
    events = whole(*of_call(0, Call(call_id="a", name="f", input="[1]")))
    stream = encode(events)
    assert data_of(stream)[2]["delta"]["partial_json"] == "[1]"
    assert data_of(stream)[-2]["delta"]["stop_reason"] == "tool_use"
    assert losses(events) == {"invalid_input": "carry"}


def test_complete_call_with_input_that_is_no_json_is_not_offered() -> None:
    # M061: SDKs read such text leniently and would run half a call
    events = whole(*of_call(0, Call(call_id="a", name="f", input="{nope")))
    stream = encode(events)
    doors.check_own_messages(stream)
    assert data_of(stream)[-1]["type"] == "error"
    assert losses(events) == {"invalid_input": "carry"}


def test_seal_on_a_call_is_a_loss() -> None:
    call = Call(call_id="a", name="f", input="{}", seals=(Seal("thought", "x"),))
    events = whole(*of_part(0, call, InputDelta(0, "{}"), SealAdded(0, Seal("thought", "x"))))
    assert losses(events) == {"call_seal": "drop"}


def test_provider_calls_with_a_peer_are_server_tools() -> None:
    peers: list[tuple[CallKind, str]] = [
        ("web_search", "web_search"),
        ("code_interpreter", "code_execution"),
    ]
    for kind, name in peers:
        call = Call(call_id="ws_1", name="x", kind=kind, executor="provider", input='{"q":1}')
        stream = encode(whole(*of_call(0, call)))
        doors.check_own_messages(stream)
        assert data_of(stream)[1]["content_block"]["name"] == name
        assert data_of(stream)[-2]["delta"]["stop_reason"] == "end_turn"


def test_cut_provider_call_does_not_hold_the_stream() -> None:
    call = Call(
        call_id="ws_1",
        name="",
        kind="web_search",
        executor="provider",
        status="incomplete",
        input='{"q',
    )
    stream = encode(whole(*of_call(0, call)))
    assert data_of(stream)[-1]["type"] == "message_stop"


def test_other_choices_are_dropped_delta_by_delta() -> None:
    events: list[Event] = [
        STARTED,
        PartStarted(0, Reasoning(status="in_progress"), 1),
        ReasoningDelta(0, "hm"),
        PartEnded(0, Reasoning(summary=("hm",))),
        PartStarted(1, Text(status="in_progress"), 1),
        AnnotationAdded(1, Annotation("messages", Raw(b"{}"))),
        PartEnded(1, Text(text="a")),
        Finished("stop", 1),
        Finished("stop"),
        Completed(),
    ]
    assert [frame["type"] for frame in data_of(encode(events))] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


def test_incomplete_provider_call_is_no_cut_call() -> None:
    call = Call(
        call_id="ws_1", name="", kind="web_search", executor="provider", status="failed", input="{}"
    )
    stream = encode(whole(*of_call(0, call)))
    doors.check_own_messages(stream)
    assert data_of(stream)[-1]["type"] == "message_stop"


def test_mcp_calls_and_text_results_are_emitted() -> None:
    call = Call(call_id="m1", name="q", namespace="db", kind="mcp", executor="provider", input="{}")
    one = Result(call_id="m1", content=(Text(text="42"),), kind="mcp", executor="provider")
    two = Result(
        call_id="m1", content=(Text(text="4"), Text(text="2")), kind="mcp", executor="provider"
    )
    stream = encode(whole(*of_call(0, call), *of_part(1, one), *of_part(2, two)))
    blocks = accumulated(stream)["content"]
    assert blocks[0]["server_name"] == "db"
    assert blocks[1]["content"] == [{"type": "text", "text": "42", "citations": []}]
    assert [each["text"] for each in blocks[2]["content"]] == ["4", "2"]


@pytest.mark.parametrize(
    ("part", "code"),
    [
        (Call(call_id="a", name="x", kind="file_search", executor="provider"), "provider_call"),
        (Call(call_id="a", name="x", kind="function", executor="gateway"), "provider_call"),
        (Result(call_id="a", content=(Text(text="x"),), kind="web_search"), "provider_result"),
        (Media(kind="image", data="x"), "media_output"),
        (Opaque(dialect="responses", type="x", raw=Raw(b"{}")), "foreign_part"),
    ],
)
def test_parts_without_a_block_are_declared_lost(part: Part, code: str) -> None:
    events = whole(*of_part(0, part), *of_part(1, Text(text="a"), TextDelta(1, "a")))
    stream = encode(events)
    doors.check_own_messages(stream)
    assert len(accumulated(stream)["content"]) == 1
    assert losses(events) == {code: "drop"}


def test_what_is_said_of_a_dropped_part_is_dropped() -> None:
    call = Call(call_id="a", name="x", kind="file_search", executor="provider", input="{}")
    events = whole(
        PartStarted(0, call),
        InputDelta(0, "{}"),
        OutputDelta(0, "out"),
        SealAdded(0, Seal("thought", "x")),
        Noticed("unknown", "messages", "content_block_delta", Raw(b"{}"), 0),
        PartEnded(0, call),
        PartStarted(1, Media(kind="image", status="in_progress")),
        MediaDelta(1, "x"),
        PartEnded(1, Media(kind="image", data="x")),
    )
    assert len(data_of(encode(events))) == 3
    assert losses(events) == {
        "provider_call": "drop",
        "media_output": "drop",
    }


# --- reasoning ---------------------------------------------------------------------------------------


def test_seal_of_another_provider_rides_in_the_signature() -> None:
    seal = Seal("encrypted", "gAAA")
    value = Reasoning(summary=("a", "b"), seals=(seal,))
    events = whole(
        *of_part(
            0,
            value,
            ReasoningDelta(0, "a"),
            ReasoningDelta(0, "b", "summary", 1),
            SealAdded(0, seal),
        )
    )
    stream = encode(events)
    doors.check_own_messages(stream)
    block = accumulated(stream)["content"][0]
    assert block["thinking"] == "a\n\nb"
    assert block["signature"].startswith("dgm1.")
    assert losses(events) == {"reasoning_entries": "carry"}
    (part,) = outcome(stream).choices[0].parts
    assert isinstance(part, Reasoning)
    assert part.seals == (seal,)


def test_sealed_reasoning_without_text_is_redacted() -> None:
    seal = Seal("encrypted", "gAAA")
    stream = encode(whole(*of_part(0, Reasoning(seals=(seal,)), SealAdded(0, seal))))
    doors.check_own_messages(stream)
    assert accumulated(stream)["content"][0]["type"] == "redacted_thinking"
    (part,) = outcome(stream).choices[0].parts
    assert part == Reasoning(seals=(seal,))


def test_own_seals_keep_their_form() -> None:
    # M091
    for seal, kind in (
        (Seal("signature", "s"), "thinking"),
        (Seal("redacted", "r"), "redacted_thinking"),
    ):
        stream = encode(whole(*of_part(0, Reasoning(seals=(seal,)), SealAdded(0, seal))))
        assert accumulated(stream)["content"][0]["type"] == kind
        (part,) = outcome(stream).choices[0].parts
        assert part == Reasoning(seals=(seal,))


def test_each_reasoning_segment_has_its_own_block() -> None:
    # M085
    call = Call(call_id="a", name="f", input="{}")
    stream = encode(
        whole(
            *of_part(0, Reasoning(summary=("ab",)), ReasoningDelta(0, "a"), ReasoningDelta(0, "b")),
            *of_call(1, call),
            *of_part(2, Reasoning(content=("b",)), ReasoningDelta(2, "b", "content")),
            reason="tool_calls",
        )
    )
    doors.check_own_messages(stream)
    blocks = accumulated(stream)["content"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use", "thinking"]
    assert blocks[0]["thinking"] == "ab"


def test_estimated_tokens_come_back_in_a_delta_of_their_own() -> None:
    fields = Raw(b'{"estimated_tokens":7}')
    noticed = Noticed("fields", "messages", "thinking_delta", fields, 0)
    stream = encode(whole(*of_part(0, Reasoning(), noticed)))
    delta = {"type": "thinking_delta", "thinking": "", "estimated_tokens": 7}
    assert [each.get("delta") for each in data_of(stream)][2] == delta


def test_seal_on_a_block_that_was_opened_without_text_is_its_signature() -> None:
    noticed = Noticed("fields", "messages", "thinking_delta", Raw(b"{}"), 0)
    seal = Seal("redacted", "r")
    stream = encode(whole(*of_part(0, Reasoning(seals=(seal,)), noticed, SealAdded(0, seal))))
    (part,) = outcome(stream).choices[0].parts
    assert part == Reasoning(seals=(seal,))


# --- text --------------------------------------------------------------------------------------------


def test_refusal_is_text_and_the_reason_says_so() -> None:
    stream = encode(whole(*of_part(0, Refusal(text="no"), TextDelta(0, "no"))))
    doors.check_own_messages(stream)
    message = accumulated(stream)
    assert message["content"][0]["text"] == "no"
    assert message["stop_reason"] == "refusal"


def test_refusal_beside_another_ending_is_a_loss() -> None:
    events = whole(*of_part(0, Refusal(text="no"), TextDelta(0, "no")), reason="length")
    assert data_of(encode(events))[-2]["delta"]["stop_reason"] == "max_tokens"
    assert losses(events) == {"refusal": "carry"}
    events = whole(*of_part(0, Refusal(text="no"), TextDelta(0, "no")), reason="refusal")
    assert losses(events) == {}


def test_web_citations_of_others_become_web_citations() -> None:
    mine = Annotation("messages", Raw(b'{"type":"page_location"}'))
    other = Annotation("responses", Raw(b"{}"), url="https://e.org", title="E", quote="q")
    lost = Annotation("responses", Raw(b"{}"))
    deltas: list[Event] = [
        TextDelta(0, "a"),
        *(AnnotationAdded(0, each) for each in (mine, other, lost)),
    ]
    events = whole(*of_part(0, Text(text="a"), *deltas))
    citations = [
        each["delta"]["citation"]
        for each in data_of(encode(events))
        if each.get("delta", {}).get("type") == "citations_delta"
    ]
    assert citations == [
        {"type": "page_location"},
        {
            "type": "web_search_result_location",
            "url": "https://e.org",
            "title": "E",
            "cited_text": "q",
            "encrypted_index": "",
        },
    ]
    assert losses(events) == {"citation": "drop"}


def test_logprobs_are_a_loss() -> None:
    deltas = [TextDelta(0, "a", Raw(b"[]")), TextDelta(0, "", Raw(b"[]")), TextDelta(0, "b")]
    events = whole(*of_part(0, Text(text="ab"), *deltas))
    assert accumulated(encode(events))["content"][0]["text"] == "ab"
    assert losses(events) == {"logprobs": "drop"}


def test_fields_of_other_dialects_are_declared() -> None:
    foreign = Extra("chat", {"sources": Raw(b'["x"]')})
    text = Text(text="a", extra=foreign, item_extra=foreign)
    events: list[Event] = [
        Started("m", "c", None, foreign),
        UsageReported(Usage(input_audio=1, extra=foreign)),
        PartStarted(0, Text(status="in_progress")),
        TextDelta(0, "a"),
        PartEnded(0, text),
        Finished("stop", extra=foreign),
        Completed(foreign),
    ]
    stream = encode(events)
    assert b"sources" not in stream
    assert losses(events) == {"unknown_field": "drop", "usage_details": "drop"}


def test_more_than_one_choice_is_a_loss() -> None:
    events: list[Event] = [
        STARTED,
        PartStarted(0, Text(status="in_progress"), 1),
        TextDelta(0, "other"),
        PartEnded(0, Text(text="other")),
        PartStarted(1, Text(status="in_progress")),
        TextDelta(1, "mine"),
        PartEnded(1, Text(text="mine")),
        Finished("length", 1),
        Finished("stop"),
        Completed(),
    ]
    message = accumulated(encode(events))
    assert [block["text"] for block in message["content"]] == ["mine"]
    assert message["stop_reason"] == "end_turn"
    assert losses(events) == {"choices": "drop"}


# --- usage, endings, keep-alives -----------------------------------------------------------------------


def test_usage_takes_cached_tokens_out_of_the_input() -> None:
    usage = Usage(input=100, output=7, cached=80, cache_write=5, reasoning=3, total=107)
    events: list[Event] = [STARTED, Finished("stop"), UsageReported(usage), Completed()]
    stream = encode(events)
    doors.check_own_messages(stream)
    assert data_of(stream)[0]["message"]["usage"] == {
        **USAGE,
        "input_tokens": 15,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 80,
        "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 3},
    }


def test_usage_after_the_start_stands_in_the_end() -> None:
    events: list[Event] = [
        STARTED,
        *of_part(0, Text(text="a"), TextDelta(0, "a")),
        UsageReported(Usage(input=100, cached=80)),
        Finished("stop"),
        UsageReported(Usage(output=7)),
        Completed(),
    ]
    usage = {"input_tokens": 20, "cache_read_input_tokens": 80, "output_tokens": 7}
    assert data_of(encode(events))[-2]["usage"] == {**END_USAGE, **usage}


def test_limits_and_progress_of_a_tool_are_losses() -> None:
    events = whole(
        LimitsReported(Limits()),
        *of_part(0, Text(text="a"), TextDelta(0, "a"), Progress("searching", 0)),
    )
    assert losses(events) == {"limits": "drop", "progress": "drop"}


def test_progress_of_the_answer_as_a_whole_is_no_loss() -> None:
    assert losses(whole(Progress("in_progress"))) == {}


def test_a_refusal_in_an_answer_that_ended_otherwise_is_a_loss() -> None:
    refusal = of_part(0, Refusal(text="no"), TextDelta(0, "no"))
    assert losses(whole(*refusal)) == {}
    assert losses(whole(*refusal, reason="length")) == {"refusal": "carry"}


def test_the_place_of_another_vendors_citation_is_a_loss() -> None:
    citation = Annotation("responses", Raw(b"{}"), url="https://a", title="A", start=1, end=2)
    value = Text(text="a", annotations=(citation,))
    cited = of_part(0, value, TextDelta(0, "a"), AnnotationAdded(0, citation))
    assert losses(whole(*cited)) == {"citation": "drop"}


def test_that_a_providers_call_failed_is_a_loss() -> None:
    call = Call(
        call_id="a",
        name="web_search",
        kind="web_search",
        executor="provider",
        input="{}",
        status="failed",
    )
    assert losses(whole(*of_part(0, call, InputDelta(0, "{}")))) == {"call_status": "drop"}


def test_what_a_shown_tool_prints_is_a_loss() -> None:
    call = Call(call_id="a", name="web_search", kind="web_search", executor="provider", input="{}")
    assert losses(whole(*of_part(0, call, InputDelta(0, "{}"), OutputDelta(0, "x")))) == {
        "provider_output": "drop"
    }


def test_message_start_has_an_input_count_even_where_the_first_report_has_none() -> None:
    start = data_of(encode((Started("msg_1", "m"), UsageReported(Usage(output=3)))))[0]
    assert start["message"]["usage"] == {**USAGE, "input_tokens": 0, "output_tokens": 3}


@pytest.mark.parametrize(
    ("reason", "native", "is_loss"),
    [
        ("stop", "end_turn", False),
        ("length", "max_tokens", False),
        ("context_window", "model_context_window_exceeded", False),
        ("stop_sequence", "stop_sequence", False),
        ("tool_calls", "end_turn", False),
        ("pause", "pause_turn", False),
        ("refusal", "refusal", False),
        ("content_filter", "refusal", True),
        ("cancelled", "end_turn", True),
    ],
)
def test_reasons_have_their_words(reason: FinishReason, native: str, is_loss: bool) -> None:
    events: list[Event] = [STARTED, Finished(reason, stop_sequence="#"), Completed()]
    stream = encode(events)
    doors.check_own_messages(stream)
    delta = data_of(stream)[-2]["delta"]
    assert delta["stop_reason"] == native
    assert delta["stop_sequence"] == ("#" if reason == "stop_sequence" else None)
    assert ("finish_reason" in losses(events)) == is_loss


def test_text_then_call_ends_in_tool_use() -> None:
    # M070
    call = Call(call_id="a", name="f", input="{}")
    events = whole(*of_part(0, Text(text="Looking."), TextDelta(0, "Looking.")), *of_call(1, call))
    assert data_of(encode(events))[-2]["delta"]["stop_reason"] == "tool_use"


def test_keep_alives_of_any_dialect_are_pings() -> None:
    encoder = MessagesEncoder()
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    assert encoder.encode(Noticed("ping")) == ping
    assert encoder.encode(STARTED) == b""
    assert encoder.encode(Noticed("comment", "chat", raw=Raw(b'"x"'))).endswith(ping)
    own = encoder.encode(Noticed("ping", "messages", raw=Raw(b'{"at":1}')))
    assert own == b'event: ping\ndata: {"type":"ping","at":1}\n\n'
    assert encoder.encode(Noticed("done", "chat")) == b""


def test_unknown_frames_are_only_passed_on_in_their_own_dialect() -> None:
    raw = Raw(b'{"type":"x"}')
    events = whole(
        Noticed("unknown", "responses", "x", raw),
        Noticed("unknown", "messages", "x\ndata: evil", raw),
        Noticed("unknown", "messages", "", raw),
        Noticed("fields", "messages", "content_block_delta", raw),
        Noticed("fields", "messages", "message_stop", Raw(b'{"metrics":1}')),
        *of_part(
            0,
            Text(text="a"),
            TextDelta(0, "a"),
            Noticed("fields", "messages", "citations_delta", raw, 0),
            Noticed("fields", "messages", "text_delta", None, 0),
        ),
    )
    frames = data_of(encode(events))
    assert len(frames) == 6
    assert frames[-1] == {"type": "message_stop", "metrics": 1}
