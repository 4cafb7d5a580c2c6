"""Responses as OpenAI sends them. See `vendor_answers`."""

from collections.abc import Iterator
from typing import Any

from vendor_pieces import Payload, halves, token

_RESPONSE: Payload = {
    "id": "resp_68a1f0c2d4e88190b7c3a5e6f7081920a1b2c3d4e5f60718",
    "object": "response",
    "created_at": 1757000000,
    "status": "in_progress",
    "background": False,
    "error": None,
    "incomplete_details": None,
    "instructions": "Be brief.",
    "max_output_tokens": None,
    "max_tool_calls": None,
    "model": "gpt-5-2025-08-07",
    "output": [],
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "safety_identifier": None,
    "service_tier": "auto",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [{"type": "web_search"}],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "usage": None,
    "user": None,
    "metadata": {"a": "b"},
}
_RESPONSE_USAGE: Payload = {
    "input_tokens": 120,
    "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 0},
    "output_tokens": 60,
    "output_tokens_details": {"reasoning_tokens": 40},
    "total_tokens": 180,
}
_URL: Payload = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 5,
    "title": "A title",
    "url": "https://example.org/?a=b",
}
_FILE: Payload = {"type": "file_citation", "file_id": "file-1", "filename": "a.txt", "index": 3}


def _output_text(text: str, annotations: list[Payload] | None = None, **fields: Any) -> Payload:
    return {
        "type": "output_text",
        "annotations": annotations or [],
        "logprobs": [],
        "text": text,
        **fields,
    }


class _StreamWriter:
    """Writes the events of a Responses stream and keeps its output."""

    def __init__(self) -> None:
        self.events: list[Payload] = []
        self.output: list[Payload] = []
        self.say("response.created", response=_RESPONSE)
        self.say("response.in_progress", response=_RESPONSE)

    def say(self, kind: str, **fields: Any) -> None:
        self.events.append({"type": kind, **fields, "sequence_number": len(self.events)})

    @property
    def index(self) -> int:
        return len(self.output)

    def add(self, item: Payload) -> None:
        self.say("response.output_item.added", item=item, output_index=self.index)

    def done(self, item: Payload) -> None:
        self.say("response.output_item.done", item=item, output_index=self.index)
        self.output.append(item)

    def message(self, item_id: str, *contents: Payload, **extra: Any) -> None:
        item: Payload = {
            "id": item_id,
            "type": "message",
            "status": "in_progress",
            "content": [],
            "role": "assistant",
            **extra,
        }
        self.add(item)
        for number, content in enumerate(contents):
            self._content(item_id, number, content)
        self.done({**item, "status": "completed", "content": list(contents)})

    def _content(self, item_id: str, number: int, content: Payload) -> None:
        place = {"content_index": number, "item_id": item_id, "output_index": self.index}
        if content["type"] == "refusal":
            self.say(
                "response.content_part.added", **place, part={"type": "refusal", "refusal": ""}
            )
            for piece in halves(content["refusal"]):
                self.say("response.refusal.delta", **place, delta=piece, obfuscation="abc")
            self.say("response.refusal.done", **place, refusal=content["refusal"])
        else:
            self.say("response.content_part.added", **place, part=_output_text(""))
            pieces = halves(content["text"])
            for piece, logprobs in zip(pieces, _shared(content["logprobs"], pieces), strict=True):
                delta = {"delta": piece, "logprobs": logprobs, "obfuscation": "abc"}
                self.say("response.output_text.delta", **place, **delta)
            for index, annotation in enumerate(content["annotations"]):
                self.say(
                    "response.output_text.annotation.added",
                    **place,
                    annotation=annotation,
                    annotation_index=index,
                )
            self.say(
                "response.output_text.done",
                **place,
                text=content["text"],
                logprobs=content["logprobs"],
            )
        self.say("response.content_part.done", **place, part=content)

    def call(self, item: Payload, family: str, key: str) -> None:
        self.add({**item, "status": "in_progress", key: ""})
        place = {"item_id": item["id"], "output_index": self.index}
        for piece in halves(item[key]):
            self.say(f"{family}.delta", **place, delta=piece, obfuscation="abc")
        self.say(f"{family}.done", **place, **{key: item[key]})
        self.done(item)

    def reasoning(self, item: Payload) -> None:
        self.add({**item, "summary": [], **({"content": []} if "content" in item else {})})
        for number, entry in enumerate(item["summary"]):
            place = {
                "item_id": item["id"],
                "output_index": self.index,
                "summary_index": number,
            }
            part = {"type": "summary_text", "text": ""}
            self.say("response.reasoning_summary_part.added", **place, part=part)
            for piece in halves(entry["text"]):
                self.say(
                    "response.reasoning_summary_text.delta", **place, delta=piece, obfuscation="a"
                )
            self.say("response.reasoning_summary_text.done", **place, text=entry["text"])
            self.say("response.reasoning_summary_part.done", **place, part=entry)
        for number, entry in enumerate(item.get("content", ())):
            place = {"item_id": item["id"], "output_index": self.index, "content_index": number}
            part = {"type": "reasoning_text", "text": ""}
            self.say("response.content_part.added", **place, part=part)
            for piece in halves(entry["text"]):
                self.say("response.reasoning_text.delta", **place, delta=piece)
            self.say("response.reasoning_text.done", **place, text=entry["text"])
            self.say("response.content_part.done", **place, part=entry)
        self.done(item)

    def tool(self, item: Payload, kind: str, *stages: str, empty: Payload | None = None) -> None:
        """An item of a provider's tool: announced, its stages, done."""
        self.add({**item, "status": "in_progress", **(empty or {})})
        place = {"item_id": item["id"], "output_index": self.index}
        for stage in stages:
            self.say(f"response.{kind}.{stage}", **place)
        self.done(item)

    def end(self, **fields: Any) -> list[Payload]:
        status = fields.get("status", "completed")
        whole = {
            **_RESPONSE,
            "status": status,
            "output": self.output,
            "usage": _RESPONSE_USAGE,
            "service_tier": "default",
            **fields,
        }
        self.say(f"response.{status}", response=whole)
        return self.events


