"""Requests of any dialect as this vendor accepts them."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from msgspec.structs import replace
from pydantic import TypeAdapter

from dragoman._json import Raw
from dragoman.dialects.messages import DEFAULT_TARGET, encode_request
from dragoman.errors import RequestRefused
from dragoman.model.outcome import LossAction
from dragoman.model.parts import (
    Annotation,
    Breakpoint,
    Call,
    Extra,
    Media,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import Request, Role, Tool, Turn

OWN = Extra("messages", {})
FOREIGN = Extra("chat", {"zip": Raw(b"1"), "foo": Raw(b"2")})
PARAMS: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsBase)
HI = Turn(role="user", parts=(Text(text="hi"),))
EPHEMERAL = Breakpoint(alone=True)


def walk(value: Any) -> Any:
    """Everything in a value, so that what is validated lazily is validated."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: walk(item) for key, item in fields.items()}
    if isinstance(value, list | Iterator):
        return [walk(item) for item in cast("Iterable[Any]", value)]
    return value


def turn(role: Role, *parts: Part) -> Turn:
    return Turn(role=role, parts=parts)


def encode(
    *turns: Turn, policy: dict[str, LossAction] | None = None, **fields: Any
) -> tuple[Any, dict[str, str], list[str]]:
    """The body, the losses and the repairs. The body validates against the vendor's own types."""
    request = Request(model="m", turns=turns or (HI,), **fields)
    encoded = encode_request(request, policy=policy)
    body = json.loads(encoded.body)
    walk(PARAMS.validate_python(body))
    return (
        body,
        {loss.code: loss.action for loss in encoded.losses},
        [repair.rule for repair in encoded.repairs],
    )


def messages(*turns: Turn, **fields: Any) -> Any:
    return encode(*turns, **fields)[0]["messages"]


def call(call_id: str = "a", name: str = "f", text: str = "{}") -> Call:
    return Call(call_id=call_id, name=name, input=text)


def result(call_id: str = "a", *content: Any) -> Result:
    return Result(call_id=call_id, content=content or (Text(text="ok"),))


# --- roles -----------------------------------------------------------------------------------------


def test_leading_system_and_developer_texts_are_the_system() -> None:
    body, _, repairs = encode(
        replace(turn("system", Text(text="a")), head=True),
        turn("developer", Text(text="b")),
        turn("system", Text(text=" ")),
        HI,
    )
    assert body["system"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert repairs == []
    assert encode(turn("system", Text(text="a")), HI)[0]["system"] == "a"
    assert "system" not in encode(HI)[0]


def test_later_system_text_is_user_text_in_tags() -> None:
    body, _, repairs = encode(HI, turn("developer", Text(text="be brief")))
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "text", "text": "<system-reminder>\nbe brief\n</system-reminder>"},
            ],
        }
    ]
    assert repairs == ["system_as_user"]


def test_system_message_of_this_dialect_stays_where_it_is() -> None:
    extra = Extra("messages", {"clear_at": Raw(b'"never"')})
    native = replace(turn("system", Text(text="now")), extra=extra)
    assert messages(HI, native, turn("assistant", Text(text="yes"))) == [
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "now", "clear_at": "never"},
        {"role": "assistant", "content": "yes"},
    ]
    assert messages(replace(native, extra=OWN), HI)[0]["role"] == "system"


def test_text_around_a_marked_block_keeps_its_tags() -> None:
    opaque = Opaque(dialect="messages", type="tool_addition", raw=Raw(b'{"type":"tool_addition"}'))
    body = encode_request(Request(turns=(HI, turn("system", Text(text="now"), opaque)))).body
    blocks = json.loads(body)["messages"][0]["content"]
    assert blocks[1]["text"] == "<system-reminder>\nnow\n</system-reminder>"
    assert blocks[2] == {"type": "tool_addition"}


