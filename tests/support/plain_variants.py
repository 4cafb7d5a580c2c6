"""Ordinary answers, variants of them with one member changed, and a way to switch off the typed fast paths."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar, cast

import pytest

T = TypeVar("T")
VALUES: list[Any] = [
    *(None, "", "length", True, [], {}, [{}], {"odd": 1}),
    *(0, 1, -1, 2**53, 2**60, -(2**60), 2**70, 1.0, 0.5, 1e300),
]

CALL = {"path": "/srv/main.py", "limit": 200}
PLAIN: dict[str, dict[str, Any]] = {
    "chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1757000000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Ümlaut",
                    "reasoning_content": "hm",
                    "refusal": None,
                    "annotations": [],
                    "tool_calls": [
                        {
                            "id": f"call_{number}",
                            "type": "function",
                            "function": {"name": "look", "arguments": json.dumps(CALL)},
                        }
                        for number in range(2)
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 6,
            "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 2, "accepted_prediction_tokens": 0},
        },
        "system_fingerprint": "fp_1",
    },
    "responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1757000000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "m",
        "output": [
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text} for text in ("hm", "so")],
                "encrypted_content": "c2VhbA==",
            },
            {
                "id": "msg_1",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
                    for text in ("one", "two")
                ],
            },
            *(
                {
                    "id": f"fc_{number}",
                    "type": "function_call",
                    "status": "completed",
                    "arguments": json.dumps(CALL),
                    "call_id": f"call_{number}",
                    "name": "look",
                }
                for number in range(2)
            ),
        ],
        "usage": {
            "input_tokens": 12,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 6,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 18,
        },
    },
    "messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2VhbA=="},
            {"type": "text", "text": "Ümlaut", "citations": None},
            *(
                {"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": CALL}
                for number in range(2)
            ),
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 6},
    },
}


def places(value: Any) -> Iterator[tuple[str | int, ...]]:
    """The path of every member of objects and arrays."""
    members: dict[str | int, Any] = {}
    if isinstance(value, dict):
        members = cast("dict[str | int, Any]", value)
    elif isinstance(value, list):
        members = dict(enumerate(cast("Sequence[Any]", value)))
    for key, member in members.items():
        yield (key,)
        yield from ((key, *path) for path in places(member))


def variants(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The document with one member taken out, changed to something else, or with one beside it."""
    yield whole
    for *path, last in places(whole):
        out, holder = opened(whole, path)
        del holder[last]
        yield out
        for new in VALUES:
            out, holder = opened(whole, path)
            holder[last] = new
            yield out
        if isinstance(last, str):
            out, holder = opened(whole, path)
            holder["unheard_of"] = 1
            yield out


def opened(whole: dict[str, Any], path: list[str | int]) -> tuple[dict[str, Any], Any]:
    """A copy, and what stands at a path of it."""
    out = deepcopy(whole)
    holder: Any = out
    for key in path:
        holder = holder[key]
    return out, holder


def slowly(without: Mapping[str, Callable[..., object]], work: Callable[[], T]) -> T:
    """The work done with these functions in the place of others."""
    with pytest.MonkeyPatch.context() as patch:
        for place, function in without.items():
            patch.setattr(place, function)
        return work()


def never(*_values: object) -> None:
    """Reads and writes nothing by its type."""
