"""One call in every dialect, as payloads of a stream and as a body."""

from collections.abc import Mapping, Sequence

Payload = Mapping[str, object]


def tool_delta(
    arguments: str, index: int = 0, call_id: str | None = None, name: str | None = None
) -> dict[str, object]:
    """A bare Chat delta."""
    function = {"arguments": arguments} | ({"name": name} if name is not None else {})
    entry: dict[str, object] = {"index": index, "function": function}
    if call_id is not None:
        entry |= {"id": call_id, "type": "function"}
    return {"tool_calls": [entry]}


def chunk(delta: Payload, finish: str | None = None, choice: int = 0) -> Payload:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": choice, "delta": delta, "finish_reason": finish}],
    }


def chat_stream(pieces: Sequence[str], choice: int = 0) -> list[Payload]:
    return [
        chunk({"role": "assistant", "content": "Wait. "}, choice=choice),
        chunk(tool_delta("", 0, "call_1", "f"), choice=choice),
        *(chunk(tool_delta(piece), choice=choice) for piece in pieces),
        chunk({}, "tool_calls", choice),
    ]


def chat_call(arguments: str, call_id: str | None = "call_1", name: str = "f") -> dict[str, object]:
    call: dict[str, object] = {
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return call if call_id is None else {"id": call_id, **call}


def chat_body(*calls: object, text: str | None = "Wait. ", finish: str = "tool_calls") -> Payload:
    message: dict[str, object] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }


def function_item(arguments: str, status: str) -> Payload:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "f",
        "arguments": arguments,
        "status": status,
    }


def response(output: list[Payload], status: str) -> dict[str, object]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": status,
        "output": output,
    }


def responses_stream(pieces: Sequence[str]) -> list[Payload]:
    whole = "".join(pieces)
    where = {"item_id": "fc_1", "output_index": 0}
    events: list[dict[str, object]] = [
        {"type": "response.created", "response": response([], "in_progress")},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": function_item("", "in_progress"),
        },
        *(
            {"type": "response.function_call_arguments.delta", **where, "delta": piece}
            for piece in pieces
        ),
        {"type": "response.function_call_arguments.done", **where, "arguments": whole},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": function_item(whole, "completed"),
        },
        {
            "type": "response.completed",
            "response": response([function_item(whole, "completed")], "completed"),
        },
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def responses_body(arguments: str, text: str = "Wait. ") -> Payload:
    content: list[object] = [{"type": "output_text", "text": text, "annotations": []}]
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    return response([message, function_item(arguments, "completed")], "completed")


def messages_stream(pieces: Sequence[str]) -> list[Payload]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    return [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": usage,
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "call_1", "name": "f", "input": {}},
        },
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]


def messages_body(*blocks: object) -> Payload:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(blocks),
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def codex_stream(arguments: object) -> list[Payload]:
    where = {"threadId": "t", "turnId": "u"}
    call = {"namespace": None, "tool": "f", "arguments": arguments}
    item = {"type": "dynamicToolCall", "id": "call_1", **call}
    return [
        {"method": "turn/started", "params": {"threadId": "t", "turn": {"id": "u"}}},
        {"method": "item/started", "params": {**where, "item": {**item, "status": "inProgress"}}},
        {"method": "item/tool/call", "id": 0, "params": {**where, "callId": "call_1", **call}},
        {"method": "item/completed", "params": {**where, "item": {**item, "status": "completed"}}},
        {
            "method": "turn/completed",
            "params": {**where, "turn": {"id": "u", "status": "completed"}},
        },
    ]
