"""What real clients enforce on a stream, as checks: one function per door.

Each assertion is here because at least one real SDK or CLI failed when it was violated. The checks read the bytes with a parser
of their own and validate each payload strictly against the vendors' SDK types, so that an encoder cannot agree with
itself.
"""

import json
from collections.abc import Mapping
from typing import Any, get_args

import anthropic.types as anthropic_types
from anthropic.types.beta import BetaRawContentBlockStartEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel

LINE_SEPARATORS = ("\u0085", "\u2028", "\u2029")
CHAT_FINISHES = {"stop", "length", "tool_calls", "content_filter", "function_call"}
STOP_REASONS = {
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
}
CODEX_CODES = {
    "context_length_exceeded",
    "cyber_policy",
    "insufficient_quota",
    "server_is_overloaded",
    "slow_down",
    "usage_not_included",
}
ITEM_PREFIXES = {
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
    "message": "msg_",
    "reasoning": "rs_",
}


def payloads(stream: bytes) -> list[tuple[str | None, Any]]:
    """(event name, JSON payload or "[DONE]") of each frame; comments are left out."""
    found: list[tuple[str | None, Any]] = []
    text = stream.decode("utf-8")
    for separator in LINE_SEPARATORS:
        assert separator not in text, f"{separator!r} must be escaped: line iterators split there"
    assert text == "" or text.endswith("\n\n"), "the last frame lacks its blank line"
    for frame in text.split("\n\n")[:-1]:
        name: str | None = None
        data: str | None = None
        for line in frame.split("\n"):
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                assert data is None, "one data line per frame"
                data = line.removeprefix("data: ")
            else:
                assert line.startswith(":"), f"unexpected line {line!r}"
        if data is not None:
            found.append((name, data if data == "[DONE]" else json.loads(data)))
    return found


def _validate(model: type[BaseModel], payload: Any) -> None:
    model.model_validate_json(json.dumps(payload), strict=True)


# --- Chat Completions ---------------------------------------------------------------------------


def check_chat(stream: bytes) -> None:
    frames = [payload for _, payload in payloads(stream)]
    assert frames, "a chat stream has at least its finish"
    failed = isinstance(frames[-1], dict) and "error" in frames[-1]
    if failed:
        chunks = frames[:-1]
        assert frames[-1]["error"]["message"], "an error chunk says what happened"
    else:
        assert frames[-1] == "[DONE]", "a chat stream that did not fail ends with [DONE]"
        chunks = frames[:-1]
    assert "[DONE]" not in chunks, "[DONE] once, at the end, and never after an error"
    assert not any("error" in chunk for chunk in chunks), "an error is the last thing said"
    for key in ("id", "object", "created", "model"):
        assert len({json.dumps(chunk[key]) for chunk in chunks}) <= 1, f"{key} is on every chunk"
    seen: dict[int, _ChatChoice] = {}
    for chunk in chunks:
        _validate(ChatCompletionChunk, _without_customs(chunk))
        assert chunk["object"] == "chat.completion.chunk"
        for choice in chunk["choices"]:
            seen.setdefault(choice["index"], _ChatChoice()).take(choice)
    if not failed:
        assert all(choice.finish is not None for choice in seen.values()), "every choice finishes"
        assert 0 in seen


def _without_customs(chunk: dict[str, Any]) -> dict[str, Any]:
    """The SDK's chunk type does not know custom calls in deltas; the API sends them."""
    text = json.dumps(chunk)
    if '"custom"' not in text:
        return chunk
    copy: dict[str, Any] = json.loads(text)
    for choice in copy["choices"]:
        calls: list[dict[str, Any]] = choice["delta"].get("tool_calls") or []
        choice["delta"]["tool_calls"] = [call for call in calls if "custom" not in call]
    return copy


