"""Requests, both ways: what is read, what is refused, what comes back, what other dialects' requests become."""

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from pydantic import TypeAdapter

from dragoman._json import Raw
from dragoman.core.aliases import IdLimits
from dragoman.core.results import ERROR_MARK
from dragoman.dialects.base import EncodedRequest, Target
from dragoman.dialects.chat import (
    DEFAULT_TARGET,
    LOSSES,
    NORMALISED,
    decode_request,
    encode_request,
)
from dragoman.errors import RequestRefused
from dragoman.model.outcome import LossAction
from dragoman.model.parts import (
    Annotation,
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
from dragoman.model.request import (
    Grammar,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Role,
    Tool,
    ToolChoice,
    ToolRef,
    Turn,
)

OPENAI = replace(DEFAULT_TARGET, builtin=frozenset({"custom", "web_search"}))
CACHE = {"type": "ephemeral"}
SCHEMA = Raw(b'{"type":"object","properties":{"x":{"type":"string"}}}')
MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])
TOOLS = TypeAdapter(list[ChatCompletionToolUnionParam])
HELLO = {"role": "user", "content": "hello"}


def ask(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [HELLO], **fields}).encode()


def decode(**fields: object) -> Request:
    return decode_request(ask(**fields))


def decode_turns(*messages: object) -> tuple[Turn, ...]:
    return decode(messages=messages).turns


def encode(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> dict[str, object]:
    body: dict[str, object] = json.loads(encode_request(request, target, policy).body)
    return body


def foreign(*turns: Turn, **fields: object) -> Request:
    """A request of another dialect."""
    user = Turn(role="user", parts=(Text(text="hello"),))
    return Request(model="m", turns=turns or (user,), **fields)  # type: ignore[arg-type]


def turn(role: Role, *parts: Part, **fields: object) -> Turn:
    return Turn(role=role, parts=parts, **fields)  # type: ignore[arg-type]


def messages(request: Request, **options: object) -> list[dict[str, object]]:
    written = encode(request, **options)["messages"]  # type: ignore[arg-type]
    assert isinstance(written, list)
    MESSAGES.validate_python(written)
    return written


def codes(encoded: EncodedRequest) -> list[str]:
    return [loss.code for loss in encoded.losses]


# --- reading and writing in this dialect ------------------------------------------------------------------------------

WHOLE: dict[str, object] = {
    "model": "gpt-5",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "developer",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
        {
            "role": "user",
            "name": "ann",
            "content": [
                {
                    "type": "text",
                    "text": "Look",
                    "cache_control": CACHE,
                    "prompt_cache_breakpoint": {"mode": "explicit"},
                },
                {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
                {
                    "type": "image_url",
                    "image_url": {"url": "data:image/png;base64,QQ==", "weight": 1},
                },
                {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
                {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "flac"}},
                {"type": "file", "file": {"file_id": "file_1"}},
                {
                    "type": "file",
                    "file": {"file_data": "data:application/pdf;base64,QQ==", "filename": "a.pdf"},
                },
                {"type": "file", "file": {"file_data": "QQ==", "filename": "b"}},
                {"type": "video_url", "video_url": {"url": "https://x/v.mp4"}},
                {"type": "mystery", "x": 1.0},
            ],
        },
        {
            "role": "assistant",
            "content": "Hm",
            "reasoning": "thinking",
            "reasoning_details": [{"type": "reasoning.text", "text": "thinking", "signature": "s"}],
            "tool_calls": [
                {
                    "id": "call_a",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"n": 1.0}'},
                    "extra_content": {"google": {"thought_signature": "sig"}},
                    "mystery": True,
                },
                {"id": "call_b", "type": "custom", "custom": {"name": "exec", "input": "ls"}},
            ],
            "prefix": True,
        },
        {
            "role": "tool",
            "tool_call_id": "call_a",
            "content": "A",
            "cache_control": CACHE,
            "name": "f",
        },
        {
            "role": "tool",
            "tool_call_id": "call_b",
            "content": [{"type": "text", "text": "B"}, {"type": "text", "text": "C"}],
        },
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "user", "content": "And?", "cache_control": CACHE},
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
        {"role": "user", "content": ""},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "d",
                "parameters": {"type": "object", "properties": {"n": {"type": "number"}}},
                "strict": False,
                "mystery": 1,
            },
            "cache_control": CACHE,
            "more": 2,
        },
        {"type": "function", "function": {"name": "bare"}},
        {
            "type": "custom",
            "custom": {
                "name": "exec",
                "description": "runs",
                "format": {
                    "type": "grammar",
                    "grammar": {"syntax": "lark", "definition": "start: x"},
                },
            },
        },
        {"type": "custom", "custom": {"name": "free", "format": {"type": "text"}}},
        {"type": "web_search_preview", "search_context_size": "low"},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [
                {"type": "function", "function": {"name": "f"}},
                {"type": "custom", "custom": {"name": "exec"}},
                {"type": "web_search_preview"},
            ],
        },
    },
    "parallel_tool_calls": False,
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "max_completion_tokens": 100,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "seed": 7,
    "n": 1,
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"50256": -100},
    "stop": ["a", "b"],
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "r",
            "description": "d",
            "schema": {"type": "object"},
            "strict": True,
        },
    },
    "reasoning": {"effort": "high", "max_tokens": 1000, "enabled": True, "exclude": True},
    "verbosity": "low",
    "user": "u",
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "store": True,
    "web_search_options": {},
    "prediction": {"type": "content", "content": "x"},
    "modalities": ["text"],
    "audio": {"format": "wav", "voice": "alloy"},
    "vendor_extension": {"a": [1.50]},
}


