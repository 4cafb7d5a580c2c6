"""Everything the vendor's SDK knows has a home: walked over its own types, with every field present.

A type that a newer SDK adds fails here until it is mapped or listed.
"""

import json
from collections.abc import Mapping
from typing import Any, get_args

import openai.types.responses as sdk
import pytest
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ToolChoice,
)
from openai.types.responses.response_output_text import Annotation
from pydantic import TypeAdapter

from dragoman.core.grammar import is_grammatical
from dragoman.dialects.registry import codec
from dragoman.dialects.responses import (
    decode_request,
    encode_request,
    read_body,
)
from dragoman.dialects.responses.events import HANDLERS
from dragoman.dialects.responses.wire import (
    CALL_ITEMS,
    ENVELOPE_FIELDS,
    OPAQUE_ITEMS,
    OPENING_EVENTS,
    PREFIXES,
    PROGRESS_EVENTS,
    RESULT_ITEMS,
    TERMINAL_EVENTS,
    TOOL_KINDS,
)
from dragoman.model.parts import Opaque
from responses_help import (
    Json,
    added,
    body_answer,
    created,
    decode_events,
    done,
    fields_of,
    payloads,
    samples,
    union_members,
    write,
)

CONTENT_PARTS: Mapping[str, str] = {
    "input_audio": "Media",
    "input_file": "Media",
    "input_image": "Media",
    "input_text": "Text",
    "output_text": "Text",
    "reasoning_text": "Reasoning",
    "refusal": "Refusal",
    "summary_text": "Reasoning",
    "text": "Text",
}


encode_body = codec("responses").encode_body

KNOWN_ITEMS = {"message", "reasoning", *CALL_ITEMS, *RESULT_ITEMS, *OPAQUE_ITEMS}

# What an item does not keep, with the reason.
NOT_KEPT = {
    ("reasoning", "status"): "left out of a completed item, as the vendor does",
    (
        "custom_tool_call",
        "status",
    ): "written although the SDK has none: it tells a cut call from a whole one",
}


def types_of(model: Any) -> list[str]:
    hints = fields_of(model)
    if "type" not in hints:
        return ["message"]
    found = [word for part in union_members(hints["type"]) for word in get_args(part)]
    return [word for word in found if isinstance(word, str)]


def fixed_for(kind: str) -> Json:
    return {
        "id": PREFIXES.get(kind, "item_") + "1",
        "arguments": {"a": 1} if kind == "tool_search_call" else '{"a": 1}',
        "encrypted_content": "gAAA",
        "image_url": "https://example.com/a.png",
    }


def cases(union: Any) -> list[Any]:
    """(type, sample) for every member of a union."""
    return [
        pytest.param(kind, sample, id=f"{kind}-{number}")
        for model in union_members(union)
        for kind in types_of(model)[:1]
        for number, sample in enumerate(samples(model, fixed_for(kind)))
    ]


def kept(kind: str, item: Json) -> Json:
    return {key: value for key, value in item.items() if (kind, key) not in NOT_KEPT}


EVENTS = [
    pytest.param(kind, model, id=kind)
    for model in union_members(sdk.ResponseStreamEvent)
    for kind in types_of(model)
]


@pytest.mark.parametrize(("kind", "model"), EVENTS)
def test_every_event_is_mapped_or_listed(kind: str, model: Any) -> None:
    assert kind in HANDLERS or kind in OPENING_EVENTS or kind in TERMINAL_EVENTS


@pytest.mark.parametrize(("kind", "model"), EVENTS)
def test_every_field_of_every_event_is_known(kind: str, model: Any) -> None:
    names = {field.alias or name for name, field in model.model_fields.items()}
    # What a progress event has beyond its place rides in `extra`.
    assert kind in PROGRESS_EVENTS or names <= ENVELOPE_FIELDS


def test_every_event_between_beginning_and_end_has_a_handler() -> None:
    ends = {"error", "response.created", "response.in_progress", "response.queued"}
    ends |= {"response.completed", "response.failed", "response.incomplete"}
    known = {kind for param in EVENTS for kind in [str(param.values[0])]}
    assert known - ends <= set(HANDLERS)


@pytest.mark.parametrize(("kind", "item"), cases(sdk.ResponseOutputItem))
def test_every_output_item_comes_back_from_a_body_with_every_field(kind: str, item: Json) -> None:
    assert kind in KNOWN_ITEMS
    body: Json = {"id": "resp_1", "object": "response", "status": "completed", "output": [item]}
    step = read_body(json.dumps(body).encode())
    assert is_grammatical(step.events)
    output = json.loads(encode_body(step.events))["output"]
    assert [kept(kind, one) for one in output] == [kept(kind, item)]


@pytest.mark.parametrize(("kind", "item"), cases(sdk.ResponseOutputItem))
def test_every_output_item_comes_back_from_a_stream_and_is_valid(kind: str, item: Json) -> None:
    final = {"id": "resp_1", "status": "completed", "output": [item]}
    events = decode_events(
        [
            created(),
            added(item),
            done(item),
            {"type": "response.completed", "response": final},
        ]
    )
    written = payloads(write(events))
    output = written[-1]["response"]["output"]
    assert [kept(kind, one) for one in output] == [kept(kind, item)]
    adapter = TypeAdapter[Any](sdk.ResponseStreamEvent)
    for payload in written:
        adapter.validate_json(json.dumps(payload), strict=True)


