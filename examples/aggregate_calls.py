"""Collect tool calls from a stream while it runs, and run only those that are complete.

The chunks are Chat Completions deltas as an SDK yields them; Responses events, Anthropic events, JSON text and the SDKs'
own objects work the same way, also mixed.
"""

import json

from dragoman import ToolCallAggregator

CHUNKS = [
    {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "add", "arguments": ""}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 2, '}}]},
    {
        "tool_calls": [
            {"index": 1, "id": "call_2", "function": {"name": "add", "arguments": '{"a"'}}
        ]
    },
    {"tool_calls": [{"index": 0, "function": {"arguments": '"b": 40}'}}]},
]  # the stream was cut off: the second call never ended


def add(a: int, b: int) -> int:
    return a + b


def main() -> None:
    aggregator = ToolCallAggregator()
    for chunk in CHUNKS:
        for delta in aggregator.ingest_delta(chunk).deltas:
            print(f"{delta.id} {delta.name}: +{delta.arguments_delta!r} = {delta.arguments!r}")

    # The final message repeats the calls that are complete. It closes them and adds no second record.
    function = {"name": "add", "arguments": '{"a": 2, "b": 40}'}
    call = {"id": "call_1", "type": "function", "function": function}
    aggregator.ingest_message({"role": "assistant", "content": None, "tool_calls": [call]})

    for record in aggregator.snapshot():
        if record.executable:
            print(f"{record.id}: {add(**json.loads(record.arguments))}")
        else:
            print(f"{record.id}: not run, {record.reason}: {record.arguments!r}")


if __name__ == "__main__":
    main()
