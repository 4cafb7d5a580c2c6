"""Payloads as JSON documents, and the shapes by which their dialect is recognised."""

import copy
import json
from collections import UserDict
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from openai.types.chat import ChatCompletionChunk

from dragoman.errors import MalformedJson
from dragoman.toolcalls.payloads import (
    DONE,
    Payload,
    PayloadContext,
    is_empty,
    shapes_of,
    source_of,
    to_documents,
)

CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}],
}


class Dumping:
    """Something like an SDK's object."""

    def __init__(self, value: object) -> None:
        self.value = value

    def model_dump(self, *, mode: str, by_alias: bool, warnings: bool) -> object:
        assert (mode, by_alias, warnings) == ("json", True, False)
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def read(payload: object) -> list[object]:
    return [json.loads(document) for document in to_documents(payload)]


@pytest.mark.parametrize("payload", [None, "", b"", bytearray(), {}, [], ()])
def test_nothing_is_empty(payload: object) -> None:
    assert is_empty(payload)


@pytest.mark.parametrize("payload", ["x", b" ", {"a": None}, [None], 0, False])
def test_something_is_not_empty(payload: object) -> None:
    assert not is_empty(payload)


def test_bytes_and_text_are_taken_as_they_are() -> None:
    assert to_documents(b'  {"n": 1.0,  "n": 2}\n') == [b'{"n": 1.0,  "n": 2}']
    assert to_documents('{"a": "é"}') == ['{"a": "é"}'.encode()]
    assert to_documents(bytearray(b"\xef\xbb\xbf{}")) == [b"{}"]


def test_array_is_its_entries() -> None:
    assert to_documents(b'[{"a": 1}, {"b" : 2}]') == [b'{"a": 1}', b'{"b" : 2}']
    assert read([{"a": 1}, None, {}, {"b": 2}]) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("payload", ["[DONE]", b" [done] ", "data: [DONE]\n\n", b"data:[DONE]"])
def test_end_marker_is_recognised(payload: object) -> None:
    assert to_documents(payload) == [DONE]


def test_frames_are_their_data() -> None:
    frames = b': hello\n\nevent: x\ndata: {"a": 1}\n\ndata: {"b":\ndata: 2}\n\ndata: [DONE]\n\n'
    assert to_documents(frames) == [b'{"a": 1}', b'{"b":\n2}', DONE]
    assert to_documents(b": only a comment\n\n") == []


@pytest.mark.parametrize("payload", [b"hello", b"[1,", "   ", object(), {"a": object()}])
def test_what_is_no_payload_is_refused(payload: object) -> None:
    with pytest.raises(MalformedJson):
        to_documents(payload)


@pytest.mark.parametrize(
    "payload",
    [MappingProxyType(CHUNK), UserDict(CHUNK), Dumping(CHUNK), {**CHUNK}],
)
def test_mappings_and_objects_are_written(payload: object) -> None:
    assert read(payload) == [CHUNK]


def test_sdk_objects_are_written_wherever_they_stand() -> None:
    chunk = ChatCompletionChunk.model_validate(CHUNK)
    (whole,) = read(chunk)
    (mixed,) = read({**CHUNK, "choices": [chunk.choices[0], Dumping((1, 2.5, True))]})
    assert isinstance(whole, dict)
    assert isinstance(mixed, dict)
    assert whole["choices"][0]["delta"]["content"] == "Hi"
    assert mixed["choices"][0] == whole["choices"][0]
    assert mixed["choices"][1] == [1, 2.5, True]


def test_object_that_cannot_be_dumped_is_refused_without_its_words() -> None:
    with pytest.raises(MalformedJson) as caught:
        to_documents(Dumping(RuntimeError("secret")))
    assert "RuntimeError" in caught.value.message
    assert "secret" not in caught.value.message


def test_endless_mapping_is_refused() -> None:
    endless: dict[str, object] = {}
    endless["again"] = endless
    with pytest.raises(MalformedJson):
        to_documents(endless)


def test_payload_is_not_changed() -> None:
    payload: Mapping[str, object] = {**CHUNK, "x": {"y": [Dumping(1)]}}
    before = copy.copy(payload)
    to_documents(payload)
    assert payload == before


def test_halves_of_characters_survive_in_a_mapping() -> None:
    assert to_documents({"delta": "\ud83d"}) == [b'{"delta":"\\ud83d"}']


CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"tool_calls": [CALL]}

