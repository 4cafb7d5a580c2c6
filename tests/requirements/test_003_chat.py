"""The tool calls that a Chat Completions client gets, streamed and whole."""

import json

import pytest

from dragoman.dialects.codec import EncodeContext
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import StreamTranslator, make_decoder, translate_body
from dragoman.model.events import Noticed
from dragoman.model.parts import Result, Text
from seed_wires import (
    CHAT_CALL,
    CHAT_TEXT,
    MESSAGES_CALL,
    RESPONSES_CALL,
    Payload,
    as_sse,
    calls,
    chat_chunk,
    decode,
    payloads,
    responses_call,
    responses_stream,
    text,
    tool_delta,
    translate,
)

ARGUMENTS = '{"command": ["echo","hello"]}'
STREAMS = {"chat": CHAT_CALL, "responses": RESPONSES_CALL, "messages": MESSAGES_CALL}
CALL_ITEM: Payload = {
    "type": "function_call",
    "id": "fc_0",
    "call_id": "call_0",
    "name": "shell",
    "arguments": ARGUMENTS,
    "status": "completed",
}
TEXT_ITEM: Payload = {
    "type": "message",
    "id": "msg_0",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
}


def responses_body(*output: Payload, **more: object) -> bytes:
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
    }
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    return json.dumps({**body, "output": output, "usage": usage, **more}).encode()


def chat_body(data: bytes, *, legacy: bool = False) -> Payload:
    answer = translate_body(
        data, "responses", "chat", encode=EncodeContext(legacy_functions=legacy)
    ).body
    body: Payload = json.loads(answer)
    return body


def choices(stream: bytes) -> list[Payload]:
    return [choice for chunk in payloads(stream) for choice in chunk["choices"]]


def tool_deltas(stream: bytes) -> list[Payload]:
    return [
        entry for choice in choices(stream) for entry in choice["delta"].get("tool_calls") or ()
    ]


@pytest.mark.requirement("S003-01")
@pytest.mark.parametrize("dialect", STREAMS)
def test_structured_calls_are_recognised_in_every_dialect(dialect: str) -> None:
    (call,) = calls(decode(dialect, STREAMS[dialect]))
    assert (call.name, call.input, call.status) == ("shell", ARGUMENTS, "completed")


@pytest.mark.requirement("S003-03")
def test_content_beside_calls_is_the_text_before_them_or_null() -> None:
    assert chat_body(responses_body(CALL_ITEM))["choices"][0]["message"]["content"] is None
    assert (
        chat_body(responses_body(TEXT_ITEM, CALL_ITEM))["choices"][0]["message"]["content"]
        == "Let me see."
    )


@pytest.mark.requirement("S003-04", "S003-45")
@pytest.mark.parametrize("dialect", STREAMS)
def test_turn_that_ends_on_a_call_finishes_with_tool_calls(dialect: str) -> None:
    finishes = [
        choice["finish_reason"] for choice in choices(translate(dialect, "chat", STREAMS[dialect]))
    ]
    assert [reason for reason in finishes if reason] == ["tool_calls"]
    assert chat_body(responses_body(CALL_ITEM))["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.requirement("S003-05")
def test_tool_message_is_the_result_of_a_call() -> None:
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "found"},
    ]
    request = codec("chat").decode_request(
        json.dumps({"model": "m", "messages": messages}).encode()
    )
    assert request.turns[-1].role == "tool"
    (result,) = request.turns[-1].parts
    assert isinstance(result, Result)
    assert result.call_id == "call_1"
    assert [part.text for part in result.content if isinstance(part, Text)] == ["found"]


CALL: Payload = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.requirement("S003-11")
def test_call_is_emitted_as_soon_as_its_name_is_known() -> None:
    translator = StreamTranslator("responses", "chat")
    assert tool_deltas(translator.feed(as_sse(RESPONSES_CALL[:1]))) == []
    (opening,) = tool_deltas(translator.feed(as_sse(RESPONSES_CALL[1:2])))
    assert (opening["id"], opening["function"]["name"]) == ("call_0", "shell")
    (piece,) = tool_deltas(translator.feed(as_sse(RESPONSES_CALL[2:3])))
    assert piece["function"]["arguments"] == '{"command": '


