"""One answer in each dialect, as its vendor streams it: text deltas, then tool calls with argument deltas.

The frames have every field that real servers send (obfuscation, logprobs, a null usage), so that the measured costs are
those of real traffic.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

import msgspec

_WORDS = (" the", " quick", " brown", ' "fox"', " jumps", " over", ".\n", " naïve", " 42", " and")
# The vendor sends a random string of varying length; here it is the same in every run.
_PADDINGS = ("7sc1eA5jd", "Qx", "0LmZ4pR8tYwEu2", "k9", "vB3nH", "sD6fG1hJ")
_PIECES = ('{"', "path", '":"', "/srv", "/app", '","', "text", '":"')


class Story(msgspec.Struct, frozen=True):
    """The size of the answer in every dialect: text deltas, calls, and argument deltas of each call."""

    texts: int = 400
    calls: int = 2
    arguments: int = 100

    def words(self) -> list[str]:
        return [_WORDS[i % len(_WORDS)] for i in range(self.texts)]

    def pieces(self) -> list[str]:
        if self.arguments <= len(_PIECES) + 1:
            return ['{"a":"', *("x" * 1 for _ in range(self.arguments - 2)), '"}']
        filler = ("x" for _ in range(self.arguments - len(_PIECES) - 1))
        return [*_PIECES, *filler, '"}']


def _data(payload: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def _named(payload: dict[str, Any]) -> bytes:
    name: str = payload["type"]
    return b"event: " + name.encode() + b"\n" + _data(payload)


def _chat(story: Story) -> Iterator[bytes]:
    paddings = cycle(_PADDINGS)

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _data(
            {
                "id": "chatcmpl-CXyZ0123456789abcdefghijklmn",
                "object": "chat.completion.chunk",
                "created": 1757000000,
                "model": "gpt-4.1-2025-04-14",
                "service_tier": "default",
                "system_fingerprint": "fp_0123456789",
                "choices": [
                    {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
                ],
                "usage": None,
                "obfuscation": next(paddings),
            }
        )

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for word in story.words():
        yield chunk({"content": word})
    for index in range(story.calls):
        head = {"index": index, "id": f"call_{index:024d}", "type": "function"}
        yield chunk({"tool_calls": [{**head, "function": {"name": "write", "arguments": ""}}]})
        for piece in story.pieces():
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls")
    yield b"data: [DONE]\n\n"


def _responses(story: Story) -> Iterator[bytes]:
    number = -1
    paddings = cycle(_PADDINGS)

    def event(kind: str, **fields: object) -> bytes:
        nonlocal number
        number += 1
        return _named({"type": kind, "sequence_number": number, **fields})

    response: dict[str, Any] = {
        "id": "resp_68a1f0c2d4e88190b7c3a5e6f7081920a1b2c3d4e5f60718",
        "object": "response",
        "created_at": 1757000000,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": "gpt-4.1-2025-04-14",
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
        "metadata": {},
    }
    yield event("response.created", response=response)
    yield event("response.in_progress", response=response)
    output: list[dict[str, Any]] = []
    message: dict[str, Any] = {
        "id": "msg_68a1f0c2d4e88190b7c3a5e6f7081920a1b2c3d4e5f60718",
        "type": "message",
    }
    where: dict[str, Any] = {"item_id": message["id"], "output_index": 0, "content_index": 0}
    empty: dict[str, Any] = {**message, "status": "in_progress", "content": [], "role": "assistant"}
    yield event("response.output_item.added", output_index=0, item=empty)
    part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
    yield event("response.content_part.added", **where, part=part)
    for word in story.words():
        padding = next(paddings)
        yield event(
            "response.output_text.delta", **where, delta=word, logprobs=[], obfuscation=padding
        )
    text = "".join(story.words())
    yield event("response.output_text.done", **where, text=text, logprobs=[])
    yield event("response.content_part.done", **where, part={**part, "text": text})
    done = {**empty, "status": "completed", "content": [{**part, "text": text}]}
    yield event("response.output_item.done", output_index=0, item=done)
    output.append(done)
    for index in range(1, story.calls + 1):
        item: dict[str, Any] = {
            "id": f"fc_{index:048d}",
            "type": "function_call",
            "status": "in_progress",
            "arguments": "",
            "call_id": f"call_{index:024d}",
            "name": "write",
        }
        yield event("response.output_item.added", output_index=index, item=item)
        at = {"item_id": item["id"], "output_index": index}
        for piece in story.pieces():
            padding = next(paddings)
            yield event(
                "response.function_call_arguments.delta", **at, delta=piece, obfuscation=padding
            )
        whole = "".join(story.pieces())
        yield event("response.function_call_arguments.done", **at, arguments=whole)
        item = {**item, "status": "completed", "arguments": whole}
        yield event("response.output_item.done", output_index=index, item=item)
        output.append(item)
    usage = {
        "input_tokens": 120,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 600,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 720,
    }
    final = {**response, "status": "completed", "output": output, "usage": usage}
    yield event("response.completed", response=final)


def _messages(story: Story) -> Iterator[bytes]:
    usage = {
        "input_tokens": 120,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 1,
    }
    yield _named(
        {
            "type": "message_start",
            "message": {
                "id": "msg_01AbCdEfGhIjKlMnOpQrStUv",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-4-5",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": usage,
            },
        }
    )

    def block(
        index: int, start: dict[str, Any], deltas: Sequence[dict[str, Any]]
    ) -> Iterator[bytes]:
        yield _named({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield _named({"type": "content_block_delta", "index": index, "delta": delta})
        yield _named({"type": "content_block_stop", "index": index})

    texts = [{"type": "text_delta", "text": word} for word in story.words()]
    yield from block(0, {"type": "text", "text": ""}, texts)
    for index in range(1, story.calls + 1):
        start: dict[str, Any] = {
            "type": "tool_use",
            "id": f"toolu_{index:024d}",
            "name": "write",
            "input": {},
        }
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in story.pieces()]
        yield from block(index, start, pieces)
    yield _named(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 600},
        }
    )
    yield _named({"type": "message_stop"})


STREAMS: dict[str, Callable[[Story], Iterator[bytes]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
}


def dialect_stream(dialect: str, story: Story) -> list[bytes]:
    """The frames of one stream, one element per event."""
    return list(STREAMS[dialect](story))