def test_whole_request_comes_back_as_it_was() -> None:
    body = json.dumps(WHOLE).encode()
    encoded = encode_request(decode_request(body), OPENAI)
    assert json.loads(encoded.body) == WHOLE
    assert codes(encoded) == []
    assert encoded.repairs == ()


def test_argument_text_keeps_its_bytes() -> None:
    body = json.dumps(WHOLE).encode()
    assert b'"{\\"n\\": 1.0}"' in encode_request(decode_request(body), OPENAI).body
    assert b'{"a": [1.5]}' in encode_request(decode_request(body), OPENAI).body


def test_legacy_request_comes_back_as_it_was() -> None:
    legacy = {
        "model": "m",
        "messages": [
            HELLO,
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "{}"},
            },
            {"role": "function", "name": "f", "content": "1"},
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "{}"},
            },
            {"role": "function", "name": "f", "content": "2"},
        ],
        "functions": [{"name": "f", "parameters": {"type": "object", "properties": {}}}],
        "function_call": {"name": "f"},
    }
    request = decode_request(json.dumps(legacy).encode())
    assert json.loads(encode_request(request).body) == legacy
    calls = [part for each in request.turns for part in each.parts if isinstance(part, Call)]
    results = [part for each in request.turns for part in each.parts if isinstance(part, Result)]
    assert [part.call_id for part in calls] == [part.call_id for part in results]
    assert len({part.call_id for part in calls}) == 2


def test_legacy_choice_may_be_a_word() -> None:
    functions = [{"name": "f", "parameters": {"type": "object", "properties": {}}}]
    assert encode(decode(functions=functions, function_call="none"))["function_call"] == "none"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}, "a"),
        ({"messages": [{"role": "user", "content": []}]}, ""),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "a"),
        ({"messages": [{"role": "user"}]}, ""),
        ({"messages": [{"role": "assistant"}]}, ""),
    ],
)
def test_content_is_normalised(given: dict[str, object], written: object) -> None:
    assert messages(decode(**given))[0]["content"] == written


def test_normalisations_are_as_listed() -> None:
    assert set(NORMALISED) >= {"nulls", "single_text", "empty_arguments"}
    call = {"id": "a", "function": {"name": "f", "arguments": ""}, "type": None}
    turns = [HELLO, {"role": "assistant", "content": "", "tool_calls": [call]}]
    turns.append({"role": "tool", "tool_call_id": "a", "content": ""})
    written = messages(decode(messages=turns, stop=["x"], temperature=None))
    assert written[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    }
    body = encode(decode(stop=["x"], temperature=None, tool_choice="any", parallel_tool_calls=True))
    assert (body["stop"], "temperature" in body) == ("x", False)
    assert "tool_choice" not in body
    assert "parallel_tool_calls" not in body


def test_arguments_as_an_object_or_beside_function_become_the_string() -> None:
    turns = [
        HELLO,
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "a", "function": {"name": "f", "arguments": {"x": 1.0}}},
                {"id": "b", "name": "g", "arguments": "{}"},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]
    calls = messages(decode(messages=turns))[1]["tool_calls"]
    assert isinstance(calls, list)
    assert [each["function"]["arguments"] for each in calls] == ['{"x": 1.0}', "{}"]


def test_flat_tools_and_choices_get_the_nested_form() -> None:
    flat = {
        "type": "function",
        "name": "f",
        "parameters": {"type": "object", "properties": {}},
        "x": 1,
    }
    body = encode(decode(tools=[flat], tool_choice={"type": "function", "name": "f"}))
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"type": "object", "properties": {}}, "x": 1},
        }
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}


def test_both_limits_come_back() -> None:
    body = encode(decode(max_tokens=5, max_completion_tokens=7))
    assert (body["max_tokens"], body["max_completion_tokens"]) == (5, 7)
    assert decode(max_tokens=5).max_tokens == 5
    assert encode(decode(max_tokens=5))["max_tokens"] == 5


