"""Deferred tools with a search that the provider runs, over upstreams that have none: declared plainly, or searched in the gateway."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from doors import check_messages, check_responses, payloads
from dragoman.config.settings import ModelLimits, RetrySettings, Route, StoreSettings
from dragoman.testing import json_reply
from heard import without_breakpoints
from hosted_stage import echo, hosting_stage
from plain_http import ask
from sdk_clients import anthropic_client, openai_client
from stage import Scene, Stage, running_stage
from vendor_wire import Answer, Said, Tool

Json = dict[str, Any]

SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
NAMES = ("get_weather", "send_mail", "read_calendar", "book_flight", "play_music", "buy_shares")
WORDS = {
    "get_weather": "The weather in a city.",
    "send_mail": "Sends an e-mail to a person.",
    "read_calendar": "Lists the appointments of a day.",
    "book_flight": "Books a flight between two cities.",
    "play_music": "Plays a song.",
    "buy_shares": "Buys shares of a company.",
}
LIMIT = ModelLimits(max_tools=4)
FEW: dict[str, dict[str, object]] = {
    f"few-{kind}": {"kind": kind, "limits": LIMIT} for kind in ("chat", "responses", "messages")
}
MESSAGES_SEARCH = {
    "regex": {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
    "bm25": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
}
streamed = pytest.mark.parametrize("is_streamed", [False, True])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    lacking: dict[str, dict[str, object]] = {
        "without-messages": {"kind": "messages", "limits": ModelLimits(deferred_tools=False)},
        "few-lacking": {
            "kind": "messages",
            "limits": ModelLimits(deferred_tools=False, max_tools=4),
        },
        "few-lacking-responses": {
            "kind": "responses",
            "limits": ModelLimits(deferred_tools=False, max_tools=4),
        },
    }
    with running_stage(store=StoreSettings(url="memory:"), upstreams=FEW | lacking) as running:
        yield running


def messages_tools(variant: str = "bm25", names: tuple[str, ...] = NAMES) -> list[Json]:
    deferred = [
        {"name": name, "description": WORDS[name], "input_schema": SCHEMA, "defer_loading": True}
        for name in names
    ]
    plain = {"name": "think", "description": "Thinks.", "input_schema": SCHEMA}
    return [MESSAGES_SEARCH[variant], plain, *deferred]


def responses_tools() -> list[Json]:
    members = [
        {
            "type": "function",
            "name": name,
            "description": WORDS[name],
            "parameters": SCHEMA,
            "defer_loading": True,
        }
        for name in NAMES
    ]
    plain = {"type": "function", "name": "think", "description": "Thinks.", "parameters": SCHEMA}
    group = {"type": "namespace", "name": "office", "description": "d", "tools": members}
    return [{"type": "tool_search", "execution": "server"}, plain, group]


def declared(scene: Scene, number: int = -1) -> list[str]:
    body = json.loads(scene.requests[number].body)
    return [tool.get("function", tool)["name"] for tool in body.get("tools", ())]


def history(scene: Scene, number: int) -> list[Json]:
    """The conversation of a request, without the ids of items, which are no part of the prompt."""
    body = json.loads(scene.requests[number].body)
    entries: list[Json] = body.get("messages") or body["input"]
    if scene.dialect == "messages":
        entries = without_breakpoints(entries)
    return [{key: each[key] for key in each if key not in ("id", "status")} for each in entries]


def searching(name: str, query: str, call_id: str = "call_1") -> Answer:
    text = json.dumps({"query": query}, separators=(",", ":"))
    return Answer((Said(("Looking. ",)), Tool(call_id, name, (text[:5], text[5:]))))


def calling(name: str, call_id: str = "call_2") -> Answer:
    return Answer((Tool(call_id, name, ('{"city":  ', '"Bern"}')),))


def ask_messages(stage: Stage, *, is_streamed: bool, **asked: Any) -> Any:
    client = anthropic_client(stage.url)
    if not is_streamed:
        return client.messages.create(max_tokens=99, **asked)
    with client.messages.stream(max_tokens=99, **asked) as stream:
        return stream.get_final_message()


def ask_responses(stage: Stage, *, is_streamed: bool, **asked: Any) -> Any:
    client = openai_client(stage.url)
    if not is_streamed:
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        return stream.get_final_response()


# --- under the limit ---------------------------------------------------------------------------------------------------


@streamed
@pytest.mark.parametrize("upstream", ["chat", "responses"])
def test_without_a_limit_every_deferred_tool_is_declared(
    stage: Stage, upstream: str, is_streamed: bool
) -> None:
    scene = stage.scene(upstream, calling("get_weather"))
    messages = [{"role": "user", "content": "The weather in Bern?"}]
    got = ask_messages(
        stage, is_streamed=is_streamed, model=scene.model, messages=messages, tools=messages_tools()
    )
    assert [(part.type, part.name) for part in got.content] == [("tool_use", "get_weather")]
    assert declared(scene) == ["think", *NAMES]
    assert "defer_loading" not in scene.requests[-1].body.decode()


def test_at_the_limit_no_search_is_needed(stage: Stage) -> None:
    scene = stage.scene("chat", calling("get_weather"), route="few-chat")
    tools = messages_tools(names=NAMES[:3])
    got = ask_messages(
        stage,
        is_streamed=False,
        model=scene.model,
        messages=[{"role": "user", "content": "Hi."}],
        tools=tools,
    )
    assert [part.type for part in got.content] == ["tool_use"]
    assert declared(scene) == ["think", *NAMES[:3]]


def test_an_upstream_of_the_same_dialect_searches_itself(stage: Stage) -> None:
    scene = stage.scene("messages", Answer((Said(("Hi.",)),)), route="few-messages")
    tools = messages_tools()
    messages = [{"role": "user", "content": "Hi."}]
    ask_messages(stage, is_streamed=False, model=scene.model, messages=messages, tools=tools)
    assert scene.heard["tools"] == tools


# --- over the limit ----------------------------------------------------------------------------------------------------


@streamed
@pytest.mark.parametrize("variant", ["bm25", "regex"])
@pytest.mark.parametrize("upstream", ["chat", "responses"])
def test_the_gateway_searches_for_a_messages_client(
    stage: Stage, upstream: str, variant: str, is_streamed: bool
) -> None:
    name = f"tool_search_tool_{variant}"
    query = "flight between cities" if variant == "bm25" else "(?i)fl.ght|^book"
    scene = stage.scene(
        upstream,
        searching(name, query),
        calling("book_flight"),
        Answer((Said(("Done.",)),)),
        route=f"few-{upstream}",
    )
    asked: Json = {"model": scene.model, "tools": messages_tools(variant)}
    messages: list[Json] = [{"role": "user", "content": "To Bern."}]
    got = ask_messages(stage, is_streamed=is_streamed, messages=messages, **asked)

    kinds = [part.type for part in got.content]
    assert kinds == ["text", "server_tool_use", "tool_search_tool_result", "tool_use"]
    _, use, result, call = got.content
    assert (use.name, use.input) == (name, {"query": query})
    assert use.id.startswith("srvtoolu_")
    assert result.tool_use_id == use.id
    assert result.content.type == "tool_search_tool_search_result"
    found = [reference.tool_name for reference in result.content.tool_references]
    assert found[0] == "book_flight"
    assert (call.name, call.input, got.stop_reason) == ("book_flight", {"city": "Bern"}, "tool_use")
    assert got.usage.input_tokens + (got.usage.cache_read_input_tokens or 0) == 22
    assert declared(scene, 0) == ["think", name]
    assert declared(scene, 1) == ["think", name, *found]

    # What the client sends back becomes the same conversation.
    messages += [
        {"role": "assistant", "content": [part.to_dict() for part in got.content]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Booked."}],
        },
    ]
    got = ask_messages(stage, is_streamed=is_streamed, messages=messages, **asked)
    assert got.content[0].text == "Done."
    assert declared(scene, 2) == declared(scene, 1)
    before, after = (history(scene, number) for number in (1, 2))
    assert after[: len(before)] == before
    assert "<functions>" in json.dumps(before)


@streamed
@pytest.mark.parametrize("upstream", ["chat", "messages"])
def test_the_gateway_searches_for_a_responses_client(
    stage: Stage, upstream: str, is_streamed: bool
) -> None:
    scene = stage.scene(
        upstream,
        searching("tool_search", "weather"),
        calling("office__get_weather"),
        Answer((Said(("Done.",)),)),
        Answer((Said(("Again.",)),)),
        route=f"few-{upstream}",
    )
    asked: Json = {"model": scene.model, "tools": responses_tools()}
    items: list[Json] = [{"type": "message", "role": "user", "content": "The weather in Bern?"}]
    first = ask_responses(stage, is_streamed=is_streamed, input=items, **asked)
    assert [item.type for item in first.output] == [
        *("message", "tool_search_call", "tool_search_output", "function_call")
    ]
    _, search, output, call = first.output
    assert (search.execution, search.call_id, search.arguments) == (
        *("server", None),
        {"query": "weather"},
    )
    assert (output.execution, output.call_id, output.status) == ("server", None, "completed")
    (group,) = output.tools
    assert (group.type, group.name) == ("namespace", "office")
    assert [tool.name for tool in group.tools] == ["get_weather"]
    assert (call.name, call.namespace) == ("get_weather", "office")
    assert declared(scene, 0) == ["think", "tool_search"]
    assert declared(scene, 1) == ["think", "tool_search", "office__get_weather"]

    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    replayed = [*items, *(item.to_dict() for item in first.output), result]
    got = ask_responses(stage, is_streamed=is_streamed, input=replayed, **asked)
    assert got.output_text == "Done."
    assert declared(scene, 2) == declared(scene, 1)
    before, after = (history(scene, number) for number in (1, 2))
    assert after[: len(before)] == before

    # The stored response is the same history.
    got = ask_responses(
        stage, is_streamed=is_streamed, input=[result], previous_response_id=first.id, **asked
    )
    assert got.output_text == "Again."
    assert history(scene, 3) == after


@pytest.mark.parametrize("door", ["messages", "responses"])
def test_an_upstream_of_the_same_dialect_without_deferred_tools_gets_a_function(
    stage: Stage, door: str
) -> None:
    name = "tool_search_tool_bm25" if door == "messages" else "tool_search"
    route = "few-lacking" if door == "messages" else "few-lacking-responses"
    scene = stage.scene(door, searching(name, "song"), Answer((Said(("Hi.",)),)), route=route)
    if door == "messages":
        tools = messages_tools()
        ask_messages(
            stage,
            is_streamed=True,
            model=scene.model,
            messages=[{"role": "user", "content": "Music!"}],
            tools=tools,
        )
        assert declared(scene, 1) == ["think", name, "play_music"]
    else:
        tools = responses_tools()
        ask_responses(stage, is_streamed=True, model=scene.model, input="Music!", tools=tools)
        assert declared(scene, 1) == ["think", name, "office"]
    sent = scene.requests[1].body.decode()
    assert "defer_loading" not in sent
    assert "tool_reference" not in sent
    assert "<functions>" in sent


def test_an_upstream_without_deferred_tools_gets_them_plainly(stage: Stage) -> None:
    scene = stage.scene("messages", Answer((Said(("Hi.",)),)), route="without-messages")
    use: Json = {"type": "tool_use", "id": "call_1", "name": "think", "input": {}}
    reference = {"type": "tool_reference", "tool_name": "send_mail"}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [reference]}
    messages: list[Json] = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    reply = ask(
        stage.url,
        "messages",
        {"model": scene.model, "max_tokens": 9, "messages": messages, "tools": messages_tools()},
    )
    assert reply.status_code == 200
    assert declared(scene) == ["think", *NAMES]
    sent = scene.requests[-1].body.decode()
    assert "defer_loading" not in sent
    assert "tool_reference" not in sent
    assert "<functions>" in sent
    assert "builtin_tool" in reply.headers["x-dragoman-loss"]


# --- searches that find nothing, or fail ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("(", "invalid_pattern"),
        ("a" * 201, "pattern_too_long"),
        ("(\\w+\\s?)+$ZZ", "unavailable"),
    ],
)
def test_a_bad_pattern_is_an_error_for_client_and_model(
    stage: Stage, query: str, code: str
) -> None:
    name = "tool_search_tool_regex"
    scene = stage.scene(
        "chat", searching(name, query), Answer((Said(("Sorry.",)),)), route="few-chat"
    )
    tools = messages_tools("regex")
    tools[-1]["description"] = "word " * 30
    got = ask_messages(
        stage,
        is_streamed=False,
        model=scene.model,
        messages=[{"role": "user", "content": "Hi."}],
        tools=tools,
    )
    result = got.content[2]
    assert (result.type, result.content.type) == (
        "tool_search_tool_result",
        "tool_search_tool_result_error",
    )
    assert result.content.error_code == code
    assert got.stop_reason == "end_turn"
    assert declared(scene, 1) == ["think", name]


def test_a_search_that_finds_nothing_says_so(stage: Stage) -> None:
    scene = stage.scene(
        "chat",
        searching("tool_search_tool_bm25", "xylophone"),
        Answer((Said(("None.",)),)),
        route="few-chat",
    )
    got = ask_messages(
        stage,
        is_streamed=True,
        model=scene.model,
        messages=[{"role": "user", "content": "Hi."}],
        tools=messages_tools(),
    )
    assert got.content[2].content.tool_references == []
    assert "No tool matches" in json.dumps(scene.heard)


def test_tools_beyond_the_limit_give_way_to_those_found_last(stage: Stage) -> None:
    name = "tool_search_tool_bm25"
    scene = stage.scene(
        "chat",
        searching(name, "weather", "call_1"),
        searching(name, "mail", "call_2"),
        searching(name, "calendar appointments", "call_3"),
        Answer((Said(("Done.",)),)),
        route="few-chat",
    )
    ask_messages(
        stage,
        is_streamed=True,
        model=scene.model,
        messages=[{"role": "user", "content": "Hi."}],
        tools=messages_tools(),
    )
    assert declared(scene, 2) == ["think", name, "get_weather", "send_mail"]
    assert declared(scene, 3) == ["think", name, "send_mail", "read_calendar"]


def test_a_forced_tool_is_declared_though_it_was_not_found(stage: Stage) -> None:
    scene = stage.scene("chat", calling("buy_shares"), route="few-chat")
    got = ask_messages(
        stage,
        is_streamed=False,
        model=scene.model,
        messages=[{"role": "user", "content": "Hi."}],
        tools=messages_tools(),
        tool_choice={"type": "tool", "name": "buy_shares"},
    )
    assert [part.name for part in got.content] == ["buy_shares"]
    assert "buy_shares" in declared(scene)


# --- the wire -----------------------------------------------------------------------------------------------------------


def test_a_search_beside_a_call_of_the_client_is_shown_whole(stage: Stage) -> None:
    both = Answer(
        (
            Tool("call_1", "think", ("{}",)),
            Tool("call_2", "tool_search_tool_bm25", ('{"query":"mail"}',)),
        ),
        interleaved=True,
    )
    scene = stage.scene("chat", both, route="few-chat")
    body: Json = {
        "model": scene.model,
        "max_tokens": 9,
        "stream": True,
        "messages": [{"role": "user", "content": "Hi."}],
        "tools": messages_tools(),
    }
    answered = ask(stage.url, "messages", body)
    assert answered.status_code == 200
    check_messages(answered.content)
    starts = [
        event["content_block"]["type"]
        for _, event in payloads(answered.content)
        if event["type"] == "content_block_start"
    ]
    assert sorted(starts) == ["server_tool_use", "tool_search_tool_result", "tool_use"]


def test_the_items_of_a_search_are_events_of_the_vendor(stage: Stage) -> None:
    scene = stage.scene(
        "chat",
        searching("tool_search", "mail"),
        Answer((Said(("Done.",)),)),
        route="few-chat",
    )
    body: Json = {"model": scene.model, "stream": True, "input": "Hi.", "tools": responses_tools()}
    answered = ask(stage.url, "responses", body)
    assert answered.status_code == 200
    check_responses(answered.content)
    done = [
        event["item"]
        for _, event in payloads(answered.content)
        if event["type"] == "response.output_item.done"
    ]
    assert [item["type"] for item in done] == [
        *("message", "tool_search_call", "tool_search_output", "message")
    ]
    assert done[1]["id"].startswith("tsc_")
    assert done[2]["id"].startswith("tso_")


def test_a_tool_of_the_client_keeps_the_name_of_the_search(stage: Stage) -> None:
    scene = stage.scene(
        "chat",
        searching("tool_search_2", "mail"),
        calling("tool_search"),
        Answer((Said(("Done.",)),)),
        route="few-chat",
    )
    tools = responses_tools()
    tools[1]["name"] = "tool_search"
    first = ask_responses(stage, is_streamed=True, model=scene.model, input="Hi.", tools=tools)
    _, search, _, call = first.output
    assert (search.type, search.arguments) == ("tool_search_call", {"query": "mail"})
    assert (call.type, call.name) == ("function_call", "tool_search")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Found."}
    items = [*(item.to_dict() for item in first.output), result]
    ask_responses(stage, is_streamed=True, model=scene.model, input=items, tools=tools)
    names = [
        call["function"]["name"]
        for message in scene.heard["messages"]
        for call in message.get("tool_calls", ())
    ]
    assert names == ["tool_search_2", "tool_search"]


def test_a_tool_that_was_not_found_can_be_called(stage: Stage) -> None:
    """A model may know its name from an earlier conversation; clients run such a call, as Claude Code does."""
    scene = stage.scene("chat", calling("buy_shares"), route="few-chat")
    got = ask_messages(
        stage,
        is_streamed=True,
        model=scene.model,
        messages=[{"role": "user", "content": "Hi."}],
        tools=messages_tools(),
    )
    assert [(part.type, part.name) for part in got.content] == [("tool_use", "buy_shares")]


def test_searches_end_at_the_limit_of_turns(stage: Stage) -> None:
    name = "tool_search_tool_bm25"
    endless = [searching(name, f"mail {number}", f"call_{number}") for number in range(40)]
    scene = stage.scene("chat", *endless, route="few-chat")
    got = ask_messages(
        stage,
        is_streamed=True,
        model=scene.model,
        messages=[{"role": "user", "content": "Hi."}],
        tools=messages_tools(),
    )
    assert got.stop_reason == "max_tokens"
    assert len(scene.requests) == 20


def test_a_fallback_with_a_search_of_its_own_gets_the_request_unchanged() -> None:
    route = Route(model="then/*", upstream="few-chat", fallback=("messages=native",))
    with running_stage(
        upstreams=FEW,
        routes=(route,),
        retry=RetrySettings(attempts=1),
        store=StoreSettings(policy="off"),
    ) as stage:
        busy = json_reply({"error": {"message": "busy"}}, 503)
        scene = stage.scene("chat", busy, route="then")
        native = stage.scene("messages", Answer((Said(("Hi.",)),)), upstream_model="native")
        tools = messages_tools()
        got = ask_messages(
            stage,
            is_streamed=True,
            model=scene.model,
            messages=[{"role": "user", "content": "Hi."}],
            tools=tools,
        )
        assert got.content[0].text == "Hi."
        assert declared(scene) == ["think", "tool_search_tool_bm25"]
        assert native.heard["tools"] == tools


@streamed
def test_tools_of_an_mcp_server_stand_beside_the_search(is_streamed: bool) -> None:
    with hosting_stage(upstreams=FEW) as stage:
        scene = stage.scene(
            "chat",
            searching("tool_search_tool_bm25", "weather"),
            Answer((echo("hello", "call_2"),)),
            Answer((Said(("Done.",)),)),
            Answer((Said(("Again.",)),)),
            route="few-chat",
        )
        asked: Json = {"model": scene.model, "tools": messages_tools()}
        messages: list[Json] = [{"role": "user", "content": "Hi."}]
        got = ask_messages(stage, is_streamed=is_streamed, messages=messages, **asked)
        kinds = [part.type for part in got.content]
        assert kinds == ["text", "server_tool_use", "tool_search_tool_result", "text"]
        assert declared(scene, 0)[0] == "think"
        assert "workshop__echo" in declared(scene, 1)
        assert "hello" in json.dumps(scene.heard)
        messages += [
            {"role": "assistant", "content": [part.to_dict() for part in got.content]},
            {"role": "user", "content": "And?"},
        ]
        got = ask_messages(stage, is_streamed=is_streamed, messages=messages, **asked)
        assert got.content[0].text == "Again."
        before, after = (history(scene, number) for number in (2, 3))
        assert after[: len(before)] == before
