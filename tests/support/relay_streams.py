"""One answer as each vendor streams it, and every deviation that was tried on real clients.

The answer: a text, then one call of `get_weather`. A deviation changes its payloads, or their bytes. `HARMLESS` deviations
break no client and pass unchanged; `HARMFUL` ones break some client and must be corrected; `STRAYS` insert a frame that
the relay must drop.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

Payload = dict[str, Any]
Payloads = list[Payload]
Deviation = Callable[[Payloads], Payloads | bytes]

TEXT = "Let me look."
CALL = ("get_weather", '{"city": "Paris"}')
FRAGMENTS = ('{"ci', 'ty": "Pa', "ri", 's"}')


def wire(dialect: str, payloads: Payloads, *, names: bool = True) -> bytes:
    out: list[str] = []
    for payload in payloads:
        head = f"event: {payload['type']}\n" if names and dialect != "chat" else ""
        out.append(f"{head}data: {json.dumps(payload)}\n\n")
    return ("".join(out) + ("data: [DONE]\n\n" if dialect == "chat" else "")).encode()


def base(dialect: str) -> Payloads:
    return copy.deepcopy({"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}[dialect])


# --- Chat Completions -----------------------------------------------------------------------------


def chunk(delta: Payload, finish: str | None = None) -> Payload:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1757000000,
        "model": "gpt-x",
        "choices": [choice],
    }


def entry(**fields: Any) -> Payload:
    return {"tool_calls": [{"index": 0, **fields}]}


USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
CHAT: Payloads = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": TEXT[:6]}),
    chunk({"content": TEXT[6:]}),
    chunk(entry(id="call_1", type="function", function={"name": CALL[0], "arguments": ""})),
    *(chunk(entry(function={"arguments": fragment})) for fragment in FRAGMENTS),
    chunk({}, "tool_calls"),
    {**chunk({}), "choices": [], "usage": USAGE},
]


def deltas(payloads: Payloads) -> list[Payload]:
    return [choice["delta"] for payload in payloads for choice in payload["choices"]]


def entries(payloads: Payloads) -> list[Payload]:
    return [call for delta in deltas(payloads) for call in delta.get("tool_calls", ())]


def chat_no_role(payloads: Payloads) -> Payloads:
    del deltas(payloads)[0]["role"]
    return payloads


def chat_role_each(payloads: Payloads) -> Payloads:
    for delta in deltas(payloads):
        delta["role"] = "assistant"
    return payloads


def chat_content_null(payloads: Payloads) -> Payloads:
    for delta in deltas(payloads):
        delta.setdefault("content", None)
    return payloads


def chat_content_absent(payloads: Payloads) -> Payloads:
    del deltas(payloads)[0]["content"]
    return payloads


def chat_top_arguments(payloads: Payloads) -> Payloads:
    for call in entries(payloads):
        call["arguments"] = call["function"]["arguments"]
    return payloads


def chat_no_index(payloads: Payloads) -> Payloads:
    for call in entries(payloads):
        del call["index"]
    return payloads


def chat_id_each(payloads: Payloads) -> Payloads:
    for call in entries(payloads):
        call["id"] = "call_1"
    return payloads


def chat_id_empty_later(payloads: Payloads) -> Payloads:
    for call in entries(payloads)[1:]:
        call["id"] = ""
    return payloads


def chat_no_id(payloads: Payloads) -> Payloads:
    del entries(payloads)[0]["id"]
    return payloads


def chat_name_empty_later(payloads: Payloads) -> Payloads:
    for call in entries(payloads)[1:]:
        call["function"]["name"] = ""
    return payloads


def chat_name_null_later(payloads: Payloads) -> Payloads:
    for call in entries(payloads)[1:]:
        call["function"]["name"] = None
    return payloads


def chat_name_each(payloads: Payloads) -> Payloads:
    for call in entries(payloads):
        call["function"]["name"] = CALL[0]
    return payloads


def chat_late_name(payloads: Payloads) -> Payloads:
    first, second = entries(payloads)[:2]
    second["function"]["name"] = first["function"].pop("name")
    return payloads


def chat_split_name(payloads: Payloads) -> Payloads:
    first, second = entries(payloads)[:2]
    first["function"]["name"], second["function"]["name"] = CALL[0][:4], CALL[0][4:]
    return payloads


def chat_no_type(payloads: Payloads) -> Payloads:
    del entries(payloads)[0]["type"]
    return payloads


def chat_object_arguments(payloads: Payloads) -> Payloads:
    entries(payloads)[0]["function"]["arguments"] = json.loads(CALL[1])
    return payloads[:4] + payloads[8:]


def chat_no_envelope(payloads: Payloads) -> Payloads:
    for payload in payloads:
        for key in ("id", "object", "created", "model"):
            del payload[key]
    return payloads


def chat_no_envelope_later(payloads: Payloads) -> Payloads:
    del payloads[6]["id"]
    return payloads


def chat_finish(word: str | None) -> Deviation:
    def change(payloads: Payloads) -> Payloads:
        payloads[-2]["choices"][0]["finish_reason"] = word
        return payloads

    return change


def chat_no_finish_key(*numbers: int) -> Deviation:
    """Leave out the key `finish_reason`, null or not, of these payloads; of all before the finish if none is named."""

    def change(payloads: Payloads) -> Payloads:
        for number in numbers or range(len(payloads) - 2):
            del payloads[number]["choices"][0]["finish_reason"]
        return payloads

    return change


def chat_finish_with_delta(payloads: Payloads) -> Payloads:
    payloads[-3]["choices"][0]["finish_reason"] = "tool_calls"
    return [*payloads[:-2], payloads[-1]]


def chat_usage_each(payloads: Payloads) -> Payloads:
    for payload in payloads:
        payload["usage"] = USAGE
    return payloads


def chat_empty_choices_first(payloads: Payloads) -> Payloads:
    return [{**payloads[0], "id": "", "model": "", "choices": []}, *payloads]


def chat_cumulative(payloads: Payloads) -> Payloads:
    so_far = ""
    for call in entries(payloads)[1:]:
        so_far += call["function"]["arguments"]
        call["function"]["arguments"] = so_far
    return payloads


def chat_interleaved(payloads: Payloads) -> Payloads:
    second = copy.deepcopy(payloads[3:8])
    for payload in second:
        payload["choices"][0]["delta"]["tool_calls"][0]["index"] = 1
    second[0]["choices"][0]["delta"]["tool_calls"][0]["id"] = "call_2"
    mixed = [each for pair in zip(payloads[3:8], second, strict=True) for each in pair]
    return [*payloads[:3], *mixed, *payloads[8:]]


def chat_no_arguments(payloads: Payloads) -> Payloads:
    return payloads[:4] + payloads[8:]


def chat_after_finish(payloads: Payloads) -> Payloads:
    return [*payloads[:-2], payloads[-2], chunk({"content": "more"}), payloads[-1]]


def chat_no_done(payloads: Payloads) -> bytes:
    return wire("chat", payloads).removesuffix(b"data: [DONE]\n\n")


def chat_legacy(payloads: Payloads) -> Payloads:
    for delta in deltas(payloads):
        for call in delta.pop("tool_calls", ()):
            delta["function_call"] = call["function"]
    return chat_finish("function_call")(payloads)  # type: ignore[return-value]  # it returns payloads


# --- Responses --------------------------------------------------------------------------------------


def response(status: str, output: Payloads) -> Payload:
    usage = {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 12,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1757000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "gpt-x",
        "output": output,
        "parallel_tool_calls": True,
        "reasoning": {"effort": None, "summary": None},
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if status == "completed" else None,
    }


def message(status: str, content: Payloads) -> Payload:
    return {
        "id": "msg_1",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def call(status: str, arguments: str) -> Payload:
    return {
        "id": "fc_1",
        "type": "function_call",
        "status": status,
        "call_id": "call_1",
        "name": CALL[0],
        "arguments": arguments,
    }


def part(text: str) -> Payload:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def numbered(payloads: Payloads) -> Payloads:
    for number, payload in enumerate(payloads):
        payload["sequence_number"] = number
    return payloads


TEXT_PLACE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
CALL_PLACE = {"item_id": "fc_1", "output_index": 1}
ARGUMENTS = "response.function_call_arguments"
FINAL = [message("completed", [part(TEXT)]), call("completed", CALL[1])]
RESPONSES: Payloads = numbered(
    [
        {"type": "response.created", "response": response("in_progress", [])},
        {"type": "response.in_progress", "response": response("in_progress", [])},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": message("in_progress", []),
        },
        {"type": "response.content_part.added", **TEXT_PLACE, "part": part("")},
        *(
            {"type": "response.output_text.delta", **TEXT_PLACE, "delta": text, "logprobs": []}
            for text in (TEXT[:6], TEXT[6:])
        ),
        {"type": "response.output_text.done", **TEXT_PLACE, "text": TEXT, "logprobs": []},
        {"type": "response.content_part.done", **TEXT_PLACE, "part": part(TEXT)},
        {"type": "response.output_item.done", "output_index": 0, "item": FINAL[0]},
        {"type": "response.output_item.added", "output_index": 1, "item": call("in_progress", "")},
        *({"type": f"{ARGUMENTS}.delta", **CALL_PLACE, "delta": text} for text in FRAGMENTS),
        {"type": f"{ARGUMENTS}.done", **CALL_PLACE, "name": CALL[0], "arguments": CALL[1]},
        {"type": "response.output_item.done", "output_index": 1, "item": FINAL[1]},
        {"type": "response.completed", "response": response("completed", FINAL)},
    ]
)


def without_events(*names: str) -> Deviation:
    def change(payloads: Payloads) -> Payloads:
        left = [payload for payload in payloads if payload["type"] not in names]
        return numbered(left) if "sequence_number" in payloads[0] else left

    return change


def without_key(key: str, *, kind: str = "") -> Deviation:
    """Every event, or those of a kind, without one of its own members."""

    def change(payloads: Payloads) -> Payloads:
        for payload in payloads:
            if not kind or payload["type"] == kind:
                payload.pop(key, None)
        return payloads

    return change


def each_item(payloads: Payloads) -> list[Payload]:
    own = [payload["item"] for payload in payloads if "item" in payload]
    return own + [
        item for payload in payloads for item in payload.get("response", {}).get("output", ())
    ]


def items_without(key: str) -> Deviation:
    def change(payloads: Payloads) -> Payloads:
        for item in each_item(payloads):
            item.pop(key, None)
        return payloads

    return change


def resp_call_id_as_id(payloads: Payloads) -> Payloads:
    return json.loads(json.dumps(payloads).replace('"fc_1"', '"call_1"'))  # type: ignore[no-any-return]  # JSON


def resp_arguments_in_added(payloads: Payloads) -> Payloads:
    payloads[9]["item"]["arguments"] = CALL[1]
    return payloads


def resp_no_annotations(payloads: Payloads) -> Payloads:
    for item in each_item(payloads):
        for content in item.get("content", ()):
            content.pop("annotations", None)
    return payloads


def resp_final(**fields: Any) -> Deviation:
    def change(payloads: Payloads) -> Payloads:
        payloads[-1]["response"] |= fields
        return payloads

    return change


def resp_minimal_final(payloads: Payloads) -> Payloads:
    keys = ("id", "object", "created_at", "status", "model", "output", "usage")
    whole = payloads[-1]["response"]
    payloads[-1]["response"] = {key: whole[key] for key in keys}
    return payloads


def resp_no_output_key(payloads: Payloads) -> Payloads:
    del payloads[0]["response"]["output"]
    return payloads


def resp_usage_no_details(payloads: Payloads) -> Payloads:
    del payloads[-1]["response"]["usage"]["input_tokens_details"]
    return payloads


def resp_error(event: Payload) -> Deviation:
    return lambda payloads: numbered([*payloads[:12], event])


# --- Messages -----------------------------------------------------------------------------------------

MESSAGES: Payloads = [
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    *(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        for text in (TEXT[:6], TEXT[6:])
    ),
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": CALL[0], "input": {}},
    },
    *(
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": text},
        }
        for text in ("", *FRAGMENTS)
    ),
    {"type": "content_block_stop", "index": 1},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 7},
    },
    {"type": "message_stop"},
]


def anth_start_usage(payloads: Payloads) -> Payloads:
    del payloads[0]["message"]["usage"]
    return payloads


def anth_delta(**fields: Any) -> Deviation:
    def change(payloads: Payloads) -> Payloads:
        payloads[-2]["delta"] |= fields
        return payloads

    return change


def anth_block(**fields: Any) -> Deviation:
    def change(payloads: Payloads) -> Payloads:
        payloads[5]["content_block"] |= fields
        return payloads

    return change


def anth_no_input_start(payloads: Payloads) -> Payloads:
    del payloads[5]["content_block"]["input"]
    return payloads


def anth_bare_delta(payloads: Payloads) -> Payloads:
    """As servers write an empty fragment that leave out empty strings."""
    del payloads[6]["delta"]["partial_json"]
    return payloads


def anth_input_in_start(payloads: Payloads) -> Payloads:
    payloads[5]["content_block"]["input"] = json.loads(CALL[1])
    return payloads[:6] + payloads[11:]


def anth_index_gap(payloads: Payloads) -> Payloads:
    for payload in payloads:
        if "index" in payload:
            payload["index"] = payload["index"] * 2 + 1
    return payloads


def anth_interleaved(payloads: Payloads) -> Payloads:
    second = copy.deepcopy(payloads[5:12])
    for payload in second:
        payload["index"] = 2
    second[0]["content_block"]["id"] = "toolu_2"
    mixed = [each for pair in zip(payloads[5:12], second, strict=True) for each in pair]
    return [*payloads[:5], *mixed, *payloads[12:]]


def anth_cumulative(payloads: Payloads) -> Payloads:
    so_far = ""
    for payload in payloads[7:11]:
        so_far += payload["delta"]["partial_json"]
        payload["delta"]["partial_json"] = so_far
    return payloads


def anth_extra_fields(payloads: Payloads) -> Payloads:
    for payload in payloads:
        payload["x_new"] = 1
    return payloads


def anth_no_event_lines(payloads: Payloads) -> bytes:
    return wire("messages", payloads, names=False)


# --- the tables -----------------------------------------------------------------------------------------


def bytewise(dialect: str, old: bytes, new: bytes) -> Deviation:
    return lambda payloads: wire(dialect, payloads).replace(old, new)


def inserted(at: int, payload: Payload) -> Deviation:
    return lambda payloads: [*payloads[:at], payload, *payloads[at:]]


HARMLESS: dict[tuple[str, str], Deviation] = {
    ("chat", "role in every delta"): chat_role_each,
    ("chat", "content null beside calls"): chat_content_null,
    ("chat", "content absent"): chat_content_absent,
    ("chat", "arguments beside function too"): chat_top_arguments,
    ("chat", "name empty later"): chat_name_empty_later,
    ("chat", "name null later"): chat_name_null_later,
    ("chat", "finish with the last arguments"): chat_finish_with_delta,
    ("chat", "usage in every chunk"): chat_usage_each,
    ("chat", "first chunk without choices"): chat_empty_choices_first,
    ("chat", "comments"): bytewise("chat", b"data: {", b": hello\n\ndata: {"),
    ("chat", "event lines"): bytewise("chat", b"data: {", b"event: message\ndata: {"),
    ("chat", "no space after the colon"): bytewise("chat", b"data: {", b"data:{"),
    ("chat", "CRLF"): bytewise("chat", b"\n", b"\r\n"),
    ("responses", "keepalive events"): inserted(5, {"type": "keepalive"}),
    ("responses", "comments"): bytewise("responses", b"event: ", b": hello\n\nevent: "),
    ("responses", "no event lines"): lambda payloads: wire("responses", payloads, names=False),
    ("responses", "no in_progress"): without_events("response.in_progress"),
    ("responses", "no part done"): without_events(
        "response.output_text.done", "response.content_part.done"
    ),
    ("responses", "no arguments done"): without_events(f"{ARGUMENTS}.done"),
    ("responses", "a minimal final response"): resp_minimal_final,
    ("responses", "usage null"): resp_final(usage=None),
    ("responses", "usage without details"): resp_usage_no_details,
    ("responses", "no sequence numbers"): without_key("sequence_number"),
    ("responses", "no logprobs"): without_key("logprobs"),
    ("messages", "pings"): inserted(2, {"type": "ping"}),
    ("messages", "an empty delta"): inserted(11, MESSAGES[6]),
    ("messages", "comments"): bytewise("messages", b"event: ", b": hello\n\nevent: "),
    ("messages", "usage with nulls"): bytewise(
        "messages", b'"output_tokens": 7', b'"output_tokens": 7, "input_tokens": null'
    ),
    ("messages", "no stop_sequence"): bytewise("messages", b', "stop_sequence": null', b""),
    ("messages", "an id of another vendor"): anth_block(id="call_abc123"),
    ("messages", "fields nobody knows"): anth_extra_fields,
}

_RESP_FAILURES: dict[tuple[str, str], Deviation] = {
    ("responses", "a nested error event"): resp_error(
        {
            "type": "error",
            "error": {"type": "server_error", "code": "server_error", "message": "it broke"},
        }
    ),
    ("responses", "a flat error event"): resp_error(
        {"type": "error", "code": "server_error", "message": "it broke", "param": None}
    ),
    ("responses", "no completed"): without_events("response.completed"),
}

HARMFUL: dict[tuple[str, str], Deviation] = {
    ("chat", "id in every delta"): chat_id_each,
    ("messages", "a start without input"): anth_no_input_start,
    ("messages", "a delta with nothing but its type"): anth_bare_delta,
    ("chat", "no role"): chat_no_role,
    ("chat", "no index"): chat_no_index,
    ("chat", "id empty later"): chat_id_empty_later,
    ("chat", "no id"): chat_no_id,
    ("chat", "name in every delta"): chat_name_each,
    ("chat", "name late"): chat_late_name,
    ("chat", "name in pieces"): chat_split_name,
    ("chat", "no type"): chat_no_type,
    ("chat", "arguments as an object"): chat_object_arguments,
    ("chat", "no envelope"): chat_no_envelope,
    ("chat", "no id on one chunk"): chat_no_envelope_later,
    ("chat", "finish stop beside calls"): chat_finish("stop"),
    ("chat", "finish unknown"): chat_finish("done_now"),
    ("chat", "finish missing"): chat_finish(None),
    ("chat", "no finish_reason before the finish"): chat_no_finish_key(),
    ("chat", "no finish_reason in a text delta"): chat_no_finish_key(2),
    ("chat", "no finish_reason in an arguments delta"): chat_no_finish_key(6),
    ("chat", "arguments resent"): chat_cumulative,
    ("chat", "calls interleaved"): chat_interleaved,
    ("chat", "no arguments at all"): chat_no_arguments,
    ("chat", "text after the finish"): chat_after_finish,
    ("chat", "no DONE"): chat_no_done,
    ("chat", "legacy function_call"): chat_legacy,
    ("responses", "incomplete in completed"): resp_final(status="incomplete"),
    ("responses", "no created"): without_events("response.created", "response.in_progress"),
    ("responses", "no item added"): without_events("response.output_item.added"),
    ("responses", "no item done"): without_events("response.output_item.done"),
    ("responses", "no part added"): without_events("response.content_part.added"),
    ("responses", "no arguments deltas"): without_events(f"{ARGUMENTS}.delta"),
    ("responses", "items only"): without_events(f"{ARGUMENTS}.delta", f"{ARGUMENTS}.done"),
    ("responses", "arguments in added"): resp_arguments_in_added,
    ("responses", "output empty at the end"): resp_final(output=[]),
    ("responses", "created without output"): resp_no_output_key,
    ("responses", "no item_id"): without_key("item_id"),
    ("responses", "no output_index"): without_key("output_index"),
    ("responses", "items without id"): items_without("id"),
    ("responses", "items without status"): items_without("status"),
    ("responses", "call id as id"): resp_call_id_as_id,
    ("responses", "no annotations"): resp_no_annotations,
    **_RESP_FAILURES,
    ("messages", "no event lines"): anth_no_event_lines,
    ("messages", "no message_stop"): without_events("message_stop"),
    ("messages", "no message_delta"): without_events("message_delta"),
    ("messages", "no block stop"): without_events("content_block_stop"),
    ("messages", "no usage in the start"): anth_start_usage,
    ("messages", "no usage in the delta"): without_key("usage", kind="message_delta"),
    ("messages", "input in the start"): anth_input_in_start,
    ("messages", "input empty text"): anth_block(input=""),
    ("messages", "end_turn beside a call"): anth_delta(stop_reason="end_turn"),
    ("messages", "stop reason unknown"): anth_delta(stop_reason="weird"),
    ("messages", "index gaps"): anth_index_gap,
    ("messages", "blocks interleaved"): anth_interleaved,
    ("messages", "input resent"): anth_cumulative,
    ("messages", "a foreign id"): anth_block(id="functions.get_weather:0"),
}
"""What each of these means is what the reader makes of it; the failures among them are failures before and after."""

STRAYS: dict[tuple[str, str], tuple[int, Payload]] = {
    ("responses", "required_action"): (
        len(RESPONSES) - 1,
        {"type": "response.required_action", "response": {"id": "resp_1"}},
    ),
    ("responses", "ping"): (5, {"type": "ping"}),
    ("responses", "an unknown event"): (5, {"type": "response.gateway.note", "x": 1}),
    ("messages", "an unknown event"): (2, {"type": "gateway_note", "x": 1}),
    ("messages", "an unknown delta"): (
        7,
        {"type": "content_block_delta", "index": 1, "delta": {"type": "odd_delta", "x": 1}},
    ),
}
