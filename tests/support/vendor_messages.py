"""Messages as Anthropic sends them. See `vendor_answers`."""

import json
from collections.abc import Iterator
from typing import Any

from vendor_pieces import Payload, halves

_FIRST_USAGE: Payload = {
    "input_tokens": 20,
    "cache_creation_input_tokens": 5,
    "cache_read_input_tokens": 100,
    "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
    "service_tier": "standard",
}
_MESSAGE: Payload = {
    "id": "msg_01AbCdEfGhIjKlMnOpQrStUv",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": _FIRST_USAGE,
}
_CITED: Payload = {
    "type": "web_search_result_location",
    "cited_text": "quoted",
    "encrypted_index": "Eo8B",
    "title": "A title",
    "url": "https://example.org/?a=b",
}
_PAGE: Payload = {
    "type": "page_location",
    "cited_text": "quoted",
    "document_index": 0,
    "document_title": "A title",
    "end_page_number": 2,
    "file_id": None,
    "start_page_number": 1,
}
_DELTAS: Payload = {"text": "text_delta", "thinking": "thinking_delta"}


def _told_block(index: int, block: Payload) -> Iterator[Payload]:
    """A whole block as its events."""
    kind = block["type"]
    deltas: list[Payload] = []
    start = dict(block)
    if kind in _DELTAS:
        start[kind] = ""
        deltas = [{"type": _DELTAS[kind], kind: piece} for piece in halves(block[kind])]
    if kind == "text" and "citations" in block:
        start.pop("citations")
        deltas += [{"type": "citations_delta", "citation": each} for each in block["citations"]]
    if kind == "thinking":
        start["signature"] = ""
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        start["input"] = {}
        pieces = halves(json.dumps(block["input"]))
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _told_message(
    *blocks: Payload, stop: Payload, usage: Payload | None = None, **fields: Any
) -> list[Payload]:
    last = {"output_tokens": 60, **(usage or {})}
    return [
        {"type": "message_start", "message": {**_MESSAGE, **fields}},
        {"type": "ping"},
        *(event for index, block in enumerate(blocks) for event in _told_block(index, block)),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None, **stop},
            "usage": last,
        },
        {"type": "message_stop"},
    ]


_THINKING: Payload = {"type": "thinking", "thinking": "First, think.", "signature": "EqQBCgIYAhIM"}
_REDACTED: Payload = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3"}
_USE: Payload = {
    "type": "tool_use",
    "id": "toolu_1",
    "name": "get_weather",
    "input": {"city": "Paris"},
}
_SERVER_USE: Payload = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "weather"},
}
_SERVER_RESULT: Payload = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "encrypted_content": "EqgfCioIARgB",
            "page_age": None,
            "title": "A title",
            "url": "https://example.org",
        }
    ],
}
_SERVER_ERROR: Payload = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
}
_MCP_USE: Payload = {
    "type": "mcp_tool_use",
    "id": "mcptoolu_1",
    "name": "ask",
    "server_name": "oracle",
    "input": {"a": 1},
}
_MCP_RESULT: Payload = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_1",
    "is_error": False,
    "content": [{"type": "text", "text": "42"}],
}


def _text(text: str, *citations: Payload) -> Payload:
    block: Payload = {"type": "text", "text": text}
    return {**block, "citations": list(citations)} if citations else block


def _messages_contents() -> Iterator[tuple[str, list[Payload], Payload]]:
    """The blocks of an answer and how it stops, for streams and bodies alike."""
    tool_use = {"stop_reason": "tool_use"}
    yield "thinking, text and a call", [_THINKING, _text("Let me look."), _USE], tool_use
    parallel: list[Payload] = [
        {**_USE, "input": {"n": 1}},
        {**_USE, "id": "toolu_2", "name": "f", "input": {"a": []}},
    ]
    yield "redacted thinking and parallel calls", [_REDACTED, _THINKING, *parallel], tool_use
    yield "citations", [_text("Hello é\u2028", _CITED, _PAGE), _text("More.")], {}
    search = [_text("Searching."), _SERVER_USE, _SERVER_RESULT, _text("Found.", _CITED)]
    yield "a tool of the provider", search, {}
    yield "a tool of the provider that failed", [_SERVER_USE, _SERVER_ERROR], {}
    yield "an MCP server", [_MCP_USE, _MCP_RESULT], {}
    yield "a stop sequence", [_text("ab")], {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    yield "a limit", [_text("ab")], {"stop_reason": "max_tokens"}
    yield "a pause", [_SERVER_USE], {"stop_reason": "pause_turn"}
    yield "a refusal", [_text("No.")], {"stop_reason": "refusal"}
    yield "a full window", [_text("ab")], {"stop_reason": "model_context_window_exceeded"}
    upload = {"type": "container_upload", "file_id": "file_1"}
    yield "a block without a meaning here", [upload, _text("Done.")], {}
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    yield "a call from code", [{**_USE, "caller": caller}], tool_use


def messages_streams() -> Iterator[tuple[str, list[Payload]]]:
    for name, blocks, stop in _messages_contents():
        yield name, _told_message(*blocks, stop=stop)
    container = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z", "skills": None}
    yield (
        "what comes with the end",
        _told_message(
            _text("Done."),
            stop={"container": container},
            usage={
                "input_tokens": 20,
                "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
            },
        ),
    )


def messages_bodies() -> Iterator[tuple[str, Payload]]:
    usage = {**_FIRST_USAGE, "output_tokens": 60}
    for name, blocks, stop in _messages_contents():
        end = {"stop_reason": "end_turn", **stop}
        yield name, {**_MESSAGE, "content": blocks, **end, "usage": usage}
    container = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z", "skills": None}
    end = {"stop_reason": "end_turn", "container": container}
    yield (
        "what comes with the end",
        {**_MESSAGE, "content": [_text("Done.")], **end, "usage": usage},
    )
