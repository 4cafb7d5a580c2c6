"""Deferred tools, searches for tools, and tools that a conversation declares late, between every two dialects."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.dialects.codec import EncodedRequest
from dragoman.dialects.registry import codec
from dragoman.dialects.relay_request import relay_request
from dragoman.dialects.translate import translate_request
from dragoman.model.parts import Text
from dragoman.textcalls.prompting import prompt_tools

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
LONG = "mcp__" + "x" * 80  # longer than every vendor accepts


def sent(encoded: EncodedRequest) -> Json:
    body: Json = json.loads(encoded.body)
    return body


def losses(encoded: EncodedRequest) -> set[tuple[str, str]]:
    return {(loss.code, loss.detail or loss.where) for loss in encoded.losses}


# --- Claude Code: a client tool that answers with references ----------------------------------------------------------


def claude(*content: Json, tool: str = "mcp__probe__echo", **more: Any) -> Json:
    """A request of Claude Code after its search loaded a tool."""
    search = {"name": "ToolSearch", "description": "Finds tools.", "input_schema": SCHEMA}
    loaded = {"name": tool, "description": "Echoes.", "input_schema": SCHEMA, "defer_loading": True}
    use = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"text": "echo"}}
    blocks = content or ({"type": "tool_reference", "tool_name": tool},)
    found = {"type": "tool_result", "tool_use_id": "toolu_1", "content": list(blocks)}
    return {
        "model": "m",
        "max_tokens": 99,
        "tools": [search, loaded],
        "messages": [
            {"role": "user", "content": "echo hi"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [found, {"type": "text", "text": "Tool loaded."}]},
        ],
        **more,
    }


def translated(request: Json, source: str, target: str) -> EncodedRequest:
    body = json.dumps(request, separators=(",", ":")).encode()
    return translate_request(body, source, target)


def tells_of(target: str, kind: str) -> str:
    """How a loss describes a block of Messages that is left out."""
    return f"messages {kind}" if target == "chat" else "from messages"


def result_text(body: Json, target: str) -> Any:
    """The text of the only result."""
    if target == "chat":
        (message,) = [each for each in body["messages"] if each["role"] == "tool"]
        return message["content"]
    if target == "responses":
        (item,) = [each for each in body["input"] if each["type"] == "function_call_output"]
        return item["output"]
    results = [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    return results[0]["content"]


def definition(name: str = "mcp__probe__echo", **more: Any) -> str:
    fields = {"description": "Echoes.", "name": name, **(more or {"parameters": SCHEMA})}
    line = json.dumps(fields, separators=(",", ":"))
    return f"<functions>\n<function>{line}</function>\n</functions>"


def tool_names(body: Json) -> list[str]:
    return [each.get("function", each).get("name") for each in body["tools"]]


@pytest.mark.parametrize("target", ["chat", "responses"])
def test_a_reference_becomes_the_definition_of_its_tool(target: str) -> None:
    encoded = translated(claude(), "messages", target)
    body = sent(encoded)
    assert result_text(body, target) == definition()
    assert tool_names(body) == ["ToolSearch", "mcp__probe__echo"]
    assert "defer_loading" not in encoded.body.decode()
    assert not encoded.losses


@pytest.mark.parametrize("target", ["chat", "responses"])
def test_texts_beside_a_reference_keep_their_order(target: str) -> None:
    content = (
        {"type": "text", "text": "before"},
        {"type": "tool_reference", "tool_name": "mcp__probe__echo"},
        {"type": "tool_reference", "tool_name": "ToolSearch"},
        {"type": "text", "text": "after"},
    )
    body = sent(translated(claude(*content), "messages", target))
    found = result_text(body, target)
    texts = found.split("\n\n") if isinstance(found, str) else [each["text"] for each in found]
    assert (texts[0], texts[2]) == ("before", "after")
    assert texts[1].count("<functions>") == 1
    assert texts[1].count("<function>") == 2


@pytest.mark.parametrize("target", ["chat", "responses"])
def test_a_reference_to_an_undeclared_tool_is_its_name_and_reported(target: str) -> None:
    request = claude({"type": "tool_reference", "tool_name": "unknown"})
    encoded = translated(request, "messages", target)
    line = '<functions>\n<function>{"name":"unknown"}</function>\n</functions>'
    assert result_text(sent(encoded), target) == line
    assert ("tool_definition", "unknown") in losses(encoded)


def test_references_and_deferred_tools_stay_in_their_own_dialect() -> None:
    request = claude()
    body = sent(translated(request, "messages", "messages"))
    assert body["tools"] == request["tools"]
    assert body["messages"] == request["messages"]


@pytest.mark.parametrize("target", ["chat", "messages", "responses"])
def test_a_reference_has_the_name_under_which_the_tool_is_offered(target: str) -> None:
    body = sent(translated(claude(tool=LONG), "messages", target))
    alias = tool_names(body)[1]
    assert alias != LONG
    if target == "messages":
        (block,) = body["messages"][2]["content"][0]["content"]
        assert block == {"type": "tool_reference", "tool_name": alias}
    else:
        assert result_text(body, target) == definition(alias)


# --- Responses: `tool_search` -----------------------------------------------------------------------------------------

MEMBER = {
    "type": "function",
    "name": "echo",
    "description": "Echoes.",
    "strict": False,
    "defer_loading": True,
    "parameters": SCHEMA,
}
GROUP = {"type": "namespace", "name": "mcp__probe", "description": "A probe.", "tools": [MEMBER]}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": SCHEMA,
}


def codex(*more: Json, tools: tuple[Json, ...] = (SEARCH,), found: Json = GROUP) -> Json:
    """A request of Codex after its search loaded a namespace."""
    call = {
        "type": "tool_search_call",
        "call_id": "c1",
        "execution": "client",
        "status": "completed",
    }
    output = {"type": "tool_search_output", "call_id": "c1", "execution": "client"}
    return {
        "model": "m",
        "tools": list(tools),
        "input": [
            {"type": "message", "role": "user", "content": "echo hi"},
            {**call, "arguments": {"text": "echo"}},
            {**output, "status": "completed", "tools": [found]},
            *more,
        ],
    }


@pytest.mark.parametrize("target", ["chat", "messages"])
def test_a_found_namespace_is_declared_and_described(target: str) -> None:
    encoded = translated(codex(), "responses", target)
    body = sent(encoded)
    assert tool_names(body) == ["tool_search", "mcp__probe__echo"]
    described = json.dumps(
        {"description": "Echoes.", "name": "mcp__probe__echo"}, separators=(",", ":")
    )
    assert (
        result_text(body, target) == f"<functions>\n<function>{described}</function>\n</functions>"
    )
    assert "defer_loading" not in encoded.body.decode()
    codes = {loss.code for loss in encoded.losses}
    assert codes <= {"call_kind", "namespace", "unknown_field"}
    unknown = {loss.where for loss in encoded.losses if loss.code == "unknown_field"}
    assert unknown <= {"namespaces.mcp__probe.description"}


@pytest.mark.parametrize("target", ["chat", "messages"])
def test_calls_of_found_tools_keep_their_names(target: str) -> None:
    call = {
        "type": "function_call",
        "call_id": "c2",
        "name": "echo",
        "namespace": "mcp__probe",
        "arguments": "{}",
    }
    output = {"type": "function_call_output", "call_id": "c2", "output": "hi"}
    encoded = translated(codex(call, output), "responses", target)
    assert tool_names(sent(encoded)) == ["tool_search", "mcp__probe__echo"]
    assert '"mcp__probe__echo"' in json.dumps(sent(encoded)["messages"])


@pytest.mark.parametrize("target", ["chat", "messages"])
def test_the_first_declaration_of_a_tool_wins(target: str) -> None:
    late = {**GROUP, "tools": [{**MEMBER, "description": "Another."}]}
    declared = {"type": "additional_tools", "role": "developer", "tools": [late]}
    body = sent(translated(codex(declared), "responses", target))
    assert tool_names(body) == ["tool_search", "mcp__probe__echo"]
    tool = body["tools"][1]
    assert tool.get("function", tool)["description"] == "Echoes."


@pytest.mark.parametrize("target", ["chat", "messages"])
def test_additional_tools_are_declared_and_leave_no_message(target: str) -> None:
    declared = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{**MEMBER, "name": "late"}],
    }
    said = {"type": "message", "role": "assistant", "content": "ok"}
    asked = {"type": "message", "role": "user", "content": "go"}
    encoded = translated(codex(said, declared, asked), "responses", target)
    body = sent(encoded)
    assert tool_names(body) == ["tool_search", "mcp__probe__echo", "late"]
    assert [each["role"] for each in body["messages"]][-2:] == ["assistant", "user"]
    assert not {"opaque_part", "foreign_part"} & {loss.code for loss in encoded.losses}


def test_a_search_and_what_it_found_stay_in_their_own_dialect() -> None:
    request = codex({"type": "additional_tools", "role": "developer", "tools": [MEMBER]})
    body = sent(translated(request, "responses", "responses"))
    assert body["tools"] == request["tools"]
    assert body["input"] == request["input"]


@pytest.mark.parametrize("target", ["chat", "messages"])
def test_a_search_without_parameters_is_declared(target: str) -> None:
    plain = {"type": "tool_search", "execution": "client"}
    body = sent(translated(codex(tools=(plain,)), "responses", target))
    assert tool_names(body)[0] == "tool_search"


# --- searches that the provider runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variant", ["tool_search_tool_regex_20251119", "tool_search_tool_bm25_20251119"]
)
@pytest.mark.parametrize("target", ["chat", "responses"])
def test_a_search_of_the_vendor_is_left_out_and_its_tools_are_declared(
    target: str, variant: str
) -> None:
    name = variant.removesuffix("_20251119")
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": {"query": "e"}}
    reference = {"type": "tool_reference", "tool_name": "echo"}
    found = {"type": "tool_search_tool_search_result", "tool_references": [reference]}
    result = {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found}
    request = {
        "model": "m",
        "max_tokens": 99,
        "tools": [
            {"type": variant, "name": name},
            {"name": "echo", "input_schema": SCHEMA, "defer_loading": True},
        ],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [use, result, {"type": "text", "text": "found"}]},
            {"role": "user", "content": "go"},
        ],
    }
    encoded = translated(request, "messages", target)
    assert tool_names(sent(encoded)) == ["echo"]
    codes = {loss.code for loss in encoded.losses}
    assert codes == {"builtin_tool", "provider_call", "provider_result"}


@pytest.mark.parametrize("target", ["chat", "messages"])
def test_a_search_of_the_responses_server_is_left_out(target: str) -> None:
    search = {"type": "tool_search", "execution": "server", "parameters": SCHEMA}
    call: Json = {"type": "tool_search_call", "id": "tsc_1", "execution": "server", "arguments": {}}
    output = {"type": "tool_search_output", "id": "tso_1", "execution": "server", "tools": [MEMBER]}
    request: Json = {
        "model": "m",
        "tools": [search, {**MEMBER, "name": "plain"}],
        "input": [{"type": "message", "role": "user", "content": "hi"}, call, output],
    }
    encoded = translated(request, "responses", target)
    assert tool_names(sent(encoded)) == ["plain", "echo"]
    codes = {loss.code for loss in encoded.losses}
    assert {"builtin_tool", "provider_call", "provider_result"} <= codes


# --- system messages --------------------------------------------------------------------------------------------------


def reminded(content: Any) -> Json:
    request = claude()
    request["messages"].append({"role": "system", "content": content})
    return request


def test_a_system_message_keeps_its_place() -> None:
    request = reminded("remember")
    chat = sent(translated(request, "messages", "chat"))["messages"]
    assert chat[-1] == {"role": "system", "content": "remember"}
    responses = sent(translated(request, "messages", "responses"))["input"]
    assert responses[-1] == {"type": "message", "role": "developer", "content": "remember"}
    own = sent(translated(request, "messages", "messages"))["messages"]
    assert own == request["messages"]


def test_a_system_message_is_folded_where_the_upstream_refuses_it() -> None:
    request = codec("messages").decode_request(json.dumps(reminded("remember")).encode())
    target = replace(codec("messages").target, system_messages=False)
    body = json.dumps(reminded("remember")).encode()
    for encoded in (
        codec("messages").encode_request(request, target, None),
        relay_request(body, request, dialect="messages", target=target, model="m"),
    ):
        (result, said, folded) = sent(encoded)["messages"][-1]["content"]
        assert (result["type"], said["text"]) == ("tool_result", "Tool loaded.")
        assert folded == {
            "type": "text",
            "text": "<system-reminder>\nremember\n</system-reminder>",
        }
        assert [repair.rule for repair in encoded.repairs] == ["system_as_user"]


def test_a_chat_server_that_takes_one_system_message_gets_one() -> None:
    messages = [
        {"role": "system", "content": "first"},
        {"role": "developer", "content": "second"},
        {"role": "user", "content": "hello"},
        {"role": "system", "content": "remember"},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": "yes"},
        {"role": "system", "content": "later"},
    ]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    request = codec("chat").decode_request(body)
    target = replace(codec("chat").target, system_messages=False)
    texts = [
        {"type": "text", "text": text}
        for text in ("hello", "<system-reminder>\nremember\n</system-reminder>", "go on")
    ]
    for encoded in (
        codec("chat").encode_request(request, target, None),
        relay_request(body, request, dialect="chat", target=target, model="m"),
    ):
        assert sent(encoded)["messages"] == [
            {"role": "system", "content": "first\n\nsecond"},
            {"role": "user", "content": texts},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": "<system-reminder>\nlater\n</system-reminder>"},
        ]
        assert [repair.rule for repair in encoded.repairs] == ["system_as_user"] * 2


def test_one_system_message_passes_unchanged_to_a_chat_server_that_takes_one() -> None:
    messages = [{"role": "system", "content": "first"}, {"role": "user", "content": "hello"}]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    request = codec("chat").decode_request(body)
    target = replace(codec("chat").target, system_messages=False)
    assert relay_request(body, request, dialect="chat", target=target, model="m").body is body


LATE = {"name": "late", "description": "Later.", "input_schema": SCHEMA}
ADDED = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": LATE}}
REMOVED = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "late"}}


@pytest.mark.parametrize("target", ["chat", "responses"])
def test_a_tool_that_a_system_message_defines_is_declared(target: str) -> None:
    encoded = translated(reminded([ADDED]), "messages", target)
    body = sent(encoded)
    assert tool_names(body) == ["ToolSearch", "mcp__probe__echo", "late"]
    messages = body["messages"] if target == "chat" else body["input"]
    assert messages[-1] == {"role": "user", "content": "Tool loaded."} | (
        {} if target == "chat" else {"type": "message"}
    )
    assert losses(encoded) == {("opaque_part", tells_of(target, "tool_addition"))}


@pytest.mark.parametrize("target", ["chat", "responses"])
def test_a_removed_tool_is_reported(target: str) -> None:
    encoded = translated(reminded([REMOVED]), "messages", target)
    assert losses(encoded) == {("opaque_part", tells_of(target, "tool_removal"))}


def test_a_defined_tool_stays_in_its_system_message() -> None:
    request = reminded([ADDED, REMOVED])
    body = sent(translated(request, "messages", "messages"))
    assert body["tools"] == request["tools"]
    assert body["messages"] == request["messages"]


def test_a_defined_tool_has_its_alias() -> None:
    long = {**ADDED, "tool": {"type": "tool_definition", "definition": {**LATE, "name": LONG}}}
    removed = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": LONG}}
    encoded = translated(reminded([long, removed]), "messages", "messages")
    block, last = sent(encoded)["messages"][-1]["content"]
    alias = encoded.names.wire(LONG)
    assert alias != LONG
    assert block["tool"]["definition"] == {**LATE, "name": alias}
    assert last["tool"]["name"] == alias


# --- the billing header -----------------------------------------------------------------------------------------------

BILLING = "x-anthropic-billing-header: cc_version=2.1.197.abc; cch=00000;"


def billed() -> Json:
    texts = (BILLING, "You are Claude Code.", "Be exact.")
    return claude(system=[{"type": "text", "text": text} for text in texts])


@pytest.mark.parametrize("target", ["chat", "responses"])
def test_a_billing_header_is_left_out_for_other_vendors(target: str) -> None:
    encoded = translated(billed(), "messages", target)
    body = sent(encoded)
    said = body["messages"][0]["content"] if target == "chat" else body["instructions"]
    assert said == "You are Claude Code.\n\nBe exact."
    assert {loss.code for loss in encoded.losses} == {"opaque_part"}


def test_a_billing_header_reaches_its_own_vendor() -> None:
    assert sent(translated(billed(), "messages", "messages"))["system"] == billed()["system"]


def test_a_mention_of_the_billing_header_is_kept() -> None:
    for system in (f"See {BILLING}", [{"type": "text", "text": f"See {BILLING}"}]):
        body = sent(translated(claude(system=system), "messages", "chat"))
        assert body["messages"][0]["content"] == f"See {BILLING}"


def test_decoded_requests_know_which_tools_a_part_loads() -> None:
    request = codec("responses").decode_request(json.dumps(codex()).encode())
    (part,) = [part for turn in request.turns if turn.role == "tool" for part in turn.parts]
    assert [each.tools for each in part.content] == [(("mcp__probe", "echo"),)]  # type: ignore[union-attr]


# --- upstreams that read text only ------------------------------------------------------------------------------------


def test_a_prompted_upstream_reads_the_definition() -> None:
    request = codec("messages").decode_request(json.dumps(claude()).encode())
    prompted = prompt_tools(request, "hermes")
    (said,) = [
        part.text
        for turn in prompted.request.turns
        for part in turn.parts
        if isinstance(part, Text) and "<functions>" in part.text
    ]
    assert '"name":"mcp__probe__echo"' in said
    assert not prompted.losses


def test_codex_reads_the_definition() -> None:
    body = sent(translated(claude(), "messages", "codex"))
    alias = body["thread"]["dynamicTools"][1]["name"]
    outputs = [each["output"] for each in body["items"] if each["type"] == "function_call_output"]
    assert outputs == [definition(alias)]


# --- upstreams that are known to have deferred tools, or to have none ---------------------------------------------------


def encoded_for(request: Json, source: str, target: str, *, deferred: bool) -> EncodedRequest:
    body = json.dumps(request, separators=(",", ":")).encode()
    limits = replace(codec(target).target, deferred_tools=deferred)
    return translate_request(body, source, target, limits=limits)


def test_tools_that_codex_has_loaded_are_deferred_and_referred_to() -> None:
    encoded = encoded_for(codex(), "responses", "messages", deferred=True)
    body = sent(encoded)
    assert [(tool["name"], tool.get("defer_loading")) for tool in body["tools"]] == [
        ("tool_search", None),
        ("mcp__probe__echo", True),
    ]
    reference = {"type": "tool_reference", "tool_name": "mcp__probe__echo"}
    assert result_text(body, "messages") == [reference]
    assert encoded.betas == ("advanced-tool-use-2025-11-20",)


def test_without_a_loaded_tool_no_beta_is_needed() -> None:
    request = codex(found={**GROUP, "tools": []})
    encoded = encoded_for(request, "responses", "messages", deferred=True)
    assert not encoded.betas
    assert tool_names(sent(encoded)) == ["tool_search"]


@pytest.mark.parametrize(
    "tools", [(), ({**GROUP, "tools": [{**MEMBER, "defer_loading": False}]}, SEARCH)]
)
def test_a_tool_is_not_deferred_alone_or_against_its_declaration(tools: tuple[Json, ...]) -> None:
    """The vendor refuses a request whose tools are all deferred, and a reference to a tool that is not."""
    encoded = encoded_for(codex(tools=tools), "responses", "messages", deferred=True)
    assert "defer_loading" not in encoded.body.decode()
    assert "tool_reference" not in encoded.body.decode()
    assert "<functions>" in encoded.body.decode()


def test_additional_tools_of_codex_stay_plain() -> None:
    late = {"type": "additional_tools", "role": "developer", "tools": [{**MEMBER, "name": "late"}]}
    body = sent(encoded_for(codex(late), "responses", "messages", deferred=True))
    flags = {tool["name"]: tool.get("defer_loading") for tool in body["tools"]}
    assert flags == {"tool_search": None, "mcp__probe__echo": True, "late": None}


def test_tools_that_claude_code_has_loaded_are_declared_where_they_were_loaded() -> None:
    """So the tools before the conversation, and the cached beginning of the prompt, do not change."""
    before = claude()
    before["messages"] = before["messages"][:1]
    before["tools"] = before["tools"][:1]
    first = sent(encoded_for(before, "messages", "responses", deferred=True))
    second = sent(encoded_for(claude(), "messages", "responses", deferred=True))
    assert second["tools"] == first["tools"]
    assert second["input"][: len(first["input"])] == first["input"]
    kinds = [item["type"] for item in second["input"]]
    assert kinds == [
        *("message", "function_call", "function_call_output", "additional_tools", "message")
    ]
    (tool,) = second["input"][3]["tools"]
    assert (tool["name"], tool["parameters"]) == ("mcp__probe__echo", SCHEMA)
    assert "defer_loading" not in tool


def test_a_tool_that_is_loaded_twice_is_declared_once() -> None:
    request = claude()
    request["messages"] += [
        {**message, "content": json.loads(json.dumps(message["content"]).replace("u_1", "u_2"))}
        for message in request["messages"][1:]
    ]
    body = sent(encoded_for(request, "messages", "responses", deferred=True))
    assert [item["type"] for item in body["input"]].count("additional_tools") == 1


def test_a_deferred_tool_that_nothing_has_loaded_is_declared() -> None:
    request = claude()
    request["messages"] = request["messages"][:1]
    body = sent(encoded_for(request, "messages", "responses", deferred=True))
    assert tool_names(body) == ["ToolSearch", "mcp__probe__echo"]


def test_a_responses_upstream_without_deferred_tools_gets_functions() -> None:
    request = codex()
    body = json.dumps(request).encode()
    decoded = codec("responses").decode_request(body)
    target = replace(codec("responses").target, deferred_tools=False)
    for encoded in (
        codec("responses").encode_request(decoded, target, None),
        relay_request(body, decoded, dialect="responses", target=target, model="m"),
    ):
        written = sent(encoded)
        assert [tool["type"] for tool in written["tools"]] == ["function", "namespace"]
        assert written["tools"][0]["name"] == "tool_search"
        assert "defer_loading" not in encoded.body.decode()
        assert [item["type"] for item in written["input"]] == [
            *("message", "function_call", "function_call_output")
        ]
        assert "<functions>" in written["input"][2]["output"]


def test_a_result_has_nothing_that_only_another_dialect_reads() -> None:
    wild: Json = {"type": "search_result", "source": "s", "title": "t", "content": []}
    request: Json = {
        "model": "m",
        "max_tokens": 99,
        "messages": [
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [{"type": "text", "text": "found"}, wild],
                    }
                ],
            },
        ],
    }
    encoded = translate_request(json.dumps(request).encode(), "messages", "responses")
    assert json.loads(encoded.body)["input"][2]["output"] == "found"
    assert [(loss.code, loss.where) for loss in encoded.losses] == [("opaque_part", "turns[2]")]
