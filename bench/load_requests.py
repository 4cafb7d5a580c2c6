"""The requests of the load client, about 1 KB with two tools in each dialect, and checks of the answers."""

from typing import Any

import msgspec
from bench_streams import Story

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
SOCKET = "websocket"
DOORS = {**PATHS, SOCKET: "/v1/responses"}
"""The paths of the dialects, and Responses over a WebSocket."""
_PROMPT = "Please read the main file and tell me what it does; then run the tests. " * 4
_SYSTEM = "You are a coding agent."
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "absolute path"},
        "text": {"type": "string"},
    },
    "required": ["path"],
}
_TOOLS: tuple[dict[str, Any], ...] = (
    {"name": "write", "description": "write a file in the workspace"},
    {"name": "read_file", "description": "read a file in the workspace"},
)


def request_bytes(dialect: str, model: str, *, is_stream: bool) -> bytes:
    user = {"role": "user", "content": _PROMPT}
    body: dict[str, Any] = {"model": model, "stream": is_stream}
    match dialect:
        case "chat":
            body["messages"] = [{"role": "system", "content": _SYSTEM}, user]
            body["tools"] = [
                {"type": "function", "function": {**tool, "parameters": _SCHEMA}} for tool in _TOOLS
            ]
            if is_stream:
                body["stream_options"] = {"include_usage": True}
        case "responses" | "websocket":
            body |= {"instructions": _SYSTEM, "input": [user]}
            body["tools"] = [{"type": "function", **tool, "parameters": _SCHEMA} for tool in _TOOLS]
        case _:
            body |= {"max_tokens": 1024, "system": _SYSTEM, "messages": [user]}
            body["tools"] = [{**tool, "input_schema": _SCHEMA} for tool in _TOOLS]
    if dialect == SOCKET:
        body |= {"type": "response.create", "store": False}
    return msgspec.json.encode(body)


def content_fault(dialect: str, stream: bytes) -> str | None:
    """Return what is wrong with an SSE body that should hold the mock's whole answer; None if nothing is."""
    found = _ReadStream()
    for line in stream.decode().split("\n"):
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            found.read(dialect, msgspec.json.decode(line[5:]))
    story = Story()
    wanted = ("".join(story.words()), ["write"] * 2, ["".join(story.pieces())] * 2)
    calls = found.calls
    got = (
        "".join(found.text),
        [call["name"] for call in calls],
        ["".join(call["input"]) for call in calls],
    )
    for what, have, want in zip(("text", "names", "arguments"), got, wanted, strict=True):
        if have != want:
            return f"{what}: expected {str(want)[:80]!r}, got {str(have)[:80]!r}"
    return None


class _ReadStream:
    """Return the text and calls of a stream, read without code of the gateway."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self._slots: dict[int, dict[str, Any]] = {}

    def read(self, dialect: str, event: dict[str, Any]) -> None:
        if dialect == "chat":
            for choice in event.get("choices", ()):
                self._chat(choice.get("delta") or {})
        elif dialect in ("responses", SOCKET):
            self._responses(event)
        else:
            self._messages(event)

    def _open(self, slot: int, name: str) -> None:
        self._slots[slot] = {"name": name, "input": []}
        self.calls.append(self._slots[slot])

    def _chat(self, delta: dict[str, Any]) -> None:
        self.text.append(delta.get("content") or "")
        for call in delta.get("tool_calls") or ():
            function: dict[str, Any] = call.get("function") or {}
            if call["index"] not in self._slots:
                self._open(call["index"], function["name"])
            self._slots[call["index"]]["input"].append(function.get("arguments") or "")

    def _responses(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "response.output_text.delta":
                self.text.append(event["delta"])
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                self._open(event["output_index"], event["item"]["name"])
            case "response.function_call_arguments.delta":
                self._slots[event["output_index"]]["input"].append(event["delta"])
            case _:
                pass

    def _messages(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "content_block_start" if event["content_block"]["type"] == "tool_use":
                self._open(event["index"], event["content_block"]["name"])
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                self.text.append(event["delta"]["text"])
            case "content_block_delta":
                self._slots[event["index"]]["input"].append(event["delta"]["partial_json"])
            case _:
                pass
