"""Whole answers: they mean what the same answer means as a stream, and are written as the vendor writes them."""

import json
from typing import Any

import pytest
from anthropic.types import Message
from anthropic.types.beta import BetaMessage
from msgspec.structs import replace

from dragoman._json import Raw
from dragoman.core.call_input import judge
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.core.losses import answer_book
from dragoman.dialects.codec import DecodeContext, EncodeContext
from dragoman.dialects.messages import LOSSES, read_body
from dragoman.dialects.registry import codec
from dragoman.model.events import (
    Completed,
    Event,
    Failed,
    Finished,
    InputDelta,
    LimitsReported,
    PartEnded,
    PartStarted,
    Started,
    TextDelta,
    UsageReported,
)
from dragoman.model.outcome import ErrorInfo, Limits, Outcome, Usage
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
from dragoman.model.request import Tool
from messages_streams import (
    MESSAGE,
    USAGE,
    block_delta,
    block_start,
    block_stop,
    data_of,
    encode,
    event,
    input_delta,
    outcome,
    text_delta,
    tool_use,
)

encode_body = codec("messages").encode_body

NO_CONTEXT = DecodeContext()
Json = dict[str, Any]


def body(*content: object, reason: object = "end_turn", **fields: object) -> bytes:
    usage = {**USAGE, "output_tokens": 5}
    message = {**MESSAGE, "content": content, "stop_reason": reason, "usage": usage, **fields}
    return json.dumps(message).encode()


def read(data: bytes, context: DecodeContext = NO_CONTEXT) -> tuple[Outcome, list[str]]:
    step = read_body(data, context)
    assert step.raw == data
    assert is_grammatical(step.events)
    assert all(problem.frame == 1 for problem in step.problems)
    return fold(step.events), [problem.kind for problem in step.problems]


def written(data: bytes) -> Any:
    out = encode_body(read_body(data).events)
    BetaMessage.model_validate_json(out, strict=True)
    return json.loads(out)


def test_body_means_what_the_stream_means() -> None:
    blocks: list[dict[str, object]] = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "Hi", "citations": [{"type": "char_location"}]},
        {"type": "tool_use", "id": "toolu_a", "name": "f", "input": {"x": 1}},
    ]
    details: Json = {"stop_details": {"type": "refusal"}, "container": {"id": "c"}}
    management: Json = {"context_management": {"applied_edits": []}}
    whole = body(*blocks, reason="tool_use", diagnostics={"a": 1}, **details, **management)
    start = {**MESSAGE, "diagnostics": {"a": 1}}
    stream = b"".join(
        [
            event("message_start", message=start),
            block_start(0, {"type": "thinking", "thinking": "", "signature": ""}),
            block_delta(0, {"type": "thinking_delta", "thinking": "hm"}),
            block_delta(0, {"type": "signature_delta", "signature": "c2ln"}),
            block_stop(0),
            block_start(1, {"type": "text", "text": ""}),
            text_delta(1, "Hi"),
            block_delta(1, {"type": "citations_delta", "citation": {"type": "char_location"}}),
            block_stop(1),
            tool_use(2),
            input_delta(2, '{"x": 1}'),
            block_stop(2),
            event(
                "message_delta",
                delta={"stop_reason": "tool_use", "stop_sequence": None, **details},
                usage={"output_tokens": 5},
                **management,
            ),
            event("message_stop"),
        ]
    )
    from_body, problems = read(whole)
    assert problems == []
    assert from_body == outcome(stream)


def test_body_comes_back_as_it_was() -> None:
    whole = body(
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "Em"},
        {"type": "text", "text": "Hi", "citations": []},
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "bash_code_execution",
            "input": {"command": "ls"},
            "caller": {"type": "direct"},
        },
        {
            "type": "bash_code_execution_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {
                "type": "bash_code_execution_result",
                "content": [],
                "return_code": 0,
                "stderr": "",
                "stdout": "",
            },
        },
        {"type": "container_upload", "file_id": "file_1"},
        {
            "type": "tool_use",
            "id": "toolu_a",
            "name": "f",
            "input": {"x": 1},
            "caller": {"type": "direct"},
        },
        reason="tool_use",
        context_management={"applied_edits": []},
    )
    assert written(whole) == json.loads(whole)


def test_input_keeps_its_bytes() -> None:
    # law: a call's input is never re-serialised
    data = body(reason="tool_use").replace(
        b'"content": []',
        b'"content": [{"type":"tool_use","id":"a","name":"f","input":{"n": 1.0,  "b":12345678901234567890}}]',
    )
    (call,) = read(data)[0].choices[0].parts
    assert isinstance(call, Call)
    assert call.input == '{"n": 1.0,  "b":12345678901234567890}'
    assert call.input.encode() in encode_body(read_body(data).events)


