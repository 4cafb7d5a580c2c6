"""Tools that a search has loaded: their order, and the result of a search for upstreams that read it as text."""

import json
from time import process_time
from typing import Any

import pytest
from msgspec import structs

from dragoman._json import Raw
from dragoman.core.aliases import NameMap
from dragoman.core.loaded_tools import (
    MAX_DESCRIBED,
    NOTHING_FOUND,
    LoadedTools,
    in_order_of_loading,
)
from dragoman.core.losses import REQUEST_LOSSES, LossBook, foreign_noter
from dragoman.dialects.registry import codec
from dragoman.dialects.translate import translate_request
from dragoman.model.parts import Dialect, Opaque, Result, Text
from dragoman.model.request import Request, Tool, Turn

Json = dict[str, Any]


def declared(*names: str) -> tuple[Tool, ...]:
    """Tools; one whose name begins with `-` is deferred."""
    return tuple([Tool(name=name.strip("-"), deferred=name.startswith("-")) for name in names])


def loading(*names: str) -> Turn:
    """The result of a search that loads these tools."""
    keys = tuple([(None, name) for name in names])
    reference = Opaque(dialect="messages", type="tool_reference", raw=Raw(b"{}"), tools=keys)
    return Turn(role="tool", parts=(Result(call_id="c", content=(reference,)),))


def order(tools: tuple[Tool, ...], *turns: Turn) -> list[str]:
    found = in_order_of_loading(Request(model="m", tools=tools, turns=turns))
    return [tool.name for tool in found.tools]


def test_loaded_tools_come_last_in_the_order_in_which_they_were_loaded() -> None:
    assert order(declared("b", "-c", "d"), loading("c")) == ["b", "d", "c"]
    found = order(declared("-a", "b", "-c", "d", "-e"), loading("c"), loading("e", "a", "c"))
    assert found == ["b", "d", "c", "e", "a"]


def test_tools_that_the_conversation_defines_come_when_it_defines_them() -> None:
    new = Tool(name="new", place="input")
    raw, keys = Raw(b"{}"), ((None, "new"),)
    addition = Opaque(dialect="messages", type="tool_addition", raw=raw, tools=keys)
    defining = Turn(role="system", parts=(addition,))
    tools = (*declared("-a", "b"), new)
    assert order(tools, loading("a"), defining) == ["b", "a", "new"]
    assert order(tools, defining, loading("a")) == ["b", "new", "a"]
    assert order(tools, defining) == ["b", "a", "new"]


def test_tools_that_are_declared_before_they_are_loaded_keep_their_order() -> None:
    tools = declared("-a", "b", "-c", "-e")
    for turns in ((), (loading("e"),), (loading("e"), loading("c"))):
        assert order(tools, *turns) == ["b", "a", "c", "e"]


def test_tools_that_the_provider_searches_are_left_alone() -> None:
    search = Tool(name="tool_search", kind="tool_search")
    assert order((*declared("-a", "b"), search), loading("a")) == ["a", "b", "tool_search"]
    request = Request(model="m", tools=declared("a", "b"), turns=(loading("a"),))
    assert in_order_of_loading(request) is request


SEARCH: Json = {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}
NOT_FOUND: list[Json] = [
    {"type": "message", "role": "user", "content": "q"},
    {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"q": "x"}},
    {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": []},
]


@pytest.mark.parametrize("target", ["chat", "messages", "responses"])
def test_a_search_that_found_nothing_says_so(target: Dialect) -> None:
    body = json.dumps({"model": "m", "input": NOT_FOUND, "tools": [SEARCH]}).encode()
    plain = structs.replace(codec(target).target, deferred_tools=False)
    assert NOTHING_FOUND.encode() in translate_request(body, "responses", target, limits=plain).body


def test_an_upstream_with_deferred_tools_gets_the_empty_list() -> None:
    body = json.dumps({"model": "m", "input": NOT_FOUND, "tools": [SEARCH]}).encode()
    sent = json.loads(translate_request(body, "responses", "responses").body)
    assert sent["input"][2] == NOT_FOUND[2]


def test_definitions_beyond_the_longest_context_are_names_only() -> None:
    """A reference of thirty bytes must not stand for megabytes each time."""
    schema = {"type": "object", "description": "x" * 1_000_000}
    tools = [
        {"name": "big", "input_schema": schema, "defer_loading": True},
        {"name": "find", "input_schema": {"type": "object"}},
    ]
    messages: list[Json] = [{"role": "user", "content": "hi"}]
    for number in range(40):
        call: Json = {"type": "tool_use", "id": f"c{number}", "name": "find", "input": {}}
        loaded = [{"type": "tool_reference", "tool_name": "big"}]
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": loaded}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    fields = {"model": "m", "max_tokens": 9, "tools": tools, "messages": messages}
    sent = translate_request(json.dumps(fields).encode(), "messages", "chat")
    assert len(sent.body) < MAX_DESCRIBED + 2_000_000
    assert [loss.code for loss in sent.losses].count("tool_definition") == 32
    assert sent.body.count(rb"<function>{\"name\":\"big\"}</function>") == 32


def test_a_definition_without_room_is_not_written() -> None:
    """To write megabytes for each of these references, and then leave them out, takes a quarter of a minute."""
    size = MAX_DESCRIBED - 99
    tools = (Tool(name="big", schema=Raw(b'{"description":"%b"}' % (b"x" * size))),)
    book = LossBook(REQUEST_LOSSES)
    loaded = LoadedTools(tools, NameMap.build(tools), "chat", book, foreign_noter("chat"))
    reference = Opaque(
        dialect="messages", type="tool_reference", tools=((None, "big"),), raw=Raw(b"{}")
    )
    result = Result(call_id="c", content=(reference,))
    start = process_time()
    described = [loaded.described(result, "x") for _ in range(20_000)]
    assert process_time() - start < 5
    texts = [part.text for content in described for part in content if isinstance(part, Text)]
    assert len(texts[0]) > size
    assert set(texts[1:]) == {'<functions>\n<function>{"name":"big"}</function>\n</functions>'}
