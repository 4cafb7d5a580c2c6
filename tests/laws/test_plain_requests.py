"""A request read and written by its type alone is what it is when read field by field and written part by part.

Every request here is compared as it is and with each of its members changed in turn.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from corpus_cases import DIALECTS, FolderCase, folder_cases
from dragoman._json import Raw
from dragoman.core.pairing import ERROR_MARK
from dragoman.dialects.chat import turns as chat_turns
from dragoman.dialects.messages import turns as messages_turns
from dragoman.dialects.registry import codec
from dragoman.dialects.responses import turns as responses_turns
from dragoman.errors import RequestRefused
from dragoman.model.request import Request
from plain_variants import PLAIN, never, slowly, variants
from request_schemas import spots

READERS = {
    "chat": chat_turns.read_all_typed,
    "responses": responses_turns.read_all_typed,
    "messages": messages_turns.read_typed,
}
AT_ONCE: dict[str, Callable[..., object]] = {
    "dragoman.dialects.chat.turns.read_all_typed": never,
    "dragoman.dialects.responses.turns.read_all_typed": never,
    "dragoman.dialects.messages.turns.read_typed": never,
}
LONG_WAYS: dict[str, Callable[..., object]] = {
    **AT_ONCE,
    "dragoman.dialects.chat.turns.read_typed": never,
    "dragoman.dialects.responses.turns.read_typed": never,
    "dragoman.dialects.messages.turns.read_content": never,
}
LONG_WRITING: dict[str, Callable[..., object]] = {
    "dragoman.dialects.chat.turns.bare_text": never,
    "dragoman.dialects.responses.turns.bare_text": never,
}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
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
            {**PLAIN["responses"]["output"][1], "phase": None},
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
SETTINGS: dict[str, dict[str, Any]] = {
    "chat": {
        "tools": [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "stream": False,
        "stream_options": {"include_usage": True},
        "max_tokens": 100,
        "temperature": 0.5,
    },
    "responses": {
        "instructions": "be kind",
        "tools": [{"type": "function", "name": "look", "parameters": SCHEMA}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "stream": True,
        "max_output_tokens": 100,
        "temperature": 1,
        "store": False,
    },
    "messages": {
        "tools": [{"name": "look", "input_schema": SCHEMA}],
        "stream": False,
        "temperature": 1,
        "metadata": {"user_id": "ada"},
    },
}
MISPLACED: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "a", "tool_call_id": "call_1"}]},
    "messages": {
        "system": [{"type": "tool_use", "id": "a", "name": "", "input": {}}],
        "messages": [
            {"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "", "input": {}}]}
        ],
    },
}


def plain_request(dialect: str) -> dict[str, Any]:
    """The request with the usual settings and without what is unusual in its conversation."""
    whole = {**REQUESTS[dialect], **SETTINGS[dialect]}
    if dialect == "responses":
        whole["input"] = [
            item for item in whole["input"] if "phase" not in item and "summary" not in item
        ]
    if dialect == "messages":
        whole["messages"] = whole["messages"][1:]
    return whole


def conversation(request: dict[str, Any]) -> Raw:
    return Raw(json.dumps(request.get("messages", request.get("input"))).encode())


def check(dialect: str, body: bytes) -> None:
    """The request is read the same, and written the same for every target."""

    def read() -> Request | tuple[str, str | None]:
        try:
            return codec(dialect).decode_request(body)
        except RequestRefused as error:
            return (error.message, error.param)

    request = read()
    assert request == slowly(AT_ONCE, read) == slowly(LONG_WAYS, read)
    if not isinstance(request, Request):
        return

    def write() -> list[object]:
        return [written(request, target) for target in DIALECTS]

    assert write() == slowly(LONG_WRITING, write)


def written(request: Request, target: str) -> object:
    try:
        return codec(target).encode_request(request)
    except RequestRefused as error:
        return (error.message, error.param)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_plain_conversation_is_read_by_its_type(dialect: str) -> None:
    assert READERS[dialect](conversation(plain_request(dialect))) is not None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_changed_plain_request_means_the_same(dialect: str) -> None:
    for request in variants(plain_request(dialect)):
        check(dialect, json.dumps(request).encode())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_changed_request_means_the_same(dialect: str) -> None:
    for request in variants(REQUESTS[dialect]):
        check(dialect, json.dumps(request).encode())


@pytest.mark.parametrize("dialect", MISPLACED)
def test_a_field_out_of_place_means_the_same(dialect: str) -> None:
    request = {**plain_request(dialect), **MISPLACED[dialect]}
    assert READERS[dialect](conversation(request)) is None
    check(dialect, json.dumps(request).encode())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_field_of_the_vendors_schemas_means_the_same(dialect: str) -> None:
    found = list(spots(dialect))
    bodies = [
        json.dumps(body).encode() for spot in found for body in (*spot.said, *spot.unsaid[:1])
    ]

    def read() -> list[Request]:
        return [codec(dialect).decode_request(body) for body in bodies]

    requests = read()
    assert requests == slowly(LONG_WAYS, read)
    firsts = [codec(dialect).decode_request(json.dumps(spot.said[0]).encode()) for spot in found]

    def write() -> list[object]:
        return [written(request, target) for request in firsts for target in DIALECTS]

    assert write() == slowly(LONG_WRITING, write)


@pytest.mark.parametrize("case", folder_cases("requests"), ids=lambda case: case.name)
def test_requests_of_the_corpus_mean_the_same(case: FolderCase) -> None:
    check(case.meta["source"], case.read("request.json"))
