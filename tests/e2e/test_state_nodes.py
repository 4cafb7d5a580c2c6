"""Several gateways on one PostgreSQL: what one stored the others continue, and a database that goes away comes back."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dragoman.config.settings import StoreSettings
from gateway_harness import wait_until
from postgres_server import PostgresServer, run_postgres
from sdk_clients import openai_client
from served import PATIENCE, Served, serving

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {"type": "function", "name": "get_weather", "description": "weather", "parameters": SCHEMA}
]
MODEL = "rehearsal"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def nodes(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Served]]:
    environment = {"DRAGOMAN_STORE_URL": postgres.fresh()}
    folder: Path = tmp_path_factory.mktemp("nodes")
    with serving(folder, environment) as one, serving(folder, environment) as two:
        yield [one, two]


def client_of(node: Served) -> Any:
    return openai_client(node.url, "key")


def test_what_one_node_stored_another_continues(nodes: list[Served]) -> None:
    one, two = map(client_of, nodes)
    first = one.responses.create(model=MODEL, input="weather in Paris, please", tools=TOOLS)
    call = first.output[0]
    output = [{"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}]
    second = two.responses.create(
        model=MODEL, previous_response_id=first.id, input=output, tools=TOOLS
    )
    assert "21 degrees" in second.output_text
    stream = one.responses.create(
        model=MODEL, previous_response_id=second.id, input="And in Rome?", stream=True
    )
    third = list(stream)[-1].response
    assert third.status == "completed"
    assert two.responses.retrieve(third.id) == third
    items = two.responses.input_items.list(third.id, order="asc", limit=100)
    assert [item.type for item in items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]
    replayed = list(two.responses.retrieve(third.id, stream=True))
    assert replayed[-1].response == third


def test_of_many_at_once_on_two_nodes_exactly_one_continues(nodes: list[Served]) -> None:
    body = {"model": MODEL, "input": "weather in Oslo, please", "tools": TOOLS}
    first = json.loads(nodes[0].ask("/v1/responses", body)[1])
    outputs = {"tool_outputs": [{"call_id": first["output"][0]["call_id"], "output": "cold"}]}
    path = f"/v1/responses/{first['id']}/submit_tool_outputs"
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(nodes[each % 2].ask, path, outputs) for each in range(16)]
        assert sorted(each.result()[0] for each in asked) == [200] + [409] * 15


def test_a_response_is_cancelled_on_another_node(nodes: list[Served]) -> None:
    """That it runs is seen elsewhere in a moment, and that it was cancelled as soon; long before its lease is renewed."""
    ids: list[str] = []
    found: list[Any] = []

    def read() -> None:
        for event in client_of(nodes[0]).responses.create(
            model="rehearsal-slow", input="weather in Bergen, please " * 60, stream=True
        ):
            found.append(event)
            if event.type == "response.created":
                ids.append(event.response.id)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    wait_until(lambda: bool(ids), PATIENCE)
    path = f"/v1/responses/{ids[0]}"
    wait_until(lambda: nodes[1].ask(path)[0] == 200, PATIENCE)
    status, body = nodes[1].ask(f"{path}/cancel", {})
    assert status == 200
    assert json.loads(body)["status"] == "cancelled"
    reader.join(StoreSettings().lease / 3 / 2)
    assert not reader.is_alive()
    assert found[-1].type == "response.failed"
    assert json.loads(nodes[1].ask(path)[1])["status"] == "cancelled"


def test_a_response_of_another_node_is_sent_when_it_is_over(nodes: list[Served]) -> None:
    found: list[Any] = []

    def read() -> None:
        stream = client_of(nodes[0]).responses.create(
            model="rehearsal-slow", input="weather in Bergen, please " * 6, stream=True
        )
        found.extend(told_event for event in stream for told_event in _noted(event, ids))

    ids: list[str] = []
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    wait_until(lambda: bool(ids), PATIENCE)
    path = f"/v1/responses/{ids[0]}"
    wait_until(lambda: nodes[1].ask(path)[0] == 200, PATIENCE)
    assert json.loads(nodes[1].ask(path)[1])["status"] == "in_progress"
    followed = list(client_of(nodes[1]).responses.retrieve(ids[0], stream=True, starting_after=2))
    reader.join(PATIENCE)
    assert followed == found[3:]
    assert followed[-1].type == "response.completed"


def _noted(event: Any, ids: list[str]) -> list[Any]:
    if event.type == "response.created":
        ids.append(event.response.id)
    return [event]


def test_a_database_that_goes_away_comes_back(postgres: PostgresServer, tmp_path: Path) -> None:
    with serving(tmp_path, {"DRAGOMAN_STORE_URL": postgres.fresh()}) as node:
        body = {"model": MODEL, "input": "one"}
        first = json.loads(node.ask("/v1/responses", body)[1])
        again = {"model": MODEL, "input": "two", "previous_response_id": first["id"]}
        postgres.stop()
        try:
            for _ in range(3):
                status, lines = node.ask("/v1/responses", again)
                assert status == 503, lines
                assert json.loads(lines)["error"]["type"] == "server_error"
                status, lines = node.ask("/v1/responses", {**body, "stream": True})
                assert status == 200
                assert b"response.failed" in lines
                assert b"response.completed" not in lines
                assert node.ask("/v1/responses", {**body, "store": False})[0] == 200
                chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
                assert node.ask("/v1/chat/completions", chat)[0] == 200
                assert node.ask("/readyz")[0] == 200
                assert "store" in json.loads(node.ask("/readyz")[1])
        finally:
            postgres.start()
        # Nobody restarted anything.
        status, lines = node.ask("/v1/responses", again)
        assert status == 200, lines
        assert json.loads(lines)["previous_response_id"] == first["id"]
        assert json.loads(node.ask("/readyz")[1]) == {"status": "ready"}


def test_by_default_workers_share_a_file_that_survives_them(tmp_path: Path) -> None:
    file = tmp_path / ".local" / "state" / "dragoman" / "store.db"
    with serving(tmp_path, {}, "--workers", "2") as node:
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
        assert node.ask("/v1/chat/completions", chat)[0] == 200
        # It is made when there is something to keep.
        assert not file.exists()
        previous = None
        for number in range(12):
            body = {"model": MODEL, "input": f"turn {number}", "previous_response_id": previous}
            status, lines = node.ask("/v1/responses", {**body, "stream": number % 2 == 1})
            assert status == 200, lines
            last = lines.rpartition(b"data: ")[2] if number % 2 else lines
            response = json.loads(last)
            previous = response.get("response", response)["id"]
        assert file.stat().st_mode & 0o077 == 0
        node.stop()
        node.start()
        status, items = node.ask(f"/v1/responses/{previous}/input_items?limit=100")
        assert status == 200
        assert len(json.loads(items)["data"]) == 23