def test_missing_or_empty_input_is_an_empty_object() -> None:
    # M059, M046
    blocks: list[Json] = [{}, {"input": None}, {"input": {}}, {"input": ""}]
    for block in blocks:
        data = body({"type": "tool_use", "id": "a", "name": "f", **block}, reason="tool_use")
        (call,) = read(data)[0].choices[0].parts
        assert call == Call(call_id="a", name="f", input="{}")
        assert written(data)["content"][0]["input"] == {}


def test_last_call_of_an_answer_cut_by_a_limit_is_incomplete() -> None:
    # M061, M062
    use: dict[str, object] = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}
    found, problems = read(body(use, {**use, "id": "b"}, reason="max_tokens"))
    assert problems == []
    assert found.choices[0].finish == "length"
    first, second = found.choices[0].parts
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert (first.status, second.status) == ("completed", "incomplete")
    (empty,) = read(body({**use, "input": {}}, reason="max_tokens"))[0].choices[0].parts
    assert isinstance(empty, Call)
    assert empty.status == "incomplete"
    (missing,) = read(body({**use, "input": None}, reason="max_tokens"))[0].choices[0].parts
    assert isinstance(missing, Call)
    assert missing.input == ""


def test_input_that_is_no_json_is_reported() -> None:
    data = body({"type": "tool_use", "id": "a", "name": "f", "input": "{x"}, reason="tool_use")
    found, problems = read(data)
    assert problems == ["string_input", "invalid_arguments"]
    (call,) = found.choices[0].parts
    assert isinstance(call, Call)
    assert (call.input, call.status) == ("{x", "completed")
    assert judge(call).reason == "invalid_json"


def test_ids_and_names_are_made_good() -> None:
    data = body(
        {"type": "tool_use", "input": {}},
        {"type": "server_tool_use", "name": "web_search", "input": {}},
        reason="tool_use",
    )
    found, problems = read(data, DecodeContext(tools=(Tool(name="only"),)))
    assert problems == ["missing_name", "missing_id", "missing_id"]
    first, second = found.choices[0].parts
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert (first.name, first.call_id[:6], second.call_id[:9]) == ("only", "toolu_", "srvtoolu_")
    failed, problems = read(data)
    assert problems == ["missing_name", "missing_id", "nameless_call", "missing_id"]
    assert failed.error is not None
    assert failed.error.kind == "protocol"
    assert [part.name for part in failed.choices[0].parts if isinstance(part, Call)] == [
        "web_search"
    ]


def test_reason_is_settled_by_content() -> None:
    # M064
    use: Json = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    found, problems = read(body(use))
    assert (found.choices[0].finish, problems) == ("tool_calls", ["wrong_finish"])
    found, problems = read(body(use, reason=None))
    assert (found.choices[0].finish, problems) == ("tool_calls", ["missing_finish"])
    found, problems = read(body(reason="weird"))
    assert (found.choices[0].finish, problems) == ("stop", ["unknown_finish"])
    assert written(body(reason="compaction"))["stop_reason"] == "compaction"


def test_only_calls_of_the_client_get_another_id_in_place_of_a_repeated_one() -> None:
    search: Json = {"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}}
    use: Json = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    found, problems = read(body(search, search, use, reason="tool_use"))
    assert problems == ["repeated_id", "repeated_id"]
    ids = [part.call_id for part in found.choices[0].parts if isinstance(part, Call)]
    assert ids[:2] == ["a", "a"]
    assert ids[2].startswith("toolu_")


def test_cut_call_whose_name_never_came_fails_a_body() -> None:
    use = {"type": "tool_use", "id": "a", "input": {"x": 1}}
    found, problems = read(body(use, reason="max_tokens"))
    assert problems == ["missing_name", "nameless_call"]
    assert found.error is not None


def test_message_may_lack_usage_and_content() -> None:
    data = json.dumps({"type": "message", "stop_reason": "end_turn", "content": None}).encode()
    found, problems = read(data)
    assert problems == ["missing_usage"]
    assert found.completed
    assert found.choices[0].parts == ()
    out = json.loads(encode_body(read_body(data).events))
    assert out["usage"] == {**USAGE, "input_tokens": 0, "output_tokens": 0}
    assert out["id"].startswith("msg_")


@pytest.mark.parametrize(
    "entry", ["b", 5, {"type": "text", "text": 5}, {"type": "tool_use", "name": "f", "input": 5}]
)
def test_body_with_a_block_that_cannot_be_read_is_an_error(entry: Any) -> None:
    found, problems = read(body({"type": "text", "text": "a"}, entry))
    assert problems == ["malformed_frame"]
    assert found.error is not None


def test_body_of_another_dialect_is_named() -> None:
    # M082
    for data in (
        b'{"object":"chat.completion","choices":[]}',
        b'{"x":1}',
        b'{"type":"response","content":[]}',
    ):
        found, problems = read(data)
        assert problems == ["foreign_body"]
        assert found.error is not None
        assert found.error.kind == "protocol"


def test_error_bodies_are_errors() -> None:
    for data in (
        b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}',
        b'{"error":{"message":"m"}}',
    ):
        found, problems = read(data)
        assert problems == []
        assert found.error is not None
        assert found.error.message == "m"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"<html>", b"\xff"])
