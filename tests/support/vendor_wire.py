"""One answer as each vendor would send it, streamed and whole: written from the vendors' documentation, not by our encoders.

An answer is a list of pieces in order; `interleaved` alternates the deltas of neighbouring calls, as vendors may.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, Literal

from msgspec import Struct, field, structs

Json = dict[str, Any]
Finish = Literal["stop", "length", "refusal"]


class Said(Struct, frozen=True):
    """Text, in pieces."""

    pieces: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Thought(Struct, frozen=True):
    """Reasoning with its seal."""

    text: str
    seal: str


class Tool(Struct, frozen=True):
    """A call. `pieces` are the argument deltas; `custom` calls carry free text. Namespaces exist in Responses only."""

    call_id: str
    name: str
    pieces: tuple[str, ...]
    custom: bool = False
    namespace: str | None = None

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class Answer(Struct, frozen=True):
    parts: tuple[Said | Thought | Tool, ...]
    finish: Finish = "stop"
    interleaved: bool = False
    model: str = "upstream-model"
    usage: dict[str, int] = field(default_factory=lambda: {"input": 11, "output": 7, "cached": 3})

    @property
    def calls(self) -> list[Tool]:
        return [part for part in self.parts if isinstance(part, Tool)]


def stream(dialect: str, answer: Answer) -> bytes:
    payloads = {"chat": _chat, "responses": _responses, "messages": _messages}[dialect](answer)
    out: list[bytes] = []
    for payload in payloads:
        if dialect != "chat":
            out.append(f"event: {payload['type']}\n".encode())
        out.append(b"data: " + json.dumps(payload).encode() + b"\n\n")
    if dialect == "chat":
        out.append(b"data: [DONE]\n\n")
    return b"".join(out)


def body(dialect: str, answer: Answer) -> Json:
    return {"chat": _chat_body, "responses": _responses_body, "messages": _messages_body}[dialect](
        answer
    )


def body_bytes(dialect: str, answer: Answer) -> bytes:
    """The body with the very text of each call's arguments, where the dialect has an object in their place."""
    marked = {f'{{"@call": {at}}}': call for at, call in enumerate(answer.calls)}
    texts = iter(marked)
    parts = tuple(
        structs.replace(part, pieces=(next(texts),)) if isinstance(part, Tool) else part
        for part in answer.parts
    )
    if dialect != "messages":
        return json.dumps(body(dialect, answer)).encode()
    text = json.dumps(body(dialect, structs.replace(answer, parts=parts)))
    for mark, call in marked.items():
        text = text.replace(mark, call.arguments or "{}")
    return text.encode()


def _turns(groups: list[list[Json]], *, interleaved: bool) -> Iterator[Json]:
    """The deltas of several calls, one call after the other or alternating."""
    if not interleaved:
        for group in groups:
            yield from group
        return
    for row in zip_longest(*groups):
        yield from (payload for payload in row if payload is not None)


# --- Chat ---------------------------------------------------------------------------------------------------------


def _chat(answer: Answer) -> Iterator[Json]:
    def chunk(delta: Json, finish: str | None = None) -> Json:
        return {
            "id": "chatcmpl-vendor1",
            "object": "chat.completion.chunk",
            "created": 1750000000,
            "model": answer.model,
            "system_fingerprint": "fp_1",
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
            "usage": None,
        }

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for part in answer.parts:
        if isinstance(part, Thought):
            yield chunk({"reasoning_content": part.text})
        elif isinstance(part, Said):
            key = "refusal" if answer.finish == "refusal" else "content"
            for piece in part.pieces:
                yield chunk({key: piece})
    groups: list[list[Json]] = []
    for index, call in enumerate(answer.calls):
        kind, argument = ("custom", "input") if call.custom else ("function", "arguments")
        head = {
            "index": index,
            "id": call.call_id,
            "type": kind,
            kind: {"name": call.name, argument: ""},
        }
        group = [chunk({"tool_calls": [head]})]
        group += [
            chunk({"tool_calls": [{"index": index, kind: {argument: piece}}]})
            for piece in call.pieces
        ]
        groups.append(group)
    yield from _turns(groups, interleaved=answer.interleaved)
    yield chunk({}, _chat_finish(answer))
    yield {**chunk({}), "choices": [], "usage": _chat_usage(answer)}


def _chat_finish(answer: Answer) -> str:
    if answer.finish == "length":
        return "length"
    return "tool_calls" if answer.calls else "stop"


def _written(answer: Answer) -> Json:
    """OpenAI reports these tokens of newer models only."""
    written = answer.usage.get("written")
    return {} if written is None else {"cache_write_tokens": written}