RECOGNISED: list[tuple[object, str, bool]] = [
    ({"type": "response.created", "response": {}}, "responses", False),
    ({"type": "response.function_call_arguments.delta", "delta": "x"}, "responses", False),
    ({"type": "keepalive"}, "responses", False),
    ({"type": "error", "code": "x", "message": "y"}, "responses", False),
    ({"type": "error", "error": {"message": "y"}, "sequence_number": 3}, "responses", False),
    ({"type": "error", "error": {"type": "overloaded_error"}}, "messages", False),
    ({"type": "ping"}, "messages", False),
    ({"type": "content_block_delta", "delta": {}}, "messages", False),
    ({"object": "response", "output": None}, "responses", True),
    ({"output": []}, "responses", True),
    ({"type": "function_call", "name": "f"}, "responses", True),
    ({"type": "custom_tool_call", "name": "f"}, "responses", True),
    ({"type": "function_call_output", "output": "x"}, "responses", True),
    ({"type": "reasoning", "summary": []}, "responses", True),
    ({"type": "message", "role": "assistant", "content": []}, "responses", True),
    (
        {"type": "message", "content": [{"type": "output_text", "text": "x"}]},
        "responses",
        True,
    ),
    ({"type": "message", "content": [{"type": "tool_use"}]}, "messages", True),
    ({"type": "message", "content": [], "stop_reason": "end_turn"}, "messages", True),
    ({"type": "tool_use", "id": "a", "name": "f", "input": {}}, "messages", True),
    ({"type": "text", "text": "x"}, "messages", True),
    ({"type": "web_search_tool_result", "content": []}, "messages", True),
    ({"choices": [{"delta": {}}]}, "chat", False),
    ({"choices": [{"message": {}}]}, "chat", True),
    ({"choices": [], "error": {"message": "x"}}, "chat", False),
    ({"choices": {"delta": {}}}, "chat", False),
    ({"error": {"message": "x"}}, "chat", False),
    (CALLS, "chat", False),
    ({"function_call": {"name": "f"}}, "chat", False),
    ({"content": "x"}, "chat", False),
    (CALL, "chat", False),
    ({"type": "custom", "custom": {"name": "f"}}, "chat", False),
    ({"delta": CALLS, "index": 0}, "chat", False),
    ({"message": {"content": "x"}}, "chat", True),
    ({"type": "chunk", "chunk": {"choices": [{"delta": {}}]}}, "chat", False),
    ({"method": "item/started", "params": {}}, "codex", False),
    ({"method": "error", "params": {}}, "codex", False),
    ({"type": "dynamicToolCall", "id": "c", "tool": "f"}, "codex", False),
]


def shapes(payload: object, place: PayloadContext | None = None) -> tuple[Payload, ...] | None:
    return shapes_of(json.dumps(payload).encode(), place or PayloadContext())


def only(payload: object, place: PayloadContext | None = None) -> Payload:
    found = shapes(payload, place)
    assert found is not None
    (shape,) = found
    return shape


@pytest.mark.parametrize(("payload", "dialect", "is_whole"), RECOGNISED)
def test_payload_is_recognised_by_its_shape(payload: object, dialect: str, is_whole: bool) -> None:
    shape = only(payload)
    assert (shape.dialect, shape.is_whole) == (dialect, is_whole)
    assert json.loads(shape.data)


@pytest.mark.parametrize(
    "payload",
    [
        {"choices": []},
        {"choices": None, "usage": {}},
        {"id": 1, "result": {}},
        {"tool_name": None},
        {"type": "tool_calls.function.arguments.delta", "arguments": "{"},
        {"type": "content.delta", "delta": "x"},
        {"type": "input_json", "partial_json": "x", "snapshot": {}},
        {"type": "text", "text": "x", "snapshot": "x"},
        {"method": "codex/event/token_count", "params": {"msg": {"type": "token_count"}}},
        {"method": "codex/event/task_started"},
    ],
)
def test_payload_with_nothing_for_us_is_nothing(payload: object) -> None:
    assert shapes(payload) == ()


@pytest.mark.parametrize("payload", [{"foo": 1}, {"type": "unheard_of"}, {"type": "function"}])
def test_unknown_shape_is_said_to_be_unknown(payload: object) -> None:
    assert shapes(payload) is None