def test_message_between_call_and_result_follows_the_result() -> None:
    # M105
    found = messages(
        HI,
        turn("assistant", call()),
        turn("system", Text(text="tools changed")),
        turn("tool", result()),
    )
    assert [block["type"] for block in found[2]["content"]] == ["tool_result", "text"]


def test_results_stand_in_one_user_message_before_its_text() -> None:
    # M097
    found = messages(
        HI,
        turn("assistant", call("a"), call("b")),
        turn("tool", result("a")),
        turn("tool", result("b")),
        turn("user", Text(text="go on")),
    )
    assert [each["role"] for each in found] == ["user", "assistant", "user"]
    assert found[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "ok"},
        {"type": "tool_result", "tool_use_id": "b", "content": "ok"},
        {"type": "text", "text": "go on"},
    ]


def test_text_after_a_call_moves_before_it() -> None:
    # M095
    body, _, repairs = encode(
        HI, turn("assistant", call(), Text(text="done?")), turn("tool", result())
    )
    assert [each["type"] for each in body["messages"][1]["content"]] == ["text", "tool_use"]
    assert repairs == ["text_before_calls"]


def test_unanswered_calls_get_an_error_result() -> None:
    # M101, M103
    body, _, repairs = encode(
        HI, turn("assistant", call("a"), call("b")), turn("tool", result("b"))
    )
    blocks = body["messages"][2]["content"]
    assert [(each["tool_use_id"], each.get("is_error")) for each in blocks] == [
        ("a", True),
        ("b", None),
    ]
    assert repairs == ["missing_result"]


def test_neighbours_of_one_role_are_one_message() -> None:
    found = messages(HI, turn("user", Text(text="there")))
    assert found == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "there"}],
        }
    ]


def test_conversation_begins_with_the_user() -> None:
    body, _, repairs = encode(turn("assistant", Text(text="hello")))
    assert body["messages"][0] == {"role": "user", "content": "."}
    assert repairs == ["user_first"]
    body, _, repairs = encode(turn("system", Text(text="s")))
    assert (body["messages"], repairs) == ([{"role": "user", "content": "."}], ["user_first"])


def test_no_message_is_empty() -> None:
    # M088
    body, _, repairs = encode(
        turn("user", Text()),
        turn("assistant", Text(text="")),
        turn("assistant", call(), Text(text=" \n")),
        turn("tool", result("a", Text())),
        turn("assistant", Text(text=" ")),
        turn("user", Text(text="x")),
    )
    assert body["messages"] == [
        {"role": "user", "content": "."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "x"}],
        },
    ]
    assert repairs.count("empty_turn") == 2


def test_last_assistant_text_has_no_white_space_at_its_end() -> None:
    body, _, repairs = encode(HI, turn("assistant", Text(text="so \n")))
    assert body["messages"][1]["content"] == "so"
    assert repairs == ["trailing_whitespace"]


def test_name_of_an_author_is_a_loss() -> None:
    assert encode(replace(HI, name="bob"))[1] == {"turn_name": "drop"}


def test_thread_continues_where_the_vendor_left_off() -> None:
    thread = Extra(
        "messages", {"thread": Raw(b'{"type":"continue","previous_message_id":"msg_1"}')}
    )
    provider = Result(
        call_id="s",
        name="web_search",
        kind="web_search",
        executor="provider",
        content=(Opaque(dialect="messages", type="web_search_tool_result", raw=Raw(b"[]")),),
        extra=OWN,
    )
    body, _, repairs = encode(
        turn("user", Text(text="and")),
        turn("tool", result("earlier")),
        turn("assistant", provider, Text(text="x")),
        extra=thread,
    )
    assert [each["type"] for each in body["messages"][0]["content"]] == ["tool_result", "text"]
    assert body["messages"][1]["content"][0]["type"] == "web_search_tool_result"
    assert body["thread"]["type"] == "continue"
    assert repairs == []


# --- parts -------------------------------------------------------------------------------------------


