"""What the vendor's own streams mean. None of them has a problem."""

import pytest

from dragoman._json import Raw, raw
from dragoman.dialects.codec import DecodeContext
from dragoman.dialects.messages import MessagesReader
from dragoman.model.events import (
    AnnotationAdded,
    Completed,
    Failed,
    Finished,
    InputDelta,
    Noticed,
    PartEnded,
    PartStarted,
    ReasoningDelta,
    SealAdded,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, FinishReason, Usage
from dragoman.model.parts import (
    Annotation,
    Call,
    Extra,
    Opaque,
    Reasoning,
    Result,
    Seal,
    Text,
)
from messages_streams import (
    MESSAGE,
    START,
    answer,
    block_delta,
    block_start,
    block_stop,
    calls,
    end,
    event,
    input_delta,
    kinds,
    outcome,
    parts,
    read,
    text_delta,
    tool_use,
    write,
)

TEXT = block_start(0, {"type": "text", "text": ""})


def test_text_is_emitted_as_it_comes() -> None:
    events, problems = read(answer(TEXT, text_delta(0, "Hel"), text_delta(0, "lo"), block_stop(0)))
    assert problems == []
    assert events == [
        Started("msg_1", "claude"),
        UsageReported(Usage(input=10, output=1, cached=0, cache_write=0)),
        PartStarted(0, Text(status="in_progress")),
        TextDelta(0, "Hel"),
        TextDelta(0, "lo"),
        PartEnded(0, Text(text="Hello")),
        UsageReported(Usage(output=5)),
        Finished("stop", native="end_turn"),
        Completed(),
    ]


def test_empty_deltas_say_nothing() -> None:
    events, problems = read(
        answer(
            TEXT,
            text_delta(0, ""),
            block_stop(0),
            block_start(1, {"type": "thinking", "thinking": "", "signature": ""}),
            block_delta(1, {"type": "thinking_delta", "thinking": ""}),
            block_stop(1),
        )
    )
    assert problems == []
    assert not [each for each in events if isinstance(each, TextDelta | ReasoningDelta)]


def test_input_is_joined_and_never_parsed_in_pieces() -> None:
    # M057
    data = answer(
        tool_use(0, name="Write"),
        input_delta(0, ""),
        input_delta(0, '{"file_'),
        input_delta(0, 'path":"a.py", "n": 1.0}'),
        block_stop(0),
        reason="tool_use",
    )
    events, problems = read(data)
    assert problems == []
    assert [each for each in events if isinstance(each, InputDelta)] == [
        InputDelta(0, '{"file_'),
        InputDelta(0, 'path":"a.py", "n": 1.0}'),
    ]
    assert calls(data) == [("toolu_a", "Write", '{"file_path":"a.py", "n": 1.0}', "completed")]
    assert outcome(data).choices[0].finish == "tool_calls"


def test_parallel_calls_are_two_parts() -> None:
    # M002
    data = answer(
        tool_use(0, "toolu_a", "f"),
        input_delta(0, "{}"),
        block_stop(0),
        tool_use(1, "toolu_b", "g"),
        input_delta(1, '{"y":2}'),
        block_stop(1),
        reason="tool_use",
    )
    assert kinds(data) == []
    assert calls(data) == [
        ("toolu_a", "f", "{}", "completed"),
        ("toolu_b", "g", '{"y":2}', "completed"),
    ]


def test_call_without_arguments_is_an_empty_object() -> None:
    # M046
    data = answer(tool_use(0), input_delta(0, ""), block_stop(0), reason="tool_use")
    events, problems = read(data)
    assert problems == []
    assert InputDelta(0, "{}") in events
    assert calls(data) == [("toolu_a", "f", "{}", "completed")]


def test_call_without_arguments_waits_no_longer_than_the_next_block() -> None:
    data = START + tool_use(0) + block_stop(0) + TEXT.replace(b'"index": 0', b'"index": 1')
    events, _ = read(data)
    started = events.index(PartStarted(1, Text(status="in_progress")))
    assert PartEnded(0, Call(call_id="toolu_a", name="f", input="{}")) in events[:started]


def test_call_cut_before_its_first_argument_is_not_an_empty_object() -> None:
    # M063: the vendor stops the block it cut
    data = answer(tool_use(0), block_stop(0), reason="max_tokens")
    assert calls(data) == [("toolu_a", "f", "", "incomplete")]
    assert outcome(data).choices[0].finish == "length"


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_call_that_a_limit_cut_is_incomplete(reason: str) -> None:
    # M062, M068
    data = answer(
        tool_use(0), input_delta(0, '{"path":"a","content":"half'), block_stop(0), reason=reason
    )
    assert calls(data) == [("toolu_a", "f", '{"path":"a","content":"half', "incomplete")]


def test_call_that_was_whole_before_the_limit_is_complete() -> None:
    data = answer(tool_use(0), input_delta(0, '{"x":1}'), block_stop(0), reason="max_tokens")
    assert calls(data) == [("toolu_a", "f", '{"x":1}', "completed")]
    assert kinds(data) == []
    assert outcome(data).choices[0].finish == "length"


def test_thinking_has_one_summary_and_its_signature() -> None:
    data = answer(
        block_start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        block_delta(0, {"type": "thinking_delta", "thinking": "hm"}),
        block_delta(0, {"type": "thinking_delta", "thinking": "m"}),
        block_delta(0, {"type": "signature_delta", "signature": "c2ln"}),
        block_stop(0),
    )
    events, problems = read(data)
    assert problems == []
    assert events[2:-3] == [
        PartStarted(0, Reasoning(status="in_progress")),
        ReasoningDelta(0, "hm"),
        ReasoningDelta(0, "m"),
        SealAdded(0, Seal("signature", "c2ln")),
        PartEnded(0, Reasoning(summary=("hmm",), seals=(Seal("signature", "c2ln"),))),
    ]


def test_signed_thinking_without_text_is_kept() -> None:
    # M091
    data = answer(
        block_start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        block_delta(0, {"type": "signature_delta", "signature": "EqQB..."}),
        block_stop(0),
    )
    assert kinds(data) == []
    assert parts(data) == [Reasoning(seals=(Seal("signature", "EqQB..."),))]


def test_empty_signature_is_no_seal() -> None:
    data = answer(
        block_start(0, {"type": "thinking", "thinking": "a", "signature": ""}),
        block_delta(0, {"type": "signature_delta", "signature": ""}),
        block_stop(0),
    )
    assert parts(data) == [Reasoning(summary=("a",))]


def test_estimated_tokens_are_noticed_beside_the_thought() -> None:
    data = answer(
        block_start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        block_delta(0, {"type": "thinking_delta", "thinking": "", "estimated_tokens": 7}),
        block_delta(0, {"type": "thinking_delta", "thinking": "a", "estimated_tokens": None}),
        block_stop(0),
    )
    events, problems = read(data)
    assert problems == []
    fields = Raw(b'{"estimated_tokens":7}')
    assert Noticed("fields", "messages", "thinking_delta", fields, 0) in events
    assert ReasoningDelta(0, "a") in events


def test_redacted_thinking_is_a_seal() -> None:
    data = answer(block_start(0, {"type": "redacted_thinking", "data": "Em"}), block_stop(0))
    events, problems = read(data)
    assert problems == []
    assert events[2:5] == [
        PartStarted(0, Reasoning(status="in_progress")),
        SealAdded(0, Seal("redacted", "Em")),
        PartEnded(0, Reasoning(seals=(Seal("redacted", "Em"),))),
    ]


def test_citations_are_annotations() -> None:
    citation = {
        "type": "web_search_result_location",
        "url": "https://e.org",
        "title": "E",
        "cited_text": "so",
        "encrypted_index": "x",
    }
    location = {"type": "char_location", "document_title": "D", "cited_text": "c"}
    data = answer(
        block_start(0, {"type": "text", "text": "a", "citations": [location]}),
        block_delta(0, {"type": "citations_delta", "citation": citation}),
        block_delta(0, {"type": "citations_delta", "citation": 5}),
        block_delta(0, {"type": "citations_delta"}),
        block_stop(0),
    )
    events, problems = read(data)
    assert problems == []
    found = [each.annotation for each in events if isinstance(each, AnnotationAdded)]
    assert [(each.url, each.title, each.quote) for each in found] == [
        (None, "D", "c"),
        ("https://e.org", "E", "so"),
    ]
    (text,) = parts(data)
    assert isinstance(text, Text)
    assert text.text == "a"
    assert text.annotations == tuple(found)
    assert isinstance(found[0], Annotation)


def test_server_tools_and_their_results_are_the_providers() -> None:
    # M072, M129
    data = answer(
        block_start(
            0,
            {
                "type": "server_tool_use",
                "id": "srvtoolu_1",
                "name": "web_search",
                "input": {},
                "caller": {"type": "direct"},
            },
        ),
        input_delta(0, '{"query":"q"}'),
        block_stop(0),
        block_start(
            1, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
        ),
        block_stop(1),
        block_start(2, {"type": "text", "text": ""}),
        text_delta(2, "found"),
        block_stop(2),
    )
    assert kinds(data) == []
    assert outcome(data).choices[0].finish == "stop"
    assert parts(data) == [
        Call(
            call_id="srvtoolu_1",
            name="web_search",
            input='{"query":"q"}',
            kind="web_search",
            executor="provider",
            extra=Extra("messages", {}),
        ),
        Result(
            call_id="srvtoolu_1",
            content=(Opaque(dialect="messages", type="web_search_tool_result", raw=Raw(b"[]")),),
            kind="web_search",
            name="web_search",
            executor="provider",
            extra=Extra("messages", {}),
        ),
        Text(text="found"),
    ]


def test_mcp_calls_carry_their_server() -> None:
    data = answer(
        block_start(
            0,
            {
                "type": "mcp_tool_use",
                "id": "mcptoolu_1",
                "name": "q",
                "server_name": "db",
                "input": {},
            },
        ),
        input_delta(0, '{"sql":1}'),
        block_stop(0),
        block_start(
            1,
            {
                "type": "mcp_tool_result",
                "tool_use_id": "mcptoolu_1",
                "is_error": True,
                "content": [{"type": "text", "text": "no"}],
            },
        ),
        block_stop(1),
    )
    assert kinds(data) == []
    call, result = parts(data)
    assert isinstance(call, Call)
    assert (call.kind, call.namespace, call.executor) == ("mcp", "db", "provider")
    assert isinstance(result, Result)
    assert (result.kind, result.is_error, result.content) == ("mcp", True, (Text(text="no"),))


def test_blocks_of_the_vendors_own_state_are_opaque() -> None:
    block = {"type": "container_upload", "file_id": "file_1"}
    data = answer(block_start(0, block), block_stop(0))
    assert kinds(data) == []
    (opaque,) = parts(data)
    assert opaque == Opaque(
        dialect="messages",
        type="container_upload",
        raw=Raw(b'{"type": "container_upload", "file_id": "file_1"}'),
    )


def test_compaction_is_whole_at_its_end() -> None:
    data = answer(
        block_start(0, {"type": "compaction", "content": None}),
        block_delta(0, {"type": "compaction_delta", "content": "S", "encrypted_content": None}),
        block_stop(0),
        reason="compaction",
    )
    events, problems = read(data)
    assert problems == []
    noticed = [each for each in events if isinstance(each, Noticed)]
    assert [(each.kind, each.name, each.part) for each in noticed] == [
        ("unknown", "content_block_delta", 0)
    ]
    (opaque,) = parts(data)
    assert isinstance(opaque, Opaque)
    assert opaque.raw == raw({"type": "compaction", "content": "S"})
    choice = outcome(data).choices[0]
    assert choice.finish == "pause"
    assert choice.finish_extra == Extra("messages", {"stop_reason": Raw(b'"compaction"')})


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("stop_sequence", "stop_sequence"),
        ("pause_turn", "pause"),
        ("refusal", "refusal"),
        ("model_context_window_exceeded", "context_window"),
    ],
)
def test_stop_reasons_have_their_words(native: str, reason: FinishReason) -> None:
    data = START + end(native, stop_sequence="###")
    events, problems = read(data)
    assert problems == []
    assert Finished(reason, stop_sequence="###", native=native) in events


