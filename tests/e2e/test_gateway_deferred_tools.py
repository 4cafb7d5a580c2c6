"""Searches for tools through the gateway, as Claude Code and Codex make them, with the pinned SDKs and every upstream."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.config.settings import ModelLimits, StoreSettings
from sdk_clients import DOORS, anthropic_client, openai_client
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Tool

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}}
QUERY = '{"query":  "echo"}'
SEARCH: Json = {
    "type": "tool_search",
    "execution": "client",
    "description": "d",
    "parameters": SCHEMA,
}
MEMBER: Json = {"type": "function", "name": "echo", "description": "Echoes.", "defer_loading": True}
GROUP: Json = {"type": "namespace", "name": "mcp__probe", "description": "d"}

upstreams = pytest.mark.parametrize("upstream", DOORS)
streamed = pytest.mark.parametrize("is_streamed", [False, True])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    upstreams: dict[str, dict[str, object]] = {
        "native-messages": {"kind": "messages", "limits": ModelLimits(deferred_tools=True)},
        "native-responses": {"kind": "responses", "limits": ModelLimits(deferred_tools=True)},
        "lacking-responses": {"kind": "responses", "limits": ModelLimits(deferred_tools=False)},
    }
    with running_stage(store=StoreSettings(policy="off"), upstreams=upstreams) as running:
        yield running


def respond(stage: Stage, model: str, items: list[Json], *, is_streamed: bool) -> Any:
    client = openai_client(stage.url)
    asked: Json = {"model": model, "input": items, "tools": [SEARCH]}
    if not is_streamed:
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        return stream.get_final_response()


@streamed
@pytest.mark.parametrize("upstream", ["chat", "messages"])
def test_a_search_of_codex_is_called_and_what_it_found_too(
    stage: Stage, upstream: str, is_streamed: bool
) -> None:
    searching = Answer((Tool("call_1", "tool_search", ('{"query":', '  "echo"}')),))
    calling = Answer((Tool("call_2", "mcp__probe__echo", ('{"query":', '  "echo"}')),))
    scene = stage.scene(upstream, searching, calling, Answer((Said(("Done.",)),)))
    items: list[Json] = [{"type": "message", "role": "user", "content": "echo hi"}]

    (call,) = respond(stage, scene.model, items, is_streamed=is_streamed).output
    assert (call.type, call.execution, call.status) == ("tool_search_call", "client", "completed")
    assert (call.call_id, call.arguments) == ("call_1", {"query": "echo"})

    output = {"type": "tool_search_output", "call_id": "call_1", "execution": "client"}
    found = {**GROUP, "tools": [{**MEMBER, "parameters": SCHEMA}]}
    items += [call.to_dict(), {**output, "status": "completed", "tools": [found]}]
    (call,) = respond(stage, scene.model, items, is_streamed=is_streamed).output
    assert (call.type, call.namespace, call.name) == ("function_call", "mcp__probe", "echo")
    assert call.arguments == QUERY
    declared = [tool.get("function", tool)["name"] for tool in scene.heard["tools"]]
    assert declared == ["tool_search", "mcp__probe__echo"]
    assert "<functions>" in json.dumps(scene.heard["messages"])

    result = {"type": "function_call_output", "call_id": call.call_id, "output": "hi"}
    items += [call.to_dict(), result]
    assert respond(stage, scene.model, items, is_streamed=is_streamed).output_text == "Done."


# What Claude Code sends to models that it does not know.
BETAS = ["advanced-tool-use-2025-11-20", "mid-conversation-system-2026-04-07", "unknown-2030-01-01"]
SETTINGS: Json = {
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "x_unknown": {"later": True},
}


@streamed
@upstreams
def test_a_search_of_claude_code_reaches_every_upstream(
    stage: Stage, upstream: str, is_streamed: bool
) -> None:
    scene = stage.scene(upstream, Answer((Tool("call_2", "mcp__probe__echo", ("{}",)),)))
    use = {"type": "tool_use", "id": "call_1", "name": "ToolSearch", "input": {"query": "echo"}}
    reference = {"type": "tool_reference", "tool_name": "mcp__probe__echo"}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [reference]}
    loaded = {"name": "mcp__probe__echo", "description": "Echoes.", "input_schema": SCHEMA}
    messages: list[Json] = [
        {"role": "user", "content": "echo hi"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result, {"type": "text", "text": "Tool loaded."}]},
        {"role": "system", "content": "Remember."},
    ]
    asked: Json = {
        "model": scene.model,
        "max_tokens": 99,
        "tools": [
            {"name": "ToolSearch", "description": "Finds tools.", "input_schema": SCHEMA},
            {**loaded, "defer_loading": True},
        ],
        "messages": messages,
        "extra_body": SETTINGS,
        "extra_headers": {"anthropic-beta": ",".join(BETAS)},
    }
    client = anthropic_client(stage.url)
    if is_streamed:
        with client.messages.stream(**asked) as stream:
            got = stream.get_final_message()
    else:
        got = client.messages.create(**asked)
    (call,) = got.content
    assert (call.type, call.name) == ("tool_use", "mcp__probe__echo")

    heard = scene.heard
    declared = [tool.get("function", tool)["name"] for tool in heard["tools"]]
    assert declared == ["ToolSearch", "mcp__probe__echo"]
    if upstream == "messages":
        assert heard["messages"] == messages
        assert heard["tools"] == asked["tools"]
        assert heard.items() >= SETTINGS.items()
        headers = {name.lower(): value for name, value in scene.requests[-1].headers.items()}
        assert headers["anthropic-beta"].split(",") == BETAS
        return
    line = {"description": "Echoes.", "name": "mcp__probe__echo", "parameters": SCHEMA}
    text = json.dumps(line, separators=(",", ":"))
    history = heard["messages" if upstream == "chat" else "input"]
    given = history[2]["content" if upstream == "chat" else "output"]
    assert given == f"<functions>\n<function>{text}</function>\n</functions>"
    said = [(each["role"], each["content"]) for each in history[3:]]
    role = "system" if upstream == "chat" else "developer"
    assert said == [("user", "Tool loaded."), (role, "Remember.")]


@upstreams
def test_an_empty_list_of_tools_is_accepted(stage: Stage, upstream: str) -> None:
    scene = stage.scene(upstream, Answer((Said(("Done.",)),)))
    asked: Json = {"model": scene.model, "max_tokens": 99, "tools": []}
    client = anthropic_client(stage.url)
    got = client.messages.create(messages=[{"role": "user", "content": "hi"}], **asked)
    assert got.content[0].text == "Done."
    assert upstream == "messages" or "tools" not in scene.heard


@streamed
def test_a_search_of_codex_is_native_where_the_upstream_has_deferred_tools(
    stage: Stage, is_streamed: bool
) -> None:
    calling = Answer((Tool("call_2", "mcp__probe__echo", ('{"query":', '  "echo"}')),))
    scene = stage.scene("messages", calling, route="native-messages")
    search: Json = {"type": "tool_search_call", "call_id": "call_1", "execution": "client"}
    output = {"type": "tool_search_output", "call_id": "call_1", "execution": "client"}
    items: list[Json] = [
        {"type": "message", "role": "user", "content": "echo hi"},
        {**search, "status": "completed", "arguments": {"query": "echo"}},
        {**output, "tools": [{**GROUP, "tools": [{**MEMBER, "parameters": SCHEMA}]}]},
    ]
    (call,) = respond(stage, scene.model, items, is_streamed=is_streamed).output
    assert (call.type, call.namespace, call.name) == ("function_call", "mcp__probe", "echo")
    heard = scene.heard
    assert [tool.get("defer_loading") for tool in heard["tools"]] == [None, True]
    (result,) = heard["messages"][-1]["content"]
    assert result["content"] == [{"type": "tool_reference", "tool_name": "mcp__probe__echo"}]
    headers = {name.lower(): value for name, value in scene.requests[-1].headers.items()}
    assert headers["anthropic-beta"] == "advanced-tool-use-2025-11-20"


@streamed
def test_a_search_of_codex_is_a_function_where_a_responses_upstream_has_none(
    stage: Stage, is_streamed: bool
) -> None:
    searching = Answer((Tool("call_1", "tool_search", ('{"query":', '  "echo"}')),))
    calling = Answer((Tool("call_2", "echo", ("{}",), namespace="mcp__probe"),))
    scene = stage.scene("responses", searching, calling, route="lacking-responses")
    items: list[Json] = [{"type": "message", "role": "user", "content": "echo hi"}]
    (call,) = respond(stage, scene.model, items, is_streamed=is_streamed).output
    assert (call.type, call.execution, call.call_id) == ("tool_search_call", "client", "call_1")
    assert call.arguments == {"query": "echo"}
    assert [tool["type"] for tool in scene.heard["tools"]] == ["function"]

    output = {"type": "tool_search_output", "call_id": "call_1", "execution": "client"}
    found = {**GROUP, "tools": [{**MEMBER, "parameters": SCHEMA}]}
    items += [call.to_dict(), {**output, "status": "completed", "tools": [found]}]
    (call,) = respond(stage, scene.model, items, is_streamed=is_streamed).output
    assert (call.type, call.namespace, call.name) == ("function_call", "mcp__probe", "echo")
    kinds = [item["type"] for item in scene.heard["input"]]
    assert kinds == ["message", "function_call", "function_call_output"]