def test_bytes_that_are_no_message_never_raise(data: bytes) -> None:
    found, problems = read(data)
    assert found.error is not None
    assert problems in (["malformed_frame"], ["invalid_utf8"])


def test_body_with_bytes_that_are_no_utf8_is_an_error() -> None:
    found, problems = read(body({"type": "text", "text": "?"}).replace(b"?", b"\xff"))
    assert problems == ["invalid_utf8"]
    assert found.error is not None


# --- writing -----------------------------------------------------------------------------------------


def events_with(*parts: Any) -> list[Event]:
    events: list[Event] = [Started("m", "claude")]
    for number, part in enumerate(parts):
        header = part
        delta: Event | None = None
        match part:
            case Text(text=text):
                header, delta = Text(status="in_progress"), TextDelta(number, text)
            case Refusal(text=text):
                header, delta = Refusal(status="in_progress"), TextDelta(number, text)
            case Call():
                header = Call(
                    call_id=part.call_id, name=part.name, kind=part.kind, status="in_progress"
                )
                delta = InputDelta(number, part.input)
            case _:
                header = Reasoning(status="in_progress") if isinstance(part, Reasoning) else part
        events.append(PartStarted(number, header))
        if delta is not None:
            events.append(delta)
        events.append(PartEnded(number, part))
    return [*events, Finished("stop"), Completed()]


def content(*parts: Any) -> Any:
    out = encode_body(events_with(*parts))
    BetaMessage.model_validate_json(out, strict=True)
    return json.loads(out)["content"]


def test_input_that_is_no_object_is_carried_under_a_key_of_ours() -> None:
    for text in ("[1]", "{x", '{"a":"import typ'):
        (block,) = content(Call(call_id="a", name="f", input=text))
        assert block["input"] == {"_invalid_arguments": text}


def test_input_carried_under_a_key_of_ours_is_read_back_as_it_was() -> None:
    data = body(
        {"type": "tool_use", "id": "a", "name": "f", "input": {"_invalid_arguments": "{x"}},
        reason="tool_use",
    ).replace(b'{"_invalid_arguments": ', b'{"_invalid_arguments":')
    (call,) = read(data)[0].choices[0].parts
    assert call == Call(call_id="a", name="f", input="{x", status="completed")


def test_what_a_block_cannot_say_is_left_out() -> None:
    annotation = Annotation("responses", Raw(b"{}"), url="https://e.org")
    blocks = content(
        Text(text="a", logprobs=Raw(b"[]"), annotations=(annotation,)),
        Reasoning(summary=("a", "b")),
        Call(call_id="a", name="f", input="{}", seals=(Seal("thought", "x"),)),
        Opaque(dialect="responses", type="x", raw=Raw(b"{}")),
    )
    assert [block["type"] for block in blocks] == ["text", "thinking", "tool_use"]
    assert blocks[0]["citations"][0]["url"] == "https://e.org"
    assert blocks[1]["thinking"] == "a\n\nb"


def test_cut_input_never_looks_whole() -> None:
    # M061, M063
    cut = [
        Call(call_id="a", name="f", input="", status="incomplete"),
        Call(call_id="b", name="f", input="{}", status="incomplete"),
        Call(call_id="c", name="f", kind="custom", input="*** Beg", status="incomplete"),
    ]
    assert [block["input"] for block in content(*cut)] == [
        {"_invalid_arguments": ""},
        {"_invalid_arguments": "{}"},
        {"_invalid_arguments": "*** Beg"},
    ]
    (last,) = content(cut[1])
    assert last["input"] == {"_invalid_arguments": "{}"}


def test_call_that_a_limit_cut_is_the_last_block_as_the_vendor_sends_it() -> None:
    *events, _, completed = events_with(
        Call(call_id="a", name="f", input='{"x":1}', status="incomplete")
    )
    message = json.loads(encode_body([*events, Finished("length"), completed]))
    assert message["stop_reason"] == "max_tokens"
    assert message["content"][0]["input"] == {"x": 1}


def test_custom_input_is_wrapped() -> None:
    (block,) = content(Call(call_id="a", name="f", kind="custom", input='x"'))
    assert block["input"] == {"input": 'x"'}


