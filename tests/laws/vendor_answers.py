"""Answers as the vendors send them, rich in everything that is easily lost: streams as payloads, bodies as objects.

Written by hand after the vendors' documentation and SDK types; field for field the shape of the real thing. `frames`
puts payloads on the wire as the vendor does.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ("BODIES", "STREAMS", "Payload", "frames")

Payload = dict[str, Any]


def frames(dialect: str, payloads: Iterable[Payload]) -> bytes:
    out: list[str] = []
    for payload in payloads:
        head = "" if dialect == "chat" else f"event: {payload['type']}\n"
        out.append(f"{head}data: {json.dumps(payload)}\n\n")
    return ("".join(out) + ("data: [DONE]\n\n" if dialect == "chat" else "")).encode()


# --- Chat Completions -------------------------------------------------------------------------------------------------

_CHAT: Payload = {
    "id": "chatcmpl-CXyZ0123456789abcdefghijklmn",
    "object": "chat.completion.chunk",
    "created": 1757000000,
    "model": "gpt-4.1-2025-04-14",
    "service_tier": "default",
    "system_fingerprint": "fp_0123456789",
}
_CHAT_USAGE: Payload = {
    "prompt_tokens": 30,
    "completion_tokens": 12,
    "total_tokens": 42,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
_CITATION: Payload = {
    "type": "url_citation",
    "url_citation": {
        "start_index": 0,
        "end_index": 5,
        "title": "A title",
        "url": "https://example.org/?a=b",
    },
}


def _token(text: str) -> Payload:
    raw = list(text.encode())
    entry = {"token": text, "logprob": -0.25, "bytes": raw}
    return {**entry, "top_logprobs": [entry]}


def _chunk(delta: Payload, *, index: int = 0, finish: str | None = None, **beside: Any) -> Payload:
    choice = {
        "index": index,
        "delta": delta,
        "logprobs": None,
        "finish_reason": finish,
        **beside,
    }
    return {**_CHAT, "choices": [choice], "usage": None, "obfuscation": "7sc1eA5jd"}


def _role(index: int = 0) -> Payload:
    return _chunk({"role": "assistant", "content": "", "refusal": None}, index=index)


def _chat_usage(usage: Payload = _CHAT_USAGE) -> Payload:
    return {**_CHAT, "choices": [], "usage": usage, "obfuscation": "x"}


def _call(index: int, call_id: str, name: str) -> Payload:
    function = {"name": name, "arguments": ""}
    return {
        "tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]
    }


def _arguments(index: int, text: str) -> Payload:
    return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _chat_streams() -> Iterator[tuple[str, list[Payload]]]:
    yield (
        "text with logprobs, a citation and usage",
        [
            _role(),
            _chunk({"content": "Hello"}, logprobs={"content": [_token("Hello")], "refusal": None}),
            _chunk({"content": " é\u2028"}, logprobs={"content": [_token(" é")], "refusal": None}),
            _chunk({"annotations": [_CITATION]}),
            _chunk({}, finish="stop"),
            _chat_usage(),
        ],
    )
    yield (
        "a refusal",
        [
            _role(),
            _chunk({"refusal": "I"}, logprobs={"content": None, "refusal": [_token("I")]}),
            _chunk({"refusal": " cannot."}),
            _chunk({}, finish="stop"),
        ],
    )
    yield (
        "text and parallel calls",
        [
            _role(),
            _chunk({"content": "Let me look."}),
            _chunk(_call(0, "call_a", "get_weather")),
            _chunk(_arguments(0, '{"city":')),
            _chunk(_arguments(0, '"Paris"}')),
            _chunk(_call(1, "call_b", "get_time")),
            _chunk(_arguments(1, "{}")),
            _chunk({}, finish="tool_calls"),
            _chat_usage(),
        ],
    )
    yield (
        "two choices in turns",
        [
            _role(),
            _chunk({"content": "One"}),
            _role(1),
            _chunk({"content": "Two"}, index=1),
            _chunk({"content": "!"}),
            _chunk({}, finish="stop"),
            _chunk({"content": "?"}, index=1),
            _chunk({}, index=1, finish="length"),
            _chat_usage(),
        ],
    )
    yield (
        "sound",
        [
            _role(),
            _chunk({"audio": {"id": "audio_abc"}}),
            _chunk({"audio": {"data": "AAAA"}}),
            _chunk({"audio": {"transcript": "Hi"}}),
            _chunk({"audio": {"data": "BBBB"}}),
            _chunk({"audio": {"expires_at": 1757003600}}),
            _chunk({}, finish="stop"),
        ],
    )
    yield (
        "a custom call",
        [
            _role(),
            _chunk(
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "call_c",
                            "type": "custom",
                            "custom": {"name": "apply_patch", "input": ""},
                        }
                    ]
                }
            ),
            _chunk({"tool_calls": [{"index": 0, "custom": {"input": "*** Begin"}}]}),
            _chunk({"tool_calls": [{"index": 0, "custom": {"input": " Patch\n"}}]}),
            _chunk({}, finish="tool_calls"),
        ],
    )
    yield (
        "reasoning as DeepSeek sends it",
        [
            _role(),
            _chunk({"reasoning_content": "First"}),
            _chunk({"reasoning_content": ", think."}),
            _chunk({"content": "Done."}),
            _chunk({}, finish="stop"),
        ],
    )
    yield (
        "reasoning as OpenRouter sends it",
        [
            _role(),
            _chunk(
                {
                    "reasoning": "Think.",
                    "reasoning_details": [
                        {"type": "reasoning.text", "text": "Think.", "format": "x", "index": 0}
                    ],
                }
            ),
            _chunk({"content": "Done."}),
            _chunk({}, finish="stop", native_finish_reason="STOP"),
        ],
    )
    yield (
        "a thought signature",
        [
            _role(),
            _chunk(
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "call_a",
                            "type": "function",
                            "function": {"name": "f", "arguments": ""},
                        }
                    ]
                }
            ),
            _chunk(_arguments(0, "{}")),
            _chunk(
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "function": {"arguments": ""},
                            "extra_content": {"google": {"thought_signature": "abc"}},
                        }
                    ]
                }
            ),
            _chunk({}, finish="tool_calls"),
        ],
    )
    filters = {"hate": {"filtered": False, "severity": "safe"}}
    yield (
        "Azure",
        [
            {
                **_CHAT,
                "choices": [],
                "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": filters}],
            },
            _role(),
            _chunk({"content": "Hi"}),
            _chunk({}, finish="stop", content_filter_results=filters),
        ],
    )
    yield (
        "a call that a limit cut",
        [
            _role(),
            _chunk(_call(0, "call_a", "write")),
            _chunk(_arguments(0, '{"text":"abc')),
            _chunk({}, finish="length"),
        ],
    )
    yield (
        "a stop sequence as vLLM tells it",
        [_role(), _chunk({"content": "ab"}), _chunk({}, finish="stop", stop_reason="END")],
    )


def _message(finish: str = "stop", index: int = 0, **fields: Any) -> Payload:
    message = {"role": "assistant", "content": None, "refusal": None, "annotations": [], **fields}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}


def _chat_body(*choices: Payload, usage: Payload = _CHAT_USAGE) -> Payload:
    return {**_CHAT, "object": "chat.completion", "choices": list(choices), "usage": usage}


def _chat_bodies() -> Iterator[tuple[str, Payload]]:
    logprobs = {"content": [_token("Hello"), _token(" é")], "refusal": None}
    cited = _message(content="Hello é", annotations=[_CITATION])
    yield "text with logprobs and a citation", _chat_body({**cited, "logprobs": logprobs})
    calls = [
        {
            "id": "call_a",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{ "city" : "Paris", "n": 1.0 }'},
        },
        {"id": "call_b", "type": "custom", "custom": {"name": "run", "input": "ls -l\n"}},
        {
            "id": "call_c",
            "type": "function",
            "function": {"name": "f", "arguments": "{}"},
            "extra_content": {"google": {"thought_signature": "abc"}},
        },
    ]
    yield "calls", _chat_body(_message("tool_calls", tool_calls=calls))
    yield "text and a call", _chat_body(_message("tool_calls", content="Hm.", tool_calls=calls[:1]))
    yield "a refusal", _chat_body(_message(refusal="I cannot."))
    sound = {"id": "audio_abc", "data": "AAAA", "transcript": "Hi", "expires_at": 1757003600}
    yield "sound", _chat_body(_message(audio=sound))
    yield (
        "two choices",
        _chat_body(_message(content="One"), _message("length", index=1, content="Two")),
    )
    yield (
        "reasoning",
        _chat_body(
            _message(content="Done.", reasoning_content="Think."),
            usage={**_CHAT_USAGE, "cost": 0.5},
        ),
    )
    details = [{"type": "reasoning.text", "text": "Think.", "signature": "abc", "index": 0}]
    yield (
        "reasoning with its seal",
        _chat_body(_message(content="Done.", reasoning="Think.", reasoning_details=details)),
    )
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    yield "a picture", _chat_body(_message(content="Look:", images=[image]))


# --- Responses --------------------------------------------------------------------------------------------------------

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


class _Telling:
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
        item = {
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
            for piece in _halves(content["refusal"]):
                self.say("response.refusal.delta", **place, delta=piece, obfuscation="abc")
            self.say("response.refusal.done", **place, refusal=content["refusal"])
        else:
            self.say("response.content_part.added", **place, part=_output_text(""))
            pieces = _halves(content["text"])
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
        for piece in _halves(item[key]):
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
            for piece in _halves(entry["text"]):
                self.say(
                    "response.reasoning_summary_text.delta", **place, delta=piece, obfuscation="a"
                )
            self.say("response.reasoning_summary_text.done", **place, text=entry["text"])
            self.say("response.reasoning_summary_part.done", **place, part=entry)
        for number, entry in enumerate(item.get("content", ())):
            place = {"item_id": item["id"], "output_index": self.index, "content_index": number}
            part = {"type": "reasoning_text", "text": ""}
            self.say("response.content_part.added", **place, part=part)
            for piece in _halves(entry["text"]):
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


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def _shared(logprobs: list[Payload], pieces: list[str]) -> list[list[Payload]]:
    return [logprobs[:1], logprobs[1:]] if len(pieces) == 2 else [logprobs for _ in pieces]


_FUNCTION = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "arguments": '{ "city" : "Paris", "n": 1.0 }',
    "call_id": "call_a",
    "name": "get_weather",
}
_CUSTOM = {
    "id": "ctc_1",
    "type": "custom_tool_call",
    "status": "completed",
    "call_id": "call_b",
    "input": "*** Begin Patch\n",
    "name": "apply_patch",
}
_REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [
        {"type": "summary_text", "text": "**First**\n\nthink."},
        {"type": "summary_text", "text": "Then act."},
    ],
    "encrypted_content": "gAAAAABo+/==",
}
_OPEN_REASONING = {
    "id": "rs_2",
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "The thoughts themselves."}],
}
_SEARCH = {
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
_FILES = {
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
_MCP_TOOLS = {
    "id": "mcpl_1",
    "type": "mcp_list_tools",
    "server_label": "oracle",
    "tools": [{"name": "ask", "input_schema": {"type": "object"}}],
    "error": None,
}
_APPROVAL = {
    "id": "mcpr_1",
    "type": "mcp_approval_request",
    "arguments": '{"a":1}',
    "name": "ask",
    "server_label": "oracle",
}
_SHELL = {
    "id": "lsh_1",
    "type": "local_shell_call",
    "status": "completed",
    "call_id": "call_s",
    "action": {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": None},
}
_PICTURE = {
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
_COMPUTER = {
    "id": "cu_1",
    "type": "computer_call",
    "status": "completed",
    "call_id": "call_u",
    "action": {"type": "click", "button": "left", "x": 1, "y": 2},
    "pending_safety_checks": [],
}


def _responses_streams() -> Iterator[tuple[str, list[Payload]]]:
    cited = _output_text("Hello é\u2028", [_URL, _FILE], logprobs=[_token("Hello"), _token(" é")])
    told = _Telling()
    told.reasoning(_REASONING)
    told.message("msg_1", cited)
    told.call(_FUNCTION, "response.function_call_arguments", "arguments")
    told.call(_CUSTOM, "response.custom_tool_call_input", "input")
    yield "sealed reasoning, text with citations and logprobs, two calls", told.end()
    told = _Telling()
    told.reasoning(_OPEN_REASONING)
    told.message("msg_1", {"type": "refusal", "refusal": "I cannot."})
    yield "open reasoning and a refusal", told.end()
    told = _Telling()
    told.message("msg_1", _output_text("One."), _output_text("Two."), phase="commentary")
    told.message("msg_2", _output_text("Three."), phase="final_answer")
    yield "messages with several texts and a phase", told.end()
    told = _Telling()
    stages = ("in_progress", "searching", "completed")
    told.tool(_SEARCH, "web_search_call", *stages)
    told.tool(_FILES, "file_search_call", *stages, empty={"queries": []})
    told.tool(_MCP_TOOLS, "mcp_list_tools", "in_progress", "completed", empty={"tools": []})
    told.message("msg_1", _output_text("Done.", [_URL]))
    yield (
        "tools of the provider",
        [_without_status(event, "mcp_list_tools") for event in told.end()],
    )
    yield "tools of the provider that stream", _streaming_tools()
    told = _Telling()
    told.call(
        {**_FUNCTION, "namespace": "mcp__files"}, "response.function_call_arguments", "arguments"
    )
    yield "a call in a namespace", told.end()
    told = _Telling()
    told.message("msg_1", _output_text("Hal"))
    whole = told.end(
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
        service_tier="default",
    )
    yield "an answer that a limit cut", whole


def _streaming_tools() -> list[Payload]:
    told = _Telling()
    told.add({**_CODE, "status": "in_progress", "code": "", "outputs": None})
    place = {"item_id": "ci_1", "output_index": told.index}
    told.say("response.code_interpreter_call.in_progress", **place)
    for piece in _halves(_CODE["code"]):
        told.say("response.code_interpreter_call_code.delta", **place, delta=piece)
    told.say("response.code_interpreter_call_code.done", **place, code=_CODE["code"])
    told.say("response.code_interpreter_call.interpreting", **place)
    told.say("response.code_interpreter_call.completed", **place)
    told.done(_CODE)
    told.add({**_MCP, "status": "in_progress", "arguments": "", "output": None})
    place = {"item_id": "mcp_1", "output_index": told.index}
    told.say("response.mcp_call.in_progress", **place)
    for piece in _halves(_MCP["arguments"]):
        told.say("response.mcp_call_arguments.delta", **place, delta=piece)
    told.say("response.mcp_call_arguments.done", **place, arguments=_MCP["arguments"])
    told.say("response.mcp_call.completed", **place)
    told.done(_MCP)
    told.add(
        {"id": "ig_1", "type": "image_generation_call", "status": "in_progress", "result": None}
    )
    place = {"item_id": "ig_1", "output_index": told.index}
    told.say("response.image_generation_call.in_progress", **place)
    told.say("response.image_generation_call.generating", **place)
    told.say(
        "response.image_generation_call.partial_image",
        **place,
        partial_image_index=0,
        partial_image_b64="AA",
        size="1024x1024",
        quality="high",
        background="opaque",
        output_format="png",
    )
    told.say("response.image_generation_call.completed", **place)
    told.done(_PICTURE)
    return told.end()


def _without_status(event: Payload, kind: str) -> Payload:
    """The vendor's list of tools has no status."""
    item = event.get("item", {})
    if item.get("type") != kind:
        return event
    return {**event, "item": {key: value for key, value in item.items() if key != "status"}}


