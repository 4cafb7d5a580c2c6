"""The search for deferred tools: what it finds, what the model is offered, and what becomes of searches that come back."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from dragoman._json import Raw, dumps
from dragoman.config.settings import ModelLimits, UpstreamSettings
from dragoman.engine.tools import Invocation, Output
from dragoman.errors import ToolError
from dragoman.gateway.hosted.tool_search import MAX_FOUND, MAX_SEARCHED, ToolSearch
from dragoman.gateway.targets import AttemptTarget, target_of
from dragoman.model.parts import Call, Dialect, Extra, Opaque, Result, Text
from dragoman.model.request import Request, Tool, Turn

WORDS = Tool(
    name="tool_search_tool_bm25",
    kind="tool_search",
    variant="tool_search_tool_bm25_20251119",
    extra=Extra("messages", {}),
)
PATTERNS = structs.replace(
    WORDS, name="tool_search_tool_regex", variant="tool_search_tool_regex_20251119"
)


def tool(name: str, description: str = "", **arguments: str) -> Tool:
    fields = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    schema = Raw(dumps({"type": "object", "properties": fields}))
    return Tool(name=name, description=description, schema=schema, deferred=True)


def searching(*tools: Tool, search: Tool = WORDS) -> ToolSearch:
    turns = (Turn(role="user", parts=(Text(text="hi"),)),)
    return ToolSearch(Request(turns=turns, tools=(search, *tools)), "messages", lambda: "minted")


def run(search: ToolSearch, query: str) -> Output:
    (function,) = search.tools
    call = Call(
        call_id="c1",
        name=function.offer.declaration.name,
        input=dumps({"query": query}).decode(),
    )

    async def running() -> Output:
        return await function.run(Invocation(call, lambda _: None))

    return asyncio.run(running())


def found(search: ToolSearch, query: str) -> list[str]:
    return [
        name
        for part in run(search, query).content
        if isinstance(part, Opaque)
        for _, name in part.tools
    ]


def target(dialect: Dialect, client: Dialect = "messages", **limits: Any) -> AttemptTarget:
    settings = UpstreamSettings(kind="chat", limits=ModelLimits(**limits))
    return AttemptTarget(
        client_dialect=client,
        dialect=dialect,
        upstream="u",
        peer="u",
        weight=1.0,
        model="m",
        settings=settings,
        accepts=target_of(settings, dialect, "m", client),
        is_same_dialect=dialect == client,
        is_obsidian=False,
    )


OFFICE = (
    tool("sendMail", "Sends a message to a person.", receiver="who gets the letter"),
    tool("list_files", "Lists the files of a folder."),
    tool("read_file", "Reads a file."),
    tool("mcp__calendar__find-event", "Finds an appointment in the calendar."),
)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("mail", "sendMail"),
        ("MAIL", "sendMail"),
        ("letter", "sendMail"),
        ("read file", "read_file"),
        ("files in a folder", "list_files"),
        ("calendar event", "mcp__calendar__find-event"),
        ("receiver", "sendMail"),
    ],
)
def test_words_find_the_tool_that_has_most_of_the_rare_ones(query: str, first: str) -> None:
    assert found(searching(*OFFICE), query)[0] == first


def test_a_word_of_a_name_counts_more_than_one_of_a_description() -> None:
    other = tool("other", "Can also do backup, in a way.")
    assert found(searching(other, tool("backup", "Copies.")), "backup") == ["backup", "other"]


@pytest.mark.parametrize("query", ["", "xylophone", "!!!"])
def test_words_that_no_tool_has_find_nothing(query: str) -> None:
    assert run(searching(*OFFICE), query).content == (
        Text(
            text="No tool matches. Search again with other words, or answer without a further tool."
        ),
    )


def test_a_search_finds_a_few_tools_and_reads_a_part_of_each() -> None:
    many = [tool(f"tool_{number}", "does it") for number in range(20)]
    assert found(searching(*many), "does") == [f"tool_{number}" for number in range(MAX_FOUND)]
    long = tool("long", "x " * MAX_SEARCHED + "needle")
    assert found(searching(long), "needle") == []


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("file", ["list_files", "read_file"]),
        ("^read", ["read_file"]),
        ("(?i)MAIL", ["sendMail"]),
        ("MAIL", []),
        ("person|folder", ["sendMail", "list_files"]),
        ("appointment|^list", ["list_files", "mcp__calendar__find-event"]),
    ],
)
def test_patterns_find_names_first(pattern: str, names: list[str]) -> None:
    assert found(searching(*OFFICE, search=PATTERNS), pattern) == names


def test_a_pattern_that_backtracks_is_ended() -> None:
    slow = tool("slow", "a" * 200)
    with pytest.raises(ToolError, match="took more than"):
        run(searching(slow, search=PATTERNS), "(a+)+$b|^(a|a)+$|(a*)*c")


@pytest.mark.parametrize("pattern", ["(", "a" * 201, "[z-a]", "(?P<x"])
def test_a_bad_pattern_is_explained_to_the_model(pattern: str) -> None:
    with pytest.raises(ToolError, match="expected"):
        run(searching(*OFFICE, search=PATTERNS), pattern)


def test_the_gateway_searches_only_where_it_must() -> None:
    search = searching(*OFFICE)
    assert search.is_needed(target("chat", max_tools=3))
    assert not search.is_needed(target("chat", max_tools=4))
    assert not search.is_needed(target("chat"))
    assert not search.is_needed(target("messages", max_tools=3))
    assert search.is_needed(target("messages", max_tools=3, deferred_tools=False))
    plain = [structs.replace(each, deferred=None) for each in OFFICE]
    assert not searching(*plain).is_needed(target("chat", max_tools=3))


def offered(search: ToolSearch, to: AttemptTarget) -> list[str]:
    """What the model is offered: the engine adds the function to the client's tools."""
    (function,) = search.tools
    asked = search.request
    request = structs.replace(asked, tools=(*asked.tools, function.offer.declaration))
    return [each.name for each in search.fit(request, to).tools]