@pytest.mark.parametrize("data", [b"7", b"[]", b"{", b"\xff"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedJson):
        shapes_of(data, PayloadContext())


def test_bare_delta_is_put_into_a_chunk() -> None:
    shape = only(CALLS, PayloadContext(choice=2))
    assert json.loads(shape.data) == {
        "choices": [{"index": 2, "delta": CALLS, "finish_reason": None}]
    }
    assert shape.choice == 2


@pytest.mark.parametrize(("message", "finish"), [(CALLS, "tool_calls"), ({"content": "x"}, "stop")])
def test_bare_message_is_put_into_a_body_that_has_ended(message: object, finish: str) -> None:
    shape = only(message, PayloadContext(choice=1, is_final=True))
    assert json.loads(shape.data) == {
        "choices": [{"index": 1, "message": message, "finish_reason": finish}]
    }
    assert shape.is_whole


def test_choice_keeps_its_own_index_and_finish() -> None:
    shape = only({"index": 3, "delta": CALLS, "finish_reason": "length"})
    assert shape.choice == 3
    assert json.loads(shape.data)["choices"][0]["finish_reason"] == "length"


def test_chunk_with_several_choices_is_taken_apart() -> None:
    choices: list[object] = [{"index": 1, "delta": {}}, {"delta": {"content": "x"}}]
    found = shapes({"id": "c", "choices": choices}, PayloadContext(choice=5))
    assert found is not None
    assert [(shape.choice, json.loads(shape.data)) for shape in found] == [
        (1, {"choices": [choices[0]]}),
        (5, {"choices": [choices[1]]}),
    ]


def test_finished_answer_without_a_message_is_still_whole() -> None:
    nothing: dict[str, object] = {}
    assert only({"choices": [nothing]}, PayloadContext(is_final=True)).is_whole
    assert not only({"choices": [{"delta": nothing}]}, PayloadContext(is_final=True)).is_whole


@pytest.mark.parametrize(
    "wrapped",
    [
        {"method": "agentMessageDelta", "params": {"delta": CALLS, "choice_index": 4}},
        {
            "method": "codex/event/agent_message_delta",
            "params": {"choiceIndex": 4, "msg": {"type": "agent_message_delta", "delta": CALLS}},
        },
        {"type": "agent_message_delta", "choice_index": 4, "msg": CALLS},
        {"msg": {"type": "agent_message_delta", "delta": CALLS, "choice_index": 4}},
        {"choice_index": 4, "delta": CALLS},
    ],
)
def test_wrapping_of_the_first_codex_protocol_is_taken_off(wrapped: object) -> None:
    shape = only(wrapped)
    assert (shape.dialect, shape.choice, shape.is_whole) == ("chat", 4, False)
    assert json.loads(shape.data)["choices"][0]["delta"] == CALLS


def test_wrapped_text_is_content() -> None:
    delta = only({"type": "agent_message_delta", "delta": "x"})
    assert json.loads(delta.data)["choices"][0]["delta"] == {"content": "x"}
    message = only({"type": "agent_message", "message": "x"})
    assert message.is_whole
    assert json.loads(message.data)["choices"][0]["message"] == {"content": "x"}


def test_wrapped_message_is_whole() -> None:
    shape = only({"method": "agentMessage", "params": {"message": CALLS}})
    assert shape.is_whole
    assert json.loads(shape.data)["choices"][0]["message"] == CALLS


@pytest.mark.parametrize(
    ("wrapped", "dialect"),
    [
        ({"msg": {"type": "raw_response_item", "item": {"type": "function_call"}}}, "responses"),
        ({"type": "agent_message_delta", "delta": {"type": "response.created"}}, "responses"),
        ({"msg": {"delta": {"type": "content_block_stop", "index": 0}}}, "messages"),
        ({"delta": {"method": "item/started", "params": {}}}, "codex"),
    ],
)
def test_wrapped_payloads_of_other_dialects_are_theirs(wrapped: object, dialect: str) -> None:
    assert only(wrapped).dialect == dialect


def test_endless_wrapping_is_given_up() -> None:
    payload: object = CALLS
    for _ in range(20):
        payload = {"type": "agent_message", "msg": payload}
    assert shapes(payload) == ()


def test_codex_item_that_comes_alone_is_put_into_a_notification() -> None:
    item = {"type": "dynamicToolCall", "id": "c", "tool": "f"}
    assert json.loads(only(item).data) == {"method": "item/started", "params": {"item": item}}
    final = only(item, PayloadContext(is_final=True))
    assert json.loads(final.data)["method"] == "item/completed"


def test_conversations_of_codex_are_distinguished() -> None:
    params = {"threadId": "t", "turnId": "u"}
    assert only({"method": "item/started", "params": params}).stream == "t/u"
    turn = {"threadId": "t", "turn": {"id": "v"}}
    assert only({"method": "turn/started", "params": turn}).stream == "t/v"


@pytest.mark.parametrize(
    "payload",
    [
        {"id": "x"},
        {"response": {"id": "x"}},
        {"message": {"id": "x"}},
        {"id": 7, "response": {"id": "x"}},
    ],
)
def test_answer_is_known_by_its_id(payload: object) -> None:
    assert source_of(json.dumps(payload).encode()) == "x"


def test_answer_without_an_id_has_no_source() -> None:
    assert source_of(b"{}") == ""