def _response(*output: Payload, **fields: Any) -> Payload:
    whole = {"status": "completed", "output": list(output), "usage": _RESPONSE_USAGE}
    return {**_RESPONSE, **whole, "service_tier": "default", **fields}


def _responses_bodies() -> Iterator[tuple[str, Payload]]:
    cited = _output_text("Hello é\u2028", [_URL, _FILE], logprobs=[_token("Hello"), _token(" é")])
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


# --- Messages ---------------------------------------------------------------------------------------------------------

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
_CITED = {
    "type": "web_search_result_location",
    "cited_text": "quoted",
    "encrypted_index": "Eo8B",
    "title": "A title",
    "url": "https://example.org/?a=b",
}
_PAGE = {
    "type": "page_location",
    "cited_text": "quoted",
    "document_index": 0,
    "document_title": "A title",
    "end_page_number": 2,
    "file_id": None,
    "start_page_number": 1,
}
_DELTAS = {"text": "text_delta", "thinking": "thinking_delta"}


def _told_block(index: int, block: Payload) -> Iterator[Payload]:
    """A whole block as its events."""
    kind = block["type"]
    deltas: list[Payload] = []
    start = dict(block)
    if kind in _DELTAS:
        start[kind] = ""
        deltas = [{"type": _DELTAS[kind], kind: piece} for piece in _halves(block[kind])]
    if kind == "text" and "citations" in block:
        start.pop("citations")
        deltas += [{"type": "citations_delta", "citation": each} for each in block["citations"]]
    if kind == "thinking":
        start["signature"] = ""
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        start["input"] = {}
        pieces = _halves(json.dumps(block["input"]))
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


_THINKING = {"type": "thinking", "thinking": "First, think.", "signature": "EqQBCgIYAhIM"}
_REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3"}
_USE = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
_SERVER_USE = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "weather"},
}
_SERVER_RESULT = {
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
_SERVER_ERROR = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
}
_MCP_USE = {
    "type": "mcp_tool_use",
    "id": "mcptoolu_1",
    "name": "ask",
    "server_name": "oracle",
    "input": {"a": 1},
}
_MCP_RESULT = {
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
    parallel = [
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


def _messages_streams() -> Iterator[tuple[str, list[Payload]]]:
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


def _messages_bodies() -> Iterator[tuple[str, Payload]]:
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


STREAMS: dict[str, dict[str, list[Payload]]] = {
    "chat": dict(_chat_streams()),
    "responses": dict(_responses_streams()),
    "messages": dict(_messages_streams()),
}
BODIES: dict[str, dict[str, Payload]] = {
    "chat": dict(_chat_bodies()),
    "responses": dict(_responses_bodies()),
    "messages": dict(_messages_bodies()),
}