@pytest.mark.parametrize(("kind", "item"), cases(sdk.ResponseItem))
def test_every_stored_item_is_known(kind: str, item: Json) -> None:
    assert kind in KNOWN_ITEMS


@pytest.mark.parametrize(("kind", "item"), cases(sdk.ResponseInputItemParam))
def test_every_input_item_comes_back_with_every_field(kind: str, item: Json) -> None:
    assert kind in KNOWN_ITEMS
    # The provider is said to hold earlier turns, so a result without its call is no orphan.
    body: Json = {"model": "m", "input": [item], "previous_response_id": "resp_0"}
    encoded = encode_request(decode_request(json.dumps(body).encode()))
    assert json.loads(encoded.body)["input"][0] == item
    assert encoded.losses == ()


@pytest.mark.parametrize("tool", samples(sdk.ToolParam, {}), ids=lambda tool: str(tool["type"]))
def test_every_tool_comes_back_with_every_field(tool: Json) -> None:
    assert tool["type"] in {"function", "custom", "namespace", *TOOL_KINDS}
    body: Json = {"model": "m", "input": [], "tools": [tool]}
    encoded = encode_request(decode_request(json.dumps(body).encode()))
    assert json.loads(encoded.body)["tools"] == [tool]
    assert encoded.losses == ()


def test_every_type_of_tool_is_known() -> None:
    words = {kind for model in union_members(sdk.Tool) for kind in types_of(model)}
    assert words <= {"function", "custom", "namespace", *TOOL_KINDS}


MIXED = [{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "docs"}]


@pytest.mark.parametrize("choice", samples(ToolChoice, {"tools": MIXED}), ids=str)
def test_every_tool_choice_comes_back(choice: Any) -> None:
    body: Json = {"model": "m", "input": [], "tool_choice": choice}
    encoded = encode_request(decode_request(json.dumps(body).encode()))
    assert json.loads(encoded.body)["tool_choice"] == choice


def test_every_hosted_tool_choice_is_known() -> None:
    for model in union_members(ToolChoice):
        if model is not get_args(ToolChoice)[0]:
            assert set(types_of(model)) <= {"function", "custom", "allowed_tools", *TOOL_KINDS}


@pytest.mark.parametrize(
    "body",
    samples(
        ResponseCreateParamsNonStreaming,
        {"input": [], "tools": [{"type": "local_shell"}], "tool_choice": "auto"},
    ),
    ids=lambda body: str(len(json.dumps(body))),
)
def test_every_parameter_of_a_request_comes_back(body: Json) -> None:
    encoded = encode_request(decode_request(json.dumps(body).encode()))
    assert json.loads(encoded.body) == body
    assert encoded.losses == ()


@pytest.mark.parametrize(
    "response",
    samples(
        sdk.Response,
        {"id": "resp_1", "created_at": 1, "output": [], "error": None, "incomplete_details": None},
    ),
    ids=lambda response: str(len(json.dumps(response))),
)
def test_every_field_of_a_response_comes_back(response: Json) -> None:
    step = read_body(json.dumps(response).encode())
    assert step.problems == ()
    # The SDK does not know these fields of Open Responses.
    demanded = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "store": True}
    assert json.loads(encode_body(step.events)) == {**demanded, **response}


def test_every_content_part_of_an_answer_is_known() -> None:
    added_parts = sdk.ResponseContentPartAddedEvent.model_fields["part"].annotation
    words = {kind for model in union_members(added_parts) for kind in types_of(model)}
    inputs = {
        kind for model in union_members(sdk.ResponseInputContentParam) for kind in types_of(model)
    }
    outputs = {
        kind
        for model in union_members(sdk.ResponseFunctionCallOutputItemParam)
        for kind in types_of(model)
    }
    assert words | inputs | outputs <= set(CONTENT_PARTS)


@pytest.mark.parametrize("annotation", samples(Annotation, {}), ids=lambda one: str(one["type"]))
def test_every_annotation_comes_back(annotation: Json) -> None:
    part: Json = {"type": "output_text", "text": "x", "annotations": [annotation], "logprobs": []}
    item: Json = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    body: Json = {"id": "resp_1", "object": "response", "output": [{**item, "content": [part]}]}
    step = read_body(json.dumps(body).encode())
    assert json.loads(encode_body(step.events))["output"][0]["content"] == [part]


@pytest.mark.parametrize("kind", sorted(OPAQUE_ITEMS))
def test_listed_items_are_carried_whole(kind: str) -> None:
    item: Json = {"type": kind, "id": "item_1", "anything": [1, {"x": None}]}
    outcome = body_answer({"id": "resp_1", "object": "response", "output": [item]})
    (part,) = outcome.choices[0].parts
    assert isinstance(part, Opaque)
    assert json.loads(bytes(part.raw)) == item
