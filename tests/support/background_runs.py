"""Background responses in tests: an upstream that stops where the test wants it to, and a client that polls."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from dragoman.testing import Chunk, ScriptedReply, Wait
from gateway_harness import wait_until
from plain_http import ask, fetch, plain_body
from stage import Scene, Stage
from vendor_wire import Answer, Said, stream

Json = dict[str, Any]

TEXT = "It is sunny in Paris."
DONE = Answer((Said(("It ", "is ", "sunny ", "in ", "Paris.")),))


def gated(dialect: str, gate: threading.Event, answer: Answer = DONE) -> ScriptedReply:
    """An answer that stops in its middle until the gate opens."""
    sent = stream(dialect, answer)
    cut = sent.index(b"\n\n", len(sent) // 2) + 2
    chunks: list[Chunk] = [sent[:cut], Wait(gate), sent[cut:]]
    return ScriptedReply(content_type="text/event-stream", chunks=chunks)


def queued(stage: Stage, scene: Scene, **more: object) -> str:
    """The address of a new background response, which is queued."""
    body = plain_body("responses", scene.model, background=True, **more)
    answer = ask(stage.url, "responses", body)
    assert answer.status_code == 200, answer.text
    response = answer.json()
    assert (response["status"], response["output"]) == ("queued", [])
    assert response["background"] is True
    return f"{stage.url}/v1/responses/{response['id']}"


def status_of(path: str) -> str:
    status: str = fetch("GET", path).json()["status"]
    return status


def ended(path: str) -> Json:
    """The response at this address, once it has ended."""
    wait_until(lambda: status_of(path) not in ("queued", "in_progress"))
    response: Json = fetch("GET", path).json()
    return response


def events_of(content: str) -> list[Json]:
    lines = content.split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


class Started:
    """A background response that is in the middle of its answer."""

    def __init__(self, scene: Scene, path: str, gate: threading.Event) -> None:
        self.scene = scene
        self.path = path
        self.gate = gate

    @property
    def id(self) -> str:
        return self.path.rpartition("/")[2]


@contextmanager
def started(stage: Stage, dialect: str = "chat", **more: object) -> Generator[Started]:
    gate = threading.Event()
    scene = stage.scene(dialect, gated(dialect, gate))
    path = queued(stage, scene, **more)
    try:
        wait_until(lambda: status_of(path) == "in_progress")
        yield Started(scene, path, gate)
    finally:
        gate.set()
