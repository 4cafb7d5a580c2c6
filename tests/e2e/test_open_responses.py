"""The checks of the official Open Responses suite, against a gateway on loopback over the rehearsal.

The requests are those of the suite, and so is the judgement: the whole answer, and every event of a stream, validates against
the schema of Open Responses, and the answer is complete and has what the request was for.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from doors import payloads
from dragoman.config.settings import ServerSettings, Settings, StoreSettings, UpstreamSettings
from gateway_harness import RunningGateway, connection, running_gateway
from vendor_schemas import event_schemas, violations
from websocket_client import SocketClient, socket_client

Json = dict[str, Any]

VENDOR = "Open Responses"
MODEL = "rehearsal"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5"
    "ErkJggg=="
)
WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city and state"}},
        "required": ["location"],
    },
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    settings = Settings(
        server=ServerSettings(shutdown_grace=0.3),
        store=StoreSettings(url="memory:"),
        upstreams={"rehearsal": UpstreamSettings(kind="rehearsal")},
    )
    with running_gateway(settings) as running:
        yield running


def said(role: str, content: object, **more: object) -> Json:
    return {"type": "message", "role": role, "content": content, **more}


def post(gateway: RunningGateway, **fields: object) -> tuple[int, bytes]:
    return send(gateway, "/v1/responses", fields)


def send(gateway: RunningGateway, path: str, fields: Json) -> tuple[int, bytes]:
    with connection(gateway) as client:
        headers = {"content-type": "application/json", "authorization": "Bearer any"}
        client.request("POST", path, json.dumps(fields), headers)
        response = client.getresponse()
        return response.status, response.read()


def answer(gateway: RunningGateway, *messages: Json, **fields: object) -> Json:
    """The response to these messages, which is valid and complete."""
    status, body = post(gateway, model=MODEL, input=messages, **fields)
    assert status == 200, body
    response: Json = json.loads(body)
    assert violations(VENDOR, "ResponseResource", response) == set()
    assert response["status"] == "completed"
    assert response["output"]
    return response


def kinds(response: Json) -> list[str]:
    return [item["type"] for item in response["output"]]


def completed(events: list[Json]) -> Json:
    """The response of a stream, whose events are valid and in order."""
    schemas = event_schemas(VENDOR)
    found = {line for event in events for line in violations(VENDOR, schemas[event["type"]], event)}
    assert found == set()
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    response: Json = events[-1]["response"]
    assert response["status"] == "completed"
    return response


def test_basic_response(gateway: RunningGateway) -> None:
    response = answer(gateway, said("user", "Say hello in exactly 3 words."))
    assert kinds(response) == ["message"]


def test_assistant_phase(gateway: RunningGateway) -> None:
    answer(
        gateway,
        said("assistant", "I should answer with the saved number.", phase="commentary"),
        said("assistant", "The number is four.", phase="final_answer"),
        said("user", "Repeat only the number."),
    )


def test_streaming_response(gateway: RunningGateway) -> None:
    status, stream = post(
        gateway, model=MODEL, input=[said("user", "Count from 1 to 5.")], stream=True
    )
    assert status == 200
    response = completed([payload for _, payload in payloads(stream)])
    assert kinds(response) == ["message"]


def test_system_prompt(gateway: RunningGateway) -> None:
    answer(
        gateway,
        said("system", "You are a pirate. Always respond in pirate speak."),
        said("user", "Say hello."),
    )


def test_tool_calling(gateway: RunningGateway) -> None:
    question = said("user", "What's the weather like in San Francisco?")
    response = answer(gateway, question, tools=[WEATHER])
    assert "function_call" in kinds(response)
    (tool,) = response["tools"]
    assert {**tool, **WEATHER} == tool


def test_image_input(gateway: RunningGateway) -> None:
    content = [
        {"type": "input_text", "text": "What do you see in this image? Answer in one sentence."},
        {"type": "input_image", "image_url": PIXEL},
    ]
    answer(gateway, said("user", content))


def test_multi_turn(gateway: RunningGateway) -> None:
    answer(
        gateway,
        said("user", "My name is Alice."),
        said("assistant", "Hello Alice! Nice to meet you. How can I help you today?"),
        said("user", "What is my name?"),
    )


def test_compact_response(gateway: RunningGateway) -> None:
    conversation = [
        said("user", "My name is Alice and I like hiking."),
        said("assistant", "Nice to meet you, Alice!"),
        said("user", "Recommend a trail."),
    ]
    status, body = send(gateway, "/v1/responses/compact", {"model": MODEL, "input": conversation})
    assert status == 200, body
    response: Json = json.loads(body)
    assert violations(VENDOR, "CompactResource", response) == set()
    assert response["object"] == "response.compaction"
    assert kinds(response) == ["message", "message", "compaction"]


def test_compact_missing_model(gateway: RunningGateway) -> None:
    status, _ = send(gateway, "/v1/responses/compact", {"input": [said("user", "Hello")]})
    assert status == 400


# --- over a WebSocket ---------------------------------------------------------------------------------------------


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[SocketClient]:
    with socket_client(gateway.url, MODEL) as connected:
        yield connected


def test_websocket_response(client: SocketClient) -> None:
    asked = said("user", "Count from 1 to 5.")
    assert kinds(completed(client.ask(input=[asked]))) == ["message"]


def test_websocket_sequential_responses(client: SocketClient) -> None:
    first = completed(client.ask(input=[said("user", "Say hello.")]))
    second = completed(client.ask(input=[said("user", "Say goodbye.")]))
    assert first["id"] != second["id"]
    assert second["output"]


def test_websocket_continuation(client: SocketClient) -> None:
    first = completed(client.ask(input="Remember the word: heron."))
    second = completed(client.ask(input="Which word?", previous_response_id=first["id"]))
    assert second["previous_response_id"] == first["id"]
    assert second["output"]


def test_websocket_reconnect_store_false_recovery(gateway: RunningGateway) -> None:
    with socket_client(gateway.url, MODEL) as before:
        first = completed(before.ask(input="Remember the word: heron."))
    with socket_client(gateway.url, MODEL) as after:
        frame = after.error(input="Which word?", previous_response_id=first["id"])
        assert frame["error"]["code"] == "previous_response_not_found"
        completed(after.ask(input="The word is heron. Which word?"))


def test_websocket_previous_response_not_found(client: SocketClient) -> None:
    frame = client.error(input="Go on.", previous_response_id="resp_missing")
    assert (frame["status"], frame["error"]["code"]) == (400, "previous_response_not_found")
    assert frame["error"]["param"] == "previous_response_id"


def test_websocket_failed_continuation_evicts_cache(client: SocketClient) -> None:
    first = completed(client.ask(input="Say hello."))
    output = {"type": "function_call_output", "call_id": "call_unknown", "output": "1"}
    client.error(input=[output], previous_response_id=first["id"])
    frame = client.error(input="Go on.", previous_response_id=first["id"])
    assert frame["error"]["code"] == "previous_response_not_found"


def test_websocket_compact_new_chain(gateway: RunningGateway, client: SocketClient) -> None:
    conversation = [said("user", "My name is Alice."), said("assistant", "Nice to meet you!")]
    status, body = send(gateway, "/v1/responses/compact", {"model": MODEL, "input": conversation})
    assert status == 200, body
    compacted = json.loads(body)["output"]
    answer = completed(client.ask(input=[*compacted, said("user", "Who am I?")]))
    assert answer["previous_response_id"] is None
    assert answer["output"]
