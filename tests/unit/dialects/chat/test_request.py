"""Requests of this dialect: what is read, what is refused, what comes back."""

import json

import pytest
from msgspec.structs import replace

from chat_requests import (
    CACHE,
    HELLO,
    OPENAI,
    ask,
    codes,
    decode,
    decode_turns,
    encode,
    foreign,
    messages,
)
from dragoman.core.pairing import ERROR_MARK
from dragoman.dialects.chat import (
    DEFAULT_TARGET,
    decode_request,
    encode_request,
)
from dragoman.errors import RequestRefused
from dragoman.model.parts import (
    Breakpoint,
    Call,
    Media,
    Opaque,
    Reasoning,
    Result,
    Seal,
    Text,
)
from dragoman.model.request import (
    CacheSettings,
    Grammar,
    Request,
    ToolChoice,
    ToolRef,
    Turn,
)

EMPTY: dict[str, object] = {}
NONE: list[object] = []

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
    legacy: dict[str, object] = {
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
    functions: list[object] = [{"name": "f", "parameters": {"type": "object", "properties": {}}}]
    assert encode(decode(functions=functions, function_call="none"))["function_call"] == "none"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}, "a"),
        ({"messages": [{"role": "user", "content": NONE}]}, ""),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "a"),
        ({"messages": [{"role": "user"}]}, ""),
        ({"messages": [{"role": "assistant"}]}, ""),
    ],
)
def test_content_is_normalised(given: dict[str, object], written: object) -> None:
    assert messages(decode(**given))[0]["content"] == written


def test_normalisations_are_as_listed() -> None:
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
    assert [each["function"]["arguments"] for each in calls] == ['{"x": 1.0}', "{}"]


def test_flat_tools_and_choices_get_the_nested_form() -> None:
    flat: dict[str, object] = {
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


def test_the_limit_goes_by_the_name_that_the_target_reads() -> None:
    newer = replace(DEFAULT_TARGET, max_tokens_field="max_completion_tokens")
    body = encode(decode(max_tokens=5), newer)
    assert (body["max_completion_tokens"], "max_tokens" in body) == (5, False)
    body = encode(foreign(max_tokens=5), newer)
    assert (body["max_completion_tokens"], "max_tokens" in body) == (5, False)
    assert encode(decode(max_completion_tokens=5))["max_completion_tokens"] == 5
    assert "max_completion_tokens" not in encode(decode(), newer)


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
    assert encode(decode(messages=turns))["messages"][2]["content"] == content


def test_breakpoint_of_a_message_wins_over_that_of_its_last_part() -> None:  # M164
    part = {"type": "text", "text": "a", "cache_control": {"type": "other"}}
    (found,) = decode_turns({"role": "user", "content": [part], "cache_control": CACHE})
    assert found.cache == Breakpoint(alone=True)
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
    assert result.cache == Breakpoint(alone=True)


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


def test_answer_sent_back_as_it_came_is_passed_on_as_it_came() -> None:
    answer = {
        "role": "assistant",
        "content": "a",
        "annotations": [{"type": "url_citation"}],
        "images": [{"type": "image_url", "image_url": {"url": "u"}}],
        "audio": {"id": "audio_1", "transcript": "a", "expires_at": 9},
    }
    user = {"role": "user", "content": "b", "reasoning": "not mine", "tool_calls": "odd"}
    assert encode(decode(messages=[answer, user]))["messages"] == [answer, user]


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
        {"type": "later"},
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
        (ask(messages=[{"role": "user", "content": [EMPTY]}]), "messages[0].content[0].type"),
        (
            ask(messages=[{"role": "user", "content": [{"type": "text"}]}]),
            "messages[0].content[0].text",
        ),
        (ask(metadata="x"), "metadata"),
        (ask(logit_bias=[1]), "logit_bias"),
        (ask(messages=[{"role": "user", "name": 3}]), "messages[0].name"),
        (ask(messages=[{"role": "assistant", "tool_calls": 3}]), "messages[0].tool_calls"),
        (ask(messages=[{"role": "assistant", "tool_calls": [3]}]), "messages[0].tool_calls[0]"),
        (
            ask(messages=[{"role": "assistant", "tool_calls": [EMPTY]}]),
            "messages[0].tool_calls[0].function.name",
        ),
        (
            ask(messages=[{"role": "assistant", "function_call": EMPTY}]),
            "messages[0].function_call.name",
        ),
        (ask(tools=3), "tools"),
        (ask(tools=[3]), "tools[0]"),
        (ask(tools=[{"type": "function"}]), "tools[0].function.name"),
        (
            ask(tools=[{"type": "function", "function": {"name": "f", "parameters": NONE}}]),
            "tools[0].function.parameters",
        ),
        (ask(tools=[{"type": "custom", "custom": EMPTY}]), "tools[0].custom.name"),
        (ask(functions=[EMPTY]), "functions[0].name"),
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


def test_stop_may_be_a_word() -> None:
    assert decode(stop="x").stop == ("x",)


def test_breakpoint_on_a_picture_comes_back() -> None:
    part = {"type": "image_url", "image_url": {"url": "u"}, "cache_control": CACHE}
    assert messages(decode(messages=[{"role": "user", "content": [part]}]))[0]["content"] == [part]


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


def test_the_settings_of_the_cache_are_the_requests() -> None:
    stated = {"prompt_cache_options": {"mode": "explicit"}, "prompt_cache_retention": "24h"}
    request = decode(**stated)
    assert request.cache == CacheSettings(mode="explicit", retention="24h")
    assert {name: encode(request)[name] for name in stated} == stated


def test_of_two_breakpoints_on_one_part_both_survive() -> None:
    part = {
        "type": "text",
        "text": "a",
        "cache_control": CACHE,
        "prompt_cache_breakpoint": {"mode": "explicit"},
    }
    request = decode(messages=[{"role": "user", "content": [part]}])
    assert encode(request)["messages"][0]["content"] == [part]


def test_a_session_is_a_key_only_where_the_target_wants_one_and_the_client_states_none() -> None:
    helped = replace(DEFAULT_TARGET, cache=True)
    request = Request(model="m", turns=(Turn(role="user", parts=(Text(text="a"),)),), session="s")
    assert "prompt_cache_key" not in encode(request)
    assert encode(request, helped)["prompt_cache_key"] == "s"
    assert encode(replace(request, cache_key="k"), helped)["prompt_cache_key"] == "k"


def test_merged_messages_keep_the_sealed_reasoning_of_each() -> None:
    seals = [{"type": "reasoning.encrypted", "data": each} for each in ("one", "two")]
    said = [
        {"role": "assistant", "content": each["data"], "reasoning_details": [each]}
        for each in seals
    ]
    [_, merged] = messages(decode(messages=[HELLO, *said]))
    assert merged["reasoning_details"] == seals


def test_results_of_merged_legacy_calls_refer_to_their_ids() -> None:
    calls = [
        {"role": "assistant", "content": None, "function_call": {"name": each, "arguments": "{}"}}
        for each in "fg"
    ]
    results = [{"role": "function", "name": each, "content": each} for each in "fg"]
    body = encode(decode(messages=[HELLO, *calls, *results]))
    _, merged, *answers = body["messages"]
    ids = {call["id"]: call["function"]["name"] for call in merged["tool_calls"]}
    assert [(ids[each["tool_call_id"]], each["content"]) for each in answers] == [
        ("f", "f"),
        ("g", "g"),
    ]
