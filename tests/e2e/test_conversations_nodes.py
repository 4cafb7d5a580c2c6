"""Two gateways on one store, SQLite and PostgreSQL: one conversation, one response at a time, and a node that is killed."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway_harness import wait_until
from postgres_server import run_postgres
from sdk_clients import openai_client
from served import PATIENCE, Served, serving

MODEL = "rehearsal"
SLOW = "rehearsal-slow"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {"type": "function", "name": "get_weather", "description": "weather", "parameters": SCHEMA}
]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def environment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("store") / "store.db"
        yield {"DRAGOMAN_STORE_URL": f"sqlite://{path}"}
        return
    with run_postgres() as server:
        yield {"DRAGOMAN_STORE_URL": server.fresh()}


@pytest.fixture(scope="module")
def nodes(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Served]]:
    folder: Path = tmp_path_factory.mktemp("nodes")
    with serving(folder, environment) as one, serving(folder, environment) as two:
        yield [one, two]


def client_of(node: Served) -> Any:
    return openai_client(node.url, "key")


def types(node: Served, name: str) -> list[str]:
    items = client_of(node).conversations.items.list(name, order="asc", limit=100)
    return [item.type for item in items]


def test_a_conversation_goes_on_from_node_to_node(nodes: list[Served]) -> None:
    one, two = map(client_of, nodes)
    name = one.conversations.create(metadata={"from": "one"}).id
    assert two.conversations.retrieve(name).metadata == {"from": "one"}
    first = two.responses.create(
        model=MODEL, conversation=name, input="weather in Paris, please", tools=TOOLS
    )
    call = first.output[0]
    output = [{"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}]
    second = one.responses.create(model=MODEL, conversation=name, input=output, tools=TOOLS)
    assert "21 degrees" in second.output_text
    assert types(nodes[1], name) == ["message", "function_call", "function_call_output", "message"]
    two.conversations.delete(name)
    assert nodes[0].ask(f"/v1/conversations/{name}")[0] == 404


def test_of_many_at_once_on_two_nodes_all_that_are_answered_are_there(nodes: list[Served]) -> None:
    """Whoever is refused is refused before anything was asked; whoever is answered has both items in the conversation."""
    name = client_of(nodes[0]).conversations.create().id

    def one(number: int) -> tuple[int, bytes]:
        body = {"model": MODEL, "conversation": name, "input": f"word {number}"}
        return nodes[number % 2].ask("/v1/responses", body)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(24)))
    refused = [json.loads(body)["error"]["code"] for status, body in answers if status != 200]
    assert set(refused) <= {"conversation_locked"}
    answered = [number for number, (status, _) in enumerate(answers) if status == 200]
    assert answered
    items = client_of(nodes[1]).conversations.items.list(name, order="asc", limit=100)
    said = [item.content[0].text for item in items]
    assert len(said) == 2 * len(answered)
    assert sorted(said[::2]) == sorted(f"word {number}" for number in answered)


def test_a_node_that_is_killed_leaves_nothing_half(
    nodes: list[Served], environment: dict[str, str], tmp_path: Path
) -> None:
    hello: Any = {"role": "user", "content": "hello"}
    client = client_of(nodes[0])
    name = client.conversations.create(items=[hello]).id
    with serving(tmp_path, environment) as victim:
        body = {"model": SLOW, "conversation": name, "input": "weather " * 400, "stream": True}
        received: list[tuple[int, bytes]] = []
        reader = threading.Thread(
            target=lambda: received.append(victim.receive("/v1/responses", body)), daemon=True
        )
        reader.start()
        wait_until(lambda: _is_locked(nodes[0], name), PATIENCE)
        victim.kill()
        reader.join(PATIENCE)
    assert b"response.completed" not in received[0][1]
    assert types(nodes[0], name) == ["message"]
    # Its hold lapses with its lease; until then others wait, and the conversation can be read and deleted.
    assert _is_locked(nodes[1], name)
    client.conversations.delete(name)
    assert nodes[1].ask(f"/v1/conversations/{name}")[0] == 404


def _is_locked(node: Served, name: str) -> bool:
    """Whether a response holds the conversation. Deleting an unknown item changes nothing."""
    with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as refused:
        client_of(node).conversations.items.delete("msg_none", conversation_id=name)
    return refused.value.code == "conversation_locked"