def test_what_stands_beside_the_end_is_kept() -> None:
    data = (
        START
        + event(
            "message_delta",
            delta={
                "stop_reason": "refusal",
                "stop_sequence": None,
                "stop_details": {"type": "refusal"},
                "container": None,
            },
            usage={"output_tokens": 5},
            context_management={"applied_edits": []},
        )
        + event("message_stop", metrics=1)
    )
    events, problems = read(data)
    assert problems == []
    details = Extra("messages", {"stop_details": Raw(b'{"type": "refusal"}')})
    management = Extra("messages", {"context_management": Raw(b'{"applied_edits": []}')})
    assert events[-3:] == [
        Finished("refusal", native="refusal", extra=details),
        Noticed("fields", "messages", "message_stop", Raw(b'{"metrics":1}')),
        Completed(management),
    ]


def test_what_stands_beside_the_start_is_kept() -> None:
    message = {**MESSAGE, "container": {"id": "c"}, "stop_details": None}
    events, problems = read(event("message_start", message=message, x=1) + end())
    assert problems == []
    assert events[0] == Noticed("fields", "messages", "message_start", Raw(b'{"x":1}'))
    extra = Extra("messages", {"container": Raw(b'{"id": "c"}')})
    assert events[1] == Started("msg_1", "claude", None, extra)


