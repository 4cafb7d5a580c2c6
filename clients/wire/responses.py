"""OpenAI Responses, as OpenAI serves it."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from clients.script import Conversation, ModelTurn, SeenCall, SeenResult, SpokenCall, Tool
from clients.wire.chat import MAX_USER, error_body, pieces

__all__ = ("ID_PREFIX", "body", "error_body", "error_frames", "read", "stream")

ID_PREFIX = "call_"
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MAX_CALL_ID = 64
FIELDS = frozenset((
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream",
    "stream_options", "store", "include", "reasoning", "text", "max_output_tokens",
    "max_tool_calls", "temperature", "top_p", "truncation", "metadata", "user",
    "previous_response_id", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
    "service_tier", "background", "conversation", "top_logprobs", "client_metadata",
))  # fmt: skip
ID_PREFIXES = {
    "message": "msg_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
    "reasoning": "rs_",
}
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
CONTENT = {
    "user": {"input_text", "input_image", "input_file"},
    "system": {"input_text"},
    "developer": {"input_text"},
    "assistant": {"output_text", "refusal"},
}
USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 7,
    "total_tokens": 18,
}
NOTHING = ModelTurn()


def read(request: Any) -> Conversation:
    seen = Conversation(model=request["model"], stream=bool(request.get("stream")))
    seen.object_if(unknown := set(request) - FIELDS, f"unknown parameters {sorted(unknown)}")
    seen.object_if(len(request.get("user") or "") > MAX_USER, f"user: {request.get('user')!r}")
    for tool in request.get("tools") or ():
        _read_tool(seen, tool, None)
    items: Any = request.get("input")
    seen.object_if(not items, "input: missing")
    if not isinstance(items, str):
        for index, item in enumerate(items or ()):
            _read_item(seen, f"input[{index}]", item)
    seen.check_pairs()
    return seen


def _read_tool(seen: Conversation, tool: Any, namespace: str | None) -> None:
    kind = tool.get("type")
    if kind == "namespace":
        for inner in tool["tools"]:
            _read_tool(seen, inner, tool["name"])
    elif kind in ("function", "custom"):
        name = tool.get("name", "")
        seen.object_if(not NAME.fullmatch(name), f"tool name {name!r}")
        twice = any((known.name, known.namespace) == (name, namespace) for known in seen.tools)
        seen.object_if(twice, f"two tools {name!r}")
        seen.tools.append(Tool(name, namespace, kind, tool.get("parameters")))
    elif kind == "tool_search":
        seen.tools.append(Tool(kind, None, kind, tool.get("parameters")))


def _read_item(seen: Conversation, where: str, item: Any) -> None:
    kind = item.get("type", "message")
    prefix = ID_PREFIXES.get(kind, "")
    item_id = item.get("id")
    seen.object_if(item_id is not None and not item_id.startswith(prefix), f"{where}.id: {item_id}")
    if kind == "message":
        _check_message(seen, where, item)
    elif kind in CALLS:
        _read_call(seen, where, item, item.get(CALLS[kind]))
    elif kind in OUTPUTS:
        call_id = item.get("call_id")
        known = any(call.id == call_id for call in seen.calls)
        seen.object_if(not known, f"{where}: output before its call: {call_id}")
        seen.results.append(SeenResult(call_id, _text(seen, where, item.get("output"))))
    elif kind == "reasoning":
        sealed = item.get("encrypted_content")
        if sealed is not None and item_id is not None:
            wrong = f"{where}: encrypted_content {sealed!r} is of another item than {item_id}"
            seen.object_if(sealed != _seal(item_id), wrong)
        seen.object_if("summary" not in item, f"{where}: no summary")
    elif kind == "additional_tools":
        for tool in item["tools"]:
            _read_tool(seen, tool, None)
    elif kind == "tool_search_call":
        value = item.get("arguments")
        seen.object_if(not isinstance(value, dict), f"{where}: arguments {value!r}")
        seen.calls.append(SeenCall(item["call_id"], "tool_search", json.dumps(value)))
    elif kind == "tool_search_output":
        for tool in item["tools"]:
            _read_tool(seen, tool, None)
        seen.results.append(SeenResult(item["call_id"], json.dumps(item["tools"])))
    elif kind == "item_reference":
        known = (item_id or "").startswith(tuple(ID_PREFIXES.values()))
        seen.object_if(not known, f"{where}: a reference to {item_id!r}")
    else:
        seen.object_if(kind != "web_search_call", f"{where}: item of type {kind!r}")


def _seal(item_id: str) -> str:
    """Encrypted reasoning is bound to the id of its item: under another OpenAI refuses it."""
    return b64encode(f"sealed for {item_id}".encode()).decode()


def _check_message(seen: Conversation, where: str, item: Any) -> None:
    role, content = item.get("role"), item.get("content")
    seen.object_if(role not in CONTENT, f"{where}: role {role!r}")
    if content and not isinstance(content, str):
        kinds = {part.get("type") for part in content}
        seen.object_if(not kinds <= CONTENT.get(role, set()), f"{where}: {role} content {kinds}")
    else:
        seen.object_if(not isinstance(content, str), f"{where}: content {content!r}")


def _read_call(seen: Conversation, where: str, item: Any, text: Any) -> None:
    call_id = item.get("call_id", "")
    seen.object_if(not isinstance(text, str), f"{where}: input is no string: {text!r}")
    seen.object_if(not 0 < len(call_id) <= MAX_CALL_ID, f"{where}.call_id: {call_id!r}")
    seen.object_if(not NAME.fullmatch(item.get("name", "")), f"{where}.name: {item.get('name')!r}")
    seen.calls.append(SeenCall(call_id, item.get("name", ""), text))


def _text(seen: Conversation, where: str, output: Any) -> str:
    if isinstance(output, str):
        return output
    kinds = {part.get("type") for part in output or ()}
    seen.object_if(output is None or not kinds <= CONTENT["user"], f"{where}: output of {kinds}")
    return "".join(part.get("text", "") for part in output or ())


def _response(
    model: str, status: str, output: list[Any], turn: ModelTurn = NOTHING
) -> dict[str, Any]:
    is_over = status == "completed"
    details = {"reasoning_tokens": 3 if turn.thinking else 0}
    # A model shows a summary of its thinking to those who asked for one.
    asked = {"effort": "low", "summary": "detailed"}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "completed_at": 1700000001 if is_over else None,
        "status": status,
        "background": False,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": asked if turn.thinking else {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {**USAGE, "output_tokens_details": details} if is_over else None,
        "user": None,
        "metadata": {},
    }


def _items(turn: ModelTurn, calls: list[SpokenCall]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if turn.thinking:
        summary = [{"type": "summary_text", "text": turn.thinking}]
        item_id = f"rs_{calls[0].id if calls else 'last'}"
        seal = _seal(item_id)
        items.append(
            {"id": item_id, "type": "reasoning", "summary": summary, "encrypted_content": seal}
        )
    if turn.text:
        part: Any = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        items.append(
            {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
        )  # fmt: skip
    for call in calls:
        if call.tool.kind == "tool_search":
            items.append(_search(call))
            continue
        custom = call.tool.kind == "custom"
        item = {
            "id": ("ctc_" if custom else "fc_") + call.id,
            "type": "custom_tool_call" if custom else "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": call.tool.name,
            "input" if custom else "arguments": call.input,
        }
        if call.tool.namespace is not None:
            item["namespace"] = call.tool.namespace
        items.append(item)
    return items


def _search(call: SpokenCall) -> dict[str, Any]:
    return {
        "id": f"tsc_{call.id}",
        "type": "tool_search_call",
        "status": "completed",
        "call_id": call.id,
        "execution": "client",
        "arguments": json.loads(call.input),
    }


def body(turn: ModelTurn, calls: list[SpokenCall], model: str) -> bytes:
    return json.dumps(_response(model, "completed", [*_items(turn, calls)], turn)).encode()


def stream(turn: ModelTurn, calls: list[SpokenCall], model: str) -> Iterator[tuple[str, bytes]]:
    """Frames, each with a word that says what it carries."""
    items = _items(turn, calls)
    events: list[tuple[str, dict[str, Any]]] = []
    for name in ("response.created", "response.in_progress"):
        response = _response(model, "in_progress", [], turn)
        events.append(("start", {"type": name, "response": response}))
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item["id"]}
        added = {"type": "response.output_item.added", "output_index": index, "item": _empty(item)}
        events.append(("call" if item["type"] in CALLS else "start", added))
        events += [(word, {**event, **place}) for word, event in _inside(item)]
        done = {"type": "response.output_item.done", "output_index": index, "item": item}
        events.append(("stop", done))
    response = _response(model, "completed", [*items], turn)
    events.append(("end", {"type": "response.completed", "response": response}))
    for number, (word, event) in enumerate(events):
        yield word, _frame({**event, "sequence_number": number})


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    match item["type"]:
        case "message":
            return {**item, "status": "in_progress", "content": []}
        case "reasoning":
            return {**item, "summary": [], "encrypted_content": ""}
        case "tool_search_call":
            return {**item, "status": "in_progress"}
        case kind:
            return {**item, "status": "in_progress", CALLS[kind]: ""}


def _inside(item: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    events: list[tuple[str, dict[str, Any]]] = []
    if item["type"] == "message":
        part, place = item["content"][0], {"content_index": 0}
        empty = {**part, "text": ""}
        events.append(("text", {"type": "response.content_part.added", **place, "part": empty}))
        for piece in pieces(part["text"]):
            delta: Any = {"type": "response.output_text.delta", "delta": piece, "logprobs": []}
            events.append(("text", {**delta, **place}))
        done: Any = {"type": "response.output_text.done", "text": part["text"], "logprobs": []}
        events.append(("text", {**done, **place}))
        events.append(("text", {"type": "response.content_part.done", **place, "part": part}))
    elif item["type"] == "reasoning":
        part, place = item["summary"][0], {"summary_index": 0}
        name = "response.reasoning_summary"
        empty = {**part, "text": ""}
        events.append(("thinking", {"type": f"{name}_part.added", **place, "part": empty}))
        events += [
            ("thinking", {"type": f"{name}_text.delta", **place, "delta": piece})
            for piece in pieces(part["text"])
        ]
        done = {"type": f"{name}_text.done", **place, "text": part["text"]}
        events.append(("thinking", done))
        events.append(("thinking", {"type": f"{name}_part.done", **place, "part": part}))
    elif item["type"] in CALLS:
        field = CALLS[item["type"]]
        custom = item["type"] == "custom_tool_call"
        name = "response.custom_tool_call_input" if custom else "response.function_call_arguments"
        events += [
            ("input", {"type": f"{name}.delta", "delta": piece}) for piece in pieces(item[field])
        ]
        events.append(("stop", {"type": f"{name}.done", field: item[field], "name": item["name"]}))
    return events


def _frame(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def error_frames(message: str) -> bytes:
    error = {"code": "server_error", "message": message}
    response = {**_response("model", "failed", []), "error": error}
    return _frame({"type": "response.failed", "sequence_number": 1000, "response": response})
