"""Requests as the ChatGPT Codex backend takes them: what is added, what is removed, and which losses are reported."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import RequestRefused
from dragoman.model.outcome import Loss, Repair
from dragoman.model.parts import Dialect
from dragoman.upstream.chatgpt_codex.request import (
    DEFAULT_INSTRUCTIONS,
    PreparedRequest,
    shape_request,
)

USER = {"type": "message", "role": "user", "content": "hi"}
SEALED = "reasoning.encrypted_content"


def shaped(
    body: dict[str, Any], door: Dialect = "responses", **policy: Any
) -> tuple[dict[str, Any], PreparedRequest]:
    done = shape_request(json.dumps(body).encode(), door=door, policy=policy)
    return json.loads(done.body), done


def request(**more: Any) -> dict[str, Any]:
    return {"model": "gpt-5.5", "instructions": "Be brief.", "input": [USER], **more}


def test_what_the_backend_demands_is_there() -> None:
    body, done = shaped(request())
    assert body == {**request(), "stream": True, "store": False, "include": [SEALED]}
    assert (done.losses, done.repairs) == ((), ())


def test_a_request_as_codex_sends_it_keeps_every_byte() -> None:
    sent = (
        b'{ "model":"gpt-5.5", "instructions":"x", "stream":true,"input":[ {"role":"user","content":"1.0"} ],'
        b'"tools":[{"type":"custom","name":"apply_patch"}],"tool_choice":"auto","parallel_tool_calls":true,'
        b'"reasoning":{"effort":"medium"},"store":false,"include":["reasoning.encrypted_content"],'
        b'"prompt_cache_key":"k","text":{"verbosity":"low"},"service_tier":"priority","client_metadata":{"a":1.0}}'
    )
    assert shape_request(sent, door="responses") == PreparedRequest(sent)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.2),
        ("top_p", 1),
        ("max_output_tokens", 100),
        ("max_tool_calls", 3),
        ("top_logprobs", 2),
        ("truncation", "auto"),
        ("metadata", {"a": "b"}),
        ("user", "someone"),
        ("safety_identifier", "x"),
        ("service_tier", "flex"),
        ("prompt_cache_retention", "24h"),
        ("stream_options", {"include_obfuscation": False}),
        ("something_new", [1]),
    ],
)
def test_a_parameter_it_refuses_goes_and_is_reported(name: str, value: object) -> None:
    body, done = shaped(request(**{name: value}))
    assert name not in body
    assert done.losses == (Loss("unsupported_parameter", name, "drop"),)
    with pytest.raises(RequestRefused, match=name):
        shaped(request(**{name: value}), unsupported_parameter="refuse")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", None),
        ("background", False),
        ("truncation", "disabled"),
        ("metadata", {}),
        ("service_tier", "auto"),
        ("previous_response_id", None),
    ],
)
def test_what_says_nothing_goes_without_a_word(name: str, value: object) -> None:
    body, done = shaped(request(**{name: value}))
    assert name not in body
    assert done.losses == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("previous_response_id", "resp_1"),
        ("conversation", "conv_1"),
        ("prompt", {"id": "pmpt_1"}),
        ("background", True),
    ],
)
def test_what_needs_kept_state_is_refused_and_named(name: str, value: object) -> None:
    with pytest.raises(RequestRefused) as caught:
        shaped(request(**{name: value}))
    assert (caught.value.param, caught.value.code) == (name, "server_state")
    body, done = shaped(request(**{name: value}), server_state="drop")
    assert name not in body
    assert done.losses == (Loss("server_state", name, "drop"),)


def test_a_reference_to_a_kept_item_is_refused() -> None:
    items = [USER, {"type": "item_reference", "id": "msg_1"}]
    with pytest.raises(RequestRefused) as caught:
        shaped(request(input=items))
    assert caught.value.param == "input[1]"
    body, _ = shaped(request(input=items), server_state="drop")
    assert body["input"] == [USER]


def test_storing_that_was_asked_for_is_reported() -> None:
    body, done = shaped(request(store=True))
    assert body["store"] is False
    assert [(loss.code, loss.where) for loss in done.losses] == [("unsupported_parameter", "store")]


@pytest.mark.parametrize(
    ("door", "name"), [("chat", "max_tokens"), ("messages", "max_tokens"), ("responses", "max_output_tokens")]
)  # fmt: skip
def test_a_parameter_is_called_as_the_client_calls_it(door: Dialect, name: str) -> None:
    _, done = shaped(request(max_output_tokens=5), door)
    assert done.losses[0].where == name


def test_a_string_of_input_becomes_a_message() -> None:
    body, done = shaped(request(input='say "hi"'))
    content = [{"type": "input_text", "text": 'say "hi"'}]
    assert body["input"] == [{"type": "message", "role": "user", "content": content}]
    assert done.repairs == ()


def test_input_of_another_type_is_refused() -> None:
    with pytest.raises(RequestRefused, match="input: expected"):
        shaped(request(input={"role": "user"}))


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize(
    "content",
    ["Be brief.", [{"type": "input_text", "text": "Be brief."}]],
)
def test_missing_instructions_are_the_first_message(role: str, content: object) -> None:
    first = {"type": "message", "role": role, "content": content}
    body, done = shaped({"model": "m", "input": [first, USER]})
    assert body["instructions"] == "Be brief."
    assert body["input"] == [USER]
    assert done.repairs == (Repair("leading_instructions", "input[0]"),)


@pytest.mark.parametrize("instructions", [{}, {"instructions": ""}, {"instructions": None}])
@pytest.mark.parametrize(
    "first",
    [
        {"role": "developer", "content": [{"type": "input_image", "image_url": "data:,"}]},
        {"role": "developer", "content": []},
        {"role": "system", "content": " "},
        USER,
    ],
)
def test_instructions_that_nobody_gave_are_a_plain_sentence(
    first: dict[str, Any], instructions: dict[str, Any]
) -> None:
    body, done = shaped({"model": "m", "input": [first, USER], **instructions})
    assert body["instructions"] == DEFAULT_INSTRUCTIONS
    assert len(body["input"]) == 2
    assert Repair("default_instructions", "instructions") in done.repairs


def test_later_system_messages_are_developer_messages() -> None:
    system = {"role": "system", "content": "Now in French."}
    body, done = shaped(request(input=[USER, system]))
    assert body["input"] == [USER, {"role": "developer", "content": "Now in French."}]
    assert done.repairs == (Repair("developer_role", "input[1]"),)


def test_the_word_system_in_other_places_changes_nothing() -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "system"}]},
        {"type": "function_call_output", "call_id": "c", "output": '"system"', "role": "system"},
    ]
    body, done = shaped(request(input=items))
    assert body["input"] == items
    assert done.repairs == ()


def test_reasoning_that_is_not_sealed_loses_the_id_that_would_be_looked_up() -> None:
    sealed: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "ENC",
    }
    bare: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs_2",
        "summary": [],
        "encrypted_content": None,
    }
    body, done = shaped(request(input=[sealed, bare, USER]))
    assert body["input"][0] == sealed
    assert "id" not in body["input"][1]
    assert done.repairs == (Repair("reasoning_without_id", "input[1]"),)


def test_sealed_reasoning_is_asked_for_where_it_can_come_back() -> None:
    assert shaped(request(include=["x"]))[0]["include"] == ["x", SEALED]
    assert "include" not in shaped(request(), "chat")[0]
    assert shaped(request(reasoning={"effort": "low"}), "chat")[0]["include"] == [SEALED]
    assert shaped(request(include="x"))[0]["include"] == "x"


NAMES = st.sampled_from(
    ["model", "input", "instructions", "tools", "include", "store", "stream", "temperature", "x", "background"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES))
def test_whatever_comes_is_shaped_or_refused(body: dict[str, Any]) -> None:
    try:
        done, _ = shaped(body)
    except RequestRefused:
        return
    assert done["stream"] is True
    assert done["store"] is False
    assert isinstance(done["input"], list)
    assert done["instructions"].strip()
    assert not {"temperature", "x", "background"} & done.keys()
