"""Two gateways in processes of their own, on one store: the limits of a key hold for both together."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from commands import run_command
from gateway_harness import wait_until
from postgres_server import run_postgres
from served import PATIENCE, Served, serving

REQUESTS = 7
STREAMS = 2


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def store_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path_factory.mktemp('store') / 'store.db'}"
        return
    with run_postgres() as server:
        yield server.fresh()


class Nodes:
    """`keys`: the secrets by name, as `dragoman keys add` printed them."""

    def __init__(self, served: list[Served], keys: dict[str, str], file: Path) -> None:
        self.served = served
        self.keys = keys
        self.file = file

    def ask(self, number: int, name: str, path: str, body: Any = None) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.keys[name]}"}
        url = self.served[number % len(self.served)].url
        request = urllib.request.Request(url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def usage(self, number: int, name: str) -> Any:
        return json.loads(self.ask(number, name, "/v1/usage")[1])["key"]


def add_key(file: Path, name: str, *limits: str) -> str:
    arguments = [part for limit in limits for part in ("--limit", limit)]
    done = run_command(
        *("keys", "add", name, "--config", str(file), *arguments), cwd=file.parent, env={}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def nodes(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("nodes")
    file = folder / "gateway.toml"
    file.write_text("# two nodes\n", encoding="utf-8")
    keys = {
        "burst": add_key(file, "burst", f"requests_per_day={REQUESTS}"),
        "stream": add_key(file, "stream", f"max_streams={STREAMS}"),
        "tokens": add_key(file, "tokens", "tokens_per_day=1"),
        "free": add_key(file, "free"),
    }
    environment = {"DRAGOMAN_STORE_URL": store_url}
    options = ("--config", str(file))
    with (
        serving(folder, environment, *options) as one,
        serving(folder, environment, *options, "--workers", "2") as two,
    ):
        yield Nodes([one, two], keys, file)


def body(model: str = "rehearsal") -> Any:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}]}


def test_of_a_burst_on_both_nodes_as_many_pass_as_the_limit_says(nodes: Nodes) -> None:
    def one(number: int) -> int:
        return nodes.ask(number, "burst", "/v1/chat/completions", body())[0]

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(one, range(30)))
    assert sorted(statuses) == [200] * REQUESTS + [429] * (30 - REQUESTS)
    assert nodes.ask(0, "free", "/v1/chat/completions", body())[0] == 200


def test_streams_are_counted_across_nodes(nodes: Nodes) -> None:
    slow = body("rehearsal-slow")

    def one(number: int) -> int:
        return nodes.ask(number, "stream", "/v1/chat/completions", slow)[0]

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(one, range(6)))
    assert statuses.count(200) >= STREAMS
    assert set(statuses) <= {200, 429}
    assert 429 in statuses
    wait_until(lambda: nodes.usage(1, "stream")["running"] == 0)


def test_tokens_that_one_node_counted_refuse_at_the_other(nodes: Nodes) -> None:
    assert nodes.ask(0, "tokens", "/v1/chat/completions", body())[0] == 200

    def is_counted() -> bool:
        used: int = nodes.usage(1, "tokens")["limits"][0]["used"]
        return used > 0

    wait_until(is_counted)
    status, answer = nodes.ask(1, "tokens", "/v1/chat/completions", body())
    assert status == 429
    assert json.loads(answer)["error"]["code"] == "insufficient_quota"


def test_revoked_key_is_refused_by_a_gateway_that_starts_afterwards(
    nodes: Nodes, tmp_path: Path
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_bytes(nodes.file.read_bytes())
    done = run_command("keys", "revoke", "free", "--config", str(file), cwd=tmp_path, env={})
    assert done.returncode == 0
    environment = {"DRAGOMAN_STORE_URL": "memory:"}
    with serving(tmp_path, environment, "--config", str(file)) as fresh:
        after = Nodes([fresh], nodes.keys, file)
        assert after.ask(0, "free", "/v1/models")[0] == 401
        assert after.ask(0, "burst", "/v1/models")[0] == 200
