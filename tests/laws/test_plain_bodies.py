"""A body read by its type alone means what it means when it is read field by field; and so does a request's content.

Every body here is compared as it is and with each of its members changed in turn: what is read quickly although it should
not be would show.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, cast

import pytest

from corpus_cases import DIALECTS, stream_cases
from dragoman._json import as_object, raw
from dragoman.core.results import ERROR_MARK
from dragoman.dialects.base import DecodeContext
from dragoman.dialects.chat import plain as chat_plain
from dragoman.dialects.chat import plain_turn
from dragoman.dialects.messages import plain as messages_plain
from dragoman.dialects.registry import codec
from dragoman.dialects.responses import plain as responses_plain
from dragoman.dialects.responses import plain_item
from dragoman.errors import RequestRefused
from dragoman.model.request import Tool
from vendor_answers import BODIES

READERS = {
    "chat": ["chat.decode.read_plain", "chat.read_turns.read_plain"],
    "responses": ["responses.decode.read_plain", "responses.history.read_plain"],
    "messages": ["messages.body.read_plain", "messages.history.read_content"],
}
CONTEXT = DecodeContext(tools=(Tool(name="look"),), choices=1, seed="law")
VALUES: list[Any] = [None, "", "length", 0, 1, True, [], {}, [{}], {"odd": 1}]

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
REQUESTS: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "m",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "be kind"}], "name": None},
            {"role": "user", "content": "look", "name": "ada"},
            {
                "role": "assistant",
                "content": "Ümlaut",
                "refusal": None,
                "tool_calls": PLAIN["chat"]["choices"][0]["message"]["tool_calls"],
            },
            {"role": "tool", "tool_call_id": "call_0", "content": "a"},
            {"role": "tool", "tool_call_id": "call_1", "content": ERROR_MARK + "b"},
        ],
    },
    "responses": {
        "model": "m",
        "input": [
            {"role": "user", "content": "look"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "now"}]},
            {**PLAIN["responses"]["output"][0], "phase": None},
            *PLAIN["responses"]["output"],
            {"type": "function_call_output", "call_id": "call_0", "output": "a", "id": "fco_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": ERROR_MARK + "b"},
        ],
    },
    "messages": {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "half a character: \ud83d"},
            {"role": "user", "content": [{"type": "text", "text": "look"}]},
            {"role": "assistant", "content": PLAIN["messages"]["content"]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_0", "content": "a"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": "b",
                        "is_error": True,
                        "cache_control": None,
                    },
                ],
            },
        ],
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


def slowly(dialect: str, work: Callable[[], object]) -> object:
    with pytest.MonkeyPatch.context() as patch:
        for reader in READERS[dialect]:
            patch.setattr(f"dragoman.dialects.{reader}", never)
        return work()


def never(*_values: object) -> None:
    """Reads nothing by its type."""


def check_body(dialect: str, body: bytes, context: DecodeContext) -> None:
    def read() -> object:
        return codec(dialect).read_body(body, context)

    assert read() == slowly(dialect, read)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_changed_body_means_the_same(dialect: str) -> None:
    for body in variants(PLAIN[dialect]):
        check_body(dialect, json.dumps(body).encode(), CONTEXT)


def test_plain_bodies_are_read_by_their_type() -> None:
    fields = {dialect: as_object(json.dumps(body)) for dialect, body in PLAIN.items()}
    assert chat_plain.read_plain(fields["chat"]["choices"]) is not None
    assert responses_plain.read_plain(fields["responses"]) is not None
    assert messages_plain.read_plain(fields["messages"]["content"]) is not None
    for message in REQUESTS["chat"]["messages"]:
        assert plain_turn.read_plain(raw(message)) is not None
    for item in (REQUESTS["responses"]["input"][0], *PLAIN["responses"]["output"]):
        assert plain_item.read_plain(item.get("type"), raw(item)) is not None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_bodies_of_the_vendors_mean_the_same(dialect: str) -> None:
    for body in BODIES[dialect].values():
        check_body(dialect, json.dumps(body).encode(), CONTEXT)
        check_body(dialect, json.dumps(body).encode(), DecodeContext())


def test_bodies_of_the_corpus_mean_the_same() -> None:
    for case in stream_cases():
        if case.body is not None:
            check_body(case.dialect, case.body, case.context)


@pytest.mark.parametrize("dialect", REQUESTS)
def test_a_changed_request_means_the_same(dialect: str) -> None:
    for request in variants(REQUESTS[dialect]):
        body = json.dumps(request).encode()

        def read(body: bytes = body) -> object:
            try:
                return codec(dialect).decode_request(body)
            except RequestRefused as error:
                return (error.message, error.param)

        assert read() == slowly(dialect, read)
