"""Deltas that lost their content, and deltas that are empty."""

import pytest

from dragoman.model.parts import Call
from messages_streams import answer, block_delta, block_stop, input_delta, kinds, parts, tool_use


@pytest.mark.parametrize(
    "delta",
    [
        {"type": "input_json_delta", "partial_jso": '"b":2'},
        {"type": "nput_json_delta", "partial_json": '"b":2'},
    ],
)
def test_call_that_lost_the_content_of_a_delta_is_not_complete(delta: dict[str, object]) -> None:
    data = answer(
        tool_use(0),
        input_delta(0, '{"a":1'),
        block_delta(0, delta),
        input_delta(0, "}"),
        block_stop(0),
        reason="tool_use",
    )
    assert "malformed_frame" in kinds(data)
    calls = [part for part in parts(data) if isinstance(part, Call)]
    assert [call.status for call in calls] == ["incomplete"]


def test_delta_with_nothing_but_its_type_is_empty() -> None:
    data = answer(
        tool_use(0),
        block_delta(0, {"type": "input_json_delta"}),
        input_delta(0, '{"a":1}'),
        block_stop(0),
        reason="tool_use",
    )
    assert kinds(data) == []
    (call,) = parts(data)
    assert isinstance(call, Call)
    assert (call.input, call.status) == ('{"a":1}', "completed")