def test_call_input_is_spliced_by_its_bytes() -> None:
    # M055
    text = '{"city":"Paris", "n":12345678901234567890, "f": 1.0}'
    encoded = encode_request(
        Request(turns=(HI, turn("assistant", call(text=text)), turn("tool", result())))
    )
    assert text.encode() in encoded.body


def test_input_that_is_no_object_is_carried_under_a_key_of_ours() -> None:
    # facts: AI SDK and openai-node replay calls whose arguments were cut
    for text in ('{"a":"ha', "[1]", "12"):
        body, losses, _ = encode(HI, turn("assistant", call(text=text)), turn("tool", result()))
        assert body["messages"][1]["content"][0]["input"] == {"_invalid_arguments": text}
        assert losses == {"invalid_input": "carry"}


def test_empty_input_is_always_there() -> None:
    # M059
    found = messages(HI, turn("assistant", call(text="")), turn("tool", result()))
    assert found[1]["content"][0]["input"] == {}


def test_half_a_character_in_an_input_does_not_break_the_request() -> None:
    found = messages(HI, turn("assistant", call(text='{"a":"\ud83d"}')), turn("tool", result()))
    assert found[1]["content"][0]["input"] == {"a": "?"}


def test_custom_calls_are_wrapped() -> None:
    custom = Call(call_id="a", name="patch", kind="custom", input="*** Begin")
    body, losses, _ = encode(
        HI,
        turn("assistant", custom),
        turn("tool", result()),
        tools=(Tool(name="patch", kind="custom", description="d"),),
    )
    assert body["messages"][1]["content"][0]["input"] == {"input": "*** Begin"}
    assert body["tools"][0]["input_schema"]["required"] == ["input"]
    assert losses == {"custom_tool": "carry"}


def test_other_kinds_of_calls_are_functions() -> None:
    shell = Call(call_id="a", name="", kind="local_shell", input='{"command":["ls"]}')
    body, losses, _ = encode(HI, turn("assistant", shell), turn("tool", result()))
    assert body["messages"][1]["content"][0]["name"] == "local_shell"
    assert losses == {"call_kind": "carry"}


def test_foreign_ids_are_mapped_alike_on_both_sides() -> None:
    # M019
    found = messages(
        HI, turn("assistant", call("functions.f:0")), turn("tool", result("functions.f:0"))
    )
    use, answer = found[1]["content"][0], found[2]["content"][0]
    assert use["id"] == answer["tool_use_id"]
    assert use["id"].startswith("dgm_")


def test_repeated_ids_get_ids_of_their_own() -> None:
    # M027
    found = messages(
        HI,
        turn("assistant", call("x")),
        turn("tool", result("x", Text(text="A"))),
        turn("assistant", call("x")),
        turn("tool", result("x", Text(text="B"))),
    )
    first, second = found[1]["content"][0]["id"], found[3]["content"][0]["id"]
    assert first != second
    assert found[4]["content"][0] == {"type": "tool_result", "tool_use_id": second, "content": "B"}


def test_results_carry_images_errors_and_breakpoints() -> None:
    # M099, M100, M164
    image = Media(kind="image", media_type="image/png", data="iVBORw0KGgo=")
    answer = Result(call_id="a", content=(Text(text="see"), image), is_error=True, cache=EPHEMERAL)
    (block,) = messages(HI, turn("assistant", call()), turn("tool", answer))[2]["content"]
    assert block["is_error"] is True
    assert block["cache_control"] == {"type": "ephemeral"}
    assert [each["type"] for each in block["content"]] == ["text", "image"]


