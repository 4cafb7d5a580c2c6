"""Anthropic Messages, as Anthropic serves it."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from clients.script import Conversation, ModelTurn, SeenCall, SeenResult, SpokenCall, Tool
from clients.wire.chat import pieces

__all__ = (
    "ID_PREFIX",
    "body",
    "error_body",
    "error_frames",
    "read",
    "stream",
    "threads_refused",
)

ID_PREFIX = "toolu_"
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
FIELDS = frozenset((
    "model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "temperature",
    "top_p", "top_k", "thinking", "stop_sequences", "metadata", "service_tier", "container",
    "mcp_servers", "context_management", "output_config", "output_format", "speed",
    "cache_control", "inference_geo", "fallbacks",
))  # fmt: skip
BLOCKS = frozenset((
    "text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking",
    "search_result", "server_tool_use", "web_search_tool_result", "tool_reference",
))  # fmt: skip
USAGE = {
    "input_tokens": 11,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 7,
    "output_tokens_details": None,
    "server_tool_use": None,
    "service_tier": "standard",
    "inference_geo": "global",
}
END_USAGE = {
    "input_tokens": 11,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 7,
    "server_tool_use": None,
}
NO_STOP = {"stop_reason": None, "stop_sequence": None, "stop_details": None, "container": None}
MAX_USER = 256


def read(request: Any) -> Conversation:
    seen = Conversation(model=request["model"], stream=bool(request.get("stream")))
    seen.object_if(unknown := set(request) - FIELDS, f"unknown fields {sorted(unknown)}")
    limit = request.get("max_tokens")
    seen.object_if(not isinstance(limit, int) or limit < 1, f"max_tokens: {limit!r}")
    metadata: Any = request.get("metadata") or {}
    user = str(metadata.get("user_id") or "")
    seen.object_if(len(user) > MAX_USER, f"metadata.user_id: {user!r}")
    _check_thinking(seen, request)
    for tool in request.get("tools") or ():
        _read_tool(seen, tool)
    if isinstance(request.get("system"), list):
        for index, block in enumerate(request["system"]):
            _check_block(seen, f"system.{index}", block)
    waiting: list[str] = []
    messages: Any = request.get("messages") or []
    seen.object_if(not messages, "messages: at least one message is required")
    if messages:
        seen.object_if(messages[0].get("role") != "user", "messages.0: must be of the user")
    for index, message in enumerate(messages):
        _read_message(seen, f"messages.{index}", message, waiting)
    seen.object_if(waiting, f"tool_use without tool_result at the end: {waiting}")
    seen.check_pairs()
    return seen


def _check_thinking(seen: Conversation, request: Any) -> None:
    thinking: Any = request.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens")
        seen.object_if(not isinstance(budget, int) or budget < 1024, f"thinking budget {budget!r}")
        limit = request.get("max_tokens") or 0
        seen.object_if((budget or 0) >= limit, f"thinking budget {budget} with max_tokens {limit}")
    temperature = request.get("temperature")
    seen.object_if(temperature is not None and temperature > 1, f"temperature {temperature}")


def _read_tool(seen: Conversation, tool: Any) -> None:
    name = tool.get("name", "")
    seen.object_if(not NAME.fullmatch(name), f"tool name {name!r}")
    seen.object_if(any(known.name == name for known in seen.tools), f"two tools {name!r}")
    if tool.get("type", "custom") == "custom":
        schema: Any = tool.get("input_schema") or {}
        seen.object_if(schema.get("type") != "object", f"{name}: input_schema {schema!r}")
    seen.tools.append(Tool(name, None, "function", tool.get("input_schema")))


def _read_message(seen: Conversation, where: str, message: Any, waiting: list[str]) -> None:
    role, content = message.get("role"), message.get("content")
    # Newer models take `system` among the messages; Claude Code sends it in its own dialect.
    seen.object_if(role not in ("user", "assistant", "system"), f"{where}: role {role!r}")
    seen.object_if(set(message) - {"role", "content"}, f"{where}: keys {sorted(message)}")
    if isinstance(content, str):
        seen.object_if(waiting, f"{where}: text before the results of {waiting}")
        seen.object_if(not content.strip(), f"{where}: empty text")
        return
    seen.object_if(not content, f"{where}: no content")
    others = False
    for block in content or ():
        _check_block(seen, where, block)
        if block.get("type") == "tool_result":
            call_id = block.get("tool_use_id")
            seen.object_if(others, f"{where}: a tool_result after another block")
            seen.object_if(call_id not in waiting, f"{where}: no tool_use just before: {call_id}")
            if call_id in waiting:
                waiting.remove(call_id)
            seen.results.append(SeenResult(call_id, _text(seen, where, block.get("content"))))
        else:
            others = True
    seen.object_if(waiting, f"{where}: {role} message without the results of {waiting}")
    if role == "assistant":
        waiting += _read_calls(seen, where, content or [])


def _read_calls(seen: Conversation, where: str, content: Any) -> list[str]:
    ids: list[str] = []
    for block in content:
        if block.get("type") == "tool_use":
            call_id, value = block.get("id", ""), block.get("input")
            seen.object_if(not CALL_ID.fullmatch(call_id), f"{where}: id {call_id!r}")
            seen.object_if(not isinstance(value, dict), f"{where}: input {value!r}")
            seen.calls.append(SeenCall(call_id, block.get("name", ""), json.dumps(value)))
            ids.append(call_id)
    return ids


def _check_block(seen: Conversation, where: str, block: Any) -> None:
    kind = block.get("type")
    seen.object_if(kind not in BLOCKS, f"{where}: block of type {kind!r}")
    if kind == "text":
        seen.object_if(not block.get("text", "").strip(), f"{where}: empty text block")
    if kind == "thinking":
        signature = block.get("signature")
        seen.object_if(signature != _sign(block["thinking"]), f"{where}: signature {signature!r}")


def _sign(thinking: str) -> str:
    """A signature is good for the text it was made for, and no other."""
    return b64encode(f"signed: {thinking}".encode()).decode()


def _text(seen: Conversation, where: str, content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for block in content:
        _check_block(seen, where, block)
    return "".join(block.get("text", "") for block in content)


def body(turn: ModelTurn, calls: list[SpokenCall], model: str) -> bytes:
    blocks: list[str] = []
    if turn.thinking:
        thinking = {
            "type": "thinking",
            "thinking": turn.thinking,
            "signature": _sign(turn.thinking),
        }
        blocks.append(json.dumps(thinking))
    if turn.text:
        blocks.append(json.dumps({"type": "text", "text": turn.text, "citations": []}))
    for call in calls:
        # The input is spliced in as it is, so that number spellings and escapes are those of the script.
        head = json.dumps({"type": "tool_use", "id": call.id, "name": call.tool.name})
        blocks.append(f'{head[:-1]}, "input": {call.input}, "caller": {{"type": "direct"}}}}')
    content = f"[{', '.join(blocks)}]"
    finish = "tool_use" if calls else "end_turn"
    usage = {**USAGE, "output_tokens_details": _details(turn)}
    rest = {**NO_STOP, "stop_reason": finish, "usage": usage}
    head = json.dumps({"id": "msg_1", "type": "message", "role": "assistant", "model": model})
    return f'{head[:-1]}, "content": {content}, {json.dumps(rest)[1:]}'.encode()


def _details(turn: ModelTurn) -> dict[str, int]:
    return {"thinking_tokens": 3 if turn.thinking else 0}


def stream(turn: ModelTurn, calls: list[SpokenCall], model: str) -> Iterator[tuple[str, bytes]]:
    """Frames, each with a word that says what it carries."""
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        **NO_STOP,
        "usage": {**USAGE, "output_tokens": 1},
    }
    yield "start", _frame({"type": "message_start", "message": message})
    yield "start", _frame({"type": "ping"})
    index = 0
    if turn.thinking:
        yield "start", _open(index, {"type": "thinking", "thinking": "", "signature": ""})
        for piece in pieces(turn.thinking):
            yield "thinking", _delta(index, {"type": "thinking_delta", "thinking": piece})
        yield (
            "thinking",
            _delta(index, {"type": "signature_delta", "signature": _sign(turn.thinking)}),
        )
        yield "thinking", _frame({"type": "content_block_stop", "index": index})
        index += 1
    if turn.text:
        yield "start", _open(index, {"type": "text", "text": "", "citations": []})
        for piece in pieces(turn.text):
            yield "text", _delta(index, {"type": "text_delta", "text": piece})
        yield "text", _frame({"type": "content_block_stop", "index": index})
        index += 1
    for call in calls:
        block: Any = {"type": "tool_use", "id": call.id, "name": call.tool.name, "input": {}}
        yield "call", _open(index, {**block, "caller": {"type": "direct"}})
        yield "call", _delta(index, {"type": "input_json_delta", "partial_json": ""})
        for piece in pieces(call.input):
            yield "input", _delta(index, {"type": "input_json_delta", "partial_json": piece})
        yield "stop", _frame({"type": "content_block_stop", "index": index})
        index += 1
    delta = {**NO_STOP, "stop_reason": "tool_use" if calls else "end_turn"}
    usage = {**END_USAGE, "output_tokens_details": _details(turn)}
    yield "end", _frame({"type": "message_delta", "delta": delta, "usage": usage})
    yield "end", _frame({"type": "message_stop"})


def _open(index: int, block: object) -> bytes:
    return _frame({"type": "content_block_start", "index": index, "content_block": block})


def _delta(index: int, delta: object) -> bytes:
    return _frame({"type": "content_block_delta", "index": index, "delta": delta})


def _frame(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def error_body(kind: str, message: str) -> bytes:
    error = {"type": kind, "message": message}
    return json.dumps({"type": "error", "error": error, "request_id": "req_1"}).encode()


def threads_refused() -> bytes:
    """What makes the SDKs' tool runners send the whole history instead of `thread`."""
    details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    message = "message threads are not supported"
    error = {"type": "invalid_request_error", "message": message, "details": details}
    return json.dumps({"type": "error", "error": error, "request_id": "req_1"}).encode()


def error_frames(message: str) -> bytes:
    return b"event: error\ndata: " + error_body("api_error", message) + b"\n\n"
