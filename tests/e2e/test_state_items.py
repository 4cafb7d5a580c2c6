"""Items that a request only refers to come from the store, for every upstream; a missing item is an error."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from gateway_harness import DIALECTS
from heard import HeardCall, HeardResult, Spoken, hear
from plain_http import ask
from sdk_clients import openai_client
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "name": "get_weather", "description": "d", "parameters": SCHEMA}]
CALL = Tool("call_1", "get_weather", ('{"city":', '"Paris"}'))
CALLING = Answer((Said(("Let me ", "look.")), CALL))
DONE = Answer((Said(("It is ", "sunny.")),))
HEADERS = {"authorization": "Bearer key-of-the-client"}

dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
streams = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


def respond(stage: Stage, *, stream: bool = False, **given: Any) -> Any:
    answer = openai_client(stage.url).responses.create(stream=stream, **given)
    return list(answer)[-1].response if stream else answer


def referred(response: Any, *, typed: bool = True) -> list[dict[str, str]]:
    kind = {"type": "item_reference"} if typed else {}
    return [{**kind, "id": item.id} for item in response.output]


@streams
@dialects
def test_items_of_a_response_are_heard_where_they_are_referred_to(
    stage: Stage, dialect: str, stream: bool
) -> None:
    scene = stage.scene(dialect, CALLING, DONE)
    given: dict[str, Any] = {"model": scene.model, "tools": TOOLS, "stream": stream}
    first = respond(stage, input="How is the weather?", **given)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    asked = [{"role": "user", "content": "How is the weather?"}, *referred(first), output]
    second = respond(stage, input=asked, **given)
    assert second.output_text == "It is sunny."
    heard = hear(dialect, scene.requests[1].body)
    assert [turn for turn in heard.turns if not isinstance(turn, HeardCall)] == [
        Spoken("user", "How is the weather?"),
        Spoken("assistant", "Let me look."),
        HeardResult("call_1", "sunny"),
    ]
    assert [turn.call_id for turn in heard.turns if isinstance(turn, HeardCall)] == ["call_1"]
    assert b"item_reference" not in scene.requests[1].body
    # What was referred to is part of what is kept.
    client = openai_client(stage.url)
    items = list(client.responses.input_items.list(second.id, order="asc"))
    assert [item.type for item in items] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
    ]


def test_the_ai_sdk_refers_in_the_order_of_its_steps(stage: Stage) -> None:
    """As @ai-sdk/openai writes the second step of a tool loop: bare references, `input_text` parts, `store` unsaid."""
    scene = stage.scene("chat", CALLING, DONE)
    first = respond(stage, model=scene.model, tools=TOOLS, input="How is the weather?", stream=True)
    body = {
        "model": scene.model,
        "input": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "input_text", "text": "How is the weather?"}]},
            *referred(first),
            {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        ],
        "tools": TOOLS,
        "tool_choice": "auto",
        "stream": True,
    }
    found = ask(stage.url, "responses", body, HEADERS)
    assert b"response.completed" in found.content
    heard = hear("chat", scene.requests[1].body)
    spoken = [turn.text for turn in heard.turns if isinstance(turn, Spoken)]
    assert "How is the weather?" in spoken
    assert "Let me look." in spoken


def test_a_reference_may_leave_out_its_type(stage: Stage) -> None:
    scene = stage.scene("messages", DONE, DONE)
    first = respond(stage, model=scene.model, input="hi")
    asked = [{"role": "user", "content": "hi"}, *referred(first, typed=False)]
    respond(stage, model=scene.model, input=[*asked, {"role": "user", "content": "and?"}])
    heard = hear("messages", scene.requests[1].body)
    assert Spoken("assistant", "It is sunny.") in heard.turns


@streams
def test_items_that_an_upstream_named_are_found_over_another(stream: bool) -> None:
    """The answer passed with the upstream's own ids; the next request goes elsewhere."""
    with running_stage() as stage:
        there, here = stage.scene("responses", CALLING), stage.scene("chat", DONE)
        first = respond(stage, model=there.model, tools=TOOLS, input="hi", stream=stream)
        assert not first.id.startswith("resp_dgm")
        output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
        asked: list[Any] = [{"role": "user", "content": "hi"}, *referred(first), output]
        assert respond(stage, model=here.model, input=asked).output_text == "It is sunny."
    heard = hear("chat", here.requests[0].body)
    assert [turn.call_id for turn in heard.turns if isinstance(turn, HeardCall)] == ["call_1"]


def test_an_upstream_that_keeps_responses_is_asked_by_its_own_references() -> None:
    keeping = {"kind": "responses", "keeps_responses": True}
    with running_stage(upstreams={"keeping": keeping}) as stage:
        scene = stage.scene("responses", CALLING, DONE, route="keeping")
        first = respond(stage, model=scene.model, tools=TOOLS, input="hi")
        respond(
            stage, model=scene.model, input=[{"role": "user", "content": "hi"}, *referred(first)]
        )
        assert b"item_reference" in scene.requests[1].body


@pytest.mark.parametrize("item_id", ["msg_unknown", "fc_dgm" + "0" * 26])
def test_an_item_that_nobody_knows_is_refused(stage: Stage, item_id: str) -> None:
    scene = stage.scene("chat", DONE)
    with pytest.raises(openai.NotFoundError) as caught:
        respond(stage, model=scene.model, input=[{"type": "item_reference", "id": item_id}])
    assert f"Item with id '{item_id}' not found." in str(caught.value)
    assert caught.value.param == "input"
    assert scene.requests == []


def test_an_item_that_nobody_knows_may_be_known_to_an_upstream_with_responses(stage: Stage) -> None:
    scene = stage.scene("responses", DONE)
    respond(stage, model=scene.model, input=[{"type": "item_reference", "id": "msg_theirs"}])
    assert b"msg_theirs" in scene.requests[0].body


def test_items_of_one_key_are_unknown_to_another(stage: Stage) -> None:
    scene = stage.scene("chat", DONE, DONE)
    first = respond(stage, model=scene.model, input="hi")
    with pytest.raises(openai.NotFoundError):
        openai_client(stage.url, "another-key").responses.create(
            model=scene.model, input=referred(first)
        )


def test_references_continue_what_goes_on_by_an_id(stage: Stage) -> None:
    scene = stage.scene("chat", DONE, DONE, DONE)
    first = respond(stage, model=scene.model, input="one")
    other = respond(stage, model=scene.model, input="two")
    asked: list[Any] = [*referred(other), {"role": "user", "content": "three"}]
    respond(stage, model=scene.model, input=asked, previous_response_id=first.id)
    spoken = [
        turn.text for turn in hear("chat", scene.requests[2].body).turns if isinstance(turn, Spoken)
    ]
    assert spoken == ["one", "It is sunny.\n\nIt is sunny.", "three"]