def _chat_usage(answer: Answer) -> Json:
    usage, written = answer.usage, _written(answer)
    return {
        "prompt_tokens": usage["input"],
        "completion_tokens": usage["output"],
        "total_tokens": usage["input"] + usage["output"],
        "prompt_tokens_details": {"cached_tokens": usage["cached"], "audio_tokens": 0, **written},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _chat_body(answer: Answer) -> Json:
    text = "".join(part.text for part in answer.parts if isinstance(part, Said))
    refused = answer.finish == "refusal"
    message: Json = {
        "role": "assistant",
        "content": None if refused or not text else text,
        "refusal": text if refused else None,
        "annotations": [],
    }
    thought = "".join(part.text for part in answer.parts if isinstance(part, Thought))
    if thought:
        message["reasoning_content"] = thought
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "custom" if call.custom else "function",
                ("custom" if call.custom else "function"): {
                    "name": call.name,
                    ("input" if call.custom else "arguments"): call.arguments,
                },
            }
            for call in answer.calls
        ]
    return {
        "id": "chatcmpl-vendor1",
        "object": "chat.completion",
        "created": 1750000000,
        "model": answer.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": _chat_finish(answer),
            }
        ],
        "usage": _chat_usage(answer),
        "system_fingerprint": "fp_1",
    }


# --- Responses ----------------------------------------------------------------------------------------------------


def _responses(answer: Answer) -> Iterator[Json]:
    for number, payload in enumerate(_responses_events(answer)):
        yield {**payload, "sequence_number": number}


def _responses_events(answer: Answer) -> Iterator[Json]:
    opening: Json = {
        **_responses_body(answer),
        "status": "in_progress",
        "output": [],
        "usage": None,
    }
    opening["incomplete_details"] = None
    yield {"type": "response.created", "response": opening}
    yield {"type": "response.in_progress", "response": opening}
    items = _items(answer)
    groups: list[list[Json]] = []
    for index, (part, item) in enumerate(zip(answer.parts, items, strict=True)):
        if isinstance(part, Tool):
            groups.append(list(_call_events(part, item, index)))
        else:
            yield from _turns(groups, interleaved=answer.interleaved)
            groups = []
            yield from _item_events(part, item, index, answer)
    yield from _turns(groups, interleaved=answer.interleaved)
    last = "response.incomplete" if answer.finish == "length" else "response.completed"
    yield {"type": last, "response": _responses_body(answer)}


def _call_events(call: Tool, item: Json, index: int) -> Iterator[Json]:
    place = {"item_id": item["id"], "output_index": index}
    field_name, name = (
        ("input", "response.custom_tool_call_input")
        if call.custom
        else ("arguments", "response.function_call_arguments")
    )
    opened = {**item, field_name: "", "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": opened}
    for piece in call.pieces:
        yield {"type": f"{name}.delta", **place, "delta": piece}
    yield {"type": f"{name}.done", **place, field_name: call.arguments}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _item_events(part: Said | Thought, item: Json, index: int, answer: Answer) -> Iterator[Json]:
    place = {"item_id": item["id"], "output_index": index}
    yield {
        "type": "response.output_item.added",
        "output_index": index,
        "item": {**item, "status": "in_progress", "content": []}
        if isinstance(part, Said)
        else {**item, "summary": []},
    }
    if isinstance(part, Said):
        whole = item["content"][0]
        kind, key = (
            ("response.refusal", "refusal")
            if answer.finish == "refusal"
            else ("response.output_text", "text")
        )
        spot = {**place, "content_index": 0}
        yield {"type": "response.content_part.added", **spot, "part": {**whole, key: ""}}
        for piece in part.pieces:
            yield {"type": f"{kind}.delta", **spot, "delta": piece, "logprobs": []}
        yield {"type": f"{kind}.done", **spot, key: part.text, "logprobs": []}
        yield {"type": "response.content_part.done", **spot, "part": whole}
    else:
        spot = {**place, "summary_index": 0}
        empty = {"type": "summary_text", "text": ""}
        yield {"type": "response.reasoning_summary_part.added", **spot, "part": empty}
        yield {"type": "response.reasoning_summary_text.delta", **spot, "delta": part.text}
        yield {"type": "response.reasoning_summary_text.done", **spot, "text": part.text}
        yield {
            "type": "response.reasoning_summary_part.done",
            **spot,
            "part": {"type": "summary_text", "text": part.text},
        }
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _items(answer: Answer) -> list[Json]:
    return [_item(part, index, answer) for index, part in enumerate(answer.parts)]


