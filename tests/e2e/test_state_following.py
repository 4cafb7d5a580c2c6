"""A second reader follows a running response: it gets what was sent so far, and then what comes."""

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dragoman.testing import Chunk, ScriptedReply, Wait
from gateway_harness import DIALECTS, wait_until
from plain_http import fetch, following, plain_body, streaming
from sdk_clients import openai_client
from stage import Stage, running_stage
from vendor_wire import Answer, Said, stream
from wire_client import wire

DONE = Answer((Said(("It ", "is ", "sunny ", "in ", "Paris.")),))
dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"over-{dialect}")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with running_stage() as running:
        yield running


class Reader:
    """The events of a stream, read in a thread of its own as they come."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.events: list[dict[str, Any]] = []
        self._lines = lines
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        for line in self._lines:
            if line.startswith("data: "):
                self.events.append(json.loads(line.removeprefix("data: ")))

    def until(self, count: int) -> None:
        wait_until(lambda: len(self.events) >= count)

    def rest(self) -> list[dict[str, Any]]:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.events


@contextmanager
def held(
    stage: Stage, dialect: str, headers: dict[str, str] | None = None
) -> Generator[tuple[Reader, str, threading.Event]]:
    """A stream that stops in its middle until the event is set."""
    gate = threading.Event()
    sent = stream(dialect, DONE)
    cut = sent.index(b"\n\n", len(sent) // 2) + 2
    chunks: list[Chunk] = [sent[:cut], Wait(gate), sent[cut:]]
    scene = stage.scene(dialect, ScriptedReply(content_type="text/event-stream", chunks=chunks))
    body = {**plain_body("responses", scene.model), "stream": True}
    with streaming(stage.url, "responses", body, headers) as response:
        reader = Reader(response.iter_lines())
        reader.until(3)
        try:
            yield reader, reader.events[0]["response"]["id"], gate
        finally:
            gate.set()


@dialects
def test_a_follower_gets_what_was_sent_and_then_what_comes(stage: Stage, dialect: str) -> None:
    with held(stage, dialect) as (first, response_id, gate):
        path = f"{stage.url}/v1/responses/{response_id}?stream=true"
        with following(path) as whole, following(f"{path}&starting_after=1") as later:
            assert whole.headers["content-type"].startswith("text/event-stream")
            readers = [Reader(each.iter_lines()) for each in (whole, later)]
            readers[0].until(3)
            readers[1].until(1)
            # The response is still running: both readers have everything so far.
            assert first.thread.is_alive()
            assert all(reader.thread.is_alive() for reader in readers)
            gate.set()
            events = first.rest()
            assert events[-1]["type"] == "response.completed"
            assert readers[0].rest() == events
            assert readers[1].rest() == events[2:]


def test_the_sdk_follows_a_response_that_runs(stage: Stage) -> None:
    key = {"authorization": "Bearer key-of-the-client"}
    with held(stage, "chat", key) as (first, response_id, gate):
        texts = openai_client(stage.url).responses.retrieve(
            response_id, stream=True, starting_after=0
        )
        events = iter(texts)
        assert next(events).sequence_number == 1
        gate.set()
        rest = list(events)
        assert rest[-1].type == "response.completed"
        assert [event.sequence_number for event in rest] == list(range(2, len(first.rest())))


def test_a_follower_of_a_cancelled_response_gets_the_failure(stage: Stage) -> None:
    with held(stage, "chat") as (first, response_id, _):
        path = f"{stage.url}/v1/responses/{response_id}"
        with following(f"{path}?stream=true") as response:
            reader = Reader(response.iter_lines())
            reader.until(3)
            assert fetch("POST", f"{path}/cancel").status_code == 200
            assert reader.rest()[-1]["type"] == "response.failed"
        assert first.rest()[-1]["type"] == "response.failed"
    numbers = [event["sequence_number"] for event in reader.events]
    assert numbers == list(range(len(numbers)))


def test_a_follower_that_leaves_disturbs_nobody(stage: Stage) -> None:
    with held(stage, "chat") as (first, response_id, gate):
        with following(f"{stage.url}/v1/responses/{response_id}?stream=true") as response:
            assert next(response.iter_lines()).startswith("event:")
        gate.set()
        assert first.rest()[-1]["type"] == "response.completed"


def test_a_follower_that_half_closes_gets_the_rest(stage: Stage) -> None:
    with held(stage, "chat") as (first, response_id, gate), wire(stage.gateway) as client:
        client.send(
            f"GET /v1/responses/{response_id}?stream=true HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        )
        assert client.until(b"response.output_text.delta")
        client.end()
        assert client.until(b"\r\n0")  # the beginning of the next chunk's size
        gate.set()
        assert client.head().startswith(b"http/1.1 200 ")
        assert b"event: response.completed" in client.chunks()
        assert first.rest()[-1]["type"] == "response.completed"


def test_what_is_unknown_cannot_be_followed(stage: Stage) -> None:
    assert fetch("GET", f"{stage.url}/v1/responses/resp_none?stream=true").status_code == 404
