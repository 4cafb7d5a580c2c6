"""Requests for a Responses upstream: from other dialects with declared losses, from this one as they came."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman._json import Raw, raw
from dragoman.dialects.responses import DEFAULT_TARGET, decode_request, encode_request
from dragoman.errors import RequestRefused
from dragoman.model.parts import (
    Annotation,
    Breakpoint,
    Call,
    Extra,
    Media,
    Opaque,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import (
    Grammar,
    Namespace,
    ReasoningSettings,
    Request,
    Role,
    Tool,
    ToolChoice,
    ToolRef,
    Turn,
)
from responses_help import Json, body_of

CACHE = Breakpoint(alone=True)


def encode(*turns: Turn, **fields: Any) -> Json:
    return body_of(encode_request(Request(model="m", turns=turns, **fields)))


def losses_of(*turns: Turn, **fields: Any) -> list[str]:
    return [loss.code for loss in encode_request(Request(turns=turns, **fields)).losses]


def turn(role: Role, *parts: Any, **fields: Any) -> Turn:
    return Turn(role=role, parts=parts, **fields)


def again(**fields: Any) -> Json:
    """A request of this dialect, read and written."""
    fields = {"model": "m", "input": [], **fields}
    return body_of(encode_request(decode_request(json.dumps(fields).encode())))


def test_head_turns_become_instructions() -> None:
    body = encode(
        turn("system", Text(text="a"), Text(text="b"), head=True),
        turn("system", Text(text="c"), head=True),
        turn("system", Text(text="d")),
        turn("user", Text(text="hi")),
    )
    assert body["instructions"] == "a\n\nb\n\nc"
    assert body["input"] == [
        {"type": "message", "role": "system", "content": "d"},
        {"type": "message", "role": "user", "content": "hi"},
    ]


def test_parts_of_an_assistant_turn_become_items_in_order() -> None:
    body = encode(
        turn(
            "assistant",
            Text(text="Looking."),
            Text(text="Still."),
            Call(call_id="c", name="f", input='{"x": 1}'),
            Refusal(text="no"),
        ),
        turn("tool", Result(call_id="c", content=(Text(text="ok"),))),
    )
    text: list[Json] = [
        {"type": "output_text", "text": "Looking.", "annotations": []},
        {"type": "output_text", "text": "Still.", "annotations": []},
    ]
    first, call, second, output = body["input"]
    assert (first["role"], first["content"], first["status"]) == ("assistant", text, "completed")
    assert first["id"].startswith("msg_")
    assert call == {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x": 1}'}
    assert second["content"] == [{"type": "refusal", "refusal": "no"}]
    assert second["id"] != first["id"]
    assert output == {"type": "function_call_output", "call_id": "c", "output": "ok"}


def test_plain_text_of_an_assistant_is_a_string() -> None:
    body = encode(turn("assistant", Text(text="hi")))
    assert body["input"] == [{"type": "message", "role": "assistant", "content": "hi"}]


def test_m093_sealed_reasoning_stands_before_its_call() -> None:
    body = encode(
        turn(
            "assistant",
            Reasoning(summary=("hm",), seals=(Seal("encrypted", "gAAA", "rs_made_for"),)),
            Call(call_id="c", name="f", input="{}"),
        ),
        turn("tool", Result(call_id="c")),
        reasoning=ReasoningSettings(enabled=True, effort="low"),
    )
    first, second, _ = body["input"]
    assert first["type"] == "reasoning"
    assert first["id"] == "rs_made_for"
    assert first["encrypted_content"] == "gAAA"
    assert second["type"] == "function_call"
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["store"] is False


def test_sealed_reasoning_whose_item_is_not_known_has_no_id_rather_than_a_wrong_one() -> None:
    sealed = Reasoning(summary=("hm",), seals=(Seal("encrypted", "gAAA"),))
    written = encode_request(Request(turns=(turn("assistant", sealed),)))
    (item,) = json.loads(written.body)["input"]
    assert item["encrypted_content"] == "gAAA"
    assert "id" not in item


def test_long_user_id_of_another_dialect_is_sent_as_a_hash() -> None:
    written = encode_request(Request(user="u" * 150))
    assert len(json.loads(written.body)["user"]) <= 64
    assert [loss.code for loss in written.losses] == ["long_user"]


@pytest.mark.parametrize(
    ("reasoning", "code"),
    [
        (Reasoning(summary=("hm",), seals=(Seal("signature", "sig"),)), "foreign_seal"),
        (
            Reasoning(summary=("hm",), seals=(Seal("signature", "s"),), item_id="rs_1"),
            "foreign_seal",
        ),
        (Reasoning(summary=("hm",)), "reasoning_text"),
    ],
)
def test_reasoning_of_other_providers_is_never_sent(reasoning: Reasoning, code: str) -> None:
    encoded = encode_request(Request(turns=(turn("assistant", reasoning),)))
    assert json.loads(encoded.body)["input"] == []
    assert [loss.code for loss in encoded.losses] == [code]


def test_own_seal_survives_beside_a_foreign_one() -> None:
    seals = (Seal("encrypted", "gAAA"), Seal("signature", "sig"))
    encoded = encode_request(Request(turns=(turn("assistant", Reasoning(seals=seals)),)))
    (item,) = json.loads(encoded.body)["input"]
    assert item["encrypted_content"] == "gAAA"
    assert [loss.code for loss in encoded.losses] == ["foreign_seal"]


def test_stored_reasoning_is_sent_as_it_came() -> None:
    item: Json = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "a"}],
    }
    assert again(input=[item])["input"] == [item]


@pytest.mark.parametrize("size", [65, 200])
def test_m021_m023_long_call_ids_are_shortened_on_both_sides(size: int) -> None:
    one, other = "call_" + "x" * size, "call_" + "x" * size + "y"
    body = encode(
        turn("assistant", Call(call_id=one, name="f"), Call(call_id=other, name="f")),
        turn("tool", Result(call_id=one), Result(call_id=other)),
    )
    ids = [item["call_id"] for item in body["input"]]
    assert len(set(ids[:2])) == 2
    assert ids[:2] == ids[2:]
    assert all(len(call_id) <= 64 for call_id in ids)


def test_valid_call_ids_pass_byte_for_byte() -> None:
    body = encode(
        turn("assistant", Call(call_id="functions.Bash:0", name="f")),
        turn("tool", Result(call_id="functions.Bash:0")),
    )
    assert [item["call_id"] for item in body["input"]] == ["functions.Bash:0"] * 2


def test_m099_images_in_results_are_content() -> None:
    image = Media(kind="image", media_type="image/png", data="iVBOR")
    body = encode(
        turn("assistant", Call(call_id="c", name="f")),
        turn(
            "tool",
            Result(call_id="c", content=(Text(text="a"), image, Media(kind="video", url="u"))),
        ),
    )
    assert body["input"][1]["output"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBOR", "detail": "auto"},
        {"type": "input_text", "text": "[video]"},
    ]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ((Text(text="42"),), "[tool error] 42"),
        ((), "[tool error] "),
        (
            (Text(text="a"), Text(text="b")),
            [{"type": "input_text", "text": "[tool error] a"}, {"type": "input_text", "text": "b"}],
        ),
        (
            (Media(kind="image", url="https://e.com/a"),),
            [
                {"type": "input_text", "text": "[tool error] "},
                {"type": "input_image", "image_url": "https://e.com/a", "detail": "auto"},
            ],
        ),
    ],
)
def test_m100_errors_are_marked_in_the_text_and_by_status(content: Any, output: Any) -> None:
    body = encode(
        turn("assistant", Call(call_id="c", name="f")),
        turn("tool", Result(call_id="c", content=content, is_error=True)),
    )
    assert body["input"][1] == {
        "type": "function_call_output",
        "call_id": "c",
        "output": output,
        "status": "incomplete",
    }


def test_result_is_of_the_kind_of_its_call() -> None:
    body = encode(
        turn("assistant", Call(call_id="c", name="p", kind="custom", input="x")),
        turn("tool", Result(call_id="c", content=(Text(text="ok"),))),
    )
    assert body["input"][1]["type"] == "custom_tool_call_output"


def test_client_tools_of_other_vendors_are_functions_with_function_results() -> None:
    body = encode(
        turn(
            "assistant", Call(call_id="c", name="computer", kind="computer", input='{"action":"x"}')
        ),
        turn("tool", Result(call_id="c", kind="computer", content=(Text(text="ok"),))),
    )
    assert [item["type"] for item in body["input"]] == ["function_call", "function_call_output"]


def test_calls_that_another_provider_ran_are_left_out() -> None:
    encoded = encode_request(
        Request(
            turns=(
                turn(
                    "assistant",
                    Call(call_id="s", name="web_search", kind="web_search", executor="provider"),
                    Result(call_id="s", kind="web_search", executor="provider"),
                    Text(text="x"),
                ),
            )
        )
    )
    assert [item["type"] for item in json.loads(encoded.body)["input"]] == ["message"]
    assert [loss.code for loss in encoded.losses] == ["provider_call", "provider_result"]


def test_call_seals_are_noted() -> None:
    sealed = Call(call_id="c", name="f", seals=(Seal("thought", "x"),))
    assert losses_of(turn("assistant", sealed), turn("tool", Result(call_id="c"))) == ["call_seal"]


def test_m101_unanswered_call_gets_a_result_and_the_repair_is_reported() -> None:
    encoded = encode_request(
        Request(
            turns=(turn("assistant", Call(call_id="c", name="f")), turn("user", Text(text="x")))
        )
    )
    items = json.loads(encoded.body)["input"]
    assert [item["type"] for item in items] == ["function_call", "function_call_output", "message"]
    assert [repair.rule for repair in encoded.repairs] == ["missing_result"]


@pytest.mark.parametrize(
    "fields",
    [
        {"previous_response_id": "resp_0"},
        {"conversation": "conv_1"},
        {"prompt": {"id": "p"}},
    ],
)
def test_m102_result_of_a_call_the_provider_holds_stays(fields: Json) -> None:
    output: Json = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    assert again(input=[output], **fields)["input"] == [output]


def test_m128_replay_includes_every_item_and_references_stay() -> None:
    items: list[Json] = [
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "c",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
            "status": "completed",
        },
        {"type": "local_shell_call_output", "id": "lsho_1", "call_id": "c", "output": "ok"},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "function_call_output", "call_id": "held", "output": "ok"},
    ]
    assert (
        json.loads(
            encode_request(
                decode_request(json.dumps({"model": "m", "input": items, "store": False}).encode())
            ).body
        )["input"]
        == items
    )


def test_output_that_names_its_tool_stays_where_it_is() -> None:
    output: Json = {
        "type": "function_call_output",
        "id": "fco_1",
        "name": "get_weather",
        "output": "Sunny",
    }
    assert again(input=[output])["input"] == [output]


def test_orphan_of_another_dialect_becomes_text() -> None:
    encoded = encode_request(
        Request(turns=(turn("tool", Result(call_id="c", content=(Text(text="x"),))),))
    )
    assert [repair.rule for repair in encoded.repairs] == ["orphan_result"]
    assert json.loads(encoded.body)["input"][0]["role"] == "user"


def test_media_of_a_user_are_parts() -> None:
    body = encode(
        turn(
            "user",
            Text(text="see"),
            Media(kind="image", data="AAAA"),
            Media(kind="image", file_id="file_1", detail="low"),
            Media(kind="file", media_type="application/pdf", data="AAAA"),
            Media(kind="file", url="https://e.com/a.pdf"),
            Refusal(text="odd"),
        )
    )
    assert body["input"][0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_image", "file_id": "file_1", "detail": "low"},
        {"type": "input_file", "filename": "file", "file_data": "data:application/pdf;base64,AAAA"},
        {"type": "input_file", "file_url": "https://e.com/a.pdf"},
        {"type": "input_text", "text": "odd"},
    ]


def test_sound_is_refused_by_default_and_may_be_dropped_or_carried() -> None:
    request = Request(turns=(turn("user", Text(text="x"), Media(kind="audio", data="AAAA")),))
    with pytest.raises(RequestRefused) as caught:
        encode_request(request)
    assert caught.value.code == "audio_input"
    dropped = encode_request(request, policy={"audio_input": "drop"})
    assert json.loads(dropped.body)["input"][0]["content"] == "x"
    carried = encode_request(request, policy={"audio_input": "carry"})
    assert json.loads(carried.body)["input"][0]["content"][1]["text"] == "[audio]"


def test_other_media_are_refused_by_default() -> None:
    video = turn("user", Media(kind="video", url="u"))
    with pytest.raises(RequestRefused):
        encode(video)
    dropped = encode_request(Request(turns=(video,)), policy={"media_input": "drop"})
    assert json.loads(dropped.body)["input"] == []


def test_media_that_the_model_made_are_dropped_by_default_and_may_be_carried() -> None:
    image = turn("assistant", Media(kind="image", url="u"))
    dropped = encode_request(Request(turns=(image,)))
    assert [loss.code for loss in dropped.losses] == ["assistant_media"]
    assert json.loads(dropped.body)["input"] == []
    carried = encode_request(Request(turns=(image,)), policy={"assistant_media": "carry"})
    assert json.loads(carried.body)["input"][0]["content"] == "[image]"


def test_images_in_instructions_are_refused_by_default() -> None:
    with pytest.raises(RequestRefused):
        encode(turn("system", Media(kind="image", url="u"), head=True))


def test_turn_without_content_is_an_empty_message() -> None:
    assert encode(turn("user"))["input"] == [{"type": "message", "role": "user", "content": []}]


def test_citations_of_an_assistant_come_along() -> None:
    cited = Text(
        text="x",
        annotations=(Annotation("messages", Raw(b"{}"), url="u", title="t", start=0, end=1),),
        logprobs=raw([1]),
    )
    (item,) = json.loads(encode_request(Request(turns=(turn("assistant", cited),))).body)["input"]
    assert item["content"][0]["annotations"][0]["url"] == "u"
    assert item["content"][0]["logprobs"] == [1]
    bare = replace(cited, logprobs=None)
    (item,) = encode(turn("assistant", bare))["input"]
    assert "logprobs" not in item["content"][0]


@pytest.mark.parametrize(
    ("parts", "fields", "codes"),
    [
        ((Text(text="x", cache=CACHE),), {}, []),
        ((Text(text="x"),), {"cache": CACHE}, []),
        ((Text(text="x"),), {"name": "bob"}, ["message_name"]),
        ((Text(text="x", extra=Extra("chat", {"a": Raw(b"1")})),), {}, ["unknown_field"]),
        ((Text(text="x"),), {"extra": Extra("chat", {"a": Raw(b"1")})}, ["unknown_field"]),
        ((Opaque(dialect="messages", type="x", raw=Raw(b"{}")),), {}, ["opaque_part"]),
    ],
)
def test_what_a_message_cannot_say_is_noted(parts: Any, fields: Json, codes: list[str]) -> None:
    assert losses_of(turn("user", *parts, **fields)) == codes


def test_cache_breakpoints_of_instructions_are_not_missed() -> None:
    assert losses_of(turn("system", Text(text="x", cache=CACHE), head=True)) == []


# --- tools -----------------------------------------------------------------------------------------------------------


def test_functions_without_the_flag_are_not_strict_here() -> None:
    schema = raw({"type": "object", "properties": {}})
    (tool,) = encode(tools=(Tool(name="f", description="d", schema=schema),))["tools"]
    assert tool == {
        "type": "function",
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }


def test_function_of_this_dialect_keeps_its_missing_flag() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"$schema": "x"}}
    encoded = encode_request(
        decode_request(json.dumps({"model": "m", "input": [], "tools": [tool]}).encode())
    )
    assert json.loads(encoded.body)["tools"] == [tool]


def test_m118_strict_flag_is_kept_only_with_a_closed_schema() -> None:
    closed = raw(
        {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    )
    open_ = raw({"type": "object", "properties": {}})
    encoded = encode_request(
        Request(
            tools=(
                Tool(name="a", schema=closed, strict=True),
                Tool(name="b", schema=open_, strict=True),
            )
        )
    )
    assert [tool["strict"] for tool in json.loads(encoded.body)["tools"]] == [True, False]
    assert [loss.code for loss in encoded.losses] == ["schema"]


def test_target_without_strict_functions_gets_none() -> None:
    closed = raw(
        {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    )
    encoded = encode_request(
        Request(tools=(Tool(name="a", schema=closed, strict=True),)),
        replace(DEFAULT_TARGET, strict=False),
    )
    assert json.loads(encoded.body)["tools"][0]["strict"] is False


def test_m041_long_names_are_aliased_everywhere_and_found_again() -> None:
    name = "a" * 80
    encoded = encode_request(
        Request(
            tools=(Tool(name=name),),
            tool_choice=ToolChoice(mode="tool", tool=ToolRef(name)),
            turns=(
                turn("assistant", Call(call_id="c", name=name)),
                turn("tool", Result(call_id="c")),
            ),
        )
    )
    body = json.loads(encoded.body)
    alias = body["tools"][0]["name"]
    assert len(alias) <= 64
    assert body["tool_choice"]["name"] == alias
    assert body["input"][0]["name"] == alias
    assert encoded.names.find(alias) == ToolRef(name)


def test_custom_tools_keep_their_grammar() -> None:
    (tool,) = encode(
        tools=(Tool(name="p", kind="custom", description="d", grammar=Grammar("lark", "x")),)
    )["tools"]
    assert tool["format"] == {"type": "grammar", "syntax": "lark", "definition": "x"}
    (plain,) = encode(tools=(Tool(name="p", kind="custom"),))["tools"]
    assert plain == {"type": "custom", "name": "p"}


def test_members_of_a_namespace_stand_together() -> None:
    body = encode(
        tools=(
            Tool(name="a", namespace="n"),
            Tool(name="b"),
            Tool(name="c", namespace="n"),
            Tool(name="d", namespace="undeclared"),
        ),
        namespaces=(
            Namespace("empty"),
            Namespace("n", "d"),
            Namespace("later", None, None, "input"),
        ),
    )
    shapes = [(tool["type"], tool["name"], len(tool.get("tools", []))) for tool in body["tools"]]
    assert shapes == [
        ("namespace", "n", 2),
        ("function", "b", 0),
        ("namespace", "undeclared", 1),
        ("namespace", "empty", 0),
    ]


def test_m044_namespace_stays_beside_the_name() -> None:
    call = Call(call_id="c", name="js", namespace="mcp__node_repl")
    body = encode(turn("assistant", call), turn("tool", Result(call_id="c")))
    assert (body["input"][0]["name"], body["input"][0]["namespace"]) == ("js", "mcp__node_repl")


def test_tools_declared_in_the_conversation_stay_there() -> None:
    item: Json = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "function", "name": "f", "strict": False, "parameters": None}],
    }
    body = again(input=[item])
    assert body["input"] == [item]
    assert "tools" not in body


@pytest.mark.parametrize(
    ("tool", "written"),
    [
        (
            Tool(name="web_search", kind="web_search", variant="web_search_20250305"),
            {"type": "web_search"},
        ),
        (
            Tool(name="x", kind="code_interpreter"),
            {"type": "code_interpreter", "container": {"type": "auto"}},
        ),
        (Tool(name="bash", kind="bash", variant="bash_20250124"), None),
        (Tool(name="x", kind="other"), None),
        (Tool(name="x", kind="computer"), None),
    ],
)
def test_m126_builtin_tools_are_mapped_or_noted(tool: Tool, written: Json | None) -> None:
    encoded = encode_request(Request(tools=(tool,)))
    tools = json.loads(encoded.body).get("tools", [])
    assert tools == ([] if written is None else [written])
    assert [loss.code for loss in encoded.losses] == ([] if written else ["builtin_tool"])


def test_target_may_have_fewer_builtin_tools() -> None:
    request = decode_request(
        b'{"model":"m","input":[],"tools":[{"type":"web_search"},{"type":"from_tomorrow"}]}'
    )
    encoded = encode_request(request, replace(DEFAULT_TARGET, builtin=frozenset()))
    assert json.loads(encoded.body)["tools"] == [{"type": "from_tomorrow"}]
    assert [loss.code for loss in encoded.losses] == ["builtin_tool"]


def test_what_a_tool_cannot_say_is_noted() -> None:
    extra = Extra("messages", {"a": Raw(b"1")})
    assert losses_of(tools=(Tool(name="f", cache=CACHE, extra=extra),)) == ["unknown_field"]


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (ToolChoice(mode="auto"), "auto"),
        (ToolChoice(mode="none"), "none"),
        (ToolChoice(mode="required"), "required"),
        (ToolChoice(mode="tool"), "required"),
        (ToolChoice(mode="tool", tool=ToolRef("f")), {"type": "function", "name": "f"}),
        (
            ToolChoice(mode="tool", tool=ToolRef("f", "function", "n")),
            {"type": "function", "name": "f", "namespace": "n"},
        ),
        (ToolChoice(mode="tool", tool=ToolRef("p", "custom")), {"type": "custom", "name": "p"}),
        (
            ToolChoice(mode="tool", tool=ToolRef("docs", "mcp")),
            {"type": "mcp", "server_label": "docs"},
        ),
        (ToolChoice(mode="tool", tool=ToolRef("x", "web_search")), {"type": "web_search_preview"}),
        (ToolChoice(mode="tool", tool=ToolRef("x", "shell")), {"type": "shell"}),
        (
            ToolChoice(mode="allowed", allowed=(ToolRef("f"),), required=True),
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "f"}],
            },
        ),
        (
            ToolChoice(mode="allowed"),
            {"type": "allowed_tools", "mode": "auto", "tools": []},
        ),
    ],
)
def test_m110_m112_m116_tool_choice_is_written_flat(choice: ToolChoice, written: Any) -> None:
    assert encode(tool_choice=choice)["tool_choice"] == written


@pytest.mark.parametrize("kind", ["bash", "memory"])
def test_results_of_client_tools_of_other_vendors_are_function_outputs(kind: Any) -> None:
    result = Result(call_id="held", kind=kind, content=(Text(text="ok"),))
    body = encode(turn("tool", result), previous_id="resp_0")
    assert body["input"] == [{"type": "function_call_output", "call_id": "held", "output": "ok"}]


def test_own_results_of_every_form_go_out_as_they_came() -> None:
    items: list[Json] = [
        {"type": "apply_patch_call_output", "call_id": "a", "status": "completed"},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [{"type": "other", "x": 1}, {"type": "input_text", "text": "y"}],
        },
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "file_id": "f", "detail": "low"},
        },
    ]
    encoded = encode_request(
        decode_request(
            json.dumps({"model": "m", "input": items, "previous_response_id": "r"}).encode()
        )
    )
    assert json.loads(encoded.body)["input"] == items


@pytest.mark.parametrize(
    ("kind", "result", "field", "written"),
    [
        (
            "shell",
            Result(call_id="c", kind="shell", content=(Text(text="boom"),), is_error=True),
            "output",
            [{"stdout": "boom", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}],
        ),
        (
            "tool_search",
            Result(call_id="c", kind="tool_search", content=(Text(text="none"),)),
            "tools",
            [],
        ),
        ("mcp_approval", Result(call_id="c", kind="mcp_approval"), "approve", False),
        (
            "computer",
            Result(call_id="c", kind="computer", content=(Text(text="x"),)),
            "output",
            {"type": "computer_screenshot"},
        ),
    ],
)
def test_structured_results_are_made_of_plain_text_where_that_is_all_there_is(
    kind: Any, result: Result, field: str, written: Any
) -> None:
    encoded = encode_request(Request(turns=(turn("tool", result),), previous_id="resp_0"))
    (item,) = json.loads(encoded.body)["input"]
    assert item[field] == written