def test_breakpoint_of_a_message_stands_on_its_last_block() -> None:
    # M164: message-level wins over part-level
    other = Breakpoint(ttl="1h", alone=True)
    tool = replace(turn("tool", replace(result(), cache=other)), cache=EPHEMERAL)
    thought = Reasoning(summary=("hm",), seals=(Seal("signature", "s"),))
    said = replace(turn("assistant", call(), thought), cache=EPHEMERAL)
    found = messages(HI, said, tool)
    assert found[1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert found[2]["content"][0]["cache_control"] == {"type": "ephemeral"}
    only = replace(turn("assistant", thought), cache=EPHEMERAL)
    assert "cache_control" not in messages(HI, only)[1]["content"][0]


def test_own_seals_go_back_exactly() -> None:
    found = messages(
        HI,
        turn(
            "assistant",
            Reasoning(summary=("hm",), seals=(Seal("signature", "c2ln"),)),
            Reasoning(seals=(Seal("redacted", "Em"),)),
            Text(text="a"),
        ),
    )
    assert found[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "Em"},
        {"type": "text", "text": "a"},
    ]


def test_several_own_seals_are_several_blocks() -> None:
    seals = (Seal("signature", "s"), Seal("redacted", "r"), Seal("encrypted", "o"))
    body, losses, _ = encode(HI, turn("assistant", Reasoning(summary=("hm",), seals=seals)))
    assert [each["type"] for each in body["messages"][1]["content"]] == [
        "thinking",
        "redacted_thinking",
    ]
    assert losses == {"foreign_seal": "drop"}


def test_reasoning_without_this_vendors_seal_is_left_out_or_carried() -> None:
    part = Reasoning(summary=("hm",), content=("more",), seals=(Seal("encrypted", "gAAA"),))
    said = turn("assistant", part, Text(text="a"))
    body, losses, _ = encode(HI, said)
    assert body["messages"][1]["content"] == "a"
    assert losses == {"foreign_seal": "drop", "unsigned_reasoning": "drop"}
    body, _, _ = encode(HI, said, policy={"unsigned_reasoning": "carry"})
    assert body["messages"][1]["content"][0]["text"] == "<thinking>\nhm\n\nmore\n</thinking>"
    assert encode(HI, turn("assistant", Reasoning(), Text(text="a")))[1] == {}


def test_own_server_tools_go_back_and_foreign_ones_do_not() -> None:
    own = Call(
        call_id="srvtoolu_1",
        name="web_search",
        kind="web_search",
        input='{"query":"q"}',
        executor="provider",
        extra=OWN,
    )
    answer = Result(
        call_id="srvtoolu_1",
        name="web_search",
        kind="web_search",
        executor="provider",
        content=(Opaque(dialect="messages", type="web_search_tool_result", raw=Raw(b"[]")),),
        extra=OWN,
    )
    body, losses, repairs = encode(
        HI,
        turn(
            "assistant",
            own,
            answer,
            replace(own, extra=None),
            replace(answer, extra=None),
            replace(own, kind="file_search", name="x", extra=FOREIGN),
            Text(text="a"),
        ),
        turn("user", replace(answer, extra=OWN), Text(text="b")),
    )
    assert [each["type"] for each in body["messages"][1]["content"]] == [
        "server_tool_use",
        "web_search_tool_result",
        "text",
    ]
    assert losses == {"provider_call": "drop", "provider_result": "drop"}
    assert repairs == []


def test_broken_pairs_of_server_tools_are_left_out() -> None:
    own = Call(
        call_id="s1",
        name="web_search",
        kind="web_search",
        input="{}",
        executor="provider",
        extra=OWN,
    )
    mcp = Result(
        call_id="s2", kind="mcp", executor="provider", content=(Text(text="x"),), extra=OWN
    )
    body, _, repairs = encode(
        HI,
        turn("assistant", own),
        turn("user", Text(text="b")),
        turn("assistant", mcp, own),
    )
    assert repairs == ["unanswered_server_call", "orphan_server_result"]
    assert [each["role"] for each in body["messages"]] == ["user", "assistant"]
    assert body["messages"][-1]["content"][0]["type"] == "server_tool_use"


