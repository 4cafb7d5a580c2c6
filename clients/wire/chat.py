"""OpenAI Chat Completions, as OpenAI serves it."""

import json
import re
from collections.abc import Iterator
from typing import Any

from clients.script import Conversation, ModelTurn, SeenCall, SeenResult, SpokenCall, Tool

__all__ = ("ID_PREFIX", "MAX_USER", "body", "error_body", "error_frames", "read", "stream")

ID_PREFIX = "call_"
ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_ID = 40
MAX_USER = 128  # of OpenRouter and Zhipu; Claude Code names its user in more
FIELDS = frozenset((
    "messages", "model", "stream", "stream_options", "tools", "tool_choice",
    "parallel_tool_calls", "max_tokens", "max_completion_tokens", "temperature", "top_p", "n",
    "stop", "seed", "user", "metadata", "store", "reasoning_effort", "response_format",
    "service_tier", "logprobs", "top_logprobs", "presence_penalty", "frequency_penalty",
    "logit_bias", "prediction", "modalities", "audio", "verbosity", "web_search_options",
    "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
))  # fmt: skip
USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
}


def read(request: Any) -> Conversation:
    seen = Conversation(model=request["model"], stream=bool(request.get("stream")))
    seen.object_if(unknown := set(request) - FIELDS, f"unknown parameters {sorted(unknown)}")
    seen.object_if(not request.get("messages"), "messages: empty")
    seen.object_if("stream_options" in request and not seen.stream, "stream_options, no stream")
    seen.object_if(len(request.get("user") or "") > MAX_USER, f"user: {request.get('user')!r}")
    tools = request.get("tools")
    seen.object_if(tools == [], "tools: empty array")
    for key in ("tool_choice", "parallel_tool_calls"):
        seen.object_if(request.get(key) is not None and not tools, f"{key} without tools")
    for tool in tools or ():
        _read_tool(seen, tool)
    waiting: list[str] = []
    for index, message in enumerate(request.get("messages") or ()):
        _read_message(seen, f"messages[{index}]", message, waiting)
    seen.object_if(waiting, f"calls without results at the end: {waiting}")
    seen.check_pairs()
    return seen


def _read_tool(seen: Conversation, tool: Any) -> None:
    kind = tool.get("type")
    seen.object_if(kind not in ("function", "custom"), f"tool type {kind!r}")
    if kind in ("function", "custom"):
        inner = tool[kind]
        name = inner["name"]
        seen.object_if(not NAME.fullmatch(name), f"tool name {name!r}")
        seen.object_if(any(known.name == name for known in seen.tools), f"two tools {name!r}")
        seen.tools.append(Tool(name, None, kind, inner.get("parameters")))


def _read_message(seen: Conversation, where: str, message: Any, waiting: list[str]) -> None:
    role = message.get("role")
    seen.object_if(role not in ROLES, f"{where}: role {role!r}")
    if role == "tool":
        call_id = message.get("tool_call_id")
        seen.object_if(call_id not in waiting, f"{where}: result of no call just before: {call_id}")
        if call_id in waiting:
            waiting.remove(call_id)
        seen.results.append(SeenResult(call_id, _text(seen, where, message.get("content"))))
        return
    seen.object_if(waiting, f"{where}: {role} before the results of {waiting}")
    if role == "assistant":
        calls = message.get("tool_calls")
        seen.object_if(calls == [], f"{where}: tool_calls is an empty array")
        seen.object_if(message.get("content") is None and not calls, f"{where}: says nothing")
        for call in calls or ():
            _read_call(seen, where, call)
            waiting.append(call["id"])
    if message.get("content") is not None:
        _text(seen, where, message["content"])
    seen.object_if(role != "assistant" and message.get("content") is None, f"{where}: no content")


def _read_call(seen: Conversation, where: str, call: Any) -> None:
    kind = call.get("type")
    seen.object_if(kind not in ("function", "custom"), f"{where}: call type {kind!r}")
    inner: Any = call.get(kind) or {}
    text = inner.get("arguments" if kind == "function" else "input")
    seen.object_if(not isinstance(text, str), f"{where}: arguments are no string: {text!r}")
    seen.object_if(len(call["id"]) > MAX_ID, f"{where}: id longer than {MAX_ID}: {call['id']}")
    seen.object_if(not NAME.fullmatch(inner.get("name", "")), f"{where}: name in {inner!r}")
    seen.calls.append(SeenCall(call["id"], inner.get("name", ""), str(text)))


def _text(seen: Conversation, where: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    kinds = [part.get("type") for part in content]
    seen.object_if(not content, f"{where}: content is an empty array")
    allowed = {"text", "image_url", "input_audio", "file", "refusal"}
    seen.object_if(not set(kinds) <= allowed, f"{where}: content of {kinds}")
    return "".join(part.get("text", "") for part in content)


def body(turn: ModelTurn, calls: list[SpokenCall], model: str) -> bytes:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": turn.text or None,
        "refusal": None,
        "annotations": [],
    }
    if turn.thinking:
        message["reasoning_content"] = turn.thinking
    if calls:
        message["tool_calls"] = [_whole(call) for call in calls]
    finish = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1700000000, "model": model}
    return json.dumps({**head, "choices": [choice], "usage": _usage(turn)}).encode()


def _usage(turn: ModelTurn) -> dict[str, Any]:
    return {**USAGE, "completion_tokens_details": {"reasoning_tokens": 3 if turn.thinking else 0}}


def _whole(call: SpokenCall) -> dict[str, Any]:
    key = "arguments" if call.tool.kind == "function" else "input"
    inner = {"name": call.tool.name, key: call.input}
    return {"id": call.id, "type": call.tool.kind, call.tool.kind: inner}


def stream(turn: ModelTurn, calls: list[SpokenCall], model: str) -> Iterator[tuple[str, bytes]]:
    """Frames, each with a word that says what it carries: `start`, `text`, `input`, `end`."""

    def chunk(delta: object, finish: str | None = None, **more: object) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _frame({**head, "choices": [choice], **more})

    head = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": model,
    }
    yield "start", chunk({"role": "assistant", "content": "", "refusal": None})
    for piece in pieces(turn.thinking):
        yield "thinking", chunk({"reasoning_content": piece})
    for piece in pieces(turn.text):
        yield "text", chunk({"content": piece})
    for index, call in enumerate(calls):
        key = "arguments" if call.tool.kind == "function" else "input"
        inner = {"name": call.tool.name, key: ""}
        first = {"index": index, "id": call.id, "type": call.tool.kind, call.tool.kind: inner}
        yield "call", chunk({"tool_calls": [first]})
        for piece in pieces(call.input):
            delta = {"index": index, call.tool.kind: {key: piece}}
            yield "input", chunk({"tool_calls": [delta]})
    yield "end", chunk({}, "tool_calls" if calls else "stop")
    yield "end", _frame({**head, "choices": [], "usage": _usage(turn)})
    yield "end", b"data: [DONE]\n\n"


def pieces(text: str, size: int = 3) -> list[str]:
    """Small enough to cut escapes and words in two."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def _frame(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def error_body(kind: str, message: str) -> bytes:
    error = {"message": message, "type": kind, "param": None, "code": kind}
    return json.dumps({"error": error}).encode()


def error_frames(message: str) -> bytes:
    return b"data: " + error_body("server_error", message) + b"\n\n"