def _item(part: Said | Thought | Tool, index: int, answer: Answer) -> Json:
    if isinstance(part, Thought):
        return {
            "id": f"rs_vendor{index}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": part.text}],
            "encrypted_content": part.seal,
        }
    if isinstance(part, Said):
        content: Json = (
            {"type": "refusal", "refusal": part.text}
            if answer.finish == "refusal"
            else {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
        )
        return {
            "id": f"msg_vendor{index}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [content],
        }
    if part.custom:
        return {
            "id": f"ctc_vendor{index}",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": part.call_id,
            "name": part.name,
            "input": part.arguments,
        }
    is_cut = answer.finish == "length" and index == len(answer.parts) - 1
    item: Json = {
        "id": f"fc_vendor{index}",
        "type": "function_call",
        "status": "incomplete" if is_cut else "completed",
        "arguments": part.arguments,
        "call_id": part.call_id,
        "name": part.name,
    }
    return item if part.namespace is None else {**item, "namespace": part.namespace}


def _responses_body(answer: Answer) -> Json:
    usage = answer.usage
    short = answer.finish == "length"
    return {
        "id": "resp_vendor1",
        "object": "response",
        "created_at": 1750000000,
        "status": "incomplete" if short else "completed",
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if short else None,
        "instructions": None,
        "max_output_tokens": None,
        "model": answer.model,
        "output": _items(answer),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": usage["input"],
            "input_tokens_details": {"cached_tokens": usage["cached"], **_written(answer)},
            "output_tokens": usage["output"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["input"] + usage["output"],
        },
        "user": None,
        "metadata": {},
    }


# --- Messages -----------------------------------------------------------------------------------------------------


def _messages(answer: Answer) -> Iterator[Json]:
    opening: Json = {**_messages_body(answer), "content": [], "stop_reason": None}
    opening["usage"] = {**opening["usage"], "output_tokens": 1}
    yield {"type": "message_start", "message": opening}
    yield {"type": "ping"}
    groups: list[list[Json]] = []
    for index, (part, block) in enumerate(zip(answer.parts, _blocks(answer), strict=True)):
        if isinstance(part, Tool):
            groups.append(list(_block_events(part, block, index)))
            continue
        yield from _turns(groups, interleaved=answer.interleaved)
        groups = []
        yield from _block_events(part, block, index)
    yield from _turns(groups, interleaved=answer.interleaved)
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _stop_reason(answer), "stop_sequence": None},
        "usage": {"output_tokens": answer.usage["output"]},
    }
    yield {"type": "message_stop"}


def _block_events(part: Said | Thought | Tool, block: Json, index: int) -> Iterator[Json]:
    def delta(kind: str, **fields: str) -> Json:
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}

    empty: Json
    deltas: Iterable[Json]
    if isinstance(part, Said):
        empty = {"type": "text", "text": ""}
        deltas = [delta("text_delta", text=piece) for piece in part.pieces]
    elif isinstance(part, Thought):
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [
            delta("thinking_delta", thinking=part.text),
            delta("signature_delta", signature=part.seal),
        ]
    else:
        empty = {**block, "input": {}}
        deltas = [delta("input_json_delta", partial_json=piece) for piece in ("", *part.pieces)]
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    yield from deltas
    yield {"type": "content_block_stop", "index": index}


def _blocks(answer: Answer) -> list[Json]:
    return [_block(part) for part in answer.parts]


def _block(part: Said | Thought | Tool) -> Json:
    if isinstance(part, Said):
        return {"type": "text", "text": part.text}
    if isinstance(part, Thought):
        return {"type": "thinking", "thinking": part.text, "signature": part.seal}
    return {
        "type": "tool_use",
        "id": part.call_id,
        "name": part.name,
        "input": _object(part.arguments),
    }


def _object(arguments: str) -> Json:
    """Nothing where a limit cut the text, as in the vendor's own bodies."""
    try:
        value: Json = json.loads(arguments)
    except ValueError:
        return {}
    return value


def _stop_reason(answer: Answer) -> str:
    if answer.finish == "length":
        return "max_tokens"
    if answer.finish == "refusal":
        return "refusal"
    return "tool_use" if answer.calls else "end_turn"


def _messages_body(answer: Answer) -> Json:
    usage = answer.usage
    return {
        "id": "msg_vendor1",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": _blocks(answer),
        "stop_reason": _stop_reason(answer),
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage["input"] - usage["cached"] - usage.get("written", 0),
            "cache_creation_input_tokens": usage.get("written", 0),
            "cache_read_input_tokens": usage["cached"],
            "output_tokens": usage["output"],
        },
    }
