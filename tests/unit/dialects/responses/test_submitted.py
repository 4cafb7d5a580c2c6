"""Reading the body of `submit_tool_outputs`."""

import pytest

from dragoman._json import dumps
from dragoman.dialects.responses.turns import read_submitted
from dragoman.errors import RequestRefused
from dragoman.model.parts import Call, Media, Result, Text
from dragoman.model.request import Request

CALLS = (
    Call(call_id="call_a", name="read", input="{}"),
    Call(call_id="call_b", name="patch", input="*** Begin", kind="custom"),
)


def results(request: Request) -> list[Result]:
    return [part for turn in request.turns for part in turn.parts if isinstance(part, Result)]


def submitted(*outputs: dict[str, object], **fields: object) -> bytes:
    return dumps({"tool_outputs": list(outputs), **fields})


def test_results_answer_their_calls_by_either_spelling_of_the_id() -> None:
    body = submitted(
        {"tool_call_id": "call_a", "output": "42"}, {"call_id": "call_b", "output": "done"}
    )
    request = read_submitted(body, CALLS)
    assert results(request) == [
        Result(call_id="call_a", content=(Text(text="42"),)),
        Result(call_id="call_b", content=(Text(text="done"),), kind="custom"),
    ]
    assert request.stream is False
    assert {turn.role for turn in request.turns} == {"tool"}


def test_a_stream_is_given_to_who_asks_for_one() -> None:
    body = submitted({"call_id": "call_a", "output": ""}, stream=True)
    assert read_submitted(body, CALLS[:1]).stream is True


def test_content_parts_and_other_json_are_outputs_too() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    (parts,) = results(
        read_submitted(submitted({"call_id": "call_a", "output": [image]}), CALLS[:1])
    )
    assert isinstance(parts.content[0], Media)
    (other,) = results(
        read_submitted(b'{"tool_outputs":[{"call_id":"call_a","output":{"n":1.0}}]}', CALLS[:1])
    )
    assert other.content == (Text(text='{"n":1.0}'),)


@pytest.mark.parametrize(
    "entry", [{"error": "no such file"}, {"output": "no such file", "is_error": True}]
)
def test_a_tool_that_failed_gives_a_result_that_says_so(entry: dict[str, object]) -> None:
    (result,) = results(read_submitted(submitted({"call_id": "call_a", **entry}), CALLS[:1]))
    assert result.is_error
    assert result.content == (Text(text="no such file"),)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"[]", None, "object"),
        (b"{}", "tool_outputs", "call_a, call_b"),
        (b'{"tool_outputs":{}}', "tool_outputs", "an array"),
        (b'{"tool_outputs":[1]}', "tool_outputs[0]", "an object"),
        (b'{"outputs":[]}', "outputs", "outputs"),
        (submitted({"output": "x"}), "tool_outputs[0].tool_call_id", "id of a call"),
        (submitted({"call_id": "call_x", "output": "x"}), "tool_outputs[0].tool_call_id", "call_x"),
        (submitted({"call_id": "call_a"}), "tool_outputs[0].output", "the output of the tool"),
        (
            submitted({"call_id": "call_a", "error": None}),
            "tool_outputs[0].output",
            "the output of the tool",
        ),
        (submitted({"call_id": "call_a", "output": "x"}), "tool_outputs", "call_b"),
        (
            submitted({"call_id": "call_a", "output": "x"}, {"call_id": "call_a", "output": "y"}),
            "tool_outputs[1].tool_call_id",
            "call_a",
        ),
        (submitted({"call_id": "call_a", "output": "x"}, stream=1), "tool_outputs", "call_b"),
    ],
)
def test_what_cannot_be_used_is_refused_and_named(
    body: bytes, param: str | None, words: str
) -> None:
    with pytest.raises(RequestRefused) as caught:
        read_submitted(body, CALLS)
    assert caught.value.param == param
    assert words in caught.value.message
