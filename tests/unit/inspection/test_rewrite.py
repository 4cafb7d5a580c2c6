"""A recording in another dialect."""

import json

import pytest

from dragoman.inspection.examine import examine
from dragoman.inspection.recognise import DialectName, recognise
from dragoman.inspection.rewrite import rewrite

CHUNKS: tuple[dict[str, object], ...] = (
    {"role": "assistant", "content": "Hi", "tool_calls": None},
    {
        "tool_calls": [
            {
                "index": 0,
                "id": "call_1",
                "type": "function",
                "function": {"name": "f", "arguments": "{}"},
            }
        ]
    },
)
STREAM = (
    b"".join(
        b"data: "
        + json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
        ).encode()
        + b"\n\n"
        for delta, finish in (*((chunk, None) for chunk in CHUNKS), ({}, "tool_calls"))
    )
    + b"data: [DONE]\n\n"
)
BODY = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
).encode()


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
def test_a_stream_stays_a_stream_with_the_same_calls(target: DialectName) -> None:
    found = recognise(rewrite(recognise(STREAM), target).data)
    report = examine(found)
    assert (found.dialect, found.form) == (target, "stream")
    assert [(call.id, call.name, call.arguments) for call in report.calls] == [
        ("call_1", "f", "{}")
    ]
    assert (report.choices[0].text, report.problems) == ("Hi", ())


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
def test_a_body_stays_a_body_with_the_same_calls(target: DialectName) -> None:
    found = recognise(rewrite(recognise(BODY), target).data)
    report = examine(found)
    assert (found.dialect, found.form) == (target, "body")
    assert [(call.id, call.name) for call in report.calls] == [("toolu_1", "f")]
    assert json.loads(report.calls[0].arguments) == {"x": 1}
    assert report.problems == ()