class _ChatChoice:
    def __init__(self) -> None:
        self.finish: str | None = None
        self.calls = 0
        self._fresh = True

    def take(self, choice: Mapping[str, Any]) -> None:
        assert self.finish is None, "nothing of a choice follows its finish"
        assert "finish_reason" in choice, "finish_reason is on every chunk, null inside"
        delta = choice["delta"]
        if self._fresh:
            assert delta.get("role") == "assistant", "role comes in the first delta"
        else:
            assert "role" not in delta
        self._fresh = False
        for call in delta.get("tool_calls") or ():
            self._take_call(call)
        if choice["finish_reason"] is not None:
            self.finish = choice["finish_reason"]
            assert self.finish in CHAT_FINISHES, f"unknown finish_reason {self.finish}"
            if self.finish == "tool_calls":
                assert self.calls, "tool_calls without a call"

    def _take_call(self, call: Mapping[str, Any]) -> None:
        index = call["index"]
        if index == self.calls:
            self.calls += 1
            assert call["id"], "a call's first delta has its id"
            assert call["type"] in {"function", "custom"}
            body: dict[str, Any] = call[call["type"]]
            assert body["name"], "a call's first delta has its name"
        else:
            assert index == self.calls - 1, "calls go one by one, indices dense"
            assert "id" not in call, "later deltas carry no id"
            assert "type" not in call
            body = call.get("function") or call.get("custom") or {}
            assert "name" not in body, "the name comes once"
        assert isinstance(body.get("arguments", body.get("input")), str), "arguments is a string"


# --- Responses ----------------------------------------------------------------------------------


def _event_models() -> dict[str, type[BaseModel]]:
    union = get_args(ResponseStreamEvent)[0]
    models: dict[str, type[BaseModel]] = {}
    for model in get_args(union):
        for name in get_args(model.model_fields["type"].annotation):
            models[name] = model
    return models


RESPONSE_EVENTS = _event_models()
TERMINALS = {"response.completed", "response.incomplete", "response.failed"}


def check_responses(stream: bytes, *, profile: str = "default") -> None:
    frames = payloads(stream)
    assert frames, "a responses stream has at least its terminal"
    numbers = [payload["sequence_number"] for _, payload in frames]
    assert numbers == list(range(len(frames))), "sequence_number rises from 0 by one"
    for name, payload in frames:
        assert name == payload["type"]
        if payload["type"] in {"keepalive", "ping", "response.required_action"}:
            allowed = payload["type"] == "keepalive" or profile == "required_action"
            assert allowed, f"{payload['type']} is an event of nobody's making"
            continue
        assert payload["type"] in RESPONSE_EVENTS, f"unknown event {payload['type']}"
        _validate(RESPONSE_EVENTS[payload["type"]], _with_listed_code(payload))
    result = [payload for _, payload in frames if payload["type"] != "keepalive"]
    assert result[-1]["type"] in TERMINALS, "the terminal comes last"
    assert not any(payload["type"] in TERMINALS for payload in result[:-1]), "one terminal"
    assert result[0]["type"] == "response.created" or result[-1]["type"] == "response.failed"
    if result[0]["type"] == "response.created":
        assert result[0]["response"]["output"] == []
    identities = {payload["response"]["id"] for payload in result if "response" in payload}
    assert len(identities) == 1, "one response id"
    items = _Items()
    for payload in result:
        items.take(payload)
    items.check_terminal(result[-1])


def _with_listed_code(payload: dict[str, Any]) -> dict[str, Any]:
    """Codex decides by these codes whether to try again; the SDK's list of codes lacks them."""
    lines: dict[str, Any] = payload.get("response") or {}
    error: dict[str, Any] = lines.get("error") or {}
    if error.get("code") not in CODEX_CODES:
        return payload
    response = {**lines, "error": {**error, "code": "server_error"}}
    return {**payload, "response": response}