def test_unknown_fields_of_blocks_and_deltas_are_kept() -> None:
    data = answer(
        block_start(0, {"type": "text", "text": "", "flavour": "mint"}, y=2),
        block_delta(0, {"type": "text_delta", "text": "a", "z": 3}, y=2),
        event("content_block_stop", index=0, w=4),
    )
    events, problems = read(data)
    assert problems == []
    assert [each for each in events if isinstance(each, Noticed)] == [
        Noticed("fields", "messages", "content_block_start", Raw(b'{"y":2}')),
        Noticed("fields", "messages", "content_block_delta", Raw(b'{"y":2}')),
        Noticed("fields", "messages", "text_delta", Raw(b'{"z":3}'), 0),
        Noticed("fields", "messages", "content_block_stop", Raw(b'{"w":4}')),
    ]
    flavour = Extra("messages", {"flavour": Raw(b'"mint"')})
    assert parts(data) == [Text(text="a", extra=flavour)]


def test_pings_and_comments_are_noticed() -> None:
    data = b": waiting\n\n" + START + event("ping") + event("ping", at=1) + b"retry: 3\n\n" + end()
    events, problems = read(data)
    assert problems == []
    assert [each for each in events if isinstance(each, Noticed)] == [
        Noticed("comment", "messages", raw=Raw(b'"waiting"')),
        Noticed("ping", "messages"),
        Noticed("ping", "messages", raw=Raw(b'{"at":1}')),
    ]