def _shared(logprobs: list[Payload], pieces: list[str]) -> list[list[Payload]]:
    return [logprobs[:1], logprobs[1:]] if len(pieces) == 2 else [logprobs for _ in pieces]


_FUNCTION: Payload = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "arguments": '{ "city" : "Paris", "n": 1.0 }',
    "call_id": "call_a",
    "name": "get_weather",
}
_CUSTOM: Payload = {
    "id": "ctc_1",
    "type": "custom_tool_call",
    "status": "completed",
    "call_id": "call_b",
    "input": "*** Begin Patch\n",
    "name": "apply_patch",
}
_REASONING: Payload = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [
        {"type": "summary_text", "text": "**First**\n\nthink."},
        {"type": "summary_text", "text": "Then act."},
    ],
    "encrypted_content": "gAAAAABo+/==",
}
_OPEN_REASONING: Payload = {
    "id": "rs_2",
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "The thoughts themselves."}],
}
_SEARCH: Payload = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "weather", "sources": []},
}
_CODE: Payload = {
    "id": "ci_1",
    "type": "code_interpreter_call",
    "status": "completed",
    "code": "print(1)\n",
    "container_id": "cntr_1",
    "outputs": [{"type": "logs", "logs": "1"}],
}
_FILES: Payload = {
    "id": "fs_1",
    "type": "file_search_call",
    "status": "completed",
    "queries": ["a", "b"],
    "results": None,
}
_MCP: Payload = {
    "id": "mcp_1",
    "type": "mcp_call",
    "status": "completed",
    "approval_request_id": None,
    "arguments": '{"a":1}',
    "error": None,
    "name": "ask",
    "output": "42",
    "server_label": "oracle",
}
_MCP_TOOLS: Payload = {
    "id": "mcpl_1",
    "type": "mcp_list_tools",
    "server_label": "oracle",
    "tools": [{"name": "ask", "input_schema": {"type": "object"}}],
    "error": None,
}
_APPROVAL: Payload = {
    "id": "mcpr_1",
    "type": "mcp_approval_request",
    "arguments": '{"a":1}',
    "name": "ask",
    "server_label": "oracle",
}
_SHELL: Payload = {
    "id": "lsh_1",
    "type": "local_shell_call",
    "status": "completed",
    "call_id": "call_s",
    "action": {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": None},
}
_PICTURE: Payload = {
    "id": "ig_1",
    "type": "image_generation_call",
    "status": "completed",
    "result": "AAAA",
    "background": "opaque",
    "output_format": "png",
    "quality": "high",
    "revised_prompt": "A cat",
    "size": "1024x1024",
}
_COMPUTER: Payload = {
    "id": "cu_1",
    "type": "computer_call",
    "status": "completed",
    "call_id": "call_u",
    "action": {"type": "click", "button": "left", "x": 1, "y": 2},
    "pending_safety_checks": [],
}


def responses_streams() -> Iterator[tuple[str, list[Payload]]]:
    cited = _output_text("Hello é\u2028", [_URL, _FILE], logprobs=[token("Hello"), token(" é")])
    found = _StreamWriter()
    found.reasoning(_REASONING)
    found.message("msg_1", cited)
    found.call(_FUNCTION, "response.function_call_arguments", "arguments")
    found.call(_CUSTOM, "response.custom_tool_call_input", "input")
    yield "sealed reasoning, text with citations and logprobs, two calls", found.end()
    found = _StreamWriter()
    found.reasoning(_OPEN_REASONING)
    found.message("msg_1", {"type": "refusal", "refusal": "I cannot."})
    yield "open reasoning and a refusal", found.end()
    found = _StreamWriter()
    found.message("msg_1", _output_text("One."), _output_text("Two."), phase="commentary")
    found.message("msg_2", _output_text("Three."), phase="final_answer")
    yield "messages with several texts and a phase", found.end()
    found = _StreamWriter()
    stages = ("in_progress", "searching", "completed")
    found.tool(_SEARCH, "web_search_call", *stages)
    found.tool(_FILES, "file_search_call", *stages, empty={"queries": []})
    found.tool(_MCP_TOOLS, "mcp_list_tools", "in_progress", "completed", empty={"tools": []})
    found.message("msg_1", _output_text("Done.", [_URL]))
    yield (
        "tools of the provider",
        [_without_status(event, "mcp_list_tools") for event in found.end()],
    )
    yield "tools of the provider that stream", _streaming_tools()
    found = _StreamWriter()
    found.call(
        {**_FUNCTION, "namespace": "mcp__files"}, "response.function_call_arguments", "arguments"
    )
    yield "a call in a namespace", found.end()
    found = _StreamWriter()
    found.message("msg_1", _output_text("Hal"))
    whole = found.end(
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
        service_tier="default",
    )
    yield "an answer that a limit cut", whole


def _streaming_tools() -> list[Payload]:
    found = _StreamWriter()
    found.add({**_CODE, "status": "in_progress", "code": "", "outputs": None})
    place = {"item_id": "ci_1", "output_index": found.index}
    found.say("response.code_interpreter_call.in_progress", **place)
    for piece in halves(_CODE["code"]):
        found.say("response.code_interpreter_call_code.delta", **place, delta=piece)
    found.say("response.code_interpreter_call_code.done", **place, code=_CODE["code"])
    found.say("response.code_interpreter_call.interpreting", **place)
    found.say("response.code_interpreter_call.completed", **place)
    found.done(_CODE)
    found.add({**_MCP, "status": "in_progress", "arguments": "", "output": None})
    place = {"item_id": "mcp_1", "output_index": found.index}
    found.say("response.mcp_call.in_progress", **place)
    for piece in halves(_MCP["arguments"]):
        found.say("response.mcp_call_arguments.delta", **place, delta=piece)
    found.say("response.mcp_call_arguments.done", **place, arguments=_MCP["arguments"])
    found.say("response.mcp_call.completed", **place)
    found.done(_MCP)
    found.add(
        {"id": "ig_1", "type": "image_generation_call", "status": "in_progress", "result": None}
    )
    place = {"item_id": "ig_1", "output_index": found.index}
    found.say("response.image_generation_call.in_progress", **place)
    found.say("response.image_generation_call.generating", **place)
    found.say(
        "response.image_generation_call.partial_image",
        **place,
        partial_image_index=0,
        partial_image_b64="AA",
        size="1024x1024",
        quality="high",
        background="opaque",
        output_format="png",
    )
    found.say("response.image_generation_call.completed", **place)
    found.done(_PICTURE)
    return found.end()


def _without_status(event: Payload, kind: str) -> Payload:
    """The vendor's list of tools has no status."""
    item = event.get("item", {})
    if item.get("type") != kind:
        return event
    return {**event, "item": {key: value for key, value in item.items() if key != "status"}}


def _response(*output: Payload, **fields: Any) -> Payload:
    whole = {"status": "completed", "output": list(output), "usage": _RESPONSE_USAGE}
    return {**_RESPONSE, **whole, "service_tier": "default", **fields}


def responses_bodies() -> Iterator[tuple[str, Payload]]:
    cited = _output_text("Hello é\u2028", [_URL, _FILE], logprobs=[token("Hello"), token(" é")])
    message = {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "content": [cited, {"type": "refusal", "refusal": "No."}],
        "role": "assistant",
        "phase": "final_answer",
    }
    yield (
        "reasoning, a message and calls",
        _response(_REASONING, _OPEN_REASONING, message, _FUNCTION, _CUSTOM),
    )
    yield (
        "tools of the provider",
        _response(
            _SEARCH, _FILES, _CODE, _MCP_TOOLS, _MCP, _PICTURE, {**message, "content": [cited]}
        ),
    )
    yield "structured calls for the client", _response(_SHELL, _COMPUTER, _APPROVAL)
    yield "a call in a namespace", _response({**_FUNCTION, "namespace": "mcp__files"})
    cut = {**message, "status": "incomplete", "content": [_output_text("Hal")]}
    yield (
        "an answer that a limit cut",
        _response(cut, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )
    yield (
        "an answer that was filtered",
        _response(cut, status="incomplete", incomplete_details={"reason": "content_filter"}),
    )