class _Items:
    def __init__(self) -> None:
        self.open: dict[str, Any] | None = None
        self.standing: dict[int, dict[str, Any]] = {}  # calls that the gateway runs meanwhile
        self.count = 0
        self.done: dict[int, dict[str, Any]] = {}
        self.input: list[str] = []
        self.parts: list[str] = []
        self.ids: set[str] = set()
        self.cut = 0

    def take(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        if kind == "response.output_item.added":
            self._add(event)
        elif event.get("output_index") in self.standing:
            self._settle(kind, event)
        elif kind == "response.output_item.done":
            self._end(event)
        elif "output_index" in event:
            assert self.open is not None, f"{kind} outside an item"
            assert event["output_index"] == self.count - 1
            assert event["item_id"] == self.open["id"], "item_id is the open item's"
            self._inside(kind, event)

    def _add(self, event: Mapping[str, Any]) -> None:
        item = event["item"]
        if self.open is not None and self.open["type"] == "mcp_call":
            self.standing[self.count - 1] = self.open
        elif self.open is not None:
            assert self.open["type"].endswith("_call"), "items do not overlap"
            self.cut += 1  # a call that was cut has no end; what follows it comes with the answer's
        assert event["output_index"] == self.count, "output_index is dense"
        assert item["id"], "every item has an id"
        assert item["id"] not in self.ids, "item ids are unique"
        self.ids.add(item["id"])
        prefix = ITEM_PREFIXES.get(item["type"])
        assert prefix is None or item["id"].startswith(prefix), f"{item['id']} lacks {prefix}"
        if item["type"] == "function_call":
            assert item["arguments"] == "", "arguments start empty"
            assert item["call_id"]
            assert item["name"]
        if item["type"] == "message":
            assert item["content"] == []
        self.count += 1
        self.open = dict(item)
        self.input = []
        self.parts = []

    def _settle(self, kind: str, event: Mapping[str, Any]) -> None:
        # One that was cut has no end.
        assert self.open is None or self.open["type"].endswith("_call"), "nothing ends in an item"
        if kind == "response.output_item.done":
            item = event["item"]
            assert item["id"] == self.standing.pop(event["output_index"])["id"]
            self.done[event["output_index"]] = dict(item)

    def _inside(self, kind: str, event: Mapping[str, Any]) -> None:
        if kind == "response.content_part.added":
            assert event["content_index"] == len(self.parts)
            self.parts.append(event["part"]["type"])
        elif kind.startswith(("response.output_text", "response.refusal")):
            assert event["content_index"] < len(self.parts), "content_part.added before its text"
        elif kind.endswith(("arguments.delta", "input.delta")):
            self.input.append(event["delta"])
        elif kind.endswith(("arguments.done", "input.done")):
            whole = event.get("arguments", event.get("input"))
            assert not self.input or whole == "".join(self.input), "done repeats the deltas"

    def _end(self, event: Mapping[str, Any]) -> None:
        item = event["item"]
        assert self.open is not None
        assert event["output_index"] == self.count - 1
        for key in ("id", "type", "call_id", "name", "namespace"):
            assert item.get(key) == self.open.get(key), f"{key} is stable"
        if item["type"] in ITEM_PREFIXES and item["type"] != "reasoning":
            assert item["status"] in {"completed", "incomplete"}
        if item["type"] == "function_call":
            assert item["status"] == "completed", "a cut call is never offered as done"
            assert item["arguments"] == "".join(self.input), "the call's text travelled as deltas"
        if item["type"] == "message":
            assert all(
                part["annotations"] is not None
                for part in item["content"]
                if part["type"] == "output_text"
            )
        self.done[event["output_index"]] = dict(item)
        self.open = None

    def check_terminal(self, event: Mapping[str, Any]) -> None:
        response = event["response"]
        usage = response.get("usage")
        if usage:
            assert {"input_tokens", "output_tokens", "total_tokens"} <= set(usage)
        assert "reasoning" in response
        if event["type"] == "response.failed":
            assert response["status"] == "failed"
            assert response["error"]["message"]
            return
        assert len(response["output"]) == self.count, "the terminal repeats every item"
        for index, item in self.done.items():
            assert response["output"][index] == item, "the terminal repeats items as they were done"
        if event["type"] == "response.completed":
            assert self.open is None, "every item is done before completed"
            assert not self.standing, "every call has its result before completed"
            assert self.cut == 0, "a cut call makes an answer incomplete"
        else:
            assert response["incomplete_details"]["reason"]


# --- Anthropic Messages ---------------------------------------------------------------------------


def _message_events() -> dict[str, type[BaseModel]]:
    union = get_args(anthropic_types.RawMessageStreamEvent)[0]
    models: dict[str, type[BaseModel]] = {}
    for model in get_args(union):
        for name in get_args(model.model_fields["type"].annotation):
            models[name] = model
    return models


MESSAGE_EVENTS = _message_events()
BETA_BLOCKS = {"mcp_tool_use", "mcp_tool_result"}  # the SDK knows them in its beta types only
DELTAS = {
    "mcp_tool_use": {"input_json_delta"},
    "text": {"text_delta", "citations_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
    "server_tool_use": {"input_json_delta"},
}


def _message_model(payload: Mapping[str, Any]) -> type[BaseModel]:
    if payload.get("content_block", {}).get("type") in BETA_BLOCKS:
        return BetaRawContentBlockStartEvent
    return MESSAGE_EVENTS[payload["type"]]


MESSAGE_FIELDS = {
    *("id", "type", "role", "model", "content", "usage"),
    *("stop_reason", "stop_sequence", "stop_details", "container"),
}
END_FIELDS = {"stop_reason", "stop_sequence", "stop_details", "container"}
COUNTS = {
    *("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"),
    *("output_tokens_details", "server_tool_use"),
}
MESSAGE_COUNTS = COUNTS | {"cache_creation", "service_tier", "inference_geo"}
BLOCK_FIELDS = {
    "text": {"text", "citations"},
    "thinking": {"thinking", "signature"},
    "tool_use": {"id", "name", "input", "caller"},
    "server_tool_use": {"id", "name", "input", "caller"},
    "web_search_tool_result": {"tool_use_id", "content", "caller"},
    "web_fetch_tool_result": {"tool_use_id", "content", "caller"},
}


def check_own_messages(stream: bytes) -> None:
    """What the vendor's schema requires, null or not, of a stream that we write. SDKs, and so relayed streams, may lack it."""
    check_messages(stream)
    for _, payload in payloads(stream):
        match payload["type"]:
            case "message_start":
                assert payload["message"].keys() >= MESSAGE_FIELDS
                assert payload["message"]["usage"].keys() >= MESSAGE_COUNTS
            case "content_block_start":
                block = payload["content_block"]
                assert block.keys() >= BLOCK_FIELDS.get(block["type"], set())
            case "message_delta":
                assert payload["delta"].keys() >= END_FIELDS
                assert payload["usage"].keys() >= COUNTS
            case "error":
                assert "request_id" in payload
            case _:
                pass


def check_messages(stream: bytes) -> None:
    frames = [
        (name, payload) for name, payload in payloads(stream) if payload.get("type") != "ping"
    ]
    assert frames, "a messages stream has at least its terminal"
    for name, payload in frames:
        assert name == payload["type"], "event: lines are mandatory"
        if payload["type"] == "error":
            assert payload["error"]["type"]
            assert payload["error"]["message"]
        else:
            assert payload["type"] in MESSAGE_EVENTS, f"unknown event {payload['type']}"
            _validate(_message_model(payload), payload)
    result = [payload for _, payload in frames]
    kinds = [payload["type"] for payload in result]
    assert kinds[-1] in {"message_stop", "error"}, "the terminal comes last"
    assert not {"message_stop", "error"} & set(kinds[:-1]), "one terminal"
    if kinds[0] != "error":
        assert kinds[0] == "message_start"
        assert "output_tokens" in result[0]["message"]["usage"], "message_start has usage"
        assert result[0]["message"]["content"] == []
    open_block: dict[str, Any] | None = None
    count = 0
    uses = 0
    for payload in result:
        match payload["type"]:
            case "content_block_start":
                assert open_block is None, "blocks do not overlap"
                assert payload["index"] == count, "block indices are dense from 0"
                count += 1
                block: dict[str, Any] = payload["content_block"]
                open_block = block
                if block["type"] == "tool_use":
                    uses += 1
                    assert block["input"] == {}, "tool_use opens with input {}"
                    assert block["name"]
                    _check_identity(block["id"])
            case "content_block_delta":
                assert open_block is not None
                assert payload["index"] == count - 1
                allowed = DELTAS.get(open_block["type"], set())
                assert payload["delta"]["type"] in allowed, "a delta fits its block"
            case "content_block_stop":
                assert open_block is not None
                assert payload["index"] == count - 1
                open_block = None
            case "message_delta":
                assert open_block is None, "every block stops before message_delta"
                reason = payload["delta"]["stop_reason"]
                assert reason in STOP_REASONS, f"unknown stop_reason {reason}"
                assert "output_tokens" in payload["usage"], "message_delta has usage"
                if reason == "tool_use":
                    assert uses, "tool_use without a call"
            case _:
                pass
    if kinds[-1] == "message_stop":
        assert kinds.count("message_delta") == 1
        assert kinds[-2] == "message_delta"


def _check_identity(identity: str) -> None:
    assert identity
    assert all(c.isascii() and (c.isalnum() or c in "_-") for c in identity), "id charset"