def test_broken_mcp_result_is_a_loss() -> None:
    strange = Opaque(dialect="messages", type="", raw=Raw(b'["x"]'))
    mcp = Result(call_id="s2", kind="mcp", executor="provider", content=(strange,), extra=OWN)
    body, losses, _ = encode(HI, turn("assistant", mcp, Text(text="a")))
    assert body["messages"][1]["content"] == "a"
    assert losses == {"provider_result": "drop"}


def test_own_server_call_without_a_peer_is_lost() -> None:
    gateway = Call(call_id="s", name="f", executor="gateway", input="{}", extra=OWN)
    body, losses, _ = encode(HI, turn("assistant", gateway, Text(text="a")))
    assert body["messages"][1]["content"] == "a"
    assert losses == {"provider_call": "drop"}


def test_citations_go_back_only_if_the_vendor_would_know_them() -> None:
    own = Annotation(
        "messages",
        Raw(
            b'{"type":"char_location","cited_text":"x","document_index":0,"document_title":null,"end_char_index":1,"start_char_index":0}'
        ),
    )
    made = Annotation(
        "messages", Raw(b'{"type":"web_search_result_location","encrypted_index":""}')
    )
    foreign = Annotation("responses", Raw(b"{}"), url="https://e.org")
    text = Text(text="a", annotations=(own, made, foreign), logprobs=Raw(b"[]"), extra=FOREIGN)
    body, losses, _ = encode(HI, turn("assistant", text))
    (block,) = body["messages"][1]["content"]
    assert [each["type"] for each in block["citations"]] == ["char_location"]
    assert losses == {"citation": "drop", "logprobs": "drop", "unknown_field": "drop"}


def test_refusals_are_text() -> None:
    assert messages(HI, turn("assistant", Refusal(text="no"), Refusal()))[1]["content"] == "no"


def test_parts_in_strange_places_are_losses() -> None:
    image = Media(kind="image", url="https://e.org/x.png")
    body, losses, _ = encode(
        turn("user", Reasoning(summary=("x",)), Text(text="hi")),
        turn("assistant", image, Text(text="a")),
    )
    assert losses == {"foreign_part": "drop", "assistant_media": "drop"}
    assert body["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "a"},
    ]


def test_a_picture_in_a_system_text_is_refused() -> None:
    image = Media(kind="image", url="https://e.org/x.png")
    with pytest.raises(RequestRefused) as caught:
        encode(turn("system", Text(text="s"), image), HI)
    assert caught.value.code == "system_media"


def test_parts_of_other_dialects_are_losses() -> None:
    opaque = Opaque(dialect="responses", type="program", raw=Raw(b"{}"))
    assert encode(turn("user", opaque, Text(text="hi")))[1] == {"foreign_part": "drop"}


def test_a_reference_to_an_item_that_is_kept_elsewhere_is_refused() -> None:
    opaque = Opaque(dialect="responses", type="item_reference", raw=Raw(b"{}"))
    with pytest.raises(RequestRefused) as caught:
        encode(turn("user", opaque, Text(text="hi")))
    assert caught.value.code == "item_reference"


def test_seal_on_a_call_is_a_loss() -> None:
    sealed = replace(call(), seals=(Seal("thought", "x"),))
    assert encode(HI, turn("assistant", sealed), turn("tool", result()))[1] == {"call_seal": "drop"}


def test_fields_of_other_dialects_are_listed() -> None:
    request = Request(turns=(replace(HI, extra=FOREIGN),), extra=FOREIGN)
    places = [loss.where for loss in encode_request(request).losses]
    assert sorted(places) == ["foo", "turns[0].foo", "turns[0].zip", "zip"]


