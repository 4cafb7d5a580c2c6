"""An answer that comes at once: all of it but its end is told while it is stored, and the end when it is."""

import json
import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import DIALECTS, WAYS, wait_until
from plain_http import fetch, plain_body, streaming
from stage import Stage, running_stage
from vendor_wire import Answer, Said, Tool

from dragoman.store.settings import StoreSettings

WORDS = tuple(f"word {number} " for number in range(300))
LONG = Answer((Said(WORDS), Tool("call_1", "get_weather", ('{"city":', '"Paris"}'))))
TOOLS = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]
PROFILES = ("default", "required-action")
Json = dict[str, Any]


class Reader:
    """The events of a stream, read in a thread of its own as they come."""

    def __init__(self, stage: Stage, body: Json, profile: str) -> None:
        self.events: list[Json] = []
        headers = {"x-dragoman-profile": profile}
        self.thread = threading.Thread(target=self._read, args=(stage.url, body, headers))
        self.thread.start()

    def _read(self, url: str, body: Json, headers: dict[str, str]) -> None:
        with streaming(url, "responses", body, headers) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.events.append(json.loads(line.removeprefix("data: ")))

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Nobody else writes to the database."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")
def test_only_the_end_of_an_answer_waits_until_it_is_stored(
    dialect: str, profile: str, way: str, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    with running_stage(store=StoreSettings(url=f"sqlite://{path}"), way=way) as stage:
        scene = stage.scene(dialect, LONG)
        body = plain_body("responses", scene.model, tools=TOOLS, stream=True)
        wait_until(lambda: stage.gateway.app.gateway.store.is_open)
        with locked(path):
            reader = Reader(stage, body, profile)
            wait_until(lambda: "response.output_item.done" in reader.types[-1:])
            deltas = [each for each in reader.events if "text.delta" in each["type"]]
            assert "".join(each["delta"] for each in deltas) == "".join(WORDS)
            assert "response.required_action" not in reader.types
            address = f"{stage.url}/v1/responses/{reader.events[0]['response']['id']}"
            assert "response.completed" not in reader.types
        reader.thread.join(10)
        assert reader.types[-1] == "response.completed"
        assert ("response.required_action" in reader.types) == (profile != "default")
        numbers = [event["sequence_number"] for event in reader.events]
        assert numbers == sorted(set(numbers))
        assert fetch("GET", address).json() == reader.events[-1]["response"]
        again = fetch("GET", f"{address}?stream=true").text.splitlines()
        told = [json.loads(line[6:]) for line in again if line.startswith("data: ")]
        assert told == reader.events
