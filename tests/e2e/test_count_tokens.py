"""The counts of tokens at the Responses and Messages doors, over upstreams of every dialect."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.config.settings import ModelLimits, StoreSettings
from dragoman.core.summaries import Packed, pack_summary
from dragoman.testing import json_reply
from plain_http import fetch
from sdk_clients import anthropic_client, openai_client
from stage import Stage, running_stage
from vendor_wire import Answer, Said

Json = dict[str, Any]

TOOL: Json = {"type": "function", "name": "saw", "parameters": {"type": "object"}, "strict": False}
COUNT = {"object": "response.input_tokens", "input_tokens": 2095}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    upstreams: dict[str, Json] = {
        "counting": {"kind": "responses", "count_tokens": "native"},
        "estimating": {"kind": "messages", "count_tokens": "estimate"},
        "small": {"kind": "messages", "limits": ModelLimits(max_tools=4)},
        "rehearsal": {"kind": "rehearsal", "base_url": "", "api_key": None},
    }
    with running_stage(upstreams=upstreams, store=StoreSettings(url="memory:")) as running:
        yield running


def count(stage: Stage, **body: object) -> Any:
    address = f"{stage.url}/v1/responses/input_tokens"
    headers = {"content-type": "application/json"}
    return fetch("POST", address, headers, json.dumps(body).encode())


def test_a_responses_upstream_that_counts_is_asked(stage: Stage) -> None:
    scene = stage.scene("responses", json_reply(COUNT), route="counting")
    counted = openai_client(stage.url).responses.input_tokens.count(
        model=scene.model, input="Build a boat.", tools=[TOOL]
    )
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", 2095)
    assert scene.requests[0].path == "/v1/responses/input_tokens"
    assert scene.heard == {"model": scene.model, "input": "Build a boat.", "tools": [TOOL]}


def test_a_messages_upstream_counts_a_responses_request(stage: Stage) -> None:
    scene = stage.scene("messages", json_reply({"input_tokens": 77}))
    counted = openai_client(stage.url).responses.input_tokens.count(
        model=scene.model, input="Build a boat.", instructions="Be brief.", tools=[TOOL]
    )
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", 77)
    assert scene.requests[0].path == "/v1/messages/count_tokens"
    assert scene.heard.keys() == {"model", "messages", "system", "tools"}


def test_a_responses_upstream_counts_a_messages_request(stage: Stage) -> None:
    scene = stage.scene("responses", json_reply(COUNT), route="counting")
    counted = anthropic_client(stage.url).messages.count_tokens(
        model=scene.model, messages=[{"role": "user", "content": "Build a boat."}], system="S"
    )
    assert counted.input_tokens == 2095
    assert scene.heard.keys() <= {"model", "input", "instructions"}


@pytest.mark.parametrize("route", ["chat", "responses", "estimating"])
def test_a_count_of_the_gateway_is_marked_as_an_estimate(stage: Stage, route: str) -> None:
    scene = stage.scene("chat", route=route)
    short = count(stage, model=scene.model, input="one")
    long = count(stage, model=scene.model, input="many words " * 100, tools=[TOOL])
    for reply in (short, long):
        assert reply.status_code == 200
        assert reply.headers["x-dragoman-estimate"] == "true"
    assert 0 < json.loads(short.content)["input_tokens"] < json.loads(long.content)["input_tokens"]
    assert scene.requests == []


@pytest.mark.parametrize("status", [404, 405])
def test_an_upstream_without_the_endpoint_gets_an_estimate(stage: Stage, status: int) -> None:
    scene = stage.scene("responses", json_reply({"detail": "Not Found"}, status), route="counting")
    assert count(stage, model=scene.model, input="hi").headers["x-dragoman-estimate"] == "true"


@pytest.mark.parametrize("door", ["responses", "messages"])
@pytest.mark.parametrize("route", ["counting", "messages"])
@pytest.mark.parametrize(
    "body", [b"<html>sign in</html>", b"[]", b"{}", b'{"input_tokens":-1}', b'{"input_tokens":1.5}']
)
def test_an_answer_without_a_count_is_replaced_by_an_estimate(
    stage: Stage, door: str, route: str, body: bytes
) -> None:
    dialect = "responses" if route == "counting" else route
    scene = stage.scene(dialect, json_reply(body), route=route)
    if door == "responses":
        reply = count(stage, model=scene.model, input="hi")
    else:
        asked = {"model": scene.model, "messages": [{"role": "user", "content": "hi"}]}
        address = f"{stage.url}/v1/messages/count_tokens"
        headers = {"content-type": "application/json"}
        reply = fetch("POST", address, headers, json.dumps(asked).encode())
    assert (reply.status_code, len(scene.requests)) == (200, 1)
    assert reply.headers["x-dragoman-estimate"] == "true"
    assert json.loads(reply.content)["input_tokens"] > 0


def test_an_error_of_the_count_is_an_error(stage: Stage) -> None:
    reply = json_reply({"error": {"message": "slow down"}}, 429, headers={"retry-after": "3"})
    scene = stage.scene("responses", reply, route="counting")
    answer = count(stage, model=scene.model, input="hi")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert json.loads(answer.content)["error"]["message"] == "slow down"


def test_the_history_of_a_stored_response_is_counted(stage: Stage) -> None:
    scene = stage.scene(
        "messages", Answer((Said(("Hull done.",)),)), json_reply({"input_tokens": 9})
    )
    client = openai_client(stage.url)
    first = client.responses.create(model=scene.model, input="Build a boat.")
    counted = client.responses.input_tokens.count(
        model=scene.model, input="Go.", previous_response_id=first.id
    )
    assert counted.input_tokens == 9
    assert "Hull done." in json.dumps(scene.heard)


def test_a_summary_is_counted_as_the_message_that_it_becomes(stage: Stage) -> None:
    scene = stage.scene("messages", json_reply({"input_tokens": 9}))
    item = {
        "type": "compaction",
        "encrypted_content": pack_summary(Packed(summary="The hull is done.")),
    }
    assert count(stage, model=scene.model, input=[item]).status_code == 200
    assert "The hull is done." in json.dumps(scene.heard)


def test_a_search_is_counted_in_place_of_the_tools_that_it_finds(stage: Stage) -> None:
    tools: list[Json] = [{**TOOL, "name": f"saw_{n}", "defer_loading": True} for n in range(9)]
    search = {"type": "tool_search", "execution": "server"}
    scene = stage.scene("messages", json_reply({"input_tokens": 9}), route="small")
    assert count(stage, model=scene.model, input="hi", tools=[*tools, TOOL, search]).is_success
    assert [tool["name"] for tool in scene.heard["tools"]] == ["saw", "tool_search"]


def test_the_rehearsal_counts(stage: Stage) -> None:
    reply = count(stage, model="rehearsal/any", input="hi")
    body = json.loads(reply.content)
    assert body["object"] == "response.input_tokens"
    assert body["input_tokens"] > 0


def test_a_count_needs_a_model(stage: Stage) -> None:
    reply = count(stage, input="hi")
    assert reply.status_code == 400
    assert json.loads(reply.content)["error"]["param"] == "model"


@pytest.mark.parametrize("policy", ["off", "default"])
def test_a_count_after_an_unknown_response_is_refused(policy: Any) -> None:
    store = StoreSettings(url="memory:", policy=policy)
    with running_stage(store=store) as stage:
        scene = stage.scene("messages")
        reply = count(stage, model=scene.model, input="hi", previous_response_id="resp_unknown")
        assert reply.status_code == 400
        assert json.loads(reply.content)["error"]["code"] == "previous_response_not_found"
        assert scene.requests == []
