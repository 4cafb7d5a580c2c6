"""What a caller hands over, as JSON documents."""

import copy
import json
from collections import UserDict
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from openai.types.chat import ChatCompletionChunk

from dragoman.errors import MalformedJson
from dragoman.toolcalls.payloads import DONE, is_empty, to_documents

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