# --- media -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media", "source"),
    [
        (
            Media(kind="image", media_type="image/png", data="iV"),
            {"type": "base64", "media_type": "image/png", "data": "iV"},
        ),
        (Media(kind="image", url="https://e.org"), {"type": "url", "url": "https://e.org"}),
        (
            Media(kind="image", url="data:image/gif;base64,R0"),
            {"type": "base64", "media_type": "image/gif", "data": "R0"},
        ),
        (
            Media(kind="image", url="data:image/gif,GIF%38"),
            {"type": "base64", "media_type": "image/gif", "data": "R0lGOA=="},
        ),
        (
            Media(kind="file", data="data:text/plain;charset=utf-8;base64,aGk="),
            {"type": "text", "media_type": "text/plain", "data": "hi"},
        ),
        (Media(kind="image", file_id="file_1"), {"type": "file", "file_id": "file_1"}),
        (
            Media(kind="file", data="JV"),
            {"type": "base64", "media_type": "application/pdf", "data": "JV"},
        ),
        (
            Media(kind="file", url="https://e.org/x.pdf"),
            {"type": "url", "url": "https://e.org/x.pdf"},
        ),
        (
            Media(kind="file", media_type="text/markdown", data="aGk="),
            {"type": "text", "media_type": "text/plain", "data": "hi"},
        ),
    ],
)
def test_images_and_documents_have_their_sources(media: Media, source: object) -> None:
    body, losses, _ = encode(turn("user", media))
    (block,) = body["messages"][0]["content"]
    assert block["source"] == source
    assert block["type"] == ("image" if media.kind == "image" else "document")
    assert losses == {}


@pytest.mark.parametrize(
    ("media", "code"),
    [
        (Media(kind="audio", data="x"), "audio"),
        (Media(kind="video", data="x"), "video"),
        (Media(kind="file", media_type="application/zip", data="x"), "file_type"),
        (Media(kind="file", media_type="text/plain", data="???"), "file_type"),
        (Media(kind="image"), "file_type"),
        (Media(kind="file", file_id="file-abc"), "file_id"),
    ],
)
def test_media_the_vendor_does_not_take_are_refused(media: Media, code: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        encode(turn("user", Text(text="hi"), media))
    assert caught.value.code == code
    body, losses, _ = encode(turn("user", Text(text="hi"), media), policy={code: "drop"})
    assert body["messages"][0]["content"] == "hi"
    assert losses == {code: "drop"}


def test_names_of_files_are_titles() -> None:
    document = Media(kind="file", data="JV", filename="a.pdf", cache=EPHEMERAL)
    (block,) = messages(turn("user", document))[0]["content"]
    assert block["title"] == "a.pdf"
    assert block["cache_control"] == {"type": "ephemeral"}
    image = Media(kind="image", url="https://e.org", filename="a.png", detail="high")
    assert encode(turn("user", image))[1] == {"file_name": "drop", "image_detail": "drop"}


# --- policy ------------------------------------------------------------------------------------------


def test_policy_may_refuse_a_loss() -> None:
    with pytest.raises(RequestRefused) as caught:
        encode(turn("user", Media(kind="audio", data="x")), policy={"audio": "refuse"})
    assert caught.value.code == "audio"


def test_target_decides_ids_and_names() -> None:
    target = replace(DEFAULT_TARGET, names=replace(DEFAULT_TARGET.names, max_length=10))
    request = Request(turns=(HI,), tools=(Tool(name="a_very_long_name"),))
    encoded = encode_request(request, target)
    (tool,) = json.loads(encoded.body)["tools"]
    assert len(tool["name"]) <= 10
    origin = encoded.names.origin(tool["name"])
    assert origin is not None
    assert origin.name == "a_very_long_name"


def test_text_that_is_no_string_goes_as_it_came() -> None:
    strange = Opaque(dialect="messages", type="text", raw=Raw(b'{"type":"text","text":5}'))
    leading = turn("system", strange)
    later = turn("developer", strange)
    encoded = encode_request(Request(model="m", turns=(leading, turn("user", strange), later)))
    body = json.loads(encoded.body)
    block = {"type": "text", "text": 5}
    assert body["system"] == [block]
    assert body["messages"] == [{"role": "user", "content": [block, block]}]