def test_an_upstream_that_needs_no_search_gets_the_tools_of_the_client() -> None:
    search = searching(*OFFICE)
    native = target("messages", max_tools=1)
    assert offered(search, native) == ["tool_search_tool_bm25", *(each.name for each in OFFICE)]
    assert offered(search, target("chat", max_tools=1)) == ["tool_search_tool_bm25"]
    # Once the model has called the function, its call is in the conversation, so every upstream must have it.
    run(search, "mail")
    assert offered(search, native) == ["tool_search_tool_bm25"]


@pytest.mark.parametrize(
    ("call_id", "shown"),
    [("call_1", "srvtoolu_call_1"), ("functions.f:0", "srvtoolu_minted"), ("", "srvtoolu_minted")],
)
def test_the_client_gets_an_id_that_the_vendor_would_give(call_id: str, shown: str) -> None:
    search = searching(*OFFICE)
    call = Call(call_id=call_id, name="tool_search_tool_bm25", input='{"query":"mail"}')
    output = run(search, "mail")
    parts = search.parts(call, Result(call_id=call_id, content=output.content))
    assert [part.call_id for part in parts if isinstance(part, (Call, Result))] == [shown, shown]


def test_other_calls_are_no_searches() -> None:
    assert searching(*OFFICE).parts(Call(call_id="c", name="read_file"), Result(call_id="c")) == ()


def test_a_result_without_its_call_is_left_out() -> None:
    search = searching(*OFFICE)
    stray = Result(call_id="srvtoolu_1", kind="tool_search", executor="provider")
    turns = (*search.request.turns, Turn(role="assistant", parts=(stray, Text(text="So."))))
    request = structs.replace(search.request, turns=turns)
    fitted = search.fit(request, target("chat", max_tools=1))
    assert [part for turn in fitted.turns for part in turn.parts] == [
        Text(text="hi"),
        Text(text="So."),
    ]


@pytest.mark.parametrize(
    ("most", "names"),
    [
        (1, ["list_files"]),  # the function alone has filled the list
        (2, ["list_files"]),
        (3, ["list_files", "read_file"]),
        (4, ["sendMail", "list_files", "read_file"]),
    ],
)
def test_the_best_of_what_was_found_last_stay(most: int, names: list[str]) -> None:
    search = searching(*OFFICE)
    (function,) = search.tools
    turns = list(search.request.turns)
    for number, query in enumerate(("letter", "list files")):
        call = Call(call_id=f"c{number}", name=function.offer.declaration.name, input="{}")
        result = Result(call_id=f"c{number}", content=run(search, query).content)
        turns += [Turn(role="assistant", parts=(call,)), Turn(role="tool", parts=(result,))]
    tools = (*search.request.tools, function.offer.declaration)
    request = structs.replace(search.request, turns=tuple(turns), tools=tools)
    fitted = search.fit(request, target("chat", max_tools=most)).tools
    assert [each.name for each in fitted] == ["tool_search_tool_bm25", *names]