def test_message_delta_without_a_reason_only_reports() -> None:
    early = event("message_delta", delta={"stop_reason": None, "q": 1}, usage={"output_tokens": 2})
    events, problems = read(START + early + end())
    assert problems == []
    assert UsageReported(Usage(output=2)) in events
    assert Noticed("fields", "messages", "message_delta", Raw(b'{"q":1}')) in events
    assert sum(isinstance(each, Finished) for each in events) == 1


def test_error_event_fails_the_answer_and_closes_what_is_open() -> None:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    data = START + TEXT + text_delta(0, "a") + event("error", error=error)
    events, problems = read(data)
    assert problems == []
    assert events[-2] == PartEnded(0, Text(text="a", status="incomplete"))
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert (failed.error.kind, failed.error.message) == ("overloaded", "Overloaded")


def test_error_event_may_be_plain_text() -> None:
    events, _ = read(START + b"event: error\ndata: upstream is down\n\n")
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.message == "upstream is down"


def test_error_before_the_start_fails_alone() -> None:
    events, _ = read(write({"type": "error", "error": {"type": "api_error", "message": "m"}}))
    assert [type(each) for each in events] == [Failed]


def test_done_marker_after_the_end_is_nothing() -> None:
    events, problems = read(START + end() + b"data: [DONE]\n\n")
    assert problems == []
    assert isinstance(events[-1], Completed)


def test_character_cut_between_two_deltas_is_joined() -> None:
    half = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"%s","%s":"%s"}}\n\n'
    for kind, field, block in (
        (b"text_delta", b"text", TEXT),
        (b"thinking_delta", b"thinking", block_start(0, {"type": "thinking", "thinking": ""})),
    ):
        first = half % (kind, field, b"a\\ud83d")
        second = half % (kind, field, b"\\ude00b")
        data = answer(block, first, second, half % (kind, field, b"c"), block_stop(0))
        assert kinds(data) == []
        assert parts(data) in (
            [Text(text="a\U0001f600bc")],
            [Reasoning(summary=("a\U0001f600bc",))],
        )


def test_character_cut_inside_tool_input_is_joined() -> None:
    frame = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"%s"}}\n\n'
    data = answer(
        tool_use(0),
        frame % b'{\\"a\\":\\"\\ud83d',
        frame % b'\\ude00\\"}',
        block_stop(0),
        reason="tool_use",
    )
    assert calls(data) == [("toolu_a", "f", '{"a":"\U0001f600"}', "completed")]


def test_half_a_character_at_the_end_is_replaced() -> None:
    half = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\\ud83d"}}\n\n'
    assert parts(answer(TEXT, half, block_stop(0))) == [Text(text="a\ufffd")]
    cut = START + TEXT + half
    assert parts(cut) == [Text(text="a\ufffd", status="incomplete")]


def test_reader_fails_on_request() -> None:
    reader = MessagesReader(DecodeContext())
    error = ErrorInfo(kind="timeout", message="too slow")
    assert reader.fail(error) == (Failed(error),)
    assert reader.over
    assert reader.end() == ()
