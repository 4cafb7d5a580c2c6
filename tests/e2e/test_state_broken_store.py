"""A gateway whose store does not work: its clients, its log, its metrics and `/readyz` say so, and it recovers by itself."""

import json
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.state.managed_store import CHECK_SECONDS
from gateway_harness import wait_until
from served import PATIENCE, Served, serving

BODY = {"model": "rehearsal", "input": "one"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def gateway(tmp_path: Path, path: Path) -> Iterator[Served]:
    environment = {"DRAGOMAN_STORE_URL": f"sqlite://{path}"}
    with serving(tmp_path, environment, "--log-format", "json") as served:
        yield served


def log_of(served: Served) -> list[dict[str, Any]]:
    lines = served.log.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def requests_of(served: Served) -> list[dict[str, Any]]:
    return [line for line in log_of(served) if line["event"] == "request"]


def troubles_of(served: Served) -> list[str]:
    messages = [line["message"] for line in log_of(served) if line["event"] == "log"]
    return [message for message in messages if "the store does not work" in message]


def stored(served: Served) -> str:
    """The id of a response that was acknowledged, and is there."""
    status, body = served.ask("/v1/responses", BODY)
    assert status == 200, body
    response_id: str = json.loads(body)["id"]
    assert served.ask(f"/v1/responses/{response_id}")[0] == 200
    return response_id


def remove(path: Path) -> None:
    for file in path.parent.glob("store.db*"):
        file.unlink()


def replace_with_letter(path: Path) -> None:
    remove(path)
    path.write_bytes(b"a letter, and no database at all. " * 400)


def replace_with_foreign(path: Path) -> None:
    remove(path)
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()


def replace_with_newer(path: Path) -> None:
    other = sqlite3.connect(path.parent / "newer.db")
    ours = sqlite3.connect(path)
    ours.backup(other)
    ours.close()
    other.execute("PRAGMA user_version = 999")
    other.close()
    remove(path)
    (path.parent / "newer.db").rename(path)


@pytest.mark.parametrize(
    "damage", [remove, replace_with_letter, replace_with_foreign, replace_with_newer]
)
def test_store_that_breaks_is_reported_and_nothing_is_acknowledged_until_a_good_file_is_back(
    damage: Callable[[Path], None], gateway: Served, path: Path, tmp_path: Path
) -> None:
    old = stored(gateway)
    good = tmp_path / "good.db"
    source, target = sqlite3.connect(path), sqlite3.connect(good)
    source.backup(target)
    target.close()
    source.close()
    damage(path)
    for _ in range(3):
        status, body = gateway.ask("/v1/responses", BODY)
        assert status in (500, 503), body
        status, stream = gateway.ask("/v1/responses", {**BODY, "stream": True})
        assert status == 200
        assert b'"type":"response.failed"' in stream
        assert b'"type":"response.completed"' not in stream
        assert gateway.ask("/v1/responses", {**BODY, "store": False})[0] == 200
        assert gateway.ask(f"/v1/responses/{old}")[0] in (500, 503)
    status, ready = gateway.ask("/readyz")
    assert (status, "expected" in json.loads(ready)["store"]) == (200, True)
    assert b"store.db" not in ready  # where it is, the log says
    assert "store.db" in gateway.log.read_text(encoding="utf-8")
    wait_until(lambda: len(requests_of(gateway)) == 10, PATIENCE)
    failed = [line for line in requests_of(gateway) if line["stream"]]
    assert [line["level"] for line in failed] == ["error"] * 3
    assert [line["finish"] for line in failed] == ["error"] * 3
    assert all("could not be stored" in line["error"] for line in failed)
    metrics = gateway.ask("/metrics")[1].decode()
    errors = [line for line in metrics.splitlines() if line.startswith("dragoman_errors_total")]
    assert sum(float(line.rpartition(" ")[2]) for line in errors) == 6
    assert len(troubles_of(gateway)) == 1
    assert "store.db" in troubles_of(gateway)[0]
    remove(path)
    shutil.copy(good, path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)
    wait_until(lambda: json.loads(gateway.ask("/readyz")[1]) == {"status": "ready"}, PATIENCE)
    new = stored(gateway)
    gateway.kill()
    gateway.start()
    for response_id in (old, new):
        assert gateway.ask(f"/v1/responses/{response_id}")[0] == 200


@pytest.mark.parametrize("make", [replace_with_letter, replace_with_foreign])
def test_gateway_that_starts_on_a_file_that_is_no_store_says_so_once(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / ".local" / "state" / "dragoman" / "store.db"
    path.parent.mkdir(parents=True)
    make(path)
    before = path.read_bytes()
    with serving(tmp_path, {}, "--log-format", "json") as gateway:
        wait_until(lambda: "store" in json.loads(gateway.ask("/readyz")[1]), PATIENCE)
        for _ in range(3):
            assert gateway.ask("/v1/responses", BODY)[0] == 500
        assert len(troubles_of(gateway)) == 1
        assert str(path) in troubles_of(gateway)[0]
    assert path.read_bytes() == before


def test_file_that_is_removed_is_noticed_by_whoever_asks_only_for_readiness(
    gateway: Served, path: Path
) -> None:
    stored(gateway)
    remove(path)
    wait_until(lambda: "store" in json.loads(gateway.ask("/readyz")[1]), PATIENCE)


def test_full_disk_is_reported_until_it_can_be_written_and_what_was_stored_is_read(
    tmp_path: Path, path: Path
) -> None:
    """That the store can be read does not say that it can be written."""
    environment = {"DRAGOMAN_STORE_URL": f"sqlite://{path}"}
    limited = ("sh", "-c", 'ulimit -f 1600; exec "$@"', "sh")
    options = ("--log-format", "json")
    with serving(tmp_path, environment, *options, wrapper=limited) as gateway:
        acknowledged: list[str] = []
        status, text = 200, ""
        while status == 200:
            text = f"{len(acknowledged)} {random.Random(len(acknowledged)).randbytes(8000).hex()}"
            status, body = gateway.ask("/v1/responses", {"model": "rehearsal", "input": text})
            if status == 200:
                acknowledged.append(json.loads(body)["id"])
        assert status == 503
        assert len(acknowledged) > 5
        last_ready = time.monotonic()

        def is_full() -> bool:
            """Whether not even the gateway's own trial, a small write, has found room for some time."""
            nonlocal last_ready
            assert gateway.ask("/v1/responses", {"model": "rehearsal", "input": text})[0] == 503
            if "store" not in json.loads(gateway.ask("/readyz")[1]):
                last_ready = time.monotonic()
            return time.monotonic() - last_ready > 3 * CHECK_SECONDS

        wait_until(is_full, PATIENCE)
        for _ in range(3):
            for response_id in acknowledged:
                assert gateway.ask(f"/v1/responses/{response_id}")[0] == 200
            assert gateway.ask("/v1/responses", {"model": "rehearsal", "input": text})[0] == 503
            assert "store" in json.loads(gateway.ask("/readyz")[1])
        assert len(troubles_of(gateway)) == 1