@pytest.mark.requirement("S003-34", "S003-35")
def test_added_item_names_the_call_and_the_finished_item_ends_it() -> None:
    decoder = make_decoder("responses")
    sent = [
        [
            type(event).__name__
            for step in decoder.feed(as_sse([item]))
            for event in step.events
            if not isinstance(event, Noticed)
        ]
        for item in RESPONSES_CALL
    ]
    assert sent[1] == ["PartStarted"]
    assert sent[2] == sent[3] == ["InputDelta"]
    assert [name for names in sent[4:6] for name in names] == ["PartEnded"]


@pytest.mark.requirement("S003-36")
def test_first_chunk_of_a_call_names_choice_id_type_and_function() -> None:
    stream = translate("responses", "chat", RESPONSES_CALL)
    (choice,) = [
        choice
        for choice in choices(stream)
        if choice["delta"].get("tool_calls", [{}])[0].get("id") is not None
    ]
    assert choice["index"] == 0
    (entry,) = choice["delta"]["tool_calls"]
    assert (entry["index"], entry["id"], entry["type"], entry["function"]["name"]) == (
        0,
        "call_0",
        "function",
        "shell",
    )


@pytest.mark.requirement("S003-37")
def test_arguments_stand_in_the_function() -> None:
    for entry in tool_deltas(translate("responses", "chat", RESPONSES_CALL)):
        assert "arguments" in entry["function"]
        assert "arguments" not in entry
    (entry,) = chat_body(responses_body(CALL_ITEM))["choices"][0]["message"]["tool_calls"]
    assert entry == {
        "id": "call_0",
        "type": "function",
        "function": {"name": "shell", "arguments": ARGUMENTS},
    }


@pytest.mark.requirement("S003-38", "S003-39", "S003-59")
def test_only_the_last_chunk_has_a_finish_and_done_follows() -> None:
    stream = translate("responses", "chat", RESPONSES_CALL)
    lines = choices(stream)
    assert [choice["finish_reason"] for choice in lines] == [None] * (len(lines) - 1) + [
        "tool_calls"
    ]
    assert lines[-1]["delta"] == {}
    assert stream.endswith(b"data: [DONE]\n\n")
    assert stream.count(b"[DONE]") == 1


@pytest.mark.requirement("S003-59")
def test_each_choice_is_finished_once() -> None:
    items: list[Payload | str] = [
        chat_chunk({"role": "assistant", "content": "a"}, choice=0),
        chat_chunk({"role": "assistant", "content": "b"}, choice=1),
        chat_chunk({}, "stop", choice=0),
        chat_chunk({}, "stop", choice=0),
        chat_chunk({}, "stop", choice=1),
        "[DONE]",
    ]
    finished = [
        choice["index"]
        for choice in choices(translate("chat", "chat", items))
        if choice["finish_reason"]
    ]
    assert sorted(finished) == [0, 1]


@pytest.mark.requirement("S003-40")
@pytest.mark.parametrize("dialect", STREAMS)
def test_role_comes_first(dialect: str) -> None:
    first, *rest = choices(translate(dialect, "chat", STREAMS[dialect]))
    assert first["delta"]["role"] == "assistant"
    assert not any("tool_calls" in first["delta"] for _ in rest[:1])
    assert not any("role" in choice["delta"] for choice in rest)


@pytest.mark.requirement("S003-41", "S003-45")
def test_legacy_client_gets_a_function_call() -> None:
    (choice,) = chat_body(responses_body(CALL_ITEM), legacy=True)["choices"]
    assert choice["message"]["function_call"] == {"name": "shell", "arguments": ARGUMENTS}
    assert choice["message"]["content"] is None
    assert not choice["message"].get("tool_calls")
    assert choice["finish_reason"] == "function_call"


@pytest.mark.requirement("S003-42")
def test_answer_without_calls_has_its_text() -> None:
    (choice,) = chat_body(responses_body(TEXT_ITEM))["choices"]
    assert choice["message"]["content"] == "Let me see."
    assert not choice["message"].get("tool_calls")
    assert choice["finish_reason"] == "stop"