def test_unpaired_history_is_repaired_and_reported() -> None:  # M103
    calls = [
        {"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for each in ("skill:0", "glob:1")
    ]
    turns = [HELLO, {"role": "assistant", "tool_calls": calls}]
    turns.append({"role": "tool", "tool_call_id": "glob:1", "content": "ok"})
    encoded = encode_request(decode(messages=turns))
    written = json.loads(encoded.body)["messages"]
    assert [each.get("tool_call_id") for each in written[2:]] == ["skill:0", "glob:1"]
    assert [repair.rule for repair in encoded.repairs] == ["missing_result"]


def test_error_mark_comes_off_and_goes_on_again() -> None:  # M100
    turns = [
        HELLO,
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": ERROR_MARK + "42"},
    ]
    request = decode(messages=turns)
    (result,) = request.turns[2].parts
    assert isinstance(result, Result)
    assert (result.is_error, result.content) == (True, (Text(text="42"),))
    encoded = encode_request(request)
    assert json.loads(encoded.body)["messages"][2]["content"] == ERROR_MARK + "42"
    assert codes(encoded) == []


@pytest.mark.parametrize(
    "content",
    [
        ERROR_MARK,
        [{"type": "text", "text": ERROR_MARK + "a"}, {"type": "text", "text": "b"}],
        [{"type": "text", "text": ERROR_MARK}, {"type": "image_url", "image_url": {"url": "u"}}],
        [{"type": "image_url", "image_url": {"url": "u"}}],
    ],
)
def test_marked_results_come_back_as_they_were(content: object) -> None:
    turns = [
        HELLO,
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": content},
    ]
    assert encode(decode(messages=turns))["messages"][2]["content"] == content  # type: ignore[index]


def test_breakpoint_of_a_message_wins_over_that_of_its_last_part() -> None:  # M164
    part = {"type": "text", "text": "a", "cache_control": {"type": "other"}}
    (found,) = decode_turns({"role": "user", "content": [part], "cache_control": CACHE})
    assert found.cache == Raw(b'{"type": "ephemeral"}')
    assert found.parts == (Text(text="a"),)
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    kept = decode_turns({"role": "assistant", "tool_calls": [call], "cache_control": CACHE})
    assert kept[0].cache is not None


def test_breakpoint_on_a_tool_message_is_the_results() -> None:  # M164
    (found,) = decode_turns(
        {"role": "tool", "tool_call_id": "a", "content": "x", "cache_control": CACHE}
    )
    (result,) = found.parts
    assert isinstance(result, Result)
    assert result.cache == Raw(b'{"type": "ephemeral"}')


def test_reasoning_is_read_wherever_it_stands() -> None:
    for field in ("reasoning_content", "reasoning", "reasoning_text", "thinking"):
        (found,) = decode_turns({"role": "assistant", "content": "a", field: "hm"})
        part = found.parts[0]
        assert isinstance(part, Reasoning)
        assert part.summary == ("hm",)
        assert (
            messages(decode(messages=[{"role": "assistant", "content": "a", field: "hm"}]))[0][
                field
            ]
            == "hm"
        )
    (sealed,) = decode_turns(
        {
            "role": "assistant",
            "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
        }
    )
    assert isinstance(sealed.parts[0], Reasoning)
    assert sealed.parts[0].seals == (Seal("signature", "s"),)
    assert sealed.parts[0].summary == ("hm",)


def test_result_of_a_function_nobody_called_has_no_id() -> None:
    (found,) = decode_turns({"role": "function", "name": "f", "content": "x"})
    assert isinstance(found.parts[0], Result)
    assert found.parts[0].call_id == ""


def test_refusal_part_becomes_the_field() -> None:
    content = [{"type": "refusal", "refusal": "No"}]
    assert messages(decode(messages=[{"role": "assistant", "content": content}]))[0] == {
        "role": "assistant",
        "content": None,
        "refusal": "No",
    }
    (tool,) = decode_turns({"role": "tool", "tool_call_id": "a", "content": content})
    assert isinstance(tool.parts[0], Result)
    assert tool.parts[0].content == (Text(text="No"),)


def test_call_of_an_unknown_type_is_kept_whole() -> None:
    odd = {"id": "x", "type": "mcp", "mcp": {"server": "s"}}
    request = decode(messages=[HELLO, {"role": "assistant", "content": "a", "tool_calls": [odd]}])
    assert isinstance(request.turns[1].parts[1], Opaque)


def test_images_an_assistant_made_are_read() -> None:
    image = {"type": "image_url", "image_url": "u"}
    (found,) = decode_turns({"role": "assistant", "content": "a", "images": [image]})
    assert found.parts[1] == Media(kind="image", url="u")


@pytest.mark.parametrize(
    ("part", "media"),
    [
        (
            {"type": "file", "file": {"file_data": "https://x/a.pdf"}},
            Media(kind="file", url="https://x/a.pdf"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "QQ=="}},
            Media(kind="audio", media_type="audio/wav", data="QQ=="),
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:,x"}},
            Media(kind="image", url="data:,x"),
        ),
    ],
)
def test_media_are_read_in_their_variants(part: object, media: Media) -> None:
    (found,) = decode_turns({"role": "user", "content": [part]})
    assert found.parts == (media,)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {}},
        {"type": "image_url"},
        {"type": "text"},
        {"text": "a"},
    ],
)
def test_part_that_says_nothing_known_is_kept_whole(part: dict[str, object]) -> None:
    (found,) = decode_turns({"role": "user", "content": [part]})
    assert isinstance(found.parts[0], Opaque)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"\xff", None),
        (b"[]", None),
        (b"{}", "messages"),
        (ask(messages=[]), "messages"),
        (ask(messages="x"), "messages"),
        (ask(messages=["x"]), "messages[0]"),
        (ask(messages=[{"content": "x"}]), "messages[0].role"),
        (ask(messages=[{"role": "robot"}]), "messages[0].role"),
        (ask(messages=[{"role": 1}]), "messages[0].role"),
        (ask(messages=[{"role": "user", "content": 3}]), "messages[0].content"),
        (ask(messages=[{"role": "user", "content": [3]}]), "messages[0].content[0]"),
        (ask(messages=[{"role": "user", "name": 3}]), "messages[0].name"),
        (ask(messages=[{"role": "assistant", "tool_calls": 3}]), "messages[0].tool_calls"),
        (ask(messages=[{"role": "assistant", "tool_calls": [3]}]), "messages[0].tool_calls[0]"),
        (
            ask(messages=[{"role": "assistant", "tool_calls": [{}]}]),
            "messages[0].tool_calls[0].function.name",
        ),
        (
            ask(messages=[{"role": "assistant", "function_call": {}}]),
            "messages[0].function_call.name",
        ),
        (ask(tools=3), "tools"),
        (ask(tools=[3]), "tools[0]"),
        (ask(tools=[{"type": "function"}]), "tools[0].function.name"),
        (
            ask(tools=[{"type": "function", "function": {"name": "f", "parameters": []}}]),
            "tools[0].function.parameters",
        ),
        (ask(tools=[{"type": "custom", "custom": {}}]), "tools[0].custom.name"),
        (ask(functions=[{}]), "functions[0].name"),
        (ask(tool_choice="maybe"), "tool_choice"),
        (ask(tool_choice=3), "tool_choice"),
        (ask(tool_choice={"type": "function"}), "tool_choice.name"),
        (ask(temperature="hot"), "temperature"),
        (ask(max_tokens="5"), "max_tokens"),
        (ask(max_tokens=1.5), "max_tokens"),
        (ask(stream="yes"), "stream"),
        (ask(stop=[1]), "stop[0]"),
        (ask(stop=1), "stop"),
        (ask(response_format="json"), "response_format"),
        (ask(response_format={"type": "json_schema"}), "response_format.json_schema"),
        (ask(stream_options=1), "stream_options"),
        (ask(model=3), "model"),
    ],
)
def test_unusable_request_is_refused_with_its_place(body: bytes, param: str | None) -> None:
    with pytest.raises(RequestRefused) as refused:
        decode_request(body)
    assert refused.value.param == param
    assert "expected" in refused.value.message


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ("auto", ToolChoice(mode="auto")),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        ("any", ToolChoice(mode="required")),
        ({"type": "auto"}, ToolChoice(mode="auto")),
        (
            {"type": "function", "function": {"name": "f"}},
            ToolChoice(mode="tool", tool=ToolRef("f")),
        ),
        ({"function": {"name": "f"}}, ToolChoice(mode="tool", tool=ToolRef("f"))),
        ({"type": "tool", "name": "f"}, ToolChoice(mode="tool", tool=ToolRef("f"))),
        (
            {"type": "custom", "custom": {"name": "f"}},
            ToolChoice(mode="tool", tool=ToolRef("f", "custom")),
        ),
        ({"type": "web_search"}, ToolChoice(mode="tool", tool=ToolRef("web_search", "web_search"))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            ToolChoice(mode="allowed", allowed=(ToolRef("f"),)),
        ),
    ],
)
def test_tool_choice_is_read_in_all_its_forms(given: object, choice: ToolChoice) -> None:
    assert decode(tool_choice=given).tool_choice == choice