def test_empty_text_and_unsigned_empty_thinking_are_left_out() -> None:
    assert content(Text(), Refusal(), Reasoning()) == []


def test_media_have_no_block() -> None:
    assert content(Media(kind="image", data="x")) == []


def test_refusal_decides_the_reason() -> None:
    out = json.loads(encode_body(events_with(Refusal(text="no"))))
    block: Json = {"type": "text", "text": "no", "citations": []}
    assert (out["content"], out["stop_reason"]) == ([block], "refusal")


def test_call_decides_the_reason() -> None:
    out = encode_body(events_with(Text(text="a"), Call(call_id="a", name="f", input="{}")))
    message = Message.model_validate_json(out, strict=True)
    assert message.stop_reason == "tool_use"


def test_opaque_block_is_written_as_it_came() -> None:
    raw = Raw(b'{"type":"container_upload","file_id":"f"}')
    assert content(Opaque(dialect="messages", type="container_upload", raw=raw)) == [
        {"type": "container_upload", "file_id": "f"}
    ]


def test_model_is_the_clients() -> None:
    out = json.loads(encode_body(events_with(), EncodeContext(model="mine")))
    assert out["model"] == "mine"


def test_failed_and_unfinished_answers_are_error_bodies() -> None:
    error = ErrorInfo(kind="overloaded", message="m")
    cases: list[tuple[list[Event], str]] = [
        ([Failed(error)], "overloaded_error"),
        ([Started()], "api_error"),
        ([Started(), Finished("error"), Completed()], "api_error"),
    ]
    for events, kind in cases:
        out = json.loads(encode_body(events))
        assert (out["type"], out["error"]["type"]) == ("error", kind)


def test_answer_without_its_first_choice_is_empty() -> None:
    events: list[Event] = [
        Started("m", "claude"),
        PartStarted(0, Text(status="in_progress"), 1),
        PartEnded(0, Text(text="other")),
        Finished("stop", 1),
        Finished("stop"),
        Completed(),
    ]
    assert json.loads(encode_body(events))["content"] == []


FOREIGN = Extra("chat", {"x": Raw(b"1")})


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (LimitsReported(Limits()), "limits"),
        (UsageReported(Usage(input_audio=1)), "usage_details"),
        (UsageReported(Usage(output=1, extra=FOREIGN)), "unknown_field"),
        (Finished("stop", 1), "choices"),
    ],
)
def test_a_body_declares_what_stands_beside_its_content(report: Event, code: str) -> None:
    book = answer_book(LOSSES, {})
    encode_body([Started("m", "claude"), Finished("stop"), report, Completed()], book=book)
    assert [loss.code for loss in book.losses] == [code]


def test_an_amended_part_that_is_not_shown_does_not_fail_the_stream() -> None:
    call = Call(call_id="a", name="f", input="{}")
    events: list[Event] = [
        Started("m", "claude"),
        PartStarted(0, Call(call_id="a", name="f", status="in_progress"), 1),
        InputDelta(0, "{"),
        PartEnded(0, call, amended=True),
        Finished("tool_calls", 1),
        Finished("stop"),
        Completed(),
    ]
    assert data_of(encode(events))[-1] == {"type": "message_stop"}


CODE = Call(
    call_id="a",
    name="code_interpreter",
    kind="code_interpreter",
    executor="provider",
    input='print("é")\n',
)


def test_bare_code_stands_in_an_object() -> None:
    assert content(CODE)[0]["input"] == {"code": CODE.input}
    events: list[Event] = [
        Started("m", "claude"),
        PartStarted(0, replace(CODE, input="", status="in_progress")),
        InputDelta(0, CODE.input[:7]),
        InputDelta(0, CODE.input[7:]),
        PartEnded(0, CODE),
        Finished("stop"),
        Completed(),
    ]
    pieces = [
        each["delta"]["partial_json"]
        for each in data_of(encode(events))
        if each["type"] == "content_block_delta"
    ]
    assert json.loads("".join(pieces)) == {"code": CODE.input}


def test_bare_code_that_came_whole_or_not_at_all_stands_in_an_object() -> None:
    for code, wanted in ((CODE, {"code": CODE.input}), (replace(CODE, input=""), {})):
        events: list[Event] = [
            Started("m", "claude"),
            PartStarted(0, replace(code, input="", status="in_progress")),
            PartEnded(0, code),
            Finished("stop"),
            Completed(),
        ]
        pieces = [
            each["delta"]["partial_json"]
            for each in data_of(encode(events))
            if each["type"] == "content_block_delta"
        ]
        assert json.loads("".join(pieces)) == wanted


def test_code_in_an_object_stays_as_it_is() -> None:
    told_code = replace(CODE, input='{ "code" : "1" }', status="failed")
    assert b'"input":{ "code" : "1" }' in encode_body(events_with(told_code))