@pytest.mark.requirement("S003-50")
def test_backends_word_for_the_end_does_not_hide_a_call() -> None:
    items = [*CHAT_CALL[:-2], chat_chunk({}, "stop"), "[DONE]"]
    finishes = [choice["finish_reason"] for choice in choices(translate("chat", "chat", items))]
    assert [reason for reason in finishes if reason] == ["tool_calls"]


@pytest.mark.requirement("S003-50")
@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_cut_or_filtered_turn_is_not_called_tool_calls(reason: str) -> None:
    items = [*CHAT_CALL[:-2], chat_chunk({}, reason), "[DONE]"]
    finishes = [choice["finish_reason"] for choice in choices(translate("chat", "chat", items))]
    assert [reason for reason in finishes if reason] == [reason]


@pytest.mark.requirement("S003-53")
def test_whole_answer_has_its_envelope() -> None:
    body = chat_body(responses_body(CALL_ITEM))
    assert (body["object"], body["created"], body["model"]) == ("chat.completion", 1, "m")
    assert body["id"]
    assert body["choices"][0]["index"] == 0
    assert body["choices"][0]["message"]["role"] == "assistant"
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 4, 7)


@pytest.mark.requirement("S003-56")
def test_every_call_of_a_turn_is_passed_on() -> None:
    count = 25
    events = [
        event
        for place in range(count)
        for event in responses_call(f"f{place}", ["{}"], place=place)
    ]
    stream = translate("responses", "chat", responses_stream(events))
    opened = [entry for entry in tool_deltas(stream) if entry.get("id")]
    assert [entry["function"]["name"] for entry in opened] == [
        f"f{place}" for place in range(count)
    ]
    assert [entry["index"] for entry in opened] == list(range(count))


@pytest.mark.requirement("S003-60")
@pytest.mark.parametrize("dialect", STREAMS)
def test_what_comes_after_the_end_changes_nothing(dialect: str) -> None:
    again = [*STREAMS[dialect], *STREAMS[dialect]]
    assert translate(dialect, "chat", again) == translate(dialect, "chat", STREAMS[dialect])


@pytest.mark.requirement("S003-61")
def test_arguments_are_written_byte_for_byte() -> None:
    arguments = '{"n": 1.0, "n":2E+3,  "s":"\\u00e9\\/"}'
    stream = translate("responses", "chat", responses_stream(responses_call("f", [arguments])))
    assert (
        "".join(entry["function"].get("arguments", "") for entry in tool_deltas(stream))
        == arguments
    )
    body = chat_body(responses_body({**CALL_ITEM, "arguments": arguments}))
    assert body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == arguments


FAILED: Payload = {
    "type": "response.failed",
    "sequence_number": 9,
    "response": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "failed",
        "output": [],
        "error": {"code": "server_error", "message": "It broke."},
    },
}


@pytest.mark.requirement("S003-62")
def test_failure_before_any_call_is_an_ordinary_error() -> None:
    body = chat_body(
        responses_body(status="failed", error={"code": "server_error", "message": "It broke."})
    )
    assert body["error"]["message"] == "It broke."
    stream = translate("responses", "chat", [RESPONSES_CALL[0], FAILED])
    assert payloads(stream)[-1]["error"]["message"] == "It broke."
    assert b"[DONE]" not in stream


@pytest.mark.requirement("S003-63")
def test_failure_after_a_call_never_pretends_success() -> None:
    stream = translate("responses", "chat", [*RESPONSES_CALL[:-1], FAILED])
    assert payloads(stream)[-1]["error"]["message"] == "It broke."
    assert b"[DONE]" not in stream
    finishes = [
        choice["finish_reason"] for chunk in payloads(stream) for choice in chunk.get("choices", ())
    ]
    assert "tool_calls" not in finishes


@pytest.mark.requirement("S003-42")
def test_streamed_text_is_passed_on() -> None:
    assert text(decode("chat", payloads(translate("chat", "chat", CHAT_TEXT)))) == "Hello"
    assert tool_deltas(
        translate("chat", "chat", [chat_chunk(tool_delta(0, "{}", "c", "f")), "[DONE]"])
    )