def test_formats_come_back() -> None:
    for form in ({"type": "text"}, {"type": "json_object"}, {"type": "grammar", "grammar": "x"}):
        assert encode(decode(response_format=form))["response_format"] == form


def test_effort_comes_back() -> None:
    assert encode(decode(reasoning_effort="high"))["reasoning_effort"] == "high"
    assert encode(decode(reasoning={}))["reasoning"] == {}


def test_flat_grammar_is_understood() -> None:
    tool = {
        "type": "custom",
        "custom": {"name": "x", "format": {"type": "grammar", "definition": "d"}},
    }
    assert decode(tools=[tool]).tools[0].grammar == Grammar("lark", "d")


# --- requests of other dialects ---------------------------------------------------------------------------------------

CALL = Call(call_id="a", name="f", input='{"x":1}')
RESULT = Result(call_id="a", content=(Text(text="ok"),))


def test_head_comes_first_and_developers_become_system() -> None:
    request = foreign(
        turn("user", Text(text="hi")),
        turn("developer", Text(text="more")),
        turn("system", Text(text="a"), Text(text="b"), head=True),
    )
    assert messages(request) == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "more"},
    ]


def test_assistant_turns_become_one_message_with_its_results_after_it() -> None:  # M165
    request = foreign(
        turn("user", Text(text="hi")),
        turn("assistant", Text(text="a")),
        turn("assistant", Text(text="b")),
        turn("assistant", CALL),
        turn("tool", RESULT),
    )
    assert messages(request)[1:] == [
        {
            "role": "assistant",
            "content": "a\n\nb",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]


def test_assistant_with_calls_only_has_null_content() -> None:
    written = messages(foreign(turn("assistant", CALL), turn("tool", RESULT)))
    assert written[0]["content"] is None


def test_assistant_turn_of_which_nothing_is_left_is_left_out() -> None:
    search = Call(call_id="ws", name="web_search", kind="web_search", executor="provider")
    found = Result(call_id="ws", executor="provider")
    encoded = encode_request(
        foreign(
            turn("user", Text(text="hi")), turn("assistant", search, found), turn("tool", found)
        )
    )
    assert len(json.loads(encoded.body)["messages"]) == 1
    assert codes(encoded) == ["provider_call", "provider_result", "provider_result"]


def test_image_in_a_result_follows_in_a_user_message() -> None:  # M099
    image = Media(kind="image", media_type="image/png", data="QQ==")
    request = foreign(
        turn("assistant", CALL, Call(call_id="b", name="g", input="{}")),
        turn("tool", Result(call_id="a", content=(Text(text="see"), image))),
        turn("tool", Result(call_id="b", content=(image, Media(kind="image", file_id="f")))),
        turn("user", Text(text="next")),
    )
    encoded = encode_request(request)
    written = json.loads(encoded.body)["messages"]
    assert [each["role"] for each in written] == ["assistant", "tool", "tool", "user", "user"]
    assert written[1]["content"] == "see\n\n[image 1 of the next message]"
    assert written[2]["content"] == "[image 2 of the next message]"
    assert [part["type"] for part in written[3]["content"]] == ["text", "image_url", "image_url"]
    assert codes(encoded) == ["result_media", "result_media", "media"]


def test_error_result_is_marked_in_its_text() -> None:  # M100
    failed = Result(call_id="a", content=(Text(text="42"),), is_error=True)
    encoded = encode_request(foreign(turn("assistant", CALL), turn("tool", failed)))
    assert json.loads(encoded.body)["messages"][1]["content"] == ERROR_MARK + "42"
    assert codes(encoded) == ["error_flag"]


def test_ids_are_made_to_fit_on_both_sides() -> None:  # M021, M024
    target = replace(DEFAULT_TARGET, ids=IdLimits("[a-zA-Z0-9]", 9, 9))
    call = Call(call_id="toolu_01VpEm654HvfMoRcrE3Hgdc6", name="f", input="{}")
    result = Result(call_id=call.call_id)
    written = messages(foreign(turn("assistant", call), turn("tool", result)), target=target)
    call_id = written[0]["tool_calls"][0]["id"]  # type: ignore[index]
    assert len(call_id) == 9
    assert written[1]["tool_call_id"] == call_id


def test_conversation_opens_with_a_user_where_the_target_wants_it() -> None:  # M107
    target = replace(DEFAULT_TARGET, user_first=True)
    encoded = encode_request(
        foreign(turn("system", Text(text="s"), head=True), turn("assistant", Text(text="a"))),
        target,
    )
    written = json.loads(encoded.body)["messages"]
    assert [each["role"] for each in written] == ["system", "user", "assistant"]
    assert [repair.rule for repair in encoded.repairs] == ["user_first"]
    only = encode_request(foreign(turn("system", Text(text="s"), head=True)), target)
    assert [each["role"] for each in json.loads(only.body)["messages"]] == ["system", "user"]
    fine = encode_request(foreign(turn("user", Text(text="a"))), target)
    assert fine.repairs == ()


def test_earlier_reasoning_is_carried_or_dropped() -> None:
    thought = Reasoning(summary=("a", ""), content=("b",), seals=(Seal("signature", "s"),))
    request = foreign(turn("assistant", thought, Text(text="x")))
    encoded = encode_request(request)
    assert json.loads(encoded.body)["messages"][0]["reasoning_content"] == "a\n\nb"
    assert codes(encoded) == ["seal", "reasoning_history"]
    assert "reasoning_content" not in messages(request, policy={"reasoning_history": "drop"})[0]


def test_sealed_reasoning_without_text_has_no_field() -> None:
    encoded = encode_request(
        foreign(
            turn("assistant", Reasoning(seals=(Seal("redacted", "s"),)), CALL), turn("tool", RESULT)
        )
    )
    assert codes(encoded) == ["seal"]


def test_seals_of_a_call_go_where_they_came_from() -> None:
    call = Call(
        call_id="a",
        name="f",
        input="{}",
        seals=(Seal("thought", '{"g":1}'), Seal("encrypted", "x")),
    )
    encoded = encode_request(foreign(turn("assistant", call), turn("tool", RESULT)))
    assert json.loads(encoded.body)["messages"][0]["tool_calls"][0]["extra_content"] == {"g": 1}
    assert codes(encoded) == ["seal"]


def test_cache_breakpoints_are_dropped_or_carried() -> None:
    cache = Raw(b'{"type":"ephemeral"}')
    request = foreign(
        turn("system", Text(text="a", cache=cache), Text(text="b"), head=True),
        turn("user", Text(text="hi"), cache=cache),
        turn("assistant", CALL),
        turn("tool", Result(call_id="a", content=(Text(text="ok"),), cache=cache)),
        tools=(Tool(name="f", schema=SCHEMA, cache=cache),),
    )
    dropped = encode_request(request)
    assert b"cache_control" not in dropped.body
    assert codes(dropped) == ["cache_control"] * 4
    carried = encode(request, policy={"cache_control": "carry"})
    assert json.dumps(carried).count("cache_control") == 4
    assert carried["messages"][0]["content"] == [  # type: ignore[index]
        {"type": "text", "text": "a", "cache_control": CACHE},
        {"type": "text", "text": "b"},
    ]


def test_what_has_no_form_is_declared() -> None:
    raw = Raw(b"{}")
    extra = Extra("messages", {"x": raw})
    request = foreign(
        turn(
            "user",
            Text(text="a", extra=extra, annotations=(Annotation("messages", raw),)),
            Media(kind="file", url="u"),
            Media(kind="audio", url="u"),
            Media(kind="video", data="QQ=="),
            Opaque(dialect="messages", type="y", raw=raw),
            Refusal(text="n"),
            extra=extra,
        ),
        extra=extra,
        include=("a",),
        top_k=3,
        metadata=raw,
        store=True,
        response_format=ResponseFormat(kind="other", extra=extra),
    )
    encoded = encode_request(request)
    assert set(codes(encoded)) == {
        "unknown_field",
        "annotation",
        "media",
        "opaque_part",
        "top_k",
        "metadata",
        "store",
        "response_format",
        "include",
    }
    body = json.loads(encoded.body)
    assert not {"top_k", "metadata", "store", "response_format"} & set(body)
    carried = encode(request, policy={"top_k": "carry", "metadata": "carry", "store": "carry"})
    assert (carried["top_k"], carried["metadata"], carried["store"]) == (3, {}, True)


def test_reference_to_an_earlier_response_is_refused() -> None:
    with pytest.raises(RequestRefused) as refused:
        encode_request(foreign(previous_id="resp_1"))
    assert refused.value.code == "previous_response"
    assert "messages" in encode(foreign(previous_id="resp_1"), policy={"previous_response": "drop"})


def test_other_dialects_ask_for_usage_in_streams() -> None:
    assert encode(foreign(stream=True))["stream_options"] == {"include_usage": True}
    assert "stream_options" not in encode(foreign(stream=False))
    assert "stream_options" not in encode(decode(stream=True))
    assert encode(foreign(stream=True, include_usage=False))["stream_options"] == {
        "include_usage": False
    }


def test_limit_of_another_dialect_has_the_name_every_server_reads() -> None:
    assert encode(foreign(max_tokens=9))["max_tokens"] == 9


@pytest.mark.parametrize(
    ("settings", "fields", "losses"),
    [
        (ReasoningSettings(effort="high"), {"reasoning_effort": "high"}, []),
        (
            ReasoningSettings(enabled=True, budget=31999),
            {"reasoning_effort": "high"},
            ["reasoning_settings"],
        ),
        (ReasoningSettings(enabled=False), {}, []),
        (ReasoningSettings(adaptive=True), {}, []),
        (ReasoningSettings(summary="auto"), {}, ["reasoning_settings"]),
    ],
)
def test_reasoning_settings_become_an_effort(
    settings: ReasoningSettings, fields: dict[str, object], losses: list[str]
) -> None:
    encoded = encode_request(foreign(reasoning=settings))
    body = json.loads(encoded.body)
    assert {name: body[name] for name in body if name.startswith("reasoning")} == fields
    assert codes(encoded) == losses


def test_budget_is_dropped_by_policy() -> None:
    request = foreign(reasoning=ReasoningSettings(budget=100))
    assert "reasoning_effort" not in encode(request, policy={"reasoning_settings": "drop"})


def test_schema_of_a_format_gets_the_name_it_needs() -> None:
    form = ResponseFormat(kind="json_schema", schema=SCHEMA)
    written = encode(foreign(response_format=form))["response_format"]
    assert written == {
        "type": "json_schema",
        "json_schema": {"name": "response", "schema": json.loads(bytes(SCHEMA))},
    }


# --- tools of other dialects ------------------------------------------------------------------------------------------


def tools_of(request: Request, **options: object) -> list[dict[str, object]]:
    written = encode(request, **options).get("tools", [])  # type: ignore[arg-type]
    assert isinstance(written, list)
    TOOLS.validate_python(written)
    return written


def test_namespace_is_one_function_per_member() -> None:  # M043
    tools = (
        Tool(name="search", namespace="mcp__docs__", schema=SCHEMA),
        Tool(name="wait", namespace="clock", schema=SCHEMA, place="input"),
    )
    encoded = encode_request(foreign(tools=tools))
    names = [each["function"]["name"] for each in json.loads(encoded.body)["tools"]]
    assert names == ["mcp__docs__search", "clock__wait"]
    assert codes(encoded) == ["namespace", "namespace"]
    ref = encoded.names.origin("mcp__docs__search")
    assert ref is not None
    assert (ref.namespace, ref.name) == ("mcp__docs__", "search")


def test_history_uses_the_names_of_the_tools() -> None:  # M041
    long = "x" * 80
    tools = (Tool(name=long, schema=SCHEMA), Tool(name=long + "y", schema=SCHEMA))
    call = Call(call_id="a", name=long + "y", input="{}")
    request = foreign(
        turn("assistant", call),
        turn("tool", RESULT),
        tools=tools,
        tool_choice=ToolChoice(mode="tool", tool=ToolRef(long + "y")),
    )
    body = encode(request)
    first, second = (each["function"]["name"] for each in body["tools"])  # type: ignore[attr-defined]
    assert first != second
    assert len(second) <= 64
    assert body["messages"][0]["tool_calls"][0]["function"]["name"] == second  # type: ignore[index]
    assert body["tool_choice"] == {"type": "function", "function": {"name": second}}


def test_namespaced_history_is_flattened() -> None:
    call = Call(call_id="a", name="js", namespace="repl", input="{}")
    encoded = encode_request(foreign(turn("assistant", call), turn("tool", RESULT)))
    function = json.loads(encoded.body)["messages"][0]["tool_calls"][0]["function"]
    assert function["name"] == "repl__js"
    assert codes(encoded) == ["namespace"]


def test_custom_tool_is_native_only_where_the_target_has_them() -> None:  # M124
    tool = Tool(
        name="apply_patch", kind="custom", description="d", grammar=Grammar("lark", "start: x")
    )
    call = Call(call_id="a", name="apply_patch", kind="custom", input="*** ")
    request = foreign(
        turn("assistant", call),
        turn("tool", RESULT),
        tools=(tool,),
        tool_choice=ToolChoice(mode="tool", tool=ToolRef("apply_patch", "custom")),
    )
    native = encode(request, target=OPENAI)
    assert native["tools"] == [
        {
            "type": "custom",
            "custom": {
                "name": "apply_patch",
                "description": "d",
                "format": {
                    "type": "grammar",
                    "grammar": {"syntax": "lark", "definition": "start: x"},
                },
            },
        }
    ]
    assert native["tool_choice"] == {"type": "custom", "custom": {"name": "apply_patch"}}
    assert native["messages"][0]["tool_calls"][0]["custom"]["input"] == "*** "  # type: ignore[index]
    encoded = encode_request(request)
    body = json.loads(encoded.body)
    (function,) = (each["function"] for each in body["tools"])
    assert list(function["parameters"]["properties"]) == ["input"]
    assert "start: x" in function["description"]
    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == '{"input":"*** "}'
    assert body["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}
    assert encoded.names.customs == {"apply_patch"}
    assert set(codes(encoded)) == {"custom_tool"}


def test_builtin_tools_without_a_peer_are_dropped_or_refused() -> None:
    tools = (
        Tool(name="web_search", kind="web_search", variant="web_search"),
        Tool(name="f", schema=SCHEMA),
    )
    request = foreign(
        tools=tools, tool_choice=ToolChoice(mode="tool", tool=ToolRef("web_search", "web_search"))
    )
    encoded = encode_request(request)
    body = json.loads(encoded.body)
    assert [each["function"]["name"] for each in body["tools"]] == ["f"]
    assert body["tool_choice"] == "auto"
    assert codes(encoded) == ["builtin_tool", "tool_choice"]
    with pytest.raises(RequestRefused):
        encode_request(request, policy={"builtin_tool": "refuse"})


def test_web_search_has_a_peer_where_the_target_says_so() -> None:
    tools = (Tool(name="web_search", kind="web_search", variant="web_search"),)
    body = encode(foreign(tools=tools), target=OPENAI)
    assert body["web_search_options"] == {}
    assert "tools" not in body


def test_client_run_builtin_with_a_schema_becomes_a_function() -> None:
    tools = (
        Tool(name="tool_search", kind="tool_search", schema=SCHEMA),
        Tool(name="shell", kind="local_shell"),
    )
    choice = ToolChoice(mode="tool", tool=ToolRef("tool_search", "tool_search"))
    call = Call(call_id="a", name="tool_search", kind="tool_search", input="{}")
    encoded = encode_request(
        foreign(turn("assistant", call), turn("tool", RESULT), tools=tools, tool_choice=choice)
    )
    body = json.loads(encoded.body)
    assert [each["function"]["name"] for each in body["tools"]] == ["tool_search"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "tool_search"}}
    assert codes(encoded) == ["call_kind", "call_kind", "builtin_tool"]


def test_call_without_a_name_of_its_own_is_named_for_its_kind() -> None:
    call = Call(call_id="a", name="", kind="local_shell", input="{}")
    written = messages(foreign(turn("assistant", call), turn("tool", RESULT)))
    assert written[0]["tool_calls"][0]["function"]["name"] == "local_shell"  # type: ignore[index]


def test_allowed_subset_is_all_that_is_sent() -> None:
    tools = (Tool(name="f", schema=SCHEMA), Tool(name="g", schema=SCHEMA))
    for required, word in ((True, "required"), (False, "auto")):
        choice = ToolChoice(mode="allowed", allowed=(ToolRef("g"),), required=required)
        body = encode(foreign(tools=tools, tool_choice=choice))
        assert [each["function"]["name"] for each in body["tools"]] == ["g"]  # type: ignore[attr-defined]
        assert body["tool_choice"] == word


def test_choice_none_keeps_the_tools() -> None:  # M110
    body = encode(
        foreign(tools=(Tool(name="f", schema=SCHEMA),), tool_choice=ToolChoice(mode="none"))
    )
    assert body["tool_choice"] == "none"
    assert len(body["tools"]) == 1  # type: ignore[arg-type]


def test_choice_without_its_tool_is_free() -> None:
    request = foreign(tools=(Tool(name="f", schema=SCHEMA),), tool_choice=ToolChoice(mode="tool"))
    assert encode(request)["tool_choice"] == "auto"


def test_schema_is_fixed_and_the_change_declared() -> None:  # M121
    schema = Raw(b'{"$schema":"x","type":"object","properties":{"ref":{"type":"string"}}}')
    encoded = encode_request(foreign(tools=(Tool(name="f", schema=schema), Tool(name="g"))))
    first, second = (each["function"]["parameters"] for each in json.loads(encoded.body)["tools"])
    assert first == {"type": "object", "properties": {"ref": {"type": "string"}}}
    assert second == {"type": "object", "properties": {}}
    assert codes(encoded) == ["schema"]


def test_strict_is_said_only_where_it_is_known() -> None:  # M118
    closed = Raw(b'{"type":"object","properties":{},"additionalProperties":false}')
    request = foreign(
        tools=(
            Tool(name="f", schema=closed, strict=True),
            Tool(name="g", schema=SCHEMA, strict=True),
        )
    )
    first, second = (each["function"] for each in tools_of(request))
    assert (first["strict"], second["strict"]) == (True, False)  # type: ignore[index]
    deaf = encode_request(request, replace(DEFAULT_TARGET, strict=False))
    assert b"strict" not in deaf.body
    assert codes(deaf) == ["schema", "schema"]


def test_tool_offered_twice_is_sent_once() -> None:
    tools = (Tool(name="f", schema=SCHEMA), Tool(name="f", schema=SCHEMA, place="input"))
    encoded = encode_request(foreign(tools=tools))
    assert len(json.loads(encoded.body)["tools"]) == 1
    assert [repair.rule for repair in encoded.repairs] == ["duplicate_tool"]


def test_every_code_that_is_used_is_in_the_table() -> None:
    assert all(
        rule.meaning and rule.action in ("refuse", "carry", "drop") for rule in LOSSES.values()
    )
