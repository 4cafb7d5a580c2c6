"""Background responses on several gateways, in processes of their own, on one store: followed, cancelled, killed, stopped."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway_harness import wait_until
from postgres_server import PostgresServer, run_postgres
from sdk_clients import openai_client
from served import PATIENCE, Served, serving

Json = dict[str, Any]
LEASE = 6
# A delta for each word, a tenth of a second between two.
SLOW = {"model": "rehearsal-slow", "background": True}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def nodes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Served]]:
    folder: Path = tmp_path_factory.mktemp("nodes")
    if request.param == "sqlite":
        url = f"sqlite://{folder / 'store.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.fresh()
    environment = {"DRAGOMAN_STORE_URL": url, "DRAGOMAN_STORE_LEASE": str(LEASE)}
    with (
        serving(folder, environment) as one,
        serving(folder, environment) as two,
        serving(folder, environment) as three,
    ):
        yield [one, two, three]


def create(node: Served, words: int, **more: object) -> str:
    """A background response that says some `words`: its path."""
    status, body = node.ask("/v1/responses", {**SLOW, "input": "long " * words, **more})
    assert status == 200, body
    response = json.loads(body)
    assert response["status"] == "queued"
    return f"/v1/responses/{response['id']}"


def read(node: Served, path: str) -> Json:
    status, body = node.ask(path)
    assert status == 200, body
    found: Json = json.loads(body)
    return found


def wait_for(node: Served, path: str, *statuses: str) -> Json:
    wait_until(lambda: read(node, path)["status"] in statuses, PATIENCE)
    return read(node, path)


class Follower:
    """The events of a response, read in a thread of its own."""

    def __init__(self, node: Served, path: str, after: int | None = None) -> None:
        self.events: list[Json] = []
        query = "stream=true" + ("" if after is None else f"&starting_after={after}")
        self._address = f"{node.url}{path}?{query}"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        headers = {"authorization": "Bearer key"}
        with httpx2.stream("GET", self._address, headers=headers, timeout=PATIENCE) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.events.append(json.loads(line.removeprefix("data: ")))

    def until(self, is_there: Callable[[list[Json]], bool]) -> None:
        wait_until(lambda: is_there(self.events), PATIENCE)

    def rest(self) -> list[Json]:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.events


def deltas(events: list[Json]) -> list[Json]:
    return [event for event in events if event["type"].endswith(".delta")]


@pytest.mark.parametrize("words", [12, 3000])
def test_it_is_followed_live_on_every_node(nodes: list[Served], words: int) -> None:
    path = create(nodes[0], words)
    followers = [Follower(node, path) for node in nodes]
    late = Follower(nodes[2], path, after=3)
    if words > 12:
        for follower in (*followers, late):
            follower.until(lambda events: len(deltas(events)) >= 3)
        # Long before its end.
        assert wait_for(nodes[1], path, "in_progress")["output"] == []
        assert nodes[1].ask(f"{path}/cancel", {})[0] == 200
    seen = [follower.rest() for follower in followers]
    for events in seen:
        assert events[-1]["response"]["status"] == ("cancelled" if words > 12 else "completed")
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
    if words == 12:
        assert seen[0] == seen[1] == seen[2]
        assert late.rest() == seen[0][4:]
    assert read(nodes[1], path) == seen[0][-1]["response"] == read(nodes[0], path)
    assert read(nodes[1], path)["background"] is True


def test_the_helper_of_the_sdk_takes_over_on_another_node(nodes: list[Served]) -> None:
    one, two = (openai_client(node.url, "key").responses for node in nodes[:2])
    first: list[Any] = []
    stream = one.create(**SLOW, input="long " * 12, stream=True)
    for event in stream:
        first.append(event)
        if event.type == "response.output_text.delta":
            break
    stream.close()
    response_id, cursor = first[0].response.id, first[-1].sequence_number
    with two.stream(response_id=response_id, starting_after=cursor) as again:
        numbers = [event.sequence_number for event in again]
        final = again.get_final_response()
    assert numbers == list(range(cursor + 1, cursor + 1 + len(numbers)))
    assert one.retrieve(response_id).output_text == final.output_text


@pytest.mark.parametrize("method", ["cancel", "delete"])
def test_it_is_ended_on_another_node(nodes: list[Served], method: str) -> None:
    path = create(nodes[0], 3000)
    follower = Follower(nodes[2], path)
    follower.until(lambda events: len(deltas(events)) >= 2)
    responses = openai_client(nodes[1].url, "key").responses
    response_id = path.rpartition("/")[2]
    if method == "cancel":
        assert responses.cancel(response_id).status == "cancelled"
        last = follower.rest()[-1]
        assert (last["type"], last["response"]["status"]) == ("response.failed", "cancelled")
        assert all(read(node, path)["status"] == "cancelled" for node in nodes)
    else:
        responses.delete(response_id)
        assert [node.ask(path)[0] for node in nodes] == [404] * 3
        follower.rest()
    # The node that runs it stops asking its upstream.
    wait_until(lambda: _open_streams(nodes[0]) == 0, PATIENCE)


def _open_streams(node: Served) -> float:
    lines = node.ask("/metrics")[1].decode().split("\n")
    (line,) = [line for line in lines if line.startswith("dragoman_open_streams")]
    return float(line.rpartition(" ")[2])


def test_a_killed_node_leaves_a_failure_and_no_ghost(nodes: list[Served]) -> None:
    running = create(nodes[0], 3000)
    follower = Follower(nodes[1], running)
    follower.until(lambda events: len(deltas(events)) >= 2)
    queued = create(nodes[0], 3000, model="rehearsal-hang")
    nodes[0].kill()
    for path in (running, queued):
        response = wait_for(nodes[1], path, "failed")
        assert "ended before the response did" in response["error"]["message"]
        assert response["background"] is True
    events = follower.rest()
    assert events[-1]["type"] == "response.failed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    # Who comes later gets what was sent, and the failure. So does the node that was killed, once it is back.
    nodes[0].start()
    for node in nodes:
        assert read(node, running)["status"] == "failed"
        assert Follower(node, running).rest() == events


def test_a_killed_node_gives_back_the_conversation_of_its_response(nodes: list[Served]) -> None:
    status, body = nodes[1].ask("/v1/conversations", {})
    assert status == 200, body
    name = json.loads(body)["id"]
    running = create(nodes[0], 3000, conversation=name)
    wait_for(nodes[1], running, "in_progress")
    status, body = nodes[1].ask("/v1/responses", {**SLOW, "input": "x", "conversation": name})
    assert (status, json.loads(body)["error"]["code"]) == (400, "conversation_locked")
    nodes[0].kill()
    assert wait_for(nodes[1], running, "failed")["conversation"] == {"id": name}
    # Nothing of the response is there, and others go on.
    wait_until(lambda: _is_given_back(nodes[2], name), PATIENCE)
    wait_for(nodes[1], create(nodes[1], 2, conversation=name), "completed")
    nodes[0].start()
    items = read(nodes[0], f"/v1/conversations/{name}/items?order=asc")["data"]
    assert [item["role"] for item in items] == ["user", "assistant", "user", "assistant"]
    assert [item["content"][0]["text"] for item in items][::2] == ["free?", "long long "]


def _is_given_back(node: Served, name: str) -> bool:
    asked = {"model": "rehearsal", "input": "free?", "conversation": name}
    status, _ = node.ask("/v1/responses", asked)
    return status == 200


def test_a_response_that_was_reported_as_failed_never_ends_otherwise(nodes: list[Served]) -> None:
    """A node that stood still for longer than a lease wakes up, and goes on with a response that others gave up."""
    path = create(nodes[0], 60)
    wait_for(nodes[1], path, "in_progress")
    nodes[0].signal(signal.SIGSTOP)
    try:
        wait_for(nodes[1], path, "failed")
    finally:
        nodes[0].signal(signal.SIGCONT)
    wait_until(lambda: _open_streams(nodes[0]) == 0, PATIENCE)
    assert [read(node, path)["status"] for node in nodes] == ["failed"] * 3


def test_a_stopped_node_says_why_it_failed(nodes: list[Served]) -> None:
    short = create(nodes[2], 8)
    long = create(nodes[2], 3000)
    wait_for(nodes[1], long, "in_progress")
    nodes[2].signal(signal.SIGTERM)
    # It goes on within the grace period, although nobody is connected.
    assert wait_for(nodes[1], short, "completed")["status"] == "completed"
    response = wait_for(nodes[1], long, "failed")
    assert "shutting down" in response["error"]["message"]
    assert nodes[2].wait() == 0
    nodes[2].start()
    assert read(nodes[2], long) == response


def test_a_failed_response_stays_failed_and_an_ended_one_is_continued(nodes: list[Served]) -> None:
    first = create(nodes[0], 5)
    wait_for(nodes[1], first, "completed")
    previous = {"previous_response_id": first.rpartition("/")[2]}
    second = create(nodes[1], 5, **previous)
    assert (
        wait_for(nodes[2], second, "completed")["previous_response_id"]
        == previous["previous_response_id"]
    )
    running = create(nodes[0], 3000)
    wait_for(nodes[1], running, "in_progress")
    body = {"model": "rehearsal", "input": "x", "previous_response_id": running.rpartition("/")[2]}
    assert nodes[1].ask("/v1/responses", body)[0] == 409
    assert nodes[1].ask(f"{running}/cancel", {})[0] == 200


def test_a_database_that_goes_away_costs_nothing_that_was_acknowledged(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    environment = {"DRAGOMAN_STORE_URL": postgres.fresh(), "DRAGOMAN_STORE_LEASE": "30"}
    with serving(tmp_path, environment) as node:
        path = create(node, 50)
        wait_for(node, path, "in_progress")
        postgres.stop()
        try:
            status, body = node.ask("/v1/responses", {**SLOW, "input": "x"})
            assert status == 503, body
            # The response ends while the database is away.
            wait_until(lambda: _is_storing_late(node), PATIENCE)
        finally:
            postgres.start()
        assert wait_for(node, path, "completed", "failed")["status"] == "completed"
        assert node.ask(f"{path}?stream=true")[1].count(b"event: response.completed") == 1


def _is_storing_late(node: Served) -> bool:
    lines = node.ask("/metrics")[1].decode().split("\n")
    return any('operation="store"' in line and 'outcome="error"' in line for line in lines)
